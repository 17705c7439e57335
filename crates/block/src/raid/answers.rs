//! Other answers to a read whose reader found the first one wrong ([`Attempt`]).
//!
//! Without tuples an array cannot tell which member is wrong: the reader can, with a checksum of its own. So each answer assumes
//! that some columns are wrong and computes them from the others, and the array writes them only when the reader has
//! accepted that answer. Until then it keeps the assumption, not the bytes. Costs nothing where no reader asks again.

use super::device::{Gathered, Incident, Piece, Shared, Wanted};
use super::geometry::{ArrayGeometry, Column, RaidLevel, StripePart};
use super::member::{IoKind, MemberIo};
use super::parity;
use super::plan::{ColumnIo, ColumnSet, Damage, ReadPlan, TooManyLost, plan_read};
use super::protection::Tuples;
use super::stripe;
use super::writing::ColumnWrite;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use varve_media::{AlignedBuffer, Attempt, IoCause, IoContext, MediaError, Operation, Request};

/// Answers whose acceptance is waited for, at most. A reader accepts an answer, or asks for the next one, at once.
const PENDING_MAX: usize = 1024;
/// Assumptions about one part of a stripe, at most.
const SUSPECTS_MAX: usize = 128;

/// An answer that was given and may be accepted.
struct PendingAnswer {
    stripe: u64,
    range: Range<u64>,
    suspects: ColumnSet,
    /// Checksum of the answer.
    crc32c: u32,
}

/// The newest answers that were computed, the newest last.
#[derive(Default)]
pub(super) struct PendingAnswers(VecDeque<PendingAnswer>);

impl PendingAnswers {
    fn keep(&mut self, answer: PendingAnswer) {
        self.take(answer.stripe, &answer.range);
        if self.0.len() == PENDING_MAX {
            self.0.pop_front();
        }
        self.0.push_back(answer);
    }

    fn take(&mut self, stripe: u64, range: &Range<u64>) -> Option<PendingAnswer> {
        let place = self.0.iter().position(|answer| answer.stripe == stripe && answer.range == *range)?;
        self.0.remove(place)
    }
}

/// The columns that may be wrong if a read of `range` was answered wrongly, as far as the others give an answer, the likeliest first:
/// one that was read, one and P, one and any other. Pure.
fn suspects(geometry: &ArrayGeometry, stripe: u64, range: &Range<u64>, damage: Damage) -> Vec<ColumnSet> {
    let is_there = |column: &Column| !damage.absent.contains(*column);
    let set = |columns: &[Column]| {
        let mut set = ColumnSet::default();
        columns.iter().for_each(|column| set.insert(*column));
        set
    };
    if geometry.level == RaidLevel::Raid1 {
        let copies: Vec<Column> = geometry.columns().filter(is_there).collect();
        let first = (stripe % copies.len().max(1) as u64) as usize;
        let others = |right: usize| {
            let all = copies.iter().copied();
            set(&all.enumerate().filter(|(place, _)| *place != right).map(|(_, copy)| copy).collect::<Vec<_>>())
        };
        return (1..copies.len()).map(|next| others((first + next) % copies.len())).collect();
    }
    let data: Vec<Column> = (0..geometry.data_columns()).map(Column::Data).filter(is_there).collect();
    let read = geometry.columns_of(range).into_iter().map(|(place, _)| Column::Data(place));
    let (read, lost): (Vec<Column>, Vec<Column>) = read.partition(is_there);
    let mut all: Vec<ColumnSet> = read.iter().map(|&column| set(&[column])).collect();
    if !lost.is_empty() {
        // Each column that a lost one is computed from.
        all.extend(data.iter().filter(|column| !read.contains(*column)).map(|&column| set(&[column])));
        all.push(set(&[Column::P]));
    }
    all.extend(read.iter().map(|&column| set(&[column, Column::P])));
    for &column in &read {
        for &other in data.iter().filter(|other| **other != column) {
            let pair = set(&[column, other]);
            if !all.contains(&pair) {
                all.push(pair);
            }
        }
    }
    let is_possible =
        |set: &ColumnSet| plan_read(geometry, stripe, range, Damage { unreadable: *set, ..damage }).is_ok();
    all.retain(is_possible);
    all.truncate(SUSPECTS_MAX);
    all
}

