//! What a repair does not touch, and that it does what its plan says.

use std::collections::BTreeMap;
use std::sync::Arc;
use varve_engine::{
    Db, Error, ErrorKind, Media, Options, RepairAction, WriteOptions, plan_repair, repair, repair_and_discard,
};
use varve_env::Env;
use varve_media::OsDirectory;
use varve_store::{PlainOptions, PlainStore};

type Contents = BTreeMap<String, Vec<u8>>;

struct Place {
    directory: tempfile::TempDir,
    env: Env,
}

impl Place {
    fn of(files: &[(&str, &[u8])]) -> Self {
        let place = Place { directory: tempfile::tempdir().expect("a place for files"), env: Env::sim(1) };
        for (name, bytes) in files {
            std::fs::write(place.directory.path().join(name), bytes).expect("write");
        }
        place
    }

    fn media(&self) -> Media {
        let directory = OsDirectory::open(self.directory.path()).expect("a directory");
        Media::of_files(Arc::new(PlainStore::open(&self.env, Arc::new(directory), PlainOptions::default())))
    }

    fn contents(&self) -> Contents {
        let entries = std::fs::read_dir(self.directory.path()).expect("list");
        entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                (entry.file_name().into_string().expect("a name"), std::fs::read(entry.path()).expect("read"))
            })
            .collect()
    }

    /// The errors of planning and of repairing, which change nothing.
    fn refused(&self) -> Error {
        let before = self.contents();
        let planned = plan_repair(&self.env, &self.media(), &options()).expect_err("a plan");
        let error = repair(&self.env, self.media(), options()).expect_err("a repair");
        assert_eq!(planned.to_string(), error.to_string());
        assert_eq!(self.contents(), before, "{error}");
        error
    }

    fn open(&self) -> Db {
        Db::open(&self.env, self.media(), options()).expect("open")
    }
}

fn options() -> Options {
    Options { disable_auto_compactions: true, ..Options::default() }
}

/// Two tables, and a log with writes.
fn database() -> Place {
    let place = Place::of(&[]);
    let db = place.open();
    for part in 0..3u8 {
        for number in 0..50u8 {
            db.put_with(&[b'k', number], &[part, number], &WriteOptions::default()).expect("put");
        }
        if part < 2 {
            db.flush().expect("flush");
        }
    }
    db.close().expect("close");
    place
}

fn assert_whole(place: &Place) {
    let db = place.open();
    for number in 0..50u8 {
        assert_eq!(db.get(&[b'k', number]).expect("get"), Some(vec![2, number].into()));
    }
    assert_eq!(db.check().expect("check").iter().filter(|found| found.code != "foreign-file").count(), 0);
    db.close().expect("close");
}

const ROCKSDB_MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
const LEVELDB_MAGIC: u64 = 0xdb47_7524_8b80_fb57;

/// It once said that the directory was one of RocksDB, replaced CURRENT, removed manifest and log, and renamed tables.
#[test]
fn databases_of_others_are_refused_and_left_as_they_are() {
    for magic in [ROCKSDB_MAGIC, LEVELDB_MAGIC] {
        let table = [&vec![7; 900][..], &magic.to_le_bytes()].concat();
        let all: [(&str, &[u8]); 6] = [
            ("CURRENT", b"MANIFEST-000005\n"),
            ("MANIFEST-000005", b"\x56\xf9\xb8\xf8\x1c\0\x01\x01\x1aleveldb.BytewiseComparator"),
            ("000004.log", b"\x9c\x11\x22\x33\x1e\0\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\x01\x03key\x05value"),
            ("000012.sst", &table),
            ("OPTIONS-000007", b"[Version]\n  rocksdb_version=8.9.1\n"),
            ("IDENTITY", b"8a6c-11ee"),
        ];
        // Whole, and with any one of its files missing.
        for without in 0..=all.len() {
            let files: Vec<(&str, &[u8])> =
                all.iter().enumerate().filter(|(number, _)| *number != without).map(|(_, file)| *file).collect();
            let place = Place::of(&files);
            let error = place.refused();
            assert_eq!(error.kind(), ErrorKind::Foreign, "without {without}: {error}");
            // Opening says the same of it; without CURRENT it once was a damaged database.
            let before = place.contents();
            for create_if_missing in [false, true] {
                let error = Db::open(&place.env, place.media(), Options { create_if_missing, ..options() });
                let error = error.err().expect("no database of ours");
                assert_eq!(error.kind(), ErrorKind::Foreign, "without {without}: {error}");
            }
            let after = place.contents().into_iter().filter(|(name, _)| name != "LOCK").collect::<Contents>();
            assert_eq!(after, before, "without {without}");
        }
    }
}

