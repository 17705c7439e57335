//! The walk for those who seek.

use crate::error::Result;
use varve_engine::DbIterator;

/// A position in the database as it was when the cursor was made, which moves to any key and both ways. [`Iter`](crate::Iter)
/// is simpler for whoever walks a range once; a cursor copies nothing.
///
/// Keys come in byte order. Starts on nothing: seek first. Holds memory and tables of its moment
/// alive until dropped. Not shareable between threads at once, but may move between them.
///
/// An error makes it invalid; [`Cursor::status`] tells it until the next seek. A walk that ends
/// without checking `status` cannot tell the end from an error.
///
/// Cost: a seek reads a block of every sorted run that may hold the key, where the cache does not have it; a step reads a
/// block when it leaves one. Turning around is a seek.
///
/// ```
/// # fn main() -> varve::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("db");
/// let db = varve::Varve::open(&path)?;
/// for year in ["1755", "1815", "1991"] {
///     db.put(year, "tephra")?;
/// }
/// let mut cursor = db.cursor(&varve::ReadOptions::default())?;
/// cursor.seek_for_previous("1900");
/// assert_eq!(cursor.key(), b"1815");
/// cursor.previous();
/// assert_eq!(cursor.key(), b"1755");
/// cursor.previous();
/// assert!(!cursor.valid());
/// cursor.status()
/// # }
/// ```
pub struct Cursor(DbIterator);

impl Cursor {
    pub(crate) fn new(walk: DbIterator) -> Self {
        Cursor(walk)
    }

    /// Stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// Key of the entry; empty when not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// Value of the entry; empty when not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.0.value()
    }

    /// The error that ended the walk, if any.
    ///
    /// # Errors
    /// That error: what was read is damaged, or the medium failed.
    pub fn status(&self) -> Result<()> {
        Ok(self.0.status()?)
    }

    /// First and last key of the range that ended the walk because its table is on a device that is not there.
    pub fn unreadable_range(&self) -> Option<(&[u8], &[u8])> {
        self.0.unreadable_range()
    }

    /// Goes on behind the range that ended the walk, in its direction. Does nothing, and returns false, where the walk did
    /// not end at such a range.
    pub fn skip_unreadable(&mut self) -> bool {
        self.0.skip_unreadable()
    }

    /// To the first key within the bounds.
    pub fn seek_to_first(&mut self) {
        self.0.seek_to_first();
    }

    /// To the last key within the bounds.
    pub fn seek_to_last(&mut self) {
        self.0.seek_to_last();
    }

    /// To the first key at or after `target`, within the bounds.
    pub fn seek(&mut self, target: impl AsRef<[u8]>) {
        self.0.seek(target.as_ref());
    }

    /// To the last key at or before `target`, within the bounds.
    pub fn seek_for_previous(&mut self, target: impl AsRef<[u8]>) {
        self.0.seek_for_previous(target.as_ref());
    }

    /// To the next key. Does nothing when not valid.
    #[inline]
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) {
        self.0.next();
    }

    /// To the previous key. Does nothing when not valid.
    #[inline]
    pub fn previous(&mut self) {
        self.0.previous();
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("valid", &self.valid()).finish_non_exhaustive()
    }
}
