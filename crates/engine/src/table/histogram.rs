//! How the bytes of a table are spread over its keys: an equi-depth histogram (SMRDB, section 4.3), whose
//! buckets hold about the same number of bytes each, to within a block.
//!
//! Bytes of the property, the buckets in key order, each
//!
//! | bytes | field |
//! |---|---|
//! | varint | bytes of data blocks in the bucket |
//! | varint | bytes its last key shares with that of the bucket before |
//! | string | the rest of its last user key, which is cut to 256 bytes |

use crate::encoding::{Damage, Decoder, append_string, append_varint};
use crate::key::common_prefix;

/// Bytes of a key that a bucket keeps.
const KEY_BYTES_KEPT: usize = 256;

/// Bytes a bucket takes beside its key, at most.
const BUCKET_OVERHEAD_BYTES: usize = 14;

/// Keys from behind the bucket before, and their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// The last user key, or its first bytes.
    pub(crate) last: Box<[u8]>,
    /// Bytes of data blocks.
    pub(crate) bytes: u64,
}

/// Buckets in key order; none when nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    buckets: Box<[Bucket]>,
}

impl Histogram {
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Without the buckets that end before a user key.
    pub(crate) fn from(&self, begin: &[u8]) -> Histogram {
        let begin = &begin[..begin.len().min(KEY_BYTES_KEPT)];
        let passed = self.buckets.partition_point(|bucket| &*bucket.last < begin);
        Histogram { buckets: self.buckets[passed..].into() }
    }

