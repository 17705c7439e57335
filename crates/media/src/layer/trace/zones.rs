//! Traces of zone commands.

use super::{Call, Tracer};
use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use crate::zones::{ZoneControl, ZoneDescription, ZoneId};
use std::sync::Arc;

pub(crate) struct TraceZones {
    tracer: Tracer,
    name: String,
    inner: Arc<dyn ZoneControl>,
}

impl TraceZones {
    pub(crate) fn facet(tracer: &Tracer, name: &str, inner: &Arc<dyn ZoneControl>) -> Arc<dyn ZoneControl> {
        Arc::new(TraceZones { tracer: tracer.clone(), name: name.to_owned(), inner: inner.clone() })
    }

    fn around<T>(
        &self,
        command: &str,
        zone: ZoneId,
        length_bytes: u64,
        context: &IoContext,
        perform: impl FnOnce() -> Result<T, MediaError>,
    ) -> Result<T, MediaError> {
        let name = format!("{} {command}", self.name);
        let offset_bytes = u64::from(zone.0);
        let call = Call { operation: Operation::Zone, name: &name, offset_bytes, length_bytes, context: Some(context) };
        self.tracer.around(call, perform)
    }
}

impl ZoneControl for TraceZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.around("report", first, 0, context, || self.inner.report(first, count, context))
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around("open", zone, 0, context, || self.inner.open(zone, context))
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around("close", zone, 0, context, || self.inner.close(zone, context))
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around("finish", zone, 0, context, || self.inner.finish(zone, context))
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around("reset", zone, 0, context, || self.inner.reset(zone, context))
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.around("append", zone, data.len() as u64, context, || self.inner.append(zone, data, context))
    }
}
