//! How long the log becomes, and how long opening takes then.

use super::driver::Driver;
use super::random_puts::VALUE_BYTES;
use super::scheme::{Scheme, Term};
use super::settings::{KEY_BYTES, RANDOM_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::ours;
use crate::experiment::{Experiment, Scale, together};
use varve::MediaImage;
use varve::env::Env;

/// Those that keep as much in memory: two memtables, or ranges of keys.
const SCHEMES: [Scheme; 3] = [Scheme::SocSameIo, Scheme::OursWithout(Term::KeyRanges), Scheme::Ours];

/// Moments of the load at which it is looked how long the log is.
const MOMENTS: u64 = 1024;

/// Puts go on until the log is nearly as long as it was in the later half of the load, in tenths, ...
const LONG_TENTHS: u64 = 9;

/// but for no longer than this part of the load.
const LONGER_PART: u64 = 2;

pub(in crate::experiment) const RECOVERY: Experiment = Experiment {
    id: "smrdb/recovery",
    title: "how long opening takes after random puts, when the log is as long as it gets (not in the paper)",
    description: "The puts of smrdb/fig9, and as many more as it takes until the log is nearly as long as it was in their later half. The store is \
                  closed, which flushes nothing, and opened again on the same disk: the log is what a process that ended there would leave, and the last of it \
                  that it still had in memory besides. Once more with everything flushed before. Opening begins with what a store reads of its bands. Scale divides \
                  every size and every positioning time; sizes and times are told in full.",
    default_scale: Scale::one_in(8),
    run: |run| {
        let records = run.scale.of(RANDOM_BYTES / (KEY_BYTES + VALUE_BYTES) as u64).max(MOMENTS);
        // What is opened again is an image of the disk, which only compressed memory gives.
        let setup = |scheme: Scheme| Setup { is_compressed: true, ..Setup::new(scheme, run.scale, run.settings.seed) };
        let setups = SCHEMES.map(setup);
        let wanted = setups.iter().map(|setup| {
            let setup = setup.clone();
            let key = format!("smrdb recovery {setup:?}");
            together::Wanted::simulated(key, setup.seed, move |env| measure(env, &setup, records))
        });
        let all = together::measure(run, "random puts and openings", wanted.collect())?;
        let mut report = run.report();
        setups[0].describe(&mut report);
        report.condition("puts", format!("{records} of {KEY_BYTES} + {VALUE_BYTES} B, and some more"));
        let factor = run.scale.denominator() as f64;
        for (setup, found) in setups.iter().zip(&all) {
            let mut row = |metric: &str, unit: &str, value: f64| {
                ours(&mut report, setup.scheme.name(), metric, unit, value * factor);
            };
            let Found { log_bytes, longest_log_bytes, mean_log_bytes, replayed, flushed } = **found;
            row("log, mean", "MB", mean_log_bytes / 1e6);
            row("log, longest", "MB", longest_log_bytes as f64 / 1e6);
            row("log that opening replays", "MB", log_bytes as f64 / 1e6);
            row("read by opening", "MB", replayed.read_bytes as f64 / 1e6);
            row("written by opening", "MB", replayed.written_bytes as f64 / 1e6);
            row("opening", "s", replayed.seconds);
            row("opening when everything was flushed", "s", flushed.seconds);
        }
        Ok(report)
    },
};

/// What came of a load.
#[derive(Clone, Copy, Debug)]
struct Found {
    log_bytes: u64,
    /// In the later half of the load.
    longest_log_bytes: u64,
    mean_log_bytes: f64,
    /// With the log as it was, ...
    replayed: Opening,
    /// and with nothing in it.
    flushed: Opening,
}

/// What opening took.
#[derive(Clone, Copy, Debug)]
struct Opening {
    seconds: f64,
    read_bytes: u64,
    written_bytes: u64,
}

fn measure(env: &Env, setup: &Setup, records: u64) -> Result<Found, LabError> {
    let mut driver = Driver::open(env, setup, VALUE_BYTES)?;
    let step = records / MOMENTS;
    let (mut longest_log_bytes, mut sum_bytes, mut moments) = (0u64, 0.0, 0u64);
    for number in 0..records + records / LONGER_PART {
        driver.put_one_at_random(number, records)?;
        if !number.is_multiple_of(step) {
            continue;
        }
        env.settle();
        let log_bytes = driver.log_bytes()?;
        if number >= records && log_bytes >= longest_log_bytes / 10 * LONG_TENTHS {
            break;
        }
        if number >= records / 2 && number < records {
            longest_log_bytes = longest_log_bytes.max(log_bytes);
            sum_bytes += log_bytes as f64;
            moments += 1;
        }
    }
    let log_bytes = driver.log_bytes()?;
    let (replayed, image) = reopen(env, setup, &driver.close_into_image()?)?;
    let (flushed, _) = reopen(env, setup, &image)?;
    let mean_log_bytes = sum_bytes / moments.max(1) as f64;
    Ok(Found { log_bytes, longest_log_bytes, mean_log_bytes, replayed, flushed })
}

/// Opens what an image holds, and closes it once all is in tables.
fn reopen(env: &Env, setup: &Setup, image: &MediaImage) -> Result<(Opening, MediaImage), LabError> {
    env.settle();
    let begin = env.now();
    let mut driver = Driver::reopen(env, setup, VALUE_BYTES, image)?;
    env.settle();
    let seconds = (env.now() - begin).as_secs_f64();
    let statistics = driver.statistics()?;
    let (mut read_bytes, mut written_bytes) = (0, 0);
    for (_, counters) in &statistics.devices {
        read_bytes += counters.read_bytes;
        written_bytes += counters.written_bytes;
    }
    let opening = Opening { seconds, read_bytes, written_bytes };
    driver.idle()?;
    Ok((opening, driver.close_into_image()?))
}
