//! Compressed block contents: `varint uncompressed length, varint compressed length, bytes, zeros`.

use super::buffer::AlignedBuffer;
use crate::encoding::{Damage, Decoder, append_varint};
use crate::options::Compression;
use std::cell::RefCell;

const ZSTD_LEVEL: i32 = 3;

/// Compresses blocks, keeping its working memory.
pub(crate) struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
}

impl Compressor {
    pub(crate) fn new(compression: Compression) -> Self {
        let zstd = match compression {
            Compression::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            _ => None,
        };
        Compressor { compression, zstd, scratch: Vec::new() }
    }

    /// Replaces `out` by the compressed contents and says how they are compressed; `None`
    /// when that would not save an eighth, and the block stays as it is.
    pub(crate) fn compress(&mut self, contents: &[u8], out: &mut Vec<u8>) -> Option<Compression> {
        let limit = contents.len() - contents.len() / 8;
        let length = match self.compression {
            Compression::None => return None,
            Compression::Lz4 => {
                let bound = lz4_flex::block::get_maximum_output_size(contents.len());
                self.scratch.resize(bound.max(self.scratch.len()), 0);
                lz4_flex::block::compress_into(contents, &mut self.scratch).ok()?
            }
            Compression::Zstd => {
                // Without room for more than is wanted, it stops early.
                self.scratch.resize(limit.max(self.scratch.len()), 0);
                self.zstd.as_mut()?.compress_to_buffer(contents, &mut self.scratch[..limit]).ok()?
            }
        };
        out.clear();
        append_varint(out, contents.len() as u64);
        append_varint(out, length as u64);
        out.extend_from_slice(self.scratch.get(..length)?);
        (out.len() <= limit).then_some(self.compression)
    }
}

/// Compressed contents, taken apart.
pub(crate) struct Compressed<'a> {
    /// Uncompressed length, within the limit asked for.
    pub(crate) length: usize,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Compressed<'a> {
    /// Takes contents apart. `limit` bounds the uncompressed length before memory is taken.
    pub(crate) fn decode(contents: &'a [u8], limit: u64) -> Result<Self, Damage> {
        let mut decoder = Decoder::new(contents);
        let length = decoder.varint_at_most(limit.min(isize::MAX as u64), "uncompressed length")? as usize;
        let compressed_length = decoder.varint("compressed length")?;
        let at = decoder.position();
        let bytes = decoder.bytes(compressed_length, "compressed bytes")?;
        Ok(Compressed { length, bytes, at })
    }

    /// Fills `out`, which has the uncompressed length.
    pub(crate) fn decompress(&self, compression: Compression, out: &mut [u8]) -> Result<(), Damage> {
        let result = match compression {
            Compression::None => Err("no compression".to_owned()),
            Compression::Lz4 => lz4_flex::block::decompress_into(self.bytes, out).map_err(|error| error.to_string()),
            Compression::Zstd => decompress_zstd(self.bytes, out).map_err(|error| error.to_string()),
        };
        match result {
            Ok(found) if found == self.length => Ok(()),
            Ok(found) => {
                Err(Decoder::damage(self.at, format!("{} bytes of {compression:?}", self.length), found.to_string()))
            }
            Err(error) => Err(Decoder::damage(self.at, format!("{} bytes of {compression:?}", self.length), error)),
        }
    }
}

/// Length without padding of compressed contents that `bytes` begin with. `None` where they do not.
pub(crate) fn contents_length(bytes: &[u8], limit: u64) -> Option<usize> {
    let mut decoder = Decoder::new(bytes);
    let length = decoder.varint("uncompressed length").ok()?;
    let compressed_length = decoder.varint("compressed length").ok()?;
    // Contents that do not shrink are stored as they are.
    let is_likely = length <= limit && compressed_length > 0 && compressed_length < length;
    is_likely.then(|| usize::try_from(compressed_length).ok()?.checked_add(decoder.position())).flatten()
}

/// Undoes [`Compressor::compress`]. `limit` bounds the uncompressed length before memory is taken.
pub(crate) fn decompress(contents: &[u8], compression: Compression, limit: u64) -> Result<AlignedBuffer, Damage> {
    let compressed = Compressed::decode(contents, limit)?;
    let Some(mut out) = AlignedBuffer::zeroed(compressed.length, 1) else {
        return Err(Decoder::damage(0, "an uncompressed length there is memory for", compressed.length.to_string()));
    };
    compressed.decompress(compression, &mut out)?;
    Ok(out)
}

/// Fills `out` from the start, and gives the bytes. A thread keeps its context, some 100 KiB: one costs more to make than a block to
/// read.
fn decompress_zstd(bytes: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let kept = CONTEXT.try_with(|context| {
        let mut context = context.borrow_mut();
        let context = match &mut *context {
            Some(context) => context,
            None => context.insert(zstd::bulk::Decompressor::new()?),
        };
        context.decompress_to_buffer(bytes, out)
    });
    // The thread is ending, and has given its own back.
    kept.unwrap_or_else(|_| zstd::bulk::decompress_to_buffer(bytes, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn contents_return_and_what_does_not_shrink_is_left() {
        let mut random = Random::seeded(5);
        for compression in [Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(compression);
            for length in [64, 1000, 4096, 100_000] {
                let mut contents = vec![0; length];
                random.fill_bytes(&mut contents);
                let mut out = Vec::new();
                assert_eq!(compressor.compress(&contents, &mut out), None);
                contents[length / 4..].fill(7);
                assert_eq!(compressor.compress(&contents, &mut out), Some(compression));
                out.extend_from_slice(&[0; 100]);
                assert_eq!(*decompress(&out, compression, length as u64).expect("sound"), contents[..]);
                assert!(decompress(&out, compression, length as u64 - 1).is_err());
            }
        }
        assert_eq!(Compressor::new(Compression::None).compress(&[0; 1000], &mut Vec::new()), None);
    }

    #[test]
    fn any_bytes_are_refused_or_decoded() {
        for seed in 0..2000 {
            let mut random = Random::seeded(seed);
            let compression = if random.chance(1, 2) { Compression::Lz4 } else { Compression::Zstd };
            let mut out = Vec::new();
            Compressor::new(compression).compress(&[9; 300], &mut out);
            for _ in 0..1 + random.below(4) {
                let position = random.index(out.len());
                out[position] = random.next_u64() as u8;
            }
            out.truncate(random.index(out.len() * 2).max(1));
            if let Ok(contents) = decompress(&out, compression, 1 << 20) {
                assert!(contents.len() <= 1 << 20);
            }
        }
    }
}
