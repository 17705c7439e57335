//! Several devices of a tier, and more than two tiers.

use super::*;
use crate::hint::HintedFile;
use crate::hybrid::levels::Tier;
use varve_media::Pacing;
use varve_media::presets::Preset;

/// Everything about the models is so many times smaller and quicker; rates stay.
const DIVISOR: u64 = 64;
const TABLE_BYTES: u64 = 512 << 10;
/// Bytes of a zone of the timed devices; of a disk, four make a table.
const DRIVE_ZONE_BYTES: u64 = TABLE_BYTES;
const DISK_ZONE_BYTES: u64 = TABLE_BYTES / 4;

/// A device as the paper's, smaller and quicker.
fn timed(env: &Env, name: &str, model: &str, zone_bytes: u64, zones: u64, conventional_zones: u32) -> Device {
    let preset = Preset::find(model).expect("a model").scaled(DIVISOR).with_capacity(zones * zone_bytes);
    let all = ZoneGeometry::fit(zones * zone_bytes, zone_bytes).unwrap();
    let active_zones_max = if conventional_zones == 0 { 14 } else { 0 };
    let rules =
        Zoned::new(&ZoneGeometry { conventional_zones, active_zones_max, open_zones_max: active_zones_max, ..all });
    preset.build_zoned(env, name, rules, Box::new(RamBacking::new()), Pacing::Sleep)
}

/// A store on so many drives and disks, whose tables go to the disks from the second level on.
fn timed_store(env: &Env, drives: usize, disks: usize) -> (Arc<HybridStore>, Vec<Device>) {
    let drive = |number: usize| timed(env, &format!("drive-{number}"), "zn540", DRIVE_ZONE_BYTES, 80, 0);
    let disk = |number: usize| timed(env, &format!("disk-{number}"), "st14000nm0007", DISK_ZONE_BYTES, 600, 40);
    let devices: Vec<Device> = (0..drives).map(drive).chain((0..disks).map(disk)).collect();
    HybridStore::format(env, &devices, &HybridFormatOptions::default()).unwrap();
    let options = HybridOpenOptions {
        placement: PlacementName::Basic(1),
        migration: MigrationName::None,
        caching: CachingName::None,
        // Small beside a table: a table that takes its zone while it is written counts twice as long as that takes.
        transfer_bytes: Some(4096),
        ..HybridOpenOptions::default()
    };
    (Arc::new(HybridStore::open(env, devices.clone(), &options).unwrap()), devices)
}

/// Runs something in so many threads at once; the virtual seconds it takes.
fn seconds_of(env: &Env, threads: u64, work: impl Fn(u64) + Clone + Send + 'static) -> f64 {
    let from = env.now();
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let work = work.clone();
            env.spawn("client", move || work(thread))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panicked| panicked.resume()));
    (env.now() - from).as_secs_f64()
}

const WRITERS: u64 = 12;
const TABLES_OF_WRITER: u64 = 4;
const READERS: u64 = 64;
const READS_OF_READER: u64 = 100;

/// Tables and reads a second on so many drives and disks, of tables of a level.
fn throughput(drives: usize, disks: usize, level: u8) -> [f64; 2] {
    let env = Env::sim(1);
    let (store, devices) = timed_store(&env, drives, disks);
    let bytes = Arc::new(content(1, 0, TABLE_BYTES - 4096));
    let tables = WRITERS * TABLES_OF_WRITER;
    let name = |table: u64| format!("{table:06}.sst");
    let writing = seconds_of(&env, WRITERS, {
        let store = store.clone();
        move |writer| {
            for table in 0..TABLES_OF_WRITER {
                let options = CreateOptions { kind: FileKind::Table, level: Some(level), ..CreateOptions::default() };
                let mut file = store.create(&name(writer * TABLES_OF_WRITER + table), &options).unwrap();
                let context = IoContext { level: Some(level), ..IoContext::of(IoClass::Compaction) };
                bytes.chunks(64 << 10).for_each(|piece| file.append(piece, &context).unwrap());
                file.sync(&context).unwrap();
                file.finish(&context).unwrap();
            }
        }
    });
    assert_even(&store, if level == 0 { 0 } else { 1 });
    let reading = seconds_of(&env, READERS, {
        let store = store.clone();
        move |reader| {
            let mut random = varve_env::Random::seeded(reader);
            let mut block = [0; 4096];
            for _ in 0..READS_OF_READER {
                let file = store.open(&name(random.below(tables)), &OpenOptions::default()).unwrap();
                let at = random.below((TABLE_BYTES - 4096) / 4096) * 4096;
                file.read_at(at, &mut block, &IoContext::of(IoClass::UserRead)).unwrap();
            }
        }
    });
    for number in (0..tables).step_by(7) {
        assert_content(&read(&*store, &name(number)).unwrap(), 1, TABLE_BYTES - 4096);
    }
    assert_sound(&store);
    drop(store);
    drop(devices);
    [tables as f64 / writing, (READERS * READS_OF_READER) as f64 / reading]
}

