//! The files of one zoned device among several: what a store over several devices builds on.
//!
//! Everything is as in a store of bands on this device alone, with its own band table, so that each device by itself can
//! tell what it holds. Beside that a record of a file has a [`Stamp`], which says which of the records of a name on several
//! devices counts and which part of the file it is, and files of the store's own have names that begin with a NUL.

use super::allocation::Purpose;
use super::change::{Checkpoint, Stamp, encode_checkpoint};
use super::geometry::{ACTIVE_AMONG_SEVERAL, Reserve, StoreGeometry};
use super::log_writer::LogWriter;
use super::node::Node;
use super::open_store::OpenStore;
use super::reader::BandReader;
use super::recovery::Mounted;
use super::shared::{Sharing, TableOrigin};
use super::sharing::Need;
use super::state::BandState;
use super::writer::TableWriter;
use super::{check, occupancy, recovery, statistics};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind, Finding, ReadableFile, StoreProperties, WritableFile};
use crate::identity::{Identity, OpenedAs};
use crate::journal::{self, Formatting, StoreKind};
use crate::kernel::{RawStore, StoreState};
use crate::occupancy::{Occupancy, StoreMeasure};
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Device, IoContext, JobId, ZoneSpace};

/// Waste of so many zones is not counted as available: a part of a zone is not gained by emptying others.
const KEPT_WASTE_ZONES: u64 = 2;

/// A file, or a part of one, as a device has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceFile {
    pub(crate) name: String,
    pub(crate) stamp: Option<Stamp>,
    pub(crate) is_table: bool,
    pub(crate) level: Option<u8>,
    pub(crate) size_bytes: u64,
}

/// What the zones of a device are used for, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneUse {
    /// All that can hold files.
    pub(crate) total: u32,
    /// Free, or free once what was removed is durable and nobody reads it.
    pub(crate) free: u32,
    /// With frames of small files.
    pub(crate) logs: u32,
    /// With tables.
    pub(crate) tables: u32,
}

/// The files of a device as they were found. Nothing was written.
pub(crate) struct MountedFiles {
    mounted: Mounted,
}

impl MountedFiles {
    /// What the device says of itself.
    pub(crate) fn identity(&self) -> &Identity {
        self.mounted.identity()
    }

    pub(crate) fn label(&self) -> &str {
        self.mounted.label()
    }

    /// Every file, by name.
    pub(crate) fn files(&self) -> Vec<DeviceFile> {
        let file = |(name, node): (&String, &Arc<Node>)| DeviceFile {
            name: name.clone(),
            stamp: *node.stamp.lock(),
            is_table: !node.is_packed,
            level: node.level(),
            size_bytes: node.flushed_bytes(),
        };
        self.mounted.state().names.iter().map(file).collect()
    }

    /// Writable bytes of a zone.
    pub(crate) fn writable_zone_bytes(&self) -> u64 {
        self.mounted.geometry().band_bytes
    }

    /// From now on it may be written. Tables share zones where it is said how. A device that takes no writes is read, and
    /// [refuses](DeviceFiles::check_open) everything else; its error is returned too.
    pub(crate) fn begin(self, env: &Env, sharing: Option<&Sharing>) -> (DeviceFiles, Option<StoreError>) {
        let (core, refusal) = self.mounted.begin_or_refuse(env, sharing);
        let refusal = refusal.map(|error| core.poison(error));
        (DeviceFiles { core: Arc::new(core) }, refusal)
    }
}

/// Writes a table or a small file.
pub(crate) enum DeviceWriter {
    Table(TableWriter),
    Small(LogWriter),
}

impl DeviceWriter {
    /// It, as writers of any store are.
    pub(crate) fn writable(&mut self) -> &mut dyn WritableFile {
        match self {
            DeviceWriter::Table(writer) => writer,
            DeviceWriter::Small(writer) => writer,
        }
    }

