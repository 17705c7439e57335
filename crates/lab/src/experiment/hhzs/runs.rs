//! Workloads on loaded databases.

use super::load::{Loaded, PROGRESS_STEP, Rested, SETTLE_STEP, failed, loads, open, rests};
use super::reading::{Reading, Whereabouts, user_reads};
use super::scheme::Scheme;
use super::settings::{COMPRESSION_RATIO, KEYS, Setup, VALUE_BYTES};
use super::workload::{Memory, Put, ScaledWorkload, Workload};
use crate::error::LabError;
use crate::experiment::together::{Advance, Wanted, measure};
use crate::experiment::{Run, simulate};
use crate::generator::{Permutation, ValueGenerator};
use crate::media::{IoCause, IoClass, IoContext};
use crate::target::{Direction, Session, Target, VarveTarget};
use std::sync::Arc;
use std::time::Duration;
use varve::env::{Env, Random};
use varve::store::FileEntry;

/// What the devices held at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Begin {
    /// What the load left, with its debt.
    Debt,
    /// The same once nothing was left to compact.
    Rest,
}

/// What a run is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) setup: Setup,
    pub(super) begin: Begin,
    pub(super) workload: ScaledWorkload,
    /// A run before it that is not measured.
    pub(super) warm_up: Option<ScaledWorkload>,
}

/// What a run gave.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) task: Task,
    pub(super) from: Reading,
    pub(super) to: Reading,
    /// Virtual times of the reads, ascending.
    pub(super) read_nanos: Vec<u64>,
    /// Reads of the drive and the disk that opened tables, or stood for those of other gets while jobs ran.
    pub(super) stand_ins: [u64; 2],
    pub(super) whereabouts: Whereabouts,
    pub(super) wall_seconds: f64,
}

impl Ran {
    /// Name of the setup, and its memory unless that is the paper's.
    pub(super) fn name(&self) -> String {
        match self.task.workload.memory {
            Memory::Paper => self.task.setup.name(),
            Memory::OfIndex => format!("{}, with the memory of the index", self.task.setup.name()),
        }
    }

    /// Operations a second of the full size.
    pub(super) fn throughput(&self) -> f64 {
        let scaled = self.task.workload.workload.operations as f64 / self.task.setup.scale.denominator() as f64;
        scaled / self.to.seconds_since(&self.from)
    }

    /// Reads of users that the disk did for a read of the workload.
    pub(super) fn disk_reads(&self) -> f64 {
        self.device_reads(1) as f64 / self.task.workload.reads.max(1) as f64
    }

    /// Reads of users that the drive (0) or the disk (1) did.
    pub(super) fn device_reads(&self, place: usize) -> u64 {
        let of = |reading: &Reading| {
            let device = if place == 0 { &reading.drive } else { &reading.disk };
            device.reads_by_class[IoClass::UserRead.index()]
        };
        of(&self.to).saturating_sub(of(&self.from) + self.stand_ins[place.min(1)])
    }

    /// The time that this share of the reads did not exceed, in milliseconds of the full size.
    pub(super) fn read_millis(&self, share: f64) -> f64 {
        let rank = ((self.read_nanos.len() as f64 * share).ceil() as usize).max(1);
        let nanos = self.read_nanos.get(rank - 1).copied().unwrap_or(0);
        nanos as f64 * self.task.setup.scale.denominator() as f64 / 1e6
    }
}

/// Runs every workload on every scheme: the results by scheme, then by workload.
///
/// # Errors
/// The first one that failed.
pub(super) fn run_all(
    run: &Run<'_>,
    schemes: &[Scheme],
    workloads: &[Workload],
    begin: Begin,
) -> Result<Vec<Vec<Arc<Ran>>>, LabError> {
    let setups: Vec<Setup> = loads(run, schemes)?.iter().map(|loaded| loaded.setup.clone()).collect();
    run_all_of(run, &setups, workloads, begin)
}

/// Runs workloads on setups, with the record choice of each setup's setting.
///
/// # Errors
/// The first one that failed.
pub(super) fn run_all_of(
    run: &Run<'_>,
    setups: &[Setup],
    workloads: &[Workload],
    begin: Begin,
) -> Result<Vec<Vec<Arc<Ran>>>, LabError> {
    let tasks = setups.iter().flat_map(|setup| {
        let task = |workload: &Workload| Task {
            setup: setup.clone(),
            begin,
            workload: setup.setting.workload(workload).at(setup.scale),
            warm_up: None,
        };
        workloads.iter().map(task)
    });
    let all = run_tasks(run, tasks.collect())?;
    Ok(all.chunks(workloads.len().max(1)).map(<[_]>::to_vec).collect())
}

