//! The device.

use super::cleaner::{Cleaner, elsewhere};
use super::core::{Core, Part, RelocationStatistics, State, ZoneKnowledge};
use super::journal::{self, Formatting, MapJournal, UNIT_BYTES};
use super::map::{JOURNAL_ZONES, ZoneMap};
use super::policy::RelocationParameters;
use super::split;
use super::zones::RelocatedZones;
use crate::idler::{GhostCache, Work};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::{Env, JoinHandle, Mutex};
use varve_media::{
    BlockDevice, Capabilities, Counters, Device, Geometry, IoClass, IoContext, MediaCache, MediaError, Operation,
    Request, RequestPart, SyncOrder, ZoneGeometry, ZoneId, ZoneType, check_request,
};

/// A device whose zones are moved when they are out of order, so that the disk below has nothing to clean.
///
/// See the [module](super). Zones above are those below less spares and journal; what lies behind the last whole zone is not
/// shown. When the last handle is dropped a relocation under way is given up, and waited for as long as a step takes.
///
/// A failed sync, or a record of the journal of which is not known whether it arrived, ends all writing: then every write, command and
/// sync fails with that error, until the device is opened again.
#[derive(Clone)]
pub struct RelocatingDevice {
    front: Arc<Front>,
}

/// What all handles share: its end is that of the relocation.
pub(super) struct Front {
    pub(super) core: Arc<Core>,
    actor: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.core.stop();
        if let Some(actor) = self.actor.get_mut().take() {
            // One that panicked has said so.
            let _ = actor.join();
        }
    }
}

/// What it stands on must have.
fn unsuitable(inner: &Device, found: impl Into<String>, expected: impl Into<String>) -> MediaError {
    MediaError::Unsuitable {
        device: inner.block.name().to_owned(),
        operation: Operation::Open,
        found: found.into(),
        expected: expected.into(),
    }
}

