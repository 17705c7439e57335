//! Faults of zones: of their commands, and zones that wear out or die.

use super::{Call, FaultEffect, FaultInjector};
use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use crate::request::{Request, Transfer};
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneRefusal};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Zones of one device that a fault made read-only or offline. They stay so for as long as the layer is there.
pub(crate) struct WornZones {
    name: String,
    geometry: ZoneGeometry,
    control: Arc<dyn ZoneControl>,
    conditions: Mutex<BTreeMap<ZoneId, ZoneCondition>>,
}

impl WornZones {
    pub(super) fn new(name: &str, geometry: &ZoneGeometry, control: &Arc<dyn ZoneControl>) -> Arc<Self> {
        Arc::new(WornZones {
            name: name.to_owned(),
            geometry: geometry.clone(),
            control: control.clone(),
            conditions: Mutex::default(),
        })
    }

    /// The condition an effect puts a zone in.
    pub(super) fn condition_of(effect: &FaultEffect) -> Option<ZoneCondition> {
        match effect {
            FaultEffect::ZoneReadOnly => Some(ZoneCondition::ReadOnly),
            FaultEffect::ZoneOffline => Some(ZoneCondition::Offline),
            _ => None,
        }
    }

    /// Makes the zone of byte `offset_bytes` worn or dead.
    pub(super) fn wear(&self, offset_bytes: u64, condition: ZoneCondition, context: &IoContext) {
        let Some(zone) = self.geometry.zone_at(offset_bytes) else { return };
        let was_alive = self.conditions.lock().insert(zone, condition).is_none();
        if was_alive {
            // It counts as open and active no more. A zone that cannot be finished does not count anyway.
            let _ = self.control.finish(zone, context);
        }
    }

    fn refusal(&self, zone: ZoneId, reads: bool) -> Option<ZoneRefusal> {
        match self.conditions.lock().get(&zone)? {
            ZoneCondition::Offline => Some(ZoneRefusal::Offline),
            _ if reads => None,
            _ => Some(ZoneRefusal::ReadOnly),
        }
    }

    fn refused(&self, zone: ZoneId, operation: Operation, offset_bytes: u64, reads: bool) -> Result<(), MediaError> {
        let Some(refusal) = self.refusal(zone, reads) else { return Ok(()) };
        Err(MediaError::Zone { device: self.name.clone(), operation, zone, offset_bytes, refusal })
    }

    /// Refuses a request to a worn or dead zone.
    pub(super) fn judge(&self, request: &Request<'_>) -> Result<(), MediaError> {
        if self.conditions.lock().is_empty() {
            return Ok(());
        }
        let range = request.offset_bytes..request.offset_bytes.saturating_add(request.length_bytes());
        let reads = matches!(request.transfer, Transfer::Read { .. });
        let mut zones = self.geometry.zones_in(&range);
        zones.try_for_each(|zone| self.refused(zone, request.operation(), range.start, reads))
    }
}

pub(crate) struct FaultZones {
    injector: FaultInjector,
    worn: Arc<WornZones>,
}

impl FaultZones {
    pub(crate) fn facet(injector: &FaultInjector, worn: &Arc<WornZones>) -> Arc<dyn ZoneControl> {
        Arc::new(FaultZones { injector: injector.clone(), worn: worn.clone() })
    }

    /// A command to the zone, refused where the zone is worn or dead.
    fn around<T>(
        &self,
        zone: ZoneId,
        context: &IoContext,
        perform: impl FnOnce() -> Result<T, MediaError>,
        lost: Option<T>,
    ) -> Result<T, MediaError> {
        let range = self.range(zone, 1);
        let offset_bytes = range.start;
        let strike = self.strike(range.clone(), context);
        if let Some(condition) = strike.as_ref().and_then(WornZones::condition_of) {
            self.worn.wear(offset_bytes, condition, context);
        }
        self.worn.refused(zone, Operation::Zone, offset_bytes, false)?;
        self.injector.resolve(&self.worn.name, (Operation::Zone, Some(range)), strike, perform, lost)
    }

    fn range(&self, first: ZoneId, count: u32) -> Range<u64> {
        let start = self.worn.geometry.start_bytes(first);
        start..start.saturating_add(self.worn.geometry.zone_bytes.saturating_mul(count.into()))
    }

    fn strike(&self, range: Range<u64>, context: &IoContext) -> Option<FaultEffect> {
        let call = Call { operation: Operation::Zone, range: Some(range), context: Some(context) };
        self.injector.strike(call).map(|strike| strike.effect)
    }
}

impl ZoneControl for FaultZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        let range = self.range(first, count);
        let strike = self.strike(range.clone(), context);
        if let Some(condition) = strike.as_ref().and_then(WornZones::condition_of) {
            self.worn.wear(range.start, condition, context);
        }
        let perform = || self.worn.control.report(first, count, context);
        let mut reported =
            self.injector.resolve(&self.worn.name, (Operation::Zone, Some(range)), strike, perform, None)?;
        let conditions = self.worn.conditions.lock();
        for (zone, description) in (first.0..).map(ZoneId).zip(&mut reported) {
            if let Some(&condition) = conditions.get(&zone) {
                description.condition = condition;
            }
        }
        Ok(reported)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(zone, context, || self.worn.control.open(zone, context), Some(()))
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(zone, context, || self.worn.control.close(zone, context), Some(()))
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(zone, context, || self.worn.control.finish(zone, context), Some(()))
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.around(zone, context, || self.worn.control.reset(zone, context), Some(()))
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.around(zone, context, || self.worn.control.append(zone, data, context), None)
    }
}

#[cfg(test)]
mod tests;
