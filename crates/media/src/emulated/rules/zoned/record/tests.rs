use super::*;
use crate::device::{BlockDevice, BlockDeviceExt, Device, Geometry};
use crate::emulated::{Backing, Emulated, FileBacking, Immediate, Zoned};
use crate::request::Request;
use crate::{IoContext, MediaErrorKind};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use varve_env::Env;

const SECTOR: u64 = 4096;
const ZONE: u64 = 8 * SECTOR;

fn zones() -> ZoneGeometry {
    let fit = ZoneGeometry::fit(8 * ZONE, ZONE).unwrap();
    ZoneGeometry { zone_capacity_bytes: 6 * SECTOR, conventional_zones: 1, ..fit }
}

fn context() -> IoContext {
    IoContext::default()
}

/// A banded file with its record beside it.
fn open(env: &Env, place: &Path) -> Device {
    let rules = Zoned::recorded(ZoneRecord::open(&place.join("zones"), &zones(), true).unwrap());
    let backing = Box::new(FileBacking::open(&place.join("disk"), 8 * ZONE).unwrap());
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let geometry = rules.cut(&asked);
    rules.device(|rules| Emulated::new(env, "banded", geometry, rules, Box::<Immediate>::default(), backing))
}

fn states(device: &Device) -> Vec<(ZoneCondition, u64)> {
    let reported = device.zones.as_ref().unwrap().report(ZoneId(1), 7, &context()).unwrap();
    reported.iter().map(|zone| (zone.condition, (zone.write_pointer_bytes - zone.start_bytes) / SECTOR)).collect()
}

#[test]
fn zones_are_as_they_were_left() {
    use ZoneCondition::{Closed, Empty, Full};
    let env = Env::real();
    let place = tempfile::tempdir().unwrap();
    let write = |device: &Device, zone: u64, sector: u64, sectors: usize| {
        device.block.write_at(zone * ZONE + sector * SECTOR, &vec![zone as u8; sectors * 4096], &context()).unwrap();
    };
    {
        let device = open(&env, place.path());
        let control = device.zones.clone().unwrap();
        write(&device, 1, 0, 2);
        write(&device, 2, 0, 6);
        write(&device, 3, 0, 1);
        write(&device, 4, 0, 3);
        device.block.sync(&context()).unwrap();
        control.finish(ZoneId(3), &context()).unwrap();
        control.reset(ZoneId(4), &context()).unwrap();
        control.append(ZoneId(5), &[5; 8192], &context()).unwrap();
        control.open(ZoneId(6), &context()).unwrap();
        let locked = ZoneRecord::open(&place.path().join("zones"), &zones(), true);
        assert!(matches!(locked, Err(MediaError::Locked { .. })));
    }
    let expected = vec![(Closed, 2), (Full, 6), (Full, 6), (Empty, 0), (Closed, 2), (Empty, 0), (Empty, 0)];
    let device = open(&env, place.path());
    assert_eq!(states(&device), expected);
    let mut data = vec![9; 6 * 4096];
    device.block.read_at(3 * ZONE, &mut data, &context()).unwrap();
    assert!(data[..4096] == [3; 4096] && data[4096..].iter().all(|&byte| byte == 0));
    device.block.read_at(4 * ZONE, &mut data, &context()).unwrap();
    assert!(data.iter().all(|&byte| byte == 0), "what was before a reset does not come back");
    write(&device, 5, 2, 1);
    drop(device);
    // As after a restart of the machine: what was not synced does not count.
    let path = place.path().join("zones");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&header(&ZoneTable::new(&zones()).geometry().clone(), &[b'0'; 36], VERSION), 0).unwrap();
    drop(file);
    let left = std::fs::read(&path).unwrap();
    let after_restart = vec![(Closed, 2), (Full, 6), (Full, 6), (Empty, 0), (Empty, 0), (Empty, 0), (Empty, 0)];
    for _ in 0..2 {
        assert_eq!(states(&open(&env, place.path())), after_restart);
        assert_eq!(std::fs::read(&path).unwrap(), left, "who only opens it changes nothing");
    }
    // With the first change what was lost is forgotten for good.
    let device = open(&env, place.path());
    write(&device, 6, 0, 1);
    drop(device);
    let device = open(&env, place.path());
    let expected = [&after_restart[..5], &[(Closed, 1)], &after_restart[6..]].concat();
    assert_eq!(states(&device), expected);
    let read = std::fs::read(&path).unwrap();
    assert_eq!(read[BOOT_ID], boot_id());
    let lost = entry_at(ZoneId(5)) as usize;
    assert!(crate::is_zero(&read[lost..lost + ENTRY_BYTES]));
}

