//! What a repair does not touch, and that it does what its plan says.

use std::collections::BTreeMap;
use std::sync::Arc;
use varve_engine::{
    Db, Error, ErrorKind, Media, Options, ReadOptions, RepairAction, TreeKind, WriteOptions, plan_repair, repair,
    repair_and_discard,
};
use varve_env::Env;
use varve_media::{MemoryDirectory, OsDirectory};
use varve_store::{CreateOptions, FileStore, IoContext, OpenOptions, PlainOptions, PlainStore};

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

/// Pairs of a database.
type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs(db: &Db) -> Result<Pairs, Error> {
    let mut walk = db.iterator(&ReadOptions::default())?;
    let mut pairs = Pairs::new();
    walk.seek_to_first();
    while walk.valid() {
        pairs.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.next();
    }
    walk.status().map(|()| pairs)
}

/// A directory in memory, for tests that make many databases.
struct MemoryPlace {
    store: Arc<dyn FileStore>,
    env: Env,
}

impl MemoryPlace {
    fn of(files: &Contents) -> Self {
        let env = Env::sim(1);
        let directory = Arc::new(MemoryDirectory::new("files"));
        let store: Arc<dyn FileStore> = Arc::new(PlainStore::open(&env, directory, PlainOptions::default()));
        for (name, bytes) in files {
            let mut file = store.create(name, &CreateOptions::default()).expect("create");
            file.append(bytes, &IoContext::default()).expect("append");
            file.finish(&IoContext::default()).expect("finish");
        }
        MemoryPlace { store, env }
    }

    fn media(&self) -> Media {
        Media::of_files(self.store.clone())
    }

    fn contents(&self) -> Contents {
        let read = |name: &str| {
            let file = self.store.open(name, &OpenOptions::default()).expect("open");
            let mut bytes = vec![0; file.size_bytes() as usize];
            file.read_at(0, &mut bytes, &IoContext::default()).expect("read");
            bytes
        };
        let entries = self.store.list().expect("list").into_iter().filter(|entry| entry.name != "LOCK");
        entries.map(|entry| (entry.name.clone(), read(&entry.name))).collect()
    }
}

/// Options of a tree whose writes stay in a chain of logs.
fn options_of_logs(tree: TreeKind) -> Options {
    let flush_key_ranges = tree == TreeKind::TwoLevel;
    Options {
        tree: Some(tree),
        flush_key_ranges: Some(flush_key_ranges),
        write_buffer_size: 64 << 10,
        ..Options::default()
    }
}

/// The files that a killed process leaves, or a closed database. Every few writes were synced. The value of a key is its own, so that
/// what a repair finds is right or absent.
fn logged(tree: TreeKind, is_closed: bool) -> Contents {
    let place = MemoryPlace::of(&Contents::new());
    let db = Db::open(&place.env, place.media(), options_of_logs(tree)).expect("open");
    let writes = if tree == TreeKind::TwoLevel { 1200 } else { 150 };
    for number in 0..writes {
        let key = number * 7919 % writes;
        let options = WriteOptions { sync: number % 10 == 9 };
        db.put_with(format!("key{key:05}").as_bytes(), &value_of(key), &options).expect("put");
    }
    db.wait_idle().expect("idle");
    if is_closed {
        db.close().expect("close");
    }
    place.contents()
}

fn value_of(key: u32) -> Vec<u8> {
    vec![(key % 251) as u8; 200]
}

/// States of a log.
fn damaged_logs(bytes: &[u8]) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let cut = |length: usize| Some(bytes[..length.min(bytes.len())].to_vec());
    let zeroed = |from: usize, to: usize| {
        let mut bytes = bytes.to_vec();
        let (from, to) = (from.min(bytes.len()), to.min(bytes.len()));
        bytes[from..to].fill(0);
        Some(bytes)
    };
    let end = bytes.len();
    vec![
        ("missing", None),
        ("empty", cut(0)),
        ("zeroed", zeroed(0, end)),
        ("cut within the header", cut(20)),
        ("cut behind the header", cut(64)),
        ("cut in the middle", cut(end / 2)),
        ("cut before the end", cut(end - 1)),
        ("header zeroed", zeroed(0, 64)),
        ("zeroed behind the header", zeroed(64, end)),
        ("zeroed from the middle on", zeroed(end / 2, end)),
        ("zeroed in the middle", zeroed(end / 2, end / 2 + 100)),
    ]
}

