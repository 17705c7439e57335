//! How an array is made and opened.

use super::assembly::{Assembly, Given, MemberFound, assemble, inspect};
use super::device::{ArrayDevice, ArrayStatistics, BufferFaults, Front, Incident, MemberState, Shared, Slot};
use super::error::{ArrayError, name_of};
use super::geometry::{ArrayGeometry, MEMBERS_MAX, RaidLevel};
use super::intent::{FoundPage, IntentMap, IntentPage, newest, region_stripes};
use super::maintenance::ScrubReport;
use super::member::Member;
use super::membership::{write_page, write_superblocks};
use super::protection::Dix;
use super::stripe_journal::{self, JournaledWrite, OpenJournal, Payload, StripeJournal};
use super::superblock::{CHUNK_BYTES_MAX, INTENT_PAGES, Superblock, UNIT_BYTES};
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::{Env, Mutex};
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Capabilities, Device, Geometry, IoClass, IoContext, MediaError, MediaErrorKind,
    NominalPerformance, Operation, ProtectionFormat, SyncOrder,
};

/// Size of a chunk unless another one is named, in bytes: a flush or compaction covers whole stripes.
pub const DEFAULT_CHUNK_BYTES: u64 = 64 << 10;
/// Offset of the data on small and on other members, in bytes. A store on the array has a superblock 64 KiB behind its
/// first, and must not be found at that place of a member. The gap is for later versions.
pub(super) const DATA_OFFSETS: [u64; 2] = [128 << 10, 1 << 20];
/// Members from this size on have the larger offset, in bytes.
const LARGE_MEMBER_BYTES: u64 = 1 << 30;

/// What an array is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayParameters {
    /// Name for messages.
    pub name: String,
    /// Level. An array of another one is refused.
    pub level: RaidLevel,
    /// Size of a chunk in bytes, a multiple of 4096; `None` is [`DEFAULT_CHUNK_BYTES`] for a new array, and whatever an
    /// existing one has.
    pub chunk_bytes: Option<u64>,
    /// Treatment of the members' protection information.
    pub dix: Dix,
    /// Place of the journal of stripes; `None` keeps that of an existing array, and is [`StripeJournal::None`] for a new one.
    /// Levels without parity have no journal.
    pub journal: Option<StripeJournal>,
}

/// What opening may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayOpening {
    /// Make an array of members that are all blank.
    pub create: bool,
    /// Make an array whatever the members hold. Everything on them is lost. Its redundancy is then resynced.
    pub format: bool,
    /// Places in the list of members whose devices are blank, stale or damaged: each is rebuilt as a member that is missing.
    pub replace: Vec<usize>,
    /// Open an array that was not closed although members are missing: data of a missing member, in stripes that were
    /// being written, may be wrong.
    pub accepts_unsynced: bool,
    /// Write nothing to the members: no marks, no resync, no rebuild. Writes to the array are refused.
    pub is_read_only: bool,
}

/// Identity, shape and state of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayStatus {
    /// Identity, in hexadecimal.
    pub identity: String,
    /// Level.
    pub level: RaidLevel,
    /// Grows with each change of the members in use.
    pub generation: u64,
    /// Bytes of data.
    pub capacity_bytes: u64,
    /// Bytes that lie together on one member.
    pub chunk_bytes: u64,
    /// Number of stripes.
    pub stripes: u64,
    /// Regions whose redundancy may not fit their data.
    pub due_regions: u64,
    /// Bytes of data of a region.
    pub region_bytes: u64,
    /// Format of the members' protection information.
    pub protection: Option<ProtectionFormat>,
    /// Place of the journal of stripes.
    pub journal: StripeJournal,
    /// State of each member, by slot, with the name of its device where that is there.
    pub members: Vec<(Option<String>, MemberState)>,
}

impl ArrayStatus {
    /// Every member has its part of everything.
    pub fn is_whole(&self) -> bool {
        self.due_regions == 0 && self.members.iter().all(|(_, state)| *state == MemberState::InUse)
    }
}

impl Default for ArrayOpening {
    /// Made on blank members, and nothing is lost.
    fn default() -> Self {
        ArrayOpening { create: true, format: false, replace: Vec::new(), accepts_unsynced: false, is_read_only: false }
    }
}

