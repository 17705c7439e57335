//! Iterators over pairs, from both ends.

use crate::cursor::Cursor;
use crate::error::Result;
use crate::read_options::ReadOptions;
use crate::snapshot::Snapshot;
use std::iter::FusedIterator;
use varve_engine::{Key, Value};

/// Pairs in the order of their keys, from either end or both: what [`Varve::iter`](crate::Varve::iter),
/// [`Varve::range`](crate::Varve::range) and [`Varve::prefix`](crate::Varve::prefix) return.
///
/// Sees the moment it was made at, whatever is written meanwhile. Every pair comes once, from one end or the other. What
/// cannot be read is one `Err`, and then both ends have nothing more: pairs that came before it are sound.
///
/// It is a handle of the database, which stays open until the last is dropped, and a snapshot: it keeps what is overwritten
/// meanwhile on the medium. Both end with its last item. May move between threads.
///
/// Cost: nothing is read before the first pair is asked for. Each end that is used has a [`Cursor`](crate::Cursor) of its
/// own, made with its first pair; a pair is a step of it and a copy of key and value. Whoever wants no copies takes a
/// cursor.
pub struct Iter {
    /// None once it has ended.
    source: Option<Source>,
    front: Option<Cursor>,
    back: Option<Cursor>,
}

struct Source {
    snapshot: Snapshot,
    options: ReadOptions,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl Iter {
    pub(crate) fn new(snapshot: Snapshot, options: ReadOptions) -> Self {
        Iter { source: Some(Source { snapshot, options }), front: None, back: None }
    }

    /// The next pair from an end. Nothing is kept open once there is none.
    fn step(&mut self, end: End) -> Option<Result<(Key, Value)>> {
        let found = self.advance(end).transpose();
        if !matches!(found, Some(Ok(_))) {
            *self = Iter { source: None, front: None, back: None };
        }
        found
    }

    fn advance(&mut self, end: End) -> Result<Option<(Key, Value)>> {
        let Some(source) = &self.source else { return Ok(None) };
        let (own, other) = match end {
            End::Front => (&mut self.front, &self.back),
            End::Back => (&mut self.back, &self.front),
        };
        // Each stands on the pair it gave last.
        let cursor = match (own, end) {
            (Some(cursor), End::Front) => {
                cursor.next();
                cursor
            }
            (Some(cursor), End::Back) => {
                cursor.previous();
                cursor
            }
            (none, End::Front) => {
                let cursor = none.insert(source.snapshot.cursor(&source.options)?);
                cursor.seek_to_first();
                cursor
            }
            (none, End::Back) => {
                let cursor = none.insert(source.snapshot.cursor(&source.options)?);
                cursor.seek_to_last();
                cursor
            }
        };
        if !cursor.valid() {
            cursor.status()?;
            return Ok(None);
        }
        let have_met = other.as_ref().is_some_and(|other| match end {
            End::Front => cursor.key() >= other.key(),
            End::Back => cursor.key() <= other.key(),
        });
        if have_met {
            return Ok(None);
        }
        Ok(Some((Key::from(cursor.key().to_vec()), Value::from(cursor.value().to_vec()))))
    }
}

impl Iterator for Iter {
    type Item = Result<(Key, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl FusedIterator for Iter {}

impl std::fmt::Debug for Iter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iter").field("has_ended", &self.source.is_none()).finish_non_exhaustive()
    }
}
