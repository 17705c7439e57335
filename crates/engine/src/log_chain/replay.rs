//! What a chain of logs holds.

use crate::batch::BatchRecord;
use crate::error::Error;
use crate::file_name;
use crate::key::Sequence;
use crate::log::{HEADER_BYTES, LogReader, Purpose};
use varve_store::{FileStore, OpenOptions};

/// Logs to be replayed.
#[derive(Clone, Copy)]
pub(crate) struct Replay<'a> {
    /// Where they are.
    pub(crate) store: &'a dyn FileStore,
    /// Id of the database.
    pub(crate) database: u64,
    /// Their numbers, ascending.
    pub(crate) logs: &'a [u64],
    /// The oldest the manifest needs.
    pub(crate) oldest: u64,
    /// Newest sequence number that is in a table.
    pub(crate) last_sequence: Sequence,
}

/// What came of a replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    /// Newest sequence number.
    pub(crate) last_sequence: Sequence,
    /// Behind the ends of logs, which were never synced.
    pub(crate) dropped_bytes: u64,
}

/// Gives every batch to `apply`, in the order of its writing.
///
/// Logs are a chain: each continues where the one before ended, and the first where the tables end. A log whose unsynced tail
/// was lost ends the chain: what later logs hold was never synced either (a sync syncs older logs first) and must not be
/// seen without what came before it.
///
/// Errors: [`Error::Corruption`] where something that was synced is missing or damaged; what `apply` fails with.
pub(crate) fn replay(
    replayed: &Replay<'_>,
    apply: &mut dyn FnMut(&BatchRecord<'_>) -> Result<(), Error>,
) -> Result<Replayed, Error> {
    let Replay { logs, oldest, last_sequence, .. } = *replayed;
    let mut result = Replayed { last_sequence, dropped_bytes: 0 };
    let mut readers = logs.iter().map(|&number| (number, open_own(replayed, number))).peekable();
    while let Some((number, reader)) = readers.next() {
        let name = file_name::log(number);
        let mut reader = reader?;
        if let Some(previous) = reader.header().and_then(|header| header.previous)
            && previous.number >= oldest
            && logs.binary_search(&previous.number).is_err()
        {
            // Its header was durable before this one's.
            return Err(Error::Corruption {
                file: file_name::log(previous.number),
                offset_bytes: 0,
                structure: "write-ahead log".to_owned(),
                expected: format!("the log that '{name}' continues"),
                found: "no such file".to_owned(),
            });
        }
        if number == oldest {
            // Its header was durable before the manifest named it.
            reader.expect_synced(HEADER_BYTES as u64);
        }
        if let Some((_, Ok(next))) = readers.peek()
            && let Some(previous) = next.header().and_then(|header| header.previous)
            && previous.number == number
        {
            reader.expect_synced(previous.synced_bytes);
        }
        while let Some(record) = reader.next()? {
            let offset_bytes = record.offset_bytes;
            let batch =
                BatchRecord::decode(record.data).map_err(|damage| damage.in_file(&name, offset_bytes, "batch"))?;
            if batch.first_sequence != result.last_sequence + 1 {
                let gap = Error::Corruption {
                    file: name.clone(),
                    offset_bytes,
                    structure: "log record".to_owned(),
                    expected: format!("sequence number {}", result.last_sequence + 1),
                    found: format!("sequence number {}", batch.first_sequence),
                };
                let lost_tail = batch.first_sequence > result.last_sequence && is_first_record(offset_bytes);
                if !lost_tail || was_synced(reader)? {
                    return Err(gap);
                }
                for (_, later) in readers {
                    if was_synced(later?)? {
                        return Err(gap);
                    }
                }
                return Ok(result);
            }
            apply(&batch)?;
            result.last_sequence = batch.last_sequence();
        }
        result.dropped_bytes += reader.tail().map_or(0, |tail| tail.dropped_bytes);
    }
    Ok(result)
}

/// Log `number` of the database.
fn open_own(replayed: &Replay<'_>, number: u64) -> Result<LogReader, Error> {
    let reader = open_log(replayed.store, number)?;
    reader.expect_database(replayed.database)?;
    Ok(reader)
}

/// Log `number`, of whatever database.
pub(crate) fn open_log(store: &dyn FileStore, number: u64) -> Result<LogReader, Error> {
    let name = file_name::log(number);
    let file = store.open(&name, &OpenOptions::default())?;
    LogReader::open(file, &name, Purpose::WriteAhead, number)
}

fn is_first_record(offset_bytes: u64) -> bool {
    offset_bytes == HEADER_BYTES as u64
}

/// Some record of this log was acknowledged as durable, and so were all logs before it.
fn was_synced(mut reader: LogReader) -> Result<bool, Error> {
    while reader.next()?.is_some() {}
    Ok(reader.marked_bytes() > 0)
}
