use super::*;
use crate::bytes::{ByteAddressable, FlushQueue};
use crate::conformance::{BlockDeviceCheck, check_block_device, check_bytes};
use crate::context::IoContext;
use crate::device::{BlockDeviceExt, Device, Geometry};
use crate::error::MediaErrorKind;
use crate::memory::PersistentMemory;
use std::cell::Cell;
use varve_env::Env;

const CAPACITY_BYTES: u64 = 1 << 20;
const NEW: MemoryFileOptions =
    MemoryFileOptions { capacity_bytes: Some(CAPACITY_BYTES), create: true, read_only: false, mode: FileMode::OWNER };
const THERE: MemoryFileOptions = MemoryFileOptions { capacity_bytes: None, create: false, ..NEW };

fn open(path: &Path, options: &MemoryFileOptions) -> Result<PersistentMemory, MediaError> {
    PersistentMemory::open(&Env::real(), path, options)
}

fn device(memory: PersistentMemory) -> Device {
    let geometry = Geometry { capacity_bytes: memory.capacity_bytes(), sector_bytes: 512, physical_sector_bytes: 512 };
    memory.into_device(&geometry).unwrap()
}

/// Every way to make stores durable that can be tried here: the instructions work on any memory.
fn ways() -> Vec<Persistence> {
    let lines = LineInstruction::detect().map(Persistence::LineWriteBack);
    lines.into_iter().chain([Persistence::PersistentCaches, Persistence::PageSync, Persistence::ProcessOnly]).collect()
}

#[test]
fn what_a_fence_buys_follows_from_what_is_found() {
    let clwb = Some(LineInstruction::Clwb);
    let lines = Persistence::LineWriteBack(LineInstruction::Clwb);
    for (is_direct, is_in_memory, has_persistent_caches, instruction, expected) in [
        (true, false, false, clwb, lines),
        (true, false, true, clwb, Persistence::PersistentCaches),
        (true, false, true, None, Persistence::PersistentCaches),
        (true, false, false, None, Persistence::PageSync),
        (false, false, false, clwb, Persistence::PageSync),
        (false, true, false, clwb, Persistence::ProcessOnly),
    ] {
        let ground = Ground { is_direct, is_in_memory, has_persistent_caches, instruction };
        assert_eq!(
            ground.persistence(),
            expected,
            "{is_direct} {is_in_memory} {has_persistent_caches} {instruction:?}"
        );
    }
}

#[test]
fn the_domain_is_that_of_the_region_above_a_device() {
    let place = tempfile::tempdir().unwrap();
    let device = place.path().join("region0/pfn0.1/block/pmem0");
    std::fs::create_dir_all(&device).unwrap();
    assert_eq!(domain_above(&device), None);
    std::fs::write(place.path().join("region0/persistence_domain"), "cpu_cache\n").unwrap();
    assert_eq!(domain_above(&device).as_deref(), Some("cpu_cache"));
}

#[test]
fn files_keep_their_bytes_and_say_what_a_fence_buys() {
    let on_disk = tempfile::tempdir().unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm").inspect_err(|error| eprintln!("no tmpfs tested: {error}")).ok();
    for place in [Some(&on_disk), in_memory.as_ref()].into_iter().flatten() {
        let path = place.path().join("memory");
        let memory = open(&path, &NEW).unwrap();
        assert!(memory.was_made());
        if in_memory.as_ref().is_some_and(|tmpfs| tmpfs.path() == place.path()) {
            assert_eq!(memory.persistence(), Persistence::ProcessOnly);
            assert!(!memory.persistence().survives_power_cut());
        }
        let written = device(memory);
        written.block.write_at(4096, &[7; 512], &IoContext::default()).unwrap();
        let (bytes, mut queue) = (written.bytes.as_ref().unwrap(), FlushQueue::default());
        bytes.store(4200, &[8; 8]).unwrap();
        bytes.flush(4200..4208, &mut queue).unwrap();
        bytes.fence(&mut queue).unwrap();
        assert!(queue.is_empty());
        written.block.sync(&IoContext::default()).unwrap();
        assert!(matches!(open(&path, &THERE), Err(MediaError::Locked { .. })), "opened twice");
        drop(written);
        let found = device(open(&path, &THERE).unwrap());
        let mut data = [0; 512];
        found.block.read_at(4096, &mut data, &IoContext::default()).unwrap();
        assert!(data[104..112] == [8; 8] && data[..104] == [7; 104] && data[112..] == [7; 400]);
    }
}

