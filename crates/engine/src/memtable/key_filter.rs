//! Tells most user keys that are not in a memtable at the cost of one cache line.

use crate::sync::AtomicU64;
use std::sync::atomic::Ordering;

/// Bytes of a memtable's capacity per word.
const CAPACITY_BYTES_PER_WORD: usize = 512;

/// Fewest and most words.
const WORDS: (usize, usize) = (16, 1 << 24);

/// A Bloom filter whose bits for one key are all in one word (Putze, Sanders and Singler, "Cache-,
/// Hash- and Space-Efficient Bloom Filters", 2007). Keys are added from any thread at once. With
/// entries of 100 bytes it has about 13 bits per key, with longer ones more.
pub(crate) struct KeyFilter {
    words: Box<[AtomicU64]>,
}

/// A number that spreads the bits of a key over all of its own.
#[inline]
fn hash(key: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (key.len() as u64).wrapping_mul(MULTIPLIER);
    let mut step = |word: u64| {
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
        hash ^= hash >> 29;
    };
    let mut chunks = key.chunks_exact(8);
    for chunk in &mut chunks {
        step(chunk.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)));
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        step(u64::from_le_bytes(last));
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

impl KeyFilter {
    /// A filter for a memtable of this capacity.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        let words = (capacity_bytes / CAPACITY_BYTES_PER_WORD).clamp(WORDS.0, WORDS.1).next_power_of_two();
        KeyFilter { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn place(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = hash(key);
        let word = &self.words[(hash >> 32) as usize & (self.words.len() - 1)];
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63) | 1 << (hash >> 18 & 63);
        (word, bits)
    }

    /// Adds a key. Whoever learns of the add by other means finds the key.
    #[inline]
    pub(crate) fn add(&self, key: &[u8]) {
        let (word, bits) = self.place(key);
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// False only if the key was never added.
    #[inline]
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        let (word, bits) = self.place(key);
        word.load(Ordering::Relaxed) & bits == bits
    }

    /// Memory, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_were_added_are_found_and_most_others_are_not() {
        let filter = KeyFilter::new(1 << 20);
        assert_eq!(filter.size_bytes(), 16 << 10);
        let count = if cfg!(miri) { 100 } else { 8_000_u32 };
        let key = |number: u32| format!("user{number:010}").into_bytes();
        for number in 0..count {
            filter.add(&key(number));
        }
        assert!((0..count).all(|number| filter.may_contain(&key(number))));
        let wrong = (count..2 * count).filter(|&number| filter.may_contain(&key(number))).count();
        assert!(wrong * 100 <= count as usize * 2, "{wrong} of {count}");
    }

    #[test]
    fn lengths_and_every_byte_count() {
        let filter = KeyFilter::new(1 << 20);
        filter.add(b"");
        filter.add(&[0; 8]);
        assert!(filter.may_contain(b"") && filter.may_contain(&[0; 8]));
        assert!(!filter.may_contain(&[0; 7]) && !filter.may_contain(&[0; 9]) && !filter.may_contain(&[0; 16]));
    }
}
