//! Arrays of members that keep protection information.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_media::emulated::{Backing, Conventional, Immediate, RamBacking};
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultInjector, FaultPlan, FaultTrigger, Geometry, GuardKind, MediaErrorKind,
    Operation, ProtectionFormat, ProtectionTag, ProtectionTuple, ProtectionType,
};

const DIX: [Dix; 3] = [Dix::Off, Dix::Paper, Dix::On];
/// Bytes of a tuple that the guard and the reference tag have: a change of the others is not visible to either.
const CHECKED_TUPLE_BYTES: [usize; 6] = [0, 1, 4, 5, 6, 7];

/// Members that keep protection information, with what is on their media.
pub(super) struct Members {
    pub(super) devices: Vec<Device>,
    data: Vec<Arc<RamBacking>>,
    tuples: Vec<Arc<RamBacking>>,
}

pub(super) fn protected(
    env: &Env,
    count: usize,
    data_bytes: u64,
    (kind, guard): (ProtectionType, GuardKind),
) -> Members {
    let mut members = Members { devices: Vec::new(), data: Vec::new(), tuples: Vec::new() };
    for number in 0..count {
        let capacity_bytes = DATA_OFFSET + data_bytes;
        let geometry = Geometry { capacity_bytes, sector_bytes: SECTOR as u32, physical_sector_bytes: 4096 };
        let [data, tuples] = [(); 2].map(|()| Arc::new(RamBacking::new()));
        let (rules, timing) = (Box::new(Conventional), Box::<Immediate>::default());
        let emulated = Emulated::new(env, &format!("m{number}"), geometry, rules, timing, Box::new(Arc::clone(&data)));
        let emulated = emulated.with_protection(kind, guard, Box::new(Arc::clone(&tuples)));
        members.devices.push(Device::of_blocks(Arc::new(emulated)));
        members.data.push(data);
        members.tuples.push(tuples);
    }
    members
}

pub(super) const TYPE_1: (ProtectionType, GuardKind) = (ProtectionType::Type1, GuardKind::IpChecksum);

fn open_with(env: &Env, level: RaidLevel, members: &[Option<Device>], dix: Dix) -> Result<(Device, Array), ArrayError> {
    Array::open(env, members, &ArrayParameters { dix, ..parameters(level) }, &ArrayOpening::default())
}

fn format_of(device: &Device) -> ProtectionFormat {
    device.block.capabilities().protection.expect("an array with protection information")
}

fn place(range: &std::ops::Range<usize>) -> u64 {
    range.start as u64 * SECTOR
}

/// Reads sectors with their tuples, and verifies these.
fn read_protected(device: &Device, range: &std::ops::Range<usize>) -> Result<(Vec<u8>, Vec<u8>), MediaError> {
    let (mut data, mut tuples) = (vec![0; range.len() * SECTOR as usize], vec![0; range.len() * 8]);
    device.block.read_protected_at(place(range), &mut data, &mut tuples, &IoContext::default())?;
    let verified = format_of(device).verify(place(range), None, [&data[..]], &tuples);
    assert_eq!(verified, Ok(()), "an array returned data and tuples that do not fit");
    Ok((data, tuples))
}

fn application_tag(tuples: &[u8], number: usize) -> u16 {
    ProtectionTuple::decode(tuples[number * 8..number * 8 + 8].try_into().unwrap()).application
}

impl Host {
    /// Writes sectors with tuples whose application tags follow from the stamp.
    fn write_protected(&mut self, range: std::ops::Range<usize>) -> Result<(), MediaError> {
        self.next += 1;
        self.stamps[range.clone()].fill(self.next);
        let data = content(&self.stamps[range.clone()]);
        let mut tuples = vec![0; range.len() * 8];
        format_of(&self.device).generate(place(&range), self.next as u16, [&data[..]], &mut tuples);
        self.device.block.write_protected_at(place(&range), &data, &tuples, &IoContext::default())
    }

    /// A step with tuples in half of the writes and reads.
    fn protected_step(&mut self) -> Result<(), MediaError> {
        let range = self.range();
        match self.random.below(4) {
            0 => self.write_protected(range),
            1 => {
                let (data, _) = read_protected(&self.device, &range)?;
                assert!(data == content(&self.stamps[range.clone()]), "sectors {range:?} have other data");
                Ok(())
            }
            _ => self.step(),
        }
    }

