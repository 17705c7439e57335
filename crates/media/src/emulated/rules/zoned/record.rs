//! The states of zones, in a file beside a device that does not know zones by itself.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEZON` |
//! | 8 | 4 | version, 2; version 1 had no zones that are being reset |
//! | 12 | 4 | number of zones |
//! | 16 | 8 | distance between the starts of zones, bytes |
//! | 24 | 8 | writable bytes of a sequential zone |
//! | 32 | 4 | conventional zones at the start |
//! | 36 | 1 | type of the others: 1 sequential write required, 2 preferred |
//! | 37 | 3 | zero |
//! | 40 | 36 | boot id of the machine that wrote last, as text; zeros when not known |
//! | 76 | 4 | zero |
//! | 80 | 4 | crc32c of bytes 0 to 80 |
//! | 84 | 4012 | zero |
//! | 4096 | 64 each | one entry for each zone |
//!
//! An entry, all zeros for a zone to which nothing was written:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | number of the zone |
//! | 4 | 1 | sum of 1 finished by command, 2 non-sequential, 4 being reset (version 2), or else 0 |
//! | 5 | 3 | zero |
//! | 8 | 8 | bytes written, from the start of the zone, synced or not |
//! | 16 | 8 | bytes written as of the last sync |
//! | 24 | 8 | of a non-sequential zone, where its write pointer stood, from the start of the zone; or else zero |
//! | 32 | 28 | zero |
//! | 60 | 4 | crc32c of bytes 0 to 60 |
//!
//! A zone is being reset from before its bytes are gone until nothing of it is left. So a crash in between leaves a zone of
//! which the record says that what it holds does not count: it is empty, and the next opening ends the reset.
//!
//! Entries do not cross sectors of 512 bytes, so each is old or new after a power cut. The bytes that were
//! not synced count only while the machine has not been restarted: what a process that was killed had
//! written is in the device, what a power cut caught may not be.

use super::table::{ZoneState, ZoneTable};
use crate::error::{MediaError, Operation};
use crate::file_lock::LockedFile;
use crate::place::{self, FileMode};
use crate::zones::{ZoneCondition, ZoneGeometry, ZoneId, ZoneType};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const MAGIC: &[u8; 8] = b"VARVEZON";
const VERSION: u32 = 2;
/// No zone is said to be being reset.
const VERSION_WITHOUT_RESETS: u32 = 1;
const HEADER_BYTES: usize = 4096;
const HEADER_CHECKED_BYTES: usize = 80;
const ENTRY_BYTES: usize = 64;
const ENTRY_CHECKED_BYTES: usize = 60;
const BOOT_ID: std::ops::Range<usize> = 40..76;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn type_code(zone_type: ZoneType) -> u8 {
    match zone_type {
        ZoneType::Conventional => 0,
        ZoneType::SequentialWriteRequired => 1,
        ZoneType::SequentialWritePreferred => 2,
    }
}

