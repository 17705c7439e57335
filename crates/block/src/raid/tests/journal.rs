//! Arrays with a journal of stripes: power cuts, with members lost too.

use super::super::geometry::ArrayGeometry;
use super::super::stripe_journal;
use super::protection::{TYPE_1, protected};
use super::*;
use varve_media::{CrashGroup, CrashVariant, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector};
use varve_media::{FaultPlan, FaultTrigger, GroupCrashState, Operation};

const SMALL_CHUNK: u64 = 4 << 10;
const PARITY_SHAPES: [(RaidLevel, usize); 5] =
    [(RaidLevel::Raid4, 3), (RaidLevel::Raid5, 3), (RaidLevel::Raid5, 5), (RaidLevel::Raid6, 4), (RaidLevel::Raid6, 6)];

fn journaled(level: RaidLevel) -> ArrayParameters {
    let chunk_bytes = Some(SMALL_CHUNK);
    ArrayParameters { journal: Some(StripeJournal::Members), chunk_bytes, ..parameters(level) }
}

/// Tuples beside the data of plain members.
fn beside(level: RaidLevel) -> ArrayParameters {
    ArrayParameters { protection: Some(ProtectionPlace::Beside), ..journaled(level) }
}

fn open_journaled(env: &Env, level: RaidLevel, members: &[Option<Device>]) -> Result<(Device, Array), ArrayError> {
    Array::open(env, members, &journaled(level), &ArrayOpening::default())
}

/// Space of a member for its journal and five chunks, in bytes.
fn space_bytes(count: usize) -> u64 {
    let level = RaidLevel::Raid5;
    let geometry = ArrayGeometry { level, members: count, chunk_bytes: SMALL_CHUNK, stripes: 5 };
    2 * stripe_journal::area_bytes(&geometry, 0) + 5 * SMALL_CHUNK
}

fn members_with_journal(env: &Env, count: usize) -> Vec<Device> {
    members(env, count, space_bytes(count))
}

struct Cut {
    state: GroupCrashState,
    /// Allowed stamps of each sector: that of the last sync, and later ones.
    allowed: Vec<BTreeSet<u64>>,
    /// Slots that were lost before.
    lost: Vec<usize>,
}

#[derive(Default, Debug)]
struct Reached {
    points: u64,
    images: u64,
    with_losses: u64,
    recoveries_cut: u64,
}

impl Reached {
    fn add(&mut self, other: &Reached) {
        self.points += other.points;
        self.images += other.images;
        self.with_losses += other.with_losses;
        self.recoveries_cut += other.recoveries_cut;
    }
}

/// Sets of stamps that each sector may have.
type Allowed = Arc<Mutex<Vec<BTreeSet<u64>>>>;

/// Keeps a cut of every persistence point from now on, with what is allowed and lost at that moment.
fn record_cuts(group: &CrashGroup, allowed: &Allowed, lost: &Arc<Mutex<Vec<usize>>>) -> Arc<Mutex<Vec<Cut>>> {
    let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
    let (recorded, allowed, lost) = (Arc::clone(&cuts), Arc::clone(allowed), Arc::clone(lost));
    group.on_persistence_point(move |_, _, capture| {
        recorded.lock().push(Cut { state: capture(), allowed: allowed.lock().clone(), lost: lost.lock().clone() });
    });
    cuts
}

fn check(device: &Device, allowed: &[BTreeSet<u64>], what: &str) -> Vec<u64> {
    let found = stamps(device).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = found.unwrap_or_else(|| panic!("{what}: a torn sector"));
    for (sector, (found, allowed)) in found.iter().zip(allowed).enumerate() {
        assert!(allowed.contains(found), "{what}: sector {sector} has {found}, not of {allowed:?}");
    }
    found
}

/// The slots that a power cut takes besides those that are lost already: as many as the level tolerates, or fewer.
fn also_lost(level: RaidLevel, count: usize, before: &[usize], random: &mut Random) -> Vec<usize> {
    let mut lost = before.to_vec();
    let left = level.tolerated(count) - before.len();
    for _ in 0..random.below(left as u64 + 1) {
        let slot = random.index(count);
        if !lost.contains(&slot) {
            lost.push(slot);
        }
    }
    lost
}

