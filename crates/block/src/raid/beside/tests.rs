use super::*;
use varve_env::Random;
use varve_media::{
    BlockDeviceExt, Emulated, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger,
};

const SECTOR: u64 = 512;

fn layout(data_offset: u64, member_bytes: u64) -> TupleLayout {
    TupleLayout { data_offset, interval_bytes: SECTOR, member_bytes }
}

#[test]
fn places_lie_behind_their_blocks_and_nothing_overlaps() {
    for (data_offset, interval_bytes, member_bytes) in [
        (16 << 10, 512, 1 << 20),
        (128 << 10, 512, (128 << 10) + 260 * 1024),
        (128 << 10, 512, (128 << 10) + 260 * 1024 + 4096),
        (128 << 10, 512, (128 << 10) + 260 * 1024 + 8192),
        (64 << 10, 4096, 20 << 20),
    ] {
        let layout = TupleLayout { data_offset, interval_bytes, member_bytes };
        let usable = layout.usable_bytes();
        assert!(usable > data_offset && usable <= member_bytes - BLOCK_BYTES);
        let mut used = BTreeMap::new();
        let mut take = |start: u64, end: u64| {
            assert!(end <= member_bytes, "{layout:?}: {start}..{end}");
            let before = used.range(..end).next_back().map_or(0, |(_, end)| *end);
            assert!(before <= start, "{layout:?}: {start}..{end} overlaps");
            used.insert(start, end);
        };
        let mut at = 0;
        while at < usable {
            let (start, length) = (layout.data_at(at), interval_bytes.min(usable - at));
            take(start, start + length);
            at += length;
        }
        (0..=layout.group_of(usable - interval_bytes)).for_each(|group| {
            let block = layout.block_at(group);
            take(block, block + BLOCK_BYTES);
        });
        // Not a sector more fits.
        assert!(member_bytes - used.values().max().unwrap() < BLOCK_BYTES.max(interval_bytes) + BLOCK_BYTES);
        let whole = layout.parts(0..usable);
        assert_eq!(whole.iter().sum::<u64>(), usable);
        assert_eq!(whole[0], data_offset);
    }
    assert_eq!(layout(16 << 10, 1024).usable_bytes(), 1024, "a member that is too small");
}

struct Model {
    data: Vec<u8>,
    /// As written; `None` where the tuple of the data is meant.
    applications: Vec<u16>,
}

fn tuples_for(format: &ProtectionFormat, place: u64, data: &[u8], applications: &[u16]) -> Vec<u8> {
    let mut tuples = vec![0; format.tuples_bytes(data.len() as u64) as usize];
    format.generate(place, 0, [data], &mut tuples);
    for (bytes, application) in tuples.as_chunks_mut::<8>().0.iter_mut().zip(applications) {
        *bytes = ProtectionTuple { application: *application, ..ProtectionTuple::decode(*bytes) }.encode();
    }
    tuples
}

#[test]
fn data_and_tuples_are_those_that_were_written() {
    for seed in 0..12 {
        let env = Env::sim(seed);
        let layout = layout(64 << 10, (64 << 10) + 700 * 1024);
        let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
        let mut device = TuplesBeside::device(&env, &bare, layout);
        let format = device.block.capabilities().protection.unwrap();
        let (usable, first) = (layout.usable_bytes(), layout.data_offset);
        let mut model =
            Model { data: vec![0; usable as usize], applications: vec![0; ((usable - first) / SECTOR) as usize] };
        let mut random = Random::named(seed, "tuples beside data");
        let context = IoContext::default();
        for step in 0..300 {
            let sectors = (usable - first) / SECTOR;
            let most = if random.chance(1, 5) { 1200 } else { 20 };
            let count = 1 + random.below(most).min(sectors - 1);
            let at = random.below(sectors - count + 1);
            let range = at as usize..(at + count) as usize;
            let (start, length) = (first + at * SECTOR, (count * SECTOR) as usize);
            let bytes = start as usize..start as usize + length;
            let what = format!("seed {seed}, step {step}, {count} sectors at {at}");
            match random.below(6) {
                0 => {
                    device.block.discard_at(start, length as u64, &context).unwrap();
                    model.data[bytes].fill(0);
                    model.applications[range].fill(0);
                }
                1 => {
                    random.fill_bytes(&mut model.data[bytes.clone()]);
                    model.applications[range].fill(0);
                    device.block.write_at(start, &model.data[bytes], &context).unwrap();
                }
                2 | 3 => {
                    random.fill_bytes(&mut model.data[bytes.clone()]);
                    let own = random.below(1000) as u16;
                    model.applications[range.clone()].fill(own);
                    let tuples = tuples_for(&format, start, &model.data[bytes.clone()], &model.applications[range]);
                    device.block.write_protected_at(start, &model.data[bytes], &tuples, &context).unwrap();
                }
                4 => {
                    let (mut data, mut tuples) = (vec![0; length], vec![0; length / 64]);
                    device.block.read_protected_at(start, &mut data, &mut tuples, &context).unwrap();
                    assert!(data == model.data[bytes], "{what}: other data");
                    assert!(
                        tuples == tuples_for(&format, start, &data, &model.applications[range]),
                        "{what}: other tuples"
                    );
                }
                _ => {
                    // Without the cache.
                    device = TuplesBeside::device(&env, &bare, layout);
                    let mut data = vec![0; length];
                    device.block.read_at(start, &mut data, &context).unwrap();
                    assert!(data == model.data[bytes], "{what}: other data");
                }
            }
        }
        // Nothing changes before the data offset.
        device.block.write_at(4096, &[7; 512], &context).unwrap();
        let mut found = [0; 512];
        bare.block.read_at(4096, &mut found, &context).unwrap();
        assert_eq!(found, [7; 512]);
    }
}

