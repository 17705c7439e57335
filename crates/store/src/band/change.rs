//! Changes of the band table, as bytes of a commit; and the whole band table, as bytes of a checkpoint.
//!
//! A commit is a sequence of changes, each a tag and its fields, little-endian. A *name* is a byte count (1 to 255)
//! and as many bytes of UTF-8. A *fragment* is a part of a table that lies in one band in one piece: number of the band
//! (4 bytes), offset in the band (8), length (8). A *level* is one byte, 255 when it is not known.
//!
//! | tag | change | fields |
//! |---|---|---|
//! | 1 | create | file (8), flags (1), level (1), name; replaces a file of that name |
//! | 2 | fragments of a table | file (8), level (1), fragments to keep (4), count (4), fragments that follow those |
//! | 3 | size of a small file | file (8), bytes (8) that are durable |
//! | 4 | rename | name from, name to |
//! | 5 | remove | name |
//! | 6 | log band begun | band (4), order (8), number of its first frame (8) |
//! | 7 | log band sealed | band (4), bytes (8) in which every frame is durable |
//! | 8 | log band released | band (4): it holds nothing any more |
//! | 9 | band retired | band (4), condition (1): 1 read-only, 2 offline |
//! | 10 | small file cut | file (8), bytes (8), number of a frame (8): frames before that one do not count behind those bytes |
//! | 11 | stamp of a file of a store over several devices | file (8), stamp (8), bytes of its parts on other devices before this one (8) |
//! | 12 | the same, and the file may go on on another device behind this part | as 11 |
//!
//! Flags: bit 0, the file is small: it lies in frames of log bands; bit 1, it was cut, only in a checkpoint and only of
//! a small file; bit 2, it has a stamp, only in a checkpoint; bit 3, it may go on, only beside a stamp. Others are zero. A name that begins with a NUL is that of a file
//! of the store's own.
//!
//! Numbers of files and frames and orders of log bands are less than 2^63, so that those that follow are numbers too.
//!
//! A checkpoint:
//!
//! | size | field |
//! |---|---|
//! | 8 | lowest number a file created later may have |
//! | 4 | log bands |
//! | 28 each | band (4), order (8), number of its first frame (8), sealed bytes + 1, or 0 while it is written (8) |
//! | 4 | retired bands |
//! | 5 each | band (4), condition (1) |
//! | 8 | files |
//! | ... | per file, by name: number (8), flags (1), level (1), bytes (8), name, count (4), fragments; then, of one that was cut, bytes (8) and number of a frame (8) as in the change; the last cut is all that matters; then, of one that has a stamp, that (8) and bytes before (8) as in the change |

use crate::wire::{Reader, Writer};

pub(super) const FRAGMENT_BYTES: usize = 20;
const FLAG_PACKED: u8 = 1;
const FLAG_CUT: u8 = 2;
const FLAG_STAMPED: u8 = 4;
const FLAG_GOES_ON: u8 = 8;
const CUT_BYTES: u64 = 16;
const STAMP_BYTES: u64 = 16;
const LEVEL_UNKNOWN: u8 = 255;
const LOG_BAND_BYTES: u64 = 28;
const RETIRED_BYTES: u64 = 5;
/// No zone and no small file is longer. Sums over what a commit can hold stay far from overflow.
const BYTES_MAX: u64 = 1 << 52;

/// Numbers of files, frames and log bands are smaller.
pub(super) const NUMBER_END: u64 = 1 << 63;

/// A part of a table that lies in one band in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) band: u32,
    /// In the band.
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

impl Fragment {
    /// It begins where `other` does, and may have grown.
    pub(super) fn begins_as(&self, other: &Fragment) -> bool {
        (self.band, self.offset_bytes) == (other.band, other.offset_bytes) && self.length_bytes >= other.length_bytes
    }
}

/// Why a band is not used any more. The device says so of its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Retirement {
    /// What is in it can be read.
    ReadOnly,
    /// What was in it is lost.
    Offline,
}

/// What is left of a small file by an append that failed when some of its frames were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes of the file before that append.
    pub(super) size_bytes: u64,
    /// Frames before this number do not count behind those bytes.
    pub(super) sequence: u64,
}