fn cut_at_every_point(
    seed: u64,
    (parameters, count): (ArrayParameters, usize),
    steps: usize,
    space_bytes: u64,
    reached: &mut Reached,
) {
    let level = parameters.level;
    let of = in_simulation(seed, move |env| {
        let is_beside = parameters.protection == Some(ProtectionPlace::Beside);
        let has_own = parameters.journal == Some(StripeJournal::Device);
        let open_journaled = |env: &Env, devices: &[Device], lost: &[usize]| {
            let (members, journal) = (without(&devices[..count], lost), devices.get(count));
            Array::open_with_journal(env, &members, journal, &parameters, &ArrayOpening::default())
        };
        let mut bare = match seed.is_multiple_of(2) || is_beside {
            true => members(env, count, space_bytes),
            false => protected(env, count, space_bytes, TYPE_1).devices,
        };
        bare.extend(has_own.then(|| member(env, "journal", space_bytes)));
        let group = CrashGroup::new(env, &bare).unwrap();
        let (device, array) = open_journaled(env, &group.devices(), &[]).unwrap();
        let journal = if has_own { StripeJournal::Device } else { StripeJournal::Members };
        assert_eq!(array.status().journal, journal);
        let mut host = Host::new(device, seed);
        let allowed = Arc::new(Mutex::new(vec![BTreeSet::from([0]); host.stamps.len()]));
        let lost = Arc::new(Mutex::new(Vec::new()));
        let cuts = record_cuts(&group, &allowed, &lost);
        for step in 0..steps {
            host.step_within(&allowed);
            if seed % 3 == 2 && step == steps / 2 && level != RaidLevel::Raid0 {
                let slot = host.random.index(count);
                lost.lock().push(slot);
                array.fail(slot).unwrap();
            }
        }
        group.stop_observing();
        drop((host, array));
        let cuts = std::mem::take(&mut *cuts.lock());
        let mut reached = Reached { points: cuts.len() as u64, ..Reached::default() };
        let mut random = Random::named(seed, "cuts");
        for (number, cut) in cuts.iter().enumerate() {
            let variant = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
            let image = random.next_u64();
            let fates = CrashVariant::fates(variant, cut.state.members(), image);
            let devices = cut.state.images(&fates, image);
            let gone = also_lost(level, count, &cut.lost, &mut random);
            let what = format!(
                "{level} of {count}, seed {seed}, cut {number} of {}, {variant:?}, image {image}, without {gone:?}",
                cuts.len()
            );
            reached.images += 1;
            reached.with_losses += u64::from(!gone.is_empty());
            // The recovery is cut too, in some of them.
            let group = CrashGroup::new(env, &devices).unwrap();
            let points: Arc<Mutex<Vec<GroupCrashState>>> = Arc::default();
            if number % 7 == 0 {
                let points = Arc::clone(&points);
                group.on_persistence_point(move |_, _, capture| points.lock().push(capture()));
            }
            let (device, array) =
                open_journaled(env, &group.devices(), &gone).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = check(&device, &cut.allowed, &what);
            group.stop_observing();
            array.wait_for_maintenance();
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{what}: {report:?}");
            let mut host = Host::new(device, image);
            (host.stamps, host.next) = (found.clone(), 1 << 32);
            (0..4).for_each(|_| host.step().unwrap());
            host.check();
            drop((host, array));
            for (place, state) in std::mem::take(&mut *points.lock()).into_iter().enumerate() {
                let image = random.next_u64();
                let devices = state.images(&CrashVariant::fates(variant, state.members(), image), image);
                let what = format!("{what}, recovery cut at {place}, image {image}");
                let gone = also_lost(level, count, &gone, &mut random);
                let (device, array) =
                    open_journaled(env, &devices, &gone).unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&device, &cut.allowed, &what);
                let report = array.scrub(false, &IoContext::default()).unwrap();
                assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{what}: {report:?}");
                reached.recoveries_cut += 1;
            }
        }
        reached
    });
    reached.add(&of);
}

/// Subsets of the slots that may be lost together, besides those in `before`: every one that the level tolerates.
fn every_loss(level: RaidLevel, count: usize, before: &[usize]) -> Vec<Vec<usize>> {
    let subsets = (0..1_usize << count).map(|mask| (0..count).filter(|slot| mask >> slot & 1 == 1).collect::<Vec<_>>());
    subsets
        .filter(|lost| lost.len() <= level.tolerated(count) && before.iter().all(|slot| lost.contains(slot)))
        .collect()
}

