//! What holds for every composition: bytes, errors, destruction, sharing of the queue.

use super::*;
use crate::context::IoClass;
use crate::device::BlockDeviceExt;
use crate::error::MediaErrorKind;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

const CONTEXT: IoContext = IoContext::of(IoClass::Other);

#[test]
fn refuses_what_is_outside_or_misaligned_and_changes_nothing() {
    let env = Env::sim(1);
    let device = Emulated::immediate(&env, "disk", 1 << 20);
    let mut data = [1; 1024];
    for (offset, kind) in
        [(1 << 20, "OutOfRange"), ((1 << 20) - 512, "OutOfRange"), (u64::MAX - 511, "OutOfRange"), (100, "Misaligned")]
    {
        let error = device.write_at(offset, &data, &CONTEXT).unwrap_err();
        assert!(format!("{error:?}").starts_with(kind), "{error:?}");
        assert_eq!(error.kind(), MediaErrorKind::InvalidRequest);
    }
    assert!(device.read_at(0, &mut data[..100], &CONTEXT).is_err());
    let tuples = [0; 16];
    let slices = [IoSlice::new(&data)];
    let mut request = Request::write(0, &slices);
    if let Transfer::Write { protection, .. } = &mut request.transfer {
        *protection = Some(&tuples);
    }
    let error = device.execute(&mut [request], &CONTEXT).unwrap_err();
    assert!(matches!(error, MediaError::Rule { .. }), "{error}");
    assert_eq!(device.stored_bytes(), 0);
    let counters = device.counters();
    assert_eq!((counters.errors, counters.writes), (6, 0));
}

#[test]
fn one_bad_request_does_not_keep_the_others_from_being_done() {
    let env = Env::sim(1);
    let device = Emulated::immediate(&env, "disk", 1 << 20);
    let data = [9; 512];
    let slices = [IoSlice::new(&data)];
    let mut batch = [Request::write(0, &slices), Request::write(7, &slices), Request::write(512, &slices)];
    assert!(matches!(device.execute(&mut batch, &CONTEXT), Err(MediaError::Misaligned { .. })));
    assert!(batch[0].outcome.is_ok() && batch[1].outcome.is_err() && batch[2].outcome.is_ok());
    let mut head = [0; 200];
    let mut tail = [0; 824];
    let mut slices = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
    device.execute(&mut [Request::read(0, &mut slices)], &CONTEXT).unwrap();
    assert!(head == [9; 200] && tail == [9; 824]);
}

/// Writing a byte range destroys the same-sized range behind it.
struct DestroysNext;

impl Rules for DestroysNext {
    fn describe(&self, _capabilities: &mut Capabilities) {}

    fn admit(&mut self, _device: &str, _request: &Request<'_>) -> Result<(), MediaError> {
        Ok(())
    }

    fn refused(&mut self, _request: &Request<'_>) {}

    fn may_destroy(&self, _written: Range<u64>) -> bool {
        true
    }

    fn discarded(&mut self, _discarded: Range<u64>) {}

    fn written(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>) {
        destroyed.push(written.end..written.end + (written.end - written.start));
    }

    fn complete(&mut self, _device: &str, _request: &mut Request<'_>) -> Result<(), MediaError> {
        Ok(())
    }
}

#[test]
fn what_the_rules_destroy_is_unreadable_until_rewritten() {
    let env = Env::sim(1);
    let geometry = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 512 };
    let timing = Box::<Immediate>::default();
    let device = Emulated::new(&env, "disk", geometry, Box::new(DestroysNext), timing, Box::new(RamBacking::new()));
    device.write_at(4096, &[1; 1024], &CONTEXT).unwrap();
    device.write_at(3072, &[2; 1024], &CONTEXT).unwrap();
    let mut data = [0; 2048];
    let error = device.read_at(3072, &mut data, &CONTEXT).unwrap_err();
    assert!(matches!(error, MediaError::Unreadable { offset_bytes: 4096, .. }), "{error}");
    device.read_at(3072, &mut data[..1024], &CONTEXT).unwrap();
    assert!(data[..1024] == [2; 1024]);
    // Rewriting one sector heals it and destroys the one behind it, which was destroyed anyway.
    device.write_at(4096, &[3; 512], &CONTEXT).unwrap();
    device.read_at(4096, &mut data[..512], &CONTEXT).unwrap();
    assert!(device.read_at(4608, &mut data[..512], &CONTEXT).is_err());
    device.discard_at(4096, 4096, &CONTEXT).unwrap();
    device.read_at(4096, &mut data, &CONTEXT).unwrap();
    assert!(data == [0; 2048]);
}

