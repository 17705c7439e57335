//! Replay of a chain of logs: its batches and its damage.
//!
//! [`walk`] is the only reader of chains: openings, checks and repairs read through it and therefore agree. An opening stops
//! at the first fault ([`replay`]); a repair notes every fault and reads on ([`salvage`]).

use super::NO_LOG;
use crate::batch::BatchRecord;
use crate::error::Error;
use crate::file_name;
use crate::key::Sequence;
use crate::log::{HEADER_BYTES, LogReader, Purpose};
use crate::manifest::Recovered;
use crate::media::check_absent;
use std::collections::VecDeque;
use varve_store::{FileStore, Finding, OpenOptions, Severity};

/// Facts about the logs that a manifest holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogsOfManifest {
    /// Number of the manifest.
    pub(crate) manifest: u64,
    /// Id of the database.
    pub(crate) database: u64,
    /// The oldest log that is needed; [`NO_LOG`] when the tables hold everything.
    pub(crate) oldest: u64,
    /// Sequence number up to which every entry is in a table.
    pub(crate) last_sequence: Sequence,
    /// Newest sequence number in a table, and the number of that table. Logs were synced up to there before the table counted.
    pub(crate) newest_in_tables: (Sequence, u64),
    /// There are no tables. A log without a predecessor that the manifest does not name was then begun and never used.
    pub(crate) hold_everything: bool,
}

impl LogsOfManifest {
    /// Takes the facts from a manifest.
    pub(crate) fn of(manifest: &Recovered) -> LogsOfManifest {
        let contents = &manifest.contents;
        let of_tables = contents.files.values().map(|file| (file.newest_sequence, file.number));
        let newest = of_tables.max().unwrap_or_default();
        let of_ranges = contents.flushed.iter().map(|range| range.sequence).max().unwrap_or(0);
        LogsOfManifest {
            manifest: manifest.number,
            database: manifest.database,
            oldest: contents.log_number,
            last_sequence: contents.last_sequence,
            newest_in_tables: (newest.0.max(of_ranges), newest.1),
            hold_everything: contents.num_levels == 0,
        }
    }
}

/// Logs to be read.
#[derive(Clone, Copy)]
pub(crate) struct Replay<'a> {
    /// Where they are.
    pub(crate) store: &'a dyn FileStore,
    /// Their numbers, ascending: all that are there from the oldest needed on.
    pub(crate) logs: &'a [u64],
    /// Facts of the manifest; `None` if it cannot be read.
    pub(crate) manifest: Option<LogsOfManifest>,
}

/// The outcome of a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replayed {
    /// Newest sequence number.
    pub(crate) last_sequence: Sequence,
    /// Bytes behind the ends of logs, which were never synced.
    pub(crate) dropped_bytes: u64,
    /// Id of the database, if the manifest or a log says it.
    pub(crate) database: Option<u64>,
    /// Logs that are not used: those behind a lost unsynced tail, and those that were begun and never named.
    pub(crate) unused: Vec<u64>,
}

/// How a log is faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFaultKind {
    /// It is needed, and not there.
    Missing,
    /// Nothing of it can be read.
    Unreadable,
    /// It can be read up to the fault.
    Damaged,
    /// It is sound, but synced writes between it and the log before it are lost.
    Gap,
    /// The chain ends before entries that are in tables.
    EndsEarly,
}

/// A fault of a chain.
#[derive(Clone, Debug)]
pub(crate) struct LogFault {
    /// Number of the log; of the last one when the chain ends early.
    pub(crate) number: u64,
    pub(crate) kind: LogFaultKind,
    pub(crate) error: Error,
}

impl LogFault {
    /// The fault as a finding of a repair.
    pub(crate) fn finding(&self) -> Finding {
        let code = if self.kind == LogFaultKind::Damaged { "log-damaged" } else { "log-lost" };
        Finding { severity: Severity::Error, code, message: self.error.to_string() }
    }
}

