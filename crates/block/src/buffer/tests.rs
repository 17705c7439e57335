use super::*;
use crate::idler::{ControlledDevice, FixedIdle};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Env, Random};
use varve_media::conformance::{BlockDeviceCheck, check_block_device};
use varve_media::emulated::TranslationParameters;
use varve_media::presets::Preset;
use varve_media::{
    BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry, IoContext, MediaCache, MediaError, Pacing,
    RamBacking, Request, Transfer, ZoneGeometry, ZoneType, Zoned,
};

mod ahead;
mod crash;
mod faults;
mod regressions;

const ZONE: u64 = 256 << 10;
const ZONES: u64 = 9;
const SECTOR: u64 = 512;

/// A small host-aware disk: eight zones of 256 KiB, and one for the mark.
fn disk(env: &Env) -> Device {
    let translation = TranslationParameters {
        media_cache: MediaCache { bytes: 512 << 10, extents_max: 200 },
        idle_step_bytes: 32 << 10,
        blocking_step_bytes: 64 << 10,
        ..TranslationParameters::st8000as0022()
    };
    let zones = ZoneGeometry {
        sequential_type: ZoneType::SequentialWritePreferred,
        media_cache: Some(translation.media_cache),
        ..ZoneGeometry::fit(ZONES * ZONE, ZONE).unwrap()
    };
    let preset = Preset::find("st8000as0022").unwrap().with_capacity(ZONES * ZONE);
    let backing = Box::new(RamBacking::new());
    preset.build_translated(env, "disk", Zoned::new(&zones), translation, backing, Pacing::Account)
}

fn conventional(env: &Env) -> Device {
    let preset = Preset::find("st8000as0022").unwrap().with_capacity(ZONES * ZONE);
    let backing = Box::new(RamBacking::new());
    Device::of_blocks(Arc::new(preset.build(env, "disk", backing, Pacing::Account)))
}

fn fast(env: &Env) -> Device {
    let bytes = 4 << 20;
    let preset = Preset::find("nvme-ssd").unwrap().with_capacity(bytes);
    Device::of_blocks(Arc::new(preset.build(env, "fast", Box::new(RamBacking::new()), Pacing::Account)))
}

/// So small that pages leave all the time; `seed` chooses among its forms.
fn parameters(seed: u64) -> BufferParameters {
    BufferParameters {
        page_count: [8, 24, 40][(seed % 3) as usize],
        order: [EvictionOrder::Zones, EvictionOrder::Pages][(seed / 3 % 2) as usize],
        rewrite_pages: [Some(3), None, Some(1)][(seed / 2 % 3) as usize],
        evicted_pages_min: [1, 4][(seed % 2) as usize],
        requests_at_once: 4,
        evictions_at_once: [1, 3][(seed / 4 % 2) as usize],
        ahead: [None, Some(EvictionAhead { reserve_share: 4, urgent_share: 8, quiet_nanos: 0 })]
            [(seed / 2 % 2) as usize]
            .clone(),
    }
}

fn open(env: &Env, disk: &Device, fast: &Device, seed: u64) -> (Device, WriteBuffer) {
    WriteBuffer::open(env, disk, fast, parameters(seed), BufferOpening::default(), None).unwrap()
}

fn in_simulation<T: Send + 'static>(seed: u64, run: impl FnOnce(&Env) -> T + Send + 'static) -> T {
    let env = Env::sim(seed);
    let own = env.clone();
    env.spawn("client", move || run(&own)).join().unwrap()
}

/// What a host did to a device, with the stamp that each sector should have: 0 reads as zeros.
struct Host {
    device: Device,
    random: Random,
    stamps: Vec<u64>,
    next: u64,
    /// Where writes in order go on in each zone.
    in_order: Vec<u64>,
}

fn content(stamps: &[u64]) -> Vec<u8> {
    stamps.iter().flat_map(|stamp| stamp.to_le_bytes().repeat((SECTOR / 8) as usize)).collect()
}

impl Host {
    fn new(device: Device, seed: u64) -> Host {
        let sectors = device.block.geometry().capacity_bytes / SECTOR;
        let in_order = vec![0; (sectors * SECTOR / ZONE) as usize];
        Host { device, random: Random::named(seed, "host"), stamps: vec![0; sectors as usize], next: 0, in_order }
    }

