//! The log: commits of the present generation, unit by unit.
//!
//! A unit is a physical sector. Every unit of a commit has this header and a part of its payload;
//! all but the last are full. Little-endian.
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
//! | 40 | 4 | bytes of payload in this unit |
//! | 44 | 4 | zero |
//! | 48 | unit - 48 | payload, then zeros |
//!
//! The first commit of a generation is at the start of the region, each next one directly behind.
//! The log ends at the first commit that is not whole. Its missing units are zeros or belong to an
//! older generation. A unit that is neither is damaged, and so is a log that goes on behind its end.

use super::{Superblock, TRANSFER_BYTES, buffer, corruption, read};
use crate::error::StoreError;
use crate::wire::Reader;
use varve_media::{AlignedBuffer, Device};

const MAGIC: [u8; 4] = *b"VLOG";
pub(super) const HEADER_BYTES: usize = 48;
/// Units one commit may have: bounds what a reader looks at and holds.
pub(super) const COMMIT_UNITS_MAX: u64 = 1024;

/// Units a payload needs.
pub(crate) fn commit_units(payload_bytes: usize, unit_bytes: u32) -> u64 {
    (payload_bytes as u64).div_ceil(u64::from(unit_bytes) - HEADER_BYTES as u64).max(1)
}

/// Fills `buffer`, whole units of it, with one commit.
pub(super) fn encode(
    buffer: &mut [u8],
    store_id: u64,
    generation: u64,
    sequence: u64,
    unit_bytes: u32,
    payload: &[u8],
) {
    let count = buffer.len() / unit_bytes as usize;
    let mut rest = payload;
    for (index, unit) in buffer.chunks_exact_mut(unit_bytes as usize).enumerate() {
        let (part, tail) = rest.split_at(rest.len().min(unit.len() - HEADER_BYTES));
        rest = tail;
        unit[4..8].copy_from_slice(&MAGIC);
        unit[8..16].copy_from_slice(&store_id.to_le_bytes());
        unit[16..24].copy_from_slice(&generation.to_le_bytes());
        unit[24..32].copy_from_slice(&sequence.to_le_bytes());
        unit[32..36].copy_from_slice(&(index as u32).to_le_bytes());
        unit[36..40].copy_from_slice(&(count as u32).to_le_bytes());
        unit[40..44].copy_from_slice(&(part.len() as u32).to_le_bytes());
        unit[44..48].fill(0);
        unit[HEADER_BYTES..HEADER_BYTES + part.len()].copy_from_slice(part);
        unit[HEADER_BYTES + part.len()..].fill(0);
        let checksum = crc32c::crc32c(&unit[4..]);
        unit[..4].copy_from_slice(&checksum.to_le_bytes());
    }
    assert!(rest.is_empty(), "the units hold the payload");
}

/// What a unit is to the generation that is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unit<'a> {
    /// Never written, or of an older generation or another store.
    Old,
    Present {
        sequence: u64,
        index: u32,
        count: u32,
        payload: &'a [u8],
    },
    /// Of a later generation than the superblocks know.
    Newer(u64),
    Damaged(&'static str),
}

/// Judges the bytes of one unit; anything may come.
pub(super) fn classify(unit: &[u8], store_id: u64, generation: u64) -> Unit<'_> {
    if unit.iter().all(|&byte| byte == 0) {
        return Unit::Old;
    }
    let mut reader = Reader::new(unit);
    let mut parse = || {
        let checksum = reader.u32()?;
        if checksum != crc32c::crc32c(&unit[4..]) {
            return Some(Unit::Damaged("a wrong crc32c"));
        }
        if reader.array()? != MAGIC {
            return Some(Unit::Damaged("a wrong magic"));
        }
        let (found_store, found_generation) = (reader.u64()?, reader.u64()?);
        let (sequence, index, count, payload_bytes) = (reader.u64()?, reader.u32()?, reader.u32()?, reader.u32()?);
        if reader.u32()? != 0 {
            return Some(Unit::Damaged("something in a reserved field"));
        }
        let Some(payload) = reader.bytes(payload_bytes as usize) else {
            return Some(Unit::Damaged("a payload longer than the unit"));
        };
        if index >= count || u64::from(count) > COMMIT_UNITS_MAX {
            return Some(Unit::Damaged("an index outside the commit"));
        }
        Some(if found_store != store_id || found_generation < generation {
            Unit::Old
        } else if found_generation > generation {
            Unit::Newer(found_generation)
        } else {
            Unit::Present { sequence, index, count, payload }
        })
    };
    parse().unwrap_or(Unit::Damaged("fewer bytes than a header"))
}