/// Opening, check and repair judge every log of a chain alike. A repair once did not look for missing logs, and took an empty log that
/// others continue for sound: it ended without a finding, and synced writes were gone.
#[test]
fn opening_check_and_repair_agree_about_every_log_of_a_chain() {
    let (mut refused, mut accepted, mut longest_chain) = (0, 0, 0);
    for tree in [TreeKind::Leveled, TreeKind::TwoLevel, TreeKind::Memory] {
        for is_closed in [false, true] {
            let whole = logged(tree, is_closed);
            let logs: Vec<&String> = whole.keys().filter(|name| name.ends_with(".log")).collect();
            longest_chain = longest_chain.max(logs.len());
            for log in &logs {
                for (how, bytes) in damaged_logs(&whole[*log]) {
                    let mut files = whole.clone();
                    match bytes {
                        Some(bytes) => drop(files.insert((*log).clone(), bytes)),
                        None => drop(files.remove(*log)),
                    }
                    let what = format!("{tree:?}, closed: {is_closed}, {log} of {logs:?} {how}");
                    match agree(tree, &files, &what) {
                        true => accepted += 1,
                        false => refused += 1,
                    }
                }
            }
        }
    }
    println!("reached: repair/logs: {refused} refused, {accepted} accepted, {longest_chain} logs in the longest chain");
    assert!(refused > 40 && accepted > 10 && longest_chain > 3, "{refused} {accepted} {longest_chain}");
}

/// The log cannot tell a torn write from a damaged one, so the check claims neither. It once said that the record "was never acknowledged
/// as durable"; this one was.
#[test]
fn check_does_not_claim_that_a_damaged_last_record_was_unsynced() {
    for tree in TreeKind::OF_TABLES {
        let mut files = logged(tree, false);
        let last = files.keys().rfind(|name| name.ends_with(".log")).expect("a log").clone();
        let log = files.get_mut(&last).expect("a log");
        // The last write was synced. Zeros behind it are space that was allocated.
        let end = log.iter().rposition(|byte| *byte != 0).expect("records") + 1;
        log[end - 10] ^= 1;
        let place = MemoryPlace::of(&files);
        let db = Db::open_read_only(&place.env, place.media(), options_of_logs(tree)).expect("open");
        let findings = db.check().expect("check");
        let [finding] = &findings[..] else { panic!("{tree:?}: {findings:?}") };
        assert_eq!((finding.code, finding.severity), ("log-tail-torn", varve_store::Severity::Warning), "{tree:?}");
        let message = &finding.message;
        for said in ["a write that did not end", "a damaged one", "cannot tell apart"] {
            assert!(message.contains(said), "{tree:?}: {message}");
        }
        for claim in ["never", "acknowledged", "durable", "synced"] {
            assert!(!message.contains(claim), "{tree:?}: {message}");
        }
    }
}

