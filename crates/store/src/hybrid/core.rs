//! What the store, its writers, its readers and its background share.

use super::boundary::Boundary;
use super::cached::FoundZone;
use super::caching::{BlockQueue, CacheZones};
use super::division::{Division, kept_for_logs};
use super::file::{HybridFile, Part};
use super::level_counts::{LevelCounts, seen_from};
use super::levels::{Demand, JOBS_MAX, TIERS_MAX, Tier};
use super::migration::Migration;
use super::options::{HybridDriver, HybridOpenOptions};
use super::placement::{NewTable, Placement, PlacementView};
use super::records::Set;
use super::removals::Removals;
use super::statistics::{Counts, add};
use super::wake::Wake;
use crate::band::{DeviceFiles, DeviceWriter, Lifetimes, Stamp, TableOrigin};
use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{CreateOptions, FileKind, ReadableFile, StoreProperties};
use crate::journal::corruption;
use crate::kernel::NameLocks;
use crate::name;
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use varve_env::{Condvar, Env, Mutex};
use varve_media::{Capabilities, JobId, ZoneSpace};

/// A device of the set.
pub(super) struct Member {
    pub(super) files: DeviceFiles,
    /// 0 is the fastest.
    pub(super) tier: usize,
    /// Empty zones that tables which were placed here are about to take.
    pub(super) promised: AtomicU32,
    pub(super) removals: Mutex<Removals>,
    /// What was last asked of it failed: others are chosen before it.
    pub(super) is_suspect: AtomicBool,
    /// Held while a zone is emptied.
    pub(super) cleaning: Mutex<()>,
    /// Writers that found no space, for which a zone is emptied.
    pub(super) waiting: AtomicU32,
    /// Zones that were emptied.
    pub(super) emptied: AtomicU32,
}

/// Held by whoever changes a name, across what it writes.
pub(super) struct Naming {
    /// Number of the next change.
    pub(super) next: u64,
}

impl Naming {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

/// Blocks of the slow tier on the fast one.
pub(super) struct Cache {
    pub(super) queue: ShortMutex<BlockQueue>,
    pub(super) zones: ShortMutex<CacheZones<Arc<dyn ReadableFile>>>,
    pub(super) writer: Mutex<Option<CacheWriter>>,
    pub(super) batch_bytes: usize,
    /// Zones that an earlier open left, the oldest first.
    pub(super) found: ShortMutex<Vec<FoundZone>>,
    /// Numbers of the tables that were there when the store was opened, in order.
    pub(super) known_files: Vec<u64>,
}

/// The cache zone that is written.
pub(super) struct CacheWriter {
    pub(super) number: u64,
    pub(super) writer: DeviceWriter,
    pub(super) space_bytes: u64,
}

/// What jobs of the tree said of themselves.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) demand: Demand,
    pub(super) flushes: BTreeSet<JobId>,
    /// Numbers of the files that compactions read.
    pub(super) inputs: BTreeMap<JobId, Vec<u64>>,
}

impl Jobs {
    pub(super) fn flush_begins(&mut self, job: JobId) {
        if self.flushes.len() < JOBS_MAX {
            self.flushes.insert(job);
        }
    }

    pub(super) fn flush_ends(&mut self, job: JobId) {
        self.flushes.remove(&job);
    }

    /// Whether nobody flushes or compacts.
    pub(super) fn are_none(&self) -> bool {
        self.flushes.is_empty() && self.inputs.is_empty()
    }

    /// `tables` are read, of which the store knows `inputs`.
    pub(super) fn compaction_begins(&mut self, job: JobId, level: Option<u8>, tables: u64, inputs: Vec<u64>) {
        self.demand.compaction_begins(job, level, tables);
        if self.inputs.len() < JOBS_MAX {
            self.inputs.insert(job, inputs);
        }
    }

    pub(super) fn compaction_ends(&mut self, job: JobId) {
        self.demand.compaction_ends(job);
        self.inputs.remove(&job);
    }
}

/// What the fast tier did when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Interval {
    pub(super) began_nanos: u64,
    pub(super) bytes: u64,
}

