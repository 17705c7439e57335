//! Options are listed, kept with the database, and shown.

use super::{Place, expect, failure, json};

#[test]
fn options_are_listed_with_default_unit_and_meaning() {
    let listed = json(&["options"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), varve::Options::ALL.len());
    let text = expect(0, &["options"]);
    for option in varve::Options::ALL {
        assert!(text.contains(&format!("{} = {}  ({})", option.name, option.default, option.unit)), "{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 98), "{text}");
    let one = expect(0, &["options", "write_buffer_size"]);
    assert!(one.starts_with("write_buffer_size = 64MiB  (bytes)\n    Memtable size"), "{one}");
    assert!(one.contains("On the medium: "), "{one}");
    assert!(failure(2, &["options", "write_bufer_size"]).contains("did you mean 'write_buffer_size'?"));
}

#[test]
fn effective_options_are_kept_with_the_database() {
    let place = Place::new();
    let db = &place.db();
    expect(0, &["put", db, "k", "v", "-o", "write_buffer_size=8MiB", "-o", "compression=lz4"]);
    let shown = expect(0, &["options", "--of", db]);
    assert!(shown.contains("write_buffer_size = 8MiB  (default 64MiB)\n"), "{shown}");
    assert!(shown.contains("compression = lz4  (default none)\n"), "{shown}");
    // What was unset has come to something.
    assert!(shown.contains("log_buffer_size = 0  (default unset)\n"), "{shown}");
    assert!(shown.contains("block_size = 4KiB\n"), "{shown}");
    let values = json(&["options", "--of", db, "write_buffer_size", "compaction_buffer_size"]);
    assert_eq!(values.to_string(), r#"{"compaction_buffer_size":null,"write_buffer_size":8388608}"#);
    // A later opening with others says so; the same ones write nothing.
    expect(0, &["put", db, "k", "w"]);
    assert!(expect(0, &["options", "--of", db]).contains("write_buffer_size = 64MiB\n"));
    let file = std::path::Path::new(db).join("OPTIONS");
    let written = std::fs::metadata(&file).unwrap().modified().unwrap();
    expect(0, &["put", db, "k", "x"]);
    assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written);
    // What is damaged is said, keeps nobody from the database, and is mended by the next opening for writing.
    std::fs::write(&file, "varve-options 1\nwrite_buffer_size = 1\ncrc32c 00000000\n").unwrap();
    assert!(failure(4, &["options", "--of", db]).contains("OPTIONS: expected 'crc32c "));
    assert_eq!(expect(0, &["get", db, "k"]), "x");
    expect(0, &["put", db, "k", "y"]);
    assert!(expect(0, &["options", "--of", db]).contains("write_buffer_size = 64MiB\n"));
    assert_eq!(expect(0, &["check", db]), "clean\n");
    assert_eq!(failure(6, &["options", "--of", &place.path("none")]).lines().count(), 1);
}

#[test]
fn what_a_medium_makes_of_options_is_kept_too() {
    let place = Place::new();
    let spec = &format!("smr:1GiB?band=4MiB,backing=file:{}", place.path("image"));
    expect(0, &["put", spec, "k", "v"]);
    let shown = expect(0, &["options", "--of", spec]);
    for name in ["write_buffer_size", "target_file_size_base", "log_buffer_size"] {
        assert!(shown.lines().any(|line| line.starts_with(name) && line.contains("(default ")), "{name}: {shown}");
    }
}
