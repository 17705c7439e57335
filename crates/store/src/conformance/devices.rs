//! The devices that stores are tested on. One with rules of its own joins by a constant and its place in [`DEVICES`].

use std::ops::Range;
use std::sync::Arc;
use varve_env::Env;
use varve_media::emulated::{Conventional, Rules, Zoned};
use varve_media::{
    BlockDeviceExt, Capabilities, Device, Emulated, Geometry, Immediate, Interlaced, IoContext, MediaError, Operation,
    RamBacking, Request, TrackGeometry, Transfer, ZoneGeometry, ZoneType,
};

/// A device of memory and its rules.
#[derive(Clone, Copy)]
pub struct TestedDevice {
    /// What it is, for messages.
    pub name: &'static str,
    /// Makes one of this name that has about so many bytes, in such sectors. It takes no time.
    pub make: fn(&Env, &str, &Geometry) -> Device,
}

/// All of them.
pub const DEVICES: &[TestedDevice] = &[
    DISK,
    USED_DISK,
    INTERLACED,
    INTERLACED_OF_TWO_SIZES,
    ZONED,
    ZONED_WITH_LIMITS,
    PREFERRED_ZONES,
    SMALL_ZONES,
    SMALL_ZONES_WITH_LIMITS,
];

/// It gives space back, and was empty.
pub const DISK: TestedDevice = TestedDevice {
    name: "a disk",
    make: |env, name, geometry| with_rules(env, name, geometry, Box::new(Conventional)),
};

/// It keeps what is written until it is overwritten, and was full of something else.
pub const USED_DISK: TestedDevice = TestedDevice {
    name: "a used disk without discard",
    make: |env, name, geometry| {
        let device = with_rules(env, name, geometry, Box::new(WithoutDiscard));
        let garbage = vec![GARBAGE; GARBAGE_BYTES.min(geometry.capacity_bytes) as usize];
        device.block.write_at(0, &garbage, &IoContext::default()).expect("a device of memory");
        device
    },
};

/// Writes that would destroy live data are refused.
pub const INTERLACED: TestedDevice = TestedDevice {
    name: "interlaced tracks",
    make: |env, name, geometry| interlaced(env, name, geometry, 8 << 10, 8 << 10),
};

/// The same with bottoms larger than tops.
pub const INTERLACED_OF_TWO_SIZES: TestedDevice = TestedDevice {
    name: "interlaced tracks of two sizes",
    make: |env, name, geometry| interlaced(env, name, geometry, 20 << 10, 16 << 10),
};

/// As of a shingled disk.
pub const ZONED: TestedDevice =
    TestedDevice { name: "zones", make: |env, name, geometry| zoned(env, name, geometry, usual_zones(geometry)) };

