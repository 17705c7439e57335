//! Tables for tests of shapes.

use super::{FileMeta, Garbage};
use crate::key;
use crate::manifest::AddedFile;
use std::sync::Arc;

/// A table of 100 entries with keys of `first-last`.
pub(crate) fn table(number: u64, range: &str, size_bytes: u64, deletions: u64) -> Arc<FileMeta> {
    let (first, last) = range.split_once('-').unwrap();
    let internal = |user: &str| {
        let mut out = Vec::new();
        key::append_internal_key(&mut out, user.as_bytes(), number, 1);
        out
    };
    let added = AddedFile {
        level: 1,
        number,
        size_bytes,
        smallest: internal(first),
        largest: internal(last),
        oldest_sequence: number,
        newest_sequence: number,
        entries: 100,
        deletions,
        table_id: number,
        begin: None,
    };
    FileMeta::new(&added, &Arc::new(Garbage::default()))
}
