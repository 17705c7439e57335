//! Merges sorted sources into one sorted walk.

use crate::error::Error;
use crate::iterator::{BlockPlace, InternalIterator};
use crate::key;
use std::cmp::Ordering;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The merge of any number of sources. Sources earlier in the list win ties, so list newer first;
/// ties do not occur while sequence numbers are unique.
pub(crate) struct MergingIterator {
    sources: Vec<Box<dyn InternalIterator>>,
    /// Positions of valid sources, a binary heap: the front is where the walk stands.
    heap: Vec<u32>,
    direction: Direction,
    error: Option<Error>,
}

/// One walk over `sources`, without the cost of merging when there is only one.
pub(crate) fn merge(mut sources: Vec<Box<dyn InternalIterator>>) -> Box<dyn InternalIterator> {
    if sources.len() == 1 {
        return sources.remove(0);
    }
    Box::new(MergingIterator {
        heap: Vec::with_capacity(sources.len()),
        sources,
        direction: Direction::Forward,
        error: None,
    })
}

impl MergingIterator {
    /// True when source `a` comes before source `b` in the current direction.
    #[inline]
    fn before(&self, a: u32, b: u32) -> bool {
        let order = key::compare(self.sources[a as usize].key(), self.sources[b as usize].key());
        match (self.direction, order) {
            (_, Ordering::Equal) => a < b,
            (Direction::Forward, order) => order == Ordering::Less,
            (Direction::Backward, order) => order == Ordering::Greater,
        }
    }

    fn sift_down(&mut self, mut position: usize) {
        let length = self.heap.len();
        let moving = self.heap[position];
        loop {
            let mut child = 2 * position + 1;
            if child >= length {
                break;
            }
            if child + 1 < length && self.before(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.before(self.heap[child], moving) {
                break;
            }
            self.heap[position] = self.heap[child];
            position = child;
        }
        self.heap[position] = moving;
    }

    fn rebuild(&mut self, direction: Direction) {
        self.direction = direction;
        self.heap.clear();
        for position in 0..self.sources.len() {
            if self.sources[position].valid() {
                self.heap.push(position as u32);
            } else {
                self.note_end(position);
            }
        }
        for position in (0..self.heap.len() / 2).rev() {
            self.sift_down(position);
        }
        if self.error.is_some() {
            self.heap.clear();
        }
    }

    fn note_end(&mut self, source: usize) {
        if self.error.is_none()
            && let Err(error) = self.sources[source].status()
        {
            self.error = Some(error);
        }
    }

    /// After the front source moved: put it where it belongs, or drop it when it ended.
    #[inline]
    fn settle_front(&mut self) {
        let front = self.heap[0] as usize;
        if self.sources[front].valid() {
            self.sift_down(0);
            return;
        }
        self.note_end(front);
        if self.error.is_some() {
            // Entries of the failed source are missing: nothing after this point can be trusted.
            self.heap.clear();
            return;
        }
        self.heap.swap_remove(0);
        if !self.heap.is_empty() {
            self.sift_down(0);
        }
    }

    fn turn(&mut self, direction: Direction) {
        let here = self.key().to_vec();
        let current = self.heap[0] as usize;
        for position in 0..self.sources.len() {
            if position == current {
                continue;
            }
            let source = &mut self.sources[position];
            match direction {
                Direction::Forward => {
                    source.seek(&here);
                    if source.valid() && source.key() == here {
                        source.next();
                    }
                }
                Direction::Backward => {
                    source.seek_for_previous(&here);
                    if source.valid() && source.key() == here {
                        source.previous();
                    }
                }
            }
        }
        match direction {
            Direction::Forward => self.sources[current].next(),
            Direction::Backward => self.sources[current].previous(),
        }
        self.rebuild(direction);
    }
}

impl InternalIterator for MergingIterator {
    #[inline]
    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    fn seek_to_first(&mut self) {
        self.error = None;
        self.sources.iter_mut().for_each(|source| source.seek_to_first());
        self.rebuild(Direction::Forward);
    }

    fn seek_to_last(&mut self) {
        self.error = None;
        self.sources.iter_mut().for_each(|source| source.seek_to_last());
        self.rebuild(Direction::Backward);
    }

    fn seek(&mut self, internal_key: &[u8]) {
        self.error = None;
        self.sources.iter_mut().for_each(|source| source.seek(internal_key));
        self.rebuild(Direction::Forward);
    }

    fn seek_for_previous(&mut self, internal_key: &[u8]) {
        self.error = None;
        self.sources.iter_mut().for_each(|source| source.seek_for_previous(internal_key));
        self.rebuild(Direction::Backward);
    }

    #[inline]
    fn next(&mut self) {
        if self.direction == Direction::Forward {
            let front = self.heap[0] as usize;
            self.sources[front].next();
            self.settle_front();
        } else {
            self.turn(Direction::Forward);
        }
    }

    #[inline]
    fn previous(&mut self) {
        if self.direction == Direction::Backward {
            let front = self.heap[0] as usize;
            self.sources[front].previous();
            self.settle_front();
        } else {
            self.turn(Direction::Backward);
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.heap[0] as usize].key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.heap[0] as usize].value()
    }

