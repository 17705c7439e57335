//! What only this store promises: costs of syncs, refusals, damage, rewrites under readers and crashes.

mod history;
mod limits;
mod ordering;

use super::devices::own_of;
use super::view::Disk;
use super::*;
use crate::conformance::content;
use crate::error::StoreErrorKind;
use crate::file_store::Severity;
use varve_env::Random;
use varve_media::TrackId;
use varve_media::presets::Preset;
use varve_media::{
    BlockDevice, BlockDeviceExt, Capabilities, Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector,
    FaultPlan, FaultTrigger, Geometry, Immediate, Interlaced, IoClass, IoContext, MediaError, Operation, Pacing,
    RamBacking, Request, TrackGeometry, TrackTier, Transfer,
};

const CONTEXT: IoContext = IoContext::of(IoClass::Flush);
const TRACK_BYTES: u64 = 8 << 10;

/// Sizes of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    top_bytes: u64,
    bottom_bytes: u64,
    physical_sector_bytes: u32,
    /// What memory of requests must be aligned to, as for O_DIRECT.
    alignment_bytes: u32,
}

impl Shape {
    const EVEN: Shape =
        Shape { top_bytes: TRACK_BYTES, bottom_bytes: TRACK_BYTES, physical_sector_bytes: 4096, alignment_bytes: 1 };

    /// Five sectors to four, as published drives have it.
    const WIDE_BOTTOMS: Shape =
        Shape { top_bytes: 16 << 10, bottom_bytes: 20 << 10, physical_sector_bytes: 4096, alignment_bytes: 1 };

    const ALIGNED: Shape = Shape { physical_sector_bytes: 512, alignment_bytes: 4096, ..Shape::EVEN };

    fn tracks(self, track_count: u32) -> TrackGeometry {
        let pair_bytes = self.top_bytes + self.bottom_bytes;
        let capacity_bytes = u64::from(track_count / 2) * pair_bytes + u64::from(track_count % 2) * self.bottom_bytes;
        TrackGeometry::fit(capacity_bytes, self.bottom_bytes, self.top_bytes).unwrap()
    }

    fn geometry(self, track_count: u32) -> Geometry {
        Geometry {
            capacity_bytes: self.tracks(track_count).capacity_bytes(),
            sector_bytes: 512,
            physical_sector_bytes: self.physical_sector_bytes,
        }
    }

    /// A strict disk of so many tracks, and the block device of it for what only that can do.
    fn disk(self, env: &Env, track_count: u32) -> (Device, Arc<Emulated>) {
        let (tracks, geometry) = (self.tracks(track_count), self.geometry(track_count));
        let rules = Interlaced::new(&tracks, self.physical_sector_bytes, true);
        let control = rules.control("disk");
        let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
        let block = Arc::new(Emulated::new(env, "disk", geometry, Box::new(rules), timing, backing));
        (Device { tracks: Some(control), ..Device::of_blocks(block.clone()) }, block)
    }

    fn options(self, allocation: AllocationName, rewrite: RewriteName) -> ImrFormatOptions {
        ImrFormatOptions {
            table_bytes_max: Some(8 * self.bottom_bytes.max(self.top_bytes)),
            ..options(allocation, rewrite)
        }
    }

    /// Tracks of the zone of a disk that has so many for tables.
    fn zone_tracks(self, usable: u32) -> u32 {
        let options = self.options(AllocationName::Sequential, RewriteName::Merged);
        let mut zone_tracks = 4096;
        loop {
            let track_count = zone_tracks + usable;
            // A smaller disk has a smaller zone, in steps of many tracks.
            match StoreGeometry::plan("disk", &self.geometry(track_count), &self.tracks(track_count), &options, INSIDE)
            {
                Ok(planned) if planned.zone_tracks < zone_tracks => zone_tracks = planned.zone_tracks,
                _ => return zone_tracks,
            }
        }
    }

