//! Changes of the metadata, as bytes of a commit; and the whole metadata, as bytes of a checkpoint.
//!
//! A commit is a sequence of changes, each a tag and its fields, little-endian. A *name* is a byte
//! count (1 to 255) and as many bytes of UTF-8. An *extent* is the first block (8 bytes) and the number of blocks
//! (8 bytes).
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | create | file (8), flags (1), name; replaces a file of that name |
//! | 2 | extend | file (8), count (4), extents |
//! | 3 | size | file (8), bytes (8): what is durable |
//! | 4 | trim | file (8), blocks to keep (8) |
//! | 5 | rename | name from, name to |
//! | 6 | remove | name |
//!
//! Flags: bit 0, the file is framed (see [`frame`](super::frame)). Others are zero.
//!
//! A checkpoint:
//!
//! | size | field |
//! |---|---|
//! | 8 | lowest number a file created later may have |
//! | 8 | files |
//! | ... | per file, by name: number (8), flags (1), bytes (8), name, count (4), extents |

use super::Extent;
use crate::wire::{Reader, Writer};

pub(super) const EXTENT_BYTES: usize = 16;
const FLAG_FRAMED: u8 = 1;
/// No device has more blocks: 4 PiB of 4 KiB. Sums over what a commit can hold stay far from overflow.
const BLOCKS_MAX: u64 = 1 << 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create { file: u64, framed: bool, name: String },
    Extend { file: u64, extents: Vec<Extent> },
    Size { file: u64, size_bytes: u64 },
    Trim { file: u64, blocks: u64 },
    Rename { from: String, to: String },
    Remove { name: String },
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileRecord {
    pub(super) file: u64,
    pub(super) framed: bool,
    pub(super) size_bytes: u64,
    pub(super) name: String,
    pub(super) extents: Vec<Extent>,
}

/// Bytes of one file in a checkpoint.
pub(super) fn record_bytes(name_bytes: usize, extents: usize) -> u64 {
    (8 + 1 + 8 + 1 + name_bytes + 4 + extents * EXTENT_BYTES) as u64
}

fn write_extents(writer: &mut Writer, extents: &[Extent]) {
    writer.u32(extents.len() as u32);
    for extent in extents {
        writer.u64(extent.start);
        writer.u64(extent.blocks);
    }
}

fn read_extents(reader: &mut Reader<'_>) -> Option<Vec<Extent>> {
    let count = reader.u32()? as usize;
    // Checked before anything is allocated for them.
    if count > reader.remaining() / EXTENT_BYTES {
        return None;
    }
    let mut extent = || {
        let extent = Extent { start: reader.u64()?, blocks: reader.u64()? };
        let sound = extent.blocks > 0 && extent.start.checked_add(extent.blocks)? <= BLOCKS_MAX;
        sound.then_some(extent)
    };
    (0..count).map(|_| extent()).collect()
}

fn read_flags(reader: &mut Reader<'_>) -> Option<bool> {
    let flags = reader.u8()?;
    (flags & !FLAG_FRAMED == 0).then_some(flags & FLAG_FRAMED != 0)
}

pub(super) fn encode_change(writer: &mut Writer, change: &Change) {
    match change {
        Change::Create { file, framed, name } => {
            writer.u8(1);
            writer.u64(*file);
            writer.u8(u8::from(*framed) * FLAG_FRAMED);
            writer.name(name);
        }
        Change::Extend { file, extents } => {
            writer.u8(2);
            writer.u64(*file);
            write_extents(writer, extents);
        }
        Change::Size { file, size_bytes } => {
            writer.u8(3);
            writer.u64(*file);
            writer.u64(*size_bytes);
        }
        Change::Trim { file, blocks } => {
            writer.u8(4);
            writer.u64(*file);
            writer.u64(*blocks);
        }
        Change::Rename { from, to } => {
            writer.u8(5);
            writer.name(from);
            writer.name(to);
        }
        Change::Remove { name } => {
            writer.u8(6);
            writer.name(name);
        }
    }
}

