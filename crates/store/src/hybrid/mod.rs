//! Files on zoned devices of different speed (Li and others, "Efficient LSM-Tree Key-Value Data Management on Hybrid SSD/HDD
//! Zoned Storage"; HHZS).
//!
//! Each device has its own files, zones, logs and band table, and is crash-consistent by itself, as one of a [store of
//! bands](crate::BandStore) is. This store says on which of them a file lies, and moves it. Three policies decide, each a small
//! type of pure functions, and each can be chosen by itself:
//!
//! - [placement]: where a table goes that is written;
//! - [migration]: which tables move to the other tier, at a limited rate;
//! - [caching]: which blocks that the tree's cache gave up are kept on the fast tier.
//!
//! Where tables are much smaller than zones they share them, and zones are [emptied](cleaning) of what lives longer than the rest.
//!
//! Logs and other small files go to the fast tier while they find space there. What finds no space on its device goes on on
//! another one: nothing is refused while a zone is empty, on whatever device.
//!
//! *Which device is fast* follows from how fast devices [are](tiers), or is said; never from their order. Of a tier's devices a
//! file goes to the one with most space. Where there are more than two tiers, policies see two, one and all [behind](boundary) it,
//! of which the faster ones are filled first.
//!
//! *Names over several devices.* A record of a file lies in the band table of the device that its bytes are on, with a *stamp*, a
//! number that grows with every change of a name: of two records of one name the higher counts. So each device alone can tell
//! which tables it holds, and no two devices have to do anything at one moment:
//!
//! - *replacing* a file of another device: the new record is durable before the old one goes, with the first sync of the new file;
//! - *moving* a file: its copy has a name of the store's own until it is whole and durable, then its name and the highest stamp
//!   by one commit, and then the old record goes;
//! - *a file of several parts*: each part says how many bytes come before it; a part is begun when those are durable. Removing it
//!   takes the first part first: a part without those before it is nobody's. Before it is renamed it is brought to one device,
//!   and not while it is written;
//! - *removing* is durable on a device before anything that was made later is on another.
//!
//! *A device that fails.* After a sync or a commit of it failed a device [refuses](removals): it is written no more, and what others
//! can do goes on there. Nothing that lay on it and was not durable is acknowledged. What it should forget another one keeps.
//! A store [opens](MissingDevices) without one of its devices only for those who say so.
//!
//! An [open](recovery) takes away what does not count. Requests wait for each other by [class](order): reads of users and logs
//! first.

mod background;
mod births;
mod boundary;
mod cached;
mod caching;
mod check;
mod cleaning;
pub(crate) mod conformance;
mod core;
mod division;
mod file;
mod given_up;
mod level_counts;
mod levels;
mod migration;
mod moves;
mod options;
mod order;
mod pieces;
mod placement;
mod reader;
mod record_cache;
mod records;
mod recovery;
mod removals;
mod renames;
mod statistics;
mod tiers;
mod wake;
mod writer;

#[cfg(test)]
mod tests;

pub use caching::CachingName;
pub use division::DivisionName;
pub use migration::MigrationName;
pub use options::{
    HybridDevices, HybridDriver, HybridFormatOptions, HybridOpenOptions, HybridTechnique, MissingDevices,
};
pub use placement::PlacementName;

use self::core::Core;
use crate::band::DeviceFiles;
use crate::error::StoreError;
use crate::file_store::{
    CreateOptions, FileEntry, FileStore, Finding, Location, OpenOptions, ReadableFile, StoreLock, StoreProperties,
    WritableFile,
};
use crate::hint::Hint;
use crate::identity::block::Presence;
use crate::journal::StoreKind;
use crate::kernel::NameLocks;
use crate::occupancy::{Occupancy, OccupancyPiece, PieceUsage, StoreMeasure};
use background::Background;
use reader::HybridReader;
use std::sync::Arc;
use varve_env::Env;
use varve_media::{Counters, Space};
use writer::HybridWriter;

const KIND: StoreKind = StoreKind(*b"hybrid\0\0");

/// A [`FileStore`] on zoned devices of different speed. See the module for what is where and in which order.
///
/// One open at a time: nothing stops a second process from opening the same devices, unless those refuse.
pub struct HybridStore {
    core: Arc<Core>,
    background: Background,
}

