//! What the store holds of one file while it is open.

use super::change::{Change, encode_change};
use super::map::TrackMap;
use crate::error::StoreError;
use crate::kernel::{FileMark, Named};
use crate::wire::Writer;
use parking_lot::{Mutex as ShortMutex, RwLock as ShortRwLock};
use std::ops::Deref;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use varve_env::{Env, Mutex, RwLock};

const LEVEL_UNKNOWN: u16 = u16::MAX;

/// Bytes of a table that are not on tracks: the write buffer.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// Offset in the file of the first byte. A track that was persisted before it was full begins here.
    pub(super) offset_bytes: u64,
    pub(super) bytes: Vec<u8>,
}

impl Buffer {
    pub(super) fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.bytes.len() as u64
    }

    /// Bytes `offset..offset + length` of the file, if they are here.
    pub(super) fn get(&self, offset_bytes: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset_bytes.checked_sub(self.offset_bytes)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }
}

/// Buffers kept for the next table: those of a flush and of a compaction.
const SPARE_BUFFERS_MAX: usize = 2;

/// Memory of write buffers that were brought to tracks. Tables follow each other; to get tens of megabytes
/// anew from the operating system for each costs more processor time than to fill them.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers {
    buffers: ShortMutex<Vec<Vec<u8>>>,
}

impl SpareBuffers {
    /// An empty buffer, the largest there is.
    pub(super) fn take(&self) -> Vec<u8> {
        self.buffers.lock().pop().unwrap_or_default()
    }

    /// Keeps the memory of one that is not needed any more, unless larger ones are kept.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut buffers = self.buffers.lock();
        buffers.push(buffer);
        buffers.sort_by_key(Vec::capacity);
        if buffers.len() > SPARE_BUFFERS_MAX {
            buffers.remove(0);
        }
    }
}

/// One file. Shared by the table of names, by its writer and by its readers.
pub(super) struct Node {
    /// Number of the file, never used for another one.
    pub(super) file: u64,
    /// A small file: shares blocks with others in the store of those, under its number; the rest of this is then empty.
    pub(super) is_packed: bool,
    level: AtomicU16,
    /// What is durable of a small file was synced through this store; a table is flushed, and written to tracks whole.
    mark: FileMark,
    /// A sync failed.
    failure: OnceLock<String>,
    /// What is on tracks. Changed under the state's lock.
    map: ShortRwLock<Arc<TrackMap>>,
    pub(super) buffer: RwLock<Buffer>,
    /// Held by whoever brings the buffer to tracks.
    pub(super) persisting: Mutex<()>,
}

impl Node {
    pub(super) fn new(env: &Env, file: u64, is_packed: bool) -> Node {
        Node {
            file,
            is_packed,
            level: AtomicU16::new(LEVEL_UNKNOWN),
            mark: FileMark::default(),
            failure: OnceLock::new(),
            map: ShortRwLock::default(),
            buffer: RwLock::new(env, "imr write buffer", Buffer::default()),
            persisting: Mutex::new(env, "imr persisting", ()),
        }
    }

    /// A file as it was found when the store was opened. `durable_bytes` is its length.
    pub(super) fn found(env: &Env, file: u64, is_packed: bool, map: TrackMap, durable_bytes: u64) -> Node {
        let mark = FileMark::found(map.size_bytes());
        mark.set_durable_bytes(durable_bytes);
        Node { mark, map: ShortRwLock::new(Arc::new(map)), ..Node::new(env, file, is_packed) }
    }

    pub(super) fn map(&self) -> Arc<TrackMap> {
        self.map.read().clone()
    }

    /// Gives back the map there was.
    pub(super) fn replace_map(&self, map: TrackMap) -> Arc<TrackMap> {
        std::mem::replace(&mut *self.map.write(), Arc::new(map))
    }

    pub(super) fn level(&self) -> Option<u8> {
        u8::try_from(self.level.load(Ordering::Relaxed)).ok()
    }

    pub(super) fn set_level(&self, level: Option<u8>) {
        if let Some(level) = level {
            self.level.store(u16::from(level), Ordering::Relaxed);
        }
    }

    /// Refuses further syncs.
    pub(super) fn fail(&self, cause: &StoreError) {
        self.failure.get_or_init(|| cause.to_string());
    }

    pub(super) fn failure(&self) -> Option<&String> {
        self.failure.get()
    }
}

impl Deref for Node {
    type Target = FileMark;

    fn deref(&self) -> &FileMark {
        &self.mark
    }
}

impl Named for Node {
    type Change = Change;

    fn number(&self) -> u64 {
        self.file
    }

    fn created(&self, name: &str) -> Change {
        Change::Create { file: self.file, is_packed: self.is_packed, name: name.to_owned() }
    }

    fn renamed(from: &str, to: &str) -> Change {
        Change::Rename { from: from.to_owned(), to: to.to_owned() }
    }

    fn removed(name: &str) -> Change {
        Change::Remove { name: name.to_owned() }
    }

    fn encode(writer: &mut Writer, change: &Change) {
        encode_change(writer, change);
    }

    /// The store of small files knows who reads one of them.
    fn is_held(this: &Arc<Node>) -> bool {
        !this.is_packed && Arc::strong_count(this) > 1
    }

    fn record_bytes(&self, name_bytes: usize) -> u64 {
        super::change::record_bytes(name_bytes, self.map().tracks().len())
    }
}

/// Name of a small file in the store of small files.
pub(super) fn packed_name(file: u64) -> String {
    format!("{file:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_buffers_are_kept_and_come_first() {
        let spare = SpareBuffers::default();
        for capacity in [10, 1000, 100, 2000] {
            spare.give(vec![7; capacity]);
        }
        let taken: Vec<usize> = (0..3)
            .map(|_| spare.take())
            .inspect(|buffer| assert!(buffer.is_empty()))
            .map(|buffer| buffer.capacity())
            .collect();
        assert_eq!(taken, [2000, 1000, 0]);
    }
}