/// An open array. A clone is another handle; the array ends with the last handle, the device among them.
///
/// *Visibility and order* are those of [`varve_media::BlockDevice`]: writes to one stripe are done one after the other.
/// *Durability*: a sync is one of every member. *Failure*: a member whose write or sync failed is lost; the others record
/// that before anything is acknowledged without it. When more members fail than the level tolerates the array stops:
/// writes, syncs, and reads that need redundancy are refused until it is opened again. A read that fails is answered from
/// redundancy.
///
/// *Power cuts*: regions that were being written are resynced when the array is opened again, while it serves. Until a
/// region is resynced, and where a member is missing too, data of that member in stripes that were being written may be
/// wrong: opening refuses that unless asked to accept it.
///
/// Any thread may use it. Memory: buffers of the requests in flight, and some bytes for each marked region.
#[derive(Clone)]
pub struct Array {
    front: Arc<Front>,
}

fn unsuitable(device: &Device, expected: impl Into<String>, found: impl Into<String>) -> ArrayError {
    let device = device.block.name().to_owned();
    ArrayError::Unsuitable { device, expected: expected.into(), found: found.into() }
}

/// Refuses devices that cannot be members.
fn check_member(device: &Device) -> Result<(), ArrayError> {
    let (geometry, capabilities) = (device.block.geometry(), device.block.capabilities());
    if capabilities.zones.is_some() || capabilities.tracks.is_some() {
        return Err(unsuitable(device, "sectors that can be written at any time", "zones or tracks"));
    }
    let sector = u64::from(geometry.sector_bytes);
    if !geometry.sector_bytes.is_power_of_two() || sector > UNIT_BYTES {
        return Err(unsuitable(device, "sectors of at most 4096 bytes", format!("{sector} bytes")));
    }
    if u64::from(geometry.physical_sector_bytes) > UNIT_BYTES {
        let found = format!("{} bytes", geometry.physical_sector_bytes);
        return Err(unsuitable(device, "physical sectors of at most 4096 bytes", found));
    }
    Ok(())
}

/// Refuses a member whose protection information is not that of the array.
fn check_protection(device: &Device, expected: Option<ProtectionFormat>) -> Result<(), ArrayError> {
    let found = device.block.capabilities().protection;
    let text = |format: Option<ProtectionFormat>| match format {
        None => "no protection information".to_owned(),
        Some(ProtectionFormat { protection_type, guard, interval_bytes }) => {
            let (number, guard) = (protection_type.number(), guard.name());
            format!("protection information of type {number} with {guard} guards for every {interval_bytes} bytes")
        }
    };
    if found == expected { Ok(()) } else { Err(unsuitable(device, text(expected), text(found))) }
}

/// Sizes and properties of an array of these members.
fn describe(superblock: &Superblock, dix: Dix, members: &[&Device]) -> (Geometry, Capabilities) {
    let (geometry, sector_bytes) = (&superblock.geometry, superblock.sector_bytes);
    let blocks = || members.iter().map(|member| &member.block);
    let physical = blocks().map(|block| block.geometry().physical_sector_bytes).max().unwrap_or(sector_bytes);
    let sizes = Geometry {
        capacity_bytes: geometry.capacity_bytes(),
        sector_bytes,
        physical_sector_bytes: physical.max(sector_bytes),
    };
    let all = |is: fn(&Capabilities) -> bool| blocks().all(|block| is(block.capabilities()));
    let nominal = blocks().map(|block| block.capabilities().nominal).collect::<Option<Vec<_>>>();
    let data = geometry.data_columns() as u64;
    let nominal = nominal.filter(|nominal| !nominal.is_empty()).map(|nominal| {
        let least = |of: fn(&NominalPerformance) -> u64| nominal.iter().map(of).min().unwrap_or(0);
        NominalPerformance {
            sequential_read_bytes_per_second: least(|of| of.sequential_read_bytes_per_second).saturating_mul(data),
            sequential_write_bytes_per_second: least(|of| of.sequential_write_bytes_per_second).saturating_mul(data),
            random_reads_per_second: nominal.iter().map(|of| of.random_reads_per_second).sum(),
        }
    });
    let capabilities = Capabilities {
        rotational: !all(|of| !of.rotational),
        volatile_cache: !all(|of| !of.volatile_cache),
        forced_unit_access: all(|of| of.forced_unit_access),
        discard: all(|of| of.discard),
        queue_depth: blocks().map(|block| block.capabilities().queue_depth).fold(0, u32::saturating_add).max(1),
        nominal,
        seek: blocks().find_map(|block| block.capabilities().seek),
        buffer_alignment_bytes: blocks().map(|block| block.capabilities().buffer_alignment_bytes).max().unwrap_or(1),
        protection: superblock.protection.filter(|_| dix != Dix::Off),
        ..Capabilities::of_blocks()
    };
    (sizes, capabilities)
}

