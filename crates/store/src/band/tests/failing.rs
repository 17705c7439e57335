//! Writes that fail again and again, and places that cannot be read.

use super::*;
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation, ZoneType,
};

fn first_byte(band: u32) -> u64 {
    u64::from(band) * BAND_BYTES
}

fn log_band(store: &BandStore, name: &str) -> u32 {
    store.core.state.lock().names[name].pieces.read().iter().last().unwrap().band
}

fn failing(operation: Operation, effect: FaultEffect, bytes: std::ops::Range<u64>) -> FaultPlan {
    FaultPlan::of(Fault::new(operation, FaultTrigger::From(0), effect).on_range(bytes))
}

/// The process ends without a word, and another one opens the store.
fn reopen(env: &Env, store: BandStore, device: &Device) -> BandStore {
    std::mem::forget(store);
    BandStore::open(env, device.clone()).unwrap()
}

/// Fills the present log band with a file that is removed, so that what lives in the band before is copied onward and
/// that band given up.
fn turn_over_logs(store: &BandStore) {
    for number in 0..6_u64 {
        let name = format!("passing {number}");
        write(store, &name, FileKind::Log, None, &content(90 + number, 0, 150_000)).unwrap();
        store.remove(&name).unwrap();
    }
    store.sync_names().unwrap();
}

/// An append that spans log bands fails when the first of them is full, and what follows lies in the second: its frames
/// in the one must not be missed when the other is given up.
#[test]
fn a_failed_append_over_several_log_bands_leaves_no_hole() {
    const LARGE_BAND_BYTES: u64 = 8 << 20;
    let env = Env::sim(1);
    let large =
        ZoneGeometry { conventional_zones: 1, ..ZoneGeometry::fit(13 * LARGE_BAND_BYTES, LARGE_BAND_BYTES).unwrap() };
    let device = formatted(&env, &large);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    let context = IoContext::default();
    let mut log = create(&store, "log", FileKind::Log, None);
    log.sync(&context).unwrap();
    // The second request of the second band fails, and every one in other bands.
    let from = 2 * LARGE_BAND_BYTES + (4 << 20);
    injector.set_plan(failing(Operation::Write, FaultEffect::Fail(FaultError::Io), from..13 * LARGE_BAND_BYTES));
    log.append(&content(1, 0, 14 << 20), &context).expect_err("the second band cannot be written to its end");
    injector.set_plan(FaultPlan::default());
    write(&store, "kept", FileKind::Manifest, None, &content(2, 0, 1000)).unwrap();
    for number in 0..4_u64 {
        let name = format!("passing {number}");
        write(&store, &name, FileKind::Log, None, &content(3, 0, 3 << 20)).unwrap();
        store.remove(&name).unwrap();
    }
    store.sync_names().unwrap();
    drop(log);
    let store = reopen(&env, store, &device);
    assert_eq!(read(&store, "log").unwrap(), [0_u8; 0]);
    assert_eq!(read(&store, "kept").unwrap(), content(2, 0, 1000));
    assert_sound(&store);
}

/// Bytes of an append that failed do not come back behind a shorter one, wherever the frames of that one go.
#[test]
fn bytes_of_a_failed_append_do_not_come_back_behind_a_shorter_one() {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(16));
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    let context = IoContext::default();
    // Lives on in the first band, which stays for it.
    write(&store, "kept", FileKind::Other, None, &content(2, 0, 60_000)).unwrap();
    let band = log_band(&store, "kept");
    let mut log = create(&store, "log", FileKind::Log, None);
    log.append(&content(1, 0, 3000), &context).unwrap();
    log.sync(&context).unwrap();
    let others = first_byte(band + 1)..u64::MAX;
    injector.set_plan(failing(Operation::Write, FaultEffect::Fail(FaultError::Io), others));
    log.append(&content(7, 3000, 500_000), &context).expect_err("only the first band can be written");
    injector.set_plan(FaultPlan::default());
    log.append(&content(1, 3000, 100), &context).unwrap();
    log.sync(&context).unwrap();
    assert_ne!(log_band(&store, "log"), band);
    turn_over_logs(&store);
    drop(log);
    let mut store = store;
    // From the changes, and from the checkpoint that an open makes of them.
    for _ in 0..3 {
        store = reopen(&env, store, &device);
        assert_eq!(read(&store, "log").unwrap().len(), 3100);
        assert_eq!(read(&store, "log").unwrap(), content(1, 0, 3100));
        assert_eq!(read(&store, "kept").unwrap(), content(2, 0, 60_000));
        turn_over_logs(&store);
    }
    assert_sound(&store);
}

