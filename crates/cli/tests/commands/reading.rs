//! Commands that read change nothing of what they read, and say what they counted.

use super::{Place, expect, expect_with, json, run_with};
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