fn header(zones: &ZoneGeometry, boot_id: &[u8; 36], version: u32) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[0..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&zones.zone_count.to_le_bytes());
    bytes[16..24].copy_from_slice(&zones.zone_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&zones.zone_capacity_bytes.to_le_bytes());
    bytes[32..36].copy_from_slice(&zones.conventional_zones.to_le_bytes());
    bytes[36] = type_code(zones.sequential_type);
    bytes[BOOT_ID].copy_from_slice(boot_id);
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKED_BYTES]);
    bytes[HEADER_CHECKED_BYTES..HEADER_CHECKED_BYTES + 4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What is wrong with a record: what, expected, found.
type Flaw = (String, String, String);

fn is_readable(version: u32) -> bool {
    (VERSION_WITHOUT_RESETS..=VERSION).contains(&version)
}

/// The version a header says it is of, if it is a sound one of another version than this.
fn other_version(bytes: &[u8]) -> Option<u32> {
    let is_sound = bytes.len() == HEADER_BYTES
        && &bytes[0..8] == MAGIC
        && u32_at(bytes, HEADER_CHECKED_BYTES) == crc32c::crc32c(&bytes[..HEADER_CHECKED_BYTES]);
    Some(u32_at(bytes, 8)).filter(|version| is_sound && !is_readable(*version))
}

/// Checks a header against the zones wanted, and gives the boot id in it.
fn read_header(bytes: &[u8], zones: &ZoneGeometry) -> Result<[u8; 36], Flaw> {
    let flaw = |what: &str, expected: String, found: String| Err((what.to_owned(), expected, found));
    if bytes.len() != HEADER_BYTES {
        return flaw("length of the header", HEADER_BYTES.to_string(), bytes.len().to_string());
    }
    if &bytes[0..8] != MAGIC {
        return flaw("magic", "VARVEZON".to_owned(), String::from_utf8_lossy(&bytes[0..8]).into_owned());
    }
    let (found, computed) = (u32_at(bytes, HEADER_CHECKED_BYTES), crc32c::crc32c(&bytes[..HEADER_CHECKED_BYTES]));
    if found != computed {
        return flaw("checksum of the header", format!("{computed:#x}"), format!("{found:#x}"));
    }
    if !is_readable(u32_at(bytes, 8)) {
        return flaw("version", VERSION.to_string(), u32_at(bytes, 8).to_string());
    }
    let reserved = bytes[37..40].iter().chain(&bytes[76..80]).chain(&bytes[HEADER_CHECKED_BYTES + 4..]);
    if reserved.into_iter().any(|&byte| byte != 0) {
        return flaw("reserved bytes of the header", "zeros".to_owned(), "others".to_owned());
    }
    for (what, expected, found) in [
        ("number of zones", zones.zone_count.into(), u32_at(bytes, 12).into()),
        ("bytes of a zone", zones.zone_bytes, u64_at(bytes, 16)),
        ("writable bytes of a zone", zones.zone_capacity_bytes, u64_at(bytes, 24)),
        ("conventional zones", zones.conventional_zones.into(), u32_at(bytes, 32).into()),
        ("type of the sequential zones", type_code(zones.sequential_type).into(), bytes[36].into()),
    ] {
        if expected != found {
            return flaw(what, expected.to_string(), found.to_string());
        }
    }
    bytes[BOOT_ID].try_into().or_else(|_| flaw("boot id", "36 bytes".to_owned(), "fewer".to_owned()))
}

/// What an entry says of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    finished: bool,
    non_sequential: bool,
    /// Nothing of it counts: its bytes are being taken away.
    resetting: bool,
    written_bytes: u64,
    synced_bytes: u64,
    /// Of a non-sequential zone.
    pointer_bytes: u64,
}

impl Entry {
    fn encode(self, zone: ZoneId) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        if self == Entry::default() {
            return bytes;
        }
        bytes[0..4].copy_from_slice(&zone.0.to_le_bytes());
        bytes[4] = u8::from(self.finished) | u8::from(self.non_sequential) << 1 | u8::from(self.resetting) << 2;
        bytes[8..16].copy_from_slice(&self.written_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.pointer_bytes.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..ENTRY_CHECKED_BYTES]);
        bytes[ENTRY_CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], zone: ZoneId, zones: &ZoneGeometry) -> Result<Entry, Flaw> {
        let flaw =
            |what: &str, expected: String, found: String| Err((format!("{what} of zone {zone}"), expected, found));
        if crate::is_zero(bytes) {
            return Ok(Entry::default());
        }
        let Some(checked) = bytes.get(..ENTRY_CHECKED_BYTES).filter(|_| bytes.len() == ENTRY_BYTES) else {
            return flaw("length of the entry", ENTRY_BYTES.to_string(), bytes.len().to_string());
        };
        let (found, computed) = (u32_at(bytes, ENTRY_CHECKED_BYTES), crc32c::crc32c(checked));
        if found != computed {
            return flaw("checksum of the entry", format!("{computed:#x}"), format!("{found:#x}"));
        }
        if u32_at(bytes, 0) != zone.0 {
            return flaw("number", zone.to_string(), u32_at(bytes, 0).to_string());
        }
        if bytes[4] > 7 || bytes[5..8].iter().chain(&bytes[32..ENTRY_CHECKED_BYTES]).any(|&byte| byte != 0) {
            return flaw("reserved bytes of the entry", "zeros".to_owned(), "others".to_owned());
        }
        let entry = Entry {
            finished: bytes[4] & 1 != 0,
            non_sequential: bytes[4] & 2 != 0,
            resetting: bytes[4] & 4 != 0,
            written_bytes: u64_at(bytes, 8),
            synced_bytes: u64_at(bytes, 16),
            pointer_bytes: u64_at(bytes, 24),
        };
        let is_preferred = zones.zone_type(zone) == ZoneType::SequentialWritePreferred;
        if (entry.non_sequential && !is_preferred) || (entry.pointer_bytes > 0 && !entry.non_sequential) {
            return flaw("write pointer kept", "that of a non-sequential zone".to_owned(), "one of another".to_owned());
        }
        let limit = match zones.zone_type(zone) {
            ZoneType::Conventional => 0,
            _ => zones.zone_capacity_bytes,
        };
        for bytes in [entry.written_bytes, entry.synced_bytes, entry.pointer_bytes] {
            if bytes > limit {
                return flaw("written bytes", format!("at most {limit}"), bytes.to_string());
            }
        }
        Ok(entry)
    }

    /// The state of a zone, after a restart of the machine or without one.
    fn state(self, restarted: bool, zones: &ZoneGeometry) -> ZoneState {
        if self.resetting {
            return Entry::default().state(restarted, zones);
        }
        let written_bytes = if restarted { self.synced_bytes } else { self.written_bytes };
        let pointer_bytes = match (self.finished, self.non_sequential) {
            (true, _) => zones.zone_capacity_bytes,
            (false, true) => self.pointer_bytes,
            (false, false) => written_bytes,
        };
        let condition = match pointer_bytes {
            0 if !self.non_sequential => ZoneCondition::Empty,
            pointer if pointer >= zones.zone_capacity_bytes => ZoneCondition::Full,
            _ => ZoneCondition::Closed,
        };
        ZoneState { condition, pointer_bytes, written_bytes, non_sequential: self.non_sequential }
    }
}