#[test]
fn devices_are_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let env = Env::real();
    let device = Arc::new(Emulated::immediate(&env, "disk", 1 << 20));
    shared(&device);
    let handles: Vec<_> = (0..4u64)
        .map(|number| {
            let device = Arc::clone(&device);
            env.spawn("writer", move || {
                for round in 0..100u64 {
                    let offset = (round * 4 + number) * 512;
                    device.write_at(offset, &[number as u8; 512], &CONTEXT).unwrap();
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    let mut data = vec![0; 400 * 512];
    device.read_at(0, &mut data, &CONTEXT).unwrap();
    for (sector, bytes) in data.chunks(512).enumerate() {
        assert!(bytes == [(sector % 4) as u8; 512]);
    }
}

/// A disk small enough to fill: the ST500DM002 cut to 64 MiB.
fn small_disk(env: &Env, backing: Box<dyn Backing>) -> Arc<dyn BlockDevice> {
    let preset = crate::presets::Preset::find("st500dm002").unwrap().with_capacity(64 << 20);
    Arc::new(preset.build(env, "disk", backing, Pacing::Sleep))
}

const WORKERS: u64 = 4;

/// Each worker fills its own stripes with random batches, beside the others, and checks what it reads
/// against an array; gives the event hash, the counters and the time.
fn random_batches(seed: u64, perturb: bool) -> (u64, Counters, u64) {
    let env = Env::sim_with(varve_env::SimOptions { seed, perturb, ..Default::default() });
    let device = small_disk(&env, Box::new(RamBacking::new()));
    const STRIPE: u64 = 16 << 10;
    const STRIPES: u64 = 24;
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (inner, device) = (env.clone(), Arc::clone(&device));
            env.spawn("worker", move || {
                let mut random = inner.random(&format!("worker {worker}"));
                let mut model = vec![0u8; (STRIPE * STRIPES) as usize];
                for step in 0..60 {
                    let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
                    let mut reads: Vec<(u64, Vec<u8>)> = Vec::new();
                    for _ in 0..1 + random.below(4) {
                        // One request a stripe, so that those of a batch do not overlap.
                        let stripe = (step * 4 + reads.len() as u64 + writes.len() as u64) % STRIPES;
                        let start = random.below(STRIPE / 512) * 512;
                        let length = (random.below((STRIPE - start) / 512) + 1) * 512;
                        let mut data = vec![0; length as usize];
                        if random.chance(1, 2) {
                            random.fill_bytes(&mut data);
                            writes.push((stripe * STRIPE + start, data));
                        } else {
                            reads.push((stripe * STRIPE + start, data));
                        }
                    }
                    // Byte `at` of a worker's array lies in its share of the stripe on the device.
                    let place = |at: u64| (at / STRIPE * WORKERS + worker) * STRIPE + at % STRIPE;
                    let slices: Vec<[IoSlice<'_>; 1]> = writes.iter().map(|(_, data)| [IoSlice::new(data)]).collect();
                    let mut holders: Vec<(u64, [IoSliceMut<'_>; 1])> =
                        reads.iter_mut().map(|(at, data)| (*at, [IoSliceMut::new(data)])).collect();
                    let mut batch: Vec<Request<'_>> = writes
                        .iter()
                        .zip(&slices)
                        .map(|((at, _), slices)| Request::write(place(*at), slices))
                        .chain(holders.iter_mut().map(|(at, slices)| Request::read(place(*at), slices)))
                        .collect();
                    device.execute(&mut batch, &CONTEXT).unwrap();
                    for (at, data) in &reads {
                        let expected = &model[*at as usize..*at as usize + data.len()];
                        assert!(data == expected, "seed {seed} worker {worker} step {step} at {at}");
                    }
                    for (at, data) in &writes {
                        model[*at as usize..*at as usize + data.len()].copy_from_slice(data);
                    }
                    match random.below(12) {
                        0 => device.sync(&CONTEXT).unwrap(),
                        1 => inner.sleep(std::time::Duration::from_millis(random.below(60))),
                        _ => {}
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    (env.event_hash(), device.counters(), env.now().as_nanos())
}

#[test]
fn concurrent_batches_keep_their_data_and_repeat_exactly() {
    for seed in 0..4 {
        let perturb = seed % 2 == 1;
        let first = random_batches(seed, perturb);
        assert!(first == random_batches(seed, perturb), "seed {seed}");
        let time = first.1.time;
        let parts = time.seek_nanos + time.rotation_nanos + time.transfer_nanos + time.overhead_nanos;
        assert_eq!(parts + time.flush_nanos + time.idle_nanos, first.2, "seed {seed}");
    }
}

#[test]
fn batch_is_in_flight_all_at_once() {
    let env = Env::sim(1);
    let preset = crate::presets::Preset::find("st500dm002").unwrap();
    let device = preset.build(&env, "disk", Box::new(NoBacking), Pacing::Sleep);
    let mut random = env.random("offsets");
    let mut buffers = vec![[0u8; 512]; 64];
    let mut slices: Vec<(u64, [IoSliceMut<'_>; 1])> = buffers
        .iter_mut()
        .map(|buffer| (random.below(500 << 30 >> 9) % (900 << 20) * 512, [IoSliceMut::new(buffer)]))
        .collect();
    let mut batch: Vec<Request<'_>> = slices.iter_mut().map(|(at, slices)| Request::read(*at, slices)).collect();
    device.execute(&mut batch, &CONTEXT).unwrap();
    // One at a time takes 12.7 ms each.
    assert!(env.now().as_nanos() < 64 * 8_500_000, "{}", env.now());
}

#[test]
fn accounted_time_passes_on_the_device_only() {
    let env = Env::real();
    let preset = crate::presets::Preset::find("st500dm002").unwrap();
    let device = preset.build(&env, "disk", Box::new(NoBacking), Pacing::Account);
    for number in 0..1_000u64 {
        device.read_at(number * 7_919 % 900_000 * 4096, &mut [0; 4096], &CONTEXT).unwrap();
    }
    let time = device.counters().time;
    // Idle while nobody asks does not exist on this clock.
    assert!(time.rotation_nanos > 1_000_000_000 && time.seek_nanos > 1_000_000_000, "{time:?}");
    assert_eq!(time.idle_nanos, 0);
}

#[test]
fn file_backed_device_continues_where_it_was_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let env = Env::sim(1);
    let open = || small_disk(&env, Box::new(FileBacking::open(&path, 64 << 20).unwrap()));
    open().write_at(8192, &[5; 4096], &CONTEXT).unwrap();
    let mut data = [0; 4096];
    open().read_at(8192, &mut data, &CONTEXT).unwrap();
    assert!(data == [5; 4096]);
}

#[test]
fn device_in_real_time_serves_threads_that_share_its_queue() {
    let env = Env::real();
    let preset = crate::presets::Preset::find("nvme-ssd").unwrap().with_capacity(16 << 20);
    let device = Arc::new(preset.build(&env, "ssd", Box::new(RamBacking::new()), Pacing::Sleep));
    let threads: Vec<_> = (0..8u64)
        .map(|number| {
            let device = Arc::clone(&device);
            env.spawn("user", move || {
                for round in 0..20u64 {
                    let offset = (round * 8 + number) * 8192;
                    let data = [(round * 8 + number) as u8; 8192];
                    device.write_at(offset, &data, &CONTEXT).unwrap();
                    if round % 8 == number {
                        device.sync(&CONTEXT).unwrap();
                    }
                    let mut read = [0; 8192];
                    device.read_at(offset, &mut read, &CONTEXT).unwrap();
                    assert!(read == data);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let counters = device.counters();
    // Of the eight threads one syncs in each of the 20 rounds.
    assert_eq!((counters.reads, counters.writes, counters.syncs), (160, 160, 20));
}

/// Counts what is asked of it.
#[derive(Clone, Default)]
struct CountingBacking {
    bytes: Arc<RamBacking>,
    durable_writes: Arc<std::sync::atomic::AtomicU64>,
}

impl Backing for CountingBacking {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()> {
        self.bytes.read_at(offset_bytes, data)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.bytes.write_at(offset_bytes, data)
    }

    fn write_durably_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.durable_writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.write_at(offset_bytes, data)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        self.bytes.discard(offset_bytes, length_bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.bytes.sync()
    }

    fn stored_bytes(&self) -> u64 {
        self.bytes.stored_bytes()
    }
}

#[test]
fn a_durable_write_is_durable_in_the_backing() {
    let env = Env::sim(1);
    let backing = CountingBacking::default();
    let geometry = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (timing, bytes) = (Box::<Immediate>::default(), Box::new(backing.clone()));
    let device = Emulated::new(&env, "disk", geometry, Box::new(Conventional), timing, bytes);
    let data = [9; 512];
    let slices = [IoSlice::new(&data), IoSlice::new(&data)];
    let durable_writes = || backing.durable_writes.load(std::sync::atomic::Ordering::Relaxed);
    device.execute(&mut [Request::write(0, &slices)], &CONTEXT).unwrap();
    assert_eq!(durable_writes(), 0);
    device.execute(&mut [Request::write_durable(4096, &slices)], &CONTEXT).unwrap();
    assert_eq!(durable_writes(), 2);
    let mut found = [0; 1024];
    device.read_at(4096, &mut found, &CONTEXT).unwrap();
    assert_eq!(found, [9; 1024]);
}
