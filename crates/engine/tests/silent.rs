//! Silent faults: the medium flips bits, reads or writes elsewhere, or does not write, and says
//! nothing. Each call of a workload meets each of them, once.
//!
//! The database then answers right or reports an error; never a wrong value, never a panic. Opened
//! again on a medium that works, it is right, or it is refused, or reads report errors and `check`
//! names findings.
//!
//! *The exception*: a journal of the store that is read from a place where there is none looks like one
//! that ends there. The last batches may then be gone: the state is an older one, whole. How many such
//! cases there are is asserted, and that nothing else leads to them. A write that was lost is found even at
//! the end of a log, because a closed log is sealed and the next one says how long it is.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/outcome.rs"]
#[allow(dead_code)]
mod outcome;
#[path = "suite/parallel.rs"]
mod parallel;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{History, Step};
use medium::{Image, Kind, imr_kinds};
use options::short_option_set;
use outcome::{MayLose, UNIVERSE, run, walk_all};
use parallel::in_parallel;
use parking_lot::Mutex;
use seeds::{Reached, run_seeds};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Options};
use varve_env::{Env, Random, SimOptions};
use varve_media::{Fault, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation};

const SEED: u64 = 51;

/// Faults of one seed that draws its options.
const FAULTS_OF_SEED: u64 = 25;

fn simulation() -> Env {
    let time_limit = Some(Duration::from_secs(24 * 3600));
    Env::sim_with(SimOptions { seed: SEED, time_limit, ..SimOptions::default() })
}

/// How a fault was met, the worst of it last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    /// Every answer was right and `check` found nothing.
    Harmless,
    /// Some call of the workload failed; afterwards all was right.
    FailedOnce,
    /// Answers were right and `check` found something.
    FoundByCheck,
    /// Reads report errors and `check` finds something.
    Damaged,
    /// Opening is refused.
    Refused,
    /// An older state, whole, and nothing is said.
    RolledBack,
}

fn typed(error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::Foreign => Ok(()),
        kind => Err(format!("an error of kind {kind:?}: {error}")),
    }
}

/// The workload under one fault, and what is there afterwards.
fn run_with_fault(
    kind: Kind,
    history: &History,
    fault: Fault,
    fault_seed: u64,
    may_lose: MayLose,
) -> Result<Met, String> {
    let env = simulation();
    let image = Image::fresh(&env, kind);
    let injector = FaultInjector::new(&env, FaultPlan { seed: fault_seed, faults: vec![fault] });
    let mut outcome = run(&env, &image, &injector, history, may_lose)?;
    let mut met = if outcome.errors.is_empty() { Met::Harmless } else { Met::FailedOnce };
    if outcome.rolled_back > 0 {
        met = Met::RolledBack;
    }
    let media = match image.media(&env) {
        Ok(media) => media,
        Err(error) => return typed(&error.into()).map(|()| Met::Refused.max(met)),
    };
    let db = match Db::open(&env, media, history.options.clone()) {
        Ok(db) => db,
        Err(error) => return typed(&error).map(|()| Met::Refused.max(met)),
    };
    let (found, error) = walk_all(&db);
    let mut damaged = false;
    if let Some(error) = error {
        typed(&error)?;
        damaged = true;
    } else if !outcome.allows(&found, may_lose == MayLose::Unsynced) {
        let count = |state: &history::State| {
            state.get(history::COUNT_KEY).map(|count| String::from_utf8_lossy(count).into_owned())
        };
        if !outcome.rolls_back(&found) {
            return Err(format!(
                "wrong afterwards: batch {:?} instead of {:?}, synced {:?}, check says {:?}",
                count(&found),
                count(outcome.last()),
                count(&outcome.acknowledged[outcome.synced]),
                db.check()
            ));
        }
        met = Met::RolledBack;
    }
    // Gets take another way than walks. What a failed walk did not show is held against all that could be.
    for number in 0..UNIVERSE {
        let key = format!("key{number:03}").into_bytes();
        match db.get(&key) {
            Err(error) => {
                typed(&error)?;
                damaged = true;
            }
            Ok(value) if !damaged => {
                if value.as_deref() != found.get(&key).map(Vec::as_slice) {
                    return Err(format!("get of key{number:03} differs from the walk"));
                }
            }
            Ok(value) => {
                let mut states =
                    outcome.acknowledged.iter().rev().take(if may_lose == MayLose::Last { usize::MAX } else { 1 });
                let mut failed = outcome.failed.iter();
                let known = |state: &history::State| state.get(&key).map(Vec::as_slice) == value.as_deref();
                if !states.any(known) && !failed.any(known) {
                    return Err(format!("get of key{number:03} is wrong beside damage"));
                }
            }
        }
    }
    let clean = match db.check() {
        Ok(findings) => findings.is_empty(),
        Err(error) => {
            typed(&error)?;
            false
        }
    };
    match (damaged, clean) {
        (true, true) => Err("reads report damage and check is clean".to_owned()),
        (true, false) => Ok(met.max(Met::Damaged)),
        (false, false) => Ok(met.max(Met::FoundByCheck)),
        (false, true) => Ok(met),
    }
}

