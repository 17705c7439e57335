//! The devices of these rules that stores are tested on.

use super::Conventional;
use crate::conformance::devices::{TestedDevice, memory};
use crate::context::IoContext;
use crate::device::{BlockDeviceExt, Capabilities, Device};
use crate::emulated::Rules;
use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer};
use std::ops::Range;
use std::sync::Arc;

/// For the table of devices.
pub(crate) const TESTED: &[TestedDevice] = &[DISK, USED_DISK];

/// It gives space back, and was empty.
pub const DISK: TestedDevice = TestedDevice {
    name: "a disk",
    make: |env, name, geometry| {
        Device::of_blocks(Arc::new(memory(env, name, geometry.clone(), Box::new(Conventional))))
    },
};

/// It keeps what is written until it is overwritten, and was full of something else.
pub const USED_DISK: TestedDevice = TestedDevice {
    name: "a used disk without discard",
    make: |env, name, geometry| {
        let device = Device::of_blocks(Arc::new(memory(env, name, geometry.clone(), Box::new(WithoutDiscard))));
        let garbage = vec![GARBAGE; GARBAGE_BYTES.min(geometry.capacity_bytes) as usize];
        device.block.write_at(0, &garbage, &IoContext::default()).expect("a device of memory");
        device
    },
};

/// What is on a device that was not empty.
pub const GARBAGE: u8 = 0xee;
/// How far it reaches: where metadata and the first files go. The rest costs time and tells nothing.
const GARBAGE_BYTES: u64 = 2 << 20;

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
