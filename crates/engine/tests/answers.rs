//! Arrays without protection information, a member of which has wrong bytes: the readers of the engine and of its store find them
//! with their checksums, and the array answers from redundancy and repairs the wrong copy.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use varve_block::raid::{Array, ArrayOpening, ArrayParameters, Dix, RaidLevel};
use varve_engine::{Db, Media, Options, WriteOptions};
use varve_env::Env;
use varve_media::{Attempt, BlockDeviceExt, Device, Emulated, IoClass, IoContext, MemoryTrace, Operation, TraceDevice};
use varve_store::{ExtentFormatOptions, ExtentStore, FileStore};

const CHUNK_BYTES: u64 = 4 << 10;
const MEMBER_BYTES: u64 = 1536 << 10;
/// Where the data of a small member begin (docs/formats.md, "A member of an array").
const DATA_OFFSET_BYTES: u64 = 128 << 10;
const SECTOR_BYTES: u64 = 512;
const KEYS: u64 = 400;
/// Wrong bytes that are tried in each structure of each array.
const PLACES: usize = 4;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("{number} ").repeat(12).into_bytes()
}

fn options() -> Options {
    Options { write_buffer_size: 16 << 10, verify_checksums: true, ..Options::default() }
}

fn members(env: &Env, contents: &[Vec<u8>]) -> Vec<Device> {
    let member = |(number, content): (usize, &Vec<u8>)| {
        let member = Device::of_blocks(Arc::new(Emulated::immediate(env, &format!("m{number}"), MEMBER_BYTES)));
        if !content.is_empty() {
            member.block.write_at(0, content, &IoContext::default()).expect("a write");
        }
        member
    };
    contents.iter().enumerate().map(member).collect()
}

fn open_array(env: &Env, level: RaidLevel, members: &[Device]) -> (Device, Array) {
    let parameters = ArrayParameters {
        name: "array".to_owned(),
        level,
        chunk_bytes: Some(CHUNK_BYTES),
        dix: Dix::On,
        journal: None,
        protection: None,
    };
    let given: Vec<Option<Device>> = members.iter().cloned().map(Some).collect();
    Array::open(env, &given, &parameters, &ArrayOpening::default()).expect("an array")
}

/// A database on an array: what its members hold, and places of the array by what lies there.
struct Sample {
    level: RaidLevel,
    contents: Vec<Vec<u8>>,
    places: BTreeMap<&'static str, Vec<u64>>,
}

/// What a file holds, by its name.
fn structure(name: &str) -> Option<&'static str> {
    match name {
        "CURRENT" => Some("CURRENT"),
        name if name.starts_with("MANIFEST") => Some("manifest"),
        name if name.ends_with(".log") => Some("log"),
        name if name.starts_with("OPTIONS") || name == "LOCK" => None,
        _ => Some("table"),
    }
}

/// Writes tables, and a log that has the newest values.
fn sample(level: RaidLevel, count: usize) -> Sample {
    let env = Env::real();
    let members = members(&env, &vec![Vec::new(); count]);
    {
        let (device, _array) = open_array(&env, level, &members);
        ExtentStore::format(&env, &device, &ExtentFormatOptions::default()).expect("format");
        let store: Arc<dyn FileStore> = Arc::new(ExtentStore::open(&env, device).expect("a store"));
        let db = Db::open(&env, Media::of_files(store), options()).expect("a database");
        for number in 0..KEYS {
            db.put(&key(number), &value(number)).expect("a put");
        }
        db.flush().expect("flush");
        for number in (0..KEYS).step_by(7) {
            db.put_with(&key(number), &value(number + KEYS), &WriteOptions { sync: true }).expect("a put");
        }
        db.close().expect("close");
    }
    // A resync would make redundancy fit what is wrong.
    open_array(&env, level, &members).1.wait_for_maintenance();
    let contents: Vec<Vec<u8>> = members
        .iter()
        .map(|member| {
            let mut content = vec![0; MEMBER_BYTES as usize];
            member.block.read_at(0, &mut content, &IoContext::default()).expect("a read");
            content
        })
        .collect();
    let places = places(&env, level, &contents);
    Sample { level, contents, places }
}

