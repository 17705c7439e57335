//! One thread that writes and reads, as `db_bench` has by default, and what is measured meanwhile.

use super::settings::{COMPRESSION_RATIO, KEY_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::{Run, emulated, together};
use crate::generator::{KeyFormat, ScatteredZipf, ValueGenerator};
use crate::media::{BlockDeviceExt, IoContext};
use crate::runner::{Latencies, LatencySummary};
use crate::target::{Direction, Durability, Session, Target, TargetError, TargetStatistics, VarveTarget};
use std::ops::RangeInclusive;
use std::sync::Arc;
use varve::MediaImage;
use varve::env::{Env, Random};
use varve::stack::Stack;
use varve::store::PieceUsage;

/// db_bench's keys.
const KEYS: KeyFormat = KeyFormat::Decimal { width_bytes: KEY_BYTES };

/// Operations after which charged processor time becomes virtual time at the latest.
const SETTLE_STEP: u64 = 8;

/// Moments at which it is looked how much tables overlap.
const DEPTHS: u64 = 64;

/// A request when the disk is read past the store.
const RAW_REQUEST_BYTES: u64 = 1 << 20;

/// Exponent of skewed keys.
const ZIPF_EXPONENT: f64 = 0.99;

/// Which records are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutOrder {
    Uniform,
    Zipf,
    /// Uniform, and each fifth operation deletes one.
    WithDeletes,
}

/// Operations that are measured together.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) operations: u64,
    /// Of keys and values.
    pub(super) user_bytes: u64,
    pub(super) seconds: f64,
    pub(super) latency: Option<LatencySummary>,
    /// Tables whose range of keys holds a record, on average over the records and over moments of the phase; only of
    /// random puts.
    pub(super) overlap_depth: Option<f64>,
    /// What tables take of the devices, at the same moments; only of random puts.
    pub(super) table_space: Option<TableSpace>,
    pub(super) from: TargetStatistics,
    pub(super) to: TargetStatistics,
}

/// Bytes of what tables lie in, whole bands where the store gives them whole bands: those of the tree, those that are written, and those that
/// somebody still reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSpace {
    pub(super) mean_bytes: f64,
    pub(super) most_bytes: u64,
}

impl Phase {
    pub(super) fn megabytes_per_second(&self) -> f64 {
        self.user_bytes as f64 / 1e6 / self.seconds
    }

    /// Growth of a number of the store.
    pub(super) fn growth(&self, of: impl Fn(&TargetStatistics) -> Option<u64>) -> u64 {
        of(&self.to).unwrap_or(0) - of(&self.from).unwrap_or(0)
    }

    /// Bytes that compactions wrote to a byte of its keys and values.
    pub(super) fn rewritten(&self) -> f64 {
        self.growth(|statistics| statistics.compaction_written_bytes) as f64 / self.user_bytes as f64
    }

    /// Bytes that the devices read.
    pub(super) fn device_read_bytes(&self) -> u64 {
        let read = |statistics: &TargetStatistics| -> u64 {
            statistics.devices.iter().map(|(_, counters)| counters.read_bytes).sum()
        };
        read(&self.to) - read(&self.from)
    }

    /// Requests to read that reached the media.
    pub(super) fn media_reads(&self) -> u64 {
        let reads = |statistics: &TargetStatistics| -> u64 {
            statistics.devices.iter().map(|(_, counters)| counters.reads).sum()
        };
        reads(&self.to) - reads(&self.from)
    }
}

/// A store, and what puts into it and gets from it.
pub(super) struct Driver {
    env: Env,
    target: Arc<dyn Target>,
    /// The store, if it is Varve.
    varve: Option<Arc<VarveTarget>>,
    session: Box<dyn Session>,
    values: ValueGenerator,
    value_bytes: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    random: Random,
}

/// What is done to a new database of a setup, and what is measured of it.
pub(super) struct Measurement {
    setup: Setup,
    value_bytes: usize,
    name: String,
    work: Box<dyn FnOnce(&mut Driver) -> Result<Vec<Phase>, LabError> + Send>,
}

