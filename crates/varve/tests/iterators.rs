//! Iterators from both ends, against a map of the standard library.

use std::collections::BTreeMap;
use std::ops::Bound;
use varve::env::{Env, Random};
use varve::{ErrorKind, Iter, Key, Options, ReadOptions, Value, Varve, WriteBatch};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database in virtual time whose memtables and tables are small.
fn database(seed: u64) -> Varve {
    let options = Options {
        write_buffer_size: 8 << 10,
        target_file_size_base: 8 << 10,
        block_size: 512,
        level0_file_num_compaction_trigger: 2,
        max_bytes_for_level_base: 32 << 10,
        ..Options::default()
    };
    let spec = "ram:64MiB".parse().unwrap();
    Varve::builder().env(&Env::sim(seed)).options(options).open_spec(&spec).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:03}").into_bytes()
}

/// Puts and deletes, in the database and the map.
fn change(db: &Varve, map: &mut Map, random: &mut Random, count: u64) {
    for _ in 0..count {
        let key = key(random.below(200));
        if random.chance(1, 3) {
            db.delete(&key).unwrap();
            map.remove(&key);
        } else {
            let value = vec![random.below(256) as u8; random.below(200) as usize];
            db.put(&key, &value).unwrap();
            map.insert(key, value);
        }
    }
    if random.chance(1, 4) {
        db.compact().unwrap();
    }
}

/// Takes pairs from both as chance will have it, until neither has any, and some calls beyond.
fn compare<'a>(
    mut found: Iter,
    mut expected: impl DoubleEndedIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    random: &mut Random,
    note: &str,
) {
    let from_back = [0, 1, 5, 9, 10][random.index(5)];
    let mut calls_left = 3;
    while calls_left > 0 {
        let (found, expected) = match random.chance(from_back, 10) {
            true => (found.next_back(), expected.next_back()),
            false => (found.next(), expected.next()),
        };
        let found: Option<(Key, Value)> = found.map(|pair| pair.unwrap_or_else(|error| panic!("{note}: {error}")));
        let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(
            found,
            expected.map(|(key, value)| (&key[..], &value[..])),
            "{note}, {from_back} of 10 from the back"
        );
        if expected.is_none() {
            calls_left -= 1;
        }
    }
}

#[test]
fn iterators_agree_with_a_map_from_both_ends() {
    for seed in 0..24 {
        let note = format!("seed {seed}");
        let mut random = Random::seeded(seed);
        let (db, mut map) = (database(seed), Map::new());
        for _ in 0..8 {
            let count = random.below(150);
            change(&db, &mut map, &mut random, count);
            let snapshot = db.snapshot();
            let (was, iter) = (map.clone(), db.iter());
            // What comes later is in none of them, not even where an end is used for the first time then.
            change(&db, &mut map, &mut random, 60);
            compare(iter, was.iter(), &mut random, &note);
            compare(snapshot.iter(), was.iter(), &mut random, &note);
            compare(db.iter(), map.iter(), &mut random, &note);

            let bound = |random: &mut Random| match random.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(key(random.below(210))),
                _ => Bound::Excluded(key(random.below(210))),
            };
            let bounds = (bound(&mut random), bound(&mut random));
            let inside = |key: &Vec<u8>| std::ops::RangeBounds::contains(&bounds, key);
            let note = format!("{note} {bounds:?}");
            let expected = map.iter().filter(|(key, _)| inside(key));
            compare(db.range(bounds.clone()), expected, &mut random, &note);
            let expected = was.iter().filter(|(key, _)| inside(key));
            compare(snapshot.range(bounds.clone()), expected, &mut random, &note);

            let prefix = &key(random.below(200))[..random.index(4)];
            let note = format!("{note} prefix {}", prefix.escape_ascii());
            let begins = |key: &Vec<u8>| key.starts_with(prefix);
            compare(db.prefix(prefix), map.iter().filter(|(key, _)| begins(key)), &mut random, &note);
            compare(snapshot.prefix(prefix), was.iter().filter(|(key, _)| begins(key)), &mut random, &note);
            let options = ReadOptions { fill_cache: false, ..ReadOptions::default() }.with_prefix(prefix);
            compare(db.iter_with(&options), map.iter().filter(|(key, _)| begins(key)), &mut random, &note);
        }
        db.close().unwrap();
    }
}

#[test]
fn adaptors_of_the_standard_library_work() {
    let db = database(1);
    assert!(db.iter().next().is_none() && db.iter().next_back().is_none());
    let mut batch = WriteBatch::new();
    for number in 0..100 {
        batch.put(key(number), number.to_string()).unwrap();
    }
    db.write(batch).unwrap();
    let back: Vec<Key> = db.iter().rev().take(2).map(|pair| pair.unwrap().0).collect();
    assert_eq!(back, [Key::from(key(99)), Key::from(key(98))]);
    assert_eq!(db.range(key(10)..key(20)).count(), 10);
    assert_eq!(db.range("010"..="020").count(), 11);
    assert_eq!(db.range::<&[u8], _>(..).count(), 100);
    assert_eq!(db.range("5".."1").count() + db.range("5".."5").rev().count(), 0);
    assert_eq!(db.prefix("09").collect::<Result<Vec<_>, _>>().unwrap().len(), 10);
    let mut both = db.range(key(40)..key(43));
    let mut take = |back: bool| {
        let pair = if back { both.next_back() } else { both.next() };
        pair.map(|pair| pair.unwrap().1.into_vec())
    };
    let values = [take(true), take(false), take(false), take(false), take(true)];
    assert_eq!(values.map(|value| value.map(|value| value[1] - b'0')), [Some(2), Some(0), Some(1), None, None]);
}

