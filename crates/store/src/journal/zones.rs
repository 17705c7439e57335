//! A journal in zones that must be written in order, on a device that has no others.
//!
//! Two *groups* of zones at the start of the device, each of as many as a journal needs, have one generation each: the present
//! one and the one before it. In a group follow each other, in the order in which they are written:
//!
//! | offset in the group | bytes | part |
//! |---|---|---|
//! | 0 | 131,072 | the [superblock](super::superblock) twice, at 0 and 65,536; zeros between and behind |
//! | 131,072 | whole units | the [checkpoint](super::checkpoint) |
//! | behind it | whole units | the [log](super::log) |
//!
//! Offsets in a group count what is used of each zone: its writable bytes, in whole units.
//!
//! *Durable* is what was there at a sync of the device: where the pointer of a zone stands is what the device promises then, so
//! nothing is written durably by itself.
//!
//! *A generation has begun* when the first commit of its log, which says nothing, is there: it is written when everything before
//! it is durable. The zones of the other group are finished before, so that one zone of a journal is active at a time, and
//! reset only when the next generation takes their place. So a crash finds a generation that has begun, whole; one that
//! has not is proved not to have by its log, and the one before it counts. Superblocks that are damaged in both places
//! are an error, whatever the other group has: theirs may be the newer generation.
//!
//! While a store is made the first group has marks in place of superblocks, and the store comes to lie in the second.
//!
//! *What it does not bear*: a zone of the two groups that wears out. While it can be read the store can be copied from images
//! of the device; it cannot be opened.

use super::log::{self, LogReader, LogTail};
use super::place::Place;
use super::superblock::{self, Slot, Superblock};
use super::{JournalRegions, METADATA, REGION_BYTES_MIN, Region, SUPERBLOCK_RESERVED_BYTES, corruption, media_error};
use crate::error::StoreError;
use crate::file_store::Finding;
use crate::identity::block::{self, IdentityBlock, Presence};
use crate::identity::{self, OpenedAs};
use std::sync::Arc;
use varve_media::{Device, ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneType};

/// Zones of a group: a device of fewer bytes than these hold nothing worth a journal.
const GROUP_ZONES_MAX: u32 = 64;

/// Whether a journal on a device of these zones lies in some that are written in order.
pub(crate) fn lies_in_zones(zones: &ZoneGeometry) -> bool {
    zones.conventional_zones == 0 && zones.sequential_type == ZoneType::SequentialWriteRequired
}

/// Most bytes of a log: all of it is read when a store is opened.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a group that are kept for the log: a quarter, in multiples of every unit there can be.
fn log_bytes_min(group_bytes: u64) -> u64 {
    (group_bytes / 4).min(LOG_BYTES_MAX).next_multiple_of(REGION_BYTES_MIN)
}

/// Bytes of a checkpoint a group has space for, its header included.
pub(super) fn checkpoint_bytes_max(group_bytes: u64) -> u64 {
    group_bytes.saturating_sub(SUPERBLOCK_RESERVED_BYTES + log_bytes_min(group_bytes))
}

/// Zones of a group for checkpoints of so many bytes, header included; `None` when it would be too many.
pub(crate) fn group_zones(zones: &ZoneGeometry, unit_bytes: u32, checkpoint_bytes: u64) -> Option<u32> {
    let used_bytes = used_bytes(zones, unit_bytes);
    (1..=GROUP_ZONES_MAX).find(|count| {
        let group_bytes = u64::from(*count) * used_bytes;
        checkpoint_bytes_max(group_bytes) >= checkpoint_bytes && log_bytes_min(group_bytes) >= REGION_BYTES_MIN
    })
}

fn used_bytes(zones: &ZoneGeometry, unit_bytes: u32) -> u64 {
    let unit = u64::from(unit_bytes.max(1));
    zones.zone_capacity_bytes.min(zones.zone_bytes) / unit * unit
}