#[test]
fn a_disk_below_keeps_its_time_and_its_record() {
    let env = Env::sim(1);
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "disk", 8 * ZONE));
    let over = || {
        let record = ZoneRecord::open(&place.path().join("zones"), &zones(), true).unwrap();
        Zoned::recorded(record).over(&disk)
    };
    over().block.write_at(ZONE, &[1; 4096], &context()).unwrap();
    assert_eq!(states(&over())[0], (ZoneCondition::Closed, 1));
    let device = over();
    device.zones.as_ref().unwrap().reset(ZoneId(1), &context()).unwrap();
    drop(device);
    let mut data = [9; 4096];
    over().block.read_at(ZONE, &mut data, &context()).unwrap();
    assert_eq!(data, [0; 4096]);
}

#[test]
fn damage_and_other_zones_are_told() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("zones");
    let open = |zones: &ZoneGeometry| ZoneRecord::open(&path, zones, false);
    assert_eq!(open(&zones()).err().unwrap().kind(), MediaErrorKind::NotFound);
    let mut record = ZoneRecord::open(&path, &zones(), true).unwrap();
    let state = ZoneState {
        condition: ZoneCondition::Closed,
        pointer_bytes: SECTOR,
        written_bytes: SECTOR,
        non_sequential: false,
    };
    record.written(ZoneId(2), state).unwrap();
    drop(record);
    let good = std::fs::read(&path).unwrap();
    let other = ZoneGeometry { conventional_zones: 2, ..zones() };
    let error = open(&other).err().unwrap();
    assert!(
        error.to_string().contains("conventional zones") && error.to_string().contains("expected 2, found 1"),
        "{error}"
    );
    assert_eq!(error.kind(), MediaErrorKind::Damaged);
    // Every flipped bit of what counts is noticed.
    let entry = entry_at(ZoneId(2)) as usize;
    for byte in (0..HEADER_BYTES).step_by(7).chain(0..84).chain(entry..entry + ENTRY_BYTES) {
        let mut bytes = good.clone();
        bytes[byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&zones()).err().unwrap_or_else(|| panic!("byte {byte} went unnoticed"));
        assert_eq!(error.kind(), MediaErrorKind::Damaged, "byte {byte}: {error}");
    }
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert_eq!(open(&zones()).err().unwrap().kind(), MediaErrorKind::Damaged);
    std::fs::write(&path, &good).unwrap();
    assert!(open(&zones()).is_ok());
}

