//! Past the paper: bands of variable size (its section 7), and the space they save.

use super::driver::Driver;
use super::random_puts::VALUE_BYTES;
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, RANDOM_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::{Experiment, Run, Scale, together};
use std::collections::BTreeMap;
use varve::env::Env;
use varve::store::{Occupancy, OccupancyPiece, PieceUsage};

/// Zones that the band of a full table is made of.
const ZONES_OF_BAND: [u64; 5] = [1, 2, 4, 8, 16];

const SCHEMES: [Scheme; 4] = [Scheme::Loc, Scheme::Soc, Scheme::SocSameIo, Scheme::Ours];

/// Bytes of the bands to a byte that is put, and bands beside those: enough to go on without waiting for space.
const SPACE_FACTOR: u64 = 2;
const BANDS_MIN: u64 = 48;

/// Bytes of a load of a few memtables.
const SMALL_BYTES: u64 = 300_000_000;

/// What is loaded into what.
#[derive(Clone, Copy, Debug)]
struct Variant {
    /// Bytes put in full.
    full_bytes: u64,
    zones_of_band: u64,
    /// Logs are on the disk. If not they are in memory.
    logs: bool,
    /// Memtables and tables have the size of a zone, instead of a band's.
    tables_of_a_zone: bool,
}

impl Variant {
    fn all() -> Vec<Variant> {
        let of = |full_bytes| {
            move |zones_of_band| Variant { full_bytes, zones_of_band, logs: true, tables_of_a_zone: false }
        };
        let large = || ZONES_OF_BAND.into_iter().map(of(RANDOM_BYTES));
        let small = ZONES_OF_BAND.into_iter().map(of(SMALL_BYTES));
        let logs_apart = large().map(|variant| Variant { logs: false, ..variant });
        // Smaller tables are rewritten so often that they take hours.
        let of_a_zone = large().skip(1).take(2).map(|variant| Variant { tables_of_a_zone: true, ..variant });
        large().chain(small).chain(logs_apart).chain(of_a_zone).collect()
    }

    fn name(&self) -> String {
        let load = if self.full_bytes == RANDOM_BYTES { "11 GB" } else { "0.3 GB" };
        let zone = match self.zones_of_band {
            1 => "zones of a band".to_owned(),
            zones => format!("zones of 1/{zones}"),
        };
        let tables = if self.tables_of_a_zone { ", tables of a zone" } else { "" };
        let logs = if self.logs { "" } else { ", logs apart" };
        format!("{load}, {zone}{tables}{logs}")
    }

    fn setup(&self, run: &Run<'_>, scheme: Scheme) -> Setup {
        let setup = Setup::new(scheme, run.scale, run.settings.seed);
        let setup = Setup { zones_of_band: self.zones_of_band, logs: self.logs, ..setup };
        let bands = (SPACE_FACTOR * self.full_bytes).div_ceil(setup.band_bytes) + BANDS_MIN;
        let start = setup.conventional_bytes().next_multiple_of(setup.band_bytes);
        let setup = Setup { disk_bytes: start + bands * setup.band_bytes, ..setup };
        match self.tables_of_a_zone {
            true => Setup { band_bytes: setup.band_bytes / setup.zones_of_band, zones_of_band: 1, ..setup },
            false => setup,
        }
    }
}

/// Moments at which it is looked what lies where.
const MOMENTS: u64 = 128;

/// Puts after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

pub(in crate::experiment) const VARIABLE_BANDS: Experiment = Experiment {
    id: "smrdb/variable-bands",
    title: "SMRDB, past the paper: tables in as many zones as they need, instead of in one each",
    description: "Puts 4 KiB values under keys drawn at random and reads everything in order, on zones of a band and of its \
                  parts; of those also with tables as small as they are, and with the log in memory. Space is that of zones that are not free, of tables to a byte of them and of all files to a byte put; \
                  the disk has twice the space of what is put. Scale divides every size and every positioning time.",
    default_scale: Scale::one_in(64),
    run: |run| {
        let variants = Variant::all();
        let wanted = variants.iter().flat_map(|&variant| SCHEMES.map(|scheme| wanted(run, scheme, variant)));
        let all = together::measure(run, "random puts into zones", wanted.collect())?;
        let mut report = run.report();
        Setup::new(Scheme::Soc, run.scale, run.settings.seed).describe(&mut report);
        for (variant, all) in variants.iter().zip(all.chunks(SCHEMES.len())) {
            let name = variant.name();
            for (scheme, found) in SCHEMES.iter().zip(all) {
                let mut row = |metric: &str, unit: &str, value: f64| {
                    ours(&mut report, scheme.name(), &format!("{name}: {metric}"), unit, value);
                };
                row("space to a byte of tables, mean", "1", found.table_space);
                row("the same at the end", "1", found.table_space_after);
                row("space to a byte put at the end", "1", found.space_after);
                row("zones in use, mean", "%", found.in_use * 100.0);
                row("extents to a table, mean", "1", found.extents);
                row("random puts", "MB/s", found.puts_megabytes_per_second);
                row("sequential gets", "MB/s", found.gets_megabytes_per_second);
            }
        }
        Ok(report)
    },
};

