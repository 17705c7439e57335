//! A sync that fails while others sync: what it dropped of theirs is not acknowledged.

use super::subject::Subject;
use super::{content, expect_file, text};
use crate::file_store::{CreateOptions, FileKind, FileStore, WritableFile};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use varve_env::Env;
use varve_media::{
    CrashVariant, Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoContext, Operation,
};

/// What the suite did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateFailureReport {
    /// Pairs of writers whose syncs met one that failed.
    pub runs: u64,
    /// What was wrong.
    pub failures: Vec<String>,
}

/// When the failing sync says so.
const FAILS_AFTER: Duration = Duration::from_millis(10);
/// When the other writer begins its sync.
const SECOND_BEGINS: Duration = Duration::from_millis(1);

/// Two writers sync; the first sync of the medium fails and returns late, and others succeed meanwhile. It drops unsynced
/// writes on the medium, or does nothing, and then a power cut drops them. No writer whose writes were dropped may have
/// its sync acknowledged. `kinds` are those of the two files, whose syncs are syncs of one device or of the directory.
pub fn late_failure(env: &Env, subject: &dyn Subject, kinds: &[[FileKind; 2]]) -> LateFailureReport {
    let mut report = LateFailureReport::default();
    for kinds in kinds {
        for were_synced in [false, true] {
            for (operation, effect) in [
                (Operation::Sync, FaultEffect::FailLate(FAILS_AFTER, FaultError::Io)),
                (Operation::Sync, FaultEffect::FailLateDroppingUnsynced(FAILS_AFTER, FaultError::Io)),
                (Operation::SyncDirectory, FaultEffect::FailLate(FAILS_AFTER, FaultError::Io)),
            ] {
                let injector = FaultInjector::new(env, FaultPlan::default());
                let fault = Fault::new(operation, FaultTrigger::Once(0), effect);
                let outcome = run(env, subject, &injector, *kinds, were_synced, &fault);
                report.runs += u64::from(injector.injected() > 0);
                if let Err(message) = outcome {
                    let case = format!("{kinds:?}, {fault:?}, synced before: {were_synced}");
                    report.failures.push(format!("{}: {case}: {message}", subject.name()));
                }
            }
        }
    }
    report
}

fn run(
    env: &Env,
    subject: &dyn Subject,
    injector: &FaultInjector,
    kinds: [FileKind; 2],
    were_synced: bool,
    fault: &Fault,
) -> Result<(), String> {
    let medium = subject.medium(env).map_err(text)?;
    let store = medium.open_with_faults(injector).map_err(text)?;
    let context = IoContext::default();
    let mut writers: Vec<Box<dyn WritableFile>> = Vec::new();
    for (number, kind) in (0_u64..).zip(kinds) {
        let options = CreateOptions { kind, ..CreateOptions::default() };
        let mut writer = store.create(&number.to_string(), &options).map_err(text)?;
        writer.append(&content(number, 0, 5000), &context).map_err(text)?;
        if were_synced {
            writer.sync(&context).map_err(text)?;
        }
        writers.push(writer);
    }
    // An effect that drops writes remembers them from here on; it strikes later.
    injector.set_plan(FaultPlan::of(Fault { trigger: FaultTrigger::Once(u64::MAX), ..fault.clone() }));
    // Only now: a sync of one may make durable what is there of the other.
    for (number, writer) in (0_u64..).zip(&mut writers) {
        writer.append(&content(number, 5000, 5000), &context).map_err(text)?;
        writer.flush(&context).map_err(text)?;
    }
    // Of files of a directory each is synced by itself, and fails by itself.
    if fault.operation == Operation::Sync && injector.calls().contains_key(&Operation::Open) {
        return Ok(());
    }
    // Of several devices each fails by itself.
    if lie_apart(&*store) {
        return Ok(());
    }
    let before = medium.capture();
    injector.set_plan(FaultPlan::of(fault.clone()));
    let actors: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(number, mut writer)| {
            let clock = env.clone();
            env.spawn(&format!("writer {number}"), move || {
                clock.sleep(SECOND_BEGINS * number as u32);
                (writer.sync(&IoContext::default()), writer)
            })
        })
        .collect();
    let mut acknowledged = Vec::new();
    for (number, actor) in (0_u64..).zip(actors) {
        let (outcome, writer) = actor.join().map_err(|_| format!("writer {number} panicked"))?;
        drop(writer);
        if outcome.is_ok() {
            acknowledged.push(number);
        }
    }
    drop::<Arc<dyn FileStore>>(store);
    if injector.injected() == 0 || acknowledged.is_empty() {
        return Ok(());
    }
    // A file that was durable before owes nothing to these syncs.
    let store = match fault.effect.drops_unsynced() {
        true => medium.open(),
        false => before.medium(env, CrashVariant::DropAll, 0).open(),
    }
    .map_err(text)?;
    for number in acknowledged {
        let outcome = expect_file(&*store, &number.to_string(), number, 10_000);
        outcome
            .map_err(|message| format!("what writer {number} wrote was dropped, and its sync succeeds: {message}"))?;
    }
    Ok(())
}

/// True if the two files are known to be on different devices.
fn lie_apart(store: &dyn FileStore) -> bool {
    let occupancy = store.occupancy();
    let [first, second] = ["0", "1"].map(|name| -> BTreeSet<u16> {
        let is_of = |file: u32| occupancy.files.get(file as usize).is_some_and(|file| file.name == name);
        occupancy.pieces.iter().filter(|piece| piece.file.is_some_and(is_of)).map(|piece| piece.device).collect()
    });
    !first.is_empty() && !second.is_empty() && first.is_disjoint(&second)
}
