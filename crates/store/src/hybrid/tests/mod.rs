//! Files of several devices: power cuts, space and zones, moves, hints that are missing, sets of devices, and I/O that fails.
//! The contract is in the suites of [`conformance`](crate::conformance).

mod apart;
mod cached;
mod crash;
mod degraded;
mod faults;
mod figures;
mod given_up;
mod hints;
mod load;
mod refused_openings;
mod regressions;
mod sets;
mod several;
mod shared;
mod space;
mod worn_metadata;

use super::*;
use crate::conformance::content;
use crate::error::StoreErrorKind;
use crate::file_store::{FileKind, Severity};
use crate::hint::HintedFile;
use varve_media::emulated::Zoned;
use varve_media::{Device, Emulated, Geometry, Immediate, IoClass, IoContext, JobId, RamBacking, ZoneGeometry};

/// Bytes of a zone of every device.
const ZONE_BYTES: u64 = 32 << 10;
/// Conventional zones of a slow device: what its band table takes.
const CONVENTIONAL_ZONES: u64 = 16;
/// Zones of a group of the band table of a fast device.
const GROUP_ZONES: u64 = 12;
/// Zones that the band table of a fast device takes, where that allows enough active zones for two copies.
const METADATA_ZONES: u64 = 3 * GROUP_ZONES;
const CONTEXT: IoContext = IoContext::of(IoClass::Other);

fn zoned(env: &Env, name: &str, zones: u64, conventional_zones: u64, active_zones_max: u32) -> Device {
    let all = ZoneGeometry::fit(zones * ZONE_BYTES, ZONE_BYTES).unwrap();
    let conventional_zones = conventional_zones as u32;
    let rules =
        Zoned::new(&ZoneGeometry { conventional_zones, active_zones_max, open_zones_max: active_zones_max, ..all });
    let asked = Geometry { capacity_bytes: zones * ZONE_BYTES, sector_bytes: 512, physical_sector_bytes: 512 };
    let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    rules.device(|rules| Emulated::new(env, name, geometry, rules, timing, Box::new(RamBacking::new())))
}

/// A device with so many zones for files behind conventional ones.
fn slow(env: &Env, zones: u64) -> Device {
    zoned(env, "slow", zones + CONVENTIONAL_ZONES, CONVENTIONAL_ZONES, 0)
}

/// A device on which everything must be written in order, with so many zones for files.
fn fast(env: &Env, zones: u64, active_zones_max: u32) -> Device {
    let groups = if matches!(active_zones_max, 1..4) { 2 } else { 3 };
    zoned(env, "fast", zones + groups * GROUP_ZONES, 0, active_zones_max)
}

/// The slow device first, and the fast one.
const TIERS: [u8; 2] = [1, 0];

fn format_options() -> HybridFormatOptions {
    HybridFormatOptions { tiers: Some(TIERS.to_vec()), ..HybridFormatOptions::default() }
}

/// Everything that moves anything, done at once by whoever gives the reason.
fn open_options() -> HybridOpenOptions {
    HybridOpenOptions { tiers: Some(TIERS.to_vec()), driver: HybridDriver::Caller, ..HybridOpenOptions::default() }
}

/// An empty store on a slow device and a fast one.
fn formatted(env: &Env, slow_zones: u64, fast_zones: u64, active_zones_max: u32) -> Vec<Device> {
    let devices = vec![slow(env, slow_zones), fast(env, fast_zones, active_zones_max)];
    HybridStore::format(env, &devices, &format_options()).unwrap();
    devices
}

fn open(env: &Env, devices: &[Device]) -> HybridStore {
    HybridStore::open(env, devices.to_vec(), &open_options()).unwrap()
}

/// The process ends without a word, and another one opens the store.
fn reopen(env: &Env, store: HybridStore, devices: &[Device]) -> HybridStore {
    std::mem::forget(store);
    open(env, devices)
}

fn create(store: &dyn FileStore, name: &str, kind: FileKind, level: Option<u8>) -> Box<dyn WritableFile> {
    store.create(name, &CreateOptions { kind, level, ..CreateOptions::default() }).unwrap()
}

/// Writes a whole file durably.
fn write(store: &dyn FileStore, name: &str, kind: FileKind, level: Option<u8>, data: &[u8]) -> Result<(), StoreError> {
    let mut writer = create(store, name, kind, level);
    // As trees do: what is refused of a large piece is refused as a whole.
    data.chunks(4000).try_for_each(|piece| writer.append(piece, &CONTEXT))?;
    writer.sync(&CONTEXT)?;
    writer.finish(&CONTEXT)
}

fn read(store: &dyn FileStore, name: &str) -> Result<Vec<u8>, StoreError> {
    let reader = store.open(name, &OpenOptions::default())?;
    let mut data = vec![0; reader.size_bytes() as usize];
    reader.read_at(0, &mut data, &CONTEXT)?;
    Ok(data)
}

/// Bytes are those of a file, which has so many.
#[track_caller]
fn assert_content(found: &[u8], file: u64, length: u64) {
    let expected = content(file, 0, length);
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert!(found == expected, "file {file}: {} bytes of {length}, the first that is wrong is {wrong:?}", found.len());
}

fn measure(store: &HybridStore, name: &str) -> u64 {
    store.statistics().iter().find(|measure| measure.name == name).expect("a number of that name").value
}

/// The devices of the parts of a file, in order.
fn devices_of(store: &HybridStore, name: &str) -> Vec<usize> {
    store.core.files.read()[name].parts().iter().map(|part| part.device).collect()
}

/// Nothing is wrong with the store, and no device had to refuse anything.
fn assert_sound(store: &HybridStore) {
    let findings = store.check().unwrap();
    let bad: Vec<_> = findings.iter().filter(|finding| finding.severity >= Severity::Warning).collect();
    assert!(bad.is_empty(), "{bad:?}");
    assert_eq!(store.core.level_places(), store.core.level_places_of_all(), "what was counted is not what is there");
    for member in &store.core.members {
        let block = &member.files.device().block;
        assert_eq!(block.counters().errors, 0, "a rule of the zones of '{}' was broken", block.name());
    }
}

/// Level 0 goes to the fast device, others to the slow one, and nothing moves.
fn placed_by_level() -> HybridOpenOptions {
    HybridOpenOptions {
        placement: PlacementName::Basic(1),
        migration: MigrationName::None,
        caching: CachingName::None,
        ..open_options()
    }
}

fn hinted(name: &str, level: u8) -> HintedFile {
    HintedFile { name: name.to_owned(), level: Some(level), size_bytes: 0 }
}
