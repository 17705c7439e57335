//! Loading the pairs and what is read off meanwhile.

use super::lives::Lives;
use super::mark::{Mark, Span, Tiers};
use super::settings::{
    COMPRESSION_RATIO, INTERVAL_PAIRS, Keys, LOOK_PAIRS, MIX_OPERATIONS, MIXES, Overwriting, PAIRS, READS_TO_ONE,
    Setup, Variation, Work,
};
use crate::error::LabError;
use crate::experiment::{Run, emulated, simulate, together};
use crate::generator::{Distribution, KeyFormat, Permutation, RecordChooser, ValueGenerator};
use crate::target::{Durability, Session, Target, TargetError, VarveTarget};
use std::sync::Arc;
use std::time::Duration;
use varve::env::{Env, Instant, Random};
use varve::store::Occupancy;

/// Operations after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

/// Operations between two reports of progress.
const PROGRESS_STEP: u64 = 256;

/// Looks at the tracks while a quarter of the pairs is overwritten.
const SAMPLES: u64 = 500;

/// YCSB's keys: a hash of the record's number, so that numbers in order are keys in random order.
const KEYS: KeyFormat = KeyFormat::YcsbHashed;

/// What a load gave.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) setup: Setup,
    /// Before the first pair, after every [`INTERVAL_PAIRS`] of the full size, and after the last.
    pub(super) marks: Vec<Mark>,
    /// Tables by when they came and went, after [`Work::LoadUntilIdle`] with looks.
    pub(super) lives: Option<Lives>,
    /// Once the store was idle, after [`Work::LoadUntilIdle`].
    pub(super) idle: Option<Mark>,
    /// What followed.
    pub(super) mixes: Vec<Mixed>,
    /// Or reads at each share of the tracks in use.
    pub(super) read: Vec<super::reads::Read>,
    /// Or this, in the order it was done.
    pub(super) overwritten: Vec<Overwritten>,
    pub(super) event_hash: u64,
    pub(super) wall_seconds: f64,
}

/// A mix of reads and updates after the load.
#[derive(Debug)]
pub(super) struct Mixed {
    pub(super) read_percent: u64,
    /// Updates done, those of the full size by the scale.
    pub(super) updates: u64,
    /// Reads, as many as in full: see [`Work::LoadAndMixes`].
    pub(super) reads: u64,
    /// Of them those that were not done, and the time that passed for them.
    pub(super) passed: u64,
    pub(super) passed_nanos: u64,
    pub(super) from: Mark,
    pub(super) to: Mark,
}

/// A quarter as many pairs as there are overwritten, when half were before.
#[derive(Debug)]
pub(super) struct Overwritten {
    pub(super) order: Overwriting,
    pub(super) from: Mark,
    pub(super) to: Mark,
    /// Shares of the tracks in use, evenly apart by pairs.
    pub(super) used: Vec<f64>,
    /// Tables by when they came and went.
    pub(super) lives: Lives,
}

impl Overwritten {
    pub(super) fn span(&self) -> Span<'_> {
        Span { from: &self.from, to: &self.to }
    }
}

impl Mixed {
    pub(super) fn span(&self) -> Span<'_> {
        Span { from: &self.from, to: &self.to }
    }
}

impl Loaded {
    /// Whether it is the load of this setup, whatever followed it.
    pub(super) fn answers(&self, setup: &Setup) -> bool {
        Setup { work: setup.work, ..self.setup.clone() } == *setup
    }

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
    let measured =
        |work: Work, setup: &Setup| run.settings.shared.get::<Loaded>(&key(&Setup { work, ..setup.clone() }));
    // A load that something followed is a load too.
    let until_idle = |is_looked_at: bool| Work::LoadUntilIdle { is_looked_at };
    let find = |setup: &Setup| match setup.work {
        Work::Load => {
            [Work::Load, until_idle(false), until_idle(true), Work::LoadAndMixes { reads_to_one: READS_TO_ONE }]
                .into_iter()
                .find_map(|work| measured(work, setup))
        }
        work => measured(work, setup),
    };
    let missing = setups.iter().filter(|setup| find(setup).is_none());
    let names: Vec<String> = missing.clone().map(|setup| setup.scheme.name()).collect();
    let wanted = missing.map(|setup| {
        let setup = setup.clone();
        together::Wanted {
            key: key(&setup),
            operations: setup.operations(),
            run: Box::new(move |advance: together::Advance| load(&setup, move |step| advance(step))),
        }
    });
    together::measure::<Loaded>(run, &format!("loading {}", names.join(", ")), wanted.collect())?;
    let found = |setup: &Setup| find(setup).ok_or_else(|| LabError::invalid("load", "it left no result"));
    setups.iter().map(found).collect()
}

