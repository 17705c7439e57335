//! Tables that share zones: who lies where, what comes back, what is copied, and that nothing is refused for what can be.

use super::load::{Hints, Load};
use super::*;
use crate::band::Need;
use crate::conformance::Model;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A sixteenth of a zone.
pub(super) const TABLE_BYTES: u64 = ZONE_BYTES / 16;

/// On one device, whose zones tables share.
pub(super) fn sharing() -> HybridOpenOptions {
    HybridOpenOptions { shared_zones: Some(true), table_bytes: Some(TABLE_BYTES), tiers: None, ..open_options() }
}

/// An empty store on one device with so many zones, and the device.
pub(super) fn alone(env: &Env, zones: u64) -> Device {
    // What a table of so many small files takes.
    let conventional_zones = 16 + zones;
    let device = zoned(env, "alone", zones + conventional_zones, conventional_zones, 0);
    let format = HybridFormatOptions { table_bytes: Some(TABLE_BYTES), ..HybridFormatOptions::default() };
    HybridStore::format(env, std::slice::from_ref(&device), &format).unwrap();
    device
}

pub(super) fn open_with(env: &Env, device: &Device, options: &HybridOpenOptions) -> HybridStore {
    HybridStore::open(env, vec![device.clone()], options).unwrap()
}

fn name(number: u64) -> String {
    format!("t-{number}")
}

fn write_table(store: &HybridStore, number: u64, level: Option<u8>, bytes: u64) -> Result<(), StoreError> {
    write(store, &name(number), FileKind::Table, level, &content(number, 0, bytes))
}

/// The zones of each table.
fn zones_of_tables(store: &HybridStore) -> BTreeMap<String, BTreeSet<u64>> {
    let occupancy = store.occupancy();
    let mut zones: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for piece in occupancy.pieces.iter().filter(|piece| piece.used_bytes > 0) {
        let file = piece.file.map(|file| &occupancy.files[file as usize]);
        if let Some(file) = file.filter(|file| !file.name.is_empty()) {
            zones.entry(file.name.clone()).or_default().insert(piece.offset_bytes / ZONE_BYTES);
        }
    }
    zones
}

fn shared_zones(store: &HybridStore) -> (u64, u64) {
    store.core.members[0].files.shared_zones()
}

#[test]
fn tables_of_like_lifetimes_share_a_zone_and_others_do_not() {
    let env = Env::sim(1);
    let device = alone(&env, 200);
    let store = open_with(&env, &device, &sharing());
    for number in 0..32 {
        write_table(&store, number, Some((number % 2) as u8 * 2 + 1), TABLE_BYTES).unwrap();
    }
    // Pieces of one zone do not overlap, and are all of it.
    let pieces = store.occupancy().pieces;
    for pair in pieces.windows(2) {
        assert_eq!(pair[0].offset_bytes + pair[0].length_bytes, pair[1].offset_bytes, "{pair:?}");
    }
    let zones = zones_of_tables(&store);
    let of_level = |level: u64| -> BTreeSet<u64> {
        (0..32).filter(|number| number % 2 == level).flat_map(|number| zones[&name(number)].clone()).collect()
    };
    assert_eq!((of_level(0).len(), of_level(1).len()), (1, 1), "{zones:?}");
    assert!(of_level(0).is_disjoint(&of_level(1)));
    assert_eq!(shared_zones(&store), (2, 32 * TABLE_BYTES));
    // One table that is gone gives nothing back, the last of a zone all of it.
    (0..31).step_by(2).for_each(|number| store.remove(&name(number)).unwrap());
    store.sync_names().unwrap();
    assert_eq!(shared_zones(&store), (1, 16 * TABLE_BYTES));
    for number in (1..32).step_by(2) {
        assert_content(&read(&store, &name(number)).unwrap(), number, TABLE_BYTES);
    }
    assert_sound(&store);
}

