//! Tables on interlaced disks (Liang et al., "KVIMR: Key-Value Store Aware Data Management Middleware
//! for Interlaced Magnetic Recording Based Hard Disk Drive", ATC 2021).
//!
//! A table goes to whole tracks, chosen by an [allocation policy](allocation); a track holds data of one
//! table. Writing a bottom track destroys what its neighbouring tops hold, so tops that count are saved
//! first and restored afterwards, in the [steps](rewrite) of the paper. Everything that is not a table
//! lies in a store of [`extent`](crate::extent), on a [device of logs](devices) beside the disk or on reserved
//! top tracks, which may be written freely.
//!
//! The parts have the paper's names. The *S2TMap* maps every name to a file and a table to its tracks; it
//! is held in memory whole and kept by a [journal](crate::journal) in one of these places, and it names the
//! small files too, so that a rename is one commit whatever is renamed. The *track bitmap* follows from
//! it. The *write buffer* holds a table until it is synced. [Reading](reader), [writing](writer), [syncing](persist) and
//! unlinking are its handlers.
//!
//! What is done in which order:
//!
//! - *Sync of a table*: its tracks are written, with the syncs of the rewrite and no other; then one
//!   durable commit of the S2TMap says where it is.
//! - *Sync of another file*: that of the `extent` store; a commit of the S2TMap only when the name is not
//!   yet durable.
//! - *Rename*: the source is synced, then one commit; *remove*: a change that waits for the next commit.
//!   The tracks of a removed table stay valid until that commit is durable and its last reader is gone.
//! - *A power cut during a rewrite*: the backup region holds an [intent](intent) and the copies, durable
//!   before the first bottom was written; the next open [replays](recovery) it.
//!
//! A conventional disk that is told a track size has the same tracks in the same order, of which none
//! endangers another: every policy runs on it unchanged, and nothing is ever rewritten (the paper's CMR).
//!
//! After a failed sync of a device or a failed commit the store acknowledges nothing more until it is
//! opened again; reads of what was durable go on.
//!
//! *The medium's assumption*: a physical sector is written whole or not at all, and a write disturbs
//! nothing but the same span of the tops beside a bottom.

mod allocation;
mod beside;
mod bitmap;
mod change;
mod check;
pub(crate) mod conformance;
mod devices;
mod format;
mod geometry;
mod intent;
mod layout;
mod map;
mod node;
mod occupancy;
mod open_store;
mod persist;
mod presence;
mod reader;
mod recovery;
mod relocation;
mod rewrite;
mod state;
mod statistics;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub use allocation::{AllocationName, CostTerm};
pub use devices::{ImrDevices, ImrPlace, ImrPlacement};
pub use rewrite::RewriteName;
pub use statistics::ImrStatistics;

use self::open_store::{OpenStore, named};
use crate::error::StoreError;
use crate::file_store::{
    CreateOptions, FileEntry, FileKind, FileStore, Finding, Location, OpenOptions, ReadableFile, StoreLock,
    StoreProperties, WritableFile,
};
use crate::hint::{Hint, HintedFile};
use crate::journal::{JournalRegions, Region, StoreKind};
use crate::kernel::{CommitCounts, RawStore, StoreState};
use crate::occupancy::{Occupancy, StoreMeasure};
use geometry::StoreGeometry;
use node::{Node, packed_name};
use reader::{PackedReader, TableReader};
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Counters, Device, Space};
use writer::{PackedWriter, TableWriter};

const KIND: StoreKind = StoreKind(*b"imr\0\0\0\0\0");
/// Of the device beside the disk.
const LOGS_KIND: StoreKind = StoreKind(*b"imr-logs");

/// Runs every decoder of this store on bytes that may be anything.
pub(crate) fn decode_anything(bytes: &[u8]) {
    let region = |offset_bytes, length_bytes| Region { offset_bytes, length_bytes };
    let journal = JournalRegions {
        log: region(128 << 10, 128 << 10),
        checkpoints: [region(256 << 10, 64 << 10), region(320 << 10, 64 << 10)],
        unit_bytes: 512,
        group_zones: 0,
        groups: 0,
    };
    let _ = StoreGeometry::decode(bytes, &journal);
    let _ = beside::decode(bytes, &journal, 64 << 20);
    let _ = change::decode_commit(bytes);
    let _ = change::decode_checkpoint(bytes);
    let _ = intent::Intent::decode(bytes);
}

