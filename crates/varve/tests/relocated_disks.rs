//! Disks that were used under relocation, or with a write buffer, and are then given to a store without the layer: through the
//! interfaces of the stores and through specs, with the zones the disk has and without any.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use varve::block::raid::{Array, ArrayError, ArrayOpening, ArrayParameters, Dix, RaidLevel};
use varve::block::relocation::{Formatting, RelocatingDevice, RelocationParameters};
use varve::env::Env;
use varve::media::emulated::Conventional;
use varve::media::{
    BlockDevice, BlockDeviceExt, Device, Emulated, FileBacking, Geometry, Immediate, IoContext, MediaCache,
    ZoneGeometry, ZoneType, Zoned,
};
use varve::stack::StackBuilder;
use varve::{Options, Spec, Varve};
use varve_store::{ExtentFormatOptions, ExtentStore, ImrFormatOptions, ImrStore, StoreError};

/// Sizes of zones: a power of two, three times one, and others.
const ZONE_BYTES: [u64; 6] = [1 << 20, 3 << 18, 5 << 18, 7 << 18, (1 << 20) + 4096, 300 << 10];
const ZONES: u64 = 24;

fn context() -> IoContext {
    IoContext::default()
}

/// The bytes of a disk under zones that are better written in order.
fn host_aware(raw: &Arc<dyn BlockDevice>, zone_bytes: u64, conventional_zones: u32) -> Device {
    let capacity_bytes = raw.geometry().capacity_bytes;
    let fit = ZoneGeometry::fit(capacity_bytes, zone_bytes).unwrap();
    let sequential_type = ZoneType::SequentialWritePreferred;
    Zoned::new(&ZoneGeometry { sequential_type, conventional_zones, ..fit }).over(raw)
}

/// Writes out of order to logical zones, so that they are moved.
fn use_it(env: &Env, made: &Spec, zone_bytes: u64, zones: Range<u64>) {
    let device = StackBuilder::new(env).devices(made).unwrap().remove(0);
    // A store has its mark in the first sector of what it is given, which is in the first logical zone.
    device.device().block.write_at(0, &[1; 4096], &context()).unwrap();
    use_zones(env, &device.device().block, zone_bytes, zones);
}

fn use_zones(env: &Env, block: &Arc<dyn BlockDevice>, zone_bytes: u64, zones: Range<u64>) {
    for zone in zones {
        for unit in [8, 3, 5] {
            block.write_at(zone * zone_bytes + unit * 4096, &[unit as u8; 4096], &context()).unwrap();
        }
        block.sync(&context()).unwrap();
        env.sleep(Duration::from_millis(200));
        block.read_at(zone * zone_bytes, &mut [0; 4096], &context()).unwrap();
    }
    block.sync(&context()).unwrap();
}

/// Formats every kind of store that takes a device without zones; says what each answers.
fn formatted(env: &Env, device: &Device) -> Vec<(&'static str, Result<(), StoreError>)> {
    let imr = ImrFormatOptions {
        table_bytes_max: Some(64 << 10),
        small_files_bytes: Some(1 << 20),
        persists_max: 1,
        conventional_track_bytes: Some(8 << 10),
        ..ImrFormatOptions::default()
    };
    vec![
        ("extent", ExtentStore::format(env, device, &ExtentFormatOptions::default())),
        ("imr", ImrStore::format(env, device, &imr)),
    ]
}

/// The bytes of an image as a disk without zones.
fn without_zones(env: &Env, image: &Path, capacity_bytes: u64) -> Arc<dyn BlockDevice> {
    let backing = FileBacking::open_existing(image, capacity_bytes).unwrap();
    let timing = Box::new(Immediate::default());
    let geometry = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 };
    Arc::new(Emulated::new(env, "disk", geometry, Box::new(Conventional), timing, Box::new(backing)))
}

