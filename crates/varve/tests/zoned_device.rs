//! Databases on zoned block devices of the machine, through the kernel.
//!
//! `VARVE_ZONED_DEVICE` names a device, `VARVE_FAST_ZONED_DEVICE` and `VARVE_SLOW_ZONED_DEVICE` name two for one database; everything
//! on them is lost. The first zones must be conventional, and zones of a few MiB make the tests do most. `docs/devices.md` says
//! how to make them.

use std::collections::BTreeMap;
use varve::env::{Env, Random};
use varve::stack::StackRole;
use varve::store::PieceUsage;
use varve::{Options, ReadOptions, Spec, TreeKind, Varve, WriteOptions};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const ROUNDS: u64 = 3;
const WRITES: u64 = 4000;
const UNIVERSE: u64 = 3000;

fn compare(db: &Varve, model: &Model, note: &str) {
    let mut walk = db.cursor(&ReadOptions::default()).unwrap();
    walk.seek_to_first();
    for (key, value) in model {
        assert!(walk.valid(), "{note}: ends before '{}': {:?}", key.escape_ascii(), walk.status());
        assert_eq!((walk.key(), walk.value()), (key.as_slice(), value.as_slice()), "{note}");
        walk.next();
    }
    assert!(!walk.valid(), "{note}: more than was written");
    walk.status().unwrap();
    for key in model.keys().step_by(17) {
        assert_eq!(db.get(key).unwrap().as_deref(), model.get(key).map(Vec::as_slice), "{note}");
    }
}

fn write(db: &Varve, model: &mut Model, random: &mut Random) {
    for _ in 0..WRITES {
        let key = format!("key{:06}", random.below(UNIVERSE)).into_bytes();
        let options = WriteOptions { sync: random.chance(1, 50) };
        if random.chance(1, 8) {
            db.delete_with(&key, &options).unwrap();
            model.remove(&key);
            continue;
        }
        let mut value = vec![0; random.below(4000) as usize];
        random.fill_bytes(&mut value);
        db.put_with(&key, &value, &options).unwrap();
        model.insert(key, value);
    }
}

#[test]
fn a_zoned_block_device_holds_a_database_in_both_trees() {
    let Some(path) = std::env::var_os("VARVE_ZONED_DEVICE") else {
        eprintln!("skipped: VARVE_ZONED_DEVICE names no zoned block device");
        return;
    };
    let spec: Spec = format!("dev:{}?store=band", path.display()).parse().unwrap();
    let env = Env::real();
    for tree in TreeKind::OF_TABLES {
        let options = Options {
            tree: Some(tree),
            write_buffer_size: 1 << 20,
            max_bytes_for_level_base: 4 << 20,
            ..Options::default()
        };
        let open =
            |format: bool| Varve::builder().env(&env).options(options.clone()).format(format).open_spec(&spec).unwrap();
        let (mut model, mut random) = (Model::new(), Random::named(1, "zoned device"));
        for round in 0..ROUNDS {
            let note = format!("{tree:?}, round {round}");
            let db = open(round == 0);
            compare(&db, &model, &note);
            write(&db, &mut model, &mut random);
            compare(&db, &model, &note);
            match round {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                // What is in the logs is found by the next opening.
                _ => {}
            }
            db.wait_idle().unwrap();
            compare(&db, &model, &note);
            assert_eq!(db.check().unwrap(), [], "{note}");
            let devices = db.stack().devices();
            let disk = devices.iter().find(|device| device.role() == StackRole::Files).unwrap();
            let counters = disk.device().block.counters();
            assert_eq!(counters.errors, 0, "{note}: the device refused something");
            println!(
                "{note}: {} bytes in {} writes, {} syncs",
                counters.written_bytes, counters.writes, counters.syncs
            );
            db.close().unwrap();
        }
        compare(&open(false), &model, &format!("{tree:?}, at the end"));
    }
}

/// Bytes of tables on each device, in the order of the spec.
fn table_bytes(db: &Varve) -> Vec<u64> {
    let occupancy = db.stack().files().occupancy();
    let mut bytes = vec![0; occupancy.devices.len()];
    for piece in occupancy.pieces.iter().filter(|piece| piece.usage == PieceUsage::Table) {
        bytes[usize::from(piece.device)] += piece.used_bytes;
    }
    bytes
}

#[test]
fn two_zoned_block_devices_hold_a_database_in_two_tiers() {
    let paths = ["VARVE_FAST_ZONED_DEVICE", "VARVE_SLOW_ZONED_DEVICE"].map(std::env::var_os);
    let [Some(fast), Some(slow)] = paths else {
        eprintln!("skipped: VARVE_FAST_ZONED_DEVICE and VARVE_SLOW_ZONED_DEVICE do not name two zoned block devices");
        return;
    };
    let spec = |tiers: &str| -> Spec {
        let options = format!("store=hybrid,placement=basic-1,migration=none,tiered-table-size=1MiB{tiers}");
        format!("dev:{}?{options}+dev:{}", fast.display(), slow.display()).parse().unwrap()
    };
    let env = Env::real();
    let options = Options { write_buffer_size: 1 << 20, max_bytes_for_level_base: 4 << 20, ..Options::default() };
    let open =
        |spec: &Spec, format: bool| Varve::builder().env(&env).options(options.clone()).format(format).open_spec(spec);
    // Two devices of the kernel's that are no disks: nothing says which of them is fast.
    let is_disk = |path: &std::ffi::OsString| {
        let name = std::path::Path::new(path).canonicalize().unwrap().file_name().unwrap().to_owned();
        let queue = std::path::Path::new("/sys/block").join(name).join("queue/rotational");
        std::fs::read_to_string(queue).is_ok_and(|text| text.trim() == "1")
    };
    if !is_disk(&fast) && !is_disk(&slow) {
        let error = open(&spec(""), true).expect_err("tiers that are not known").to_string();
        assert!(error.contains("tiers=") && error.contains("random-reads="), "{error}");
    }
    let spec = spec(",tiers=01");
    let (mut model, mut random) = (Model::new(), Random::named(2, "zoned devices"));
    for round in 0..ROUNDS {
        let note = format!("two devices, round {round}");
        let db = open(&spec, round == 0).unwrap();
        compare(&db, &model, &note);
        write(&db, &mut model, &mut random);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        compare(&db, &model, &note);
        let findings = db.check().unwrap();
        assert_eq!(findings, [], "{note}");
        let bytes = table_bytes(&db);
        assert!(bytes[1] > bytes[0], "{note}: levels from 1 on belong on the slow device: {bytes:?}");
        let devices = db.stack().devices();
        let errors: Vec<u64> = devices.iter().map(|device| device.device().block.counters().errors).collect();
        assert_eq!(errors, [0, 0], "{note}: a device refused something");
        println!("{note}: bytes of tables on the fast and the slow device: {bytes:?}");
        db.close().unwrap();
    }
    compare(&open(&spec, false).unwrap(), &model, "two devices, at the end");
}
