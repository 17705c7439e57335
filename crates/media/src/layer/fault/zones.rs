//! Faults of zone commands.

use super::{Call, FaultInjector};
use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use crate::zones::{ZoneControl, ZoneDescription, ZoneId};
use std::sync::Arc;

pub(super) struct FaultZones {
    injector: FaultInjector,
    name: String,
    inner: Arc<dyn ZoneControl>,
}

impl FaultZones {
    pub(super) fn facet(injector: &FaultInjector, name: &str, inner: &Arc<dyn ZoneControl>) -> Arc<dyn ZoneControl> {
        Arc::new(FaultZones { injector: injector.clone(), name: name.to_owned(), inner: inner.clone() })
    }

    fn around<T>(
        &self,
        context: &IoContext,
        perform: impl FnOnce() -> Result<T, MediaError>,
        lost: Option<T>,
    ) -> Result<T, MediaError> {
        let call = Call { operation: Operation::Zone, name: None, range: None, context: Some(context) };
        self.injector.around(&self.name, call, perform, lost)
    }
}

impl ZoneControl for FaultZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.around(context, || self.inner.report(first, count, context), None)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(context, || self.inner.open(zone, context), Some(()))
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(context, || self.inner.close(zone, context), Some(()))
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(context, || self.inner.finish(zone, context), Some(()))
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(context, || self.inner.reset(zone, context), Some(()))
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.around(context, || self.inner.append(zone, data, context), None)
    }
}
