//! A conventional hard disk.
//!
//! One arm serves reads, urgent and idle write-back and read-ahead; a link moves bytes between
//! host and cache beside it. What the arm does next is decided when it becomes free, from what is
//! known then ([`Disk::dispatch`]); everything else is arithmetic. Time is charged to what the arm
//! does; while it rests, to overhead if a command is in progress and to idle if none is.

mod dirty;
mod mechanism;
mod parameters;
mod seek;
mod segments;

pub use mechanism::{LayoutZone, MechanismParameters, SurfaceOrder};
pub use parameters::{CommandOverhead, DiskCacheParameters, DiskParameters, Scheduling};
pub use seek::SeekCurve;

use super::{MediaCounters, Task, Timing, Work};
use crate::device::Capabilities;
use dirty::DirtyExtents;
use mechanism::{Access, Head, Mechanism};
use segments::Segments;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// A disk as a state machine. See the module's comment.
#[derive(Debug)]
pub struct Disk {
    parameters: DiskParameters,
    mechanism: Mechanism,
    now_nanos: u64,
    /// Where the arm is when it is free or reads ahead.
    head: Head,
    arm: Arm,
    /// Requests that need the arm, in order of arrival.
    waiting: Vec<Waiting>,
    /// Writes the cache has not wholly accepted, in order of arrival.
    incoming: VecDeque<Incoming>,
    /// Bytes the cache has promised room for, crossing the link.
    arriving: VecDeque<Arriving>,
    arriving_bytes: u64,
    flushes: Vec<PendingFlush>,
    /// Flushes asked for so far.
    generation: u64,
    dirty: DirtyExtents,
    /// Whether write-back is urgent because the cache holds much.
    pressed: bool,
    /// Whether write-back goes on while nothing else wants the arm.
    flowing: bool,
    segments: Segments,
    /// When the link is free again.
    link_free_nanos: u64,
    /// Tasks that are done at a known time: (time, order, id).
    completions: BTreeSet<(u64, u64, u64)>,
    completion_order: u64,
    in_flight: usize,
    /// Whether the last command was a write.
    last_was_write: bool,
    /// When the host was last heard of.
    quiet_since_nanos: u64,
    /// Where the elevator is.
    elevator_byte: u64,
    slice: Slice,
    counters: MediaCounters,
}

/// What the arm does.
#[derive(Debug)]
enum Arm {
    Free,
    Busy(Operation),
    /// Reading `next_byte..limit_byte`, to be given up for anything better.
    ReadingAhead {
        next_byte: u64,
        limit_byte: u64,
    },
}

/// What the arm cannot be called off from.
#[derive(Debug)]
struct Operation {
    purpose: Purpose,
    begin_nanos: u64,
    access: Access,
    /// Where the head will be, and when.
    head: Head,
    /// The bytes on the medium.
    range: Range<u64>,
}

#[derive(Debug)]
enum Purpose {
    Read {
        id: u64,
        /// What the host asked for.
        range: Range<u64>,
        /// When the link can begin.
        first_byte_nanos: u64,
    },
    /// A write that the host waits for.
    Write { id: u64 },
    /// Write-back.
    Destage { urgent: bool },
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    range: Range<u64>,
    write: bool,
    arrival_nanos: u64,
    /// When the command has been understood, and its bytes are here if it is a write.
    ready_nanos: u64,
}

#[derive(Debug)]
struct Incoming {
    id: u64,
    rest: Range<u64>,
    ready_nanos: u64,
}

#[derive(Debug)]
struct Arriving {
    range: Range<u64>,
    generation: u64,
    there_nanos: u64,
}

#[derive(Debug)]
struct PendingFlush {
    id: u64,
    generation: u64,
    ready_nanos: u64,
}

/// Whose turn it is when both reads and urgent write-back want the arm.
#[derive(Debug)]
struct Slice {
    destage: bool,
    until_nanos: u64,
}

impl Disk {
    /// A disk with clean platters, its arm at the outer edge.
    pub fn new(mut parameters: DiskParameters) -> Self {
        let cache = &mut parameters.cache;
        if cache.write_bytes < parameters.physical_sector_bytes {
            cache.write_bytes = 0;
        }
        let cache = *cache;
        Disk {
            mechanism: Mechanism::new(parameters.mechanism.clone()),
            now_nanos: 0,
            head: Head { cylinder: 0, surface: 0, nanos: 0 },
            arm: Arm::Free,
            waiting: Vec::new(),
            incoming: VecDeque::new(),
            arriving: VecDeque::new(),
            arriving_bytes: 0,
            flushes: Vec::new(),
            generation: 0,
            dirty: DirtyExtents::default(),
            pressed: false,
            flowing: false,
            segments: Segments::new(cache.read_segments, cache.read_segment_bytes),
            link_free_nanos: 0,
            completions: BTreeSet::new(),
            completion_order: 0,
            in_flight: 0,
            last_was_write: false,
            quiet_since_nanos: 0,
            elevator_byte: 0,
            slice: Slice { destage: true, until_nanos: 0 },
            counters: MediaCounters::default(),
            parameters,
        }
    }