/// A band that refuses one write twice, its pointer where it was, is left for another one.
#[test]
fn writes_that_keep_failing_in_one_band_go_on_in_another() {
    let env = Env::sim(1);
    let limited = ZoneGeometry { active_zones_max: 4, open_zones_max: 4, ..zones(16) };
    for zones in [zones(16), limited] {
        let device = formatted(&env, &zones);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
        let context = IoContext::default();
        for (name, kind) in [("log", FileKind::Log), ("table", FileKind::Table)] {
            let mut writer = create(&store, name, kind, None);
            writer.append(&content(1, 0, 20_000), &context).unwrap();
            writer.sync(&context).unwrap();
            for (step, effect) in
                [FaultEffect::Fail(FaultError::Io), FaultEffect::FailPartly(FaultError::Io)].into_iter().enumerate()
            {
                let band = match kind {
                    FileKind::Table => *store.core.state.lock().names[name].bands.lock().last().unwrap(),
                    _ => log_band(&store, name),
                };
                injector.set_plan(failing(Operation::Write, effect, first_byte(band)..first_byte(band + 1)));
                let offset = (step as u64 + 1) * 20_000;
                writer.append(&content(1, offset, 20_000), &context).unwrap();
                writer.sync(&context).unwrap();
                injector.set_plan(FaultPlan::default());
            }
            assert_eq!(read(&store, name).unwrap(), content(1, 0, 60_000));
        }
        assert_eq!(measure(&store, "writes moved to another band"), 4);
        let store = reopen(&env, store, &device);
        for name in ["log", "table"] {
            assert_eq!(read(&store, name).unwrap(), content(1, 0, 60_000));
        }
        assert_sound(&store);
    }
}

/// A zone that refuses to be reset, and is not given up, keeps nobody from the others.
#[test]
fn a_band_that_cannot_be_emptied_is_passed_over() {
    let env = Env::sim(1);
    let limited = ZoneGeometry { active_zones_max: 3, open_zones_max: 3, ..zones(10) };
    for zones in [zones(10), limited] {
        let device = formatted(&env, &zones);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
        let rounds = |first: u64| {
            for round in first..first + 10 {
                for (name, kind) in [("table", FileKind::Table), ("log", FileKind::Log)] {
                    write(&store, name, kind, None, &content(round, 0, 200_000)).unwrap();
                }
            }
            store.sync_names().unwrap();
        };
        rounds(0);
        let lowest = *store.core.state.lock().bands.view().free.first().unwrap();
        let bytes = first_byte(lowest)..first_byte(lowest + 1);
        injector.set_plan(failing(Operation::Zone, FaultEffect::Fail(FaultError::Io), bytes));
        let before = injector.injected();
        rounds(10);
        assert!(injector.injected() > before);
        injector.set_plan(FaultPlan::default());
        rounds(20);
        for name in ["table", "log"] {
            assert_eq!(read(&store, name).unwrap(), content(29, 0, 200_000));
        }
        assert_sound(&store);
    }
}