/// Cuts an array at every point of a short history, in which a member fails and is rebuilt. Of what was being written each
/// subset of the members keeps all and the others nothing, and one more image has torn writes; each set of members that may be lost is lost with
/// it. Some recoveries are cut at every point as well.
fn cut_exhaustively(seed: u64, (parameters, count): (ArrayParameters, usize), space_bytes: u64, reached: &mut Reached) {
    let level = parameters.level;
    let of = in_simulation(seed, move |env| {
        let has_journal = parameters.journal.is_some();
        let group = CrashGroup::new(env, &members(env, count, space_bytes)).unwrap();
        let opening = ArrayOpening::default();
        let (device, array) = Array::open(env, &all(&group.devices()), &parameters, &opening).unwrap();
        let mut host = Host::new(device, seed);
        let allowed = Arc::new(Mutex::new(vec![BTreeSet::from([0]); host.stamps.len()]));
        let lost = Arc::new(Mutex::new(Vec::new()));
        let cuts = record_cuts(&group, &allowed, &lost);
        (0..3).for_each(|_| host.step_within(&allowed));
        if has_journal && level != RaidLevel::Raid0 {
            lost.lock().push(0);
            array.fail(0).unwrap();
            host.step_within(&allowed);
            array.replace(0, &group.devices()[0]).unwrap();
            host.step_within(&allowed);
            array.wait_for_maintenance();
            lost.lock().clear();
            host.step_within(&allowed);
        }
        group.stop_observing();
        drop((host, array));
        let cuts = std::mem::take(&mut *cuts.lock());
        let mut reached = Reached { points: cuts.len() as u64, ..Reached::default() };
        let mut random = Random::named(seed, "exhaustive cuts");
        for (number, cut) in cuts.iter().enumerate() {
            // Without a journal a loss together with a cut is the write hole, which is refused.
            let losses = if has_journal { every_loss(level, count, &cut.lost) } else { vec![Vec::new()] };
            for mask in 0..=1_usize << count {
                let image = random.next_u64();
                let fates: Vec<CrashVariant> = match mask >> count {
                    0 => {
                        let keeps =
                            |slot| if mask >> slot & 1 == 1 { CrashVariant::KeepAll } else { CrashVariant::DropAll };
                        (0..count).map(keeps).collect()
                    }
                    _ => {
                        let variant = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
                        CrashVariant::fates(variant, count, image)
                    }
                };
                for gone in &losses {
                    let what = format!(
                        "{level} of {count}, seed {seed}, cut {number} of {}, {fates:?}, image {image}, without {gone:?}",
                        cuts.len()
                    );
                    reached.images += 1;
                    reached.with_losses += u64::from(!gone.is_empty());
                    let devices = cut.state.images(&fates, image);
                    let group = CrashGroup::new(env, &devices).unwrap();
                    let points: Arc<Mutex<Vec<GroupCrashState>>> = Arc::default();
                    if reached.images.is_multiple_of(601) {
                        let points = Arc::clone(&points);
                        group.on_persistence_point(move |_, _, capture| points.lock().push(capture()));
                    }
                    let open = |devices: &[Device]| {
                        let (device, array) = Array::open(env, &without(devices, gone), &parameters, &opening)
                            .unwrap_or_else(|error| panic!("{what}: {error}"));
                        let found = check(&device, &cut.allowed, &what);
                        array.wait_for_maintenance();
                        let report = array.scrub(false, &IoContext::default()).unwrap();
                        let wrong = (report.mismatched_stripes, report.unreadable_stripes);
                        assert_eq!(wrong, (0, 0), "{what}: {report:?}");
                        assert_eq!(check(&device, &cut.allowed, &what), found, "{what}: maintenance changed data");
                    };
                    open(&group.devices());
                    group.stop_observing();
                    for state in std::mem::take(&mut *points.lock()) {
                        let keeps = |_| if random.chance(1, 2) { CrashVariant::KeepAll } else { CrashVariant::DropAll };
                        let fates: Vec<CrashVariant> = (0..count).map(keeps).collect();
                        open(&state.images(&fates, image));
                        reached.recoveries_cut += 1;
                    }
                }
            }
        }
        reached
    });
    reached.add(&of);
}

