//! What a memory directory holds: the present, what is durable, and what lies between.

use crate::layer::crash::{Content, ContentChange, History, Pending};
use crate::sparse::PAGE_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a file, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(pub(super) u64);

/// A change of names that is not durable yet.
#[derive(Clone)]
pub(super) enum NameChange {
    Create { name: Arc<str>, file: FileId },
    Rename { from: Arc<str>, to: Arc<str> },
    Remove { name: Arc<str> },
}

/// Any change, with where it goes.
#[derive(Clone)]
pub(super) enum Change {
    Content(FileId, ContentChange),
    Name(NameChange),
}

#[derive(Clone, Default)]
pub(super) struct File {
    pub(super) present: Content,
    pub(super) durable: Content,
    /// Changes since the last sync.
    pub(super) pending: History<Pending>,
    pub(super) reserved_bytes: u64,
    /// Open handles: a file without a name lives as long as they do.
    pub(super) handles: u32,
    /// Has a name at present.
    pub(super) named: bool,
}

impl File {
    pub(super) fn used_bytes(&self) -> u64 {
        used_bytes_of(self.present.size_bytes.max(self.reserved_bytes))
    }
}

/// What a file of this length takes from the capacity.
fn used_bytes_of(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
}

/// Everything about a directory. Cloned only when a crash state holds the old one.
#[derive(Clone, Default)]
pub(super) struct DirectoryState {
    pub(super) names: BTreeMap<Arc<str>, FileId>,
    pub(super) durable_names: Arc<BTreeMap<Arc<str>, FileId>>,
    /// Changes of names since the last directory sync, with their sequence numbers.
    pub(super) name_changes: History<(u64, NameChange)>,
    pub(super) files: BTreeMap<FileId, Arc<File>>,
    next_file: u64,
    next_sequence: u64,
    used_bytes: u64,
}

impl DirectoryState {
    /// A state whose files are all durable.
    pub(super) fn of_files(files: impl IntoIterator<Item = (Arc<str>, Content)>) -> Self {
        let mut state = DirectoryState::default();
        for (name, content) in files {
            let file = state.new_file_id();
            let file_state = File { present: content.clone(), durable: content, named: true, ..File::default() };
            state.used_bytes = state.used_bytes.saturating_add(file_state.used_bytes());
            state.files.insert(file, Arc::new(file_state));
            state.names.insert(name, file);
        }
        state.durable_names = Arc::new(state.names.clone());
        state
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The sequence number the next change gets.
    pub(super) fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub(super) fn new_file_id(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file)
    }

    pub(super) fn file(&self, file: FileId) -> Option<&File> {
        self.files.get(&file).map(|file| &**file)
    }

    /// Changes a file and keeps the count of used bytes right.
    pub(super) fn update_file(&mut self, file: FileId, update: impl FnOnce(&mut File)) {
        let Some(found) = self.files.get_mut(&file) else { return };
        let found = Arc::make_mut(found);
        let before = found.used_bytes();
        update(found);
        self.used_bytes = self.used_bytes.saturating_add(found.used_bytes()).saturating_sub(before);
    }

    /// Bytes the capacity would have to give for `file` to become `size_bytes` long.
    pub(super) fn growth_bytes(&self, file: FileId, size_bytes: u64) -> u64 {
        let used = self.file(file).map_or(0, File::used_bytes);
        used_bytes_of(size_bytes).saturating_sub(used)
    }

    /// Makes a change; it becomes pending. Creation of a file makes the file too.
    pub(super) fn apply(&mut self, change: Change) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        match change {
            Change::Content(file, change) => self.update_file(file, |file| {
                if let ContentChange::Truncate { size_bytes } = change {
                    file.reserved_bytes = file.reserved_bytes.min(size_bytes);
                }
                file.present.apply(&change);
                file.pending.push(Pending { sequence, certain: false, change });
            }),
            Change::Name(change) => {
                if let NameChange::Create { file, .. } = change {
                    self.files.insert(file, Arc::new(File { named: true, ..File::default() }));
                }
                let nameless = apply_name_change(&mut self.names, &change);
                self.name_changes.push((sequence, change));
                if let Some(file) = nameless {
                    self.update_file(file, |file| file.named = false);
                    self.release_space_if_dead(file);
                }
            }
        }
    }

    pub(super) fn sync_file(&mut self, file: FileId) {
        self.update_file(file, |file| {
            file.durable = file.present.clone();
            file.pending = History::default();
        });
    }

    pub(super) fn sync_names(&mut self) {
        self.durable_names = Arc::new(self.names.clone());
        self.name_changes = History::default();
        self.files.retain(|_, file| file.handles > 0 || file.named);
    }

    pub(super) fn close_handle(&mut self, file: FileId) {
        self.update_file(file, |file| file.handles -= 1);
        self.release_space_if_dead(file);
    }

    /// A file without name and handles takes no space any more. Its content stays until the next
    /// directory sync if a crash before that may bring its name back.
    fn release_space_if_dead(&mut self, file: FileId) {
        let Some(found) = self.file(file) else { return };
        if found.handles == 0 && !found.named {
            self.used_bytes = self.used_bytes.saturating_sub(found.used_bytes());
            if self.name_changes.is_empty() {
                self.files.remove(&file);
            }
        }
    }
}

/// Applies a change to a table of names and returns the file that lost a name. A change that does
/// not fit (its earlier changes were lost) must not be given.
pub(super) fn apply_name_change(names: &mut BTreeMap<Arc<str>, FileId>, change: &NameChange) -> Option<FileId> {
    match change {
        NameChange::Create { name, file } => names.insert(name.clone(), *file),
        NameChange::Rename { from, to } => {
            let file = names.remove(from)?;
            names.insert(to.clone(), file)
        }
        NameChange::Remove { name } => names.remove(name),
    }
}