impl RelocatingDevice {
    /// Opens `inner`, a disk of preferred zones that may be written anywhere, whose media cache holds what `limits` say; or formats it.
    /// Gives the device, and a handle for statistics.
    ///
    /// Reads the journal, at most one zone. Memory: 150 bytes for each zone, and while a zone is moved what is read before it is written.
    ///
    /// # Errors
    /// [`MediaError::Unsuitable`] for a disk without such zones, with too few or too small ones, or with data and without a journal;
    /// [`MediaError::Damaged`] and [`MediaError::OtherVersion`] of the journal; what the disk says.
    pub fn open(
        env: &Env,
        inner: &Device,
        limits: MediaCache,
        parameters: RelocationParameters,
        formatting: Formatting,
    ) -> Result<(Device, RelocatingDevice), MediaError> {
        let (Some(zones), Some(physical)) = (&inner.zones, inner.block.capabilities().zones.clone()) else {
            return Err(unsuitable(inner, "a disk without zones", "one with zones that may be written anywhere"));
        };
        let is_preferred = physical.sequential_type == ZoneType::SequentialWritePreferred;
        if !physical.can_be_written_anywhere() || !is_preferred || inner.tracks.is_some() {
            let found = format!("a disk of zones that are {}", physical.sequential_type);
            return Err(unsuitable(inner, found, "one of preferred zones that may be written anywhere"));
        }
        let Geometry { sector_bytes, physical_sector_bytes, .. } = *inner.block.geometry();
        let fits = |sector: u32| sector > 0 && UNIT_BYTES.is_multiple_of(sector.into());
        if !fits(sector_bytes) || !fits(physical_sector_bytes) || !physical.zone_bytes.is_multiple_of(UNIT_BYTES) {
            let found =
                format!("a disk of sectors of {physical_sector_bytes} and zones of {} bytes", physical.zone_bytes);
            return Err(unsuitable(
                inner,
                found,
                format!("one of sectors that divide {UNIT_BYTES}, and zones of whole ones"),
            ));
        }
        let logical_max = physical.zone_count.saturating_sub(JOURNAL_ZONES);
        if physical.sequential_zones() <= JOURNAL_ZONES + 1
            || physical.zone_capacity_bytes < journal::zone_bytes_min(logical_max)
        {
            let found = format!("a disk of {} zones of {} bytes", physical.zone_count, physical.zone_capacity_bytes);
            let least = journal::zone_bytes_min(logical_max);
            return Err(unsuitable(inner, found, format!("one of more, of {least} bytes at least")));
        }
        let reported = zones.report(ZoneId(0), physical.zone_count, &IoContext::of(IoClass::Metadata))?;
        let is_as_said = reported.len() == physical.zone_count as usize
            && reported.iter().zip((0..).map(ZoneId)).all(|(found, zone)| {
                found.zone_type == physical.zone_type(zone) && found.start_bytes == physical.start_bytes(zone)
            });
        if !is_as_said {
            return Err(unsuitable(
                inner,
                "a disk whose zones are not what it says",
                "one with the conventional zones first",
            ));
        }
        let order = SyncOrder::shared(env, Arc::clone(&inner.block));
        let (journal, map) =
            MapJournal::open((inner, &order), zones, &physical, &reported, parameters.spares, formatting)?;
        let logical = ZoneGeometry { zone_count: map.len(), ..physical.clone() };
        let core = Arc::new(Self::core(
            env,
            (inner, zones, &order),
            (physical, logical),
            (limits, parameters),
            (map, &reported),
        ));
        if formatting != Formatting::Never {
            core.mark_first_sector();
        }
        let cleaner = Cleaner::new(Arc::clone(&core), journal);
        let actor = env.spawn("relocation", move || cleaner.run());
        let front = Arc::new(Front { core, actor: Mutex::new(env, "relocation's thread", Some(actor)) });
        let handle = RelocatingDevice { front: Arc::clone(&front) };
        let block: Arc<dyn BlockDevice> = Arc::new(handle.clone());
        let device = Device { block, zones: Some(Arc::new(RelocatedZones { front })), tracks: None, bytes: None };
        Ok((device, handle))
    }

    fn core(
        env: &Env,
        inner: (&Device, &Arc<dyn varve_media::ZoneControl>, &Arc<SyncOrder>),
        (physical, logical): (ZoneGeometry, ZoneGeometry),
        (limits, parameters): (MediaCache, RelocationParameters),
        (mut map, reported): (ZoneMap, &[varve_media::ZoneDescription]),
    ) -> Core {
        let empty = |zone: ZoneId| {
            reported.get(zone.0 as usize).is_some_and(|found| found.condition == varve_media::ZoneCondition::Empty)
        };
        let spares: Vec<ZoneId> = map.spares().iter().map(|spare| spare.zone).collect();
        spares.into_iter().for_each(|zone| map.set_empty(zone, empty(zone)));
        let ghost = GhostCache::new(&logical, limits).with_map().with_log();
        let state = State::new(map, ghost, reported);
        let core = Core::new(env, inner, (physical, logical), parameters, state);
        {
            let mut state = core.state.lock();
            let state = &mut *state;
            let described =
                state.map.zones().iter().zip((0..).map(ZoneId)).filter_map(|(zone, logical)| {
                    Some(core.described(logical, reported.get(zone.0 as usize)?.clone()))
                });
            let described: Vec<_> = described.collect();
            // A report says which zones have something in the cache, and not how much.
            if state.ghost.reported(&described).is_some() {
                state.ghost.suppose(core.parameters.urgent_utilization);
            }
        }
        core
    }

    /// What relocation did so far.
    pub fn statistics(&self) -> RelocationStatistics {
        self.front.core.state.lock().statistics
    }

