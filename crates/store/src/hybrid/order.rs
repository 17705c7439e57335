//! The order of requests at a device: who waits for an answer goes before what is done in the background.
//!
//! Devices do not order by class. A request of the background waits while requests of the foreground are at the device, but
//! lets no more than [`OVERTAKEN_MAX`] of them pass: it is slowed down, never kept. Counts, and no times, so that it is the same
//! at every scale.

use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};
use varve_media::{BlockDevice, Capabilities, Counters, Device, Geometry, IoClass, IoContext, MediaError, Request};

/// Requests of the foreground that may begin while one of the background waits.
const OVERTAKEN_MAX: u64 = 8;

/// What is at a device.
#[derive(Debug, Default)]
struct Present {
    /// Requests of the foreground that are at it.
    foreground: u64,
    /// All of them that ever began.
    begun: u64,
    waiting: u64,
}

impl Present {
    /// Whether a request of the background that came when `begun_before` of the foreground had begun may begin.
    fn may_begin(&self, begun_before: u64) -> bool {
        self.foreground == 0 || self.begun - begun_before >= OVERTAKEN_MAX
    }
}

/// A device whose requests are ordered by class. Thread-safe.
pub(super) struct OrderedDevice {
    inner: Arc<dyn BlockDevice>,
    present: Mutex<Present>,
    changed: Condvar,
}

impl OrderedDevice {
    /// The device below this order. Zone commands are not ordered.
    pub(super) fn device(env: &Env, device: &Device) -> Device {
        let ordered = OrderedDevice {
            inner: device.block.clone(),
            present: Mutex::new(env, "requests of a device", Present::default()),
            changed: Condvar::new(env, "requests of a device"),
        };
        Device { block: Arc::new(ordered), ..device.clone() }
    }

    fn is_background(context: &IoContext) -> bool {
        matches!(context.class, IoClass::Flush | IoClass::Compaction | IoClass::Maintenance | IoClass::Check)
    }
}

impl BlockDevice for OrderedDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        if OrderedDevice::is_background(context) {
            let mut present = self.present.lock();
            let begun_before = present.begun;
            present.waiting += 1;
            while !present.may_begin(begun_before) {
                self.changed.wait(&mut present);
            }
            present.waiting -= 1;
            drop(present);
            return self.inner.execute(requests, context);
        }
        {
            let mut present = self.present.lock();
            present.foreground += 1;
            present.begun += 1;
            if present.waiting > 0 {
                self.changed.notify_all();
            }
        }
        let outcome = self.inner.execute(requests, context);
        let mut present = self.present.lock();
        present.foreground -= 1;
        if present.foreground == 0 && present.waiting > 0 {
            self.changed.notify_all();
        }
        outcome
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_waits_for_a_number_of_others_and_no_longer() {
        let mut present = Present { foreground: 1, begun: 5, waiting: 1 };
        assert!(!present.may_begin(5));
        present.begun = 4 + OVERTAKEN_MAX;
        assert!(!present.may_begin(5));
        present.begun += 1;
        assert!(present.may_begin(5));
        assert!(Present::default().may_begin(0));
    }

    /// Readers without a pause beside a writer of the background: it goes on, and they overtake it.
    #[test]
    fn nobody_is_kept_for_ever() {
        use std::sync::atomic::{AtomicBool, Ordering};
        use varve_media::presets::Preset;
        use varve_media::{BlockDeviceExt, Pacing, RamBacking};
        let env = Env::sim(1);
        let preset = Preset::find("st500dm002").expect("a disk");
        let disk = preset.build(&env, "disk", Box::new(RamBacking::new()), Pacing::Sleep);
        let device = OrderedDevice::device(&env, &Device::of_blocks(Arc::new(disk)));
        let is_done = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2u64)
            .map(|reader| {
                let (block, is_done, env) = (device.block.clone(), is_done.clone(), env.clone());
                let spawner = env.clone();
                spawner.spawn("reader", move || {
                    let mut slowest_nanos = 0;
                    while !is_done.load(Ordering::Relaxed) {
                        let began = env.now().as_nanos();
                        let at = (1 + reader) << 30;
                        block.read_at(at, &mut [0; 4096], &IoContext::of(IoClass::UserRead)).expect("a read");
                        slowest_nanos = slowest_nanos.max(env.now().as_nanos() - began);
                    }
                    slowest_nanos
                })
            })
            .collect();
        let compaction = IoContext::of(IoClass::Compaction);
        for piece in 0..50u64 {
            device.block.write_at(piece << 20, &vec![1; 1 << 20], &compaction).expect("a write");
        }
        is_done.store(true, Ordering::Relaxed);
        for reader in readers {
            let slowest_nanos = reader.join().unwrap_or_else(|panicked| panicked.resume());
            assert!(slowest_nanos < 100_000_000, "a read took {slowest_nanos} ns");
        }
        assert_eq!(device.block.counters().writes, 50);
    }
}
