//! The bytes of a frame's header; see the table in [`super`].

use super::LogHeader;
use crate::checksum;

/// Longest payload of one frame.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// Bytes before the mark, or before the payload when there is no mark.
pub(crate) const FIXED_BYTES: usize = 10;

/// Bytes of a mark.
pub(crate) const MARK_BYTES: usize = 8;

/// Longest frame.
pub(crate) const FRAME_BYTES_MAX: usize = FIXED_BYTES + MARK_BYTES + PAYLOAD_BYTES_MAX;

const HAS_MARK: u8 = 0x80;

/// What part of a record a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    Whole = 1,
    First = 2,
    Middle = 3,
    Last = 4,
    Seal = 5,
    Mark = 6,
}

impl FrameKind {
    /// Has a mark and nothing else.
    fn is_only_mark(self) -> bool {
        matches!(self, FrameKind::Seal | FrameKind::Mark)
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(FrameKind::Whole),
            2 => Some(FrameKind::First),
            3 => Some(FrameKind::Middle),
            4 => Some(FrameKind::Last),
            5 => Some(FrameKind::Seal),
            6 => Some(FrameKind::Mark),
            _ => None,
        }
    }
}

/// Where the checksums of a log's frames start from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn of(header: &LogHeader) -> Self {
        let mut bytes = [0; 17];
        bytes[..8].copy_from_slice(&header.salt.to_le_bytes());
        bytes[8..16].copy_from_slice(&header.number.to_le_bytes());
        bytes[16] = header.purpose as u8;
        Seed(checksum::crc32c(&bytes))
    }

    /// Checksum state after the place and the length and kind of a frame; its low half is the check.
    #[inline]
    fn state(self, offset: u64, length_and_kind: [u8; 4]) -> u32 {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&length_and_kind);
        checksum::extend(self.0, &bytes)
    }
}

/// The header of a frame, ready to be written.
pub(crate) struct EncodedHeader {
    bytes: [u8; FIXED_BYTES + MARK_BYTES],
    length: usize,
}

impl EncodedHeader {
    /// The header of a frame at `offset` with the payload that is the concatenation of `pieces`,
    /// which is not longer than [`PAYLOAD_BYTES_MAX`].
    #[inline]
    pub(crate) fn new<'p>(
        seed: Seed,
        offset: u64,
        kind: FrameKind,
        mark: Option<u64>,
        payload_length: usize,
        pieces: impl Iterator<Item = &'p [u8]>,
    ) -> Self {
        debug_assert!(payload_length <= PAYLOAD_BYTES_MAX);
        let mut bytes = [0; FIXED_BYTES + MARK_BYTES];
        let flag = if mark.is_some() { HAS_MARK } else { 0 };
        let word = payload_length as u32 | u32::from(kind as u8 | flag) << 24;
        bytes[4..8].copy_from_slice(&word.to_le_bytes());
        let state = seed.state(offset, word.to_le_bytes());
        bytes[8..10].copy_from_slice(&(state as u16).to_le_bytes());
        let mut length = FIXED_BYTES;
        let mut sum = state;
        if let Some(mark) = mark {
            bytes[FIXED_BYTES..].copy_from_slice(&mark.to_le_bytes());
            length += MARK_BYTES;
            sum = checksum::extend(sum, &bytes[FIXED_BYTES..]);
        }
        for piece in pieces {
            sum = checksum::extend(sum, piece);
        }
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        EncodedHeader { bytes, length }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The first bytes of a frame, whose check is right and whose length is within limits. Whether the
/// rest is sound, only [`Candidate::is_sound`] says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) kind: FrameKind,
    pub(crate) has_mark: bool,
    pub(crate) payload_length: usize,
    checksum: u32,
    state: u32,
}

impl Candidate {
    /// Looks at the first [`FIXED_BYTES`] of what may be a frame at `offset`.
    #[inline]
    pub(crate) fn parse(seed: Seed, offset: u64, bytes: &[u8; FIXED_BYTES]) -> Option<Candidate> {
        let has_mark = bytes[7] & HAS_MARK != 0;
        let kind = FrameKind::from_number(bytes[7] & !HAS_MARK)?;
        let payload_length = usize::from(bytes[4]) | usize::from(bytes[5]) << 8 | usize::from(bytes[6]) << 16;
        if payload_length > PAYLOAD_BYTES_MAX || (kind.is_only_mark() && (!has_mark || payload_length > 0)) {
            return None;
        }
        let state = seed.state(offset, [bytes[4], bytes[5], bytes[6], bytes[7]]);
        if state as u16 != u16::from_le_bytes([bytes[8], bytes[9]]) {
            return None;
        }
        let checksum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Some(Candidate { kind, has_mark, payload_length, checksum, state })
    }

    /// Bytes before the payload.
    #[inline]
    pub(crate) fn header_length(&self) -> usize {
        if self.has_mark { FIXED_BYTES + MARK_BYTES } else { FIXED_BYTES }
    }

    /// Bytes of the whole frame.
    #[inline]
    pub(crate) fn frame_length(&self) -> usize {
        self.header_length() + self.payload_length
    }

    /// The checksum is right; `frame` is the whole frame.
    #[inline]
    pub(crate) fn is_sound(&self, frame: &[u8]) -> bool {
        checksum::extend(self.state, &frame[FIXED_BYTES..]) == self.checksum
    }

    /// The mark, if it has one; `frame` is the whole frame.
    #[inline]
    pub(crate) fn mark(&self, frame: &[u8]) -> Option<u64> {
        if !self.has_mark {
            return None;
        }
        frame[FIXED_BYTES..].first_chunk::<MARK_BYTES>().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Where in `bytes` the first thing is that may be a frame with a mark, to skip the rest quickly.
pub(crate) fn possible_mark(bytes: &[u8]) -> Option<usize> {
    let kinds = bytes.get(7..)?;
    kinds.iter().position(|&byte| FrameKind::from_number(byte & !HAS_MARK).is_some() && byte & HAS_MARK != 0)
}
