//! The table of names of a store whose metadata a [journal](crate::journal) keeps.
//!
//! A [`NameTable`] is what there is now: which file has which name, which files lost theirs and wait for their place to be
//! free, the changes that no commit has taken yet, and how many bytes a checkpoint of all of it has. [`FoundNames`] is
//! the same while a journal is replayed. What else a store knows of a file, and how changes are written, is the store's.

use super::file_mark::FileMark;
use crate::file_store::FileEntry;
use crate::wire::Writer;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// A file that can have a name. Derefs to what the table knows of it.
pub(crate) trait Named: Sized + Deref<Target = FileMark> {
    /// A change of the metadata.
    type Change: Send;

    /// Its number, which no other file ever has.
    fn number(&self) -> u64;

    /// Bytes of its record in a checkpoint, with a name of so many bytes.
    fn record_bytes(&self, name_bytes: usize) -> u64;

    /// It is new and has this name.
    fn created(&self, name: &str) -> Self::Change;

    /// A name changed.
    fn renamed(from: &str, to: &str) -> Self::Change;

    /// A name is gone.
    fn removed(name: &str) -> Self::Change;

    /// Writes a change as bytes of a commit.
    fn encode(writer: &mut Writer, change: &Self::Change);

    /// Whether somebody else holds a file without a name, so that its place is not free yet. Nobody finds it any more, so
    /// once it is not held it stays so.
    fn is_held(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) > 1
    }
}

/// A file that lost its name by a change.
struct Unnamed<N> {
    node: Arc<N>,
    change: u64,
}

/// Files by name. Derefs to the map of them, for looking.
pub(crate) struct NameTable<N: Named> {
    names: BTreeMap<String, Arc<N>>,
    /// Files without a name whose place is not free yet.
    unnamed: Vec<Unnamed<N>>,
    /// Files with data on a device that the metadata does not know, by their numbers.
    unsynced: BTreeMap<u64, Arc<N>>,
    /// Changes that no commit has taken yet.
    pending: Vec<N::Change>,
    /// Number of the last change made.
    change: u64,
    next_file: u64,
    /// Bytes of a checkpoint of all this.
    checkpoint_bytes: u64,
    checkpoint_bytes_max: u64,
}

impl<N: Named> Deref for NameTable<N> {
    type Target = BTreeMap<String, Arc<N>>;

    fn deref(&self) -> &Self::Target {
        &self.names
    }
}

impl<N: Named> NameTable<N> {
    /// A table as it was found. `empty_bytes` has a checkpoint without files.
    pub(crate) fn new(
        names: BTreeMap<String, Arc<N>>,
        next_file: u64,
        empty_bytes: u64,
        checkpoint_bytes_max: u64,
    ) -> Self {
        let records: u64 = names.iter().map(|(name, node)| node.record_bytes(name.len())).sum();
        NameTable {
            names,
            unnamed: Vec::new(),
            unsynced: BTreeMap::new(),
            pending: Vec::new(),
            change: 0,
            next_file,
            checkpoint_bytes: empty_bytes + records,
            checkpoint_bytes_max,
        }
    }

    /// Number of the last change made.
    pub(crate) fn change(&self) -> u64 {
        self.change
    }

    /// Lowest number a new file may have.
    pub(crate) fn next_file(&self) -> u64 {
        self.next_file
    }

    /// The files, each of so many bytes.
    pub(crate) fn entries(&self, size_bytes: impl Fn(&N) -> u64) -> Vec<FileEntry> {
        let entry = |(name, node): (&String, &Arc<N>)| FileEntry { name: name.clone(), size_bytes: size_bytes(node) };
        self.names.iter().map(entry).collect()
    }

