//! What fields of lines say: sectors, times, operations.

/// Sectors of traces that count in them.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Bytes of so many sectors.
pub(super) fn sectors(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
}

/// Units of which one is `unit_nanos`, perhaps with a fraction, of which what is less than a nanosecond is dropped.
pub(super) fn nanos(text: &str, unit_nanos: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit_nanos)?;
    let mut place = unit_nanos;
    let mut part = 0;
    for digit in fraction.chars() {
        place /= 10;
        part += u64::from(digit.to_digit(10)?) * place;
    }
    whole.checked_add(part)
}

/// Whether an operation is a write: it begins with `w` or `r` in either case, or is SCSI's `2a` or `28`.
pub(super) fn is_write(text: &str) -> Option<bool> {
    match text.chars().next()?.to_ascii_lowercase() {
        'w' => Some(true),
        'r' => Some(false),
        _ if text.eq_ignore_ascii_case("2a") => Some(true),
        _ if text == "28" => Some(false),
        _ => None,
    }
}

/// The fields between commas, without the spaces around them.
pub(super) fn separated(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}

/// The fields between spaces.
pub(super) fn spaced(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_kept_to_the_nanosecond() {
        assert_eq!(nanos("1.5", 1_000_000_000), Some(1_500_000_000));
        assert_eq!(nanos("0.0000000019", 1_000_000_000), Some(1));
        assert_eq!(nanos("663.5", 1000), Some(663_500));
        assert_eq!(nanos("7.", 1), Some(7));
        for wrong in ["", ".5", "-1", "1.5.5", "1.-5", "1e3", "18446744073.709551616"] {
            assert_eq!(nanos(wrong, 1_000_000_000), None, "{wrong}");
        }
    }

    #[test]
    fn operations_are_told_by_their_first_letter_or_number() {
        for (text, expected) in [("Write", true), ("w", true), ("2A", true), ("READ", false), ("28", false)] {
            assert_eq!(is_write(text), Some(expected), "{text}");
        }
        for wrong in ["", "x", "0", "2b"] {
            assert_eq!(is_write(wrong), None, "{wrong}");
        }
    }
}
