//! The log: commits of the present generation, unit by unit.
//!
//! A unit is a physical sector. A commit is a run of units; its payload is cut into *parts*, one per
//! unit, all but the last full, and every part is there twice. Little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | crc32c of everything behind it in the unit |
//! | 4 | 4 | magic `VLOG` |
//! | 8 | 8 | store id |
//! | 16 | 8 | generation |
//! | 24 | 8 | sequence: number of the commit in its generation, from 0 |
//! | 32 | 4 | index of the unit in the commit, from 0 |
//! | 36 | 4 | units of the commit, at most 1,024 |
//! | 40 | 4 | parts of the commit |
//! | 44 | 2 | bytes of payload in this unit |
//! | 46 | 2 | 1 when the commit ends with two marks, else 0 |
//! | 48 | unit - 48 | payload, then zeros |
//!
//! Of *n* parts, units 0 to *n*-1 hold the parts and *n* to 2*n*-1 hold them again. Marks are the last two
//! units, without payload, written after everything before them was made durable. What lies between is
//! padding.
//!
//! The first commit of a generation is at the start of the region, each next one directly behind. A
//! commit is there when every part is, in one place or the other, and a mark if it ends with marks. So one damaged
//! unit changes nothing, whichever it is.
//!
//! *Where the log ends, and who says so.* The log ends at the first commit that is not there, and a unit says so: one
//! that this commit would have, that can be read, and that is provably not of it (zeros, or of an older generation or
//! another store). A commit is acknowledged when all its units are durable, so that one was torn by a crash or failed,
//! and never acknowledged; and none behind it was, for each begins when the one before it is durable. Every commit has
//! two units at least: where its shape is not known, one of the first two must say it.
//!
//! A unit is one of three things to a reader: provably not of the commit; damaged, which a write that failed leaves as
//! well, when it tore a unit, so alone it speaks neither for an end nor against one; or it cannot be read. Where a
//! commit is not there, nothing proves that it never was, and one of its units cannot be read, that is an error, and
//! nothing is written: the next reader may read it. Units behind the end that cannot be read are nobody's. When a later
//! commit is found behind the end, more is damaged than this can bear, and that is an error too.

use super::place::Place;
use super::{Superblock, TRANSFER_BYTES, corruption, unreadable};
use crate::error::StoreError;
use crate::wire::Reader;
use std::collections::BTreeSet;
use std::ops::Range;
use varve_media::{AlignedBuffer, MediaError};

const MAGIC: [u8; 4] = *b"VLOG";
pub(super) const HEADER_BYTES: usize = 48;
/// Units one commit may have: bounds what a reader looks at and holds.
pub(super) const COMMIT_UNITS_MAX: u64 = 1024;
/// Units every commit has: one part, twice.
const COMMIT_UNITS_MIN: u64 = 2;

/// How many units a commit has, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitShape {
    pub(super) parts: u64,
    pub(super) units: u64,
    pub(super) marked: bool,
}

/// The shape of a commit of so much payload, padded to `units_min`.
pub(super) fn shape(payload_bytes: usize, unit_bytes: u32, marked: bool, units_min: u64) -> CommitShape {
    let parts = (payload_bytes as u64).div_ceil(u64::from(unit_bytes) - HEADER_BYTES as u64).max(1);
    CommitShape { parts, units: (2 * parts + 2 * u64::from(marked)).max(units_min), marked }
}