    /// Writes every sector, so that each has a tuple that is checked.
    fn fill(&mut self) {
        self.write(0..self.stamps.len()).unwrap();
    }
}

#[test]
fn every_level_with_protection_is_a_block_device_whole_and_degraded() {
    let formats = [
        (ProtectionType::Type1, GuardKind::Crc),
        (ProtectionType::Type2, GuardKind::IpChecksum),
        (ProtectionType::Type3, GuardKind::Crc),
    ];
    let mut checked = 0;
    for (number, (level, count)) in SHAPES.into_iter().enumerate() {
        for (dix, lost) in
            [(Dix::Off, vec![]), (Dix::Paper, vec![]), (Dix::On, vec![]), (Dix::Paper, vec![0]), (Dix::On, vec![1])]
        {
            if lost.len() > level.tolerated(count) {
                continue;
            }
            let make = |env: &Env| {
                let members = protected(env, count, 256 << 10, formats[(number + checked) % 3]);
                let (device, array) = open_with(env, level, &all(&members.devices), dix).unwrap();
                lost.iter().for_each(|slot| array.fail(*slot).unwrap());
                device
            };
            let options =
                BlockDeviceCheck { steps: 60, keeps_application_tags: lost.is_empty(), ..BlockDeviceCheck::default() };
            if let Err(broken) = check_block_device(&make, &options) {
                panic!("{level} of {count}, {dix:?} without {lost:?}: {broken:?}");
            }
            checked += 1;
        }
    }
    println!("reached: block raid/protection: {checked} arrays checked");
    assert!(checked > 30);
}

#[test]
fn tuples_pass_through_and_losses_are_survived() {
    let (mut reads, mut kept) = (0, 0);
    for (level, count) in SHAPES {
        for (number, lost) in losses(count, level.tolerated(count).min(2)).into_iter().enumerate() {
            let seed = number as u64;
            let dix = if number % 2 == 0 { Dix::On } else { Dix::Paper };
            let of = in_simulation(seed, move |env| {
                let members = protected(env, count, 6 * CHUNK, TYPE_1);
                let (device, array) = open_with(env, level, &all(&members.devices), dix).unwrap();
                assert_eq!(format_of(&device).guard, GuardKind::IpChecksum);
                let mut host = Host::new(device, seed);
                (0..30).for_each(|_| host.protected_step().unwrap());
                // Application tags are passed on with data that members have.
                let (mut reads, mut kept) = (0, 0);
                for _ in 0..10 {
                    let range = host.range();
                    host.write_protected(range.clone()).unwrap();
                    let (_, tuples) = read_protected(&host.device, &range).unwrap();
                    reads += 1;
                    kept +=
                        u64::from((0..range.len()).all(|sector| application_tag(&tuples, sector) == host.next as u16));
                }
                for slot in &lost {
                    array.fail(*slot).unwrap();
                    host.check();
                    (0..20).for_each(|_| host.protected_step().unwrap());
                }
                for slot in &lost {
                    let spare = protected(env, 1, 6 * CHUNK, TYPE_1).devices.remove(0);
                    array.replace(*slot, &spare).unwrap();
                    (0..15).for_each(|_| host.protected_step().unwrap());
                }
                array.wait_for_maintenance();
                host.check();
                let report = array.scrub(false, &IoContext::default()).unwrap();
                assert_eq!((report.mismatched_stripes, report.unreadable_stripes), (0, 0), "{report:?}");
                let statistics = array.statistics();
                assert_eq!((statistics.mismatches, statistics.redone_requests), (0, 0), "{statistics:?}");
                // Everything is there under every other choice, too.
                let expected = host.stamps.clone();
                drop((host, array));
                for dix in DIX {
                    let mut given = all(&members.devices);
                    lost.iter().for_each(|slot| given[*slot] = None);
                    let opening =
                        ArrayOpening { is_read_only: true, accepts_unsynced: true, ..ArrayOpening::default() };
                    let parameters = ArrayParameters { dix, ..parameters(level) };
                    let Ok((device, _array)) = Array::open(env, &given, &parameters, &opening) else { continue };
                    assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{level} {dix:?}");
                }
                (reads, kept)
            });
            (reads, kept) = (reads + of.0, kept + of.1);
        }
    }
    println!("reached: block raid/protection: {kept} of {reads} reads had the tags that were written");
    assert_eq!(reads, kept);
    assert!(reads > 300);
}

