use super::*;
use crate::device::{BlockDeviceExt, Device};
use crate::directory::{Directory, MemoryDirectory, OpenMode};
use crate::emulated::Emulated;
use crate::error::MediaErrorKind;
use crate::layer::CrashVariant;
use crate::request::Request;
use std::io::IoSlice;

const WRITE: OpenMode = OpenMode { write: true, create: true, truncate: false, direct: false };

fn log() -> IoContext {
    IoContext::of(IoClass::Log)
}

fn device(env: &Env, plan: FaultPlan) -> (FaultInjector, Device, Device) {
    let inner = Device::of_blocks(Arc::new(Emulated::immediate(env, "ram", 1 << 20)));
    let injector = FaultInjector::new(env, plan);
    let faulty = FaultDevice::device(&injector, &inner);
    (injector, faulty, inner)
}

fn read(device: &Device, offset_bytes: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0xEE; length];
    device.block.read_at(offset_bytes, &mut data, &log()).unwrap();
    data
}

#[test]
fn the_nth_call_fails_once_or_from_then_on() {
    let env = Env::real();
    for error in FaultError::ALL {
        for (trigger, expected) in [
            (FaultTrigger::Once(2), [true, true, false, true, true]),
            (FaultTrigger::From(2), [true, true, false, false, false]),
        ] {
            let fault = Fault::new(Operation::Write, trigger, FaultEffect::Fail(error));
            let (injector, faulty, inner) = device(&env, FaultPlan::of(fault));
            let outcomes: Vec<bool> = (0..5u64)
                .map(|index| {
                    let outcome = faulty.block.write_at(index * 512, &[7; 512], &log());
                    let kind = outcome.as_ref().err().map(MediaError::kind);
                    assert!(kind.is_none_or(|kind| match error {
                        FaultError::Io | FaultError::Interrupted => kind == MediaErrorKind::Io,
                        FaultError::NoSpace => kind == MediaErrorKind::NoSpace,
                        FaultError::Unreadable => kind == MediaErrorKind::Unreadable,
                        FaultError::ReadOnly => kind == MediaErrorKind::ReadOnly,
                    }));
                    outcome.is_ok()
                })
                .collect();
            assert_eq!(outcomes, expected);
            for (index, done) in (0..5u64).zip(expected) {
                assert_eq!(read(&inner, index * 512, 512)[0] == 7, done);
            }
            assert_eq!(injector.calls(), BTreeMap::from([(Operation::Write, 5)]));
            assert_eq!(injector.injected(), expected.iter().filter(|done| !**done).count() as u64);
        }
    }
}

#[test]
fn conditions_narrow_a_fault_to_a_class_and_a_range() {
    let env = Env::real();
    let fail = FaultEffect::Fail(FaultError::Io);
    let always = FaultTrigger::From(0);
    let fault = Fault::new(Operation::Write, always, fail).on_class(IoClass::Log).on_range(4096..8192);
    let (_, faulty, _) = device(&env, FaultPlan::of(fault));
    faulty.block.write_at(4096, &[1; 512], &IoContext::of(IoClass::Flush)).unwrap();
    faulty.block.write_at(8192, &[1; 512], &log()).unwrap();
    faulty.block.write_at(3072, &[1; 1024], &log()).unwrap();
    assert!(faulty.block.write_at(3072, &[1; 1536], &log()).is_err());
}

#[test]
fn random_faults_repeat_by_seed() {
    let env = Env::real();
    let run = |seed| -> Vec<bool> {
        let trigger = FaultTrigger::Random { numerator: 1, denominator: 3 };
        let faults = vec![Fault::new(Operation::Read, trigger, FaultEffect::Fail(FaultError::Io))];
        let (_, faulty, _) = device(&env, FaultPlan { seed, faults });
        let mut data = [0; 512];
        (0..300).map(|_| faulty.block.read_at(0, &mut data, &log()).is_ok()).collect()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let failed = run(3).iter().filter(|done| !**done).count();
    assert!((60..140).contains(&failed), "{failed}");
}

#[test]
fn only_the_struck_request_of_a_batch_suffers() {
    let env = Env::real();
    let fault = Fault::new(Operation::Write, FaultTrigger::Once(1), FaultEffect::Fail(FaultError::Io));
    let (_, faulty, inner) = device(&env, FaultPlan::of(fault));
    let data = [9; 512];
    let slices = [IoSlice::new(&data)];
    let mut batch: Vec<Request<'_>> = (0..4).map(|index| Request::write(index * 512, &slices)).collect();
    assert!(faulty.block.execute(&mut batch, &log()).is_err());
    let outcomes: Vec<bool> = batch.iter().map(|request| request.outcome.is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, true]);
    for (index, done) in (0..4).zip(outcomes) {
        assert_eq!(read(&inner, index * 512, 512)[0] == 9, done);
    }
}

