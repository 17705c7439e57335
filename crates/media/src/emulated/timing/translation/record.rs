//! What of a translation layer lasts, in a file beside a drive in a file. Its bytes: [`format`].
//!
//! What changes is appended when the request is done that changed it: 64 bytes for a write to the cache, whatever lies in it. When
//! the changes are more than a few thousand and twice what lasts, the file is made anew, so that each change costs as much again at
//! most; and so it is with the first change after an opening, which leaves behind what a power cut tore.
//!
//! Only times hang on it. Zones are kept elsewhere, written before it, and what the two say differently is settled in favour of
//! the zones ([`super::lasting`]).

mod format;

use super::lasting::{Change, Journal, Lasting};
use crate::emulated::rules::ZoneTable;
use crate::error::{MediaError, Operation};
use crate::place::{self, FileMode, Wanted};
use crate::zones::ZoneGeometry;
use format::{ENTRY_BYTES, Unsound, VERSION, entry, limits, mark, read, whole};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Changes up to which a file is not made anew, however little lasts.
const CHANGES_MIN: u64 = 4096;

/// A file that keeps what lies in the media cache of a drive, and which zone is being cleaned, for a drive whose bytes and zones
/// are kept in files. Opened by whoever has the [record of its zones](crate::ZoneRecord) open: that one's lock is for both.
///
/// A write that completed is in it when the process ends, however it ends; cleanings that came behind the last request are
/// when the device is dropped. A file that is not there is as one of an empty cache, and is made with the first change.
pub struct MediaCacheRecord {
    name: String,
    path: PathBuf,
    mode: FileMode,
    zones: ZoneGeometry,
    /// What lasts, with every change that was taken from the journal.
    lasting: Lasting,
    journal: Journal,
    /// Where changes are appended; `None` while the file has to be made anew for the next.
    log: Option<Log>,
    was_made: bool,
    is_read_only: bool,
}

struct Log {
    file: File,
    /// Bytes before the entries.
    whole_bytes: u64,
    /// Entries, marks included.
    entries: u64,
    is_synced: bool,
}

impl MediaCacheRecord {
    /// Opens the record at `path` of a drive with these zones, whose media cache is what [`ZoneGeometry::media_cache`] says.
    /// Nothing there is an empty cache. A file that is made gets the permissions `mode`. Memory: as much as the map, some 50
    /// bytes for each extent.
    ///
    /// # Errors
    /// [`MediaError::DamagedCacheRecord`] when it is no record, a damaged one, or one of a drive with other zones or another cache;
    /// [`MediaError::OtherVersion`]; [`MediaError::Unsuitable`] when it is no file; what the operating system says.
    pub fn open(path: &Path, zones: &ZoneGeometry, mode: FileMode) -> Result<Self, MediaError> {
        let mut record = MediaCacheRecord::of(path, zones, mode, false);
        record.read()?;
        Ok(record)
    }

    /// [`MediaCacheRecord::open`] of a record that stays as it is, for a device that is only read.
    pub fn open_read_only(path: &Path, zones: &ZoneGeometry) -> Result<Self, MediaError> {
        let mut record = MediaCacheRecord::of(path, zones, FileMode::default(), true);
        record.read()?;
        Ok(record)
    }

    /// [`MediaCacheRecord::open`] in place of whatever the file held: of an empty cache.
    pub fn create(path: &Path, zones: &ZoneGeometry, mode: FileMode) -> Result<Self, MediaError> {
        let mut record = MediaCacheRecord::of(path, zones, mode, false);
        place::check(path, Wanted::File)?;
        record.was_made = !path.exists();
        record.make()?;
        Ok(record)
    }

    /// Whether [`MediaCacheRecord::create`] made a file that was not there.
    pub fn was_made(&self) -> bool {
        self.was_made
    }

    fn of(path: &Path, zones: &ZoneGeometry, mode: FileMode, is_read_only: bool) -> Self {
        // As the rules take them.
        let zones = ZoneTable::new(zones).geometry().clone();
        MediaCacheRecord {
            name: path.display().to_string(),
            path: path.to_path_buf(),
            mode,
            lasting: Lasting::new(limits(&zones)),
            zones,
            journal: Journal::default(),
            log: None,
            was_made: false,
            is_read_only,
        }
    }

    fn failed(&self, operation: Operation, offset_bytes: u64, error: std::io::Error) -> MediaError {
        MediaError::io(&self.name, operation, offset_bytes, error)
    }

    /// Reads the file, if it is there.
    fn read(&mut self) -> Result<(), MediaError> {
        let file = match place::open_file(&self.path, File::options().read(true), None) {
            Err(MediaError::NotFound { .. }) => return Ok(()),
            opened => opened?.0,
        };
        match read(&mut BufReader::new(file), &self.zones) {
            Ok(lasting) => self.lasting = lasting,
            Err(Unsound::Io(error)) => return Err(self.failed(Operation::Read, 0, error)),
            Err(Unsound::Version(found)) => {
                let (device, what) = (self.name.clone(), "record of a media cache".to_owned());
                return Err(MediaError::OtherVersion { device, what, readable: VERSION, found });
            }
            Err(Unsound::Flaw(offset_bytes, what, expected, found)) => {
                let device = self.name.clone();
                return Err(MediaError::DamagedCacheRecord { device, offset_bytes, what, expected, found });
            }
        }
        Ok(())
    }