/// What a log holds.
pub(super) struct LogTail {
    pub(super) commits: Vec<Vec<u8>>,
    /// Unit behind the last commit.
    pub(super) position_units: u64,
}

/// Reads a log in large pieces.
pub(super) struct LogReader<'a> {
    device: &'a Device,
    label: &'a str,
    superblock: &'a Superblock,
    log_units: u64,
    /// Piece of the log in memory, and the unit it starts at.
    piece: AlignedBuffer,
    piece_units: std::ops::Range<u64>,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(device: &'a Device, label: &'a str, superblock: &'a Superblock) -> Self {
        let unit = u64::from(superblock.regions.unit_bytes);
        let log_units = superblock.regions.log.length_bytes / unit;
        let piece_bytes = (log_units * unit).min(TRANSFER_BYTES as u64) as usize;
        LogReader { device, label, superblock, log_units, piece: buffer(device, piece_bytes), piece_units: 0..0 }
    }

    fn offset(&self, unit: u64) -> u64 {
        self.superblock.regions.log.offset_bytes + unit * u64::from(self.superblock.regions.unit_bytes)
    }

    /// One unit, or `None` when the medium cannot read it.
    fn unit(&mut self, number: u64) -> Option<&[u8]> {
        let unit = self.superblock.regions.unit_bytes as usize;
        if !self.piece_units.contains(&number) {
            let units = (self.log_units - number).min((self.piece.len() / unit) as u64);
            let offset = self.offset(number);
            let whole = read(self.device, self.label, offset, &mut self.piece[..units as usize * unit]);
            self.piece_units = number..number + units;
            if whole.is_err() {
                // Only the unit that cannot be read is lost.
                self.piece_units = number..number;
                read(self.device, self.label, offset, &mut self.piece[..unit]).ok()?;
                self.piece_units = number..number + 1;
            }
        }
        let start = (number - self.piece_units.start) as usize * unit;
        self.piece.get(start..start + unit)
    }

    fn classified(&mut self, number: u64) -> Unit<'_> {
        let (store_id, generation) = (self.superblock.store_id, self.superblock.generation);
        match self.unit(number) {
            Some(bytes) => classify(bytes, store_id, generation),
            None => Unit::Damaged("an unreadable sector"),
        }
    }

    fn damaged(&self, unit: u64, expected: impl Into<String>, found: impl Into<String>) -> StoreError {
        corruption(self.label, "metadata log", self.offset(unit), expected, found)
    }

    /// Every whole commit; an error when the log is damaged rather than torn.
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

    /// The commit `sequence` that starts at `position`; `None` when the log ends there.
    fn commit(&mut self, position: u64, sequence: u64) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        if position >= self.log_units {
            return Ok(None);
        }
        let log_units = self.log_units;
        let (mut payload, units) = match self.classified(position) {
            Unit::Old => return Ok(None),
            Unit::Present { sequence: found, index: 0, count, payload }
                if found == sequence && u64::from(count) <= log_units - position =>
            {
                (payload.to_vec(), u64::from(count))
            }
            other => {
                let found = describe(&other);
                return Err(self.damaged(position, format!("commit {sequence}"), found));
            }
        };
        for number in 1..units {
            match self.classified(position + number) {
                Unit::Present { sequence: found, index, count, payload: part }
                    if found == sequence && u64::from(index) == number && u64::from(count) == units =>
                {
                    payload.extend_from_slice(part);
                }
                // Torn: it was never acknowledged.
                Unit::Old => return Ok(None),
                other => {
                    let found = describe(&other);
                    return Err(self.damaged(position + number, format!("unit {number} of commit {sequence}"), found));
                }
            }
        }
        Ok(Some((payload, units)))
    }

    /// Behind the end only units of the torn commit may follow: a later commit there was acknowledged
    /// after this one, so what ends the log is damage.
    fn check_behind(&mut self, position: u64, sequence: u64) -> Result<(), StoreError> {
        let end = self.log_units.min(position.saturating_add(COMMIT_UNITS_MAX));
        for number in position..end {
            match self.classified(number) {
                Unit::Present { sequence: found, .. } if found != sequence => {
                    let found = format!("nothing, and commit {found} behind it");
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

fn describe(unit: &Unit<'_>) -> String {
    match unit {
        Unit::Old => "an old unit".to_owned(),
        Unit::Present { sequence, index, count, .. } => format!("unit {index} of {count} of commit {sequence}"),
        Unit::Newer(generation) => format!("a unit of generation {generation}, newer than the superblocks"),
        Unit::Damaged(what) => (*what).to_owned(),
    }
}
