//! Whether a device is blank.
//!
//! It is when its first two mebibytes and its last one are zeros and none of its zones was written. Marks of everything
//! known lie there, also of a file system in a partition that begins at 1 MiB.

use super::OpenedAs;
use super::layers::{self, LayerMark};
use super::signatures::{self, Part};
use crate::error::StoreError;
use crate::journal::{METADATA, buffer, media_error};
use std::fmt::Display;
use varve_media::{BlockDeviceExt, Device, MediaError, MediaErrorKind, ZoneCondition, ZoneGeometry, ZoneId, ZoneType};

const FIRST_BYTES: u64 = 2 << 20;
const LAST_BYTES: u64 = 1 << 20;
/// Zones asked for at once.
const REPORTED_ZONES: u32 = 4096;

/// What becomes of sectors that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unreadable {
    /// They may hold anything.
    Error,
    /// They count as zeros: of a device that says that nothing on it counts.
    Zeros,
}

fn read(device: &Device, label: &str, at: u64, bytes: &mut [u8], unreadable: Unreadable) -> Result<(), StoreError> {
    let failed = |error| media_error(label, "what it holds", error);
    // A zone that is offline holds nothing any more.
    let counts_as_zeros = |error: &MediaError| match error.kind() {
        MediaErrorKind::Offline => true,
        MediaErrorKind::Unreadable => unreadable == Unreadable::Zeros,
        _ => false,
    };
    match device.block.read_at(at, bytes, &METADATA) {
        Err(error) if counts_as_zeros(&error) => {}
        result => return result.map_err(failed),
    }
    let sector = device.block.geometry().physical_sector_bytes.max(512) as usize;
    for (number, piece) in bytes.chunks_mut(sector).enumerate() {
        match device.block.read_at(at + (number * sector) as u64, piece, &METADATA) {
            Err(error) if counts_as_zeros(&error) => piece.fill(0),
            result => result.map_err(failed)?,
        }
    }
    Ok(())
}

/// The ends of a device, with where they begin.
fn ends(device: &Device, label: &str, unreadable: Unreadable) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let geometry = device.block.geometry();
    let unit = u64::from(geometry.sector_bytes.max(1));
    let end = geometry.capacity_bytes / unit * unit;
    let first = FIRST_BYTES.min(end);
    let last = (end.saturating_sub(LAST_BYTES) / unit * unit).max(first);
    let mut ends = Vec::new();
    for range in [0..first, last..end] {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let mut piece = buffer(device, (range.end - at).min(LAST_BYTES) as usize);
            read(device, label, at, &mut piece, unreadable)?;
            bytes.extend_from_slice(&piece);
            at += piece.len() as u64;
        }
        ends.push((range.start, bytes));
    }
    Ok(ends)
}

fn used(label: &str, offset_bytes: u64, opened_as: &impl Display, found: String) -> StoreError {
    StoreError::Foreign {
        store: label.to_owned(),
        structure: "what the device holds".to_owned(),
        offset_bytes,
        expected: format!("a blank device for {opened_as}"),
        found,
        advice: layers::ADVICE_OF_OTHERS.to_owned(),
    }
}

/// The same of what is named, with how to open it.
fn used_by(label: &str, opened_as: &impl Display, (name, offset_bytes): (&str, u64)) -> StoreError {
    let mut error = used(label, offset_bytes, opened_as, name.to_owned());
    if let StoreError::Foreign { advice, .. } = &mut error {
        *advice = layers::advice(name).to_owned();
    }
    error
}

fn find_layer(device: &Device, label: &str, zones: Option<&ZoneGeometry>) -> Option<LayerMark> {
    let mut read_at = |at: u64, bytes: &mut [u8]| read(device, label, at, bytes, Unreadable::Zeros).is_ok();
    let capabilities = device.block.capabilities();
    layers::find(device.block.geometry().capacity_bytes, zones, capabilities.buffer_alignment_bytes, true, &mut read_at)
}

/// Refuses a device that a layer has marked between its ends, where [`refuse_used`] does not look.
pub(crate) fn refuse_layer(device: &Device, label: &str, opened_as: &impl Display) -> Result<(), StoreError> {
    refuse_layer_of(device, label, device.block.capabilities().zones.as_ref(), opened_as)
}

/// Refuses a device that a layer has marked, as one of these zones.
pub(super) fn refuse_layer_of(
    device: &Device,
    label: &str,
    zones: Option<&ZoneGeometry>,
    opened_as: &impl Display,
) -> Result<(), StoreError> {
    match find_layer(device, label, zones) {
        Some(mark) => Err(used_by(label, opened_as, (mark.name, mark.offset_bytes))),
        None => Ok(()),
    }
}

