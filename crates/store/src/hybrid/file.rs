//! What the store holds of one file while it is open.

use super::caching::BlockKey;
use super::levels::{LEVELS, TIERS_MAX, row};
use crate::file_store::ReadableFile;
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

const LEVEL_UNKNOWN: u8 = 255;

/// A part of a file, on one device. Most files have one; what outgrows its device goes on on another.
#[derive(Clone)]
pub(super) struct Part {
    /// Which device.
    pub(super) device: usize,
    /// Bytes of the file before this part.
    pub(super) start_bytes: u64,
    pub(super) reader: Arc<dyn ReadableFile>,
}

impl Part {
    /// Bytes of the file up to the end of this part.
    pub(super) fn end_bytes(&self) -> u64 {
        self.start_bytes + self.reader.size_bytes()
    }
}

/// What a table counts as among those of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// Row of its level.
    pub(super) row: usize,
    /// Of its first part, 0 the fastest.
    pub(super) tier: usize,
    /// Places in zones of the fast tier that it has, or would have.
    pub(super) places: u64,
}

const TIER_BITS: u32 = 3;
const ROW_BITS: u32 = 4;
const COUNTED_PLACES_MAX: u64 = (1 << (32 - ROW_BITS - TIER_BITS)) - 1;
const _: () = assert!(LEVELS <= 1 << ROW_BITS && TIERS_MAX <= 1 << TIER_BITS);

impl Counted {
    /// In four bytes; 0 is nothing, as no table has no place.
    fn pack(counted: Option<Counted>) -> u32 {
        let Some(Counted { row, tier, places }) = counted else { return 0 };
        let places = places.clamp(1, COUNTED_PLACES_MAX) as u32;
        (places << (ROW_BITS + TIER_BITS)) | ((row as u32) << TIER_BITS) | tier as u32
    }

    fn unpack(packed: u32) -> Option<Counted> {
        let tier = packed as usize & ((1 << TIER_BITS) - 1);
        let row = (packed >> TIER_BITS) as usize & ((1 << ROW_BITS) - 1);
        (packed != 0).then(|| Counted { row, tier, places: u64::from(packed >> (ROW_BITS + TIER_BITS)) })
    }
}

/// All that placement and migration know of a table: 32 bytes, as in HHZS' section 3.6 ("the SST ID and other fields").
pub(super) struct TableState {
    /// Number of its creation or, of one that was found, of its last change of a name; never used for another.
    number: u64,
    /// Reads of users that reached the store.
    pub(super) reads: AtomicU64,
    pub(super) created_nanos: u64,
    /// What it counts as, [packed](Counted::pack). Changed by whoever has the lock of the counts.
    counted: AtomicU32,
    level: AtomicU8,
    pub(super) is_writing: AtomicBool,
    /// While it is written it is among the tables of its level; else it is known to be coming by a hint.
    pub(super) counts_while_written: AtomicBool,
    pub(super) is_moving: AtomicBool,
}

impl TableState {
    /// What it counts as.
    pub(super) fn counted(&self) -> Option<Counted> {
        Counted::unpack(self.counted.load(Ordering::Relaxed))
    }

    /// It counts as this from now on.
    pub(super) fn set_counted(&self, counted: Option<Counted>) {
        self.counted.store(Counted::pack(counted), Ordering::Relaxed);
    }
}

/// One file. Shared by the table of names, by its writer and by its readers.
pub(super) struct HybridFile {
    pub(super) state: TableState,
    /// Number in the stamps of its records.
    pub(super) stamp: AtomicU64,
    pub(super) is_table: bool,
    /// It was made to say which of other files hold.
    pub(super) is_pointer: bool,
    /// Its present name, or its last.
    pub(super) name: ShortMutex<String>,
    /// Its parts in order, none before the first is made. Whoever reads keeps those it found: what was moved is free when the
    /// last of them is done.
    parts: RwLock<Arc<Vec<Part>>>,
    /// Devices that have an older record of the name, which counts until this file is durable.
    pub(super) supersedes: ShortMutex<Vec<usize>>,
    /// Devices that have other bytes under its stamp, and from where on: which of them count nobody can say.
    pub(super) rivals: Vec<(usize, u64)>,
    /// More of it may be behind its last part, on a device that is not there.
    pub(super) is_cut: bool,
    /// It is durable under its name, and what was removed before it was made is gone.
    pub(super) is_durable: AtomicBool,
    is_removed: AtomicBool,
    /// The tree said of its blocks, while it was written, which others they were made of.
    pub(super) is_rewritten: AtomicBool,
    /// When it was made, in bytes written to the store.
    pub(super) born_bytes: AtomicU64,
}

