use super::format::{HEADER_BYTES, repaired, seal_header};
use super::*;
use crate::MediaErrorKind;
use crate::emulated::timing::translation::cache::Cache;
use crate::emulated::timing::translation::lasting::{Progress, UnderWay};
use crate::emulated::timing::{CleaningOrder, SpaceReclaim};
use crate::zones::{MediaCache, ZoneId, ZoneType};
use std::ops::Range;
use varve_env::Random;

const SECTOR: u64 = 4096;
const ZONE: u64 = 64 * SECTOR;

fn zones() -> ZoneGeometry {
    ZoneGeometry {
        conventional_zones: 1,
        sequential_type: ZoneType::SequentialWritePreferred,
        media_cache: Some(MediaCache { bytes: 1000 * SECTOR, extents_max: 100 }),
        ..ZoneGeometry::fit(8 * ZONE, ZONE).unwrap()
    }
}

fn sectors(first: u64, count: u64) -> Range<u64> {
    first * SECTOR..(first + count) * SECTOR
}

fn appended(zone: u32, first: u64, count: u64) -> Change {
    Change::Appended { zone: ZoneId(zone), range: sectors(u64::from(zone) * 64 + first, count) }
}

fn cleaning(zone: u32, is_blocking: bool) -> Change {
    let start = u64::from(zone) * 64;
    let cleaning = Some(Progress { zone: ZoneId(zone), pointer: (start + 9) * SECTOR, rest: sectors(start + 2, 7) });
    Change::UnderWay(UnderWay { cleaning, is_blocking })
}

/// A record at `path` that follows `changes`.
fn follow(record: &mut MediaCacheRecord, changes: &[Change]) {
    record.journal.lock().extend_from_slice(changes);
    record.follow().unwrap();
}

/// A record whose file was made anew with the first of these changes; the others are entries.
fn made(path: &Path) -> (MediaCacheRecord, Vec<Change>) {
    let mut record = MediaCacheRecord::create(path, &zones(), FileMode::default()).unwrap();
    record.begin(record.lasting.clone());
    follow(&mut record, &[appended(2, 5, 2), appended(3, 0, 1), appended(1, 9, 4), cleaning(2, false)]);
    let entries = vec![
        appended(3, 60, 4),
        Change::Forgotten { range: sectors(64 + 10, 2) },
        Change::Released { zone: ZoneId(2) },
        cleaning(3, true),
    ];
    follow(&mut record, &entries);
    (record, entries)
}

fn bytes_of(lasting: &Lasting) -> Vec<u8> {
    whole(lasting, &zones())
}

fn open(path: &Path) -> Result<MediaCacheRecord, MediaError> {
    MediaCacheRecord::open(path, &zones(), FileMode::default())
}

#[test]
fn what_lasts_is_as_it_was_left() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cache");
    assert!(open(&path).unwrap().lasting.cache.is_empty(), "nothing there is an empty cache");
    assert!(!path.exists(), "and stays so");
    let (record, _) = made(&path);
    assert!(record.was_made());
    let Lasting { cache, under_way } = record.lasting.clone();
    assert_eq!((cache.zone_count(), cache.map().len(), cache.used_bytes()), (2, 4, 9 * SECTOR));
    drop(record);
    for read_only in [false, true] {
        let before = std::fs::read(&path).unwrap();
        let mut found = match read_only {
            true => MediaCacheRecord::open_read_only(&path, &zones()).unwrap(),
            false => open(&path).unwrap(),
        };
        assert_eq!((&found.lasting.cache, &found.lasting.under_way), (&cache, &under_way));
        found.sync().unwrap();
        if read_only {
            follow(&mut found, &[appended(4, 0, 1)]);
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "who only opens it changes nothing");
    }
    assert!(MediaCacheRecord::create(&path, &zones(), FileMode::default()).unwrap().lasting.cache.is_empty());
    assert!(open(&path).unwrap().lasting.cache.is_empty());
}

/// However much lasts, a change costs an entry, and its part of a file made anew.
#[test]
fn a_file_grows_with_what_lasts_and_not_with_what_changed() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cache");
    for seed in [1, 2] {
        let mut random = Random::seeded(seed);
        let mut record = MediaCacheRecord::create(&path, &zones(), FileMode::default()).unwrap();
        record.begin(record.lasting.clone());
        let (mut longest, mut written) = (0, 0);
        for step in 0..12_000 {
            let zone = 1 + random.below(7) as u32;
            let change = match record.lasting.cache.fits(4 * SECTOR, SpaceReclaim::Zone) {
                true if step % 16 > 0 => appended(zone, random.below(60), 1 + random.below(4)),
                true => cleaning(zone, random.chance(1, 2)),
                false => match record.lasting.cache.zones().keys().next() {
                    Some(&zone) => Change::Released { zone },
                    None => unreachable!("an empty cache takes something"),
                },
            };
            let before = std::fs::metadata(&path).unwrap().len();
            follow(&mut record, &[change]);
            let after = std::fs::metadata(&path).unwrap().len();
            longest = longest.max(after);
            written += if after == before + 64 { 64 } else { after };
            if step % 3000 == 7 {
                record.sync().unwrap();
            }
            if step % 997 == 0 {
                let found = open(&path).unwrap();
                assert_eq!(bytes_of(&found.lasting), bytes_of(&record.lasting), "seed {seed} step {step}");
                assert_eq!(found.lasting.cache, record.lasting.cache);
            }
        }
        assert!(longest < 64 * (CHANGES_MIN + 100), "{longest}");
        assert!(written < 2 * 64 * 12_000, "{written} bytes were written");
    }
}