/// Loads the pairs of one setup in a world of its own, and does what is to follow.
pub(super) fn load(setup: &Setup, advance: impl Fn(u64) + Send + 'static) -> Result<Loaded, LabError> {
    let wall = Env::real();
    let begin = wall.now();
    let setup = setup.clone();
    let mut loaded = simulate(setup.seed, move |env| {
        let target = emulated::open_varve(env, &setup.spec(), &setup.options())?;
        let mut driver = Driver::new(env, &target, &setup, advance)?;
        let (mut idle, mut mixes, mut read, mut overwritten) = (None, Vec::new(), Vec::new(), Vec::new());
        let (marks, lives) = match setup.work {
            Work::LoadAndRead => {
                let from = driver.mark()?;
                read = super::reads::fill_and_read(&mut driver)?;
                (vec![from, driver.mark()?], None)
            }
            _ => driver.fill()?,
        };
        match setup.work {
            Work::Load | Work::LoadAndRead => {}
            Work::LoadUntilIdle { .. } => idle = Some(driver.idle()?),
            Work::LoadAndMixes { reads_to_one } => {
                for read_percent in MIXES {
                    mixes.push(driver.mix(read_percent, reads_to_one)?);
                }
            }
            Work::LoadAndOverwrite { .. } => overwritten = driver.overwrite()?,
        }
        drop(driver);
        drop(target);
        Ok(Loaded {
            setup,
            marks,
            lives,
            idle,
            mixes,
            read,
            overwritten,
            event_hash: env.event_hash(),
            wall_seconds: 0.0,
        })
    })?;
    loaded.wall_seconds = (wall.now() - begin).as_secs_f64();
    Ok(loaded)
}

