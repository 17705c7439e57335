//! Making a store on several devices, and opening it: from what each device has to what there is.
//!
//! Each device is opened by itself, and tells its records. Of those of one name the ones with the highest stamp are the file:
//! its parts, one behind the other from its first byte on. Older ones were replaced, moved or removed and are taken away, as are
//! copies that were not finished. Where a part has no part before it, its file was being removed: the first part goes first.

use super::KIND;
use super::cached::{FoundZone, known_files, zone_name, zone_number};
use super::caching::{BlockQueue, CacheZones, CachingName};
use super::core::{Cache, Core, Member, Naming, Removals};
use super::division::{Division, DivisionName, SlowCosts};
use super::file::{HybridFile, Part};
use super::options::{HybridFormatOptions, HybridOpenOptions};
use super::order::OrderedDevice;
use super::tiers::tiers_of;
use super::wake::Wake;
use crate::band::{DeviceFile, DeviceFiles, Lifetimes, MountedFiles, Reserve, Sharing, Stamp};
use crate::error::StoreError;
use crate::file_store::{Location, StoreProperties};
use crate::identity::block::{Presence, Said, said};
use crate::identity::{self, Identity};
use crate::journal::{self, corruption};
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use varve_env::{Condvar, Env, Mutex};
use varve_media::{Device, NominalPerformance};

/// Devices that a set may have: as many as their descriptions have space for.
const DEVICES_MAX: usize = 4;
/// Bytes of evicted blocks that may wait, in batches.
const QUEUED_BATCHES: usize = 32;
/// Evicted blocks are written together, so many bytes.
const BATCH_BYTES: u64 = 64 << 10;

/// More names than are changed while a store is open.
const NUMBERS_OF_OPEN: u64 = 1 << 36;

/// Blocks of trees have about so many bytes.
const USUAL_BLOCK_BYTES: u64 = 4096;

/// Names of the devices, as the name of the store.
pub(super) fn label_of(devices: &[Device]) -> String {
    devices.iter().map(|device| device.block.name()).collect::<Vec<_>>().join("+")
}

fn refuse(label: &str, reason: String) -> StoreError {
    StoreError::InvalidRequest { store: label.to_owned(), reason }
}

fn check_count(label: &str, devices: &[Device]) -> Result<(), StoreError> {
    match (1..=DEVICES_MAX).contains(&devices.len()) {
        true => Ok(()),
        false => Err(refuse(label, format!("a set has 1 to {DEVICES_MAX} devices, and {} were given", devices.len()))),
    }
}

/// What is on the devices together: a store where each has one.
pub(super) fn presence(devices: &[Device]) -> Result<Presence, StoreError> {
    let label = label_of(devices);
    check_count(&label, devices)?;
    let mut found = Vec::with_capacity(devices.len());
    for device in devices {
        found.push(journal::presence_on_device(device, device.block.name(), &DeviceFiles::opened_as(device, KIND))?);
    }
    let stores = found.iter().filter(|presence| **presence == Presence::Store).count();
    match stores {
        0 if found.contains(&Presence::Unfinished) => Ok(Presence::Unfinished),
        0 => Ok(Presence::Blank),
        stores if stores == devices.len() => Ok(Presence::Store),
        _ => {
            // The making of a set ends on one device after the other. One of another set is not for this one to lose.
            let sets: Vec<_> = devices.iter().map(|device| said(device, device.block.name())).collect();
            let members = |said: &Option<Said>| said.as_ref().map(|said| said.identity.members.clone());
            let is_one_set = sets.iter().all(|said| said.is_some() && members(said) == members(&sets[0]));
            if is_one_set {
                return Ok(Presence::Unfinished);
            }
            if !found.contains(&Presence::Blank) {
                let reason = "some of the devices hold a store of several devices, and others one of another set that was \
                              not made to the end; give all devices of one set, or format with overwrite to lose both";
                return Err(refuse(&label, reason.to_owned()));
            }
            let blank = found.iter().position(|presence| *presence == Presence::Blank);
            let name = blank.map_or("", |device| devices[device].block.name());
            Err(refuse(
                &label,
                format!("'{name}' is blank, and others hold a store of several devices; give all of its own"),
            ))
        }
    }
}

