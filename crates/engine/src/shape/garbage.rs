//! Files nobody needs any more.

use parking_lot::Mutex;

/// Files that left the tree and that no reader holds any more, waiting to be removed.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    tables: Mutex<Vec<u64>>,
    manifests: Mutex<Vec<u64>>,
    logs: Mutex<Vec<u64>>,
}

impl Garbage {
    pub(crate) fn push_table(&self, number: u64) {
        self.tables.lock().push(number);
    }

    pub(crate) fn push_manifest(&self, number: u64) {
        self.manifests.lock().push(number);
    }

    pub(crate) fn push_log(&self, number: u64) {
        self.logs.lock().push(number);
    }

    /// Something waits to be removed.
    pub(crate) fn any(&self) -> bool {
        !self.tables.lock().is_empty() || !self.manifests.lock().is_empty() || !self.logs.lock().is_empty()
    }

    /// Tables to be removed, in ascending order: whoever takes them removes them.
    pub(crate) fn take_tables(&self) -> Vec<u64> {
        take(&self.tables)
    }

    /// The same for manifests.
    pub(crate) fn take_manifests(&self) -> Vec<u64> {
        take(&self.manifests)
    }

    /// The same for logs.
    pub(crate) fn take_logs(&self) -> Vec<u64> {
        take(&self.logs)
    }
}

fn take(list: &Mutex<Vec<u64>>) -> Vec<u64> {
    let mut numbers = std::mem::take(&mut *list.lock());
    numbers.sort_unstable();
    numbers
}
