//! A journal in zones that are written in order, on a device without conventional zones: where it lies.
//!
//! It lies in three *groups* of zones at the start of the device, each of as many zones as a journal needs. A
//! [generation](super::generations) lies in two of them, in two equal copies. Parts of a group follow each other in the order in which
//! they are written:
//!
//! | offset in the group | bytes | part |
//! |---|---|---|
//! | 0 | 131,072 | the [superblock](super::superblock) twice, at 0 and 65,536; zeros between and behind |
//! | 131,072 | whole units | the [checkpoint](super::checkpoint) |
//! | behind it | whole units | the [log](super::log) |
//!
//! Offsets in a group count the bytes that are used of each zone: its writable bytes, in whole units.
//!
//! *One copy.* Stores of version 3, and stores on devices that allow too few active zones, have two groups, and a
//! generation lies in one of them. They do not survive the loss of a zone.
//!
//! *Making a store* begins with a mark in place of superblocks, in the first zones that can be written. The store is then
//! written into other groups, or over the mark when there are no others.

use super::place::{self, Place};
use super::superblock::{self, Slot};
use super::{
    JournalRegions, METADATA, MIRRORED_GROUPS, REGION_BYTES_MIN, SINGLE_GROUPS, SUPERBLOCK_RESERVED_BYTES, corruption,
    media_error,
};
use crate::error::StoreError;
use crate::identity::block::IdentityBlock;
use std::sync::Arc;
use varve_media::{
    Device, MediaErrorKind, ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneType,
};

/// Most zones of a group. Zones that would need more are too small for a journal.
const GROUP_ZONES_MAX: u32 = 64;
/// Most zones in which something of a journal may lie.
const METADATA_ZONES_MAX: u32 = MIRRORED_GROUPS as u32 * GROUP_ZONES_MAX;

/// Returns true if the journal of a store that writes zones in order lies in zones of this device: where none is conventional.
pub(crate) fn lies_in_zones(zones: &ZoneGeometry) -> bool {
    zones.conventional_zones == 0
}

/// Most bytes of a log: all of it is read when a store is opened.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Size of a log, in bytes, by the bytes that are left.
pub(super) fn log_bytes_max(left_bytes: u64) -> u64 {
    left_bytes.min(LOG_BYTES_MAX)
}

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

/// Groups of a journal on a device of these zones, on which a store without its journal has `active_zones` zones active:
/// enough for two copies where the device allows one more active zone than a single copy needs.
pub(crate) fn groups(zones: &ZoneGeometry, active_zones: u32) -> u8 {
    match zones.active_zones_max == 0 || zones.active_zones_max >= active_zones + active_metadata_zones(MIRRORED_GROUPS)
    {
        true => MIRRORED_GROUPS,
        false => SINGLE_GROUPS,
    }
}

/// Number of zones of a journal that are active at a time: one per copy.
pub(crate) fn active_metadata_zones(groups: u8) -> u32 {
    JournalRegions { groups, ..JournalRegions::default() }.copies() as u32 * u32::from(groups > 0)
}

fn used_bytes(zones: &ZoneGeometry, unit_bytes: u32) -> u64 {
    let unit = u64::from(unit_bytes.max(1));
    zones.zone_capacity_bytes.min(zones.zone_bytes) / unit * unit
}

/// How the groups of a journal lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupLayout {
    /// Zones of each.
    pub(super) zones: u32,
    pub(super) groups: u8,
}

impl GroupLayout {
    pub(super) fn of(regions: &JournalRegions) -> GroupLayout {
        GroupLayout { zones: regions.group_zones, groups: regions.groups }
    }

    /// Groups that hold a generation.
    pub(super) fn copies(&self) -> usize {
        JournalRegions { groups: self.groups, ..JournalRegions::default() }.copies()
    }
}

/// Layout that the metadata zones describe.
#[derive(Default)]
pub(super) struct Scan {
    /// A journal at fixed offsets, of a store that does not keep to write pointers. A journal in zones is older.
    pub(super) is_at_fixed_offsets: bool,
    /// How the groups of the newest superblock lie.
    pub(super) layout: Option<GroupLayout>,
    /// The mark of a store that is being made, or was.
    pub(super) mark: Option<IdentityBlock>,
}