/// The one thread that writes and reads, as `db_bench` has by default.
pub(super) struct Driver<'a, F: Fn(u64)> {
    env: &'a Env,
    target: &'a VarveTarget,
    pub(super) setup: &'a Setup,
    session: Box<dyn Session>,
    values: ValueGenerator,
    start: Instant,
    operations: u64,
    advance: F,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a, F: Fn(u64)> Driver<'a, F> {
    pub(super) fn new(
        env: &'a Env,
        target: &'a VarveTarget,
        setup: &'a Setup,
        advance: F,
    ) -> Result<Driver<'a, F>, LabError> {
        let session = target.session().map_err(failed("session"))?;
        let values = ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?;
        let (key, value, start) = (Vec::new(), Vec::new(), env.now());
        Ok(Driver { env, target, setup, session, values, start, operations: 0, advance, key, value })
    }

    /// The state of now.
    pub(super) fn mark(&self) -> Result<Mark, LabError> {
        self.env.settle();
        let statistics = self.target.statistics().map_err(failed("statistics"))?;
        let tiers = Tiers::of(&self.occupancy());
        let nanos = (self.env.now() - self.start).as_nanos() as u64;
        Ok(Mark { operations: self.operations, nanos, statistics, tiers })
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        self.target.varve().stack().files().occupancy()
    }

    /// Writes `version` of a record.
    pub(super) fn put(&mut self, record: u64, version: u64) -> Result<(), LabError> {
        KEYS.write(record, &mut self.key);
        self.values.write(&self.key, version, self.setup.variation.value_bytes, &mut self.value);
        self.session.put(&self.key, &self.value, Durability::Buffered).map_err(failed("put"))?;
        self.step();
        Ok(())
    }

    fn delete(&mut self, record: u64) -> Result<(), LabError> {
        KEYS.write(record, &mut self.key);
        self.session.delete(&self.key, Durability::Buffered).map_err(failed("delete"))
    }

    /// Reads a record, and checks what comes.
    pub(super) fn get(&mut self, record: u64) -> Result<(), LabError> {
        KEYS.write(record, &mut self.key);
        let found = self.session.get(&self.key, &mut self.value).map_err(failed("get"))?;
        if !found || !self.values.verify(&self.key, &self.value) {
            return Err(LabError::WrongValue {
                target: self.target.name().to_owned(),
                key: self.key.escape_ascii().to_string(),
                found_bytes: self.value.len(),
                found: if found { "something else" } else { "nothing" }.to_owned(),
            });
        }
        self.step();
        Ok(())
    }

    fn step(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(SETTLE_STEP) {
            self.env.settle();
        }
        if self.operations.is_multiple_of(PROGRESS_STEP) {
            (self.advance)(PROGRESS_STEP);
        }
    }

    /// Every pair once, in the order of the records, which is a random order of the keys.
    pub(super) fn fill(&mut self) -> Result<(Vec<Mark>, Option<Lives>), LabError> {
        let pairs = self.setup.scaled_pairs();
        let interval = self.setup.scale.of(INTERVAL_PAIRS);
        let look = self.setup.scale.of(LOOK_PAIRS).max(1);
        let mut marks = vec![self.mark()?];
        let Variation { keys, pairs_to_a_delete, .. } = self.setup.variation;
        let mut chooser = RecordChooser::new(Distribution::Zipfian, pairs, 0, 0, 1)?;
        let mut random = Random::named(self.setup.seed, "kvimr load");
        let is_looked_at = matches!(self.setup.work, Work::LoadUntilIdle { is_looked_at: true });
        let mut lives = is_looked_at.then(Lives::default);
        for number in 0..pairs {
            if let Some(lives) = lives.as_mut().filter(|_| number.is_multiple_of(look)) {
                lives.see(&self.occupancy());
            }
            match keys {
                Keys::EachOnce => self.put(number, 0)?,
                Keys::Zipfian => self.put(chooser.next(pairs, &mut random), number)?,
            }
            let done = number + 1;
            if pairs_to_a_delete.is_some_and(|pairs| done.is_multiple_of(pairs)) {
                self.delete(random.below(done))?;
            }
            // A few pairs left over by the division belong to the last interval.
            if done == pairs || (done.is_multiple_of(interval) && pairs - done >= interval) {
                marks.push(self.mark()?);
            }
        }
        Ok((marks, lives))
    }

    /// The state once everything is in tables and no compaction is due.
    pub(super) fn idle(&mut self) -> Result<Mark, LabError> {
        self.target.flush().map_err(failed("flush"))?;
        self.target.wait_idle().map_err(failed("wait_idle"))?;
        self.mark()
    }

    /// Three quarters of the pairs once, in another order: the last of them; and then as many as that drawn anew each time.
    fn overwrite(&mut self) -> Result<Vec<Overwritten>, LabError> {
        self.idle()?;
        let pairs = self.setup.scaled_pairs();
        let permutation = Permutation::new(pairs, self.setup.seed);
        let mut random = Random::named(self.setup.seed, "kvimr overwriting");
        let half = pairs / 2;
        for position in 0..half {
            self.put(permutation.of(position), 1)?;
        }
        let once = self.overwrite_quarter(Overwriting::EachOnce, |position| permutation.of(half + position))?;
        let drawn = self.overwrite_quarter(Overwriting::Drawn, |_| random.below(pairs))?;
        Ok(vec![once, drawn])
    }

    /// As many pairs as a quarter of those there are.
    fn overwrite_quarter(
        &mut self,
        order: Overwriting,
        mut record: impl FnMut(u64) -> u64,
    ) -> Result<Overwritten, LabError> {
        let pairs = self.setup.scaled_pairs() / 4;
        let from = self.mark()?;
        let (mut used, mut lives) = (Vec::new(), Lives::default());
        let step = (pairs / SAMPLES).max(1);
        for position in 0..pairs {
            if position.is_multiple_of(step) {
                let occupancy = self.occupancy();
                used.push(Tiers::of(&occupancy).used_share());
                lives.see(&occupancy);
            }
            self.put(record(position), 1)?;
        }
        Ok(Overwritten { order, from, to: self.mark()?, used, lives })
    }

    /// No flush and no compaction runs.
    fn is_alone(&self) -> bool {
        self.target.varve().property("varve.num-running-jobs").is_some_and(|jobs| jobs == "0")
    }

    fn mix(&mut self, read_percent: u64, reads_to_one: u64) -> Result<Mixed, LabError> {
        let records = self.setup.scaled_pairs();
        // Of a smaller load a smaller mix.
        let of_pairs =
            |operations: u64| (u128::from(operations) * u128::from(self.setup.pairs) / u128::from(PAIRS)) as u64;
        let reads = of_pairs(MIX_OPERATIONS * read_percent / 100);
        let updates = self.setup.scale.of(of_pairs(MIX_OPERATIONS * (100 - read_percent) / 100)).max(1);
        let mut chooser = RecordChooser::new(Distribution::Zipfian, records, 0, 0, 1)?;
        let mut random = Random::named(self.setup.seed, &format!("kvimr mix {read_percent}"));
        let from = self.idle()?;
        let (mut read, mut passed, mut passed_nanos) = (0, 0, 0);
        for update in 0..updates {
            let due = (u128::from(reads) * u128::from(update + 1) / u128::from(updates)) as u64;
            // Once nothing runs, nothing begins before the next update.
            let mut is_alone = false;
            while read < due {
                let was_alone = is_alone || self.is_alone();
                self.env.settle();
                let begun = self.env.now();
                let record = chooser.next(records, &mut random);
                self.get(record)?;
                read += 1;
                is_alone = was_alone && (is_alone || self.is_alone());
                let others = (due - read).min(reads_to_one - 1);
                if is_alone && others > 0 {
                    self.env.settle();
                    let nanos = (self.env.now() - begun).as_nanos() as u64 * others;
                    self.env.sleep(Duration::from_nanos(nanos));
                    read += others;
                    passed += others;
                    passed_nanos += nanos;
                    self.operations += others;
                    (self.advance)(others + 1);
                }
            }
            let record = chooser.next(records, &mut random);
            self.put(record, read_percent + update + 1)?;
        }
        Ok(Mixed { read_percent, updates, reads, passed, passed_nanos, from, to: self.mark()? })
    }
}

