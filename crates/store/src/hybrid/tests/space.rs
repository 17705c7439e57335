//! Zones: how many may be active, who gets the last, what happens when a device has no more. Among others what ZenFS was
//! reported for (westerndigitalcorporation/zenfs).

use super::load::{Hints, Load};
use super::*;
use crate::conformance::Model;
use parking_lot::Mutex;
use std::sync::Arc;
use varve_env::SimOptions;

/// Zones of both devices that hold nothing, and are kept for nobody who is refused: those that `no space` may not leave.
fn empty_zones(store: &HybridStore) -> [u32; 2] {
    // The slow device keeps two tables of a zone for compactions and a zone for its own logs.
    let free = |device: usize| store.core.members[device].files.zone_use().free;
    [free(0).saturating_sub(3), free(1)]
}

fn cache_zones(store: &HybridStore) -> usize {
    store.core.cache.as_ref().map_or(0, |cache| cache.zones.lock().len())
}

/// A user reads blocks of a table, and the cache gives them up.
fn read_and_evict(store: &HybridStore, name: &str) {
    let reader = store.open(name, &OpenOptions::default()).unwrap();
    for at in (0..reader.size_bytes()).step_by(4096) {
        let mut data = vec![0; (reader.size_bytes() - at).min(4096) as usize];
        reader.read_at(at, &mut data, &IoContext::of(IoClass::UserRead)).unwrap();
        store.hint(&Hint::CacheEvicted { file: name, offset_bytes: at, bytes: &data });
        store.core.fill_cache();
    }
}

#[test]
fn no_limit_of_active_zones_is_ever_broken() {
    for active_zones_max in 3..=14 {
        for seed in 0..3 {
            let env = Env::sim(seed);
            let store = Arc::new(open(&env, &formatted(&env, 60, 9, active_zones_max)));
            let mut load = Load::new(store.clone(), Arc::new(Mutex::new(Model::default())), seed, Hints::ALL);
            load.run(300);
            // A tree that writes one table at a time has to wait for nobody.
            assert!(load.bad_errors().is_empty(), "{active_zones_max}, seed {seed}: {:?}", load.bad_errors());
            assert_sound(&store);
        }
    }
    let env = Env::sim(1);
    let devices = [slow(&env, 40), fast(&env, 9, 2)];
    let error = HybridStore::format(&env, &devices, &format_options()).unwrap_err().to_string();
    assert!(error.contains("lets 2 zones be active, and this store needs 3"), "{error}");
}

/// Twelve jobs, a log, cached blocks and tables on their way: more than may be active. All of them come to their end.
#[test]
fn jobs_that_want_more_zones_than_may_be_active_wait_for_each_other() {
    for active_zones_max in [3, 4, 5, 8, 14] {
        let env =
            Env::sim_with(SimOptions { seed: u64::from(active_zones_max), perturb: true, ..SimOptions::default() });
        let devices = formatted(&env, 120, 40, active_zones_max);
        let options = HybridOpenOptions { driver: HybridDriver::Thread, ..open_options() };
        let store = Arc::new(HybridStore::open(&env, devices, &options).unwrap());
        let jobs: Vec<_> = (0..12_u64)
            .map(|job| {
                let store = store.clone();
                env.spawn("job", move || {
                    for table in 0..3 {
                        let (name, number) = (format!("t-{job}-{table}"), 100 * job + table);
                        let data = content(number, 0, 20_000);
                        write(&*store, &name, FileKind::Table, Some((job % 3) as u8), &data).unwrap();
                        let mut block = vec![0; 4096];
                        let reader = store.open(&name, &OpenOptions::default()).unwrap();
                        reader.read_at(0, &mut block, &IoContext::of(IoClass::UserRead)).unwrap();
                        store.hint(&Hint::CacheEvicted { file: &name, offset_bytes: 0, bytes: &block });
                    }
                })
            })
            .collect();
        let mut log = create(&*store, "log", FileKind::Log, None);
        for step in 0..100 {
            log.append(&content(7, step * 2000, 2000), &CONTEXT).unwrap();
            log.sync(&CONTEXT).unwrap();
        }
        jobs.into_iter().for_each(|job| job.join().unwrap_or_else(|panicked| panicked.resume()));
        drop(log);
        assert_content(&read(&*store, "log").unwrap(), 7, 200_000);
        for (job, table) in (0..12_u64).flat_map(|job| (0..3).map(move |table| (job, table))) {
            assert_content(&read(&*store, &format!("t-{job}-{table}")).unwrap(), 100 * job + table, 20_000);
        }
        assert_sound(&store);
    }
}

