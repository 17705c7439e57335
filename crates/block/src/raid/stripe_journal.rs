//! The journal of stripes: after a power cut in any update, with members lost too, each sector is old or new.
//!
//! Before columns of a stripe are written, all of them go to the journal, durably: new data, new parity, tuples. After a power
//! cut what is in the journal is written again, so the redundancy of every stripe fits its data. A log of parity alone
//! would not give this for data on their way to a member that is lost. (The design is that of MD's `raid5-cache`.)
//!
//! The journal lies on members, one more than may be lost, each with all of it, in two areas before the data; or once, on a device of
//! its own, whose loss stops the array. It is a [`crate::journal`] of the layer `RAID`: a generation begins with a checkpoint, which says how often the journal was
//! begun, and has a change for each round of writes. A generation ends when its area is full or the array is closed: then no write
//! is under way, and all members are synced. Of journals that differ the one counts that was begun last, and of those the one with the
//! fewest records, because the array writes a record in place only after all replicas have it. Opening begins a new generation
//! before the array serves, so a record that was ignored once stays ignored.
//!
//! A payload, little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | 1 begun, 2 writes |
//! | 4 | 4 | number of writes |
//! | 8 | 8 | how often the journal was begun; 0 in writes |
//! | 16 | | writes |
//!
//! A write:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | stripe |
//! | 8 | 4 | column: data or copies from 0, 64 P, 65 Q |
//! | 12 | 4 | 0 data follow, 1 discard |
//! | 16 | 4 | first byte in the chunk |
//! | 20 | 4 | bytes |
//! | 24 | 4 | bytes of tuples |
//! | 28 | 4 | zero |
//! | 32 | | data, then tuples |

use super::error::ArrayError;
use super::geometry::{ArrayGeometry, Column, RaidLevel};
use super::superblock::{Flaw, JOURNAL_OFFSET, Superblock, UNIT_BYTES};
use crate::journal::{self, Areas, Journal, JournalError, Owner, Replayed};
use crate::wire::{u32_at, u64_at};
use std::sync::Arc;
use varve_env::{Condvar, Env, Mutex};
use varve_media::{
    AlignedBuffer, BlockDeviceExt, Device, GuardKind, IoContext, MediaError, MediaErrorKind, Operation,
    ProtectionFormat, ProtectionType, SyncOrder,
};

const LAYER: [u8; 4] = *b"RAID";
const BEGUN: u32 = 1;
const WRITES: u32 = 2;
const HEADER_BYTES: usize = 16;
const WRITE_HEADER_BYTES: usize = 32;
/// Code of the first parity column.
const PARITY_COLUMN: u32 = 64;
/// Bytes of an area for each byte of a stripe with its parity, at least: a record has two copies, and several writers have theirs.
const AREA_STRIPES_MIN: u64 = 6;
/// Bytes of an area, at least and at most.
const AREA_BYTES: [u64; 2] = [64 << 10, 64 << 20];
/// Share of a member that an area may take, unless the least is more.
const MEMBER_SHARE: u64 = 256;

/// Place of the journal of stripes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StripeJournal {
    /// No journal. After a power cut redundancy is resynced; if a member is lost too, its data may be wrong.
    #[default]
    None,
    /// On the members. After a power cut each sector is old or new. Some members write the data of each update twice more.
    Members,
    /// On a device of its own. After a power cut each sector is old or new. If that device is lost, the array stops, and what was being
    /// written may be wrong.
    Device,
}

impl StripeJournal {
    pub(super) fn of(superblock: &Superblock) -> StripeJournal {
        match (superblock.has_journal(), superblock.journal_device) {
            (false, _) => StripeJournal::None,
            (true, None) => StripeJournal::Members,
            (true, Some(_)) => StripeJournal::Device,
        }
    }
}

/// Bytes of each of the two areas of a journal.
pub(super) fn area_bytes(geometry: &ArrayGeometry, member_bytes: u64) -> u64 {
    let stripe = (geometry.members as u64).saturating_mul(geometry.chunk_bytes);
    let least = stripe.saturating_mul(AREA_STRIPES_MIN).max(AREA_BYTES[0]);
    (member_bytes / MEMBER_SHARE).min(AREA_BYTES[1]).max(least).next_multiple_of(UNIT_BYTES)
}

/// Bytes of columns that one record may hold.
pub(super) fn record_bytes_max(area_bytes: u64) -> u64 {
    area_bytes / 3
}

