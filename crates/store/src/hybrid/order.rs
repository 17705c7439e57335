//! The order of requests at a device: who waits for an answer goes before what is done in the background.
//!
//! Devices do not order by class. A request of the background waits while requests of the foreground are at the device, but
//! lets no more than [`OVERTAKEN_MAX`] of them pass: it is slowed down, never kept. Where a device positions, and users read it,
//! requests of the background go one by one and in pieces of a [`PIECES_OF_ZONE`]th of a zone besides: a reader waits for one of
//! those and not for as many transfers as there are jobs. Counts, and no times, so that it is the same at every scale.

use super::pieces::execute_in_pieces;
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};
use varve_media::{BlockDevice, Capabilities, Counters, Device, Geometry, IoClass, IoContext, MediaError, Request};

/// Requests of the foreground that may begin while one of the background waits.
const OVERTAKEN_MAX: u64 = 8;

/// Requests of the background that may begin after users read before it is taken that nobody does any more: so many to each read,
/// and no more than so many in all.
const GONE_AFTER_EACH: u64 = 32;
const GONE_AFTER_ALL: u64 = 1024;

/// Part of a zone that is moved at once in the background where users read: 2 MiB of 256. Less costs more positioning to a byte, which
/// is time that users wait for in the end; more makes the slowest of them wait longer.
const PIECES_OF_ZONE: u64 = 128;

/// What is at a device.
#[derive(Debug, Default)]
struct Present {
    /// Requests of the foreground that are at it.
    foreground: u64,
    /// All of them that ever began.
    begun: u64,
    /// Requests of the background that wait, ...
    waiting: u64,
    /// and that are at it.
    background: u64,
    /// Requests of the background that may begin before no user reads any more.
    until_users_are_gone: u64,
}

impl Present {
    /// Whether a request of the background that came when `begun_before` of the foreground had begun may begin.
    fn may_begin(&self, begun_before: u64, positions: bool) -> bool {
        let is_let_pass = self.foreground == 0 || self.begun - begun_before >= OVERTAKEN_MAX;
        is_let_pass && (self.background == 0 || !(positions && self.users_read()))
    }

    fn users_read(&self) -> bool {
        self.until_users_are_gone > 0
    }
}

/// A device whose requests are ordered by class. Thread-safe.
pub(super) struct OrderedDevice {
    inner: Arc<dyn BlockDevice>,
    present: Mutex<Present>,
    changed: Condvar,
    /// What the background moves at once where users read; none where a device does not position.
    piece_bytes: Option<u64>,
}

impl OrderedDevice {
    /// The device below this order. Zone commands are not ordered.
    pub(super) fn device(env: &Env, device: &Device) -> Device {
        let (capabilities, geometry) = (device.block.capabilities(), device.block.geometry());
        let zone_bytes = capabilities.zones.as_ref().map(|zones| zones.zone_bytes).filter(|_| capabilities.rotational);
        let piece_bytes = |zone_bytes: u64| {
            let unit_bytes = u64::from(geometry.physical_sector_bytes.max(geometry.sector_bytes)).max(1);
            (zone_bytes / PIECES_OF_ZONE).next_multiple_of(unit_bytes).max(unit_bytes)
        };
        let ordered = OrderedDevice {
            inner: device.block.clone(),
            present: Mutex::new(env, "requests of a device", Present::default()),
            changed: Condvar::new(env, "requests of a device"),
            piece_bytes: zone_bytes.map(piece_bytes),
        };
        Device { block: Arc::new(ordered), ..device.clone() }
    }

    /// Waits until a request of the background may begin. Says whether users read meanwhile.
    fn begin(&self) -> bool {
        let mut present = self.present.lock();
        let begun_before = present.begun;
        present.waiting += 1;
        while !present.may_begin(begun_before, self.piece_bytes.is_some()) {
            self.changed.wait(&mut present);
        }
        present.waiting -= 1;
        present.background += 1;
        let users_read = present.users_read();
        present.until_users_are_gone = present.until_users_are_gone.saturating_sub(1);
        users_read
    }

    fn end(&self) {
        let mut present = self.present.lock();
        present.background -= 1;
        if present.waiting > 0 && self.piece_bytes.is_some() {
            self.changed.notify_all();
        }
    }

