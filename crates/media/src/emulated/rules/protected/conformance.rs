//! The devices with protection information that stores are tested on.

use crate::conformance::devices::{TestedDevice, memory};
use crate::device::{Device, Geometry};
use crate::emulated::{Conventional, RamBacking};
use crate::protection::{GuardKind, ProtectionType};
use std::sync::Arc;
use varve_env::Env;

/// For the table of devices.
pub(crate) const TESTED: &[TestedDevice] =
    &[PROTECTED, PROTECTED_WITH_LARGE_SECTORS, PROTECTED_OF_TYPE_2, PROTECTED_OF_TYPE_3];

/// Type 1 with the CRC of the standard, as most drives are formatted.
pub const PROTECTED: TestedDevice = TestedDevice {
    name: "a protected disk",
    make: |env, name, geometry| protected(env, name, geometry.clone(), ProtectionType::Type1, GuardKind::Crc),
};

/// Type 1 with the Internet checksum, in sectors of 4 KiB, whatever is asked for.
pub const PROTECTED_WITH_LARGE_SECTORS: TestedDevice = TestedDevice {
    name: "a protected disk with large sectors",
    make: |env, name, geometry| {
        let geometry = Geometry {
            capacity_bytes: geometry.capacity_bytes / LARGE_SECTOR_BYTES * LARGE_SECTOR_BYTES,
            sector_bytes: LARGE_SECTOR_BYTES as u32,
            physical_sector_bytes: geometry.physical_sector_bytes.max(LARGE_SECTOR_BYTES as u32),
        };
        protected(env, name, geometry, ProtectionType::Type1, GuardKind::IpChecksum)
    },
};

/// Type 2, whose first reference tag comes with each command.
pub const PROTECTED_OF_TYPE_2: TestedDevice = TestedDevice {
    name: "a protected disk of type 2",
    make: |env, name, geometry| protected(env, name, geometry.clone(), ProtectionType::Type2, GuardKind::Crc),
};

/// Type 3, whose reference tags belong to the application.
pub const PROTECTED_OF_TYPE_3: TestedDevice = TestedDevice {
    name: "a protected disk of type 3",
    make: |env, name, geometry| protected(env, name, geometry.clone(), ProtectionType::Type3, GuardKind::IpChecksum),
};

const LARGE_SECTOR_BYTES: u64 = 4096;

fn protected(env: &Env, name: &str, geometry: Geometry, of: ProtectionType, guard: GuardKind) -> Device {
    let device = memory(env, name, geometry, Box::new(Conventional));
    Device::of_blocks(Arc::new(device.with_protection(of, guard, Box::new(RamBacking::new()))))
}
