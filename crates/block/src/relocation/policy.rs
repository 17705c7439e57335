//! What is relocated next, and when a step of it is taken: functions of what is known.

/// Least bytes of a step of a drive that is scaled.
const STEP_BYTES_MIN: u64 = 16 << 10;

/// A zone that gives back less for what it costs than this share of what all do together is not worth it, however full the cache is: it would have to be
/// moved again and again.
const WORTH_MIN: f64 = 0.1;

/// What relocation is told.
#[derive(Clone, Debug, PartialEq)]
pub struct RelocationParameters {
    /// Zones kept empty to move others to, when a device is formatted: one at least. Each costs its capacity.
    pub spares: u32,
    /// How full the media cache is kept: the fuller, the more a relocated zone gives back. 1 is full.
    pub utilization: f64,
    /// From here on steps are taken although requests are outstanding, the fuller the more of them.
    pub urgent_utilization: f64,
    /// Bytes that are read or written in one step while there is no hurry: requests that come during it may wait for its end. The
    /// larger, the less of the time goes to the arm's way there and back.
    pub step_bytes: u64,
    /// The same when the cache is full.
    pub urgent_step_bytes: u64,
    /// Bytes that are read before they are written: between the two the arm moves. They are in memory meanwhile.
    pub chunk_bytes: u64,
    /// Bytes that are written before they are made durable while there is no hurry: who comes meanwhile waits for no more than these at a
    /// sync.
    pub sync_bytes: u64,
    /// How long no request must have been outstanding before a step, while there is no hurry: each gap in which steps are taken costs the
    /// request at its end some of a step, so fewer and longer ones cost less.
    pub quiet_nanos: u64,
    /// Largest share of the time that steps take although requests are outstanding, when the cache is full.
    pub busy_share_max: f64,
    /// Highest first high-water mark: from there on writes of compactions that go to the cache wait, the fuller the longer. From half-way to a full
    /// cache on those of every class do, until the cache is below the mark again. The mark is lower where the cache fills faster than zones move.
    pub brake_utilization: f64,
    /// Lowest first high-water mark; the same as the highest where the marks are fixed.
    pub lowest_mark: f64,
    /// Longest wait of a write of a compaction, when the cache is full, in nanoseconds.
    pub brake_max_nanos: u64,
    /// Longest wait of a write of any other class, in nanoseconds: about a step of the drive when it blocks, which the write would wait for otherwise.
    pub hold_max_nanos: u64,
    /// A step that takes this long while the cache is above the first mark is a sign that the drive blocks, in nanoseconds.
    pub blocked_step_nanos: u64,
    /// Least time between two reports of all zones while the drive seems to block, in nanoseconds.
    pub doubt_report_nanos: u64,
    /// How long nothing is relocated when it came to nothing; twice as long each time, up to a thousand times.
    pub retry_nanos: u64,
    /// Time from one report of all zones to the next, while there is something to relocate: what the disk cleaned by itself. A zone that cannot be
    /// read is left alone for as long, and twice as long each time, up to a thousand times.
    pub report_nanos: u64,
    /// Bytes that are read in the time that one more extent of the media cache costs when a zone is read.
    pub extent_cost_bytes: u64,
    /// There is a hurry when the cache would be full within this time, as fast as it fills, and less so the longer it takes.
    pub horizon_nanos: u64,
    /// Time over which is taken how fast it fills.
    pub filling_memory_nanos: u64,
    /// Time that the move of a zone is taken to need before one was measured, in nanoseconds.
    pub first_move_nanos: u64,
    /// When nothing went to the cache for so long there is no hurry, however full it is.
    pub calm_nanos: u64,
    /// A zone that was written so recently is taken only where it is worth twice another.
    pub recent_nanos: u64,
}

