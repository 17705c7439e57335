//! The walk users see: one entry per live key, as of one sequence number.

use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind, Sequence};
use crate::memtable::MemTable;
use crate::operation::ReadOptions;
use std::sync::Arc;

/// Versions of one key to step over before seeking past them instead.
const STEPS_BEFORE_SEEK: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// A position in the database as it was when the iterator was made.
///
/// Keys come in byte order. Starts on nothing: seek first. Holds memory and tables of its moment
/// alive until dropped. Not shareable between threads at once, but may move between them.
///
/// An error makes it invalid; [`DbIterator::status`] tells it until the next seek. A walk that ends
/// without checking `status` cannot tell the end from an error.
pub struct DbIterator {
    source: Box<dyn InternalIterator>,
    sequence: Sequence,
    lower_bound: Option<Vec<u8>>,
    upper_bound: Option<Vec<u8>>,
    direction: Direction,
    valid: bool,
    /// Forward: user key being skipped. Backward: user key of the entry.
    saved_key: Vec<u8>,
    /// Backward only: value of the entry, since the source already stands before it.
    saved_value: Vec<u8>,
    seek_key: Vec<u8>,
    error: Option<Error>,
    /// Keeps alive what the source reads from.
    _pinned: Box<dyn std::any::Any + Send>,
}

impl DbIterator {
    /// What readers see of `entries` at `sequence`, within the bounds of `options`.
    pub(crate) fn of_memtable(entries: Arc<MemTable>, sequence: Sequence, options: &ReadOptions<'_>) -> Self {
        let (source, pinned) = (Box::new(entries.iterator()), Box::new(entries));
        Self::new(source, sequence, options.lower_bound.clone(), options.upper_bound.clone(), pinned)
    }

    pub(crate) fn new(
        source: Box<dyn InternalIterator>,
        sequence: Sequence,
        lower_bound: Option<Vec<u8>>,
        upper_bound: Option<Vec<u8>>,
        pinned: Box<dyn std::any::Any + Send>,
    ) -> Self {
        DbIterator {
            source,
            sequence,
            lower_bound,
            upper_bound,
            direction: Direction::Forward,
            valid: false,
            saved_key: Vec::new(),
            saved_value: Vec::new(),
            seek_key: Vec::new(),
            error: None,
            _pinned: pinned,
        }
    }

