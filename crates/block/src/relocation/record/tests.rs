use super::*;
use varve_env::Random;

fn geometry() -> ZoneGeometry {
    ZoneGeometry { conventional_zones: 1, ..ZoneGeometry::fit(8 * 64 * 4096, 64 * 4096).unwrap() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of version 2.
#[test]
fn golden() {
    let map = ZoneMap::new(&geometry(), 1).unwrap();
    assert_eq!(
        hex(&encode_checkpoint(&geometry(), &map)),
        "0200000008000000000004000000000001000000050000000000000001000000020000000300000004000000"
    );
    let moved = Move { logical: ZoneId(2), from: ZoneId(4), to: ZoneId(0x0102_0304) };
    assert_eq!(hex(&moved.encode()), "020000000400000004030201");
}

#[test]
fn reads_what_it_writes() {
    let mut random = Random::seeded(1);
    let mut map = ZoneMap::new(&geometry(), 2).unwrap();
    for _ in 1..50 {
        let mut found = decode_checkpoint(&geometry(), &encode_checkpoint(&geometry(), &map)).unwrap();
        assert_eq!(found.zones(), map.zones());
        let logical = ZoneId(1 + random.below(3) as u32);
        let moved = Move { logical, from: map.zone(logical).unwrap(), to: map.spares()[0].zone };
        assert!(map.relocate(moved.logical, moved.from, moved.to));
        Move::apply(&moved.encode(), &mut found).unwrap();
        assert_eq!(found.zones(), map.zones());
    }
}

#[test]
fn refuses_other_devices_versions_and_moves() {
    let mut map = ZoneMap::new(&geometry(), 1).unwrap();
    let bytes = encode_checkpoint(&geometry(), &map);
    let with = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] = value;
        decode_checkpoint(&geometry(), &changed).unwrap_err()
    };
    assert_eq!(with(0, 3), Flaw::OtherVersion(3));
    for (at, what) in
        [(4, "zones of the device"), (9, "bytes of a zone"), (16, "conventional"), (20, "logical"), (23, "logical")]
    {
        assert!(matches!(with(at, 99), Flaw::Damaged { what: found, .. } if found.contains(what)), "{at}");
    }
    assert!(matches!(with(28, 0), Flaw::Damaged { what: "map of zones", .. }));
    assert!(decode_checkpoint(&geometry(), &bytes[..bytes.len() - 1]).is_err());
    assert!(decode_checkpoint(&geometry(), &[]).is_err());
    let before = map.clone();
    for bad in [vec![], vec![1; 13], Move { logical: ZoneId(2), from: ZoneId(3), to: ZoneId(5) }.encode()] {
        assert!(Move::apply(&bad, &mut map).is_err());
        assert_eq!(map, before);
    }
}

#[test]
fn knows_checkpoints_of_version_1() {
    let mut slot = vec![0; 4096];
    slot[..8].copy_from_slice(MAGIC_OF_VERSION_1);
    slot[8] = 1;
    let checksum = crc32c::crc32c(&slot[..44]);
    slot[44..48].copy_from_slice(&checksum.to_le_bytes());
    assert!(is_of_version_1(&slot));
    slot[9] ^= 1;
    assert!(!is_of_version_1(&slot) && !is_of_version_1(&[]) && !is_of_version_1(MAGIC_OF_VERSION_1));
}

#[test]
fn any_bytes_are_refused_or_fit() {
    let mut random = Random::seeded(7);
    for length in (0..3000).step_by(7) {
        let mut bytes = vec![0; length];
        random.fill_bytes(&mut bytes);
        fuzz(&bytes);
    }
}
