//! Whether a leader that is going to sync waits for others first.
//!
//! Those who were told of a sync come back with their next write, but not before the next leader could begin to sync without
//! them: then half of all writers go with one sync and half with the next. A leader waits for those who were there the last
//! time, for less than what the sync that they would miss takes; and if they do not come, not again for some syncs.

/// Longest wait.
const WAIT_NANOS_MAX: u64 = 2_000_000;

/// Most syncs without a wait after waits in vain.
const SKIPPED_MAX: u32 = 64;

/// What is known of syncs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathering {
    /// Writers that were in the last group that was synced, or came while it was.
    writers: usize,
    /// What its sync took.
    sync_nanos: u64,
    /// Syncs without a wait from now on.
    skips: u32,
    /// The same after the next wait in vain.
    next_skips: u32,
}

impl Gathering {
    /// A sync took so long, after which there were so many writers, those included of which it was.
    pub(super) fn note_sync(&mut self, writers: usize, nanos: u64) {
        (self.writers, self.sync_nanos) = (writers, nanos);
        self.skips = self.skips.saturating_sub(1);
    }

    /// How many writers to wait for and how long, when so many are there; `None` not to wait.
    pub(super) fn plan(&self, writers: usize) -> Option<(usize, u64)> {
        let nanos = (self.sync_nanos / 2).min(WAIT_NANOS_MAX);
        (writers < self.writers && self.skips == 0 && nanos > 0).then_some((self.writers, nanos))
    }

    /// All came who were waited for, or not.
    pub(super) fn note_wait(&mut self, all_came: bool) {
        if all_came {
            self.next_skips = 0;
        } else {
            self.next_skips = (self.next_skips * 2).clamp(1, SKIPPED_MAX);
            self.skips = self.next_skips;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_never_waits() {
        let mut gathering = Gathering::default();
        for _ in 0..3 {
            assert_eq!(gathering.plan(1), None);
            gathering.note_sync(1, 100_000);
        }
    }

    #[test]
    fn those_who_were_there_are_waited_for_but_not_for_long() {
        let mut gathering = Gathering::default();
        gathering.note_sync(8, 100_000);
        assert_eq!(
            (gathering.plan(1), gathering.plan(7), gathering.plan(8)),
            (Some((8, 50_000)), Some((8, 50_000)), None)
        );
        gathering.note_sync(8, 1 << 40);
        assert_eq!(gathering.plan(1), Some((8, WAIT_NANOS_MAX)));
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let mut gathering = Gathering::default();
        let mut waits = 0;
        for _ in 0..1000 {
            if gathering.plan(1).is_some() {
                gathering.note_wait(false);
                waits += 1;
            }
            gathering.note_sync(2, 100_000);
        }
        assert!((10..25).contains(&waits), "{waits}");
        // And are tried again at once after one that was not.
        while gathering.plan(1).is_none() {
            gathering.note_sync(2, 100_000);
        }
        gathering.note_wait(true);
        gathering.note_sync(2, 100_000);
        assert!(gathering.plan(1).is_some());
    }
}
