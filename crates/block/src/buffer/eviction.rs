//! How pages leave for the disk.

use super::device::{Shared, State, WriteBuffer};
use super::pages::Leaving;
use super::record::PAGE_BYTES;
use super::room::{Situation, Turn};
use super::transfer::{read_parts, runs, write_parts};
use std::ops::Range;
use varve_env::MutexGuard;
use varve_media::{AlignedBuffer, IoCause, IoClass, IoContext, MediaError, ZoneId};

/// Pages that are read from the buffer at once.
const PAGES_AT_ONCE: usize = 256;
/// Longest write of an eviction.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// How pages are to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The map on the medium is to say what is free.
    Record,
    /// One after the other.
    Write(Vec<u64>),
    /// With all of their zone.
    Rewrite(ZoneId, Vec<u64>),
}

impl Plan {
    fn pages(&self) -> &[u64] {
        match self {
            Plan::Record => &[],
            Plan::Write(pages) | Plan::Rewrite(_, pages) => pages,
        }
    }
}

pub(super) fn cleaning(context: &IoContext) -> IoContext {
    IoContext { class: IoClass::Maintenance, cause: IoCause::Cleaning, deadline: None, ..*context }
}

/// A run of bytes for the disk.
struct Run {
    offset_bytes: u64,
    data: Vec<u8>,
}

impl Shared {
    pub(super) fn situation(&self, state: &State) -> Situation {
        Situation {
            now_nanos: self.env.now().as_nanos(),
            free: state.map.free(),
            unrecorded: state.map.free_once_recorded(),
            leaving: state.leaving_pages,
            wanted: state.queue.wanted(),
            evictions: state.evictions,
            is_recording: state.is_recording,
            outstanding: state.disk_load.outstanding,
            quiet_since_nanos: state.disk_load.quiet_since_nanos,
            is_held_back: false,
            has_failed: state.has_failed,
        }
    }

    /// Returns when there is room for what this one needs of these pages, or with why there is none.
    pub(super) fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        (ticket, pages): (u64, &Range<u64>),
        context: &IoContext,
    ) -> (MutexGuard<'a, State>, Result<(), MediaError>) {
        loop {
            if let Err(error) = state.check() {
                return (state, Err(error));
            }
            let missing = state.map.missing(pages.clone());
            state.queue.need(ticket, missing);
            if missing == 0 || state.queue.up_to(ticket) <= state.map.free() {
                return (state, Ok(()));
            }
            let found = self.situation(&state);
            let Some(plan) = self.begin(&mut state, self.parameters.turn_for_room(&found), &found) else {
                self.changed.wait(&mut state);
                continue;
            };
            drop(state);
            let result = self.perform(&plan, context);
            state = self.end(&plan, &result);
            if result.is_err() {
                return (state, result);
            }
        }
    }

    /// Begins what a turn says; `end` is due. `None` where nothing can be done now.
    pub(super) fn begin(&self, state: &mut State, turn: Turn, found: &Situation) -> Option<Plan> {
        let plan = match turn {
            Turn::Record => Plan::Record,
            Turn::Evict { writes_max } => match self.next(state, writes_max) {
                Some(plan) => plan,
                None => Some(Plan::Record).filter(|_| self.parameters.turn_without_pages(found) == Turn::Record)?,
            },
            Turn::At(_) | Turn::WhenChanged => return None,
        };
        state.begin(&plan);
        Some(plan)
    }

    /// What is to leave next, if anything can.
    fn next(&self, state: &State, writes_max: usize) -> Option<Plan> {
        let mut pages: Vec<u64> = Vec::new();
        for group in state.map.groups().filter(|group| !state.is_being_discarded(group)) {
            if let Some(zone) = self.zone_to_rewrite(state, &group) {
                if pages.is_empty() && !state.is_rewriting {
                    return Some(Plan::Rewrite(zone, group));
                }
                continue;
            }
            pages.extend(group);
            if pages.len() >= self.parameters.evicted_pages_min.max(1) as usize {
                break;
            }
        }
        pages.truncate(first_runs(&pages, writes_max));
        Some(Plan::Write(pages)).filter(|plan| !plan.pages().is_empty())
    }

    /// The zone of a group of pages, if it is to be written anew with them.
    fn zone_to_rewrite(&self, state: &State, group: &[u64]) -> Option<ZoneId> {
        let most = self.parameters.rewrite_pages.filter(|_| self.layout.staging_bytes > 0)?;
        let zone = self.zones.as_ref()?.zone_at(group.first()? * PAGE_BYTES)?;
        let can_be = state.pointers.as_ref().is_some_and(|pointers| pointers.extent_bytes(zone).is_some());
        (can_be && self.parameters.order.is_by_zones() && group.len() > most as usize).then_some(zone)
    }

    pub(super) fn perform(&self, plan: &Plan, context: &IoContext) -> Result<(), MediaError> {
        match plan {
            Plan::Record => self.make_durable(true, context),
            Plan::Write(pages) => self.write_out(pages, context),
            Plan::Rewrite(zone, pages) => self.rewrite(*zone, pages, context),
        }
    }

    /// What was begun is done.
    pub(super) fn end(&self, plan: &Plan, result: &Result<(), MediaError>) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.end(plan, result.is_ok());
        self.tell(&state);
        state
    }

    /// Writes pages to the disk.
    pub(super) fn write_out(&self, pages: &[u64], context: &IoContext) -> Result<(), MediaError> {
        for pages in pages.chunks(PAGES_AT_ONCE) {
            let mut state = self.state.lock();
            let leaving: Vec<Leaving> = pages.iter().filter_map(|&page| state.map.begin_leave(page)).collect();
            drop(state);
            let result = self.write_leaving(&leaving, context);
            let mut state = self.state.lock();
            state.is_disk_dirty = true;
            for leaving in &leaving {
                let left = state.map.end_leave(leaving, result.is_ok());
                state.statistics.evicted_pages += u64::from(left);
            }
            if result.is_err() {
                leaving.iter().for_each(|leaving| state.map.defer(leaving.page));
            }
            self.tell(&state);
            drop(state);
            result?;
        }
        self.state.lock().statistics.evictions += 1;
        Ok(())
    }

    fn write_leaving(&self, leaving: &[Leaving], context: &IoContext) -> Result<(), MediaError> {
        let contents = self.contents(leaving, context)?;
        let mut all: Vec<Run> = Vec::new();
        for (leaving, content) in leaving.iter().zip(&contents) {
            for (is_held, from, to) in runs(leaving.sectors, 0, PAGE_BYTES, self.geometry.sector_bytes.into()) {
                if !is_held {
                    continue;
                }
                let offset_bytes = leaving.page * PAGE_BYTES + from;
                let data = &content[from as usize..to as usize];
                let follows = |run: &&mut Run| {
                    run.offset_bytes + run.data.len() as u64 == offset_bytes && run.data.len() < WRITE_BYTES_MAX
                };
                match all.last_mut().filter(follows) {
                    Some(run) => run.data.extend_from_slice(data),
                    None => all.push(Run { offset_bytes, data: data.to_vec() }),
                }
            }
        }
        let alignment = self.disk.block.capabilities().buffer_alignment_bytes as usize;
        for some in all.chunks(self.parameters.requests_at_once.max(1) as usize) {
            let buffers: Vec<(u64, AlignedBuffer)> =
                some.iter().map(|run| (run.offset_bytes, AlignedBuffer::copy_of(&run.data, alignment))).collect();
            {
                let mut state = self.state.lock();
                state.statistics.eviction_writes += buffers.len() as u64;
                if let Some(pointers) = &mut state.pointers {
                    buffers.iter().for_each(|(at, data)| {
                        pointers.written(*at, data.len() as u64);
                    });
                }
            }
            let writes: Vec<(u64, &AlignedBuffer)> = buffers.iter().map(|(at, data)| (*at, data)).collect();
            write_parts(&self.disk, &writes, &cleaning(context)).into_iter().collect::<Result<(), MediaError>>()?;
        }
        Ok(())
    }

    /// What pages hold; sectors that they do not are anything.
    pub(super) fn contents(&self, leaving: &[Leaving], context: &IoContext) -> Result<Vec<AlignedBuffer>, MediaError> {
        let mut contents: Vec<AlignedBuffer> = leaving.iter().map(|_| self.buffer(&self.fast, PAGE_BYTES)).collect();
        let mut parts: Vec<(u64, &mut AlignedBuffer)> = leaving
            .iter()
            .zip(&mut contents)
            .map(|(leaving, content)| (self.layout.page(leaving.slot), content))
            .collect();
        read_parts(&self.fast, &mut parts, &cleaning(context)).into_iter().collect::<Result<(), MediaError>>()?;
        Ok(contents)
    }
}