/// Refused by name, and nothing is written: where the first zone is a spare, and where it holds a logical zone.
#[test]
fn stores_refuse_disks_that_were_relocated() {
    let mut first_sectors = [0; 2];
    for (seed, (zone_bytes, zones)) in
        (0..).zip(ZONE_BYTES.into_iter().flat_map(|zone| [(zone, 0..3), (zone, 1..4), (zone, 0..0)]))
    {
        let place = tempfile::tempdir().unwrap();
        let capacity_bytes = ZONES * zone_bytes;
        let made = format!(
            "hasmr:{capacity_bytes}?zone={zone_bytes},cache=400KiB,extents=100,backing=file:@/image,relocate=on,\
             relocate-spares=1,relocate-utilization=0"
        );
        let made = spec(&made, place.path());
        let env = Env::sim(seed);
        let of_client = env.clone();
        let of_zones = zones.clone();
        env.spawn("client", move || use_it(&of_client, &made, zone_bytes, of_zones)).join().unwrap();
        let image = std::fs::read(place.path().join("image")).unwrap();
        first_sectors[usize::from(image.starts_with(b"VARVEJNL"))] += 1;
        let raw = without_zones(&env, &place.path().join("image"), capacity_bytes);
        for (store, outcome) in formatted(&env, &Device::of_blocks(Arc::clone(&raw))) {
            let at = format!("seed {seed}, zones of {zone_bytes}, written in {zones:?}: {store}");
            let error = outcome.err().unwrap_or_else(|| panic!("{at}: taken"));
            assert!(error.to_string().contains("relocate=on"), "{at}: {error}");
        }
        assert_eq!(raw.counters().writes, 0);
    }
    println!("reached: {first_sectors:?} first sectors without the mark and with it");
    assert!(first_sectors.into_iter().all(|disks| disks > 0), "{first_sectors:?}");
}

/// The first sector of a disk with conventional zones belongs to the layer above: it holds the mark of a store, or is blank if
/// nothing was written there. Without its zones stores refuse both, and arrays the former.
#[test]
fn relocated_disks_with_conventional_zones_are_refused() {
    const CONVENTIONAL: u64 = 3;
    let mut first_sectors = [0; 2];
    for (seed, (zone_bytes, is_begun, zones)) in (0..).zip(ZONE_BYTES.into_iter().flat_map(|zone| {
        [
            (zone, false, 0..0),
            (zone, false, CONVENTIONAL..CONVENTIONAL + 3),
            (zone, true, CONVENTIONAL..CONVENTIONAL + 3),
        ]
    })) {
        let place = tempfile::tempdir().unwrap();
        let capacity_bytes = ZONES * zone_bytes;
        let made = format!(
            "hasmr:{capacity_bytes}?zone={zone_bytes},conventional={},cache=400KiB,extents=100,backing=file:@/image,\
             relocate=on,relocate-spares=1,relocate-utilization=0",
            CONVENTIONAL * zone_bytes
        );
        let made = spec(&made, place.path());
        let env = Env::sim(seed);
        let (of_client, of_zones) = (env.clone(), zones.clone());
        let client = env.spawn("client", move || match is_begun {
            true => use_it(&of_client, &made, zone_bytes, of_zones),
            false => {
                let device = StackBuilder::new(&of_client).devices(&made).unwrap().remove(0);
                use_zones(&of_client, &device.device().block, zone_bytes, of_zones);
            }
        });
        client.join().unwrap();
        let path = place.path().join("image");
        let before = std::fs::read(&path).unwrap();
        let is_blank = before[..4096].iter().all(|byte| *byte == 0);
        assert_eq!(is_blank, !is_begun, "the first sector is not relocation's");
        first_sectors[usize::from(is_begun)] += 1;
        let at = format!("seed {seed}, zones of {zone_bytes}, written in {zones:?}, begun: {is_begun}");
        let raw = without_zones(&env, &path, capacity_bytes);
        let plain = Device::of_blocks(Arc::clone(&raw));
        let error = varve_store::check_blank(&plain, &plain).err().unwrap_or_else(|| panic!("{at}: taken for blank"));
        assert!(error.to_string().contains("relocate=on"), "{at}: {error}");
        // Where its ends are blank the mark lies between them.
        for (store, outcome) in formatted(&env, &plain) {
            let error = outcome.err().unwrap_or_else(|| panic!("{at}: {store}: taken"));
            assert!(error.to_string().contains("relocate=on"), "{at}: {store}: {error}");
        }
        if !is_begun {
            assert_eq!(raw.counters().writes, 0, "{at}");
            continue;
        }
        let parameters = |level| ArrayParameters {
            name: "array".to_owned(),
            level,
            chunk_bytes: None,
            dix: Dix::default(),
            journal: None,
            protection: None,
        };
        let blank = || Device::of_blocks(Arc::new(Emulated::immediate(&env, "blank", capacity_bytes)));
        for (level, others) in [(RaidLevel::Raid0, 1), (RaidLevel::Raid1, 1), (RaidLevel::Raid5, 2)] {
            let others: Vec<Device> = (0..others).map(|_| blank()).collect();
            let members: Vec<Option<Device>> = others.into_iter().chain([plain.clone()]).map(Some).collect();
            let array = Array::open(&env, &members, &parameters(level), &ArrayOpening::default());
            let error = array.err().unwrap_or_else(|| panic!("{at}: {level}: taken"));
            assert!(matches!(error, ArrayError::NotBlank { .. }), "{at}: {level}: {error}");
        }
        assert_eq!(raw.counters().writes, 0, "{at}");
        assert!(std::fs::read(&path).unwrap() == before, "{at}: written");
    }
    println!("reached: {first_sectors:?} first sectors that are blank and not");
    assert_eq!(first_sectors, [2 * ZONE_BYTES.len(), ZONE_BYTES.len()]);
}

