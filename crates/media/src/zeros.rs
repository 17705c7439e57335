//! Blocks of zeros.

/// Whether all bytes are zero. Compares pieces with a piece of zeros, which is a comparison of memory also where nothing is
/// optimised: whole regions are scanned for what was never written.
pub fn is_zero(bytes: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|piece| piece == &ZEROS[..piece.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        for length in [0, 1, 4095, 4096, 4097, 10_000] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for at in [0, length / 2, length.saturating_sub(1)].into_iter().filter(|at| *at < length) {
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}
