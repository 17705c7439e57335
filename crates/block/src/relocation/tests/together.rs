//! Requests that are in flight together, with each other and with what relocation does.

use super::*;
use varve_media::conformance::devices::TRANSLATED_ZONES;
use varve_media::{
    BlockDevice, Capabilities, Counters, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan,
    FaultTrigger, IoClass, Operation, Request,
};

fn hurried() -> RelocationParameters {
    RelocationParameters { urgent_utilization: -1e9, busy_share_max: 1.0, ..at_rest() }
}

/// Ranges that were written meanwhile were taken, and copied before the write arrived.
#[test]
fn a_write_that_is_on_its_way_when_its_range_is_copied_again_is_not_lost() {
    for seed in 1..=6 {
        simulate(seed, true, move |env| {
            let stall = FaultEffect::Stall(Duration::from_micros(900));
            let plan =
                FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::From(0), stall).on_class(IoClass::UserRead));
            let injector = FaultInjector::new(env, plan);
            let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 14));
            let (device, handle) = open(env, &inner, hurried()).unwrap();
            device.block.write_at(4096, &[7; 32768], &context()).unwrap();
            let writers: Vec<_> = (0..2u64)
                .map(|number| {
                    let (device, env) = (device.clone(), env.clone());
                    env.clone().spawn("writer", move || {
                        for step in 0..40u8 {
                            let at = 4096 + number * 8192;
                            device.block.write_at(at, &[step; 4096], &IoContext::of(IoClass::UserRead)).unwrap();
                            env.sleep(Duration::from_micros(2500));
                            let mut data = vec![0; 4096];
                            device.block.read_at(at, &mut data, &context()).unwrap();
                            assert!(data == [step; 4096], "seed {seed} writer {number} step {step}: {}", data[0]);
                        }
                    })
                })
                .collect();
            for _ in 0..30 {
                relocate(&handle, 0);
            }
            writers.into_iter().for_each(|writer| writer.join().unwrap_or_else(|panicked| panicked.resume()));
        });
    }
}

#[test]
fn a_discard_that_is_refused_leaves_what_is_known_of_a_zone() {
    simulate(1, false, |env| {
        let inner = memory(env, &TRANSLATED_ZONES, 14);
        let (device, handle) = open(env, &inner, at_rest()).unwrap();
        device.block.write_at(0, &[7; 61440], &context()).unwrap();
        device.block.sync(&context()).unwrap();
        assert!(device.block.discard_at(0, ZONE, &context()).is_err());
        device.block.write_at(8192, &[9; 4096], &context()).unwrap();
        let mut data = vec![0; 65536];
        device.block.read_at(0, &mut data, &context()).unwrap();
        assert!(data[0] == 7 && data[61439] == 7);
        assert_eq!(relocate(&handle, 0).relocated_zones, 1);
        device.block.read_at(0, &mut data, &context()).unwrap();
        assert_eq!((data[0], data[8192], data[61439]), (7, 9, 7));
    });
}

#[test]
fn a_write_beside_a_reset_is_copied() {
    simulate(1, false, |env| {
        let stall = FaultEffect::Stall(Duration::from_micros(900));
        let plan =
            FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::From(0), stall).on_class(IoClass::UserRead));
        let injector = FaultInjector::new(env, plan);
        let inner = FaultDevice::device(&injector, &memory(env, &TRANSLATED_ZONES, 14));
        let (device, handle) = open(env, &inner, at_rest()).unwrap();
        let of_writer = device.clone();
        let writer = env.spawn("writer", move || {
            of_writer.block.write_at(32768, &[5; 4096], &IoContext::of(IoClass::UserRead)).unwrap()
        });
        env.sleep(Duration::from_micros(100));
        device.zones.as_ref().unwrap().reset(ZoneId(0), &context()).unwrap();
        writer.join().unwrap_or_else(|panicked| panicked.resume());
        device.block.write_at(4096, &[6; 4096], &context()).unwrap();
        device.block.sync(&context()).unwrap();
        let mut data = vec![0; 65536];
        device.block.read_at(0, &mut data, &context()).unwrap();
        assert_eq!((data[4096], data[32768]), (6, 5));
        assert_eq!(relocate(&handle, 0).relocated_zones, 1);
        device.block.read_at(0, &mut data, &context()).unwrap();
        assert_eq!((data[4096], data[32768]), (6, 5));
    });
}

#[test]
fn a_sync_beside_one_that_failed_is_not_acknowledged() {
    simulate(1, false, |env| {
        let memory = memory(env, &TRANSLATED_ZONES, 14);
        let injector = FaultInjector::new(env, FaultPlan::default());
        let (device, _handle) = open(env, &FaultDevice::device(&injector, &memory), at_rest()).unwrap();
        device.block.write_at(8192, &[3; 4096], &context()).unwrap();
        device.block.sync(&context()).unwrap();
        let stall = Fault::new(Operation::Sync, FaultTrigger::From(0), FaultEffect::Stall(Duration::from_micros(900)))
            .on_class(IoClass::UserRead);
        let fail =
            Fault::new(Operation::Sync, FaultTrigger::From(0), FaultEffect::FailDroppingUnsynced(FaultError::Io))
                .on_class(IoClass::Maintenance);
        injector.set_plan(FaultPlan { faults: vec![stall, fail], ..FaultPlan::default() });
        device.block.write_at(8192, &[4; 4096], &context()).unwrap();
        let of_syncer = device.clone();
        let one = env.spawn("sync", move || of_syncer.block.sync(&IoContext::of(IoClass::UserRead)));
        env.sleep(Duration::from_micros(100));
        let two = device.block.sync(&IoContext::of(IoClass::Maintenance));
        let one = one.join().unwrap_or_else(|panicked| panicked.resume());
        let mut data = vec![0; 4096];
        // Where the zone is on the disk is not where it is shown.
        device.block.read_at(8192, &mut data, &context()).unwrap();
        assert!(two.is_err());
        assert!(one.is_err() || data[0] == 4, "{one:?}");
    });
}

