//! Going on without a member: up to the decision the member can come back, from then on the others are the store.

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use varve_media::{CrashDevice, CrashVariant, DeviceCrashState};

/// Opens some devices of a set.
fn open_some(env: &Env, devices: Vec<Device>, missing_devices: MissingDevices) -> Result<HybridStore, StoreError> {
    let tier = |device: &Device| u8::from(!device.block.name().contains("fast"));
    let tiers = Some(devices.iter().map(tier).collect());
    HybridStore::open(env, devices, &HybridOpenOptions { tiers, missing_devices, ..placed_by_level() })
}

/// Names and contents.
type Contents = BTreeMap<String, Vec<u8>>;

fn contents(store: &HybridStore) -> Contents {
    let names = store.list().unwrap().into_iter().map(|entry| entry.name);
    names.map(|name| (name.clone(), read(store, &name).unwrap())).collect()
}

/// Devices in a set of `count`: a slow one, a fast one, and another slow one.
fn set_of(env: &Env, count: usize, fast_zones: u64) -> Vec<Device> {
    let mut devices = vec![slow(env, 40), fast(env, fast_zones, 0)];
    if count > 2 {
        devices.push(zoned(env, "other", 30 + CONVENTIONAL_ZONES, CONVENTIONAL_ZONES, 0));
    }
    let tiers = Some([1, 0, 1][..count].to_vec());
    HybridStore::format(env, &devices, &HybridFormatOptions { tiers, ..format_options() }).unwrap();
    devices
}

/// A database's files: tables of each level, a log, and a pointer; on full devices as many tables as there is space for.
fn load(env: &Env, devices: &[Device], is_full: bool) -> Contents {
    let tiers = Some([1, 0, 1][..devices.len()].to_vec());
    let options = HybridOpenOptions { tiers, ..placed_by_level() };
    let store = HybridStore::open(env, devices.to_vec(), &options).unwrap();
    let mut number = 0;
    write(&store, "log", FileKind::Log, None, &content(100, 0, 900)).unwrap();
    pointer(&store, 101);
    loop {
        let level = Some([0, 3][number as usize % 2]);
        let written = write(&store, &format!("t-{number}"), FileKind::Table, level, &content(number, 0, 20_000));
        if written.is_err() || (!is_full && number == 7) {
            let _ = store.remove(&format!("t-{number}"));
            break;
        }
        number += 1;
    }
    // A zone of each device is left, as a placement leaves one to logs.
    for device in 0..devices.len() {
        let names = (0..number).map(|number| format!("t-{number}"));
        let mut there = names.filter(|name| store.core.files.read().contains_key(name));
        let last = there.rfind(|name| devices_of(&store, name) == [device]);
        last.filter(|_| is_full).iter().for_each(|name| store.remove(name).unwrap());
    }
    store.sync_names().unwrap();
    let found = contents(&store);
    std::mem::forget(store);
    found
}

/// Has the pointer say something else.
fn pointer(store: &HybridStore, number: u64) {
    write(store, "pointer.new", FileKind::Pointer, None, &content(number, 0, 64)).unwrap();
    store.rename("pointer.new", "pointer").unwrap();
}

/// Imitates a repair before the pointer is renamed: writes new files and removes some of them. Returns the number written.
fn prepare(store: &HybridStore) -> u64 {
    let mut log = create(store, "fresh log", FileKind::Log, None);
    log.append(&content(210, 0, 32), &CONTEXT).unwrap();
    log.sync(&CONTEXT).unwrap();
    drop(log);
    let mut copy = create(store, "copy.partial", FileKind::Other, None);
    copy.append(&content(211, 0, 100), &CONTEXT).unwrap();
    copy.sync(&CONTEXT).unwrap();
    drop(copy);
    store.rename("copy.partial", "copy").unwrap();
    for number in 0..4 {
        let name = format!("fresh-{number}");
        if write(store, &name, FileKind::Table, Some(3), &content(200 + number, 0, 8000)).is_err() {
            store.remove(&name).unwrap();
            return number;
        }
    }
    4
}

/// An attempt that ends before the decision leaves the set as it was, and itself no trace; one after the other.
#[test]
fn an_attempt_without_a_decision_is_taken_back() {
    for count in [2, 3] {
        for missing in 0..count {
            for is_full in [false, true] {
                let env = Env::sim(1);
                let devices = set_of(&env, count, 10);
                let before = load(&env, &devices, is_full);
                let mut rest = devices.clone();
                rest.remove(missing);
                for attempt in 0..3 {
                    let store = open_some(&env, rest.clone(), MissingDevices::GiveUp).unwrap();
                    let names: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.name).collect();
                    assert!(names.iter().all(|name| before.contains_key(name)), "{names:?}");
                    prepare(&store);
                    write(&store, "pointer.new", FileKind::Pointer, None, &content(220, 0, 64)).unwrap();
                    match attempt {
                        0 => drop(store),
                        _ => std::mem::forget(store),
                    }
                    let refused = open_some(&env, rest.clone(), MissingDevices::Refuse).err();
                    let refused = refused.expect("a device is missing").to_string();
                    assert!(refused.contains("missing-devices"), "{refused}");
                }
                let store = open_some(&env, devices.clone(), MissingDevices::Refuse).unwrap();
                assert!(contents(&store) == before, "{count} devices without {missing}, full: {is_full}");
                assert_sound(&store);
                super::crash::verify_whole(&store).unwrap();
            }
        }
    }
}

