//! A conventional hard disk.
//!
//! One arm serves reads, urgent and idle write-back and read-ahead; a link moves bytes between
//! host and cache beside it. What the arm does next is decided when it becomes free, from what is
//! known then ([`Disk::dispatch`]); everything else is arithmetic. Time is charged to what the arm
//! does; while it rests, to overhead if a command is in progress and to idle if none is.

mod arm;
mod commands;
mod dirty;
mod mechanism;
mod parameters;
mod seek;
mod segments;

pub use mechanism::{LayoutZone, MechanismParameters, SurfaceOrder};
pub(crate) use parameters::data_share;
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
    /// Bytes the cache has promised space for, crossing the link.
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

/// Which goes first when both reads and urgent write-back want the arm.
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

impl Timing for Disk {
    fn describe(&self, capabilities: &mut Capabilities) {
        capabilities.rotational = true;
        capabilities.volatile_cache = self.parameters.cache.write_bytes > 0;
        capabilities.forced_unit_access = true;
        capabilities.queue_depth = self.parameters.queue_depth.max(1);
        capabilities.seek = Some(self.parameters.mechanism.seek_times());
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
            // Zones of a disk are a matter of its controller: their commands cost what any command costs.
            Work::Discard | Work::ResetZone | Work::FinishZone | Work::ManageZone => {
                if matches!(task.work, Work::Discard | Work::ResetZone) {
                    self.dirty.remove(&range);
                    self.segments.remove(&range);
                }
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
