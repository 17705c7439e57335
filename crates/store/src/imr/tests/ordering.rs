//! A disk that orders nothing within a sync, and does the worst it may: whatever was written since the last
//! sync reaches the medium tops first, bottoms last. Whoever writes a top beside a bottom that is not
//! synced loses the top.

use super::*;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use varve_media::{DestroyedData, TrackControl, TrackDescription};

const SECTOR: u64 = 512;

#[derive(Default)]
struct Cache {
    /// Sectors written since the last sync, by their number.
    sectors: BTreeMap<u64, [u8; SECTOR as usize]>,
    /// Tracks marked free since they were last written.
    freed: BTreeSet<TrackId>,
    /// Bottoms that were written back after a top beside them.
    turned: u64,
}

/// The cache in front of a disk with tracks.
struct WorstOrder {
    inner: Device,
    tracks: TrackGeometry,
    cache: Mutex<Cache>,
}

/// The disk behind such a cache, and the cache.
fn worst_order(inner: &Device) -> (Device, Arc<WorstOrder>) {
    let tracks = store_tracks(inner);
    let worst = Arc::new(WorstOrder { inner: inner.clone(), tracks, cache: Mutex::default() });
    (Device { tracks: Some(worst.clone()), ..Device::of_blocks(worst.clone()) }, worst)
}

impl WorstOrder {
    fn read(&self, at: u64, data: &mut [u8], context: &IoContext) -> Result<(), MediaError> {
        let cache = self.cache.lock();
        let sectors = at / SECTOR..(at + data.len() as u64) / SECTOR;
        if cache.sectors.range(sectors.clone()).next().is_none() {
            return self.inner.block.read_at(at, data, context);
        }
        for (sector, bytes) in sectors.zip(data.chunks_mut(SECTOR as usize)) {
            match cache.sectors.get(&sector) {
                Some(cached) => bytes.copy_from_slice(cached),
                None => self.inner.block.read_at(sector * SECTOR, bytes, context)?,
            }
        }
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8], durable: bool, context: &IoContext) -> Result<(), MediaError> {
        let mut cache = self.cache.lock();
        for (track, _) in self.tracks.pieces(at..at + data.len() as u64) {
            cache.freed.remove(&track);
        }
        let sectors = (at / SECTOR..).zip(data.chunks(SECTOR as usize));
        if durable {
            sectors.for_each(|(sector, _)| _ = cache.sectors.remove(&sector));
            return self.inner.block.write_at(at, data, context);
        }
        for (sector, bytes) in sectors {
            let mut copy = [0; SECTOR as usize];
            copy.copy_from_slice(bytes);
            cache.sectors.insert(sector, copy);
        }
        Ok(())
    }

    fn perform(&self, request: &mut Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let at = request.offset_bytes;
        match &mut request.transfer {
            Transfer::Read { data, .. } => {
                let mut whole = vec![0; data.iter().map(|slice| slice.len()).sum()];
                self.read(at, &mut whole, context)?;
                let mut rest = &whole[..];
                for slice in data.iter_mut() {
                    let (head, tail) = rest.split_at(slice.len());
                    slice.copy_from_slice(head);
                    rest = tail;
                }
                Ok(())
            }
            Transfer::Write { data, durable, .. } => {
                let whole: Vec<u8> = data.iter().flat_map(|slice| slice.iter().copied()).collect();
                self.write(at, &whole, *durable, context)
            }
            Transfer::Discard { length_bytes } => {
                let mut cache = self.cache.lock();
                (at / SECTOR..(at + *length_bytes) / SECTOR).for_each(|sector| _ = cache.sectors.remove(&sector));
                self.inner.block.discard_at(at, *length_bytes, context)
            }
        }
    }

    /// Bottoms written back after a top beside them that was written later.
    fn turned(&self) -> u64 {
        self.cache.lock().turned
    }
}

impl BlockDevice for WorstOrder {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        for request in requests {
            request.outcome = self.perform(request, context);
            result = result.and(request.outcome.clone());
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let mut cache = self.cache.lock();
        let tier = |sector: u64| self.tracks.track_at(sector * SECTOR).map(|track| self.tracks.tier(track));
        let sectors = std::mem::take(&mut cache.sectors);
        let (tops, bottoms): (Vec<_>, Vec<_>) =
            sectors.into_iter().partition(|(sector, _)| tier(*sector) != Some(TrackTier::Bottom));
        let written: BTreeSet<TrackId> =
            tops.iter().filter_map(|(sector, _)| self.tracks.track_at(sector * SECTOR)).collect();
        for (sector, data) in tops {
            self.inner.block.write_at(sector * SECTOR, &data, context)?;
        }
        for track in std::mem::take(&mut cache.freed) {
            self.inner.tracks.as_ref().expect("a disk with tracks").mark_free(track)?;
        }
        for (sector, data) in bottoms {
            let track = self.tracks.track_at(sector * SECTOR).expect("a track");
            cache.turned += u64::from(self.tracks.neighbours(track).any(|top| written.contains(&top)));
            self.inner.block.write_at(sector * SECTOR, &data, context)?;
        }
        self.inner.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

impl TrackControl for WorstOrder {
    fn describe(&self, track: TrackId) -> Result<TrackDescription, MediaError> {
        self.inner.tracks.as_ref().expect("a disk with tracks").describe(track)
    }

