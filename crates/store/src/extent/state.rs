//! The present metadata: names, files, free space, and the changes no commit has taken yet.

use super::Extent;
use super::allocation::{AllocationPolicy, AllocationRequest, AllocationView};
use super::change::{Change, EXTENT_BYTES, FileRecord, encode_change, encode_checkpoint, record_bytes};
use super::ext4::RunningTransaction;
use super::free_space::FreeSpace;
use super::map::ExtentMap;
use super::node::Node;
use crate::names::{NameTable, Unnamed};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of a checkpoint without files.
const EMPTY_BYTES: u64 = 16;

/// A removed file whose blocks are not free yet.
pub(super) struct Condemned {
    /// The change that removed it must be durable first.
    pub(super) change: u64,
    /// And nobody else may hold it.
    pub(super) node: Arc<Node>,
}

/// Kept under one short lock that is never held across I/O.
pub(super) struct State {
    pub(super) names: NameTable<Node>,
    pub(super) condemned: Vec<Condemned>,
    /// Blocks nobody owns that wait to be discarded.
    pub(super) discards: Vec<Extent>,
    pub(super) free: FreeSpace,
    /// Files with data on the device that the metadata does not know.
    pub(super) unsynced: BTreeMap<u64, Arc<Node>>,
    cursor: u64,
    /// Metadata blocks of the imitated file system.
    pub(super) transaction: Option<RunningTransaction>,
}

/// Why blocks could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Fewer are free; the number that are.
    Blocks(u64),
    /// The metadata has no room to describe more.
    Metadata,
}

/// Changes taken by a commit.
pub(super) struct Batch {
    pub(super) payload: Vec<u8>,
    /// Number of the last of them.
    pub(super) change: u64,
    /// Metadata blocks they touched.
    pub(super) blocks: Vec<u64>,
}

impl State {
    pub(super) fn new(
        names: BTreeMap<String, Arc<Node>>,
        free: FreeSpace,
        next_file: u64,
        checkpoint_bytes_max: u64,
        transaction: Option<RunningTransaction>,
    ) -> State {
        State {
            names: NameTable::new(names, next_file, EMPTY_BYTES, checkpoint_bytes_max),
            condemned: Vec::new(),
            discards: Vec::new(),
            free,
            unsynced: BTreeMap::new(),
            cursor: 0,
            transaction,
        }
    }

    /// Number of the last change made.
    pub(super) fn change(&self) -> u64 {
        self.names.change()
    }

    /// Whether changes wait for a commit.
    pub(super) fn has_pending(&self) -> bool {
        self.names.has_pending()
    }

    fn record(&mut self, change: &Change) -> u64 {
        self.names.record(|writer| encode_change(writer, change))
    }

    /// Takes everything that waits for a commit.
    pub(super) fn take_batch(&mut self) -> Batch {
        let (payload, change) = self.names.take_pending();
        Batch { payload, change, blocks: self.transaction.as_mut().map_or_else(Vec::new, RunningTransaction::take) }
    }

    /// The whole metadata as a checkpoint, in place of what waits for a commit.
    pub(super) fn take_checkpoint(&mut self) -> Batch {
        let records: Vec<FileRecord> = self
            .names
            .iter()
            .map(|(name, node)| FileRecord {
                file: node.file,
                framed: node.framed,
                size_bytes: node.known_bytes(),
                name: name.clone(),
                extents: node.extents.read().extents().collect(),
            })
            .collect();
        Batch { payload: encode_checkpoint(self.names.next_file(), records.iter()), ..self.take_batch() }
    }

    /// Makes a new file, in place of an older one of that name. `make` gets its number and inode.
    pub(super) fn create(&mut self, name: &str, make: impl FnOnce(u64, u64) -> Node) -> Result<Arc<Node>, Refusal> {
        if !self.names.has_room(record_bytes(name.len(), 0)) {
            return Err(Refusal::Metadata);
        }
        let file = self.names.number();
        let inode = self.transaction.as_mut().map_or(0, |transaction| transaction.create());
        let node = Arc::new(make(file, inode));
        let create = Change::Create { file, framed: node.framed, name: name.to_owned() };
        let replaced = self.names.create(name, &node, |writer| encode_change(writer, &create));
        self.condemn(replaced);
        Ok(node)
    }

    /// A file lost its name.
    fn condemn(&mut self, unnamed: Option<Unnamed<Node>>) {
        let Some(Unnamed { node, change }) = unnamed else { return };
        self.unsynced.remove(&node.file);
        if let Some(transaction) = &mut self.transaction {
            transaction.remove(&node);
        }
        self.condemned.push(Condemned { change, node });
    }

