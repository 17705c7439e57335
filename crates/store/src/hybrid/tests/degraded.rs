//! A store of which a device is full, refuses, or is gone: what goes on, what is told, and what is there when it is back, or is
//! never taken back.

use super::crash::verify_whole;
use super::faults::gone;
use super::*;
use crate::file_store::Finding;
use parking_lot::Mutex;
use std::sync::Arc;
use varve_media::{
    CrashDevice, CrashVariant, DeviceCrashState, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan,
    FaultTrigger, Operation,
};

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.code).collect()
}

/// Devices, and a fault layer on one of them.
fn with_faults(env: &Env, victim: usize) -> (Vec<Device>, Vec<Device>, FaultInjector) {
    let devices = formatted(env, 60, 12, 6);
    let injector = FaultInjector::new(env, FaultPlan::default());
    let mut above = devices.clone();
    above[victim] = FaultDevice::device(&injector, &devices[victim]);
    (devices, above, injector)
}

fn level_of(device: usize) -> Option<u8> {
    Some([3, 0][device])
}

fn table(store: &HybridStore, name: &str, device: usize, number: u64) {
    write(store, name, FileKind::Table, level_of(device), &content(number, 0, 9000)).unwrap();
    assert_eq!(devices_of(store, name), [device], "{name}");
}

/// Everything on the other device is read and written, what should go from the one that is gone has gone when it is back, and
/// nothing is acknowledged of which it would have to keep something.
#[test]
fn a_device_that_is_gone_is_told_and_leaves_the_other_in_use() {
    for victim in 0..2 {
        let env = Env::sim(1);
        let (devices, above, injector) = with_faults(&env, victim);
        let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
        let other = 1 - victim;
        for (number, name) in ["kept", "removed", "replaced", "removed before"].iter().enumerate() {
            table(&store, name, victim, number as u64);
        }
        table(&store, "safe", other, 10);
        table(&store, "renamed", other, 11);
        // Not durable before the device goes.
        store.remove("removed before").unwrap();
        let mut lost = create(&store, "lost", FileKind::Table, level_of(victim));
        lost.append(&content(20, 0, 9000), &CONTEXT).unwrap();
        injector.set_plan(gone());
        let error = lost.sync(&CONTEXT).unwrap_err().to_string();
        let device = ["slow", "fast"][victim];
        assert!(error.contains(device), "{error}");
        drop(lost);

        // Nothing that depends on it is acknowledged: of the name of the file that was lost nobody can say what is there.
        let mut refused = create(&store, "before it is known", FileKind::Table, level_of(victim));
        refused.append(&content(21, 0, 9000), &CONTEXT).unwrap();
        let _ = refused.sync(&CONTEXT);
        drop(refused);
        let error = store.sync_names().err();
        if measure(&store, "devices that refuse") == 0 {
            panic!("'{device}' is not told to refuse");
        }
        assert!(error.is_some_and(|error| error.kind() == StoreErrorKind::Poisoned), "names of lost files are durable");
        let findings = store.check().unwrap();
        assert!(codes(&findings).contains(&"device-refuses"), "{findings:?}");
        assert!(store.layout().iter().any(|(_, text)| text.contains("refuses writes")), "{:?}", store.layout());
        assert!(read(&store, "kept").unwrap_err().to_string().contains(device));
        assert_content(&read(&store, "safe").unwrap(), 10, 9000);
        let error = store.rename("kept", "elsewhere").unwrap_err();
        assert!(error.kind() == StoreErrorKind::Poisoned && error.to_string().contains(device), "{error}");

        // All goes to the other device, whatever its level and kind.
        for (number, name) in ["new 0", "new 1", "replaced"].iter().enumerate() {
            let level = level_of(number % 2);
            write(&store, name, FileKind::Table, level, &content(30 + number as u64, 0, 9000)).unwrap();
            assert_eq!(devices_of(&store, name), [other]);
        }
        write(&store, "log", FileKind::Log, None, &content(40, 0, 9000)).unwrap();
        store.remove("removed").unwrap();
        store.remove("lost").unwrap();
        store.remove("before it is known").unwrap();
        store.rename("renamed", "replaced").unwrap();
        store.sync_names().unwrap();
        // One that replaced another of the device is renamed away: the older one does not come back.
        write(&store, "kept", FileKind::Table, Some(0), &content(50, 0, 9000)).unwrap();
        store.rename("kept", "kept elsewhere").unwrap();
        assert!(measure(&store, "removals kept for devices that refuse") >= 2);

        injector.set_plan(FaultPlan::default());
        let store = reopen(&env, store, &devices);
        verify_whole(&store).unwrap();
        let names: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["kept elsewhere", "log", "new 0", "new 1", "replaced", "safe"], "'{device}' went");
        for (name, number) in
            [("kept elsewhere", 50), ("log", 40), ("new 0", 30), ("new 1", 31), ("replaced", 11), ("safe", 10)]
        {
            assert_content(&read(&store, name).unwrap(), number, 9000);
        }
        assert_sound(&store);
        assert_eq!(measure(&store, "devices that refuse"), 0);
    }
}

