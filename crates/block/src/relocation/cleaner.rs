//! Moves zones, step by step: does what the policy says.

use super::core::{Core, written_bytes};
use super::journal::{CommitError, MapJournal};
use super::mark::FIRST_ZONE;
use super::moving::Moving;
use super::policy::Turn;
use super::record::Move;
use std::io::IoSlice;
use std::ops::Range;
use varve_media::{
    AlignedBuffer, BlockDeviceExt, IoCause, IoClass, IoContext, MediaError, Request, ZoneCondition, ZoneDescription,
    ZoneId,
};

/// Rounds in which what was written meanwhile is copied, before writes to the zone wait for the last.
const ROUNDS: usize = 8;
/// Pieces that are copied while writes to the zone wait, and steps of bytes of them: both bound how long they do.
const HELD_PIECES_MAX: usize = 4;
const HELD_STEPS_MAX: u64 = 4;
/// Pieces written meanwhile with which a relocation is given up: each is out of order in the new zone.
const PIECES_MAX: usize = 256;

/// Why a relocation did not come to its end.
enum Halt {
    /// It is to end, or nothing is acknowledged any more.
    Stopped,
    /// The zone does not need it, or something else was done in its place.
    NotNeeded,
    /// The zone was written or commanded too much.
    Disturbed,
    /// The zone could not be read, or is not told of.
    Unreadable,
    /// The spare could not be written.
    BadSpare(ZoneId),
    /// Not committed; the map is as before.
    NotCommitted,
    /// No record can be written: not even begun.
    NoJournal,
}

/// The end of relocation, also by a panic of the device: nobody waits for it any more. No zone is being moved at any other end.
struct Ended(std::sync::Arc<Core>);

impl Drop for Ended {
    fn drop(&mut self) {
        let core = &self.0;
        let mut state = core.state.lock();
        if state.moving.as_ref().is_some_and(|moving| moving.is_held) {
            // Which of two maps is on the medium is not known.
            let source = std::io::Error::other("relocation panicked when a zone was put in its place; open it anew");
            state.failure.get_or_insert_with(|| MediaError::Io {
                device: core.inner.block.name().to_owned(),
                operation: varve_media::Operation::Write,
                offset_bytes: core.physical.start_bytes(ZoneId(core.physical.zone_count.saturating_sub(1))),
                error: std::sync::Arc::new(source),
            });
        }
        state.is_stopped = true;
        core.release(&mut state);
    }
}

pub(super) struct Cleaner {
    core: std::sync::Arc<Core>,
    journal: MapJournal,
}

fn context() -> IoContext {
    IoContext { cause: IoCause::Cleaning, ..IoContext::of(IoClass::Maintenance) }
}

impl Cleaner {
    pub(super) fn new(core: std::sync::Arc<Core>, journal: MapJournal) -> Cleaner {
        Cleaner { core, journal }
    }

    /// Relocates until it is told to end.
    pub(super) fn run(mut self) {
        let _ended = Ended(std::sync::Arc::clone(&self.core));
        while let Some((logical, is_demanded)) = self.core.wait_for_zone() {
            let before_nanos = self.core.state.lock().statistics.step_nanos;
            let result = self.relocate(logical, is_demanded);
            let mut state = self.core.state.lock();
            match result {
                Ok(()) => {
                    state.failures = 0;
                    state.move_nanos = self.core.parameters.move_nanos(state.statistics.step_nanos - before_nanos);
                }
                // A look at the zones says nothing of whether they can be moved.
                Err(Halt::NotNeeded | Halt::Stopped) => {}
                Err(_) => {
                    state.failures = state.failures.saturating_add(1);
                    let wait_nanos = self.core.parameters.back_off_nanos(state.failures);
                    state.not_before_nanos = self.core.now().saturating_add(wait_nanos);
                }
            }
            match result {
                Ok(()) | Err(Halt::NotNeeded | Halt::Stopped) => {}
                Err(Halt::Disturbed | Halt::NotCommitted) => state.given_up(logical),
                // That says nothing of the zone.
                Err(Halt::NoJournal) => state.statistics.given_up += 1,
                Err(Halt::Unreadable) => state.was_unreadable(logical, &self.core.parameters, self.core.now()),
                Err(Halt::BadSpare(spare)) => {
                    // Of one that could not be emptied afterwards the zone has been moved.
                    if state.moving.is_some() {
                        state.given_up(logical);
                    }
                    state.map.retire(spare);
                }
            }
            state.attempts += 1;
            state.unreturned_share = 0.0;
            self.core.release(&mut state);
        }
        if self.core.state.lock().failure.is_none() {
            self.journal.seal();
        }
    }

