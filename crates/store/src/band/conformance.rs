//! What this store is tested on: zones of a shingled disk, of a namespace with limits, of a host-aware disk.

use super::{BandFormatOptions, BandStore, decode_anything};
use crate::conformance::devices::{
    PREFERRED_ZONES, SMALL_ZONES, SMALL_ZONES_WITH_LIMITS, TestedDevice, ZONED, ZONED_WITH_LIMITS,
};
use crate::conformance::{DeviceSubject, Effort, Ending, TestedStore, TestedSubject};
use crate::error::StoreError;
use std::sync::Arc;
use varve_env::Env;
use varve_media::emulated::Zoned;
use varve_media::{BlockDevice, BlockDeviceExt, Device, Emulated, IoContext, ZoneGeometry};

/// For the table of stores.
pub(crate) const TESTED: TestedStore = TestedStore { name: "band", subjects, decode_anything, open_anything };

const SUBJECT: DeviceSubject = DeviceSubject {
    name: "band",
    device: ZONED,
    capacity_bytes: 24 << 20,
    physical_sector_bytes: 4096,
    ending: Ending::Forget,
    format: |env, device| format(env, device, None),
    open: |env, device| Ok(Arc::new(BandStore::open(env, device)?)),
};

fn subjects() -> Vec<TestedSubject> {
    let on = |device: TestedDevice, physical_sector_bytes| DeviceSubject { device, physical_sector_bytes, ..SUBJECT };
    let variable = |device, physical_sector_bytes| DeviceSubject {
        name: "band of variable size",
        format: |env, device| format(env, device, Some(64 << 10)),
        ..on(device, physical_sector_bytes)
    };
    let subjects = [
        on(ZONED, 4096),
        on(ZONED_WITH_LIMITS, 4096),
        on(PREFERRED_ZONES, 512),
        on(SMALL_ZONES, 512),
        variable(SMALL_ZONES, 512),
        variable(SMALL_ZONES_WITH_LIMITS, 4096),
    ];
    subjects.into_iter().map(|subject| TestedSubject::new(subject, Effort::MUCH)).collect()
}

fn format(env: &Env, device: &Device, table_bytes: Option<u64>) -> Result<(), StoreError> {
    let options = BandFormatOptions { overwrite: true, table_bytes, ..BandFormatOptions::default() };
    BandStore::format(env, device, &options)
}

/// The conventional zones begin with the bytes.
fn open_anything(bytes: &[u8]) {
    const ZONE_BYTES: u64 = 64 << 10;
    let env = Env::real();
    let Some(all) = ZoneGeometry::fit(64 * ZONE_BYTES, ZONE_BYTES) else { return };
    let rules = Zoned::new(&ZoneGeometry { conventional_zones: 16, ..all });
    let emulated: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "fuzz", 64 * ZONE_BYTES));
    let device = rules.over(&emulated);
    let mut image = bytes[..bytes.len().min(16 * ZONE_BYTES as usize)].to_vec();
    image.resize(image.len().next_multiple_of(512), 0);
    if device.block.write_at(0, &image, &IoContext::default()).is_err() {
        return;
    }
    let _ = BandStore::inspect(&device);
    let _ = BandStore::open(&env, device);
}