#[test]
fn the_suites_pass_on_files_whatever_a_fence_buys() {
    for persistence in ways() {
        let place = tempfile::tempdir().unwrap();
        let made = Cell::new(0);
        let make = |env: &Env| {
            made.set(made.get() + 1);
            let path = place.path().join(made.get().to_string());
            device(PersistentMemory::open(env, &path, &NEW).unwrap().pretending(persistence))
        };
        let options = BlockDeviceCheck { steps: 30, ..Default::default() };
        check_bytes(&make, &options).unwrap_or_else(|broken| panic!("{persistence:?}: {broken}"));
        check_block_device(&make, &options).unwrap_or_else(|broken| panic!("{persistence:?}: {broken}"));
    }
}

#[test]
fn files_that_are_not_what_they_should_be_are_refused_and_stay() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("memory");
    assert!(matches!(open(&path, &THERE), Err(MediaError::NotFound { .. })));
    assert!(!path.exists());
    drop(open(&path, &NEW).unwrap());
    let sound = std::fs::read(&path).unwrap();
    let at = CAPACITY_BYTES as usize;
    let mut newer = sound.clone();
    newer[at + 8] = 2;
    let mut damaged = sound.clone();
    damaged[at + 17] ^= 1;
    let mut longer = sound[..at].to_vec();
    longer.extend([&[0; 4096][..], &sound[at..]].concat());
    for (bytes, kind) in [
        (b"a letter".to_vec(), MediaErrorKind::InvalidRequest),
        (vec![1; 2 * at], MediaErrorKind::InvalidRequest),
        (sound[..sound.len() - 4096].to_vec(), MediaErrorKind::InvalidRequest),
        (longer, MediaErrorKind::Damaged),
        (newer, MediaErrorKind::OtherVersion),
        (damaged, MediaErrorKind::Damaged),
    ] {
        std::fs::write(&path, &bytes).unwrap();
        for options in [NEW, THERE] {
            let error = open(&path, &options).expect_err("a file that is no memory");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(std::fs::read(&path).unwrap() == bytes, "{error}");
        }
    }
    std::fs::write(&path, &sound).unwrap();
    let other = MemoryFileOptions { capacity_bytes: Some(2 * CAPACITY_BYTES), ..NEW };
    let error = open(&path, &other).unwrap_err().to_string();
    assert!(error.contains("2097152 bytes were asked for, the file was made with 1048576"), "{error}");
    assert_eq!(open(&path, &THERE).unwrap().capacity_bytes(), CAPACITY_BYTES);
}

#[test]
fn what_cannot_be_made_is_refused_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("memory");
    let kind = |capacity_bytes| {
        let error = open(&path, &MemoryFileOptions { capacity_bytes, ..NEW }).expect_err("no file");
        assert!(!path.exists());
        error.kind()
    };
    assert_eq!(kind(Some(1 << 50)), MediaErrorKind::NoSpace, "full");
    assert_eq!(kind(Some(u64::MAX - 4095)), MediaErrorKind::InvalidRequest);
    assert_eq!(kind(Some(100)), MediaErrorKind::InvalidRequest);
    assert_eq!(kind(None), MediaErrorKind::InvalidRequest);
}

#[test]
fn a_file_that_is_cut_short_while_it_is_open_gives_errors_and_no_signal() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("memory");
    let memory = open(&path, &NEW).unwrap();
    memory.store(CAPACITY_BYTES / 2, &[7; 64]).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(memory.load(CAPACITY_BYTES / 2, &mut [0; 64]).is_err());
    assert!(memory.store(0, &[1]).is_err() && memory.load(0, &mut [0]).is_err(), "all of it is lost");
    assert!(memory.fence(&mut FlushQueue::default()).is_err());
    drop(memory);
    assert_eq!(open(&path, &THERE).expect_err("shrunk").kind(), MediaErrorKind::InvalidRequest);
}

#[test]
fn readers_share_a_file_and_change_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("memory");
    device(open(&path, &NEW).unwrap()).block.write_at(0, &[7; 512], &IoContext::default()).unwrap();
    let read_only = MemoryFileOptions { read_only: true, ..THERE };
    let readers = [(); 2].map(|()| device(open(&path, &read_only).unwrap()));
    assert!(matches!(open(&path, &THERE), Err(MediaError::Locked { .. })));
    for reader in &readers {
        let (block, bytes) = (&reader.block, reader.bytes.as_ref().unwrap());
        let mut data = [0; 512];
        block.read_at(0, &mut data, &IoContext::default()).unwrap();
        assert_eq!(data, [7; 512]);
        assert_eq!(block.write_at(0, &data, &IoContext::default()).unwrap_err().kind(), MediaErrorKind::ReadOnly);
        assert_eq!(block.discard_at(0, 512, &IoContext::default()).unwrap_err().kind(), MediaErrorKind::ReadOnly);
        assert_eq!(bytes.store(0, &data).unwrap_err().kind(), MediaErrorKind::ReadOnly);
    }
}
