//! Reads of an array: of members as a plan says, of what is lost from redundancy, and the rewriting of what could not be read.

use super::cost;
use super::device::{Gathered, Incident, Piece, Shared, Wanted};
use super::geometry::{Column, RaidLevel, StripePart};
use super::member::{IoKind, MemberIo, PartWork, run_all};
use super::plan::{ColumnIo, ColumnSet, Damage, ReadPlan, TooManyLost, plan_read};
use super::protection::{ATTEMPTS_MAX, Tuples, slices_of};
use super::stripe;
use crate::buffer::scatter;
use std::sync::Arc;
use varve_media::{
    AlignedBuffer, BlockDevice, IoCause, IoContext, MediaError, MediaErrorKind, Operation, Request, Transfer,
};

impl Shared {
    /// Plans reads of stripes and does them, all at once, and calls `arrived` with each read that succeeded. Where some fail,
    /// then or there, plans again without these columns.
    pub(super) fn gather<P>(
        &self,
        wanted: &mut [Wanted],
        plan: impl Fn(usize, Damage) -> Result<P, TooManyLost>,
        reads: impl Fn(&P) -> &[ColumnIo],
        arrived: &mut dyn FnMut(usize, &ColumnIo, &mut MemberIo),
        context: &IoContext,
    ) -> Vec<Option<Gathered<P>>> {
        let mut gathered: Vec<Option<Gathered<P>>> = wanted.iter().map(|_| None).collect();
        let mut pending: Vec<usize> = (0..wanted.len()).collect();
        while !pending.is_empty() {
            let planned =
                pending.drain(..).filter_map(|number| Some((number, plan(number, wanted[number].damage).ok()?)));
            let planned: Vec<(usize, P)> = planned.collect();
            let all = || planned.iter().flat_map(|(number, plan)| reads(plan).iter().map(move |read| (*number, read)));
            let io = |(number, read): (usize, &ColumnIo)| {
                let length = read.range.end - read.range.start;
                let bytes = AlignedBuffer::new(length as usize, self.alignment_bytes);
                let tuples = self.operator.as_ref().map(|operator| operator.prepare(length));
                self.target(wanted[number].stripe, read, IoKind::Read { bytes, tuples })
            };
            let ios: Vec<(usize, MemberIo)> = all().map(io).collect();
            self.env.charge(ios.len() as u64 * cost::MEMBER_IO);
            let of_reads: Vec<(usize, &ColumnIo)> = all().collect();
            let overlaps = self.operator.as_ref().is_some_and(|operator| operator.verifies_parts);
            let mut arrive = |place: usize, slot: usize, io: &mut MemberIo| {
                self.strike_read(slot, io);
                let (number, read) = of_reads[place];
                arrived(number, read, io);
            };
            let work = PartWork { before: &mut |_, _, _| (), arrived: &mut arrive, overlaps };
            let mut done = run_all(&self.env, &self.members(), ios, work, context).into_iter();
            for (number, plan) in planned {
                let found: Vec<MemberIo> = done.by_ref().take(reads(&plan).len()).map(|(_, io)| io).collect();
                let failed =
                    reads(&plan).iter().zip(&found).filter_map(|(read, io)| Some((read, io.outcome.as_ref().err()?)));
                let mut has_failed = false;
                for (read, error) in failed {
                    let is_redone = wanted[number].failed(read.column, error.clone());
                    self.state.lock().statistics.redone_requests += u64::from(is_redone);
                    has_failed = true;
                }
                match has_failed {
                    true => pending.push(number),
                    false => gathered[number] = Some(Gathered { plan, found }),
                }
            }
        }
        gathered
    }

    /// Verifies a read of a member where it lies, if parts are verified.
    pub(super) fn verify_found(&self, stripe: u64, read: &ColumnIo, io: &mut MemberIo) {
        let Some(operator) = self.operator.as_ref().filter(|operator| operator.verifies_parts) else { return };
        let IoKind::Read { bytes, tuples: Some(tuples) } = &io.kind else { return };
        if let Err(mismatch) = operator.verify(io.offset_bytes, [&bytes[..]], tuples) {
            let slot = self.geometry.member_of(stripe, read.column);
            io.outcome = Err(self.mismatch(slot, mismatch, Operation::Read));
        }
    }

