//! Zones: what must be written in order.

pub(crate) mod conformance;
mod control;
mod record;
mod recorded;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use control::{Control, ZonedGround};
pub use record::ZoneRecord;
pub(crate) use record::fuzz as fuzz_zone_record;
pub(crate) use table::{ZoneCommand, ZoneState, ZoneTable};

use super::shingled::Shingled;
use super::{Conventional, Rules};
use crate::device::{Capabilities, Device, Geometry};
use crate::emulated::{Emulated, RuledDevice};
use crate::error::MediaError;
use crate::protection::ProtectionTuple;
use crate::request::{Request, Transfer};
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId};
use crate::{BlockDevice, Operation};
use parking_lot::Mutex;
use recorded::Recorded;
use std::ops::Range;
use std::sync::Arc;

const PHYSICAL_SECTOR_BYTES: u32 = 4096;

/// Zones as ZBC/ZAC and ZNS know them, in the words of [`ZoneControl`]: a shingled disk of bands, or a zoned
/// solid-state drive. Where the standards leave a choice: closing an empty or full zone and opening a full one
/// are refused (ZNS); reads are unrestricted and give zeros where nothing was written (URSWRZ of ZBC); the
/// zone that is implicitly closed is the one that was implicitly opened first.
///
/// Zones of sequential-write-preferred type can be written anywhere; their pointer follows the highest byte
/// written, and limits on open zones do not hold for them. Where their tracks overlap
/// ([`ZoneGeometry::track_overlap`]), writing out of order destroys data.
///
/// Memory: 32 bytes for each zone.
pub struct Zoned {
    table: Arc<Mutex<ZoneTable>>,
    record: Option<Arc<Mutex<ZoneRecord>>>,
    physical_sector_bytes: u32,
}

impl Zoned {
    /// Rules for a device of these zones to which nothing was written. A capacity beyond the length of a zone
    /// counts as that length, and so does any of preferred zones.
    pub fn new(zones: &ZoneGeometry) -> Self {
        Zoned::of(ZoneTable::new(zones))
    }

    /// Rules for a device whose bytes are kept in a file or on a disk. The zones begin in the states that `record` has, and
    /// every change is written to it. The bytes must be those of the device the record was last used with.
    ///
    /// Cost beside that of the device: a small write to the record's file for each write to a sequential
    /// zone, a sync of that file for each sync after such a write and for each reset or finish.
    pub fn recorded(record: ZoneRecord) -> Self {
        let mut table = ZoneTable::new(record.zones());
        record.restore(&mut table);
        table.list_cleaned();
        Zoned { record: Some(Arc::new(Mutex::new(record))), ..Zoned::of(table) }
    }

    /// Rules for a device whose bytes begin as those of another one with the same zones, which was at rest when its zones were
    /// described: in `zones`, in the order of the device. None of them is open; those that were are closed.
    pub fn continued(geometry: &ZoneGeometry, zones: &[ZoneDescription]) -> Self {
        let mut table = ZoneTable::new(geometry);
        for (index, description) in zones.iter().enumerate().take(geometry.zone_count as usize) {
            let state = ZoneState::of(description);
            if !matches!(state.condition, ZoneCondition::Empty | ZoneCondition::NotWritePointer) {
                table.restore(ZoneId(index as u32), state);
            }
        }
        Zoned::of(table)
    }

    /// The state these rules share with the commands.
    pub(crate) fn table(&self) -> Arc<Mutex<ZoneTable>> {
        self.table.clone()
    }

    pub(crate) fn of(table: ZoneTable) -> Self {
        Zoned { table: Arc::new(Mutex::new(table)), record: None, physical_sector_bytes: PHYSICAL_SECTOR_BYTES }
    }

    /// The same rules for physical sectors of this size, not 4 KiB: what a write to overlapping tracks destroys
    /// is rounded outwards to them.
    pub fn with_physical_sector(self, physical_sector_bytes: u32) -> Self {
        Zoned { physical_sector_bytes, ..self }
    }

    pub(super) fn physical_sector_bytes(&self) -> u32 {
        self.physical_sector_bytes
    }

    /// Sizes of a device like `geometry` cut to these zones.
    pub fn cut(&self, geometry: &Geometry) -> Geometry {
        let capacity_bytes = self.table.lock().geometry().address_bytes().min(geometry.capacity_bytes);
        Geometry { capacity_bytes, ..geometry.clone() }
    }

