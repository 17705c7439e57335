//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// Units, largest first within each family; bytes last.
const UNITS: [(&str, u64); 12] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// What a size looks like, for messages.
pub(crate) const SIZE_EXAMPLE: &str =
    "a size such as 4096, 512MiB or 1.5TB (units B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB)";

/// A number of bytes with the notation of people: `100GB`, `1.5TiB`, `4096`.
///
/// `kB`, `MB`, ... are powers of 1000; `KiB`, `MiB`, ... are powers of 1024. A fraction is
/// accepted when it comes out as whole bytes. [`fmt::Display`] writes the shortest exact form, which parses back to
/// the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// A text that is no size, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {SIZE_EXAMPLE}, found '{found}'{reason}")]
pub struct ByteSizeError {
    found: String,
    reason: &'static str,
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        let refuse = |reason| ByteSizeError { found: text.chars().take(40).collect(), reason };
        let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let unit = unit.strip_prefix(' ').unwrap_or(unit);
        let unit_bytes = match unit {
            "" => 1,
            _ => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| refuse(": unknown unit"))?.1,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
            return Err(refuse(""));
        }
        // Twelve digits keep every product below within 128 bits.
        if fraction.len() > 12 {
            return Err(refuse(": more than 12 digits after the point"));
        }
        let whole: u64 = whole.parse().map_err(|_| refuse(": larger than any medium"))?;
        let fraction_value: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| refuse(""))? };
        let divisor = 10_u128.pow(fraction.len() as u32);
        let fraction_bytes = fraction_value * u128::from(unit_bytes);
        if !fraction_bytes.is_multiple_of(divisor) {
            return Err(refuse(": not a whole number of bytes"));
        }
        let bytes = u128::from(whole) * u128::from(unit_bytes) + fraction_bytes / divisor;
        u64::try_from(bytes).map(ByteSize).map_err(|_| refuse(": larger than any medium"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact =
            UNITS.iter().filter(|(name, bytes)| *name != "KB" && self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        // Of the exact ones the largest unit; 0 and odd numbers end up in bytes.
        match exact.max_by_key(|(_, bytes)| *bytes) {
            Some((name, bytes)) if *bytes > 1 => write!(f, "{}{name}", self.0 / bytes),
            _ => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1B", 1),
            ("1kB", 1000),
            ("1KB", 1000),
            ("1KiB", 1024),
            ("500GB", 500_000_000_000),
            ("1.5TB", 1_500_000_000_000),
            ("0.5GiB", 1 << 29),
            ("8 TiB", 8 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        for (text, reason) in [
            ("", "expected a size"),
            ("GB", "expected a size"),
            ("10XB", "unknown unit"),
            ("10gb", "unknown unit"),
            ("1.2.3GB", "expected a size"),
            ("1.GB", "expected a size"),
            ("-1GB", "expected a size"),
            ("0.3B", "not a whole number of bytes"),
            ("1.0000000000001TB", "more than 12 digits"),
            ("16384PiB", "larger than any medium"),
            ("99999999999999999999", "larger than any medium"),
        ] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut random = varve_env::Random::seeded(7);
        for _ in 0..10_000 {
            let bytes = random.next_u64() >> random.below(64);
            let text = ByteSize(bytes).to_string();
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        assert_eq!(ByteSize(1 << 40).to_string(), "1TiB");
        assert_eq!(ByteSize(500_000_000_000).to_string(), "500GB");
        assert_eq!(ByteSize(1_234_567).to_string(), "1234567B");
        assert_eq!(ByteSize(0).to_string(), "0B");
    }
}