/// What came of a load.
#[derive(Clone, Copy, Debug)]
struct Found {
    table_space: f64,
    table_space_after: f64,
    space_after: f64,
    in_use: f64,
    extents: f64,
    puts_megabytes_per_second: f64,
    gets_megabytes_per_second: f64,
}

fn wanted(run: &Run<'_>, scheme: Scheme, variant: Variant) -> together::Wanted<Found> {
    let pair_bytes = (KEY_BYTES + VALUE_BYTES) as u64;
    let pairs = run.scale.of(variant.full_bytes / pair_bytes).max(1);
    let setup = variant.setup(run, scheme);
    let key = format!("smrdb variable bands {pairs} {setup:?}");
    together::Wanted::simulated(key, setup.seed, move |env| measure(env, &setup, pairs))
}

fn measure(env: &Env, setup: &Setup, pairs: u64) -> Result<Found, LabError> {
    let mut driver = Driver::open(env, setup, VALUE_BYTES)?;
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
    let put_bytes = (pairs * (KEY_BYTES + VALUE_BYTES) as u64) as f64;
    let seconds = (env.now() - begin).as_secs_f64();
    driver.idle()?;
    let last = Moment::of(&driver);
    let gets = driver.read_in_order()?;
    let mean = |of: &dyn Fn(&Moment) -> f64| moments.iter().map(of).sum::<f64>() / moments.len().max(1) as f64;
    Ok(Found {
        table_space: mean(&|moment| moment.table_space),
        table_space_after: last.map_or(f64::NAN, |last| last.table_space),
        space_after: last.map_or(f64::NAN, |last| last.used_bytes / put_bytes),
        in_use: mean(&|moment| moment.in_use),
        extents: mean(&|moment| moment.extents),
        puts_megabytes_per_second: put_bytes / 1e6 / seconds,
        gets_megabytes_per_second: gets.megabytes_per_second(),
    })
}

/// What lies where at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Bytes of zones to a byte of tables.
    table_space: f64,
    /// Bytes of zones that are not free.
    used_bytes: f64,
    /// The same to all zones.
    in_use: f64,
    /// Extents (zones one behind the other) to a full table.
    extents: f64,
}

impl Moment {
    /// `None` as long as there are no tables.
    fn of(driver: &Driver) -> Option<Moment> {
        driver.stack().and_then(|stack| Moment::of_occupancy(&stack.files().occupancy()))
    }

    fn of_occupancy(occupancy: &Occupancy) -> Option<Moment> {
        let zones: Vec<&OccupancyPiece> =
            occupancy.pieces.iter().filter(|piece| piece.usage != PieceUsage::Metadata).collect();
        let bytes = |of: &dyn Fn(&&&OccupancyPiece) -> bool| -> f64 {
            zones.iter().filter(of).map(|piece| piece.length_bytes).sum::<u64>() as f64
        };
        // Removed tables are free as soon as somebody needs space.
        let tables: Vec<&&OccupancyPiece> = zones.iter().filter(|piece| piece.usage == PieceUsage::Table).collect();
        let live_bytes = tables.iter().map(|piece| piece.used_bytes).sum::<u64>();
        let mut extents: BTreeMap<Option<u32>, (u64, u64)> = BTreeMap::new();
        for piece in &tables {
            let (count, end) = extents.entry(piece.file).or_default();
            *count += u64::from(*end != piece.offset_bytes);
            *end = piece.offset_bytes + piece.length_bytes;
        }
        let table_bytes = tables.iter().map(|piece| piece.length_bytes).sum::<u64>() as f64;
        let used_bytes = bytes(&|piece| !matches!(piece.usage, PieceUsage::Free | PieceUsage::Removed));
        (live_bytes > 0).then(|| Moment {
            table_space: table_bytes / live_bytes as f64,
            used_bytes,
            in_use: bytes(&|piece| piece.usage != PieceUsage::Free) / bytes(&|_| true),
            extents: extents.values().map(|(count, _)| *count).sum::<u64>() as f64 / extents.len() as f64,
        })
    }
}
