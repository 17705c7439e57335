//! What this store is tested on: every policy and both rewrites on interlaced tracks, logs beside the disk with the map
//! and without, and conventional disks.

use super::{
    AllocationName, ImrDevices, ImrFormatOptions, ImrOpenOptions, ImrPlace, ImrStore, RewriteName, decode_anything,
};
use crate::conformance::devices::{DISK, INTERLACED, INTERLACED_OF_TWO_SIZES, USED_DISK};
use crate::conformance::{DeviceSubject, Effort, Ending, PairSubject, TestedStore, TestedSubject};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{BlockDevice, BlockDeviceExt, Emulated, Interlaced, IoContext, TrackGeometry, TrackId};

/// For the table of stores.
pub(crate) const TESTED: TestedStore = TestedStore { name: "imr", subjects, decode_anything, open_anything };

const ALONE: DeviceSubject = DeviceSubject {
    name: "imr",
    device: INTERLACED,
    capacity_bytes: 28 << 20,
    physical_sector_bytes: 4096,
    ending: Ending::Forget,
    format: |env, disk| ImrStore::format(env, disk, &options(AllocationName::ThreePhase, RewriteName::Naive)),
    open: |env, disk| Ok(Arc::new(ImrStore::open(env, disk, &ImrOpenOptions::default())?)),
};

const PAIR: PairSubject = PairSubject {
    disk: DeviceSubject { capacity_bytes: 20 << 20, ..ALONE },
    logs: DISK,
    logs_capacity_bytes: 8 << 20,
    format: |env, disk, logs| {
        let options = options(AllocationName::CompactionAware, RewriteName::Merged);
        ImrStore::format(env, ImrDevices::with_logs(disk, logs), &options)
    },
    open: |env, disk, logs| {
        Ok(Arc::new(ImrStore::open(env, ImrDevices { disk, logs: Some(logs) }, &ImrOpenOptions::default())?))
    },
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

fn subjects() -> Vec<TestedSubject> {
    alone().into_iter().chain(beside()).collect()
}

fn alone() -> Vec<TestedSubject> {
    /// A name, bytes of a sector, how long to look, and the policies.
    macro_rules! of_policy {
        ($name:expr, $physical_sector_bytes:expr, $effort:expr, $allocation:ident, $rewrite:ident) => {
            TestedSubject::new(
                DeviceSubject {
                    name: $name,
                    physical_sector_bytes: $physical_sector_bytes,
                    format: |env, disk| {
                        ImrStore::format(env, disk, &options(AllocationName::$allocation, RewriteName::$rewrite))
                    },
                    ..ALONE
                },
                $effort,
            )
        };
    }
    // The two that differ most.
    let full = Effort { fault_stride: 7, ..Effort::FULL };
    vec![
        of_policy!("imr seq naive", 512, Effort::SOME, Sequential, Naive),
        of_policy!("imr seq merged", 4096, Effort::SOME, Sequential, Merged),
        of_policy!("imr 3phase naive", 4096, full, ThreePhase, Naive),
        of_policy!("imr 3phase merged", 512, Effort::SOME, ThreePhase, Merged),
        of_policy!("imr zigzag naive", 512, Effort::SOME, Zigzag, Naive),
        of_policy!("imr zigzag merged", 4096, Effort::SOME, Zigzag, Merged),
        of_policy!("imr region naive", 4096, Effort::SOME, Region, Naive),
        of_policy!("imr region merged", 512, Effort::SOME, Region, Merged),
        of_policy!("imr kvimr-n", 4096, Effort::SOME, CompactionAware, Naive),
        of_policy!("imr kvimr-m", 512, full, CompactionAware, Merged),
    ]
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