/// A zone to which the first write arrived in part is active, and nothing of it is needed.
#[test]
fn a_first_write_that_arrives_in_part_takes_no_active_zone_for_good() {
    let env = Env::sim(1);
    let limited = ZoneGeometry { active_zones_max: 3, open_zones_max: 3, ..zones(24) };
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let store = BandStore::open(&env, FaultDevice::device(&injector, &formatted(&env, &limited))).unwrap();
    let context = IoContext::default();
    for (round, kind) in [FileKind::Table, FileKind::Log].into_iter().cycle().take(12).enumerate() {
        let fault = Fault::new(Operation::Write, FaultTrigger::Once(0), FaultEffect::FailPartly(FaultError::Io));
        let plan = FaultPlan::of(fault.on_range(first_byte(4)..u64::MAX));
        injector.set_plan(FaultPlan { seed: round as u64, ..plan });
        let data = content(round as u64, 0, 60_000);
        write(&store, "file", kind, None, &data).unwrap();
        assert_eq!(read(&store, "file").unwrap(), data);
        injector.set_plan(FaultPlan::default());
    }
    assert!(injector.injected() >= 12);
    let writers: Vec<_> = (0..2_u64)
        .map(|number| {
            let mut writer = create(&store, &number.to_string(), FileKind::Table, None);
            writer.append(&content(number, 0, 5000), &context).unwrap();
            writer.sync(&context).unwrap();
            writer
        })
        .collect();
    write(&store, "log", FileKind::Log, None, &content(3, 0, 400_000)).unwrap();
    drop(writers);
    assert_sound(&store);
}

/// Where writes are not bound to a pointer, frames of a write that failed lie where the next one goes: their numbers are
/// not those of later frames.
#[test]
fn numbers_of_frames_that_may_have_arrived_are_not_used_again() {
    let env = Env::sim(1);
    let preferred = ZoneGeometry { sequential_type: ZoneType::SequentialWritePreferred, ..zones(16) };
    let device = formatted(&env, &preferred);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    let context = IoContext::default();
    let mut log = create(&store, "log", FileKind::Log, None);
    log.append(&content(1, 0, 1000), &context).unwrap();
    log.sync(&context).unwrap();
    let frame = (frame::FRAME_BYTES_MAX - frame::HEADER_BYTES) as u64;
    injector.set_plan(failing(Operation::Write, FaultEffect::FailAfter(FaultError::Io), first_byte(4)..u64::MAX));
    log.append(&content(7, 1000, 3 * frame), &context).unwrap();
    log.sync(&context).expect_err("nothing says that it was written");
    drop(log);
    injector.set_plan(FaultPlan::default());
    let mut next = create(&store, "next", FileKind::Log, None);
    next.append(&content(2, 0, frame), &context).unwrap();
    next.sync(&context).unwrap();
    drop(next);
    let store = reopen(&env, store, &device);
    assert_eq!(read(&store, "next").unwrap(), content(2, 0, frame));
    // What was appended and failed may be there, and nothing else.
    let log = read(&store, "log").unwrap();
    assert_eq!(log[..1000], content(1, 0, 1000));
    assert_eq!(log[1000..], content(7, 1000, log.len() as u64 - 1000));
}

/// What of the log band that was being written cannot be read is told by every file that may have had something there,
/// and by no other; nothing is taken for the end, and when it can be read again everything is there.
#[test]
fn unreadable_places_of_the_open_log_band_are_not_its_end() {
    for number in 0..3 {
        with_an_unreadable_frame(number, FaultError::Unreadable, StoreErrorKind::Corruption);
    }
}

/// A device that fails says nothing about what is there: the file is not damaged, and a repair must not take it for that.
#[test]
fn a_failing_read_of_the_open_log_band_is_not_damage() {
    for number in 0..3 {
        with_an_unreadable_frame(number, FaultError::Io, StoreErrorKind::Io);
    }
}

