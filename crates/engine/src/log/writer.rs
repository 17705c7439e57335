//! Writing a log.

use super::direct::DirectLog;
use super::frame::{EncodedHeader, FrameKind, PAYLOAD_BYTES_MAX, Seed};
use super::write_behind::{LogBacklog, WriteBehind};
use super::{HEADER_BYTES, LogCounters, LogHeader};
use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::Env;
use varve_store::{IoContext, StoreError, WritableFile};

/// Who writes to the file.
enum LogFile {
    /// Who appends, flushes or syncs.
    Direct(DirectLog),
    Behind(WriteBehind),
}

impl LogFile {
    #[inline]
    fn append(&mut self, bytes: &[u8], context: &IoContext) -> Result<(), StoreError> {
        match self {
            LogFile::Direct(file) => file.append(bytes, context),
            LogFile::Behind(file) => {
                file.append(bytes);
                Ok(())
            }
        }
    }

    fn hand_over(&mut self, context: &IoContext) -> Result<(), StoreError> {
        match self {
            LogFile::Direct(file) => file.flush(context),
            LogFile::Behind(file) => file.hand_over(),
        }
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        match self {
            LogFile::Direct(file) => file.flush(context),
            LogFile::Behind(file) => file.with_all_written(|file, context| file.flush(context)),
        }
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        match self {
            LogFile::Direct(file) => file.sync(context),
            LogFile::Behind(file) => file.with_all_written(|file, context| file.sync(context)),
        }
    }

    fn finish(self, context: &IoContext) -> Result<(), StoreError> {
        match self {
            LogFile::Direct(file) => file.finish(context),
            LogFile::Behind(file) => file.finish(),
        }
    }
}

/// Appends records to a new log. One owner; may move between threads.
///
/// After any error the log takes nothing more (how much of it arrived is not known): start another.
pub(crate) struct LogWriter {
    file: LogFile,
    seed: Seed,
    context: IoContext,
    counters: Arc<LogCounters>,
    /// Bytes appended.
    size_bytes: u64,
    /// Bytes known to be durable.
    synced_bytes: u64,
    /// The largest mark written so far.
    marked_bytes: u64,
    failure: Option<StoreError>,
}

impl LogWriter {
    /// Writes the header into the new, empty `file` and syncs it. Once this returns, the log's name
    /// is durable too.
    pub(crate) fn create(
        file: Box<dyn WritableFile>,
        header: &LogHeader,
        counters: Arc<LogCounters>,
    ) -> Result<Self, Error> {
        let mut writer = LogWriter {
            file: LogFile::Direct(DirectLog::new(file)),
            seed: Seed::of(header),
            context: header.purpose.context(),
            counters,
            size_bytes: 0,
            synced_bytes: 0,
            marked_bytes: HEADER_BYTES as u64,
            failure: None,
        };
        writer.write(&header.encode())?;
        writer.sync()?;
        Ok(writer)
    }

    /// Lets a thread of its own write what is handed over from now on, and as much be on its way as `backlog` allows.
    pub(crate) fn write_behind(mut self, env: &Env, backlog: &Arc<LogBacklog>) -> Self {
        if let LogFile::Direct(log) = self.file {
            self.file = LogFile::Behind(WriteBehind::new(log.file, self.context, env, backlog.clone()));
        }
        self
    }

    /// Lets appends be no requests to a device from now on.
    pub(crate) fn hold_back(mut self) -> Self {
        if let LogFile::Direct(log) = &mut self.file {
            log.hold_back();
        }
        self
    }