/// What was not durable on a device when its sync failed takes nothing with it that is older and durable on another.
#[test]
fn a_name_that_is_lost_with_its_device_does_not_take_the_older_file_with_it() {
    for victim in 0..2 {
        let env = Env::sim(1);
        let (devices, above, injector) = with_faults(&env, victim);
        let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
        table(&store, "f", 1 - victim, 1);
        let mut newer = create(&store, "f", FileKind::Table, level_of(victim));
        assert_eq!(devices_of(&store, "f"), [victim]);
        newer.append(&content(2, 0, 9000), &CONTEXT).unwrap();
        injector.set_plan(gone());
        newer.sync(&CONTEXT).unwrap_err();
        drop(newer);
        store.sync_names().unwrap_err();
        injector.set_plan(FaultPlan::default());
        let store = reopen(&env, store, &devices);
        assert_content(&read(&store, "f").unwrap(), 1, 9000);
        assert_sound(&store);
    }
}

/// Writes that fail now and then are not the end of a device: it is chosen last until one succeeds.
#[test]
fn a_device_of_which_a_write_failed_is_chosen_last_until_one_succeeds() {
    let env = Env::sim(1);
    let (_, above, injector) = with_faults(&env, 0);
    let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
    injector.set_plan(FaultPlan::of(Fault::new(
        Operation::Write,
        FaultTrigger::From(0),
        FaultEffect::Fail(FaultError::Io),
    )));
    let mut failed = create(&store, "failed", FileKind::Table, Some(3));
    assert_eq!(devices_of(&store, "failed"), [0]);
    let written = failed.append(&content(1, 0, 40_000), &CONTEXT).and_then(|()| failed.sync(&CONTEXT));
    assert!(written.unwrap_err().to_string().contains("slow"));
    drop(failed);
    injector.set_plan(FaultPlan::default());
    write(&store, "other", FileKind::Table, Some(3), &content(2, 0, 9000)).unwrap();
    assert_eq!(devices_of(&store, "other"), [1]);
    if measure(&store, "devices that refuse") == 0 {
        store.remove("failed").unwrap();
        store.sync_names().unwrap();
        table(&store, "again", 0, 3);
    }
    assert_content(&read(&store, "other").unwrap(), 2, 9000);
}

