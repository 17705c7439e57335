//! Both devices lose their power at one moment.

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use varve_media::{CrashGroup, CrashVariant, GroupCrashState};

/// What each sector may be after a power cut.
#[derive(Clone, Default)]
struct Allowed {
    /// As of the last sync, and since.
    stamps: Vec<BTreeSet<u64>>,
}

struct Cut {
    state: GroupCrashState,
    allowed: Allowed,
}

fn cut_at_points(seed: u64, steps: usize, every: u64, reached: &mut BufferStatistics) -> (u64, usize) {
    let (statistics, points, images) = in_simulation(seed, move |env| {
        let below = if seed % 5 == 4 { conventional(env) } else { disk(env) };
        let fast = fast(env);
        // Some are cut while they are made, too.
        open(env, &below, &fast, seed);
        let group = CrashGroup::new(env, &[below, fast]).unwrap();
        let [disk, fast] = group.devices().try_into().ok().unwrap();
        let (device, buffer) = open(env, &disk, &fast, seed);
        let mut host = Host::new(device, seed);
        let allowed = Allowed { stamps: vec![BTreeSet::from([0]); host.stamps.len()] };
        let allowed = Arc::new(Mutex::new(allowed));
        let cuts: Arc<Mutex<(u64, Vec<Cut>)>> = Arc::default();
        {
            let (cuts, allowed) = (Arc::clone(&cuts), Arc::clone(&allowed));
            group.on_persistence_point(move |_, _, capture| {
                let mut cuts = cuts.lock();
                cuts.0 += 1;
                if (cuts.0 + seed).is_multiple_of(every) {
                    cuts.1.push(Cut { state: capture(), allowed: allowed.lock().clone() });
                }
            });
        }
        for _ in 0..steps {
            let before = host.stamps.clone();
            match host.random.below(8) {
                0 => {
                    host.device.block.sync(&IoContext::default()).unwrap();
                    for (allowed, &stamp) in allowed.lock().stamps.iter_mut().zip(&host.stamps) {
                        *allowed = BTreeSet::from([stamp]);
                    }
                }
                1 => {
                    let range = host.range();
                    range.clone().for_each(|sector| {
                        allowed.lock().stamps[sector].insert(0);
                    });
                    host.stamps[range.clone()].fill(0);
                    let length = range.len() as u64 * SECTOR;
                    let at = range.start as u64 * SECTOR;
                    host.device.block.discard_at(at, length, &IoContext::default()).unwrap();
                }
                kind => {
                    let range = match kind {
                        2 | 3 => {
                            let zone = host.random.index(host.in_order.len());
                            let from = host.in_order[zone];
                            let sectors = (8 + host.random.below(4) * 8).min(ZONE / SECTOR - from);
                            host.in_order[zone] = (from + sectors) % (ZONE / SECTOR);
                            let first = (zone as u64 * ZONE / SECTOR + from) as usize;
                            first..first + sectors as usize
                        }
                        _ => host.range(),
                    };
                    let stamp = host.next + 1;
                    range.clone().for_each(|sector| {
                        allowed.lock().stamps[sector].insert(stamp);
                    });
                    host.write(range).unwrap();
                }
            }
            drop(before);
        }
        host.check();
        let (points, cuts) = std::mem::take(&mut *cuts.lock());
        let mut random = Random::named(seed, "cuts");
        let mut images = 0;
        for (number, cut) in cuts.iter().enumerate() {
            for _ in 0..2 {
                let variant = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
                let image = random.next_u64();
                let what = format!("seed {seed}, cut {number} of {}, {variant:?}, image {image}", cuts.len());
                let fates = CrashVariant::fates(variant, cut.state.members(), image);
                let [disk, fast] = cut.state.images(&fates, image).try_into().ok().unwrap();
                let opened = WriteBuffer::open(env, &disk, &fast, parameters(seed), BufferOpening::default(), None);
                let (device, _) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                let found = stamps(&device).unwrap_or_else(|| panic!("{what}: a torn sector"));
                for (sector, (found, allowed)) in found.iter().zip(&cut.allowed.stamps).enumerate() {
                    assert!(allowed.contains(found), "{what}: sector {sector} has {found}, not of {allowed:?}");
                }
                images += 1;
                // And it goes on from there.
                let mut host = Host::new(device, image);
                host.stamps = found;
                host.next = 1 << 32;
                (0..40).for_each(|_| host.step());
                host.check();
            }
        }
        (buffer.statistics(), points, images)
    });
    reached.rewritten_zones += statistics.rewritten_zones;
    reached.evictions += statistics.evictions;
    reached.direct_writes += statistics.direct_writes;
    reached.records += statistics.records;
    (points, images)
}

#[test]
fn nothing_that_was_synced_is_lost_at_any_point() {
    let mut reached = BufferStatistics::default();
    let (mut points, mut images) = (0, 0);
    for seed in 0..12 {
        let (more_points, more_images) = cut_at_points(seed, 120, 5, &mut reached);
        (points, images) = (points + more_points, images + more_images);
    }
    let BufferStatistics { rewritten_zones, evictions, direct_writes, records, .. } = reached;
    println!(
        "reached: block write buffer/power cuts: {points} points, {images} images, {evictions} evictions, {rewritten_zones} zones written \
         anew, {records} records"
    );
    for count in [rewritten_zones, evictions, direct_writes, records] {
        assert!(count > 20, "{reached:?}");
    }
}

/// A buffer whose making was cut short can be opened, or says that it is none.
#[test]
fn a_cut_while_it_is_made_leaves_what_can_be_made_again() {
    in_simulation(3, |env| {
        let group = CrashGroup::new(env, &[disk(env), fast(env)]).unwrap();
        let states: Arc<Mutex<Vec<GroupCrashState>>> = Arc::default();
        let own = Arc::clone(&states);
        group.on_persistence_point(move |_, _, capture| own.lock().push(capture()));
        let [disk, fast] = group.devices().try_into().ok().unwrap();
        open(env, &disk, &fast, 0);
        let states = std::mem::take(&mut *states.lock());
        assert!(states.len() > 5);
        for (number, state) in states.iter().enumerate() {
            for (image, variant) in CrashVariant::OF_DEVICES.into_iter().enumerate() {
                let fates = CrashVariant::fates(variant, state.members(), image as u64);
                let [disk, fast] = state.images(&fates, image as u64).try_into().ok().unwrap();
                let opened = WriteBuffer::open(env, &disk, &fast, parameters(0), BufferOpening::default(), None);
                let (device, _) = opened.unwrap_or_else(|error| panic!("point {number}, {variant:?}: {error}"));
                let mut host = Host::new(device, 1);
                (0..50).for_each(|_| host.step());
                host.check();
            }
        }
    });
}
