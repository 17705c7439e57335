//! The device that does what a controller says.

use super::controller::{Arrival, Controller, Verdict, Work};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use varve_env::{Condvar, Env, Instant, Mutex, MutexGuard};
use varve_media::{
    BlockDevice, Capabilities, Counters, Device, Geometry, IoClass, IoContext, MediaError, Request, ZoneControl,
    ZoneDescription, ZoneId,
};

/// What control did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlStatistics {
    /// Requests that were held back.
    pub delayed: u64,
    /// How long they were, together.
    pub delayed_nanos: u64,
    /// The longest that one was.
    pub longest_delay_nanos: u64,
    /// Times that requests began to be held back.
    pub idle_periods: u64,
    /// Most requests that waited at once.
    pub waiting_max: u64,
    /// Reports of zones that were asked for.
    pub reports: u64,
}

struct State {
    controller: Box<dyn Controller>,
    statistics: ControlStatistics,
    /// Until when somebody was told to wait last.
    held_until_nanos: u64,
    /// Those that wait, by when they came.
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    /// Requests that went before those that wait.
    passed: u64,
    /// Somebody asks the device for a report; the others go on.
    is_reporting: bool,
}

/// One that waits.
struct Waiting {
    /// What it writes to.
    zones: Vec<Range<u32>>,
    /// It goes as soon as what came before it does not write to the same zones.
    is_let_go: bool,
}

impl Waiting {
    fn shares_zones(&self, zones: &[Range<u32>]) -> bool {
        self.zones.iter().any(|own| zones.iter().any(|other| own.start < other.end && other.start < own.end))
    }
}

impl State {
    fn is_let_go(&self, ticket: u64) -> bool {
        self.waiting.get(&ticket).is_some_and(|waiting| waiting.is_let_go)
    }

    /// Whether somebody waits who goes before this one.
    fn is_behind(&self, ticket: u64) -> bool {
        let mut earlier = self.waiting.range(..ticket);
        match self.waiting.get(&ticket) {
            Some(own) if own.is_let_go => earlier.any(|(_, waiting)| waiting.shares_zones(&own.zones)),
            _ => earlier.next().is_some(),
        }
    }

    /// Lets those go that write to these zones, and those that must go before them.
    fn let_go(&mut self, zones: &[Range<u32>]) {
        let mut zones = zones.to_vec();
        for waiting in self.waiting.values_mut().rev() {
            if waiting.shares_zones(&zones) {
                waiting.is_let_go = true;
                zones.extend_from_slice(&waiting.zones);
            }
        }
    }
}

/// A device whose requests a [`Controller`] holds back.
///
/// What is held back waits in the thread that asks, and goes in the order in which it came, before what comes later: writes that were in
/// order stay so. What the controller lets pass goes before those that wait, but never overtakes a write to a zone that it writes to:
/// that goes first, and what it must not overtake itself. A batch waits for the last of its requests. Syncs and commands to zones are held
/// back like other requests, as they too call a cleaning off. Tracks of the device below are passed on, memory that is addressed by bytes
/// is not. A clone is another handle.
#[derive(Clone)]
pub struct ControlledDevice {
    shared: Arc<Shared>,
}

struct Shared {
    env: Env,
    inner: Device,
    state: Mutex<State>,
    /// One of those that wait has gone, or may be asked about again.
    changed: Condvar,
}

/// A call from the arrival of its requests to their end.
///
/// Dropping it, also while a panic unwinds, takes the call out of the queue and reports to the controller every request that the controller
/// has seen. So each [`Controller::arrived`] is followed by exactly one [`Controller::completed`], whether the request succeeded, failed,
/// passed its deadline or panicked.
struct Call<'a> {
    shared: &'a Shared,
    /// Place in the queue, once it has one.
    ticket: Option<u64>,
    /// Requests that the controller has seen.
    seen: Vec<Arrival>,
    begun_nanos: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let now = self.shared.env.now().as_nanos();
        let mut state = self.shared.state.lock();
        if self.ticket.take().is_some_and(|ticket| state.waiting.remove(&ticket).is_some()) {
            self.shared.changed.notify_all();
        }
        for arrival in self.seen.drain(..) {
            state.controller.completed(now, self.begun_nanos, &arrival);
        }
    }
}

/// A report that was asked for. What it says is told when this is dropped: where the device panicked, that it failed.
struct Reporting<'a> {
    shared: &'a Shared,
    begun_nanos: u64,
    zones: Option<Vec<ZoneDescription>>,
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_reporting = false;
        state.controller.reported(self.begun_nanos, self.zones.as_deref());
    }
}

impl Shared {
    fn arrival(&self, work: Work, offset_bytes: u64, length_bytes: u64, context: &IoContext) -> Arrival {
        let deadline_nanos = context.deadline.map(Instant::as_nanos);
        Arrival {
            nanos: self.env.now().as_nanos(),
            work,
            offset_bytes,
            length_bytes,
            class: context.class,
            cause: context.cause,
            deadline_nanos,
        }
    }

