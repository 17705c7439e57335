//! Whole numbers as text that is short, and safe inside JSON and HTML.
//!
//! Five bits to a character, low ones first; the sixth says that another follows. The sign of a signed number is its
//! lowest bit. (What source maps call VLQ.)

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends a number.
pub(super) fn append(mut number: u64, text: &mut String) {
    loop {
        let more = number > 31;
        text.push(char::from(DIGITS[(number & 31) as usize | usize::from(more) << 5]));
        number >>= 5;
        if !more {
            return;
        }
    }
}

/// Appends a number that may be below zero.
pub(super) fn append_signed(number: i64, text: &mut String) {
    append((number << 1 ^ number >> 63) as u64, text);
}

/// The numbers of a text; `None` when it is not one.
#[cfg(test)]
pub(super) fn read(text: &str) -> Option<Vec<u64>> {
    let (mut numbers, mut number, mut shift) = (Vec::new(), 0, 0);
    for byte in text.bytes() {
        let digit = DIGITS.iter().position(|&digit| digit == byte)? as u64;
        number |= (digit & 31) << shift;
        shift += 5;
        if digit < 32 {
            numbers.push(number);
            (number, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(numbers)
}

/// A number as [`append_signed`] wrote it.
#[cfg(test)]
pub(super) fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_small_ones_are_short() {
        let numbers = [0, 1, 31, 32, 1023, 1024, 75_000_000, u64::from(u32::MAX)];
        let mut text = String::new();
        numbers.iter().for_each(|&number| append(number, &mut text));
        assert_eq!(read(&text).unwrap(), numbers);
        assert_eq!(text.len(), 1 + 1 + 1 + 2 + 2 + 3 + 6 + 7);
        let (wanted, mut text) = ([0, -1, 1, 15, -16, 16, -1_000_000], String::new());
        wanted.iter().for_each(|&number| append_signed(number, &mut text));
        assert_eq!(read(&text).unwrap().into_iter().map(signed).collect::<Vec<_>>(), wanted);
        assert_eq!(text.len(), 1 + 1 + 1 + 1 + 1 + 2 + 5);
        assert!(read("\"").is_none() && read("z").is_none());
    }
}
