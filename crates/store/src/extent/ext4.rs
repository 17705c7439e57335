//! The costs of a journaling file system: which metadata blocks a change dirties, and when they are
//! written.
//!
//! The store's own metadata log is the truth; it lies where ext4's journal lies and has the shape of
//! jbd2's transactions (Linux `fs/jbd2/commit.c`): a descriptor block and an image of every dirtied
//! block, a flush, a commit block written through. What this module adds is what the transactions
//! stand for: the bitmaps, inode table blocks, descriptors and directory blocks that change, which jbd2
//! later writes in place, scattered over the device. Those writes are made, with a label as content,
//! and never read: they cost what they would cost, and nothing depends on them.
//!
//! It is a commit policy, which sees the changes of every commit and derives all of that from them, as a replay of the
//! log would; the rest of the store does not know of it. So a file that has lost its name, of which the log hears nothing
//! more, dirties nothing while it is still written.

use super::Extent;
use super::change::Change;
use super::geometry::Ext4Geometry;
use super::map::ExtentMap;
use super::node::Node;
use super::recovery::FoundFile;
use crate::journal::{self, CommitStyle};
use crate::kernel::CommitPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, Request};

/// How often jbd2 commits by itself: `commit=5`, the default.
const COMMIT_INTERVAL_NANOS: u64 = 5_000_000_000;
/// How long a dirty metadata block may wait: `vm.dirty_expire_centisecs`, the default.
const EXPIRE_NANOS: u64 = 30_000_000_000;
/// Bytes of a block of the file system.
const BLOCK_BYTES: usize = 4096;

/// A file as the file system would describe it.
struct Inode {
    number: u64,
    extents: ExtentMap,
}

/// Blocks that the changes of a commit dirty, and what must be known of all changes before to tell.
struct RunningTransaction {
    geometry: Ext4Geometry,
    dirty: BTreeSet<u64>,
    names: BTreeMap<String, u64>,
    /// By the numbers of files, until their places are free.
    inodes: BTreeMap<u64, Inode>,
    free_inodes: BTreeSet<u64>,
    next_inode: u64,
}

impl RunningTransaction {
    /// Files that were found when the store was opened have the first inodes.
    fn new(geometry: &Ext4Geometry, files: &BTreeMap<String, FoundFile>) -> Self {
        let inode = |(number, found): (u64, &FoundFile)| (found.file, Inode { number, extents: found.extents.clone() });
        RunningTransaction {
            geometry: geometry.clone(),
            dirty: BTreeSet::new(),
            names: files.iter().map(|(name, found)| (name.clone(), found.file)).collect(),
            inodes: (0..).zip(files.values()).map(inode).collect(),
            free_inodes: BTreeSet::new(),
            next_inode: files.len() as u64,
        }
    }

    /// The blocks of a change. What a change says of files is so: the store made it.
    fn make(&mut self, change: &Change) {
        match change {
            Change::Create { file, name, .. } => {
                let number = self.free_inodes.pop_first().unwrap_or_else(|| {
                    self.next_inode += 1;
                    self.next_inode - 1
                });
                self.inodes.insert(*file, Inode { number, extents: ExtentMap::default() });
                self.dirty_name(*file);
                let replaced = self.names.insert(name.clone(), *file);
                self.lose_name(replaced);
            }
            Change::Extend { file, extents } => {
                if let Some(inode) = self.inodes.get_mut(file) {
                    extents.iter().for_each(|extent| inode.extents.push(*extent));
                }
                self.dirty_extents(*file, extents);
            }
            Change::Trim { file, blocks } => {
                let trimmed = self.inodes.get_mut(file).map(|inode| inode.extents.trim(*blocks));
                self.dirty_extents(*file, &trimmed.unwrap_or_default());
            }
            Change::Size { file, .. } => self.dirty_extents(*file, &[]),
            // Two directory blocks, perhaps the same, and the inode's change time.
            Change::Rename { from, to } => {
                let Some(file) = self.names.remove(from) else { return };
                self.dirty_extents(file, &[]);
                let directory = self.inodes.get(&file).map(|inode| self.geometry.directory_block(inode.number));
                self.dirty.extend(directory);
                let replaced = self.names.insert(to.clone(), file);
                self.lose_name(replaced);
            }
            Change::Remove { name } => {
                let removed = self.names.remove(name);
                self.lose_name(removed);
            }
        }
    }

