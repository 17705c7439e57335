//! Space for the logs of the tree in memory: [`LogHeadroom`] decides, this asks the store and does what follows.
//!
//! A write for which there is no space first has the store give back what it holds without need, and then the logs rewritten, if
//! that brings enough. Only then it is refused. Waiting until the tree is idle does the same for later writes.

use super::{MemoryTree, Writer};
use crate::commit::Group;
use crate::error::{Error, ErrorKind};
use crate::key::{self, EntryKind, SEQUENCE_MAX};
use crate::media::FileMedia;
use crate::options::Options;
use crate::space::{Admission, LogHeadroom, LogWrite, Rewritten};
use crate::statistics::{SpaceStatistics, WriteState, ZoneStatistics};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_store::{FileStore, Space};

/// Bytes that a record of a log takes besides its batches, at most.
const RECORD_BYTES: u64 = 64;

/// Bytes that a group takes of the log, at least, until space is looked at again: it may end a sector.
const GROUP_BYTES_MIN: u64 = 4 << 10;

/// The store of the logs, and what a leader found when it last looked. Thread-safe.
pub(super) struct LogSpace {
    store: Arc<dyn FileStore>,
    asked_bytes: Option<u64>,
    /// Some writes were refused: writers queue up, so that deletes can go before puts.
    is_short: AtomicBool,
}

/// When space is looked at again. One leader at a time.
#[derive(Default)]
pub(super) struct Look {
    written_bytes: u64,
    after_bytes: u64,
    rewritten: Option<Rewritten>,
}

impl LogSpace {
    pub(super) fn new(media: &FileMedia, options: &Options) -> LogSpace {
        LogSpace {
            store: media.log_store().clone(),
            asked_bytes: options.compaction_buffer_size,
            is_short: AtomicBool::new(false),
        }
    }

    /// Some writes were refused when a leader last looked.
    pub(super) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::SeqCst)
    }

    fn note(&self, headroom: &LogHeadroom) {
        self.is_short.store(headroom.admission() != Admission::Open, Ordering::SeqCst);
    }

    /// Asks the store to give back space that it holds without need. A failing store reports its error to the next write.
    fn reclaim(&self) -> bool {
        self.store.reclaim_space().unwrap_or(false)
    }

    fn refusal(&self, headroom: &LogHeadroom, write: LogWrite) -> Error {
        let left_bytes = if write.has_puts { headroom.left_by_puts_bytes() } else { headroom.left_by_deletes_bytes() };
        let (store, available_bytes) = (self.store.name().to_owned(), headroom.available_bytes);
        // A large write is refused although smaller ones are not.
        let (left_bytes, zones) = (left_bytes.saturating_add(write.bytes), headroom.zones);
        Error::OutOfSpace { store, available_bytes, left_bytes, zones }
    }
}

impl MemoryTree {
    /// Space for logs now; `None` where the store cannot tell. Exact once all that was logged is in the memtable.
    fn headroom(&self, writer: &Writer) -> Option<LogHeadroom> {
        let Space { total_bytes, available_bytes, block_bytes, zones, .. } = self.space.store.space().ok()?;
        Some(LogHeadroom {
            total_bytes,
            available_bytes,
            block_bytes,
            is_in_bands: self.space.store.properties().preferred_table_bytes.is_some(),
            live_bytes: self.entries.load().live().map_or(0, |(_, bytes)| bytes),
            held_back_bytes: writer.head.log.held_back_bytes(),
            rewritten: writer.look.rewritten,
            asked_bytes: self.space.asked_bytes,
            zones,
        })
    }

    /// Finds space for a group. False if its puts give way to deletes that wait: for these there is space.
    ///
    /// Errors: there is none; those of the log when it was rewritten.
    pub(super) fn find_space(&self, writer: &mut Writer, group: &Group<'_>) -> Result<bool, Error> {
        if group.bytes == 0 {
            return Ok(true);
        }
        let bytes = (group.bytes as u64).saturating_add(RECORD_BYTES);
        writer.look.written_bytes = writer.look.written_bytes.saturating_add(bytes.max(GROUP_BYTES_MIN));
        if writer.look.written_bytes < writer.look.after_bytes {
            return Ok(true);
        }
        self.group.settle(writer.head.last_sequence)?;
        let has_puts = group.has_puts();
        let freed_bytes = if has_puts { 0 } else { self.freed_bytes(group) };
        let write = LogWrite { bytes, freed_bytes, has_puts };
        let (mut may_reclaim, mut may_rewrite) = (true, true);
        loop {
            let Some(headroom) = self.headroom(writer) else { return Ok(true) };
            writer.look.rewritten = headroom.without_leftovers();
            self.space.note(&headroom);
            if headroom.takes(write) {
                (writer.look.written_bytes, writer.look.after_bytes) = (bytes, headroom.look_after_bytes());
                return Ok(true);
            }
            let takes_deletes = headroom.admission() != Admission::Full;
            if has_puts && takes_deletes && (group.is_mixed() || self.group.has_waiting_deletes()) {
                self.space.is_short.store(true, Ordering::SeqCst);
                return Ok(false);
            }
            if std::mem::take(&mut may_reclaim) && self.space.reclaim() {
                continue;
            }
            let is_worth = may_rewrite && headroom.is_rewrite_worth();
            if !is_worth || !self.rewrite_for_space(writer)? {
                self.counters.writes_out_of_space.fetch_add(1, Ordering::Relaxed);
                return Err(self.space.refusal(&headroom, write));
            }
            may_rewrite = false;
        }
    }

