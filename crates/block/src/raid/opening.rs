//! How an array is made and opened.

use super::assembly::{Assembly, Given, JournalUse, MemberFound, assemble, check_new_journal, inspect, journal_of};
use super::beside::{self, TuplesBeside};
use super::device::{ArrayDevice, ArrayStatistics, BufferFaults, Front, Incident, MemberState, Shared, Slot};
use super::error::{ArrayError, name_of};
use super::geometry::{ArrayGeometry, MEMBERS_MAX, RaidLevel};
use super::intent::{FoundPage, IntentMap, IntentPage, newest, region_stripes};
use super::maintenance::ScrubReport;
use super::member::Member;
use super::membership::{write_page, write_superblocks};
use super::protection::Dix;
use super::stripe_journal::{self, JournaledWrite, OpenJournal, Payload, StripeJournal};
use super::superblock::{
    CHUNK_BYTES_MAX, COPIES, INTENT_PAGES, JOURNAL_NUMBERS, JOURNAL_OFFSET, Superblock, UNIT_BYTES,
};
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

/// Place of the protection information of an array's members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProtectionPlace {
    /// The members do, if they can.
    #[default]
    Members,
    /// Plain devices: tuples of type 1 with CRC guards lie beside the data of each member, and take a part in 65 of it with
    /// sectors of 512 bytes, in 513 with sectors of 4096. Such an array has a journal of stripes.
    Beside,
}

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
    /// Levels without parity have one only where tuples lie beside the data.
    pub journal: Option<StripeJournal>,
    /// Place of the protection information; `None` keeps that of an existing array, and is [`ProtectionPlace::Members`] for a new one.
    pub protection: Option<ProtectionPlace>,
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
    /// Its place.
    pub protection_place: ProtectionPlace,
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
    pub(super) front: Arc<Front>,
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

/// A device as a member: with tuples beside its data, if the array has them there.
fn member_device(env: &Env, device: &Device, superblock: &Superblock) -> Device {
    match superblock.tuple_layout() {
        Some(layout) => TuplesBeside::device(env, device, layout),
        None => device.clone(),
    }
}

/// Writes both copies of the superblock of a journal's device, with blank areas behind them, one copy durable before the other.
fn write_journal_superblock(
    env: &Env,
    device: &Device,
    superblock: &Superblock,
    context: &IoContext,
) -> Result<(), MediaError> {
    if !superblock.is_made || superblock.generation > 1 {
        stripe_journal::blank(env, superblock, device, context)?;
    }
    let alignment = device.block.capabilities().buffer_alignment_bytes as usize;
    let bytes = AlignedBuffer::copy_of(&superblock.for_slot(superblock.geometry.members).encode(), alignment);
    for offset_bytes in COPIES {
        device.block.write_at(offset_bytes, &bytes, context)?;
        SyncOrder::shared(env, device.block.clone()).sync(context)?;
    }
    Ok(())
}

/// Bytes that are overwritten at once.
const BLANKED_BYTES: u64 = 8 << 20;

