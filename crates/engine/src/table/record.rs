//! Records of a table that its store keeps apart from their blocks.
//!
//! A record, little-endian, as it is kept for this process or one that opens the same files later:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | version, 1 |
//! | 4 | 4 | bytes of the user key |
//! | 8 | 8 | identity of the table |
//! | 16 | 8 | sequence and kind |
//! | 24 | | user key, then the value |
//!
//! The store checks what it gives back. Only the newest version of a key in its table is kept, and only a put.

use super::reader::{Found, ReadContext, Table};
use crate::cost;
use crate::error::Error;
use crate::key::EntryKind;
use crate::value::Value;
use varve_store::{RECORD_BYTES_MAX, RecordCache};

const VERSION: u32 = 1;

const HEADER_BYTES: usize = 24;

/// The newest version of a key in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) table_id: u64,
    /// Sequence and kind.
    pub(crate) trailer: u64,
    pub(crate) user_key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Bytes of it.
    pub(crate) fn length_bytes(&self) -> usize {
        HEADER_BYTES + self.user_key.len() + self.value.len()
    }

    /// None where it is too long to be kept.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let bytes = self.length_bytes();
        if bytes > RECORD_BYTES_MAX {
            return None;
        }
        let mut record = Vec::with_capacity(bytes);
        record.extend_from_slice(&VERSION.to_le_bytes());
        record.extend_from_slice(&u32::try_from(self.user_key.len()).ok()?.to_le_bytes());
        record.extend_from_slice(&self.table_id.to_le_bytes());
        record.extend_from_slice(&self.trailer.to_le_bytes());
        record.extend_from_slice(self.user_key);
        record.extend_from_slice(self.value);
        Some(record)
    }

    /// None where the bytes are no record.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (table_id, rest) = rest.split_first_chunk()?;
        let (trailer, rest) = rest.split_first_chunk()?;
        if u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        let (user_key, value) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*key_bytes)).ok()?)?;
        let (table_id, trailer) = (u64::from_le_bytes(*table_id), u64::from_le_bytes(*trailer));
        Some(Record { table_id, trailer, user_key, value })
    }
}

impl Table {
    /// Looks a key up in a block that is not in memory: in the record of it that the store keeps, or in the block.
    #[cold]
    #[inline(never)]
    pub(super) fn find_by_record(
        &self,
        records: &dyn RecordCache,
        number: usize,
        (user_key, trailer): (&[u8], u64),
        key_hash: u64,
        context: &ReadContext,
    ) -> Result<Option<Found>, Error> {
        let handle = self.index.handle(number);
        let (mut block, mut record) = (self.block_buffer(&handle)?, Vec::new());
        self.env.charge(cost::REQUEST);
        if records.read_record(key_hash, handle.offset_bytes, &mut block, &mut record, &context.io)? {
            self.env.charge(cost::BLOCK_SEARCH + cost::of_bytes(cost::CHECKSUM_KIB, record.len() as u64));
            if let Some(found) = self.found_in(&record, user_key, trailer) {
                return Ok(Some(found));
            }
            // It is of another key, or newer than what is asked for.
            let block = self.load_block(number, context)?;
            return self.find_in_block(block, user_key, trailer);
        }
        let block = self.keep_or_find_block(number, block, context)?;
        let found = self.find_in_block(block, user_key, trailer)?;
        if let Some(found) = found.as_ref().filter(|found| self.is_kept_as_record(found, trailer, context)) {
            let trailer = (found.sequence << 8) | found.kind as u64;
            let record = Record { table_id: self.table_id, trailer, user_key, value: &found.value };
            if let Some(record) = record.encode() {
                records.keep_record(key_hash, &record);
            }
        }
        Ok(found)
    }

    /// Whether what was found before a trailer is the newest version of its key here, and a put.
    fn is_kept_as_record(&self, found: &Found, trailer: u64, context: &ReadContext) -> bool {
        let sees_all = trailer >> 8 >= self.properties.newest_sequence;
        context.fill_cache && sees_all && found.kind == EntryKind::Put
    }