/// Bytes of tables on each device of a tier differ by a table at most.
fn assert_even(store: &HybridStore, tier: usize) {
    let mut bytes = vec![0; store.core.members.len()];
    for file in store.core.files.read().values() {
        file.parts().iter().for_each(|part| bytes[part.device] += part.reader.size_bytes());
    }
    let members = store.core.members.iter().zip(&bytes);
    let of_tier: Vec<u64> = members.filter(|(member, _)| member.tier == tier).map(|(_, bytes)| *bytes).collect();
    let (least, most) = (of_tier.iter().min().unwrap(), of_tier.iter().max().unwrap());
    assert!(most - least <= TABLE_BYTES, "{of_tier:?} bytes on the devices of tier {tier}");
}

/// What disks do together grows with them, for writers and for readers.
#[test]
fn throughput_grows_with_disks() {
    let [one, two, four] = [1, 2, 4].map(|disks| throughput(2, disks, 3));
    println!("tables written, blocks read a second: 1 disk {one:.1?}, 2 disks {two:.1?}, 4 disks {four:.1?}");
    for (what, index) in [("writers", 0), ("readers", 1)] {
        let (of_two, of_four) = (two[index] / one[index], four[index] / one[index]);
        assert!(of_two >= 1.8, "{what}: two disks do {of_two:.2} times what one does");
        assert!(of_four >= 3.2, "{what}: four disks do {of_four:.2} times what one does");
    }
}

/// And what drives do.
#[test]
fn throughput_grows_with_drives() {
    let [one, two] = [1, 2].map(|drives| throughput(drives, 2, 0));
    println!("tables written, blocks read a second: 1 drive {one:.1?}, 2 drives {two:.1?}");
    for (what, index) in [("writers", 0), ("readers", 1)] {
        let of_two = two[index] / one[index];
        assert!(of_two >= 1.8, "{what}: two drives do {of_two:.2} times what one does");
    }
}

/// A fast device, one of a middle speed and a slow one, in another order than that of their speed.
fn three(env: &Env, slow_zones: u64, middle_zones: u64, fast_zones: u64) -> Vec<Device> {
    let middle = zoned(env, "middle", middle_zones + CONVENTIONAL_ZONES, CONVENTIONAL_ZONES, 0);
    let devices = vec![slow(env, slow_zones), fast(env, fast_zones, 8), middle];
    let options = HybridFormatOptions { tiers: Some(OF_THREE.to_vec()), ..HybridFormatOptions::default() };
    HybridStore::format(env, &devices, &options).unwrap();
    devices
}

/// The slow device, the fast one and the middle one.
const OF_THREE: [u8; 3] = [2, 0, 1];
const SLOW: usize = 0;
const FAST: usize = 1;
const MIDDLE: usize = 2;

fn open_three(env: &Env, devices: &[Device], placement: PlacementName, caching: CachingName) -> HybridStore {
    let options = HybridOpenOptions { placement, caching, tiers: Some(OF_THREE.to_vec()), ..open_options() };
    HybridStore::open(env, devices.to_vec(), &options).unwrap()
}

/// What has no place on the fastest device goes to the next one, and to the slowest when that is full; all of it opens again.
#[test]
fn tables_flow_to_the_middle_tier_before_the_slowest() {
    let env = Env::sim(1);
    let devices = three(&env, 60, 20, 8);
    let store = open_three(&env, &devices, PlacementName::Basic(2), CachingName::None);
    let mut went = Vec::new();
    for number in 0..50 {
        let name = format!("t-{number}");
        write(&store, &name, FileKind::Table, Some(1), &content(number, 0, 30_000)).unwrap();
        went.push(devices_of(&store, &name)[0]);
    }
    // One device after the other, and none before the one above it is full.
    let order: Vec<usize> = went.chunk_by(PartialEq::eq).map(|run| run[0]).collect();
    assert_eq!(order, [FAST, MIDDLE, SLOW], "{went:?}");
    assert_sound(&store);
    let store = {
        std::mem::forget(store);
        open_three(&env, &devices, PlacementName::Basic(2), CachingName::None)
    };
    for number in 0..50 {
        assert_content(&read(&store, &format!("t-{number}")).unwrap(), number, 30_000);
    }
    assert_sound(&store);
}