impl HybridStore {
    /// Makes an empty store on devices. Everything on them is lost; their zones are reset when they are used.
    ///
    /// Errors: devices that have no zones, too few, or let too few be active; more than eight; a reserve of 0; ones that hold
    /// something, without `overwrite`.
    pub fn format(env: &Env, devices: &[varve_media::Device], options: &HybridFormatOptions) -> Result<(), StoreError> {
        recovery::format(env, devices, options)
    }

    /// Returns true if tables share zones of this size by default: a zone holds two tables of 64 MiB.
    pub fn shares_zones_of(zone_bytes: u64) -> bool {
        options::holds_two_tables(zone_bytes)
    }

    /// Whether a store of this kind is on the devices: `Ok(false)` when they are blank or have what a format left behind that
    /// was interrupted; an error when something else is there, or on some of them only.
    pub fn probe(devices: &[varve_media::Device]) -> Result<bool, StoreError> {
        Ok(recovery::presence(devices)? == Presence::Store)
    }

    /// Opens the store on its devices, in any order, after a clean end or a crash. Takes time in proportion to what the log
    /// zones hold, which is read, and to the number of zones.
    ///
    /// Errors: those of each device; [`StoreError::Foreign`] when they were not formatted together, or are not all there and the
    /// [options](HybridOpenOptions::missing_devices) do not say what then.
    pub fn open(env: &Env, devices: HybridDevices, options: &HybridOpenOptions) -> Result<HybridStore, StoreError> {
        let core = Arc::new(recovery::open(env, devices, options)?);
        let background = Background::begin(env, &core);
        Ok(HybridStore { core, background })
    }

    /// What [`check`](FileStore::check) would say about devices of which the store cannot be opened, or is not open.
    pub fn inspect(devices: &[varve_media::Device]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = devices.iter().flat_map(|device| DeviceFiles::inspect(device, KIND)).collect();
        findings.extend(records::inspect(&recovery::label_of(devices), devices));
        findings
    }
}

impl FileStore for HybridStore {
    fn name(&self) -> &str {
        &self.core.label
    }

    fn properties(&self) -> &StoreProperties {
        &self.core.properties
    }

    fn create(&self, name: &str, options: &CreateOptions) -> Result<Box<dyn WritableFile>, StoreError> {
        let made = self.core.create(name, options)?;
        Ok(Box::new(HybridWriter::new(self.core.clone(), made, options)))
    }