/// Whichever device is full, files of every kind go to the other one.
#[test]
fn a_full_device_leaves_the_other_in_use() {
    for full in 0..2 {
        let env = Env::sim(1);
        let devices = formatted(&env, 20, 20, 5);
        let store = HybridStore::open(&env, devices.clone(), &placed_by_level()).unwrap();
        let mut number = 0;
        loop {
            let name = format!("t-{number}");
            write(&store, &name, FileKind::Table, level_of(full), &content(number, 0, 30_000)).unwrap();
            number += 1;
            if devices_of(&store, &name) != [full] {
                break;
            }
        }
        assert!(number > 10, "{number}");
        for (kind, level) in [(FileKind::Table, Some(0)), (FileKind::Table, Some(3)), (FileKind::Log, None)] {
            let name = format!("t-{number}");
            write(&store, &name, kind, level, &content(number, 0, 30_000)).unwrap();
            number += 1;
        }
        let store = reopen(&env, store, &devices);
        for number in 0..number {
            assert_content(&read(&store, &format!("t-{number}")).unwrap(), number, 30_000);
        }
        assert_sound(&store);
    }
}

/// Copies of blocks are read where they are copies of, once the zone that has them is dead, or their device is gone.
#[test]
fn cached_blocks_that_are_lost_cost_nothing() {
    for caching in [CachingName::Fifo, CachingName::Frequency] {
        for is_gone in [false, true] {
            let env = Env::sim(1);
            let (_, above, injector) = with_faults(&env, 1);
            // Places tables of high levels on the slow device, and leaves zones to cached blocks.
            let options = HybridOpenOptions { caching, placement: PlacementName::Auto, ..placed_by_level() };
            let store = HybridStore::open(&env, above, &options).unwrap();
            let table = |name: &str, number: u64| {
                write(&store, name, FileKind::Table, Some(9), &content(number, 0, 9000)).unwrap();
                assert_eq!(devices_of(&store, name), [0], "{name}");
            };
            (0..4).for_each(|number| table(&format!("t-{number}"), number));
            let read_as_user = |evicts: bool| {
                for number in 0..4 {
                    let name = format!("t-{number}");
                    let reader = store.open(&name, &OpenOptions::default()).unwrap();
                    for at in [0, 4096] {
                        let mut data = vec![0; 4096];
                        reader.read_at(at, &mut data, &IoContext::of(IoClass::UserRead)).unwrap();
                        assert!(data == content(number, at, 4096), "{name} at {at}");
                        if evicts {
                            store.hint(&Hint::CacheEvicted { file: &name, offset_bytes: at, bytes: &data });
                            store.core.fill_cache();
                        }
                    }
                }
            };
            read_as_user(true);
            read_as_user(false);
            let hits = measure(&store, "user reads of cached blocks");
            assert!(hits > 2, "{caching:?}: {hits} of 8");
            let files = METADATA_ZONES * ZONE_BYTES..u64::MAX;
            let dies = Fault::new(Operation::Read, FaultTrigger::From(0), FaultEffect::ZoneOffline).on_range(files);
            injector.set_plan(if is_gone { gone() } else { FaultPlan::of(dies) });
            read_as_user(false);
            assert!(injector.injected() > 0);
            injector.set_plan(FaultPlan::default());
            table("behind it", 9);
        }
    }
}

fn missing(missing_devices: MissingDevices) -> HybridOpenOptions {
    HybridOpenOptions { tiers: None, missing_devices, ..placed_by_level() }
}

/// A store with files on each device alone, and one on both.
fn on_both(env: &Env) -> Vec<Device> {
    let devices = formatted(env, 60, 8, 0);
    let store = HybridStore::open(env, devices.clone(), &placed_by_level()).unwrap();
    table(&store, "on slow", 0, 1);
    table(&store, "on fast", 1, 2);
    (0..4).for_each(|number| table(&store, &format!("more {number}"), 1, 20 + number));
    write(&store, "on both", FileKind::Table, Some(0), &content(3, 0, 6 * ZONE_BYTES)).unwrap();
    assert_eq!(devices_of(&store, "on both"), [1, 0]);
    devices
}

/// Of a file that lies on both devices what lies on the one that is left can be read.
fn assert_part(store: &HybridStore, name: &str, left: usize) {
    let at = [5 * ZONE_BYTES, 0][left];
    let mut data = vec![0; 1000];
    store.open(name, &OpenOptions::default()).unwrap().read_at(at, &mut data, &CONTEXT).unwrap();
    assert!(data == content(3, at, 1000));
}