impl Measurement {
    /// The name says everything of `work` that the result depends on.
    pub(super) fn new(
        setup: &Setup,
        value_bytes: usize,
        name: &str,
        work: impl FnOnce(&mut Driver) -> Result<Vec<Phase>, LabError> + Send + 'static,
    ) -> Measurement {
        Measurement { setup: setup.clone(), value_bytes, name: name.to_owned(), work: Box::new(work) }
    }
}

/// The phases of each, in order, two databases at a time. What an earlier experiment of the same run measured is not measured again.
///
/// # Errors
/// Whatever kept the first of them from its end.
pub(super) fn measure_all(
    run: &Run<'_>,
    what: &str,
    measurements: Vec<Measurement>,
) -> Result<Vec<Arc<Vec<Phase>>>, LabError> {
    let wanted = |measurement: Measurement| {
        let Measurement { setup, value_bytes, name, work } = measurement;
        let key = format!("smrdb {name} {value_bytes} {setup:?}");
        together::Wanted::simulated(key, setup.seed, move |env| work(&mut Driver::open(env, &setup, value_bytes)?))
    };
    together::measure(run, what, measurements.into_iter().map(wanted).collect())
}

impl Driver {
    /// Opens a new database.
    pub(super) fn open(env: &Env, setup: &Setup, value_bytes: usize) -> Result<Driver, LabError> {
        let varve = Arc::new(emulated::open_varve(env, &setup.spec(), &setup.options())?);
        let driver = Driver::over(env, Arc::clone(&varve) as Arc<dyn Target>, setup.seed, value_bytes)?;
        Ok(Driver { varve: Some(varve), ..driver })
    }

    /// Opens the database of a setup that an image holds.
    pub(super) fn reopen(env: &Env, setup: &Setup, value_bytes: usize, image: &MediaImage) -> Result<Driver, LabError> {
        let varve = Arc::new(emulated::reopen_varve(env, &setup.spec(), &setup.options(), image)?);
        let driver = Driver::over(env, Arc::clone(&varve) as Arc<dyn Target>, setup.seed, value_bytes)?;
        Ok(Driver { varve: Some(varve), ..driver })
    }

    /// Closes the store, and gives what its devices hold; nothing is flushed.
    pub(super) fn close_into_image(self) -> Result<MediaImage, LabError> {
        let Driver { session, target, varve, .. } = self;
        let name = target.name().to_owned();
        drop((session, target));
        let varve = varve.and_then(Arc::into_inner).ok_or_else(|| LabError::invalid("store", "one of ours"))?;
        varve.into_varve().close_into_image().map_err(|source| failed(&name, "close", source.into()))
    }

    /// Bytes of the logs that are there; 0 when the store is none of ours.
    pub(super) fn log_bytes(&self) -> Result<u64, LabError> {
        let Some(stack) = self.stack() else { return Ok(0) };
        let listed = stack.logs().unwrap_or(stack.files()).list();
        let entries = listed.map_err(|source| failed(self.target.name(), "list", source.into()))?;
        Ok(entries.iter().filter(|entry| entry.name.ends_with(".log")).map(|entry| entry.size_bytes).sum())
    }

    /// A driver of any store.
    pub(super) fn over(env: &Env, target: Arc<dyn Target>, seed: u64, value_bytes: usize) -> Result<Driver, LabError> {
        Ok(Driver {
            env: env.clone(),
            session: target.session().map_err(|source| failed(target.name(), "session", source))?,
            target,
            varve: None,
            values: ValueGenerator::new(seed, COMPRESSION_RATIO)?,
            value_bytes,
            key: Vec::new(),
            value: Vec::new(),
            random: Random::named(seed, "smrdb"),
        })
    }

    /// Files of the database, and devices below it; `None` when it is none of ours.
    pub(super) fn stack(&self) -> Option<&Stack> {
        self.varve.as_ref().map(|varve| varve.varve().stack())
    }