#[test]
fn every_subset_of_writes_in_flight_with_every_loss_leaves_old_or_new() {
    let mut reached = Reached::default();
    let small = [
        (RaidLevel::Raid0, 2),
        (RaidLevel::Raid1, 2),
        (RaidLevel::Raid4, 3),
        (RaidLevel::Raid5, 3),
        (RaidLevel::Raid6, 4),
    ];
    for (place, (level, count)) in small.into_iter().enumerate() {
        let space_bytes = space_bytes(count);
        let without_journal = ArrayParameters { chunk_bytes: Some(SMALL_CHUNK), ..parameters(level) };
        cut_exhaustively(300 + place as u64, (without_journal, count), space_bytes, &mut reached);
        if level.parity_columns() > 0 {
            cut_exhaustively(310 + place as u64, (journaled(level), count), space_bytes, &mut reached);
        }
        cut_exhaustively(320 + place as u64, (beside(level), count), space_bytes + (8 << 10), &mut reached);
    }
    println!("reached: block raid/exhaustive cuts: {reached:?}");
    assert!(reached.with_losses > 1000 && reached.recoveries_cut > 100, "{reached:?}");
}

#[test]
fn each_sector_is_old_or_new_after_a_cut_with_members_lost() {
    let mut reached = Reached::default();
    for (place, shape) in PARITY_SHAPES.into_iter().enumerate() {
        for round in 0..2 {
            let of = (journaled(shape.0), shape.1);
            cut_at_every_point(place as u64 * 3 + 1 + round, of, 16, space_bytes(shape.1), &mut reached);
        }
    }
    println!("reached: block raid/journal: {reached:?}");
    assert!(reached.with_losses > 300 && reached.recoveries_cut > 300, "{reached:?}");
}

#[test]
fn data_fit_the_tuples_beside_them_after_a_cut_with_members_lost() {
    let mut reached = Reached::default();
    for (place, (level, count)) in SHAPES.into_iter().enumerate() {
        let of = (beside(level), count);
        cut_at_every_point(100 + place as u64, of, 14, space_bytes(count) + (8 << 10), &mut reached);
    }
    // With chunks of a quarter of a group: several groups.
    for (place, level) in [RaidLevel::Raid1, RaidLevel::Raid5].into_iter().enumerate() {
        let parameters = ArrayParameters { chunk_bytes: Some(64 << 10), ..beside(level) };
        let geometry = ArrayGeometry { level, members: 3, chunk_bytes: 64 << 10, stripes: 6 };
        let space_bytes = 2 * stripe_journal::area_bytes(&geometry, 0) + (400 << 10);
        cut_at_every_point(200 + place as u64, (parameters, 3), 4, space_bytes, &mut reached);
    }
    println!("reached: block raid/journal, tuples beside data: {reached:?}");
    assert!(reached.with_losses > 150 && reached.recoveries_cut > 150, "{reached:?}");
}

fn on_a_device(level: RaidLevel) -> ArrayParameters {
    ArrayParameters { journal: Some(StripeJournal::Device), ..journaled(level) }
}

#[test]
fn each_sector_is_old_or_new_with_the_journal_on_its_own_device() {
    let mut reached = Reached::default();
    for (place, (level, count)) in PARITY_SHAPES.into_iter().enumerate() {
        let seed = 300 + place as u64;
        cut_at_every_point(seed, (on_a_device(level), count), 14, space_bytes(count), &mut reached);
    }
    let beside = ArrayParameters { journal: Some(StripeJournal::Device), ..beside(RaidLevel::Raid1) };
    cut_at_every_point(310, (beside, 2), 14, space_bytes(2) + (8 << 10), &mut reached);
    println!("reached: block raid/journal on a device: {reached:?}");
    assert!(reached.with_losses > 100 && reached.recoveries_cut > 100, "{reached:?}");
}

/// Members and a journal's device of an array in use, and the array.
fn array_with_own_journal(env: &Env) -> (Vec<Device>, Device, Device, Array) {
    let (members, journal) = (members_with_journal(env, 3), member(env, "journal", space_bytes(3)));
    let (level, opening) = (RaidLevel::Raid5, ArrayOpening::default());
    let opened = Array::open_with_journal(env, &all(&members), Some(&journal), &on_a_device(level), &opening);
    let (device, array) = opened.unwrap();
    (members, journal, device, array)
}

