//! What is wrong on the command line, in a file or in the input is refused by name, and never taken in silence.

use super::{Place, expect, expect_with, failure, run_with};

#[test]
fn geometries_too_fine_for_any_table_are_refused_before_anything_is_allocated() {
    for (spec, named) in [
        ("smr:1TiB?band=4KiB", "band"),
        ("smr:16TiB?band=1MiB", "band"),
        ("zns:8TiB?zone=8KiB", "zone"),
        ("zns:8TiB?zone=64MiB,zone-capacity=4KiB", "zone-capacity"),
        ("imr:200TiB?track=4KiB", "track"),
        ("imr:255TiB?track=8KiB,ratio=8", "track"),
    ] {
        for command in [&["put", spec, "k", "v"][..], &["media", "describe", spec], &["bench", spec, "fillseq"]] {
            let message = failure(2, command);
            assert!(message.contains("at most") && message.contains(named), "{command:?}: {message}");
        }
    }
}

#[test]
fn devices_larger_than_any_are_refused() {
    for spec in
        ["disk:999TiB", "ram:999TiB", "ssd:9PiB", "imr:999TiB", "smr:999TiB?band=1GiB", "zns:999TiB", "nvme:8191PiB"]
    {
        let message = failure(2, &["media", "describe", spec]);
        assert!(message.contains("at most 256TiB"), "{spec}: {message}");
        assert!(message.contains("position"), "{spec}: {message}");
    }
    expect(0, &["media", "describe", "disk:256TiB"]);
}

#[test]
fn sizes_no_machine_has_are_refused() {
    let place = Place::new();
    let db = &place.db();
    for option in [
        "write_buffer_size",
        "block_cache_capacity",
        "target_file_size_base",
        "max_manifest_file_size",
        "max_bytes_for_level_base",
        "compaction_buffer_size",
    ] {
        let message = failure(2, &["put", db, "k", "v", "-o", &format!("{option}=999TiB")]);
        assert!(message.contains(option) && message.contains("at most"), "{option}: {message}");
    }
    for (arguments, named) in [
        (&["load", db, "--batch", "999TiB"][..], "--batch"),
        (&["load", db, "--line-limit", "999TiB"], "--line-limit"),
        (&["bench", "ram:1GiB", "--value-size", "999TiB"], "--value-size"),
        (&["media", "probe", "ram:1GiB", "--block", "999TiB"], "--block"),
        (&["media", "probe", "ram:1GiB", "--region", "999TiB"], "--region"),
        (&["media", "probe", "ram:1GiB", "--depth", "4294967295"], "--depth"),
        (&["bench", "ram:1GiB", "--key-size", "999999999"], "--key-size"),
        (&["bench", "ram:1GiB", "--batch-size", "99999999999999"], "--batch-size"),
    ] {
        let message = failure(2, arguments);
        assert!(message.contains(named) && message.contains("at most"), "{arguments:?}: {message}");
    }
    assert!(!std::path::Path::new(db).exists());
}

#[test]
fn more_threads_than_can_be_started_are_an_error() {
    for threads in ["999999", "4097", "18446744073709551615"] {
        let message = failure(2, &["bench", "ram:1GiB", "fillseq", "-n", "10", "-t", threads]);
        assert!(message.contains("--threads") && message.contains("at most 4096"), "{message}");
    }
}

#[test]
fn ranges_that_end_before_they_begin_are_refused() {
    let place = Place::new();
    let db = &place.db();
    expect(0, &["put", db, "b", "1"]);
    for command in ["scan", "dump", "compact"] {
        let message = failure(2, &[command, db, "--from", "m", "--to", "a"]);
        assert!(message.contains("--from") && message.contains("'m'") && message.contains("'a'"), "{message}");
    }
    let message = failure(2, &["scan", db, "--from", "ff", "--to", "00", "-e", "hex"]);
    assert!(message.contains("'ff'") && message.contains("'00'"), "{message}");
    assert_eq!(expect(0, &["scan", db, "--from", "b", "--to", "b"]), "");
}

#[test]
fn fields_of_json_lines_that_mean_nothing_are_refused() {
    let place = Place::new();
    let db = &place.db();
    for (line, expected) in [
        (r#"{"key": "a", "valeu": "b"}"#, "'valeu'"),
        (r#"{"key": "a", "value": "b", "ttl": 5}"#, "'ttl'"),
        (r#"{"key": "a", "value": "b", "value": "c"}"#, "'value' twice"),
        (r#"{"key": "a", "key_hex": "61", "value": "b"}"#, "found two"),
        (r#"{"key": "a", "value": null}"#, "found null"),
        (r#"{"key": "a", "value": "b"} {"key": "c", "value": "d"}"#, "trailing"),
        (r#"["a", "b"]"#, "JSON object"),
    ] {
        let output = run_with(&["load", db, "-f", "jsonl"], line.as_bytes());
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {message}");
        assert!(message.contains("standard input:1:") && message.contains(expected), "{line}: {message}");
    }
    assert_eq!(expect(0, &["scan", db]), "");
    expect_with(0, &["load", db, "-f", "jsonl"], br#"{"key": "a", "value_hex": "62"}"#);
    assert_eq!(expect(0, &["scan", db]), "a\tb\n");
}

#[test]
fn a_configuration_of_another_medium_is_refused() {
    let place = Place::new();
    let (db, config) = (&place.db(), &place.path("varve.toml"));
    std::fs::write(config, format!("[media]\nspec = \"file:{}\"\n", place.path("other"))).unwrap();
    for command in [&["put", db, "k", "v"][..], &["bench", db, "fillseq", "-n", "1"], &["scan", db]] {
        let message = failure(2, &[command, &["--config", config]].concat());
        assert!(message.contains("[media] spec") && message.contains("other") && message.contains(db), "{message}");
    }
    assert!(!std::path::Path::new(db).exists());
    // The same medium in another spelling is no contradiction.
    std::fs::write(config, format!("[media]\nspec = \"{db}\"\n")).unwrap();
    expect(0, &["put", &format!("file:{db}"), "k", "v", "--config", config]);
}
