//! Write batches: what is written together, atomically and in order.
//!
//! A batch keeps its entries in the very bytes the log writes. One entry:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind (0 delete, 1 put) |
//! | 1-3 | key length, varint, at most 64 KiB |
//! | 1-5 | value length, varint, at most 4 GiB - 1; only in a put |
//! | n | key |
//! | m | value; only in a put |
//!
//! A log record is one or more batches that were written together:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | format, 1 |
//! | 7 | sequence number of the first entry, little-endian |
//! | 8 | number of entries, little-endian, at least 1 |
//! | n | the entries; the i-th has the first one's sequence number plus i |
//!
//! The record's checksum is the log's. A kind or format not listed is of a newer version; kinds 2, 16, 17 and 18 are kept for
//! range deletes and key spaces.

use crate::encoding::{Damage, Decoder, append_varint, varint_bytes};
use crate::error::Error;
use crate::key::{self, EntryKind, KEY_BYTES_MAX, SEQUENCE_MAX, Sequence, VALUE_BYTES_MAX};

/// Bytes before the entries of a log record.
pub(crate) const RECORD_HEADER_BYTES: usize = 16;

const RECORD_FORMAT: u8 = 1;

/// Most bytes of an entry besides its key and value.
const ENTRY_OVERHEAD_BYTES_MAX: usize = 9;

/// Puts and deletes that take effect together, in the order they were added; later ones win.
///
/// Not thread-safe by itself; may move between threads. Costs one buffer that holds every key and
/// value plus at most 9 bytes each.
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    entries: Vec<u8>,
    count: u64,
    has_puts: bool,
}

/// One entry of a [`WriteBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchEntry<'a> {
    /// The key gets this value.
    Put {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// The key goes away.
    Delete {
        /// Key.
        key: &'a [u8],
    },
}

impl<'a> BatchEntry<'a> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        match self {
            BatchEntry::Put { key, .. } | BatchEntry::Delete { key } => key,
        }
    }

    /// Kind, key and value; the value of a delete is empty.
    #[inline]
    pub(crate) fn parts(&self) -> (EntryKind, &'a [u8], &'a [u8]) {
        match self {
            BatchEntry::Put { key, value } => (EntryKind::Put, key, value),
            BatchEntry::Delete { key } => (EntryKind::Delete, key, &[]),
        }
    }
}

/// Bytes that a put of a key and a value of these lengths takes in a batch.
pub(crate) fn put_bytes(key_bytes: usize, value_bytes: usize) -> u64 {
    let (key_bytes, value_bytes) = (key_bytes as u64, value_bytes as u64);
    1 + varint_bytes(key_bytes) + varint_bytes(value_bytes) + key_bytes + value_bytes
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// An empty batch with room for `bytes` of encoded entries.
    pub fn with_capacity(bytes: usize) -> Self {
        WriteBatch { entries: Vec::with_capacity(bytes), count: 0, has_puts: false }
    }

    /// Adds a put. Errors, leaving the batch as it was, when the key is longer than
    /// [`KEY_BYTES_MAX`] or the value longer than [`VALUE_BYTES_MAX`].
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { found_bytes: value.len(), limit_bytes: VALUE_BYTES_MAX });
        }
        self.entries.reserve(ENTRY_OVERHEAD_BYTES_MAX + key.len() + value.len());
        self.entries.push(EntryKind::Put as u8);
        append_varint(&mut self.entries, key.len() as u64);
        append_varint(&mut self.entries, value.len() as u64);
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value);
        self.count += 1;
        self.has_puts = true;
        Ok(())
    }

    /// Adds a delete. Errors, leaving the batch as it was, when the key is longer than
    /// [`KEY_BYTES_MAX`].
    #[inline]
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        self.entries.reserve(ENTRY_OVERHEAD_BYTES_MAX + key.len());
        self.entries.push(EntryKind::Delete as u8);
        append_varint(&mut self.entries, key.len() as u64);
        self.entries.extend_from_slice(key);
        self.count += 1;
        Ok(())
    }

    /// Adds every entry of `other`, in its order, after this one's.
    pub fn append(&mut self, other: &WriteBatch) {
        self.entries.extend_from_slice(&other.entries);
        self.count += other.count;
        self.has_puts |= other.has_puts;
    }

    /// Removes every entry; keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.count = 0;
        self.has_puts = false;
    }

    /// Not only deletes.
    pub(crate) fn has_puts(&self) -> bool {
        self.has_puts
    }

    /// Entries.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// There are no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the encoded entries.
    pub fn size_bytes(&self) -> usize {
        self.entries.len()
    }

    /// The entries in the order they were added.
    pub fn iter(&self) -> BatchEntries<'_> {
        BatchEntries { decoder: Decoder::new(&self.entries), left: self.count }
    }

    /// The encoded entries, as the log writes them after [`record_header`].
    pub(crate) fn encoded_entries(&self) -> &[u8] {
        &self.entries
    }
}

impl<'a> IntoIterator for &'a WriteBatch {
    type Item = BatchEntry<'a>;
    type IntoIter = BatchEntries<'a>;

