//! All members lose their power at one moment, each with a fate of its own.

use super::protection::{TYPE_1, protected};
use super::*;
use varve_media::{CrashGroup, CrashVariant, GroupCrashState};

struct Cut {
    state: GroupCrashState,
    /// What each sector may be: as of the last sync, and since.
    allowed: Vec<BTreeSet<u64>>,
}

/// Counts of what was reached.
#[derive(Default, Debug)]
struct Reached {
    points: u64,
    images: u64,
    repaired: u64,
    refused: u64,
}

fn cut_at_every_point(seed: u64, (level, count): (RaidLevel, usize), steps: usize, reached: &mut Reached) {
    let (points, images, repaired, refused) = in_simulation(seed, move |env| {
        let bare = match seed % 4 {
            2 => protected(env, count, 5 * CHUNK, TYPE_1).devices,
            _ => members(env, count, 5 * CHUNK),
        };
        let group = CrashGroup::new(env, &bare).unwrap();
        let given = all(&group.devices());
        let (device, array) = open(env, level, &given).unwrap();
        let mut host = Host::new(device, seed);
        let allowed = Arc::new(Mutex::new(vec![BTreeSet::from([0]); host.stamps.len()]));
        let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
        {
            let (cuts, allowed) = (Arc::clone(&cuts), Arc::clone(&allowed));
            group.on_persistence_point(move |_, _, capture| {
                cuts.lock().push(Cut { state: capture(), allowed: allowed.lock().clone() });
            });
        }
        for step in 0..steps {
            host.step_within(&allowed);
            // A member fails, and another one is rebuilt in its place, in some runs.
            if level != RaidLevel::Raid0 && seed % 4 == 3 && step == steps / 2 {
                array.fail(1).unwrap();
            }
        }
        group.stop_observing();
        let is_degraded = array.degraded_members() > 0;
        drop((host, array));
        let cuts = std::mem::take(&mut *cuts.lock());
        let (mut images, mut repaired, mut refused) = (0, 0, 0);
        let mut random = Random::named(seed, "cuts");
        for (number, cut) in cuts.iter().enumerate() {
            let variant = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
            let image = random.next_u64();
            let what =
                format!("{level} of {count}, seed {seed}, cut {number} of {}, {variant:?}, image {image}", cuts.len());
            let fates = CrashVariant::fates(variant, cut.state.members(), image);
            let devices = cut.state.images(&fates, image);
            let mut given = all(&devices);
            let mut opening = ArrayOpening { create: false, ..ArrayOpening::default() };
            let opened = match Array::open(env, &given, &parameters(level), &opening) {
                Err(ArrayError::Stale { slot: 1, .. }) if is_degraded => {
                    // The array is older than its failed member says, which is left out.
                    given[1] = None;
                    Array::open(env, &given, &parameters(level), &opening)
                }
                opened => opened,
            };
            let opened = match opened {
                Err(ArrayError::Unsynced { missing: 1, .. }) if is_degraded => {
                    // The write hole: what was being written may be wrong, and the caller is asked.
                    refused += 1;
                    opening.accepts_unsynced = true;
                    let opened = Array::open(env, &given, &parameters(level), &opening);
                    let (_device, array) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                    // With a new member the redundancy fits the data again, whatever these are.
                    array.replace(1, &member(env, "spare", 5 * CHUNK)).unwrap();
                    array.wait_for_maintenance();
                    let report = array.scrub(false, &IoContext::default()).unwrap();
                    assert_eq!((report.mismatched_stripes, report.unchecked_stripes), (0, 0), "{what}: {report:?}");
                    continue;
                }
                opened => opened.unwrap_or_else(|error| panic!("{what}: {error}")),
            };
            let (device, array) = opened;
            // At once, and after the resync.
            let found = stamps(&device).unwrap().unwrap_or_else(|| panic!("{what}: a torn sector"));
            for (sector, (found, allowed)) in found.iter().zip(&cut.allowed).enumerate() {
                assert!(allowed.contains(found), "{what}: sector {sector} has {found}, not of {allowed:?}");
            }
            array.wait_for_maintenance();
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{what}: {report:?}");
            assert_eq!(stamps(&device).unwrap(), Some(found.clone()), "{what}: the resync changed data");
            repaired += array.statistics().repaired_stripes;
            images += 1;
            // And it goes on from there, without a member too.
            let mut host = Host::new(device, image);
            (host.stamps, host.next) = (found, 1 << 32);
            (0..6).for_each(|_| host.step().unwrap());
            if level != RaidLevel::Raid0 && array.degraded_members() < level.tolerated(count) {
                array.fail(random.index(count)).unwrap();
            }
            host.check();
        }
        (cuts.len() as u64, images, repaired, refused)
    });
    reached.points += points;
    reached.images += images;
    reached.repaired += repaired;
    reached.refused += refused;
}

#[test]
fn redundancy_is_consistent_and_synced_data_are_there_at_every_point() {
    let mut reached = Reached::default();
    for (place, shape) in SHAPES.into_iter().enumerate() {
        for round in 0..4 {
            cut_at_every_point(place as u64 * 4 + round, shape, 30, &mut reached);
        }
    }
    println!("reached: block raid/power cuts: {reached:?}");
    assert!(reached.images > 1000 && reached.repaired > 50 && reached.refused > 20, "{reached:?}");
}

/// An array whose making was cut short is made again, and never taken for one that is there.
#[test]
fn a_cut_while_it_is_made_leaves_what_can_be_made_again() {
    for (level, count) in SHAPES {
        for format in [false, true] {
            in_simulation(3, move |env| {
                let bare = members(env, count, 5 * CHUNK);
                if format {
                    bare[0].block.write_at(DATA_OFFSET, &[9; 4096], &IoContext::default()).unwrap();
                }
                let group = CrashGroup::new(env, &bare).unwrap();
                let states: Arc<Mutex<Vec<GroupCrashState>>> = Arc::default();
                let own = Arc::clone(&states);
                group.on_persistence_point(move |_, _, capture| own.lock().push(capture()));
                let opening = ArrayOpening { format, ..ArrayOpening::default() };
                let opened = Array::open(env, &all(&group.devices()), &parameters(level), &opening).unwrap();
                group.stop_observing();
                drop(opened);
                let states = std::mem::take(&mut *states.lock());
                assert!(states.len() > 10);
                for (number, state) in states.iter().enumerate() {
                    for (image, variant) in CrashVariant::OF_DEVICES.into_iter().enumerate() {
                        let fates = CrashVariant::fates(variant, state.members(), image as u64);
                        let devices = state.images(&fates, image as u64);
                        let what = format!("{level}, format {format}, point {number}, {variant:?}");
                        let opened = Array::open(env, &all(&devices), &parameters(level), &ArrayOpening::default());
                        let opened = match opened {
                            // Cut before the first superblock was there.
                            Err(ArrayError::NotBlank { .. }) if format => {
                                Array::open(env, &all(&devices), &parameters(level), &opening)
                            }
                            opened => opened,
                        };
                        let (device, array) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                        array.wait_for_maintenance();
                        assert_eq!(array.scrub(false, &IoContext::default()).unwrap().mismatched_stripes, 0, "{what}");
                        let mut host = Host::new(device, 1);
                        host.stamps = stamps(&host.device).unwrap().unwrap();
                        (0..4).for_each(|_| host.step().unwrap());
                        host.check();
                    }
                }
            });
        }
    }
}
