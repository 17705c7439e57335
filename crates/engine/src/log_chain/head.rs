//! The end of a chain of logs.

use super::LogChain;
use crate::error::Error;
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
}

impl LogHead {
    /// Without a log the first write makes one, as after one that broke.
    pub(crate) fn new(log: Option<(u64, LogWriter)>) -> LogHead {
        let number = log.as_ref().map_or(0, |(number, _)| *number);
        let is_broken = log.is_none();
        let log = log.map(|(_, log)| log);
        LogHead { log, number, handed_over_bytes: 0, is_broken }
    }

    /// Nothing may be appended before [`LogHead::begin_next`].
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
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
        self.is_broken |= appended.is_err();
        appended
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
        self.is_broken = false;
        Ok(())
    }

    fn create_next(&mut self, chain: &LogChain, number: u64, salt: u64) -> Result<LogWriter, Error> {
        let _pass = chain.gate().lead();
        if !self.is_broken
            && let Some(log) = self.log.as_mut()
            && let Err(error) = log.flush()
        {
            self.is_broken = true;
            return Err(error);
        }
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
    /// number and salt of the log that follows.
    pub(crate) fn close(&mut self, chain: &LogChain, next: impl FnOnce() -> (u64, u64)) -> Result<(), Error> {
        let older = std::mem::take(&mut *chain.unsynced.lock());
        let Some(log) = self.log.take() else { return Ok(()) };
        if self.is_broken {
            return Ok(());
        }
        for (_, old) in older {
            old.finish()?;
        }
        let wrote = log.size_bytes() > HEADER_BYTES as u64;
        let synced_bytes = log.finish()?;
        if wrote {
            // The header of an empty successor says how long this log is, so that one that was cut short
            // is not taken for one whose end was never written. Only that is lost when it fails.
            let (number, salt) = next();
            let _ = chain.create(number, salt, Some(PreviousLog { number: self.number, synced_bytes }));
        }
        Ok(())
    }
}
