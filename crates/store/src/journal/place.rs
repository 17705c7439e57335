//! Where the bytes of a journal lie: on a device as they are addressed, or in zones that are written in order.

use super::{METADATA, TRANSFER_BYTES, buffer, media_error, sync};
use crate::error::StoreError;
use std::io::IoSlice;
use std::sync::Arc;
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Device, IoContext, MediaError, Request, Transfer, ZoneCondition, ZoneControl,
    ZoneDescription, ZoneId, find_sound_answer,
};

/// A part of a device with addresses of its own, from 0. Cheap to clone.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) device: Device,
    pub(super) label: String,
    zones: Option<ZoneRun>,
}

/// True if a zone is read-only or offline: nothing can be written to it.
pub(super) fn is_worn(zone: &ZoneDescription) -> bool {
    matches!(zone.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline)
}

/// Zones one behind the other, written in order from the first to the last, each up to what can be written of it.
#[derive(Clone)]
struct ZoneRun {
    control: Arc<dyn ZoneControl>,
    first: u32,
    count: u32,
    zone_bytes: u64,
    /// Bytes that are used of each: whole units.
    used_bytes: u64,
}

impl Place {
    /// The whole device.
    pub(super) fn whole(device: &Device, label: &str) -> Place {
        Place { device: device.clone(), label: label.to_owned(), zones: None }
    }

    /// `count` zones from `first`, of each of which `used_bytes` are used, a multiple of all it is written in.
    pub(super) fn in_zones(
        device: &Device,
        label: &str,
        control: &Arc<dyn ZoneControl>,
        first: u32,
        count: u32,
        (zone_bytes, used_bytes): (u64, u64),
    ) -> Place {
        let zones = ZoneRun { control: control.clone(), first, count, zone_bytes, used_bytes };
        Place { zones: Some(zones), ..Place::whole(device, label) }
    }

    /// Whether a zone is one of its.
    pub(super) fn holds(&self, zone: ZoneId) -> bool {
        self.zones.as_ref().is_some_and(|run| (run.first..run.first + run.count).contains(&zone.0))
    }

    /// True if a zone belongs to both.
    pub(super) fn overlaps(&self, other: &Place) -> bool {
        self.zones.as_ref().is_some_and(|run| (run.first..run.first + run.count).any(|zone| other.holds(ZoneId(zone))))
    }

    /// Bytes it has.
    pub(super) fn capacity_bytes(&self) -> u64 {
        match &self.zones {
            None => self.device.block.geometry().capacity_bytes,
            Some(run) => u64::from(run.count) * run.used_bytes,
        }
    }

    pub(super) fn buffer(&self, length_bytes: usize) -> AlignedBuffer {
        buffer(&self.device, length_bytes)
    }

    /// Where a byte is on the device, and how many of `wanted_bytes` from there on one request may have.
    fn locate(&self, offset_bytes: u64, wanted_bytes: usize) -> (u64, usize) {
        let wanted_bytes = wanted_bytes.min(TRANSFER_BYTES);
        match &self.zones {
            None => (offset_bytes, wanted_bytes),
            Some(run) => {
                let (zone, within) = (offset_bytes / run.used_bytes, offset_bytes % run.used_bytes);
                let at = (u64::from(run.first) + zone) * run.zone_bytes + within;
                (at, (run.used_bytes - within).min(wanted_bytes as u64) as usize)
            }
        }
    }

    /// Where a byte is on the device, for messages.
    pub(super) fn device_offset(&self, offset_bytes: u64) -> u64 {
        self.locate(offset_bytes, 0).0
    }

    /// Fills `data` in large pieces, whole sectors of it.
    pub(super) fn read(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        self.read_as(offset_bytes, data, &METADATA)
    }

    /// Looks for a sound answer to a read whose first answer, in `data`, is wrong.
    pub(super) fn find_sound(&self, offset_bytes: u64, data: &mut [u8], is_sound: impl FnMut(&[u8]) -> bool) -> bool {
        let read = |data: &mut [u8], context: &IoContext| self.read_as(offset_bytes, data, context);
        find_sound_answer(data, &METADATA, read, is_sound)
    }

    fn read_as(&self, mut offset_bytes: u64, mut data: &mut [u8], context: &IoContext) -> Result<(), MediaError> {
        while !data.is_empty() {
            let (at, length) = self.locate(offset_bytes, data.len());
            let (piece, rest) = data.split_at_mut(length);
            self.device.block.read_at(at, piece, context)?;
            (data, offset_bytes) = (rest, offset_bytes + length as u64);
        }
        Ok(())
    }

    /// Writes `data` in large pieces, whole sectors of it; in zones where they were written up to.
    pub(super) fn write(&self, mut offset_bytes: u64, mut data: &[u8], durable: bool) -> Result<(), StoreError> {
        let failed = |error| media_error(&self.label, "metadata", error);
        while !data.is_empty() {
            let (at, length) = self.locate(offset_bytes, data.len());
            let (piece, rest) = data.split_at(length);
            let slices = [IoSlice::new(piece)];
            let mut request = Request::write(at, &slices);
            if let Transfer::Write { durable: flag, .. } = &mut request.transfer {
                *flag = durable;
            }
            if let Err(error) = self.device.block.execute(std::slice::from_mut(&mut request), &METADATA) {
                // A failed write may have torn what it was to replace; a second one mends that. In zones it can be made only
                // where nothing arrived.
                if self.zone_at(at).map_err(failed)?.is_some_and(|zone| zone.write_pointer_bytes != at) {
                    return Err(failed(error));
                }
                request.outcome = Ok(());
                self.device.block.execute(&mut [request], &METADATA).map_err(failed)?;
            }
            (data, offset_bytes) = (rest, offset_bytes + length as u64);
            self.finish_if_used_up(at + length as u64).map_err(failed)?;
        }
        Ok(())
    }

