//! Tables by file: opening them through the table cache, and removing the files nobody needs.

use super::version::FileMeta;
use crate::cache::{BlockCache, TableCache, TableHandle, TableRef};
use crate::error::Error;
use crate::file_name;
use crate::media::Media;
use crate::options::Options;
use crate::table::Table;
use parking_lot::Mutex;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{FileStore, IoClass, IoContext};

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

    pub(super) fn push_manifest(&self, number: u64) {
        self.manifests.lock().push(number);
    }

    pub(super) fn push_log(&self, number: u64) {
        self.logs.lock().push(number);
    }

    /// Something waits to be removed.
    pub(super) fn any(&self) -> bool {
        !self.tables.lock().is_empty() || !self.manifests.lock().is_empty() || !self.logs.lock().is_empty()
    }

    fn take(list: &Mutex<Vec<u64>>) -> Vec<u64> {
        let mut numbers = std::mem::take(&mut *list.lock());
        numbers.sort_unstable();
        numbers
    }
}

/// The open tables of one database.
pub(super) struct Tables {
    files: Arc<dyn FileStore>,
    logs: Arc<dyn FileStore>,
    pub(super) cache: TableCache,
}

impl Tables {
    pub(super) fn new(env: &Env, media: &Media, options: &Options, blocks: Arc<BlockCache>) -> Arc<Self> {
        let cache = TableCache::new(
            env,
            media.files.clone(),
            options.max_open_files,
            options.use_direct_reads,
            IoContext::of(IoClass::UserRead),
            blocks,
        );
        Arc::new(Tables { files: media.files.clone(), logs: media.log_store().clone(), cache })
    }

    /// The open table of `file`, opening it when needed.
    #[inline]
    pub(super) fn get<'a>(&self, file: &'a FileMeta) -> Result<TableRef<'a>, Error> {
        self.cache.table(&file.handle, || Some(file.identity()))
    }

    /// Opens a table that is not part of the tree, for salvage.
    pub(super) fn open_unlisted(&self, number: u64, size_bytes: u64) -> Result<Arc<Table>, Error> {
        let handle = TableHandle::new(number, size_bytes);
        Ok(Arc::clone(&*self.cache.table(&handle, || None)?))
    }

    /// Removes garbage. A file that cannot be removed now is tried again at the next open.
    pub(super) fn collect(&self, garbage: &Garbage) {
        for number in Garbage::take(&garbage.tables) {
            self.cache.remove(number);
            let _ = self.files.remove(&file_name::table(number));
        }
        for number in Garbage::take(&garbage.manifests) {
            let _ = self.files.remove(&file_name::manifest(number));
        }
        for number in Garbage::take(&garbage.logs) {
            let _ = self.logs.remove(&file_name::log(number));
        }
    }
}
