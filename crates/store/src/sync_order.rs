//! Syncs of a device, one after the other.

use varve_env::{Env, Mutex, MutexGuard};

/// Whose turn it is to sync a device.
///
/// A sync that fails may have dropped what others wrote, and the next one succeeds without it. So none begins before
/// the one before it has ended and everybody knows whether it failed: whoever syncs does so in its turn, and keeps the
/// turn until it has poisoned a failure.
pub(crate) struct SyncOrder {
    turn: Mutex<()>,
}

impl SyncOrder {
    pub(crate) fn new(env: &Env) -> SyncOrder {
        SyncOrder { turn: Mutex::new(env, "device sync", ()) }
    }

    /// Waits for the turn. `check` says whether a sync before this one failed; then there is none. Nothing else is
    /// locked by whoever has the turn.
    pub(crate) fn turn<E>(&self, check: impl FnOnce() -> Result<(), E>) -> Result<MutexGuard<'_, ()>, E> {
        let turn = self.turn.lock();
        check().map(|()| turn)
    }
}
