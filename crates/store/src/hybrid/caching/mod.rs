//! Blocks of tables of the slow tier that are kept on the fast one: which are there, and which go.
//!
//! Blocks that the tree's cache gave up wait in a bounded [queue](BlockQueue), where readers find them, until there are enough
//! for one request; then they are in a cache zone, which is written once in order and goes as a whole.

pub(super) mod batch;
mod density;
mod fifo;
mod frequency;
pub(super) mod index;
mod sample;
pub(super) mod sketch;
mod zones;

pub(super) use density::{BytesByDensity, DENSITY_MAX, Density, density_of};
pub(super) use sample::sampled_one_in;
pub(super) use zones::{CacheZones, SWEPT_AT_ONCE};

use fifo::Fifo;
use frequency::Frequency;
use std::collections::{BTreeMap, VecDeque};

/// Which copies of a zone that goes are written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Those that are read more for their bytes,
    pub(super) above: Density,
    /// and so many bytes of those that are read just so much.
    pub(super) bytes_of_equal: u64,
}

impl Kept {
    /// None of them.
    pub(super) const NOTHING: Kept = Kept { above: DENSITY_MAX, bytes_of_equal: 0 };
}

/// Says which blocks and records are kept.
pub(super) trait Caching: Send + Sync {
    /// Whether it has to be known how often what is read.
    fn counts_reads(&self) -> bool;

    /// Whether an evicted block that is read so much for its bytes comes in.
    fn admits(&self, density: Density) -> bool;

    /// Whether a record comes in that was read so often lately, and is read so much for its bytes. Its block is in memory, and may
    /// come as well.
    fn admits_record(&self, count: u8, density: Density) -> bool;

    /// Which copies of a zone that goes stay, of so many bytes by how much they are read, where there is so much space for them.
    /// Whatever is read for the first time is as dense as `first_read`: there is enough of that.
    fn keep(&mut self, bytes_by_density: &BytesByDensity, space_bytes: u64, first_read: Density) -> Kept;

    /// There is one zone more than before.
    fn zone_was_added(&mut self, first_read: Density);

    /// What is known of reads is half of what it was.
    fn counts_were_halved(&mut self);

    /// As much as a zone holds was not admitted while nothing was.
    fn too_little_comes(&mut self);
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
    /// The same of blocks and of the records in them that are asked for one by one: what is read most for its bytes stays.
    Records,
}

impl CachingName {
    /// Every caching.
    pub const ALL: &'static [CachingName] =
        &[CachingName::None, CachingName::Fifo, CachingName::Frequency, CachingName::Records];

    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            CachingName::None => "none",
            CachingName::Fifo => "fifo",
            CachingName::Frequency => "frequency",
            CachingName::Records => "records",
        }
    }

    /// The policy.
    pub(super) fn policy(self) -> Option<Box<dyn Caching>> {
        match self {
            CachingName::None => None,
            CachingName::Fifo => Some(Box::new(Fifo)),
            CachingName::Frequency | CachingName::Records => Some(Box::<Frequency>::default()),
        }
    }

    /// Whether records are kept, and not only blocks.
    pub(super) fn keeps_records(self) -> bool {
        self == CachingName::Records
    }

    /// Whether it is known how often what is read.
    pub(super) fn counts_reads(self) -> bool {
        matches!(self, CachingName::Frequency | CachingName::Records)
    }
}

/// A block: the number of its file, which is that of its stamp, and where it begins in it. Or a record of the file: the same number
/// and its label, with the highest bit, which no place in a file has.
pub(super) type BlockKey = (u64, u64);

/// The bit of labels.
const LABEL: u64 = 1 << 63;

/// A record of the file whose blocks have such a number.
pub(super) fn record_key(file: u64, label: u64) -> BlockKey {
    (file, label | LABEL)
}

/// Whether it is a record of a file.
fn is_record((_, place): BlockKey) -> bool {
    place & LABEL != 0
}

/// What reads of a block or a record are counted by, and copies found: a record is read as much in whatever file it is, and is of no
/// use in an older one than the newest.
fn counted((file, place): BlockKey) -> u64 {
    hash_of(if is_record((file, place)) { (0, place) } else { (file, place) })
}

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
