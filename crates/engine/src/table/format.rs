//! Bytes of a table file: what builder and reader share.
//!
//! A table is written once, front to back. Little-endian throughout; varints as in
//! [`crate::encoding`].
//!
//! | part | contents |
//! |---|---|
//! | data blocks | one after the other from offset 0, no gaps between them |
//! | filter block | optional; directly after the last data block ([`super::filter`]) |
//! | index block | directly after the filter ([`super::index`]) |
//! | properties block | directly after the index ([`super::properties`]) |
//! | footer | the last 80 bytes |
//!
//! Every block, whatever it holds:
//!
//! | bytes | field |
//! |---|---|
//! | n | contents |
//! | 1 | low four bits: compression of the contents (0 none, 1 LZ4 block, 2 Zstandard frame); others: 0 |
//! | 4 | checksum: `crc32c(contents and the byte after them) ^ place(table id, offset)` |
//!
//! `place` is the exclusive or of the two halves of `(table id ^ offset of the block) *
//! 0x9E3779B97F4A7C15` modulo 2^64: a sound block read from the wrong place, or from another table
//! because a write was misdirected, fails its checksum. The checksum is not masked as LevelDB's is, since
//! nothing computes checksums over checksums here.
//!
//! Contents that are compressed are `varint uncompressed length, varint compressed length,
//! compressed bytes, zeros`. With sector-aligned blocks, contents are padded so that each block with
//! its trailer ends where the next multiple of `block_align` begins: a data block ([`super::block`])
//! has its padding inside, compressed contents have it at their end. Padding is checksummed.
//!
//! Footer:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | offset of the properties block |
//! | 8 | 8 | its length with the trailer |
//! | 16 | 8 | offset of the index block |
//! | 24 | 8 | its length with the trailer |
//! | 32 | 8 | offset of the filter block |
//! | 40 | 8 | its length with the trailer; 0 when there is no filter |
//! | 48 | 8 | table id, a random number that the manifest has too; part of every block's checksum |
//! | 56 | 4 | format version, 1 |
//! | 60 | 4 | feature bits a reader must know to read the table; none so far: bits 0 (range deletes) and 1 (a key space) are kept |
//! | 64 | 4 | zero |
//! | 68 | 4 | crc32c of bytes 0 to 67 |
//! | 72 | 8 | magic, the letters `VARVETBL` |

use crate::block::BLOCK_TRAILER_BYTES;
use crate::checksum;
use crate::encoding::{Damage, Decoder, read_u64};
use std::ops::Range;

pub(crate) const MAGIC: [u8; 8] = *b"VARVETBL";
pub(crate) const FORMAT_VERSION: u32 = 1;
pub(crate) const FOOTER_BYTES: usize = 80;
const FOOTER_CHECKSUM_AT: usize = 68;
const KNOWN_FEATURES: u32 = 0;

/// What feature bits are kept for (`docs/design/0005-range-deletes-and-key-spaces.md`).
const KEPT_FEATURES: [(u32, &str); 2] = [(1, "range deletes"), (2, "a key space")];

