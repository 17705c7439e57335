//! What the store, its writers and its readers share: the steps that change something durably.

use super::allocation::{AllocationPolicy, AllocationRequest};
use super::frame::FrameFormat;
use super::geometry::StoreGeometry;
use super::node::Node;
use super::state::{ExtentState, Refusal};
use crate::error::StoreError;
use crate::file_store::{FileKind, StoreProperties};
use crate::journal;
use crate::kernel::{Kernel, RawStore};
use std::ops::Deref;
use std::sync::Arc;
use varve_env::MutexGuard;
use varve_media::{Device, IoContext, Request};

pub(super) struct OpenStore {
    pub(super) kernel: Kernel<ExtentState>,
    pub(super) device: Device,
    pub(super) properties: StoreProperties,
    pub(super) geometry: StoreGeometry,
    pub(super) frame: FrameFormat,
    pub(super) policy: Box<dyn AllocationPolicy>,
    /// Flushed data stays in memory until it is synced or much, as in the cache of an operating system.
    pub(super) caches: bool,
    pub(super) discards: bool,
}

impl Deref for OpenStore {
    type Target = Kernel<ExtentState>;

    fn deref(&self) -> &Kernel<ExtentState> {
        &self.kernel
    }
}

impl OpenStore {
    pub(super) fn no_space(&self, name: &str, requested_bytes: u64, refusal: Refusal) -> StoreError {
        let available_bytes = match refusal {
            Refusal::Blocks(blocks) => blocks * self.geometry.block_bytes,
            Refusal::Metadata => 0,
        };
        StoreError::NoSpace {
            store: self.label.clone(),
            name: name.to_owned(),
            requested_bytes,
            available_bytes,
            zones: None,
        }
    }

    /// Makes every write that has completed durable.
    pub(super) fn sync_device(&self, context: &IoContext) -> Result<(), StoreError> {
        self.latch.sync(context)
    }

    /// Gives a file blocks until it has `needed_bytes` of them, better `wanted_bytes`.
    pub(super) fn extend(
        &self,
        node: &Node,
        name: &str,
        kind: FileKind,
        needed_bytes: u64,
        wanted_bytes: u64,
    ) -> Result<(), StoreError> {
        let block_bytes = self.geometry.block_bytes;
        let (needed, wanted) = (needed_bytes.div_ceil(block_bytes), wanted_bytes.div_ceil(block_bytes));
        let place = || {
            let mut state = self.state.lock();
            let file_blocks = node.extents.read().blocks();
            if file_blocks >= needed {
                return Ok(());
            }
            let request = AllocationRequest {
                needed_blocks: needed - file_blocks,
                wanted_blocks: wanted.max(needed) - file_blocks,
                behind: None,
                kind,
                file_blocks,
            };
            let geometry = &self.geometry;
            state.extend(node, &*self.policy, &geometry.log_zone, geometry.blocks, request)
        };
        if place().is_ok() {
            return Ok(());
        }
        self.commit_all()?;
        place().map_err(|refusal| self.no_space(name, needed_bytes, refusal))
    }

    /// Gives back the blocks of a file behind its first `bytes`.
    pub(super) fn trim(&self, node: &Node, bytes: u64) {
        let mut state = self.state.lock();
        state.trim(node, bytes.div_ceil(self.geometry.block_bytes), self.discards);
        state.note_length(node);
    }

    /// Says that a file that is not framed has more on the device than the metadata knows.
    pub(super) fn note_unsynced(&self, node: &Arc<Node>) {
        if !node.framed {
            self.state.lock().names.note_unsynced(node);
        }
    }

    /// Makes what is on the device of a file durable: contents, length and name.
    pub(super) fn sync_node(&self, node: &Node, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        if node.framed {
            let written = node.written_bytes();
            // Bytes of others are told apart by their frames, so the order of the two does not matter.
            self.commit(node.needed_change())?;
            if written > node.durable_bytes() {
                self.sync_device(context)?;
                node.set_durable_bytes(written);
            }
            return Ok(());
        }
        if node.is_unsynced() {
            self.sync_unframed(node, context)?;
        }
        let recorded = node.recorded_bytes();
        self.commit(node.needed_change())?;
        node.set_durable_bytes(recorded);
        Ok(())
    }

    /// Makes the data of every unframed file durable, then tells the metadata their lengths. The order
    /// matters: a length must not cover what another file has left on the device.
    fn sync_unframed(&self, node: &Node, context: &IoContext) -> Result<(), StoreError> {
        let (unsynced, own) = {
            let state = self.state.lock();
            let others: Vec<_> = state.names.unsynced().map(|other| (other.clone(), other.written_bytes())).collect();
            (others, node.written_bytes())
        };
        // An ordered commit syncs the device before it takes effect.
        if !self.caches {
            self.sync_device(context)?;
        }
        let mut state = self.state.lock();
        for (other, written) in unsynced {
            state.resize(&other, written);
            if !other.is_unsynced() {
                state.names.note_synced(&other);
            }
        }
        state.resize(node, own);
        Ok(())
    }

    /// What a clean end makes durable: everything that reached the device.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        self.check()?;
        let unsynced = self.state.lock().names.unsynced().next().cloned();
        if let Some(node) = unsynced {
            self.sync_unframed(&node, &journal::METADATA)?;
        }
        let change = self.state.lock().names.change();
        self.commit(change)
    }
}

impl RawStore for OpenStore {
    type State = ExtentState;

    /// Discards blocks first where the device can.
    fn reclaim(&self, mut state: MutexGuard<'_, ExtentState>, free: Vec<Arc<Node>>, _durable_change: u64) {
        state.reclaim(&free, self.discards);
        let discarded = std::mem::take(&mut state.discards);
        drop(state);
        if discarded.is_empty() {
            return;
        }
        let block_bytes = self.geometry.block_bytes;
        let mut requests: Vec<Request<'_>> = discarded
            .iter()
            .map(|extent| Request::discard(extent.start * block_bytes, extent.blocks * block_bytes))
            .collect();
        // Advice: a device that fails it keeps the old bytes, which nobody reads.
        let _ = self.device.block.execute(&mut requests, &journal::METADATA);
        let mut state = self.state.lock();
        for extent in discarded {
            let released = state.free.release(extent);
            assert!(released, "blocks are given back once");
        }
    }

    fn sync_file(&self, node: &Arc<Node>, _name: &str, context: &IoContext) -> Result<(), StoreError> {
        if node.is_unsynced() { self.sync_node(node, context) } else { Ok(()) }
    }
}
