//! Bands that run out, and log bands that come and go.

use super::*;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_media::{CrashDevice, CrashVariant};

/// Write-ahead logs come and go beside a manifest that stays, many times around the device.
#[test]
fn log_bands_are_recycled_beside_a_manifest_that_stays() {
    let env = Env::sim(1);
    let limited = |zones, most| ZoneGeometry { active_zones_max: most, open_zones_max: most, ..zones };
    let of =
        |most| [formatted(&env, &limited(zones(12), most)), formatted_variable(&env, &limited(small_zones(12), most))];
    for device in [of(0), of(6)].into_iter().flatten() {
        let mut store = BandStore::open(&env, device.clone()).unwrap();
        let context = IoContext::default();
        let mut manifest = create(&store, "MANIFEST", FileKind::Manifest, None);
        let (mut manifest_bytes, mut written) = (0, 0);
        for number in 0..120_u64 {
            let name = format!("{number}.log");
            let mut log = create(&store, &name, FileKind::Log, None);
            for step in 0..20 {
                log.append(&content(number, step * 3000, 3000), &context).unwrap();
                log.sync(&context).unwrap();
            }
            manifest.append(&content(7, manifest_bytes, 100), &context).unwrap();
            manifest.sync(&context).unwrap();
            manifest_bytes += 100;
            assert_eq!(read(&store, &name).unwrap(), content(number, 0, 60_000));
            drop(log);
            if number > 0 {
                store.remove(&format!("{}.log", number - 1)).unwrap();
            }
            written += 60_000;
            if number == 80 {
                // Another process goes on; the manifest is begun anew, as trees do.
                drop(manifest);
                drop(store);
                store = BandStore::open(&env, device.clone()).unwrap();
                assert_eq!(read(&store, "MANIFEST").unwrap(), content(7, 0, manifest_bytes));
                assert_eq!(read(&store, "80.log").unwrap(), content(80, 0, 60_000));
                manifest = create(&store, "MANIFEST", FileKind::Manifest, None);
                manifest_bytes = 0;
            }
        }
        assert!(written > 2 * 12 * BAND_BYTES);
        assert_eq!(read(&store, "MANIFEST").unwrap(), content(7, 0, manifest_bytes));
        assert!(measure(&store, "log bands emptied") > 0 && measure(&store, "zone resets") > 0);
        assert_sound(&store);
        assert!(store.space().unwrap().available_bytes >= 4 * BAND_BYTES, "{:?}", store.space());
    }
}

/// A sync of a log is one write and one sync, and no change of the band table.
#[test]
fn a_synced_append_is_one_write_and_one_sync() {
    let env = Env::sim(1);
    let store = BandStore::open(&env, formatted(&env, &zones(12))).unwrap();
    let context = IoContext::default();
    let mut log = create(&store, "log", FileKind::Log, None);
    log.append(b"first", &context).unwrap();
    log.sync(&context).unwrap();
    let before = store.core.device.block.counters();
    for _ in 0..10 {
        log.append(&content(1, 0, 3000), &context).unwrap();
        log.sync(&context).unwrap();
    }
    let after = store.core.device.block.counters();
    assert_eq!((after.writes - before.writes, after.syncs - before.syncs), (10, 10));
    assert_eq!(after.written_bytes - before.written_bytes, 10 * 4096);
}

