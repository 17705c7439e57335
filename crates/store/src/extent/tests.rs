//! What only this store promises: counts of device operations, refusals, exact space.

use super::*;
use crate::conformance::content;
use crate::error::StoreErrorKind;
use varve_media::{
    BlockDeviceExt, Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
    IoClass, Operation,
};

const CONTEXT: IoContext = IoContext::of(IoClass::Log);

fn device(env: &Env, capacity_bytes: u64) -> Device {
    Device::of_blocks(Arc::new(Emulated::immediate(env, "disk", capacity_bytes)))
}

fn formatted(env: &Env, capacity_bytes: u64, layout: ExtentLayout) -> Device {
    let device = device(env, capacity_bytes);
    ExtentStore::format(env, &device, &ExtentFormatOptions { layout, ..ExtentFormatOptions::default() }).unwrap();
    device
}

fn options(kind: FileKind, expected: u64) -> CreateOptions {
    CreateOptions { kind, expected_size_bytes: Some(expected), ..CreateOptions::default() }
}

/// Writes and syncs that a device did meanwhile.
fn counted(device: &Device, work: impl FnOnce()) -> (u64, u64) {
    let before = device.block.counters();
    work();
    let after = device.block.counters();
    (after.writes - before.writes, after.syncs - before.syncs)
}

#[test]
fn a_log_sync_is_one_write_and_one_device_sync() {
    let env = Env::sim(1);
    let device = formatted(&env, 64 << 20, ExtentLayout::FirstFit);
    let store = ExtentStore::open(&env, device.clone()).unwrap();
    let mut log = store.create("log", &options(FileKind::Log, 4 << 20)).unwrap();
    let mut append_and_sync = |length: u64| {
        log.append(&content(1, 0, length), &CONTEXT).unwrap();
        log.sync(&CONTEXT).unwrap();
    };
    // The first also makes name and blocks durable, in one commit.
    assert_eq!(counted(&device, || append_and_sync(100)), (2, 1));
    for length in [1, 100, 4000, 5000, 100_000] {
        assert_eq!(counted(&device, || append_and_sync(length)), (1, 1), "{length} bytes");
    }
}

#[test]
fn a_table_is_one_extent_in_requests_of_a_mebibyte() {
    let env = Env::sim(1);
    let device = formatted(&env, 256 << 20, ExtentLayout::FirstFit);
    let store = ExtentStore::open(&env, device.clone()).unwrap();
    let counts = counted(&device, || {
        let mut table = store.create("table", &options(FileKind::Table, 40 << 20)).unwrap();
        for number in 0..32u64 << 8 {
            table.append(&content(2, number << 12, 4096), &CONTEXT).unwrap();
        }
        table.sync(&CONTEXT).unwrap();
        table.finish(&CONTEXT).unwrap();
    });
    // 32 MiB of data and one commit; one sync for the data, the commit is a durable write.
    assert_eq!(counts, (33, 1));
    let node = store.core.find("table").unwrap();
    assert_eq!((node.extents.read().len(), node.extents.read().blocks()), (1, 32 << 8));
}

#[test]
fn ext4_pays_a_transaction_at_every_fsync() {
    let env = Env::sim(1);
    let device = formatted(&env, 64 << 20, ExtentLayout::Ext4(Ext4Options::default()));
    let store = ExtentStore::open(&env, device.clone()).unwrap();
    let mut log = store.create("log", &options(FileKind::Log, 4 << 20)).unwrap();
    log.append(&content(1, 0, 100), &CONTEXT).unwrap();
    log.sync(&CONTEXT).unwrap();
    // Data, descriptor with images, commit block; one flush (the commit block is written through).
    let counts = counted(&device, || {
        log.append(&content(1, 100, 100), &CONTEXT).unwrap();
        log.sync(&CONTEXT).unwrap();
    });
    assert_eq!(counts, (3, 1));
    // A flush costs nothing, as with a page cache, and readers see it.
    let reader = store.open("log", &OpenOptions::default()).unwrap();
    let counts = counted(&device, || {
        log.append(&content(1, 200, 5000), &CONTEXT).unwrap();
        log.flush(&CONTEXT).unwrap();
        assert_eq!(reader.size_bytes(), 5200);
        let mut data = vec![0; 5200];
        reader.read_at(0, &mut data, &CONTEXT).unwrap();
        assert!(data == content(1, 0, 5200));
    });
    assert_eq!(counts, (0, 0));
    // Five seconds later whoever comes next commits; thirty seconds later metadata is written in place.
    log.append(&content(1, 5200, 10), &CONTEXT).unwrap();
    store.create("other", &CreateOptions::default()).unwrap();
    env.sleep(std::time::Duration::from_secs(6));
    assert_eq!(counted(&device, || log.flush(&CONTEXT).unwrap()), (2, 1));
    env.sleep(std::time::Duration::from_secs(31));
    store.create("third", &CreateOptions::default()).unwrap();
    env.sleep(std::time::Duration::from_secs(6));
    let (writes, _) = counted(&device, || log.flush(&CONTEXT).unwrap());
    assert!(writes > 4, "{writes} writes");
}