/// Tables of a size that does not divide a zone go on in the next one, and nothing is left over between them.
#[test]
fn a_table_goes_on_in_the_next_zone() {
    let env = Env::sim(1);
    let device = alone(&env, 100);
    let store = open_with(&env, &device, &sharing());
    let bytes = 5 * 1024;
    (0..32).for_each(|number| write_table(&store, number, Some(1), bytes).unwrap());
    assert_eq!(shared_zones(&store), (5, 32 * bytes));
    assert!(zones_of_tables(&store).values().any(|zones| zones.len() == 2));
    std::mem::forget(store);
    let store = open_with(&env, &device, &sharing());
    (0..32).for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, bytes));
    assert_sound(&store);
}

/// An open finds who shares what, and how far zones are written: what comes next lies behind it.
#[test]
fn another_open_goes_on_where_the_last_one_was() {
    for shares in [true, false] {
        let env = Env::sim(1);
        let device = alone(&env, 100);
        let store = open_with(&env, &device, &sharing());
        (0..5).for_each(|number| write_table(&store, number, Some(1), TABLE_BYTES).unwrap());
        std::mem::forget(store);
        let options = HybridOpenOptions { shared_zones: Some(shares), ..sharing() };
        let store = open_with(&env, &device, &options);
        (5..10).for_each(|number| write_table(&store, number, Some(1), TABLE_BYTES).unwrap());
        let zones: BTreeSet<u64> = zones_of_tables(&store).into_values().flatten().collect();
        assert_eq!(zones.len(), if shares { 1 } else { 6 });
        assert_sound(&store);
        // Who opens it without sharing gives zones back as well.
        (0..5).for_each(|number| store.remove(&name(number)).unwrap());
        store.sync_names().unwrap();
        let free = store.core.members[0].files.zone_use().free;
        assert_eq!(free, if shares { 99 } else { 95 });
        (5..10).for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, TABLE_BYTES));
        assert_sound(&store);
    }
}

/// Tables as large as zones have zones of their own, whatever is asked for; and small ones unless it is, or tables are said to be
/// small.
#[test]
fn only_small_tables_share() {
    for (shared_zones, table_bytes, expected_zones) in [
        (None, None, 8),
        (Some(false), Some(TABLE_BYTES), 8),
        (None, Some(ZONE_BYTES), 8),
        (None, Some(ZONE_BYTES / 2), 1),
        (None, Some(TABLE_BYTES), 1),
        (Some(true), Some(TABLE_BYTES), 1),
    ] {
        let env = Env::sim(1);
        let device = alone(&env, 100);
        let options = HybridOpenOptions { shared_zones, table_bytes, ..sharing() };
        let store = open_with(&env, &device, &options);
        (0..8).for_each(|number| write_table(&store, number, Some(1), TABLE_BYTES).unwrap());
        let zones: BTreeSet<u64> = zones_of_tables(&store).into_values().flatten().collect();
        assert_eq!(zones.len(), expected_zones, "{shared_zones:?}, {table_bytes:?}");
        let create = CreateOptions {
            kind: FileKind::Table,
            level: Some(1),
            expected_size_bytes: Some(ZONE_BYTES * 3 / 4),
            ..CreateOptions::default()
        };
        let mut large = store.create("large", &create).unwrap();
        large.append(&content(9, 0, ZONE_BYTES * 3 / 4), &CONTEXT).unwrap();
        large.sync(&CONTEXT).unwrap();
        large.finish(&CONTEXT).unwrap();
        assert!(zones_of_tables(&store)["large"].is_disjoint(&zones));
        assert_sound(&store);
    }
}