fn with_an_unreadable_frame(number: usize, fault: FaultError, kind: StoreErrorKind) {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(16));
    let store = BandStore::open(&env, device.clone()).unwrap();
    write(&store, "older", FileKind::Manifest, None, &content(2, 0, 5000)).unwrap();
    drop(store);
    let store = BandStore::open(&env, device.clone()).unwrap();
    let log = with_synced_frames(&store, "log", 3);
    write(&store, "later", FileKind::Log, None, &content(3, 0, 100)).unwrap();
    let place = places_of_frames(&store, "log")[number];
    drop(log);
    std::mem::forget(store);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    injector.set_plan(failing(Operation::Read, FaultEffect::Fail(fault), place..place + 512));
    for round in 0..3 {
        let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
        let error = read(&store, "log").map(|data| data.len()).expect_err("a part cannot be read");
        assert_eq!(error.kind(), kind, "frame {number}, round {round}: {error}");
        assert_eq!(read(&store, "older").unwrap(), content(2, 0, 5000));
        // Its frame lies behind the place, so nothing of it can have been there.
        assert_eq!(read(&store, "later").unwrap(), content(3, 0, 100));
        let new = format!("new {round}");
        write(&store, &new, FileKind::Log, None, &content(4, 0, 300_000)).unwrap();
        assert_eq!(read(&store, &new).unwrap(), content(4, 0, 300_000));
        assert!(codes(&store.check().unwrap(), Severity::Error).contains(&"file-damaged"));
    }
    injector.set_plan(FaultPlan::default());
    let store = BandStore::open(&env, device).unwrap();
    assert_eq!(read(&store, "log").unwrap(), content(1, 0, 9000), "frame {number}");
    assert_sound(&store);
}

/// The last frames of a log band that was being written cannot be read: nobody can say that they were none.
#[test]
fn an_unreadable_end_of_the_open_log_band_is_not_its_end() {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(16));
    let store = BandStore::open(&env, device.clone()).unwrap();
    let log = with_synced_frames(&store, "log", 2);
    let last = places_of_frames(&store, "log")[1];
    drop(log);
    std::mem::forget(store);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    for round in 0..2 {
        let unreadable = failing(Operation::Read, FaultEffect::Fail(FaultError::Unreadable), last..last + 512);
        injector.set_plan(unreadable);
        let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
        let error = read(&store, "log").map(|data| data.len()).expect_err("its end cannot be read");
        assert_eq!(error.kind(), StoreErrorKind::Corruption, "round {round}: {error}");
        drop(store);
    }
    injector.set_plan(FaultPlan::default());
    let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    assert_eq!(read(&store, "log").unwrap(), content(1, 0, 6000));
    assert_sound(&store);
    drop(store);
    let store = BandStore::open(&env, device.clone()).unwrap();
    assert_eq!(read(&store, "log").unwrap(), content(1, 0, 6000));
}

/// One bad place in a sealed log band costs the file that is there, from there on.
#[test]
fn a_bad_place_in_a_sealed_log_band_costs_one_file() {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(16));
    let store = BandStore::open(&env, device.clone()).unwrap();
    let files: Vec<(String, Vec<u8>)> =
        (0..4_u64).map(|number| (format!("{number}.log"), content(number, 0, 100_000))).collect();
    for (name, data) in &files {
        write(&store, name, FileKind::Log, None, data).unwrap();
    }
    let damaged_from = (frame::FRAME_BYTES_MAX - frame::HEADER_BYTES) as u64;
    let place = places_of_frames(&store, "1.log")[1];
    drop(store);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    injector.set_plan(failing(Operation::Read, FaultEffect::Fail(FaultError::Unreadable), place..place + 512));
    for round in 0..3 {
        let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
        for (name, data) in &files {
            if name != "1.log" {
                assert_eq!(read(&store, name).unwrap(), *data, "round {round}: {name}");
                continue;
            }
            let reader = store.open(name, &OpenOptions::default()).unwrap();
            assert_eq!(reader.size_bytes(), 100_000);
            let mut head = vec![0; damaged_from as usize];
            reader.read_at(0, &mut head, &IoContext::default()).unwrap();
            assert_eq!(head, data[..head.len()]);
            let error = reader.read_at(damaged_from, &mut [0; 10], &IoContext::default()).expect_err("it is damaged");
            let text = error.to_string();
            assert!(text.contains("'1.log'") && text.contains(&damaged_from.to_string()), "round {round}: {text}");
        }
        let found = codes(&store.check().unwrap(), Severity::Error);
        assert!(found.contains(&"file-damaged") && found.contains(&"log-damaged"), "{found:?}");
        write(&store, "new", FileKind::Log, None, &content(9, 0, 50_000)).unwrap();
        assert_eq!(read(&store, "new").unwrap(), content(9, 0, 50_000));
    }
    injector.set_plan(FaultPlan::default());
    let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    for (name, data) in &files {
        assert_eq!(read(&store, name).unwrap(), *data);
    }
    assert_sound(&store);
}

