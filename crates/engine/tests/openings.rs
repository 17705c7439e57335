//! Faults while a database opens, while it is repaired and while a checkpoint of it is taken: of databases that were
//! closed and of those a power cut left, drawn from seeds, every call fails once and for good, and several openings in a
//! row meet faults.
//!
//! The next opening without faults shows exactly what one shows that never met any. What could not be read changed
//! nothing: a store that did not open wrote nothing, and a database that did not open left every file as it was.

#[path = "suite/effects.rs"]
#[allow(dead_code)]
mod effects;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/oracle.rs"]
mod oracle;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/totals.rs"]
mod totals;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;
#[path = "suite/workload.rs"]
#[allow(dead_code)]
mod workload;

use effects::harmless_effects;
use medium::{CrashState, Image, Kind, Observation, Recorder};
use oracle::{MayLose, State};
use seeds::{Reached, run_seeds};
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_engine::{Db, Error, repair};
use varve_env::{Env, Random};
use varve_media::{CrashVariant, Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation};
use varve_store::{IoContext, OpenOptions};
use workload::{On, Past, Setting, Workload, empty, examine, examine_checkpoint, sample_points, walk_all};

/// Faults of one seed.
const FAULTS: usize = 48;

/// Openings in a row that meet faults, at most.
const IN_A_ROW: u64 = 4;

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Open,
    Repair,
    Checkpoint,
}

/// Contents of files, by store and name.
type Files = BTreeMap<(usize, String), Vec<u8>>;

/// A database at rest, and what it holds.
struct Sample {
    setting: Setting,
    state: CrashState,
    expected: State,
    /// The content of every file, by store and name.
    files: Files,
    /// The same where nothing arrived that was not durable at the power cut.
    durable: Files,
    note: String,
}

/// Watched without keeping anything.
fn watched(image: &Image, env: &Env) -> Observation {
    let recorder = Recorder::default();
    *recorder.sampler.lock() = Some(Box::new(|| None));
    image.observed(env, &Arc::new(recorder))
}

fn copy(state: &CrashState) -> Image {
    state.image(CrashVariant::KeepAll, 0)
}

/// The content of every file but locks.
fn files(image: &Image) -> Result<Files, String> {
    let env = Env::sim(0);
    let media = image.media(&env).map_err(|error| format!("the store does not open: {error}"))?;
    let mut files = BTreeMap::new();
    for (place, store) in media.files.into_iter().chain(media.logs).enumerate() {
        for entry in store.list().map_err(|error| error.to_string())? {
            if entry.name == "LOCK" || entry.name.starts_with("ballast") {
                continue;
            }
            let mut data = vec![0; entry.size_bytes as usize];
            let read = store
                .open(&entry.name, &OpenOptions::default())
                .and_then(|file| file.read_at(0, &mut data, &IoContext::default()));
            read.map_err(|error| format!("'{}': {error}", entry.name))?;
            files.insert((place, entry.name), data);
        }
    }
    Ok(files)
}

/// A database that was closed, or what a power cut left of it.
fn sample(seed: u64, on: On) -> Result<Sample, String> {
    let setting = Setting::draw(seed, on);
    let mut random = Random::named(seed, "sample");
    let workload = Workload::new(setting.clone(), false);
    let env = setting.simulation(0);
    let recorder = Arc::new(Recorder::default());
    let moments = sample_points(&recorder, &workload, 4);
    let observation = setting.fresh().observed(&env, &recorder);
    let phases = 1 + random.below(2);
    for phase in 0..phases {
        workload.phase(&env, &observation.image, None, None, (phase, phases))?;
    }
    let points = std::mem::take(&mut *recorder.points.lock());
    let moments = std::mem::take(&mut *moments.lock());
    let mut points: Vec<_> = points.into_iter().filter(|point| moments.contains_key(&point.tag)).collect();
    let mut durable = None;
    let (state, oracle, may_lose, how) = if random.chance(1, 3) || points.is_empty() {
        (observation.capture(), workload.oracle.lock().clone(), MayLose::Nothing, "closed".to_owned())
    } else {
        let point = points.swap_remove(random.index(points.len()));
        let variant = setting.kind.variants()[random.index(setting.kind.variants().len())];
        let image = point.state.image(variant, random.next_u64());
        let state = watched(&image, &Env::real()).capture();
        durable = Some(files(&point.state.image(CrashVariant::DropAll, 0)));
        (state, moments[&point.tag].clone(), MayLose::Unsynced, format!("cut at {} {variant:?}", point.note))
    };
    drop(observation);
    let note = format!("{:?} {:?} {how}, {:?}", setting.kind, setting.tree, setting.options);
    let expected = examine(&setting, &copy(&state), 1, Past::default(), |found| oracle.verify(found, may_lose))
        .map_err(|what| format!("{note}\n  without a fault: {what}"))?;
    let files = files(&copy(&state))?;
    let durable = durable.unwrap_or_else(|| Ok(files.clone())).map_err(|what| format!("{note}\n  durable: {what}"))?;
    Ok(Sample { setting, state, expected, files, durable, note })
}