    /// Bytes appended to it.
    pub(crate) fn size_bytes(&self) -> u64 {
        match self {
            DeviceWriter::Table(writer) => writer.size_bytes(),
            DeviceWriter::Small(writer) => writer.size_bytes(),
        }
    }

    /// Whether it has taken a zone that it needs for itself, or needs none.
    pub(crate) fn has_zone(&self) -> bool {
        match self {
            DeviceWriter::Table(writer) => writer.has_zone(),
            DeviceWriter::Small(_) => true,
        }
    }

    /// Writes what was appended and closes it; what fails can be tried again.
    pub(crate) fn close(&mut self, context: &IoContext) -> Result<(), StoreError> {
        match self {
            DeviceWriter::Table(writer) => writer.close(context),
            DeviceWriter::Small(writer) => writer.flush(context),
        }
    }

    /// Takes back what was appended and is not on the device. The file ends before it.
    pub(crate) fn take_unwritten(&mut self) -> Vec<u8> {
        match self {
            DeviceWriter::Table(writer) => writer.take_unwritten(),
            DeviceWriter::Small(writer) => writer.take_unwritten(),
        }
    }
}

/// Makes empty small files; none of them, and the name of one, where the metadata has no space for it.
fn make_empty(state: &mut BandState, made: &[(String, Stamp)]) -> Result<(), String> {
    for (position, (name, stamp)) in made.iter().enumerate() {
        if state.create(name, true, None, Some(*stamp)).is_err() {
            made[..position].iter().for_each(|(name, _)| _ = state.remove(name));
            return Err(name.clone());
        }
    }
    Ok(())
}

/// The files of one device. Thread-safe.
pub(crate) struct DeviceFiles {
    core: Arc<OpenStore>,
}

/// Zones to be kept free on a device, in bytes.
pub(crate) struct WantedReserve {
    /// Reserve for outputs of compactions, without the zones that running compactions took.
    pub(crate) compactions_bytes: u64,
    /// Missing zones for logs and for copies made by the store.
    pub(crate) unkept_bytes: u64,
}

impl DeviceFiles {
    /// How a device would be divided.
    fn plan(
        label: &str,
        device: &Device,
        reserve: Reserve,
        table_bytes: Option<u64>,
    ) -> Result<StoreGeometry, StoreError> {
        recovery::zones_of(label, device)?;
        let capabilities = device.block.capabilities();
        let zones = capabilities.zones.as_ref().ok_or_else(|| StoreError::InvalidRequest {
            store: label.to_owned(),
            reason: "the device does not say what its zones are".to_owned(),
        })?;
        let of_metadata = u32::from(journal::lies_in_zones(zones));
        recovery::check_active_zones(label, zones.active_zones_max, of_metadata, ACTIVE_AMONG_SEVERAL)?;
        StoreGeometry::plan(label, device.block.geometry(), zones, reserve, table_bytes)
    }

    /// Whether a device can be made one of a set.
    pub(crate) fn check_plan(device: &Device, reserve: Reserve, table_bytes: Option<u64>) -> Result<(), StoreError> {
        DeviceFiles::plan(device.block.name(), device, reserve, table_bytes).map(|_| ())
    }

    /// Says durably that a device of a set is being made. Everything on it is lost.
    pub(crate) fn begin_format(
        device: &Device,
        kind: StoreKind,
        store_id: u64,
        identity: Identity,
    ) -> Result<Formatting, StoreError> {
        Formatting::begin_in_order(device, device.block.name(), kind, store_id, identity)
    }

    /// Makes it, empty.
    pub(crate) fn finish_format(
        device: &Device,
        formatting: Formatting,
        reserve: Reserve,
        table_bytes: Option<u64>,
    ) -> Result<(), StoreError> {
        let geometry = DeviceFiles::plan(device.block.name(), device, reserve, table_bytes)?;
        let empty = encode_checkpoint(&Checkpoint { next_file: 1, ..Checkpoint::default() });
        formatting.finish(&geometry.journal, &geometry.encode(), &empty)
    }

