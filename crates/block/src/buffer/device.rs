//! The disk with its write buffer, as a device.

use super::error::Stopped;
use super::journal::{Journal, Layout};
use super::pages::PageMap;
use super::parameters::{BufferParameters, BufferStatistics};
use super::record::{PAGE_BYTES, Staged};
use super::transfer::{gather, pages_of, part_of, parts_of, read_parts, runs, scatter, sectors_of, write_parts};
use crate::idler::{ControlledDevice, GhostCache};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex, MutexGuard};
use varve_media::{
    AlignedBuffer, BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry, IoContext, MediaError,
    Operation, Request, Transfer, ZoneGeometry, check_request,
};

/// A write buffer: pages of writes on a fast device that go to the disk later (Zhang, section 4.4.3).
///
/// The two look like one conventional device, whatever zones the disk has: writes are taken in, and leave by zones, but for those that are
/// in order at the write pointer of a zone, which go by. Reads are served from where the newest is. What [`ControlledDevice`] holds back for a while
/// does not concern writes and reads that the buffer can serve.
///
/// *Durability*: a sync makes the pages durable on the fast device with the map that says what they are, and what went to the disk there. Both devices are
/// needed from then on; the disk says so when it is opened without. A page that the map on the medium names is used for nothing else until that map
/// says otherwise, and what left for the disk is durable there before it says so. Of a zone that is read, merged and written anew
/// there is a copy on the fast device before it is reset.
///
/// *Failure*: a failed sync, record of the map, or write of a zone that was reset stops it: writes and syncs are refused from then on, reads go
/// on. What cannot leave for the disk stays, whoever waited for its room is told, and others leave before it is tried again.
///
/// Any thread may use it. Memory: some 100 bytes for each page, 32 for each zone. A clone is another handle.
#[derive(Clone)]
pub struct WriteBuffer {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) name: String,
    pub(super) geometry: Geometry,
    pub(super) capabilities: Capabilities,
    pub(super) env: Env,
    pub(super) disk: Device,
    pub(super) fast: Device,
    /// Of the disk, if it is under control.
    pub(super) control: Option<ControlledDevice>,
    pub(super) parameters: BufferParameters,
    pub(super) layout: Layout,
    /// Of the disk, if it has any.
    pub(super) zones: Option<ZoneGeometry>,
    /// Held while a record is written, never while anybody waits for room.
    pub(super) journal: Mutex<Journal>,
    pub(super) state: Mutex<State>,
    /// Something in the state is otherwise.
    pub(super) changed: Condvar,
}

pub(super) struct State {
    pub(super) map: PageMap,
    /// Where the write pointers of the disk are taken to be.
    pub(super) pointers: Option<GhostCache>,
    /// Somebody writes pages to the disk.
    pub(super) is_evicting: bool,
    /// The zone that is being written anew.
    pub(super) busy: Option<u32>,
    /// What the copy of a zone is.
    pub(super) staged: Option<Staged>,
    /// Reads of that zone are served from the copy.
    pub(super) serves_copy: bool,
    /// Writes by the buffer, and reads of the disk, in flight, by zone.
    pub(super) writes_in_flight: BTreeMap<u32, u32>,
    pub(super) reads_in_flight: BTreeMap<u32, u32>,
    /// Reads that are served from the copy of a zone.
    pub(super) copy_readers: u32,
    pub(super) is_disk_dirty: bool,
    pub(super) is_fast_dirty: bool,
    /// Writes and discards that are done; of these, those that a sync covered.
    pub(super) completed: u64,
    pub(super) durable: u64,
    pub(super) stopped: Option<MediaError>,
    pub(super) statistics: BufferStatistics,
    /// Of requests as they came.
    pub(super) counters: Counters,
}

/// Where a part of a read comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Disk { offset_bytes: u64 },
    Fast { offset_bytes: u64, slot: Option<u32> },
}

/// A part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// From the start of the request.
    at: u64,
    length_bytes: u64,
    source: Source,
}

