//! The iterator every part that holds entries offers to the parts above it.

use crate::error::Error;
use std::sync::Arc;
use varve_store::RecordCache;

/// Where a block of a table is.
#[derive(Clone, Copy)]
pub(crate) struct BlockPlace<'a> {
    /// Name of the table in the store.
    pub(crate) table: &'a Arc<str>,
    pub(crate) offset_bytes: u64,
    /// Records of the table that the store keeps, where it does.
    pub(crate) records: Option<&'a dyn RecordCache>,
}

/// Walks internal keys in order, both ways. Starts invalid; `seek*` positions it.
///
/// After an error the iterator is invalid and `status` returns the error until the next seek.
/// `key`, `value` and `block` may be called only while valid, and hold until the next move.
pub(crate) trait InternalIterator: Send {
    /// Stands on an entry.
    fn valid(&self) -> bool;
    /// To the first entry.
    fn seek_to_first(&mut self);
    /// To the last entry.
    fn seek_to_last(&mut self);
    /// To the first entry at or after `internal_key`.
    fn seek(&mut self, internal_key: &[u8]);
    /// To the last entry at or before `internal_key`.
    fn seek_for_previous(&mut self, internal_key: &[u8]);
    /// Forward; requires `valid`.
    fn next(&mut self);
    /// Backward; requires `valid`.
    fn previous(&mut self);
    /// Internal key of the entry.
    fn key(&self) -> &[u8];
    /// Value of the entry.
    fn value(&self) -> &[u8];
    /// The block the entry is in; none where entries are in no blocks, as in memory.
    fn block(&self) -> Option<BlockPlace<'_>>;
    /// The error that made it invalid, if any.
    fn status(&self) -> Result<(), Error>;
}
