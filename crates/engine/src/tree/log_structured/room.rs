//! Room on the medium: what writers leave of it, and what becomes of writes when there is none.
//!
//! What is on a full medium can only be given up by writing more: a delete is a write, its memtable becomes a table, and a
//! compaction writes its outputs before its inputs are free. So room is left in steps, as RocksDB's reserved buffers for
//! compactions do it: puts leave some for deletes, deletes leave a quarter of that for logs and compactions, and both leave what
//! memtables will become. Below that a store may keep a reserve for outputs of compactions alone, as bands do: then those
//! have it beside what writers left.
//!
//! [`Room`] is what is known, [`Room::state`] what follows, as a pure function. A write that would leave too little first
//! has what is in memory flushed, which frees its logs and brings deletions to where compactions find them; then it
//! waits as long as compactions are due or running, and then it is refused. Nothing else changes: reads go on, and as soon
//! as there is room again writes do.

use super::background;
use super::reclaim;
use super::shared::{Core, Shared};
use super::write::{WritePath, Writer, note_stall};
use super::write_group::Commit;
use crate::error::{Error, ErrorKind};
use crate::memtable::MemTable;
use crate::options::Options;
use crate::shape::{fitting_bytes, taking_bytes};
use std::sync::atomic::Ordering;
use varve_env::MutexGuard;
use varve_store::{FileStore, Space};

/// Tables that puts leave, where nobody said how much: one each for the log of what was taken last, for that of deletes,
/// for what these become, and for what opening again takes.
const KEPT_TABLES: u64 = 4;

/// The same where the medium likes no size of tables, and has no reserve for compactions. The smallest step of one reads a
/// table and one that it overlaps, and writes as much before either is free.
const KEPT_TABLES_OF_ANY_SIZE: u64 = 8;

/// Of what puts leave, deletes leave one part in so many: where the store has a reserve for compactions, and where not.
const LEFT_BY_DELETES_PART: (u64, u64) = (4, 2);

/// Where the medium likes no size of tables, they have at most one part in so many of it, and so have memtables: what puts
/// leave is a sixteenth of it then.
const TABLE_PART: u64 = 128;

/// What puts leave at most is one part in so many of the medium: so much, and where there are tables of more than twice that
/// size, as of a value that is larger, so much.
const KEPT_PART: (u64, u64) = (TABLE_PART / KEPT_TABLES_OF_ANY_SIZE, 4);

/// Smaller tables than this are not asked for, however small the medium.
const TABLE_BYTES_LIMIT_MIN: u64 = 4 << 10;

/// Tables count for so much at least when it is said what writers leave, but for media on which that is much: a store gives
/// out room in blocks, and has some more to note.
const COUNTED_TABLE_BYTES_MIN: u64 = 64 << 10;

/// Blocks that a log takes beside the one before it: its first, what is written ahead of its contents, and as much again
/// while the one before ends.
const LOG_BLOCKS: u64 = 4;

/// What is behind the pairs of a small table.
const PROPERTIES_BYTES: u64 = 768;

fn scaled(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Once there is room for no other, deletions are worth a compaction when they delete one part in so many of a table.
const WORTH_WHEN_FULL_PART: u64 = 16;

/// How often a writer waits for jobs again that gave nothing back, before it is refused.
const TRIES_MAX: u32 = 8;

/// Room is looked at whenever writes of so many parts of a table have come.
pub(super) const LOOK_PART: u64 = 8;

/// What is known of the room on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) total_bytes: u64,
    pub(super) available_bytes: u64,
    /// What the store keeps for outputs of compactions beside that.
    pub(super) reserve_bytes: u64,
    /// What running compactions were given and did not take yet, in bytes of tables as those of `cut_bytes` are.
    pub(super) claimed_bytes: u64,
    /// Size of a table, the largest there is or may be; where the medium likes tables of one size, each takes all of it.
    pub(super) table_bytes: u64,
    pub(super) is_in_tables: bool,
    /// Pairs in a table of a compaction.
    pub(super) cut_bytes: u64,
    /// What it takes beside them: little, but where tables are of few blocks.
    pub(super) beside_bytes: u64,
    /// What memtables will become, and what the manifest may grow by.
    pub(super) owed_bytes: u64,
    /// A table takes less than this much more than its size.
    pub(super) block_bytes: u64,
    /// What the tables there are may come to take besides once they were rewritten.
    pub(super) growth_bytes: u64,
    /// Option `compaction_buffer_size`.
    pub(super) asked_bytes: Option<u64>,
}

