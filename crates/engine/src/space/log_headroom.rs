//! Space for the logs of a tree that keeps everything in them: what writes leave of it, and when logs are rewritten for space.
//!
//! Deleted data in a log goes when a new log that holds every live pair takes its place, and until then both are there. So writes
//! leave the space that such a rewriting takes: whatever is deleted can be given back at any time. Puts leave some more, for
//! deletes: a delete is a write too.
//!
//! Pure: no I/O, no locks. The caller asks the store, and executes what follows.

use super::Admission;
use varve_store::ZoneSpace;

/// Part of the medium that puts leave for deletes, unless the option `compaction_buffer_size` says how much.
const KEPT_PART: u64 = 16;

/// Minimum of that, in blocks. Half of it must be more than the block that a write may begin.
const KEPT_BLOCKS_MIN: u64 = 4;

/// Part of that which deletes leave: a store allocates some space ahead of the contents of a log.
const LEFT_BY_DELETES_PART: u64 = 4;

/// Blocks that a rewriting takes besides its pairs, at least: first blocks of log and manifest, and the last ones, partly filled.
/// Where blocks are bands, log and manifest share them.
const REWRITE_BLOCKS: u64 = 4;
const REWRITE_BANDS: u64 = 2;

/// Framing of logs: at most 1/20 of their contents, as a store may add 24 bytes to each 488, and this much for headers and a
/// manifest.
const FRAMING_PART: u64 = 20;
const FIXED_BYTES: u64 = 1 << 10;

/// Garbage that makes a rewriting worth its cost, at least: 1/16 of the live pairs that it copies, and 1/4 of what puts leave.
const WORTH_PARTS: (u64, u64) = (16, 4);

/// Share of the spare space that may be written before space is looked at again. A byte of a put takes a byte of the log there is
/// and one of the rewriting to come.
const LOOK_PART: u64 = 4;

/// Maximum number of bytes written between two looks, as a part of the medium: other programs may take space too.
const LOOK_MEDIUM_PART: u64 = 256;

/// Free space when the logs had just been rewritten, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// Space that was not available.
    pub(crate) used_bytes: u64,
    pub(crate) live_bytes: u64,
}

/// Known space and contents of logs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHeadroom {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) block_bytes: u64,
    /// Blocks are bands: logs and manifests share them.
    pub(crate) is_in_bands: bool,
    /// Puts of a batch with all live pairs.
    pub(crate) live_bytes: u64,
    /// Accepted writes that the store did not get yet.
    pub(crate) held_back_bytes: u64,
    /// Since the last rewriting that succeeded; `None` before the first one.
    pub(crate) rewritten: Option<Rewritten>,
    /// Option `compaction_buffer_size`.
    pub(crate) asked_bytes: Option<u64>,
    /// Use of zones, for messages and statistics.
    pub(crate) zones: Option<ZoneSpace>,
}

/// Bytes of logs with these contents.
fn framed(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / FRAMING_PART)
}

/// A write that asks for space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogWrite {
    /// Bytes it adds to the log.
    pub(crate) bytes: u64,
    /// Live bytes that its deletes remove.
    pub(crate) freed_bytes: u64,
    pub(crate) has_puts: bool,
}

impl LogHeadroom {
    /// Space that rewriting the logs takes, in bytes, by the live bytes it copies.
    fn rewrite_bytes(&self, live_bytes: u64) -> u64 {
        let block_bytes = self.block_bytes.max(1);
        let written_bytes = framed(live_bytes).saturating_add(FIXED_BYTES);
        let blocks = if self.is_in_bands { REWRITE_BANDS } else { REWRITE_BLOCKS };
        written_bytes.div_ceil(block_bytes).saturating_add(blocks).saturating_mul(block_bytes)
    }

    /// Space that puts leave for deletes.
    fn kept_bytes(&self) -> u64 {
        let least_bytes = KEPT_BLOCKS_MIN.saturating_mul(self.block_bytes);
        self.asked_bytes.unwrap_or_else(|| (self.total_bytes / KEPT_PART).max(least_bytes))
    }

