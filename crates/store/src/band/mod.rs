//! Files on a zoned device, without a file system (Pitchumani, Hughes and Miller, "SMRDB: Key-Value Data Store for
//! Shingled Magnetic Recording Disks", SYSTOR 2015).
//!
//! The conventional zones at the start of the device are the paper's *random-access region*: a
//! [journal](crate::journal) with the *band table* lies there and nothing else. A device without any, as a namespace of zones, has
//! it in its first zones, generation after generation. Every other zone is a *band*. A table
//! has bands of its own, written once in order: one, where bands have the size of tables as in the paper; or, where the
//! store was formatted for tables of several, as many as its bytes need, one behind the other where that can be (the
//! variable size and partial allocation of the paper's section 7). Everything else is *small*: [frames](frame) of all
//! small files follow each other in *log bands*, in the order in which they were flushed, so that a sync of a log is
//! one write at the pointer and one sync of the device, and touches no metadata.
//!
//! What is done in which order:
//!
//! - *Sync of a table*: what is left of it, sync of the device, then one durable commit of its fragments (and everything
//!   changed before).
//! - *Sync of a small file*: its frame, and one sync of the device. A commit only when the name is not yet durable.
//! - Of a file that has a part in a zone that died before it was synced, every sync is refused.
//! - *A new log band*: the one before it is made durable; one commit says that it is sealed and the new one begun, and how
//!   long every small file is. So only the last log band can be torn by a crash. After an [open](recovery) every log band
//!   is sealed, except one of which something cannot be read.
//! - *Rename*: the source is synced, then one commit; *remove*: a change that waits for the next commit.
//! - *A band is free* once the commit that gave it up is durable and the last reader is gone. It is reset when it is
//!   taken again. Log bands in which little lives are [emptied](cleaning) by copies, which are durable before it is
//!   given up.
//! - *A failed write*: when nothing arrived it is repeated once; then, or when something did, what follows goes to
//!   [another band](bands). Bands whose zone the device gave up are retired for good. What an append to a small file
//!   leaves behind that fails for good is [cut off](logs).
//! - *Active zones*: where the device limits them, tables leave one to the log, and a zone that is not written any more
//!   counts until it is finished.
//!
//! What is lost of a log band, with its zone or by bad sectors, costs the files that had something there: they are read
//! up to the first byte that is missing. When the band was being written nobody knows who had something behind the loss:
//! files of that time without a frame behind it are not read at all, so that their beginning is not taken for all of
//! them.
//!
//! Which band is taken, and for whom the last ones are kept, is a [policy](allocation). The paper's log is a buffer
//! of 1 MiB in memory that is written to the log bands when it is full; trees have it (`log_buffer_size`), and every
//! flush writes what they hand over.
//!
//! After a failed sync of the device or a failed commit the store acknowledges nothing more until it is opened again;
//! reads of what was durable go on.
//!
//! *The medium's assumption*: a physical sector is written whole or not at all; zones behave as
//! [`ZoneControl`](varve_media::ZoneControl) says: what lies below the write pointer and was not synced may be torn by
//! a power cut, what was synced stays until the zone is reset.

mod allocation;
mod bands;
mod change;
mod check;
mod cleaning;
pub(crate) mod conformance;
mod device_files;
mod fragments;
mod frame;
mod geometry;
mod lifetimes;
mod log_writer;
mod logs;
mod node;
mod occupancy;
mod open_store;
mod pieces;
mod pool;
mod reader;
mod recovery;
mod scan;
mod shared;
mod sharing;
mod state;
mod statistics;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use self::change::Stamp;
pub(crate) use self::device_files::{DeviceFile, DeviceFiles, DeviceWriter, MountedFiles};
pub(crate) use self::geometry::Reserve;
pub(crate) use self::lifetimes::Lifetimes;
pub(crate) use self::shared::{Sharing, TableOrigin};
pub(crate) use self::sharing::Need;

use self::open_store::OpenStore;
use crate::error::StoreError;
use crate::file_store::{
    CreateOptions, FileEntry, FileKind, FileStore, Finding, Location, OpenOptions, ReadableFile, StoreLock,
    StoreProperties, WritableFile,
};
use crate::hint::Hint;
use crate::identity::block::Presence;
use crate::identity::{Identity, OpenedAs};
use crate::journal::{self, Formatting, JournalRegions, Region, StoreKind};
use crate::kernel::RawStore;
use crate::occupancy::{Occupancy, StoreMeasure};
use allocation::Purpose;
use change::{Checkpoint, encode_checkpoint};
use geometry::StoreGeometry;
use log_writer::LogWriter;
use reader::BandReader;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Counters, Device, Space};
use writer::TableWriter;

