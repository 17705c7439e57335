//! What this store is tested on: every policy and both rewrites on interlaced tracks, logs beside the disk with the map
//! and without, and conventional disks.

use super::{
    AllocationName, ImrDevices, ImrFormatOptions, ImrOpenOptions, ImrPlace, ImrStore, RewriteName, TrackWrites,
    decode_anything,
};
use crate::conformance::{
    DeviceSubject, Effort, Ending, Fixture, FixturePolicies, Ground, Medium, PairSubject, Subject, TestedStore,
    TestedSubject,
};
use crate::error::StoreError;
use crate::file_store::FileStore;
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::devices::{DISK, INTERLACED, INTERLACED_OF_TWO_SIZES, USED_DISK};
use varve_media::{
    BlockDevice, BlockDeviceExt, Device, Emulated, Geometry, Immediate, Interlaced, IoContext, RamBacking,
    TrackGeometry, TrackId,
};

/// For the table of stores.
pub(crate) const TESTED: TestedStore =
    TestedStore { name: "imr", subjects, fixtures: FIXTURES, decode_anything, open_anything };

const ALONE: DeviceSubject = DeviceSubject {
    name: "imr",
    device: INTERLACED,
    capacity_bytes: 28 << 20,
    physical_sector_bytes: 4096,
    ending: Ending::Forget,
    format: |env, disk| ImrStore::format(env, disk, &options(AllocationName::ThreePhase, RewriteName::Naive)),
    open: |env, disk| open(env, disk.into()),
};

const PAIR: PairSubject = PairSubject {
    disk: DeviceSubject { capacity_bytes: 20 << 20, ..ALONE },
    beside: "logs",
    logs: DISK,
    logs_capacity_bytes: 8 << 20,
    format: |env, disk, logs| {
        let options = options(AllocationName::CompactionAware, RewriteName::Merged);
        ImrStore::format(env, ImrDevices::with_logs(disk, logs), &options)
    },
    open: |env, disk, logs| open(env, ImrDevices { disk, logs: Some(logs) }),
};

/// What was tested thoroughly on one device, on two.
const BESIDE: Effort = Effort { schedules: 1, images_of_point: 7, recoveries: 5, fault_stride: 11, ..Effort::MUCH };

fn options(allocation: AllocationName, rewrite: RewriteName) -> ImrFormatOptions {
    ImrFormatOptions {
        allocation,
        rewrite,
        table_bytes_max: Some(128 << 10),
        small_files_bytes: Some(6 << 20),
        overwrite: true,
        ..ImrFormatOptions::default()
    }
}

/// Every pair of policies.
fn policies() -> impl Iterator<Item = (AllocationName, RewriteName)> {
    let of_one = |&allocation: &AllocationName| RewriteName::ALL.iter().map(move |&rewrite| (allocation, rewrite));
    AllocationName::ALL.iter().flat_map(of_one)
}

fn open(env: &Env, devices: ImrDevices) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(ImrStore::open(env, devices, &ImrOpenOptions::default())?))
}

fn open_cached(env: &Env, disk: Device) -> Result<Arc<dyn FileStore>, StoreError> {
    let options = ImrOpenOptions { track_writes: TrackWrites::Cached, ..ImrOpenOptions::default() };
    Ok(Arc::new(ImrStore::open(env, disk, &options)?))
}

/// Bytes of a track of a fixture.
const TRACK_BYTES: u64 = 4 << 10;

const FIXTURES: &[Fixture] = &[
    Fixture {
        policies: Some(POLICIES),
        unit_bytes: TRACK_BYTES,
        ..Fixture::new(
            "Imr",
            Ground::Device {
                make: |_, name, policy, space_bytes| made(name, policy, space_bytes, None),
                open: |env, disk| open(env, disk.into()),
            },
        )
    },
    // The same store with everything that is no table on a conventional device beside the disk.
    Fixture {
        policies: Some(POLICIES),
        unit_bytes: TRACK_BYTES,
        ..Fixture::new(
            "ImrLogsApart",
            Ground::Pair {
                make: |_, name, policy, space_bytes| {
                    let emulated = Emulated::immediate(&Env::real(), &format!("{name} logs"), space_bytes.max(4 << 20));
                    let logs = Device::of_blocks(Arc::new(emulated));
                    [made(name, policy, space_bytes, Some(&logs)), logs]
                },
                open: |env, [disk, logs]| open(env, ImrDevices { disk, logs: Some(logs) }),
            },
        )
    },
];

const POLICIES: FixturePolicies = FixturePolicies {
    count: AllocationName::ALL.len() * RewriteName::ALL.len(),
    text: |number| policies().nth(number).map(|pair| format!("{pair:?}")).unwrap_or_default(),
};

