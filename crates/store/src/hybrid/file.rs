//! What the store holds of one file while it is open.

use super::caching::BlockKey;
use super::levels::row;
use crate::file_store::ReadableFile;
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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

/// One file. Shared by the table of names, by its writer and by its readers.
pub(super) struct HybridFile {
    /// Number of its creation or, of one that was found, of its last change of a name; never used for another.
    pub(super) number: u64,
    /// Number in the stamps of its records.
    pub(super) stamp: AtomicU64,
    pub(super) is_table: bool,
    /// Its present name, or its last.
    pub(super) name: ShortMutex<String>,
    level: AtomicU8,
    /// Its parts in order, none before the first is made. Whoever reads keeps those it found: what was moved is free when the
    /// last of them is done.
    parts: RwLock<Arc<Vec<Part>>>,
    /// Devices that have an older record of the name, which counts until this file is durable.
    pub(super) supersedes: ShortMutex<Vec<usize>>,
    /// It is durable under its name, and what was removed before it was made is gone.
    pub(super) is_durable: AtomicBool,
    is_removed: AtomicBool,
    pub(super) is_writing: AtomicBool,
    /// While it is written it is among the tables of its level; else it is known to be coming by a hint.
    pub(super) counts_while_written: AtomicBool,
    pub(super) is_moving: AtomicBool,
    /// Reads of users that reached the store.
    pub(super) reads: AtomicU64,
    pub(super) created_nanos: u64,
    /// When it was made, in bytes written to the store.
    pub(super) born_bytes: AtomicU64,
}

impl HybridFile {
    pub(super) fn new(number: u64, name: &str, is_table: bool, level: Option<u8>, created_nanos: u64) -> HybridFile {
        HybridFile {
            number,
            stamp: AtomicU64::new(number),
            is_table,
            name: ShortMutex::new(name.to_owned()),
            level: AtomicU8::new(level.unwrap_or(LEVEL_UNKNOWN)),
            parts: RwLock::default(),
            supersedes: ShortMutex::default(),
            is_durable: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            is_writing: AtomicBool::new(false),
            counts_while_written: AtomicBool::new(true),
            is_moving: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            created_nanos,
            born_bytes: AtomicU64::new(0),
        }
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
        Some(self.level.load(Ordering::Relaxed)).filter(|level| *level != LEVEL_UNKNOWN)
    }

    /// Row of its level in tables of levels.
    pub(super) fn row(&self) -> usize {
        row(self.level())
    }

    pub(super) fn set_level(&self, level: u8) {
        self.level.store(level, Ordering::Relaxed);
    }

    /// Bytes that readers see.
    pub(super) fn size_bytes(&self) -> u64 {
        self.parts().last().map_or(0, |part| part.start_bytes + part.reader.size_bytes())
    }

    /// It has no name any more.
    pub(super) fn was_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}
