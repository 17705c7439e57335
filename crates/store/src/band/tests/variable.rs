//! Tables in as many zones as they need.

use super::given_up::GivingUp;
use super::*;
use varve_media::{CrashDevice, CrashVariant, ZoneCondition};

const ZONE_BYTES: u64 = BAND_BYTES / ZONES_OF_TABLE;

/// Of a store with space for sixteen full tables.
fn open(env: &Env) -> BandStore {
    BandStore::open(env, formatted_variable(env, &small_zones(16))).unwrap()
}

fn expecting(store: &BandStore, name: &str, expected_size_bytes: Option<u64>) -> Box<dyn WritableFile> {
    let options = CreateOptions { kind: FileKind::Table, expected_size_bytes, ..CreateOptions::default() };
    store.create(name, &options).unwrap()
}

/// A whole table that is expected to have a size.
fn write_expecting(store: &BandStore, name: &str, expected: Option<u64>, data: &[u8]) {
    let context = IoContext::default();
    let mut writer = expecting(store, name, expected);
    writer.append(data, &context).unwrap();
    writer.sync(&context).unwrap();
    writer.finish(&context).unwrap();
}

fn zones_of(store: &BandStore, name: &str) -> Vec<u32> {
    store.core.state.lock().names[name].bands.lock().iter().copied().collect()
}

fn available_zones(store: &BandStore) -> u64 {
    store.space().unwrap().available_bytes / ZONE_BYTES
}

#[test]
fn a_table_has_as_many_zones_as_it_needs_and_gives_them_back() {
    let env = Env::sim(1);
    let device = formatted_variable(&env, &small_zones(16));
    let store = BandStore::open(&env, device.clone()).unwrap();
    assert_eq!(store.properties().preferred_table_bytes, Some(BAND_BYTES));
    let before = available_zones(&store);
    // What is expected is a guess: one table is shorter, another one longer, of one nothing is known.
    let sizes = [(1, Some(BAND_BYTES)), (ZONE_BYTES, Some(1)), (ZONE_BYTES + 1, None), (BAND_BYTES, Some(BAND_BYTES))];
    let more = [(BAND_BYTES + 5000, Some(0)), (3 * BAND_BYTES, Some(u64::MAX)), (ZONE_BYTES, Some(ZONE_BYTES))];
    let mut first = None;
    for (number, (size, expected)) in (0..).zip(sizes.into_iter().chain(more)) {
        let name = format!("{number}.sst");
        write_expecting(&store, &name, expected, &content(number, 0, size));
        let zones = zones_of(&store, &name);
        assert_eq!(zones.len() as u64, size.div_ceil(ZONE_BYTES), "{name}");
        // One behind the other, and behind those of the table before.
        let start = *first.get_or_insert(zones[0]);
        assert_eq!(zones, (start..start + zones.len() as u32).collect::<Vec<_>>(), "{name}");
        first = Some(start + zones.len() as u32);
    }
    let taken: u64 = sizes.iter().chain(&more).map(|(size, _)| size.div_ceil(ZONE_BYTES)).sum();
    assert_eq!(available_zones(&store), before - taken);
    assert_sound(&store);
    drop(store);
    let store = BandStore::open(&env, device).unwrap();
    for (number, (size, _)) in (0..).zip(sizes.iter().chain(&more)) {
        let name = format!("{number}.sst");
        assert_eq!(read(&store, &name).unwrap(), content(number, 0, *size));
        store.remove(&name).unwrap();
    }
    store.sync_names().unwrap();
    assert_eq!(available_zones(&store), before);
    assert_sound(&store);
}

/// Two tables that are written in turns, and logs beside them, lie in one piece each.
#[test]
fn tables_written_at_once_do_not_part_each_other() {
    let env = Env::sim(1);
    let store = open(&env);
    let context = IoContext::default();
    let mut tables: Vec<_> =
        ["a.sst", "b.sst", "c.sst"].iter().map(|name| expecting(&store, name, Some(BAND_BYTES))).collect();
    for step in 0..8 {
        for (file, table) in (0..).zip(&mut tables) {
            table.append(&content(file, step * BAND_BYTES / 8, BAND_BYTES / 8), &context).unwrap();
            table.flush(&context).unwrap();
        }
        let name = format!("{step}.log");
        write(&store, &name, FileKind::Log, None, &content(step, 0, 50_000)).unwrap();
    }
    for (file, table) in (0..).zip(tables) {
        table.finish(&context).unwrap();
        let name = ["a.sst", "b.sst", "c.sst"][file as usize];
        assert_eq!(read(&store, name).unwrap(), content(file, 0, BAND_BYTES));
        let zones = zones_of(&store, name);
        assert_eq!(
            (zones.len() as u64, zones[zones.len() - 1] - zones[0]),
            (ZONES_OF_TABLE, ZONES_OF_TABLE as u32 - 1)
        );
    }
    assert_sound(&store);
}