/// What migration sends down goes to the middle tier, and to the slowest only when that is full; what it brings up comes from either.
#[test]
fn tables_move_down_to_the_next_tier_that_has_space() {
    let env = Env::sim(1);
    let devices = three(&env, 60, 4, 12);
    let store = open_three(&env, &devices, PlacementName::WriteGuided, CachingName::None);
    let name = |number: u64| format!("t-{number}");
    for number in 0..10 {
        write(&store, &name(number), FileKind::Table, Some(0), &content(number, 0, 30_000)).unwrap();
    }
    assert!((0..10).all(|number| devices_of(&store, &name(number)) == [FAST]));
    // They are of a high level now, and tables of a low one want the zones.
    for number in 0..10 {
        let file = HintedFile { name: name(number), level: Some(5), size_bytes: 30_000 };
        store.hint(&Hint::LevelChanged { file: &file });
    }
    for number in 10..18 {
        write(&store, &name(number), FileKind::Table, Some(0), &content(number, 0, 30_000)).unwrap();
    }
    let on = |device: usize| (0..10).filter(|number| devices_of(&store, &name(*number)) == [device]).count();
    assert!(measure(&store, "tables moved to the slow tier") > 4, "{:?}", [FAST, MIDDLE, SLOW].map(on));
    assert!(on(MIDDLE) >= 3 && on(SLOW) >= 1, "{:?}", [FAST, MIDDLE, SLOW].map(on));
    (0..18).for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, 30_000));
    assert_sound(&store);
}

/// A tier that has a zone left but not all that a table takes was tried again and again, and the copy given up each time.
#[test]
fn a_table_goes_past_a_tier_that_has_no_space_for_all_of_it() {
    let env = Env::sim(1);
    let devices = three(&env, 60, 5, 12);
    let store = open_three(&env, &devices, PlacementName::WriteGuided, CachingName::None);
    let name = |number: u64| format!("t-{number}");
    // Two zones each.
    for number in 0..5 {
        write(&store, &name(number), FileKind::Table, Some(0), &content(number, 0, 60_000)).unwrap();
    }
    assert!((0..5).all(|number| devices_of(&store, &name(number)) == [FAST]));
    for number in 0..4 {
        let table = store.core.files.read()[&name(number)].number();
        let moved = store.core.move_table(table, 0, Tier::Slow);
        assert!(moved.unwrap(), "table {number}");
    }
    let on: Vec<usize> = (0..5).map(|number| devices_of(&store, &name(number))[0]).collect();
    assert_eq!(on, [MIDDLE, MIDDLE, SLOW, SLOW, FAST], "of five zones one stays empty");
    assert_eq!(measure(&store, "migrations given up"), 0);
    (0..5).for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, 60_000));
    assert_sound(&store);
}

/// The tables that are read most come to the fastest tier, those that are read next to the middle one; then nothing moves any more.
#[test]
fn each_tier_has_what_is_read_more_than_what_is_behind_it() {
    let env = Env::sim(1);
    let devices = three(&env, 60, 5, 10);
    let store = open_three(&env, &devices, PlacementName::WriteGuided, CachingName::None);
    let name = |number: u64| format!("t-{number}");
    for number in 0..30 {
        write(&store, &name(number), FileKind::Table, Some(3), &content(number, 0, 30_000)).unwrap();
    }
    let on =
        |device: usize| (0..30).filter(|number| devices_of(&store, &name(*number)) == [device]).collect::<Vec<u64>>();
    let before = [FAST, MIDDLE, SLOW].map(on);
    assert!(before.iter().all(|tables| tables.len() >= 4), "{before:?}");
    // Those that came last, and lie on the slowest, are read most.
    for number in 0..30 {
        let file = store.open(&name(number), &OpenOptions::default()).unwrap();
        for _ in 0..=number * 8 {
            file.read_at(0, &mut [0; 512], &IoContext::of(IoClass::UserRead)).unwrap();
        }
    }
    let mut steps = 0;
    loop {
        // Somebody reads the slow tiers meanwhile.
        let file = store.open(&name(0), &OpenOptions::default()).unwrap();
        file.read_at(0, &mut [0; 512], &IoContext::of(IoClass::UserRead)).unwrap();
        let coldest = [MIDDLE, SLOW].map(|device| on(device)[0]);
        for number in coldest {
            let file = store.open(&name(number), &OpenOptions::default()).unwrap();
            file.read_at(0, &mut [0; 512], &IoContext::of(IoClass::UserRead)).unwrap();
        }
        if !store.core.migrate() {
            break;
        }
        steps += 1;
        assert!(steps < 100, "tables go to and fro: {:?}", [FAST, MIDDLE, SLOW].map(on));
    }
    let [fast, middle, slow] = [FAST, MIDDLE, SLOW].map(on);
    assert_eq!([fast.len(), middle.len(), slow.len()], before.map(|tables| tables.len()));
    assert!(
        fast.iter().min() > middle.iter().max() && middle.iter().min() > slow.iter().max(),
        "{fast:?} {middle:?} {slow:?}"
    );
    assert!(measure(&store, "tables moved between slower tiers") > 0);
    (0..30).for_each(|number| assert_content(&read(&store, &name(number)).unwrap(), number, 30_000));
    assert_sound(&store);
}

