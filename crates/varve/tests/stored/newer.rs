//! Structures made those of a newer version: with a version one higher, and sound otherwise.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use varve::ErrorKind;

/// What superblocks are apart, from the beginning of a device on: on an interlaced disk they begin with its first top.
const SUPERBLOCKS_APART_BYTES: usize = 64 << 10;
const SUPERBLOCK_BYTES: usize = 512;
/// The newest version of them: a store may be of the one before it.
const SUPERBLOCK_VERSION: u8 = 4;

/// The newest version of the record of zones.
const ZONE_RECORD_VERSION: u8 = 2;

/// What is read of a file: more than any that is no image has.
const BEGINNING_BYTES: u64 = 2 << 20;

/// A structure with a version.
pub(crate) struct Structure {
    pub(crate) name: &'static str,
    /// It is not looked at before something is read.
    pub(crate) is_read_late: bool,
    /// Of the error that says so.
    pub(crate) kind: ErrorKind,
    /// Makes what of it is in a file newer; whether there is any. With the file's name.
    raise: fn(&str, &mut Vec<u8>) -> bool,
}

pub(crate) const STRUCTURES: &[Structure] = &[
    Structure { name: "CURRENT", is_read_late: false, kind: ErrorKind::Foreign, raise: current },
    Structure {
        name: "manifest",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |name, bytes| name.starts_with("MANIFEST") && log(bytes),
    },
    Structure {
        name: "log",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |name, bytes| name.ends_with(".log") && log(bytes),
    },
    Structure {
        name: "table",
        is_read_late: true,
        kind: ErrorKind::Foreign,
        raise: |name, bytes| name.ends_with(".sst") && table(bytes),
    },
    Structure {
        name: "superblock",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |_, bytes| superblocks(bytes),
    },
    Structure {
        name: "superblock of an array",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |_, bytes| array_superblock(bytes),
    },
    Structure {
        name: "intent map of an array",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |_, bytes| intent_map(bytes),
    },
    Structure {
        name: "record of zones",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |name, bytes| zones(name, bytes),
    },
    Structure {
        name: "record of a media cache",
        is_read_late: false,
        kind: ErrorKind::Foreign,
        raise: |name, bytes| media_cache(name, bytes),
    },
];

/// Makes every one of a structure below `folder` newer; whether there is any.
pub(crate) fn raise(folder: &Path, structure: &Structure) -> bool {
    let mut waiting = vec![folder.to_owned()];
    let mut any = false;
    while let Some(place) = waiting.pop() {
        for entry in std::fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            // Of images, which are large, the beginning.
            let mut file = File::options().read(true).write(true).open(&path).unwrap();
            let mut bytes = Vec::new();
            file.by_ref().take(BEGINNING_BYTES).read_to_end(&mut bytes).unwrap();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if (structure.raise)(&name, &mut bytes) {
                file.write_all_at(&bytes, 0).unwrap();
                any = true;
            }
        }
    }
    any
}

/// Adds one to the version at `version_at` and makes the checksum at `checksum_at` that of `checked`.
fn add_one(bytes: &mut [u8], version_at: usize, checksum_at: usize, checked: Range<usize>) {
    bytes[version_at] += 1;
    if checked.contains(&checksum_at) {
        bytes[checksum_at..checksum_at + 4].fill(0);
    }
    let checksum = crc32c::crc32c(&bytes[checked]);
    bytes[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
}

fn current(name: &str, bytes: &mut Vec<u8>) -> bool {
    if name != "CURRENT" {
        return false;
    }
    let text = String::from_utf8(bytes.clone()).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let (word, version) = first.split_once(' ').unwrap();
    let (rest, _) = rest.split_once("crc32c ").unwrap();
    let text = format!("{word} {}\n{rest}", version.parse::<u64>().unwrap() + 1);
    *bytes = format!("{text}crc32c {:08x}\n", crc32c::crc32c(text.as_bytes())).into_bytes();
    true
}

fn log(bytes: &mut [u8]) -> bool {
    add_one(bytes, 8, 60, 0..60);
    true
}

fn table(bytes: &mut [u8]) -> bool {
    let footer = bytes.len() - 80;
    add_one(&mut bytes[footer..], 56, 68, 0..68);
    true
}

/// What a member of an array begins with. Superblocks of the store lie on it as the array spreads them.
const ARRAY_MEMBER: &[u8] = b"VARVERAI";
/// What the superblock and the intent map of a member lie in.
const ARRAY_UNIT_BYTES: usize = 4096;
/// The newest version of the superblock: an array without a journal of stripes on a device is of an earlier one.
const ARRAY_VERSION: u8 = 3;

fn array_superblock(bytes: &mut [u8]) -> bool {
    if !bytes.starts_with(ARRAY_MEMBER) {
        return false;
    }
    for copy in bytes.chunks_mut(ARRAY_UNIT_BYTES).take(2) {
        copy[8] = ARRAY_VERSION;
        add_one(copy, 8, 124, 0..124);
    }
    true
}

fn intent_map(bytes: &mut [u8]) -> bool {
    // One without redundancy has none.
    if !bytes.starts_with(ARRAY_MEMBER) || bytes[12] == 0 {
        return false;
    }
    for page in bytes.chunks_mut(ARRAY_UNIT_BYTES).skip(2).take(2) {
        page[8] += 1;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&page[..60]), &page[64..]);
        page[60..64].copy_from_slice(&checksum.to_le_bytes());
    }
    true
}

fn superblocks(bytes: &mut [u8]) -> bool {
    let mut any = false;
    if bytes.starts_with(ARRAY_MEMBER) {
        return false;
    }
    for window in bytes.chunks_mut(SUPERBLOCKS_APART_BYTES) {
        if let Some(sector) = window.get_mut(..SUPERBLOCK_BYTES)
            && sector.starts_with(b"VARVE\0SB")
        {
            sector[8] = SUPERBLOCK_VERSION;
            add_one(sector, 8, 12, 0..SUPERBLOCK_BYTES);
            any = true;
        }
    }
    any
}

fn zones(name: &str, bytes: &mut [u8]) -> bool {
    if !name.ends_with(".zones") {
        return false;
    }
    // It may be of the version before the newest.
    bytes[8] = ZONE_RECORD_VERSION;
    add_one(bytes, 8, 80, 0..80);
    true
}

fn media_cache(name: &str, bytes: &mut [u8]) -> bool {
    if !name.ends_with(".media-cache") {
        return false;
    }
    add_one(bytes, 8, 100, 0..100);
    true
}