    /// Whoever hands over makes a request to a device, which appends do not.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(&self.file, LogFile::Direct(log) if log.holds_back())
    }

    /// Appends one record: the concatenation of `pieces`, of any length. It may stay in a buffer of
    /// the process until `flush` or `sync`. Returns the offset of the record.
    pub(crate) fn append(&mut self, pieces: &[&[u8]]) -> Result<u64, Error> {
        self.refuse_after_failure()?;
        let record_offset = self.size_bytes;
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if length <= PAYLOAD_BYTES_MAX {
            self.append_frame(FrameKind::Whole, length, pieces.iter().copied())?;
        } else {
            self.append_fragments(pieces, length)?;
        }
        self.counters.records.fetch_add(1, Ordering::Relaxed);
        self.counters.record_bytes.fetch_add(length as u64, Ordering::Relaxed);
        Ok(record_offset)
    }

    fn append_fragments(&mut self, pieces: &[&[u8]], length: usize) -> Result<(), Error> {
        let mut rest = pieces.iter().copied();
        let mut piece: &[u8] = &[];
        let mut left = length;
        let mut kind = FrameKind::First;
        let mut fragment: Vec<&[u8]> = Vec::new();
        while left > 0 {
            let wanted = left.min(PAYLOAD_BYTES_MAX);
            fragment.clear();
            let mut missing = wanted;
            while missing > 0 {
                if piece.is_empty() {
                    piece = rest.next().unwrap_or_default();
                    continue;
                }
                let (taken, remaining) = piece.split_at(missing.min(piece.len()));
                fragment.push(taken);
                missing -= taken.len();
                piece = remaining;
            }
            left -= wanted;
            if left == 0 {
                kind = FrameKind::Last;
            }
            self.append_frame(kind, wanted, fragment.iter().copied())?;
            kind = FrameKind::Middle;
        }
        Ok(())
    }

    #[inline]
    fn append_frame<'p>(
        &mut self,
        kind: FrameKind,
        length: usize,
        pieces: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<(), Error> {
        let mark = (self.synced_bytes > self.marked_bytes).then_some(self.synced_bytes);
        let header = EncodedHeader::new(self.seed, self.size_bytes, kind, mark, length, pieces.clone());
        self.write(header.bytes())?;
        for piece in pieces {
            self.write(piece)?;
        }
        self.marked_bytes = mark.unwrap_or(self.marked_bytes);
        Ok(())
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if let Err(error) = self.file.append(bytes, &self.context) {
            return Err(self.fail(error));
        }
        self.size_bytes += bytes.len() as u64;
        self.counters.file_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Begins to hand what was appended to the medium, or does so. An error of it may be told by a later call.
    pub(crate) fn hand_over(&mut self) -> Result<(), Error> {
        self.refuse_after_failure()?;
        self.file.hand_over(&self.context).map_err(|error| self.fail(error))
    }

    /// Hands what was appended to the medium: it survives the end of the process, not of the machine.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.refuse_after_failure()?;
        self.file.flush(&self.context).map_err(|error| self.fail(error))
    }

    /// Makes everything appended durable.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        self.refuse_after_failure()?;
        if let Err(error) = self.file.sync(&self.context) {
            return Err(self.fail(error));
        }
        self.synced_bytes = self.size_bytes;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes down that what was synced is durable, so that damage to it is not taken for a torn
    /// tail should no record follow. Costs a flush; is itself not synced.
    pub(crate) fn mark(&mut self) -> Result<(), Error> {
        self.refuse_after_failure()?;
        if self.synced_bytes > self.marked_bytes {
            self.append_mark(FrameKind::Mark)?;
            self.marked_bytes = self.synced_bytes;
            self.flush()?;
        }
        Ok(())
    }

    fn append_mark(&mut self, kind: FrameKind) -> Result<(), Error> {
        let none = std::iter::empty();
        let frame = EncodedHeader::new(self.seed, self.size_bytes, kind, Some(self.synced_bytes), 0, none);
        self.write(frame.bytes())
    }

    /// Bytes appended, everything included.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes from the start that are known to be durable.
    pub(crate) fn synced_bytes(&self) -> u64 {
        self.synced_bytes
    }

    /// Makes everything durable, marks the log as complete and closes it. Returns its durable bytes
    /// for [`super::PreviousLog`].
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        self.refuse_after_failure()?;
        if self.synced_bytes < self.size_bytes {
            self.sync()?;
        }
        let synced_bytes = self.synced_bytes;
        self.append_mark(FrameKind::Seal)?;
        self.file.finish(&self.context)?;
        Ok(synced_bytes)
    }

    #[inline]
    fn refuse_after_failure(&self) -> Result<(), Error> {
        match &self.failure {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned { cause: cause.to_string() }),
        }
    }

    #[cold]
    fn fail(&mut self, error: StoreError) -> Error {
        self.failure = Some(error.clone());
        Error::Store(error)
    }
}
