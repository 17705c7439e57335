//! Partial compactions: those that need more space than there is are done part by part of the key range.
//!
//! A compaction frees its inputs when its outputs are part of the tree, so done at once it needs as much space as it has
//! inputs. Where the tables of the output level do not overlap it need not be done at once: the range can be cut between
//! two of them. Each part is a compaction of its own: what lies before the cut becomes part of the tree, in place of the
//! tables of the output level that lie there. Inputs that reach beyond the cut stay until the last part, so what they hold
//! before it is there twice, in the same versions. The upper one of two equal versions hides the lower one, as a newer one
//! would, so a crash or an error between two parts leaves a tree that says the same.
//!
//! The last table of a part may be nearly empty, which wastes space where each table takes whole blocks or bands. It is
//! *carried*: the next part merges it once more.
//!
//! Whatever a table overlaps, its compaction so takes space for itself, for one table of the output level and for what is
//! carried. [`reach`] decides how far a part goes, as a pure function; the rest carries it out.

use super::compaction::{Part, compact_part};
use super::{JobContext, space_now};
use crate::error::Error;
use crate::key;
use crate::shape::{CompactionPlan, FileMeta, Version};
use crate::space::Reservation;
use crate::throttle::JobPace;
use std::collections::VecDeque;
use std::sync::Arc;
use varve_store::{IoClass, IoContext};

/// A table that is not this full, in quarters, is carried.
const CARRIED_QUARTERS: u64 = 3;

/// Bytes from one place where the range may be cut to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// Of the table that lies there.
    table_bytes: u64,
    /// Of inputs that reach beyond.
    input_bytes: u64,
}

/// How many steps the next part takes: as many as fit, and one in any case; and whether what is carried goes along,
/// which it only does if it fits too.
fn reach(carried_bytes: u64, steps: impl IntoIterator<Item = Step>, space_bytes: u64) -> (usize, bool) {
    let (mut count, mut bytes, mut is_carried) = (0, carried_bytes, true);
    for step in steps {
        let step_bytes = step.table_bytes.saturating_add(step.input_bytes);
        if bytes.saturating_add(step_bytes) > space_bytes {
            if count > 0 {
                break;
            }
            is_carried = false;
            bytes = 0;
        }
        bytes = bytes.saturating_add(step_bytes);
        count += 1;
    }
    (count.max(1), is_carried)
}

/// Space that a plan takes while it is done in parts: for a part, and for what inputs hold that reach beyond it and is there
/// twice meanwhile. Those of level 0 stay to the end, below it one at a time does.
fn needed_bytes(version: &Version, plan: &CompactionPlan) -> u64 {
    let sizes = |files: &[Arc<FileMeta>]| -> (u64, u64) {
        files
            .iter()
            .fold((0, 0), |(sum, largest), file| (sum.saturating_add(file.size_bytes), largest.max(file.size_bytes)))
    };
    let ((inputs_bytes, input_bytes), (_, below_bytes)) = (sizes(&plan.inputs), sizes(&plan.overlapping));
    let staying_bytes = if plan.input_level < version.disjoint_from() { inputs_bytes } else { input_bytes };
    staying_bytes.saturating_add(below_bytes)
}

/// How much of the space such a plan is given: what it needs, and enough more that it does not take many parts. Where tables
/// take bands of their own writers leave compactions a reserve, and all of it is taken.
pub(super) fn reserved_bytes(version: &Version, plan: &CompactionPlan, space_bytes: u64, is_in_tables: bool) -> u64 {
    let share_bytes = if is_in_tables { space_bytes } else { space_bytes / 2 };
    needed_bytes(version, plan).max(share_bytes).min(space_bytes)
}

/// A plan of which some parts are done.
struct Remaining {
    plan: CompactionPlan,
    /// Tables between which the range may be cut, in key order, and their level.
    ahead: VecDeque<Arc<FileMeta>>,
    ahead_level: usize,
    /// Inputs that are read in every part they reach into.
    inputs: Vec<Arc<FileMeta>>,
    begin: Option<Vec<u8>>,
    carried: Option<Arc<FileMeta>>,
}

impl Remaining {
    fn new(version: &Version, mut plan: CompactionPlan) -> Remaining {
        let inputs = std::mem::take(&mut plan.inputs);
        let overlapping = std::mem::take(&mut plan.overlapping);
        // Without tables below it is the inputs that are passed, where they do not overlap.
        let passes_inputs = overlapping.is_empty() && plan.input_level >= version.disjoint_from();
        let (ahead, ahead_level, inputs) = match passes_inputs {
            true => (inputs, plan.input_level, Vec::new()),
            false => (overlapping, plan.output_level, inputs),
        };
        Remaining { ahead: ahead.into(), ahead_level, inputs, begin: None, carried: None, plan }
    }