/// Requests of this class take so long.
fn slow(env: &Env, inner: &Device, operation: Operation) -> Device {
    let stall = FaultEffect::Stall(Duration::from_micros(900));
    let fault = Fault::new(operation, FaultTrigger::From(0), stall).on_class(IoClass::UserRead);
    FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), inner)
}

/// Also where the reset was on its way when the relocation began: it would be left with zeros up to where it had been written.
#[test]
fn a_zone_that_is_being_reset_is_not_moved() {
    simulate(1, false, |env| {
        let inner = slow(env, &memory(env, &TRANSLATED_ZONES, 14), Operation::Zone);
        let (device, handle) = open(env, &inner, hurried()).unwrap();
        device.block.write_at(4096, &[7; 8192], &context()).unwrap();
        let zones = device.zones.clone().unwrap();
        let of_resetter = zones.clone();
        let resetter = env.spawn("reset", move || of_resetter.reset(ZoneId(0), &IoContext::of(IoClass::UserRead)));
        env.sleep(Duration::from_micros(100));
        let moved = relocate(&handle, 0);
        assert_eq!((moved.relocated_zones, moved.given_up), (0, 1));
        resetter.join().unwrap_or_else(|panicked| panicked.resume()).unwrap();
        let found = zones.report(ZoneId(0), 1, &context()).unwrap().remove(0);
        assert_eq!((found.condition, found.write_pointer_bytes), (ZoneCondition::Empty, 0));
    });
}

/// A device whose syncs of users return late.
struct LateSync {
    env: Env,
    inner: Device,
}

impl BlockDevice for LateSync {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let result = self.inner.block.sync(context);
        if context.class == IoClass::UserRead {
            self.env.sleep(Duration::from_micros(900));
        }
        result
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

/// A sync that failed had taken a copy with it, and had not returned yet when the next one succeeded: the old zone was reset.
#[test]
fn a_copy_that_a_failed_sync_took_with_it_replaces_nothing() {
    simulate(1, false, |env| {
        let memory = memory(env, &TRANSLATED_ZONES, 14);
        let drops = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        let fails = Fault::new(Operation::Sync, FaultTrigger::From(0), drops).on_class(IoClass::UserRead);
        let failing = FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fails)), &memory);
        let late = Arc::new(LateSync { env: env.clone(), inner: failing.clone() });
        let late = Device { zones: failing.zones.clone(), ..Device::of_blocks(late) };
        // Relocation's own, before it is done.
        let stall = FaultEffect::Stall(Duration::from_micros(500));
        let stalls = Fault::new(Operation::Sync, FaultTrigger::From(0), stall).on_class(IoClass::Maintenance);
        let inner = FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(stalls)), &late);
        let (device, handle) = open(env, &inner, RelocationParameters { quiet_nanos: 0, ..at_rest() }).unwrap();
        device.block.write_at(4096, &[7; 8192], &context()).unwrap();
        device.block.sync(&context()).unwrap();
        let (of_syncer, of_env) = (device.clone(), env.clone());
        let syncer = env.spawn("sync", move || {
            of_env.sleep(Duration::from_micros(100));
            of_syncer.block.sync(&IoContext::of(IoClass::UserRead))
        });
        let moved = relocate(&handle, 0).relocated_zones;
        assert!(syncer.join().unwrap_or_else(|panicked| panicked.resume()).is_err());
        drop((device, handle));
        let (device, _handle) = open(env, &memory, at_rest()).unwrap();
        let mut data = [0; 8192];
        device.block.read_at(4096, &mut data, &context()).unwrap();
        assert!(data == [7; 8192] && moved == 0, "{} {moved}", data[0]);
    });
}

/// However few pieces they are: a zone is not moved when more than four steps of bytes would be copied while writes wait.
#[test]
fn what_is_copied_while_writes_are_held_is_bounded_in_bytes() {
    for (bytes, moved) in [(8192, 1), (12288, 0)] {
        simulate(1, false, move |env| {
            let inner = slow(env, &memory(env, &TRANSLATED_ZONES, 14), Operation::Write);
            let parameters = RelocationParameters { step_bytes: 2048, urgent_step_bytes: 2048, ..hurried() };
            let (device, handle) = open(env, &inner, parameters).unwrap();
            device.block.write_at(4096, &[7; 32768], &context()).unwrap();
            let of_writer = device.clone();
            let writer = env.spawn("writer", move || {
                let written = vec![9; bytes];
                of_writer.block.write_at(8192, &written, &IoContext::of(IoClass::UserRead)).unwrap();
            });
            env.sleep(Duration::from_micros(100));
            assert_eq!(relocate(&handle, 0).relocated_zones, moved, "{bytes}");
            writer.join().unwrap_or_else(|panicked| panicked.resume());
            let mut data = vec![0; 40960];
            device.block.read_at(0, &mut data, &context()).unwrap();
            let is_written = |place: &usize| (8192..8192 + bytes).contains(place);
            assert!((4096..36864).all(|place| data[place] == if is_written(&place) { 9 } else { 7 }), "{bytes}");
        });
    }
}
