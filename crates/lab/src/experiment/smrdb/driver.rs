//! One thread that writes and reads, as `db_bench` has by default, and what is measured meanwhile.

use super::settings::{COMPRESSION_RATIO, KEY_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::{Run, emulated, simulate};
use crate::generator::{KeyFormat, ValueGenerator};
use crate::runner::{Latencies, LatencySummary};
use crate::target::{Direction, Durability, Session, Target, TargetError, TargetStatistics, VarveTarget};
use std::sync::Arc;
use varve::env::{Env, Random};

/// db_bench's keys.
const KEYS: KeyFormat = KeyFormat::Decimal { width_bytes: KEY_BYTES };

/// Operations after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

/// A stretch of operations.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) operations: u64,
    /// Of keys and values.
    pub(super) user_bytes: u64,
    pub(super) seconds: f64,
    pub(super) latency: Option<LatencySummary>,
    pub(super) from: TargetStatistics,
    pub(super) to: TargetStatistics,
}

impl Stretch {
    pub(super) fn megabytes_per_second(&self) -> f64 {
        self.user_bytes as f64 / 1e6 / self.seconds
    }

    /// Growth of a number of the store.
    pub(super) fn growth(&self, of: impl Fn(&TargetStatistics) -> Option<u64>) -> u64 {
        of(&self.to).unwrap_or(0) - of(&self.from).unwrap_or(0)
    }

    /// Share of the time in which a disk moved bytes.
    pub(super) fn transferring(&self) -> f64 {
        let nanos = |statistics: &TargetStatistics| -> u64 {
            statistics.devices.iter().map(|(_, counters)| counters.time.transfer_nanos).sum()
        };
        (nanos(&self.to) - nanos(&self.from)) as f64 / 1e9 / self.seconds
    }

    /// Requests to read that reached the media.
    pub(super) fn media_reads(&self) -> u64 {
        let reads = |statistics: &TargetStatistics| -> u64 {
            statistics.devices.iter().map(|(_, counters)| counters.reads).sum()
        };
        reads(&self.to) - reads(&self.from)
    }
}

/// A database in a world of its own.
pub(super) struct Driver {
    env: Env,
    target: VarveTarget,
    session: Box<dyn Session>,
    values: ValueGenerator,
    value_bytes: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    random: Random,
}

/// Does `work` on a new database of this setup. What an earlier experiment of the same run measured under the same
/// name is not measured again.
///
/// # Errors
/// Whatever kept it from its end.
pub(super) fn measure(
    run: &Run<'_>,
    setup: &Setup,
    value_bytes: usize,
    name: &str,
    work: impl FnOnce(&mut Driver) -> Result<Vec<Stretch>, LabError> + Send + 'static,
) -> Result<Arc<Vec<Stretch>>, LabError> {
    let key = format!("smrdb {name} {value_bytes} {setup:?}");
    if let Some(found) = run.settings.shared.get::<Vec<Stretch>>(&key) {
        return Ok(found);
    }
    run.settings.progress.begin(&format!("{name}, {}", setup.scheme.name()), None);
    let setup = setup.clone();
    let stretches = simulate(setup.seed, move |env| {
        let target = emulated::open_varve(env, &setup.spec(), &setup.options())?;
        let mut driver = Driver {
            env: env.clone(),
            session: target.session().map_err(failed("session"))?,
            target,
            values: ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?,
            value_bytes,
            key: Vec::new(),
            value: Vec::new(),
            random: Random::named(setup.seed, "smrdb"),
        };
        work(&mut driver)
    });
    run.settings.progress.end();
    let stretches = Arc::new(stretches?);
    run.settings.shared.insert(&key, Arc::clone(&stretches));
    Ok(stretches)
}

impl Driver {
    fn statistics(&self) -> Result<TargetStatistics, LabError> {
        self.target.statistics().map_err(failed("statistics"))
    }

