//! Syncs of a device, one after the other, and none after one that failed.

use std::sync::{Arc, OnceLock};
use varve_env::{Env, Mutex};
use varve_media::{BlockDevice, IoContext, MediaError};

/// Syncs a device. Nothing else in a store on a raw device does.
///
/// A sync that fails may have dropped what others wrote, and the next one succeeds without it. So none begins before
/// the one before it has ended and everybody can know whether it failed; after one that did, all fail. Thread-safe.
pub(crate) struct SyncOrder {
    block: Arc<dyn BlockDevice>,
    /// None where one alone writes.
    turn: Option<Mutex<()>>,
    failure: OnceLock<MediaError>,
}

impl SyncOrder {
    /// For the users of an open store.
    pub(crate) fn shared(env: &Env, block: Arc<dyn BlockDevice>) -> Arc<SyncOrder> {
        Arc::new(SyncOrder { block, turn: Some(Mutex::new(env, "device sync", ())), failure: OnceLock::new() })
    }

    /// For one who formats a device, opens it or looks at it.
    pub(crate) fn alone(block: Arc<dyn BlockDevice>) -> Arc<SyncOrder> {
        Arc::new(SyncOrder { block, turn: None, failure: OnceLock::new() })
    }

    /// The sync that failed.
    pub(crate) fn failure(&self) -> Option<&MediaError> {
        self.failure.get()
    }

    /// Makes every write that has completed durable. The turn is taken last: nothing else is locked by whoever has it.
    ///
    /// Errors: what this sync or one before it has failed with.
    pub(crate) fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.as_ref().map(Mutex::lock);
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        self.block.sync(context).map_err(|error| self.failure.get_or_init(|| error).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_media::{
        Device, Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
        Operation,
    };

    #[test]
    fn after_one_that_failed_all_fail() {
        let env = Env::real();
        let device = Device::of_blocks(Arc::new(Emulated::immediate(&env, "disk", 1 << 20)));
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let block = FaultDevice::device(&injector, &device).block;
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
}
