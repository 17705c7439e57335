//! The table filter: says "not here" for almost every key that is not in the table.
//!
//! A Bloom filter in which all bits of a key lie in one cache line (Putze, Sanders, Singler, "Cache-,
//! Hash- and Space-Efficient Bloom Filters", 2007), so that a probe costs one memory access. It holds
//! user keys, each once whatever its versions. At 10 bits per key about 0.9 % of absent keys pass.
//!
//! Contents of the filter block:
//!
//! | bytes | field |
//! |---|---|
//! | 64 n | lines; bit `b` of a line is bit `b % 8` of its byte `b / 8` |
//! | 4 | number of lines, n |
//! | 1 | probes per key, 1 to 14 |
//! | 1 | kind, 1 |
//! | 1 | hash, 1: XXH3-64 of the user key with seed 0 |
//! | 1 | zero |
//!
//! A key of hash `h` belongs to line `(h mod 2^32) * n / 2^32`. Its bits are the first probes of the
//! 9-bit groups of `m = (h ^ h >> 32) * 0x9E3779B97F4A7C15 mod 2^64`, highest first, seven of them,
//! then those of `m * 0xC2B2AE3D27D4EB4F mod 2^64`.

use crate::block::AlignedBuffer;
use crate::encoding::{Damage, Decoder, read_u32, read_u64};

pub(crate) const LINE_BYTES: usize = 64;
pub(crate) const TAIL_BYTES: usize = 8;
const KIND: u8 = 1;
const HASH: u8 = 1;
const PROBES_MAX: u32 = 14;
const PROBES_PER_WORD: u32 = 7;
const FIRST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const SECOND_FACTOR: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// Hash of a user key for filters; part of the format.
#[inline]
pub(crate) fn key_hash(user_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(user_key)
}

/// Probes that come closest to the fewest false positives of a blocked filter; fewer than for an
/// ordinary one, since crowded lines suffer most from additional bits.
fn probes_for(bits_per_key: u32) -> u32 {
    match bits_per_key {
        0..=2 => 1,
        3 => 2,
        4..=5 => 3,
        6 => 4,
        7..=8 => 5,
        9..=11 => 6,
        12..=13 => 7,
        14..=16 => 8,
        17..=20 => 9,
        21..=24 => 11,
        _ => 13,
    }
}

#[inline(always)]
fn line_of(hash: u64, lines: u32) -> usize {
    (((hash & 0xffff_ffff) * u64::from(lines)) >> 32) as usize
}

#[inline(always)]
fn first_word(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(FIRST_FACTOR)
}

/// Collects hashes; the filter's size is known when all are there.
pub(crate) struct FilterBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    pub(crate) fn new(bits_per_key: u32) -> Self {
        FilterBuilder { bits_per_key: bits_per_key.min(100), hashes: Vec::new() }
    }

    #[inline]
    pub(crate) fn add(&mut self, key_hash: u64) {
        self.hashes.push(key_hash);
    }

    /// Bytes the filter will have.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.lines() as usize * LINE_BYTES + TAIL_BYTES
    }

    /// The same with one more key.
    pub(crate) fn bytes_with_key(&self) -> usize {
        self.lines_of(self.hashes.len() + 1) as usize * LINE_BYTES + TAIL_BYTES
    }

    fn lines(&self) -> u32 {
        self.lines_of(self.hashes.len())
    }

    fn lines_of(&self, keys: usize) -> u32 {
        let bits = (keys as u64).saturating_mul(u64::from(self.bits_per_key));
        let lines = bits.div_ceil(8 * LINE_BYTES as u64).max(1);
        u32::try_from(lines).unwrap_or(u32::MAX)
    }

    /// Contents of the filter block.
    pub(crate) fn finish(self) -> Vec<u8> {
        let lines = self.lines();
        let probes = probes_for(self.bits_per_key);
        let mut out = vec![0; self.bytes()];
        for hash in self.hashes {
            let start = line_of(hash, lines) * LINE_BYTES;
            let line = &mut out[start..start + LINE_BYTES];
            let mut word = first_word(hash);
            for probe in 0..probes {
                if probe == PROBES_PER_WORD {
                    word = first_word(hash).wrapping_mul(SECOND_FACTOR);
                }
                let bit = (word >> 55) as usize;
                line[bit / 8] |= 1 << (bit % 8);
                word <<= 9;
            }
        }
        let tail = out.len() - TAIL_BYTES;
        out[tail..tail + 4].copy_from_slice(&lines.to_le_bytes());
        out[tail + 4..].copy_from_slice(&[probes as u8, KIND, HASH, 0]);
        out
    }
}

/// A filter in memory, as it is in the file.
pub(crate) struct Filter {
    bytes: AlignedBuffer,
    lines: u32,
    probes: u32,
}

