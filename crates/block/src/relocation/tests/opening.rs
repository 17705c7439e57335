//! Which disks are opened, and what of them is found again.

use super::*;
use varve_media::conformance::devices::{PREFERRED_ZONES, SMALL_ZONES, TRANSLATED_ZONES, ZONED};

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

/// A record in the middle that is not sound hides none behind it.
#[test]
fn a_damaged_journal_is_told() {
    let env = Env::real();
    let inner = memory(&env, &TRANSLATED_ZONES, 40);
    let (device, handle) = open(&env, &inner, at_rest()).unwrap();
    for zone in 0..3 {
        device.block.write_at(zone * ZONE + 4096, &[7; 4096], &context()).unwrap();
        relocate(&handle, zone as u32);
    }
    drop((device, handle));
    let journal = 38 * ZONE;
    let damage = |at: u64| {
        let mut slot = vec![0; 4096];
        inner.block.read_at(journal + at, &mut slot, &context()).unwrap();
        let kept = slot.clone();
        slot[30] ^= 1;
        inner.block.write_at(journal + at, &slot, &context()).unwrap();
        let result = open(&env, &inner, at_rest()).map(|_| ());
        inner.block.write_at(journal + at, &kept, &context()).unwrap();
        result
    };
    // The first record, then the second; then the checkpoint.
    for at in [8192, 12288] {
        let error = damage(at).unwrap_err();
        assert_eq!(error.kind(), MediaErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("later ones"), "{error}");
    }
    assert_eq!(damage(0).unwrap_err().kind(), MediaErrorKind::InvalidRequest);
    let restored = open(&env, &inner, at_rest()).unwrap();
    let mut data = [0; 4096];
    restored.0.block.read_at(2 * ZONE + 4096, &mut data, &context()).unwrap();
    assert_eq!(data, [7; 4096]);
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