/// A write or discard of a column of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournaledWrite<'a> {
    pub(super) stripe: u64,
    pub(super) column: Column,
    /// From the start of the chunk.
    pub(super) start: u64,
    pub(super) length: u64,
    /// `None` for a discard.
    pub(super) data: Option<(&'a [u8], &'a [u8])>,
}

/// A payload as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Begun(u64),
    Writes(Vec<JournaledWrite<'a>>),
}

fn flaw(what: &'static str, expected: impl ToString, found: impl ToString) -> Flaw {
    Flaw { what, expected: expected.to_string(), found: found.to_string() }
}

fn encode_begun(times: u64) -> Vec<u8> {
    [&BEGUN.to_le_bytes()[..], &0_u32.to_le_bytes(), &times.to_le_bytes()].concat()
}

pub(super) fn encode_writes(writes: &[JournaledWrite<'_>]) -> Vec<u8> {
    let length = |write: &JournaledWrite<'_>| write.data.map_or(0, |(data, tuples)| data.len() + tuples.len());
    let bytes = HEADER_BYTES + writes.iter().map(|write| WRITE_HEADER_BYTES + length(write)).sum::<usize>();
    let mut payload = Vec::with_capacity(bytes);
    payload.extend_from_slice(&WRITES.to_le_bytes());
    payload.extend_from_slice(&(writes.len() as u32).to_le_bytes());
    payload.extend_from_slice(&0_u64.to_le_bytes());
    for write in writes {
        let column = match write.column {
            Column::Data(place) | Column::Copy(place) => place as u32,
            Column::P => PARITY_COLUMN,
            Column::Q => PARITY_COLUMN + 1,
        };
        let (data, tuples) = write.data.unwrap_or_default();
        payload.extend_from_slice(&write.stripe.to_le_bytes());
        let is_discard = u32::from(write.data.is_none());
        for field in [column, is_discard, write.start as u32, write.length as u32, tuples.len() as u32, 0] {
            payload.extend_from_slice(&field.to_le_bytes());
        }
        payload.extend_from_slice(data);
        payload.extend_from_slice(tuples);
    }
    payload
}

/// Reads a payload, and checks each field against the array.
pub(super) fn decode<'a>(bytes: &'a [u8], superblock: &Superblock) -> Result<Payload<'a>, Flaw> {
    if bytes.len() < HEADER_BYTES {
        return Err(flaw("length of a record", format!("{HEADER_BYTES} bytes or more"), bytes.len()));
    }
    let (kind, count, times) = (u32_at(bytes, 0), u32_at(bytes, 4), u64_at(bytes, 8));
    match kind {
        BEGUN if count == 0 && bytes.len() == HEADER_BYTES => return Ok(Payload::Begun(times)),
        WRITES if times == 0 => {}
        _ => return Err(flaw("kind of a record", "1 or 2, with the fields of it", kind)),
    }
    let geometry = &superblock.geometry;
    let mut rest = &bytes[HEADER_BYTES..];
    let mut writes = Vec::new();
    for _ in 0..count {
        if rest.len() < WRITE_HEADER_BYTES {
            return Err(flaw("length of a write", format!("{WRITE_HEADER_BYTES} bytes or more"), rest.len()));
        }
        let (header, behind) = rest.split_at(WRITE_HEADER_BYTES);
        let [column, is_discard, start, length, tuples, zero] = [8, 12, 16, 20, 24, 28].map(|at| u32_at(header, at));
        let stripe = u64_at(header, 0);
        if stripe >= geometry.stripes {
            return Err(flaw("stripe", format!("below {}", geometry.stripes), stripe));
        }
        let parity = geometry.level.parity_columns() as u32;
        let column = match column {
            PARITY_COLUMN if parity > 0 => Column::P,
            place if place == PARITY_COLUMN + 1 && parity > 1 => Column::Q,
            place if geometry.level == RaidLevel::Raid1 && (place as usize) < geometry.members => {
                Column::Copy(place as usize)
            }
            place if (place as usize) < geometry.data_columns() => Column::Data(place as usize),
            other => return Err(flaw("column", "one of a stripe", other)),
        };
        let (start, length) = (u64::from(start), u64::from(length));
        let sector = u64::from(superblock.sector_bytes);
        let is_aligned = start.is_multiple_of(sector) && length.is_multiple_of(sector) && length > 0;
        if !is_aligned || start + length > geometry.chunk_bytes {
            let expected = format!("whole sectors of {sector} bytes in a chunk of {}", geometry.chunk_bytes);
            return Err(flaw("range", expected, format!("{length} bytes at {start}")));
        }
        let of_tuples = superblock.protection.map_or(0, |format| format.tuples_bytes(length));
        let is_known = match (is_discard, tuples) {
            (1, 0) => true,
            (0, tuples) => tuples == 0 || u64::from(tuples) == of_tuples,
            _ => false,
        };
        if !is_known || zero != 0 {
            return Err(flaw("kind of a write", "0 or 1, with the fields of it", is_discard));
        }
        if is_discard == 1 {
            writes.push(JournaledWrite { stripe, column, start, length, data: None });
            rest = behind;
            continue;
        }
        let needed = length as usize + tuples as usize;
        if behind.len() < needed {
            return Err(flaw("bytes of a write", needed, behind.len()));
        }
        let (own, later) = behind.split_at(needed);
        writes.push(JournaledWrite { stripe, column, start, length, data: Some(own.split_at(length as usize)) });
        rest = later;
    }
    match rest.is_empty() {
        true => Ok(Payload::Writes(writes)),
        false => Err(flaw("end of a record", "nothing behind the writes", rest.len())),
    }
}

