//! What holds for every composition: bytes, errors, destruction, sharing of the queue.

use super::*;
use crate::context::IoClass;
use crate::device::BlockDeviceExt;
use crate::error::MediaErrorKind;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use varve_env::Random;

const CONTEXT: IoContext =
    IoContext { class: IoClass::Other, cause: crate::IoCause::Direct, level: None, job: None, deadline: None };

#[test]
fn refuses_what_is_outside_or_misaligned_and_changes_nothing() {
    let env = Env::sim(1);
    let device = Emulated::immediate(&env, "disk", 1 << 20);
    let mut data = [1; 1024];
    for (offset, kind) in
        [(1 << 20, "OutOfRange"), ((1 << 20) - 512, "OutOfRange"), (u64::MAX - 511, "OutOfRange"), (100, "Misaligned")]
    {
        let error = device.write_at(offset, &data, &CONTEXT).unwrap_err();
        assert!(format!("{error:?}").starts_with(kind), "{error:?}");
        assert_eq!(error.kind(), MediaErrorKind::InvalidRequest);
    }
    assert!(device.read_at(0, &mut data[..100], &CONTEXT).is_err());
    let tuples = [0; 16];
    let slices = [IoSlice::new(&data)];
    let mut request = Request::write(0, &slices);
    if let Transfer::Write { protection, .. } = &mut request.transfer {
        *protection = Some(&tuples);
    }
    let error = device.execute(&mut [request], &CONTEXT).unwrap_err();
    assert!(matches!(error, MediaError::Rule { .. }), "{error}");
    assert_eq!(device.stored_bytes(), 0);
    let counters = device.counters();
    assert_eq!((counters.errors, counters.writes), (6, 0));
}

#[test]
fn one_bad_request_does_not_keep_the_others_from_being_done() {
    let env = Env::sim(1);
    let device = Emulated::immediate(&env, "disk", 1 << 20);
    let data = [9; 512];
    let slices = [IoSlice::new(&data)];
    let mut batch = [Request::write(0, &slices), Request::write(7, &slices), Request::write(512, &slices)];
    assert!(matches!(device.execute(&mut batch, &CONTEXT), Err(MediaError::Misaligned { .. })));
    assert!(batch[0].outcome.is_ok() && batch[1].outcome.is_err() && batch[2].outcome.is_ok());
    let mut head = [0; 200];
    let mut tail = [0; 824];
    let mut slices = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut tail)];
    device.execute(&mut [Request::read(0, &mut slices)], &CONTEXT).unwrap();
    assert!(head == [9; 200] && tail == [9; 824]);
}

/// Writing a byte range destroys the same-sized range behind it.
struct DestroysNext;

impl Rules for DestroysNext {
    fn describe(&self, _capabilities: &mut Capabilities) {}

    fn admit(&mut self, _device: &str, _request: &Request<'_>) -> Result<(), MediaError> {
        Ok(())
    }

    fn destroyed_by_write(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>) {
        destroyed.push(written.end..written.end + (written.end - written.start));
    }

    fn complete(&mut self, _device: &str, _request: &mut Request<'_>) -> Result<(), MediaError> {
        Ok(())
    }
}

#[test]
fn what_the_rules_destroy_is_unreadable_until_rewritten() {
    let env = Env::sim(1);
    let geometry = Geometry { capacity_bytes: 1 << 20, sector_bytes: 512, physical_sector_bytes: 512 };
    let timing = Box::<Immediate>::default();
    let device = Emulated::new(&env, "disk", geometry, Box::new(DestroysNext), timing, Box::new(RamBacking::new()));
    device.write_at(4096, &[1; 1024], &CONTEXT).unwrap();
    device.write_at(3072, &[2; 1024], &CONTEXT).unwrap();
    let mut data = [0; 2048];
    let error = device.read_at(3072, &mut data, &CONTEXT).unwrap_err();
    assert!(matches!(error, MediaError::Unreadable { offset_bytes: 4096, .. }), "{error}");
    device.read_at(3072, &mut data[..1024], &CONTEXT).unwrap();
    assert!(data[..1024] == [2; 1024]);
    // Rewriting one sector heals it and destroys the one behind it, which was destroyed anyway.
    device.write_at(4096, &[3; 512], &CONTEXT).unwrap();
    device.read_at(4096, &mut data[..512], &CONTEXT).unwrap();
    assert!(device.read_at(4608, &mut data[..512], &CONTEXT).is_err());
    device.discard_at(4096, 4096, &CONTEXT).unwrap();
    device.read_at(4096, &mut data, &CONTEXT).unwrap();
    assert!(data == [0; 2048]);
}

#[test]
fn range_set_behaves_like_a_set_of_bytes() {
    let seed = 3;
    let mut random = Random::seeded(seed);
    let mut set = RangeSet::default();
    let mut model = [false; 64];
    for step in 0..5_000 {
        let start = random.below(65);
        let end = start + random.below(65 - start);
        let bytes = start as usize..end as usize;
        match random.below(3) {
            0 => {
                set.insert(start..end);
                model[bytes].fill(true);
            }
            1 => {
                set.remove(start..end);
                model[bytes].fill(false);
            }
            _ => {
                let expected = bytes.clone().find(|&byte| model[byte]).map(|byte| byte as u64);
                assert_eq!(set.first_within(&(start..end)), expected, "seed {seed} step {step}");
            }
        }
    }
}

#[test]
fn devices_are_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let env = Env::real();
    let device = Arc::new(Emulated::immediate(&env, "disk", 1 << 20));
    shared(&device);
    let handles: Vec<_> = (0..4u64)
        .map(|number| {
            let device = Arc::clone(&device);
            env.spawn("writer", move || {
                for round in 0..100u64 {
                    let offset = (round * 4 + number) * 512;
                    device.write_at(offset, &[number as u8; 512], &CONTEXT).unwrap();
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    let mut data = vec![0; 400 * 512];
    device.read_at(0, &mut data, &CONTEXT).unwrap();
    for (sector, bytes) in data.chunks(512).enumerate() {
        assert!(bytes == [(sector % 4) as u8; 512]);
    }
}