/// The zones of a device in which a journal lies.
pub(super) struct MetadataZones<'a> {
    pub(super) device: &'a Device,
    pub(super) label: &'a str,
    control: Arc<dyn ZoneControl>,
    pub(super) geometry: ZoneGeometry,
    used_bytes: u64,
}

impl<'a> MetadataZones<'a> {
    /// `None` of a device whose journal lies elsewhere.
    pub(super) fn of(device: &'a Device, label: &'a str) -> Option<MetadataZones<'a>> {
        let geometry = device.block.capabilities().zones.clone().filter(lies_in_zones)?;
        let control = device.zones.clone()?;
        let used_bytes = used_bytes(&geometry, device.block.geometry().physical_sector_bytes.max(512));
        (used_bytes > 0).then_some(MetadataZones { device, label, control, geometry, used_bytes })
    }

    fn place(&self, first: u32, count: u32) -> Place {
        let sizes = (self.geometry.zone_bytes, self.used_bytes);
        Place::in_zones(self.device, self.label, &self.control, first, count, sizes)
    }

    /// Zones that superblocks take.
    fn header_zones(&self) -> u32 {
        SUPERBLOCK_RESERVED_BYTES.div_ceil(self.used_bytes) as u32
    }

    /// Large enough for superblocks, from a zone on.
    pub(super) fn header_at(&self, first: u32) -> Place {
        self.place(first, self.header_zones())
    }

    /// The first zones that can be written and are large enough for superblocks.
    pub(super) fn writable_header(&self) -> Result<Place, StoreError> {
        let zones = self.possible()?;
        let count = self.header_zones() as usize;
        let run = zones.windows(count).find(|run| run.iter().all(|(_, found)| !place::is_worn(found)));
        // Without any the first ones say what is wrong.
        Ok(self.header_at(run.map_or(0, |run| run[0].0.0)))
    }

    pub(super) fn groups(&self, layout: GroupLayout) -> Vec<Place> {
        (0..u32::from(layout.groups)).map(|number| self.place(number * layout.zones, layout.zones)).collect()
    }

    /// So many zones at the start of the device, and what they are in.
    fn first_zones(&self, count: u32) -> Result<Vec<(ZoneId, ZoneDescription)>, StoreError> {
        let described = self.place(0, count.min(self.geometry.zone_count)).report();
        described.map_err(|error| media_error(self.label, "metadata zones", error))
    }

    /// Zones in which something of a journal may lie, and what they are in.
    fn possible(&self) -> Result<Vec<(ZoneId, ZoneDescription)>, StoreError> {
        self.first_zones(METADATA_ZONES_MAX)
    }

    /// Empties all of them but those `places` have, as far as they can be written at all.
    pub(super) fn reset_all_but(&self, places: &[&Place]) -> Result<(), StoreError> {
        for (zone, found) in self.possible()? {
            let can_be = found.condition == ZoneCondition::Full || found.condition.is_active();
            if can_be && !places.iter().any(|place| place.holds(zone)) {
                let reset = self.control.reset(zone, &METADATA);
                reset.map_err(|error| media_error(self.label, "metadata zones", error))?;
            }
        }
        Ok(())
    }

    /// No zone of the device is active afterwards, but for those that refuse.
    pub(super) fn finish_all(&self) -> Result<(), StoreError> {
        let active = self.first_zones(u32::MAX)?.into_iter().filter(|(_, found)| found.condition.is_active());
        active.for_each(|(zone, _)| _ = self.control.finish(zone, &METADATA));
        Ok(())
    }

    /// The slots of a journal at fixed offsets, which only preferred zones can hold.
    pub(super) fn slots_at_fixed_offsets(&self) -> [Slot; 2] {
        superblock::slots_in(&Place::whole(self.device, self.label))
    }

    fn can_hold_fixed_offsets(&self) -> bool {
        self.geometry.sequential_type == ZoneType::SequentialWritePreferred
    }

    /// Generation of a journal at fixed offsets, if there is one.
    fn generation_at_fixed_offsets(&self) -> Option<u64> {
        if !self.can_hold_fixed_offsets() {
            return None;
        }
        let generations = self.slots_at_fixed_offsets().into_iter().filter_map(|slot| match slot {
            Slot::Valid(found) if found.regions.group_zones == 0 => Some(found.generation),
            _ => None,
        });
        generations.max()
    }

    /// Looks for superblocks and marks.
    ///
    /// # Errors
    /// Damage of the superblocks, if there are some and none describes the groups.
    pub(super) fn scan(&self) -> Result<Scan, StoreError> {
        let (mut newest, mut mark, mut wrong, mut lost) = (None, None, None, None);
        let zones = self.possible()?;
        let is_any_worn = zones.iter().any(|(_, found)| place::is_worn(found));
        let fixed = self.generation_at_fixed_offsets();
        // Making a journal in zones empties the first zone, unless that is worn. Files may hold anything, also at starts of zones.
        if fixed.is_some() && !zones.first().is_some_and(|(_, found)| place::is_worn(found)) {
            return Ok(Scan { is_at_fixed_offsets: true, ..Scan::default() });
        }
        // Groups begin at the first zone, and behind as many as each of them has.
        let may_begin = |zone: &ZoneId| {
            zone.0 <= METADATA_ZONES_MAX - GROUP_ZONES_MAX && zone.0 + self.header_zones() <= self.geometry.zone_count
        };
        // A zone that is offline says nothing; but the first says that something is gone.
        let is_written = |zone: &ZoneId, found: &ZoneDescription| match found.condition {
            ZoneCondition::Empty => false,
            ZoneCondition::Offline => zone.0 == 0,
            _ => true,
        };
        for (zone, _) in zones.into_iter().filter(|(zone, found)| may_begin(zone) && is_written(zone, found)) {
            for slot in superblock::slots_in(&self.header_at(zone.0)) {
                match slot {
                    // A store at fixed offsets that a layer has moved, or bytes of a file.
                    Slot::Valid(found) if self.can_hold_fixed_offsets() && found.regions.group_zones == 0 => {}
                    Slot::Valid(found) => {
                        let layout = GroupLayout::of(&found.regions);
                        match self.judge(zone, layout) {
                            Ok(()) => newest = newest.max(Some((found.generation, layout))),
                            Err(error) => wrong = wrong.or(Some(error)),
                        }
                    }
                    Slot::Identity(block) if block.is_unfinished => mark = mark.or(Some(block)),
                    Slot::Damaged(error) if is_lost(&error) => lost = lost.or(Some(error)),
                    Slot::Damaged(error) | Slot::OtherVersion(error) => wrong = wrong.or(Some(error)),
                    Slot::Identity(_) | Slot::Blank | Slot::Foreign(_) => {}
                }
            }
            // There is one journal, but with a mark, or on zones that cannot be emptied, there may be others.
            if newest.is_some() && mark.is_none() && !is_any_worn {
                break;
            }
        }
        if fixed.is_some() && fixed > newest.map(|(generation, _)| generation) {
            return Ok(Scan { is_at_fixed_offsets: true, ..Scan::default() });
        }
        match (newest, wrong, lost) {
            (None, Some(error), _) => Err(error),
            (None, None, Some(error)) if mark.is_none() => Err(error),
            (newest, ..) => Ok(Scan { layout: newest.map(|(_, layout)| layout), mark, ..Scan::default() }),
        }
    }

    /// Refuses groups that cannot be, of a superblock in a zone.
    fn judge(&self, zone: ZoneId, layout: GroupLayout) -> Result<(), StoreError> {
        let GroupLayout { zones, groups } = layout;
        let is_first = zones > 0 && zone.0.is_multiple_of(zones) && zone.0 / zones < u32::from(groups);
        let is_here = (1..=GROUP_ZONES_MAX).contains(&zones) && is_first;
        if is_here && u64::from(zones) * u64::from(groups) <= u64::from(self.geometry.zone_count) {
            return Ok(());
        }
        let expected = format!("groups of zones among the {} of the device", self.geometry.zone_count);
        let found = format!("one of {zones} at zone {}", zone.0);
        Err(corruption(self.label, "superblock", self.geometry.start_bytes(zone), expected, found))
    }
}

/// True if some content cannot be read because its zone is offline.
fn is_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::Media { error, .. } if error.kind() == MediaErrorKind::Offline)
}
