//! Zone commands through a crash layer.

use super::content::{ContentChange, Pending};
use super::device::{CrashDevice, CrashLayer, pages_of};
use crate::context::IoContext;
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::request::{Request, check_request};
use crate::sectors::Sectors;
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneId};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

impl CrashLayer {
    /// The zone that must be written in order and that a change writes.
    pub(super) fn zone_of(&self, change: &ContentChange) -> Option<ZoneId> {
        let state = self.state();
        state.crash.durable.zones.as_ref()?.ordered_zone(change)
    }

    /// What a failed write to a zone left: what lies between its beginning and the pointer now. A zone that
    /// turned out to be worn or dead is taken over as such.
    pub(super) fn look_at_zone(&self, failed: &ContentChange, context: &IoContext) -> Option<ContentChange> {
        let zone = self.zone_of(failed)?;
        let ContentChange::Write { offset_bytes, data } = failed else { return None };
        let found = self.inner.zones.as_ref()?.report(zone, 1, context).ok()?.pop()?;
        if matches!(found.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline) {
            self.take_over(zone, &found);
        }
        let end = match found.condition {
            // Where its pointer was nobody says.
            ZoneCondition::ReadOnly | ZoneCondition::Full => found.end_bytes(),
            ZoneCondition::Offline => return None,
            _ => found.write_pointer_bytes,
        };
        let end = end.min(offset_bytes + data.len() as u64);
        if end <= *offset_bytes {
            return None;
        }
        let (found, _) = self.read_whatever(&(*offset_bytes..end), context);
        Some(ContentChange::Write { offset_bytes: *offset_bytes, data: Arc::new(found) })
    }

    /// Takes over the state of a zone that the medium changed by itself.
    fn take_over(&self, zone: ZoneId, found: &ZoneDescription) {
        let state = &mut *self.state();
        if let Some(zones) = &mut Arc::make_mut(&mut state.crash).durable.zones {
            zones.found(zone, found);
        }
    }
}

/// The zone commands of a crash layer. A reset or finish, or an append, waits until nothing is in flight in its
/// zone, and nothing else begins there meanwhile.
pub(crate) struct CrashZones {
    shared: Arc<CrashLayer>,
    inner: Arc<dyn ZoneControl>,
}

impl CrashZones {
    pub(crate) fn facet(layer: &CrashDevice, inner: &Arc<dyn ZoneControl>) -> Arc<dyn ZoneControl> {
        Arc::new(CrashZones { shared: layer.shared.clone(), inner: inner.clone() })
    }

    fn describe(&self, zone: ZoneId, context: &IoContext) -> Result<ZoneDescription, MediaError> {
        let missing = || MediaError::Rule {
            device: self.shared.inner.block.name().to_owned(),
            operation: Operation::Zone,
            offset_bytes: 0,
            rule: format!("the device reports nothing about zone {zone}"),
        };
        self.inner.report(zone, 1, context)?.pop().ok_or_else(missing)
    }

    /// Notes a change that is about to happen to `touched`, with the zone reserved as `sequence`.
    fn begin(&self, sequence: u64, change: ContentChange, point: Range<u64>, touched: Range<u64>) {
        let mut state = self.shared.state();
        let crash = Arc::make_mut(&mut state.crash);
        self.shared.keep_original(&mut crash.durable, pages_of(touched));
        crash.pending.push(Pending { sequence, certain: false, change });
        state.pass_point(Operation::Zone, point.start, point.end - point.start);
    }

