//! Write batches: what is written together.

use crate::error::Result;
use varve_engine::{BatchEntries, BatchEntry};

/// Puts and deletes that take effect together, in the order they were added; later ones win.
///
/// Not thread-safe by itself; may move between threads. Costs one buffer that holds every key and
/// value plus at most 9 bytes each.
///
/// ```
/// # fn main() -> varve::Result<()> {
/// let mut batch = varve::WriteBatch::new();
/// batch.put("lake/name", "Suigetsu")?;
/// batch.delete("lake/depth")?;
/// assert_eq!(batch.count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch(varve_engine::WriteBatch);

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// An empty batch with room for `bytes` of keys and values and 9 bytes more for each pair.
    pub fn with_capacity(bytes: usize) -> Self {
        WriteBatch(varve_engine::WriteBatch::with_capacity(bytes))
    }

    /// Adds a put.
    ///
    /// # Errors
    /// The key is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) or the value longer than
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX); the batch is as it was.
    #[inline]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.0.put(key.as_ref(), value.as_ref())?)
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// The key is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX); the batch is as it was.
    #[inline]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.0.delete(key.as_ref())?)
    }

    /// Adds every entry of `other`, in its order, after this one's.
    pub fn append(&mut self, other: &WriteBatch) {
        self.0.append(&other.0);
    }

    /// Removes every entry; keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Entries.
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// There are no entries.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the encoded entries.
    pub fn size_bytes(&self) -> usize {
        self.0.size_bytes()
    }

    /// The entries in the order they were added.
    pub fn iter(&self) -> BatchEntries<'_> {
        self.0.iter()
    }

    pub(crate) fn into_engine(self) -> varve_engine::WriteBatch {
        self.0
    }
}

impl<'a> IntoIterator for &'a WriteBatch {
    type Item = BatchEntry<'a>;
    type IntoIter = BatchEntries<'a>;

    fn into_iter(self) -> BatchEntries<'a> {
        self.iter()
    }
}
