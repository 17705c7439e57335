//! Loading the pairs and what is read off meanwhile.

use super::settings::{INTERVAL_PAIRS, Setup, VALUE_BYTES};
use crate::error::LabError;
use crate::experiment::{Run, emulated, simulate};
use crate::generator::{KeyFormat, ValueGenerator};
use crate::media::Counters;
use crate::target::{Durability, Target, TargetStatistics, VarveTarget};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve::env::Env;
use varve::{Occupancy, PieceUsage};

/// Loads that run at the same time. Each is a world of its own; two is what the memory of a full-size
/// run allows.
const AT_ONCE: usize = 2;

/// Operations after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

/// Operations between two reports of progress.
const PROGRESS_STEP: u64 = 256;

/// YCSB's keys: a hash of the record's number, so that numbers in order are keys in random order.
const KEYS: KeyFormat = KeyFormat::YcsbHashed;

/// Names under which a store tells what it did, see [`TargetStatistics::properties`].
const REWRITES: &str = "store rewrites";
const SYNCS: &str = "store syncs";
const PERSIST_NANOS: &str = "store persist time";
const REWRITE_NANOS: &str = "store rewrite time";

/// The state of a run at one moment.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) operations: u64,
    /// Virtual time since the first operation.
    pub(super) nanos: u64,
    pub(super) statistics: TargetStatistics,
    pub(super) tiers: Tiers,
}

/// Tracks that tables may have, and those that have one (or had one whose removal is not durable yet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tiers {
    pub(super) bottom_used: u64,
    pub(super) bottom_tracks: u64,
    pub(super) top_used: u64,
    pub(super) top_tracks: u64,
}

impl Tiers {
    fn of(occupancy: &Occupancy) -> Tiers {
        let mut tiers = Tiers::default();
        for piece in occupancy.pieces.iter().filter(|piece| piece.device == 0) {
            let used = matches!(piece.usage, PieceUsage::Table | PieceUsage::Removed);
            if !used && piece.usage != PieceUsage::Free {
                continue;
            }
            match piece.part {
                "bottom" => {
                    tiers.bottom_tracks += 1;
                    tiers.bottom_used += u64::from(used);
                }
                "top" => {
                    tiers.top_tracks += 1;
                    tiers.top_used += u64::from(used);
                }
                _ => {}
            }
        }
        tiers
    }

    /// Of the tracks that tables may have.
    pub(super) fn used_share(&self) -> f64 {
        (self.bottom_used + self.top_used) as f64 / (self.bottom_tracks + self.top_tracks).max(1) as f64
    }
}

/// What happened between two marks.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) from: &'a Mark,
    pub(super) to: &'a Mark,
}

impl Span<'_> {
    pub(super) fn operations(&self) -> u64 {
        self.to.operations - self.from.operations
    }

    pub(super) fn seconds(&self) -> f64 {
        (self.to.nanos - self.from.nanos) as f64 / 1e9
    }

    /// Operations per second; a scaled run does `1/N` of them in `1/N` of the time.
    pub(super) fn throughput(&self) -> f64 {
        self.operations() as f64 / self.seconds()
    }

    fn grown(&self, of: impl Fn(&TargetStatistics) -> Option<u64>) -> u64 {
        of(&self.to.statistics).unwrap_or(0).saturating_sub(of(&self.from.statistics).unwrap_or(0))
    }

    pub(super) fn compactions(&self) -> u64 {
        self.grown(|statistics| statistics.compactions)
    }

    pub(super) fn compaction_seconds(&self) -> f64 {
        self.grown(|statistics| statistics.compaction_nanos) as f64 / 1e9
    }

    pub(super) fn stall_seconds(&self) -> f64 {
        self.grown(|statistics| statistics.stall_nanos) as f64 / 1e9
    }

    pub(super) fn flush_bytes(&self) -> u64 {
        self.grown(|statistics| statistics.flush_bytes)
    }

    pub(super) fn compaction_read_bytes(&self) -> u64 {
        self.grown(|statistics| statistics.compaction_read_bytes)
    }

    pub(super) fn compaction_written_bytes(&self) -> u64 {
        self.grown(|statistics| statistics.compaction_written_bytes)
    }

    /// Growth of a property of the store; 0 when it has none of that name.
    fn property(&self, name: &str) -> f64 {
        let of = |mark: &Mark| mark.statistics.properties.get(name).copied().unwrap_or(0.0);
        of(self.to) - of(self.from)
    }

    /// Tops restored.
    pub(super) fn rewrites(&self) -> f64 {
        self.property(REWRITES)
    }

    /// Syncs of the disk made to persist tables.
    pub(super) fn syncs(&self) -> f64 {
        self.property(SYNCS)
    }

    pub(super) fn persist_seconds(&self) -> f64 {
        self.property(PERSIST_NANOS) / 1e9
    }

    pub(super) fn rewrite_seconds(&self) -> f64 {
        self.property(REWRITE_NANOS) / 1e9
    }

    /// Counters of the disk, the first device.
    pub(super) fn disk(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.grown(|statistics| statistics.devices.first().map(|(_, counters)| of(counters)))
    }
}

