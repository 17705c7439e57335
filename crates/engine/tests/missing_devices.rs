//! Repairs of a database on a set of devices of which one is gone, and may come back: on devices that are full, cut at every
//! point, with the device back afterwards or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use varve_engine::{Db, Error, ErrorKind, Media, Options, ReadOptions, WriteOptions, plan_repair, repair};
use varve_env::Env;
use varve_media::emulated::Zoned;
use varve_media::{
    CrashDevice, CrashVariant, Device, DeviceCrashState, Emulated, Geometry, Immediate, NominalPerformance,
    OverlayDevice, RamBacking, ZoneGeometry,
};
use varve_store::{
    CachingName, HybridDevices, HybridDriver, HybridFormatOptions, HybridOpenOptions, HybridStore, MigrationName,
    MissingDevices, PlacementName,
};

const ZONE_BYTES: u64 = 32 << 10;
/// Keys of every history.
const KEYS: u32 = 3000;

fn zoned(env: &Env, name: &str, zones: u64, conventional_zones: u32) -> Device {
    let all = ZoneGeometry::fit(zones * ZONE_BYTES, ZONE_BYTES).expect("zones");
    let rules = Zoned::new(&ZoneGeometry { conventional_zones, ..all });
    let asked = Geometry { capacity_bytes: zones * ZONE_BYTES, sector_bytes: 512, physical_sector_bytes: 512 };
    let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
    // Conventional zones are those of disks. The rates of what is left say the tier without a device too.
    let nominal = NominalPerformance::typical(conventional_zones > 0);
    rules.device(|rules| {
        Emulated::new(env, name, geometry, rules, timing, Box::new(RamBacking::new())).with_nominal(nominal)
    })
}

/// A set: the fast device first, then slow ones. Zones of each for files.
struct Case {
    zones: &'static [u64],
    /// Place in the set of the device that is gone.
    missing: usize,
    /// The medium has no space for a repair: it fails.
    is_refused: bool,
}

fn devices(env: &Env, zones: &[u64]) -> Vec<Device> {
    // What the band tables take, and as many zones for the next generation.
    let fast = |zones| zoned(env, "fast", zones + 24, 0);
    let slow = |number: usize, zones| zoned(env, &format!("slow {number}"), zones + 16, 16);
    let of = |(number, zones): (usize, &u64)| if number == 0 { fast(*zones) } else { slow(number, *zones) };
    zones.iter().enumerate().map(of).collect()
}

fn tiers(count: usize) -> Vec<u8> {
    (0..count).map(|number| u8::from(number > 0)).collect()
}

fn store(
    env: &Env,
    devices: HybridDevices,
    missing_devices: MissingDevices,
    tiers: Option<Vec<u8>>,
) -> Result<HybridStore, Error> {
    let options = HybridOpenOptions {
        placement: PlacementName::Basic(1),
        migration: MigrationName::None,
        caching: CachingName::None,
        driver: HybridDriver::Caller,
        table_bytes: Some(12 << 10),
        tiers,
        missing_devices,
        ..HybridOpenOptions::default()
    };
    Ok(HybridStore::open(env, devices, &options)?)
}

fn media(store: HybridStore) -> Media {
    Media::of_files(Arc::new(store))
}

