//! Emulated devices: rules, timing and backing, composed.

mod backing;
mod enforcement;
mod queue;
mod ruled;
pub(crate) mod rules;
mod timing;

pub use backing::{Backing, CompressedBacking, FileBacking, NoBacking, RamBacking};
pub use queue::Pacing;
pub use ruled::RuledDevice;
pub use rules::*;
pub(crate) use timing::{CacheRecorded, data_share, fuzz_media_cache_record};
pub use timing::{
    CleaningOrder, CommandOverhead, Disk, DiskCacheParameters, DiskParameters, Immediate, Interrupted, LayoutZone,
    MechanismParameters, MediaCacheRecord, MediaCounters, ST8000AS0022_PUBLISHED_CACHE_BYTES, Scheduling, SeekCurve,
    SpaceReclaim, Ssd, SsdParameters, SurfaceOrder, Task, Timing, Translation, TranslationLayer, TranslationParameters,
    Work,
};

use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry, NominalPerformance};
use crate::error::{MediaError, Operation};
use crate::protection::{GuardKind, ProtectionFormat, ProtectionType};
use crate::request::{Request, Transfer, check_range, check_tuples};
use crate::zones::ZoneDescription;
use enforcement::Enforcement;
use parking_lot::Mutex;
use queue::Queue;
use rules::protected::Protected;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use varve_env::Env;

/// A device made of what may be written where ([`Rules`]), how long it takes ([`Timing`]) and
/// where the bytes are ([`Backing`]).
///
/// In a simulated env requests take virtual time; in a real one they take real time or none, as
/// [`Pacing`] says. What the rules destroy is lost: reading it is [`MediaError::Unreadable`] until
/// it is written or discarded again; of the requests of one batch those that destroy others' data are
/// done last, the order that loses most. In a simulation every method must be called by an actor.
pub struct Emulated {
    name: String,
    geometry: Geometry,
    capabilities: Capabilities,
    queue: Queue,
    enforcement: Enforcement,
    backing: Box<dyn Backing>,
    protected: Option<Protected>,
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
        let mut capabilities = Capabilities::of_blocks();
        timing.describe(&mut capabilities);
        rules.describe(&mut capabilities);
        capabilities.protection = None;
        Emulated {
            name: name.to_owned(),
            geometry,
            capabilities,
            queue: Queue::new(env.clone(), pacing, timing),
            enforcement: Enforcement::new(rules),
            backing,
            protected: None,
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

    /// The same device keeping a tuple of protection information for every sector in `tuples`, which must be empty like the data. It
    /// verifies guard and reference tags of writes, before anything changes, and of reads.
    pub fn with_protection(
        mut self,
        protection_type: ProtectionType,
        guard: GuardKind,
        tuples: Box<dyn Backing>,
    ) -> Self {
        let format = ProtectionFormat { protection_type, guard, interval_bytes: self.geometry.sector_bytes };
        self.capabilities.protection = Some(format);
        self.protected = Some(Protected::new(format, tuples));
        self
    }

    /// Makes a range unreadable, as a defect of the medium would; whole sectors of it. Writing or
    /// discarding it makes it readable again.
    pub fn damage(&self, range: Range<u64>) {
        let sector = u64::from(self.geometry.sector_bytes);
        let end = range.end.min(self.geometry.capacity_bytes).next_multiple_of(sector);
        self.enforcement.damage(range.start / sector * sector..end);
    }

    /// Bytes of memory or disk that data and tuples occupy now.
    pub fn stored_bytes(&self) -> u64 {
        self.backing.stored_bytes() + self.protected.as_ref().map_or(0, Protected::stored_bytes)
    }

    /// Refuses what no device could do, wrong tuples and what the rules forbid, before anything changes.
    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        check_range(&self.name, &self.geometry, request)?;
        check_tuples(&self.name, self.capabilities.protection, request)?;
        if let Some(format) = &self.capabilities.protection {
            format.verify_write(&self.name, request)?;
        }
        self.enforcement.admit(&self.name, request)
    }

    /// Does the requests of a batch that were admitted, the others being refused already.
    fn perform(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
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
        for last in [false, true] {
            for request in requests.iter_mut() {
                if request.outcome.is_ok() && self.enforcement.comes_last(request) == last {
                    request.outcome = self.transfer(request);
                }
            }
        }
        let mut counters = self.counters.lock();
        let mut result = Ok(());
        for request in requests.iter() {
            counters.count_request(request, context);
            if result.is_ok() {
                result = request.outcome.clone();
            }
        }
        result
    }

