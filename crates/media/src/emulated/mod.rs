//! Emulated devices: rules, timing and backing, composed.

mod backing;
mod queue;
mod rules;
mod timing;

pub use backing::{Backing, FileBacking, NoBacking, RamBacking};
pub use queue::Pacing;
pub use rules::{Conventional, Rules};
pub use timing::{
    CommandOverhead, Disk, DiskCacheParameters, DiskParameters, Immediate, LayoutZone, MechanismParameters,
    MediaCounters, Scheduling, SeekCurve, Ssd, SsdParameters, SurfaceOrder, Task, Timing, Work,
};

use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry, NominalPerformance};
use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer};
use parking_lot::{Mutex, RwLock};
use queue::Queue;
use std::collections::BTreeMap;
use std::ops::Range;
use varve_env::Env;

/// A device made of what may be written where ([`Rules`]), how long it takes ([`Timing`]) and
/// where the bytes are ([`Backing`]).
///
/// In a simulated env requests take virtual time; in a real one they take real time or none, as
/// [`Pacing`] says. What the rules destroy is lost: reading it is [`MediaError::Unreadable`] until
/// it is written or discarded again. In a simulation every method must be called by an actor.
pub struct Emulated {
    name: String,
    geometry: Geometry,
    capabilities: Capabilities,
    queue: Queue,
    rules: Mutex<Box<dyn Rules>>,
    backing: Box<dyn Backing>,
    unreadable: RwLock<RangeSet>,
    counters: Mutex<Counters>,
}

impl Emulated {
    /// A device called `name` in messages. In a real env its requests take their time.
    pub fn new(
        env: &Env,
        name: &str,
        geometry: Geometry,
        rules: Box<dyn Rules>,
        timing: Box<dyn Timing>,
        backing: Box<dyn Backing>,
    ) -> Self {
        Emulated::with_pacing(env, name, geometry, rules, timing, backing, Pacing::Sleep)
    }

    /// [`Emulated::new`] with a choice of what happens in a real env.
    pub fn with_pacing(
        env: &Env,
        name: &str,
        geometry: Geometry,
        rules: Box<dyn Rules>,
        timing: Box<dyn Timing>,
        backing: Box<dyn Backing>,
        pacing: Pacing,
    ) -> Self {
        let geometry = Geometry { sector_bytes: geometry.sector_bytes.max(1), ..geometry };
        let mut capabilities = Capabilities {
            rotational: false,
            volatile_cache: true,
            discard: true,
            queue_depth: 1,
            buffer_alignment_bytes: 1,
            nominal: None,
            protection: None,
            zones: None,
            tracks: None,
        };
        timing.describe(&mut capabilities);
        rules.describe(&mut capabilities);
        Emulated {
            name: name.to_owned(),
            geometry,
            capabilities,
            queue: Queue::new(env.clone(), pacing, timing),
            rules: Mutex::new(rules),
            backing,
            unreadable: RwLock::default(),
            counters: Mutex::default(),
        }
    }

