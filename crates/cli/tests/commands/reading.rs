//! Commands that read change nothing of what they read, and say what they counted.

use super::{Place, expect, expect_with, failure, json, run_with};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Everything below a path but the times of reading.
fn picture(path: &Path) -> BTreeMap<String, (Vec<i64>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let numbers = [metadata.ino() as i64, metadata.mode().into(), metadata.nlink() as i64, metadata.len() as i64];
        let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
        let mut bytes = Vec::new();
        if metadata.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            bytes = std::fs::read(&path).unwrap();
        }
        found.insert(path.display().to_string(), ([numbers, times].concat(), bytes));
    }
    found
}

#[test]
fn commands_that_read_change_no_byte_and_no_time() {
    let place = Place::new();
    let image = format!("disk:64MiB?backing=file:{}", place.path("image"));
    for spec in [&place.db(), &image] {
        let lines: String = (0..500).map(|number| format!("key{number:03}\t{number}\n")).collect();
        expect_with(0, &["load", spec, "-"], lines.as_bytes());
        // What is written last stands in the log.
        expect(0, &["put", spec, "last", "value"]);
        let before = picture(place.directory.path());
        for (code, command) in [
            (0, &["get", spec, "last"][..]),
            (1, &["get", spec, "absent"]),
            (0, &["scan", spec, "--limit", "7"]),
            (0, &["dump", spec]),
            (0, &["stats", spec]),
            (0, &["stats", spec, "--json"]),
            (0, &["stats", spec, "--property", "varve.stats"]),
            (0, &["stats", spec, "--since-creation"]),
            (0, &["check", spec]),
            (0, &["media", "inspect", spec]),
        ] {
            let output = run_with(command, b"");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "varve {command:?}\n{errors}");
            let after = picture(place.directory.path());
            for (path, found) in &after {
                let is_as_before = before.get(path) == Some(found);
                assert!(is_as_before, "varve {command:?} changed {path}: {:?}", found.0);
            }
            assert_eq!(before.len(), after.len(), "varve {command:?} removed a file");
        }
        assert_eq!(expect(0, &["dump", spec]).lines().count(), 501, "{spec}");
    }
}

#[test]
fn stats_says_since_when_it_counts() {
    let place = Place::new();
    let db = &place.db();
    expect(0, &["put", db, "key", "value"]);
    let text = expect(0, &["stats", db]);
    assert!(text.contains("since this opening"), "{text}");
    assert_eq!(json(&["stats", db])["counters_since"], "opening");
    // The put was before.
    assert_eq!(json(&["stats", db])["statistics"]["counters"]["user_written_entries"], 0);
}

#[test]
fn stats_since_creation_come_from_the_database() {
    let place = Place::new();
    let db = &place.db();
    let totals = || json(&["stats", db, "--since-creation"]);
    expect(0, &["put", db, "key", "value"]);
    let first = totals();
    assert_eq!((&first["counters_since"], &first["last_sequence"]), (&"creation".into(), &1.into()));
    assert_eq!(first["totals"]["flush_jobs"], 0, "what was put is in the log: {first}");
    // This opening makes a table of the log, and then a second one, and one of both.
    expect(0, &["put", db, "key", "other"]);
    expect(0, &["compact", db]);
    let then = totals();
    for (name, value) in [
        ("flush_jobs", 2),
        ("flush_user_entries", 2),
        ("flush_user_bytes", 16),
        ("flush_written_tables", 2),
        ("compactions", 1),
        ("compaction_read_tables", 2),
        ("compaction_written_tables", 1),
    ] {
        assert_eq!(then["totals"][name], value, "{name}: {then}");
    }
    assert_eq!(totals(), then, "looking counts nothing");
    let text = expect(0, &["stats", db, "--since-creation"]);
    assert!(text.starts_with("counted since the database was created:\n"), "{text}");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect();
    let (flushes, compactions): (Vec<&str>, Vec<&str>) = (line("flushes"), line("compactions"));
    assert_eq!(flushes[..5], ["flushes", "2", "-", "16", "B"], "{text}");
    assert_eq!(compactions[..3], ["compactions", "1", "2"], "{text}");
    assert!(text.contains("2 entries flushed, the newest sequence number is 2\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    // A checkpoint is a new database.
    let copy = &place.path("copy");
    expect(0, &["checkpoint", db, copy]);
    assert_eq!(json(&["stats", copy, "--since-creation"])["totals"]["flush_jobs"], 0);
    assert!(
        failure(2, &["stats", db, "--since-creation", "--property", "varve.stats"]).contains("cannot be used with")
    );
    // A repair that cannot read the manifest knows nothing of what was before.
    for entry in std::fs::read_dir(db).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("MANIFEST") {
            std::fs::write(entry.path(), [7; 100]).unwrap();
        }
    }
    run_with(&["repair", db], b"");
    assert_eq!(totals()["totals"], serde_json::Value::Null);
    assert!(expect(0, &["stats", db, "--since-creation"]).contains("is not known: its manifest was made by a"));
}
