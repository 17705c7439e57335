use super::*;
use varve_env::{Env, Random};
use varve_media::conformance::devices::TRANSLATED_ZONES;
use varve_media::{
    Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, Geometry, Operation,
};

const OWNER: Owner = Owner { layer: *b"TEST", identity: *b"0123456789abcdef" };
const UNIT: u64 = 4096;
const ZONE: u64 = 64 << 10;

/// Where the journal of a test lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    Region,
    Zones,
}

fn device(env: &Env, on: On) -> Device {
    let geometry = Geometry { capacity_bytes: 8 * ZONE, sector_bytes: 512, physical_sector_bytes: 4096 };
    match on {
        On::Region => Device::of_blocks(Arc::new(Emulated::immediate(env, "disk", 8 * ZONE))),
        On::Zones => (TRANSLATED_ZONES.make)(env, "disk", &geometry),
    }
}

fn areas(device: &Device, area_bytes: u64) -> Areas {
    let zones = device.zones.as_ref().map(|control| {
        let reported = control.report(ZoneId(2), 2, &context()).unwrap();
        let written = |zone: usize| reported[zone].write_pointer_bytes - reported[zone].start_bytes;
        AreaZones {
            control: Arc::clone(control),
            zones: [ZoneId(2), ZoneId(3)],
            written_bytes: [0, 1].map(|zone| if reported[zone].non_sequential { area_bytes } else { written(zone) }),
            pointers: [0, 1].map(|zone| (!reported[zone].non_sequential).then(|| written(zone))),
        }
    });
    Areas {
        device: device.clone(),
        order: SyncOrder::alone(device.block.clone()),
        unit_bytes: UNIT,
        offsets: [2 * ZONE, 3 * ZONE],
        area_bytes,
        zones,
    }
}

fn context() -> IoContext {
    IoContext::default()
}

/// A state: the payloads since the checkpoint, which has all of the earlier ones in one.
type State = Vec<Vec<u8>>;

fn open(device: &Device, area_bytes: u64) -> Result<Option<(Journal, State)>, JournalError> {
    let mut state = State::new();
    let journal = Journal::open(areas(device, area_bytes), OWNER, &context(), &mut |replayed| {
        assert_eq!(replayed.is_checkpoint, state.is_empty());
        state.push(replayed.payload.to_vec());
        Ok(())
    })?;
    Ok(journal.map(|journal| (journal, state)))
}

/// A journal of records with payloads of these lengths, the first of each list a checkpoint.
fn made(device: &Device, generations: &[&[usize]]) -> (Journal, State) {
    let mut journal = Journal::blank(areas(device, ZONE), OWNER);
    let mut state = State::new();
    for (generation, lengths) in generations.iter().enumerate() {
        for (place, &length) in lengths.iter().enumerate() {
            let payload = vec![(1 + 16 * generation + place) as u8; length];
            match place {
                0 => {
                    state.clear();
                    journal.begin(&payload, &context()).unwrap();
                }
                _ => journal.append(&payload, &context()).unwrap(),
            }
            state.push(payload);
        }
    }
    (journal, state)
}

/// Changes bytes of the device where they are, out of order where it has zones.
fn change(device: &Device, at: u64, change: impl FnOnce(&mut [u8])) {
    let mut unit = vec![0; UNIT as usize];
    let start = at / UNIT * UNIT;
    device.block.read_at(start, &mut unit, &context()).unwrap();
    change(&mut unit);
    device.block.write_at(start, &unit, &context()).unwrap();
}

fn flip(device: &Device, at: u64) {
    change(device, at, |unit| unit[(at % UNIT) as usize] ^= 4);
}

/// A device of which these ranges cannot be read.
fn with_unreadable(env: &Env, device: &Device, ranges: &[std::ops::Range<u64>]) -> Device {
    let fault = |range: &std::ops::Range<u64>| {
        let effect = FaultEffect::Fail(FaultError::Unreadable);
        Fault::new(Operation::Read, FaultTrigger::From(0), effect).on_range(range.clone())
    };
    let faults = ranges.iter().map(fault).collect();
    FaultDevice::device(&FaultInjector::new(env, FaultPlan { seed: 0, faults }), device)
}

