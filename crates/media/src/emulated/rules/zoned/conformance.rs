//! The devices of these rules that stores are tested on.

use super::Zoned;
use crate::conformance::devices::{TestedDevice, memory};
use crate::device::{Device, Geometry};
use crate::emulated::{Emulated, Immediate, RamBacking, TranslationLayer, TranslationParameters};
use crate::zones::{MediaCache, ZoneGeometry, ZoneType};
use varve_env::Env;

/// For the table of devices.
pub(crate) const TESTED: &[TestedDevice] = &[
    ZONED,
    ZONED_WITH_LIMITS,
    PREFERRED_ZONES,
    TRANSLATED_ZONES,
    SMALL_ZONES,
    SMALL_ZONES_WITH_LIMITS,
    NAMESPACE,
    SMALL_NAMESPACE,
];

/// As of a shingled disk.
pub const ZONED: TestedDevice =
    TestedDevice { name: "zones", make: |env, name, geometry| zoned(env, name, geometry, usual_zones(geometry)) };

/// As of a namespace, with some conventional zones.
pub const ZONED_WITH_LIMITS: TestedDevice = TestedDevice {
    name: "zones with limits",
    make: |env, name, geometry| zoned(env, name, geometry, with_limits(usual_zones(geometry))),
};

/// As of a host-aware disk.
pub const PREFERRED_ZONES: TestedDevice = TestedDevice {
    name: "preferred zones",
    make: |env, name, geometry| {
        let sequential_type = ZoneType::SequentialWritePreferred;
        let zones = ZoneGeometry { sequential_type, open_zones_max: 4, ..usual_zones(geometry) };
        zoned(env, name, geometry, zones)
    },
};

/// As of a host-aware disk with its translation layer, whose cache is full after some hundred writes.
pub const TRANSLATED_ZONES: TestedDevice = TestedDevice {
    name: "translated zones",
    make: |env, name, geometry| {
        let parameters = TranslationParameters {
            media_cache: MediaCache { bytes: 1 << 20, extents_max: 200 },
            idle_step_bytes: 24 << 10,
            blocking_step_bytes: 24 << 10,
            ..TranslationParameters::st8000as0022()
        };
        let sequential_type = ZoneType::SequentialWritePreferred;
        let media_cache = Some(parameters.media_cache);
        let zones = ZoneGeometry { sequential_type, media_cache, ..zones_of(64 << 10, 0, geometry) };
        let rules = Zoned::new(&zones);
        let geometry = rules.cut(&Geometry { capacity_bytes: zones.address_bytes(), ..geometry.clone() });
        let timing = TranslationLayer::new(parameters, rules.table(), Box::<Immediate>::default());
        rules.device(|rules| Emulated::new(env, name, geometry, rules, Box::new(timing), Box::new(RamBacking::new())))
    },
};

/// Smaller than what is written at once: they are used up and emptied all the time.
pub const SMALL_ZONES: TestedDevice =
    TestedDevice { name: "small zones", make: |env, name, geometry| zoned(env, name, geometry, small_zones(geometry)) };

/// The same with limits.
pub const SMALL_ZONES_WITH_LIMITS: TestedDevice = TestedDevice {
    name: "small zones with limits",
    make: |env, name, geometry| zoned(env, name, geometry, with_limits(small_zones(geometry))),
};

/// As of a namespace: all zones must be written in order.
pub const NAMESPACE: TestedDevice = TestedDevice {
    name: "namespace",
    make: |env, name, geometry| zoned(env, name, geometry, with_limits(zones_of(64 << 10, 0, geometry))),
};

/// The same with zones of which a store's metadata takes many, and few may be active.
pub const SMALL_NAMESPACE: TestedDevice = TestedDevice {
    name: "small namespace",
    make: |env, name, geometry| {
        let zones = with_limits(zones_of(32 << 10, 0, geometry));
        zoned(env, name, geometry, ZoneGeometry { open_zones_max: 4, active_zones_max: 4, ..zones })
    },
};

fn zoned(env: &Env, name: &str, geometry: &Geometry, zones: ZoneGeometry) -> Device {
    let rules = Zoned::new(&zones);
    let geometry = rules.cut(&Geometry { capacity_bytes: zones.address_bytes(), ..geometry.clone() });
    rules.device(|rules| memory(env, name, geometry, rules))
}

fn usual_zones(geometry: &Geometry) -> ZoneGeometry {
    zones_of(64 << 10, 16, geometry)
}

fn small_zones(geometry: &Geometry) -> ZoneGeometry {
    zones_of(16 << 10, 128, geometry)
}

fn zones_of(zone_bytes: u64, conventional_zones: u32, geometry: &Geometry) -> ZoneGeometry {
    let all = ZoneGeometry::fit(geometry.capacity_bytes, zone_bytes).expect("zones");
    ZoneGeometry { conventional_zones, ..all }
}

/// The same, a quarter of each of which cannot be written, and few of them at a time.
fn with_limits(zones: ZoneGeometry) -> ZoneGeometry {
    let zone_capacity_bytes = zones.zone_bytes / 4 * 3;
    ZoneGeometry { zone_capacity_bytes, open_zones_max: 6, active_zones_max: 8, ..zones }
}
