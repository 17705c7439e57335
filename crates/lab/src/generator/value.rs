//! What is stored under a key: bytes that any reader can verify without having seen the write.

use crate::error::LabError;
use varve_env::Random;

/// Bytes of the pool values are cut from.
const POOL_BYTES: usize = 1 << 20;

/// Piece of the pool that repeats one random string, as in db_bench.
const PIECE_BYTES: usize = 100;

/// Below this ratio values are alike: a string short enough to repeat in a piece would be a few bytes, which costs a
/// compressor a match each hundred bytes and its decoder a copy byte by byte.
const ALIKE_RATIO: f64 = 0.05;

/// Least bytes of a value's own that alike values have after the version.
const OWN_BYTES: usize = 4;

/// Version number in front of a value.
const VERSION_BYTES: usize = 8;

/// Makes and verifies values.
///
/// A value of `n` bytes is
///
/// | bytes | field |
/// |---|---|
/// | 8 | version, little-endian |
/// | n - 8 | the pool from an offset derived from key and version, wrapping round |
///
/// and values shorter than 8 bytes are the pool from an offset derived from the key alone. The pool
/// is 1 MiB of printable bytes made as db_bench makes them: each piece of 100 bytes repeats a random
/// string of `100 * ratio` bytes, so that a compressor gets to about that ratio.
///
/// With a ratio below 0.05 values are alike instead, for runs whose medium is memory that compresses:
///
/// | bytes | field |
/// |---|---|
/// | 8 | version, little-endian |
/// | ratio * n - 8, at least 4 | the pool, all of it random, from an offset derived from key and version |
/// | the rest | the pool from its start |
///
/// A compressor that sees several of them finds the rest in the one before: one match a value, which LZ4 writes
/// at 3 GB/s and reads at 20 GB/s, and at a ratio of 0.012 a pair of 1 KiB takes 40 bytes, its key included.
///
/// Immutable once made; share it between threads.
#[derive(Debug)]
pub struct ValueGenerator {
    pool: Vec<u8>,
    /// Share of a value that is its own, where the rest is the same in all.
    own_share: Option<f64>,
}

impl ValueGenerator {
    /// A generator whose values compress to about `compression_ratio` of their size; 1 is
    /// incompressible.
    ///
    /// # Errors
    /// A ratio outside `0 < ratio <= 1`.
    pub fn new(seed: u64, compression_ratio: f64) -> Result<ValueGenerator, LabError> {
        if !(compression_ratio > 0.0 && compression_ratio <= 1.0) {
            return Err(LabError::invalid(
                "compression ratio",
                format!("{compression_ratio} is not in 0 < ratio <= 1"),
            ));
        }
        let mut random = Random::named(seed, "value pool");
        let own_share = (compression_ratio < ALIKE_RATIO).then_some(compression_ratio);
        let raw_bytes = match own_share {
            Some(_) => PIECE_BYTES,
            None => (PIECE_BYTES as f64 * compression_ratio) as usize,
        };
        let mut pool = Vec::with_capacity(POOL_BYTES + PIECE_BYTES);
        let mut piece = vec![0; raw_bytes];
        while pool.len() < POOL_BYTES {
            if compression_ratio == 1.0 {
                random.fill_bytes(&mut piece);
            } else {
                piece.iter_mut().for_each(|byte| *byte = b' ' + random.below(95) as u8);
            }
            pool.extend(piece.iter().cycle().take(PIECE_BYTES));
        }
        pool.truncate(POOL_BYTES);
        Ok(ValueGenerator { pool, own_share })
    }

    /// How many of the `length` bytes behind the version (of all, in a value without one) are the pool from the
    /// key's offset; the rest is the pool from its start.
    fn own_bytes(&self, length: usize) -> usize {
        let own = |share: f64| ((length + VERSION_BYTES) as f64 * share) as usize;
        self.own_share.map_or(length, |share| own(share).saturating_sub(VERSION_BYTES).max(OWN_BYTES).min(length))
    }

