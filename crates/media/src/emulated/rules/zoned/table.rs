//! The state machine of zones: no I/O, no time.

use crate::error::{MediaError, Operation};
use crate::zones::{ZoneCondition, ZoneDescription, ZoneGeometry, ZoneId, ZoneRefusal, ZoneType};
use std::collections::BTreeMap;
use std::ops::Range;

/// A zone command that changes conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneCommand {
    Open,
    Close,
    Finish,
    Reset,
}

/// A request or command that the state of a zone does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) zone: ZoneId,
    pub(crate) refusal: ZoneRefusal,
}

impl Refused {
    pub(crate) fn at(self, device: &str, operation: Operation, offset_bytes: u64) -> MediaError {
        let Refused { zone, refusal } = self;
        MediaError::Zone { device: device.to_owned(), operation, zone, offset_bytes, refusal }
    }
}

/// What a command does, or a write before it moves the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZonePlan {
    /// Zone to close implicitly first.
    closes: Option<ZoneId>,
    /// Condition of the zone afterwards.
    pub(crate) condition: ZoneCondition,
}

/// The state of one zone. Bytes are counted from the start of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneState {
    pub(crate) condition: ZoneCondition,
    pub(crate) pointer_bytes: u64,
    /// Everything from here on reads as zeros; below the pointer where writes are in flight or a finish
    /// moved it.
    pub(crate) written_bytes: u64,
    /// What is written to it goes to the media cache.
    pub(crate) non_sequential: bool,
}

impl ZoneState {
    /// The state of a zone that a device describes.
    pub(crate) fn of(description: &ZoneDescription) -> ZoneState {
        let ZoneDescription { start_bytes, capacity_bytes, write_pointer_bytes, condition, non_sequential, .. } =
            *description;
        let pointer_bytes = match condition {
            ZoneCondition::Empty | ZoneCondition::NotWritePointer => 0,
            condition if condition.is_active() => write_pointer_bytes.saturating_sub(start_bytes).min(capacity_bytes),
            _ => capacity_bytes,
        };
        // What lies between data and pointer of such a zone is zeros on the device too; where data ends in one that is not
        // written in order nobody says.
        let written_bytes = if non_sequential { capacity_bytes } else { pointer_bytes };
        ZoneState { condition, pointer_bytes, written_bytes, non_sequential }
    }
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    state: ZoneState,
    /// Its place in [`ZoneTable::implicit`], while it is implicitly opened.
    opening: u64,
}

/// The state of a zone to which nothing was written.
fn fresh(geometry: &ZoneGeometry, zone: ZoneId) -> ZoneState {
    let condition = match geometry.zone_type(zone) {
        ZoneType::Conventional => ZoneCondition::NotWritePointer,
        _ => ZoneCondition::Empty,
    };
    ZoneState { condition, pointer_bytes: 0, written_bytes: 0, non_sequential: false }
}

/// All zones of a device. Memory: 32 bytes for each up to the last that changed.
#[derive(Clone, Debug)]
pub(crate) struct ZoneTable {
    geometry: ZoneGeometry,
    /// Those behind its end are as they were at first: a device that is only described has none here.
    zones: Vec<Zone>,
    /// Implicitly opened zones in the order in which they were opened.
    implicit: BTreeMap<u64, ZoneId>,
    openings: u64,
    open_zones: u32,
    active_zones: u32,
    /// A translation layer says where writes to preferred zones go, when they reach it.
    is_translated: bool,
    /// Zones that it cleaned since somebody took note of them; `None` where nobody does.
    cleaned: Option<Vec<ZoneId>>,
}

impl ZoneTable {
    /// Zones to which nothing was written.
    pub(crate) fn new(geometry: &ZoneGeometry) -> Self {
        let mut geometry = geometry.clone();
        geometry.conventional_zones = geometry.conventional_zones.min(geometry.zone_count);
        geometry.zone_capacity_bytes = match geometry.sequential_type {
            ZoneType::SequentialWriteRequired => geometry.zone_capacity_bytes.min(geometry.zone_bytes),
            _ => geometry.zone_bytes,
        };
        if geometry.sequential_type != ZoneType::SequentialWritePreferred {
            (geometry.track_overlap, geometry.media_cache) = (None, None);
        }
        ZoneTable {
            zones: Vec::new(),
            implicit: BTreeMap::new(),
            openings: 0,
            open_zones: 0,
            active_zones: 0,
            is_translated: false,
            cleaned: None,
            geometry,
        }
    }

