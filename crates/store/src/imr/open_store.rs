//! What the store, its writers and its readers share: commits, and what follows from them.

use super::ImrStatistics;
use super::allocation::{AllocationName, AllocationPolicy};
use super::devices::Beside;
use super::geometry::StoreGeometry;
use super::node::{Node, SpareBuffers, packed_name};
use super::relocation::Relocations;
use super::rewrite::RewriteName;
use super::state::{ImrState, Reclaimed};
use super::view::Disk;
use crate::error::StoreError;
use crate::extent::ExtentStore;
use crate::file_store::{FileStore, StoreProperties};
use crate::journal::Journal;
use crate::kernel::{Kernel, RawStore};
use parking_lot::Mutex as ShortMutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use varve_env::{Condvar, MutexGuard};
use varve_media::{Device, IoContext, TrackControl, TrackId, TrackTier};

pub(super) struct OpenStore {
    pub(super) kernel: Kernel<ImrState>,
    pub(super) properties: StoreProperties,
    pub(super) geometry: StoreGeometry,
    pub(super) store_id: u64,
    pub(super) disk: Arc<Disk>,
    /// None of a conventional disk.
    pub(super) control: Option<Arc<dyn TrackControl>>,
    /// The store's own part of the disk as one device: where intents are written.
    pub(super) own: Device,
    pub(super) beside: Option<Beside>,
    /// On the device without the S2TMap.
    pub(super) anchor: Option<Journal>,
    /// Bytes of the log and the checkpoints of the S2TMap.
    pub(super) map_bytes: u64,
    /// Bytes of the device of small files.
    pub(super) small_files_bytes: u64,
    /// Small files without a name wait for a commit to give their space back.
    pub(super) packed_waits: Arc<AtomicBool>,
    /// Everything that is not a table.
    pub(super) packed_files: ExtentStore,
    pub(super) policy: Box<dyn AllocationPolicy>,
    pub(super) allocation: AllocationName,
    pub(super) rewrite: RewriteName,
    /// Tracks with gaps between them are durable when they are written, so many at once; none otherwise.
    pub(super) forced_at_once: Option<u32>,
    /// A persist ended, or nothing will any more.
    pub(super) released: Condvar,
    pub(super) relocations: ShortMutex<Relocations>,
    pub(super) spare_buffers: SpareBuffers,
    pub(super) statistics: ShortMutex<ImrStatistics>,
    /// Times each track was restored after a neighbour was written, by its number.
    pub(super) restores: Vec<AtomicU32>,
}

impl Deref for OpenStore {
    type Target = Kernel<ImrState>;

    fn deref(&self) -> &Kernel<ImrState> {
        &self.kernel
    }
}

impl OpenStore {
    /// Refuses what the store refuses, and what a file has failed for.
    pub(super) fn check_node(&self, node: &Node) -> Result<(), StoreError> {
        self.check()?;
        node.failure().map_or(Ok(()), |cause| Err(self.latch.refusal(cause)))
    }

    /// Makes every write that has completed durable.
    pub(super) fn sync_disk(&self, context: &IoContext) -> Result<(), StoreError> {
        self.check()?;
        self.latch.sync(context).map_err(|error| self.poison(error))
    }

    /// Lets go of removed small files when what is about to be written might need their space.
    pub(super) fn free_packed_space(&self, more_bytes: u64) -> Result<(), StoreError> {
        if !self.packed_waits.load(Ordering::Relaxed) {
            return Ok(());
        }
        let space = self.packed_files.space()?;
        if space.available_bytes >= more_bytes.max(space.total_bytes / 8) {
            return Ok(());
        }
        self.packed_waits.store(false, Ordering::Relaxed);
        self.commit_all()
    }

    /// Tells the device that a track holds nothing that counts.
    pub(super) fn mark_free(&self, track: TrackId) {
        if self.geometry.tracks.tier(track) == TrackTier::Top {
            // It fails only for tracks that are not there.
            let _ = self.control.as_ref().map(|control| control.mark_free(track));
        }
    }

    /// Makes a file durable: contents, length, name.
    pub(super) fn sync_node(&self, node: &Arc<Node>, name: &str, context: &IoContext) -> Result<(), StoreError> {
        if !node.is_packed {
            return self.persist(node, name, context);
        }
        self.check()?;
        let packed = packed_name(node.file);
        let size_bytes = self.packed_size(node);
        // Syncs the file without its writer.
        self.packed_files.rename(&packed, &packed).map_err(|error| named(error, name))?;
        node.set_durable_bytes(size_bytes);
        self.commit(node.needed_change())
    }

    fn packed_size(&self, node: &Node) -> u64 {
        let reader = self.packed_files.open(&packed_name(node.file), &crate::file_store::OpenOptions::default());
        reader.map_or(0, |reader| reader.size_bytes())
    }

    /// What a clean end makes durable: everything that was flushed.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        self.check()?;
        let unsynced: Vec<(String, Arc<Node>)> = {
            let state = self.state.lock();
            let is_unsynced = |node: &Node| node.flushed_bytes() > node.map().size_bytes();
            let names = state.names.iter().filter(|(_, node)| is_unsynced(node));
            names.map(|(name, node)| (name.clone(), node.clone())).collect()
        };
        for (name, node) in unsynced {
            self.persist(&node, &name, &IoContext::default())?;
        }
        self.commit_all()
    }
}

impl RawStore for OpenStore {
    type State = ImrState;

    fn reclaim(&self, mut state: MutexGuard<'_, ImrState>, free: Vec<Arc<Node>>, durable_change: u64) {
        let Reclaimed { tracks, small_files } = state.reclaim(&free, durable_change);
        // Before anybody else can be given the track. What a persist is about to restore is marked when it ends.
        for track in tracks {
            if !state.locks.is_exclusive(track) {
                self.mark_free(track);
            }
        }
        drop(state);
        for file in small_files {
            // One that stays is removed by the next open: no name leads to it.
            let _ = self.packed_files.remove(&packed_name(file));
        }
    }

    /// Passes an error on and refuses everything from now on.
    fn poison(&self, error: StoreError) -> StoreError {
        let error = self.latch.close(error);
        // Whoever waits for tracks waits in vain. The lock makes sure that it waits already or will see.
        drop(self.state.lock());
        self.released.notify_all();
        error
    }

    fn sync_file(&self, node: &Arc<Node>, name: &str, context: &IoContext) -> Result<(), StoreError> {
        self.sync_node(node, name, context)
    }
}

/// An error of the store of small files under the name its file has here.
pub(super) fn named(error: StoreError, to: &str) -> StoreError {
    let to = to.to_owned();
    match error {
        StoreError::NotFound { store, .. } => StoreError::NotFound { store, name: to },
        StoreError::PastEnd { store, offset_bytes, length_bytes, size_bytes, .. } => {
            StoreError::PastEnd { store, name: to, offset_bytes, length_bytes, size_bytes }
        }
        StoreError::NoSpace { store, requested_bytes, available_bytes, zones, .. } => {
            StoreError::NoSpace { store, name: to, requested_bytes, available_bytes, zones }
        }
        StoreError::Media { store, error, .. } => StoreError::Media { store, name: to, error },
        other => other,
    }
}