/// Decodes bytes as parts of the S2TMap. What is taken says the same when it is written again.
pub(crate) fn decode_map(bytes: &[u8]) {
    if let Ok(changes) = change::decode_commit(bytes) {
        let mut writer = crate::wire::Writer::default();
        changes.iter().for_each(|change| change::encode_change(&mut writer, change));
        assert_eq!(writer.as_slice(), bytes, "a commit that reads otherwise than it was written");
    }
    if let Ok(checkpoint) = change::decode_checkpoint(bytes) {
        assert_eq!(change::encode_checkpoint(&checkpoint), bytes, "a checkpoint that reads otherwise than written");
        let geometry = varve_media::TrackGeometry::fit(1 << 30, 64 << 10, 64 << 10);
        for (record, geometry) in checkpoint.files.into_iter().zip(geometry.iter().cycle()) {
            if let Some(map) = map::TrackMap::new(geometry, record.tracks, record.size_bytes) {
                let used: u64 = map.used().map(|(_, used)| used).sum();
                assert_eq!(used, record.size_bytes, "tracks that hold more or less than the file");
                assert!(map.full().1 <= record.size_bytes);
            }
        }
    }
}

/// Decodes bytes as an intent, as they are and with the frame it must have to be looked at at all.
pub(crate) fn decode_intent(bytes: &[u8]) {
    let _ = intent::Intent::decode(bytes);
    let framed = intent::framed(bytes);
    if let Some(found) = intent::Intent::decode(&framed) {
        assert!(framed.starts_with(&found.encode()), "an intent that reads otherwise than it was written");
    }
}

/// How a disk becomes an [`ImrStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImrFormatOptions {
    /// Which tracks a table gets, unless the open says otherwise.
    pub allocation: AllocationName,
    /// How tops are saved, unless the open says otherwise.
    pub rewrite: RewriteName,
    /// Largest table for which all tops are saved at once; larger ones take more syncs. `None`: a 256th
    /// of the disk, at most 96 MiB. The backup region takes twice this for each of `persists_max`.
    pub table_bytes_max: Option<u64>,
    /// Tables whose tops can be saved at the same time; others wait.
    pub persists_max: u8,
    /// Space for all files that are not tables. `None`: a 32nd of the disk, from 4 MiB to 2 GiB. Without
    /// effect when they lie on a device of their own, which they have whole.
    pub small_files_bytes: Option<u64>,
    /// Bytes of a track of a conventional disk, which has none by itself. Must be absent for an interlaced one.
    pub conventional_track_bytes: Option<u64>,
    /// Where the S2TMap lies when there is a device beside the disk; without one, inside.
    pub map: ImrPlace,
    /// Format although the disk holds something: a store, or anything else.
    pub overwrite: bool,
    /// The caller has searched the devices for marks of layers between their ends ([`find_layer_mark`](crate::find_layer_mark)), or has just
    /// made them: they are not searched again.
    pub is_searched: bool,
}

impl Default for ImrFormatOptions {
    fn default() -> Self {
        ImrFormatOptions {
            allocation: AllocationName::default(),
            rewrite: RewriteName::default(),
            table_bytes_max: None,
            persists_max: 2,
            small_files_bytes: None,
            conventional_track_bytes: None,
            map: ImrPlace::Beside,
            overwrite: false,
            is_searched: false,
        }
    }
}

/// What an open may change; `None` is what the disk was formatted with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImrOpenOptions {
    /// Which tracks a table gets.
    pub allocation: Option<AllocationName>,
    /// How tops are saved.
    pub rewrite: Option<RewriteName>,
    /// How tracks are written.
    pub track_writes: TrackWrites,
}