    /// A formatted disk with so many tracks for tables.
    fn formatted(
        self,
        env: &Env,
        usable: u32,
        allocation: AllocationName,
        rewrite: RewriteName,
    ) -> (Device, Arc<Emulated>) {
        let (device, block) = self.disk(env, self.zone_tracks(usable) + usable);
        ImrStore::format(env, self.aligned(&device), &self.options(allocation, rewrite)).unwrap();
        (device, block)
    }

    /// The device with its demands on memory.
    fn aligned(self, device: &Device) -> Device {
        if self.alignment_bytes <= 1 {
            return device.clone();
        }
        let mut capabilities = device.block.capabilities().clone();
        capabilities.buffer_alignment_bytes = self.alignment_bytes;
        let block = Arc::new(Aligned { inner: device.block.clone(), capabilities });
        Device { tracks: device.tracks.clone(), ..Device::of_blocks(block) }
    }
}

/// A device that refuses memory which is not aligned, as one that is opened with O_DIRECT.
struct Aligned {
    inner: Arc<dyn BlockDevice>,
    capabilities: Capabilities,
}

impl BlockDevice for Aligned {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let alignment = self.capabilities.buffer_alignment_bytes as usize;
        for request in &*requests {
            let is_aligned = |bytes: &[u8]| bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(alignment);
            let all = match &request.transfer {
                Transfer::Read { data, .. } => data.iter().all(|slice| is_aligned(slice)),
                Transfer::Write { data, .. } => data.iter().all(|slice| is_aligned(slice)),
                Transfer::Discard { .. } => true,
            };
            assert!(all, "memory of a request at {} is not aligned to {alignment}", request.offset_bytes);
        }
        self.inner.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

fn disk(env: &Env, track_count: u32) -> (Device, Arc<Emulated>) {
    Shape::EVEN.disk(env, track_count)
}

fn options(allocation: AllocationName, rewrite: RewriteName) -> ImrFormatOptions {
    ImrFormatOptions {
        allocation,
        rewrite,
        table_bytes_max: Some(8 * TRACK_BYTES),
        small_files_bytes: Some(1 << 20),
        persists_max: 2,
        ..ImrFormatOptions::default()
    }
}

const INSIDE: ImrPlacement = ImrPlacement { logs: ImrPlace::Inside, map: ImrPlace::Inside };

fn zone_tracks(usable: u32) -> u32 {
    Shape::EVEN.zone_tracks(usable)
}

fn formatted(env: &Env, usable: u32, allocation: AllocationName, rewrite: RewriteName) -> (Device, Arc<Emulated>) {
    Shape::EVEN.formatted(env, usable, allocation, rewrite)
}

fn open(env: &Env, device: &Device) -> ImrStore {
    ImrStore::open(env, device.clone(), &ImrOpenOptions::default()).unwrap()
}

fn write(store: &ImrStore, name: &str, file: u64, bytes: u64, level: Option<u8>) -> Result<(), StoreError> {
    let options = CreateOptions { kind: FileKind::Table, level, ..CreateOptions::default() };
    let mut writer = store.create(name, &options)?;
    writer.append(&content(file, 0, bytes), &CONTEXT)?;
    writer.sync(&CONTEXT)?;
    writer.finish(&CONTEXT)
}

fn read(store: &ImrStore, name: &str) -> Result<Vec<u8>, StoreError> {
    let reader = store.open(name, &OpenOptions::default())?;
    let mut data = vec![0; reader.size_bytes() as usize];
    reader.read_at(0, &mut data, &CONTEXT)?;
    Ok(data)
}

fn tracks(store: &ImrStore, name: &str) -> Vec<u32> {
    store.core.find(name).unwrap().map().tracks().iter().map(|track| track.0).collect()
}

fn assert_clean(store: &ImrStore) {
    let findings = store.check().unwrap();
    assert!(findings.iter().all(|finding| finding.severity == Severity::Warning), "{findings:?}");
}

#[test]
fn a_table_costs_its_steps_and_one_commit() {
    let env = Env::sim(1);
    let (device, _) = formatted(&env, 64, AllocationName::Sequential, RewriteName::Merged);
    let store = open(&env, &device);
    let before = device.block.counters();
    write(&store, "a", 1, 4 * TRACK_BYTES, None).unwrap();
    let after = device.block.counters();
    // Two bottoms, a sync, two tops, a sync, and the commit, which needs none.
    assert_eq!((after.syncs - before.syncs, after.writes - before.writes), (2, 5));
    let statistics = store.statistics();
    assert_eq!((statistics.tables, statistics.syncs, statistics.rewrites), (1, 2, 0));
    assert_eq!(statistics.bytes, 4 * TRACK_BYTES);
    assert_clean(&store);
}

#[test]
fn rewrites_are_those_of_the_algorithms() {
    for (rewrite, rewrites, syncs) in [(RewriteName::Merged, 3, 3), (RewriteName::Naive, 4, 6)] {
        let env = Env::sim(1);
        let (device, _) = formatted(&env, 64, AllocationName::Sequential, rewrite);
        let store = open(&env, &device);
        let first = store.core.geometry.usable().start;
        assert_eq!(first % 2, 1);
        // Tracks of one table each; the first is a top.
        for number in 0..8 {
            write(&store, &number.to_string(), number, TRACK_BYTES, None).unwrap();
        }
        for number in [1, 3] {
            store.remove(&number.to_string()).unwrap();
        }
        store.sync_names().unwrap();
        store.core.state.lock().cursor = Default::default();
        let restores = || store.occupancy().pieces.iter().map(|piece| piece.rewrites).collect::<Vec<u32>>();
        let (before, restored_before) = (store.statistics(), restores());
        // Bottoms between the tops 0, 2 and 4: one of them is beside both.
        write(&store, "new", 99, 2 * TRACK_BYTES, None).unwrap();
        assert_eq!(tracks(&store, "new"), [first + 1, first + 3]);
        let after = store.statistics();
        assert_eq!((after.rewrites - before.rewrites, after.syncs - before.syncs), (rewrites, syncs), "{rewrite:?}");
        // The top between the two bottoms is the one that naive rewrites restore twice.
        let restored: Vec<u32> = restores().iter().zip(restored_before).map(|(after, before)| after - before).collect();
        let twice = u32::from(rewrite == RewriteName::Naive);
        assert_eq!(restored[first as usize..][..5], [1, 0, 1 + twice, 0, 1], "{rewrite:?}");
        assert_eq!(u64::from(restored.iter().sum::<u32>()), rewrites, "{rewrite:?}");
        for number in [0, 2, 4, 5, 6, 7] {
            assert_eq!(read(&store, &number.to_string()).unwrap(), content(number, 0, TRACK_BYTES));
        }
        assert_eq!(read(&store, "new").unwrap(), content(99, 0, 2 * TRACK_BYTES));
        assert_clean(&store);
        assert_eq!(device.tracks.as_ref().unwrap().destroyed().bytes, 0);
    }
}

#[test]
fn the_largest_level_is_known_from_creates_and_hints() {
    let env = Env::sim(1);
    let (device, _) = formatted(&env, 200, AllocationName::CompactionAware, RewriteName::Merged);
    let store = open(&env, &device);
    let is_on_bottoms = |store: &ImrStore, name: &str| tracks(store, name).iter().all(|track| track % 2 == 0);
    write(&store, "a", 1, 2 * TRACK_BYTES, None).unwrap();
    assert!(!is_on_bottoms(&store, "a"), "nothing is known of it");
    write(&store, "b", 2, 2 * TRACK_BYTES, Some(2)).unwrap();
    assert!(is_on_bottoms(&store, "b"));
    let file = HintedFile { name: "a".to_owned(), level: Some(4), size_bytes: 1 };
    store.hint(&Hint::LevelChanged { file: &file });
    write(&store, "c", 3, 2 * TRACK_BYTES, Some(3)).unwrap();
    assert!(!is_on_bottoms(&store, "c"), "a table of level 4 is there");
    store.remove("a").unwrap();
    write(&store, "d", 4, 2 * TRACK_BYTES, Some(3)).unwrap();
    assert!(is_on_bottoms(&store, "d"));
    // The level said after create counts until the first flush.
    let mut writer = store.create("e", &CreateOptions { kind: FileKind::Table, ..Default::default() }).unwrap();
    writer.append(&[1; 100], &CONTEXT).unwrap();
    writer.set_level(5);
    writer.flush(&CONTEXT).unwrap();
    writer.set_level(0);
    writer.sync(&CONTEXT).unwrap();
    assert!(is_on_bottoms(&store, "e"));
}

#[test]
fn a_table_without_room_says_what_is_asked_and_what_there_is_and_loses_nothing() {
    let env = Env::sim(1);
    let (device, _) = formatted(&env, 20, AllocationName::CompactionAware, RewriteName::Merged);
    let store = open(&env, &device);
    write(&store, "kept", 1, 12 * TRACK_BYTES, Some(1)).unwrap();
    let error = write(&store, "large", 2, 9 * TRACK_BYTES - 5, Some(1)).unwrap_err();
    match &error {
        StoreError::NoSpace { name, requested_bytes, available_bytes, .. } => {
            assert_eq!(
                (name.as_str(), *requested_bytes, *available_bytes),
                ("large", 9 * TRACK_BYTES - 5, 8 * TRACK_BYTES)
            );
        }
        other => panic!("{other}"),
    }
    assert_eq!(read(&store, "kept").unwrap(), content(1, 0, 12 * TRACK_BYTES));
    // The space of what is removed counts although the removal is not durable.
    store.remove("large").unwrap();
    store.remove("kept").unwrap();
    write(&store, "another", 3, 20 * TRACK_BYTES, Some(1)).unwrap();
    assert_eq!(read(&store, "another").unwrap(), content(3, 0, 20 * TRACK_BYTES));
    assert_eq!(store.space().unwrap().available_bytes, 0);
    assert_clean(&store);
}

#[test]
fn the_tail_of_a_synced_table_moves_when_more_is_added() {
    for rewrite in [RewriteName::Naive, RewriteName::Merged] {
        let env = Env::sim(1);
        let (device, _) = formatted(&env, 40, AllocationName::Sequential, rewrite);
        let store = open(&env, &device);
        let mut writer = store.create("a", &CreateOptions { kind: FileKind::Table, ..Default::default() }).unwrap();
        let mut size = 0;
        for length in [100, 2 * TRACK_BYTES, 5000, 0, 3 * TRACK_BYTES - 5100, 1] {
            let reader = store.open("a", &OpenOptions::default()).unwrap();
            writer.append(&content(1, size, length), &CONTEXT).unwrap();
            writer.sync(&CONTEXT).unwrap();
            let mut data = vec![0; size as usize];
            reader.read_at(0, &mut data, &CONTEXT).unwrap();
            assert_eq!(data, content(1, 0, size));
            size += length;
            assert_eq!(read(&store, "a").unwrap(), content(1, 0, size));
            assert_eq!(tracks(&store, "a").len() as u64, size.div_ceil(TRACK_BYTES));
        }
        writer.finish(&CONTEXT).unwrap();
        store.sync_names().unwrap();
        let used = size.div_ceil(TRACK_BYTES);
        let space = store.space().unwrap();
        assert_eq!(space.total_bytes - space.available_bytes, used * TRACK_BYTES);
        assert_clean(&store);
        drop(store);
        let store = open(&env, &device);
        assert_eq!(read(&store, "a").unwrap(), content(1, 0, size));
        assert_clean(&store);
    }
}

/// A sector that cannot be read: the error names file and offset, the rest is there, `check` lists it, and
/// bottoms beside it are left alone.
#[test]
fn an_unreadable_sector_is_named_and_the_rest_is_there() {
    let env = Env::sim(1);
    let (device, block) = formatted(&env, 12, AllocationName::Sequential, RewriteName::Merged);
    let store = open(&env, &device);
    for number in 0..12 {
        write(&store, &number.to_string(), number, TRACK_BYTES, None).unwrap();
    }
    let damaged = TrackId(tracks(&store, "4")[0]);
    assert_eq!(store.core.geometry.tracks.tier(damaged), TrackTier::Top);
    let at = store.core.geometry.tracks.start_bytes(damaged) + 4096;
    block.damage(at..at + 512);
    let reader = store.open("4", &OpenOptions::default()).unwrap();
    let mut data = vec![0; 8192];
    let error = reader.read_at(0, &mut data, &CONTEXT).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corruption);
    assert!(error.to_string().contains("file '4' at offset 4096"), "{error}");
    reader.read_at(0, &mut data[..4096], &CONTEXT).unwrap();
    reader.read_at(4608, &mut data[4608..], &CONTEXT).unwrap();
    assert_eq!(data[..4096], content(4, 0, 4096));
    assert_eq!(data[4608..], content(4, 4608, 8192 - 4608));
    let findings = store.check().unwrap();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), ["table-unreadable"]);
    assert_eq!(ImrStore::inspect(&device).iter().map(|finding| finding.code).collect::<Vec<_>>(), ["table-unreadable"]);
    // Free are the bottoms beside the damaged top and one other: only that can be had.
    for number in [3, 5, 9] {
        store.remove(&number.to_string()).unwrap();
    }
    write(&store, "new", 77, TRACK_BYTES, None).unwrap();
    assert_eq!(tracks(&store, "new"), [damaged.0 + 5]);
    let error = write(&store, "more", 78, TRACK_BYTES, None).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NoSpace);
    reader.read_at(4608, &mut data[4608..], &CONTEXT).unwrap();
    // Once the damaged table is gone, they can.
    drop(reader);
    store.remove("4").unwrap();
    store.sync_names().unwrap();
    write(&store, "again", 79, 3 * TRACK_BYTES, None).unwrap();
    assert_eq!(read(&store, "again").unwrap(), content(79, 0, 3 * TRACK_BYTES));
    store.remove("more").unwrap();
    assert_clean(&store);
}

