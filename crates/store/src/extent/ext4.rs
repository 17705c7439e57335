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
use super::state::State;
use crate::journal::{self, CommitStyle};
use crate::kernel::CommitPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::Env;
use varve_media::{Device, Request};

/// How often jbd2 commits by itself: `commit=5`, the default.
pub(super) const COMMIT_INTERVAL_NANOS: u64 = 5_000_000_000;
/// How long a dirty metadata block may wait: `vm.dirty_expire_centisecs`, the default.
const EXPIRE_NANOS: u64 = 30_000_000_000;
/// Bytes of a block of the file system.
const BLOCK_BYTES: usize = 4096;

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

/// Commits as jbd2 makes them, and what it writes in place later. Nothing depends on that, so failures of it are not
/// reported.
pub(super) struct Ext4Commits {
    pub(super) env: Env,
    pub(super) device: Device,
    /// Bytes of a block, and of a unit of the journal.
    pub(super) block_bytes: u64,
    pub(super) unit_bytes: u32,
    /// When it committed last, for those who want to know whether the next one is due.
    pub(super) last_commit_nanos: Arc<AtomicU64>,
    /// Blocks of the commit that is made.
    blocks: Vec<u64>,
    writeback: Writeback,
}

impl Ext4Commits {
    pub(super) fn new(env: &Env, device: &Device, block_bytes: u64, unit_bytes: u32) -> Ext4Commits {
        Ext4Commits {
            env: env.clone(),
            device: device.clone(),
            block_bytes,
            unit_bytes,
            last_commit_nanos: Arc::new(AtomicU64::new(env.now().as_nanos())),
            blocks: Vec::new(),
            writeback: Writeback::default(),
        }
    }
}

impl CommitPolicy<State> for Ext4Commits {
    fn take(&mut self, state: &mut State) {
        self.blocks.extend(state.transaction.iter_mut().flat_map(RunningTransaction::take));
    }

    fn style(&self) -> CommitStyle {
        let units_of_block = (BLOCK_BYTES as u64 / u64::from(self.unit_bytes)).max(1);
        // A descriptor, the images, and the commit block.
        CommitStyle::Ordered { units_min: journal::clamp_units((self.blocks.len() as u64 + 1) * units_of_block + 1) }
    }

    fn committed(&mut self, log_was_full: bool) {
        let now = self.env.now().as_nanos();
        self.last_commit_nanos.store(now, Ordering::Relaxed);
        self.writeback.committed(&std::mem::take(&mut self.blocks), now);
        let due = self.writeback.due(now, log_was_full);
        let length = self.block_bytes as usize;
        for chunk in due.chunks(64) {
            let mut bytes = journal::buffer(&self.device, length * chunk.len());
            for (block, bytes) in chunk.iter().zip(bytes.chunks_mut(length)) {
                label_block(bytes, *block);
            }
            let slices: Vec<[IoSlice<'_>; 1]> = bytes.chunks(length).map(|bytes| [IoSlice::new(bytes)]).collect();
            let place = |block: &u64| block * self.block_bytes;
            let mut requests: Vec<Request<'_>> =
                chunk.iter().zip(&slices).map(|(block, slices)| Request::write(place(block), slices)).collect();
            let _ = self.device.block.execute(&mut requests, &journal::METADATA);
        }
    }
}

/// Blocks that are committed and not yet written in place.
#[derive(Debug, Default)]
struct Writeback {
    /// Block to the time it was first committed, in nanoseconds.
    committed: BTreeMap<u64, u64>,
}

impl Writeback {
    /// A commit included these blocks.
    fn committed(&mut self, blocks: &[u64], now_nanos: u64) {
        for block in blocks {
            self.committed.entry(*block).or_insert(now_nanos);
        }
    }

    /// Blocks to write now, in order of place: those that have waited long enough, or all of them
    /// when the journal needs its space.
    fn due(&mut self, now_nanos: u64, all: bool) -> Vec<u64> {
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
fn label_block(bytes: &mut [u8], block: u64) {
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
