//! What experiments of one run have in common.

use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Results by name, so that what several experiments need is measured once. Clones share. A name holds
/// everything the result depends on. Thread-safe.
#[derive(Clone, Default)]
pub struct SharedResults {
    results: Arc<Mutex<BTreeMap<String, Arc<dyn Any + Send + Sync>>>>,
}

impl SharedResults {
    /// The result called `name`, if there is one of this type.
    pub(crate) fn get<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        let found = self.results.lock().get(name).cloned();
        found.and_then(|result| result.downcast().ok())
    }

    /// Keeps a result.
    pub(crate) fn insert<T: Any + Send + Sync>(&self, name: &str, result: Arc<T>) {
        self.results.lock().insert(name.to_owned(), result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_and_types_are_kept_apart() {
        let shared = SharedResults::default();
        shared.clone().insert("a", Arc::new(7u32));
        assert_eq!(shared.get::<u32>("a").as_deref(), Some(&7));
        assert!(shared.get::<u64>("a").is_none() && shared.get::<u32>("b").is_none());
    }
}