impl State {
    /// Refuses what a buffer that stopped does not do any more.
    pub(super) fn check(&self) -> Result<(), MediaError> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// Counts zones of a range in one of the tables of what is in flight.
    fn count(table: &mut BTreeMap<u32, u32>, zones: &[u32], begins: bool) {
        for &zone in zones {
            let count = table.entry(zone).or_default();
            *count = if begins { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                table.remove(&zone);
            }
        }
    }
}

impl Shared {
    /// Stops the buffer, and gives what is told from now on.
    pub(super) fn stop(&self, operation: &'static str, source: MediaError) -> MediaError {
        let mut state = self.state.lock();
        if let Some(error) = &state.stopped {
            return error.clone();
        }
        let error = {
            let first = state.map.held().next();
            let stopped = Stopped {
                operation,
                source,
                pages: state.map.held().count(),
                first: first.map_or(String::new(), |page| format!(", the first at offset {}", page * PAGE_BYTES)),
            };
            MediaError::io(&self.name, Operation::Sync, 0, std::io::Error::other(stopped))
        };
        state.stopped = Some(error.clone());
        self.changed.notify_all();
        error
    }

    pub(super) fn buffer(&self, device: &Device, length_bytes: u64) -> AlignedBuffer {
        AlignedBuffer::new(length_bytes as usize, device.block.capabilities().buffer_alignment_bytes as usize)
    }

    /// A buffer that goes from one of the devices to the other.
    pub(super) fn buffer_of_both(&self, length_bytes: u64) -> AlignedBuffer {
        let alignment = |device: &Device| device.block.capabilities().buffer_alignment_bytes;
        AlignedBuffer::new(length_bytes as usize, alignment(&self.disk).max(alignment(&self.fast)) as usize)
    }

    fn zones_of(&self, range: Range<u64>) -> Vec<u32> {
        self.zones.iter().flat_map(|zones| zones.zones_in(&range)).map(|zone| zone.0).collect()
    }

    fn sector_bytes(&self) -> u64 {
        self.geometry.sector_bytes.into()
    }

    /// Whether a write is to go by the buffer: in order at the pointer of a zone, with nothing of it held.
    fn goes_by(&self, state: &State, range: &Range<u64>) -> bool {
        let (Some(zones), Some(pointers)) = (&self.zones, &state.pointers) else { return false };
        let Some(zone) = zones.zone_at(range.start).filter(|zone| range.end <= zones.range(*zone).end) else {
            return false;
        };
        state.busy != Some(zone.0) && pointers.is_at_pointer(range.start) && !state.map.holds_any(pages_of(range))
    }

    fn write(&self, request: &Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        if range.is_empty() {
            return Ok(());
        }
        let is_held_back = self.control.as_ref().is_some_and(ControlledDevice::is_holding);
        {
            let state = self.state.lock();
            state.check()?;
            if !is_held_back && self.goes_by(&state, &range) {
                return self.write_by(state, request, &range, context);
            }
        }
        self.absorb_all(request, range, context)
    }

    /// Takes a write in, or a discard as one of zeros.
    fn absorb_all(&self, request: &Request<'_>, range: Range<u64>, context: &IoContext) -> Result<(), MediaError> {
        // A page partly, then whole ones: as many at once as leave room for others.
        let pages_at_once = (u64::from(self.parameters.page_count) / 4).clamp(1, 256);
        let mut at = range.start;
        while at < range.end {
            let end = ((at / PAGE_BYTES + pages_at_once) * PAGE_BYTES).min(range.end);
            self.absorb(request, at..end, context)?;
            at = end;
        }
        Ok(())
    }

