//! Memtables and logs.

use crate::key::{self, EntryKind};
use crate::log::{LogHeader, LogReader, LogWriter, Purpose};
use crate::memory_file::MemoryFile;
use crate::memtable::MemTable;
use crate::{Error, WriteBatch};
use std::sync::Arc;
use varve_store::{IoContext, StoreError, WritableFile};

/// A memtable.
pub struct Table(Arc<MemTable>);

impl Table {
    /// An empty one; `predecessor` teaches it what keys begin with.
    pub fn new(capacity_bytes: usize, predecessor: Option<&Table>) -> Table {
        Table(Arc::new(match predecessor {
            Some(table) => table.0.successor(2),
            None => MemTable::new(1, capacity_bytes, 42),
        }))
    }

    /// Adds a put.
    pub fn insert(&self, sequence: u64, key: &[u8], value: &[u8]) {
        self.0.insert(sequence, EntryKind::Put, key, value);
    }

    /// Adds a batch.
    pub fn apply(&self, sequence: u64, batch: &WriteBatch) -> u64 {
        self.0.apply(batch, sequence)
    }

    /// Length of the newest value of a lookup key.
    pub fn get(&self, lookup_key: &[u8]) -> Option<usize> {
        self.0.get(lookup_key).map(|found| found.value.len())
    }

    /// Copies everything out, block by block, as a flush would; the number of bytes.
    pub fn copy_out(&self) -> usize {
        use crate::iterator::InternalIterator;
        let mut iterator = self.0.iterator();
        iterator.seek_to_first();
        let mut block = Vec::with_capacity(16 << 10);
        let mut bytes = 0;
        while iterator.valid() {
            block.extend_from_slice(iterator.key());
            block.extend_from_slice(iterator.value());
            if block.len() > 8 << 10 {
                bytes += block.len();
                block.clear();
            }
            iterator.next();
        }
        bytes + block.len()
    }

    /// Memory taken.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// Entries.
    pub fn entries(&self) -> u64 {
        self.0.entries()
    }
}

/// The key to look up `user_key` at any sequence number.
pub fn lookup_key(user_key: &[u8]) -> Vec<u8> {
    key::lookup_key(user_key, key::SEQUENCE_MAX)
}

/// A file that copies what it gets into a buffer, as a file of a store does, and forgets it.
struct Sink(Vec<u8>);

impl WritableFile for Sink {
    fn append(&mut self, data: &[u8], _: &IoContext) -> Result<(), StoreError> {
        if self.0.len() + data.len() > self.0.capacity() {
            self.0.clear();
        }
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self, _: &IoContext) -> Result<(), StoreError> {
        self.0.clear();
        Ok(())
    }

    fn write_back(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn set_level(&mut self, _: u8) {}

    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn finish(self: Box<Self>, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Appends `count` records of `batch` to a log that goes nowhere, flushing each.
pub fn write_log_nowhere(count: u64, batch: &WriteBatch) -> Result<(), Error> {
    write_records(Box::new(Sink(Vec::with_capacity(64 << 10))), count, batch)
}

/// Appends `count` records of `batch` to a log in memory; returns the log.
pub fn write_log(count: u64, batch: &WriteBatch) -> Result<Vec<u8>, Error> {
    let file = MemoryFile::default();
    write_records(file.writer(), count, batch)?;
    Ok(file.bytes())
}

fn write_records(file: Box<dyn WritableFile>, count: u64, batch: &WriteBatch) -> Result<(), Error> {
    let header = LogHeader { purpose: Purpose::WriteAhead, number: 1, salt: 5, database: 3, previous: None };
    let mut writer = LogWriter::create(file, &header, Arc::default())?;
    let mut sequence = 1;
    for _ in 0..count {
        writer.append(&[&crate::batch::record_header(sequence, batch.count()), batch.encoded_entries()])?;
        writer.flush()?;
        sequence += batch.count();
    }
    Ok(())
}

/// Reads a log back; the number of entries.
pub fn read_log(bytes: Vec<u8>) -> Result<u64, Error> {
    let file = MemoryFile::of(bytes);
    let mut reader = LogReader::open(file.reader(), "measured", Purpose::WriteAhead, 1)?;
    let mut entries = 0;
    while let Some(record) = reader.next()? {
        let batch = crate::batch::BatchRecord::decode(record.data)
            .map_err(|damage| damage.in_file("measured", record.offset_bytes, "batch"))?;
        entries += batch.count;
    }
    Ok(entries)
}