/// The superblock of a new array of members of `member_bytes`, in slot 0.
fn layout(parameters: &ArrayParameters, members: &[&Device]) -> Result<Superblock, ArrayError> {
    let chunk_bytes = parameters.chunk_bytes.unwrap_or(DEFAULT_CHUNK_BYTES);
    let first = members.first().map_or(0, |member| member.block.geometry().capacity_bytes);
    for member in members {
        let found_bytes = member.block.geometry().capacity_bytes;
        if found_bytes != first {
            let device = member.block.name().to_owned();
            return Err(ArrayError::OtherSize { device, expected_bytes: first, found_bytes });
        }
    }
    if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(UNIT_BYTES) || chunk_bytes > CHUNK_BYTES_MAX {
        let expected = format!("a multiple of 4096 bytes, at most {CHUNK_BYTES_MAX}");
        return Err(ArrayError::Chunk { expected, found: chunk_bytes });
    }
    let shape = ArrayGeometry { level: parameters.level, members: members.len(), chunk_bytes, stripes: 0 };
    let has_journal = parameters.journal == Some(StripeJournal::Members) && parameters.level.parity_columns() > 0;
    let journal_area_bytes = if has_journal { stripe_journal::area_bytes(&shape, first) } else { 0 };
    let data_offset = DATA_OFFSETS[usize::from(first >= LARGE_MEMBER_BYTES)].saturating_add(2 * journal_area_bytes);
    let stripes = first.saturating_sub(data_offset) / chunk_bytes;
    let sector_bytes = members.iter().map(|member| member.block.geometry().sector_bytes).max().unwrap_or(512).max(512);
    let protection = members.first().and_then(|member| member.block.capabilities().protection);
    members.iter().try_for_each(|member| check_protection(member, protection))?;
    let geometry = ArrayGeometry { stripes, ..shape };
    let superblock = Superblock {
        identity: [0; 16],
        generation: 0,
        in_use: u64::MAX >> (MEMBERS_MAX - members.len()),
        rebuilding: 0,
        member_bytes: first,
        data_offset,
        region_stripes: region_stripes(stripes, chunk_bytes),
        slot: 0,
        sector_bytes,
        protection,
        journal_area_bytes,
        is_made: false,
        geometry,
    };
    superblock.check().map_err(|flaw| match members.first() {
        Some(member) => unsuitable(member, format!("{} ({})", flaw.expected, flaw.what), flaw.found),
        None => ArrayError::damaged(&parameters.name, flaw),
    })?;
    Ok(superblock)
}

/// Outcome of a replay.
struct ReplayedJournal {
    /// Number of the journal's begin.
    times: u64,
    /// Members that failed meanwhile, and that the array goes on without.
    failed: BTreeSet<usize>,
}

