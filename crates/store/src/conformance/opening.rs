//! I/O that fails while a store is opened: every call of the opening, once, several times in a row and for good, and
//! every sector it reads, for good.
//!
//! What must hold: an open that fails says so with an error that names the cause, and where only reads failed not one
//! byte of the medium has changed; one that succeeds has exactly what was synced, or says of a file that it cannot be
//! read. Whatever happened, the next open without faults finds everything that was synced.

use super::crash::{CrashSuite, Crashed, verify_store};
use super::model::Model;
use super::subject::{Image, Medium, Subject};
use super::{Outcome, content, ensure, read_file, text};
use crate::error::StoreErrorKind;
use crate::file_store::{CreateOptions, FileKind, FileStore};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Env, Random};
use varve_media::{
    CrashVariant, Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoContext, Operation,
};

/// A suite of faulty openings. The same numbers give the same faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpeningSuite {
    /// Decides what was written before, and what is left out.
    pub seed: u64,
    /// States that a power cut left, beside one that was closed and one whose process was killed.
    pub cuts: u64,
    /// Calls of each operation that fail in each state, at most.
    pub calls: u64,
    /// Sectors that cannot be read in each state, at most.
    pub sectors: u64,
    /// Pairs of faulty openings, one after the other, of each state.
    pub pairs: u64,
}

/// What a suite did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpeningReport {
    /// States that were opened.
    pub states: u64,
    /// Openings with a fault.
    pub runs: u64,
    /// Faults that struck.
    pub injected: u64,
    /// Openings that were refused.
    pub refused: u64,
    /// Files of stores that did open of which something could not be read.
    pub unreadable: u64,
    /// What was wrong, the first few.
    pub failures: Vec<String>,
}

const FAILURES_MAX: usize = 8;
const SECTOR_BYTES: u64 = 512;
/// Smallest range of which it is asked whether the opening reads it; sectors come from those.
const PROBED_BYTES: u64 = 64 << 10;
/// Calls that fail in a row.
const ROW: u64 = 3;
/// Of so many refused openings one is compared byte by byte; of the others the calls are counted.
const COMPARED: u64 = 8;
/// After so many faulty openings one process is killed; the others close their store.
const KILLED: u64 = 16;
const LATER: &str = "later";
const CONTEXT: IoContext = IoContext::of(varve_media::IoClass::Other);

/// What is opened.
struct State {
    name: String,
    image: Box<dyn Image>,
    model: Model,
    variant: CrashVariant,
    seed: u64,
}

impl State {
    fn medium(&self, env: &Env) -> Box<dyn Medium> {
        self.image.medium(env, self.variant, self.seed)
    }
}

/// A suite at work.
struct Run<'a> {
    env: &'a Env,
    suite: OpeningSuite,
    subject: String,
    random: Random,
    report: OpeningReport,
}

impl OpeningSuite {
    /// Runs the suite on fresh media.
    pub fn run(&self, env: &Env, subject: &dyn Subject) -> OpeningReport {
        let (random, report) = (Random::named(self.seed, "opening suite"), OpeningReport::default());
        let mut run = Run { env, suite: *self, subject: subject.name(), random, report };
        match run.states(subject) {
            Ok(states) => {
                for state in &states {
                    run.report.states += 1;
                    if let Err(message) = run.state(state) {
                        run.note(state, "without faults", Err(message));
                    }
                }
            }
            Err(message) => run.report.failures.push(format!("{}: the workload: {message}", run.subject)),
        }
        run.report
    }
}

