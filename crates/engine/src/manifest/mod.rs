//! The manifest: the shape of the tree, as a log of version edits.
//!
//! A manifest is a log (see [`crate::log`]) whose first record is an edit that says everything, the
//! snapshot; each later record says what changed. `CURRENT` names the one that holds, so a switch
//! to a new manifest is atomic.

mod contents;
mod current;
mod edit;
mod flushed_ranges;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::file_name::{self, CURRENT};
use crate::log::{LogCounters, LogHeader, LogReader, LogWriter, Purpose};
use current::Current;
use std::sync::Arc;
use varve_store::{CreateOptions, FileKind, FileStore, OpenOptions, StoreErrorKind};

pub(crate) use contents::Contents;
pub(crate) use edit::{AddedFile, VersionEdit};
pub(crate) use flushed_ranges::{FlushedRange, FlushedRanges};

/// Name of the only order of keys there is: as byte strings.
const COMPARATOR: &str = "bytewise";

/// What tells a manifest from others of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManifestIdentity {
    /// Id of the database.
    pub(crate) database: u64,
    /// A random number of this manifest.
    pub(crate) salt: u64,
}

/// A manifest that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) number: u64,
    /// Id of the database.
    pub(crate) database: u64,
    pub(crate) contents: Contents,
}

/// The manifest being written. One owner.
///
/// After an error of `append`, whether a crash would find the edit is open and nothing more can be
/// appended: switch to another manifest, whose snapshot settles it.
pub(crate) struct Manifest {
    log: LogWriter,
    number: u64,
    snapshot_bytes: u64,
}

/// Number of the manifest that holds, as `CURRENT` says; `None` where there is no such file.
pub(crate) fn current_number(store: &dyn FileStore) -> Result<Option<u64>, Error> {
    Ok(Current::read(store)?.map(|current| current.manifest_number))
}

impl Manifest {
    /// Writes manifest `number`, which begins with `snapshot`, for a tree called `tree`, and makes it
    /// durable; it does not hold before [`Manifest::switch`]. After an error it never will, and its files are removed if
    /// they can be.
    pub(crate) fn prepare(
        store: &dyn FileStore,
        number: u64,
        tree: &str,
        snapshot: &VersionEdit,
        identity: ManifestIdentity,
    ) -> Result<Self, Error> {
        let result = Self::write(store, number, tree, snapshot, identity);
        if result.is_err() {
            // They take space, which may be what it failed for; the next opening removes them too.
            for name in [file_name::temporary(number), file_name::manifest(number)] {
                let _ = store.remove(&name);
            }
        }
        result
    }

    fn write(
        store: &dyn FileStore,
        number: u64,
        tree: &str,
        snapshot: &VersionEdit,
        identity: ManifestIdentity,
    ) -> Result<Self, Error> {
        let mut snapshot = snapshot.clone();
        snapshot.comparator = Some(COMPARATOR.to_string());
        snapshot.tree = Some(tree.to_string());
        let record = snapshot.encode();
        let options = CreateOptions { kind: FileKind::Manifest, ..CreateOptions::default() };
        let file = store.create(&file_name::manifest(number), &options)?;
        let ManifestIdentity { database, salt } = identity;
        let header = LogHeader { purpose: Purpose::Manifest, number, salt, database, previous: None };
        let mut log = LogWriter::create(file, &header, Arc::new(LogCounters::default()))?;
        log.append(&[&record])?;
        log.sync()?;
        Current { manifest_number: number, salt, synced_bytes: log.synced_bytes() }.prepare(store)?;
        let snapshot_bytes = log.size_bytes();
        Ok(Manifest { log, number, snapshot_bytes })
    }

    /// Makes this manifest the one that holds: the caller removes the one before. After an error, it or the one before holds:
    /// append to neither, and switch to another.
    pub(crate) fn switch(&self, store: &dyn FileStore) -> Result<(), Error> {
        Current::switch(self.number, store)
    }

    /// Appends an edit and makes it durable.
    pub(crate) fn append(&mut self, edit: &VersionEdit) -> Result<(), Error> {
        self.log.append(&[&edit.encode()])?;
        self.log.sync()?;
        // Without the mark, damage to this edit could later be taken for a torn tail.
        self.log.mark()
    }

