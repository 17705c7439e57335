//! What a database stands on.

use crate::error::Error;
use crate::manifest::Manifest;
use crate::options::{OptionWithoutEffect, Options, TreeKind};
use std::sync::Arc;
use varve_store::{FileStore, Finding, OpenOptions, StoreErrorKind};

/// The media of one database, as a bundle of optional parts. A tree takes the parts it needs, and refuses media without one of
/// them with [`Error::MissingPart`].
///
/// Later trees add parts beside these: segments, and a persistent heap.
#[derive(Clone, Default)]
pub struct Media {
    /// Tables, manifest, and logs unless `logs` is given.
    pub files: Option<Arc<dyn FileStore>>,
    /// Write-ahead logs, when they live elsewhere. One database to a store.
    pub logs: Option<Arc<dyn FileStore>>,
}

impl Media {
    /// Everything in one store.
    pub fn of_files(files: Arc<dyn FileStore>) -> Self {
        Media { files: Some(files), logs: None }
    }

    /// The kind of tree of the database that is here; `None` where there is none, or its manifest cannot be read: then opening says why.
    /// Cost: reads the beginning of the manifest.
    pub fn existing_tree(&self) -> Option<TreeKind> {
        let name = Manifest::tree(&**self.files.as_ref()?).ok().flatten()?;
        TreeKind::ALL.into_iter().find(|tree| tree.name() == name)
    }

    /// Options that have no effect here.
    pub(crate) fn without_effect(&self, options: &Options) -> Vec<OptionWithoutEffect> {
        let files = self.files.as_ref();
        files.map_or(Vec::new(), |files| options.without_effect(files.properties(), self.logs.is_some()))
    }

    /// What a tree needs that keeps everything in files.
    pub(crate) fn file_media(&self, options: &Options) -> Result<FileMedia, Error> {
        let missing = Error::MissingPart { tree: options.tree_kind().name(), part: "files" };
        Ok(FileMedia { files: self.files.clone().ok_or(missing)?, logs: self.logs.clone() })
    }
}

/// The media of a tree that keeps everything in files.
#[derive(Clone)]
pub(crate) struct FileMedia {
    /// Tables, manifest, and logs unless `logs` is given.
    pub(crate) files: Arc<dyn FileStore>,
    pub(crate) logs: Option<Arc<dyn FileStore>>,
}

impl FileMedia {
    /// Everything in one store.
    #[cfg(test)]
    pub(crate) fn of_files(files: Arc<dyn FileStore>) -> Self {
        FileMedia { files, logs: None }
    }

    /// The store of files, and that of logs if they have one of their own.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Arc<dyn FileStore>> {
        std::iter::once(&self.files).chain(&self.logs)
    }

    /// What the stores find wrong with themselves.
    pub(crate) fn check_stores(&self) -> Result<Vec<Finding>, Error> {
        let mut findings = Vec::new();
        for store in self.stores() {
            findings.extend(store.check()?);
        }
        Ok(findings)
    }

    pub(crate) fn log_store(&self) -> &Arc<dyn FileStore> {
        self.logs.as_ref().unwrap_or(&self.files)
    }
}

/// A name that is in no listing is that of no file, unless its store says otherwise: a store of which a device is missing cannot
/// know.
pub(crate) fn check_absent(store: &dyn FileStore, name: &str) -> Result<(), Error> {
    match store.open(name, &OpenOptions::default()) {
        Err(error) if error.kind() != StoreErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
