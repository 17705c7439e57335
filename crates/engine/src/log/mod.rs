//! Logs: records appended in order, for the write-ahead log and the manifest.
//!
//! A log is a header and then frames, one after the other. All integers are little-endian.
//!
//! Header, 64 bytes, durable before the first frame is written:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic, `VARVELOG` |
//! | 8 | 4 | version, 2 |
//! | 12 | 1 | purpose (1 write-ahead log, 2 manifest) |
//! | 13 | 3 | zero |
//! | 16 | 8 | number of the log |
//! | 24 | 8 | salt: any number, not known to those who write records |
//! | 32 | 8 | number of the log before this one, 0 when there is none |
//! | 40 | 8 | bytes of that log that were synced when this one was created |
//! | 48 | 8 | id of the database: any number, drawn when the database was made |
//! | 56 | 4 | zero |
//! | 60 | 4 | crc32c of bytes 0-59 |
//!
//! Frame:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | checksum: the crc32c of the check, continued over bytes 10 to the end |
//! | 4 | 3 | payload length, at most 256 KiB |
//! | 7 | 1 | kind (1 whole, 2 first, 3 middle, 4 last, 5 seal, 6 mark), plus 128 when it has a mark |
//! | 8 | 2 | check: the low half of a crc32c of salt, number, purpose, offset of the frame, bytes 4-7 |
//! | 10 | 8 | mark: the log was synced up to this offset when the frame was written; only if said |
//! | 10 or 18 | n | payload |
//!
//! A record is one whole frame, or a first, any number of middle and a last one. A seal and a mark
//! have a mark and no payload and stand between records; nothing follows a seal. After the last
//! frame come the end of the file or zeros.
//!
//! **A torn tail is told from damage.** The checksum holds the salt and the place, so neither stale
//! bytes, nor zeros, nor a user's value that imitates a frame are ever a frame. A crash may keep,
//! lose or tear any sectors written since the last sync, in any order, so what follows the last
//! sync may be anything, sound frames behind unsound ones included. What precedes a sync may not.
//! The first frame after a sync carries a mark. When a frame is unsound, the reader looks through
//! the rest of the file for frames with a mark: one that says the unsound frame was synced proves
//! damage, which is an error. Without that proof the log ends before the unsound record. Beyond the
//! last mark, only [`LogReader::expect_synced`] can tell: the header of the next log says how far
//! this one was synced. A frame that is only a mark, or a seal when the log is closed, covers what
//! was synced without waiting for the next record.

mod direct;
mod frame;
mod gate;
mod reader;
#[cfg(test)]
mod tests;
mod throughput;
mod write_behind;
mod writer;

use crate::checksum;
use crate::encoding::other_version_advice;
use crate::error::Error;
use crate::memory_file::MemoryFile;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use varve_store::{IoClass, IoContext};

pub(crate) use gate::{ExclusiveTurn, LogGate};
pub(crate) use reader::LogReader;
pub(crate) use throughput::Throughput;
pub(crate) use write_behind::LogBacklog;
pub(crate) use writer::LogWriter;

/// Bytes of a log's header.
pub(crate) const HEADER_BYTES: usize = 64;

pub(crate) const MAGIC: &[u8; 8] = b"VARVELOG";
const VERSION: u32 = 2;

/// What a log's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Batches not yet in tables.
    WriteAhead = 1,
    /// Version edits.
    Manifest = 2,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::WriteAhead => "write-ahead log",
            Purpose::Manifest => "manifest",
        }
    }

    fn context(self) -> IoContext {
        IoContext::of(match self {
            Purpose::WriteAhead => IoClass::Log,
            Purpose::Manifest => IoClass::Metadata,
        })
    }
}

/// How far the log before this one was synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreviousLog {
    /// Its number, not 0.
    pub(crate) number: u64,
    /// Bytes from its start that are durable; see [`LogWriter::synced_bytes`].
    pub(crate) synced_bytes: u64,
}

/// The header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) purpose: Purpose,
    pub(crate) number: u64,
    /// Makes frames of this log unlike those of any other; from the env's randomness.
    pub(crate) salt: u64,
    /// Id of the database.
    pub(crate) database: u64,
    pub(crate) previous: Option<PreviousLog>,
}

/// What is wrong with a header.
enum HeaderFault {
    /// The bytes are not a header with a sound checksum.
    Unsound { expected: String, found: String },
    /// Made by another version, or another log. Reported as it is.
    Foreign(Error),
}