#[test]
fn directories_of_other_things_and_empty_ones_are_refused() {
    let other: [&[(&str, &[u8])]; 4] = [
        &[("holiday.jpg", b"\xff\xd8\xff"), ("notes.txt", b"milk")],
        &[("CURRENT", b"electricity")],
        &[("000001.log", b"Monday: nothing happened, as on all other days of this week and of the week before it")],
        &[("MANIFEST-000001", b"of a ship: 20 barrels, 3 cats and nothing else that would be worth the mention")],
    ];
    for files in other {
        assert_eq!(Place::of(files).refused().kind(), ErrorKind::Foreign, "{files:?}");
    }
    let nothing: [&[(&str, &[u8])]; 3] = [&[], &[("LOCK", b"")], &[("000001.log", &[0; 100])]];
    for files in nothing {
        assert_eq!(Place::of(files).refused().kind(), ErrorKind::NotFound, "{files:?}");
    }
}

#[test]
fn databases_of_other_versions_are_refused_and_left_as_they_are() {
    let place = database();
    let whole = place.contents();
    for (name, bytes) in &whole {
        for version in [1u8, 9] {
            let mut changed = bytes.clone();
            if name.ends_with(".log") || name.starts_with("MANIFEST") {
                changed[8] = version;
                let checksum = crc32c::crc32c(&changed[..60]);
                changed[60..64].copy_from_slice(&checksum.to_le_bytes());
            } else if name.ends_with(".sst") && version > 1 {
                let footer = changed.len() - 80;
                changed[footer + 56] = version;
                let checksum = crc32c::crc32c(&changed[footer..footer + 68]);
                changed[footer + 68..footer + 72].copy_from_slice(&checksum.to_le_bytes());
            } else if name == "CURRENT" {
                let text =
                    String::from_utf8(changed).expect("text").replace("current 2", &format!("current {version}"));
                let body = &text[..text.len() - "crc32c 00000000\n".len()];
                changed = format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes())).into_bytes();
            } else {
                continue;
            }
            std::fs::write(place.directory.path().join(name), &changed).expect("write");
            let error = place.refused();
            assert_eq!(error.kind(), ErrorKind::Foreign, "{name}: {error}");
            assert!(error.to_string().contains(name.as_str()), "{name}: {error}");
            assert!(error.to_string().contains(if version > 2 { "newer" } else { "older" }), "{name}: {error}");
            std::fs::write(place.directory.path().join(name), bytes).expect("write");
        }
    }
    assert_whole(&place);
}

/// What a plan says of each file is what becomes of it: set aside with its bytes, or in fresh tables.
#[test]
fn a_repair_does_what_its_plan_says_and_keeps_what_it_does_not_use() {
    let whole = database().contents();
    let names: Vec<&String> = whole.keys().filter(|name| *name != "LOCK").collect();
    for damaged in &names {
        let place = Place::of(&whole.iter().map(|(name, bytes)| (&**name, &**bytes)).collect::<Vec<_>>());
        let path = |name: &str| place.directory.path().join(name);
        let mut bytes = whole[*damaged].clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(path(damaged), &bytes).expect("write");
        // Tables that no manifest names, under a number that is to come and one that has been.
        let table = names.iter().find(|name| name.ends_with(".sst") && name != &damaged).expect("a table");
        for stray in ["000900.sst", "000901.tmp", "MANIFEST-000902"] {
            std::fs::write(path(stray), &whole[*table]).expect("write");
        }
        let before = place.contents();
        let plan = plan_repair(&place.env, &place.media(), &options()).expect("a plan");
        assert_eq!(place.contents(), before, "'{damaged}': a plan changes nothing");
        let mut planned: Vec<&str> = plan.steps.iter().map(|step| &*step.file).collect();
        planned.sort_unstable();
        let there: Vec<&str> = before.keys().map(|name| &**name).filter(|name| *name != "LOCK").collect();
        assert_eq!(planned, there, "'{damaged}': every file, once");
        let report = repair(&place.env, place.media(), options()).expect("repair");
        assert_eq!(report.findings, plan.findings);
        let after = place.contents();
        for step in &plan.steps {
            if matches!(step.action, RepairAction::SetAside | RepairAction::Salvage) {
                let kept = after.get(&format!("damaged-{}", step.file));
                assert_eq!(kept, before.get(&step.file), "'{damaged}': {step:?}");
                assert!(report.set_aside.contains(&format!("damaged-{}", step.file)), "{step:?}");
            } else {
                let name = format!("replaced-{}", step.file);
                assert_eq!(after.get(&name), before.get(&step.file), "'{damaged}': {step:?}");
                assert!(report.set_aside.contains(&name), "{step:?}");
            }
        }
        let db = place.open();
        for number in 0..50u8 {
            // The newest value is in the log only; of what a damaged file had an older one may be there.
            let found = db.get(&[b'k', number]).expect("get");
            assert!(found.is_none_or(|value| value[1] == number && value[0] < 3), "'{damaged}'");
        }
        db.close().expect("close");
        // Again, on what is sound: nothing is lost, and what was set aside stays.
        let kept = place.contents().into_iter().filter(|(name, _)| name.contains("ed-")).collect::<Vec<_>>();
        assert_eq!(repair(&place.env, place.media(), options()).expect("again").findings, []);
        let again = place.contents();
        assert!(kept.iter().all(|(name, bytes)| again.get(name) == Some(bytes)), "'{damaged}'");
    }
}