#[test]
fn several_threads_see_data_with_their_tuples() {
    let layout = layout(64 << 10, (64 << 10) + 300 * 1024);
    for seed in 0..20 {
        let env = Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..varve_env::SimOptions::default() });
        let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
        let device = TuplesBeside::device(&env, &bare, layout);
        let actors: Vec<_> = (0..4_u64)
            .map(|actor| {
                let (device, env) = (device.clone(), env.clone());
                let own = env.clone();
                env.spawn("user", move || {
                    let mut random = own.random(&format!("user {actor}"));
                    for _ in 0..40 {
                        let at = layout.data_offset + random.below(16) * SECTOR;
                        let mut data = vec![random.below(256) as u8; 4096];
                        // A read verifies.
                        match random.chance(1, 2) {
                            true => device.block.write_at(at, &data, &IoContext::default()).unwrap(),
                            false => device.block.read_at(at, &mut data, &IoContext::default()).unwrap(),
                        }
                    }
                })
            })
            .collect();
        actors.into_iter().for_each(|actor| actor.join().unwrap_or_else(|panicked| panicked.resume()));
    }
}

#[test]
fn damage_of_data_and_of_tuples_is_found() {
    let env = Env::real();
    let layout = layout(64 << 10, (64 << 10) + 600 * 1024);
    let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
    let context = IoContext::default();
    let written: Vec<u8> = (0..400 * 1024_u32).map(|byte| (byte % 251) as u8).collect();
    TuplesBeside::device(&env, &bare, layout).block.write_at(layout.data_offset, &written, &context).unwrap();
    let mut random = Random::named(1, "damage");
    let mut found = [0, 0];
    for _ in 0..200 {
        // A byte of an interval that was written, or of its tuple.
        let place = layout.data_offset + random.below(800) * SECTOR;
        let is_tuple = random.chance(1, 2);
        let at = match is_tuple {
            false => layout.data_at(place) + random.below(SECTOR),
            true => {
                let tuples = layout.tuples_of(&(place..place + SECTOR));
                let at = tuples.start as u64 + random.below(8);
                // Without an application nobody checks its tag.
                let at = if (2..4).contains(&(at % 8)) { at - 2 } else { at };
                layout.block_at(layout.group_of(place)) + at
            }
        };
        let (sector, byte) = (at / SECTOR * SECTOR, (at % SECTOR) as usize);
        let mut bytes = [0; SECTOR as usize];
        bare.block.read_at(sector, &mut bytes, &context).unwrap();
        bytes[byte] ^= 1 << random.below(8);
        bare.block.write_at(sector, &bytes, &context).unwrap();
        let device = TuplesBeside::device(&env, &bare, layout);
        let mut data = vec![0; SECTOR as usize];
        let error = device.block.read_at(place, &mut data, &context).expect_err("damage");
        assert!(matches!(error, MediaError::Protection { offset_bytes, .. } if offset_bytes == place), "{error}");
        // Others are not affected, and writing again repairs it.
        let other = layout.data_offset + (place - layout.data_offset + SECTOR) % (800 * SECTOR);
        device.block.read_at(other, &mut data, &context).unwrap();
        let start = (place - layout.data_offset) as usize;
        device.block.write_at(place, &written[start..start + SECTOR as usize], &context).unwrap();
        TuplesBeside::device(&env, &bare, layout).block.read_at(place, &mut data, &context).unwrap();
        found[usize::from(is_tuple)] += 1;
    }
    assert!(found[0] > 50 && found[1] > 50, "{found:?}");
}