    fn open(&self, name: &str, _options: &OpenOptions) -> Result<Arc<dyn ReadableFile>, StoreError> {
        let file = self.core.find(name)?;
        Ok(Arc::new(HybridReader::new(self.core.clone(), file)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.core.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.core.remove(name)?;
        self.core.changed();
        Ok(())
    }

    fn sync_names(&self) -> Result<(), StoreError> {
        self.core.sync_names()
    }

    fn list(&self) -> Result<Vec<FileEntry>, StoreError> {
        let files = self.core.files.read();
        let entry = |(name, file): (&String, &Arc<file::HybridFile>)| FileEntry {
            name: name.clone(),
            size_bytes: file.size_bytes(),
        };
        Ok(files.iter().map(entry).collect())
    }

    fn lock(&self, name: &str) -> Result<Box<dyn StoreLock>, StoreError> {
        self.core.check_name(name)?;
        self.core.check_writable(name)?;
        match NameLocks::lock(&self.core.locks, name) {
            Some(lock) => Ok(Box::new(lock)),
            None => Err(StoreError::Locked { store: self.core.label.clone(), name: name.to_owned() }),
        }
    }

    fn share(&self, name: &str, _target: &Location, target_name: &str) -> Result<bool, StoreError> {
        self.core.check_name(target_name)?;
        self.core.check_writable(name)?;
        self.core.find(name).map(|_| false)
    }

    fn space(&self) -> Result<Space, StoreError> {
        let zones = self.core.zone_space();
        let none = Space { total_bytes: 0, available_bytes: 0, reserve_bytes: 0, block_bytes: 1, zones };
        let (mut missing_bytes, mut unkept_bytes) = (0, 0);
        let mut sum = self.core.members.iter().fold(none, |sum, member| {
            // What cannot be written is no space.
            let (available_bytes, reserve_bytes) =
                if member.is_refusing() { (0, 0) } else { member.files.available_bytes() };
            // A zone that is larger than tables holds one, unless they share it.
            let table_bytes = self.core.properties.preferred_table_bytes.unwrap_or(u64::MAX).max(1);
            let zone_bytes = member.files.writable_zone_bytes().max(1);
            let holds_bytes = |bytes: u64| match !member.files.shares_zones() && zone_bytes > table_bytes {
                true => bytes / zone_bytes * table_bytes,
                false => bytes,
            };
            if !member.is_refusing() {
                let wanted = member.files.wanted_reserve();
                missing_bytes += holds_bytes(wanted.compactions_bytes).saturating_sub(holds_bytes(reserve_bytes));
                unkept_bytes += holds_bytes(wanted.unkept_bytes);
            }
            Space {
                total_bytes: sum.total_bytes + member.files.total_bytes(),
                available_bytes: sum.available_bytes + holds_bytes(available_bytes),
                reserve_bytes: sum.reserve_bytes + holds_bytes(reserve_bytes),
                block_bytes: sum.block_bytes.max(member.files.writable_zone_bytes()),
                zones: sum.zones,
            }
        });
        // Zones missing on the device that keeps the reserve are kept on the other devices.
        sum.available_bytes = sum.available_bytes.saturating_sub(unkept_bytes);
        let moved_bytes = missing_bytes.min(sum.available_bytes);
        sum.available_bytes -= moved_bytes;
        sum.reserve_bytes += moved_bytes;
        Ok(sum)
    }

    fn reclaim_space(&self) -> Result<bool, StoreError> {
        let mut is_any = false;
        for member in self.core.members.iter().filter(|member| !self.core.is_read_only && !member.is_refusing()) {
            is_any |= member.files.reclaim_space()?;
        }
        Ok(is_any)
    }

    fn hint(&self, hint: &Hint<'_>) {
        let core = &self.core;
        if core.is_read_only {
            return;
        }
        match hint {
            Hint::FlushBegin { job, .. } => {
                core.jobs.lock().flush_begins(*job);
            }
            Hint::FlushEnd { job, .. } => {
                core.jobs.lock().flush_ends(*job);
                core.changed();
            }
            Hint::CompactionBegin { job, inputs, output_level } => {
                let numbers: Vec<u64> = {
                    let files = core.files.read();
                    inputs.iter().filter_map(|input| files.get(&input.name)).map(|file| file.number()).collect()
                };
                core.jobs.lock().compaction_begins(*job, *output_level, inputs.len() as u64, numbers);
                core.members.iter().for_each(|member| member.files.compaction_begins(*job));
                core.changed();
            }
            // Where open tables count, it was taken off the demand when it was created.
            Hint::CompactionOutput { job, .. } if !core.options.counts_open_tables => {
                core.jobs.lock().demand.compaction_made(*job);
            }
            Hint::CompactionOutput { .. } => {}
            Hint::CompactionEnd { job, .. } => {
                core.jobs.lock().compaction_ends(*job);
                core.members.iter().for_each(|member| member.files.compaction_ends(*job));
                core.changed();
            }
            Hint::LevelChanged { file } => {
                if let Some(level) = file.level {
                    core.set_level(&file.name, level);
                    core.changed();
                }
            }
            Hint::BlockRewritten { file, offset_bytes, bytes, origins } => {
                core.inherit(file, *offset_bytes, bytes, origins);
            }
            Hint::RecordRewritten { file, label, record } => core.inherit_record(file, *label, record),
            Hint::CacheEvicted { file, offset_bytes, bytes } => {
                let found = core.files.read().get(*file).cloned();
                found.iter().for_each(|file| core.admit(file, *offset_bytes, bytes));
            }
        }
    }

    fn counters(&self) -> Vec<(String, Counters)> {
        let of = |member: &core::Member| {
            let block = &member.files.device().block;
            (block.name().to_owned(), block.counters())
        };
        self.core.members.iter().map(of).collect()
    }

    fn statistics(&self) -> Vec<StoreMeasure> {
        let mut measures = self.core.counts.measures();
        let mut sums: Vec<StoreMeasure> = Vec::new();
        for measure in self.core.members.iter().flat_map(|member| member.files.measures()) {
            match sums.iter_mut().find(|sum| sum.name == measure.name) {
                Some(sum) => sum.value += measure.value,
                None => sums.push(measure),
            }
        }
        measures.extend(sums);
        if let Some(cache) = &self.core.cache {
            let zones = self.core.division.as_ref().map(|division| division.lock().cache_zones());
            measures.push(StoreMeasure::count("zones of cached blocks", cache.zones.lock().len() as u64));
            measures.push(StoreMeasure::count("zones that cached blocks may have", zones.unwrap_or(0)));
            let memory_bytes = cache.zones.lock().memory_bytes();
            measures.push(StoreMeasure::bytes("memory for what is known of cached blocks", memory_bytes));
        }
        let refusing = self.core.members.iter().filter(|member| member.is_refusing()).count();
        measures.push(StoreMeasure::count("devices that refuse", refusing as u64));
        let set = &self.core.set;
        measures.push(StoreMeasure::count("devices missing", (set.missing.len() + set.given_up.len()) as u64));
        measures
    }

    fn layout(&self) -> Vec<(&'static str, String)> {
        let core = &self.core;
        let tier = |wanted: usize| {
            let of_tier = core.members.iter().filter(move |member| member.tier == wanted);
            let device = |member: &core::Member| {
                let zones = member.files.zone_use();
                format!(
                    "'{}' ({} zones of {} bytes{})",
                    member.files.label(),
                    zones.total,
                    member.files.writable_zone_bytes(),
                    if member.is_refusing() { ", refuses writes" } else { "" }
                )
            };
            of_tier.map(device).collect::<Vec<_>>().join(", ")
        };
        let tiers = core.members.iter().map(|member| member.tier).max().unwrap_or(0) + 1;
        let options = &core.options;
        let cached = core.cache.as_ref().map_or_else(String::new, |cache| {
            let zones = cache.zones.lock();
            let (blocks, bytes) = (zones.blocks(), zones.memory_bytes());
            format!(", {blocks} blocks in {} zones, known in {bytes} bytes of memory", zones.len())
        });
        let of_sharing = |member: &core::Member| {
            let (zones, live_bytes) = member.files.shared_zones();
            format!("'{}' {zones} with {live_bytes} bytes of tables", member.files.label())
        };
        let sharing = core.members.iter().filter(|member| member.files.shares_zones());
        let shared = match core.shares_zones() {
            true => sharing.map(of_sharing).collect::<Vec<_>>().join(", "),
            false => "none".to_owned(),
        };
        vec![
            ("tiers", (0..tiers).map(tier).collect::<Vec<_>>().join("; ")),
            ("placement", options.placement.name()),
            (
                "migration",
                format!("{}, {} bytes a second", options.migration.name(), options.migration_bytes_per_second),
            ),
            ("division", options.division.name().to_owned()),
            ("shared zones", shared),
            ("caching", format!("{}{cached}", options.caching.name())),
        ]
    }

    fn occupancy(&self) -> Occupancy {
        let mut all = Occupancy::default();
        for member in &self.core.members {
            let one = member.files.occupancy();
            let (devices, files) = (all.devices.len() as u16, all.files.len() as u32);
            all.devices.extend(one.devices);
            all.files.extend(one.files);
            all.pieces.extend(one.pieces.into_iter().map(|mut piece| {
                piece.device += devices;
                piece.file = piece.file.map(|file| file + files);
                piece
            }));
        }
        let is_cache = |file: u32| cached::zone_number(&all.files[file as usize].name).is_some();
        let of_cache =
            |piece: &&mut OccupancyPiece| piece.usage == PieceUsage::Table && piece.file.is_some_and(is_cache);
        all.pieces.iter_mut().filter(of_cache).for_each(|piece| piece.usage = PieceUsage::CachedBlocks);
        // Names of the store's own, as people can read them.
        all.files.iter_mut().for_each(|file| file.name = file.name.replace('\0', ""));
        all.sort();
        all
    }

    fn check(&self) -> Result<Vec<Finding>, StoreError> {
        Ok(check::check(&self.core))
    }
}

impl Drop for HybridStore {
    fn drop(&mut self) {
        // Each device makes what it holds durable when nobody has it open any more.
        self.background.end(&self.core);
    }
}
