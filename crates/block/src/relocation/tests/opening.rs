//! Which disks are opened, and what of them is found again.

use super::*;
use varve_media::conformance::devices::{PREFERRED_ZONES, SMALL_ZONES, TRANSLATED_ZONES, ZONED};
use varve_media::{
    CrashDevice, CrashVariant, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
    Operation,
};

fn kind(result: Result<(Device, RelocatingDevice), MediaError>) -> (MediaErrorKind, String) {
    let error = result.map(|_| ()).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_zone_that_was_moved_is_found_again() {
    for device in [&TRANSLATED_ZONES, &PREFERRED_ZONES] {
        simulate(1, false, |env| {
            let inner = memory(env, device, 40);
            let at = 20 * ZONE;
            {
                let (device, handle) = open(env, &inner, at_rest()).unwrap();
                assert_eq!(device.block.capabilities().zones.as_ref().unwrap().zone_count, 36);
                assert_eq!(device.block.geometry().capacity_bytes, 36 * ZONE);
                device.block.write_at(at + 4096, &[1; 16384], &context()).unwrap();
                device.block.write_at(at, &[2; 4096], &context()).unwrap();
                let before = device.zones.as_ref().unwrap().report(ZoneId(20), 1, &context()).unwrap();
                assert_eq!(before[0].start_bytes, at);
                assert_eq!(relocate(&handle, 20).relocated_zones, 1);
                check_map(handle.core_of());
                let after = device.zones.as_ref().unwrap().report(ZoneId(0), 40, &context()).unwrap();
                assert_eq!(after.len(), 36);
                assert_eq!((after[20].start_bytes, after[20].write_pointer_bytes), (at, at + 20480));
                assert!(!after[20].non_sequential && after[20].condition == ZoneCondition::ImplicitlyOpened);
                assert_ne!(handle.core_of().state.lock().map.zone(ZoneId(20)), Some(ZoneId(20)));
                // What it had of the cache is free again.
                assert_eq!(inner.block.counters().cleaning.extents, 0);
            }
            let (device, handle) = open(env, &inner, at_rest()).unwrap();
            assert_ne!(handle.core_of().state.lock().map.zone(ZoneId(20)), Some(ZoneId(20)));
            let mut data = vec![9; 24576];
            device.block.read_at(at, &mut data, &context()).unwrap();
            assert!(data[..4096] == [2; 4096] && data[4096..20480] == [1; 16384] && data[20480..] == [0; 4096]);
        });
    }
}

/// More moves than a zone of the journal has room for, and each time that it is opened all are there.
#[test]
fn the_journal_goes_from_one_zone_to_the_other() {
    simulate(2, false, |env| {
        let inner = memory(env, &TRANSLATED_ZONES, 40);
        let mut random = env.random("zones");
        let mut model = vec![0u8; 36];
        for round in 0..8u8 {
            let (device, handle) = open(env, &inner, at_rest()).unwrap();
            for step in 0..10u8 {
                let zone = random.below(36);
                let value = 1 + round * 10 + step;
                device.block.write_at(zone * ZONE + 8192, &[value; 4096], &context()).unwrap();
                model[zone as usize] = value;
                assert_eq!(relocate(&handle, zone as u32).relocated_zones, u64::from(step) + 1);
            }
            check_map(handle.core_of());
            for (zone, value) in (0..).zip(&model) {
                let mut data = [7; 4096];
                device.block.read_at(zone * ZONE + 8192, &mut data, &context()).unwrap();
                assert_eq!(data, [*value; 4096], "round {round} zone {zone}");
            }
        }
    });
}

#[test]
fn disks_that_will_not_do_are_refused() {
    let env = Env::real();
    for (device, told) in [(&ZONED, "preferred"), (&SMALL_ZONES, "preferred")] {
        let (kind, text) = kind(open(&env, &memory(&env, device, 400), at_rest()));
        assert!(kind == MediaErrorKind::InvalidRequest && text.contains(told), "{text}");
    }
    let (kind_of_few, text) = kind(open(&env, &memory(&env, &TRANSLATED_ZONES, 4), at_rest()));
    assert!(kind_of_few == MediaErrorKind::InvalidRequest && text.contains("4 zones"), "{text}");
    let blocks = Device::of_blocks(Arc::new(varve_media::Emulated::immediate(&env, "ram", 8 << 20)));
    assert!(kind(open(&env, &blocks, at_rest())).1.contains("without zones"));
    let spares = RelocationParameters { spares: 94, ..at_rest() };
    assert!(kind(open(&env, &memory(&env, &TRANSLATED_ZONES, 40), spares)).1.contains("94 spares"));
}

/// Data that is not ours stays, unless it is given up in so many words.
#[test]
fn only_blank_disks_are_formatted() {
    let env = Env::real();
    let never = |inner: &Device| kind(RelocatingDevice::open(&env, inner, LIMITS, at_rest(), Formatting::Never));
    assert_eq!(never(&memory(&env, &TRANSLATED_ZONES, 40)).0, MediaErrorKind::InvalidRequest);
    for (device, at) in [(&TRANSLATED_ZONES, 3 * ZONE), (&PREFERRED_ZONES, 0), (&TRANSLATED_ZONES, 38 * ZONE)] {
        let inner = memory(&env, device, 40);
        inner.block.write_at(at, &[7; 4096], &context()).unwrap();
        let (kind, text) = kind(open(&env, &inner, at_rest()));
        assert!(kind == MediaErrorKind::InvalidRequest && text.contains("anew"), "{text}");
        let mut data = [0; 4096];
        inner.block.read_at(at, &mut data, &context()).unwrap();
        assert_eq!(data, [7; 4096]);
        let formatted = RelocatingDevice::open(&env, &inner, LIMITS, at_rest(), Formatting::Anew);
        let (device, _) = formatted.unwrap();
        if at < 36 * ZONE {
            device.block.read_at(at, &mut data, &context()).unwrap();
            assert_eq!(data, [7; 4096]);
        }
        drop(device);
        assert!(open(&env, &inner, at_rest()).is_ok());
    }
}

/// A disk on which three zones were moved, closed or not; and what the journal's units are.
fn moved(env: &Env, is_closed: bool) -> (Device, std::ops::Range<u64>) {
    let inner = memory(env, &TRANSLATED_ZONES, 40);
    let crash = CrashDevice::new(env, &inner).unwrap();
    let (device, handle) = open(env, &crash.device(), at_rest()).unwrap();
    for zone in 0..3 {
        device.block.write_at(zone * ZONE + 4096, &[7; 4096], &context()).unwrap();
        assert_eq!(relocate(&handle, zone as u32).relocated_zones, zone + 1);
    }
    device.block.sync(&context()).unwrap();
    // Without a seal where the power goes before it is closed.
    let cut = crash.capture().image(CrashVariant::DropAll, 1);
    drop((device, handle));
    // The first generation is in the second zone: a checkpoint, three moves, a seal, each twice.
    let journal = 39 * ZONE;
    match is_closed {
        true => (crash.device(), journal..journal + 10 * 4096),
        false => (cut, journal..journal + 8 * 4096),
    }
}

fn has_all(env: &Env, inner: &Device, told: &str) {
    let (device, handle) = open(env, inner, at_rest()).unwrap_or_else(|error| panic!("{told}: {error}"));
    check_map(handle.core_of());
    for zone in 0..3 {
        let mut data = [0; 4096];
        device.block.read_at(zone * ZONE + 4096, &mut data, &context()).unwrap();
        assert_eq!(data, [7; 4096], "{told}: zone {zone}");
    }
}

/// Whichever byte of the journal changes, and whichever sector of it cannot be read, no move is undone.
#[test]
fn no_single_damage_reverts_a_zone() {
    let mut places = 0;
    for is_closed in [true, false] {
        let env = Env::real();
        let (inner, journal) = moved(&env, is_closed);
        for at in journal.clone().filter(|at| at % 4096 < 100 || at % 509 == 0) {
            let mut unit = vec![0; 4096];
            inner.block.read_at(at / 4096 * 4096, &mut unit, &context()).unwrap();
            unit[(at % 4096) as usize] ^= 1;
            inner.block.write_at(at / 4096 * 4096, &unit, &context()).unwrap();
            has_all(&env, &inner, &format!("closed: {is_closed}, byte {at}"));
            // Who only reads writes nothing, so it is as it was.
            unit[(at % 4096) as usize] ^= 1;
            inner.block.write_at(at / 4096 * 4096, &unit, &context()).unwrap();
            places += 1;
        }
        for at in journal.step_by(4096) {
            let effect = FaultEffect::Fail(FaultError::Unreadable);
            let trigger = FaultTrigger::From(0);
            let fault = Fault::new(Operation::Read, trigger, effect).on_range(at..at + 4096);
            let injector = FaultInjector::new(&env, FaultPlan::of(fault));
            has_all(&env, &FaultDevice::device(&injector, &inner), &format!("closed: {is_closed}, unreadable {at}"));
            places += 1;
        }
    }
    println!("reached: block relocation/damage: {places} places");
}

/// Damage to both copies of a record is an error that does not say to format the disk.
#[test]
fn damage_to_both_copies_is_refused() {
    let env = Env::real();
    let (inner, journal) = moved(&env, true);
    for record in 0..4 {
        let at = journal.start + record * 8192;
        let mut both = vec![0; 8192];
        inner.block.read_at(at, &mut both, &context()).unwrap();
        let kept = both.clone();
        both[30] ^= 1;
        both[4096 + 30] ^= 1;
        inner.block.write_at(at, &both, &context()).unwrap();
        let (kind, text) = kind(open(&env, &inner, at_rest()));
        assert_eq!(kind, MediaErrorKind::Damaged, "{text}");
        assert!(text.contains(&format!("record {record}")) && !text.contains("format"), "{text}");
        inner.block.write_at(at, &kept, &context()).unwrap();
    }
    has_all(&env, &inner, "restored");
}

/// A journal of version 1 is refused by that name and stays.
#[test]
fn a_journal_of_version_1_is_refused_by_name() {
    let env = Env::real();
    let inner = memory(&env, &TRANSLATED_ZONES, 40);
    let mut slot = vec![0; 4096];
    slot[..8].copy_from_slice(b"VARVEMAP");
    slot[8] = 1;
    let checksum = crc32c::crc32c(&slot[..44]);
    slot[44..48].copy_from_slice(&checksum.to_le_bytes());
    inner.block.write_at(38 * ZONE, &slot, &context()).unwrap();
    let (kind, text) = kind(open(&env, &inner, at_rest()));
    assert_eq!(kind, MediaErrorKind::OtherVersion, "{text}");
    assert!(text.contains("version 2 can be read, found version 1"), "{text}");
}

/// What was in the cache before counted as nothing, and the cache was full before anything was moved.
#[test]
fn what_lies_in_the_cache_at_opening_counts() {
    simulate(1, false, |env| {
        let inner = memory(env, &TRANSLATED_ZONES, 40);
        let write =
            |device: &Device, zone: u64| device.block.write_at(zone * ZONE + 8192, &[1; 4096], &context()).unwrap();
        {
            let (device, handle) = open(env, &inner, at_rest()).unwrap();
            assert_eq!(handle.utilization(), 0.0);
            (0..8).for_each(|zone| write(&device, zone));
        }
        let parameters = RelocationParameters { utilization: 0.5, ..eager() };
        let (device, handle) = open(env, &inner, parameters).unwrap();
        // The eight of which nothing else is known, together.
        assert!((0.85..=0.9).contains(&handle.utilization()), "{}", handle.utilization());
        // Who only reads has nothing moved.
        pass(env, &device, 5);
        assert_eq!(handle.statistics(), RelocationStatistics::default());
        write(&device, 20);
        pass(env, &device, 1);
        let moved = handle.statistics();
        assert!(moved.relocated_zones == 4 && handle.utilization() <= 0.5, "{moved:?} {}", handle.utilization());
        // They are known now.
        assert_eq!(inner.block.counters().cleaning.extents, 5);
    });
}
