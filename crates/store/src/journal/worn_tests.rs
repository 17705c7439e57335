//! A journal in zones of which one wears out.

use super::zone_tests::{UNIT_BYTES, contents, format, formatted, of, opened, recover, with_bad_bytes};
use super::*;
use std::sync::{Arc, Mutex};
use varve_env::Env;
use varve_media::conformance::devices::{NAMESPACE, SMALL_NAMESPACE};
use varve_media::{
    CrashDevice, CrashVariant, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
    Geometry, Operation, ZoneId,
};

/// Zones of a group, in most tests.
const GROUP_ZONES: u32 = 7;
const METADATA_ZONES: u32 = 3 * GROUP_ZONES;
const WORN: [FaultEffect; 2] = [FaultEffect::ZoneReadOnly, FaultEffect::ZoneOffline];

/// A journal of several generations, with a commit in the last.
fn used(env: &Env, generations: u64) -> Device {
    let device = formatted(env, NAMESPACE, MIRRORED_GROUPS, GROUP_ZONES);
    let mut journal = opened(&device);
    for generation in 1..generations {
        journal.commit(b"earlier", CommitStyle::Single).unwrap();
        journal.begin(Some(format!("state {generation}").as_bytes())).unwrap();
    }
    journal.commit(b"kept", CommitStyle::Single).unwrap();
    device
}

/// The device with zones that are worn from the beginning.
fn with_worn(env: &Env, device: &Device, zones: &[(u32, FaultEffect)]) -> Device {
    let injector = FaultInjector::new(env, FaultPlan::default());
    let worn = FaultDevice::device(&injector, device);
    let geometry = device.block.capabilities().zones.clone().unwrap();
    for (zone, effect) in zones {
        let fault = Fault::new(Operation::Zone, FaultTrigger::From(0), effect.clone());
        injector.set_plan(FaultPlan::of(Fault { range: Some(geometry.range(ZoneId(*zone))), ..fault }));
        worn.zones.as_ref().unwrap().report(ZoneId(*zone), 1, &METADATA).unwrap();
    }
    injector.set_plan(FaultPlan::default());
    worn
}

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.code).collect()
}

/// Commits as a store does: what is not acknowledged goes into the state of the next generation.
fn commit(journal: &mut Journal, commits: &mut Vec<String>, text: &str) -> Result<(), StoreError> {
    commits.push(text.to_owned());
    let needs_generation = match journal.fits(text.len(), CommitStyle::Single) {
        true => journal.commit(text.as_bytes(), CommitStyle::Single)? == Committed::NeedsGeneration,
        false => true,
    };
    if needs_generation {
        journal.begin(Some(commits.join(" ").as_bytes()))?;
    }
    Ok(())
}

/// Everything in the state and behind it.
fn all(device: &Device) -> Result<String, StoreError> {
    let (state, commits) = contents(device)?;
    Ok([vec![state], commits].concat().join(" "))
}

#[test]
fn opens_and_goes_on_whichever_zone_is_worn() {
    let env = Env::sim(1);
    let mut opened_times = 0;
    for (generations, effect, zone) in (1..5)
        .flat_map(|generations| WORN.map(|effect| (generations, effect)))
        .flat_map(|(generations, effect)| (0..METADATA_ZONES).map(move |zone| (generations, effect.clone(), zone)))
    {
        let device = used(&env, generations);
        let what = format!("{generations} generations, zone {zone}: {effect:?}");
        let state = if generations == 1 { "state 0".to_owned() } else { format!("state {}", generations - 1) };
        let worn = with_worn(&env, &device, &[(zone, effect)]);
        let (mut journal, recovered) = recover(&worn).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((recovered.checkpoint, recovered.commits), (state.into_bytes(), vec![b"kept".to_vec()]), "{what}");
        assert!(codes(&recovered.findings).contains(&"metadata-redundancy"), "{what}: {:?}", recovered.findings);
        let mut commits = vec!["state".to_owned()];
        journal.begin(Some(b"state")).unwrap_or_else(|error| panic!("{what}: {error}"));
        for number in 0..40 {
            commit(&mut journal, &mut commits, &format!("{number}")).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(codes(&journal.check_medium()), ["metadata-redundancy"], "{what}, commit {number}");
        }
        drop(journal);
        assert_eq!(all(&worn).unwrap(), commits.join(" "), "{what}");
        // Another group may be lost then.
        for other in (0..3).map(|group| group * GROUP_ZONES).filter(|other| other / GROUP_ZONES != zone / GROUP_ZONES) {
            let twice = with_worn(&env, &worn, &[(other, FaultEffect::ZoneOffline)]);
            assert_eq!(all(&twice).unwrap_or_else(|error| panic!("{what}: {error}")), commits.join(" "), "{what}");
        }
        opened_times += 1;
    }
    println!("reached: journal zones that wear out at rest: {opened_times} openings");
    assert_eq!(opened_times, 4 * 2 * METADATA_ZONES);
}

