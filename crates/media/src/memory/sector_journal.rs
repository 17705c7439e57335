//! Sectors that survive a power cut whole on memory that keeps no more than words whole.
//!
//! Blocks on memory that is really there are written twice: first into a *slot* behind the
//! addressable bytes, then in place. Each step is flushed and fenced before the next: a power cut
//! leaves the slot incomplete and the place as it was, or the slot complete, and then opening the
//! memory writes it in place once more. Linux' BTT does the same with a map, which would move
//! sectors away from where their bytes are read.
//!
//! The slots, and what says whose file it is, are the *trailer*, in the last 68 KiB of the file:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic, `VARVPMEM` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | slots, 16 |
//! | 16 | 8 | bytes before the trailer |
//! | 24 | 4 | bytes of data of a slot, 4096 |
//! | 28 | 4 | crc32c of the 28 bytes before |
//! | 1024 + 64 n | 8 | slot n: where its data belong |
//! | 1032 + 64 n | 4 | bytes of data, 1 to 4096; 0 if the slot is empty |
//! | 1036 + 64 n | 4 | crc32c of the 12 bytes before and of the data |
//! | 4096 + 4096 n | 4096 | data of slot n |
//!
//! All else is zero. Length and checksum of a slot lie in one aligned word, so a slot is emptied by
//! one store that is not torn.

use crate::bytes::{ByteAddressable, FlushQueue};
use crate::error::{MediaError, Operation};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes behind those that can be addressed.
pub(super) const TRAILER_BYTES: u64 = HEADER_BYTES + (SLOTS * SLOT_BYTES) as u64;
const HEADER_BYTES: u64 = 4096;
const MAGIC: [u8; 8] = *b"VARVPMEM";
const VERSION: u32 = 1;
const SLOTS: usize = 16;
/// Bytes of data of a slot: the largest part of a write that survives whole.
pub(super) const SLOT_BYTES: usize = 4096;
const SLOT_HEADERS_OFFSET: u64 = 1024;
const SLOT_HEADER_BYTES: u64 = 64;
/// Offset of the word with length and checksum in the header of a slot.
const LENGTH_OFFSET: u64 = 8;

/// The first bytes of the trailer of memory of this capacity.
pub(super) fn header(capacity_bytes: u64) -> [u8; 32] {
    let mut header = [0; 32];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(SLOTS as u32).to_le_bytes());
    header[16..24].copy_from_slice(&capacity_bytes.to_le_bytes());
    header[24..28].copy_from_slice(&(SLOT_BYTES as u32).to_le_bytes());
    let checksum = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// Checks the first bytes of the trailer of a file `name`, which would leave `capacity_bytes`
/// before it.
///
/// # Errors
/// [`MediaError::Unsuitable`] where there is no trailer: another file, or one whose end is missing.
/// [`MediaError::OtherVersion`]. [`MediaError::Damaged`] for a wrong checksum, and for a trailer of
/// another length of the file.
pub(super) fn check_header(name: &str, found: &[u8; 32], capacity_bytes: u64) -> Result<(), MediaError> {
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|place| found[at + place]));
    if found[..8] != MAGIC {
        return Err(MediaError::Unsuitable {
            device: name.to_owned(),
            operation: Operation::Open,
            found: "a file without the trailer of persistent memory in its last 68 KiB: another file, or one that was cut short or lengthened"
                .to_owned(),
            expected: "a file that was made as persistent memory, or an empty one, or none".to_owned(),
        });
    }
    if number(8) > VERSION {
        let what = "the trailer of persistent memory".to_owned();
        return Err(MediaError::OtherVersion { device: name.to_owned(), what, readable: VERSION, found: number(8) });
    }
    let damaged = |what: &str, expected: String, found: String| {
        let (device, what) = (name.to_owned(), what.to_owned());
        Err(MediaError::Damaged { device, offset_bytes: capacity_bytes, what, expected, found })
    };
    let checksum = crc32c::crc32c(&found[..28]);
    if number(28) != checksum {
        let (expected, found) = (format!("{checksum:#010x}"), format!("{:#010x}", number(28)));
        return damaged("checksum of the trailer of persistent memory", expected, found);
    }
    let expected = header(capacity_bytes);
    if *found != expected {
        let of = u64::from_le_bytes(std::array::from_fn(|place| found[16 + place]));
        let (expected, found) = (format!("{capacity_bytes}"), format!("{of}"));
        return damaged("bytes before the trailer of persistent memory", expected, found);
    }
    Ok(())
}