/// Called with each batch.
type ApplyBatch<'a> = &'a mut dyn FnMut(&BatchRecord<'_>) -> Result<(), Error>;

/// Gives every batch to `apply`, in the order of its writing, up to the first fault, which is the error.
///
/// Errors: [`Error::Corruption`] where something that was synced is missing or damaged; those of the store, where it does not know
/// whether a log is there; what `apply` fails with.
pub(crate) fn replay(replay: &Replay<'_>, apply: ApplyBatch<'_>) -> Result<Replayed, Error> {
    walk(replay, apply, &mut |fault| {
        if fault.kind == LogFaultKind::Missing {
            check_absent(replay.store, &file_name::log(fault.number))?;
        }
        Err(fault.error)
    })
}

/// Gives every batch that can be read to `apply`, log by log, and returns the faults. A log that is in no listing is missing: the
/// caller gives up what lay on a device that is gone. What follows the first fault may repeat
/// sequence numbers or skip some.
///
/// Errors: what `apply` fails with.
pub(crate) fn salvage(replay: &Replay<'_>, apply: ApplyBatch<'_>) -> Result<(Replayed, Vec<LogFault>), Error> {
    let mut faults = Vec::new();
    let replayed = walk(replay, apply, &mut |fault| {
        faults.push(fault);
        Ok(())
    })?;
    Ok((replayed, faults))
}

/// Reads a chain and gives each fault to `on_fault`; an error of `on_fault` ends the walk.
///
/// Logs are a chain: each continues where the one before ended, and the first where the tables end. A log whose unsynced tail
/// was lost ends the chain: later logs were never synced either (a sync syncs older logs first) and must not be
/// seen without their predecessors. After a fault this is no longer known, so every log is read.
fn walk(
    chain: &Replay<'_>,
    apply: ApplyBatch<'_>,
    on_fault: &mut dyn FnMut(LogFault) -> Result<(), Error>,
) -> Result<Replayed, Error> {
    let manifest = chain.manifest;
    let database = manifest.map(|manifest| manifest.database);
    let mut readers = Readers { chain, position: 0, ahead: VecDeque::new(), database, unused: Vec::new() };
    let mut result = Replayed { last_sequence: manifest.map_or(0, |of| of.last_sequence), ..Replayed::default() };
    // Without a manifest nothing says where the chain begins.
    let mut is_faulty = manifest.is_none();
    let mut fault = |number, kind, error| on_fault(LogFault { number, kind, error });
    let oldest = manifest.map_or(NO_LOG, |manifest| manifest.oldest);
    if oldest != NO_LOG && chain.logs.first() != Some(&oldest) {
        let needed_by = file_name::manifest(manifest.map_or(0, |manifest| manifest.manifest));
        fault(
            oldest,
            LogFaultKind::Missing,
            Replay::missing(oldest, format!("the oldest log that {needed_by} needs")),
        )?;
        is_faulty = true;
    }
    'logs: while let Some((number, reader)) = readers.next() {
        let name = file_name::log(number);
        let mut reader = match reader {
            Ok(reader) => reader,
            Err(error) => {
                fault(number, LogFaultKind::Unreadable, error)?;
                is_faulty = true;
                continue;
            }
        };
        let previous = reader.header().and_then(|header| header.previous);
        if let Some(previous) = previous.filter(|previous| manifest.is_some() && previous.number > oldest)
            && chain.logs.binary_search(&previous.number).is_err()
        {
            // Its header was durable before this one's.
            let expected = format!("the log that '{name}' continues");
            fault(previous.number, LogFaultKind::Missing, Replay::missing(previous.number, expected))?;
            is_faulty = true;
        }
        if number == oldest {
            // Its header was durable before the manifest named it.
            reader.expect_synced(HEADER_BYTES as u64);
        }
        reader.expect_synced(readers.synced_bytes_of(number));
        let kind = if reader.header().is_some() { LogFaultKind::Damaged } else { LogFaultKind::Unreadable };
        loop {
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    fault(number, kind, error)?;
                    is_faulty = true;
                    break;
                }
            };
            let offset_bytes = record.offset_bytes;
            let batch = match BatchRecord::decode(record.data) {
                Ok(batch) => batch,
                Err(damage) => {
                    fault(number, kind, damage.in_file(&name, offset_bytes, "batch"))?;
                    is_faulty = true;
                    break;
                }
            };
            if batch.first_sequence != result.last_sequence + 1 && !is_faulty {
                let has_lost_tail = batch.first_sequence > result.last_sequence && is_first_record(offset_bytes);
                let error = match has_lost_tail.then(|| chain.is_synced_from(number)) {
                    Some(Ok(false)) => {
                        readers.unused.extend(chain.logs.iter().filter(|later| **later >= number));
                        break 'logs;
                    }
                    Some(Err(error)) => error,
                    _ => Error::Corruption {
                        file: name.clone(),
                        offset_bytes,
                        structure: "log record".to_owned(),
                        expected: format!("sequence number {}", result.last_sequence + 1),
                        found: format!("sequence number {}", batch.first_sequence),
                    },
                };
                fault(number, LogFaultKind::Gap, error)?;
                is_faulty = true;
            }
            apply(&batch)?;
            result.last_sequence = result.last_sequence.max(batch.last_sequence());
        }
        result.dropped_bytes += reader.tail().map_or(0, |tail| tail.dropped_bytes);
    }
    if let Some(LogsOfManifest { newest_in_tables: (newest, table), .. }) = manifest
        && newest > result.last_sequence
        && !is_faulty
    {
        // Where logs end before it, their entries of other keys are lost, and new writes would get numbers of entries in tables.
        let error = Error::Corruption {
            file: if table == 0 { "logs".to_owned() } else { file_name::table(table) },
            offset_bytes: 0,
            structure: "write-ahead logs beside tables".to_owned(),
            expected: format!("logs up to sequence number {newest}, which were synced before"),
            found: format!("logs that end at {}", result.last_sequence),
        };
        fault(chain.logs.last().copied().unwrap_or(oldest), LogFaultKind::EndsEarly, error)?;
    }
    (result.database, result.unused) = (readers.database, readers.unused);
    Ok(result)
}

