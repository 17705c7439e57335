//! Reading a log back.

use super::frame::{self, Candidate, FIXED_BYTES, FRAME_BYTES_MAX, FrameKind, Seed};
use super::{HEADER_BYTES, HeaderFault, LogHeader, Purpose};
use crate::error::Error;
use std::sync::Arc;
use varve_store::{IoContext, ReadableFile, StoreError, find_sound_answer};

/// Bytes read at once; at least two of the longest frames.
const WINDOW_BYTES: usize = 1 << 20;

/// Bytes searched at once for frames behind an unsound one.
const SCAN_BYTES: usize = 64 << 10;

const _: () = assert!(WINDOW_BYTES >= 2 * FRAME_BYTES_MAX);

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Where its first frame is in the file.
    pub(crate) offset_bytes: u64,
    pub(crate) data: &'a [u8],
}

/// Why a log ends where it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TailReason {
    /// It was closed.
    Sealed,
    /// With the last record; only zeros may follow.
    Ended,
    /// The crash came before the header was durable: no record was ever acknowledged.
    NeverBegun,
    /// The record there was being written when the machine stopped.
    Torn {
        /// Where the record begins.
        offset_bytes: u64,
        /// What is wrong with it.
        found: String,
    },
}

/// How a log ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Bytes of the header and the records returned.
    pub(crate) valid_bytes: u64,
    /// Bytes of the torn tail that were dropped, without zeros at the end.
    pub(crate) dropped_bytes: u64,
    pub(crate) reason: TailReason,
}

/// The part of the file in memory.
struct Window {
    file: Arc<dyn ReadableFile>,
    context: IoContext,
    /// Bytes of the file.
    size: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Window {
    /// Bytes `offset..offset + length` of the file, which has them; at most a window.
    #[inline]
    fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8], Error> {
        let inside = offset >= self.start && offset + length as u64 <= self.start + self.buffer.len() as u64;
        if !inside {
            self.load(offset, length)?;
        }
        let start = (offset - self.start) as usize;
        Ok(&self.buffer[start..start + length])
    }

    #[cold]
    fn load(&mut self, offset: u64, needed: usize) -> Result<(), Error> {
        let length = (self.size - offset).min(WINDOW_BYTES as u64) as usize;
        match self.read(offset, length) {
            // What is before the bytes that are lost can be read by itself.
            Err(error) if needed < length && error.is_loss() => self.read(offset, needed)?,
            outcome => outcome?,
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<(), StoreError> {
        // Nothing of it counts as read until all of it is.
        self.buffer.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length, 0);
        self.file.read_at(offset, &mut buffer, &self.context)?;
        let end = offset + length as u64;
        if end < self.size {
            self.file.prefetch(end, (self.size - end).min(WINDOW_BYTES as u64), &self.context);
        }
        (self.start, self.buffer) = (offset, buffer);
        Ok(())
    }

    /// Puts bytes in the place of those that were read at `offset`, as far as they are in memory.
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let start = offset.saturating_sub(self.start) as usize;
        if let Some(place) = self.buffer.get_mut(start..start + bytes.len()).filter(|_| offset >= self.start) {
            place.copy_from_slice(bytes);
        }
    }

    /// Looks for another answer to the read of `bytes` at `offset`.
    fn find_sound(&self, offset: u64, bytes: &mut [u8], is_sound: impl FnMut(&[u8]) -> bool) -> bool {
        let read = |bytes: &mut [u8], context: &IoContext| self.file.read_at(offset, bytes, context);
        find_sound_answer(bytes, &self.context, read, is_sound)
    }

    /// Forgets what was read: somebody may have written since.
    fn forget(&mut self) {
        self.buffer.clear();
    }

    /// The first byte from `offset` on that is not zero.
    fn next_nonzero(&mut self, mut offset: u64) -> Result<Option<u64>, Error> {
        while offset < self.size {
            let length = (self.size - offset).min(4096) as usize;
            if let Some(position) = self.bytes(offset, length)?.iter().position(|&byte| byte != 0) {
                return Ok(Some(offset + position as u64));
            }
            offset += length as u64;
        }
        Ok(None)
    }
}

/// What an unsound frame means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The log ends before it.
    End,
    /// It was being written when it was read, and is there now.
    SoundNow,
}

/// A sound frame.
struct Frame {
    kind: FrameKind,
    mark: Option<u64>,
    payload_offset: u64,
    payload_length: usize,
}