/// A strict disk with space for so many bytes of tables. Of the real world, where it takes no time: images read it from
/// other simulations.
fn made(name: &str, policy: usize, space_bytes: u64, logs: Option<&Device>) -> Device {
    let env = Env::real();
    let (allocation, rewrite) = policies().nth(policy).expect("a pair of policies");
    let build = |track_count: u64| {
        let tracks = TrackGeometry::fit(track_count * TRACK_BYTES, TRACK_BYTES, TRACK_BYTES).expect("tracks of a disk");
        let geometry =
            Geometry { capacity_bytes: tracks.capacity_bytes(), sector_bytes: 512, physical_sector_bytes: 512 };
        let rules = Interlaced::new(&tracks, geometry.physical_sector_bytes, true);
        let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
        let disk = rules.device(name, |rules| Emulated::new(&env, name, geometry, rules, timing, backing));
        let options = ImrFormatOptions {
            allocation,
            rewrite,
            table_bytes_max: Some(4 * TRACK_BYTES),
            // Of a roomy disk the memtables are larger too.
            small_files_bytes: Some(if space_bytes > 2 << 20 { 4 << 20 } else { 1 << 20 }),
            overwrite: true,
            ..ImrFormatOptions::default()
        };
        let devices = ImrDevices { disk, logs: logs.cloned() };
        ImrStore::format(&env, devices.clone(), &options).expect("format");
        devices
    };
    // How many tracks the store takes for itself depends little on how many there are.
    let wanted = space_bytes / TRACK_BYTES;
    let mut track_count = 4096 + wanted;
    loop {
        let devices = build(track_count);
        let store = open(&env, devices.clone()).expect("open");
        let space = store.space().expect("space").total_bytes / TRACK_BYTES;
        if space <= wanted {
            return devices.disk;
        }
        track_count -= space - wanted;
    }
}

fn subjects() -> Vec<TestedSubject> {
    alone().into_iter().chain(beside()).collect()
}

/// The store alone on a disk with a pair of policies.
struct PolicySubject {
    allocation: AllocationName,
    rewrite: RewriteName,
    /// The disk; its `format` is not used.
    disk: DeviceSubject,
}

impl Subject for PolicySubject {
    fn name(&self) -> String {
        format!("imr {} {} on {}", self.allocation.text(), self.rewrite.text(), self.disk.device.name)
    }

    fn device_count(&self) -> usize {
        1
    }

    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError> {
        let disk = self.disk.device(env);
        ImrStore::format(env, &disk, &options(self.allocation, self.rewrite))?;
        Ok(self.disk.medium_of(env, &disk))
    }
}

fn alone() -> Vec<TestedSubject> {
    // The two that differ most.
    let thorough =
        [(AllocationName::ThreePhase, RewriteName::Naive), (AllocationName::CompactionAware, RewriteName::Merged)];
    let of_pair = |place: usize, allocation: AllocationName, rewrite: RewriteName| {
        // Either size of sectors with either rewrite.
        let physical_sector_bytes = [512, 4096, 4096, 512][place % 4];
        let effort = match thorough.contains(&(allocation, rewrite)) {
            true => Effort { fault_stride: 7, ..Effort::FULL },
            false => Effort::SOME,
        };
        // And of writing tracks.
        let open = if (place / 2).is_multiple_of(2) { ALONE.open } else { open_cached };
        let disk = DeviceSubject { physical_sector_bytes, open, ..ALONE };
        TestedSubject::new(PolicySubject { allocation, rewrite, disk }, effort)
    };
    policies().enumerate().map(|(place, (allocation, rewrite))| of_pair(place, allocation, rewrite)).collect()
}

fn beside() -> Vec<TestedSubject> {
    let two_sizes = DeviceSubject { name: "imr kvimr-m", device: INTERLACED_OF_TWO_SIZES, ..PAIR.disk };
    let map_inside = PairSubject {
        disk: DeviceSubject { name: "imr kvimr-n, map inside,", physical_sector_bytes: 512, ..PAIR.disk },
        format: |env, disk, logs| {
            let options = options(AllocationName::CompactionAware, RewriteName::Naive);
            ImrStore::format(
                env,
                ImrDevices::with_logs(disk, logs),
                &ImrFormatOptions { map: ImrPlace::Inside, ..options },
            )
        },
        ..PAIR
    };
    let conventional = PairSubject {
        disk: DeviceSubject { name: "imr", device: USED_DISK, ..PAIR.disk },
        logs: USED_DISK,
        format: |env, disk, logs| {
            let options = options(AllocationName::ThreePhase, RewriteName::Naive);
            let options = ImrFormatOptions { conventional_track_bytes: Some(8 << 10), ..options };
            ImrStore::format(env, ImrDevices::with_logs(disk, logs), &options)
        },
        ..PAIR
    };
    let alone_on_conventional = DeviceSubject {
        device: DISK,
        physical_sector_bytes: 512,
        format: |env, disk| {
            let options = options(AllocationName::ThreePhase, RewriteName::Merged);
            ImrStore::format(env, disk, &ImrFormatOptions { conventional_track_bytes: Some(8 << 10), ..options })
        },
        ..ALONE
    };
    vec![
        TestedSubject::new(PairSubject { disk: two_sizes, ..PAIR }, BESIDE),
        TestedSubject::new(map_inside, BESIDE),
        TestedSubject::new(conventional, BESIDE),
        TestedSubject::new(alone_on_conventional, BESIDE),
    ]
}

/// The top tracks of the disk begin with the bytes.
fn open_anything(bytes: &[u8]) {
    const TRACK_BYTES: u64 = 64 << 10;
    let env = Env::real();
    let tracks = TrackGeometry {
        track_count: 64,
        top_track_bytes: TRACK_BYTES,
        bottom_track_bytes: TRACK_BYTES,
        interlaced: true,
    };
    let emulated: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "fuzz", tracks.capacity_bytes()));
    let device = Interlaced::new(&tracks, 4096, true).over(&emulated);
    for (number, piece) in (0..32).zip(bytes.chunks(TRACK_BYTES as usize)) {
        let mut piece = piece.to_vec();
        piece.resize(piece.len().next_multiple_of(512), 0);
        let at = tracks.start_bytes(TrackId(2 * number + 1));
        if device.block.write_at(at, &piece, &IoContext::default()).is_err() {
            return;
        }
    }
    let _ = ImrStore::inspect(&device);
    let _ = ImrStore::open(&env, device, &ImrOpenOptions::default());
}
