//! Admission of writes that go to the media cache: pure functions that decide which of them wait, and how long.
//!
//! The drive blocks all requests for minutes when its cache is full. So writes that fill it are held back before it is, each for a bounded time:
//! relocation gives space back meanwhile, and the thread that waits asks for nothing else.
//!
//! Two high-water marks, because a user waits for most writes and for none of a compaction. Compactions are held from the first mark on. At the
//! second, half-way from the first to a full cache, admission closes for writes of every class, and opens again when the cache is below the first:
//! *hysteresis*, without which each write that is let in at the mark would close it for the next. A hold grows in proportion from the first mark to
//! the full cache, where it has its [bound](RelocationParameters::hold_max_nanos), and a request's deadline bounds it too.
//!
//! *Where the marks are.* Relocation gives space back only when the move of a zone ends. So the second mark leaves free what is filled in the time
//! of one move: at a rate `r` (share of the cache per second) and with `t` seconds per move it is at `1 - r * t`, and the first, as far below it, at
//! `1 - 2 * r * t`. The first is between [`lowest_mark`](RelocationParameters::lowest_mark), which is where zones begin to be moved, and
//! [`brake_utilization`](RelocationParameters::brake_utilization). `r` is measured over `t`, so that `r * t` is the share of the
//! cache that was filled in the last `t` seconds. `t` is the duration of the steps of the last move, divided by the largest share of the time that
//! steps take among requests.
//!
//! *What the bound means.* `n` threads that write one extent each after a hold of `h` fill no more than `n / h` extents a second. Relocation keeps
//! pace as long as it gives back as many. With more threads, or less of the drive's time for relocation, the cache fills all the same, slower, and
//! the drive blocks: a longer hold would be no better than that.
//!
//! *Recovery.* What a blocking drive cleans counts as cached until a report says otherwise: relocation would move zones that are clean, and hold
//! writes for a cache that is empty. The drive does not say that it blocks. A step that took long while the cache is nearly full is a sign, and so
//! is a cache that counts as full. Then all zones are reported soon, also during a move, which ends where the drive cleaned its zone.

use super::policy::RelocationParameters;
use varve_media::IoClass;

/// True if writes of every class are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) is_closed: bool,
}

/// Utilization of the cache and the first high-water mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    pub(super) utilization: f64,
    pub(super) first_mark: f64,
}

impl Level {
    /// Utilization at which writes of every class are held.
    fn second_mark(&self) -> f64 {
        self.first_mark + (1.0 - self.first_mark) / 2.0
    }

    /// Position of the utilization between the first mark (0) and the full cache (1).
    fn over_mark(&self) -> f64 {
        let band = (1.0 - self.first_mark).max(1e-3);
        ((self.utilization - self.first_mark) / band).clamp(0.0, 1.0)
    }
}

/// A write that would take space in the media cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) class: IoClass,
    pub(super) came_nanos: u64,
    pub(super) deadline_nanos: Option<u64>,
}

impl RelocationParameters {
    /// Time that the move of a zone takes where steps have their largest share of the time, from the duration of its steps, in nanoseconds.
    pub(super) fn move_nanos(&self, steps_nanos: u64) -> u64 {
        (steps_nanos as f64 / self.busy_share_max.clamp(0.01, 1.0)) as u64
    }

    /// The first high-water mark where this share of the cache is filled while a zone is moved.
    pub(super) fn level(&self, utilization: f64, filled_in_move: f64) -> Level {
        let least = self.lowest_mark.min(self.brake_utilization);
        Level { utilization, first_mark: (1.0 - 2.0 * filled_in_move).clamp(least, self.brake_utilization) }
    }

    /// How full the cache counts as for the hurry of relocation: as full as the holds say, where the filling rate has moved the marks down. While
    /// writes wait, relocation takes as much of the time as it would near a full cache.
    pub(super) fn pressure_of_holds(&self, level: &Level) -> f64 {
        if level.first_mark >= self.brake_utilization {
            return 0.0;
        }
        self.urgent_utilization + (1.0 - self.urgent_utilization) * level.over_mark()
    }

    /// Follows how full the cache is.
    pub(super) fn admission(&self, before: Admission, level: &Level) -> Admission {
        let mark = if before.is_closed { level.first_mark } else { level.second_mark() };
        Admission { is_closed: level.utilization > mark }
    }

    /// Until when a write waits; `None` when it goes now.
    pub(super) fn hold(&self, admission: Admission, level: &Level, write: &Held, now_nanos: u64) -> Option<u64> {
        let most_nanos = match write.class {
            IoClass::Compaction => self.brake_max_nanos,
            _ if admission.is_closed => self.hold_max_nanos,
            _ => return None,
        };
        let until_nanos = write.came_nanos.saturating_add((most_nanos as f64 * level.over_mark()) as u64);
        let until_nanos = until_nanos.min(write.deadline_nanos.unwrap_or(u64::MAX));
        (until_nanos > now_nanos).then_some(until_nanos)
    }

    /// True if a step of this duration indicates that the drive blocks.
    pub(super) fn is_sign_of_blocking(&self, step_nanos: u64, utilization: f64) -> bool {
        utilization >= 1.0 || (step_nanos >= self.blocked_step_nanos && utilization > self.brake_utilization)
    }

