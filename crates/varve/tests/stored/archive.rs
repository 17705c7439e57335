//! The files of a folder as one sequence of bytes, to be kept in the repository. Images are mostly holes: only what is not
//! zero is kept.
//!
//! Little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEARC` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | crc32c of the rest |
//! | 16 | n | a Zstandard frame of the files, one after the other |
//!
//! A file:
//!
//! | size | field |
//! |---|---|
//! | 4, n | length of its name, with `/` between folders, and the name |
//! | 8 | its length in bytes |
//! | 4 | number of its extents |
//! | 8, 4, n each | offset of an extent, its length, its bytes |

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8; 8] = b"VARVEARC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// What is looked at for being zero.
const PIECE_BYTES: usize = 256;

/// What is read at once.
const WINDOW_BYTES: usize = 64 << 10;

const COMPRESSION_LEVEL: i32 = 19;

/// A file: its length, and what of it is not zero, by offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) length_bytes: u64,
    pub(crate) extents: BTreeMap<u64, Vec<u8>>,
}

impl Kept {
    fn of(path: &Path) -> Kept {
        let said = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
        let mut file = File::open(path).unwrap_or_else(|error| said(error));
        let (mut kept, mut end) = (Kept::default(), None);
        let (mut window, zeros) = (vec![0; WINDOW_BYTES], vec![0; WINDOW_BYTES]);
        loop {
            let length = file.read(&mut window).unwrap_or_else(|error| said(error));
            if length == 0 {
                return kept;
            }
            if window[..length] != zeros[..length] {
                for (number, piece) in window[..length].chunks(PIECE_BYTES).enumerate() {
                    let offset = kept.length_bytes + (number * PIECE_BYTES) as u64;
                    if *piece == zeros[..piece.len()] {
                        continue;
                    }
                    match kept.extents.last_entry() {
                        Some(mut last) if end == Some(offset) => last.get_mut().extend_from_slice(piece),
                        _ => drop(kept.extents.insert(offset, piece.to_vec())),
                    }
                    end = Some(offset + piece.len() as u64);
                }
            }
            kept.length_bytes += length as u64;
        }
    }
}

/// Every file below `folder`, by name.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Kept> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(place) = waiting.pop() {
        for entry in std::fs::read_dir(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            found.insert(name, Kept::of(&path));
        }
    }
    found
}

/// The archive of every file below `folder`.
pub(crate) fn pack(folder: &Path) -> Vec<u8> {
    let mut files_bytes = Vec::new();
    for (name, kept) in files(folder) {
        files_bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
        files_bytes.extend_from_slice(name.as_bytes());
        files_bytes.extend_from_slice(&kept.length_bytes.to_le_bytes());
        files_bytes.extend_from_slice(&(kept.extents.len() as u32).to_le_bytes());
        for (offset, bytes) in kept.extents {
            files_bytes.extend_from_slice(&offset.to_le_bytes());
            files_bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            files_bytes.extend_from_slice(&bytes);
        }
    }
    let compressed = zstd::bulk::compress(&files_bytes, COMPRESSION_LEVEL).unwrap();
    let checksum = crc32c::crc32c(&compressed);
    [&MAGIC[..], &VERSION.to_le_bytes(), &checksum.to_le_bytes(), &compressed].concat()
}

/// Reads fields off the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("the archive ends in the middle")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.bytes(4)?;
        bytes.try_into().map(u32::from_le_bytes).map_err(|error| format!("{error}"))
    }

    fn u64(&mut self) -> Result<u64, String> {
        let bytes = self.bytes(8)?;
        bytes.try_into().map(u64::from_le_bytes).map_err(|error| format!("{error}"))
    }
}

/// Makes the files of an archive below `folder`.
pub(crate) fn unpack(archive: &[u8], folder: &Path) -> Result<(), String> {
    let mut header = Fields(archive);
    let (magic, version, checksum) = (header.bytes(MAGIC.len())?, header.u32()?, header.u32()?);
    if magic != MAGIC || version != VERSION {
        return Err(format!("not an archive of version {VERSION}"));
    }
    if crc32c::crc32c(&archive[HEADER_BYTES..]) != checksum {
        return Err("the archive is damaged: its checksum is another".to_owned());
    }
    let files_bytes = zstd::stream::decode_all(header.0).map_err(|error| error.to_string())?;
    let mut fields = Fields(&files_bytes);
    while !fields.0.is_empty() {
        let length = fields.u32()? as usize;
        let name = std::str::from_utf8(fields.bytes(length)?).map_err(|error| error.to_string())?;
        let path = folder.join(name);
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(said)?;
        let file = File::create_new(&path).map_err(said)?;
        file.set_len(fields.u64()?).map_err(said)?;
        for _ in 0..fields.u32()? {
            let (offset, length) = (fields.u64()?, fields.u32()? as usize);
            file.write_all_at(fields.bytes(length)?, offset).map_err(said)?;
        }
    }
    Ok(())
}
