//! Space on the medium: what writers leave of it, and which writes are taken when there is little.
//!
//! What is on a full medium can only be given up by writing more: a delete is a write, its memtable becomes a table, and a
//! compaction writes its outputs before its inputs are free. So space is left in steps, as RocksDB's reserved buffers for
//! compactions do it: puts leave some for deletes, deletes leave a quarter of that for logs and compactions, and both leave what
//! memtables will become. Below that a store may keep a reserve for outputs of compactions alone, as bands do: then those
//! have it beside what writers left.
//!
//! [`Headroom`] is what is known, [`Headroom::admission`] what follows, as a pure function.

use crate::shape::{fitting_bytes, taking_bytes};
use varve_store::ZoneSpace;

/// Tables that puts leave, where nobody said how much: one each for the log of what was taken last, for that of deletes,
/// for what these become, for what opening again takes, and one because full tables that are merged may become one more.
const KEPT_TABLES: u64 = 5;

/// The same where the medium likes no size of tables, and has no reserve for compactions. The smallest step of one reads a
/// table and one that it overlaps, and writes as much before either is free.
const KEPT_TABLES_OF_ANY_SIZE: u64 = 8;

/// Of what puts leave, deletes leave one part in so many: where the store has a reserve for compactions, and where not.
const LEFT_BY_DELETES_PART: (u64, u64) = (4, 2);

/// Where the medium likes no size of tables, they have at most one part in so many of it, and so have memtables: what puts
/// leave is a sixteenth of it then.
pub(super) const TABLE_PART: u64 = 128;

/// What puts leave at most is one part in so many of the medium: so much, and where there are tables of more than twice that
/// size, as of a value that is larger, so much.
pub(super) const KEPT_PART: (u64, u64) = (TABLE_PART / KEPT_TABLES_OF_ANY_SIZE, 4);

/// Smaller tables than this are not asked for, however small the medium.
pub(super) const TABLE_BYTES_LIMIT_MIN: u64 = 4 << 10;

/// Tables count for so much at least when it is said what writers leave, but for media on which that is much: a store gives
/// out space in blocks, and has some more to note.
const COUNTED_TABLE_BYTES_MIN: u64 = 64 << 10;

/// Blocks that a log takes beside the one before it: its first, what is written ahead of its contents, and as much again
/// while the one before ends.
const LOG_BLOCKS: u64 = 4;

/// What is behind the pairs of a small table.
pub(super) const PROPERTIES_BYTES: u64 = 768;

fn scaled(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Least share of a table that deletions must delete to be compacted in the state full (1/16).
const WORTH_WHEN_FULL_PART: u64 = 16;

/// What is known of the space on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
    /// What the store keeps for outputs of compactions beside that.
    pub(crate) reserve_bytes: u64,
    /// What running compactions were given and did not take yet, in bytes of tables as those of `cut_bytes` are.
    pub(crate) reserved_bytes: u64,
    /// Size of a table, the largest there is or may be; where the medium likes tables of one size, each takes all of it.
    pub(crate) table_bytes: u64,
    pub(crate) is_in_tables: bool,
    /// Pairs in a table of a compaction.
    pub(crate) cut_bytes: u64,
    /// What it takes beside them: little, but where tables are of few blocks.
    pub(crate) beside_bytes: u64,
    /// What memtables will become, and what the manifest may grow by.
    pub(crate) owed_bytes: u64,
    /// A table takes less than this much more than its size.
    pub(crate) block_bytes: u64,
    /// What the tables there are may come to take besides once they were rewritten.
    pub(crate) growth_bytes: u64,
    /// Option `compaction_buffer_size`.
    pub(crate) asked_bytes: Option<u64>,
    /// Use of zones, for messages and statistics.
    pub(crate) zones: Option<ZoneSpace>,
}

/// Which writes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Open,
    /// Batches of nothing but deletes.
    DeletesOnly,
    Full,
}

impl Admission {
    pub(crate) fn takes(self, has_puts: bool) -> bool {
        match self {
            Admission::Open => true,
            Admission::DeletesOnly => !has_puts,
            Admission::Full => false,
        }
    }
}

