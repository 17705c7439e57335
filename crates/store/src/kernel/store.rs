//! The steps that every store on a raw device takes in the same way.

use super::latch::Latch;
use super::locks::NameLocks;
use super::names::{NameTable, Named};
use crate::error::StoreError;
use crate::file_store::StoreLock;
use crate::journal::{self, CommitStyle, Committed, Journal};
use crate::name;
use crate::occupancy::StoreMeasure;
use crate::wire::Writer;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Mutex, MutexGuard};
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
        replaced.iter().for_each(|node| self.lost_name(node));
        Some(change)
    }
}

/// How commits reach the medium, when, and what is written beside them. Told everything in the order in which it happens
/// to the medium, and asked by one at a time.
pub(crate) trait CommitPolicy<N: Named>: Send {
    /// How long a change waits for a commit at most, where it does not wait for somebody who needs one.
    fn interval_nanos(&self) -> Option<u64>;

    /// The next commit has these changes, which follow those that were told before.
    fn take(&mut self, changes: &[N::Change]);

    /// How it reaches the medium.
    fn style(&self) -> CommitStyle;

    /// It is durable, by a checkpoint if the log was full.
    fn committed(&mut self, log_was_full: bool);

    /// The places of these files are free: nothing more is told of them.
    fn freed(&mut self, nodes: &[Arc<N>]);
}

/// Every commit is one durable write, and nothing is written beside it.
pub(crate) struct SingleCommits;

impl<N: Named> CommitPolicy<N> for SingleCommits {
    fn interval_nanos(&self) -> Option<u64> {
        None
    }

    fn take(&mut self, _changes: &[N::Change]) {}

    fn style(&self) -> CommitStyle {
        CommitStyle::Single
    }

    fn committed(&mut self, _log_was_full: bool) {}

    fn freed(&mut self, _nodes: &[Arc<N>]) {}
}

/// Held across the I/O of a commit, so that one commit serves all who wait for it.
pub(crate) struct Committer<N> {
    pub(crate) journal: Journal,
    policy: Box<dyn CommitPolicy<N>>,
}

/// What every store on a raw device has, with the state of one of them.
pub(crate) struct Kernel<S: StoreState> {
    pub(crate) env: Env,
    /// Name of the store in messages.
    pub(crate) label: String,
    pub(crate) state: Mutex<S>,
    /// Taken before the state.
    pub(crate) committer: Mutex<Committer<S::Node>>,
    pub(crate) latch: Latch,
    /// Changes that are durable.
    durable_change: AtomicU64,
    commit_interval_nanos: Option<u64>,
    last_commit_nanos: AtomicU64,
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

impl<S: StoreState> Kernel<S> {
    pub(crate) fn new(
        env: &Env,
        label: &str,
        state: S,
        journal: Journal,
        policy: Box<dyn CommitPolicy<S::Node>>,
        latch: Latch,
    ) -> Kernel<S> {
        Kernel {
            env: env.clone(),
            label: label.to_owned(),
            state: Mutex::new(env, "metadata of a store", state),
            commit_interval_nanos: policy.interval_nanos(),
            last_commit_nanos: AtomicU64::new(env.now().as_nanos()),
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

    /// Frees the places of these files, and what else the first `durable_change` changes have made free. The committer is
    /// locked, so that one frees at a time.
    fn reclaim(
        &self,
        state: MutexGuard<'_, Self::State>,
        free: Vec<Arc<<Self::State as StoreState>::Node>>,
        durable_change: u64,
    );

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
    fn commit_pending(&self, committer: &mut Committer<<Self::State as StoreState>::Node>) -> Result<(), StoreError> {
        self.check()?;
        let Committer { journal, policy } = committer;
        let (changes, mut change) = self.state.lock().names_mut().take_pending();
        policy.take(&changes);
        let mut payload = Writer::default();
        changes.iter().for_each(|change| <Self::State as StoreState>::Node::encode(&mut payload, change));
        let payload = payload.into_vec();
        let style = policy.style();
        let is_full = !payload.is_empty() && !journal.fits(payload.len(), style);
        let committed = if payload.is_empty() {
            Ok(Committed::Durable)
        } else if !is_full {
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.commit_bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
            journal.commit(&payload, style)
        } else {
            Ok(Committed::NeedsGeneration)
        };
        let needs_generation = committed.map_err(|error| self.poison(error))? == Committed::NeedsGeneration;
        if needs_generation {
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            let (changes, checkpoint);
            {
                let mut state = self.state.lock();
                // It takes the place of what waits.
                (changes, change) = state.names_mut().take_pending();
                checkpoint = state.checkpoint();
            }
            policy.take(&changes);
            journal.begin(Some(&checkpoint)).map_err(|error| self.poison(error))?;
        }
        self.durable_change.fetch_max(change, Ordering::AcqRel);
        self.last_commit_nanos.store(self.env.now().as_nanos(), Ordering::Relaxed);
        policy.committed(needs_generation);
        let mut state = self.state.lock();
        let free = state.names_mut().take_free(change);
        policy.freed(&free);
        self.reclaim(state, free, change);
        Ok(())
    }

    /// Commits what has waited as long as the policy lets it. No thread does that: whoever comes next does.
    fn commit_if_due(&self) -> Result<(), StoreError> {
        let Some(interval_nanos) = self.commit_interval_nanos else { return Ok(()) };
        let now = self.env.now().as_nanos();
        if now.saturating_sub(self.last_commit_nanos.load(Ordering::Relaxed)) < interval_nanos {
            return Ok(());
        }
        self.last_commit_nanos.store(now, Ordering::Relaxed);
        let change = {
            let state = self.state.lock();
            state.names().has_pending().then(|| state.names().change())
        };
        change.map_or(Ok(()), |change| self.commit(change))
    }

    fn check_name(&self, name: &str) -> Result<(), StoreError> {
        name::check(name).map_err(|reason| name::invalid(&self.label, name, reason))
    }

    fn not_found(&self, name: &str) -> StoreError {
        StoreError::NotFound { store: self.label.clone(), name: name.to_owned() }
    }

    /// The metadata has no space to describe more.
    fn no_metadata_space(&self, name: &str) -> StoreError {
        let (store, name) = (self.label.clone(), name.to_owned());
        StoreError::NoSpace { store, name, requested_bytes: 0, available_bytes: 0, zones: None }
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
            if !state.names().has_space_to_rename(from, to) {
                return Err(self.no_metadata_space(to));
            }
            state.rename(from, to).ok_or_else(|| self.not_found(from))?
        };
        self.commit(change)
    }

    /// Whether a file of this name can be made or removed now.
    fn begin_change(&self, name: &str) -> Result<(), StoreError> {
        self.check_name(name)?;
        self.check()?;
        self.commit_if_due()
    }

    /// Takes the name of a file; durable with the next commit.
    fn remove_file(&self, name: &str) -> Result<(), StoreError> {
        self.begin_change(name)?;
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