/// Opened without one of its devices, for those who say so, what lies on the others is read; nothing else is said to be absent,
/// and nothing is written.
#[test]
fn what_is_left_of_a_set_is_read_and_not_written() {
    for left in 0..2 {
        let env = Env::sim(1);
        let devices = on_both(&env);
        let rest = vec![devices[left].clone()];
        let before = devices[left].block.counters().writes;
        let refused = HybridStore::open(&env, rest.clone(), &missing(MissingDevices::Refuse)).err().expect("an error");
        assert!(
            refused.kind() == StoreErrorKind::Foreign && refused.to_string().contains("missing-devices"),
            "{refused}"
        );
        assert_eq!(codes(&HybridStore::inspect(&rest))[0], "device-missing");
        let store = HybridStore::open(&env, rest, &missing(MissingDevices::ReadOnly)).unwrap();
        let (here, there) = [("on slow", "on fast"), ("on fast", "on slow")][left];
        assert_content(&read(&store, here).unwrap(), 1 + left as u64, 9000);
        let error = read(&store, there).unwrap_err();
        assert!(matches!(error, StoreError::MissingDevice { .. }) && error.to_string().contains("of 2"), "{error}");
        assert_ne!(error.kind(), StoreErrorKind::NotFound);
        // A part of it is on the other device.
        let error = read(&store, "on both").unwrap_err();
        assert!(matches!(error, StoreError::MissingDevice { .. }), "{error}");
        assert_part(&store, "on both", left);
        for refused in [
            store.create("new", &CreateOptions::default()).err(),
            store.remove(here).err(),
            store.rename(here, "new").err(),
            store.sync_names().err(),
            store.lock("LOCK").err(),
        ] {
            assert_eq!(refused.map(|error| error.kind()), Some(StoreErrorKind::ReadOnly));
        }
        assert!(codes(&store.check().unwrap()).contains(&"device-missing"));
        drop(store);
        assert_eq!(devices[left].block.counters().writes, before, "something was written");
        let store = open(&env, &devices);
        for (name, number, length) in [("on slow", 1, 9000), ("on fast", 2, 9000), ("on both", 3, 6 * ZONE_BYTES)] {
            assert_content(&read(&store, name).unwrap(), number, length);
        }
        assert_sound(&store);
    }
}

/// A device that was given up is never taken back: what it has is older than what was written without it.
#[test]
fn a_device_that_was_given_up_is_never_taken_back() {
    for left in 0..2 {
        let env = Env::sim(1);
        let devices = on_both(&env);
        let rest = vec![devices[left].clone()];
        let store = HybridStore::open(&env, rest.clone(), &missing(MissingDevices::GiveUp)).unwrap();
        let (here, there) = [("on slow", "on fast"), ("on fast", "on slow")][left];
        assert_eq!(read(&store, there).unwrap_err().kind(), StoreErrorKind::NotFound);
        assert_content(&read(&store, here).unwrap(), 1 + left as u64, 9000);
        store.remove(here).unwrap();
        if left == 1 {
            (0..4).for_each(|number| store.remove(&format!("more {number}")).unwrap());
        }
        store.sync_names().unwrap();
        write(&store, there, FileKind::Table, Some(0), &content(9, 0, 5000)).unwrap();
        // What is left of a file keeps its bytes under another name.
        store.rename("on both", "damaged").unwrap();
        store.sync_names().unwrap();
        drop(store);
        for order in [vec![0, 1], vec![1, 0]] {
            let all: Vec<Device> = order.into_iter().map(|device| devices[device].clone()).collect();
            let error = HybridStore::open(&env, all.clone(), &missing(MissingDevices::Refuse)).err().expect("an error");
            assert!(error.kind() == StoreErrorKind::Foreign && error.to_string().contains("given up"), "{error}");
            assert!(codes(&HybridStore::inspect(&all)).contains(&"device-foreign"));
        }
        // From now on without a word.
        let store = HybridStore::open(&env, rest.clone(), &missing(MissingDevices::Refuse)).unwrap();
        assert_eq!(read(&store, here).unwrap_err().kind(), StoreErrorKind::NotFound);
        assert_content(&read(&store, there).unwrap(), 9, 5000);
        assert!(codes(&store.check().unwrap()).contains(&"device-given-up"));
        assert!(codes(&HybridStore::inspect(&rest)).contains(&"device-given-up"));
        let error = read(&store, "damaged").unwrap_err();
        assert!(error.is_loss(), "{error}");
        assert_part(&store, "damaged", left);
        store.remove("damaged").unwrap();
        // The other one alone is the store without this one, or nothing.
        let other = vec![devices[1 - left].clone()];
        let error = HybridStore::open(&env, other, &missing(MissingDevices::Refuse)).err().expect("an error");
        assert_eq!(error.kind(), StoreErrorKind::Foreign);
    }
}