impl Headroom {
    /// What puts leave.
    pub(crate) fn left_by_puts_bytes(&self) -> u64 {
        let growth_bytes = if self.asked_bytes.is_none() { self.growth_bytes } else { 0 };
        self.owed_bytes.saturating_add(self.whole_tables(self.kept_bytes())).saturating_add(growth_bytes)
    }

    /// What deletes leave: a table at least, where logs take space by bands.
    pub(crate) fn left_by_deletes_bytes(&self) -> u64 {
        let part = if self.is_in_tables { LEFT_BY_DELETES_PART.0 } else { LEFT_BY_DELETES_PART.1 };
        self.owed_bytes.saturating_add(self.whole_tables(self.kept_bytes() / part))
    }

    fn kept_bytes(&self) -> u64 {
        let usual_bytes = || match self.is_in_tables {
            true => KEPT_TABLES.saturating_mul(self.table_bytes),
            false => {
                let least_bytes = COUNTED_TABLE_BYTES_MIN.min(self.total_bytes / TABLE_PART);
                let tables_bytes = KEPT_TABLES_OF_ANY_SIZE.saturating_mul(self.table_bytes.max(least_bytes));
                let taken_bytes =
                    scaled(tables_bytes, self.cut_bytes.saturating_add(self.beside_bytes), self.cut_bytes);
                let limit_bytes = (self.total_bytes / TABLE_PART).max(TABLE_BYTES_LIMIT_MIN);
                let part = if self.table_bytes / 2 > limit_bytes { KEPT_PART.1 } else { KEPT_PART.0 };
                taken_bytes.min(self.total_bytes / part)
            }
        };
        self.asked_bytes.unwrap_or_else(usual_bytes)
    }

    pub(super) fn whole_tables(&self, bytes: u64) -> u64 {
        if self.is_in_tables { bytes.div_ceil(self.table_bytes).saturating_mul(self.table_bytes) } else { bytes }
    }

    pub(crate) fn admission(&self) -> Admission {
        // What compactions take of the reserve is not there for writers anyway.
        let reserved_bytes = self.reserved_on_medium_bytes().saturating_sub(self.reserve_bytes);
        let unreserved_bytes = self.available_bytes.saturating_sub(reserved_bytes);
        let takes_deletes = match self.is_in_tables {
            // Compactions were given no band that deletes leave. Of the rest, deletes take none that a running one still needs.
            true => {
                self.available_bytes >= self.left_by_deletes_bytes()
                    && unreserved_bytes >= self.owed_bytes.saturating_add(self.table_bytes)
            }
            false => unreserved_bytes >= self.left_by_deletes_bytes(),
        };
        match (unreserved_bytes >= self.left_by_puts_bytes(), takes_deletes) {
            (true, _) => Admission::Open,
            (false, true) => Admission::DeletesOnly,
            (false, false) => Admission::Full,
        }
    }

    /// Returns true if a batch of deletes is accepted below [`Headroom::left_by_deletes_bytes`] because no job can free space. The
    /// store keeps tables in bands, has a reserve for compactions, and has one band for the next log in addition to the bands of
    /// flushes that are owed.
    pub(crate) fn takes_deletes_at_last(&self) -> bool {
        let left_bytes = self.owed_bytes.saturating_add(self.table_bytes);
        self.is_in_tables && self.reserve_bytes >= self.table_bytes && self.available_bytes >= left_bytes
    }

    /// Some writes are refused.
    pub(crate) fn is_short(&self) -> bool {
        self.admission() != Admission::Open
    }

    /// What deletions must delete to be worth compactions of their own: while others can still be taken, half a table,
    /// and then a sixteenth.
    pub(crate) fn worth_bytes(&self) -> u64 {
        let part = if self.admission() == Admission::Full { WORTH_WHEN_FULL_PART } else { 2 };
        (self.table_bytes / part).max(1)
    }

