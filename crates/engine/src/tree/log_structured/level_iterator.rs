//! Walks the disjoint tables of one level as one source, opening a table when the walk enters it.

use super::catalog::ReadState;
use super::tables::Tables;
use crate::error::Error;
use crate::iterator::{BlockPlace, InternalIterator};
use crate::key;
use crate::shape::{FileMeta, Run, Version, runs};
use crate::table::{TableIterator, TableIteratorOptions};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// As few walks as can be over tables that may overlap, for a merge that reads them forward once: they let go of each table that they have passed.
pub(super) fn sources_once(
    tables: &Arc<Tables>,
    files: &[Arc<FileMeta>],
    options: &TableIteratorOptions,
) -> impl Iterator<Item = Box<dyn InternalIterator>> {
    let walk = |run: Run| LevelIterator::new(Files::Once { run: run.into(), tables: tables.clone() }, *options);
    runs(files).into_iter().map(move |run| Box::new(walk(run)) as Box<dyn InternalIterator>)
}

/// Walks over tables of one level: one where they are disjoint, else as few as can be.
pub(super) fn sources_of(
    tables: &Arc<Tables>,
    version: &Version,
    level: usize,
    files: &[Arc<FileMeta>],
    options: &TableIteratorOptions,
) -> Result<Vec<Box<dyn InternalIterator>>, Error> {
    let walk = |run: Run| -> Box<dyn InternalIterator> {
        Box::new(LevelIterator::new(Files::Run { run, tables: tables.clone() }, *options))
    };
    match files {
        [] => Ok(Vec::new()),
        _ if level >= version.disjoint_from() => Ok(vec![walk(files.to_vec())]),
        _ => runs(files)
            .into_iter()
            .map(|run| match &run[..] {
                [file] if file.begin.is_none() => {
                    Ok(Box::new(tables.get_for(file, &options.io)?.iterator(*options)) as Box<dyn InternalIterator>)
                }
                _ => Ok(walk(run)),
            })
            .collect(),
    }
}

/// What the walks of one iterator stand on. They share it by a count of their own: that of the state is written by all
/// readers, and each would wait for the others.
pub(super) struct Pinned {
    pub(super) state: Arc<ReadState>,
    pub(super) tables: Arc<Tables>,
}

/// The tables of a walk, in key order and disjoint.
enum Files {
    /// A part of a level.
    Level {
        pinned: Arc<Pinned>,
        level: usize,
        range: Range<usize>,
    },
    Run {
        run: Run,
        tables: Arc<Tables>,
    },
    /// Those that were not passed yet, for one walk forward.
    Once {
        run: VecDeque<Arc<FileMeta>>,
        tables: Arc<Tables>,
    },
}

impl Files {
    fn as_slice(&self) -> &[Arc<FileMeta>] {
        match self {
            Files::Level { pinned, level, range } => &pinned.state.version.levels[*level][range.clone()],
            Files::Run { run, .. } => run,
            // Never filled from behind.
            Files::Once { run, .. } => run.as_slices().0,
        }
    }

    fn tables(&self) -> &Tables {
        match self {
            Files::Level { pinned, .. } => &pinned.tables,
            Files::Run { tables, .. } | Files::Once { tables, .. } => tables,
        }
    }
}

/// The walk over files.
pub(super) struct LevelIterator {
    files: Files,
    options: TableIteratorOptions,
    position: usize,
    current: Option<TableIterator>,
    /// Not all entries of the table that was entered last count.
    has_begin: bool,
    /// A walk that left its table, for its memory.
    spare: Option<TableIterator>,
    error: Option<Error>,
}

impl LevelIterator {
    fn new(files: Files, options: TableIteratorOptions) -> Self {
        LevelIterator { files, options, position: 0, current: None, has_begin: false, spare: None, error: None }
    }

    /// Over those tables of a level, which are disjoint.
    pub(super) fn of_level(
        pinned: Arc<Pinned>,
        level: usize,
        range: Range<usize>,
        options: TableIteratorOptions,
    ) -> Self {
        LevelIterator::new(Files::Level { pinned, level, range }, options)
    }

    /// Enters the table at `position`; leaves the walk without a table past the ends. `goes_on` when the
    /// walk comes from the table beside it: it keeps its pace of reading ahead then.
    fn enter(&mut self, position: usize, goes_on: bool) -> Option<&mut TableIterator> {
        if self.current.is_some() && self.position == position {
            return self.current.as_mut();
        }
        self.spare = self.current.take().or(self.spare.take());
        self.position = position;
        let file = self.files.as_slice().get(position)?;
        self.has_begin = file.begin.is_some();
        match (self.files.tables().get_for(file, &self.options.io), self.spare.take()) {
            (Ok(table), Some(mut walk)) => {
                if goes_on {
                    walk.continue_in(table.clone());
                } else {
                    walk.set_table(table.clone());
                }
                self.current = Some(walk);
            }
            (Ok(table), None) => self.current = Some(table.iterator(self.options)),
            (Err(error), _) => self.error = Some(error),
        }
        self.current.as_mut()
    }