    /// The device that `make` makes under these rules, with its commands. Its geometry must be one that was
    /// [cut](Zoned::cut).
    pub fn device(self, make: impl FnOnce(Box<dyn Rules>) -> Emulated) -> Device {
        let (table, record) = (self.table.clone(), self.record.clone());
        device_of(table, record, Arc::new(make(Shingled::over(self))))
    }

    /// Zones on another device, cut to whole ones: a banded disk on a conventional one, whose time is its own.
    /// What the zones are in is known until the device is dropped and no longer, unless it is
    /// [recorded](Zoned::recorded). Zones of preferred type, of which sectors may be skipped, show what the
    /// device below has there until their first reset, which discards it.
    pub fn over(self, inner: &Arc<dyn BlockDevice>) -> Device {
        let (table, record) = (self.table.clone(), self.record.clone());
        let geometry = self.cut(inner.geometry());
        let rules = Shingled::over(self.with_physical_sector(geometry.physical_sector_bytes));
        device_of(table, record, Arc::new(RuledDevice::new(inner.clone(), geometry, rules)))
    }
}

fn device_of<G: ZonedGround + 'static>(
    table: Arc<Mutex<ZoneTable>>,
    record: Option<Arc<Mutex<ZoneRecord>>>,
    ground: Arc<G>,
) -> Device {
    let control = Control { table: table.clone(), record: record.clone(), ground: ground.clone() };
    control.end_interrupted_resets();
    let control: Arc<dyn ZoneControl> = Arc::new(control);
    let block: Arc<dyn BlockDevice> = match record {
        Some(record) => Arc::new(Recorded { inner: ground, table, record }),
        None => ground,
    };
    Device { zones: Some(control), ..Device::of_blocks(block) }
}

fn range_of(request: &Request<'_>) -> Range<u64> {
    request.offset_bytes..request.offset_bytes + request.length_bytes()
}

impl Rules for Zoned {
    fn describe(&self, capabilities: &mut Capabilities) {
        Conventional.describe(capabilities);
        let zones = self.table.lock().geometry().clone();
        capabilities.discard &= zones.conventional_zones > 0;
        capabilities.zones = Some(zones);
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        Conventional.admit(device, request)?;
        let range = range_of(request);
        let mut table = self.table.lock();
        let (operation, judged) = match request.transfer {
            Transfer::Read { .. } => (Operation::Read, table.check_read(&range)),
            Transfer::Write { .. } => (Operation::Write, table.admit_write(&range)),
            Transfer::Discard { .. } => (Operation::Discard, table.check_discard(&range)),
        };
        judged.map_err(|refused| refused.at(device, operation, range.start))
    }

    fn refused(&mut self, request: &Request<'_>) {
        if matches!(request.transfer, Transfer::Write { .. }) {
            self.table.lock().retract(&range_of(request));
        }
    }

    fn may_destroy(&self, _written: Range<u64>) -> bool {
        false
    }

    fn written(&mut self, written: Range<u64>, _destroyed: &mut Vec<Range<u64>>) {
        self.table.lock().written(&written);
    }

    fn discarded(&mut self, _discarded: Range<u64>) {}

    fn complete(&mut self, _device: &str, request: &mut Request<'_>) -> Result<(), MediaError> {
        let range = range_of(request);
        if let Transfer::Read { data, protection } = &mut request.transfer {
            let table = self.table.lock();
            for part in table.unwritten(&range) {
                if let Some(tuples) = protection {
                    let of_data =
                        |at: u64| (at - range.start) as usize * tuples.len() / (range.end - range.start) as usize;
                    let unwritten = of_data(part.start)..of_data(part.end);
                    tuples[unwritten].fill(ProtectionTuple::UNWRITTEN_BYTE);
                }
                let (mut skip, mut rest) = ((part.start - range.start) as usize, (part.end - part.start) as usize);
                for slice in data.iter_mut() {
                    let from = skip.min(slice.len());
                    let count = rest.min(slice.len() - from);
                    slice[from..from + count].fill(0);
                    (skip, rest) = (skip - from, rest - count);
                }
            }
        }
        Ok(())
    }
}
