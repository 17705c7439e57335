//! The mark in the first sector: there while the first zone is a spare, and nowhere else.

use super::*;
use varve_media::conformance::devices::{PREFERRED_ZONES, TRANSLATED_ZONES};
use varve_media::{BlockDevice, Emulated, LAYER_JOURNAL_MARK, ZoneGeometry, ZoneType, Zoned};

fn is_marked(inner: &Device) -> bool {
    let mut first = [0; 4096];
    inner.block.read_at(0, &mut first, &context()).unwrap();
    first.starts_with(LAYER_JOURNAL_MARK)
}

#[test]
fn the_first_sector_is_marked_while_the_first_zone_is_a_spare() {
    for seed in 1..3 {
        simulate(seed, seed > 1, |env| {
            let raw: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(env, "disk", 40 * ZONE));
            let fit = ZoneGeometry::fit(40 * ZONE, ZONE).unwrap();
            let inner =
                Zoned::new(&ZoneGeometry { sequential_type: ZoneType::SequentialWritePreferred, ..fit }).over(&raw);
            let (mut with, mut without) = (0, 0);
            for round in 0..12u8 {
                // The mark is found again, and written where a process that ended had not come to it.
                let (device, handle) = open(env, &inner, at_rest()).unwrap();
                let logical = u64::from(round % 3);
                device.block.write_at(logical * ZONE + 4096, &[1 + round; 4096], &context()).unwrap();
                device.block.write_at(logical * ZONE, &[101 + round; 4096], &context()).unwrap();
                relocate(&handle, logical as u32);
                check_map(handle.core_of());
                let is_spare = {
                    let state = handle.core_of().state.lock();
                    state.map.spares().iter().any(|spare| spare.zone == ZoneId(0))
                };
                assert_eq!(is_marked(&inner), is_spare, "round {round}");
                *(if is_spare { &mut with } else { &mut without }) += 1;
                for zone in 0..3.min(u64::from(round) + 1) {
                    let mut data = [0; 8192];
                    device.block.read_at(zone * ZONE, &mut data, &context()).unwrap();
                    let last = (0..=round).rev().find(|round| u64::from(round % 3) == zone).unwrap();
                    assert!(data[..4096] == [101 + last; 4096] && data[4096..] == [1 + last; 4096], "round {round}");
                }
            }
            assert!(with > 0 && without > 0, "{with} rounds with the mark, {without} without");
        });
    }
}

/// The first sector of a disk with conventional zones is that of the store above.
#[test]
fn conventional_zones_are_not_marked() {
    for device in [&TRANSLATED_ZONES, &PREFERRED_ZONES] {
        simulate(1, false, |env| {
            let inner = memory(env, device, 40);
            let is_conventional = inner.block.capabilities().zones.as_ref().unwrap().conventional_zones > 0;
            let (_device, _handle) = open(env, &inner, at_rest()).unwrap();
            assert_ne!(is_marked(&inner), is_conventional);
        });
    }
}