/// An operation on the store under test that failed.
fn failed(operation: &'static str) -> impl FnOnce(TargetError) -> LabError {
    move |error| LabError::Target { target: "varve".to_owned(), operation, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Scale;
    use crate::experiment::kvimr::scheme::Scheme;

    /// A load of the shape of the full one, with fewer pairs.
    fn small(scheme: Scheme, pairs: u64) -> Setup {
        let scale = Scale::one_in(256);
        Setup {
            pairs: pairs * scale.denominator(),
            work: Work::LoadUntilIdle { is_looked_at: false },
            ..Setup::new(scheme, scale, 3)
        }
    }

    #[test]
    fn loads_repeat_to_the_event_and_count_everything() {
        for scheme in [Scheme::Cmr, Scheme::Seq, Scheme::KvimrM] {
            let setup = small(scheme, 4_500);
            let first = load(&setup, |_| {}).unwrap();
            let second = load(&setup, |_| {}).unwrap();
            assert_eq!(first.event_hash, second.event_hash, "{scheme:?}");
            assert_eq!(format!("{:?}", first.marks), format!("{:?}", second.marks), "{scheme:?}");
            let work = Work::LoadUntilIdle { is_looked_at: true };
            let looked = load(&Setup { work, ..setup.clone() }, |_| {}).unwrap();
            assert_eq!(looked.event_hash, first.event_hash, "{scheme:?}");
            assert_eq!(format!("{:?}", looked.marks), format!("{:?}", first.marks), "looks take no time: {scheme:?}");
            let lives = looked.lives.unwrap();
            assert!(lives.looks == 4_500usize.div_ceil(16) && lives.tables.len() > 5, "{scheme:?}: {lives:?}");
            assert!(first.answers(&Setup { work: Work::Load, ..setup.clone() }));
            assert!(!first.answers(&Setup { seed: 4, ..setup.clone() }));
            let whole = first.whole();
            assert_eq!((whole.operations(), first.marks.len()), (4_500, 2), "{scheme:?}");
            let parts: u64 = first.intervals().map(|span| span.operations()).sum();
            assert_eq!(parts, 4_500);
            assert!(Span { from: &first.marks[0], to: first.idle.as_ref().unwrap() }.compactions() > 0, "{scheme:?}");
            assert!(whole.disk(|disk| disk.written_bytes) > 4_500 * 1023, "{scheme:?}");
            if scheme == Scheme::Seq {
                assert!(whole.rewrites() > 0.0 && whole.syncs() > 100.0);
                assert!(whole.rewrite_seconds() < whole.persist_seconds());
            }
        }
    }

    #[test]
    fn mixes_follow_the_load_with_as_many_reads_as_in_full() {
        let work = Work::LoadAndMixes { reads_to_one: READS_TO_ONE };
        let setup = Setup { work, ..small(Scheme::KvimrM, 1_000) };
        let loaded = load(&setup, |_| {}).unwrap();
        let shares: Vec<u64> = loaded.mixes.iter().map(|mixed| mixed.read_percent).collect();
        assert_eq!(shares, MIXES);
        for mixed in &loaded.mixes {
            let full = MIX_OPERATIONS as f64 * 256_000.0 / PAIRS as f64;
            let of_reads = mixed.reads as f64 / (full * mixed.read_percent as f64 / 100.0);
            let of_updates = mixed.updates as f64 * 256.0 / (full * (100 - mixed.read_percent) as f64 / 100.0);
            assert!((0.9..1.01).contains(&of_reads) && (0.9..1.01).contains(&of_updates), "{of_reads} {of_updates}");
            assert!(mixed.span().seconds() > 0.0);
        }
    }

    #[test]
    fn reads_that_pass_take_the_time_of_those_that_are_done() {
        let mixes = |reads_to_one| {
            let setup = Setup { work: Work::LoadAndMixes { reads_to_one }, ..small(Scheme::Seq, 2_000) };
            load(&setup, |_| {}).unwrap().mixes
        };
        let (all, few) = (mixes(1), mixes(READS_TO_ONE));
        for (all, few) in all.iter().zip(&few) {
            assert_eq!((all.passed, all.reads, all.updates), (0, few.reads, few.updates));
            assert!(few.passed > few.reads / 2, "{} of {}", few.passed, few.reads);
            assert_eq!(all.span().operations(), few.span().operations());
            let ratio = few.span().seconds() / all.span().seconds();
            assert!((0.98..1.02).contains(&ratio), "{} % reads: {ratio}", all.read_percent);
        }
    }
}