/// A file that keeps what the zones of a device are in, for a device on a file or disk that lasts. One
/// process at a time has it open.
///
/// A write that completed is in it when the process ends, however it ends; after a power cut the write
/// pointers stand where they stood at the last sync.
pub struct ZoneRecord {
    name: String,
    file: LockedFile<File>,
    zones: ZoneGeometry,
    /// Of this boot, while the file has another: noted before the next change.
    unnoted_boot: Option<[u8; 36]>,
    /// Zones of which the file then says more than is there.
    lost: Vec<ZoneId>,
    was_made: bool,
    is_read_only: bool,
    /// Version of the file.
    version: u32,
    entries: Vec<Entry>,
    /// Zones written since the last sync.
    unsynced: Vec<ZoneId>,
}

impl ZoneRecord {
    /// Opens the record at `path` for a device of these zones; `create` makes one of zones to which nothing was
    /// written, in place of a file that is empty or not there. Memory: 24 bytes for each zone.
    ///
    /// # Errors
    /// [`MediaError::NotFound`], also of an empty file, [`MediaError::Locked`] when it is open elsewhere, [`MediaError::Damaged`] when it
    /// is no record, a damaged one, or one of other zones, [`MediaError::OtherVersion`]; what the operating system says.
    pub fn open(path: &Path, zones: &ZoneGeometry, create: bool) -> Result<Self, MediaError> {
        ZoneRecord::open_with_mode(path, zones, create, FileMode::default())
    }

    /// [`ZoneRecord::open`] that gives a file it makes these permissions.
    pub fn open_with_mode(path: &Path, zones: &ZoneGeometry, create: bool, mode: FileMode) -> Result<Self, MediaError> {
        ZoneRecord::open_as(path, zones, create.then_some(mode), false, false)
    }

    /// [`ZoneRecord::open`] of a record that stays as it is, for a device that is only read: permission to read is enough,
    /// several may read it, and following a write fails.
    pub fn open_read_only(path: &Path, zones: &ZoneGeometry) -> Result<Self, MediaError> {
        ZoneRecord::open_as(path, zones, None, false, true)
    }

    /// [`ZoneRecord::open`] in place of whatever the file held: of zones to which nothing was written.
    pub fn create(path: &Path, zones: &ZoneGeometry) -> Result<Self, MediaError> {
        ZoneRecord::create_with_mode(path, zones, FileMode::default())
    }

    /// [`ZoneRecord::create`] that gives the file these permissions.
    pub fn create_with_mode(path: &Path, zones: &ZoneGeometry, mode: FileMode) -> Result<Self, MediaError> {
        ZoneRecord::open_as(path, zones, Some(mode), true, false)
    }

    /// Whether the file was not there before it was opened.
    pub fn was_made(&self) -> bool {
        self.was_made
    }

