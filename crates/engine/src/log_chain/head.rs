//! The end of a chain of logs.

use super::LogChain;
use crate::error::{Error, ErrorKind};
use crate::log::{HEADER_BYTES, LogWriter, PreviousLog};

/// The log that is written. One owner.
pub(crate) struct LogHead {
    /// None before the first, and at the end.
    log: Option<LogWriter>,
    number: u64,
    /// Bytes of the log handed to the store.
    handed_over_bytes: u64,
    /// An append failed, or there is no log: its end is unknown, so it takes no more.
    is_broken: bool,
    /// The error that broke the log. Part of the appended records may exist in memory only.
    cause: Option<Error>,
}

impl LogHead {
    /// Without a log the first write makes one, as after one that broke.
    pub(crate) fn new(log: Option<(u64, LogWriter)>) -> LogHead {
        let number = log.as_ref().map_or(0, |(number, _)| *number);
        let is_broken = log.is_none();
        let log = log.map(|(_, log)| log);
        LogHead { log, number, handed_over_bytes: 0, is_broken, cause: None }
    }

    /// Bytes that were appended and may not have reached the store.
    pub(crate) fn held_back_bytes(&self) -> u64 {
        let held_back = |log: &LogWriter| log.size_bytes() - self.handed_over_bytes.max(log.synced_bytes());
        self.log.as_ref().map_or(0, held_back)
    }

    /// Nothing may be appended before [`LogHead::begin_next`].
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns true if the log broke and part of its records may exist in memory only.
    pub(crate) fn is_torn(&self) -> bool {
        self.is_broken && self.cause.is_some()
    }

    /// What the log holds is unknown: it gets no seal that says it is whole.
    pub(crate) fn break_off(&mut self) {
        self.is_broken = true;
    }

    /// Appends one record: the concatenation of `pieces`.
    ///
    /// Errors: [`Error::Closed`] at the end; those of the store, which break the log.
    pub(crate) fn append(&mut self, chain: &LogChain, pieces: &[&[u8]]) -> Result<(), Error> {
        let Some(log) = self.log.as_mut() else { return Err(Error::Closed) };
        let appended = log.append(pieces).and_then(|_| {
            if log.size_bytes() - self.handed_over_bytes > chain.options.buffer_bytes {
                let _pass = log.holds_back().then(|| chain.gate().pass());
                log.hand_over()?;
                self.handed_over_bytes = log.size_bytes();
            }
            Ok(())
        });
        appended.inspect_err(|error| self.note_broken(error))
    }

    fn note_broken(&mut self, error: &Error) {
        self.is_broken = true;
        self.cause.get_or_insert_with(|| error.clone());
    }

    /// Hands everything appended to the medium. Cost: that of the store's flush.
    ///
    /// Errors: those of the store, which break the log.
    pub(crate) fn flush(&mut self, chain: &LogChain) -> Result<(), Error> {
        let _pass = chain.gate().lead();
        self.flush_alone()
    }

    fn flush_alone(&mut self) -> Result<(), Error> {
        match self.log.as_mut().filter(|_| !self.is_broken) {
            Some(log) => log.flush().inspect_err(|error| self.note_broken(error)),
            None => Ok(()),
        }
    }

    /// Makes everything appended durable, the oldest first, so that what is durable is always a prefix of history.
    pub(crate) fn sync(&mut self, chain: &LogChain) -> Result<(), Error> {
        // It waits for what is on its way.
        let _pass = chain.gate().lead();
        chain.sync_complete(u64::MAX)?;
        match self.log.as_mut() {
            Some(log) => log.sync(),
            None => Err(Error::Closed),
        }
    }

    /// Goes on in a new log; on failure in the one there is, unless that broke.
    pub(crate) fn begin_next(&mut self, chain: &LogChain, number: u64, salt: u64) -> Result<(), Error> {
        let log = self.create_next(chain, number, salt)?;
        let mut unsynced = chain.unsynced.lock();
        if let Some(old) = self.log.replace(log)
            && old.synced_bytes() < old.size_bytes()
            && !self.is_broken
        {
            unsynced.push((self.number, old));
        }
        // Where nobody syncs, nothing else lets go of logs that are in tables, and of their space.
        unsynced.retain(|(number, _)| chain.is_needed(*number));
        drop(unsynced);
        self.number = number;
        self.handed_over_bytes = 0;
        (self.is_broken, self.cause) = (false, None);
        Ok(())
    }

    fn create_next(&mut self, chain: &LogChain, number: u64, salt: u64) -> Result<LogWriter, Error> {
        let _pass = chain.gate().lead();
        self.flush_alone()?;
        chain.create(number, salt, self.previous())
    }

    /// Logs before the one that is written need no sync any more: what they hold is going to be in tables first.
    pub(crate) fn forget_unsynced(&mut self, chain: &LogChain) {
        chain.unsynced.lock().clear();
    }

    /// Numbers of logs before the one that is written that no sync reached.
    #[cfg(test)]
    pub(super) fn unsynced(&self, chain: &LogChain) -> Vec<u64> {
        chain.unsynced.lock().iter().map(|(number, _)| *number).collect()
    }

    fn previous(&self) -> Option<PreviousLog> {
        self.log.as_ref().map(|log| PreviousLog { number: self.number, synced_bytes: log.synced_bytes() })
    }

    /// Ends the chain: the log is complete and says so, which lets the next open tell damage from the end. `next` gives the
    /// number and salt of the log that follows. A seal or a successor that does not fit is left out: nothing is lost by that.
    ///
    /// Errors: those of the store; the error that broke the log, if records may be missing from it.
    pub(crate) fn close(&mut self, chain: &LogChain, next: impl FnOnce() -> (u64, u64)) -> Result<(), Error> {
        let older = std::mem::take(&mut *chain.unsynced.lock());
        let Some(log) = self.log.take() else { return Ok(()) };
        if self.is_broken {
            return self.cause.take().map_or(Ok(()), Err);
        }
        for (_, old) in older {
            finish(old)?;
        }
        let wrote = log.size_bytes() > HEADER_BYTES as u64;
        let synced_bytes = finish(log)?;
        if wrote {
            // The header of an empty successor says how long this log is, so that one that was cut short
            // is not taken for one whose end was never written. Only that is lost when it fails.
            let (number, salt) = next();
            let _ = chain.create(number, salt, Some(PreviousLog { number: self.number, synced_bytes }));
        }
        Ok(())
    }
}

/// Makes a log durable and seals it, if there is space for that. Its durable bytes.
fn finish(mut log: LogWriter) -> Result<u64, Error> {
    if log.synced_bytes() < log.size_bytes() {
        log.sync()?;
    }
    let synced_bytes = log.synced_bytes();
    match log.finish() {
        Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
        _ => Ok(synced_bytes),
    }
}
