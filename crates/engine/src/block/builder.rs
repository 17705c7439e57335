//! Collects the entries of one data block; see [`super::block`] for the bytes.

use super::layout::TAIL_BYTES;
use crate::key::common_prefix;

/// Fields of one entry until the widths are known.
struct Pending {
    value_end: u64,
    key_end: u32,
    shared: u32,
    trailer: u64,
}

/// Everything of a block but its values, which the caller keeps or has already written.
pub(crate) struct BlockBuilder {
    restart_interval: usize,
    entries: Vec<Pending>,
    suffixes: Vec<u8>,
    /// Where the user key of the last restart point is in `suffixes`.
    restart: std::ops::Range<usize>,
    until_restart: usize,
    values_length: u64,
}

/// Fewest bytes that hold `value`.
fn width(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

impl BlockBuilder {
    pub(crate) fn new(restart_interval: usize) -> Self {
        BlockBuilder {
            restart_interval: restart_interval.clamp(1, usize::from(u16::MAX)),
            entries: Vec::new(),
            suffixes: Vec::new(),
            restart: 0..0,
            until_restart: 0,
            values_length: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the values added.
    pub(crate) fn values_length(&self) -> u64 {
        self.values_length
    }

    /// Upper bound of the block's contents with one more entry of these lengths, for deciding
    /// whether it still fits; exact but for the widths of the records.
    pub(crate) fn bytes_bound_with(&self, user_key_length: usize, value_length: usize) -> u64 {
        let values = self.values_length + value_length as u64;
        let keys = (self.suffixes.len() + user_key_length) as u64;
        let record = (width(values) + width(keys) + width(user_key_length as u64).max(2) + 8) as u64;
        values + keys + record * (self.entries.len() as u64 + 1) + TAIL_BYTES as u64
    }

    /// Upper bound of the contents with the entries that are there.
    pub(crate) fn bytes_bound(&self) -> u64 {
        self.bound(self.values_length, self.suffixes.len() as u64, self.entries.len() as u64)
    }

    /// The same with one more entry of these lengths, after whatever key.
    pub(crate) fn bytes_bound_after_any(&self, user_key_length: usize, value_length: usize) -> u64 {
        let keys = (self.suffixes.len() + user_key_length) as u64;
        self.bound(self.values_length + value_length as u64, keys, self.entries.len() as u64 + 1)
    }

    fn bound(&self, values: u64, keys: u64, entries: u64) -> u64 {
        // A key shares three bytes' worth of length at most, and trailers have eight bytes.
        let record = (width(values) + width(keys) + 3 + 8) as u64;
        values + keys + record * entries + TAIL_BYTES as u64
    }

    /// Bytes of the block's contents so far, as if records were of a usual size.
    pub(crate) fn bytes_estimate(&self) -> u64 {
        self.values_length + self.suffixes.len() as u64 + 8 * self.entries.len() as u64 + TAIL_BYTES as u64
    }

    /// Adds an entry after the last one. Its value goes behind the values so far.
    #[inline]
    pub(crate) fn add(&mut self, user_key: &[u8], trailer: u64, value_length: usize) {
        let mut shared = 0;
        if self.until_restart == 0 {
            self.until_restart = self.restart_interval;
            self.restart = self.suffixes.len()..self.suffixes.len() + user_key.len();
        } else {
            shared = common_prefix(&self.suffixes[self.restart.clone()], user_key);
        }
        self.until_restart -= 1;
        self.suffixes.extend_from_slice(&user_key[shared..]);
        self.values_length += value_length as u64;
        self.entries.push(Pending {
            value_end: self.values_length,
            // A block is cut at `BLOCK_SIZE_MAX` at the latest.
            key_end: self.suffixes.len() as u32,
            shared: shared as u32,
            trailer,
        });
    }

    /// Appends what follows the values, and `padding` zeros before it; empties the builder. Returns
    /// the number of entries.
    pub(crate) fn finish(&mut self, padding: impl FnOnce(u64) -> u64, out: &mut Vec<u8>) -> usize {
        let count = self.entries.len();
        let value_stride = stride(self.entries.iter().map(|entry| entry.value_end));
        let key_stride = stride(self.entries.iter().map(|entry| u64::from(entry.key_end)));
        let shared_base = self.entries.iter().map(|entry| entry.shared).min().unwrap_or(0);
        let trailer_base = self.entries.iter().map(|entry| entry.trailer).min().unwrap_or(0);
        let shared_most = self.entries.iter().map(|entry| entry.shared).max().unwrap_or(0);
        let trailer_most = self.entries.iter().map(|entry| entry.trailer).max().unwrap_or(0);
        let left = |end: u64, stride: u64, position: usize| end - stride * (position as u64 + 1);
        let widths = [
            if value_stride > 0 { 0 } else { width(self.values_length) },
            if key_stride > 0 { 0 } else { width(self.suffixes.len() as u64) },
            width(u64::from(shared_most - shared_base)),
            width(trailer_most - trailer_base),
        ];
        let record_bytes: usize = widths.iter().sum();
        let length = self.values_length + (self.suffixes.len() + record_bytes * count + TAIL_BYTES) as u64;
        let padding = padding(length) as usize;
        out.reserve(padding + self.suffixes.len() + record_bytes * count + TAIL_BYTES);
        out.resize(out.len() + padding, 0);
        out.extend_from_slice(&self.suffixes);
        for (position, entry) in self.entries.iter().enumerate() {
            let fields = [
                left(entry.value_end, value_stride, position),
                left(u64::from(entry.key_end), key_stride, position),
                u64::from(entry.shared - shared_base),
                entry.trailer - trailer_base,
            ];
            for (field, width) in fields.iter().zip(widths) {
                out.extend_from_slice(&field.to_le_bytes()[..width]);
            }
        }
        out.extend_from_slice(&trailer_base.to_le_bytes());
        out.extend_from_slice(&(count as u32).to_le_bytes());
        out.extend_from_slice(&(self.suffixes.len() as u32).to_le_bytes());
        out.extend_from_slice(&(value_stride as u32).to_le_bytes());
        out.extend_from_slice(&(key_stride as u32).to_le_bytes());
        out.extend_from_slice(&shared_base.to_le_bytes());
        out.extend_from_slice(&(self.restart_interval as u16).to_le_bytes());
        let packed = widths.iter().rev().fold(0, |packed, width| packed << 4 | *width as u16);
        out.extend_from_slice(&packed.to_le_bytes());
        self.clear();
        count
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.suffixes.clear();
        self.until_restart = 0;
        self.values_length = 0;
    }
}

/// The distance of the ends when it is always the same, else 0.
fn stride(mut ends: impl Iterator<Item = u64>) -> u64 {
    let Some(first) = ends.next() else { return 0 };
    let mut before = first;
    for end in ends {
        if end - before != first {
            return 0;
        }
        before = end;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Layout, Position};
    use super::*;
    use crate::key;
    use std::cmp::Ordering;
    use varve_env::Random;

    fn build(entries: &[(Vec<u8>, Vec<u8>)], restart_interval: usize, align: u64) -> Vec<u8> {
        let mut builder = BlockBuilder::new(restart_interval);
        let mut out = Vec::new();
        let mut bound = 0;
        for (internal, value) in entries {
            bound = builder.bytes_bound_with(key::user_key(internal).len(), value.len());
            builder.add(key::user_key(internal), key::trailer(internal), value.len());
            out.extend_from_slice(value);
        }
        assert_eq!(builder.values_length(), out.len() as u64);
        builder.finish(|length| length.next_multiple_of(align) - length, &mut out);
        assert!((out.len() as u64) < bound + align, "{} bytes, bound {bound}", out.len());
        assert!(builder.is_empty());
        out
    }

    fn internal(user: &[u8], sequence: u64, kind: u8) -> Vec<u8> {
        let mut out = Vec::new();
        key::append_internal_key(&mut out, user, sequence, kind);
        out
    }

    #[test]
    fn two_entries_are_these_bytes() {
        let entries = [(internal(b"apple", 5, 1), b"red".to_vec()), (internal(b"apricots", 9, 1), b"orange".to_vec())];
        let expected = [
            &b"redorange"[..],
            b"applericots",
            &[3, 5, 0, 0, 0], // value end, key end, shared, trailer less base
            &[9, 11, 2, 0, 4],
            &[1, 5, 0, 0, 0, 0, 0, 0], // trailer base: sequence 5, put
            &[2, 0, 0, 0],
            &[11, 0, 0, 0], // key suffixes
            &[0, 0, 0, 0],  // value stride
            &[0, 0, 0, 0],  // key stride
            &[0, 0, 0, 0],  // shared base
            &[16, 0],
            &[0x11, 0x21],
        ]
        .concat();
        assert_eq!(build(&entries, 16, 1), expected);
    }

    #[test]
    fn values_of_one_size_and_keys_of_one_trailer_take_no_record() {
        let entries: Vec<_> = (0..3u8).map(|n| (internal(&[n, 7], 0, 1), vec![n; 100])).collect();
        let block = build(&entries, 1, 1);
        assert_eq!(block.len(), 300 + 6 + TAIL_BYTES);
        let layout = Layout::decode(&block).expect("sound");
        assert_eq!(layout.value(&block, 1), (100..200, 1));
    }

    fn random_entries(random: &mut Random) -> Vec<(Vec<u8>, Vec<u8>)> {
        let alphabet = 1 + random.below(4);
        let longest = 1 + random.below(24);
        let value_limit = [1, 2, 40, 300][random.below(4) as usize];
        let uniform = random.chance(1, 3);
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = (0..1 + random.below(80))
            .map(|_| {
                let mut user = vec![0; random.below(longest) as usize];
                user.iter_mut().for_each(|byte| *byte = random.below(alphabet) as u8 * 85);
                let sequence = if random.chance(1, 10) { key::SEQUENCE_MAX } else { random.below(600) };
                let length = if uniform { value_limit } else { random.below(value_limit) };
                let mut value = vec![0; length as usize];
                random.fill_bytes(&mut value);
                (internal(&user, sequence, random.below(2) as u8), value)
            })
            .collect();
        entries.sort_by(|a, b| key::compare(&a.0, &b.0));
        entries.dedup_by(|a, b| key::compare(&a.0, &b.0) == Ordering::Equal);
        entries
    }

    #[test]
    fn random_blocks_return_their_entries_and_find_every_target() {
        for seed in 0..400 {
            let mut random = Random::seeded(seed);
            let entries = random_entries(&mut random);
            let restart_interval = [1, 2, 3, 16, 1000][random.below(5) as usize];
            let block = build(&entries, restart_interval, [1, 1, 512][random.below(3) as usize]);
            let layout = Layout::decode(&block).unwrap_or_else(|damage| panic!("seed {seed}: {damage:?}"));
            assert_eq!(layout.entry_count(), entries.len());
            let mut found = Vec::new();
            for (position, (internal, value)) in entries.iter().enumerate() {
                layout.internal_key(&block, position, &mut found);
                assert_eq!(&found, internal, "seed {seed}");
                assert_eq!(&block[layout.value(&block, position).0], value.as_slice(), "seed {seed}");
            }
            for _ in 0..200 {
                let mut target = entries[random.index(entries.len())].0.clone();
                match random.below(4) {
                    0 => {}
                    1 => target = internal(key::user_key(&target), random.below(700), random.below(256) as u8),
                    2 => {
                        let mut user = key::user_key(&target).to_vec();
                        user.push(random.below(3) as u8 * 85);
                        target = internal(&user, random.below(700), 255);
                    }
                    _ => {
                        let mut user = vec![0; random.below(12) as usize];
                        user.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
                        target = internal(&user, random.below(700), 1);
                    }
                }
                let entry = entries.partition_point(|entry| key::compare(&entry.0, &target) == Ordering::Less);
                let expected = Position {
                    entry,
                    same_user_key: entries.get(entry).is_some_and(|e| key::user_key(&e.0) == key::user_key(&target)),
                    exact: entries.get(entry).is_some_and(|e| e.0 == target),
                };
                let found = layout.search(&block, key::user_key(&target), key::trailer(&target));
                assert_eq!(found, expected, "seed {seed} target {target:?}");
            }
        }
    }

    #[test]
    fn damaged_blocks_are_refused_or_stay_within_their_bytes() {
        for seed in 0..30 {
            let mut random = Random::seeded(seed);
            let entries = random_entries(&mut random);
            let block = build(&entries, 1 + random.below(5) as usize, 1);
            for _ in 0..300 {
                let mut damaged = block.clone();
                for _ in 0..1 + random.below(4) {
                    // Mostly in records and tail, where structure is.
                    let span = if random.chance(3, 4) { (TAIL_BYTES + 64).min(block.len()) } else { block.len() };
                    let position = block.len() - 1 - random.below(span as u64) as usize;
                    damaged[position] = random.next_u64() as u8;
                }
                damaged.truncate(damaged.len() - if random.chance(1, 8) { random.index(damaged.len()) } else { 0 });
                crate::table::fuzzing::walk_block(&damaged);
            }
        }
    }
}