/// One copy of the journal, on a member.
struct Replica {
    slot: usize,
    journal: Journal,
}

struct State {
    replicas: Vec<Replica>,
    /// How often the journal was begun.
    times: u64,
    /// Rounds that are in the journal, and are being written in place.
    in_flight: u64,
    /// The next record begins a generation, on other members perhaps.
    must_begin: bool,
}

/// The journal of an open array.
pub(super) struct OpenJournal {
    state: Mutex<State>,
    quiet: Condvar,
    /// Superblock of the array: identity and offsets.
    superblock: Superblock,
    /// The journal's own device, if it has one.
    own: Option<Ground>,
}

/// A record that is in the journal, until its writes are done.
pub(super) struct Journaled<'a>(&'a OpenJournal);

impl Drop for Journaled<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.in_flight -= 1;
        self.0.quiet.notify_all();
    }
}

/// A member that a journal can lie on: its slot, its device, its order of syncs.
pub(super) type Ground = (usize, Device, Arc<SyncOrder>);

/// Functions of the array that the journal calls.
pub(super) struct Surroundings<'a> {
    /// Members that hold the journal, one more than may be lost.
    pub(super) replicas: usize,
    /// Members that it may lie on, in the order they are taken.
    pub(super) grounds: &'a dyn Fn() -> Vec<Ground>,
    /// Makes durable what was written in place.
    pub(super) sync: &'a dyn Fn() -> Result<(), MediaError>,
    /// Goes on without members whose journal cannot be written. Fails if the array cannot.
    pub(super) lose: &'a dyn Fn(Vec<(usize, MediaError)>) -> Result<(), MediaError>,
}

fn areas(superblock: &Superblock, device: &Device, order: &Arc<SyncOrder>) -> Areas {
    let area_bytes = superblock.journal_area_bytes;
    let first = match superblock.journal_device {
        None => superblock.data_offset - 2 * area_bytes,
        Some(_) => JOURNAL_OFFSET,
    };
    let physical = u64::from(device.block.geometry().physical_sector_bytes);
    Areas {
        device: device.clone(),
        order: Arc::clone(order),
        unit_bytes: physical.clamp(512, UNIT_BYTES),
        offsets: [first, first + area_bytes],
        area_bytes,
        zones: None,
    }
}

fn owner(superblock: &Superblock) -> Owner {
    let mut identity = superblock.identity;
    // Records of a device that was replaced are not those of the array.
    if let Some(number) = superblock.journal_device {
        identity.iter_mut().zip((number + 1).to_le_bytes()).for_each(|(byte, number)| *byte ^= number);
    }
    Owner { layer: LAYER, identity }
}

/// Bytes that a device of its own must have for areas of this size.
pub(super) fn device_bytes(area_bytes: u64) -> u64 {
    area_bytes.saturating_mul(2).saturating_add(JOURNAL_OFFSET)
}

/// Overwrites the areas of a journal's device.
pub(super) fn blank(
    env: &Env,
    superblock: &Superblock,
    device: &Device,
    context: &IoContext,
) -> Result<(), MediaError> {
    let order = SyncOrder::shared(env, device.block.clone());
    blank_areas(&areas(superblock, device, &order), context)
}