    /// A number for a new file.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_file += 1;
        self.next_file - 1
    }

    /// Whether changes wait for a commit.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Makes a change known to the next commit; says its number.
    pub(crate) fn record(&mut self, change: N::Change) -> u64 {
        self.pending.push(change);
        self.change += 1;
        self.change
    }

    /// Everything that waits for a commit, and the number of the last change.
    pub(crate) fn take_pending(&mut self) -> (Vec<N::Change>, u64) {
        (std::mem::take(&mut self.pending), self.change)
    }

    /// Whether a checkpoint has space for so many bytes more.
    pub(crate) fn has_space(&self, more_bytes: u64) -> bool {
        self.checkpoint_bytes + more_bytes <= self.checkpoint_bytes_max
    }

    /// The record of a file with a name has another size now.
    pub(crate) fn resize(&mut self, before_bytes: u64, after_bytes: u64) {
        self.checkpoint_bytes = self.checkpoint_bytes + after_bytes - before_bytes;
    }

    /// Gives a new file its name; the file that had it has none from then on.
    pub(crate) fn create(&mut self, name: &str, node: &Arc<N>) -> Option<Arc<N>> {
        let change = self.record(node.created(name));
        node.set_needed_change(change);
        self.checkpoint_bytes += node.record_bytes(name.len());
        let replaced = self.names.insert(name.to_owned(), node.clone());
        replaced.map(|replaced| self.unname(name, replaced, change))
    }

    fn unname(&mut self, name: &str, node: Arc<N>, change: u64) -> Arc<N> {
        self.checkpoint_bytes -= node.record_bytes(name.len());
        node.set_removed();
        self.unsynced.remove(&node.number());
        self.unnamed.push(Unnamed { node: node.clone(), change });
        node
    }

    /// `None`, and nothing happens, when there is no such file.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<N>> {
        let node = self.names.remove(name)?;
        let change = self.record(N::removed(name));
        Some(self.unname(name, node, change))
    }

    /// Files without a name whose place is not free yet.
    pub(crate) fn unnamed(&self) -> impl Iterator<Item = &Arc<N>> {
        self.unnamed.iter().map(|unnamed| &unnamed.node)
    }

    /// Those of them whose place will be free once everything is durable.
    pub(crate) fn unheld(&self) -> impl Iterator<Item = &Arc<N>> {
        self.unnamed().filter(|node| !N::is_held(node))
    }

    /// Files whose place is free: the first `durable_change` changes took their names, and nobody holds them.
    pub(crate) fn take_free(&mut self, durable_change: u64) -> Vec<Arc<N>> {
        let is_free = |unnamed: &Unnamed<N>| unnamed.change <= durable_change && !N::is_held(&unnamed.node);
        let (free, kept) = std::mem::take(&mut self.unnamed).into_iter().partition(is_free);
        self.unnamed = kept;
        // What whoever held them did is done.
        fence(Ordering::Acquire);
        let free: Vec<Unnamed<N>> = free;
        free.into_iter().map(|unnamed| unnamed.node).collect()
    }

    /// A file has data on a device that the metadata does not know. Of one without a name it hears nothing.
    pub(crate) fn note_unsynced(&mut self, node: &Arc<N>) {
        if !node.is_removed() {
            self.unsynced.insert(node.number(), node.clone());
        }
    }

    /// The metadata knows all of a file.
    pub(crate) fn note_synced(&mut self, node: &N) {
        self.unsynced.remove(&node.number());
    }

    /// Files with data on a device that the metadata does not know.
    pub(crate) fn unsynced(&self) -> impl Iterator<Item = &Arc<N>> {
        self.unsynced.values()
    }

    /// Whether the checkpoint has space for a file under a longer name, in place of the one that has it.
    pub(crate) fn has_space_to_rename(&self, from: &str, to: &str) -> bool {
        let replaced = self.names.get(to).filter(|_| from != to);
        let freed = replaced.map_or(0, |node| node.record_bytes(to.len()));
        let (from_bytes, to_bytes) = (from.len() as u64, to.len() as u64);
        to_bytes <= from_bytes || self.checkpoint_bytes + to_bytes <= self.checkpoint_bytes_max + from_bytes + freed
    }

    /// The change to wait for, and the file that had the name; `None`, and nothing happens, when there is no
    /// such file.
    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Option<(u64, Option<Arc<N>>)> {
        if from == to {
            return self.names.contains_key(from).then_some((self.change, None));
        }
        let node = self.names.remove(from)?;
        let change = self.record(N::renamed(from, to));
        self.resize(from.len() as u64, to.len() as u64);
        let replaced = self.names.insert(to.to_owned(), node);
        Some((change, replaced.map(|replaced| self.unname(to, replaced, change))))
    }
}

