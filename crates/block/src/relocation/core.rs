//! What the requests of a device with relocated zones and the relocation itself share.

use super::admission::{Admission, Held, Level};
use super::map::ZoneMap;
use super::moving::Moving;
use super::policy::{Ahead, Candidate, Filling, RelocationParameters, Situation};
use crate::idler::{GhostCache, Work};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use varve_env::{Condvar, Env, Mutex, MutexGuard};
use varve_media::{
    Capabilities, Device, Geometry, IoContext, MediaError, SyncOrder, ZoneCondition, ZoneControl, ZoneDescription,
    ZoneGeometry, ZoneId,
};

/// Share of the cache that is filled between two calculations of what is ahead of the log's tail, each of which visits all zones in the log.
const LOOK_AHEAD_EACH: f64 = 1.0 / 64.0;

/// What relocation did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelocationStatistics {
    /// Zones that were moved.
    pub relocated_zones: u64,
    /// Relocations that were given up: the zone was written too much, or commanded, or could not be read or written.
    pub given_up: u64,
    /// Bytes that were read and written for relocations.
    pub copied_bytes: u64,
    /// Steps that were taken.
    pub steps: u64,
    /// How long they took.
    pub step_nanos: u64,
    /// The longest.
    pub longest_step_nanos: u64,
    /// Writes that waited for a zone to be moved.
    pub held_writes: u64,
    /// The longest that one did.
    pub longest_hold_nanos: u64,
    /// Writes that waited because the cache was about to be full.
    pub braked_writes: u64,
    /// The longest that one did.
    pub longest_brake_nanos: u64,
    /// Reports of all zones that were asked for because the drive seemed to block.
    pub reports_in_doubt: u64,
    /// Reports of all zones that were asked for.
    pub reports: u64,
}

/// A part of a request that lies in one logical zone, or a command to one.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) zone: ZoneId,
    /// From the start of the zone.
    pub(super) range: Range<u64>,
    pub(super) work: Work,
}

impl Part {
    fn changes(&self) -> bool {
        self.work != Work::Read
    }
}

/// Logical zones that somebody uses: none in a sync.
#[derive(Clone, Debug)]
struct InFlight {
    zones: Range<u32>,
    range: Range<u64>,
    changes: bool,
}

/// What is known of a logical zone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ZoneKnowledge {
    /// First byte behind all that was written.
    pub(super) written_bytes: u64,
    last_change_nanos: u64,
    /// Requests that changed it, or were to.
    changes: u64,
    given_up: u32,
    /// How often it could not be read, or was not reported, since it was moved or reset last.
    unreadable: u32,
    /// Until then it is left where it is.
    left_until_nanos: u64,
}

pub(super) struct State {
    pub(super) map: ZoneMap,
    pub(super) ghost: GhostCache,
    /// How fast the media cache fills.
    filling: Filling,
    /// How fast its log does.
    log_filling: Filling,
    /// Look-ahead from the log's tail, and the position of the log when it was calculated.
    ahead: (Ahead, u64),
    pub(super) zones: Vec<ZoneKnowledge>,
    in_flight: BTreeMap<u64, InFlight>,
    next_ticket: u64,
    /// Calls of others at the device.
    outstanding: usize,
    quiet_since_nanos: u64,
    pub(super) last_busy_step: (u64, u64),
    pub(super) last_report_nanos: Option<u64>,
    pub(super) moving: Option<Moving>,
    /// Zones to relocate whatever they are worth.
    pub(super) demanded: VecDeque<ZoneId>,
    pub(super) is_stopped: bool,
    /// What left unknown what is on the medium: nothing is acknowledged any more.
    pub(super) failure: Option<MediaError>,
    /// Bytes that relocation wrote, and how many of them are durable.
    pub(super) copied_bytes: u64,
    durable_bytes: u64,
    /// Not before then another zone is looked for: what failed once would at once fail again.
    pub(super) not_before_nanos: u64,
    pub(super) failures: u32,
    /// True if writes of every class wait.
    admission: Admission,
    /// How fast the cache fills, over the time that the move of a zone takes.
    filling_in_move: Filling,
    /// That time, in nanoseconds; 0 before the first move.
    pub(super) move_nanos: u64,
    /// Share of the cache that comes back when the old place of the zone that was moved is reset.
    pub(super) unreturned_share: f64,
    /// A step was a sign that the drive blocks.
    pub(super) seems_to_block: bool,
    /// Relocation waits for a zone that is worth it, or for requests to end.
    rests: bool,
    listens: bool,
    /// Relocations that ended, whatever came of them.
    pub(super) attempts: u64,
    pub(super) statistics: RelocationStatistics,
}

