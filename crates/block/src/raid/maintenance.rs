//! Work that an array does on its own account: resync after a power cut, rebuild of a replaced member, scrub.

use super::device::{MemberState, Shared, Wanted};
use super::geometry::{Column, RaidLevel};
use super::member::IoKind;
use super::parity;
use super::plan::{ColumnIo, Damage, ReadPlan, TooManyLost, plan_read};
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
    /// Stripes with a column that could not be read.
    pub unreadable_stripes: u64,
}

/// What a comparison of a stripe found.
enum Comparison {
    /// Columns that are wrong, or that could not be read, with what they should be.
    Wrong(Vec<(Column, AlignedBuffer)>),
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
                // A member that was replaced is tried again.
                slots.clear();
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
        let first = region * self.region_stripes;
        for stripe in first..(first + self.region_stripes).min(self.geometry.stripes) {
            if self.is_closed() {
                return Ok(false);
            }
            let _locked = self.locks.lock(BTreeSet::from([stripe]));
            match self.compare(stripe, &context()) {
                Comparison::Wrong(columns) => {
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
            self.intents.lock().resynced(region);
        }
        Ok(is_whole)
    }

    /// Writes whole chunks of a stripe.
    fn write_whole(&self, stripe: u64, columns: Vec<(Column, AlignedBuffer)>) -> Result<(), MediaError> {
        let range = 0..self.geometry.chunk_bytes;
        let writes = columns.into_iter().map(|(column, bytes)| {
            let kind = IoKind::Write { bytes: Arc::new(bytes), is_durable: false };
            (stripe, ColumnIo { column, range: range.clone() }, kind)
        });
        self.write_columns(writes.collect(), &context()).into_iter().collect::<Result<Vec<()>, _>>()?;
        self.settle()
    }

    /// Compares the redundancy of a stripe, which is locked, with its data.
    fn compare(&self, stripe: u64, context: &IoContext) -> Comparison {
        let range = 0..self.geometry.chunk_bytes;
        let is_mirror = self.geometry.level == RaidLevel::Raid1;
        let mut wanted = [Wanted { stripe, damage: self.damage(stripe), error: None }];
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
            let has_data = match is_mirror {
                true => !readable.is_empty(),
                false => columns()
                    .all(|column| matches!(column, Column::P | Column::Q) || !damage.unreadable.contains(column)),
            };
            if has_data { Ok(readable) } else { Err(TooManyLost) }
        };
        let gathered = self.gather(&mut wanted, plan, |reads: &Vec<ColumnIo>| reads, context);
        let [Wanted { error, .. }] = wanted;
        let Some(Some(gathered)) = gathered.into_iter().next() else {
            let lost = || MediaError::Unreadable {
                device: self.name.clone(),
                offset_bytes: stripe * self.geometry.stripe_bytes(),
            };
            return Comparison::Unreadable(error.unwrap_or_else(lost));
        };
        let found = gathered.found(&gathered.plan);
        let data: Vec<&[u8]> = found
            .iter()
            .filter(|(read, _)| !matches!(read.column, Column::P | Column::Q))
            .map(|(_, bytes)| *bytes)
            .collect();
        let expected = |column: Column| {
            let mut bytes = AlignedBuffer::new(self.geometry.chunk_bytes as usize, self.alignment_bytes);
            match column {
                Column::P => parity::compute_p(data.iter().copied(), &mut bytes),
                Column::Q => parity::compute_q(data.iter().copied(), &mut bytes),
                // The copy that reads were answered from counts.
                _ => bytes.copy_from_slice(data[(stripe % data.len() as u64) as usize]),
            }
            bytes
        };
        let redundant = columns().filter(|column| !matches!(column, Column::Data(_)));
        let wrong = redundant.filter_map(|column| {
            let expected = expected(column);
            let is_right = found.iter().any(|(read, bytes)| read.column == column && **bytes == expected[..]);
            (!is_right).then_some((column, expected))
        });
        Comparison::Wrong(wrong.collect())
    }

    /// Compares the redundancy of all stripes with their data. Writes nothing.
    pub(super) fn scrub(&self, context: &IoContext) -> ScrubReport {
        let mut report = ScrubReport::default();
        for stripe in 0..self.geometry.stripes {
            let locked = self.locks.lock(BTreeSet::from([stripe]));
            let compared = self.compare(stripe, context);
            drop(locked);
            match compared {
                Comparison::Wrong(columns) => {
                    report.stripes += 1;
                    if !columns.is_empty() {
                        report.mismatched_stripes += 1;
                        if report.mismatched.len() < REPORTED_STRIPES_MAX {
                            report.mismatched.push(stripe);
                        }
                    }
                }
                Comparison::NotPossible => report.unchecked_stripes += 1,
                Comparison::Unreadable(_) => report.unreadable_stripes += 1,
            }
        }
        report
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
        let mut wanted = [Wanted { stripe, damage: self.damage(stripe), error: None }];
        let plan = |_: usize, damage: Damage| plan_read(geometry, stripe, &range, damage);
        let gathered = self.gather(&mut wanted, plan, |plan: &ReadPlan| &plan.reads, &context());
        let found = gathered.into_iter().next().flatten().and_then(|gathered| {
            stripe::answer(geometry, &range, &gathered.plan, &gathered.found(&gathered.plan.reads)).ok()
        });
        let [wanted] = wanted;
        let data = found.ok_or_else(|| self.lost(stripe, &wanted))?;
        let mut bytes = AlignedBuffer::new(chunk as usize, self.alignment_bytes);
        match column {
            Column::P => parity::compute_p(data.chunks(chunk as usize), &mut bytes),
            Column::Q => parity::compute_q(data.chunks(chunk as usize), &mut bytes),
            Column::Data(_) | Column::Copy(_) => bytes.copy_from_slice(&data),
        }
        self.check_running()?;
        self.write_whole(stripe, vec![(column, bytes)])
    }

    /// Records that a rebuilt member has everything.
    fn take_into_use(&self, slot: usize) -> Result<(), MediaError> {
        self.sync(&context())?;
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
        self.lose(failed)
    }
}
