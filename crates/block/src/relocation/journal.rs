//! The journal: which zone each logical zone is in, durably.
//!
//! Two zones are used in turn. The one in use begins with a checkpoint of the whole map; records follow. When it is full, or its
//! end is in doubt, a checkpoint of the next generation goes to the other, and this one is reset: no record is written while both
//! hold a checkpoint. So what does not open at one of the two is never older than it seems.

use super::map::{JOURNAL_ZONES, ZoneMap};
use super::record::{self, CheckpointHeader, Flaw, Record, SLOT_BYTES};
use std::sync::Arc;
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Device, IoClass, IoContext, MediaError, MediaErrorKind, Operation, ZoneCondition,
    ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, is_zero,
};

/// Records that a zone of the journal must have room for.
const RECORDS_MIN: u64 = 4;
/// Bytes read at once when a journal is opened.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a conventional zone that are looked at to see whether the device is blank.
const LOOKED_AT_BYTES: u64 = 64 << 10;

/// What to do with a device that has no journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Formatting {
    /// Makes one where the device is blank: its zones empty, conventional ones beginning with zeros.
    #[default]
    IfBlank,
    /// Makes one, whatever is there: what the last zones hold is lost, and the others are what they are, each in its place.
    Anew,
    /// Makes none, and writes nothing when it is opened: for devices that are only read.
    Never,
}

/// Why a relocation was not committed.
pub(super) enum CommitError {
    /// The map before it is what will be found.
    NotDone,
    /// Either may be found: nothing may be acknowledged any more.
    Unknown(MediaError),
}

/// The journal of an open device. Used by one thread.
pub(super) struct Journal {
    device: Device,
    zones: Arc<dyn ZoneControl>,
    geometry: ZoneGeometry,
    /// Which of the two is in use.
    current: ZoneId,
    generation: u64,
    /// Records in the zone in use.
    records: u64,
    /// Nothing lies behind the last record.
    is_clean: bool,
    /// The zone that is not in use is empty.
    other_is_empty: bool,
    checkpoint_bytes: u64,
}

fn context() -> IoContext {
    IoContext::of(IoClass::Metadata)
}

/// What one zone of the journal holds.
struct Found {
    zone: ZoneId,
    header: CheckpointHeader,
    map: ZoneMap,
    end: record::End,
}

struct Opening<'a> {
    device: &'a Device,
    zones: &'a Arc<dyn ZoneControl>,
    geometry: &'a ZoneGeometry,
    reported: &'a [ZoneDescription],
}