    /// True if all zones are due for a report: periodically, and earlier if the drive seems to block.
    pub(super) fn is_report_due(&self, last_nanos: Option<u64>, seems_to_block: bool, now_nanos: u64) -> bool {
        let every_nanos =
            if seems_to_block { self.doubt_report_nanos.min(self.report_nanos) } else { self.report_nanos };
        last_nanos.is_none_or(|last| now_nanos >= last.saturating_add(every_nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn parameters() -> RelocationParameters {
        RelocationParameters {
            brake_utilization: 0.8,
            brake_max_nanos: 4 * SECOND,
            hold_max_nanos: 2 * SECOND,
            ..Default::default()
        }
    }

    fn write(class: IoClass) -> Held {
        Held { class, came_nanos: 0, deadline_nanos: None }
    }

    #[test]
    fn admission_closes_at_one_mark_and_opens_at_another() {
        let parameters = parameters();
        let mut admission = Admission::default();
        for (utilization, is_closed) in [
            (0.5, false),
            (0.85, false),
            (0.9, false),
            (0.91, true),
            (0.85, true),
            (0.81, true),
            (0.8, false),
            (0.85, false),
        ] {
            admission = parameters.admission(admission, &parameters.level(utilization, 0.0));
            assert_eq!(admission.is_closed, is_closed, "{utilization}");
        }
    }

    #[test]
    fn every_class_is_held_when_closed_and_compactions_before() {
        let parameters = parameters();
        for class in IoClass::ALL {
            let hold = |is_closed, utilization| {
                parameters.hold(Admission { is_closed }, &parameters.level(utilization, 0.0), &write(class), 0)
            };
            let is_compaction = class == IoClass::Compaction;
            assert_eq!(hold(false, 0.9).is_some(), is_compaction, "{class:?}");
            let most = if is_compaction { 4 } else { 2 } * SECOND;
            assert_eq!(hold(true, 1.0), Some(most), "{class:?}");
            assert_eq!(hold(true, 7.0), Some(most), "{class:?}: bounded");
            assert!(hold(true, 0.9).is_some_and(|until| until.abs_diff(most / 2) < 10), "{class:?}");
            assert_eq!(hold(true, 0.8), None, "{class:?}");
        }
    }

    #[test]
    fn holds_are_bounded_by_time_and_deadline() {
        let (parameters, closed) = (parameters(), Admission { is_closed: true });
        let of = |deadline_nanos, now| {
            let write = Held { deadline_nanos, ..write(IoClass::UserRead) };
            parameters.hold(closed, &parameters.level(1.0, 0.0), &write, now)
        };
        assert_eq!(of(None, 2 * SECOND - 1), Some(2 * SECOND));
        assert_eq!(of(None, 2 * SECOND), None);
        assert_eq!(of(Some(SECOND), 0), Some(SECOND));
        assert_eq!(of(Some(0), 0), None, "a deadline that has passed");
    }

    #[test]
    fn marks_leave_free_what_is_filled_during_a_move() {
        let parameters = RelocationParameters { lowest_mark: 0.6, brake_utilization: 0.9, ..parameters() };
        for (filled, first, second) in
            [(0.0, 0.9, 0.95), (0.05, 0.9, 0.95), (0.1, 0.8, 0.9), (0.16, 0.68, 0.84), (0.3, 0.6, 0.8), (9.0, 0.6, 0.8)]
        {
            let level = parameters.level(0.85, filled);
            assert!((level.first_mark - first).abs() < 1e-9, "{filled}: {level:?}");
            assert!((level.second_mark() - second).abs() < 1e-9, "{filled}: {level:?}");
            // The faster the cache fills, the sooner writes wait, and the longer.
            let hold = parameters.hold(Admission { is_closed: true }, &level, &write(IoClass::Log), 0);
            let most = 2.0 * SECOND as f64;
            let wanted = (most * ((0.85 - first) / (1.0 - first)).max(0.0)) as u64;
            assert!(hold.unwrap_or(0).abs_diff(wanted) < 10, "{filled}: {hold:?}, not {wanted}");
            assert_eq!(parameters.admission(Admission::default(), &level).is_closed, 0.85 > second + 1e-9, "{filled}");
        }
        // Steps of 4 s, which have half of the time.
        let half = RelocationParameters { busy_share_max: 0.5, ..parameters };
        assert_eq!(half.move_nanos(4 * SECOND), 8 * SECOND);
    }

    #[test]
    fn relocation_hurries_while_writes_wait() {
        let parameters = RelocationParameters { lowest_mark: 0.6, urgent_utilization: 0.9, ..parameters() };
        let pressure = |utilization, filled| parameters.pressure_of_holds(&parameters.level(utilization, filled));
        assert_eq!(pressure(1.0, 0.0), 0.0, "the marks are where they always are");
        assert!((pressure(0.6, 0.2) - 0.9).abs() < 1e-9 && (pressure(0.8, 0.2) - 0.95).abs() < 1e-9);
        assert_eq!(pressure(1.5, 0.2), 1.0);
    }

    #[test]
    fn signs_of_blocking_bring_reports_sooner() {
        let parameters = parameters();
        let RelocationParameters { blocked_step_nanos, doubt_report_nanos, report_nanos, .. } = parameters;
        assert!(!parameters.is_sign_of_blocking(blocked_step_nanos, 0.5), "a busy drive");
        assert!(!parameters.is_sign_of_blocking(blocked_step_nanos - 1, 0.9));
        assert!(parameters.is_sign_of_blocking(blocked_step_nanos, 0.9) && parameters.is_sign_of_blocking(0, 1.0));
        assert!(parameters.is_report_due(None, false, 0));
        let due = |seems_to_block, now| parameters.is_report_due(Some(SECOND), seems_to_block, now);
        assert!(!due(false, SECOND + report_nanos - 1) && due(false, SECOND + report_nanos));
        assert!(!due(true, SECOND + doubt_report_nanos - 1) && due(true, SECOND + doubt_report_nanos));
    }
}
