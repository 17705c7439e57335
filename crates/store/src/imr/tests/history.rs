//! Random histories on a disk that is nearly full, with a power cut at every persistence point: one writer
//! that does everything, or several at once that are in each other's way.

use super::*;
use parking_lot::Mutex;
use std::time::Duration;
use varve_env::SimOptions;
use varve_media::{CrashDevice, CrashVariant, DeviceCrashState};

/// A table: the number its bytes are made from, and how many there are.
type Table = (u64, u64);

/// A table that is being written.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    file: u64,
    /// Bytes known to be durable.
    durable: u64,
    bytes: u64,
}

/// What may be found under a name.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Durable, and nothing else is going on.
    tables: BTreeMap<String, Table>,
    /// Removed, not durably.
    removed: BTreeMap<String, Table>,
    in_flight: BTreeMap<String, InFlight>,
    /// Getting another name, and perhaps replacing the table there: from, with its table; to, with its.
    renaming: Option<(String, Table, String, Option<Table>)>,
}

impl Model {
    fn verify(&self, store: &ImrStore) -> Result<(), String> {
        let mut found: BTreeMap<String, u64> =
            store.list().unwrap().into_iter().map(|entry| (entry.name, entry.size_bytes)).collect();
        let fits = |name: &str, (file, bytes): Table| match read(store, name) {
            Ok(data) if data == content(file, 0, bytes) => Ok(()),
            Ok(data) => Err(format!("'{name}' has {} bytes that are not those of file {file}", data.len())),
            Err(error) => Err(format!("'{name}': {error}")),
        };
        for (name, table) in &self.tables {
            fits(name, *table)?;
            found.remove(name);
        }
        if let Some((from, table, to, replaced)) = &self.renaming {
            match (found.remove(from).is_some(), found.remove(to).is_some()) {
                (true, there) if there == replaced.is_some() => {
                    fits(from, *table)?;
                    replaced.map_or(Ok(()), |replaced| fits(to, replaced))?;
                }
                (false, true) => fits(to, *table)?,
                (from_is, to_is) => return Err(format!("'{from}' is there: {from_is}; '{to}': {to_is}")),
            }
        }
        for (name, InFlight { file, durable, bytes }) in &self.in_flight {
            match found.remove(name) {
                None if *durable == 0 => {}
                None => return Err(format!("'{name}' is gone with {durable} durable bytes")),
                Some(size) if (*durable..=*bytes).contains(&size) => fits(name, (*file, size))?,
                Some(size) => return Err(format!("'{name}' has {size} bytes, not {durable} to {bytes}")),
            }
        }
        for name in found.into_keys() {
            match self.removed.get(&name) {
                Some(table) => fits(&name, *table)?,
                None => return Err(format!("'{name}' should not be there")),
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

/// Where power cuts and what may be lost by them go.
#[derive(Clone, Default)]
struct Journalist {
    model: Arc<Mutex<Model>>,
    cuts: Arc<Mutex<Vec<Cut>>>,
}

/// A store under observation.
struct Observed {
    disk: Device,
    crash: CrashDevice,
    store: Arc<ImrStore>,
    journalist: Journalist,
    shape: Shape,
}

impl Observed {
    fn new(env: &Env, shape: Shape, usable: u32, allocation: AllocationName, rewrite: RewriteName) -> Observed {
        let disk = shape.formatted(env, usable, allocation, rewrite).0;
        let crash = CrashDevice::new(env, &disk).unwrap();
        let store = Arc::new(open(env, &shape.aligned(&crash.device())));
        Observed { disk, crash, store, journalist: Journalist::default(), shape }
    }

    /// From here on every persistence point is a cut.
    fn begin_cuts(&self) {
        let Journalist { model, cuts } = self.journalist.clone();
        self.crash.on_persistence_point(move |point| {
            cuts.lock().push(Cut { state: point.capture(), model: model.lock().clone() });
        });
    }

    fn free_tracks(&self) -> u64 {
        self.store.space().unwrap().available_bytes / self.shape.bottom_bytes
    }

    /// Writes a table, perhaps with a sync in the middle of it.
    fn write(&self, store: &ImrStore, name: &str, file: u64, bytes: u64, level: Option<u8>, syncs: u64) {
        let model = &self.journalist.model;
        model.lock().in_flight.insert(name.to_owned(), InFlight { file, durable: 0, bytes });
        let options = CreateOptions { kind: FileKind::Table, level, ..CreateOptions::default() };
        let mut writer = store.create(name, &options).unwrap();
        for part in 1..=syncs {
            let (from, to) = (bytes * (part - 1) / syncs, bytes * part / syncs);
            writer.append(&content(file, from, to - from), &CONTEXT).unwrap();
            writer.sync(&CONTEXT).unwrap();
            model.lock().in_flight.insert(name.to_owned(), InFlight { file, durable: to, bytes });
        }
        writer.finish(&CONTEXT).unwrap();
        let mut model = model.lock();
        model.in_flight.remove(name);
        model.tables.insert(name.to_owned(), (file, bytes));
    }

    fn remove(&self, store: &ImrStore, name: &str) {
        {
            let mut model = self.journalist.model.lock();
            let table = model.tables.remove(name).unwrap();
            model.removed.insert(name.to_owned(), table);
        }
        store.remove(name).unwrap();
    }

    fn end(self, env: &Env) -> (Vec<Cut>, ImrStatistics) {
        let Observed { disk, store, journalist, .. } = self;
        drop(self.crash);
        journalist.model.lock().verify(&store).unwrap();
        assert_eq!(disk.tracks.as_ref().unwrap().destroyed().bytes, 0);
        let statistics = store.statistics();
        std::mem::forget(store);
        let _ = env;
        let cuts = std::mem::take(&mut *journalist.cuts.lock());
        (cuts, statistics)
    }
}

/// Keeps the disk nearly full and writes, extends, renames and removes tables on it. Gives the cuts and what the
/// store did.
fn history(
    env: &Env,
    shape: Shape,
    seed: u64,
    steps: u64,
    allocation: AllocationName,
    rewrite: RewriteName,
) -> (Vec<Cut>, ImrStatistics) {
    let observed = Observed::new(env, shape, 48, allocation, rewrite);
    let store = observed.store.clone();
    let model = observed.journalist.model.clone();
    let mut random = Random::named(seed, "history");
    let mut next = 0;
    let mut is_full = false;
    let mut step = 0;
    while step < steps {
        let free = observed.free_tracks();
        if free <= 4 && !is_full {
            is_full = true;
            observed.begin_cuts();
        }
        step += u64::from(is_full);
        let names: Vec<String> = model.lock().tables.keys().cloned().collect();
        if free <= 1 && names.is_empty() {
            store.sync_names().unwrap();
            model.lock().removed.clear();
            continue;
        }
        if free <= 1 || (is_full && free <= 6 && random.chance(1, 3)) {
            let name = &names[random.index(names.len())];
            observed.remove(&store, name);
            if random.chance(1, 4) || free == 0 {
                store.sync_names().unwrap();
                model.lock().removed.clear();
            }
            continue;
        }
        next += 1;
        if is_full && random.chance(1, 6) {
            let (from, mut to) = (&names[random.index(names.len())], format!("r{next}"));
            if random.chance(1, 2) && names.len() > 1 {
                to = names.iter().filter(|name| *name != from).nth(random.index(names.len() - 1)).unwrap().clone();
            }
            {
                let model = &mut *model.lock();
                let table = model.tables.remove(from).unwrap();
                model.renaming = Some((from.clone(), table, to.clone(), model.tables.remove(&to)));
            }
            store.rename(from, &to).unwrap();
            let mut model = model.lock();
            let (_, table, to, _) = model.renaming.take().unwrap();
            model.tables.insert(to, table);
            model.removed.clear();
            continue;
        }
        let (name, bytes) = (format!("t{next}"), 1 + random.below((free.min(6)) * shape.top_bytes));
        let level = random.chance(4, 5).then(|| random.below(4) as u8);
        // A part that is synced takes a track that is given back late.
        let syncs = if free > 4 && bytes < 3 * shape.top_bytes && random.chance(1, 4) { 2 } else { 1 };
        observed.write(&store, &name, next, bytes, level, syncs);
        // Whatever was removed before this table was made is durable with it.
        model.lock().removed.clear();
    }
    drop(store);
    observed.end(env)
}

/// Several writers at once on a disk that takes its time, in each other's neighbourhood.
fn crowd(
    env: &Env,
    seed: u64,
    writers: u64,
    allocation: AllocationName,
    rewrite: RewriteName,
) -> (Vec<Cut>, ImrStatistics) {
    let shape = Shape::EVEN;
    let mut observed = Observed::new(env, shape, 48, allocation, rewrite);
    let stall = |operation, millis| {
        Fault::new(operation, FaultTrigger::From(0), FaultEffect::Stall(Duration::from_millis(millis)))
    };
    let plan = FaultPlan { seed, faults: vec![stall(Operation::Write, 2), stall(Operation::Sync, 3)] };
    let injector = FaultInjector::new(env, FaultPlan::default());
    observed.store = Arc::new(open(env, &FaultDevice::device(&injector, &observed.crash.device())));
    let observed = Arc::new(observed);
    // Full of tables of one track, each writer's own among each other's.
    for number in 0..44 {
        observed.write(
            &observed.store,
            &format!("w{}-{number}", number % writers),
            number,
            TRACK_BYTES,
            Some((number % 3) as u8),
            1,
        );
    }
    injector.set_plan(plan);
    observed.begin_cuts();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (env, observed) = (env.clone(), observed.clone());
            let mut random = Random::named(seed, &format!("writer {writer}"));
            env.clone().spawn(&format!("writer {writer}"), move || {
                let store = observed.store.clone();
                let own = format!("w{writer}-");
                for round in 0..6 {
                    for _ in 0..2 {
                        let names: Vec<String> = {
                            let model = observed.journalist.model.lock();
                            model.tables.keys().filter(|name| name.starts_with(&own)).cloned().collect()
                        };
                        observed.remove(&store, &names[random.index(names.len())]);
                    }
                    let file = 1000 * (writer + 1) + round;
                    let bytes = TRACK_BYTES + 1 + random.below(TRACK_BYTES - 1);
                    let level = random.chance(4, 5).then(|| random.below(3) as u8);
                    observed.write(&store, &format!("{own}{file}"), file, bytes, level, 1);
                }
            })
        })
        .collect();
    for handle in threads {
        handle.join().unwrap_or_else(|panicked| panic!("{}: {}", panicked.thread(), panicked.message()));
    }
    Arc::into_inner(observed).expect("all writers ended").end(env)
}

/// Opens an image and verifies it; gives the cuts of its recovery.
fn recover(env: &Env, shape: Shape, cut: &Cut, variant: CrashVariant, seed: u64) -> Result<Vec<Cut>, String> {
    let device = cut.state.image(variant, seed);
    let crash = CrashDevice::new(env, &device).unwrap();
    let disk = shape.aligned(&crash.device());
    let cuts: Arc<Mutex<Option<Vec<Cut>>>> = Arc::new(Mutex::new(Some(Vec::new())));
    let (observed, model) = (cuts.clone(), cut.model.clone());
    crash.on_persistence_point(move |point| {
        if let Some(cuts) = &mut *observed.lock() {
            cuts.push(Cut { state: point.capture(), model: model.clone() });
        }
    });
    let found = ImrStore::inspect(&disk);
    let bad: Vec<_> = found.iter().filter(|finding| finding.severity > Severity::Warning).collect();
    if !bad.is_empty() {
        return Err(format!("inspect finds {bad:?}"));
    }
    let store = ImrStore::open(env, disk, &ImrOpenOptions::default()).map_err(|error| error.to_string())?;
    let cuts = cuts.lock().take().unwrap_or_default();
    cut.model.verify(&store)?;
    // It can be used, and using it harms nobody.
    if store.space().unwrap().available_bytes >= shape.top_bytes.max(shape.bottom_bytes) {
        write(&store, "after", 9_999_999, shape.top_bytes, Some(1)).map_err(|error| error.to_string())?;
        let mut model = cut.model.clone();
        model.tables.insert("after".to_owned(), (9_999_999, shape.top_bytes));
        model.verify(&store)?;
    }
    Ok(cuts)
}

/// Verifies images of every cut, `images_per_cut` variants of each, all of them in turn; of one image in
/// `denominator` the recovery is cut again at every point. Gives the images, and the images of recoveries.
fn verify(
    env: &Env,
    shape: Shape,
    what: &str,
    cuts: &[Cut],
    images_per_cut: usize,
    denominator: u64,
) -> (usize, usize) {
    let mut random = Random::named(cuts.len() as u64, "cuts");
    let (mut images, mut recoveries) = (0, 0);
    for (number, cut) in cuts.iter().enumerate() {
        for turn in images_per_cut * number..images_per_cut * (number + 1) {
            let variant = CrashVariant::OF_DEVICES[turn % CrashVariant::OF_DEVICES.len()];
            let seed = random.next_u64();
            let at = format!("{what}: cut {number}, {variant:?}, seed {seed}");
            let again = recover(env, shape, cut, variant, seed).unwrap_or_else(|message| panic!("{at}: {message}"));
            images += 1;
            if !random.chance(1, denominator) {
                continue;
            }
            for (point, cut) in again.iter().enumerate() {
                let second = CrashVariant::OF_DEVICES[random.index(CrashVariant::OF_DEVICES.len())];
                let seed = random.next_u64();
                let _ = recover(env, shape, cut, second, seed).unwrap_or_else(|message| {
                    panic!("{at}, point {point} of its recovery, {second:?}, seed {seed}: {message}")
                });
                recoveries += 1;
            }
        }
    }
    println!("reached: store imr/histories: {} cuts, {images} images, {recoveries} cuts of recoveries", cuts.len());
    (images, recoveries)
}

#[test]
fn nothing_is_lost_whenever_the_power_goes() {
    for &allocation in AllocationName::ALL {
        for &rewrite in RewriteName::ALL {
            let (seed, shape) = (1, Shape::EVEN);
            let env = Env::sim(seed);
            let (cuts, statistics) = history(&env, shape, seed, 40, allocation, rewrite);
            let what = format!("{allocation:?}, {rewrite:?}, {} rewrites", statistics.rewrites);
            let (images, recoveries) = verify(&env, shape, &what, &cuts, 2, 40);
            assert!(statistics.rewrites > 5 && cuts.len() > 100 && recoveries > 20, "{what}");
            assert_eq!(images, 2 * cuts.len());
        }
    }
}

/// Bottoms that hold a quarter more than tops, and memory that must be aligned.
#[test]
fn nothing_is_lost_on_tracks_of_two_sizes_and_with_aligned_memory() {
    for (number, &allocation) in (0..).zip(AllocationName::ALL) {
        for (shape, rewrite) in
            [(Shape::WIDE_BOTTOMS, RewriteName::ALL[number % 2]), (Shape::ALIGNED, RewriteName::Merged)]
        {
            let seed = 10 + number as u64;
            let env = Env::sim(seed);
            let (cuts, statistics) = history(&env, shape, seed, 25, allocation, rewrite);
            let what = format!("{allocation:?}, {rewrite:?}, {shape:?}, {} rewrites", statistics.rewrites);
            let (images, recoveries) = verify(&env, shape, &what, &cuts, 1, 50);
            assert!(statistics.rewrites > 3 && images > 50 && recoveries > 0, "{what}");
        }
    }
}

#[test]
fn writers_that_share_neighbours_lose_nothing_whenever_the_power_goes() {
    for (number, &allocation) in (0..).zip(AllocationName::ALL) {
        for &rewrite in RewriteName::ALL {
            let seed = 30 + number;
            let env = Env::sim_with(SimOptions { seed, perturb: number % 2 == 1, ..SimOptions::default() });
            let (cuts, statistics) = crowd(&env, seed, 3, allocation, rewrite);
            let what = format!("{allocation:?}, {rewrite:?}, 3 writers, {} rewrites", statistics.rewrites);
            let (images, recoveries) = verify(&env, Shape::EVEN, &what, &cuts, 1, 60);
            assert!(statistics.rewrites > 5 && images > 80 && recoveries > 0, "{what}");
        }
    }
}

/// An intent of several sectors, torn in every way, and copies beside it.
#[test]
fn an_intent_of_many_sectors_may_be_torn() {
    let shape = Shape { physical_sector_bytes: 512, ..Shape::EVEN };
    for &rewrite in RewriteName::ALL {
        let env = Env::sim(7);
        let observed = Observed::new(&env, shape, 130, AllocationName::ThreePhase, rewrite);
        let store = observed.store.clone();
        for number in 0..130 {
            observed.write(&store, &number.to_string(), number, TRACK_BYTES, None, 1);
        }
        let on_bottoms: Vec<String> = (0..130)
            .map(|number| number.to_string())
            .filter(|name| tracks(&store, name)[0].is_multiple_of(2))
            .collect();
        for name in on_bottoms.iter().take(30) {
            observed.remove(&store, name);
        }
        store.sync_names().unwrap();
        observed.journalist.model.lock().removed.clear();
        observed.begin_cuts();
        observed.write(&store, "large", 999, 30 * TRACK_BYTES, None, 1);
        drop(store);
        let (cuts, statistics) = observed.end(&env);
        assert!(statistics.rewrites >= 31, "{statistics:?}");
        // Of the merged rewrite one intent names all tops: 40 + 24 x 31 bytes.
        let images_per_cut = if rewrite == RewriteName::Merged { 14 } else { 1 };
        let what = format!("{rewrite:?}, an intent of two sectors");
        let (images, _) = verify(&env, shape, &what, &cuts, images_per_cut, 100);
        assert!(images > 200, "{what}: {images}");
    }
}
