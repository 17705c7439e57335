//! Blocks of tables of the slow tier that are kept on the fast one: which are there, and which go.
//!
//! Blocks that the tree's cache gave up wait in a bounded [queue](BlockQueue), where readers find them, until there are enough
//! for one request; then they are in a cache zone, which is written once in order and goes as a whole.

mod fifo;

pub(super) use fifo::CacheZones;

use std::collections::{BTreeMap, VecDeque};

/// A caching by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachingName {
    /// Blocks are not kept.
    None,
    /// HHZS' application-hinted caching: every block that was evicted is admitted, the oldest zone goes.
    Fifo,
}

impl CachingName {
    /// Every caching.
    pub const ALL: &'static [CachingName] = &[CachingName::None, CachingName::Fifo];

    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            CachingName::None => "none",
            CachingName::Fifo => "fifo",
        }
    }
}

/// A block: the number of its file, and where it begins in it.
pub(super) type BlockKey = (u64, u64);

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

    /// The oldest blocks, of no more than so many bytes together, one after the other. They stay until they are
    /// [removed](Self::remove).
    pub(super) fn batch(&self, bytes_max: u64) -> (Vec<u8>, Vec<(BlockKey, u32)>) {
        let (mut bytes, mut keys) = (Vec::new(), Vec::new());
        for key in &self.order {
            let Some(block) = self.blocks.get(key) else { continue };
            if (bytes.len() + block.len()) as u64 > bytes_max {
                break;
            }
            bytes.extend_from_slice(block);
            keys.push((*key, block.len() as u32));
        }
        (bytes, keys)
    }

    pub(super) fn remove(&mut self, keys: &[(BlockKey, u32)]) {
        for (key, _) in keys {
            if let Some(block) = self.blocks.remove(key) {
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
        let (bytes, keys) = queue.batch(75);
        assert_eq!((bytes, &keys[..]), ([vec![1; 40], vec![2; 30]].concat(), &[((1, 0), 40), ((1, 40), 30)][..]));
        assert_eq!(queue.batch(10), (Vec::new(), Vec::new()));
        queue.remove(&keys);
        assert_eq!((queue.bytes(), queue.batch(1000).1), (30, vec![((2, 0), 30)]));
    }
}