impl State {
    fn begin(&mut self, plan: &Plan) {
        match plan {
            Plan::Record => self.is_recording = true,
            Plan::Write(pages) | Plan::Rewrite(_, pages) => {
                self.map.begin_eviction(pages);
                self.leaving_pages += pages.len();
                self.evictions += 1;
                self.is_rewriting |= matches!(plan, Plan::Rewrite(..));
            }
        }
    }

    fn end(&mut self, plan: &Plan, is_done: bool) {
        match plan {
            Plan::Record => self.is_recording = false,
            Plan::Write(pages) | Plan::Rewrite(_, pages) => {
                self.map.end_eviction(pages);
                self.leaving_pages -= pages.len();
                self.evictions -= 1;
                self.is_rewriting &= !matches!(plan, Plan::Rewrite(..));
                self.has_failed &= !is_done;
            }
        }
    }

    /// Whether somebody discards any of these pages: behind that they would come to life again.
    fn is_being_discarded(&self, pages: &[u64]) -> bool {
        self.discards.values().any(|range| pages.iter().any(|page| range.contains(page)))
    }
}

/// How many of these pages are the first so many runs of neighbours.
fn first_runs(pages: &[u64], runs_max: usize) -> usize {
    let mut begins = (0..pages.len()).filter(|&at| at == 0 || pages[at] != pages[at - 1] + 1);
    begins.nth(runs_max).unwrap_or(pages.len())
}

impl WriteBuffer {
    /// Writes every page to the disk, and makes that durable: the disk then has all of it.
    ///
    /// # Errors
    /// What the devices say.
    pub fn drain(&self, context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.front.shared;
        let mut state = shared.state.lock();
        loop {
            state.check()?;
            if state.evictions == 0 && state.map.held().next().is_none() {
                drop(state);
                return shared.make_durable(true, context);
            }
            let groups = state.map.groups().filter(|group| !state.is_being_discarded(group));
            let plan = Plan::Write(groups.flatten().collect());
            if plan.pages().is_empty() {
                shared.changed.wait(&mut state);
                continue;
            }
            state.begin(&plan);
            drop(state);
            let result = shared.perform(&plan, context);
            state = shared.end(&plan, &result);
            result?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::first_runs;

    #[test]
    fn runs_are_of_neighbours() {
        let pages = [3, 4, 6, 7, 8, 20];
        assert_eq!([0, 1, 2, 3, usize::MAX].map(|runs| first_runs(&pages, runs)), [0, 2, 5, 6, 6]);
        assert_eq!(first_runs(&[], 1), 0);
    }
}