    fn step<T>(&self, perform: impl FnOnce() -> T) -> Result<T, Halt> {
        self.core.step(perform)
    }

    /// Looks at all zones, if that is due: what the disk cleaned by itself needs no relocation.
    fn look(&self) -> Result<(), Halt> {
        let core = &self.core;
        {
            let state = core.state.lock();
            if !core.parameters.is_report_due(state.last_report_nanos, state.seems_to_block, core.now()) {
                return Ok(());
            }
        }
        let count = core.physical.zone_count;
        let reported = self.step(|| core.inner_zones.report(ZoneId(0), count, &context()))?;
        let mut state = core.state.lock();
        state.last_report_nanos = Some(core.now());
        state.statistics.reports += 1;
        // One that fails says nothing: the zone that is next is looked at by itself.
        let Ok(reported) = reported else { return Ok(()) };
        let logical: Option<Vec<ZoneDescription>> = (0..core.logical.zone_count)
            .map(|zone| {
                let found = reported.get(state.map.zone(ZoneId(zone))?.0 as usize)?;
                Some(core.described(ZoneId(zone), found.clone()))
            })
            .collect();
        let Some(logical) = logical else { return Err(Halt::NotNeeded) };
        state.statistics.reports_in_doubt += u64::from(std::mem::take(&mut state.seems_to_block));
        if state.ghost.reported(&logical).is_some() {
            let in_order = (0..).map(ZoneId).zip(&logical).filter(|(_, found)| !found.non_sequential);
            in_order.for_each(|(zone, _)| state.is_in_order(zone));
        }
        Err(Halt::NotNeeded)
    }

    /// Sees that a record can be written in the end.
    fn prepare_journal(&mut self) -> Result<(), Halt> {
        if self.journal.is_prepared() {
            return Ok(());
        }
        let Cleaner { core, journal } = self;
        let map = core.state.lock().map.clone();
        core.step(|| journal.prepare(&map))?.map_err(|error| core.not_committed(error, Halt::NoJournal))
    }

    /// Moves a zone.
    fn relocate(&mut self, logical: ZoneId, is_demanded: bool) -> Result<(), Halt> {
        if !is_demanded {
            self.look()?;
        }
        self.prepare_journal()?;
        let core = std::sync::Arc::clone(&self.core);
        let (from, to) = {
            let state = core.state.lock();
            let from = state.map.zone(logical);
            match (from, from.and_then(|from| state.map.spare_for(from))) {
                (Some(from), Some(spare)) => (from, spare),
                _ => return Err(Halt::NotNeeded),
            }
        };
        if !to.is_empty {
            self.empty(to.zone)?;
        }
        let to = to.zone;
        core.state.lock().moving = Some(Moving::new(logical));
        let found = self.step(|| core.inner_zones.report(from, 1, &context()))?;
        let Some(found) = found.ok().and_then(|found| found.into_iter().next()) else { return Err(Halt::Unreadable) };
        if found.condition == ZoneCondition::NotWritePointer || found.condition == ZoneCondition::Offline {
            return Err(Halt::Unreadable);
        }
        {
            let mut state = core.state.lock();
            if !found.non_sequential && !is_demanded {
                state.ghost.cleaned(logical, written_bytes(&found));
                state.is_in_order(logical);
                return Err(Halt::NotNeeded);
            }
            if found.condition == ZoneCondition::Full
                && let Some(zone) = state.zones.get_mut(logical.0 as usize)
            {
                zone.written_bytes = found.capacity_bytes;
            }
            state.map.set_empty(to, false);
        }
        match self.move_to((logical, from, to), &found) {
            Ok(()) => {}
            Err(halt @ (Halt::Stopped | Halt::BadSpare(_))) => return Err(halt),
            Err(halt) => {
                core.resume_writes();
                // Copies of late writes are in the cache too. They would pin the tail of its log until the spare is used again.
                self.empty(to)?;
                if to == FIRST_ZONE {
                    self.step(|| core.mark_first_sector())?;
                }
                return Err(halt);
            }
        }
        core.drain_earlier(logical);
        // What it had of the media cache is given back only now.
        self.empty(from)?;
        if from == FIRST_ZONE {
            self.step(|| core.mark_first_sector())?;
        }
        Ok(())
    }