/// What became of an action that met a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    /// It went on.
    Done,
    /// It failed.
    Failed,
    /// A repair took what the medium says it lost for lost, told it, and kept the rest beside.
    Salvaged,
}

impl Sample {
    /// An error that a failing medium explains.
    fn typed(&self, workload: &Workload, what: &str, error: &Error) -> Result<(), String> {
        workload.met(what, error)
    }

    /// Does the action on the image under the faults of the injector; `plan` begins where it does.
    fn act(
        &self,
        action: Action,
        env: &Env,
        image: &Image,
        injector: &FaultInjector,
        plan: FaultPlan,
        workload: &Workload,
    ) -> Result<Met, String> {
        let options = self.setting.options.clone();
        let sound = plan.faults.is_empty();
        let plan_is_damage = plan.faults.iter().all(is_damage);
        let only_reads_fail = plan.faults.iter().all(is_of_reading);
        match action {
            Action::Open => {
                injector.set_plan(plan);
                let observation = watched(image, env);
                let media = match observation.image.media_under(env, Some(injector)) {
                    Ok(media) => media,
                    Err(error) => {
                        let points = observation.points();
                        // Of several stores others may have opened before, and so did the array below a store.
                        let kind = self.setting.kind;
                        let is_one =
                            ![Kind::PLAIN_LOGS_APART, Kind::EXTENT_LOGS_APART].contains(&kind) && !kind.is_array();
                        if points > 0 && only_reads_fail && is_one {
                            return Err(format!(
                                "a store that could not be read ({error}) was written to {points} times"
                            ));
                        }
                        return self.typed(workload, "opening the store", &error.into()).map(|()| Met::Failed);
                    }
                };
                let db = match Db::open(env, media, options) {
                    Ok(db) => db,
                    Err(error) => return self.typed(workload, "opening", &error).map(|()| Met::Failed),
                };
                self.use_and_close(&db, workload)?;
                Ok(Met::Done)
            }
            Action::Repair => {
                injector.set_plan(plan);
                let repaired = image
                    .media_under(env, Some(injector))
                    .map_err(Error::from)
                    .and_then(|media| repair(env, media, options));
                match repaired {
                    Ok(report) if report.findings.is_empty() => Ok(Met::Done),
                    Ok(report) if sound => Err(format!("repair of a sound database: {report:?}")),
                    Ok(report) if !plan_is_damage => {
                        Err(format!("what cannot be read now is taken for lost: {report:?}"))
                    }
                    Ok(_) => Ok(Met::Salvaged),
                    Err(error) => self.typed(workload, "repair", &error).map(|()| Met::Failed),
                }
            }
            Action::Checkpoint => {
                let media = image.media_under(env, Some(injector)).map_err(|error| error.to_string())?;
                let db = Db::open(env, media, options).map_err(|error| error.to_string())?;
                let kind = if self.setting.seed.is_multiple_of(2) { Kind::PLAIN } else { Kind::EXTENT };
                let target = empty(kind);
                injector.set_plan(plan);
                let result =
                    target.store(env, Some(injector)).map_err(Error::from).and_then(|store| db.checkpoint(&*store));
                let is_made = result.is_ok();
                if let Err(error) = result {
                    self.typed(workload, "checkpoint", &error)?;
                }
                self.use_and_close(&db, workload)?;
                let verify = |found: &State| self.compare(found);
                let _ = examine_checkpoint(&self.setting, env, &target, is_made, verify)
                    .map_err(|what| format!("the checkpoint on {kind:?}: {what}"))?;
                Ok(if is_made { Met::Done } else { Met::Failed })
            }
        }
    }

    /// A database that opened answers right, or says that it cannot.
    fn use_and_close(&self, db: &Db, workload: &Workload) -> Result<(), String> {
        match walk_all(db) {
            Ok(found) => self.compare(&found).map_err(|what| format!("while it is open: {what}"))?,
            Err(error) => self.typed(workload, "a walk", &error)?,
        }
        for call in [Db::wait_idle, Db::close] {
            if let Err(error) = call(db) {
                self.typed(workload, "wait_idle or close", &error)?;
            }
        }
        Ok(())
    }