    /// Available bytes below which deletes are refused.
    pub(crate) fn left_by_deletes_bytes(&self) -> u64 {
        self.held_back_bytes.saturating_add(self.left_of(self.live_bytes))
    }

    /// Space that deletes leave for rewriting the logs, in bytes, by their live bytes.
    fn left_of(&self, live_bytes: u64) -> u64 {
        self.rewrite_bytes(live_bytes).saturating_add(self.kept_bytes() / LEFT_BY_DELETES_PART)
    }

    /// Available bytes below which puts are refused.
    pub(crate) fn left_by_puts_bytes(&self) -> u64 {
        let rewrite_bytes = self.rewrite_bytes(self.live_bytes);
        self.held_back_bytes.saturating_add(rewrite_bytes).saturating_add(self.kept_bytes())
    }

    /// Which writes are accepted.
    pub(crate) fn admission(&self) -> Admission {
        if self.available_bytes >= self.left_by_puts_bytes() {
            Admission::Open
        } else if self.available_bytes >= self.left_by_deletes_bytes() {
            Admission::DeletesOnly
        } else {
            Admission::Full
        }
    }

    /// True if there is space for this write. A put may take half of what puts leave for deletes, as it is not known before how
    /// large the last one is. Deletes are also accepted if they free more than they take: then every one brings the next rewriting
    /// closer, however little space is left.
    pub(crate) fn takes(&self, write: LogWrite) -> bool {
        let taken_bytes = framed(write.bytes).saturating_add(self.held_back_bytes);
        let Some(left_bytes) = self.available_bytes.checked_sub(taken_bytes) else { return false };
        if write.has_puts {
            let live_bytes = self.live_bytes.saturating_add(write.bytes);
            let kept_bytes = self.rewrite_bytes(live_bytes).saturating_add(self.kept_bytes() / 2);
            return self.admission() == Admission::Open && left_bytes >= kept_bytes;
        }
        let live_bytes = self.live_bytes.saturating_sub(write.freed_bytes);
        left_bytes >= self.left_of(live_bytes) || write.freed_bytes >= write.bytes
    }

    /// True if rewriting the logs makes space for a write: it fits, and frees enough.
    pub(crate) fn is_rewrite_worth(&self) -> bool {
        let worth_bytes = (self.live_bytes / WORTH_PARTS.0).max(self.kept_bytes() / WORTH_PARTS.1);
        self.can_rewrite() && self.garbage_bytes() >= worth_bytes.max(self.block_bytes)
    }

    /// The same where nobody waits: anything that comes back is worth it.
    pub(crate) fn is_idle_rewrite_worth(&self) -> bool {
        self.can_rewrite() && self.garbage_bytes() >= self.block_bytes
    }

    fn can_rewrite(&self) -> bool {
        self.available_bytes >= self.rewrite_bytes(self.live_bytes)
    }

    /// Space that a rewriting brings back: what was taken since the last one, but for the growth of the live pairs. It may be much
    /// more than garbage in the log: on some stores each sync ends a block.
    fn garbage_bytes(&self) -> u64 {
        let Some(then) = self.rewritten else { return u64::MAX };
        self.used_by(then.live_bytes).saturating_sub(then.used_bytes)
    }

    /// Space that would be used now if so much were live.
    fn used_by(&self, live_bytes: u64) -> u64 {
        let used_bytes = self.total_bytes.saturating_sub(self.available_bytes).saturating_add(self.held_back_bytes);
        used_bytes.saturating_add(framed(live_bytes)).saturating_sub(framed(self.live_bytes))
    }

    /// Free space after the last rewriting, in bytes, without leftovers of earlier logs that the store freed later.
    pub(crate) fn without_leftovers(&self) -> Option<Rewritten> {
        self.rewritten.map(|then| Rewritten { used_bytes: then.used_bytes.min(self.used_by(then.live_bytes)), ..then })
    }

    /// Headroom after a rewriting that has just ended.
    pub(crate) fn as_rewritten(&self) -> Rewritten {
        let used_bytes = self.total_bytes.saturating_sub(self.available_bytes);
        Rewritten { used_bytes, live_bytes: self.live_bytes }
    }

