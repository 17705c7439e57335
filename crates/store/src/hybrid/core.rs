//! What the store, its writers, its readers and its background share.

use super::cached::FoundZone;
use super::caching::{BlockQueue, CacheZones};
use super::division::{Division, kept_for_logs};
use super::file::{HybridFile, Part};
use super::levels::{Demand, JOBS_MAX, LevelZones, Tier};
use super::migration::Migration;
use super::moves::SlowReads;
use super::options::{HybridDriver, HybridOpenOptions};
use super::placement::{NewTable, Placement, PlacementView};
use super::statistics::{Counts, add};
use super::wake::Wake;
use crate::band::{DeviceFiles, DeviceWriter, Lifetimes, Stamp, TableOrigin};
use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{CreateOptions, FileKind, ReadableFile, StoreProperties};
use crate::kernel::NameLocks;
use crate::name;
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use varve_env::{Condvar, Env, Mutex};
use varve_media::JobId;

/// A device of the set.
pub(super) struct Member {
    pub(super) files: DeviceFiles,
    /// 0 is the fastest.
    pub(super) tier: usize,
    /// Empty zones that tables which were placed here are about to take.
    pub(super) promised: AtomicU32,
    pub(super) removals: Mutex<Removals>,
    /// Held while a zone is emptied.
    pub(super) cleaning: Mutex<()>,
    /// Writers that found no space, for which a zone is emptied.
    pub(super) waiting: AtomicU32,
    /// Zones that were emptied.
    pub(super) emptied: AtomicU32,
}