/// What a slot holds; anything may be in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Empty,
    /// Its write was cut short, or it is damaged: what it was for is as it was.
    Incomplete,
    /// Data that belong at an offset.
    Complete {
        offset_bytes: u64,
        length: usize,
    },
}

/// Judges the header of a slot and its data.
pub(super) fn judge_slot(header: &[u8; 16], data: &[u8; SLOT_BYTES], capacity_bytes: u64) -> Slot {
    let offset_bytes = u64::from_le_bytes(std::array::from_fn(|place| header[place]));
    let length = u32::from_le_bytes(std::array::from_fn(|place| header[8 + place])) as usize;
    let checksum = u32::from_le_bytes(std::array::from_fn(|place| header[12 + place]));
    if length == 0 {
        return Slot::Empty;
    }
    let fits = length <= SLOT_BYTES && offset_bytes.checked_add(length as u64).is_some_and(|end| end <= capacity_bytes);
    match fits && checksum == slot_checksum(&header[..12], &data[..length]) {
        true => Slot::Complete { offset_bytes, length },
        false => Slot::Incomplete,
    }
}

fn slot_checksum(header: &[u8], data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), data)
}

/// Writes parts of blocks so that a power cut leaves each old or new. Thread-safe; as many threads
/// write at the same time as there are slots.
pub(super) struct SectorJournal {
    /// Bytes before the trailer.
    capacity_bytes: u64,
    slots: [Mutex<()>; SLOTS],
    next: AtomicUsize,
    /// A slot may hold what is in place only in part: later writes there would be undone by the
    /// next opening.
    failed: AtomicBool,
}

impl SectorJournal {
    /// The journal of memory that has `capacity_bytes` before its trailer. Writes in place what
    /// slots hold, and empties them.
    ///
    /// # Errors
    /// What the memory says.
    pub(super) fn open(bytes: &dyn ByteAddressable, capacity_bytes: u64) -> Result<Self, MediaError> {
        let (slots, next, failed) = ([const { Mutex::new(()) }; SLOTS], AtomicUsize::new(0), AtomicBool::new(false));
        let journal = SectorJournal { capacity_bytes, slots, next, failed };
        for slot in 0..SLOTS {
            let (mut header, mut data) = ([0; 16], [0; SLOT_BYTES]);
            bytes.load(journal.header_offset(slot), &mut header)?;
            bytes.load(journal.data_offset(slot), &mut data)?;
            match judge_slot(&header, &data, capacity_bytes) {
                Slot::Empty => continue,
                Slot::Incomplete => {}
                Slot::Complete { offset_bytes, length } => persist(bytes, offset_bytes, &data[..length])?,
            }
            journal.empty(bytes, slot)?;
        }
        Ok(journal)
    }

    /// Refuses memory of which a slot holds a write that is not finished, for those who may not
    /// finish it.
    ///
    /// # Errors
    /// [`MediaError::Rule`]; what the memory says.
    pub(super) fn check_is_empty(
        name: &str,
        bytes: &dyn ByteAddressable,
        capacity_bytes: u64,
    ) -> Result<(), MediaError> {
        for slot in 0..SLOTS as u64 {
            let (mut header, mut data) = ([0; 16], [0; SLOT_BYTES]);
            bytes.load(capacity_bytes + SLOT_HEADERS_OFFSET + slot * SLOT_HEADER_BYTES, &mut header)?;
            bytes.load(capacity_bytes + HEADER_BYTES + slot * SLOT_BYTES as u64, &mut data)?;
            if let Slot::Complete { offset_bytes, .. } = judge_slot(&header, &data, capacity_bytes) {
                let rule =
                    "a write was interrupted and can be finished only by opening the memory for writing; do that once";
                let (device, operation, rule) = (name.to_owned(), Operation::Open, rule.to_owned());
                return Err(MediaError::Rule { device, operation, offset_bytes, rule });
            }
        }
        Ok(())
    }