    /// Reads all there is on a device, and writes nothing. See [`BandStore::open`](super::BandStore::open).
    pub(crate) fn mount(device: Device, kind: StoreKind) -> Result<MountedFiles, StoreError> {
        recovery::mount(device, kind).map(|mounted| MountedFiles { mounted })
    }

    /// What [`check`](Self::check) would say about a device that is not open.
    pub(crate) fn inspect(device: &Device, kind: StoreKind) -> Vec<Finding> {
        check::inspect(device, kind)
    }

    /// What the device is opened as.
    pub(crate) fn opened_as(device: &Device, kind: StoreKind) -> OpenedAs {
        OpenedAs::in_order(kind, device)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.core.device
    }

    pub(crate) fn label(&self) -> &str {
        &self.core.label
    }

    pub(crate) fn properties(&self) -> &StoreProperties {
        &self.core.properties
    }

    /// Writable bytes of a zone.
    pub(crate) fn writable_zone_bytes(&self) -> u64 {
        self.core.geometry.band_bytes
    }

    /// Zones that may be written at once, one of them that of the logs; 0 is no limit.
    pub(crate) fn active_zones_max(&self) -> u32 {
        self.core.active_max
    }

    pub(crate) fn zone_use(&self) -> ZoneUse {
        self.core.zone_use(&self.core.state.lock())
    }

    /// Use of the zones, and how many of the free ones tables leave to others.
    pub(crate) fn zone_space(&self) -> ZoneSpace {
        self.core.zone_space(&self.core.state.lock(), Purpose::Table)
    }

    /// Bytes that the log zone that is written still takes.
    pub(crate) fn log_space_bytes(&self) -> u64 {
        self.core.log_space_bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Bytes that files of users may still take, and what is kept for outputs of compactions beside.
    pub(crate) fn available_bytes(&self) -> (u64, u64) {
        let state = self.core.state.lock();
        let view = state.bands.view();
        let beside =
            |purpose| state.free_soon().saturating_sub(view.kept_bands(purpose)) as u64 * self.writable_zone_bytes();
        let (available, of_compactions) = (beside(Purpose::Table), beside(Purpose::CompactionOutput));
        // Whoever finds no space empties zones that tables share, as far as that gains one.
        let waste_bytes = self.core.shared.as_ref().map_or(0, |_| state.pool.waste_bytes());
        let gained_bytes = waste_bytes.saturating_sub(KEPT_WASTE_ZONES * self.writable_zone_bytes());
        (available + gained_bytes, of_compactions - available)
    }

    /// Returns the zones to be kept free, whether or not they are free now.
    pub(crate) fn wanted_reserve(&self) -> WantedReserve {
        let state = self.core.state.lock();
        let unkept = state.bands.view().kept_bands(Purpose::CompactionOutput).saturating_sub(state.free_soon());
        WantedReserve {
            compactions_bytes: u64::from(state.bands.reserve_left()) * self.writable_zone_bytes(),
            unkept_bytes: unkept as u64 * self.writable_zone_bytes(),
        }
    }

    /// Gives back what log zones hold without need. Whether zones are free now that were not counted as such before.
    pub(crate) fn reclaim_space(&self) -> Result<bool, StoreError> {
        self.core.reclaim_space()
    }

    /// Tables for which the device was made to keep zones.
    pub(crate) fn reserve_tables(&self) -> u16 {
        self.core.geometry.reserve.compaction_tables
    }

    /// Whether zones are kept for outputs of compactions.
    pub(crate) fn keeps_reserve(&self) -> bool {
        self.core.state.lock().bands.keeps_reserve()
    }

    /// Keeps zones for so many outputs of compactions as long as it is open, though it was not made to.
    pub(crate) fn keep_reserve(&self, tables: u16) {
        let bands = u32::from(tables).saturating_mul(self.core.geometry.table_bands);
        self.core.state.lock().bands.keep_reserve(bands);
    }

    /// Bytes of all zones, and of a table the largest.
    pub(crate) fn total_bytes(&self) -> u64 {
        u64::from(self.core.geometry.band_count) * self.writable_zone_bytes()
    }

    /// Keeps no zones for outputs of compactions, until [`restore_reserve`](Self::restore_reserve).
    pub(crate) fn release_reserve(&self) {
        self.core.state.lock().bands.release_reserve();
    }

    /// Keeps the zones again that the device was made to keep.
    pub(crate) fn restore_reserve(&self) {
        if self.reserve_tables() > 0 {
            self.keep_reserve(self.reserve_tables());
        }
    }

    /// Makes a file, in place of one of this name on this device. A table is written in pieces of `buffer_bytes`.
    pub(crate) fn create(
        &self,
        name: &str,
        options: &CreateOptions,
        stamp: Stamp,
        origin: TableOrigin,
        buffer_bytes: usize,
    ) -> Result<DeviceWriter, StoreError> {
        let core = &self.core;
        core.check()?;
        let is_packed = options.kind != FileKind::Table;
        let created = core.state.lock().create(name, is_packed, options.level, Some(stamp));
        let node = created.map_err(|_| core.no_metadata_space(name))?;
        Ok(match is_packed {
            true => DeviceWriter::Small(LogWriter::new(core.clone(), node, name, options)),
            false => {
                let zone_bytes = core.geometry.band_bytes;
                let shared =
                    core.shared.as_ref().filter(|shared| shared.is_for(options.expected_size_bytes, zone_bytes));
                let origin = shared.map(|_| origin);
                DeviceWriter::Table(TableWriter::with_buffer(core.clone(), node, name, options, origin, buffer_bytes))
            }
        })
    }

    /// Every name, those of the store's own too.
    pub(crate) fn names(&self) -> Vec<String> {
        self.core.state.lock().names.keys().cloned().collect()
    }

    /// Whether it has, or would have with the next commit, a file of this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.core.state.lock().names.contains_key(name)
    }

