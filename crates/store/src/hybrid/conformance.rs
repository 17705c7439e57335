//! What this store is tested on: a fast device beside a slow one, with every policy, and one device alone.

use super::caching::batch::decode_anything;
use super::{
    CachingName, HybridDriver, HybridFormatOptions, HybridOpenOptions, HybridStore, MigrationName, PlacementName,
};
use crate::conformance::{DeviceSubject, Effort, Ending, Fixture, Ground, PairSubject, TestedStore, TestedSubject};
use crate::error::StoreError;
use crate::file_store::FileStore;
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::devices::{
    NAMESPACE, SMALL_NAMESPACE, SMALL_ZONES, TestedDevice, ZONED, ZONED_WITH_LIMITS,
};
use varve_media::emulated::Zoned;
use varve_media::{
    BlockDevice, BlockDeviceExt, Device, Emulated, Geometry, Immediate, IoContext, RamBacking, ZoneGeometry,
};

/// For the table of stores.
pub(crate) const TESTED: TestedStore =
    TestedStore { name: "hybrid", subjects, fixtures: FIXTURES, decode_anything, open_anything };

/// The slow device first, and the fast one.
const TIERS: [u8; 2] = [1, 0];

const PAIR: PairSubject = PairSubject {
    disk: DeviceSubject {
        name: "hybrid",
        device: ZONED,
        capacity_bytes: 20 << 20,
        physical_sector_bytes: 4096,
        ending: Ending::Forget,
        format: |env, device| format(env, std::slice::from_ref(device)),
        open: |env, device| open(env, vec![device], PlacementName::WriteGuided),
    },
    beside: "a fast device",
    logs: NAMESPACE,
    logs_capacity_bytes: 4 << 20,
    format: |env, slow, fast| format(env, &[slow.clone(), fast.clone()]),
    open: |env, slow, fast| open(env, vec![slow, fast], PlacementName::WriteGuided),
};

fn format(env: &Env, devices: &[Device]) -> Result<(), StoreError> {
    let tiers = (devices.len() == 2).then(|| TIERS.to_vec());
    HybridStore::format(env, devices, &HybridFormatOptions { tiers, overwrite: true, ..HybridFormatOptions::default() })
}

/// With everything that moves anything, done at once by whoever gives the reason.
fn open(env: &Env, devices: Vec<Device>, placement: PlacementName) -> Result<Arc<dyn FileStore>, StoreError> {
    let tiers = (devices.len() == 2).then(|| TIERS.to_vec());
    let (migration, caching) = match placement {
        PlacementName::Basic(3) => (MigrationName::WorkloadAware, CachingName::Fifo),
        PlacementName::Auto => (MigrationName::WorkloadAware, CachingName::Frequency),
        _ => (MigrationName::Amortized, CachingName::Records),
    };
    let options = HybridOpenOptions {
        placement,
        migration,
        caching,
        tiers,
        driver: HybridDriver::Caller,
        ..HybridOpenOptions::default()
    };
    Ok(Arc::new(HybridStore::open(env, devices, &options)?))
}

/// The same where tables share zones.
fn open_shared(env: &Env, devices: Vec<Device>) -> Result<Arc<dyn FileStore>, StoreError> {
    let options = HybridOpenOptions {
        shared_zones: Some(true),
        table_bytes: Some(8 << 10),
        tiers: (devices.len() == 2).then(|| TIERS.to_vec()),
        driver: HybridDriver::Caller,
        ..HybridOpenOptions::default()
    };
    Ok(Arc::new(HybridStore::open(env, devices, &options)?))
}