/// Which record of a name counts where several devices have one, and which part of the file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Grows with every change of a name: the highest of a name counts.
    pub(crate) number: u64,
    /// Bytes of the file before this part of it; those are on other devices.
    pub(crate) start_bytes: u64,
    /// More of the file may be on another device, behind this part.
    pub(crate) goes_on: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Create { file: u64, is_packed: bool, level: Option<u8>, name: String },
    Fragments { file: u64, level: Option<u8>, keep: u32, fragments: Vec<Fragment> },
    Size { file: u64, size_bytes: u64 },
    Rename { from: String, to: String },
    Remove { name: String },
    LogBegun { band: u32, order: u64, first_sequence: u64 },
    LogSealed { band: u32, valid_bytes: u64 },
    LogReleased { band: u32 },
    Retired { band: u32, retirement: Retirement },
    Cut { file: u64, cut: Cut },
    Stamp { file: u64, stamp: Stamp },
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileRecord {
    pub(super) file: u64,
    pub(super) is_packed: bool,
    pub(super) level: Option<u8>,
    /// Of a table the sum of its fragments; of a small file what is known to be durable.
    pub(super) size_bytes: u64,
    pub(super) name: String,
    pub(super) fragments: Vec<Fragment>,
    /// Of a small file only.
    pub(super) cut: Option<Cut>,
    /// Of a store over several devices only.
    pub(super) stamp: Option<Stamp>,
}

/// A log band of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogBandRecord {
    pub(super) band: u32,
    pub(super) order: u64,
    pub(super) first_sequence: u64,
    /// Bytes of frames, all of them durable; `None` while it is written.
    pub(super) sealed_bytes: Option<u64>,
}

/// The whole band table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) next_file: u64,
    pub(super) log_bands: Vec<LogBandRecord>,
    pub(super) retired: Vec<(u32, Retirement)>,
    pub(super) files: Vec<FileRecord>,
}

/// Bytes of a checkpoint without files in which every band is a log band and retired.
pub(super) fn empty_bytes(bands: u32) -> u64 {
    24 + u64::from(bands) * (LOG_BAND_BYTES + RETIRED_BYTES)
}

/// Bytes of a file's record; of a small file's at most.
pub(super) fn record_bytes(name_bytes: usize, fragments: usize, is_packed: bool, is_stamped: bool) -> u64 {
    let fixed = (8 + 1 + 1 + 8 + 1 + name_bytes + 4 + fragments * FRAGMENT_BYTES) as u64;
    fixed + u64::from(is_packed) * CUT_BYTES + u64::from(is_stamped) * STAMP_BYTES
}

fn write_level(writer: &mut Writer, level: Option<u8>) {
    writer.u8(level.unwrap_or(LEVEL_UNKNOWN));
}

fn read_level(reader: &mut Reader<'_>) -> Option<Option<u8>> {
    reader.u8().map(|level| Some(level).filter(|&level| level != LEVEL_UNKNOWN))
}

/// What the flags of a file say.
#[derive(Clone, Copy, Default)]
struct Flags {
    is_packed: bool,
    is_cut: bool,
    is_stamped: bool,
    goes_on: bool,
}

fn write_flags(writer: &mut Writer, flags: Flags) {
    let Flags { is_packed, is_cut, is_stamped, goes_on } = flags;
    let set = [(is_packed, FLAG_PACKED), (is_cut, FLAG_CUT), (is_stamped, FLAG_STAMPED), (goes_on, FLAG_GOES_ON)];
    writer.u8(set.into_iter().map(|(is_set, flag)| u8::from(is_set) * flag).sum());
}

fn read_flags(reader: &mut Reader<'_>) -> Option<Flags> {
    let flags = reader.u8()?;
    let has = |flag: u8| flags & flag != 0;
    let found = Flags {
        is_packed: has(FLAG_PACKED),
        is_cut: has(FLAG_CUT),
        is_stamped: has(FLAG_STAMPED),
        goes_on: has(FLAG_GOES_ON),
    };
    let is_known = flags < FLAG_GOES_ON << 1;
    (is_known && (found.is_packed || !found.is_cut) && (found.is_stamped || !found.goes_on)).then_some(found)
}

fn read_is_packed(reader: &mut Reader<'_>) -> Option<bool> {
    read_flags(reader).filter(|flags| !flags.is_cut && !flags.is_stamped).map(|flags| flags.is_packed)
}

