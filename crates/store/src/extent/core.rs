//! What the store, its writers and its readers share: the steps that change something durably.

use super::allocation::{AllocationPolicy, AllocationRequest};
use super::ext4::{self, Writeback};
use super::frame::FrameFormat;
use super::geometry::StoreGeometry;
use super::node::Node;
use super::state::{Refusal, State};
use crate::error::StoreError;
use crate::file_store::{FileKind, StoreProperties};
use crate::journal::{self, CommitStyle, Journal};
use crate::kernel::Latch;
use parking_lot::Mutex as ShortMutex;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Mutex};
use varve_media::{Device, IoClass, IoContext, MediaError, Request};

/// The journal and what follows from its commits. Held across their I/O, so that one commit serves all
/// who wait for it.
pub(super) struct Committer {
    pub(super) journal: Journal,
    /// Only in the `ext4` layout.
    pub(super) writeback: Option<Writeback>,
}

pub(super) struct Core {
    pub(super) env: Env,
    pub(super) device: Device,
    pub(super) label: String,
    pub(super) properties: StoreProperties,
    pub(super) geometry: StoreGeometry,
    pub(super) frame: FrameFormat,
    pub(super) policy: Box<dyn AllocationPolicy>,
    /// Flushed data stays in memory until it is synced or much, as in the cache of an operating system.
    pub(super) caches: bool,
    pub(super) discards: bool,
    pub(super) state: ShortMutex<State>,
    pub(super) committer: Mutex<Committer>,
    /// Changes that are durable.
    pub(super) durable_change: AtomicU64,
    pub(super) last_commit_nanos: AtomicU64,
    pub(super) latch: Latch,
    pub(super) locks: ShortMutex<BTreeSet<String>>,
    /// Commits of the metadata since the store was opened.
    pub(super) commits: AtomicU64,
    /// Checkpoints of it made in place of a commit.
    pub(super) checkpoints: AtomicU64,
}

const METADATA: IoContext =
    IoContext { class: IoClass::Metadata, cause: varve_media::IoCause::Direct, level: None, job: None, deadline: None };

impl Core {
    pub(super) fn media_error(&self, name: &str, source: MediaError) -> StoreError {
        journal::media_error(&self.label, name, source)
    }