fn options() -> Options {
    Options {
        write_buffer_size: 16 << 10,
        target_file_size_base: 12 << 10,
        max_bytes_for_level_base: 48 << 10,
        level0_file_num_compaction_trigger: 4,
        compression: varve_engine::Compression::None,
        max_background_jobs: 1,
        ..Options::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn contents(db: &Db) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
    let mut found = BTreeMap::new();
    let mut walk = db.iterator(&ReadOptions::default())?;
    walk.seek_to_first();
    while walk.valid() {
        found.insert(walk.key().to_vec(), walk.value().to_vec());
        walk.next();
    }
    walk.status()?;
    Ok(found)
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
type History = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;

/// Writes keys, most of them several times; everything that was acknowledged, and what is there in the end.
fn load(env: &Env, devices: &[Device]) -> (History, Contents) {
    let format = HybridFormatOptions {
        tiers: Some(tiers(devices.len())),
        table_bytes: Some(12 << 10),
        ..HybridFormatOptions::default()
    };
    HybridStore::format(env, devices, &format).expect("a format");
    let mut history = History::new();
    let store = store(env, devices.to_vec(), MissingDevices::Refuse, Some(tiers(devices.len()))).expect("a store");
    let db = Db::open(env, media(store), options()).expect("a database");
    let mut random = env.random("keys");
    for version in 0..2 * KEYS {
        let number = if version < KEYS { version } else { random.below(u64::from(KEYS)) as u32 };
        let value = format!("version {version} of {number} {}", "x".repeat(60)).into_bytes();
        match db.put_with(&key(number), &value, &WriteOptions { sync: version % 40 == 0 }) {
            Ok(()) => _ = history.entry(key(number)).or_default().insert(value),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                break;
            }
        }
    }
    db.wait_idle().expect("idle");
    let found = contents(&db).expect("contents");
    db.close().expect("a close");
    (history, found)
}

/// Every value was that of its key once. How many there are.
fn verify_known(history: &History, found: &Contents) -> Result<usize, String> {
    for (key, value) in found {
        if !history.get(key).is_some_and(|values| values.contains(value)) {
            return Err(format!("'{}' was never '{}'", key.escape_ascii(), value.escape_ascii()));
        }
    }
    Ok(found.len())
}

fn repaired(env: &Env, rest: HybridDevices) -> Result<(), Error> {
    let store = store(env, rest, MissingDevices::GiveUp, None)?;
    repair(env, media(store), options()).map(drop)
}

fn opened(env: &Env, devices: HybridDevices) -> Result<Contents, Error> {
    let store = store(env, devices, MissingDevices::Refuse, None)?;
    let db = Db::open(env, media(store), options())?;
    contents(&db)
}

/// Devices whose writes stay in memory.
fn looked(devices: &[Device]) -> Vec<Device> {
    devices.iter().map(|device| OverlayDevice::device(device).expect("an overlay")).collect()
}

fn run(case: &Case, reached: &mut [u64; 3]) {
    let what = format!("zones {:?}, without device {}", case.zones, case.missing);
    let env = Env::sim(1);
    let whole = devices(&env, case.zones);
    let (history, before) = load(&env, &whole);
    assert!(before.len() > 500, "{what}: {} keys", before.len());
    let mut rest = whole.clone();
    let absent = rest.remove(case.missing);

    // The dry run says whether it fits.
    let looking = store(&env, looked(&rest), MissingDevices::GiveUp, None).expect("a store");
    let plan = plan_repair(&env, &media(looking), &options()).expect("a plan");
    assert_eq!(plan.fits(), !case.is_refused, "{what}: {:?}", plan.space);

    let crash: Vec<CrashDevice> = rest.iter().map(|device| CrashDevice::new(&env, device).expect("a device")).collect();
    let cuts: Arc<Mutex<Vec<Vec<DeviceCrashState>>>> = Arc::default();
    for (number, device) in crash.iter().enumerate() {
        let (all, cuts) = (crash.clone(), cuts.clone());
        device.on_persistence_point(move |point| {
            let states = all.iter().enumerate().map(|(other, device)| match other == number {
                true => point.capture(),
                false => device.capture(),
            });
            let states: Vec<DeviceCrashState> = states.collect();
            cuts.lock().expect("no panic").push(states);
        });
    }
    let outcome = repaired(&env, crash.iter().map(CrashDevice::device).collect());
    match (&outcome, case.is_refused) {
        (Ok(()), false) => {}
        (Err(error), true) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{what}: {error}"),
        _ => panic!("{what}: {outcome:?}"),
    }
    let cuts = std::mem::take(&mut *cuts.lock().expect("no panic"));
    assert!(cuts.len() > 5, "{what}: {} cuts", cuts.len());
    // The first ones, the last ones, among which is the decision, and some between.
    let step = (cuts.len() / 24).max(1);
    let chosen = (0..cuts.len()).filter(|cut| cut % step == 0 || cut + 24 >= cuts.len());
    for cut in chosen {
        let variant = CrashVariant::OF_DEVICES[cut % CrashVariant::OF_DEVICES.len()];
        let images: Vec<Device> =
            (0..).zip(&cuts[cut]).map(|(device, state)| state.image(variant, cut as u64 ^ device << 40)).collect();
        let what = format!("{what}, cut {cut} of {}, {variant:?}", cuts.len());
        let mut back = looked(&images);
        back.insert(case.missing, looked(std::slice::from_ref(&absent)).remove(0));
        match opened(&env, back) {
            Ok(found) => {
                assert!(found == before, "{what}: {} of {} keys", found.len(), before.len());
                reached[0] += 1;
                // The device does not come back: another repair does the same.
                if !case.is_refused {
                    repaired(&env, images.clone()).unwrap_or_else(|error| panic!("{what}: once more: {error}"));
                    let found = opened(&env, images).unwrap_or_else(|error| panic!("{what}: repaired: {error}"));
                    verify_known(&history, &found).unwrap_or_else(|message| panic!("{what}: {message}"));
                    reached[1] += 1;
                }
            }
            Err(error) => {
                assert!(error.to_string().contains("given up") && !case.is_refused, "{what}: {error}");
                let found = opened(&env, images).unwrap_or_else(|error| panic!("{what}: without it: {error}"));
                verify_known(&history, &found).unwrap_or_else(|message| panic!("{what}: {message}"));
                reached[2] += 1;
            }
        }
    }
}

/// Sound devices survive a repair without one of their set, wherever it ends: the missing device can come back, or the repair can
/// be done again.
#[test]
fn a_repair_without_a_device_never_costs_the_others() {
    let cases = [
        // A fast device that is full, and one that is not.
        Case { zones: &[9, 60], missing: 1, is_refused: false },
        Case { zones: &[40, 60], missing: 1, is_refused: false },
        // The slow device alone, with space and without.
        Case { zones: &[9, 60], missing: 0, is_refused: false },
        Case { zones: &[9, 17], missing: 0, is_refused: true },
        Case { zones: &[9, 30, 30], missing: 2, is_refused: false },
        Case { zones: &[9, 30, 30], missing: 0, is_refused: false },
    ];
    let mut reached = [0; 3];
    cases.iter().for_each(|case| run(case, &mut reached));
    let [taken_back, again, done] = reached;
    println!("reached: repairs without a device: {taken_back} taken back, {again} done again, {done} done");
    assert!(taken_back > 60 && again > 40 && done > 20, "{reached:?}");
}