/// A rename of a file that is neither a pointer nor new makes the decision first.
#[test]
fn a_change_that_cannot_be_taken_back_decides() {
    let changes: [(&str, fn(&HybridStore)); 6] = [
        ("a removal", |store| store.remove("t-0").unwrap()),
        ("a rename", |store| store.rename("t-0", "kept").unwrap()),
        ("a replacement", |store| _ = write(store, "t-0", FileKind::Table, Some(0), &content(1, 0, 100))),
        ("a rename onto", |store| {
            write(store, "new", FileKind::Table, Some(0), &content(1, 0, 100)).unwrap();
            store.rename("new", "t-0").unwrap();
        }),
        ("a sync of names", |store| store.sync_names().unwrap()),
        ("data in a log", |store| {
            let mut log = create(store, "fresh log", FileKind::Log, None);
            log.append(&content(1, 0, 32), &CONTEXT).unwrap();
            log.sync(&CONTEXT).unwrap();
            log.append(&content(1, 32, 32), &CONTEXT).unwrap();
            log.sync(&CONTEXT).unwrap();
        }),
    ];
    for (what, change) in changes {
        let env = Env::sim(1);
        let devices = set_of(&env, 2, 12);
        load(&env, &devices, false);
        let rest = vec![devices[1].clone()];
        let store = open_some(&env, rest.clone(), MissingDevices::GiveUp).unwrap();
        assert!(store.core.is_attempt(), "{what}");
        change(&store);
        assert!(!store.core.is_attempt(), "{what}");
        store.sync_names().unwrap();
        let found = contents(&store);
        std::mem::forget(store);
        let refused = open_some(&env, devices, MissingDevices::Refuse).err().expect("given up");
        assert!(refused.to_string().contains("given up"), "{what}: {refused}");
        let store = open_some(&env, rest, MissingDevices::Refuse).unwrap();
        assert!(contents(&store) == found, "{what}");
    }
}

/// A power cut at every point of what a repair does, on all devices at once: before the pointer was renamed the set is as it was,
/// from then on the rest is the store with all that was written.
#[test]
fn a_cut_repair_leaves_the_set_as_it_was_or_is_done() {
    let (mut taken_back, mut done) = (0, 0);
    for (count, missing, is_full) in
        [(2, 0, false), (2, 0, true), (2, 1, false), (2, 1, true), (3, 0, false), (3, 1, true), (3, 2, true)]
    {
        let what = format!("{count} devices without {missing}, full: {is_full}");
        let env = Env::sim(1);
        let devices = set_of(&env, count, 10);
        let before = load(&env, &devices, is_full);
        let mut rest = devices.clone();
        let absent = rest.remove(missing);
        let crash: Vec<CrashDevice> = rest.iter().map(|device| CrashDevice::new(&env, device).unwrap()).collect();
        let cuts: Arc<Mutex<Vec<Vec<DeviceCrashState>>>> = Arc::default();
        for (number, device) in crash.iter().enumerate() {
            let (all, cuts) = (crash.clone(), cuts.clone());
            device.on_persistence_point(move |point| {
                let states = all.iter().enumerate().map(|(other, device)| match other == number {
                    true => point.capture(),
                    false => device.capture(),
                });
                cuts.lock().push(states.collect());
            });
        }
        let below = crash.iter().map(CrashDevice::device).collect();
        let store = open_some(&env, below, MissingDevices::GiveUp).unwrap();
        let written = prepare(&store);
        pointer(&store, 102);
        let originals: Vec<String> = store.list().unwrap().into_iter().map(|entry| entry.name).collect();
        for name in originals.iter().filter(|name| name.starts_with("t-")).take(3) {
            store.remove(name).unwrap();
        }
        store.sync_names().unwrap();
        std::mem::forget(store);
        let cuts = std::mem::take(&mut *cuts.lock());
        assert!(cuts.len() > 10, "{what}: {} cuts", cuts.len());
        for (number, states) in cuts.iter().enumerate() {
            for variant in CrashVariant::OF_DEVICES {
                let images: Vec<Device> = (0..)
                    .zip(states)
                    .map(|(device, state)| state.image(variant, number as u64 ^ device << 40))
                    .collect();
                let what = format!("{what}, cut {number}, {variant:?}");
                let rest = images.clone();
                let mut whole = images;
                whole.insert(missing, absent.clone());
                // The images change what is opened on them, and the absent device is only read.
                let looked = varve_media::OverlayDevice::device(&absent).unwrap();
                whole[missing] = looked;
                match open_some(&env, whole, MissingDevices::Refuse) {
                    Ok(store) => {
                        assert!(contents(&store) == before, "{what}");
                        super::crash::verify_whole(&store).unwrap();
                        taken_back += 1;
                    }
                    Err(error) => {
                        assert!(error.to_string().contains("given up"), "{what}: {error}");
                        let store = open_some(&env, rest, MissingDevices::Refuse).unwrap();
                        assert_content(&read(&store, "pointer").unwrap(), 102, 64);
                        for fresh in 0..written {
                            assert_content(&read(&store, &format!("fresh-{fresh}")).unwrap(), 200 + fresh, 8000);
                        }
                        assert_content(&read(&store, "fresh log").unwrap(), 210, 32);
                        super::crash::verify_whole_but(&store, "\0without-").unwrap();
                        done += 1;
                    }
                }
            }
        }
    }
    println!("reached: hybrid repairs without a device: {taken_back} taken back, {done} done");
    assert!(taken_back > 100 && done > 30, "{taken_back}, {done}");
}