    /// Bytes that outputs of a compaction may have: of all but what memtables will become, and logs take meanwhile, what is
    /// left when each table takes some more than it is cut for.
    pub(crate) fn compaction_bytes(&self) -> u64 {
        let bytes = self.unowed_bytes();
        let fitting = match self.is_in_tables {
            true => fitting_bytes(bytes, self.table_bytes),
            false => scaled(bytes, self.cut_bytes, self.cut_bytes.saturating_add(self.beside_bytes)),
        };
        fitting.saturating_sub(self.reserved_bytes)
    }

    /// The same where tables come to be as full as those that are there: what is not more than this may fit.
    pub(crate) fn hoped_bytes(&self) -> u64 {
        match self.is_in_tables {
            true => self.unowed_bytes().saturating_sub(self.reserved_on_medium_bytes()),
            false => self.compaction_bytes(),
        }
    }

    /// All but what memtables will become and logs take meanwhile.
    fn unowed_bytes(&self) -> u64 {
        let for_logs_bytes = match self.is_in_tables {
            true => self.table_bytes,
            false => (self.available_bytes / 16).max(LOG_BLOCKS.saturating_mul(self.block_bytes)),
        };
        let left_bytes = self.available_bytes.saturating_sub(self.owed_bytes.saturating_add(for_logs_bytes));
        left_bytes.saturating_add(self.reserve_bytes)
    }

    /// What running compactions take of the medium at most from now on.
    pub(crate) fn reserved_on_medium_bytes(&self) -> u64 {
        match self.is_in_tables {
            true => taking_bytes(self.reserved_bytes, self.table_bytes),
            false => scaled(self.reserved_bytes, self.cut_bytes.saturating_add(self.beside_bytes), self.cut_bytes),
        }
    }

    /// Whether a compaction may leave more tables than it read, as it sometimes does where full ones are merged: one after the
    /// other would take what deletes need.
    pub(crate) fn allows_growth(&self) -> bool {
        !self.is_in_tables || !self.is_short()
    }

