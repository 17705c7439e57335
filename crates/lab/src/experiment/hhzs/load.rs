//! Loading the pairs, and what the devices hold then.

use super::reading::{Reading, Sizes, Whereabouts};
use super::scheme::Scheme;
use super::settings::{CACHE_BYTES, COMPRESSION_RATIO, KEYS, Setup, VALUE_BYTES};
use crate::error::LabError;
use crate::experiment::together::{Advance, Wanted, measure};
use crate::experiment::{Run, simulate};
use crate::generator::ValueGenerator;
use crate::target::TargetError;
use std::sync::Arc;
use std::time::Duration;
use varve::env::Env;
use varve::{MediaImage, Options, Spec, Varve};

/// Operations after which charged processor time becomes virtual time at the latest.
pub(super) const SETTLE_STEP: u64 = 8;

/// Operations between two reports of progress.
pub(super) const PROGRESS_STEP: u64 = 1024;

/// Full-size seconds between two looks at the sizes.
const SAMPLE_SECONDS: f64 = 60.0;

/// What a load gave.
pub(super) struct Loaded {
    pub(super) setup: Setup,
    /// When the last pair was taken.
    pub(super) end: Reading,
    /// Each minute of the full size.
    pub(super) samples: Vec<Sizes>,
    /// Where the tables were at the end.
    pub(super) whereabouts: Whereabouts,
    pub(super) stall_seconds: f64,
    /// What the devices hold, with all that is still to be compacted.
    pub(super) image: MediaImage,
    pub(super) event_hash: u64,
    pub(super) wall_seconds: f64,
}

impl Loaded {
    /// Pairs a second: a scaled load does `1/N` of them in `1/N` of the time.
    pub(super) fn throughput(&self) -> f64 {
        self.setup.pairs() as f64 / (self.end.nanos as f64 / 1e9)
    }

    /// Hours of the full size.
    pub(super) fn hours(&self) -> f64 {
        self.end.nanos as f64 / 1e9 * self.setup.scale.denominator() as f64 / 3600.0
    }

    /// GiB of the full size.
    pub(super) fn gibibytes(&self, bytes: u64) -> f64 {
        bytes as f64 * self.setup.scale.denominator() as f64 / f64::from(1 << 30)
    }
}

/// An operation on the database under test that failed.
pub(super) fn failed<E: Into<TargetError>>(operation: &'static str) -> impl FnOnce(E) -> LabError {
    move |error| LabError::Target { target: "varve".to_owned(), operation, error: error.into() }
}

/// Gets a value that was put.
///
/// # Errors
/// What the database says, and a value that is not what was put.
pub(super) fn get_verified(db: &Varve, key: &[u8], values: &ValueGenerator) -> Result<(), LabError> {
    let found = db.get(key).map_err(failed("get"))?;
    if found.as_ref().is_some_and(|found| values.verify(key, found)) {
        return Ok(());
    }
    Err(LabError::WrongValue {
        target: "varve".to_owned(),
        key: key.escape_ascii().to_string(),
        found_bytes: found.as_ref().map_or(0, |found| found.len()),
        found: if found.is_some() { "something else" } else { "nothing" }.to_owned(),
    })
}

/// Opens the database of a setup, new or where another one ended.
pub(super) fn open(env: &Env, setup: &Setup, options: Options, image: Option<&MediaImage>) -> Result<Varve, LabError> {
    let text = setup.spec();
    let spec: Spec =
        text.parse().map_err(|error: varve::spec::SpecError| LabError::invalid("medium", error.to_string()))?;
    let builder = Varve::builder().env(env).options(options);
    let builder = match image {
        Some(image) => builder.begin_with(image),
        None => builder,
    };
    builder.open_spec(&spec).map_err(failed("open"))
}

/// The loads of these schemes on the paper's devices.
///
/// # Errors
/// The first one that failed.
pub(super) fn loads(run: &Run<'_>, schemes: &[Scheme]) -> Result<Vec<Arc<Loaded>>, LabError> {
    let setup = |&scheme: &Scheme| Setup::new(scheme, run.scale, run.settings.seed);
    loads_of(run, &schemes.iter().map(setup).collect::<Vec<_>>())
}