/// Makes an empty store on devices.
pub(super) fn format(env: &Env, devices: &[Device], options: &HybridFormatOptions) -> Result<(), StoreError> {
    let label = label_of(devices);
    check_count(&label, devices)?;
    if options.reserve_tables == 0 {
        let reason = "without a table in reserve full devices cannot be compacted, and what is removed gives nothing \
                      back; use a reserve of 1 or more";
        return Err(refuse(&label, reason.to_owned()));
    }
    let tiers = tiers_of(&label, devices, options.tiers.as_deref())?;
    let slowest = tiers.iter().copied().max().unwrap_or(0);
    let zone_bytes =
        |device: &Device| device.block.capabilities().zones.as_ref().map(|zones| zones.zone_capacity_bytes);
    let fast = devices.iter().zip(&tiers).filter(|(_, tier)| **tier == 0);
    let table_bytes = options.table_bytes.or(fast.filter_map(|(device, _)| zone_bytes(device)).min());
    // What the slowest keeps is enough for all: nothing is refused while it has a zone. Of several it is on the first.
    let keeper = tiers.iter().position(|tier| *tier == slowest).unwrap_or(0);
    let reserve = |device: usize| match device == keeper {
        true => Reserve { compaction_tables: options.reserve_tables, log_bands: Some(1) },
        false => Reserve { compaction_tables: 0, log_bands: Some(0) },
    };
    for (number, device) in devices.iter().enumerate() {
        DeviceFiles::check_plan(device, reserve(number), table_bytes)?;
    }
    if !options.overwrite && presence(devices)? == Presence::Store {
        return Err(refuse(&label, "the devices hold a store; format with overwrite to lose it".to_owned()));
    }
    // Two formats in one simulation draw at different times.
    let mut random = env.random(&format!("store id {label} {}", env.now().as_nanos()));
    let store_id = random.next_u64();
    let members: Vec<identity::Member> = devices
        .iter()
        .map(|device| identity::Member::draw(&mut random, device.block.geometry().capacity_bytes))
        .collect();
    let identity = |index: usize| {
        let shape = DeviceFiles::opened_as(&devices[index], KIND).shape;
        Identity { shape, members: members.clone(), index }
    };
    // No device says that it holds a store before each says that one is made.
    let mut begun = Vec::with_capacity(devices.len());
    for (index, device) in devices.iter().enumerate() {
        begun.push(DeviceFiles::begin_format(device, KIND, store_id, identity(index))?);
    }
    for (index, (device, formatting)) in devices.iter().zip(begun).enumerate() {
        DeviceFiles::finish_format(device, formatting, reserve(index), table_bytes)?;
    }
    Ok(())
}

/// Refuses devices that are not the members of one set.
fn check_set(label: &str, mounted: &[MountedFiles]) -> Result<(), StoreError> {
    let Some(first) = mounted.first() else { return Ok(()) };
    let set = &first.identity().members;
    let mut indices: Vec<usize> = Vec::new();
    for device in mounted {
        let identity = device.identity();
        if identity.members != *set || indices.contains(&identity.index) {
            return Err(StoreError::Foreign {
                store: label.to_owned(),
                structure: format!("the set of '{}'", device.label()),
                offset_bytes: 0,
                expected: format!("a device of the set of '{}', once", first.label()),
                found: "one of another set, or the same twice".to_owned(),
                advice: "give the devices that were formatted together".to_owned(),
            });
        }
        indices.push(identity.index);
    }
    match set.len() == mounted.len() {
        true => Ok(()),
        false => Err(StoreError::Foreign {
            store: label.to_owned(),
            structure: "the set of devices".to_owned(),
            offset_bytes: 0,
            expected: format!("{} devices", set.len()),
            found: format!("{}", mounted.len()),
            advice: "give all devices that were formatted together".to_owned(),
        }),
    }
}

/// A record of a name on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    device: usize,
    stamp: Stamp,
    file: DeviceFile,
}

/// What becomes of the records of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Resolved {
    /// The parts of the file, in order; none where there is no such file.
    parts: Vec<Record>,
    /// Devices whose record goes.
    left_over: Vec<usize>,
    /// The file misses bytes before a part that is there: it is kept, and reading those is an error.
    has_gap: bool,
}

/// Decides which records of one name are its file. Pure.
fn resolve(mut records: Vec<Record>) -> Resolved {
    let newest = records.iter().map(|record| record.stamp.number).max().unwrap_or(0);
    // Of two that begin at one place one is empty: nothing was written before its device had no space.
    records.sort_by_key(|record| {
        (std::cmp::Reverse(record.stamp.number), record.stamp.start_bytes, u64::MAX - record.file.size_bytes)
    });
    let mut resolved = Resolved::default();
    let mut end_bytes = 0;
    for record in records {
        let is_first = resolved.parts.is_empty();
        let begins = record.stamp.start_bytes;
        let is_part = record.stamp.number == newest
            && if is_first { begins == 0 } else { begins > resolved.parts[resolved.parts.len() - 1].stamp.start_bytes };
        if !is_part {
            resolved.left_over.push(record.device);
            continue;
        }
        resolved.has_gap |= begins > end_bytes;
        end_bytes = begins + record.file.size_bytes;
        resolved.parts.push(record);
    }
    resolved
}

