//! Compactions that ran out of space.

use crate::error::Error;
use crate::shape::CompactionPlan;
use std::collections::VecDeque;

/// Compactions that are remembered to have run out of space.
const REMEMBERED_MAX: usize = 16;

/// Compactions that ran out of space: while there is no more of it they would again. Of each its output level and the numbers of its
/// inputs, the bytes it was given and how it ended; the last ones only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shortfalls {
    ended: VecDeque<((usize, Vec<u64>), u64, Error)>,
}

impl Shortfalls {
    pub(crate) fn note(&mut self, plan: (usize, Vec<u64>), space_bytes: u64, error: Error) {
        self.ended.retain(|(of, _, _)| *of != plan);
        self.ended.truncate(REMEMBERED_MAX - 1);
        self.ended.push_front((plan, space_bytes, error));
    }

    /// How a plan would end with so much space, where that is known.
    pub(crate) fn error_of(&self, plan: &CompactionPlan, space_bytes: u64) -> Option<&Error> {
        let is_of_plan = |(output_level, of): &(usize, Vec<u64>)| {
            *output_level == plan.output_level && of.iter().copied().eq(plan.inputs.iter().map(|file| file.number))
        };
        let mut known = self.ended.iter().filter(|(of, given_bytes, _)| space_bytes <= *given_bytes && is_of_plan(of));
        known.next().map(|(_, _, error)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::in_place;
    use crate::shape::tests::table;

    #[test]
    fn what_ran_out_of_space_is_known_until_there_is_more() {
        let plan = in_place(1, vec![table(1, "a-b", 80, 0), table(2, "c-d", 80, 0)]);
        let mut shortfalls = Shortfalls::default();
        assert!(shortfalls.error_of(&plan, 100).is_none());
        shortfalls.note((1, vec![1, 2]), 100, Error::Closed);
        assert!(shortfalls.error_of(&plan, 100).is_some() && shortfalls.error_of(&plan, 101).is_none());
        assert!(shortfalls.error_of(&in_place(1, vec![table(1, "a-b", 80, 0)]), 100).is_none());
        shortfalls.note((1, vec![1, 2]), 120, Error::Closed);
        assert!(shortfalls.error_of(&plan, 110).is_some());
        (3..3 + REMEMBERED_MAX as u64).for_each(|number| shortfalls.note((1, vec![number]), 100, Error::Closed));
        assert!(shortfalls.error_of(&plan, 110).is_none() && shortfalls.ended.len() == REMEMBERED_MAX);
    }
}