/// What a running compaction took of the bands kept for it comes back when it ends: until then they are not kept twice.
#[test]
fn others_have_what_is_free_beside_a_compaction_that_took_its_bands() {
    let env = Env::sim(1);
    for device in formatted_both(&env, 12) {
        let store = BandStore::open(&env, device.clone()).unwrap();
        let band = content(1, 0, BAND_BYTES);
        let available_bands = || store.space().unwrap().available_bytes / BAND_BYTES;
        let reserve_bands = || store.space().unwrap().reserve_bytes / BAND_BYTES;
        let first = available_bands();
        let job = JobId(5);
        store.hint(&Hint::CompactionBegin { job, inputs: &[], output_level: Some(1) });
        for taken in 1..=3 {
            write(&store, &format!("{taken}.sst"), FileKind::Table, Some(job), &band).unwrap();
            let expected = (first - u64::saturating_sub(taken, 2), 2u64.saturating_sub(taken));
            assert_eq!((available_bands(), reserve_bands()), expected, "{taken} taken");
        }
        (0..first - 1).for_each(|number| {
            write(&store, &format!("other{number}.sst"), FileKind::Table, None, &band).unwrap();
        });
        let refused = write(&store, "one more", FileKind::Table, None, &band);
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::NoSpace);
        store.remove("one more").unwrap();
        store.hint(&Hint::CompactionEnd { job, outputs: &[], succeeded: true });
        assert_eq!((available_bands(), reserve_bands()), (0, 0));
        (1..=3).for_each(|taken| store.remove(&format!("{taken}.sst")).unwrap());
        store.sync_names().unwrap();
        assert_eq!((available_bands(), reserve_bands()), (1, 2), "what it replaced is kept for the next one first");
    }
}

/// When bands run out, flushes and logs are refused first; compactions can finish and manifests can tell of it; what
/// is removed comes back. Nothing is lost.
#[test]
fn compactions_finish_when_bands_have_run_out() {
    let env = Env::sim(1);
    for device in formatted_both(&env, 12) {
        let store = BandStore::open(&env, device.clone()).unwrap();
        let band = content(1, 0, BAND_BYTES);
        let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        write(&store, "MANIFEST", FileKind::Manifest, None, &content(2, 0, 200_000)).unwrap();
        expected.insert("MANIFEST".to_owned(), content(2, 0, 200_000));
        let refused = (0..).find_map(|number| {
            let name = format!("{number}.sst");
            match write(&store, &name, FileKind::Table, None, &band) {
                Ok(()) => {
                    expected.insert(name, band.clone());
                    None
                }
                Err(error) => {
                    store.remove(&name).unwrap();
                    Some(error)
                }
            }
        });
        assert_eq!(refused.map(|error| error.kind()), Some(StoreErrorKind::NoSpace));
        // Twelve bands, one of them with the manifest, two kept for compactions, one for logs.
        assert_eq!(expected.len(), 1 + 8);
        assert_eq!(store.space().unwrap().available_bytes, 0);
        let context = IoContext::default();
        let mut log = create(&store, "log", FileKind::Log, None);
        let refused = (0..100).find_map(|step| {
            log.append(&content(3, step * 20_000, 20_000), &context).unwrap();
            log.sync(&context).err()
        });
        assert_eq!(refused.map(|error| error.kind()), Some(StoreErrorKind::NoSpace));
        drop(log);
        store.remove("log").unwrap();
        let job = JobId(5);
        store.hint(&Hint::CompactionBegin { job, inputs: &[], output_level: Some(1) });
        for name in ["a.sst", "b.sst"] {
            write(&store, name, FileKind::Table, Some(job), &band).unwrap();
            expected.insert(name.to_owned(), band.clone());
        }
        store.hint(&Hint::CompactionEnd { job, outputs: &[], succeeded: true });
        // The last one is for those who tell of it.
        write(&store, "MANIFEST.new", FileKind::Manifest, None, &content(4, 0, 100_000)).unwrap();
        store.rename("MANIFEST.new", "MANIFEST").unwrap();
        expected.insert("MANIFEST".to_owned(), content(4, 0, 100_000));
        for number in 0..4 {
            let name = format!("{number}.sst");
            store.remove(&name).unwrap();
            expected.remove(&name);
        }
        store.sync_names().unwrap();
        write(&store, "again.sst", FileKind::Table, None, &band).unwrap();
        expected.insert("again.sst".to_owned(), band.clone());
        assert!(measure(&store, "bands refused") > 0);
        assert_sound(&store);
        drop(store);
        let store = BandStore::open(&env, device).unwrap();
        let found: BTreeMap<String, Vec<u8>> = store
            .list()
            .unwrap()
            .into_iter()
            .map(|entry| (entry.name.clone(), read(&store, &entry.name).unwrap()))
            .collect();
        assert!(found == expected, "{:?}", found.keys());
        assert_sound(&store);
    }
}

