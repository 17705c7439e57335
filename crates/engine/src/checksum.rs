//! The checksum of every structure on a medium: CRC-32C (Castagnoli; RFC 3720, appendix B.4).

/// Checksum of `bytes`.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Checksum of what `checksum` covers followed by `bytes`.
#[inline]
pub(crate) fn extend(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    /// Bit by bit, as the polynomial says (reflected 0x1EDC6F41).
    fn slow(bytes: &[u8]) -> u32 {
        let mut state = !0u32;
        for byte in bytes {
            state ^= u32::from(*byte);
            for _ in 0..8 {
                state = if state & 1 == 1 { (state >> 1) ^ 0x82f6_3b78 } else { state >> 1 };
            }
        }
        !state
    }

    #[test]
    fn agrees_with_the_definition_at_every_length_and_alignment() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let mut random = Random::seeded(1);
        let mut bytes = vec![0; 9000];
        random.fill_bytes(&mut bytes);
        for length in (0..700).chain([1023, 1024, 1025, 4095, 4200, 8192, 8999]) {
            let start = random.below((bytes.len() - length) as u64 + 1) as usize;
            let part = &bytes[start..start + length];
            let expected = slow(part);
            assert_eq!(crc32c(part), expected, "length {length} start {start}");
            let cut = random.below(length as u64 + 1) as usize;
            assert_eq!(extend(crc32c(&part[..cut]), &part[cut..]), expected, "length {length} cut {cut}");
        }
    }
}