impl Run<'_> {
    fn is_enough(&self) -> bool {
        self.report.failures.len() >= FAILURES_MAX
    }

    fn note(&mut self, state: &State, case: &str, outcome: Outcome) {
        if let Err(message) = outcome
            && !self.is_enough()
        {
            let (subject, seed) = (&self.subject, self.suite.seed);
            self.report.failures.push(format!("{subject}: suite seed {seed}, {}, {case}: {message}", state.name));
        }
    }

    /// A store that was closed, one whose process was killed in its second life, and some that lost their power.
    fn states(&mut self, subject: &dyn Subject) -> Result<Vec<State>, String> {
        let suite = CrashSuite { seed: self.suite.seed, operations: 90, images_of_point: 0, recoveries: 0 };
        let mut crashed = suite.workload(self.env, subject)?;
        let Crashed { image, model } = crashed.pop().ok_or("nothing was written")?;
        let mut states = vec![self.second_life(&*image, &model)?];
        let kept = CrashVariant::KeepAll;
        states.push(State { name: "closed".to_owned(), image, model, variant: kept, seed: 0 });
        for _ in 0..self.suite.cuts {
            if crashed.is_empty() {
                break;
            }
            let point = self.random.index(crashed.len());
            let Crashed { image, model } = crashed.swap_remove(point);
            let variants = image.medium(self.env, kept, 0).variants();
            let (variant, seed) = (variants[self.random.index(variants.len())], self.random.next_u64());
            let name = format!("power cut {point}, {variant:?}, {seed}");
            states.push(State { name, image, model, variant, seed });
        }
        Ok(states)
    }

    /// Opened again, some more written and synced, and killed.
    fn second_life(&self, image: &dyn Image, model: &Model) -> Result<State, String> {
        let mut model = model.clone();
        let medium = image.medium(self.env, CrashVariant::KeepAll, 0);
        let store = medium.open().map_err(text)?;
        let mut writers = Vec::new();
        for (number, kind, length) in
            [(801, FileKind::Log, 700), (802, FileKind::Table, 30_000), (803, FileKind::Log, 9_000)]
        {
            let name = format!("second {number}");
            let handle = model.create(&name, number);
            let options = CreateOptions { kind, ..CreateOptions::default() };
            let mut writer = store.create(&name, &options).map_err(text)?;
            let mut written = 0;
            for _ in 0..3 {
                model.append(handle, length);
                writer.append(&content(number, written, length), &CONTEXT).map_err(text)?;
                written += length;
                model.appended(handle, length);
                writer.sync(&CONTEXT).map_err(text)?;
                model.synced(handle);
            }
            writers.push(writer);
        }
        let image = medium.capture();
        let state = State { name: "killed".to_owned(), image, model, variant: CrashVariant::KeepAll, seed: 0 };
        drop(writers);
        Ok(state)
    }

    /// Every fault of one state.
    fn state(&mut self, state: &State) -> Outcome {
        let quiet = FaultInjector::new(self.env, FaultPlan::default());
        let medium = state.medium(self.env);
        let store = medium.open_with_faults(&quiet).map_err(text)?;
        if quiet.calls().is_empty() {
            // Opening does nothing here: what a database reads first counts as opening.
            read_all(&*store)?;
        }
        let calls = quiet.calls();
        verify_store(&*store, &state.model)?;
        drop(store);
        let is_directory = calls.contains_key(&Operation::List) || calls.contains_key(&Operation::Open);
        let mut faults = Vec::new();
        for (&operation, &count) in &calls {
            for call in sample(&mut self.random, count, self.suite.calls) {
                for effect in effects(operation, is_directory) {
                    let once = |call| Fault::new(operation, FaultTrigger::Once(call), effect.clone());
                    let row: Vec<Fault> = (call..call + ROW).map(once).collect();
                    let for_good = Fault::new(operation, FaultTrigger::From(call), effect.clone());
                    faults.extend([vec![once(call)], row, vec![for_good]]);
                }
            }
        }
        for sector in self.sectors(state)? {
            let range = sector..sector + SECTOR_BYTES;
            let error = *[FaultError::Unreadable, FaultError::Io].get(self.random.index(2)).unwrap_or(&FaultError::Io);
            let bad = Fault::new(Operation::Read, FaultTrigger::From(0), FaultEffect::Fail(error)).on_range(range);
            faults.push(vec![bad]);
        }
        let stall = FaultEffect::Stall(Duration::from_secs(40));
        faults.push(vec![Fault::new(Operation::Read, FaultTrigger::From(0), stall)]);
        for fault in &faults {
            self.case(state, &[fault]);
            if self.is_enough() {
                return Ok(());
            }
        }
        for _ in 0..self.suite.pairs {
            let pair = [0, 1].map(|_| self.random.index(faults.len()));
            self.case(state, &pair.map(|index| &faults[index]));
        }
        Ok(())
    }

    /// Sectors that hold something or follow such, of ranges that the opening reads.
    fn sectors(&mut self, state: &State) -> Result<Vec<u64>, String> {
        let stored = state.medium(self.env).stored_sectors();
        let Some(end) = stored.last().map(|last| last + 2 * SECTOR_BYTES) else { return Ok(Vec::new()) };
        let mut unknown = Vec::from([Range { start: 0, end: end.next_multiple_of(PROBED_BYTES) }]);
        let mut candidates: BTreeSet<u64> = BTreeSet::new();
        while let Some(range) = unknown.pop() {
            let nothing = FaultEffect::Stall(Duration::ZERO);
            let touched = Fault::new(Operation::Read, FaultTrigger::From(0), nothing).on_range(range.clone());
            let injector = FaultInjector::new(self.env, FaultPlan::of(touched));
            let store = state.medium(self.env).open_with_faults(&injector).map_err(text)?;
            let is_read = injector.injected() > 0;
            drop(store);
            if !is_read {
                continue;
            }
            if range.end - range.start > PROBED_BYTES {
                let half = range.start + ((range.end - range.start) / 2).next_multiple_of(PROBED_BYTES);
                unknown.extend([range.start..half, half..range.end].into_iter().filter(|half| !half.is_empty()));
            } else {
                let inside = stored.range(range);
                candidates.extend(inside.flat_map(|sector| [*sector, sector + SECTOR_BYTES]));
            }
        }
        let candidates: Vec<u64> = candidates.into_iter().collect();
        let chosen = sample(&mut self.random, candidates.len() as u64, self.suite.sectors);
        Ok(chosen.into_iter().map(|index| candidates[index as usize]).collect())
    }

    /// Faulty openings one after the other, and one without faults.
    fn case(&mut self, state: &State, openings: &[&Vec<Fault>]) {
        let outcome = self.openings(state, openings);
        self.note(state, &format!("{openings:?}"), outcome);
    }

    fn openings(&mut self, state: &State, openings: &[&Vec<Fault>]) -> Outcome {
        let medium = state.medium(self.env);
        let mut model = state.model.clone();
        for &faults in openings {
            self.report.runs += 1;
            let plan = FaultPlan { seed: self.report.runs, faults: faults.clone() };
            let only_reads = faults.iter().all(|fault| fault.operation == Operation::Read);
            let is_compared = only_reads && self.report.runs.is_multiple_of(COMPARED);
            let before = is_compared.then(|| medium.fingerprint());
            let injector = FaultInjector::new(self.env, plan);
            match medium.open_with_faults(&injector) {
                Err(error) => {
                    self.report.refused += 1;
                    let is_told = matches!(error.kind(), StoreErrorKind::Io | StoreErrorKind::Corruption);
                    ensure!(is_told, "the error says something else: {error}");
                    let changes = [Operation::Write, Operation::Discard, Operation::Rename, Operation::Remove];
                    let changed = changes.into_iter().find(|change| injector.calls().contains_key(change));
                    ensure!(!only_reads || changed.is_none(), "'{error}' comes after a {changed:?}");
                    ensure!(
                        before.is_none_or(|before| before == medium.fingerprint()),
                        "'{error}' comes after a change"
                    );
                }
                Ok(store) => {
                    let unreadable = verify_while_failing(&*store, &model)?;
                    self.report.unreadable += unreadable;
                    if self.random.chance(1, 2) {
                        write_later(&*store, &mut model);
                    }
                    if self.report.runs.is_multiple_of(KILLED) {
                        std::mem::forget(store);
                    } else {
                        drop::<Arc<dyn FileStore>>(store);
                    }
                }
            }
            self.report.injected += injector.injected();
        }
        let store = medium.open().map_err(|error| format!("after the fault the store does not open: {error}"))?;
        verify_store(&*store, &model).map_err(|message| format!("after the fault: {message}"))
    }
}

