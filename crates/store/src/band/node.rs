//! What the store holds of one file while it is open.

use super::change::{Change, Cut, FileRecord, Stamp, encode_change};
use super::fragments::FragmentMap;
use super::pieces::PieceMap;
use crate::kernel::{FileMark, Named};
use crate::wire::Writer;
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_media::MediaError;

const LEVEL_UNKNOWN: u64 = 255;

/// One file. Shared by the table of names, by its writer and by its readers; its bands are given back when only the
/// list of removed files still holds it.
pub(super) struct Node {
    /// Number of the file, never used for another one.
    pub(super) file: u64,
    /// A small file: shares log bands with others, in frames; else it is a table, in fragments of bands of its own.
    pub(super) is_packed: bool,
    level: AtomicU64,
    pub(super) fragments: RwLock<FragmentMap>,
    /// Bands of a table, also those of which no fragment is left.
    pub(super) bands: ShortMutex<BTreeSet<u32>>,
    pub(super) pieces: RwLock<PieceMap>,
    mark: FileMark,
    /// What was flushed of a table and does not fill a unit yet.
    pub(super) tail: RwLock<Tail>,
    /// What the last failed append left of a small file, when some of its frames were written.
    pub(super) cut: ShortMutex<Option<Cut>>,
    /// Of a store over several devices: which part of which file it is.
    pub(super) stamp: ShortMutex<Option<Stamp>>,
    /// What cannot be read of a small file.
    pub(super) damage: OnceLock<Damage>,
}

/// A part of a small file is lost.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// What lies before this offset in the file can be read.
    pub(super) from_bytes: u64,
    /// What was expected there.
    pub(super) expected: String,
    /// What became of it.
    pub(super) found: String,
    /// The device failed when this was looked for, so nothing is known about what is there.
    pub(super) failure: Option<MediaError>,
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
    pub(super) fn new(file: u64, is_packed: bool, level: Option<u8>) -> Node {
        Node {
            file,
            is_packed,
            level: AtomicU64::new(level.map_or(LEVEL_UNKNOWN, u64::from)),
            fragments: RwLock::default(),
            bands: ShortMutex::default(),
            pieces: RwLock::default(),
            mark: FileMark::default(),
            tail: RwLock::default(),
            cut: ShortMutex::default(),
            stamp: ShortMutex::default(),
            damage: OnceLock::new(),
        }
    }

    fn found(file: u64, is_packed: bool, level: Option<u8>, size_bytes: u64) -> Node {
        Node { mark: FileMark::found(size_bytes), ..Node::new(file, is_packed, level) }
    }

    /// A table as it was found when the store was opened.
    pub(super) fn found_table(record: &FileRecord, fragments: FragmentMap) -> Node {
        let bands = fragments.bands().into_iter().collect();
        let node = Node::found(record.file, false, record.level, fragments.size_bytes());
        let stamp = ShortMutex::new(record.stamp);
        Node { fragments: RwLock::new(fragments), bands: ShortMutex::new(bands), stamp, ..node }
    }

    /// A small file as it was found when the store was opened.
    pub(super) fn found_small(record: &FileRecord, pieces: PieceMap, size_bytes: u64) -> Node {
        let node = Node::found(record.file, true, record.level, size_bytes);
        let (cut, stamp) = (ShortMutex::new(record.cut), ShortMutex::new(record.stamp));
        Node { pieces: RwLock::new(pieces), cut, stamp, ..node }
    }

    pub(super) fn level(&self) -> Option<u8> {
        u8::try_from(self.level.load(Ordering::Relaxed)).ok().filter(|&level| u64::from(level) != LEVEL_UNKNOWN)
    }

    pub(super) fn set_level(&self, level: u8) {
        self.level.store(u64::from(level), Ordering::Relaxed);
    }

    /// Something of the file is on the device that a sync must still cover.
    pub(super) fn is_unsynced(&self) -> bool {
        self.written_bytes() > self.durable_bytes()
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
        Change::Create { file: self.file, is_packed: self.is_packed, level: self.level(), name: name.to_owned() }
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
        let fragments = self.fragments.read().recorded_fragments().len();
        super::change::record_bytes(name_bytes, fragments, self.is_packed, self.stamp.lock().is_some())
    }
}