    /// Begins to list the zones that are cleaned, for whoever [takes](ZoneTable::take_cleaned) the list.
    pub(super) fn list_cleaned(&mut self) {
        self.cleaned = Some(Vec::new());
    }

    /// Zones that were cleaned since this was last asked.
    pub(super) fn take_cleaned(&mut self) -> Vec<ZoneId> {
        self.cleaned.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Leaves it to a translation layer to [place](ZoneTable::place) writes to preferred zones.
    pub(crate) fn translate(&mut self) {
        self.is_translated = true;
    }

    pub(crate) fn geometry(&self) -> &ZoneGeometry {
        &self.geometry
    }

    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.zones.capacity() * size_of::<Zone>()
    }

    /// State of a zone that is there.
    #[inline]
    pub(crate) fn state(&self, zone: ZoneId) -> ZoneState {
        self.zones.get(zone.0 as usize).map_or_else(|| fresh(&self.geometry, zone), |zone| zone.state)
    }

    fn zone_mut(&mut self, zone: ZoneId) -> &mut Zone {
        let index = zone.0 as usize;
        if self.zones.len() <= index {
            let more = self.zones.len() as u32..=zone.0;
            let geometry = &self.geometry;
            self.zones.extend(more.map(|zone| Zone { state: fresh(geometry, ZoneId(zone)), opening: 0 }));
        }
        &mut self.zones[index]
    }

    /// Puts a zone that is there into a state it had, as after a power cut: not open.
    pub(crate) fn restore(&mut self, zone: ZoneId, state: ZoneState) {
        let condition = match state.condition {
            condition if condition.is_active() && state.pointer_bytes == 0 && !state.non_sequential => {
                ZoneCondition::Empty
            }
            condition if condition.is_active() => ZoneCondition::Closed,
            condition => condition,
        };
        self.set_condition(zone, condition);
        self.zone_mut(zone).state = ZoneState { condition, ..state };
    }

    /// Sets the state of an existing zone to the one a device reports, which may be open.
    pub(crate) fn restore_open(&mut self, zone: ZoneId, state: ZoneState) {
        self.set_condition(zone, state.condition);
        self.zone_mut(zone).state = state;
    }

    pub(crate) fn describe(&self, zone: ZoneId) -> ZoneDescription {
        let zone_type = self.geometry.zone_type(zone);
        let start_bytes = self.geometry.start_bytes(zone);
        let capacity_bytes = match zone_type {
            ZoneType::Conventional => self.geometry.zone_bytes,
            _ => self.geometry.zone_capacity_bytes,
        };
        let ZoneState { condition, pointer_bytes, non_sequential, .. } = self.state(zone);
        ZoneDescription {
            start_bytes,
            length_bytes: self.geometry.zone_bytes,
            capacity_bytes,
            write_pointer_bytes: start_bytes + pointer_bytes,
            zone_type,
            condition,
            non_sequential,
        }
    }

    fn refuse<T>(&self, zone: ZoneId, refusal: ZoneRefusal) -> Result<T, Refused> {
        Err(Refused { zone, refusal })
    }

    pub(crate) fn check_exists(&self, zone: ZoneId) -> Result<(), Refused> {
        let zone_count = self.geometry.zone_count;
        if self.geometry.contains(zone) { Ok(()) } else { self.refuse(zone, ZoneRefusal::Missing { zone_count }) }
    }

    /// What writing to or commanding a zone in such a condition is always refused with.
    fn check_alive(&self, zone: ZoneId) -> Result<(), Refused> {
        match self.state(zone).condition {
            ZoneCondition::ReadOnly => self.refuse(zone, ZoneRefusal::ReadOnly),
            ZoneCondition::Offline => self.refuse(zone, ZoneRefusal::Offline),
            _ => Ok(()),
        }
    }

    /// The plan that opens a zone which is not open: limits hold, and an implicitly opened zone is closed for it.
    fn plan_opening(&self, zone: ZoneId, condition: ZoneCondition) -> Result<ZonePlan, Refused> {
        let ZoneGeometry { open_zones_max, active_zones_max, sequential_type, .. } = self.geometry;
        // Writes to preferred zones are never refused; what a host-aware disk names are optimal numbers.
        let limited = |limit: u32, zones: u32| {
            limit > 0 && zones >= limit && sequential_type == ZoneType::SequentialWriteRequired
        };
        let is_active = self.state(zone).condition.is_active();
        if !is_active && limited(active_zones_max, self.active_zones) {
            return self.refuse(zone, ZoneRefusal::ActiveLimit { limit: active_zones_max });
        }
        let mut closes = None;
        if limited(open_zones_max, self.open_zones) {
            closes = self.implicit.first_key_value().map(|(_, &oldest)| oldest);
            if closes.is_none() {
                return self.refuse(zone, ZoneRefusal::OpenLimit { limit: open_zones_max });
            }
        }
        Ok(ZonePlan { closes, condition })
    }

