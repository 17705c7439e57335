//! Originals of what a repair makes afresh, and how they are kept.

use super::Originals;
use crate::error::Error;
use crate::file_name::{self, FileName};
use crate::inventory::{Needed, copy, remove_strays};
use crate::media::FileMedia;
use std::sync::Arc;
use varve_store::{CreateOptions, FileKind, FileStore, IoClass, IoContext, OpenOptions};

/// Bytes compared at once.
const READ_BYTES: usize = 1 << 20;

/// The files a repair replaces. In this order: what is damaged is told with [`Replaced::add`]; [`Replaced::copy_damaged`];
/// [`Replaced::mark`]; then the fresh manifest is made to hold; [`Replaced::finish`].
pub(crate) struct Replaced {
    media: FileMedia,
    originals: Originals,
    /// Files that are damaged or not used, and where they are.
    damaged: Vec<(Arc<dyn FileStore>, String)>,
    /// Those of which there is a copy.
    copied: Vec<(Arc<dyn FileStore>, String)>,
    /// A sound `CURRENT` is there.
    replaces_current: bool,
    set_aside: Vec<String>,
}

impl Replaced {
    pub(crate) fn new(media: &FileMedia, originals: Originals) -> Replaced {
        let media = media.clone();
        let (damaged, copied, set_aside) = (Vec::new(), Vec::new(), Vec::new());
        Replaced { media, originals, damaged, copied, replaces_current: false, set_aside }
    }

    /// File `name` is damaged, or not used.
    pub(crate) fn add(&mut self, name: &str) {
        let store = match FileName::parse(name) {
            Some(FileName::Log(_)) => self.media.log_store(),
            _ => &self.media.files,
        };
        if !self.damaged.iter().any(|(_, known)| known == name) {
            self.damaged.push((store.clone(), name.to_owned()));
        }
    }

    /// The `CURRENT` that is there is sound.
    pub(crate) fn add_current(&mut self) {
        self.replaces_current = true;
    }

    /// Copies what is set aside to where it is kept; files that cannot be copied stay in the list.
    /// The originals go once the fresh manifest holds.
    pub(crate) fn copy_damaged(&mut self) {
        let options = CreateOptions { kind: FileKind::Other, ..CreateOptions::default() };
        let context = IoContext::of(IoClass::Maintenance);
        let (kept, with_copy) = (&mut self.set_aside, &mut self.copied);
        self.damaged.retain(|(store, name)| {
            let Ok(copy_name) = free_name(&**store, file_name::SET_ASIDE_PREFIX, name) else { return true };
            // Under its name the copy is whole, or not there.
            let partial_name = format!("{}{name}.partial", file_name::SET_ASIDE_PREFIX);
            let copied = is_copy(&**store, name, &copy_name)
                || copy(&**store, name, &**store, &partial_name, options, &context, &mut |_| Ok(()))
                    .and_then(|()| Ok(store.rename(&partial_name, &copy_name)?))
                    .is_ok();
            if !copied {
                let _ = store.remove(&partial_name);
            }
            kept.extend(copied.then_some(copy_name));
            with_copy.extend(copied.then(|| (store.clone(), name.clone())));
            !copied
        });
    }

