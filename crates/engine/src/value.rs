//! Values as reads return them.

use crate::block::PinnedBytes;
use std::ops::Deref;

/// A value that was read. Derefs to its bytes. A value from a table pins the cached block it is
/// in, so keep it briefly, or copy it with [`Value::into_vec`].
pub struct Value(Holder);

enum Holder {
    Owned(Vec<u8>),
    Pinned(PinnedBytes),
}

impl Value {
    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Value(Holder::Owned(bytes))
    }

    pub(crate) fn pinned(bytes: PinnedBytes) -> Self {
        Value(Holder::Pinned(bytes))
    }

    /// The bytes as a vector; copies only when they are pinned.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Holder::Owned(bytes) => bytes,
            Holder::Pinned(bytes) => bytes.to_vec(),
        }
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Holder::Owned(bytes) => bytes,
            Holder::Pinned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}
