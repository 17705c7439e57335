//! Moving a file to another device: its bytes, and then its name, one device after the other.
//!
//! The copy has a name of the store's own until it is whole and durable; then one commit of its device gives it the name of
//! the file and the highest stamp, and from then on it is the file. The old record goes with the next commit, before anybody
//! can remove the new one. Readers keep what they read.

use super::core::{Core, Naming};
use super::file::{HybridFile, Part};
use super::levels::Tier;
use super::migration::{MigrationView, Move, TableView};
use super::options::HybridDriver;
use super::placement::Tiering;
use super::statistics::add;
use crate::band::{DeviceWriter, Stamp, TableOrigin};
use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{CreateOptions, FileKind};
use crate::journal::buffer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{IoCause, IoClass, IoContext};

/// Why a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// It goes to another device.
    Moving,
    /// Its zone is emptied.
    Cleaning(TableOrigin),
}

/// Reads a table of the slow tier must have got at its rate before that is believed: so many reads as the device would do
/// one after the other.
const READS_OF_WINDOW: u64 = 16;

/// Reads of the slow tier when they were last looked at.
#[derive(Debug, Default)]
pub(super) struct SlowReads {
    reads: u64,
    nanos: u64,
    rate: u64,
}

/// Says whether to go on with a copy.
pub(super) type Going<'a> = &'a dyn Fn(&Core, u64) -> bool;

impl Core {
    /// Copies a file to another device under a name of the store's own, durably. The name stays when it fails.
    pub(super) fn copy(
        &self,
        file: &HybridFile,
        device: usize,
        number: u64,
        why: Copying,
        goes_on: Going<'_>,
    ) -> Result<bool, StoreError> {
        let (cause, origin) = match why {
            Copying::Moving => {
                let born_bytes = file.born_bytes.load(Ordering::Relaxed);
                (IoCause::Migration, TableOrigin { born_bytes, is_cleaning: false })
            }
            Copying::Cleaning(origin) => (IoCause::Cleaning, origin),
        };
        let member = &self.members[device];
        let name = copy_name(number);
        let size_bytes = file.size_bytes();
        let kind = if file.is_table { FileKind::Table } else { FileKind::Other };
        let options = CreateOptions {
            kind,
            level: file.level(),
            expected_size_bytes: Some(size_bytes),
            ..CreateOptions::default()
        };
        let transfer_bytes = self.transfer_bytes(device);
        let stamp = Stamp { number: 0, start_bytes: 0 };
        let mut writer = member.files.create(&name, &options, stamp, origin, transfer_bytes)?;
        let context = IoContext { class: IoClass::Maintenance, cause, level: file.level(), job: None, deadline: None };
        let parts = file.parts();
        let mut bytes = buffer(member.files.device(), transfer_bytes.next_multiple_of(4096));
        let mut done = 0;
        while done < size_bytes {
            if !goes_on(self, done) {
                return Ok(false);
            }
            let index = parts.partition_point(|part| part.start_bytes <= done).saturating_sub(1);
            let end = parts.get(index + 1).map_or(size_bytes, |next| next.start_bytes).min(size_bytes);
            let length = (end - done).min(transfer_bytes as u64) as usize;
            parts[index].reader.read_at(done - parts[index].start_bytes, &mut bytes[..length], &context)?;
            writer.writable().append(&bytes[..length], &context)?;
            done += length as u64;
        }
        self.end_copy(&mut writer, &context)?;
        if why == Copying::Moving {
            add(&self.counts.moved_bytes, size_bytes);
        }
        Ok(true)
    }

    fn end_copy(&self, writer: &mut DeviceWriter, context: &IoContext) -> Result<(), StoreError> {
        writer.writable().sync(context)?;
        writer.close(context)?;
        self.zone_was_left();
        Ok(())
    }