#[test]
fn other_devices_and_other_stores_are_refused_by_name() {
    let env = Env::sim(1);
    let plain = Device::of_blocks(Arc::new(Emulated::immediate(&env, "plain", 32 << 20)));
    let refused = ImrStore::format(&env, &plain, &ImrFormatOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::InvalidRequest);
    assert!(ImrStore::open(&env, plain, &ImrOpenOptions::default()).is_err());

    let (device, block) = disk(&env, zone_tracks(20) + 20);
    assert!(!ImrStore::probe(&device).unwrap());
    let nothing = ImrStore::open(&env, device.clone(), &ImrOpenOptions::default()).err().unwrap();
    assert_eq!(nothing.kind(), StoreErrorKind::Foreign);
    assert_eq!(ImrStore::inspect(&device)[0].code, "metadata-unreadable");
    let sequential = options(AllocationName::Sequential, RewriteName::Naive);
    ImrStore::format(&env, &device, &sequential).unwrap();
    assert!(ImrStore::probe(&device).unwrap());
    let again = ImrStore::format(&env, &device, &sequential).unwrap_err();
    assert!(again.to_string().contains("overwrite"), "{again}");
    ImrStore::format(&env, &device, &ImrFormatOptions { overwrite: true, ..sequential }).unwrap();
    let too_small = disk(&env, zone_tracks(20)).0;
    assert!(ImrStore::format(&env, &too_small, &sequential).unwrap_err().to_string().contains("too small"));

    // The same disk with other tracks.
    let inner: Arc<dyn varve_media::BlockDevice> = block.clone();
    let tracks = TrackGeometry { top_track_bytes: TRACK_BYTES, ..store_tracks(&device) };
    let other = TrackGeometry { bottom_track_bytes: TRACK_BYTES, track_count: tracks.track_count - 2, ..tracks };
    let device = Interlaced::new(&other, 4096, true).over(&inner);
    let error = ImrStore::open(&env, device, &ImrOpenOptions::default()).err().unwrap();
    assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
}

