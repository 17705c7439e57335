//! What the manifest and the logs of a database say.

use super::{NO_LOG, highest_number, log_numbers, names, new_database_id, refuse_orphans};
use crate::batch::BatchRecord;
use crate::error::Error;
use crate::key::Sequence;
use crate::log::{LogBacklog, LogGate};
use crate::log_chain::{LogChain, LogChainOptions, LogsOfManifest, Replay, replay};
use crate::manifest::{Manifest, Recovered};
use crate::media::FileMedia;
use crate::options::Options;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{Finding, Severity};

/// What is done with a batch that was read.
pub(crate) type ApplyBatch<'a> = &'a mut dyn FnMut(&BatchRecord<'_>) -> Result<(), Error>;

/// The manifest that holds, of a tree called `tree`.
///
/// Errors: [`Error::Missing`] where there is no database; [`Error::Corruption`] where there are files of one; those of
/// [`Manifest::recover`].
pub(crate) fn recover_manifest(media: &FileMedia, tree: &str) -> Result<Recovered, Error> {
    let manifest = Manifest::recover(&*media.files, tree);
    if let Err(Error::Missing { .. }) = &manifest {
        let (file_names, log_names) = (names(&media.files.list()?), names(&media.log_store().list()?));
        refuse_orphans(media, &file_names, &log_numbers(&log_names))?;
    }
    manifest
}

/// The logs that are there from `oldest` on, ascending.
pub(crate) fn logs_from(media: &FileMedia, oldest: u64) -> Result<Vec<u64>, Error> {
    let mut logs = log_numbers(&names(&media.log_store().list()?));
    logs.retain(|number| *number >= oldest);
    Ok(logs)
}

/// A database whose logs hold everything, as it was found.
pub(crate) struct RecoveredLogs {
    /// Id of the database.
    pub(crate) database: u64,
    /// The manifest that CURRENT names; none of one that is new.
    pub(crate) manifest: Option<u64>,
    /// What is needed of `logs`, from this one on.
    pub(crate) oldest_log: u64,
    pub(crate) logs: Vec<u64>,
    /// No file has this number or a larger one.
    pub(crate) next_file_number: u64,
    pub(crate) last_sequence: Sequence,
    /// Behind the ends of logs, which were never synced.
    pub(crate) dropped_bytes: u64,
}

impl RecoveredLogs {
    /// A new database, of which nothing is written.
    pub(crate) fn new(database: u64, next_file_number: u64, last_sequence: Sequence) -> RecoveredLogs {
        let (oldest_log, logs, dropped_bytes) = (NO_LOG, Vec::new(), 0);
        RecoveredLogs { database, manifest: None, oldest_log, logs, next_file_number, last_sequence, dropped_bytes }
    }

    /// Its chain of logs, none of which is written behind.
    pub(crate) fn chain(&self, env: &Env, media: &FileMedia, options: &Options) -> LogChain {
        let log_options = LogChainOptions::new(self.database, media, options, options.write_buffer_size as u64);
        let backlog = Arc::new(LogBacklog::new(0, LogGate::default()));
        let chain = LogChain::new(env, media.log_store(), log_options, &backlog, self.oldest_log);
        chain.adopt(&self.logs);
        chain
    }

    /// What is wrong with the stores, and with what [`RecoveredLogs::read`] reads.
    pub(crate) fn check(media: &FileMedia, tree: &str) -> Result<Vec<Finding>, Error> {
        let mut findings = media.check_stores()?;
        if let Err(error) = RecoveredLogs::read(media, tree, &mut |_| Ok(())) {
            findings.push(Finding { severity: Severity::Error, code: "log-damaged", message: error.to_string() });
        }
        Ok(findings)
    }

    /// What is there, or what is created, as the options of creating say. The caller holds the locks; writes nothing.
    ///
    /// Errors: those of [`RecoveredLogs::read`]; [`Error::Exists`] where there is one that must not be.
    pub(crate) fn open(
        env: &Env,
        media: &FileMedia,
        tree: &str,
        options: &Options,
        apply: ApplyBatch<'_>,
    ) -> Result<RecoveredLogs, Error> {
        match RecoveredLogs::read(media, tree, apply) {
            Ok(_) if options.error_if_exists => Err(Error::Exists { store: media.files.name().to_owned() }),
            Err(Error::Missing { .. }) if options.create_if_missing => {
                Ok(RecoveredLogs::new(new_database_id(env, &*media.files), highest_number(media)? + 1, 0))
            }
            read => read,
        }
    }

    /// Reads the manifest and gives every batch of the logs to `apply`, in the order of their writing. Writes nothing.
    ///
    /// Errors: those of [`recover_manifest`] and of [`replay`].
    pub(crate) fn read(media: &FileMedia, tree: &str, apply: ApplyBatch<'_>) -> Result<RecoveredLogs, Error> {
        let manifest = recover_manifest(media, tree)?;
        let (oldest, database) = (manifest.contents.log_number, manifest.database);
        let logs = logs_from(media, oldest)?;
        let of_manifest = Some(LogsOfManifest::of(&manifest));
        let replayed = replay(&Replay { store: &**media.log_store(), logs: &logs, manifest: of_manifest }, apply)?;
        Ok(RecoveredLogs {
            database,
            manifest: Some(manifest.number),
            oldest_log: oldest,
            logs,
            next_file_number: manifest.contents.next_file_number.max(highest_number(media)? + 1),
            last_sequence: replayed.last_sequence,
            dropped_bytes: replayed.dropped_bytes,
        })
    }
}