    /// Bytes of inputs up to a key, from where the next part begins.
    fn input_bytes(&self, context: &JobContext, end: Option<&[u8]>) -> Result<u64, Error> {
        let mut bytes = 0u64;
        for file in &self.inputs {
            let table = context.files.tables.get_for(file, &IoContext::of(IoClass::Compaction))?;
            let offset = |user_key: &[u8]| table.approximate_offset_of(&key::lookup_key(user_key, key::SEQUENCE_MAX));
            let before = self.begin.as_deref().map_or(0, offset);
            // An offset is that of a block's begin: the block counts.
            let after =
                end.map_or(file.size_bytes, |end| offset(end).saturating_add(context.files.options.block_size as u64));
            bytes = bytes.saturating_add(after.min(file.size_bytes).saturating_sub(before));
        }
        Ok(bytes)
    }

    /// How far the next part goes, and whether what is carried goes along.
    fn reach(&self, context: &JobContext, space_bytes: u64) -> Result<(usize, bool), Error> {
        let carried_bytes = self.carried.as_ref().map_or(0, |file| file.size_bytes);
        let (mut steps, mut before, mut sum) = (Vec::new(), 0, carried_bytes);
        for (position, file) in self.ahead.iter().enumerate() {
            let end = self.ahead.get(position + 1).map(|next| next.smallest_user_key());
            let up_to = self.input_bytes(context, end)?;
            let step = Step { table_bytes: file.size_bytes, input_bytes: up_to.saturating_sub(before) };
            steps.push(step);
            before = up_to;
            sum = sum.saturating_add(step.table_bytes).saturating_add(step.input_bytes);
            if sum > space_bytes && position > 0 {
                break;
            }
        }
        Ok(reach(carried_bytes, steps, space_bytes))
    }

    /// The next part, and what of its inputs stays.
    fn advance(&mut self, count: usize, is_carried: bool) -> (CompactionPlan, Part) {
        let taken: Vec<Arc<FileMeta>> = self.ahead.drain(..count.min(self.ahead.len())).collect();
        let end = self.ahead.front().map(|file| file.smallest_user_key().to_vec());
        let carried = self.carried.take().filter(|_| is_carried);
        let next = std::mem::replace(&mut self.begin, end.clone());
        // What is carried was written before the cut.
        let begin = carried.as_ref().map(|file| file.smallest_user_key().to_vec()).or(next);
        let reaches = |file: &&Arc<FileMeta>| {
            end.as_deref().is_none_or(|end| file.smallest_user_key() < end)
                && begin.as_deref().is_none_or(|begin| file.largest_user_key() >= begin)
        };
        // Tables of level 0 that overlap go together: an older one must not be left above.
        let is_disjoint = self.plan.input_level > 0;
        let is_behind = |file: &FileMeta| end.as_deref().is_none_or(|end| is_disjoint && file.largest_user_key() < end);
        let all_go = end.is_none() && !is_disjoint;
        let mut inputs: Vec<Arc<FileMeta>> =
            self.inputs.iter().filter(|file| all_go || reaches(file)).cloned().collect();
        let staying = inputs.iter().filter(|file| !is_behind(file)).map(|file| file.number).collect();
        self.inputs.retain(|file| !is_behind(file));
        let mut overlapping = Vec::new();
        let (input_level, output_level) = (self.plan.input_level, self.plan.output_level);
        let carried = carried.into_iter().map(|file| (output_level, file));
        for (level, file) in carried.chain(taken.into_iter().map(|file| (self.ahead_level, file))) {
            if level == input_level { inputs.push(file) } else { overlapping.push(file) }
        }
        let plan = CompactionPlan { inputs, overlapping, ..self.plan.clone() };
        (plan, Part { begin, end, staying, parts_max: 1, short: None })
    }
}

