//! Rules over another device.

use super::enforcement::Enforcement;
use super::rules::{Rules, ZoneCommand, ZonedGround};
use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Capabilities, Counters, Geometry};
use crate::error::MediaError;
use crate::protection::ProtectionTuple;
use crate::request::{Request, Transfer, check_range, check_tuples};
use crate::zones::ZoneDescription;
use parking_lot::Mutex;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// A device with the laws of one medium and the bytes, the time and the counters of another device:
/// a real disk, say. What the rules forbid is refused before it reaches that device, and what they
/// destroy is unreadable although that device still has it: such a read takes its time there and then
/// fails. Requests of a batch stay together in flight.
///
/// What is unreadable is kept in memory: when the device is made again over the same inner device,
/// everything can be read.
pub struct RuledDevice {
    inner: Arc<dyn BlockDevice>,
    geometry: Geometry,
    capabilities: Capabilities,
    enforcement: Enforcement,
    /// What happened here and not in the device below: requests and commands that failed, zone commands.
    own: Mutex<Counters>,
}

impl RuledDevice {
    /// `rules` over `inner`, in the sizes `geometry`, which lie within those of `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>, geometry: Geometry, rules: Box<dyn Rules>) -> Self {
        let mut capabilities = inner.capabilities().clone();
        rules.describe(&mut capabilities);
        // Rules say nothing of tuples: the inner device keeps and verifies them.
        capabilities.protection = inner.capabilities().protection;
        RuledDevice { inner, geometry, capabilities, enforcement: Enforcement::new(rules), own: Mutex::default() }
    }

    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        check_range(self.name(), &self.geometry, request)?;
        check_tuples(self.name(), self.capabilities.protection, request)?;
        if let Some(format) = &self.capabilities.protection {
            // Before rules follow a write that the device below refuses.
            format.verify_write(self.name(), request)?;
        }
        self.enforcement.admit(self.name(), request)
    }

    /// Does the requests of a batch that were admitted, the others being refused already.
    fn perform(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        // Those that go on stay together as far as the refused ones between them allow.
        for run in requests.chunk_by_mut(|one, next| one.outcome.is_ok() == next.outcome.is_ok()) {
            if run.iter().any(|request| request.outcome.is_ok()) {
                let _ = self.inner.execute(run, context);
                for last in [false, true] {
                    for request in run.iter_mut().filter(|request| self.enforcement.comes_last(request) == last) {
                        request.outcome = self.settle(request);
                    }
                }
            }
            let first = run.iter().find_map(|request| request.outcome.as_ref().err().cloned());
            result = result.and(first.map_or(Ok(()), Err));
        }
        result
    }

    /// Ends a request that the device below has done, well or not.
    fn settle(&self, request: &mut Request<'_>) -> Result<(), MediaError> {
        let moved = request.outcome.clone();
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        if let Transfer::Read { data, protection } = &mut request.transfer
            && moved.is_ok()
            && let Err(error) = self.enforcement.check_readable(self.inner.name(), range)
        {
            // The device below still has what is lost; nobody gets to see it.
            data.iter_mut().for_each(|slice| slice.fill(0));
            protection.iter_mut().for_each(|tuples| tuples.fill(ProtectionTuple::UNWRITTEN_BYTE));
            self.own.lock().errors += 1;
            return Err(error);
        }
        self.enforcement.settle(self.inner.name(), request, moved)
    }
}

impl BlockDevice for RuledDevice {
    fn name(&self) -> &str {
        self.inner.name()
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
            self.own.lock().errors += u64::from(request.outcome.is_err());
        }
        self.perform(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        let counters = self.inner.counters();
        let own = self.own.lock();
        Counters {
            errors: counters.errors + own.errors,
            zone_resets: own.zone_resets,
            zone_finishes: own.zone_finishes,
            ..counters
        }
    }
}

impl ZonedGround for RuledDevice {
    fn write_admitted(&self, offset_bytes: u64, data: &[u8], context: &IoContext) -> Result<(), MediaError> {
        self.perform(&mut [Request::write(offset_bytes, &[IoSlice::new(data)])], context)
    }

    /// Commands of zones that another device does not know take none of its time.
    fn command(&self, _command: ZoneCommand, _zone: &ZoneDescription) -> Result<(), MediaError> {
        Ok(())
    }

    /// So does a report.
    fn wait_for_report(&self) {}

    /// Bytes that nobody gets to see stay.
    fn forget(&self, range: Range<u64>, show_through: bool) -> Result<(), MediaError> {
        self.enforcement.make_readable(range.clone());
        match show_through {
            true => self.inner.discard_at(range.start, range.end - range.start, &IoContext::default()),
            false => Ok(()),
        }
    }

    fn count(&self, done: Option<ZoneCommand>) {
        self.own.lock().count_zone_command(done);
    }
}
