//! Emptying zones that tables share: what lives in one is copied behind others on the same device, under the names that it has.
//!
//! A copy is made as one of a [move](super::moves) is, and one commit of the device gives it the name: the record that had it goes
//! with that commit. It is the same file as before, with the same stamp, so that copies of its blocks in the cache stay good. Of a
//! table of several devices the part that lies on this one is copied, and the others know nothing of it. The
//! zone is free when all of its tables were copied and nobody reads the old ones any more.

use super::core::Core;
use super::file::HybridFile;
use super::moves::{Copying, copy_name};
use super::options::HybridDriver;
use super::statistics::add;
use crate::band::Need;
use crate::error::StoreError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::Instant;

/// How long a copy sleeps before it looks whether somebody waits for it.
const LOOK_NANOS: u64 = 20_000_000;

/// How often a zone is chosen anew of which a table began to move, or went, before it was claimed.
const CLAIMS_MAX: u32 = 8;

impl Core {
    /// Whether tables share zones on any device.
    pub(super) fn shares_zones(&self) -> bool {
        self.members.iter().any(|member| member.files.shares_zones())
    }

    /// Empties a zone where one should be. True when something was done, and there may be more.
    pub(super) fn clean(&self) -> bool {
        if self.options.cleaning_bytes_per_second == 0 || self.is_read_only {
            return false;
        }
        let devices = 0..self.members.len();
        devices.filter(|device| matches!(self.clean_device(*device, Need::None), Ok(true))).count() > 0
    }

    /// Empties a zone of a device for somebody who waits for it. False when none is to be gained.
    pub(super) fn clean_in_need(&self, device: usize, need: Need) -> bool {
        let member = &self.members[device];
        if !member.files.shares_zones() {
            return false;
        }
        let before = member.emptied.load(Ordering::Acquire);
        member.waiting.fetch_add(1, Ordering::AcqRel);
        let cleaned = self.clean_device(device, need);
        member.waiting.fetch_sub(1, Ordering::AcqRel);
        // Or somebody else has done it meanwhile.
        matches!(cleaned, Ok(true)) || member.emptied.load(Ordering::Acquire) != before
    }

    /// Empties one zone of a device. False when none should be, or nothing could be copied.
    fn clean_device(&self, device: usize, need: Need) -> Result<bool, StoreError> {
        let member = &self.members[device];
        let is_asked = need != Need::None || !member.is_suspect.load(Ordering::Relaxed);
        if !member.files.shares_zones() || self.is_read_only || !is_asked || member.is_refusing() {
            return Ok(false);
        }
        // One after the other: two would take the space that one needs.
        let _cleaning = member.cleaning.lock();
        let Some(files) = self.claim_zone(device, need) else { return Ok(false) };
        let mut copied = Ok(true);
        for file in &files {
            if matches!(copied, Ok(true)) {
                copied = self.copy_within(file, device, need);
            }
            file.state.is_moving.store(false, Ordering::Release);
        }
        let is_emptied = copied?;
        // What was copied is free with the commit after those who read it.
        self.commit_strictly_on(device)?;
        member.emptied.fetch_add(u32::from(is_emptied), Ordering::AcqRel);
        add(&self.counts.cleaned_zones, u64::from(is_emptied));
        Ok(is_emptied)
    }

    /// The tables of the zone that is emptied next, which nobody else moves from now on: all of them, for a zone of which one stays
    /// gives nothing back.
    fn claim_zone(&self, device: usize, need: Need) -> Option<Vec<Arc<HybridFile>>> {
        let may_be_copied = |name: &str| {
            let file = self.files.read().get(name).cloned();
            file.is_some_and(|file| self.is_movable(&file) && (need == Need::Space || !self.is_input(file.number())))
        };
        for _ in 0..CLAIMS_MAX {
            let names = self.members[device].files.tables_to_copy(need, &may_be_copied)?;
            let mut claimed = Vec::with_capacity(names.len());
            for name in &names {
                let file = self.files.read().get(name).cloned();
                let Some(file) = file.filter(|file| self.is_movable(file)) else { break };
                if file.state.is_moving.swap(true, Ordering::AcqRel) {
                    break;
                }
                claimed.push(file);
            }
            if claimed.len() == names.len() {
                return Some(claimed);
            }
            claimed.iter().for_each(|file| file.state.is_moving.store(false, Ordering::Release));
        }
        None
    }

    /// Copies what a device has of a table to another zone of it. False when the store is closed meanwhile.
    fn copy_within(&self, file: &Arc<HybridFile>, device: usize, need: Need) -> Result<bool, StoreError> {
        let member = &self.members[device];
        let parts = file.parts();
        let Some(index) = parts.iter().position(|part| part.device == device) else { return Ok(true) };
        let part = std::slice::from_ref(&parts[index]);
        let size_bytes = parts[index].reader.size_bytes();
        let copy = self.naming.lock().number();
        let began = self.env.now().as_nanos();
        let goes_on = |core: &Core, done: u64| {
            if file.is_removed() {
                return false;
            }
            let is_waited_for = || need != Need::None || core.members[device].waiting.load(Ordering::Acquire) > 0;
            let due = u128::from(done) * 1_000_000_000 / u128::from(core.options.cleaning_bytes_per_second.max(1));
            let due = began.saturating_add(due.min(u128::from(u64::MAX / 4)) as u64);
            while core.options.driver == HybridDriver::Thread && !is_waited_for() {
                let now = core.env.now().as_nanos();
                if now >= due {
                    break;
                }
                if !core.cleaner.sleep_until(Instant::from_nanos(due.min(now + LOOK_NANOS))) {
                    return false;
                }
            }
            true
        };
        let copied = self.copy(file, part, device, copy, Copying::Cleaning, &goes_on);
        if matches!(copied, Ok(true)) {
            // One piece takes its time as well.
            goes_on(self, size_bytes);
        } else {
            self.drop_copy(device, copy);
            // What is gone needs no copy.
            return copied.map(|_| file.is_removed());
        }
        member.files.copied(size_bytes);
        add(&self.counts.cleaned_bytes, size_bytes);
        let naming = self.naming.lock();
        // A rename may have brought it together elsewhere meanwhile.
        if file.is_removed() || !Arc::ptr_eq(&parts, &file.parts()) {
            drop(naming);
            self.drop_copy(device, copy);
            return Ok(true);
        }
        let name = file.name.lock().clone();
        let taken = member.files.replace(&copy_name(copy), &name).and_then(|()| member.files.open_file(&name));
        match taken {
            Ok(reader) => {
                let mut parts = parts.to_vec();
                parts[index].reader = reader;
                file.set_parts(parts);
                Ok(true)
            }
            Err(error) => {
                drop(naming);
                self.drop_copy(device, copy);
                Err(error)
            }
        }
    }
}