    fn open_as(
        path: &Path,
        zones: &ZoneGeometry,
        create: Option<FileMode>,
        anew: bool,
        read_only: bool,
    ) -> Result<Self, MediaError> {
        let name = path.display().to_string();
        // As the rules take them.
        let zones = ZoneTable::new(zones).geometry().clone();
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                MediaError::NotFound { device: name.clone(), operation: Operation::Open, name: name.clone() }
            }
            _ => MediaError::io(&name, Operation::Open, 0, error),
        };
        let (file, was_made) = place::open_file(path, File::options().read(true).write(!read_only), create)?;
        let file = match LockedFile::new(file, read_only) {
            Err(rustix::io::Errno::AGAIN) => return Err(MediaError::Locked { device: name.clone(), name }),
            result => result.map_err(|errno| failed(errno.into()))?,
        };
        let boot_id = boot_id();
        let length = HEADER_BYTES as u64 + ENTRY_BYTES as u64 * u64::from(zones.zone_count);
        let found_length = file.metadata().map_err(failed)?.len();
        let fresh = anew || (create.is_some() && found_length == 0);
        if !fresh && found_length == 0 {
            return Err(failed(std::io::ErrorKind::NotFound.into()));
        }
        // Whole under its name, or not there: it is made under another.
        let file = match fresh {
            true => {
                make(path, &header(&zones, &boot_id, VERSION), length, create.unwrap_or_default()).map_err(failed)?
            }
            false => file,
        };
        let damaged = |offset_bytes: u64, (what, expected, found): Flaw| MediaError::Damaged {
            device: name.clone(),
            offset_bytes,
            what,
            expected,
            found,
        };
        let short = || ("length of the file".to_owned(), length.to_string(), found_length.to_string());
        if !fresh && found_length < HEADER_BYTES as u64 {
            return Err(damaged(0, short()));
        }
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        if let Some(found) = other_version(&bytes) {
            let what = "record of zones".to_owned();
            return Err(MediaError::OtherVersion { device: name.clone(), what, readable: VERSION, found });
        }
        // First which zones it is of, on which the length depends.
        let written_in = read_header(&bytes, &zones).map_err(|flaw| damaged(0, flaw))?;
        if !fresh && found_length != length {
            return Err(damaged(0, short()));
        }
        let version = u32_at(&bytes, 8);
        let restarted = written_in != boot_id || boot_id == [0; 36];
        let mut entries = Vec::with_capacity(zones.zone_count as usize);
        for zone in (0..zones.zone_count).map(ZoneId) {
            let mut bytes = [0; ENTRY_BYTES];
            let at = entry_at(zone);
            file.read_exact_at(&mut bytes, at).map_err(failed)?;
            entries.push(Entry::decode(&bytes, zone, &zones).map_err(|flaw| damaged(at, flaw))?);
        }
        let unnoted_boot = restarted.then_some(boot_id);
        let (lost, unsynced) = (Vec::new(), Vec::new());
        let is_read_only = read_only;
        let mut record =
            ZoneRecord { name, file, zones, unnoted_boot, lost, was_made, is_read_only, version, entries, unsynced };
        record.forget_unsynced();
        Ok(record)
    }

    /// After a restart of the machine what was not synced is gone: synced bytes are then all there are. Without one the zones
    /// are listed as unsynced. The file stays as it is: who opens a device may go on to refuse what is on it.
    fn forget_unsynced(&mut self) {
        for (zone, entry) in (0..).map(ZoneId).zip(&mut self.entries) {
            if entry.written_bytes == entry.synced_bytes {
                continue;
            }
            if self.unnoted_boot.is_some() {
                entry.written_bytes = entry.synced_bytes;
                self.lost.push(zone);
            } else {
                self.unsynced.push(zone);
            }
        }
    }

    /// Notes what a restart of the machine left, and then the id of this boot, before anything else is written.
    fn note_boot(&mut self) -> Result<(), MediaError> {
        let Some(boot_id) = self.unnoted_boot else { return Ok(()) };
        for &zone in &self.lost {
            self.write_entry(zone, self.entries[zone.0 as usize])?;
        }
        self.sync_file()?;
        self.write_header(&boot_id, self.version)?;
        (self.unnoted_boot, self.lost) = (None, Vec::new());
        Ok(())
    }

    fn write_header(&self, boot_id: &[u8; 36], version: u32) -> Result<(), MediaError> {
        let header = header(&self.zones, boot_id, version);
        self.file.write_all_at(&header, 0).map_err(|error| self.failed(Operation::Write, 0, error))?;
        self.sync_file()
    }

    fn failed(&self, operation: Operation, offset_bytes: u64, error: std::io::Error) -> MediaError {
        MediaError::io(&self.name, operation, offset_bytes, error)
    }

    fn write_entry(&self, zone: ZoneId, entry: Entry) -> Result<(), MediaError> {
        let at = entry_at(zone);
        self.file.write_all_at(&entry.encode(zone), at).map_err(|error| self.failed(Operation::Write, at, error))
    }

    fn sync_file(&self) -> Result<(), MediaError> {
        self.file.sync_data().map_err(|error| self.failed(Operation::Sync, 0, error))
    }

    /// Zones as the record has them.
    pub(super) fn restore(&self, table: &mut ZoneTable) {
        for zone in (0..self.zones.zone_count).map(ZoneId) {
            if self.zones.zone_type(zone) != ZoneType::Conventional {
                let entry = self.entries[zone.0 as usize];
                table.restore(zone, entry.state(false, &self.zones));
            }
        }
    }

    pub(super) fn zones(&self) -> &ZoneGeometry {
        &self.zones
    }

    /// Follows a write that completed.
    pub(super) fn written(&mut self, zone: ZoneId, state: ZoneState) -> Result<(), MediaError> {
        self.note_written(zone, state, None).map(drop)
    }

    /// Follows a write that is durable and began at this byte of the zone. False when what lies before it is not: then only a sync
    /// of the device makes it count.
    pub(super) fn written_durably(&mut self, zone: ZoneId, state: ZoneState, from: u64) -> Result<bool, MediaError> {
        self.note_written(zone, state, Some(from))
    }

    fn note_written(&mut self, zone: ZoneId, state: ZoneState, durable_from: Option<u64>) -> Result<bool, MediaError> {
        let before = self.entries[zone.0 as usize];
        let ZoneState { written_bytes, non_sequential, .. } = state;
        let pointer_bytes = if non_sequential { state.pointer_bytes } else { 0 };
        let was_synced = before.written_bytes == before.synced_bytes;
        let is_durable = durable_from.is_some_and(|from| was_synced && from <= before.synced_bytes);
        let synced_bytes = if is_durable { written_bytes } else { before.synced_bytes };
        let entry = Entry { written_bytes, synced_bytes, non_sequential, pointer_bytes, resetting: false, ..before };
        let is_enough = is_durable || durable_from.is_none();
        if entry == before {
            return Ok(is_enough);
        }
        self.note_boot()?;
        self.write_entry(zone, entry)?;
        self.entries[zone.0 as usize] = entry;
        if is_durable {
            self.sync_file()?;
        } else if was_synced && entry.written_bytes != entry.synced_bytes {
            self.unsynced.push(zone);
        }
        Ok(is_enough)
    }

    /// Follows the cleaning of a zone by the device itself, which nobody asked for.
    pub(super) fn cleaned(&mut self, zone: ZoneId, state: ZoneState) -> Result<(), MediaError> {
        if self.is_read_only { Ok(()) } else { self.written(zone, state) }
    }

    /// Precedes a reset, before the bytes of the zone are gone; durable when it returns.
    pub(super) fn begin_reset(&mut self, zone: ZoneId) -> Result<(), MediaError> {
        let before = self.entries[zone.0 as usize];
        if before == Entry::default() || before.resetting {
            return Ok(());
        }
        self.note_boot()?;
        if self.version < VERSION {
            self.write_header(&boot_id(), VERSION)?;
            self.version = VERSION;
        }
        // In memory it is as it was until the reset is done: one that fails leaves a zone that goes on.
        self.write_entry(zone, Entry { resetting: true, ..before })?;
        self.sync_file()
    }

    /// Follows a reset that failed after it had [begun](ZoneRecord::begin_reset).
    pub(super) fn reset_failed(&mut self, zone: ZoneId) {
        // What cannot be noted now is noted with the next write to the zone.
        let _ = self.write_entry(zone, self.entries[zone.0 as usize]);
    }

    /// Zones of which a reset had begun and was not ended when the device was last used. None of a record that is only read.
    pub(super) fn interrupted_resets(&self) -> Vec<ZoneId> {
        let zones = (0..).map(ZoneId).zip(&self.entries);
        zones.filter(|(_, entry)| entry.resetting && !self.is_read_only).map(|(zone, _)| zone).collect()
    }

    /// Follows a reset or finish; durable when it returns.
    pub(super) fn commanded(&mut self, zone: ZoneId, state: ZoneState) -> Result<(), MediaError> {
        let entry = match state.condition {
            ZoneCondition::Full => Entry { finished: true, resetting: false, ..self.entries[zone.0 as usize] },
            _ => Entry::default(),
        };
        self.note_boot()?;
        self.write_entry(zone, entry)?;
        self.sync_file()?;
        self.entries[zone.0 as usize] = entry;
        Ok(())
    }

    /// Follows a sync of the device, before which these bytes of each zone were written: gives the zones and bytes to
    /// hand to [`ZoneRecord::synced`].
    pub(super) fn begin_sync(&mut self) -> Vec<(ZoneId, u64)> {
        let unsynced = std::mem::take(&mut self.unsynced);
        unsynced.into_iter().map(|zone| (zone, self.entries[zone.0 as usize].written_bytes)).collect()
    }

    /// These bytes are on the device for certain.
    pub(super) fn synced(&mut self, zones: &[(ZoneId, u64)]) -> Result<(), MediaError> {
        if !zones.is_empty() {
            self.note_boot()?;
        }
        for &(zone, bytes) in zones {
            let before = self.entries[zone.0 as usize];
            // A reset may have come between.
            let entry = Entry { synced_bytes: bytes.min(before.written_bytes), ..before };
            self.write_entry(zone, entry)?;
            self.entries[zone.0 as usize] = entry;
            if entry.written_bytes != entry.synced_bytes {
                self.unsynced.push(zone);
            }
        }
        if zones.is_empty() { Ok(()) } else { self.sync_file() }
    }

    /// A sync did not succeed: the bytes stay unsynced.
    pub(super) fn sync_failed(&mut self, zones: &[(ZoneId, u64)]) {
        self.unsynced.extend(zones.iter().map(|(zone, _)| *zone));
    }
}