/// ZenFS 114: tables had every zone that may be active, and the write-ahead log waited for them.
#[test]
fn a_log_gets_a_zone_though_tables_have_all_others() {
    for active_zones_max in [3, 4, 14] {
        let env = Env::sim(1);
        let options = HybridOpenOptions { placement: PlacementName::Basic(4), ..open_options() };
        let devices = formatted(&env, 60, 30, active_zones_max);
        let store = HybridStore::open(&env, devices, &options).unwrap();
        let mut tables = Vec::new();
        for number in 0..20 {
            let mut table = create(&store, &format!("t-{number}"), FileKind::Table, Some(0));
            table.append(&content(number, 0, 10_000), &CONTEXT).unwrap();
            table.sync(&CONTEXT).unwrap();
            tables.push(table);
        }
        // One zone is the log's, and one that of each copy of the band table. What nobody waits with goes to the other device.
        let of_metadata = if active_zones_max < 4 { 1 } else { 2 };
        let is_fast = |number: &u64| devices_of(&store, &format!("t-{number}")) == [1];
        assert_eq!((0..20).filter(is_fast).count() as u32, active_zones_max - 1 - of_metadata);
        let mut log = create(&store, "log", FileKind::Log, None);
        for step in 0..40 {
            log.append(&content(7, step * 3000, 3000), &CONTEXT).unwrap();
            log.sync(&CONTEXT).unwrap();
        }
        assert_eq!(devices_of(&store, "log"), [1]);
        assert_eq!(measure(&store, "waits for a zone"), 0);
        drop(tables);
        assert_content(&read(&store, "log").unwrap(), 7, 120_000);
        assert_sound(&store);
    }
}

/// ZenFS 271, 284, 306: "no space" with zones that were empty. Whatever is refused, there is none.
#[test]
fn nothing_is_refused_while_a_zone_is_empty() {
    for placement in PlacementName::ALL {
        for (size_bytes, kind) in [(9000, FileKind::Table), (50_000, FileKind::Table), (30_000, FileKind::Log)] {
            let what = format!("{placement:?}, {kind:?} of {size_bytes}");
            let env = Env::sim(1);
            let options = HybridOpenOptions { placement: *placement, ..open_options() };
            let store = HybridStore::open(&env, formatted(&env, 30, 10, 5), &options).unwrap();
            let mut number = 0;
            let refused = loop {
                let name = format!("f-{number}");
                match write(&store, &name, kind, Some((number % 5) as u8), &content(number, 0, size_bytes)) {
                    Ok(()) if kind == FileKind::Table => read_and_evict(&store, &name),
                    Ok(()) => {}
                    Err(error) => break error,
                }
                number += 1;
            };
            assert_eq!(refused.kind(), StoreErrorKind::NoSpace, "{what}: {refused}");
            assert_eq!(empty_zones(&store), [0, 0], "{what}, after {number}: {refused}");
            assert_eq!(cache_zones(&store), 0, "{what}, after {number}: {refused}");
            for number in 0..number {
                assert_content(&read(&store, &format!("f-{number}")).unwrap(), number, size_bytes);
            }
            assert_sound(&store);
        }
    }
}

/// ZenFS 65: space that removed files had was not there again. What is said to be available is, and all of it comes back.
#[test]
fn what_is_available_can_be_written_and_comes_back() {
    let env = Env::sim(1);
    let devices = formatted(&env, 40, 10, 5);
    let mut store = open(&env, &devices);
    let at_first = store.space().unwrap().available_bytes;
    for round in 0..4 {
        let available = store.space().unwrap().available_bytes;
        let mut written = 0;
        for number in 0.. {
            let name = format!("t-{number}");
            match write(&store, &name, FileKind::Table, Some((number % 4) as u8), &content(number, 0, ZONE_BYTES)) {
                Ok(()) => written += ZONE_BYTES,
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::NoSpace, "{error}");
                    store.remove(&name).unwrap();
                    break;
                }
            }
        }
        assert_eq!(written, available, "round {round}");
        assert_eq!(store.space().unwrap().available_bytes, 0, "round {round}");
        for entry in store.list().unwrap() {
            store.remove(&entry.name).unwrap();
        }
        store.sync_names().unwrap();
        assert_eq!(store.space().unwrap().available_bytes, at_first, "round {round}");
        if round % 2 == 1 {
            store = reopen(&env, store, &devices);
        }
        assert_sound(&store);
    }
}