/// What the devices have together.
struct Found {
    /// The parts of every file.
    files: BTreeMap<String, Vec<Record>>,
    /// Records that go, with their devices.
    left_over: Vec<(usize, String)>,
    /// Number of the next change of a name.
    next: u64,
    cache_zones: Vec<FoundZone>,
}

impl Found {
    /// Nothing is known of lifetimes but how large zones are; what is there was written before.
    fn lifetimes(&self, mounted: &[MountedFiles]) -> Lifetimes {
        let zone_bytes = mounted.iter().map(MountedFiles::writable_zone_bytes).max().unwrap_or(1);
        let records = self.files.values().flatten().filter(|record| record.file.is_table);
        Lifetimes::new(zone_bytes, records.map(|record| record.file.size_bytes).sum())
    }

    fn of(label: &str, mounted: &[MountedFiles]) -> Result<Found, StoreError> {
        let mut found = Found { files: BTreeMap::new(), left_over: Vec::new(), next: 1, cache_zones: Vec::new() };
        let mut records: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for (device, files) in mounted.iter().enumerate() {
            for file in files.files() {
                let Some(stamp) = file.stamp else {
                    let without = format!("none of '{}'", file.name);
                    return Err(corruption(label, "band table", 0, "a stamp of every file", without));
                };
                found.next = found.next.max(stamp.number + 1);
                if let Some(number) = zone_number(&file.name) {
                    found.next = found.next.max(number + 1);
                    found.cache_zones.push(FoundZone { number, device, size_bytes: file.size_bytes });
                    continue;
                }
                // Other files of the store's own are unfinished.
                if file.name.starts_with('\0') {
                    found.left_over.push((device, file.name));
                    continue;
                }
                records.entry(file.name.clone()).or_default().push(Record { device, stamp, file });
            }
        }
        if !found.cache_zones.is_empty() {
            // Files of which cache zones have copies, and no device a record any more: their numbers are not given again.
            found.next = found.next.saturating_add(NUMBERS_OF_OPEN);
        }
        for (name, records) in records {
            let resolved = resolve(records);
            found.left_over.extend(resolved.left_over.into_iter().map(|device| (device, name.clone())));
            if !resolved.parts.is_empty() {
                found.files.insert(name, resolved.parts);
            }
        }
        Ok(found)
    }
}

/// When each table was made, as far as that is known: before it at least as much was written as older ones have.
fn births(files: &BTreeMap<String, Vec<Record>>) -> BTreeMap<String, u64> {
    let bytes = |parts: &[Record]| parts.iter().map(|part| part.file.size_bytes).sum::<u64>();
    let mut tables: Vec<(u64, &String, u64)> = files
        .iter()
        .filter_map(|(name, parts)| parts.first().map(|first| (first, name, bytes(parts))))
        .filter(|(first, ..)| first.file.is_table)
        .map(|(first, name, bytes)| (first.stamp.number, name, bytes))
        .collect();
    tables.sort_unstable();
    let mut written_bytes = 0;
    let born = |(_, name, bytes): (u64, &String, u64)| {
        let born_bytes = written_bytes;
        written_bytes += bytes;
        (name.clone(), born_bytes)
    };
    tables.into_iter().map(born).collect()
}

/// How tables share zones of a device; `None` where each has zones of its own.
fn sharing_of(
    mounted: &MountedFiles,
    options: &HybridOpenOptions,
    lifetimes: &Arc<ShortMutex<Lifetimes>>,
) -> Option<Sharing> {
    let zone_bytes = mounted.writable_zone_bytes();
    let is_small = options.table_bytes.is_some_and(|bytes| bytes <= zone_bytes / 2);
    let table_bytes = options.table_bytes.unwrap_or(zone_bytes);
    options.shared_zones.unwrap_or(is_small).then(|| Sharing { lifetimes: lifetimes.clone(), table_bytes })
}