#[test]
fn an_array_is_opened_with_its_own_journal_only() {
    let env = Env::sim(5);
    let (members, journal, device, array) = array_with_own_journal(&env);
    device.block.write_at(0, &[7; 4096], &IoContext::default()).unwrap();
    drop((device, array));
    let (level, accepts) = (RaidLevel::Raid5, ArrayOpening { accepts_unsynced: true, ..ArrayOpening::default() });
    let parameters = ArrayParameters { journal: None, ..on_a_device(level) };
    let open = |journal: Option<&Device>, opening: &ArrayOpening| {
        Array::open_with_journal(&env, &all(&members), journal, &parameters, opening)
    };
    let default = ArrayOpening::default();
    let error = open(None, &default).err().expect("no journal");
    assert!(matches!(error, ArrayError::NeedsJournalDevice { .. }), "{error}");
    let error = open(Some(&members[1]), &default).err().expect("a member as the journal");
    assert!(matches!(error, ArrayError::OtherJournal { .. }), "{error}");
    assert!(error.to_string().contains("its member 1"), "{error}");
    let blank = member(&env, "blank", space_bytes(3));
    let error = open(Some(&blank), &default).err().expect("a blank device as the journal");
    assert!(matches!(error, ArrayError::OtherJournal { .. }), "{error}");
    let (_, others_journal, ..) = array_with_own_journal(&Env::sim(6));
    let error = open(Some(&others_journal), &accepts).err().expect("the journal of another array");
    assert!(matches!(error, ArrayError::OtherJournal { .. }), "{error}");
    // The journal's device is no member, and no journal of a new array.
    let as_member = [Some(journal.clone()), Some(members[0].clone()), Some(members[1].clone())];
    let error = Array::open_with_journal(&env, &as_member, None, &parameters, &default).err().expect("a journal");
    assert!(matches!(error, ArrayError::OtherJournal { .. }), "{error}");
    let fresh = members_with_journal(&env, 3);
    let made = Array::open_with_journal(&env, &all(&fresh), Some(&journal), &on_a_device(level), &default);
    let error = made.err().expect("a journal that is in use");
    assert!(matches!(error, ArrayError::OtherJournal { .. }), "{error}");
    // An array without one takes none.
    let (plain, _) =
        (members_with_journal(&env, 3), Array::open(&env, &all(&fresh), &journaled(level), &default).unwrap());
    let taken = Array::open_with_journal(&env, &all(&fresh), Some(&blank), &journaled(level), &default);
    assert!(matches!(taken.err(), Some(ArrayError::OtherJournal { .. })));
    let small = member(&env, "small", 4096);
    let made = Array::open_with_journal(&env, &all(&plain), Some(&small), &on_a_device(level), &default);
    assert!(matches!(made.err(), Some(ArrayError::Unsuitable { .. })));
    // Lost: another one takes its place, everything is resynced, and the first one is refused from then on. Where that was cut
    // short the members still name the one before.
    let copies: Vec<Device> = members
        .iter()
        .map(|of| {
            let mut bytes = vec![0; of.block.geometry().capacity_bytes as usize];
            of.block.read_at(0, &mut bytes, &IoContext::default()).unwrap();
            let copy = member(&env, "copy", space_bytes(3));
            copy.block.write_at(0, &bytes, &IoContext::default()).unwrap();
            copy
        })
        .collect();
    drop(Array::open_with_journal(&env, &all(&copies), Some(&blank), &parameters, &accepts).unwrap());
    let error = open(Some(&blank), &default).err().expect("a journal that took its place nowhere else");
    assert!(matches!(error, ArrayError::OtherJournal { .. }), "{error}");
    let (device, array) = open(Some(&blank), &accepts).unwrap();
    assert!(array.status().due_regions > 0 || array.statistics().resynced_stripes > 0);
    array.wait_for_maintenance();
    assert_eq!(array.statistics().resynced_stripes, array.status().stripes);
    let mut data = [0; 4096];
    device.block.read_at(0, &mut data, &IoContext::default()).unwrap();
    assert_eq!(data, [7; 4096]);
    drop((device, array));
    let error = open(Some(&journal), &accepts).err().expect("the journal of before");
    assert!(error.to_string().contains("went on with another one"), "{error}");
    drop(open(Some(&blank), &default).unwrap());
}

