//! Writes and discards of an array: new redundancy, tuples, and the I/Os of the members.

use super::cost;
use super::device::{Gathered, Piece, Shared};
use super::geometry::{Column, RaidLevel};
use super::member::{IoKind, MemberIo, PartWork, bytes_of, run_all};
use super::plan::{ColumnIo, Damage, WriteMethod, WritePlan, plan_write};
use super::protection::{ATTEMPTS_MAX, Tuples};
use super::stripe::{self, NewData};
use super::stripe_journal::JournaledWrite;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use varve_media::{AlignedBuffer, IoCause, IoContext, MediaError, MediaErrorKind, Operation, Request, Transfer};

/// A write of a column: its stripe, its place, its bytes.
pub(super) type ColumnWrite = (u64, ColumnIo, IoKind);

/// Outcomes of writes of columns.
pub(super) struct ColumnsWritten {
    /// One per write: an error if data and tuples do not match, or if a member failed that the array cannot lose.
    pub(super) outcomes: Vec<Result<(), MediaError>>,
    /// Nothing was written, because some do not fit.
    is_held: bool,
}

fn is_mismatch(error: &MediaError) -> bool {
    error.kind() == MediaErrorKind::Protection
}

impl Shared {
    /// A write of a whole range of a column with tuples that are generated for it.
    pub(super) fn generated(&self, stripe: u64, write: ColumnIo, bytes: AlignedBuffer) -> ColumnWrite {
        let offset_bytes = self.offset_of(stripe, &write);
        let generate = |operator: &super::protection::PiOperator| {
            Arc::new(operator.generate(offset_bytes, bytes.len() as u64, [&bytes[..]]))
        };
        let tuples = self.operator.as_ref().map(generate);
        (stripe, write, IoKind::Write { bytes: Arc::new(bytes), tuples, is_durable: false })
    }

    /// Writes columns of stripes. What does not fit its tuples is not written, and neither is what a member refuses because it
    /// does not; a member that refuses what was verified is lost if `is_last` says so of the write's place among all.
    pub(super) fn write_columns(
        &self,
        writes: Vec<ColumnWrite>,
        is_journaled: bool,
        is_last: &dyn Fn(usize) -> bool,
        context: &IoContext,
    ) -> ColumnsWritten {
        let journal = self.journal.as_ref().filter(|_| is_journaled);
        let places: Vec<(u64, ColumnIo)> = match journal {
            Some(_) => writes.iter().map(|(stripe, write, _)| (*stripe, write.clone())).collect(),
            None => Vec::new(),
        };
        let build = |(stripe, write, kind): ColumnWrite| {
            let (slot, mut io) = self.target(stripe, &write, kind);
            self.strike_write(slot, &mut io);
            (slot, io)
        };
        let mut ios: Vec<(usize, MemberIo)> = writes.into_iter().map(build).collect();
        self.env.charge(ios.len() as u64 * cost::MEMBER_IO);
        let (verifies_all, verifies_parts) = match &self.operator {
            // What goes to the journal is verified before.
            Some(operator) => (operator.verifies_requests || journal.is_some(), operator.verifies_parts),
            None => (false, false),
        };
        if verifies_all {
            ios.iter_mut().for_each(|(slot, io)| self.verify_write(*slot, io));
            if ios.iter().any(|(_, io)| io.outcome.is_err()) {
                let outcomes = ios.into_iter().map(|(_, io)| io.outcome).collect();
                return ColumnsWritten { outcomes, is_held: true };
            }
        }
        let journaled = journal.map(|journal| {
            let writes = places.iter().zip(&ios).map(|((stripe, write), (_, io))| io.journaled(*stripe, write));
            let writes: Vec<JournaledWrite<'_>> = writes.collect();
            self.env.charge(cost::of_bytes(cost::COPY_KIB, writes.iter().map(|write| 2 * write.length).sum()));
            let context = IoContext { cause: IoCause::Parity, ..*context };
            self.with_surroundings(&context, |array| journal.append(&writes, array, &context))
        });
        let _journaled = match journaled.transpose() {
            Ok(journaled) => journaled,
            Err(error) => {
                let outcomes = ios.iter().map(|_| Err(error.clone())).collect();
                return ColumnsWritten { outcomes, is_held: false };
            }
        };
        let mut refused = vec![false; ios.len()];
        let mut before = |number: usize, slot: usize, io: &mut MemberIo| {
            if verifies_parts && !verifies_all {
                self.verify_write(slot, io);
                refused[number] = io.outcome.is_err();
            }
        };
        let work = PartWork { before: &mut before, arrived: &mut |_, _, _| (), overlaps: false };
        let done = run_all(&self.env, &self.members(), ios, work, context);
        let outcome = |(place, (slot, io)): (usize, (usize, MemberIo))| {
            io.outcome.or_else(|error| match is_mismatch(&error) {
                true if refused[place] || !is_last(place) || !(verifies_all || verifies_parts) => Err(error),
                _ => self.write_failed(slot, error),
            })
        };
        ColumnsWritten { outcomes: done.into_iter().enumerate().map(outcome).collect(), is_held: false }
    }