    /// What a record says of a key before a trailer; None where it does not say.
    fn found_in(&self, record: &[u8], user_key: &[u8], trailer: u64) -> Option<Found> {
        let record = Record::decode(record)?;
        let is_asked_for = record.table_id == self.table_id && record.user_key == user_key && record.trailer <= trailer;
        let is_put = record.trailer as u8 == EntryKind::Put as u8;
        let value = || Value::owned(record.value.to_vec());
        (is_asked_for && is_put).then(|| Found { sequence: record.trailer >> 8, kind: EntryKind::Put, value: value() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::observed_file::ObservedFile;
    use super::super::tests::{build, build_options, cache, context, internal, read_options};
    use super::super::{key_hash, reader::Table};
    use super::*;
    use crate::key::{self, Sequence};
    use parking_lot::Mutex;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use varve_env::Random;
    use varve_store::{FileMapping, IoContext, ReadRange, ReadableFile, StoreError};

    /// A file that keeps every record it is offered.
    #[derive(Clone, Default)]
    struct KeepingFile {
        inner: ObservedFile,
        kept: Arc<Mutex<BTreeMap<u64, Vec<u8>>>>,
    }

    impl ReadableFile for KeepingFile {
        fn size_bytes(&self) -> u64 {
            ReadableFile::size_bytes(&self.inner)
        }

        fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
            self.inner.read_at(offset_bytes, data, context)
        }

        fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
            self.inner.read_many(ranges, context)
        }

        fn prefetch(&self, _: u64, _: u64, _: &IoContext) {}

        fn map(&self) -> Option<FileMapping> {
            None
        }

        fn records(&self) -> Option<&dyn RecordCache> {
            Some(self)
        }
    }

    impl RecordCache for KeepingFile {
        fn read_record(
            &self,
            label: u64,
            offset_bytes: u64,
            block: &mut [u8],
            record: &mut Vec<u8>,
            context: &IoContext,
        ) -> Result<bool, StoreError> {
            match self.kept.lock().get(&label) {
                Some(kept) => {
                    record.clone_from(kept);
                    Ok(true)
                }
                None => self.inner.read_at(offset_bytes, block, context).map(|()| false),
            }
        }

        fn follows_record(&self, label: u64, _: usize) -> bool {
            self.kept.lock().contains_key(&label)
        }

        fn keep_record(&self, label: u64, record: &[u8]) {
            self.kept.lock().insert(label, record.to_vec());
        }
    }

    /// A table with two versions of "a", a deleted "b" and a "c", in a file that keeps records; nothing is cached.
    fn table() -> (KeepingFile, Arc<Table>) {
        let entries = vec![
            (internal(b"a", 9, EntryKind::Put), b"new".to_vec()),
            (internal(b"a", 4, EntryKind::Put), b"old".to_vec()),
            (internal(b"b", 7, EntryKind::Delete), Vec::new()),
            (internal(b"c", 5, EntryKind::Put), b"sea".to_vec()),
        ];
        let (inner, summary) = build(&entries, &build_options());
        let file = KeepingFile { inner, ..KeepingFile::default() };
        let options = read_options(1);
        let table = Table::open(Arc::new(file.clone()), "t", 1, summary.size_bytes, &options, cache(0)).expect("opens");
        (file, table)
    }

    fn get(table: &Table, user: &[u8], sequence: Sequence) -> Option<(Sequence, EntryKind, Vec<u8>)> {
        let found = table.get(&key::lookup_key(user, sequence), key_hash(user), &context(true)).expect("readable");
        found.map(|found| (found.sequence, found.kind, found.value.into_vec()))
    }

    #[test]
    fn the_newest_version_is_kept_and_answers_without_its_block() {
        let (file, table) = table();
        let newest = Some((9, EntryKind::Put, b"new".to_vec()));
        assert_eq!(get(&table, b"a", 9), newest);
        let reads = file.inner.reads();
        assert_eq!((get(&table, b"a", 9), get(&table, b"a", 100)), (newest.clone(), newest));
        assert_eq!(file.inner.reads(), reads);
        // Who asks for what was before it has to look into the block.
        assert_eq!(get(&table, b"a", 8), Some((4, EntryKind::Put, b"old".to_vec())));
        assert_eq!(get(&table, b"a", 3), None);
        assert_eq!(file.inner.reads(), reads + 2);
    }

    #[test]
    fn what_may_not_be_the_newest_and_what_is_deleted_is_not_kept() {
        let (file, table) = table();
        assert_eq!(get(&table, b"a", 8), Some((4, EntryKind::Put, b"old".to_vec())));
        assert_eq!(get(&table, b"b", 9), Some((7, EntryKind::Delete, Vec::new())));
        // All there is of "c" is seen, but not that there is no more.
        assert_eq!(get(&table, b"c", 8), Some((5, EntryKind::Put, b"sea".to_vec())));
        let lookup = key::lookup_key(b"c", 9);
        let found = table.get(&lookup, key_hash(b"c"), &context(false)).expect("readable").expect("there");
        assert_eq!(&*found.value, b"sea");
        assert!(file.kept.lock().is_empty(), "{:?}", file.kept);
        assert_eq!(get(&table, b"c", 9), Some((5, EntryKind::Put, b"sea".to_vec())));
        assert_eq!(file.kept.lock().len(), 1);
    }

    /// Whatever comes back under the label of a key, the answer is the table's.
    #[test]
    fn records_of_others_and_bytes_that_are_none_are_not_believed() {
        let (file, table) = table();
        let record = |table_id, kind: EntryKind, user_key: &'static [u8]| {
            let record = Record { table_id, trailer: (8 << 8) | kind as u64, user_key, value: b"no" };
            record.encode().expect("short")
        };
        let mut random = Random::seeded(3);
        let mut noise = vec![0; 40];
        random.fill_bytes(&mut noise);
        let mut cut = record(77, EntryKind::Put, b"a");
        cut.truncate(23);
        let mut newer = record(77, EntryKind::Put, b"a");
        newer[0] = 2;
        let mut long_key = record(77, EntryKind::Put, b"a");
        long_key[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let of_other_key = record(77, EntryKind::Put, b"aa");
        let of_other_table = record(78, EntryKind::Put, b"a");
        let deleted = record(77, EntryKind::Delete, b"a");
        for bytes in [Vec::new(), noise, cut, newer, long_key, of_other_key, of_other_table, deleted] {
            file.kept.lock().insert(key_hash(b"a"), bytes.clone());
            assert_eq!(get(&table, b"a", 9), Some((9, EntryKind::Put, b"new".to_vec())), "{bytes:?}");
        }
        let believed = record(77, EntryKind::Put, b"a");
        file.kept.lock().insert(key_hash(b"a"), believed);
        assert_eq!(get(&table, b"a", 9), Some((8, EntryKind::Put, b"no".to_vec())), "this test sees no records");
    }

    #[test]
    fn the_bytes_of_a_record_are_these() {
        let record = Record { table_id: 0x77, trailer: 0x901, user_key: b"key", value: b"value" };
        let bytes = b"\x01\0\0\0\x03\0\0\0\x77\0\0\0\0\0\0\0\x01\x09\0\0\0\0\0\0keyvalue";
        assert_eq!(record.encode().as_deref(), Some(&bytes[..]));
        assert_eq!(Record::decode(bytes), Some(record));
    }

    #[test]
    fn records_come_back_as_they_were() {
        let value = vec![7; RECORD_BYTES_MAX - HEADER_BYTES - 3];
        for (user_key, value) in [(&b""[..], &b""[..]), (b"key", b"value"), (b"key", &value)] {
            let record = Record { table_id: u64::MAX, trailer: 0x1234_5601, user_key, value };
            assert_eq!(Record::decode(&record.encode().expect("not too long")), Some(record));
        }
        assert_eq!(Record { table_id: 1, trailer: 1, user_key: b"keys", value: &value }.encode(), None);
    }
}