    fn report(&self, first: TrackId, count: u32) -> Result<Vec<TrackDescription>, MediaError> {
        self.inner.tracks.as_ref().expect("a disk with tracks").report(first, count)
    }

    fn mark_free(&self, track: TrackId) -> Result<(), MediaError> {
        self.cache.lock().freed.insert(track);
        self.inner.tracks.as_ref().expect("a disk with tracks").mark_free(track)
    }

    fn destroyed(&self) -> DestroyedData {
        self.inner.tracks.as_ref().expect("a disk with tracks").destroyed()
    }

    fn is_strict(&self) -> bool {
        true
    }
}

const USABLE: u32 = 40;

/// Tables by name, and what became of some.
#[derive(Default)]
struct Tables {
    whole: BTreeMap<String, (u64, u64)>,
    /// Removed or failed: there with these contents, empty, or not there.
    uncertain: BTreeMap<String, (u64, u64)>,
}

impl Tables {
    fn verify(&self, store: &ImrStore, note: &str) {
        for (name, &(file, bytes)) in &self.whole {
            let found = read(store, name).unwrap_or_else(|error| panic!("{note}: '{name}': {error}"));
            assert!(found == content(file, 0, bytes), "{note}: '{name}' is another");
        }
        for entry in store.list().unwrap().into_iter().filter(|entry| !self.whole.contains_key(&entry.name)) {
            let Some(&(file, bytes)) = self.uncertain.get(&entry.name) else {
                panic!("{note}: '{}' should not be there", entry.name)
            };
            if entry.size_bytes > 0 {
                assert!(read(store, &entry.name).unwrap() == content(file, 0, bytes), "{note}: '{}'", entry.name);
            }
        }
    }
}

/// What a workload under one fault did.
#[derive(Default)]
struct Ran {
    struck: u64,
    failed: u64,
    reopened: u64,
    rewrites: u64,
    restored: u64,
}

/// Removes and writes tables on a nearly full disk; after `quiet` writes the fault is there. What fails is removed,
/// and written again; a store that acknowledges nothing more is opened again, with the power on.
fn work(allocation: AllocationName, rewrite: RewriteName, seed: u64, fault: Option<Fault>) -> Ran {
    let note = format!("{allocation:?}, {rewrite:?}, seed {seed}, {fault:?}");
    let env = Env::sim(seed);
    let (disk, _) = formatted(&env, USABLE, allocation, rewrite);
    let (device, worst) = worst_order(&disk);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let faulty = FaultDevice::device(&injector, &device);
    let mut store = open(&env, &faulty);
    let mut random = Random::named(seed, "work");
    let mut tables = Tables::default();
    let mut ran = Ran::default();
    for number in 0..u64::from(USABLE) - 2 {
        write(&store, &format!("t{number}"), number, TRACK_BYTES, Some(random.below(3) as u8)).unwrap();
        tables.whole.insert(format!("t{number}"), (number, TRACK_BYTES));
    }
    if let Some(fault) = fault {
        injector.set_plan(FaultPlan::of(fault));
    }
    for step in 0..14 {
        for _ in 0..2 {
            let names: Vec<String> = tables.whole.keys().cloned().collect();
            let name = &names[random.index(names.len())];
            let table = tables.whole.remove(name).unwrap();
            tables.uncertain.insert(name.clone(), table);
            // A store that is poisoned takes no removal.
            let _ = store.remove(name);
        }
        let (name, bytes) = (format!("n{step}"), 1 + random.below(2 * TRACK_BYTES));
        let level = random.chance(4, 5).then(|| random.below(4) as u8);
        match write(&store, &name, 1000 + step, bytes, level) {
            Ok(()) => drop(tables.whole.insert(name, (1000 + step, bytes))),
            Err(error) => {
                assert!(!error.to_string().contains("would destroy"), "{note}, step {step}: {error}");
                ran.failed += 1;
                let _ = store.remove(&name);
                tables.uncertain.insert(name, (1000 + step, bytes));
            }
        }
        if store.core.check().is_err() {
            // Another process would do the same: the disk keeps what it was given.
            ran.reopened += 1;
            ran.rewrites += store.statistics().rewrites;
            injector.set_plan(FaultPlan::default());
            std::mem::forget(store);
            store = ImrStore::open(&env, faulty.clone(), &ImrOpenOptions::default())
                .unwrap_or_else(|error| panic!("{note}, step {step}: {error}"));
            ran.restored += store.statistics().restored_at_open;
            // What came back is taken as it is.
            let there: BTreeSet<String> = store.list().unwrap().into_iter().map(|entry| entry.name).collect();
            tables.uncertain.retain(|name, _| there.contains(name));
            for name in tables.uncertain.keys() {
                store.remove(name).unwrap();
            }
            tables.verify(&store, &note);
        }
    }
    ran.struck = injector.injected();
    ran.rewrites += store.statistics().rewrites;
    injector.set_plan(FaultPlan::default());
    tables.verify(&store, &note);
    drop(store);
    // Tops that nobody needs may be among them after a failure.
    assert!(ran.failed > 0 || worst.turned() == 0, "{note}: {} bottoms after tops beside them", worst.turned());
    let store = open(&env, &device);
    tables.verify(&store, &note);
    assert_clean(&store);
    assert_eq!(disk.tracks.as_ref().unwrap().destroyed().bytes, 0, "{note}");
    ran
}

#[test]
fn the_worst_order_within_a_sync_loses_nothing() {
    for &allocation in AllocationName::ALL {
        for &rewrite in RewriteName::ALL {
            for seed in 0..4 {
                let ran = work(allocation, rewrite, seed, None);
                assert!(ran.rewrites >= 4 && ran.failed == 0, "{} rewrites, {} failed", ran.rewrites, ran.failed);
            }
        }
    }
}

/// A call fails, once: what the failed step wrote is in the cache of the disk when the next table is written, or
/// when the store is opened again.
#[test]
fn what_a_failed_step_left_in_the_cache_of_the_disk_harms_nobody() {
    let mut all = Ran::default();
    for (number, allocation) in (0..).zip(AllocationName::ALL.iter().copied()) {
        for &rewrite in RewriteName::ALL {
            for operation in [Operation::Read, Operation::Write, Operation::Sync] {
                let errors: &[FaultError] = match operation {
                    Operation::Read => &[FaultError::Io, FaultError::Unreadable],
                    Operation::Write => &[FaultError::Io, FaultError::NoSpace],
                    _ => &[FaultError::Io],
                };
                // Some calls, each policy others.
                for call in (number..90).step_by(15) {
                    for &error in errors {
                        for effect in [FaultEffect::Fail(error), FaultEffect::FailAfter(error)] {
                            let fault = Fault::new(operation, FaultTrigger::Once(call), effect);
                            let ran = work(allocation, rewrite, call, Some(fault));
                            all.struck += ran.struck;
                            all.failed += ran.failed;
                            all.reopened += ran.reopened;
                            all.restored += ran.restored;
                        }
                    }
                }
            }
        }
    }
    println!(
        "reached: store imr/rewrites: {} faults, {} writes failed, {} stores opened again, {} tops restored",
        all.struck, all.failed, all.reopened, all.restored
    );
    assert!(all.struck >= 300 && all.failed >= 100 && all.reopened >= 50 && all.restored >= 80);
}

/// A table fails when one of its bottoms is written and not synced; the next table gets the top beside it.
#[test]
fn a_bottom_written_in_vain_harms_no_top_written_after_it() {
    let env = Env::sim(1);
    let (disk, _) = formatted(&env, 20, AllocationName::CompactionAware, RewriteName::Naive);
    let (device, _) = worst_order(&disk);
    let injector = FaultInjector::new(&env, FaultPlan::default());
    let store = open(&env, &FaultDevice::device(&injector, &device));
    let first = store.core.geometry.usable().start;
    // Every track a table: tops, then bottoms.
    for number in 0..20 {
        write(&store, &number.to_string(), number, TRACK_BYTES, Some(0)).unwrap();
    }
    let on =
        |track: u32| (0..20).map(|number| number.to_string()).find(|name| tracks(&store, name) == [track]).unwrap();
    let free: Vec<String> = [0, 1, 2, 7].map(|number| on(first + number)).into();
    free.iter().for_each(|name| store.remove(name).unwrap());
    store.sync_names().unwrap();
    store.core.state.lock().cursor = Default::default();
    // The first bottom costs nothing; the tops beside the second cannot be read.
    injector.set_plan(FaultPlan::of(Fault::new(
        Operation::Read,
        FaultTrigger::From(0),
        FaultEffect::Fail(FaultError::Io),
    )));
    let error = write(&store, "fails", 77, 2 * TRACK_BYTES, Some(3)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Io, "{error}");
    injector.set_plan(FaultPlan::default());
    write(&store, "next", 78, 2 * TRACK_BYTES, Some(0)).unwrap();
    assert_eq!(tracks(&store, "next"), [first, first + 2]);
    assert_eq!(read(&store, "next").unwrap(), content(78, 0, 2 * TRACK_BYTES));
    assert_clean(&store);
}

/// Tops are away, and the open that is to restore them fails, at each of its calls; the next one does it. A copy that
/// cannot be read is as little given up as one whose read fails otherwise.
#[test]
fn an_open_that_fails_while_tops_are_away_is_tried_again() {
    let mut failed = 0;
    for &rewrite in RewriteName::ALL {
        for (operation, error) in [
            (Operation::Read, FaultError::Io),
            (Operation::Read, FaultError::Unreadable),
            (Operation::Write, FaultError::Io),
            (Operation::Sync, FaultError::Io),
        ] {
            for call in 0.. {
                let env = Env::sim(1);
                let (disk, _) = formatted(&env, 24, AllocationName::ThreePhase, rewrite);
                let (device, _) = worst_order(&disk);
                let injector = FaultInjector::new(&env, FaultPlan::default());
                let faulty = FaultDevice::device(&injector, &device);
                let store = open(&env, &faulty);
                for number in 0..24 {
                    write(&store, &number.to_string(), number, TRACK_BYTES, None).unwrap();
                }
                let on_bottoms = (0..24).filter(|number| tracks(&store, &number.to_string())[0].is_multiple_of(2));
                let removed: Vec<u64> = on_bottoms.take(3).collect();
                removed.iter().for_each(|number| store.remove(&number.to_string()).unwrap());
                store.sync_names().unwrap();
                // Backup, bottoms, and then no write any more.
                let lost = FaultEffect::Fail(FaultError::Io);
                let from = if rewrite == RewriteName::Naive { 3 } else { 8 };
                injector.set_plan(FaultPlan::of(Fault::new(Operation::Write, FaultTrigger::From(from), lost)));
                write(&store, "new", 99, 3 * TRACK_BYTES, None).unwrap_err();
                store.core.check().unwrap_err();
                std::mem::forget(store);
                let before = injector.injected();
                let fails = FaultEffect::Fail(error);
                injector.set_plan(FaultPlan::of(Fault::new(operation, FaultTrigger::From(call), fails)));
                let opened = ImrStore::open(&env, faulty, &ImrOpenOptions::default());
                let struck = injector.injected() > before;
                assert!(struck || opened.is_ok());
                failed += u64::from(opened.is_err());
                std::mem::forget(opened);
                let store = open(&env, &device);
                for number in (0..24).filter(|number| !removed.contains(number)) {
                    let found = read(&store, &number.to_string());
                    assert_eq!(
                        found.unwrap(),
                        content(number, 0, TRACK_BYTES),
                        "{rewrite:?} {operation} {error:?} {call}"
                    );
                }
                assert_clean(&store);
                if !struck {
                    break;
                }
            }
        }
    }
    assert!(failed > 40, "{failed} opens failed");
}

/// A store ends with a bottom written and not synced; the next one gives the top beside it to a table. Logs and map
/// lie on the disk or beside it, where their syncs are none of the disk.
#[test]
fn a_bottom_of_an_earlier_process_harms_no_top_written_after_it() {
    for is_beside in [false, true] {
        let env = Env::sim(1);
        let options = options(AllocationName::CompactionAware, RewriteName::Merged);
        let (disk, _) = disk(&env, zone_tracks(20) + 20);
        let (device, _) = worst_order(&disk);
        let logs = Device::of_blocks(Arc::new(Emulated::immediate(&env, "logs", 8 << 20)));
        let logs = is_beside.then_some(logs);
        ImrStore::format(&env, ImrDevices { disk: device.clone(), logs: logs.clone() }, &options).unwrap();
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let faulty = ImrDevices { disk: FaultDevice::device(&injector, &device), logs: logs.clone() };
        let store = ImrStore::open(&env, faulty, &ImrOpenOptions::default()).unwrap();
        let first = store.core.geometry.usable().start;
        write(&store, "largest", 76, TRACK_BYTES, Some(5)).unwrap();
        let lost = Fault::new(Operation::Sync, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
        injector.set_plan(FaultPlan::of(lost));
        write(&store, "fails", 77, 2 * TRACK_BYTES, Some(5)).unwrap_err();
        // Small files on that disk are told at once; on a device of their own they go on.
        assert_eq!(store.core.packed_files.sync_names().is_err(), !is_beside);
        std::mem::forget(store);
        let again = ImrDevices { disk: device, logs };
        let store = ImrStore::open(&env, again, &ImrOpenOptions::default()).unwrap();
        // Levels are known again when the tree says them.
        write(&store, "next", 78, 2 * TRACK_BYTES, None).unwrap();
        assert_eq!(tracks(&store, "next"), [first, first + 2]);
        assert_eq!(read(&store, "next").unwrap(), content(78, 0, 2 * TRACK_BYTES));
        assert_clean(&store);
    }
}