/// Fills `buffer`, the whole units of `shape`, with one commit.
pub(super) fn encode(buffer: &mut [u8], shape: CommitShape, superblock: &Superblock, sequence: u64, payload: &[u8]) {
    let unit_bytes = superblock.regions.unit_bytes as usize;
    let part_bytes = unit_bytes - HEADER_BYTES;
    for (index, unit) in (0..shape.units).zip(buffer.chunks_exact_mut(unit_bytes)) {
        let start = (index % shape.parts) as usize * part_bytes;
        let part = if index < 2 * shape.parts { &payload[start..payload.len().min(start + part_bytes)] } else { &[] };
        unit[4..8].copy_from_slice(&MAGIC);
        unit[8..16].copy_from_slice(&superblock.store_id.to_le_bytes());
        unit[16..24].copy_from_slice(&superblock.generation.to_le_bytes());
        unit[24..32].copy_from_slice(&sequence.to_le_bytes());
        unit[32..36].copy_from_slice(&(index as u32).to_le_bytes());
        unit[36..40].copy_from_slice(&(shape.units as u32).to_le_bytes());
        unit[40..44].copy_from_slice(&(shape.parts as u32).to_le_bytes());
        unit[44..46].copy_from_slice(&(part.len() as u16).to_le_bytes());
        unit[46..48].copy_from_slice(&u16::from(shape.marked).to_le_bytes());
        unit[HEADER_BYTES..HEADER_BYTES + part.len()].copy_from_slice(part);
        unit[HEADER_BYTES + part.len()..].fill(0);
        let checksum = crc32c::crc32c(&unit[4..]);
        unit[..4].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// What a unit is to the generation that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    /// Provably not of this generation: never written, of an older generation, or of another store.
    Absent,
    /// Neither that nor a unit of this generation: damaged, or torn by a write that failed.
    Damaged,
    /// It cannot be read.
    Unreadable,
    Present {
        sequence: u64,
        index: u64,
        shape: CommitShape,
        payload: &'a [u8],
    },
    /// Of a later generation than the superblocks know.
    Newer(u64),
}

/// Judges the bytes of one unit; anything may come.
pub(super) fn classify(unit: &[u8], store_id: u64, generation: u64) -> Unit<'_> {
    if varve_media::is_zero(unit) {
        return Unit::Absent;
    }
    let mut reader = Reader::new(unit);
    let mut parse = || {
        let (checksum, magic) = (reader.u32()?, reader.array()?);
        if magic != MAGIC || checksum != crc32c::crc32c(&unit[4..]) {
            return None;
        }
        let (found_store, found_generation) = (reader.u64()?, reader.u64()?);
        if found_store != store_id || found_generation < generation {
            return Some(Unit::Absent);
        }
        let (sequence, index, units) = (reader.u64()?, u64::from(reader.u32()?), u64::from(reader.u32()?));
        let (parts, payload_bytes, marked) = (u64::from(reader.u32()?), reader.u16()?, reader.u16()?);
        let payload = reader.bytes(usize::from(payload_bytes))?;
        let shape = CommitShape { parts, units, marked: marked == 1 };
        let sound = index < units
            && units <= COMMIT_UNITS_MAX
            && parts >= 1
            && 2 * parts + 2 * u64::from(marked) <= units
            && marked <= 1;
        if !sound {
            return None;
        }
        if found_generation > generation {
            return Some(Unit::Newer(found_generation));
        }
        Some(Unit::Present { sequence, index, shape, payload })
    };
    parse().unwrap_or(Unit::Damaged)
}

/// What a log holds.
pub(super) struct LogTail {
    pub(super) commits: Vec<Vec<u8>>,
    /// Unit behind the last commit.
    pub(super) position_units: u64,
}

