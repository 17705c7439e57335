//! What a repair finds, and what it is going to do about it.
//!
//! The survey only reads. The plan is a function of it, and refuses what is not known to be ours: a repair that took
//! files of another program, or of another version, for damaged ones would destroy them.

use super::{RepairAction, RepairPlan, RepairStep, may_be_stale, table_may_be_stale};
use crate::error::{Error, ErrorKind};
use crate::file_name::{self, FileName};
use crate::inventory::{OF_OTHERS, Origin, begins_as, not_ours, origin};
use crate::log::{LogReader, Purpose};
use crate::log_chain::{LogFault, LogFaultKind, LogsOfManifest, NO_LOG, Replay, salvage};
use crate::manifest::{Manifest, Recovered};
use crate::media::FileMedia;
use std::sync::Arc;
use varve_store::{FileStore, Finding, Location, OpenOptions, Severity, StoreErrorKind};

/// How much of a file can be read.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    Sound,
    /// Some of it.
    Damaged(Vec<Finding>),
    Unreadable(Error),
}

/// A file with a name of ours, but for `CURRENT` and `LOCK`.
#[derive(Clone, Debug)]
pub(crate) struct SurveyedFile {
    pub(crate) name: FileName,
    pub(crate) origin: Origin,
    pub(crate) condition: Condition,
}

/// What is there.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) store: String,
    /// Nobody else puts files there, as people do into directories.
    pub(crate) is_private: bool,
    /// The manifest that holds, or why there is none.
    pub(crate) manifest: Result<Recovered, Error>,
    pub(crate) has_current: bool,
    pub(crate) is_current_ours: bool,
    pub(crate) files: Vec<SurveyedFile>,
    /// Logs that openings do not use, and faults of the chain of logs that are not in one of its files.
    pub(crate) unused_logs: Vec<u64>,
    pub(crate) chain_faults: Vec<LogFault>,
    /// The first name that is none of ours.
    pub(crate) other_name: Option<String>,
}

/// Looks at everything; changes nothing. `table_condition` says how much of table `number` can be read, when that manifest
/// holds. Cost: reads every table and log.
pub(crate) fn survey(
    media: &FileMedia,
    tree: &str,
    table_condition: &dyn Fn(u64, Option<&Recovered>) -> Condition,
) -> Result<Survey, Error> {
    let mut files = Vec::new();
    let mut other_name = None;
    let mut has_current = false;
    let mut stores = vec![(&media.files, false)];
    stores.extend(media.logs.iter().map(|logs| (logs, true)));
    for (store, is_beside) in stores {
        for entry in store.list()? {
            match FileName::parse(&entry.name) {
                Some(FileName::Current) => has_current |= !is_beside,
                // What was opened last stays for people to read.
                Some(FileName::Lock | FileName::Repaired | FileName::Options) => {}
                // Tables are where files are, logs where logs are; others of their names are not looked at.
                Some(FileName::Table(_)) if is_beside => {}
                Some(FileName::Log(_)) if media.logs.is_some() && !is_beside => {}
                Some(name) => {
                    let origin = origin(&**store, name).unwrap_or(Origin::Unreadable);
                    files.push(SurveyedFile { name, origin, condition: Condition::Sound });
                }
                None if other_name.is_none() && !file_name::is_set_aside(&entry.name) => {
                    other_name = Some(entry.name);
                }
                None => {}
            }
        }
    }
    let manifest = Manifest::recover(&*media.files, tree);
    let is_current_ours = has_current && begins_as(&*media.files, file_name::CURRENT, b"varve-current ");
    let of_manifest = manifest.as_ref().ok().map(LogsOfManifest::of);
    let log_number = |file: &SurveyedFile| if let FileName::Log(number) = file.name { Some(number) } else { None };
    let mut logs: Vec<u64> = files.iter().filter_map(log_number).collect();
    logs.sort_unstable();
    logs.retain(|number| *number >= of_manifest.map_or(NO_LOG, |manifest| manifest.oldest));
    let replay = Replay { store: &**media.log_store(), logs: &logs, manifest: of_manifest };
    let (replayed, mut chain_faults) = salvage(&replay, &mut |_| Ok(()))?;
    for file in &mut files {
        file.condition = match file.name {
            FileName::Table(number) => table_condition(number, manifest.as_ref().ok()),
            FileName::Log(number) => log_condition(number, &mut chain_faults),
            FileName::Manifest(number) if file.origin == Origin::Ours => manifest_condition(&media.files, number),
            _ => Condition::Sound,
        };
    }
    let is_private = media.files.properties().location == Location::Private;
    Ok(Survey {
        is_private,
        store: media.files.name().to_owned(),
        manifest,
        has_current,
        is_current_ours,
        files,
        unused_logs: replayed.unused,
        chain_faults,
        other_name,
    })
}

/// Takes the fault that is in the bytes of log `number` out of `faults`.
fn log_condition(number: u64, faults: &mut Vec<LogFault>) -> Condition {
    let is_in_file = |fault: &LogFault| {
        fault.number == number && matches!(fault.kind, LogFaultKind::Unreadable | LogFaultKind::Damaged)
    };
    let Some(position) = faults.iter().position(is_in_file) else { return Condition::Sound };
    let fault = faults.remove(position);
    match fault.kind {
        LogFaultKind::Damaged if fault.error.kind() != ErrorKind::Foreign => Condition::Damaged(vec![fault.finding()]),
        _ => Condition::Unreadable(fault.error),
    }
}