    fn into_iter(self) -> BatchEntries<'a> {
        self.iter()
    }
}

/// Errs with a key that is longer than any may be.
#[inline]
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { found_bytes: key.len(), limit_bytes: KEY_BYTES_MAX });
    }
    Ok(())
}

/// Entries of a batch or of a log record, which were validated where they came in.
#[derive(Clone, Debug)]
pub struct BatchEntries<'a> {
    decoder: Decoder<'a>,
    left: u64,
}

impl<'a> Iterator for BatchEntries<'a> {
    type Item = BatchEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<BatchEntry<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let entry = decode_entry(&mut self.decoder);
        debug_assert!(entry.is_ok(), "entries are validated before they are iterated: {entry:?}");
        entry.ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.left);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

#[inline]
fn decode_entry<'a>(decoder: &mut Decoder<'a>) -> Result<BatchEntry<'a>, Damage> {
    let start = decoder.position();
    let number = decoder.byte("the kind of an entry")?;
    let Some(kind) = EntryKind::from_number(number) else {
        return Err(Damage {
            offset_bytes: start as u64,
            expected: "kind 0 or 1 of a batch entry".to_string(),
            found: key::kind_in_words(number),
            newer: true,
            older: false,
        });
    };
    let key_length = decoder.varint_at_most(KEY_BYTES_MAX as u64, "key length")?;
    match kind {
        EntryKind::Put => {
            let value_length = decoder.varint_at_most(VALUE_BYTES_MAX as u64, "value length")?;
            let key = decoder.bytes(key_length, "key")?;
            let value = decoder.bytes(value_length, "value")?;
            Ok(BatchEntry::Put { key, value })
        }
        EntryKind::Delete => Ok(BatchEntry::Delete { key: decoder.bytes(key_length, "key")? }),
    }
}

/// No entry more can be numbered.
pub(crate) fn no_sequences_left() -> Error {
    Error::InvalidArgument {
        what: "write".to_owned(),
        reason: "all sequence numbers are used up; copy the data into a new database".to_owned(),
    }
}

/// The bytes that precede the encoded entries of one or more batches in a log record.
///
/// The caller has made sure that the last entry's sequence number is within [`SEQUENCE_MAX`].
#[inline]
pub(crate) fn record_header(first_sequence: Sequence, count: u64) -> [u8; RECORD_HEADER_BYTES] {
    debug_assert!(count > 0 && first_sequence <= SEQUENCE_MAX && count - 1 <= SEQUENCE_MAX - first_sequence);
    let mut header = [0; RECORD_HEADER_BYTES];
    header[..8].copy_from_slice(&((first_sequence << 8) | u64::from(RECORD_FORMAT)).to_le_bytes());
    header[8..].copy_from_slice(&count.to_le_bytes());
    header
}

/// A log record, validated to its last byte.
#[derive(Clone, Debug)]
pub(crate) struct BatchRecord<'a> {
    /// Sequence number of the first entry.
    pub(crate) first_sequence: Sequence,
    /// Entries, at least 1.
    pub(crate) count: u64,
    entries: &'a [u8],
}

impl<'a> BatchRecord<'a> {
    /// Validates `record`: every length, every kind, the count, the range of sequence numbers.
    pub(crate) fn decode(record: &'a [u8]) -> Result<Self, Damage> {
        let mut decoder = Decoder::new(record);
        let first = decoder.fixed_u64("the first sequence number of a batch")?;
        let format = first as u8;
        if format != RECORD_FORMAT {
            return Err(Damage {
                offset_bytes: 0,
                expected: format!("batch format {RECORD_FORMAT}"),
                found: format!("format {format}"),
                newer: true,
                older: false,
            });
        }
        let first_sequence = first >> 8;
        let count = decoder.fixed_u64("the number of entries of a batch")?;
        if count == 0 || count - 1 > SEQUENCE_MAX - first_sequence {
            let expected = format!("1 to {} entries", SEQUENCE_MAX - first_sequence + 1);
            return Err(Decoder::damage(8, expected, count.to_string()));
        }
        for index in 0..count {
            if decoder.is_empty() {
                return Err(Decoder::damage(decoder.position(), format!("{count} entries"), index.to_string()));
            }
            decode_entry(&mut decoder)?;
        }
        if !decoder.is_empty() {
            let found = format!("{} more bytes", decoder.remaining());
            return Err(Decoder::damage(decoder.position(), format!("the end after {count} entries"), found));
        }
        Ok(BatchRecord { first_sequence, count, entries: &record[RECORD_HEADER_BYTES..] })
    }

    /// Sequence number of the last entry.
    pub(crate) fn last_sequence(&self) -> Sequence {
        self.first_sequence + (self.count - 1)
    }

    /// The entries in order.
    pub(crate) fn iter(&self) -> BatchEntries<'a> {
        BatchEntries { decoder: Decoder::new(self.entries), left: self.count }
    }

    /// A copy that lasts.
    pub(crate) fn keep(&self) -> KeptRecord {
        KeptRecord { first_sequence: self.first_sequence, count: self.count, entries: self.entries.to_vec() }
    }
}

