//! Up to where ranges of keys are in tables.
//!
//! A flush of one range of keys leaves the others' entries in logs that hold entries of this range as well. So that opening does
//! not take those for newer ones, the manifest says of each range up to which sequence number its entries are in tables, until no log
//! that is needed holds any of them.

use crate::encoding::{Damage, Decoder, append_string, append_varint};
use crate::key::{KEY_BYTES_MAX, SEQUENCE_MAX, Sequence};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Keys from `begin` up to `end`, exclusively: what was written of them up to `sequence` is in tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlushedRange {
    pub(crate) begin: Vec<u8>,
    /// Nothing is without end.
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) sequence: Sequence,
}

impl FlushedRange {
    /// Sequence number, begin (string), and end (string) if there is one.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        append_varint(out, self.sequence);
        append_string(out, &self.begin);
        if let Some(end) = &self.end {
            append_string(out, end);
        }
    }

    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Result<FlushedRange, Damage> {
        let sequence = decoder.varint_at_most(SEQUENCE_MAX, "sequence number")?;
        // The end of a range may be the key behind the longest one.
        let begin = decoder.string(KEY_BYTES_MAX + 1, "begin of a flushed range")?.to_vec();
        let start = decoder.position();
        let end = match decoder.is_empty() {
            true => None,
            false => Some(decoder.string(KEY_BYTES_MAX + 1, "end of a flushed range")?.to_vec()),
        };
        if end.as_ref().is_some_and(|end| *end <= begin) {
            return Err(Decoder::damage(start, "an end of a flushed range behind its begin", "one that is not"));
        }
        Ok(FlushedRange { begin, end, sequence })
    }
}

/// Flushed ranges that add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushedRanges {
    /// What holds from a key on, up to the next one; before the first nothing was flushed, as where it is 0.
    steps: BTreeMap<Vec<u8>, Sequence>,
}

impl FlushedRanges {
    /// Disjoint, in the order of their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = FlushedRange> {
        let ends = self.steps.keys().skip(1).map(Some).chain([None]);
        let all = self.steps.iter().zip(ends).filter(|((_, sequence), _)| **sequence > 0);
        all.map(|((begin, sequence), end)| FlushedRange {
            begin: begin.clone(),
            end: end.cloned(),
            sequence: *sequence,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// One more was flushed. Of keys in several the latest sequence number counts. Cost: grows with the number of ranges.
    pub(crate) fn insert(&mut self, new: &FlushedRange) {
        for border in [Some(&new.begin), new.end.as_ref()].into_iter().flatten() {
            let sequence = self.sequence_of(border);
            self.steps.insert(border.clone(), sequence);
        }
        let inside = self.steps.range_mut(new.begin.clone()..);
        inside
            .take_while(|(begin, _)| new.end.as_ref().is_none_or(|end| *begin < end))
            .for_each(|(_, sequence)| *sequence = new.sequence.max(*sequence));
        self.simplify();
    }

    /// No log holds anything up to `sequence` any more.
    pub(crate) fn retire(&mut self, sequence: Sequence) {
        self.steps.values_mut().filter(|flushed| **flushed <= sequence).for_each(|flushed| *flushed = 0);
        self.simplify();
    }

    fn simplify(&mut self) {
        let mut before = 0;
        self.steps.retain(|_, sequence| std::mem::replace(&mut before, *sequence) != *sequence);
    }

    /// The newest sequence number of a key's entries that are in tables although logs hold them; 0 when there is none.
    pub(crate) fn sequence_of(&self, user_key: &[u8]) -> Sequence {
        let up_to = (Bound::Unbounded, Bound::Included(user_key));
        self.steps.range::<[u8], _>(up_to).next_back().map_or(0, |(_, sequence)| *sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn range(begin: u8, end: Option<u8>, sequence: Sequence) -> FlushedRange {
        FlushedRange { begin: vec![begin], end: end.map(|end| vec![end]), sequence }
    }

    /// Against an array of what was flushed last of each key. Sequence numbers of flushes only grow but in damaged manifests.
    #[test]
    fn they_add_up_as_an_array_does() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let (mut ranges, mut model) = (FlushedRanges::default(), [0; 32]);
            for step in 1..30 {
                let begin = random.below(32) as u8;
                let end = Some(begin + 1 + random.below(8) as u8).filter(|end| *end <= 32 && random.chance(9, 10));
                let sequence = if seed % 2 == 0 { step } else { 1 + random.below(30) };
                ranges.insert(&range(begin, end, sequence));
                (begin..end.unwrap_or(32))
                    .for_each(|key| model[usize::from(key)] = sequence.max(model[usize::from(key)]));
                if random.chance(1, 8) {
                    let retired = random.below(step);
                    ranges.retire(retired);
                    model.iter_mut().filter(|sequence| **sequence <= retired).for_each(|sequence| *sequence = 0);
                }
                let found: Vec<Sequence> = (0..32).map(|key| ranges.sequence_of(&[key])).collect();
                assert_eq!(found, model, "seed {seed}, step {step}: {ranges:?}");
                let mut again = FlushedRanges::default();
                ranges.iter().for_each(|range| again.insert(&range));
                assert_eq!(again, ranges, "seed {seed}");
            }
        }
    }

    #[test]
    fn they_come_back_and_those_that_end_before_they_begin_are_damage() {
        for wanted in [
            range(1, Some(2), 7),
            range(0, None, SEQUENCE_MAX),
            FlushedRange { begin: Vec::new(), ..range(0, Some(9), 1) },
        ] {
            let mut bytes = Vec::new();
            wanted.encode(&mut bytes);
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(FlushedRange::decode(&mut decoder), Ok(wanted));
            assert!(decoder.is_empty());
        }
        for wrong in [range(2, Some(2), 7), range(2, Some(1), 7), range(2, Some(3), SEQUENCE_MAX + 1)] {
            let mut bytes = Vec::new();
            wrong.encode(&mut bytes);
            assert!(FlushedRange::decode(&mut Decoder::new(&bytes)).is_err());
        }
    }
}