    /// Memory that relocation of this device takes, in bytes: its knowledge of zones and of a full map of extents, and the
    /// buffer that a step copies through.
    pub fn memory_bytes_max(&self) -> (usize, usize) {
        let core = &self.front.core;
        let state = core.state.lock();
        let per_zone = size_of::<ZoneKnowledge>() + size_of::<ZoneId>();
        let known = state.ghost.memory_bytes_max() + state.zones.len() * per_zone;
        (known, core.parameters.chunk_bytes as usize)
    }

    /// How full the media cache is taken to be.
    pub fn utilization(&self) -> f64 {
        self.front.core.state.lock().ghost.utilization()
    }

    #[cfg(test)]
    pub(super) fn core_of(&self) -> &Arc<Core> {
        &self.front.core
    }
}

impl BlockDevice for RelocatingDevice {
    fn name(&self) -> &str {
        self.front.core.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.front.core.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.front.core.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let core = &self.front.core;
        // Parts of all requests, and how many each has.
        let (mut all, mut counts) = (Vec::<Part>::new(), Vec::with_capacity(requests.len()));
        for request in requests.iter_mut() {
            request.outcome = check_request(self, request);
            let before = all.len();
            match request.outcome {
                Ok(()) => {
                    let range = request.offset_bytes..request.offset_bytes + request.length_bytes();
                    all.extend(split::parts(&core.logical, &range, Work::of(request)));
                }
                Err(_) => _ = core.refused.fetch_add(1, Ordering::Relaxed),
            }
            counts.push(all.len() - before);
        }
        if !all.is_empty() {
            let outcomes = self.execute_parts(requests, (&all, &counts), context);
            let mut outcomes = outcomes.into_iter();
            for (request, &count) in requests.iter_mut().zip(&counts) {
                for outcome in outcomes.by_ref().take(count) {
                    if request.outcome.is_ok() {
                        request.outcome = outcome;
                    }
                }
            }
        }
        requests.iter().find_map(|request| request.outcome.clone().err()).map_or(Ok(()), Err)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let core = &self.front.core;
        let entered = core.enter_sync()?;
        let result = core.order.sync(context);
        match &result {
            Ok(()) => core.synced(&entered),
            Err(error) => core.fail(error),
        }
        drop(entered);
        result
    }

    fn counters(&self) -> Counters {
        let core = &self.front.core;
        let mut counters = core.inner.block.counters();
        counters.errors += core.refused.load(Ordering::Relaxed);
        counters
    }
}

impl RelocatingDevice {
    /// Does the parts of requests as one batch; how each ended.
    fn execute_parts(
        &self,
        requests: &mut [Request<'_>],
        (all, counts): (&[Part], &[usize]),
        context: &IoContext,
    ) -> Vec<Result<(), MediaError>> {
        let core = &self.front.core;
        let mut pieces: Vec<RequestPart<'_>> = Vec::with_capacity(all.len());
        let mut rest = all;
        for (request, &count) in requests.iter_mut().zip(counts) {
            let (own, others) = rest.split_at(count);
            rest = others;
            if !own.is_empty() {
                match request.divide(self, own.iter().map(|part| part.range.end - part.range.start)) {
                    Ok(parts) => pieces.extend(parts),
                    Err(error) => return all.iter().map(|_| Err(error.clone())).collect(),
                }
            }
        }
        let entered = match core.enter(all, context) {
            Ok(entered) => entered,
            Err(error) => return all.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut batch: Vec<Request<'_>> =
            pieces.iter_mut().zip(&entered.offsets).map(|(piece, &offset)| piece.request(offset)).collect();
        // How it ended is in each.
        let _ = core.inner.block.execute(&mut batch, context);
        let outcomes = batch.iter_mut().zip(all).zip(&entered.offsets).map(|((request, part), &offset)| {
            let outcome = std::mem::replace(&mut request.outcome, Ok(()));
            let logical = core.logical.start_bytes(part.zone) + part.range.start;
            let delta = |place: u64| place.wrapping_sub(offset).wrapping_add(logical);
            outcome.map_err(|error| elsewhere(error, delta, part.zone))
        });
        outcomes.collect()
    }
}