/// One actor fills log band after log band beside a manifest that stays; another one's commits give up bands. Wherever
/// the power is cut, what was acknowledged of the manifest is there: in the band it was in, or in copies.
#[test]
fn a_log_band_is_kept_until_copies_of_what_lived_in_it_are_durable() {
    for seed in 1..=3 {
        let env = Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..Default::default() });
        let crash = CrashDevice::new(&env, &formatted(&env, &zones(12))).unwrap();
        let store = Arc::new(BandStore::open(&env, crash.device()).unwrap());
        let synced = Arc::new(AtomicU64::new(0));
        let points: Arc<Mutex<Vec<_>>> = Arc::default();
        let (found, acknowledged) = (points.clone(), synced.clone());
        crash.on_persistence_point(move |point| {
            found.lock().push((point.capture(), acknowledged.load(Ordering::Acquire)));
        });
        let (rolling, acknowledged) = (store.clone(), synced.clone());
        let rolls = env.spawn("rolls log bands", move || {
            let context = IoContext::default();
            let mut manifest = create(&rolling, "MANIFEST", FileKind::Manifest, None);
            for number in 0..16_u64 {
                manifest.append(&content(7, number * 100, 100), &context).unwrap();
                manifest.sync(&context).unwrap();
                acknowledged.store((number + 1) * 100, Ordering::Release);
                write(&rolling, "log", FileKind::Log, None, &content(number, 0, 150_000)).unwrap();
            }
        });
        let (making, clock) = (store.clone(), env.clone());
        let frees_space = env.spawn("makes space", move || {
            for number in 0..40_u64 {
                write(&making, "table", FileKind::Table, None, &content(number, 0, 5000)).unwrap();
                making.core.free_space(allocation::Purpose::Table).unwrap();
                clock.yield_now();
            }
        });
        [rolls, frees_space].into_iter().for_each(|actor| actor.join().unwrap());
        assert!(measure(&store, "log bands emptied") > 0, "seed {seed}");
        let points = std::mem::take(&mut *points.lock());
        assert!(points.len() > 40, "seed {seed}");
        for (number, (state, acknowledged)) in points.iter().enumerate().filter(|(number, _)| number % 3 == 0) {
            for variant in [CrashVariant::KeepAll, CrashVariant::DropAll, CrashVariant::DropRandom] {
                let note = format!("seed {seed}, point {number}, {variant:?}");
                let store = BandStore::open(&env, state.image(variant, number as u64));
                let store = store.unwrap_or_else(|error| panic!("{note}: {error}"));
                if *acknowledged > 0 {
                    let manifest = read(&store, "MANIFEST").unwrap_or_else(|error| panic!("{note}: {error}"));
                    let length = manifest.len() as u64;
                    assert!(length >= *acknowledged, "{note}: {length} bytes of {acknowledged}");
                    assert_eq!(manifest, content(7, 0, length), "{note}");
                }
            }
        }
    }
}

/// Zones that lie elsewhere than those of the device that was formatted are another device's.
#[test]
fn zones_of_another_length_are_refused() {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(12));
    let geometry = BandStore::open(&env, device.clone()).unwrap().core.geometry;
    let control = device.zones.as_ref().unwrap();
    assert!(recovery::report("zoned", &**control, &geometry).is_ok());
    let other = geometry::StoreGeometry { zone_bytes: geometry.zone_bytes / 2, ..geometry };
    let error = recovery::report("zoned", &**control, &other).expect_err("zones of another length");
    assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
}

