//! Reads: each part from where the newest is.

use super::device::{Shared, State};
use super::record::PAGE_BYTES;
use super::transfer::{parts_of, read_parts, runs, scatter};
use std::ops::Range;
use varve_media::{AlignedBuffer, IoContext, MediaError, Request, Transfer, ZoneId};

/// Where a part of a read comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Disk {
        offset_bytes: u64,
    },
    /// A page of the buffer, or the copy of a zone.
    Fast {
        offset_bytes: u64,
        slot: Option<u32>,
    },
}

/// A part of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Which of the requests.
    request: usize,
    /// From the start of the request.
    at: u64,
    length_bytes: u64,
    source: Source,
}

impl Part {
    fn is_of_disk(&self) -> bool {
        matches!(self.source, Source::Disk { .. })
    }

    fn slot(&self) -> Option<u32> {
        match self.source {
            Source::Fast { slot, .. } => slot,
            Source::Disk { .. } => None,
        }
    }
}

/// Reads under way.
struct Reading {
    parts: Vec<Part>,
    /// Zones of the disk that they read, once for each part.
    zones: Vec<u32>,
    reads_disk: bool,
    reads_copy: bool,
}

impl Shared {
    /// Does the reads among requests. Those that were refused are left alone.
    ///
    /// # Errors
    /// The disk's, where it is asked as it is; else each request has its own.
    pub(super) fn read(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let ranges: Vec<Option<Range<u64>>> = requests
            .iter()
            .map(|request| {
                let is_read = matches!(request.transfer, Transfer::Read { .. }) && request.outcome.is_ok();
                // Of others the end may be beyond all numbers.
                let range = is_read.then(|| request.offset_bytes..request.offset_bytes + request.length_bytes());
                range.filter(|range| !range.is_empty())
            })
            .collect();
        let reading = self.begin_reads(&ranges);
        // As they are, where the buffer has nothing of any.
        let goes_whole = ranges.iter().all(Option::is_some)
            && reading.parts.len() == requests.len()
            && reading.parts.iter().all(Part::is_of_disk);
        if goes_whole {
            let result = self.disk.block.execute(requests, context);
            self.end_reads(&reading);
            return result;
        }
        let buffers = self.read_sources(&reading.parts, requests, context);
        self.end_reads(&reading);
        for (part, buffer) in reading.parts.iter().zip(&buffers) {
            scatter(&mut requests[part.request], part.at, buffer);
        }
        Ok(())
    }

    fn begin_reads(&self, ranges: &[Option<Range<u64>>]) -> Reading {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (mut parts, mut disk_reads) = (Vec::new(), 0);
        for (request, range) in ranges.iter().enumerate().filter_map(|(number, range)| Some((number, range.as_ref()?)))
        {
            let own = self.parts(state, request, range);
            disk_reads += u64::from(own.iter().any(Part::is_of_disk));
            parts.extend(own);
        }
        let zones: Vec<u32> = parts
            .iter()
            .flat_map(|part| match part.source {
                Source::Disk { offset_bytes } => self.zones_of(offset_bytes..offset_bytes + part.length_bytes),
                Source::Fast { .. } => Vec::new(),
            })
            .collect();
        let reads_copy = parts.iter().any(|part| !part.is_of_disk() && part.slot().is_none());
        state.copy_readers += u32::from(reads_copy);
        state.statistics.disk_reads += disk_reads;
        State::count(&mut state.reads_in_flight, &zones, true);
        state.disk_load.begin(disk_reads > 0);
        Reading { parts, zones, reads_disk: disk_reads > 0, reads_copy }
    }

    /// Where the parts of a read are now; what is in the buffer stays there until it is read.
    fn parts(&self, state: &mut State, request: usize, range: &Range<u64>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let mut push = |at: u64, length_bytes: u64, source: Source| {
            if let (Some(last), Source::Disk { .. }) = (parts.last_mut(), source)
                && last.is_of_disk()
            {
                last.length_bytes += length_bytes;
                return;
            }
            parts.push(Part { request, at, length_bytes, source });
        };
        for (page, own) in parts_of(range) {
            let start = page * PAGE_BYTES;
            let (slot, sectors) = state.map.find(page).unwrap_or((0, 0));
            for (is_held, from, to) in runs(sectors, own.start, own.end, self.geometry.sector_bytes.into()) {
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
        let start = self.zones.as_ref()?.start_bytes(ZoneId(staged.zone));
        let at = offset_bytes.checked_sub(start).filter(|at| *at < staged.length_bytes)?;
        Some(self.layout.staging() + at)
    }

    /// Reads parts into buffers of their own: those of the buffer, then those of the disk, each all at once.
    fn read_sources(&self, parts: &[Part], requests: &mut [Request<'_>], context: &IoContext) -> Vec<AlignedBuffer> {
        let device = |part: &Part| if part.is_of_disk() { &self.disk } else { &self.fast };
        let mut buffers: Vec<AlignedBuffer> =
            parts.iter().map(|part| self.buffer(device(part), part.length_bytes)).collect();
        for from_disk in [false, true] {
            let from = if from_disk { &self.disk } else { &self.fast };
            let (mut numbers, mut wanted) = (Vec::new(), Vec::new());
            for (part, buffer) in parts.iter().zip(&mut buffers).filter(|(part, _)| part.is_of_disk() == from_disk) {
                let (Source::Disk { offset_bytes } | Source::Fast { offset_bytes, .. }) = part.source;
                wanted.push((offset_bytes, buffer));
                numbers.push(part.request);
            }
            for (number, outcome) in numbers.into_iter().zip(read_parts(from, &mut wanted, context)) {
                if let (Err(error), true) = (outcome, requests[number].outcome.is_ok()) {
                    requests[number].outcome = Err(error);
                }
            }
        }
        buffers
    }

    fn end_reads(&self, reading: &Reading) {
        let now_nanos = self.env.now().as_nanos();
        let mut state = self.state.lock();
        reading.parts.iter().filter_map(Part::slot).for_each(|slot| state.map.end_use(slot));
        State::count(&mut state.reads_in_flight, &reading.zones, false);
        state.copy_readers -= u32::from(reading.reads_copy);
        state.disk_load.end(reading.reads_disk, now_nanos);
        self.tell(&state);
    }
}