    fn compare(&self, found: &State) -> Result<(), String> {
        if *found == self.expected {
            return Ok(());
        }
        let differs = |key: &&Vec<u8>| found.get(*key) != self.expected.get(*key);
        let keys = self.expected.keys().chain(found.keys()).filter(differs).count();
        Err(format!("{keys} keys are not as they were: {} of {} are there", found.len(), self.expected.len()))
    }

    /// A repair removes nothing, wherever it fails: what was there has its name, or one that says it was set aside.
    /// Of a `CURRENT` that cannot be read, in whose place a fresh one comes, no copy can be made.
    /// A store on devices has its names in two copies, and is acknowledged once both are durable. A power cut in between
    /// leaves a change in one of them: an opening that cannot read that one finds the other, which is as sound (seed 140015).
    fn has_every_original(&self, image: &Image, is_damaged: bool) -> Result<(), String> {
        let now = files(&copy(&watched(image, &Env::real()).capture()))?;
        let has = |(place, name): &(usize, String), content: &[u8]| {
            now.iter().any(|((other, kept), found)| other == place && kept.contains(name.as_str()) && found == content)
        };
        let has_copies = !self.setting.kind.is_plain();
        let is_durable = |name: &(usize, String)| self.durable.get(name).is_none_or(|content| has(name, content));
        let is_kept = |name: &(usize, String), content: &Vec<u8>| has(name, content) || has_copies && is_durable(name);
        let is_owed = |name: &(usize, String)| !is_damaged || name.1 != "CURRENT";
        match self.files.iter().find(|(name, content)| is_owed(name) && !is_kept(name, content)) {
            Some(((_, name), content)) => {
                let sizes: Vec<_> = now.iter().map(|(k, v)| (k.1.clone(), v.len())).collect();
                Err(format!(
                    "'{name}' of {} bytes is gone: {sizes:?} was {:?}",
                    content.len(),
                    self.files.iter().map(|(k, v)| (k.1.clone(), v.len())).collect::<Vec<_>>()
                ))
            }
            None => Ok(()),
        }
    }

    /// One action, or several in a row, that meet faults, and the opening after them.
    fn try_faults(&self, action: Action, faults: &[Fault], workload: &Workload, step: u64) -> Result<Met, String> {
        let image = copy(&self.state);
        let mut met = Met::Done;
        let mut past = Past::default();
        for (place, fault) in (0u64..).zip(faults) {
            let env = self.setting.simulation(step * 16 + place);
            let injector = FaultInjector::new(&env, FaultPlan::default());
            met = self.act(action, &env, &image, &injector, FaultPlan::of(fault.clone()), workload)?;
            past.is_salvaged |= met == Met::Salvaged && is_damage(fault);
            past.met_faults |= injector.injected() > 0;
            // What could not be read says nothing about what to keep.
            if met == Met::Failed && action != Action::Checkpoint && is_of_reading(fault) && place == 0 {
                let now = files(&copy(&watched(&image, &Env::real()).capture()))?;
                // A repair takes an unreadable file for a damaged one, goes on without it, and may fail at a later read, when
                // what it replaced has been set aside (seed 140017).
                let sets_aside = action == Action::Repair && is_damage(fault);
                let is_set_aside = |(place, name): &(usize, String), content: &Vec<u8>| {
                    now.iter().any(|((other, kept), found)| {
                        other == place && kept.ends_with(&format!("-{name}")) && found == content
                    })
                };
                let lost = self.files.iter().find(|(name, content)| {
                    now.get(*name) != Some(content) && !(sets_aside && is_set_aside(name, content))
                });
                if let Some(((_, name), content)) = lost {
                    let found = now.iter().find(|((_, other), _)| other == name).map(|(_, content)| content.len());
                    return Err(format!(
                        "{action:?} that failed changed '{name}' of {} bytes: {found:?}",
                        content.len()
                    ));
                }
            }
        }
        if action == Action::Repair {
            self.has_every_original(&image, faults.iter().any(is_damage))?;
        }
        let verify = |found: &State| match past.is_salvaged {
            true => Ok(()),
            false => self.compare(found),
        };
        let _ = examine(&self.setting, &image, step, past, verify)?;
        Ok(met)
    }
}