    /// Verifies a write of a member before it goes down.
    fn verify_write(&self, slot: usize, io: &mut MemberIo) {
        let (Some(operator), IoKind::Write { bytes, tuples: Some(tuples), .. }) = (&self.operator, &io.kind) else {
            return;
        };
        if let Err(mismatch) = operator.verify(io.offset_bytes, [&bytes[..]], tuples) {
            io.outcome = Err(self.mismatch(slot, mismatch, Operation::Write));
        }
    }

    /// Writes and discards pieces of different stripes.
    pub(super) fn write_round(
        &self,
        pieces: &mut [Piece],
        requests: &[Request<'_>],
        tuples: &Tuples,
        context: &IoContext,
    ) {
        self.env.charge(pieces.len() as u64 * cost::STRIPE);
        let stripes: BTreeSet<u64> = pieces.iter().map(|piece| piece.part.stripe).collect();
        let has_redundancy = self.geometry.level != RaidLevel::Raid0;
        let _locked = has_redundancy.then(|| self.locks.lock(stripes.clone()));
        // What is in the journal needs no mark.
        let is_marked = has_redundancy && self.journal.is_none();
        let regions = self.regions(stripes.iter());
        let begun = self.check_writable().and_then(|()| match is_marked {
            true => self.begin_intents(&regions, context),
            false => Ok(()),
        });
        if let Err(error) = begun {
            pieces.iter_mut().for_each(|piece| piece.outcome = Err(error.clone()));
            return;
        }
        self.write_locked(pieces, requests, tuples, context);
        if has_redundancy {
            let has_failed = is_marked && pieces.iter().any(|piece| piece.outcome.is_err());
            if is_marked {
                self.intents.lock().end(&regions, has_failed);
            }
            if has_failed {
                // Parity may not fit what some members have.
                self.state.lock().is_maintaining = true;
                self.work.notify_all();
            }
            if let Err(error) = self.settle() {
                pieces
                    .iter_mut()
                    .filter(|piece| piece.outcome.is_ok())
                    .for_each(|piece| piece.outcome = Err(error.clone()));
            }
        }
    }

    fn write_locked(&self, pieces: &mut [Piece], requests: &[Request<'_>], tuples: &Tuples, context: &IoContext) {
        let mut rest: Vec<&mut Piece> = pieces.iter_mut().collect();
        let mut wanted = self.wanted(&rest);
        let plan = |number: usize, damage: Damage| plan_write(&self.geometry, &rest[number].part.range, damage);
        let of_parity = IoContext { cause: IoCause::Parity, ..*context };
        let mut verify =
            |number: usize, read: &ColumnIo, io: &mut MemberIo| self.verify_found(rest[number].part.stripe, read, io);
        let gathered = self.gather(&mut wanted, plan, |plan: &WritePlan| &plan.reads, &mut verify, &of_parity);
        for gathered in gathered.iter().flatten() {
            self.state.lock().statistics.count(gathered.plan.method);
        }
        let mut pending: BTreeSet<usize> = (0..rest.len()).collect();
        // How often a write of a column did not fit its tuples.
        let mut refusals: BTreeMap<(usize, Column), usize> = BTreeMap::new();
        while !pending.is_empty() {
            let (mut writes, mut owners) = (Vec::new(), Vec::new());
            for number in std::mem::take(&mut pending) {
                let piece = &mut rest[number];
                let own = tuples.get(piece.request).map_or(&[][..], |own| own);
                let planned = match &gathered[number] {
                    // Parity of data that would be computed from wrong redundancy is worse than an error.
                    Some(gathered) if gathered.plan.lost.is_empty() || !self.awaits_resync(&wanted[number]) => {
                        self.writes_of(piece, &requests[piece.request], own, gathered)
                    }
                    _ => None,
                };
                match planned {
                    Some(of_stripe) => {
                        owners.extend(of_stripe.iter().map(|(_, write, _)| (number, write.column)));
                        writes.extend(of_stripe);
                    }
                    None => piece.outcome = Err(self.lost(piece.part.stripe, &wanted[number])),
                }
            }
            let count = |owner: &(usize, Column)| refusals.get(owner).map_or(1, |count| count + 1);
            let is_last = |place: usize| count(&owners[place]) == ATTEMPTS_MAX;
            let ColumnsWritten { outcomes, is_held } = self.write_columns(writes, true, &is_last, context);
            for (owner, outcome) in owners.into_iter().zip(outcomes) {
                let piece = &mut rest[owner.0];
                let attempts = refusals.entry(owner).or_default();
                *attempts += usize::from(outcome.as_ref().is_err_and(is_mismatch));
                match outcome {
                    Ok(()) if !is_held => {}
                    // What was read for the new parity is kept, so it is right although some members have the new data already.
                    Ok(()) => _ = pending.insert(owner.0),
                    Err(error) if is_mismatch(&error) && *attempts < ATTEMPTS_MAX => _ = pending.insert(owner.0),
                    Err(error) => piece.outcome = Err(error),
                }
            }
            pending.retain(|number| rest[*number].outcome.is_ok());
            self.state.lock().statistics.redone_requests += pending.len() as u64;
        }
    }

    /// The I/Os of a planned write, with their bytes and their tuples. `own` are the tuples of the request.
    fn writes_of(
        &self,
        piece: &Piece,
        request: &Request<'_>,
        own: &[u8],
        gathered: &Gathered<WritePlan>,
    ) -> Option<Vec<ColumnWrite>> {
        let (plan, stripe) = (&gathered.plan, piece.part.stripe);
        let is_discard = matches!(request.transfer, Transfer::Discard { .. });
        let is_whole = piece.part.range == (0..self.geometry.stripe_bytes());
        if is_discard && (is_whole || self.geometry.level.parity_columns() == 0) {
            // Zeros have the parity zero.
            let discard = |write: &ColumnIo| {
                (stripe, write.clone(), IoKind::Discard { length_bytes: write.range.end - write.range.start })
            };
            return Some(plan.writes.iter().map(discard).collect());
        }
        let is_durable = matches!(request.transfer, Transfer::Write { durable: true, .. });
        let chunk = self.geometry.chunk_bytes;
        let at = |place: usize, range: &std::ops::Range<u64>| {
            piece.at + place as u64 * chunk + range.start - piece.part.range.start
        };
        let new = self.geometry.columns_of(&piece.part.range).into_iter().map(|(place, range)| {
            let bytes = bytes_of(request, at(place, &range), range.end - range.start, self.alignment_bytes);
            NewData { place, range, bytes }
        });
        let new: Vec<NewData> = new.collect();
        let found = gathered.found(&plan.reads);
        let parity = stripe::new_parity(&self.geometry, plan, &new, &found, self.alignment_bytes).ok()?;
        self.charge_write(plan, &new);
        let mut all: Vec<(Column, Arc<AlignedBuffer>, Option<Arc<Vec<u8>>>)> = Vec::new();
        for NewData { place, range, bytes } in new {
            let tuples = match &self.operator {
                None => None,
                Some(operator) => {
                    let length_bytes = range.end - range.start;
                    let from = at(place, &range);
                    let column = Column::Data(place);
                    let to_bytes = self.offset_of(stripe, &ColumnIo { column, range });
                    Some(Arc::new(match is_discard {
                        true => operator.generate(to_bytes, length_bytes, [&bytes[..]]),
                        false => {
                            let part = own.get(operator.place(from, length_bytes))?;
                            operator.moved(request.offset_bytes + from, to_bytes, part)
                        }
                    }))
                }
            };
            all.push((Column::Data(place), Arc::new(bytes), tuples));
        }
        for (column, bytes) in parity {
            let write = ColumnIo { column, range: plan.hull.clone() };
            let (_, _, kind) = self.generated(stripe, write, bytes);
            if let IoKind::Write { bytes, tuples, .. } = kind {
                all.push((column, bytes, tuples));
            }
        }
        let io = |write: &ColumnIo| {
            let source = if matches!(write.column, Column::Copy(_)) { Column::Data(0) } else { write.column };
            let (_, bytes, tuples) = all.iter().find(|(column, ..)| *column == source)?;
            let kind = IoKind::Write { bytes: Arc::clone(bytes), tuples: tuples.clone(), is_durable };
            Some((stripe, write.clone(), kind))
        };
        plan.writes.iter().map(io).collect()
    }

    /// Charges the copies and the parity of a write.
    fn charge_write(&self, plan: &WritePlan, new: &[NewData]) {
        let written_bytes: u64 = new.iter().map(|data| data.bytes.len() as u64).sum();
        let hull_bytes = plan.hull.end - plan.hull.start;
        let added_bytes = match plan.method {
            WriteMethod::NoParity | WriteMethod::Mirror => 0,
            // Old and new data are added.
            WriteMethod::ReadModifyWrite => 2 * written_bytes,
            _ => hull_bytes * self.geometry.data_columns() as u64,
        };
        let of_column = |column: Column| match column {
            Column::P => cost::of_bytes(cost::PARITY_P_KIB, added_bytes),
            Column::Q => cost::of_bytes(cost::PARITY_Q_KIB, added_bytes),
            Column::Data(_) | Column::Copy(_) => 0,
        };
        let parity: u64 = plan.writes.iter().map(|write| of_column(write.column)).sum();
        self.env.charge(cost::of_bytes(cost::COPY_KIB, written_bytes) + parity);
    }

    /// Marks regions on all members before stripes of them are written.
    fn begin_intents(&self, regions: &BTreeSet<u64>, context: &IoContext) -> Result<(), MediaError> {
        let mut intents = self.intents.lock();
        let Some(page) = intents.begin(regions) else { return Ok(()) };
        match self.write_intents(&mut intents, page, context) {
            Ok(()) => Ok(()),
            Err(error) => {
                intents.end(regions, true);
                Err(error)
            }
        }
    }
}