/// A part of a stripe, computed without some of its columns.
struct Answer {
    wanted: Wanted,
    gathered: Gathered<ReadPlan>,
    bytes: Vec<u8>,
}

impl Shared {
    /// Answers reads whose reader asks again, or accepts the last answer. Parts that have no other answer are read as
    /// usual: members may be arrays too.
    pub(super) fn answer_again(
        &self,
        pieces: Vec<Piece>,
        requests: &mut [Request<'_>],
        tuples: &mut Tuples,
        context: &IoContext,
    ) {
        for mut piece in pieces {
            let locked = self.locks.lock(BTreeSet::from([piece.part.stripe]));
            let (request, own) = (&mut requests[piece.request], &mut tuples[piece.request]);
            let answered = match context.attempt {
                Attempt::First => Err(Attempt::First),
                Attempt::Again(number) => self.answer_other(&piece, number, request, own, context),
                Attempt::Accepted => self.accept(&piece, request, own, context).ok_or(Attempt::Accepted),
            };
            drop(locked);
            match answered {
                Ok(outcome) => piece.outcome = outcome,
                Err(attempt) => {
                    let context = IoContext { attempt, ..*context };
                    self.read_round(std::slice::from_mut(&mut piece), requests, tuples, &context);
                }
            }
            let request = &mut requests[piece.request];
            if request.outcome.is_ok() {
                request.outcome = piece.outcome;
            }
        }
    }

    /// Reads a part of a locked stripe without some of its columns.
    fn answer_without(&self, part: &StripePart, suspects: ColumnSet, context: &IoContext) -> Option<Answer> {
        let StripePart { stripe, range } = part;
        let damage = Damage { unreadable: suspects, ..self.damage(*stripe) };
        let context = IoContext { cause: IoCause::Parity, attempt: Attempt::First, ..*context };
        let mut wanted = [Wanted::new(*stripe, damage, Vec::new())];
        let plan = |_: usize, damage: Damage| plan_read(&self.geometry, *stripe, range, damage);
        let mut verify = |_: usize, read: &ColumnIo, io: &mut MemberIo| self.verify_found(*stripe, read, io);
        let gathered = self.gather(&mut wanted, plan, |plan: &ReadPlan| &plan.reads, &mut verify, &context);
        let [wanted] = wanted;
        let gathered = gathered.into_iter().next().flatten()?;
        let found = gathered.found(&gathered.plan.reads);
        let bytes = stripe::answer(&self.geometry, range, &gathered.plan, &found).ok()?;
        Some(Answer { wanted, gathered, bytes })
    }

    /// Answers with the other answer of this number, if there are as many; else returns the attempt that is left for members.
    fn answer_other(
        &self,
        piece: &Piece,
        number: u8,
        request: &mut Request<'_>,
        own: &mut [u8],
        context: &IoContext,
    ) -> Result<Result<(), MediaError>, Attempt> {
        let (part, number) = (&piece.part, number.max(1));
        // Redundancy of a stripe whose write was cut short says nothing.
        let is_due = self.intents.lock().is_due(part.stripe / self.region_stripes);
        let Some(first) = self.answer_without(part, ColumnSet::default(), context).filter(|_| !is_due) else {
            return Err(Attempt::Again(number));
        };
        let mut known = vec![first.bytes];
        for suspects in suspects(&self.geometry, part.stripe, &part.range, self.damage(part.stripe)) {
            let Some(answer) = self.answer_without(part, suspects, context) else { continue };
            if known.contains(&answer.bytes) {
                continue;
            }
            if known.len() == usize::from(number) {
                let crc32c = crc32c::crc32c(&answer.bytes);
                let delivered = self.answer_from_redundancy(piece, &answer.gathered, request, own);
                let delivered = delivered.ok_or(Attempt::Again(number))?;
                let pending = PendingAnswer { stripe: part.stripe, range: part.range.clone(), suspects, crc32c };
                let mut state = self.state.lock();
                state.pending_answers.keep(pending);
                state.statistics.other_answers += 1;
                return Ok(delivered);
            }
            known.push(answer.bytes);
        }
        Err(Attempt::Again(number - (known.len() - 1).min(usize::from(number) - 1) as u8))
    }

    /// Writes the columns that the accepted answer took for wrong, as far as they differ, and answers so again. `None` if
    /// the last answer was the usual one.
    fn accept(
        &self,
        piece: &Piece,
        request: &mut Request<'_>,
        own: &mut [u8],
        context: &IoContext,
    ) -> Option<Result<(), MediaError>> {
        let StripePart { stripe, range } = &piece.part;
        let pending = self.state.lock().pending_answers.take(*stripe, range)?;
        let answer = self.answer_without(&piece.part, pending.suspects, context)?;
        if crc32c::crc32c(&answer.bytes) != pending.crc32c {
            return None;
        }
        let delivered = self.answer_from_redundancy(piece, &answer.gathered, request, own)?;
        if !self.is_read_only && self.check_running().is_ok() {
            self.rewrite_suspects(&answer, pending.suspects, context);
        }
        Some(delivered)
    }

    /// Writes the columns of a locked stripe that were taken for wrong and are.
    fn rewrite_suspects(&self, answer: &Answer, suspects: ColumnSet, context: &IoContext) {
        let context = IoContext { cause: IoCause::Parity, attempt: Attempt::First, ..*context };
        let stripe = answer.wanted.stripe;
        let is_wrong = |write: &ColumnWrite| {
            let (_, write, kind) = write;
            let IoKind::Write { bytes, .. } = kind else { return false };
            let found = self.read_column(stripe, write, &context);
            found.is_none_or(|found| found[..] != bytes[..])
        };
        let writes = self.expected_columns(answer, suspects);
        let writes: Vec<ColumnWrite> = writes.unwrap_or_default().into_iter().filter(is_wrong).collect();
        let columns: Vec<ColumnIo> = writes.iter().map(|(_, write, _)| write.clone()).collect();
        let outcomes = self.write_columns(writes, false, &|_| true, &context).outcomes;
        for (write, outcome) in columns.iter().zip(outcomes) {
            let slot = self.geometry.member_of(stripe, write.column);
            let member = self.members()[slot].as_ref().map(|member| member.device.block.name().to_owned());
            let reason = std::io::Error::other("a reader's checksum does not fit what was read");
            let name = member.unwrap_or_else(|| self.name.clone());
            let error = MediaError::io(&name, Operation::Read, self.offset_of(stripe, write), reason);
            self.state.lock().statistics.accepted_answers += 1;
            self.record_incident(Incident { slot, error, is_repaired: outcome.is_ok() });
        }
    }

    /// Writes of the columns that were taken for wrong, as they are if the answer is right.
    fn expected_columns(&self, answer: &Answer, suspects: ColumnSet) -> Option<Vec<ColumnWrite>> {
        let (stripe, gathered) = (answer.wanted.stripe, &answer.gathered);
        let is_suspect = |column: &Column| suspects.contains(*column) && !answer.wanted.damage.absent.contains(*column);
        let reads = &gathered.plan.reads;
        if self.geometry.level == RaidLevel::Raid1 {
            let (read, io) = (reads.first()?, gathered.ios().next()?);
            let write = |column: Column| {
                let bytes = Arc::new(AlignedBuffer::copy_of(io.bytes(), self.alignment_bytes));
                let tuples = io.tuples().map(|tuples| Arc::new(tuples.to_vec()));
                let kind = IoKind::Write { bytes, tuples, is_durable: false };
                (stripe, ColumnIo { column, range: read.range.clone() }, kind)
            };
            return Some(self.geometry.columns().filter(is_suspect).map(write).collect());
        }
        let found = gathered.found(reads);
        let recovery = gathered.plan.recovery.as_ref()?;
        let hull = &recovery.hull;
        let recovered = stripe::recover(&self.geometry, recovery, &found).ok()?;
        let of_column = |place: usize| {
            let recovered = recovered.iter().find(|(lost, _)| *lost == place).map(|(_, bytes)| &bytes[..]);
            recovered.or_else(|| {
                let (read, bytes) = found.iter().find(|(read, _)| read.column == Column::Data(place))?;
                let start = hull.start.checked_sub(read.range.start)? as usize;
                bytes.get(start..start + (hull.end - hull.start) as usize)
            })
        };
        let data: Vec<&[u8]> = (0..self.geometry.data_columns()).map(of_column).collect::<Option<_>>()?;
        let write = |column: Column| {
            let mut bytes = AlignedBuffer::new((hull.end - hull.start) as usize, self.alignment_bytes);
            match column {
                Column::P => parity::compute_p(data.iter().copied(), &mut bytes),
                Column::Q => parity::compute_q(data.iter().copied(), &mut bytes),
                Column::Data(place) | Column::Copy(place) => bytes.copy_from_slice(data[place]),
            }
            self.generated(stripe, ColumnIo { column, range: hull.clone() }, bytes)
        };
        Some(self.geometry.columns().filter(is_suspect).map(write).collect())
    }

    /// A part of a column as its member has it; `None` if it cannot be read.
    fn read_column(&self, stripe: u64, read: &ColumnIo, context: &IoContext) -> Option<Vec<u8>> {
        let reads = vec![read.clone()];
        let mut wanted = [Wanted::new(stripe, Damage::default(), Vec::new())];
        let plan = |_: usize, damage: Damage| match damage.unreadable.is_empty() {
            true => Ok(reads.clone()),
            false => Err(TooManyLost),
        };
        let mut verify = |_: usize, read: &ColumnIo, io: &mut MemberIo| self.verify_found(stripe, read, io);
        let gathered = self.gather(&mut wanted, plan, |reads: &Vec<ColumnIo>| reads, &mut verify, context);
        let gathered = gathered.into_iter().next().flatten()?;
        gathered.ios().next().map(|io| io.bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(level: RaidLevel, members: usize) -> ArrayGeometry {
        ArrayGeometry { level, members, chunk_bytes: 4096, stripes: 10 }
    }

    fn named(level: RaidLevel, members: usize, range: Range<u64>, absent: &[Column]) -> Vec<String> {
        let geometry = geometry(level, members);
        let mut damage = Damage::default();
        absent.iter().for_each(|column| damage.absent.insert(*column));
        let text = |set: ColumnSet| {
            let columns = geometry.columns().filter(|column| set.contains(*column));
            columns.map(|column| column.to_string()).collect::<Vec<_>>().join("+")
        };
        suspects(&geometry, 1, &range, damage).into_iter().map(text).collect()
    }

    #[test]
    fn suspects_are_the_columns_that_were_read() {
        assert_eq!(named(RaidLevel::Raid5, 4, 0..100, &[]).len(), 1);
        assert_eq!(named(RaidLevel::Raid5, 4, 4000..5000, &[]).len(), 2);
        // Without parity left there is no other answer, nor for a column that is not there.
        assert!(named(RaidLevel::Raid5, 4, 0..100, &[Column::P]).is_empty());
        assert!(named(RaidLevel::Raid5, 4, 0..100, &[Column::Data(0)]).is_empty());
        assert!(named(RaidLevel::Raid0, 4, 0..100, &[]).is_empty());
    }

    #[test]
    fn two_parities_give_pairs_of_suspects() {
        // Alone, with P, and with each of the three others.
        assert_eq!(named(RaidLevel::Raid6, 6, 0..100, &[]).len(), 5);
        assert_eq!(named(RaidLevel::Raid6, 6, 0..100, &[Column::Q]).len(), 1);
    }

    #[test]
    fn each_other_copy_of_a_mirror_is_one_answer() {
        let others = named(RaidLevel::Raid1, 3, 0..100, &[]);
        assert_eq!(others.len(), 2);
        // The copy that is read first is a suspect of both.
        let first = Column::Copy(1).to_string();
        assert!(others.iter().all(|suspects| suspects.contains(&first)), "{others:?}");
        assert_eq!(named(RaidLevel::Raid1, 2, 0..100, &[Column::Copy(0)]).len(), 0);
    }
}