#[test]
fn finds_its_records_again_over_many_generations() {
    for on in [On::Region, On::Zones] {
        let env = Env::real();
        let device = device(&env, on);
        let mut random = Random::seeded(7);
        let mut journal = Journal::blank(areas(&device, ZONE), OWNER);
        let mut state = State::new();
        for round in 0..200u32 {
            let payload: Vec<u8> = (0..random.below(6000)).map(|at| (at as u32 ^ round) as u8).collect();
            match journal.is_prepared(payload.len() as u64) {
                true => journal.append(&payload, &context()).unwrap(),
                false => {
                    state.clear();
                    journal.begin(&payload, &context()).unwrap();
                }
            }
            state.push(payload);
            if random.chance(1, 4) {
                journal.seal(&context()).unwrap();
            }
            let (again, found) = open(&device, ZONE).unwrap().unwrap();
            assert!(found == state, "{on:?}, round {round}");
            assert_eq!((again.position(), again.next_bytes), (journal.position(), journal.next_bytes));
            assert_eq!((again.is_sealed, again.needs_checkpoint), (journal.is_sealed, false), "{on:?}, round {round}");
            if random.chance(1, 3) {
                journal = again;
            }
        }
        assert!(journal.position().0 > 20);
    }
}

/// Whatever single byte changes, whichever single sector cannot be read: every record is there, sealed or not.
#[test]
fn one_damaged_place_costs_no_record() {
    let mut places = 0;
    for on in [On::Region, On::Zones] {
        for generations in [&[&[700usize, 12, 12][..]][..], &[&[5000, 12, 4500]], &[&[12, 12], &[9000, 12]], &[&[40]]] {
            for is_sealed in [false, true] {
                let env = Env::real();
                let device = device(&env, on);
                let (mut journal, state) = made(&device, generations);
                if is_sealed {
                    journal.seal(&context()).unwrap();
                }
                let start = journal.areas.offsets[journal.area()];
                let range = start..start + journal.next_bytes;
                let case = format!("{on:?}, {generations:?}, sealed: {is_sealed}");
                let same = |found: Result<Option<(Journal, State)>, JournalError>, at: u64| {
                    let (_, found) = found
                        .unwrap_or_else(|error| panic!("{case}: byte {at}: {error:?}"))
                        .unwrap_or_else(|| panic!("{case}: byte {at}: no journal"));
                    assert!(found == state, "{case}: byte {at}");
                };
                for unit in range.clone().step_by(UNIT as usize) {
                    let headers = (0..80).chain(80..UNIT).filter(|at| *at < 80 || at % 97 == 0);
                    for at in headers.map(|at| unit + at) {
                        places += 1;
                        flip(&device, at);
                        same(open(&device, ZONE), at);
                        flip(&device, at);
                    }
                }
                for unit in (start..start + ZONE).step_by(UNIT as usize) {
                    let unreadable = with_unreadable(&env, &device, std::slice::from_ref(&(unit..unit + UNIT)));
                    same(open(&unreadable, ZONE), unit);
                }
            }
        }
    }
    println!("reached: block journal/damage: {places} places");
}

/// After damage to a copy the next record begins a generation, in which both copies are sound.
#[test]
fn heals_damage_with_the_next_record() {
    for on in [On::Region, On::Zones] {
        let env = Env::real();
        let device = device(&env, on);
        let (journal, state) = made(&device, &[&[100, 12, 12]]);
        let start = journal.areas.offsets[journal.area()];
        flip(&device, start + 2 * UNIT + 70);
        let (mut journal, found) = open(&device, ZONE).unwrap().unwrap();
        assert!(found == state && !journal.has_room(12));
        journal.begin(&[9; 50], &context()).unwrap();
        assert!(journal.has_room(12));
        let (again, found) = open(&device, ZONE).unwrap().unwrap();
        assert_eq!((found, again.position()), (vec![vec![9; 50]], (2, 1)));
    }
}