/// The device that kept zones for outputs of compactions refuses, or was given up: another one keeps them, so that one that is full
/// can still be compacted.
#[test]
fn what_is_kept_for_compactions_is_kept_by_another_device() {
    for is_given_up in [true, false] {
        let env = Env::sim(1);
        let (devices, above, injector) = with_faults(&env, 0);
        let store = match is_given_up {
            true => {
                let store =
                    HybridStore::open(&env, vec![devices[1].clone()], &missing(MissingDevices::GiveUp)).unwrap();
                // Before the other one is given up all zones are for what is written without it.
                store.sync_names().unwrap();
                store
            }
            false => {
                let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
                table(&store, "on slow", 0, 1);
                store.remove("on slow").unwrap();
                injector.set_plan(gone());
                store.sync_names().unwrap();
                assert_eq!(measure(&store, "devices that refuse"), 1);
                store
            }
        };
        let mut tables = 0;
        let refused = loop {
            match write(&store, &format!("t-{tables}"), FileKind::Table, Some(0), &content(tables, 0, 30_000)) {
                Ok(()) => tables += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), StoreErrorKind::NoSpace, "{refused}");
        assert!(tables > 5, "{tables}");
        let job = JobId(7);
        store.hint(&Hint::CompactionBegin {
            job,
            inputs: &[hinted("t-0", 0), hinted("t-1", 0)],
            output_level: Some(1),
        });
        for output in 0..2 {
            let options =
                CreateOptions { kind: FileKind::Table, level: Some(1), job: Some(job), ..CreateOptions::default() };
            let mut writer = store.create(&format!("output-{output}"), &options).unwrap();
            writer.append(&content(100 + output, 0, 30_000), &CONTEXT).unwrap();
            writer.sync(&CONTEXT).unwrap();
            writer.finish(&CONTEXT).unwrap();
        }
        store.hint(&Hint::CompactionEnd {
            job,
            outputs: &[hinted("output-0", 1), hinted("output-1", 1)],
            succeeded: true,
        });
        for output in 0..2 {
            assert_content(&read(&store, &format!("output-{output}")).unwrap(), 100 + output, 30_000);
        }
    }
}

/// Of two files of one name and stamp nobody can say which counts: neither is given out for the other, or taken away.
#[test]
fn files_of_one_stamp_with_other_bytes_are_told_and_kept() {
    let env = Env::sim(1);
    let devices = formatted(&env, 40, 12, 5);
    let store = open(&env, &devices);
    drop(store);
    // What no store does.
    for (device, number) in devices.iter().zip([1, 2]) {
        let files = crate::band::DeviceFiles::mount(device.clone(), KIND).unwrap().begin(&env, None).0;
        let options = CreateOptions { kind: FileKind::Other, ..CreateOptions::default() };
        let stamp = crate::band::Stamp { number: 7, start_bytes: 0, goes_on: false };
        let mut writer = files.create("f", &options, stamp, crate::band::TableOrigin::default(), 4096).unwrap();
        writer.writable().append(&content(number, 0, 1000), &CONTEXT).unwrap();
        writer.writable().sync(&CONTEXT).unwrap();
        drop(writer);
    }
    assert_eq!(codes(&HybridStore::inspect(&devices)), ["stamp-twice"]);
    for _ in 0..2 {
        let store = open(&env, &devices);
        assert_eq!(read(&store, "f").unwrap_err().kind(), StoreErrorKind::Corruption);
        assert_eq!(codes(&store.check().unwrap()), ["stamp-twice"]);
    }
    let store = open(&env, &devices);
    store.remove("f").unwrap();
    store.sync_names().unwrap();
    let store = reopen(&env, store, &devices);
    assert_eq!(store.list().unwrap(), []);
    assert_sound(&store);
}