/// Where the device limits how many zones are active, a table that goes on in another zone has its place until it ends.
#[test]
fn a_table_keeps_its_place_among_the_active_zones() {
    let env = Env::sim(1);
    let limited = ZoneGeometry { active_zones_max: 3, open_zones_max: 3, ..small_zones(16) };
    let store = BandStore::open(&env, formatted_variable(&env, &limited)).unwrap();
    let context = IoContext::default();
    let mut tables: Vec<_> = (0..2).map(|number| expecting(&store, &format!("{number}.sst"), None)).collect();
    for step in 0..8 {
        for (file, table) in (0..).zip(&mut tables) {
            table.append(&content(file, step * ZONE_BYTES / 2, ZONE_BYTES / 2), &context).unwrap();
            table.flush(&context).unwrap();
        }
        let mut other = expecting(&store, "other.sst", None);
        other.append(&content(3, 0, 5000), &context).unwrap();
        let refused = other.sync(&context).expect_err("two are written already, and one zone is the log's");
        assert!(matches!(refused, StoreError::TooManyWriters { limit: 2, .. }), "{refused}");
        write(&store, "log", FileKind::Log, None, &content(step, 0, 50_000)).unwrap();
    }
    tables.into_iter().for_each(|table| table.finish(&context).unwrap());
    for file in 0..2 {
        assert_eq!(read(&store, &format!("{file}.sst")).unwrap(), content(file, 0, BAND_BYTES));
    }
    store.remove("other.sst").unwrap();
    write_expecting(&store, "other.sst", None, &content(3, 0, BAND_BYTES));
    assert_sound(&store);
}

/// Space is never too scattered: what is free is taken, in pieces if it must be.
#[test]
fn scattered_zones_hold_full_tables() {
    let env = Env::sim(1);
    let device = formatted_variable(&env, &small_zones(16));
    let store = BandStore::open(&env, device.clone()).unwrap();
    let count = available_zones(&store);
    (0..count).for_each(|number| {
        write_expecting(&store, &format!("{number}.sst"), Some(1), &content(number, 0, 1000));
    });
    assert_eq!(available_zones(&store), 0);
    (0..count).step_by(2).for_each(|number| store.remove(&format!("{number}.sst")).unwrap());
    store.sync_names().unwrap();
    let space = available_zones(&store);
    assert_eq!(space, count.div_ceil(2));
    for number in 0..space / ZONES_OF_TABLE {
        write_expecting(&store, &format!("full {number}.sst"), Some(BAND_BYTES), &content(number, 0, BAND_BYTES));
    }
    assert!(available_zones(&store) < ZONES_OF_TABLE);
    drop(store);
    let store = BandStore::open(&env, device).unwrap();
    for number in 0..space / ZONES_OF_TABLE {
        assert_eq!(read(&store, &format!("full {number}.sst")).unwrap(), content(number, 0, BAND_BYTES));
    }
    assert_eq!(read(&store, "1.sst").unwrap(), content(1, 0, 1000));
    assert_sound(&store);
}

/// A zone in the middle of a table becomes read-only while the table is written: it goes on elsewhere.
#[test]
fn a_table_goes_round_a_zone_that_is_given_up() {
    let env = Env::sim(1);
    for condition in [ZoneCondition::ReadOnly, ZoneCondition::Offline] {
        let zoned = GivingUp::new(formatted_variable(&env, &small_zones(16)));
        let store = BandStore::open(&env, zoned.device()).unwrap();
        let context = IoContext::default();
        let mut table = expecting(&store, "table", Some(BAND_BYTES));
        table.append(&content(1, 0, ZONE_BYTES + 100), &context).unwrap();
        table.sync(&context).unwrap();
        let [first, second] = zones_of(&store, "table")[..] else { panic!("two zones") };
        // The one that is to come next, before anything is written there.
        zoned.give_up(second + 1, condition);
        table.append(&content(1, ZONE_BYTES + 100, BAND_BYTES - ZONE_BYTES - 100), &context).unwrap();
        table.sync(&context).unwrap();
        table.finish(&context).unwrap();
        assert_eq!(read(&store, "table").unwrap(), content(1, 0, BAND_BYTES));
        // A sync ends a unit, so the table takes a little of a fifth zone.
        assert_eq!(zones_of(&store, "table"), [first, second, second + 2, second + 3, second + 4]);
        drop(store);
        let store = BandStore::open(&env, zoned.device()).unwrap();
        assert_eq!(read(&store, "table").unwrap(), content(1, 0, BAND_BYTES));
        let findings = store.check().unwrap();
        assert_eq!(codes(&findings, Severity::Error), [""; 0], "{findings:?}");
        assert_eq!(codes(&findings, Severity::Warning).len(), 1, "{findings:?}");
    }
}

