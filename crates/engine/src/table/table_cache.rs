//! The table cache: a bounded number of open tables.
//!
//! Each table of a version has a [`TableHandle`]. While there is room, opening a table pins it in its
//! handle, and using it afterwards costs one load. Only when a store has more tables than may be open
//! do the rest take turns, found through a map behind a lock.

use super::{Table, TableIdentity, TableReadOptions};
use crate::cache::BlockCache;
use crate::error::Error;
use crate::file_name;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use varve_env::{Condvar, Env, Mutex};
use varve_store::{FileStore, IoContext, OpenOptions};

/// Of sixteen tables that may be open, this many may be pinned; the rest is left for taking turns.
const PINNED_SIXTEENTHS: usize = 14;

/// A table of the tree, open or not. Belongs to whatever knows that the table exists; when the handle
/// is dropped, the table is closed once nobody uses it.
pub(crate) struct TableHandle {
    file_number: u64,
    size_bytes: u64,
    pinned: OnceLock<PinnedTable>,
}

struct PinnedTable {
    table: Arc<Table>,
    count: Arc<AtomicUsize>,
}

impl Drop for PinnedTable {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TableHandle {
    pub(crate) fn new(file_number: u64, size_bytes: u64) -> Self {
        TableHandle { file_number, size_bytes, pinned: OnceLock::new() }
    }
}

/// An open table that stays open while this is held.
pub(crate) enum TableRef<'a> {
    Pinned(&'a Arc<Table>),
    Shared(Arc<Table>),
}

impl Deref for TableRef<'_> {
    type Target = Arc<Table>;
    #[inline]
    fn deref(&self) -> &Arc<Table> {
        match self {
            TableRef::Pinned(table) => table,
            TableRef::Shared(table) => table,
        }
    }
}

struct Resident {
    table: Arc<Table>,
    /// Used since the cache last looked for one to close.
    used: bool,
}

#[derive(Default)]
struct ResidentTables {
    /// Open tables that are not pinned.
    tables: BTreeMap<u64, Resident>,
    /// Their numbers, oldest first; each gets a second chance when it was used.
    queue: VecDeque<u64>,
    /// Being opened by somebody.
    opening: BTreeSet<u64>,
}

/// How files of tables are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileAccess {
    /// Past the operating system's cache.
    pub(crate) direct: bool,
    /// Where they lie in memory, if the medium has that.
    pub(crate) map: bool,
}

/// Open tables of one store, at most `max_open_files` of them besides those in use. Thread-safe.
pub(crate) struct TableCache {
    store: Arc<dyn FileStore>,
    options: TableReadOptions,
    access: FileAccess,
    block_cache: Arc<BlockCache>,
    capacity: usize,
    pinned: Arc<AtomicUsize>,
    state: Mutex<ResidentTables>,
    opened: Condvar,
}

impl TableCache {
    /// A cache over `store`.
    pub(crate) fn new(
        env: &Env,
        store: Arc<dyn FileStore>,
        max_open_files: usize,
        access: FileAccess,
        io: IoContext,
        block_cache: Arc<BlockCache>,
    ) -> Self {
        let alignment = if access.direct { store.properties().read_alignment_bytes as usize } else { 1 };
        let options = TableReadOptions {
            env: env.clone(),
            read_alignment_bytes: alignment.max(1),
            map: access.map && !access.direct,
            io,
            memory: Arc::new(AtomicUsize::new(0)),
        };
        TableCache {
            store,
            options,
            access,
            block_cache,
            capacity: max_open_files.max(1),
            pinned: Arc::new(AtomicUsize::new(0)),
            state: Mutex::new(env, "table cache", ResidentTables::default()),
            opened: Condvar::new(env, "table cache opening"),
        }
    }

