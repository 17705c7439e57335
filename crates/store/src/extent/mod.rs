//! Files on a raw conventional device.
//!
//! The metadata (names, lengths, extents) is held in memory whole and kept on the device by a
//! [journal](crate::journal). Data lies in extents chosen by an [allocation policy](allocation).
//!
//! What is done in which order:
//!
//! - *Sync of a file that is not framed*: data, sync of the device, then one durable commit that tells
//!   its length (and everything changed before). A length never covers what others left on the device.
//! - *Sync of a log or manifest*, which is [framed](frame): one write of the sectors that changed and one
//!   sync of the device. A commit comes first only when blocks or the name are not yet durable.
//! - *Rename*: the data of the source, as above, and one commit; *remove*: a change that waits for the
//!   next commit.
//! - The blocks of a removed file are free once the commit of its removal is durable and its last
//!   reader is gone; they are discarded first where the device can.
//!
//! Changes are durable in the order in which they were made. After a failed sync or a failed commit the
//! store acknowledges nothing more until it is opened again; reads of what was durable go on, reads of
//! what was not are refused, because the device may have dropped it.
//!
//! In the [`ExtentLayout::Ext4`] layout no file is framed; flushed data stays in memory until it is
//! synced or fills a buffer, as in the page cache of a kernel that the store then stands for, and a sync
//! makes the transactions of a journaling file system (see [`ext4`]).
//!
//! *The medium's assumption*: a physical sector is written whole or not at all, and a write does not
//! disturb its neighbours.

mod allocation;
mod change;
mod check;
pub(crate) mod conformance;
mod ext4;
mod frame;
mod free_space;
mod geometry;
mod map;
mod node;
mod occupancy;
mod open_store;
mod reader;
mod recovery;
mod state;
mod writer;

#[cfg(test)]
mod tests;

pub use geometry::{Ext4Options, ExtentLayout};

use self::open_store::OpenStore;
use crate::error::StoreError;
use crate::file_store::{
    CreateOptions, FileEntry, FileKind, FileStore, Finding, Location, OpenOptions, ReadableFile, StoreLock,
    StoreProperties, WritableFile,
};
use crate::hint::Hint;
use crate::identity::block::Presence;
use crate::identity::{self, Identity, OpenedAs};
use crate::journal::{self, Formatting, JournalRegions, Region, SUPERBLOCK_RESERVED_BYTES, StoreKind};
use crate::kernel::RawStore;
use crate::occupancy::{Occupancy, StoreMeasure};
use change::encode_checkpoint;
use geometry::StoreGeometry;
use node::Node;
use reader::ExtentReader;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Counters, Device, IoContext, Space, SyncOrder};
use writer::ExtentWriter;

const KIND: StoreKind = StoreKind(*b"extent\0\0");

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
    let _ = StoreGeometry::decode(bytes, &journal, 64 << 20);
    let _ = change::decode_commit(bytes);
    let _ = change::decode_checkpoint(bytes);
    let _ = frame::FrameFormat { store_id: 1, frame_bytes: 512 }.open(bytes, 1, 0);
}

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    start: u64,
    blocks: u64,
}

/// How a device becomes an [`ExtentStore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentFormatOptions {
    /// Where files go.
    pub layout: ExtentLayout,
    /// Format although the device holds something: a store, or anything else.
    pub overwrite: bool,
    /// The caller has searched the device for marks of layers between its ends ([`find_layer_mark`](crate::find_layer_mark)), or has just
    /// made it: it is not searched again.
    pub is_searched: bool,
}

/// A [`FileStore`] on a raw conventional block device. See the module for the order of its steps.
///
/// One open at a time: nothing stops a second process from opening the same device, unless the device
/// itself refuses.
pub struct ExtentStore {
    core: Arc<OpenStore>,
}

impl ExtentStore {
    /// Makes an empty store on a device. Everything on it is lost.
    ///
    /// Errors: a device that is too small or has zones or tracks whose rules this store does not keep; without `overwrite` one that
    /// holds something, or belongs to a layer (relocation of zones, a write buffer) although its ends are blank.
    ///
    /// Cost: reads three mebibytes at the ends of a blank device, and, unless `is_searched`, up to 75 MiB before its end.
    pub fn format(env: &Env, device: &Device, options: &ExtentFormatOptions) -> Result<(), StoreError> {
        let label = device.block.name();
        refuse_unsuitable(label, device)?;
        let geometry = StoreGeometry::plan(label, device.block.geometry(), options.layout)?;
        if !options.overwrite {
            match journal::presence_on_device(device, label, &opened_as(device))? {
                Presence::Store => {
                    let reason = "the device holds a store; format with overwrite to lose it".to_owned();
                    return Err(StoreError::InvalidRequest { store: label.to_owned(), reason });
                }
                Presence::Blank if !options.is_searched => identity::refuse_layer(device, label, &opened_as(device))?,
                Presence::Blank | Presence::Unfinished => {}
            }
        }
        // Two formats in one simulation draw at different times.
        let mut random = env.random(&format!("store id {label} {}", env.now().as_nanos()));
        let store_id = random.next_u64();
        let identity = Identity::alone(&mut random, opened_as(device).shape);
        let formatting = Formatting::begin(device, label, KIND, store_id, identity)?;
        if device.block.capabilities().discard {
            // What says that a store is being made stays.
            let length = geometry.blocks * geometry.block_bytes - SUPERBLOCK_RESERVED_BYTES;
            let mut request = [varve_media::Request::discard(SUPERBLOCK_RESERVED_BYTES, length)];
            // Advice, as every discard of this store.
            let _ = device.block.execute(&mut request, &IoContext::of(varve_media::IoClass::Metadata));
        }
        let empty = encode_checkpoint(1, [].iter());
        formatting.finish(&geometry.journal, &geometry.encode(), &empty)
    }

