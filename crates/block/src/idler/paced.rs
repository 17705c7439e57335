//! Idle periods paced by what cleaning is needed: ours.

use super::controller::{Arrival, Controller, Verdict};
use super::ghost::GhostCache;
use super::reports::Reports;
use varve_media::{IoClass, ZoneDescription};

/// Classes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes(u32);

impl Classes {
    /// All of them.
    pub const ALL: Classes = Classes(u32::MAX);

    /// Those that nobody waits for: all but reads of users, logs and metadata. What is of no class counts among them.
    pub const PATIENT: Classes =
        Classes::ALL.without(IoClass::UserRead).without(IoClass::Log).without(IoClass::Metadata);

    /// These without that one.
    pub const fn without(self, class: IoClass) -> Classes {
        Classes(self.0 & !(1 << class as u32))
    }

    /// Whether it is one of them.
    pub fn contains(self, class: IoClass) -> bool {
        self.0 & (1 << class as u32) != 0
    }
}

/// What [`PacedIdle`] is told.
#[derive(Clone, Debug, PartialEq)]
pub struct PacedParameters {
    /// What may be held back.
    pub held: Classes,
    /// How long the drive must be left alone before it cleans.
    pub trigger_nanos: u64,
    /// How full the cache is kept: the fuller, the more a cleaned zone gives back; the rest is for bursts.
    pub utilization: f64,
    /// By how much more the cache may be filled until twice as much is cleaned as comes.
    pub utilization_band: f64,
    /// Shortest time of cleaning that is worth a pause.
    pub useful_min_nanos: u64,
    /// Longest time that a request is held back while the cache is about as full as wanted.
    pub hold_usual_nanos: u64,
    /// Longest time that a request is held back when it is about to be full: the bound of every delay.
    pub hold_max_nanos: u64,
    /// Largest share of the time in which requests are held back, while the cache is not fuller than wanted.
    pub held_share_max: f64,
    /// Time over which rates are taken.
    pub memory_nanos: u64,
    /// Time from one report of zones to the next.
    pub report_nanos: u64,
    /// What a zone takes, before any was seen to be cleaned.
    pub zone_nanos: u64,
    /// Time of cleaning from which on it says how long cleaning takes.
    pub seen_min_nanos: u64,
    /// Cleaning that was due and not to be had, or had and not due, is remembered up to so much.
    pub due_max_nanos: u64,
}

impl Default for PacedParameters {
    /// Of the ST8000AS0022, whose trigger is some 240 ms and whose zones take four seconds.
    fn default() -> Self {
        PacedParameters {
            held: Classes::PATIENT,
            trigger_nanos: 245_000_000,
            utilization: 0.75,
            utilization_band: 0.1,
            useful_min_nanos: 150_000_000,
            hold_usual_nanos: 800_000_000,
            hold_max_nanos: 2_000_000_000,
            held_share_max: 0.4,
            memory_nanos: 600_000_000_000,
            report_nanos: 600_000_000_000,
            zone_nanos: 4_000_000_000,
            seen_min_nanos: 5_000_000_000,
            due_max_nanos: 10_000_000_000,
        }
    }
}

impl PacedParameters {
    /// Those of a similar drive, all of whose times are divided by `divisor`.
    pub fn scaled(&self, divisor: u64) -> Self {
        let time = |nanos: u64| nanos / divisor.max(1);
        PacedParameters {
            trigger_nanos: time(self.trigger_nanos),
            useful_min_nanos: time(self.useful_min_nanos),
            hold_usual_nanos: time(self.hold_usual_nanos),
            hold_max_nanos: time(self.hold_max_nanos),
            memory_nanos: time(self.memory_nanos),
            report_nanos: time(self.report_nanos),
            zone_nanos: time(self.zone_nanos),
            seen_min_nanos: time(self.seen_min_nanos),
            due_max_nanos: time(self.due_max_nanos),
            ..self.clone()
        }
    }
}

