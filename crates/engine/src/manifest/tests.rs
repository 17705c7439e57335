//! What a manifest promises, after failures and after damage.

use super::edit::tests::{file, totals};
use super::*;
use crate::error::ErrorKind;
use crate::test_store::MemoryStore;

const TREE: &str = "leveled";

fn identity(salt: u64) -> ManifestIdentity {
    ManifestIdentity { database: 99, salt }
}

fn recovered(number: u64, contents: &Contents) -> Recovered {
    Recovered { number, database: 99, contents: contents.clone() }
}

fn snapshot() -> VersionEdit {
    VersionEdit {
        num_levels: Some(7),
        next_file_number: Some(100),
        last_sequence: Some(5),
        log_number: Some(3),
        added: vec![file(0, 10), file(1, 11)],
        ..VersionEdit::default()
    }
}

/// The edit numbered `index` of a history in which tables come, go and change their level.
fn change(index: u64) -> VersionEdit {
    let mut edit = VersionEdit {
        next_file_number: Some(100 + index),
        last_sequence: Some(5 + index),
        added: vec![file(0, 20 + index)],
        totals: Some(totals(index)),
        ..VersionEdit::default()
    };
    if index > 0 {
        let mut moved = file(1, 19 + index);
        moved.level = 1;
        edit.removed.push((0, moved.number));
        edit.added.push(moved);
    }
    edit
}

/// The contents after the snapshot and each change.
fn histories(changes: u64) -> Vec<Contents> {
    let first = VersionEdit { comparator: Some(COMPARATOR.to_string()), tree: Some(TREE.to_string()), ..snapshot() };
    let mut contents = Contents::default();
    contents.apply(first).unwrap();
    let mut all = vec![contents.clone()];
    for index in 0..changes {
        contents.apply(change(index)).unwrap();
        all.push(contents.clone());
    }
    all
}

fn create(
    store: &dyn FileStore,
    number: u64,
    tree: &str,
    snapshot: &VersionEdit,
    identity: ManifestIdentity,
) -> Result<Manifest, Error> {
    let manifest = Manifest::prepare(store, number, tree, snapshot, identity)?;
    manifest.switch(store)?;
    Ok(manifest)
}

fn written(changes: u64) -> MemoryStore {
    let store = MemoryStore::new();
    let mut manifest = create(&store, 4, TREE, &snapshot(), identity(77)).unwrap();
    for index in 0..changes {
        manifest.append(&change(index)).unwrap();
    }
    store
}

#[test]
fn edits_are_recovered() {
    let error = Manifest::recover(&MemoryStore::new(), TREE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let store = written(9);
    assert_eq!(Manifest::recover(&store, TREE).unwrap(), recovered(4, &histories(9)[9]));
    let names: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["CURRENT", "MANIFEST-000004"]);
    let error = Manifest::recover(&store, "ranged").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign);
}

#[test]
fn a_switch_is_atomic_whatever_fails() {
    let base = written(0).changes();
    for fail_at in 1..100 {
        let store = written(0);
        let before = Manifest::recover(&store, TREE).unwrap();
        store.fail_from(Some(base + fail_at));
        let next = VersionEdit { next_file_number: Some(500), ..snapshot() };
        let result = create(&store, 5, TREE, &next, identity(78));
        store.fail_from(None);
        let Recovered { number, contents, .. } = Manifest::recover(&store, TREE).unwrap();
        match result {
            Ok(_) => {
                assert_eq!((number, contents.next_file_number), (5, 500));
                assert!(fail_at > 5, "a switch has several steps");
                return;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                assert_eq!((number, contents), (before.number, before.contents), "fail at {fail_at}");
            }
        }
    }
    panic!("never succeeded");
}