/// Streams the records of a log from its start. Memory: one window, and a record longer than a
/// frame is put together in memory, never more than the file holds.
pub(crate) struct LogReader {
    window: Window,
    name: String,
    purpose: Purpose,
    header: Option<LogHeader>,
    seed: Seed,
    /// Where the next frame is.
    offset: u64,
    /// Bytes known from elsewhere to have been synced.
    expected_synced: u64,
    /// The largest mark read.
    marked_bytes: u64,
    record: Vec<u8>,
    tail: Option<Tail>,
}

impl LogReader {
    /// Opens `file`, called `name`, which must be the log of this purpose and number. Damage,
    /// another purpose, another number or another version are errors.
    pub(crate) fn open(file: Arc<dyn ReadableFile>, name: &str, purpose: Purpose, number: u64) -> Result<Self, Error> {
        let size = file.size_bytes();
        let window = Window { file, context: purpose.context(), size, start: 0, buffer: Vec::new() };
        let mut reader = LogReader {
            window,
            name: name.to_string(),
            purpose,
            header: None,
            seed: Seed::of(&LogHeader { purpose, number, salt: 0, database: 0, previous: None }),
            offset: HEADER_BYTES as u64,
            expected_synced: 0,
            marked_bytes: 0,
            record: Vec::new(),
            tail: None,
        };
        reader.read_header(number)?;
        Ok(reader)
    }

    fn read_header(&mut self, number: u64) -> Result<(), Error> {
        let mut bytes = [0; HEADER_BYTES];
        let length = self.window.size.min(HEADER_BYTES as u64) as usize;
        bytes[..length].copy_from_slice(self.window.bytes(0, length)?);
        let decode = |bytes: &[u8; HEADER_BYTES]| LogHeader::decode(bytes, &self.name, self.purpose, number);
        let is_sound = |bytes: &[u8]| bytes.first_chunk().is_some_and(|bytes| decode(bytes).is_ok());
        if length == HEADER_BYTES && decode(&bytes).is_err() && self.window.find_sound(0, &mut bytes, is_sound) {
            self.window.put(0, &bytes);
        }
        match LogHeader::decode(&bytes, &self.name, self.purpose, number) {
            Ok(header) => {
                self.seed = Seed::of(&header);
                self.header = Some(header);
                Ok(())
            }
            Err(HeaderFault::Foreign(error)) => Err(error),
            Err(HeaderFault::Unsound { expected, found }) => {
                // Frames are written only once the header is durable, so a header that a crash
                // tore has nothing behind it.
                if self.window.next_nonzero(HEADER_BYTES as u64)?.is_some() {
                    if &bytes[..8] != super::MAGIC {
                        return Err(Error::Foreign {
                            file: self.name.clone(),
                            offset_bytes: 0,
                            expected: format!("the magic 'VARVELOG' of a {}", self.purpose.name()),
                            found: format!("'{}'", bytes[..8].escape_ascii()),
                            advice: "it is damaged or not of this database; move it away or run repair".to_string(),
                        });
                    }
                    return Err(self.corruption(60, expected, found));
                }
                let dropped = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
                self.tail = Some(Tail { valid_bytes: 0, dropped_bytes: dropped, reason: TailReason::NeverBegun });
                Ok(())
            }
        }
    }

    /// The header; none when the log was never begun.
    pub(crate) fn header(&self) -> Option<&LogHeader> {
        self.header.as_ref()
    }

    /// Errs when the header says that the log is of another database. One that was never begun is of none.
    pub(crate) fn expect_database(&self, database: u64) -> Result<(), Error> {
        match self.header {
            Some(header) if header.database != database => Err(super::misplaced(
                &self.name,
                self.purpose,
                format!("one of the database {database:016x}"),
                format!("one of the database {:016x}", header.database),
            )),
            _ => Ok(()),
        }
    }

    /// Errs when the header has another salt.
    pub(crate) fn expect_salt(&self, salt: u64) -> Result<(), Error> {
        let found = self.header.map(|header| header.salt);
        if found == Some(salt) {
            return Ok(());
        }
        let found = found.map_or("none".to_string(), |found| format!("{found:016x}"));
        Err(super::misplaced(&self.name, self.purpose, format!("salt {salt:016x}"), format!("salt {found}")))
    }

    /// Says that the first `bytes` of the file are known to have been durable: a log that ends
    /// before is damaged. To be called before the first `next`.
    pub(crate) fn expect_synced(&mut self, bytes: u64) {
        self.expected_synced = self.expected_synced.max(bytes);
    }

    /// Bytes that the frames read so far say were synced; 0 when none says so.
    pub(crate) fn marked_bytes(&self) -> u64 {
        self.marked_bytes
    }

