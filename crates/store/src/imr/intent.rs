//! The intent of a rewrite: what lies in the backup region, and for whom.
//!
//! A place in the backup region begins with the intent; the copies follow, each at the beginning of a
//! top track of its own. Intent and copies are durable before the first bottom track is written that
//! endangers what was copied. Little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VIMRSAVE` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | crc32c of all of the intent, this field as zero |
//! | 16 | 8 | store id |
//! | 24 | 8 | sequence: higher than that of every intent before it |
//! | 32 | 4 | number of the place |
//! | 36 | 4 | tops saved |
//! | 40 | 24 each | track (4), crc32c of the copy (4), file it belongs to (8), bytes of the copy (8) |
//!
//! Copies are in the order of the table. An intent counts while the S2TMap does not call its sequence
//! done. A copy counts while the intent does, its crc32c is right, and the track still belongs to the
//! file: then rewriting the track from the copy is right, whatever happened to the track, and may be
//! repeated. An intent that cannot be read may count, and a copy that cannot be read may be the only one, unless the
//! track holds the same: then the store is not opened, and nothing is written. So nothing has to tell whether the whole backup was complete: if it was not, no bottom was
//! written, and the tracks hold the same as the copies.

use crate::wire::{Reader, Writer};
use varve_media::TrackId;

const MAGIC: [u8; 8] = *b"VIMRSAVE";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const ENTRY_BYTES: usize = 24;
const CHECKSUM: std::ops::Range<usize> = 12..16;

/// One top that was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedTop {
    pub(super) track: TrackId,
    /// File the track belongs to.
    pub(super) file: u64,
    /// Bytes of the track that count: the copy.
    pub(super) length_bytes: u64,
    /// crc32c of them.
    pub(super) checksum: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) store_id: u64,
    pub(super) sequence: u64,
    pub(super) place: u32,
    pub(super) tops: Vec<SavedTop>,
}

/// Bytes of an intent that names so many tops.
pub(super) fn intent_bytes(tops: usize) -> usize {
    HEADER_BYTES + tops * ENTRY_BYTES
}

fn checksum(bytes: &[u8]) -> u32 {
    let head = crc32c::crc32c(&bytes[..CHECKSUM.start]);
    let head = crc32c::crc32c_append(head, &[0; 4]);
    crc32c::crc32c_append(head, &bytes[CHECKSUM.end..])
}

/// The bytes with magic, version and the checksum of as many tops as they name: what random bytes would
/// never have.
pub(super) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut framed = bytes.to_vec();
    framed.resize(framed.len().max(HEADER_BYTES), 0);
    framed[..8].copy_from_slice(&MAGIC);
    framed[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let mut count = [0; 4];
    count.copy_from_slice(&framed[36..40]);
    let tops = (u32::from_le_bytes(count) as usize).min((framed.len() - HEADER_BYTES) / ENTRY_BYTES);
    let checksum = checksum(&framed[..intent_bytes(tops)]);
    framed[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    framed
}

impl Intent {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(&MAGIC);
        writer.u32(VERSION);
        writer.u32(0);
        writer.u64(self.store_id);
        writer.u64(self.sequence);
        writer.u32(self.place);
        writer.u32(self.tops.len() as u32);
        for top in &self.tops {
            writer.u32(top.track.0);
            writer.u32(top.checksum);
            writer.u64(top.file);
            writer.u64(top.length_bytes);
        }
        let mut bytes = writer.into_vec();
        let checksum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Whether bytes that end too early for an intent, because the rest cannot be read, may be the beginning of one
    /// whose sequence is not done.
    pub(super) fn may_count(beginning: &[u8], done: u64) -> bool {
        let sequence = beginning.get(24..).and_then(|bytes| Reader::new(bytes).u64());
        beginning.get(..8).is_none_or(|magic| magic == MAGIC) && sequence.is_none_or(|sequence| sequence > done)
    }

    /// The intent that `bytes` begin with; `None` when there is none, or a torn one, or a damaged one, or
    /// one of another version. Anything may come.
    pub(super) fn decode(bytes: &[u8]) -> Option<Intent> {
        let mut reader = Reader::new(bytes);
        if reader.array()? != MAGIC || reader.u32()? != VERSION {
            return None;
        }
        let stored = reader.u32()?;
        let (store_id, sequence, place) = (reader.u64()?, reader.u64()?, reader.u32()?);
        let count = reader.u32()? as usize;
        // Checked before anything is allocated for them.
        if count > reader.remaining() / ENTRY_BYTES || stored != checksum(bytes.get(..intent_bytes(count))?) {
            return None;
        }
        let mut top = || {
            let (track, checksum) = (TrackId(reader.u32()?), reader.u32()?);
            Some(SavedTop { track, checksum, file: reader.u64()?, length_bytes: reader.u64()? })
        };
        let tops: Option<Vec<SavedTop>> = (0..count).map(|_| top()).collect();
        Some(Intent { store_id, sequence, place, tops: tops? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent() -> Intent {
        let top = |track, file| SavedTop { track: TrackId(track), file, length_bytes: 2 << 20, checksum: 0x0102_0304 };
        Intent { store_id: 0x1122_3344_5566_7788, sequence: 9, place: 1, tops: vec![top(1235, 77), top(1237, 1 << 40)] }
    }

    #[test]
    fn it_comes_back_and_its_bytes_do_not_change() {
        let bytes = intent().encode();
        assert_eq!(bytes.len(), intent_bytes(2));
        assert_eq!(Intent::decode(&bytes), Some(intent()));
        assert_eq!(Intent::decode(&[&bytes[..], &[7; 100]].concat()), Some(intent()));
        // Golden: version 1 of the format.
        assert_eq!(bytes[..12], *b"VIMRSAVE\x01\0\0\0");
        assert_eq!(crc32c::crc32c(&bytes), GOLDEN);
    }

    const GOLDEN: u32 = 0xa639_755b;

    #[test]
    fn torn_and_damaged_ones_are_none() {
        let bytes = intent().encode();
        for length in 0..bytes.len() {
            assert_eq!(Intent::decode(&bytes[..length]), None);
            let mut torn = bytes.clone();
            torn[length..].fill(0);
            assert!(torn == bytes || Intent::decode(&torn).is_none());
        }
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert_eq!(Intent::decode(&damaged), None, "bit {at}");
        }
        assert!(Intent::may_count(&[], 9) && Intent::may_count(&bytes[..20], 9));
        assert!(Intent::may_count(&bytes[..40], 8) && !Intent::may_count(&bytes[..40], 9));
        assert!(!Intent::may_count(&[0; 40], 0));
        let mut huge = bytes;
        huge[36..40].fill(0xff);
        assert_eq!(Intent::decode(&huge), None);
    }
}