#[test]
fn space_is_exact_and_comes_back() {
    let env = Env::sim(1);
    for layout in [ExtentLayout::FirstFit, ExtentLayout::NextFit, ExtentLayout::Ext4(Ext4Options::default())] {
        let device = formatted(&env, 16 << 20, layout);
        let store = ExtentStore::open(&env, device.clone()).unwrap();
        let empty = store.space().unwrap();
        assert_eq!(empty.total_bytes, empty.available_bytes);
        let mut written = 0;
        let mut names = Vec::new();
        while written < empty.available_bytes {
            let name = format!("{}", names.len());
            let available = store.space().unwrap().available_bytes;
            let length = (1 << 20).min(available);
            // One byte more than there is is refused, and leaves nothing behind.
            let mut file = store.create(&name, &options(FileKind::Table, 1 << 20)).unwrap();
            let all = content(3, 0, available + 1);
            let error = file.append(&all, &CONTEXT).and_then(|()| file.sync(&CONTEXT)).unwrap_err();
            assert_eq!(error.kind(), crate::StoreErrorKind::NoSpace, "{error}");
            drop(file);
            let mut file = store.create(&name, &options(FileKind::Table, 1 << 20)).unwrap();
            file.append(&content(3, 0, length), &CONTEXT).unwrap();
            file.sync(&CONTEXT).unwrap();
            file.finish(&CONTEXT).unwrap();
            written += length;
            names.push(name);
            assert_eq!(store.space().unwrap().available_bytes, empty.available_bytes - written);
        }
        assert_eq!(written, empty.available_bytes);
        assert_eq!(store.check().unwrap(), []);
        for name in names {
            store.remove(&name).unwrap();
        }
        assert_eq!(store.space().unwrap(), empty);
        assert_eq!(store.check().unwrap(), []);
        let mut file = store.create("again", &CreateOptions::default()).unwrap();
        file.append(&content(4, 0, 8 << 20), &CONTEXT).unwrap();
        file.sync(&CONTEXT).unwrap();
    }
}

#[test]
fn foreign_blank_newer_and_too_small_devices_are_refused_by_name() {
    let env = Env::sim(1);
    let blank = device(&env, 4 << 20);
    assert!(!ExtentStore::probe(&blank).unwrap());
    let error = ExtentStore::open(&env, blank.clone()).err().unwrap();
    assert!(matches!(error, StoreError::Foreign { offset_bytes: 0, .. }), "{error}");
    assert!(error.to_string().contains("format"), "{error}");
    blank.block.write_at(0, &[0x42; 4096], &CONTEXT).unwrap();
    let error = ExtentStore::open(&env, blank.clone()).err().unwrap();
    assert_eq!(error.kind(), crate::StoreErrorKind::Foreign);
    let error = ExtentStore::format(&env, &blank, &ExtentFormatOptions::default()).unwrap_err();
    assert_eq!(error.kind(), crate::StoreErrorKind::Foreign);
    ExtentStore::format(&env, &blank, &ExtentFormatOptions { overwrite: true, ..Default::default() }).unwrap();
    assert!(ExtentStore::probe(&blank).unwrap());
    let error = ExtentStore::format(&env, &blank, &ExtentFormatOptions::default()).unwrap_err();
    assert_eq!(error.kind(), crate::StoreErrorKind::InvalidRequest);
    ExtentStore::open(&env, blank).unwrap();
    assert!(ExtentStore::format(&env, &device(&env, 512 << 10), &ExtentFormatOptions::default()).is_err());

    // A newer version in both superblocks.
    let newer = formatted(&env, 4 << 20, ExtentLayout::FirstFit);
    for offset in [0, 64 << 10] {
        let mut sector = [0; 512];
        newer.block.read_at(offset, &mut sector, &CONTEXT).unwrap();
        sector[8] = 5;
        sector[12..16].fill(0);
        let checksum = crc32c::crc32c(&sector);
        sector[12..16].copy_from_slice(&checksum.to_le_bytes());
        newer.block.write_at(offset, &sector, &CONTEXT).unwrap();
    }
    let error = ExtentStore::open(&env, newer).err().unwrap();
    assert!(matches!(&error, StoreError::Foreign { found, .. } if found == "version 5"), "{error}");
}