/// True if these files are a database that opens. If so, a repair changes nothing in it; if not, it says what is lost.
fn agree(tree: TreeKind, files: &Contents, what: &str) -> bool {
    let options = || options_of_logs(tree);
    let place = MemoryPlace::of(files);
    let read_only = Db::open_read_only(&place.env, place.media(), options());
    let checked = read_only.and_then(|db| Ok((pairs(&db)?, db.check()?)));
    let plan = plan_repair(&place.env, &place.media(), &options()).expect("a plan");
    assert_eq!(&place.contents(), files, "{what}: reading changes nothing");
    let opened = MemoryPlace::of(files);
    let opened = Db::open(&opened.env, opened.media(), options()).and_then(|db| pairs(&db));
    let report = repair(&place.env, place.media(), options()).expect("repair");
    assert_eq!(report.findings, plan.findings, "{what}");
    let db = Db::open(&place.env, place.media(), options()).expect("open");
    let repaired = pairs(&db).expect("pairs");
    assert_eq!(db.check().expect("check"), [], "{what}");
    db.close().expect("close");
    match (opened, checked) {
        (Ok(opened), Ok((checked, findings))) => {
            assert!(opened == checked && opened == repaired, "{what}: other pairs");
            assert!(findings.iter().all(|finding| finding.code == "log-tail-torn"), "{what}: {findings:?}");
            assert_eq!(report.findings, [], "{what}");
            true
        }
        (Err(opened), Err(checked)) => {
            assert_eq!(opened.to_string(), checked.to_string(), "{what}");
            let is_told = |text: &str| report.findings.iter().any(|finding| finding.message.contains(text));
            assert!(is_told(&opened.to_string()), "{what}: {opened}; {:?}", report.findings);
            for (key, value) in repaired {
                let number = String::from_utf8_lossy(&key[3..]).parse().expect("a number");
                assert_eq!(value, value_of(number), "{what}");
            }
            false
        }
        (opened, checked) => panic!("{what}: opening says {:?}, a check {:?}", opened.err(), checked.err()),
    }
}

/// Every pair twice: older values in the last level, newer ones, and deletions, in a table above it.
fn layered(options: &Options) -> (Contents, Pairs, Pairs) {
    let place = MemoryPlace::of(&Contents::new());
    let db = Db::open(&place.env, place.media(), options.clone()).expect("open");
    let key = |number: u32| format!("key{number:05}").into_bytes();
    let value = |number: u32, round: u8| {
        let mut value = vec![b'a' + round; 60];
        value.extend(number.wrapping_mul(2_654_435_761).to_le_bytes().repeat(10));
        value
    };
    let mut older = Pairs::new();
    for number in 0..700 {
        db.put(&key(number), &value(number, 0)).expect("put");
        older.insert(key(number), value(number, 0));
    }
    db.compact_range(None, None).expect("compact");
    let mut newest = older.clone();
    for number in (0..700).filter(|number| number % 3 != 0) {
        if number % 3 == 1 {
            db.put(&key(number), &value(number, 1)).expect("put");
            newest.insert(key(number), value(number, 1));
        } else {
            db.delete(&key(number)).expect("delete");
            newest.remove(&key(number));
        }
    }
    db.flush().expect("flush");
    db.put_with(b"last", b"in the log", &WriteOptions { sync: true }).expect("put");
    newest.insert(b"last".to_vec(), b"in the log".to_vec());
    db.close().expect("close");
    (place.contents(), older, newest)
}

/// Damage to a table, and whether its data blocks are as they were.
fn damaged_tables(bytes: &[u8]) -> Vec<(String, bool, Vec<u8>)> {
    let length = bytes.len();
    let part = |footer_field: usize| {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize;
        let at = length - 80 + footer_field;
        number(at)..number(at) + number(at + 8)
    };
    let (properties, index, filter) = (part(0), part(16), part(32));
    let flipped = |places: &[usize]| {
        let mut bytes = bytes.to_vec();
        places.iter().for_each(|at| bytes[*at] ^= 0x10);
        bytes
    };
    let more = |byte: u8, count: usize| [bytes, &vec![byte; count]].concat();
    let mut zeroed = bytes.to_vec();
    zeroed[index.start..].fill(0);
    let mut hole = bytes.to_vec();
    hole[length / 4..length / 4 + 4096.min(length / 3)].fill(0);
    let data = filter.start;
    vec![
        ("4 KiB of zeros behind it".to_owned(), true, more(0, 4096)),
        ("other bytes behind it".to_owned(), true, more(0xa5, 777)),
        ("padded to a mebibyte".to_owned(), true, more(0, length.next_multiple_of(1 << 20) - length)),
        ("a bit of the footer".to_owned(), true, flipped(&[length - 1])),
        ("a bit of the id".to_owned(), true, flipped(&[length - 30])),
        ("a bit of the index".to_owned(), true, flipped(&[index.start + index.len() / 2])),
        ("a bit of the filter".to_owned(), true, flipped(&[filter.start + filter.len() / 2])),
        ("a bit of the properties".to_owned(), true, flipped(&[properties.start + 3])),
        ("everything behind the filter zeroed".to_owned(), true, zeroed),
        ("cut behind the data".to_owned(), true, bytes[..data].to_vec()),
        ("cut in half".to_owned(), false, bytes[..length / 2].to_vec()),
        ("cut to a third, and padded".to_owned(), false, [&bytes[..length / 3], &[0; 5000]].concat()),
        ("a bit of the first block".to_owned(), false, flipped(&[5])),
        ("a bit of the last block".to_owned(), false, flipped(&[data - 20])),
        ("bits of several blocks".to_owned(), false, flipped(&[data / 5, data / 3, data / 2, data * 4 / 5])),
        ("bits of several blocks and of the index".to_owned(), false, flipped(&[data / 4, data / 2, index.start + 1])),
        ("a hole".to_owned(), false, hole),
        ("nothing but zeros".to_owned(), false, vec![0; length]),
        ("empty".to_owned(), false, Vec::new()),
    ]
}

