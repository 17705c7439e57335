use super::*;
use varve_env::Random;

fn geometry() -> ZoneGeometry {
    ZoneGeometry { conventional_zones: 1, ..ZoneGeometry::fit(8 * 64 * 4096, 64 * 4096).unwrap() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn record(number: u64, logical: u32, from: u32, to: u32) -> Record {
    Record { generation: 7, number, logical: ZoneId(logical), from: ZoneId(from), to: ZoneId(to) }
}

/// The bytes of version 1.
#[test]
fn golden() {
    let map = ZoneMap::new(&geometry(), 1).unwrap();
    let bytes = encode_checkpoint(&geometry(), 0x0102_0304, &map);
    assert_eq!(bytes.len(), 8192);
    assert_eq!(
        hex(&bytes[..48]),
        "56415256454d4150010000000800000000000400000000000403020100000000".to_owned()
            + "0100000005000000"
            + &hex(&crc32c::crc32c(&bytes[4096..4116]).to_le_bytes())
            + &hex(&crc32c::crc32c(&bytes[..44]).to_le_bytes())
    );
    assert_eq!(hex(&bytes[4096..4120]), "000000000100000002000000030000000400000000000000");
    assert_eq!(crc32c::crc32c(&bytes), CHECKPOINT_GOLDEN, "golden: version 1 of the checkpoint");
    let bytes = record(3, 2, 4, 5).encode();
    assert_eq!(
        hex(&bytes[..40]),
        "564152564552454c01000000020000000700000000000000".to_owned() + "0300000000000000" + "0400000005000000"
    );
    assert_eq!(crc32c::crc32c(&bytes), RECORD_GOLDEN, "golden: version 1 of the record");
}

const CHECKPOINT_GOLDEN: u32 = 237_422_958;
const RECORD_GOLDEN: u32 = 2_082_350_922;

#[test]
fn what_is_written_is_read() {
    let mut random = Random::seeded(1);
    let mut map = ZoneMap::new(&geometry(), 2).unwrap();
    for generation in 1..50 {
        let logical = ZoneId(1 + random.below(3) as u32);
        let from = map.zone(logical).unwrap();
        let to = map.spares()[0].zone;
        assert!(map.relocate(logical, from, to));
        let bytes = encode_checkpoint(&geometry(), generation, &map);
        let header = decode_header(&geometry(), &bytes[..SLOT_BYTES]).unwrap().unwrap();
        assert_eq!((header.generation, header.logical_zones), (generation, 4));
        let found = decode_map(&geometry(), &header, &bytes[SLOT_BYTES..]).unwrap().unwrap();
        assert_eq!(found.zones(), map.zones());
        let record = Record { generation, number: 9, logical, from, to };
        assert_eq!(Record::decode(&record.encode()), Ok(Some(record)));
    }
}

/// Whatever byte is another one: nothing is read that was not written.
#[test]
fn flipped_bits_are_found() {
    let map = ZoneMap::new(&geometry(), 2).unwrap();
    let good = encode_checkpoint(&geometry(), 3, &map);
    let header = decode_header(&geometry(), &good[..SLOT_BYTES]).unwrap().unwrap();
    for at in (0..60).chain([4095]).chain(4096..4130).chain([8191]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        match at < SLOT_BYTES {
            true => assert_eq!(decode_header(&geometry(), &bad[..SLOT_BYTES]), Ok(None), "{at}"),
            false => assert_eq!(decode_map(&geometry(), &header, &bad[SLOT_BYTES..]), Ok(None), "{at}"),
        }
    }
    let good = record(1, 2, 2, 4).encode();
    for at in (0..50).chain([4095]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_eq!(Record::decode(&bad), Ok(None), "{at}");
    }
}

fn sealed(mut slot: Vec<u8>, checked: usize) -> Vec<u8> {
    let checksum = crc32c::crc32c(&slot[..checked]);
    slot[checked..checked + 4].copy_from_slice(&checksum.to_le_bytes());
    slot
}

#[test]
fn what_is_sound_and_cannot_be_is_told() {
    let map = ZoneMap::new(&geometry(), 2).unwrap();
    let good = encode_checkpoint(&geometry(), 3, &map)[..SLOT_BYTES].to_vec();
    for (at, value, told) in [
        (12, 9, "zones of the device"),
        (16, 1, "bytes of a zone"),
        (32, 2, "conventional zones"),
        (36, 6, "logical zones"),
        (36, 0, "logical zones"),
        (24, 0, "generation"),
    ] {
        let mut bad = good.clone();
        bad[at] = value;
        match decode_header(&geometry(), &sealed(bad, 44)) {
            Err(Flaw::Damaged(what, ..)) => assert_eq!(what, told),
            other => panic!("{told}: {other:?}"),
        }
    }
    let mut other = good;
    other[8] = 2;
    assert_eq!(decode_header(&geometry(), &sealed(other, 44)), Err(Flaw::OtherVersion(2)));
    let mut other = record(1, 2, 2, 4).encode();
    other[8] = 9;
    assert_eq!(Record::decode(&sealed(other, 40)), Err(Flaw::OtherVersion(9)));
}

/// A torn end is an end; what is sound behind one that is not is damage.
#[test]
fn where_records_end() {
    let apply_to = |slots: &[Vec<u8>]| {
        let mut map = ZoneMap::new(&geometry(), 2).unwrap();
        let result = apply(&mut map, 7, &slots.concat());
        (result, map.zones().iter().map(|zone| zone.0).collect::<Vec<_>>())
    };
    let (one, two) = (record(1, 2, 2, 4).encode(), record(2, 3, 3, 5).encode());
    let (zeros, mut torn) = (vec![0; SLOT_BYTES], record(2, 3, 3, 5).encode());
    torn[..16].fill(0);
    let end = |records, is_clean| Ok(End { records, is_clean });
    assert_eq!(apply_to(&[]), (end(0, true), vec![0, 1, 2, 3]));
    assert_eq!(apply_to(&[one.clone(), two.clone()]), (end(2, true), vec![0, 1, 4, 5]));
    assert_eq!(apply_to(&[one.clone(), zeros.clone()]), (end(1, true), vec![0, 1, 4, 3]));
    assert_eq!(apply_to(&[one.clone(), torn.clone(), zeros.clone()]), (end(1, false), vec![0, 1, 4, 3]));
    assert_eq!(apply_to(&[one.clone(), zeros.clone(), torn.clone()]).0, end(1, false));
    let of_before = Record { generation: 6, ..record(2, 3, 3, 5) }.encode();
    assert_eq!(apply_to(&[one.clone(), of_before.clone()]).0, end(1, false));
    assert_eq!(apply_to(&[one.clone(), zeros.clone(), of_before]).0, end(1, false));
    for damaged in [
        vec![torn.clone(), two.clone()],
        vec![one.clone(), torn, zeros.clone(), record(3, 2, 4, 2).encode()],
        vec![two.clone()],
        vec![one.clone(), one.clone()],
        vec![record(1, 2, 3, 4).encode()],
        vec![record(1, 2, 2, 3).encode()],
        vec![record(1, 0, 0, 4).encode()],
    ] {
        let (result, _) = apply_to(&damaged);
        let is_told = matches!(result, Err((_, Flaw::Damaged(..))));
        assert!(is_told, "{result:?}");
    }
}

/// The fuzz target, on what it begins with and on mutations of it.
#[test]
fn any_bytes_are_decoded_without_a_panic() {
    let map = ZoneMap::new(&ZoneGeometry::fit(8 * 64 * 4096, 64 * 4096).unwrap(), 2).unwrap();
    let plain = ZoneGeometry::fit(8 * 64 * 4096, 64 * 4096).unwrap();
    let mut good = vec![8];
    good.extend(encode_checkpoint(&plain, 7, &map));
    good.extend(record(1, 2, 2, 4).encode());
    fuzz(&good);
    fuzz(&[]);
    fuzz(&[0]);
    let seed = 4;
    let mut random = Random::seeded(seed);
    for _ in 0..300 {
        let mut bad = good.clone();
        for _ in 0..random.below(4) {
            let at = random.index(bad.len());
            bad[at] = random.below(256) as u8;
        }
        bad.truncate(random.index(bad.len() + 1));
        fuzz(&bad);
    }
}