    /// Writes at most 4096 bytes; durable when this returns. Nothing else changes them meanwhile.
    ///
    /// # Errors
    /// What the memory says. Then the bytes are old, new, or between, and nothing more is written;
    /// opening the memory again makes them old or new.
    pub(super) fn write(&self, bytes: &dyn ByteAddressable, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        if self.failed.load(Ordering::Acquire) {
            let error = std::io::Error::other("an earlier write failed; open the memory again");
            return Err(MediaError::io("persistent memory", Operation::Write, offset_bytes, error));
        }
        self.write_twice(bytes, offset_bytes, data).inspect_err(|_| self.failed.store(true, Ordering::Release))
    }

    fn write_twice(&self, bytes: &dyn ByteAddressable, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let places = (0..SLOTS).map(|place| (first + place) % SLOTS);
        let free = places.clone().find_map(|slot| Some((slot, self.slots[slot].try_lock()?)));
        let (slot, _slot) = free.unwrap_or_else(|| (first % SLOTS, self.slots[first % SLOTS].lock()));
        let mut header = [0; 16];
        header[..8].copy_from_slice(&offset_bytes.to_le_bytes());
        header[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
        let checksum = slot_checksum(&header[..12], data);
        header[12..].copy_from_slice(&checksum.to_le_bytes());
        let mut queue = FlushQueue::default();
        bytes.store(self.data_offset(slot), data)?;
        bytes.flush(self.data_offset(slot)..self.data_offset(slot) + data.len() as u64, &mut queue)?;
        bytes.store(self.header_offset(slot), &header)?;
        bytes.flush(self.header_offset(slot)..self.header_offset(slot) + 16, &mut queue)?;
        bytes.fence(&mut queue)?;
        persist(bytes, offset_bytes, data)?;
        self.empty(bytes, slot)
    }

    fn empty(&self, bytes: &dyn ByteAddressable, slot: usize) -> Result<(), MediaError> {
        persist(bytes, self.header_offset(slot) + LENGTH_OFFSET, &[0; 8])
    }

    fn header_offset(&self, slot: usize) -> u64 {
        self.capacity_bytes + SLOT_HEADERS_OFFSET + slot as u64 * SLOT_HEADER_BYTES
    }

    fn data_offset(&self, slot: usize) -> u64 {
        self.capacity_bytes + HEADER_BYTES + (slot * SLOT_BYTES) as u64
    }
}

/// Stores, flushes and fences.
fn persist(bytes: &dyn ByteAddressable, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
    let mut queue = FlushQueue::default();
    bytes.store(offset_bytes, data)?;
    bytes.flush(offset_bytes..offset_bytes + data.len() as u64, &mut queue)?;
    bytes.fence(&mut queue)
}

/// Runs the decoders on bytes that may be anything: a trailer, and the capacity before it in the
/// first eight of them.
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut capacity = [0; 8];
    let length = bytes.len().min(8);
    capacity[..length].copy_from_slice(&bytes[..length]);
    let capacity_bytes = u64::from_le_bytes(capacity);
    let rest = &bytes[length..];
    if let Some(found) = rest.first_chunk() {
        let _ = check_header("fuzz", found, capacity_bytes);
    }
    if let Some(found) = rest.first_chunk() {
        let mut data = [0; SLOT_BYTES];
        let length = (rest.len() - found.len()).min(SLOT_BYTES);
        data[..length].copy_from_slice(&rest[found.len()..found.len() + length]);
        if let Slot::Complete { offset_bytes, length } = judge_slot(found, &data, capacity_bytes) {
            assert!((1..=SLOT_BYTES).contains(&length) && offset_bytes + length as u64 <= capacity_bytes);
        }
    }
}

#[cfg(test)]
mod tests;