impl Opening<'_> {
    fn name(&self) -> String {
        self.device.block.name().to_owned()
    }

    fn flawed(&self, flaw: Flaw, offset_bytes: u64) -> MediaError {
        match flaw {
            Flaw::OtherVersion(found) => MediaError::OtherVersion {
                device: self.name(),
                what: "the journal of relocated zones".to_owned(),
                readable: record::VERSION,
                found,
            },
            Flaw::Damaged(what, expected, found) => MediaError::Damaged {
                device: self.name(),
                offset_bytes,
                what: format!("{what} in the journal of relocated zones"),
                expected,
                found,
            },
        }
    }

    /// Reads whole slots; those that cannot be read are as ones that were torn.
    fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Vec<u8>, MediaError> {
        let alignment = self.device.block.capabilities().buffer_alignment_bytes.max(1) as usize;
        let mut all = Vec::with_capacity(length_bytes);
        while all.len() < length_bytes {
            let at = offset_bytes + all.len() as u64;
            let mut buffer = AlignedBuffer::new((length_bytes - all.len()).min(READ_BYTES), alignment);
            match self.device.block.read_at(at, &mut buffer, &context()) {
                Err(error) if error.kind() == MediaErrorKind::Unreadable => {
                    for (slot, at) in buffer.chunks_mut(SLOT_BYTES).zip((at..).step_by(SLOT_BYTES)) {
                        let mut one = AlignedBuffer::new(slot.len(), alignment);
                        match self.device.block.read_at(at, &mut one, &context()) {
                            Err(error) if error.kind() == MediaErrorKind::Unreadable => slot.fill(0xFF),
                            result => {
                                result?;
                                slot.copy_from_slice(&one);
                            }
                        }
                    }
                }
                result => result?,
            }
            all.extend_from_slice(&buffer);
        }
        Ok(all)
    }

    /// Bytes of a zone that may hold something, in whole slots.
    fn written_bytes(&self, zone: ZoneId) -> u64 {
        let capacity = self.geometry.zone_capacity_bytes / SLOT_BYTES as u64 * SLOT_BYTES as u64;
        let Some(found) = self.reported.get(zone.0 as usize) else { return capacity };
        match found.condition {
            ZoneCondition::Empty => 0,
            condition if condition.is_active() && !found.non_sequential => {
                let written = found.write_pointer_bytes.saturating_sub(found.start_bytes);
                written.next_multiple_of(SLOT_BYTES as u64).min(capacity)
            }
            _ => capacity,
        }
    }

    /// What a zone of the journal holds; `None` where its checkpoint is none, or torn.
    fn find(&self, zone: ZoneId) -> Result<Option<Found>, MediaError> {
        let start = self.geometry.start_bytes(zone);
        let written = self.written_bytes(zone);
        if written < 2 * SLOT_BYTES as u64 {
            return Ok(None);
        }
        let slot = self.read(start, SLOT_BYTES)?;
        let header = record::decode_header(self.geometry, &slot).map_err(|flaw| self.flawed(flaw, start))?;
        let Some(header) = header else { return Ok(None) };
        let checkpoint_bytes = record::checkpoint_bytes(header.logical_zones);
        if checkpoint_bytes > written {
            return Ok(None);
        }
        let entries = self.read(start + SLOT_BYTES as u64, checkpoint_bytes as usize - SLOT_BYTES)?;
        let map = record::decode_map(self.geometry, &header, &entries).map_err(|flaw| self.flawed(flaw, start))?;
        let Some(mut map) = map else { return Ok(None) };
        let slots = self.read(start + checkpoint_bytes, (written - checkpoint_bytes) as usize)?;
        let end = record::apply(&mut map, header.generation, &slots).map_err(|(slot, flaw)| {
            self.flawed(flaw, start + checkpoint_bytes + slot.saturating_mul(SLOT_BYTES as u64))
        })?;
        Ok(Some(Found { zone, header, map, end }))
    }

    /// Whether the next record would be written in order.
    fn ends_at(&self, found: &Found) -> bool {
        let records = found.end.records.saturating_mul(SLOT_BYTES as u64);
        let end = record::checkpoint_bytes(found.header.logical_zones).saturating_add(records);
        self.reported.get(found.zone.0 as usize).is_some_and(|zone| {
            let is_full = zone.condition == ZoneCondition::Full;
            !zone.non_sequential && (is_full || zone.write_pointer_bytes.saturating_sub(zone.start_bytes) == end)
        })
    }

    /// Whether nothing is lost when a journal is made: all zones are empty, those of the journal but for what is of a journal that
    /// was not finished.
    fn is_blank(&self) -> Result<bool, MediaError> {
        let journal = self.geometry.zone_count - JOURNAL_ZONES;
        for (zone, found) in (0..self.geometry.zone_count).zip(self.reported) {
            let start = found.start_bytes;
            let is_blank = match found.condition {
                ZoneCondition::Empty => true,
                ZoneCondition::NotWritePointer => {
                    let looked_at = self.geometry.zone_bytes.min(LOOKED_AT_BYTES) as usize;
                    is_zero(&self.read(start, looked_at)?)
                }
                _ if zone >= journal => {
                    let slot = self.read(start, SLOT_BYTES)?;
                    is_zero(&slot) || record::is_of_checkpoint(&slot)
                }
                _ => false,
            };
            if !is_blank {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Least bytes of a zone with a journal of so many logical zones.
pub(super) fn zone_bytes_min(logical_zones: u32) -> u64 {
    record::checkpoint_bytes(logical_zones) + RECORDS_MIN * SLOT_BYTES as u64
}

impl Journal {
    /// Opens the journal of a device, or makes one with so many spares. `reported` is of all its zones.
    ///
    /// # Errors
    /// [`MediaError::Damaged`], [`MediaError::OtherVersion`], [`MediaError::Unsuitable`] where there is none and the device is not blank; what
    /// the device says.
    pub(super) fn open(
        device: &Device,
        zones: &Arc<dyn ZoneControl>,
        geometry: &ZoneGeometry,
        reported: &[ZoneDescription],
        spares: u32,
        formatting: Formatting,
    ) -> Result<(Journal, ZoneMap), MediaError> {
        let opening = Opening { device, zones, geometry, reported };
        let first = ZoneId(geometry.zone_count - JOURNAL_ZONES);
        if formatting == Formatting::Anew {
            // What cannot be read is not blank.
            return opening.format(spares, opening.is_blank().unwrap_or(false));
        }
        let (one, two) = (opening.find(first)?, opening.find(ZoneId(first.0 + 1))?);
        let found = match (one, two) {
            (Some(one), Some(two)) if one.header.generation == two.header.generation => {
                let found = format!("generation {} twice", one.header.generation);
                let flaw = Flaw::Damaged("checkpoints", "one of each generation".to_owned(), found);
                return Err(opening.flawed(flaw, geometry.start_bytes(first)));
            }
            (Some(one), Some(two)) if one.header.generation > two.header.generation => one,
            (_, Some(found)) | (Some(found), None) => found,
            (None, None) if formatting != Formatting::Never && opening.is_blank()? => {
                return opening.format(spares, true);
            }
            (None, None) => {
                return Err(MediaError::Unsuitable {
                    device: opening.name(),
                    operation: Operation::Open,
                    found: "a disk with data on it and no journal of relocated zones".to_owned(),
                    expected: "one that is empty, or was made for it, or is to be formatted anew".to_owned(),
                });
            }
        };
        // A process that ended leaves what the device has not made durable yet.
        if formatting != Formatting::Never {
            device.block.sync(&context())?;
        }
        let other = if found.zone == first { ZoneId(first.0 + 1) } else { first };
        let journal = Journal {
            device: device.clone(),
            zones: Arc::clone(zones),
            geometry: geometry.clone(),
            current: found.zone,
            generation: found.header.generation,
            records: found.end.records,
            is_clean: found.end.is_clean && opening.ends_at(&found),
            other_is_empty: opening.written_bytes(other) == 0,
            checkpoint_bytes: record::checkpoint_bytes(found.header.logical_zones),
        };
        Ok((journal, found.map))
    }

    fn other(&self) -> ZoneId {
        let first = self.geometry.zone_count - JOURNAL_ZONES;
        ZoneId(first + (1 - (self.current.0 - first)))
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), MediaError> {
        let alignment = self.device.block.capabilities().buffer_alignment_bytes.max(1) as usize;
        self.device.block.write_at(offset_bytes, &AlignedBuffer::copy_of(bytes, alignment), &context())
    }

    /// Empties the zone that is not in use.
    fn empty_other(&mut self) -> Result<(), MediaError> {
        if !self.other_is_empty {
            self.zones.reset(self.other(), &context())?;
            self.other_is_empty = true;
        }
        Ok(())
    }

    /// Goes over to the other zone, with this map.
    fn begin_generation(&mut self, map: &ZoneMap) -> Result<(), CommitError> {
        self.empty_other().map_err(|_| CommitError::NotDone)?;
        let other = self.other();
        let bytes = record::encode_checkpoint(&self.geometry, self.generation + 1, map);
        self.other_is_empty = false;
        if let Err(error) = self.write(self.geometry.start_bytes(other), &bytes) {
            // What of it arrived must not be found.
            return match self.empty_other() {
                Ok(()) => Err(CommitError::NotDone),
                Err(_) => Err(CommitError::Unknown(error)),
            };
        }
        self.device.block.sync(&context()).map_err(CommitError::Unknown)?;
        (self.current, self.generation, self.records, self.is_clean) = (other, self.generation + 1, 0, true);
        // Tried again when the next record is prepared.
        let _ = self.empty_other();
        Ok(())
    }

    /// Whether a record can be written.
    pub(super) fn is_prepared(&self) -> bool {
        self.other_is_empty && self.is_clean && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.records_end_bytes() + SLOT_BYTES as u64 <= self.geometry.zone_capacity_bytes
    }

    /// From the start of the zone in use.
    fn records_end_bytes(&self) -> u64 {
        self.checkpoint_bytes + self.records * SLOT_BYTES as u64
    }

    /// Makes ready for a record, with the map as it is: goes over to the other zone where this one has no more room, and empties the one that is not
    /// in use. So what does not work is known before anything is copied.
    pub(super) fn prepare(&mut self, map: &ZoneMap) -> Result<(), CommitError> {
        if !self.is_clean || !self.has_room() {
            self.begin_generation(map)?;
        }
        self.empty_other().map_err(|_| CommitError::NotDone)
    }

    /// Makes a relocation durable. `before` is the map before it. The journal must be [prepared](Journal::prepare), and all that was written to `to`
    /// durable.
    pub(super) fn commit(
        &mut self,
        before: &ZoneMap,
        (logical, from, to): (ZoneId, ZoneId, ZoneId),
    ) -> Result<(), CommitError> {
        if !self.is_prepared() {
            return Err(CommitError::NotDone);
        }
        let record = Record { generation: self.generation, number: self.records + 1, logical, from, to };
        let at = self.geometry.start_bytes(self.current) + self.records_end_bytes();
        if let Err(error) = self.write(at, &record.encode()) {
            // It may have arrived: a checkpoint of what was before says that it does not count.
            self.is_clean = false;
            return match self.begin_generation(before) {
                Ok(()) => Err(CommitError::NotDone),
                Err(_) => Err(CommitError::Unknown(error)),
            };
        }
        self.device.block.sync(&context()).map_err(CommitError::Unknown)?;
        self.records += 1;
        Ok(())
    }
}

impl Opening<'_> {
    /// Makes a journal. Zones of a device with data are all in their places.
    fn format(&self, spares: u32, is_blank: bool) -> Result<(Journal, ZoneMap), MediaError> {
        let map = match is_blank {
            true => ZoneMap::of_blank(self.geometry, spares),
            false => ZoneMap::new(self.geometry, spares),
        };
        let Some(map) = map else {
            return Err(MediaError::Unsuitable {
                device: self.name(),
                operation: Operation::Open,
                found: format!("a disk of {} zones that can be moved", self.geometry.sequential_zones()),
                expected: format!("one of {spares} spares, {JOURNAL_ZONES} for the journal, and more"),
            });
        };
        let current = ZoneId(self.geometry.zone_count - JOURNAL_ZONES);
        for zone in [current, ZoneId(current.0 + 1)] {
            if self.reported.get(zone.0 as usize).is_none_or(|zone| zone.condition != ZoneCondition::Empty) {
                self.zones.reset(zone, &context())?;
            }
        }
        let journal = Journal {
            device: self.device.clone(),
            zones: Arc::clone(self.zones),
            geometry: self.geometry.clone(),
            current,
            generation: 1,
            records: 0,
            is_clean: true,
            other_is_empty: true,
            checkpoint_bytes: record::checkpoint_bytes(map.len()),
        };
        let bytes = record::encode_checkpoint(self.geometry, 1, &map);
        journal.write(self.geometry.start_bytes(current), &bytes)?;
        self.device.block.sync(&context())?;
        Ok((journal, map))
    }
}
