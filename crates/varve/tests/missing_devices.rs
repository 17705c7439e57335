//! A database on devices of which one is gone for good: what lies on the others is read, and a repair makes a database of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use varve::env::Env;
use varve::media::{Fault, FaultEffect, FaultError, FaultPlan, FaultTrigger, Operation};
use varve::{ErrorKind, Options, ReadOptions, Spec, Varve, WriteOptions};

/// Level 0 lies on the fast device, the others on the slow one, and nothing moves.
const CHOICES: &str = "store=hybrid,placement=basic-1,migration=none,caching=none";

fn fast(place: &Path) -> String {
    format!("zns:64MiB?zone=1MiB,active=0,open=0,backing=file:{}", place.join("fast").display())
}

fn slow(place: &Path) -> String {
    format!("smr:128MiB?band=1MiB,conventional=8MiB,backing=file:{}", place.join("slow").display())
}

fn with(medium: &str, options: &str) -> String {
    format!("{medium},{options}")
}

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn options() -> Options {
    Options {
        write_buffer_size: 256 << 10,
        max_bytes_for_level_base: 1 << 20,
        level0_file_num_compaction_trigger: 100,
        level0_slowdown_writes_trigger: 200,
        level0_stop_writes_trigger: 300,
        ..Options::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u32, version: u32) -> Vec<u8> {
    format!("version {version} of {number} ").into_bytes().repeat(20)
}

fn contents(db: &Varve) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut walk = db.cursor(&ReadOptions::default()).unwrap();
    walk.seek_to_first();
    while walk.valid() {
        found.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.next();
    }
    walk.status().unwrap();
    found
}

/// Versions of keys, in the order in which they were written.
type History = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Makes a database whose old versions are on the slow device, and new ones on the fast one, with the log.
fn load(env: &Env, whole: &Spec) -> History {
    let mut history = History::new();
    let db = Varve::builder().env(env).options(options()).open_spec(whole).unwrap();
    let mut put = |number: u32, version: u32| {
        let (key, value) = (key(number), value(number, version));
        db.put(&key, &value).unwrap();
        history.entry(key).or_default().push(value);
    };
    // Tables that overlap: they are not moved to another level as they are, but written again, there.
    for version in [1, 2] {
        (0..4000).for_each(|number| put(number, version));
        db.flush().unwrap();
    }
    db.compact().unwrap();
    (3000..5000).for_each(|number| put(number, 3));
    db.flush().unwrap();
    db.wait_idle().unwrap();
    // Only the log has them.
    (4900..5000).for_each(|number| put(number, 4));
    db.close().unwrap();
    history
}