    /// Renames the files that could not be copied. Those that cannot be renamed either stay under their names, and the
    /// error of the first is given.
    fn rename_damaged(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for (store, name) in std::mem::take(&mut self.damaged) {
            // It has become the fresh one.
            if name == file_name::CURRENT {
                continue;
            }
            let renamed = free_name(&*store, file_name::SET_ASIDE_PREFIX, &name).and_then(|kept| {
                store.rename(&name, &kept)?;
                Ok(kept)
            });
            match renamed {
                Ok(kept) => self.set_aside.push(kept),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// From the moment the fresh manifest holds, what it does not name is to be kept; and `CURRENT`, in whose place a fresh
    /// one comes, is kept as a copy.
    pub(crate) fn mark(&mut self) -> Result<(), Error> {
        if self.originals == Originals::Discard {
            return Ok(());
        }
        let files = self.media.files.clone();
        let context = IoContext::of(IoClass::Maintenance);
        let options = CreateOptions { kind: FileKind::Other, ..CreateOptions::default() };
        if self.replaces_current {
            let partial_name = format!("{}{}.partial", file_name::REPLACED_PREFIX, file_name::CURRENT);
            let name = free_name(&*files, file_name::REPLACED_PREFIX, file_name::CURRENT)?;
            if !is_copy(&*files, file_name::CURRENT, &name) {
                copy(&*files, file_name::CURRENT, &*files, &partial_name, options, &context, &mut |_| Ok(()))?;
                files.rename(&partial_name, &name)?;
            }
            self.set_aside.push(name);
        }
        if !files.list()?.iter().any(|entry| entry.name == file_name::REPAIRED) {
            let mut mark = files.create(file_name::REPAIRED, &options)?;
            mark.sync(&context)?;
            mark.finish(&context)?;
        }
        Ok(())
    }

    /// Removes what this and earlier repairs replaced and kept; not what was damaged.
    fn discard_replaced(&self) -> Result<(), Error> {
        for store in self.media.stores() {
            for entry in store.list()?.iter().filter(|entry| entry.name.starts_with(file_name::REPLACED_PREFIX)) {
                store.remove(&entry.name)?;
            }
        }
        Ok(())
    }

    /// What is left to do once the fresh manifest holds, which needs `needed`; files from `fresh_from` on are fresh. The names
    /// under which originals are kept.
    pub(crate) fn finish(mut self, needed: &Needed, fresh_from: u64) -> Result<Vec<String>, Error> {
        // What could not be kept beside is no stray: the next repair sets it aside.
        self.rename_damaged()?;
        for (store, name) in std::mem::take(&mut self.copied) {
            // Others have become fresh ones, or are as good as ever.
            if FileName::parse(&name).is_some_and(|name| name.number().is_some()) {
                store.remove(&name)?;
            }
        }
        self.set_aside.extend(remove_strays(&self.media, needed, fresh_from));
        if self.originals == Originals::Discard {
            self.discard_replaced()?;
        }
        Ok(self.set_aside)
    }
}

/// The name under which `name` is set aside: one that nothing has yet, or that a repair which was cut short gave to a
/// copy of it.
fn free_name(store: &dyn FileStore, prefix: &str, name: &str) -> Result<String, Error> {
    let listing = store.list()?;
    let first = format!("{prefix}{name}");
    let later = (1..=listing.len()).map(|number| format!("{first}.{number}"));
    let is_free = |kept: &String| !listing.iter().any(|entry| entry.name == *kept) || is_copy(store, name, kept);
    Ok(std::iter::once(first.clone()).chain(later).find(is_free).unwrap_or(first))
}

/// Whether two files are there and equal, as far as both can be read.
fn is_copy(store: &dyn FileStore, name: &str, other: &str) -> bool {
    let compare = || -> Result<bool, Error> {
        let (one, other) = (store.open(name, &OpenOptions::default())?, store.open(other, &OpenOptions::default())?);
        let size = one.size_bytes();
        if other.size_bytes() != size {
            return Ok(false);
        }
        let context = IoContext::of(IoClass::Maintenance);
        let (mut left, mut right) = (vec![0; READ_BYTES.min(size as usize)], vec![0; READ_BYTES.min(size as usize)]);
        let mut offset = 0;
        while offset < size {
            let length = left.len().min((size - offset) as usize);
            one.read_at(offset, &mut left[..length], &context)?;
            other.read_at(offset, &mut right[..length], &context)?;
            if left[..length] != right[..length] {
                return Ok(false);
            }
            offset += length as u64;
        }
        Ok(true)
    };
    compare().unwrap_or(false)
}