    /// The zones that these requests change. A device without zones is one.
    fn zones_of(&self, arrivals: &[Arrival], commanded: Option<ZoneId>) -> Vec<Range<u32>> {
        let geometry = self.inner.block.capabilities().zones.as_ref();
        let changed = arrivals.iter().filter(|arrival| matches!(arrival.work, Work::Write | Work::Forget));
        let of = |arrival: &Arrival| {
            let Some(geometry) = geometry.filter(|geometry| geometry.zone_bytes > 0) else { return 0..1 };
            let last_bytes = arrival.offset_bytes.saturating_add(arrival.length_bytes.max(1) - 1);
            let zone = |bytes: u64| u32::try_from(bytes / geometry.zone_bytes).unwrap_or(u32::MAX - 1);
            zone(arrival.offset_bytes)..zone(last_bytes) + 1
        };
        changed.map(of).chain(commanded.map(|zone| zone.0..zone.0.saturating_add(1))).collect()
    }

    /// Waits until all may go. `commanded` is the zone that a command is to.
    fn enter(&self, arrivals: &[Arrival], commanded: Option<ZoneId>, context: &IoContext) -> Call<'_> {
        // Wanted only where somebody waits.
        let zones = || self.zones_of(arrivals, commanded);
        let came = arrivals.first().map_or_else(|| self.env.now().as_nanos(), |arrival| arrival.nanos);
        // Dropped after the lock is released: it takes the lock itself.
        let mut call = Call { shared: self, ticket: None, seen: Vec::with_capacity(arrivals.len()), begun_nanos: came };
        let mut guard = self.state.lock();
        let ticket = guard.next_ticket;
        guard.next_ticket += 1;
        call.ticket = Some(ticket);
        let (mut has_waited, mut passes, mut is_urgent) = (false, true, false);
        for arrival in arrivals {
            call.seen.push(*arrival);
            let mut verdict = guard.controller.arrived(arrival);
            while let Verdict::Wait(until_nanos) = verdict {
                let deadline_nanos = arrival.deadline_nanos.unwrap_or(u64::MAX);
                let now = self.env.now().as_nanos();
                if now >= deadline_nanos {
                    // The request waits no longer than this, and for no other waiting request.
                    guard.controller.let_go(now, arrival);
                    is_urgent = true;
                    break;
                }
                let until_nanos = until_nanos.min(deadline_nanos);
                has_waited = true;
                let state = &mut *guard;
                state.waiting.entry(ticket).or_insert_with(|| Waiting { zones: zones(), is_let_go: false });
                state.statistics.waiting_max = state.statistics.waiting_max.max(state.waiting.len() as u64);
                if until_nanos > state.held_until_nanos {
                    state.held_until_nanos = until_nanos;
                    state.statistics.idle_periods += 1;
                }
                self.wait_until(&mut guard, ticket, until_nanos);
                self.wait_for_earlier(&mut guard, ticket, arrival.deadline_nanos);
                let now = self.env.now().as_nanos();
                if guard.is_let_go(ticket) {
                    guard.controller.let_go(now, arrival);
                    break;
                }
                verdict = guard.controller.waited(now, arrival);
            }
            passes &= verdict == Verdict::Pass;
        }
        let state = &mut *guard;
        state.passed += u64::from(passes);
        passes |= is_urgent;
        if passes && !state.waiting.is_empty() {
            state.let_go(&zones());
            if let Some(own) = state.waiting.get_mut(&ticket) {
                own.is_let_go = true;
            }
            self.changed.notify_all();
        }
        if state.waiting.range(..ticket).next().is_some() {
            // Nor is this one overtaken while it waits for those before it.
            state.waiting.entry(ticket).or_insert_with(|| Waiting { zones: zones(), is_let_go: passes });
        }
        self.wait_for_earlier(&mut guard, ticket, None);
        if guard.waiting.remove(&ticket).is_some() {
            self.changed.notify_all();
        }
        if has_waited {
            let now = self.env.now().as_nanos();
            let statistics = &mut guard.statistics;
            let waited = now.saturating_sub(came);
            statistics.delayed += arrivals.len() as u64;
            statistics.delayed_nanos += waited.saturating_mul(arrivals.len() as u64);
            statistics.longest_delay_nanos = statistics.longest_delay_nanos.max(waited);
        }
        drop(guard);
        self.report_if_wanted(context);
        if has_waited {
            call.begun_nanos = self.env.now().as_nanos();
        }
        call
    }

    /// Waits until then, or until this one is let go or another one passes.
    fn wait_until(&self, state: &mut MutexGuard<'_, State>, ticket: u64, until_nanos: u64) {
        let passed = state.passed;
        while !state.is_let_go(ticket) && state.passed == passed {
            if self.changed.wait_until(state, Instant::from_nanos(until_nanos)) {
                return;
            }
        }
    }

    /// Waits while a call waits that goes before this one, until the deadline at most.
    fn wait_for_earlier(&self, state: &mut MutexGuard<'_, State>, ticket: u64, deadline_nanos: Option<u64>) {
        while state.is_behind(ticket) {
            match deadline_nanos {
                Some(nanos) if self.changed.wait_until(state, Instant::from_nanos(nanos)) => return,
                Some(_) => {}
                None => self.changed.wait(state),
            }
        }
    }

    fn report_if_wanted(&self, context: &IoContext) {
        let now = self.env.now().as_nanos();
        {
            let mut state = self.state.lock();
            if state.is_reporting || !state.controller.wants_report(now) {
                return;
            }
            state.is_reporting = true;
            state.statistics.reports += 1;
        }
        let context = IoContext { class: IoClass::Maintenance, ..*context };
        let mut reporting = Reporting { shared: self, begun_nanos: now, zones: None };
        if let (Some(zones), Some(geometry)) = (&self.inner.zones, &self.inner.block.capabilities().zones) {
            reporting.zones = zones.report(ZoneId(0), geometry.zone_count, &context).ok();
        }
    }

    fn around<T>(
        &self,
        work: Work,
        range: (u64, u64),
        commanded: Option<ZoneId>,
        context: &IoContext,
        perform: impl FnOnce() -> Result<T, MediaError>,
    ) -> Result<T, MediaError> {
        let _call = self.enter(&[self.arrival(work, range.0, range.1, context)], commanded, context);
        perform()
    }
}