    /// Copies a read of one data column to where its piece wants it, with its tuples, and verifies it there.
    fn deliver(&self, piece: &Piece, read: &ColumnIo, io: &mut MemberIo, request: &mut Request<'_>, tuples: &mut [u8]) {
        let part = &piece.part;
        let at = match read.column {
            Column::Data(place) => {
                piece.at + place as u64 * self.geometry.chunk_bytes + read.range.start - part.range.start
            }
            _ => piece.at + read.range.start - part.range.start,
        };
        let IoKind::Read { bytes, tuples: of_member } = &io.kind else { return };
        let length_bytes = bytes.len() as u64;
        self.env.charge(cost::of_bytes(cost::COPY_KIB, length_bytes));
        scatter(request, at, bytes);
        let (Some(operator), Some(of_member)) = (&self.operator, of_member) else { return };
        let own = &mut tuples[operator.place(at, length_bytes)];
        let place_bytes = request.offset_bytes + at;
        own.copy_from_slice(&operator.moved(io.offset_bytes, place_bytes, of_member));
        if operator.verifies_parts {
            let verified = operator.verify(place_bytes, slices_of(request, at, length_bytes), own);
            if let Err(mismatch) = verified {
                let slot = self.geometry.member_of(part.stripe, read.column);
                let moved = operator.at_other_place(mismatch, place_bytes, io.offset_bytes);
                io.outcome = Err(self.mismatch(slot, moved, Operation::Read));
            }
        }
    }

