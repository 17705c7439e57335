//! How iterators read ahead.

/// How much a walk of a user reads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrowingReadahead {
    /// Blocks that are read one by one before a walk is taken to be long.
    pub(crate) blocks_before: u32,
    /// What such a walk reads at once first; it doubles each time.
    pub(crate) first_bytes: usize,
    /// What it comes to.
    pub(crate) max_bytes: usize,
}