/// What a load gave.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) setup: Setup,
    /// Before the first pair, after every [`INTERVAL_PAIRS`] of the full size, and after the last.
    pub(super) marks: Vec<Mark>,
    /// Once the store was idle.
    pub(super) idle: Mark,
    pub(super) event_hash: u64,
    pub(super) wall_seconds: f64,
}

impl Loaded {
    /// The whole load, what was still to be compacted when it ended left out, as `db_bench` does.
    pub(super) fn whole(&self) -> Span<'_> {
        Span { from: &self.marks[0], to: &self.marks[self.marks.len() - 1] }
    }

    /// The load in pieces of [`INTERVAL_PAIRS`].
    pub(super) fn intervals(&self) -> impl Iterator<Item = Span<'_>> {
        self.marks.windows(2).map(|pair| Span { from: &pair[0], to: &pair[1] })
    }
}

/// The loads of these setups, in their order. What an earlier experiment of the same run measured is
/// not measured again; the others run two at a time.
///
/// # Errors
/// The first one that failed.
pub(super) fn loads(run: &Run<'_>, setups: &[Setup]) -> Result<Vec<Arc<Loaded>>, LabError> {
    let key = |setup: &Setup| format!("kvimr load {setup:?}");
    let missing: Vec<Setup> =
        setups.iter().filter(|setup| run.settings.shared.get::<Loaded>(&key(setup)).is_none()).cloned().collect();
    let total: u64 = missing.iter().map(Setup::scaled_pairs).sum();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|setup| setup.scheme.name()).collect();
        run.settings.progress.begin(&format!("loading {}", names.join(", ")), Some(total));
        let done = Arc::new(AtomicU64::new(0));
        let queue = Arc::new(Mutex::new(missing.into_iter().rev().collect::<Vec<_>>()));
        let results: Arc<Mutex<BTreeMap<String, Result<Loaded, LabError>>>> = Arc::default();
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|position| {
                let (queue, results, done) = (Arc::clone(&queue), Arc::clone(&results), Arc::clone(&done));
                let progress = Arc::clone(&run.settings.progress);
                Env::real().spawn(&format!("load {position}"), move || {
                    loop {
                        let Some(setup) = queue.lock().pop() else { return };
                        let (progress, done) = (Arc::clone(&progress), Arc::clone(&done));
                        let advance = move |step| progress.advance(done.fetch_add(step, Ordering::Relaxed) + step);
                        let loaded = load(&setup, advance);
                        results.lock().insert(key(&setup), loaded);
                    }
                })
            })
            .collect();
        let ended: Result<(), _> = workers.into_iter().try_for_each(|worker| worker.join());
        run.settings.progress.end();
        ended?;
        for (key, result) in std::mem::take(&mut *results.lock()) {
            run.settings.shared.insert(&key, Arc::new(result?));
        }
    }
    let found = |setup: &Setup| {
        run.settings.shared.get(&key(setup)).ok_or_else(|| LabError::invalid("load", "it left no result"))
    };
    setups.iter().map(found).collect()
}