/// Overwrites both areas.
fn blank_areas(areas: &Areas, context: &IoContext) -> Result<(), MediaError> {
    let alignment = areas.device.block.capabilities().buffer_alignment_bytes as usize;
    let zeros = AlignedBuffer::new(areas.area_bytes as usize, alignment);
    for offset_bytes in areas.offsets {
        areas.device.block.write_at(offset_bytes, &zeros, context)?;
    }
    areas.order.sync(context)
}

/// Content of the newest journal of the members.
pub(super) struct Recovered {
    /// How often the newest was begun.
    pub(super) times: u64,
    /// Its payloads with writes, in order.
    pub(super) payloads: Vec<Vec<u8>>,
    /// Members whose journals have unreadable sectors, by slot.
    pub(super) unreadable: Vec<(usize, MediaError)>,
}

/// Reads the journals of members, and takes the newest. Writes nothing. A member whose journal is unreadable counts as lost: the
/// caller checks that the level tolerates that, so another member has the newest journal too.
///
/// # Errors
/// The devices', except for unreadable sectors. [`ArrayError::Damaged`] where no member has a sound one.
pub(super) fn recover(
    env: &Env,
    superblock: &Superblock,
    members: &[(usize, &Device)],
    context: &IoContext,
) -> Result<Recovered, ArrayError> {
    let mut newest: Option<(u64, Vec<Vec<u8>>)> = None;
    let (mut damaged, mut unreadable) = (None, Vec::new());
    for (slot, device) in members {
        let order = SyncOrder::shared(env, device.block.clone());
        let (mut times, mut payloads) = (0, Vec::new());
        let mut apply = |replayed: Replayed<'_>| match decode(replayed.payload, superblock) {
            Ok(Payload::Begun(begun)) => {
                times = begun;
                Ok(())
            }
            Ok(Payload::Writes(_)) => {
                payloads.push(replayed.payload.to_vec());
                Ok(())
            }
            Err(Flaw { what, expected, found }) => {
                Err(journal::Flaw { what, offset_bytes: replayed.offset_bytes, expected, found })
            }
        };
        match Journal::open(areas(superblock, device, &order), owner(superblock), context, &mut apply) {
            Ok(_) => {
                let counts = |(newest, others): &(u64, Vec<Vec<u8>>)| {
                    times > *newest || times == *newest && payloads.len() < others.len()
                };
                if newest.as_ref().is_none_or(counts) {
                    newest = Some((times, payloads));
                }
            }
            Err(JournalError::Media(error)) if error.kind() == MediaErrorKind::Unreadable => {
                unreadable.push((*slot, error));
            }
            Err(JournalError::Media(error)) => return Err(error.into()),
            Err(JournalError::OtherVersion { readable, found }) => {
                return Err(ArrayError::OtherVersion { device: device.block.name().to_owned(), readable, found });
            }
            Err(JournalError::Damaged(flaw)) => {
                let journal::Flaw { what, expected, found, .. } = flaw;
                damaged = Some(ArrayError::damaged(device.block.name(), Flaw { what, expected, found }));
            }
        }
    }
    match (newest, damaged) {
        // One that was never begun has nothing that the damaged one could lack.
        (Some((times, payloads)), None) => Ok(Recovered { times, payloads, unreadable }),
        (Some((times, payloads)), Some(_)) if times > 0 => Ok(Recovered { times, payloads, unreadable }),
        (_, Some(error)) => Err(error),
        (None, None) => Ok(Recovered { times: 0, payloads: Vec::new(), unreadable }),
    }
}

impl OpenJournal {
    /// The journal of an array whose journals hold nothing that is not in place.
    pub(super) fn new(env: &Env, superblock: &Superblock, times: u64, own: Option<&Device>) -> OpenJournal {
        let state = State { replicas: Vec::new(), times, in_flight: 0, must_begin: true };
        OpenJournal {
            state: Mutex::new(env, "journal of stripes", state),
            quiet: Condvar::new(env, "journal of stripes"),
            superblock: superblock.clone(),
            own: own.map(|device| {
                (superblock.geometry.members, device.clone(), SyncOrder::shared(env, device.block.clone()))
            }),
        }
    }

    /// The journal's own device, if it has one.
    pub(super) fn own(&self) -> Option<&Ground> {
        self.own.as_ref()
    }

