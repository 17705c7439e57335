//! What the contract allows to be found after a power cut.
//!
//! For every name the model keeps the files it may stand for: the last one that is certainly durable
//! and every one since. For every file it keeps how much of it is certainly durable and how much was
//! ever appended. An operation first adds what is possible while it runs, and when it has returned
//! takes away what is not possible any more.

use super::{Outcome, content, ensure};
use std::collections::BTreeMap;

/// What a name may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    /// Step that made it.
    step: u64,
    /// The file; `None` is no file.
    file: Option<usize>,
    /// Made by a removal or a rename away, rather than by a create.
    removal: bool,
    /// Its operation failed: it may have happened or not.
    uncertain: bool,
}

#[derive(Clone, Debug)]
struct NameModel {
    versions: Vec<Version>,
    /// Earlier ones cannot be found any more.
    durable: usize,
}

impl NameModel {
    fn possible(&self) -> &[Version] {
        &self.versions[self.durable..]
    }
}

#[derive(Clone, Debug)]
struct FileModel {
    /// Number its bytes are made from.
    number: u64,
    created: u64,
    synced: u64,
    /// Accepted by the writer.
    appended: u64,
    /// Accepted, or refused by an append that failed half way.
    attempted: u64,
}

/// A rename that has not returned.
#[derive(Clone, Debug)]
struct RenameInFlight {
    from: String,
    to: String,
    file: usize,
}

/// Everything that may be found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    names: BTreeMap<String, NameModel>,
    files: Vec<FileModel>,
    step: u64,
    rename: Option<RenameInFlight>,
}

/// A file of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileHandle(usize);

impl Model {
    fn push(&mut self, name: &str, file: Option<usize>, removal: bool) {
        let version = Version { step: self.step, file, removal, uncertain: false };
        let none = Version { step: 0, file: None, removal: true, uncertain: false };
        let entry = self.names.entry(name.to_owned()).or_insert_with(|| NameModel { versions: vec![none], durable: 0 });
        entry.versions.push(version);
    }

    fn settle(&mut self, name: &str) {
        if let Some(entry) = self.names.get_mut(name) {
            // An operation that failed leaves what was before it possible.
            let certain = entry.versions.iter().rposition(|version| !version.uncertain);
            entry.durable = entry.durable.max(certain.unwrap_or(0));
        }
    }

    /// Removals before `step` are durable.
    fn settle_removals_before(&mut self, step: u64) {
        for entry in self.names.values_mut() {
            let settled =
                entry.versions.iter().rposition(|version| version.removal && !version.uncertain && version.step < step);
            entry.durable = entry.durable.max(settled.unwrap_or(0));
        }
    }

    /// A create begins.
    pub(crate) fn create(&mut self, name: &str, number: u64) -> FileHandle {
        self.step += 1;
        self.files.push(FileModel { number, created: self.step, synced: 0, appended: 0, attempted: 0 });
        let file = self.files.len() - 1;
        self.push(name, Some(file), false);
        FileHandle(file)
    }

    /// An append begins.
    pub(crate) fn append(&mut self, FileHandle(file): FileHandle, length: u64) {
        self.step += 1;
        let file = &mut self.files[file];
        file.attempted = file.attempted.max(file.appended + length);
    }

    /// It has returned.
    pub(crate) fn appended(&mut self, FileHandle(file): FileHandle, length: u64) {
        self.files[file].appended += length;
    }

    /// A sync has returned.
    pub(crate) fn synced(&mut self, handle: FileHandle) {
        self.synced_in_another_life(handle);
        self.settle_removals_before(self.files[handle.0].created);
    }

    /// A sync has returned of a file made after the store was opened again. Of removals before that it says nothing:
    /// they may have been forgotten.
    pub(crate) fn synced_in_another_life(&mut self, FileHandle(file): FileHandle) {
        self.step += 1;
        self.files[file].synced = self.files[file].appended;
        let mine: Vec<String> = self
            .names
            .iter()
            .filter(|(_, entry)| entry.versions.last().is_some_and(|version| version.file == Some(file)))
            .map(|(name, _)| name.clone())
            .collect();
        mine.iter().for_each(|name| self.settle(name));
    }

    /// A removal begins.
    pub(crate) fn remove(&mut self, name: &str) {
        self.step += 1;
        self.push(name, None, true);
    }

    /// The create, removal or rename that last changed these names has failed.
    pub(crate) fn failed(&mut self, names: &[&str]) {
        self.rename = None;
        for name in names {
            if let Some(version) = self.names.get_mut(*name).and_then(|entry| entry.versions.last_mut()) {
                version.uncertain = true;
            }
        }
    }