    fn block(&self) -> Option<BlockPlace<'_>> {
        self.sources[self.heap[0] as usize].block()
    }

    fn status(&self) -> Result<(), Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A source over a vector, for tests of what walks sources.
    use super::*;

    pub(crate) struct VectorIterator {
        entries: Vec<(Vec<u8>, Vec<u8>)>,
        position: Option<usize>,
        /// Ends with this error instead of walking past the entry of this position.
        pub(crate) fails_after: Option<usize>,
    }

    impl VectorIterator {
        pub(crate) fn new(mut entries: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
            entries.sort_by(|a, b| key::compare(&a.0, &b.0));
            VectorIterator { entries, position: None, fails_after: None }
        }
    }

    impl InternalIterator for VectorIterator {
        fn valid(&self) -> bool {
            self.position.is_some()
        }
        fn seek_to_first(&mut self) {
            self.position = (!self.entries.is_empty()).then_some(0);
        }
        fn seek_to_last(&mut self) {
            self.position = self.entries.len().checked_sub(1);
        }
        fn seek(&mut self, internal_key: &[u8]) {
            let position = self.entries.partition_point(|entry| key::compare(&entry.0, internal_key) == Ordering::Less);
            self.position = (position < self.entries.len()).then_some(position);
        }
        fn seek_for_previous(&mut self, internal_key: &[u8]) {
            let position =
                self.entries.partition_point(|entry| key::compare(&entry.0, internal_key) != Ordering::Greater);
            self.position = position.checked_sub(1);
        }
        fn next(&mut self) {
            let next = self.position.map_or(0, |position| position + 1);
            self.position =
                (next < self.entries.len() && self.fails_after.is_none_or(|limit| next <= limit)).then_some(next);
        }
        fn previous(&mut self) {
            self.position = self.position.and_then(|position| position.checked_sub(1));
        }
        fn key(&self) -> &[u8] {
            &self.entries[self.position.expect("valid")].0
        }
        fn value(&self) -> &[u8] {
            &self.entries[self.position.expect("valid")].1
        }
        fn block(&self) -> Option<BlockPlace<'_>> {
            None
        }
        fn status(&self) -> Result<(), Error> {
            match self.fails_after {
                Some(_) if self.position.is_none() => Err(Error::Closed),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::VectorIterator;
    use super::*;
    use varve_env::Random;

    fn entry(user: u64, sequence: u64) -> (Vec<u8>, Vec<u8>) {
        let mut internal = Vec::new();
        key::append_internal_key(&mut internal, format!("{user:04}").as_bytes(), sequence, 1);
        (internal, sequence.to_le_bytes().to_vec())
    }

    #[test]
    fn random_walks_agree_with_one_sorted_vector() {
        for seed in 0..60 {
            let mut random = Random::seeded(seed);
            let sources = 1 + random.below(6) as usize;
            let mut parts = vec![Vec::new(); sources];
            let mut all = Vec::new();
            for sequence in 1..=random.below(120) {
                let made = entry(random.below(30), sequence);
                parts[random.below(sources as u64) as usize].push(made.clone());
                all.push(made);
            }
            let mut merged = merge(
                parts
                    .into_iter()
                    .map(|part| Box::new(VectorIterator::new(part)) as Box<dyn InternalIterator>)
                    .collect(),
            );
            let mut model = VectorIterator::new(all);
            for step in 0..400 {
                match random.below(8) {
                    0 => (merged.seek_to_first(), model.seek_to_first()),
                    1 => (merged.seek_to_last(), model.seek_to_last()),
                    2 => {
                        let target = entry(random.below(32), random.below(130)).0;
                        (merged.seek(&target), model.seek(&target))
                    }
                    3 => {
                        let target = entry(random.below(32), random.below(130)).0;
                        (merged.seek_for_previous(&target), model.seek_for_previous(&target))
                    }
                    4 | 5 if model.valid() => (merged.next(), model.next()),
                    _ if model.valid() => (merged.previous(), model.previous()),
                    _ => continue,
                };
                assert_eq!(merged.valid(), model.valid(), "seed {seed} step {step}");
                if model.valid() {
                    assert_eq!((merged.key(), merged.value()), (model.key(), model.value()), "seed {seed} step {step}");
                }
            }
        }
    }

    #[test]
    fn a_failing_source_ends_the_walk_with_its_error() {
        let mut failing = VectorIterator::new(vec![entry(1, 1), entry(5, 2), entry(9, 3)]);
        failing.fails_after = Some(1);
        let healthy = VectorIterator::new((0..10).map(|user| entry(user, 100 + user)).collect());
        let mut merged = merge(vec![Box::new(failing), Box::new(healthy)]);
        merged.seek_to_first();
        let mut seen = 0;
        while merged.valid() {
            seen += 1;
            merged.next();
        }
        assert!(merged.status().is_err());
        assert!(seen < 12);
    }
}
