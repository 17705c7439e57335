//! Names that go, on devices that do what they are asked for and on such as do not any more.
//!
//! A device *refuses* after a sync or a commit of it failed: what is on it since is not known before it is opened again. It is
//! written no more; what is durable on it is read as long as it can be. What it should forget is written elsewhere: a record of
//! the removal on another device, durable before anything depends on it, with a stamp that is higher than all that the device
//! may still have of the name. The next open of all devices does what it says, and takes it away last. A file that took the
//! place of one there needs none: its stamp is the higher one.

use super::core::{Core, Member};
use super::file::HybridFile;
use super::levels::Tier;
use super::options::HybridFormatOptions;
use super::records::removed_name;
use super::statistics::add;
use crate::band::{Stamp, TableOrigin};
use crate::error::StoreError;
use crate::file_store::{CreateOptions, FileKind};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// A removal that no commit of its device has made durable.
#[derive(Clone, Debug)]
struct Pending {
    /// Removals on the device before it, and this one.
    count: u64,
    name: String,
    /// Records with a lower stamp are removed.
    below: u64,
}

/// Removals of names on one device that may not be durable.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Number of the first; 0 where there is none.
    pub(super) first: u64,
    /// All that there ever were.
    count: u64,
    pending: Vec<Pending>,
    /// Names that the device may have though it should not, since it refuses.
    uncertain: BTreeSet<String>,
}

impl Member {
    /// Nothing is promised of it any more.
    pub(super) fn is_refusing(&self) -> bool {
        self.files.check_open().is_err()
    }

    /// Something was written to it, durably.
    pub(super) fn did_well(&self) {
        self.is_suspect.store(false, Ordering::Relaxed);
    }

    /// Whether it may have a record of a name.
    fn may_have(&self, name: &str) -> bool {
        let removals = self.removals.lock();
        self.files.has_name(name)
            || removals.uncertain.contains(name)
            || removals.pending.iter().any(|pending| pending.name == name)
    }

    /// A rename of a file on it failed when nobody can know what became of it.
    pub(super) fn may_still_have(&self, name: &str) {
        if self.is_refusing() {
            self.removals.lock().uncertain.insert(name.to_owned());
        }
    }
}

impl Core {
    /// Why a device refuses that may have a record of a name.
    pub(super) fn refusal_with(&self, name: &str) -> Option<StoreError> {
        let refusing = self.members.iter().filter_map(|member| Some((member, member.files.check_open().err()?)));
        refusing.filter(|(member, _)| member.may_have(name)).map(|(_, refusal)| refusal).next()
    }

    /// Has a device of the slowest tier keep zones for outputs of compactions where the one that did refuses, or is not there.
    pub(super) fn keep_reserve(&self) {
        let writable = self.writable();
        if self.is_attempt() || writable.iter().any(|device| self.members[*device].files.keeps_reserve()) {
            return;
        }
        let tables = self.members.iter().map(|member| member.files.reserve_tables()).max().filter(|tables| *tables > 0);
        let slowest = writable.into_iter().max_by_key(|device| (self.members[*device].tier, Reverse(*device)));
        if let Some(device) = slowest {
            let tables = tables.unwrap_or(HybridFormatOptions::default().reserve_tables);
            self.members[device].files.keep_reserve(tables);
        }
    }

    /// Why a device refuses on which something of a file lies.
    pub(super) fn check_parts(&self, file: &HybridFile) -> Result<(), StoreError> {
        file.parts().iter().try_for_each(|part| self.members[part.device].files.check_open())
    }

    /// Removes the record of a name on one device; durable with its next commit. Only those with a stamp lower than `below` are
    /// meant, where the device does not come to it.
    pub(super) fn remove_on(&self, device: usize, name: &str, number: u64, below: u64) -> Result<(), StoreError> {
        let member = &self.members[device];
        let mut removals = member.removals.lock();
        if member.files.remove(name)? {
            removals.count += 1;
            if removals.first == 0 {
                removals.first = number;
            }
            // What is the store's own goes with the next open, whatever becomes of it here.
            if !name.starts_with('\0') {
                let count = removals.count;
                removals.pending.push(Pending { count, name: name.to_owned(), below });
            }
        }
        Ok(())
    }

    /// Makes every change of names on one device durable, on that device.
    pub(super) fn commit_strictly_on(&self, device: usize) -> Result<(), StoreError> {
        let member = &self.members[device];
        let count = member.removals.lock().count;
        let is_written = member.files.has_pending_names();
        member.files.commit_names()?;
        if is_written {
            member.did_well();
        }
        let mut removals = member.removals.lock();
        removals.pending.retain(|pending| pending.count > count);
        // One that came meanwhile is told as older than it is, until the next commit.
        if removals.count == count {
            removals.first = 0;
        }
        Ok(())
    }