const KIND: StoreKind = StoreKind(*b"band\0\0\0\0");
/// Outputs of compactions for which bands are kept, unless something else is said.
const RESERVE_TABLES: u16 = 2;

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
    if let Ok(geometry) = StoreGeometry::decode(bytes, &journal, 64 << 20) {
        assert_eq!(geometry.encode(), bytes, "parameters that read otherwise than they were written");
    }
    decode_table(bytes);
    decode_frame(bytes);
}

/// Decodes bytes as parts of the band table. What is taken says the same when it is written again.
pub(crate) fn decode_table(bytes: &[u8]) {
    if let Ok(changes) = change::decode_commit(bytes) {
        let mut writer = crate::wire::Writer::default();
        changes.iter().for_each(|change| change::encode_change(&mut writer, change));
        assert_eq!(writer.as_slice(), bytes, "a commit that reads otherwise than it was written");
    }
    if let Ok(checkpoint) = change::decode_checkpoint(bytes) {
        assert_eq!(encode_checkpoint(&checkpoint), bytes, "a checkpoint that reads otherwise than it was written");
    }
}

/// Decodes bytes as a frame, as they are and with a header whose checksum is right.
pub(crate) fn decode_frame(bytes: &[u8]) {
    let format = frame::FrameFormat { store_id: 1, unit_bytes: 512 };
    let _ = format.open(bytes);
    let Some((fields, payload)) = bytes.split_at_checked(32).filter(|(_, payload)| !payload.is_empty()) else { return };
    let payload = &payload[..payload.len().min(frame::FRAME_BYTES_MAX - frame::HEADER_BYTES)];
    let number = |at: usize| fields[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let header = frame::FrameHeader {
        is_copy: bytes[0] & 1 == 1,
        file: number(0),
        offset_bytes: number(8),
        sequence: number(16),
        durable_sequence: number(24),
    };
    let mut framed = vec![0; format.frame_bytes(payload.len())];
    framed[frame::HEADER_BYTES..frame::HEADER_BYTES + payload.len()].copy_from_slice(payload);
    format.seal(&mut framed, &header, payload.len());
    if let Some(opened) = format.open(&framed) {
        assert_eq!((opened.header, opened.payload), (header, payload), "a frame that reads otherwise than written");
    }
}

/// How a device becomes a [`BandStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandFormatOptions {
    /// Outputs of compactions for which bands are kept, so that those can always finish; 1 or more. As many as one more
    /// table has are kept for the store's own use.
    pub reserve_tables: u16,
    /// Size of the tables that trees are told to make, rounded up to whole zones; unset is one zone. Each table has a *band
    /// of variable size*: as many zones as its bytes need, one behind the other where that can be (SMRDB, section 7).
    pub table_bytes: Option<u64>,
    /// Format although the device holds something: a store, or anything else.
    pub overwrite: bool,
}

impl Default for BandFormatOptions {
    fn default() -> Self {
        BandFormatOptions { reserve_tables: RESERVE_TABLES, table_bytes: None, overwrite: false }
    }
}

/// A [`FileStore`] on a zoned device. See the module for the order of its steps.
///
/// One open at a time: nothing stops a second process from opening the same device, unless the device itself refuses.
pub struct BandStore {
    core: Arc<OpenStore>,
}

impl BandStore {
    /// Makes an empty store on a device. Everything on it is lost; its zones are reset when they are used.
    ///
    /// Errors: a device without zones, or whose conventional zones at its start are not large enough; one with too
    /// few zones, or that lets too few be active; a reserve of 0; one that holds something, without `overwrite`.
    pub fn format(env: &Env, device: &Device, options: &BandFormatOptions) -> Result<(), StoreError> {
        let label = device.block.name();
        recovery::zones_of(label, device)?;
        let capabilities = device.block.capabilities();
        let zones = capabilities.zones.as_ref().ok_or_else(|| StoreError::InvalidRequest {
            store: label.to_owned(),
            reason: "the device does not say what its zones are".to_owned(),
        })?;
        let of_metadata = u32::from(journal::lies_in_zones(zones));
        recovery::check_active_zones(label, zones.active_zones_max, of_metadata, geometry::ACTIVE_ALONE)?;
        let reserve = Reserve { compaction_tables: options.reserve_tables, log_bands: None };
        let geometry = StoreGeometry::plan(label, device.block.geometry(), zones, reserve, options.table_bytes)?;
        if !options.overwrite && journal::presence_on_device(device, label, &opened_as(device))? == Presence::Store {
            let reason = "the device holds a store; format with overwrite to lose it".to_owned();
            return Err(StoreError::InvalidRequest { store: label.to_owned(), reason });
        }
        // Two formats in one simulation draw at different times.
        let mut random = env.random(&format!("store id {label} {}", env.now().as_nanos()));
        let empty = encode_checkpoint(&Checkpoint { next_file: 1, ..Checkpoint::default() });
        let store_id = random.next_u64();
        let identity = Identity::alone(&mut random, opened_as(device).shape);
        let formatting = Formatting::begin_in_order(device, label, KIND, store_id, identity)?;
        formatting.finish(&geometry.journal, &geometry.encode(), &empty)
    }