/// Makes a device read as zeros from an offset on: discards, or writes zeros where it cannot.
fn blank(device: &Device, from_bytes: u64, context: &IoContext) -> Result<(), MediaError> {
    let end_bytes = device.block.geometry().capacity_bytes;
    if device.block.capabilities().discard {
        return device.block.discard_at(from_bytes, end_bytes - from_bytes.min(end_bytes), context);
    }
    let alignment = device.block.capabilities().buffer_alignment_bytes as usize;
    let zeros = AlignedBuffer::new(BLANKED_BYTES as usize, alignment);
    let mut at = from_bytes;
    while at < end_bytes {
        let length = (end_bytes - at).min(BLANKED_BYTES);
        device.block.write_at(at, &zeros[..length as usize], context)?;
        at += length;
    }
    Ok(())
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

/// Refuses devices that cannot hold a journal. Returns the bytes of an area on it: `area_bytes`, or less if it is small.
fn check_journal_device(device: &Device, shape: &ArrayGeometry, area_bytes: u64) -> Result<u64, ArrayError> {
    check_member(device)?;
    let capacity_bytes = device.block.geometry().capacity_bytes;
    let area_bytes_max = capacity_bytes.saturating_sub(JOURNAL_OFFSET) / 2 / UNIT_BYTES * UNIT_BYTES;
    let least = stripe_journal::area_bytes(shape, 0);
    match area_bytes_max < least {
        true => {
            let expected = format!("{} bytes or more for a journal of stripes", stripe_journal::device_bytes(least));
            Err(unsuitable(device, expected, format!("{capacity_bytes} bytes")))
        }
        false => Ok(area_bytes.min(area_bytes_max)),
    }
}

/// The superblock of a new array of members of `member_bytes`, in slot 0.
fn layout(
    parameters: &ArrayParameters,
    members: &[&Device],
    journal_device: Option<&Device>,
) -> Result<Superblock, ArrayError> {
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
    let is_beside = parameters.protection == Some(ProtectionPlace::Beside);
    if is_beside && parameters.journal == Some(StripeJournal::None) {
        return Err(ArrayError::NeedsJournal { array: parameters.name.clone() });
    }
    let wants_journal = !matches!(parameters.journal, None | Some(StripeJournal::None));
    let has_journal = wants_journal && parameters.level.parity_columns() > 0 || is_beside;
    let mut journal_area_bytes = if has_journal { stripe_journal::area_bytes(&shape, first) } else { 0 };
    let mut data_offset = DATA_OFFSETS[usize::from(first >= LARGE_MEMBER_BYTES)];
    match journal_device {
        Some(device) if !has_journal => {
            return Err(unsuitable(
                device,
                "a level with parity, or tuples beside the data",
                parameters.level.to_string(),
            ));
        }
        Some(device) => journal_area_bytes = check_journal_device(device, &shape, journal_area_bytes)?,
        None => data_offset = data_offset.saturating_add(2 * journal_area_bytes),
    }
    let sector_bytes = members.iter().map(|member| member.block.geometry().sector_bytes).max().unwrap_or(512).max(512);
    let kept = match is_beside {
        true => None,
        false => members.first().and_then(|member| member.block.capabilities().protection),
    };
    members.iter().try_for_each(|member| check_protection(member, kept))?;
    let mut superblock = Superblock {
        identity: [0; 16],
        generation: 0,
        in_use: u64::MAX >> (MEMBERS_MAX - members.len()),
        rebuilding: 0,
        member_bytes: first,
        data_offset,
        region_stripes: 0,
        slot: 0,
        sector_bytes,
        protection: if is_beside { Some(beside::format(sector_bytes)) } else { kept },
        is_beside,
        journal_area_bytes,
        journal_device: journal_device.map(|_| 0),
        is_made: false,
        geometry: shape,
    };
    let usable_bytes = superblock.tuple_layout().map_or(first, |layout| layout.usable_bytes());
    superblock.geometry.stripes = usable_bytes.saturating_sub(data_offset) / chunk_bytes;
    superblock.region_stripes = region_stripes(superblock.geometry.stripes, chunk_bytes);
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
/// journal has records, and the array is opened for reading only; [`ArrayError::Unreplayed`] so too if tuples lie beside the data.
fn replay(
    env: &Env,
    superblock: &Superblock,
    devices: &[Option<&Device>],
    journal_device: Option<&Device>,
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
    let recovered = match journal_device {
        None => stripe_journal::recover(env, superblock, &members, context)?,
        Some(device) => stripe_journal::recover(env, superblock, &[(devices.len(), device)], context)?,
    };
    for (slot, error) in recovered.unreadable {
        match slot < devices.len() {
            true => fail(slot, error)?,
            // The journal's own device: what it holds may be needed.
            false => return Err(error.into()),
        }
    }
    if is_read_only {
        if superblock.is_beside && !recovered.payloads.is_empty() {
            // Tuples beside data may not fit them, and redundancy may not either.
            let (array, records) = (name_of(&superblock.identity), recovered.payloads.len());
            return Err(ArrayError::Unreplayed { array, records });
        }
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
        Array::open_with_journal(env, members, None, parameters, opening)
    }

    /// Opens or makes an array whose journal of stripes lies on a device of its own, with [`StripeJournal::Device`]. Without such
    /// a device it is [`Array::open`].
    ///
    /// A blank device takes the place of a journal that is lost if [`ArrayOpening::accepts_unsynced`]: all redundancy is then resynced, and
    /// what was being written may be wrong.
    ///
    /// # Errors
    /// As [`Array::open`]; [`ArrayError::OtherJournal`], [`ArrayError::NeedsJournalDevice`].
    pub fn open_with_journal(
        env: &Env,
        members: &[Option<Device>],
        journal_device: Option<&Device>,
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
        let journal_found = journal_device.map(|device| inspect(device, &context)).transpose()?;
        match assemble(&given, parameters, opening)? {
            Assembly::Create => {
                if let (Some(found), false) = (&journal_found, opening.format) {
                    check_new_journal(found, &given)?;
                }
                Array::make(env, members, journal_device, &given, parameters, opening, &context)
            }
            Assembly::Open { mut superblock, places, mut needs_record } => {
                let is_new = match journal_of(journal_found.as_ref(), &superblock, opening)? {
                    JournalUse::Known => false,
                    JournalUse::New => true,
                };
                if let (true, Some(number), Some(device)) = (is_new, superblock.journal_device, journal_device) {
                    let area_bytes = superblock.journal_area_bytes;
                    superblock.journal_area_bytes = check_journal_device(device, &superblock.geometry, area_bytes)?;
                    superblock.journal_device = Some((number + 1) % JOURNAL_NUMBERS);
                    superblock.generation += 1;
                    needs_record = true;
                    write_journal_superblock(env, device, &superblock, &context)?;
                }
                let given: Vec<Option<&Device>> =
                    places.iter().map(|place| place.and_then(|place| members[place].as_ref())).collect();
                given.iter().flatten().try_for_each(|device| check_protection(device, superblock.kept_protection()))?;
                let devices: Vec<Option<Device>> = given
                    .into_iter()
                    .map(|device| device.map(|device| member_device(env, device, &superblock)))
                    .collect();
                let devices: Vec<Option<&Device>> = devices.iter().map(Option::as_ref).collect();
                let mut pages = Array::read_intents(&superblock, &devices, &context)?;
                if is_new && superblock.geometry.level != RaidLevel::Raid0 {
                    // What was being written is not known.
                    pages.marked.extend(0..superblock.regions());
                }
                let mut times = 0;
                if superblock.has_journal() {
                    let replayed = replay(env, &superblock, &devices, journal_device, opening.is_read_only, &context)?;
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
                let journal =
                    superblock.has_journal().then(|| OpenJournal::new(env, &superblock, times, journal_device));
                let how = (needs_record, opening.is_read_only);
                Array::start(env, &devices, parameters, (superblock, journal), pages, how)
            }
        }
    }

    /// Makes an array. Until the last step its members are those of an array that is being made, which is made again.
    fn make(
        env: &Env,
        members: &[Option<Device>],
        journal_device: Option<&Device>,
        given: &[Option<Given>],
        parameters: &ArrayParameters,
        opening: &ArrayOpening,
        context: &IoContext,
    ) -> Result<(Device, Array), ArrayError> {
        let devices: Vec<&Device> = members.iter().flatten().collect();
        let mut superblock = layout(parameters, &devices, journal_device)?;
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
        let is_resynced = has_redundancy && !is_blank && !superblock.is_beside;
        let regions = if is_resynced { superblock.regions() } else { 0 };
        let page = IntentPage { update: 2, marked: (0..regions).collect() };
        if !opening.is_read_only {
            if let Some(device) = journal_device {
                write_journal_superblock(env, device, &superblock, context)?;
            }
            let handles: Vec<Option<Arc<Member>>> =
                devices.iter().map(|device| Some(Member::new(env, device))).collect();
            let mut failed = write_superblocks(env, &handles, &superblock, context);
            if superblock.is_beside && !is_blank && failed.is_empty() {
                // Whatever tuples are there fit nothing.
                devices.iter().try_for_each(|device| blank(device, superblock.data_offset, context))?;
            }
            for update in [1, 2] {
                if failed.is_empty() {
                    let page = IntentPage { update, ..page.clone() };
                    failed = write_page(env, &handles, (&superblock, &page), context);
                }
            }
            (superblock.generation, superblock.is_made) = (1, true);
            if let (Some(device), true) = (journal_device, failed.is_empty()) {
                write_journal_superblock(env, device, &superblock, context)?;
            }
            if failed.is_empty() {
                failed = write_superblocks(env, &handles, &superblock, context);
            }
            handles.iter().flatten().for_each(|member| member.end());
            if let Some((_, error)) = failed.into_iter().next() {
                return Err(error.into());
            }
        }
        (superblock.generation, superblock.is_made) = (1, true);
        let devices: Vec<Device> = devices.into_iter().map(|device| member_device(env, device, &superblock)).collect();
        let devices: Vec<Option<&Device>> = devices.iter().map(Some).collect();
        let journal = superblock.has_journal().then(|| OpenJournal::new(env, &superblock, 0, journal_device));
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
        let (identity, protection, protection_place, journal) = {
            let record = shared.record.lock();
            let place = if record.is_beside { ProtectionPlace::Beside } else { ProtectionPlace::Members };
            (name_of(&record.identity), record.protection, place, StripeJournal::of(&record))
        };
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
            protection_place,
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
        let record = shared.record.lock().clone();
        let expected_bytes = record.member_bytes;
        check_protection(device, record.kept_protection())?;
        let found_bytes = device.block.geometry().capacity_bytes;
        if found_bytes < expected_bytes {
            let device = device.block.name().to_owned();
            return Err(ArrayError::OtherSize { device, expected_bytes, found_bytes });
        }
        shared.join(slot, Member::new(&shared.env, &member_device(&shared.env, device, &record)))?;
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