/// Which writes are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomState {
    Open,
    /// Batches of nothing but deletes.
    DeletesOnly,
    Full,
}

impl RoomState {
    fn takes(self, has_puts: bool) -> bool {
        match self {
            RoomState::Open => true,
            RoomState::DeletesOnly => !has_puts,
            RoomState::Full => false,
        }
    }
}

impl Room {
    /// What puts leave.
    pub(super) fn left_by_puts_bytes(&self) -> u64 {
        let growth_bytes = if self.asked_bytes.is_none() { self.growth_bytes } else { 0 };
        self.owed_bytes.saturating_add(self.whole_tables(self.kept_bytes())).saturating_add(growth_bytes)
    }

    /// What deletes leave: a table at least, where logs take room by bands.
    pub(super) fn left_by_deletes_bytes(&self) -> u64 {
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

    fn whole_tables(&self, bytes: u64) -> u64 {
        if self.is_in_tables { bytes.div_ceil(self.table_bytes).saturating_mul(self.table_bytes) } else { bytes }
    }

    pub(super) fn state(&self) -> RoomState {
        let claimed_bytes = if self.is_in_tables { 0 } else { self.claimed_bytes() };
        match self.available_bytes.saturating_sub(claimed_bytes) {
            bytes if bytes >= self.left_by_puts_bytes() => RoomState::Open,
            bytes if bytes >= self.left_by_deletes_bytes() => RoomState::DeletesOnly,
            _ => RoomState::Full,
        }
    }

    /// Some writes are refused.
    pub(super) fn is_short(&self) -> bool {
        self.state() != RoomState::Open
    }

    /// What deletions must delete to be worth compactions of their own: while others can still be taken, half a table,
    /// and then a sixteenth.
    pub(super) fn worth_bytes(&self) -> u64 {
        let part = if self.state() == RoomState::Full { WORTH_WHEN_FULL_PART } else { 2 };
        (self.table_bytes / part).max(1)
    }

    /// Bytes that outputs of a compaction may have: of all but what memtables will become, and logs take meanwhile, what is
    /// left when each table takes some more than it is cut for.
    pub(super) fn of_compactions_bytes(&self) -> u64 {
        let for_logs_bytes = match self.is_in_tables {
            true => self.table_bytes,
            false => (self.available_bytes / 16).max(LOG_BLOCKS.saturating_mul(self.block_bytes)),
        };
        let left_bytes = self.available_bytes.saturating_sub(self.owed_bytes.saturating_add(for_logs_bytes));
        let bytes = left_bytes.saturating_add(self.reserve_bytes);
        let fitting_bytes = match self.is_in_tables {
            true => fitting_bytes(bytes, self.table_bytes),
            false => scaled(bytes, self.cut_bytes, self.cut_bytes.saturating_add(self.beside_bytes)),
        };
        fitting_bytes.saturating_sub(self.claimed_bytes)
    }

    /// What running compactions take of the medium at most from now on.
    pub(super) fn claimed_bytes(&self) -> u64 {
        match self.is_in_tables {
            true => taking_bytes(self.claimed_bytes, self.table_bytes),
            false => scaled(self.claimed_bytes, self.cut_bytes.saturating_add(self.beside_bytes), self.cut_bytes),
        }
    }

    /// The same once those that run have ended without taking more.
    fn unclaimed(&self) -> Room {
        Room { claimed_bytes: 0, ..*self }
    }
}

/// Largest size of a table that the room of a medium allows for, where it does not like one size: compactions must be able
/// to rewrite some of them in what writers leave.
pub(super) fn table_bytes_limit(files: &dyn FileStore) -> u64 {
    match (files.properties().preferred_table_bytes, files.space()) {
        (None, Ok(space)) => (space.total_bytes / TABLE_PART).max(TABLE_BYTES_LIMIT_MIN),
        _ => u64::MAX,
    }
}

/// Bytes at which a memtable is full: where tables have any size, no more than a table on a medium of this size may have.
pub(super) fn write_buffer_bytes(options: &Options, files: &dyn FileStore) -> usize {
    let limit_bytes = usize::try_from(table_bytes_limit(files)).unwrap_or(usize::MAX);
    options.write_buffer_bytes(files.properties()).min(limit_bytes)
}

/// What a group of writes wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) has_puts: bool,
    /// Some of its batches have puts and some have not.
    pub(super) is_mixed: bool,
}

