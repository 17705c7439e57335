//! What the store holds of one file while it is open.

use super::change::{Change, Cut, FileRecord, encode_change};
use super::pieces::PieceMap;
use super::runs::RunMap;
use crate::kernel::{NameMark, Named};
use crate::wire::Writer;
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const NEVER: u64 = u64::MAX;
const LEVEL_UNKNOWN: u64 = 255;

/// One file. Shared by the table of names, by its writer and by its readers; its bands are given back when only the
/// list of removed files still holds it.
pub(super) struct Node {
    /// Number of the file, never used for another one.
    pub(super) file: u64,
    /// Lies in frames of log bands; else it is a table, in runs of bands of its own.
    pub(super) small: bool,
    level: AtomicU64,
    pub(super) runs: RwLock<RunMap>,
    /// Bands of a table, also those of which no run is left.
    pub(super) bands: ShortMutex<BTreeSet<u32>>,
    pub(super) pieces: RwLock<PieceMap>,
    /// Length that readers see.
    flushed_bytes: AtomicU64,
    /// Length that is on the device, durable or not.
    written_bytes: AtomicU64,
    /// Length that is durable.
    durable_bytes: AtomicU64,
    mark: NameMark,
    /// When it was last written, in nanoseconds of the env; [`NEVER`] before.
    written_nanos: AtomicU64,
    /// What was flushed of a table and does not fill a unit yet.
    pub(super) tail: RwLock<Tail>,
    /// What the last failed append left of a small file, when some of its frames were written.
    pub(super) cut: ShortMutex<Option<Cut>>,
    /// What cannot be read of a small file.
    pub(super) damage: OnceLock<Damage>,
}

/// A part of a small file is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// What lies before this offset in the file can be read.
    pub(super) from_bytes: u64,
    /// What was expected there.
    pub(super) expected: String,
    /// What became of it.
    pub(super) found: String,
}

/// The end of a table that is in memory only.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Offset in the file of the first byte.
    pub(super) offset_bytes: u64,
    pub(super) bytes: Vec<u8>,
}

impl Tail {
    /// Copies bytes of the file into `data`; false when not all of them are here.
    pub(super) fn read(&self, offset_bytes: u64, data: &mut [u8]) -> bool {
        let start = offset_bytes.checked_sub(self.offset_bytes).map(|start| start as usize);
        match start.and_then(|start| self.bytes.get(start..start.checked_add(data.len())?)) {
            Some(bytes) => {
                data.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

impl Node {
    pub(super) fn new(file: u64, small: bool, level: Option<u8>) -> Node {
        Node {
            file,
            small,
            level: AtomicU64::new(level.map_or(LEVEL_UNKNOWN, u64::from)),
            runs: RwLock::default(),
            bands: ShortMutex::default(),
            pieces: RwLock::default(),
            flushed_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            durable_bytes: AtomicU64::new(0),
            mark: NameMark::default(),
            written_nanos: AtomicU64::new(NEVER),
            tail: RwLock::default(),
            cut: ShortMutex::default(),
            damage: OnceLock::new(),
        }
    }

    fn found(file: u64, small: bool, level: Option<u8>, size_bytes: u64) -> Node {
        let node = Node::new(file, small, level);
        for size in [&node.flushed_bytes, &node.written_bytes, &node.durable_bytes] {
            size.store(size_bytes, Ordering::Relaxed);
        }
        node
    }

    /// A table as it was found when the store was opened.
    pub(super) fn found_table(file: u64, level: Option<u8>, runs: RunMap) -> Node {
        let bands = runs.bands().into_iter().collect();
        let node = Node::found(file, false, level, runs.size_bytes());
        Node { runs: RwLock::new(runs), bands: ShortMutex::new(bands), ..node }
    }

    /// A small file as it was found when the store was opened.
    pub(super) fn found_small(record: &FileRecord, pieces: PieceMap, size_bytes: u64) -> Node {
        let node = Node::found(record.file, true, record.level, size_bytes);
        Node { pieces: RwLock::new(pieces), cut: ShortMutex::new(record.cut), ..node }
    }

    pub(super) fn level(&self) -> Option<u8> {
        u8::try_from(self.level.load(Ordering::Relaxed)).ok().filter(|&level| u64::from(level) != LEVEL_UNKNOWN)
    }

    pub(super) fn set_level(&self, level: u8) {
        self.level.store(u64::from(level), Ordering::Relaxed);
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

    /// May go back behind what readers see.
    pub(super) fn set_written_bytes(&self, size_bytes: u64) {
        self.written_bytes.store(size_bytes, Ordering::Release);
    }

    pub(super) fn durable_bytes(&self) -> u64 {
        self.durable_bytes.load(Ordering::Acquire)
    }

    pub(super) fn set_durable_bytes(&self, size_bytes: u64) {
        self.durable_bytes.fetch_max(size_bytes, Ordering::AcqRel);
    }

    /// Something of the file is on the device that a sync must still cover.
    pub(super) fn is_unsynced(&self) -> bool {
        self.written_bytes() > self.durable_bytes()
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
        Change::Create { file: self.file, small: self.small, level: self.level(), name: name.to_owned() }
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
        super::change::record_bytes(name_bytes, self.runs.read().recorded_runs().len(), self.small)
    }
}