    /// False when there is no such file.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let remove = Change::Remove { name: name.to_owned() };
        let removed = self.names.remove(name, |writer| encode_change(writer, &remove));
        let is_there = removed.is_some();
        self.condemn(removed);
        is_there
    }

    /// The change to wait for; `None` when there is no such file.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Option<u64> {
        let rename = Change::Rename { from: from.to_owned(), to: to.to_owned() };
        let (change, replaced) = self.names.rename(from, to, |writer| encode_change(writer, &rename))?;
        if let (Some(transaction), Some(node), true) = (&mut self.transaction, self.names.get(to), from != to) {
            transaction.rename(node);
        }
        self.condemn(replaced);
        Some(change)
    }

    /// Gives a file blocks.
    pub(super) fn extend(
        &mut self,
        node: &Node,
        policy: &dyn AllocationPolicy,
        log_zone: &Range<u64>,
        end: u64,
        request: AllocationRequest,
    ) -> Result<(), Refusal> {
        let behind = node.extents.read().behind();
        // One writer that expects much must not take from the others what is left.
        let fair = request.needed_blocks.max(self.free.blocks() / 4);
        let request = AllocationRequest { behind, wanted_blocks: request.wanted_blocks.min(fair), ..request };
        let view = AllocationView { free: &self.free, log_zone, end, cursor: self.cursor };
        let placement = policy.place(&view, &request).ok_or(Refusal::Blocks(self.free.blocks()))?;
        let bytes = (placement.extents.len() * EXTENT_BYTES) as u64;
        if !node.is_removed() && !self.names.has_room(bytes) {
            return Err(Refusal::Metadata);
        }
        self.cursor = placement.cursor;
        for extent in &placement.extents {
            let taken = self.free.take(*extent);
            assert!(taken, "a policy places files in free space");
        }
        let mut map = node.extents.write();
        let before = map.len();
        placement.extents.iter().for_each(|extent| map.push(*extent));
        let more = (map.len() - before) * EXTENT_BYTES;
        drop(map);
        if let Some(transaction) = &mut self.transaction {
            transaction.extend(node, &placement.extents);
        }
        self.note_length(node);
        if !node.is_removed() {
            self.names.resize(0, more as u64);
            let change = self.record(&Change::Extend { file: node.file, extents: placement.extents });
            node.set_needed_change(change);
        }
        Ok(())
    }

    /// Takes back the blocks of a file behind its first `blocks`. What was there may be overwritten at
    /// once: no file's length covers it, before or after the change is durable.
    pub(super) fn trim(&mut self, node: &Node, blocks: u64, discard: bool) {
        let mut map = node.extents.write();
        let before = map.len();
        let removed = map.trim(blocks);
        let fewer = (before - map.len()) * EXTENT_BYTES;
        drop(map);
        if removed.is_empty() {
            return;
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.extend(node, &removed);
        }
        if !node.is_removed() {
            self.names.resize(fewer as u64, 0);
            self.record(&Change::Trim { file: node.file, blocks });
        }
        self.give_back(removed, discard);
    }

    /// Makes `size_bytes` of a file its length: they are durable, or will be before the next commit is.
    pub(super) fn resize(&mut self, node: &Node, size_bytes: u64) {
        if size_bytes <= node.recorded_bytes() {
            return;
        }
        node.set_recorded_bytes(size_bytes);
        if node.is_removed() {
            return;
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.touch(node);
        }
        let change = self.record(&Change::Size { file: node.file, size_bytes });
        node.set_needed_change(change);
    }

    /// Lets the metadata know how much of a framed file is durable, so that the next open need not look.
    pub(super) fn note_length(&mut self, node: &Node) {
        let size_bytes = node.durable_bytes();
        if node.framed && !node.is_removed() && size_bytes > 0 {
            self.record(&Change::Size { file: node.file, size_bytes });
        }
    }

    fn give_back(&mut self, extents: impl IntoIterator<Item = Extent>, discard: bool) {
        for extent in extents {
            if discard {
                self.discards.push(extent);
            } else {
                let released = self.free.release(extent);
                assert!(released, "blocks are given back once");
            }
        }
    }

    /// Blocks of removed files become free: those whose removal is among the first `durable_change`
    /// changes and that nobody holds.
    pub(super) fn reclaim(&mut self, durable_change: u64, discard: bool) {
        let mut kept = Vec::new();
        for condemned in std::mem::take(&mut self.condemned) {
            // Nobody finds it by name any more, so a count of one stays one.
            if condemned.change > durable_change || Arc::strong_count(&condemned.node) > 1 {
                kept.push(condemned);
                continue;
            }
            std::sync::atomic::fence(Ordering::Acquire);
            if let Some(transaction) = &mut self.transaction {
                transaction.forget(&condemned.node);
            }
            let extents: Vec<Extent> = condemned.node.extents.read().extents().collect();
            self.give_back(extents, discard);
        }
        self.condemned = kept;
    }

    /// Blocks that are free, or will be once what was removed is durable and discarded.
    pub(super) fn available_blocks(&self) -> u64 {
        let discards: u64 = self.discards.iter().map(|extent| extent.blocks).sum();
        let condemned: u64 = self
            .condemned
            .iter()
            .filter(|condemned| Arc::strong_count(&condemned.node) == 1)
            .map(|condemned| condemned.node.extents.read().blocks())
            .sum();
        self.free.blocks() + discards + condemned
    }
}

/// The free space that files leave of `free`; the error is the first extent that is not free.
pub(super) fn free_space_without<'a>(
    free: &[Extent],
    files: impl Iterator<Item = &'a ExtentMap>,
) -> Result<FreeSpace, Extent> {
    let mut space = FreeSpace::default();
    for extent in free {
        space.release(*extent);
    }
    for extent in files.flat_map(|map| map.extents()) {
        if !space.take(extent) {
            return Err(extent);
        }
    }
    Ok(space)
}