    /// What a command would do; `None` when it changes nothing.
    pub(crate) fn plan(&self, command: ZoneCommand, zone: ZoneId) -> Result<Option<ZonePlan>, Refused> {
        self.check_exists(zone)?;
        if self.geometry.zone_type(zone) == ZoneType::Conventional {
            return self.refuse(zone, ZoneRefusal::Conventional);
        }
        self.check_alive(zone)?;
        let ZoneState { condition, pointer_bytes, non_sequential, .. } = self.state(zone);
        let to = |condition| Ok(Some(ZonePlan { closes: None, condition }));
        match (command, condition) {
            (ZoneCommand::Open, ZoneCondition::ExplicitlyOpened)
            | (ZoneCommand::Close, ZoneCondition::Closed)
            | (ZoneCommand::Finish, ZoneCondition::Full)
            | (ZoneCommand::Reset, ZoneCondition::Empty) => Ok(None),
            (ZoneCommand::Open, ZoneCondition::ImplicitlyOpened) => to(ZoneCondition::ExplicitlyOpened),
            (ZoneCommand::Open, ZoneCondition::Empty | ZoneCondition::Closed) => {
                self.plan_opening(zone, ZoneCondition::ExplicitlyOpened).map(Some)
            }
            (ZoneCommand::Close, condition) if condition.is_open() => {
                let is_empty = pointer_bytes == 0 && !non_sequential;
                to(if is_empty { ZoneCondition::Empty } else { ZoneCondition::Closed })
            }
            (ZoneCommand::Finish, condition) if condition.is_open() => to(ZoneCondition::Full),
            // On its way to full the zone is open for a moment.
            (ZoneCommand::Finish, _) => self.plan_opening(zone, ZoneCondition::Full).map(Some),
            (ZoneCommand::Reset, _) => to(ZoneCondition::Empty),
            _ => self.refuse(zone, ZoneRefusal::Transition { condition }),
        }
    }

    /// Carries out a plan made of this very state.
    pub(crate) fn apply(&mut self, zone: ZoneId, plan: ZonePlan) {
        if let Some(oldest) = plan.closes {
            self.set_condition(oldest, ZoneCondition::Closed);
        }
        self.set_condition(zone, plan.condition);
        let capacity_bytes = self.geometry.zone_capacity_bytes;
        let state = &mut self.zone_mut(zone).state;
        match plan.condition {
            ZoneCondition::Full => state.pointer_bytes = capacity_bytes,
            ZoneCondition::Empty => {
                (state.pointer_bytes, state.written_bytes, state.non_sequential) = (0, 0, false);
            }
            _ => {}
        }
    }

    fn set_condition(&mut self, zone: ZoneId, condition: ZoneCondition) {
        let opening = self.openings;
        let changed = self.zone_mut(zone);
        let before = std::mem::replace(&mut changed.state.condition, condition);
        if before == condition {
            return;
        }
        let opened = changed.opening;
        if condition == ZoneCondition::ImplicitlyOpened {
            changed.opening = opening;
        }
        if before == ZoneCondition::ImplicitlyOpened {
            self.implicit.remove(&opened);
        }
        if condition == ZoneCondition::ImplicitlyOpened {
            self.implicit.insert(self.openings, zone);
            self.openings += 1;
        }
        self.open_zones = self.open_zones - u32::from(before.is_open()) + u32::from(condition.is_open());
        self.active_zones = self.active_zones - u32::from(before.is_active()) + u32::from(condition.is_active());
    }

    /// Judges a write to a zone that must be written in order.
    fn plan_required(&self, zone: ZoneId, written: &Range<u64>) -> Result<Option<ZonePlan>, Refused> {
        let ZoneState { condition, pointer_bytes, .. } = self.state(zone);
        let start = self.geometry.start_bytes(zone);
        let end_bytes = start + self.geometry.zone_capacity_bytes;
        let write_pointer_bytes = start + pointer_bytes;
        let length_bytes = written.end - written.start;
        match condition {
            ZoneCondition::Full => self.refuse(zone, ZoneRefusal::Full),
            _ if written.start != write_pointer_bytes => {
                self.refuse(zone, ZoneRefusal::WritePointer { write_pointer_bytes })
            }
            _ if written.end > end_bytes => self.refuse(zone, ZoneRefusal::Boundary { length_bytes, end_bytes }),
            condition if condition.is_open() => Ok(None),
            _ => self.plan_opening(zone, ZoneCondition::ImplicitlyOpened).map(Some),
        }
    }