/// Makes a record of zones to which nothing was written, and puts it in the place of `path`, whole and durably. What
/// comes back is locked.
fn make(path: &Path, header: &[u8], length_bytes: u64, mode: FileMode) -> std::io::Result<LockedFile<File>> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).mode(mode.of_files()).open(&unfinished)?;
    let file = LockedFile::new(file, false)?;
    file.set_len(0)?;
    file.write_all_at(header, 0)?;
    file.set_len(length_bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    if let Some(parent) = std::path::absolute(path)?.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(file)
}

fn entry_at(zone: ZoneId) -> u64 {
    HEADER_BYTES as u64 + ENTRY_BYTES as u64 * u64::from(zone.0)
}

/// What the kernel calls this boot; zeros when it does not say.
fn boot_id() -> [u8; 36] {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.get(..36).and_then(|id| id.try_into().ok()).unwrap_or([0; 36])
}

/// Decodes any bytes as a record of zones they name themselves: header and first entry.
pub(crate) fn fuzz(bytes: &[u8]) {
    let zones = ZoneGeometry {
        zone_bytes: u64_at(bytes, 16),
        zone_capacity_bytes: u64_at(bytes, 24),
        zone_count: u32_at(bytes, 12),
        conventional_zones: u32_at(bytes, 32),
        sequential_type: ZoneType::SequentialWriteRequired,
        open_zones_max: 0,
        active_zones_max: 0,
        track_overlap: None,
        media_cache: None,
        append_bytes_max: 0,
    };
    let cut = bytes.len().min(HEADER_BYTES);
    if let Ok(boot_id) = read_header(&bytes[..cut], &zones) {
        assert_eq!(header(&zones, &boot_id, u32_at(bytes, 8)), bytes[..cut]);
    }
    // Short inputs are entries too, so that the fuzzer reaches them without a whole header.
    for entry in [bytes, &bytes[cut..]] {
        let zone = ZoneId(u32_at(entry, 0));
        if let Ok(decoded) = Entry::decode(entry, zone, &zones)
            && entry.len() == ENTRY_BYTES
        {
            // Nothing written is written as zeros, whatever number stood there.
            assert!(decoded == Entry::default() || decoded.encode(zone)[..] == *entry);
            let _ = decoded.state(true, &zones);
        }
    }
}

#[cfg(test)]
mod tests;
