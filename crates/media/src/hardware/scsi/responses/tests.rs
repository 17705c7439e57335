use super::*;
use varve_env::Random;

/// Bytes of the golden file under this name.
fn golden(name: &str) -> Vec<u8> {
    let lines = include_str!("golden.txt").lines().skip_while(|line| *line != name).skip(1);
    let bytes = lines.take_while(|line| !line.is_empty()).flat_map(|line| line.split(' '));
    let bytes: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    assert!(!bytes.is_empty(), "{name}");
    bytes
}

fn golden_disk() -> Capacity {
    capacity(&golden("READ CAPACITY (16)")).unwrap()
}

#[test]
fn a_host_aware_disk_says_what_it_is() {
    assert_eq!(is_disk_with_pages(&golden("INQUIRY")), Ok(true));
    let pages = golden("INQUIRY page 00h");
    assert_eq!((has_page(&pages, 0xB1), has_page(&pages, 0xB6)), (Ok(true), Ok(false)));
    assert_eq!(zoned_field(&golden("INQUIRY page B1h")), Ok(Zoned::HostAware));
    assert_eq!(golden_disk(), Capacity { block_bytes: 512, capacity_bytes: 256 << 20 });
}

#[test]
fn a_report_of_zones_is_read() {
    let found = zones(&golden("REPORT ZONES"), golden_disk()).unwrap();
    let zone_bytes = 16 << 20;
    assert_eq!(found.len(), 7);
    for (zone, found) in (0..).zip(&found) {
        assert_eq!((found.start_bytes, found.length_bytes), (zone * zone_bytes, zone_bytes));
        assert_eq!(found.capacity_bytes, zone_bytes);
        let expected = if zone < 2 { ZoneType::Conventional } else { ZoneType::SequentialWritePreferred };
        assert_eq!((found.zone_type, found.non_sequential), (expected, zone == 3));
    }
    let conditions: Vec<ZoneCondition> = found.iter().map(|zone| zone.condition).collect();
    use ZoneCondition::{Empty, ImplicitlyOpened, NotWritePointer};
    assert_eq!(conditions[..5], [NotWritePointer, NotWritePointer, ImplicitlyOpened, ImplicitlyOpened, Empty]);
    assert_eq!(found[2].write_pointer_bytes, 2 * zone_bytes + 4096);
    assert_eq!(found[3].write_pointer_bytes, 12390 * 4096);
    // Of zones that were not sent nothing is known, whatever a disk counts.
    let mut longer = golden("REPORT ZONES");
    longer[2] = 0xFF;
    assert_eq!(zones(&longer, golden_disk()).unwrap(), found);
    assert_eq!(zones(&longer[..200], golden_disk()).unwrap(), found[..2]);
    assert_eq!(zones(&longer[..64], golden_disk()), Ok(Vec::new()));
}

#[test]
fn sense_data_of_both_formats_is_read() {
    let found = sense(&golden("Sense of a service action that is not there")).unwrap();
    assert_eq!(found, Sense { key: 5, code: 0x24, qualifier: 0, is_deferred: false });
    assert_eq!(found.to_string(), "illegal request (24h/00h: invalid field in the command)");
    let found = sense(&golden("Sense of a zone behind the end")).unwrap();
    assert_eq!(found.to_string(), "illegal request (21h/00h: logical block address out of range)");
    let descriptor = sense(&[0x73, 0x07, 0x55, 0x0E, 0, 0, 0, 0]).unwrap();
    assert_eq!(descriptor.to_string(), "data protect (55h/0Eh: insufficient zone resources, of an earlier command)");
    // A code behind the length the disk names is none.
    let short = sense(&[0xF0, 0, 6, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0x29, 1]).unwrap();
    assert_eq!(short, Sense { key: 6, code: 0, qualifier: 0, is_deferred: false });
    assert_eq!([sense(&[]), sense(&[0x70, 0]), sense(&[0x7F; 18]), sense(&[0; 18])], [None; 4]);
}

