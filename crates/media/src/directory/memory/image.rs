//! Crash images of a memory directory.

use super::state::{Change, Content, ContentChange, File, FileId, NameChange, State, apply_name_change};
use super::{MemoryDirectory, MemoryDirectoryOptions};
use crate::layer::crash::{CrashVariant, Fate, FateChooser};
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
    pub(super) state: Arc<State>,
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
        let mut content_changes: BTreeMap<FileId, Vec<(u64, &ContentChange)>> = state
            .files
            .iter()
            .map(|(file, found)| {
                (*file, found.pending.values().into_iter().map(|(sequence, change)| (*sequence, change)).collect())
            })
            .collect();
        if let Some(Change::Content(file, change)) = &self.in_flight {
            content_changes.entry(*file).or_default().push((in_flight_sequence, change));
        }

        let sequences = name_changes
            .iter()
            .map(|(sequence, _)| *sequence)
            .chain(content_changes.values().flatten().map(|(sequence, _)| *sequence))
            .collect();
        let last_write = content_changes
            .values()
            .flatten()
            .filter(|(_, change)| matches!(change, ContentChange::Write { .. }))
            .map(|(sequence, _)| *sequence)
            .max();
        let mut chooser = FateChooser::new(variant, seed, sequences, last_write);

        let names = surviving_names(state, &name_changes, &mut chooser);
        let empty = File::default();
        let files = names.into_iter().map(|(name, file)| {
            let durable = &state.file(file).unwrap_or(&empty).durable;
            let changes = content_changes.get(&file).map_or(&[][..], |changes| changes);
            (name, surviving_content(durable, changes, &mut chooser))
        });
        MemoryDirectory::of_state(self.label.clone(), self.options, State::of_files(files))
    }
}

/// Names after the changes that arrived. A change of a name whose earlier change was lost is lost too.
fn surviving_names(
    state: &State,
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

/// Content after the changes that arrived, sector by sector.
///
/// A sector on the medium is always some version the file had: one that kept a later write has the
/// earlier writes to the same sector too, even where those were chosen to be lost.
fn surviving_content(durable: &Content, changes: &[(u64, &ContentChange)], chooser: &mut FateChooser) -> Content {
    let mut content = durable.clone();
    let mut lost: BTreeMap<u64, Vec<(u64, &[u8])>> = BTreeMap::new();
    for (sequence, change) in changes {
        let fate = chooser.content(*sequence);
        match change {
            ContentChange::Truncate { size_bytes } => {
                if fate == Fate::Kept || (fate == Fate::Torn && chooser.sector()) {
                    content.truncate(*size_bytes);
                    lost.clear();
                }
            }
            ContentChange::Write { offset_bytes, data } => {
                let end = offset_bytes + data.len() as u64;
                if fate == Fate::Kept && lost.is_empty() {
                    content.write(*offset_bytes, data);
                    continue;
                }
                let mut at = *offset_bytes;
                while at < end {
                    let sector = at / SECTOR_BYTES;
                    let piece_end = end.min((sector + 1) * SECTOR_BYTES);
                    let piece = &data[(at - offset_bytes) as usize..(piece_end - offset_bytes) as usize];
                    let arrived = match fate {
                        Fate::Kept => true,
                        Fate::Lost => false,
                        Fate::Torn => chooser.sector(),
                    };
                    if arrived {
                        for (earlier_at, earlier) in lost.remove(&sector).unwrap_or_default() {
                            content.write(earlier_at, earlier);
                        }
                        content.write(at, piece);
                    } else {
                        lost.entry(sector).or_default().push((at, piece));
                    }
                    at = piece_end;
                }
                if content.size_bytes < end && fate != Fate::Kept && chooser.length_without_data(fate) {
                    content.size_bytes = end;
                }
            }
        }
    }
    content
}