#[test]
fn damage_and_other_drives_are_told() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cache");
    let (mut record, _) = made(&path);
    record.sync().unwrap();
    drop(record);
    let good = std::fs::read(&path).unwrap();
    // Header, zones, extents, zeros, four entries, and the mark behind them.
    assert_eq!(good.len(), HEADER_BYTES + 512 + 5 * ENTRY_BYTES);
    for byte in (0..128).chain((128..good.len() - ENTRY_BYTES).step_by(5)) {
        let mut bytes = good.clone();
        bytes[byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&path).err().unwrap_or_else(|| panic!("byte {byte} went unnoticed"));
        let is_told = matches!(error, MediaError::DamagedCacheRecord { .. });
        assert!(is_told && error.kind() == MediaErrorKind::Damaged, "byte {byte}: {error}");
        assert!(error.to_string().contains("remove this file: no data are in it"), "{error}");
    }
    for length in [0, 100, HEADER_BYTES + 10, HEADER_BYTES + 300] {
        std::fs::write(&path, &good[..length]).unwrap();
        assert_eq!(open(&path).err().unwrap().kind(), MediaErrorKind::Damaged, "{length}");
    }
    std::fs::write(&path, &good).unwrap();
    let other = |change: fn(&mut ZoneGeometry)| {
        let mut zones = zones();
        change(&mut zones);
        MediaCacheRecord::open(&path, &zones, FileMode::default()).err().unwrap().to_string()
    };
    for (error, expected) in [
        (
            other(|zones| zones.media_cache = Some(MediaCache { bytes: 500 * SECTOR, extents_max: 100 })),
            "bytes of the media cache at offset 24: expected 2048000, found 4096000; name the sizes it was made with",
        ),
        (
            other(|zones| zones.media_cache = Some(MediaCache { bytes: 1000 * SECTOR, extents_max: 99 })),
            "most extents of the media cache at offset 32: expected 99, found 100",
        ),
        (other(|zones| zones.zone_count = 7), "number of zones at offset 12: expected 7, found 8"),
        (other(|zones| zones.conventional_zones = 0), "conventional zones at offset 36: expected 0, found 1"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let mut newer = good.clone();
    newer[8] = 3;
    seal_header(&mut newer);
    std::fs::write(&path, &newer).unwrap();
    let error = open(&path).err().unwrap();
    assert_eq!(error.kind(), MediaErrorKind::OtherVersion);
    assert!(error.to_string().contains("version 2 can be read, found version 3"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), newer);
}

/// Changes that nothing says were durable end where the first one is torn.
#[test]
fn what_a_power_cut_tore_is_the_end() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cache");
    let (record, entries) = made(&path);
    drop(record);
    let good = std::fs::read(&path).unwrap();
    let first = good.len() - entries.len() * ENTRY_BYTES;
    for at in (first..good.len()).step_by(3) {
        let mut torn = good.clone();
        torn[at] ^= 0x10;
        for bytes in [&torn[..], &good[..at]] {
            std::fs::write(&path, bytes).unwrap();
            let mut found = open(&path).unwrap();
            let mut expected = read(&mut &good[..first], &zones()).unwrap();
            let whole = (at - first) / ENTRY_BYTES;
            entries[..whole].iter().for_each(|change| expected.apply(change, &zones()));
            assert_eq!(bytes_of(&found.lasting), bytes_of(&expected), "byte {at}");
            if at % 16 == 0 {
                // The next change leaves it behind.
                follow(&mut found, &[appended(5, 0, 1)]);
                assert_eq!(bytes_of(&open(&path).unwrap().lasting), bytes_of(&found.lasting));
            }
        }
    }
}

