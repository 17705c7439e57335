//! The journal of a layer: its state as a checkpoint and the changes since, durable and found again.
//!
//! Two areas are used in turn. A *generation* begins with a checkpoint at the start of an area; changes follow. When the
//! area is full, a checkpoint of the next generation goes to the other one. Each record is durable before the next is
//! written.
//!
//! **Damage and torn ends.** A record is written as two copies in physical sectors of their own, in one request, and is
//! acknowledged when both are durable. So:
//!
//! - One damaged or unreadable place never costs a record: the other copy has it. The next record then begins a new
//!   generation, which heals it.
//! - A write that a power cut or the device cut short was not acknowledged. It counts if one copy is whole, else the
//!   records end before it; a torn checkpoint leaves the older generation in place.
//! - A record of which both copies are damaged, with a later record or a [seal](Journal::seal) behind it, is damage: an
//!   error, never an end. So is a place where both copies may lie that cannot be read.
//!
//! A layer keeps its own payloads: it gives them to [`Journal::begin`] and [`Journal::append`], and gets them back, from
//! the checkpoint on, when it is opened. Areas are regions of a device, or zones that are reset before they are used
//! again. Not thread-safe: one user at a time.

mod record;
mod scan;

pub(crate) use record::{Owner, begins_record};
use record::{Role, seal_for_fuzzing};
#[cfg(test)]
mod tests;

use record::{Header, copy_bytes};
use scan::{AreaBytes, Scanned};
use std::sync::Arc;
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Device, IoContext, MediaError, MediaErrorKind, SyncOrder, ZoneControl, ZoneId,
};

/// Bytes read at once when a journal is opened.
const READ_BYTES: u64 = 1 << 20;

/// Something that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) what: &'static str,
    /// On the journal's device.
    pub(crate) offset_bytes: u64,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// Why a journal cannot be opened.
#[derive(Clone, Debug)]
pub(crate) enum JournalError {
    Media(MediaError),
    Damaged(Flaw),
    OtherVersion { readable: u32, found: u32 },
}

impl From<MediaError> for JournalError {
    fn from(error: MediaError) -> Self {
        JournalError::Media(error)
    }
}

/// Why a checkpoint was not written.
#[derive(Clone, Debug)]
pub(crate) enum BeginError {
    /// The generation before it is what will be found.
    NotDone(MediaError),
    /// Either may be found.
    Unknown(MediaError),
}

impl BeginError {
    pub(crate) fn into_inner(self) -> MediaError {
        match self {
            BeginError::NotDone(error) | BeginError::Unknown(error) => error,
        }
    }
}

/// Two zones that are a journal's areas.
#[derive(Clone)]
pub(crate) struct AreaZones {
    pub(crate) control: Arc<dyn ZoneControl>,
    pub(crate) zones: [ZoneId; 2],
    /// Bytes at the start of each that may have been written.
    pub(crate) written_bytes: [u64; 2],
    /// The write pointer of each from its start, where it is known and the zone is in order.
    pub(crate) pointers: [Option<u64>; 2],
}

/// Where a journal lies.
#[derive(Clone)]
pub(crate) struct Areas {
    pub(crate) device: Device,
    pub(crate) order: Arc<SyncOrder>,
    /// Records are aligned to it: a multiple of the physical sector, at least 512.
    pub(crate) unit_bytes: u64,
    pub(crate) offsets: [u64; 2],
    /// Bytes of each, a multiple of the unit.
    pub(crate) area_bytes: u64,
    pub(crate) zones: Option<AreaZones>,
}

/// Minimum size of an area, in bytes, for a checkpoint, a number of changes with payloads of at most these sizes, and a seal.
pub(crate) fn area_bytes(checkpoint: u64, changes: u64, change: u64, unit_bytes: u64) -> u64 {
    let changes = changes.saturating_mul(copy_bytes(change, unit_bytes));
    copy_bytes(checkpoint, unit_bytes)
        .saturating_add(changes)
        .saturating_add(copy_bytes(0, unit_bytes))
        .saturating_mul(2)
}

