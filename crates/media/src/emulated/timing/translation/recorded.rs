//! A drive whose media cache is kept in a record.

use super::parameters::TranslationParameters;
use super::record::MediaCacheRecord;
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Device, Geometry};
use crate::error::MediaError;
use crate::request::{Request, Transfer};
use parking_lot::Mutex;
use std::sync::Arc;

/// A translation layer, and where what lasts of it is kept.
pub struct Translation {
    /// What it is like.
    pub parameters: TranslationParameters,
    /// Of the same zones and media cache; `None` of a drive that does not last.
    pub record: Option<MediaCacheRecord>,
}

impl From<TranslationParameters> for Translation {
    fn from(parameters: TranslationParameters) -> Self {
        Translation { parameters, record: None }
    }
}

/// Passes every request on, and takes note of what it changed behind the zones.
pub(crate) struct CacheRecorded {
    inner: Arc<dyn BlockDevice>,
    record: Mutex<MediaCacheRecord>,
}

impl CacheRecorded {
    /// `device`, whose translation layer goes on with what is in `record`. In a simulation it is dropped by an actor.
    pub(crate) fn device(device: Device, record: MediaCacheRecord) -> Device {
        let block = Arc::new(CacheRecorded { inner: device.block.clone(), record: Mutex::new(record) });
        Device { block, ..device }
    }
}

impl BlockDevice for CacheRecorded {
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
        let result = self.inner.execute(requests, context);
        if requests.iter().all(|request| matches!(request.transfer, Transfer::Read { .. })) {
            return result;
        }
        let Err(error) = self.record.lock().follow() else { return result };
        for request in requests.iter_mut() {
            if matches!(request.transfer, Transfer::Write { .. }) && request.outcome.is_ok() {
                request.outcome = Err(error.clone());
            }
        }
        result.and(Err(error))
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)?;
        self.record.lock().sync()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

impl Drop for CacheRecorded {
    fn drop(&mut self) {
        // The drive has cleaned up to this moment. Nobody is left to tell of errors: without it the drive has cleaned less.
        let _ = self.inner.counters();
        let _ = self.record.lock().follow();
    }
}
