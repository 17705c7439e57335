//! Crash images of a memory directory.

use super::state::{Change, DirectoryState, File, FileId, NameChange, apply_name_change};
use super::{MemoryDirectory, MemoryDirectoryOptions};
use crate::layer::crash::{CrashVariant, FateChooser, Pending, Units, surviving_content};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sector of files: what a power cut keeps or loses whole.
const SECTOR_BYTES: u64 = 512;

/// A [`MemoryDirectory`] at one moment: what is durable, what is not yet, and perhaps a change in
/// flight. Cheap to clone and to keep; content is shared with the directory until that changes.
#[derive(Clone)]
pub struct DirectoryCrashState {
    pub(super) label: Arc<str>,
    pub(super) options: MemoryDirectoryOptions,
    pub(super) state: Arc<DirectoryState>,
    pub(super) in_flight: Option<Change>,
}

impl DirectoryCrashState {
    /// A fresh directory with what a power cut at this moment could have left. Everything in it is
    /// durable and nothing is locked. The same variant and seed give the same directory.
    ///
    /// Cost: proportional to the files and to the changes not yet durable, not to their content.
    pub fn image(&self, variant: CrashVariant, seed: u64) -> MemoryDirectory {
        let state = &*self.state;
        let in_flight_sequence = state.next_sequence();
        let mut name_changes: Vec<(u64, &NameChange)> =
            state.name_changes.values().into_iter().map(|(sequence, change)| (*sequence, change)).collect();
        if let Some(Change::Name(change)) = &self.in_flight {
            name_changes.push((in_flight_sequence, change));
        }
        let mut content_changes: BTreeMap<FileId, Vec<&Pending>> =
            state.files.iter().map(|(file, found)| (*file, found.pending.values())).collect();
        let in_flight = match &self.in_flight {
            Some(Change::Content(file, change)) => {
                Some((file, Pending { sequence: in_flight_sequence, certain: false, change: change.clone() }))
            }
            _ => None,
        };
        if let Some((file, change)) = &in_flight {
            content_changes.entry(**file).or_default().push(change);
        }
        let names_pending = name_changes.iter().map(|(sequence, _)| *sequence);
        let mut chooser = FateChooser::new(variant, seed, names_pending, content_changes.values().flatten().copied());

        let names = surviving_names(state, &name_changes, &mut chooser);
        let empty = File::default();
        let files = names.into_iter().map(|(name, file)| {
            let durable = &state.file(file).unwrap_or(&empty).durable;
            let changes = content_changes.get(&file).map_or(&[][..], |changes| changes);
            (name, surviving_content(durable, changes, Units::of_sectors(SECTOR_BYTES), &mut chooser))
        });
        MemoryDirectory::of_state(self.label.clone(), self.options, DirectoryState::of_files(files))
    }
}

/// Names after the changes that arrived. A change of a name whose earlier change was lost is lost too.
fn surviving_names(
    state: &DirectoryState,
    changes: &[(u64, &NameChange)],
    chooser: &mut FateChooser,
) -> BTreeMap<Arc<str>, FileId> {
    let mut names = (*state.durable_names).clone();
    let mut blocked: BTreeSet<&str> = BTreeSet::new();
    for (sequence, change) in changes {
        let touched: [&str; 2] = match change {
            NameChange::Create { name, .. } | NameChange::Remove { name } => [name, name],
            NameChange::Rename { from, to } => [from, to],
        };
        let arrived = chooser.name(*sequence);
        if arrived && !touched.iter().any(|name| blocked.contains(name)) {
            apply_name_change(&mut names, change);
        } else {
            blocked.extend(touched);
        }
    }
    names
}