fn write_stamp(writer: &mut Writer, stamp: &Stamp) {
    writer.u64(stamp.number);
    writer.u64(stamp.start_bytes);
}

fn read_stamp(reader: &mut Reader<'_>, goes_on: bool) -> Option<Stamp> {
    Some(Stamp { number: read_number(reader)?, start_bytes: read_bytes(reader)?, goes_on })
}

fn write_fragments(writer: &mut Writer, fragments: &[Fragment]) {
    writer.u32(fragments.len() as u32);
    for fragment in fragments {
        writer.u32(fragment.band);
        writer.u64(fragment.offset_bytes);
        writer.u64(fragment.length_bytes);
    }
}

fn read_fragments(reader: &mut Reader<'_>) -> Option<Vec<Fragment>> {
    let count = reader.u32()? as usize;
    // Before anything is allocated for them.
    if count > reader.remaining() / FRAGMENT_BYTES {
        return None;
    }
    (0..count)
        .map(|_| {
            let fragment = Fragment { band: reader.u32()?, offset_bytes: reader.u64()?, length_bytes: reader.u64()? };
            let sound =
                fragment.length_bytes > 0 && fragment.length_bytes <= BYTES_MAX && fragment.offset_bytes <= BYTES_MAX;
            sound.then_some(fragment)
        })
        .collect()
}

fn read_number(reader: &mut Reader<'_>) -> Option<u64> {
    reader.u64().filter(|number| *number < NUMBER_END)
}

fn read_bytes(reader: &mut Reader<'_>) -> Option<u64> {
    reader.u64().filter(|bytes| *bytes <= BYTES_MAX)
}

fn write_cut(writer: &mut Writer, cut: &Cut) {
    writer.u64(cut.size_bytes);
    writer.u64(cut.sequence);
}

fn read_cut(reader: &mut Reader<'_>) -> Option<Cut> {
    Some(Cut { size_bytes: read_bytes(reader)?, sequence: read_number(reader)? })
}

fn write_retirement(writer: &mut Writer, retirement: Retirement) {
    writer.u8(match retirement {
        Retirement::ReadOnly => 1,
        Retirement::Offline => 2,
    });
}

fn read_retirement(reader: &mut Reader<'_>) -> Option<Retirement> {
    match reader.u8()? {
        1 => Some(Retirement::ReadOnly),
        2 => Some(Retirement::Offline),
        _ => None,
    }
}

pub(super) fn encode_change(writer: &mut Writer, change: &Change) {
    match change {
        Change::Create { file, is_packed, level, name } => {
            writer.u8(1);
            writer.u64(*file);
            write_flags(writer, Flags { is_packed: *is_packed, ..Flags::default() });
            write_level(writer, *level);
            writer.name(name);
        }
        Change::Fragments { file, level, keep, fragments } => {
            writer.u8(2);
            writer.u64(*file);
            write_level(writer, *level);
            writer.u32(*keep);
            write_fragments(writer, fragments);
        }
        Change::Size { file, size_bytes } => {
            writer.u8(3);
            writer.u64(*file);
            writer.u64(*size_bytes);
        }
        Change::Rename { from, to } => {
            writer.u8(4);
            writer.name(from);
            writer.name(to);
        }
        Change::Remove { name } => {
            writer.u8(5);
            writer.name(name);
        }
        Change::LogBegun { band, order, first_sequence } => {
            writer.u8(6);
            writer.u32(*band);
            writer.u64(*order);
            writer.u64(*first_sequence);
        }
        Change::LogSealed { band, valid_bytes } => {
            writer.u8(7);
            writer.u32(*band);
            writer.u64(*valid_bytes);
        }
        Change::LogReleased { band } => {
            writer.u8(8);
            writer.u32(*band);
        }
        Change::Retired { band, retirement } => {
            writer.u8(9);
            writer.u32(*band);
            write_retirement(writer, *retirement);
        }
        Change::Cut { file, cut } => {
            writer.u8(10);
            writer.u64(*file);
            write_cut(writer, cut);
        }
        Change::Stamp { file, stamp } => {
            writer.u8(11 + u8::from(stamp.goes_on));
            writer.u64(*file);
            write_stamp(writer, stamp);
        }
    }
}

