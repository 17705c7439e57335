//! What is read off a database while it runs.

use crate::media::{Counters, TimeSpent};
use crate::target::TargetError;
use std::collections::BTreeMap;
use varve::Varve;
use varve::env::Env;
use varve::statistics::CounterValues;
use varve::store::PieceUsage;

/// Levels that are told apart.
pub(super) const LEVELS: usize = 5;

/// Drives come before disks where both are counted.
const DRIVE: usize = 0;
const DISK: usize = 1;

/// Of each device whether it is a drive or a disk. The first is a drive; those that promise half its random reads are too.
fn places(db: &Varve) -> Vec<usize> {
    let promised = |device: &varve::stack::StackDevice| {
        let nominal = device.device().block.capabilities().nominal;
        nominal.map_or(0, |nominal| nominal.random_reads_per_second)
    };
    let all: Vec<u64> = db.stack().devices().iter().map(promised).collect();
    let first = all.first().copied().unwrap_or(0);
    all.into_iter().map(|reads| if reads.saturating_mul(2) >= first { DRIVE } else { DISK }).collect()
}

/// What all devices of a place did.
fn counters_of(db: &Varve, place: usize) -> Counters {
    let devices = db.stack().devices().iter().zip(places(db));
    let of_place = devices.filter(|(_, of)| *of == place).map(|(device, _)| device.device().block.counters());
    of_place.reduce(|sum, one| added(&sum, &one)).unwrap_or_default()
}

fn added(one: &Counters, other: &Counters) -> Counters {
    fn each<const N: usize>(one: [u64; N], other: [u64; N]) -> [u64; N] {
        std::array::from_fn(|at| one[at] + other[at])
    }
    Counters {
        reads: one.reads + other.reads,
        writes: one.writes + other.writes,
        syncs: one.syncs + other.syncs,
        discards: one.discards + other.discards,
        zone_resets: one.zone_resets + other.zone_resets,
        zone_finishes: one.zone_finishes + other.zone_finishes,
        read_bytes: one.read_bytes + other.read_bytes,
        written_bytes: one.written_bytes + other.written_bytes,
        media_written_bytes: one.media_written_bytes + other.media_written_bytes,
        media_read_bytes: one.media_read_bytes + other.media_read_bytes,
        seeks: one.seeks + other.seeks,
        cache_hits: one.cache_hits + other.cache_hits,
        errors: one.errors + other.errors,
        read_bytes_by_class: each(one.read_bytes_by_class, other.read_bytes_by_class),
        written_bytes_by_class: each(one.written_bytes_by_class, other.written_bytes_by_class),
        reads_by_class: each(one.reads_by_class, other.reads_by_class),
        written_bytes_by_level: each(one.written_bytes_by_level, other.written_bytes_by_level),
        time: TimeSpent {
            seek_nanos: one.time.seek_nanos + other.time.seek_nanos,
            rotation_nanos: one.time.rotation_nanos + other.time.rotation_nanos,
            transfer_nanos: one.time.transfer_nanos + other.time.transfer_nanos,
            overhead_nanos: one.time.overhead_nanos + other.time.overhead_nanos,
            flush_nanos: one.time.flush_nanos + other.time.flush_nanos,
            idle_nanos: one.time.idle_nanos + other.time.idle_nanos,
        },
        // Neither has a translation layer.
        ..Counters::default()
    }
}

/// What was done until one moment, since the database was opened.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Virtual time.
    pub(super) nanos: u64,
    pub(super) drive: Counters,
    pub(super) disk: Counters,
    pub(super) engine: CounterValues,
    /// Blocks that the memory cache had not.
    pub(super) cache_insertions: u64,
    /// What the store counts, by name.
    pub(super) store: BTreeMap<&'static str, u64>,
}

impl Reading {
    /// That of now.
    pub(super) fn of(env: &Env, db: &Varve) -> Reading {
        env.settle();
        let statistics = db.statistics();
        Reading {
            nanos: env.now().as_nanos(),
            drive: counters_of(db, DRIVE),
            disk: counters_of(db, DISK),
            cache_insertions: statistics.tables.as_ref().map_or(0, |tables| tables.block_cache_insertions),
            engine: statistics.counters,
            store: db.stack().files().statistics().into_iter().map(|measure| (measure.name, measure.value)).collect(),
        }
    }

    /// Virtual seconds since another one.
    pub(super) fn seconds_since(&self, from: &Reading) -> f64 {
        self.nanos.saturating_sub(from.nanos) as f64 / 1e9
    }

    /// A count of the store.
    pub(super) fn stored(&self, name: &str) -> u64 {
        self.store.get(name).copied().unwrap_or(0)
    }
}

/// Reads of users that the drive and the disk did.
pub(super) fn user_reads(db: &Varve) -> [u64; 2] {
    let class = crate::media::IoClass::UserRead.index();
    [DRIVE, DISK].map(|place| counters_of(db, place).reads_by_class[class])
}

/// Bytes of the logs and of each level at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sizes {
    pub(super) seconds: f64,
    pub(super) log_bytes: u64,
    pub(super) level_bytes: [u64; LEVELS],
}

impl Sizes {
    /// Those of now.
    ///
    /// # Errors
    /// What the store says.
    pub(super) fn of(db: &Varve, seconds: f64) -> Result<Sizes, TargetError> {
        let files = db.stack().files().list()?;
        let logs = files.iter().filter(|file| file.name.ends_with(".log"));
        let mut sizes = Sizes { seconds, log_bytes: logs.map(|file| file.size_bytes).sum(), ..Sizes::default() };
        for level in db.statistics().tables.iter().flat_map(|tables| &tables.levels) {
            sizes.level_bytes[level.level.min(LEVELS - 1)] += level.bytes;
        }
        Ok(sizes)
    }
}

/// Tables of each level on the drive and on the disk, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Whereabouts {
    pub(super) tables: [[u64; LEVELS]; 2],
    pub(super) bytes: [[u64; LEVELS]; 2],
}

impl Whereabouts {
    /// Those of now.
    pub(super) fn of(db: &Varve) -> Whereabouts {
        let occupancy = db.stack().files().occupancy();
        let (mut found, places) = (Whereabouts::default(), places(db));
        let mut seen = std::collections::BTreeSet::new();
        for piece in occupancy.pieces.iter().filter(|piece| piece.usage == PieceUsage::Table) {
            let file = piece.file.and_then(|file| occupancy.files.get(file as usize).map(|of| (file, of)));
            let Some((number, file)) = file.filter(|(_, file)| file.name.ends_with(".sst")) else { continue };
            let (device, level) = (
                places.get(usize::from(piece.device)).copied().unwrap_or(DISK),
                usize::from(file.level.unwrap_or(0)).min(LEVELS - 1),
            );
            found.bytes[device][level] += piece.used_bytes;
            found.tables[device][level] += u64::from(seen.insert((number, device)));
        }
        found
    }

    /// Share of the bytes of tables that lie on the drive.
    pub(super) fn drive_share(&self) -> f64 {
        let of = |device: usize| self.bytes[device].iter().sum::<u64>() as f64;
        of(DRIVE) / (of(DRIVE) + of(DISK)).max(1.0)
    }
}
