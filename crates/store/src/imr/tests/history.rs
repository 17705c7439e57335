//! Random histories on a disk that is nearly full, with a power cut at every persistence point.

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use varve_media::{CrashDevice, CrashVariant, DeviceCrashState};

/// A table: the number its bytes are made from, and how many there are.
type Table = (u64, u64);

/// What may be found under a name.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Durable, and nothing else is going on.
    tables: BTreeMap<String, Table>,
    /// Removed, not durably.
    removed: BTreeMap<String, Table>,
    /// Being written.
    in_flight: Option<(String, Table)>,
}

impl Model {
    fn verify(&self, store: &ImrStore) -> Result<(), String> {
        let found: BTreeMap<String, u64> =
            store.list().unwrap().into_iter().map(|entry| (entry.name, entry.size_bytes)).collect();
        let fits = |name: &str, (file, bytes): Table| match read(store, name) {
            Ok(data) if data == content(file, 0, bytes) => Ok(()),
            Ok(data) => Err(format!("'{name}' has {} bytes that are not those of file {file}", data.len())),
            Err(error) => Err(format!("'{name}': {error}")),
        };
        for (name, table) in &self.tables {
            fits(name, *table)?;
        }
        for (name, size_bytes) in found {
            let table = self.removed.get(&name).copied();
            let in_flight = self.in_flight.as_ref().filter(|(other, _)| *other == name).map(|(_, table)| *table);
            match (self.tables.contains_key(&name), table, in_flight) {
                (true, ..) => {}
                (_, Some(table), _) => fits(&name, table)?,
                (_, _, Some(_)) if size_bytes == 0 => {}
                (_, _, Some(table)) => fits(&name, table)?,
                _ => return Err(format!("'{name}' should not be there")),
            }
        }
        let findings = store.check().unwrap();
        match findings.iter().find(|finding| finding.severity > Severity::Warning) {
            Some(finding) => Err(format!("{}: {}", finding.code, finding.message)),
            None => Ok(()),
        }
    }
}

struct Cut {
    state: DeviceCrashState,
    model: Model,
}

/// Keeps the disk nearly full and writes and removes tables on it. Gives the cuts and the rewrites.
fn history(
    env: &Env,
    seed: u64,
    steps: u64,
    allocation: AllocationName,
    rewrite: RewriteName,
) -> (Vec<Cut>, ImrStatistics) {
    let usable = 48;
    let (device, _) = formatted(env, usable, allocation, rewrite);
    let crash = CrashDevice::new(env, &device).unwrap();
    let store = open(env, &crash.device());
    let mut random = Random::named(seed, "history");
    let model = Arc::new(Mutex::new(Model::default()));
    let cuts: Arc<Mutex<Vec<Cut>>> = Arc::default();
    let mut next = 0;
    let mut is_full = false;
    let mut step = 0;
    while step < steps {
        let used: u64 = {
            let model = model.lock();
            let all = model.tables.values().chain(model.removed.values());
            all.map(|(_, bytes)| bytes.div_ceil(TRACK_BYTES)).sum()
        };
        let free = u64::from(usable) - used;
        if free <= 4 && !is_full {
            // From here on every persistence point is a cut.
            is_full = true;
            let (cuts, model) = (cuts.clone(), model.clone());
            crash.on_persistence_point(move |point| {
                cuts.lock().push(Cut { state: point.capture(), model: model.lock().clone() });
            });
        }
        step += u64::from(is_full);
        let names: Vec<String> = model.lock().tables.keys().cloned().collect();
        if free <= 1 || (is_full && free <= 6 && random.chance(1, 3)) {
            let name = &names[random.index(names.len())];
            {
                let mut model = model.lock();
                let table = model.tables.remove(name).unwrap();
                model.removed.insert(name.clone(), table);
            }
            store.remove(name).unwrap();
            if random.chance(1, 4) || free == 0 {
                store.sync_names().unwrap();
                model.lock().removed.clear();
            }
            continue;
        }
        next += 1;
        let (name, bytes) = (format!("t{next}"), 1 + random.below((free.min(6)) * TRACK_BYTES));
        let table = (next, bytes);
        model.lock().in_flight = Some((name.clone(), table));
        let level = random.chance(4, 5).then(|| random.below(4) as u8);
        write(&store, &name, next, bytes, level).unwrap();
        let mut model = model.lock();
        model.in_flight = None;
        model.tables.insert(name, table);
        // Whatever was removed before this table was made is durable with it.
        model.removed.clear();
    }
    model.lock().verify(&store).unwrap();
    assert_eq!(device.tracks.as_ref().unwrap().destroyed().bytes, 0);
    let statistics = store.statistics();
    std::mem::forget(store);
    let cuts = std::mem::take(&mut *cuts.lock());
    (cuts, statistics)
}