    /// The pieces of the pool that make `length` bytes of a value whose own part begins at `offset`.
    fn body(&self, offset: usize, length: usize) -> impl Iterator<Item = &[u8]> {
        let (mut offset, mut rest) = (offset, length);
        let mut until_alike = self.own_bytes(length);
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            if until_alike == 0 {
                (offset, until_alike) = (0, rest);
            }
            let piece = &self.pool[offset..][..until_alike.min(POOL_BYTES - offset)];
            rest -= piece.len();
            until_alike -= piece.len();
            offset = 0;
            Some(piece)
        })
    }

    /// Replaces `value` by the value of `length` bytes of this key and version. Allocates only while
    /// `value` grows; costs a hash of the key and one copy.
    pub fn write(&self, key: &[u8], version: u64, length: usize, value: &mut Vec<u8>) {
        value.clear();
        let offset = if length < VERSION_BYTES {
            pool_offset(key, 0)
        } else {
            value.extend_from_slice(&version.to_le_bytes());
            pool_offset(key, version)
        };
        self.body(offset, length - value.len()).for_each(|piece| value.extend_from_slice(piece));
    }

    /// Whether `value` is one that `write` made for `key`, whatever its version and length.
    pub fn verify(&self, key: &[u8], value: &[u8]) -> bool {
        let (offset, mut rest) = match value.split_first_chunk::<VERSION_BYTES>() {
            Some((version, rest)) => (pool_offset(key, u64::from_le_bytes(*version)), rest),
            None => (pool_offset(key, 0), value),
        };
        self.body(offset, rest.len()).all(|piece| {
            let (head, tail) = rest.split_at(piece.len());
            rest = tail;
            head == piece
        })
    }
}

/// Where in the pool the bytes of a key and version begin: FNV-1a over words, mixed.
fn pool_offset(key: &[u8], version: u64) -> usize {
    let mut hash = version ^ 0xcbf2_9ce4_8422_2325;
    let mut step = |word: u64| {
        hash = (hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        hash ^= hash >> 29;
    };
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| step(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    step(u64::from_le_bytes(last));
    step(key.len() as u64);
    (hash >> 40) as usize % POOL_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_verify_and_any_change_is_seen() {
        for ratio in [1.0, 0.5, 0.02] {
            let generator = ValueGenerator::new(1, ratio).unwrap();
            let mut value = Vec::new();
            for length in [0, 1, 7, 8, 9, 20, 100, 1024, POOL_BYTES + 5000] {
                for version in [0, 1, u64::MAX] {
                    generator.write(b"key", version, length, &mut value);
                    assert_eq!(value.len(), length);
                    assert!(generator.verify(b"key", &value), "ratio {ratio}, length {length}");
                    if length >= 20 {
                        assert!(!generator.verify(b"other", &value));
                        for at in [0, 3, 8, 19, length / 2, length - 1] {
                            value[at] ^= 1;
                            assert!(!generator.verify(b"key", &value), "ratio {ratio}, length {length}, byte {at}");
                            value[at] ^= 1;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn alike_values_differ_in_the_share_the_ratio_says() {
        for (ratio, length, own) in [(0.02, 1000, 20), (0.012, 1000, 12), (0.001, 1000, 12), (0.04, 100, 12)] {
            let generator = ValueGenerator::new(1, ratio).unwrap();
            let (mut a, mut b) = (Vec::new(), Vec::new());
            generator.write(b"a", 0, length, &mut a);
            generator.write(b"b", 0, length, &mut b);
            assert!(a[own..] == b[own..] && a[8..own] != b[8..own], "ratio {ratio}");
            assert_ne!(a[own - 1], b[own - 1], "ratio {ratio}");
        }
    }

    #[test]
    fn deterministic_and_different_by_version() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        ValueGenerator::new(5, 0.5).unwrap().write(b"k", 3, 500, &mut a);
        ValueGenerator::new(5, 0.5).unwrap().write(b"k", 3, 500, &mut b);
        assert_eq!(a, b);
        ValueGenerator::new(5, 0.5).unwrap().write(b"k", 4, 500, &mut b);
        assert_ne!(a, b);
    }

    #[test]
    fn pieces_repeat_as_the_ratio_says() {
        let half = ValueGenerator::new(1, 0.5).unwrap();
        assert_eq!(half.pool[..50], half.pool[50..100]);
        assert_ne!(half.pool[..50], half.pool[100..150]);
        let none = ValueGenerator::new(1, 1.0).unwrap();
        let mut seen = [false; 256];
        none.pool.iter().for_each(|&byte| seen[byte as usize] = true);
        assert!(seen.iter().all(|&seen| seen), "incompressible pools use every byte");
        assert!(ValueGenerator::new(1, 0.0).is_err());
        assert!(ValueGenerator::new(1, 1.5).is_err());
    }
}