    /// Reads pieces. What needs no redundancy is read without locks.
    pub(super) fn read_round(
        &self,
        pieces: &mut [Piece],
        requests: &mut [Request<'_>],
        tuples: &mut Tuples,
        context: &IoContext,
    ) {
        self.env.charge(pieces.len() as u64 * cost::STRIPE);
        let mut rest: Vec<&mut Piece> = pieces.iter_mut().collect();
        let mut wanted = self.wanted(&rest);
        let plan = |number: usize, damage: Damage| {
            let StripePart { stripe, range } = &rest[number].part;
            let plan = plan_read(&self.geometry, *stripe, range, damage)?;
            match plan.recovery.is_none() && damage.unreadable.is_empty() {
                true => Ok(plan),
                false => Err(TooManyLost),
            }
        };
        let mut deliver = |number: usize, read: &ColumnIo, io: &mut MemberIo| {
            let piece: &Piece = rest[number];
            self.deliver(piece, read, io, &mut requests[piece.request], &mut tuples[piece.request]);
        };
        let gathered = self.gather(&mut wanted, plan, |plan: &ReadPlan| &plan.reads, &mut deliver, context);
        let mut left = Vec::new();
        for ((piece, wanted), gathered) in rest.drain(..).zip(wanted).zip(gathered) {
            piece.outcome = Ok(());
            if gathered.is_none() {
                piece.failed = wanted.failed;
                left.push(piece);
            }
        }
        if !left.is_empty() {
            self.read_locked(left, requests, tuples, context);
        }
    }

    /// Reads pieces of which something is lost.
    fn read_locked(
        &self,
        mut rest: Vec<&mut Piece>,
        requests: &mut [Request<'_>],
        tuples: &mut Tuples,
        context: &IoContext,
    ) {
        let _locked = self.locks.lock(rest.iter().map(|piece| piece.part.stripe).collect());
        let mut wanted = self.wanted(&rest);
        let context = IoContext { cause: IoCause::Parity, ..*context };
        let plan = |number: usize, damage: Damage| {
            let StripePart { stripe, range } = &rest[number].part;
            plan_read(&self.geometry, *stripe, range, damage)
        };
        let mut verify =
            |number: usize, read: &ColumnIo, io: &mut MemberIo| self.verify_found(rest[number].part.stripe, read, io);
        let gathered = self.gather(&mut wanted, plan, |plan: &ReadPlan| &plan.reads, &mut verify, &context);
        for ((piece, wanted), gathered) in rest.iter_mut().zip(wanted).zip(gathered) {
            let lost = || self.lost(piece.part.stripe, &wanted);
            piece.outcome = match gathered {
                None => Err(lost()),
                // Redundancy of a stripe whose write was cut short says nothing.
                Some(gathered) => self.check_running().and_then(|()| {
                    if gathered.plan.recovery.is_some() && self.awaits_resync(&wanted) {
                        return Err(lost());
                    }
                    let request = &mut requests[piece.request];
                    let own = &mut tuples[piece.request];
                    self.answer_from_redundancy(piece, &gathered, request, own).ok_or_else(lost)??;
                    self.rewrite_unreadable(&wanted, &gathered, &context);
                    Ok(())
                }),
            };
        }
    }

    /// Returns true if recovery would use redundancy that a power cut may have left wrong.
    pub(super) fn awaits_resync(&self, wanted: &Wanted) -> bool {
        !wanted.damage.unreadable.is_empty() && self.intents.lock().is_due(wanted.stripe / self.region_stripes)
    }

    /// Fills a piece, with what was read and what is computed from it. `None` if that is not what the plan needs.
    pub(super) fn answer_from_redundancy(
        &self,
        piece: &Piece,
        gathered: &Gathered<ReadPlan>,
        request: &mut Request<'_>,
        tuples: &mut [u8],
    ) -> Option<Result<(), MediaError>> {
        let (plan, range) = (&gathered.plan, &piece.part.range);
        let bytes = stripe::answer(&self.geometry, range, plan, &gathered.found(&plan.reads)).ok()?;
        let length_bytes = bytes.len() as u64;
        self.env.charge(cost::of_bytes(cost::COPY_KIB, length_bytes));
        scatter(request, piece.at, &bytes);
        self.state.lock().statistics.recovered_reads += u64::from(plan.recovery.is_some());
        let Some(operator) = &self.operator else { return Some(Ok(())) };
        let start = request.offset_bytes + piece.at;
        let is_mirror = self.geometry.level == RaidLevel::Raid1;
        let columns = if is_mirror { vec![(0, range.clone())] } else { self.geometry.columns_of(range) };
        let mut own = Vec::with_capacity(operator.format.tuples_bytes(length_bytes) as usize);
        let mut done_bytes = 0;
        for (place, of_column) in columns {
            let length = of_column.end - of_column.start;
            let place_bytes = start + done_bytes;
            let is_of_column = |read: &ColumnIo| is_mirror || read.column == Column::Data(place);
            let read = plan.reads.iter().zip(gathered.ios()).find(|(read, _)| is_of_column(read));
            match read {
                Some((read, MemberIo { offset_bytes, kind: IoKind::Read { tuples: Some(tuples), .. }, .. })) => {
                    let at = of_column.start - read.range.start;
                    let part = tuples.get(operator.place(at, length))?;
                    own.extend(operator.moved(offset_bytes + at, place_bytes, part));
                }
                _ => {
                    let data = &bytes[done_bytes as usize..(done_bytes + length) as usize];
                    own.extend(operator.generate(place_bytes, length, [data]));
                }
            }
            done_bytes += length;
        }
        tuples.get_mut(operator.place(piece.at, length_bytes))?.copy_from_slice(&own);
        let verified = match operator.verifies_parts {
            true => operator.verify(start, slices_of(request, piece.at, length_bytes), &own),
            false => Ok(()),
        };
        Some(verified.map_err(|mismatch| {
            self.state.lock().statistics.mismatches += 1;
            mismatch.at(&self.name, Operation::Read)
        }))
    }

    /// Rewrites the parts of a locked stripe that could not be read or did not match their tuples.
    fn rewrite_unreadable(&self, wanted: &Wanted, gathered: &Gathered<ReadPlan>, context: &IoContext) {
        if wanted.failed.is_empty() || self.is_read_only {
            return;
        }
        let plan = &gathered.plan;
        let is_due =
            |column: Column| wanted.damage.unreadable.contains(column) && !wanted.damage.absent.contains(column);
        let mut writes: Vec<(u64, ColumnIo, IoKind)> = Vec::new();
        let found = gathered.found(&plan.reads);
        if self.geometry.level == RaidLevel::Raid1 {
            let (Some(read), Some(io)) = (plan.reads.first(), gathered.ios().next()) else { return };
            let tuples = io.tuples().map(<[u8]>::to_vec);
            for column in self.geometry.columns().filter(|column| is_due(*column)) {
                let write = ColumnIo { column, range: read.range.clone() };
                let bytes = Arc::new(AlignedBuffer::copy_of(io.bytes(), self.alignment_bytes));
                let kind = IoKind::Write { bytes, tuples: tuples.clone().map(Arc::new), is_durable: false };
                writes.push((wanted.stripe, write, kind));
            }
        } else if let Some(recovery) = &plan.recovery
            && let Ok(recovered) = stripe::recover(&self.geometry, recovery, &found)
        {
            for (place, bytes) in recovered.iter().filter(|(place, _)| is_due(Column::Data(*place))) {
                let write = ColumnIo { column: Column::Data(*place), range: recovery.hull.clone() };
                let bytes = AlignedBuffer::copy_of(bytes, self.alignment_bytes);
                writes.push(self.generated(wanted.stripe, write, bytes));
            }
        }
        let columns: Vec<Column> = writes.iter().map(|(_, write, _)| write.column).collect();
        let outcomes = self.write_columns(writes, false, &|_| true, context).outcomes;
        for (column, outcome) in columns.into_iter().zip(outcomes) {
            let Some((_, error)) = wanted.failed.iter().find(|(failed, _)| *failed == column) else { continue };
            let slot = self.geometry.member_of(wanted.stripe, column);
            self.record_incident(Incident { slot, error: error.clone(), is_repaired: outcome.is_ok() });
        }
    }

    /// Reads a request that one member can answer straight into its buffers. Returns false if that did not work.
    pub(super) fn read_directly(
        &self,
        device: &dyn BlockDevice,
        piece: &mut Piece,
        request: &mut Request<'_>,
        tuples: &mut [u8],
        context: &IoContext,
    ) -> bool {
        let StripePart { stripe, range } = &piece.part;
        let damage = self.damage(*stripe);
        let Ok(plan) = plan_read(&self.geometry, *stripe, range, damage) else { return false };
        let (ReadPlan { reads, recovery: None }, offset_bytes) = (plan, request.offset_bytes) else { return false };
        let [read] = &reads[..] else { return false };
        let (slot, target) = self.target(*stripe, read, IoKind::Discard { length_bytes: 0 });
        let Some(member) = self.state.lock().slots[slot].member.clone() else { return false };
        self.env.charge(cost::MEMBER_IO);
        let length_bytes = request.length_bytes();
        for _ in 0..ATTEMPTS_MAX {
            let outcome = (|| {
                // Tuples go beside the request, as it may have space for none.
                let mut parts = request.divide(device, [length_bytes])?;
                let Some(part) = parts.first_mut() else { return Ok(()) };
                let mut direct = part.request(target.offset_bytes);
                if let (Some(_), Transfer::Read { protection, .. }) = (&self.operator, &mut direct.transfer) {
                    *protection = Some(&mut *tuples);
                }
                member.device.block.execute(&mut [direct], context)
            })();
            let mut mismatch = None;
            if let (Ok(()), Some(operator)) = (&outcome, &self.operator) {
                operator.format.move_reference_tags(target.offset_bytes, offset_bytes, tuples);
                if operator.verifies_parts || operator.verifies_requests {
                    mismatch = operator.verify(offset_bytes, slices_of(request, 0, length_bytes), tuples).err();
                    mismatch = mismatch.map(|found| operator.at_other_place(found, offset_bytes, target.offset_bytes));
                }
            }
            let is_redone = self.operator.as_ref().is_some_and(|operator| operator.verifies_requests);
            match (outcome, mismatch) {
                (Ok(()), None) => {
                    piece.outcome = Ok(());
                    return true;
                }
                (Ok(()), Some(found)) => {
                    piece.outcome = Err(self.mismatch(slot, found, Operation::Read));
                    self.state.lock().statistics.redone_requests += 1;
                    if !is_redone {
                        // It is read again with a buffer between.
                        return false;
                    }
                }
                (Err(error), _) => {
                    if error.kind() != MediaErrorKind::Protection {
                        piece.failed.push((read.column, error));
                    }
                    return false;
                }
            }
        }
        // The last mismatch stands.
        true
    }

    /// The stripes of pieces, with the columns that could not be read before.
    pub(super) fn wanted(&self, pieces: &[&mut Piece]) -> Vec<Wanted> {
        let wanted = |piece: &&mut Piece| {
            let mut unreadable = ColumnSet::default();
            piece.failed.iter().for_each(|(column, _)| unreadable.insert(*column));
            let stripe = piece.part.stripe;
            Wanted::new(stripe, Damage { unreadable, ..self.damage(stripe) }, piece.failed.clone())
        };
        pieces.iter().map(wanted).collect()
    }
}
