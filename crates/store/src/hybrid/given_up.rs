//! Going on without members that are not there.
//!
//! A member is given up by a decision: a record `\0without-ID` on every device that is there. From then on the member is
//! refused. Until then an open without it is an *attempt*. Each device says durably from which stamp on its records belong to
//! the attempt (`\0attempt`), and the earlier content of the store does not change: nothing moves between devices. An attempt that
//! ends without a decision, by a crash or by an error, is taken back by the next open, whether the member is there again or not.
//!
//! The decision is durable no later than the first change that an open with the member could not take back:
//!
//! - a rename of a [pointer](crate::FileKind::Pointer), which says what of the new files holds: in the same commit as the rename;
//! - a removal, replacement or rename of a file that was there before the attempt;
//! - a write to a log after its first sync: what follows its header is somebody's data;
//! - [`sync_names`](crate::FileStore::sync_names).
//!
//! A repair renames the pointer last, so nothing that it does before costs the member. No zones are kept for outputs of
//! compactions during an attempt: what it writes takes their place.

use super::core::{Core, Member};
use super::file::HybridFile;
use super::records::{ATTEMPT_NAME, Set, without_name};
use crate::band::Stamp;
use crate::error::StoreError;
use std::sync::atomic::Ordering;

fn record(number: u64) -> Stamp {
    Stamp { number, start_bytes: 0, goes_on: false }
}

/// Makes an empty file of the store's own on a device, durably. One that refuses is passed over: nothing is written to it.
fn write_record(member: &Member, name: &str, number: u64) -> Result<(), StoreError> {
    match member.files.change_names(&[(name.to_owned(), record(number))], "") {
        Err(_) if member.is_refusing() => Ok(()),
        written => written,
    }
}

/// Has every device say durably which members were given up, where a crash kept it from saying so.
pub(super) fn complete(set: &Set, members: &[Member], number: u64) -> Result<(), StoreError> {
    for name in set.given_up_ids.iter().map(|member| without_name(*member)) {
        for member in members.iter().filter(|member| !member.files.has_name(&name)) {
            write_record(member, &name, number)?;
        }
    }
    Ok(())
}

/// Begins an attempt: on each device records with stamp `first` or a higher one belong to it. The set without its missing
/// members.
pub(super) fn begin_attempt(set: Set, members: &[Member], first: u64) -> Result<Set, StoreError> {
    for member in members {
        write_record(member, ATTEMPT_NAME, first)?;
        member.files.release_reserve();
    }
    let given_up = set.missing.into_iter().chain(set.given_up).collect();
    let given_up_ids = set.missing_ids.into_iter().chain(set.given_up_ids).collect();
    Ok(Set { given_up, given_up_ids, ..Set::default() })
}

impl Core {
    /// True if members are missing and nothing was decided.
    pub(super) fn is_attempt(&self) -> bool {
        self.attempt.load(Ordering::Acquire) != 0
    }

    /// True if a file existed before the attempt.
    fn is_original(&self, file: &HybridFile) -> bool {
        file.number() < self.attempt.load(Ordering::Acquire)
    }

    /// Decides before a file is changed that was there before the attempt.
    pub(super) fn decide_before(&self, file: Option<&HybridFile>) -> Result<(), StoreError> {
        match file.is_some_and(|file| self.is_original(file)) {
            true => self.decide(),
            false => Ok(()),
        }
    }

    /// Records of the decision that a device does not have.
    fn decision_on(&self, device: usize, number: u64) -> Vec<(String, Stamp)> {
        let files = &self.members[device].files;
        let names = self.set.given_up_ids.iter().map(|member| without_name(*member));
        names.filter(|name| !files.has_name(name)).map(|name| (name, record(number))).collect()
    }

    /// Gives up the missing members durably, if that was not done.
    pub(super) fn decide(&self) -> Result<(), StoreError> {
        let _deciding = self.deciding.lock();
        let first = self.attempt.load(Ordering::Acquire);
        if first == 0 {
            return Ok(());
        }
        let mut writable = self.writable().into_iter();
        let Some(device) = writable.next() else {
            return self.members.iter().try_for_each(|member| member.files.check_open());
        };
        // Of which device it is durable first does not matter: one is enough.
        self.members[device].files.change_names(&self.decision_on(device, first), ATTEMPT_NAME)?;
        self.was_decided(first, device);
        Ok(())
    }

    /// Renames the records of a file on one device. The rename of a pointer is the decision.
    pub(super) fn rename_on(
        &self,
        device: usize,
        file: &HybridFile,
        from: &str,
        to: &str,
        stamp: Stamp,
    ) -> Result<(), StoreError> {
        let files = &self.members[device].files;
        let _deciding = self.deciding.lock();
        let first = self.attempt.load(Ordering::Acquire);
        if first == 0 || !file.is_pointer {
            return files.rename(from, to, stamp);
        }
        files.rename_with(from, to, stamp, &self.decision_on(device, first), ATTEMPT_NAME)?;
        self.was_decided(first, device);
        Ok(())
    }

    /// The decision is durable on a device.
    fn was_decided(&self, first: u64, decided: usize) {
        self.attempt.store(0, Ordering::Release);
        for device in self.writable().into_iter().filter(|device| *device != decided) {
            // A device that cannot record it learns of it when the store is opened next.
            let _ = self.members[device].files.change_names(&self.decision_on(device, first), ATTEMPT_NAME);
        }
        for member in &self.members {
            member.files.restore_reserve();
        }
    }
}
