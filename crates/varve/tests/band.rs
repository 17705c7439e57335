//! Databases on zoned devices, named by a spec.

use varve::env::Env;
use varve::media::Counters;
use varve::stack::StackRole;
use varve::{ErrorKind, Options, Spec, Varve, WriteOptions};

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn open(env: &Env, text: &str) -> Result<Varve, varve::Error> {
    let options = Options { write_buffer_size: 256 << 10, target_file_size_base: 512 << 10, ..Options::default() };
    Varve::builder().env(env).options(options).open_spec(&spec(text))
}

fn counters(db: &Varve, role: StackRole) -> Option<Counters> {
    db.stack().devices().iter().find(|device| device.role() == role).map(|device| device.device().block.counters())
}

/// Writes values, each durable on return, and reads them.
fn fill(db: &Varve) {
    for key in 0..300u32 {
        db.put_with(key.to_le_bytes(), [key as u8; 4000], &WriteOptions { sync: true }).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
    for key in 0..300u32 {
        assert_eq!(db.get(key.to_le_bytes()).unwrap().as_deref(), Some(&[key as u8; 4000][..]));
    }
}

#[test]
fn shingled_disks_carry_a_database_without_being_told_how() {
    for (text, beside) in [
        ("smr:128MiB?band=1MiB,conventional=4MiB", false),
        ("smr:128MiB?band=1MiB,conventional=4MiB,store=band,reserve=5", false),
        ("smr:128MiB?band=1MiB,conventional=4MiB,host-aware", false),
        ("smr:128MiB?band=128KiB,conventional=4MiB,zoned-table-size=1MiB,reserve=1", false),
        ("smr:128MiB?band=1MiB,conventional=4MiB,logs=ssd:64MiB", true),
        ("smr:128MiB?band=1MiB,conventional=0", false),
        ("zns:128MiB?zone=2MiB,zone-capacity=1MiB", false),
        ("zns:128MiB?zone=512KiB,zone-capacity=400KiB,zoned-table-size=1MiB,reserve=1", false),
    ] {
        let env = Env::sim(1);
        let db = open(&env, text).unwrap();
        fill(&db);
        let (disk, logs) = (counters(&db, StackRole::Files).unwrap(), counters(&db, StackRole::Logs));
        assert_eq!(disk.errors, 0, "{text}: a rule of the zones was broken");
        assert_eq!(logs.is_some_and(|logs| logs.syncs > 100), beside, "{text}");
        assert_eq!(disk.syncs > 100, !beside, "{text}: {} syncs", disk.syncs);
        assert!(db.check().unwrap().is_empty(), "{text}");
        db.close().unwrap();
    }
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let env = Env::sim(1);
    for (text, advice) in [
        ("smr:128MiB?band=1MiB,conventional=0,overlap-tracks=1,track=64KiB", "conventional=SIZE"),
        ("zns:128MiB?zone=4KiB,zone-capacity=4KiB", "choose larger ones"),
        ("zns:128MiB?zone=1MiB,zone-capacity=1MiB,active=3", "one for the band table"),
        ("smr:128MiB?band=1MiB,conventional=4MiB,reserve=1000", "smaller reserve"),
        ("smr:128MiB?band=1MiB,conventional=4MiB,reserve=70000", "below 65536"),
        ("smr:128MiB?band=1MiB,conventional=4MiB,zoned-table-size=100MiB", "smaller tables"),
        ("disk:128MiB?store=band", "zones"),
        ("smr:128MiB?band=1MiB,conventional=4MiB,store=extent", "band"),
    ] {
        let error = open(&env, text).expect_err("it cannot be");
        assert!(error.to_string().contains(advice), "{text}: {error}");
        assert_ne!(error.kind(), ErrorKind::Corruption, "{text}");
    }
    // Zones that may be written anywhere carry either store.
    for store in ["", ",store=band", ",store=extent"] {
        let text = format!("smr:128MiB?band=1MiB,conventional=0,host-aware{store}");
        let db = open(&env, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
        db.put(b"a", b"b").unwrap();
        db.close().unwrap();
    }
}