fn store_tracks(device: &Device) -> TrackGeometry {
    device.block.capabilities().tracks.clone().unwrap()
}

#[test]
fn damaged_superblocks_are_errors_with_a_place() {
    let env = Env::sim(1);
    let (device, _) = formatted(&env, 20, AllocationName::CompactionAware, RewriteName::Merged);
    drop(open(&env, &device));
    let tops = own_of(&Disk::new(device.block.clone()), Some(&store_tracks(&device)));
    for at in [0, 64 << 10] {
        let mut sector = [0; 512];
        tops.block.read_at(at, &mut sector, &CONTEXT).unwrap();
        sector[200] ^= 1;
        tops.block.write_at(at, &sector, &CONTEXT).unwrap();
        match ImrStore::open(&env, device.clone(), &ImrOpenOptions::default()) {
            Ok(store) => assert!(at == 0 && store.list().unwrap().is_empty()),
            Err(error) => assert_eq!((at, error.kind()), (64 << 10, StoreErrorKind::Corruption), "{error}"),
        }
        if at == 0 {
            // The open has mended it.
            let mut sector = [0; 512];
            tops.block.read_at(0, &mut sector, &CONTEXT).unwrap();
            sector[200] ^= 1;
            tops.block.write_at(0, &sector, &CONTEXT).unwrap();
        }
    }
}