/// Carries out a plan whose output level has tables that do not overlap. Nothing else is compacted meanwhile.
pub(super) fn compact(context: &JobContext, plan: CompactionPlan, reservation: &Arc<Reservation>) -> Result<(), Error> {
    let mut remaining = Remaining::new(&context.catalog.read_state.load().version, plan);
    loop {
        if context.board.is_cancelled() {
            return Err(Error::Closed);
        }
        let reserved_bytes = reservation.left_bytes();
        let (_, space_bytes) = space_now(&context.catalog, &context.space, reserved_bytes);
        // More would be taken from those who cannot know.
        let space_bytes = space_bytes.min(reserved_bytes);
        let (count, is_carried) = remaining.reach(context, space_bytes)?;
        let (plan, part) = remaining.advance(count, is_carried);
        let version = context.catalog.read_state.load_full().version.clone();
        let goes = |file: &&Arc<FileMeta>| !part.staying.contains(&file.number);
        let freed_bytes = plan.all_inputs().filter(goes).map(|file| context.space.counted_bytes(file.size_bytes)).sum();
        let outputs = compact_part(context, &version, plan, &part, Arc::new(JobPace::unheld()), reservation)?;
        // What the part replaced is the space of the next one.
        drop(version);
        context.files.tables.collect();
        reservation.regain(freed_bytes);
        context.board.note_step();
        if part.end.is_none() {
            return Ok(());
        }
        let full_bytes =
            context.files.media.files.properties().preferred_table_bytes.unwrap_or(context.space.sizes().table_bytes);
        remaining.carried = outputs.last().filter(|file| file.size_bytes < full_bytes / 4 * CARRIED_QUARTERS).cloned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Reason;
    use crate::shape::tests::table;

    fn numbers(files: &[Arc<FileMeta>]) -> Vec<u64> {
        files.iter().map(|file| file.number).collect()
    }

    type Advanced = (Vec<u64>, Vec<u64>, Option<String>, Option<String>, Vec<u64>);

    fn advance(remaining: &mut Remaining, count: usize, is_carried: bool) -> Advanced {
        let (plan, part) = remaining.advance(count, is_carried);
        let text = |key: Option<Vec<u8>>| key.map(|key| String::from_utf8(key).unwrap());
        let (begin, end) = (text(part.begin), text(part.end));
        (numbers(&plan.inputs), numbers(&plan.overlapping), begin, end, part.staying)
    }

    fn remaining(input_level: usize, inputs: &[&str], overlapping: &[&str]) -> Remaining {
        let tables = |ranges: &[&str], first: u64| -> Vec<Arc<FileMeta>> {
            (first..).zip(ranges).map(|(number, range)| table(number, range, 10, 0)).collect()
        };
        let (inputs, overlapping) = (tables(inputs, 10), tables(overlapping, 1));
        let output_level = if overlapping.is_empty() { input_level } else { input_level + 1 };
        let plan = CompactionPlan::new(Reason::Space, (input_level, inputs), (output_level, overlapping));
        Remaining::new(&Version::empty(4, 1), plan)
    }

    fn key(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    /// Once the pairs of a carried table were passed over.
    #[test]
    fn what_is_carried_is_read_from_its_beginning() {
        let mut remaining = remaining(1, &["b-d", "e-x"], &["a-c", "d-e", "k-l"]);
        assert_eq!(advance(&mut remaining, 1, true), (vec![10], vec![1], None, key("d"), vec![10]));
        remaining.carried = Some(table(7, "c-cc", 1, 0));
        assert_eq!(advance(&mut remaining, 1, true), (vec![10, 11], vec![7, 2], key("c"), key("k"), vec![11]));
        remaining.carried = Some(table(8, "i-j", 1, 0));
        assert_eq!(advance(&mut remaining, 1, false), (vec![11], vec![3], key("k"), None, vec![]));
    }

    #[test]
    fn of_level_0_all_go_with_the_last_part() {
        let mut remaining = remaining(0, &["a-b", "a-z"], &["a-c", "d-e"]);
        assert_eq!(advance(&mut remaining, 1, true), (vec![10, 11], vec![1], None, key("d"), vec![10, 11]));
        assert_eq!(advance(&mut remaining, 1, true), (vec![10, 11], vec![2], key("d"), None, vec![]));
    }

    #[test]
    fn what_is_rewritten_where_it_is_is_passed_itself() {
        let mut remaining = remaining(2, &["a-b", "c-d", "e-f"], &[]);
        assert_eq!(advance(&mut remaining, 2, true), (vec![10, 11], vec![], None, key("e"), vec![]));
        remaining.carried = Some(table(7, "cc-d", 1, 0));
        assert_eq!(advance(&mut remaining, 1, true), (vec![7, 12], vec![], key("cc"), None, vec![]));
    }

    #[test]
    fn parts_are_given_what_is_there_twice_and_not_all_the_space() {
        let plan = |input_level: usize| {
            let inputs = vec![table(10, "a-m", 10, 0), table(11, "n-z", 30, 0)];
            let overlapping = vec![table(1, "a-k", 50, 0), table(2, "l-z", 60, 0)];
            CompactionPlan::new(Reason::Space, (input_level, inputs), (input_level + 1, overlapping))
        };
        let version = Version::empty(4, 1);
        let given = |input_level, space_bytes| reserved_bytes(&version, &plan(input_level), space_bytes, false);
        assert_eq!((given(0, 140), given(1, 140)), (100, 90), "of level 0 all stay, below it one at a time");
        assert_eq!((given(0, 240), given(0, 90)), (120, 90), "half of much, all of little");
        assert_eq!(reserved_bytes(&version, &plan(0), 140, true), 140);
    }

    fn steps(bytes: &[(u64, u64)]) -> Vec<Step> {
        bytes.iter().map(|&(table_bytes, input_bytes)| Step { table_bytes, input_bytes }).collect()
    }

    #[test]
    fn a_part_goes_as_far_as_there_is_space_and_one_table_in_any_case() {
        let all = steps(&[(10, 1), (10, 1), (10, 1)]);
        assert_eq!(reach(0, all.clone(), 100), (3, true));
        assert_eq!(reach(0, all.clone(), 32), (2, true));
        assert_eq!(reach(9, all.clone(), 31), (2, true));
        assert_eq!(reach(9, all.clone(), 30), (1, true));
        assert_eq!(reach(9, all.clone(), 19), (1, false), "what is carried stays behind");
        assert_eq!(reach(9, all.clone(), 22), (1, true));
        assert_eq!(reach(0, all, 3), (1, false));
        assert_eq!(reach(0, [], 3), (1, true));
    }
}