    /// Position of the first table whose largest key is at or after `internal_key`.
    fn find(&self, internal_key: &[u8]) -> usize {
        self.files.as_slice().partition_point(|file| key::compare(&file.largest, internal_key) == Ordering::Less)
    }

    fn forward_past_ends(&mut self) {
        while let Some(current) = &self.current {
            if current.valid() || !self.keep_going() {
                return;
            }
            let next = self.leave();
            if self.enter(next, true).is_none() {
                return;
            }
            self.seek_to_begin();
        }
    }

    /// Goes behind the last entry of the table the walk stands in; position of the next one.
    fn leave(&mut self) -> usize {
        let Files::Once { run, .. } = &mut self.files else { return self.position + 1 };
        run.pop_front();
        // Nothing of the last one is kept.
        self.spare = self.current.take().filter(|_| !run.is_empty());
        0
    }

    /// To the first entry that counts of the table that was entered.
    fn seek_to_begin(&mut self) {
        let Some(current) = &mut self.current else { return };
        match self.files.as_slice().get(self.position).and_then(|file| file.begin.as_deref()) {
            Some(begin) => current.seek(&key::lookup_key(begin, key::SEQUENCE_MAX)),
            None => current.seek_to_first(),
        }
    }

    /// The entry the walk stands on is before those that count of its table.
    #[inline]
    fn is_before_begin(&self) -> bool {
        if !self.has_begin {
            return false;
        }
        let begin = self.files.as_slice().get(self.position).and_then(|file| file.begin.as_deref());
        let current = self.current.as_ref().filter(|current| current.valid());
        begin.zip(current).is_some_and(|(begin, current)| key::user_key(current.key()) < begin)
    }

    fn backward_past_ends(&mut self) {
        while let Some(current) = &self.current {
            let is_in = current.valid() && !self.is_before_begin();
            if is_in || !self.keep_going() {
                return;
            }
            let Some(before) = self.position.checked_sub(1) else {
                self.current = None;
                return;
            };
            match self.enter(before, true) {
                Some(table) => table.seek_to_last(),
                None => return,
            }
        }
    }

    /// False when the table the walk stands in ended by an error, which then ends the walk.
    fn keep_going(&mut self) -> bool {
        if let Some(Err(error)) = self.current.as_ref().map(|current| current.status()) {
            self.error = Some(error);
            self.current = None;
            return false;
        }
        true
    }
}

impl InternalIterator for LevelIterator {
    #[inline]
    fn valid(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.valid())
    }

    fn seek_to_first(&mut self) {
        self.error = None;
        if self.enter(0, false).is_some() {
            self.seek_to_begin();
        }
        self.forward_past_ends();
    }

    fn seek_to_last(&mut self) {
        self.error = None;
        let Some(last) = self.files.as_slice().len().checked_sub(1) else { return };
        if let Some(table) = self.enter(last, false) {
            table.seek_to_last();
        }
        self.backward_past_ends();
    }

    fn seek(&mut self, internal_key: &[u8]) {
        self.error = None;
        let mut position = self.find(internal_key);
        if let Files::Once { run, .. } = &mut self.files
            && position > 0
        {
            run.drain(..position);
            (self.current, position) = (None, 0);
        }
        if let Some(table) = self.enter(position, false) {
            table.seek(internal_key);
        }
        if self.is_before_begin() {
            self.seek_to_begin();
        }
        self.forward_past_ends();
    }

    fn seek_for_previous(&mut self, internal_key: &[u8]) {
        self.error = None;
        let position = self.find(internal_key);
        if position == self.files.as_slice().len() {
            return self.seek_to_last();
        }
        if let Some(table) = self.enter(position, false) {
            table.seek_for_previous(internal_key);
        }
        self.backward_past_ends();
    }

    #[inline]
    fn next(&mut self) {
        if let Some(current) = &mut self.current {
            current.next();
            if !current.valid() {
                self.forward_past_ends();
            }
        }
    }

    #[inline]
    fn previous(&mut self) {
        if let Some(current) = &mut self.current {
            current.previous();
            if !current.valid() || self.is_before_begin() {
                self.backward_past_ends();
            }
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| current.key())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().map_or(&[], |current| current.value())
    }

    fn block(&self) -> Option<BlockPlace<'_>> {
        self.current.as_ref().and_then(|current| current.block())
    }

    fn status(&self) -> Result<(), Error> {
        match (&self.error, &self.current) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(current)) => current.status(),
            (None, None) => Ok(()),
        }
    }
}
