//! What a device was formatted as, said where every store looks first.
//!
//! Every store on raw devices says at offsets 0 and 64 KiB of the device what it is: with its superblocks where those
//! lie there, else with an [identity block](block). Both carry the same description of the device: its rules (none,
//! interlaced tracks, zones), its sizes, and the members of the set it belongs to. So a device that is opened as
//! something else is refused with both names, whatever the other would have written where.
//!
//! A device without such a description is taken only when it is [blank](blank).
//!
//! The description, 128 bytes, little-endian (bytes 128 to 256 of a superblock and of an identity block):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | rules: 0 conventional, 1 interlaced tracks, 2 zones |
//! | 1 | 1 | zones: 1 must be written in order, 2 better are; else 0 |
//! | 2 | 1 | devices of the set, 1 to 8 |
//! | 3 | 1 | which of them this is |
//! | 4 | 4 | bytes of a sector when formatted |
//! | 8 | 4 | bytes of a physical sector when formatted |
//! | 12 | 4 | tracks, or zones; else 0 |
//! | 16 | 4 | conventional zones at the start; else 0 |
//! | 20 | 4 | zones: tracks that a write to a track destroys; else 0 |
//! | 24 | 8 | bytes of a bottom track, or of a zone; else 0 |
//! | 32 | 8 | bytes of a top track, or writable bytes of a zone; else 0 |
//! | 40 | 8 | zones: bytes of such a track; else 0 |
//! | 48 | 8 | of a set of more than 4: capacity in bytes of this device; else 0 |
//! | 56 | 8 | zero |
//! | 64 | 64 | for each device of the set: its id (8), its capacity in bytes (8); of a set of more than 4 the ids alone; then zeros |
//!
//! Of a set of two the first is the disk, the second the device of its logs. Ids are random and not 0.

mod blank;
pub(crate) mod block;
mod layers;
mod signatures;

#[cfg(test)]
mod tests;

use crate::error::StoreError;
use crate::journal::StoreKind;
use crate::wire::{Reader, Writer};
use std::fmt;
use varve_env::Random;
use varve_media::{Device, TrackGeometry, TrackOverlap, ZoneGeometry, ZoneType};

pub(crate) use blank::{name_layer, refuse_bytes, refuse_layer, refuse_used, refuse_used_by_others};
pub use layers::{LayerMark, find_layer_mark};

/// Bytes of the description.
pub(crate) const DESCRIPTION_BYTES: usize = 128;
const MEMBERS_OFFSET: usize = 64;
/// Devices of a set, at most.
pub(crate) const MEMBERS_MAX: usize = 8;
/// Those of a set whose members all say how large they are.
const MEMBERS_WITH_CAPACITY_MAX: usize = 4;

/// What writes to a device do beside what they write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceRules {
    Conventional,
    Interlaced {
        track_count: u32,
        bottom_track_bytes: u64,
        top_track_bytes: u64,
    },
    Zoned {
        zone_count: u32,
        conventional_zones: u32,
        is_preferred: bool,
        zone_bytes: u64,
        zone_capacity_bytes: u64,
        /// Tracks a write destroys, and their bytes; zeros for none.
        overlap: (u32, u64),
    },
}

impl DeviceRules {
    fn of_tracks(tracks: &TrackGeometry) -> Self {
        DeviceRules::Interlaced {
            track_count: tracks.track_count,
            bottom_track_bytes: tracks.bottom_track_bytes,
            top_track_bytes: tracks.top_track_bytes,
        }
    }

    fn of_zones(zones: &ZoneGeometry) -> Self {
        DeviceRules::Zoned {
            zone_count: zones.zone_count,
            conventional_zones: zones.conventional_zones,
            is_preferred: zones.sequential_type == ZoneType::SequentialWritePreferred,
            zone_bytes: zones.zone_bytes,
            zone_capacity_bytes: zones.zone_capacity_bytes,
            overlap: zones
                .track_overlap
                .as_ref()
                .map_or((0, 0), |TrackOverlap { tracks, track_bytes }| (*tracks, *track_bytes)),
        }
    }
}

