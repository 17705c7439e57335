//! The eight bytes that protect one interval of data.
//!
//! | bytes | field |
//! |---|---|
//! | 0-1 | guard tag: checksum of the interval's data |
//! | 2-3 | application tag: the application's; FFFFh is the escape |
//! | 4-7 | reference tag: low 32 bits of the interval's number (types 1 and 2); the application's (type 3) |
//!
//! Source: SBC-4, clause 4.21.2; `struct t10_pi_tuple` of Linux.

// T10 protection information is big-endian.
#![allow(clippy::big_endian_bytes)]

use super::ProtectionType;

/// A tuple of protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionTuple {
    /// Checksum of the interval's data.
    pub guard: u16,
    /// Value of the application; [`ProtectionTuple::APPLICATION_ESCAPE`] disables checks.
    pub application: u16,
    /// Place of the interval; a value of the application in type 3.
    pub reference: u32,
}

impl ProtectionTuple {
    /// Length of an encoded tuple, in bytes.
    pub const BYTES: usize = 8;
    /// Application tag of a tuple that is not checked (in type 3 together with [`Self::REFERENCE_ESCAPE`]).
    pub const APPLICATION_ESCAPE: u16 = 0xFFFF;
    /// Reference tag of a type 3 tuple that is not checked.
    pub const REFERENCE_ESCAPE: u32 = 0xFFFF_FFFF;
    /// Tuple of an interval that was never written or was discarded. It is an escape in every type. Drives format with it (SBC-4,
    /// clause 4.21.3).
    pub const UNWRITTEN: ProtectionTuple = ProtectionTuple {
        guard: 0xFFFF,
        application: ProtectionTuple::APPLICATION_ESCAPE,
        reference: ProtectionTuple::REFERENCE_ESCAPE,
    };
    /// Value of every byte of an encoded [`Self::UNWRITTEN`].
    pub(crate) const UNWRITTEN_BYTE: u8 = 0xFF;

    /// Decodes a tuple. Every value is valid.
    pub fn decode(bytes: [u8; ProtectionTuple::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        ProtectionTuple {
            guard: u16::from_be_bytes([a, b]),
            application: u16::from_be_bytes([c, d]),
            reference: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// Encodes the tuple.
    pub fn encode(&self) -> [u8; ProtectionTuple::BYTES] {
        let ([a, b], [c, d]) = (self.guard.to_be_bytes(), self.application.to_be_bytes());
        let [e, f, g, h] = self.reference.to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Returns true if the tuple disables the checks of its interval.
    pub fn is_escape(&self, protection_type: ProtectionType) -> bool {
        self.application == ProtectionTuple::APPLICATION_ESCAPE
            && (protection_type != ProtectionType::Type3 || self.reference == ProtectionTuple::REFERENCE_ESCAPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuples_are_big_endian() {
        let tuple = ProtectionTuple { guard: 0x0102, application: 0x0304, reference: 0x0506_0708 };
        assert_eq!(tuple.encode(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ProtectionTuple::decode([1, 2, 3, 4, 5, 6, 7, 8]), tuple);
        assert_eq!(ProtectionTuple::UNWRITTEN.encode(), [ProtectionTuple::UNWRITTEN_BYTE; 8]);
    }

    #[test]
    fn escapes_depend_on_the_type() {
        use ProtectionType::{Type1, Type2, Type3};
        let escape = |application, reference| {
            [Type1, Type2, Type3].map(|of| ProtectionTuple { guard: 0, application, reference }.is_escape(of))
        };
        assert_eq!(escape(0xFFFF, 7), [true, true, false]);
        assert_eq!(escape(0xFFFF, 0xFFFF_FFFF), [true, true, true]);
        assert_eq!(escape(0xFFFE, 0xFFFF_FFFF), [false, false, false]);
    }
}