    /// Bytes that may be written before the next look; 0 while puts are refused.
    pub(crate) fn look_after_bytes(&self) -> u64 {
        let spare_bytes = self.available_bytes.saturating_sub(self.left_by_puts_bytes());
        (spare_bytes / LOOK_PART).min(self.total_bytes / LOOK_MEDIUM_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: LogHeadroom = LogHeadroom {
        total_bytes: 16 << 20,
        available_bytes: 16 << 20,
        block_bytes: 4 << 10,
        is_in_bands: false,
        live_bytes: 0,
        held_back_bytes: 0,
        rewritten: None,
        asked_bytes: None,
        zones: None,
    };

    fn put(bytes: u64) -> LogWrite {
        LogWrite { bytes, freed_bytes: 0, has_puts: true }
    }

    fn delete(bytes: u64, freed_bytes: u64) -> LogWrite {
        LogWrite { bytes, freed_bytes, has_puts: false }
    }

    #[test]
    fn puts_leave_a_rewriting_and_space_for_deletes() {
        let full = LogHeadroom { live_bytes: 7 << 20, available_bytes: 8 << 20, ..SPACE };
        let rewrite_bytes = full.rewrite_bytes(7 << 20);
        assert!((framed(7 << 20)..framed(7 << 20) + (32 << 10)).contains(&rewrite_bytes), "{rewrite_bytes}");
        let (puts_bytes, deletes_bytes) = (full.left_by_puts_bytes(), full.left_by_deletes_bytes());
        assert_eq!((puts_bytes, deletes_bytes), (rewrite_bytes + (1 << 20), rewrite_bytes + (1 << 18)));
        let at = |available_bytes| LogHeadroom { available_bytes, ..full };
        assert_eq!(at(puts_bytes).admission(), Admission::Open);
        assert_eq!(at(puts_bytes - 1).admission(), Admission::DeletesOnly);
        assert_eq!(at(deletes_bytes).admission(), Admission::DeletesOnly);
        assert_eq!(at(deletes_bytes - 1).admission(), Admission::Full);
        assert!(at(rewrite_bytes).can_rewrite() && !at(rewrite_bytes - 1).can_rewrite());
        // The option says what is left for deletes, and nothing of the rewriting.
        let asked = LogHeadroom { asked_bytes: Some(0), ..at(rewrite_bytes) };
        assert_eq!(asked.admission(), Admission::Open);
        // What is held back takes its space later.
        let held_back = |available_bytes| LogHeadroom { held_back_bytes: 1 << 20, ..at(available_bytes) };
        assert_eq!(held_back(puts_bytes).admission(), Admission::Full);
        assert_eq!(held_back(puts_bytes + (1 << 19)).admission(), Admission::DeletesOnly);
        assert_eq!(held_back(puts_bytes + (1 << 20)).admission(), Admission::Open);
    }

    /// Every small put is taken while the state is open, and none is when it is not.
    #[test]
    fn small_puts_are_taken_exactly_while_the_state_is_open() {
        for (block_bytes, is_in_bands) in [(512, false), (4 << 10, false), (64 << 10, true), (1 << 20, true)] {
            for live_bytes in (0..8 << 20).step_by(333_333) {
                for blocks in 0..(16 << 20) / block_bytes {
                    let available_bytes = blocks * block_bytes;
                    let space = LogHeadroom { block_bytes, is_in_bands, live_bytes, available_bytes, ..SPACE };
                    let is_open = space.admission() == Admission::Open;
                    assert_eq!(space.takes(put(100)), is_open, "{space:?}");
                    assert!(!is_open || space.takes(delete(100, 0)), "{space:?}");
                    assert!(space.admission() == Admission::Full || space.can_rewrite(), "{space:?}");
                }
            }
        }
    }

    #[test]
    fn large_puts_leave_half_of_what_is_kept_for_deletes() {
        let space = LogHeadroom { live_bytes: 2 << 20, available_bytes: 8 << 20, ..SPACE };
        let most = (1..8 << 20).step_by(4096).take_while(|bytes| space.takes(put(*bytes))).last().expect("some");
        let available_bytes = (8 << 20) - framed(most);
        let after = LogHeadroom { live_bytes: (2 << 20) + most, available_bytes, ..space };
        assert_eq!(after.admission(), Admission::DeletesOnly);
        let left_bytes = after.available_bytes - after.left_by_deletes_bytes();
        assert!((1 << 18..(1 << 18) + (32 << 10)).contains(&left_bytes), "{left_bytes}");
    }

    #[test]
    fn deletes_that_free_more_than_they_take_are_always_taken() {
        let full = LogHeadroom { live_bytes: 12 << 20, available_bytes: 1 << 20, ..SPACE };
        assert_eq!(full.admission(), Admission::Full);
        assert!(full.takes(delete(40, 4000)) && !full.takes(delete(40, 0)));
        assert!(!full.takes(delete(2 << 20, 12 << 20)), "it does not fit");
        // One batch that deletes everything, of which the keys are most.
        let keys = LogHeadroom { live_bytes: 7 << 20, available_bytes: 8 << 20, ..SPACE };
        assert!(keys.takes(delete(6 << 20, 7 << 20)) && !keys.takes(delete(6 << 20, 0)));
    }

    #[test]
    fn logs_are_rewritten_for_space_if_that_fits_and_gives_some() {
        let fresh = LogHeadroom { live_bytes: 4 << 20, available_bytes: 12 << 20, ..SPACE };
        let after = |available_bytes, live_bytes| {
            let rewritten = Some(fresh.as_rewritten());
            LogHeadroom { available_bytes, live_bytes, rewritten, ..fresh }
        };
        assert!(!after(12 << 20, 4 << 20).is_idle_rewrite_worth());
        // It has grown by puts of new keys, ...
        assert!(!after(7 << 20, (4 << 20) + (5 << 20) * 20 / 21).is_idle_rewrite_worth());
        // or by others that hide what was there; or something was deleted.
        for garbage in [after((12 << 20) - (200 << 10), 4 << 20), after(12 << 20, (4 << 20) - (195 << 10))] {
            assert!(garbage.is_idle_rewrite_worth() && !garbage.is_rewrite_worth(), "{garbage:?}");
        }
        for garbage in [after((12 << 20) - (300 << 10), 4 << 20), after(12 << 20, (4 << 20) - (295 << 10))] {
            assert!(garbage.is_rewrite_worth(), "{garbage:?}");
        }
        let full = after(4 << 20, 4 << 20);
        assert!(!full.is_rewrite_worth() && !full.is_idle_rewrite_worth(), "there is no space to rewrite it");
        // The store gave back the logs before only after they had been rewritten.
        let late = LogHeadroom { available_bytes: 8 << 20, ..fresh };
        let seen = LogHeadroom { rewritten: Some(late.as_rewritten()), ..after(12 << 20, 4 << 20) };
        assert_eq!(seen.without_leftovers(), Some(fresh.as_rewritten()));
        assert_eq!(after(11 << 20, 4 << 20).without_leftovers(), Some(fresh.as_rewritten()));
        // It is not known what opening found.
        assert!(LogHeadroom { rewritten: None, ..after(12 << 20, 4 << 20) }.is_rewrite_worth());
    }

    #[test]
    fn space_is_looked_at_before_it_is_gone() {
        assert_eq!(SPACE.look_after_bytes(), (16 << 20) / 256);
        for available_bytes in (0..2 << 20).step_by(1000) {
            let space = LogHeadroom { available_bytes, ..SPACE };
            let bytes = space.look_after_bytes();
            assert_eq!(bytes == 0, available_bytes < space.left_by_puts_bytes() + LOOK_PART, "{available_bytes}");
            let after = LogHeadroom { live_bytes: bytes, available_bytes: available_bytes - bytes, ..space };
            assert!(bytes == 0 || after.admission() == Admission::Open, "{available_bytes}");
        }
        let all = LogHeadroom { available_bytes: u64::MAX, live_bytes: u64::MAX, total_bytes: u64::MAX, ..SPACE };
        assert!(all.left_by_puts_bytes() == u64::MAX && !all.takes(put(u64::MAX)));
    }
}