pub(super) struct Core {
    pub(super) env: Env,
    pub(super) label: String,
    pub(super) properties: StoreProperties,
    pub(super) options: HybridOpenOptions,
    pub(super) members: Vec<Member>,
    /// Which devices of its set are not there.
    pub(super) set: Set,
    /// Nothing is written: what is, stays in memory.
    pub(super) is_read_only: bool,
    /// First stamp of the attempt to go on without missing members; 0 where there is none.
    pub(super) attempt: AtomicU64,
    /// Held while members are given up.
    pub(super) deciding: Mutex<()>,
    /// Names of which a device says that they were removed from others that refuse, and below which stamps.
    pub(super) buried: Mutex<BTreeMap<String, u64>>,
    pub(super) files: RwLock<BTreeMap<String, Arc<HybridFile>>>,
    pub(super) level_counts: ShortMutex<LevelCounts>,
    pub(super) naming: Mutex<Naming>,
    pub(super) locks: Arc<NameLocks>,
    pub(super) placement: Box<dyn Placement>,
    pub(super) migration: Option<Box<dyn Migration>>,
    pub(super) cache: Option<Cache>,
    /// Where zones are divided between tables and cached blocks by what they are worth.
    pub(super) division: Option<ShortMutex<Division>>,
    pub(super) jobs: ShortMutex<Jobs>,
    pub(super) interval: ShortMutex<Interval>,
    /// Ends of zones that were written, for those who wait for one.
    pub(super) zones_left: Mutex<u64>,
    pub(super) zone_left: Condvar,
    pub(super) migrator: Wake,
    pub(super) cacher: Wake,
    pub(super) cleaner: Wake,
    /// How long tables live.
    pub(super) lifetimes: Arc<ShortMutex<Lifetimes>>,
    /// Between each tier and those behind it, the fastest first.
    pub(super) boundaries: Vec<Boundary>,
    /// Reads of users by tier.
    pub(super) reads_of_tier: [AtomicU64; TIERS_MAX],
    /// Somebody does what the background would.
    pub(super) is_stepping: AtomicBool,
    pub(super) counts: Counts,
}

/// Where a file was made.
pub(super) struct Made {
    pub(super) file: Arc<HybridFile>,
    pub(super) device: usize,
    pub(super) writer: DeviceWriter,
}

impl Core {
    /// Refuses every change where nothing may be written.
    pub(super) fn check_writable(&self, name: &str) -> Result<(), StoreError> {
        match self.is_read_only {
            true => Err(StoreError::ReadOnly { store: self.label.clone(), name: name.to_owned() }),
            false => Ok(()),
        }
    }

    pub(super) fn check_name(&self, name: &str) -> Result<(), StoreError> {
        name::check(name).map_err(|reason| name::invalid(&self.label, name, reason))
    }

    /// The error for a name that nothing has. Where a device is missing nobody can say that.
    pub(super) fn not_found(&self, name: &str) -> StoreError {
        let (store, name) = (self.label.clone(), name.to_owned());
        match self.set.missing.is_empty() {
            true => StoreError::NotFound { store, name },
            false => StoreError::MissingDevice { store, name, device: self.set.missing.join(" or ") },
        }
    }

    /// The error for bytes of a file that are on none of the devices.
    pub(super) fn not_here(&self, file: &HybridFile, offset_bytes: u64) -> StoreError {
        let name = file.name.lock().clone();
        let gone: Vec<&str> = self.set.missing.iter().chain(&self.set.given_up).map(String::as_str).collect();
        match gone.is_empty() {
            true => {
                let expected = format!("a part of the file with byte {offset_bytes}");
                corruption(&self.label, &format!("file '{name}'"), offset_bytes, expected, "none on any device")
            }
            false => StoreError::MissingDevice { store: self.label.clone(), name, device: gone.join(" or ") },
        }
    }

    pub(super) fn find(&self, name: &str) -> Result<Arc<HybridFile>, StoreError> {
        self.check_name(name)?;
        self.files.read().get(name).cloned().ok_or_else(|| self.not_found(name))
    }

    pub(super) fn tier(&self, device: usize) -> Tier {
        if self.members[device].tier == 0 { Tier::Fast } else { Tier::Slow }
    }