impl Replay<'_> {
    /// The error for log `number`, which is needed and in no listing.
    fn missing(number: u64, expected: String) -> Error {
        let (structure, found) = ("write-ahead log".to_owned(), "no such file".to_owned());
        Error::Corruption { file: file_name::log(number), offset_bytes: 0, structure, expected, found }
    }

    /// Log `number` of the database; if nothing said yet which one that is, of the log's.
    fn open(&self, number: u64, database: &mut Option<u64>) -> Result<LogReader, Error> {
        let reader = open_log(self.store, number)?;
        *database = database.or(reader.header().map(|header| header.database));
        database.map_or(Ok(()), |database| reader.expect_database(database))?;
        Ok(reader)
    }

    /// Some record of log `number` or of a later one was acknowledged as durable, and so were all logs before it.
    fn is_synced_from(&self, number: u64) -> Result<bool, Error> {
        let mut database = self.manifest.map(|manifest| manifest.database);
        for &later in self.logs.iter().filter(|later| **later >= number) {
            let mut reader = self.open(later, &mut database)?;
            let previous = reader.header().and_then(|header| header.previous);
            if previous.is_some_and(|log| log.number >= number && log.synced_bytes > HEADER_BYTES as u64) {
                return Ok(true);
            }
            while reader.next()?.is_some() {}
            if reader.marked_bytes() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Opens the logs of a chain in order, as few of them ahead as is needed.
struct Readers<'a> {
    chain: &'a Replay<'a>,
    /// In the list of logs: the next to be opened.
    position: usize,
    ahead: VecDeque<(u64, Result<LogReader, Error>)>,
    database: Option<u64>,
    unused: Vec<u64>,
}

impl Readers<'_> {
    fn next(&mut self) -> Option<(u64, Result<LogReader, Error>)> {
        self.ahead.pop_front().or_else(|| self.open_next())
    }

    fn open_next(&mut self) -> Option<(u64, Result<LogReader, Error>)> {
        loop {
            let number = *self.chain.logs.get(self.position)?;
            self.position += 1;
            let reader = self.chain.open(number, &mut self.database);
            let begins_anew = |reader: &LogReader| reader.header().is_some_and(|header| header.previous.is_none());
            if self.chain.manifest.is_some_and(|of| of.hold_everything && of.oldest != number)
                && reader.as_ref().is_ok_and(begins_anew)
            {
                self.unused.push(number);
                continue;
            }
            return Some((number, reader));
        }
    }

    /// Bytes of log `number`, the one given last, that were durable when the next log was created. Logs that were never begun
    /// say nothing.
    fn synced_bytes_of(&mut self, number: u64) -> u64 {
        let mut position = 0;
        loop {
            if position == self.ahead.len() {
                let Some(next) = self.open_next() else { return 0 };
                self.ahead.push_back(next);
            }
            if let Some(header) = self.ahead[position].1.as_ref().ok().and_then(LogReader::header) {
                return header.previous.filter(|log| log.number == number).map_or(0, |log| log.synced_bytes);
            }
            position += 1;
        }
    }
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
