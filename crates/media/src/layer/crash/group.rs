//! Power cuts of several devices at one moment.

use super::{CrashDevice, CrashVariant, DeviceCrashState};
use crate::device::Device;
use crate::error::{MediaError, Operation};
use std::sync::Arc;
use varve_env::{Env, Random};

/// Devices that lose their power together: what one of them promises another relies on.
///
/// In a simulation only: the observer looks at all of them while one is about to act.
pub struct CrashGroup {
    layers: Vec<CrashDevice>,
}

/// The devices of a [`CrashGroup`] at one moment.
#[derive(Clone)]
pub struct GroupCrashState {
    states: Vec<DeviceCrashState>,
}

impl GroupCrashState {
    /// Fresh devices, in order, with what a power cut could have left: of each its own choice, from `seed`.
    pub fn images(&self, variant: CrashVariant, seed: u64) -> Vec<Device> {
        let mut random = Random::named(seed, "crash group");
        self.states.iter().map(|state| state.image(variant, random.next_u64())).collect()
    }
}

impl CrashGroup {
    /// Crash layers over `devices`, whose content now counts as durable.
    ///
    /// # Errors
    /// Those of [`CrashDevice::new`].
    pub fn new(env: &Env, devices: &[Device]) -> Result<Self, MediaError> {
        let layers = devices.iter().map(|device| CrashDevice::new(env, device)).collect::<Result<_, _>>()?;
        Ok(CrashGroup { layers })
    }

    /// The devices, with their layers, in order.
    pub fn devices(&self) -> Vec<Device> {
        self.layers.iter().map(CrashDevice::device).collect()
    }

    /// Calls `observer` before every write, discard and sync of any device from now on, with the number of the device, what is about to be done, and
    /// a way to capture all as they are then.
    pub fn on_persistence_point(
        &self,
        observer: impl FnMut(usize, Operation, &dyn Fn() -> GroupCrashState) + Send + 'static,
    ) {
        let observer = Arc::new(parking_lot::Mutex::new(observer));
        for (number, layer) in self.layers.iter().enumerate() {
            let (layers, observer) = (self.layers.clone(), Arc::clone(&observer));
            layer.on_persistence_point(move |point| {
                let capture = || {
                    let of = |(other, layer): (usize, &CrashDevice)| match other == number {
                        true => point.capture(),
                        false => layer.capture(),
                    };
                    GroupCrashState { states: layers.iter().enumerate().map(of).collect() }
                };
                observer.lock()(number, point.operation, &capture);
            });
        }
    }
}