/// A device by value, as far as a store depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceShape {
    pub(crate) rules: DeviceRules,
    pub(crate) capacity_bytes: u64,
    pub(crate) sector_bytes: u32,
    pub(crate) physical_sector_bytes: u32,
}

impl DeviceShape {
    pub(crate) fn of(device: &Device) -> Self {
        let (geometry, capabilities) = (device.block.geometry(), device.block.capabilities());
        let tracks = capabilities.tracks.as_ref().filter(|tracks| tracks.interlaced);
        let rules = match (&capabilities.zones, tracks) {
            (Some(zones), _) => DeviceRules::of_zones(zones),
            (None, Some(tracks)) => DeviceRules::of_tracks(tracks),
            (None, None) => DeviceRules::Conventional,
        };
        DeviceShape {
            rules,
            capacity_bytes: geometry.capacity_bytes,
            sector_bytes: geometry.sector_bytes,
            physical_sector_bytes: geometry.physical_sector_bytes,
        }
    }

    /// Sectors may differ: an image keeps what it holds on another disk. Whether a store can live with them is for it
    /// to say.
    fn is_same_place(&self, other: &DeviceShape) -> bool {
        (&self.rules, self.capacity_bytes) == (&other.rules, other.capacity_bytes)
    }
}

impl fmt::Display for DeviceShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity_bytes = self.capacity_bytes;
        match &self.rules {
            DeviceRules::Conventional => write!(f, "a conventional device of {capacity_bytes} bytes"),
            DeviceRules::Interlaced { track_count, bottom_track_bytes, top_track_bytes } => write!(
                f,
                "an interlaced disk of {capacity_bytes} bytes in {track_count} tracks, bottom tracks of \
                 {bottom_track_bytes} and top tracks of {top_track_bytes} bytes"
            ),
            DeviceRules::Zoned {
                zone_count,
                conventional_zones,
                is_preferred,
                zone_bytes,
                zone_capacity_bytes,
                overlap: (tracks, track_bytes),
            } => {
                let order = if *is_preferred { "better written in order" } else { "written in order" };
                write!(
                    f,
                    "a zoned device of {capacity_bytes} bytes in {zone_count} zones of {zone_bytes} bytes \
                     ({zone_capacity_bytes} writable), the first {conventional_zones} conventional, the others {order}"
                )?;
                match tracks {
                    0 => Ok(()),
                    tracks => write!(f, ", where a write destroys {tracks} tracks of {track_bytes} bytes behind it"),
                }
            }
        }
    }
}

/// What a device is opened as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenedAs {
    pub(crate) kind: StoreKind,
    pub(crate) shape: DeviceShape,
    /// The store writes zones in order only: on a device without conventional zones its journal lies in zones.
    pub(crate) is_in_order: bool,
}

impl OpenedAs {
    /// A store whose journal lies at fixed offsets.
    pub(crate) fn new(kind: StoreKind, device: &Device) -> Self {
        OpenedAs { kind, shape: DeviceShape::of(device), is_in_order: false }
    }

    /// A store that writes zones in order only, its journal included.
    pub(crate) fn in_order(kind: StoreKind, device: &Device) -> Self {
        OpenedAs { is_in_order: true, ..OpenedAs::new(kind, device) }
    }
}

impl fmt::Display for OpenedAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a store of kind '{}' on {}", self.kind.text(), self.shape)
    }
}

/// A device of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: u64,
    /// 0 in a set of more than four, of which a device only knows its own.
    pub(crate) capacity_bytes: u64,
}