/// Flips a bit now and then in what an array holds.
struct Flips {
    random: parking_lot::Mutex<Random>,
    /// Parts per flip, on average.
    one_in: u64,
    strikes_writes: bool,
    strikes_reads: bool,
    struck: AtomicU64,
}

impl Flips {
    fn of(seed: u64, strikes_writes: bool, strikes_reads: bool) -> Arc<Flips> {
        let random = parking_lot::Mutex::new(Random::named(seed, "flips"));
        Arc::new(Flips { random, one_in: 6, strikes_writes, strikes_reads, struck: AtomicU64::new(0) })
    }

    fn flip(&self, data: &mut [u8], tuples: &mut [u8]) {
        let mut random = self.random.lock();
        if !random.chance(1, self.one_in) {
            return;
        }
        if tuples.is_empty() || random.chance(2, 3) {
            let bit = random.index(data.len() * 8);
            data[bit / 8] ^= 1 << (bit % 8);
        } else {
            let tuple = random.index(tuples.len() / 8);
            tuples[tuple * 8 + CHECKED_TUPLE_BYTES[random.index(6)]] ^= 1 << random.below(8);
        }
        self.struck.fetch_add(1, Ordering::Relaxed);
    }

    fn struck(&self) -> u64 {
        self.struck.load(Ordering::Relaxed)
    }
}

impl BufferFaults for Flips {
    fn write_built(&self, _: usize, offset_bytes: &mut u64, data: &mut [u8], tuples: &mut [u8]) {
        if self.strikes_writes {
            if !tuples.is_empty() && self.random.lock().chance(1, 3 * self.one_in) {
                // To another place.
                *offset_bytes += 8 * SECTOR;
                self.struck.fetch_add(1, Ordering::Relaxed);
            } else {
                self.flip(data, tuples);
            }
        }
    }

    fn read_arrived(&self, _: usize, _: u64, data: &mut [u8], tuples: &mut [u8]) {
        if self.strikes_reads {
            self.flip(data, tuples);
        }
    }
}

/// Steps with flips in the array's buffers. Returns how many there were, errors, wrong reads, mismatched stripes at the end, and the statistics.
fn with_flips(
    (level, count): (RaidLevel, usize),
    dix: Dix,
    seed: u64,
    (writes, reads): (bool, bool),
) -> (u64, u64, u64, u64, ArrayStatistics) {
    in_simulation(seed, move |env| {
        let members = protected(env, count, 6 * CHUNK, TYPE_1);
        let (device, array) = open_with(env, level, &all(&members.devices), dix).unwrap();
        let mut host = Host::new(device, seed);
        host.fill();
        let flips = Flips::of(seed, writes, reads);
        array.strike_buffers(Arc::clone(&flips) as Arc<dyn BufferFaults>);
        let (mut errors, mut wrong) = (0, 0);
        for _ in 0..60 {
            let range = host.range();
            if host.random.chance(1, 2) {
                // What a write that failed left is not known.
                while host.write(range.clone()).is_err() {
                    errors += 1;
                }
                continue;
            }
            let mut data = vec![0; range.len() * SECTOR as usize];
            match host.device.block.read_at(place(&range), &mut data, &IoContext::default()) {
                Ok(()) => wrong += u64::from(data != content(&host.stamps[range])),
                Err(_) => errors += 1,
            }
        }
        array.wait_for_maintenance();
        let statistics = array.statistics();
        drop((host, array));
        // A resync that was struck is done again.
        let (_device, array) = open(env, level, &all(&members.devices)).unwrap();
        array.wait_for_maintenance();
        let report = array.scrub(false, &IoContext::default()).unwrap();
        (flips.struck(), errors, wrong, report.mismatched_stripes, statistics)
    })
}

