//! The walk users see: one entry per live key, as of one sequence number.

use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind, Sequence};
use crate::memtable::MemTable;
use crate::operation::ReadOptions;
use crate::scans::ScanTally;
use crate::unreadable::UnreadableRanges;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Versions of one key to step over before seeking past them instead.
const STEPS_BEFORE_SEEK: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// The source stands on an entry of a kind that this version does not know.
struct UnknownKind;

/// Ranges that end a walk.
struct Unreadable {
    ranges: UnreadableRanges,
    /// The range that ended the walk.
    stopped_at: Option<usize>,
}

/// A position in the database as it was when the iterator was made.
///
/// Keys come in byte order. Starts on nothing: seek first. Holds memory and tables of its moment
/// alive until dropped. Not shareable between threads at once, but may move between them.
///
/// An error makes it invalid; [`DbIterator::status`] tells it until the next seek. A walk that ends
/// without checking `status` cannot tell the end from an error. Once the database is closed every move ends with
/// [`Error::Closed`].
///
/// Where tables are missing with a device of their set, a walk that comes to the range of one ends there with
/// [`Error::Unreadable`], even if other tables have keys in that range: a newer version of them may be missing.
/// [`DbIterator::skip_unreadable`] goes on behind the range.
///
/// Cost of a move: that of each deletion up to the next live key, and of at most eight versions of a key and a seek. Once all
/// scans together have stepped over deletions of a memtable or table 131,072 times, or 64 times for each entry there if that is more,
/// it is flushed or compacted (`docs/performance.md`).
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
    /// Set once its tree is closed.
    closed: Arc<AtomicBool>,
    /// Counts what it steps over, if its tree does something about that.
    tally: Option<ScanTally>,
    /// Ranges that cannot be read, if there are any.
    unreadable: Option<Box<Unreadable>>,
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
            closed: Arc::default(),
            tally: None,
            unreadable: None,
            _pinned: pinned,
        }
    }

    /// Ends with [`Error::Closed`] once `closed` is set, and reports what it steps over.
    pub(crate) fn of_tree(self, closed: Arc<AtomicBool>, tally: Option<ScanTally>) -> Self {
        DbIterator { closed, tally, ..self }
    }

    /// This walk, which ends where it comes to one of these ranges.
    pub(crate) fn without(mut self, ranges: UnreadableRanges) -> Self {
        if !ranges.is_empty() {
            self.unreadable = Some(Box::new(Unreadable { ranges, stopped_at: None }));
        }
        self
    }

    /// First and last key of the range that ended the walk because it cannot be read.
    pub fn unreadable_range(&self) -> Option<(&[u8], &[u8])> {
        let unreadable = self.unreadable.as_ref()?;
        unreadable.ranges.keys(unreadable.stopped_at?)
    }

    /// Goes on behind the range that ended the walk, in its direction. Does nothing, and returns false, where the walk did
    /// not end at such a range.
    pub fn skip_unreadable(&mut self) -> bool {
        let Some((first, last)) = self.unreadable_range().map(|(first, last)| (first.to_vec(), last.to_vec())) else {
            return false;
        };
        match self.direction {
            Direction::Forward => {
                let mut next = last;
                next.push(0);
                self.seek(&next);
            }
            Direction::Backward => self.seek_before(&first),
        }
        true
    }

    /// Ends a walk forward that has come from `from`, included, to where it stands, if it passed a range that cannot be read.
    fn stop_forward(&mut self, from: &[u8]) {
        let Some(unreadable) = self.unreadable.as_ref().filter(|_| self.status().is_ok()) else { return };
        let to = self.valid.then(|| key::user_key(self.source.key()));
        let stop = unreadable.ranges.on_way_forward(from, to, self.upper_bound.as_deref());
        self.stop_at(stop);
    }

    /// The same of a walk backward. Without `from` it came from the end.
    fn stop_backward(&mut self, from: Option<&[u8]>, is_included: bool) {
        let Some(unreadable) = self.unreadable.as_ref().filter(|_| self.status().is_ok()) else { return };
        let to = self.valid.then_some(self.saved_key.as_slice());
        let stop = unreadable.ranges.on_way_backward(from, is_included, to, self.lower_bound.as_deref());
        self.stop_at(stop);
    }

    fn stop_at(&mut self, stop: Option<usize>) {
        let Some(unreadable) = &mut self.unreadable else { return };
        unreadable.stopped_at = stop;
        if let Some(error) = stop.and_then(|index| unreadable.ranges.error(index)) {
            self.valid = false;
            self.error = Some(error);
        }
    }

    /// To the last key before `end`, within the lower bound.
    fn seek_before(&mut self, end: &[u8]) {
        self.begin(Direction::Backward);
        if self.ends_with_database() {
            return;
        }
        // Everything before the newest possible version of the key.
        self.seek_key.clear();
        key::append_internal_key(&mut self.seek_key, end, key::SEQUENCE_MAX, EntryKind::LARGEST);
        self.source.seek_for_previous(&self.seek_key);
        self.find_backward();
        self.stop_backward(Some(end), false);
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
                if !self.ends_with_database() {
                    self.source.seek_to_first();
                    self.find_forward(false);
                    self.stop_forward(&[]);
                }
            }
        }
    }

    /// To the last key within the bounds.
    pub fn seek_to_last(&mut self) {
        match self.upper_bound.take() {
            Some(upper) => {
                self.seek_before(&upper);
                self.upper_bound = Some(upper);
            }
            None => {
                self.begin(Direction::Backward);
                if !self.ends_with_database() {
                    self.source.seek_to_last();
                    self.find_backward();
                    self.stop_backward(None, true);
                }
            }
        }
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
        if self.ends_with_database() {
            return;
        }
        self.seek_key.clear();
        key::append_internal_key(&mut self.seek_key, target, 0, 0);
        self.source.seek_for_previous(&self.seek_key);
        self.find_backward();
        self.stop_backward(Some(target), true);
    }

    /// To the next key. Does nothing when not valid.
    #[inline]
    pub fn next(&mut self) {
        if !self.valid || self.ends_with_database() {
            return;
        }
        let from = self.unreadable.is_some().then(|| self.key().to_vec());
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
        if let Some(from) = from {
            self.stop_forward(&from);
        }
    }

    /// To the previous key. Does nothing when not valid.
    pub fn previous(&mut self) {
        if !self.valid || self.ends_with_database() {
            return;
        }
        let from = self.unreadable.is_some().then(|| self.key().to_vec());
        if self.direction == Direction::Forward {
            self.direction = Direction::Backward;
            self.saved_key.clear();
            self.saved_key.extend_from_slice(key::user_key(self.source.key()));
            self.seek_key.clear();
            key::append_internal_key(&mut self.seek_key, &self.saved_key, key::SEQUENCE_MAX, EntryKind::LARGEST);
            self.source.seek_for_previous(&self.seek_key);
        }
        self.find_backward();
        if let Some(from) = from {
            self.stop_backward(Some(&from), false);
        }
    }

    fn begin(&mut self, direction: Direction) {
        self.direction = direction;
        self.error = None;
        self.valid = false;
        if let Some(unreadable) = &mut self.unreadable {
            unreadable.stopped_at = None;
        }
    }

    /// Invalid and with an error, if the database was closed: what it reads from may be gone.
    #[inline]
    fn ends_with_database(&mut self) -> bool {
        let is_closed = self.closed.load(Ordering::Acquire);
        if is_closed {
            (self.valid, self.error) = (false, Some(Error::Closed));
        }
        is_closed
    }

    fn seek_unbounded(&mut self, target: &[u8]) {
        self.begin(Direction::Forward);
        if self.ends_with_database() {
            return;
        }
        self.seek_key.clear();
        key::append_internal_key(&mut self.seek_key, target, self.sequence, EntryKind::LARGEST);
        self.source.seek(&self.seek_key);
        self.find_forward(false);
        self.stop_forward(target);
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
                        if let Some(tally) = &mut self.tally {
                            tally.note_deletion(internal, self.source.block());
                        }
                        self.saved_key.clear();
                        self.saved_key.extend_from_slice(user);
                        skipping = true;
                        steps = 0;
                    }
                    None => return self.refuse_kind(),
                }
            }
            if let Some(tally) = &mut self.tally {
                tally.skip();
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

    /// From where the source stands, backward to the first key whose newest visible version is a value; stands before all versions
    /// of the key afterwards.
    fn find_backward(&mut self) {
        self.valid = false;
        while self.source.valid() {
            let user = key::user_key(self.source.key());
            if self.lower_bound.as_deref().is_some_and(|lower| user < lower) {
                return;
            }
            self.saved_key.clear();
            self.saved_key.extend_from_slice(user);
            match self.pass_versions_backward() {
                Ok(is_live) if is_live => {
                    self.valid = self.source.status().is_ok();
                    return;
                }
                Ok(_) => {}
                Err(UnknownKind) => return self.refuse_kind(),
            }
        }
    }

    /// Passes all versions of `saved_key`, from the oldest to the newest, and keeps the value of the newest visible one. True if that
    /// one is a value. Steps over a few versions; seeks to the newest visible one, and then before all of them, if there are more.
    fn pass_versions_backward(&mut self) -> Result<bool, UnknownKind> {
        let mut is_live = false;
        for _ in 0..=STEPS_BEFORE_SEEK {
            if !self.stands_on_saved_key() {
                return Ok(is_live);
            }
            // Versions come from the oldest to the newest: none behind the first invisible one is visible.
            if key::sequence(self.source.key()) <= self.sequence {
                is_live = self.keep_version()?;
            }
            if let Some(tally) = self.tally.as_mut().filter(|_| !is_live) {
                tally.skip();
            }
            self.source.previous();
        }
        if !self.stands_on_saved_key() {
            return Ok(is_live);
        }
        if key::sequence(self.source.key()) <= self.sequence {
            self.seek_key.clear();
            key::append_internal_key(&mut self.seek_key, &self.saved_key, self.sequence, EntryKind::LARGEST);
            self.source.seek(&self.seek_key);
            if self.stands_on_saved_key() {
                is_live = self.keep_version()?;
            }
        }
        if self.source.status().is_ok() {
            self.seek_key.clear();
            key::append_internal_key(&mut self.seek_key, &self.saved_key, key::SEQUENCE_MAX, EntryKind::LARGEST);
            self.source.seek_for_previous(&self.seek_key);
        }
        Ok(is_live)
    }

    #[inline]
    fn stands_on_saved_key(&self) -> bool {
        self.source.valid() && key::user_key(self.source.key()) == self.saved_key.as_slice()
    }

    /// Keeps the value of the version the source stands on. True if it is a value.
    fn keep_version(&mut self) -> Result<bool, UnknownKind> {
        match EntryKind::from_number(key::kind_number(self.source.key())) {
            Some(EntryKind::Put) => {
                self.saved_value.clear();
                self.saved_value.extend_from_slice(self.source.value());
                Ok(true)
            }
            Some(EntryKind::Delete) => {
                if let Some(tally) = &mut self.tally {
                    tally.note_deletion(self.source.key(), self.source.block());
                }
                Ok(false)
            }
            None => Err(UnknownKind),
        }
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
mod tests;