/// Every write and sync of a rewrite fails in turn, for good; the next open restores what was away.
#[test]
fn a_failure_at_any_call_of_a_rewrite_loses_nothing() {
    let mut restored = 0;
    for rewrite in [RewriteName::Naive, RewriteName::Merged] {
        for operation in [Operation::Write, Operation::Sync, Operation::Read] {
            for call in 0..40 {
                let env = Env::sim(1);
                let (device, _) = formatted(&env, 24, AllocationName::Sequential, rewrite);
                let injector = FaultInjector::new(&env, FaultPlan::default());
                let faulty = FaultDevice::device(&injector, &device);
                let store = open(&env, &faulty);
                for number in 0..24 {
                    write(&store, &number.to_string(), number, TRACK_BYTES, None).unwrap();
                }
                for number in [1, 3, 5, 11, 12] {
                    store.remove(&number.to_string()).unwrap();
                }
                store.sync_names().unwrap();
                let error = FaultEffect::Fail(FaultError::Io);
                injector.set_plan(FaultPlan::of(Fault::new(operation, FaultTrigger::From(call), error)));
                let outcome = write(&store, "new", 99, 5 * TRACK_BYTES, None);
                let struck = injector.injected() > 0;
                assert!(struck || outcome.is_ok());
                let others = (0..24).filter(|number| ![1, 3, 5, 11, 12].contains(number));
                if operation != Operation::Read {
                    // Readers find the tops that are away in the backup region.
                    for number in others.clone() {
                        assert_eq!(read(&store, &number.to_string()).unwrap(), content(number, 0, TRACK_BYTES));
                    }
                }
                std::mem::forget(store);
                let found = ImrStore::inspect(&device);
                assert!(found.iter().all(|finding| finding.severity == Severity::Warning), "{found:?}");
                let store = open(&env, &device);
                restored += store.statistics().restored_at_open;
                for number in others {
                    assert_eq!(
                        read(&store, &number.to_string()).unwrap(),
                        content(number, 0, TRACK_BYTES),
                        "{rewrite:?}, {operation} {call}: table {number}"
                    );
                }
                if outcome.is_ok() {
                    assert_eq!(read(&store, "new").unwrap(), content(99, 0, 5 * TRACK_BYTES));
                }
                assert_clean(&store);
                write(&store, "later", 100, 2 * TRACK_BYTES, None).ok();
                assert_clean(&store);
                if !struck {
                    break;
                }
            }
        }
    }
    assert!(restored > 20, "{restored} tops were restored");
}

