//! Failing I/O: every call fails, once and for good, in every way.
//!
//! What must hold: no panic; what was acknowledged stays true; an error is reported where something
//! was not done. Afterwards the store may be usable or may refuse with an error, and when the fault
//! is gone the medium opens again and has what was acknowledged.

use super::model::{FileHandle, Model};
use super::subject::Subject;
use super::{content, read_file, text};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, FileStore, OpenOptions, WritableFile};
use std::collections::BTreeMap;
use std::time::Duration;
use varve_env::Env;
use varve_media::{Fault, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoContext, Operation};

/// What the suite did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Runs of the workload.
    pub runs: u64,
    /// Faults that struck.
    pub injected: u64,
    /// What was wrong, the first few.
    pub failures: Vec<String>,
}

const FAILURES_MAX: usize = 8;
const LOCK: &str = "LOCK";

/// Runs a workload once for every I/O call it makes and every way the call can fail. `stride` thins it
/// out: every so many calls.
pub fn faults(env: &Env, subject: &dyn Subject, stride: u64) -> FaultReport {
    let mut report = FaultReport::default();
    let quiet = FaultInjector::new(env, FaultPlan::default());
    if let Err(message) = run(env, subject, &quiet, &mut report) {
        report.failures.push(format!("without faults: {message}"));
        return report;
    }
    let mut effects: Vec<FaultEffect> = FaultError::ALL.into_iter().map(FaultEffect::Fail).collect();
    effects.extend([
        FaultEffect::FailAfter(FaultError::Io),
        FaultEffect::FailPartly(FaultError::Io),
        FaultEffect::FailDroppingUnsynced(FaultError::Io),
        FaultEffect::FailLateDroppingUnsynced(Duration::from_millis(2), FaultError::Io),
        FaultEffect::ShortRead,
    ]);
    for (operation, calls) in quiet.calls() {
        for effect in &effects {
            let makes_sense = match effect {
                FaultEffect::ShortRead => operation == Operation::Read,
                FaultEffect::FailPartly(_) => matches!(operation, Operation::Write | Operation::Discard),
                effect if effect.drops_unsynced() => operation == Operation::Sync,
                _ => true,
            };
            if !makes_sense {
                continue;
            }
            for call in (0..calls).step_by(stride.max(1) as usize) {
                for trigger in [FaultTrigger::Once(call), FaultTrigger::From(call)] {
                    let fault = Fault::new(operation, trigger, effect.clone());
                    let injector = FaultInjector::new(env, FaultPlan { seed: call, faults: vec![fault.clone()] });
                    if let Err(message) = run(env, subject, &injector, &mut report) {
                        report.failures.push(format!("{}: {fault:?}: {message}", subject.name()));
                        if report.failures.len() >= FAILURES_MAX {
                            return report;
                        }
                    }
                }
            }
        }
    }
    report
}

/// One run: the workload under the injector's plan, then without faults.
fn run(env: &Env, subject: &dyn Subject, injector: &FaultInjector, report: &mut FaultReport) -> Result<(), String> {
    report.runs += 1;
    let medium = subject.medium(env).map_err(text)?;
    let mut model = Model::default();
    // A store that does not open under the fault has done no harm.
    if let Ok(store) = medium.open_with_faults(injector) {
        workload(&*store, &mut model);
        // Reading what is there gives right bytes or an error.
        verify(&*store, &model, true)?;
        drop(store);
    }
    report.injected += injector.injected();
    injector.set_plan(FaultPlan::default());
    let store = medium.open().map_err(|error| format!("after the fault the store does not open: {error}"))?;
    verify(&*store, &model, false)?;
    super::write_file(&*store, "afterwards", 777, 20_000)?;
    super::expect_file(&*store, "afterwards", 777, 20_000)?;
    super::check_is_clean(&*store)
}

/// Compares with the model. While the fault lasts, what cannot be read is not compared.
fn verify(store: &dyn FileStore, model: &Model, forgiving: bool) -> Result<(), String> {
    let listed = match store.list() {
        Ok(listed) => listed,
        Err(_) if forgiving => return Ok(()),
        Err(error) => return Err(text(error)),
    };
    let mut found = BTreeMap::new();
    // Whether a lock is a file is up to the store.
    for entry in listed.into_iter().filter(|entry| entry.name != LOCK) {
        match read_file(store, &entry.name) {
            Ok(data) => {
                found.insert(entry.name, data);
            }
            Err(_) if forgiving => return Ok(()),
            Err(error) => return Err(format!("'{}': {error}", entry.name)),
        }
    }
    model.check(&found)
}

/// A writer and how far it came.
struct Written {
    writer: Box<dyn WritableFile>,
    handle: FileHandle,
    number: u64,
    /// Bytes the writer accepted.
    appended: u64,
}

impl Written {
    fn append(&mut self, model: &mut Model, length: u64, context: &IoContext) -> Result<(), StoreError> {
        // A failed append took nothing: the next one brings the same bytes again.
        model.append(self.handle, length);
        self.writer.append(&content(self.number, self.appended, length), context)?;
        self.appended += length;
        model.appended(self.handle, length);
        Ok(())
    }

    fn sync(&mut self, model: &mut Model, context: &IoContext) -> Result<(), StoreError> {
        self.writer.sync(context)?;
        model.synced(self.handle);
        Ok(())
    }
}

fn create(store: &dyn FileStore, model: &mut Model, name: &str, number: u64, kind: FileKind) -> Option<Written> {
    let options = CreateOptions { kind, expected_size_bytes: Some(60_000), ..CreateOptions::default() };
    let handle = model.create(name, number);
    let Ok(writer) = store.create(name, &options) else {
        model.failed(&[name]);
        return None;
    };
    Some(Written { writer, handle, number, appended: 0 })
}

/// What a small log-structured store does in its life. Goes on after every error, as far as it can.
fn workload(store: &dyn FileStore, model: &mut Model) {
    let context = IoContext::default();
    let lock = store.lock(LOCK);
    let mut log = create(store, model, "log", 1, FileKind::Log);
    for (round, table) in ["t1", "t2", "t3"].into_iter().enumerate() {
        let number = 10 + round as u64;
        if let Some(log) = &mut log {
            for length in [100, 5000, 700] {
                let _ = log.append(model, length, &context);
                let _ = log.sync(model, &context);
            }
        }
        if let Some(mut written) = create(store, model, table, number, FileKind::Table) {
            let _ = written.append(model, 70_000, &context);
            let _ = written.append(model, 3, &context);
            let _ = written.sync(model, &context);
            let _ = written.sync(model, &context);
            let _ = written.writer.finish(&context);
        }
        if let Some(mut pointer) = create(store, model, "pointer.new", 20 + round as u64, FileKind::Pointer)
            && pointer.append(model, 16, &context).is_ok()
            && pointer.sync(model, &context).is_ok()
            && pointer.writer.finish(&context).is_ok()
        {
            model.rename("pointer.new", "pointer");
            match store.rename("pointer.new", "pointer") {
                Ok(()) => model.renamed(),
                Err(_) => model.failed(&["pointer.new", "pointer"]),
            }
        }
        let _ = store.open("t1", &OpenOptions::default()).and_then(|reader| {
            let mut data = vec![0; reader.size_bytes() as usize];
            reader.read_at(0, &mut data, &context)
        });
        if round == 1 {
            model.remove("t1");
            if store.remove("t1").is_err() {
                model.failed(&["t1"]);
            }
        }
        if store.sync_names().is_ok() {
            model.names_synced();
        }
        let _ = store.space();
        let _ = store.list();
        let _ = store.check();
    }
    drop(log);
    drop(lock);
}