#[test]
fn effects_on_a_device_are_what_they_say() {
    let env = Env::real();
    let once = |operation, effect| {
        let faults = vec![Fault::new(operation, FaultTrigger::Once(0), effect)];
        device(&env, FaultPlan { seed: 4, faults })
    };
    let write = |device: &Device, data: &[u8]| device.block.write_at(8192, data, &log());

    let (_, faulty, inner) = once(Operation::Write, FaultEffect::FailAfter(FaultError::Io));
    assert!(write(&faulty, &[1; 4096]).is_err());
    assert_eq!(read(&inner, 8192, 4096), [1; 4096]);

    let (_, faulty, inner) = once(Operation::Write, FaultEffect::FailPartly(FaultError::Io));
    assert!(write(&faulty, &[1; 4096]).is_err());
    let torn = read(&inner, 8192, 4096);
    assert!(torn.chunks(512).all(|sector| sector == [0; 512] || sector == [1; 512]));
    assert!(torn.contains(&0) && torn.contains(&1));

    let (_, faulty, inner) = once(Operation::Write, FaultEffect::FlipBits(1));
    write(&faulty, &[0; 4096]).unwrap();
    let flipped: u32 = read(&inner, 8192, 4096).iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(flipped, 1);

    let (_, faulty, inner) = once(Operation::Read, FaultEffect::FlipBits(1));
    let flipped: u32 = read(&faulty, 8192, 4096).iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(flipped, 1);
    assert_eq!(read(&inner, 8192, 4096), [0; 4096]);

    let (_, faulty, inner) = once(Operation::Write, FaultEffect::Misdirect);
    write(&faulty, &[1; 4096]).unwrap();
    let all = read(&inner, 0, 1 << 20);
    assert_eq!(all.iter().filter(|&&byte| byte == 1).count(), 4096);
    assert_ne!(all[8192..12288], [1; 4096]);

    let (_, faulty, inner) = once(Operation::Write, FaultEffect::Lose);
    write(&faulty, &[1; 4096]).unwrap();
    assert_eq!(read(&inner, 8192, 4096), [0; 4096]);
    write(&faulty, &[1; 4096]).unwrap();
    assert_eq!(read(&inner, 8192, 4096), [1; 4096]);
}

#[test]
fn a_stall_takes_virtual_time() {
    let env = Env::sim(1);
    let pause = Duration::from_millis(30);
    let fault = Fault::new(Operation::Sync, FaultTrigger::Once(0), FaultEffect::Stall(pause));
    let (_, faulty, _) = device(&env, FaultPlan::of(fault));
    let begin = env.now();
    faulty.block.sync(&log()).unwrap();
    assert_eq!(env.now() - begin, pause);
    faulty.block.sync(&log()).unwrap();
    assert_eq!(env.now() - begin, pause);
}

#[test]
fn a_late_failure_takes_virtual_time_and_fails() {
    let env = Env::sim(1);
    let pause = Duration::from_millis(30);
    let late = FaultEffect::FailLate(pause, FaultError::Io);
    let faults = [Operation::Sync, Operation::Write]
        .map(|operation| Fault::new(operation, FaultTrigger::Once(0), late.clone()))
        .to_vec();
    let (injector, faulty, inner) = device(&env, FaultPlan { seed: 0, faults });
    let begin = env.now();
    assert_eq!(faulty.block.sync(&log()).unwrap_err().kind(), MediaErrorKind::Io);
    assert_eq!(env.now() - begin, pause);
    assert_eq!(faulty.block.write_at(8192, &[1; 4096], &log()).unwrap_err().kind(), MediaErrorKind::Io);
    assert_eq!((env.now() - begin, injector.injected()), (pause * 2, 2));
    assert_eq!(read(&inner, 8192, 4096), [0; 4096]);
    faulty.block.sync(&log()).unwrap();
}