/// Readers of tops that are saved, destroyed and restored, on a disk that takes its time.
#[test]
fn readers_see_right_bytes_while_tops_are_away() {
    for (seed, rewrite) in [(1, RewriteName::Naive), (2, RewriteName::Merged)] {
        let env = Env::sim(seed);
        let usable = 40;
        let track_count = zone_tracks(usable) + usable;
        let tracks = TrackGeometry {
            track_count,
            top_track_bytes: TRACK_BYTES,
            bottom_track_bytes: TRACK_BYTES,
            interlaced: true,
        };
        let preset = Preset::find("st500dm002").unwrap().with_capacity(tracks.capacity_bytes());
        let rules = Interlaced::new(&tracks, 4096, true);
        let device = preset.build_interlaced(&env, "disk", rules, Box::new(RamBacking::new()), Pacing::Sleep);
        ImrStore::format(&env, &device, &options(AllocationName::Sequential, rewrite)).unwrap();
        let store = Arc::new(open(&env, &device));
        for number in 0..u64::from(usable) {
            write(&store, &number.to_string(), number, TRACK_BYTES, None).unwrap();
        }
        let readers: Vec<_> = (0..3u64)
            .map(|reader| {
                let (env, store) = (env.clone(), store.clone());
                let mut random = env.random(&format!("reader {reader}"));
                env.clone().spawn(&format!("reader {reader}"), move || {
                    for _ in 0..300 {
                        let number = random.below(u64::from(usable) / 2) * 2;
                        assert_eq!(read(&store, &number.to_string()).unwrap(), content(number, 0, TRACK_BYTES));
                    }
                })
            })
            .collect();
        // Two at once, each in its half, and in the middle in each other's way.
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (env, store) = (env.clone(), store.clone());
                env.clone().spawn(&format!("writer {writer}"), move || {
                    for round in 0..10 {
                        for number in (1..usable / 2).step_by(2) {
                            let name = (u64::from(number) + 20 * writer).to_string();
                            store.remove(&name).unwrap();
                            let file = 1000 + 100 * writer + round;
                            write(&store, &name, file, TRACK_BYTES, None).unwrap();
                            assert_eq!(read(&store, &name).unwrap(), content(file, 0, TRACK_BYTES));
                        }
                    }
                })
            })
            .collect();
        for handle in readers.into_iter().chain(writers) {
            handle.join().unwrap_or_else(|panicked| panic!("{}: {}", panicked.thread(), panicked.message()));
        }
        assert!(store.statistics().rewrites > 100, "{:?}", store.statistics());
        assert!(store.statistics().rewrite_nanos > 0);
        assert!(store.statistics().persist_nanos > store.statistics().rewrite_nanos);
        assert_clean(&store);
    }
}