fn decode_change(reader: &mut Reader<'_>) -> Option<Change> {
    Some(match reader.u8()? {
        1 => Change::Create {
            file: read_number(reader)?,
            is_packed: read_is_packed(reader)?,
            level: read_level(reader)?,
            name: reader.own_or_user_name()?,
        },
        2 => Change::Fragments {
            file: reader.u64()?,
            level: read_level(reader)?,
            keep: reader.u32()?,
            fragments: read_fragments(reader)?,
        },
        3 => Change::Size { file: reader.u64()?, size_bytes: read_bytes(reader)? },
        4 => Change::Rename { from: reader.own_or_user_name()?, to: reader.own_or_user_name()? },
        5 => Change::Remove { name: reader.own_or_user_name()? },
        6 => {
            let (band, order) = (reader.u32()?, read_number(reader)?);
            Change::LogBegun { band, order, first_sequence: read_number(reader)? }
        }
        7 => Change::LogSealed { band: reader.u32()?, valid_bytes: reader.u64()? },
        8 => Change::LogReleased { band: reader.u32()? },
        9 => Change::Retired { band: reader.u32()?, retirement: read_retirement(reader)? },
        10 => Change::Cut { file: reader.u64()?, cut: read_cut(reader)? },
        tag @ (11 | 12) => Change::Stamp { file: reader.u64()?, stamp: read_stamp(reader, tag == 12)? },
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
    writer.u32(checkpoint.log_bands.len() as u32);
    for record in &checkpoint.log_bands {
        writer.u32(record.band);
        writer.u64(record.order);
        writer.u64(record.first_sequence);
        writer.u64(record.sealed_bytes.map_or(0, |bytes| bytes + 1));
    }
    writer.u32(checkpoint.retired.len() as u32);
    for (band, retirement) in &checkpoint.retired {
        writer.u32(*band);
        write_retirement(&mut writer, *retirement);
    }
    writer.u64(checkpoint.files.len() as u64);
    for record in &checkpoint.files {
        writer.u64(record.file);
        let (is_cut, is_stamped) = (record.cut.is_some(), record.stamp.is_some());
        let goes_on = record.stamp.is_some_and(|stamp| stamp.goes_on);
        write_flags(&mut writer, Flags { is_packed: record.is_packed, is_cut, is_stamped, goes_on });
        write_level(&mut writer, record.level);
        writer.u64(record.size_bytes);
        writer.name(&record.name);
        write_fragments(&mut writer, &record.fragments);
        record.cut.iter().for_each(|cut| write_cut(&mut writer, cut));
        record.stamp.iter().for_each(|stamp| write_stamp(&mut writer, stamp));
    }
    writer.into_vec()
}

/// The band table of a checkpoint; anything may come. The error is the offset where it stops making sense.
pub(super) fn decode_checkpoint(bytes: &[u8]) -> Result<Checkpoint, usize> {
    let mut reader = Reader::new(bytes);
    let mut found = Checkpoint::default();
    let mut offset = 0;
    let mut parse = || {
        found.next_file = read_number(&mut reader)?;
        for _ in 0..reader.u32()? {
            offset = bytes.len() - reader.remaining();
            let (band, order) = (reader.u32()?, read_number(&mut reader)?);
            let first_sequence = read_number(&mut reader)?;
            let sealed = reader.u64()?;
            if sealed > BYTES_MAX {
                return None;
            }
            found.log_bands.push(LogBandRecord { band, order, first_sequence, sealed_bytes: sealed.checked_sub(1) });
        }
        for _ in 0..reader.u32()? {
            offset = bytes.len() - reader.remaining();
            found.retired.push((reader.u32()?, read_retirement(&mut reader)?));
        }
        for _ in 0..reader.u64()? {
            offset = bytes.len() - reader.remaining();
            let file = read_number(&mut reader)?;
            let Flags { is_packed, is_cut, is_stamped, goes_on } = read_flags(&mut reader)?;
            found.files.push(FileRecord {
                file,
                is_packed,
                level: read_level(&mut reader)?,
                size_bytes: read_bytes(&mut reader)?,
                name: reader.own_or_user_name()?,
                fragments: read_fragments(&mut reader)?,
                cut: if is_cut { Some(read_cut(&mut reader)?) } else { None },
                stamp: if is_stamped { Some(read_stamp(&mut reader, goes_on)?) } else { None },
            });
        }
        offset = bytes.len() - reader.remaining();
        (reader.remaining() == 0).then_some(())
    };
    match parse() {
        Some(()) => Ok(found),
        None => Err(offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Change> {
        vec![
            Change::Create { file: 0x1_0000_0002, is_packed: true, level: None, name: "000003.log".to_owned() },
            Change::Fragments {
                file: 7,
                level: Some(2),
                keep: 1,
                fragments: vec![
                    Fragment { band: 300, offset_bytes: 4096, length_bytes: 16 << 20 },
                    Fragment { band: 301, offset_bytes: 0, length_bytes: 1 },
                ],
            },
            Change::Size { file: 7, size_bytes: 65_537 },
            Change::Rename { from: "a".to_owned(), to: "\u{fc}/b".to_owned() },
            Change::Remove { name: "x".repeat(255) },
            Change::LogBegun { band: 20, order: 3, first_sequence: 1 << 33 },
            Change::LogSealed { band: 20, valid_bytes: 80 << 20 },
            Change::LogReleased { band: 20 },
            Change::Retired { band: 21, retirement: Retirement::Offline },
            Change::Cut { file: 7, cut: Cut { size_bytes: 70_000, sequence: (1 << 33) + 5 } },
        ]
    }

    #[test]
    fn commits_come_back_and_their_bytes_do_not_change() {
        let mut writer = Writer::default();
        changes().iter().for_each(|change| encode_change(&mut writer, change));
        let bytes = writer.into_vec();
        assert_eq!(decode_commit(&bytes), Ok(changes()));
        // Golden: version 1 of the format. A difference means stores of others cannot be read.
        assert_eq!(crc32c::crc32c(&bytes[..407]), 0x7cc1_c2ca);
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (432, 0x91bd_ebd8));
    }

    #[test]
    fn checkpoints_come_back_and_their_bytes_do_not_change() {
        let fragment = Fragment { band: 9, offset_bytes: 0, length_bytes: 5 };
        let checkpoint = Checkpoint {
            next_file: 3,
            log_bands: vec![
                LogBandRecord { band: 4, order: 1, first_sequence: 7, sealed_bytes: Some(0) },
                LogBandRecord { band: 5, order: 2, first_sequence: 9, sealed_bytes: None },
            ],
            retired: vec![(8, Retirement::ReadOnly)],
            files: vec![
                FileRecord {
                    file: 1,
                    is_packed: false,
                    level: Some(0),
                    size_bytes: 5,
                    name: "a".to_owned(),
                    fragments: vec![fragment],
                    cut: None,
                    stamp: None,
                },
                FileRecord {
                    file: 2,
                    is_packed: true,
                    level: None,
                    size_bytes: 4096,
                    name: "log".to_owned(),
                    fragments: vec![],
                    cut: Some(Cut { size_bytes: 5000, sequence: 12 }),
                    stamp: None,
                },
            ],
        };
        let bytes = encode_checkpoint(&checkpoint);
        let records: u64 = checkpoint
            .files
            .iter()
            .map(|record| {
                record_bytes(record.name.len(), record.fragments.len(), record.is_packed, record.stamp.is_some())
            })
            .sum();
        assert_eq!(bytes.len() as u64, empty_bytes(0) + 2 * LOG_BAND_BYTES + RETIRED_BYTES + records);
        assert_eq!(decode_checkpoint(&bytes).as_ref(), Ok(&checkpoint));
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (171, 0x1d9b_62a3));
        let mut uncut = checkpoint;
        uncut.files[1].cut = None;
        let uncut = encode_checkpoint(&uncut);
        assert_eq!((uncut.len(), crc32c::crc32c(&uncut)), (155, 0xa389_2a8b));
        for length in 0..bytes.len() {
            assert!(decode_checkpoint(&bytes[..length]).is_err());
        }
    }

    #[test]
    fn stamps_come_back_and_their_bytes_do_not_change() {
        let stamp = Stamp { number: 0x1_0000_0007, start_bytes: 1077 << 20, goes_on: false };
        let change = Change::Stamp { file: 5, stamp };
        let mut writer = Writer::default();
        encode_change(&mut writer, &change);
        assert_eq!(decode_commit(writer.as_slice()), Ok(vec![change]));
        assert_eq!((writer.len(), crc32c::crc32c(writer.as_slice())), (25, 0x16e9_45cd));
        // A file of the store's own, and one that was cut.
        let file = |name: &str, is_packed, cut| FileRecord {
            file: 5,
            is_packed,
            level: None,
            size_bytes: 0,
            name: name.to_owned(),
            fragments: Vec::new(),
            cut,
            stamp: Some(stamp),
        };
        let files = vec![file("\0copy-1", false, None), file("log", true, Some(Cut { size_bytes: 1, sequence: 2 }))];
        let records: u64 = files.iter().map(|record| record_bytes(record.name.len(), 0, record.is_packed, true)).sum();
        let checkpoint = Checkpoint { next_file: 6, files, ..Checkpoint::default() };
        let bytes = encode_checkpoint(&checkpoint);
        assert_eq!(bytes.len() as u64, empty_bytes(0) + records);
        assert_eq!(decode_checkpoint(&bytes).as_ref(), Ok(&checkpoint));
        assert_eq!(crc32c::crc32c(&bytes), 0x8ce5_1e95);
        for length in 0..bytes.len() {
            assert!(decode_checkpoint(&bytes[..length]).is_err());
        }
        // One that goes on differs by its tag, and by its flag.
        let change = Change::Stamp { file: 5, stamp: Stamp { goes_on: true, ..stamp } };
        let mut other = Writer::default();
        encode_change(&mut other, &change);
        assert_eq!(decode_commit(other.as_slice()), Ok(vec![change]));
        assert_eq!((other.as_slice()[0], &other.as_slice()[1..]), (12, &writer.as_slice()[1..]));
        let mut goes_on = checkpoint;
        goes_on.files[1].stamp = Some(Stamp { goes_on: true, ..stamp });
        let other = encode_checkpoint(&goes_on);
        assert_eq!(decode_checkpoint(&other), Ok(goes_on));
        let different: Vec<u8> =
            bytes.iter().zip(&other).map(|(one, other)| one ^ other).filter(|bits| *bits != 0).collect();
        assert_eq!((bytes.len(), different), (other.len(), vec![FLAG_GOES_ON]));
    }

    #[test]
    fn nonsense_is_refused_without_allocating_for_it() {
        // A count of four billion fragments and nothing behind it.
        assert_eq!(decode_commit(b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"), Err(0));
        assert_eq!(decode_commit(b"\x0c"), Err(0));
        assert_eq!(decode_commit(b"\x05\0"), Err(0));
        assert_eq!(decode_commit(b"\x05\x01a\x09"), Err(3));
        assert_eq!(decode_commit(b"\x09\0\0\0\0\x03"), Err(0));
        assert_eq!(decode_checkpoint(&[&[0xff; 7][..], &[0x7f], &[0xff; 8]].concat()), Err(12));
    }

    #[test]
    fn numbers_after_which_there_are_none_are_refused() {
        let last = NUMBER_END - 1;
        for (number, is_taken) in [(last, true), (NUMBER_END, false), (u64::MAX, false)] {
            for change in [
                Change::Create { file: number, is_packed: true, level: None, name: "a".to_owned() },
                Change::LogBegun { band: 1, order: number, first_sequence: 1 },
                Change::LogBegun { band: 1, order: 1, first_sequence: number },
                Change::Cut { file: 1, cut: Cut { size_bytes: 0, sequence: number } },
            ] {
                let mut writer = Writer::default();
                encode_change(&mut writer, &change);
                assert_eq!(decode_commit(writer.as_slice()).is_ok(), is_taken, "{change:?}");
            }
            let log = |order, first_sequence| LogBandRecord { band: 1, order, first_sequence, sealed_bytes: None };
            for checkpoint in [
                Checkpoint { next_file: number, ..Checkpoint::default() },
                Checkpoint { log_bands: vec![log(number, 1)], ..Checkpoint::default() },
                Checkpoint { log_bands: vec![log(1, number)], ..Checkpoint::default() },
            ] {
                assert_eq!(decode_checkpoint(&encode_checkpoint(&checkpoint)).is_ok(), is_taken, "{checkpoint:?}");
            }
        }
    }
}
