//! The memory that stores are tested on.

use super::PersistentMemory;
use crate::conformance::devices::TestedDevice;

/// For the table of devices.
pub(crate) const TESTED: &[TestedDevice] = &[MEMORY];

/// Emulated memory with its blocks.
pub const MEMORY: TestedDevice = TestedDevice {
    name: "persistent memory",
    make: |env, name, geometry| {
        let memory = PersistentMemory::emulated(env, name, geometry.capacity_bytes);
        memory.and_then(|memory| memory.into_device(geometry)).expect("whole sectors")
    },
};
