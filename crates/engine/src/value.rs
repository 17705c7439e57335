//! Keys and values as reads return them.

use crate::block::PinnedBytes;
use crate::key::EntryKind;
use crate::memtable;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// A key that was read: its bytes, owned. Derefs to `[u8]` and compares with whatever is bytes.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl Key {
    /// The bytes as a vector, which costs nothing.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for Key {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Key(bytes)
    }
}

/// A value that was read. Derefs to `[u8]` and compares with whatever is bytes.
///
/// A value from a table pins the cached block it is in, so keep it briefly, or copy it with
/// [`Value::into_vec`]. A clone owns a copy of the bytes.
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

    /// What an entry of a memtable says; none of a delete.
    pub(crate) fn in_memory(found: &memtable::Found<'_>) -> Option<Self> {
        match found.kind {
            EntryKind::Put => Some(Value::owned(found.value.to_vec())),
            EntryKind::Delete => None,
        }
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

impl Clone for Value {
    fn clone(&self) -> Self {
        Value::owned(self.to_vec())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::owned(bytes)
    }
}

/// What both have in common with a slice of bytes. They hash and compare as one, so that maps of them can be asked by slices.
macro_rules! bytes {
    ($($name:ident),*) => { $(
        impl AsRef<[u8]> for $name {
            #[inline]
            fn as_ref(&self) -> &[u8] {
                self
            }
        }

        impl Borrow<[u8]> for $name {
            fn borrow(&self) -> &[u8] {
                self
            }
        }

        impl From<$name> for Vec<u8> {
            fn from(bytes: $name) -> Vec<u8> {
                bytes.into_vec()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                **self == **other
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &$name) -> Ordering {
                (**self).cmp(&**other)
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                (**self).hash(state);
            }
        }

        impl PartialEq<[u8]> for $name {
            fn eq(&self, other: &[u8]) -> bool {
                **self == *other
            }
        }

        impl<const N: usize> PartialEq<[u8; N]> for $name {
            fn eq(&self, other: &[u8; N]) -> bool {
                **self == *other
            }
        }

        impl<T: AsRef<[u8]> + ?Sized> PartialEq<&T> for $name {
            fn eq(&self, other: &&T) -> bool {
                **self == *(**other).as_ref()
            }
        }

        impl PartialEq<Vec<u8>> for $name {
            fn eq(&self, other: &Vec<u8>) -> bool {
                **self == **other
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                **self == *other.as_bytes()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "\"{}\"", self.escape_ascii())
            }
        }
    )* };
}

bytes!(Key, Value);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashMap};

    #[test]
    fn they_compare_and_hash_as_their_bytes() {
        let value = Value::from(b"blue".to_vec());
        assert!(value == *b"blue" && value == b"blue" && value == "blue" && value == b"blue".to_vec());
        assert!(value == b"blue"[..] && value == *"blue" && value == value.clone() && value != b"red");
        assert!([Key::from(vec![1]), Key::from(vec![1, 0])].is_sorted());
        let ordered = BTreeMap::from([(Key::from(b"a".to_vec()), 1)]);
        let hashed = HashMap::from([(Key::from(b"a".to_vec()), 1)]);
        assert_eq!((ordered.get(&b"a"[..]), hashed.get(&b"a"[..])), (Some(&1), Some(&1)));
        assert_eq!(format!("{:?}", Key::from(vec![b'a', 0])), "\"a\\x00\"");
        assert_eq!(Vec::from(Key::from(vec![7])), vec![7]);
    }
}
