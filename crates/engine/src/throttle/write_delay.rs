//! How fast writers may go while compactions are behind.

use super::stall::{Pressure, Stall, StallOptions, stall};

/// No delay makes writers slower than this, unless they are told to be.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// The rate writers get while slowed, found by trial: lower while debt grows, higher while it shrinks, so
/// that they come to write as fast as compactions keep up with instead of running into the stop. The
/// ratios are those of RocksDB's write controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteDelay {
    pub(crate) stall: Stall,
    /// Holds while `stall` is [`Stall::Slow`].
    pub(crate) bytes_per_second: u64,
    pending_compaction_bytes: u64,
}

impl WriteDelay {
    /// Before anything was written.
    pub(crate) fn new(delayed_write_rate: u64) -> WriteDelay {
        WriteDelay { stall: Stall::None, bytes_per_second: delayed_write_rate.max(1), pending_compaction_bytes: 0 }
    }

    /// The delay after the tree changed to this pressure. `delayed_write_rate` is the highest rate of
    /// slowed writers.
    pub(crate) fn after(self, pressure: &Pressure, options: &StallOptions, delayed_write_rate: u64) -> WriteDelay {
        let most = delayed_write_rate.max(1);
        let least = BYTES_PER_SECOND_MIN.min(most);
        let (now, pending) = (stall(pressure, options), pressure.pending_compaction_bytes);
        let scaled = |numerator: u64, denominator: u64| self.bytes_per_second.saturating_mul(numerator) / denominator;
        let bytes_per_second = match (self.stall, now) {
            (_, Stall::Stop) | (Stall::None, Stall::None) => self.bytes_per_second,
            // Begins where it ended.
            (Stall::None, Stall::Slow) if !is_near_stop(pressure, options) => self.bytes_per_second,
            (Stall::Stop, Stall::Slow) => scaled(3, 5),
            (_, Stall::Slow) if is_near_stop(pressure, options) => scaled(3, 5),
            (_, Stall::Slow) if pending >= self.pending_compaction_bytes => scaled(4, 5),
            (_, Stall::Slow) => scaled(5, 4),
            (_, Stall::None) => scaled(7, 5),
        };
        WriteDelay {
            stall: now,
            bytes_per_second: bytes_per_second.clamp(least, most),
            pending_compaction_bytes: pending,
        }
    }
}

/// Writers are about to be stopped.
fn is_near_stop(pressure: &Pressure, options: &StallOptions) -> bool {
    let (soft, hard) = (options.soft_pending_compaction_bytes_limit, options.hard_pending_compaction_bytes_limit);
    let over = pressure.pending_compaction_bytes.saturating_sub(soft);
    let slows = soft > 0 && pressure.pending_compaction_bytes >= soft;
    let nearly_full = pressure.level0_tables + 2 >= options.level0_stop_writes_trigger
        && pressure.level0_tables >= options.level0_slowdown_writes_trigger;
    nearly_full || (slows && hard > soft && over / 3 > (hard - soft) / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: StallOptions = StallOptions {
        level0_slowdown_writes_trigger: 20,
        level0_stop_writes_trigger: 36,
        soft_pending_compaction_bytes_limit: 1000,
        hard_pending_compaction_bytes_limit: 2000,
    };

    fn rates(steps: &[(usize, u64)]) -> Vec<(Stall, u64)> {
        let mut delay = WriteDelay::new(1 << 20);
        let step = |&(level0_tables, pending_compaction_bytes): &(usize, u64)| {
            delay = delay.after(&Pressure { level0_tables, pending_compaction_bytes }, &OPTIONS, 1 << 20);
            (delay.stall, delay.bytes_per_second)
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn the_rate_falls_while_debt_grows_and_rises_while_it_shrinks() {
        const FULL: u64 = 1 << 20;
        let found = rates(&[(19, 10), (20, 20), (21, 30), (21, 30), (20, 25), (19, 20), (20, 20)]);
        let falling = FULL * 4 / 5;
        let expected = [
            (Stall::None, FULL),
            (Stall::Slow, FULL),
            (Stall::Slow, falling),
            (Stall::Slow, falling * 4 / 5),
            (Stall::Slow, falling * 4 / 5 * 5 / 4),
            (Stall::None, FULL),
            (Stall::Slow, FULL),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn near_the_stop_and_after_it_writers_are_slowed_more() {
        let found = rates(&[(34, 0), (36, 0), (35, 0), (0, 1700), (0, 1900)]);
        let rates: Vec<u64> = found.iter().map(|(_, rate)| (rate * 1000) >> 20).collect();
        assert_eq!(rates, [599, 599, 359, 287, 172]);
        assert_eq!(found[1].0, Stall::Stop);
    }

    #[test]
    fn the_rate_stays_between_its_bounds() {
        let down: Vec<(usize, u64)> = (0..100).map(|step| (25, step)).collect();
        assert_eq!(rates(&down).last(), Some(&(Stall::Slow, 16 << 10)));
        let up: Vec<(usize, u64)> = down.iter().copied().chain((0..100).map(|step| (25, 100 - step))).collect();
        assert_eq!(rates(&up).last(), Some(&(Stall::Slow, 1 << 20)));
        let slow =
            WriteDelay::new(100).after(&Pressure { level0_tables: 36, pending_compaction_bytes: 0 }, &OPTIONS, 100);
        assert_eq!(slow.bytes_per_second, 100, "a lower rate that was asked for is kept");
    }
}