/// Opens an image and verifies it; gives the cuts of its recovery.
fn recover(env: &Env, cut: &Cut, variant: CrashVariant, seed: u64) -> Result<Vec<Cut>, String> {
    let device = cut.state.image(variant, seed);
    let crash = CrashDevice::new(env, &device).unwrap();
    let cuts: Arc<Mutex<Option<Vec<Cut>>>> = Arc::new(Mutex::new(Some(Vec::new())));
    let (observed, model) = (cuts.clone(), cut.model.clone());
    crash.on_persistence_point(move |point| {
        if let Some(cuts) = &mut *observed.lock() {
            cuts.push(Cut { state: point.capture(), model: model.clone() });
        }
    });
    let found = ImrStore::inspect(crash.device());
    let bad: Vec<_> = found.iter().filter(|finding| finding.severity > Severity::Warning).collect();
    if !bad.is_empty() {
        return Err(format!("inspect finds {bad:?}"));
    }
    let store = ImrStore::open(env, crash.device(), &ImrOpenOptions::default()).map_err(|error| error.to_string())?;
    let cuts = cuts.lock().take().unwrap_or_default();
    cut.model.verify(&store)?;
    // It can be used, and using it harms nobody.
    if store.space().unwrap().available_bytes >= TRACK_BYTES {
        write(&store, "after", 9_999_999, TRACK_BYTES, Some(1)).map_err(|error| error.to_string())?;
        let mut model = cut.model.clone();
        model.tables.insert("after".to_owned(), (9_999_999, TRACK_BYTES));
        model.verify(&store)?;
    }
    Ok(cuts)
}

#[test]
fn nothing_is_lost_whenever_the_power_goes() {
    for &allocation in AllocationName::ALL {
        for &rewrite in RewriteName::ALL {
            for seed in [1] {
                let env = Env::sim(seed);
                let (cuts, statistics) = history(&env, seed, 40, allocation, rewrite);
                let mut random = Random::named(seed, "cuts");
                let (mut images, mut recoveries) = (0, 0);
                let at = |cut: usize, variant: CrashVariant, seed: u64| {
                    format!("{allocation:?}, {rewrite:?}: cut {cut}, {variant:?}, seed {seed}")
                };
                for (number, cut) in cuts.iter().enumerate() {
                    // All variants in turn, two of them at each cut.
                    for turn in [2 * number, 2 * number + 1] {
                        let variant = CrashVariant::OF_DEVICES[turn % CrashVariant::OF_DEVICES.len()];
                        let seed = random.next_u64();
                        let again = recover(&env, cut, variant, seed)
                            .unwrap_or_else(|message| panic!("{}: {message}", at(number, variant, seed)));
                        images += 1;
                        // Some recoveries are cut again at every point.
                        if !random.chance(1, 30) {
                            continue;
                        }
                        for (point, cut) in again.iter().enumerate() {
                            let (second, second_seed) = (
                                CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())],
                                random.next_u64(),
                            );
                            recover(&env, cut, second, second_seed).unwrap_or_else(|message| {
                                panic!(
                                    "{}, point {point} of its recovery, {second:?}, seed {second_seed}: {message}",
                                    at(number, variant, seed)
                                )
                            });
                            recoveries += 1;
                        }
                    }
                }
                println!(
                    "{allocation:?}, {rewrite:?}: {} cuts, {images} images, {recoveries} again, {statistics:?}",
                    cuts.len()
                );
                assert!(statistics.rewrites > 5 && cuts.len() > 100 && recoveries > 20);
            }
        }
    }
}