/// Replays the journal of stripes, and makes the result durable. A member that cannot be written, or whose journal
/// cannot be read, counts as lost while the level tolerates that.
///
/// # Errors
/// Errors of the devices; a journal that is damaged on every member; [`ArrayError::Unsynced`] if members are missing, the
/// journal has records, and the array is opened for reading only.
fn replay(
    env: &Env,
    superblock: &Superblock,
    devices: &[Option<&Device>],
    is_read_only: bool,
    context: &IoContext,
) -> Result<ReplayedJournal, ArrayError> {
    let is_whole = |slot: &usize| superblock.is_in_use(*slot) && !superblock.is_rebuilding(*slot);
    let members: Vec<(usize, &Device)> =
        (0..devices.len()).filter(is_whole).filter_map(|slot| Some((slot, devices[slot]?))).collect();
    let geometry = &superblock.geometry;
    let missing = devices.len() - members.len();
    let mut failed = BTreeSet::new();
    let mut fail = |slot: usize, error: MediaError| {
        let is_new = failed.insert(slot);
        match missing + failed.len() > geometry.level.tolerated(devices.len()) {
            true if is_new => Err(error),
            _ => Ok(()),
        }
    };
    let recovered = stripe_journal::recover(env, superblock, &members, context)?;
    for (slot, error) in recovered.unreadable {
        fail(slot, error)?;
    }
    if is_read_only {
        if missing > 0 && !recovered.payloads.is_empty() {
            let regions = recovered.payloads.len();
            let region_bytes = geometry.stripe_bytes();
            return Err(ArrayError::Unsynced { array: name_of(&superblock.identity), missing, regions, region_bytes });
        }
        return Ok(ReplayedJournal { times: recovered.times, failed: BTreeSet::new() });
    }
    for payload in &recovered.payloads {
        // It was decoded when it was read.
        let Ok(Payload::Writes(writes)) = stripe_journal::decode(payload, superblock) else { continue };
        for write in writes {
            let slot = geometry.member_of(write.stripe, write.column);
            let Some((_, device)) = members.iter().find(|(other, _)| *other == slot) else { continue };
            if let Err(error) = write_again(device, superblock, &write, context) {
                if error.kind() == MediaErrorKind::InvalidRequest {
                    return Err(error.into());
                }
                fail(slot, error)?;
            }
        }
    }
    if !recovered.payloads.is_empty() {
        for (slot, device) in &members {
            if let Err(error) = SyncOrder::shared(env, device.block.clone()).sync(context) {
                fail(*slot, error)?;
            }
        }
    }
    Ok(ReplayedJournal { times: recovered.times, failed })
}

/// Does one write of the journal.
fn write_again(
    device: &Device,
    superblock: &Superblock,
    write: &JournaledWrite<'_>,
    context: &IoContext,
) -> Result<(), MediaError> {
    let offset_bytes = superblock.data_offset + write.stripe * superblock.geometry.chunk_bytes + write.start;
    let Some((data, tuples)) = write.data else {
        return device.block.discard_at(offset_bytes, write.length, context);
    };
    let data = AlignedBuffer::copy_of(data, device.block.capabilities().buffer_alignment_bytes as usize);
    match tuples.is_empty() {
        true => device.block.write_at(offset_bytes, &data, context),
        false => device.block.write_protected_at(offset_bytes, &data, tuples, context),
    }
}

impl Array {
    /// Opens the array of these members, or makes it. `None` stands for a member that is missing. Members may be in any order.
    ///
    /// Returns the array as a device, and a handle. Reads 16 KiB of each member, and 3 MiB and 64 places of blank ones.
    ///
    /// # Errors
    /// [`ArrayError`]; nothing was written unless it is [`ArrayError::Media`].
    pub fn open(
        env: &Env,
        members: &[Option<Device>],
        parameters: &ArrayParameters,
        opening: &ArrayOpening,
    ) -> Result<(Device, Array), ArrayError> {
        let level = parameters.level;
        if !(level.members_min()..=MEMBERS_MAX).contains(&members.len()) {
            let expected = format!("{} to {MEMBERS_MAX}", level.members_min());
            return Err(ArrayError::MemberCount { level, expected, found: members.len() });
        }
        members.iter().flatten().try_for_each(check_member)?;
        let context = IoContext::of(IoClass::Metadata);
        let given = members
            .iter()
            .map(|member| member.as_ref().map(|device| inspect(device, &context)).transpose())
            .collect::<Result<Vec<Option<Given>>, MediaError>>()?;
        match assemble(&given, parameters, opening)? {
            Assembly::Create => Array::make(env, members, &given, parameters, opening, &context),
            Assembly::Open { mut superblock, places, mut needs_record } => {
                let devices: Vec<Option<&Device>> =
                    places.iter().map(|place| place.and_then(|place| members[place].as_ref())).collect();
                devices.iter().flatten().try_for_each(|device| check_protection(device, superblock.protection))?;
                let pages = Array::read_intents(&superblock, &devices, &context)?;
                let mut times = 0;
                if superblock.has_journal() {
                    let replayed = replay(env, &superblock, &devices, opening.is_read_only, &context)?;
                    times = replayed.times;
                    if !replayed.failed.is_empty() {
                        superblock.leave_out(&replayed.failed);
                        needs_record = true;
                    }
                }
                let lost = (0..devices.len())
                    .filter(|slot| !superblock.is_in_use(*slot) || superblock.is_rebuilding(*slot))
                    .count();
                let has_parity = level.parity_columns() > 0;
                if has_parity && lost > 0 && !pages.marked.is_empty() && !opening.accepts_unsynced {
                    return Err(ArrayError::Unsynced {
                        array: name_of(&superblock.identity),
                        missing: lost,
                        regions: pages.marked.len(),
                        region_bytes: superblock.region_stripes.saturating_mul(superblock.geometry.stripe_bytes()),
                    });
                }
                let journal = superblock.has_journal().then(|| OpenJournal::new(env, &superblock, times));
                let how = (needs_record, opening.is_read_only);
                Array::start(env, &devices, parameters, (superblock, journal), pages, how)
            }
        }
    }