#[test]
fn logs_are_near_the_metadata_and_tables_are_not() {
    let env = Env::sim(1);
    let device = formatted(&env, 256 << 20, ExtentLayout::FirstFit);
    let store = ExtentStore::open(&env, device).unwrap();
    for (name, kind) in [("log", FileKind::Log), ("table", FileKind::Table)] {
        let mut file = store.create(name, &options(kind, 1 << 20)).unwrap();
        file.append(&content(5, 0, 1000), &CONTEXT).unwrap();
        file.sync(&CONTEXT).unwrap();
    }
    let zone = store.core.geometry.log_zone.clone();
    let start = |name: &str| store.core.find(name).unwrap().extents.read().extents().next().unwrap().start;
    assert!(zone.contains(&start("log")) && start("table") >= zone.end);
}

/// A store whose names no longer fit its checkpoint could not be opened again.
#[test]
fn names_that_outgrow_the_checkpoint_are_refused_and_the_store_opens_again() {
    let env = Env::sim(1);
    let device = formatted(&env, 1 << 20, ExtentLayout::FirstFit);
    let store = ExtentStore::open(&env, device.clone()).unwrap();
    let mut count = 0u32;
    let refused = loop {
        match store.create(&format!("{count:x}"), &CreateOptions::default()) {
            Ok(writer) => drop(writer),
            Err(error) => break error,
        }
        count += 1;
        assert!(count < 100_000);
    };
    assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
    store.remove("0").unwrap();
    store.rename("1", "11111").unwrap();
    for number in 2..40 {
        let error = store.rename(&format!("{number:x}"), &format!("{number:0200}")).unwrap_err();
        assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
    }
    store.sync_names().unwrap();
    let names =
        |store: &ExtentStore| -> Vec<String> { store.list().unwrap().into_iter().map(|entry| entry.name).collect() };
    let before = names(&store);
    std::mem::forget(store);
    let store = ExtentStore::open(&env, device).unwrap();
    assert_eq!(names(&store), before);
    // One of a long name makes space for another.
    store.rename("2", "11111").unwrap();
    (3..40).for_each(|number| store.remove(&format!("{number:x}")).unwrap());
    store.rename("11111", &"1".repeat(200)).unwrap();
}

/// A device of which one sector cannot be read.
fn with_bad_sector(env: &Env, device: &Device, at: u64) -> Device {
    let fails = FaultEffect::Fail(FaultError::Unreadable);
    let fault = Fault::new(Operation::Read, FaultTrigger::From(0), fails).on_range(at..at + 512);
    FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), device)
}

fn read_all(store: &ExtentStore, name: &str) -> Result<Vec<u8>, StoreError> {
    let reader = store.open(name, &OpenOptions::default())?;
    let mut data = vec![0; reader.size_bytes() as usize];
    reader.read_at(0, &mut data, &CONTEXT).map(|()| data)
}

/// A log of a process that was killed ends where a sector says so that can be read, and nowhere else; one of an earlier
/// process ends where the metadata says.
#[test]
fn sectors_that_cannot_be_read_are_not_the_end_of_a_log() {
    const PAYLOAD: u64 = 512 - 24;
    // Ends within a frame, and between two.
    for size_bytes in [3 * PAYLOAD - 100, 3 * PAYLOAD] {
        for sector in 0..6 {
            let env = Env::sim(1);
            let device = formatted(&env, 64 << 20, ExtentLayout::FirstFit);
            let store = ExtentStore::open(&env, device.clone()).unwrap();
            let mut log = store.create("log", &options(FileKind::Log, 1 << 20)).unwrap();
            for at in [0, size_bytes / 2] {
                log.append(&content(1, at, size_bytes / 2), &CONTEXT).unwrap();
                log.sync(&CONTEXT).unwrap();
            }
            let node = store.core.find("log").unwrap();
            let (start, _) = node.extents.read().locate(0, store.core.geometry.block_bytes).unwrap();
            std::mem::forget((log, store));
            let at = start + sector * 512;
            let opened = ExtentStore::open(&env, with_bad_sector(&env, &device, at));
            // The last frame says that it is the last one by not being full; else the sector behind it says so.
            let may_be_the_end = sector < 3 || (sector == 3 && size_bytes.is_multiple_of(PAYLOAD));
            match opened {
                Ok(_) if may_be_the_end => panic!("sector {sector} of {size_bytes} bytes was taken for the end"),
                Ok(store) => assert_eq!(read_all(&store, "log").unwrap(), content(1, 0, size_bytes)),
                Err(StoreError::Unreadable { offset_bytes, .. }) if may_be_the_end => assert_eq!(offset_bytes, at),
                Err(error) => panic!("sector {sector} of {size_bytes} bytes: {error}"),
            }
            let store = ExtentStore::open(&env, device.clone()).unwrap();
            assert_eq!(read_all(&store, "log").unwrap(), content(1, 0, size_bytes), "sector {sector}");
            drop(store);
            // Now it is of an earlier process: what is lost of it is told to those who read it.
            let store = ExtentStore::open(&env, with_bad_sector(&env, &device, at)).unwrap();
            match read_all(&store, "log") {
                Ok(data) => assert_eq!((data, sector >= 3), (content(1, 0, size_bytes), true)),
                Err(error) => assert_eq!((error.kind(), sector < 3), (StoreErrorKind::Corruption, true)),
            }
            drop(store);
            let store = ExtentStore::open(&env, device).unwrap();
            assert_eq!(read_all(&store, "log").unwrap(), content(1, 0, size_bytes));
            assert!(store.check().unwrap().is_empty());
        }
    }
}