/// An iterator is a handle: it goes on when the others are gone, and ends with one error when the database is closed.
#[test]
fn an_iterator_outlives_the_handle_it_came_from() {
    let db = database(2);
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let mut iter = db.iter();
    assert_eq!(iter.next().unwrap().unwrap().0, "a");
    drop(db);
    assert_eq!(iter.next_back().unwrap().unwrap().0, "b");
    assert!(iter.next().is_none() && iter.next_back().is_none());

    let db = database(3);
    db.put("a", "1").unwrap();
    let (mut iter, snapshot) = (db.iter(), db.snapshot());
    db.close().unwrap();
    assert_eq!(iter.next().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(iter.next().is_none() && iter.next_back().is_none());
    assert_eq!(snapshot.get("a").unwrap_err().kind(), ErrorKind::Closed);
}

/// Whatever the database stood on, and wherever iterators stood in tables and memtables.
#[test]
fn iterators_end_with_closed_once_the_database_is_closed() {
    let place = tempfile::tempdir().unwrap();
    let media = [
        "file:@/directory",
        "dev:@/device?size=32MiB",
        "disk:32MiB",
        "disk:32MiB?layout=ext4",
        "ssd:32MiB?logs=(ssd:8MiB)",
        "smr:32MiB?band=256KiB,conventional=8MiB",
        "zns:32MiB?zone=256KiB",
        "ram:32MiB",
    ];
    for (number, medium) in media.iter().enumerate() {
        for tree in varve::TreeKind::ALL {
            for allow_mmap_reads in [true, false] {
                let note = format!("{medium}, {tree:?}, mapped reads: {allow_mmap_reads}");
                let unique = format!("{}/{}-{allow_mmap_reads}", place.path().display(), tree.name());
                let text = medium.replace('@', &unique);
                if let Some(path) = text.strip_prefix("file:").or(text.strip_prefix("dev:")) {
                    std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
                }
                let options = Options {
                    tree: Some(tree),
                    allow_mmap_reads,
                    write_buffer_size: 64 << 10,
                    target_file_size_base: 64 << 10,
                    block_size: 512,
                    block_cache_capacity: 0,
                    ..Options::default()
                };
                let builder = Varve::builder().options(options);
                let builder = if medium.contains('@') { builder } else { builder.env(&Env::sim(number as u64)) };
                let db = builder.open_spec(&text.parse().unwrap()).unwrap_or_else(|error| panic!("{note}: {error}"));
                let mut map = Map::new();
                change(&db, &mut map, &mut Random::seeded(7), 1500);
                db.flush().unwrap();
                change(&db, &mut map, &mut Random::seeded(8), 100);
                let moves: [fn(&mut varve::Cursor); 6] = [
                    |cursor| cursor.next(),
                    |cursor| cursor.previous(),
                    |cursor| cursor.seek_to_first(),
                    |cursor| cursor.seek_to_last(),
                    |cursor| cursor.seek("100"),
                    |cursor| cursor.seek_for_previous("100"),
                ];
                let begin: [fn(&mut varve::Cursor); 2] =
                    [|cursor| cursor.seek_to_first(), |cursor| cursor.seek_for_previous("150")];
                let mut cursors = Vec::new();
                for (begin, to) in begin.iter().flat_map(|begin| moves.iter().map(move |to| (begin, to))) {
                    let mut cursor = db.cursor(&ReadOptions::default()).unwrap();
                    begin(&mut cursor);
                    assert!(cursor.valid(), "{note}");
                    cursors.push((cursor, to));
                }
                db.close().unwrap();
                for (cursor, to) in &mut cursors {
                    to(cursor);
                    assert!(!cursor.valid(), "{note}: stands on {}", cursor.key().escape_ascii());
                    assert_eq!(cursor.status().unwrap_err().kind(), ErrorKind::Closed, "{note}");
                    cursor.next();
                    cursor.seek_to_first();
                    assert_eq!(cursor.status().unwrap_err().kind(), ErrorKind::Closed, "{note}");
                }
            }
        }
    }
}

/// A block that is damaged is one error, from whichever end, after sound pairs only; then there is nothing more.
#[test]
fn a_damaged_block_is_one_error_and_the_end() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("db");
    let options = || Options { block_size: 512, compression: varve::Compression::None, ..Options::default() };
    let open = || Varve::builder().options(options()).open(&path).unwrap();
    let db = open();
    for number in 0..500 {
        db.put(key(number), [number as u8; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let table = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let table = table.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "sst")).unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    // In the value of a key in the middle.
    let at = bytes.windows(100).position(|window| window == [250; 100]).unwrap();
    bytes[at + 50] ^= 1;
    std::fs::write(&table, &bytes).unwrap();

    let db = open();
    let walk = |from_back: &dyn Fn(usize) -> bool| {
        let mut iter = db.iter();
        let (mut pairs, mut errors) = (0, 0);
        for step in 0.. {
            match if from_back(step) { iter.next_back() } else { iter.next() } {
                Some(Ok((key, value))) => {
                    assert_eq!(errors, 0, "a pair after an error");
                    let number: u64 = std::str::from_utf8(&key).unwrap().parse().unwrap();
                    assert_eq!(value, [number as u8; 100]);
                    pairs += 1;
                }
                Some(Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                    errors += 1;
                }
                None => break,
            }
        }
        assert!(iter.next().is_none() && iter.next_back().is_none());
        assert_eq!(errors, 1);
        pairs
    };
    let (front, back) = (walk(&|_| false), walk(&|_| true));
    assert!((200..250).contains(&front) && (200..250).contains(&back), "{front} {back}");
    assert!(walk(&|step| step % 2 == 0) > 400);
    // What lies elsewhere is read.
    assert_eq!(db.range(key(0)..key(100)).filter_map(Result::ok).count(), 100);
}