    /// Whether a store of this kind is on the device: `Ok(false)` when the device is blank and none of its zones was
    /// written, or has what a format left behind that was interrupted; an error when something else is there, what is
    /// there cannot be read, or the store is damaged.
    pub fn probe(device: &Device) -> Result<bool, StoreError> {
        let presence = journal::presence_on_device(device, device.block.name(), &opened_as(device))?;
        Ok(presence == Presence::Store)
    }

    /// Opens the store on a device, after a clean end or a crash. Takes time in proportion to what the log bands hold,
    /// which is read, and to the number of zones.
    ///
    /// Errors: [`StoreError::Foreign`] when there is none or another version's, or its zones are not those of the device;
    /// [`StoreError::Corruption`] when the band table is damaged; both name offset, expected, found and what to do. Zones
    /// that went offline and damaged frames are no error: reading the files that were in them is.
    pub fn open(env: &Env, device: Device) -> Result<BandStore, StoreError> {
        recovery::open(env, device, KIND).map(|core| BandStore { core: Arc::new(core) })
    }

    /// What [`check`](FileStore::check) would say about a device whose store cannot be opened, or is not open.
    pub fn inspect(device: &Device) -> Vec<Finding> {
        check::inspect(device, KIND)
    }
}

fn opened_as(device: &Device) -> OpenedAs {
    OpenedAs::in_order(KIND, device)
}

impl FileStore for BandStore {
    fn name(&self) -> &str {
        &self.core.label
    }

    fn properties(&self) -> &StoreProperties {
        &self.core.properties
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let core = &self.core;
        core.begin_change(name)?;
        let is_packed = options.kind != FileKind::Table;
        let created = core.state.lock().create(name, is_packed, options.level, None);
        let node = created.map_err(|_| core.no_metadata_space(name))?;
        Ok(match is_packed {
            true => Box::new(LogWriter::new(core.clone(), node, name, options)),
            false => Box::new(TableWriter::new(core.clone(), node, name, options)),
        })
    }

    fn open(&self, name: &str, _options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let node = self.core.find(name)?;
        Ok(Arc::new(BandReader::new(self.core.clone(), node, name)))
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
        let geometry = &self.core.geometry;
        let state = self.core.state.lock();
        let view = state.bands.view();
        let beside = |purpose| state.free_soon().saturating_sub(view.kept_bands(purpose)) as u64 * geometry.band_bytes;
        let (available_bytes, of_compactions) = (beside(Purpose::Table), beside(Purpose::CompactionOutput));
        let total_bytes = u64::from(geometry.band_count) * geometry.band_bytes;
        let (reserve_bytes, block_bytes) = (of_compactions - available_bytes, geometry.band_bytes);
        let zones = Some(self.core.zone_space(&state, Purpose::Table));
        Ok(Space { total_bytes, available_bytes, reserve_bytes, block_bytes, zones })
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        self.core.reclaim_space()
    }

    fn hint(&self, hint: &Hint<'_>) {
        match hint {
            Hint::CompactionBegin { job, .. } => self.core.state.lock().bands.compaction_begins(*job),
            Hint::CompactionEnd { job, .. } => self.core.state.lock().bands.compaction_ends(*job),
            Hint::LevelChanged { file } => {
                let node = self.core.state.lock().names.get(&file.name).cloned();
                if let (Some(node), Some(level)) = (node, file.level) {
                    node.set_level(level);
                }
            }
            _ => {}
        }
    }

    fn counters(&self) -> Vec<(String, Counters)> {
        vec![(self.core.device.block.name().to_owned(), self.core.device.block.counters())]
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        statistics::measures(&self.core)
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        let geometry = &self.core.geometry;
        vec![
            ("bands", format!("{} of {} bytes", geometry.band_count, geometry.band_bytes)),
            ("table", format!("up to {} bands, {} bytes", geometry.table_bands, geometry.table_bytes())),
            (
                "reserve",
                format!(
                    "{} bands for compactions, {} for logs",
                    geometry.reserve_bands(),
                    geometry.log_reserve_bands()
                ),
            ),
            ("random-access region", format!("{} bytes", geometry.start_bytes(geometry.first_band))),
        ]
    }

    fn occupancy(&self) -> Occupancy {
        occupancy::occupancy(&self.core)
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(check::check(&self.core))
    }
}

impl Drop for BandStore {
    fn drop(&mut self) {
        // Nobody is left to tell; what was synced is safe without it.
        let _ = self.core.close();
    }
}