    fn write_by(
        &self,
        mut state: MutexGuard<'_, State>,
        request: &Request<'_>,
        range: &Range<u64>,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let zones = self.zones_of(range.clone());
        State::count(&mut state.writes_in_flight, &zones, true);
        if let Some(pointers) = &mut state.pointers {
            pointers.written(range.start, range.end - range.start);
        }
        state.statistics.direct_writes += 1;
        drop(state);
        let mut data = self.buffer(&self.disk, range.end - range.start);
        gather(request, 0, &mut data);
        let outcome = write_parts(&self.disk, &[(range.start, &data)], context).into_iter().collect();
        let mut state = self.state.lock();
        State::count(&mut state.writes_in_flight, &zones, false);
        if let (Err(_), Some(pointers)) = (&outcome, &mut state.pointers) {
            // Nobody knows where it is.
            zones.iter().for_each(|&zone| pointers.distrust(zone));
        }
        state.is_disk_dirty = true;
        state.completed += 1;
        self.changed.notify_all();
        outcome
    }

    /// Takes a part of a write in.
    fn absorb(&self, request: &Request<'_>, range: Range<u64>, context: &IoContext) -> Result<(), MediaError> {
        let came = self.env.now();
        let pages = pages_of(&range);
        let (slots, missing): (Vec<u32>, usize) = loop {
            let mut state = self.state.lock();
            state.check()?;
            let missing = state.map.missing(pages.clone());
            if missing <= state.map.free() {
                state.statistics.absorbed_pages += missing as u64;
                state.statistics.overwritten_pages += pages.end - pages.start - missing as u64;
                // There is room for each, so each begins.
                break (pages.filter_map(|page| state.map.begin_write(page)).collect(), missing);
            }
            state.statistics.waits += 1;
            drop(state);
            self.make_room(missing, context)?;
        };
        let mut parts = Vec::with_capacity(slots.len());
        for (&slot, (page, own)) in slots.iter().zip(parts_of(&range)) {
            let mut data = self.buffer(&self.fast, own.end - own.start);
            gather(request, page * PAGE_BYTES + own.start - request.offset_bytes, &mut data);
            parts.push((slot, own, data));
        }
        let place = |slot: u32, own: &Range<u64>| self.layout.page(slot) + own.start;
        let writes: Vec<(u64, &AlignedBuffer)> =
            parts.iter().map(|(slot, own, data)| (place(*slot, own), data)).collect();
        let outcomes = write_parts(&self.fast, &writes, context);
        let mut state = self.state.lock();
        for ((slot, own, _), outcome) in parts.iter().zip(&outcomes) {
            let sectors = sectors_of(own, self.sector_bytes());
            state.map.end_write(*slot, if outcome.is_ok() { sectors } else { 0 });
        }
        (state.is_fast_dirty, state.completed) = (true, state.completed + 1);
        self.changed.notify_all();
        drop(state);
        if let (true, Some(control)) = (missing > 0, &self.control) {
            control.absorbed(came, &range, context);
        }
        outcomes.into_iter().collect()
    }

    fn discard(&self, request: &Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        if range.is_empty() {
            return Ok(());
        }
        if self.zones.is_some() {
            // Bytes of a zone cannot be given up but all together.
            return self.absorb_all(request, range, context);
        }
        let mut state = self.state.lock();
        state.check()?;
        // Pages on their way to the disk would come to life again behind it, so nothing leaves meanwhile.
        while state.is_evicting {
            self.changed.wait(&mut state);
            state.check()?;
        }
        state.is_evicting = true;
        drop(state);
        let length_bytes = range.end - range.start;
        let outcome = self.disk.block.discard_at(range.start, length_bytes, context);
        let mut state = self.state.lock();
        if outcome.is_ok() {
            // Not before: what the disk has is older, and would be found if it refuses.
            for page in state.map.held_in(pages_of(&range)) {
                state.map.discard(page, sectors_of(&part_of(&range, page), self.sector_bytes()));
            }
        }
        (state.is_evicting, state.is_disk_dirty, state.completed) = (false, true, state.completed + 1);
        self.changed.notify_all();
        outcome
    }