/// Nothing but reading goes wrong.
fn is_of_reading(fault: &Fault) -> bool {
    let reads = matches!(fault.operation, Operation::Read | Operation::List | Operation::Lock | Operation::Open);
    reads && matches!(fault.effect, FaultEffect::Fail(error) if error != FaultError::NoSpace)
}

/// The medium says that what is there is lost, not that it failed now.
fn is_damage(fault: &Fault) -> bool {
    fault.effect == FaultEffect::Fail(FaultError::Unreadable)
}

/// Faults at every call of an action, of which a stride is taken where there are many.
fn run(seed: u64, on: On, action: Action) -> Result<Reached, String> {
    let sample = sample(seed, on)?;
    if action == Action::Repair && !sample.files.contains_key(&(0, "CURRENT".to_owned())) {
        // The power was cut while it was created.
        return Ok(Reached::from([("without a database", 1)]));
    }
    let mut random = Random::named(seed, "faults");
    let workload = Workload::new(sample.setting.clone(), true);
    let calls = {
        let env = sample.setting.simulation(2);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let met = sample.act(action, &env, &copy(&sample.state), &injector, FaultPlan::default(), &workload)?;
        if met != Met::Done {
            return Err(format!("{}\n  {action:?} without a fault: {met:?}", sample.note));
        }
        injector.calls()
    };
    let mut all = Vec::new();
    for (&operation, &count) in &calls {
        for index in 0..count {
            for effect in harmless_effects(operation) {
                for trigger in [FaultTrigger::Once(index), FaultTrigger::From(index)] {
                    all.push(Fault::new(operation, trigger, effect.clone()));
                }
            }
        }
    }
    random.shuffle(&mut all);
    let (mut done, mut failed, mut salvaged) = (0, 0, 0);
    for (number, fault) in (0..).zip(all.iter().take(FAULTS)) {
        let mut faults = vec![fault.clone()];
        if random.chance(1, 4) {
            faults.extend((0..random.below(IN_A_ROW)).map(|_| all[random.index(all.len())].clone()));
        }
        let met = sample.try_faults(action, &faults, &workload, 3 + number).map_err(|what| {
            format!("{}\n  {action:?}, fault {number} of {}: {what}\n  {faults:?}", sample.note, all.len())
        })?;
        match met {
            Met::Done => done += 1,
            Met::Failed => failed += 1,
            Met::Salvaged => salvaged += 1,
        }
    }
    Ok(Reached::from([
        ("states", 1),
        ("calls", calls.values().sum()),
        ("faults", done + failed + salvaged),
        ("refused", failed),
        ("salvaged", salvaged),
    ]))
}

#[test]
fn calls_of_openings_fail_once_and_for_good() {
    let least = [("faults", 1000), ("refused", 200)];
    let test = ("openings", "calls_of_openings_fail_once_and_for_good");
    run_seeds(test, 30_000, 40, &least, |seed| run(seed, On::Directories, Action::Open));
}

#[test]
fn calls_of_repairs_fail_once_and_for_good() {
    let least = [("faults", 1000), ("refused", 200)];
    let test = ("openings", "calls_of_repairs_fail_once_and_for_good");
    run_seeds(test, 40_000, 30, &least, |seed| run(seed, On::Directories, Action::Repair));
}

#[test]
fn calls_of_checkpoints_fail_once_and_for_good() {
    let least = [("faults", 1000), ("refused", 200)];
    let test = ("openings", "calls_of_checkpoints_fail_once_and_for_good");
    run_seeds(test, 50_000, 30, &least, |seed| run(seed, On::Directories, Action::Checkpoint));
}

#[test]
fn calls_of_repairs_on_devices_fail_once_and_for_good() {
    let least = [("faults", 1000), ("refused", 200)];
    let test = ("openings", "calls_of_repairs_on_devices_fail_once_and_for_good");
    run_seeds(test, 140_000, 26, &least, |seed| run(seed, On::Devices, Action::Repair));
}

#[test]
fn calls_of_checkpoints_on_devices_fail_once_and_for_good() {
    let least = [("faults", 1000), ("refused", 200)];
    let test = ("openings", "calls_of_checkpoints_on_devices_fail_once_and_for_good");
    run_seeds(test, 150_000, 26, &least, |seed| run(seed, On::Devices, Action::Checkpoint));
}
#[test]
fn calls_of_openings_on_devices_fail_once_and_for_good() {
    let least = [("faults", 1000), ("refused", 200)];
    let test = ("openings", "calls_of_openings_on_devices_fail_once_and_for_good");
    run_seeds(test, 130_000, 36, &least, |seed| run(seed, On::Devices, Action::Open));
}
