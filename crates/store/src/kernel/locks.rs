//! Names that are locked while a store is open.

use crate::file_store::StoreLock;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The names that are locked. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct NameLocks {
    names: Mutex<BTreeSet<String>>,
}

impl NameLocks {
    /// Locks a name until what is returned is dropped; `None` when it is locked.
    pub(crate) fn lock(locks: &Arc<NameLocks>, name: &str) -> Option<NameLock> {
        let is_taken = !locks.names.lock().insert(name.to_owned());
        (!is_taken).then(|| NameLock { locks: locks.clone(), name: name.to_owned() })
    }
}

/// A name that is locked.
pub(crate) struct NameLock {
    locks: Arc<NameLocks>,
    name: String,
}

impl StoreLock for NameLock {}

impl Drop for NameLock {
    fn drop(&mut self) {
        self.locks.names.lock().remove(&self.name);
    }
}