/// The names of those that have one, for messages.
fn features_in_words(features: u32) -> String {
    let names: Vec<&str> = KEPT_FEATURES.iter().filter(|(bit, _)| features & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// Where a block is: its contents and its trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockHandle {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

impl BlockHandle {
    /// Where the block is. Of a handle that was checked against its file.
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset_bytes..self.offset_bytes + self.length_bytes
    }

    pub(crate) fn end(&self) -> Option<u64> {
        self.offset_bytes.checked_add(self.length_bytes)
    }
}

/// The fixed end of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) properties: BlockHandle,
    pub(crate) index: BlockHandle,
    /// Length 0 when there is no filter; the offset is where the data ends in any case.
    pub(crate) filter: BlockHandle,
    pub(crate) table_id: u64,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for handle in [&self.properties, &self.index, &self.filter] {
            out.extend_from_slice(&handle.offset_bytes.to_le_bytes());
            out.extend_from_slice(&handle.length_bytes.to_le_bytes());
        }
        out.extend_from_slice(&self.table_id.to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&KNOWN_FEATURES.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        let checksum = checksum::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// Decodes the last bytes of a table of `size_bytes` and checks that its parts lie one after
    /// the other and fill the file.
    pub(crate) fn decode(bytes: &[u8; FOOTER_BYTES], size_bytes: u64) -> Result<Self, Damage> {
        let number = |at: usize| read_u64(bytes, at);
        let half = |at: usize| number(at) as u32;
        if bytes[72..] != MAGIC {
            return Err(Decoder::damage(
                72,
                format!("magic {}", MAGIC.escape_ascii()),
                bytes[72..].escape_ascii().to_string(),
            ));
        }
        // Newer versions keep magic, version and features in these places, whatever else they move.
        let version = half(56);
        let features = half(60);
        let expected = checksum::crc32c(&bytes[..FOOTER_CHECKSUM_AT]);
        let found = half(FOOTER_CHECKSUM_AT);
        if expected != found {
            return Err(Decoder::damage(
                FOOTER_CHECKSUM_AT,
                format!("checksum {expected:#010x}"),
                format!("{found:#010x}"),
            ));
        }
        if version > FORMAT_VERSION || features & !KNOWN_FEATURES != 0 {
            let mut damage = Decoder::damage(
                56,
                format!("format version up to {FORMAT_VERSION} without features"),
                format!("version {version}, features {features:#x}{}", features_in_words(features)),
            );
            damage.newer = true;
            return Err(damage);
        }
        if version != FORMAT_VERSION {
            return Err(Decoder::damage(56, format!("format version {FORMAT_VERSION}"), version.to_string()));
        }
        let handle = |at: usize| BlockHandle { offset_bytes: number(at), length_bytes: number(at + 8) };
        let footer = Footer { properties: handle(0), index: handle(16), filter: handle(32), table_id: number(48) };
        let least = BLOCK_TRAILER_BYTES as u64;
        let adjoin = footer.filter.end() == Some(footer.index.offset_bytes)
            && footer.index.end() == Some(footer.properties.offset_bytes)
            && footer.properties.end() == size_bytes.checked_sub(FOOTER_BYTES as u64);
        let sound = adjoin
            && (footer.filter.length_bytes == 0 || footer.filter.length_bytes >= least)
            && footer.index.length_bytes >= least
            && footer.properties.length_bytes >= least;
        if !sound {
            return Err(Decoder::damage(
                0,
                format!("filter, index and properties that end at {}", size_bytes.saturating_sub(FOOTER_BYTES as u64)),
                format!("{footer:?}"),
            ));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Footer {
        Footer {
            filter: BlockHandle { offset_bytes: 1000, length_bytes: 77 },
            index: BlockHandle { offset_bytes: 1077, length_bytes: 23 },
            properties: BlockHandle { offset_bytes: 1100, length_bytes: 50 },
            table_id: 0x0102_0304_0506_0708,
        }
    }

    #[test]
    fn footer_is_these_bytes() {
        let expected: [u8; FOOTER_BYTES] = [
            0x4c, 0x04, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, // properties
            0x35, 0x04, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 0, 0, 0, 0, // index
            0xe8, 0x03, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, // filter
            8, 7, 6, 5, 4, 3, 2, 1, // table id
            1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // version, features, zero
            0, 0, 0, 0, // checksum, below
            b'V', b'A', b'R', b'V', b'E', b'T', b'B', b'L',
        ];
        let mut expected = expected;
        let checksum = checksum::crc32c(&expected[..68]);
        expected[68..72].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(sample().encode(), expected);
        assert_eq!(Footer::decode(&expected, 1150 + 80).expect("sound"), sample());
    }

    #[test]
    fn every_flip_and_every_other_size_is_refused() {
        let bytes = sample().encode();
        for position in 0..FOOTER_BYTES {
            for bit in 0..8 {
                let mut damaged = bytes;
                damaged[position] ^= 1 << bit;
                assert!(Footer::decode(&damaged, 1230).is_err(), "byte {position} bit {bit}");
            }
        }
        for size in [0, 79, 80, 1229, 1231, u64::MAX] {
            assert!(Footer::decode(&bytes, size).is_err(), "size {size}");
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut bytes = sample().encode();
        bytes[56] = 2;
        let checksum = checksum::crc32c(&bytes[..68]);
        bytes[68..72].copy_from_slice(&checksum.to_le_bytes());
        assert!(Footer::decode(&bytes, 1230).expect_err("newer").newer);
        for (features, name) in
            [(1, "(range deletes)"), (2, "(a key space)"), (3, "(range deletes, a key space)"), (4, "0x4;")]
        {
            let mut bytes = sample().encode();
            bytes[60] = features;
            let checksum = checksum::crc32c(&bytes[..68]);
            bytes[68..72].copy_from_slice(&checksum.to_le_bytes());
            let error = Footer::decode(&bytes, 1230).expect_err("newer").in_file("000007.sst", 0, "footer");
            let error = error.to_string();
            assert!(error.contains(name) && error.contains("newer version"), "{error}");
        }
    }
}