/// ZenFS 61, 293: a table of files that did not fit a metadata zone rolled over without end. As many names as there is space for
/// are made, a roll-over makes space for many commits, and what is refused then is told.
#[test]
fn a_full_band_table_rolls_over_now_and_then_and_no_more() {
    let env = Env::sim(1);
    let devices = formatted(&env, 40, 10, 3);
    let store = open(&env, &devices);
    let name = |number: u64| format!("{number:0>250}");
    let mut made = 0;
    let refused = loop {
        let mut file = match store.create(&name(made), &CreateOptions::default()) {
            Ok(file) => file,
            Err(error) => break error,
        };
        file.append(&made.to_le_bytes(), &CONTEXT).unwrap();
        file.sync(&CONTEXT).unwrap();
        file.finish(&CONTEXT).unwrap();
        made += 1;
    };
    assert_eq!(refused.kind(), StoreErrorKind::NoSpace, "{refused}");
    assert!(made > 500, "{made} names");
    // What there is can be changed, for ever.
    let before = (measure(&store, "commits"), measure(&store, "checkpoints"));
    for round in 0..3000 {
        store.remove(&name(round % 100)).unwrap();
        write(&store, &name(round % 100), FileKind::Other, None, &round.to_le_bytes()).unwrap();
    }
    let (commits, checkpoints) = (measure(&store, "commits") - before.0, measure(&store, "checkpoints") - before.1);
    assert!(checkpoints > 2 && checkpoints * 20 < commits, "{checkpoints} checkpoints in {commits} commits");
    assert_sound(&store);
    let store = reopen(&env, store, &devices);
    for number in 0..made {
        let expected = if number < 100 { 2900 + number } else { number };
        assert_eq!(read(&store, &name(number)).unwrap(), expected.to_le_bytes());
    }
}

/// A table of several zones, one that is larger than what the fast device has left, and one larger than all of that device.
#[test]
fn tables_that_outgrow_a_zone_or_a_device_go_on() {
    for is_expected in [false, true] {
        let env = Env::sim(1);
        let devices = formatted(&env, 60, 8, 5);
        let options = HybridOpenOptions { placement: PlacementName::Basic(4), ..open_options() };
        let mut store = HybridStore::open(&env, devices.clone(), &options).unwrap();
        for (number, zones) in [(1, 3), (2, 4), (3, 12)] {
            let size_bytes = zones * ZONE_BYTES + 77;
            let options = CreateOptions {
                kind: FileKind::Table,
                level: Some(0),
                expected_size_bytes: is_expected.then_some(size_bytes),
                ..CreateOptions::default()
            };
            let name = format!("t-{number}");
            let mut table = store.create(&name, &options).unwrap();
            for piece in content(number, 0, size_bytes).chunks(3000) {
                table.append(piece, &CONTEXT).unwrap();
            }
            table.sync(&CONTEXT).unwrap();
            table.finish(&CONTEXT).unwrap();
        }
        for _ in 0..2 {
            for (number, zones) in [(1, 3), (2, 4), (3, 12)] {
                assert_content(&read(&store, &format!("t-{number}")).unwrap(), number, zones * ZONE_BYTES + 77);
            }
            assert_sound(&store);
            store = reopen(&env, store, &devices);
        }
    }
}

