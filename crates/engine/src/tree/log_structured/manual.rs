//! Compactions of a key range that somebody asked for: in the calling thread, level by level, with automatic ones held off.

use super::background::look_at_space;
use super::jobs::compaction::{self, Grant};
use super::parts::TreeParts;
use crate::error::{Error, ErrorKind};
use crate::scheduler::{self, ChosenStep, WantedRange};
use std::collections::BTreeSet;

/// A caller's compaction, counted while it waits and runs, however it ends: closing waits for it.
struct ManualCompaction<'a> {
    parts: &'a TreeParts,
    running: bool,
}

impl Drop for ManualCompaction<'_> {
    fn drop(&mut self) {
        let mut jobs = self.parts.board.lock();
        jobs.running_compactions -= usize::from(self.running);
        jobs.manual -= 1;
        self.parts.board.work.notify_all();
        self.parts.board.done.notify_all();
    }
}

/// Runs every compaction of a key range. Memtables are not looked at.
pub(super) fn compact_range(parts: &TreeParts, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
    parts.board.lock().manual += 1;
    let mut compaction = ManualCompaction { parts, running: false };
    {
        let mut jobs = parts.board.lock();
        while (jobs.running_compactions > 0 || jobs.holds_tables()) && !jobs.closing && jobs.poisoned.is_none() {
            parts.board.done.wait(&mut jobs);
        }
        if jobs.closing || jobs.poisoned.is_some() {
            let poisoned = jobs.poisoned.clone();
            drop(jobs);
            return Err(poisoned.unwrap_or(Error::Closed));
        }
        jobs.running_compactions += 1;
        compaction.running = true;
    }
    parts.files.tables.collect();
    let result = compact_levels(parts, begin, end);
    parts.files.tables.collect();
    result
}

fn compact_levels(parts: &TreeParts, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<(), Error> {
    let (mut done, mut left_out, mut part_bytes_max) = (None, BTreeSet::new(), u64::MAX);
    // Tables that flushes add meanwhile are not waited for.
    let mut level0_left = parts.catalog.version().levels[0].len();
    loop {
        parts.board.refuse_if_cancelled()?;
        if parts.space.is_short() {
            parts.space.reclaim();
        }
        let version = parts.catalog.version();
        let remembered = parts.space.remembered();
        let space = look_at_space(parts, &remembered);
        let range = WantedRange { begin, end, done: done.as_ref(), left_out: &left_out, part_bytes_max };
        let next = scheduler::next_of_range(&version, &space, &range, &*parts.catalog.policy);
        let Some(ChosenStep { plan, whole }) = next else { return Ok(()) };
        let is_of_level0 = plan.input_level == 0 && plan.output_level >= version.disjoint_from();
        let taken = if whole.is_some() && is_of_level0 { plan.inputs.len() } else { 0 };
        let is_used_up = taken > 0 && taken >= level0_left;
        level0_left = level0_left.saturating_sub(taken);
        let may_grow = space.headroom.is_none_or(|headroom| headroom.allows_growth());
        // Merges between overlapping levels may be done in any order, or not at all. While puts are refused on bands, a step that
        // takes the space of deletes is skipped.
        let is_overlapping = plan.output_level < version.disjoint_from();
        let is_optional = is_overlapping || !may_grow;
        let (claim, input_bytes) = (plan.claim(), plan.input_bytes());
        let grant = Grant::new(&parts.space, &version, &plan, space.bytes, may_grow);
        match compaction::compact(&parts.jobs(), version, plan, &grant) {
            Err(error) if is_optional && error.kind() == ErrorKind::NoSpace => {
                // Not even the manifest finds space if this fails.
                parts.catalog.settle_doubts(&parts.files, &parts.board)?;
                match claim.numbers.len() {
                    _ if !is_overlapping => done = Some(whole.unwrap_or(claim)),
                    0..=2 => left_out.extend(claim.numbers),
                    _ => part_bytes_max = input_bytes / 2,
                }
            }
            result => {
                result?;
                part_bytes_max = u64::MAX;
                match whole {
                    None => done = Some(claim),
                    Some(whole) if is_used_up => done = Some(whole),
                    Some(_) => {}
                }
            }
        }
        drop(grant);
        // The space of what this step read is the space of the next one, and of who waits for it.
        parts.files.tables.collect();
        parts.board.note_step();
    }
}