    /// Copies a zone to an empty spare, and puts it in its place.
    fn move_to(&mut self, (logical, from, to): (ZoneId, ZoneId, ZoneId), found: &ZoneDescription) -> Result<(), Halt> {
        self.copy(logical, from, to)?;
        // They lie in the cache again, in the new zone.
        let (mut late, late_since) = (Vec::new(), self.core.state.lock().ghost.log_position());
        for _ in 0..ROUNDS {
            let pieces = self.rewritten()?;
            if pieces.is_empty() {
                break;
            }
            self.copy_pieces(from, to, &pieces)?;
            late.extend(pieces);
        }
        self.sync_if(1)?;
        self.switch((logical, from, to), found, (late, late_since))
    }

    fn sync(&self) -> Result<(), Halt> {
        let copied_bytes = self.core.state.lock().copied_bytes;
        self.core.order.sync(&context()).map_err(|error| {
            self.core.fail(&error);
            Halt::Stopped
        })?;
        self.core.state.lock().is_durable_up_to(copied_bytes);
        Ok(())
    }

    /// Makes durable what was copied, if it is so much: syncs of others do so too.
    fn sync_if(&self, least_bytes: u64) -> Result<(), Halt> {
        let unsynced_bytes = self.core.state.lock().unsynced_bytes();
        if unsynced_bytes < least_bytes.max(1) { Ok(()) } else { self.step(|| self.sync())? }
    }

    /// Resets a spare.
    fn empty(&self, spare: ZoneId) -> Result<(), Halt> {
        match self.step(|| self.core.inner_zones.reset(spare, &context()))? {
            Ok(()) => {
                self.core.state.lock().map.set_empty(spare, true);
                Ok(())
            }
            Err(_) => Err(Halt::BadSpare(spare)),
        }
    }

    /// What was written meanwhile, so far.
    fn rewritten(&self) -> Result<Vec<Range<u64>>, Halt> {
        let mut state = self.core.state.lock();
        let moving = state.moving.as_mut().filter(|moving| !moving.is_cancelled).ok_or(Halt::Disturbed)?;
        let is_too_much =
            moving.rewritten.len() > PIECES_MAX || moving.rewritten.bytes() > self.core.logical.zone_bytes / 4;
        if is_too_much {
            return Err(Halt::Disturbed);
        }
        let (logical, taken) = (moving.logical, moving.rewritten.take());
        // What is still on its way there may come behind the copy of its range.
        state.mark_in_flight(logical, &(0..u64::MAX));
        Ok(taken)
    }

    /// Copies what the zone has, in order.
    fn copy(&self, logical: ZoneId, from: ZoneId, to: ZoneId) -> Result<(), Halt> {
        let core = &self.core;
        let alignment = core.capabilities.buffer_alignment_bytes.max(1) as usize;
        let sector = u64::from(core.geometry.physical_sector_bytes.max(1));
        let pressure = || core.state.lock().pressure(&core.parameters, core.now());
        let step_bytes = || core.parameters.step(pressure()).max(1).next_multiple_of(sector);
        let chunk_bytes = core.parameters.chunk_bytes.max(1).next_multiple_of(sector).min(core.logical.zone_bytes);
        let mut buffer = AlignedBuffer::new(chunk_bytes as usize, alignment);
        let mut done = 0;
        loop {
            let end = {
                let mut state = core.state.lock();
                let written = state.zones.get(logical.0 as usize).map_or(0, |zone| zone.written_bytes);
                let Some(moving) = state.moving.as_mut().filter(|moving| !moving.is_cancelled) else {
                    return Err(Halt::Disturbed);
                };
                if done >= written {
                    // From here on whatever is written is copied once more.
                    moving.front_bytes = u64::MAX;
                    state.mark_in_flight(logical, &(done..u64::MAX));
                    return Ok(());
                }
                written.min(done + chunk_bytes)
            };
            let mut at = done;
            if core.state.lock().seems_to_block {
                match self.look() {
                    Err(Halt::Stopped) => return Err(Halt::Stopped),
                    // Where the drive cleaned the zone meanwhile there is nothing left to gain.
                    Err(_) if !core.state.lock().ghost.is_in_cache(logical) => return Err(Halt::NotNeeded),
                    _ => {}
                }
            }
            while at < end {
                let read = at..end.min(at + step_bytes());
                let data = &mut buffer[(read.start - done) as usize..(read.end - done) as usize];
                let result = self.step(|| {
                    core.state.lock().mark_in_flight(logical, &read);
                    core.inner.block.read_at(core.physical.start_bytes(from) + read.start, data, &context())
                })?;
                result.map_err(|_| Halt::Unreadable)?;
                at = read.end;
            }
            let mut at = done;
            while at < end {
                let write = at..end.min(at + step_bytes());
                let data = &buffer[(write.start - done) as usize..(write.end - done) as usize];
                let place = core.physical.start_bytes(to) + write.start;
                let result = self.step(|| core.inner.block.write_at(place, data, &context()))?;
                result.map_err(|_| Halt::BadSpare(to))?;
                let unsynced_bytes = {
                    let mut state = core.state.lock();
                    state.copied_bytes += write.end - at;
                    state.unsynced_bytes()
                };
                at = write.end;
                if core.parameters.is_sync_due(unsynced_bytes, pressure()) {
                    // All of a zone at once would be a second for whoever comes then.
                    self.step(|| self.sync())??;
                }
            }
            core.state.lock().statistics.copied_bytes += end - done;
            done = end;
        }
    }