/// A repair once gave up every table whose footer, index, filter or length was wrong, with all its sound blocks, and was silent about
/// older values that came back.
#[test]
fn every_sound_block_of_a_table_survives_and_keys_that_may_be_stale_are_named() {
    use varve_engine::Compression;
    let (mut whole, mut partial, mut stale) = (0, 0, 0);
    for (tree, compression, block_align) in [
        (TreeKind::Leveled, Compression::None, 0),
        (TreeKind::Leveled, Compression::Zstd, 512),
        (TreeKind::TwoLevel, Compression::Lz4, 0),
        (TreeKind::TwoLevel, Compression::None, 4096),
    ] {
        let options = Options { tree: Some(tree), compression, block_align, block_size: 1024, ..options() };
        let (files, older, newest) = layered(&options);
        let tables: Vec<&String> = files.keys().filter(|name| name.ends_with(".sst")).collect();
        assert!(tables.len() > 1, "{tables:?}");
        for table in tables {
            for (how, is_data_whole, bytes) in damaged_tables(&files[table]) {
                let what = format!("{tree:?}, {compression:?}, aligned to {block_align}: {table}, {how}");
                let mut files = files.clone();
                files.insert(table.clone(), bytes);
                let place = MemoryPlace::of(&files);
                let plan = plan_repair(&place.env, &place.media(), &options).expect("a plan");
                let report = repair(&place.env, place.media(), options.clone()).expect("repair");
                assert_eq!(report.findings, plan.findings, "{what}");
                assert!(report.findings.iter().any(|found| found.message.contains(table.as_str())), "{what}");
                let db = Db::open(&place.env, place.media(), options.clone()).expect("open");
                let found = pairs(&db).expect("pairs");
                assert_eq!(db.check().expect("check"), [], "{what}");
                db.close().expect("close");
                let ranges: Vec<(Option<String>, Option<String>)> = stale_ranges(&report.findings, table);
                if is_data_whole {
                    assert_eq!(found, newest, "{what}");
                    assert!(ranges.is_empty(), "{what}: {ranges:?}");
                    whole += 1;
                    continue;
                }
                partial += 1;
                assert!(!ranges.is_empty(), "{what}");
                let all: std::collections::BTreeSet<&Vec<u8>> = older.keys().chain(newest.keys()).collect();
                for key in all {
                    let (is, was) = (found.get(key), newest.get(key));
                    if is == was {
                        continue;
                    }
                    assert!(is.is_none() || is == older.get(key), "{what}: {:?}", String::from_utf8_lossy(key));
                    stale += u32::from(is.is_some());
                    let text = String::from_utf8_lossy(key).into_owned();
                    let covers = |(after, before): &(Option<String>, Option<String>)| {
                        after.as_ref().is_none_or(|after| *after <= text)
                            && before.as_ref().is_none_or(|before| text <= *before)
                    };
                    assert!(ranges.iter().any(covers), "{what}: {text} is not in {ranges:?}");
                }
                // Cut in half, about half of it is there.
                if how == "cut in half" {
                    assert!(report.tables_salvaged == 1 && found.len() * 3 > newest.len(), "{what}: {}", found.len());
                }
            }
        }
    }
    println!("reached: repair/tables: {whole} repairs without a loss, {partial} with one, {stale} stale");
    assert!(whole > 60 && partial > 60 && stale > 1000, "{whole} {partial} {stale}");
}