/// A zone in the middle of a table dies: what is in the others can be read, and the check names the table.
#[test]
fn a_zone_that_dies_in_the_middle_of_a_table_costs_what_was_in_it() {
    let env = Env::sim(1);
    let zoned = GivingUp::new(formatted_variable(&env, &small_zones(16)));
    let store = BandStore::open(&env, zoned.device()).unwrap();
    for (number, name) in [(1, "before.sst"), (2, "lost.sst"), (3, "behind.sst")] {
        write_expecting(&store, name, Some(BAND_BYTES), &content(number, 0, BAND_BYTES));
    }
    let dead = zones_of(&store, "lost.sst")[1];
    zoned.give_up(dead, ZoneCondition::Offline);
    drop(store);
    for _ in 0..2 {
        let store = BandStore::open(&env, zoned.device()).unwrap();
        for (number, name) in [(1, "before.sst"), (3, "behind.sst")] {
            assert_eq!(read(&store, name).unwrap(), content(number, 0, BAND_BYTES));
        }
        let reader = store.open("lost.sst", &OpenOptions::default()).unwrap();
        let mut data = vec![0; ZONE_BYTES as usize];
        for (zone, is_there) in [(0, true), (1, false), (2, true), (3, true)] {
            let outcome = reader.read_at(zone * ZONE_BYTES, &mut data, &IoContext::default());
            match is_there {
                true => assert_eq!(outcome.map(|()| data.clone()).unwrap(), content(2, zone * ZONE_BYTES, ZONE_BYTES)),
                false => {
                    let error = outcome.expect_err("its zone is dead").to_string();
                    assert!(error.contains("lost.sst") && error.contains("offline"), "{error}");
                }
            }
        }
        let findings = store.check().unwrap();
        assert_eq!(codes(&findings, Severity::Error), ["band-offline"], "{findings:?}");
        assert!(findings.iter().any(|finding| finding.message.contains("lost.sst")), "{findings:?}");
        write_expecting(&store, "new.sst", Some(BAND_BYTES), &content(4, 0, BAND_BYTES));
        assert!(!zones_of(&store, "new.sst").contains(&dead));
    }
}

/// A table is durable as a whole or is not there: power cuts at every point while tables come and go.
#[test]
fn power_cuts_leave_tables_of_several_zones_whole() {
    let env = Env::sim(1);
    let crash = CrashDevice::new(&env, &formatted_variable(&env, &small_zones(12))).unwrap();
    let store = Arc::new(BandStore::open(&env, crash.device()).unwrap());
    let points: Arc<parking_lot::Mutex<Vec<_>>> = Arc::default();
    let synced: Arc<parking_lot::Mutex<BTreeMap<String, u64>>> = Arc::default();
    let (found, acknowledged) = (points.clone(), synced.clone());
    crash.on_persistence_point(move |point| found.lock().push((point.capture(), acknowledged.lock().clone())));
    let sizes = [BAND_BYTES, 1000, 3 * ZONE_BYTES - 7, ZONE_BYTES, 2 * BAND_BYTES];
    for round in 0..25_u64 {
        let (name, size) = (format!("{round}.sst"), sizes[round as usize % sizes.len()]);
        write_expecting(&store, &name, Some(size), &content(round, 0, size));
        synced.lock().insert(name, size);
        if let Some(old) = round.checked_sub(4).map(|old| format!("{old}.sst")) {
            synced.lock().remove(&old);
            store.remove(&old).unwrap();
        }
    }
    let points = std::mem::take(&mut *points.lock());
    assert!(points.len() > 100, "{} points", points.len());
    for (number, (state, acknowledged)) in points.iter().enumerate() {
        for variant in [CrashVariant::KeepAll, CrashVariant::DropAll, CrashVariant::DropRandom] {
            let note = format!("point {number}, {variant:?}");
            let store = BandStore::open(&env, state.image(variant, number as u64));
            let store = store.unwrap_or_else(|error| panic!("{note}: {error}"));
            for (name, size) in acknowledged {
                let number: u64 = name.trim_end_matches(".sst").parse().unwrap();
                let found = read(&store, name).unwrap_or_else(|error| panic!("{note}: {error}"));
                assert!(found == content(number, 0, *size), "{note}: '{name}' is another");
            }
            assert_eq!(codes(&store.check().unwrap(), Severity::Warning), [""; 0], "{note}");
        }
    }
}