    fn execute_in_background(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let users_read = self.begin();
        let outcome = match self.piece_bytes.filter(|_| users_read) {
            Some(piece_bytes) => {
                let mut is_first = true;
                execute_in_pieces(requests, piece_bytes, &*self.inner, |piece| {
                    if !std::mem::take(&mut is_first) {
                        self.end();
                        self.begin();
                    }
                    self.inner.execute(std::slice::from_mut(piece), context)
                })
            }
            None => self.inner.execute(requests, context),
        };
        self.end();
        outcome
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
            return self.execute_in_background(requests, context);
        }
        {
            let mut present = self.present.lock();
            present.foreground += 1;
            present.begun += 1;
            if context.class == IoClass::UserRead {
                present.until_users_are_gone = (present.until_users_are_gone + GONE_AFTER_EACH).min(GONE_AFTER_ALL);
            }
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
        let mut present = Present { foreground: 1, begun: 5, waiting: 1, ..Present::default() };
        assert!(!present.may_begin(5, true));
        present.begun = 4 + OVERTAKEN_MAX;
        assert!(!present.may_begin(5, true));
        present.begun += 1;
        assert!(present.may_begin(5, true));
        assert!(Present::default().may_begin(0, true));
    }

    #[test]
    fn the_background_goes_one_by_one_where_users_read_and_reads_position() {
        let mut present = Present { background: 1, until_users_are_gone: 1, ..Present::default() };
        assert!(!present.may_begin(0, true) && present.may_begin(0, false));
        present.until_users_are_gone = 0;
        assert!(present.may_begin(0, true));
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

    /// A reader beside jobs that write 16 MiB at once, eight of them, to zones of a disk.
    #[test]
    fn a_reader_waits_for_a_piece_and_not_for_the_transfers_of_all_jobs() {
        use std::sync::atomic::{AtomicU64, Ordering};
        use varve_media::emulated::Zoned;
        use varve_media::presets::Preset;
        use varve_media::{BlockDeviceExt, Pacing, RamBacking, ZoneGeometry};
        const ZONE_BYTES: u64 = 256 << 20;
        let slowest_nanos = |is_ordered: bool| {
            let env = Env::sim(2);
            let rules = Zoned::new(&ZoneGeometry::fit(64 * ZONE_BYTES, ZONE_BYTES).expect("zones"));
            let preset = Preset::find("st14000nm0007").expect("a disk");
            let disk = preset.build_zoned(&env, "disk", rules, Box::new(RamBacking::new()), Pacing::Sleep);
            let device = if is_ordered { OrderedDevice::device(&env, &disk) } else { disk };
            let jobs_left = Arc::new(AtomicU64::new(8));
            let jobs: Vec<_> = (0..8u64)
                .map(|job| {
                    let (block, jobs_left) = (device.block.clone(), jobs_left.clone());
                    env.spawn("job", move || {
                        let data = vec![job as u8 + 1; 16 << 20];
                        for piece in 0..4u64 {
                            let at = 2 * (job + 1) * ZONE_BYTES + (piece << 24);
                            block.write_at(at, &data, &IoContext::of(IoClass::Compaction)).expect("a write");
                        }
                        jobs_left.fetch_sub(1, Ordering::Relaxed);
                    })
                })
                .collect();
            let (mut slowest_nanos, mut random) = (0, env.random("reader"));
            while jobs_left.load(Ordering::Relaxed) > 0 {
                let began = env.now().as_nanos();
                let at = random.below(60 * ZONE_BYTES / 4096) * 4096;
                device.block.read_at(at, &mut [0; 4096], &IoContext::of(IoClass::UserRead)).expect("a read");
                slowest_nanos = slowest_nanos.max(env.now().as_nanos() - began);
            }
            jobs.into_iter().for_each(|job| job.join().expect("no panic"));
            let mut found = vec![0; 64 << 20];
            device.block.read_at(16 * ZONE_BYTES, &mut found, &IoContext::default()).expect("a read");
            assert!(found.iter().all(|byte| *byte == 8));
            slowest_nanos
        };
        let (ordered, alone) = (slowest_nanos(true), slowest_nanos(false));
        assert!(ordered < 60_000_000 && alone > 2 * ordered, "{ordered} ns, and {alone} ns without");
    }
}