impl Default for RelocationParameters {
    /// Of a disk that reads a MiB in some six milliseconds and takes twice as long to get there.
    fn default() -> Self {
        RelocationParameters {
            spares: 2,
            utilization: 0.8,
            urgent_utilization: 0.9,
            step_bytes: 512 << 10,
            urgent_step_bytes: 8 << 20,
            chunk_bytes: 16 << 20,
            sync_bytes: 4 << 20,
            quiet_nanos: 10_000_000,
            busy_share_max: 0.8,
            brake_utilization: 0.95,
            lowest_mark: 0.8,
            brake_max_nanos: 4_000_000_000,
            hold_max_nanos: 2_000_000_000,
            blocked_step_nanos: 1_000_000_000,
            doubt_report_nanos: 10_000_000_000,
            retry_nanos: 100_000_000,
            report_nanos: 600_000_000_000,
            extent_cost_bytes: 1 << 20,
            horizon_nanos: 60_000_000_000,
            filling_memory_nanos: 100_000_000_000,
            first_move_nanos: 5_000_000_000,
            calm_nanos: 10_000_000_000,
            recent_nanos: 1_000_000_000,
        }
    }
}

/// How fast the cache fills: what went there, the longer ago the less of it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Filling {
    /// When the first write was added.
    begun_nanos: u64,
    last_nanos: u64,
    remembered: f64,
}

impl Filling {
    /// Whether anything went there.
    pub(super) fn has_begun(&self) -> bool {
        self.remembered > 0.0
    }

    /// Share of the cache that was filled in the last `memory_nanos`, weighted by an exponential moving average over that time.
    pub(super) fn within(&self, memory_nanos: u64, now_nanos: u64) -> f64 {
        let passed = now_nanos.saturating_sub(self.last_nanos) as f64;
        self.remembered * remembered_share(passed / memory_nanos.max(1) as f64)
    }

    /// Follows a write that takes such a share of the cache.
    pub(super) fn add(&mut self, share: f64, memory_nanos: u64, now_nanos: u64) {
        if share > 0.0 {
            let begun_nanos = if self.has_begun() { self.begun_nanos } else { now_nanos };
            let remembered = self.within(memory_nanos, now_nanos) + share;
            *self = Filling { begun_nanos, last_nanos: now_nanos, remembered };
        }
    }

    /// Share of the cache that is filled in `nanos` at the rate since the first write, which was at least `nanos` ago: the average over the whole memory would
    /// be too low at first.
    fn expected_within(&self, nanos: u64, memory_nanos: u64, now_nanos: u64) -> f64 {
        let observed_nanos = now_nanos.saturating_sub(self.begun_nanos).max(nanos) as f64;
        let memory = memory_nanos.max(1) as f64;
        let weighed_nanos = (1.0 - remembered_share(observed_nanos / memory)) * memory;
        self.within(memory_nanos, now_nanos) * nanos as f64 / weighed_nanos.max(1.0)
    }
}

/// How much still counts of what was so many memories ago: the exponential function of the negative, of sums and products alone, so that runs repeat on
/// every platform.
fn remembered_share(memories: f64) -> f64 {
    let part = memories / 1024.0;
    let mut growth = 1.0 + part * (1.0 + part / 2.0 * (1.0 + part / 3.0));
    (0..10).for_each(|_| growth *= growth);
    1.0 / growth
}

/// Largest share of the cache's bytes in use before the log's tail has passed zones that are in it now.
///
/// Space comes back zone by zone from the tail on, and the log grows meanwhile. A zone that keeps a share `p` in use is gone after the moves of all older zones
/// and its own; `i` moves, in each of which a share `f` is filled, so `p + i * f` are in use by then. Where many zones lie close together near
/// the tail, as after the first writes to a blank disk, this is far above the present share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ahead {
    /// Over all zones.
    pub(super) of_all: f64,
    /// Over the zones that are moved within the time for which the filling rate is known.
    pub(super) soon: f64,
}

impl RelocationParameters {
    /// The shares ahead, from the share that each zone in the log keeps in use, oldest first, the time of a move, and the rate at which the log is filled.
    pub(super) fn ahead(
        &self,
        pinned_from_tail: impl Iterator<Item = f64>,
        move_nanos: u64,
        filling: &Filling,
        now_nanos: u64,
    ) -> Ahead {
        let filled_per_move = filling.expected_within(move_nanos, self.filling_memory_nanos, now_nanos);
        let soon_moves = self.filling_memory_nanos / move_nanos.max(1);
        let mut ahead = Ahead::default();
        for (pinned, moves) in pinned_from_tail.zip(1u64..) {
            ahead.of_all = ahead.of_all.max(pinned + moves as f64 * filled_per_move);
            if moves <= soon_moves {
                ahead.soon = ahead.of_all;
            }
        }
        ahead
    }
}