impl Filter {
    /// Takes the contents of a filter block. `bytes` may have more after them.
    pub(crate) fn decode(bytes: AlignedBuffer, contents_length: usize) -> Result<Self, Damage> {
        let Some(tail) = contents_length.checked_sub(TAIL_BYTES).filter(|_| contents_length <= bytes.len()) else {
            return Err(Decoder::damage(0, "a filter of at least 8 bytes", contents_length.to_string()));
        };
        let lines = read_u32(&bytes, tail);
        let (probes, kind, hash, zero) = (bytes[tail + 4], bytes[tail + 5], bytes[tail + 6], bytes[tail + 7]);
        if kind != KIND || hash != HASH || zero != 0 {
            let mut damage = Decoder::damage(
                tail + 5,
                format!("filter kind {KIND}, hash {HASH}"),
                format!("kind {kind}, hash {hash}, {zero}"),
            );
            damage.newer = true;
            return Err(damage);
        }
        let sized = lines > 0 && (lines as usize).checked_mul(LINE_BYTES) == Some(tail);
        if !sized || probes == 0 || u32::from(probes) > PROBES_MAX {
            return Err(Decoder::damage(
                tail,
                format!("{} lines, 1 to {PROBES_MAX} probes", tail / LINE_BYTES),
                format!("{lines} lines, {probes} probes"),
            ));
        }
        Ok(Filter { bytes, lines, probes: u32::from(probes) })
    }

    /// False when no key with this hash is in the table.
    #[inline]
    pub(crate) fn may_contain(&self, key_hash: u64) -> bool {
        let start = line_of(key_hash, self.lines) * LINE_BYTES;
        let line = &self.bytes[start..start + LINE_BYTES];
        let mut word = first_word(key_hash);
        if self.probes == 6 {
            // The default, without a loop: the six loads go to one line and do not wait for each other.
            let mut all = 1;
            for probe in 0..6 {
                let bit = (word >> (55 - 9 * probe)) as usize & 511;
                all &= read_u64(line, bit / 64 * 8) >> (bit % 64);
            }
            return all & 1 == 1;
        }
        for probe in 0..self.probes {
            if probe == PROBES_PER_WORD {
                word = first_word(key_hash).wrapping_mul(SECOND_FACTOR);
            }
            let bit = (word >> 55) as usize;
            if line[bit / 8] >> (bit % 8) & 1 == 0 {
                return false;
            }
            word <<= 9;
        }
        true
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn buffer(contents: &[u8]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(contents.len(), LINE_BYTES).expect("small");
        buffer.copy_from_slice(contents);
        buffer
    }

    fn filter(bits_per_key: u32, hashes: impl Iterator<Item = u64>) -> Filter {
        let mut builder = FilterBuilder::new(bits_per_key);
        hashes.for_each(|hash| builder.add(hash));
        let contents = builder.finish();
        Filter::decode(buffer(&contents), contents.len()).expect("sound")
    }

    #[test]
    fn three_keys_are_these_bits() {
        let mut builder = FilterBuilder::new(10);
        for key in [&b"a"[..], b"bb", b"ccc"] {
            builder.add(key_hash(key));
        }
        let contents = builder.finish();
        assert_eq!(contents.len(), 72);
        assert_eq!(contents[64..], [1, 0, 0, 0, 6, 1, 1, 0]);
        let bits: Vec<usize> = (0..512).filter(|bit| contents[bit / 8] >> (bit % 8) & 1 == 1).collect();
        assert_eq!(bits, GOLDEN_BITS);
    }

    const GOLDEN_BITS: [usize; 18] =
        [40, 63, 99, 138, 250, 260, 296, 301, 306, 314, 333, 346, 362, 370, 389, 416, 428, 480];

    #[test]
    fn hash_is_xxh3() {
        // Values of the reference implementation (xxHash 0.8).
        assert_eq!(key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(key_hash(b"abc"), 0x78af_5f94_892f_3950);
    }

    #[test]
    fn holds_every_key_and_few_others() {
        let name = |number: u64| format!("user{number:012}");
        for (bits_per_key, limit_per_mille) in [(1, 700), (5, 120), (8, 35), (10, 10), (12, 5), (15, 3), (20, 1)] {
            let keys = 100_000;
            let filter = filter(bits_per_key, (0..keys).map(|number| key_hash(name(number).as_bytes())));
            for number in 0..keys {
                assert!(filter.may_contain(key_hash(name(number).as_bytes())), "{bits_per_key} bits, key {number}");
            }
            let probes = 200_000;
            let passed =
                (keys..keys + probes).filter(|number| filter.may_contain(key_hash(name(*number).as_bytes()))).count();
            let per_mille = passed as f64 * 1000.0 / probes as f64;
            assert!(per_mille <= f64::from(limit_per_mille), "{bits_per_key} bits: {per_mille} per mille pass");
        }
    }

    #[test]
    fn any_bytes_are_refused_or_answer() {
        for seed in 0..2000 {
            let mut random = Random::seeded(seed);
            let mut bytes = vec![0; random.below(300) as usize];
            random.fill_bytes(&mut bytes);
            if bytes.len() >= 8 && random.chance(3, 4) {
                let tail = bytes.len() - 8;
                bytes[tail..tail + 4].copy_from_slice(&((tail / 64) as u32).to_le_bytes());
                bytes[tail + 4..].copy_from_slice(&[random.below(20) as u8, 1, 1, 0]);
            }
            let length = bytes.len();
            if let Ok(filter) = Filter::decode(buffer(&bytes), length) {
                filter.may_contain(random.next_u64());
            }
        }
        assert!(Filter::decode(buffer(&[0; 8]), 9).is_err());
    }
}