#[test]
fn a_flip_in_the_array_is_found_and_mended() {
    let parity = SHAPES.into_iter().filter(|(level, _)| level.parity_columns() > 0);
    let mut struck = 0;
    for (number, shape) in parity.clone().chain([(RaidLevel::Raid1, 3)]).enumerate() {
        for seed in 0..6 {
            let (flips, errors, wrong, mismatched, _) =
                with_flips(shape, Dix::On, seed * 10 + number as u64, (true, true));
            assert_eq!((wrong, mismatched), (0, 0), "{shape:?} seed {seed}");
            // A part may be struck at each attempt.
            assert!(errors * 10 < flips, "{shape:?} seed {seed}: {errors} errors");
            struck += flips;
        }
    }
    println!("reached: block raid/protection: {struck} flips in buffers");
    assert!(struck > 1_000);
    // The paper verifies what goes down and what goes up, and not what it reads to compute parity.
    let (mut struck, mut stale) = (0, 0);
    for (number, shape) in parity.clone().enumerate() {
        let seed = number as u64;
        let (flips, _, wrong, mismatched, _) = with_flips(shape, Dix::Paper, seed, (true, false));
        assert_eq!((wrong, mismatched), (0, 0), "{shape:?}");
        struck += flips;
        let (flips, _, wrong, mismatched, _) = with_flips(shape, Dix::Paper, seed, (false, true));
        assert_eq!(wrong, 0, "{shape:?}");
        struck += flips;
        stale += mismatched;
    }
    assert!(struck > 300 && stale > 0, "{struck} {stale}");
    // Without tuples nobody sees them.
    let unseen: u64 = parity.map(|shape| with_flips(shape, Dix::Off, 1, (true, true)).2).sum();
    assert!(unseen > 20, "{unseen}");
}

/// Flips bits of what is on the medium of a member, below what verifies.
fn rot(backing: &RamBacking, offset_bytes: u64, random: &mut Random) {
    let mut byte = [0];
    backing.read_at(offset_bytes, &mut byte).unwrap();
    byte[0] ^= 1 << random.below(8);
    backing.write_at(offset_bytes, &byte).unwrap();
}

#[test]
fn rot_on_a_medium_is_repaired_while_redundancy_lasts() {
    let mut repaired = 0;
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| *level != RaidLevel::Raid0) {
        let before = repaired;
        for dix in [Dix::Paper, Dix::On] {
            for seed in 0..4 {
                repaired += in_simulation(seed, move |env| {
                    let members = protected(env, count, 6 * CHUNK, TYPE_1);
                    let (device, array) = open_with(env, level, &all(&members.devices), dix).unwrap();
                    let mut host = Host::new(device, seed);
                    host.fill();
                    // In each stripe as many members as the level tolerates, in data or tuples.
                    let tolerated = level.tolerated(count).min(2);
                    for stripe in 0..6 {
                        let first = host.random.index(count);
                        for number in 0..tolerated {
                            let slot = (first + number) % count;
                            let sector = host.random.below(CHUNK / SECTOR);
                            let at = DATA_OFFSET + stripe * CHUNK + sector * SECTOR;
                            if host.random.chance(1, 2) {
                                rot(&members.data[slot], at + host.random.below(SECTOR), &mut host.random);
                            } else {
                                let byte = CHECKED_TUPLE_BYTES[host.random.index(6)] as u64;
                                rot(&members.tuples[slot], at / SECTOR * 8 + byte, &mut host.random);
                            }
                        }
                    }
                    if seed % 2 == 0 {
                        // Reads repair data that they meet.
                        host.check();
                        let statistics = array.statistics();
                        let incidents = array.incidents();
                        assert_eq!(incidents.len() as u64, statistics.rewritten_columns);
                        assert!(incidents.iter().all(|incident| incident.is_repaired), "{incidents:?}");
                        assert!(incidents.iter().all(|incident| incident.error.kind() == MediaErrorKind::Protection));
                        host.check();
                        assert_eq!(
                            array.statistics().rewritten_columns,
                            statistics.rewritten_columns,
                            "repaired twice"
                        );
                    }
                    let report = array.scrub(true, &IoContext::default()).unwrap();
                    assert_eq!(report.unreadable_stripes, 0, "{level} {dix:?} {report:?}");
                    let report = array.scrub(false, &IoContext::default()).unwrap();
                    assert_eq!((report.stripes, report.mismatched_stripes), (6, 0), "{level} {dix:?} {report:?}");
                    host.check();
                    assert_eq!(array.degraded_members(), 0);
                    array.statistics().rewritten_columns
                });
            }
        }
        assert!(repaired > before, "{level} of {count}");
    }
    println!("reached: block raid/protection: {repaired} columns rewritten");
    assert!(repaired > 200);
}

