//! Moving a file to another device: its bytes, and then its name, one device after the other.
//!
//! The copy has a name of the store's own until it is whole and durable; then one commit of its device gives it the name of
//! the file and the highest stamp, and from then on it is the file. The old record goes with the next commit, before anybody
//! can remove the new one. Readers keep what they read.

use super::core::{Core, Naming};
use super::file::{HybridFile, Part};
use super::levels::Tier;
use super::options::HybridDriver;
use super::statistics::add;
use crate::band::{DeviceWriter, Need, Stamp, TableOrigin};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind};
use crate::journal::buffer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{IoCause, IoClass, IoContext};

const COPYING: IoContext = IoContext { cause: IoCause::Migration, ..IoContext::of(IoClass::Maintenance) };

/// Why a file is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// It goes to another device.
    Moving,
    /// Its zone is emptied.
    Cleaning,
}

/// Says whether to go on with a copy.
pub(super) type Going<'a> = &'a dyn Fn(&Core, u64) -> bool;

impl Core {
    /// Copies parts of a file, one behind the other, to a device under a name of the store's own, durably. The name stays when it
    /// fails.
    pub(super) fn copy(
        &self,
        file: &HybridFile,
        parts: &[Part],
        device: usize,
        number: u64,
        why: Copying,
        goes_on: Going<'_>,
    ) -> Result<bool, StoreError> {
        let (cause, is_cleaning) = match why {
            Copying::Moving => (IoCause::Migration, false),
            Copying::Cleaning => (IoCause::Cleaning, true),
        };
        let origin = TableOrigin { born_bytes: file.born_bytes.load(Ordering::Relaxed), is_cleaning };
        let member = &self.members[device];
        let name = copy_name(number);
        let start_bytes = parts.first().map_or(0, |part| part.start_bytes);
        let size_bytes = parts.last().map_or(0, Part::end_bytes).saturating_sub(start_bytes);
        let kind = if file.is_table { FileKind::Table } else { FileKind::Other };
        let options = CreateOptions {
            kind,
            level: file.level(),
            expected_size_bytes: Some(size_bytes),
            ..CreateOptions::default()
        };
        let transfer_bytes = self.transfer_bytes(device);
        let stamp = Stamp { number: 0, start_bytes: 0, goes_on: false };
        let mut writer = member.files.create(&name, &options, stamp, origin, transfer_bytes)?;
        let context = IoContext { level: file.level(), cause, ..COPYING };
        // Who reads meanwhile waits for one piece of a table that moves. Copies that make space are waited for themselves.
        let piece_bytes = if is_cleaning { transfer_bytes } else { transfer_bytes.min(self.moved_at_once_bytes()) };
        let mut bytes = buffer(member.files.device(), piece_bytes.next_multiple_of(4096));
        let mut done = 0;
        while done < size_bytes {
            if !goes_on(self, done) {
                return Ok(false);
            }
            let at = start_bytes + done;
            let index = parts.partition_point(|part| part.start_bytes <= at).saturating_sub(1);
            let next = parts.get(index + 1).map_or(u64::MAX, |next| next.start_bytes);
            let length = (next - at).min(size_bytes - done).min(piece_bytes as u64) as usize;
            parts[index].reader.read_at(at - parts[index].start_bytes, &mut bytes[..length], &context)?;
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
        self.members[device].files.rename(&copy_name(copy), name, Stamp { number, start_bytes: 0, goes_on: false })?;
        file.stamp.store(number, Ordering::Release);
        let old = file.parts();
        let reader = self.members[device].files.open_file(name)?;
        file.set_parts(vec![Part { device, start_bytes: 0, reader }]);
        self.recount(file);
        // Before the file can be removed, nothing is left that would come back; where a device refuses, whoever removes it sees to
        // that.
        let mut others: Vec<usize> = old.iter().map(|part| part.device).filter(|other| *other != device).collect();
        others.dedup();
        for other in others {
            let removed = self.remove_on(other, name, number, number).and_then(|()| self.commit_strictly_on(other));
            if removed.is_err() && self.members[other].is_refusing() {
                file.supersedes.lock().push(other);
                continue;
            }
            removed?;
        }
        file.is_durable.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes back a copy that did not become the file.
    pub(super) fn drop_copy(&self, device: usize, copy: u64) {
        // What stays is taken away by the next open.
        let _ = self.remove_on(device, &copy_name(copy), copy, copy).and_then(|()| self.commit_strictly_on(device));
        self.zone_was_left();
    }

    /// Brings all parts of a file to one device, under the name that it has; not to `unwanted`.
    pub(super) fn gather(
        &self,
        naming: &mut Naming,
        file: &HybridFile,
        name: &str,
        unwanted: Option<usize>,
    ) -> Result<(), StoreError> {
        let mut outcome = Err(self.no_space(name));
        let mut devices = self.ordered(Tier::Fast, file.is_table);
        devices.retain(|device| Some(*device) != unwanted);
        for device in devices {
            let copy = naming.number();
            outcome =
                self.copy(file, &file.parts(), device, copy, Copying::Moving, &|_, _| true).map(|_| (device, copy));
            match &outcome {
                Ok(_) => break,
                Err(error) => {
                    self.drop_copy(device, copy);
                    if !self.is_for_another(device, error) {
                        break;
                    }
                }
            }
        }
        let (device, copy) = outcome?;
        self.take_copy(naming, file, name, device, copy).inspect_err(|_| self.drop_copy(device, copy))
    }

    /// Moves a table to a tier, no faster than is allowed: to the one above a boundary, or to the nearest behind it that has space
    /// for all of it. False when it is not done.
    pub(super) fn move_table(&self, number: u64, upper: usize, to: Tier) -> Result<bool, StoreError> {
        let found = self.files.read().values().find(|file| file.number() == number).cloned();
        let Some(file) = found.filter(|file| self.is_movable(file)) else { return Ok(false) };
        let size_bytes = file.size_bytes();
        let zones_of = |device: usize| size_bytes.div_ceil(self.members[device].files.writable_zone_bytes().max(1));
        let may_go = |device: &usize| {
            let member = &self.members[*device];
            let is_there = if to == Tier::Fast { member.tier == upper } else { member.tier > upper };
            let free = member.files.zone_use().free.saturating_sub(member.promised.load(Ordering::Relaxed));
            is_there && u64::from(free) >= zones_of(*device).max(1) && self.may_hold_zone(*device)
        };
        let Some(device) = self.ordered(Tier::Fast, true).into_iter().find(may_go) else { return Ok(false) };
        let moved = self.move_file(&file, device, false);
        let counter = match (&moved, to) {
            (Ok(true), _) if upper > 0 => &self.counts.moved_behind,
            (Ok(true), Tier::Fast) => &self.counts.moved_up,
            (Ok(true), Tier::Slow) => &self.counts.moved_down,
            _ => &self.counts.abandoned,
        };
        add(counter, 1);
        moved
    }

    /// Moves a table that nobody moves; with `is_urgent` as fast as the devices are. False when it is not done.
    fn move_file(&self, file: &Arc<HybridFile>, device: usize, is_urgent: bool) -> Result<bool, StoreError> {
        if file.state.is_moving.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let member = &self.members[device];
        let zones = file.size_bytes().div_ceil(member.files.writable_zone_bytes().max(1)).max(1) as u32;
        member.promised.fetch_add(zones, Ordering::Relaxed);
        let moved = self.move_to(file, device, is_urgent);
        member.promised.fetch_sub(zones, Ordering::Relaxed);
        file.state.is_moving.store(false, Ordering::Release);
        moved
    }

    /// Makes space on a device by moving a table of it to another one, where zones are empty or have cached blocks only. False when
    /// there is none that can be moved. Waits for the copy.
    pub(super) fn move_away(&self, device: usize) -> bool {
        // What was there before stays where it is as long as a missing device may come back.
        if self.is_attempt() {
            return false;
        }
        let is_there = |file: &HybridFile| file.parts().first().is_some_and(|part| part.device == device);
        let smallest = {
            let files = self.files.read();
            let movable = files.values().filter(|file| file.is_table && is_there(file) && self.is_movable(file));
            movable.filter(|file| !self.is_input(file.number())).min_by_key(|file| file.size_bytes()).cloned()
        };
        let Some(file) = smallest else { return false };
        let targets = self.ordered(Tier::Fast, true).into_iter().filter(|target| *target != device);
        for target in targets {
            let member = &self.members[target];
            let needed = file.size_bytes().div_ceil(member.files.writable_zone_bytes()) as u32;
            let free = || member.files.zone_use().free.saturating_sub(member.promised.load(Ordering::Relaxed));
            while free() < needed && self.make_space(target) {}
            let move_there = || {
                let may_go = free() >= needed && self.may_hold_zone(target);
                may_go && matches!(self.move_file(&file, target, true), Ok(true))
            };
            // Zones that are empty may be kept for others.
            if move_there() || self.clean_in_need(target, Need::Worthwhile) && move_there() {
                return true;
            }
        }
        false
    }

    fn move_to(&self, file: &Arc<HybridFile>, device: usize, is_urgent: bool) -> Result<bool, StoreError> {
        let copy = self.naming.lock().number();
        let began = self.env.now().as_nanos();
        let goes_on = |core: &Core, done: u64| {
            if file.is_removed() || core.is_input(file.number()) {
                return false;
            }
            if is_urgent || core.options.driver == HybridDriver::Caller {
                return true;
            }
            let due = u128::from(done) * 1_000_000_000 / u128::from(core.options.migration_bytes_per_second.max(1));
            let due = began.saturating_add(due.min(u128::from(u64::MAX / 4)) as u64);
            core.migrator.sleep_until(varve_env::Instant::from_nanos(due))
        };
        let copied = self.copy(file, &file.parts(), device, copy, Copying::Moving, &goes_on);
        if matches!(copied, Ok(true)) {
            // One piece takes its time as well, or tables of one piece would go at any rate.
            goes_on(self, file.size_bytes());
        }
        if !matches!(copied, Ok(true)) {
            self.drop_copy(device, copy);
            return copied;
        }
        let mut naming = self.naming.lock();
        if file.is_removed() || self.is_input(file.number()) {
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

    /// Whether a file can be copied and the copy take its place. What lies on several devices is on one when it was moved.
    pub(super) fn is_movable(&self, file: &HybridFile) -> bool {
        let is_at_rest =
            !file.state.is_writing.load(Ordering::Acquire) && !file.state.is_moving.load(Ordering::Acquire);
        let is_settled = file.is_durable.load(Ordering::Acquire) && file.supersedes.lock().is_empty();
        let is_there = file.size_bytes() > 0 && file.is_whole();
        is_at_rest && is_settled && !file.is_removed() && is_there && self.check_parts(file).is_ok()
    }

    /// Whether something that takes long may have a zone: one stays for those who wait.
    pub(super) fn may_hold_zone(&self, device: usize) -> bool {
        let active_max = self.members[device].files.active_zones_max();
        active_max == 0 || active_max >= 4
    }
}

/// Name of a copy while it is made.
pub(super) fn copy_name(number: u64) -> String {
    format!("\0copy-{number}")
}