/// Runs tasks on the loads of their setups; those that differ in what is no part of a load begin with the same one.
///
/// # Errors
/// The first one that failed.
pub(super) fn run_tasks(run: &Run<'_>, tasks: Vec<Task>) -> Result<Vec<Arc<Ran>>, LabError> {
    let setups: Vec<Setup> = tasks.iter().map(|task| task.setup.of_load()).collect();
    let loaded = super::load::loads_of(run, &setups)?;
    let resting: Vec<Arc<Loaded>> =
        tasks.iter().zip(&loaded).filter(|(task, _)| task.begin == Begin::Rest).map(|(_, one)| one.clone()).collect();
    let mut rested = rests(run, &resting)?.into_iter();
    let wanted = tasks.into_iter().zip(loaded).map(|(task, loaded)| {
        let rested: Option<Arc<Rested>> = if task.begin == Begin::Rest { rested.next() } else { None };
        Wanted {
            key: format!("hhzs run {task:?}"),
            operations: task.workload.reads
                + task.workload.writes
                + task.warm_up.as_ref().map_or(0, |warm| warm.reads + warm.writes),
            run: Box::new(move |advance| {
                let image = rested.as_ref().map_or(&loaded.image, |rested| &rested.image).clone();
                run_one(task, &image, advance)
            }),
        }
    });
    measure(run, "running workloads", wanted.collect())
}

fn run_one(task: Task, image: &varve::MediaImage, advance: Advance) -> Result<Ran, LabError> {
    let wall = Env::real();
    let begin = wall.now();
    let image = image.clone();
    let mut ran = simulate(task.setup.seed, move |env| {
        let options = task.setup.options(task.workload.cache_bytes);
        let target = VarveTarget::of(open(env, &task.setup, options, Some(&image))?);
        let mut client = Client::new(env, &target, &task, advance)?;
        if let Some(warm_up) = &task.warm_up {
            client.perform(warm_up, 1)?;
        }
        let from = Reading::of(env, target.varve());
        let (mut read_nanos, stand_ins) = client.perform(&task.workload, 2)?;
        let to = Reading::of(env, target.varve());
        drop(client);
        read_nanos.sort_unstable();
        let whereabouts = Whereabouts::of(target.varve());
        Ok(Ran { task, from, to, read_nanos, stand_ins, whereabouts, wall_seconds: 0.0 })
    })?;
    ran.wall_seconds = (wall.now() - begin).as_secs_f64();
    Ok(ran)
}