/// Sound by its checksums, and not what a drive can be in.
#[test]
fn what_cannot_be_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (record, _) = made(&place.path().join("cache"));
    let good = bytes_of(&record.lasting);
    // Zones 1 and 3; extents of sectors 73, 76, 192 and 252.
    let item = |index: usize| HEADER_BYTES + 24 * index;
    let cases: &[(usize, u64, &str)] = &[
        (40, 9 | 4 << 32, "zones in the cache"),
        (40, 2 | 102 << 32, "extents"),
        (48, 1002 * SECTOR, "next byte of the cache"),
        (56, 1, "position of a zone"),
        (item(0), 0, "zone"),
        (item(0), 8, "zone"),
        (item(0), 3, "ascending"),
        (item(0) + 8, 0, "bytes of a zone"),
        (item(1) + 8, 999 * SECTOR, "bytes of a zone"),
        (item(2), 252 * SECTOR, "bytes of an extent"),
        (item(3), 74 * SECTOR - 1, "bytes of an extent"),
        (item(5) + 8, 9 * ZONE, "bytes of an extent"),
        (item(5) + 8, 257 * SECTOR, "zone of an extent"),
        (item(5) + 16, u64::MAX, "place of an extent"),
        (64, 7, "kind"),
        (68, 2, "bytes of the entry"),
        (88, 5 * ZONE, "bytes of the entry"),
    ];
    for &(at, value, expected) in cases {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let Err(Unsound::Flaw(_, what, told, found)) = read(&mut &repaired(&bytes, &zones())[..], &zones()) else {
            panic!("{expected} at {at} was taken");
        };
        assert!(format!("{what} {told}").contains(expected), "{what}: expected {told}, found {found}");
    }
    let entry_cases = [
        (appended(1, 0, 1), 12, 0, "bytes of the entry"),
        (appended(1, 0, 1), 20, 129 * SECTOR, "bytes of the entry"),
        (appended(1, 0, 1), 8, 0, "zone"),
        (Change::Released { zone: ZoneId(5) }, 8, 5, "zone that was released"),
        (Change::Released { zone: ZoneId(1) }, 36, 1, "reserved"),
        (cleaning(1, false), 20, 0, "bytes of the entry"),
    ];
    for (change, at, value, expected) in entry_cases {
        let mut bytes = good.clone();
        bytes.extend_from_slice(&entry(&change, 0));
        let at = good.len() + at;
        bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        let Err(Unsound::Flaw(_, what, ..)) = read(&mut &repaired(&bytes, &zones())[..], &zones()) else {
            panic!("{expected} was taken");
        };
        assert!(what.contains(expected), "{what}");
    }
    // More than the cache has space for, and more extents than a map.
    let full = |change: &dyn Fn(u64) -> Change, count: u32| {
        let mut bytes = good.clone();
        (0..count).for_each(|number| bytes.extend_from_slice(&entry(&change(u64::from(number)), number)));
        read(&mut &bytes[..], &zones()).is_err()
    };
    let same = |_| appended(4, 0, 60);
    assert!(!full(&same, 16) && full(&same, 17));
    let apart = |number: u64| appended(4 + (number / 32) as u32, number % 32 * 2, 1);
    assert!(!full(&apart, 98) && full(&apart, 99));
}

/// The bytes of version 2.
#[test]
fn golden() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("cache");
    let (mut record, _) = made(&path);
    record.sync().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines = bytes.chunks(32).enumerate().filter(|(_, line)| !crate::is_zero(line));
    let found: String = lines.map(|(number, line)| format!("{:4} {}\n", number * 32, hex(line))).collect();
    assert_eq!(found, include_str!("golden.txt"));
    assert_eq!(bytes.len(), 1344);
}

/// Version 1 counts pieces where positions in the log are now. The order of zones is the same, and as much of the cache is in use as
/// zones have in it.
#[test]
fn reads_version_1() {
    let mut bytes = vec![0; 1344];
    for line in include_str!("golden_1.txt").lines() {
        let (at, hex) = line.trim_start().split_once(' ').unwrap();
        for (index, pair) in hex.as_bytes().chunks(2).enumerate() {
            let byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            bytes[at.parse::<usize>().unwrap() + index] = byte;
        }
    }
    let cache = read(&mut &bytes[..], &zones()).unwrap().cache;
    let place = tempfile::tempdir().unwrap();
    let (record, _) = made(&place.path().join("cache"));
    let now = &record.lasting.cache;
    assert_eq!((cache.zone_count(), cache.used_bytes(), cache.map()), (now.zone_count(), now.used_bytes(), now.map()));
    let oldest = |cache: &Cache| cache.next_zone(CleaningOrder::Oldest, &zones(), |_| 0);
    assert_eq!(oldest(&cache), oldest(now));
    assert_eq!(cache.occupied_bytes(SpaceReclaim::LogTail), cache.used_bytes());
}

#[test]
fn anything_is_read_or_refused() {
    let place = tempfile::tempdir().unwrap();
    let (mut record, _) = made(&place.path().join("cache"));
    record.sync().unwrap();
    let good = std::fs::read(place.path().join("cache")).unwrap();
    fuzz(&[]);
    fuzz(&good);
    let mut random = Random::seeded(8);
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.index(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        fuzz(&bytes[..random.index(bytes.len() + 1)]);
        fuzz(&bytes);
    }
}