/// A [`BatchRecord`] with memory of its own.
pub(crate) struct KeptRecord {
    first_sequence: Sequence,
    count: u64,
    entries: Vec<u8>,
}

impl KeptRecord {
    pub(crate) fn record(&self) -> BatchRecord<'_> {
        BatchRecord { first_sequence: self.first_sequence, count: self.count, entries: &self.entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(first_sequence: Sequence, batches: &[&WriteBatch]) -> Vec<u8> {
        let mut record = record_header(first_sequence, batches.iter().map(|batch| batch.count()).sum()).to_vec();
        for batch in batches {
            record.extend_from_slice(batch.encoded_entries());
        }
        record
    }

    #[test]
    fn entries_come_back_in_order_and_append_adds_after() {
        let mut first = WriteBatch::new();
        first.put(b"a", b"1").unwrap();
        first.delete(b"").unwrap();
        let mut second = WriteBatch::new();
        second.put(&[0xff; 300], &[7; 70_000]).unwrap();
        first.append(&second);
        assert_eq!(first.count(), 3);
        let long_key = [0xff; 300];
        let long_value = [7; 70_000];
        let expected = [
            BatchEntry::Put { key: b"a", value: b"1" },
            BatchEntry::Delete { key: b"" },
            BatchEntry::Put { key: &long_key, value: &long_value },
        ];
        assert_eq!(first.iter().collect::<Vec<_>>(), expected);
        let bytes = record(9, &[&first, &second]);
        let decoded = BatchRecord::decode(&bytes).unwrap();
        assert_eq!((decoded.first_sequence, decoded.count, decoded.last_sequence()), (9, 4, 12));
        assert_eq!(decoded.iter().take(3).collect::<Vec<_>>(), expected);
        first.clear();
        assert!(first.is_empty() && first.size_bytes() == 0 && first.iter().next().is_none());
    }

    #[test]
    fn limits_hold_and_leave_the_batch_as_it_was() {
        let mut batch = WriteBatch::new();
        batch.put(&vec![1; KEY_BYTES_MAX], b"").unwrap();
        let before = batch.encoded_entries().to_vec();
        let long = vec![1; KEY_BYTES_MAX + 1];
        assert!(matches!(batch.put(&long, b""), Err(Error::KeyTooLong { found_bytes: 65_537, limit_bytes: 65_536 })));
        assert!(matches!(batch.delete(&long), Err(Error::KeyTooLong { .. })));
        assert_eq!(batch.encoded_entries(), before);
        assert_eq!(batch.count(), 1);
    }

    /// The bytes of the format; a change here is a change of the format.
    #[test]
    fn golden_record() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value").unwrap();
        batch.delete(b"gone").unwrap();
        let expected =
            [&[1, 0x39, 0x30, 0, 0, 0, 0, 0][..], &[2, 0, 0, 0, 0, 0, 0, 0], &[1, 3, 5], b"keyvalue", &[0, 4], b"gone"]
                .concat();
        assert_eq!(record(12_345, &[&batch]), expected);
    }

    #[test]
    fn every_shorter_and_every_changed_record_is_an_error_or_another_valid_one() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", &[3; 200]).unwrap();
        batch.delete(b"gone").unwrap();
        let bytes = record(77, &[&batch]);
        for length in 0..bytes.len() {
            assert!(BatchRecord::decode(&bytes[..length]).is_err(), "length {length}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(BatchRecord::decode(&longer).is_err());
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[position] ^= 1 << bit;
                if let Ok(decoded) = BatchRecord::decode(&changed) {
                    assert_eq!(decoded.iter().count() as u64, decoded.count);
                }
            }
        }
    }

    #[test]
    fn newer_kinds_and_formats_are_told_from_damage() {
        let mut batch = WriteBatch::new();
        batch.delete(b"k").unwrap();
        let mut bytes = record(1, &[&batch]);
        bytes[RECORD_HEADER_BYTES] = 9;
        assert!(BatchRecord::decode(&bytes).unwrap_err().newer);
        for (kind, name) in [
            (2, "range delete"),
            (16, "delete in a key space"),
            (17, "put in a key space"),
            (18, "range delete in a key space"),
        ] {
            bytes[RECORD_HEADER_BYTES] = kind;
            let error = BatchRecord::decode(&bytes).unwrap_err().in_file("000001.log", 64, "batch");
            let expected = format!("found kind {kind} ({name}); it was written by a newer version");
            assert!(matches!(error, Error::Foreign { .. }) && error.to_string().contains(&expected), "{error}");
        }
        bytes[0] = 2;
        let error = BatchRecord::decode(&bytes).unwrap_err().in_file("000001.log", 64, "batch");
        assert!(matches!(error, Error::Foreign { offset_bytes: 64, .. }), "{error}");
        assert!(BatchRecord::decode(&record_header(SEQUENCE_MAX, 1)).is_err());
        let mut too_many = record_header(1, 1);
        too_many[8..].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(!BatchRecord::decode(&too_many).unwrap_err().newer);
    }
}