fn manifest_condition(store: &Arc<dyn FileStore>, number: u64) -> Condition {
    let name = file_name::manifest(number);
    let opened = store
        .open(&name, &OpenOptions::default())
        .map_err(Error::from)
        .and_then(|file| LogReader::open(file, &name, Purpose::Manifest, number));
    opened.map_or_else(Condition::Unreadable, |_| Condition::Sound)
}

/// What to do about it; a pure function. Errs when what is there is nothing, of another program or of another version.
pub(crate) fn plan(survey: &Survey) -> Result<RepairPlan, Error> {
    refuse_others(survey)?;
    let contents = survey.manifest.as_ref().ok();
    let mut findings = Vec::new();
    if let Err(error) = &survey.manifest {
        findings.push(Finding { severity: Severity::Fatal, code: "manifest-lost", message: error.to_string() });
    }
    let mut steps = Vec::new();
    let mut there = std::collections::BTreeSet::new();
    for file in &survey.files {
        let is_needed = match (file.name, contents) {
            (FileName::Table(number), Some(manifest)) => manifest.contents.files.contains_key(&number),
            (FileName::Log(number), Some(manifest)) => {
                number >= manifest.contents.log_number && !survey.unused_logs.contains(&number)
            }
            (FileName::Table(_) | FileName::Log(_), None) => true,
            // A fresh one takes its place.
            _ => false,
        };
        there.insert(file.name);
        let name = file.name.format();
        // A sound table under the name of another one is not what the manifest means.
        let (code, verb) = match file.name {
            FileName::Table(_) => ("table-lost", RepairAction::Keep),
            _ => ("log-lost", RepairAction::Replay),
        };
        let action = match (&file.condition, file.name) {
            _ if !is_needed => {
                match contents.is_some_and(|manifest| file.name == FileName::Manifest(manifest.number)) {
                    true => RepairAction::Replace,
                    false => RepairAction::SetAside,
                }
            }
            (Condition::Sound, _) => verb,
            (Condition::Damaged(damage), _) => {
                findings.extend(damage.iter().cloned());
                RepairAction::Salvage
            }
            (Condition::Unreadable(error), _) => {
                findings.push(Finding { severity: Severity::Error, code, message: error.to_string() });
                if let FileName::Table(number) = file.name {
                    findings.push(table_may_be_stale(number, contents.map(|manifest| &manifest.contents)));
                }
                RepairAction::SetAside
            }
        };
        steps.push(RepairStep { file: name, action });
    }
    findings.extend(survey.chain_faults.iter().map(LogFault::finding));
    for number in contents.iter().flat_map(|manifest| manifest.contents.files.keys()) {
        if !there.contains(&FileName::Table(*number)) {
            let message = format!("'{}', which the manifest names, is not there", file_name::table(*number));
            findings.push(Finding { severity: Severity::Error, code: "table-lost", message });
            findings.push(table_may_be_stale(*number, contents.map(|manifest| &manifest.contents)));
        }
    }
    if findings.iter().any(|finding| matches!(finding.code, "log-lost" | "log-damaged")) {
        findings.push(may_be_stale("logs", None, None));
    }
    if survey.has_current {
        let action = if contents.is_some() { RepairAction::Replace } else { RepairAction::SetAside };
        steps.push(RepairStep { file: file_name::CURRENT.to_owned(), action });
    }
    Ok(RepairPlan { steps, findings, space: None })
}

/// Errs unless some file is known to be ours and none to be of another version.
fn refuse_others(survey: &Survey) -> Result<(), Error> {
    if let Err(error) = &survey.manifest {
        let is_read = match error {
            Error::Store(error) => error.kind() != StoreErrorKind::Foreign,
            // A header that is not known for ours is damage where it should be ours.
            Error::Foreign { file, .. } => {
                let is_unknown = |found: &&SurveyedFile| found.name.format() == *file && found.origin != Origin::Ours;
                survey.is_current_ours && survey.files.iter().any(|found| is_unknown(&found))
            }
            _ => true,
        };
        if !is_read {
            return Err(error.clone());
        }
    }
    for file in survey.files.iter().filter(|file| file.origin == Origin::Ours) {
        if let Condition::Unreadable(error @ Error::Foreign { .. }) = &file.condition {
            return Err(error.clone());
        }
    }
    if survey.is_current_ours {
        return Ok(());
    }
    let others = survey.files.iter().find(|file| file.origin == Origin::LevelDbOrRocksDb);
    if let Some(other) = others {
        return Err(not_ours(&other.name.format(), OF_OTHERS));
    }
    let is_taken_for_ours = |file: &SurveyedFile| match file.origin {
        Origin::Ours => true,
        Origin::Unreadable => survey.is_private,
        _ => false,
    };
    if survey.files.iter().any(is_taken_for_ours) {
        return Ok(());
    }
    // Of what cannot be read nobody knows whose it is.
    for file in survey.files.iter().filter(|file| file.origin == Origin::Unreadable) {
        match (&file.condition, &survey.manifest) {
            (Condition::Unreadable(error), _) | (_, Err(error)) => return Err(error.clone()),
            _ => {}
        }
    }
    let unknown = survey.files.iter().find(|file| file.origin != Origin::Blank).map(|file| file.name.format());
    let current = survey.has_current.then(|| file_name::CURRENT.to_owned());
    match unknown.or(current).or_else(|| survey.other_name.clone()) {
        Some(name) => Err(not_ours(&name, "a file that nothing says is ours")),
        None => Err(Error::Missing { store: survey.store.clone() }),
    }
}
