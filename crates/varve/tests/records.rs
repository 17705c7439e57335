//! Records that a hybrid store keeps on its drive of tables that lie on its disk.

use varve::env::Env;
use varve::{Options, Spec, Varve};

/// A drive of 25 zones of half a mebibyte and a disk, tables of all levels but the lowest on the disk.
const MEDIUM: &str = "zns:25880166400B?store=hybrid,placement=basic-1,caching=CACHING,tiered-table-size=512KiB,model=zn540,\
                      scale=1/2048,backing=compressed\
                      +smr:2TB?model=st14000nm0007,band=268435456B,conventional=64GiB,scale=1/2048,backing=compressed";

const KEYS: usize = 4000;

fn open(env: &Env, caching: &str) -> Varve {
    let spec: Spec = MEDIUM.replace("CACHING", caching).parse().expect("a medium");
    let options = Options {
        write_buffer_size: 256 << 10,
        target_file_size_base: 400 << 10,
        max_bytes_for_level_base: 1 << 20,
        block_cache_capacity: 0,
        ..Options::default()
    };
    Varve::builder().env(env).options(options).open_spec(&spec).expect("open")
}

fn key(number: usize) -> Vec<u8> {
    format!("{:06}", (number * 2_654_435) % 1_000_003).into_bytes()
}

fn value(number: usize, version: u8) -> Vec<u8> {
    let mut value = vec![version; 700 + number % 300];
    value[..8].copy_from_slice(&(number as u64).to_le_bytes());
    value
}

fn put(db: &Varve, numbers: impl Iterator<Item = usize>, version: u8) {
    numbers.for_each(|number| db.put(key(number), value(number, version)).expect("put"));
}

fn measure(db: &Varve, name: &str) -> u64 {
    let measures = db.stack().files().statistics();
    measures.iter().find(|measure| measure.name == name).map_or(0, |measure| measure.value)
}

/// Reads what is asked for again and again; says how many of the reads were answered by a record alone.
fn read(db: &Varve, numbers: impl Iterator<Item = usize>, version: u8) -> u64 {
    let before = measure(db, "user reads of records alone");
    for number in numbers {
        assert_eq!(db.get(key(number)).expect("get").as_deref(), Some(&value(number, version)[..]), "key {number}");
    }
    measure(db, "user reads of records alone") - before
}

fn settle(db: &Varve) {
    db.flush().expect("flush");
    db.compact().expect("compact");
    db.wait_idle().expect("wait");
}

#[test]
fn records_answer_reads_and_go_where_compactions_take_them() {
    let env = Env::sim(1);
    let db = open(&env, "records");
    put(&db, 0..KEYS, 1);
    settle(&db);
    let hot = || (0..KEYS).step_by(40);
    let counts = [(); 4].map(|()| read(&db, hot(), 1));
    assert!(counts[0] == 0 && counts[3] == 100, "{counts:?}");
    // Others are written, and the tables of all with them.
    put(&db, (0..KEYS).filter(|number| number % 40 != 0), 2);
    settle(&db);
    let after = read(&db, hot(), 1);
    assert!(after >= 90, "{after} of 100 were taken along");
    // What is written since is what is read, and what was there before by whoever kept that.
    let snapshot = db.snapshot();
    put(&db, hot(), 3);
    settle(&db);
    read(&db, hot(), 3);
    for _ in 0..3 {
        for number in hot() {
            let found = snapshot.get(key(number)).expect("get");
            assert_eq!(found.as_deref(), Some(&value(number, 1)[..]), "key {number} of the snapshot");
        }
        read(&db, hot(), 3);
    }
    drop(snapshot);
    hot().for_each(|number| db.delete(key(number)).expect("delete"));
    assert!(hot().all(|number| db.get(key(number)).expect("get").is_none()));
    settle(&db);
    assert!(hot().all(|number| db.get(key(number)).expect("get").is_none()));
    // Of what nobody read nothing follows, but what the sketch takes for something else.
    let others = read(&db, (1..KEYS).filter(|number| number % 40 != 0), 2);
    assert!(others * 30 < KEYS as u64, "{others} of {KEYS}");
    db.close().expect("close");
}

#[test]
fn without_records_whole_blocks_are_read() {
    let env = Env::sim(1);
    let db = open(&env, "frequency");
    put(&db, 0..KEYS, 1);
    settle(&db);
    assert_eq!([(); 3].map(|()| read(&db, (0..KEYS).step_by(40), 1)), [0; 3]);
    assert!(measure(&db, "user reads of the slow tier") >= 300);
    db.close().expect("close");
}
