//! Tables by file: opening them through the table cache, and removing the files nobody needs.

use crate::cache::BlockCache;
use crate::error::Error;
use crate::file_name;
use crate::media::FileMedia;
use crate::options::Options;
use crate::shape::{FileMeta, Garbage};
use crate::table::Table;
use crate::table::{FileAccess, TableCache, TableHandle, TableRef};
use crate::unreadable::{LostTables, unreadable};
use std::sync::{Arc, OnceLock};
use varve_env::Env;
use varve_store::{FileStore, IoClass, IoContext};

/// The open tables of one database.
pub(super) struct Tables {
    files: Arc<dyn FileStore>,
    logs: Arc<dyn FileStore>,
    pub(super) cache: TableCache,
    pub(super) garbage: Arc<Garbage>,
    /// Tables of the tree that are not there.
    lost: OnceLock<LostTables>,
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
        Arc::new(Tables {
            files: media.files.clone(),
            logs: media.log_store().clone(),
            cache,
            garbage,
            lost: OnceLock::new(),
        })
    }

    /// Says which tables of the tree are not there, once.
    pub(super) fn set_lost(&self, lost: LostTables) {
        if !lost.is_empty() {
            let _ = self.lost.set(lost);
        }
    }

    /// Tables of the tree that are not there, if any are not.
    pub(super) fn lost(&self) -> Option<&LostTables> {
        self.lost.get()
    }

    #[inline]
    fn refuse_if_lost(&self, file: &FileMeta) -> Result<(), Error> {
        match self.lost.get().and_then(|lost| lost.get(&file.number)) {
            Some(cause) => Err(unreadable(file, cause)),
            None => Ok(()),
        }
    }

    /// The open table of `file`, opening it when needed.
    #[inline]
    pub(super) fn get<'a>(&self, file: &'a FileMeta) -> Result<TableRef<'a>, Error> {
        self.refuse_if_lost(file)?;
        self.cache.table(file.handle(), || Some(file.identity()))
    }

    /// [`Tables::get`] for a walk or a job, whose class the requests have that open it.
    #[inline]
    pub(super) fn get_for<'a>(&self, file: &'a FileMeta, io: &IoContext) -> Result<TableRef<'a>, Error> {
        self.refuse_if_lost(file)?;
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