    fn link_nanos(&self, bytes: u64) -> u64 {
        let rate = u128::from(self.parameters.link_bytes_per_second.max(1));
        (u128::from(bytes) * 1_000_000_000 / rate) as u64
    }

    fn complete_at(&mut self, nanos: u64, id: u64) {
        self.completion_order += 1;
        self.completions.insert((nanos, self.completion_order, id));
    }

    /// Moves bytes over the link no earlier than `from_nanos`; returns when they are over.
    fn occupy_link(&mut self, from_nanos: u64, bytes: u64) -> u64 {
        self.link_free_nanos = self.link_free_nanos.max(from_nanos) + self.link_nanos(bytes);
        self.link_free_nanos
    }

    /// Bytes the write-back in progress still occupies in the cache.
    fn destaging_bytes(&self) -> u64 {
        match &self.arm {
            Arm::Busy(Operation { purpose: Purpose::Destage { .. }, range, .. }) => range.end - range.start,
            _ => 0,
        }
    }

    // Commands.

    fn submit_read(&mut self, id: u64, range: Range<u64>) {
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
    fn serve_from_cache(&mut self, id: u64, range: &Range<u64>, overhead_nanos: u64) -> bool {
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
    fn read_on_after_hit(&mut self, range: &Range<u64>) {
        let cache = self.parameters.cache;
        let Some(run) = self.segments.holding_start(range) else { return };
        let limit = (range.end.saturating_add(cache.read_ahead_bytes)).min(self.mechanism.capacity_bytes());
        let unread = run.end - range.end;
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

    fn submit_write(&mut self, id: u64, range: Range<u64>, durable: bool) {
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
    fn overwritten(&mut self, range: &Range<u64>) {
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

    /// Takes writes into the cache as far as there is room.
    fn accept(&mut self) {
        let physical = self.parameters.physical_sector_bytes.max(1);
        while let Some(front) = self.incoming.front() {
            let occupied = self.dirty.bytes() + self.destaging_bytes() + self.arriving_bytes;
            let room = self.parameters.cache.write_bytes.saturating_sub(occupied);
            let mut taken = front.rest.clone();
            if self.dirty.missing_bytes(&taken) > room {
                // To the end of a physical sector, lest its two parts be written one by one.
                taken.end = taken.end.min((taken.start + room) / physical * physical);
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
    fn take_arrived(&mut self) {
        while self.arriving.front().is_some_and(|arriving| arriving.there_nanos <= self.now_nanos)
            && let Some(Arriving { range, generation, .. }) = self.arriving.pop_front()
        {
            self.arriving_bytes -= range.end - range.start;
            self.overwritten(&range);
            self.dirty.insert(range, generation);
        }
    }

    fn submit_flush(&mut self, id: u64) {
        let ready_nanos = self.now_nanos + self.parameters.overhead.nanos(true, true, self.last_was_write);
        self.flushes.push(PendingFlush { id, generation: self.generation, ready_nanos });
        self.generation += 1;
        self.finish_flushes();
    }

    /// Completes the flushes whose bytes are on the medium.
    fn finish_flushes(&mut self) {
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

    // The arm.

    /// Brings the read-ahead up to now.
    fn update_read_ahead(&mut self) {
        if let Arm::ReadingAhead { next_byte, limit_byte } = self.arm {
            let unit = self.parameters.sector_bytes;
            let next = self.mechanism.read_until(&mut self.head, next_byte, limit_byte, self.now_nanos, unit);
            self.counters.read_bytes += next - next_byte;
            self.segments.insert(next_byte..next);
            self.arm = if next < limit_byte { Arm::ReadingAhead { next_byte: next, limit_byte } } else { Arm::Free };
        }
    }

    /// Whether write-back may not wait, and up to which generation.
    fn urgent_generation(&mut self) -> Option<u64> {
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
    fn choose_waiting(&self) -> Option<usize> {
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
    fn reads_on(&self, range: &Range<u64>) -> Option<u64> {
        match self.arm {
            Arm::ReadingAhead { next_byte, .. } => {
                let held = self.segments.holding_start(range).map(|run| run.end);
                (held == Some(next_byte) || range.start == next_byte).then_some(next_byte)
            }
            _ => None,
        }
    }

    /// Gives the arm its next work, if it is free for any.
    fn dispatch(&mut self) {
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
    fn idle_destage_nanos(&self) -> Option<u64> {
        let quiet = self.waiting.is_empty() && !self.dirty.is_empty();
        quiet.then(|| self.quiet_since_nanos + self.parameters.cache.destage_delay_nanos)
    }

    /// Completes waiting reads whose bytes have come in meanwhile.
    fn serve_what_read_ahead_brought(&mut self) {
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
    fn begin_waiting(&mut self, number: usize) {
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
    fn begin_destage(&mut self, generation_max: u64, urgent: bool) {
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
    fn begin(&mut self, purpose: Purpose, range: Range<u64>, write: bool) {
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
    fn rewrites(&mut self, range: &Range<u64>) -> u64 {
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

    fn count_seeks(&mut self, access: Access) {
        self.counters.seeks += access.seeks;
    }

    /// Ends the operation whose time has come.
    fn finish(&mut self, operation: Operation) {
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

    // Time.

    /// Charges the time up to `nanos`, during which nothing changes, and goes there.
    fn pass(&mut self, nanos: u64) {
        let from = self.now_nanos;
        if nanos <= from {
            return;
        }
        let time = &mut self.counters.time;
        match &self.arm {
            Arm::Busy(Operation { purpose: Purpose::Destage { urgent: true }, .. }) => time.flush_nanos += nanos - from,
            Arm::Busy(Operation { begin_nanos, access, .. }) => {
                let moved = begin_nanos + access.seek_nanos;
                let arrived = moved + access.rotation_nanos;
                let overlap = |begin: u64, end: u64| nanos.min(end).saturating_sub(from.max(begin));
                time.seek_nanos += overlap(*begin_nanos, moved);
                time.rotation_nanos += overlap(moved, arrived);
                time.transfer_nanos += overlap(arrived, u64::MAX);
            }
            _ if self.in_flight > 0 => time.overhead_nanos += nanos - from,
            _ => time.idle_nanos += nanos - from,
        }
        self.now_nanos = nanos;
    }

    /// When something next changes by itself.
    fn next_change_nanos(&self) -> Option<u64> {
        let completion = self.completions.first().map(|&(nanos, _, _)| nanos);
        let arm = match &self.arm {
            Arm::Busy(operation) => Some(operation.head.nanos),
            _ => {
                let now = self.now_nanos;
                let ready = self.waiting.iter().map(|waiting| waiting.ready_nanos).filter(|&nanos| nanos > now).min();
                ready.into_iter().chain(self.idle_destage_nanos()).min()
            }
        };
        let arrival = self.arriving.front().map(|arriving| arriving.there_nanos);
        completion.into_iter().chain(arm).chain(arrival).min()
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

impl Timing for Disk {
    fn describe(&self, capabilities: &mut Capabilities) {
        capabilities.rotational = true;
        capabilities.volatile_cache = self.parameters.cache.write_bytes > 0;
        capabilities.queue_depth = self.parameters.queue_depth.max(1);
    }

    fn submit(&mut self, now_nanos: u64, task: Task) {
        self.pass(now_nanos);
        if !matches!(self.arm, Arm::Busy(_)) {
            self.update_read_ahead();
        }
        self.in_flight += 1;
        self.quiet_since_nanos = self.now_nanos;
        let range = task.offset_bytes..task.offset_bytes + task.length_bytes;
        match task.work {
            Work::Read => self.submit_read(task.id, range),
            Work::Write { durable } => self.submit_write(task.id, range, durable),
            Work::Discard => {
                self.dirty.remove(&range);
                self.segments.remove(&range);
                let nanos = self.now_nanos + self.parameters.overhead.nanos(true, true, self.last_was_write);
                self.complete_at(nanos, task.id);
                self.finish_flushes();
                self.accept();
            }
            Work::Flush => self.submit_flush(task.id),
        }
    }

    fn advance(&mut self, now_nanos: u64, completed: &mut Vec<u64>) {
        self.dispatch();
        while let Some(nanos) = self.next_change_nanos().filter(|&nanos| nanos <= now_nanos) {
            self.pass(nanos);
            self.take_arrived();
            while let Some(&(nanos, order, id)) = self.completions.first()
                && nanos <= self.now_nanos
            {
                self.completions.remove(&(nanos, order, id));
                self.in_flight -= 1;
                self.quiet_since_nanos = self.now_nanos;
                completed.push(id);
            }
            match std::mem::replace(&mut self.arm, Arm::Free) {
                Arm::Busy(operation) if operation.head.nanos <= self.now_nanos => self.finish(operation),
                arm => self.arm = arm,
            }
            self.dispatch();
        }
        self.pass(now_nanos);
        if !matches!(self.arm, Arm::Busy(_)) {
            self.update_read_ahead();
        }
    }

    fn next_event_nanos(&self) -> Option<u64> {
        if self.in_flight == 0 {
            return None;
        }
        if self.in_flight == self.completions.len() {
            return self.completions.first().map(|&(nanos, _, _)| nanos);
        }
        self.next_change_nanos()
    }

    fn counters(&self, _now_nanos: u64) -> MediaCounters {
        self.counters.clone()
    }
}

#[cfg(test)]
mod tests;
