//! Making a store on several devices, and opening it: from what each device has to what there is.
//!
//! Each device is opened by itself, and tells its [records], which are put together. What does not count is taken away, and copies
//! that were not finished; then, once that is durable everywhere, the records of removals.

use super::KIND;
use super::births::{births, lifetimes_of, sharing_of};
use super::boundary::Boundary;
use super::cached::{FoundZone, known_files, zone_name};
use super::caching::{BlockQueue, CacheZones, CachingName, sampled_one_in};
use super::core::{Cache, Core, Member, Naming};
use super::division::{Division, DivisionName, SlowCosts};
use super::file::{HybridFile, Part};
use super::given_up;
use super::options::{HybridFormatOptions, HybridOpenOptions, HybridTechnique, MissingDevices, table_bytes_for};
use super::order::OrderedDevice;
use super::records::{ATTEMPT_NAME, Found, NUMBERS_OF_OPEN, Record, Resolved, Set, incomplete};
use super::removals::Removals;
use super::tiers::{performance_of, tiers_of};
use super::wake::Wake;
use crate::access_times::AccessTimes;
use crate::band::{DeviceFiles, Lifetimes, MountedFiles, Reserve};
use crate::error::StoreError;
use crate::file_store::{Location, StoreProperties};
use crate::identity::block::{Presence, Said, said};
use crate::identity::{self, Identity};
use crate::journal::{self, METADATA};
use parking_lot::{Mutex as ShortMutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use varve_env::{Condvar, Env, Mutex};
use varve_media::{Device, NominalPerformance, OverlayDevice};

/// Devices that a set may have: as many as their descriptions have space for.
const DEVICES_MAX: usize = identity::MEMBERS_MAX;
/// Bytes of evicted blocks that may wait, in batches.
const QUEUED_BATCHES: usize = 32;
/// Evicted blocks are written together, so many bytes.
const BATCH_BYTES: u64 = 64 << 10;

/// Bytes of two records of a file that are compared at once.
const COMPARED_BYTES: usize = 64 << 10;

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
    let fast_zone_bytes = fast.filter_map(|(device, _)| zone_bytes(device)).min();
    let table_bytes = table_bytes_for(options.table_bytes, fast_zone_bytes).or(fast_zone_bytes);
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
    let capacities = devices.iter().map(|device| device.block.geometry().capacity_bytes);
    let members = identity::Member::draw_set(&mut random, capacities);
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

fn mount(env: &Env, devices: &[Device], options: &HybridOpenOptions) -> Result<Vec<MountedFiles>, StoreError> {
    let ordered = |device: &Device| match options.has(HybridTechnique::RequestOrder) {
        true => OrderedDevice::device(env, device),
        false => device.clone(),
    };
    devices.iter().map(|device| DeviceFiles::mount(ordered(device), KIND)).collect()
}

/// Removes records durably. A device that refuses keeps them: they do not count in the open store, and a file that takes their names
/// from the files that do [knows of them](Member::may_have).
fn remove_records<'a>(
    members: &[Member],
    records: impl Iterator<Item = (usize, &'a str)> + Clone,
) -> Result<(), StoreError> {
    for (device, name) in records.clone() {
        let member = &members[device];
        match member.files.remove(name) {
            Err(_) if member.is_refusing() => {}
            removed => _ = removed?,
        }
    }
    for (device, member) in members.iter().enumerate().filter(|(_, member)| member.files.has_pending_names()) {
        match member.files.commit_names() {
            Err(_) if member.is_refusing() && !members.iter().all(Member::is_refusing) => {
                let names = records.clone().filter(|(other, _)| *other == device);
                names.for_each(|(_, name)| member.may_still_have(name));
            }
            committed => committed?,
        }
    }
    Ok(())
}

/// Keeps the older records of files on devices that take no writes. What was found of such a file may be in the cache of its
/// device only, or in one copy of its band table: until the device is written again an older record is all that is durable.
fn keep_older_records(
    members: &[Member],
    files: &BTreeMap<String, Arc<HybridFile>>,
    left_over: &mut Vec<(usize, String)>,
) {
    left_over.retain(|(device, name)| {
        let file = files.get(name);
        let uncertain = file.filter(|file| file.parts().iter().any(|part| members[part.device].is_refusing()));
        uncertain.inspect(|file| file.supersedes.lock().push(*device)).is_none()
    });
}

/// Whether a device has nothing of a file but what the part at the same place begins with: it was to go there, and had no space.
fn is_beginning(members: &[Member], name: &str, rival: &Record, parts: &[Record]) -> bool {
    let reader = |record: &Record| members[record.device].files.open_file(name).ok();
    let compared = || {
        let part = parts.iter().find(|part| part.stamp.start_bytes == rival.stamp.start_bytes)?;
        let (one, other) = (reader(rival)?, reader(part)?);
        let (mut found, mut expected) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
        let mut at = 0;
        while at < one.size_bytes() {
            let length = (one.size_bytes() - at).min(COMPARED_BYTES as u64) as usize;
            one.read_at(at, &mut found[..length], &METADATA).ok()?;
            other.read_at(at, &mut expected[..length], &METADATA).ok()?;
            if found[..length] != expected[..length] {
                return None;
            }
            at += length as u64;
        }
        Some(())
    };
    compared().is_some()
}

/// Opens the store on devices.
pub(super) fn open(env: &Env, devices: Vec<Device>, options: &HybridOpenOptions) -> Result<Core, StoreError> {
    let label = label_of(&devices);
    check_count(&label, &devices)?;
    // Everything is read of every device before anything is written to one.
    let mut mounted = mount(env, &devices, options)?;
    let set = Set::of(&label, &mounted)?;
    let is_read_only = !set.missing.is_empty() && options.missing_devices == MissingDevices::ReadOnly;
    if !set.missing.is_empty() && options.missing_devices == MissingDevices::Refuse {
        let members = mounted.first().map_or(0, |device| device.identity().members.len());
        return Err(incomplete(&label, &set, members));
    }
    if is_read_only {
        // What an open writes stays in memory.
        let over = |device: &Device| {
            let named = |error| journal::media_error(device.block.name(), "zones", error);
            OverlayDevice::device(device).map_err(named)
        };
        let over = devices.iter().map(over).collect::<Result<Vec<Device>, StoreError>>()?;
        mounted = mount(env, &over, options)?;
    }
    let tiers = tiers_of(&label, &devices, options.tiers.as_deref())?;
    let fast = mounted.iter().zip(&tiers).filter(|(_, tier)| **tier == 0);
    let fast_zone_bytes = fast.map(|(mounted, _)| mounted.writable_zone_bytes()).min();
    let table_bytes = table_bytes_for(options.table_bytes, fast_zone_bytes);
    let options = &HybridOpenOptions { table_bytes, ..options.clone() };
    let mut found = Found::of(&label, &mounted, &set)?;
    let lifetimes = Arc::new(ShortMutex::new(lifetimes_of(&found.files, &mounted)));
    let mut members = Vec::with_capacity(devices.len());
    let mut refusals = Vec::new();
    for (mounted, tier) in mounted.into_iter().zip(tiers) {
        let sharing = sharing_of(&mounted, options, &lifetimes);
        let (files, refusal) = mounted.begin(env, sharing.as_ref());
        refusals.extend(refusal);
        let removals = Mutex::new(env, "removals of a device", Removals::default());
        members.push(Member {
            files,
            tier,
            promised: AtomicU32::new(0),
            removals,
            is_suspect: AtomicBool::new(false),
            cleaning: Mutex::new(env, "cleaning of a device", ()),
            waiting: AtomicU32::new(0),
            emptied: AtomicU32::new(0),
        });
    }
    // Where one device takes no writes the others are written.
    if refusals.len() == members.len()
        && let Some(refusal) = refusals.into_iter().next()
    {
        return Err(refusal);
    }
    if !is_read_only {
        given_up::complete(&set, &members, found.next)?;
    }
    // Cache zones stay where there is a cache for them.
    for (name, resolved) in &mut found.files {
        let Resolved { parts, rivals, .. } = resolved;
        let (same, others): (Vec<Record>, Vec<Record>) =
            std::mem::take(rivals).into_iter().partition(|rival| is_beginning(&members, name, rival, parts));
        *rivals = others;
        found.left_over.extend(same.into_iter().map(|rival| (rival.device, name.clone())));
    }
    let is_kept = |zone: &FoundZone| {
        options.caching != CachingName::None
            && members[zone.device].tier == 0
            && members.iter().any(|member| member.tier > 0)
            && zone.size_bytes > 0
    };
    let (kept, gone): (Vec<FoundZone>, Vec<FoundZone>) = found.cache_zones.drain(..).partition(is_kept);
    found.left_over.extend(gone.iter().map(|zone| (zone.device, zone_name(zone.number))));
    let births = births(&found.files);
    let mut files = BTreeMap::new();
    for (name, Resolved { parts, rivals, is_cut, .. }) in found.files {
        let Some(first) = parts.first() else { continue };
        let level = first.file.level;
        let mut file = HybridFile::new(first.stamp.number, &name, first.file.is_table, level, env.now().as_nanos());
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
        file.is_cut = is_cut;
        file.rivals = rivals.iter().map(|record| (record.device, record.stamp.start_bytes)).collect();
        files.insert(name, Arc::new(file));
    }
    keep_older_records(&members, &files, &mut found.left_over);
    remove_records(&members, found.left_over.iter().map(|(device, name)| (*device, name.as_str())))?;
    // Nobody needs to be told any more what was removed, unless a device may come back, or be written again, that was
    // not told.
    let is_attempt = !is_read_only && !set.missing.is_empty();
    let keeps_removals = is_attempt || members.iter().any(Member::is_refusing);
    let removals = found.removals.iter().filter(|_| !keeps_removals).map(|(device, name)| (*device, name.as_str()));
    remove_records(&members, removals.chain(found.attempts.iter().map(|device| (*device, ATTEMPT_NAME))))?;
    let mut next = found.next;
    let (mut set, mut attempt) = (set, 0);
    if is_attempt {
        // What a device that comes back has made has lower stamps.
        attempt = next.saturating_add(NUMBERS_OF_OPEN);
        next = attempt.saturating_add(1);
        set = given_up::begin_attempt(set, &members, attempt)?;
    }
    let core = core_of(env, label, members, files, next, lifetimes, options);
    let core = Core { set, is_read_only, attempt: AtomicU64::new(attempt), ..core };
    core.files.read().values().for_each(|file| core.recount(file));
    if let Some(cache) = &core.cache {
        let mut kept = kept;
        kept.sort_by_key(|zone| zone.number);
        *cache.found.lock() = kept;
        core.cacher.notify();
    }
    Ok(core)
}

/// That of the devices where most is transferred at once.
fn preferred_transfer_bytes(members: &[Member], options: &HybridOpenOptions) -> Option<u64> {
    let of = |member: &Member| {
        let capabilities = member.files.device().block.capabilities();
        super::core::transfer_bytes(options, capabilities, member.files.writable_zone_bytes()) as u64
    };
    members.iter().filter(|member| member.files.properties().rotational).map(of).max()
}

fn properties_of(members: &[Member], options: &HybridOpenOptions) -> StoreProperties {
    let each = || members.iter().map(|member| member.files.properties());
    let fast = members.iter().filter(|member| member.tier == 0);
    let zone_bytes = fast.map(|member| member.files.writable_zone_bytes()).min().unwrap_or(u64::MAX);
    StoreProperties {
        read_alignment_bytes: each().map(|properties| properties.read_alignment_bytes).max().unwrap_or(1),
        rotational: each().any(|properties| properties.rotational),
        access: each()
            .map(|properties| properties.access)
            .max_by_key(AccessTimes::bytes_per_positioning)
            .unwrap_or(AccessTimes::typical(false)),
        places_by_level: members.iter().any(|member| member.tier > 0),
        preferred_transfer_bytes: preferred_transfer_bytes(members, options),
        preferred_table_bytes: Some(options.table_bytes.unwrap_or(zone_bytes).clamp(1, zone_bytes)),
        table_bytes_max: each().fold(0, |sum: u64, properties| sum.saturating_add(properties.table_bytes_max)),
        wants_evictions: options.caching != CachingName::None && members.iter().any(|member| member.tier > 0),
        wants_rewrites: options.caching.counts_reads() && members.iter().any(|member| member.tier > 0),
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
        of_tier.map(|member| performance_of(member.files.device().block.capabilities(), member.tier))
    };
    let fast_bytes_per_second =
        nominal(|tier| tier == 0).map(|promised| promised.sequential_write_bytes_per_second).sum();
    let slowest = members.iter().map(|member| member.tier).max().unwrap_or(0);
    let boundaries = (0..slowest).map(|upper| {
        let behind = members.iter().filter(|member| member.tier > upper);
        let promised = behind.map(|member| performance_of(member.files.device().block.capabilities(), member.tier));
        let (reads, bytes) = promised.fold((0, 0), |(reads, bytes), promised| {
            (reads + promised.random_reads_per_second, bytes + promised.sequential_write_bytes_per_second)
        });
        Boundary::new(upper, reads, bytes)
    });
    let boundaries: Vec<Boundary> = boundaries.collect();
    let zone_bytes =
        members.iter().filter(|member| member.tier == 0).map(|member| member.files.writable_zone_bytes()).min();
    let batch_bytes = (zone_bytes.unwrap_or(0) / 1024).clamp(4096, BATCH_BYTES) as usize;
    let fast_zones: u64 =
        members.iter().filter(|member| member.tier == 0).map(|member| u64::from(member.files.zone_use().total)).sum();
    let blocks_of_zone = (zone_bytes.unwrap_or(0) / USUAL_BLOCK_BYTES).max(1);
    let cache = options.caching.policy().map(|policy| Cache {
        queue: ShortMutex::new(BlockQueue::new(batch_bytes * QUEUED_BATCHES)),
        zones: ShortMutex::new(CacheZones::new(policy, fast_zones, zone_bytes.unwrap_or(0), USUAL_BLOCK_BYTES)),
        writer: Mutex::new(env, "cache zone", None),
        batch_bytes,
        found: ShortMutex::default(),
        known_files: known_files(files.values().cloned()),
    });
    let divides = options.division == DivisionName::ByWorth && options.caching.counts_reads();
    let division = divides.then(|| {
        let slowest = |value: fn(&NominalPerformance) -> u64| {
            nominal(|tier| tier > 0).map(|promised| value(&promised)).sum::<u64>()
        };
        let costs = SlowCosts::of(
            slowest(|promised| promised.random_reads_per_second),
            slowest(|promised| promised.sequential_write_bytes_per_second),
        );
        ShortMutex::new(Division::new(costs, sampled_one_in(fast_zones, blocks_of_zone)))
    });
    Core {
        env: env.clone(),
        label,
        properties: properties_of(&members, options),
        options: options.clone(),
        members,
        set: Set::default(),
        is_read_only: false,
        attempt: AtomicU64::new(0),
        deciding: Mutex::new(env, "members given up", ()),
        buried: Mutex::new(env, "names that were removed", BTreeMap::new()),
        files: RwLock::new(files),
        level_counts: ShortMutex::default(),
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
        boundaries,
        reads_of_tier: Default::default(),
        is_stepping: AtomicBool::new(false),
        counts: super::statistics::Counts::default(),
    }
}