/// The loads of these setups.
///
/// # Errors
/// The first one that failed.
pub(super) fn loads_of(run: &Run<'_>, setups: &[Setup]) -> Result<Vec<Arc<Loaded>>, LabError> {
    let names: Vec<String> = setups.iter().map(|setup| setup.scheme.name()).collect();
    let wanted = setups.iter().map(|setup| {
        let setup = setup.clone();
        Wanted {
            key: format!("hhzs load {setup:?}"),
            operations: setup.pairs(),
            run: Box::new(move |advance| load(&setup, advance)),
        }
    });
    measure(run, &format!("loading {}", names.join(", ")), wanted.collect())
}

/// How long nobody asks for anything once nothing is left to compact, in full: an hour.
const REST_NANOS: u64 = 3_600_000_000_000;

/// The same devices once nothing was left to compact, and an hour later.
pub(super) struct Rested {
    pub(super) image: MediaImage,
    /// Seconds of the full size until no compaction was due.
    pub(super) seconds: f64,
}

/// What becomes of loads that are left alone until no compaction is due.
///
/// # Errors
/// The first one that failed.
pub(super) fn rests(run: &Run<'_>, loaded: &[Arc<Loaded>]) -> Result<Vec<Arc<Rested>>, LabError> {
    let wanted = loaded.iter().map(|loaded| {
        let key = format!("hhzs rest {:?}", loaded.setup);
        let loaded = Arc::clone(loaded);
        let rest = move |_: Advance| {
            simulate(loaded.setup.seed, move |env| {
                let setup = &loaded.setup;
                let options = setup.options(setup.scale.of(CACHE_BYTES));
                let db = open(env, setup, options, Some(&loaded.image))?;
                let from = env.now();
                db.flush().map_err(failed("flush"))?;
                db.wait_idle().map_err(failed("wait_idle"))?;
                let seconds = (env.now() - from).as_secs_f64() * setup.scale.denominator() as f64;
                env.sleep(Duration::from_nanos(REST_NANOS / setup.scale.denominator()));
                Ok(Rested { image: db.close_into_image().map_err(failed("close"))?, seconds })
            })
        };
        Wanted { key, operations: 0, run: Box::new(rest) }
    });
    measure(run, "waiting for compactions", wanted.collect())
}

/// Loads the pairs of one setup in a world of its own.
pub(super) fn load(setup: &Setup, advance: Advance) -> Result<Loaded, LabError> {
    let wall = Env::real();
    let begin = wall.now();
    let setup = setup.clone();
    let mut loaded = simulate(setup.seed, move |env| {
        let db = open(env, &setup, setup.options(setup.scale.of(CACHE_BYTES)), None)?;
        let values = ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let (pairs, places) = (setup.pairs(), setup.places());
        let start = env.now();
        let scale = setup.scale.denominator() as f64;
        let (mut samples, mut sampled) = (Vec::new(), 0.0);
        for record in 0..pairs {
            KEYS.write(places.of(record), &mut key);
            values.write(&key, 0, VALUE_BYTES, &mut value);
            db.put(&key, &value).map_err(failed("put"))?;
            if (record + 1).is_multiple_of(SETTLE_STEP) {
                env.settle();
                if let Some(rate) = setup.puts_per_second {
                    let due = start + Duration::from_nanos(record.saturating_mul(1_000_000_000) / rate.max(1));
                    env.sleep_until(due);
                }
                let seconds = (env.now() - start).as_secs_f64() * scale;
                if seconds >= sampled + SAMPLE_SECONDS {
                    sampled = seconds;
                    samples.push(Sizes::of(&db, seconds).map_err(failed("list"))?);
                }
            }
            if (record + 1).is_multiple_of(PROGRESS_STEP) {
                advance(PROGRESS_STEP);
            }
        }
        let mut end = Reading::of(env, &db);
        end.nanos = (env.now() - start).as_nanos() as u64;
        let whereabouts = Whereabouts::of(&db);
        let stall_seconds = end.engine.stall_nanos as f64 / 1e9 * scale;
        let image = db.close_into_image().map_err(failed("close"))?;
        let event_hash = env.event_hash();
        Ok(Loaded { setup, end, samples, whereabouts, stall_seconds, image, event_hash, wall_seconds: 0.0 })
    })?;
    loaded.wall_seconds = (wall.now() - begin).as_secs_f64();
    Ok(loaded)
}
