//! What follows the contents of every block on the medium: how they are compressed, and a checksum.

use crate::checksum;
use crate::encoding::{Damage, Decoder, read_u32};
use crate::options::Compression;

/// Bytes after the contents of every block.
pub(crate) const BLOCK_TRAILER_BYTES: usize = 5;
/// Largest `block_size` and `block_align`; so starts of entries fit in 32 bits whatever the entries.
pub(crate) const BLOCK_SIZE_MAX: usize = 256 << 20;

/// What makes a block's checksum depend on where the block belongs.
#[inline]
pub(crate) fn place(table_id: u64, offset_bytes: u64) -> u32 {
    let mixed = (table_id ^ offset_bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)) as u32
}

/// Number of a compression in a block trailer.
pub(crate) fn compression_number(compression: Compression) -> u8 {
    match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
        Compression::Zstd => 2,
    }
}

/// Trailer of a block at `offset_bytes` whose contents have the crc32c `contents_checksum`.
#[inline]
pub(crate) fn block_trailer(
    compression: Compression,
    contents_checksum: u32,
    table_id: u64,
    offset_bytes: u64,
) -> [u8; BLOCK_TRAILER_BYTES] {
    let kind = [compression_number(compression)];
    let checksum = checksum::extend(contents_checksum, &kind) ^ place(table_id, offset_bytes);
    let mut trailer = [0; BLOCK_TRAILER_BYTES];
    trailer[0] = kind[0];
    trailer[1..].copy_from_slice(&checksum.to_le_bytes());
    trailer
}

/// Verifies the checksum of a block as it is on the medium.
#[inline]
pub(crate) fn verify_block(block: &[u8], table_id: u64, offset_bytes: u64) -> Result<(), Damage> {
    let Some(kind_at) = block.len().checked_sub(BLOCK_TRAILER_BYTES) else {
        return Err(Decoder::damage(
            0,
            format!("a trailer of {BLOCK_TRAILER_BYTES} bytes"),
            format!("{} bytes", block.len()),
        ));
    };
    let expected = checksum::crc32c(&block[..=kind_at]) ^ place(table_id, offset_bytes);
    let found = read_u32(block, kind_at + 1);
    if expected == found {
        return Ok(());
    }
    Err(Decoder::damage(kind_at + 1, format!("block checksum {expected:#010x}"), format!("{found:#010x}")))
}

/// Splits a block into contents and compression, without verifying the checksum.
#[inline]
pub(crate) fn split_block(block: &[u8]) -> Result<(&[u8], Compression), Damage> {
    let Some(kind_at) = block.len().checked_sub(BLOCK_TRAILER_BYTES) else {
        return Err(Decoder::damage(
            0,
            format!("a trailer of {BLOCK_TRAILER_BYTES} bytes"),
            format!("{} bytes", block.len()),
        ));
    };
    let compression = match block[kind_at] {
        0 => Compression::None,
        1 => Compression::Lz4,
        2 => Compression::Zstd,
        other => {
            return Err(Decoder::damage(kind_at, "compression 0 (none), 1 (LZ4) or 2 (Zstandard)", other.to_string()));
        }
    };
    Ok((&block[..kind_at], compression))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_fails_its_checksum_anywhere_else() {
        let contents = b"some contents";
        let mut block = contents.to_vec();
        block.extend_from_slice(&block_trailer(Compression::None, checksum::crc32c(contents), 9, 4096));
        assert!(verify_block(&block, 9, 4096).is_ok());
        assert_eq!(split_block(&block).expect("sound"), (&contents[..], Compression::None));
        assert!(verify_block(&block, 9, 8192).is_err());
        assert!(verify_block(&block, 8, 4096).is_err());
        for position in 0..block.len() {
            let mut damaged = block.clone();
            damaged[position] ^= 0x10;
            assert!(verify_block(&damaged, 9, 4096).is_err(), "byte {position}");
        }
        for length in 0..BLOCK_TRAILER_BYTES {
            assert!(verify_block(&block[..length], 9, 4096).is_err());
            assert!(split_block(&block[..length]).is_err());
        }
    }
}