    /// Copies what was written meanwhile.
    fn copy_pieces(&self, from: ZoneId, to: ZoneId, pieces: &[Range<u64>]) -> Result<(), Halt> {
        for piece in pieces {
            let mut at = piece.start;
            while at < piece.end {
                let part = at..piece.end.min(at + self.piece_bytes());
                self.step(|| self.copy_piece(from, to, &part, false))??;
                at = part.end;
            }
        }
        Ok(())
    }

    /// Bytes of such a piece that are copied in one step.
    fn piece_bytes(&self) -> u64 {
        let sector = u64::from(self.core.geometry.physical_sector_bytes.max(1));
        self.core.parameters.step_bytes.max(1 << 16).next_multiple_of(sector)
    }

    /// Copies a piece of what was written meanwhile, in one request each way.
    fn copy_piece(&self, from: ZoneId, to: ZoneId, piece: &Range<u64>, is_durable: bool) -> Result<(), Halt> {
        let core = &self.core;
        let alignment = core.capabilities.buffer_alignment_bytes.max(1) as usize;
        let mut buffer = AlignedBuffer::new((piece.end - piece.start) as usize, alignment);
        let read = core.inner.block.read_at(core.physical.start_bytes(from) + piece.start, &mut buffer, &context());
        read.map_err(|_| Halt::Unreadable)?;
        let slices = [IoSlice::new(&buffer)];
        let at = core.physical.start_bytes(to) + piece.start;
        let request = if is_durable { Request::write_durable(at, &slices) } else { Request::write(at, &slices) };
        core.inner.block.execute(&mut [request], &context()).map_err(|_| Halt::BadSpare(to))?;
        let mut state = core.state.lock();
        state.statistics.copied_bytes += piece.end - piece.start;
        state.copied_bytes += if is_durable { 0 } else { piece.end - piece.start };
        Ok(())
    }

    /// Puts the new zone in the place of the old one.
    fn switch(
        &mut self,
        (logical, from, to): (ZoneId, ZoneId, ZoneId),
        found: &ZoneDescription,
        (mut late, late_since): (Vec<Range<u64>>, u64),
    ) -> Result<(), Halt> {
        let core = std::sync::Arc::clone(&self.core);
        let mut state = core.state.lock();
        state.moving.as_mut().ok_or(Halt::Disturbed)?.is_held = true;
        if !core.drain_writes(&mut state, logical) {
            return Err(Halt::Stopped);
        }
        drop(state);
        // Nobody writes to it from here on.
        let pieces = self.rewritten()?;
        let held_bytes: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        if pieces.len() > HELD_PIECES_MAX || held_bytes > HELD_STEPS_MAX.saturating_mul(core.parameters.step_bytes) {
            return Err(Halt::Disturbed);
        }
        for piece in &pieces {
            self.copy_piece(from, to, piece, true)?;
        }
        late.extend(pieces);
        match found.condition {
            ZoneCondition::ExplicitlyOpened => _ = core.inner_zones.open(to, &context()),
            ZoneCondition::Closed => _ = core.inner_zones.close(to, &context()),
            _ => {}
        }
        let (before, mut after) = {
            let state = core.state.lock();
            (state.map.clone(), state.map.clone())
        };
        if !after.relocate(logical, from, to) {
            return Err(Halt::NotCommitted);
        }
        let committed = self.journal.commit(&before, Move { logical, from, to });
        committed.map_err(|error| core.not_committed(error, Halt::NotCommitted))?;
        let mut state = core.state.lock();
        state.map = after;
        let state = &mut *state;
        state.statistics.relocated_zones += 1;
        state.is_in_order(logical);
        if let Some(zone) = state.zones.get(logical.0 as usize) {
            let before = state.ghost.utilization();
            state.ghost.cleaned(logical, zone.written_bytes);
            state.unreturned_share = (before - state.ghost.utilization()).max(0.0);
        }
        for piece in late {
            state.ghost.written(core.logical.start_bytes(logical) + piece.start, piece.end - piece.start);
        }
        state.ghost.was_written_since(logical, late_since);
        core.release(state);
        Ok(())
    }
}

