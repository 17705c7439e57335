//! Workloads drawn from seeds: any store, tree and option set, several clients on perturbed schedules that write,
//! read, hold snapshots, flush, compact by hand and take checkpoints, and open again; under several faults at once that
//! strike at openings too, under power cuts, and under both.
//!
//! What is there afterwards is a state that all clients together can be in: everything that was synced, on media where
//! that is promised everything that was acknowledged, and of what failed nothing else than it.

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

use effects::{draw_plan, drops_unsynced};
use medium::{Image, Point, Recorder};
use oracle::{MayLose, State};
use seeds::{Reached, run_seeds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_engine::{Db, Error};
use varve_env::Random;
use varve_media::{CrashVariant, FaultInjector, FaultPlan};
use workload::{On, Past, Setting, Workload, examine, sample_points};

/// Persistence points of one workload at which the power is cut.
const POINTS: u64 = 16;

/// Images of each of them.
const IMAGES: u64 = 2;

/// Persistence points of one opening after a power cut at which it is cut again.
const RECOVERY_POINTS: u64 = 2;

/// Some persistence points of the opening of what a power cut left.
fn cut_recovery(setting: &Setting, image: &Image, step: u64) -> Result<Vec<Point>, String> {
    let env = setting.simulation(step);
    let workload = Workload::new(setting.clone(), false);
    let recorder = Arc::new(Recorder::default());
    let kept = sample_points(&recorder, &workload, RECOVERY_POINTS);
    let observation = image.observed(&env, &recorder);
    let opened = observation
        .image
        .media(&env)
        .map_err(Error::from)
        .and_then(|media| Db::open(&env, media, setting.options.clone()));
    let db = opened.map_err(|error| format!("it does not open: {error}"))?;
    let mut points = std::mem::take(&mut *recorder.points.lock());
    drop((observation, db));
    points.retain(|point| kept.lock().contains_key(&point.tag));
    Ok(points)
}

/// Runs the workload of a seed, with faults, with power cuts, or with both.
fn run(seed: u64, on: On, faults: bool, cuts: bool) -> Result<Reached, String> {
    let setting = Setting::draw(seed, on);
    let note = format!("{:?} {:?}, {} clients, {:?}", setting.kind, setting.tree, setting.clients, setting.options);
    let mut random = Random::named(seed, "phases");
    let workload = Workload::new(setting.clone(), faults);
    let env = setting.simulation(0);
    let recorder = Arc::new(Recorder::default());
    let fresh = setting.fresh();
    let moments = sample_points(&recorder, &workload, POINTS);
    let observation = cuts.then(|| fresh.observed(&env, &recorder));
    let image = observation.as_ref().map_or(&fresh, |observation| &observation.image);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let phases = 1 + random.below(4);
    let mut plans = Vec::new();
    for phase in 0..phases {
        let draw =
            |random: &mut Random| if faults && random.chance(3, 4) { draw_plan(random) } else { FaultPlan::default() };
        let (opening, work) = (draw(&mut random), random.chance(1, 2).then(|| draw(&mut random)));
        plans.push(format!("{:?} then {:?}", opening.faults, work.as_ref().map(|plan| &plan.faults)));
        let drops = drops_unsynced(&opening) || work.as_ref().is_some_and(drops_unsynced);
        let injected = injector.injected();
        workload.drops_unsynced.store(drops, Ordering::SeqCst);
        injector.set_plan(opening);
        workload
            .phase(&env, image, Some(&injector), work, (phase, phases))
            .map_err(|what| format!("{note}\n  phase {phase}: {what}\n  {}", plans.join("\n  ")))?;
        if injector.injected() > injected {
            workload.unsynced_may_go(drops);
        }
    }
    injector.set_plan(FaultPlan::default());
    let plans = plans.join("\n  ");
    // What is watched belongs to the simulation it is watched in.
    let end = observation.as_ref().map(|observation| observation.capture().image(CrashVariant::KeepAll, 0));
    let image = end.as_ref().unwrap_or(&fresh);
    let oracle = workload.oracle.lock().clone();
    let past = Past { met_faults: injector.injected() > 0, is_salvaged: false };
    examine(&setting, image, 1 + seed % 3, past, |found| oracle.verify(found, workload.may_lose_now()))
        .map_err(|what| format!("{note}\n  at the end: {what}\n  {plans}"))?;
    let mut points = std::mem::take(&mut *recorder.points.lock());
    drop(observation);
    let (mut images, mut recoveries) = (0, 0);
    let moments = std::mem::take(&mut *moments.lock());
    points.retain(|point| moments.contains_key(&point.tag));
    for point in &points {
        for _ in 0..IMAGES {
            let variants = setting.kind.variants();
            let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
            let image = point.state.image(variant, image_seed);
            images += 1;
            let verify = |found: &State| moments[&point.tag].verify(found, MayLose::Unsynced);
            let told = |what: String| {
                format!(
                    "{note}\n  cut at point {} ({}), {variant:?}, image seed {image_seed}: {what}\n  {plans}",
                    point.tag, point.note
                )
            };
            if random.chance(1, 3) {
                let cut = cut_recovery(&setting, &image, 16 + images).map_err(told)?;
                for (number, again) in (0..).zip(&cut) {
                    let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
                    recoveries += 1;
                    examine(&setting, &again.state.image(variant, image_seed), 16 + images + number, past, verify)
                        .map_err(|what| {
                            format!("opening, cut again ({}), {variant:?}, {image_seed}: {what}", again.note)
                        })
                        .map_err(told)?;
                }
            } else {
                examine(&setting, &image, 16 + images, past, verify).map_err(told)?;
            }
        }
    }
    let errors = workload.errors.lock().values().sum();
    Ok(Reached::from([
        ("points", points.len() as u64),
        ("images", images),
        ("cuts of recoveries", recoveries),
        ("faults", injector.injected()),
        ("errors", errors),
        ("openings", workload.openings.load(Ordering::SeqCst)),
        ("flushes", workload.flushes.load(Ordering::SeqCst)),
        ("compactions", workload.compactions.load(Ordering::SeqCst)),
        ("checkpoints", workload.checkpoints.load(Ordering::SeqCst)),
    ]))
}

#[test]
fn workloads_survive_power_cuts() {
    let least =
        [("images", 2000), ("cuts of recoveries", 1000), ("flushes", 300), ("compactions", 100), ("checkpoints", 20)];
    run_seeds(("workloads", "workloads_survive_power_cuts"), 0, 100, &least, |seed| {
        run(seed, On::Directories, false, true)
    });
}

#[test]
fn workloads_survive_faults() {
    let least = [("faults", 500), ("errors", 500), ("openings", 300), ("flushes", 300), ("compactions", 100)];
    run_seeds(("workloads", "workloads_survive_faults"), 10_000, 200, &least, |seed| {
        run(seed, On::Directories, true, false)
    });
}

#[test]
fn workloads_survive_faults_and_power_cuts() {
    let least = [("images", 2000), ("faults", 500), ("errors", 300)];
    run_seeds(("workloads", "workloads_survive_faults_and_power_cuts"), 20_000, 100, &least, |seed| {
        run(seed, On::Directories, true, true)
    });
}

#[test]
fn workloads_on_devices_survive_power_cuts() {
    let least =
        [("images", 1000), ("cuts of recoveries", 650), ("flushes", 300), ("compactions", 100), ("checkpoints", 20)];
    let test = ("workloads", "workloads_on_devices_survive_power_cuts");
    run_seeds(test, 100_000, 40, &least, |seed| run(seed, On::Devices, false, true));
}

#[test]
fn workloads_on_devices_survive_faults() {
    let least = [("faults", 500), ("errors", 500), ("openings", 130), ("flushes", 300), ("compactions", 100)];
    let test = ("workloads", "workloads_on_devices_survive_faults");
    run_seeds(test, 110_000, 80, &least, |seed| run(seed, On::Devices, true, false));
}

#[test]
fn workloads_on_devices_survive_faults_and_power_cuts() {
    let least = [("images", 1000), ("faults", 330), ("errors", 200)];
    let test = ("workloads", "workloads_on_devices_survive_faults_and_power_cuts");
    run_seeds(test, 120_000, 40, &least, |seed| run(seed, On::Devices, true, true));
}