/// What can silently go wrong with a call.
fn effects(operation: Operation) -> &'static [FaultEffect] {
    use FaultEffect::{FlipBits, Lose, Misdirect};
    match operation {
        Operation::Read => &[FlipBits(1), FlipBits(5), Misdirect],
        Operation::Write => &[FlipBits(1), FlipBits(5), Misdirect, Lose],
        Operation::Discard => &[Misdirect, Lose],
        Operation::Rename | Operation::Remove | Operation::Truncate | Operation::SyncDirectory | Operation::Sync => {
            &[Lose]
        }
        _ => &[],
    }
}

/// Every call of every class, with every effect.
fn faults(kind: Kind, history: &History) -> Vec<Fault> {
    // A stall of no time counts the calls it strikes.
    let counted = |operation: Operation, class: Option<IoClass>| {
        let env = simulation();
        let stall = Fault::new(operation, FaultTrigger::From(0), FaultEffect::Stall(Duration::ZERO));
        let injector = FaultInjector::new(&env, FaultPlan::of(Fault { class, ..stall }));
        let outcome =
            run(&env, &Image::fresh(&env, kind), &injector, history, MayLose::Nothing).expect("no fault, no error");
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        injector.injected()
    };
    let mut faults = Vec::new();
    for operation in [Operation::Read, Operation::Write, Operation::Discard] {
        for class in IoClass::ALL {
            for index in 0..counted(operation, Some(class)) {
                for effect in effects(operation) {
                    let fault = Fault::new(operation, FaultTrigger::Once(index), effect.clone());
                    faults.push(fault.on_class(class));
                }
            }
        }
    }
    for operation in
        [Operation::Rename, Operation::Remove, Operation::Truncate, Operation::SyncDirectory, Operation::Sync]
    {
        for index in 0..counted(operation, None) {
            for effect in effects(operation) {
                faults.push(Fault::new(operation, FaultTrigger::Once(index), effect.clone()));
            }
        }
    }
    faults
}

/// A misdirected read may take the end of the store's journal with it.
fn may_lose(fault: &Fault, options: &Options) -> MayLose {
    // What is held back is lost with a store that refuses writes since it found damage.
    let is_held_back = options.log_buffer_size != Some(0) || options.log_write_behind_size.unwrap_or_default() > 0;
    match (fault.operation, fault.class, &fault.effect) {
        (Operation::Read, Some(IoClass::Metadata), FaultEffect::Misdirect) => MayLose::Last,
        _ if is_held_back => MayLose::Unsynced,
        _ => MayLose::Nothing,
    }
}

/// Every `stride`-th fault.
fn every_call_lies(kind: Kind, history: History, stride: usize) {
    let history = Arc::new(history);
    let faults: Vec<Fault> = faults(kind, &history).into_iter().skip(kind.number() % stride).step_by(stride).collect();
    let faults = Arc::new(faults);
    let said: Arc<Mutex<Vec<(usize, Result<Met, String>)>>> = Arc::default();
    let (count, faults_here, said_here) = (faults.len(), faults.clone(), said.clone());
    in_parallel(count, move |number| {
        let fault = &faults_here[number];
        let met = run_with_fault(kind, &history, fault.clone(), number as u64, may_lose(fault, &history.options));
        said_here.lock().push((number, met));
    });
    let mut said = std::mem::take(&mut *said.lock());
    said.sort_by_key(|(number, _)| *number);
    let mut met: BTreeMap<(String, Met), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (number, outcome) in said {
        let Fault { operation, class, trigger, effect, .. } = &faults[number];
        match outcome {
            Ok(how) => *met.entry((format!("{effect:?} at a {operation}"), how)).or_default() += 1,
            Err(what) => wrong.push(format!("{operation} of {class:?} {trigger:?} {effect:?}: {what}")),
        }
    }
    for ((what, how), count) in &met {
        println!("{kind:?}: {what}: {count} {how:?}");
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} silent faults on {kind:?}:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    let of = |how: Met| met.iter().filter(|((_, met), _)| *met == how).map(|(_, count)| count).sum::<usize>();
    let found = count - of(Met::Harmless) - of(Met::FailedOnce);
    println!("reached: silent/{}: {count} faults, {found} found", kind.name());
    assert!(count * stride >= 1000, "{count} silent faults are too few");
    if kind.is_array() {
        // Redundancy answers almost all of them, while members fail.
        let is_right_afterwards = of(Met::Harmless) + of(Met::FailedOnce);
        assert!(is_right_afterwards >= count * 9 / 10 && of(Met::RolledBack) == 0, "{met:?}");
        return;
    }
    // Faults that nothing notices would show nothing.
    assert!(of(Met::FailedOnce) + of(Met::Damaged) + of(Met::Refused) >= count / 10, "{met:?}");
    assert!(of(Met::RolledBack) <= 4, "{} of {count} lost the end of a journal: {met:?}", of(Met::RolledBack));
}