    /// Begins a generation once no write is under way: before an opened array serves, and before a rebuilt member is in use.
    /// Records from before the rebuild have columns of that member that later writes could not change.
    ///
    /// # Errors
    /// The array has stopped.
    pub(super) fn turn_over(&self, array: &Surroundings<'_>, context: &IoContext) -> Result<(), MediaError> {
        let mut state = self.state.lock();
        while state.in_flight > 0 {
            self.quiet.wait(&mut state);
        }
        self.begin(&mut state, array, context)
    }

    /// Lets the next record begin the journal on other members.
    pub(super) fn members_changed(&self) {
        self.state.lock().must_begin = true;
    }

    /// Makes a record durable on its members.
    ///
    /// # Errors
    /// The array has stopped.
    pub(super) fn append(
        &self,
        writes: &[JournaledWrite<'_>],
        array: &Surroundings<'_>,
        context: &IoContext,
    ) -> Result<Journaled<'_>, MediaError> {
        let payload = encode_writes(writes);
        let mut state = self.state.lock();
        let mut has_begun = false;
        loop {
            let has_room = |replica: &Replica| replica.journal.has_room(payload.len() as u64);
            if !state.must_begin && state.replicas.iter().all(has_room) && !state.replicas.is_empty() {
                break;
            }
            if state.in_flight > 0 {
                self.quiet.wait(&mut state);
                continue;
            }
            if has_begun && !state.replicas.is_empty() && !state.must_begin {
                // Rounds are no larger than an empty area takes.
                return Err(self.too_large(payload.len()));
            }
            self.begin(&mut state, array, context)?;
            has_begun = true;
        }
        let mut failed = Vec::new();
        for replica in &mut state.replicas {
            if let Err(error) = replica.journal.append(&payload, context) {
                failed.push((replica.slot, error));
            }
        }
        state.replicas.retain(|replica| failed.iter().all(|(slot, _)| *slot != replica.slot));
        if !failed.is_empty() {
            (array.lose)(failed)?;
        }
        if state.replicas.is_empty() {
            // Those that are left are as many as can still be lost, and one more: with none of them the array has stopped.
            state.must_begin = true;
            drop(state);
            return self.append(writes, array, context);
        }
        state.in_flight += 1;
        Ok(Journaled(self))
    }

    /// The error of a record that fits no area.
    fn too_large(&self, payload_bytes: usize) -> MediaError {
        let area_bytes = self.superblock.journal_area_bytes;
        MediaError::Rule {
            device: "journal of stripes".to_owned(),
            operation: Operation::Write,
            offset_bytes: 0,
            rule: format!("a record of {payload_bytes} bytes does not fit an area of {area_bytes}"),
        }
    }

    /// Begins a generation on as many members as there should be. Nothing is being written in place.
    fn begin(&self, state: &mut State, array: &Surroundings<'_>, context: &IoContext) -> Result<(), MediaError> {
        let Surroundings { replicas, grounds, sync, lose } = array;
        sync()?;
        let checkpoint = encode_begun(state.times + 1);
        let mut before = std::mem::take(&mut state.replicas);
        let mut begun = Vec::new();
        for (slot, device, order) in grounds() {
            if begun.len() == *replicas {
                break;
            }
            let known =
                before.iter().position(|replica| replica.slot == slot).map(|place| before.remove(place).journal);
            let known = match known {
                Some(journal) => Ok(Some(journal)),
                // What it holds is in place, or older.
                None => Journal::open(
                    areas(&self.superblock, &device, &order),
                    owner(&self.superblock),
                    context,
                    &mut |_| Ok(()),
                ),
            };
            let blank = || Journal::blank(areas(&self.superblock, &device, &order), owner(&self.superblock));
            let mut journal = match known {
                Ok(known) => known.unwrap_or_else(blank),
                // Another member had a sound one when the array was opened. Nothing of this one may be found beside what follows.
                Err(JournalError::Damaged(_) | JournalError::OtherVersion { .. }) => {
                    if let Err(error) = blank_areas(&areas(&self.superblock, &device, &order), context) {
                        lose(vec![(slot, error)])?;
                        continue;
                    }
                    blank()
                }
                Err(JournalError::Media(error)) => {
                    lose(vec![(slot, error)])?;
                    continue;
                }
            };
            match journal.begin(&checkpoint, context) {
                Ok(()) => begun.push(Replica { slot, journal }),
                Err(error) => lose(vec![(slot, error.into_inner())])?,
            }
        }
        state.times += 1;
        state.replicas = begun;
        state.must_begin = false;
        Ok(())
    }

