//! What does not work is not tried without end, and is tried again.

use super::*;
use varve_media::conformance::devices::TRANSLATED_ZONES;
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, IoClass, Operation,
};

/// Resets of the journal that fail: the first so many, or all.
fn resets_fail(count: Option<u64>) -> FaultPlan {
    let fail =
        |trigger| Fault::new(Operation::Zone, trigger, FaultEffect::Fail(FaultError::Io)).on_class(IoClass::Metadata);
    let faults = match count {
        Some(count) => (0..count).map(|call| fail(FaultTrigger::Once(call))).collect(),
        None => vec![fail(FaultTrigger::From(0))],
    };
    FaultPlan { faults, ..FaultPlan::default() }
}

/// Moves a zone until that was given up for the first time.
fn move_until_given_up(device: &Device, handle: &RelocatingDevice) -> RelocationStatistics {
    for value in 0..40 {
        device.block.write_at(3 * ZONE + 8192, &[value; 4096], &context()).unwrap();
        let statistics = relocate(handle, 3);
        if statistics.given_up > 0 {
            return statistics;
        }
    }
    panic!("nothing was given up: {:?}", handle.statistics())
}

/// No zone is copied when the record that it was moved could not be written; later it is.
#[test]
fn nothing_is_copied_while_the_journal_cannot_be_written() {
    simulate(1, false, |env| {
        let injector = FaultInjector::new(env, FaultPlan::default());
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 40));
        let (device, handle) = open(env, &inner, at_rest()).unwrap();
        injector.set_plan(resets_fail(None));
        let before = move_until_given_up(&device, &handle);
        // As many records as a zone of the journal has room for.
        assert!(before.relocated_zones > 5, "{before:?}");
        for attempt in 1..=5 {
            let after = relocate(&handle, 4);
            assert_eq!((after.copied_bytes, after.given_up), (before.copied_bytes, before.given_up + attempt));
        }
        assert_eq!(handle.core_of().state.lock().failures, 6);
        injector.set_plan(FaultPlan::default());
        assert_eq!(relocate(&handle, 3).relocated_zones, before.relocated_zones + 1);
        assert_eq!(handle.core_of().state.lock().failures, 0);
    });
}

/// Where nobody demands it, it is tried less and less often.
#[test]
fn a_journal_that_cannot_be_written_is_tried_ever_less_often() {
    simulate(1, false, |env| {
        let injector = FaultInjector::new(env, FaultPlan::default());
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 40));
        let (device, handle) = open(env, &inner, eager()).unwrap();
        injector.set_plan(resets_fail(None));
        for step in 0..6000u64 {
            device.block.write_at(step % 5 * ZONE + 8192, &[1; 4096], &context()).unwrap();
            env.sleep(Duration::from_millis(100));
        }
        // Ten minutes: after 0.1, 0.2 ... 51.2 s, and then each 102.4 s.
        let given_up = handle.statistics().given_up;
        assert!((8..=16).contains(&given_up), "{given_up}");
    });
}

/// A record that follows one checkpoint while the other zone has an older one would be lost with the first: the older would be taken for what is.
#[test]
fn the_other_zone_of_the_journal_is_emptied_before_a_record_is_written() {
    simulate(1, false, |env| {
        let memory = memory(env, &TRANSLATED_ZONES, 40);
        let injector = FaultInjector::new(env, FaultPlan::default());
        let (device, handle) = open(env, &FaultDevice::device(&injector, &memory), at_rest()).unwrap();
        // The one behind the new checkpoint, and the one before the record.
        injector.set_plan(resets_fail(Some(2)));
        let before = move_until_given_up(&device, &handle);
        let journal = || memory.zones.as_ref().unwrap().report(ZoneId(38), 2, &context()).unwrap();
        let in_use = || journal().into_iter().filter(|zone| zone.condition != ZoneCondition::Empty);
        assert_eq!((injector.injected(), in_use().count()), (2, 2));
        device.block.write_at(3 * ZONE + 8192, &[99; 4096], &context()).unwrap();
        assert_eq!(relocate(&handle, 3).relocated_zones, before.relocated_zones + 1);
        assert_eq!(in_use().count(), 1, "a record while there are two checkpoints");
        device.block.sync(&context()).unwrap();
        drop((device, handle));
        let start = in_use().next().unwrap().start_bytes;
        // Both copies of the checkpoint.
        let mut slot = vec![0; 8192];
        memory.block.read_at(start, &mut slot, &context()).unwrap();
        let torn = slot.iter().map(|byte| !byte).collect::<Vec<_>>();
        memory.block.write_at(start, &torn, &context()).unwrap();
        assert!(open(env, &memory, at_rest()).is_err(), "an older map was taken for the one that is");
        memory.block.write_at(start, &slot, &context()).unwrap();
        let (device, _handle) = open(env, &memory, at_rest()).unwrap();
        let mut data = [0; 4096];
        device.block.read_at(3 * ZONE + 8192, &mut data, &context()).unwrap();
        assert_eq!(data, [99; 4096]);
    });
}