/// A log goes on on the other device in the middle of a record, over and over; whoever reads it sees one log.
#[test]
fn a_log_goes_on_in_the_middle_of_a_record() {
    let env = Env::sim(1);
    let devices = formatted(&env, 60, 4, 0);
    let store = open(&env, &devices);
    let mut log = create(&store, "log", FileKind::Log, None);
    let (mut written, mut piece) = (0, 0);
    // Records of 1000 bytes, in pieces that end anywhere.
    while written < 6 * ZONE_BYTES {
        piece = piece % 1900 + 37;
        log.append(&content(1, written, piece), &CONTEXT).unwrap();
        log.flush(&CONTEXT).unwrap();
        written += piece;
    }
    log.sync(&CONTEXT).unwrap();
    assert_eq!(devices_of(&store, "log"), [1, 0]);
    let parts = store.core.files.read()["log"].parts();
    assert!(!parts[1].start_bytes.is_multiple_of(1000), "{}", parts[1].start_bytes);
    drop((log, parts));
    let store = reopen(&env, store, &devices);
    assert_content(&read(&store, "log").unwrap(), 1, written);
    // Reads that begin and end on both sides.
    let reader = store.open("log", &OpenOptions::default()).unwrap();
    let middle = store.core.files.read()["log"].parts()[1].start_bytes;
    for (before, length) in [(1, 2), (1000, 1000), (1000, 1001), (0, 5), (4096, 9000)] {
        let mut data = vec![0; length as usize];
        reader.read_at(middle - before, &mut data, &CONTEXT).unwrap();
        assert!(data == content(1, middle - before, length));
    }
    store.remove("log").unwrap();
    store.sync_names().unwrap();
    let store = reopen(&env, store, &devices);
    assert_eq!(store.list().unwrap(), []);
    assert_sound(&store);
}

/// Whoever reads a cache zone that is given up reads it to the end, however much is written meanwhile.
#[test]
fn a_cache_zone_is_not_taken_from_under_a_reader() {
    let env = Env::sim(1);
    let options = HybridOpenOptions { migration: MigrationName::None, log_and_cache_zones: 4, ..open_options() };
    let store = HybridStore::open(&env, formatted(&env, 60, 6, 8), &options).unwrap();
    for number in 0..8 {
        write(&store, &format!("t-{number}"), FileKind::Table, Some(3), &content(number, 0, 30_000)).unwrap();
    }
    let slow: Vec<u64> = (0..8).filter(|number| devices_of(&store, &format!("t-{number}")) == [0]).collect();
    assert!(slow.len() >= 4, "{slow:?}");
    slow[..2].iter().for_each(|number| read_and_evict(&store, &format!("t-{number}")));
    let cache = store.core.cache.as_ref().unwrap();
    let file = store.core.files.read()[&format!("t-{}", slow[0])].number();
    let (reader, at) = cache.zones.lock().find((file, 4096)).pop().expect("the block is cached");
    // Logs take every zone there is.
    let mut log = create(&store, "log", FileKind::Log, None);
    for step in 0..100 {
        log.append(&content(9, step * 4000, 4000), &CONTEXT).unwrap();
        log.sync(&CONTEXT).unwrap();
    }
    assert!(cache.zones.lock().find((file, 4096)).is_empty(), "the zone was not given up");
    let mut data = vec![0; 4096];
    reader.read_at(at, &mut data, &CONTEXT).unwrap();
    assert!(data == content(slow[0], 4096, 4096));
    drop(reader);
    for number in slow {
        assert_content(&read(&store, &format!("t-{number}")).unwrap(), number, 30_000);
    }
    assert_sound(&store);
}

/// Of the zones that logs and cache share tables leave so many, whatever is written, read and moved.
#[test]
fn zones_for_logs_and_cache_are_left_to_them() {
    for placement in [PlacementName::WriteGuided, PlacementName::Auto] {
        for seed in 0..6 {
            let env = Env::sim(seed);
            let options = HybridOpenOptions { placement, log_and_cache_zones: 3, ..open_options() };
            let store = Arc::new(HybridStore::open(&env, formatted(&env, 60, 9, 6), &options).unwrap());
            let mut load = Load::new(store.clone(), Arc::new(Mutex::new(Model::default())), seed, Hints::ALL);
            for step in 0..400 {
                load.run(1);
                let view = store.core.view();
                let left = view.empty_zones + view.log_zones + view.cache_zones;
                assert!(left >= 3, "{placement:?}, seed {seed}, step {step}: {view:?}");
                let tables: u64 = view.levels.iter().map(|level| level.fast).sum();
                assert!(tables <= view.fast_zones - 3, "{placement:?}, seed {seed}, step {step}: {view:?}");
            }
        }
    }
}