/// The zones of a device in which a journal lies.
struct MetadataZones<'a> {
    device: &'a Device,
    label: &'a str,
    control: Arc<dyn ZoneControl>,
    geometry: ZoneGeometry,
    used_bytes: u64,
}

impl<'a> MetadataZones<'a> {
    /// `None` of a device whose journal lies elsewhere.
    fn of(device: &'a Device, label: &'a str) -> Option<MetadataZones<'a>> {
        let geometry = device.block.capabilities().zones.clone().filter(lies_in_zones)?;
        let control = device.zones.clone()?;
        let used_bytes = used_bytes(&geometry, device.block.geometry().physical_sector_bytes.max(512));
        (used_bytes > 0).then_some(MetadataZones { device, label, control, geometry, used_bytes })
    }

    fn place(&self, first: u32, count: u32) -> Place {
        let sizes = (self.geometry.zone_bytes, self.used_bytes);
        Place::in_zones(self.device, self.label, &self.control, first, count, sizes)
    }

    /// Large enough for superblocks, from a zone on.
    fn header_at(&self, first: u32) -> Place {
        self.place(first, SUPERBLOCK_RESERVED_BYTES.div_ceil(self.used_bytes) as u32)
    }

    fn groups(&self, group_zones: u32) -> [Place; 2] {
        [0, group_zones].map(|first| self.place(first, group_zones))
    }

    /// So many zones at the start of the device, and what they are in.
    fn first_zones(&self, count: u32) -> Result<Vec<(ZoneId, ZoneDescription)>, StoreError> {
        let described = self.place(0, count.min(self.geometry.zone_count)).report();
        described.map_err(|error| media_error(self.label, "metadata zones", error))
    }

    /// Zones in which something of a journal may lie, and what they are in.
    fn possible(&self) -> Result<Vec<(ZoneId, ZoneDescription)>, StoreError> {
        self.first_zones(2 * GROUP_ZONES_MAX)
    }

    /// Those in which there may be anything. One that is gone says nothing; but the first says that something is gone.
    fn written(&self) -> Result<Vec<ZoneId>, StoreError> {
        let is_written = |(zone, found): &(ZoneId, ZoneDescription)| match found.condition {
            ZoneCondition::Empty => false,
            ZoneCondition::Offline => zone.0 == 0,
            _ => true,
        };
        Ok(self.possible()?.into_iter().filter(is_written).map(|(zone, _)| zone).collect())
    }

    /// Empties all of them but those `place` has, as far as they can be written at all.
    fn reset_all_but(&self, place: &Place) -> Result<(), StoreError> {
        for (zone, found) in self.possible()? {
            let can_be = found.condition == ZoneCondition::Full || found.condition.is_active();
            if can_be && !place.holds(zone) {
                let reset = self.control.reset(zone, &METADATA);
                reset.map_err(|error| media_error(self.label, "metadata zones", error))?;
            }
        }
        Ok(())
    }

    /// No zone of the device is active afterwards, but for those that refuse.
    fn finish_all(&self) -> Result<(), StoreError> {
        let active = self.first_zones(u32::MAX)?.into_iter().filter(|(_, found)| found.condition.is_active());
        active.for_each(|(zone, _)| _ = self.control.finish(zone, &METADATA));
        Ok(())
    }

    /// How many zones a group of the journal that is here has; `None` when there is none.
    ///
    /// # Errors
    /// What is wrong with superblocks, where there are some and none that says it.
    fn find_group_zones(&self) -> Result<Option<u32>, StoreError> {
        let (mut newest, mut wrong, mut is_marked) = (None, None, false);
        // Two groups begin at the first zone and behind as many as one of them has.
        let may_begin = |zone: &ZoneId| zone.0 <= GROUP_ZONES_MAX && zone.0 <= self.geometry.zone_count / 2;
        for ZoneId(first) in self.written()?.into_iter().filter(may_begin) {
            for slot in superblock::slots_in(&self.header_at(first)) {
                match slot {
                    Slot::Valid(found) => {
                        let group_zones = found.regions.group_zones;
                        let is_here = (1..=GROUP_ZONES_MAX).contains(&group_zones) && [0, group_zones].contains(&first);
                        if !is_here || u64::from(group_zones) * 2 > u64::from(self.geometry.zone_count) {
                            let expected =
                                format!("groups of zones among the {} of the device", self.geometry.zone_count);
                            let found = format!("one of {group_zones} at zone {first}");
                            let offset_bytes = self.geometry.start_bytes(ZoneId(first));
                            wrong = wrong.or(Some(corruption(self.label, "superblock", offset_bytes, expected, found)));
                            continue;
                        }
                        newest = newest.max(Some((found.generation, group_zones)));
                    }
                    Slot::Identity(_) => is_marked |= first == 0,
                    Slot::Damaged(error) | Slot::OtherVersion(error) => wrong = wrong.or(Some(error)),
                    Slot::Blank | Slot::Foreign(_) => {}
                }
            }
            // Beside a mark there may be what was made before, with other groups; else there is one journal.
            if newest.is_some() && !is_marked {
                break;
            }
        }
        match (newest, wrong) {
            (Some((_, group_zones)), _) => Ok(Some(group_zones)),
            (None, wrong) => wrong.map_or(Ok(None), Err),
        }
    }
}

