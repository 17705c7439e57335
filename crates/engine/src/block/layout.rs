//! Contents of a data block: entries in order, searchable at random.
//!
//! Keys, values and the fixed-size fields of the entries lie apart, so that a search touches few
//! cache lines however large the values are, and any entry is reached without decoding its
//! neighbours.
//!
//! | part | bytes |
//! |---|---|
//! | values | values of the entries, one after the other |
//! | padding | zeros, only when blocks are aligned |
//! | key suffixes | one after the other |
//! | records | one per entry, all of the same size |
//! | tail | 32 |
//!
//! Every `restart interval`-th entry, from the first, is a restart point: its user key is stored
//! whole. The others share a prefix with the user key of the restart point before them (not with
//! their predecessor) and store the rest.
//!
//! Record of entry `i`, each field in the width (0 to 8 bytes) the tail gives it:
//!
//! | field | meaning |
//! |---|---|
//! | value end | end of the value within the values, less `(i + 1) * value stride` |
//! | key end | end of the suffix within the key suffixes, less `(i + 1) * key stride` |
//! | shared | bytes shared with the restart point's user key, less `shared base` |
//! | trailer | trailer of the internal key (`sequence << 8 | kind`), less `trailer base` |
//!
//! Values that are all of one size thus take no space in the records (stride = size, width 0), and
//! trailers take what their spread needs, nothing when they are all alike.
//!
//! Tail:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | trailer base |
//! | 8 | 4 | number of entries, at least 1 |
//! | 12 | 4 | bytes of key suffixes |
//! | 16 | 4 | value stride |
//! | 20 | 4 | key stride |
//! | 24 | 4 | shared base |
//! | 28 | 2 | restart interval, at least 1 |
//! | 30 | 2 | widths: value end, key end, shared, trailer; four bits each, lowest first |

use crate::encoding::{Damage, Decoder, read_u32, read_u64};
use crate::key::{KEY_BYTES_MAX, common_prefix};
use std::cmp::Ordering;
use std::ops::Range;

pub(crate) const TAIL_BYTES: usize = 32;

/// Where the parts of a block are. Made only by [`Layout::decode`] and [`Layout::decode_in_any_order`], which check
/// everything the accessors rely on; they are to be called with the same bytes. No accessor panics on others of the same
/// length (see [`Layout::decode_checked_before`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    entry_count: u32,
    restart_interval: u32,
    restart_count: u32,
    record_bytes: u32,
    records_at: usize,
    keys_at: usize,
    value_stride: u64,
    key_stride: u64,
    shared_base: u64,
    trailer_base: u64,
    value_mask: u64,
    key_mask: u64,
    shared_mask: u64,
    trailer_mask: u64,
    key_field: u8,
    shared_field: u8,
    trailer_field: u8,
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Within the block's bytes.
    pub(crate) value_end: usize,
    /// Within the block's bytes.
    pub(crate) key_end: usize,
    pub(crate) shared: usize,
    pub(crate) trailer: u64,
}

/// Where a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// First entry at or after the target; the number of entries when there is none.
    pub(crate) entry: usize,
    /// It has the target's user key.
    pub(crate) same_user_key: bool,
    /// It is the target.
    pub(crate) exact: bool,
}

fn width_mask(width: usize) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - 8 * width) }
}

/// The entry before the one that is checked.
#[derive(Clone, Copy, Default)]
struct Before<'a> {
    /// User key of its restart point.
    restart: &'a [u8],
    /// How much of that is its own; what follows.
    shared: usize,
    suffix: &'a [u8],
    trailer: u64,
}

impl Before<'_> {
    /// Whether a restart point comes after it.
    fn is_before_restart(&self, user_key: &[u8], trailer: u64) -> bool {
        let (head, rest) = user_key.split_at(self.shared.min(user_key.len()));
        match self.restart[..self.shared].cmp(head).then_with(|| self.suffix.cmp(rest)) {
            Ordering::Equal => trailer < self.trailer,
            order => order == Ordering::Less,
        }
    }

    /// Whether an entry of the same group comes after it that shares as much with the restart point or less.
    fn is_before(&self, shared: usize, suffix: &[u8], trailer: u64) -> bool {
        // It shares all it could, and parts from the restart point upwards. So it is after whatever shares more.
        let parts_upwards = match self.restart.get(shared) {
            Some(byte) => suffix.first().is_some_and(|first| first > byte),
            None => true,
        };
        parts_upwards
            && (shared < self.shared
                || match self.suffix.cmp(suffix) {
                    Ordering::Equal => trailer < self.trailer,
                    order => order == Ordering::Less,
                })
    }
}