/// The mark stays found through openings, and goes neither into a logical zone nor in the way of a new format.
#[test]
fn the_mark_is_no_data_and_gives_way_to_a_format() {
    let env = Env::sim(1);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let env = of_client;
        const ZONE: u64 = 1 << 20;
        let raw: Arc<dyn BlockDevice> = Arc::new(Emulated::immediate(&env, "disk", ZONES * ZONE));
        let disk = host_aware(&raw, ZONE, 0);
        let limits = MediaCache { bytes: 4 << 20, extents_max: 200 };
        let open = |formatting| {
            RelocatingDevice::open(&env, &disk, limits, RelocationParameters::default(), formatting).unwrap().0
        };
        for formatting in [Formatting::IfBlank, Formatting::IfBlank, Formatting::Never, Formatting::Anew] {
            let device = open(formatting);
            let mut data = [9; 8192];
            device.block.read_at(0, &mut data, &context()).unwrap();
            assert_eq!(data, [0; 8192], "{formatting:?}");
            let capacity_bytes = device.block.geometry().capacity_bytes;
            device.block.read_at(capacity_bytes - 8192, &mut data, &context()).unwrap();
            assert_eq!(data, [0; 8192], "{formatting:?}");
        }
        let options = ExtentFormatOptions { overwrite: true, ..ExtentFormatOptions::default() };
        let plain = Device::of_blocks(Arc::clone(&raw));
        assert!(ExtentStore::format(&env, &plain, &ExtentFormatOptions::default()).is_err());
        ExtentStore::format(&env, &plain, &options).unwrap();
        assert!(ExtentStore::probe(&plain).unwrap());
    });
    client.join().unwrap();
}

fn spec(text: &str, place: &Path) -> Spec {
    text.replace('@', &place.display().to_string()).parse().unwrap()
}

const BUFFER: &str = "buffer=(ssd:8MB?backing=file:@/fast),buffer-size=400KiB,buffer-rewrite=0";