    /// The open table of a handle. Opens it if need be; of several threads that need it at once one opens it
    /// and the others wait.
    ///
    /// A table that is opened must be the one that `identity` says, where it says one; whoever knows the same table
    /// under two handles gives both the same.
    #[inline]
    pub(crate) fn table<'a, 'b>(
        &self,
        handle: &'a TableHandle,
        identity: impl FnOnce() -> Option<TableIdentity<'b>>,
    ) -> Result<TableRef<'a>, Error> {
        self.table_for(handle, &self.options.io, identity)
    }

    /// [`TableCache::table`] for somebody who says what it is wanted for, if it has to be opened.
    #[inline]
    pub(crate) fn table_for<'a, 'b>(
        &self,
        handle: &'a TableHandle,
        io: &IoContext,
        identity: impl FnOnce() -> Option<TableIdentity<'b>>,
    ) -> Result<TableRef<'a>, Error> {
        match handle.pinned.get() {
            Some(pinned) => Ok(TableRef::Pinned(&pinned.table)),
            None => self.find_or_open(handle, identity(), io),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_or_open<'a>(
        &self,
        handle: &'a TableHandle,
        identity: Option<TableIdentity<'_>>,
        io: &IoContext,
    ) -> Result<TableRef<'a>, Error> {
        let number = handle.file_number;
        let mut state = self.state.lock();
        loop {
            if let Some(pinned) = handle.pinned.get() {
                return Ok(TableRef::Pinned(&pinned.table));
            }
            if let Some(resident) = state.tables.get_mut(&number) {
                resident.used = true;
                return Ok(TableRef::Shared(resident.table.clone()));
            }
            if state.opening.insert(number) {
                break;
            }
            self.opened.wait(&mut state);
        }
        drop(state);
        let result = self.open(handle, identity, io);
        let mut closed = Vec::new();
        let mut state = self.state.lock();
        state.opening.remove(&number);
        let found = result.map(|table| {
            let pinned = self.pinned.load(Ordering::Relaxed);
            if pinned < self.capacity * PINNED_SIXTEENTHS / 16 {
                self.pinned.fetch_add(1, Ordering::Relaxed);
                let slot = PinnedTable { table, count: self.pinned.clone() };
                return TableRef::Pinned(&handle.pinned.get_or_init(|| slot).table);
            }
            state.tables.insert(number, Resident { table: table.clone(), used: false });
            state.queue.push_back(number);
            state.close_beyond((self.capacity - pinned.min(self.capacity)).max(1), &mut closed);
            TableRef::Shared(table)
        });
        self.opened.notify_all();
        drop(state);
        // Closing frees blocks and may do I/O: not under the lock.
        drop(closed);
        found
    }

    fn open(
        &self,
        handle: &TableHandle,
        identity: Option<TableIdentity<'_>>,
        io: &IoContext,
    ) -> Result<Arc<Table>, Error> {
        let name = file_name::table(handle.file_number);
        let file = self.store.open(&name, &OpenOptions { direct: self.access.direct })?;
        let blocks = self.block_cache.clone();
        let options = TableReadOptions { io: *io, ..self.options.clone() };
        let table = Table::open(file, &name, handle.file_number, handle.size_bytes, &options, blocks)?;
        if let Some(identity) = identity {
            identity.expect(&table.identity(), &name)?;
        }
        Ok(table)
    }

    /// Closes a table whose file is going to be removed, unless it is pinned: then dropping its handle
    /// does it.
    pub(crate) fn remove(&self, file_number: u64) {
        let mut state = self.state.lock();
        let removed = state.tables.remove(&file_number);
        state.queue.retain(|number| *number != file_number);
        drop(state);
        drop(removed);
    }

    /// Tables that are open and pinned in their handles or in this cache.
    pub(crate) fn open_tables(&self) -> usize {
        let state = self.state.lock();
        self.pinned.load(Ordering::Relaxed) + state.tables.len()
    }

    /// Memory all open tables take, without cached blocks.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.options.memory.load(Ordering::Relaxed)
    }

    pub(crate) fn block_cache(&self) -> &Arc<BlockCache> {
        &self.block_cache
    }
}

impl ResidentTables {
    fn close_beyond(&mut self, capacity: usize, closed: &mut Vec<Arc<Table>>) {
        // Twice around at most: the first time clears every mark.
        let mut patience = 2 * self.queue.len();
        while self.tables.len() > capacity && patience > 0 {
            patience -= 1;
            let Some(number) = self.queue.pop_front() else { return };
            let Some(resident) = self.tables.get_mut(&number) else { continue };
            if resident.used {
                resident.used = false;
                self.queue.push_back(number);
            } else if let Some(resident) = self.tables.remove(&number) {
                closed.push(resident.table);
            }
        }
    }
}
