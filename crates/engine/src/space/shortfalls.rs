//! Compactions that ran out of space.

use crate::error::Error;
use crate::shape::CompactionPlan;
use std::collections::VecDeque;

/// Compactions that are remembered to have run out of space.
const REMEMBERED_MAX: usize = 16;

/// A compaction that was tried, by what decides whether it fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) output_level: usize,
    /// Numbers of its input tables.
    pub(crate) inputs: Vec<u64>,
    /// Upper bound on the bytes it writes.
    pub(crate) written_bytes_max: u64,
}

impl Attempt {
    pub(crate) fn of(plan: &CompactionPlan) -> Attempt {
        Attempt {
            output_level: plan.output_level,
            inputs: plan.inputs.iter().map(|file| file.number).collect(),
            written_bytes_max: plan.written_bytes_max(),
        }
    }

    /// True if this attempt needs at least as much space as `other`: a shorter stride of the same inputs, or the rest of
    /// a compaction of which some pieces are done, may fit where the longer one did not.
    fn needs_as_much_as(&self, other: &Attempt) -> bool {
        self.output_level == other.output_level
            && self.inputs == other.inputs
            && self.written_bytes_max >= other.written_bytes_max
    }
}

/// A compaction that ran out of space.
#[derive(Clone, Debug)]
struct Shortfall {
    attempt: Attempt,
    /// Free space when it was planned, in bytes.
    space_bytes: u64,
    error: Error,
}

/// The last compactions that ran out of space. Until there is more space, they would run out again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shortfalls {
    ended: VecDeque<Shortfall>,
}

impl Shortfalls {
    pub(crate) fn note(&mut self, attempt: Attempt, space_bytes: u64, error: Error) {
        self.ended.retain(|ended| ended.space_bytes > space_bytes || !ended.attempt.needs_as_much_as(&attempt));
        self.ended.truncate(REMEMBERED_MAX - 1);
        self.ended.push_front(Shortfall { attempt, space_bytes, error });
    }

    /// Returns the error with which the plan would end if it had `space_bytes`, if that is known.
    pub(crate) fn error_of(&self, plan: &CompactionPlan, space_bytes: u64) -> Option<&Error> {
        let attempt = Attempt::of(plan);
        let ended = self
            .ended
            .iter()
            .find(|ended| space_bytes <= ended.space_bytes && attempt.needs_as_much_as(&ended.attempt));
        ended.map(|ended| &ended.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::table;
    use crate::shape::{Reason, in_place};

    fn attempt(inputs: &[u64], written_bytes_max: u64) -> Attempt {
        Attempt { output_level: 1, inputs: inputs.to_vec(), written_bytes_max }
    }

    #[test]
    fn a_shortfall_is_known_until_there_is_more_space() {
        let plan = in_place(1, vec![table(1, "a-b", 80, 0), table(2, "c-d", 80, 0)]);
        let mut shortfalls = Shortfalls::default();
        assert!(shortfalls.error_of(&plan, 100).is_none());
        shortfalls.note(Attempt::of(&plan), 100, Error::Closed);
        assert!(shortfalls.error_of(&plan, 100).is_some() && shortfalls.error_of(&plan, 101).is_none());
        assert!(shortfalls.error_of(&in_place(1, vec![table(1, "a-b", 80, 0)]), 100).is_none());
        shortfalls.note(Attempt::of(&plan), 120, Error::Closed);
        assert!(shortfalls.error_of(&plan, 110).is_some() && shortfalls.ended.len() == 1);
        (3..3 + REMEMBERED_MAX as u64).for_each(|number| shortfalls.note(attempt(&[number], 80), 100, Error::Closed));
        assert!(shortfalls.error_of(&plan, 110).is_none() && shortfalls.ended.len() == REMEMBERED_MAX);
    }

    /// On a full file system, a long stride that failed kept shorter strides of the same table from being tried.
    #[test]
    fn a_shorter_stride_of_the_same_inputs_may_fit() {
        let plan = |overlapping_bytes: u64| {
            let inputs = vec![table(1, "a-z", 80, 0)];
            CompactionPlan::new(Reason::Space, (1, inputs), (2, vec![table(2, "a-z", overlapping_bytes, 0)]))
        };
        let mut shortfalls = Shortfalls::default();
        shortfalls.note(Attempt::of(&plan(300)), 100, Error::Closed);
        let is_known = |shortfalls: &Shortfalls, bytes| shortfalls.error_of(&plan(bytes), 100).is_some();
        assert!(is_known(&shortfalls, 300) && is_known(&shortfalls, 301) && !is_known(&shortfalls, 299));
        shortfalls.note(Attempt::of(&plan(200)), 50, Error::Closed);
        assert!(!is_known(&shortfalls, 200) && shortfalls.ended.len() == 2, "less space, less to write");
        shortfalls.note(Attempt::of(&plan(200)), 100, Error::Closed);
        assert!(is_known(&shortfalls, 200) && shortfalls.ended.len() == 1, "the smaller failure says more");
    }
}