/// What is known when a step could be taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Situation {
    pub(super) now_nanos: u64,
    /// Requests of others at the device.
    pub(super) outstanding: usize,
    /// Since when there is none, if so.
    pub(super) quiet_since_nanos: u64,
    /// How full the cache counts as.
    pub(super) utilization: f64,
    /// When the last step taken although requests were outstanding began and ended.
    pub(super) last_busy_step: (u64, u64),
}

/// When to take a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Now.
    Now,
    /// Not before then, if nothing changes.
    At(u64),
    /// When requests that are outstanding are done.
    WhenQuiet,
}

impl RelocationParameters {
    /// Those of a similar drive, all of whose sizes and times are divided by `divisor`.
    pub fn scaled(&self, divisor: u64) -> Self {
        let divisor = divisor.max(1);
        // A step moves something.
        let bytes = |bytes: u64| (bytes / divisor).max(STEP_BYTES_MIN);
        RelocationParameters {
            step_bytes: bytes(self.step_bytes),
            urgent_step_bytes: bytes(self.urgent_step_bytes),
            chunk_bytes: bytes(self.chunk_bytes),
            sync_bytes: bytes(self.sync_bytes),
            extent_cost_bytes: self.extent_cost_bytes / divisor,
            quiet_nanos: self.quiet_nanos / divisor,
            report_nanos: self.report_nanos / divisor,
            brake_max_nanos: self.brake_max_nanos / divisor,
            hold_max_nanos: self.hold_max_nanos / divisor,
            blocked_step_nanos: self.blocked_step_nanos / divisor,
            doubt_report_nanos: self.doubt_report_nanos / divisor,
            retry_nanos: self.retry_nanos / divisor,
            horizon_nanos: self.horizon_nanos / divisor,
            filling_memory_nanos: self.filling_memory_nanos / divisor,
            first_move_nanos: self.first_move_nanos / divisor,
            calm_nanos: self.calm_nanos / divisor,
            recent_nanos: self.recent_nanos / divisor,
            ..self.clone()
        }
    }

    /// Whether a zone is to be relocated.
    pub(super) fn is_due(&self, utilization: f64) -> bool {
        utilization > self.utilization
    }

    /// How full the cache counts as: as full as it is, unless it would be full only after a long time, or nothing fills it any more.
    pub(super) fn pressure(&self, utilization: f64, filling: &Filling, now_nanos: u64) -> f64 {
        let over = utilization - self.urgent_utilization;
        if over <= 0.0 {
            return utilization;
        }
        if now_nanos.saturating_sub(filling.last_nanos) > self.calm_nanos {
            return self.urgent_utilization;
        }
        // What would fill the cache until the horizon, to what is left.
        let share = self.filling_rate(filling, now_nanos) * self.horizon_nanos as f64 / (1.0 - utilization).max(1e-6);
        self.urgent_utilization + over * share.min(1.0)
    }

    /// Shares of the cache a nanosecond.
    fn filling_rate(&self, filling: &Filling, now_nanos: u64) -> f64 {
        filling.within(self.filling_memory_nanos, now_nanos) / self.filling_memory_nanos.max(1) as f64
    }

    /// How near the cache is to its end: 0 where there is no hurry, 1 when it is full.
    fn urgency(&self, utilization: f64) -> f64 {
        let band = (1.0 - self.urgent_utilization).max(1e-3);
        ((utilization - self.urgent_utilization) / band).clamp(0.0, 1.0)
    }

    /// Bytes of the next step, as full as the cache is.
    pub(super) fn step(&self, utilization: f64) -> u64 {
        let more = self.urgent_step_bytes.saturating_sub(self.step_bytes) as f64;
        self.step_bytes.saturating_add((more * self.urgency(utilization)) as u64)
    }

    /// Whether so many bytes that are written are to be made durable: later the more of a hurry there is, for a sync loses a rotation.
    pub(super) fn is_sync_due(&self, unsynced_bytes: u64, pressure: f64) -> bool {
        unsynced_bytes as f64 * (1.0 - self.urgency(pressure)) >= self.sync_bytes as f64
    }

