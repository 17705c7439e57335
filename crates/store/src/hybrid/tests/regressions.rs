//! What went wrong once, each by itself.

use super::*;
use varve_media::{CrashDevice, CrashVariant};

/// Devices with a power-cut layer, and what is above it.
fn with_crash_layers(env: &Env, devices: &[Device]) -> (Vec<CrashDevice>, Vec<Device>) {
    let crash: Vec<CrashDevice> = devices.iter().map(|device| CrashDevice::new(env, device).unwrap()).collect();
    let above = crash.iter().map(CrashDevice::device).collect();
    (crash, above)
}

fn images(crash: &[CrashDevice], variant: CrashVariant) -> Vec<Device> {
    crash.iter().map(|device| device.capture().image(variant, 1)).collect()
}

/// A file of two devices is replaced by one that is removed before it was ever synced: what was there is there, whole, or
/// nothing.
#[test]
fn a_file_of_two_devices_is_not_cut_short_by_one_that_took_its_name_for_a_while() {
    let env = Env::sim(1);
    let (crash, devices) = with_crash_layers(&env, &formatted(&env, 40, 4, 0));
    let store = HybridStore::open(&env, devices, &placed_by_level()).unwrap();
    // Logs have a zone with space on the fast device.
    write(&store, "log", FileKind::Log, None, &content(3, 0, 10)).unwrap();
    let data = content(1, 0, 6 * ZONE_BYTES);
    write(&store, "f", FileKind::Table, Some(0), &data).unwrap();
    assert_eq!(devices_of(&store, "f"), [1, 0]);
    let mut again = create(&store, "f", FileKind::Log, None);
    assert_eq!(devices_of(&store, "f"), [1]);
    again.append(&content(2, 0, 100), &CONTEXT).unwrap();
    drop(again);
    store.remove("f").unwrap();
    for variant in [CrashVariant::DropAll, CrashVariant::KeepAll] {
        let found = HybridStore::open(&env, images(&crash, variant), &placed_by_level()).unwrap();
        match read(&found, "f") {
            Ok(found) => assert!(found == data || found.len() <= 100, "{variant:?}: {} bytes", found.len()),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::NotFound, "{variant:?}: {error}"),
        }
    }
}

/// A file that has gone on on another device is renamed while it is written: what is synced after that is there.
#[test]
fn what_is_appended_after_a_rename_is_not_lost() {
    let env = Env::sim(1);
    for kind in [FileKind::Log, FileKind::Table] {
        let devices = formatted(&env, 60, 4, 0);
        let store = HybridStore::open(&env, devices.clone(), &placed_by_level()).unwrap();
        let mut writer = create(&store, "f", kind, Some(0));
        let mut written = 0;
        let mut append = |writer: &mut Box<dyn WritableFile>, length: u64| {
            for piece in content(1, written, length).chunks(4000) {
                writer.append(piece, &CONTEXT).unwrap();
                writer.sync(&CONTEXT).unwrap();
            }
            written += length;
            written
        };
        append(&mut writer, 6 * ZONE_BYTES);
        assert_eq!(devices_of(&store, "f"), [1, 0], "{kind:?}");
        let name = match store.rename("f", "g") {
            Ok(()) => "g",
            // Refused, and nothing happened.
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::InvalidRequest, "{error}");
                "f"
            }
        };
        let length = append(&mut writer, 5000);
        drop(writer);
        assert_content(&read(&store, name).unwrap(), 1, length);
        let store = reopen(&env, store, &devices);
        assert_content(&read(&store, name).unwrap(), 1, length);
        store.rename(name, "h").unwrap();
        assert_content(&read(&store, "h").unwrap(), 1, length);
        assert_sound(&store);
    }
}

/// What readers have seen of a table stays visible when it goes on on another device.
#[test]
fn a_table_that_goes_on_elsewhere_does_not_become_shorter() {
    let env = Env::sim(1);
    let devices = formatted(&env, 40, 4, 0);
    let store = HybridStore::open(&env, devices, &placed_by_level()).unwrap();
    let mut table = create(&store, "f", FileKind::Table, Some(0));
    let reader = store.open("f", &OpenOptions::default()).unwrap();
    // The zones of the fast device are full to the last byte, and a little more was seen.
    let full = 4 * ZONE_BYTES;
    let (mut appended, mut seen) = (0, 0);
    for (length, is_flushed) in
        [(4096, false); 32].into_iter().chain([(100, true), (5000, false), (100, false), (9, true)])
    {
        table.append(&content(1, appended, length), &CONTEXT).unwrap();
        appended += length;
        if is_flushed {
            table.flush(&CONTEXT).unwrap();
            seen = appended;
        }
        assert!(reader.size_bytes() >= seen, "{} bytes, and there were {seen}", reader.size_bytes());
        let mut data = vec![0; seen as usize];
        reader.read_at(0, &mut data, &CONTEXT).unwrap();
        assert_content(&data, 1, seen);
    }
    assert!(appended > full);
    assert_eq!(devices_of(&store, "f"), [1, 0]);
}

/// Hints of jobs of which nothing more is heard take no more memory than there may be jobs.
#[test]
fn jobs_that_never_end_take_bounded_memory() {
    let env = Env::sim(1);
    let store = open(&env, &formatted(&env, 40, 4, 0));
    write(&store, "t", FileKind::Table, Some(1), &content(1, 0, 100)).unwrap();
    for job in 0..5000 {
        store.hint(&Hint::FlushBegin { job: JobId(2 * job), expected_bytes: 1 });
        store.hint(&Hint::CompactionBegin {
            job: JobId(2 * job + 1),
            inputs: &[hinted("t", 1)],
            output_level: Some(2),
        });
    }
    let jobs = store.core.jobs.lock();
    assert!(jobs.flushes.len() <= 1024 && jobs.inputs.len() <= 1024, "{}, {}", jobs.flushes.len(), jobs.inputs.len());
}

/// The band table of one device has no space for a longer name, and that of the other one has.
#[test]
fn a_rename_goes_to_another_device_where_the_band_table_is_full() {
    let env = Env::sim(1);
    let devices = formatted(&env, 60, 12, 5);
    let store = HybridStore::open(&env, devices.clone(), &placed_by_level()).unwrap();
    let short = |number: u64| format!("s{number}");
    let long = |number: u64| format!("{number:0>250}");
    for number in 0..20 {
        write(&store, &short(number), FileKind::Other, None, &content(number, 0, 500)).unwrap();
        assert_eq!(devices_of(&store, &short(number)), [1]);
    }
    for number in 1000.. {
        write(&store, &long(number), FileKind::Other, None, b"").unwrap();
        if devices_of(&store, &long(number)) != [1] {
            break;
        }
    }
    for number in 0..20 {
        store.rename(&short(number), &long(number)).unwrap();
    }
    let elsewhere = (0..20).filter(|number| devices_of(&store, &long(*number)) == [0]).count();
    assert!(elsewhere > 10, "{elsewhere}");
    let store = reopen(&env, store, &devices);
    for number in 0..20 {
        assert_content(&read(&store, &long(number)).unwrap(), number, 500);
        assert_eq!(read(&store, &short(number)).unwrap_err().kind(), StoreErrorKind::NotFound);
    }
    assert_sound(&store);
}
