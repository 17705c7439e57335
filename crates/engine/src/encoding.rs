//! Reading and writing the small parts that records on a medium are made of.
//!
//! A varint is LEB128: seven bits per byte, lowest first, the top bit set on every byte but the
//! last, in the fewest bytes that hold the value (at most ten). A string is a varint length and
//! that many bytes. Fixed-size integers are little-endian.

use crate::error::Error;

/// What to do with bytes of another version.
pub(crate) fn other_version_advice(newer: bool) -> &'static str {
    match newer {
        true => "it was written by a newer version; open it with that version",
        false => "it was written by an older version; copy the data with that version, or use it there",
    }
}

/// Longest varint, in bytes.
const VARINT_BYTES_MAX: usize = 10;

/// Eight bytes at `at`, as a number; the caller has checked that they are there.
#[inline(always)]
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Four bytes at `at`, as a number; the caller has checked that they are there.
#[inline(always)]
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// Appends `value` as a varint.
#[inline]
pub(crate) fn append_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes of `value` as a varint.
pub(crate) fn varint_bytes(value: u64) -> u64 {
    u64::from((u64::BITS - value.leading_zeros()).max(1).div_ceil(7))
}

/// Appends `bytes` as a string.
#[inline]
pub(crate) fn append_string(out: &mut Vec<u8>, bytes: &[u8]) {
    append_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that are not what a decoder expects, before it is known in which file they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Where, from the start of what was decoded.
    pub(crate) offset_bytes: u64,
    /// What was expected there.
    pub(crate) expected: String,
    /// What is there.
    pub(crate) found: String,
    /// The bytes are sound, but only a newer version can know what they mean.
    pub(crate) newer: bool,
    /// The bytes are sound, and of a version that is no longer read.
    pub(crate) older: bool,
}

impl Damage {
    /// The error for damage of `structure` in a record at `record_offset_bytes` of `file`.
    pub(crate) fn in_file(self, file: &str, record_offset_bytes: u64, structure: &str) -> Error {
        let offset_bytes = record_offset_bytes.saturating_add(self.offset_bytes);
        if self.newer || self.older {
            Error::Foreign {
                file: file.to_string(),
                offset_bytes,
                expected: self.expected,
                found: self.found,
                advice: other_version_advice(self.newer).to_string(),
            }
        } else {
            Error::Corruption {
                file: file.to_string(),
                offset_bytes,
                structure: structure.to_string(),
                expected: self.expected,
                found: self.found,
            }
        }
    }
}

/// Takes parts from the front of a slice and never reads past it.
#[derive(Clone, Debug)]
pub(crate) struct Decoder<'a> {
    whole: &'a [u8],
    position: usize,
}

impl<'a> Decoder<'a> {
    #[inline]
    pub(crate) fn new(whole: &'a [u8]) -> Self {
        Decoder { whole, position: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.position == self.whole.len()
    }

    /// Bytes taken so far.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.whole.len() - self.position
    }

    /// Damage at `position`.
    #[cold]
    pub(crate) fn damage(position: usize, expected: impl Into<String>, found: impl Into<String>) -> Damage {
        Damage {
            offset_bytes: position as u64,
            expected: expected.into(),
            found: found.into(),
            newer: false,
            older: false,
        }
    }

    #[inline]
    pub(crate) fn byte(&mut self, what: &str) -> Result<u8, Damage> {
        match self.whole.get(self.position) {
            Some(&byte) => {
                self.position += 1;
                Ok(byte)
            }
            None => Err(Self::damage(self.position, what, "the end")),
        }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, length: u64, what: &str) -> Result<&'a [u8], Damage> {
        let remaining = self.remaining();
        match usize::try_from(length) {
            Ok(length) if length <= remaining => {
                let start = self.position;
                self.position += length;
                Ok(&self.whole[start..self.position])
            }
            _ => Err(Self::damage(self.position, format!("{length} bytes of {what}"), format!("{remaining} bytes"))),
        }
    }

    #[inline]
    pub(crate) fn fixed_u64(&mut self, what: &str) -> Result<u64, Damage> {
        let remaining = self.remaining();
        match self.whole[self.position..].first_chunk::<8>() {
            Some(bytes) => {
                self.position += 8;
                Ok(u64::from_le_bytes(*bytes))
            }
            None => Err(Self::damage(self.position, format!("8 bytes of {what}"), format!("{remaining} bytes"))),
        }
    }

    #[inline]
    pub(crate) fn varint(&mut self, what: &str) -> Result<u64, Damage> {
        match self.whole.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(what),
        }
    }

    fn long_varint(&mut self, what: &str) -> Result<u64, Damage> {
        let start = self.position;
        let mut value = 0u64;
        for index in 0..VARINT_BYTES_MAX {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if index == VARINT_BYTES_MAX - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * index);
            if byte < 0x80 {
                if byte == 0 && index > 0 {
                    break;
                }
                return Ok(value);
            }
        }
        Err(Self::damage(start, format!("{what} as a shortest varint of 64 bits"), "another encoding"))
    }

    /// A varint that must not exceed `limit`; checked before anything is allocated for it.
    #[inline]
    pub(crate) fn varint_at_most(&mut self, limit: u64, what: &str) -> Result<u64, Damage> {
        let start = self.position;
        let value = self.varint(what)?;
        if value > limit {
            return Err(Self::damage(start, format!("{what} of at most {limit}"), value.to_string()));
        }
        Ok(value)
    }

    /// A string of at most `limit` bytes.
    #[inline]
    pub(crate) fn string(&mut self, limit: usize, what: &str) -> Result<&'a [u8], Damage> {
        let length = self.varint_at_most(limit as u64, what)?;
        self.bytes(length, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_return_and_other_encodings_are_refused() {
        let values = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), 1 << 56, u64::MAX - 1, u64::MAX];
        let mut out = Vec::new();
        for value in values {
            append_varint(&mut out, value);
        }
        let mut decoder = Decoder::new(&out);
        for value in values {
            assert_eq!(decoder.varint("value"), Ok(value));
        }
        assert!(decoder.is_empty());
        for bad in [&[0x80][..], &[0x80, 0x00], &[0xff; 10], &[0xff; 11], &[0x80; 11], &[]] {
            assert!(Decoder::new(bad).varint("value").is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lengths_are_checked_before_bytes_are_taken() {
        let mut out = Vec::new();
        append_string(&mut out, b"abc");
        assert_eq!(Decoder::new(&out).string(3, "name"), Ok(&b"abc"[..]));
        assert!(Decoder::new(&out).string(2, "name").is_err());
        assert!(Decoder::new(&out[..3]).string(3, "name").is_err());
        let mut huge = Vec::new();
        append_varint(&mut huge, u64::MAX);
        assert!(Decoder::new(&huge).string(usize::MAX, "name").is_err());
        assert!(Decoder::new(&[1; 7]).fixed_u64("number").is_err());
    }
}
