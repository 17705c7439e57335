use super::core::Core;
use super::*;
use crate::idler::GhostCache;
use std::sync::Arc;
use std::time::Duration;
use varve_env::Env;
use varve_media::conformance::{BlockDeviceCheck, check_block_device, check_zoned_device, devices};
use varve_media::{
    BlockDeviceExt, Device, Geometry, IoContext, MediaCache, MediaError, MediaErrorKind, ZoneCondition, ZoneId,
};

mod admission;
mod back_off;
mod cleaning;
mod crash;
mod faults;
mod mark;
mod opening;
mod panics;
mod together;

/// Zones of the devices for tests.
const ZONE: u64 = 64 << 10;
/// What the translated one holds.
const LIMITS: MediaCache = MediaCache { bytes: 1 << 20, extents_max: 200 };

fn context() -> IoContext {
    IoContext::default()
}

fn memory(env: &Env, make: &devices::TestedDevice, zones: u64) -> Device {
    let geometry = Geometry { capacity_bytes: zones * ZONE, sector_bytes: 512, physical_sector_bytes: 4096 };
    (make.make)(env, "disk", &geometry)
}

/// Nothing but what is demanded is relocated, in small steps.
fn at_rest() -> RelocationParameters {
    let (step_bytes, urgent_step_bytes, chunk_bytes) = (8 << 10, 12 << 10, 24 << 10);
    let utilization = f64::MAX;
    RelocationParameters { utilization, step_bytes, urgent_step_bytes, chunk_bytes, ..RelocationParameters::default() }
}

/// All that is out of order is relocated at once.
fn eager() -> RelocationParameters {
    RelocationParameters { utilization: 0.0, quiet_nanos: 1000, recent_nanos: 0, ..at_rest() }
}

fn open(env: &Env, inner: &Device, parameters: RelocationParameters) -> Result<(Device, RelocatingDevice), MediaError> {
    RelocatingDevice::open(env, inner, LIMITS, parameters, Formatting::IfBlank)
}

fn relocate(handle: &RelocatingDevice, logical: u32) -> RelocationStatistics {
    handle.core_of().relocate_now(ZoneId(logical));
    handle.statistics()
}

/// Lets time pass in which the disk is read, and does not clean by itself.
fn pass(env: &Env, device: &Device, seconds: u64) {
    for _ in 0..seconds * 10 {
        env.sleep(Duration::from_millis(100));
        device.block.read_at(30 * ZONE, &mut [0; 4096], &context()).unwrap();
    }
}

/// Runs `f` as an actor of a simulation, at whose end no other is left.
fn simulate<T: Send + 'static>(seed: u64, perturb: bool, f: impl FnOnce(&Env) -> T + Send + 'static) -> T {
    let env = Env::sim_with(varve_env::SimOptions { seed, perturb, ..Default::default() });
    let of_client = env.clone();
    let found = env.spawn("client", move || f(&of_client)).join().unwrap_or_else(|panicked| panicked.resume());
    assert_eq!(env.live_actors(), 1, "seed {seed}");
    found
}

/// Each zone is in one place, and all places are told apart.
fn check_map(core: &Arc<Core>) {
    let state = core.state.lock();
    let mut places: Vec<ZoneId> = state.map.zones().to_vec();
    places.extend(state.map.spares().iter().map(|spare| spare.zone));
    let count = places.len();
    places.sort();
    places.dedup();
    assert!(places.len() == count && count as u32 <= core.physical.zone_count - 2);
}

fn check_suites(make: &'static devices::TestedDevice, parameters: RelocationParameters) {
    let made = move |env: &Env| open(env, &memory(env, make, 96), parameters.clone()).unwrap().0;
    let options = BlockDeviceCheck { steps: 100, ..Default::default() };
    let told = |broken| panic!("{}: {broken}", make.name);
    check_zoned_device(&made, &options).unwrap_or_else(told);
    // The suite of blocks takes it that a device with zones takes no discards: not so in conventional ones.
    if make.name == devices::TRANSLATED_ZONES.name {
        check_block_device(&made, &options).unwrap_or_else(told);
    }
}

#[test]
fn conformance() {
    check_suites(&devices::PREFERRED_ZONES, at_rest());
    check_suites(&devices::TRANSLATED_ZONES, at_rest());
}

/// A zone of which nothing is known takes as much as the others of its kind, and gives it back.
#[test]
fn the_ghost_supposes_of_what_it_does_not_know() {
    let zones = varve_media::ZoneGeometry::fit(4 * ZONE, ZONE).unwrap();
    let mut ghost = GhostCache::new(&zones, LIMITS);
    ghost.suppose(0.9);
    assert_eq!(ghost.utilization(), 0.0);
    ghost.distrust(0);
    ghost.distrust(2);
    ghost.written(3 * ZONE + 4096, 4096);
    ghost.suppose(0.9);
    // Two of 200 extents, and one.
    assert_eq!(
        (ghost.zone_share(ZoneId(0)).1, ghost.zone_share(ZoneId(1)).1, ghost.zone_share(ZoneId(3)).1),
        (90, 0, 1)
    );
    assert!((ghost.utilization() - 0.905).abs() < 1e-3, "{}", ghost.utilization());
    ghost.cleaned(ZoneId(0), 4096);
    ghost.reset(2 * ZONE, ZONE);
    assert_eq!(ghost.zone_share(ZoneId(3)), (1.0 / 200.0, 1));
    assert_eq!(ghost.utilization(), 1.0 / 200.0);
}

#[test]
fn the_ghost_follows_moves() {
    let zones = varve_media::ZoneGeometry::fit(4 * ZONE, ZONE).unwrap();
    let mut ghost = GhostCache::new(&zones, LIMITS);
    ghost.written(4096, 8192);
    ghost.written(ZONE, 4096);
    assert_eq!(ghost.zone_share(ZoneId(0)), (8192.0 / (1 << 20) as f64, 1));
    ghost.cleaned(ZoneId(0), 12288);
    assert_eq!((ghost.zone_share(ZoneId(0)), ghost.non_sequential_zones()), ((0.0, 0), 0));
    ghost.written(12288, 4096);
    assert_eq!(ghost.non_sequential_zones(), 0);
    ghost.written(0, 4096);
    assert_eq!(ghost.non_sequential_zones(), 1);
    assert_eq!(ghost.zone_share(ZoneId(9)), (0.0, 0));
}