#[test]
fn a_repair_makes_a_database_of_what_is_left() {
    for lost in ["fast", "slow"] {
        let place = tempfile::tempdir().unwrap();
        let env = Env::real();
        let (fast, slow) = (fast(place.path()), slow(place.path()));
        let whole = spec(&format!("{}+{slow}", with(&fast, &format!("{CHOICES},tiers=01"))));
        let history = load(&env, &whole);
        // It is gone, as far as anybody can see.
        std::fs::rename(place.path().join(lost), place.path().join("lost")).unwrap();
        let medium = if lost == "fast" { &slow } else { &fast };
        let left = |choice: &str| spec(&with(medium, &format!("{CHOICES}{choice}")));
        let builder = || Varve::builder().env(&env).options(options());

        let refused = builder().open_spec(&left("")).expect_err("a device is missing");
        assert!(refused.to_string().contains("missing-devices"), "{refused}");
        let refused = builder().repair(&left("")).expect_err("a device is missing");
        assert!(refused.to_string().contains("missing-devices"), "{refused}");
        if lost == "fast" {
            // The manifest is gone: nothing says which tables there are.
            let read_only = builder().read_only(true).open_spec(&left(",missing-devices=read-only"));
            let refused = read_only.expect_err("files are missing");
            assert!(refused.kind() != ErrorKind::NotFound && refused.to_string().contains("of 2"), "{refused}");
        }
        // Nothing is given up by those who only look.
        let plan = builder().plan_repair(&left(",missing-devices=give-up")).unwrap();
        assert!(!plan.findings.is_empty());
        std::fs::rename(place.path().join("lost"), place.path().join(lost)).unwrap();
        let found = contents(&builder().read_only(true).open_spec(&whole).unwrap());
        assert_eq!(found.len(), 5000);
        std::fs::rename(place.path().join(lost), place.path().join("lost")).unwrap();

        let report = builder().repair(&left(",missing-devices=give-up")).unwrap();
        assert!(!report.findings.is_empty() && report.entries > 0, "{report:?}");
        // From then on it is a database without the other device.
        let db = builder().open_spec(&left("")).unwrap();
        let found = contents(&db);
        for (key, value) in &found {
            let is_known = history.get(key).is_some_and(|versions| versions.contains(value));
            assert!(is_known, "without '{lost}': '{}' was never '{}'", key.escape_ascii(), value.escape_ascii());
        }
        // The newest versions that lay on what is left.
        let expected: BTreeSet<u32> = if lost == "fast" { (0..3000).collect() } else { (3000..5000).collect() };
        for number in &expected {
            let newest = history[&key(*number)].last();
            assert_eq!(found.get(&key(*number)), newest, "without '{lost}': key {number} of {}", found.len());
        }
        if lost == "fast" {
            assert_eq!(found.len(), 4000, "older versions of those that were on the other device");
        }
        assert_eq!(db.check().unwrap().iter().filter(|finding| finding.code != "device-given-up").count(), 0);
        db.put(b"new", b"value").unwrap();
        db.close().unwrap();
        // What was given up does not come back.
        std::fs::rename(place.path().join("lost"), place.path().join(lost)).unwrap();
        let refused = builder().open_spec(&whole).expect_err("a device that was given up");
        assert!(refused.to_string().contains("given up"), "{refused}");
        assert_eq!(builder().open_spec(&left("")).unwrap().get(b"new").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

/// Without the slow device every key is read whose newest version is known, and no other.
#[test]
fn reads_without_a_device_fail_by_range() {
    let place = tempfile::tempdir().unwrap();
    let env = Env::real();
    let (fast, slow) = (fast(place.path()), slow(place.path()));
    let whole = spec(&format!("{}+{slow}", with(&fast, &format!("{CHOICES},tiers=01"))));
    let history = load(&env, &whole);
    std::fs::rename(place.path().join("slow"), place.path().join("lost")).unwrap();
    let left = spec(&with(&fast, &format!("{CHOICES},missing-devices=read-only")));
    let db = Varve::builder().env(&env).options(options()).read_only(true).open_spec(&left).unwrap();
    let newest = |number: u32| history[&key(number)].last().cloned();
    let is_range_error = |error: &varve::Error, key: &[u8]| {
        let varve::Error::Engine(varve::engine::Error::Unreadable { first, last, .. }) = error else { return false };
        first.as_slice() <= key && key <= last.as_slice() && error.to_string().contains("of 2")
    };
    for number in 0..5000 {
        match db.get(key(number)) {
            Ok(found) => assert_eq!(found.as_deref(), newest(number).as_deref(), "key {number}"),
            Err(error) => assert!(number < 3000 && is_range_error(&error, &key(number)), "key {number}: {error}"),
        }
        assert_eq!(db.get(key(number)).is_ok(), number >= 3000, "key {number}");
    }
    assert_eq!(db.get("other").unwrap(), None);
    let keys: Vec<Vec<u8>> = (0..5000).step_by(7).map(key).collect();
    for (key, found) in keys.iter().zip(db.multi_get(&keys)) {
        let number: u32 = String::from_utf8_lossy(&key[3..]).parse().unwrap();
        assert_eq!(found.ok().flatten().as_deref(), newest(number).filter(|_| number >= 3000).as_deref(), "{number}");
    }

    // A walk ends at each unreadable range and, if asked to skip it, goes on after it, in both directions.
    for is_forward in [true, false] {
        let mut walk = db.cursor(&ReadOptions::default()).unwrap();
        if is_forward {
            walk.seek_to_first()
        } else {
            walk.seek_to_last()
        }
        let (mut found, mut ranges) = (Vec::new(), 0);
        loop {
            while walk.valid() {
                let number: u32 = String::from_utf8_lossy(&walk.key()[3..]).parse().unwrap();
                assert_eq!(Some(walk.value()), newest(number).as_deref(), "key {number}");
                found.push(number);
                if is_forward { walk.next() } else { walk.previous() }
            }
            let Err(error) = walk.status() else { break };
            let first = walk.unreadable_range().expect("a range").0.to_vec();
            assert!(is_range_error(&error, &first), "{error}");
            ranges += 1;
            assert!(walk.skip_unreadable());
        }
        assert!(!walk.skip_unreadable());
        found.sort_unstable();
        assert_eq!(found, (4000..5000).collect::<Vec<u32>>(), "forward: {is_forward}");
        assert!(ranges > 1, "{ranges}");
    }
    // Walks that do not come to a range know nothing of it.
    let mut walk = db.cursor(&ReadOptions::default()).unwrap();
    walk.seek(key(4500));
    assert_eq!(walk.key(), key(4500));
    walk.seek(key(10));
    assert!(!walk.valid() && walk.unreadable_range().is_some());
    assert!(db.iter().next().expect("an item").is_err());

    let codes: Vec<&str> = db.check().unwrap().iter().map(|finding| finding.code).collect();
    for code in ["device-missing", "table-unreadable", "log-unknown"] {
        assert!(codes.contains(&code), "{code} of {codes:?}");
    }
    assert!(db.property("varve.unreadable").is_some_and(|text| text.lines().count() > 2));
    drop(db);
    std::fs::rename(place.path().join("lost"), place.path().join("slow")).unwrap();
    let db = Varve::builder().env(&env).options(options()).read_only(true).open_spec(&whole).unwrap();
    assert_eq!(contents(&db).len(), 5000);
    assert_eq!(db.property("varve.unreadable"), None);
}

/// The slow device does nothing any more while the database is open: what the fast one has is read, and writes go on there.
#[test]
fn a_database_goes_on_without_a_slow_device_that_is_gone() {
    let place = tempfile::tempdir().unwrap();
    let env = Env::sim(1);
    // Never a fault but what the test asks for.
    let slow = with(&slow(place.path()), "faults=list/io@1000000000");
    let whole = spec(&format!("{}+{slow}", with(&fast(place.path()), &format!("{CHOICES},tiers=01"))));
    let history = load(&env, &whole);
    let db = Varve::builder().env(&env).options(options()).open_spec(&whole).unwrap();
    let operations =
        [Operation::Read, Operation::Write, Operation::Discard, Operation::Sync, Operation::Zone, Operation::List];
    let fault = |operation| Fault::new(operation, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
    let [injector] = db.stack().faults() else { panic!("one device has faults") };
    injector.set_plan(FaultPlan { seed: 0, faults: operations.into_iter().map(fault).collect() });

    // With blocks that are in memory; what is read of it names the device.
    let lost = (0..3000).filter_map(|number| db.get(key(number)).err()).collect::<Vec<_>>();
    assert!(lost.len() > 1000 && lost.iter().all(|error| error.to_string().contains("smr")), "{}", lost.len());
    for number in 3000..5000 {
        assert_eq!(
            db.get(key(number)).unwrap().as_deref(),
            history[&key(number)].last().map(Vec::as_slice),
            "key {number}"
        );
    }
    for number in 5000..7000 {
        db.put_with(key(number), value(number, 1), &WriteOptions { sync: number % 50 == 0 }).unwrap();
    }
    db.flush().unwrap();
    for number in 5000..7000 {
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&value(number, 1)[..]), "key {number}");
    }
    injector.set_plan(FaultPlan::default());
    drop(db);
    let db = Varve::builder().env(&env).options(options()).open_spec(&whole).unwrap();
    let found = contents(&db);
    assert_eq!(found.len(), 7000);
    for (key, versions) in &history {
        assert_eq!(found.get(key), versions.last(), "'{}'", key.escape_ascii());
    }
    assert_eq!(db.check().unwrap(), []);
}

/// A device takes no writes from the moment on that the set is opened: everything is read, and the other one is written.
#[test]
fn a_device_that_takes_no_writes_at_the_open_leaves_the_other_writable() {
    for victim in ["slow", "fast"] {
        for faults in ["write/read-only@0..", "sync/io@0..", "write/io@0..;sync/io@0.."] {
            let what = format!("'{victim}', {faults}");
            let place = tempfile::tempdir().unwrap();
            let env = Env::sim(1);
            let set = |faults: &str| {
                let of = |device: &str| {
                    let medium = if device == "fast" { fast(place.path()) } else { slow(place.path()) };
                    if device == victim && !faults.is_empty() { with(&medium, faults) } else { medium }
                };
                spec(&format!("{}+{}", with(&of("fast"), &format!("{CHOICES},tiers=01")), of("slow")))
            };
            let history = load(&env, &set(""));
            let builder = || Varve::builder().env(&env).options(options());
            let db = builder()
                .open_spec(&set(&format!("faults={faults}")))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(db.check().unwrap().iter().any(|finding| finding.code == "device-refuses"), "{what}");
            let refusing =
                db.stack().files().statistics().into_iter().find(|measure| measure.name == "devices that refuse");
            assert_eq!(refusing.map(|measure| measure.value), Some(1), "{what}");
            let mut expected: BTreeMap<Vec<u8>, Vec<u8>> =
                history.iter().map(|(key, versions)| (key.clone(), versions.last().unwrap().clone())).collect();
            assert!(contents(&db) == expected, "{what}");
            for number in 4500..5500 {
                db.put_with(key(number), value(number, 9), &WriteOptions { sync: number % 50 == 0 }).unwrap();
                expected.insert(key(number), value(number, 9));
            }
            db.delete(key(7)).unwrap();
            expected.remove(&key(7));
            db.flush().unwrap();
            assert!(contents(&db) == expected, "{what}");
            drop(db);
            let db = builder().open_spec(&set("")).unwrap();
            assert!(contents(&db) == expected, "{what}, reopened");
            assert_eq!(db.check().unwrap(), [], "{what}");
        }
    }
}