#[test]
fn an_array_stops_when_the_device_of_its_journal_fails() {
    in_simulation(7, |env| {
        let (members, journal) = (members_with_journal(env, 3), member(env, "journal", space_bytes(3)));
        let injector = FaultInjector::new(env, FaultPlan::default());
        let faulty = FaultDevice::device(&injector, &journal);
        let (level, opening) = (RaidLevel::Raid5, ArrayOpening::default());
        let open = |journal: &Device| {
            Array::open_with_journal(env, &all(&members), Some(journal), &on_a_device(level), &opening).unwrap()
        };
        let (device, array) = open(&faulty);
        let mut host = Host::new(device.clone(), 7);
        (0..10).for_each(|_| host.step().unwrap());
        let expected = host.stamps.clone();
        let fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
        injector.set_plan(FaultPlan::of(fault));
        let error = device.block.write_at(0, &[1; 4096], &IoContext::default()).expect_err("no journal");
        assert!(error.to_string().contains("the device of its journal (journal) failed"), "{error}");
        assert!(device.block.sync(&IoContext::default()).is_err());
        assert_eq!(array.degraded_members(), 0, "no member is blamed");
        drop((device, host, array));
        injector.set_plan(FaultPlan::default());
        let (device, _array) = open(&journal);
        assert_eq!(stamps(&device).unwrap().unwrap(), expected);
    });
}

#[test]
fn generations_turn_over_while_several_write() {
    for (number, (level, count)) in PARITY_SHAPES.into_iter().enumerate() {
        in_simulation(number as u64, move |env| {
            let members = members_with_journal(env, count);
            let (device, array) = open_journaled(env, level, &all(&members)).unwrap();
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (device, env) = (device.clone(), env.clone());
                    env.spawn("writer", move || {
                        let mut host = Host::new(device, writer);
                        for _ in 0..60 {
                            let range = host.range();
                            host.write(range).unwrap();
                        }
                    })
                })
                .collect();
            // A member fails meanwhile, and its place is taken.
            array.fail(0).unwrap();
            array.replace(0, &member(env, "spare", space_bytes(count))).unwrap();
            writers.into_iter().for_each(|writer| writer.join().unwrap_or_else(|panicked| panicked.resume()));
            array.wait_for_maintenance();
            assert_eq!(array.degraded_members(), 0);
            let report = array.scrub(false, &IoContext::default()).unwrap();
            assert_eq!((report.mismatched_stripes, report.unchecked_stripes), (0, 0), "{level}");
            let found = stamps(&device).unwrap().expect("a torn sector");
            // All of a mirror of the journal may go.
            let tolerated = level.tolerated(count);
            (0..tolerated).for_each(|slot| array.fail(count - 1 - slot).unwrap());
            assert_eq!(stamps(&device).unwrap().unwrap(), found, "{level}");
        });
    }
}

#[test]
fn a_member_whose_journal_cannot_be_written_is_lost() {
    for (level, count) in PARITY_SHAPES {
        in_simulation(5, move |env| {
            let members = members_with_journal(env, count);
            let injectors: Vec<FaultInjector> =
                members.iter().map(|_| FaultInjector::new(env, FaultPlan::default())).collect();
            let given: Vec<Option<Device>> = members
                .iter()
                .zip(&injectors)
                .map(|(member, injector)| Some(FaultDevice::device(injector, member)))
                .collect();
            let (device, array) = open_journaled(env, level, &given).unwrap();
            let mut host = Host::new(device, 5);
            (0..10).for_each(|_| host.step().unwrap());
            let fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
            injectors[0].set_plan(FaultPlan::of(fault));
            (0..40).for_each(|_| host.step().unwrap());
            host.check();
            assert_eq!(array.members()[0].1, MemberState::Lost, "{level}");
            let expected = host.stamps.clone();
            drop((host, array));
            let (device, _array) = open_journaled(env, level, &without(&members, &[0])).unwrap();
            assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{level}");
        });
    }
}