/// A device with relocated zones.
pub(super) struct Core {
    pub(super) env: Env,
    pub(super) inner: Device,
    pub(super) inner_zones: Arc<dyn ZoneControl>,
    /// Syncs of the device below: of requests, of copies and of the journal.
    pub(super) order: Arc<SyncOrder>,
    /// Zones of the device below.
    pub(super) physical: ZoneGeometry,
    pub(super) geometry: Geometry,
    pub(super) capabilities: Capabilities,
    /// Those shown above.
    pub(super) logical: ZoneGeometry,
    pub(super) parameters: RelocationParameters,
    pub(super) state: Mutex<State>,
    /// Something that relocation waits for has come.
    work: Condvar,
    /// A zone is no longer held, or a relocation has ended.
    released: Condvar,
    /// Requests that were refused here.
    pub(super) refused: AtomicU64,
}

/// Requests at the device, and where their parts are. They leave it when this is dropped, also where the device panicked: whoever waits for them
/// would wait for ever.
pub(super) struct Entered<'a> {
    core: &'a Core,
    tickets: Range<u64>,
    /// How many requests had come to change each zone.
    changes: Vec<u64>,
    pub(super) offsets: Vec<u64>,
    /// What relocation had written before a sync.
    copied_bytes: u64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.core.leave(self.tickets.clone());
    }
}

impl State {
    pub(super) fn new(map: ZoneMap, ghost: GhostCache, reported: &[ZoneDescription]) -> State {
        let knowledge = |zone: &ZoneId| {
            let found = reported.get(zone.0 as usize);
            let written_bytes = found.map_or(0, written_bytes);
            ZoneKnowledge { written_bytes, ..ZoneKnowledge::default() }
        };
        let zones = map.zones().iter().map(knowledge).collect();
        State {
            map,
            ghost,
            filling: Filling::default(),
            log_filling: Filling::default(),
            ahead: (Ahead::default(), 0),
            zones,
            in_flight: BTreeMap::new(),
            next_ticket: 0,
            outstanding: 0,
            quiet_since_nanos: 0,
            last_busy_step: (0, 0),
            last_report_nanos: None,
            moving: None,
            demanded: VecDeque::new(),
            is_stopped: false,
            failure: None,
            copied_bytes: 0,
            durable_bytes: 0,
            not_before_nanos: 0,
            failures: 0,
            admission: Admission::default(),
            filling_in_move: Filling::default(),
            move_nanos: 0,
            unreturned_share: 0.0,
            seems_to_block: false,
            rests: false,
            listens: false,
            attempts: 0,
            statistics: RelocationStatistics::default(),
        }
    }

    pub(super) fn situation(&self, parameters: &RelocationParameters, now_nanos: u64) -> Situation {
        Situation {
            now_nanos,
            outstanding: self.outstanding,
            quiet_since_nanos: self.quiet_since_nanos,
            utilization: self.pressure(parameters, now_nanos),
            last_busy_step: self.last_busy_step,
        }
    }

    /// How full the cache counts as.
    pub(super) fn pressure(&self, parameters: &RelocationParameters, now_nanos: u64) -> f64 {
        let utilization = self.ghost.utilization().max(self.ahead().soon);
        let pressure = parameters.pressure(utilization, &self.filling, now_nanos);
        pressure.max(parameters.pressure_of_holds(&self.level(parameters, now_nanos)))
    }

    /// Look-ahead from the log's tail, corrected for the growth of the log since it was calculated.
    fn ahead(&self) -> Ahead {
        let (Ahead { of_all, soon }, position) = self.ahead;
        let grown = if of_all > 0.0 { self.ghost.log_share_since(position) } else { 0.0 };
        Ahead { of_all: of_all + grown, soon: soon + grown }
    }

