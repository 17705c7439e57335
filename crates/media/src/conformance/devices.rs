//! The table of devices that stores are tested on: each kind of device says in its own folder which they are, and joins
//! by the name of the folder below.

use crate::device::{Device, Geometry};
use crate::emulated::{Emulated, Immediate, RamBacking, Rules};
use varve_env::Env;

/// A device that is emulated in memory.
#[derive(Clone, Copy)]
pub struct TestedDevice {
    /// What it is, for messages.
    pub name: &'static str,
    /// Makes one of this name that has about so many bytes, in such sectors. It takes no time.
    pub make: fn(&Env, &str, &Geometry) -> Device,
}

/// Makes the table, and gives what is in it its names.
macro_rules! devices {
    ($($($folder:ident)::+,)*) => {
        $(pub use crate::$($folder)::+::conformance::*;)*

        /// All of them.
        pub fn devices() -> impl Iterator<Item = &'static TestedDevice> {
            let kinds: &[&'static [TestedDevice]] = &[$(crate::$($folder)::+::conformance::TESTED),*];
            kinds.iter().copied().flatten()
        }
    };
}

devices! {
    emulated::rules::conventional,
    emulated::rules::interlaced,
    emulated::rules::protected,
    emulated::rules::zoned,
    memory,
}

/// Memory of these sizes under rules.
pub(crate) fn memory(env: &Env, name: &str, geometry: Geometry, rules: Box<dyn Rules>) -> Emulated {
    Emulated::new(env, name, geometry, rules, Box::<Immediate>::default(), Box::new(RamBacking::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::IoContext;
    use crate::device::BlockDeviceExt;
    use crate::layer::{
        CrashDevice, CrashVariant, FaultDevice, FaultInjector, FaultPlan, MemoryTrace, OverlayDevice, TraceDevice,
    };
    use crate::zones::ZoneId;
    use std::sync::Arc;

    /// Its facets are those its description tells of.
    fn check_facets(name: &str, device: &Device) {
        let capabilities = device.block.capabilities();
        assert_eq!(capabilities.zones.is_some(), device.zones.is_some(), "{name}");
        assert_eq!(capabilities.tracks.is_some(), device.tracks.is_some(), "{name}");
    }

    /// What the suites need of a device.
    #[test]
    fn every_device_can_lose_its_power_and_says_what_it_is() {
        let env = Env::sim(1);
        for (place, device) in devices().enumerate() {
            assert!(devices().take(place).all(|other| other.name != device.name), "two are '{}'", device.name);
            for physical_sector_bytes in [512, 4096] {
                let asked = Geometry { capacity_bytes: 24 << 20, sector_bytes: 512, physical_sector_bytes };
                let made = (device.make)(&env, "disk", &asked);
                let found = made.block.geometry();
                let smallest_bytes = physical_sector_bytes.max(found.sector_bytes);
                assert_eq!((made.block.name(), found.physical_sector_bytes), ("disk", smallest_bytes));
                assert!((20 << 20..=24 << 20).contains(&found.capacity_bytes), "{}: {found:?}", device.name);
                check_facets(device.name, &made);
                // Where the tops of an interlaced disk begin, and in the conventional zones of a zoned one.
                let at = match &made.block.capabilities().zones {
                    // Where the first may be written at all.
                    Some(zones) if zones.conventional_zones == 0 => zones.start_bytes(ZoneId(1)),
                    _ => (64 << 10) + 20 * 1024,
                };
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

    #[test]
    fn every_facet_is_seen_through_every_layer() {
        let env = Env::sim(1);
        for device in devices() {
            let asked = Geometry { capacity_bytes: 24 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
            let made = (device.make)(&env, "disk", &asked);
            let crash = CrashDevice::new(&env, &made).expect("a crash layer");
            let above = [
                crash.device(),
                crash.capture().image(CrashVariant::KeepAll, 1),
                FaultDevice::device(&FaultInjector::new(&env, FaultPlan::default()), &made),
                TraceDevice::device(&env, Arc::new(MemoryTrace::new()), &made),
                OverlayDevice::device(&made).expect("an overlay"),
            ];
            for above in &above {
                check_facets(device.name, above);
                assert_eq!(above.bytes.is_some(), made.bytes.is_some(), "{}", device.name);
            }
        }
    }
}
