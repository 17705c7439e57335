//! A moment of the database.

use crate::cursor::Cursor;
use crate::database::Varve;
use crate::error::Result;
use crate::iter::Iter;
use crate::read_options::ReadOptions;
use std::ops::RangeBounds;
use std::sync::Arc;
use varve_engine::Value;

/// A moment of the database: what is read from it is what was visible when it was taken.
///
/// Cheap to take and to clone; reads of it may come from any thread. While it lives, what is overwritten or deleted stays
/// on the medium, and the database stays open: it is a handle as well.
///
/// ```
/// # fn main() -> varve::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("db");
/// let db = varve::Varve::open(&path)?;
/// db.put("depth", "120 m")?;
/// let before = db.snapshot();
/// db.put("depth", "121 m")?;
/// assert_eq!(before.get("depth")?.as_deref(), Some(&b"120 m"[..]));
/// assert_eq!(before.iter().count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Snapshot {
    // Given back before the database closes.
    moment: Arc<varve_engine::Snapshot>,
    db: Varve,
}

impl Snapshot {
    pub(crate) fn new(db: Varve) -> Self {
        Snapshot { moment: Arc::new(db.engine().snapshot()), db }
    }

    /// Sequence number of the newest write it sees.
    pub fn sequence(&self) -> u64 {
        self.moment.sequence()
    }

    /// As [`Varve::get`].
    ///
    /// # Errors
    /// As [`Varve::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.get_with(key, &ReadOptions::default())
    }

    /// As [`Varve::get_with`].
    ///
    /// # Errors
    /// As [`Varve::get`].
    pub fn get_with(&self, key: impl AsRef<[u8]>, options: &ReadOptions) -> Result<Option<Value>> {
        Ok(self.db.engine().get_with(key.as_ref(), &options.of_keys(Some(&self.moment)))?)
    }

    /// As [`Varve::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Value>>> {
        self.multi_get_with(keys, &ReadOptions::default())
    }

    /// As [`Varve::multi_get_with`].
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: &ReadOptions,
    ) -> Vec<Result<Option<Value>>> {
        self.db.multi_get_at(keys, &options.of_keys(Some(&self.moment)))
    }

    /// As [`Varve::iter`].
    pub fn iter(&self) -> Iter {
        self.iter_with(&ReadOptions::default())
    }

    /// As [`Varve::iter_with`].
    pub fn iter_with(&self, options: &ReadOptions) -> Iter {
        Iter::new(self.clone(), options.clone())
    }

    /// As [`Varve::range`].
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Iter {
        Iter::new(self.clone(), ReadOptions::default().with_range(range))
    }

    /// As [`Varve::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(self.clone(), ReadOptions::default().with_prefix(prefix))
    }

    /// As [`Varve::cursor`].
    ///
    /// # Errors
    /// As [`Varve::cursor`].
    pub fn cursor(&self, options: &ReadOptions) -> Result<Cursor> {
        Ok(Cursor::new(self.db.engine().iterator(&options.of_walks(Some(&self.moment)))?))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}
