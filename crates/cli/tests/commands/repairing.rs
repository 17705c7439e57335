//! That `check` and `repair` end as their help says, and say what they did.

use super::{Place, expect, expect_with, failure, json, run_with};
use std::collections::BTreeMap;
use std::path::Path;

/// Files of a directory with their bytes.
fn contents(path: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(path).unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// A database with two tables and a log.
fn database(db: &str) {
    for part in 0..2 {
        let lines: Vec<String> = (0..400).map(|number| format!("key{number:04}\tvalue {part} of {number}\n")).collect();
        expect_with(0, &["load", db, "-"], lines.concat().as_bytes());
    }
    expect(0, &["put", db, "last", "in the log"]);
}

fn table_of(db: &str) -> String {
    contents(db).into_keys().find(|name| name.ends_with(".sst")).expect("a table")
}

fn damage(db: &str, name: &str) {
    let path = Path::new(db).join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.len() / 3;
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

/// Nothing of what was there before is gone: it has its name still, or one that says it was set aside.
fn assert_kept(db: &str, before: &BTreeMap<String, Vec<u8>>) {
    let after = contents(db);
    for (name, bytes) in before.iter().filter(|(name, _)| !["LOCK", "OPTIONS"].contains(&name.as_str())) {
        let is_kept = after.iter().any(|(other, found)| other.ends_with(name.as_str()) && found == bytes);
        assert!(is_kept, "'{name}' is gone: {:?}", after.keys());
    }
}

#[test]
fn the_help_names_the_codes() {
    let help = expect(0, &["repair", "--help"]);
    for said in ["Exit code 0:", "1:", "3:", "5:", "6:", "--dry-run", "--discard-originals", "damaged-", "replaced-"] {
        assert!(help.contains(said), "{said}: {help}");
    }
    let help = expect(0, &["check", "--help"]);
    for said in ["Exit code 0:", "1:", "3:", "4:", "6:"] {
        assert!(help.contains(said), "{said}: {help}");
    }
}

#[test]
fn a_sound_database_ends_with_0_and_keeps_its_originals() {
    let place = Place::new();
    let db = &place.db();
    database(db);
    assert_eq!(expect(0, &["check", db]), "clean\n");
    let before = contents(db);
    let plan = expect(0, &["repair", db, "--dry-run"]);
    assert!(plan.contains("sound; its entries go into fresh tables, and it is set aside"), "{plan}");
    assert_eq!(contents(db), before, "a plan changes nothing");
    let said = expect(0, &["repair", db]);
    assert!(said.contains("sound, 0 salvaged in part, 0 lost") && said.contains("replaced-"), "{said}");
    assert!(said.contains("they can be deleted when"), "{said}");
    assert_kept(db, &before);
    assert_eq!(expect(0, &["get", db, "last"]), "in the log");
    assert_eq!(expect(0, &["check", db]), "clean\n");
    assert_eq!(json(&["repair", db, "--discard-originals"])["findings"], serde_json::json!([]));
    assert!(!contents(db).keys().any(|name| name.starts_with("replaced-")), "{:?}", contents(db).keys());
    assert_eq!(expect(0, &["get", db, "key0007"]), "value 1 of 7");
}

#[test]
fn a_damaged_database_ends_with_1_and_what_can_be_read_is_there() {
    let place = Place::new();
    let db = &place.db();
    database(db);
    let table = table_of(db);
    damage(db, &table);
    let before = contents(db);
    let said = expect(1, &["check", db]);
    assert!(said.contains("error: table-block: ") && said.contains("damaged; 'varve repair' salvages"), "{said}");
    let plan = expect(1, &["repair", db, "--dry-run"]);
    assert!(plan.contains(&format!("{table}: damaged; what can be read goes into fresh tables")), "{plan}");
    assert_eq!(contents(db), before, "a plan changes nothing");
    let said = expect(1, &["repair", db]);
    assert!(said.contains("1 salvaged in part") && said.contains(&format!("damaged-{table}")), "{said}");
    assert_kept(db, &before);
    assert_eq!(expect(0, &["get", db, "last"]), "in the log");
    assert_eq!(expect(0, &["check", db]), "clean\n");
    expect(0, &["repair", db, "--discard-originals"]);
    assert!(contents(db).contains_key(&format!("damaged-{table}")), "what was damaged is kept");
}

#[test]
fn a_database_too_damaged_to_be_opened_ends_a_check_with_4_and_is_repaired() {
    let place = Place::new();
    let db = &place.db();
    database(db);
    let manifest = contents(db).into_keys().find(|name| name.starts_with("MANIFEST")).expect("a manifest");
    damage(db, &manifest);
    let before = contents(db);
    let said = failure(4, &["check", db]);
    assert!(said.contains("too damaged to be opened and checked; 'varve repair' salvages what it can"), "{said}");
    assert_eq!(contents(db), before);
    let said = expect(1, &["repair", db]);
    assert!(said.contains("fatal: manifest-lost: "), "{said}");
    assert_kept(db, &before);
    assert_eq!(expect(0, &["get", db, "last"]), "in the log");
}

#[test]
fn what_is_not_ours_or_not_there_ends_with_6_and_stays_as_it_is() {
    let place = Place::new();
    let other = place.path("other");
    std::fs::create_dir(&other).unwrap();
    let table = [&[7; 900][..], &0x88e2_41b7_85f4_cff7_u64.to_le_bytes()].concat();
    for (name, bytes) in [("CURRENT", &b"MANIFEST-000005\n"[..]), ("000012.sst", &table), ("IDENTITY", b"8a6c")] {
        std::fs::write(Path::new(&other).join(name), bytes).unwrap();
    }
    let before = contents(&other);
    for command in [&["repair", &other][..], &["repair", &other, "--dry-run"]] {
        let said = failure(6, command);
        assert!(said.contains("LevelDB or RocksDB"), "{said}");
    }
    failure(6, &["check", &other]);
    assert_eq!(contents(&other), before);
    let nothing = &place.path("nothing");
    for command in [&["check", nothing][..], &["repair", nothing], &["repair", nothing, "--dry-run"]] {
        failure(6, command);
    }
    assert!(!Path::new(nothing).exists());
}

#[test]
fn one_in_use_ends_a_repair_with_5_and_is_checked_beside_its_writer() {
    let place = Place::new();
    let db = &place.db();
    database(db);
    let lock = std::fs::File::open(Path::new(db).join("LOCK")).unwrap();
    lock.lock().unwrap();
    let before = contents(db);
    assert!(failure(5, &["repair", db]).contains("locked by another process"));
    assert_eq!(contents(db), before);
    assert_eq!(expect(0, &["check", db]), "clean\n");
    drop(lock);
    expect(0, &["repair", db]);
}

/// A medium that fails is no damaged database: nothing is given up, and the next repair finds all.
#[test]
fn a_medium_that_fails_ends_with_3_and_loses_nothing() {
    let place = Place::new();
    let spec = &format!("ssd:64MiB?backing=file:{}", place.path("image"));
    database(spec);
    let mut failed = 0;
    for call in [1, 2, 4, 7, 11, 16, 22, 29, 37, 46, 56, 67] {
        for faults in [format!("read/io@{call}.."), format!("write/io@{call}.."), format!("sync/io@{call}..")] {
            let with = &format!("{spec},faults={faults}");
            let output = run_with(&["repair", with], b"");
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(3) => failed += 1,
                code => assert_eq!(code, Some(0), "{faults}: {said} {}", String::from_utf8_lossy(&output.stdout)),
            }
            if faults.starts_with("read") {
                let code = run_with(&["check", with], b"").status.code();
                assert!(matches!(code, Some(0 | 1 | 3)), "{faults}: {code:?}");
            }
            assert_eq!(expect(0, &["get", spec, "last"]), "in the log", "{faults}");
        }
    }
    assert!(failed > 5, "{failed} repairs failed");
    let said = expect(0, &["repair", spec, "--discard-originals"]);
    assert!(said.contains("now 401 entries"), "{said}");
    assert_eq!(expect(0, &["get", spec, "key0399"]), "value 1 of 399");
}