    /// How the log ended, once `next` has returned `None`.
    pub(crate) fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// The next record; none at the end, whose reason `tail` then says. After an error, the same
    /// call may be made again only for an error of the store.
    #[allow(clippy::should_implement_trait)]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        if let Some(tail) = &self.tail {
            if self.expected_synced > tail.valid_bytes {
                return Err(self.ends_early(tail.valid_bytes));
            }
            return Ok(None);
        }
        let mut record_offset = self.offset;
        let mut offset = record_offset;
        self.record.clear();
        loop {
            let frame = match self.frame_at(offset)? {
                Ok(frame) => frame,
                Err(found) => {
                    if self.find_sound_frame(offset) {
                        continue;
                    }
                    if self.judge(record_offset, offset, found)? == Verdict::SoundNow {
                        continue;
                    }
                    return Ok(None);
                }
            };
            if frame.mark.is_some_and(|mark| mark > offset) {
                return Err(self.corruption(
                    offset,
                    format!("a mark of at most {offset}"),
                    format!("{:?}", frame.mark),
                ));
            }
            self.marked_bytes = self.marked_bytes.max(frame.mark.unwrap_or(0));
            let begun = offset > record_offset;
            let end = frame.payload_offset + frame.payload_length as u64;
            match (frame.kind, begun) {
                (FrameKind::Whole, false) => {
                    self.offset = end;
                    let data = self.window.bytes(frame.payload_offset, frame.payload_length)?;
                    return Ok(Some(Record { offset_bytes: record_offset, data }));
                }
                (FrameKind::First, false) | (FrameKind::Middle, true) => {
                    let data = self.window.bytes(frame.payload_offset, frame.payload_length)?;
                    self.record.extend_from_slice(data);
                    offset = end;
                }
                (FrameKind::Last, true) => {
                    let data = self.window.bytes(frame.payload_offset, frame.payload_length)?;
                    self.record.extend_from_slice(data);
                    self.offset = end;
                    return Ok(Some(Record { offset_bytes: record_offset, data: &self.record }));
                }
                (FrameKind::Mark, false) => {
                    self.offset = end;
                    (record_offset, offset) = (end, end);
                }
                (FrameKind::Seal, false) => {
                    if self.expected_synced > end {
                        return Err(self.ends_early(end));
                    }
                    self.tail = Some(Tail { valid_bytes: end, dropped_bytes: 0, reason: TailReason::Sealed });
                    return Ok(None);
                }
                (kind, _) => {
                    let expected = if begun { "a middle or last frame" } else { "a whole or first frame" };
                    return Err(self.corruption(offset, expected.to_string(), format!("a sound {kind:?} frame")));
                }
            }
        }
    }

    /// The frame at `offset`, or what is wrong with it.
    #[inline]
    fn frame_at(&mut self, offset: u64) -> Result<Result<Frame, &'static str>, Error> {
        let left = self.window.size.saturating_sub(offset);
        if left < FIXED_BYTES as u64 {
            return Ok(Err(if left == 0 { "the end of the file" } else { "fewer bytes than a frame has" }));
        }
        let Some(bytes) = self.window.bytes(offset, FIXED_BYTES)?.first_chunk() else {
            return Ok(Err("fewer bytes than a frame has"));
        };
        let Some(candidate) = Candidate::parse(self.seed, offset, bytes) else {
            return Ok(Err("bytes that are not the header of a frame"));
        };
        if left < candidate.frame_length() as u64 {
            return Ok(Err("the end of the file within a frame"));
        }
        let frame = self.window.bytes(offset, candidate.frame_length())?;
        if !candidate.is_sound(frame) {
            return Ok(Err("a frame whose checksum is wrong"));
        }
        Ok(Ok(Frame {
            kind: candidate.kind,
            mark: candidate.mark(frame),
            payload_offset: offset + candidate.header_length() as u64,
            payload_length: candidate.payload_length,
        }))
    }

    /// Looks for another answer to the read of the frame at `offset`. Returns true if a sound frame is in memory now. A medium
    /// without redundancy is read once more.
    #[cold]
    fn find_sound_frame(&mut self, offset: u64) -> bool {
        let length = self.window.size.saturating_sub(offset).min(FRAME_BYTES_MAX as u64) as usize;
        if length < FIXED_BYTES {
            return false;
        }
        let Some(mut bytes) = self.window.bytes(offset, length).ok().map(<[u8]>::to_vec) else { return false };
        let seed = self.seed;
        let frame_length = |bytes: &[u8]| {
            let candidate = Candidate::parse(seed, offset, bytes.first_chunk()?)?;
            let frame = bytes.get(..candidate.frame_length())?;
            candidate.is_sound(frame).then_some(frame.len())
        };
        // Only a sound frame says how long it is, and nothing else may be accepted.
        let mut found = None;
        self.window.find_sound(offset, &mut bytes, |bytes| {
            found = found.or_else(|| frame_length(bytes));
            false
        });
        let Some(frame_bytes) = found else { return false };
        let frame = &mut bytes[..frame_bytes];
        let is_found = self.window.find_sound(offset, frame, |bytes| frame_length(bytes).is_some());
        if is_found {
            self.window.put(offset, frame);
        }
        is_found
    }

    /// Decides what an unsound frame at `offset`, in the record at `record_offset`, means: sets the
    /// tail, or returns the damage. A log may be written while it is read: the frame may have been on its way when it
    /// was read, and those behind it not yet. What proves that it was synced also says that it is all there
    /// by now, so it is read once more.
    fn judge(&mut self, record_offset: u64, offset: u64, found: &'static str) -> Result<Verdict, Error> {
        const EXPECTED: &str = "a sound frame, because this place is known to have been synced";
        if self.expected_synced > record_offset {
            return self.judge_again(offset, EXPECTED.to_string(), found);
        }
        let mut dropped_end = offset;
        let mut at = offset;
        while let Some(nonzero) = self.window.next_nonzero(at)? {
            // The frame at `offset` itself is unsound.
            let start = nonzero.max(offset + 1);
            dropped_end = dropped_end.max(nonzero + 1);
            let length = (self.window.size - start).min(SCAN_BYTES as u64) as usize;
            let block = self.window.bytes(start, length)?;
            if let Some(last) = block.iter().rposition(|&byte| byte != 0) {
                dropped_end = start + last as u64 + 1;
            }
            at = start + length as u64;
            if let Some(position) = frame::possible_mark(block) {
                let candidate = start + position as u64;
                if self.mark_at(candidate)?.is_some_and(|mark| mark > record_offset) {
                    let expected = format!("{EXPECTED}: the frame at {candidate} says so");
                    return self.judge_again(offset, expected, found);
                }
                at = candidate + 1;
            } else if at < self.window.size {
                // A frame may begin in the last bytes of the block.
                at -= (FIXED_BYTES - 1).min(length - 1) as u64;
            }
        }
        let dropped_bytes = dropped_end - record_offset;
        let reason = if dropped_bytes == 0 {
            TailReason::Ended
        } else {
            TailReason::Torn { offset_bytes: record_offset, found: found.to_string() }
        };
        self.tail = Some(Tail { valid_bytes: record_offset, dropped_bytes, reason });
        Ok(Verdict::End)
    }

    /// Reads a frame that must be sound again, from the medium.
    #[cold]
    fn judge_again(&mut self, offset: u64, expected: String, found: &str) -> Result<Verdict, Error> {
        self.window.forget();
        match self.frame_at(offset)? {
            Ok(_) => Ok(Verdict::SoundNow),
            Err(_) => Err(self.corruption(offset, expected, found.to_string())),
        }
    }

    /// The mark of the frame at `offset`, if there is a sound frame with one.
    #[inline]
    fn mark_at(&mut self, offset: u64) -> Result<Option<u64>, Error> {
        if self.window.size - offset < FIXED_BYTES as u64 {
            return Ok(None);
        }
        let Some(bytes) = self.window.bytes(offset, FIXED_BYTES)?.first_chunk() else {
            return Ok(None);
        };
        let Some(candidate) = Candidate::parse(self.seed, offset, bytes).filter(|candidate| candidate.has_mark) else {
            return Ok(None);
        };
        if self.window.size - offset < candidate.frame_length() as u64 {
            return Ok(None);
        }
        let frame = self.window.bytes(offset, candidate.frame_length())?;
        Ok(if candidate.is_sound(frame) { candidate.mark(frame) } else { None })
    }

    #[cold]
    fn corruption(&self, offset_bytes: u64, expected: String, found: String) -> Error {
        Error::Corruption {
            file: self.name.clone(),
            offset_bytes,
            structure: self.purpose.name().to_string(),
            expected,
            found,
        }
    }

    #[cold]
    fn ends_early(&self, valid_bytes: u64) -> Error {
        let expected = format!("{} bytes, which are known to have been synced", self.expected_synced);
        self.corruption(valid_bytes, expected, format!("the end after {valid_bytes} bytes"))
    }
}