#[test]
fn damage_beyond_redundancy_is_reported_with_its_place() {
    for (level, count) in [(RaidLevel::Raid5, 4), (RaidLevel::Raid6, 4), (RaidLevel::Raid1, 2)] {
        for dix in [Dix::Paper, Dix::On] {
            in_simulation(1, move |env| {
                let members = protected(env, count, 6 * CHUNK, TYPE_1);
                let (device, array) = open_with(env, level, &all(&members.devices), dix).unwrap();
                let mut host = Host::new(device, 1);
                host.fill();
                let at = DATA_OFFSET + 2 * CHUNK + 3 * SECTOR;
                for slot in 0..=level.tolerated(count) {
                    rot(&members.data[slot], at + 7, &mut host.random);
                }
                let error = stamps(&host.device).unwrap_err();
                assert!(
                    matches!(error, MediaError::Protection { offset_bytes, tag: ProtectionTag::Guard, .. } if offset_bytes == at),
                    "{level} {dix:?}: {error}"
                );
                let report = array.scrub(true, &IoContext::default()).unwrap();
                assert_eq!(report.unreadable_stripes, 1, "{report:?}");
                assert_eq!(array.degraded_members(), 0);
            });
        }
    }
}

/// An array with an injector over each member.
fn faulty(env: &Env, level: RaidLevel, members: &[Device], dix: Dix) -> (Device, Array, Vec<FaultInjector>) {
    let injectors: Vec<FaultInjector> = members.iter().map(|_| FaultInjector::new(env, FaultPlan::default())).collect();
    let given: Vec<Option<Device>> =
        members.iter().zip(&injectors).map(|(member, injector)| Some(FaultDevice::device(injector, member))).collect();
    let (device, array) = open_with(env, level, &given, dix).unwrap();
    (device, array, injectors)
}

#[test]
fn faults_between_array_and_members_are_detected() {
    let mut met = 0;
    let effects = [
        (Operation::Read, FaultEffect::FlipBits(1)),
        (Operation::Read, FaultEffect::Misdirect),
        (Operation::Write, FaultEffect::FlipBits(1)),
        (Operation::Write, FaultEffect::Misdirect),
    ];
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| level.parity_columns() > 0) {
        for dix in [Dix::Paper, Dix::On] {
            for (seed, (operation, effect)) in effects.clone().into_iter().enumerate() {
                // What the paper reads for parity is not verified.
                if dix == Dix::Paper && operation == Operation::Read {
                    continue;
                }
                met += in_simulation(seed as u64, move |env| {
                    let members = protected(env, count, 6 * CHUNK, TYPE_1);
                    let (device, array, injectors) = faulty(env, level, &members.devices, dix);
                    let mut host = Host::new(device, seed as u64);
                    host.fill();
                    // What was never written has no tuple that is checked: a misdirected read of it cannot be seen.
                    for member in &members.devices {
                        let gap_bytes = DATA_OFFSET - (16 << 10);
                        let zeros = vec![0; gap_bytes as usize];
                        member.block.write_at(16 << 10, &zeros, &IoContext::default()).unwrap();
                    }
                    let trigger = FaultTrigger::Random { numerator: 1, denominator: 60 };
                    for (number, injector) in injectors.iter().enumerate() {
                        let mut fault = Fault::new(operation, trigger, effect.clone());
                        // Not the superblocks, which members verify by their own tuples.
                        fault.range = Some(DATA_OFFSET..u64::MAX);
                        injector.set_plan(FaultPlan { seed: number as u64, ..FaultPlan::of(fault) });
                    }
                    (0..80).for_each(|_| {
                        let range = host.range();
                        host.write(range).unwrap();
                        let range = host.range();
                        let mut data = vec![0; range.len() * SECTOR as usize];
                        let read = host.device.block.read_at(place(&range), &mut data, &IoContext::default());
                        assert!(read.is_err() || data == content(&host.stamps[range]), "{level} {dix:?} {effect:?}");
                    });
                    injectors.iter().for_each(|injector| injector.set_plan(FaultPlan::default()));
                    let statistics = array.statistics();
                    assert_eq!(statistics.failed_members, 0, "{level} {dix:?} {effect:?}");
                    statistics.mismatches + statistics.redone_requests
                });
            }
        }
    }
    println!("reached: block raid/protection: {met} mismatches between array and members");
    assert!(met > 50, "{met}");
}

