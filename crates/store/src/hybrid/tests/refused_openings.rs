//! A device that takes no writes while its set is opened.

use super::*;
use varve_media::{
    CrashDevice, CrashVariant, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
    Operation,
};

/// A name is taken over by a file on another device, whose sync fails: the change is in the cache of that device. The next
/// opening cannot sync it either, and must not remove the durable file that had the name. Then power fails.
#[test]
fn keeps_older_records_of_files_on_a_device_that_takes_no_writes() {
    for victim in 0..2 {
        for ending in ["forgotten", "names synced", "checked"] {
            let env = Env::sim(1);
            let devices = formatted(&env, 60, 12, 6);
            let crash: Vec<CrashDevice> =
                devices.iter().map(|device| CrashDevice::new(&env, device).unwrap()).collect();
            let injector = FaultInjector::new(&env, FaultPlan::default());
            let mut above: Vec<Device> = crash.iter().map(CrashDevice::device).collect();
            above[victim] = FaultDevice::device(&injector, &above[victim]);
            let store = HybridStore::open(&env, above.clone(), &placed_by_level()).unwrap();
            let level = |device: usize| Some([3, 0][device]);
            write(&store, "f", FileKind::Table, level(1 - victim), &content(1, 0, 9000)).unwrap();
            write(&store, "new", FileKind::Table, level(victim), &content(2, 0, 5000)).unwrap();
            store.sync_names().unwrap();
            let failing = || Fault::new(Operation::Sync, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
            injector.set_plan(FaultPlan::of(failing()));
            let is_renamed = store.rename("new", "f").is_ok() && store.sync_names().is_ok();
            std::mem::forget(store);
            injector.set_plan(FaultPlan::of(failing()));
            let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
            assert_eq!(measure(&store, "devices that refuse"), 1);
            match ending {
                "names synced" => _ = store.sync_names(),
                "checked" => {
                    let findings = store.check().unwrap();
                    assert!(findings.iter().all(|finding| finding.code == "device-refuses"), "{findings:?}");
                }
                _ => {}
            }
            std::mem::forget(store);
            let images: Vec<Device> =
                crash.iter().map(|device| device.capture().image(CrashVariant::DropAll, 0)).collect();
            let store = open(&env, &images);
            let found = read(&store, "f").unwrap_or_else(|error| panic!("{victim}, {ending}: {error}"));
            match found.len() {
                9000 if !is_renamed => assert_content(&found, 1, 9000),
                _ => assert_content(&found, 2, 5000),
            }
            super::crash::verify_whole(&store).unwrap();
            assert_sound(&store);
        }
    }
}

/// The same device is written again by the next opening: then the older record goes, and the newer file is the file.
#[test]
fn removes_kept_records_once_the_device_is_written_again() {
    for ending in ["forgotten", "removed", "replaced"] {
        let env = Env::sim(1);
        let devices = formatted(&env, 60, 12, 6);
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let above = vec![devices[0].clone(), FaultDevice::device(&injector, &devices[1])];
        let store = HybridStore::open(&env, above.clone(), &placed_by_level()).unwrap();
        write(&store, "f", FileKind::Table, Some(3), &content(1, 0, 9000)).unwrap();
        write(&store, "new", FileKind::Table, Some(0), &content(2, 0, 5000)).unwrap();
        store.sync_names().unwrap();
        let failing = || Fault::new(Operation::Sync, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
        injector.set_plan(FaultPlan::of(failing()));
        let _ = store.rename("new", "f").and_then(|()| store.sync_names());
        std::mem::forget(store);
        injector.set_plan(FaultPlan::of(failing()));
        let store = HybridStore::open(&env, above, &placed_by_level()).unwrap();
        assert_content(&read(&store, "f").unwrap(), 2, 5000);
        let expected = match ending {
            "removed" => {
                store.remove("f").unwrap();
                store.sync_names().unwrap();
                None
            }
            "replaced" => {
                write(&store, "f", FileKind::Table, Some(3), &content(3, 0, 700)).unwrap();
                store.sync_names().unwrap();
                Some((3, 700))
            }
            _ => Some((2, 5000)),
        };
        std::mem::forget(store);
        let store = open(&env, &devices);
        match expected {
            None => assert_eq!(store.list().unwrap(), [], "{ending}"),
            Some((file, length)) => assert_content(&read(&store, "f").unwrap(), file, length),
        }
        super::crash::verify_whole(&store).unwrap();
        assert_sound(&store);
    }
}
