use super::*;
use crate::buffer::AlignedBuffer;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{IoContext, MediaError, MediaErrorKind, Request, Transfer};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use varve_env::{Env, Random};

const ENGINES: [IoEngine; 2] = [IoEngine::Uring, IoEngine::Positional];

fn context() -> IoContext {
    IoContext::default()
}

/// Every engine, direct and buffered; engines this kernel does not have are left out.
fn devices(capacity_bytes: u64) -> Vec<(tempfile::TempDir, FileDevice)> {
    let mut devices = Vec::new();
    for engine in ENGINES {
        for direct in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let options = FileDeviceOptions {
                capacity_bytes: Some(capacity_bytes),
                create: true,
                direct,
                engine,
                queue_depth: 8,
                sector_bytes: direct.then_some(4096),
                ..FileDeviceOptions::default()
            };
            match FileDevice::open(place.path().join("disk"), &options) {
                Ok(device) => {
                    assert_eq!(device.engine(), engine);
                    devices.push((place, device));
                }
                Err(MediaError::Rule { rule, .. }) if engine == IoEngine::Uring => {
                    eprintln!("io_uring not tested: {rule}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    devices
}

#[test]
fn a_batch_larger_than_the_queue_with_buffers_of_every_shape() {
    let mut random = Random::seeded(3);
    for (_place, device) in devices(16 << 20) {
        let sector = device.geometry().sector_bytes as usize;
        let count = 40;
        // Aligned and not, in one piece and in many, more pieces than a vector takes.
        let mut memory: Vec<AlignedBuffer> = (0..count).map(|_| AlignedBuffer::new(8 * sector + 8, 4096)).collect();
        for buffer in &mut memory {
            random.fill_bytes(buffer);
        }
        let slices: Vec<Vec<IoSlice<'_>>> = memory
            .iter()
            .enumerate()
            .map(|(index, buffer)| {
                let skew = [0, 1, 8][index % 3];
                let data = &buffer[skew..skew + 8 * sector];
                match index % 4 {
                    0 => vec![IoSlice::new(data)],
                    1 => data.chunks(sector).map(IoSlice::new).collect(),
                    2 => data.chunks(3).map(IoSlice::new).collect(),
                    _ => vec![IoSlice::new(&[]), IoSlice::new(data), IoSlice::new(&[])],
                }
            })
            .collect();
        let place = |index: usize| (index * 16 * sector) as u64;
        let mut batch: Vec<Request<'_>> =
            slices.iter().enumerate().map(|(index, slices)| Request::write(place(index), slices)).collect();
        if let Transfer::Write { durable, .. } = &mut batch[5].transfer {
            *durable = true;
        }
        device.execute(&mut batch, &context()).unwrap();
        let mut found: Vec<AlignedBuffer> = (0..count).map(|_| AlignedBuffer::new(8 * sector + 8, 4096)).collect();
        let mut targets: Vec<Vec<IoSliceMut<'_>>> = found
            .iter_mut()
            .enumerate()
            .map(|(index, buffer)| {
                let data = &mut buffer[[8, 0, 1][index % 3]..][..8 * sector];
                match index % 4 {
                    0 => data.chunks_mut(5).map(IoSliceMut::new).collect(),
                    1 => vec![IoSliceMut::new(data)],
                    _ => data.chunks_mut(2 * sector).map(IoSliceMut::new).collect(),
                }
            })
            .collect();
        let mut batch: Vec<Request<'_>> =
            targets.iter_mut().enumerate().map(|(index, slices)| Request::read(place(index), slices)).collect();
        device.execute(&mut batch, &context()).unwrap();
        for index in 0..count {
            let written = &memory[index][[0, 1, 8][index % 3]..][..8 * sector];
            let read = &found[index][[8, 0, 1][index % 3]..][..8 * sector];
            assert!(written == read, "{:?} request {index}", device.engine());
        }
        let counters = device.counters();
        assert_eq!((counters.reads, counters.writes, counters.errors), (40, 40, 0));
        assert_eq!(counters.written_bytes, (count * 8 * sector) as u64);
        assert_eq!(device.idle_rings(), (device.engine() == IoEngine::Uring).then_some(1));
    }
}

#[test]
fn behind_the_end_of_a_short_file_there_are_zeros() {
    for engine in ENGINES {
        for direct in [false, true] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("disk");
            // Ends off any sector.
            std::fs::write(&path, vec![7u8; 5000]).unwrap();
            let options =
                FileDeviceOptions { capacity_bytes: Some(1 << 20), direct, engine, ..FileDeviceOptions::default() };
            let Ok(device) = FileDevice::open(&path, &options) else {
                assert_eq!(engine, IoEngine::Uring);
                continue;
            };
            assert_eq!(device.geometry().capacity_bytes, 1 << 20);
            let (mut one, mut two, mut three) = (vec![1; 4096], vec![1; 8192], vec![1; 4096]);
            {
                let (a, b) = two.split_at_mut(4096);
                let mut first = [IoSliceMut::new(&mut one)];
                let mut second = [IoSliceMut::new(a), IoSliceMut::new(b)];
                let mut third = [IoSliceMut::new(&mut three)];
                let mut batch = [
                    Request::read(0, &mut first),
                    Request::read(4096, &mut second),
                    Request::read((1 << 20) - 4096, &mut third),
                ];
                device.execute(&mut batch, &context()).unwrap();
            }
            assert!(one == [7; 4096]);
            assert!(two[..904] == [7; 904] && two[904..] == [0; 7288]);
            assert!(three == [0; 4096]);
            device.write_at(65536, &[3; 4096], &context()).unwrap();
            device.read_at(61440, &mut two, &context()).unwrap();
            assert!(two[..4096] == [0; 4096] && two[4096..] == [3; 4096]);
        }
    }
}

#[test]
fn discards_give_zeros_and_room_back() {
    use std::os::unix::fs::MetadataExt;
    for (place, device) in devices(8 << 20) {
        let data = vec![5; 4 << 20];
        device.write_at(0, &data, &context()).unwrap();
        device.sync(&context()).unwrap();
        let used = || std::fs::metadata(place.path().join("disk")).unwrap().blocks() * 512;
        let before = used();
        device.discard_at(1 << 20, 2 << 20, &context()).unwrap();
        let mut found = vec![1; 4 << 20];
        device.read_at(0, &mut found, &context()).unwrap();
        assert!(found[1 << 20..3 << 20].iter().all(|&byte| byte == 0));
        assert!(found[..1 << 20].iter().chain(&found[3 << 20..]).all(|&byte| byte == 5));
        if device.capabilities().discard {
            assert!(used() + (1 << 20) < before, "{} of {before}", used());
        }
        assert_eq!(std::fs::metadata(place.path().join("disk")).unwrap().len(), 8 << 20);
    }
}

#[test]
fn data_is_there_when_opened_again_and_a_second_open_is_refused() {
    for (place, device) in devices(1 << 20) {
        let path = place.path().join("disk");
        device.write_at(8192, &[9; 4096], &context()).unwrap();
        device.sync(&context()).unwrap();
        let error = FileDevice::open(&path, &FileDeviceOptions::default()).err().unwrap();
        assert_eq!(error.kind(), MediaErrorKind::Locked, "{error}");
        drop(device);
        let options = FileDeviceOptions { read_only: true, ..FileDeviceOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        assert_eq!(device.geometry().capacity_bytes, 1 << 20);
        let mut data = [0; 4096];
        device.read_at(8192, &mut data, &context()).unwrap();
        assert!(data == [9; 4096]);
        let error = device.write_at(0, &data, &context()).unwrap_err();
        assert_eq!(error.kind(), MediaErrorKind::ReadOnly, "{error}");
        assert_eq!(device.discard_at(0, 4096, &context()).unwrap_err().kind(), MediaErrorKind::ReadOnly);
    }
}

#[test]
fn wrong_openings_say_what_is_wrong() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    let open = |options: FileDeviceOptions| FileDevice::open(&path, &options).err().unwrap();
    let default = FileDeviceOptions::default;
    assert_eq!(open(default()).kind(), MediaErrorKind::NotFound);
    assert!(matches!(open(FileDeviceOptions { create: true, ..default() }), MediaError::Rule { .. }));
    assert!(!path.exists());
    std::fs::write(&path, [0; 8192]).unwrap();
    for options in [
        FileDeviceOptions { sector_bytes: Some(100), ..default() },
        FileDeviceOptions { sector_bytes: Some(1000), ..default() },
        FileDeviceOptions { capacity_bytes: Some(100), ..default() },
        FileDeviceOptions { queue_depth: 0, ..default() },
    ] {
        assert!(matches!(open(options.clone()), MediaError::Rule { .. }), "{options:?}");
    }
    let error = FileDevice::open(place.path(), &FileDeviceOptions { read_only: true, ..default() }).err().unwrap();
    assert!(matches!(error, MediaError::Unsuitable { .. }), "{error}");
    let error = FileDevice::open("/dev/null", &default()).err().unwrap();
    assert!(matches!(error, MediaError::Unsuitable { .. }), "{error}");
}

/// Threads with rings of their own; a batch that fails in part returns only when all of it has ended.
#[test]
fn threads_share_a_device() {
    for (_place, device) in devices(4 << 20) {
        let env = Env::real();
        let device = Arc::new(device);
        let handles: Vec<_> = (0..4u64)
            .map(|number| {
                let device = device.clone();
                env.spawn("writer", move || {
                    let mut random = Random::seeded(number);
                    for round in 0..40u8 {
                        let data = vec![round ^ number as u8; 4096];
                        let slices = [IoSlice::new(&data)];
                        let places: Vec<u64> = (0..12).map(|_| (random.below(250) * 4 + number) * 4096).collect();
                        let mut batch: Vec<Request<'_>> =
                            places.iter().map(|&place| Request::write(place, &slices)).collect();
                        batch.push(Request::write(4 << 20, &slices));
                        assert!(device.execute(&mut batch, &IoContext::default()).is_err());
                        assert!(batch[..12].iter().all(|request| request.outcome.is_ok()));
                        let mut found = vec![0; 4096];
                        for &place in &places {
                            device.read_at(place, &mut found, &IoContext::default()).unwrap();
                            assert!(found == data);
                        }
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
        assert!(device.idle_rings().is_none_or(|rings| (1..=4).contains(&rings)));
    }
}

/// The file a victim writes to.
const VICTIM_FILE: &str = "VARVE_TEST_VICTIM_FILE";

/// Not a test by itself: what the next one starts in a process of its own, and kills.
#[test]
fn a_victim_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(VICTIM_FILE) else { return };
    let options = FileDeviceOptions { capacity_bytes: Some(64 << 20), create: true, ..FileDeviceOptions::default() };
    let device = FileDevice::open(path, &options).unwrap();
    let data = AlignedBuffer::new(1 << 20, 4096);
    let slices = [IoSlice::new(&data)];
    for round in 0.. {
        let mut requests: Vec<Request<'_>> = (0..48).map(|number| Request::write(number << 20, &slices)).collect();
        device.execute(&mut requests, &context()).unwrap();
        if round == 0 {
            println!("written");
        }
    }
}

/// Requests in flight may outlive a process, its lock may not.
#[test]
fn a_process_that_was_killed_leaves_no_lock() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("device");
    for round in 0..6 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hardware::tests::a_victim_writes_until_it_is_killed", "--nocapture"])
            .env(VICTIM_FILE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("written")), "round {round}");
        let open = || FileDevice::open(&path, &FileDeviceOptions::default()).map(drop);
        assert!(matches!(open(), Err(MediaError::Locked { .. })), "round {round}");
        victim.kill().unwrap();
        victim.wait().unwrap();
        open().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}
