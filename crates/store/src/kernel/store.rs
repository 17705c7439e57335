//! The steps that every store on a raw device takes in the same way.

use super::latch::Latch;
use super::locks::NameLocks;
use super::names::{NameTable, Named};
use crate::error::StoreError;
use crate::file_store::StoreLock;
use crate::journal::{self, CommitStyle, Journal};
use crate::name;
use crate::occupancy::StoreMeasure;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Mutex};
use varve_media::{IoContext, MediaError};

/// What a store knows: the names of its files, and what it keeps beside them. Under one lock that is never held across
/// I/O.
pub(crate) trait StoreState: Send {
    /// A file.
    type Node: Named;

    fn names(&self) -> &NameTable<Self::Node>;

    fn names_mut(&mut self) -> &mut NameTable<Self::Node>;

    /// All of it, as bytes of a checkpoint.
    fn checkpoint(&self) -> Vec<u8>;

    /// What the store does beside the table when a file lost its name.
    fn lost_name(&mut self, node: &Self::Node);

    /// What it does when a file has another name.
    fn got_name(&mut self, node: &Arc<Self::Node>);

    /// Gives a new file its name, in place of an older file.
    fn name_new(&mut self, name: &str, node: &Arc<Self::Node>) {
        let replaced = self.names_mut().create(name, node);
        replaced.iter().for_each(|node| self.lost_name(node));
    }

    /// False when there is no such file.
    fn remove(&mut self, name: &str) -> bool {
        let removed = self.names_mut().remove(name);
        removed.iter().for_each(|node| self.lost_name(node));
        removed.is_some()
    }

    /// The change to wait for; `None` when there is no such file.
    fn rename(&mut self, from: &str, to: &str) -> Option<u64> {
        let (change, replaced) = self.names_mut().rename(from, to)?;
        if let Some(node) = self.names().get(to).filter(|_| from != to).cloned() {
            self.got_name(&node);
        }
        replaced.iter().for_each(|node| self.lost_name(node));
        Some(change)
    }
}

/// How commits reach the medium, and what is written beside them.
pub(crate) trait CommitPolicy<S>: Send {
    /// The next commit takes what changed; `state` is locked.
    fn take(&mut self, state: &mut S);

    /// How it reaches the medium.
    fn style(&self) -> CommitStyle;

    /// It is durable, by a checkpoint if the log was full.
    fn committed(&mut self, log_was_full: bool);
}

/// Every commit is one durable write, and nothing is written beside it.
pub(crate) struct SingleCommits;

impl<S> CommitPolicy<S> for SingleCommits {
    fn take(&mut self, _state: &mut S) {}

    fn style(&self) -> CommitStyle {
        CommitStyle::Single
    }

    fn committed(&mut self, _log_was_full: bool) {}
}

/// Held across the I/O of a commit, so that one commit serves all who wait for it.
pub(crate) struct Committer<S> {
    pub(crate) journal: Journal,
    policy: Box<dyn CommitPolicy<S>>,
}

/// What every store on a raw device has, with the state of one of them.
pub(crate) struct Kernel<S> {
    pub(crate) env: Env,
    /// Name of the store in messages.
    pub(crate) label: String,
    pub(crate) state: Mutex<S>,
    /// Taken before the state.
    pub(crate) committer: Mutex<Committer<S>>,
    pub(crate) latch: Latch,
    /// Changes that are durable.
    durable_change: AtomicU64,
    locks: Arc<NameLocks>,
    commits: AtomicU64,
    commit_bytes: AtomicU64,
    checkpoints: AtomicU64,
}

/// What was committed since a store was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitCounts {
    pub(crate) commits: u64,
    pub(crate) commit_bytes: u64,
    /// Checkpoints made in place of a commit.
    pub(crate) checkpoints: u64,
}

impl<S> Kernel<S> {
    pub(crate) fn new(
        env: &Env,
        label: &str,
        state: S,
        journal: Journal,
        policy: Box<dyn CommitPolicy<S>>,
        latch: Latch,
    ) -> Kernel<S> {
        Kernel {
            env: env.clone(),
            label: label.to_owned(),
            state: Mutex::new(env, "metadata of a store", state),
            committer: Mutex::new(env, "commit of a store", Committer { journal, policy }),
            latch,
            durable_change: AtomicU64::new(0),
            locks: Arc::default(),
            commits: AtomicU64::new(0),
            commit_bytes: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
        }
    }

    pub(crate) fn commit_counts(&self) -> CommitCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CommitCounts {
            commits: count(&self.commits),
            commit_bytes: count(&self.commit_bytes),
            checkpoints: count(&self.checkpoints),
        }
    }

    /// What was committed and synced, as numbers of the store.
    pub(crate) fn measures(&self) -> Vec<StoreMeasure> {
        let CommitCounts { commits, checkpoints, .. } = self.commit_counts();
        vec![
            StoreMeasure::count("commits", commits),
            StoreMeasure::count("checkpoints", checkpoints),
            StoreMeasure::count("syncs", self.latch.syncs()),
        ]
    }

    pub(crate) fn media_error(&self, name: &str, source: MediaError) -> StoreError {
        journal::media_error(&self.label, name, source)
    }

    fn is_durable(&self, change: u64) -> bool {
        self.durable_change.load(Ordering::Acquire) >= change
    }
}

