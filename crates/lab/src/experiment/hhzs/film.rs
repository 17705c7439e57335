//! A load and reads after it as a film of the zones of both devices.

use super::load::{SETTLE_STEP, failed, get_verified, open};
use super::scheme::Scheme;
use super::settings::{COMPRESSION_RATIO, KEYS, PAIR_BYTES, PAIRS, Setup, VALUE_BYTES};
use super::workload::Workload;
use crate::error::LabError;
use crate::experiment::{Scale, simulate};
use crate::generator::{Distribution, RecordChooser, ValueGenerator};
use crate::map::{Film, FilmCounter, Moment, PartRow, Recorder};
use varve::Varve;
use varve::env::{Env, Random};

/// The zones of a device follow each other, those that are given up as well.
const ROWS: [PartRow; 1] = [PartRow { part: "band", shift_half_cells: 0 }];

/// Numbers that are shown, as the store names them.
const OF_STORE: [(&str, &str); 8] = [
    ("tables placed on the fast tier", "1"),
    ("tables placed on the slow tier", "1"),
    ("tables moved to the slow tier", "1"),
    ("tables moved to the fast tier", "1"),
    ("user reads of the slow tier", "1"),
    ("user reads of cached blocks", "1"),
    ("blocks cached", "1"),
    ("zone resets", "1"),
];

/// Bytes of the disk to a byte that is put: all of it once, and what is being merged.
const SPACE_FACTOR: u64 = 2;

/// Zones of the disk beside those, in full: for small loads.
const BYTES_MIN: u64 = 48 * (256 << 20);

/// Gets after the load to a pair of it: one to so many.
const PAIRS_OF_GET: u64 = 4;

/// How skewed the gets are.
const EXPONENT: f64 = 0.9;

/// A load, and gets after it.
#[derive(Clone, Debug)]
pub(crate) struct LoadOnTiers {
    /// Name of the scheme, of [`tier_schemes`].
    pub(crate) scheme: String,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
    /// Pairs at full scale; unset is the load of the paper.
    pub(crate) full_pairs: Option<u64>,
    /// Moments after the first one, evenly apart by operations; one at least.
    pub(crate) frames: u32,
}

/// Names of the schemes.
pub(crate) fn tier_schemes() -> Vec<String> {
    Scheme::ALL.into_iter().map(Scheme::name).collect()
}

impl LoadOnTiers {
    /// Pairs that are put at its scale.
    pub(crate) fn pairs(&self) -> u64 {
        self.scale.of(self.full_pairs.unwrap_or(PAIRS)).max(1)
    }

    /// Puts, and gets after them.
    pub(crate) fn operations(&self) -> u64 {
        self.pairs() + self.pairs().div_ceil(PAIRS_OF_GET)
    }

    fn setup(&self) -> Result<Setup, LabError> {
        let Some(scheme) = Scheme::ALL.into_iter().find(|scheme| scheme.name() == self.scheme) else {
            let reason = format!("'{}' is none of {}", self.scheme, tier_schemes().join(", "));
            return Err(LabError::invalid("scheme", reason));
        };
        let put_bytes = self.pairs().saturating_mul(PAIR_BYTES).saturating_mul(self.scale.denominator());
        Ok(Setup::new(scheme, self.scale, self.seed).cut_to(put_bytes.saturating_mul(SPACE_FACTOR) + BYTES_MIN))
    }
}

/// Puts the pairs in a world of its own, then gets some, and films the zones meanwhile. Calls `advance` with operations done
/// since it was called before.
///
/// # Errors
/// What opening, putting and getting say.
pub(crate) fn film_tiers(load: &LoadOnTiers, advance: impl Fn(u64) + Send + 'static) -> Result<Film, LabError> {
    let (load, setup) = (load.clone(), load.setup()?);
    simulate(load.seed, move |env| {
        // A cache of the scale would hold no block.
        let cache_bytes = Workload::YCSB[2].at(setup.scale).cache_bytes;
        let db = open(env, &setup, setup.options(cache_bytes), None)?;
        let counters = OF_STORE.map(|(name, unit)| FilmCounter { name: name.to_owned(), unit: unit.to_owned() });
        let first = db.stack().files().occupancy();
        let mut recorder = Recorder::new(&load.scheme, &setup.spec(), &ROWS, counters.to_vec(), &first)?;
        record(env, &db, &mut recorder, 0);
        let values = ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?;
        let (pairs, operations, frames) = (load.pairs(), load.operations(), u64::from(load.frames.max(1)));
        let (places, mut random) = (setup.places(), Random::named(setup.seed, "film"));
        let mut chooser = RecordChooser::new(Distribution::Zipf { exponent: EXPONENT }, pairs, 0, 0, 1)?;
        let moment = |frame: u64| (u128::from(operations) * u128::from(frame) / u128::from(frames)) as u64;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (mut frame, mut told) = (1, 0);
        for number in 0..operations {
            if number < pairs {
                KEYS.write(places.of(number), &mut key);
                values.write(&key, 0, VALUE_BYTES, &mut value);
                db.put(&key, &value).map_err(failed("put"))?;
                if number + 1 == pairs {
                    // Logs of memtables that nobody fills any more would keep the zones that are for cached blocks.
                    db.flush().map_err(failed("flush"))?;
                }
            } else {
                KEYS.write(places.of(chooser.next(pairs, &mut random)), &mut key);
                get_verified(&db, &key, &values)?;
            }
            if (number + 1).is_multiple_of(SETTLE_STEP) {
                env.settle();
            }
            // More frames than operations: some are alike.
            while frame <= frames && moment(frame) <= number + 1 {
                record(env, &db, &mut recorder, number + 1);
                advance(number + 1 - told);
                told = number + 1;
                frame += 1;
            }
        }
        Ok(recorder.finish())
    })
}

fn record(env: &Env, db: &Varve, recorder: &mut Recorder, operations: u64) {
    env.settle();
    let files = db.stack().files();
    let measures = files.statistics();
    let counted = OF_STORE.map(|(name, _)| {
        let measure = measures.iter().find(|measure| measure.name == name);
        measure.map_or(0, |measure| measure.value)
    });
    recorder.record(&Moment {
        occupancy: &files.occupancy(),
        operations,
        nanos: env.now().as_nanos(),
        counters: &counted,
        overlaps: None,
    });
}
