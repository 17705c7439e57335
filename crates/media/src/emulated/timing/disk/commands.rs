//! The host's side of a disk: commands, the cache and the link.

use super::{Arm, Arriving, Disk, Incoming, PendingFlush, Waiting};
use std::ops::Range;

impl Disk {
    pub(super) fn submit_read(&mut self, id: u64, range: Range<u64>) {
        let now = self.now_nanos;
        let after_write = std::mem::replace(&mut self.last_was_write, false);
        if self.serve_from_cache(id, &range, self.parameters.overhead.nanos(false, true, after_write)) {
            return;
        }
        let begun = self.segments.holding_start(&range).is_some();
        if begun
            && let Arm::ReadingAhead { limit_byte, .. } = &mut self.arm
            && *limit_byte >= range.start
        {
            // The arm is on its way to these bytes; it shall not stop short of them meanwhile.
            let wanted = range.end.saturating_add(self.parameters.cache.read_ahead_bytes);
            *limit_byte = (*limit_byte).max(wanted).min(self.mechanism.capacity_bytes());
        }
        let ready_nanos = now + self.parameters.overhead.nanos(false, begun, after_write);
        self.waiting.push(Waiting { id, range, write: false, arrival_nanos: now, ready_nanos });
    }

    /// Completes a read whose bytes are all in the cache; false if they are not.
    pub(super) fn serve_from_cache(&mut self, id: u64, range: &Range<u64>, overhead_nanos: u64) -> bool {
        let in_segment = self.segments.covers(range);
        if !in_segment && !self.dirty.covers(range) {
            return false;
        }
        self.counters.cache_hits += 1;
        let done = self.occupy_link(self.now_nanos + overhead_nanos, range.end - range.start);
        self.complete_at(done, id);
        if in_segment {
            self.segments.touch(range.start);
            self.read_on_after_hit(range);
        }
        true
    }

    /// Keeps the read-ahead in front of a host that reads from it.
    pub(super) fn read_on_after_hit(&mut self, range: &Range<u64>) {
        let cache = self.parameters.cache;
        let Some(run) = self.segments.holding_start(range) else { return };
        let limit = (range.end.saturating_add(cache.read_ahead_bytes)).min(self.mechanism.capacity_bytes());
        // A hit that takes several segments together has no one read-ahead to keep going.
        let Some(unread) = run.end.checked_sub(range.end) else { return };
        match &mut self.arm {
            Arm::ReadingAhead { next_byte, limit_byte } if *next_byte == run.end => {
                *limit_byte = limit.max(*limit_byte);
            }
            Arm::Free if cache.read_ahead_on_hit && unread < cache.read_ahead_bytes / 2 && run.end < limit => {
                self.head.nanos = self.now_nanos;
                self.arm = Arm::ReadingAhead { next_byte: run.end, limit_byte: limit };
            }
            _ => {}
        }
    }

    pub(super) fn submit_write(&mut self, id: u64, range: Range<u64>, durable: bool) {
        let now = self.now_nanos;
        let after_write = std::mem::replace(&mut self.last_was_write, true);
        let continues = range.start > 0 && self.segments.holding_start(&(range.start - 1..range.start)).is_some();
        let ready_nanos = now + self.parameters.overhead.nanos(true, continues, after_write);
        if durable || self.parameters.cache.write_bytes == 0 {
            self.overwritten(&range);
            self.dirty.remove(&range);
            let ready_nanos = self.occupy_link(ready_nanos, range.end - range.start);
            self.waiting.push(Waiting { id, range, write: true, arrival_nanos: now, ready_nanos });
        } else {
            self.incoming.push_back(Incoming { id, rest: range, ready_nanos });
            self.accept();
        }
    }

    /// Tells the read cache about new bytes.
    pub(super) fn overwritten(&mut self, range: &Range<u64>) {
        if let Arm::ReadingAhead { next_byte, limit_byte } = &mut self.arm
            && range.start < *limit_byte
            && range.end > *next_byte
        {
            *limit_byte = range.start.max(*next_byte);
        }
        if self.parameters.cache.keeps_written {
            self.segments.remove(range);
            self.segments.insert(range.clone());
        } else {
            self.segments.remove(range);
        }
    }

    /// Takes writes into the cache as far as there is space.
    pub(super) fn accept(&mut self) {
        let physical = self.parameters.physical_sector_bytes.max(1);
        while let Some(front) = self.incoming.front() {
            let occupied = self.dirty.bytes() + self.destaging_bytes() + self.arriving_bytes;
            let space_bytes = self.parameters.cache.write_bytes.saturating_sub(occupied);
            let mut taken = front.rest.clone();
            if self.dirty.missing_bytes(&taken) > space_bytes {
                // To the end of a physical sector, lest its two parts be written one by one.
                taken.end = taken.end.min((taken.start + space_bytes) / physical * physical);
            }
            if taken.end <= taken.start {
                return;
            }
            let (id, ready_nanos, end) = (front.id, front.ready_nanos, front.rest.end);
            let over = self.occupy_link(ready_nanos.max(self.now_nanos), taken.end - taken.start);
            self.arriving_bytes += taken.end - taken.start;
            let generation = self.generation;
            self.arriving.push_back(Arriving { range: taken.clone(), generation, there_nanos: over });
            if taken.end == end {
                self.complete_at(over, id);
                self.incoming.pop_front();
            } else if let Some(front) = self.incoming.front_mut() {
                front.rest.start = taken.end;
            }
        }
    }

    /// Makes what has crossed the link part of the cache.
    pub(super) fn take_arrived(&mut self) {
        while self.arriving.front().is_some_and(|arriving| arriving.there_nanos <= self.now_nanos)
            && let Some(Arriving { range, generation, .. }) = self.arriving.pop_front()
        {
            self.arriving_bytes -= range.end - range.start;
            self.overwritten(&range);
            self.dirty.insert(range, generation);
        }
    }

    pub(super) fn submit_flush(&mut self, id: u64) {
        let ready_nanos = self.now_nanos + self.parameters.overhead.nanos(true, true, self.last_was_write);
        self.flushes.push(PendingFlush { id, generation: self.generation, ready_nanos });
        self.generation += 1;
        self.finish_flushes();
    }

    /// Completes the flushes whose bytes are on the medium.
    pub(super) fn finish_flushes(&mut self) {
        if self.flushes.is_empty() || self.destaging_bytes() > 0 {
            return;
        }
        let mut flushes = std::mem::take(&mut self.flushes);
        flushes.retain(|flush| {
            let clean = !self.dirty.holds_up_to(flush.generation);
            if clean {
                self.complete_at(flush.ready_nanos.max(self.now_nanos), flush.id);
            }
            !clean
        });
        self.flushes = flushes;
    }
}