    /// Measures `operations` calls of `step`, each of which returns the bytes of keys and values it moved.
    fn stretch(
        &mut self,
        operations: u64,
        mut step: impl FnMut(&mut Driver, u64) -> Result<u64, LabError>,
    ) -> Result<Stretch, LabError> {
        self.env.settle();
        let from = self.statistics()?;
        let start = self.env.now();
        let mut latencies = Latencies::default();
        let mut user_bytes = 0;
        for number in 0..operations {
            let before = self.env.now();
            user_bytes += step(self, number)?;
            if number % SETTLE_STEP == 0 {
                self.env.settle();
            }
            latencies.record((self.env.now() - before).as_nanos() as u64);
        }
        self.env.settle();
        let seconds = (self.env.now() - start).as_secs_f64();
        let to = self.statistics()?;
        Ok(Stretch { operations, user_bytes, seconds, latency: latencies.summary(), from, to })
    }

    fn put(&mut self, record: u64, version: u64, durability: Durability) -> Result<u64, LabError> {
        KEYS.write(record, &mut self.key);
        self.values.write(&self.key, version, self.value_bytes, &mut self.value);
        self.session.put(&self.key, &self.value, durability).map_err(failed("put"))?;
        Ok((self.key.len() + self.value.len()) as u64)
    }

    /// Puts the records in order, every `sync_interval`-th synced.
    pub(super) fn put_in_order(&mut self, records: u64, sync_interval: Option<u64>) -> Result<Stretch, LabError> {
        self.stretch(records, |driver, record| {
            let synced = sync_interval.is_some_and(|interval| (record + 1) % interval == 0);
            driver.put(record, 0, if synced { Durability::Synced } else { Durability::Buffered })
        })
    }

    /// Puts `records` drawn at random from as many, as fillrandom of db_bench.
    pub(super) fn put_at_random(&mut self, records: u64) -> Result<Stretch, LabError> {
        self.stretch(records, |driver, number| {
            let record = driver.random.below(records);
            driver.put(record, number, Durability::Buffered)
        })
    }

    /// Reads everything in order.
    pub(super) fn read_in_order(&mut self) -> Result<Stretch, LabError> {
        let mut pairs = 0;
        let mut stretch = self.stretch(1, |driver, _| {
            let mut bytes = 0;
            let visit = &mut |key: &[u8], value: &[u8]| bytes += (key.len() + value.len()) as u64;
            pairs = driver.session.scan(None, Direction::Forward, u64::MAX, visit).map_err(failed("scan"))?;
            Ok(bytes)
        })?;
        stretch.operations = pairs;
        Ok(stretch)
    }

    /// Reads records drawn at random from `records`; how many were there is not told.
    pub(super) fn read_at_random(&mut self, reads: u64, records: u64) -> Result<Stretch, LabError> {
        self.stretch(reads, |driver, _| {
            let record = driver.random.below(records);
            KEYS.write(record, &mut driver.key);
            let found = driver.session.get(&driver.key, &mut driver.value).map_err(failed("get"))?;
            if found && !driver.values.verify(&driver.key, &driver.value) {
                return Err(LabError::WrongValue {
                    target: driver.target.name().to_owned(),
                    key: driver.key.escape_ascii().to_string(),
                    found_bytes: driver.value.len(),
                    found: "something else".to_owned(),
                });
            }
            Ok(if found { (driver.key.len() + driver.value.len()) as u64 } else { 0 })
        })
    }

    /// Until nothing is left to do.
    pub(super) fn idle(&mut self) -> Result<(), LabError> {
        self.target.flush().map_err(failed("flush"))?;
        self.target.wait_idle().map_err(failed("wait_idle"))
    }

    /// Everything in order.
    pub(super) fn compact(&mut self) -> Result<(), LabError> {
        self.target.compact().map_err(failed("compact"))
    }
}

fn failed(operation: &'static str) -> impl FnOnce(TargetError) -> LabError {
    move |source| LabError::Target { target: "varve".to_owned(), operation, source }
}