/// Opens the store on devices.
pub(super) fn open(env: &Env, devices: Vec<Device>, options: &HybridOpenOptions) -> Result<Core, StoreError> {
    let label = label_of(&devices);
    check_count(&label, &devices)?;
    let tiers = tiers_of(&label, &devices, options.tiers.as_deref())?;
    // Everything is read of every device before anything is written to one.
    let mut mounted = Vec::with_capacity(devices.len());
    for device in &devices {
        mounted.push(DeviceFiles::mount(OrderedDevice::device(env, device), KIND)?);
    }
    check_set(&label, &mounted)?;
    let mut found = Found::of(&label, &mounted)?;
    let lifetimes = Arc::new(ShortMutex::new(found.lifetimes(&mounted)));
    let mut members = Vec::with_capacity(devices.len());
    for (mounted, tier) in mounted.into_iter().zip(tiers) {
        let sharing = sharing_of(&mounted, options, &lifetimes);
        let files = mounted.begin(env, sharing.as_ref())?;
        let removals = Mutex::new(env, "removals of a device", Removals::default());
        members.push(Member {
            files,
            tier,
            promised: AtomicU32::new(0),
            removals,
            cleaning: Mutex::new(env, "cleaning of a device", ()),
            waiting: AtomicU32::new(0),
            emptied: AtomicU32::new(0),
        });
    }
    // Cache zones stay where there is a cache for them.
    let is_kept = |zone: &FoundZone| {
        options.caching != CachingName::None
            && members[zone.device].tier == 0
            && members.iter().any(|member| member.tier > 0)
            && zone.size_bytes > 0
    };
    let (kept, gone): (Vec<FoundZone>, Vec<FoundZone>) = found.cache_zones.drain(..).partition(is_kept);
    found.left_over.extend(gone.iter().map(|zone| (zone.device, zone_name(zone.number))));
    for (device, name) in &found.left_over {
        members[*device].files.remove(name)?;
    }
    let births = births(&found.files);
    let mut files = BTreeMap::new();
    for (name, parts) in found.files {
        let Some(first) = parts.first() else { continue };
        let level = first.file.level;
        let file = HybridFile::new(first.stamp.number, &name, first.file.is_table, level, env.now().as_nanos());
        file.is_durable.store(true, Ordering::Relaxed);
        let born_bytes = births.get(&name).copied().unwrap_or(0);
        file.born_bytes.store(born_bytes, Ordering::Relaxed);
        let mut readers = Vec::with_capacity(parts.len());
        for Record { device, stamp, .. } in parts {
            members[device].files.set_born(&name, born_bytes);
            let reader = members[device].files.open_file(&name)?;
            readers.push(Part { device, start_bytes: stamp.start_bytes, reader });
        }
        file.set_parts(readers);
        files.insert(name, Arc::new(file));
    }
    for member in members.iter().filter(|member| member.files.has_pending_names()) {
        member.files.commit_names()?;
    }
    let next = found.next;
    let core = core_of(env, label, members, files, next, lifetimes, options);
    if let Some(cache) = &core.cache {
        let mut kept = kept;
        kept.sort_by_key(|zone| zone.number);
        *cache.found.lock() = kept;
        core.cacher.notify();
    }
    Ok(core)
}

fn properties_of(members: &[Member], options: &HybridOpenOptions) -> StoreProperties {
    let each = || members.iter().map(|member| member.files.properties());
    let fast = members.iter().filter(|member| member.tier == 0);
    let zone_bytes = fast.map(|member| member.files.writable_zone_bytes()).min().unwrap_or(u64::MAX);
    StoreProperties {
        read_alignment_bytes: each().map(|properties| properties.read_alignment_bytes).max().unwrap_or(1),
        rotational: each().any(|properties| properties.rotational),
        preferred_table_bytes: Some(options.table_bytes.unwrap_or(zone_bytes).clamp(1, zone_bytes)),
        table_bytes_max: each().fold(0, |sum: u64, properties| sum.saturating_add(properties.table_bytes_max)),
        wants_evictions: options.caching != CachingName::None && members.iter().any(|member| member.tier > 0),
        flush_is_device_request: true,
        location: Location::Private,
    }
}

