//! Ranges of keys whose tables are not there.
//!
//! A database on a set of devices without one of its members is [read](crate::Db::open_read_only) as far as its tables are
//! there. A key in the range of a missing table has an unknown newest version: reads of it fail, unless a newer version is found
//! first. An older version is never given out for it.

use crate::error::Error;
use crate::file_name;
use crate::shape::{FileMeta, Version};
use std::collections::BTreeMap;
use varve_store::StoreError;

/// Tables that are not there, and why, by number.
pub(crate) type LostTables = BTreeMap<u64, StoreError>;

/// The error of reading a key in the range of a table that is not there.
pub(crate) fn unreadable(file: &FileMeta, cause: &StoreError) -> Error {
    Error::Unreadable {
        file: file_name::table(file.number),
        first: file.smallest_user_key().to_vec(),
        last: file.largest_user_key().to_vec(),
        error: Box::new(cause.clone()),
    }
}

/// A range of keys, both ends inclusive, and the error of reading one of them.
#[derive(Clone, Debug)]
struct Range {
    first: Vec<u8>,
    last: Vec<u8>,
    file: String,
    cause: StoreError,
}

/// Disjoint ranges of keys that cannot be read, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadableRanges(Vec<Range>);

impl UnreadableRanges {
    /// Those of the tables of a version that are lost. Ranges that overlap become one, with the error of its first table.
    pub(crate) fn of(version: &Version, lost: &LostTables) -> UnreadableRanges {
        let range = |file: &FileMeta| {
            let (first, last) = (file.smallest_user_key().to_vec(), file.largest_user_key().to_vec());
            Some(Range { first, last, file: file_name::table(file.number), cause: lost.get(&file.number)?.clone() })
        };
        let mut found: Vec<Range> = version.files().filter_map(|(_, file)| range(file)).collect();
        found.sort_by(|a, b| a.first.cmp(&b.first));
        let mut ranges: Vec<Range> = Vec::with_capacity(found.len());
        for range in found {
            match ranges.last_mut() {
                Some(before) if range.first <= before.last => {
                    before.last = range.last.max(std::mem::take(&mut before.last))
                }
                _ => ranges.push(range),
            }
        }
        UnreadableRanges(ranges)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first range with a key from `from` on, if a walk forward comes to it before it stands on `to`, or ends before the key
    /// `end`.
    pub(crate) fn on_way_forward(&self, from: &[u8], to: Option<&[u8]>, end: Option<&[u8]>) -> Option<usize> {
        let index = self.0.partition_point(|range| range.last.as_slice() < from);
        let first = self.0.get(index)?.first.as_slice();
        let is_before = match to {
            Some(to) => first <= to,
            None => end.is_none_or(|end| first < end),
        };
        is_before.then_some(index)
    }

    /// The last range with a key up to `from`, without `from` itself where that is not `is_included`, if a walk backward comes to it
    /// before it stands on `to`, or ends at the key `end`. Without `from` it begins at the last key.
    pub(crate) fn on_way_backward(
        &self,
        from: Option<&[u8]>,
        is_included: bool,
        to: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Option<usize> {
        let is_begun = |range: &Range| match from {
            None => true,
            Some(from) => range.first.as_slice() < from || (is_included && range.first == from),
        };
        let index = self.0.partition_point(is_begun).checked_sub(1)?;
        let last = self.0.get(index)?.last.as_slice();
        to.or(end).is_none_or(|least| last >= least).then_some(index)
    }

    /// First and last key of a range.
    pub(crate) fn keys(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.0.get(index).map(|range| (range.first.as_slice(), range.last.as_slice()))
    }

    /// The error of reading a key in a range.
    pub(crate) fn error(&self, index: usize) -> Option<Error> {
        self.0.get(index).map(|Range { first, last, file, cause }| Error::Unreadable {
            file: file.clone(),
            first: first.clone(),
            last: last.clone(),
            error: Box::new(cause.clone()),
        })
    }

    /// All errors.
    pub(crate) fn errors(&self) -> impl Iterator<Item = Error> {
        (0..self.0.len()).filter_map(|index| self.error(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(ranges: &[(&str, &str)]) -> UnreadableRanges {
        let range = |(first, last): &(&str, &str)| Range {
            first: first.as_bytes().to_vec(),
            last: last.as_bytes().to_vec(),
            file: "t".to_owned(),
            cause: StoreError::NotFound { store: "s".to_owned(), name: "t".to_owned() },
        };
        UnreadableRanges(ranges.iter().map(range).collect())
    }

    #[test]
    fn walks_stop_at_the_first_range_on_their_way() {
        let ranges = ranges(&[("c", "e"), ("k", "m")]);
        let forward = |from: &str, to: Option<&str>, end: Option<&str>| {
            ranges.on_way_forward(from.as_bytes(), to.map(str::as_bytes), end.map(str::as_bytes))
        };
        assert_eq!(forward("a", Some("b"), None), None);
        assert_eq!(forward("a", Some("c"), None), Some(0));
        assert_eq!(forward("d", Some("z"), None), Some(0));
        assert_eq!(forward("ea", Some("j"), None), None);
        assert_eq!(forward("ea", None, None), Some(1));
        assert_eq!(forward("ea", None, Some("k")), None);
        assert_eq!(forward("ea", None, Some("ka")), Some(1));
        assert_eq!(forward("n", None, None), None);
        let backward = |from: Option<&str>, included: bool, to: Option<&str>, end: Option<&str>| {
            ranges.on_way_backward(from.map(str::as_bytes), included, to.map(str::as_bytes), end.map(str::as_bytes))
        };
        assert_eq!(backward(None, true, Some("n"), None), None);
        assert_eq!(backward(None, true, Some("m"), None), Some(1));
        assert_eq!(backward(Some("k"), true, Some("j"), None), Some(1));
        assert_eq!(backward(Some("k"), false, Some("j"), None), None);
        assert_eq!(backward(Some("k"), false, None, None), Some(0));
        assert_eq!(backward(Some("b"), true, None, None), None);
        assert_eq!(backward(Some("j"), true, None, Some("f")), None);
        assert_eq!(backward(Some("j"), true, None, Some("d")), Some(0));
    }
}