#[test]
fn a_member_that_refuses_verified_writes_is_lost() {
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| level.parity_columns() > 0) {
        for dix in [Dix::Paper, Dix::On] {
            in_simulation(2, move |env| {
                let members = protected(env, count, 6 * CHUNK, TYPE_1);
                let (device, array, injectors) = faulty(env, level, &members.devices, dix);
                let mut host = Host::new(device, 2);
                host.fill();
                let mut fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::FlipBits(1));
                fault.range = Some(DATA_OFFSET..u64::MAX);
                injectors[1].set_plan(FaultPlan::of(fault));
                host.fill();
                host.check();
                assert_eq!(array.members()[1].1, MemberState::Lost, "{level} {dix:?}");
                assert_eq!(array.degraded_members(), 1);
            });
        }
    }
}

#[test]
fn a_write_whose_tuples_do_not_fit_changes_nothing() {
    for (level, count) in SHAPES {
        for dix in [Dix::Paper, Dix::On] {
            in_simulation(3, move |env| {
                let members = protected(env, count, 6 * CHUNK, TYPE_1);
                let (device, array) = open_with(env, level, &all(&members.devices), dix).unwrap();
                let mut host = Host::new(device, 3);
                host.fill();
                let data = vec![9; 40 * SECTOR as usize];
                let mut tuples = vec![0; 40 * 8];
                format_of(&host.device).generate(5 * SECTOR, 0, [&data[..]], &mut tuples);
                for (byte, tag) in [(33 * 8, ProtectionTag::Guard), (33 * 8 + 7, ProtectionTag::Reference)] {
                    tuples[byte] ^= 1;
                    let written =
                        host.device.block.write_protected_at(5 * SECTOR, &data, &tuples, &IoContext::default());
                    let error = written.unwrap_err();
                    assert!(
                        matches!(error, MediaError::Protection { tag: found, .. } if found == tag),
                        "{level} {dix:?}: {error}"
                    );
                    tuples[byte] ^= 1;
                }
                assert_eq!(array.degraded_members(), 0, "{level} {dix:?}");
                // RAID 0 and 1 of the paper leave it to the members: the others may have written.
                if dix == Dix::On || level.parity_columns() > 0 {
                    host.check();
                }
            });
        }
    }
}

#[test]
fn members_of_an_array_keep_the_same_protection_information() {
    let env = Env::real();
    let level = RaidLevel::Raid5;
    let [of_type_1, of_type_3] = [ProtectionType::Type1, ProtectionType::Type3]
        .map(|kind| protected(&env, 4, 6 * CHUNK, (kind, GuardKind::Crc)).devices);
    let with_crc = &of_type_1[..3];
    let ip = protected(&env, 1, 6 * CHUNK, TYPE_1).devices;
    let plain = members(&env, 1, 6 * CHUNK);
    for other in [&of_type_3[0], &ip[0], &plain[0]] {
        let mixed = all(&[with_crc[0].clone(), other.clone(), with_crc[1].clone()]);
        let refused = open(&env, level, &mixed).err().expect("mixed members");
        assert!(matches!(refused, ArrayError::Unsuitable { .. }), "{refused}");
    }
    let (device, array) = open(&env, level, &all(with_crc)).unwrap();
    let mut host = Host::new(device, 1);
    host.fill();
    array.fail(2).unwrap();
    for other in [&of_type_3[0], &ip[0], &plain[0]] {
        let refused = array.replace(2, other).unwrap_err();
        assert!(matches!(refused, ArrayError::Unsuitable { .. }), "{refused}");
    }
    array.replace(2, &of_type_1[3]).unwrap();
    array.wait_for_maintenance();
    host.check();
}
