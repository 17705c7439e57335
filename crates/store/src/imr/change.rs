//! The S2TMap on the medium: changes, as bytes of a commit; and the whole of it, as bytes of a
//! checkpoint.
//!
//! A commit is a sequence of changes, each a tag and its fields, little-endian. A *name* is a byte
//! count (1 to 255) and as many bytes of UTF-8; a *track* is its number (4 bytes).
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | create | file (8), flags (1), name; replaces a file of that name |
//! | 2 | tracks | file (8), tracks it keeps (4), count (4), further tracks, bytes of the file (8) |
//! | 3 | rename | name from, name to |
//! | 4 | remove | name |
//! | 5 | done | place of the backup region (1), sequence (8): intents up to it do not count any more |
//!
//! Flags: bit 0, the file lies in the store of small files under its number. Others are zero.
//!
//! A checkpoint:
//!
//! | size | field |
//! |---|---|
//! | 8 | lowest number a file created later may have |
//! | 1 | places of the backup region |
//! | 8 each | per place: the sequence that is done |
//! | 8 | files |
//! | ... | per file, by name: number (8), flags (1), bytes (8), name, count (4), tracks |

use crate::wire::{Reader, Writer};
use varve_media::TrackId;

pub(super) const TRACK_BYTES: usize = 4;
const FLAG_PACKED: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create { file: u64, is_packed: bool, name: String },
    Tracks { file: u64, kept: u32, tracks: Vec<TrackId>, size_bytes: u64 },
    Rename { from: String, to: String },
    Remove { name: String },
    Done { place: u8, sequence: u64 },
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileRecord {
    pub(super) file: u64,
    pub(super) is_packed: bool,
    pub(super) size_bytes: u64,
    pub(super) name: String,
    pub(super) tracks: Vec<TrackId>,
}

/// A checkpoint in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) next_file: u64,
    pub(super) done: Vec<u64>,
    pub(super) files: Vec<FileRecord>,
}

/// Bytes of a checkpoint without files.
pub(super) fn empty_bytes(places: usize) -> u64 {
    (8 + 1 + 8 * places + 8) as u64
}

/// Bytes of one file in a checkpoint.
pub(super) fn record_bytes(name_bytes: usize, tracks: usize) -> u64 {
    (8 + 1 + 8 + 1 + name_bytes + 4 + tracks * TRACK_BYTES) as u64
}

fn write_tracks(writer: &mut Writer, tracks: &[TrackId]) {
    writer.u32(tracks.len() as u32);
    tracks.iter().for_each(|track| writer.u32(track.0));
}

fn read_tracks(reader: &mut Reader<'_>) -> Option<Vec<TrackId>> {
    let count = reader.u32()? as usize;
    // Checked before anything is allocated for them.
    if count > reader.remaining() / TRACK_BYTES {
        return None;
    }
    (0..count).map(|_| reader.u32().map(TrackId)).collect()
}

fn read_flags(reader: &mut Reader<'_>) -> Option<bool> {
    let flags = reader.u8()?;
    (flags & !FLAG_PACKED == 0).then_some(flags & FLAG_PACKED != 0)
}

pub(super) fn encode_change(writer: &mut Writer, change: &Change) {
    match change {
        Change::Create { file, is_packed, name } => {
            writer.u8(1);
            writer.u64(*file);
            writer.u8(u8::from(*is_packed) * FLAG_PACKED);
            writer.name(name);
        }
        Change::Tracks { file, kept, tracks, size_bytes } => {
            writer.u8(2);
            writer.u64(*file);
            writer.u32(*kept);
            write_tracks(writer, tracks);
            writer.u64(*size_bytes);
        }
        Change::Rename { from, to } => {
            writer.u8(3);
            writer.name(from);
            writer.name(to);
        }
        Change::Remove { name } => {
            writer.u8(4);
            writer.name(name);
        }
        Change::Done { place, sequence } => {
            writer.u8(5);
            writer.u8(*place);
            writer.u64(*sequence);
        }
    }
}

fn decode_change(reader: &mut Reader<'_>) -> Option<Change> {
    Some(match reader.u8()? {
        1 => {
            let file = reader.u64()?;
            let is_packed = read_flags(reader)?;
            Change::Create { file, is_packed, name: reader.name()? }
        }
        2 => {
            let (file, kept) = (reader.u64()?, reader.u32()?);
            Change::Tracks { file, kept, tracks: read_tracks(reader)?, size_bytes: reader.u64()? }
        }
        3 => Change::Rename { from: reader.name()?, to: reader.name()? },
        4 => Change::Remove { name: reader.name()? },
        5 => Change::Done { place: reader.u8()?, sequence: reader.u64()? },
        _ => return None,
    })
}