/// The mark of a layer, for places outside its areas: a seal of generation 0, which no journal has, in both copies.
pub(crate) fn mark(owner: &Owner, unit_bytes: usize) -> Vec<u8> {
    record::encode(owner, Header { role: Role::Seal, generation: 0, place: 0 }, &[], unit_bytes)
}

/// A record that recovery read.
pub(crate) struct Replayed<'a> {
    pub(crate) is_checkpoint: bool,
    pub(crate) payload: &'a [u8],
    /// Where it lies on the device.
    pub(crate) offset_bytes: u64,
}

/// The journal of an open layer.
pub(crate) struct Journal {
    areas: Areas,
    owner: Owner,
    generation: u64,
    /// Where the next record goes, from the start of the area of this generation, and its place.
    next_bytes: u64,
    place: u32,
    /// The last record is a seal.
    is_sealed: bool,
    /// The next record must be a checkpoint: records are in doubt or damaged, or there are none.
    needs_checkpoint: bool,
    /// The area that is not in use has nothing in it, as far as that matters.
    other_is_empty: bool,
}

impl Areas {
    /// Reads whole units. Those that cannot be read are marked.
    fn read(&self, area: usize, context: &IoContext) -> Result<AreaBytes, MediaError> {
        let unit = self.unit_bytes;
        let written = self.zones.as_ref().map_or(self.area_bytes, |zones| zones.written_bytes[area]);
        let length = written.min(self.area_bytes).next_multiple_of(unit).min(self.area_bytes / unit * unit);
        let alignment = self.device.block.capabilities().buffer_alignment_bytes.max(1) as usize;
        let offset_bytes = self.offsets[area];
        let mut found = AreaBytes {
            offset_bytes,
            bytes: Vec::with_capacity(length as usize),
            unreadable: vec![false; (length / unit) as usize],
        };
        let mut at = 0;
        while at < length {
            let some = READ_BYTES.next_multiple_of(unit).min(length - at);
            let mut buffer = AlignedBuffer::new(some as usize, alignment);
            match self.device.block.read_at(offset_bytes + at, &mut buffer, context) {
                Err(error) if error.kind() == MediaErrorKind::Unreadable => {
                    for (number, piece) in buffer.chunks_mut(unit as usize).enumerate() {
                        let place = at + number as u64 * unit;
                        let mut one = AlignedBuffer::new(unit as usize, alignment);
                        match self.device.block.read_at(offset_bytes + place, &mut one, context) {
                            Err(error) if error.kind() == MediaErrorKind::Unreadable => {
                                piece.fill(0);
                                found.unreadable[(place / unit) as usize] = true;
                            }
                            result => {
                                result?;
                                piece.copy_from_slice(&one);
                            }
                        }
                    }
                }
                result => result?,
            }
            found.bytes.extend_from_slice(&buffer);
            at += some;
        }
        Ok(found)
    }
}

impl Journal {
    /// The journal of areas that have none: the first record is a checkpoint.
    pub(crate) fn blank(areas: Areas, owner: Owner) -> Journal {
        let other_is_empty = areas.zones.is_none();
        Journal {
            areas,
            owner,
            generation: 0,
            next_bytes: 0,
            place: 0,
            is_sealed: false,
            needs_checkpoint: true,
            other_is_empty,
        }
    }