    /// How long nothing is relocated when so many came to nothing, one after the other.
    pub(super) fn back_off_nanos(&self, failures: u32) -> u64 {
        match failures {
            0 => 0,
            failures => self.retry_nanos.saturating_mul(1 << (failures - 1).min(10)),
        }
    }

    /// How long a zone is left alone that could not be read so many times.
    pub(super) fn unreadable_nanos(&self, failures: u32) -> u64 {
        self.report_nanos.saturating_mul(1 << failures.saturating_sub(1).min(10))
    }

    /// When the next step is due.
    pub(super) fn turn(&self, situation: &Situation) -> Turn {
        let Situation { now_nanos, outstanding, quiet_since_nanos, utilization, last_busy_step } = *situation;
        let urgency = self.urgency(utilization);
        if outstanding == 0 {
            let quiet_nanos = (self.quiet_nanos as f64 * (1.0 - urgency)) as u64;
            let due = quiet_since_nanos.saturating_add(quiet_nanos);
            return if now_nanos >= due { Turn::Now } else { Turn::At(due) };
        }
        let share = urgency * self.busy_share_max.clamp(0.0, 1.0);
        if share <= 0.0 {
            return Turn::WhenQuiet;
        }
        // A step of `s` and then a pause of as much as makes it so large a share.
        let (begun, ended) = last_busy_step;
        let took = ended.saturating_sub(begun) as f64;
        let pause = took * (1.0 / share - 1.0);
        let due = ended.saturating_add(pause.min(60e9) as u64);
        if now_nanos >= due { Turn::Now } else { Turn::At(due) }
    }
}

/// A zone that could be relocated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) logical: u32,
    /// Share of the media cache that it takes, of what is nearer to its end.
    pub(super) share: f64,
    pub(super) extents: u32,
    /// Share of the media cache from the zone's first piece in the log to the head.
    pub(super) pinned_share: f64,
    /// Bytes to copy.
    pub(super) written_bytes: u64,
    pub(super) last_change_nanos: u64,
    /// How often it was given up since it was moved last.
    pub(super) given_up: u32,
    /// It is left alone for now.
    pub(super) is_left: bool,
}

impl RelocationParameters {
    /// Bytes that are read and written for a zone, or could be in the time that it takes.
    fn cost_bytes(&self, candidate: &Candidate) -> f64 {
        let extents = u64::from(candidate.extents).saturating_mul(self.extent_cost_bytes);
        // Read and written, and two steps at least.
        candidate.written_bytes.saturating_mul(2).saturating_add(extents).saturating_add(2 * self.step_bytes) as f64
    }

    /// By how much less a zone is worth that may be written while it is moved.
    fn doubt(&self, candidate: &Candidate, now_nanos: u64) -> f64 {
        let is_recent = now_nanos.saturating_sub(candidate.last_change_nanos) < self.recent_nanos;
        f64::from(candidate.given_up.saturating_add(1)) * if is_recent { 2.0 } else { 1.0 }
    }

    /// Whether a zone has not been written for so long that nothing is doubted: the longer the more often it was given up.
    fn is_calm(&self, candidate: &Candidate, now_nanos: u64) -> bool {
        let calm_nanos = self.calm_nanos.saturating_mul(u64::from(candidate.given_up.saturating_add(1)));
        now_nanos.saturating_sub(candidate.last_change_nanos) >= calm_nanos
    }