/// How the tracks of one step are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrackWrites {
    /// Those that do not border on each other by forced unit access, as many at once as the disk's queue takes, where the
    /// disk can ([`varve_media::Capabilities::forced_unit_access`]): it then writes next what is nearest, where its cache would
    /// be written back by address, with half a revolution lost at each gap.
    #[default]
    Forced,
    /// All through the disk's cache, and a sync behind them (KVIMR section 3.3).
    Cached,
}

/// A [`FileStore`] on an interlaced disk, or in the same way on a conventional one. See the module for the order of its steps.
///
/// One open at a time: nothing stops a second process from opening the same disk, unless the device
/// itself refuses. Memory: tables that are being written, whole, and about 100 bytes for each track in use.
pub struct ImrStore {
    core: Arc<OpenStore>,
}

impl ImrStore {
    /// Makes an empty store on a disk, and on the device of its logs if there is one. Everything on them is
    /// lost.
    ///
    /// Errors: a device with zones, or too small; tracks said of an interlaced disk or not said of a
    /// conventional one; one that holds something, without `overwrite`.
    pub fn format(env: &Env, devices: impl Into<ImrDevices>, options: &ImrFormatOptions) -> Result<(), StoreError> {
        format::format(env, &devices.into(), options)
    }

    /// Whether a store of this kind is on a disk: `Ok(false)` when the disk is blank, or has what a format left behind
    /// that was interrupted; an error when something else is there, what is there cannot be read, or the store is
    /// damaged.
    pub fn probe(disk: &Device) -> Result<bool, StoreError> {
        ImrStore::placement(disk).map(|placement| placement.is_some())
    }

    /// What of the store on a disk lies where, and the bytes of its device of logs (0 when there is none); `None`
    /// when there is no store. Errors as [`ImrStore::probe`].
    pub fn placement(disk: &Device) -> Result<Option<(ImrPlacement, u64)>, StoreError> {
        devices::placement(disk)
    }

    /// Bytes a device of logs should have for a disk formatted with these options.
    ///
    /// Errors: as [`ImrStore::format`] for the tracks.
    pub fn logs_bytes(disk: &Device, options: &ImrFormatOptions) -> Result<u64, StoreError> {
        format::logs_bytes(disk, options)
    }

    /// Opens the store on a disk and the device of its logs, after a clean end or a crash; finishes rewrites
    /// that a crash interrupted.
    ///
    /// Errors: [`StoreError::Foreign`] when there is none, another version's, one for other tracks, or when the
    /// two devices are not a pair, [`StoreError::Corruption`] when its metadata is damaged; both name offset,
    /// expected, found and what to do.
    pub fn open(env: &Env, devices: impl Into<ImrDevices>, options: &ImrOpenOptions) -> Result<ImrStore, StoreError> {
        recovery::open(env, &devices.into(), options).map(|core| ImrStore { core: Arc::new(core) })
    }

    /// What [`check`](FileStore::check) would say about devices whose store cannot be opened, or is not open.
    pub fn inspect(devices: impl Into<ImrDevices>) -> Vec<Finding> {
        check::inspect(&devices.into())
    }

    /// What it did since it was opened.
    pub fn statistics(&self) -> ImrStatistics {
        let CommitCounts { commits, commit_bytes, checkpoints } = self.core.commit_counts();
        ImrStatistics { commits, commit_bytes, checkpoints, ..*self.core.statistics.lock() }
    }

    fn note_level(&self, file: &HintedFile) {
        if let Some(level) = file.level {
            self.core.state.lock().note_level(&file.name, level);
        }
    }
}

impl OpenStore {
    /// A node for a new file, without a name.
    fn new_node(&self, name: &str, is_packed: bool) -> Result<Arc<Node>, StoreError> {
        let mut state = self.state.lock();
        if !state.has_space(Some(name), state.promised_tracks) {
            return Err(self.no_metadata_space(name));
        }
        Ok(Arc::new(Node::new(&self.env, state.number(), is_packed)))
    }
}

impl FileStore for ImrStore {
    fn name(&self) -> &str {
        &self.core.label
    }

