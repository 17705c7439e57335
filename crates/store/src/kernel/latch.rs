//! Whether a store still acknowledges anything.

use crate::error::StoreError;
use crate::journal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use varve_media::{IoContext, MediaError, SyncOrder};

/// Closed by the first failure that leaves unknown what is on a medium: from then on nothing is acknowledged, until the
/// store is opened again. Thread-safe.
pub(crate) struct Latch {
    label: String,
    /// Of the device with the data of files.
    order: Arc<SyncOrder>,
    /// Of other devices of the store, and of those beneath its own.
    others: Vec<Arc<SyncOrder>>,
    cause: OnceLock<String>,
    syncs: AtomicU64,
}

impl Latch {
    /// Open. A sync that failed in one of these orders closes it, whoever synced.
    pub(crate) fn new(label: &str, order: Arc<SyncOrder>, others: Vec<Arc<SyncOrder>>) -> Latch {
        Latch { label: label.to_owned(), order, others, cause: OnceLock::new(), syncs: AtomicU64::new(0) }
    }

    fn failed_sync(&self) -> Option<&MediaError> {
        std::iter::once(&self.order).chain(&self.others).find_map(|order| order.failure())
    }

    /// Whether everything that would acknowledge something is refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.cause.get().is_some() || self.failed_sync().is_some()
    }

    /// Refuses everything that would acknowledge something after a failure that left the medium unknown.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match (self.cause.get(), self.failed_sync()) {
            (Some(cause), _) => Err(self.refusal(cause)),
            (None, Some(error)) => Err(self.refusal(&error.to_string())),
            (None, None) => Ok(()),
        }
    }

    /// What is said to those who are refused.
    pub(crate) fn refusal(&self, cause: &str) -> StoreError {
        StoreError::Poisoned { store: self.label.clone(), cause: cause.to_owned() }
    }

    /// Passes an error on and refuses everything from now on.
    pub(crate) fn close(&self, error: StoreError) -> StoreError {
        self.cause.get_or_init(|| error.to_string());
        error
    }

    /// Makes every write to the device with the data of files that has completed durable.
    ///
    /// Errors: the sync failed, which closes the latch; or it was closed.
    pub(crate) fn sync(&self, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.order.sync(context).map_err(|error| self.close(journal::media_error(&self.label, "sync", error)))
    }

    /// Syncs so far for the data of files.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