/// Every second table of every zone goes. What is left of zones is given back by copying, when somebody finds no space.
#[test]
fn nothing_is_refused_while_a_zone_could_be_emptied() {
    let env = Env::sim(1);
    let zones = 24;
    let device = alone(&env, zones);
    let options = HybridOpenOptions { cleaning_bytes_per_second: 0, ..sharing() };
    let store = open_with(&env, &device, &options);
    let fill = |from: u64| {
        let refused = (from..).map(|number| (number, write_table(&store, number, Some(1), TABLE_BYTES)));
        let (number, error) = refused.into_iter().find_map(|(at, outcome)| Some(at).zip(outcome.err())).unwrap();
        assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
        let _ = store.remove(&name(number));
        number
    };
    let first = fill(0);
    // Two tables of a zone are kept for compactions, one zone for logs and one for copies.
    assert!(first >= (zones - 5) * 16, "{first} tables on {zones} zones");
    let removed: Vec<u64> = (0..first).step_by(2).collect();
    removed.iter().for_each(|number| store.remove(&name(*number)).unwrap());
    store.sync_names().unwrap();
    let available_bytes = store.space().unwrap().available_bytes;
    let last = fill(first);
    let (written, gone) = (last - first, removed.len() as u64);
    let (emptied, copied) =
        (measure(&store, "zones of tables emptied"), measure(&store, "bytes copied to empty zones"));
    println!("reached: {written} of {gone} tables found space again, {emptied} zones emptied, {copied} bytes copied");
    assert!(written + 16 >= gone, "{written} of {gone}");
    assert!(written * TABLE_BYTES >= available_bytes, "{written} tables, {available_bytes} bytes");
    assert!(available_bytes >= (gone - 48) * TABLE_BYTES, "{available_bytes} bytes of {gone} tables");
    for number in (0..last).filter(|number| !(*number < first && number % 2 == 0)) {
        assert_content(&read(&store, &name(number)).unwrap(), number, TABLE_BYTES);
    }
    assert_sound(&store);
    drop(store);
    let store = open_with(&env, &device, &sharing());
    for number in (0..last).filter(|number| !(*number < first && number % 2 == 0)) {
        assert_content(&read(&store, &name(number)).unwrap(), number, TABLE_BYTES);
    }
    assert_sound(&store);
}

/// A zone that is emptied is not taken from under one who reads it.
#[test]
fn who_reads_a_table_that_is_copied_reads_it_to_the_end() {
    let env = Env::sim(1);
    let device = alone(&env, 40);
    let store = open_with(&env, &device, &HybridOpenOptions { cleaning_bytes_per_second: 0, ..sharing() });
    (0..64).for_each(|number| write_table(&store, number, Some(1), TABLE_BYTES).unwrap());
    (0..64).filter(|number| number % 4 != 0).for_each(|number| store.remove(&name(number)).unwrap());
    store.sync_names().unwrap();
    let files = &store.core.members[0].files;
    let before = zones_of_tables(&store);
    let old = files.open_file(&name(0)).unwrap();
    let reader = store.open(&name(0), &OpenOptions::default()).unwrap();
    while store.core.clean_in_need(0, Need::Space) {}
    let after = zones_of_tables(&store);
    assert_ne!(before[&name(0)], after[&name(0)], "the zone was not emptied");
    // Its zone stays, as long as the old place is read, whatever is written meanwhile.
    for number in 100..500 {
        write_table(&store, number, Some(1), TABLE_BYTES).unwrap();
        store.remove(&name(number)).unwrap();
    }
    let mut data = vec![0; TABLE_BYTES as usize];
    old.read_at(0, &mut data, &CONTEXT).unwrap();
    assert_content(&data, 0, TABLE_BYTES);
    assert!(zones_of_tables(&store).values().all(|zones| zones.is_disjoint(&before[&name(0)])));
    let free = files.zone_use().free;
    drop(old);
    store.core.commit_on(0).unwrap();
    assert_eq!(files.zone_use().free, free + 1, "the zone is free when nobody reads it");
    reader.read_at(0, &mut data, &CONTEXT).unwrap();
    assert_content(&data, 0, TABLE_BYTES);
    assert_sound(&store);
}