    fn read(&self, start_bytes: u64, data: &mut [IoSliceMut<'_>]) -> Result<(), MediaError> {
        let mut at = start_bytes;
        data.iter_mut().try_for_each(|slice| {
            let read = self.backing.read_at(at, slice);
            read.map_err(|error| MediaError::io(&self.name, Operation::Read, at, error))?;
            at += slice.len() as u64;
            Ok(())
        })
    }

    fn write(&self, start_bytes: u64, data: &[IoSlice<'_>], durable: bool) -> Result<(), MediaError> {
        let mut at = start_bytes;
        data.iter().try_for_each(|slice| {
            let written = match durable {
                true => self.backing.write_durably_at(at, slice),
                false => self.backing.write_at(at, slice),
            };
            written.map_err(|error| MediaError::io(&self.name, Operation::Write, at, error))?;
            at += slice.len() as u64;
            Ok(())
        })
    }

    /// Discards bytes and their tuples. An error names `operation`.
    fn discard(&self, operation: Operation, start_bytes: u64, length_bytes: u64) -> Result<(), MediaError> {
        let discard = || {
            let discarded = self.backing.discard(start_bytes, length_bytes);
            discarded.map_err(|error| MediaError::io(&self.name, operation, start_bytes, error))
        };
        match &self.protected {
            Some(protected) => protected.discard(&self.name, start_bytes, length_bytes, discard),
            None => discard(),
        }
    }

    /// Moves the bytes of a request whose time has passed.
    fn transfer(&self, request: &mut Request<'_>) -> Result<(), MediaError> {
        let start = request.offset_bytes;
        let moved = match &mut request.transfer {
            Transfer::Read { data, protection } => {
                let length_bytes = data.iter().map(|slice| slice.len() as u64).sum::<u64>();
                self.enforcement.check_readable(&self.name, start..start + length_bytes)?;
                match &self.protected {
                    Some(protected) => {
                        let tuples = protection.as_deref_mut();
                        protected.read(&self.name, start, data, tuples, |data| self.read(start, data))
                    }
                    None => self.read(start, data),
                }
            }
            Transfer::Write { data, protection, durable } => match &self.protected {
                Some(protected) => {
                    protected.write(&self.name, start, data, *protection, || self.write(start, data, *durable))
                }
                None => self.write(start, data, *durable),
            },
            Transfer::Discard { length_bytes } => self.discard(Operation::Discard, start, *length_bytes),
        };
        self.enforcement.settle(&self.name, request, moved)
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
        self.perform(requests, context)
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        self.queue.run(std::iter::once((Work::Flush, 0, 0)));
        let outcome = self.backing.sync().map_err(|error| MediaError::io(&self.name, Operation::Sync, 0, error));
        self.counters.lock().count_sync(&outcome);
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
            cleaning: media.cleaning,
            ..self.counters.lock().clone()
        }
    }
}

impl ZonedGround for Emulated {
    fn write_admitted(&self, offset_bytes: u64, data: &[u8], context: &IoContext) -> Result<(), MediaError> {
        self.perform(&mut [Request::write(offset_bytes, &[IoSlice::new(data)])], context)
    }

    fn command(&self, command: ZoneCommand, zone: &ZoneDescription) -> Result<(), MediaError> {
        let ZoneDescription { start_bytes, length_bytes, write_pointer_bytes, .. } = *zone;
        let task = match command {
            ZoneCommand::Open | ZoneCommand::Close => (Work::ManageZone, start_bytes, 0),
            ZoneCommand::Finish => {
                let unwritten_bytes = zone.end_bytes().saturating_sub(write_pointer_bytes);
                (Work::FinishZone, write_pointer_bytes, unwritten_bytes)
            }
            ZoneCommand::Reset => (Work::ResetZone, start_bytes, length_bytes),
        };
        self.queue.run(std::iter::once(task));
        Ok(())
    }

    fn wait_for_report(&self) {
        self.queue.run(std::iter::once((Work::ManageZone, 0, 0)));
    }

    fn forget(&self, range: Range<u64>, _show_through: bool) -> Result<(), MediaError> {
        let discarded = self.discard(Operation::Zone, range.start, range.end - range.start);
        self.enforcement.make_readable(range);
        discarded
    }

    fn count(&self, done: Option<ZoneCommand>) {
        self.counters.lock().count_zone_command(done);
    }
}

#[cfg(test)]
mod tests;
