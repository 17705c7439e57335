//! When writers are slowed and stopped.

/// How writers are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    None,
    /// Writers get the rate of [`WriteDelay`], `delayed_write_rate` at most.
    Slow,
    Stop,
}

/// The part of the tree's state that decides about stalls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    pub(crate) level0_tables: usize,
    pub(crate) pending_compaction_bytes: u64,
}

/// Thresholds for [`stall`], named as in the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallOptions {
    pub(crate) level0_slowdown_writes_trigger: usize,
    pub(crate) level0_stop_writes_trigger: usize,
    pub(crate) soft_pending_compaction_bytes_limit: u64,
    pub(crate) hard_pending_compaction_bytes_limit: u64,
}

/// RocksDB's slowdown and stop triggers.
pub(crate) fn stall(pressure: &Pressure, options: &StallOptions) -> Stall {
    let over = |limit: u64| limit > 0 && pressure.pending_compaction_bytes >= limit;
    if pressure.level0_tables >= options.level0_stop_writes_trigger || over(options.hard_pending_compaction_bytes_limit)
    {
        Stall::Stop
    } else if pressure.level0_tables >= options.level0_slowdown_writes_trigger
        || over(options.soft_pending_compaction_bytes_limit)
    {
        Stall::Slow
    } else {
        Stall::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_slowed_and_stopped_at_their_triggers() {
        let limits = StallOptions {
            level0_slowdown_writes_trigger: 20,
            level0_stop_writes_trigger: 36,
            soft_pending_compaction_bytes_limit: 100,
            hard_pending_compaction_bytes_limit: 200,
        };
        let at = |level0_tables, pending_compaction_bytes| {
            stall(&Pressure { level0_tables, pending_compaction_bytes }, &limits)
        };
        assert_eq!((at(19, 99), at(20, 0), at(36, 0)), (Stall::None, Stall::Slow, Stall::Stop));
        assert_eq!((at(0, 100), at(0, 200)), (Stall::Slow, Stall::Stop));
    }
}