    /// The zone to relocate next: of those that are worth most the first, if it is worth it at all. Each that is moved, or tried, gives back
    /// [a part](WORTH_MIN) of what its like did in the mean, or is tried the less the more often it was given up: so what is moved is bounded by
    /// what fills the cache.
    pub(super) fn next(&self, candidates: impl Iterator<Item = Candidate> + Clone, now_nanos: u64) -> Option<u32> {
        let in_cache = candidates.filter(|candidate| candidate.share > 0.0);
        let (share, cost) = in_cache
            .clone()
            .fold((0.0, 0.0), |(share, cost), candidate| (share + candidate.share, cost + self.cost_bytes(&candidate)));
        let least = WORTH_MIN * share / f64::max(cost, 1.0);
        let mut best: Option<(f64, u32)> = None;
        for candidate in in_cache.filter(|candidate| !candidate.is_left) {
            let gain = candidate.share / self.cost_bytes(&candidate);
            let worth = gain / self.doubt(&candidate, now_nanos);
            let is_worth_it = if self.is_calm(&candidate, now_nanos) { gain >= least } else { worth >= least };
            if is_worth_it && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, candidate.logical));
            }
        }
        best.map(|(_, logical)| logical)
    }

    /// The zone to relocate next where the cache is short of bytes: the one at the tail of the log, because no space comes back before it is moved,
    /// whatever it costs. A zone that was given up counts as younger, so the zones behind it are moved first; it is not tried again where it
    /// counts as next to nothing, unless it has not been written for long.
    ///
    /// A zone that was moved is in the log again only at its head, so each is moved at most once for each time that the log is written round.
    pub(super) fn next_in_log(
        &self,
        candidates: impl Iterator<Item = Candidate> + Clone,
        now_nanos: u64,
    ) -> Option<u32> {
        let in_log = candidates.filter(|candidate| candidate.pinned_share > 0.0);
        let least = WORTH_MIN * in_log.clone().map(|candidate| candidate.pinned_share).fold(0.0, f64::max);
        let mut best: Option<(f64, u32)> = None;
        for candidate in in_log.filter(|candidate| !candidate.is_left) {
            let worth = candidate.pinned_share / f64::from(candidate.given_up.saturating_add(1));
            let is_worth_it = worth >= least || self.is_calm(&candidate, now_nanos);
            if is_worth_it && best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, candidate.logical));
            }
        }
        best.map(|(_, logical)| logical)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn situation() -> Situation {
        Situation {
            now_nanos: 500 * MILLI,
            outstanding: 0,
            quiet_since_nanos: 0,
            utilization: 0.9,
            last_busy_step: (0, 0),
        }
    }

    #[test]
    fn steps_wait_for_quiet_and_less_so_in_a_hurry() {
        let parameters = RelocationParameters { quiet_nanos: 4 * MILLI, ..Default::default() };
        assert_eq!(parameters.turn(&situation()), Turn::Now);
        let just_done = Situation { quiet_since_nanos: 499 * MILLI, ..situation() };
        assert_eq!(parameters.turn(&just_done), Turn::At(503 * MILLI));
        assert_eq!(parameters.turn(&Situation { utilization: 1.2, ..just_done }), Turn::Now);
        assert_eq!(parameters.turn(&Situation { outstanding: 3, ..situation() }), Turn::WhenQuiet);
        assert!(!parameters.is_due(0.5) && parameters.is_due(0.9));
        let steps = [0.0, 0.9, 0.95, 1.0, 1.5].map(|utilization| parameters.step(utilization) >> 19);
        assert_eq!(steps, [1, 1, 8, 16, 16]);
    }

    #[test]
    fn what_was_is_forgotten_exponentially() {
        for (memories, share) in [(0.0, 1.0), (0.1, 0.904_837_418), (1.0, 0.367_879_441), (5.0, 0.006_737_947)] {
            assert!((remembered_share(memories) - share).abs() < 1e-9, "{memories}");
        }
        assert_eq!(remembered_share(1e12), 0.0);
    }

    #[test]
    fn there_is_no_hurry_where_the_cache_would_not_be_full_for_long() {
        let parameters = RelocationParameters {
            urgent_utilization: 0.9,
            calm_nanos: 100,
            horizon_nanos: 3000,
            filling_memory_nanos: 1000,
            ..Default::default()
        };
        let filling = |share: f64| {
            let mut filling = Filling::default();
            // As much each nanosecond, for long.
            (0..10_000).for_each(|now| filling.add(share, parameters.filling_memory_nanos, now));
            filling
        };
        let fast = filling(1.0);
        assert!((parameters.filling_rate(&fast, 9_999) - 1.0).abs() < 1e-2);
        assert_eq!(parameters.pressure(1.1, &fast, 10_000), 1.1);
        assert_eq!(parameters.pressure(0.3, &fast, 10_000), 0.3);
        // Nothing fills it any more.
        assert_eq!(parameters.pressure(1.1, &fast, 11_000), 0.9);
        // A twentieth is left, which takes ten times the horizon; when next to nothing is left there is a hurry.
        let slow = filling(0.05 / 30_000.0);
        assert!((parameters.pressure(0.95, &slow, 10_000) - 0.905).abs() < 1e-3);
        assert!((parameters.pressure(0.9999, &slow, 10_000) - 0.9999).abs() < 1e-9);
        let calm = Situation { outstanding: 1, utilization: parameters.pressure(1.1, &fast, 11_000), ..situation() };
        assert_eq!(parameters.turn(&calm), Turn::WhenQuiet);
    }

    #[test]
    fn failures_back_off() {
        let parameters = RelocationParameters { retry_nanos: 10, ..Default::default() };
        assert_eq!([0, 1, 2, 5, 99].map(|failures| parameters.back_off_nanos(failures)), [0, 10, 20, 160, 10_240]);
        let parameters = RelocationParameters { report_nanos: 7, ..parameters };
        assert_eq!([1, 2, 99].map(|failures| parameters.unreadable_nanos(failures)), [7, 14, 7168]);
    }

    #[test]
    fn what_is_written_is_synced_later_in_a_hurry() {
        let parameters = RelocationParameters { sync_bytes: 100, urgent_utilization: 0.9, ..Default::default() };
        let due = |pressure| (1..10_000u64).find(|&unsynced| parameters.is_sync_due(unsynced, pressure));
        assert_eq!(
            (due(0.5), due(0.9), due(0.95).map(|bytes| bytes / 10), due(1.0)),
            (Some(100), Some(100), Some(20), None)
        );
    }

    #[test]
    fn steps_among_requests_take_a_bounded_share() {
        let parameters = RelocationParameters { urgent_utilization: 0.9, busy_share_max: 0.25, ..Default::default() };
        let busy = |utilization, now: u64| {
            let last_busy_step = (100 * MILLI, 110 * MILLI);
            Situation { outstanding: 1, utilization, now_nanos: now * MILLI, last_busy_step, ..situation() }
        };
        // Full: a step of 10 ms, then 30 of others.
        assert_eq!(parameters.turn(&busy(1.0, 139)), Turn::At(140 * MILLI));
        assert_eq!(parameters.turn(&busy(1.0, 140)), Turn::Now);
        assert_eq!(parameters.turn(&busy(0.9, 100_000)), Turn::WhenQuiet);
        // A step takes no more of the time than its share, however full it is.
        for utilization in [0.91, 0.95, 0.99, 1.0, 3.0] {
            match parameters.turn(&busy(utilization, 110)) {
                Turn::At(due) => assert!(10.0 / ((due - 100 * MILLI) as f64 / 1e6) <= 0.25 + 1e-9, "{utilization}"),
                other => panic!("{utilization}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_gives_back_most_for_its_cost_comes_first() {
        let parameters = RelocationParameters::default();
        let zone = |logical, share, written_bytes| Candidate {
            logical,
            share,
            extents: 10,
            pinned_share: 0.0,
            written_bytes,
            last_change_nanos: 0,
            given_up: 0,
            is_left: false,
        };
        let now = 100_000 * MILLI;
        let next = |candidates: &[Candidate]| parameters.next(candidates.iter().copied(), now);
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[zone(1, 0.0, 1 << 20)]), None);
        assert_eq!(next(&[zone(1, 0.1, 256 << 20), zone(2, 0.2, 256 << 20), zone(3, 0.2, 256 << 20)]), Some(2));
        assert_eq!(next(&[zone(1, 0.1, 16 << 20), zone(2, 0.2, 256 << 20)]), Some(1));
        let recent = Candidate { last_change_nanos: now - MILLI, ..zone(2, 0.15, 256 << 20) };
        assert_eq!(next(&[zone(1, 0.1, 256 << 20), recent]), Some(1));
        let given_up = Candidate { given_up: 3, ..zone(2, 0.3, 256 << 20) };
        assert_eq!(next(&[zone(1, 0.1, 256 << 20), given_up]), Some(1));
        assert_eq!(next(&[Candidate { is_left: true, ..zone(1, 0.9, 256 << 20) }, zone(2, 0.2, 256 << 20)]), Some(2));
    }

    /// What fills the cache may be what cannot be moved now: the rest is not moved again and again for the little that it gives back.
    #[test]
    fn what_gives_back_next_to_nothing_is_not_moved() {
        let parameters = RelocationParameters { calm_nanos: 1000 * MILLI, ..Default::default() };
        let now = 100_000 * MILLI;
        let zone = |logical, share, last_change_nanos| Candidate {
            logical,
            share,
            extents: 0,
            pinned_share: 0.0,
            written_bytes: 256 << 20,
            last_change_nanos,
            given_up: 0,
            is_left: logical == 0,
        };
        let next = |candidates: &[Candidate]| parameters.next(candidates.iter().copied(), now);
        assert_eq!(next(&[zone(0, 0.9, 0), zone(1, 0.001, now)]), None);
        assert_eq!(next(&[zone(0, 0.9, 0), zone(1, 0.3, now)]), Some(1));
        // Of one that is written all the time nothing is expected after ten times, and something again when it is left in peace.
        let tried = |given_up, millis| Candidate { given_up, ..zone(1, 0.1, now - millis * MILLI) };
        assert_eq!(next(&[tried(3, 0)]), Some(1));
        assert_eq!(next(&[tried(10, 0)]), None);
        assert_eq!(next(&[tried(10, 10_999)]), None);
        assert_eq!(next(&[tried(10, 11_000)]), Some(1));
    }

    #[test]
    fn the_tail_of_the_log_comes_first() {
        let parameters = RelocationParameters { calm_nanos: 1000 * MILLI, ..Default::default() };
        let now = 100_000 * MILLI;
        let zone = |logical, pinned_share| Candidate {
            logical,
            share: 0.5 / f64::from(logical + 1),
            extents: 0,
            pinned_share,
            written_bytes: 256 << 20,
            last_change_nanos: now,
            given_up: 0,
            is_left: false,
        };
        let next = |candidates: &[Candidate]| parameters.next_in_log(candidates.iter().copied(), now);
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[zone(0, 0.0)]), None, "it has nothing in the log");
        let all = [zone(0, 0.2), zone(1, 0.9), zone(2, 0.5)];
        assert_eq!(next(&all), Some(1));
        let tail_was = |tail: Candidate| next(&[all[0], tail, all[2]]);
        assert_eq!(tail_was(Candidate { is_left: true, ..all[1] }), Some(2));
        assert_eq!(tail_was(Candidate { given_up: 1, ..all[1] }), Some(2));
        assert_eq!(next(&[all[0], Candidate { given_up: 1, ..all[1] }]), Some(1));
        // A zone that is written all the time is given up ten times at most.
        let given_up = |given_up, last_change_nanos| next(&[Candidate { given_up, last_change_nanos, ..all[1] }]);
        assert_eq!([8, 10].map(|times| given_up(times, now)), [Some(1), None]);
        assert_eq!(given_up(10, now - 11_000 * MILLI), Some(1), "not written for long");
    }

    #[test]
    fn zones_close_together_in_the_log_need_more_time() {
        let parameters = RelocationParameters { filling_memory_nanos: 100, ..Default::default() };
        let mut filling = Filling::default();
        (0..10_000).for_each(|now| filling.add(0.001, parameters.filling_memory_nanos, now));
        // 0.01 are filled in a move of 10.
        let at_once = {
            let mut filling = Filling::default();
            (0..20).for_each(|now| filling.add(0.001, parameters.filling_memory_nanos, now));
            filling.expected_within(10, parameters.filling_memory_nanos, 19)
        };
        assert!((at_once - 0.01).abs() < 1e-3, "{at_once}: as fast from the first write on");
        let ahead = |pinned: &[f64]| parameters.ahead(pinned.iter().copied(), 10, &filling, 9_999);
        let is_near = |found: f64, wanted: f64| (found - wanted).abs() < 2e-3;
        assert_eq!(ahead(&[]), Ahead::default());
        // Evenly apart: the tail is the worst.
        let even: Vec<f64> = (0..20).map(|zone| 0.8 - f64::from(zone) * 0.04).collect();
        let found = ahead(&even);
        assert!(is_near(found.of_all, 0.81) && is_near(found.soon, 0.81), "{found:?}");
        // All at the tail: the last of them is gone after twenty moves, and the rate is known for ten.
        let found = ahead(&[0.3; 20]);
        assert!(is_near(found.of_all, 0.5) && is_near(found.soon, 0.4), "{found:?}");
    }
}
