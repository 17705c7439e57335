//! Traces of block devices.

use super::{Call, TraceSink, Tracer};
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Device, Geometry};
use crate::error::{MediaError, Operation};
use crate::layer::Layer;
use crate::request::{Request, Transfer};
use std::sync::Arc;
use varve_env::Env;

/// A layer that tells a sink about every request, sync and zone command. It adds no I/O.
pub struct TraceDevice {
    tracer: Tracer,
    inner: Arc<dyn BlockDevice>,
}

impl TraceDevice {
    /// `inner` with all its facets, traced to `sink`.
    pub fn device(env: &Env, sink: Arc<dyn TraceSink>, inner: &Device) -> Device {
        let tracer = Tracer { env: env.clone(), sink };
        let blocks = TraceDevice { tracer: tracer.clone(), inner: inner.block.clone() };
        inner.below(&Layer::Trace { tracer: &tracer, name: inner.block.name() }, Arc::new(blocks))
    }

    fn call<'a>(&'a self, operation: Operation, context: &'a IoContext) -> Call<'a> {
        Call { operation, name: self.inner.name(), offset_bytes: 0, length_bytes: 0, context: Some(context) }
    }
}

impl BlockDevice for TraceDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let begin = self.tracer.env.now();
        let result = self.inner.execute(requests, context);
        for request in requests {
            let operation = match request.transfer {
                Transfer::Read { .. } => Operation::Read,
                Transfer::Write { .. } => Operation::Write,
                Transfer::Discard { .. } => Operation::Discard,
            };
            let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes());
            let call = Call { offset_bytes, length_bytes, ..self.call(operation, context) };
            self.tracer.record(call, begin, request.outcome.as_ref().map(|_| ()));
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.tracer.around(self.call(Operation::Sync, context), || self.inner.sync(context))
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