    /// A conventional device of memory that takes no time: for tests that ask about bytes. Sectors
    /// of 512 bytes, physical ones of 4 KiB.
    pub fn immediate(env: &Env, name: &str, capacity_bytes: u64) -> Self {
        let geometry = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 };
        let backing = Box::new(RamBacking::new());
        Emulated::new(env, name, geometry, Box::new(Conventional), Box::<Immediate>::default(), backing)
    }

    /// The same device promising `nominal`.
    pub fn with_nominal(mut self, nominal: NominalPerformance) -> Self {
        self.capabilities.nominal = Some(nominal);
        self
    }

    /// Makes a range unreadable, as a defect of the medium would; whole sectors of it. Writing or
    /// discarding it makes it readable again.
    pub fn damage(&self, range: Range<u64>) {
        let sector = u64::from(self.geometry.sector_bytes);
        let end = range.end.min(self.geometry.capacity_bytes).next_multiple_of(sector);
        self.unreadable.write().insert(range.start / sector * sector..end);
    }

    /// Bytes of memory or disk the device's data occupies now.
    pub fn stored_bytes(&self) -> u64 {
        self.backing.stored_bytes()
    }

    /// Refuses what no device could do, before anything changes.
    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        let device = || self.name.clone();
        let operation = operation_of(&request.transfer);
        let offset_bytes = request.offset_bytes;
        let length_bytes = request.length_bytes();
        let capacity_bytes = self.geometry.capacity_bytes;
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity_bytes) {
            return Err(MediaError::OutOfRange {
                device: device(),
                operation,
                offset_bytes,
                length_bytes,
                capacity_bytes,
            });
        }
        let required_bytes = u64::from(self.geometry.sector_bytes);
        if !offset_bytes.is_multiple_of(required_bytes) || !length_bytes.is_multiple_of(required_bytes) {
            return Err(MediaError::Misaligned {
                device: device(),
                operation,
                offset_bytes,
                length_bytes,
                required_bytes,
            });
        }
        self.rules.lock().admit(&self.name, request)
    }

    /// Moves the bytes of a request whose time has passed.
    fn transfer(&self, request: &mut Request<'_>) -> Result<(), MediaError> {
        let start = request.offset_bytes;
        let range = start..start + request.length_bytes();
        let failed = |operation, offset, source| MediaError::io(&self.name, operation, offset, source);
        match &mut request.transfer {
            Transfer::Read { data, .. } => {
                if let Some(offset_bytes) = self.unreadable.read().first_within(&range) {
                    return Err(MediaError::Unreadable { device: self.name.clone(), offset_bytes });
                }
                let mut at = start;
                for slice in data.iter_mut() {
                    self.backing.read_at(at, slice).map_err(|error| failed(Operation::Read, at, error))?;
                    at += slice.len() as u64;
                }
            }
            Transfer::Write { data, .. } => {
                let mut destroyed = Vec::new();
                self.rules.lock().destroyed_by_write(range.clone(), &mut destroyed);
                if !destroyed.is_empty() {
                    let mut unreadable = self.unreadable.write();
                    for range in destroyed {
                        unreadable.insert(range);
                    }
                }
                let mut at = start;
                for slice in data.iter() {
                    self.backing.write_at(at, slice).map_err(|error| failed(Operation::Write, at, error))?;
                    at += slice.len() as u64;
                }
                self.make_readable(range);
            }
            Transfer::Discard { length_bytes } => {
                self.backing.discard(start, *length_bytes).map_err(|error| failed(Operation::Discard, start, error))?;
                self.make_readable(range);
            }
        }
        self.rules.lock().complete(&self.name, request)
    }

    fn make_readable(&self, range: Range<u64>) {
        if !self.unreadable.read().is_empty() {
            self.unreadable.write().remove(range);
        }
    }

    fn count(&self, request: &Request<'_>, context: &IoContext) {
        let length = request.length_bytes();
        let mut counters = self.counters.lock();
        if request.outcome.is_err() {
            counters.errors += 1;
            return;
        }
        match request.transfer {
            Transfer::Read { .. } => {
                counters.reads += 1;
                counters.read_bytes += length;
                counters.read_bytes_by_class[context.class.index()] += length;
            }
            Transfer::Write { .. } => {
                counters.writes += 1;
                counters.written_bytes += length;
                counters.written_bytes_by_class[context.class.index()] += length;
            }
            Transfer::Discard { .. } => counters.discards += 1,
        }
    }
}

impl BlockDevice for Emulated {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        for request in requests.iter_mut() {
            request.outcome = self.check(request);
        }
        let admitted = |request: &&Request<'_>| request.outcome.is_ok() && request.length_bytes() > 0;
        if requests.iter().any(|request| admitted(&request)) {
            self.queue.run(requests.iter().filter(admitted).map(|request| {
                let work = match request.transfer {
                    Transfer::Read { .. } => Work::Read,
                    Transfer::Write { durable, .. } => Work::Write { durable },
                    Transfer::Discard { .. } => Work::Discard,
                };
                (work, request.offset_bytes, request.length_bytes())
            }));
        }
        let mut result = Ok(());
        for request in requests.iter_mut() {
            if request.outcome.is_ok() {
                request.outcome = self.transfer(request);
            }
            self.count(request, context);
            if result.is_ok() {
                result = request.outcome.clone();
            }
        }
        result
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        self.queue.run(std::iter::once((Work::Flush, 0, 0)));
        let outcome = self.backing.sync().map_err(|error| MediaError::io(&self.name, Operation::Sync, 0, error));
        let mut counters = self.counters.lock();
        match outcome {
            Ok(()) => counters.syncs += 1,
            Err(_) => counters.errors += 1,
        }
        outcome
    }

    fn counters(&self) -> Counters {
        let media = self.queue.counters();
        Counters {
            media_written_bytes: media.written_bytes,
            media_read_bytes: media.read_bytes,
            seeks: media.seeks,
            cache_hits: media.cache_hits,
            time: media.time,
            ..self.counters.lock().clone()
        }
    }
}

fn operation_of(transfer: &Transfer<'_>) -> Operation {
    match transfer {
        Transfer::Read { .. } => Operation::Read,
        Transfer::Write { .. } => Operation::Write,
        Transfer::Discard { .. } => Operation::Discard,
    }
}

/// Byte ranges that do not touch, by their start.
#[derive(Debug, Default)]
struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&at, &until)) = self.ranges.range(..=end).next_back()
            && until >= start
        {
            start = start.min(at);
            end = end.max(until);
            self.ranges.remove(&at);
        }
        self.ranges.insert(start, end);
    }

    fn remove(&mut self, range: Range<u64>) {
        while let Some((&at, &until)) = self.ranges.range(..range.end).next_back()
            && until > range.start
            && !range.is_empty()
        {
            self.ranges.remove(&at);
            if at < range.start {
                self.ranges.insert(at, range.start);
            }
            if until > range.end {
                self.ranges.insert(range.end, until);
            }
        }
    }

    /// The first byte of `range` that is in the set.
    fn first_within(&self, range: &Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let before = self.ranges.range(..=range.start).next_back();
        if before.is_some_and(|(_, &until)| until > range.start) {
            return Some(range.start);
        }
        self.ranges.range(range.start..range.end).next().map(|(&at, _)| at)
    }
}

#[cfg(test)]
mod tests;
