//! Rules over another device.

use super::enforcement::Enforcement;
use super::rules::Rules;
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry};
use crate::error::MediaError;
use crate::request::{Request, Transfer, check_range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Requests that failed by the rules, not in the device below.
    failed: AtomicU64,
}

impl RuledDevice {
    /// `rules` over `inner`, in the sizes `geometry`, which lie within those of `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>, geometry: Geometry, rules: Box<dyn Rules>) -> Self {
        let mut capabilities = inner.capabilities().clone();
        rules.describe(&mut capabilities);
        RuledDevice { inner, geometry, capabilities, enforcement: Enforcement::new(rules), failed: AtomicU64::new(0) }
    }

    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        check_range(self.name(), &self.geometry, request)?;
        self.enforcement.admit(self.name(), request)
    }

    /// Ends a request that the device below has done, well or not.
    fn settle(&self, request: &mut Request<'_>) -> Result<(), MediaError> {
        let moved = request.outcome.clone();
        let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
        if let Transfer::Read { data, .. } = &mut request.transfer
            && moved.is_ok()
            && let Err(error) = self.enforcement.check_readable(self.inner.name(), range)
        {
            // The device below still has what is lost; nobody gets to see it.
            data.iter_mut().for_each(|slice| slice.fill(0));
            self.failed.fetch_add(1, Ordering::Relaxed);
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
        let mut result = Ok(());
        for request in requests.iter_mut() {
            request.outcome = self.check(request);
            self.failed.fetch_add(u64::from(request.outcome.is_err()), Ordering::Relaxed);
        }
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

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        let counters = self.inner.counters();
        Counters { errors: counters.errors + self.failed.load(Ordering::Relaxed), ..counters }
    }
}