/// What rank what lies in the places of superblocks has: a store that is whole comes behind the marks of its making.
fn rank(slots: &[Slot; 2]) -> (u64, bool) {
    let of_slot = |slot: &Slot| match slot {
        Slot::Valid(superblock) => (superblock.generation, true),
        Slot::Identity(block) => (block.generation, false),
        _ => (0, false),
    };
    of_slot(&slots[0]).max(of_slot(&slots[1]))
}

/// The superblocks of the newest generation; `None` of a device whose journal lies elsewhere.
pub(super) fn newest_slots(device: &Device, label: &str) -> Option<[Slot; 2]> {
    let zones = MetadataZones::of(device, label)?;
    let group_zones = match zones.find_group_zones() {
        Ok(Some(group_zones)) => group_zones,
        Ok(None) => return Some(superblock::slots_in(&zones.header_at(0))),
        Err(error) => return Some([Slot::Damaged(error.clone()), Slot::Damaged(error)]),
    };
    let [first, second] = zones.groups(group_zones).map(|group| superblock::slots_in(&group));
    Some(if rank(&second) > rank(&first) { second } else { first })
}

/// A generation that has begun.
pub(super) struct Begun {
    /// Its group, and the other one.
    pub(super) groups: [Place; 2],
    pub(super) superblock: Superblock,
    pub(super) findings: Vec<Finding>,
    /// What its log has behind the commit it begins with.
    pub(super) tail: LogTail,
}

/// What there is of a journal in zones.
enum Found {
    Blank,
    /// A store is being made, or its making was interrupted.
    Unfinished(IdentityBlock),
    Begun(Box<Begun>),
}

/// Looks for the newest generation that has begun; `None` of a device whose journal lies elsewhere. What is being made is of the kind
/// it is opened as. Reads superblocks and logs.
fn find(device: &Device, label: &str, opened_as: &OpenedAs) -> Option<Result<Found, StoreError>> {
    let zones = MetadataZones::of(device, label)?;
    let found = find_in(&zones, opened_as).and_then(|found| {
        if let Found::Unfinished(mark) = &found {
            identity::refuse_other(label, 0, mark.kind, &mark.identity.shape, opened_as)?;
        }
        Ok(found)
    });
    Some(found)
}