    fn advance(&mut self, zone: ZoneId, plan: Option<ZonePlan>, end_bytes: u64) {
        if let Some(plan) = plan {
            self.apply(zone, plan);
        }
        let pointer_bytes = end_bytes - self.geometry.start_bytes(zone);
        let state = &mut self.zone_mut(zone).state;
        state.pointer_bytes = state.pointer_bytes.max(pointer_bytes);
        if state.pointer_bytes == self.geometry.zone_capacity_bytes {
            self.set_condition(zone, ZoneCondition::Full);
        }
    }

    /// Judges a write that lies within the device, and moves the write pointers if it is admitted.
    pub(crate) fn admit_write(&mut self, written: &Range<u64>) -> Result<(), Refused> {
        let zones: Vec<ZoneId> = self.geometry.zones_in(written).collect();
        for &zone in &zones {
            self.check_alive(zone)?;
        }
        // Only zones that may be written anywhere may be written together.
        let required = |zone: &&ZoneId| self.geometry.zone_type(**zone) == ZoneType::SequentialWriteRequired;
        if let Some(&zone) = zones.iter().find(required) {
            let end_bytes = match zones.first() {
                Some(&first) if first != zone => self.geometry.start_bytes(zone),
                _ => self.geometry.start_bytes(zone) + self.geometry.zone_capacity_bytes,
            };
            if zones.len() > 1 && self.state(zone).condition != ZoneCondition::Full {
                let length_bytes = written.end - written.start;
                return self.refuse(zone, ZoneRefusal::Boundary { length_bytes, end_bytes });
            }
            let plan = self.plan_required(zone, written)?;
            self.advance(zone, plan, written.end);
            return Ok(());
        }
        if !self.is_translated {
            for zone in zones {
                let own = self.geometry.range(zone);
                self.place(zone, &(written.start.max(own.start)..written.end.min(own.end)));
            }
        }
        Ok(())
    }

    /// Whether a write of `written`, bytes of a zone that may be written anywhere, goes to its place.
    pub(crate) fn is_in_place(&self, zone: ZoneId, written: &Range<u64>) -> bool {
        let ZoneState { condition, pointer_bytes, non_sequential, .. } = self.state(zone);
        condition == ZoneCondition::NotWritePointer
            || self.geometry.media_cache.is_none()
            || (!non_sequential && written.start == self.geometry.start_bytes(zone) + pointer_bytes)
    }

    /// Follows such a write: opens the zone, and moves the pointer or makes the zone non-sequential.
    pub(crate) fn place(&mut self, zone: ZoneId, written: &Range<u64>) {
        let condition = self.state(zone).condition;
        if condition == ZoneCondition::NotWritePointer {
            return;
        }
        let opens = matches!(condition, ZoneCondition::Empty | ZoneCondition::Closed);
        let plan = opens.then_some(ZonePlan { closes: None, condition: ZoneCondition::ImplicitlyOpened });
        if self.is_in_place(zone, written) {
            return self.advance(zone, plan, written.end);
        }
        if let Some(plan) = plan {
            self.apply(zone, plan);
        }
        self.zone_mut(zone).state.non_sequential = true;
    }

    /// Follows the cleaning of a zone: what was written to it lies in order now, up to `end_bytes` of the zone at least.
    pub(crate) fn cleaned(&mut self, zone: ZoneId, end_bytes: u64) {
        let state = &mut self.zone_mut(zone).state;
        state.non_sequential = false;
        let end_bytes = end_bytes.max(state.written_bytes);
        // Writes that came between the parts of a reset.
        if state.condition == ZoneCondition::Empty && end_bytes > 0 {
            self.set_condition(zone, ZoneCondition::Closed);
        }
        self.cleaned_in_part(zone, end_bytes);
    }

    /// Follows the cleaning of a zone to which something was written meanwhile: it is cleaned once more, up to where this one came
    /// at least.
    pub(crate) fn cleaned_in_part(&mut self, zone: ZoneId, end_bytes: u64) {
        if let Some(cleaned) = &mut self.cleaned {
            cleaned.push(zone);
        }
        let end_bytes = self.geometry.start_bytes(zone) + end_bytes.min(self.geometry.zone_capacity_bytes);
        self.advance(zone, None, end_bytes);
    }

