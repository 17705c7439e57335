//! A zoned device whose zones are kept in a record.

use super::ZoneTable;
use super::record::ZoneRecord;
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry};
use crate::error::MediaError;
use crate::request::{Request, Transfer};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Passes every request on and writes to the record what it changed. Whoever needs both locks takes that of the table
/// first.
pub(super) struct Recorded {
    pub(super) inner: Arc<dyn BlockDevice>,
    pub(super) table: Arc<Mutex<ZoneTable>>,
    pub(super) record: Arc<Mutex<ZoneRecord>>,
}

/// Notes in the record how far a completed write took its zones.
pub(super) fn follow(
    table: &Mutex<ZoneTable>,
    record: &Mutex<ZoneRecord>,
    written: &Range<u64>,
) -> Result<(), MediaError> {
    {
        let table = table.lock();
        let mut zones = table.geometry().zones_in(written);
        zones.try_for_each(|zone| record.lock().written(zone, table.state(zone)))?;
    }
    follow_cleanings(table, record)
}

/// Notes in the record which zones the device has cleaned.
fn follow_cleanings(table: &Mutex<ZoneTable>, record: &Mutex<ZoneRecord>) -> Result<(), MediaError> {
    let mut table = table.lock();
    let cleaned = table.take_cleaned();
    cleaned.into_iter().try_for_each(|zone| record.lock().cleaned(zone, table.state(zone)))
}

impl Recorded {
    /// Notes how far a completed durable write took its zones. Where bytes before it are not durable the device is synced: the
    /// pointer of a zone counts up to the first byte that is not.
    fn follow_durable(&self, written: &Range<u64>, context: &IoContext) -> Result<(), MediaError> {
        let mut is_enough = true;
        {
            let table = self.table.lock();
            let mut record = self.record.lock();
            for zone in table.geometry().zones_in(written) {
                let from = written.start.saturating_sub(table.geometry().start_bytes(zone));
                is_enough &= record.written_durably(zone, table.state(zone), from)?;
            }
        }
        follow_cleanings(&self.table, &self.record)?;
        if is_enough { Ok(()) } else { self.sync(context) }
    }
}

impl BlockDevice for Recorded {
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
        let mut result = self.inner.execute(requests, context);
        for request in requests.iter_mut() {
            let length_bytes = request.length_bytes();
            let Transfer::Write { durable, .. } = request.transfer else { continue };
            if length_bytes == 0 || request.outcome.is_err() {
                continue;
            }
            let written = request.offset_bytes..request.offset_bytes + length_bytes;
            request.outcome = match durable {
                true => self.follow_durable(&written, context),
                false => follow(&self.table, &self.record, &written),
            };
            result = result.and(request.outcome.clone());
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        follow_cleanings(&self.table, &self.record)?;
        let written = self.record.lock().begin_sync();
        match self.inner.sync(context) {
            Ok(()) => self.record.lock().synced(&written),
            Err(error) => {
                self.record.lock().sync_failed(&written);
                Err(error)
            }
        }
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // Nobody is left to tell; a zone of which it is not known is cleaned once more.
        let _ = follow_cleanings(&self.table, &self.record);
    }
}
