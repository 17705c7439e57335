//! Clauses about names.

use super::{Outcome, Setting, content, ensure, expect_file, text};
use crate::error::{StoreError, StoreErrorKind};
use crate::file_store::{CreateOptions, FileEntry, Location, OpenOptions};
use varve_media::IoContext;

fn kind<T>(result: Result<T, StoreError>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind())
}

fn entries(setting: &Setting<'_>) -> Result<Vec<(String, u64)>, String> {
    let entries: Vec<FileEntry> = setting.store.list().map_err(text)?;
    Ok(entries.into_iter().map(|entry| (entry.name, entry.size_bytes)).collect())
}

pub(super) fn empty_store(setting: &Setting<'_>) -> Outcome {
    let store = &setting.store;
    ensure!(entries(setting)?.is_empty(), "a new store lists files");
    ensure!(
        kind(store.open("a", &OpenOptions::default())) == Some(StoreErrorKind::NotFound),
        "open of a missing file is not NotFound"
    );
    ensure!(kind(store.remove("a")) == Some(StoreErrorKind::NotFound), "remove of a missing file is not NotFound");
    ensure!(kind(store.rename("a", "b")) == Some(StoreErrorKind::NotFound), "rename of a missing file is not NotFound");
    store.sync_names().map_err(text)?;
    ensure!(!store.name().is_empty(), "no name for messages");
    ensure!(store.properties().read_alignment_bytes >= 1, "a read alignment of 0");
    Ok(())
}

pub(super) fn odd_names(setting: &Setting<'_>) -> Outcome {
    let store = &setting.store;
    let long = "n".repeat(255);
    let odd = [
        "a",
        "A",
        ".",
        "..",
        "...",
        ".hidden",
        "a/b",
        "/",
        "//",
        "../up",
        "a b",
        "a\nb",
        "\\",
        "%",
        "%2F",
        "%25",
        "100%",
        "%new-0",
        "CON",
        "*?",
        "\u{fc}\u{4e2d}\u{1f40b}",
        "\u{1}",
        "-rf",
        "a.",
        " ",
        &long,
    ];
    let mut expected = Vec::new();
    for (number, name) in odd.iter().enumerate() {
        setting.write(name, number as u64, 10 + number as u64)?;
        expected.push(((*name).to_owned(), 10 + number as u64));
    }
    expected.sort();
    ensure!(entries(setting)? == expected, "list is {:?}", entries(setting)?);
    for (number, name) in odd.iter().enumerate() {
        setting.expect(name, number as u64, 10 + number as u64)?;
    }
    for name in odd {
        store.rename(name, "renamed").map_err(|error| format!("rename of {name:?}: {error}"))?;
        store.rename("renamed", name).map_err(|error| format!("rename to {name:?}: {error}"))?;
        store.remove(name).map_err(|error| format!("remove of {name:?}: {error}"))?;
    }
    ensure!(entries(setting)?.is_empty(), "names are left over");
    for name in ["", "a\0b", &"n".repeat(256), &"\u{fc}".repeat(128)] {
        let outcomes = [
            kind(store.create(name, &CreateOptions::default())),
            kind(store.open(name, &OpenOptions::default())),
            kind(store.rename(name, "x")),
            kind(store.remove(name)),
            kind(store.lock(name)),
        ];
        ensure!(
            outcomes.iter().all(|outcome| *outcome == Some(StoreErrorKind::InvalidRequest)),
            "{name:?} is not refused as InvalidRequest: {outcomes:?}"
        );
    }
    setting.write("x", 1, 1)?;
    ensure!(kind(store.rename("x", "")) == Some(StoreErrorKind::InvalidRequest), "rename to no name");
    setting.expect("x", 1, 1)
}

pub(super) fn list_is_sorted(setting: &Setting<'_>) -> Outcome {
    let mut random = setting.env.random("conformance list");
    let mut expected = Vec::new();
    let mut numbers: Vec<u64> = (0..120).collect();
    random.shuffle(&mut numbers);
    for number in numbers {
        // Not in the order of numbers: "10" comes before "9".
        let name = number.to_string();
        setting.write(&name, number, number)?;
        expected.push((name, number));
    }
    expected.sort();
    ensure!(entries(setting)? == expected, "list is not sorted by name, or sizes are wrong");
    Ok(())
}

pub(super) fn create_replaces(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    setting.write("a", 1, 5000)?;
    let old = store.open("a", &OpenOptions::default()).map_err(text)?;
    let mut writer = store.create("a", &CreateOptions::default()).map_err(text)?;
    let new = store.open("a", &OpenOptions::default()).map_err(text)?;
    ensure!(new.size_bytes() == 0, "a created file has {} bytes of the old one", new.size_bytes());
    ensure!(entries(setting)? == [("a".to_owned(), 0)], "list shows {:?}", entries(setting)?);
    writer.append(&content(2, 0, 9000), &context).map_err(text)?;
    writer.flush(&context).map_err(text)?;
    setting.expect("a", 2, 9000)?;
    ensure!(old.size_bytes() == 5000, "the replaced file has {} bytes", old.size_bytes());
    let mut data = vec![0; 5000];
    old.read_at(0, &mut data, &context).map_err(|error| format!("a reader of a replaced file: {error}"))?;
    ensure!(data == content(1, 0, 5000), "a reader of a replaced file sees other bytes");
    writer.sync(&context).map_err(text)?;
    writer.finish(&context).map_err(text)?;
    // And once more while the space of the first is reused.
    for round in 3..10 {
        setting.write("a", round, 5000)?;
    }
    old.read_at(0, &mut data, &context).map_err(text)?;
    ensure!(data == content(1, 0, 5000), "the space of a replaced file was reused under its reader");
    setting.expect("a", 9, 5000)
}