/// Keeps the cache as full as it may be, and has as much cleaned as comes.
///
/// *Need.* How fast the cache fills, times the time that cleaning so much takes (from reports: time the drive was left alone for longer than
/// its trigger, by what that gave back). Up to a certain fill nothing is needed; from there on the more the fuller it is.
///
/// *Gaps.* Time that the drive is alone anyway counts first, as much of it as there was in the last while. A request that comes when the drive has been alone for most of the trigger
/// waits a little, for the trigger is paid already.
///
/// *Pauses.* What is needed beyond is had by holding requests back, no longer than the least that keeps the share of time in which
/// any are held within bounds. What has a deadline before their end is not held.
///
/// *What may not be held* calls a cleaning off. So a pause begins when none of it came for as long as the shortest pause that is worth it: who
/// was quiet for so long may be expected to be quiet for as long again. Where one comes all the same, all that is held
/// goes.
///
/// *The brake.* Where none of that gives a pause and the cache is about to be full, what may be held waits as long as it may, again and
/// again: writes of compactions come slower, whoever writes waits for them in the end, and then the drive is left alone.
///
/// *The map.* Extents are counted as the disk's map has them: what is written over takes none any more. Where each write counted as one, as in Idler,
/// bursts of writes over the same few blocks were held back for a cache that was nearly empty.
///
/// Where the device does not report as it should, nothing is held back.
pub struct PacedIdle {
    parameters: PacedParameters,
    ghost: GhostCache,
    open: usize,
    /// When the last request was done, while none is open.
    quiet_since_nanos: u64,
    /// The last pause.
    idle_since_nanos: u64,
    idle_until_nanos: u64,
    /// Requests at the drive that may not be held back, and when the last one was done, if there was any.
    foreground_open: usize,
    foreground_nanos: Option<u64>,
    /// Not before then requests are held back again.
    served_until_nanos: u64,
    /// Requests that were held back and are not done.
    delayed: usize,
    /// Shares of the cache a second.
    filling_rate: f64,
    filled: f64,
    /// Share of all time that the drive cleans while nobody is held back, and seconds of it since the last look.
    found_share: f64,
    found_seconds: f64,
    last_nanos: u64,
    /// Seconds of cleaning that are due.
    due_seconds: f64,
    /// Seconds in which the drive was alone for longer than its trigger, since the last report.
    alone_seconds: f64,
    /// Shares of the cache that became free since.
    given_back: f64,
    /// Seconds that a share of 1 of the cache takes, once it was seen.
    seconds_of_cache: Option<f64>,
    latency_nanos: f64,
    reports: Reports,
}

/// How long to hold requests back so that `need` of all time is cleaning, when a pause loses `trigger` first: the shortest that keeps
/// the share of time with held requests at `share`. All in nanoseconds and shares.
fn pause_nanos(parameters: &PacedParameters, need: f64, hold_max_nanos: u64) -> u64 {
    let trigger = parameters.trigger_nanos as f64;
    let least = trigger + parameters.useful_min_nanos as f64;
    let most = hold_max_nanos as f64;
    // A pause `p` cleans `p - trigger`, and one is due each `(p - trigger) / need`; of that time requests are held for `p`.
    let room = 1.0 - need / parameters.held_share_max;
    let pause = if room > 0.0 { trigger / room } else { most };
    pause.clamp(least, most.max(least)) as u64
}

impl PacedIdle {
    /// Over a disk of which the ghost is, before it is looked at for the first time; it is followed [with its map](GhostCache::with_map).
    pub fn new(parameters: PacedParameters, ghost: GhostCache) -> Self {
        PacedIdle {
            reports: Reports::each(parameters.report_nanos),
            parameters,
            ghost: ghost.with_map(),
            open: 0,
            quiet_since_nanos: 0,
            idle_since_nanos: 0,
            idle_until_nanos: 0,
            foreground_open: 0,
            foreground_nanos: None,
            served_until_nanos: 0,
            delayed: 0,
            filling_rate: 0.0,
            filled: 0.0,
            found_share: 0.0,
            found_seconds: 0.0,
            last_nanos: 0,
            due_seconds: 0.0,
            alone_seconds: 0.0,
            given_back: 0.0,
            seconds_of_cache: None,
            latency_nanos: 0.0,
        }
    }