/// Zones are emptied in the background no faster than is allowed; whoever finds no space does not wait for that.
#[test]
fn emptying_takes_the_time_that_its_rate_says() {
    let env = Env::sim(1);
    let device = alone(&env, 24);
    let rate = TABLE_BYTES / 2;
    let options = HybridOpenOptions { driver: HybridDriver::Thread, cleaning_bytes_per_second: rate, ..sharing() };
    let store = open_with(&env, &device, &options);
    for number in 0..300 {
        write_table(&store, number, Some(1), TABLE_BYTES).unwrap();
    }
    let began = env.now().as_nanos();
    (0..300).filter(|number| number % 8 != 0).for_each(|number| store.remove(&name(number)).unwrap());
    store.sync_names().unwrap();
    write_table(&store, 300, Some(1), TABLE_BYTES).unwrap();
    let mut copied = Vec::new();
    for _ in 0..20 {
        env.sleep(std::time::Duration::from_secs(1));
        let seconds = (env.now().as_nanos() - began).div_ceil(1_000_000_000);
        copied.push(measure(&store, "bytes copied to empty zones"));
        // A table is counted when it is whole, and so long did it take.
        assert!(copied.last() <= Some(&(rate * seconds)), "{copied:?}");
    }
    println!("reached: {copied:?} bytes copied, second by second");
    assert!(copied[0] == 0 && copied[19] >= 2 * TABLE_BYTES, "{copied:?}");
    // Now space is needed at once.
    let before = env.now().as_nanos();
    let mut number = 1000;
    while write_table(&store, number, Some(1), TABLE_BYTES).is_ok() {
        number += 1;
    }
    assert!(number - 1000 > 200, "{} tables found space", number - 1000);
    let waited = env.now().as_nanos() - before;
    assert!(waited < 2_000_000_000, "writers waited {waited} ns");
    (0..300).step_by(8).for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, TABLE_BYTES));
    assert_sound(&store);
}

/// With every limit of active zones, tables that share zones break none and are refused nothing.
#[test]
fn no_limit_of_active_zones_is_broken_by_zones_that_stay_open() {
    for active_zones_max in 3..=14 {
        for seed in 0..2 {
            let env = Env::sim(seed);
            let devices = formatted(&env, 40, 9, active_zones_max);
            let options = HybridOpenOptions { tiers: Some(TIERS.to_vec()), ..sharing() };
            let mut store = Arc::new(HybridStore::open(&env, devices.clone(), &options).unwrap());
            for part in 0..2 {
                let model = Arc::new(Mutex::new(Model::default()));
                let mut load = Load::new(store.clone(), model, seed + part, Hints::ALL).with_tables_of(4000);
                load.run(200);
                assert!(load.bad_errors().is_empty(), "{active_zones_max}, seed {seed}: {:?}", load.bad_errors());
                assert_sound(&store);
                let names: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.name).collect();
                names.iter().for_each(|name| store.remove(name).unwrap());
                drop(load);
                std::mem::forget(store);
                store = Arc::new(HybridStore::open(&env, devices.clone(), &options).unwrap());
            }
        }
    }
}

/// Writers of several levels at once, on devices of which zones have to be emptied and tables moved meanwhile: nothing is refused
/// that has space, nobody waits for ever, and every table has what was written to it.
#[test]
fn writers_emptying_and_moving_at_once_leave_every_table_whole() {
    let (mut emptied, mut moved) = (0, 0);
    for seed in 0..24 {
        let env = Env::sim(seed);
        let devices = formatted(&env, 16, 9, [0, 4, 6, 14][(seed % 4) as usize]);
        let options = HybridOpenOptions {
            tiers: Some(TIERS.to_vec()),
            driver: HybridDriver::Thread,
            cleaning_bytes_per_second: 1 << 20,
            migration_bytes_per_second: 1 << 20,
            ..sharing()
        };
        let store = Arc::new(HybridStore::open(&env, devices.clone(), &options).unwrap());
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (store, pause) = (store.clone(), env.clone());
                env.spawn("writer", move || {
                    let mut random = varve_env::Random::named(seed, &format!("writer {writer}"));
                    let mut tables: BTreeMap<u64, u64> = BTreeMap::new();
                    for step in 0..250 {
                        let number = writer * 1000 + step;
                        let bytes = 1 + random.below(3 * TABLE_BYTES);
                        let level = Some(random.below(4) as u8);
                        let written = write_table(&store, number, level, bytes);
                        written
                            .unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}, {:?}", store.layout()));
                        tables.insert(number, bytes);
                        // About 60 % of the devices.
                        while tables.len() > 45 {
                            let gone = *tables.keys().nth(random.index(tables.len())).unwrap();
                            tables.remove(&gone);
                            store.remove(&name(gone)).unwrap();
                        }
                        let (at, bytes) = tables.iter().nth(random.index(tables.len())).unwrap();
                        assert_content(&read(&*store, &name(*at)).unwrap(), *at, *bytes);
                        pause.sleep(std::time::Duration::from_millis(random.below(20)));
                    }
                    tables
                })
            })
            .collect();
        let written: Vec<BTreeMap<u64, u64>> =
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|panicked| panicked.resume())).collect();
        emptied += measure(&store, "zones of tables emptied");
        moved += measure(&store, "tables moved to the slow tier") + measure(&store, "tables moved to the fast tier");
        assert_sound(&store);
        drop(store);
        let store =
            HybridStore::open(&env, devices, &HybridOpenOptions { driver: HybridDriver::Caller, ..options }).unwrap();
        for (number, bytes) in written.iter().flatten() {
            assert_content(&read(&store, &name(*number)).unwrap(), *number, *bytes);
        }
        assert_sound(&store);
    }
    println!("reached: writers at once: {emptied} zones emptied, {moved} tables moved");
    assert!(emptied > 10 && moved > 10, "{emptied} zones emptied, {moved} tables moved");
}

