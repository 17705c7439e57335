//! Zones that are read, merged and written anew.

use super::device::Shared;
use super::eviction::cleaning;
use super::pages::Leaving;
use super::record::{PAGE_BYTES, Staged};
use super::transfer::runs;
use varve_media::{BlockDeviceExt, IoContext, MediaError, ZoneId};

/// Pieces in which a zone is copied.
const COPY_BYTES: u64 = 4 << 20;

impl Shared {
    /// Reads a zone, merges pages into it, and writes it anew, with a copy beside the buffer meanwhile.
    pub(super) fn rewrite(&self, zone: ZoneId, pages: &[u64], context: &IoContext) -> Result<(), MediaError> {
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
        self.tell(&state);
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
}
