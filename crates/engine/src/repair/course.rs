//! The course of a repair, as far as it is the same for any tree.

use super::space::{Method, settle};
use super::{
    Condition, MediumFailures, Originals, RepairAction, RepairPlan, RepairReport, RepairStep, Replaced, Survey, plan,
    survey,
};
use crate::error::Error;
use crate::file_name::{self, FileName};
use crate::inventory::{self, ApplyBatch, Needed, RecoveredLogs};
use crate::key::Sequence;
use crate::log_chain::{LogFaultKind, LogsOfManifest, NO_LOG, Replay, salvage};
use crate::manifest::{Contents, Recovered};
use crate::media::FileMedia;
use std::sync::Arc;
use varve_env::Env;
use varve_store::StoreLock;

/// How much of table `number` can be read, when that manifest holds.
pub(crate) type TableCondition<'a> = dyn Fn(u64, Option<&Recovered>) -> Condition + 'a;

/// Makes what judges the tables on some media.
pub(crate) type TableConditions<'a> = dyn Fn(&FileMedia) -> Box<TableCondition<'a>> + 'a;

/// The [`TableConditions`] of a kind of tree that keeps everything in logs.
pub(crate) fn no_tables<'a>(_: &FileMedia) -> Box<TableCondition<'a>> {
    Box::new(|number, _| {
        let (expected, found) = ("no tables: this kind of tree keeps everything in logs".to_owned(), "one".to_owned());
        let (file, structure) = (file_name::table(number), "database".to_owned());
        Condition::Unreadable(Error::Corruption { file, offset_bytes: 0, structure, expected, found })
    })
}

/// What a repair of a database of tree `tree` would do; see [`crate::plan_repair`].
pub(crate) fn plan_repair(
    media: &FileMedia,
    tree: &str,
    method: Method,
    conditions: &TableConditions<'_>,
) -> Result<RepairPlan, Error> {
    let (media, failures) = MediumFailures::watch(media);
    let plan = plan(&look(&media, &failures, tree, conditions)?)?;
    Ok(settle(&media, tree, method, plan))
}

fn look(
    media: &FileMedia,
    failures: &MediumFailures,
    tree: &str,
    conditions: &TableConditions<'_>,
) -> Result<Survey, Error> {
    let survey = survey(media, tree, &*conditions(media))?;
    // What could not be read now is neither damaged nor foreign.
    failures.check()?;
    Ok(survey)
}

/// A repair. In this order: what the steps say is read, of logs with [`Repair::read_logs`]; [`Repair::mark`]; then a fresh
/// manifest is made to hold; [`Repair::finish`].
pub(crate) struct Repair {
    /// Those of the database, watched.
    pub(crate) media: FileMedia,
    pub(crate) steps: Vec<RepairStep>,
    /// What the manifest says, if it can be read.
    pub(crate) contents: Option<Contents>,
    /// The part of it that is about logs.
    of_logs: Option<LogsOfManifest>,
    /// Id of the database, once something says it.
    pub(crate) database: Option<u64>,
    /// No file has a larger number.
    pub(crate) highest_number: u64,
    pub(crate) report: RepairReport,
    replaced: Replaced,
    failures: Arc<MediumFailures>,
    _locks: Vec<Box<dyn StoreLock>>,
}

impl Repair {
    /// Looks, locks, and looks again. Nothing was changed when it errs.
    pub(crate) fn begin(
        media: &FileMedia,
        originals: Originals,
        tree: &str,
        method: Method,
        conditions: &TableConditions<'_>,
    ) -> Result<Repair, Error> {
        // What is not ours is refused before so much as a lock is made beside it.
        plan_repair(media, tree, method, conditions)?;
        let locks = inventory::lock(media)?;
        let (media, failures) = MediumFailures::watch(media);
        let survey = look(&media, &failures, tree, conditions)?;
        let RepairPlan { steps, findings, .. } = settle(&media, tree, method, plan(&survey)?);
        let manifest = survey.manifest.ok();
        Ok(Repair {
            replaced: Replaced::new(&media, originals),
            media,
            database: manifest.as_ref().map(|manifest| manifest.database),
            of_logs: manifest.as_ref().map(LogsOfManifest::of),
            contents: manifest.map(|manifest| manifest.contents),
            highest_number: survey.files.iter().filter_map(|file| file.name.number()).max().unwrap_or(0),
            steps,
            report: RepairReport { findings, ..RepairReport::default() },
            failures,
            _locks: locks,
        })
    }

