//! The manifest: the shape of the tree, as a log of version edits.
//!
//! A manifest is a log (see [`crate::log`]) whose first record is an edit that says everything, the
//! snapshot; each later record says what changed. `CURRENT` names the one that holds, so a switch
//! to a new manifest is atomic.

mod contents;
mod current;
mod edit;
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

/// Name of the only order of keys there is: as byte strings.
const COMPARATOR: &str = "bytewise";

/// The manifest being written. One owner.
///
/// After an error of `append`, whether a crash would find the edit is open and nothing more can be
/// appended: make another manifest with [`Manifest::create`], whose snapshot settles it.
pub(crate) struct Manifest {
    log: LogWriter,
    number: u64,
    snapshot_bytes: u64,
}

impl Manifest {
    /// Writes manifest `number`, which begins with `snapshot`, for a tree called `tree`, and makes it
    /// durable; it does not hold before [`Manifest::switch`]. `salt` is a random number.
    pub(crate) fn prepare(
        store: &dyn FileStore,
        number: u64,
        tree: &str,
        snapshot: &VersionEdit,
        salt: u64,
    ) -> Result<Self, Error> {
        let mut snapshot = snapshot.clone();
        snapshot.comparator = Some(COMPARATOR.to_string());
        snapshot.tree = Some(tree.to_string());
        let record = snapshot.encode();
        let options = CreateOptions { kind: FileKind::Manifest, ..CreateOptions::default() };
        let file = store.create(&file_name::manifest(number), &options)?;
        let header = LogHeader { purpose: Purpose::Manifest, number, salt, previous: None };
        let mut log = LogWriter::create(file, &header, Arc::new(LogCounters::default()))?;
        log.append(&[&record])?;
        log.sync()?;
        let snapshot_bytes = log.size_bytes();
        Ok(Manifest { log, number, snapshot_bytes })
    }

    /// Makes this manifest the one that holds. After an error, it or the one before holds: append to
    /// neither, make another.
    pub(crate) fn switch(&self, store: &dyn FileStore) -> Result<(), Error> {
        Current { manifest_number: self.number, synced_bytes: self.log.synced_bytes() }.write(store)
    }

    /// Prepares a manifest and switches to it. The caller removes the one before.
    pub(crate) fn create(
        store: &dyn FileStore,
        number: u64,
        tree: &str,
        snapshot: &VersionEdit,
        salt: u64,
    ) -> Result<Self, Error> {
        let manifest = Self::prepare(store, number, tree, snapshot, salt)?;
        manifest.switch(store)?;
        Ok(manifest)
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

    /// Number and contents of the manifest that holds. An error when there is none, when it is
    /// damaged, or when it is of another tree than `tree`.
    pub(crate) fn recover(store: &dyn FileStore, tree: &str) -> Result<(u64, Contents), Error> {
        let Some(current) = Current::read(store)? else {
            return Err(Error::Missing { store: store.name().to_string() });
        };
        let number = current.manifest_number;
        let contents = Self::read(store, number, current.synced_bytes)?;
        let name = file_name::manifest(number);
        for (what, expected, found) in
            [("comparator", COMPARATOR, &contents.comparator), ("tree", tree, &contents.tree)]
        {
            if expected != found {
                return Err(Error::Foreign {
                    file: name,
                    offset_bytes: crate::log::HEADER_BYTES as u64,
                    expected: format!("{what} '{expected}'"),
                    found: format!("'{found}'"),
                    advice: format!("open it with the {what} it was made with"),
                });
            }
        }
        Ok((number, contents))
    }

    /// What manifest `number` adds up to; at least its first `synced_bytes` were once durable.
    pub(crate) fn read(store: &dyn FileStore, number: u64, synced_bytes: u64) -> Result<Contents, Error> {
        let name = file_name::manifest(number);
        let damaged = |offset_bytes: u64, expected: &str, found: &str| Error::Corruption {
            file: name.clone(),
            offset_bytes,
            structure: "manifest".to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        };
        let file = match store.open(&name, &OpenOptions::default()) {
            Ok(file) => file,
            Err(error) if error.kind() == StoreErrorKind::NotFound => {
                return Err(damaged(0, &format!("the manifest that {CURRENT} names"), "no such file"));
            }
            Err(error) => return Err(Error::Store(error)),
        };
        let mut reader = LogReader::open(file, &name, Purpose::Manifest, number)?;
        reader.expect_synced(synced_bytes);
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
            return Err(damaged(crate::log::HEADER_BYTES as u64, "a snapshot", "no record"));
        }
        Ok(contents)
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