/// Once it was told as damage, with the advice to format the device anew.
#[test]
fn a_record_of_another_version_is_told_as_such() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("zones");
    drop(ZoneRecord::open(&path, &zones(), true).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 3;
    let checksum = crc32c::crc32c(&bytes[..HEADER_CHECKED_BYTES]);
    bytes[HEADER_CHECKED_BYTES..HEADER_CHECKED_BYTES + 4].copy_from_slice(&checksum.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    for result in [ZoneRecord::open(&path, &zones(), true), ZoneRecord::open_read_only(&path, &zones())] {
        let error = result.err().unwrap();
        assert_eq!(error.kind(), MediaErrorKind::OtherVersion);
        let text = error.to_string();
        assert!(text.contains("found version 3") && !text.contains("anew"), "{text}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// The bytes of both versions.
#[test]
fn golden() {
    let zones = ZoneTable::new(&zones()).geometry().clone();
    let [first, header] = [1, 2].map(|version| header(&zones, &[b'a'; 36], version));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(
        hex(&first[..40]),
        "56415256455a4f4e01000000080000000080000000000000006000000000000001000000".to_owned() + "01000000"
    );
    assert_eq!(
        hex(&header[..40]),
        "56415256455a4f4e02000000080000000080000000000000006000000000000001000000".to_owned() + "01000000"
    );
    let entry =
        Entry { finished: true, written_bytes: 3 * SECTOR, synced_bytes: SECTOR, ..Entry::default() }.encode(ZoneId(7));
    assert_eq!(hex(&entry[..24]), "070000000100000000300000000000000010000000000000");
    let resetting = Entry { resetting: true, written_bytes: SECTOR, ..Entry::default() }.encode(ZoneId(7));
    assert_eq!(hex(&resetting[..24]), "070000000400000000100000000000000000000000000000");
    assert_eq!(Entry::decode(&resetting, ZoneId(7), &zones).map(|entry| entry.resetting), Ok(true));
    assert_eq!(u32_at(&header, 80), crc32c::crc32c(&header[..80]));
    assert_eq!(u32_at(&entry, 60), crc32c::crc32c(&entry[..60]));
    fuzz(&first);
    fuzz(&header);
    fuzz(&[header, entry.to_vec()].concat());
    fuzz(&entry);
    fuzz(&[]);
}

/// Bytes in a file. Before they are taken away the record is looked at, and then they may stay.
struct Watching {
    file: FileBacking,
    record: PathBuf,
    /// The record as it was when bytes were about to go.
    seen: Arc<Mutex<Vec<u8>>>,
    fails: bool,
}

impl Backing for Watching {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> std::io::Result<()> {
        self.file.read_at(offset_bytes, data)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.file.write_at(offset_bytes, data)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        *self.seen.lock() = std::fs::read(&self.record).unwrap();
        if self.fails {
            return Err(std::io::Error::other("a discard that fails"));
        }
        self.file.discard(offset_bytes, length_bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }

    fn stored_bytes(&self) -> u64 {
        self.file.stored_bytes()
    }
}

/// Zones that are to be written in order, and such as show what is below them.
fn both_types() -> [ZoneGeometry; 2] {
    let preferred =
        ZoneGeometry { sequential_type: ZoneType::SequentialWritePreferred, zone_capacity_bytes: ZONE, ..zones() };
    [zones(), preferred]
}

fn open_watching(env: &Env, place: &Path, zones: &ZoneGeometry, fails: bool) -> (Device, Arc<Mutex<Vec<u8>>>) {
    let record = place.join("zones");
    let rules = Zoned::recorded(ZoneRecord::open(&record, zones, true).unwrap());
    let file = FileBacking::open(&place.join("disk"), 8 * ZONE).unwrap();
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let backing = Box::new(Watching { file, record, seen: seen.clone(), fails });
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let geometry = rules.cut(&asked);
    let device =
        rules.device(|rules| Emulated::new(env, "banded", geometry, rules, Box::<Immediate>::default(), backing));
    (device, seen)
}

/// A crash behind each step of a reset leaves a zone that is as it was, or empty.
#[test]
fn a_reset_that_is_interrupted_is_ended_by_the_next_opening() {
    let env = Env::real();
    for zones in both_types() {
        let place = tempfile::tempdir().unwrap();
        let (path, disk) = (place.path().join("zones"), place.path().join("disk"));
        let (device, _) = open_watching(&env, place.path(), &zones, false);
        device.block.write_at(2 * ZONE, &[2; 8192], &context()).unwrap();
        device.block.write_at(3 * ZONE, &[3; 4096], &context()).unwrap();
        device.block.sync(&context()).unwrap();
        drop(device);
        let (record_before, disk_before) = (std::fs::read(&path).unwrap(), std::fs::read(&disk).unwrap());
        let (device, seen) = open_watching(&env, place.path(), &zones, false);
        device.zones.as_ref().unwrap().reset(ZoneId(2), &context()).unwrap();
        drop(device);
        let record_between = seen.lock().clone();
        assert_ne!(record_between, record_before, "the bytes go before the record says so");
        // The bytes are there, are gone in part, or are gone.
        for gone in [0, 4096, 8192] {
            let mut bytes = disk_before.clone();
            bytes[2 * ZONE as usize..][..gone].fill(0);
            std::fs::write(&path, &record_between).unwrap();
            std::fs::write(&disk, &bytes).unwrap();
            for _ in 0..2 {
                let (device, _) = open_watching(&env, place.path(), &zones, false);
                assert_eq!(states(&device)[1..3], [(ZoneCondition::Empty, 0), (ZoneCondition::Closed, 1)]);
                let mut data = [9; 8192];
                device.block.read_at(2 * ZONE, &mut data, &context()).unwrap();
                assert_eq!(data, [0; 8192], "{gone} bytes were gone");
            }
            let (device, _) = open_watching(&env, place.path(), &zones, false);
            device.block.write_at(2 * ZONE, &[4; 4096], &context()).unwrap();
            drop(device);
            let (device, _) = open_watching(&env, place.path(), &zones, false);
            assert_eq!(states(&device)[1], (ZoneCondition::Closed, 1));
        }
        // Who only reads sees an empty zone, and changes nothing.
        std::fs::write(&path, &record_between).unwrap();
        let rules = Zoned::recorded(ZoneRecord::open_read_only(&path, &zones).unwrap());
        let backing = Box::new(FileBacking::open_read_only(&disk).unwrap());
        let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
        let geometry = rules.cut(&asked);
        let timing = Box::<Immediate>::default();
        let device = rules.device(|rules| Emulated::new(&env, "banded", geometry, rules, timing, backing));
        assert_eq!(states(&device)[1], (ZoneCondition::Empty, 0));
        drop(device);
        assert_eq!(std::fs::read(&path).unwrap(), record_between);
    }
}

#[test]
fn a_reset_that_fails_leaves_a_zone_that_goes_on() {
    let env = Env::real();
    for zones in both_types() {
        let place = tempfile::tempdir().unwrap();
        let (device, _) = open_watching(&env, place.path(), &zones, true);
        device.block.write_at(2 * ZONE, &[2; 8192], &context()).unwrap();
        device.block.sync(&context()).unwrap();
        device.zones.as_ref().unwrap().reset(ZoneId(2), &context()).unwrap_err();
        drop(device);
        let (device, _) = open_watching(&env, place.path(), &zones, true);
        assert_eq!(states(&device)[1], (ZoneCondition::Closed, 2));
        device.zones.as_ref().unwrap().reset(ZoneId(2), &context()).unwrap_err();
        device.block.write_at(2 * ZONE + 8192, &[2; 4096], &context()).unwrap();
        drop(device);
        let (device, _) = open_watching(&env, place.path(), &zones, false);
        assert_eq!(states(&device)[1], (ZoneCondition::Closed, 3));
        let mut data = [9; 12288];
        device.block.read_at(2 * ZONE, &mut data, &context()).unwrap();
        assert_eq!(data, [2; 12288]);
    }
}

/// Those of version 1 become one of version 2 with the first reset.
#[test]
fn a_record_of_the_version_before_goes_on() {
    let env = Env::real();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("zones");
    drop(ZoneRecord::open(&path, &zones(), true).unwrap());
    let old = header(&ZoneTable::new(&zones()).geometry().clone(), &boot_id(), 1);
    File::options().write(true).open(&path).unwrap().write_all_at(&old, 0).unwrap();
    let version = || u32_at(&std::fs::read(&path).unwrap(), 8);
    let device = open(&env, place.path());
    device.block.write_at(2 * ZONE, &[2; 8192], &context()).unwrap();
    device.block.sync(&context()).unwrap();
    assert_eq!(version(), 1);
    device.zones.as_ref().unwrap().reset(ZoneId(2), &context()).unwrap();
    assert_eq!(version(), 2);
    device.block.write_at(2 * ZONE, &[2; 4096], &context()).unwrap();
    drop(device);
    assert_eq!(states(&open(&env, place.path()))[1], (ZoneCondition::Closed, 1));
}

/// After a restart of the machine what was written durably counts, with all of the zone before it.
#[test]
fn a_durable_write_moves_the_write_pointer_for_certain() {
    let env = Env::real();
    for zones in both_types() {
        let place = tempfile::tempdir().unwrap();
        let (device, _) = open_watching(&env, place.path(), &zones, false);
        let write = |offset: u64, durable: bool| {
            let data = [7; 4096];
            let slices = [std::io::IoSlice::new(&data)];
            let request = match durable {
                true => Request::write_durable(offset, &slices),
                false => Request::write(offset, &slices),
            };
            device.block.execute(&mut [request], &context()).unwrap();
        };
        let syncs = || device.block.counters().syncs;
        write(ZONE, true);
        write(ZONE + SECTOR, true);
        assert_eq!(syncs(), 0);
        write(2 * ZONE, false);
        write(2 * ZONE + SECTOR, true);
        assert_eq!(syncs(), 1);
        write(3 * ZONE, false);
        drop(device);
        let other = header(&ZoneTable::new(&zones).geometry().clone(), &[b'0'; 36], VERSION);
        let path = place.path().join("zones");
        File::options().write(true).open(&path).unwrap().write_all_at(&other, 0).unwrap();
        let (device, _) = open_watching(&env, place.path(), &zones, false);
        let found: Vec<u64> = states(&device)[..3].iter().map(|(_, sectors)| *sectors).collect();
        // The sync was of the device, so of the third zone too, if it came behind it.
        assert_eq!(found, [2, 2, 0]);
    }
}