/// A table larger than what the backup region is for.
#[test]
fn a_large_table_is_rewritten_in_parts() {
    for rewrite in [RewriteName::Naive, RewriteName::Merged] {
        let env = Env::sim(1);
        let (device, _) = formatted(&env, 120, AllocationName::Sequential, rewrite);
        let store = open(&env, &device);
        for number in 0..120 {
            write(&store, &number.to_string(), number, TRACK_BYTES, None).unwrap();
        }
        for number in (1..120).step_by(2) {
            store.remove(&number.to_string()).unwrap();
        }
        write(&store, "large", 999, 60 * TRACK_BYTES, None).unwrap();
        assert!(store.statistics().rewrites >= 60);
        assert_eq!(read(&store, "large").unwrap(), content(999, 0, 60 * TRACK_BYTES));
        for number in (0..120).step_by(2) {
            assert_eq!(read(&store, &number.to_string()).unwrap(), content(number, 0, TRACK_BYTES));
        }
        assert_clean(&store);
    }
}

#[test]
fn the_policy_can_be_chosen_when_it_is_opened() {
    let env = Env::sim(1);
    let (device, _) = formatted(&env, 40, AllocationName::CompactionAware, RewriteName::Merged);
    let chosen = ImrOpenOptions {
        allocation: Some(AllocationName::ThreePhase),
        rewrite: Some(RewriteName::Naive),
        ..ImrOpenOptions::default()
    };
    let store = ImrStore::open(&env, device.clone(), &chosen).unwrap();
    write(&store, "a", 1, 2 * TRACK_BYTES, Some(0)).unwrap();
    assert!(tracks(&store, "a").iter().all(|track| track % 2 == 0));
    drop(store);
    let store = open(&env, &device);
    write(&store, "b", 2, TRACK_BYTES, None).unwrap();
    assert!(tracks(&store, "b").iter().all(|track| track % 2 == 1));
    assert_clean(&store);
}