impl Layout {
    /// Reads the tail of `bytes` and checks every record, so that no accessor can leave the block, and that the
    /// entries are in order: a search of others goes astray, and a walk that skips by searching might never end.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        Self::decode_checked(bytes, true)
    }

    /// The same for those who look at the order themselves and do not search.
    pub(crate) fn decode_in_any_order(bytes: &[u8]) -> Result<Self, Damage> {
        Self::decode_checked(bytes, false)
    }

    fn decode_checked(bytes: &[u8], ordered: bool) -> Result<Self, Damage> {
        let layout = Self::decode_checked_before(bytes)?;
        layout.check(bytes, ordered)?;
        Ok(layout)
    }

    /// [`Layout::decode`] of bytes that were checked before and may have changed since: only the tail is read. Accessors bear
    /// what they then find, and answer with anything.
    pub(crate) fn decode_checked_before(bytes: &[u8]) -> Result<Self, Damage> {
        let Some(tail) = bytes.len().checked_sub(TAIL_BYTES) else {
            return Err(Decoder::damage(0, format!("a block of at least {TAIL_BYTES} bytes"), bytes.len().to_string()));
        };
        let entry_count = read_u32(bytes, tail + 8);
        let keys_length = read_u32(bytes, tail + 12) as usize;
        let restart_and_widths = read_u32(bytes, tail + 28);
        let restart_interval = restart_and_widths & 0xffff;
        let width = |position: u32| (restart_and_widths >> (16 + 4 * position)) as usize & 15;
        let widths = [width(0), width(1), width(2), width(3)];
        if widths.iter().any(|width| *width > 8) {
            return Err(Decoder::damage(tail + 30, "widths of at most 8 bytes", format!("{widths:?}")));
        }
        if entry_count == 0 || restart_interval == 0 {
            let found = format!("{entry_count} entries, restart interval {restart_interval}");
            return Err(Decoder::damage(tail + 8, "at least one entry and a restart interval of at least 1", found));
        }
        let record_bytes: usize = widths.iter().sum();
        let below_tail = (entry_count as usize)
            .checked_mul(record_bytes)
            .and_then(|records| records.checked_add(keys_length))
            .and_then(|below| tail.checked_sub(below));
        let Some(keys_at) = below_tail else {
            let found = format!("{entry_count} records of {record_bytes} bytes, {keys_length} bytes of keys");
            return Err(Decoder::damage(tail + 8, format!("records and keys within {tail} bytes"), found));
        };
        // Entries differ in their trailers, which are then in the records, or in their user keys, of
        // which all but the first have a byte of their own. So the bytes there are bound the entries.
        if record_bytes == 0 && entry_count as usize > keys_length + 1 {
            let expected = format!("at most {} entries with {keys_length} bytes of keys", keys_length + 1);
            return Err(Decoder::damage(tail + 8, expected, entry_count.to_string()));
        }
        Ok(Layout {
            entry_count,
            restart_interval,
            restart_count: entry_count.div_ceil(restart_interval),
            record_bytes: record_bytes as u32,
            records_at: keys_at + keys_length,
            keys_at,
            value_stride: u64::from(read_u32(bytes, tail + 16)),
            key_stride: u64::from(read_u32(bytes, tail + 20)),
            shared_base: u64::from(read_u32(bytes, tail + 24)),
            trailer_base: read_u64(bytes, tail),
            value_mask: width_mask(widths[0]),
            key_mask: width_mask(widths[1]),
            shared_mask: width_mask(widths[2]),
            trailer_mask: width_mask(widths[3]),
            key_field: widths[0] as u8,
            shared_field: (widths[0] + widths[1]) as u8,
            trailer_field: (widths[0] + widths[1] + widths[2]) as u8,
        })
    }

    /// Where contents that end with `bytes`, and have no padding, begin in them. `None` where none end. What is given is a guess, for
    /// a search for blocks: only a checksum proves it.
    pub(crate) fn unpadded_start(bytes: &[u8]) -> Option<usize> {
        let tail = bytes.len().checked_sub(TAIL_BYTES)?;
        let restart_and_widths = read_u32(bytes, tail + 28);
        let is_likely = read_u32(bytes, tail + 8) != 0
            && restart_and_widths & 0xffff != 0
            && (0..4).all(|position| restart_and_widths >> (16 + 4 * position) & 15 <= 8);
        let layout = is_likely.then(|| Self::decode_checked_before(bytes).ok()).flatten()?;
        let values_length = layout.record(bytes, layout.entry_count() - 1).value_end;
        layout.keys_at.checked_sub(values_length)
    }

    fn check(&self, bytes: &[u8], ordered: bool) -> Result<(), Damage> {
        let mut value_end = 0;
        let mut key_end = self.keys_at;
        let mut until_restart = 0;
        let mut before = Before::default();
        for entry in 0..self.entry_count as usize {
            let record = self.record(bytes, entry);
            let within = record.value_end >= value_end
                && record.value_end <= self.keys_at
                && record.key_end >= key_end
                && record.key_end <= self.records_at;
            if !within {
                return Err(self.bad_record(entry, record));
            }
            let suffix = &bytes[key_end..record.key_end];
            // Keys ascend, so within a group what they share with the restart point only gets less.
            let shared_limit = if until_restart == 0 { 0 } else { before.shared };
            // The second bound cannot overflow: the first has passed.
            if record.shared > shared_limit || record.shared + suffix.len() > KEY_BYTES_MAX {
                return Err(self.bad_record(entry, record));
            }
            let follows = match until_restart {
                _ if !ordered || entry == 0 => true,
                0 => before.is_before_restart(suffix, record.trailer),
                _ => before.is_before(record.shared, suffix, record.trailer),
            };
            if !follows {
                return Err(self.disorder(entry));
            }
            if until_restart == 0 {
                until_restart = self.restart_interval;
                before = Before { restart: suffix, shared: suffix.len(), suffix: &[], trailer: record.trailer };
            } else {
                before = Before { shared: record.shared, suffix, trailer: record.trailer, ..before };
            }
            until_restart -= 1;
            value_end = record.value_end;
            key_end = record.key_end;
        }
        if key_end != self.records_at {
            let found = format!("{key_end}");
            return Err(Decoder::damage(self.records_at, format!("key suffixes ending at {}", self.records_at), found));
        }
        Ok(())
    }

    #[cold]
    fn disorder(&self, entry: usize) -> Damage {
        Decoder::damage(
            self.records_at + entry * self.record_bytes as usize,
            format!("entry {entry} of {} after the one before it", self.entry_count),
            "keys out of order",
        )
    }

    #[cold]
    fn bad_record(&self, entry: usize, record: Record) -> Damage {
        Decoder::damage(
            self.records_at + entry * self.record_bytes as usize,
            format!(
                "record {entry} of {} with ordered ends, value within {}, key within {}..{}",
                self.entry_count, self.keys_at, self.keys_at, self.records_at
            ),
            format!("{record:?}"),
        )
    }

    /// Number of entries, at least 1.
    #[inline]
    pub(crate) fn entry_count(&self) -> usize {
        self.entry_count as usize
    }

    /// Entries from one restart point to the next.
    #[inline]
    pub(crate) fn restart_interval(&self) -> usize {
        self.restart_interval as usize
    }

    /// The record of an entry. Eight bytes from any field on are within the block, since the tail
    /// follows the records.
    #[inline(always)]
    pub(crate) fn record(&self, bytes: &[u8], entry: usize) -> Record {
        let at = self.records_at + entry * self.record_bytes as usize;
        let ordinal = entry as u64 + 1;
        // Wrapping: sums that leave the block are found by `check`.
        Record {
            value_end: (read_u64(bytes, at) & self.value_mask).wrapping_add(ordinal.wrapping_mul(self.value_stride))
                as usize,
            key_end: (read_u64(bytes, at + usize::from(self.key_field)) & self.key_mask)
                .wrapping_add(ordinal.wrapping_mul(self.key_stride))
                .wrapping_add(self.keys_at as u64) as usize,
            shared: (read_u64(bytes, at + usize::from(self.shared_field)) & self.shared_mask)
                .wrapping_add(self.shared_base) as usize,
            trailer: (read_u64(bytes, at + usize::from(self.trailer_field)) & self.trailer_mask)
                .wrapping_add(self.trailer_base),
        }
    }

    /// Where value and key suffix of an entry begin.
    #[inline(always)]
    pub(crate) fn starts(&self, bytes: &[u8], entry: usize) -> (usize, usize) {
        if entry == 0 {
            return (0, self.keys_at);
        }
        let before = self.record(bytes, entry - 1);
        (before.value_end, before.key_end)
    }

    /// The stored part of an entry's user key, and its record.
    #[inline(always)]
    fn suffix<'a>(&self, bytes: &'a [u8], entry: usize) -> (&'a [u8], Record) {
        let record = self.record(bytes, entry);
        let start = self.starts(bytes, entry).1;
        (bytes.get(start..record.key_end).unwrap_or_default(), record)
    }

    /// User key of a restart point.
    #[inline]
    pub(crate) fn restart_key<'a>(&self, bytes: &'a [u8], entry: usize) -> &'a [u8] {
        self.suffix(bytes, entry).0
    }

    /// Where the value of an entry is in the block, and the entry's trailer.
    #[inline]
    pub(crate) fn value(&self, bytes: &[u8], entry: usize) -> (Range<usize>, u64) {
        let record = self.record(bytes, entry);
        (self.starts(bytes, entry).0..record.value_end, record.trailer)
    }

    /// First entry at or after the internal key of `user_key` and `trailer`.
    pub(crate) fn search(&self, bytes: &[u8], user_key: &[u8], trailer: u64) -> Position {
        // The restart point the target is after, if any: the last one not after the target.
        let interval = self.restart_interval as usize;
        let mut low = 0;
        let mut high = self.restart_count as usize;
        // What is known of the entry at `high * interval`.
        let mut above = Position { entry: self.entry_count as usize, same_user_key: false, exact: false };
        let mut shared_with_low = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = middle * interval;
            let (restart_key, record) = self.suffix(bytes, entry);
            let shared = common_prefix(restart_key, user_key);
            match compare_tails(&restart_key[shared..], record.trailer, &user_key[shared..], trailer) {
                Ordering::Less => {
                    low = middle + 1;
                    shared_with_low = Some(shared);
                }
                order => {
                    high = middle;
                    above = Position {
                        entry,
                        same_user_key: restart_key.len() == shared && user_key.len() == shared,
                        exact: order == Ordering::Equal,
                    };
                    if above.exact {
                        return above;
                    }
                }
            }
        }
        let Some(shared) = shared_with_low else {
            return above;
        };
        // The restart point before is smaller than the target and shares `shared` bytes with it.
        let rest = &user_key[shared..];
        let mut low = (low - 1) * interval + 1;
        let mut high = above.entry;
        while low < high {
            let middle = low + (high - low) / 2;
            let record = self.record(bytes, middle);
            // An entry that shares more with the restart point stays on its side of the target; one
            // that shares less has left it upwards.
            let order = if record.shared > shared {
                Ordering::Less
            } else if record.shared < shared {
                above = Position { entry: middle, same_user_key: false, exact: false };
                Ordering::Greater
            } else {
                let start = self.starts(bytes, middle).1;
                let suffix = bytes.get(start..record.key_end).unwrap_or_default();
                let order = suffix.cmp(rest);
                let by_trailer = order.then_with(|| trailer.cmp(&record.trailer));
                if by_trailer != Ordering::Less {
                    above = Position {
                        entry: middle,
                        same_user_key: order == Ordering::Equal,
                        exact: by_trailer == Ordering::Equal,
                    };
                }
                by_trailer
            };
            if order == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        above
    }

    /// Internal key of an entry, into `out`.
    pub(crate) fn internal_key(&self, bytes: &[u8], entry: usize, out: &mut Vec<u8>) {
        let (suffix, record) = self.suffix(bytes, entry);
        let restart = self.restart_key(bytes, entry - entry % self.restart_interval as usize);
        out.clear();
        out.extend_from_slice(restart.get(..record.shared).unwrap_or(restart));
        out.extend_from_slice(suffix);
        out.extend_from_slice(&record.trailer.to_le_bytes());
    }
}

/// Orders what is left of two internal keys after their common prefix.
#[inline(always)]
fn compare_tails(a: &[u8], a_trailer: u64, b: &[u8], b_trailer: u64) -> Ordering {
    match (a.first(), b.first()) {
        (None, None) => b_trailer.cmp(&a_trailer),
        (a, b) => a.cmp(&b),
    }
}