/// The open that does what a device was to forget is cut at every point: the next one does the same, and nothing comes back.
#[test]
fn what_was_removed_from_a_device_that_was_gone_stays_so_wherever_the_open_is_cut() {
    let env = Env::sim(1);
    for victim in 0..2 {
        let (devices, above, injector) = with_faults(&env, victim);
        let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
        let other = 1 - victim;
        (0..6).for_each(|number| table(&store, &format!("gone {number}"), victim, number));
        table(&store, "kept", victim, 6);
        injector.set_plan(gone());
        let mut lost = create(&store, "lost", FileKind::Table, level_of(victim));
        // Where no zone can be had the file may go on on the other device; its name is still to be forgotten by this one.
        let _ = lost.append(&content(20, 0, 9000), &CONTEXT).and_then(|()| lost.sync(&CONTEXT));
        drop(lost);
        let _ = store.sync_names();
        assert_eq!(measure(&store, "devices that refuse"), 1);
        for number in 0..6 {
            let name = format!("gone {number}");
            if number % 2 == 0 {
                write(&store, &name, FileKind::Table, Some(0), &content(30, 0, 500)).unwrap();
                assert_eq!(devices_of(&store, &name), [other]);
            }
            match number % 3 {
                0 => store.rename(&name, "renamed").unwrap_or_else(|error| assert_eq!(number, 3, "{error}")),
                _ => store.remove(&name).unwrap(),
            }
        }
        store.remove("gone 3").unwrap();
        store.remove("lost").unwrap();
        store.sync_names().unwrap();
        injector.set_plan(FaultPlan::default());
        std::mem::forget(store);
        let expected = ["kept", "renamed"];
        let names = |store: &HybridStore| -> Vec<String> {
            store.list().unwrap().into_iter().map(|entry| entry.name).collect()
        };
        let crash: Vec<CrashDevice> = devices.iter().map(|device| CrashDevice::new(&env, device).unwrap()).collect();
        let cuts: Arc<Mutex<Vec<[DeviceCrashState; 2]>>> = Arc::default();
        for (number, device) in crash.iter().enumerate() {
            let (both, cuts) = (crash.clone(), cuts.clone());
            device.on_persistence_point(move |point| {
                let mut states = [point.capture(), both[1 - number].capture()];
                if number == 1 {
                    states.reverse();
                }
                cuts.lock().push(states);
            });
        }
        let store = open(&env, &crash.iter().map(CrashDevice::device).collect::<Vec<_>>());
        assert_eq!(names(&store), expected);
        std::mem::forget(store);
        let cuts = std::mem::take(&mut *cuts.lock());
        assert!(cuts.len() > 10, "{}", cuts.len());
        for (number, states) in cuts.iter().enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                let images: Vec<Device> = (0..)
                    .zip(states)
                    .map(|(device, state)| state.image(variant, number as u64 ^ device << 40))
                    .collect();
                let store = open(&env, &images);
                assert_eq!(names(&store), expected, "'{victim}', cut {number}, {variant:?}");
                verify_whole(&store).unwrap();
                assert_content(&read(&store, "kept").unwrap(), 6, 9000);
                assert_content(&read(&store, "renamed").unwrap(), 30, 500);
            }
        }
    }
}