    /// An inode came or went: itself, its bitmap and descriptor, and the directory.
    fn dirty_name(&mut self, file: u64) {
        let Some(number) = self.inodes.get(&file).map(|inode| inode.number) else { return };
        let (bitmap, table) = self.geometry.inode_blocks(number);
        let (descriptor, directory) = (self.geometry.group_descriptor(0), self.geometry.directory_block(number));
        self.dirty.extend([bitmap, table, descriptor, directory]);
    }

    /// An inode changed, and these blocks came to it or went.
    fn dirty_extents(&mut self, file: u64, extents: &[Extent]) {
        let Some(number) = self.inodes.get(&file).map(|inode| inode.number) else { return };
        self.dirty.insert(self.geometry.inode_blocks(number).1);
        for extent in extents {
            let mut block = extent.start;
            while block < extent.start + extent.blocks {
                self.dirty.insert(self.geometry.block_bitmap(block));
                self.dirty.insert(self.geometry.group_descriptor(block));
                block = (block / self.geometry.group_blocks + 1) * self.geometry.group_blocks;
            }
        }
    }

    /// A file lost its name: what it named goes, too.
    fn lose_name(&mut self, file: Option<u64>) {
        let Some((file, inode)) = file.and_then(|file| Some((file, self.inodes.get(&file)?))) else { return };
        let extents: Vec<Extent> = inode.extents.extents().collect();
        self.dirty_name(file);
        self.dirty_extents(file, &extents);
    }

    /// The inode of a file may be used again.
    fn free(&mut self, file: u64) {
        self.free_inodes.extend(self.inodes.remove(&file).map(|inode| inode.number));
    }
}

/// Commits as jbd2 makes them, and what it writes in place later. Nothing depends on that, so failures of it are not
/// reported.
pub(super) struct Ext4Commits {
    env: Env,
    device: Device,
    block_bytes: u64,
    /// Bytes of a unit of the journal.
    unit_bytes: u32,
    transaction: RunningTransaction,
    writeback: Writeback,
}

impl Ext4Commits {
    /// Of a store with these files.
    pub(super) fn new(
        env: &Env,
        device: &Device,
        geometry: &Ext4Geometry,
        block_bytes: u64,
        unit_bytes: u32,
        files: &BTreeMap<String, FoundFile>,
    ) -> Ext4Commits {
        let transaction = RunningTransaction::new(geometry, files);
        let (env, device, writeback) = (env.clone(), device.clone(), Writeback::default());
        Ext4Commits { env, device, block_bytes, unit_bytes, transaction, writeback }
    }
}

impl CommitPolicy<Node> for Ext4Commits {
    fn interval_nanos(&self) -> Option<u64> {
        Some(COMMIT_INTERVAL_NANOS)
    }

    fn take(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.transaction.make(change));
    }

    fn style(&self) -> CommitStyle {
        let units_of_block = (BLOCK_BYTES as u64 / u64::from(self.unit_bytes)).max(1);
        // A descriptor, the images, and the commit block.
        let units = (self.transaction.dirty.len() as u64 + 1) * units_of_block + 1;
        CommitStyle::Ordered { units_min: journal::clamp_units(units) }
    }

    fn committed(&mut self, log_was_full: bool) {
        let now = self.env.now().as_nanos();
        self.writeback.committed(std::mem::take(&mut self.transaction.dirty), now);
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

    fn freed(&mut self, nodes: &[Arc<Node>]) {
        nodes.iter().for_each(|node| self.transaction.free(node.file));
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
    fn committed(&mut self, blocks: BTreeSet<u64>, now_nanos: u64) {
        for block in blocks {
            self.committed.entry(block).or_insert(now_nanos);
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
        writeback.committed([9, 3].into(), 0);
        writeback.committed([3, 5].into(), 20_000_000_000);
        assert_eq!(writeback.due(29_000_000_000, false), []);
        assert_eq!(writeback.due(30_000_000_000, false), [3, 9]);
        assert_eq!(writeback.due(30_000_000_000, false), []);
        assert_eq!(writeback.due(30_000_000_000, true), [5]);
    }
}