/// Reads a log in large pieces.
pub(super) struct LogReader<'a> {
    place: &'a Place,
    superblock: &'a Superblock,
    log_units: u64,
    /// Piece of the log in memory, and the units it has.
    piece: AlignedBuffer,
    piece_units: Range<u64>,
    /// Units of the piece that cannot be read, and what the device says.
    unreadable: Vec<(u64, MediaError)>,
    /// Damaged units of which the device has no other answer.
    damaged: BTreeSet<u64>,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(place: &'a Place, superblock: &'a Superblock) -> Self {
        let unit = u64::from(superblock.regions.unit_bytes);
        let log_units = superblock.regions.log.length_bytes / unit;
        let piece_bytes = (log_units * unit).min(TRANSFER_BYTES as u64) as usize;
        let (piece, unreadable) = (place.buffer(piece_bytes), Vec::new());
        LogReader { place, superblock, log_units, piece, piece_units: 0..0, unreadable, damaged: BTreeSet::new() }
    }

    fn offset(&self, unit: u64) -> u64 {
        self.superblock.regions.log.offset_bytes + unit * u64::from(self.superblock.regions.unit_bytes)
    }

    /// On the device, for messages.
    fn device_offset(&self, unit: u64) -> u64 {
        self.place.device_offset(self.offset(unit))
    }

    fn classified(&mut self, number: u64) -> Unit<'_> {
        let unit = self.superblock.regions.unit_bytes as usize;
        if !self.piece_units.contains(&number) {
            let units = (self.log_units - number).min((self.piece.len() / unit) as u64);
            let offset = self.offset(number);
            let piece = &mut self.piece[..units as usize * unit];
            let place = self.place;
            self.unreadable.clear();
            if place.read(offset, piece).is_err() {
                // One by one: those beside them can be read.
                for (index, bytes) in (0..units).zip(piece.chunks_exact_mut(unit)) {
                    let read = place.read(offset + index * unit as u64, bytes);
                    self.unreadable.extend(read.err().map(|error| (number + index, error)));
                }
            }
            self.piece_units = number..number + units;
        }
        if self.why_unreadable(number).is_some() {
            return Unit::Unreadable;
        }
        let start = (number - self.piece_units.start) as usize * unit;
        let (store_id, generation) = (self.superblock.store_id, self.superblock.generation);
        let is_damaged = |bytes: &[u8]| matches!(classify(bytes, store_id, generation), Unit::Damaged);
        if is_damaged(&self.piece[start..start + unit]) && !self.damaged.contains(&number) {
            let (place, offset) = (self.place, self.offset(number));
            let bytes = &mut self.piece[start..start + unit];
            if !place.find_sound(offset, bytes, |bytes| {
                matches!(classify(bytes, store_id, generation), Unit::Present { .. })
            }) {
                self.damaged.insert(number);
            }
        }
        classify(&self.piece[start..start + unit], store_id, generation)
    }

    /// What the device says of a unit in memory that cannot be read.
    fn why_unreadable(&self, number: u64) -> Option<&MediaError> {
        let place = self.unreadable.binary_search_by_key(&number, |(unreadable, _)| *unreadable).ok()?;
        Some(&self.unreadable[place].1)
    }

    fn damaged(&self, unit: u64, expected: impl Into<String>, found: impl Into<String>) -> StoreError {
        corruption(&self.place.label, "metadata log", self.device_offset(unit), expected, found)
    }

    /// Every commit; an error when the log is damaged rather than torn, or when where it ends cannot be read.
    pub(super) fn read(mut self) -> Result<LogTail, StoreError> {
        let mut commits: Vec<Vec<u8>> = Vec::new();
        let mut position = 0;
        while let Some((payload, units)) = self.commit(position, commits.len() as u64)? {
            commits.push(payload);
            position += units;
        }
        self.check_behind(position, commits.len() as u64)?;
        Ok(LogTail { commits, position_units: position })
    }

    /// The shape of commit `sequence` at `position`, from the first of its units that can be read.
    fn shape_at(&mut self, position: u64, sequence: u64) -> Option<CommitShape> {
        let log_units = self.log_units;
        let end = log_units.min(position.saturating_add(COMMIT_UNITS_MAX));
        (position..end).find_map(|number| match self.classified(number) {
            Unit::Present { sequence: found, index, shape, .. }
                if found == sequence
                    && number.checked_sub(index) == Some(position)
                    && position + shape.units <= log_units =>
            {
                Some(shape)
            }
            _ => None,
        })
    }

    /// The payload and the units of commit `sequence` at `position`; `None` when it was never acknowledged.
    fn commit(&mut self, position: u64, sequence: u64) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        let Some(expected) = self.shape_at(position, sequence) else {
            let first = position..position + COMMIT_UNITS_MIN;
            // Without space there is none.
            let outcome = if first.end > self.log_units { Ok(()) } else { self.check_absent(first, sequence) };
            return outcome.map(|()| None);
        };
        let mut parts: Vec<Option<Vec<u8>>> = vec![None; expected.parts as usize];
        let mut mark = !expected.marked;
        for number in 0..expected.units {
            if let Unit::Present { sequence: found, index, shape, payload } = self.classified(position + number)
                && (found, index, shape) == (sequence, number, expected)
            {
                if number < 2 * expected.parts {
                    parts[(number % expected.parts) as usize].get_or_insert_with(|| payload.to_vec());
                } else if number + 2 >= expected.units {
                    mark = true;
                }
            }
        }
        let payload: Option<Vec<Vec<u8>>> = parts.into_iter().collect();
        match payload.filter(|_| mark) {
            Some(parts) => Ok(Some((parts.concat(), expected.units))),
            None => self.check_absent(position..position + expected.units, sequence).map(|()| None),
        }
    }

    /// An error when it cannot be known whether a commit that is not there was acknowledged. `units` are some that it
    /// has.
    fn check_absent(&mut self, units: Range<u64>, sequence: u64) -> Result<(), StoreError> {
        let mut unknown = None;
        for number in units {
            match self.classified(number) {
                Unit::Absent => return Ok(()),
                Unit::Unreadable => unknown = unknown.or(self.why_unreadable(number).map(|why| (number, why.clone()))),
                _ => {}
            }
        }
        match unknown {
            None => Ok(()),
            Some((number, why)) => {
                let expected = format!("commit {sequence}");
                Err(unreadable(&self.place.label, "metadata log", self.device_offset(number), expected, why))
            }
        }
    }

    /// Behind the end only units of the torn commit may follow: a later commit there was acknowledged
    /// after this one, so what ends the log is damage.
    fn check_behind(&mut self, position: u64, sequence: u64) -> Result<(), StoreError> {
        let end = self.log_units.min(position.saturating_add(COMMIT_UNITS_MAX));
        for number in position..end {
            match self.classified(number) {
                Unit::Present { sequence: found, .. } if found != sequence => {
                    let found = format!("too little of it, and commit {found} behind it");
                    return Err(self.damaged(position, format!("commit {sequence}"), found));
                }
                Unit::Newer(generation) => {
                    let expected = format!("no generation after {}", self.superblock.generation);
                    return Err(self.damaged(number, expected, format!("generation {generation}")));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