    #[cfg(test)]
    pub(crate) fn of(buckets: Vec<Bucket>) -> Self {
        Histogram { buckets: buckets.into_boxed_slice() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut before: &[u8] = &[];
        for bucket in &self.buckets {
            let shared = common_prefix(before, &bucket.last);
            append_varint(&mut out, bucket.bytes);
            append_varint(&mut out, shared as u64);
            append_string(&mut out, &bucket.last[shared..]);
            before = &bucket.last;
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut decoder = Decoder::new(bytes);
        let mut buckets: Vec<Bucket> = Vec::new();
        while !decoder.is_empty() {
            let start = decoder.position();
            let before: &[u8] = buckets.last().map_or(&[], |bucket| &bucket.last);
            let bytes = decoder.varint("bytes of a bucket")?;
            let shared = decoder.varint_at_most(before.len() as u64, "shared bytes of a key")?;
            let rest = decoder.string(KEY_BYTES_KEPT, "the rest of a key")?;
            let last = [&before[..shared as usize], rest].concat();
            // Two keys that part behind what is kept look the same.
            if last.as_slice() < before || last.len() > KEY_BYTES_KEPT {
                let expected = format!("the keys of buckets in order, of {KEY_BYTES_KEPT} bytes at most");
                return Err(Decoder::damage(start, expected, last.escape_ascii().to_string()));
            }
            buckets.push(Bucket { last: last.into_boxed_slice(), bytes });
        }
        Ok(Histogram { buckets: buckets.into_boxed_slice() })
    }
}

/// Gathers a histogram block by block without knowing how many there will be: buckets are merged two by two when
/// they would take more than their room. So at least half of the room is used in the end.
pub(super) struct HistogramBuilder {
    bytes_max: usize,
    buckets: Vec<Bucket>,
    /// Bytes the buckets take.
    taken_bytes: usize,
    /// A bucket that holds so much is full.
    full_bytes: u64,
}

impl HistogramBuilder {
    pub(super) fn new(bytes_max: usize) -> Self {
        HistogramBuilder { bytes_max, buckets: Vec::new(), taken_bytes: 0, full_bytes: 1 }
    }

    /// The next data block ends with the user key `last` and takes `bytes`.
    pub(super) fn add_block(&mut self, last: &[u8], bytes: u64) {
        let last = &last[..last.len().min(KEY_BYTES_KEPT)];
        match self.buckets.last_mut() {
            Some(open) if open.bytes < self.full_bytes => {
                self.taken_bytes -= open.last.len();
                open.last = last.into();
                open.bytes += bytes;
            }
            _ => {
                self.buckets.push(Bucket { last: last.into(), bytes });
                self.taken_bytes += BUCKET_OVERHEAD_BYTES;
            }
        }
        self.taken_bytes += last.len();
        while self.taken_bytes > self.bytes_max && self.buckets.len() > 1 {
            self.merge();
        }
    }

    fn merge(&mut self) {
        let widest = self.buckets.iter().map(|bucket| bucket.bytes).max().unwrap_or(0);
        self.full_bytes = (2 * self.full_bytes).max(widest);
        let mut merged: Vec<Bucket> = Vec::with_capacity(self.buckets.len() / 2 + 1);
        for bucket in self.buckets.drain(..) {
            match merged.last_mut() {
                Some(open) if open.bytes + bucket.bytes <= self.full_bytes => {
                    open.last = bucket.last;
                    open.bytes += bucket.bytes;
                }
                _ => merged.push(bucket),
            }
        }
        self.taken_bytes = merged.iter().map(|bucket| bucket.last.len() + BUCKET_OVERHEAD_BYTES).sum();
        self.buckets = merged;
    }

    pub(super) fn finish(self) -> Histogram {
        let fits = self.taken_bytes <= self.bytes_max;
        Histogram { buckets: if fits { self.buckets.into_boxed_slice() } else { Box::default() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn histogram(bytes_max: usize, blocks: impl IntoIterator<Item = (String, u64)>) -> Histogram {
        let mut builder = HistogramBuilder::new(bytes_max);
        blocks.into_iter().for_each(|(last, bytes)| builder.add_block(last.as_bytes(), bytes));
        builder.finish()
    }

    #[test]
    fn few_blocks_are_told_one_by_one() {
        let found = histogram(4096, [("b".to_owned(), 10), ("d".to_owned(), 20)]);
        let buckets: Vec<_> = found.buckets().iter().map(|bucket| (&bucket.last[..], bucket.bytes)).collect();
        assert_eq!(buckets, [(&b"b"[..], 10), (&b"d"[..], 20)]);
        assert_eq!(found.encode(), [10, 0, 1, b'b', 20, 0, 1, b'd']);
    }

    #[test]
    fn many_blocks_share_buckets_of_about_the_same_bytes() {
        for blocks in [100, 1000, 20_480] {
            let found = histogram(4096, (0..blocks).map(|number| (format!("key{number:013}"), 4096)));
            let bytes: Vec<u64> = found.buckets().iter().map(|bucket| bucket.bytes).collect();
            assert_eq!(bytes.iter().sum::<u64>(), blocks * 4096);
            assert_eq!(&*found.buckets().last().unwrap().last, format!("key{:013}", blocks - 1).as_bytes());
            let (least, most) = (bytes[..bytes.len() - 1].iter().min().unwrap(), bytes.iter().max().unwrap());
            assert!(most <= &(least * 2), "{blocks} blocks: {bytes:?}");
            assert!(bytes.len() > 60 && found.encode().len() <= 4096, "{blocks}: {}", bytes.len());
        }
    }

    #[test]
    fn keys_too_long_for_the_room_leave_no_histogram() {
        let found = histogram(100, (0..4).map(|number| (format!("{number}{}", "x".repeat(300)), 1)));
        assert!(found.is_empty());
        let found = histogram(1000, (0..40).map(|number| (format!("{number:02}{}", "x".repeat(300)), 1)));
        assert!(found.buckets().iter().all(|bucket| bucket.last.len() == KEY_BYTES_KEPT) && !found.is_empty());
    }

    #[test]
    fn any_bytes_are_refused_or_decoded() {
        let whole = histogram(1024, (0..500).map(|number| (format!("key{number:05}"), 100 + number)));
        assert_eq!(Histogram::decode(&whole.encode()), Ok(whole.clone()));
        for seed in 0..3000 {
            let mut random = Random::seeded(seed);
            let mut damaged = whole.encode();
            let position = random.index(damaged.len());
            damaged[position] = random.next_u64() as u8;
            if let Ok(found) = Histogram::decode(&damaged) {
                assert!(found.buckets().windows(2).all(|pair| pair[0].last <= pair[1].last), "seed {seed}");
            }
        }
    }
}
