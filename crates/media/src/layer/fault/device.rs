//! Faults of block devices.

use super::unsynced::Unsynced;
use super::zones::WornZones;
use super::{Call, FaultEffect, FaultInjector, Strike, elsewhere, flip_bits};
use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry};
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::layer::Layer;
use crate::request::{Request, Transfer, check_request};
use crate::sectors::{Sectors, format_in_pages};
use crate::sparse::PAGE_BYTES;
use std::io::IoSlice;
use std::sync::Arc;
use varve_env::{Mutex, Random};

/// A layer that lets go wrong what its injector's plan says. Every request of a batch is a call of
/// its own; those no fault strikes stay together in flight.
///
/// Counters are those of the device below, so a request that was lost or refused here is not in them.
pub struct FaultDevice {
    injector: FaultInjector,
    inner: Arc<dyn BlockDevice>,
    unsynced: Mutex<Unsynced>,
    worn: Option<Arc<WornZones>>,
}

impl FaultDevice {
    /// `inner` with all its facets, under the faults of `injector`.
    pub fn device(injector: &FaultInjector, inner: &Device) -> Device {
        let name = inner.block.name();
        let worn = match (&inner.block.capabilities().zones, &inner.zones) {
            (Some(geometry), Some(control)) => Some(WornZones::new(name, geometry, control)),
            _ => None,
        };
        let blocks = FaultDevice {
            injector: injector.clone(),
            inner: inner.block.clone(),
            // Tuples that pages cannot keep are generated when dropped writes are undone.
            unsynced: Mutex::new(
                &injector.env,
                "fault layer unsynced",
                Unsynced::with_tuples(format_in_pages(inner).unwrap_or(None)),
            ),
            worn: worn.clone(),
        };
        inner.below(&Layer::Fault { injector, name, worn: worn.as_ref() }, Arc::new(blocks))
    }

    fn strike(&self, request: &Request<'_>, context: &IoContext) -> Option<Strike> {
        let start = request.offset_bytes;
        self.injector.strike(Call {
            operation: operation_of(request),
            range: Some(start..start.saturating_add(request.length_bytes())),
            context: Some(context),
        })
    }

    /// Remembers what `requests` are about to overwrite, where the plan will need it.
    fn remember(&self, requests: &[Request<'_>], context: &IoContext) {
        let capacity_bytes = self.inner.geometry().capacity_bytes;
        let changes = |request: &&Request<'_>| {
            !matches!(request.transfer, Transfer::Read { .. }) && check_request(&*self.inner, request).is_ok()
        };
        for request in requests.iter().filter(changes) {
            let start = request.offset_bytes;
            let end = start + request.length_bytes();
            // What cannot be read has nothing to go back to.
            let _ = self.unsynced.lock().save(start..end, |at| {
                let page = Sectors::read(&*self.inner, &(at..capacity_bytes.min(at + PAGE_BYTES)), context)?;
                page.verify(self.inner.name(), self.inner.capabilities().protection, at).map(|()| page)
            });
        }
    }