/// Numbers below `count`, at most so many of them.
fn sample(random: &mut Random, count: u64, most: u64) -> Vec<u64> {
    if count <= most {
        return (0..count).collect();
    }
    // One of each part, so that none is left out.
    (0..most).map(|number| random.range(number * count / most..(number + 1) * count / most)).collect()
}

/// How a call of an opening can fail.
fn effects(operation: Operation, is_directory: bool) -> Vec<FaultEffect> {
    let io = FaultError::Io;
    let mut effects = vec![FaultEffect::Fail(io)];
    match operation {
        Operation::Read => effects.push(FaultEffect::Fail(FaultError::Unreadable)),
        Operation::Write => effects.extend([FaultEffect::FailAfter(io), FaultEffect::FailPartly(io)]),
        Operation::Sync => effects.extend([FaultEffect::FailAfter(io), FaultEffect::FailDroppingUnsynced(io)]),
        _ => effects.push(FaultEffect::FailAfter(io)),
    }
    if operation == Operation::Read && is_directory {
        effects.push(FaultEffect::ShortRead);
    }
    effects
}

fn read_all(store: &dyn FileStore) -> Outcome {
    for entry in store.list().map_err(text)? {
        read_file(store, &entry.name).map_err(text)?;
    }
    Ok(())
}

/// What an open store shows while the fault lasts: what was synced, or an error. How many files had one.
fn verify_while_failing(store: &dyn FileStore, model: &Model) -> Result<u64, String> {
    let Ok(listed) = store.list() else { return Ok(0) };
    let found: BTreeMap<String, Option<Vec<u8>>> = listed
        .into_iter()
        .map(|entry| {
            let data = read_file(store, &entry.name).ok();
            (entry.name, data)
        })
        .collect();
    model.check_readable(&found).map_err(|message| format!("while the fault lasts: {message}"))?;
    Ok(found.values().filter(|data| data.is_none()).count() as u64)
}

/// Writes a file as somebody would who found the store open; all of it may fail.
fn write_later(store: &dyn FileStore, model: &mut Model) {
    const NUMBER: u64 = 900;
    let handle = model.create(LATER, NUMBER);
    let options = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let Ok(mut writer) = store.create(LATER, &options) else { return model.failed(&[LATER]) };
    model.append(handle, 3000);
    if writer.append(&content(NUMBER, 0, 3000), &CONTEXT).is_ok() {
        model.appended(handle, 3000);
        if writer.sync(&CONTEXT).is_ok() {
            model.synced_in_another_life(handle);
        }
    }
    let _ = writer.finish(&CONTEXT);
}