/// Sectors that are read by a session, by what lies there: not zero, and spread over the structure.
fn places(env: &Env, level: RaidLevel, contents: &[Vec<u8>]) -> BTreeMap<&'static str, Vec<u64>> {
    let stripe_bytes = (contents.len() - level.tolerated(contents.len())) as u64 * CHUNK_BYTES;
    let members = members(env, contents);
    let (device, _array) = open_array(env, level, &members);
    let trace = MemoryTrace::new();
    let traced = TraceDevice::device(env, Arc::new(trace.clone()), &device);
    let store = ExtentStore::open(env, traced).expect("a store");
    let occupancy = store.occupancy();
    let mut files: Vec<(Range<u64>, &'static str)> = Vec::new();
    for piece in &occupancy.pieces {
        let Some(file) = piece.file else { continue };
        if let Some(name) = structure(&occupancy.files[file as usize].name) {
            let (start, end) = (piece.offset_bytes, piece.offset_bytes + piece.used_bytes);
            // A write to a stripe may compute its parity from what is wrong, and opening writes next to the last table.
            files.push(match name {
                "table" => (start.next_multiple_of(stripe_bytes)..end / stripe_bytes * stripe_bytes, name),
                _ => (start..end, name),
            });
        }
    }
    // Everything that opening the store read is its metadata.
    let mut found: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
    let all =
        files.into_iter().flat_map(|(range, name)| range.step_by(SECTOR_BYTES as usize).map(move |at| (at, name)));
    let reads = trace.take().into_iter().filter(|record| record.operation == Operation::Read);
    let of_store = reads.flat_map(|read| {
        let range = read.offset_bytes..read.offset_bytes + read.length_bytes;
        range.step_by(SECTOR_BYTES as usize).map(|at| (at, "store"))
    });
    let all: Vec<(u64, &'static str)> = all.collect();
    let of_store: Vec<(u64, &'static str)> =
        of_store.filter(|(at, _)| all.iter().all(|(file, _)| file != at)).collect();
    for (at, name) in all.into_iter().chain(of_store) {
        let mut sector = vec![0; SECTOR_BYTES as usize];
        device.block.read_at(at, &mut sector, &IoContext::default()).expect("a read");
        // Behind the header of a frame of the store.
        if let Some(place) = sector[24..].iter().position(|byte| *byte != 0) {
            found.entry(name).or_default().push(at + 24 + place as u64);
        }
    }
    let spread = |places: Vec<u64>| {
        let step = places.len().div_ceil(PLACES).max(1);
        places.into_iter().step_by(step).collect()
    };
    found.into_iter().map(|(name, places)| (name, spread(places))).collect()
}

/// Accepted answers by the class of their reads, and in all.
type Accepted = BTreeMap<IoClass, u64>;

/// Opens the database over members with these contents, reads everything, and scrubs.
fn session(sample: &Sample, contents: &[Vec<u8>], what: &str) -> Accepted {
    let env = Env::real();
    let members = members(&env, contents);
    let (device, array) = open_array(&env, sample.level, &members);
    assert!(array.status().is_whole(), "{what}");
    let trace = MemoryTrace::new();
    let traced = TraceDevice::device(&env, Arc::new(trace.clone()), &device);
    let store: Arc<dyn FileStore> =
        Arc::new(ExtentStore::open(&env, traced).unwrap_or_else(|error| panic!("{what}: {error}")));
    let options = Options { create_if_missing: false, ..options() };
    let db = Db::open(&env, Media::of_files(store.clone()), options).unwrap_or_else(|error| panic!("{what}: {error}"));
    for number in 0..KEYS {
        let expected = value(if number % 7 == 0 { number + KEYS } else { number });
        let found = db.get(&key(number)).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(found.as_deref() == Some(&expected[..]), "{what}: get of key {number}");
    }
    let findings = db.check().unwrap_or_else(|error| panic!("{what}: check: {error}"));
    assert!(findings.is_empty(), "{what}: {findings:?}");
    db.close().unwrap_or_else(|error| panic!("{what}: close: {error}"));
    drop((db, store));
    let mut accepted = Accepted::new();
    for context in trace.take().into_iter().filter_map(|record| record.context) {
        if context.attempt == Attempt::Accepted {
            *accepted.entry(context.class).or_default() += 1;
        }
    }
    let statistics = array.statistics();
    assert_eq!(accepted.is_empty(), statistics.accepted_answers == 0, "{what}: {accepted:?} {statistics:?}");
    if statistics.accepted_answers > 0 {
        let report = array.scrub(false, &IoContext::default()).expect("scrub");
        assert_eq!(report.mismatched_stripes, 0, "{what}: {accepted:?} {report:?}");
        assert!(array.incidents().iter().all(|incident| incident.is_repaired), "{what}");
        assert_eq!(statistics.rewritten_columns, statistics.accepted_answers, "{what}");
    }
    accepted
}

/// Wrong bytes under each structure of a database on this array.
fn every_structure_is_answered_and_repaired(level: RaidLevel, count: usize) {
    let sample = sample(level, count);
    let whole = session(&sample, &sample.contents, "nothing is wrong");
    assert!(whole.is_empty(), "without damage nothing is asked for again: {whole:?}");
    let data_columns = count as u64 - level.tolerated(count) as u64;
    let mut repaired: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, places) in &sample.places {
        for &at in places {
            let stripe_bytes = data_columns * CHUNK_BYTES;
            let of_member = DATA_OFFSET_BYTES + at / stripe_bytes * CHUNK_BYTES + at % CHUNK_BYTES;
            // One of them has that byte; the others have another one of the same stripe.
            for slot in 0..count {
                let mut contents = sample.contents.clone();
                contents[slot][of_member as usize] ^= 0x10;
                let what = format!("{level} of {count}: {name} at {at}, member {slot}");
                let accepted = session(&sample, &contents, &what);
                *repaired.entry(name).or_default() += u64::from(!accepted.is_empty());
            }
        }
    }
    println!("reached: answers/{level}: {repaired:?}");
    for name in ["CURRENT", "log", "manifest", "store", "table"] {
        // Some places are of copies that are not read, or of old commits.
        assert!(repaired.get(name).is_some_and(|repaired| *repaired >= 1), "{name}: {repaired:?}");
    }
}

#[test]
fn a_mirror_answers_and_repairs_every_structure() {
    every_structure_is_answered_and_repaired(RaidLevel::Raid1, 2);
}

#[test]
fn one_parity_answers_and_repairs_every_structure() {
    every_structure_is_answered_and_repaired(RaidLevel::Raid5, 3);
}

#[test]
fn two_parities_answer_and_repair_every_structure() {
    every_structure_is_answered_and_repaired(RaidLevel::Raid6, 4);
}