    pub(super) fn statistics(&self) -> Result<TargetStatistics, LabError> {
        self.target.statistics().map_err(|source| failed(self.target.name(), "statistics", source))
    }

    /// Measures `operations` calls of `step`, each of which returns the bytes of keys and values it moved.
    fn phase(
        &mut self,
        operations: u64,
        mut step: impl FnMut(&mut Driver, u64) -> Result<u64, LabError>,
    ) -> Result<Phase, LabError> {
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
        Ok(Phase {
            operations,
            user_bytes,
            seconds,
            latency: latencies.summary(),
            overlap_depth: None,
            table_space: None,
            from,
            to,
        })
    }

    fn put(&mut self, record: u64, version: u64, durability: Durability) -> Result<u64, LabError> {
        KEYS.write(record, &mut self.key);
        self.values.write(&self.key, version, self.value_bytes, &mut self.value);
        self.session
            .put(&self.key, &self.value, durability)
            .map_err(|source| failed(self.target.name(), "put", source))?;
        Ok((self.key.len() + self.value.len()) as u64)
    }

    fn delete(&mut self, record: u64) -> Result<u64, LabError> {
        KEYS.write(record, &mut self.key);
        self.session
            .delete(&self.key, Durability::Buffered)
            .map_err(|source| failed(self.target.name(), "delete", source))?;
        Ok(self.key.len() as u64)
    }

    /// Puts the records in order, every `sync_interval`-th synced.
    pub(super) fn put_in_order(&mut self, records: u64, sync_interval: Option<u64>) -> Result<Phase, LabError> {
        self.phase(records, |driver, record| {
            let synced = sync_interval.is_some_and(|interval| (record + 1) % interval == 0);
            driver.put(record, 0, if synced { Durability::Synced } else { Durability::Buffered })
        })
    }

    /// Puts `records` drawn at random from as many, as fillrandom of db_bench.
    pub(super) fn put_at_random(&mut self, records: u64) -> Result<Phase, LabError> {
        self.put_in(PutOrder::Uniform, records)
    }

    /// The same, drawn otherwise.
    pub(super) fn put_in(&mut self, order: PutOrder, records: u64) -> Result<Phase, LabError> {
        let (mut depths, step) = (0.0, (records / DEPTHS).max(1));
        let (mut space_bytes, mut most_bytes) = (0.0, 0);
        let zipf = ScatteredZipf::new(records, ZIPF_EXPONENT, 1)?;
        let mut phase = self.phase(records, |driver, number| {
            if number % step == 0 {
                depths += driver.overlap_depth(records);
                let bytes = driver.table_space_bytes();
                space_bytes += bytes as f64;
                most_bytes = most_bytes.max(bytes);
            }
            match order {
                PutOrder::Uniform => driver.put_one_at_random(number, records),
                PutOrder::Zipf => {
                    let record = zipf.next(&mut driver.random);
                    driver.put(record, number, Durability::Buffered)
                }
                PutOrder::WithDeletes if number % 5 == 4 => {
                    let record = driver.random.below(records);
                    driver.delete(record)
                }
                PutOrder::WithDeletes => driver.put_one_at_random(number, records),
            }
        })?;
        let moments = records.div_ceil(step).max(1) as f64;
        phase.overlap_depth = Some(depths / moments);
        phase.table_space = Some(TableSpace { mean_bytes: space_bytes / moments, most_bytes });
        Ok(phase)
    }

    /// Puts a record drawn at random from `records`, the `number`-th that is put.
    pub(super) fn put_one_at_random(&mut self, number: u64, records: u64) -> Result<u64, LabError> {
        let record = self.random.below(records);
        self.put(record, number, Durability::Buffered)
    }

    /// The tables: number, first and last record.
    pub(super) fn tables(&self) -> Vec<(u64, RangeInclusive<u64>)> {
        let text = self.varve.as_ref().and_then(|varve| varve.varve().property("varve.tables")).unwrap_or_default();
        let table = |line: &str| {
            let fields: Vec<&str> = line.split(' ').collect();
            let number = |field: usize| fields.get(field).and_then(|text| text.parse::<u64>().ok());
            Some((number(1)?, number(4)?..=number(5)?))
        };
        text.lines().filter_map(table).collect()
    }