impl ControlledDevice {
    /// `inner` under a controller, with its zones and tracks; and a handle for statistics.
    pub fn new(env: &Env, inner: &Device, controller: Box<dyn Controller>) -> (Device, ControlledDevice) {
        let state = State {
            controller,
            statistics: ControlStatistics::default(),
            held_until_nanos: 0,
            waiting: BTreeMap::new(),
            next_ticket: 0,
            passed: 0,
            is_reporting: false,
        };
        let state = Mutex::new(env, "idle control", state);
        let changed = Condvar::new(env, "idle control");
        let shared = Arc::new(Shared { env: env.clone(), inner: inner.clone(), state, changed });
        let block = Arc::new(ControlledDevice { shared: Arc::clone(&shared) });
        let zones = inner.zones.as_ref().map(|zones| {
            let control: Arc<dyn ZoneControl> =
                Arc::new(ControlledZones { shared: Arc::clone(&shared), inner: Arc::clone(zones) });
            control
        });
        let device = Device { block, zones, tracks: inner.tracks.clone(), bytes: None };
        (device, ControlledDevice { shared })
    }

    /// Whether what comes now is held back, as far as is known.
    pub fn is_holding(&self) -> bool {
        self.shared.env.now().as_nanos() < self.shared.state.lock().held_until_nanos
    }

    /// Tells the controller of a write of these bytes that came then, and that a buffer above took in, which is done now.
    pub(crate) fn absorbed(&self, came: Instant, range: &Range<u64>, context: &IoContext) {
        let arrival = self.shared.arrival(Work::Write, range.start, range.end - range.start, context);
        let now = arrival.nanos;
        let arrival = Arrival { nanos: came.as_nanos(), ..arrival };
        self.shared.state.lock().controller.absorbed(now, &arrival);
    }

    /// What control did so far.
    pub fn statistics(&self) -> ControlStatistics {
        self.shared.state.lock().statistics
    }
}

impl BlockDevice for ControlledDevice {
    fn name(&self) -> &str {
        self.shared.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.shared.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.shared.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let arrivals = requests.iter().filter(|request| request.length_bytes() > 0).map(|request| {
            self.shared.arrival(Work::of(request), request.offset_bytes, request.length_bytes(), context)
        });
        let arrivals: Vec<Arrival> = arrivals.collect();
        if arrivals.is_empty() {
            return self.shared.inner.block.execute(requests, context);
        }
        let _call = self.shared.enter(&arrivals, None, context);
        self.shared.inner.block.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.shared.around(Work::Command, (0, 0), None, context, || self.shared.inner.block.sync(context))
    }

    fn counters(&self) -> Counters {
        self.shared.inner.block.counters()
    }
}

/// Commands to zones through control.
struct ControlledZones {
    shared: Arc<Shared>,
    inner: Arc<dyn ZoneControl>,
}

impl ControlledZones {
    fn command<T>(
        &self,
        zone: ZoneId,
        context: &IoContext,
        perform: impl FnOnce() -> Result<T, MediaError>,
    ) -> Result<T, MediaError> {
        self.shared.around(Work::Command, (0, 0), Some(zone), context, perform)
    }
}

impl ZoneControl for ControlledZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.shared.around(Work::Command, (0, 0), None, context, || self.inner.report(first, count, context))
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, context, || self.inner.open(zone, context))
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, context, || self.inner.close(zone, context))
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.command(zone, context, || self.inner.finish(zone, context))
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let zones = self.shared.inner.block.capabilities().zones.as_ref();
        let range = zones.map_or((0, 0), |zones| (zones.start_bytes(zone), zones.zone_bytes));
        self.shared.around(Work::Forget, range, Some(zone), context, || self.inner.reset(zone, context))
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.command(zone, context, || self.inner.append(zone, data, context))
    }
}