    /// Share of all time that the drive must clean.
    fn need(&self) -> f64 {
        let utilization = self.ghost.utilization();
        let zones = self.ghost.non_sequential_zones() as f64;
        let guess = self.parameters.zone_nanos as f64 / 1e9 * zones / utilization.max(1e-6);
        // What was seen may be next to nothing: zones that were cleaned in gaps that seemed too short, or in a blocking cleaning.
        let seconds_of_cache = self.seconds_of_cache.map_or(guess, |seen| seen.max(guess / 4.0));
        let over = (utilization - self.parameters.utilization) / self.parameters.utilization_band.max(1e-6);
        (self.filling_rate * seconds_of_cache * (1.0 + over).clamp(0.0, 8.0)).min(0.9)
    }

    /// Brings rates and what is due up to now.
    fn pass(&mut self, now_nanos: u64) {
        let passed = now_nanos.saturating_sub(self.last_nanos);
        let memory = self.parameters.memory_nanos.max(1);
        if passed == 0 {
            return;
        }
        let found = if self.is_pressing() { 0.0 } else { self.found_share };
        self.due_seconds += (self.need() - found).max(0.0) * passed as f64 / 1e9;
        // Exponential forgetting, by its first terms: steps are short.
        let share = (passed as f64 / memory as f64).min(1.0);
        self.filling_rate += (self.filled / (passed as f64 / 1e9) - self.filling_rate) * share;
        self.found_share += (self.found_seconds / (passed as f64 / 1e9) - self.found_share) * share;
        (self.filled, self.found_seconds, self.last_nanos) = (0.0, 0.0, now_nanos);
        // What was not to be had is not saved up without end.
        let most = self.parameters.due_max_nanos as f64 / 1e9;
        self.due_seconds = self.due_seconds.clamp(-most, most);
    }

    /// Counts the time that the drive was left alone until a request goes there.
    fn end_quiet(&mut self, now_nanos: u64) {
        if self.open == 0 {
            let alone = now_nanos.saturating_sub(self.quiet_since_nanos);
            let useful = alone.saturating_sub(self.parameters.trigger_nanos) as f64 / 1e9;
            // What a pause gave was due; what was to be had anyway was counted on.
            match self.quiet_since_nanos < self.idle_until_nanos {
                true => self.due_seconds -= useful,
                false => self.found_seconds += useful,
            }
            self.alone_seconds += useful;
        }
    }

    fn goes(&mut self, now_nanos: u64, arrival: &Arrival) {
        self.end_quiet(now_nanos);
        self.open += 1;
        self.filled += self.ghost.follow(arrival);
    }

    /// How long a request may be held back as full as the cache is: longer in the last third of what is kept free.
    fn hold_max_nanos(&self) -> u64 {
        let PacedParameters { hold_usual_nanos, hold_max_nanos, .. } = self.parameters;
        if self.is_pressing() { hold_max_nanos } else { hold_usual_nanos.min(hold_max_nanos) }
    }

    /// Whether the cache is so full that nothing is counted on any more.
    fn is_pressing(&self) -> bool {
        self.ghost.utilization() > 1.0 - (1.0 - self.parameters.utilization) / 3.0
    }

    /// Until when a request that came now is to wait, if it is.
    fn hold(&mut self, now_nanos: u64) -> Option<u64> {
        let PacedParameters { trigger_nanos, useful_min_nanos, .. } = self.parameters;
        let hold_max_nanos = self.hold_max_nanos();
        if self.reports.has_failed() || self.due_seconds <= 0.0 || self.ghost.non_sequential_zones() == 0 {
            return None;
        }
        if !self.is_foreground_quiet(now_nanos) {
            // No cleaning is to be had. What fills the cache is slowed down before the drive blocks.
            return self.is_pressing().then(|| now_nanos + hold_max_nanos);
        }
        if self.open == 0 {
            // The trigger is paid, wholly or for the most part.
            let alone = now_nanos.saturating_sub(self.quiet_since_nanos);
            if alone >= trigger_nanos / 2 {
                let useful = (self.due_seconds * 1e9) as u64;
                let until = self.quiet_since_nanos + trigger_nanos + useful.max(useful_min_nanos);
                let pause = pause_nanos(&self.parameters, self.need(), hold_max_nanos);
                let until = until.min(now_nanos + pause.min(hold_max_nanos));
                return (until > now_nanos).then_some(until);
            }
        }
        let pause = pause_nanos(&self.parameters, self.need(), hold_max_nanos);
        let cleans = (pause - trigger_nanos.min(pause)) as f64 / 1e9;
        let is_due = self.due_seconds >= cleans && self.delayed == 0 && now_nanos >= self.served_until_nanos;
        is_due.then(|| {
            // What is at the drive is done first.
            let drain = if self.open > 0 { self.latency_nanos as u64 } else { 0 };
            now_nanos + (pause + drain).min(hold_max_nanos)
        })
    }

