//! `band`: files on a zoned device.

use crate::error::Error;
use crate::registry::{FileStoreKind, OptionDescription, ValueForm};
use crate::spec::Part;
use crate::stack::{Base, BuiltDevice, Construction, refused};
use std::sync::Arc;
use varve_media::Device;
use varve_store::{BandFormatOptions, BandStore, ExtentStore, FileStore};

const RESERVE: &str = "reserve";
const TABLE_SIZE: &str = "zoned-table-size";

pub(crate) const BAND: FileStoreKind = FileStoreKind {
    name: "band",
    summary: "tables in zones of their own, all other files in logs that share zones (SMRDB)",
    needs: "one device with zones",
    options: &[
        OptionDescription {
            name: RESERVE,
            value: ValueForm::Number(1),
            default: "2",
            meaning: "outputs of compactions for which zones are kept, so that those can always finish, decided when the \
                      device is laid out",
        },
        OptionDescription {
            name: TABLE_SIZE,
            value: ValueForm::Size,
            default: "one zone",
            meaning: "size of a full table, rounded up to whole zones: each table takes as many zones as its bytes need, one \
                      behind the other where it can; decided when the device is laid out",
        },
    ],
    accepts: |base| device_of(base).is_some_and(|device| device.block.capabilities().zones.is_some()),
    is_preferred: |_| false,
    logs: None,
    open,
};

/// Least number of zones with which bands are the default where a disk takes writes anywhere. Each table takes a zone, and writes stop
/// at 36 tables in level 0 (`level0_stop_writes_trigger`): those are then at most 28 % of the disk.
const ZONES_MIN: u32 = 128;

/// Returns true if bands are the default on a zoned device that takes writes anywhere. Tables written in order never go through its media
/// cache, and have not to be cleaned. The store that a device was formatted for stays its default.
pub(super) fn is_default_of(device: &Device) -> bool {
    let zones = device.block.capabilities().zones.as_ref();
    let is_suitable = zones.is_some_and(|zones| zones.conventional_zones > 0 || zones.zone_count >= ZONES_MIN);
    match BandStore::probe(device) {
        Ok(is_there) => is_there || is_suitable,
        Err(_) => is_suitable && ExtentStore::probe(device).is_err(),
    }
}

fn device_of(base: &Base) -> Option<&Device> {
    match base {
        Base::Devices(devices) => match devices.as_slice() {
            [BuiltDevice { device, .. }] => Some(device),
            _ => None,
        },
        Base::Directory(_) => None,
    }
}

fn open(
    construction: &Construction<'_>,
    base: &Base,
    part: &Part,
    _logs: Option<&BuiltDevice>,
) -> Result<Arc<dyn FileStore>, Error> {
    let device = device_of(base).ok_or_else(|| refused(part, &BAND, base))?;
    let mut options = BandFormatOptions { overwrite: construction.format, ..BandFormatOptions::default() };
    if let Some(text) = part.text(RESERVE)? {
        let expected = || part.value_error(RESERVE, "a whole number below 65536");
        options.reserve_tables = text.parse().map_err(|_| expected())?;
    }
    options.table_bytes = part.size_bytes(TABLE_SIZE)?;
    if construction.format || !BandStore::probe(device)? {
        if !construction.create && !construction.format {
            return Err(Error::missing(device.block.name()));
        }
        BandStore::format(construction.env, device, &options)?;
    }
    Ok(Arc::new(BandStore::open(construction.env, device.clone())?))
}
