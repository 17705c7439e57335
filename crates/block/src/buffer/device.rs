//! The disk with its write buffer, as a device.

use super::ahead::Front;
use super::error::Stopped;
use super::journal::{Layout, MapJournal};
use super::pages::PageMap;
use super::parameters::{BufferParameters, BufferStatistics};
use super::record::{PAGE_BYTES, Staged};
use super::room::{DiskLoad, Queue};
use super::transfer::{gather, pages_of, part_of, parts_of, sectors_of, write_parts};
use crate::idler::{ControlledDevice, GhostCache};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex, MutexGuard};
use varve_media::{
    AlignedBuffer, BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry, IoContext, MediaError,
    Operation, Request, SyncOrder, Transfer, ZoneGeometry, check_request,
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
    pub(super) front: Arc<Front>,
}

pub(super) struct Shared {
    pub(super) name: String,
    pub(super) geometry: Geometry,
    pub(super) capabilities: Capabilities,
    pub(super) env: Env,
    pub(super) disk: Device,
    pub(super) fast: Device,
    /// Syncs of the two.
    pub(super) disk_order: Arc<SyncOrder>,
    pub(super) fast_order: Arc<SyncOrder>,
    /// Of the disk, if it is under control.
    pub(super) control: Option<ControlledDevice>,
    pub(super) parameters: BufferParameters,
    pub(super) layout: Layout,
    /// Of the disk, if it has any.
    pub(super) zones: Option<ZoneGeometry>,
    /// Held while a record is written, never while anybody waits for room.
    pub(super) journal: Mutex<MapJournal>,
    pub(super) state: Mutex<State>,
    /// Something in the state is otherwise.
    pub(super) changed: Condvar,
    /// Something has come for pages that leave ahead.
    pub(super) work: Condvar,
}