/// Data that are moved with their tuples fit each other, and not the place.
#[test]
fn a_misdirected_write_is_found() {
    let env = Env::real();
    let layout = layout(64 << 10, (64 << 10) + 600 * 1024);
    let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
    let device = TuplesBeside::device(&env, &bare, layout);
    let context = IoContext::default();
    device.block.write_at(layout.data_offset, &vec![5; 512 << 10], &context).unwrap();
    let length = (BLOCK_BYTES + layout.group_bytes()) as usize;
    let mut group = vec![0; length];
    bare.block.read_at(layout.block_at(0), &mut group, &context).unwrap();
    bare.block.write_at(layout.block_at(1), &group, &context).unwrap();
    let device = TuplesBeside::device(&env, &bare, layout);
    let mut data = vec![0; 4096];
    let error = device.block.read_at(layout.first_place(1), &mut data, &context).expect_err("another place");
    assert!(matches!(error, MediaError::Protection { tag: varve_media::ProtectionTag::Reference, .. }), "{error}");
}

#[test]
fn a_block_that_cannot_be_read_costs_its_group_only_and_writing_goes_on() {
    let env = Env::real();
    let layout = layout(64 << 10, (64 << 10) + 600 * 1024);
    let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
    let context = IoContext::default();
    let written = vec![9; 512 << 10];
    TuplesBeside::device(&env, &bare, layout).block.write_at(layout.data_offset, &written, &context).unwrap();
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let faulty = FaultDevice::device(&injector, &bare);
    let block = layout.block_at(0);
    let fault = Fault::new(Operation::Read, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Unreadable));
    let device = TuplesBeside::device(&env, &faulty, layout);
    injector.set_plan(FaultPlan::of(Fault { range: Some(block..block + BLOCK_BYTES), ..fault }));
    let mut data = vec![0; 512 << 10];
    let error = device.block.read_at(layout.data_offset, &mut data[..8192], &context).expect_err("an unreadable block");
    assert_eq!(error.kind(), MediaErrorKind::Unreadable);
    device.block.read_at(layout.first_place(1), &mut data[..8192], &context).unwrap();
    device.block.write_at(layout.data_offset + 4096, &written[..4096], &context).unwrap();
    injector.set_plan(FaultPlan::default());
    let device = TuplesBeside::device(&env, &bare, layout);
    device.block.read_at(layout.data_offset + 4096, &mut data[..4096], &context).unwrap();
    let error =
        device.block.read_at(layout.data_offset, &mut data[..4096], &context).expect_err("tuples that are lost");
    assert_eq!(error.kind(), MediaErrorKind::Protection);
}

#[test]
fn large_transfers_are_few_requests_and_small_ones_read_their_tuples_once() {
    let env = Env::real();
    let layout = layout(64 << 10, (64 << 10) + (4 << 20));
    let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
    let device = TuplesBeside::device(&env, &bare, layout);
    let context = IoContext::default();
    let mut data = vec![1; 2 << 20];
    let counted = |work: &mut dyn FnMut()| {
        let before = bare.block.counters();
        work();
        let after = bare.block.counters();
        (after.reads - before.reads, after.writes - before.writes)
    };
    let at = layout.data_offset;
    assert_eq!(counted(&mut || device.block.write_at(at, &data, &context).unwrap()), (0, 1));
    let device = TuplesBeside::device(&env, &bare, layout);
    assert_eq!(counted(&mut || device.block.read_at(at, &mut data, &context).unwrap()), (1, 0));
    assert_eq!(counted(&mut || device.block.read_at(at + 8192, &mut data[..4096], &context).unwrap()), (1, 0));
    let device = TuplesBeside::device(&env, &bare, layout);
    assert_eq!(counted(&mut || device.block.read_at(at + 8192, &mut data[..4096], &context).unwrap()), (2, 0));
    assert_eq!(counted(&mut || device.block.write_at(at + 8192, &data[..4096], &context).unwrap()), (0, 2));
}

#[test]
fn bytes_are_those_of_the_golden_file() {
    let env = Env::real();
    let layout = layout(64 << 10, (64 << 10) + 300 * 1024);
    let bare = Device::of_blocks(Arc::new(Emulated::immediate(&env, "m", layout.member_bytes)));
    let data: Vec<u8> = (0..4 * SECTOR).map(|byte| (byte * byte / 7) as u8).collect();
    let device = TuplesBeside::device(&env, &bare, layout);
    device.block.write_at(layout.data_offset + SECTOR, &data, &IoContext::default()).unwrap();
    let mut block = vec![0; BLOCK_BYTES as usize];
    bare.block.read_at(layout.block_at(0), &mut block, &IoContext::default()).unwrap();
    let golden = include_bytes!("../golden/tuples_beside.bin");
    assert_eq!(block[..golden.len()], golden[..]);
    assert!(varve_media::is_zero(&block[golden.len()..]));
}
