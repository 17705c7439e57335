//! The seeds a suite runs: a few in the regular run, any number of them for as long as it is asked to.
//!
//! `VARVE_SOAK_SECONDS` says for how long, `VARVE_SEED` from which seed on; alone, the latter runs that seed only.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Env, Instant};

/// Seeds at once.
const THREADS: usize = 2;

/// Failures after which a suite ends.
const FAILURES_MAX: usize = 8;

/// How often what was done: points, states, faults.
pub(crate) type Reached = BTreeMap<&'static str, u64>;

/// Seeds still to be run.
struct Seeds {
    env: Env,
    next: u64,
    /// The first that is not run.
    end: Option<u64>,
    /// When no more are begun.
    until: Option<Instant>,
    /// Nobody asked for others than those of every run.
    is_regular: bool,
}

impl Seeds {
    fn new(first: u64, count: u64) -> Seeds {
        let said = |name: &str| {
            let parse = |value: String| value.parse::<u64>().unwrap_or_else(|error| panic!("{name}={value}: {error}"));
            std::env::var(name).ok().map(parse)
        };
        let env = Env::real();
        let (seed, seconds) = (said("VARVE_SEED"), said("VARVE_SOAK_SECONDS"));
        let next = seed.unwrap_or(first);
        let end = match (seed, seconds) {
            (_, Some(_)) => None,
            (Some(seed), None) => Some(seed + 1),
            (None, None) => Some(first + count),
        };
        let until = seconds.map(|seconds| env.now() + Duration::from_secs(seconds));
        Seeds { env, next, end, until, is_regular: seed.is_none() && seconds.is_none() }
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let is_over =
            self.end.is_some_and(|end| self.next >= end) || self.until.is_some_and(|until| self.env.now() >= until);
        if is_over {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

/// Runs `count` seeds from `first` on, or those that are asked for, and prints what they reached under the name of
/// the `test` in the file `suite`. What must have been reached at least, `least`, is that of the regular run.
///
/// # Panics
/// When a seed fails, with the command that runs it again; when too little was reached.
pub(crate) fn run_seeds(
    (suite, test): (&str, &str),
    first: u64,
    count: u64,
    least: &[(&'static str, u64)],
    work: impl Fn(u64) -> Result<Reached, String> + Send + Sync + 'static,
) {
    let seeds = Seeds::new(first, count);
    let (env, is_regular) = (seeds.env.clone(), seeds.is_regular);
    let (seeds, work) = (Arc::new(Mutex::new(seeds)), Arc::new(work));
    let all: Arc<Mutex<(Reached, Vec<(u64, String)>)>> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (seeds, work, all) = (seeds.clone(), work.clone(), all.clone());
            env.spawn("seeds", move || {
                loop {
                    if all.lock().1.len() >= FAILURES_MAX {
                        return;
                    }
                    let Some(seed) = seeds.lock().next() else { return };
                    let outcome = catch_unwind(AssertUnwindSafe(|| work(seed))).unwrap_or_else(|panic| {
                        let said = panic.downcast_ref::<String>().cloned();
                        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
                        Err(format!("panicked: {}", said.unwrap_or_default()))
                    });
                    let (reached, failures) = &mut *all.lock();
                    *reached.entry("seeds").or_default() += 1;
                    match outcome {
                        Ok(done) => {
                            done.into_iter().for_each(|(what, count)| *reached.entry(what).or_default() += count)
                        }
                        Err(what) => failures.push((seed, what)),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
    let (reached, mut failures) = std::mem::take(&mut *all.lock());
    let told: Vec<String> = reached.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("reached: {suite}/{test}: {}", told.join(", "));
    failures.sort();
    let told: Vec<String> = failures
        .iter()
        .map(|(seed, what)| {
            format!("{what}\n  again: VARVE_SEED={seed} cargo test -p varve-engine --test {suite} {test}")
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} seeds failed:\n{}", failures.len(), reached["seeds"], told.join("\n"));
    for (what, least) in least.iter().filter(|_| is_regular) {
        let count = reached.get(what).copied().unwrap_or(0);
        assert!(count >= *least, "{count} {what} are fewer than {least}: {reached:?}");
    }
}
