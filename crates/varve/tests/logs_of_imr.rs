//! Where the store `imr` keeps everything that is not a table.

use varve::env::Env;
use varve::media::Counters;
use varve::stack::{StackBuilder, StackRole};
use varve::{ErrorKind, Options, Spec, Varve};

fn spec(text: &str) -> Spec {
    text.parse().unwrap()
}

fn options() -> Options {
    Options { write_buffer_size: 256 << 10, target_file_size_base: 512 << 10, ..Options::default() }
}

fn open(env: &Env, text: &str) -> Result<Varve, varve::Error> {
    Varve::builder().env(env).options(options()).open_spec(&spec(text))
}

fn counters(db: &Varve, role: StackRole) -> Option<Counters> {
    db.stack().devices().iter().find(|device| device.role() == role).map(|device| device.device().block.counters())
}

/// Writes values, each durable on return.
fn fill(db: &Varve) {
    for key in 0..200u32 {
        db.put_with(key.to_le_bytes(), [7; 4000], &varve::WriteOptions { sync: true }).unwrap();
    }
    db.flush().unwrap();
    db.wait_idle().unwrap();
}

const SIZES: &str = "track=128KiB,strict,table-size=1MiB,small-files=8MiB";

#[test]
fn logs_have_a_drive_of_their_own_unless_they_are_inside() {
    for (text, beside, syncs_disk) in [
        (format!("imr:128MiB?{SIZES}"), true, false),
        (format!("imr:128MiB?{SIZES},backing=compressed"), true, false),
        (format!("imr:128MiB?{SIZES},logs=(nvme:64MiB?model=nvme-ssd)"), true, false),
        (format!("imr:128MiB?{SIZES},logs=inside"), false, true),
        ("disk:128MiB?store=imr,track-size=128KiB,small-files=8MiB,allocation=three-phase".to_owned(), true, false),
        ("disk:128MiB?store=imr,track-size=128KiB,small-files=8MiB,logs=inside".to_owned(), false, true),
        ("imr:8GiB?scale=1/64,logs=inside,small-files=8MiB".to_owned(), false, true),
        ("imr:8GiB?scale=1/64,small-files=8MiB".to_owned(), true, false),
    ] {
        let env = Env::sim(1);
        let db = open(&env, &text).unwrap();
        fill(&db);
        let (disk, logs) = (counters(&db, StackRole::Files).unwrap(), counters(&db, StackRole::Logs));
        assert_eq!(logs.is_some(), beside, "{text}");
        assert_eq!(disk.syncs > 100, syncs_disk, "{text}: {} syncs", disk.syncs);
        if let Some(logs) = logs {
            assert!(logs.syncs > 100 && logs.written_bytes > 200 * 4000, "{text}");
            assert!(disk.written_bytes < 2 << 20, "{text}: {} bytes", disk.written_bytes);
        }
        assert!(db.check().unwrap().is_empty(), "{text}");
        db.close().unwrap();
        let described = StackBuilder::new(&env).describe(&spec(&text)).unwrap();
        assert_eq!(described.len(), 1 + usize::from(beside), "{text}");
    }
}

#[test]
fn an_image_has_its_logs_in_an_image_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("an, image");
    let escaped = image.display().to_string().replace(',', "%2C");
    let text = format!("imr:128MiB?{SIZES},backing=file:{escaped}");
    let env = Env::sim(1);
    let read = |text: &str| {
        let db = open(&env, text)?;
        assert_eq!(db.get([3, 0, 0, 0]).unwrap(), Some(vec![7; 4000].into()));
        db.close()
    };
    let db = open(&env, &text).unwrap();
    fill(&db);
    db.close().unwrap();
    assert!(directory.path().join("an, image.logs").exists());
    read(&text).unwrap();
    // The sizes of the beginning count.
    read(&text.replace("small-files=8MiB,", "")).unwrap_or_else(|error| panic!("{error}"));
    read(&text.replace("small-files=8MiB", "small-files=32MiB")).unwrap();
    // It cannot be opened without them, nor with others.
    let error = read(&format!("{text},logs=inside")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert!(error.to_string().contains("no such device"), "{error}");
    let error = read(&format!("{text},logs=ram:64MiB")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    read(&text).unwrap();

    // What was laid out with logs inside stays so.
    let inside = text.replace("an, image", "inside").replace("an%2C image", "inside");
    let db = open(&env, &format!("{inside},logs=inside")).unwrap();
    fill(&db);
    db.close().unwrap();
    read(&inside).unwrap();
    assert!(!directory.path().join("inside.logs").exists());
}

#[test]
fn real_devices_have_their_logs_inside_unless_said() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    let env = Env::real();
    for (disk, logs, devices) in
        [("a", String::new(), 1), ("b", format!(",logs=(dev:{}?size=16MiB)", place("logs")), 2)]
    {
        let text = format!("imr:64MiB?{SIZES},backing=(dev:{}?size=64MiB){logs}", place(disk));
        for _ in 0..2 {
            let db = open(&env, &text).unwrap();
            assert_eq!(db.stack().devices().len(), devices);
            db.put(b"key", b"value").unwrap();
            db.flush().unwrap();
            assert!(db.check().unwrap().is_empty());
            db.close().unwrap();
        }
    }
}

#[test]
fn logs_need_one_conventional_device() {
    let env = Env::sim(1);
    for logs in ["/nowhere", "imr:1GB", "(ram:64MiB+ram:64MiB)"] {
        let text = format!("imr:1GB?logs={logs}");
        let error = StackBuilder::new(&env).build(&spec(&text)).unwrap_err();
        assert!(error.to_string().contains("one conventional device for logs"), "{logs}: {error}");
    }
    // The word means the same for every store.
    let stack = StackBuilder::new(&env).build(&spec("ram:64MiB?logs=inside")).unwrap();
    assert_eq!(stack.devices().len(), 1);
    assert!(spec("ram:64MiB?logs=inside").paths().is_empty());
    assert_eq!(spec("ram:64MiB?logs=./inside").paths().len(), 1);
}