/// Looks at the room; `None` where the store cannot tell. `active` is the memtable that is written, and would get
/// `more_bytes`.
fn look(shared: &Shared, active: &MemTable, more_bytes: u64) -> Option<Room> {
    let space = shared.media.files.space().ok()?;
    Some(room_in(shared, space, active, more_bytes, 0))
}

fn room_in(shared: &Shared, space: Space, active: &MemTable, more_bytes: u64, own_bytes: u64) -> Room {
    let preferred = shared.media.files.properties().preferred_table_bytes;
    let state = shared.read_state.load();
    let table_bytes = || {
        let cut_bytes = shared.table_bytes.max(shared.write_buffer_bytes as u64);
        cut_bytes.max(state.version.largest_table_bytes())
    };
    let properties_bytes = PROPERTIES_BYTES.min(shared.table_bytes / 2);
    let mut room = Room {
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
        reserve_bytes: space.reserve_bytes,
        claimed_bytes: shared.claims.left_bytes().saturating_sub(own_bytes),
        table_bytes: preferred.unwrap_or_else(table_bytes).max(1),
        is_in_tables: preferred.is_some(),
        cut_bytes: shared.table_bytes - properties_bytes,
        beside_bytes: space.block_bytes + properties_bytes + shared.policy.histogram_bytes() as u64,
        owed_bytes: 0,
        block_bytes: space.block_bytes,
        growth_bytes: 0,
        asked_bytes: shared.options.compaction_buffer_size,
    };
    let bytes_of = |memtable: &MemTable| if memtable.is_empty() { 0 } else { memtable.memory_bytes() as u64 };
    let waiting_bytes: u64 = state.immutables.iter().map(|memtable| bytes_of(memtable)).sum();
    let active_bytes = bytes_of(active).saturating_add(more_bytes);
    room.owed_bytes = room.whole_tables(waiting_bytes).saturating_add(room.whole_tables(active_bytes));
    if !room.is_in_tables {
        // A manifest grows to twice what names all tables before another takes its place.
        room.owed_bytes = room.owed_bytes.saturating_add(state.version.listed_bytes().saturating_mul(2));
        // Else what puts left could be gone once tables end elsewhere in their last blocks.
        room.growth_bytes = state.version.growth_bytes(space.block_bytes).min(space.total_bytes / KEPT_PART.0);
    }
    room
}

/// What the smallest write would meet, and the bytes that outputs of compactions may have, of which one that runs has
/// claimed `own_bytes`. Cost: asks the store once.
pub(super) fn look_now(shared: &Shared, own_bytes: u64) -> (Option<Room>, u64) {
    let Ok(space) = shared.media.files.space() else { return (None, u64::MAX) };
    let active = shared.read_state.load().memtable.clone();
    let of = |more_bytes| room_in(shared, space, &active, more_bytes, own_bytes);
    (Some(of(1)), of(0).of_compactions_bytes())
}