    /// Makes an array. Until the last step its members are those of an array that is being made, which is made again.
    fn make(
        env: &Env,
        members: &[Option<Device>],
        given: &[Option<Given>],
        parameters: &ArrayParameters,
        opening: &ArrayOpening,
        context: &IoContext,
    ) -> Result<(Device, Array), ArrayError> {
        let devices: Vec<&Device> = members.iter().flatten().collect();
        let mut superblock = layout(parameters, &devices)?;
        // Another identity than those that are there, in a simulation too.
        let before: Vec<String> = given
            .iter()
            .flatten()
            .map(|given| match &given.found {
                MemberFound::Member(superblock) => name_of(&superblock.identity),
                _ => String::new(),
            })
            .collect();
        let stream = format!("identity of an array {} {}", parameters.name, before.join(" "));
        env.random(&stream).fill_bytes(&mut superblock.identity);
        let has_redundancy = parameters.level != RaidLevel::Raid0;
        let is_blank = given.iter().flatten().all(|given| matches!(given.found, MemberFound::Blank)) && !opening.format;
        let regions = if has_redundancy && !is_blank { superblock.regions() } else { 0 };
        let page = IntentPage { update: 2, marked: (0..regions).collect() };
        if !opening.is_read_only {
            let handles: Vec<Option<Arc<Member>>> =
                devices.iter().map(|device| Some(Member::new(env, device))).collect();
            let mut failed = write_superblocks(env, &handles, &superblock, context);
            for update in [1, 2] {
                if failed.is_empty() {
                    let page = IntentPage { update, ..page.clone() };
                    failed = write_page(env, &handles, (&superblock, &page), context);
                }
            }
            (superblock.generation, superblock.is_made) = (1, true);
            if failed.is_empty() {
                failed = write_superblocks(env, &handles, &superblock, context);
            }
            handles.iter().flatten().for_each(|member| member.end());
            if let Some((_, error)) = failed.into_iter().next() {
                return Err(error.into());
            }
        }
        (superblock.generation, superblock.is_made) = (1, true);
        let devices: Vec<Option<&Device>> = devices.into_iter().map(Some).collect();
        let journal = superblock.has_journal().then(|| OpenJournal::new(env, &superblock, 0));
        Array::start(env, &devices, parameters, (superblock, journal), page, (false, opening.is_read_only))
    }

    /// The marks on all members together. Damaged pages of one member hide nothing that another one has.
    fn read_intents(
        superblock: &Superblock,
        devices: &[Option<&Device>],
        context: &IoContext,
    ) -> Result<IntentPage, ArrayError> {
        let regions = superblock.regions();
        let mut all = IntentPage { update: 0, marked: BTreeSet::new() };
        if superblock.geometry.level == RaidLevel::Raid0 {
            return Ok(all);
        }
        let is_read = |slot: &usize| superblock.is_in_use(*slot) && !superblock.is_rebuilding(*slot);
        for device in (0..devices.len()).filter(is_read).filter_map(|slot| devices[slot]) {
            let mut pages = [FoundPage::Damaged, FoundPage::Damaged];
            for (page, offset_bytes) in pages.iter_mut().zip(INTENT_PAGES) {
                let alignment = device.block.capabilities().buffer_alignment_bytes as usize;
                let mut bytes = AlignedBuffer::new(UNIT_BYTES as usize, alignment);
                *page = match device.block.read_at(offset_bytes, &mut bytes, context) {
                    Ok(()) => IntentPage::decode(&bytes, &superblock.identity, regions),
                    Err(error) if error.kind() == MediaErrorKind::Unreadable => FoundPage::Damaged,
                    Err(error) => return Err(error.into()),
                };
                if let FoundPage::OtherVersion(found) = page {
                    let device = device.block.name().to_owned();
                    return Err(ArrayError::OtherVersion { device, readable: 1, found: *found });
                }
            }
            match newest(pages) {
                Some(page) => {
                    all.update = all.update.max(page.update);
                    all.marked.extend(page.marked);
                }
                None => all.marked.extend(0..regions),
            }
        }
        Ok(all)
    }