/// Ends of the ranges of keys that a repair names.
fn stale_ranges(findings: &[varve_store::Finding], table: &str) -> Vec<(Option<String>, Option<String>)> {
    let of_table = findings.iter().filter(|finding| finding.code == "keys-may-be-stale");
    let between = |text: &str, before: &str| {
        let start = text.find(before)? + before.len();
        Some(text[start..start + text[start..].find('\'')?].to_owned())
    };
    of_table
        .filter(|finding| finding.message.contains(table))
        .map(|finding| {
            let text = finding.message.split(" in '").next().expect("a range");
            let to = between(text, " to '").or_else(|| between(text, " up to '"));
            (between(text, " from '"), to)
        })
        .collect()
}

/// Without a manifest the id of a table is in its footer, although the rest of that is damaged.
#[test]
fn damaged_tables_are_salvaged_without_a_manifest() {
    let options = options();
    let (files, older, newest) = layered(&options);
    let tables: Vec<&String> = files.keys().filter(|name| name.ends_with(".sst")).collect();
    for table in tables {
        for at in [1, 60, 75] {
            let mut files = files.clone();
            let bytes = files.get_mut(table).expect("there");
            let place = bytes.len() - at;
            bytes[place] ^= 0x20;
            bytes.extend([0; 3000]);
            for (_, bytes) in files.iter_mut().filter(|(name, _)| name.starts_with("MANIFEST")) {
                bytes.fill(7);
            }
            let place = MemoryPlace::of(&files);
            let report = repair(&place.env, place.media(), options.clone()).expect("repair");
            let is_fatal = |finding: &varve_store::Finding| finding.code == "manifest-lost";
            assert!(report.findings.iter().any(is_fatal), "{:?}", report.findings);
            let db = Db::open(&place.env, place.media(), options.clone()).expect("open");
            let found = pairs(&db).expect("pairs");
            if at == 1 {
                // The magic is what a search without an id begins with.
                assert!(
                    found.iter().all(|(key, value)| [&older, &newest].iter().any(|all| all.get(key) == Some(value)))
                );
            } else {
                assert_eq!(found, newest, "{table}, {at} before the end");
            }
            db.close().expect("close");
        }
    }
}

/// A copy is made of what is sound: a checkpoint to a store that shares no files verifies what it copies.
#[test]
fn a_checkpoint_copies_no_damage() {
    for (tree, options) in
        [TreeKind::Leveled, TreeKind::TwoLevel].map(|tree| (tree, Options { tree: Some(tree), ..options() }))
    {
        let (files, _, newest) = layered(&options);
        let table = files.keys().find(|name| name.ends_with(".sst")).expect("a table");
        let length = files[table].len();
        let sound = |files: &Contents| {
            let place = MemoryPlace::of(files);
            let db = Db::open(&place.env, place.media(), options.clone()).expect("open");
            let target = MemoryPlace::of(&Contents::new());
            let result = db.checkpoint(&*target.store);
            db.close().expect("close");
            result.map(|()| {
                let db = Db::open(&target.env, target.media(), options.clone()).expect("open");
                let found = pairs(&db).expect("pairs");
                db.close().expect("close");
                found
            })
        };
        assert_eq!(sound(&files).expect("sound"), newest);
        for at in (0..length).step_by(length / 40).chain([length - 1, length - 79]) {
            let mut damaged = files.clone();
            damaged.get_mut(table).expect("there")[at] ^= 0x40;
            let error = sound(&damaged).expect_err("damaged");
            assert_eq!(error.kind(), ErrorKind::Corruption, "{tree:?}, byte {at}: {error}");
            assert!(error.to_string().contains(table.as_str()), "{tree:?}, byte {at}: {error}");
        }
    }
}
