//! Work that an array does on its own account: resync after a power cut, rebuild of a replaced member, scrub.

use super::device::{Incident, MemberState, Shared, Wanted};
use super::geometry::{Column, RaidLevel};
use super::member::{IoKind, MemberIo};
use super::parity;
use super::plan::{ColumnIo, Damage, ReadPlan, Recovery, TooManyLost, plan_read};
use super::stripe;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_media::{AlignedBuffer, IoCause, IoClass, IoContext, MediaError};

/// Stripes whose numbers a scrub reports, at most.
const REPORTED_STRIPES_MAX: usize = 16;

/// Outcome of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Stripes that were read and compared.
    pub stripes: u64,
    /// Stripes whose redundancy does not fit their data.
    pub mismatched_stripes: u64,
    /// The first of these.
    pub mismatched: Vec<u64>,
    /// Stripes that have no redundancy left to compare.
    pub unchecked_stripes: u64,
    /// Stripes with data that could not be read, or did not fit their protection information, and that redundancy does not give.
    pub unreadable_stripes: u64,
    /// Stripes of those whose redundancy did not fit, or with a column that could not be read, that were repaired.
    pub repaired_stripes: u64,
}

/// Expected content of a column.
struct Expected {
    column: Column,
    bytes: AlignedBuffer,
    /// Those of the copy that it is made from.
    tuples: Option<Vec<u8>>,
}

/// What a comparison of a stripe found.
enum Comparison {
    /// Columns that are wrong, or that could not be read, and why not.
    Wrong(Vec<Expected>, Vec<(Column, MediaError)>),
    /// A data column is lost, or no redundancy is left.
    NotPossible,
    Unreadable(MediaError),
}

enum Task {
    Resync(u64),
    Rebuild(usize),
}

fn context() -> IoContext {
    IoContext { cause: IoCause::Parity, ..IoContext::of(IoClass::Maintenance) }
}

impl Shared {
    /// Does what is due until the last handle goes.
    pub(super) fn maintain(&self) {
        // What failed is tried again when the array is opened again.
        let (mut regions, mut slots) = (BTreeSet::new(), BTreeSet::new());
        loop {
            let task = self.next_task(&regions, &slots);
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            let Some(task) = task else {
                state.is_maintaining = false;
                self.work.notify_all();
                while !state.is_closed && !state.is_maintaining {
                    self.work.wait(&mut state);
                }
                // A member that was replaced, or a region whose write failed, is tried again.
                slots.clear();
                regions.clear();
                continue;
            };
            drop(state);
            match task {
                Task::Resync(region) => {
                    if !matches!(self.resync_region(region), Ok(true)) {
                        regions.insert(region);
                    }
                }
                Task::Rebuild(slot) => match self.rebuild(slot) {
                    // What could not be compared without the member can now.
                    Ok(()) => regions.clear(),
                    Err(_) => _ = slots.insert(slot),
                },
            }
        }
    }

    fn next_task(&self, failed_regions: &BTreeSet<u64>, failed_slots: &BTreeSet<usize>) -> Option<Task> {
        if self.check_running().is_err() {
            return None;
        }
        let region = self.intents.lock().due().find(|region| !failed_regions.contains(region));
        let state = self.state.lock();
        let is_rebuilding = |slot: &usize| matches!(state.slots[*slot].state, MemberState::Rebuilding { .. });
        let mut slots = (0..state.slots.len()).filter(is_rebuilding);
        region.map(Task::Resync).or_else(|| slots.find(|slot| !failed_slots.contains(slot)).map(Task::Rebuild))
    }

    fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Makes the redundancy of a region fit its data, durably. Returns false, and leaves the mark, where that was not
    /// possible for all stripes: a member is missing, or the array is being closed.
    fn resync_region(&self, region: u64) -> Result<bool, MediaError> {
        let mut is_whole = true;
        let failures = self.intents.lock().failures(region);
        let first = region * self.region_stripes;
        for stripe in first..(first + self.region_stripes).min(self.geometry.stripes) {
            if self.is_closed() {
                return Ok(false);
            }
            let _locked = self.locks.lock(BTreeSet::from([stripe]));
            // Redundancy that may be wrong gives no data.
            match self.compare(stripe, false, &context()) {
                Comparison::Wrong(columns, _) => {
                    let is_wrong = !columns.is_empty();
                    self.write_whole(stripe, columns)?;
                    let mut state = self.state.lock();
                    state.statistics.resynced_stripes += 1;
                    state.statistics.repaired_stripes += u64::from(is_wrong);
                }
                Comparison::NotPossible => is_whole = false,
                Comparison::Unreadable(error) => return Err(error),
            }
        }
        self.sync(&context())?;
        if is_whole {
            self.intents.lock().resynced(region, failures);
        }
        Ok(is_whole)
    }

