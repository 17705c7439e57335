//! Tables by file: opening them through the table cache, and removing the files nobody needs.

use crate::cache::BlockCache;
use crate::error::Error;
use crate::file_name;
use crate::media::FileMedia;
use crate::options::Options;
use crate::shape::{FileMeta, Garbage};
use crate::table::Table;
use crate::table::{FileAccess, TableCache, TableHandle, TableRef};
use std::sync::Arc;
use varve_env::Env;
use varve_store::{FileStore, IoClass, IoContext};

/// The open tables of one database.
pub(super) struct Tables {
    files: Arc<dyn FileStore>,
    logs: Arc<dyn FileStore>,
    pub(super) cache: TableCache,
    pub(super) garbage: Arc<Garbage>,
}

impl Tables {
    pub(super) fn new(
        env: &Env,
        media: &FileMedia,
        options: &Options,
        blocks: Arc<BlockCache>,
        garbage: Arc<Garbage>,
    ) -> Arc<Self> {
        let cache = TableCache::new(
            env,
            media.files.clone(),
            options.max_open_files,
            FileAccess { direct: options.use_direct_reads, map: options.allow_mmap_reads },
            IoContext::of(IoClass::UserRead),
            blocks,
        );
        Arc::new(Tables { files: media.files.clone(), logs: media.log_store().clone(), cache, garbage })
    }

    /// The open table of `file`, opening it when needed.
    #[inline]
    pub(super) fn get<'a>(&self, file: &'a FileMeta) -> Result<TableRef<'a>, Error> {
        self.cache.table(file.handle(), || Some(file.identity()))
    }

    /// [`Tables::get`] for a walk or a job, whose class the requests have that open it.
    #[inline]
    pub(super) fn get_for<'a>(&self, file: &'a FileMeta, io: &IoContext) -> Result<TableRef<'a>, Error> {
        self.cache.table_for(file.handle(), io, || Some(file.identity()))
    }

    /// Opens a table that is not part of the tree, for salvage.
    pub(super) fn open_unlisted(&self, number: u64, size_bytes: u64) -> Result<Arc<Table>, Error> {
        let handle = TableHandle::new(number, size_bytes);
        Ok(Arc::clone(&*self.cache.table(&handle, || None)?))
    }

    /// Removes garbage. A file that cannot be removed now is tried again at the next open.
    pub(super) fn collect(&self) {
        for number in self.garbage.take_tables() {
            self.cache.remove(number);
            let _ = self.files.remove(&file_name::table(number));
        }
        for number in self.garbage.take_manifests() {
            let _ = self.files.remove(&file_name::manifest(number));
        }
        for number in self.garbage.take_logs() {
            let _ = self.logs.remove(&file_name::log(number));
        }
    }
}