/// A file as it was found on a medium.
pub(crate) trait Numbered {
    /// Its number, which no other file ever has.
    fn number(&self) -> u64;
}

/// Files by name, while a journal is replayed. Anything may come: what cannot be changes nothing and is said.
pub(crate) struct FoundNames<F> {
    files: BTreeMap<String, F>,
    names: BTreeMap<u64, String>,
    next_file: u64,
}

impl<F: Numbered> FoundNames<F> {
    /// No files yet; `next_file` is the lowest number a new one may have.
    pub(crate) fn new(next_file: u64) -> Self {
        FoundNames { files: BTreeMap::new(), names: BTreeMap::new(), next_file }
    }

    /// Adds a file of a checkpoint; false when its name or its number is there.
    pub(crate) fn add(&mut self, name: &str, file: F) -> bool {
        !self.files.contains_key(name) && self.create(name, file).is_some()
    }

    /// Adds a file, in place of the one that has the name; `None` when its number is there.
    pub(crate) fn create(&mut self, name: &str, file: F) -> Option<()> {
        let number = file.number();
        if self.names.contains_key(&number) {
            return None;
        }
        self.next_file = self.next_file.max(number.saturating_add(1));
        self.put(name, file);
        Some(())
    }

    fn put(&mut self, name: &str, file: F) {
        self.names.insert(file.number(), name.to_owned());
        if let Some(replaced) = self.files.insert(name.to_owned(), file) {
            self.names.remove(&replaced.number());
        }
    }

    /// The file of a number.
    pub(crate) fn file_mut(&mut self, number: u64) -> Option<&mut F> {
        self.files.get_mut(self.names.get(&number)?)
    }

    /// `None` when there is no file `from`.
    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Option<()> {
        let file = self.files.remove(from)?;
        self.put(to, file);
        Some(())
    }

    /// `None` when there is no such file.
    pub(crate) fn remove(&mut self, name: &str) -> Option<()> {
        self.names.remove(&self.files.remove(name)?.number());
        Some(())
    }

