//! Options of single reads.

use std::ops::RangeBounds;
use std::time::Duration;

/// Options of one read: [`Varve::get_with`](crate::Varve::get_with), [`Varve::iter_with`](crate::Varve::iter_with),
/// [`Varve::cursor`](crate::Varve::cursor), and those of a [`Snapshot`](crate::Snapshot).
///
/// ```
/// use varve::ReadOptions;
///
/// let options = ReadOptions { fill_cache: false, ..ReadOptions::default() }.with_prefix("lake/");
/// assert_eq!(options.upper_bound.as_deref(), Some(&b"lake0"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Keep blocks that were read in the block cache.
    pub fill_cache: bool,
    /// Verify checksums of blocks read from the medium; unset follows the options of the database.
    pub verify_checksums: Option<bool>,
    /// Iterators and cursors: first key, inclusive.
    pub lower_bound: Option<Vec<u8>>,
    /// Iterators and cursors: end, exclusive.
    pub upper_bound: Option<Vec<u8>>,
    /// Iterators and cursors: bytes to read ahead from the medium at most; 0 is what the options of the database say.
    pub readahead_size: usize,
    /// Reads of single keys: how long from the call on the caller wants to wait at most. Whoever holds requests back, as the control of a
    /// host-aware disk does (`control=` of a spec), lets this one go by then. A read that takes longer all the same is not an error.
    pub wanted_within: Option<Duration>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        let varve_engine::ReadOptions {
            snapshot: _,
            fill_cache,
            verify_checksums,
            lower_bound,
            upper_bound,
            readahead_size,
            wanted_within,
        } = varve_engine::ReadOptions::default();
        ReadOptions { fill_cache, verify_checksums, lower_bound, upper_bound, readahead_size, wanted_within }
    }
}

impl ReadOptions {
    /// Limits iterators and cursors to keys that begin with `prefix`.
    pub fn with_prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        self.with_bounds_of(varve_engine::ReadOptions::default().with_prefix(prefix.as_ref()))
    }

    /// Limits iterators and cursors to a range of keys. One whose end is before its start holds none.
    pub fn with_range<K: AsRef<[u8]>, R: RangeBounds<K>>(self, range: R) -> Self {
        self.with_bounds_of(varve_engine::ReadOptions::default().with_range(range))
    }

    fn with_bounds_of(self, options: varve_engine::ReadOptions<'_>) -> Self {
        ReadOptions { lower_bound: options.lower_bound, upper_bound: options.upper_bound, ..self }
    }

    /// The same for the engine, for reads of single keys.
    #[inline]
    pub(crate) fn of_keys<'a>(&self, snapshot: Option<&'a varve_engine::Snapshot>) -> varve_engine::ReadOptions<'a> {
        varve_engine::ReadOptions {
            snapshot,
            fill_cache: self.fill_cache,
            verify_checksums: self.verify_checksums,
            lower_bound: None,
            upper_bound: None,
            readahead_size: self.readahead_size,
            wanted_within: self.wanted_within,
        }
    }

    /// The same for the engine, for walks.
    pub(crate) fn of_walks<'a>(&self, snapshot: Option<&'a varve_engine::Snapshot>) -> varve_engine::ReadOptions<'a> {
        let (lower_bound, upper_bound) = (self.lower_bound.clone(), self.upper_bound.clone());
        varve_engine::ReadOptions { lower_bound, upper_bound, wanted_within: None, ..self.of_keys(snapshot) }
    }
}
