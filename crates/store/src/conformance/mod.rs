//! What every store is tested with.

/// Bytes `offset..offset + length` of the file number `file`. None is zero, so bytes of another file
/// or of nothing are told apart.
pub fn content(file: u64, offset: u64, length: u64) -> Vec<u8> {
    let seed = file.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = |at: u64| {
        let mixed = (seed ^ at).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 32) as u8 | 1
    };
    (offset..offset + length).map(byte).collect()
}
