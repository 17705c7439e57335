//! Where a small file lies: parts of frames, in file order.

/// A part of a small file that one frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First byte in the file.
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    pub(super) band: u32,
    /// Where the frame starts in the band.
    pub(super) frame_at: u64,
    /// Offset in the file of the first byte of the frame.
    pub(super) frame_offset_bytes: u64,
    /// Bytes of the file in the frame.
    pub(super) frame_payload_bytes: u32,
}

impl Piece {
    /// All that a frame holds.
    pub(super) fn whole(band: u32, frame_at: u64, offset_bytes: u64, payload_bytes: u32) -> Piece {
        Piece {
            offset_bytes,
            length_bytes: u64::from(payload_bytes),
            band,
            frame_at,
            frame_offset_bytes: offset_bytes,
            frame_payload_bytes: payload_bytes,
        }
    }

    pub(super) fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }

    /// Bytes of the frame before those of the piece.
    pub(super) fn skip_bytes(&self) -> u64 {
        self.offset_bytes - self.frame_offset_bytes
    }
}

/// Bytes of a band that count no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dead {
    pub(super) band: u32,
    pub(super) bytes: u64,
}

/// The pieces of one small file. They do not overlap; while the log bands are read they may leave gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PieceMap {
    pieces: Vec<Piece>,
}

impl PieceMap {
    /// Bytes of the file.
    pub(super) fn size_bytes(&self) -> u64 {
        self.pieces.last().map_or(0, Piece::end_bytes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    /// The first byte that no piece has.
    pub(super) fn contiguous_bytes(&self) -> u64 {
        let mut at = 0;
        for piece in &self.pieces {
            if piece.offset_bytes != at {
                break;
            }
            at = piece.end_bytes();
        }
        at
    }

    /// The pieces from the one that holds a byte.
    pub(super) fn from(&self, offset_bytes: u64) -> &[Piece] {
        let first = self.pieces.partition_point(|piece| piece.end_bytes() <= offset_bytes);
        match self.pieces.get(first) {
            Some(piece) if piece.offset_bytes <= offset_bytes => &self.pieces[first..],
            _ => &[],
        }
    }

    /// Forgets what lies behind the first `size_bytes`.
    pub(super) fn truncate(&mut self, size_bytes: u64, dead: &mut Vec<Dead>) {
        while let Some(piece) = self.pieces.last_mut() {
            if piece.offset_bytes >= size_bytes {
                dead.push(Dead { band: piece.band, bytes: piece.length_bytes });
                self.pieces.pop();
                continue;
            }
            let kept = piece.length_bytes.min(size_bytes - piece.offset_bytes);
            if kept < piece.length_bytes {
                dead.push(Dead { band: piece.band, bytes: piece.length_bytes - kept });
                piece.length_bytes = kept;
            }
            break;
        }
    }

    /// Adds the piece that ends the file: what lay there and behind it counts no more.
    pub(super) fn append(&mut self, piece: Piece, dead: &mut Vec<Dead>) {
        self.truncate(piece.offset_bytes, dead);
        self.pieces.push(piece);
    }

    /// Puts a copy in place of what the file has there.
    pub(super) fn replace(&mut self, copy: Piece, dead: &mut Vec<Dead>) {
        let first = self.pieces.partition_point(|piece| piece.end_bytes() <= copy.offset_bytes);
        let last = self.pieces.partition_point(|piece| piece.offset_bytes < copy.end_bytes());
        let mut kept = Vec::new();
        for piece in &self.pieces[first..last] {
            let before = copy.offset_bytes.saturating_sub(piece.offset_bytes);
            let behind = piece.end_bytes().saturating_sub(copy.end_bytes());
            if before > 0 {
                kept.push(Piece { length_bytes: before, ..*piece });
            }
            dead.push(Dead { band: piece.band, bytes: piece.length_bytes - before - behind });
            if behind > 0 {
                kept.push(Piece { offset_bytes: copy.end_bytes(), length_bytes: behind, ..*piece });
            }
        }
        let at = kept.iter().take_while(|piece| piece.offset_bytes < copy.offset_bytes).count();
        kept.insert(at, copy);
        self.pieces.splice(first..last, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn random_pieces_are_those_of_a_plain_list_of_bytes() {
        let seed = 5;
        let mut random = Random::seeded(seed);
        let mut map = PieceMap::default();
        // For every byte of the file the band and the offset in it of the frame's payload, as if it had no header.
        let mut model: Vec<Option<(u32, u64)>> = Vec::new();
        let mut live = [0_i64; 4];
        for step in 0..4000 {
            let context = format!("seed {seed} step {step}");
            let mut dead = Vec::new();
            let (band, at) = (random.below(4) as u32, random.below(1 << 20));
            let length = 1 + random.below(40);
            let size = model.len() as u64;
            if random.chance(2, 3) || size < length {
                // An append, now and then in place of the end, now and then behind a gap.
                let offset = match random.below(8) {
                    0 => random.below(size + 1),
                    1 => size + random.below(20),
                    _ => size,
                };
                map.append(Piece::whole(band, at, offset, length as u32), &mut dead);
                model.resize(offset as usize, None);
                model.extend((0..length).map(|byte| Some((band, at + byte))));
            } else {
                let offset = random.below(size - length + 1);
                map.replace(Piece::whole(band, at, offset, length as u32), &mut dead);
                for byte in 0..length {
                    model[(offset + byte) as usize] = Some((band, at + byte));
                }
            }
            live[band as usize] += length as i64;
            dead.iter().for_each(|dead| live[dead.band as usize] -= dead.bytes as i64);
            if random.chance(1, 40) {
                let mut dead = Vec::new();
                let size = random.below(model.len() as u64 + 1);
                map.truncate(size, &mut dead);
                model.truncate(size as usize);
                dead.iter().for_each(|dead| live[dead.band as usize] -= dead.bytes as i64);
                while model.last() == Some(&None) {
                    model.pop();
                }
            }
            let mut found = vec![None; model.len()];
            for piece in map.iter() {
                for byte in 0..piece.length_bytes {
                    let place = &mut found[(piece.offset_bytes + byte) as usize];
                    assert!(place.is_none(), "{context}");
                    *place = Some((piece.band, piece.frame_at + piece.skip_bytes() + byte));
                }
                assert!(piece.skip_bytes() + piece.length_bytes <= u64::from(piece.frame_payload_bytes), "{context}");
            }
            assert_eq!(found, model, "{context}");
            assert_eq!(map.size_bytes(), model.len() as u64, "{context}");
            let contiguous = model.iter().take_while(|byte| byte.is_some()).count() as u64;
            assert_eq!(map.contiguous_bytes(), contiguous, "{context}");
            for (band, live) in live.iter().enumerate() {
                let expected = model.iter().flatten().filter(|(found, _)| *found as usize == band).count();
                assert_eq!(*live, expected as i64, "{context}");
            }
            let offset = random.below(model.len() as u64 + 2);
            let first = map.from(offset).first();
            let expected = model.get(offset as usize).copied().flatten();
            let place = first.map(|piece| (piece.band, piece.frame_at + offset - piece.frame_offset_bytes));
            assert_eq!(place, expected, "{context}");
        }
    }
}