impl WritePath {
    /// Waits until a write of so many bytes leaves enough room, as long as that may come; then refuses it. Puts stand aside
    /// for deletes that come meanwhile: these may be taken, and bring room. Cost: asks the store once for every eighth of a
    /// table, and for every write while room is short.
    pub(super) fn wait_for_room(
        &self,
        shared: &Shared,
        writer: &mut MutexGuard<'_, Writer>,
        bytes: usize,
        wanted: Wanted,
    ) -> Result<Commit, Error> {
        if bytes == 0 {
            return Ok(Commit::Done);
        }
        let has_puts = wanted.has_puts;
        let deletes_wait = || wanted.is_mixed || self.group.has_waiting_deletes();
        writer.unlooked_bytes = writer.unlooked_bytes.saturating_add(bytes as u64);
        let is_short = shared.is_short_of_room.load(Ordering::Relaxed);
        if !is_short && writer.unlooked_bytes < shared.room_look_bytes {
            return Ok(Commit::Done);
        }
        writer.unlooked_bytes = 0;
        let start = shared.env.now();
        let (mut waited, mut tries) = (false, 0);
        let result = loop {
            let Some(room) = look(shared, &writer.memtable, bytes as u64) else { return Ok(Commit::Done) };
            let state = room.state();
            shared.is_short_of_room.store(state != RoomState::Open, Ordering::SeqCst);
            if state.takes(has_puts) {
                break Ok(Commit::Done);
            }
            if has_puts && state.takes(false) && deletes_wait() {
                break Ok(Commit::StandsAside);
            }
            waited = true;
            // What only running compactions keep from it may be there when they end.
            let unclaimed = room.unclaimed();
            let is_lacking = !unclaimed.state().takes(has_puts);
            let flushed = if is_lacking { self.flush_for_room(shared, writer, &unclaimed) } else { Ok(false) };
            let progressed = match flushed {
                Ok(true) => Ok(true),
                // What jobs give back may be what the flush lacked.
                Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
                _ => wait_for_job(shared, || has_puts && state.takes(false) && deletes_wait()),
            };
            match progressed {
                Ok(true) => {}
                Err(error) => break Err(error),
                // Readers may have let go of tables meanwhile, or a compaction that was asked for may have ended; or one
                // ended for want of room, and a smaller one runs by now.
                Ok(false) => {
                    shared.tables.collect(&shared.garbage);
                    let now = look(shared, &writer.memtable, bytes as u64).filter(|now| !now.state().takes(has_puts));
                    tries += 1;
                    if let Some(now) = now.filter(|_| tries >= TRIES_MAX) {
                        break Err(refusal(shared, &now, has_puts));
                    }
                }
            }
        };
        if waited {
            note_stall(shared, start);
        }
        let refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoSpace);
        shared.counters.writes_out_of_room.fetch_add(u64::from(refused), Ordering::Relaxed);
        result
    }

    /// Flushes what is in memory if that may give room back: its logs, or what its deletions delete. False when not.
    fn flush_for_room(&self, shared: &Shared, writer: &mut MutexGuard<'_, Writer>, room: &Room) -> Result<bool, Error> {
        if writer.log_broken || writer.flush_owed {
            return self.replace_broken_log(shared, writer).map(|()| true);
        }
        let deletions = writer.memtable.deletions();
        let deleted_bytes = || {
            let version = shared.read_state.load().version.clone();
            reclaim::deleted_bytes(&version, deletions, shared.snapshots.oldest())
        };
        let is_much =
            room.state() == RoomState::Full || writer.memtable.memory_bytes() as u64 >= shared.room_look_bytes;
        let is_little = || deletions == 0 || deleted_bytes() < room.worth_bytes();
        if writer.memtable.is_empty() || (!is_much && is_little()) {
            return Ok(false);
        }
        self.switch_memtable(shared, writer)?;
        self.wait_for_flush(shared, 1)?;
        Ok(true)
    }
}

/// Waits for the next flush or compaction to end, or for a step of one; false when none runs nor is due, or when it ran
/// out of room. A flush that does while a compaction runs does not count: its room may come back. Ends early when
/// `is_asked` to, which is looked at whenever a job ends and whenever the condition `done` is told of.
///
/// Errors: what else it failed with.
fn wait_for_job(shared: &Shared, is_asked: impl Fn() -> bool) -> Result<bool, Error> {
    let mut core = shared.core.lock();
    let before = (core.flush_attempts, core.compaction_attempts);
    core.retries += 1;
    shared.work.notify_all();
    let _waiting = shared.throttle.wait();
    let lacks_room = |error: &Option<Error>| error.as_ref().is_some_and(|error| error.kind() == ErrorKind::NoSpace);
    let flush_counts = |core: &Core| {
        core.flush_attempts != before.0 && (core.running_compactions == 0 || !lacks_room(&core.flush_error))
    };
    let has_ended = |core: &Core| core.compaction_attempts != before.1 || flush_counts(core);
    loop {
        if has_ended(&core) {
            let of_flush = core.flush_error.as_ref().filter(|_| flush_counts(&core));
            let of_compaction = core.compaction_error.as_ref().filter(|_| core.compaction_attempts != before.1);
            return match of_flush.or(of_compaction) {
                None => Ok(true),
                Some(error) if error.kind() == ErrorKind::NoSpace => Ok(false),
                Some(error) => Err(error.clone()),
            };
        }
        let (relocked, is_idle) = background::is_idle(shared, core);
        core = relocked;
        if core.closing {
            return Err(Error::Closed);
        }
        if let Some(error) = &core.halted {
            return Err(error.clone());
        }
        if is_idle {
            return Ok(false);
        }
        if is_asked() {
            return Ok(true);
        }
        if !has_ended(&core) {
            shared.done.wait(&mut core);
        }
    }
}

