//! Zones that wear out and die under a running database, in both trees: the store retires them and goes on, `check`
//! reports them, and nothing acknowledged is lost that the medium still holds.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/outcome.rs"]
#[allow(dead_code)]
mod outcome;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{History, State, Step};
use medium::{Image, Kind};
use outcome::{MayLose, Outcome, UNIVERSE, run, walk_all};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use varve_engine::{Db, TreeKind, repair};
use varve_env::{Env, SimOptions};
use varve_media::{
    BlockDevice, Fault, FaultDevice, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, Operation, ZoneId,
};
use varve_store::{Finding, Severity};

const SEED: u64 = 900;

/// Stores and trees on them.
fn on_bands() -> Vec<(Kind, TreeKind)> {
    trees::on(&[Kind::BAND, Kind::VARIABLE_BANDS], trees::with_tables())
}

/// At one of so many writes and zone commands their zone gives up.
const STRIDE: usize = 3;

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(24 * 3600)), ..SimOptions::default() })
}

fn fresh_history(tree: TreeKind, reopens: bool) -> History {
    let mut history = History::new(SEED, 60, UNIVERSE).in_tree(tree);
    history.steps.retain(|step| reopens || !matches!(step, Step::Reopen { .. }));
    history
}

/// The bands of a zoned device, in bytes: zones that are written in order.
fn bands(device: &dyn BlockDevice) -> Range<u64> {
    let zones = device.capabilities().zones.as_ref().expect("zones");
    zones.start_bytes(ZoneId(zones.conventional_zones))..device.geometry().capacity_bytes
}

/// A run in which zones give up, on what they leave, and how many did.
struct Worn {
    image: Image,
    outcome: Outcome,
    injected: u64,
}

fn run_worn(env: &Env, kind: Kind, history: &History, fault: Fault) -> Result<Worn, String> {
    let Image::Device(_, device) = Image::fresh(env, kind) else { panic!("a device") };
    let injector = FaultInjector::new(env, FaultPlan::of(fault.on_range(bands(&*device.block))));
    // Zones stay given up however often the store is opened: the layer stays.
    let image = Image::Device(kind, FaultDevice::device(&injector, &device));
    let nothing = FaultInjector::new(env, FaultPlan::default());
    let outcome = run(env, &image, &nothing, history, MayLose::Nothing)?;
    Ok(Worn { image, outcome, injected: injector.injected() })
}

fn has_code(findings: &[Finding], code: &str) -> bool {
    findings.iter().any(|finding| finding.code == code)
}

fn no_errors(findings: &[Finding]) -> Result<(), String> {
    match findings.iter().find(|finding| finding.severity != Severity::Warning) {
        Some(finding) => Err(format!("check found {finding:?}")),
        None => Ok(()),
    }
}

/// Zones that became read-only lose nothing and stop nobody.
fn examine_read_only(env: &Env, history: &History, worn: &Worn) -> Result<(), String> {
    let said = |error: varve_engine::Error| error.to_string();
    if !worn.outcome.errors.is_empty() {
        return Err(format!("errors {:?}", worn.outcome.errors));
    }
    let media = worn.image.media(env).map_err(|error| error.to_string())?;
    let db = Db::open(env, media, history.options.clone()).map_err(said)?;
    let (found, error) = walk_all(&db);
    if let Some(error) = error {
        return Err(format!("reading afterwards failed: {error}"));
    }
    if found != *worn.outcome.last() {
        return Err("another state afterwards".to_owned());
    }
    let findings = db.check().map_err(said)?;
    no_errors(&findings)?;
    if worn.injected > 0 && !has_code(&findings, "band-read-only") {
        return Err(format!("nobody reports the zone: {findings:?}"));
    }
    db.close().map_err(said)
}

/// What came of a zone that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// Nothing.
    Nothing,
    /// Some keys cannot be read.
    Keys,
    /// The database does not open; repair finds what the medium still holds.
    Repaired,
}