    /// Calculates what is ahead of the log's tail.
    fn look_ahead(&mut self, parameters: &RelocationParameters, now_nanos: u64) {
        let move_nanos = if self.move_nanos == 0 { parameters.first_move_nanos } else { self.move_nanos };
        let ahead = parameters.ahead(self.ghost.pinned_from_tail(), move_nanos, &self.log_filling, now_nanos);
        self.ahead = (ahead, self.ghost.log_position());
    }

    /// How full the cache counts as for whether a zone is to be moved.
    fn due_utilization(&self) -> f64 {
        self.ghost.utilization().max(self.ahead().of_all)
    }

    /// How full the cache is, and from where on writes wait.
    fn level(&self, parameters: &RelocationParameters, now_nanos: u64) -> Level {
        let filled = if self.move_nanos == 0 { 0.0 } else { self.filling_in_move.within(self.move_nanos, now_nanos) };
        parameters.level(self.ghost.utilization() + self.unreturned_share, filled)
    }

    /// The zone to relocate, and whether somebody demanded it.
    fn next_zone(&mut self, parameters: &RelocationParameters, now_nanos: u64) -> Option<(ZoneId, bool)> {
        if self.map.spares().is_empty() {
            return None;
        }
        if let Some(zone) = self.demanded.pop_front() {
            return Some((zone, true));
        }
        // What nobody adds to needs no making room: a device that is only read is left as it is.
        let is_filling = self.filling.has_begun();
        self.look_ahead(parameters, now_nanos);
        if !is_filling || !parameters.is_due(self.due_utilization()) || now_nanos < self.not_before_nanos {
            return None;
        }
        let candidates = self.zones.iter().enumerate().map(|(logical, zone)| {
            let (share, extents) = self.ghost.zone_share(ZoneId(logical as u32));
            Candidate {
                logical: logical as u32,
                share,
                extents,
                pinned_share: self.ghost.pinned_share(ZoneId(logical as u32)),
                written_bytes: zone.written_bytes,
                last_change_nanos: zone.last_change_nanos,
                given_up: zone.given_up,
                is_left: now_nanos < zone.left_until_nanos,
            }
        });
        let next = match self.ghost.is_short_of_log() || self.ahead().of_all > self.ghost.utilization() {
            true => parameters.next_in_log(candidates, now_nanos),
            false => parameters.next(candidates, now_nanos),
        };
        next.map(|logical| (ZoneId(logical), false))
    }

    /// Whether somebody who changes the zone is at the device, or anybody who uses it and entered before `ticket`.
    fn is_in_use(&self, zone: ZoneId, before: Option<u64>) -> bool {
        let earlier = self.in_flight.range(..before.unwrap_or(u64::MAX)).map(|(_, used)| used);
        earlier.into_iter().any(|used| used.zones.contains(&zone.0) && (before.is_some() || used.changes))
    }

    /// Marks what is being written to the zone that moves, in a part that is about to be read.
    pub(super) fn mark_in_flight(&mut self, logical: ZoneId, read: &Range<u64>) {
        let Some(moving) = &mut self.moving else { return };
        moving.front_bytes = moving.front_bytes.max(read.end);
        for used in self.in_flight.values() {
            if used.changes && used.zones.contains(&logical.0) {
                let overlap = used.range.start.max(read.start)..used.range.end.min(read.end);
                moving.rewritten.insert(overlap);
            }
        }
    }

    /// Bytes that relocation wrote and that are not known to be durable.
    pub(super) fn unsynced_bytes(&self) -> u64 {
        self.copied_bytes - self.durable_bytes
    }

    pub(super) fn is_durable_up_to(&mut self, copied_bytes: u64) {
        self.durable_bytes = self.durable_bytes.max(copied_bytes);
    }

    pub(super) fn given_up(&mut self, logical: ZoneId) {
        self.statistics.given_up += 1;
        if let Some(zone) = self.zones.get_mut(logical.0 as usize) {
            zone.given_up = zone.given_up.saturating_add(1);
        }
    }

    /// Leaves a zone alone that could not be read, or of which there was no report, for a while.
    pub(super) fn was_unreadable(&mut self, logical: ZoneId, parameters: &RelocationParameters, now_nanos: u64) {
        self.statistics.given_up += 1;
        if let Some(zone) = self.zones.get_mut(logical.0 as usize) {
            zone.unreadable = zone.unreadable.saturating_add(1);
            zone.left_until_nanos = now_nanos.saturating_add(parameters.unreadable_nanos(zone.unreadable));
        }
    }