    /// The same, but of a device that refuses only removals, elsewhere.
    pub(super) fn commit_on(&self, device: usize) -> Result<(), StoreError> {
        let member = &self.members[device];
        match self.commit_strictly_on(device) {
            Err(_) if member.is_refusing() => {}
            outcome => return outcome,
        }
        let pending = member.removals.lock().pending.clone();
        for Pending { name, below, .. } in &pending {
            self.bury(name, *below)?;
        }
        let last = pending.last().map_or(0, |pending| pending.count);
        let mut removals = member.removals.lock();
        let (done, left): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut removals.pending).into_iter().partition(|pending| pending.count <= last);
        removals.pending = left;
        removals.uncertain.extend(done.into_iter().map(|pending| pending.name));
        if removals.pending.is_empty() {
            removals.first = 0;
        }
        Ok(())
    }

    /// Writes durably that a name was removed wherever it has a stamp lower than `below`, on a device that does not refuse.
    pub(super) fn bury(&self, name: &str, below: u64) -> Result<(), StoreError> {
        let mut buried = self.buried.lock();
        if buried.get(name).is_some_and(|number| *number >= below) {
            return Ok(());
        }
        let refusal = || self.members.iter().find_map(|member| member.files.check_open().err());
        let mut outcome = Err(refusal().unwrap_or_else(|| self.not_found(name)));
        let Some(own_name) = removed_name(name) else { return outcome };
        let options = CreateOptions { kind: FileKind::Other, ..CreateOptions::default() };
        let stamp = Stamp { number: below, start_bytes: 0, goes_on: false };
        for device in self.ordered(Tier::Fast, false) {
            let files = &self.members[device].files;
            outcome =
                files.create(&own_name, &options, stamp, TableOrigin::default(), 0).and_then(|_| files.commit_names());
            if outcome.is_ok() {
                add(&self.counts.removals_elsewhere, 1);
                buried.insert(name.to_owned(), below);
                break;
            }
        }
        outcome
    }

    /// Removes older records of a name from the devices that have them, durably. The file that has the name now is durable,
    /// or about to be removed. Whoever calls it changes a name. What a device keeps that refuses does not count beside the file.
    pub(super) fn settle(&self, file: &HybridFile, name: &str, number: u64) -> Result<(), StoreError> {
        let older = file.supersedes.lock().clone();
        for device in older {
            let below = file.stamp.load(Ordering::Acquire);
            let removed = self.remove_on(device, name, number, below).and_then(|()| self.commit_strictly_on(device));
            match removed {
                Ok(()) => file.supersedes.lock().retain(|other| *other != device),
                Err(_) if self.members[device].is_refusing() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Everything of a file is durable on its device: makes durable what must not come back beside it.
    pub(super) fn synced(&self, file: &HybridFile) -> Result<(), StoreError> {
        if file.is_durable.load(Ordering::Acquire) || file.is_removed() {
            return Ok(());
        }
        for (device, member) in self.members.iter().enumerate() {
            let first = member.removals.lock().first;
            if first != 0 && first < file.number() {
                self.commit_on(device)?;
            }
        }
        if !file.supersedes.lock().is_empty() {
            let mut naming = self.naming.lock();
            let name = file.name.lock().clone();
            if !file.is_removed() {
                let number = naming.number();
                self.settle(file, &name, number)?;
            }
        }
        file.is_durable.store(true, Ordering::Release);
        Ok(())
    }

    /// Takes the name of a file; durable later, and atomic.
    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.check_name(name)?;
        self.check_writable(name)?;
        let mut naming = self.naming.lock();
        let number = naming.number();
        let file = self.files.read().get(name).cloned().ok_or_else(|| self.not_found(name))?;
        self.decide_before(Some(&file))?;
        let removed = match self.refusal_with(name) {
            Some(refusal) => Err(refusal),
            None => self.remove_records(&file, name, number),
        };
        if let Err(error) = removed {
            if !self.members.iter().any(Member::is_refusing) {
                return Err(error);
            }
            // With this it is gone everywhere, whatever each device still has.
            self.bury(name, number)?;
            for device in 0..self.members.len() {
                // One that refuses keeps its record.
                let _ = self.remove_on(device, name, number, number);
            }
        }
        self.files.write().remove(name);
        self.was_removed(&file);
        Ok(())
    }

    /// A file has no name any more: it counts among none, and says how long tables of its level live.
    pub(super) fn was_removed(&self, file: &HybridFile) {
        file.was_removed();
        self.recount(file);
        if file.is_table && file.size_bytes() > 0 {
            self.lifetimes.lock().died(file.level(), file.born_bytes.load(Ordering::Relaxed));
        }
    }

    /// Removes the records of a file, of which no device refuses.
    fn remove_records(&self, file: &HybridFile, name: &str, number: u64) -> Result<(), StoreError> {
        let parts = file.parts();
        if let Some(first) = parts.first().filter(|_| !file.supersedes.lock().is_empty()) {
            // It may have taken the place of the first part of an older one, of which it must not leave others out.
            self.commit_strictly_on(first.device)?;
        }
        // Nothing older comes back when the last record is gone.
        self.settle(file, name, number)?;
        if let Some(older) = file.supersedes.lock().first() {
            self.members[*older].files.check_open()?;
        }
        let devices: Vec<usize> =
            parts.iter().map(|part| part.device).chain(file.rivals.iter().map(|(device, _)| *device)).collect();
        if let Some((first, others)) = devices.split_first() {
            self.remove_on(*first, name, number, number)?;
            // Parts without the one before them are nobody's.
            if !others.is_empty() {
                self.commit_strictly_on(*first)?;
            }
            others.iter().try_for_each(|device| self.remove_on(*device, name, number, number))?;
        }
        Ok(())
    }

    /// Makes every change of a name so far durable.
    pub(super) fn sync_names(&self) -> Result<(), StoreError> {
        self.check_writable("")?;
        let mut naming = self.naming.lock();
        self.decide()?;
        (0..self.members.len()).try_for_each(|device| self.commit_on(device))?;
        let (mut superseding, mut uncertain) = (Vec::new(), None);
        for (name, file) in self.files.read().iter() {
            let is_committed = file.is_durable.load(Ordering::Acquire) || self.check_parts(file).is_ok();
            if !is_committed {
                uncertain = Some(file.clone());
            } else if !file.supersedes.lock().is_empty() && self.check_parts(file).is_ok() {
                superseding.push((name.clone(), file.clone()));
            }
        }
        for (name, file) in superseding {
            let number = naming.number();
            self.settle(&file, &name, number)?;
        }
        // A name that a device was to keep, and that nobody knows whether it does.
        uncertain.map_or(Ok(()), |file| self.check_parts(&file))
    }
}
