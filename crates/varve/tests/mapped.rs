//! Databases whose tables are read where the operating system's cache has them: what readers see when a file changes underneath,
//! and that the option changes nothing but how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use varve::{ErrorKind, Options, ReadOptions, Varve};

const PAIRS: u32 = 6_000;

fn options(is_mapped: bool) -> Options {
    Options {
        write_buffer_size: 128 << 10,
        target_file_size_base: 64 << 10,
        block_cache_capacity: 32 << 10,
        allow_mmap_reads: is_mapped,
        ..Options::default()
    }
}

fn open(place: &Path, is_mapped: bool) -> Varve {
    Varve::builder().options(options(is_mapped)).open(place).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![(number % 251) as u8 + 1; 100 + number as usize % 60]
}

/// A database with tables in levels, and what is in it.
fn filled(place: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let db = open(place, true);
    let mut model = BTreeMap::new();
    for round in 0..2 {
        for number in (0..PAIRS).map(|number| number * 7919 % PAIRS).filter(|number| round == 0 || number % 3 == 0) {
            db.put(key(number), value(number + round)).unwrap();
            model.insert(key(number), value(number + round));
        }
    }
    db.compact().unwrap();
    db.close().unwrap();
    model
}

fn tables(place: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let mut tables: Vec<_> = all.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect();
    tables.sort();
    tables
}

/// What a walk over everything gives until its end or its error.
fn walk(db: &Varve, reverse: bool) -> Result<Vec<(Vec<u8>, Vec<u8>)>, ErrorKind> {
    let pairs = db.iter();
    let all: Vec<_> = if reverse { pairs.rev().collect() } else { pairs.collect() };
    all.into_iter()
        .map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).map_err(|error| error.kind()))
        .collect()
}

#[test]
fn answers_are_the_same_mapped_and_read() {
    let place = tempfile::tempdir().unwrap();
    let model = filled(place.path());
    let expected: Vec<_> = model.clone().into_iter().collect();
    for is_mapped in [true, false, true] {
        let db = open(place.path(), is_mapped);
        for number in (0..PAIRS + 10).step_by(7) {
            assert_eq!(db.get(key(number)).unwrap().as_deref(), model.get(&key(number)).map(Vec::as_slice), "{number}");
        }
        assert_eq!(walk(&db, false).unwrap(), expected);
        let mut backwards = walk(&db, true).unwrap();
        backwards.reverse();
        assert_eq!(backwards, expected);
        db.close().unwrap();
    }
}

/// Bytes of the tables change after every key was read: each answer is right, or an error. Reads once trusted what they had verified,
/// and gave a wrong value for every changed byte.
#[test]
fn bytes_that_change_after_they_were_read_are_errors_and_no_wrong_values() {
    for is_mapped in [true, false] {
        for block_cache_capacity in [0, 64 << 10] {
            let place = tempfile::tempdir().unwrap();
            let model = filled(place.path());
            let options = Options { block_cache_capacity, ..options(is_mapped) };
            let db = Varve::builder().options(options).open(place.path()).unwrap();
            for number in 0..PAIRS {
                assert!(db.get(key(number)).unwrap().is_some());
            }
            for table in tables(place.path()) {
                let file = std::fs::File::options().read(true).write(true).open(&table).unwrap();
                let size_bytes = file.metadata().unwrap().len();
                for at in (500..size_bytes * 3 / 4).step_by(9_000) {
                    use std::os::unix::fs::FileExt;
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
                }
            }
            for verify_checksums in [None, Some(true)] {
                let reading = || ReadOptions { verify_checksums, ..ReadOptions::default() };
                let (mut wrong, mut refused) = (0, 0);
                for number in 0..PAIRS {
                    match db.get_with(key(number), &reading()) {
                        Ok(found) => {
                            wrong += u32::from(found.as_deref() != model.get(&key(number)).map(Vec::as_slice));
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                            refused += 1;
                        }
                    }
                }
                let what = format!("mapped {is_mapped}, cache {block_cache_capacity}, verify {verify_checksums:?}");
                assert!(wrong == 0 && refused > 500, "{what}: {wrong} wrong, {refused} refused");
                for reverse in [false, true] {
                    assert_eq!(walk(&db, reverse).unwrap_err(), ErrorKind::Corruption, "{what}");
                }
            }
            let _ = db.close();
        }
    }
}