    /// Forgets what was tried in vain with a zone that is in order now.
    pub(super) fn is_in_order(&mut self, logical: ZoneId) {
        if let Some(zone) = self.zones.get_mut(logical.0 as usize) {
            (zone.given_up, zone.unreadable, zone.left_until_nanos) = (0, 0, 0);
        }
    }
}

/// First byte behind all that was written, as far as a report says.
pub(super) fn written_bytes(found: &ZoneDescription) -> u64 {
    match found.condition {
        ZoneCondition::Empty => 0,
        condition if condition.is_active() && !found.non_sequential => {
            found.write_pointer_bytes.saturating_sub(found.start_bytes).min(found.capacity_bytes)
        }
        _ => found.capacity_bytes,
    }
}

impl Core {
    pub(super) fn new(
        env: &Env,
        (inner, inner_zones, order): (&Device, &Arc<dyn ZoneControl>, &Arc<SyncOrder>),
        (physical, logical): (ZoneGeometry, ZoneGeometry),
        parameters: RelocationParameters,
        state: State,
    ) -> Core {
        let geometry = Geometry { capacity_bytes: logical.address_bytes(), ..inner.block.geometry().clone() };
        // A reference tag names a place, and zones move: the disk makes its own tuples.
        let capabilities =
            Capabilities { zones: Some(logical.clone()), protection: None, ..inner.block.capabilities().clone() };
        Core {
            env: env.clone(),
            inner: inner.clone(),
            inner_zones: Arc::clone(inner_zones),
            order: Arc::clone(order),
            physical,
            logical,
            geometry,
            capabilities,
            parameters,
            state: Mutex::new(env, "relocation", state),
            work: Condvar::new(env, "relocation"),
            released: Condvar::new(env, "zone being moved"),
            refused: AtomicU64::new(0),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.env.now().as_nanos()
    }

    /// Lets parts of requests to the device, all at once.
    ///
    /// # Errors
    /// Nothing is acknowledged any more.
    pub(super) fn enter(&self, parts: &[Part], context: &IoContext) -> Result<Entered<'_>, MediaError> {
        let mut state = self.state.lock();
        self.brake(&mut state, parts, context);
        let came = self.now();
        let mut has_waited = false;
        loop {
            if let Some(failure) = state.failure.as_ref().filter(|_| parts.iter().any(Part::changes)) {
                return Err(failure.clone());
            }
            let is_held = state.moving.as_ref().is_some_and(|moving| {
                moving.is_held && parts.iter().any(|part| part.changes() && part.zone == moving.logical)
            });
            if !is_held {
                break;
            }
            has_waited = true;
            self.released.wait(&mut state);
        }
        let now = self.now();
        if has_waited {
            let statistics = &mut state.statistics;
            statistics.held_writes += 1;
            statistics.longest_hold_nanos = statistics.longest_hold_nanos.max(now.saturating_sub(came));
        }
        let first = state.next_ticket;
        let (mut offsets, mut changes) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for part in parts {
            changes.push(self.follow(&mut state, part, now));
            let zone = state.map.zone(part.zone).unwrap_or(part.zone);
            offsets.push(self.physical.start_bytes(zone).saturating_add(part.range.start));
            let zones = part.zone.0..part.zone.0.saturating_add(1);
            self.insert(&mut state, InFlight { zones, range: part.range.clone(), changes: part.changes() });
        }
        state.outstanding += 1;
        if state.rests && self.parameters.is_due(state.due_utilization()) {
            self.work.notify_all();
        }
        Ok(Entered { core: self, tickets: first..state.next_ticket, changes, offsets, copied_bytes: 0 })
    }

