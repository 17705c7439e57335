//! A log that begins with everything.

use crate::batch::{self, WriteBatch};
use crate::db_iterator::DbIterator;
use crate::error::Error;
use crate::file_name;
use crate::key::{SEQUENCE_MAX, Sequence};
use crate::log::{LogHeader, LogWriter, Purpose};
use std::sync::Arc;
use varve_store::{CreateOptions, FileKind, FileStore};

/// Bytes of pairs in a record.
const RECORD_BYTES: usize = 1 << 20;

/// A durable log without one before it.
pub(crate) struct FreshLog {
    pub(crate) number: u64,
    pub(crate) log: LogWriter,
    /// Of its newest entry, or what it begins behind.
    pub(crate) last_sequence: Sequence,
}

/// Puts all pairs of `walk`, numbered from the one behind `sequence` on, into a new log of `database`. Durable when this
/// returns; removed, if it can be, when it fails.
pub(crate) fn write_log(
    store: &dyn FileStore,
    (number, salt): (u64, u64),
    database: u64,
    sequence: Sequence,
    walk: DbIterator,
) -> Result<FreshLog, Error> {
    let header = LogHeader { purpose: Purpose::WriteAhead, number, salt, database, previous: None };
    let written = write(store, &header, sequence, walk);
    if written.is_err() {
        let _ = store.remove(&file_name::log(number));
    }
    written
}

fn write(
    store: &dyn FileStore,
    header: &LogHeader,
    sequence: Sequence,
    mut walk: DbIterator,
) -> Result<FreshLog, Error> {
    let number = header.number;
    let create = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let file = store.create(&file_name::log(number), &create)?;
    let mut log = LogWriter::create(file, header, Arc::default())?;
    let (mut last_sequence, mut batch) = (sequence, WriteBatch::new());
    walk.seek_to_first();
    while walk.valid() {
        batch.put(walk.key(), walk.value())?;
        walk.next();
        if batch.size_bytes() >= RECORD_BYTES || !walk.valid() {
            if batch.count() > SEQUENCE_MAX - last_sequence {
                return Err(batch::no_sequences_left());
            }
            let header = batch::record_header(last_sequence + 1, batch.count());
            log.append(&[&header, batch.encoded_entries()])?;
            last_sequence += batch.count();
            batch.clear();
        }
    }
    walk.status()?;
    log.sync()?;
    log.mark()?;
    Ok(FreshLog { number, log, last_sequence })
}
