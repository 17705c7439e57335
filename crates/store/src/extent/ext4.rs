//! The costs of a journaling file system: which metadata blocks a change dirties, and when they are
//! written.
//!
//! The store's own metadata log is the truth; it lies where ext4's journal lies and has the shape of
//! jbd2's transactions (Linux `fs/jbd2/commit.c`): a descriptor block and an image of every dirtied
//! block, a flush, a commit block written through. What this module adds is what the transactions
//! stand for: the bitmaps, inode table blocks, descriptors and directory blocks that change, which jbd2
//! later writes in place, scattered over the device. Those writes are made, with a label as content,
//! and never read: they cost what they would cost, and nothing depends on them.

use super::Extent;
use super::geometry::Ext4Geometry;
use super::node::Node;
use std::collections::{BTreeMap, BTreeSet};

/// How often jbd2 commits by itself: `commit=5`, the default.
pub(super) const COMMIT_INTERVAL_NANOS: u64 = 5_000_000_000;
/// How long a dirty metadata block may wait: `vm.dirty_expire_centisecs`, the default.
const EXPIRE_NANOS: u64 = 30_000_000_000;
/// Bytes of a block of the file system.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Blocks that changes since the last commit have dirtied.
pub(super) struct RunningTransaction {
    geometry: Ext4Geometry,
    dirty: BTreeSet<u64>,
    free_inodes: BTreeSet<u64>,
    next_inode: u64,
}

impl RunningTransaction {
    /// `inodes` files were found when the store was opened; they have the first inodes.
    pub(super) fn new(geometry: &Ext4Geometry, inodes: u64) -> Self {
        let geometry = geometry.clone();
        RunningTransaction { geometry, dirty: BTreeSet::new(), free_inodes: BTreeSet::new(), next_inode: inodes }
    }

    /// A name was made: an inode, its bitmap and descriptor, and the directory.
    pub(super) fn create(&mut self) -> u64 {
        let inode = self.free_inodes.pop_first().unwrap_or_else(|| {
            self.next_inode += 1;
            self.next_inode - 1
        });
        self.dirty_inode(inode, true);
        inode
    }

    fn dirty_inode(&mut self, inode: u64, allocation: bool) {
        let (bitmap, table) = self.geometry.inode_blocks(inode);
        self.dirty.insert(table);
        if allocation {
            self.dirty.insert(bitmap);
            self.dirty.insert(self.geometry.group_descriptor(0));
            self.dirty.insert(self.geometry.directory_block(inode));
        }
    }

    /// The inode changed.
    pub(super) fn touch(&mut self, node: &Node) {
        self.dirty_inode(node.inode, false);
    }

    /// Blocks came or went.
    pub(super) fn extend(&mut self, node: &Node, extents: &[Extent]) {
        self.touch(node);
        for extent in extents {
            let mut block = extent.start;
            while block < extent.start + extent.blocks {
                self.dirty.insert(self.geometry.block_bitmap(block));
                self.dirty.insert(self.geometry.group_descriptor(block));
                block = (block / self.geometry.group_blocks + 1) * self.geometry.group_blocks;
            }
        }
    }

    /// A name and what it named went.
    pub(super) fn remove(&mut self, node: &Node) {
        self.dirty_inode(node.inode, true);
        let extents: Vec<Extent> = node.extents.read().extents().collect();
        self.extend(node, &extents);
    }

    /// A name changed: two directory blocks, perhaps the same, and the inode's change time.
    pub(super) fn rename(&mut self, node: &Node) {
        self.touch(node);
        self.dirty.insert(self.geometry.directory_block(node.inode));
    }

    /// The inode may be used again.
    pub(super) fn forget(&mut self, node: &Node) {
        self.free_inodes.insert(node.inode);
    }

    /// The blocks for a commit.
    pub(super) fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dirty).into_iter().collect()
    }
}

/// Blocks that are committed and not yet written in place.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    /// Block to the time it was first committed, in nanoseconds.
    committed: BTreeMap<u64, u64>,
}

impl Writeback {
    /// A commit included these blocks.
    pub(super) fn committed(&mut self, blocks: &[u64], now_nanos: u64) {
        for block in blocks {
            self.committed.entry(*block).or_insert(now_nanos);
        }
    }

    /// Blocks to write now, in order of place: those that have waited long enough, or all of them
    /// when the journal needs its space.
    pub(super) fn due(&mut self, now_nanos: u64, all: bool) -> Vec<u64> {
        let is_due = |since: u64| all || now_nanos.saturating_sub(since) >= EXPIRE_NANOS;
        let due: Vec<u64> =
            self.committed.iter().filter(|(_, since)| is_due(**since)).map(|(block, _)| *block).collect();
        for block in &due {
            self.committed.remove(block);
        }
        due
    }
}

/// Fills a metadata block with something that says what it stands for.
pub(super) fn label_block(bytes: &mut [u8], block: u64) {
    bytes.fill(0);
    bytes[..8].copy_from_slice(b"VE4META\0");
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_written_after_thirty_seconds_or_when_the_journal_is_full() {
        let mut writeback = Writeback::default();
        writeback.committed(&[9, 3], 0);
        writeback.committed(&[3, 5], 20_000_000_000);
        assert_eq!(writeback.due(29_000_000_000, false), []);
        assert_eq!(writeback.due(30_000_000_000, false), [3, 9]);
        assert_eq!(writeback.due(30_000_000_000, false), []);
        assert_eq!(writeback.due(30_000_000_000, true), [5]);
    }
}