    /// Lets a write that goes to the cache wait while relocation is behind, as long as the policy says. Relocation that rests gives nothing back:
    /// nothing waits for it.
    fn brake(&self, state: &mut MutexGuard<'_, State>, parts: &[Part], context: &IoContext) {
        let came_nanos = self.now();
        let deadline_nanos = context.deadline.map(varve_env::Instant::as_nanos);
        let write = Held { class: context.class, came_nanos, deadline_nanos };
        let mut has_waited = false;
        loop {
            let level = state.level(&self.parameters, self.now());
            state.admission = self.parameters.admission(state.admission, &level);
            let fills = |part: &Part| {
                let start = self.logical.start_bytes(part.zone).saturating_add(part.range.start);
                part.work == Work::Write && state.ghost.would_take(start, part.range.end - part.range.start) > 0.0
            };
            let gives_back = !state.rests && state.failure.is_none() && !state.is_stopped;
            let Some(until_nanos) = self
                .parameters
                .hold(state.admission, &level, &write, self.now())
                .filter(|_| gives_back && parts.iter().any(fills))
            else {
                break;
            };
            has_waited = true;
            self.released.wait_until(state, varve_env::Instant::from_nanos(until_nanos));
        }
        if has_waited {
            let waited_nanos = self.now().saturating_sub(came_nanos);
            let statistics = &mut state.statistics;
            statistics.braked_writes += 1;
            statistics.longest_brake_nanos = statistics.longest_brake_nanos.max(waited_nanos);
        }
    }

    fn insert(&self, state: &mut State, used: InFlight) {
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.in_flight.insert(ticket, used);
    }

    /// Lets a look at some logical zones to the device; gives where they are.
    pub(super) fn enter_report(&self, zones: Range<u32>) -> (Entered<'_>, Vec<ZoneId>) {
        let mut state = self.state.lock();
        let first = state.next_ticket;
        let found = zones.clone().filter_map(|zone| state.map.zone(ZoneId(zone))).collect();
        self.insert(&mut state, InFlight { zones, range: 0..0, changes: false });
        state.outstanding += 1;
        let tickets = first..state.next_ticket;
        (Entered { core: self, tickets, changes: Vec::new(), offsets: Vec::new(), copied_bytes: 0 }, found)
    }

