//! Blocks of tables of the slow tier that are kept on the fast one: which are there, and which go.
//!
//! Blocks that the tree's cache gave up wait in a bounded [queue](BlockQueue), where readers find them, until there are enough
//! for one request; then they are in a cache zone, which is written once in order and goes as a whole.

pub(super) mod batch;
mod fifo;
mod frequency;
pub(super) mod index;
mod sample;
pub(super) mod sketch;
mod zones;

pub(super) use zones::{CacheZones, SWEPT_AT_ONCE};

use fifo::Fifo;
use frequency::Frequency;
use sketch::COUNT_MAX;
use std::collections::{BTreeMap, VecDeque};

/// Which copies of a zone that goes are written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Those of blocks that were read more often,
    pub(super) above: u8,
    /// and so many bytes of those that were read just so often.
    pub(super) bytes_of_equal: u64,
}

impl Kept {
    /// None of them.
    pub(super) const NOTHING: Kept = Kept { above: COUNT_MAX, bytes_of_equal: 0 };
}

/// Says which blocks are kept.
pub(super) trait Caching: Send + Sync {
    /// Whether it has to be known how often blocks are read.
    fn counts_reads(&self) -> bool;

    /// Whether an evicted block that was read so often lately comes in.
    fn admits(&self, count: u8) -> bool;

    /// Which copies of a zone that goes stay, of so many bytes by how often their blocks were read, where there is so much space
    /// for them.
    fn keep(&mut self, bytes_by_count: &[u64; COUNT_MAX as usize + 1], space_bytes: u64) -> Kept;

    /// There is one zone more than before.
    fn zone_was_added(&mut self);
}

/// A caching by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachingName {
    /// Blocks are not kept.
    None,
    /// HHZS' application-hinted caching: every block that was evicted is admitted, the oldest zone goes.
    Fifo,
    /// Blocks that are read most often stay; zones are divided between tables and blocks by what they are worth.
    Frequency,
}

impl CachingName {
    /// Every caching.
    pub const ALL: &'static [CachingName] = &[CachingName::None, CachingName::Fifo, CachingName::Frequency];

    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            CachingName::None => "none",
            CachingName::Fifo => "fifo",
            CachingName::Frequency => "frequency",
        }
    }

    /// The policy.
    pub(super) fn policy(self) -> Option<Box<dyn Caching>> {
        match self {
            CachingName::None => None,
            CachingName::Fifo => Some(Box::new(Fifo)),
            CachingName::Frequency => Some(Box::<Frequency>::default()),
        }
    }
}

/// A block: the number of its file, which is that of its stamp, and where it begins in it.
pub(super) type BlockKey = (u64, u64);

/// Of every bit of a block's key all bits of its hash follow (the finaliser of SplitMix64).
pub(super) fn hash_of((file, offset_bytes): BlockKey) -> u64 {
    let mut hash = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset_bytes;
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// Blocks on their way to a cache zone.
#[derive(Debug, Default)]
pub(super) struct BlockQueue {
    blocks: BTreeMap<BlockKey, Vec<u8>>,
    order: VecDeque<BlockKey>,
    bytes: usize,
    /// Bytes that may wait.
    bytes_max: usize,
}

impl BlockQueue {
    pub(super) fn new(bytes_max: usize) -> BlockQueue {
        BlockQueue { bytes_max, ..BlockQueue::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, key: BlockKey) -> Option<&[u8]> {
        self.blocks.get(&key).map(Vec::as_slice)
    }

    /// Takes a block, once; false when there is no space for it.
    pub(super) fn push(&mut self, key: BlockKey, bytes: &[u8]) -> bool {
        if self.blocks.contains_key(&key) {
            return true;
        }
        if self.bytes + bytes.len() > self.bytes_max {
            return false;
        }
        self.bytes += bytes.len();
        self.order.push_back(key);
        self.blocks.insert(key, bytes.to_vec());
        true
    }

    /// The oldest blocks. They stay until they are [removed](Self::remove).
    pub(super) fn oldest(&self) -> impl Iterator<Item = (BlockKey, &[u8])> {
        self.order.iter().filter_map(|key| Some((*key, self.blocks.get(key)?.as_slice())))
    }

    pub(super) fn remove(&mut self, keys: impl Iterator<Item = BlockKey>) {
        for key in keys {
            if let Some(block) = self.blocks.remove(&key) {
                self.bytes -= block.len();
            }
        }
        let blocks = &self.blocks;
        self.order.retain(|key| blocks.contains_key(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_wait_in_order_and_no_more_than_there_is_space_for() {
        let mut queue = BlockQueue::new(100);
        assert!(queue.push((1, 0), &[1; 40]) && queue.push((1, 40), &[2; 30]) && queue.push((1, 0), &[9; 90]));
        assert!(!queue.push((2, 0), &[3; 31]) && queue.push((2, 0), &[3; 30]));
        assert_eq!((queue.bytes(), queue.get((1, 40)), queue.get((3, 0))), (100, Some(&[2; 30][..]), None));
        let oldest: Vec<BlockKey> = queue.oldest().map(|(key, _)| key).collect();
        assert_eq!(oldest, [(1, 0), (1, 40), (2, 0)]);
        queue.remove([(1, 0), (1, 40), (9, 9)].into_iter());
        assert_eq!((queue.bytes(), queue.oldest().count()), (30, 1));
    }
}
