//! Tuples of whole buffers.

use super::*;
use varve_env::Random;

const TYPES: [ProtectionType; 3] = [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3];
const GUARDS: [GuardKind; 2] = [GuardKind::Crc, GuardKind::IpChecksum];

fn formats() -> impl Iterator<Item = ProtectionFormat> {
    TYPES.into_iter().flat_map(|protection_type| {
        GUARDS.into_iter().flat_map(move |guard| {
            [512, 4096].map(|interval_bytes| ProtectionFormat { protection_type, guard, interval_bytes })
        })
    })
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::seeded(seed).fill_bytes(&mut bytes);
    bytes
}

fn generated(format: &ProtectionFormat, offset_bytes: u64, data: &[u8]) -> Vec<u8> {
    let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
    format.generate(offset_bytes, 0x1234, [data], &mut tuples);
    tuples
}

/// Tuples of a zeroed 512-byte sector and of one that counts up, at sector 2^32 + 5, byte by byte.
#[test]
fn generates_the_bytes_of_the_standard() {
    let format =
        ProtectionFormat { protection_type: ProtectionType::Type1, guard: GuardKind::Crc, interval_bytes: 512 };
    let mut data = vec![0; 1024];
    (0..512).for_each(|at| data[512 + at] = at as u8);
    let at = ((1 << 32) + 5) * 512;
    let [ramp] = [GuardKind::Crc.compute(&data[512..])];
    let [high, low] = [(ramp >> 8) as u8, ramp as u8];
    assert_eq!(generated(&format, at, &data), [0, 0, 0x12, 0x34, 0, 0, 0, 5, high, low, 0x12, 0x34, 0, 0, 0, 6]);
    let of_host = ProtectionFormat { guard: GuardKind::IpChecksum, ..format };
    assert_eq!(generated(&of_host, at, &data)[..8], [0xFF, 0xFF, 0x12, 0x34, 0, 0, 0, 5]);
    let of_application = ProtectionFormat { protection_type: ProtectionType::Type3, ..format };
    assert_eq!(generated(&of_application, at, &data)[..8], [0, 0, 0x12, 0x34, 0, 0, 0, 0]);
}

#[test]
fn verifies_what_it_generates_however_the_data_are_cut() {
    for (seed, format) in formats().enumerate() {
        let mut random = Random::seeded(seed as u64);
        let data = bytes(seed as u64, 6 * format.interval_bytes as usize);
        let whole = generated(&format, 8 * 4096, &data);
        for _ in 0..50 {
            let (mut slices, mut rest) = (Vec::new(), &data[..]);
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(random.index(rest.len().min(5000) + 1));
                slices.push(head);
                rest = tail;
            }
            let mut tuples = vec![0; whole.len()];
            format.generate(8 * 4096, 0x1234, slices.iter().copied(), &mut tuples);
            assert_eq!(tuples, whole, "{format:?}");
            format.verify(8 * 4096, None, slices.iter().copied(), &tuples).unwrap();
            format.verify(8 * 4096, Some(0x1234), slices, &tuples).unwrap();
        }
    }
}