    /// Refuses everything that would acknowledge something after a failure that left the medium unknown.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.latch.check()
    }

    pub(super) fn no_space(&self, name: &str, requested_bytes: u64, refusal: Refusal) -> StoreError {
        let available_bytes = match refusal {
            Refusal::Blocks(blocks) => blocks * self.geometry.block_bytes,
            Refusal::Metadata => 0,
        };
        StoreError::NoSpace { store: self.label.clone(), name: name.to_owned(), requested_bytes, available_bytes }
    }

    /// Makes every write that has completed durable.
    pub(super) fn sync_device(&self, context: &IoContext) -> Result<(), StoreError> {
        self.latch.sync(context)
    }

    /// Makes the first `change` changes durable.
    pub(super) fn commit(&self, change: u64) -> Result<(), StoreError> {
        if self.durable_change.load(Ordering::Acquire) >= change {
            return Ok(());
        }
        let mut committer = self.committer.lock();
        if self.durable_change.load(Ordering::Acquire) >= change {
            return Ok(());
        }
        self.commit_pending(&mut committer)
    }

    /// Makes every change so far durable, and free what that makes free.
    fn commit_pending(&self, committer: &mut Committer) -> Result<(), StoreError> {
        self.check()?;
        let mut batch = self.state.lock().take_batch();
        let style = self.commit_style(committer, batch.blocks.len() as u64);
        let mut journal_full = false;
        let outcome = if batch.payload.is_empty() {
            Ok(())
        } else if committer.journal.fits(batch.payload.len(), style) {
            self.commits.fetch_add(1, Ordering::Relaxed);
            committer.journal.commit(&batch.payload, style)
        } else {
            journal_full = true;
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
            let blocks = std::mem::take(&mut batch.blocks);
            batch = self.state.lock().take_checkpoint();
            batch.blocks.extend(blocks);
            committer.journal.begin(Some(&batch.payload))
        };
        outcome.map_err(|error| self.latch.close(error))?;
        self.durable_change.store(batch.change, Ordering::Release);
        self.write_back(committer, &batch.blocks, journal_full);
        self.reclaim(batch.change);
        Ok(())
    }

    fn commit_style(&self, committer: &Committer, blocks: u64) -> CommitStyle {
        match committer.writeback {
            None => CommitStyle::Single,
            Some(_) => {
                let units_of_block = (ext4::BLOCK_BYTES as u64 / u64::from(self.geometry.journal.unit_bytes)).max(1);
                // A descriptor, the images, and the commit block.
                CommitStyle::Ordered { units_min: journal::clamp_units((blocks + 1) * units_of_block + 1) }
            }
        }
    }

    /// Writes metadata blocks of the imitated file system in place. Nothing depends on them, so their
    /// failures are not reported.
    fn write_back(&self, committer: &mut Committer, blocks: &[u64], journal_full: bool) {
        let Some(writeback) = &mut committer.writeback else { return };
        let now = self.env.now().as_nanos();
        self.last_commit_nanos.store(now, Ordering::Relaxed);
        writeback.committed(blocks, now);
        let due = writeback.due(now, journal_full);
        let length = self.geometry.block_bytes as usize;
        for chunk in due.chunks(64) {
            let mut bytes = journal::buffer(&self.device, length * chunk.len());
            for (block, bytes) in chunk.iter().zip(bytes.chunks_mut(length)) {
                ext4::label_block(bytes, *block);
            }
            let slices: Vec<[IoSlice<'_>; 1]> = bytes.chunks(length).map(|bytes| [IoSlice::new(bytes)]).collect();
            let mut requests: Vec<Request<'_>> = chunk
                .iter()
                .zip(&slices)
                .map(|(block, slices)| Request::write(block * self.geometry.block_bytes, slices))
                .collect();
            let _ = self.device.block.execute(&mut requests, &METADATA);
        }
    }

    /// Frees the blocks of files whose removal is durable, discarding them first where the device can.
    /// Called with the committer locked, so that nobody else discards.
    fn reclaim(&self, durable_change: u64) {
        let discarded = {
            let mut state = self.state.lock();
            state.reclaim(durable_change, self.discards);
            std::mem::take(&mut state.discards)
        };
        if discarded.is_empty() {
            return;
        }
        let block_bytes = self.geometry.block_bytes;
        let mut requests: Vec<Request<'_>> = discarded
            .iter()
            .map(|extent| Request::discard(extent.start * block_bytes, extent.blocks * block_bytes))
            .collect();
        // Advice: a device that fails it keeps the old bytes, which nobody reads.
        let _ = self.device.block.execute(&mut requests, &METADATA);
        let mut state = self.state.lock();
        for extent in discarded {
            let released = state.free.release(extent);
            assert!(released, "blocks are given back once");
        }
    }

    /// Commits and frees whatever can be freed now.
    fn make_room(&self) -> Result<(), StoreError> {
        let mut committer = self.committer.lock();
        self.commit_pending(&mut committer)
    }

    /// In the `ext4` layout, commits when the last commit is five seconds ago. There is no thread that
    /// does it: whoever comes next does.
    pub(super) fn tick(&self) -> Result<(), StoreError> {
        if !self.caches {
            return Ok(());
        }
        let now = self.env.now().as_nanos();
        let since = now.saturating_sub(self.last_commit_nanos.load(Ordering::Relaxed));
        if since < ext4::COMMIT_INTERVAL_NANOS {
            return Ok(());
        }
        self.last_commit_nanos.store(now, Ordering::Relaxed);
        let change = {
            let state = self.state.lock();
            state.has_pending().then(|| state.change())
        };
        match change {
            Some(change) => self.commit(change),
            None => Ok(()),
        }
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
        self.make_room()?;
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
            let mut state = self.state.lock();
            if !node.is_removed() {
                state.unsynced.insert(node.file, node.clone());
            }
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
            let others: Vec<_> = state.unsynced.values().map(|other| (other.clone(), other.written_bytes())).collect();
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
                state.unsynced.remove(&other.file);
            }
        }
        state.resize(node, own);
        Ok(())
    }

    /// What a clean end makes durable: everything that reached the device.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        self.check()?;
        let unsynced = self.state.lock().unsynced.values().next().cloned();
        if let Some(node) = unsynced {
            self.sync_unframed(&node, &METADATA)?;
        }
        let change = self.state.lock().change();
        self.commit(change)
    }
}