/// What a device has of a table that goes on on another one is copied like any other, and is found again behind what is before it.
#[test]
fn a_table_of_two_devices_does_not_keep_the_zones_it_is_in() {
    let env = Env::sim(1);
    let devices = formatted(&env, 12, 7, 0);
    let options = HybridOpenOptions {
        tiers: Some(TIERS.to_vec()),
        migration: MigrationName::None,
        cleaning_bytes_per_second: 0,
        ..sharing()
    };
    let store = HybridStore::open(&env, devices.clone(), &options).unwrap();
    let bytes = 5 * 1024;
    let refused = (0..).find(|number| write_table(&store, *number, Some(1), bytes).is_err()).unwrap();
    store.remove(&name(refused)).unwrap();
    let parts = |number: u64| store.core.find(&name(number)).unwrap().parts();
    let of_two: Vec<u64> = (0..refused).filter(|number| parts(*number).len() > 1).collect();
    assert!(!of_two.is_empty());
    let kept: Vec<u64> = (0..refused).filter(|number| number % 4 == 0 || of_two.contains(number)).collect();
    (0..refused).filter(|number| !kept.contains(number)).for_each(|number| store.remove(&name(number)).unwrap());
    store.sync_names().unwrap();
    for (device, member) in store.core.members.iter().enumerate() {
        while store.core.clean_in_need(device, Need::Space) {}
        let (zones, live_bytes) = member.files.shared_zones();
        assert!(zones * ZONE_BYTES < live_bytes + 2 * ZONE_BYTES, "{zones} zones, {live_bytes} bytes in them");
    }
    assert!(of_two.iter().all(|number| parts(*number).len() == 2));
    assert_sound(&store);
    std::mem::forget(store);
    let store = HybridStore::open(&env, devices, &options).unwrap();
    kept.iter().for_each(|number| assert_content(&read(&store, &name(*number)).unwrap(), *number, bytes));
    assert_sound(&store);
}

/// Where hardly a zone may be active, zones are emptied all the same for who finds no space.
#[test]
fn zones_are_emptied_with_few_active_zones() {
    for active_zones_max in 3..=6 {
        let env = Env::sim(1);
        let device = fast(&env, 20, active_zones_max);
        let devices = std::slice::from_ref(&device);
        HybridStore::format(&env, devices, &HybridFormatOptions::default()).unwrap();
        let store = open_with(&env, &device, &HybridOpenOptions { cleaning_bytes_per_second: 0, ..sharing() });
        let first = (0..).find(|number| write_table(&store, *number, Some(1), TABLE_BYTES).is_err()).unwrap();
        let _ = store.remove(&name(first));
        (0..first).step_by(2).for_each(|number| store.remove(&name(number)).unwrap());
        store.sync_names().unwrap();
        let refused = (first + 1..).find(|number| write_table(&store, *number, Some(1), TABLE_BYTES).is_err()).unwrap();
        let _ = store.remove(&name(refused));
        let again = refused - first - 1;
        assert!(again + 24 >= first / 2, "{active_zones_max} active: {again} of {} tables found space", first / 2);
        let kept = (0..first).filter(|number| number % 2 == 1).chain(first + 1..refused);
        kept.for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, TABLE_BYTES));
        assert_sound(&store);
    }
}