    /// Does a batch whose requests `strikes` names by index go wrong.
    fn perform_all(
        &self,
        requests: &mut [Request<'_>],
        strikes: Vec<(usize, Result<Strike, MediaError>)>,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let mut rest = requests;
        let mut done = 0;
        let mut result = Ok(());
        for (index, strike) in strikes {
            let (untouched, from) = rest.split_at_mut(index - done);
            if !untouched.is_empty() {
                result = result.and(self.inner.execute(untouched, context));
            }
            let (struck, later) = from.split_at_mut(1);
            struck[0].outcome = strike.and_then(|strike| self.perform(&mut struck[0], strike, context));
            result = result.and(struck[0].outcome.clone());
            rest = later;
            done = index + 1;
        }
        if !rest.is_empty() {
            result = result.and(self.inner.execute(rest, context));
        }
        result
    }

    /// Puts back what unsynced writes replaced.
    fn drop_unsynced(&self, context: &IoContext) -> Result<(), MediaError> {
        let capacity_bytes = self.inner.geometry().capacity_bytes;
        let pages = self.unsynced.lock().take();
        for (at, page) in pages {
            let length = page.len().min((capacity_bytes - at) as usize);
            match page.as_slice().part(0..length).write_to(&*self.inner, at, context) {
                // Rules of the medium keep what is there: this write was not dropped.
                Err(error) if error.kind() == MediaErrorKind::InvalidRequest => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// What was written through does not go with what was not synced.
    fn keep_durable(&self, requests: &[Request<'_>]) {
        for request in requests {
            let (Transfer::Write { data, durable: true, protection }, Ok(())) = (&request.transfer, &request.outcome)
            else {
                continue;
            };
            let format = self.inner.capabilities().protection;
            let sectors = Sectors::of_write(format, request.offset_bytes, data, *protection);
            self.unsynced.lock().keep(request.offset_bytes, sectors.as_slice());
        }
    }

    fn perform(&self, request: &mut Request<'_>, strike: Strike, context: &IoContext) -> Result<(), MediaError> {
        let Strike { effect, mut random } = strike;
        let operation = operation_of(request);
        let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes());
        let name = self.inner.name();
        match effect {
            FaultEffect::Fail(error) | FaultEffect::FailDroppingUnsynced(error) => {
                Err(error.at(name, operation, offset_bytes, length_bytes))
            }
            FaultEffect::FailAfter(error) => {
                self.inner.execute(std::slice::from_mut(request), context)?;
                Err(error.at(name, operation, offset_bytes, length_bytes))
            }
            FaultEffect::FailPartly(error) => {
                self.perform_partly(request, &mut random, context)?;
                Err(error.at(name, operation, offset_bytes, length_bytes))
            }
            FaultEffect::FlipBits(count) => self.perform_flipped(request, count, &mut random, context),
            FaultEffect::Misdirect => {
                let Geometry { capacity_bytes, sector_bytes, .. } = *self.inner.geometry();
                request.offset_bytes =
                    elsewhere(&mut random, offset_bytes, length_bytes, capacity_bytes, u64::from(sector_bytes));
                let outcome = self.inner.execute(std::slice::from_mut(request), context);
                request.offset_bytes = offset_bytes;
                outcome
            }
            FaultEffect::Lose if operation != Operation::Read => Ok(()),
            FaultEffect::Lose
            | FaultEffect::ShortRead
            | FaultEffect::Stall(_)
            | FaultEffect::FailLate(..)
            | FaultEffect::FailLateDroppingUnsynced(..)
            | FaultEffect::ZoneReadOnly
            | FaultEffect::ZoneOffline => self.inner.execute(std::slice::from_mut(request), context),
        }
    }

    /// Does each sector of a write or discard, or does not.
    fn perform_partly(
        &self,
        request: &mut Request<'_>,
        random: &mut Random,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let interval = self.inner.capabilities().protection.map_or(0, |format| format.interval_bytes);
        let unit = self.inner.geometry().sector_bytes.max(interval) as usize;
        let offset_bytes = request.offset_bytes;
        match &request.transfer {
            Transfer::Read { .. } => self.inner.execute(std::slice::from_mut(request), context),
            Transfer::Write { data, protection, durable } => {
                // Where the order is the device's, what is done of a write is a beginning.
                let ordered = self.inner.capabilities().zones.is_some();
                let beginning = if ordered { random.below(request.length_bytes() / unit as u64 + 1) } else { 0 };
                for (index, piece) in concat(data).chunks(unit).enumerate() {
                    let is_done = if ordered { (index as u64) < beginning } else { random.chance(1, 2) };
                    if !is_done {
                        continue;
                    }
                    let tuples = unit.checked_div(interval as usize).unwrap_or(0) * 8;
                    let protection = protection.and_then(|all| all.get(index * tuples..(index + 1) * tuples));
                    let at = offset_bytes + (index * unit) as u64;
                    let transfer = Transfer::Write { data: &[IoSlice::new(piece)], protection, durable: *durable };
                    self.inner.execute(&mut [Request { offset_bytes: at, transfer, outcome: Ok(()) }], context)?;
                }
                Ok(())
            }
            Transfer::Discard { length_bytes } => {
                for at in (offset_bytes..offset_bytes + length_bytes).step_by(unit) {
                    if random.chance(1, 2) {
                        self.inner.discard_at(at, unit as u64, context)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn perform_flipped(
        &self,
        request: &mut Request<'_>,
        count: u32,
        random: &mut Random,
        context: &IoContext,
    ) -> Result<(), MediaError> {
        let offset_bytes = request.offset_bytes;
        let length = usize::try_from(request.length_bytes()).unwrap_or(usize::MAX);
        if let Transfer::Write { data, protection, durable } = &request.transfer {
            let (mut bytes, mut tuples) = (concat(data), protection.map(<[u8]>::to_vec));
            let tuples_length = tuples.as_ref().map_or(0, Vec::len);
            flip_bits(random, count, length.saturating_add(tuples_length), |at, mask| match bytes.get_mut(at) {
                Some(byte) => *byte ^= mask,
                None => flip_in_tuples(tuples.as_deref_mut(), at - length, mask),
            });
            let data = &[IoSlice::new(&bytes)];
            let transfer = Transfer::Write { data, protection: tuples.as_deref(), durable: *durable };
            return self.inner.execute(&mut [Request { offset_bytes, transfer, outcome: Ok(()) }], context);
        }
        self.inner.execute(std::slice::from_mut(request), context)?;
        if let Transfer::Read { data, protection } = &mut request.transfer {
            let tuples_length = protection.as_ref().map_or(0, |tuples| tuples.len());
            flip_bits(random, count, length.saturating_add(tuples_length), |mut at, mask| {
                for slice in data.iter_mut() {
                    match slice.get_mut(at) {
                        Some(byte) => {
                            *byte ^= mask;
                            return;
                        }
                        None => at -= slice.len(),
                    }
                }
                flip_in_tuples(protection.as_deref_mut(), at, mask);
            });
        }
        Ok(())
    }
}

fn operation_of(request: &Request<'_>) -> Operation {
    match request.transfer {
        Transfer::Read { .. } => Operation::Read,
        Transfer::Write { .. } => Operation::Write,
        Transfer::Discard { .. } => Operation::Discard,
    }
}

fn flip_in_tuples(tuples: Option<&mut [u8]>, at: usize, mask: u8) {
    if let Some(byte) = tuples.and_then(|tuples| tuples.get_mut(at)) {
        *byte ^= mask;
    }
}

fn concat(slices: &[IoSlice<'_>]) -> Vec<u8> {
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}

impl BlockDevice for FaultDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut strikes: Vec<(usize, Result<Strike, MediaError>)> = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let strike = self.strike(request, context);
            let Some(worn) = &self.worn else {
                strikes.extend(strike.map(|strike| (index, Ok(strike))));
                continue;
            };
            if let Some(condition) = strike.as_ref().and_then(|strike| WornZones::condition_of(&strike.effect)) {
                worn.wear(request.offset_bytes, condition, context);
            }
            let judged = worn.judge(request).map(|()| strike).transpose();
            strikes.extend(judged.map(|judged| (index, judged)));
        }
        let drops_unsynced = self.injector.drops_unsynced();
        if drops_unsynced {
            self.remember(requests, context);
        }
        let result = self.perform_all(requests, strikes, context);
        if drops_unsynced {
            self.keep_durable(requests);
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let call = Call { operation: Operation::Sync, range: None, context: Some(context) };
        let strike = self.injector.strike(call);
        let name = self.inner.name();
        match strike.map(|strike| strike.effect) {
            Some(FaultEffect::Fail(error) | FaultEffect::FailPartly(error)) => {
                Err(error.at(name, Operation::Sync, 0, 0))
            }
            Some(FaultEffect::FailAfter(error)) => {
                self.inner.sync(context)?;
                self.unsynced.lock().clear();
                Err(error.at(name, Operation::Sync, 0, 0))
            }
            Some(FaultEffect::FailDroppingUnsynced(error)) => {
                self.drop_unsynced(context)?;
                Err(error.at(name, Operation::Sync, 0, 0))
            }
            Some(FaultEffect::FailLateDroppingUnsynced(duration, error)) => {
                self.drop_unsynced(context)?;
                self.injector.env.sleep(duration);
                Err(error.at(name, Operation::Sync, 0, 0))
            }
            Some(FaultEffect::Lose) => Ok(()),
            _ => {
                self.inner.sync(context)?;
                self.unsynced.lock().clear();
                Ok(())
            }
        }
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