#[test]
fn an_array_keeps_the_journal_that_it_was_made_with() {
    let env = Env::real();
    let level = RaidLevel::Raid5;
    for (made, other) in [(StripeJournal::None, StripeJournal::Members), (StripeJournal::Members, StripeJournal::None)]
    {
        let members = members_with_journal(&env, 3);
        let with = |journal| ArrayParameters { journal, ..journaled(level) };
        let open = |journal| Array::open(&env, &all(&members), &with(journal), &ArrayOpening::default());
        drop(open(Some(made)).unwrap());
        let refused = open(Some(other)).err().expect("another journal");
        assert!(matches!(refused, ArrayError::OtherParameters { .. }), "{refused}");
        let (_, array) = open(None).unwrap();
        assert_eq!(array.status().journal, made);
    }
}

/// A record from before a member was lost has an older version of data that were written while it was lost.
#[test]
fn replay_does_not_undo_a_rebuild() {
    let mut reached = (0, 0);
    for (number, (level, count)) in PARITY_SHAPES.into_iter().enumerate() {
        let (cuts, rebuilt) = in_simulation(number as u64, move |env| {
            let bare = members_with_journal(env, count + 1);
            let group = CrashGroup::new(env, &bare).unwrap();
            let devices = group.devices();
            let (device, array) = open_journaled(env, level, &all(&devices[..count])).unwrap();
            let mut host = Host::new(device, number as u64);
            // Both records are of one generation.
            let stripe = (count - level.parity_columns()) * (SMALL_CHUNK / SECTOR) as usize;
            host.write(0..stripe).unwrap();
            array.fail(1).unwrap();
            host.write(0..stripe).unwrap();
            host.device.block.sync(&IoContext::default()).unwrap();
            let states: Arc<Mutex<Vec<GroupCrashState>>> = Arc::default();
            {
                let states = Arc::clone(&states);
                group.on_persistence_point(move |_, _, capture| states.lock().push(capture()));
            }
            array.replace(1, &devices[count]).unwrap();
            array.wait_for_maintenance();
            group.stop_observing();
            let expected = host.stamps.clone();
            drop((host, array));
            let states = std::mem::take(&mut *states.lock());
            let mut rebuilt = 0;
            for (cut, state) in states.iter().enumerate() {
                for (image, variant) in CrashVariant::OF_DEVICES.into_iter().enumerate() {
                    let fates = CrashVariant::fates(variant, state.members(), image as u64);
                    let devices = state.images(&fates, image as u64);
                    let mut given = without(&devices[..count], &[1]);
                    given[1] = Some(devices[count].clone());
                    let what = format!("{level} of {count}, cut {cut} of {}, {variant:?}", states.len());
                    let opened = open_journaled(env, level, &given).or_else(|_| {
                        // The new member is not known yet.
                        open_journaled(env, level, &without(&devices[..count], &[1]))
                    });
                    let (device, array) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                    rebuilt += u64::from(array.degraded_members() == 0);
                    assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{what}");
                    array.wait_for_maintenance();
                    assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{what}, after the rebuild");
                }
            }
            (states.len() as u64, rebuilt)
        });
        reached = (reached.0 + cuts, reached.1 + rebuilt);
    }
    println!(
        "reached: block raid/journal: {} cuts of rebuilds, {} images with the member in use",
        reached.0, reached.1
    );
    assert!(reached.1 > 20, "{reached:?}");
}

/// An image of a journaled array cut in the middle of a write, and what each sector may have.
fn cut_in_a_write(env: &Env, level: RaidLevel, count: usize) -> (Vec<Device>, Vec<BTreeSet<u64>>) {
    let group = CrashGroup::new(env, &members_with_journal(env, count)).unwrap();
    let (device, array) = open_journaled(env, level, &all(&group.devices())).unwrap();
    let mut host = Host::new(device, 3);
    let allowed = Arc::new(Mutex::new(vec![BTreeSet::from([0]); host.stamps.len()]));
    (0..6).for_each(|_| host.step_within(&allowed));
    let state = group.capture();
    let allowed = allowed.lock().clone();
    drop((host, array));
    let fates = vec![CrashVariant::KeepAll; state.members()];
    (state.images(&fates, 0), allowed)
}

