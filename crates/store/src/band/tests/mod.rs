//! The store on emulated zoned devices: space, logs, and zones that are given up. The contract and power cuts are in
//! the suites of [`conformance`](crate::conformance).

mod beside;
mod failing;
mod given_up;
mod kernel;
mod preferred;
mod replay;
mod space;
mod variable;

use super::*;
use crate::conformance::content;
use crate::error::StoreErrorKind;
use crate::file_store::Severity;
use std::collections::BTreeMap;
use varve_media::emulated::Zoned;
use varve_media::{BlockDeviceExt, Emulated, Geometry, Immediate, IoContext, JobId, RamBacking, ZoneGeometry, ZoneId};

const BAND_BYTES: u64 = 256 << 10;

/// Bands of 256 KiB behind 1 MiB of conventional zones.
fn zones(bands: u64) -> ZoneGeometry {
    let all = ZoneGeometry::fit((1 << 20) + bands * BAND_BYTES, BAND_BYTES).unwrap();
    ZoneGeometry { conventional_zones: 4, ..all }
}

/// Zones to a full table where bands are of variable size.
const ZONES_OF_TABLE: u64 = 4;

/// The same space in zones that are smaller.
fn small_zones(bands: u64) -> ZoneGeometry {
    let zone_bytes = BAND_BYTES / ZONES_OF_TABLE;
    let all = ZoneGeometry::fit((1 << 20) + bands * BAND_BYTES, zone_bytes).unwrap();
    ZoneGeometry { conventional_zones: 16, ..all }
}

/// Formatted for tables of [`BAND_BYTES`], each a band of its own, or as many zones as it needs. Both hold so many full
/// tables.
fn formatted_both(env: &Env, bands: u64) -> [Device; 2] {
    [formatted(env, &zones(bands)), formatted_variable(env, &small_zones(bands))]
}

fn formatted_variable(env: &Env, zones: &ZoneGeometry) -> Device {
    let device = device(env, zones);
    let options = BandFormatOptions { table_bytes: Some(BAND_BYTES), ..BandFormatOptions::default() };
    BandStore::format(env, &device, &options).unwrap();
    device
}

fn device(env: &Env, zones: &ZoneGeometry) -> Device {
    let rules = Zoned::new(zones);
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    rules.device(|rules| Emulated::new(env, "zoned", geometry, rules, timing, Box::new(RamBacking::new())))
}

fn formatted(env: &Env, zones: &ZoneGeometry) -> Device {
    let device = device(env, zones);
    BandStore::format(env, &device, &BandFormatOptions::default()).unwrap();
    device
}

fn create(store: &BandStore, name: &str, kind: FileKind, job: Option<JobId>) -> Box<dyn WritableFile> {
    store.create(name, &CreateOptions { kind, job, ..CreateOptions::default() }).unwrap()
}

/// Writes a whole file durably.
fn write(store: &BandStore, name: &str, kind: FileKind, job: Option<JobId>, data: &[u8]) -> Result<(), StoreError> {
    let context = IoContext::default();
    let mut writer = create(store, name, kind, job);
    writer.append(data, &context)?;
    writer.sync(&context)?;
    writer.finish(&context)
}

/// A log of frames that were synced one by one, each of 3000 bytes of `content(1, ..)`; its writer.
fn with_synced_frames(store: &BandStore, name: &str, count: u64) -> Box<dyn WritableFile> {
    let context = IoContext::default();
    let mut log = create(store, name, FileKind::Log, None);
    for step in 0..count {
        log.append(&content(1, step * 3000, 3000), &context).unwrap();
        log.sync(&context).unwrap();
    }
    log
}

/// Where on the device the frames of a small file begin, in the order of the file.
fn places_of_frames(store: &BandStore, name: &str) -> Vec<u64> {
    let state = store.core.state.lock();
    let pieces = state.names[name].pieces.read();
    pieces.iter().map(|piece| store.core.geometry.start_bytes(piece.band) + piece.frame_at).collect()
}

fn read(store: &BandStore, name: &str) -> Result<Vec<u8>, StoreError> {
    let reader = store.open(name, &OpenOptions::default())?;
    let mut data = vec![0; reader.size_bytes() as usize];
    reader.read_at(0, &mut data, &IoContext::default())?;
    Ok(data)
}

fn measure(store: &BandStore, name: &str) -> u64 {
    store.statistics().iter().find(|measure| measure.name == name).expect("a number of that name").value
}

fn codes(findings: &[Finding], severity: Severity) -> Vec<&'static str> {
    findings.iter().filter(|finding| finding.severity >= severity).map(|finding| finding.code).collect()
}

/// Nothing is wrong with the store, and the device never had to refuse anything.
fn assert_sound(store: &BandStore) {
    let findings = store.check().unwrap();
    assert_eq!(codes(&findings, Severity::Warning), [""; 0], "{findings:?}");
    assert_eq!(store.core.device.block.counters().errors, 0, "a rule of the zones was broken");
}
