//! Databases on a zoned block device of the machine, through the kernel.
//!
//! `VARVE_ZONED_DEVICE` names the device; everything on it is lost. Its first zones must be conventional, and zones of
//! a few MiB make the test do most. `docs/devices.md` says how to make one.

use std::collections::BTreeMap;
use varve::env::{Env, Random};
use varve::stack::StackRole;
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
