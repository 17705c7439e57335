//! Members that fail in service.

use super::*;
use varve_media::{
    Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, MediaErrorKind, Operation,
};

/// An array with an injector over each member.
fn faulty(env: &Env, level: RaidLevel, members: &[Device]) -> (Device, Array, Vec<FaultInjector>) {
    let injectors: Vec<FaultInjector> = members.iter().map(|_| FaultInjector::new(env, FaultPlan::default())).collect();
    let given: Vec<Option<Device>> =
        members.iter().zip(&injectors).map(|(member, injector)| Some(FaultDevice::device(injector, member))).collect();
    let (device, array) = open(env, level, &given).unwrap();
    (device, array, injectors)
}

fn fails(operation: Operation, trigger: FaultTrigger, error: FaultError) -> FaultPlan {
    FaultPlan::of(Fault::new(operation, trigger, FaultEffect::Fail(error)))
}

#[test]
fn the_array_goes_on_without_a_member_whose_write_or_sync_failed() {
    let mut lost = 0;
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| *level != RaidLevel::Raid0) {
        for seed in 0..6 {
            let operation = [Operation::Write, Operation::Sync][seed as usize % 2];
            lost += in_simulation(seed, move |env| {
                let members = members(env, count, 6 * CHUNK);
                let (device, array, injectors) = faulty(env, level, &members);
                let mut host = Host::new(device, seed);
                (0..20).for_each(|_| host.step().unwrap());
                let victim = seed as usize % count;
                injectors[victim].set_plan(fails(operation, FaultTrigger::From(seed), FaultError::Io));
                (0..60).for_each(|_| host.step().unwrap());
                host.check();
                let states = array.members();
                assert_eq!(states[victim].1, MemberState::Lost, "{level} seed {seed}");
                assert_eq!(array.degraded_members(), 1);
                // What the others have is complete, and the failed member is known to be older.
                let expected = host.stamps.clone();
                drop((host, array));
                let stale = open(env, level, &all(&members)).err().expect("a stale member");
                assert!(matches!(stale, ArrayError::Stale { slot, .. } if slot == victim), "{stale}");
                let (device, _array) = open(env, level, &without(&members, &[victim])).unwrap();
                assert_eq!(stamps(&device).unwrap().unwrap(), expected, "{level} seed {seed}");
                1
            });
        }
    }
    println!("reached: block raid/faults: {lost} members lost in service");
}

#[test]
fn stops_when_more_members_fail_than_the_level_tolerates() {
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| *level != RaidLevel::Raid0) {
        in_simulation(4, move |env| {
            let members = members(env, count, 6 * CHUNK);
            let (device, array, injectors) = faulty(env, level, &members);
            let context = IoContext::default();
            let everything = vec![1; device.block.geometry().capacity_bytes as usize];
            device.block.write_at(0, &everything, &context).unwrap();
            let tolerated = level.tolerated(count);
            for injector in &injectors[..=tolerated] {
                injector.set_plan(fails(Operation::Write, FaultTrigger::From(0), FaultError::Io));
            }
            let error = device.block.write_at(0, &everything, &context).unwrap_err();
            assert!(error.to_string().contains("the array stopped"), "{error}");
            injectors.iter().for_each(|injector| injector.set_plan(FaultPlan::default()));
            for result in [device.block.write_at(0, &everything, &context), device.block.sync(&context)] {
                assert!(result.unwrap_err().to_string().contains("the array stopped"));
            }
            assert!(array.fail(count - 1).is_err());
        });
    }
}

#[test]
fn raid_0_reports_what_a_member_reports() {
    let env = Env::real();
    let members = members(&env, 3, 6 * CHUNK);
    let (device, _array, injectors) = faulty(&env, RaidLevel::Raid0, &members);
    let context = IoContext::default();
    injectors[1].set_plan(fails(Operation::Write, FaultTrigger::Once(0), FaultError::Io));
    assert!(device.block.write_at(0, &[1; 4 * CHUNK as usize], &context).is_err());
    assert!(device.block.write_at(0, &[1; 4 * CHUNK as usize], &context).is_ok());
    injectors[2].set_plan(fails(Operation::Sync, FaultTrigger::Once(0), FaultError::Io));
    assert!(device.block.sync(&context).is_err());
    assert!(device.block.sync(&context).is_err(), "a member may have dropped writes");
}

#[test]
fn unreadable_sectors_are_answered_from_redundancy() {
    let mut recovered = 0;
    for (level, count) in SHAPES.into_iter().filter(|(level, _)| *level != RaidLevel::Raid0) {
        recovered += in_simulation(2, move |env| {
            let members = members(env, count, 6 * CHUNK);
            let (device, array, injectors) = faulty(env, level, &members);
            let mut host = Host::new(device, 9);
            (0..30).for_each(|_| host.step().unwrap());
            let random = FaultTrigger::Random { numerator: 1, denominator: 2 };
            injectors[1].set_plan(fails(Operation::Read, random, FaultError::Unreadable));
            (0..60).for_each(|_| host.step().unwrap());
            host.check();
            assert_eq!(array.degraded_members(), 0, "an unreadable sector loses no member");
            // Without redundancy the error is that of the member.
            injectors[1].set_plan(fails(Operation::Read, FaultTrigger::From(0), FaultError::Unreadable));
            for slot in (0..count).filter(|slot| *slot != 1).take(level.tolerated(count)) {
                array.fail(slot).unwrap();
            }
            let error = stamps(&host.device).unwrap_err();
            assert_eq!(error.kind(), MediaErrorKind::Unreadable, "{level}: {error}");
            injectors[1].set_plan(FaultPlan::default());
            host.check();
            array.statistics().recovered_reads
        });
    }
    println!("reached: block raid/unreadable: {recovered} reads recovered");
    assert!(recovered > 20);
}