    /// Writes whole chunks of a stripe.
    fn write_whole(&self, stripe: u64, columns: Vec<Expected>) -> Result<(), MediaError> {
        let write = |Expected { column, bytes, tuples }: Expected| {
            let write = ColumnIo { column, range: 0..self.geometry.chunk_bytes };
            match tuples {
                None => self.generated(stripe, write, bytes),
                Some(tuples) => {
                    let (bytes, tuples) = (Arc::new(bytes), Some(Arc::new(tuples)));
                    (stripe, write, IoKind::Write { bytes, tuples, is_durable: false })
                }
            }
        };
        let written = self.write_columns(columns.into_iter().map(write).collect(), false, &|_| true, &context());
        written.outcomes.into_iter().collect::<Result<Vec<()>, _>>()?;
        self.settle()
    }

    /// Compares the redundancy of a stripe, which is locked, with its data; `recovers` computes data that cannot be read.
    fn compare(&self, stripe: u64, recovers: bool, context: &IoContext) -> Comparison {
        let range = 0..self.geometry.chunk_bytes;
        let is_mirror = self.geometry.level == RaidLevel::Raid1;
        let mut wanted = [Wanted::new(stripe, self.damage(stripe), Vec::new())];
        let absent = wanted[0].damage.absent;
        let columns = || self.geometry.columns().filter(|column| !absent.contains(*column));
        let is_lost =
            self.geometry.columns().any(|column| matches!(column, Column::Data(_)) && absent.contains(column));
        let redundant = columns().filter(|column| !matches!(column, Column::Data(_))).count();
        if is_lost || redundant < if is_mirror { 2 } else { 1 } {
            return Comparison::NotPossible;
        }
        let plan = |_: usize, damage: Damage| {
            let readable: Vec<ColumnIo> = columns()
                .filter(|column| !damage.unreadable.contains(*column))
                .map(|column| ColumnIo { column, range: range.clone() })
                .collect();
            let is_unreadable = |column: &Column| damage.unreadable.contains(*column);
            let lost = columns().filter(|column| matches!(column, Column::Data(_))).filter(is_unreadable).count();
            let parity = readable.iter().filter(|read| matches!(read.column, Column::P | Column::Q)).count();
            let has_data = match is_mirror {
                true => !readable.is_empty(),
                false => lost <= if recovers { parity } else { 0 },
            };
            if has_data { Ok(readable) } else { Err(TooManyLost) }
        };
        let mut verify = |_: usize, read: &ColumnIo, io: &mut MemberIo| self.verify_found(stripe, read, io);
        let gathered = self.gather(&mut wanted, plan, |reads: &Vec<ColumnIo>| reads, &mut verify, context);
        let [wanted] = wanted;
        let Some(Some(gathered)) = gathered.into_iter().next() else {
            return Comparison::Unreadable(self.lost(stripe, &wanted));
        };
        let found = gathered.found(&gathered.plan);
        let is_lost = |place: &usize| wanted.damage.unreadable.contains(Column::Data(*place));
        let lost = if is_mirror { Vec::new() } else { (0..self.geometry.data_columns()).filter(is_lost).collect() };
        let recovery = Recovery { hull: range.clone(), lost };
        let recovered = match recovery.lost.is_empty() {
            true => Ok(Vec::new()),
            false => stripe::recover(&self.geometry, &recovery, &found),
        };
        let Ok(recovered) = recovered else { return Comparison::Unreadable(self.lost(stripe, &wanted)) };
        let of_column = |column: Column| found.iter().position(|(read, _)| read.column == column);
        let places = 0..self.geometry.data_columns();
        // The copy that reads are answered from counts.
        let copy = (stripe % found.len().max(1) as u64) as usize;
        let data: Vec<&[u8]> = match is_mirror {
            true => vec![found[copy].1],
            false => places
                .filter_map(|place| {
                    let recovered = recovered.iter().find(|(lost, _)| *lost == place).map(|(_, bytes)| &bytes[..]);
                    recovered.or_else(|| of_column(Column::Data(place)).map(|read| found[read].1))
                })
                .collect(),
        };
        let expected = |column: Column| {
            let mut bytes = AlignedBuffer::new(self.geometry.chunk_bytes as usize, self.alignment_bytes);
            match column {
                Column::P => parity::compute_p(data.iter().copied(), &mut bytes),
                Column::Q => parity::compute_q(data.iter().copied(), &mut bytes),
                Column::Copy(_) => bytes.copy_from_slice(data[0]),
                Column::Data(place) => bytes.copy_from_slice(data[place]),
            }
            let tuples = gathered.ios().nth(copy).filter(|_| is_mirror).and_then(MemberIo::tuples);
            Expected { column, bytes, tuples: tuples.map(<[u8]>::to_vec) }
        };
        let mut wrong: Vec<Expected> = recovered.iter().map(|(place, _)| expected(Column::Data(*place))).collect();
        let redundant = columns().filter(|column| !matches!(column, Column::Data(_)));
        wrong.extend(redundant.filter_map(|column| {
            let expected = expected(column);
            let is_right = of_column(column).is_some_and(|read| *found[read].1 == expected.bytes[..]);
            (!is_right).then_some(expected)
        }));
        Comparison::Wrong(wrong, wanted.failed)
    }

