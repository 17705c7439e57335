//! How pages leave for the disk, and how what happened becomes durable.

use super::device::{Shared, State, WriteBuffer};
use super::pages::Leaving;
use super::parameters::EvictionOrder;
use super::record::{PAGE_BYTES, Staged};
use super::transfer::{read_parts, runs, write_parts};
use varve_media::{AlignedBuffer, BlockDeviceExt, IoCause, IoClass, IoContext, MediaError, ZoneId};

/// Pages that are read from the buffer at once.
const PAGES_AT_ONCE: usize = 256;
/// Longest write of an eviction.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Pieces in which a zone is copied.
const COPY_BYTES: u64 = 4 << 20;
/// Where the map on the medium stands in the way of one in so many pages, it is brought up to date.
const UNRECORDED_SHARE: usize = 8;

/// How pages are to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plan {
    /// The map on the medium is to say what is free.
    Record,
    /// One after the other.
    Write(Vec<u64>),
    /// With all of their zone.
    Rewrite(ZoneId, Vec<u64>),
    /// Nothing can leave now.
    Wait,
}

fn cleaning(context: &IoContext) -> IoContext {
    IoContext { class: IoClass::Maintenance, cause: IoCause::Cleaning, deadline: None, ..*context }
}

/// A run of bytes for the disk.
struct Run {
    offset_bytes: u64,
    data: Vec<u8>,
}