    /// Sectors of a request: mostly of few pages, so that the buffer has hits.
    fn range(&mut self) -> std::ops::Range<usize> {
        let random = &mut self.random;
        let sectors = self.stamps.len() as u64;
        let first = match random.below(4) {
            0 => random.below(sectors - 64),
            _ => random.below(self.in_order.len() as u64) * (ZONE / SECTOR) + random.below(120),
        };
        let length = 1 + [random.below(8), random.below(8), random.below(60)][random.index(3)];
        first as usize..(first + length).min(sectors) as usize
    }

    fn write(&mut self, range: std::ops::Range<usize>) -> Result<(), MediaError> {
        self.next += 1;
        self.stamps[range.clone()].fill(self.next);
        let data = content(&self.stamps[range.clone()]);
        self.device.block.write_at(range.start as u64 * SECTOR, &data, &IoContext::default())
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..9 => {
                let range = self.range();
                self.write(range).unwrap();
            }
            9..12 => {
                let zone = self.random.index(self.in_order.len());
                let from = self.in_order[zone];
                let sectors = (1 + self.random.below(40)).min(ZONE / SECTOR - from);
                self.in_order[zone] = (from + sectors) % (ZONE / SECTOR);
                let first = (zone as u64 * ZONE / SECTOR + from) as usize;
                self.write(first..first + sectors as usize).unwrap();
            }
            12..13 => {
                let range = self.range();
                self.stamps[range.clone()].fill(0);
                let length = range.len() as u64 * SECTOR;
                self.device.block.discard_at(range.start as u64 * SECTOR, length, &IoContext::default()).unwrap();
            }
            13..14 => self.device.block.sync(&IoContext::default()).unwrap(),
            _ => {
                let range = self.range();
                let mut data = vec![0xEE; range.len() * SECTOR as usize];
                self.device.block.read_at(range.start as u64 * SECTOR, &mut data, &IoContext::default()).unwrap();
                assert!(data == content(&self.stamps[range.clone()]), "sectors {range:?}");
            }
        }
    }

    fn check(&self) {
        let found = stamps(&self.device).unwrap();
        let wrong = found.iter().zip(&self.stamps).position(|(found, expected)| found != expected);
        assert_eq!(
            wrong,
            None,
            "sector, of {} found and {} expected",
            found[wrong.unwrap()],
            self.stamps[wrong.unwrap()]
        );
    }
}

/// The stamps of a device's sectors; `None` where one has several.
fn stamps(device: &Device) -> Option<Vec<u64>> {
    first_stamps(device, device.block.geometry().capacity_bytes)
}

fn first_stamps(device: &Device, bytes: u64) -> Option<Vec<u64>> {
    let mut data = vec![0; bytes as usize];
    device.block.read_at(0, &mut data, &IoContext::default()).unwrap();
    let sector = |bytes: &[u8]| {
        let mut stamps = bytes.chunks(8).map(|stamp| u64::from_le_bytes(stamp.try_into().unwrap()));
        let first = stamps.next()?;
        stamps.all(|stamp| stamp == first).then_some(first)
    };
    data.chunks(SECTOR as usize).map(sector).collect()
}