    /// A command that changes the zone as `change` says.
    fn perform(
        &self,
        zone: ZoneId,
        context: &IoContext,
        change: &ContentChange,
        command: impl FnOnce() -> Result<(), MediaError>,
        is_done: impl Fn(&ZoneDescription) -> bool,
    ) -> Result<(), MediaError> {
        let ZoneDescription { start_bytes, length_bytes, .. } = self.describe(zone, context)?;
        let whole = start_bytes..start_bytes + length_bytes;
        let sequences = self.shared.reserve(&[vec![pages_of(whole.clone())]]);
        let Some(&sequence) = sequences.first() else { return command() };
        let described = self.describe(zone, context);
        let touched = match (&described, change) {
            (Ok(found), ContentChange::ResetZone { .. }) if found.condition.is_active() => {
                start_bytes..found.write_pointer_bytes
            }
            (Ok(found), ContentChange::ResetZone { .. }) if found.condition == ZoneCondition::Full => {
                start_bytes..found.end_bytes()
            }
            _ => start_bytes..start_bytes,
        };
        self.shared.save_original(&pages_of(touched.clone()), context);
        self.begin(sequence, change.clone(), whole, touched);
        let outcome = command();
        let was_done = match &outcome {
            Ok(()) => true,
            Err(error) if error.kind() == MediaErrorKind::InvalidRequest => false,
            // Only the device knows.
            Err(_) => match self.describe(zone, context) {
                Ok(found) if matches!(found.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline) => {
                    self.shared.take_over(zone, &found);
                    false
                }
                found => found.is_ok_and(|found| is_done(&found)),
            },
        };
        let state = &mut *self.shared.state();
        state.in_flight.remove(&sequence);
        let crash = Arc::make_mut(&mut state.crash);
        let is_reset = matches!(change, ContentChange::ResetZone { .. });
        let zones = crash.durable.zones.clone();
        // A reset leaves nothing of what was written before.
        let is_moot = |pending: &Pending| {
            was_done && is_reset && zones.as_ref().is_some_and(|zones| zones.touches(&pending.change, zone))
        };
        crash.retain(|pending| pending.sequence != sequence && !is_moot(pending));
        if was_done {
            crash.durable.apply(change);
        }
        self.shared.landed.notify_all();
        outcome
    }
}

impl ZoneControl for CrashZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.inner.report(first, count, context)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.inner.open(zone, context)
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.inner.close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let change = ContentChange::FinishZone { zone };
        let command = || self.inner.finish(zone, context);
        self.perform(zone, context, &change, command, |found| found.condition == ZoneCondition::Full)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let change = ContentChange::ResetZone { zone };
        let command = || self.inner.reset(zone, context);
        self.perform(zone, context, &change, command, |found| found.condition == ZoneCondition::Empty)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        let shared = &self.shared;
        let ZoneDescription { start_bytes, length_bytes, .. } = self.describe(zone, context)?;
        let whole = start_bytes..start_bytes + length_bytes;
        let sequences = shared.reserve(&[vec![pages_of(whole)]]);
        let Some(&sequence) = sequences.first() else { return self.inner.append(zone, data, context) };
        let outcome = self.append_reserved(zone, data, sequence, context);
        shared.state().in_flight.remove(&sequence);
        shared.landed.notify_all();
        outcome
    }
}

impl CrashZones {
    /// An append while nothing else is in flight in its zone, so that its place is known before.
    fn append_reserved(
        &self,
        zone: ZoneId,
        data: &[u8],
        sequence: u64,
        context: &IoContext,
    ) -> Result<u64, MediaError> {
        let shared = &self.shared;
        let found = self.describe(zone, context)?;
        let offset_bytes = found.write_pointer_bytes;
        let slices = [IoSlice::new(data)];
        let fits = found.remaining_bytes() >= data.len() as u64 && !data.is_empty();
        if !fits || check_request(&*shared.inner.block, &Request::write(offset_bytes, &slices)).is_err() {
            return self.inner.append(zone, data, context);
        }
        let written = offset_bytes..offset_bytes + data.len() as u64;
        shared.save_original(&pages_of(written.clone()), context);
        let format = shared.inner.block.capabilities().protection;
        let sectors = Sectors::of_write(format, offset_bytes, &slices, None);
        let change = ContentChange::Write { offset_bytes, data: Arc::new(sectors) };
        self.begin(sequence, change.clone(), written.clone(), written);
        let outcome = self.inner.append(zone, data, context);
        let later = match &outcome {
            Ok(_) if shared.inner.block.capabilities().volatile_cache => return outcome,
            Ok(_) => vec![(change.clone(), true)],
            Err(error) if error.kind() == MediaErrorKind::InvalidRequest => Vec::new(),
            Err(_) => shared.look_at_zone(&change, context).into_iter().map(|change| (change, false)).collect(),
        };
        let state = &mut *shared.state();
        let crash = Arc::make_mut(&mut state.crash);
        if outcome.is_err() {
            crash.retain(|pending| pending.sequence != sequence);
        }
        for (change, certain) in later {
            crash.pending.push(Pending { sequence: state.next_sequence, certain, change });
            state.next_sequence += 1;
        }
        outcome
    }
}
