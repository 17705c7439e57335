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

#[test]
fn names_that_are_not_there_suggest_the_nearest() {
    let place = Place::new();
    let (db, config) = (&place.db(), &place.path("varve.toml"));
    for (arguments, expected) in [
        (&["put", "dsk:10GB", "k", "v"][..], "did you mean 'disk:'?"),
        (&["put", "disk:10GB?modle=st500dm002", "k", "v"], "did you mean 'model'?"),
        (&["put", "disk:10GB?model=st500dm020", "k", "v"], "did you mean 'st500dm002'?"),
        (&["put", "disk:10GB?backing=compresed", "k", "v"], "did you mean 'compressed'?"),
        (&["put", "disk:10GB?store=exent", "k", "v"], "did you mean 'extent'?"),
        (&["put", "disk:10GB?logs=(nvm:1GB)", "k", "v"], "did you mean 'nvme:'?"),
        (&["put", db, "k", "v", "-o", "write_bufer_size=1MiB"], "did you mean 'write_buffer_size'?"),
        (&["put", db, "k", "v", "-o", "compression=lz5"], "did you mean 'lz4'?"),
        (&["put", db, "k", "v", "--no-snyc"], "'--no-sync'"),
        (&["bench", "ram:1GiB", "readrandm"], "did you mean 'readrandom'?"),
        (&["lab", "run", "kvimr/fig55"], "kvimr/fig5"),
        (&["comapct", db], "'compact'"),
    ] {
        let message = failure(2, arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    for (text, place) in [
        (
            "[options]\nblock_size = \"8KiB\"\nwrite_bufer_size = \"1MiB\"\n",
            ":3:1: there is no such option: 'write_bufer_size'",
        ),
        ("[media]\n  spce = \"ram:1GiB\"\n", ":2:3: there is no such name: 'spce'; did you mean 'spec'?"),
        ("[media]\nspec = \"dsk:1GiB\"\n", ":2:8: spec 'dsk:1GiB' at position 0"),
        ("[options]\ncompression = \"lz5\"\n", ":2:15: no such word: 'lz5'; did you mean 'lz4'?"),
        ("[options\n", ":1:"),
    ] {
        std::fs::write(config, text).unwrap();
        let message = failure(2, &["put", db, "k", "v", "--config", config]);
        assert!(message.contains(&format!("{config}{place}")), "{text}: {message}");
    }
}

#[test]
fn bare_kinds_are_refused_with_the_spec_that_was_meant() {
    let place = Place::new();
    for (spec, meant) in [
        ("imr", "imr:100GB"),
        ("disk", "disk:"),
        ("zns", "zns:21GiB"),
        ("ram", "ram:1GiB"),
        ("disk?model=st500dm002", "disk:"),
        ("DISK:10GB", "disk:"),
        ("Smr", "smr:8TiB"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["put", spec, "k", "v"])
            .current_dir(place.directory.path())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{spec}: {message}");
        assert!(message.contains(meant) && message.contains(&format!("./{spec}")), "{spec}: {message}");
    }
    assert!(failure(2, &["put", "disk:1GB?logs=ssd", "k", "v"]).contains("a medium"));
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 0);
    // One that is meant for a path says so.
    let path = place.path("imr");
    expect(0, &["put", &path, "k", "v"]);
}

#[test]
fn a_directory_full_of_other_things_is_not_written_into_unasked() {
    let place = Place::new();
    let documents = &place.path("documents");
    std::fs::create_dir(documents).unwrap();
    for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
        std::fs::write(format!("{documents}/{name}"), "text").unwrap();
    }
    let (source, tree) = (&place.db(), &place.path("tree"));
    expect(0, &["put", source, "k", "v"]);
    std::fs::create_dir(tree).unwrap();
    for command in [
        &["put", documents, "k", "v"][..],
        &["load", documents],
        &["import-tree", documents, tree],
        &["bench", documents, "fillseq", "-n", "10"],
        &["checkpoint", source, documents],
        &["put", documents, "k", "v", "--json"],
    ] {
        let message = failure(2, command);
        assert!(message.contains("a.txt, b.txt, c.txt and more"), "{command:?}: {message}");
        assert!(message.contains("--allow-non-empty"), "{command:?}: {message}");
        assert_eq!(std::fs::read_dir(documents).unwrap().count(), 4, "{command:?}");
    }
    expect(0, &["put", documents, "k", "v", "--allow-non-empty"]);
    // Now there is a database, and nothing to ask.
    expect(0, &["put", documents, "k", "w"]);
    assert_eq!(expect(0, &["get", documents, "k"]), "w");
    assert_eq!(std::fs::read_to_string(format!("{documents}/a.txt")).unwrap(), "text");
    // An empty directory, and a disk's own folder in one, hold nothing.
    let empty = &place.path("empty");
    std::fs::create_dir_all(format!("{empty}/lost+found")).unwrap();
    expect(0, &["put", empty, "k", "v"]);
}

#[test]
fn benchmarks_that_fit_in_memory_say_so() {
    let text = expect(0, &["bench", "disk:1GB", "fillrandom", "readrandom", "-n", "2000"]);
    assert!(text.contains("note: ") && text.contains("fit in a memtable (64.0 MiB)"), "{text}");
    let small =
        ["-o", "write_buffer_size=64KiB", "-o", "block_cache_capacity=64KiB", "-o", "target_file_size_base=64KiB"];
    let text = expect(0, &[&["bench", "disk:1GB", "fillrandom", "-n", "2000"][..], &small].concat());
    assert!(!text.contains("fit in"), "{text}");
}

#[test]
fn scales_that_are_too_small_say_what_the_smallest_is() {
    for (arguments, smallest) in [
        (&["media", "describe", "imr:10GB?scale=1/100000"][..], "1/512"),
        (&["media", "describe", "smr:10GB?scale=1/1000000"], "1/20480"),
        (&["media", "describe", "smr:10GB?band=8MiB,scale=1/1000000"], "1/2048"),
        (&["media", "describe", "zns:10GB?zone=4MiB,scale=1/1000000"], "1/1024"),
        (&["media", "describe", "disk:4MiB?scale=1/100000000000"], "1/1024"),
        (&["lab", "run", "kvimr/fig5a", "--scale", "1/1000000"], "1/512"),
        (&["lab", "run", "smrdb/fig8", "--scale", "1/1000000"], "1/100000"),
        (&["lab", "run", "smrdb/fig10", "--scale", "1/1000000"], "1/20480"),
        (&["lab", "run", "ycsb/disk", "--scale", "1/1000000"], "1/65536"),
        (&["lab", "map", "imr", "--scale", "1/1024", "--out", "/nowhere/x.html"], "1/512"),
        (&["lab", "map", "smr", "--scale", "1/1000000", "--out", "/nowhere/x.html"], "1/20480"),
        (&["lab", "map", "hybrid", "--scale", "1/16384", "--out", "/nowhere/x.html"], "1/8192"),
    ] {
        let message = failure(2, arguments);
        assert!(message.contains(&format!("{smallest} is the smallest")), "{arguments:?}: {message}");
    }
    // The smallest one is taken.
    expect(0, &["media", "describe", "imr:10GB?scale=1/512"]);
    expect(0, &["media", "describe", "smr:10GB?scale=1/20480"]);
}