    fn of_tier(&self, tier: Tier) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate().filter(move |(device, _)| self.tier(*device) == tier)
    }

    /// Whether there is more than one tier: on one nothing moves and nothing is cached.
    pub(super) fn has_tiers(&self) -> bool {
        self.of_tier(Tier::Slow).next().is_some()
    }

    /// Bytes of a zone of the fast tier.
    pub(super) fn fast_zone_bytes(&self) -> u64 {
        let zone_bytes = self.of_tier(Tier::Fast).map(|(_, member)| member.files.writable_zone_bytes()).max();
        zone_bytes.unwrap_or(u64::MAX).max(1)
    }

    /// Tables that a zone of the fast tier has space for, where they share it; else one. Never changes while the store is open.
    pub(super) fn places_of_zone(&self) -> u64 {
        let shares = self.of_tier(Tier::Fast).any(|(_, member)| member.files.shares_zones());
        let table_bytes = self.options.table_bytes.filter(|_| shares);
        table_bytes.map_or(1, |bytes| self.fast_zone_bytes() / bytes.max(1)).max(1)
    }

    /// Places of the fast tier that a table of so many bytes takes, or would take; of those a zone has
    /// [so many](Self::places_of_zone).
    pub(super) fn places_of(&self, size_bytes: u64) -> u64 {
        size_bytes.div_ceil((self.fast_zone_bytes() / self.places_of_zone()).max(1)).max(1)
    }

    /// What policies are told.
    pub(super) fn view(&self) -> PlacementView {
        let mut view = PlacementView::default();
        let reserves = self.placement.reserves();
        // On one that refuses nothing more finds a place.
        for (_, member) in self.of_tier(Tier::Fast).filter(|(_, member)| !member.is_refusing()) {
            let zones = member.files.zone_use();
            view.fast_zones += u64::from(zones.total);
            view.empty_zones += u64::from(zones.free.saturating_sub(member.promised.load(Ordering::Relaxed)));
            view.log_zones += u64::from(zones.logs);
        }
        view.reserved_zones = match &self.division {
            _ if !reserves => 0,
            Some(division) => kept_for_logs(&view) + division.lock().cache_zones(),
            None => u64::from(self.options.log_and_cache_zones),
        };
        view.cache_zones = self.cache.as_ref().map_or(0, |cache| cache.zones.lock().len() as u64);
        // Tables are counted in places, and told in zones.
        let places_of_zone = self.places_of_zone();
        view.levels = seen_from(&self.level_places(), 0, places_of_zone);
        let demand = self.jobs.lock().demand.zones();
        for (level, tables) in view.levels.iter_mut().zip(demand) {
            level.demand = tables.div_ceil(places_of_zone);
        }
        // Where logs have zones of their own they do not count as what level 0 is about to need.
        view.levels[0].demand = if self.division.is_some() { 0 } else { view.log_zones };
        view
    }

    /// Divides the zones of the fast tier anew, where enough was asked of the store since that was done.
    pub(super) fn divide(&self) {
        let Some((division, cache)) = self.division.as_ref().zip(self.cache.as_ref()) else { return };
        if !division.lock().is_due() {
            return;
        }
        let (view, hits) = (self.view(), cache.zones.lock().take_hits());
        division.lock().interval_ends(&view, &hits);
    }

    /// Looks at what the fast tier did, where an interval ended.
    pub(super) fn note_interval(&self) {
        let now = self.env.now().as_nanos();
        let every = self.options.auto_interval_nanos.max(1);
        let mut interval = self.interval.lock();
        let elapsed = now.saturating_sub(interval.began_nanos);
        let ended = elapsed / every;
        if ended == 0 {
            return;
        }
        let moved = |(_, member): (usize, &Member)| {
            let counters = member.files.device().block.counters();
            counters.read_bytes + counters.written_bytes
        };
        let bytes: u64 = self.of_tier(Tier::Fast).map(moved).sum();
        let rate = u128::from(bytes.saturating_sub(interval.bytes)) * 1_000_000_000 / u128::from(elapsed.max(1));
        *interval = Interval { began_nanos: now, bytes };
        drop(interval);
        // Of several that ended at once nothing else is known than what they did together.
        (0..ended.min(16)).for_each(|_| self.placement.interval_ended(rate.min(u128::from(u64::MAX)) as u64));
    }

    /// Devices for a new file, the first choice first; all others follow, so that nothing is refused while a zone is empty.
    pub(super) fn choose(&self, options: &CreateOptions) -> Vec<usize> {
        let tier = match options.kind {
            // With one tier there is nothing to choose.
            FileKind::Table if !self.has_tiers() => Tier::Fast,
            FileKind::Table => {
                self.note_interval();
                let is_flush = {
                    let jobs = self.jobs.lock();
                    let is_compaction = options.job.is_some_and(|job| jobs.inputs.contains_key(&job));
                    let is_told = options.job.is_some_and(|job| jobs.flushes.contains(&job));
                    is_told || (options.level == Some(0) && !is_compaction)
                };
                self.placement.place(&self.view(), NewTable { level: options.level, is_flush })
            }
            _ => Tier::Fast,
        };
        if options.kind == FileKind::Table {
            add(if tier == Tier::Fast { &self.counts.placed_fast } else { &self.counts.placed_slow }, 1);
        }
        self.ordered(tier, options.kind == FileKind::Table)
    }

    /// Devices that may be written.
    pub(super) fn writable(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|device| !self.members[*device].is_refusing()).collect()
    }

    /// Devices of a tier, those with most space first, then the others.
    pub(super) fn ordered(&self, tier: Tier, is_table: bool) -> Vec<usize> {
        let mut ordered = self.writable();
        ordered.sort_by_cached_key(|device| {
            let member = &self.members[*device];
            let zones = member.files.zone_use();
            let free = zones.free.saturating_sub(member.promised.load(Ordering::Relaxed));
            let has_space = free > 0 || (!is_table && member.files.log_space_bytes() > 0);
            let free_bytes = u64::from(free) * member.files.writable_zone_bytes();
            let is_suspect = member.is_suspect.load(Ordering::Relaxed);
            // Of the other tiers the nearest, but of the slow ones the first.
            (is_suspect, !has_space, self.tier(*device) != tier, member.tier, u64::MAX - free_bytes, *device)
        });
        ordered
    }

    /// Bytes of a table that moves from one tier to another which are read and written at once: of HHZS' zones 1 MiB, as the paper's
    /// moves have.
    pub(super) fn moved_at_once_bytes(&self) -> usize {
        (self.fast_zone_bytes() / ZONE_PIECES).clamp(4096, usize::MAX as u64) as usize
    }

    /// Bytes written at once to a table.
    pub(super) fn transfer_bytes(&self, device: usize) -> usize {
        let files = &self.members[device].files;
        let capabilities = files.device().block.capabilities();
        transfer_bytes(&self.options, capabilities, files.writable_zone_bytes())
    }

    /// Makes a record of a file on one device.
    pub(super) fn create_on(
        &self,
        device: usize,
        name: &str,
        options: &CreateOptions,
        stamp: Stamp,
        origin: TableOrigin,
    ) -> Result<(DeviceWriter, Part), StoreError> {
        let member = &self.members[device];
        let writer = member.files.create(name, options, stamp, origin, self.transfer_bytes(device))?;
        let reader = member.files.open_file(name)?;
        Ok((writer, Part { device, start_bytes: stamp.start_bytes, reader }))
    }

    /// Makes a new file, in place of one that has the name.
    pub(super) fn create(&self, name: &str, options: &CreateOptions) -> Result<Made, StoreError> {
        self.check_name(name)?;
        self.check_writable(name)?;
        let is_table = options.kind == FileKind::Table;
        let mut naming = self.naming.lock();
        self.decide_before(self.files.read().get(name).cloned().as_deref())?;
        let number = naming.number();
        let born_bytes = self.lifetimes.lock().now();
        let origin = TableOrigin { born_bytes, is_cleaning: false };
        self.keep_reserve();
        let devices = self.choose(options);
        let refusal = self.members.iter().find_map(|member| member.files.check_open().err());
        let mut outcome = Err(refusal.filter(|_| devices.is_empty()).unwrap_or_else(|| self.no_space(name)));
        let stamp = Stamp { number, start_bytes: 0, goes_on: false };
        for device in devices {
            outcome = self.create_on(device, name, options, stamp, origin);
            if !outcome.as_ref().is_err_and(|error| self.is_for_another(device, error)) {
                break;
            }
        }
        let (writer, part) = outcome?;
        let device = part.device;
        let mut file = HybridFile::new(number, name, is_table, options.level, self.env.now().as_nanos());
        file.is_pointer = options.kind == FileKind::Pointer;
        file.set_parts(vec![part]);
        file.born_bytes.store(born_bytes, Ordering::Relaxed);
        let is_expected = options.job.is_some_and(|job| {
            let jobs = self.jobs.lock();
            jobs.inputs.contains_key(&job) || jobs.flushes.contains(&job)
        });
        let counts = !is_expected || self.options.counts_open_tables;
        file.state.counts_while_written.store(counts, Ordering::Relaxed);
        if let Some(job) = options.job.filter(|_| is_expected && self.options.counts_open_tables) {
            self.jobs.lock().demand.compaction_made(job);
        }
        let file = Arc::new(file);
        self.writing_begins(&file);
        let replaced = self.files.write().insert(name.to_owned(), file.clone());
        if let Some(replaced) = replaced {
            self.was_removed(&replaced);
            let mut older: Vec<usize> = replaced.parts().iter().map(|part| part.device).collect();
            older.extend(&*replaced.supersedes.lock());
            older.extend(replaced.rivals.iter().map(|(device, _)| *device));
            older.sort_unstable();
            older.dedup();
            older.retain(|other| *other != device);
            *file.supersedes.lock() = older;
        }
        Ok(Made { file, device, writer })
    }

    /// What a device cannot do another one may.
    pub(super) fn is_for_another(&self, device: usize, error: &StoreError) -> bool {
        error.kind() == StoreErrorKind::NoSpace || self.members[device].is_refusing()
    }

    pub(super) fn no_space(&self, name: &str) -> StoreError {
        let writable = self.members.iter().filter(|member| !member.is_refusing());
        let available_bytes = writable.map(|member| member.files.available_bytes().0).sum();
        let (store, name, zones) = (self.label.clone(), name.to_owned(), self.zone_space());
        StoreError::NoSpace { store, name, requested_bytes: 0, available_bytes, zones }
    }

    /// Use of the zones of all devices that can be written.
    pub(super) fn zone_space(&self) -> Option<ZoneSpace> {
        let writable = self.members.iter().filter(|member| !member.is_refusing());
        writable.map(|member| member.files.zone_space()).reduce(|sum, one| ZoneSpace {
            zone_bytes: sum.zone_bytes.max(one.zone_bytes),
            total: sum.total.saturating_add(one.total),
            free: sum.free.saturating_add(one.free),
            kept: sum.kept.saturating_add(one.kept),
            table_zones_bytes: sum.table_zones_bytes.saturating_add(one.table_zones_bytes),
            is_shared: sum.is_shared || one.is_shared,
        })
    }

    /// A file has another level now.
    pub(super) fn set_level(&self, name: &str, level: u8) {
        let Some(file) = self.files.read().get(name).cloned() else { return };
        file.set_level(level);
        self.recount(&file);
        file.parts().iter().for_each(|part| self.members[part.device].files.set_level(name, level));
    }

    /// Whether a running compaction reads a file.
    pub(super) fn is_input(&self, file: u64) -> bool {
        self.jobs.lock().inputs.values().any(|inputs| inputs.contains(&file))
    }

    /// A zone that was written is not any more.
    pub(super) fn zone_was_left(&self) {
        *self.zones_left.lock() += 1;
        self.zone_left.notify_all();
    }

    /// Waits until another zone is left. False where that is not to be expected.
    pub(super) fn wait_for_zone(&self, until_nanos: u64) -> bool {
        if self.options.driver == HybridDriver::Caller || self.env.now().as_nanos() >= until_nanos {
            return false;
        }
        add(&self.counts.zone_waits, 1);
        let mut left = self.zones_left.lock();
        let deadline = varve_env::Instant::from_nanos((self.env.now().as_nanos() + ZONE_WAIT_NANOS).min(until_nanos));
        self.zone_left.wait_until(&mut left, deadline);
        true
    }
}

/// Bytes of a table that are written at once to a device with zones of `zone_bytes`.
pub(super) fn transfer_bytes(options: &HybridOpenOptions, capabilities: &Capabilities, zone_bytes: u64) -> usize {
    let usual = if capabilities.rotational { ROTATIONAL_TRANSFER_BYTES } else { TRANSFER_BYTES };
    let wanted = options.transfer_bytes.unwrap_or(usual).min(zone_bytes / 16);
    wanted.clamp(4096, TRANSFER_BYTES_MAX) as usize
}

/// Pieces in which a zone moves.
const ZONE_PIECES: u64 = 1024;

/// What is transferred at once where positioning costs time: some ten times what a disk would have transferred meanwhile.
const ROTATIONAL_TRANSFER_BYTES: u64 = 16 << 20;
const TRANSFER_BYTES: u64 = 1 << 20;
const TRANSFER_BYTES_MAX: u64 = 256 << 20;

/// How long a writer waits before it asks again, though nobody said that a zone was left.
const ZONE_WAIT_NANOS: u64 = 20_000_000;