/// What a drawn history of an `ext4` store leaves on the device, and in how many requests: which blocks its commits dirty
/// and when they are written in place is what the imitation stands for, and nothing that is read later shows it.
#[test]
fn ext4_writes_what_it_wrote() {
    // Bytes of its own: those of the suites may become others.
    let content = |step: u64, length: u64| -> Vec<u8> {
        let byte = |at: u64| {
            let mixed = (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed >> 32) as u8 | 1
        };
        (0..length).map(byte).collect()
    };
    let golden = [(1, (0x8009_a058, 2064, 62_693_376, 409)), (2, (0x95fd_be8c, 2066, 63_332_352, 383))];
    for (seed, expected) in golden {
        let env = Env::sim(seed);
        let mut random = env.random("history");
        let layout = ExtentLayout::Ext4(Ext4Options { group_bytes: 1 << 20, journal_bytes: Some(256 << 10) });
        let device = formatted(&env, 16 << 20, layout);
        let mut store = ExtentStore::open(&env, device.clone()).unwrap();
        let mut writers: Vec<(String, Box<dyn WritableFile>)> = Vec::new();
        let mut readers = Vec::new();
        for step in 0..3000u64 {
            let name = format!("{}", random.below(20));
            // A file that is written keeps its name.
            let is_written = |name: &String| writers.iter().any(|(written, _)| written == name);
            match random.below(16) {
                0..3 if !is_written(&name) => {
                    let kind = if random.below(2) == 0 { FileKind::Table } else { FileKind::Log };
                    writers.push((name.clone(), store.create(&name, &options(kind, 1 << 16)).unwrap()));
                }
                12 if !is_written(&name) => {
                    let _ = store.remove(&name);
                }
                13 => {
                    let to = format!("{}", random.below(20));
                    if !is_written(&name) && !is_written(&to) {
                        let _ = store.rename(&name, &to);
                    }
                }
                14 => {
                    readers.extend(store.open(&name, &OpenOptions::default()));
                    if readers.len() > 4 {
                        readers.remove(0);
                    }
                }
                15 => env.sleep(std::time::Duration::from_millis(random.below(4000))),
                drawn @ 3..12 if !writers.is_empty() => {
                    let at = random.index(writers.len());
                    // What does not fit is refused, and the history goes on.
                    let _ = match drawn {
                        3..7 => writers[at].1.append(&content(step, 1 + random.below(150_000)), &CONTEXT),
                        7 => writers[at].1.flush(&CONTEXT),
                        8..10 => writers[at].1.sync(&CONTEXT),
                        _ => {
                            let (_, writer) = writers.swap_remove(at);
                            if random.below(2) == 0 { writer.finish(&CONTEXT) } else { Ok(()) }
                        }
                    };
                }
                _ => {}
            }
            if step % 1000 == 999 {
                writers.clear();
                readers.clear();
                drop(store);
                store = ExtentStore::open(&env, device.clone()).unwrap();
            }
        }
        drop((writers, store));
        let counters = device.block.counters();
        let mut data = vec![0; 16 << 20];
        device.block.read_at(0, &mut data, &CONTEXT).unwrap();
        let found = (crc32c::crc32c(&data), counters.writes, counters.written_bytes, counters.syncs);
        assert_eq!(found, expected, "seed {seed}");
    }
}
