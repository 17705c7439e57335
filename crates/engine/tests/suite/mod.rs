//! Random writes and reads, and the model they are held against.

use std::collections::BTreeMap;
use varve_engine::{Db, DbIterator, ReadOptions, Snapshot, WriteBatch, WriteOptions};
use varve_env::Random;

/// The state a database should have.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A key out of `universe`, of a shape that exercises shared prefixes, empty keys and lengths.
pub(crate) fn key(random: &mut Random, universe: u64) -> Vec<u8> {
    let number = random.below(universe);
    match number % 7 {
        0 => format!("user{number:012}").into_bytes(),
        1 => number.to_le_bytes().to_vec(),
        2 => vec![0xff; (number % 19) as usize],
        3 => format!("k{number}").into_bytes(),
        4 => vec![b'p'; 8 + (number % 40) as usize],
        5 => format!("dir/{}/{}", number % 5, number).into_bytes(),
        _ => format!("{number:020}").into_bytes(),
    }
}

/// A value; mostly short, sometimes empty, sometimes larger than a block.
pub(crate) fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(20) {
        0 => 0,
        1 => 3000 + random.below(6000),
        2..5 => random.below(600),
        _ => random.below(60),
    };
    let mut bytes = vec![0; length as usize];
    if random.chance(1, 2) {
        random.fill_bytes(&mut bytes);
    } else {
        bytes.fill(random.below(256) as u8);
    }
    bytes
}

/// One of the ways to write, applied to the database and to the model.
pub(crate) fn write(db: &Db, model: &mut Model, random: &mut Random, universe: u64) {
    let options = WriteOptions { sync: random.chance(1, 8) };
    match random.below(6) {
        0 => {
            let key = key(random, universe);
            db.delete_with(&key, &options).expect("delete");
            model.remove(&key);
        }
        1 => {
            let mut batch = WriteBatch::new();
            for _ in 0..random.below(12) {
                let key = key(random, universe);
                if random.chance(1, 3) {
                    batch.delete(&key).expect("delete in batch");
                    model.remove(&key);
                } else {
                    let value = value(random);
                    batch.put(&key, &value).expect("put in batch");
                    model.insert(key, value);
                }
            }
            db.write(batch, &options).expect("write");
        }
        _ => {
            let (key, value) = (key(random, universe), value(random));
            db.put_with(&key, &value, &options).expect("put");
            model.insert(key, value);
        }
    }
}

/// Compares random reads of every kind with the model.
pub(crate) fn compare_reads(
    db: &Db,
    model: &Model,
    snapshot: Option<&Snapshot>,
    random: &mut Random,
    universe: u64,
    note: &str,
) {
    let options = ReadOptions { snapshot, fill_cache: random.chance(1, 2), ..ReadOptions::default() };
    let asked = key(random, universe);
    let found = db.get_with(&asked, &options).expect("get");
    assert_eq!(found.as_deref(), model.get(&asked).map(Vec::as_slice), "get {} {note}", asked.escape_ascii());
    if random.chance(1, 4) {
        let keys: Vec<Vec<u8>> = (0..random.below(9)).map(|_| key(random, universe)).collect();
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for (asked, found) in keys.iter().zip(db.multi_get(&slices, &options)) {
            assert_eq!(found.expect("multi_get").as_deref(), model.get(asked).map(Vec::as_slice), "multi_get {note}");
        }
    }
    if random.chance(1, 4) {
        compare_walk(db, model, options, random, universe, note);
    }
}

fn compare_walk(db: &Db, model: &Model, mut options: ReadOptions<'_>, random: &mut Random, universe: u64, note: &str) {
    if random.chance(1, 3) {
        options.lower_bound = Some(key(random, universe));
    }
    if random.chance(1, 3) {
        options.upper_bound = Some(key(random, universe));
    }
    let (lower, upper) = (options.lower_bound.clone(), options.upper_bound.clone());
    let pairs: Vec<(&Vec<u8>, &Vec<u8>)> = model
        .iter()
        .filter(|(key, _)| {
            lower.as_ref().is_none_or(|lower| *key >= lower) && upper.as_ref().is_none_or(|upper| *key < upper)
        })
        .collect();
    let mut walk = db.iterator(&options).expect("iterator");
    let mut place: Option<usize> = None;
    let target = key(random, universe);
    match random.below(4) {
        0 => {
            walk.seek_to_first();
            place = (!pairs.is_empty()).then_some(0);
        }
        1 => {
            walk.seek_to_last();
            place = pairs.len().checked_sub(1);
        }
        2 => {
            walk.seek(&target);
            let position = pairs.partition_point(|pair| *pair.0 < target);
            place = place.or((position < pairs.len()).then_some(position));
        }
        _ => {
            walk.seek_for_previous(&target);
            place = place.or(pairs.partition_point(|pair| *pair.0 <= target).checked_sub(1));
        }
    }
    for step in 0..random.below(40) {
        expect_at(&walk, place.map(|position| pairs[position]), &format!("step {step} {note}"));
        let Some(position) = place else { break };
        if random.chance(2, 3) {
            walk.next();
            place = (position + 1 < pairs.len()).then_some(position + 1);
        } else {
            walk.previous();
            place = position.checked_sub(1);
        }
    }
    walk.status().expect("status");
}

fn expect_at(walk: &DbIterator, expected: Option<(&Vec<u8>, &Vec<u8>)>, note: &str) {
    assert_eq!(walk.valid(), expected.is_some(), "valid {note} ({:?})", walk.status());
    if let Some((key, value)) = expected {
        assert_eq!(walk.key(), key.as_slice(), "key {note}");
        assert_eq!(walk.value(), value.as_slice(), "value {note}");
    }
}

/// The whole database equals the model, walked forward and backward.
pub(crate) fn compare_all(db: &Db, model: &Model, note: &str) {
    let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
    walk.seek_to_first();
    for (key, value) in model {
        assert!(walk.valid(), "ended before {} {note}: {:?}", key.escape_ascii(), walk.status());
        assert_eq!(walk.key(), key.as_slice(), "{note}");
        assert_eq!(walk.value(), value.as_slice(), "{note}");
        walk.next();
    }
    assert!(!walk.valid(), "more than the model: {} {note}", walk.key().escape_ascii());
    walk.status().expect("status");
    walk.seek_to_last();
    for key in model.keys().rev() {
        assert!(walk.valid(), "backward ended before {} {note}: {:?}", key.escape_ascii(), walk.status());
        assert_eq!(walk.key(), key.as_slice(), "{note}");
        walk.previous();
    }
    assert!(!walk.valid(), "{note}");
}