    fn may_wait(arrival: &Arrival, until_nanos: u64) -> bool {
        arrival.deadline_nanos.is_none_or(|deadline| deadline >= until_nanos)
    }

    /// Whether the drive may be expected to be left alone by what may not be held.
    fn is_foreground_quiet(&self, now_nanos: u64) -> bool {
        let PacedParameters { trigger_nanos, useful_min_nanos, .. } = self.parameters;
        let quiet = |since: u64| now_nanos >= since.saturating_add(trigger_nanos + useful_min_nanos);
        self.foreground_open == 0 && self.foreground_nanos.is_none_or(quiet)
    }
}

impl Controller for PacedIdle {
    fn name(&self) -> String {
        "paced".to_owned()
    }

    fn arrived(&mut self, arrival: &Arrival) -> Verdict {
        let now = arrival.nanos;
        self.pass(now);
        if !self.parameters.held.contains(arrival.class) {
            self.foreground_open += 1;
            self.goes(now, arrival);
            if !self.is_pressing() {
                // It calls the cleaning off that the others wait for.
                self.idle_until_nanos = self.idle_until_nanos.min(now);
            }
            return Verdict::Pass;
        }
        if now >= self.idle_until_nanos
            && let Some(until) = self.hold(now)
        {
            (self.idle_since_nanos, self.idle_until_nanos) = (now, until);
            let share = self.parameters.held_share_max.max(0.01);
            self.served_until_nanos = until + ((until - now) as f64 * (1.0 / share - 1.0) * 0.5) as u64;
        }
        if now < self.idle_until_nanos {
            if !Self::may_wait(arrival, self.idle_until_nanos) {
                self.goes(now, arrival);
                return Verdict::Pass;
            }
            self.delayed += 1;
            return Verdict::Wait(self.idle_until_nanos);
        }
        self.goes(now, arrival);
        Verdict::Go
    }

    fn waited(&mut self, now_nanos: u64, arrival: &Arrival) -> Verdict {
        // It came in the pause that is on.
        if arrival.nanos >= self.idle_since_nanos && now_nanos < self.idle_until_nanos {
            return Verdict::Wait(self.idle_until_nanos);
        }
        self.let_go(now_nanos, arrival);
        Verdict::Go
    }

    fn let_go(&mut self, now_nanos: u64, arrival: &Arrival) {
        self.pass(now_nanos);
        self.goes(now_nanos, arrival);
    }