/// The one client.
struct Client<'a> {
    env: &'a Env,
    target: &'a VarveTarget,
    setup: &'a Setup,
    session: Box<dyn Session>,
    values: ValueGenerator,
    places: Permutation,
    random: Random,
    records: u64,
    tables: Vec<FileEntry>,
    operations: u64,
    advance: Advance,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(env: &'a Env, target: &'a VarveTarget, task: &'a Task, advance: Advance) -> Result<Client<'a>, LabError> {
        let setup = &task.setup;
        Ok(Client {
            env,
            target,
            setup,
            session: target.session().map_err(failed("session"))?,
            values: ValueGenerator::new(setup.seed, COMPRESSION_RATIO)?,
            places: setup.places(),
            random: Random::named(setup.seed, task.workload.workload.name),
            records: setup.pairs(),
            tables: Vec::new(),
            operations: 0,
            advance,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    /// Does a workload; gives the virtual times of its reads, and the reads of devices that stood for others.
    fn perform(&mut self, scaled: &ScaledWorkload, version: u64) -> Result<(Vec<u64>, [u64; 2]), LabError> {
        let workload = &scaled.workload;
        let mut chooser = workload.choice.chooser(self.setup.pairs(), self.setup.scale)?;
        let (mut latencies, mut stand_ins) = (Vec::with_capacity(scaled.reads as usize), [0; 2]);
        let (to_one, mut owed) = (scaled.reads_to_one(), 0.0);
        let mut last = 0;
        let steps = scaled.writes.max(1);
        for step in 0..steps {
            let due = (u128::from(scaled.reads) * u128::from(step + 1) / u128::from(steps)) as u64;
            while (latencies.len() as u64) < due {
                last = chooser.next(self.records, &mut self.random);
                owed += to_one - 1.0;
                let others = owed as u64;
                owed -= others as f64;
                let (nanos, more) = self.read(last, workload.scan_pairs_max, others)?;
                latencies.push(nanos);
                stand_ins.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                self.count()?;
            }
            if scaled.writes > 0 {
                let record = match workload.put {
                    Put::Update => chooser.next(self.records, &mut self.random),
                    Put::ReadModifyWrite => last,
                    // No more than there are places for.
                    Put::Insert => (self.records).min(self.setup.pairs() + self.setup.inserts_max() - 1),
                };
                KEYS.write(self.places.of(record), &mut self.key);
                self.values.write(&self.key, version, VALUE_BYTES, &mut self.value);
                self.target.varve().put(&self.key, &self.value).map_err(failed("put"))?;
                if workload.put == Put::Insert {
                    self.records = self.records.max(record + 1);
                }
                self.count()?;
            }
        }
        Ok((latencies, stand_ins))
    }

    fn count(&mut self) -> Result<(), LabError> {
        self.operations += 1;
        if self.operations.is_multiple_of(SETTLE_STEP) {
            self.env.settle();
        }
        if self.operations.is_multiple_of(PROGRESS_STEP) {
            (self.advance)(PROGRESS_STEP);
        }
        Ok(())
    }

    /// Reads, and lets the time pass of `others` that are like it: while a job runs, with as many reads of the disk, in whose
    /// way the job is and which are in its way.
    fn read(&mut self, record: u64, scan_pairs_max: u64, others: u64) -> Result<(u64, [u64; 2]), LabError> {
        KEYS.write(self.places.of(record), &mut self.key);
        let at_first = user_reads(self.target.varve());
        self.open_tables()?;
        self.env.settle();
        let opened = user_reads(self.target.varve());
        let mut more = [opened[0].saturating_sub(at_first[0]), opened[1].saturating_sub(at_first[1])];
        let (begun, reads_before) = (self.env.now(), user_reads(self.target.varve())[1]);
        if scan_pairs_max > 0 {
            let limit = 1 + self.random.below(scan_pairs_max);
            self.session.scan(Some(&self.key), Direction::Forward, limit, &mut |_, _| {}).map_err(failed("scan"))?;
        } else {
            let found = self.session.get(&self.key, &mut self.value).map_err(failed("get"))?;
            if !found || !self.values.verify(&self.key, &self.value) {
                return Err(LabError::WrongValue {
                    target: self.target.name().to_owned(),
                    key: self.key.escape_ascii().to_string(),
                    found_bytes: self.value.len(),
                    found: if found { "something else" } else { "nothing" }.to_owned(),
                });
            }
        }
        self.env.settle();
        let nanos = (self.env.now() - begun).as_nanos() as u64;
        let reads = user_reads(self.target.varve())[1].saturating_sub(reads_before);
        let is_alone = self.target.varve().property("varve.num-running-jobs").is_some_and(|jobs| jobs == "0");
        if reads == 0 || is_alone {
            self.env.sleep(Duration::from_nanos(nanos.saturating_mul(others)));
            return Ok((nanos, more));
        }
        let done = self.stand_in(reads.saturating_mul(others))?;
        more.iter_mut().zip(done).for_each(|(more, done)| *more += done);
        Ok((nanos, more))
    }

    /// Opens the tables that may hold the key. As many are opened as at full size, for which one read stands no more than once.
    fn open_tables(&self) -> Result<(), LabError> {
        let mut end = self.key.clone();
        end.push(b'.');
        self.target.varve().approximate_bytes(&self.key, &end).map(|_| ()).map_err(failed("approximate_bytes"))
    }

    /// Reads blocks of tables anywhere until the disk did so many reads.
    fn stand_in(&mut self, reads: u64) -> Result<[u64; 2], LabError> {
        let files = Arc::clone(self.target.varve().stack().files());
        let from = user_reads(self.target.varve());
        let context = IoContext { cause: IoCause::Synthetic, ..IoContext::of(IoClass::UserRead) };
        let mut block = [0; 4096];
        self.tables.clear();
        let mut done = [0; 2];
        // Few tables are on the drive, and none is for long where nothing is on the disk.
        for _ in 0..reads.saturating_mul(4) {
            if done[1] >= reads {
                break;
            }
            if self.tables.is_empty() {
                let all = files.list().map_err(failed("list"))?;
                self.tables
                    .extend(all.into_iter().filter(|file| file.name.ends_with(".sst") && file.size_bytes >= 8192));
                if self.tables.is_empty() {
                    break;
                }
            }
            let entry = &self.tables[self.random.index(self.tables.len())];
            let at = self.random.below(entry.size_bytes / 4096) * 4096;
            let read = files
                .open(&entry.name, &Default::default())
                .and_then(|file| file.read_at(at.min(entry.size_bytes - 4096), &mut block, &context));
            // It was compacted away meanwhile.
            if read.is_err() {
                self.tables.clear();
            }
            let now = user_reads(self.target.varve());
            done = [now[0].saturating_sub(from[0]), now[1].saturating_sub(from[1])];
        }
        Ok(done)
    }
}