    /// Stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Key of the entry; empty when not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match (self.valid, self.direction) {
            (false, _) => &[],
            (true, Direction::Forward) => key::user_key(self.source.key()),
            (true, Direction::Backward) => &self.saved_key,
        }
    }

    /// Value of the entry; empty when not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match (self.valid, self.direction) {
            (false, _) => &[],
            (true, Direction::Forward) => self.source.value(),
            (true, Direction::Backward) => &self.saved_value,
        }
    }

    /// The error that ended the walk, if any.
    pub fn status(&self) -> Result<(), Error> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None => self.source.status(),
        }
    }

    /// To the first key within the bounds.
    pub fn seek_to_first(&mut self) {
        match self.lower_bound.take() {
            Some(lower) => {
                self.seek_unbounded(&lower);
                self.lower_bound = Some(lower);
            }
            None => {
                self.begin(Direction::Forward);
                self.source.seek_to_first();
                self.find_forward(false);
            }
        }
    }

    /// To the last key within the bounds.
    pub fn seek_to_last(&mut self) {
        self.begin(Direction::Backward);
        match &self.upper_bound {
            Some(upper) => {
                // Everything before the newest possible version of the bound.
                self.seek_key.clear();
                key::append_internal_key(&mut self.seek_key, upper, key::SEQUENCE_MAX, EntryKind::LARGEST);
                self.source.seek_for_previous(&self.seek_key);
            }
            None => self.source.seek_to_last(),
        }
        self.find_backward();
    }

    /// To the first key at or after `target`, within the bounds.
    pub fn seek(&mut self, target: &[u8]) {
        match self.lower_bound.take() {
            Some(lower) => {
                self.seek_unbounded(if target < lower.as_slice() { &lower } else { target });
                self.lower_bound = Some(lower);
            }
            None => self.seek_unbounded(target),
        }
    }

    /// To the last key at or before `target`, within the bounds.
    pub fn seek_for_previous(&mut self, target: &[u8]) {
        if self.upper_bound.as_deref().is_some_and(|upper| target >= upper) {
            return self.seek_to_last();
        }
        self.begin(Direction::Backward);
        self.seek_key.clear();
        key::append_internal_key(&mut self.seek_key, target, 0, 0);
        self.source.seek_for_previous(&self.seek_key);
        self.find_backward();
    }

    /// To the next key. Does nothing when not valid.
    #[inline]
    pub fn next(&mut self) {
        if !self.valid {
            return;
        }
        if self.direction == Direction::Backward {
            // The source stands before the entry's versions, or nowhere: go back to them.
            self.direction = Direction::Forward;
            self.seek_key.clear();
            key::append_internal_key(&mut self.seek_key, &self.saved_key, 0, 0);
            self.source.seek(&self.seek_key);
        } else {
            self.saved_key.clear();
            self.saved_key.extend_from_slice(key::user_key(self.source.key()));
            self.source.next();
        }
        self.find_forward(true);
    }

    /// To the previous key. Does nothing when not valid.
    pub fn previous(&mut self) {
        if !self.valid {
            return;
        }
        if self.direction == Direction::Forward {
            self.direction = Direction::Backward;
            self.saved_key.clear();
            self.saved_key.extend_from_slice(key::user_key(self.source.key()));
            self.seek_key.clear();
            key::append_internal_key(&mut self.seek_key, &self.saved_key, key::SEQUENCE_MAX, EntryKind::LARGEST);
            self.source.seek_for_previous(&self.seek_key);
        }
        self.find_backward();
    }

    fn begin(&mut self, direction: Direction) {
        self.direction = direction;
        self.error = None;
        self.valid = false;
    }

    fn seek_unbounded(&mut self, target: &[u8]) {
        self.begin(Direction::Forward);
        self.seek_key.clear();
        key::append_internal_key(&mut self.seek_key, target, self.sequence, EntryKind::LARGEST);
        self.source.seek(&self.seek_key);
        self.find_forward(false);
    }

    /// From where the source stands, to the first visible live entry. `skipping` passes over
    /// versions of `saved_key`.
    fn find_forward(&mut self, mut skipping: bool) {
        self.valid = false;
        let mut steps = 0;
        while self.source.valid() {
            let internal = self.source.key();
            let user = key::user_key(internal);
            if self.upper_bound.as_deref().is_some_and(|upper| user >= upper) {
                return;
            }
            let visible = key::sequence(internal) <= self.sequence;
            let repeated = skipping && user == self.saved_key.as_slice();
            if visible && !repeated {
                match EntryKind::from_number(key::kind_number(internal)) {
                    Some(EntryKind::Put) => {
                        self.valid = true;
                        return;
                    }
                    Some(EntryKind::Delete) => {
                        self.saved_key.clear();
                        self.saved_key.extend_from_slice(user);
                        skipping = true;
                        steps = 0;
                    }
                    None => return self.refuse_kind(),
                }
            }
            steps = if visible && !repeated { 0 } else { steps + 1 };
            if steps > STEPS_BEFORE_SEEK {
                steps = 0;
                self.seek_key.clear();
                if repeated {
                    key::append_internal_key(&mut self.seek_key, &self.saved_key, 0, 0);
                } else {
                    key::append_internal_key(&mut self.seek_key, user, self.sequence, EntryKind::LARGEST);
                }
                self.source.seek(&self.seek_key);
            } else {
                self.source.next();
            }
        }
    }

    /// From where the source stands, backwards over all versions of a key to its newest visible
    /// one; stands before them afterwards.
    fn find_backward(&mut self) {
        self.valid = false;
        let mut live = false;
        let mut found = false;
        while self.source.valid() {
            let internal = self.source.key();
            let user = key::user_key(internal);
            if self.lower_bound.as_deref().is_some_and(|lower| user < lower) {
                break;
            }
            if found && user != self.saved_key.as_slice() {
                if live {
                    break;
                }
                found = false;
            }
            if key::sequence(internal) <= self.sequence {
                if !found {
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(user);
                }
                found = true;
                match EntryKind::from_number(key::kind_number(internal)) {
                    Some(EntryKind::Put) => {
                        live = true;
                        self.saved_value.clear();
                        self.saved_value.extend_from_slice(self.source.value());
                    }
                    Some(EntryKind::Delete) => live = false,
                    None => return self.refuse_kind(),
                }
            }
            self.source.previous();
        }
        self.valid = live && self.source.status().is_ok();
    }

    fn refuse_kind(&mut self) {
        self.valid = false;
        self.error = Some(Error::Corruption {
            file: "(merged)".to_owned(),
            offset_bytes: 0,
            structure: format!("entry of key {}", key::user_key(self.source.key()).escape_ascii()),
            expected: "kind 0 (delete) or 1 (put)".to_owned(),
            found: key::kind_in_words(key::kind_number(self.source.key())),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::testing::VectorIterator;
    use std::collections::BTreeMap;
    use varve_env::Random;

    #[test]
    fn walks_agree_with_a_map_at_every_sequence_and_bound() {
        for seed in 0..120 {
            let mut random = Random::seeded(seed);
            let mut entries = Vec::new();
            let mut history: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
            for sequence in 1..=1 + random.below(80) {
                let user = random.below(12);
                let value = (random.below(3) > 0).then(|| vec![sequence as u8; random.below(5) as usize]);
                let mut internal = Vec::new();
                key::append_internal_key(
                    &mut internal,
                    format!("{user:02}").as_bytes(),
                    sequence,
                    u8::from(value.is_some()),
                );
                entries.push((internal, value.clone().unwrap_or_default()));
                history.push((user, value));
            }
            let at = random.below(history.len() as u64 + 1);
            let mut map = BTreeMap::new();
            for (user, value) in &history[..at as usize] {
                let name = format!("{user:02}").into_bytes();
                match value {
                    Some(value) => map.insert(name, value.clone()),
                    None => map.remove(&name),
                };
            }
            let bound =
                |random: &mut Random| (random.below(3) == 0).then(|| format!("{:02}", random.below(13)).into_bytes());
            let (lower, upper) = (bound(&mut random), bound(&mut random));
            map.retain(|name, _| {
                lower.as_ref().is_none_or(|lower| name >= lower) && upper.as_ref().is_none_or(|upper| name < upper)
            });
            let mut walk =
                DbIterator::new(Box::new(VectorIterator::new(entries)), at, lower.clone(), upper.clone(), Box::new(()));
            let pairs: Vec<(Vec<u8>, Vec<u8>)> = map.into_iter().collect();
            let mut model: Option<usize> = None;
            for step in 0..200 {
                let target = format!("{:02}", random.below(14)).into_bytes();
                match random.below(8) {
                    0 => {
                        walk.seek_to_first();
                        model = (!pairs.is_empty()).then_some(0);
                    }
                    1 => {
                        walk.seek_to_last();
                        model = pairs.len().checked_sub(1);
                    }
                    2 => {
                        walk.seek(&target);
                        let position = pairs.partition_point(|pair| pair.0 < target);
                        model = (position < pairs.len()).then_some(position);
                    }
                    3 => {
                        walk.seek_for_previous(&target);
                        model = pairs.partition_point(|pair| pair.0 <= target).checked_sub(1);
                    }
                    4 | 5 => {
                        walk.next();
                        model = model.and_then(|position| (position + 1 < pairs.len()).then_some(position + 1));
                    }
                    _ => {
                        walk.previous();
                        model = model.and_then(|position| position.checked_sub(1));
                    }
                }
                let expected = model.map(|position| (pairs[position].0.as_slice(), pairs[position].1.as_slice()));
                let found = walk.valid().then(|| (walk.key(), walk.value()));
                assert_eq!(found, expected, "seed {seed} step {step} bounds {lower:?} {upper:?} at {at}");
            }
        }
    }
}