/// The loss, and how many of a hundred pairs are there as they were written last.
fn examine_offline(env: &Env, history: &History, worn: &Worn) -> Result<(Loss, usize), String> {
    let expected = worn.outcome.last();
    let percent = |kept: usize| kept * 100 / expected.len().max(1);
    let said = |error: varve_engine::Error| error.to_string();
    let media = || worn.image.media(env).map_err(|error| format!("the store does not open: {error}"));
    let files = media()?.files.expect("files");
    let findings = files.check().map_err(|error| error.to_string())?;
    if worn.injected > 0 && !has_code(&findings, "band-offline") {
        return Err(format!("nobody reports the zone: {findings:?}"));
    }
    drop(files);
    let about_the_zone = |text: String| if text.contains("offline") { Ok(()) } else { Err(text) };
    let db = match Db::open(env, media()?, history.options.clone()) {
        Ok(db) => db,
        Err(error) => {
            about_the_zone(error.to_string()).map_err(|text| format!("does not open: {text}"))?;
            let _ = repair(env, media()?, history.options.clone()).map_err(said)?;
            let db = Db::open(env, media()?, history.options.clone()).map_err(said)?;
            let (found, error) = walk_all(&db);
            if let Some(error) = error {
                return Err(format!("reading after repair failed: {error}"));
            }
            expect_once_written(&found, history)?;
            db.put(b"after", b"the repair").map_err(said)?;
            db.close().map_err(said)?;
            let kept = expected.iter().filter(|(key, value)| found.get(*key) == Some(value)).count();
            return Ok((Loss::Repaired, percent(kept)));
        }
    };
    let mut lost = 0;
    for (key, value) in expected {
        match db.get(key) {
            Ok(found) if found.as_deref() == Some(value.as_slice()) => {}
            Ok(_) => return Err(format!("'{}' is lost without a word", key.escape_ascii())),
            Err(error) => {
                about_the_zone(error.to_string()).map_err(|text| format!("'{}': {text}", key.escape_ascii()))?;
                lost += 1;
            }
        }
    }
    db.put(b"after", b"the loss").map_err(said)?;
    if lost == 0 {
        let (mut found, error) = walk_all(&db);
        found.remove(&b"after"[..]);
        if error.is_none() && found != *expected {
            return Err("another state afterwards".to_owned());
        }
    }
    let _ = db.close();
    Ok((if lost == 0 { Loss::Nothing } else { Loss::Keys }, percent(expected.len() - lost)))
}

/// What a repair found was written once.
fn expect_once_written(found: &State, history: &History) -> Result<(), String> {
    for (key, value) in found {
        if !history.states.iter().any(|state| state.get(key) == Some(value)) {
            return Err(format!("'{}' has a value that nobody wrote", key.escape_ascii()));
        }
    }
    Ok(())
}

/// One zone after the other, of each store and tree, gives up at one of its writes or commands; what the examinations said.
fn each_zone_gives_up<T>(
    effect: &FaultEffect,
    reopens: bool,
    examine: impl Fn(&Env, &History, &Worn) -> Result<T, String>,
) -> Vec<T> {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    for (kind, tree) in on_bands() {
        let history = fresh_history(tree, reopens);
        for operation in [Operation::Write, Operation::Zone] {
            for index in (0..).step_by(STRIDE) {
                let env = simulation(SEED + index);
                let fault = Fault::new(operation, FaultTrigger::Once(index), effect.clone());
                let result = run_worn(&env, kind, &history, fault).and_then(|worn| {
                    let examined = examine(&env, &history, &worn)?;
                    Ok((examined, worn.injected))
                });
                match result {
                    Ok((_, 0)) => break,
                    Ok((examined, _)) => all.push(examined),
                    Err(what) => wrong.push(format!("{kind:?} {tree:?} {operation:?} {index} {effect:?}: {what}")),
                }
                assert!(index < 3000, "{kind:?} {tree:?} {operation:?}: calls without end");
            }
        }
    }
    println!("reached: zones/{effect:?}: {} runs", all.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len() + wrong.len(), wrong.join("\n"));
    all
}

#[test]
fn a_zone_that_becomes_read_only_costs_nothing() {
    let runs = each_zone_gives_up(&FaultEffect::ZoneReadOnly, true, examine_read_only);
    assert!(runs.len() >= 60, "{} runs are too few", runs.len());
}

#[test]
fn a_zone_that_dies_takes_with_it_what_was_in_it_and_nothing_else() {
    let runs = each_zone_gives_up(&FaultEffect::ZoneOffline, false, examine_offline);
    let mut kept: BTreeMap<Loss, Vec<usize>> = BTreeMap::new();
    runs.into_iter().for_each(|(loss, percent)| kept.entry(loss).or_default().push(percent));
    println!("{kept:?}");
    let of = |loss| kept.get(&loss).map_or(&[][..], Vec::as_slice);
    let (nothing, repaired) = (of(Loss::Nothing), of(Loss::Repaired));
    assert!(nothing.len() >= 10 && nothing.iter().all(|percent| *percent == 100), "{kept:?}");
    // The manifest is in a log band: without it repair goes by the tables and logs that are left.
    assert!(repaired.len() >= 10 && repaired.iter().sum::<usize>() >= 50 * repaired.len(), "{kept:?}");
}

/// Zones wear out all the time, one in forty writes finds its zone so.
#[test]
fn a_device_whose_zones_wear_out_one_after_the_other_loses_nothing() {
    let trigger = FaultTrigger::Random { numerator: 1, denominator: 40 };
    for (kind, tree) in on_bands() {
        let history = History::new(SEED, 150, UNIVERSE).in_tree(tree);
        let env = simulation(SEED);
        let fault = Fault::new(Operation::Write, trigger, FaultEffect::ZoneReadOnly);
        let worn = run_worn(&env, kind, &history, fault);
        let worn = worn.unwrap_or_else(|what| panic!("{kind:?} {tree:?}: {what}"));
        examine_read_only(&env, &history, &worn).unwrap_or_else(|what| panic!("{kind:?} {tree:?}: {what}"));
        println!("reached: zones/worn out: {} zones", worn.injected);
        assert!(worn.injected >= 8, "{kind:?} {tree:?}: {} zones wore out", worn.injected);
    }
}