    fn properties(&self) -> &StoreProperties {
        &self.core.properties
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let core = &self.core;
        core.begin_change(name)?;
        let node = core.new_node(name, options.kind != FileKind::Table)?;
        node.set_level(options.level);
        if !node.is_packed {
            core.state.lock().name_new(name, &node);
            return Ok(Box::new(TableWriter::new(core.clone(), node, name, options)));
        }
        let writer = core.packed_files.create(&packed_name(node.file), options).map_err(|error| named(error, name))?;
        core.state.lock().name_new(name, &node);
        let keeps_name = matches!(options.kind, FileKind::Log | FileKind::Manifest);
        Ok(Box::new(PackedWriter::new(core.clone(), node, name, writer, keeps_name)))
    }

    fn open(&self, name: &str, options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let core = &self.core;
        core.check_name(name)?;
        // A small file that loses its name may be gone before it is opened; then another has the name, or none.
        loop {
            let node = core.find(name)?;
            if !node.is_packed {
                return Ok(Arc::new(TableReader::new(core.clone(), node, name)));
            }
            match core.packed_files.open(&packed_name(node.file), options) {
                Ok(inner) => return Ok(Arc::new(PackedReader::new(core.clone(), node, name, inner))),
                Err(_) if node.is_removed() => {}
                Err(error) => return Err(named(error, name)),
            }
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.core.rename_file(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.core.remove_file(name)
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.core.check()?;
        // A name without its small file would not be found again.
        self.core.packed_files.sync_names()?;
        self.core.commit_all()
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        let sizes: BTreeMap<String, u64> =
            self.core.packed_files.list()?.into_iter().map(|entry| (entry.name, entry.size_bytes)).collect();
        Ok(self.core.state.lock().names.entries(|node| match node.is_packed {
            true => sizes.get(&packed_name(node.file)).copied().unwrap_or(0),
            false => node.flushed_bytes(),
        }))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        self.core.packed_files.lock(name)
    }

    fn share(&self, name: &str, _target: &Location, target_name: &str) -> Result<bool, StoreError> {
        self.core.refuse_to_share(name, target_name)
    }

    /// Of tables: small files have space of their own.
    fn space(&self) -> Result<Space, StoreError> {
        let core = &self.core;
        let tracks = &core.geometry.tracks;
        let state = core.state.lock();
        let (bottoms, tops) = state.valid.tier_counts();
        let valid_bytes = bottoms * tracks.bottom_track_bytes + tops * tracks.top_track_bytes;
        let reclaimable_bytes: u64 = state.reclaimable().into_iter().map(|track| tracks.length_bytes(track)).sum();
        let total_bytes = core.geometry.usable_bytes();
        let available_bytes = (total_bytes + reclaimable_bytes).saturating_sub(valid_bytes);
        let block_bytes = tracks.bottom_track_bytes.max(tracks.top_track_bytes);
        Ok(Space { total_bytes, available_bytes, reserve_bytes: 0, block_bytes, zones: None })
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        // Nothing is held without need.
        Ok(false)
    }

    fn hint(&self, hint: &Hint<'_>) {
        match hint {
            Hint::FlushEnd { outputs, .. } | Hint::CompactionEnd { outputs, .. } => {
                outputs.iter().for_each(|file| self.note_level(file));
            }
            Hint::CompactionOutput { output: file, .. } | Hint::LevelChanged { file } => self.note_level(file),
            Hint::FlushBegin { .. }
            | Hint::CompactionBegin { .. }
            | Hint::BlockRewritten { .. }
            | Hint::RecordRewritten { .. }
            | Hint::CacheEvicted { .. } => {}
        }
    }

    fn counters(&self) -> Vec<(String, Counters)> {
        let disks = std::iter::once(&self.core.disk).chain(self.core.beside.as_ref().map(|beside| &beside.device));
        disks.map(|disk| (disk.block.name().to_owned(), disk.block.counters())).collect()
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        ImrStore::statistics(self).measures()
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        layout::layout(&self.core)
    }

    fn occupancy(&self) -> Occupancy {
        occupancy::occupancy(&self.core)
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        check::check(&self.core)
    }
}

impl Drop for ImrStore {
    fn drop(&mut self) {
        // Nobody is left to tell; what was synced is safe without it.
        let _ = self.core.close();
    }
}
