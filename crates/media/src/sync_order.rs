//! The order of a device's syncs: one at a time, none after a failure.

use crate::context::IoContext;
use crate::device::BlockDevice;
use crate::error::MediaError;
use std::sync::{Arc, OnceLock};
use varve_env::{Env, Mutex};

/// The syncs of one device, in order.
///
/// A failed sync may drop unsynced writes of other callers, and the next sync then succeeds without them. So a sync
/// begins only after the previous one has returned and its failure is known to all; after a failure every later sync
/// fails with the same error, until the device is opened again.
///
/// Every store and every layer that syncs a device on its own account holds one `SyncOrder` for that device and syncs
/// it nowhere else (`cargo xtask tidy` checks it). A layer that only forwards its caller's sync needs none: the caller
/// has one. Thread-safe; the turn is the last lock a caller takes.
pub struct SyncOrder {
    block: Arc<dyn BlockDevice>,
    /// `None` for a single user.
    turn: Option<Mutex<()>>,
    failure: OnceLock<MediaError>,
}

impl SyncOrder {
    /// Creates the order of a device that several threads sync.
    pub fn shared(env: &Env, block: Arc<dyn BlockDevice>) -> Arc<SyncOrder> {
        Arc::new(SyncOrder { block, turn: Some(Mutex::new(env, "device sync", ())), failure: OnceLock::new() })
    }

    /// Creates the order of a device that one thread formats, opens or inspects.
    pub fn alone(block: Arc<dyn BlockDevice>) -> Arc<SyncOrder> {
        Arc::new(SyncOrder { block, turn: None, failure: OnceLock::new() })
    }

    /// The error of the sync that failed, if one did.
    pub fn failure(&self) -> Option<&MediaError> {
        self.failure.get()
    }

    /// Makes every completed write durable. Waits for the sync under way.
    ///
    /// # Errors
    /// The error of this sync or of the first one that failed.
    pub fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.as_ref().map(Mutex::lock);
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        self.block.sync(context).map_err(|error| self.failure.get_or_init(|| error).clone())
    }
}

impl std::fmt::Debug for SyncOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncOrder").field("device", &self.block.name()).field("failure", &self.failure).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Device, Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
        Operation,
    };
    use std::time::Duration;

    fn faulty(env: &Env) -> (FaultInjector, Arc<dyn BlockDevice>) {
        let device = Device::of_blocks(Arc::new(Emulated::immediate(env, "disk", 1 << 20)));
        let injector = FaultInjector::new(env, FaultPlan::default());
        let block = FaultDevice::device(&injector, &device).block;
        (injector, block)
    }

    #[test]
    fn every_sync_fails_after_a_failure() {
        let env = Env::real();
        let (injector, block) = faulty(&env);
        for order in [SyncOrder::shared(&env, block.clone()), SyncOrder::alone(block.clone())] {
            let fails = FaultEffect::Fail(FaultError::Io);
            injector.set_plan(FaultPlan::of(Fault::new(Operation::Sync, FaultTrigger::Once(1), fails)));
            let context = IoContext::default();
            assert!(order.sync(&context).is_ok() && order.failure().is_none());
            let first = order.sync(&context).unwrap_err();
            let syncs = injector.calls()[&Operation::Sync];
            assert_eq!(order.sync(&context).unwrap_err().to_string(), first.to_string());
            assert_eq!(injector.calls()[&Operation::Sync], syncs, "the device was asked again");
            assert!(order.failure().is_some());
        }
    }

    #[test]
    fn a_sync_waits_for_the_result_of_the_one_before() {
        for is_dropping in [false, true] {
            let env = Env::sim(1);
            let (injector, block) = faulty(&env);
            let late = Duration::from_millis(2);
            let effect = match is_dropping {
                true => FaultEffect::FailLateDroppingUnsynced(late, FaultError::Io),
                false => FaultEffect::FailLate(late, FaultError::Io),
            };
            injector.set_plan(FaultPlan::of(Fault::new(Operation::Sync, FaultTrigger::Once(0), effect)));
            let order = SyncOrder::shared(&env, block);
            let (first, of_actor) = (Arc::clone(&order), env.clone());
            let actor = of_actor.spawn("first", move || first.sync(&IoContext::default()));
            env.sleep(Duration::from_millis(1));
            assert!(order.sync(&IoContext::default()).is_err(), "dropping: {is_dropping}");
            assert!(actor.join().unwrap_or_else(|panicked| panicked.resume()).is_err());
            assert_eq!(injector.calls()[&Operation::Sync], 1);
        }
    }
}
