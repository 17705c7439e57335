//! Pages leave before room is needed.

use super::*;
use varve_media::{Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Operation};

const AHEAD: EvictionAhead = EvictionAhead { reserve_share: 2, urgent_share: 8, quiet_nanos: 2_000_000 };

fn parameters(ahead: Option<EvictionAhead>) -> BufferParameters {
    BufferParameters { page_count: 32, rewrite_pages: None, ahead, ..BufferParameters::default() }
}

/// A disk that takes ten milliseconds for each request.
fn slow(env: &Env) -> Device {
    Watched::device(env, disk(env), |_, _| Duration::from_millis(10))
}

/// Pages that are out of order, each in a zone of its own or not.
fn put(device: &Device, numbers: std::ops::Range<u64>) -> Result<(), MediaError> {
    for number in numbers {
        let at = number % 7 * ZONE + 4096 + number / 7 * 8192 % (ZONE - 8192);
        device.block.write_at(at, &[7; 4096], &IoContext::default())?;
    }
    Ok(())
}

#[test]
fn in_pauses_room_is_made_for_what_comes_then() {
    let run = |ahead: Option<EvictionAhead>| {
        in_simulation(1, move |env| {
            let opening = BufferOpening::default();
            let opened = WriteBuffer::open(env, &slow(env), &fast(env), parameters(ahead), opening, None);
            let (device, buffer) = opened.unwrap();
            for round in 0..20 {
                put(&device, round * 12..(round + 1) * 12).unwrap();
                env.sleep(Duration::from_millis(400));
            }
            // Nor more than is wanted.
            assert!(buffer.held_pages() >= 16);
            buffer.statistics()
        })
    };
    let without = run(None);
    assert!(without.waits > 20 && without.evictions_ahead == 0, "{without:?}");
    let with = run(Some(AHEAD));
    assert!(with.waits == 0 && with.evictions == with.evictions_ahead && with.evictions > 20, "{with:?}");
}

#[test]
fn while_requests_are_outstanding_pages_stay_unless_there_is_a_hurry() {
    in_simulation(1, |env| {
        let opening = BufferOpening::default();
        let opened = WriteBuffer::open(env, &slow(env), &fast(env), parameters(Some(AHEAD)), opening, None);
        let (device, buffer) = opened.unwrap();
        // One reads all the time.
        let reader = {
            let device = device.clone();
            env.spawn("reader", move || {
                (0..100).for_each(|page| {
                    let mut data = vec![0; 4096];
                    device.block.read_at(page * 4096 % (7 * ZONE), &mut data, &IoContext::default()).unwrap();
                });
            })
        };
        env.sleep(Duration::from_millis(5));
        put(&device, 0..20).unwrap();
        env.sleep(Duration::from_millis(200));
        assert_eq!(buffer.statistics().evictions, 0);
        // Less than one in eight is free.
        put(&device, 20..30).unwrap();
        env.sleep(Duration::from_millis(200));
        let hurried = buffer.statistics().evictions_ahead;
        assert!(hurried > 0);
        assert!((4..16).contains(&(32 - buffer.held_pages())), "{}", buffer.held_pages());
        reader.join().unwrap();
        env.sleep(Duration::from_secs(1));
        assert_eq!(buffer.held_pages(), 16);
    });
}

#[test]
fn a_disk_that_is_left_alone_is_left_alone() {
    in_simulation(1, |env| {
        let second = 1_000_000_000;
        let (below, control) = ControlledDevice::new(env, &slow(env), Box::new(FixedIdle::new(second, second)));
        let opening = BufferOpening::default();
        let (parameters, control) = (parameters(Some(AHEAD)), Some(control));
        let opened = WriteBuffer::open(env, &below, &fast(env), parameters, opening, control);
        let (device, buffer) = opened.unwrap();
        let read = || device.block.read_at(0, &mut [0; 4096], &IoContext::default()).unwrap();
        read();
        env.sleep(Duration::from_millis(1010));
        // This one begins the time in which the disk is left alone, and ends it.
        read();
        env.sleep(Duration::from_millis(1000));
        let reader = {
            let device = device.clone();
            env.spawn("reader", move || {
                device.block.read_at(ZONE, &mut [0; 4096], &IoContext::default()).unwrap();
            })
        };
        env.sleep(Duration::from_millis(10));
        put(&device, 0..30).unwrap();
        env.sleep(Duration::from_millis(500));
        assert_eq!((buffer.held_pages(), buffer.statistics().evictions_ahead), (30, 0));
        reader.join().unwrap();
        env.sleep(Duration::from_millis(500));
        assert_eq!(buffer.held_pages(), 16);
    });
}

#[test]
fn a_disk_that_fails_is_not_asked_again_until_it_did_not() {
    in_simulation(1, |env| {
        let injector = FaultInjector::new(env, FaultPlan::default());
        let below = FaultDevice::device(&injector, &slow(env));
        let opening = BufferOpening::default();
        let opened = WriteBuffer::open(env, &below, &fast(env), parameters(Some(AHEAD)), opening, None);
        let (device, buffer) = opened.unwrap();
        injector.set_plan(FaultPlan::of(Fault::new(
            Operation::Write,
            FaultTrigger::From(0),
            FaultEffect::Fail(FaultError::Io),
        )));
        put(&device, 0..20).unwrap();
        env.sleep(Duration::from_secs(10));
        assert_eq!((injector.injected(), buffer.held_pages()), (1, 20));
        // Who needs room is told.
        assert!(put(&device, 20..40).is_err());
        injector.set_plan(FaultPlan::default());
        put(&device, 32..40).unwrap();
        env.sleep(Duration::from_secs(10));
        assert_eq!(buffer.held_pages(), 16);
    });
}