/// How long a request takes beside what its device takes.
type Delay = dyn Fn(&Request<'_>, &IoContext) -> Duration + Send + Sync;

/// A device that looks at requests, and takes longer for some.
struct Watched {
    inner: Device,
    env: Env,
    delay: Box<Delay>,
}

impl Watched {
    fn device(
        env: &Env,
        inner: Device,
        delay: impl Fn(&Request<'_>, &IoContext) -> Duration + Send + Sync + 'static,
    ) -> Device {
        let block = Arc::new(Watched { inner: inner.clone(), env: env.clone(), delay: Box::new(delay) });
        Device { block, ..inner }
    }
}

impl BlockDevice for Watched {
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
        let delay = requests.iter().map(|request| (self.delay)(request, context)).max().unwrap_or_default();
        if !delay.is_zero() {
            self.env.sleep(delay);
        }
        self.inner.block.execute(requests, context)
    }
    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.sync(context)
    }
    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

#[test]
fn a_disk_with_a_buffer_does_what_every_device_does() {
    for number in 0..6 {
        let make = move |env: &Env| {
            let below = if number % 2 == 0 { disk(env) } else { conventional(env) };
            open(env, &below, &fast(env), number).0
        };
        check_block_device(&make, &BlockDeviceCheck::default()).unwrap_or_else(|broken| panic!("{number}: {broken}"));
    }
}

#[test]
fn reads_give_what_was_written_last() {
    let mut reached = BufferStatistics::default();
    for seed in 0..24 {
        let statistics = in_simulation(seed, move |env| {
            let below = if seed % 4 == 3 { conventional(env) } else { disk(env) };
            let fast = fast(env);
            let (device, buffer) = open(env, &below, &fast, seed);
            let mut host = Host::new(device, seed);
            (0..600).for_each(|_| host.step());
            host.check();
            // Opened again, and again when all has left.
            let statistics = buffer.statistics();
            host.device.block.sync(&IoContext::default()).unwrap();
            let (device, buffer) = open(env, &below, &fast, seed);
            host.device = device;
            host.check();
            (0..100).for_each(|_| host.step());
            buffer.drain(&IoContext::default()).unwrap();
            assert_eq!(buffer.held_pages(), 0);
            host.check();
            let on_disk = first_stamps(&below, host.stamps.len() as u64 * SECTOR).unwrap();
            assert_eq!(on_disk, host.stamps, "seed {seed}");
            statistics
        });
        reached.rewritten_zones += statistics.rewritten_zones;
        reached.direct_writes += statistics.direct_writes;
        reached.evictions += statistics.evictions;
        reached.read_hit_pages += statistics.read_hit_pages;
        reached.overwritten_pages += statistics.overwritten_pages;
    }
    let BufferStatistics { rewritten_zones, direct_writes, evictions, read_hit_pages, overwritten_pages, .. } = reached;
    for count in [rewritten_zones, direct_writes, evictions, read_hit_pages, overwritten_pages] {
        assert!(count > 50, "{reached:?}");
    }
}

/// Threads that write to their own sectors, of pages that they share, read them as they wrote them.
#[test]
fn threads_see_their_own_writes() {
    for seed in 0..12 {
        in_simulation(seed, move |env| {
            let delays = std::sync::Mutex::new(env.random("delays"));
            // So that several evictions are under way at once.
            let below = Watched::device(env, disk(env), move |request, _| match request.transfer {
                Transfer::Read { .. } => Duration::ZERO,
                _ => Duration::from_micros(delays.lock().unwrap().below(2) * 9000),
            });
            let (device, _) = open(env, &below, &fast(env), seed);
            let workers: Vec<_> = (0..8usize)
                .map(|thread| {
                    let (device, env) = (device.clone(), env.clone());
                    env.clone().spawn("host", move || {
                        let mut random = env.random(&format!("host {thread}"));
                        let mut stamps = vec![0u64; 200];
                        for step in 1..150u64 {
                            let page = random.index(stamps.len());
                            let at = (page * 8 + thread) as u64 * SECTOR * if page.is_multiple_of(3) { 8 } else { 1 };
                            let at = at % (8 * ZONE) / (8 * SECTOR) * (8 * SECTOR) + thread as u64 * SECTOR;
                            let place = (at / (8 * SECTOR)) as usize;
                            stamps.resize(stamps.len().max(place + 1), 0);
                            match random.below(3) {
                                0 => {
                                    let mut found = vec![0; SECTOR as usize];
                                    device.block.read_at(at, &mut found, &IoContext::default()).unwrap();
                                    assert!(found == content(&[stamps[place]]), "thread {thread}, step {step}");
                                }
                                _ => {
                                    stamps[place] = step * 8 + thread as u64;
                                    let data = content(&[stamps[place]]);
                                    device.block.write_at(at, &data, &IoContext::default()).unwrap();
                                }
                            }
                            if step % 40 == thread as u64 {
                                device.block.sync(&IoContext::default()).unwrap();
                            }
                            if random.chance(1, 10) {
                                env.sleep(Duration::from_millis(random.below(400)));
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap_or_else(|_| panic!("seed {seed}"));
            }
        });
    }
}

/// While the disk is left alone, writes are taken in and hits are served; what needs the disk waits.
#[test]
fn what_the_buffer_can_do_it_does_while_the_disk_is_left_alone() {
    in_simulation(1, |env| {
        let second = 1_000_000_000;
        let (below, control) = ControlledDevice::new(env, &disk(env), Box::new(FixedIdle::new(second, second)));
        let parameters = BufferParameters { page_count: 24, rewrite_pages: None, ..BufferParameters::default() };
        let opening = BufferOpening::default();
        let control = Some(control);
        let (device, buffer) = WriteBuffer::open(env, &below, &fast(env), parameters, opening, control).unwrap();
        let took = |device: &Device, request: &mut Request<'_>| {
            let begun = env.now();
            device.block.execute(std::slice::from_mut(request), &IoContext::default()).unwrap();
            (env.now() - begun).as_millis()
        };
        let data = vec![7; 4096];
        let write = |at: u64| took(&device, &mut Request::write(at, &[IoSlice::new(&data)]));
        let read = |at: u64| {
            let mut data = vec![0; 4096];
            took(&device, &mut Request::read(at, &mut [IoSliceMut::new(&mut data)]))
        };
        // A read makes it begin to serve; then it is left alone.
        read(0);
        env.sleep(Duration::from_millis(1010));
        let held = read(5 * ZONE);
        assert!(held > 500, "{held}");
        env.sleep(Duration::from_millis(1000));
        let reader = {
            let (device, env) = (device.clone(), env.clone());
            env.clone().spawn("reader", move || {
                let mut data = vec![0; 4096];
                device.block.read_at(6 * ZONE, &mut data, &IoContext::default()).unwrap();
                env.now()
            })
        };
        env.sleep(Duration::from_millis(10));
        // In order, out of order, and over what is there.
        for at in [0, 4096, 3 * ZONE + 8192, 4096, 0] {
            assert!(write(at) < 5);
        }
        assert!(read(3 * ZONE + 8192) < 5);
        let ended = env.now();
        assert!(reader.join().unwrap() > ended);
        assert_eq!(buffer.held_pages(), 3);
    });
}

#[test]
fn what_cannot_be_one_is_refused_and_says_why() {
    in_simulation(1, |env| {
        let open = |disk: &Device, fast: &Device, parameters: BufferParameters, opening: BufferOpening| {
            WriteBuffer::open(env, disk, fast, parameters, opening, None).map(|_| ()).map_err(|error| error.to_string())
        };
        let (parameters, usual) = (parameters(0), BufferOpening::default());
        let (below, above) = (disk(env), fast(env));
        let many = BufferParameters { page_count: 1 << 20, ..parameters.clone() };
        assert!(open(&below, &above, many, usual).unwrap_err().contains("do not hold a write buffer that needs"));
        assert!(open(&above, &below, parameters.clone(), usual).unwrap_err().contains("a device without zones"));
        open(&below, &above, parameters.clone(), usual).unwrap();
        let write = |device: &Device, at: u64| device.block.write_at(at, &[1; 4096], &IoContext::default()).unwrap();
        let other = fast(env);
        let missing = open(&below, &other, parameters.clone(), usual).unwrap_err();
        assert!(missing.contains("write buffer of 8 pages") && missing.contains("it is blank"), "{missing}");
        let more = BufferParameters { page_count: 24, ..parameters.clone() };
        assert!(open(&below, &above, more, usual).unwrap_err().contains("was made with pages 8, not 24"));
        // Of another disk, with pages that are nowhere else.
        let (device, _) = WriteBuffer::open(env, &below, &above, parameters.clone(), usual, None).unwrap();
        write(&device, 8192);
        device.block.sync(&IoContext::default()).unwrap();
        let error = open(&disk(env), &above, parameters.clone(), usual).unwrap_err();
        assert!(error.contains("buffer of another disk") && error.contains("holds 1 pages"), "{error}");
        write(&other, 0);
        assert!(open(&disk(env), &other, parameters.clone(), usual).unwrap_err().contains("no write buffer"));
        // The loss is accepted: the disk has what it had.
        let accepted = BufferOpening { accepts_loss: true, ..usual };
        assert!(open(&below, &other, parameters.clone(), accepted).is_err(), "what is there is of somebody else");
        let other = fast(env);
        open(&below, &other, parameters.clone(), accepted).unwrap();
        open(&below, &other, parameters.clone(), usual).unwrap();
        assert!(open(&below, &above, parameters.clone(), accepted).is_err(), "it is the buffer of another disk");
        assert!(open(&below, &above, parameters.clone(), usual).unwrap_err().contains("the buffer of another"));
        let format = BufferOpening { format: true, ..usual };
        open(&below, &above, parameters.clone(), format).unwrap();
        open(&below, &above, parameters, usual).unwrap();
    });
}