/// At every write, sync and zone command of commits and changes of generation one zone wears out, or refuses everything
/// while the device says that it can be written. Power fails then, or the journal goes on.
#[test]
fn loses_nothing_when_a_zone_wears_out_in_use() {
    let env = Env::sim(1);
    let (mut faults, mut moved) = (0, 0);
    let worn = WORN.map(|effect| (Operation::Write, effect));
    let refused = [Operation::Write, Operation::Zone, Operation::Read].into_iter().flat_map(|operation| {
        [FaultEffect::Fail(FaultError::Io), FaultEffect::FailAfter(FaultError::Io)].map(|effect| (operation, effect))
    });
    for (operation, effect) in worn.into_iter().chain(refused) {
        // Zones that hold superblocks, logs, and nothing.
        for zone in [0, 2, 6, 7, 9, 14, 16] {
            for number in 0..40 {
                let device = used(&env, 2);
                let geometry = device.block.capabilities().zones.clone().unwrap();
                let fault = Fault {
                    range: Some(geometry.range(ZoneId(zone))),
                    ..Fault::new(operation, FaultTrigger::From(number), effect.clone())
                };
                let what = format!("{fault:?}");
                let injector = FaultInjector::new(&env, FaultPlan::of(fault));
                let faulty = FaultDevice::device(&injector, &device);
                // One that is read wrong once may be read again.
                let Ok((mut journal, recovered)) = recover(&faulty) else { panic!("{what}: cannot be read") };
                assert_eq!(recovered.commits, [b"kept"], "{what}");
                let mut commits = vec!["state".to_owned()];
                journal.begin(Some(b"state")).unwrap_or_else(|error| panic!("{what}: {error}"));
                for commit_number in 0..6 {
                    if commit_number == 3 {
                        journal
                            .begin(Some(commits.join(" ").as_bytes()))
                            .unwrap_or_else(|error| panic!("{what}: {error}"));
                    }
                    commit(&mut journal, &mut commits, &commit_number.to_string())
                        .unwrap_or_else(|error| panic!("{what}: {error}"));
                    // As after a crash, while the zone is what it is; and when the fault was one of the way there.
                    for device in [&faulty, &device] {
                        let found = all(device).unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert_eq!(found, commits.join(" "), "{what}");
                    }
                }
                if injector.injected() == 0 {
                    break;
                }
                faults += 1;
                moved += u32::from(codes(&journal.check_medium()).contains(&"metadata-redundancy"));
            }
        }
    }
    println!("reached: journal zones that wear out in use: {faults} faults, {moved} groups given up");
    assert!(faults > 400 && moved > 300, "{faults} {moved}");
}

/// Power fails at each persistence point of commits and changes of generation, and then any one zone is lost.
#[test]
fn a_zone_may_be_lost_wherever_a_change_of_generation_was_interrupted() {
    let env = Env::sim(1);
    let mut images = 0;
    for generations in 2..5 {
        let device = used(&env, generations);
        let crash = CrashDevice::new(&env, &device).unwrap();
        let states = Arc::new(Mutex::new(Vec::new()));
        let captured = states.clone();
        crash.on_persistence_point(move |point| captured.lock().unwrap().push(point.capture()));
        let (mut journal, _) = recover(&crash.device()).unwrap();
        // What was acknowledged at each point, and what may be there beside it.
        let before = format!("state {} kept", generations - 1);
        let mut acknowledged = vec![(0, before.clone())];
        let mut commits = vec!["next".to_owned()];
        journal.begin(Some(b"next")).unwrap();
        acknowledged.push((states.lock().unwrap().len(), commits.join(" ")));
        for number in 0..3 {
            commit(&mut journal, &mut commits, &number.to_string()).unwrap();
            acknowledged.push((states.lock().unwrap().len(), commits.join(" ")));
        }
        journal.begin(Some(b"last")).unwrap();
        acknowledged.push((states.lock().unwrap().len(), "last".to_owned()));
        let states = std::mem::take(&mut *states.lock().unwrap());
        for (number, state) in states.iter().enumerate() {
            let present = acknowledged.iter().rposition(|(from, _)| *from <= number).unwrap();
            let allowed: Vec<&str> = acknowledged[present..].iter().take(2).map(|(_, what)| what.as_str()).collect();
            for (variant, zone) in CrashVariant::OF_DEVICES.into_iter().flat_map(|variant| {
                (0..3).flat_map(move |group| [0, 2].map(|within| (variant, group * GROUP_ZONES + within)))
            }) {
                let image = state.image(variant, number as u64);
                let found = all(&image).unwrap_or_else(|error| panic!("{number} {variant:?}: {error}"));
                assert!(allowed.contains(&found.as_str()), "{number} {variant:?}: {found}, not {allowed:?}");
                let worn = with_worn(&env, &image, &[(zone, FaultEffect::ZoneOffline)]);
                let what = format!("{generations} generations, {number}, {variant:?}, zone {zone}");
                let found = all(&worn).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(allowed.contains(&found.as_str()), "{what}: {found}, not {allowed:?}");
                let mut next = recover(&worn).unwrap().0;
                next.begin(Some(b"and on")).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(all(&worn).unwrap(), "and on", "{what}");
                images += 1;
            }
        }
    }
    println!("reached: journal zones lost behind a power cut: {images} images");
    assert!(images > 500, "{images}");
}