    /// Begins a generation, so that the next opening finds nothing to write again.
    pub(super) fn close(&self, array: &Surroundings<'_>, context: &IoContext) {
        let mut state = self.state.lock();
        let has_records = state.replicas.iter().any(|replica| replica.journal.position().1 > 1);
        if has_records && state.in_flight == 0 {
            // What is there is written again by the next opening.
            let _ = self.begin(&mut state, array, context);
        }
    }
}

/// Decodes any bytes as a payload of a small array, and as an area of its journal.
pub(super) fn fuzz(data: &[u8]) {
    let superblock = example();
    if let Ok(payload) = decode(data, &superblock) {
        let encoded = match &payload {
            Payload::Begun(times) => encode_begun(*times),
            Payload::Writes(writes) => encode_writes(writes),
        };
        assert_eq!(encoded, data);
    }
    journal::fuzz(&owner(&superblock), data);
}

/// A small array with protection information.
fn example() -> Superblock {
    let geometry = ArrayGeometry { level: RaidLevel::Raid6, members: 5, chunk_bytes: 8 << 10, stripes: 100 };
    let (protection_type, guard) = (ProtectionType::Type1, GuardKind::Crc);
    Superblock {
        identity: *b"0123456789abcdef",
        generation: 1,
        in_use: 0b1_1111,
        rebuilding: 0,
        member_bytes: 4 << 20,
        data_offset: 1 << 20,
        region_stripes: 128,
        slot: 0,
        sector_bytes: 512,
        protection: Some(ProtectionFormat { protection_type, guard, interval_bytes: 512 }),
        is_beside: false,
        journal_area_bytes: 256 << 10,
        journal_device: None,
        is_made: true,
        geometry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn writes<'a>(data: &'a [u8], tuples: &'a [u8]) -> Vec<JournaledWrite<'a>> {
        let write = |column, data| JournaledWrite { stripe: 7, column, start: 512, length: 1024, data };
        vec![
            write(Column::Data(2), Some((data, tuples))),
            write(Column::P, Some((data, &[][..]))),
            write(Column::Q, None),
        ]
    }

    #[test]
    fn decodes_what_it_encodes() {
        let (data, tuples) = ([5; 1024], [6; 16]);
        let writes = writes(&data, &tuples);
        let encoded = encode_writes(&writes);
        assert_eq!(decode(&encoded, &example()), Ok(Payload::Writes(writes)));
        assert_eq!(decode(&encode_begun(9), &example()), Ok(Payload::Begun(9)));
    }

    /// Bytes written by version 1 are read by later versions.
    #[test]
    fn bytes_are_those_of_the_golden_file() {
        let (data, tuples) = ([5; 1024], [6; 16]);
        let golden = include_bytes!("golden/stripe_journal.bin");
        assert_eq!(encode_writes(&writes(&data, &tuples))[..], golden[..]);
    }

    #[test]
    fn refuses_fields_that_do_not_fit() {
        let (data, tuples) = ([5; 1024], [6; 16]);
        let good = encode_writes(&writes(&data, &tuples));
        let with = |at: usize, value: u32| {
            let mut bytes = good.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            decode(&bytes, &example()).expect_err("a field that does not fit").what
        };
        let first = HEADER_BYTES;
        assert_eq!(with(0, 3), "kind of a record");
        assert_eq!(with(4, 2), "end of a record");
        assert_eq!(with(4, u32::MAX), "length of a write");
        assert_eq!(with(8, 1), "kind of a record");
        assert_eq!(with(first, 100), "stripe");
        for column in [3, 63, 66, u32::MAX] {
            assert_eq!(with(first + 8, column), "column");
        }
        assert_eq!(with(first + 12, 2), "kind of a write");
        assert_eq!(with(first + 16, 100), "range");
        assert_eq!(with(first + 20, u32::MAX), "range");
        assert_eq!(with(first + 24, 8), "kind of a write");
        assert_eq!(with(first + 28, 1), "kind of a write");
        assert_eq!(decode(&good[..good.len() - 1], &example()).unwrap_err().what, "length of a write");
    }

    #[test]
    fn takes_any_bytes() {
        let mut random = Random::named(1, "stripe journal");
        let (data, tuples) = ([5; 1024], [6; 16]);
        for _ in 0..3000 {
            let mut bytes = encode_writes(&writes(&data, &tuples));
            for _ in 0..random.below(6) {
                let at = if random.chance(1, 2) { random.index(60) } else { random.index(bytes.len()) };
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(random.index(bytes.len() + 1));
            fuzz(&bytes);
        }
    }
}