impl Core {
    /// Waits for the next step, and takes it.
    fn step<T>(&self, perform: impl FnOnce() -> T) -> Result<T, Halt> {
        let mut state = self.state.lock();
        let (begun, is_busy) = loop {
            if state.is_stopped || state.failure.is_some() {
                return Err(Halt::Stopped);
            }
            let situation = state.situation(&self.parameters, self.now());
            match self.parameters.turn(&situation) {
                Turn::Now => break (situation.now_nanos, situation.outstanding > 0),
                Turn::At(nanos) => self.listen(&mut state, Some(nanos)),
                Turn::WhenQuiet => self.listen(&mut state, None),
            }
        };
        drop(state);
        let done = perform();
        let ended = self.now();
        let mut state = self.state.lock();
        if is_busy {
            state.last_busy_step = (begun, ended);
        }
        let step_nanos = ended.saturating_sub(begun);
        state.seems_to_block |= self.parameters.is_sign_of_blocking(step_nanos, state.ghost.utilization());
        let statistics = &mut state.statistics;
        statistics.steps += 1;
        statistics.step_nanos += ended.saturating_sub(begun);
        statistics.longest_step_nanos = statistics.longest_step_nanos.max(ended.saturating_sub(begun));
        Ok(done)
    }

    /// Why a zone was not put in its place: for that reason, where the map is as it was.
    fn not_committed(&self, error: CommitError, reason: Halt) -> Halt {
        match error {
            CommitError::NotDone => reason,
            CommitError::Unknown(error) => {
                self.fail(&error);
                Halt::Stopped
            }
        }
    }

    /// What the device says of the zone that a logical one is in, as one says it of that.
    pub(super) fn described(&self, logical: ZoneId, found: ZoneDescription) -> ZoneDescription {
        let start_bytes = self.logical.start_bytes(logical);
        let behind = found.write_pointer_bytes.saturating_sub(found.start_bytes);
        ZoneDescription { start_bytes, write_pointer_bytes: start_bytes.saturating_add(behind), ..found }
    }
}

/// An error of a device, as it is told where the place is another.
pub(super) fn elsewhere(error: MediaError, delta: impl Fn(u64) -> u64, logical: ZoneId) -> MediaError {
    let mut error = error;
    match &mut error {
        MediaError::OutOfRange { offset_bytes, .. }
        | MediaError::Misaligned { offset_bytes, .. }
        | MediaError::Rule { offset_bytes, .. }
        | MediaError::Unreadable { offset_bytes, .. }
        | MediaError::NoSpace { offset_bytes, .. }
        | MediaError::Protection { offset_bytes, .. }
        | MediaError::Io { offset_bytes, .. } => *offset_bytes = delta(*offset_bytes),
        MediaError::Zone { offset_bytes, zone, refusal, .. } => {
            *offset_bytes = delta(*offset_bytes);
            *zone = logical;
            match refusal {
                varve_media::ZoneRefusal::WritePointer { write_pointer_bytes } => {
                    *write_pointer_bytes = delta(*write_pointer_bytes);
                }
                varve_media::ZoneRefusal::Boundary { end_bytes, .. } => *end_bytes = delta(*end_bytes),
                _ => {}
            }
        }
        _ => {}
    }
    error
}