/// A store on a raw device: a kernel, and what is the store's own.
pub(crate) trait RawStore: Deref<Target = Kernel<<Self as RawStore>::State>> {
    type State: StoreState;

    /// Frees what the first `durable_change` changes have made free. The committer is locked, so that one frees at a time.
    fn reclaim(&self, durable_change: u64);

    /// Makes what is on the device of a file durable, contents, length and name, for a change of its name.
    fn sync_file(
        &self,
        node: &Arc<<Self::State as StoreState>::Node>,
        name: &str,
        context: &IoContext,
    ) -> Result<(), StoreError>;

    /// Refuses everything that would acknowledge something after a failure that left the medium unknown.
    fn check(&self) -> Result<(), StoreError> {
        self.latch.check()
    }

    /// Passes an error on and refuses everything from now on.
    fn poison(&self, error: StoreError) -> StoreError {
        self.latch.close(error)
    }

    /// Makes the first `change` changes durable.
    fn commit(&self, change: u64) -> Result<(), StoreError> {
        if self.is_durable(change) {
            return Ok(());
        }
        let mut committer = self.committer.lock();
        if self.is_durable(change) {
            return Ok(());
        }
        self.commit_pending(&mut committer)
    }

    /// Makes every change so far durable, and free what that makes free.
    fn commit_all(&self) -> Result<(), StoreError> {
        self.commit_pending(&mut self.committer.lock())
    }

    /// The same, by whoever has the committer.
    fn commit_pending(&self, committer: &mut Committer<Self::State>) -> Result<(), StoreError> {
        self.check()?;
        let Committer { journal, policy } = committer;
        let (payload, mut change) = {
            let mut state = self.state.lock();
            policy.take(&mut state);
            state.names_mut().take_pending()
        };
        let style = policy.style();
        let is_full = !payload.is_empty() && !journal.fits(payload.len(), style);
        let outcome = if payload.is_empty() {
            Ok(())
        } else if !is_full {
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.commit_bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
            journal.commit(&payload, style)
        } else {
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            let checkpoint = {
                let mut state = self.state.lock();
                policy.take(&mut state);
                // It takes the place of what waits.
                (_, change) = state.names_mut().take_pending();
                state.checkpoint()
            };
            journal.begin(Some(&checkpoint))
        };
        outcome.map_err(|error| self.poison(error))?;
        self.durable_change.fetch_max(change, Ordering::AcqRel);
        policy.committed(is_full);
        self.reclaim(change);
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), StoreError> {
        name::check(name).map_err(|reason| name::invalid(&self.label, name, reason))
    }

    fn not_found(&self, name: &str) -> StoreError {
        StoreError::NotFound { store: self.label.clone(), name: name.to_owned() }
    }

    /// The metadata has no room to describe more.
    fn no_room(&self, name: &str) -> StoreError {
        let (store, name) = (self.label.clone(), name.to_owned());
        StoreError::NoSpace { store, name, requested_bytes: 0, available_bytes: 0 }
    }

    /// The file of a name.
    fn find(&self, name: &str) -> Result<Arc<<Self::State as StoreState>::Node>, StoreError> {
        self.check_name(name)?;
        self.state.lock().names().get(name).cloned().ok_or_else(|| self.not_found(name))
    }

    /// Changes the name of a file, durably.
    fn rename_file(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.check_name(to)?;
        let node = self.find(from)?;
        self.check()?;
        self.sync_file(&node, from, &IoContext::default())?;
        drop(node);
        let change = {
            let mut state = self.state.lock();
            if !state.names().has_room_to_rename(from, to) {
                return Err(self.no_room(to));
            }
            state.rename(from, to).ok_or_else(|| self.not_found(from))?
        };
        self.commit(change)
    }

    /// Takes the name of a file; durable with the next commit.
    fn remove_file(&self, name: &str) -> Result<(), StoreError> {
        self.check_name(name)?;
        self.check()?;
        if self.state.lock().remove(name) { Ok(()) } else { Err(self.not_found(name)) }
    }

    /// Makes every change of a name durable.
    fn commit_names(&self) -> Result<(), StoreError> {
        self.check()?;
        let change = self.state.lock().names().change();
        self.commit(change)
    }

    /// Nothing is shared with another place: whether both names can be.
    fn refuse_to_share(&self, name: &str, target_name: &str) -> Result<bool, StoreError> {
        self.check_name(target_name)?;
        self.find(name).map(|_| false)
    }

    /// Locks a name, of a file or not, against others who have this store open.
    fn lock_name(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        self.check_name(name)?;
        match NameLocks::lock(&self.locks, name) {
            Some(lock) => Ok(Box::new(lock)),
            None => Err(StoreError::Locked { store: self.label.clone(), name: name.to_owned() }),
        }
    }
}
