//! A database whose logs hold everything begins its chain anew: with one log, and a manifest that names it.

use super::{FreshLog, LogChain, LogHead, write_log};
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::file_name;
use crate::key::Sequence;
use crate::manifest::{Manifest, ManifestIdentity, VersionEdit};
use crate::numbers::Numbers;
use crate::statistics::Totals;
use varve_store::FileStore;

/// A log of everything, and the manifest that names it: durable, but it does not hold before one of the two that end this.
pub(crate) struct LogRewrite {
    log: FreshLog,
    manifest: Manifest,
}

/// Where a rewrite goes.
pub(crate) struct RewriteTarget<'a> {
    /// Store of the manifest.
    pub(crate) files: &'a dyn FileStore,
    /// Store of the log.
    pub(crate) logs: &'a dyn FileStore,
    /// What the kind of tree is called.
    pub(crate) tree: &'a str,
    /// Id of the database.
    pub(crate) database: u64,
}

impl LogRewrite {
    /// Writes all pairs of `walk`, numbered from the one behind `sequence` on, and the manifest. What was written is removed, if
    /// it can be, when it fails.
    pub(crate) fn prepare(
        target: &RewriteTarget<'_>,
        numbers: &Numbers,
        sequence: Sequence,
        walk: DbIterator,
    ) -> Result<LogRewrite, Error> {
        let RewriteTarget { files, logs, tree, database } = *target;
        let (number, manifest_number) = (numbers.file(), numbers.file());
        let log = write_log(logs, (number, numbers.random()), database, sequence, walk)?;
        let edit = VersionEdit {
            num_levels: Some(0),
            next_file_number: Some(numbers.next_file()),
            last_sequence: Some(sequence),
            log_number: Some(number),
            totals: Some(Totals::default()),
            ..VersionEdit::default()
        };
        let identity = ManifestIdentity { database, salt: numbers.random() };
        let manifest = Manifest::prepare(files, manifest_number, tree, &edit, identity);
        let manifest = manifest.inspect_err(|_| drop(logs.remove(&file_name::log(number))))?;
        Ok(LogRewrite { log, manifest })
    }

    /// Has it hold instead of the logs of `chain` and of their manifest, which are removed; `head` goes on in its log. The
    /// sequence number of its newest entry.
    ///
    /// Errors: those of the store of manifests; then `head` is broken off, because a crash may find either log.
    pub(crate) fn switch(
        self,
        files: &dyn FileStore,
        chain: &LogChain,
        head: &mut LogHead,
        state: &mut RewriteState,
    ) -> Result<Sequence, Error> {
        if let Err(error) = self.manifest.switch(files) {
            // What comes next has to be in a log that is surely found.
            head.break_off();
            return Err(error);
        }
        let FreshLog { number, log, last_sequence } = self.log;
        for old in chain.retire(number) {
            let _ = chain.store.remove(&file_name::log(old));
        }
        chain.adopt(&[number]);
        state.grown_bytes = 0;
        state.grown_bytes_max = log.size_bytes().max(state.grown_bytes_min);
        if let Some(old) = state.manifest.replace(self.manifest.number()) {
            let _ = files.remove(&file_name::manifest(old));
        }
        head.forget_unsynced(chain);
        *head = LogHead::new(Some((number, log)));
        Ok(last_sequence)
    }

    /// Has it hold in a place of its own, where nobody writes on.
    pub(crate) fn finish(self, files: &dyn FileStore) -> Result<(), Error> {
        self.log.log.finish()?;
        self.manifest.switch(files)
    }
}

/// What the next rewrite depends on: the manifest it replaces, and how far the log has grown since the last.
pub(crate) struct RewriteState {
    /// The manifest that CURRENT names.
    pub(crate) manifest: Option<u64>,
    /// Bytes of batches, and of how many there may be before the next rewrite.
    grown_bytes: u64,
    grown_bytes_max: u64,
    /// A log grows by so many whatever it began with.
    grown_bytes_min: u64,
}

impl RewriteState {
    /// Before the first rewrite.
    pub(crate) fn new(manifest: Option<u64>, grown_bytes_min: u64) -> RewriteState {
        RewriteState { manifest, grown_bytes: 0, grown_bytes_max: 0, grown_bytes_min }
    }

    /// Batches of so many bytes were appended.
    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.grown_bytes += bytes as u64;
    }

    /// The log has grown to twice what it began with.
    pub(crate) fn is_due(&self) -> bool {
        self.grown_bytes > self.grown_bytes_max
    }

    /// One that was due failed: the next is when the log has grown to twice this.
    pub(crate) fn postpone(&mut self) {
        self.grown_bytes_max = self.grown_bytes.saturating_mul(2);
    }
}