/// A store that is opened and closed takes no space for it.
#[test]
fn opening_takes_no_bands() {
    let env = Env::sim(1);
    for device in formatted_both(&env, 8) {
        let context = IoContext::default();
        for number in 0..40_u64 {
            let store = BandStore::open(&env, device.clone()).unwrap();
            if number > 0 {
                assert_eq!(read(&store, "log").unwrap(), content(number - 1, 0, 5000));
            }
            let mut log = create(&store, "log", FileKind::Log, None);
            log.append(&content(number, 0, 5000), &context).unwrap();
            log.sync(&context).unwrap();
            log.finish(&context).unwrap();
            assert_sound(&store);
        }
    }
}

/// Tables larger than a band go on in the next.
#[test]
fn a_table_may_have_several_bands_and_syncs() {
    let env = Env::sim(1);
    for device in formatted_both(&env, 12) {
        let store = BandStore::open(&env, device.clone()).unwrap();
        let context = IoContext::default();
        let mut table = create(&store, "table", FileKind::Table, None);
        let mut size = 0;
        for length in [1, 300_000, 4095, 4096, 1, 150_000, 100_000] {
            table.append(&content(1, size, length), &context).unwrap();
            size += length;
            table.sync(&context).unwrap();
            assert_eq!(read(&store, "table").unwrap(), content(1, 0, size));
        }
        table.finish(&context).unwrap();
        drop(store);
        let store = BandStore::open(&env, device).unwrap();
        assert_eq!(read(&store, "table").unwrap(), content(1, 0, size));
        assert_sound(&store);
    }
}

/// Space a device has for zones that are written is not exceeded, and given back.
#[test]
fn no_more_tables_are_written_at_once_than_the_device_takes() {
    let env = Env::sim(1);
    let limited = |zones| ZoneGeometry { active_zones_max: 3, open_zones_max: 3, ..zones };
    for device in [formatted(&env, &limited(zones(12))), formatted_variable(&env, &limited(small_zones(12)))] {
        let store = BandStore::open(&env, device).unwrap();
        let context = IoContext::default();
        let begin = |number: u64| {
            let mut writer = create(&store, &number.to_string(), FileKind::Table, None);
            writer.append(&content(number, 0, 5000), &context).unwrap();
            writer.sync(&context).map(|()| writer)
        };
        let mut writers: Vec<_> = (0..2).map(|number| begin(number).unwrap()).collect();
        let refused = begin(3).err().expect("two are written already, and one zone is the log's");
        assert!(matches!(refused, StoreError::TooManyWriters { limit: 2, .. }), "{refused}");
        // The log goes on, from band to band.
        for number in 0..6_u64 {
            let name = format!("{number}.log");
            write(&store, &name, FileKind::Log, None, &content(number, 0, 200_000)).unwrap();
            if number > 0 {
                store.remove(&format!("{}.log", number - 1)).unwrap();
            }
        }
        writers.pop().unwrap().finish(&context).unwrap();
        begin(4).unwrap().finish(&context).unwrap();
        drop(writers);
        write(&store, "log", FileKind::Log, None, b"goes on").unwrap();
        assert_sound(&store);
    }
}

/// Fewer active zones than are written at once are refused before anything is written.
#[test]
fn devices_with_too_few_active_zones_are_refused() {
    let env = Env::sim(1);
    for active_zones_max in 0..5 {
        let limited = ZoneGeometry { active_zones_max, open_zones_max: active_zones_max, ..zones(12) };
        let outcome = BandStore::format(&env, &device(&env, &limited), &BandFormatOptions::default());
        match active_zones_max {
            1 | 2 => {
                let error = outcome.expect_err("too few");
                assert_eq!(error.kind(), StoreErrorKind::InvalidRequest);
                assert!(error.to_string().contains("needs 3"), "{error}");
            }
            _ => outcome.unwrap(),
        }
    }
}