/// Damage to both copies is damage, unless nothing says that the record was whole: the last, not sealed.
#[test]
fn damage_to_both_copies_is_an_error_where_anything_follows() {
    for on in [On::Region, On::Zones] {
        for (broken, is_sealed, expected) in
            [(0, false, None), (1, false, None), (2, false, Some(2)), (0, true, None), (1, true, None), (2, true, None)]
        {
            let env = Env::real();
            let device = device(&env, on);
            let (mut journal, _) = made(&device, &[&[100, 12, 12]]);
            if is_sealed {
                journal.seal(&context()).unwrap();
            }
            let first = journal.areas.offsets[journal.area()] + broken * 2 * UNIT;
            for at in [3, 33, 70] {
                flip(&device, first + at);
                flip(&device, first + UNIT + at);
                let found = open(&device, ZONE);
                let case = format!("{on:?}: record {broken}, sealed: {is_sealed}, byte {at}");
                match (expected, found) {
                    (Some(records), Ok(Some((_, found)))) => assert_eq!(found.len(), records, "{case}"),
                    (None, Err(JournalError::Damaged(flaw))) => {
                        assert!(flaw.expected.contains(&format!("record {broken}")), "{case}: {flaw:?}");
                    }
                    (_, found) => panic!("{case}: {:?}", found.map(|found| found.map(|(_, state)| state.len()))),
                }
                flip(&device, first + at);
                flip(&device, first + UNIT + at);
            }
        }
    }
}

#[test]
fn two_bad_places_that_may_hide_a_record_are_an_error() {
    for on in [On::Region, On::Zones] {
        let env = Env::real();
        let device = device(&env, on);
        let (mut journal, state) = made(&device, &[&[100, 12, 12]]);
        let last = journal.areas.offsets[journal.area()] + 4 * UNIT;
        let units = [last..last + UNIT, last + UNIT..last + 2 * UNIT];
        let is_refused = |device: &Device| matches!(open(device, ZONE), Err(JournalError::Media(MediaError::Unreadable { offset_bytes, .. })) if offset_bytes == last);
        assert!(is_refused(&with_unreadable(&env, &device, &units)), "{on:?}");
        for number in [0usize, 1] {
            flip(&device, units[number].start + 70);
            assert!(is_refused(&with_unreadable(&env, &device, &[units[1 - number].clone()])), "{on:?}");
            flip(&device, units[number].start + 70);
        }
        // A checkpoint of which nothing can be read, nor of the other area.
        let all = 2 * ZONE..4 * ZONE;
        let error = open(&with_unreadable(&env, &device, std::slice::from_ref(&all)), ZONE).err().unwrap();
        assert!(matches!(error, JournalError::Media(MediaError::Unreadable { .. })), "{error:?}");
        // Behind a seal nothing was recorded.
        if on == On::Region {
            journal.seal(&context()).unwrap();
            let behind = last + 4 * UNIT..last + 6 * UNIT;
            assert!(
                open(&with_unreadable(&env, &device, std::slice::from_ref(&behind)), ZONE).unwrap().unwrap().1 == state
            );
        }
    }
}

/// Sectors of 512 of a record arrive or do not, in physical sectors of 4,096 too: a record counts if a copy is whole.
#[test]
fn a_torn_record_leaves_those_before_it() {
    let mut torn = 0;
    for on in [On::Region, On::Zones] {
        for seed in 0..60 {
            for (is_checkpoint, length) in [(true, 12), (true, 4500), (false, 12), (false, 4500)] {
                let env = Env::real();
                let device = device(&env, on);
                let (_, state) = made(&device, &[&[100, 12], &[80, 12]]);
                let effect = FaultEffect::FailPartly(FaultError::Io);
                let fault = Fault::new(Operation::Write, FaultTrigger::From(0), effect);
                let plan = FaultPlan { seed, faults: vec![fault] };
                let faulty = FaultDevice::device(&FaultInjector::new(&env, plan), &device);
                let (mut journal, _) = open(&faulty, ZONE).unwrap().unwrap();
                let payload = vec![7; length];
                match is_checkpoint {
                    true => assert!(journal.begin(&payload, &context()).is_err()),
                    false => assert!(journal.append(&payload, &context()).is_err()),
                }
                let case = format!("{on:?}, seed {seed}, checkpoint: {is_checkpoint}, {length} bytes");
                let found = open(&device, ZONE).unwrap_or_else(|error| panic!("{case}: {error:?}"));
                let (mut again, found) = found.unwrap_or_else(|| panic!("{case}: no journal"));
                let whole = if is_checkpoint { vec![payload.clone()] } else { [&state[..], &[payload]].concat() };
                assert!(found == state || found == whole, "{case}");
                torn += u64::from(found == state);
                // It goes on.
                let next = match again.is_prepared(12) {
                    true => again.append(&[8; 12], &context()).map(|()| [&found[..], &[vec![8; 12]]].concat()),
                    false => {
                        again.begin(&[8; 12], &context()).map(|()| vec![vec![8; 12]]).map_err(BeginError::into_inner)
                    }
                };
                let next = next.unwrap_or_else(|error| panic!("{case}: {error}"));
                assert!(open(&device, ZONE).unwrap().unwrap().1 == next, "{case}");
            }
        }
    }
    println!("reached: block journal/torn: {torn} records");
    assert!(torn > 100, "{torn}");
}