/// Log bands that cannot be read at all, for a while, are not taken for empty ones.
#[test]
fn log_bands_that_cannot_be_read_are_kept() {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(16));
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let open = || BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    let store = open();
    for number in 0..4_u64 {
        write(&store, &format!("{number}.log"), FileKind::Log, None, &content(number, 0, 100_000)).unwrap();
    }
    drop(store);
    let store = open();
    write(&store, "later.log", FileKind::Log, None, &content(5, 0, 100_000)).unwrap();
    std::mem::forget(store);
    let everywhere = first_byte(4)..u64::MAX;
    injector.set_plan(failing(Operation::Read, FaultEffect::Fail(FaultError::Io), everywhere));
    drop(open());
    injector.set_plan(FaultPlan::default());
    let store = open();
    for number in 0..4_u64 {
        assert_eq!(read(&store, &format!("{number}.log")).unwrap(), content(number, 0, 100_000));
    }
    assert_eq!(read(&store, "later.log").unwrap(), content(5, 0, 100_000));
    // While they cannot be read others are written, and nothing else is lost.
    drop(store);
    injector.set_plan(failing(Operation::Read, FaultEffect::Fail(FaultError::Io), first_byte(4)..first_byte(6)));
    let store = open();
    for round in 0..12_u64 {
        write(&store, "passing", FileKind::Log, None, &content(round, 0, 200_000)).unwrap();
    }
    drop(store);
    injector.set_plan(FaultPlan::default());
    let store = open();
    for number in 0..4_u64 {
        assert_eq!(read(&store, &format!("{number}.log")).unwrap(), content(number, 0, 100_000));
    }
    assert_sound(&store);
}

/// Zones that refuse to be finished or reset count until they do not, and keep nobody from opening the store.
#[test]
fn a_zone_that_cannot_be_finished_does_not_keep_the_store_from_opening() {
    let env = Env::sim(1);
    let limited = ZoneGeometry { active_zones_max: 4, open_zones_max: 4, ..zones(16) };
    let device = formatted(&env, &limited);
    let store = BandStore::open(&env, device.clone()).unwrap();
    let context = IoContext::default();
    let mut table = create(&store, "table", FileKind::Table, None);
    table.append(&content(1, 0, 20_000), &context).unwrap();
    table.sync(&context).unwrap();
    write(&store, "log", FileKind::Log, None, &content(2, 0, 20_000)).unwrap();
    std::mem::forget((table, store));
    let injector = FaultInjector::new(&env, FaultPlan::default());
    // The report, then every command.
    let commands = Fault::new(Operation::Zone, FaultTrigger::From(1), FaultEffect::Fail(FaultError::Io));
    injector.set_plan(FaultPlan::of(commands));
    let store = BandStore::open(&env, FaultDevice::device(&injector, &device)).unwrap();
    assert_eq!(read(&store, "table").unwrap(), content(1, 0, 20_000));
    assert_eq!(store.core.state.lock().bands.active_beside_log(), 2);
    injector.set_plan(FaultPlan::default());
    // Their places are wanted: they are finished now.
    let writers: Vec<_> = (0..3_u64)
        .map(|number| {
            let mut writer = create(&store, &number.to_string(), FileKind::Table, None);
            writer.append(&content(number, 0, 5000), &context).unwrap();
            writer.sync(&context).unwrap();
            writer
        })
        .collect();
    write(&store, "next.log", FileKind::Log, None, &content(3, 0, 300_000)).unwrap();
    drop(writers);
    assert_sound(&store);
}