    /// What lasts.
    pub(super) fn lasting(&self) -> &Lasting {
        &self.lasting
    }

    /// Begins to follow a layer of which this lasts.
    pub(super) fn begin(&mut self, lasting: Lasting) -> Journal {
        self.lasting = lasting;
        // Which may not be what is in the file.
        self.log = None;
        self.journal.clone()
    }

    /// Takes note of what changed.
    ///
    /// # Errors
    /// What the operating system says; the next change then makes the file anew.
    pub(super) fn follow(&mut self) -> Result<(), MediaError> {
        let changes = std::mem::take(&mut *self.journal.lock());
        if changes.is_empty() {
            return Ok(());
        }
        changes.iter().for_each(|change| self.lasting.apply(change, &self.zones));
        if self.is_read_only {
            return Ok(());
        }
        let lasts = (self.lasting.cache.zones().len() + self.lasting.cache.map().len()) as u64;
        match self.log.take() {
            Some(log) if log.entries + (changes.len() as u64) < CHANGES_MIN.max(2 * lasts) => {
                self.append(log, &changes)
            }
            _ => self.make(),
        }
    }

    /// Makes what was noted durable.
    pub(super) fn sync(&mut self) -> Result<(), MediaError> {
        self.follow()?;
        let Some(log) = self.log.take_if(|log| !log.is_synced) else { return Ok(()) };
        log.file.sync_data().map_err(|error| self.failed(Operation::Sync, 0, error))?;
        self.write(log, |number| mark(number).to_vec(), 1, true)
    }

    fn append(&mut self, log: Log, changes: &[Change]) -> Result<(), MediaError> {
        let entries = |first: u32| (first..).zip(changes).flat_map(|(number, change)| entry(change, number)).collect();
        self.write(log, entries, changes.len() as u64, false)
    }

    /// Appends entries that `make` makes from the number of the first, and keeps the log.
    fn write(
        &mut self,
        log: Log,
        make: impl FnOnce(u32) -> Vec<u8>,
        count: u64,
        is_synced: bool,
    ) -> Result<(), MediaError> {
        let at = log.whole_bytes + log.entries * ENTRY_BYTES as u64;
        // Few enough for the numbers: see where the file is made anew.
        let bytes = make(log.entries as u32);
        log.file.write_all_at(&bytes, at).map_err(|error| self.failed(Operation::Write, at, error))?;
        self.log = Some(Log { entries: log.entries + count, is_synced, ..log });
        Ok(())
    }

    /// Makes the file anew, of what lasts now, whole under its name and durably.
    fn make(&mut self) -> Result<(), MediaError> {
        let bytes = whole(&self.lasting, &self.zones);
        let mut unfinished = self.path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let make = || -> std::io::Result<File> {
            match std::fs::remove_file(&unfinished) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = File::options();
            let mut file = options.write(true).create_new(true).mode(self.mode.of_files()).open(&unfinished)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &self.path)?;
            if let Some(parent) = std::path::absolute(&self.path)?.parent() {
                File::open(parent)?.sync_all()?;
            }
            Ok(file)
        };
        let file = make().map_err(|error| self.failed(Operation::Write, 0, error))?;
        self.log = Some(Log { file, whole_bytes: bytes.len() as u64, entries: 0, is_synced: true });
        Ok(())
    }
}

/// Reads any bytes as a record: as they are, and with checksums and sizes that are right.
pub(crate) fn fuzz(bytes: &[u8]) {
    let fit = ZoneGeometry::fit(64 << 20, 1 << 20).map(|zones| ZoneGeometry {
        conventional_zones: 2,
        sequential_type: crate::zones::ZoneType::SequentialWritePreferred,
        media_cache: Some(crate::zones::MediaCache { bytes: 4 << 20, extents_max: 50 }),
        ..zones
    });
    let Some(zones) = fit else { return };
    for bytes in [bytes.to_vec(), format::repaired(bytes, &zones)] {
        let Ok(lasting) = read(&mut &bytes[..], &zones) else { continue };
        let written = whole(&lasting, &zones);
        let again = read(&mut &written[..], &zones).map(|again| whole(&again, &zones));
        assert!(again.is_ok_and(|again| again == written), "what was read is not what was written");
        // Zones that say something else.
        let mut table = ZoneTable::new(&zones);
        let mut reconciled = lasting;
        reconciled.reconcile(&mut table);
        assert!(reconciled.cache.is_empty() && reconciled.under_way == Default::default());
    }
}

#[cfg(test)]
mod tests;
