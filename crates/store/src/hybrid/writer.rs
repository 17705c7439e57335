//! Writing a file: on one device as long as that has space, then on another.

use super::core::{Core, Made};
use super::file::HybridFile;
use super::levels::Tier;
use super::statistics::add;
use crate::band::{DeviceWriter, Need, Stamp, TableOrigin};
use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{CreateOptions, FileKind, WritableFile};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::IoContext;

/// How long a writer waits for another one to leave a zone, before that is an error.
const PATIENCE_NANOS: u64 = 600_000_000_000;
/// Zones that are emptied for one request, at most: each gives back some space.
const CLEANINGS_MAX: u32 = 1024;

/// The writer of one file.
pub(super) struct HybridWriter {
    core: Arc<Core>,
    file: Arc<HybridFile>,
    options: CreateOptions,
    device: usize,
    writer: DeviceWriter,
    /// Bytes of the file before the part that is written.
    start_bytes: u64,
    /// What was appended and has no place yet: it goes before everything else.
    carried: Vec<u8>,
    /// Bytes of the file that readers saw before it went on on this device.
    shown_bytes: u64,
    /// Devices that had no space since the last one that had.
    refused: BTreeSet<usize>,
    /// An empty zone of the device is promised to this file.
    is_promised: bool,
    /// Bytes of a log that were synced first.
    first_synced_bytes: Option<u64>,
}

impl HybridWriter {
    pub(super) fn new(core: Arc<Core>, made: Made, options: &CreateOptions) -> HybridWriter {
        let Made { file, device, writer } = made;
        let mut writer = HybridWriter {
            core,
            file,
            options: *options,
            device,
            writer,
            start_bytes: 0,
            carried: Vec::new(),
            shown_bytes: 0,
            refused: BTreeSet::new(),
            is_promised: false,
            first_synced_bytes: None,
        };
        writer.promise();
        writer
    }

    fn promise(&mut self) {
        if self.options.kind == FileKind::Table {
            self.core.members[self.device].promised.fetch_add(1, Ordering::Relaxed);
            self.is_promised = true;
        }
    }

