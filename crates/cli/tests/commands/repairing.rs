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

/// It ended with 0, and said that nothing was damaged.
#[test]
fn a_log_that_is_lost_ends_a_check_with_4_and_a_repair_with_1() {
    for how in ["empty", "missing", "zeroed"] {
        let place = Place::new();
        let db = &place.db();
        database(db);
        // The oldest log holds a write; the one behind it says how long it is.
        let log = contents(db).into_keys().find(|name| name.ends_with(".log")).expect("a log");
        let path = Path::new(db).join(&log);
        match how {
            "empty" => std::fs::write(&path, b"").unwrap(),
            "zeroed" => std::fs::write(&path, vec![0; std::fs::metadata(&path).unwrap().len() as usize]).unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
        assert!(failure(4, &["check", db]).contains(&log), "{how}");
        let plan = expect(1, &["repair", db, "--dry-run"]);
        assert!(plan.contains("error: log-lost: ") && plan.contains(&log), "{how}: {plan}");
        let said = expect(1, &["repair", db]);
        assert!(said.contains("log-lost: ") && said.contains("keys-may-be-stale: "), "{how}: {said}");
        assert_eq!(expect(0, &["get", db, "key0007"]), "value 1 of 7", "{how}");
        assert_eq!(expect(0, &["check", db]), "clean\n");
    }
}

/// Every data block is as it was; the whole table was given up.
#[test]
fn damage_to_the_end_of_a_table_costs_nothing() {
    for how in ["padded", "footer", "cut"] {
        let place = Place::new();
        let db = &place.db();
        database(db);
        let table = table_of(db);
        let path = Path::new(db).join(&table);
        let mut bytes = std::fs::read(&path).unwrap();
        let length = bytes.len();
        match how {
            "padded" => bytes.extend([0; 4096]),
            "footer" => bytes[length - 1] ^= 4,
            _ => bytes.truncate(length - 80),
        }
        std::fs::write(&path, bytes).unwrap();
        let said = expect(1, &["repair", db]);
        assert!(said.contains("table-damaged: ") && !said.contains("keys-may-be-stale"), "{how}: {said}");
        assert!(said.contains("now 401 entries"), "{how}: {said}");
        assert_eq!(expect(0, &["get", db, "key0399"]), "value 1 of 399");
        assert_eq!(expect(0, &["check", db]), "clean\n");
    }
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

/// Every table of a full device is damaged, and there is not the space to write them again.
#[test]
fn a_repair_without_space_changes_nothing_and_says_so() {
    const MARK: &[u8] = b"a value of this test, ";
    let place = Place::new();
    let image = place.path("image");
    let spec = &format!("disk:8MiB?backing=file:{image},store=extent");
    let value = String::from_utf8(MARK.repeat(20)).unwrap();
    let mut numbers = 0..;
    for pairs in [1000, 100] {
        let is_taken = |lines: String| {
            let output = run_with(&["load", spec, "-"], lines.as_bytes());
            let said = String::from_utf8_lossy(&output.stderr);
            assert!([Some(0), Some(7)].contains(&output.status.code()), "{said}");
            output.status.success()
        };
        let mut line = || format!("key{:06}\t{value}\n", numbers.next().unwrap_or(0));
        while is_taken((0..pairs).map(|_| line()).collect()) {}
    }
    // What the log holds goes to tables.
    expect(0, &["compact", spec]);
    let expected = expect(0, &["scan", spec, "--count"]);

    let mut bytes = std::fs::read(&image).unwrap();
    let places: Vec<usize> = (0..bytes.len() - MARK.len()).filter(|&place| bytes[place..].starts_with(MARK)).collect();
    assert!(places.len() > 50_000, "{} marks", places.len());
    // A few to a table of 64 KiB.
    places.iter().step_by(1000).for_each(|&place| bytes[place] ^= 0x20);
    std::fs::write(&image, &bytes).unwrap();

    let plan = expect(7, &["repair", spec, "--dry-run"]);
    assert!(plan.contains("it would not fit, and would change nothing"), "{plan}");
    let plan: serde_json::Value = serde_json::from_str(&expect(7, &["--json", "repair", spec, "--dry-run"])).unwrap();
    let space = &plan["space"];
    assert_eq!(plan["fits"], false);
    assert!(space["needed_bytes"].as_u64() > space["available_bytes"].as_u64(), "{space}");
    assert!(!plan["findings"].as_array().expect("a list").is_empty());
    assert_eq!(std::fs::read(&image).unwrap(), bytes, "a dry run changed something");
    failure(7, &["repair", spec]);

    // As it was: with the damage taken back, everything is there.
    let mut after = std::fs::read(&image).unwrap();
    places.iter().step_by(1000).for_each(|&place| after[place] ^= 0x20);
    std::fs::write(&image, after).unwrap();
    assert_eq!(expect(0, &["scan", spec, "--count"]), expected);
    expect(0, &["check", spec]);
}
