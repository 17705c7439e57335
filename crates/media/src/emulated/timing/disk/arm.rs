//! The medium's side of a disk: what the arm does, and what it does next.

use super::mechanism::Access;
use super::{Arm, Disk, Operation, Purpose, Scheduling, Waiting};
use std::ops::Range;

impl Disk {
    /// Brings the read-ahead up to now.
    pub(super) fn update_read_ahead(&mut self) {
        if let Arm::ReadingAhead { next_byte, limit_byte } = self.arm {
            let unit = self.parameters.sector_bytes;
            let next = self.mechanism.read_until(&mut self.head, next_byte, limit_byte, self.now_nanos, unit);
            self.counters.read_bytes += next - next_byte;
            self.segments.insert(next_byte..next);
            self.arm = if next < limit_byte { Arm::ReadingAhead { next_byte: next, limit_byte } } else { Arm::Free };
        }
    }

    /// Whether write-back may not wait, and up to which generation.
    pub(super) fn urgent_generation(&mut self) -> Option<u64> {
        if self.dirty.is_empty() {
            return None;
        }
        let cache = &self.parameters.cache;
        let urgent = cache.destage_urgent_bytes.min(cache.write_bytes);
        self.pressed = self.dirty.bytes() > if self.pressed { urgent / 2 } else { urgent };
        if self.pressed || !self.incoming.is_empty() {
            return Some(u64::MAX);
        }
        self.flushes.iter().map(|flush| flush.generation).max().filter(|&newest| self.dirty.holds_up_to(newest))
    }

    /// The waiting request to serve next.
    pub(super) fn choose_waiting(&self) -> Option<usize> {
        let now = self.now_nanos;
        let depth = self.parameters.queue_depth.max(1) as usize;
        let ready = self.waiting.iter().enumerate().take(depth).filter(|(_, waiting)| waiting.ready_nanos <= now);
        match self.parameters.scheduling {
            Scheduling::Fifo => ready.map(|(number, _)| number).next(),
            Scheduling::Elevator => {
                let from = self.elevator_byte;
                ready
                    .min_by_key(|(_, waiting)| (waiting.range.start < from, waiting.range.start))
                    .map(|(number, _)| number)
            }
            Scheduling::ShortestPositioning { ageing_divisor } => {
                let mut head = self.head;
                head.nanos = now;
                let cost = |waiting: &Waiting| {
                    let positioning = if !waiting.write && self.reads_on(&waiting.range).is_some() {
                        0
                    } else {
                        let place = self.mechanism.place(waiting.range.start);
                        let access = self.mechanism.positioning(&head, &place, waiting.write);
                        access.seek_nanos + access.rotation_nanos
                    };
                    i128::from(positioning) - i128::from((now - waiting.arrival_nanos) / ageing_divisor.max(1))
                };
                ready.min_by_key(|(_, waiting)| cost(waiting)).map(|(number, _)| number)
            }
        }
    }

    /// Where the read-ahead in progress stands, if a read of `range` would merely go on with it.
    pub(super) fn reads_on(&self, range: &Range<u64>) -> Option<u64> {
        match self.arm {
            Arm::ReadingAhead { next_byte, .. } => {
                let held = self.segments.holding_start(range).map(|run| run.end);
                (held == Some(next_byte) || range.start == next_byte).then_some(next_byte)
            }
            _ => None,
        }
    }

    /// Gives the arm its next work, if it is free for any.
    pub(super) fn dispatch(&mut self) {
        if matches!(self.arm, Arm::Busy(_)) {
            return;
        }
        self.update_read_ahead();
        self.serve_what_read_ahead_brought();
        let urgent = self.urgent_generation();
        let chosen = if self.waiting.is_empty() { None } else { self.choose_waiting() };
        match (chosen, urgent) {
            (Some(number), None) => self.begin_waiting(number),
            (Some(number), Some(generation_max)) => {
                if self.now_nanos >= self.slice.until_nanos {
                    self.slice.destage = !self.slice.destage;
                    self.slice.until_nanos = self.now_nanos + self.parameters.cache.contention_slice_nanos;
                }
                if self.slice.destage {
                    self.begin_destage(generation_max, true);
                } else {
                    self.begin_waiting(number);
                }
            }
            (None, Some(generation_max)) => self.begin_destage(generation_max, true),
            (None, None) => {
                let enough = self.dirty.bytes() >= self.parameters.cache.destage_begin_bytes;
                self.flowing = !self.dirty.is_empty() && (self.flowing || enough);
                if self.flowing || self.idle_destage_nanos().is_some_and(|nanos| nanos <= self.now_nanos) {
                    self.begin_destage(u64::MAX, false);
                }
            }
        }
    }

    /// When write-back begins unasked, unless something happens before.
    pub(super) fn idle_destage_nanos(&self) -> Option<u64> {
        let quiet = self.waiting.is_empty() && !self.dirty.is_empty();
        quiet.then(|| self.quiet_since_nanos + self.parameters.cache.destage_delay_nanos)
    }

    /// Completes waiting reads whose bytes have come in meanwhile.
    pub(super) fn serve_what_read_ahead_brought(&mut self) {
        let mut number = 0;
        while number < self.waiting.len() {
            let waiting = &self.waiting[number];
            let (id, range) = (waiting.id, waiting.range.clone());
            let ready = waiting.ready_nanos <= self.now_nanos && !waiting.write;
            if ready && self.segments.covers(&range) && self.serve_from_cache(id, &range, 0) {
                self.waiting.remove(number);
            } else {
                number += 1;
            }
        }
    }