#[test]
fn a_failed_sync_can_drop_what_was_not_synced() {
    let env = Env::sim(1);
    let faults =
        vec![Fault::new(Operation::Sync, FaultTrigger::Once(1), FaultEffect::FailDroppingUnsynced(FaultError::Io))];
    let plan = FaultPlan { seed: 0, faults };

    let (_, faulty, _) = device(&env, plan.clone());
    faulty.block.write_at(0, &[1; 8192], &log()).unwrap();
    faulty.block.sync(&log()).unwrap();
    faulty.block.write_at(4096, &[2; 8192], &log()).unwrap();
    faulty.block.discard_at(0, 512, &log()).unwrap();
    // Written through: on stable media whatever becomes of the others.
    let through = [IoSlice::new(&[3; 512])];
    faulty.block.execute(&mut [Request::write_durable(1024, &through)], &log()).unwrap();
    assert!(faulty.block.sync(&log()).is_err());
    faulty.block.sync(&log()).unwrap();
    assert_eq!(read(&faulty, 0, 8192), [[1; 1024].as_slice(), &[3; 512], &[1; 6656]].concat());
    assert_eq!(read(&faulty, 8192, 4096), [0; 4096]);

    let memory = MemoryDirectory::new("ram");
    let injector = FaultInjector::new(&env, plan);
    let directory = FaultDirectory::new(&injector, Arc::new(memory.clone()));
    let file = directory.open("log", WRITE).unwrap();
    directory.sync().unwrap();
    file.write_at(0, &[IoSlice::new(&[1; 6000])], &log()).unwrap();
    file.sync(&log()).unwrap();
    file.write_at(5000, &[IoSlice::new(&[2; 6000])], &log()).unwrap();
    directory.rename("log", "log2").unwrap();
    // Synced through another handle, opened by the new name.
    let other = directory.open("log2", WRITE).unwrap();
    assert!(other.sync(&log()).is_err());
    other.sync(&log()).unwrap();
    let mut data = vec![0; 20_000];
    assert_eq!(file.read_at(0, &mut data, &log()).unwrap(), 6000);
    assert!(data[..6000] == [1; 6000]);
    // Not on the medium either, although the second sync said so.
    let image = memory.capture().image(CrashVariant::ContentsWithoutNames, 0);
    assert_eq!(image.list().unwrap()[0].size_bytes, 6000);
}