    /// Where the parts of a read are now; what is in the buffer stays there until it is read.
    fn parts(&self, state: &mut State, range: &Range<u64>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut push = |at: u64, length_bytes: u64, source: Source| {
            if let (Some(last), Source::Disk { .. }) = (parts.last_mut(), source)
                && matches!(last.source, Source::Disk { .. })
            {
                last.length_bytes += length_bytes;
                return;
            }
            parts.push(Part { at, length_bytes, source });
        };
        for (page, own) in parts_of(range) {
            let start = page * PAGE_BYTES;
            let (slot, sectors) = state.map.find(page).unwrap_or((0, 0));
            for (is_held, from, to) in runs(sectors, own.start, own.end, self.sector_bytes()) {
                let source = match (is_held, self.copied(state, start + from)) {
                    (true, _) => {
                        state.map.begin_use(slot);
                        Source::Fast { offset_bytes: self.layout.page(slot) + from, slot: Some(slot) }
                    }
                    (false, Some(offset_bytes)) => Source::Fast { offset_bytes, slot: None },
                    (false, None) => Source::Disk { offset_bytes: start + from },
                };
                state.statistics.read_hit_pages += u64::from(is_held);
                push(start + from - range.start, to - from, source);
            }
        }
        parts
    }

    /// Where the copy of a byte of the disk is, if reads are served from there.
    fn copied(&self, state: &State, offset_bytes: u64) -> Option<u64> {
        let staged = state.staged.filter(|_| state.serves_copy)?;
        let start = self.zones.as_ref()?.start_bytes(varve_media::ZoneId(staged.zone));
        let at = offset_bytes.checked_sub(start).filter(|at| *at < staged.length_bytes)?;
        Some(self.layout.staging() + at)
    }

    fn read(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        let ranges = requests.iter().map(|request| {
            let is_read = matches!(request.transfer, Transfer::Read { .. }) && request.outcome.is_ok();
            is_read.then(|| request.offset_bytes..request.offset_bytes + request.length_bytes())
        });
        let ranges: Vec<Option<Range<u64>>> = ranges.map(|range| range.filter(|range| !range.is_empty())).collect();
        let parts: Vec<Vec<Part>> = ranges
            .iter()
            .map(|range| range.as_ref().map_or_else(Vec::new, |range| self.parts(&mut state, range)))
            .collect();
        let is_of_disk = |part: &&Part| matches!(part.source, Source::Disk { .. });
        let of_disk = parts.iter().filter(|parts| parts.iter().any(|part| is_of_disk(&part))).count();
        let of_zones = |part: &Part| match part.source {
            Source::Disk { offset_bytes } => self.zones_of(offset_bytes..offset_bytes + part.length_bytes),
            Source::Fast { .. } => Vec::new(),
        };
        let zones: Vec<u32> = parts.iter().flatten().flat_map(of_zones).collect();
        let reads_copy = parts.iter().flatten().any(|part| matches!(part.source, Source::Fast { slot: None, .. }));
        state.copy_readers += u32::from(reads_copy);
        if of_disk > 0 {
            state.statistics.disk_reads += of_disk as u64;
            State::count(&mut state.reads_in_flight, &zones, true);
        }
        drop(state);
        // As they are, where the buffer has nothing of any.
        let goes_whole = ranges.iter().all(Option::is_some)
            && parts.iter().all(|parts| parts.len() == 1 && parts.iter().all(|part| is_of_disk(&part)));
        if goes_whole {
            let result = self.disk.block.execute(requests, context);
            self.end_reads(&zones, &[], false);
            return result;
        }
        let mut buffers: Vec<(usize, Part, AlignedBuffer)> = Vec::new();
        for (number, parts) in parts.into_iter().enumerate() {
            for part in parts {
                let device = if is_of_disk(&&part) { &self.disk } else { &self.fast };
                buffers.push((number, part, self.buffer(device, part.length_bytes)));
            }
        }
        for from_disk in [false, true] {
            let device = if from_disk { &self.disk } else { &self.fast };
            let mut numbers = Vec::new();
            let mut wanted: Vec<(u64, &mut AlignedBuffer)> = Vec::new();
            for (number, part, buffer) in &mut buffers {
                match part.source {
                    Source::Disk { offset_bytes } if from_disk => wanted.push((offset_bytes, buffer)),
                    Source::Fast { offset_bytes, .. } if !from_disk => wanted.push((offset_bytes, buffer)),
                    _ => continue,
                }
                numbers.push(*number);
            }
            for (number, outcome) in numbers.into_iter().zip(read_parts(device, &mut wanted, context)) {
                if let (Err(error), true) = (outcome, requests[number].outcome.is_ok()) {
                    requests[number].outcome = Err(error);
                }
            }
        }
        let slots: Vec<u32> = buffers
            .iter()
            .filter_map(|(_, part, _)| match part.source {
                Source::Fast { slot, .. } => slot,
                Source::Disk { .. } => None,
            })
            .collect();
        self.end_reads(&zones, &slots, reads_copy);
        for (number, part, buffer) in &buffers {
            scatter(&mut requests[*number], part.at, buffer);
        }
        Ok(())
    }