impl HybridFile {
    pub(super) fn new(number: u64, name: &str, is_table: bool, level: Option<u8>, created_nanos: u64) -> HybridFile {
        let state = TableState {
            number,
            reads: AtomicU64::new(0),
            created_nanos,
            counted: AtomicU32::new(Counted::pack(None)),
            level: AtomicU8::new(level.unwrap_or(LEVEL_UNKNOWN)),
            is_writing: AtomicBool::new(false),
            counts_while_written: AtomicBool::new(true),
            is_moving: AtomicBool::new(false),
        };
        HybridFile {
            state,
            stamp: AtomicU64::new(number),
            is_table,
            is_pointer: false,
            name: ShortMutex::new(name.to_owned()),
            parts: RwLock::default(),
            supersedes: ShortMutex::default(),
            rivals: Vec::new(),
            is_cut: false,
            is_durable: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            is_rewritten: AtomicBool::new(false),
            born_bytes: AtomicU64::new(0),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.state.number
    }

    /// What a block of it is to the cache: found again by the next open, and never another's.
    pub(super) fn block_key(&self, offset_bytes: u64) -> BlockKey {
        (self.stamp.load(Ordering::Acquire), offset_bytes)
    }

    pub(super) fn parts(&self) -> Arc<Vec<Part>> {
        self.parts.read().clone()
    }

    pub(super) fn set_parts(&self, parts: Vec<Part>) {
        *self.parts.write() = Arc::new(parts);
    }

    pub(super) fn add_part(&self, part: Part) {
        let mut parts = self.parts.write();
        let more = parts.iter().cloned().chain([part]).collect();
        *parts = Arc::new(more);
    }

    pub(super) fn level(&self) -> Option<u8> {
        Some(self.state.level.load(Ordering::Relaxed)).filter(|level| *level != LEVEL_UNKNOWN)
    }

    /// Row of its level in tables of levels.
    pub(super) fn row(&self) -> usize {
        row(self.level())
    }

    pub(super) fn set_level(&self, level: u8) {
        self.state.level.store(level, Ordering::Relaxed);
    }

    /// Bytes that readers see. Of one that is cut one byte more than are there: whoever reads to the end must not take it for that.
    pub(super) fn size_bytes(&self) -> u64 {
        self.parts().last().map_or(0, Part::end_bytes) + u64::from(self.is_cut)
    }

    /// No bytes are missing before or between its parts, and nothing else claims to be it.
    pub(super) fn is_whole(&self) -> bool {
        let mut end_bytes = 0;
        let is_next = |part: &Part| {
            let is_next = part.start_bytes <= end_bytes;
            end_bytes = part.end_bytes();
            is_next
        };
        !self.is_cut && self.parts().iter().all(is_next) && self.rivals.is_empty()
    }

    /// Whether the part on a device is the last of one that is cut, and says so.
    pub(super) fn goes_on(&self, device: usize) -> bool {
        self.is_cut && self.parts().last().is_some_and(|last| last.device == device)
    }

    /// It has no name any more.
    pub(super) fn was_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What placement and migration keep of a table: the paper's "each mapping is of size 32 bytes".
    #[test]
    fn policies_keep_no_more_than_32_bytes_of_a_table() {
        assert!(size_of::<TableState>() <= 32, "{} bytes", size_of::<TableState>());
    }

    #[test]
    fn what_a_table_counts_as_comes_back() {
        for tier in [0, 1, TIERS_MAX - 1] {
            for (row, places) in [(0, 1), (15, COUNTED_PLACES_MAX), (7, 3)] {
                let counted = Some(Counted { row, tier, places });
                assert_eq!(Counted::unpack(Counted::pack(counted)), counted);
            }
        }
        assert_eq!(Counted::unpack(Counted::pack(None)), None);
        let enormous = Counted { row: 1, tier: 1, places: u64::MAX };
        assert_eq!(
            Counted::unpack(Counted::pack(Some(enormous))).map(|counted| counted.places),
            Some(COUNTED_PLACES_MAX)
        );
    }
}