    /// The same once those that run have ended without taking more.
    pub(crate) fn unreserved(&self) -> Headroom {
        Headroom { reserved_bytes: 0, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::filled_bytes;

    const BAND: u64 = 1 << 20;

    fn bands(available: u64, owed: u64) -> Headroom {
        Headroom {
            total_bytes: 100 * BAND,
            available_bytes: available * BAND,
            reserve_bytes: 2 * BAND,
            reserved_bytes: 0,
            table_bytes: BAND,
            is_in_tables: true,
            cut_bytes: BAND,
            beside_bytes: 0,
            owed_bytes: owed * BAND,
            block_bytes: 1,
            growth_bytes: 0,
            asked_bytes: None,
            zones: None,
        }
    }

    #[test]
    fn puts_stop_first_then_deletes_and_compactions_have_the_rest() {
        use Admission::{DeletesOnly, Full, Open};
        let states: Vec<Admission> = (0..7).rev().map(|available| bands(available, 1).admission()).collect();
        assert_eq!(states, [Open, DeletesOnly, DeletesOnly, DeletesOnly, Full, Full, Full]);
        let filled_bytes = BAND - BAND / 16 - (5 << 10);
        assert_eq!(bands(3, 1).compaction_bytes(), 3 * filled_bytes);
        assert_eq!(bands(0, 1).compaction_bytes(), 2 * filled_bytes);
        assert!(Open.takes(true) && Open.takes(false) && !DeletesOnly.takes(true) && DeletesOnly.takes(false));
        assert!(!Full.takes(true) && !Full.takes(false));
    }

    #[test]
    fn last_resort_deletes_leave_a_band_for_a_log() {
        let taken = |available, owed| bands(available, owed).takes_deletes_at_last();
        assert_eq!([taken(3, 1), taken(2, 1), taken(1, 1), taken(1, 0), taken(0, 0)], [true, true, false, true, false]);
        assert!(!Headroom { reserve_bytes: 0, ..bands(2, 1) }.takes_deletes_at_last());
        assert!(!Headroom { is_in_tables: false, ..bands(2, 1) }.takes_deletes_at_last());
    }

    /// Where the store has no reserve for compactions.
    #[test]
    fn nobody_counts_on_what_a_running_compaction_was_given() {
        use Admission::{DeletesOnly, Full, Open};
        let space = |reserved_bytes: u64| Headroom {
            is_in_tables: false,
            total_bytes: 64 << 20,
            available_bytes: 4 << 20,
            reserve_bytes: 0,
            table_bytes: 128 << 10,
            cut_bytes: 128 << 10,
            reserved_bytes,
            ..bands(0, 0)
        };
        let states = [0, 3 << 20, (3 << 20) + 1, 7 << 19, (7 << 19) + 1].map(|bytes| space(bytes).admission());
        assert_eq!(states, [Open, Open, DeletesOnly, DeletesOnly, Full]);
        assert_eq!(space(3 << 20).unreserved().admission(), Open);
        assert_eq!([0, 1 << 20].map(|bytes| space(bytes).compaction_bytes()), [15 << 18, 11 << 18]);
        let bands = |reserved_bytes: u64| Headroom { reserved_bytes, ..bands(5, 0) };
        let filled_bytes = filled_bytes(BAND);
        let states = [0, 2, 3, 8].map(|tables| bands(tables * filled_bytes).admission());
        assert_eq!(states, [Open, Open, DeletesOnly, Full], "the reserve is for compactions anyway");
        // Deletes leave a running compaction the bands it was given, and keep one for their log.
        let deletes = [4, 6, 7].map(|tables| bands(tables * filled_bytes).admission());
        assert_eq!(deletes, [DeletesOnly, DeletesOnly, Full]);
        assert!(bands(BAND).compaction_bytes() < bands(0).compaction_bytes());
    }

    /// Of full bands two may become three: that is known of none that is left, and allowed while puts are taken.
    #[test]
    fn a_step_that_may_fit_is_hoped_for_and_leaves_no_more_tables_where_there_is_little() {
        let full_bytes = 2 * (BAND - (1 << 10));
        let of = |available| bands(available, 0);
        assert!(of(1).compaction_bytes() < full_bytes && of(1).hoped_bytes() >= full_bytes);
        let running = Headroom { reserved_bytes: filled_bytes(BAND), ..of(1) };
        assert!(running.hoped_bytes() < full_bytes);
        assert_eq!([5, 4].map(|available| of(available).allows_growth()), [true, false]);
        assert!(Headroom { is_in_tables: false, ..of(0) }.allows_growth());
    }

    #[test]
    fn little_is_left_of_a_small_medium_and_as_much_as_was_asked() {
        let left = |space: Headroom| (space.left_by_puts_bytes() / BAND, space.left_by_deletes_bytes() / BAND);
        assert_eq!(left(bands(0, 0)), (5, 2));
        assert_eq!(left(Headroom { asked_bytes: Some(0), ..bands(0, 2) }), (2, 2));
        assert_eq!(left(Headroom { asked_bytes: Some(6 * BAND), ..bands(0, 0) }), (6, 2));
        let bytes = Headroom { total_bytes: 96, table_bytes: 1 << 40, is_in_tables: false, ..bands(0, 0) };
        assert_eq!((bytes.left_by_puts_bytes(), bytes.left_by_deletes_bytes()), (24, 12));
        let small =
            Headroom { table_bytes: 1 << 10, total_bytes: 1 << 30, cut_bytes: 1 << 10, beside_bytes: 3 << 10, ..bytes };
        assert_eq!((small.left_by_puts_bytes(), small.left_by_deletes_bytes()), (2 << 20, 1 << 20));
        let large = Headroom { total_bytes: 128 << 20, table_bytes: BAND, ..small };
        assert_eq!((large.left_by_puts_bytes(), large.left_by_deletes_bytes()), (8 * BAND, 4 * BAND));
        let space = Headroom { available_bytes: 16 << 20, reserve_bytes: 0, ..large };
        assert_eq!(space.compaction_bytes(), (15 << 20) / 4, "of four blocks one is what was cut for");
        let all = Headroom { available_bytes: u64::MAX, ..bytes };
        assert!(all.compaction_bytes() > 1 << 62 && all.admission() == Admission::Open);
    }
}
