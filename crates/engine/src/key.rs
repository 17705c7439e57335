//! Internal keys: how versions of a user key are ordered.
//!
//! An internal key is the user key followed by an 8-byte trailer:
//!
//! | bytes | field |
//! |---|---|
//! | n | user key, at most 64 KiB |
//! | 8 | `sequence << 8 | kind`, little-endian |
//!
//! Order: user keys ascending as byte strings, then trailers descending, so the newest version of
//! a key comes first. Bytes of the trailer are never compared as bytes.

use std::cmp::Ordering;

/// Number of a write; later writes have larger numbers. At most [`SEQUENCE_MAX`].
pub type Sequence = u64;

/// Largest sequence number a trailer can hold (56 bits).
pub const SEQUENCE_MAX: Sequence = (1 << 56) - 1;

/// Bytes of a trailer.
pub(crate) const TRAILER_BYTES: usize = 8;

/// Longest user key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize;

/// What an entry says about its key. Numbers are part of the formats; unknown ones are corruption in a table, and of a newer
/// version in a log. Those kept for what comes are in [`kind_in_words`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// The key is gone.
    Delete = 0,
    /// The key has this value.
    Put = 1,
}

impl EntryKind {
    /// Largest number of a kind; a trailer with it sorts before every entry of its sequence.
    pub(crate) const LARGEST: u8 = 0xff;

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(EntryKind::Delete),
            1 => Some(EntryKind::Put),
            _ => None,
        }
    }
}

/// A number of a kind for messages, with what it is kept for (`docs/design/0005-range-deletes-and-key-spaces.md`).
pub(crate) fn kind_in_words(number: u8) -> String {
    let meaning = match number {
        0 => "delete",
        1 => "put",
        2 => "range delete",
        16 => "delete in a key space",
        17 => "put in a key space",
        18 => "range delete in a key space",
        _ => return format!("kind {number}"),
    };
    format!("kind {number} ({meaning})")
}

#[inline]
pub(crate) fn pack_trailer(sequence: Sequence, kind: u8) -> u64 {
    debug_assert!(sequence <= SEQUENCE_MAX);
    (sequence << 8) | u64::from(kind)
}

/// The user key of an internal key. The caller has checked the length once, where bytes came in.
#[inline]
pub(crate) fn user_key(internal_key: &[u8]) -> &[u8] {
    debug_assert!(internal_key.len() >= TRAILER_BYTES);
    &internal_key[..internal_key.len() - TRAILER_BYTES]
}

/// The trailer of an internal key.
#[inline]
pub(crate) fn trailer(internal_key: &[u8]) -> u64 {
    match internal_key.last_chunk::<TRAILER_BYTES>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Sequence number of an internal key.
#[inline]
pub(crate) fn sequence(internal_key: &[u8]) -> Sequence {
    trailer(internal_key) >> 8
}

/// Kind number of an internal key; see [`EntryKind::from_number`].
#[inline]
pub(crate) fn kind_number(internal_key: &[u8]) -> u8 {
    trailer(internal_key) as u8
}

/// Orders internal keys (see the module).
#[inline]
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match user_key(a).cmp(user_key(b)) {
        Ordering::Equal => trailer(b).cmp(&trailer(a)),
        other => other,
    }
}

/// Appends the internal key to `out`.
#[inline]
pub(crate) fn append_internal_key(out: &mut Vec<u8>, user_key: &[u8], sequence: Sequence, kind: u8) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&pack_trailer(sequence, kind).to_le_bytes());
}

/// The internal key that finds the newest version of `user_key` visible at `sequence`.
pub(crate) fn lookup_key(user_key: &[u8], sequence: Sequence) -> Vec<u8> {
    let mut out = Vec::with_capacity(user_key.len() + TRAILER_BYTES);
    append_internal_key(&mut out, user_key, sequence, EntryKind::LARGEST);
    out
}

/// First eight bytes of a key as a number that orders like the key; shorter keys as if zeros followed.
#[inline]
pub(crate) fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(head) => u64::from_le_bytes(*head).swap_bytes(),
        None => {
            let mut head = [0; 8];
            head[..key.len()].copy_from_slice(key);
            u64::from_le_bytes(head).swap_bytes()
        }
    }
}

/// Length of the common prefix of two keys.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let word = |bytes: &[u8], at: usize| bytes[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    let limit = a.len().min(b.len());
    let mut at = 0;
    while at + 8 <= limit {
        let difference = word(a, at) ^ word(b, at);
        if difference != 0 {
            return at + difference.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < limit && a[at] == b[at] {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn newest_version_comes_first_and_prefixes_sort_before_extensions() {
        let key = |user: &[u8], sequence| {
            let mut out = Vec::new();
            append_internal_key(&mut out, user, sequence, EntryKind::Put as u8);
            out
        };
        assert_eq!(compare(&key(b"a", 2), &key(b"a", 1)), Ordering::Less);
        assert_eq!(compare(&key(b"a", 1), &key(b"aa", 9)), Ordering::Less);
        assert_eq!(compare(&key(b"a\xff", 1), &key(b"b", 1)), Ordering::Less);
        assert_eq!(compare(&lookup_key(b"a", 5), &key(b"a", 5)), Ordering::Less);
        assert_eq!(compare(&lookup_key(b"a", 5), &key(b"a", 6)), Ordering::Greater);
        assert_eq!(sequence(&key(b"x", 77)), 77);
        assert_eq!(user_key(&key(b"x", 77)), b"x");
    }

    #[test]
    fn prefixes_order_like_keys_and_common_prefixes_are_longest() {
        let mut random = Random::seeded(3);
        for round in 0..5000 {
            let mut key = || {
                let mut key = vec![0; random.below(20) as usize];
                key.iter_mut().for_each(|byte| *byte = random.below(3) as u8);
                key
            };
            let (a, b) = (key(), key());
            if a < b {
                assert!(key_prefix(&a) <= key_prefix(&b), "round {round}: {a:?} {b:?}");
            }
            let expected = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            assert_eq!(common_prefix(&a, &b), expected, "round {round}: {a:?} {b:?}");
        }
    }
}