fn find_in(zones: &MetadataZones<'_>, opened_as: &OpenedAs) -> Result<Found, StoreError> {
    let Some(group_zones) = zones.find_group_zones()? else {
        let place = zones.header_at(0);
        let slots = superblock::slots_in(&place);
        return match mark_in(&slots) {
            Some(mark) => Ok(Found::Unfinished(mark)),
            None if slots.iter().all(|slot| matches!(slot, Slot::Blank)) => Ok(Found::Blank),
            // It says what is wrong with them: none is valid.
            None => superblock::choose(&place, opened_as, slots).map(|_| Found::Blank),
        };
    };
    let [first, second] = zones.groups(group_zones);
    let mut mark: Option<IdentityBlock> = None;
    let mut candidates: Vec<(Superblock, Vec<Finding>, [Place; 2])> = Vec::new();
    for groups in [[first.clone(), second.clone()], [second, first]] {
        let slots = superblock::slots_in(&groups[0]);
        if slots.iter().all(|slot| matches!(slot, Slot::Blank)) {
            continue;
        }
        if let Some(found) = mark_in(&slots) {
            mark = Some(found);
            continue;
        }
        let (superblock, _, findings) = superblock::choose(&groups[0], opened_as, slots)?;
        let group_bytes = groups[0].capacity_bytes();
        if superblock.capacity_bytes != group_bytes || superblock.regions.group_zones != group_zones {
            let found = format!("{} bytes in {} zones", superblock.capacity_bytes, superblock.regions.group_zones);
            let expected = format!("a group of {group_bytes} bytes in {group_zones} zones");
            return Err(corruption(zones.label, "superblock", groups[0].device_offset(0), expected, found));
        }
        candidates.push((superblock, findings, groups));
    }
    candidates.sort_by_key(|(superblock, ..)| std::cmp::Reverse(superblock.generation));
    // Whatever is older than a making does not count any more.
    let is_made = |superblock: &Superblock| mark.as_ref().is_none_or(|mark| mark.generation <= superblock.generation);
    for (superblock, findings, groups) in candidates {
        if !is_made(&superblock) {
            break;
        }
        let mut tail = LogReader::new(&groups[0], &superblock).read()?;
        if !tail.commits.is_empty() {
            tail.commits.remove(0);
            return Ok(Found::Begun(Box::new(Begun { groups, superblock, findings, tail })));
        }
    }
    match mark {
        Some(mark) => Ok(Found::Unfinished(mark)),
        None => {
            let expected = "a generation of the journal that has begun in one of two groups of zones";
            Err(corruption(zones.label, "metadata zones", 0, expected, "none"))
        }
    }
}

/// The mark of a store that is not whole.
fn mark_in(slots: &[Slot; 2]) -> Option<IdentityBlock> {
    slots.iter().find_map(|slot| match slot {
        Slot::Identity(block) if block.is_unfinished => Some(block.clone()),
        _ => None,
    })
}

/// [`Presence`] of a journal in zones.
pub(super) fn presence(device: &Device, label: &str, opened_as: &OpenedAs) -> Option<Result<Presence, StoreError>> {
    Some(find(device, label, opened_as)?.map(|found| match found {
        Found::Blank => Presence::Blank,
        Found::Begun(_) => Presence::Store,
        Found::Unfinished(_) => Presence::Unfinished,
    }))
}

/// The generation that counts, for one who opens it; `None` of a device whose journal lies elsewhere.
pub(super) fn recover(device: &Device, label: &str, opened_as: &OpenedAs) -> Option<Result<Begun, StoreError>> {
    Some(find(device, label, opened_as)?.and_then(|found| match found {
        Found::Begun(begun) => Ok(*begun),
        Found::Blank => Err(block::missing(label, Presence::Blank, opened_as)),
        Found::Unfinished(_) => Err(block::missing(label, Presence::Unfinished, opened_as)),
    }))
}

/// Says durably that a store is being made, in place of whatever is there; `None` of a device whose journal will lie elsewhere.
pub(super) fn mark(device: &Device, label: &str, block: &IdentityBlock) -> Option<Result<(), StoreError>> {
    let zones = MetadataZones::of(device, label)?;
    Some(mark_in_zones(&zones, block))
}