impl Shared {
    /// Returns when so many pages are free, or somebody else may have taken them.
    pub(super) fn make_room(&self, needed: usize, context: &IoContext) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.map.free() >= needed {
                return Ok(());
            }
            if state.is_evicting {
                self.changed.wait(&mut state);
                continue;
            }
            let plan = self.plan(&state, needed);
            if plan == Plan::Wait {
                self.changed.wait(&mut state);
                continue;
            }
            state.is_evicting = true;
            drop(state);
            let result = match plan {
                Plan::Record => self.make_durable(true, context),
                Plan::Write(pages) => self.write_out(&pages, context),
                Plan::Rewrite(zone, pages) => self.rewrite(zone, &pages, context),
                Plan::Wait => Ok(()),
            };
            state = self.state.lock();
            state.is_evicting = false;
            self.changed.notify_all();
            result?;
        }
    }

    /// What to do for room.
    fn plan(&self, state: &State, needed: usize) -> Plan {
        let unrecorded = state.map.free_once_recorded();
        if unrecorded >= needed.max(self.parameters.page_count as usize / UNRECORDED_SHARE) {
            return Plan::Record;
        }
        let pages = state.map.oldest(self.parameters.evicted_pages_min as usize);
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else {
            return if unrecorded > 0 { Plan::Record } else { Plan::Wait };
        };
        let zone = |page: u64| self.zones.as_ref().and_then(|zones| zones.zone_at(page * PAGE_BYTES));
        match (zone(*first), self.parameters.rewrite_pages) {
            (Some(of_first), Some(most))
                if state.pointers.as_ref().is_some_and(|pointers| pointers.extent_bytes(of_first).is_some())
                    && self.parameters.order == EvictionOrder::Zones
                    && self.layout.staging_bytes > 0
                    && zone(*last) == Some(of_first)
                    && pages.len() > most as usize =>
            {
                Plan::Rewrite(of_first, pages)
            }
            _ => Plan::Write(pages),
        }
    }

    /// Writes pages to the disk.
    fn write_out(&self, pages: &[u64], context: &IoContext) -> Result<(), MediaError> {
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
            self.changed.notify_all();
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
    fn contents(&self, leaving: &[Leaving], context: &IoContext) -> Result<Vec<AlignedBuffer>, MediaError> {
        let mut contents: Vec<AlignedBuffer> = leaving.iter().map(|_| self.buffer(&self.fast, PAGE_BYTES)).collect();
        let mut parts: Vec<(u64, &mut AlignedBuffer)> = leaving
            .iter()
            .zip(&mut contents)
            .map(|(leaving, content)| (self.layout.page(leaving.slot), content))
            .collect();
        read_parts(&self.fast, &mut parts, &cleaning(context)).into_iter().collect::<Result<(), MediaError>>()?;
        Ok(contents)
    }

    /// Reads a zone, merges pages into it, and writes it anew, with a copy beside the buffer meanwhile.
    fn rewrite(&self, zone: ZoneId, pages: &[u64], context: &IoContext) -> Result<(), MediaError> {
        let (Some(zones), Some(control)) = (&self.zones, &self.disk.zones) else {
            return self.write_out(pages, context);
        };
        let start = zones.start_bytes(zone);
        let mut state = self.state.lock();
        state.busy = Some(zone.0);
        while state.writes_in_flight.contains_key(&zone.0) {
            self.changed.wait(&mut state);
        }
        // As far as anything was written, or is to be.
        let of_pages = pages.last().map_or(0, |page| (page + 1) * PAGE_BYTES - start);
        let written_bytes = state.pointers.as_ref().and_then(|pointers| pointers.extent_bytes(zone));
        let length_bytes = written_bytes.unwrap_or(zones.zone_bytes).max(of_pages).next_multiple_of(PAGE_BYTES);
        let length_bytes = length_bytes.min(zones.zone_capacity_bytes);
        let leaving: Vec<Leaving> = pages.iter().filter_map(|&page| state.map.begin_leave(page)).collect();
        drop(state);
        let context = cleaning(context);
        let mut state = self.state.lock();
        while state.copy_readers > 0 {
            // They read what this is about to overwrite.
            self.changed.wait(&mut state);
        }
        drop(state);
        if self.copy(start, length_bytes, &leaving, &context).is_err() {
            // Nothing was changed yet, and pages by themselves may do.
            let mut state = self.state.lock();
            leaving.iter().for_each(|leaving| {
                state.map.end_leave(leaving, false);
            });
            state.busy = None;
            drop(state);
            return self.write_out(pages, &context);
        }
        self.state.lock().staged = Some(Staged { zone: zone.0, length_bytes });
        let mut result = self.make_durable(true, &context);
        if result.is_ok() {
            let mut state = self.state.lock();
            state.serves_copy = true;
            while state.reads_in_flight.contains_key(&zone.0) {
                self.changed.wait(&mut state);
            }
            drop(state);
            let written = control.reset(zone, &context).and_then(|()| self.write_back(start, length_bytes, &context));
            // The copy has it all, and the next who opens this writes it back.
            result = written.map_err(|error| self.stop("writing a zone anew", error));
        }
        let mut state = self.state.lock();
        state.is_disk_dirty = true;
        for leaving in &leaving {
            let left = state.map.end_leave(leaving, result.is_ok());
            state.statistics.evicted_pages += u64::from(left);
        }
        self.changed.notify_all();
        result?;
        if let Some(pointers) = &mut state.pointers {
            pointers.reset(start, zones.zone_bytes);
            pointers.written(start, length_bytes);
        }
        state.statistics.rewritten_zones += 1;
        state.statistics.evictions += 1;
        (state.busy, state.serves_copy, state.staged) = (None, false, None);
        drop(state);
        // The copy is there for the next zone only when this one is durable without.
        self.make_durable(true, &context)
    }

    /// Copies a zone, with what leaves merged into it, to the fast device.
    fn copy(&self, start: u64, length_bytes: u64, leaving: &[Leaving], context: &IoContext) -> Result<(), MediaError> {
        let mut rest = leaving;
        let mut at = 0;
        while at < length_bytes {
            let length = COPY_BYTES.min(length_bytes - at);
            let mut data = self.buffer_of_both(length);
            self.disk.block.read_at(start + at, &mut data, context)?;
            let (now, later) = rest.split_at(rest.partition_point(|one| one.page * PAGE_BYTES < start + at + length));
            rest = later;
            for (leaving, content) in now.iter().zip(self.contents(now, context)?) {
                let page = (leaving.page * PAGE_BYTES - start - at) as usize;
                for (is_held, from, to) in runs(leaving.sectors, 0, PAGE_BYTES, self.geometry.sector_bytes.into()) {
                    if is_held {
                        let (from, to) = (from as usize, to as usize);
                        data[page + from..page + to].copy_from_slice(&content[from..to]);
                    }
                }
            }
            self.fast.block.write_at(self.layout.staging() + at, &data, context)?;
            self.state.lock().is_fast_dirty = true;
            at += length;
        }
        Ok(())
    }

    /// Writes the copy of a zone, which was reset, back in order.
    pub(super) fn write_back(&self, start: u64, length_bytes: u64, context: &IoContext) -> Result<(), MediaError> {
        let mut at = 0;
        while at < length_bytes {
            let length = COPY_BYTES.min(length_bytes - at);
            let mut data = self.buffer_of_both(length);
            self.fast.block.read_at(self.layout.staging() + at, &mut data, context)?;
            self.disk.block.write_at(start + at, &data, context)?;
            at += length;
        }
        Ok(())
    }

    /// Makes what was completed before durable, on both devices, and the map that says what is where. Those who come while a record is written
    /// share the next one.
    pub(super) fn make_durable(&self, is_for_room: bool, context: &IoContext) -> Result<(), MediaError> {
        let wanted = {
            let state = self.state.lock();
            state.check()?;
            state.completed
        };
        let mut journal = self.journal.lock();
        let mut state = self.state.lock();
        state.check()?;
        if !is_for_room && state.durable >= wanted {
            return Ok(());
        }
        let upto = state.completed;
        let mut entries = state.map.take_changes();
        let is_checkpoint = journal.is_full(entries.len());
        if is_checkpoint {
            entries = state.map.take_everything();
        }
        let staged = state.staged;
        let (is_disk_dirty, is_fast_dirty) = (state.is_disk_dirty, state.is_fast_dirty);
        (state.is_disk_dirty, state.is_fast_dirty) = (false, false);
        drop(state);
        let written =
            self.write_record(&mut journal, &entries, staged, is_checkpoint, (is_disk_dirty, is_fast_dirty), context);
        if let Err((operation, error)) = written {
            return Err(self.stop(operation, error));
        }
        let mut state = self.state.lock();
        state.map.recorded(&entries);
        state.durable = state.durable.max(upto);
        state.statistics.records += 1;
        self.changed.notify_all();
        Ok(())
    }

    fn write_record(
        &self,
        journal: &mut super::journal::Journal,
        entries: &[super::record::Entry],
        staged: Option<Staged>,
        is_checkpoint: bool,
        (is_disk_dirty, is_fast_dirty): (bool, bool),
        context: &IoContext,
    ) -> Result<(), (&'static str, MediaError)> {
        // What the map is about to say must be so before it says it.
        if is_fast_dirty {
            self.fast.block.sync(context).map_err(|error| ("a sync of its device", error))?;
        }
        if is_disk_dirty {
            self.disk.block.sync(context).map_err(|error| ("a sync of the disk", error))?;
        }
        if entries.is_empty() && !journal.says_otherwise(staged) {
            return Ok(());
        }
        let appended = journal.append(&self.fast, entries.to_vec(), staged, is_checkpoint, context);
        appended.map_err(|error| ("a record of its map", error))
    }
}

impl WriteBuffer {
    /// Writes every page to the disk, and makes that durable: the disk then has all of it.
    ///
    /// # Errors
    /// What the devices say.
    pub fn drain(&self, context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.shared;
        loop {
            let mut state = shared.state.lock();
            while state.is_evicting {
                shared.changed.wait(&mut state);
            }
            state.check()?;
            let pages = state.map.oldest(usize::MAX);
            if pages.is_empty() {
                drop(state);
                return shared.make_durable(true, context);
            }
            state.is_evicting = true;
            drop(state);
            let result = shared.write_out(&pages, context);
            shared.state.lock().is_evicting = false;
            shared.changed.notify_all();
            result?;
        }
    }
}