    /// Reads what is there, and gives it to `apply`, from the checkpoint on. `None` where there is no journal. Reads both
    /// areas as far as they were written; writes nothing.
    ///
    /// # Errors
    /// The device's; damage, by the journal or by `apply`; another version.
    pub(crate) fn open(
        areas: Areas,
        owner: Owner,
        context: &IoContext,
        apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), Flaw>,
    ) -> Result<Option<Journal>, JournalError> {
        let unit = areas.unit_bytes as usize;
        let bytes = [areas.read(0, context)?, areas.read(1, context)?];
        let scanned = [0, 1].map(|area: usize| Scanned::of(&owner, &bytes[area], unit, area as u64));
        if let Some(version) = scanned.iter().find_map(|scanned| scanned.other_version) {
            return Err(JournalError::OtherVersion { readable: record::VERSION, found: version });
        }
        let current = usize::from(scanned[1].generation > scanned[0].generation);
        let (found, other) = (&scanned[current], &scanned[1 - current]);
        let unreadable = |offset_bytes: u64| {
            let device = areas.device.block.name().to_owned();
            JournalError::Media(MediaError::Unreadable { device, offset_bytes })
        };
        let Some(generation) = found.generation else {
            let Some(bad) = scanned.iter().find(|scanned| scanned.has_anything()) else { return Ok(None) };
            if let Some(offset_bytes) = scanned.iter().find_map(Scanned::first_unreadable) {
                return Err(unreadable(offset_bytes));
            }
            return Err(JournalError::Damaged(Flaw {
                what: "checkpoint",
                offset_bytes: areas.offsets[usize::from(!std::ptr::eq(bad, &scanned[0]))],
                expected: "one of two sound copies".to_owned(),
                found: "none".to_owned(),
            }));
        };
        let records = found.records.clone().map_err(JournalError::Damaged)?;
        let is_sealed = records.last().is_some_and(|last| last.role == Role::Seal);
        // A checkpoint of the next generation, or a change behind the last, may lie where nothing can be read.
        let hidden = if other.generation.is_none() { other.hidden() } else { None };
        if let Some(place) = hidden.or_else(|| found.hidden().filter(|_| !is_sealed)) {
            return Err(unreadable(place));
        }
        let area = &bytes[current];
        for listed in records.iter().filter(|listed| listed.role != Role::Seal) {
            let replayed = Replayed {
                is_checkpoint: listed.role == Role::Checkpoint,
                payload: &area.bytes[listed.payload.clone()],
                offset_bytes: area.offset_bytes + listed.at as u64,
            };
            apply(replayed).map_err(JournalError::Damaged)?;
        }
        let end = found.end as u64;
        let is_in_order =
            areas.zones.as_ref().is_none_or(|zones| zones.pointers[current].is_some_and(|pointer| pointer == end));
        let other_is_empty = areas.zones.as_ref().is_none_or(|zones| zones.written_bytes[1 - current] == 0);
        Ok(Some(Journal {
            owner,
            generation,
            next_bytes: end,
            place: records.len() as u32,
            is_sealed,
            needs_checkpoint: found.has_damage || !is_in_order,
            other_is_empty,
            areas,
        }))
    }

    /// Generation and number of records in it.
    pub(crate) fn position(&self) -> (u64, u32) {
        (self.generation, self.place)
    }

    /// True if a change of this size can be appended and space for a seal remains. If not, a checkpoint is due.
    pub(crate) fn has_room(&self, payload_bytes: u64) -> bool {
        let unit = self.areas.unit_bytes;
        let needed = 2 * (copy_bytes(payload_bytes, unit) + copy_bytes(0, unit));
        !self.needs_checkpoint && self.next_bytes + needed <= self.areas.area_bytes
    }

    /// True if a change of this size can be appended and the other area is ready for the next generation.
    pub(crate) fn is_prepared(&self, payload_bytes: u64) -> bool {
        self.has_room(payload_bytes) && self.other_is_empty
    }

    fn area(&self) -> usize {
        (self.generation % 2) as usize
    }

    /// Writes both copies of a record and makes them durable.
    fn write(&mut self, role: Role, payload: &[u8], context: &IoContext) -> Result<(), WriteError> {
        let header = Header { role, generation: self.generation, place: self.place };
        let bytes = record::encode(&self.owner, header, payload, self.areas.unit_bytes as usize);
        let alignment = self.areas.device.block.capabilities().buffer_alignment_bytes.max(1) as usize;
        let at = self.areas.offsets[self.area()] + self.next_bytes;
        let written = self.areas.device.block.write_at(at, &AlignedBuffer::copy_of(&bytes, alignment), context);
        written.map_err(WriteError::Write)?;
        self.areas.order.sync(context).map_err(WriteError::Sync)?;
        self.next_bytes += bytes.len() as u64;
        self.place += 1;
        self.is_sealed = role == Role::Seal;
        Ok(())
    }

    /// Appends a change, and makes it durable. [`has_room`](Journal::has_room) says whether it may.
    ///
    /// # Errors
    /// The device's. The change may be found later; nothing but a checkpoint may follow.
    pub(crate) fn append(&mut self, payload: &[u8], context: &IoContext) -> Result<(), MediaError> {
        debug_assert!(self.has_room(payload.len() as u64));
        self.write(Role::Change, payload, context).map_err(|error| {
            self.needs_checkpoint = true;
            error.into_inner()
        })
    }

    /// Begins a generation in the other area with a checkpoint of everything.
    ///
    /// # Errors
    /// [`BeginError::NotDone`] only where areas are zones: the zone was reset, so nothing of it is found.
    pub(crate) fn begin(&mut self, payload: &[u8], context: &IoContext) -> Result<(), BeginError> {
        if let Some(failure) = self.areas.order.failure() {
            return Err(BeginError::Unknown(failure.clone()));
        }
        let before = (self.generation, self.next_bytes, self.place, self.needs_checkpoint);
        self.empty_other(context).map_err(BeginError::NotDone)?;
        self.other_is_empty = self.areas.zones.is_none();
        (self.generation, self.next_bytes, self.place) = (self.generation + 1, 0, 0);
        if let Err(error) = self.write(Role::Checkpoint, payload, context) {
            (self.generation, self.next_bytes, self.place, self.needs_checkpoint) = before;
            return Err(match error {
                // What of it arrived must not be found.
                WriteError::Write(error) if self.areas.zones.is_some() => match self.empty_other(context) {
                    Ok(()) => BeginError::NotDone(error),
                    Err(_) => BeginError::Unknown(error),
                },
                error => BeginError::Unknown(error.into_inner()),
            });
        }
        self.needs_checkpoint = false;
        // Of zones the older one is emptied, so that it is never found in place of this one. Tried again before a change.
        let _ = self.empty_other(context);
        Ok(())
    }

    /// Resets the zone that is not in use, if it is not empty.
    pub(crate) fn empty_other(&mut self, context: &IoContext) -> Result<(), MediaError> {
        if let (Some(zones), false) = (&self.areas.zones, self.other_is_empty) {
            zones.control.reset(zones.zones[1 - self.area()], context)?;
            self.other_is_empty = true;
        }
        Ok(())
    }

    /// Writes a seal behind the last record, if that is none: from then on damage to both copies of it is noticed.
    ///
    /// # Errors
    /// The device's. What was recorded before is there all the same.
    pub(crate) fn seal(&mut self, context: &IoContext) -> Result<(), MediaError> {
        let needed = 2 * copy_bytes(0, self.areas.unit_bytes);
        if self.is_sealed || self.needs_checkpoint || self.next_bytes + needed > self.areas.area_bytes {
            return Ok(());
        }
        self.write(Role::Seal, &[], context).map_err(|error| {
            self.needs_checkpoint = true;
            error.into_inner()
        })
    }
}

enum WriteError {
    Write(MediaError),
    Sync(MediaError),
}

impl WriteError {
    fn into_inner(self) -> MediaError {
        match self {
            WriteError::Write(error) | WriteError::Sync(error) => error,
        }
    }
}

/// Scans any bytes as the first area of a journal, as they are and sealed; what is listed must lie in them.
pub(crate) fn fuzz(owner: &Owner, data: &[u8]) {
    let unit = 512;
    let mut sealed = data.to_vec();
    seal_for_fuzzing(owner, &mut sealed, unit);
    for bytes in [data.to_vec(), sealed] {
        let bytes = bytes[..bytes.len() / unit * unit].to_vec();
        let unreadable = vec![false; bytes.len() / unit];
        let area = AreaBytes { offset_bytes: 0, bytes, unreadable };
        let scanned = Scanned::of(owner, &area, unit, 0);
        if let Ok(records) = &scanned.records {
            assert!(records.iter().all(|listed| area.bytes.get(listed.payload.clone()).is_some()));
            assert_eq!(records.is_empty(), scanned.generation.is_none());
        }
    }
}