    /// Lets to the device what is of no zone.
    ///
    /// # Errors
    /// Nothing is acknowledged any more.
    pub(super) fn enter_sync(&self) -> Result<Entered<'_>, MediaError> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let first = state.next_ticket;
        self.insert(&mut state, InFlight { zones: 0..0, range: 0..0, changes: false });
        state.outstanding += 1;
        let (tickets, copied_bytes) = (first..state.next_ticket, state.copied_bytes);
        Ok(Entered { core: self, tickets, changes: Vec::new(), offsets: Vec::new(), copied_bytes })
    }

    /// Follows a sync that went well: what relocation had written before is durable too.
    pub(super) fn synced(&self, entered: &Entered<'_>) {
        self.state.lock().is_durable_up_to(entered.copied_bytes);
    }

    /// Follows a part of a request that goes to the device, and gives how many had come to change its zone. What is known of how far a zone is written
    /// grows here and only ever grows: a command that takes it back may yet be refused.
    fn follow(&self, state: &mut State, part: &Part, now_nanos: u64) -> u64 {
        let start = self.logical.start_bytes(part.zone);
        let length_bytes = part.range.end - part.range.start;
        let Some(zone) = state.zones.get_mut(part.zone.0 as usize) else { return 0 };
        if part.work == Work::Read {
            return zone.changes;
        }
        zone.changes += 1;
        zone.last_change_nanos = now_nanos;
        let changes = zone.changes;
        match part.work {
            Work::Write => {
                zone.written_bytes = zone.written_bytes.max(part.range.end);
                let position = state.ghost.log_position();
                let share = state.ghost.written(start + part.range.start, length_bytes);
                let log_share = state.ghost.log_share_since(position);
                state.log_filling.add(log_share, self.parameters.filling_memory_nanos, now_nanos);
                if state.ghost.log_share_since(state.ahead.1) >= LOOK_AHEAD_EACH {
                    state.look_ahead(&self.parameters, now_nanos);
                }
                state.filling.add(share, self.parameters.filling_memory_nanos, now_nanos);
                let move_nanos = state.move_nanos;
                state.filling_in_move.add(share, move_nanos, now_nanos);
            }
            // What these make of it is known when they are done.
            Work::Read | Work::Forget | Work::Command => {}
        }
        if let Some(moving) = state.moving.as_mut().filter(|moving| moving.logical == part.zone) {
            let is_whole = part.work == Work::Command || length_bytes == self.logical.zone_bytes;
            match is_whole && part.work != Work::Write {
                true => moving.is_cancelled = true,
                false => moving.written(&part.range),
            }
        }
        changes
    }

    /// Follows the end of requests.
    fn leave(&self, tickets: Range<u64>) {
        let mut state = self.state.lock();
        for ticket in tickets {
            state.in_flight.remove(&ticket);
        }
        state.outstanding = state.outstanding.saturating_sub(1);
        if state.outstanding == 0 {
            state.quiet_since_nanos = self.now();
        }
        if state.listens {
            self.work.notify_all();
        }
    }

    /// Follows a zone that was reset, unless others changed it meanwhile: then nobody knows what came first, and to take it for written to where it was
    /// is right in any case. `entered` is that of the reset, which has not left.
    pub(super) fn was_reset(&self, logical: ZoneId, entered: &Entered<'_>) {
        let mut state = self.state.lock();
        let is_alone = state.in_flight.iter().all(|(ticket, used)| {
            entered.tickets.contains(ticket) || !used.changes || !used.zones.contains(&logical.0)
        });
        let Some(zone) = state.zones.get_mut(logical.0 as usize) else { return };
        if is_alone && entered.changes.first() == Some(&zone.changes) {
            *zone = ZoneKnowledge { changes: zone.changes, ..ZoneKnowledge::default() };
            state.ghost.reset(self.logical.start_bytes(logical), self.logical.zone_bytes);
        }
    }

    /// Follows a zone that was finished.
    pub(super) fn finished(&self, logical: ZoneId) {
        if let Some(zone) = self.state.lock().zones.get_mut(logical.0 as usize) {
            zone.written_bytes = self.logical.zone_capacity_bytes;
        }
    }

    /// Acknowledges nothing any more, because of this.
    pub(super) fn fail(&self, error: &MediaError) {
        let mut state = self.state.lock();
        state.failure.get_or_insert_with(|| error.clone());
        self.work.notify_all();
        self.released.notify_all();
    }

    /// Ends relocation.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.work.notify_all();
        self.released.notify_all();
    }

    /// Waits for a zone to relocate; `None` at the end.
    pub(super) fn wait_for_zone(&self) -> Option<(ZoneId, bool)> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped || state.failure.is_some() {
                return None;
            }
            let now = self.now();
            if let Some(zone) = state.next_zone(&self.parameters, now) {
                return Some(zone);
            }
            state.rests = true;
            self.released.notify_all();
            self.work.wait(&mut state);
            state.rests = false;
        }
    }

    /// Waits until what relocation waits for may have come, or until a moment.
    pub(super) fn listen(&self, state: &mut MutexGuard<'_, State>, until_nanos: Option<u64>) {
        state.listens = true;
        match until_nanos {
            Some(nanos) => _ = self.work.wait_until(state, varve_env::Instant::from_nanos(nanos)),
            None => self.work.wait(state),
        }
        state.listens = false;
    }

    /// Waits until nobody changes a logical zone. False at the end.
    pub(super) fn drain_writes(&self, state: &mut MutexGuard<'_, State>, logical: ZoneId) -> bool {
        while state.is_in_use(logical, None) && state.failure.is_none() {
            self.listen(state, None);
        }
        state.failure.is_none()
    }

    /// Waits until nobody uses a logical zone who entered before now.
    pub(super) fn drain_earlier(&self, logical: ZoneId) {
        let mut state = self.state.lock();
        let now = state.next_ticket;
        while state.is_in_use(logical, Some(now)) {
            self.listen(&mut state, None);
        }
    }

    /// Lets writes to the zone that moves go on: it stays where it is.
    pub(super) fn resume_writes(&self) {
        if let Some(moving) = &mut self.state.lock().moving {
            moving.is_held = false;
        }
        self.released.notify_all();
    }

    /// Ends the relocation that is under way, whatever came of it.
    pub(super) fn release(&self, state: &mut State) {
        state.moving = None;
        self.released.notify_all();
    }

    /// Relocates a zone, and waits until that was done or given up.
    #[cfg(test)]
    pub(super) fn relocate_now(&self, logical: ZoneId) {
        let mut state = self.state.lock();
        let before = state.attempts;
        state.demanded.push_back(logical);
        self.work.notify_all();
        let ends = |state: &State| state.is_stopped || state.failure.is_some() || state.map.spares().is_empty();
        while state.attempts == before && !ends(&state) {
            self.released.wait(&mut state);
        }
    }
}