    /// Judges an append, and moves the write pointer if it is admitted; gives where the data goes.
    pub(crate) fn admit_append(&mut self, zone: ZoneId, length_bytes: u64) -> Result<u64, Refused> {
        self.check_exists(zone)?;
        match self.geometry.zone_type(zone) {
            ZoneType::SequentialWriteRequired => {}
            ZoneType::Conventional => return self.refuse(zone, ZoneRefusal::Conventional),
            ZoneType::SequentialWritePreferred => return self.refuse(zone, ZoneRefusal::Append),
        }
        self.check_alive(zone)?;
        let limit_bytes = self.geometry.append_bytes_max;
        if limit_bytes > 0 && length_bytes > limit_bytes {
            return self.refuse(zone, ZoneRefusal::AppendLength { limit_bytes });
        }
        let start = self.geometry.start_bytes(zone) + self.state(zone).pointer_bytes;
        if length_bytes > 0 {
            let plan = self.plan_required(zone, &(start..start.saturating_add(length_bytes)))?;
            self.advance(zone, plan, start + length_bytes);
        }
        Ok(start)
    }

    /// Follows a write that was admitted and done, perhaps in part.
    pub(crate) fn written(&mut self, written: &Range<u64>) {
        for zone in self.geometry.zones_in(written) {
            let end_bytes = written.end.min(self.geometry.range(zone).end) - self.geometry.start_bytes(zone);
            let state = &mut self.zone_mut(zone).state;
            // A reset may have come between. Bytes in the media cache lie anywhere.
            let limit_bytes = if state.non_sequential { end_bytes } else { state.pointer_bytes };
            state.written_bytes = state.written_bytes.max(end_bytes.min(limit_bytes));
        }
    }

    /// Takes back a write that was admitted and then refused for other reasons, if nothing was admitted behind it.
    pub(crate) fn retract(&mut self, written: &Range<u64>) {
        for zone in self.geometry.zones_in(written) {
            let start = self.geometry.start_bytes(zone);
            let ZoneState { condition, pointer_bytes, .. } = self.state(zone);
            let is_required = self.geometry.zone_type(zone) == ZoneType::SequentialWriteRequired;
            if !is_required || start + pointer_bytes != written.end || written.start < start {
                continue;
            }
            if condition == ZoneCondition::Full {
                self.set_condition(zone, ZoneCondition::Closed);
            }
            let pointer_bytes = written.start - start;
            self.zone_mut(zone).state.pointer_bytes = pointer_bytes;
            if pointer_bytes == 0 && self.state(zone).condition != ZoneCondition::ExplicitlyOpened {
                self.set_condition(zone, ZoneCondition::Empty);
            }
        }
    }

    pub(crate) fn check_read(&self, range: &Range<u64>) -> Result<(), Refused> {
        let mut zones = self.geometry.zones_in(range);
        match zones.find(|&zone| self.state(zone).condition == ZoneCondition::Offline) {
            Some(zone) => self.refuse(zone, ZoneRefusal::Offline),
            None => Ok(()),
        }
    }

    pub(crate) fn check_discard(&self, range: &Range<u64>) -> Result<(), Refused> {
        for zone in self.geometry.zones_in(range) {
            self.check_alive(zone)?;
            if self.geometry.zone_type(zone) != ZoneType::Conventional {
                return self.refuse(zone, ZoneRefusal::Discard);
            }
        }
        Ok(())
    }

    /// The parts of `range` that read as zeros whatever is below.
    pub(crate) fn unwritten(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let Range { start, end } = range.clone();
        self.geometry.zones_in(range).filter_map(move |zone| {
            let own = self.geometry.range(zone);
            let from = own.start + self.state(zone).written_bytes;
            let part = from.max(start)..own.end.min(end);
            (self.geometry.zone_type(zone) != ZoneType::Conventional && !part.is_empty()).then_some(part)
        })
    }

    /// What the medium itself does to a zone when it wears out or dies.
    #[cfg(test)]
    pub(crate) fn degrade(&mut self, zone: ZoneId, condition: ZoneCondition) -> Result<(), Refused> {
        self.check_exists(zone)?;
        self.set_condition(zone, condition);
        Ok(())
    }

    /// Zones that are open, and zones that are active.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.open_zones, self.active_zones)
    }
}