impl LogHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = self.purpose as u8;
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        if let Some(previous) = self.previous {
            bytes[32..40].copy_from_slice(&previous.number.to_le_bytes());
            bytes[40..48].copy_from_slice(&previous.synced_bytes.to_le_bytes());
        }
        bytes[48..56].copy_from_slice(&self.database.to_le_bytes());
        let sum = checksum::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES], file: &str, purpose: Purpose, number: u64) -> Result<Self, HeaderFault> {
        let foreign = |offset_bytes: u64, expected: String, found: String, advice: &str| {
            Err(HeaderFault::Foreign(Error::Foreign {
                file: file.to_string(),
                offset_bytes,
                expected,
                found,
                advice: advice.to_string(),
            }))
        };
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let checksum = checksum::crc32c(&bytes[..60]);
        if u32_at(60) != checksum {
            return Err(HeaderFault::Unsound {
                expected: format!("checksum {checksum:#010x} of the header"),
                found: format!("{:#010x}", u32_at(60)),
            });
        }
        if &bytes[..8] != MAGIC {
            let found = format!("'{}'", bytes[..8].escape_ascii());
            return foreign(0, "the magic 'VARVELOG'".to_string(), found, "it is not a log of this kind of database");
        }
        if u32_at(8) != VERSION {
            let found = format!("version {}", u32_at(8));
            return foreign(8, format!("version {VERSION}"), found, other_version_advice(u32_at(8) > VERSION));
        }
        if bytes[13..16].iter().chain(&bytes[56..60]).any(|&byte| byte != 0) {
            let expected = "zeros in reserved bytes".to_string();
            return foreign(13, expected, "other bytes".to_string(), other_version_advice(true));
        }
        let misplaced =
            |expected: String, found: String| Err(HeaderFault::Foreign(misplaced(file, purpose, expected, found)));
        if bytes[12] != purpose as u8 {
            return misplaced(format!("purpose {}", purpose as u8), format!("purpose {}", bytes[12]));
        }
        if u64_at(16) != number {
            return misplaced(format!("number {number}"), format!("number {}", u64_at(16)));
        }
        let previous = PreviousLog { number: u64_at(32), synced_bytes: u64_at(40) };
        let previous = Some(previous).filter(|log| log.number != 0);
        Ok(LogHeader { purpose, number, salt: u64_at(24), database: u64_at(48), previous })
    }
}

/// The error for a sound log under a name that is another one's.
fn misplaced(file: &str, purpose: Purpose, expected: String, found: String) -> Error {
    Error::Misplaced { file: file.to_string(), structure: purpose.name().to_string(), expected, found }
}

/// What the logs of a database did. Counters only grow.
#[derive(Debug, Default)]
pub(crate) struct LogCounters {
    /// Records appended.
    pub(crate) records: AtomicU64,
    /// Bytes of records, without headers.
    pub(crate) record_bytes: AtomicU64,
    /// Bytes appended to files, everything included.
    pub(crate) file_bytes: AtomicU64,
    /// Syncs.
    pub(crate) syncs: AtomicU64,
}

/// For fuzzing: reads `bytes` as a log, then writes a log as they say, damages it as they say, and
/// makes sure that no record comes back that was not written.
pub(crate) fn fuzz(bytes: &[u8]) {
    fn read(file: &MemoryFile, mut check: impl FnMut(usize, &[u8])) {
        let Ok(mut reader) = LogReader::open(file.reader(), "fuzzed", Purpose::WriteAhead, 1) else { return };
        let mut count = 0;
        while let Ok(Some(record)) = reader.next() {
            check(count, record.data);
            count += 1;
        }
    }
    read(&MemoryFile::of(bytes.to_vec()), |_, _| {});

    let header = LogHeader { purpose: Purpose::WriteAhead, number: 1, salt: 5, database: 3, previous: None };
    let file = MemoryFile::default();
    let Ok(mut writer) = LogWriter::create(file.writer(), &header, Arc::default()) else { return };
    let (instructions, damage) = bytes.split_at(bytes.len() / 2);
    let mut records: Vec<&[u8]> = Vec::new();
    for chunk in instructions.chunk_by(|a, _| a % 16 != 0) {
        let Some(&first) = chunk.first() else { continue };
        if writer.append(&[chunk]).is_err() {
            return;
        }
        records.push(chunk);
        let _ = match first / 16 % 4 {
            0 => writer.sync(),
            1 => writer.sync().and_then(|()| writer.mark()),
            _ => Ok(()),
        };
    }
    let mut image = file.bytes();
    for step in damage.chunks_exact(3) {
        let position = (usize::from(step[0]) << 8 | usize::from(step[1])) % image.len();
        image[position] ^= step[2];
    }
    let flipped = image != file.bytes();
    let mut found = 0;
    read(&MemoryFile::of(image), |index, data| {
        found = index + 1;
        assert_eq!(records.get(index), Some(&data), "a record that was not written came back");
    });
    assert!(flipped || found == records.len(), "a sound log lost a record");
}
