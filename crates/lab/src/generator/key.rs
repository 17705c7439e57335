//! How the number of a record becomes a key.

use crate::error::LabError;

/// FNV-1a over the eight bytes of `value`, low byte first, then the magnitude of the signed result:
/// what YCSB spreads keys with (`Utils.fnvhash64`).
pub fn fnv_hash_64(value: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in value.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash as i64).unsigned_abs()
}

/// How record numbers become keys. Keys of different numbers differ, up to collisions of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFormat {
    /// `user` and the decimal FNV-1a hash of the number: YCSB with `insertorder=hashed`. Records
    /// numbered one after the other lie far apart. 5 to 23 bytes.
    YcsbHashed,
    /// `user` and the number in 20 decimal digits: YCSB with `insertorder=ordered`. 24 bytes.
    YcsbOrdered,
    /// The number in decimal, zeros in front, this many bytes: db_bench of LevelDB, whose width is 16.
    Decimal {
        /// Length of every key.
        width_bytes: usize,
    },
}

impl KeyFormat {
    /// Checks that `records` numbers fit.
    ///
    /// # Errors
    /// The width cannot hold the largest number, or is larger than 64 KiB.
    pub fn check(self, records: u64) -> Result<(), LabError> {
        if let KeyFormat::Decimal { width_bytes } = self {
            let needed = decimal_digits(records.saturating_sub(1));
            if width_bytes < needed || width_bytes > 64 << 10 {
                return Err(LabError::invalid(
                    "key size",
                    format!("{width_bytes} bytes; {records} records need keys of {needed} to 65536 bytes"),
                ));
            }
        }
        Ok(())
    }

    /// Replaces `key` by the key of record `number`. Allocates only while `key` grows.
    pub fn write(self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            KeyFormat::YcsbHashed => {
                key.extend_from_slice(b"user");
                append_decimal(fnv_hash_64(number), 1, key);
            }
            KeyFormat::YcsbOrdered => {
                key.extend_from_slice(b"user");
                append_decimal(number, 20, key);
            }
            KeyFormat::Decimal { width_bytes } => append_decimal(number, width_bytes, key),
        }
    }

    /// Replaces `key` by a key that no record has but that lies between those records have: the key
    /// of `number` with one more byte.
    pub fn write_missing(self, number: u64, key: &mut Vec<u8>) {
        self.write(number, key);
        key.push(b'.');
    }

    /// Mean length of a key, for sizing.
    pub fn mean_bytes(self) -> usize {
        match self {
            KeyFormat::YcsbHashed => 23,
            KeyFormat::YcsbOrdered => 24,
            KeyFormat::Decimal { width_bytes } => width_bytes,
        }
    }
}

fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn append_decimal(mut number: u64, width: usize, out: &mut Vec<u8>) {
    let digits = decimal_digits(number).max(width);
    let start = out.len();
    out.resize(start + digits, b'0');
    let mut at = start + digits;
    while number > 0 {
        at -= 1;
        out[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(format: KeyFormat, number: u64) -> String {
        let mut key = Vec::new();
        format.write(number, &mut key);
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn keys_of_the_formats() {
        // The first keys of every YCSB load.
        assert_eq!(key(KeyFormat::YcsbHashed, 0), "user6284781860667377211");
        assert_eq!(key(KeyFormat::YcsbHashed, 1), "user8517097267634966620");
        assert_eq!(key(KeyFormat::YcsbOrdered, 12), "user00000000000000000012");
        assert_eq!(key(KeyFormat::Decimal { width_bytes: 16 }, 0), "0000000000000000");
        assert_eq!(key(KeyFormat::Decimal { width_bytes: 16 }, 1_234_567), "0000000001234567");
        assert_eq!(key(KeyFormat::Decimal { width_bytes: 3 }, 12_345), "12345");
    }

    #[test]
    fn missing_keys_lie_between() {
        let format = KeyFormat::Decimal { width_bytes: 16 };
        let mut missing = Vec::new();
        format.write_missing(41, &mut missing);
        assert!(missing.as_slice() > key(format, 41).as_bytes());
        assert!(missing.as_slice() < key(format, 42).as_bytes());
    }

    #[test]
    fn width_is_checked() {
        assert!(KeyFormat::Decimal { width_bytes: 4 }.check(10_000).is_ok());
        assert!(KeyFormat::Decimal { width_bytes: 4 }.check(10_001).is_err());
        assert!(KeyFormat::Decimal { width_bytes: 100_000 }.check(1).is_err());
        assert!(KeyFormat::YcsbHashed.check(u64::MAX).is_ok());
    }
}