    /// Makes a durable copy the file. Whoever calls it changes a name; the file has one.
    fn take_copy(
        &self,
        naming: &mut Naming,
        file: &HybridFile,
        name: &str,
        device: usize,
        copy: u64,
    ) -> Result<(), StoreError> {
        let number = naming.number();
        self.members[device].files.rename(&copy_name(copy), name, Stamp { number, start_bytes: 0 })?;
        file.stamp.store(number, Ordering::Release);
        let old = file.parts();
        let reader = self.members[device].files.open_file(name)?;
        file.set_parts(vec![Part { device, start_bytes: 0, reader }]);
        // Before the file can be removed, nothing is left that would come back.
        let mut others: Vec<usize> = old.iter().map(|part| part.device).filter(|other| *other != device).collect();
        others.dedup();
        for other in others {
            self.remove_on(other, name, number)?;
            self.commit_on(other)?;
        }
        file.is_durable.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes back a copy that did not become the file.
    pub(super) fn drop_copy(&self, device: usize, copy: u64) {
        // What stays is taken away by the next open.
        let _ = self.remove_on(device, &copy_name(copy), copy).and_then(|()| self.commit_on(device));
        self.zone_was_left();
    }

    /// Brings all parts of a file to one device, under the name that it has.
    pub(super) fn gather(&self, naming: &mut Naming, file: &HybridFile, name: &str) -> Result<(), StoreError> {
        let mut outcome = Err(self.no_space(name));
        for device in self.choose_other(if file.is_table { FileKind::Table } else { FileKind::Other }) {
            let copy = naming.number();
            outcome = self.copy(file, device, copy, Copying::Moving, &|_, _| true).map(|_| (device, copy));
            match &outcome {
                Ok(_) => break,
                Err(error) => {
                    self.drop_copy(device, copy);
                    if error.kind() != StoreErrorKind::NoSpace {
                        break;
                    }
                }
            }
        }
        let (device, copy) = outcome?;
        self.take_copy(naming, file, name, device, copy).inspect_err(|_| self.drop_copy(device, copy))
    }

    /// Moves a table to a tier, no faster than is allowed. False when it is not done.
    fn move_table(&self, number: u64, tier: Tier) -> Result<bool, StoreError> {
        let found = self.files.read().values().find(|file| file.number == number).cloned();
        let Some(file) = found.filter(|file| self.is_movable(file)) else { return Ok(false) };
        let on_tier = |device: &usize| self.tier(*device) == tier;
        let Some(device) = self.choose_other(FileKind::Table).into_iter().find(on_tier) else { return Ok(false) };
        let member = &self.members[device];
        if member.files.zone_use().free <= member.promised.load(Ordering::Relaxed) || !self.may_hold_zone(device) {
            return Ok(false);
        }
        if file.is_moving.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        member.promised.fetch_add(1, Ordering::Relaxed);
        let moved = self.move_to(&file, device);
        member.promised.fetch_sub(1, Ordering::Relaxed);
        file.is_moving.store(false, Ordering::Release);
        match &moved {
            Ok(true) if tier == Tier::Fast => add(&self.counts.moved_up, 1),
            Ok(true) => add(&self.counts.moved_down, 1),
            _ => add(&self.counts.abandoned, 1),
        }
        moved
    }

    fn move_to(&self, file: &Arc<HybridFile>, device: usize) -> Result<bool, StoreError> {
        let copy = self.naming.lock().number();
        let began = self.env.now().as_nanos();
        let goes_on = |core: &Core, done: u64| {
            if file.is_removed() || core.is_input(file.number) {
                return false;
            }
            if core.options.driver == HybridDriver::Caller {
                return true;
            }
            let due = u128::from(done) * 1_000_000_000 / u128::from(core.options.migration_bytes_per_second.max(1));
            let due = began.saturating_add(due.min(u128::from(u64::MAX / 4)) as u64);
            core.migrator.sleep_until(varve_env::Instant::from_nanos(due))
        };
        let copied = self.copy(file, device, copy, Copying::Moving, &goes_on);
        if matches!(copied, Ok(true)) {
            // One piece takes its time as well, or tables of one piece would go at any rate.
            goes_on(self, file.size_bytes());
        }
        if !matches!(copied, Ok(true)) {
            self.drop_copy(device, copy);
            return copied;
        }
        let mut naming = self.naming.lock();
        if file.is_removed() || self.is_input(file.number) {
            drop(naming);
            self.drop_copy(device, copy);
            return Ok(false);
        }
        let name = file.name.lock().clone();
        let taken = self.take_copy(&mut naming, file, &name, device, copy);
        drop(naming);
        // A device without space for the name still has the copy.
        taken.inspect_err(|_| self.drop_copy(device, copy)).map(|()| true)
    }

    pub(super) fn is_movable(&self, file: &HybridFile) -> bool {
        let is_at_rest = !file.is_writing.load(Ordering::Acquire) && !file.is_moving.load(Ordering::Acquire);
        let is_settled = file.is_durable.load(Ordering::Acquire) && file.supersedes.lock().is_empty();
        is_at_rest && is_settled && !file.is_removed() && file.parts().len() == 1 && file.size_bytes() > 0
    }

    /// Whether something that takes long may have a zone: one stays for those who wait.
    pub(super) fn may_hold_zone(&self, device: usize) -> bool {
        let active_max = self.members[device].files.active_zones_max();
        active_max == 0 || active_max >= 4
    }

    /// Reads a second of tables of the slow tier, lately.
    fn slow_read_rate(&self) -> u64 {
        let mut slow = self.slow_reads.lock();
        let (now, reads) = (self.env.now().as_nanos(), self.counts.reads_slow.load(Ordering::Relaxed));
        let elapsed = now.saturating_sub(slow.nanos);
        let window = READS_OF_WINDOW * 1_000_000_000 / (2 * self.slow_reads_per_second_max).max(1);
        if elapsed >= window || self.options.driver == HybridDriver::Caller {
            let rate = u128::from(reads - slow.reads) * 1_000_000_000 / u128::from(elapsed.max(1));
            *slow = SlowReads { reads, nanos: now, rate: rate.min(u128::from(u64::MAX)) as u64 };
        }
        slow.rate
    }

    /// Plans a move and makes it. True when something was done, and there may be more.
    pub(super) fn migrate(&self) -> bool {
        let Some(policy) = self.migration.as_ref().filter(|_| self.has_tiers()) else { return false };
        if self.check().is_err() {
            return false;
        }
        self.divide();
        let view = self.view();
        // Of zones that tables share each is told as many.
        let places = self.places_of_zone();
        let tiering = self.placement.tiering(&view);
        let now = self.env.now().as_nanos();
        let tables: Vec<TableView> = {
            let files = self.files.read();
            let tables = files.values().filter(|file| file.is_table && file.size_bytes() > 0);
            tables
                .map(|file| TableView {
                    file: file.number,
                    level: file.row(),
                    tier: file.parts().first().map_or(Tier::Slow, |part| self.tier(part.device)),
                    zones: self.places_of(file.size_bytes(), places),
                    reads: file.reads.load(Ordering::Relaxed),
                    age_nanos: now.saturating_sub(file.created_nanos),
                    is_movable: self.is_movable(file) && !self.is_input(file.number),
                })
                .collect()
        };
        let next = policy.plan(&MigrationView {
            tables: &tables,
            tiering: Tiering {
                zones: tiering.zones.saturating_mul(places),
                lower_demand: tiering.lower_demand.saturating_mul(places),
                ..tiering
            },
            empty_table_zones: view.empty_table_zones().saturating_mul(places),
            slow_reads_per_second: self.slow_read_rate(),
            slow_reads_per_second_max: self.slow_reads_per_second_max,
        });
        let moved = match next {
            None => return false,
            Some(Move::Down { file }) => self.move_table(file, Tier::Slow),
            Some(Move::Up { file }) => self.move_table(file, Tier::Fast),
            Some(Move::Swap { up, down }) => self.move_table(down, Tier::Slow).and_then(|is_down| match is_down {
                true => self.move_table(up, Tier::Fast),
                false => Ok(false),
            }),
        };
        matches!(moved, Ok(true))
    }
}

/// Name of a copy while it is made.
pub(super) fn copy_name(number: u64) -> String {
    format!("\0copy-{number}")
}