#[test]
fn effects_on_a_directory_are_what_they_say() {
    let env = Env::real();
    let once = |operation, effect| {
        let faults = vec![Fault::new(operation, FaultTrigger::Once(0), effect)];
        let injector = FaultInjector::new(&env, FaultPlan { seed: 9, faults });
        let memory = MemoryDirectory::new("ram");
        let file = memory.open("a", WRITE).unwrap();
        file.write_at(0, &[IoSlice::new(&[1; 2048])], &log()).unwrap();
        let directory = FaultDirectory::new(&injector, Arc::new(memory.clone()));
        let faulty = directory.open("a", WRITE).unwrap();
        (directory, faulty, file)
    };
    let content = |file: &Arc<dyn crate::DirectoryFile>| {
        let mut data = vec![0; 10_000];
        let count = file.read_at(0, &mut data, &log()).unwrap();
        data.truncate(count);
        data
    };

    let (_, faulty, _) = once(Operation::Read, FaultEffect::ShortRead);
    assert!(content(&faulty).len() < 2048);
    assert_eq!(content(&faulty).len(), 2048);

    let (_, faulty, file) = once(Operation::Write, FaultEffect::FailPartly(FaultError::NoSpace));
    assert!(faulty.write_at(0, &[IoSlice::new(&[2; 4096])], &log()).is_err());
    let torn = content(&file);
    assert!(torn.contains(&2) && torn.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));

    let (_, faulty, file) = once(Operation::Write, FaultEffect::Misdirect);
    faulty.write_at(0, &[IoSlice::new(&[2; 100])], &log()).unwrap();
    let found = content(&file);
    assert_ne!(found[..100], [2; 100]);
    assert_eq!(found.iter().filter(|&&byte| byte == 2).count(), 100);

    let (_, faulty, _) = once(Operation::Read, FaultEffect::FlipBits(1));
    let flipped: u32 = content(&faulty).iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(flipped, 1);

    let (directory, ..) = once(Operation::Rename, FaultEffect::FailAfter(FaultError::Io));
    assert!(directory.rename("a", "b").is_err());
    assert_eq!(directory.list().unwrap()[0].name, "b");

    let (directory, ..) = once(Operation::Remove, FaultEffect::Lose);
    directory.remove("a").unwrap();
    assert_eq!(directory.list().unwrap()[0].name, "a");

    for operation in [Operation::List, Operation::SyncDirectory, Operation::Lock, Operation::Truncate, Operation::Sync]
    {
        let (directory, faulty, _) = once(operation, FaultEffect::Fail(FaultError::ReadOnly));
        let error = match operation {
            Operation::List => directory.list().unwrap_err(),
            Operation::SyncDirectory => directory.sync().unwrap_err(),
            Operation::Lock => directory.lock("LOCK").err().unwrap(),
            Operation::Truncate => faulty.truncate(0).unwrap_err(),
            _ => faulty.sync(&log()).unwrap_err(),
        };
        assert_eq!(error.kind(), MediaErrorKind::ReadOnly, "{operation}: {error}");
    }
}

/// A device with faults of `plan`, and the protected drive below it.
fn protected(env: &Env, plan: FaultPlan) -> (Device, Device) {
    let inner = Emulated::immediate(env, "drive", 1 << 20);
    let tuples = Box::new(crate::RamBacking::new());
    let inner = inner.with_protection(crate::ProtectionType::Type1, crate::GuardKind::Crc, tuples);
    let inner = Device::of_blocks(Arc::new(inner));
    (FaultDevice::device(&FaultInjector::new(env, plan), &inner), inner)
}

fn tuples_of(device: &Device, offset_bytes: u64, application_tag: u16, data: &[u8]) -> Vec<u8> {
    let format = device.block.capabilities().protection.unwrap();
    let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
    format.generate(offset_bytes, application_tag, [data], &mut tuples);
    tuples
}

/// Flips of a write hit data and tuples by their lengths, and a drive refuses either; flips of a read hit both too.
#[test]
fn flipped_bits_hit_data_and_tuples() {
    let env = Env::real();
    let (mut in_data, mut in_tuples) = (0, 0);
    for seed in 0..400 {
        let flip = |operation| FaultPlan {
            seed,
            ..FaultPlan::of(Fault::new(operation, FaultTrigger::From(0), FaultEffect::FlipBits(1)))
        };
        let data = [seed as u8; 512];
        let (faulty, inner) = protected(&env, flip(Operation::Write));
        let tuples = tuples_of(&inner, 512, 0x5678, &data);
        match faulty.block.write_protected_at(512, &data, &tuples, &log()) {
            Err(error) => assert_eq!(error.kind(), MediaErrorKind::Protection, "{error}"),
            // The drive does not check the application tag.
            Ok(()) => {
                let (mut found, mut found_tuples) = ([0; 512], [0; 8]);
                inner.block.read_protected_at(512, &mut found, &mut found_tuples, &log()).unwrap();
                assert!(found == data && found_tuples[2..4] != tuples[2..4]);
                in_tuples += 1;
            }
        }
        let (faulty, inner) = protected(&env, flip(Operation::Read));
        inner.block.write_protected_at(512, &data, &tuples, &log()).unwrap();
        let (mut found, mut found_tuples) = ([0; 512], [0; 8]);
        faulty.block.read_protected_at(512, &mut found, &mut found_tuples, &log()).unwrap();
        let differs = (found != data, found_tuples[..] != tuples[..]);
        assert!(differs.0 != differs.1, "one bit is flipped");
        in_data += u32::from(differs.0);
        in_tuples += u32::from(differs.1);
    }
    assert!(in_data > 350 && in_tuples > 0, "{in_data} {in_tuples}");
}

