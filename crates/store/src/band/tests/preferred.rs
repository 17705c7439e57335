//! Devices that may be written anywhere, without conventional zones: everything is written at write pointers, and a store with a
//! journal at fixed offsets and one with a journal in zones take each other's place.

use super::*;
use crate::journal::METADATA;
use crate::{ExtentFormatOptions, ExtentStore};
use varve_media::conformance::devices::TRANSLATED_ZONES;
use varve_media::{Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation};

fn disk(env: &Env) -> Device {
    let asked = Geometry { capacity_bytes: 24 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
    (TRANSLATED_ZONES.make)(env, "disk", &asked)
}

fn zones_out_of_order(device: &Device) -> Vec<u32> {
    let count = device.block.capabilities().zones.as_ref().unwrap().zone_count;
    let described = device.zones.as_ref().unwrap().report(ZoneId(0), count, &METADATA).unwrap();
    (0..).zip(described).filter(|(_, zone)| zone.non_sequential).map(|(zone, _)| zone).collect()
}

/// Bytes of names are few, and of tables and logs many: the journal turns over, bands are used again, and openings follow clean ends and
/// crashes.
#[test]
fn no_zone_of_a_host_aware_disk_becomes_non_sequential() {
    let env = Env::sim(1);
    let device = disk(&env);
    BandStore::format(&env, &device, &BandFormatOptions::default()).unwrap();
    for round in 0..6 {
        let store = BandStore::open(&env, device.clone()).unwrap();
        for number in 0..120_u64 {
            let (table, log) = (format!("t-{}", number % 40), format!("l-{}", number % 7));
            for name in [&table, &log] {
                let _ = store.remove(name);
            }
            let bytes = 1000 + number * 777 % 150_000;
            write(&store, &table, FileKind::Table, None, &content(number, 0, bytes)).unwrap();
            write(&store, &log, FileKind::Log, None, &content(number, 0, 20_000)).unwrap();
            store.sync_names().unwrap();
        }
        assert_sound(&store);
        if round % 2 == 0 {
            std::mem::forget(store);
        }
        assert_eq!(zones_out_of_order(&device), [0; 0], "round {round}");
    }
    let cleaning = device.block.counters().cleaning;
    assert_eq!((cleaning.cached_writes, cleaning.idle_cleaned_zones), (0, 0), "{cleaning:?}");
}

fn format_bands(env: &Env, device: &Device, overwrite: bool) -> Result<(), StoreError> {
    BandStore::format(env, device, &BandFormatOptions { overwrite, ..BandFormatOptions::default() })
}

fn format_extents(env: &Env, device: &Device, overwrite: bool) -> Result<(), StoreError> {
    ExtentStore::format(env, device, &ExtentFormatOptions { overwrite, ..ExtentFormatOptions::default() })
}

type Format = fn(&Env, &Device, bool) -> Result<(), StoreError>;

/// Content of the device: true where bands are.
fn kind_of(env: &Env, device: &Device) -> Option<bool> {
    let bands = BandStore::probe(device);
    let extents = ExtentStore::probe(device);
    match (bands, extents) {
        (Ok(true), Err(_)) => {
            assert_sound(&BandStore::open(env, device.clone()).unwrap());
            Some(true)
        }
        (Err(_), Ok(true)) => {
            drop(ExtentStore::open(env, device.clone()).unwrap());
            Some(false)
        }
        (Ok(false), Ok(false)) | (Ok(false), Err(_)) | (Err(_), Ok(false)) => None,
        // The first zones are empty and the mark is not yet there, or it is there once.
        (Err(StoreError::Foreign { .. }), Err(StoreError::Foreign { .. })) => None,
        (bands, extents) => panic!("bands: {bands:?}, extents: {extents:?}"),
    }
}

/// Bands over extents and extents over bands, interrupted at every call: what is there is the old store, nothing, or the new one, and
/// never both; the format goes through afterwards.
#[test]
fn a_store_of_the_other_kind_is_replaced_whole() {
    let (bands, extents): (Format, Format) = (format_bands, format_extents);
    let mut reached = [0; 3];
    for (is_over_extents, old, new) in [(true, extents, bands), (false, bands, extents)] {
        for operation in [Operation::Zone, Operation::Write, Operation::Sync] {
            for number in 0.. {
                let env = Env::sim(1);
                let device = disk(&env);
                old(&env, &device, false).unwrap();
                // Its generations lie in different groups, and those of extents in one place.
                for _ in 0..number % 3 {
                    match is_over_extents {
                        true => drop(ExtentStore::open(&env, device.clone()).unwrap()),
                        false => drop(BandStore::open(&env, device.clone()).unwrap()),
                    }
                }
                assert!(new(&env, &device, false).is_err(), "the device holds another store");
                let fault = Fault::new(operation, FaultTrigger::From(number), FaultEffect::FailAfter(FaultError::Io));
                let failing = FaultDevice::device(&FaultInjector::new(&env, FaultPlan::of(fault)), &device);
                let is_made = new(&env, &failing, true).is_ok();
                let found = kind_of(&env, &device);
                assert!(!is_made || found == Some(is_over_extents), "{operation:?} {number}: {found:?}");
                reached[found.map_or(0, |found| 1 + usize::from(found == is_over_extents))] += 1;
                new(&env, &device, true).unwrap();
                assert_eq!(kind_of(&env, &device), Some(is_over_extents), "{operation:?} {number}");
                if is_made {
                    break;
                }
            }
        }
    }
    println!("reached: unfinished, old and new: {reached:?}");
    assert!(reached.into_iter().all(|count| count > 0), "{reached:?}");
}

/// A file of extents may hold the image of a band store, also where a group of zones would begin.
#[test]
fn bytes_of_files_are_taken_for_no_journal() {
    let env = Env::sim(1);
    let (device, other) = (disk(&env), disk(&env));
    format_bands(&env, &other, false).unwrap();
    drop(BandStore::open(&env, other.clone()).unwrap());
    format_extents(&env, &device, false).unwrap();
    let zone_bytes = device.block.capabilities().zones.as_ref().unwrap().zone_bytes;
    let mut image = vec![0; zone_bytes as usize];
    let mut copied = 0;
    for zone in 2..40 {
        other.block.read_at(zone * zone_bytes, &mut image, &METADATA).unwrap();
        device.block.write_at(zone * zone_bytes, &image, &METADATA).unwrap();
        copied += u64::from(image.iter().any(|byte| *byte != 0));
    }
    assert!(copied > 0, "a group of zones lies there");
    assert!(ExtentStore::probe(&device).unwrap());
    assert!(BandStore::probe(&device).is_err());
}
