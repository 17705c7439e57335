//! Zones: what must be written in order.

mod control;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use control::ZonedGround;
#[cfg(test)]
use table::ZoneState;
pub(crate) use table::{ZoneCommand, ZoneTable};

use super::{Conventional, Rules};
use crate::device::{Capabilities, Device, Geometry};
use crate::emulated::{Emulated, RuledDevice};
use crate::error::MediaError;
use crate::request::{Request, Transfer};
use crate::zones::{ZoneControl, ZoneGeometry};
use crate::{BlockDevice, Operation};
use control::Control;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Zones as ZBC/ZAC and ZNS know them, in the words of [`ZoneControl`]: a shingled disk of bands, or a zoned
/// solid-state drive. Where the standards leave a choice: closing an empty or full zone and opening a full one
/// are refused (ZNS); reads are unrestricted and give zeros where nothing was written (URSWRZ of ZBC); the
/// zone that is implicitly closed is the one that was implicitly opened first.
///
/// Zones of sequential-write-preferred type can be written anywhere; their pointer follows the highest byte
/// written, and limits on open zones do not hold for them.
///
/// Memory: 32 bytes for each zone.
pub struct Zoned {
    table: Arc<Mutex<ZoneTable>>,
}

impl Zoned {
    /// Rules for a device of these zones to which nothing was written. A capacity beyond the length of a zone
    /// counts as that length, and so does any of preferred zones.
    pub fn new(zones: &ZoneGeometry) -> Self {
        Zoned::of(ZoneTable::new(zones))
    }

    pub(crate) fn of(table: ZoneTable) -> Self {
        Zoned { table: Arc::new(Mutex::new(table)) }
    }

    /// Sizes of a device like `geometry` cut to these zones.
    pub fn cut(&self, geometry: &Geometry) -> Geometry {
        let capacity_bytes = self.table.lock().geometry().address_bytes().min(geometry.capacity_bytes);
        Geometry { capacity_bytes, ..geometry.clone() }
    }

    /// The device that `make` makes under these rules, with its commands. Its geometry must be one that was
    /// [cut](Zoned::cut).
    pub fn device(self, make: impl FnOnce(Box<dyn Rules>) -> Emulated) -> Device {
        let table = self.table.clone();
        let block = Arc::new(make(Box::new(self)));
        Device { zones: Some(commands(table, &block)), ..Device::of_blocks(block) }
    }

    /// Zones on another device, cut to whole ones: a banded disk on a conventional one, whose time is its own.
    /// What the zones are in is known until the device is dropped and no longer.
    pub fn over(self, inner: &Arc<dyn BlockDevice>) -> Device {
        let table = self.table.clone();
        let geometry = self.cut(inner.geometry());
        let block = Arc::new(RuledDevice::new(inner.clone(), geometry, Box::new(self)));
        Device { zones: Some(commands(table, &block)), ..Device::of_blocks(block) }
    }
}

fn commands<G: ZonedGround + 'static>(table: Arc<Mutex<ZoneTable>>, ground: &Arc<G>) -> Arc<dyn ZoneControl> {
    Arc::new(Control { table, ground: ground.clone() })
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
        if let Transfer::Read { data, .. } = &mut request.transfer {
            let table = self.table.lock();
            for part in table.unwritten(&range) {
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