    /// Sends the arm to a waiting request.
    pub(super) fn begin_waiting(&mut self, number: usize) {
        let Waiting { id, range, write, .. } = self.waiting.remove(number);
        let now = self.now_nanos;
        if write {
            return self.begin(Purpose::Write { id }, range, true);
        }
        match self.reads_on(&range) {
            Some(next_byte) => {
                // The head is in the middle of it: no positioning, and time goes on from where the
                // read-ahead stood, which is no later than now.
                let mut head = self.head;
                let mut access = self.mechanism.access(&mut head, next_byte, range.end, false);
                let past = now.saturating_sub(self.head.nanos);
                access = without_the_first(access, past);
                let purpose = Purpose::Read { id, range: range.clone(), first_byte_nanos: now };
                self.arm =
                    Arm::Busy(Operation { purpose, begin_nanos: now, access, head, range: next_byte..range.end });
                self.count_seeks(access);
            }
            None => {
                let held = self.segments.holding_start(&range).map_or(range.start, |run| run.end.min(range.end));
                let mut head = self.head;
                head.nanos = now;
                let place = self.mechanism.place(held);
                let first = self.mechanism.positioning(&head, &place, false);
                let first_byte_nanos =
                    if held > range.start { now } else { now + first.seek_nanos + first.rotation_nanos };
                let media = held..range.end;
                self.begin(Purpose::Read { id, range, first_byte_nanos }, media, false);
            }
        }
    }

    /// Sends the arm to write back what the elevator comes to next, at most to the end of a track.
    pub(super) fn begin_destage(&mut self, generation_max: u64, urgent: bool) {
        let Some(run) = self.dirty.next_run(self.elevator_byte, generation_max) else { return };
        let physical = self.parameters.physical_sector_bytes.max(1);
        let rest = self.mechanism.place(run.start).rest_of_track;
        let until = (run.start + rest) / physical * physical;
        let until = if until > run.start { until } else { run.start + physical };
        let range = run.start..until.min(run.end);
        self.dirty.remove(&range);
        self.begin(Purpose::Destage { urgent }, range, true);
    }

    /// Begins an operation on `range` from where the arm is.
    pub(super) fn begin(&mut self, purpose: Purpose, range: Range<u64>, write: bool) {
        let mut head = self.head;
        head.nanos = self.now_nanos;
        let mut access = self.mechanism.access(&mut head, range.start, range.end, write);
        if write {
            let again = self.rewrites(&range) * self.mechanism.rotation_nanos();
            access.rotation_nanos += again;
            head.nanos += again;
        }
        self.count_seeks(access);
        self.arm = Arm::Busy(Operation { purpose, begin_nanos: self.now_nanos, access, head, range });
    }

    /// Further rotations a write costs because its ends are not whole physical sectors: the sector
    /// is read in passing and written when it comes round again. Both ends of one track share one.
    pub(super) fn rewrites(&mut self, range: &Range<u64>) -> u64 {
        let physical = self.parameters.physical_sector_bytes.max(1);
        let begin = !range.start.is_multiple_of(physical);
        let end = !range.end.is_multiple_of(physical) && range.end < self.mechanism.capacity_bytes();
        let one_track = range.end - range.start <= self.mechanism.place(range.start).rest_of_track;
        let one_sector = range.start / physical == (range.end - 1) / physical;
        let sectors = u64::from(begin) + u64::from(end && !(begin && one_sector));
        self.counters.read_bytes += sectors * physical;
        self.counters.written_bytes += if begin { range.start % physical } else { 0 };
        self.counters.written_bytes += if end { physical - range.end % physical } else { 0 };
        if one_track { sectors.min(1) } else { sectors }
    }

    pub(super) fn count_seeks(&mut self, access: Access) {
        self.counters.seeks += access.seeks;
    }

    /// Ends the operation whose time has come.
    pub(super) fn finish(&mut self, operation: Operation) {
        let Operation { purpose, head, range, .. } = operation;
        self.head = head;
        self.elevator_byte = range.end;
        let bytes = range.end - range.start;
        match purpose {
            Purpose::Read { id, range: wanted, first_byte_nanos } => {
                self.counters.read_bytes += bytes;
                self.segments.insert(range.clone());
                // Bytes cross the link as they come; the last sector cannot before it has been read.
                let tail = self.now_nanos + self.link_nanos(self.parameters.sector_bytes.min(bytes));
                let wanted_bytes = wanted.end - wanted.start;
                let done = tail.max(self.link_free_nanos.max(first_byte_nanos) + self.link_nanos(wanted_bytes));
                self.link_free_nanos = done;
                self.complete_at(done, id);
                let ahead = range.end.saturating_add(self.parameters.cache.read_ahead_bytes);
                let limit_byte = ahead.min(self.mechanism.capacity_bytes());
                if self.parameters.cache.read_segments > 0 && range.end < limit_byte {
                    self.arm = Arm::ReadingAhead { next_byte: range.end, limit_byte };
                }
            }
            Purpose::Write { id } => {
                self.counters.written_bytes += bytes;
                self.complete_at(self.now_nanos, id);
            }
            Purpose::Destage { .. } => {
                self.counters.written_bytes += bytes;
                self.finish_flushes();
                self.accept();
            }
        }
    }
}

/// The access without its first `past` nanoseconds.
fn without_the_first(access: Access, past: u64) -> Access {
    let seek_nanos = access.seek_nanos.saturating_sub(past);
    let past = past - (access.seek_nanos - seek_nanos);
    let rotation_nanos = access.rotation_nanos.saturating_sub(past);
    let past = past - (access.rotation_nanos - rotation_nanos);
    Access { seek_nanos, rotation_nanos, transfer_nanos: access.transfer_nanos.saturating_sub(past), ..access }
}
