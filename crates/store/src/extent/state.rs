//! The present metadata: names, files, free space, and the changes no commit has taken yet.

use super::Extent;
use super::allocation::{AllocationPolicy, AllocationRequest, AllocationView};
use super::change::{Change, EXTENT_BYTES, FileRecord, encode_checkpoint, record_bytes};
use super::free_space::FreeSpace;
use super::map::ExtentMap;
use super::node::Node;
use crate::kernel::{NameTable, StoreState};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a checkpoint without files.
const EMPTY_BYTES: u64 = 16;

/// Kept under one short lock that is never held across I/O.
pub(super) struct ExtentState {
    pub(super) names: NameTable<Node>,
    /// Blocks nobody owns that wait to be discarded.
    pub(super) discards: Vec<Extent>,
    pub(super) free: FreeSpace,
    cursor: u64,
}

/// Why blocks could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Fewer are free; the number that are.
    Blocks(u64),
    /// The metadata has no space to describe more.
    Metadata,
}

impl ExtentState {
    pub(super) fn new(
        names: BTreeMap<String, Arc<Node>>,
        free: FreeSpace,
        next_file: u64,
        checkpoint_bytes_max: u64,
    ) -> ExtentState {
        ExtentState {
            names: NameTable::new(names, next_file, EMPTY_BYTES, checkpoint_bytes_max),
            discards: Vec::new(),
            free,
            cursor: 0,
        }
    }

    /// Makes a new file, in place of an older one of that name. `make` gets its number.
    pub(super) fn create(&mut self, name: &str, make: impl FnOnce(u64) -> Node) -> Result<Arc<Node>, Refusal> {
        if !self.names.has_space(record_bytes(name.len(), 0)) {
            return Err(Refusal::Metadata);
        }
        let file = self.names.number();
        let node = Arc::new(make(file));
        self.name_new(name, &node);
        Ok(node)
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
        if !node.is_removed() && !self.names.has_space(bytes) {
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
        self.note_length(node);
        if !node.is_removed() {
            self.names.resize(0, more as u64);
            let change = self.names.record(Change::Extend { file: node.file, extents: placement.extents });
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
        if !node.is_removed() {
            self.names.resize(fewer as u64, 0);
            self.names.record(Change::Trim { file: node.file, blocks });
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
        let change = self.names.record(Change::Size { file: node.file, size_bytes });
        node.set_needed_change(change);
    }

    /// Lets the metadata know how much of a framed file is durable, so that the next open need not look.
    pub(super) fn note_length(&mut self, node: &Node) {
        let size_bytes = node.durable_bytes();
        if node.framed && !node.is_removed() && size_bytes > 0 {
            self.names.record(Change::Size { file: node.file, size_bytes });
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

    /// Blocks of removed files become free.
    pub(super) fn reclaim(&mut self, removed: &[Arc<Node>], discard: bool) {
        for node in removed {
            let extents: Vec<Extent> = node.extents.read().extents().collect();
            self.give_back(extents, discard);
        }
    }

    /// Blocks that are free, or will be once what was removed is durable and discarded.
    pub(super) fn available_blocks(&self) -> u64 {
        let discards: u64 = self.discards.iter().map(|extent| extent.blocks).sum();
        let removed: u64 = self.names.unheld().map(|node| node.extents.read().blocks()).sum();
        self.free.blocks() + discards + removed
    }
}

impl StoreState for ExtentState {
    type Node = Node;

    fn names(&self) -> &NameTable<Node> {
        &self.names
    }

    fn names_mut(&mut self) -> &mut NameTable<Node> {
        &mut self.names
    }

    fn checkpoint(&self) -> Vec<u8> {
        let record = |(name, node): (&String, &Arc<Node>)| FileRecord {
            file: node.file,
            framed: node.framed,
            size_bytes: node.known_bytes(),
            name: name.clone(),
            extents: node.extents.read().extents().collect(),
        };
        let records: Vec<FileRecord> = self.names.iter().map(record).collect();
        encode_checkpoint(self.names.next_file(), records.iter())
    }

    fn lost_name(&mut self, _node: &Node) {}
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
