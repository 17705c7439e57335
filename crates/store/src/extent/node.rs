//! What the store holds of one file while it is open.

use super::change::{Change, encode_change};
use super::map::ExtentMap;
use crate::kernel::{FileMark, Named};
use crate::wire::Writer;
use parking_lot::RwLock;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Mutex};

/// One file. Shared by the table of names, by its writer and by its readers; its blocks are given back
/// when only the list of removed files still holds it.
pub(super) struct Node {
    /// Number of the file, never used for another one.
    pub(super) file: u64,
    /// Lies in units with headers; see [`frame`](super::frame).
    pub(super) framed: bool,
    pub(super) extents: RwLock<ExtentMap>,
    /// Length in the metadata of a file that is not framed, committed or waiting for a commit.
    recorded_bytes: AtomicU64,
    mark: FileMark,
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
    pub(super) fn new(env: &Env, file: u64, framed: bool) -> Node {
        Node {
            file,
            framed,
            extents: RwLock::default(),
            recorded_bytes: AtomicU64::new(0),
            mark: FileMark::default(),
            tail_write: Mutex::new(env, "extent file tail", ()),
            cached: RwLock::default(),
        }
    }

    /// A file as it was found when the store was opened.
    pub(super) fn found(env: &Env, file: u64, framed: bool, extents: ExtentMap, size_bytes: u64) -> Node {
        let (extents, mark) = (RwLock::new(extents), FileMark::found(size_bytes));
        let recorded_bytes = AtomicU64::new(size_bytes);
        Node { extents, mark, recorded_bytes, ..Node::new(env, file, framed) }
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

    fn record_bytes(&self, name_bytes: usize) -> u64 {
        super::change::record_bytes(name_bytes, self.extents.read().len())
    }
}