    /// Brings back the space of deleted data, if writes are refused for want of it.
    pub(super) fn relieve(&self, writer: &mut Writer) -> Result<(), Error> {
        if writer.ended.is_some() {
            return Ok(());
        }
        self.group.settle(writer.head.last_sequence)?;
        let (mut may_reclaim, mut may_rewrite) = (true, true);
        while let Some(headroom) = self.headroom(writer) {
            writer.look.rewritten = headroom.without_leftovers();
            self.space.note(&headroom);
            if headroom.admission() == Admission::Open {
                break;
            }
            if std::mem::take(&mut may_reclaim) && self.space.reclaim() {
                continue;
            }
            let is_worth = may_rewrite && headroom.is_idle_rewrite_worth();
            if !is_worth || !self.rewrite_for_space(writer)? {
                break;
            }
            may_rewrite = false;
        }
        Ok(())
    }

    /// Rewrites the logs; false without space for that, which others may have taken meanwhile.
    fn rewrite_for_space(&self, writer: &mut Writer) -> Result<bool, Error> {
        match self.write_anew(writer) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace && !writer.head.log.is_broken() => return Ok(false),
            Err(error) => return Err(error),
        }
        // Some stores count the space of removed files once the removal is durable, or the rest of its block is copied.
        self.space.store.sync_names()?;
        self.space.reclaim();
        self.note_rewritten(writer);
        Ok(true)
    }

    /// The logs hold nothing but the live pairs now.
    pub(super) fn note_rewritten(&self, writer: &mut Writer) {
        writer.look.rewritten = self.headroom(writer).map(|headroom| headroom.as_rewritten());
    }

    /// Live bytes that the deletes of a group remove. All that was logged is in the memtable.
    fn freed_bytes(&self, group: &Group<'_>) -> u64 {
        let entries = self.entries.load();
        let keys: BTreeSet<&[u8]> =
            group.batches().flat_map(|batch| batch.iter()).map(|entry| entry.parts().1).collect();
        let live_bytes = |key: &&[u8]| {
            let found = entries.get(&key::lookup_key(key, SEQUENCE_MAX))?;
            (found.kind == EntryKind::Put).then(|| crate::batch::put_bytes(key.len(), found.value.len()))
        };
        keys.iter().filter_map(live_bytes).fold(0, u64::saturating_add)
    }

    /// Which writes are accepted now, and the space that decides so. A tree that was opened for reading has none of its own.
    pub(super) fn write_state(&self, writer: &Writer) -> (WriteState, Option<SpaceStatistics>) {
        if matches!(writer.ended, Some(Error::ReadOnly { .. })) {
            return (WriteState::Open, None);
        }
        let headroom = self.headroom(writer);
        let admission = headroom.as_ref().map_or(Admission::Open, LogHeadroom::admission);
        let state = match (&writer.ended, admission) {
            (Some(Error::Poisoned { .. }), _) => WriteState::Poisoned,
            (_, Admission::Open) => WriteState::Open,
            (_, Admission::DeletesOnly) => WriteState::DeletesOnly,
            (_, Admission::Full) => WriteState::Full,
        };
        let space = headroom.map(|headroom| SpaceStatistics {
            total_bytes: headroom.total_bytes,
            available_bytes: headroom.available_bytes,
            reserve_bytes: 0,
            compactions_reserved_bytes: 0,
            left_by_puts_bytes: headroom.left_by_puts_bytes(),
            left_by_deletes_bytes: headroom.left_by_deletes_bytes(),
            zones: headroom.zones.map(ZoneStatistics::from),
        });
        (state, space)
    }
}