    /// A reader of a file; it stays readable when the name is gone.
    pub(crate) fn open_file(&self, name: &str) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let node = self.core.state.lock().names.get(name).cloned();
        let node = node.ok_or_else(|| self.core.not_found(name))?;
        Ok(Arc::new(BandReader::new(self.core.clone(), node, name)))
    }

    /// Gives a file another name and stamp, durably, with its contents.
    pub(crate) fn rename(&self, from: &str, to: &str, stamp: Stamp) -> Result<(), StoreError> {
        self.rename_with(from, to, stamp, &[], "")
    }

    /// [`rename`](Self::rename) that makes empty files with these names and stamps, and removes `removed` where it is there: all
    /// of it in one commit, or nothing.
    pub(crate) fn rename_with(
        &self,
        from: &str,
        to: &str,
        stamp: Stamp,
        made: &[(String, Stamp)],
        removed: &str,
    ) -> Result<(), StoreError> {
        let core = &self.core;
        self.sync_file(from)?;
        let change = {
            let mut state = core.state.lock();
            if !state.names.contains_key(from) {
                return Err(core.not_found(from));
            }
            make_empty(&mut state, made).map_err(|name| core.no_metadata_space(&name))?;
            if !state.names.has_space_to_rename(from, to) {
                made.iter().for_each(|(name, _)| _ = state.remove(name));
                return Err(core.no_metadata_space(to));
            }
            state.remove(removed);
            state.rename_stamped(from, to, stamp).ok_or_else(|| core.not_found(from))?
        };
        core.commit(change)
    }

    /// Makes empty files with these names and stamps, and removes `removed` where it is there, durably: all of it in one
    /// commit, or nothing.
    pub(crate) fn change_names(&self, made: &[(String, Stamp)], removed: &str) -> Result<(), StoreError> {
        let core = &self.core;
        core.check()?;
        let change = {
            let mut state = core.state.lock();
            make_empty(&mut state, made).map_err(|name| core.no_metadata_space(&name))?;
            state.remove(removed);
            state.names.change()
        };
        core.commit(change)
    }

    /// Gives a file the name and the stamp of another one, which it takes the place of, durably.
    pub(crate) fn replace(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let replaced = self.core.state.lock().names.get(to).and_then(|node| *node.stamp.lock());
        let stamp = replaced.ok_or_else(|| self.core.not_found(to))?;
        self.rename(from, to, stamp)
    }

    /// Gives a file another stamp, durably with its next sync.
    pub(crate) fn set_stamp(&self, name: &str, stamp: Stamp) -> Result<(), StoreError> {
        let core = &self.core;
        core.check()?;
        let mut state = core.state.lock();
        let node = state.names.get(name).cloned().ok_or_else(|| core.not_found(name))?;
        state.set_stamp(&node, stamp);
        Ok(())
    }

    /// Takes the name of a file; durable with the next commit. False when there is none.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, StoreError> {
        self.core.check()?;
        Ok(self.core.state.lock().remove(name))
    }

    /// Makes every change of a name on this device durable, and free what that makes free.
    pub(crate) fn commit_names(&self) -> Result<(), StoreError> {
        self.core.check()?;
        self.core.commit_and_reclaim()
    }

    /// Whether changes of names wait for a commit.
    pub(crate) fn has_pending_names(&self) -> bool {
        self.core.state.lock().names.has_pending()
    }

    /// Makes what is on the device of a file durable.
    pub(crate) fn sync_file(&self, name: &str) -> Result<(), StoreError> {
        let node = self.core.state.lock().names.get(name).cloned();
        let node = node.ok_or_else(|| self.core.not_found(name))?;
        self.core.sync_file(&node, name, &IoContext::default())?;
        self.core.commit(node.needed_change())
    }

    /// Refuses everything that would acknowledge something once that cannot be promised.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        self.core.check()
    }

    pub(crate) fn set_level(&self, name: &str, level: u8) {
        let node = self.core.state.lock().names.get(name).cloned();
        let Some(node) = node else { return };
        node.set_level(level);
        if let Some(table) = self.core.state.lock().pool.table_mut(node.file) {
            table.level = Some(level);
        }
    }

    /// Says when a table was made that was there when the device was opened, by the clock of lifetimes.
    pub(crate) fn set_born(&self, name: &str, born_bytes: u64) {
        let mut state = self.core.state.lock();
        let Some(file) = state.names.get(name).map(|node| node.file) else { return };
        if let Some(table) = state.pool.table_mut(file) {
            table.born_bytes = born_bytes;
        }
    }

    /// Whether tables share zones.
    pub(crate) fn shares_zones(&self) -> bool {
        self.core.shared.is_some()
    }

    /// Zones that tables share, and bytes in them of tables that are not gone, with those that fill their last units.
    pub(crate) fn shared_zones(&self) -> (u64, u64) {
        let state = self.core.state.lock();
        (state.pool.zones(), state.pool.live_bytes())
    }

    /// Tables to be copied so that a zone is free, where one should be emptied. Only those count of which each may be copied.
    pub(crate) fn tables_to_copy(&self, need: Need, may_be_copied: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
        self.core.tables_to_copy(need, may_be_copied)
    }

    /// Bytes were copied to empty zones.
    pub(crate) fn copied(&self, bytes: u64) {
        if let Some(shared) = &self.core.shared {
            shared.budget.lock().copied(bytes);
        }
    }

    pub(crate) fn compaction_begins(&self, job: JobId) {
        self.core.state.lock().bands.compaction_begins(job);
    }

    pub(crate) fn compaction_ends(&self, job: JobId) {
        self.core.state.lock().bands.compaction_ends(job);
    }

    pub(crate) fn measures(&self) -> Vec<StoreMeasure> {
        statistics::measures(&self.core)
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        occupancy::occupancy(&self.core)
    }

    pub(crate) fn check(&self) -> Vec<Finding> {
        check::check(&self.core)
    }
}

impl Drop for DeviceFiles {
    fn drop(&mut self) {
        // Nobody is left to tell; what was synced is safe without it.
        let _ = self.core.close();
    }
}
