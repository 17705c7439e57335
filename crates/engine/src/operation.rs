//! Options of single reads and writes.

use crate::error::Error;
use crate::snapshot::{Snapshot, SnapshotList};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// Options of one write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Return only when the write survives a power cut.
    pub sync: bool,
}

/// Options of one read.
#[derive(Clone, Debug)]
pub struct ReadOptions<'a> {
    /// Read the state of this snapshot instead of the newest.
    pub snapshot: Option<&'a Snapshot>,
    /// Keep blocks that were read in the block cache.
    pub fill_cache: bool,
    /// Verify checksums of blocks read from the medium or where they are mapped into memory; unset follows the database's options.
    pub verify_checksums: Option<bool>,
    /// Iterators: first key, inclusive.
    pub lower_bound: Option<Vec<u8>>,
    /// Iterators: end, exclusive.
    pub upper_bound: Option<Vec<u8>>,
    /// Iterators: bytes to read ahead from the medium at most; 0 is what the database's options say.
    pub readahead_size: usize,
    /// Reads of single keys: how long from the call on the caller wants to wait at most. Whoever holds requests back, as the control of a
    /// host-aware disk does, lets this one go by then. A read that takes longer all the same is not an error.
    pub wanted_within: Option<Duration>,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        ReadOptions {
            snapshot: None,
            fill_cache: true,
            verify_checksums: None,
            lower_bound: None,
            upper_bound: None,
            readahead_size: 0,
            wanted_within: None,
        }
    }
}

impl<'a> ReadOptions<'a> {
    /// Reads as of `snapshot`.
    pub fn at(snapshot: &'a Snapshot) -> Self {
        ReadOptions { snapshot: Some(snapshot), ..ReadOptions::default() }
    }

    /// Errs with a snapshot of another database than that of `list`.
    pub(crate) fn check_snapshot(&self, list: &Arc<SnapshotList>) -> Result<(), Error> {
        match self.snapshot {
            Some(snapshot) if !snapshot.belongs_to(list) => Err(Error::InvalidArgument {
                what: "snapshot".to_owned(),
                reason: "it was taken from another database".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Limits iterators to keys that begin with `prefix`.
    pub fn with_prefix(mut self, prefix: &[u8]) -> Self {
        self.lower_bound = Some(prefix.to_vec());
        self.upper_bound = prefix_end(prefix);
        self
    }

    /// Limits iterators to a range of keys.
    pub fn with_range<K: AsRef<[u8]>>(mut self, range: impl RangeBounds<K>) -> Self {
        let after = |key: &K| [key.as_ref(), &[0]].concat();
        self.lower_bound = match range.start_bound() {
            Bound::Included(key) => Some(key.as_ref().to_vec()),
            Bound::Excluded(key) => Some(after(key)),
            Bound::Unbounded => None,
        };
        self.upper_bound = match range.end_bound() {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        self
    }
}

/// The first key after every key that begins with `prefix`; `None` when there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_bounds_cover_exactly_the_prefix() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
        let options = ReadOptions::default().with_range(b"a".to_vec()..=b"b".to_vec());
        assert_eq!(options.lower_bound, Some(b"a".to_vec()));
        assert_eq!(options.upper_bound, Some(b"b\0".to_vec()));
    }
}