fn decode_change(reader: &mut Reader<'_>) -> Option<Change> {
    Some(match reader.u8()? {
        1 => {
            let file = reader.u64()?;
            let framed = read_flags(reader)?;
            Change::Create { file, framed, name: reader.name()? }
        }
        2 => Change::Extend { file: reader.u64()?, extents: read_extents(reader)? },
        3 => Change::Size { file: reader.u64()?, size_bytes: reader.u64()? },
        4 => Change::Trim { file: reader.u64()?, blocks: reader.u64()? },
        5 => Change::Rename { from: reader.name()?, to: reader.name()? },
        6 => Change::Remove { name: reader.name()? },
        _ => return None,
    })
}

/// The changes of a commit; anything may come. The error is the offset of the first that is none.
pub(super) fn decode_commit(payload: &[u8]) -> Result<Vec<Change>, usize> {
    Reader::all(payload, decode_change)
}

pub(super) fn encode_checkpoint<'a>(next_file: u64, files: impl ExactSizeIterator<Item = &'a FileRecord>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u64(next_file);
    writer.u64(files.len() as u64);
    for record in files {
        writer.u64(record.file);
        writer.u8(u8::from(record.framed) * FLAG_FRAMED);
        writer.u64(record.size_bytes);
        writer.name(&record.name);
        write_extents(&mut writer, &record.extents);
    }
    writer.into_vec()
}

/// The files of a checkpoint and the lowest number for new ones; anything may come. The error is the
/// offset where it stops making sense.
pub(super) fn decode_checkpoint(bytes: &[u8]) -> Result<(u64, Vec<FileRecord>), usize> {
    let mut reader = Reader::new(bytes);
    let mut files = Vec::new();
    let mut offset = 0;
    let mut parse = || {
        let (next_file, count) = (reader.u64()?, reader.u64()?);
        for _ in 0..count {
            offset = bytes.len() - reader.remaining();
            let file = reader.u64()?;
            let framed = read_flags(&mut reader)?;
            let size_bytes = reader.u64()?;
            let name = reader.name()?;
            files.push(FileRecord { file, framed, size_bytes, name, extents: read_extents(&mut reader)? });
        }
        offset = bytes.len() - reader.remaining();
        (reader.remaining() == 0).then_some(next_file)
    };
    match parse() {
        Some(next_file) => Ok((next_file, files)),
        None => Err(offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Change> {
        vec![
            Change::Create { file: 0x1_0000_0002, framed: true, name: "000003.log".to_owned() },
            Change::Extend {
                file: 7,
                extents: vec![Extent { start: 258, blocks: 16 }, Extent { start: 300, blocks: 1 }],
            },
            Change::Size { file: 7, size_bytes: 65_537 },
            Change::Trim { file: 7, blocks: 17 },
            Change::Rename { from: "a".to_owned(), to: "\u{fc}/b".to_owned() },
            Change::Remove { name: "x".repeat(255) },
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
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (365, 0x7788_d7d6));
        assert_eq!(bytes[..21], b"\x01\x02\0\0\0\x01\0\0\0\x01\x0a000003.log"[..]);
    }

    #[test]
    fn checkpoints_come_back_and_their_bytes_do_not_change() {
        let files = [
            FileRecord { file: 1, framed: false, size_bytes: 5, name: "a".to_owned(), extents: vec![] },
            FileRecord {
                file: 2,
                framed: true,
                size_bytes: 4096,
                name: "log".to_owned(),
                extents: vec![Extent { start: 9, blocks: 2 }],
            },
        ];
        let bytes = encode_checkpoint(3, files.iter());
        let expected: u64 = files.iter().map(|record| record_bytes(record.name.len(), record.extents.len())).sum();
        assert_eq!(bytes.len() as u64, 16 + expected);
        assert_eq!(decode_checkpoint(&bytes), Ok((3, files.to_vec())));
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (80, 0xee0f_e080));
        for length in 0..bytes.len() {
            assert!(decode_checkpoint(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn nonsense_is_refused_without_allocating_for_it() {
        // A count of four billion extents and nothing behind it.
        assert_eq!(decode_commit(b"\x02\0\0\0\0\0\0\0\0\xff\xff\xff\xff"), Err(0));
        assert_eq!(decode_commit(b"\x07"), Err(0));
        assert_eq!(decode_commit(b"\x06\0"), Err(0));
        assert_eq!(decode_commit(b"\x06\x01\xff"), Err(0));
        assert_eq!(decode_commit(b"\x06\x01a\x09"), Err(3));
        assert_eq!(decode_checkpoint(&[0xff; 16]), Err(16));
    }
}