    /// Tables whose range of keys holds a record, on average over the records.
    fn overlap_depth(&self, records: u64) -> f64 {
        let tables = self.tables().into_iter();
        tables.map(|(_, held)| held.end().saturating_sub(*held.start()) + 1).sum::<u64>() as f64 / records as f64
    }

    /// What tables take of the devices.
    fn table_space_bytes(&self) -> u64 {
        // What is removed is not free before its readers are gone; some stores do not tell kinds of files.
        let is_taken = |usage| matches!(usage, PieceUsage::Table | PieceUsage::File | PieceUsage::Removed);
        let pieces = self.stack().map(|stack| stack.files().occupancy().pieces).unwrap_or_default();
        pieces.iter().filter(|piece| is_taken(piece.usage)).map(|piece| piece.length_bytes).sum()
    }

    /// Reads every piece of the first device that holds tables, by address, past the store: how fast their bytes come.
    pub(super) fn read_tables_by_address(&mut self) -> Result<Phase, LabError> {
        let stack = self.stack();
        let pieces = stack.map(|stack| stack.files().occupancy().pieces).unwrap_or_default();
        let tables: Vec<_> = pieces
            .into_iter()
            .filter(|piece| piece.device == 0 && matches!(piece.usage, PieceUsage::Table | PieceUsage::File))
            .collect();
        let Some(device) = stack.and_then(|stack| stack.devices().first()).map(|first| first.device().block.clone())
        else {
            return Err(LabError::invalid("medium", "no device"));
        };
        let sector = u64::from(device.geometry().physical_sector_bytes).max(1);
        let mut buffer = vec![0; RAW_REQUEST_BYTES as usize];
        self.phase(tables.len() as u64, |_, number| {
            let piece = &tables[number as usize];
            let end = piece.used_bytes.next_multiple_of(sector).min(piece.length_bytes);
            let mut offset = 0;
            while offset < end {
                let length = (end - offset).min(RAW_REQUEST_BYTES);
                device.read_at(piece.offset_bytes + offset, &mut buffer[..length as usize], &IoContext::default())?;
                offset += length;
            }
            Ok(end)
        })
    }

    /// Reads everything in order.
    pub(super) fn read_in_order(&mut self) -> Result<Phase, LabError> {
        let mut pairs = 0;
        let mut phase = self.phase(1, |driver, _| {
            let mut bytes = 0;
            let visit = &mut |key: &[u8], value: &[u8]| bytes += (key.len() + value.len()) as u64;
            let scanned = driver.session.scan(None, Direction::Forward, u64::MAX, visit);
            pairs = scanned.map_err(|source| failed(driver.target.name(), "scan", source))?;
            Ok(bytes)
        })?;
        phase.operations = pairs;
        Ok(phase)
    }

    /// Reads records drawn at random from `records`; how many were there is not told.
    pub(super) fn read_at_random(&mut self, reads: u64, records: u64) -> Result<Phase, LabError> {
        self.phase(reads, |driver, _| {
            let record = driver.random.below(records);
            KEYS.write(record, &mut driver.key);
            let found = driver.session.get(&driver.key, &mut driver.value);
            let found = found.map_err(|source| failed(driver.target.name(), "get", source))?;
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
        self.target.flush().map_err(|source| failed(self.target.name(), "flush", source))?;
        self.target.wait_idle().map_err(|source| failed(self.target.name(), "wait_idle", source))
    }

    /// Everything in order.
    pub(super) fn compact(&mut self) -> Result<(), LabError> {
        self.target.compact().map_err(|source| failed(self.target.name(), "compact", source))
    }
}

fn failed(target: &str, operation: &'static str, error: TargetError) -> LabError {
    LabError::Target { target: target.to_owned(), operation, error }
}