    fn end_reads(&self, zones: &[u32], slots: &[u32], reads_copy: bool) {
        let mut state = self.state.lock();
        slots.iter().for_each(|&slot| state.map.end_use(slot));
        State::count(&mut state.reads_in_flight, zones, false);
        state.copy_readers -= u32::from(reads_copy);
        self.changed.notify_all();
    }
}

impl WriteBuffer {
    /// What the buffer did so far.
    pub fn statistics(&self) -> BufferStatistics {
        self.shared.state.lock().statistics
    }

    /// Pages that are in the buffer and not on the disk.
    pub fn held_pages(&self) -> usize {
        self.shared.state.lock().map.held().count()
    }
}

/// The two devices as one.
pub(super) struct BufferedDevice {
    pub(super) shared: Arc<Shared>,
}

impl BlockDevice for BufferedDevice {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.shared;
        let mut must_last = false;
        for request in requests.iter_mut() {
            request.outcome = check_request(self, request).and_then(|()| match &request.transfer {
                Transfer::Read { .. } => Ok(()),
                Transfer::Write { durable, .. } => {
                    must_last |= durable;
                    shared.write(request, context)
                }
                Transfer::Discard { .. } => shared.discard(request, context),
            });
        }
        if must_last {
            let synced = shared.make_durable(false, context);
            for request in requests.iter_mut() {
                if let (Transfer::Write { durable: true, .. }, Err(error), true) =
                    (&request.transfer, &synced, request.outcome.is_ok())
                {
                    request.outcome = Err(error.clone());
                }
            }
        }
        let has_reads = |request: &Request<'_>| matches!(request.transfer, Transfer::Read { .. });
        let read = if requests.iter().any(has_reads) { shared.read(requests, context) } else { Ok(()) };
        let mut state = shared.state.lock();
        requests.iter().for_each(|request| state.counters.count_request(request, context));
        drop(state);
        let first = requests.iter().find_map(|request| request.outcome.clone().err());
        first.map_or(read, Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let synced = self.shared.make_durable(false, context);
        let counters = &mut self.shared.state.lock().counters;
        match &synced {
            Ok(()) => counters.syncs += 1,
            Err(_) => counters.errors += 1,
        }
        synced
    }

    /// Requests as they came; what media wrote and read is of both devices, time and cleaning are the disk's.
    fn counters(&self) -> Counters {
        let (disk, fast) = (self.shared.disk.block.counters(), self.shared.fast.block.counters());
        Counters {
            media_written_bytes: disk.media_written_bytes + fast.media_written_bytes,
            media_read_bytes: disk.media_read_bytes + fast.media_read_bytes,
            seeks: disk.seeks,
            cache_hits: disk.cache_hits,
            time: disk.time,
            cleaning: disk.cleaning,
            ..self.shared.state.lock().counters.clone()
        }
    }
}
