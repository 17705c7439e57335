//! A device that panics.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use varve_media::conformance::devices::TRANSLATED_ZONES;
use varve_media::{
    BlockDevice, Capabilities, Counters, IoClass, Operation, Request, Transfer, ZoneControl, ZoneDescription,
};

/// A device that panics at one call of an operation of a class, counted from 1.
struct Panicking {
    inner: Device,
    at: (Operation, IoClass),
    calls: AtomicU64,
}

impl Panicking {
    fn device(inner: &Device, operation: Operation, class: IoClass) -> (Device, Arc<Panicking>) {
        let inner = inner.clone();
        let panicking = Arc::new(Panicking { inner, at: (operation, class), calls: AtomicU64::new(u64::MAX) });
        let zones: Arc<dyn ZoneControl> = panicking.clone();
        (Device { zones: Some(zones), ..Device::of_blocks(panicking.clone()) }, panicking)
    }

    /// It panics at that call from now on.
    fn arm(&self, call: u64) {
        self.calls.store(call, Ordering::Relaxed);
    }

    fn called(&self, operation: Operation, context: &IoContext) {
        let is_counted = self.at == (operation, context.class) && self.calls.load(Ordering::Relaxed) != u64::MAX;
        assert!(!is_counted || self.calls.fetch_sub(1, Ordering::Relaxed) != 1, "the device panics, as it was told to");
    }

    fn zones(&self) -> &dyn ZoneControl {
        &**self.inner.zones.as_ref().unwrap()
    }
}

impl BlockDevice for Panicking {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        for request in requests.iter() {
            match request.transfer {
                Transfer::Read { .. } => self.called(Operation::Read, context),
                Transfer::Write { .. } => self.called(Operation::Write, context),
                Transfer::Discard { .. } => self.called(Operation::Discard, context),
            }
        }
        self.inner.block.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.called(Operation::Sync, context);
        self.inner.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

impl ZoneControl for Panicking {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.called(Operation::Zone, context);
        self.zones().report(first, count, context)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones().open(zone, context)
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones().close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones().finish(zone, context)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.called(Operation::Zone, context);
        self.zones().reset(zone, context)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.zones().append(zone, data, context)
    }
}

/// What panicked is not waited for: zones are moved as before, and the end is not held up.
#[test]
fn a_request_that_panicked_has_left() {
    let class = IoClass::UserRead;
    for operation in [Operation::Read, Operation::Write, Operation::Sync, Operation::Zone, Operation::Discard] {
        simulate(1, false, move |env| {
            // Reports and resets are zone commands both.
            let is_reset = operation == Operation::Discard;
            let counted = if is_reset { Operation::Zone } else { operation };
            let (inner, panicking) = Panicking::device(&memory(env, &TRANSLATED_ZONES, 14), counted, class);
            let (device, handle) = open(env, &inner, at_rest()).unwrap();
            device.block.write_at(8192, &[7; 4096], &context()).unwrap();
            panicking.arm(1);
            let zones = device.zones.clone().unwrap();
            let caught = catch_unwind(AssertUnwindSafe(|| match operation {
                Operation::Read => device.block.read_at(8192, &mut [0; 4096], &IoContext::of(class)),
                Operation::Write => device.block.write_at(8192, &[8; 4096], &IoContext::of(class)),
                Operation::Sync => device.block.sync(&IoContext::of(class)),
                Operation::Zone => zones.report(ZoneId(0), 1, &IoContext::of(class)).map(|_| ()),
                _ => zones.reset(ZoneId(0), &IoContext::of(class)),
            }));
            assert!(caught.is_err(), "{operation}");
            assert_eq!(relocate(&handle, 0).relocated_zones, 1, "{operation}");
            let mut data = [0; 4096];
            device.block.read_at(8192, &mut data, &context()).unwrap();
            assert_eq!(data, [7; 4096], "{operation}");
        });
    }
}

/// Where relocation panicked nothing is moved any more. Requests go on, but for writes where it is not known which map is on the medium.
#[test]
fn a_relocation_that_panicked_holds_nobody() {
    let relocation = [
        (Operation::Zone, IoClass::Maintenance, 1, true),
        (Operation::Read, IoClass::Maintenance, 1, true),
        (Operation::Write, IoClass::Maintenance, 1, true),
        (Operation::Write, IoClass::Metadata, 1, false),
        (Operation::Sync, IoClass::Metadata, 1, false),
        (Operation::Zone, IoClass::Maintenance, 2, true),
    ];
    for (operation, class, call, goes_on) in relocation {
        simulate(1, false, move |env| {
            let told = format!("{operation} of {class:?}");
            let memory = memory(env, &TRANSLATED_ZONES, 14);
            {
                let (inner, panicking) = Panicking::device(&memory, operation, class);
                let (device, handle) = open(env, &inner, at_rest()).unwrap();
                device.block.write_at(8192, &[7; 4096], &context()).unwrap();
                device.block.sync(&context()).unwrap();
                panicking.arm(call);
                relocate(&handle, 0);
                let written = device.block.write_at(12288, &[8; 4096], &context());
                assert_eq!(written.is_ok(), goes_on, "{told}: {written:?}");
                assert!(written.map_or_else(|error| error.to_string().contains("panicked"), |()| true), "{told}");
                let mut data = [0; 4096];
                device.block.read_at(8192, &mut data, &context()).unwrap();
                assert_eq!(data, [7; 4096], "{told}");
            }
            let (device, handle) = open(env, &memory, at_rest()).unwrap();
            check_map(handle.core_of());
            let mut data = [0; 4096];
            device.block.read_at(8192, &mut data, &context()).unwrap();
            assert_eq!(data, [7; 4096], "{told}");
        });
    }
}