fn mark_in_zones(zones: &MetadataZones<'_>, block: &IdentityBlock) -> Result<(), StoreError> {
    let header = zones.header_at(0);
    if zones.geometry.active_zones_max > 0 {
        // Whatever is being written there is given up.
        zones.finish_all()?;
    }
    // What is newest goes last, so that nothing older ever counts. What cannot be read may be it.
    let may_be_newest = |slots: &[Slot; 2]| {
        let is_damaged = slots.iter().any(|slot| matches!(slot, Slot::Damaged(_)));
        let is_known = slots.iter().any(|slot| matches!(slot, Slot::Valid(_) | Slot::Identity(_)));
        is_damaged && !is_known
    };
    let first = superblock::slots_in(&header);
    let is_marked = mark_in(&first).is_some();
    let is_first_newest = match zones.find_group_zones() {
        Ok(Some(group_zones)) => {
            let second = superblock::slots_in(&zones.groups(group_zones)[1]);
            is_marked || may_be_newest(&first) || (rank(&first) > rank(&second) && !may_be_newest(&second))
        }
        _ => true,
    };
    if is_first_newest {
        zones.reset_all_but(&header)?;
    }
    match is_marked {
        true => header.reset_from_the_end()?,
        false => header.reset()?,
    }
    header.write(0, &superblock::header(&header, block.encode()), false)?;
    header.sync()?;
    header.finish()?;
    zones.reset_all_but(&header)
}

/// Writes the first generation of a store that was marked.
pub(super) fn write_first(
    device: &Device,
    label: &str,
    superblock: Superblock,
    state: &[u8],
) -> Result<(), StoreError> {
    let zones = MetadataZones::of(device, label).ok_or_else(|| StoreError::InvalidRequest {
        store: label.to_owned(),
        reason: "a journal in zones is for a device that has no others than those written in order".to_owned(),
    })?;
    let [_, second] = zones.groups(superblock.regions.group_zones);
    write_generation(&second, superblock, state, &|| second.sync())?;
    second.finish()
}

/// Writes a generation into a group, in place of what is there, and begins it. Gives back its superblock and the units its log
/// has.
pub(super) fn write_generation(
    place: &Place,
    mut superblock: Superblock,
    state: &[u8],
    sync: &dyn Fn() -> Result<(), StoreError>,
) -> Result<(Superblock, u64), StoreError> {
    let group_bytes = place.capacity_bytes();
    let area_bytes = checkpoint_bytes_max(group_bytes);
    let (reference, checkpoint) =
        super::checkpoint::encode(place, area_bytes, superblock.store_id, superblock.generation, state)?;
    let unit_bytes = superblock.regions.unit_bytes;
    let checkpoint_at = SUPERBLOCK_RESERVED_BYTES;
    // The unit may be larger than what a checkpoint is rounded to.
    let log_at = (checkpoint_at + checkpoint.len() as u64).next_multiple_of(u64::from(unit_bytes));
    let log_bytes =
        group_bytes.saturating_sub(log_at).min(LOG_BYTES_MAX) / u64::from(unit_bytes) * u64::from(unit_bytes);
    superblock.capacity_bytes = group_bytes;
    superblock.active_checkpoint = 0;
    superblock.checkpoint = reference;
    superblock.regions = JournalRegions {
        log: Region { offset_bytes: log_at, length_bytes: log_bytes },
        checkpoints: [Region { offset_bytes: checkpoint_at, length_bytes: log_at - checkpoint_at }, Region::default()],
        ..superblock.regions
    };
    place.reset()?;
    let header = superblock::header(place, superblock::encode(&superblock));
    let mut whole = place.buffer(log_at as usize);
    whole[..header.len()].copy_from_slice(&header);
    whole[header.len()..header.len() + checkpoint.len()].copy_from_slice(&checkpoint);
    place.write(0, &whole, false)?;
    sync()?;
    let shape = log::shape(0, unit_bytes, false, 0);
    let mut commit = place.buffer((shape.units * u64::from(unit_bytes)) as usize);
    log::encode(&mut commit, shape, &superblock, 0, &[]);
    place.write(log_at, &commit, false)?;
    sync()?;
    Ok((superblock, shape.units))
}
