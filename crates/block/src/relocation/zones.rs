//! Commands to zones, where they are.

use super::cleaner::elsewhere;
use super::core::Part;
use super::device::Front;
use crate::idler::Work;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{IoContext, MediaError, Operation, ZoneControl, ZoneDescription, ZoneId, ZoneRefusal};

/// Runs of neighbours that are asked for one by one; for more of them all zones are.
const RUNS_MAX: usize = 8;

pub(super) struct RelocatedZones {
    pub(super) front: Arc<Front>,
}

impl RelocatedZones {
    fn check(&self, zone: ZoneId) -> Result<(), MediaError> {
        let core = &self.front.core;
        if core.logical.contains(zone) {
            return Ok(());
        }
        core.refused.fetch_add(1, Ordering::Relaxed);
        Err(MediaError::Zone {
            device: core.inner.block.name().to_owned(),
            operation: Operation::Zone,
            zone,
            offset_bytes: core.logical.start_bytes(zone),
            refusal: ZoneRefusal::Missing { zone_count: core.logical.zone_count },
        })
    }

    /// Gives a command to the zone that `zone` is in.
    fn command<T>(
        &self,
        zone: ZoneId,
        (work, context): (Work, &IoContext),
        perform: impl FnOnce(&dyn ZoneControl, ZoneId) -> Result<T, MediaError>,
    ) -> Result<T, MediaError> {
        self.check(zone)?;
        let core = &self.front.core;
        let part = Part { zone, range: 0..core.logical.zone_bytes, work };
        let entered = core.enter(std::slice::from_ref(&part), context)?;
        let start = entered.offsets.first().copied().unwrap_or_default();
        // It is a zone of the map, so there is one.
        let place = core.physical.zone_at(start).unwrap_or(zone);
        let result = perform(&*core.inner_zones, place);
        if work == Work::Forget && result.is_ok() {
            core.was_reset(zone, &entered);
        }
        drop(entered);
        let logical = core.logical.start_bytes(zone);
        result.map_err(|error| elsewhere(error, |place| place.wrapping_sub(start).wrapping_add(logical), zone))
    }
}

impl ZoneControl for RelocatedZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.check(first)?;
        let core = &self.front.core;
        let end = first.0.saturating_add(count).min(core.logical.zone_count);
        let (entered, places) = core.enter_report(first.0..end);
        let result = report(&*core.inner_zones, &places, core.physical.zone_count, context);
        drop(entered);
        let described = result?.into_iter().zip((first.0..).map(ZoneId));
        Ok(described.map(|(found, zone)| core.described(zone, found)).collect())
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, (Work::Command, context), |zones, place| zones.open(place, context))
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, (Work::Command, context), |zones, place| zones.close(place, context))
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, (Work::Command, context), |zones, place| zones.finish(place, context))?;
        self.front.core.finished(zone);
        Ok(())
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, (Work::Forget, context), |zones, place| zones.reset(place, context))
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        let core = &self.front.core;
        let mut place = ZoneId(0);
        let at = self.command(zone, (Work::Command, context), |zones, found| {
            place = found;
            zones.append(found, data, context)
        })?;
        Ok(at.wrapping_sub(core.physical.start_bytes(place)).wrapping_add(core.logical.start_bytes(zone)))
    }
}

/// What the device says of zones that may lie anywhere, in as few reports as there are runs of neighbours.
fn report(
    zones: &dyn ZoneControl,
    places: &[ZoneId],
    zone_count: u32,
    context: &IoContext,
) -> Result<Vec<ZoneDescription>, MediaError> {
    let is_run = |pair: &[ZoneId]| pair[0].0.checked_add(1) == Some(pair[1].0);
    let runs = places.windows(2).filter(|pair| !is_run(pair)).count() + 1;
    if runs > RUNS_MAX {
        let all = zones.report(ZoneId(0), zone_count, context)?;
        return Ok(places.iter().filter_map(|place| all.get(place.0 as usize).cloned()).collect());
    }
    let mut found = Vec::with_capacity(places.len());
    for run in places.chunk_by(|one, next| is_run(&[*one, *next])) {
        if let Some(&first) = run.first() {
            found.extend(zones.report(first, run.len() as u32, context)?);
        }
    }
    Ok(found)
}