/// Tables are cut under a database that has read them, and under one that has not: what is lost is told, by gets, walks both
/// ways, checks and compactions, and what is not is there.
#[test]
fn a_table_cut_short_underneath_is_an_error_and_what_is_elsewhere_is_read() {
    for was_read in [true, false] {
        for kept_part in [0, 1, 2, 15] {
            let place = tempfile::tempdir().unwrap();
            let model = filled(place.path());
            let db = open(place.path(), true);
            // Each table is open, and of some a block was read.
            for number in (0..PAIRS).step_by(if was_read { 1 } else { 97 }) {
                assert!(db.get(key(number)).unwrap().is_some());
            }
            let tables = tables(place.path());
            assert!(tables.len() > 4, "{tables:?}");
            let cut = std::fs::File::options().write(true).open(&tables[tables.len() / 2]).unwrap();
            let size_bytes = cut.metadata().unwrap().len();
            cut.set_len(size_bytes * kept_part / 16).unwrap();
            let (mut told, mut found) = (0, 0);
            for number in 0..PAIRS {
                match db.get(key(number)) {
                    // A block that is in the cache is there still.
                    Ok(value) => {
                        assert_eq!(value.as_deref(), model.get(&key(number)).map(Vec::as_slice), "{number}");
                        found += 1;
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io), "{error}");
                        told += 1;
                    }
                }
            }
            assert!(
                told > 0 && found > PAIRS / 2,
                "read before {was_read}, {kept_part}/16 kept: {told} told, {found} found"
            );
            for reverse in [false, true] {
                let error = walk(&db, reverse).unwrap_err();
                assert!(matches!(error, ErrorKind::Corruption | ErrorKind::Io), "{error:?}");
            }
            assert!(db.check().map_or(true, |findings| !findings.is_empty()));
            db.put(key(0), b"newer").unwrap();
            // A rewrite of everything meets the table.
            for number in 0..PAIRS {
                db.put(key(number), b"newer").unwrap();
            }
            db.compact().unwrap_err();
            let _ = db.close();
        }
    }
}

/// Set, to its place, in the process that is going to be killed.
const WRITES_UNTIL_KILLED: &str = "VARVE_TEST_WRITES_UNTIL_KILLED";

/// Logs of a window and more, so that most of it was written through memory.
#[test]
fn what_a_killed_process_wrote_through_memory_is_there() {
    use std::io::{BufRead, BufReader, Write};
    if let Some(place) = std::env::var_os(WRITES_UNTIL_KILLED) {
        let db = Varve::open(place).unwrap();
        let mut out = std::io::stdout().lock();
        for number in 0.. {
            let options = varve::WriteOptions { sync: number % 7_000 == 6_999 };
            db.put_with(key(number), value(number), &options).unwrap();
            writeln!(out, "acknowledged {number}").unwrap();
        }
    }
    for killed_after in [100, 900, 8_000, 15_000, 40_000] {
        let place = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "what_a_killed_process_wrote_through_memory_is_there"])
            .env(WRITES_UNTIL_KILLED, place.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            // The last line may have been cut.
            let Some(number) = line.unwrap().strip_prefix("acknowledged ").and_then(|number| number.parse().ok())
            else {
                continue;
            };
            acknowledged = acknowledged.max(number);
            if number == killed_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(acknowledged >= killed_after);
        let db = Varve::open(place.path()).unwrap();
        let found = db.iter().count() as u32;
        assert!(found > acknowledged, "{found} of {acknowledged} acknowledged");
        for number in 0..found {
            assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&value(number)[..]), "{number} of {found}");
        }
        db.close().unwrap();
    }
}
