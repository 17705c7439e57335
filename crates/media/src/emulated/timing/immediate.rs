//! No time at all.

use super::{MediaCounters, Task, Timing, Work};
use crate::device::Capabilities;

/// Every task completes at once. For tests that ask about bytes, not about time. Promises nothing
/// about writes that were not synced, so callers sync as they would on a disk.
#[derive(Debug, Default)]
pub struct Immediate {
    done: Vec<u64>,
    counters: MediaCounters,
}

impl Timing for Immediate {
    fn describe(&self, capabilities: &mut Capabilities) {
        capabilities.rotational = false;
        capabilities.volatile_cache = true;
        capabilities.forced_unit_access = true;
        capabilities.queue_depth = 1 << 10;
    }

    fn submit(&mut self, _now_nanos: u64, task: Task) {
        match task.work {
            Work::Read => self.counters.read_bytes += task.length_bytes,
            Work::Write { .. } => self.counters.written_bytes += task.length_bytes,
            Work::Discard | Work::ResetZone | Work::FinishZone | Work::ManageZone | Work::Flush => {}
        }
        self.done.push(task.id);
    }

    fn advance(&mut self, _now_nanos: u64, completed: &mut Vec<u64>) {
        completed.append(&mut self.done);
    }

    fn next_event_nanos(&self) -> Option<u64> {
        (!self.done.is_empty()).then_some(0)
    }

    fn counters(&self, now_nanos: u64) -> MediaCounters {
        let mut counters = self.counters.clone();
        counters.time.idle_nanos = now_nanos;
        counters
    }
}