    /// Begins to serve.
    fn start(
        env: &Env,
        devices: &[Option<&Device>],
        parameters: &ArrayParameters,
        (superblock, journal): (Superblock, Option<OpenJournal>),
        page: IntentPage,
        (needs_record, is_read_only): (bool, bool),
    ) -> Result<(Device, Array), ArrayError> {
        let there: Vec<&Device> = devices.iter().copied().flatten().collect();
        let described = describe(&superblock, parameters.dix, &there);
        let slots = devices.iter().enumerate().map(|(slot, device)| {
            let state = match (superblock.is_in_use(slot), superblock.is_rebuilding(slot)) {
                (true, true) => MemberState::Rebuilding { done_stripes: 0 },
                (true, false) => MemberState::InUse,
                (false, _) => MemberState::Lost,
            };
            let member = device.filter(|_| state != MemberState::Lost).map(|device| Member::new(env, device));
            Slot { member, state }
        });
        let slots = slots.collect();
        let intents = IntentMap::new(page.clone());
        let name = parameters.name.clone();
        let shared =
            Shared::new(env, (name, parameters.dix), described, (superblock, journal), (slots, intents), is_read_only);
        let front = Arc::new(Front { shared: Arc::new(shared), maintenance: Mutex::new(env, "array's thread", None) });
        let shared = &front.shared;
        if !is_read_only {
            if needs_record {
                shared.record_opening(page)?;
            }
            if let Some(journal) = &shared.journal {
                let context = IoContext::of(IoClass::Metadata);
                shared.with_surroundings(&context, |array| journal.turn_over(array, &context))?;
            }
            if parameters.level != RaidLevel::Raid0 {
                let shared = Arc::clone(shared);
                *front.maintenance.lock() = Some(env.spawn("array", move || shared.maintain()));
            }
        }
        let device = Device::of_blocks(Arc::new(ArrayDevice { front: Arc::clone(&front) }));
        Ok((device, Array { front }))
    }

    /// Identity, shape and state of the array.
    pub fn status(&self) -> ArrayStatus {
        let shared = &self.front.shared;
        let (identity, protection, has_journal) = {
            let record = shared.record.lock();
            (name_of(&record.identity), record.protection, record.has_journal())
        };
        let journal = if has_journal { StripeJournal::Members } else { StripeJournal::None };
        let due_regions = shared.intents.lock().due().count() as u64;
        let generation = shared.state.lock().generation;
        let geometry = &shared.geometry;
        ArrayStatus {
            identity,
            level: geometry.level,
            generation,
            capacity_bytes: geometry.capacity_bytes(),
            chunk_bytes: geometry.chunk_bytes,
            stripes: geometry.stripes,
            due_regions,
            region_bytes: shared.region_stripes.saturating_mul(geometry.stripe_bytes()),
            protection,
            journal,
            members: self.members(),
        }
    }

    /// State of each member, by slot, with the name of its device where that is there.
    pub fn members(&self) -> Vec<(Option<String>, MemberState)> {
        let state = self.front.shared.state.lock();
        let name = |member: &Arc<Member>| member.device.block.name().to_owned();
        state.slots.iter().map(|slot| (slot.member.as_ref().map(name), slot.state.clone())).collect()
    }

    /// The devices that are there, by slot.
    pub fn devices(&self) -> Vec<Option<Device>> {
        self.front.shared.members().into_iter().map(|member| member.map(|member| member.device.clone())).collect()
    }

    /// What the array did so far.
    pub fn statistics(&self) -> ArrayStatistics {
        self.front.shared.state.lock().statistics.clone()
    }

    /// Number of members that are lost or being rebuilt.
    pub fn degraded_members(&self) -> usize {
        let state = self.front.shared.state.lock();
        state.slots.iter().filter(|slot| slot.state != MemberState::InUse).count()
    }

    /// Compares the redundancy of every stripe with its data, while the array serves, and reads every copy and all protection
    /// information. `repairs` computes redundancy again where it does not fit, and data that cannot be read or do not fit their
    /// protection information; without it nothing is written. Reads all members once.
    ///
    /// # Errors
    /// With `repairs`: the array was opened for reading only; a device failed.
    pub fn scrub(&self, repairs: bool, context: &IoContext) -> Result<ScrubReport, MediaError> {
        self.front.shared.scrub(repairs, context)
    }