/// Swapped by name they are all there; one of another database is not taken for what it replaced.
#[test]
fn misplaced_tables_are_put_right_or_set_aside() {
    let place = database();
    let whole = place.contents();
    let tables: Vec<&String> = whole.keys().filter(|name| name.ends_with(".sst")).collect();
    let path = |name: &str| place.directory.path().join(name);
    assert!(tables.len() >= 2);
    std::fs::write(path(tables[0]), &whole[tables[1]]).expect("write");
    std::fs::write(path(tables[1]), &whole[tables[0]]).expect("write");
    let report = repair(&place.env, place.media(), options()).expect("repair");
    assert_eq!((report.tables_kept, report.tables_lost), (2, 0), "{report:?}");
    assert_whole(&place);

    let (place, other) = (database(), database());
    let (whole, theirs) = (place.contents(), other.contents());
    let table = whole.keys().find(|name| name.ends_with(".sst") && theirs.contains_key(*name)).expect("a table");
    std::fs::write(place.directory.path().join(table), &theirs[table]).expect("write");
    let report = repair(&place.env, place.media(), options()).expect("repair");
    assert_eq!((report.tables_kept, report.tables_lost), (1, 1), "{report:?}");
    assert_eq!(place.contents().get(&format!("damaged-{table}")), Some(&theirs[table]));
    assert_whole(&place);
}

/// What was counted stands in the manifest: a repair that can read it goes on from there, one that cannot says so for good.
#[test]
fn totals_outlive_a_repair_that_can_read_the_manifest() {
    let totals_after = |damage: &dyn Fn(&Place)| {
        let place = database();
        damage(&place);
        repair(&place.env, place.media(), options()).expect("repair");
        let db = place.open();
        let repaired = db.totals();
        db.put(b"later", b"value").expect("put");
        db.flush().expect("flush");
        assert_eq!(db.totals().map(|totals| totals.flush_jobs), repaired.map(|totals| totals.flush_jobs + 1));
        db.close().expect("close");
        repaired
    };
    let sound = totals_after(&|_| {}).expect("known");
    assert_eq!((sound.flush_jobs, sound.flush_user_entries, sound.flush_user_bytes), (3, 150, 600));
    assert_eq!((sound.compactions, sound.compaction_read_tables, sound.compaction_written_tables), (1, 3, 1));
    let without_manifest = totals_after(&|place| {
        let manifests = place.contents().into_keys().filter(|name| name.starts_with("MANIFEST"));
        manifests.for_each(|name| std::fs::write(place.directory.path().join(name), [7; 100]).expect("write"));
    });
    assert_eq!(without_manifest, None);
}

/// It once removed the sound files whose entries it had put into fresh ones.
#[test]
fn a_repair_removes_nothing_unless_asked_to() {
    let place = database();
    let before = place.contents();
    let report = repair(&place.env, place.media(), options()).expect("repair");
    assert_eq!(report.findings, []);
    let after = place.contents();
    for (name, bytes) in before.iter().filter(|(name, _)| *name != "LOCK") {
        assert_eq!(after.get(&format!("replaced-{name}")), Some(bytes), "{name}");
    }
    assert!(!after.contains_key("REPAIRED"), "the mark goes when everything is set aside");
    assert_whole(&place);
    // The names of a second one do not take those of the first.
    repair(&place.env, place.media(), options()).expect("again");
    let again = place.contents();
    let kept = after.iter().filter(|(name, _)| name.starts_with("replaced-"));
    assert!(kept.into_iter().all(|(name, bytes)| again.get(name) == Some(bytes)));
    repair_and_discard(&place.env, place.media(), options()).expect("and discard");
    assert!(!place.contents().keys().any(|name| name.starts_with("replaced-")), "{:?}", place.contents().keys());
    assert_whole(&place);
}

/// As if the process had ended when the fresh manifest held and nothing was set aside yet.
#[test]
fn what_a_repair_replaced_is_set_aside_by_the_next_opening_if_it_did_not_get_there() {
    let place = database();
    let before = place.contents();
    repair(&place.env, place.media(), options()).expect("repair");
    let path = |name: &str| place.directory.path().join(name);
    for name in before.keys().filter(|name| *name != "LOCK" && *name != "CURRENT") {
        std::fs::rename(path(&format!("replaced-{name}")), path(name)).expect("rename");
    }
    std::fs::write(path("REPAIRED"), b"").expect("write");
    assert_whole(&place);
    let after = place.contents();
    for (name, bytes) in before.iter().filter(|(name, _)| *name != "LOCK") {
        assert_eq!(after.get(&format!("replaced-{name}")), Some(bytes), "{name}");
    }
    assert!(!after.contains_key("REPAIRED"));
    assert_whole(&place);
}