/// Loads the pairs of one setup in a world of its own.
pub(super) fn load(setup: &Setup, advance: impl Fn(u64) + Send + 'static) -> Result<Loaded, LabError> {
    let wall = Env::real();
    let begin = wall.now();
    let setup = setup.clone();
    let (setup, marks, idle, event_hash) = simulate(setup.seed, move |env| {
        let target = emulated::open_varve(env, &setup.spec(), &setup.options())?;
        let (marks, idle) = fill(env, &target, &setup, advance)?;
        drop(target);
        Ok((setup, marks, idle, env.event_hash()))
    })?;
    Ok(Loaded { setup, marks, idle, event_hash, wall_seconds: (wall.now() - begin).as_secs_f64() })
}

fn fill(env: &Env, target: &VarveTarget, setup: &Setup, advance: impl Fn(u64)) -> Result<(Vec<Mark>, Mark), LabError> {
    let failed = |operation| {
        let target = target.name().to_owned();
        move |source| LabError::Target { target, operation, source }
    };
    let values = ValueGenerator::new(setup.seed, 0.5)?;
    let mut session = target.session().map_err(failed("session"))?;
    let start = env.now();
    let mark = |operations: u64| -> Result<Mark, LabError> {
        env.settle();
        let statistics = target.statistics().map_err(failed("statistics"))?;
        let tiers = Tiers::of(&target.varve().stack().media().files.occupancy());
        Ok(Mark { operations, nanos: (env.now() - start).as_nanos() as u64, statistics, tiers })
    };
    let pairs = setup.scaled_pairs();
    let interval = setup.scale.of(INTERVAL_PAIRS);
    let mut marks = vec![mark(0)?];
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for record in 0..pairs {
        KEYS.write(record, &mut key);
        values.write(&key, 0, VALUE_BYTES, &mut value);
        session.put(&key, &value, Durability::Buffered).map_err(failed("put"))?;
        let done = record + 1;
        if done.is_multiple_of(SETTLE_STEP) {
            env.settle();
        }
        if done.is_multiple_of(PROGRESS_STEP) {
            advance(PROGRESS_STEP);
        }
        // A few pairs left over by the division belong to the last interval.
        if done == pairs || (done.is_multiple_of(interval) && pairs - done >= interval) {
            marks.push(mark(done)?);
        }
    }
    advance(pairs % PROGRESS_STEP);
    drop(session);
    target.flush().map_err(failed("flush"))?;
    target.wait_idle().map_err(failed("wait_idle"))?;
    let idle = mark(pairs)?;
    Ok((marks, idle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Scale;
    use crate::experiment::kvimr::scheme::Scheme;

    /// A load of the shape of the full one, with fewer pairs.
    fn small(scheme: Scheme, pairs: u64) -> Setup {
        let scale = Scale::one_in(256);
        Setup { pairs: pairs * scale.denominator(), ..Setup::new(scheme, scale, 3) }
    }

    #[test]
    fn loads_repeat_to_the_event_and_count_everything() {
        for scheme in [Scheme::Cmr, Scheme::Seq, Scheme::KvimrM] {
            let setup = small(scheme, 4_500);
            let first = load(&setup, |_| {}).unwrap();
            let second = load(&setup, |_| {}).unwrap();
            assert_eq!(first.event_hash, second.event_hash, "{scheme:?}");
            assert_eq!(format!("{:?}", first.marks), format!("{:?}", second.marks), "{scheme:?}");
            let whole = first.whole();
            assert_eq!((whole.operations(), first.marks.len()), (4_500, 2), "{scheme:?}");
            let parts: u64 = first.intervals().map(|span| span.operations()).sum();
            assert_eq!(parts, 4_500);
            assert!(Span { from: &first.marks[0], to: &first.idle }.compactions() > 0, "{scheme:?}");
            assert!(whole.disk(|disk| disk.written_bytes) > 4_500 * 1023, "{scheme:?}");
            if scheme == Scheme::Seq {
                assert!(whole.rewrites() > 0.0 && whole.syncs() > 100.0);
                assert!(whole.rewrite_seconds() < whole.persist_seconds());
            }
        }
    }
}
