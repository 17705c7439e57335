//! Power cuts of several devices at one moment.

use super::device::CrashLayerState;
use super::{CrashDevice, CrashVariant, DeviceCrashState, PersistencePoint};
use crate::device::Device;
use crate::error::{MediaError, Operation};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex, MutexGuard, Random};

/// State of the devices that lose power together, under one lock: a capture at a point of one device sees all of
/// them at one moment, and no lock is taken while another is held.
#[derive(Default)]
pub(super) struct CrashGroupState {
    members: Vec<CrashLayerState>,
    observer: Option<GroupObserver>,
}

impl CrashGroupState {
    /// The crash states of all devices, in order.
    pub(super) fn capture(&self) -> Vec<DeviceCrashState> {
        self.members.iter().map(CrashLayerState::capture).collect()
    }

    /// Adds a device; returns its index.
    pub(super) fn join(&mut self, state: CrashLayerState) -> usize {
        self.members.push(state);
        self.members.len() - 1
    }

    /// Persistence points of all devices so far.
    pub(super) fn points(&self) -> u64 {
        self.members.iter().map(|member| member.points).sum()
    }

    /// Sets the observer of every device of the group, in place of an earlier one.
    pub(super) fn observe(&mut self, observer: GroupObserver) {
        self.observer = Some(observer);
    }
}

/// Called under the group's lock with the index of the device, its point, and a way to capture all devices.
pub(super) type GroupObserver =
    Box<dyn FnMut(usize, &PersistencePoint<'_, DeviceCrashState>, &dyn Fn() -> Vec<DeviceCrashState>) + Send>;

/// The locked group, as the state of one of its devices.
pub(super) struct LockedLayer<'a> {
    group: MutexGuard<'a, CrashGroupState>,
    member: usize,
}

impl Deref for LockedLayer<'_> {
    type Target = CrashLayerState;

    fn deref(&self) -> &CrashLayerState {
        &self.group.members[self.member]
    }
}

impl DerefMut for LockedLayer<'_> {
    fn deref_mut(&mut self) -> &mut CrashLayerState {
        &mut self.group.members[self.member]
    }
}

impl<'a> LockedLayer<'a> {
    pub(super) fn new(group: MutexGuard<'a, CrashGroupState>, member: usize) -> Self {
        LockedLayer { group, member }
    }

    /// Gives up the lock until `condition` is signalled.
    pub(super) fn wait(&mut self, condition: &Condvar) {
        condition.wait(&mut self.group);
    }

    /// Counts a persistence point and calls the observer.
    pub(super) fn pass_point(&mut self, operation: Operation, offset_bytes: u64, length_bytes: u64) {
        let index = self.points;
        self.points += 1;
        let CrashGroupState { members, observer } = &mut *self.group;
        if let Some(observer) = observer {
            let capture = || members[self.member].capture();
            let point = PersistencePoint { index, operation, name: "", offset_bytes, length_bytes, state: &capture };
            observer(self.member, &point, &|| members.iter().map(CrashLayerState::capture).collect());
        }
    }
}

/// Devices that lose their power together: what one of them promises another relies on.
///
/// All of them share one lock, so a capture sees every device at the same moment, whatever runs on the others. Works
/// in simulations, perturbed ones too, and between threads.
pub struct CrashGroup {
    layers: Vec<CrashDevice>,
    state: Arc<Mutex<CrashGroupState>>,
}

/// The devices of a [`CrashGroup`] at one moment.
#[derive(Clone)]
pub struct GroupCrashState {
    states: Vec<DeviceCrashState>,
}

impl GroupCrashState {
    /// Number of devices.
    pub fn members(&self) -> usize {
        self.states.len()
    }

    /// Fresh devices, in order, with what one power cut could have left of each: device `n` as `fates[n]` says.
    /// Random variants draw from `seed`, each device its own numbers. The same fates and seed give the same bytes.
    ///
    /// A power cut strikes all devices at one moment, but what had reached each of them then is independent: a
    /// write hole shows only where one device kept its write and another lost it. [`CrashVariant::fates`] draws such
    /// fates.
    ///
    /// # Panics
    /// If there are not as many fates as devices.
    pub fn images(&self, fates: &[CrashVariant], seed: u64) -> Vec<Device> {
        assert_eq!(fates.len(), self.states.len(), "one fate for each device");
        let mut random = Random::named(seed, "crash group");
        self.states.iter().zip(fates).map(|(state, &fate)| state.image(fate, random.next_u64())).collect()
    }
}

impl CrashVariant {
    /// Fates for `members` devices that lose power together: with an even seed all of them `variant`, with an odd one
    /// `variant` for the device that the seed picks, and any variant for each of the others.
    pub fn fates(variant: CrashVariant, members: usize, seed: u64) -> Vec<CrashVariant> {
        let mut fates = vec![variant; members];
        if seed % 2 == 1 && members > 1 {
            let mut random = Random::named(seed, "fates of a crash group");
            let first = random.index(members);
            for (_, fate) in fates.iter_mut().enumerate().filter(|(member, _)| *member != first) {
                *fate = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
            }
        }
        fates
    }
}

impl CrashGroup {
    /// Crash layers over `devices`, whose content now counts as durable.
    ///
    /// # Errors
    /// Those of [`CrashDevice::new`].
    pub fn new(env: &Env, devices: &[Device]) -> Result<Self, MediaError> {
        let state = Arc::new(Mutex::new(env, "crash group", CrashGroupState::default()));
        let layers = devices.iter().map(|device| CrashDevice::in_group(env, device, &state));
        Ok(CrashGroup { layers: layers.collect::<Result<_, _>>()?, state })
    }

    /// The devices, with their layers, in order.
    pub fn devices(&self) -> Vec<Device> {
        self.layers.iter().map(CrashDevice::device).collect()
    }

    /// The crash state of all devices now.
    pub fn capture(&self) -> GroupCrashState {
        GroupCrashState { states: self.state.lock().capture() }
    }

    /// Persistence points of all devices so far.
    pub fn persistence_points(&self) -> u64 {
        self.state.lock().points()
    }

    /// Calls `observer` before every write, discard, zone command and sync of any device from now on, in place of an
    /// earlier one: with the index of the device, what is about to be done, and a way to capture all devices as they
    /// are then, the operation in flight.
    ///
    /// It runs under the group's lock: it must not call these devices, and must not wait.
    pub fn on_persistence_point(
        &self,
        mut observer: impl FnMut(usize, &PersistencePoint<'_, DeviceCrashState>, &dyn Fn() -> GroupCrashState)
        + Send
        + 'static,
    ) {
        self.state.lock().observe(Box::new(move |member, point, capture| {
            observer(member, point, &|| GroupCrashState { states: capture() });
        }));
    }

    /// Stops calling the observer and drops it.
    pub fn stop_observing(&self) {
        self.state.lock().observer = None;
    }
}

#[cfg(test)]
mod tests;