/// The same by specs, of images whose records were lost: every spec that asks for no layer is refused by name.
#[test]
fn specs_refuse_disks_under_layers_in_zones_of_any_size() {
    let mut refused = 0;
    for zone in ["1280KiB", "1536KiB", "2560KiB"] {
        for (layer, option) in [("relocate=on", "relocate=on"), (BUFFER, "buffer=")] {
            for is_used in [false, true] {
                let place = tempfile::tempdir().unwrap();
                let made =
                    format!("hasmr:30MiB?zone={zone},cache=1MiB,extents=100,store=extent,backing=file:@/image,{layer}");
                let made = spec(&made, place.path());
                if is_used {
                    let options = Options { write_buffer_size: 64 << 10, ..Options::default() };
                    let db = Varve::builder().options(options).open_spec(&made).unwrap();
                    db.put(b"key", b"value").unwrap();
                    db.close().unwrap();
                } else {
                    drop(StackBuilder::new(&Env::real()).devices(&made).unwrap());
                }
                for record in ["image.zones", "image.media-cache"] {
                    let _ = std::fs::remove_file(place.path().join(record));
                }
                for other in [
                    "dev:@/image?store=extent",
                    "dev:@/image?store=imr,track-size=64KiB,table-size=64KiB",
                    "disk:30MiB?backing=file:@/image",
                    "hasmr:30MiB?zone=2MiB,cache=1MiB,extents=100,backing=file:@/image",
                    "smr:30MiB?band=1MiB,conventional=4MiB,backing=file:@/image",
                ] {
                    let before = std::fs::read(place.path().join("image")).unwrap();
                    let error = Varve::builder().env(&Env::sim(1)).open_spec(&spec(other, place.path())).err();
                    let error = error.unwrap_or_else(|| panic!("{made} as {other}, used: {is_used}: taken"));
                    let message = error.to_string();
                    assert!(message.contains(option), "{made} as {other}, used: {is_used}: {message}");
                    assert!(std::fs::read(place.path().join("image")).unwrap() == before, "{other} wrote");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 60);
}

/// The same by specs of disks with conventional zones: as made, and with a store of each kind that relocation carries. Asked
/// for are all kinds of stores on all kinds of disks, an array, and a write buffer on the disk or in it.
#[test]
fn specs_refuse_relocated_disks_with_conventional_zones() {
    let mut refused = 0;
    for zone in ["1MiB", "1280KiB", "1536KiB"] {
        for store in [None, Some("store=extent"), Some("store=band")] {
            let place = tempfile::tempdir().unwrap();
            let of_store = store.map_or(String::new(), |store| format!("{store},"));
            let made = format!(
                "hasmr:30MiB?zone={zone},conventional=4MiB,cache=1MiB,extents=100,{of_store}backing=file:@/image,relocate=on"
            );
            let made = spec(&made, place.path());
            if store.is_some() {
                let options = Options { write_buffer_size: 64 << 10, ..Options::default() };
                let db = Varve::builder().options(options).open_spec(&made).unwrap();
                db.put(b"key", b"value").unwrap();
                db.close().unwrap();
            } else {
                drop(StackBuilder::new(&Env::real()).devices(&made).unwrap());
            }
            for record in ["image.zones", "image.media-cache"] {
                let _ = std::fs::remove_file(place.path().join(record));
            }
            for other in [
                "dev:@/image?store=extent",
                "dev:@/image?store=extent,layout=ext4,group-size=8MiB,journal-size=1MiB",
                "dev:@/image?store=imr,track-size=64KiB,table-size=64KiB",
                "disk:30MiB?backing=file:@/image",
                "imr:30MiB?track=64KiB,table-size=64KiB,backing=file:@/image",
                "hasmr:30MiB?zone=2MiB,cache=1MiB,extents=100,backing=file:@/image",
                "hasmr:30MiB?zone=2MiB,conventional=4MiB,cache=1MiB,extents=100,store=band,backing=file:@/image",
                "smr:30MiB?band=1MiB,conventional=4MiB,backing=file:@/image",
                "zns:30MiB?zone=1MiB,backing=file:@/image",
                "zns:30MiB?zone=1MiB,store=hybrid,backing=file:@/image",
                "zns:30MiB?zone=1MiB+smr:30MiB?band=1MiB,conventional=4MiB,backing=file:@/image",
                "raid0:(dev:@/image+ram:30MiB)",
                "raid1:(ram:30MiB+dev:@/image)",
                "raid1:(ram:30MiB+disk:30MiB?backing=file:@/image)",
                "hasmr:30MiB?zone=1MiB,cache=1MiB,extents=100,buffer=(dev:@/image),buffer-size=400KiB",
                "disk:30MiB?backing=file:@/image,buffer=(ssd:8MB),buffer-size=400KiB",
                "dev:@/image?store=extent,buffer=(ssd:8MB),buffer-size=400KiB",
            ] {
                let at = format!("{made} as {other}");
                let before = std::fs::read(place.path().join("image")).unwrap();
                let error = Varve::builder().env(&Env::sim(1)).open_spec(&spec(other, place.path())).err();
                let message = error.unwrap_or_else(|| panic!("{at}: taken")).to_string();
                // Where the first sector holds a store, marks of zones of such a size are not searched for by every opening.
                let is_named = message.contains("relocate=on") || store.is_some() && zone == "1280KiB";
                assert!(is_named, "{at}: {message}");
                assert!(std::fs::read(place.path().join("image")).unwrap() == before, "{at}: written");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 153);
}
