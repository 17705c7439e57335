//! Power cuts of devices with zones.

use super::content::{Content, ContentChange, Pending};
use super::fate::{Fate, FateChooser};
use crate::emulated::{ZoneState, ZoneTable, Zoned};
use crate::sectors::SectorSlice;
use crate::zones::{ZoneCondition, ZoneDescription, ZoneGeometry, ZoneId, ZoneType};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Zones as one content of a device has them: none is open.
#[derive(Clone)]
pub(crate) struct ZoneContent {
    table: Arc<ZoneTable>,
}

impl ZoneContent {
    /// Zones as a device reported them.
    pub(super) fn of(geometry: &ZoneGeometry, reported: &[ZoneDescription]) -> Self {
        let mut table = ZoneTable::new(geometry);
        for (zone, description) in (0..geometry.zone_count).map(ZoneId).zip(reported) {
            table.restore(zone, ZoneState::of(description));
        }
        ZoneContent { table: Arc::new(table) }
    }

    /// Rules of an image with these zones.
    pub(super) fn rules(&self) -> Zoned {
        Zoned::of((*self.table).clone())
    }

    pub(super) fn geometry(&self) -> &ZoneGeometry {
        self.table.geometry()
    }

    /// Puts a zone into the state the device says it is in.
    pub(super) fn found(&mut self, zone: ZoneId, description: &ZoneDescription) {
        Arc::make_mut(&mut self.table).restore(zone, ZoneState::of(description));
    }

    fn change(&mut self, zone: ZoneId, change: impl FnOnce(&mut ZoneState, u64)) {
        let zone_type = self.geometry().zone_type(zone);
        if !self.geometry().contains(zone) || zone_type == ZoneType::Conventional {
            return;
        }
        let capacity_bytes = self.table.describe(zone).capacity_bytes;
        let mut state = self.table.state(zone);
        if matches!(state.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline) {
            return;
        }
        change(&mut state, capacity_bytes);
        state.condition = match state.pointer_bytes {
            0 if !state.non_sequential => ZoneCondition::Empty,
            pointer if pointer >= capacity_bytes => ZoneCondition::Full,
            _ => ZoneCondition::Closed,
        };
        Arc::make_mut(&mut self.table).restore(zone, state);
    }

    /// Follows data that arrived, or a pointer that moved without its data.
    pub(super) fn written(&mut self, range: Range<u64>) {
        let zones: Vec<ZoneId> = self.geometry().zones_in(&range).collect();
        for zone in zones {
            let own = self.geometry().range(zone);
            let end_bytes = range.end.min(own.end) - own.start;
            let in_place = self.table.is_in_place(zone, &(range.start.max(own.start)..range.end.min(own.end)));
            self.change(zone, |state, capacity_bytes| {
                state.non_sequential |= !in_place;
                if in_place {
                    state.pointer_bytes = state.pointer_bytes.max(end_bytes).min(capacity_bytes);
                }
                state.written_bytes = state.written_bytes.max(end_bytes).min(capacity_bytes);
            });
        }
    }

    pub(super) fn reset(&mut self, zone: ZoneId) {
        self.change(zone, |state, _| {
            (state.pointer_bytes, state.written_bytes, state.non_sequential) = (0, 0, false);
        });
    }

    pub(super) fn finished(&mut self, zone: ZoneId) {
        self.change(zone, |state, capacity_bytes| state.pointer_bytes = capacity_bytes);
    }

    /// Whether a change is one of `zone`, whatever its type.
    pub(super) fn touches(&self, change: &ContentChange, zone: ZoneId) -> bool {
        match change {
            ContentChange::Write { offset_bytes, data } => {
                let written = *offset_bytes..offset_bytes + data.len() as u64;
                self.geometry().zones_in(&written).any(|touched| touched == zone)
            }
            ContentChange::ResetZone { zone: touched } | ContentChange::FinishZone { zone: touched } => {
                *touched == zone
            }
            _ => false,
        }
    }

    /// The zone that a change writes in order or commands.
    pub(super) fn ordered_zone(&self, change: &ContentChange) -> Option<ZoneId> {
        match change {
            ContentChange::Write { offset_bytes, .. } => {
                let zone = self.geometry().zone_at(*offset_bytes)?;
                (self.geometry().zone_type(zone) == ZoneType::SequentialWriteRequired).then_some(zone)
            }
            ContentChange::ResetZone { zone } | ContentChange::FinishZone { zone } => Some(*zone),
            _ => None,
        }
    }
}

/// Which changes of zones that are written in order arrive: in each zone those up to a moment, and of
/// the one at that moment, if it was torn, the pointer's way and sectors below it.
pub(super) struct ZoneArrival {
    /// Sequence number of the newest change of each zone that is certain: what came before it arrived too.
    certain: BTreeMap<ZoneId, u64>,
    /// Zones that the power cut found behind.
    stopped: BTreeSet<ZoneId>,
}

impl ZoneArrival {
    pub(super) fn new(durable: &Content, changes: &[&Pending]) -> Self {
        let mut certain = BTreeMap::new();
        for pending in changes.iter().filter(|pending| pending.certain) {
            if let Some(zone) = durable.zones.as_ref().and_then(|zones| zones.ordered_zone(&pending.change)) {
                certain.insert(zone, pending.sequence);
            }
        }
        ZoneArrival { certain, stopped: BTreeSet::new() }
    }

    /// Applies as much of a change to `zone` as arrives.
    pub(super) fn arrive(
        &mut self,
        zone: ZoneId,
        pending: &Pending,
        fate: Fate,
        content: &mut Content,
        sector_bytes: u64,
        chooser: &mut FateChooser,
    ) {
        let is_certain = self.certain.get(&zone).is_some_and(|&newest| pending.sequence <= newest);
        let fate = if is_certain { Fate::Kept } else { fate };
        if self.stopped.contains(&zone) {
            return;
        }
        match (&pending.change, fate) {
            (_, Fate::Kept) => content.apply(&pending.change),
            // A command is done or not.
            (ContentChange::ResetZone { .. } | ContentChange::FinishZone { .. }, Fate::Torn) if chooser.sector() => {
                content.apply(&pending.change);
            }
            (ContentChange::Write { offset_bytes, data }, Fate::Torn) => {
                self.stopped.insert(zone);
                tear(*offset_bytes, data.as_slice(), content, sector_bytes, chooser);
            }
            _ => {
                self.stopped.insert(zone);
            }
        }
    }
}

/// The pointer stands somewhere in the write, and of what is below it the last sectors may be missing.
fn tear(offset_bytes: u64, data: SectorSlice<'_>, content: &mut Content, sector_bytes: u64, chooser: &mut FateChooser) {
    let end = offset_bytes + data.data.len() as u64;
    let (first, behind) = (offset_bytes / sector_bytes, end.div_ceil(sector_bytes));
    let passed = chooser.below(behind - first + 1);
    let whole = chooser.below(passed + 1);
    for sector in first..first + passed {
        let from = offset_bytes.max(sector * sector_bytes);
        let to = end.min((sector + 1) * sector_bytes);
        if sector - first < whole || chooser.sector() {
            content.write(from, data.part((from - offset_bytes) as usize..(to - offset_bytes) as usize));
        } else if let Some(zones) = &mut content.zones {
            // Cleared by the last reset: it reads as zeros.
            zones.written(from..to);
        }
    }
}

#[cfg(test)]
mod tests;