fn core_of(
    env: &Env,
    label: String,
    members: Vec<Member>,
    files: BTreeMap<String, Arc<HybridFile>>,
    next: u64,
    lifetimes: Arc<ShortMutex<Lifetimes>>,
    options: &HybridOpenOptions,
) -> Core {
    let nominal = |tier: fn(usize) -> bool| {
        let of_tier = members.iter().filter(move |member| tier(member.tier));
        of_tier.filter_map(|member| member.files.device().block.capabilities().nominal)
    };
    let fast_bytes_per_second =
        nominal(|tier| tier == 0).map(|promised| promised.sequential_write_bytes_per_second).sum();
    let slow_reads_per_second: u64 = nominal(|tier| tier > 0).map(|promised| promised.random_reads_per_second).sum();
    let zone_bytes =
        members.iter().filter(|member| member.tier == 0).map(|member| member.files.writable_zone_bytes()).min();
    let batch_bytes = (zone_bytes.unwrap_or(0) / 1024).clamp(4096, BATCH_BYTES) as usize;
    let fast_zones: u64 =
        members.iter().filter(|member| member.tier == 0).map(|member| u64::from(member.files.zone_use().total)).sum();
    let blocks_of_zone = (zone_bytes.unwrap_or(0) / USUAL_BLOCK_BYTES).max(1);
    let cache = options.caching.policy().map(|policy| Cache {
        queue: ShortMutex::new(BlockQueue::new(batch_bytes * QUEUED_BATCHES)),
        zones: ShortMutex::new(CacheZones::new(policy, fast_zones, blocks_of_zone)),
        writer: Mutex::new(env, "cache zone", None),
        batch_bytes,
        found: ShortMutex::default(),
        known_files: known_files(files.values().cloned()),
    });
    let divides = options.division == DivisionName::ByWorth && options.caching == CachingName::Frequency;
    let division = divides.then(|| {
        let slowest = |value: fn(&NominalPerformance) -> u64| {
            nominal(|tier| tier > 0).map(|promised| value(&promised)).sum::<u64>()
        };
        ShortMutex::new(Division::new(SlowCosts::of(
            slowest(|promised| promised.random_reads_per_second),
            slowest(|promised| promised.sequential_write_bytes_per_second),
        )))
    });
    Core {
        env: env.clone(),
        label,
        properties: properties_of(&members, options),
        options: options.clone(),
        members,
        files: RwLock::new(files),
        naming: Mutex::new(env, "names of a store", Naming { next }),
        locks: Arc::default(),
        placement: options.placement.policy(fast_bytes_per_second),
        migration: options.migration.policy(),
        cache,
        division,
        jobs: ShortMutex::default(),
        interval: ShortMutex::default(),
        zones_left: Mutex::new(env, "zones left", 0),
        zone_left: Condvar::new(env, "zones left"),
        migrator: Wake::new(env, "migration"),
        cacher: Wake::new(env, "cached blocks"),
        cleaner: Wake::new(env, "zone cleaning"),
        lifetimes,
        slow_reads_per_second_max: slow_reads_per_second / 2,
        slow_reads: ShortMutex::default(),
        is_stepping: AtomicBool::new(false),
        counts: super::statistics::Counts::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(device: usize, number: u64, start_bytes: u64, size_bytes: u64) -> Record {
        let stamp = Stamp { number, start_bytes };
        let file = DeviceFile { name: "f".to_owned(), stamp: Some(stamp), is_table: true, level: None, size_bytes };
        Record { device, stamp, file }
    }

    #[test]
    fn the_highest_stamp_is_the_file_and_its_parts_follow_each_other() {
        for (records, parts, left_over, has_gap) in [
            (vec![record(0, 5, 0, 10)], vec![0], vec![], false),
            // Replaced, moved or being removed.
            (vec![record(0, 5, 0, 10), record(1, 7, 0, 3)], vec![1], vec![0], false),
            (vec![record(0, 5, 0, 10), record(1, 5, 10, 3), record(2, 7, 0, 1)], vec![2], vec![0, 1], false),
            // Two parts, in any order.
            (vec![record(1, 5, 10, 3), record(0, 5, 0, 10)], vec![0, 1], vec![], false),
            // The first part was removed.
            (vec![record(1, 5, 10, 3)], vec![], vec![1], false),
            // Nothing was in a part before it had to go elsewhere.
            (vec![record(0, 5, 0, 0), record(1, 5, 0, 9)], vec![1], vec![0], false),
            (vec![record(0, 5, 0, 4), record(1, 5, 4, 0), record(2, 5, 4, 9)], vec![0, 2], vec![1], false),
            // Bytes of the first part are lost.
            (vec![record(0, 5, 0, 6), record(1, 5, 10, 3)], vec![0, 1], vec![], true),
            (vec![], vec![], vec![], false),
        ] {
            let resolved = resolve(records.clone());
            let devices: Vec<usize> = resolved.parts.iter().map(|record| record.device).collect();
            assert_eq!((devices, resolved.left_over, resolved.has_gap), (parts, left_over, has_gap), "{records:?}");
        }
    }
}