    /// A rename begins.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        self.step += 1;
        let file = self.names.get(from).and_then(|entry| entry.versions.last()).and_then(|version| version.file);
        let Some(file) = file else { return };
        self.push(from, None, true);
        self.push(to, Some(file), false);
        self.rename = Some(RenameInFlight { from: from.to_owned(), to: to.to_owned(), file });
    }

    /// It has returned.
    pub(crate) fn renamed(&mut self) {
        if let Some(RenameInFlight { from, to, .. }) = self.rename.take() {
            self.settle(&from);
            self.settle(&to);
        }
        self.step += 1;
        self.settle_removals_before(self.step);
    }

    /// `sync_names` has returned.
    pub(crate) fn names_synced(&mut self) {
        self.step += 1;
        let all: Vec<String> = self.names.keys().cloned().collect();
        all.iter().for_each(|name| self.settle(name));
    }

    fn fits(&self, version: Version, found: Option<&Vec<u8>>) -> Result<(), String> {
        match (version.file, found) {
            (None, None) => Ok(()),
            (None, Some(data)) => Err(format!("no file (there are {} bytes)", data.len())),
            (Some(file), None) => Err(format!("file {} (there is none)", self.files[file].number)),
            (Some(file), Some(data)) => self.fits_content(&self.files[file], data),
        }
    }

    fn fits_content(&self, file: &FileModel, data: &[u8]) -> Result<(), String> {
        let label = format!("file {} with {} of {} bytes synced", file.number, file.synced, file.appended);
        if (data.len() as u64) < file.synced {
            return Err(format!("{label} (there are {})", data.len()));
        }
        let expected = content(file.number, 0, data.len() as u64);
        if data.len() as u64 <= file.attempted && *data == expected {
            return Ok(());
        }
        for (at, (found, expected)) in data.iter().zip(&expected).enumerate() {
            let at = at as u64;
            // Behind what is synced: any part of its own data, and zeros.
            let allowed = (found == expected && at < file.attempted) || (*found == 0 && at >= file.synced);
            if !allowed {
                return Err(format!("{label} (byte {at} of {} is {found:#04x}, not {expected:#04x})", data.len()));
            }
        }
        Ok(())
    }

    /// Whether these files may be found after a power cut.
    pub(crate) fn check(&self, found: &BTreeMap<String, Vec<u8>>) -> Outcome {
        for name in found.keys() {
            ensure!(self.names.contains_key(name), "'{name}' was never made");
        }
        for (name, entry) in &self.names {
            let misfits: Vec<String> =
                entry.possible().iter().filter_map(|version| self.fits(*version, found.get(name)).err()).collect();
            ensure!(misfits.len() < entry.possible().len(), "'{name}' should be {}", misfits.join(", or "));
        }
        self.check_rename(found)
    }

    /// Whether these may be found while some cannot be read: those are there without content.
    pub(crate) fn check_readable(&self, found: &BTreeMap<String, Option<Vec<u8>>>) -> Outcome {
        for name in found.keys() {
            ensure!(self.names.contains_key(name), "'{name}' was never made");
        }
        for (name, entry) in &self.names {
            let misfit = |version: &Version| match found.get(name) {
                Some(None) if version.file.is_some() => None,
                Some(None) => Some("no file (there is one)".to_owned()),
                data => self.fits(*version, data.and_then(Option::as_ref)).err(),
            };
            let misfits: Vec<String> = entry.possible().iter().filter_map(misfit).collect();
            ensure!(misfits.len() < entry.possible().len(), "'{name}' should be {}", misfits.join(", or "));
        }
        Ok(())
    }

    /// Both names as they were, or both as they shall be.
    fn check_rename(&self, found: &BTreeMap<String, Vec<u8>>) -> Outcome {
        let Some(RenameInFlight { from, to, file }) = &self.rename else { return Ok(()) };
        let was = |name: &str| {
            let possible = self.names[name].possible();
            possible[..possible.len() - 1].iter().any(|version| self.fits(*version, found.get(name)).is_ok())
        };
        let done = !found.contains_key(from)
            && found.get(to).is_some_and(|data| self.fits_content(&self.files[*file], data).is_ok());
        ensure!(done || (was(from) && was(to)), "the rename of '{from}' to '{to}' was torn");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, Vec<u8>)]) -> BTreeMap<String, Vec<u8>> {
        files.iter().map(|(name, data)| ((*name).to_owned(), data.clone())).collect()
    }

    #[test]
    fn knows_what_a_power_cut_may_leave() {
        let mut model = Model::default();
        let file = model.create("a", 1);
        model.append(file, 100);
        model.appended(file, 100);
        // Not synced: none, any part of it, zeros; but nothing foreign and not more.
        for data in [vec![], content(1, 0, 100), vec![0; 100], [content(1, 0, 40), vec![0; 60]].concat()] {
            assert_eq!(model.check(&found(&[("a", data)])), Ok(()));
        }
        assert_eq!(model.check(&found(&[])), Ok(()));
        assert!(model.check(&found(&[("a", content(2, 0, 100))])).is_err());
        assert!(model.check(&found(&[("a", content(1, 0, 101))])).is_err());
        assert!(model.check(&found(&[("b", vec![])])).is_err());
        model.synced(file);
        assert!(model.check(&found(&[])).is_err());
        assert!(model.check(&found(&[("a", content(1, 0, 99))])).is_err());
        assert!(model.check(&found(&[("a", vec![0; 100])])).is_err());
        assert_eq!(model.check(&found(&[("a", content(1, 0, 100))])), Ok(()));
        // A rename in flight is whole or not at all.
        let other = model.create("b", 2);
        model.append(other, 10);
        model.appended(other, 10);
        model.synced(other);
        model.rename("b", "a");
        let (old, new) = (content(1, 0, 100), content(2, 0, 10));
        assert_eq!(model.check(&found(&[("a", old.clone()), ("b", new.clone())])), Ok(()));
        assert_eq!(model.check(&found(&[("a", new.clone())])), Ok(()));
        assert!(model.check(&found(&[("a", old.clone())])).is_err());
        assert!(model.check(&found(&[("a", new.clone()), ("b", new.clone())])).is_err());
        model.renamed();
        assert!(model.check(&found(&[("a", old.clone()), ("b", new.clone())])).is_err());
        // A removal is durable with the sync of any file created later.
        model.remove("a");
        assert_eq!(model.check(&found(&[("a", new.clone())])), Ok(()));
        let later = model.create("c", 3);
        model.synced(later);
        assert!(model.check(&found(&[("a", new), ("c", vec![])])).is_err());
        assert_eq!(model.check(&found(&[("c", vec![])])), Ok(()));
    }
}
