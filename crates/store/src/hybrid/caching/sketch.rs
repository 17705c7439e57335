//! How often blocks were read lately, by a count-min sketch of four bits to a counter, halved from time to time (as TinyLFU has
//! it: Einziger and others, "TinyLFU: A Highly Efficient Cache Admission Policy").

/// Counters to a block that can be cached.
const COUNTERS_OF_BLOCK: u64 = 8;

/// Counters a block has; the least says how often it was read at most.
const ROWS: u32 = 3;

/// Reads to a block that can be cached after which all counts are halved.
const WINDOW_OF_BLOCK: u64 = 32;

/// The highest count.
pub(in crate::hybrid) const COUNT_MAX: u8 = 15;

/// Least number of counters.
const COUNTERS_MIN: u64 = 1 << 12;

/// Counts of reads by block.
#[derive(Clone, Debug)]
pub(in crate::hybrid) struct Sketch {
    /// Two counters to a byte.
    bytes: Vec<u8>,
    reads: u64,
    blocks: u64,
}

impl Sketch {
    /// For so many blocks that can be cached.
    pub(in crate::hybrid) fn new(blocks: u64) -> Sketch {
        let mut sketch = Sketch { bytes: vec![0; (COUNTERS_MIN / 2) as usize], reads: 0, blocks: 0 };
        sketch.grow(blocks);
        sketch
    }

    /// For more blocks than it was for. Counts stay, but where more was read than there are counters: then most of each is that of
    /// other blocks, and they are halved. True when they were.
    pub(in crate::hybrid) fn grow(&mut self, blocks: u64) -> bool {
        self.blocks = self.blocks.max(blocks).max(1);
        let mut is_halved = false;
        // Between two thirds of the counters wanted and four thirds.
        while self.counters() * 3 < self.blocks.saturating_mul(COUNTERS_OF_BLOCK) * 2 {
            if self.reads > self.counters() {
                self.halve();
                is_halved = true;
            }
            self.bytes.extend_from_within(..);
        }
        is_halved
    }

    fn counters(&self) -> u64 {
        2 * self.bytes.len() as u64
    }

    /// Bytes of memory.
    pub(in crate::hybrid) fn memory_bytes(&self) -> u64 {
        self.bytes.capacity() as u64
    }

    /// The counter of a row. One of twice as many is that or the same beyond the half, which is how the sketch grows.
    fn counter(&self, hash: u64, row: u32) -> (usize, u32) {
        let step = (hash >> 24) | 1;
        let scattered = hash.rotate_right(17).wrapping_add(step.wrapping_mul(u64::from(row) * 0x9e37_79b9));
        let at = scattered & (self.counters() - 1);
        ((at >> 1) as usize, (at & 1) as u32 * 4)
    }

    /// How often a block was read lately, at most.
    pub(in crate::hybrid) fn count(&self, hash: u64) -> u8 {
        let of_row = |row| {
            let (byte, shift) = self.counter(hash, row);
            (self.bytes[byte] >> shift) & COUNT_MAX
        };
        (0..ROWS).map(of_row).min().unwrap_or(0)
    }

    /// A block was read at least so often.
    pub(in crate::hybrid) fn raise(&mut self, hash: u64, count: u8) {
        let count = count.min(COUNT_MAX);
        for row in 0..ROWS {
            let (byte, shift) = self.counter(hash, row);
            if (self.bytes[byte] >> shift) & COUNT_MAX < count {
                self.bytes[byte] = (self.bytes[byte] & !(COUNT_MAX << shift)) | (count << shift);
            }
        }
    }

    /// A block is read. True when all counts were halved.
    pub(in crate::hybrid) fn read(&mut self, hash: u64) -> bool {
        self.raise(hash, self.count(hash).saturating_add(1));
        self.reads += 1;
        let is_due = self.reads >= self.blocks.saturating_mul(WINDOW_OF_BLOCK);
        if is_due {
            self.halve();
        }
        is_due
    }

    fn halve(&mut self) {
        self.reads /= 2;
        self.bytes.iter_mut().for_each(|byte| *byte = (*byte >> 1) & 0x77);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hybrid::caching::hash_of;

    #[test]
    fn counts_are_at_least_what_was_read_and_seldom_more() {
        let mut sketch = Sketch::new(10_000);
        let hash = |block: u64| hash_of((1, block * 4096));
        for block in 0..10_000u64 {
            (0..block % 5).for_each(|_| _ = sketch.read(hash(block)));
        }
        let too_high = (0..10_000).filter(|block| u64::from(sketch.count(hash(*block))) > block % 5).count();
        assert!((0..10_000).all(|block| u64::from(sketch.count(hash(block))) >= block % 5));
        assert!(too_high < 600, "{too_high} of 10,000");
        sketch.grow(100_000);
        assert!((0..10_000).all(|block| u64::from(sketch.count(hash(block))) >= block % 5));
        assert!(sketch.memory_bytes() >= 3 * 100_000 && sketch.memory_bytes() <= 6 * 100_000);
    }

    #[test]
    fn what_was_read_long_ago_counts_less() {
        let mut sketch = Sketch::new(600);
        (0..100).for_each(|_| _ = sketch.read(hash_of((1, 0))));
        assert_eq!(sketch.count(hash_of((1, 0))), COUNT_MAX);
        (0..600 * WINDOW_OF_BLOCK).for_each(|block| _ = sketch.read(hash_of((2, block % 40))));
        assert_eq!(sketch.count(hash_of((1, 0))), COUNT_MAX / 2);
        sketch.raise(hash_of((9, 9)), 200);
        assert_eq!(sketch.count(hash_of((9, 9))), COUNT_MAX);
    }
}
