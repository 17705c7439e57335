//! What a database stands on.

use std::sync::Arc;
use varve_store::FileStore;

/// The media of one database, as a bundle. A tree takes the parts it needs.
///
/// Later trees add parts beside these: segments, and a persistent heap.
#[derive(Clone)]
pub struct Media {
    /// Tables, manifest, and logs unless `logs` is given.
    pub files: Arc<dyn FileStore>,
    /// Write-ahead logs, when they live elsewhere. One database to a store.
    pub logs: Option<Arc<dyn FileStore>>,
}

impl Media {
    /// Everything in one store.
    pub fn of_files(files: Arc<dyn FileStore>) -> Self {
        Media { files, logs: None }
    }

    pub(crate) fn log_store(&self) -> &Arc<dyn FileStore> {
        self.logs.as_ref().unwrap_or(&self.files)
    }
}