/// As many outputs of a compaction find a band as were promised, and the next log band stays kept beside them: what tells of the
/// outputs may need it before anything is given back.
#[test]
fn outputs_of_compactions_leave_the_next_log_band() {
    let env = Env::sim(1);
    for device in formatted_both(&env, 12) {
        let store = BandStore::open(&env, device).unwrap();
        let band = content(1, 0, BAND_BYTES);
        write(&store, "MANIFEST", FileKind::Manifest, None, &content(2, 0, 1000)).unwrap();
        let filled = (0..).take_while(|number| {
            let name = format!("{number}.sst");
            let outcome = write(&store, &name, FileKind::Table, None, &band);
            outcome.inspect_err(|_| store.remove(&name).unwrap()).is_ok()
        });
        assert_eq!(filled.count(), 8, "nothing is left but the reserve and the band kept for logs");
        let job = JobId(5);
        store.hint(&Hint::CompactionBegin { job, inputs: &[], output_level: Some(1) });
        for name in ["a.sst", "b.sst"] {
            write(&store, name, FileKind::Table, Some(job), &band).unwrap();
        }
        let refused = write(&store, "c.sst", FileKind::Table, Some(job), &band).expect_err("there are no more");
        assert_eq!(refused.kind(), StoreErrorKind::NoSpace);
        store.remove("c.sst").unwrap();
        store.hint(&Hint::CompactionEnd { job, outputs: &[], succeeded: true });
        // What tells of it still finds space, in this band and in the next, and what it made superfluous comes back.
        let more = content(4, 0, BAND_BYTES);
        write(&store, "MANIFEST-2", FileKind::Manifest, None, &more).unwrap();
        (0..4).for_each(|number| store.remove(&format!("{number}.sst")).unwrap());
        store.sync_names().unwrap();
        write(&store, "log", FileKind::Log, None, &content(5, 0, 1000)).unwrap();
        assert_sound(&store);
    }
}

/// What was durable and is damaged is told, whether a later frame or the band table says that it was durable.
#[test]
fn damaged_frames_are_told() {
    let env = Env::sim(1);
    let device = formatted(&env, &zones(12));
    let context = IoContext::default();
    let store = BandStore::open(&env, device.clone()).unwrap();
    write(&store, "older", FileKind::Other, None, &content(2, 0, 5000)).unwrap();
    drop(store);
    let store = BandStore::open(&env, device.clone()).unwrap();
    let log = with_synced_frames(&store, "log", 3);
    let places = places_of_frames(&store, "log");
    // The process ends without a word.
    std::mem::forget((log, store));
    let copy_with_damage = |at: Option<u64>| {
        let copy = self::device(&env, &zones(12));
        let mut data = vec![0; copy.block.geometry().capacity_bytes as usize];
        device.block.read_at(0, &mut data, &context).unwrap();
        if let Some(at) = at {
            data[at as usize + 100] ^= 1;
        }
        let reported = device.zones.as_ref().unwrap().report(ZoneId(0), u32::MAX, &context).unwrap();
        for zone in reported {
            let end = if zone.condition == varve_media::ZoneCondition::NotWritePointer {
                zone.end_bytes()
            } else {
                zone.write_pointer_bytes.min(zone.end_bytes())
            };
            if end > zone.start_bytes {
                copy.block
                    .write_at(zone.start_bytes, &data[zone.start_bytes as usize..end as usize], &context)
                    .unwrap();
            }
        }
        copy
    };
    let store = BandStore::open(&env, copy_with_damage(None)).unwrap();
    assert_eq!(read(&store, "log").unwrap(), content(1, 0, 9000));
    for place in &places[..2] {
        let device = copy_with_damage(Some(*place));
        // However often it is opened, and whatever is written meanwhile.
        for round in 0..3 {
            let store = BandStore::open(&env, device.clone()).unwrap();
            let error = read(&store, "log").map(|data| data.len()).expect_err("a durable frame is damaged");
            assert_eq!(error.kind(), StoreErrorKind::Corruption, "{error}");
            assert_eq!(read(&store, "older").unwrap(), content(2, 0, 5000));
            let found = codes(&store.check().unwrap(), Severity::Error);
            assert!(found.contains(&"file-damaged"), "{found:?}");
            let name = format!("new {round}");
            write(&store, &name, FileKind::Log, None, &content(3, 0, 5000)).unwrap();
            assert_eq!(read(&store, &name).unwrap(), content(3, 0, 5000));
        }
    }
}