/// Names the layer that has marked the device, in an error that refuses the device without it.
pub(crate) fn name_layer(device: &Device, label: &str, opened_as: &impl Display, error: StoreError) -> StoreError {
    name_layer_of(device, device.block.capabilities().zones.as_ref(), label, opened_as, error)
}

/// The same of the bytes of a device that is to have these zones.
pub(super) fn name_layer_of(
    device: &Device,
    zones: Option<&ZoneGeometry>,
    label: &str,
    opened_as: &impl Display,
    error: StoreError,
) -> StoreError {
    // A layer moves superblocks to places where they look damaged.
    let (StoreError::Foreign { found, .. } | StoreError::Corruption { found, .. }) = &error else { return error };
    match find_layer(device, label, zones) {
        Some(mark) if found.contains(mark.name) => error,
        Some(mark) => {
            let mut named = used_by(label, opened_as, (mark.name, mark.offset_bytes));
            if let StoreError::Foreign { found: what, .. } = &mut named {
                *what = format!("{}; without it the device holds {found}", mark.name);
            }
            named
        }
        None => error,
    }
}

/// Marks of known programs at the ends of the device.
fn known(ends: &[(u64, Vec<u8>)], capacity_bytes: u64) -> Option<(&'static str, u64)> {
    let layer = ends.first().and_then(|(_, first)| layers::at_start(first));
    layer.map(|name| (name, 0)).or_else(|| signatures::find(&parts(ends), capacity_bytes))
}

fn parts(ends: &[(u64, Vec<u8>)]) -> Vec<Part<'_>> {
    ends.iter().map(|(offset_bytes, bytes)| Part { offset_bytes: *offset_bytes, bytes }).collect()
}

/// Refuses a device that is not blank, with what it seems to hold.
pub(crate) fn refuse_used(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<(), StoreError> {
    refuse_bytes(device, label, opened_as)?;
    refuse_written_zones(device, label, opened_as).map_err(|error| name_layer(device, label, opened_as, error))
}

/// The same by its bytes alone.
pub(crate) fn refuse_bytes(device: &Device, label: &str, opened_as: &impl Display) -> Result<(), StoreError> {
    refuse_ends(device, label, opened_as).map_err(|error| name_layer(device, label, opened_as, error))
}

fn refuse_ends(device: &Device, label: &str, opened_as: &impl Display) -> Result<(), StoreError> {
    let ends = ends(device, label, Unreadable::Error)?;
    if let Some((name, at)) = known(&ends, device.block.geometry().capacity_bytes) {
        return Err(used_by(label, opened_as, (name, at)));
    }
    for (start, bytes) in &ends {
        if let Some(position) = bytes.iter().position(|byte| *byte != 0) {
            let found = "bytes that are not zeros and that nothing known writes".to_owned();
            return Err(used(label, start + position as u64, opened_as, found));
        }
    }
    Ok(())
}

/// Refuses a device that begins with a mark of ours when something known has been put on it since.
pub(crate) fn refuse_used_by_others(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<(), StoreError> {
    let ends = ends(device, label, Unreadable::Zeros)?;
    match known(&ends, device.block.geometry().capacity_bytes) {
        Some(found) => Err(used_by(label, opened_as, found)),
        None => Ok(()),
    }
}

fn refuse_written_zones(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<(), StoreError> {
    let (Some(control), Some(zones)) = (&device.zones, &device.block.capabilities().zones) else { return Ok(()) };
    let mut next = 0;
    while next < zones.zone_count {
        let described = control
            .report(ZoneId(next), REPORTED_ZONES.min(zones.zone_count - next), &METADATA)
            .map_err(|error| media_error(label, "what its zones are in", error))?;
        if described.is_empty() {
            break;
        }
        for zone in described {
            // What a mark leaves behind that was torn, or was being reset, is among the bytes that were looked at.
            let is_torn = match zone.condition {
                ZoneCondition::Full => zone.end_bytes() <= FIRST_BYTES,
                condition => condition.is_active() && zone.write_pointer_bytes <= FIRST_BYTES,
            };
            let is_blank = zone.zone_type == ZoneType::Conventional
                || matches!(zone.condition, ZoneCondition::Empty | ZoneCondition::Offline)
                || is_torn;
            if !is_blank {
                let found =
                    format!("zone {next}, {:?}, written up to byte {}", zone.condition, zone.write_pointer_bytes);
                return Err(used(label, zone.start_bytes, opened_as, found));
            }
            next += 1;
        }
    }
    Ok(())
}
