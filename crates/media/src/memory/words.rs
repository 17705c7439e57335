//! Copies to and from memory that others use at the same time: aligned words of 8 bytes are moved
//! whole.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD_BYTES: usize = 8;

/// Bytes before the first aligned word of `length` bytes at `address`.
fn head_bytes(address: *const u8, length: usize) -> usize {
    (address.addr().wrapping_neg() % WORD_BYTES).min(length)
}

/// Stores `data` at `to`; aligned words are stored whole, in ascending order.
///
/// # Safety
/// `data.len()` bytes from `to` are mapped for writing while this runs, and no reference to them is
/// alive.
pub(super) unsafe fn store(to: *mut u8, data: &[u8]) {
    let (head, rest) = data.split_at(head_bytes(to, data.len()));
    let (words, tail) = rest.as_chunks::<WORD_BYTES>();
    // SAFETY: all places lie within the range of the caller; words begin at a multiple of their
    // size. Others access the range with atomic operations only.
    unsafe {
        store_bytes(to, head);
        let mut at = to.add(head.len());
        for word in words {
            AtomicU64::from_ptr(at.cast()).store(u64::from_le_bytes(*word).to_le(), Ordering::Relaxed);
            at = at.add(WORD_BYTES);
        }
        store_bytes(at, tail);
    }
}

/// # Safety
/// As [`store`].
unsafe fn store_bytes(to: *mut u8, data: &[u8]) {
    for (place, byte) in data.iter().enumerate() {
        // SAFETY: as the caller says.
        unsafe { AtomicU8::from_ptr(to.add(place)).store(*byte, Ordering::Relaxed) };
    }
}

/// Loads `data.len()` bytes from `from`; aligned words are loaded whole.
///
/// # Safety
/// `data.len()` bytes from `from` are mapped for reading and writing while this runs.
pub(super) unsafe fn load(from: *mut u8, data: &mut [u8]) {
    let (head, rest) = data.split_at_mut(head_bytes(from, data.len()));
    let (words, tail) = rest.as_chunks_mut::<WORD_BYTES>();
    // SAFETY: as in `store`.
    unsafe {
        load_bytes(from, head);
        let mut at = from.add(head.len());
        for word in words {
            *word = u64::from_le(AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed)).to_le_bytes();
            at = at.add(WORD_BYTES);
        }
        load_bytes(at, tail);
    }
}

/// # Safety
/// As [`load`].
unsafe fn load_bytes(from: *mut u8, data: &mut [u8]) {
    for (place, byte) in data.iter_mut().enumerate() {
        // SAFETY: as the caller says.
        *byte = unsafe { AtomicU8::from_ptr(from.add(place)).load(Ordering::Relaxed) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_alignment_and_length_and_nothing_more() {
        let data: Vec<u8> = (1..=40).collect();
        for at in 0..17 {
            for length in 0..=data.len() {
                let mut memory = [0_u64; 8];
                let start = memory.as_mut_ptr().cast::<u8>();
                let mut found = vec![0; length];
                let mut all = [0; 64];
                // SAFETY: 17 and 40 are less than the 64 bytes of `memory`, which nobody else uses.
                unsafe {
                    store(start.add(at), &data[..length]);
                    load(start.add(at), &mut found);
                    load(start, &mut all);
                }
                assert_eq!(found, data[..length], "{length} bytes at {at}");
                let around = all[..at].iter().chain(&all[at + length..]);
                assert!(around.copied().all(|byte| byte == 0), "{length} bytes at {at}");
            }
        }
    }
}