    /// What the device says of the zone a byte of it lies in.
    fn zone_at(&self, device_offset: u64) -> Result<Option<ZoneDescription>, MediaError> {
        let Some(run) = &self.zones else { return Ok(None) };
        let zone = ZoneId((device_offset / run.zone_bytes) as u32);
        Ok(run.control.report(zone, 1, &METADATA)?.into_iter().next())
    }

    /// A zone of which a part is never used counts as active until it is finished.
    fn finish_if_used_up(&self, end: u64) -> Result<(), MediaError> {
        let Some(run) = self.zones.as_ref().filter(|run| end % run.zone_bytes == run.used_bytes) else { return Ok(()) };
        match self.zone_at(end - 1)? {
            Some(zone) if zone.condition.is_active() => {
                run.control.finish(ZoneId(((end - 1) / run.zone_bytes) as u32), &METADATA)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn sync(&self) -> Result<(), StoreError> {
        sync(&self.device, &self.label)
    }

    /// Its zones as they are. A zone that cannot be asked, where others can be, counts as read-only.
    pub(super) fn report(&self) -> Result<Vec<(ZoneId, ZoneDescription)>, MediaError> {
        let Some(run) = &self.zones else { return Ok(Vec::new()) };
        self.report_all(run).or_else(|error| self.report_each(run).ok_or(error))
    }

    fn report_each(&self, run: &ZoneRun) -> Option<Vec<(ZoneId, ZoneDescription)>> {
        let zones = self.device.block.capabilities().zones.as_ref()?;
        let mut is_any_known = false;
        let mut describe = |zone: ZoneId| match run.control.report(zone, 1, &METADATA) {
            Ok(found) => {
                is_any_known = true;
                found.into_iter().next().map(|found| (zone, found))
            }
            Err(_) => {
                let (start_bytes, length_bytes) = (zones.start_bytes(zone), run.zone_bytes);
                let unknown = ZoneDescription {
                    zone_type: zones.sequential_type,
                    condition: ZoneCondition::ReadOnly,
                    start_bytes,
                    length_bytes,
                    capacity_bytes: zones.zone_capacity_bytes,
                    write_pointer_bytes: start_bytes,
                    non_sequential: false,
                };
                Some((zone, unknown))
            }
        };
        let found = (run.first..run.first + run.count).map(ZoneId).filter_map(&mut describe).collect();
        is_any_known.then_some(found)
    }

    fn report_all(&self, run: &ZoneRun) -> Result<Vec<(ZoneId, ZoneDescription)>, MediaError> {
        let mut found: Vec<(ZoneId, ZoneDescription)> = Vec::new();
        while (found.len() as u32) < run.count {
            let first = run.first + found.len() as u32;
            let described = run.control.report(ZoneId(first), run.count - found.len() as u32, &METADATA)?;
            if described.is_empty() {
                break;
            }
            found.extend((first..).map(ZoneId).zip(described));
        }
        Ok(found)
    }

    /// The first of its zones that the device gave up, wholly or for writing.
    pub(super) fn worn_zone(&self) -> Result<Option<(ZoneId, ZoneDescription)>, MediaError> {
        Ok(self.report()?.into_iter().find(|(_, found)| is_worn(found)))
    }

    /// Zones of it, for messages.
    pub(super) fn zones_text(&self) -> String {
        match &self.zones {
            None => "the device".to_owned(),
            Some(run) if run.count == 1 => format!("zone {}", run.first),
            Some(run) => format!("zones {} to {}", run.first, run.first + run.count - 1),
        }
    }

    /// Makes it empty, from its first zone on: what says that something is there goes first. Of a place in zones.
    pub(super) fn reset(&self) -> Result<(), StoreError> {
        self.reset_in_order(self.report())
    }

    /// The same from its last zone on: what says that nothing counts goes last.
    pub(super) fn reset_from_the_end(&self) -> Result<(), StoreError> {
        self.reset_in_order(self.report().map(|found| found.into_iter().rev().collect()))
    }

    fn reset_in_order(&self, zones: Result<Vec<(ZoneId, ZoneDescription)>, MediaError>) -> Result<(), StoreError> {
        let failed = |error| media_error(&self.label, "metadata zones", error);
        let Some(run) = &self.zones else { return Ok(()) };
        for (zone, found) in zones.map_err(failed)? {
            if found.condition != ZoneCondition::Empty {
                run.control.reset(zone, &METADATA).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Writes nothing more to it until it is reset: none of its zones is active from then on.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        let failed = |error| media_error(&self.label, "metadata zones", error);
        let Some(run) = &self.zones else { return Ok(()) };
        for (zone, found) in self.report().map_err(failed)? {
            if found.condition.is_active() {
                run.control.finish(zone, &METADATA).map_err(failed)?;
            }
        }
        Ok(())
    }
}