/// Some faults of a history with other options on any store, as a seed draws them.
fn some_calls_lie(seed: u64) -> Result<Reached, String> {
    let mut random = Random::named(seed, "silent faults");
    let interlaced = imr_kinds()[random.index(imr_kinds().len())];
    // Arrays have a test of their own, and each of their histories takes as long as ten of others.
    let is_drawn = |kind: Kind| !kind.has_logs_apart() && kind != Kind::EXTENT_NEXT_FIT && !kind.is_array();
    let mut kinds = medium::kinds(is_drawn);
    kinds.push(interlaced);
    let kind = kinds[random.index(kinds.len())];
    let tree = trees::draw(&mut random);
    let options = Options {
        // What is not verified is taken as it is.
        verify_checksums: true,
        ..short_option_set(tree, seed)
    };
    let history = History { options, ..history_from(seed, 32) };
    let faults = faults(kind, &history);
    let mut reached = Reached::from([("histories", 1)]);
    for number in 0..FAULTS_OF_SEED {
        let fault = &faults[random.index(faults.len())];
        let met = run_with_fault(kind, &history, fault.clone(), number, may_lose(fault, &history.options))
            .map_err(|what| format!("{kind:?} {fault:?} fault seed {number}: {what}\n  {:?}", history.options))?;
        *reached.entry("faults").or_default() += 1;
        *reached.entry(if met > Met::FailedOnce { "found" } else { "harmless" }).or_default() += 1;
    }
    Ok(reached)
}

#[test]
fn silent_faults_under_any_options_give_an_error_or_the_right_answer() {
    let test = ("silent", "silent_faults_under_any_options_give_an_error_or_the_right_answer");
    run_seeds(test, 300_000, 40, &[("faults", 800), ("found", 40)], some_calls_lie);
}

/// The first history that opens again, flushes and compacts several times.
fn history(batches: usize) -> History {
    history_from(SEED, batches)
}

fn history_from(seed: u64, batches: usize) -> History {
    let rich = |history: &History| {
        let count = |wanted: fn(&Step) -> bool| history.steps.iter().filter(|step| wanted(step)).count();
        count(|step| matches!(step, Step::Reopen { .. })) >= 4
            && count(|step| *step == Step::Flush) >= 2
            && count(|step| *step == Step::CompactAll) >= 1
    };
    (seed..).map(|seed| History::new(seed, batches, UNIVERSE)).find(rich).expect("a history")
}

#[test]
fn silent_faults_of_a_directory_give_an_error_or_the_right_answer() {
    every_call_lies(Kind::PLAIN, history(48), 1);
}

#[test]
fn silent_faults_of_a_device_give_an_error_or_the_right_answer() {
    every_call_lies(Kind::EXTENT_NEXT_FIT, history(40), 1);
}

#[test]
fn silent_faults_of_trees_without_tables_give_an_error_or_the_right_answer() {
    for (kind, tree) in trees::on(&[Kind::PLAIN, Kind::EXTENT], trees::without_tables()) {
        every_call_lies(kind, history(160).in_tree(tree), 3);
    }
}

#[test]
fn silent_faults_of_a_zoned_device_give_an_error_or_the_right_answer() {
    every_call_lies(Kind::BAND, history(40), 11);
    trees::others_with_tables().for_each(|tree| every_call_lies(Kind::BAND, history(40).in_tree(tree), 17));
}

#[test]
fn silent_faults_under_bands_of_variable_size_give_an_error_or_the_right_answer() {
    every_call_lies(Kind::VARIABLE_BANDS, history(40), 19);
    trees::others_with_tables().for_each(|tree| every_call_lies(Kind::VARIABLE_BANDS, history(40).in_tree(tree), 23));
}

#[test]
fn silent_faults_of_members_of_arrays_give_an_error_or_the_right_answer() {
    for kind in medium::kinds(Kind::is_array) {
        every_call_lies(kind, history(40), 97);
    }
    let (failed, rebuilt) = medium::failed_and_rebuilt();
    println!("reached: silent/arrays: {failed} members failed, {rebuilt} were rebuilt");
    assert!(failed > 100 && rebuilt > 20, "{failed} members failed, {rebuilt} were rebuilt");
}

#[test]
fn silent_faults_of_interlaced_disks_give_an_error_or_the_right_answer() {
    // One of five: another policy each, with the other rewrite and place of logs.
    for kind in imr_kinds().into_iter().filter(|kind| kind.number() % 5 == 0) {
        every_call_lies(kind, history(40), 47);
    }
}