    /// The files by name, and the lowest number a new one may have.
    pub(crate) fn into_parts(self) -> (BTreeMap<String, F>, u64) {
        (self.files, self.next_file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[derive(Debug, Clone, PartialEq)]
    struct Found(u64);

    impl Numbered for Found {
        fn number(&self) -> u64 {
            self.0
        }
    }

    struct Live {
        file: u64,
        mark: FileMark,
    }

    impl Deref for Live {
        type Target = FileMark;

        fn deref(&self) -> &FileMark {
            &self.mark
        }
    }

    impl Named for Live {
        type Change = String;

        fn number(&self) -> u64 {
            self.file
        }

        fn created(&self, name: &str) -> String {
            format!("create {} {name}", self.file)
        }

        fn renamed(from: &str, to: &str) -> String {
            format!("rename {from} {to}")
        }

        fn removed(name: &str) -> String {
            format!("remove {name}")
        }

        fn encode(writer: &mut Writer, change: &String) {
            writer.bytes(change.as_bytes());
        }

        fn record_bytes(&self, name_bytes: usize) -> u64 {
            100 + name_bytes as u64
        }
    }

    fn apply(found: &mut FoundNames<Found>, change: &str) -> Option<()> {
        match change.split(' ').collect::<Vec<_>>()[..] {
            ["create", number, name] => found.create(name, Found(number.parse().unwrap())),
            ["rename", from, to] => found.rename(from, to),
            ["remove", name] => found.remove(name),
            _ => None,
        }
    }

    /// Random changes of a table are those of a plain map, and replaying what it wrote gives the same.
    #[test]
    fn a_table_and_its_replay_are_a_map() {
        let seed = 11;
        let mut random = Random::seeded(seed);
        let mut table: NameTable<Live> = NameTable::new(BTreeMap::new(), 1, 16, u64::MAX / 2);
        let mut found = FoundNames::new(1);
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        for step in 0..3000 {
            let mut name = || "x".repeat(1 + random.index(12));
            let (one, other) = (name(), name());
            let context = format!("seed {seed} step {step}");
            let changes = table.change();
            let unnamed = match random.below(3) {
                0 => {
                    let file = table.number();
                    let node = Arc::new(Live { file, mark: FileMark::default() });
                    let unnamed = table.create(&one, &node);
                    assert_eq!(unnamed.as_ref().map(|node| node.file), model.insert(one, file), "{context}");
                    assert_eq!(node.mark.needed_change(), changes + 1);
                    unnamed
                }
                1 => {
                    let renamed = table.rename(&one, &other);
                    assert_eq!(renamed.is_some(), model.contains_key(&one), "{context}");
                    let replaced = model.remove(&one).and_then(|file| model.insert(other.clone(), file));
                    let unnamed = renamed.and_then(|(change, unnamed)| {
                        assert_eq!(change, changes + u64::from(one != other), "{context}");
                        unnamed
                    });
                    assert_eq!(unnamed.as_ref().map(|node| node.file), replaced, "{context}");
                    unnamed
                }
                _ => {
                    let unnamed = table.remove(&one);
                    assert_eq!(unnamed.as_ref().map(|node| node.file), model.remove(&one), "{context}");
                    unnamed
                }
            };
            assert!(unnamed.as_ref().is_none_or(|node| node.mark.is_removed()));
            // Its place is free when its removal is durable and nobody holds it.
            assert!(table.take_free(changes).is_empty(), "{context}");
            assert_eq!(table.unnamed().count(), usize::from(unnamed.is_some()), "{context}");
            if let Some(node) = unnamed {
                assert!(table.take_free(changes + 1).is_empty() && table.unheld().count() == 0, "{context}");
                let file = node.file;
                drop(node);
                assert_eq!(table.unheld().count(), 1, "{context}");
                let free: Vec<u64> = table.take_free(changes + 1).iter().map(|node| node.file).collect();
                assert_eq!((free, table.unnamed().count()), (vec![file], 0), "{context}");
            }
            assert_eq!(table.has_pending(), table.change() > changes, "{context}");
            let (pending, change) = table.take_pending();
            if change > changes {
                pending.iter().for_each(|change| apply(&mut found, change).unwrap_or_else(|| panic!("{context}")));
            }
            let live: BTreeMap<String, u64> = table.iter().map(|(name, node)| (name.clone(), node.file)).collect();
            assert_eq!(live, model, "{context}");
            assert!(table.values().all(|node| !node.mark.is_removed()));
            let bytes: u64 = model.keys().map(|name| 100 + name.len() as u64).sum();
            assert_eq!(table.checkpoint_bytes, 16 + bytes, "{context}");
        }
        let expected: BTreeMap<String, Found> = model.into_iter().map(|(name, file)| (name, Found(file))).collect();
        assert_eq!(found.into_parts(), (expected, table.next_file()));
    }

    #[test]
    fn what_cannot_be_changes_nothing() {
        let mut found = FoundNames::new(5);
        assert!(found.add("a", Found(1)) && found.add("b", Found(9)));
        assert!(!found.add("a", Found(2)) && !found.add("c", Found(9)));
        assert_eq!(found.create("c", Found(1)), None);
        assert_eq!((found.rename("c", "a"), found.remove("c")), (None, None));
        assert!(found.file_mut(2).is_none() && found.file_mut(9).is_some());
        assert_eq!(found.rename("a", "a"), Some(()));
        let (files, next_file) = found.into_parts();
        assert_eq!((files.len(), next_file), (2, 10));
    }

    #[test]
    fn a_checkpoint_that_is_full_has_space_for_what_gets_shorter() {
        let node = |file| Arc::new(Live { file, mark: FileMark::default() });
        let names = BTreeMap::from([("aaaa".to_owned(), node(1)), ("bb".to_owned(), node(2))]);
        let table = NameTable::new(names, 3, 0, 206);
        assert!(table.has_space(0) && !table.has_space(1));
        assert!(table.has_space_to_rename("aaaa", "c") && table.has_space_to_rename("bb", "aaaa"));
        assert!(!table.has_space_to_rename("bb", "ccc") && table.has_space_to_rename("bb", "bb"));
    }
}
