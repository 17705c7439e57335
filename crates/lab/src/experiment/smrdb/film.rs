//! Random puts as a film of the bands.

use super::driver::Driver;
use super::random_puts::VALUE_BYTES;
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, RANDOM_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::{Scale, simulate};
use crate::map::{Film, FilmCounter, Moment, PartRow, Recorder};
use crate::target::TargetStatistics;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use varve::env::Env;
use varve::store::Occupancy;

/// The bands follow each other.
const ROWS: [PartRow; 1] = [PartRow { part: "band", shift_half_cells: 0 }];

/// Numbers that are shown: of the store, as its own names say, and of the tree.
const OF_STORE: [&str; 3] = ["zone resets", "log bands begun", "log bands emptied"];
const OF_TREE: [(&str, &str); 4] =
    [("flushes", "1"), ("compactions", "1"), ("moves", "1"), ("written by compactions", "bytes")];

/// Bytes of the bands to a byte that is put: what is put once is there at most three times while it is merged, and half
/// as much again is never used.
const SPACE_FACTOR: u64 = 2;

/// Random puts into bands.
#[derive(Clone, Debug)]
pub(crate) struct LoadOnBands {
    /// Name of the scheme, of [`band_schemes`].
    pub(crate) scheme: String,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    /// Pairs at full scale; unset is the load of the paper.
    pub(crate) full_pairs: Option<u64>,
    /// Moments after the first one, evenly apart by pairs; one at least.
    pub(crate) frames: u32,
}

/// Names of the schemes that keep their tables in bands.
pub(crate) fn band_schemes() -> Vec<&'static str> {
    Scheme::PAPER.into_iter().filter(|scheme| scheme.is_in_bands()).map(Scheme::name).collect()
}

impl LoadOnBands {
    /// Pairs of the load at its scale.
    pub(crate) fn pairs(&self) -> u64 {
        self.scale.of(self.full_pairs.unwrap_or(RANDOM_BYTES / (KEY_BYTES + VALUE_BYTES) as u64)).max(1)
    }

    /// Of a disk that is cut to what the load can use, so that its bands can be seen.
    fn setup(&self) -> Result<Setup, LabError> {
        let scheme = Scheme::PAPER.into_iter().find(|scheme| scheme.name() == self.scheme);
        let Some(scheme) = scheme.filter(|scheme| scheme.is_in_bands()) else {
            return Err(LabError::invalid(
                "scheme",
                format!("'{}' is none of {}", self.scheme, band_schemes().join(", ")),
            ));
        };
        let setup = Setup::new(scheme, self.scale, self.seed);
        let put_bytes = self.pairs() * (KEY_BYTES + VALUE_BYTES) as u64 * self.scale.denominator();
        let bands = (SPACE_FACTOR * put_bytes).div_ceil(setup.band_bytes) + BANDS_MIN;
        let disk_bytes = setup.conventional_bytes().next_multiple_of(setup.band_bytes) + bands * setup.band_bytes;
        Ok(Setup { disk_bytes, ..setup })
    }
}

/// Bands beside those for what is put: for the log, the reserve and small loads.
const BANDS_MIN: u64 = 48;

/// The numbers that are shown, from those that a database tells.
fn counted(statistics: &TargetStatistics) -> Vec<u64> {
    let of_store = OF_STORE.iter().map(|name| {
        let value = statistics.properties.get(&format!("store {name}"));
        value.map_or(0, |value| *value as u64)
    });
    let tree =
        [statistics.flushes, statistics.compactions, statistics.trivial_moves, statistics.compaction_written_bytes];
    of_store.chain(tree.map(|value| value.unwrap_or(0))).collect()
}

/// By name of a table's file, how many other tables hold keys of its range.
fn overlaps(driver: &Driver) -> BTreeMap<String, usize> {
    let tables = driver.tables();
    let meets = |one: &(u64, RangeInclusive<u64>), other: &(u64, RangeInclusive<u64>)| {
        one.0 != other.0 && one.1.start() <= other.1.end() && other.1.start() <= one.1.end()
    };
    let of = |one: &(u64, RangeInclusive<u64>)| tables.iter().filter(|other| meets(one, other)).count();
    tables.iter().map(|one| (format!("{:06}.sst", one.0), of(one))).collect()
}

/// Puts the pairs in a world of its own and films the bands meanwhile. Calls `advance` with pairs put since it was called
/// before.
///
/// # Errors
/// What opening and putting say.
pub(crate) fn film_bands(load: &LoadOnBands, advance: impl Fn(u64) + Send + 'static) -> Result<Film, LabError> {
    let (load, setup) = (load.clone(), load.setup()?);
    simulate(load.seed, move |env| {
        let mut driver = Driver::open(env, &setup, VALUE_BYTES)?;
        let of_store = OF_STORE.map(|name| (name, "1")).into_iter();
        let counters = of_store
            .chain(OF_TREE)
            .map(|(name, unit)| FilmCounter { name: name.to_owned(), unit: unit.to_owned() })
            .collect();
        let first = occupancy(&driver);
        let mut recorder = Recorder::new(&load.scheme, &setup.spec(), &ROWS, counters, &first)?;
        record(env, &driver, &mut recorder, 0)?;
        let (pairs, frames) = (load.pairs(), u64::from(load.frames.max(1)));
        let moment = |frame: u64| (u128::from(pairs) * u128::from(frame) / u128::from(frames)) as u64;
        let (mut frame, mut told) = (1, 0);
        for number in 0..pairs {
            driver.put_one_at_random(number, pairs)?;
            if (number + 1).is_multiple_of(SETTLE_STEP) {
                env.settle();
            }
            // More frames than pairs: some are alike.
            while frame <= frames && moment(frame) <= number + 1 {
                record(env, &driver, &mut recorder, number + 1)?;
                advance(number + 1 - told);
                told = number + 1;
                frame += 1;
            }
        }
        Ok(recorder.finish())
    })
}

/// Puts after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

fn record(env: &Env, driver: &Driver, recorder: &mut Recorder, operations: u64) -> Result<(), LabError> {
    env.settle();
    recorder.record(&Moment {
        occupancy: &occupancy(driver),
        operations,
        nanos: env.now().as_nanos(),
        counters: &counted(&driver.statistics()?),
        overlaps: Some(&overlaps(driver)),
    });
    Ok(())
}

fn occupancy(driver: &Driver) -> Occupancy {
    driver.stack().map(|stack| stack.files().occupancy()).unwrap_or_default()
}
