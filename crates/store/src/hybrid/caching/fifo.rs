//! HHZS' application-hinted caching (section 3.5): every block that was evicted is admitted, the oldest zone goes.

use super::{BytesByDensity, Caching, Density, Kept};

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub(in crate::hybrid) struct Fifo;

impl Caching for Fifo {
    fn counts_reads(&self) -> bool {
        false
    }

    fn admits(&self, _density: Density) -> bool {
        true
    }

    fn admits_record(&self, _count: u8, _density: Density) -> bool {
        false
    }

    fn keep(&mut self, _bytes_by_density: &BytesByDensity, _space_bytes: u64, _first_read: Density) -> Kept {
        Kept::NOTHING
    }

    fn zone_was_added(&mut self, _first_read: Density) {}

    fn counts_were_halved(&mut self) {}

    fn too_little_comes(&mut self) {}
}
