//! Files that nothing needs.

use crate::file_name::{self, FileName};
use crate::media::FileMedia;
use std::collections::BTreeSet;
use varve_store::FileEntry;

/// What a database needs of its files.
pub(crate) struct Needed {
    pub(crate) tables: BTreeSet<u64>,
    /// Logs from this one on.
    pub(crate) oldest_log: u64,
    /// The manifest that CURRENT names.
    pub(crate) manifest: Option<u64>,
}

impl Needed {
    fn is_stray(&self, name: &FileName) -> bool {
        match name {
            FileName::Table(number) => !self.tables.contains(number),
            FileName::Log(number) => *number < self.oldest_log,
            FileName::Manifest(number) => Some(*number) != self.manifest,
            FileName::Temporary(_) => true,
            _ => false,
        }
    }
}

/// Removes files nothing refers to: tables of unfinished jobs, old logs and manifests, temporaries.
/// One that cannot be removed now is tried again at the next open.
///
/// What a repair replaced is not removed but set aside, also when its process ended before it had done so; files from
/// number `fresh_from` on are known for its own. The names that were given.
pub(crate) fn remove_strays(media: &FileMedia, needed: &Needed, fresh_from: u64) -> Vec<String> {
    let files = &media.files;
    let mut stores = vec![files.clone()];
    stores.extend(media.logs.clone());
    let listings: Vec<_> = stores.iter().map(|store| store.list()).collect();
    let is_repaired = |listing: &Vec<FileEntry>| listing.iter().any(|entry| entry.name == file_name::REPAIRED);
    // What the mark says is not known where it cannot be looked for.
    let Some(Ok(first)) = listings.first() else { return Vec::new() };
    let sets_aside = is_repaired(first);
    let mut is_done = true;
    let mut kept = Vec::new();
    for (store, listing) in stores.iter().zip(&listings) {
        let Ok(listing) = listing else {
            is_done = false;
            continue;
        };
        for entry in listing {
            let Some(name) = FileName::parse(&entry.name).filter(|name| needed.is_stray(name)) else { continue };
            let is_original = name.number().is_some_and(|number| number < fresh_from);
            if !sets_aside || !is_original || matches!(name, FileName::Temporary(_)) {
                let _ = store.remove(&entry.name);
                continue;
            }
            let taken = |new: &String| listing.iter().any(|entry| entry.name == *new);
            let first = format!("{}{}", file_name::REPLACED_PREFIX, entry.name);
            let later = (1..=listing.len()).map(|number| format!("{first}.{number}"));
            let free = std::iter::once(first.clone()).chain(later).find(|name| !taken(name)).unwrap_or(first);
            match store.rename(&entry.name, &free) {
                Ok(()) => kept.push(free),
                Err(_) => is_done = false,
            }
        }
    }
    // The mark goes when the names are sure to have changed.
    if sets_aside && is_done && stores.iter().all(|store| store.sync_names().is_ok()) {
        let _ = files.remove(file_name::REPAIRED);
    }
    kept
}