pub(super) struct State {
    pub(super) map: PageMap,
    /// Where the write pointers of the disk are taken to be.
    pub(super) pointers: Option<GhostCache>,
    /// Those who wait for room.
    pub(super) queue: Queue,
    /// Times that pages are being written to the disk now, and how many pages.
    pub(super) evictions: u32,
    pub(super) leaving_pages: usize,
    /// One of them writes a zone anew.
    pub(super) is_rewriting: bool,
    /// The map on the medium is being brought up to date to make room.
    pub(super) is_recording: bool,
    /// Pages could not leave ahead, and none could since.
    pub(super) has_failed: bool,
    /// Pages that are being discarded: they do not leave.
    pub(super) discards: BTreeMap<u64, Range<u64>>,
    pub(super) next_discard: u64,
    pub(super) disk_load: DiskLoad,
    /// What lets pages leave ahead waits, or is to end.
    pub(super) rests: bool,
    pub(super) is_closed: bool,
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

impl State {
    /// Refuses what a buffer that stopped does not do any more.
    pub(super) fn check(&self) -> Result<(), MediaError> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// Counts zones of a range in one of the tables of what is in flight.
    pub(super) fn count(table: &mut BTreeMap<u32, u32>, zones: &[u32], begins: bool) {
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

    pub(super) fn zones_of(&self, range: Range<u64>) -> Vec<u32> {
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
        state.disk_load.begin(true);
        drop(state);
        let mut data = self.buffer(&self.disk, range.end - range.start);
        gather(request, 0, &mut data);
        let outcome = write_parts(&self.disk, &[(range.start, &data)], context).into_iter().collect();
        let now_nanos = self.env.now().as_nanos();
        let mut state = self.state.lock();
        state.disk_load.end(true, now_nanos);
        State::count(&mut state.writes_in_flight, &zones, false);
        if let (Err(_), Some(pointers)) = (&outcome, &mut state.pointers) {
            // Nobody knows where it is.
            zones.iter().for_each(|&zone| pointers.distrust(zone));
        }
        state.is_disk_dirty = true;
        state.completed += 1;
        self.tell(&state);
        outcome
    }

    /// Begins to write pages, as soon as there is room for those that are not held. Gives where each is, and how many were not held.
    fn take_room(&self, pages: Range<u64>, context: &IoContext) -> Result<(Vec<u32>, usize), MediaError> {
        let mut state = self.state.lock();
        state.check()?;
        let missing = state.map.missing(pages.clone());
        if missing > 0 && missing + state.queue.wanted() > state.map.free() {
            state.statistics.waits += 1;
            let ticket = state.queue.join(missing);
            let waited;
            (state, waited) = self.wait_for_room(state, (ticket, &pages), context);
            state.queue.leave(ticket);
            if waited.is_err() {
                // Those behind may go.
                self.changed.notify_all();
            }
            waited?;
        }
        let missing = state.map.missing(pages.clone());
        state.statistics.absorbed_pages += missing as u64;
        state.statistics.overwritten_pages += pages.end - pages.start - missing as u64;
        // There is room for each, so each begins.
        let slots = pages.filter_map(|page| state.map.begin_write(page)).collect();
        self.wake(&state);
        Ok((slots, missing))
    }

    /// Takes a part of a write in.
    fn absorb(&self, request: &Request<'_>, range: Range<u64>, context: &IoContext) -> Result<(), MediaError> {
        let came = self.env.now();
        let pages = pages_of(&range);
        let (slots, missing) = self.take_room(pages, context)?;
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
        self.tell(&state);
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
        // Pages on their way to the disk would come to life again behind it. None of these begins to leave from here on, so it waits for no more than
        // those that have begun.
        let pages = pages_of(&range);
        let ticket = state.next_discard;
        state.next_discard += 1;
        state.discards.insert(ticket, pages.clone());
        while state.map.is_leaving(&pages) {
            self.changed.wait(&mut state);
        }
        if let Err(error) = state.check() {
            state.discards.remove(&ticket);
            self.tell(&state);
            return Err(error);
        }
        state.disk_load.begin(true);
        drop(state);
        let length_bytes = range.end - range.start;
        let outcome = self.disk.block.discard_at(range.start, length_bytes, context);
        let now_nanos = self.env.now().as_nanos();
        let mut state = self.state.lock();
        if outcome.is_ok() {
            // Not before: what the disk has is older, and would be found if it refuses.
            for page in state.map.held_in(pages) {
                state.map.discard(page, sectors_of(&part_of(&range, page), self.sector_bytes()));
            }
        }
        state.discards.remove(&ticket);
        (state.is_disk_dirty, state.completed) = (true, state.completed + 1);
        state.disk_load.end(true, now_nanos);
        self.tell(&state);
        outcome
    }
}

impl WriteBuffer {
    /// What the buffer did so far.
    pub fn statistics(&self) -> BufferStatistics {
        self.front.shared.state.lock().statistics
    }

    /// Pages that are in the buffer and not on the disk.
    pub fn held_pages(&self) -> usize {
        self.front.shared.state.lock().map.held().count()
    }
}

/// The two devices as one.
pub(super) struct BufferedDevice {
    pub(super) front: Arc<Front>,
}

impl BlockDevice for BufferedDevice {
    fn name(&self) -> &str {
        &self.front.shared.name
    }

    fn geometry(&self) -> &Geometry {
        &self.front.shared.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.front.shared.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let shared = &self.front.shared;
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
        let synced = self.front.shared.make_durable(false, context);
        self.front.shared.state.lock().counters.count_sync(&synced);
        synced
    }

    /// Requests as they came; what media wrote and read is of both devices, time and cleaning are the disk's.
    fn counters(&self) -> Counters {
        let (disk, fast) = (self.front.shared.disk.block.counters(), self.front.shared.fast.block.counters());
        Counters {
            media_written_bytes: disk.media_written_bytes + fast.media_written_bytes,
            media_read_bytes: disk.media_read_bytes + fast.media_read_bytes,
            seeks: disk.seeks,
            cache_hits: disk.cache_hits,
            time: disk.time,
            cleaning: disk.cleaning,
            ..self.front.shared.state.lock().counters.clone()
        }
    }
}