fn subjects() -> Vec<TestedSubject> {
    let pair = |name, slow: TestedDevice, fast: TestedDevice| PairSubject {
        disk: DeviceSubject { name, device: slow, ..PAIR.disk },
        logs: fast,
        ..PAIR
    };
    let basic = PairSubject {
        open: |env, slow, fast| open(env, vec![slow, fast], PlacementName::Basic(3)),
        logs_capacity_bytes: 2 << 20,
        ..pair("hybrid, basic-3,", ZONED_WITH_LIMITS, NAMESPACE)
    };
    let auto = PairSubject {
        open: |env, slow, fast| open(env, vec![slow, fast], PlacementName::Auto),
        ..pair("hybrid, auto,", SMALL_ZONES, NAMESPACE)
    };
    // Tables of a quarter of a zone share zones.
    let shared = PairSubject {
        open: |env, slow, fast| open_shared(env, vec![slow, fast]),
        ..pair("hybrid, shared zones,", SMALL_ZONES, SMALL_NAMESPACE)
    };
    let much = |subject: PairSubject| TestedSubject::new(subject, Effort { fault_stride: 7, ..Effort::MUCH });
    vec![
        TestedSubject::new(PAIR, Effort { fault_stride: 5, damage_stride: 3, ..Effort::FULL }),
        much(pair("hybrid", SMALL_ZONES, SMALL_NAMESPACE)),
        much(basic),
        much(shared),
        TestedSubject::new(auto, Effort::SOME),
        TestedSubject::new(
            DeviceSubject { name: "hybrid alone", device: NAMESPACE, capacity_bytes: 24 << 20, ..PAIR.disk },
            Effort { fault_stride: 11, ..Effort::MUCH },
        ),
    ]
}

/// Bytes of a zone of a fixture.
const ZONE_BYTES: u64 = 32 << 10;

/// Zones of its slow device: more than small databases have tables.
const SLOW_ZONES: u64 = 320;

/// Zones of its fast device for files: few, so that levels have to share them.
const FAST_ZONES: u64 = 40;

const FIXTURES: &[Fixture] = &[Fixture {
    // Which placement is not on the medium: the seed says it.
    share: 2,
    space_bytes: Some((SLOW_ZONES + FAST_ZONES) * ZONE_BYTES),
    unit_bytes: ZONE_BYTES,
    ..Fixture::new("Hybrid", Ground::Pair { make: |_, name, _, space_bytes| made(name, space_bytes), open: open_drawn })
}];

/// A slow device with so many zones less those of the fast one beside it, of which all must be written in order. Of the real
/// world, where they take no time: images read them from other simulations.
fn made(name: &str, space_bytes: u64) -> [Device; 2] {
    let slow_zones = (space_bytes / ZONE_BYTES).saturating_sub(FAST_ZONES).max(FAST_ZONES);
    // What the band table of so many zones takes.
    let conventional_zones = 16.max(4 + slow_zones / 20);
    let slow = zoned(name, slow_zones + conventional_zones, conventional_zones as u32, 0);
    let fast = zoned(&format!("{name} fast"), FAST_ZONES + 2 * 9, 0, 8);
    format(&Env::real(), &[slow.clone(), fast.clone()]).expect("format");
    [slow, fast]
}

pub(super) fn zoned(name: &str, zones: u64, conventional_zones: u32, active_zones_max: u32) -> Device {
    let bytes = zones * ZONE_BYTES;
    let all = ZoneGeometry::fit(bytes, ZONE_BYTES).expect("zones of a device");
    let rules = Zoned::new(&ZoneGeometry { conventional_zones, active_zones_max, ..all });
    let asked = Geometry { capacity_bytes: bytes, sector_bytes: 512, physical_sector_bytes: 512 };
    let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    let backing = Box::new(RamBacking::new());
    rules.device(|rules| Emulated::new(&Env::real(), name, geometry, rules, timing, backing))
}

/// With the placement that the seed says.
fn open_drawn(env: &Env, [slow, fast]: [Device; 2]) -> Result<Arc<dyn FileStore>, StoreError> {
    let placement = PlacementName::ALL[(env.seed() % PlacementName::ALL.len() as u64) as usize];
    open(env, vec![slow, fast], placement)
}

/// The conventional zones of the slow device begin with the bytes.
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
    let _ = HybridStore::inspect(std::slice::from_ref(&device));
    let _ = open(&env, vec![device], PlacementName::WriteGuided);
}