#[test]
fn a_failed_append_poisons_and_the_next_manifest_settles_it() {
    let store = written(0);
    let mut manifest = create(&store, 5, TREE, &snapshot(), identity(1)).unwrap();
    store.fail_from(Some(store.changes() + 3));
    assert_eq!(manifest.append(&change(0)).unwrap_err().kind(), ErrorKind::NoSpace);
    store.fail_from(None);
    assert_eq!(manifest.append(&change(0)).unwrap_err().kind(), ErrorKind::Poisoned);
    let Recovered { contents, .. } = Manifest::recover(&store, TREE).unwrap();
    assert!(histories(1).contains(&contents), "with the edit or without");
    create(&store, 6, TREE, &snapshot(), identity(2)).unwrap();
    assert_eq!(Manifest::recover(&store, TREE).unwrap(), recovered(6, &histories(0)[0]));
}

#[test]
fn every_flip_is_an_error_or_without_effect() {
    let store = written(6);
    let right = Manifest::recover(&store, TREE).unwrap();
    for name in ["MANIFEST-000004", "CURRENT"] {
        let good = store.bytes(name).unwrap();
        // The last frame only says that everything before it was synced.
        let harmless = if name == "CURRENT" { good.len() } else { good.len() - 18 };
        for position in 0..good.len() {
            let mut bytes = good.clone();
            bytes[position] ^= 1 << (position % 8);
            store.put(name, bytes);
            match Manifest::recover(&store, TREE) {
                Ok(found) => {
                    assert_eq!(found, right, "{name} position {position}");
                    assert!(position >= harmless, "{name} position {position}");
                }
                Err(error) => {
                    let kind = error.kind();
                    assert!(matches!(kind, ErrorKind::Corruption | ErrorKind::Foreign), "{name} {position}: {error}");
                }
            }
        }
        store.put(name, good);
    }
}

#[test]
fn every_cut_is_an_error_or_an_earlier_state_whose_edit_was_not_acknowledged() {
    let store = written(6);
    let histories = histories(6);
    let good = store.bytes("MANIFEST-000004").unwrap();
    let mut seen = 0;
    for length in 0..good.len() {
        for zeros in [0, 600] {
            let mut bytes = good[..length].to_vec();
            bytes.resize(length + zeros, 0);
            store.put("MANIFEST-000004", bytes);
            match Manifest::recover(&store, TREE) {
                Ok(Recovered { contents, .. }) => {
                    let index = histories.iter().position(|known| *known == contents).unwrap();
                    // Zeros may complete an edit that ends with them.
                    assert!(index == seen || index == seen + 1, "length {length}");
                    if zeros == 0 {
                        seen = index;
                    }
                }
                // Shorter than what CURRENT says was synced.
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "length {length}: {error}");
                    assert_eq!(seen, 0);
                }
            }
        }
    }
    assert_eq!(seen, 6);
    store.remove("MANIFEST-000004").unwrap();
    match Manifest::recover(&store, TREE).unwrap_err() {
        Error::Corruption { file, found, .. } => assert_eq!((&*file, &*found), ("MANIFEST-000004", "no such file")),
        other => panic!("{other}"),
    }
}

#[test]
fn growth_is_measured_against_the_snapshot() {
    let store = MemoryStore::new();
    let mut manifest = create(&store, 1, TREE, &snapshot(), identity(7)).unwrap();
    assert!(!manifest.is_overgrown(0), "a new snapshot would be no shorter");
    let mut index = 0;
    while !manifest.is_overgrown(0) {
        manifest.append(&change(index)).unwrap();
        index += 1;
    }
    assert!(!manifest.is_overgrown(1 << 20));
    assert_eq!(store.bytes("MANIFEST-000001").unwrap().len() as u64, manifest.size_bytes());
    assert_eq!(Manifest::recover(&store, TREE).unwrap().contents, histories(index)[index as usize]);
}

/// Two databases made alike: manifests of one number, and neither is taken for the other.
#[test]
fn the_manifest_of_another_database_is_refused() {
    let store = written(3);
    let other = MemoryStore::new();
    let identity = ManifestIdentity { database: 100, salt: 78 };
    create(&other, 4, TREE, &snapshot(), identity).unwrap();
    store.put("MANIFEST-000004", other.bytes("MANIFEST-000004").unwrap());
    let error = Manifest::recover(&store, TREE).unwrap_err();
    assert!(matches!(&error, Error::Misplaced { file, .. } if file == "MANIFEST-000004"), "{error}");
}