#[test]
fn a_member_that_fails_during_replay_is_lost() {
    for (level, count) in PARITY_SHAPES {
        in_simulation(5, move |env| {
            let tolerated = level.tolerated(count);
            for operation in [Operation::Write, Operation::Sync, Operation::Read] {
                for failing in 1..=tolerated + 1 {
                    let (members, allowed) = cut_in_a_write(env, level, count);
                    let fault = match operation {
                        Operation::Read => {
                            let end = members[0].block.geometry().capacity_bytes;
                            let unreadable = FaultEffect::Fail(FaultError::Unreadable);
                            // Superblocks and the intent map stay readable.
                            Fault::new(operation, FaultTrigger::From(0), unreadable).on_range(16 << 10..end)
                        }
                        _ => Fault::new(operation, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io)),
                    };
                    let injectors: Vec<FaultInjector> =
                        (0..failing).map(|_| FaultInjector::new(env, FaultPlan::of(fault.clone()))).collect();
                    let under = |(slot, member): (usize, &Device)| match injectors.get(slot) {
                        Some(injector) => FaultDevice::device(injector, member),
                        None => member.clone(),
                    };
                    let given: Vec<Device> = members.iter().enumerate().map(under).collect();
                    let what = format!("{level} of {count}, {failing} fail each {operation}");
                    let opened = open_journaled(env, level, &all(&given));
                    if failing > tolerated {
                        assert!(matches!(opened, Err(ArrayError::Media(_))), "{what}: {:?}", opened.err());
                        continue;
                    }
                    let (device, array) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(array.degraded_members(), failing, "{what}");
                    check(&device, &allowed, &what);
                    let found = stamps(&device).unwrap();
                    drop((device, array));
                    let gone: Vec<usize> = (0..failing).collect();
                    let (device, _array) = open_journaled(env, level, &without(&members, &gone))
                        .unwrap_or_else(|error| panic!("{what}, again: {error}"));
                    assert_eq!(stamps(&device).unwrap(), found, "{what}, again");
                }
            }
        });
    }
}

/// Parity of a few bytes on both sides of a chunk's end is a whole chunk: many such writes are more than a record holds.
#[test]
fn small_writes_of_one_batch_fit_records() {
    for (level, count) in PARITY_SHAPES {
        in_simulation(5, move |env| {
            let members = members(env, count, space_bytes(count) + 100 * SMALL_CHUNK);
            let (device, _array) = open_journaled(env, level, &all(&members)).unwrap();
            let capacity = device.block.geometry().capacity_bytes;
            let stripe = (count - level.parity_columns()) as u64 * SMALL_CHUNK;
            let data = [7; 2 * SECTOR as usize];
            let slices = [std::io::IoSlice::new(&data)];
            let places = (SMALL_CHUNK - SECTOR..capacity - SECTOR).step_by(stripe as usize);
            let mut requests: Vec<varve_media::Request<'_>> =
                places.clone().map(|at| varve_media::Request::write(at, &slices)).collect();
            assert!(requests.len() > 50);
            device.block.execute(&mut requests, &IoContext::default()).unwrap();
            for at in places {
                let mut found = [0; 2 * SECTOR as usize];
                device.block.read_at(at, &mut found, &IoContext::default()).unwrap();
                assert_eq!(found, data, "{level} of {count} at {at}");
            }
        });
    }
}

/// The largest request of each level is divided so that each record fits an area, whatever its journal has to hold.
#[test]
fn large_requests_are_divided_into_records_that_fit() {
    for (number, (level, count)) in SHAPES.into_iter().enumerate() {
        for chunk_bytes in [4 << 10, 16 << 10, 64 << 10] {
            in_simulation(number as u64, move |env| {
                let geometry = ArrayGeometry { level, members: count, chunk_bytes, stripes: 20 };
                let space_bytes = 2 * stripe_journal::area_bytes(&geometry, 0) + 20 * chunk_bytes + (64 << 10);
                let members = members(env, count, space_bytes);
                let parameters = ArrayParameters { chunk_bytes: Some(chunk_bytes), ..beside(level) };
                let opened = Array::open(env, &all(&members), &parameters, &ArrayOpening::default());
                let (device, _array) = opened.unwrap();
                let mut host = Host::new(device, 1);
                host.write(0..host.stamps.len()).unwrap();
                host.write(1..host.stamps.len() - 1).unwrap();
                host.check();
            });
        }
    }
}