pub(super) fn rename_replaces(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    setting.write("from", 1, 3000)?;
    setting.write("to", 2, 4000)?;
    let from = store.open("from", &OpenOptions::default()).map_err(text)?;
    let to = store.open("to", &OpenOptions::default()).map_err(text)?;
    store.rename("from", "to").map_err(text)?;
    ensure!(entries(setting)? == [("to".to_owned(), 3000)], "after a rename: {:?}", entries(setting)?);
    setting.expect("to", 1, 3000)?;
    let (mut from_data, mut to_data) = (vec![0; 3000], vec![0; 4000]);
    from.read_at(0, &mut from_data, &context).map_err(text)?;
    to.read_at(0, &mut to_data, &context).map_err(text)?;
    ensure!(from_data == content(1, 0, 3000), "a reader of the renamed file sees other bytes");
    ensure!(to_data == content(2, 0, 4000), "a reader of the replaced file sees other bytes");
    store.rename("to", "to").map_err(|error| format!("rename onto itself: {error}"))?;
    setting.expect("to", 1, 3000)?;
    ensure!(kind(store.rename("gone", "to")) == Some(StoreErrorKind::NotFound), "rename of a missing file");
    setting.expect("to", 1, 3000)?;
    store.rename("to", "elsewhere").map_err(text)?;
    ensure!(kind(store.open("to", &OpenOptions::default())) == Some(StoreErrorKind::NotFound), "the old name stays");
    setting.expect("elsewhere", 1, 3000)
}

pub(super) fn rename_while_written(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    let mut writer = store.create("a", &CreateOptions::default()).map_err(text)?;
    writer.append(&content(1, 0, 2000), &context).map_err(text)?;
    writer.flush(&context).map_err(text)?;
    store.rename("a", "b").map_err(text)?;
    writer.append(&content(1, 2000, 3000), &context).map_err(text)?;
    writer.sync(&context).map_err(text)?;
    setting.expect("b", 1, 5000)?;
    // Another file takes the old name; the writer goes on with its own.
    setting.write("a", 2, 100)?;
    writer.append(&content(1, 5000, 10), &context).map_err(text)?;
    writer.finish(&context).map_err(text)?;
    setting.expect("b", 1, 5010)?;
    setting.expect("a", 2, 100)
}

pub(super) fn remove(setting: &Setting<'_>) -> Outcome {
    let (store, context) = (&setting.store, IoContext::default());
    setting.write("a", 1, 100_000)?;
    let reader = store.open("a", &OpenOptions::default()).map_err(text)?;
    store.remove("a").map_err(text)?;
    ensure!(entries(setting)?.is_empty(), "a removed file is listed");
    ensure!(kind(store.open("a", &OpenOptions::default())) == Some(StoreErrorKind::NotFound), "it can be opened");
    ensure!(kind(store.remove("a")) == Some(StoreErrorKind::NotFound), "it can be removed again");
    store.sync_names().map_err(text)?;
    for round in 2..8 {
        setting.write("b", round, 100_000)?;
    }
    let mut data = vec![0; 100_000];
    reader.read_at(0, &mut data, &context).map_err(|error| format!("a reader of a removed file: {error}"))?;
    ensure!(data == content(1, 0, 100_000), "the space of a removed file was reused under its reader");
    // A writer whose file lost its name brings nothing back.
    let mut writer = store.create("c", &CreateOptions::default()).map_err(text)?;
    writer.append(&content(9, 0, 5000), &context).map_err(text)?;
    writer.flush(&context).map_err(text)?;
    store.remove("c").map_err(text)?;
    writer.append(&content(9, 5000, 5000), &context).map_err(text)?;
    writer.sync(&context).map_err(text)?;
    writer.finish(&context).map_err(text)?;
    ensure!(entries(setting)? == [("b".to_owned(), 100_000)], "a removed file came back: {:?}", entries(setting)?);
    drop(reader);
    expect_file(&*setting.store, "b", 7, 100_000)
}

pub(super) fn lock(setting: &Setting<'_>) -> Outcome {
    let store = &setting.store;
    let held = store.lock("LOCK").map_err(text)?;
    ensure!(kind(store.lock("LOCK")) == Some(StoreErrorKind::Locked), "a held lock is given again");
    let other = store.lock("OTHER").map_err(|error| format!("a lock of another name: {error}"))?;
    drop(held);
    let again = store.lock("LOCK").map_err(|error| format!("a released lock: {error}"))?;
    drop((other, again));
    Ok(())
}

pub(super) fn share(setting: &Setting<'_>) -> Outcome {
    setting.write("a", 1, 10)?;
    let shared = setting.store.share("a", &Location::Private, "b").map_err(text)?;
    ensure!(!shared, "a file was shared with nowhere");
    setting.expect("a", 1, 10)
}