impl Member {
    /// New ids for the devices of a set, by their capacities.
    pub(crate) fn draw_set(random: &mut Random, capacities_bytes: impl ExactSizeIterator<Item = u64>) -> Vec<Member> {
        let says_capacity = capacities_bytes.len() <= MEMBERS_WITH_CAPACITY_MAX;
        let said = |capacity_bytes| if says_capacity { capacity_bytes } else { 0 };
        capacities_bytes.map(|capacity_bytes| Member::draw(random, said(capacity_bytes))).collect()
    }

    /// A new id for a device.
    pub(crate) fn draw(random: &mut Random, capacity_bytes: u64) -> Self {
        Member { id: random.next_u64().max(1), capacity_bytes }
    }
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) shape: DeviceShape,
    /// The devices of its set, and which of them it is.
    pub(crate) members: Vec<Member>,
    pub(crate) index: usize,
}

impl Identity {
    /// Of a device that is a set by itself.
    pub(crate) fn alone(random: &mut Random, shape: DeviceShape) -> Self {
        let members = vec![Member::draw(random, shape.capacity_bytes)];
        Identity { shape, members, index: 0 }
    }

    /// The 128 bytes of a description. At most [`MEMBERS_MAX`] members.
    pub(crate) fn encode(&self) -> [u8; DESCRIPTION_BYTES] {
        let mut writer = Writer::default();
        let (rules, zone_type) = match &self.shape.rules {
            DeviceRules::Conventional => (0, 0),
            DeviceRules::Interlaced { .. } => (1, 0),
            DeviceRules::Zoned { is_preferred, .. } => (2, 1 + u8::from(*is_preferred)),
        };
        writer.bytes(&[rules, zone_type, self.members.len() as u8, self.index as u8]);
        writer.u32(self.shape.sector_bytes);
        writer.u32(self.shape.physical_sector_bytes);
        let (count, conventional, (overlap, track_bytes), first, second) = match &self.shape.rules {
            DeviceRules::Conventional => (0, 0, (0, 0), 0, 0),
            DeviceRules::Interlaced { track_count, bottom_track_bytes, top_track_bytes } => {
                (*track_count, 0, (0, 0), *bottom_track_bytes, *top_track_bytes)
            }
            DeviceRules::Zoned { zone_count, conventional_zones, zone_bytes, zone_capacity_bytes, overlap, .. } => {
                (*zone_count, *conventional_zones, *overlap, *zone_bytes, *zone_capacity_bytes)
            }
        };
        [count, conventional, overlap].into_iter().for_each(|field| writer.u32(field));
        [first, second, track_bytes].into_iter().for_each(|field| writer.u64(field));
        let says_capacity = self.members.len() <= MEMBERS_WITH_CAPACITY_MAX;
        writer.u64(if says_capacity { 0 } else { self.shape.capacity_bytes });
        writer.u64(0);
        for member in self.members.iter().take(MEMBERS_MAX) {
            writer.u64(member.id);
            if says_capacity {
                writer.u64(member.capacity_bytes);
            }
        }
        let mut bytes = [0; DESCRIPTION_BYTES];
        bytes[..writer.as_slice().len()].copy_from_slice(writer.as_slice());
        bytes
    }

