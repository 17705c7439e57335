//! Changing the name of a file: on one device, in one commit.

use super::core::{Core, Naming};
use super::file::HybridFile;
use crate::band::Stamp;
use crate::error::{StoreError, StoreErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Core {
    /// Makes what was written of a file durable, all its parts.
    fn sync_parts(&self, file: &HybridFile, name: &str) -> Result<(), StoreError> {
        file.parts().iter().try_for_each(|part| self.members[part.device].files.sync_file(name))
    }

    /// Changes the name of a file, durably.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.check_name(from)?;
        self.check_name(to)?;
        self.check_writable(from)?;
        let mut naming = self.naming.lock();
        let file = self.files.read().get(from).cloned().ok_or_else(|| self.not_found(from))?;
        if from != to && file.parts().len() > 1 && file.state.is_writing.load(Ordering::Acquire) {
            let reason = format!("'{from}' is written on several devices; finish it before it is renamed");
            return Err(StoreError::InvalidRequest { store: self.label.clone(), reason });
        }
        self.check_parts(&file)?;
        self.decide_before(Some(&file))?;
        if !file.is_pointer {
            self.decide_before(self.files.read().get(to).cloned().as_deref())?;
        }
        self.sync_parts(&file, from)?;
        let number = naming.number();
        self.settle(&file, from, number)?;
        if from == to {
            return (0..self.members.len()).try_for_each(|device| self.commit_on(device));
        }
        let is_whole = file.is_whole();
        if file.parts().len() > 1 && is_whole {
            // Two devices do nothing at one moment: the file goes to one first, under the name that it has.
            self.gather(&mut naming, &file, from, None)?;
        }
        match self.rename_records(&mut naming, &file, from, to) {
            Err(error)
                if error.kind() == StoreErrorKind::NoSpace
                    && is_whole
                    && !file.state.is_writing.load(Ordering::Acquire) =>
            {
                // A device without space for the name is not all there is.
                let device = file.parts().first().map(|part| part.device);
                if self.gather(&mut naming, &file, from, device).is_err() {
                    return Err(error);
                }
                self.rename_records(&mut naming, &file, from, to)
            }
            outcome => outcome,
        }
    }

    /// Gives all records of a file another name.
    fn rename_records(
        &self,
        naming: &mut Naming,
        file: &Arc<HybridFile>,
        from: &str,
        to: &str,
    ) -> Result<(), StoreError> {
        self.leave_name(naming, file, from)?;
        let number = naming.number();
        let parts = file.parts();
        let records = || parts.iter().map(|part| (part.device, part.start_bytes)).chain(file.rivals.iter().copied());
        // What was removed before is gone when this returns.
        for (other, member) in self.members.iter().enumerate() {
            if records().all(|(device, _)| device != other) && member.removals.lock().first != 0 {
                self.commit_on(other)?;
            }
        }
        let target = self.files.read().get(to).cloned();
        // One of which bytes are missing has as many records as there are.
        for (device, start_bytes) in records() {
            let member = &self.members[device];
            let goes_on = file.goes_on(device);
            let renamed = self.rename_on(device, file, from, to, Stamp { number, start_bytes, goes_on });
            renamed.inspect_err(|_| member.may_still_have(from))?;
        }
        file.stamp.store(number, Ordering::Release);
        *file.name.lock() = to.to_owned();
        {
            let mut files = self.files.write();
            files.remove(from);
            files.insert(to.to_owned(), file.clone());
        }
        file.is_durable.store(true, Ordering::Release);
        if let Some(target) = target {
            self.was_removed(&target);
            let mut older: Vec<usize> = target.parts().iter().map(|part| part.device).collect();
            older.extend(&*target.supersedes.lock());
            older.extend(target.rivals.iter().map(|(device, _)| *device));
            older.sort_unstable();
            older.dedup();
            older.retain(|other| records().all(|(device, _)| device != *other));
            *file.supersedes.lock() = older;
            let number = naming.number();
            self.settle(file, to, number)?;
        }
        Ok(())
    }

    /// A file is about to lose its name: nothing older takes its place that a device has which refuses.
    fn leave_name(&self, naming: &mut Naming, file: &HybridFile, name: &str) -> Result<(), StoreError> {
        if self.refusal_with(name).is_none() {
            return Ok(());
        }
        // The device may have a copy of it that has a higher stamp.
        let number = naming.number();
        for part in file.parts().iter() {
            let stamp = Stamp { number, start_bytes: part.start_bytes, goes_on: file.goes_on(part.device) };
            self.members[part.device].files.rename(name, name, stamp)?;
        }
        file.stamp.store(number, Ordering::Release);
        self.bury(name, number)
    }
}
