//! Ranges cut at the boundaries of chunks.

/// The part of a range that lies in one chunk.
pub(super) struct Piece {
    pub(super) chunk: u64,
    /// First byte within the chunk.
    pub(super) start: usize,
    /// Bytes of the piece.
    pub(super) length: usize,
}

/// Cuts a range at chunk boundaries.
pub(super) fn pieces(offset_bytes: u64, length_bytes: u64, chunk_bytes: u64) -> impl Iterator<Item = Piece> {
    let end = offset_bytes + length_bytes;
    let mut at = offset_bytes;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let chunk = at / chunk_bytes;
        let start = at % chunk_bytes;
        let length = (chunk_bytes - start).min(end - at);
        at += length;
        Some(Piece { chunk, start: start as usize, length: length as usize })
    })
}

/// The pieces of a range that are not whole chunks: at most two.
pub(super) fn edges(offset_bytes: u64, length_bytes: u64, chunk_bytes: u64) -> impl Iterator<Item = Piece> {
    let end = offset_bytes + length_bytes;
    let (first, last) = (offset_bytes / chunk_bytes, end / chunk_bytes);
    let head = pieces(offset_bytes, length_bytes.min((first + 1) * chunk_bytes - offset_bytes), chunk_bytes);
    let tail_start = if last > first { last * chunk_bytes } else { end };
    head.chain(pieces(tail_start, end - tail_start, chunk_bytes))
        .filter(move |piece| piece.length as u64 != chunk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_the_pieces_that_are_not_whole() {
        for offset in 0..30 {
            for length in 0..40 {
                let wanted = pieces(offset, length, 10).filter(|piece| piece.length != 10);
                let shape = |piece: Piece| (piece.chunk, piece.start, piece.length);
                assert!(wanted.map(shape).eq(edges(offset, length, 10).map(shape)), "{length} bytes at {offset}");
            }
        }
    }
}
