//! Whether a device is blank.
//!
//! It is when its first two mebibytes and its last one are zeros and none of its zones was written. Marks of everything
//! known lie there, also of a file system in a partition that begins at 1 MiB.

use super::OpenedAs;
use super::signatures::{self, Part};
use crate::error::StoreError;
use crate::journal::{METADATA, buffer, media_error};
use std::fmt::Display;
use varve_media::{BlockDeviceExt, Device, MediaErrorKind, ZoneCondition, ZoneId, ZoneType};

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
    match device.block.read_at(at, bytes, &METADATA) {
        Err(error) if unreadable == Unreadable::Zeros && error.kind() == MediaErrorKind::Unreadable => {}
        result => return result.map_err(failed),
    }
    let sector = device.block.geometry().physical_sector_bytes.max(512) as usize;
    for (number, piece) in bytes.chunks_mut(sector).enumerate() {
        match device.block.read_at(at + (number * sector) as u64, piece, &METADATA) {
            Err(error) if error.kind() == MediaErrorKind::Unreadable => piece.fill(0),
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
        advice: "choose another device, or format this one with overwrite and lose what it holds".to_owned(),
    }
}

fn parts(ends: &[(u64, Vec<u8>)]) -> Vec<Part<'_>> {
    ends.iter().map(|(offset_bytes, bytes)| Part { offset_bytes: *offset_bytes, bytes }).collect()
}

/// Refuses a device that is not blank, with what it seems to hold.
pub(crate) fn refuse_used(device: &Device, label: &str, opened_as: &OpenedAs) -> Result<(), StoreError> {
    refuse_bytes(device, label, opened_as)?;
    refuse_written_zones(device, label, opened_as)
}

/// The same by its bytes alone.
pub(crate) fn refuse_bytes(device: &Device, label: &str, opened_as: &impl Display) -> Result<(), StoreError> {
    let ends = ends(device, label, Unreadable::Error)?;
    if let Some((name, at)) = signatures::find(&parts(&ends), device.block.geometry().capacity_bytes) {
        return Err(used(label, at, opened_as, name.to_owned()));
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
    match signatures::find(&parts(&ends), device.block.geometry().capacity_bytes) {
        Some((name, at)) => Err(used(label, at, opened_as, name.to_owned())),
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
