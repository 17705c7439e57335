//! HHZS' application-hinted caching (section 3.5): every block that was evicted is admitted, the oldest zone goes.

use super::{Caching, Kept, sketch::COUNT_MAX};

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub(in crate::hybrid) struct Fifo;

impl Caching for Fifo {
    fn counts_reads(&self) -> bool {
        false
    }

    fn admits(&self, _count: u8) -> bool {
        true
    }

    fn keep(&mut self, _bytes_by_count: &[u64; COUNT_MAX as usize + 1], _space_bytes: u64) -> Kept {
        Kept::NOTHING
    }

    fn zone_was_added(&mut self) {}
}
