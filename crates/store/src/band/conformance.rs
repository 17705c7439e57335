//! What this store is tested on: zones of a shingled disk, of a namespace with limits, of a host-aware disk.

use super::{BandFormatOptions, BandStore, decode_anything};
use crate::conformance::{DeviceSubject, Effort, Ending, Fixture, Ground, TestedStore, TestedSubject};
use crate::error::StoreError;
use crate::file_store::FileStore;
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::devices::{
    NAMESPACE, PREFERRED_ZONES, SMALL_NAMESPACE, SMALL_ZONES, SMALL_ZONES_WITH_LIMITS, TRANSLATED_ZONES, TestedDevice,
    ZONED, ZONED_WITH_LIMITS,
};
use varve_media::emulated::Zoned;
use varve_media::{
    BlockDevice, BlockDeviceExt, Device, Emulated, Geometry, Immediate, IoContext, RamBacking, ZoneGeometry,
};

/// For the table of stores.
pub(crate) const TESTED: TestedStore =
    TestedStore { name: "band", subjects, fixtures: FIXTURES, decode_anything, open_anything };

const SUBJECT: DeviceSubject = DeviceSubject {
    name: "band",
    device: ZONED,
    capacity_bytes: 24 << 20,
    physical_sector_bytes: 4096,
    ending: Ending::Forget,
    format: |env, device| format(env, device, None),
    open,
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
        on(TRANSLATED_ZONES, 4096),
        on(SMALL_ZONES, 512),
        variable(SMALL_ZONES, 512),
        variable(SMALL_ZONES_WITH_LIMITS, 4096),
        on(NAMESPACE, 4096),
        variable(SMALL_NAMESPACE, 512),
    ];
    subjects.into_iter().map(|subject| TestedSubject::new(subject, Effort::MUCH)).collect()
}

/// Bytes of a band of a fixture.
const BAND_BYTES: u64 = 32 << 10;

/// Its bands: more than small databases have tables, and few enough that they are used again.
const BANDS: u64 = 400;

/// Its conventional zones, in bands, at least: those of many zones take more space to tell of.
const CONVENTIONAL_BANDS_MIN: u64 = 32;

/// Zones that a conventional zone of a band can tell of.
const ZONES_PER_CONVENTIONAL_BAND: u64 = 40;

const FIXTURES: &[Fixture] = &[
    fixture("Band", |env, name, _, space_bytes| made(env, name, space_bytes / BAND_BYTES, 1)),
    fixture("VariableBands", |env, name, _, space_bytes| made(env, name, space_bytes / BAND_BYTES, 4)),
];

const fn fixture(name: &'static str, make: fn(&Env, &str, usize, u64) -> Device) -> Fixture {
    Fixture {
        share: 2,
        space_bytes: Some(BANDS * BAND_BYTES),
        unit_bytes: BAND_BYTES,
        ..Fixture::new(name, Ground::Device { make, open })
    }
}

/// A device with so many bands, each of so many zones. Of the real world, where it takes no time: images read it from
/// other simulations.
fn made(env: &Env, name: &str, bands: u64, zones_of_band: u64) -> Device {
    let conventional_bands = CONVENTIONAL_BANDS_MIN.max(bands * zones_of_band / ZONES_PER_CONVENTIONAL_BAND);
    let bytes = (bands + conventional_bands) * BAND_BYTES;
    let all = ZoneGeometry::fit(bytes, BAND_BYTES / zones_of_band).expect("zones of a device");
    let conventional_zones = (conventional_bands * zones_of_band) as u32;
    let rules = Zoned::new(&ZoneGeometry { conventional_zones, ..all });
    let asked = Geometry { capacity_bytes: bytes, sector_bytes: 512, physical_sector_bytes: 512 };
    let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    let backing = Box::new(RamBacking::new());
    let device = rules.device(|rules| Emulated::new(&Env::real(), name, geometry, rules, timing, backing));
    let options = BandFormatOptions { table_bytes: Some(BAND_BYTES), ..BandFormatOptions::default() };
    BandStore::format(env, &device, &options).expect("format");
    device
}

fn open(env: &Env, device: Device) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(BandStore::open(env, device)?))
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
