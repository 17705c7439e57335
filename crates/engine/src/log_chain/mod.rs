//! The write-ahead logs of a database: a chain, in which each continues where the one before ended.
//!
//! - [`LogChain`]: where they live, whose they are, which of them are still needed, and which were never synced.
//! - [`LogHead`]: the one that is written.
//! - [`LogRewrite`]: the first of a chain, that begins with everything, and the manifest that names it.
//! - [`replay`]: what they hold, in order. [`salvage`]: what of them can be read when something is damaged.

mod fresh;
mod head;
mod replay;
mod rewrite;

use fresh::{FreshLog, write_log};
pub(crate) use head::LogHead;
pub(crate) use replay::{LogFault, LogFaultKind, LogsOfManifest, Replay, open_log, replay, salvage};
pub(crate) use rewrite::{LogRewrite, RewriteState, RewriteTarget};

use crate::error::Error;
use crate::file_name;
use crate::log::{LogBacklog, LogCounters, LogGate, LogHeader, LogWriter, PreviousLog, Purpose};
use crate::media::FileMedia;
use crate::options::Options;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::Env;
use varve_store::{CreateOptions, FileKind, FileStore};

/// Instead of the number of the oldest log needed: the tables hold everything.
pub(crate) const NO_LOG: u64 = 0;

/// What is said of each log of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogChainOptions {
    /// Id of the database.
    pub(crate) database: u64,
    /// Bytes that may be held back between syncs.
    pub(crate) buffer_bytes: u64,
    /// About as long as a log becomes.
    pub(crate) expected_bytes: u64,
    /// Write through memory where the store has that.
    pub(crate) map: bool,
}

impl LogChainOptions {
    /// Of logs of `database` on `media`, about `expected_bytes` long.
    pub(crate) fn new(database: u64, media: &FileMedia, options: &Options, expected_bytes: u64) -> LogChainOptions {
        let buffer_bytes = options.log_buffer_bytes(media.log_store().properties()) as u64;
        LogChainOptions { database, buffer_bytes, expected_bytes, map: options.allow_mmap_writes }
    }
}

/// Which logs there are.
struct Live {
    /// Ascending.
    numbers: Mutex<Vec<u64>>,
    /// Those before this one are not needed for recovery.
    oldest: AtomicU64,
}

/// Logs of one database; see the module. Thread-safe.
pub(crate) struct LogChain {
    env: Env,
    store: Arc<dyn FileStore>,
    options: LogChainOptions,
    counters: Arc<LogCounters>,
    backlog: Arc<LogBacklog>,
    live: Live,
    /// Those that are complete and were never synced, the oldest first. Held across I/O.
    unsynced: varve_env::Mutex<Vec<(u64, LogWriter)>>,
}

impl LogChain {
    /// Logs in `store`, of which those from `oldest` on are needed.
    pub(crate) fn new(
        env: &Env,
        store: &Arc<dyn FileStore>,
        options: LogChainOptions,
        backlog: &Arc<LogBacklog>,
        oldest: u64,
    ) -> LogChain {
        LogChain {
            env: env.clone(),
            store: store.clone(),
            options,
            counters: Arc::default(),
            backlog: backlog.clone(),
            live: Live { numbers: Mutex::default(), oldest: AtomicU64::new(oldest) },
            unsynced: varve_env::Mutex::new(env, "logs to sync", Vec::new()),
        }
    }

    /// What whoever writes a log to the medium passes.
    pub(crate) fn gate(&self) -> &LogGate {
        self.backlog.gate()
    }

    /// What its logs did.
    pub(crate) fn counters(&self) -> &LogCounters {
        &self.counters
    }

    /// A new log, durable by name and header, that continues `previous`. No other has its `salt`.
    pub(crate) fn create(&self, number: u64, salt: u64, previous: Option<PreviousLog>) -> Result<LogWriter, Error> {
        let options = CreateOptions {
            kind: FileKind::Log,
            expected_size_bytes: Some(self.options.expected_bytes),
            map: self.options.map,
            ..CreateOptions::default()
        };
        let name = file_name::log(number);
        let file = self.store.create(&name, &options)?;
        let header =
            LogHeader { purpose: Purpose::WriteAhead, number, salt, database: self.options.database, previous };
        match LogWriter::create(file, &header, self.counters.clone()) {
            Ok(log) => {
                self.live.numbers.lock().push(number);
                let is_gated = self.gate().is_there() && self.store.properties().flush_is_device_request;
                Ok(match self.backlog.limit_bytes() {
                    0 if is_gated => log.hold_back(),
                    0 => log,
                    _ => log.write_behind(&self.env, &self.backlog),
                })
            }
            Err(error) => {
                // Nothing was written to it: tries on a full medium must not pile up files.
                if self.store.remove(&name).is_err() {
                    self.live.numbers.lock().push(number);
                }
                Err(error)
            }
        }
    }

    /// A replay of these logs, ascending, of which the manifest says this.
    pub(crate) fn replay_of<'a>(&'a self, logs: &'a [u64], manifest: LogsOfManifest) -> Replay<'a> {
        Replay { store: &*self.store, logs, manifest: Some(manifest) }
    }

    /// The same for logs from `oldest` on, when tables hold everything up to `last_sequence`.
    #[cfg(test)]
    pub(crate) fn replay_from<'a>(&'a self, logs: &'a [u64], oldest: u64, last_sequence: u64) -> Replay<'a> {
        let database = self.options.database;
        self.replay_of(logs, LogsOfManifest { database, oldest, last_sequence, ..LogsOfManifest::default() })
    }

    /// Logs that an opening leaves where they are.
    pub(crate) fn adopt(&self, numbers: &[u64]) {
        *self.live.numbers.lock() = numbers.to_vec();
    }

    /// What logs before `oldest` hold is in tables: they are not needed any more. Their numbers.
    pub(crate) fn retire(&self, oldest: u64) -> Vec<u64> {
        self.live.oldest.store(oldest, Ordering::Relaxed);
        let mut numbers = self.live.numbers.lock();
        let (needed, retired) = numbers.iter().partition(|number| **number >= oldest);
        *numbers = needed;
        retired
    }

    /// The first that is needed for recovery.
    pub(crate) fn oldest(&self) -> u64 {
        self.live.oldest.load(Ordering::Relaxed)
    }

    /// Makes all that logs before `number` hold durable, the oldest first, those that no sync reached yet; they get their seal,
    /// so that recovery can tell a lost end from one that was never durable. Logs that are not needed any more are left out.
    ///
    /// Errors: those of the store: whether what they hold is durable is unknown, and no sync succeeds from then on.
    pub(crate) fn sync_before(&self, number: u64) -> Result<(), Error> {
        let _pass = self.gate().lead();
        self.sync_complete(number)
    }

    /// The same for who may write logs to the medium.
    fn sync_complete(&self, number: u64) -> Result<(), Error> {
        let mut unsynced = self.unsynced.lock();
        while let Some((oldest, log)) = unsynced.first_mut().filter(|(log, _)| *log < number) {
            let is_needed = self.is_needed(*oldest);
            if is_needed {
                // One that failed stays, and fails for whoever asks next.
                log.sync()?;
            }
            let (_, log) = unsynced.remove(0);
            if is_needed {
                // A seal that does not fit leaves nothing in doubt.
                let _ = log.finish();
            }
        }
        Ok(())
    }

    fn is_needed(&self, number: u64) -> bool {
        number >= self.oldest()
    }
}

#[cfg(test)]
mod tests;