fn refusal(shared: &Shared, room: &Room, has_puts: bool) -> Error {
    Error::OutOfRoom {
        store: shared.media.files.name().to_owned(),
        available_bytes: room.available_bytes,
        left_bytes: if has_puts { room.left_by_puts_bytes() } else { room.left_by_deletes_bytes() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: u64 = 1 << 20;

    fn bands(available: u64, owed: u64) -> Room {
        Room {
            total_bytes: 100 * BAND,
            available_bytes: available * BAND,
            reserve_bytes: 2 * BAND,
            claimed_bytes: 0,
            table_bytes: BAND,
            is_in_tables: true,
            cut_bytes: BAND,
            beside_bytes: 0,
            owed_bytes: owed * BAND,
            block_bytes: 1,
            growth_bytes: 0,
            asked_bytes: None,
        }
    }

    #[test]
    fn puts_stop_first_then_deletes_and_compactions_have_the_rest() {
        use RoomState::{DeletesOnly, Full, Open};
        let states: Vec<RoomState> = (0..7).rev().map(|available| bands(available, 1).state()).collect();
        assert_eq!(states, [Open, Open, DeletesOnly, DeletesOnly, DeletesOnly, Full, Full]);
        let filled_bytes = BAND - BAND / 16 - (5 << 10);
        assert_eq!(bands(3, 1).of_compactions_bytes(), 3 * filled_bytes);
        assert_eq!(bands(0, 1).of_compactions_bytes(), 2 * filled_bytes);
        assert!(Open.takes(true) && Open.takes(false) && !DeletesOnly.takes(true) && DeletesOnly.takes(false));
        assert!(!Full.takes(true) && !Full.takes(false));
    }

    /// Where the store has no reserve for compactions.
    #[test]
    fn nobody_counts_on_what_a_running_compaction_was_given() {
        use RoomState::{DeletesOnly, Full, Open};
        let room = |claimed_bytes: u64| Room {
            is_in_tables: false,
            total_bytes: 64 << 20,
            available_bytes: 4 << 20,
            reserve_bytes: 0,
            table_bytes: 128 << 10,
            cut_bytes: 128 << 10,
            claimed_bytes,
            ..bands(0, 0)
        };
        let states = [0, 3 << 20, (3 << 20) + 1, 7 << 19, (7 << 19) + 1].map(|bytes| room(bytes).state());
        assert_eq!(states, [Open, Open, DeletesOnly, DeletesOnly, Full]);
        assert_eq!(room(3 << 20).unclaimed().state(), Open);
        assert_eq!([0, 1 << 20].map(|bytes| room(bytes).of_compactions_bytes()), [15 << 18, 11 << 18]);
        let bands = |claimed_bytes: u64| Room { claimed_bytes, ..bands(4, 0) };
        assert_eq!(bands(8 * BAND).state(), Open);
        assert!(bands(BAND).of_compactions_bytes() < bands(0).of_compactions_bytes());
    }

    #[test]
    fn little_is_left_of_a_small_medium_and_as_much_as_was_asked() {
        let left = |room: Room| (room.left_by_puts_bytes() / BAND, room.left_by_deletes_bytes() / BAND);
        assert_eq!(left(bands(0, 0)), (4, 1));
        assert_eq!(left(Room { asked_bytes: Some(0), ..bands(0, 2) }), (2, 2));
        assert_eq!(left(Room { asked_bytes: Some(6 * BAND), ..bands(0, 0) }), (6, 2));
        let bytes = Room { total_bytes: 96, table_bytes: 1 << 40, is_in_tables: false, ..bands(0, 0) };
        assert_eq!((bytes.left_by_puts_bytes(), bytes.left_by_deletes_bytes()), (24, 12));
        let small =
            Room { table_bytes: 1 << 10, total_bytes: 1 << 30, cut_bytes: 1 << 10, beside_bytes: 3 << 10, ..bytes };
        assert_eq!((small.left_by_puts_bytes(), small.left_by_deletes_bytes()), (2 << 20, 1 << 20));
        let large = Room { total_bytes: 128 << 20, table_bytes: BAND, ..small };
        assert_eq!((large.left_by_puts_bytes(), large.left_by_deletes_bytes()), (8 * BAND, 4 * BAND));
        let room = Room { available_bytes: 16 << 20, reserve_bytes: 0, ..large };
        assert_eq!(room.of_compactions_bytes(), (15 << 20) / 4, "of four blocks one is what was cut for");
        let all = Room { available_bytes: u64::MAX, ..bytes };
        assert!(all.of_compactions_bytes() > 1 << 62 && all.state() == RoomState::Open);
    }
}