#[test]
fn other_disks_are_not_host_aware() {
    let with = |name, at: usize, value| {
        let mut bytes = golden(name);
        bytes[at] = value;
        bytes
    };
    // Host-managed, a tape, nothing behind the number, an old disk.
    for (at, value) in [(0, 0x14), (0, 0x01), (0, 0x20), (2, 4)] {
        assert_eq!(is_disk_with_pages(&with("INQUIRY", at, value)), Ok(false), "{at} {value}");
    }
    for (value, expected) in [(0, Zoned::NotReported), (0x20, Zoned::DeviceManaged), (0xCF, Zoned::NotReported)] {
        assert_eq!(zoned_field(&with("INQUIRY page B1h", 8, value)), Ok(expected));
    }
    assert_eq!(has_page(&with("INQUIRY page 00h", 3, 3), 0xB1), Ok(false));
}

#[test]
fn nonsense_is_said_where_it_is() {
    let report = |at: usize, bytes: &[u8]| {
        let mut report = golden("REPORT ZONES");
        report[at..at + bytes.len()].copy_from_slice(bytes);
        zones(&report, golden_disk()).unwrap_err().to_string()
    };
    let third = 3 * 64;
    for (at, bytes, expected) in [
        (3, &[0xC1][..], "length of the zone list at byte 0: expected a multiple of 64, found 449"),
        (third, &[5], "zone type at byte 192: expected 1, 2 or 3, found 5"),
        (third + 1, &[0x50], "zone condition at byte 193: expected 0 to 4 or 13 to 15, found 5"),
        (third + 8, &[0; 8], "blocks of a zone at byte 200"),
        (third + 8, &[0xFF; 8], "blocks of a zone at byte 200"),
        (third + 16, &[0x7F; 8], "start of a zone at byte 208"),
        (third + 24, &[0; 8], "write pointer at byte 216: expected 33554432 to 50331648, found 0"),
        (third + 24, &[0xFF; 8], "write pointer at byte 216: expected less than 2^64 bytes"),
    ] {
        let found = report(at, bytes);
        assert!(found.starts_with(expected), "{found}");
    }
    // The pointer of a non-sequential zone means nothing.
    let mut void = golden("REPORT ZONES");
    void[4 * 64 + 24..4 * 64 + 32].fill(0xFF);
    let found = zones(&void, golden_disk()).unwrap();
    assert_eq!(found[3].write_pointer_bytes, found[3].start_bytes);

    let mut sizes = golden("READ CAPACITY (16)");
    sizes[10] = 3;
    assert!(capacity(&sizes).unwrap_err().to_string().contains("found 768"));
    sizes[10] = 2;
    sizes[..8].fill(0xFF);
    assert!(capacity(&sizes).unwrap_err().to_string().starts_with("address of the last block at byte 0"));
    assert!(capacity(&sizes[..11]).unwrap_err().to_string().contains("found the end at 11"));
    let page = golden("INQUIRY page B1h");
    assert!(zoned_field(&page[..8]).is_err() && zoned_field(&page[..3]).is_err());
    assert_eq!(has_page(&page, 0xB1).unwrap_err().to_string(), "page code at byte 1: expected 00h, found B1h");
}

#[test]
fn a_report_has_space_for_what_was_asked_for() {
    assert_eq!([0, 1, 7, 8, 1023, u32::MAX].map(report_bytes), [512, 512, 512, 1024, 65_536, 65_536]);
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut random = Random::seeded(7);
    let seeds = [[golden("READ CAPACITY (16)")[..12].to_vec(), golden("REPORT ZONES")].concat(), Vec::new()];
    for round in 0..4_000 {
        let mut bytes = seeds[round % 2].clone();
        bytes.resize(bytes.len().max(random.below(300) as usize), 0);
        for _ in 0..random.below(6) {
            if let Some(at) = random.below(1 << 16).checked_rem(bytes.len() as u64) {
                bytes[at as usize] = random.below(256) as u8;
            }
        }
        fuzz(&bytes);
    }
}