/// Removals of names on one device that may not be durable.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Number of the first; 0 where there is none.
    pub(super) first: u64,
    /// All that there ever were.
    count: u64,
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
    pub(super) files: RwLock<BTreeMap<String, Arc<HybridFile>>>,
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
    pub(super) slow_reads_per_second_max: u64,
    pub(super) slow_reads: ShortMutex<SlowReads>,
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
    /// Refuses everything that would acknowledge something once one device cannot promise it.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.members.iter().try_for_each(|member| member.files.check_open())
    }

    pub(super) fn check_name(&self, name: &str) -> Result<(), StoreError> {
        name::check(name).map_err(|reason| name::invalid(&self.label, name, reason))
    }

    pub(super) fn not_found(&self, name: &str) -> StoreError {
        StoreError::NotFound { store: self.label.clone(), name: name.to_owned() }
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

    /// Writable bytes of a zone of the fast tier.
    fn fast_zone_bytes(&self) -> u64 {
        let zone_bytes = self.of_tier(Tier::Fast).map(|(_, member)| member.files.writable_zone_bytes()).max();
        zone_bytes.unwrap_or(u64::MAX)
    }

    /// Tables that a zone of the fast tier has space for, where they share it; else one.
    pub(super) fn places_of_zone(&self) -> u64 {
        let shares = self.of_tier(Tier::Fast).any(|(_, member)| member.files.shares_zones());
        let table_bytes = self.options.table_bytes.filter(|_| shares);
        table_bytes.map_or(1, |bytes| self.fast_zone_bytes() / bytes.max(1)).max(1)
    }

    /// Places of the fast tier that a table of so many bytes takes, or would take.
    pub(super) fn places_of(&self, size_bytes: u64, places_of_zone: u64) -> u64 {
        size_bytes.div_ceil((self.fast_zone_bytes() / places_of_zone).max(1)).max(1)
    }

    /// What policies are told.
    pub(super) fn view(&self) -> PlacementView {
        let mut view = PlacementView::default();
        let reserves = self.placement.reserves();
        for (_, member) in self.of_tier(Tier::Fast) {
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
        for file in self.files.read().values().filter(|file| file.is_table) {
            if file.is_writing.load(Ordering::Relaxed) && !file.counts_while_written.load(Ordering::Relaxed) {
                continue;
            }
            let places = self.places_of(file.size_bytes(), places_of_zone);
            let is_fast = file.parts().first().is_some_and(|part| self.tier(part.device) == Tier::Fast);
            let level = &mut view.levels[file.row()];
            *if is_fast { &mut level.fast } else { &mut level.slow } += places;
        }
        let demand = self.jobs.lock().demand.zones();
        for (level, demand) in view.levels.iter_mut().zip(demand) {
            *level = LevelZones {
                fast: level.fast.div_ceil(places_of_zone),
                slow: level.slow.div_ceil(places_of_zone),
                demand: demand.div_ceil(places_of_zone),
            };
        }
        view.levels[0].demand = view.log_zones;
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

    /// Devices of a tier, those with most space first, then the others.
    fn ordered(&self, tier: Tier, is_table: bool) -> Vec<usize> {
        let mut ordered: Vec<usize> = (0..self.members.len()).collect();
        ordered.sort_by_cached_key(|device| {
            let member = &self.members[*device];
            let zones = member.files.zone_use();
            let free = zones.free.saturating_sub(member.promised.load(Ordering::Relaxed));
            let has_space = free > 0 || (!is_table && member.files.log_space_bytes() > 0);
            let free_bytes = u64::from(free) * member.files.writable_zone_bytes();
            // Of the other tiers the nearest, but of the slow ones the first.
            (!has_space, self.tier(*device) != tier, member.tier, u64::MAX - free_bytes, *device)
        });
        ordered
    }

    /// Bytes written at once to a table: small beside a zone, so that nobody waits long behind it.
    pub(super) fn transfer_bytes(&self, device: usize) -> usize {
        (self.members[device].files.writable_zone_bytes() / 1024).clamp(4096, 1 << 20) as usize
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
        self.check()?;
        let is_table = options.kind == FileKind::Table;
        let mut naming = self.naming.lock();
        let number = naming.number();
        let born_bytes = self.lifetimes.lock().now();
        let origin = TableOrigin { born_bytes, is_cleaning: false };
        let mut outcome = Err(self.no_space(name));
        for device in self.choose(options) {
            outcome = self.create_on(device, name, options, Stamp { number, start_bytes: 0 }, origin);
            if !outcome.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::NoSpace) {
                break;
            }
        }
        let (writer, part) = outcome?;
        let device = part.device;
        let file = HybridFile::new(number, name, is_table, options.level, self.env.now().as_nanos());
        file.set_parts(vec![part]);
        file.born_bytes.store(born_bytes, Ordering::Relaxed);
        file.is_writing.store(true, Ordering::Relaxed);
        let is_expected = options.job.is_some_and(|job| {
            let jobs = self.jobs.lock();
            jobs.inputs.contains_key(&job) || jobs.flushes.contains(&job)
        });
        file.counts_while_written.store(!is_expected, Ordering::Relaxed);
        let file = Arc::new(file);
        let replaced = self.files.write().insert(name.to_owned(), file.clone());
        if let Some(replaced) = replaced {
            self.was_removed(&replaced);
            let mut older: Vec<usize> = replaced.parts().iter().map(|part| part.device).collect();
            older.extend(&*replaced.supersedes.lock());
            older.sort_unstable();
            older.dedup();
            older.retain(|other| *other != device);
            *file.supersedes.lock() = older;
        }
        Ok(Made { file, device, writer })
    }

    /// A file has no name any more.
    fn was_removed(&self, file: &HybridFile) {
        file.was_removed();
        if file.is_table && file.size_bytes() > 0 {
            self.lifetimes.lock().died(file.level(), file.born_bytes.load(Ordering::Relaxed));
        }
    }

    pub(super) fn no_space(&self, name: &str) -> StoreError {
        let available_bytes = self.members.iter().map(|member| member.files.available_bytes().0).sum();
        StoreError::NoSpace { store: self.label.clone(), name: name.to_owned(), requested_bytes: 0, available_bytes }
    }

    /// Removes the record of a name on one device; durable with its next commit.
    pub(super) fn remove_on(&self, device: usize, name: &str, number: u64) -> Result<(), StoreError> {
        let member = &self.members[device];
        let mut removals = member.removals.lock();
        if member.files.remove(name)? {
            removals.count += 1;
            if removals.first == 0 {
                removals.first = number;
            }
        }
        Ok(())
    }

    /// Makes every change of names on one device durable.
    pub(super) fn commit_on(&self, device: usize) -> Result<(), StoreError> {
        let member = &self.members[device];
        let count = member.removals.lock().count;
        member.files.commit_names()?;
        let mut removals = member.removals.lock();
        // One that came meanwhile is told as older than it is, until the next commit.
        if removals.count == count {
            removals.first = 0;
        }
        Ok(())
    }

    /// Removes older records of a name from the devices that have them, durably. The file that has the name now is durable,
    /// or about to be removed. Whoever calls it changes a name.
    pub(super) fn settle(&self, file: &HybridFile, name: &str, number: u64) -> Result<(), StoreError> {
        let older = file.supersedes.lock().clone();
        for device in older {
            self.remove_on(device, name, number)?;
            self.commit_on(device)?;
            file.supersedes.lock().retain(|other| *other != device);
        }
        Ok(())
    }

    /// Everything of a file is durable on its device: makes durable what must not come back beside it.
    pub(super) fn synced(&self, file: &HybridFile) -> Result<(), StoreError> {
        if file.is_durable.load(Ordering::Acquire) || file.is_removed() {
            return Ok(());
        }
        for (device, member) in self.members.iter().enumerate() {
            let first = member.removals.lock().first;
            if first != 0 && first < file.number {
                self.commit_on(device)?;
            }
        }
        if !file.supersedes.lock().is_empty() {
            let mut naming = self.naming.lock();
            let name = file.name.lock().clone();
            if !file.is_removed() {
                let number = naming.number();
                self.settle(file, &name, number)?;
            }
        }
        file.is_durable.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes the name of a file; durable later, and atomic.
    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.check_name(name)?;
        self.check()?;
        let mut naming = self.naming.lock();
        let number = naming.number();
        let file = self.files.read().get(name).cloned().ok_or_else(|| self.not_found(name))?;
        let parts = file.parts();
        if let Some(first) = parts.first().filter(|_| !file.supersedes.lock().is_empty()) {
            // It may have taken the place of the first part of an older one, of which it must not leave others out.
            self.commit_on(first.device)?;
        }
        // Nothing older comes back when the last record is gone.
        self.settle(&file, name, number)?;
        let devices: Vec<usize> = parts.iter().map(|part| part.device).collect();
        if let Some((first, others)) = devices.split_first() {
            self.remove_on(*first, name, number)?;
            // Parts without the one before them are nobody's.
            if !others.is_empty() {
                self.commit_on(*first)?;
            }
            others.iter().try_for_each(|device| self.remove_on(*device, name, number))?;
        }
        self.files.write().remove(name);
        self.was_removed(&file);
        Ok(())
    }

    /// Makes every change of a name so far durable.
    pub(super) fn sync_names(&self) -> Result<(), StoreError> {
        self.check()?;
        let mut naming = self.naming.lock();
        (0..self.members.len()).try_for_each(|device| self.commit_on(device))?;
        let superseding: Vec<(String, Arc<HybridFile>)> = {
            let files = self.files.read();
            let has_older = |file: &HybridFile| !file.supersedes.lock().is_empty();
            files.iter().filter(|(_, file)| has_older(file)).map(|(name, file)| (name.clone(), file.clone())).collect()
        };
        for (name, file) in superseding {
            let number = naming.number();
            self.settle(&file, &name, number)?;
        }
        Ok(())
    }

    /// Makes what was written of a file durable, all its parts.
    fn sync_parts(&self, file: &HybridFile, name: &str) -> Result<(), StoreError> {
        file.parts().iter().try_for_each(|part| self.members[part.device].files.sync_file(name))
    }

    /// Changes the name of a file, durably.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.check_name(from)?;
        self.check_name(to)?;
        self.check()?;
        let mut naming = self.naming.lock();
        let file = self.files.read().get(from).cloned().ok_or_else(|| self.not_found(from))?;
        if from != to && file.parts().len() > 1 && file.is_writing.load(Ordering::Acquire) {
            let reason = format!("'{from}' is written on several devices; finish it before it is renamed");
            return Err(StoreError::InvalidRequest { store: self.label.clone(), reason });
        }
        self.sync_parts(&file, from)?;
        let number = naming.number();
        self.settle(&file, from, number)?;
        if from == to {
            return (0..self.members.len()).try_for_each(|device| self.commit_on(device));
        }
        if file.parts().len() > 1 {
            // Two devices do nothing at one moment: the file goes to one first, under the name that it has.
            self.gather(&mut naming, &file, from)?;
        }
        let Some(device) = file.parts().first().map(|part| part.device) else { return Err(self.not_found(from)) };
        let number = naming.number();
        // What was removed before is gone when this returns.
        for (other, member) in self.members.iter().enumerate() {
            if other != device && member.removals.lock().first != 0 {
                self.commit_on(other)?;
            }
        }
        let target = self.files.read().get(to).cloned();
        self.members[device].files.rename(from, to, Stamp { number, start_bytes: 0 })?;
        file.stamp.store(number, Ordering::Release);
        *file.name.lock() = to.to_owned();
        {
            let mut files = self.files.write();
            files.remove(from);
            files.insert(to.to_owned(), file.clone());
        }
        file.is_durable.store(true, Ordering::Release);
        if let Some(target) = target {
            self.was_removed(&target);
            let mut older: Vec<usize> = target.parts().iter().map(|part| part.device).collect();
            older.extend(&*target.supersedes.lock());
            older.sort_unstable();
            older.dedup();
            older.retain(|other| *other != device);
            *file.supersedes.lock() = older;
            let number = naming.number();
            self.settle(&file, to, number)?;
        }
        Ok(())
    }

    /// A file has another level now.
    pub(super) fn set_level(&self, name: &str, level: u8) {
        let Some(file) = self.files.read().get(name).cloned() else { return };
        file.set_level(level);
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

/// How long a writer waits before it asks again, though nobody said that a zone was left.
const ZONE_WAIT_NANOS: u64 = 20_000_000;
