//! Which members are in use, and how the members know it: superblocks, intent maps, syncs.

use super::device::{MemberState, Shared};
use super::error::{Stopped, StoppedWithoutJournal};
use super::geometry::RaidLevel;
use super::intent::{IntentMap, IntentPage};
use super::member::{IoKind, Member, MemberIo, PartWork, run_all, sync_all};
use super::stripe_journal::Surroundings;
use super::superblock::{COPIES, INTENT_PAGES, Superblock};
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{AlignedBuffer, Device, IoClass, IoContext, MediaError, MediaErrorKind, Operation};

/// Writes something to each member, at one place, and syncs all. Returns the members that failed.
fn write_to_all(
    env: &Env,
    members: &[Option<Arc<Member>>],
    offset_bytes: u64,
    bytes: impl Fn(usize) -> Vec<u8>,
    context: &IoContext,
) -> Vec<(usize, MediaError)> {
    let alignment = |member: &Member| member.device.block.capabilities().buffer_alignment_bytes as usize;
    let ios = members.iter().enumerate().filter_map(|(slot, member)| {
        let bytes = Arc::new(AlignedBuffer::copy_of(&bytes(slot), alignment(member.as_ref()?)));
        Some((slot, MemberIo::new(offset_bytes, IoKind::Write { bytes, tuples: None, is_durable: false })))
    });
    let work = PartWork { before: &mut |_, _, _| (), arrived: &mut |_, _, _| (), overlaps: false };
    let done = run_all(env, members, ios.collect(), work, context);
    let mut failed: Vec<(usize, MediaError)> =
        done.into_iter().filter_map(|(slot, io)| Some((slot, io.outcome.err()?))).collect();
    for (slot, error) in sync_all(env, members, context) {
        if failed.iter().all(|(other, _)| *other != slot) {
            failed.push((slot, error));
        }
    }
    failed
}

/// Writes both copies of the superblock of each member, one durable before the other. Returns the members that failed.
pub(super) fn write_superblocks(
    env: &Env,
    members: &[Option<Arc<Member>>],
    superblock: &Superblock,
    context: &IoContext,
) -> Vec<(usize, MediaError)> {
    for offset_bytes in COPIES {
        let failed = write_to_all(env, members, offset_bytes, |slot| superblock.for_slot(slot).encode(), context);
        if !failed.is_empty() {
            return failed;
        }
    }
    Vec::new()
}

/// Writes a page of the intent map to each member. Returns the members that failed.
pub(super) fn write_page(
    env: &Env,
    members: &[Option<Arc<Member>>],
    (superblock, page): (&Superblock, &IntentPage),
    context: &IoContext,
) -> Vec<(usize, MediaError)> {
    let bytes = page.encode(&superblock.identity, superblock.regions());
    write_to_all(env, members, INTENT_PAGES[(page.update % 2) as usize], |_| bytes.clone(), context)
}

impl Shared {
    /// A write to a member failed: the array goes on without it, if it can.
    ///
    /// # Errors
    /// It cannot, or the request was wrong.
    pub(super) fn write_failed(&self, slot: usize, error: MediaError) -> Result<(), MediaError> {
        let is_request = error.kind() == MediaErrorKind::InvalidRequest;
        match self.geometry.level == RaidLevel::Raid0 || is_request {
            true => Err(error),
            false => self.lose(vec![(slot, error)]),
        }
    }

    /// Goes on without members, and records that on the others before it returns.
    ///
    /// # Errors
    /// More members are lost than the level tolerates: the array has stopped.
    pub(super) fn lose(&self, mut failed: Vec<(usize, MediaError)>) -> Result<(), MediaError> {
        let mut record = self.record.lock();
        while !failed.is_empty() {
            let mut has_changed = false;
            for (slot, error) in failed.drain(..) {
                has_changed |= self.mark_lost(slot, error)?;
            }
            if has_changed {
                failed = self.write_record(&mut record);
            }
        }
        Ok(())
    }

    /// Takes a member out of use in memory. Returns whether it was in use.
    fn mark_lost(&self, slot: usize, error: MediaError) -> Result<bool, MediaError> {
        let mut state = self.state.lock();
        if let Some(stopped) = &state.stopped {
            return Err(stopped.clone());
        }
        let lost = state.slots.iter().filter(|slot| slot.state != MemberState::InUse).count();
        let (level, members) = (self.geometry.level, state.slots.len());
        let tolerated = level.tolerated(members);
        match state.slots[slot].state {
            MemberState::Lost => return Ok(false),
            MemberState::InUse if lost >= tolerated => {
                let member = state.slots[slot].member.as_ref();
                let member = member.map_or(String::new(), |member| member.device.block.name().to_owned());
                let stopped = Stopped { slot, member, lost, members, level, tolerated, source: error };
                let stopped = MediaError::io(&self.name, Operation::Write, 0, std::io::Error::other(stopped));
                state.stopped = Some(stopped.clone());
                return Err(stopped);
            }
            MemberState::InUse | MemberState::Rebuilding { .. } => {}
        }
        state.slots[slot].state = MemberState::Lost;
        state.generation += 1;
        state.statistics.failed_members += 1;
        Ok(true)
    }