/// The changes of a commit; anything may come. The error is the offset of the first that is none.
pub(super) fn decode_commit(payload: &[u8]) -> Result<Vec<Change>, usize> {
    Reader::all(payload, decode_change)
}

pub(super) fn encode_checkpoint(checkpoint: &Checkpoint) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(checkpoint.next_file);
    writer.u8(checkpoint.done.len() as u8);
    checkpoint.done.iter().for_each(|&sequence| writer.u64(sequence));
    writer.u64(checkpoint.files.len() as u64);
    for record in &checkpoint.files {
        writer.u64(record.file);
        writer.u8(u8::from(record.is_packed) * FLAG_PACKED);
        writer.u64(record.size_bytes);
        writer.name(&record.name);
        write_tracks(&mut writer, &record.tracks);
    }
    writer.into_vec()
}

/// Anything may come. The error is the offset where it stops making sense.
pub(super) fn decode_checkpoint(bytes: &[u8]) -> Result<Checkpoint, usize> {
    let mut reader = Reader::new(bytes);
    let mut files = Vec::new();
    let mut offset = 0;
    let mut parse = || {
        let next_file = reader.u64()?;
        let places = reader.u8()?;
        let done: Option<Vec<u64>> = (0..places).map(|_| reader.u64()).collect();
        let done = done?;
        let count = reader.u64()?;
        for _ in 0..count {
            offset = bytes.len() - reader.remaining();
            let file = reader.u64()?;
            let is_packed = read_flags(&mut reader)?;
            let size_bytes = reader.u64()?;
            let name = reader.name()?;
            files.push(FileRecord { file, is_packed, size_bytes, name, tracks: read_tracks(&mut reader)? });
        }
        offset = bytes.len() - reader.remaining();
        (reader.remaining() == 0).then_some((next_file, done))
    };
    match parse() {
        Some((next_file, done)) => Ok(Checkpoint { next_file, done, files }),
        None => Err(offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Change> {
        vec![
            Change::Create { file: 0x1_0000_0002, is_packed: true, name: "000003.log".to_owned() },
            Change::Tracks { file: 7, kept: 2, tracks: [1235, 1237, 1240].map(TrackId).into(), size_bytes: 65_537 },
            Change::Rename { from: "a".to_owned(), to: "\u{fc}/b".to_owned() },
            Change::Remove { name: "x".repeat(255) },
            Change::Done { place: 1, sequence: 0x1_0000_0003 },
        ]
    }

    #[test]
    fn commits_come_back_and_their_bytes_do_not_change() {
        let mut writer = Writer::default();
        for change in changes() {
            encode_change(&mut writer, &change);
        }
        let bytes = writer.into_vec();
        assert_eq!(decode_commit(&bytes), Ok(changes()));
        // Golden: version 1 of the format. A difference means stores of others cannot be read.
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (333, GOLDEN_COMMIT));
        assert_eq!(bytes[..21], b"\x01\x02\0\0\0\x01\0\0\0\x01\x0a000003.log"[..]);
    }

    const GOLDEN_COMMIT: u32 = 0xe8d4_48bb;
    const GOLDEN_CHECKPOINT: u32 = 0xcba8_41e0;

    #[test]
    fn checkpoints_come_back_and_their_bytes_do_not_change() {
        let record = |file, is_packed, size_bytes, name: &str, tracks: &[u32]| FileRecord {
            file,
            is_packed,
            size_bytes,
            name: name.to_owned(),
            tracks: tracks.iter().map(|&track| TrackId(track)).collect(),
        };
        let files = vec![record(1, false, 5000, "a", &[9, 11]), record(2, true, 0, "log", &[])];
        let expected: u64 = files.iter().map(|record| record_bytes(record.name.len(), record.tracks.len())).sum();
        let checkpoint = Checkpoint { next_file: 3, done: vec![17, 0], files };
        let bytes = encode_checkpoint(&checkpoint);
        assert_eq!(bytes.len() as u64, empty_bytes(2) + expected);
        assert_eq!(decode_checkpoint(&bytes), Ok(checkpoint));
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (89, GOLDEN_CHECKPOINT));
        for length in 0..bytes.len() {
            assert!(decode_checkpoint(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn nonsense_is_refused_without_allocating_for_it() {
        assert_eq!(decode_commit(b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"), Err(0));
        assert_eq!(decode_commit(b"\x06"), Err(0));
        assert_eq!(decode_commit(b"\x04\0"), Err(0));
        assert_eq!(decode_commit(b"\x04\x01\xff"), Err(0));
        assert_eq!(decode_commit(b"\x04\x01a\x09"), Err(3));
        assert!(decode_checkpoint(&[0xff; 16]).is_err());
        assert!(decode_checkpoint(&[0xff; 4000]).is_err());
    }
}
