//! The checksum of every structure on a medium: CRC-32C (Castagnoli; RFC 3720, appendix B.4).
//!
//! Checksums are a good part of what a scan and a compaction cost, so on processors that multiply
//! polynomials 64 bytes at a time (Intel since 2019, AMD since 2022) long inputs are folded that way
//! (Gopal, Ozturk, Guilford et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel, 2009), about five times faster than the CRC instruction alone.

/// Inputs from this length on are worth folding.
#[cfg(target_arch = "x86_64")]
const FOLDED_BYTES_MIN: usize = 256;

/// Checksum of `bytes`.
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

/// Checksum of what `checksum` covers followed by `bytes`.
#[inline]
pub(crate) fn extend(checksum: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= FOLDED_BYTES_MIN && folding::available() {
        // SAFETY: the processor has the instructions.
        return unsafe { folding::extend(checksum, bytes) };
    }
    crc32c::crc32c_append(checksum, bytes)
}

#[cfg(target_arch = "x86_64")]
mod folding {
    use std::arch::x86_64::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// `x^power` modulo the polynomial, bits reflected, for multiplying reflected values.
    const fn power_of_x(power: u32) -> i64 {
        let mut value = 1u32;
        let mut done = 0;
        while done < power {
            value = (value << 1) ^ (if value >> 31 == 1 { 0x1edc_6f41 } else { 0 });
            done += 1;
        }
        ((value.reverse_bits() as u64) << 1) as i64
    }

    /// Factors that move the two halves of 16 bytes on by `bits`.
    const fn factors(bits: u32) -> [i64; 2] {
        [power_of_x(bits + 32), power_of_x(bits - 32)]
    }

    const BY_256_BYTES: [i64; 2] = factors(2048);
    const BY_64_BYTES: [i64; 2] = factors(512);
    const BY_16_BYTES: [i64; 2] = factors(128);

    /// Whether the processor has what [`extend`] needs.
    #[inline]
    pub(super) fn available() -> bool {
        /// 0 not known yet, 1 no, 2 yes.
        static AVAILABLE: AtomicU8 = AtomicU8::new(0);
        match AVAILABLE.load(Ordering::Relaxed) {
            0 => {
                let found = is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("vpclmulqdq")
                    && is_x86_feature_detected!("pclmulqdq")
                    && is_x86_feature_detected!("sse4.2");
                AVAILABLE.store(1 + u8::from(found), Ordering::Relaxed);
                found
            }
            known => known == 2,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn fold64(value: __m512i, factors: __m512i, next: __m512i) -> __m512i {
        let low = _mm512_clmulepi64_epi128::<0x00>(value, factors);
        let high = _mm512_clmulepi64_epi128::<0x11>(value, factors);
        // All three together: exclusive or.
        _mm512_ternarylogic_epi64::<0x96>(low, high, next)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq,sse4.2")]
    fn fold16(value: __m128i, factors: __m128i, next: __m128i) -> __m128i {
        let low = _mm_clmulepi64_si128::<0x00>(value, factors);
        let high = _mm_clmulepi64_si128::<0x11>(value, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load64(bytes: &[u8; 64]) -> __m512i {
        // SAFETY: 64 bytes are there; the load does not need alignment.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse4.2")]
    fn load16(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are there; the load does not need alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn broadcast(factors: [i64; 2]) -> __m512i {
        let [low, high] = factors;
        _mm512_set_epi64(high, low, high, low, high, low, high, low)
    }

    /// Checksum of what `checksum` covers followed by `bytes`, at least 256 of them.
    #[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
    pub(super) fn extend(checksum: u32, bytes: &[u8]) -> u32 {
        let (chunks, rest) = bytes.as_chunks::<64>();
        let [first, second, third, fourth, chunks @ ..] = chunks else {
            return crc32c::crc32c_append(checksum, bytes);
        };
        // Four lanes of 64 bytes: the multiplications of one do not wait for those of another.
        let state = _mm512_zextsi128_si512(_mm_cvtsi32_si128(!checksum as i32));
        let mut lanes = [_mm512_xor_si512(load64(first), state), load64(second), load64(third), load64(fourth)];
        let by_256 = broadcast(BY_256_BYTES);
        let (groups, chunks) = chunks.as_chunks::<4>();
        for group in groups {
            for (lane, chunk) in lanes.iter_mut().zip(group) {
                *lane = fold64(*lane, by_256, load64(chunk));
            }
        }
        let by_64 = broadcast(BY_64_BYTES);
        let mut lane = fold64(lanes[0], by_64, lanes[1]);
        lane = fold64(lane, by_64, lanes[2]);
        lane = fold64(lane, by_64, lanes[3]);
        for chunk in chunks {
            lane = fold64(lane, by_64, load64(chunk));
        }
        let by_16 = _mm_set_epi64x(BY_16_BYTES[1], BY_16_BYTES[0]);
        let mut value = _mm512_extracti32x4_epi32::<0>(lane);
        value = fold16(value, by_16, _mm512_extracti32x4_epi32::<1>(lane));
        value = fold16(value, by_16, _mm512_extracti32x4_epi32::<2>(lane));
        value = fold16(value, by_16, _mm512_extracti32x4_epi32::<3>(lane));
        let (chunks, rest) = rest.as_chunks::<16>();
        for chunk in chunks {
            value = fold16(value, by_16, load16(chunk));
        }
        // What is left has the remainder of the whole: the CRC instruction finds it.
        let mut state = _mm_crc32_u64(0, _mm_cvtsi128_si64(value) as u64);
        state = _mm_crc32_u64(state, _mm_extract_epi64::<1>(value) as u64);
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
        }
        for byte in rest {
            state = u64::from(_mm_crc32_u8(state as u32, *byte));
        }
        !(state as u32)
    }
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
        for length in (0..1100).chain([1023, 1024, 1025, 4095, 4200, 8192, 8999]) {
            let start = random.below((bytes.len() - length) as u64 + 1) as usize;
            let part = &bytes[start..start + length];
            let expected = slow(part);
            assert_eq!(crc32c(part), expected, "length {length} start {start}");
            let cut = random.below(length as u64 + 1) as usize;
            assert_eq!(extend(crc32c(&part[..cut]), &part[cut..]), expected, "length {length} cut {cut}");
        }
    }
}