#[test]
fn reports_tag_and_place_of_the_first_mismatch() {
    for format in formats() {
        let interval = format.interval_bytes as usize;
        let data = bytes(1, 4 * interval);
        let tuples = generated(&format, 0, &data);
        let place = 2 * interval as u64;

        let mut damaged = data.clone();
        damaged[2 * interval + 7] ^= 4;
        let mismatch = format.verify(0, None, [&damaged[..]], &tuples).unwrap_err();
        assert_eq!((mismatch.offset_bytes, mismatch.tag), (place, ProtectionTag::Guard), "{format:?}");
        let of_data = format.guard.compute(&damaged[2 * interval..3 * interval]);
        let of_tuple = format.guard.compute(&data[2 * interval..3 * interval]);
        assert_eq!((mismatch.expected, mismatch.found), (of_data.into(), of_tuple.into()));

        let mut guard = tuples.clone();
        guard[17] ^= 1;
        let mismatch = format.verify(0, None, [&data[..]], &guard).unwrap_err();
        assert_eq!((mismatch.offset_bytes, mismatch.tag), (place, ProtectionTag::Guard));

        let moved = format.verify(interval as u64, None, [&data[..]], &tuples);
        match format.protection_type {
            ProtectionType::Type3 => moved.unwrap(),
            _ => {
                let expected = ProtectionMismatch {
                    offset_bytes: interval as u64,
                    tag: ProtectionTag::Reference,
                    expected: 1,
                    found: 0,
                };
                assert_eq!(moved.unwrap_err(), expected);
            }
        }

        let mismatch = format.verify(0, Some(1), [&data[..]], &tuples).unwrap_err();
        let expected =
            ProtectionMismatch { offset_bytes: 0, tag: ProtectionTag::Application, expected: 1, found: 0x1234 };
        assert_eq!(mismatch, expected);
        let error = mismatch.at("disk", Operation::Read).to_string();
        assert!(error.contains("disk: read at offset 0: application tag is 0x1234, expected 0x1"), "{error}");
    }
}

/// Any flipped bit of data is found by both guards, any of a tuple too, except in a tag that nobody checks.
#[test]
fn every_flipped_bit_is_found() {
    for format in formats().filter(|format| format.interval_bytes == 512) {
        let data = bytes(2, 512);
        let tuples = generated(&format, 512, &data);
        for bit in 0..512 * 8 {
            let mut flipped = data.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mismatch = format.verify(512, None, [&flipped[..]], &tuples).unwrap_err();
            assert_eq!(mismatch.tag, ProtectionTag::Guard);
        }
        for bit in 0..64 {
            let mut flipped = tuples.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let checked = match bit / 8 {
                0 | 1 => true,
                2 | 3 => false,
                _ => format.protection_type != ProtectionType::Type3,
            };
            assert_eq!(format.verify(512, None, [&data[..]], &flipped).is_err(), checked, "{format:?}, bit {bit}");
        }
    }
}

#[test]
fn escapes_are_not_checked() {
    for format in formats() {
        let data = bytes(3, 2 * format.interval_bytes as usize);
        let unwritten = [0xFF; 16];
        format.verify(0, Some(7), [&data[..]], &unwritten).unwrap();
        // The second tuple is no escape: its guard is wrong.
        let mut one = generated(&format, 0, &data);
        one[..8].fill(0xFF);
        format.verify(0, None, [&data[..]], &one).unwrap();
        one[8] ^= 1;
        assert!(format.verify(0, None, [&data[..]], &one).is_err());
    }
}

#[test]
fn reference_tags_move_with_data_and_wrong_ones_stay_wrong() {
    for format in formats() {
        let interval = u64::from(format.interval_bytes);
        let data = bytes(4, 4 * interval as usize);
        let (from, to) = (10 * interval, 77 * interval);
        let mut tuples = generated(&format, from, &data);
        tuples[8 + 7] ^= 0x80;
        tuples[16..24].fill(0xFF);
        format.move_reference_tags(from, to, &mut tuples);
        let mismatch = format.verify(to, None, [&data[..]], &tuples);
        if format.protection_type == ProtectionType::Type3 {
            mismatch.unwrap();
            continue;
        }
        let mismatch = mismatch.unwrap_err();
        assert_eq!((mismatch.offset_bytes, mismatch.tag), (to + interval, ProtectionTag::Reference));
        assert_eq!(tuples[16..24], [0xFF; 8]);
        tuples[8..16].copy_from_slice(&generated(&format, to, &data)[8..16]);
        format.verify(to, None, [&data[..]], &tuples).unwrap();
        assert_eq!(tuples[24..], generated(&format, to, &data)[24..]);
    }
}