#[test]
fn refuses_other_versions_and_knows_absence() {
    for on in [On::Region, On::Zones] {
        let env = Env::real();
        let device = device(&env, on);
        assert!(matches!(open(&device, ZONE), Ok(None)));
        let (journal, _) = made(&device, &[&[100]]);
        let start = journal.areas.offsets[journal.area()];
        for copy in [start, start + UNIT] {
            change(&device, copy, |unit| {
                unit[8] = 2;
                let checksum = crc32c::crc32c(&unit[..60]);
                unit[60..64].copy_from_slice(&checksum.to_le_bytes());
            });
        }
        assert!(matches!(open(&device, ZONE), Err(JournalError::OtherVersion { readable: 1, found: 2 })));
        // The only checkpoint, both copies: damage, not absence.
        for copy in [start, start + UNIT] {
            change(&device, copy, |unit| unit[9] ^= 1);
        }
        assert!(matches!(open(&device, ZONE), Err(JournalError::Damaged(_))));
        // Of another owner it is none.
        let (_, _) = made(&device, &[&[100]]);
        let other = Owner { layer: *b"TEST", identity: [7; 16] };
        let found = Journal::open(areas(&device, ZONE), other, &context(), &mut |_| Ok(()));
        assert!(matches!(found, Ok(None)));
    }
}

#[test]
fn there_is_always_room_for_a_seal() {
    for on in [On::Region, On::Zones] {
        let env = Env::real();
        let device = device(&env, on);
        let (mut journal, _) = made(&device, &[&[100]]);
        while journal.has_room(12) {
            journal.append(&[1; 12], &context()).unwrap();
        }
        let before = journal.next_bytes;
        journal.seal(&context()).unwrap();
        assert!(journal.is_sealed && journal.next_bytes > before && journal.next_bytes <= ZONE);
        journal.seal(&context()).unwrap();
        assert_eq!(journal.next_bytes, before + 2 * UNIT, "a seal behind a seal");
    }
}

/// The bytes of version 1.
#[test]
fn golden() {
    let header = Header { role: Role::Change, generation: 0x0102, place: 3 };
    let bytes = record::encode(&OWNER, header, b"payload", 512);
    assert_eq!(bytes.len(), 1024);
    assert!(bytes[..512] == bytes[512..]);
    assert_eq!(&bytes[..32], b"VARVEJNL\x01\0\0\0TEST0123456789abcdef");
    assert_eq!(bytes[32..52], [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(bytes[52..56], crc32c::crc32c(b"payload").to_le_bytes());
    assert_eq!(bytes[60..64], crc32c::crc32c(&bytes[..60]).to_le_bytes());
    assert_eq!(&bytes[64..72], b"payload\0");
}

#[test]
fn any_bytes_are_taken() {
    let mut random = Random::seeded(3);
    for length in (0..9000).step_by(61) {
        let mut bytes = vec![0; length];
        random.fill_bytes(&mut bytes);
        fuzz(&OWNER, &bytes);
    }
}