/// As of a namespace.
pub const ZONED_WITH_LIMITS: TestedDevice = TestedDevice {
    name: "zones with limits",
    make: |env, name, geometry| {
        let usual = usual_zones(geometry);
        let zones = ZoneGeometry { zone_capacity_bytes: 48 << 10, open_zones_max: 6, active_zones_max: 8, ..usual };
        zoned(env, name, geometry, zones)
    },
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

/// Smaller than what is written at once: they are used up and emptied all the time.
pub const SMALL_ZONES: TestedDevice =
    TestedDevice { name: "small zones", make: |env, name, geometry| zoned(env, name, geometry, small_zones(geometry)) };

/// The same with limits.
pub const SMALL_ZONES_WITH_LIMITS: TestedDevice = TestedDevice {
    name: "small zones with limits",
    make: |env, name, geometry| {
        let small = small_zones(geometry);
        let zones = ZoneGeometry { zone_capacity_bytes: 12 << 10, open_zones_max: 6, active_zones_max: 8, ..small };
        zoned(env, name, geometry, zones)
    },
};

/// What is on a device that was not empty.
pub(super) const GARBAGE: u8 = 0xee;
/// How far it reaches: where metadata and the first files go. The rest costs time and tells nothing.
const GARBAGE_BYTES: u64 = 2 << 20;

fn with_rules(env: &Env, name: &str, geometry: &Geometry, rules: Box<dyn Rules>) -> Device {
    let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
    Device::of_blocks(Arc::new(Emulated::new(env, name, geometry.clone(), rules, timing, backing)))
}

fn interlaced(env: &Env, name: &str, geometry: &Geometry, bottom_bytes: u64, top_bytes: u64) -> Device {
    let tracks = TrackGeometry::fit(geometry.capacity_bytes, bottom_bytes, top_bytes).expect("tracks");
    let rules = Interlaced::new(&tracks, geometry.physical_sector_bytes, true);
    let (control, geometry) = (rules.control(name), rules.cut(geometry));
    Device { tracks: Some(control), ..with_rules(env, name, &geometry, Box::new(rules)) }
}

fn zoned(env: &Env, name: &str, geometry: &Geometry, zones: ZoneGeometry) -> Device {
    let rules = Zoned::new(&zones);
    let geometry = rules.cut(&Geometry { capacity_bytes: zones.address_bytes(), ..geometry.clone() });
    let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
    rules.device(|rules| Emulated::new(env, name, geometry, rules, timing, backing))
}

fn usual_zones(geometry: &Geometry) -> ZoneGeometry {
    let all = ZoneGeometry::fit(geometry.capacity_bytes, 64 << 10).expect("zones");
    ZoneGeometry { conventional_zones: 16, ..all }
}

fn small_zones(geometry: &Geometry) -> ZoneGeometry {
    let all = ZoneGeometry::fit(geometry.capacity_bytes, 16 << 10).expect("zones");
    ZoneGeometry { conventional_zones: 128, ..all }
}

/// A conventional device that keeps what is written until it is overwritten.
struct WithoutDiscard;

impl Rules for WithoutDiscard {
    fn describe(&self, capabilities: &mut Capabilities) {
        Conventional.describe(capabilities);
        capabilities.discard = false;
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        if matches!(request.transfer, Transfer::Discard { .. }) {
            return Err(MediaError::Rule {
                device: device.to_owned(),
                operation: Operation::Discard,
                offset_bytes: request.offset_bytes,
                rule: "this device does not discard".to_owned(),
            });
        }
        Conventional.admit(device, request)
    }

    fn refused(&mut self, request: &Request<'_>) {
        Conventional.refused(request);
    }

    fn may_destroy(&self, _written: Range<u64>) -> bool {
        false
    }

    fn written(&mut self, _written: Range<u64>, _destroyed: &mut Vec<Range<u64>>) {}

    fn discarded(&mut self, _discarded: Range<u64>) {}

    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError> {
        Conventional.complete(device, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_media::{CrashDevice, CrashVariant};

    /// What the suites need of a device.
    #[test]
    fn every_device_can_lose_its_power_and_says_what_it_is() {
        let env = Env::sim(1);
        for (place, device) in DEVICES.iter().enumerate() {
            assert!(DEVICES[..place].iter().all(|other| other.name != device.name), "two are '{}'", device.name);
            for physical_sector_bytes in [512, 4096] {
                let asked = Geometry { capacity_bytes: 24 << 20, sector_bytes: 512, physical_sector_bytes };
                let made = (device.make)(&env, "disk", &asked);
                let found = made.block.geometry();
                assert_eq!((made.block.name(), found.physical_sector_bytes), ("disk", physical_sector_bytes));
                assert!((20 << 20..=24 << 20).contains(&found.capacity_bytes), "{}: {found:?}", device.name);
                let capabilities = made.block.capabilities();
                assert_eq!(capabilities.zones.is_some(), made.zones.is_some(), "{}", device.name);
                assert_eq!(capabilities.tracks.is_some(), made.tracks.is_some(), "{}", device.name);
                // Where the tops of an interlaced disk begin, and in the conventional zones of a zoned one.
                let at = (64 << 10) + 20 * 1024;
                let crash = CrashDevice::new(&env, &made).expect("a crash layer");
                let written = crash.device();
                let context = IoContext::default();
                written.block.write_at(at, &[7; 4096], &context).expect("a write that every rule allows");
                written.block.sync(&context).expect("a sync");
                let image = crash.capture().image(CrashVariant::DropAll, 1);
                let mut data = [0; 4096];
                image.block.read_at(at, &mut data, &context).expect("a read");
                assert_eq!(data, [7; 4096], "{}", device.name);
            }
        }
    }
}
