//! The commands of zones.

use super::recorded::follow;
use super::table::{Refused, ZoneCommand};
use super::{ZoneRecord, ZoneTable};
use crate::context::IoContext;
use crate::device::BlockDevice;
use crate::error::{MediaError, Operation};
use crate::request::{Request, check_request};
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneId, ZoneType};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// The device whose zones are commanded.
pub(crate) trait ZonedGround: BlockDevice {
    /// Does a write that the rules have admitted already.
    fn write_admitted(&self, offset_bytes: u64, data: &[u8], context: &IoContext) -> Result<(), MediaError>;

    /// Carries out the device's part of a command to a zone in this state; returns when the time it takes has
    /// passed.
    fn command(&self, command: ZoneCommand, zone: &ZoneDescription) -> Result<(), MediaError>;

    /// Lets the time of a report pass.
    fn wait_for_report(&self);

    /// Gives back what the bytes of a zone occupied. They read as zeros already, unless they `show_through`.
    fn forget(&self, range: Range<u64>, show_through: bool) -> Result<(), MediaError>;

    /// Counts a command that was done, or one that failed.
    fn count(&self, done: Option<ZoneCommand>);
}

/// The facet. Shares its state with the rules.
pub(crate) struct Control<G> {
    pub(crate) table: Arc<Mutex<ZoneTable>>,
    pub(crate) record: Option<Arc<Mutex<ZoneRecord>>>,
    pub(crate) ground: Arc<G>,
}

impl<G: ZonedGround> Control<G> {
    fn refused(&self, refused: Refused) -> MediaError {
        let offset_bytes = self.table.lock().geometry().start_bytes(refused.zone);
        self.ground.count(None);
        refused.at(self.ground.name(), Operation::Zone, offset_bytes)
    }

    /// Takes the bytes of a zone away. The record says so before.
    fn forget(&self, zone: ZoneId, all: Range<u64>, show_through: bool) -> Result<(), MediaError> {
        let Some(record) = &self.record else { return self.ground.forget(all, show_through) };
        let mut record = record.lock();
        record.begin_reset(zone)?;
        self.ground.forget(all, show_through).inspect_err(|_| record.reset_failed(zone))
    }

    /// Ends the resets that were interrupted when the device was last used. One that cannot be ended now is tried again
    /// when the device is next made; until then its zone is empty, and may show what was there.
    pub(super) fn end_interrupted_resets(&self) {
        let Some(record) = &self.record else { return };
        let table = self.table.lock();
        let mut record = record.lock();
        let show_through = table.geometry().sequential_type == ZoneType::SequentialWritePreferred;
        for zone in record.interrupted_resets() {
            let range = table.geometry().range(zone);
            if self.ground.forget(range, show_through).is_ok() {
                let _ = record.commanded(zone, table.state(zone));
            }
        }
    }

    fn perform(&self, command: ZoneCommand, zone: ZoneId) -> Result<(), MediaError> {
        let planned = {
            let table = self.table.lock();
            table.plan(command, zone).map(|plan| plan.map(|_| table.describe(zone)))
        };
        let Some(description) = planned.map_err(|refused| self.refused(refused))? else { return Ok(()) };
        let ZoneDescription { start_bytes, length_bytes, .. } = description;
        let all = start_bytes..start_bytes + length_bytes;
        if let Err(error) = self.ground.command(command, &description) {
            self.ground.count(None);
            return Err(error);
        }
        let mut table = self.table.lock();
        // Others may have commanded the zone meanwhile.
        match table.plan(command, zone) {
            Ok(Some(plan)) => {
                if plan.condition == ZoneCondition::Empty && command == ZoneCommand::Reset {
                    // Of a preferred zone sectors may be skipped.
                    let show_through = table.geometry().sequential_type == ZoneType::SequentialWritePreferred;
                    self.forget(zone, all, show_through)?;
                }
                table.apply(zone, plan);
                let lasts = matches!(command, ZoneCommand::Finish | ZoneCommand::Reset);
                if let Some(record) = self.record.as_ref().filter(|_| lasts) {
                    record.lock().commanded(zone, table.state(zone))?;
                }
            }
            Ok(None) => {}
            Err(refused) => {
                drop(table);
                return Err(self.refused(refused));
            }
        }
        self.ground.count(Some(command));
        Ok(())
    }
}

impl<G: ZonedGround> ZoneControl for Control<G> {
    fn report(&self, first: ZoneId, count: u32, _context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        // What the device does when nobody asks anything of it changes what it says.
        if self.table.lock().geometry().media_cache.is_some() {
            self.ground.wait_for_report();
        }
        let reported = {
            let table = self.table.lock();
            let end = first.0.saturating_add(count).min(table.geometry().zone_count);
            let describe = |zone| table.describe(ZoneId(zone));
            table.check_exists(first).map(|()| (first.0..end).map(describe).collect())
        };
        reported.map_err(|refused| self.refused(refused))
    }

    fn open(&self, zone: ZoneId, _context: &IoContext) -> Result<(), MediaError> {
        self.perform(ZoneCommand::Open, zone)
    }

    fn close(&self, zone: ZoneId, _context: &IoContext) -> Result<(), MediaError> {
        self.perform(ZoneCommand::Close, zone)
    }

    fn finish(&self, zone: ZoneId, _context: &IoContext) -> Result<(), MediaError> {
        self.perform(ZoneCommand::Finish, zone)
    }

    fn reset(&self, zone: ZoneId, _context: &IoContext) -> Result<(), MediaError> {
        self.perform(ZoneCommand::Reset, zone)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        let start_bytes = {
            let table = self.table.lock();
            table.check_exists(zone).map(|()| table.geometry().start_bytes(zone))
        };
        let start_bytes = start_bytes.map_err(|refused| self.refused(refused))?;
        check_request(&*self.ground, &Request::write(start_bytes, &[IoSlice::new(data)]))?;
        let admitted = self.table.lock().admit_append(zone, data.len() as u64);
        let offset_bytes = admitted.map_err(|refused| self.refused(refused))?;
        self.ground.write_admitted(offset_bytes, data, context)?;
        if let Some(record) = &self.record {
            follow(&self.table, record, &(offset_bytes..offset_bytes + data.len() as u64))?;
        }
        Ok(offset_bytes)
    }
}