    /// Whether a store of this kind is on the device: `Ok(false)` when the device is blank, or has what a format left
    /// behind that was interrupted; an error when something else is there, what is there cannot be read, or the store
    /// is damaged.
    pub fn probe(device: &Device) -> Result<bool, StoreError> {
        let presence = journal::presence_on_device(device, device.block.name(), &opened_as(device))?;
        Ok(presence == Presence::Store)
    }

    /// Opens the store on a device, after a clean end or a crash.
    ///
    /// Errors: [`StoreError::Foreign`] when there is none or another version's, [`StoreError::Corruption`]
    /// when its metadata is damaged, [`StoreError::Unreadable`] when the end of its metadata or of a log cannot be
    /// read: then nothing was written. All name offset, expected, found and what to do.
    pub fn open(env: &Env, device: Device) -> Result<ExtentStore, StoreError> {
        ExtentStore::read(env, device, Vec::new())?.begin()
    }

    /// Reads the store on a device; writes nothing. Once a sync of `beneath` has failed, whoever synced, nothing more is
    /// acknowledged: those of the disks that the device is a part of.
    pub(crate) fn read(
        env: &Env,
        device: Device,
        beneath: Vec<Arc<SyncOrder>>,
    ) -> Result<UnbegunExtentStore, StoreError> {
        refuse_unsuitable(device.block.name(), &device)?;
        recovery::read(env, device, beneath).map(UnbegunExtentStore)
    }

    /// What [`check`](FileStore::check) would say about a device whose store cannot be opened, or is not open.
    pub fn inspect(device: &Device) -> Vec<Finding> {
        check::inspect(device)
    }
}

/// A store of which everything was read, and on which nothing was written.
pub(crate) struct UnbegunExtentStore(recovery::Unbegun);

impl UnbegunExtentStore {
    /// Opens it.
    pub(crate) fn begin(self) -> Result<ExtentStore, StoreError> {
        self.0.begin().map(|core| ExtentStore { core: Arc::new(core) })
    }
}

fn opened_as(device: &Device) -> OpenedAs {
    OpenedAs::new(KIND, device)
}

/// Refuses media whose rules this store does not keep.
fn refuse_unsuitable(label: &str, device: &Device) -> Result<(), StoreError> {
    let capabilities = device.block.capabilities();
    let zones = capabilities.zones.as_ref();
    let reason = if zones.is_some_and(|zones| !zones.can_be_written_anywhere()) {
        "a device with zones needs a store that writes at their write pointers"
    } else if capabilities.tracks.is_some() {
        "a device with interlaced tracks needs a store that keeps their neighbours"
    } else {
        return Ok(());
    };
    Err(StoreError::InvalidRequest { store: label.to_owned(), reason: reason.to_owned() })
}

impl FileStore for ExtentStore {
    fn name(&self) -> &str {
        &self.core.label
    }

    fn properties(&self) -> &StoreProperties {
        &self.core.properties
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let core = &self.core;
        core.begin_change(name)?;
        let framed = !core.caches && matches!(options.kind, FileKind::Log | FileKind::Manifest);
        let created = core.state.lock().create(name, |file| Node::new(&core.env, file, framed));
        let node = created.map_err(|_| core.no_metadata_space(name))?;
        Ok(Box::new(ExtentWriter::new(core.clone(), node, name, options)))
    }

    fn open(&self, name: &str, _options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let node = self.core.find(name)?;
        Ok(Arc::new(ExtentReader::new(self.core.clone(), node, name)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.core.rename_file(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.core.remove_file(name)
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.core.commit_names()
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        Ok(self.core.state.lock().names.entries(|node| node.flushed_bytes()))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        self.core.lock_name(name)
    }

    fn share(&self, name: &str, _target: &Location, target_name: &str) -> Result<bool, StoreError> {
        self.core.refuse_to_share(name, target_name)
    }

    fn space(&self) -> Result<Space, StoreError> {
        let core = &self.core;
        let available = core.state.lock().available_blocks();
        let available_bytes = available * core.geometry.block_bytes;
        // A table may have all there is.
        let (total_bytes, block_bytes) = (core.properties.table_bytes_max, core.geometry.block_bytes);
        Ok(Space { total_bytes, available_bytes, reserve_bytes: 0, block_bytes, zones: None })
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        // Nothing is held without need.
        Ok(false)
    }

    fn hint(&self, _hint: &Hint<'_>) {}

    fn counters(&self) -> Vec<(String, Counters)> {
        vec![(self.core.device.block.name().to_owned(), self.core.device.block.counters())]
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        self.core.measures()
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        let geometry = &self.core.geometry;
        let zone = geometry.log_zone.end - geometry.log_zone.start;
        vec![
            ("layout", geometry.layout.name().to_owned()),
            ("blocks", format!("{} of {} bytes", geometry.blocks, geometry.block_bytes)),
            ("log zone", format!("{} bytes", zone * geometry.block_bytes)),
        ]
    }

    fn occupancy(&self) -> Occupancy {
        occupancy::occupancy(&self.core)
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(check::check(&self.core))
    }
}

impl Drop for ExtentStore {
    fn drop(&mut self) {
        // Nobody is left to tell; what was synced is safe without it.
        let _ = self.core.close();
    }
}