    /// Number of the file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes written.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.log.size_bytes()
    }

    /// It has grown past `limit_bytes`, and a new snapshot would be clearly shorter.
    pub(crate) fn is_overgrown(&self, limit_bytes: u64) -> bool {
        self.size_bytes() > limit_bytes.max(self.snapshot_bytes.saturating_mul(2))
    }

    /// The manifest that holds. An error when there is none, when it is damaged or not the one that is meant, or when
    /// it is of another tree than `tree`.
    pub(crate) fn recover(store: &dyn FileStore, tree: &str) -> Result<Recovered, Error> {
        let Some(current) = Current::read(store)? else {
            return Err(Error::Missing { store: store.name().to_string() });
        };
        let recovered = Self::read(store, &current)?;
        let contents = &recovered.contents;
        for (what, expected, found) in
            [("comparator", COMPARATOR, &contents.comparator), ("tree", tree, &contents.tree)]
        {
            if expected != found {
                return Err(Error::Foreign {
                    file: file_name::manifest(recovered.number),
                    offset_bytes: crate::log::HEADER_BYTES as u64,
                    expected: format!("{what} '{expected}'"),
                    found: format!("'{}'", found.escape_default()),
                    advice: format!("open it with the {what} it was made with"),
                });
            }
        }
        Ok(recovered)
    }

    /// The tree that the manifest in force names in its first record; `None` where there is no manifest. Cost: reads CURRENT and the
    /// first record.
    pub(crate) fn tree(store: &dyn FileStore) -> Result<Option<String>, Error> {
        let Some(current) = Current::read(store)? else { return Ok(None) };
        let (mut reader, _) = Self::reader(store, &current)?;
        let name = file_name::manifest(current.manifest_number);
        let mut contents = Contents::default();
        if let Some(record) = reader.next()? {
            let offset = record.offset_bytes;
            VersionEdit::decode(record.data)
                .and_then(|edit| contents.apply(edit))
                .map_err(|damage| damage.in_file(&name, offset, "version edit"))?;
        }
        Ok(Some(contents.tree))
    }

    /// A reader of the manifest that `current` names, at its first record, and its header.
    fn reader(store: &dyn FileStore, current: &Current) -> Result<(LogReader, LogHeader), Error> {
        let number = current.manifest_number;
        let name = file_name::manifest(number);
        let file = match store.open(&name, &OpenOptions::default()) {
            Ok(file) => file,
            Err(error) if error.kind() == StoreErrorKind::NotFound => {
                return Err(damaged(&name, 0, &format!("the manifest that {CURRENT} names"), "no such file"));
            }
            Err(error) => return Err(Error::Store(error)),
        };
        let mut reader = LogReader::open(file, &name, Purpose::Manifest, number)?;
        let Some(header) = reader.header().copied() else {
            return Err(damaged(&name, 0, "a header, which was synced", "none"));
        };
        reader.expect_salt(current.salt)?;
        reader.expect_synced(current.synced_bytes);
        Ok((reader, header))
    }

    /// What the manifest that `current` names adds up to.
    fn read(store: &dyn FileStore, current: &Current) -> Result<Recovered, Error> {
        let number = current.manifest_number;
        let name = file_name::manifest(number);
        let (mut reader, header) = Self::reader(store, current)?;
        let mut contents = Contents::default();
        let mut edits = 0;
        while let Some(record) = reader.next()? {
            // The place is that of the record's frame: a record may lie in several.
            let offset = record.offset_bytes;
            VersionEdit::decode(record.data)
                .and_then(|edit| contents.apply(edit))
                .map_err(|damage| damage.in_file(&name, offset, "version edit"))?;
            edits += 1;
        }
        if edits == 0 {
            return Err(damaged(&name, crate::log::HEADER_BYTES as u64, "a snapshot", "no record"));
        }
        Ok(Recovered { number, database: header.database, contents })
    }
}

fn damaged(name: &str, offset_bytes: u64, expected: &str, found: &str) -> Error {
    Error::Corruption {
        file: name.to_owned(),
        offset_bytes,
        structure: "manifest".to_string(),
        expected: expected.to_string(),
        found: found.to_string(),
    }
}

/// What the decoders of this module do with any bytes; for fuzzing.
pub(crate) fn fuzz(bytes: &[u8]) {
    current::fuzz(bytes);
    if let Ok(edit) = VersionEdit::decode(bytes) {
        assert_eq!(VersionEdit::decode(&edit.encode()).as_ref(), Ok(&edit));
        let _ = Contents::default().apply(edit);
    }
}