    /// Any bytes as a description; `None` when they cannot be one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Identity> {
        let mut reader = Reader::new(bytes);
        let [rules, zone_type, member_count, index] = reader.array()?;
        let (sector_bytes, physical_sector_bytes) = (reader.u32()?, reader.u32()?);
        let (count, conventional, overlap) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (first, second, track_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let rules = match (rules, zone_type) {
            (0, 0) => DeviceRules::Conventional,
            (1, 0) => {
                DeviceRules::Interlaced { track_count: count, bottom_track_bytes: first, top_track_bytes: second }
            }
            (2, 1 | 2) => DeviceRules::Zoned {
                zone_count: count,
                conventional_zones: conventional,
                is_preferred: zone_type == 2,
                zone_bytes: first,
                zone_capacity_bytes: second,
                overlap: (overlap, track_bytes),
            },
            _ => return None,
        };
        let (member_count, index) = (usize::from(member_count), usize::from(index));
        let own_bytes = reader.u64()?;
        if !(1..=MEMBERS_MAX).contains(&member_count) || index >= member_count {
            return None;
        }
        let says_capacity = member_count <= MEMBERS_WITH_CAPACITY_MAX;
        let mut reader = Reader::new(bytes.get(MEMBERS_OFFSET..DESCRIPTION_BYTES)?);
        let mut members = Vec::with_capacity(member_count);
        for _ in 0..member_count {
            let id = reader.u64()?;
            let capacity_bytes = if says_capacity { reader.u64()? } else { 0 };
            members.push(Member { id, capacity_bytes });
        }
        let capacity_bytes = if says_capacity { members.get(index)?.capacity_bytes } else { own_bytes };
        let shape = DeviceShape { rules, capacity_bytes, sector_bytes, physical_sector_bytes };
        let identity = Identity { shape, members, index };
        // What is zero must be.
        let is_whole =
            identity.members.iter().all(|member| member.id != 0) && identity.encode() == bytes[..DESCRIPTION_BYTES];
        is_whole.then_some(identity)
    }
}

/// Says of what a device holds and what it is opened as that they are not the same.
pub(crate) fn refuse_other(
    label: &str,
    offset_bytes: u64,
    found_kind: StoreKind,
    found: &DeviceShape,
    opened_as: &OpenedAs,
) -> Result<(), StoreError> {
    if found_kind == opened_as.kind && found.is_same_place(&opened_as.shape) {
        return Ok(());
    }
    let is_other_size = found.rules == opened_as.shape.rules && found_kind == opened_as.kind;
    let advice = match is_other_size {
        true => format!("open it with the {} bytes it was formatted with", found.capacity_bytes),
        false => "open it as what it was formatted as, or format it with overwrite and lose what it holds".to_owned(),
    };
    Err(StoreError::Foreign {
        store: label.to_owned(),
        structure: "what the device was formatted as".to_owned(),
        offset_bytes,
        expected: opened_as.to_string(),
        found: OpenedAs { kind: found_kind, shape: found.clone(), ..*opened_as }.to_string(),
        advice,
    })
}

/// Refuses a device that says of itself that it was formatted with other rules or another size than `wanted` has;
/// `wanted` has the bytes of `device` under the rules it is to have. Says whether it says anything; one that does not is for
/// the store to judge. Writes nothing.
///
/// # Errors
/// [`StoreError::Foreign`] that names both.
pub fn check_rules(device: &Device, wanted: &Device) -> Result<bool, StoreError> {
    let label = wanted.block.name();
    let shape = DeviceShape::of(wanted);
    match block::said(device, label) {
        Some(said) if !said.identity.shape.is_same_place(&shape) => {
            let error = StoreError::Foreign {
                store: label.to_owned(),
                structure: "what the device was formatted as".to_owned(),
                offset_bytes: said.offset_bytes,
                expected: shape.to_string(),
                found: OpenedAs { kind: said.kind, shape: said.identity.shape, is_in_order: false }.to_string(),
                advice: "open it as what it was formatted as, or format it with overwrite and lose what it holds"
                    .to_owned(),
            };
            Err(blank::name_layer_of(device, wanted.block.capabilities().zones.as_ref(), label, &shape, error))
        }
        said => Ok(said.is_some()),
    }
}

/// Refuses a device that holds anything: see [`check_rules`] for what the two are. Reads its first two mebibytes and its
/// last one, and where layers put their marks.
///
/// # Errors
/// [`StoreError::Foreign`] that names what is there and both; [`StoreError::Media`] when it cannot be read.
pub fn check_blank(device: &Device, wanted: &Device) -> Result<(), StoreError> {
    let (label, shape) = (wanted.block.name(), DeviceShape::of(wanted));
    refuse_bytes(device, label, &shape)?;
    blank::refuse_layer_of(device, label, wanted.block.capabilities().zones.as_ref(), &shape)
}