    /// Newest sequence number that the manifest says tables have.
    pub(crate) fn last_sequence(&self) -> Sequence {
        self.contents.as_ref().map_or(0, |contents| contents.last_sequence)
    }

    /// File `name` is damaged, or not used: it is kept.
    pub(crate) fn set_aside(&mut self, name: &str) {
        self.replaced.add(name);
    }

    /// Gives the batches of all logs that steps read to `apply`, up to the end or the first damage of each; and notes what of
    /// the other files that are no tables is kept.
    pub(crate) fn read_logs(&mut self, apply: ApplyBatch<'_>) -> Result<(), Error> {
        let mut logs = Vec::new();
        let oldest = self.of_logs.map_or(NO_LOG, |manifest| manifest.oldest);
        for RepairStep { file, action } in &self.steps {
            let name = FileName::parse(file);
            // The chain as openings read it: logs that are not used are among it.
            logs.extend(name.and_then(|name| if let FileName::Log(number) = name { Some(number) } else { None }));
            match (name, action) {
                (Some(FileName::Table(_)), _) => {}
                (Some(FileName::Log(_)), RepairAction::Replay | RepairAction::Salvage) => self.report.logs_read += 1,
                (Some(FileName::Current), RepairAction::Replace) => self.replaced.add_current(),
                (_, RepairAction::Replace) => {}
                (_, RepairAction::Stay) => self.report.logs_read += 1,
                _ => self.replaced.add(file),
            }
        }
        logs.sort_unstable();
        logs.retain(|number| *number >= oldest);
        let store = self.media.log_store().clone();
        let (replayed, faults) = salvage(&Replay { store: &*store, logs: &logs, manifest: self.of_logs }, apply)?;
        self.database = self.database.or(replayed.database);
        for fault in faults {
            // The survey found them, unless the medium gives less now.
            let finding = fault.finding();
            let is_new = !self.report.findings.contains(&finding);
            self.report.findings.extend(is_new.then_some(finding));
            if matches!(fault.kind, LogFaultKind::Unreadable | LogFaultKind::Damaged) {
                self.set_aside(&file_name::log(fault.number));
            }
        }
        Ok(())
    }

    /// Reads the logs of a database whose logs hold everything, in order; then has what is there kept ([`Repair::mark`]). What
    /// is written from then on is fresh.
    pub(crate) fn read_all(&mut self, env: &Env, apply: ApplyBatch<'_>) -> Result<RecoveredLogs, Error> {
        let new_database = inventory::new_database_id(env, &*self.media.files);
        let mut last_sequence = self.last_sequence();
        self.read_logs(&mut |batch| {
            // What a log that was never named repeats is in those before it.
            if batch.first_sequence > last_sequence {
                apply(batch)?;
                last_sequence = batch.last_sequence();
            }
            Ok(())
        })?;
        self.mark()?;
        let database = self.database.unwrap_or(new_database);
        Ok(RecoveredLogs::new(database, self.highest_number + 1, last_sequence))
    }

    /// Has what is there kept from the moment the fresh manifest holds. Errs when the medium failed on the way here.
    pub(crate) fn mark(&mut self) -> Result<(), Error> {
        self.replaced.copy_damaged();
        self.failures.check()?;
        self.replaced.mark()
    }

    /// The fresh manifest holds, and needs `needed`; files from `fresh_from` on are fresh.
    pub(crate) fn finish(self, needed: &Needed, fresh_from: u64) -> Result<RepairReport, Error> {
        let set_aside = self.replaced.finish(needed, fresh_from)?;
        Ok(RepairReport { set_aside, ..self.report })
    }
}
