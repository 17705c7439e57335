//! What the store holds of one file while it is open.

use super::change::{Change, encode_change};
use super::map::ExtentMap;
use crate::kernel::{NameMark, Named};
use crate::wire::Writer;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Mutex};

const NEVER: u64 = u64::MAX;

/// One file. Shared by the table of names, by its writer and by its readers; its blocks are given back
/// when only the list of removed files still holds it.
pub(super) struct Node {
    /// Number of the file, never used for another one.
    pub(super) file: u64,
    /// Lies in units with headers; see [`frame`](super::frame).
    pub(super) framed: bool,
    /// Inode of the imitated file system; 0 in other layouts.
    pub(super) inode: u64,
    pub(super) extents: RwLock<ExtentMap>,
    /// Length that readers see.
    flushed_bytes: AtomicU64,
    /// Length that is on the device, durable or not.
    written_bytes: AtomicU64,
    /// Length that is durable on the device.
    durable_bytes: AtomicU64,
    /// Length in the metadata of a file that is not framed, committed or waiting for a commit.
    recorded_bytes: AtomicU64,
    mark: NameMark,
    /// When it was last written, in nanoseconds of the env; [`NEVER`] before.
    written_nanos: AtomicU64,
    /// Held by the writer while it rewrites the last unit of a framed file, which readers may catch
    /// half written.
    pub(super) tail_write: Mutex<()>,
    /// What was flushed and is kept from the device until it is synced or much.
    pub(super) cached: RwLock<CachedTail>,
}

/// The end of a file as a page cache would hold it.
#[derive(Debug, Default)]
pub(super) struct CachedTail {
    /// Offset in the file of the first byte.
    pub(super) offset_bytes: u64,
    pub(super) bytes: Vec<u8>,
}

impl CachedTail {
    /// Forgets what is on the device.
    pub(super) fn drop_before(&mut self, written_bytes: u64) {
        let written = written_bytes.saturating_sub(self.offset_bytes).min(self.bytes.len() as u64);
        self.bytes.drain(..written as usize);
        self.offset_bytes = self.offset_bytes.max(written_bytes);
    }
}

impl Node {
    pub(super) fn new(env: &Env, file: u64, framed: bool, inode: u64) -> Node {
        Node {
            file,
            framed,
            inode,
            extents: RwLock::default(),
            flushed_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            durable_bytes: AtomicU64::new(0),
            recorded_bytes: AtomicU64::new(0),
            mark: NameMark::default(),
            written_nanos: AtomicU64::new(NEVER),
            tail_write: Mutex::new(env, "extent file tail", ()),
            cached: RwLock::default(),
        }
    }

    /// A file as it was found when the store was opened.
    pub(super) fn found(env: &Env, file: u64, framed: bool, inode: u64, extents: ExtentMap, size_bytes: u64) -> Node {
        let node = Node { extents: RwLock::new(extents), ..Node::new(env, file, framed, inode) };
        let sizes = [&node.flushed_bytes, &node.written_bytes, &node.durable_bytes, &node.recorded_bytes];
        for size in sizes {
            size.store(size_bytes, Ordering::Relaxed);
        }
        node
    }

    #[inline]
    pub(super) fn flushed_bytes(&self) -> u64 {
        self.flushed_bytes.load(Ordering::Acquire)
    }

    pub(super) fn set_flushed_bytes(&self, size_bytes: u64) {
        self.flushed_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Acquire)
    }

    pub(super) fn set_written_bytes(&self, size_bytes: u64) {
        self.written_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    pub(super) fn durable_bytes(&self) -> u64 {
        self.durable_bytes.load(Ordering::Acquire)
    }

    pub(super) fn set_durable_bytes(&self, size_bytes: u64) {
        self.durable_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    pub(super) fn recorded_bytes(&self) -> u64 {
        self.recorded_bytes.load(Ordering::Acquire)
    }

    pub(super) fn set_recorded_bytes(&self, size_bytes: u64) {
        self.recorded_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    /// The length the next checkpoint tells.
    pub(super) fn known_bytes(&self) -> u64 {
        if self.framed { self.durable_bytes() } else { self.recorded_bytes() }
    }

    /// Something of the file is on the device that the metadata or a sync must still cover.
    pub(super) fn is_unsynced(&self) -> bool {
        self.written_bytes() > self.known_bytes()
    }

    /// When it was last written since the store was opened.
    pub(super) fn written_nanos(&self) -> Option<u64> {
        Some(self.written_nanos.load(Ordering::Relaxed)).filter(|&nanos| nanos != NEVER)
    }

    pub(super) fn set_written_nanos(&self, nanos: u64) {
        self.written_nanos.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.mark.is_removed()
    }

    pub(super) fn needed_change(&self) -> u64 {
        self.mark.needed_change()
    }

    pub(super) fn set_needed_change(&self, change: u64) {
        self.mark.set_needed_change(change);
    }
}

impl Named for Node {
    type Change = Change;

    fn number(&self) -> u64 {
        self.file
    }

    fn created(&self, name: &str) -> Change {
        Change::Create { file: self.file, framed: self.framed, name: name.to_owned() }
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

    fn mark(&self) -> &NameMark {
        &self.mark
    }

    fn record_bytes(&self, name_bytes: usize) -> u64 {
        super::change::record_bytes(name_bytes, self.extents.read().len())
    }
}