/// Reads of relocation in these zones that fail.
fn reads_fail(zones: std::ops::Range<u64>) -> FaultPlan {
    let fails = FaultEffect::Fail(FaultError::Unreadable);
    let fault = Fault::new(Operation::Read, FaultTrigger::From(0), fails);
    FaultPlan::of(fault.on_class(IoClass::Maintenance).on_range(zones.start * ZONE..zones.end * ZONE))
}

/// A zone that could not be read once was never moved again.
#[test]
fn a_zone_that_could_not_be_read_is_tried_again_ever_less_often() {
    simulate(1, false, |env| {
        let injector = FaultInjector::new(env, FaultPlan::default());
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 40));
        let parameters = RelocationParameters { report_nanos: 1_000_000_000, ..eager() };
        let (device, handle) = open(env, &inner, parameters).unwrap();
        let passes = |seconds: u64| {
            pass(env, &device, seconds);
            handle.statistics()
        };
        injector.set_plan(reads_fail(0..40));
        device.block.write_at(8192, &[1; 4096], &context()).unwrap();
        // After 1, 2, 4 ... 512 s.
        let failed = passes(1000);
        assert!(failed.relocated_zones == 0 && (8..=11).contains(&failed.given_up), "{failed:?}");
        injector.set_plan(FaultPlan::default());
        assert_eq!(passes(600).relocated_zones, 1);
    });
}

/// Where the cache is full of what cannot be read, a zone that is written all the time was moved all the time.
#[test]
fn a_zone_is_not_moved_again_and_again_for_what_others_hold() {
    simulate(1, false, |env| {
        let injector = FaultInjector::new(env, FaultPlan::default());
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 40));
        let parameters = RelocationParameters { utilization: 0.1, extent_cost_bytes: 0, ..eager() };
        let (device, handle) = open(env, &inner, parameters).unwrap();
        injector.set_plan(reads_fail(8..40));
        let write = |zone: u64, block: u64| {
            device.block.write_at(zone * ZONE + block * 4096, &[1; 4096], &context()).unwrap();
            env.sleep(Duration::from_millis(5));
        };
        (0..230).for_each(|step| write(20 + step % 2, 1 + step / 2 % 7 * 2));
        let before = handle.statistics();
        assert!(handle.utilization() > 0.8 && before.relocated_zones == 0, "{before:?} {}", handle.utilization());
        // What one write takes is no reason to move a zone.
        (0..1000).for_each(|step| write(0, 1 + step % 2 * 4));
        let after = handle.statistics();
        assert!(after.relocated_zones < 300, "{after:?} {}", handle.utilization());
    });
}

/// A zone that cannot be moved because it is written all the time is left to the disk, until it has been left in peace for long.
#[test]
fn a_zone_that_is_written_all_the_time_is_given_up_until_it_is_calm() {
    simulate(1, false, |env| {
        let stall = FaultEffect::Stall(Duration::from_millis(20));
        let stalled = Fault::new(Operation::Read, FaultTrigger::From(0), stall).on_class(IoClass::Maintenance);
        let injector = FaultInjector::new(env, FaultPlan::of(stalled));
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 40));
        let parameters =
            RelocationParameters { urgent_utilization: -1e9, retry_nanos: 1_000_000, hold_max_nanos: 0, ..eager() };
        let (device, handle) = open(env, &inner, parameters).unwrap();
        for step in 0..30_000u64 {
            device.block.write_at((1 + step % 7 * 2) * 4096, &[1; 4096], &context()).unwrap();
            env.sleep(Duration::from_millis(4));
        }
        let statistics = handle.statistics();
        assert!((3..=12).contains(&statistics.given_up) && statistics.relocated_zones == 0, "{statistics:?}");
        pass(env, &device, 150);
        assert_eq!(handle.statistics().relocated_zones, 1);
    });
}