    fn completed(&mut self, now_nanos: u64, begun_nanos: u64, arrival: &Arrival) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.quiet_since_nanos = now_nanos;
        }
        if !self.parameters.held.contains(arrival.class) {
            self.foreground_open = self.foreground_open.saturating_sub(1);
            self.foreground_nanos = Some(now_nanos);
        }
        if begun_nanos > arrival.nanos {
            self.delayed = self.delayed.saturating_sub(1);
        }
        let latency = now_nanos.saturating_sub(begun_nanos) as f64;
        self.latency_nanos += (latency - self.latency_nanos) / 32.0;
    }

    fn absorbed(&mut self, _now_nanos: u64, _arrival: &Arrival) {}

    fn wants_report(&self, now_nanos: u64) -> bool {
        now_nanos >= self.idle_until_nanos && self.reports.is_due(now_nanos)
    }

    fn reported(&mut self, now_nanos: u64, zones: Option<&[ZoneDescription]>) {
        let Some(cleaned) = self.reports.take(now_nanos, zones, &mut self.ghost) else { return };
        self.given_back += cleaned.given_back;
        // Less says more of chance.
        if self.given_back > 0.0 && self.alone_seconds > self.parameters.seen_min_nanos as f64 / 1e9 {
            let seen = self.alone_seconds / self.given_back;
            let known = self.seconds_of_cache.unwrap_or(seen);
            self.seconds_of_cache = Some(known + (seen - known) * 0.5);
            (self.alone_seconds, self.given_back) = (0.0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_the_shortest_that_do() {
        let parameters = PacedParameters::default();
        let most = parameters.hold_max_nanos;
        let seconds = |need: f64| pause_nanos(&parameters, need, most) as f64 / 1e9;
        // Nothing is needed: 0.245 s are lost, and 0.15 s are the least that is worth it.
        assert_eq!(seconds(0.0), 0.395);
        assert!((seconds(0.2) - 0.49).abs() < 1e-6);
        assert_eq!((seconds(0.39), seconds(0.5)), (2.0, 2.0));
        for need in [0.01, 0.05, 0.1, 0.2, 0.3] {
            let pause = seconds(need);
            let each = (pause - 0.245) / need;
            assert!(pause / each <= parameters.held_share_max + 1e-6 || pause == 0.395, "{need}");
        }
        assert_eq!(pause_nanos(&parameters, 0.3, 600_000_000), 600_000_000);
    }

    /// A zone that was cleaned in a gap that seemed too short once made cleaning cost nothing, and nothing was held back from then on.
    #[test]
    fn what_little_was_seen_does_not_make_cleaning_cost_nothing() {
        use crate::idler::Work;
        use varve_media::{MediaCache, ZoneGeometry, ZoneId, ZoneType};
        let zones = ZoneGeometry {
            sequential_type: ZoneType::SequentialWritePreferred,
            ..ZoneGeometry::fit(40 << 20, 1 << 20).unwrap()
        };
        let ghost = GhostCache::new(&zones, MediaCache { bytes: 1 << 30, extents_max: 40 });
        let mut controller = PacedIdle::new(PacedParameters::default(), ghost);
        let report = |non_sequential: &dyn Fn(u32) -> bool| -> Vec<ZoneDescription> {
            let describe = |zone| ZoneDescription {
                start_bytes: zones.start_bytes(ZoneId(zone)),
                length_bytes: 1 << 20,
                capacity_bytes: 1 << 20,
                write_pointer_bytes: zones.start_bytes(ZoneId(zone)),
                zone_type: ZoneType::SequentialWritePreferred,
                condition: varve_media::ZoneCondition::Closed,
                non_sequential: non_sequential(zone),
            };
            (0..40).map(describe).collect()
        };
        controller.reported(0, Some(&report(&|_| false)));
        for zone in 0..40u64 {
            let nanos = 1_000_000_000 * (zone + 1);
            let arrival = Arrival {
                nanos,
                work: Work::Write,
                offset_bytes: (zone << 20) + 4096,
                length_bytes: 4096,
                class: Default::default(),
                cause: Default::default(),
                deadline_nanos: None,
            };
            // Others keep the drive from ever being alone.
            controller.open += 1;
            controller.pass(nanos);
            controller.goes(nanos, &arrival);
        }
        controller.reported(50_000_000_000, Some(&report(&|zone| zone > 0)));
        controller.pass(51_000_000_000);
        assert!(controller.need() > 0.0, "{:?}", controller.seconds_of_cache);
    }

    /// A controller over zones of which the first `dirty` are not in order, with something due, and how full it takes the cache to be.
    fn in_need(dirty: u64, cache_extents: u32) -> PacedIdle {
        use varve_media::{MediaCache, ZoneGeometry, ZoneType};
        let zones = ZoneGeometry {
            sequential_type: ZoneType::SequentialWritePreferred,
            ..ZoneGeometry::fit(40 << 20, 1 << 20).unwrap()
        };
        let ghost = GhostCache::new(&zones, MediaCache { bytes: 1 << 30, extents_max: cache_extents });
        let mut controller = PacedIdle::new(PacedParameters::default(), ghost);
        for zone in 0..dirty {
            controller.ghost.written((zone << 20) + 4096, 4096);
        }
        controller.due_seconds = 5.0;
        controller
    }

    fn of(class: IoClass, millis: u64) -> Arrival {
        let work = crate::idler::Work::Read;
        let (nanos, cause) = (millis * 1_000_000, Default::default());
        Arrival { nanos, work, offset_bytes: 0, length_bytes: 4096, class, cause, deadline_nanos: None }
    }

    fn ends(controller: &mut PacedIdle, arrival: &Arrival, millis: u64) {
        controller.completed(millis * 1_000_000, arrival.nanos, arrival);
    }

    fn until(verdict: Verdict) -> Option<u64> {
        match verdict {
            Verdict::Wait(nanos) => Some(nanos / 1_000_000),
            Verdict::Go | Verdict::Pass => None,
        }
    }

    /// Each write counted as an extent once, and requests were held back for a cache of which next to nothing was used.
    #[test]
    fn what_is_written_over_fills_no_map() {
        let mut controller = in_need(1, 10);
        for step in 0..100 {
            let nanos = step * 1_000_000;
            let write = Arrival { nanos, work: crate::idler::Work::Write, offset_bytes: 4096, ..of(IoClass::Other, 0) };
            controller.pass(nanos);
            controller.goes(nanos, &write);
            controller.completed(nanos, nanos, &write);
        }
        assert!((controller.ghost.utilization() - 0.1).abs() < 1e-9, "{}", controller.ghost.utilization());
        assert!(!controller.is_pressing());
        assert_eq!(controller.need(), 0.0);
    }

    #[test]
    fn whom_somebody_waits_for_is_never_held_and_ends_a_pause() {
        let mut controller = in_need(8, 10);
        let get = of(IoClass::UserRead, 0);
        assert_eq!(controller.arrived(&get), Verdict::Pass);
        ends(&mut controller, &get, 10);
        // Too soon after it: another one is to be expected.
        let early = of(IoClass::Compaction, 300);
        assert_eq!(controller.arrived(&early), Verdict::Go);
        ends(&mut controller, &early, 310);
        let held = of(IoClass::Compaction, 500);
        let told = until(controller.arrived(&held)).unwrap();
        assert!(told > 600, "{told}");
        for (class, millis) in [(IoClass::Log, 600), (IoClass::Metadata, 601), (IoClass::UserRead, 602)] {
            assert_eq!(controller.arrived(&of(class, millis)), Verdict::Pass);
        }
        assert_eq!(controller.waited(602_000_000, &held), Verdict::Go);
    }

    #[test]
    fn the_brake_holds_while_the_cache_is_about_to_be_full() {
        let mut controller = in_need(19, 20);
        assert!(controller.is_pressing());
        let get = of(IoClass::UserRead, 0);
        assert_eq!(controller.arrived(&get), Verdict::Pass);
        let held = of(IoClass::Flush, 1);
        assert_eq!(until(controller.arrived(&held)), Some(2001));
        assert_eq!(controller.arrived(&of(IoClass::UserRead, 100)), Verdict::Pass);
        assert_eq!(until(controller.waited(100_000_000, &held)), Some(2001));
        assert_eq!(controller.waited(2_001_000_000, &held), Verdict::Go);
        // Again at once, while gets do not pause.
        assert_eq!(until(controller.arrived(&of(IoClass::Compaction, 2001))), Some(4001));
    }

    #[test]
    fn where_all_may_be_held_reads_are() {
        let mut controller = in_need(8, 10);
        controller.parameters.held = Classes::ALL;
        assert!(until(controller.arrived(&of(IoClass::UserRead, 0))).is_some());
        for class in IoClass::ALL {
            let patient = !matches!(class, IoClass::UserRead | IoClass::Log | IoClass::Metadata);
            assert_eq!((Classes::ALL.contains(class), Classes::PATIENT.contains(class)), (true, patient), "{class:?}");
        }
    }

    #[test]
    fn a_similar_drive_is_as_much_faster() {
        let full = PacedParameters::default();
        let scaled = full.scaled(5);
        assert_eq!((scaled.trigger_nanos, scaled.due_max_nanos), (49_000_000, 2_000_000_000));
        assert_eq!(full.scaled(1), full);
        assert_eq!(crate::idler::IdlerParameters::default().scaled(10).idle_max_nanos, 200_000_000);
    }
}