    /// Compares the redundancy of all stripes with their data, and makes it right if `repairs`.
    pub(super) fn scrub(&self, repairs: bool, context: &IoContext) -> Result<ScrubReport, MediaError> {
        let mut report = ScrubReport::default();
        // Nothing is to be answered from a cache of tuples.
        let context = &IoContext { class: IoClass::Maintenance, ..*context };
        if repairs {
            self.check_writable()?;
        }
        for stripe in 0..self.geometry.stripes {
            let _locked = self.locks.lock(BTreeSet::from([stripe]));
            let is_due = self.intents.lock().is_due(stripe / self.region_stripes);
            let compared = self.compare(stripe, !is_due, context);
            self.state.lock().statistics.scrubbed_stripes += 1;
            match compared {
                Comparison::Wrong(columns, failed) => {
                    report.stripes += 1;
                    if columns.is_empty() {
                        continue;
                    }
                    report.mismatched_stripes += 1;
                    if report.mismatched.len() < REPORTED_STRIPES_MAX {
                        report.mismatched.push(stripe);
                    }
                    if repairs {
                        self.write_whole(stripe, columns)?;
                        report.repaired_stripes += 1;
                        for (column, error) in failed {
                            let slot = self.geometry.member_of(stripe, column);
                            self.record_incident(Incident { slot, error, is_repaired: true });
                        }
                    }
                }
                Comparison::NotPossible => report.unchecked_stripes += 1,
                Comparison::Unreadable(_) => report.unreadable_stripes += 1,
            }
        }
        if repairs {
            self.sync(context)?;
        }
        Ok(report)
    }

    /// Computes the part that a replaced member has of each stripe, and takes the member into use.
    fn rebuild(&self, slot: usize) -> Result<(), MediaError> {
        loop {
            let stripe = {
                let state = self.state.lock();
                match state.slots[slot].state {
                    _ if state.is_closed => return Ok(()),
                    MemberState::Rebuilding { done_stripes } => done_stripes,
                    _ => return Ok(()),
                }
            };
            if stripe >= self.geometry.stripes {
                return self.take_into_use(slot);
            }
            let _locked = self.locks.lock(BTreeSet::from([stripe]));
            self.rebuild_stripe(slot, stripe)?;
            let mut state = self.state.lock();
            if let MemberState::Rebuilding { done_stripes } = &mut state.slots[slot].state {
                *done_stripes = stripe + 1;
                state.statistics.rebuilt_stripes += 1;
            }
        }
    }

    fn rebuild_stripe(&self, slot: usize, stripe: u64) -> Result<(), MediaError> {
        let geometry = &self.geometry;
        let Some(column) = geometry.columns().find(|column| geometry.member_of(stripe, *column) == slot) else {
            return Ok(());
        };
        let chunk = geometry.chunk_bytes;
        let range = match column {
            Column::Data(place) => place as u64 * chunk..(place as u64 + 1) * chunk,
            Column::Copy(_) => 0..chunk,
            Column::P | Column::Q => 0..geometry.stripe_bytes(),
        };
        let mut wanted = [Wanted::new(stripe, self.damage(stripe), Vec::new())];
        let plan = |_: usize, damage: Damage| plan_read(geometry, stripe, &range, damage);
        let mut verify = |_: usize, read: &ColumnIo, io: &mut MemberIo| self.verify_found(stripe, read, io);
        let gathered = self.gather(&mut wanted, plan, |plan: &ReadPlan| &plan.reads, &mut verify, &context());
        let [wanted] = wanted;
        let gathered = gathered.into_iter().next().flatten().ok_or_else(|| self.lost(stripe, &wanted))?;
        let found = gathered.found(&gathered.plan.reads);
        let data = stripe::answer(geometry, &range, &gathered.plan, &found).map_err(|_| self.lost(stripe, &wanted))?;
        let mut bytes = AlignedBuffer::new(chunk as usize, self.alignment_bytes);
        let mut tuples = None;
        match column {
            Column::P => parity::compute_p(data.chunks(chunk as usize), &mut bytes),
            Column::Q => parity::compute_q(data.chunks(chunk as usize), &mut bytes),
            Column::Data(_) => bytes.copy_from_slice(&data),
            Column::Copy(_) => {
                bytes.copy_from_slice(&data);
                tuples = gathered.ios().next().and_then(MemberIo::tuples).map(<[u8]>::to_vec);
            }
        }
        self.check_running()?;
        self.write_whole(stripe, vec![Expected { column, bytes, tuples }])
    }

    /// Records that a rebuilt member has everything.
    fn take_into_use(&self, slot: usize) -> Result<(), MediaError> {
        self.sync(&context())?;
        if let Some(journal) = &self.journal {
            self.with_surroundings(&context(), |array| journal.turn_over(array, &context()))?;
        }
        let mut record = self.record.lock();
        {
            let mut state = self.state.lock();
            if !matches!(state.slots[slot].state, MemberState::Rebuilding { .. }) {
                return Ok(());
            }
            state.slots[slot].state = MemberState::InUse;
            state.generation += 1;
        }
        let failed = self.write_record(&mut record);
        drop(record);
        if let Some(journal) = &self.journal {
            // As many may be lost again.
            journal.members_changed();
        }
        self.lose(failed)
    }
}