    /// Stops the array, as its journal cannot be written.
    fn stop_without_journal(&self, device: &Device, error: MediaError) -> MediaError {
        let stopped = StoppedWithoutJournal { device: device.block.name().to_owned(), source: error };
        let stopped = MediaError::io(&self.name, Operation::Write, 0, std::io::Error::other(stopped));
        self.state.lock().stopped.get_or_insert(stopped).clone()
    }

    /// Writes the members in use to all of them. Returns those that failed.
    pub(super) fn write_record(&self, record: &mut Superblock) -> Vec<(usize, MediaError)> {
        let (members, generation) = {
            let state = self.state.lock();
            record.generation = state.generation;
            (record.in_use, record.rebuilding) = (0, 0);
            let mut members = Vec::new();
            for (number, slot) in state.slots.iter().enumerate() {
                let is_in_use = slot.state != MemberState::Lost;
                record.in_use |= u64::from(is_in_use) << number;
                record.rebuilding |= u64::from(matches!(slot.state, MemberState::Rebuilding { .. })) << number;
                members.push(slot.member.clone().filter(|_| is_in_use));
            }
            (members, state.generation)
        };
        let context = IoContext::of(IoClass::Metadata);
        let failed = write_superblocks(&self.env, &members, record, &context);
        if failed.is_empty() {
            let mut state = self.state.lock();
            state.recorded = state.recorded.max(generation);
        }
        failed
    }

    /// Members that are in use.
    pub(super) fn used_members(&self) -> Vec<Option<Arc<Member>>> {
        let state = self.state.lock();
        let used = |slot: &super::device::Slot| slot.member.clone().filter(|_| slot.state != MemberState::Lost);
        state.slots.iter().map(used).collect()
    }

    /// Waits until the members that are in use are recorded: nothing is acknowledged before.
    pub(super) fn settle(&self) -> Result<(), MediaError> {
        {
            let state = self.state.lock();
            if state.generation == state.recorded {
                return Ok(());
            }
        }
        // Its holder records them.
        drop(self.record.lock());
        self.check_running()
    }

    /// Writes a page of the intent map to all members in use.
    ///
    /// # Errors
    /// The array has stopped.
    pub(super) fn write_intents(
        &self,
        intents: &mut IntentMap,
        page: IntentPage,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let superblock = self.record.lock().clone();
        let failed = write_page(&self.env, &self.used_members(), (&superblock, &page), context);
        if !failed.is_empty() {
            self.lose(failed)?;
        }
        intents.written(page);
        self.state.lock().statistics.intent_updates += 1;
        Ok(())
    }

    /// Makes what was written before durable on all members in use.
    pub(super) fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.check_running()?;
        let covered = self.intents.lock().completed();
        let failed = sync_all(&self.env, &self.used_members(), context);
        if let (RaidLevel::Raid0, Some((_, error))) = (self.geometry.level, failed.first()) {
            // What it dropped is lost: each member's order of syncs refuses every later one.
            return Err(error.clone());
        }
        if !failed.is_empty() {
            self.lose(failed)?;
        }
        self.settle()?;
        self.intents.lock().synced(covered);
        Ok(())
    }

    /// Calls `work` with what the journal of stripes needs of the array.
    pub(super) fn with_surroundings<T>(&self, context: &IoContext, work: impl FnOnce(&Surroundings<'_>) -> T) -> T {
        let grounds = || {
            let state = self.state.lock();
            let slots = state.slots.iter().enumerate().filter(|(_, slot)| slot.state == MemberState::InUse);
            let ground = |(number, slot): (usize, &super::device::Slot)| {
                slot.member.as_ref().map(|member| (number, member.device.clone(), Arc::clone(&member.order)))
            };
            slots.filter_map(ground).collect()
        };
        let own = self.journal.as_ref().and_then(|journal| journal.own());
        let grounds = || own.map_or_else(grounds, |own| vec![own.clone()]);
        let replicas = match own {
            None => self.geometry.level.tolerated(self.geometry.members) + 1,
            Some(_) => 1,
        };
        let lose = |failed: Vec<(usize, MediaError)>| match (own, failed.first()) {
            (Some((_, device, _)), Some((_, error))) => Err(self.stop_without_journal(device, error.clone())),
            _ => self.lose(failed),
        };
        let sync = || self.sync(context);
        work(&Surroundings { replicas, grounds: &grounds, sync: &sync, lose: &lose })
    }

    /// Takes away marks of regions that need no resync, when the last handle goes. Without it there is more to resync.
    pub(super) fn close(&self) {
        let context = IoContext::of(IoClass::Metadata);
        if self.is_read_only {
            return;
        }
        if let Some(journal) = &self.journal {
            self.with_surroundings(&context, |array| journal.close(array, &context));
        }
        if self.geometry.level == RaidLevel::Raid0 {
            return;
        }
        let has_marks = !self.intents.lock().page().marked.is_empty();
        if has_marks && self.sync(&context).is_ok() {
            let mut intents = self.intents.lock();
            if let Some(page) = intents.close() {
                // The marks of an array that has stopped stay.
                let _ = self.write_intents(&mut intents, page, &context);
            }
        }
    }

    /// Slots whose members are lost.
    pub(super) fn lost_slots(&self) -> BTreeSet<usize> {
        let state = self.state.lock();
        let lost = state.slots.iter().enumerate().filter(|(_, slot)| slot.state == MemberState::Lost);
        lost.map(|(number, _)| number).collect()
    }
}