/// A failed sync restores data and tuple of a sector together; durable writes stay.
#[test]
fn failed_sync_restores_data_and_tuples() {
    let env = Env::real();
    let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
    let plan = FaultPlan::of(Fault::new(Operation::Sync, FaultTrigger::From(1), effect));
    let (faulty, inner) = protected(&env, plan);
    let write = |at: u64, byte: u8, tag| {
        let data = [byte; 4096];
        faulty.block.write_protected_at(at, &data, &tuples_of(&inner, at, tag, &data), &log()).unwrap();
    };
    write(0, 1, 0x11);
    write(4096, 1, 0x11);
    faulty.block.sync(&log()).unwrap();
    write(0, 2, 0x22);
    write(8192, 2, 0x22);
    let durable = [3; 512];
    let tuples = tuples_of(&inner, 1024, 0x33, &durable);
    let slices = [IoSlice::new(&durable)];
    let transfer = crate::Transfer::Write { data: &slices, protection: Some(&tuples), durable: true };
    faulty.block.execute(&mut [Request { offset_bytes: 1024, transfer, outcome: Ok(()) }], &log()).unwrap();
    let without = [IoSlice::new(&durable)];
    faulty.block.execute(&mut [Request::write_durable(1536, &without)], &log()).unwrap();
    faulty.block.sync(&log()).unwrap_err();

    let (mut data, mut tuples) = (vec![0; 12_288], vec![0; 12_288 / 64]);
    inner.block.read_protected_at(0, &mut data, &mut tuples, &log()).unwrap();
    let mut expected = vec![1; 8192];
    expected.resize(12_288, 0);
    expected[1024..2048].fill(3);
    assert!(data == expected);
    let mut expected = tuples_of(&inner, 0, 0x11, &data[..8192]);
    expected[16..24].copy_from_slice(&tuples_of(&inner, 1024, 0x33, &durable));
    expected[24..32].copy_from_slice(&tuples_of(&inner, 1536, 0, &durable));
    expected.resize(12_288 / 64, 0xFF);
    assert_eq!(tuples, expected);
}

/// A misdirected write carries its tuples, so the drive refuses their reference tags.
#[test]
fn misdirected_writes_are_found_by_their_reference_tags() {
    let env = Env::real();
    let fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Misdirect);
    let (faulty, inner) = protected(&env, FaultPlan::of(fault));
    let data = [5; 1024];
    let error = faulty.block.write_protected_at(0, &data, &tuples_of(&inner, 0, 1, &data), &log()).unwrap_err();
    assert!(matches!(error, MediaError::Protection { tag: crate::ProtectionTag::Reference, .. }), "{error}");
    assert!(read(&inner, 0, 1 << 20).iter().all(|&byte| byte == 0));
}

/// A write that fails in part leaves each sector old or new, each with its tuple.
#[test]
fn torn_writes_keep_tuples_with_their_sectors() {
    let env = Env::real();
    for seed in 0..20 {
        let fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::FailPartly(FaultError::Io));
        let (faulty, inner) = protected(&env, FaultPlan { seed, ..FaultPlan::of(fault) });
        let data: Vec<u8> = (0..8192).map(|at| (at / 512) as u8 + 1).collect();
        let tuples = tuples_of(&inner, 0, 0x77, &data);
        faulty.block.write_protected_at(0, &data, &tuples, &log()).unwrap_err();
        let (mut found, mut found_tuples) = (vec![0; 8192], vec![0; 128]);
        inner.block.read_protected_at(0, &mut found, &mut found_tuples, &log()).unwrap();
        for sector in 0..16 {
            let is_new = found[sector * 512] != 0;
            let own = &found_tuples[sector * 8..sector * 8 + 8];
            assert_eq!(own, if is_new { &tuples[sector * 8..sector * 8 + 8] } else { &[0xFF; 8] }, "sector {sector}");
        }
    }
}