    /// The last 64 parts that could not be read or did not match their protection information.
    pub fn incidents(&self) -> Vec<Incident> {
        self.front.shared.state.lock().incidents.iter().cloned().collect()
    }

    /// Damages buffers from now on, for experiments. Only the first call counts.
    pub fn strike_buffers(&self, faults: Arc<dyn BufferFaults>) {
        let _ = self.front.shared.faults.set(faults);
    }

    /// Takes a member out of use, as if a write to it had failed.
    ///
    /// # Errors
    /// More members would be lost than the level tolerates: the array stops.
    pub fn fail(&self, slot: usize) -> Result<(), MediaError> {
        let shared = &self.front.shared;
        if slot >= shared.geometry.members {
            return Err(shared.no_such_slot(slot));
        }
        let reason = std::io::Error::other("it was taken out of use by hand");
        shared.lose(vec![(slot, MediaError::io(&shared.name, Operation::Write, 0, reason))])
    }

    /// Puts a device in the place of a lost member, and rebuilds it while the array serves. What it holds is
    /// overwritten: the caller knows that it is not needed.
    ///
    /// # Errors
    /// [`ArrayError::Unsuitable`], [`ArrayError::OtherSize`]; [`ArrayError::Media`] if the member is not lost, or a
    /// device failed.
    pub fn replace(&self, slot: usize, device: &Device) -> Result<(), ArrayError> {
        let shared = &self.front.shared;
        check_member(device)?;
        if !shared.lost_slots().contains(&slot) {
            return Err(shared.no_such_slot(slot).into());
        }
        let (expected_bytes, protection) = {
            let record = shared.record.lock();
            (record.member_bytes, record.protection)
        };
        check_protection(device, protection)?;
        let found_bytes = device.block.geometry().capacity_bytes;
        if found_bytes < expected_bytes {
            let device = device.block.name().to_owned();
            return Err(ArrayError::OtherSize { device, expected_bytes, found_bytes });
        }
        shared.join(slot, Member::new(&shared.env, device))?;
        Ok(())
    }

    /// Waits until no resync and no rebuild is under way. Those that failed are not.
    pub fn wait_for_maintenance(&self) {
        let shared = &self.front.shared;
        let has_actor = self.front.maintenance.lock().is_some();
        let mut state = shared.state.lock();
        while has_actor && state.is_maintaining {
            shared.work.wait(&mut state);
        }
    }
}

impl Shared {
    fn no_such_slot(&self, slot: usize) -> MediaError {
        let rule = format!("no member that is lost has slot {slot}");
        MediaError::Rule { device: self.name.clone(), operation: Operation::Write, offset_bytes: 0, rule }
    }

    /// Records the members that are in use when the array is opened, and gives those that join the intent map.
    fn record_opening(&self, page: IntentPage) -> Result<(), MediaError> {
        let context = IoContext::of(IoClass::Metadata);
        let mut intents = self.intents.lock();
        let page = IntentPage { update: page.update + 1, ..page };
        self.write_intents(&mut intents, page, &context)?;
        let failed = {
            let mut record = self.record.lock();
            self.write_record(&mut record)
        };
        self.lose(failed)
    }

    /// Takes a device into use as a member that is rebuilt.
    fn join(&self, slot: usize, member: Arc<Member>) -> Result<(), MediaError> {
        let context = IoContext::of(IoClass::Metadata);
        {
            let mut state = self.state.lock();
            // The device of the member before it is used no more.
            if let Some(before) = state.slots[slot].member.replace(member) {
                drop(state);
                before.end();
                state = self.state.lock();
            }
            state.slots[slot].state = MemberState::Rebuilding { done_stripes: 0 };
            state.generation += 1;
        }
        let mut intents = self.intents.lock();
        let page = intents.page();
        self.write_intents(&mut intents, IntentPage { update: page.update + 1, ..page }, &context)?;
        drop(intents);
        let failed = {
            let mut record = self.record.lock();
            self.write_record(&mut record)
        };
        self.lose(failed)?;
        self.state.lock().is_maintaining = true;
        self.work.notify_all();
        Ok(())
    }
}