/// Blocks of every tier behind the fastest are cached on that.
#[test]
fn blocks_of_every_slower_tier_are_cached() {
    let env = Env::sim(1);
    let devices = three(&env, 60, 6, 12);
    let store = open_three(&env, &devices, PlacementName::Auto, CachingName::Fifo);
    let name = |number: u64| format!("t-{number}");
    for number in 0..12 {
        write(&store, &name(number), FileKind::Table, Some(9), &content(number, 0, 30_000)).unwrap();
    }
    let on = |device: usize| (0..12).find(|number| devices_of(&store, &name(*number)) == [device]).unwrap();
    for device in [MIDDLE, SLOW] {
        let number = on(device);
        for at in (0..28_000).step_by(4096) {
            let bytes = content(number, at, 2000);
            store.hint(&Hint::CacheEvicted { file: &name(number), offset_bytes: at, bytes: &bytes });
        }
        // What waits is written when something changes.
        write(&store, "other", FileKind::Other, None, &[1; 100]).unwrap();
        let (reads, hits) = (devices[device].block.counters().reads, measure(&store, "user reads of cached blocks"));
        let file = store.open(&name(number), &OpenOptions::default()).unwrap();
        for at in (0..28_000).step_by(4096) {
            let mut block = vec![0; 2000];
            file.read_at(at, &mut block, &IoContext::of(IoClass::UserRead)).unwrap();
            assert!(block == content(number, at, 2000));
        }
        assert_eq!(measure(&store, "user reads of cached blocks") - hits, 7, "of device {device}");
        assert_eq!(devices[device].block.counters().reads, reads, "device {device} was read");
    }
    assert!(measure(&store, "blocks cached") >= 8);
    assert_sound(&store);
}

/// Eight devices are a set, and nine are refused.
#[test]
fn a_set_of_eight_devices_comes_back() {
    let env = Env::sim(1);
    let mut devices: Vec<Device> = (0..6).map(|_| slow(&env, 20)).collect();
    devices.extend((0..2).map(|_| fast(&env, 8, 8)));
    let tiers = vec![1, 1, 1, 1, 1, 1, 0, 0];
    let format = HybridFormatOptions { tiers: Some(tiers.clone()), ..HybridFormatOptions::default() };
    HybridStore::format(&env, &devices, &format).unwrap();
    let options = HybridOpenOptions { tiers: Some(tiers), ..open_options() };
    let store = HybridStore::open(&env, devices.clone(), &options).unwrap();
    for number in 0..60 {
        let level = (number % 4) as u8;
        write(&store, &format!("t-{number}"), FileKind::Table, Some(level), &content(number, 0, 30_000)).unwrap();
    }
    std::mem::forget(store);
    // In another order.
    devices.rotate_left(3);
    let tiers = Some(vec![1, 1, 1, 0, 0, 1, 1, 1]);
    let store = HybridStore::open(&env, devices.clone(), &HybridOpenOptions { tiers, ..open_options() }).unwrap();
    for number in 0..60 {
        assert_content(&read(&store, &format!("t-{number}")).unwrap(), number, 30_000);
    }
    assert_sound(&store);
    drop(store);
    let error = HybridStore::open(&env, devices[1..].to_vec(), &HybridOpenOptions { tiers: None, ..open_options() });
    assert_eq!(error.err().expect("an error").kind(), StoreErrorKind::Foreign);
    devices.push(slow(&env, 20));
    let error = HybridStore::probe(&devices).unwrap_err().to_string();
    assert!(error.contains("1 to 8 devices, and 9 were given"), "{error}");
}