    fn release_promise(&mut self) {
        if std::mem::take(&mut self.is_promised) {
            self.core.members[self.device].promised.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Does something with the writer on the device, on another one when that has no space, or later when too many zones are
    /// written.
    fn run(
        &mut self,
        context: &IoContext,
        mut step: impl FnMut(&mut DeviceWriter) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let until_nanos = self.core.env.now().as_nanos().saturating_add(PATIENCE_NANOS);
        let mut cleanings = CLEANINGS_MAX;
        loop {
            let carried = match self.carried.is_empty() {
                true => Ok(()),
                false => self.writer.writable().append(&self.carried, context),
            };
            let outcome = carried.and_then(|()| {
                self.carried.clear();
                if self.shown_bytes > self.file.size_bytes() {
                    self.writer.writable().flush(context)?;
                }
                step(&mut self.writer)
            });
            if self.writer.has_zone() {
                self.release_promise();
            }
            let error = match outcome {
                Ok(()) => {
                    self.refused.clear();
                    return Ok(());
                }
                Err(error) => error,
            };
            let is_limited = matches!(error, StoreError::TooManyWriters { .. });
            if is_limited && self.core.wait_for_zone(until_nanos) {
                continue;
            }
            if error.kind() != StoreErrorKind::NoSpace {
                let is_of_device = matches!(error.kind(), StoreErrorKind::Io | StoreErrorKind::Poisoned);
                self.core.members[self.device].is_suspect.fetch_or(is_of_device, Ordering::Relaxed);
                return Err(error);
            }
            let is_small = self.options.kind != FileKind::Table;
            if is_small && self.core.make_space(self.device)
                || !is_limited && self.stays_whole(&mut cleanings)
                || self.go_on(context)?
            {
                continue;
            }
            // Nothing is refused for blocks that are somewhere else too, nor for what can be copied elsewhere, nor while a zone of
            // another device is empty.
            let has_space = !is_limited
                && (!is_small && self.core.make_space(self.device)
                    || self.clean(&mut cleanings)
                    || self.core.move_away(self.device));
            if !has_space {
                return Err(error);
            }
        }
    }

    /// Empties a zone of its device for a table that would lie on two: it could not come back to this one.
    fn stays_whole(&self, cleanings: &mut u32) -> bool {
        let is_begun = self.file.parts().last().is_some_and(|part| part.reader.size_bytes() > 0);
        if *cleanings == 0 || !is_begun || self.options.kind != FileKind::Table {
            return false;
        }
        *cleanings -= 1;
        self.core.clean_in_need(self.device, Need::Worthwhile)
    }

    /// Empties a zone that tables share, on this device or on one that had no space before and on which the file may go on: first
    /// where that is worth it. False when none is to be gained.
    fn clean(&mut self, cleanings: &mut u32) -> bool {
        if *cleanings == 0 {
            return false;
        }
        *cleanings -= 1;
        let parts = self.file.parts();
        let is_open = |device: &usize| *device != self.device && parts.iter().all(|part| part.device != *device);
        let devices: Vec<usize> =
            [self.device].into_iter().chain(self.refused.iter().copied().filter(is_open)).collect();
        for need in [Need::Worthwhile, Need::Space] {
            if let Some(device) = devices.iter().find(|device| self.core.clean_in_need(**device, need)) {
                self.refused.remove(device);
                return true;
            }
        }
        false
    }

    /// Goes on on another device; false when there is none.
    fn go_on(&mut self, context: &IoContext) -> Result<bool, StoreError> {
        self.refused.insert(self.device);
        let taken: BTreeSet<usize> = self.file.parts().iter().map(|part| part.device).collect();
        let others = self.core.ordered(Tier::Fast, self.options.kind == FileKind::Table);
        let others: Vec<usize> =
            others.into_iter().filter(|device| !self.refused.contains(device) && !taken.contains(device)).collect();
        if others.is_empty() || self.file.is_removed() {
            return Ok(false);
        }
        self.shown_bytes = self.file.size_bytes();
        let unwritten = self.writer.take_unwritten();
        self.carried.splice(0..0, unwritten);
        let part_bytes = self.writer.writable().size_bytes();
        self.writer.close(context)?;
        let core = self.core.clone();
        // Nobody renames it meanwhile.
        let _naming = core.naming.lock();
        if self.file.is_removed() {
            return Ok(false);
        }
        let name = self.file.name.lock().clone();
        if part_bytes > 0 {
            // What comes behind it is found only with it; and it tells that something does.
            self.set_goes_on(&name, true)?;
            core.members[self.device].files.sync_file(&name)?;
        }
        let start_bytes = self.start_bytes + part_bytes;
        let stamp = Stamp { number: self.file.stamp.load(Ordering::Acquire), start_bytes, goes_on: false };
        for device in others {
            let options = CreateOptions { level: self.file.level(), ..self.options };
            let born_bytes = self.file.born_bytes.load(Ordering::Relaxed);
            let made = core.create_on(device, &name, &options, stamp, TableOrigin { born_bytes, is_cleaning: false });
            let (writer, part) = match made {
                Ok(made) => made,
                Err(error) if core.is_for_another(device, &error) => {
                    self.refused.insert(device);
                    continue;
                }
                Err(error) => {
                    self.set_goes_on(&name, false)?;
                    return Err(error);
                }
            };
            if part_bytes == 0 {
                // Nothing is in the part that was begun: this one takes its place.
                let mut parts = self.file.parts().to_vec();
                parts.pop();
                self.file.set_parts(parts);
                self.file.supersedes.lock().push(self.device);
                self.file.is_durable.store(false, Ordering::Release);
            } else {
                add(&core.counts.continued, 1);
            }
            self.file.add_part(part);
            self.file.supersedes.lock().retain(|older| *older != device);
            self.release_promise();
            self.writer = writer;
            self.device = device;
            self.start_bytes = start_bytes;
            self.promise();
            core.zone_was_left();
            return Ok(true);
        }
        self.set_goes_on(&name, false)?;
        Ok(false)
    }

    /// Says whether more of the file may be on another device, behind the part that is written.
    fn set_goes_on(&self, name: &str, goes_on: bool) -> Result<(), StoreError> {
        if self.writer.size_bytes() == 0 {
            return Ok(());
        }
        let stamp = Stamp { number: self.file.stamp.load(Ordering::Acquire), start_bytes: self.start_bytes, goes_on };
        self.core.members[self.device].files.set_stamp(name, stamp)
    }

    /// Missing members are given up before a log tells its owner that it keeps data of users, which follow the header.
    fn decide_before_data(&self) -> Result<(), StoreError> {
        let is_data = self.first_synced_bytes.is_some_and(|bytes| self.size_bytes() > bytes);
        match self.options.kind == FileKind::Log && is_data && self.core.is_attempt() {
            true => self.core.decide(),
            false => Ok(()),
        }
    }

    fn end(&mut self) {
        self.release_promise();
        if let Some(division) = self.core.division.as_ref().filter(|_| self.file.is_table && !self.file.is_removed()) {
            division.lock().written(self.file.row(), self.file.size_bytes());
        }
        if self.file.is_table {
            self.core.lifetimes.lock().written(self.file.size_bytes());
        }
        self.core.writing_ends(&self.file);
        self.core.zone_was_left();
        self.core.changed();
    }
}

impl WritableFile for HybridWriter {
    fn append(&mut self, data: &[u8], context: &IoContext) -> Result<(), StoreError> {
        self.run(context, |writer| writer.writable().append(data, context))
    }

    fn flush(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.decide_before_data()?;
        self.run(context, |writer| writer.writable().flush(context))
    }

    fn write_back(&mut self, context: &IoContext) -> Result<(), StoreError> {
        self.run(context, |writer| writer.writable().write_back(context))
    }

    fn sync(&mut self, context: &IoContext) -> Result<(), StoreError> {
        // Of no part of it may be unknown what became of it.
        self.core.check_parts(&self.file)?;
        self.decide_before_data()?;
        self.run(context, |writer| writer.writable().sync(context))?;
        self.first_synced_bytes.get_or_insert(self.size_bytes());
        self.core.members[self.device].did_well();
        self.core.synced(&self.file)
    }

    fn set_level(&mut self, level: u8) {
        if self.file.size_bytes() == 0 {
            self.file.set_level(level);
            self.writer.writable().set_level(level);
        }
    }

    fn size_bytes(&self) -> u64 {
        self.start_bytes + self.writer.size_bytes() + self.carried.len() as u64
    }

    fn finish(mut self: Box<Self>, context: &IoContext) -> Result<(), StoreError> {
        self.run(context, |writer| writer.close(context))
    }
}

impl Drop for HybridWriter {
    fn drop(&mut self) {
        self.end();
    }
}
