//! What is stored under a key: bytes that any reader can verify without having seen the write.

use crate::error::LabError;
use varve_env::Random;

/// Bytes of the pool values are cut from.
const POOL_BYTES: usize = 1 << 20;

/// Piece of the pool that repeats one random string, as in db_bench.
const PIECE_BYTES: usize = 100;

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
/// Immutable once made; share it between threads.
#[derive(Debug)]
pub struct ValueGenerator {
    pool: Vec<u8>,
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
        let raw_bytes = ((PIECE_BYTES as f64 * compression_ratio) as usize).max(1);
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
        Ok(ValueGenerator { pool })
    }

    /// Replaces `value` by the value of `length` bytes of this key and version. Allocates only while
    /// `value` grows; costs a hash of the key and one copy.
    pub fn write(&self, key: &[u8], version: u64, length: usize, value: &mut Vec<u8>) {
        value.clear();
        let mut offset = if length < VERSION_BYTES {
            pool_offset(key, 0)
        } else {
            value.extend_from_slice(&version.to_le_bytes());
            pool_offset(key, version)
        };
        while value.len() < length {
            let piece = (POOL_BYTES - offset).min(length - value.len());
            value.extend_from_slice(&self.pool[offset..offset + piece]);
            offset = 0;
        }
    }

    /// Whether `value` is one that `write` made for `key`, whatever its version and length.
    pub fn verify(&self, key: &[u8], value: &[u8]) -> bool {
        let (mut offset, mut rest) = match value.split_first_chunk::<VERSION_BYTES>() {
            Some((version, rest)) => (pool_offset(key, u64::from_le_bytes(*version)), rest),
            None => (pool_offset(key, 0), value),
        };
        while !rest.is_empty() {
            let piece = (POOL_BYTES - offset).min(rest.len());
            if rest[..piece] != self.pool[offset..offset + piece] {
                return false;
            }
            rest = &rest[piece..];
            offset = 0;
        }
        true
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
        let generator = ValueGenerator::new(1, 0.5).unwrap();
        let mut value = Vec::new();
        for length in [0, 1, 7, 8, 9, 100, 1024, POOL_BYTES + 5000] {
            for version in [0, 1, u64::MAX] {
                generator.write(b"key", version, length, &mut value);
                assert_eq!(value.len(), length);
                assert!(generator.verify(b"key", &value), "length {length}");
                if length >= 100 {
                    assert!(!generator.verify(b"other", &value));
                    for at in [0, 3, 8, 50, length - 1] {
                        value[at] ^= 1;
                        assert!(!generator.verify(b"key", &value), "length {length}, byte {at}");
                        value[at] ^= 1;
                    }
                }
            }
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