/// Two lost groups may have held a newer generation than the third.
#[test]
fn the_generation_before_does_not_count_when_both_copies_of_the_newest_are_lost() {
    let env = Env::sim(1);
    let mut refused = 0;
    for (generations, pair) in (2..5).flat_map(|generations| [(0, 1), (0, 2), (1, 2)].map(|pair| (generations, pair))) {
        let device = used(&env, generations);
        let zones = [pair.0, pair.1].into_iter().flat_map(|group| group * GROUP_ZONES..(group + 1) * GROUP_ZONES);
        let lost: Vec<_> = zones.map(|zone| (zone, FaultEffect::ZoneOffline)).collect();
        match all(&with_worn(&env, &device, &lost)) {
            Ok(found) => panic!("{generations} generations, groups {pair:?}: {found}"),
            Err(error) => {
                assert!(matches!(error, StoreError::Media { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 9);
}

#[test]
fn damage_of_a_copy_is_reported_and_mended() {
    let env = Env::sim(1);
    for part in 0..3 {
        let device = used(&env, 3);
        let (journal, _) = recover(&device).unwrap();
        let place = journal.place.clone();
        drop(journal);
        // The superblocks, the checkpoint, or the first commit cannot be read in one copy.
        let at = |offset: u64| place.device_offset(offset)..place.device_offset(offset) + u64::from(UNIT_BYTES);
        let units = recover(&device).unwrap().0.regions().log.offset_bytes;
        let bad = match part {
            0 => vec![at(SUPERBLOCK_OFFSETS[0]), at(SUPERBLOCK_OFFSETS[1])],
            1 => vec![at(SUPERBLOCK_RESERVED_BYTES)],
            _ => vec![at(units), at(units + u64::from(UNIT_BYTES))],
        };
        let faulty = with_bad_bytes(&env, &device, &bad);
        let (_, recovered) = recover(&faulty).unwrap_or_else(|error| panic!("part {part}: {error}"));
        assert_eq!((&recovered.checkpoint[..], &recovered.commits[..]), (&b"state 2"[..], &[b"kept".to_vec()][..]));
        assert_eq!(codes(&recovered.findings), ["metadata-redundancy"], "part {part}");
    }
    // A copy that lacks a commit.
    let device = used(&env, 2);
    let mut journal = recover(&device).unwrap().0;
    journal.begin(Some(b"state")).unwrap();
    journal.commit(b"one", CommitStyle::Single).unwrap();
    assert_eq!(journal.check_medium(), []);
    let zone =
        ZoneId((journal.place.device_offset(0) / device.block.capabilities().zones.clone().unwrap().zone_bytes) as u32);
    let zones = device.zones.clone().unwrap();
    (0..GROUP_ZONES).for_each(|within| zones.reset(ZoneId(zone.0 + within), &METADATA).unwrap());
    assert_eq!(codes(&journal.check_medium()), ["metadata-redundancy"]);
    journal.begin(Some(b"mended")).unwrap();
    assert_eq!(journal.check_medium(), []);
}

#[test]
fn a_store_is_made_on_a_device_with_a_worn_zone() {
    let env = Env::sim(1);
    let asked = Geometry { capacity_bytes: 8 << 20, sector_bytes: 512, physical_sector_bytes: UNIT_BYTES };
    for (tested, group_zones) in [(NAMESPACE, GROUP_ZONES), (SMALL_NAMESPACE, 20)] {
        for (effect, zone) in
            WORN.into_iter().flat_map(|effect| (0..3 * group_zones).map(move |zone| (effect.clone(), zone)))
        {
            let device = (tested.make)(&env, "drive", &asked);
            let worn = with_worn(&env, &device, &[(zone, effect)]);
            let what = format!("{}, zone {zone}", tested.name);
            format(&worn, MIRRORED_GROUPS, group_zones, b"state 0").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(contents(&worn).unwrap(), of("state 0", &[]), "{what}");
            let mut journal = opened(&worn);
            journal.commit(b"one", CommitStyle::Single).unwrap();
            assert_eq!(codes(&journal.check_medium()), ["metadata-redundancy"], "{what}");
            assert_eq!(contents(&worn).unwrap(), of("state 0", &["one"]), "{what}");
            // Another one in its place.
            format(&worn, MIRRORED_GROUPS, group_zones, b"other").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(contents(&worn).unwrap(), of("other", &[]), "{what}");
        }
    }
}
