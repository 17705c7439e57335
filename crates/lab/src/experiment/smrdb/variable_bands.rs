//! Past the paper: bands of variable size (its section 7), and the room they save.

use super::driver::Driver;
use super::random_puts::VALUE_BYTES;
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, RANDOM_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::{Experiment, Run, Scale, simulate};
use std::collections::BTreeMap;
use varve::{Occupancy, OccupancyPiece, PieceUsage};

/// Zones that the band of a full table is made of.
const ZONES_OF_BAND: [u64; 5] = [1, 2, 4, 8, 16];

/// Schemes, and bytes of their bands to a byte that is put: as little as lets them go on without waiting for room.
const SCHEMES: [(Scheme, u64); 3] = [(Scheme::Loc, 2), (Scheme::Soc, 2), (Scheme::Ours, 2)];

/// Bands beside those.
const BANDS_MIN: u64 = 48;

/// Full size of the load, and of one of a few memtables.
const LOADS: [(&str, u64); 2] = [("11 GB", RANDOM_BYTES), ("0.3 GB", 300_000_000)];

/// Moments at which it is looked what lies where.
const MOMENTS: u64 = 128;

/// Puts after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

pub(in crate::experiment) const VARIABLE_BANDS: Experiment = Experiment {
    id: "smrdb/variable-bands",
    title: "SMRDB, past the paper: tables in as many zones as they need, instead of in one each",
    description: "Puts 4 KiB values under keys drawn at random and reads everything in order, on zones of a band and of its \
                  parts. Room is that of zones that are not free, of tables to a byte of them and of all files to a byte put; \
                  the disk has twice the room of what is put. Scale divides every size and every positioning time.",
    default_scale: Scale::one_in(64),
    run: |run| {
        let mut report = run.report();
        Setup::new(Scheme::Soc, run.scale, run.settings.seed).describe(&mut report);
        for (load, full_bytes) in LOADS {
            for (scheme, room) in SCHEMES {
                for zones in ZONES_OF_BAND {
                    run.settings.progress.begin(&format!("{load}, {zones} zones, {}", scheme.name()), None);
                    let found = measure(run, scheme, room, zones, full_bytes);
                    run.settings.progress.end();
                    let found = found?;
                    let band = if zones == 1 { "whole bands".to_owned() } else { format!("1/{zones} of a band") };
                    let mut row = |metric: &str, unit: &str, value: f64| {
                        ours(&mut report, scheme.name(), &format!("{load}, {band}: {metric}"), unit, value);
                    };
                    row("room to a byte of tables, mean", "1", found.table_room);
                    row("the same at the end", "1", found.table_room_after);
                    row("room to a byte put at the end", "1", found.room_after);
                    row("zones in use, mean", "%", found.in_use * 100.0);
                    row("stretches to a band of tables, mean", "1", found.stretches);
                    row("random puts", "MB/s", found.puts_megabytes_per_second);
                    row("sequential gets", "MB/s", found.gets_megabytes_per_second);
                }
            }
        }
        Ok(report)
    },
};

/// What came of a load.
#[derive(Clone, Copy, Debug)]
struct Found {
    table_room: f64,
    table_room_after: f64,
    room_after: f64,
    in_use: f64,
    stretches: f64,
    puts_megabytes_per_second: f64,
    gets_megabytes_per_second: f64,
}

fn measure(run: &Run<'_>, scheme: Scheme, room: u64, zones: u64, full_bytes: u64) -> Result<Found, LabError> {
    let setup = Setup { zones_of_band: zones, ..Setup::new(scheme, run.scale, run.settings.seed) };
    let pair_bytes = (KEY_BYTES + VALUE_BYTES) as u64;
    let pairs = run.scale.of(full_bytes / pair_bytes).max(1);
    let bands = (room * full_bytes).div_ceil(setup.band_bytes) + BANDS_MIN;
    let start = setup.conventional_bytes().next_multiple_of(setup.band_bytes);
    let setup = Setup { disk_bytes: start + bands * setup.band_bytes, ..setup };
    simulate(setup.seed, move |env| {
        let mut driver = Driver::open(env, &setup, VALUE_BYTES)?;
        let (step, begin) = ((pairs / MOMENTS).max(1), env.now());
        let mut moments = Vec::new();
        for number in 0..pairs {
            driver.put_one_at_random(number, pairs)?;
            if number % SETTLE_STEP == 0 {
                env.settle();
            }
            if number % step == 0 {
                moments.extend(Moment::of(&driver));
            }
        }
        env.settle();
        let put_bytes = (pairs * pair_bytes) as f64;
        let seconds = (env.now() - begin).as_secs_f64();
        driver.idle()?;
        let last = Moment::of(&driver);
        let gets = driver.read_in_order()?;
        let mean = |of: &dyn Fn(&Moment) -> f64| moments.iter().map(of).sum::<f64>() / moments.len().max(1) as f64;
        Ok(Found {
            table_room: mean(&|moment| moment.table_room),
            table_room_after: last.map_or(f64::NAN, |last| last.table_room),
            room_after: last.map_or(f64::NAN, |last| last.used_bytes / put_bytes),
            in_use: mean(&|moment| moment.in_use),
            stretches: mean(&|moment| moment.stretches),
            puts_megabytes_per_second: put_bytes / 1e6 / seconds,
            gets_megabytes_per_second: gets.megabytes_per_second(),
        })
    })
}

/// What lies where at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Bytes of zones to a byte of tables.
    table_room: f64,
    /// Bytes of zones that are not free.
    used_bytes: f64,
    /// The same to all zones.
    in_use: f64,
    /// Stretches of neighbouring zones to a full table.
    stretches: f64,
}

impl Moment {
    /// `None` as long as there are no tables.
    fn of(driver: &Driver) -> Option<Moment> {
        driver.stack().and_then(|stack| Moment::of_occupancy(&stack.media().files.occupancy()))
    }

    fn of_occupancy(occupancy: &Occupancy) -> Option<Moment> {
        let zones: Vec<&OccupancyPiece> =
            occupancy.pieces.iter().filter(|piece| piece.usage != PieceUsage::Metadata).collect();
        let bytes = |of: &dyn Fn(&&&OccupancyPiece) -> bool| -> f64 {
            zones.iter().filter(of).map(|piece| piece.length_bytes).sum::<u64>() as f64
        };
        // Removed tables are free as soon as somebody needs room.
        let tables: Vec<&&OccupancyPiece> = zones.iter().filter(|piece| piece.usage == PieceUsage::Table).collect();
        let live_bytes = tables.iter().map(|piece| piece.used_bytes).sum::<u64>();
        let mut stretches: BTreeMap<Option<u32>, (u64, u64)> = BTreeMap::new();
        for piece in &tables {
            let (count, end) = stretches.entry(piece.file).or_default();
            *count += u64::from(*end != piece.offset_bytes);
            *end = piece.offset_bytes + piece.length_bytes;
        }
        let table_bytes = tables.iter().map(|piece| piece.length_bytes).sum::<u64>() as f64;
        let used_bytes = bytes(&|piece| !matches!(piece.usage, PieceUsage::Free | PieceUsage::Removed));
        (live_bytes > 0).then(|| Moment {
            table_room: table_bytes / live_bytes as f64,
            used_bytes,
            in_use: bytes(&|piece| piece.usage != PieceUsage::Free) / bytes(&|_| true),
            stretches: stretches.values().map(|(count, _)| *count).sum::<u64>() as f64 / stretches.len() as f64,
        })
    }
}
