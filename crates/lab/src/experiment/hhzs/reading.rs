//! What is read off a database while it runs.

use crate::media::Counters;
use crate::target::TargetError;
use std::collections::BTreeMap;
use varve::Varve;
use varve::env::Env;
use varve::statistics::CounterValues;
use varve::store::PieceUsage;

/// Levels that are told apart.
pub(super) const LEVELS: usize = 5;

/// Where the drive and the disk are among the devices.
const DRIVE: usize = 0;
const DISK: usize = 1;

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
        let counters = |device: usize| {
            db.stack().devices().get(device).map(|device| device.device().block.counters()).unwrap_or_default()
        };
        Reading {
            nanos: env.now().as_nanos(),
            drive: counters(DRIVE),
            disk: counters(DISK),
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
    [DRIVE, DISK].map(|place| {
        db.stack().devices().get(place).map_or(0, |device| device.device().block.counters().reads_by_class[class])
    })
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
        let mut found = Whereabouts::default();
        let mut seen = std::collections::BTreeSet::new();
        for piece in occupancy.pieces.iter().filter(|piece| piece.usage == PieceUsage::Table) {
            let file = piece.file.and_then(|file| occupancy.files.get(file as usize).map(|of| (file, of)));
            let Some((number, file)) = file.filter(|(_, file)| file.name.ends_with(".sst")) else { continue };
            let (device, level) =
                (usize::from(piece.device).min(1), usize::from(file.level.unwrap_or(0)).min(LEVELS - 1));
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
