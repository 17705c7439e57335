//! The suites over the tables of stores and devices, and over what they must find.

use super::canary::{Canary, Defect};
use super::subject::Image;
use super::*;
use crate::extent::{ExtentFormatOptions, ExtentStore};
use crate::imr::{ImrFormatOptions, ImrOpenOptions, ImrStore};
use crate::plain;
use std::collections::BTreeSet;
use varve_env::SimOptions;
use varve_media::{
    BlockDevice, CrashVariant, Device, FaultDevice, FaultInjector, FileDevice, FileDeviceOptions, Interlaced,
    TrackGeometry,
};

const CAPACITY_BYTES: u64 = 16 << 20;

/// The tests of a store.
macro_rules! suites {
    ($store:path) => {
        crate::conformance::tests::suites!(
            $store:
            keeps_the_contract,
            keeps_the_contract_in_odd_schedules,
            keeps_the_contract_in_the_real_world,
            survives_power_cuts,
            survives_failing_io,
            survives_flipped_bits,
            survives_openings_whose_io_fails,
            acknowledges_nothing_beside_a_sync_that_fails,
            does_the_same_with_the_same_seed,
        );
    };
    ($store:path: $($suite:ident,)*) => {
        $(#[test]
        fn $suite() {
            crate::conformance::tests::$suite(&$store);
        })*
    };
}
pub(super) use suites;

/// The subjects of a store for which `wanted` is so, with their numbers.
fn subjects(store: &TestedStore, wanted: fn(&Effort) -> bool) -> impl Iterator<Item = (u64, TestedSubject)> {
    (1..).zip((store.subjects)()).filter(move |(_, tested)| wanted(&tested.effort))
}

fn perturbed(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, perturb: true, ..SimOptions::default() })
}

/// Says what was reached, as the checks below do.
fn check_contract(env: &Env, subject: &dyn Subject) {
    let failures = conformance(env, subject);
    println!("reached: store conformance/contract: 1 stores");
    assert!(failures.is_empty(), "{failures:#?}");
}

pub(super) fn keeps_the_contract(store: &TestedStore) {
    for (_, TestedSubject { subject, .. }) in subjects(store, |_| true) {
        check_contract(&Env::sim(1), &*subject);
    }
}

pub(super) fn keeps_the_contract_in_odd_schedules(store: &TestedStore) {
    for (number, TestedSubject { subject, effort }) in subjects(store, |effort| effort.schedules > 0) {
        for seed in number + 1..=number + effort.schedules {
            check_contract(&perturbed(seed), &*subject);
        }
    }
}

pub(super) fn keeps_the_contract_in_the_real_world(store: &TestedStore) {
    for (_, TestedSubject { subject, .. }) in subjects(store, |effort| effort.schedules > 1) {
        check_contract(&Env::real(), &*subject);
    }
}

pub(super) fn survives_power_cuts(store: &TestedStore) {
    for (number, TestedSubject { subject, effort }) in subjects(store, |effort| effort.histories > 0) {
        for seed in number..number + effort.histories {
            let Effort { operations, images_of_point, recoveries, .. } = effort;
            let suite = CrashSuite { seed, operations, images_of_point, recoveries };
            let report = suite.run(&Env::sim(seed), &*subject);
            let CrashReport { points, images, cuts_in_recovery, cuts_in_second_recovery, failures } = report;
            println!(
                "reached: store conformance/power cuts: {points} points, {images} images, {cuts_in_recovery} cuts of \
                 recoveries, {cuts_in_second_recovery} of second ones"
            );
            assert!(failures.is_empty(), "{}: {failures:#?}", subject.name());
            assert!(points > 50 && images >= points * images_of_point, "{}: {points}, {images}", subject.name());
        }
    }
}

pub(super) fn survives_failing_io(store: &TestedStore) {
    for (number, TestedSubject { subject, effort }) in subjects(store, |effort| effort.fault_stride > 0) {
        let report = faults(&Env::sim(number), &*subject, effort.fault_stride);
        println!("reached: store conformance/faults: {} runs, {} faults", report.runs, report.injected);
        assert!(report.failures.is_empty(), "{}: {:#?}", subject.name(), report.failures);
        assert!(report.injected > 50, "{}: {} faults", subject.name(), report.injected);
    }
}

pub(super) fn survives_flipped_bits(store: &TestedStore) {
    for (_, TestedSubject { subject, effort }) in subjects(store, |effort| effort.damage_stride > 0) {
        let report = damage(&Env::sim(1), &*subject, effort.damage_stride);
        let DamageReport { flips, right, errors, contents, failures } = report;
        println!(
            "reached: store conformance/damage: {flips} flips, {right} harmless, {errors} errors, {contents} in contents"
        );
        assert!(failures.is_empty(), "{}: {failures:#?}", subject.name());
    }
}

pub(super) fn does_the_same_with_the_same_seed(store: &TestedStore) {
    for (_, TestedSubject { subject, .. }) in subjects(store, |effort| effort.is_repeated) {
        let run = || {
            let env = Env::sim(7);
            let failures = conformance(&env, &*subject);
            let suite = CrashSuite { seed: 7, operations: 40, images_of_point: 3, recoveries: 3 };
            let report = suite.run(&env, &*subject);
            (failures, report, env.event_hash(), env.now())
        };
        assert_eq!(run(), run(), "{}", subject.name());
    }
}

/// Opens stores while their I/O fails.
fn check_opening(suite: OpeningSuite, subject: &dyn Subject) {
    let report = suite.run(&Env::sim(suite.seed), subject);
    let OpeningReport { states, runs, injected, refused, unreadable, .. } = report;
    println!(
        "reached: store conformance/openings: {states} states, {runs} openings, {injected} faults, {refused} refused, \
         {unreadable} files unreadable"
    );
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(states > 2 && runs > 50, "{}: {states} states, {runs} openings", subject.name());
}

pub(super) fn survives_openings_whose_io_fails(store: &TestedStore) {
    for (seed, TestedSubject { subject, .. }) in subjects(store, |effort| effort.is_opened_under_faults) {
        check_opening(OpeningSuite { seed, cuts: 2, calls: 12, sectors: 24, pairs: 8 }, &*subject);
    }
}

/// The same without bounds: `VARVE_SEED` says where it begins.
#[test]
#[ignore = "runs long; the soak runs it"]
fn openings_whose_io_fails_lose_nothing_at_length() {
    let first = std::env::var("VARVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for (seed, TestedSubject { subject, .. }) in (first..).zip(STORES.iter().flat_map(|store| (store.subjects)())) {
        check_opening(OpeningSuite { seed, cuts: 12, calls: u64::MAX, sectors: 400, pairs: 100 }, &*subject);
    }
}

pub(super) fn acknowledges_nothing_beside_a_sync_that_fails(store: &TestedStore) {
    const SAME: [[FileKind; 2]; 2] = [[FileKind::Log, FileKind::Log], [FileKind::Table, FileKind::Table]];
    const ALL: [[FileKind; 2]; 4] =
        [SAME[0], SAME[1], [FileKind::Log, FileKind::Table], [FileKind::Table, FileKind::Log]];
    for (_, TestedSubject { subject, .. }) in subjects(store, |_| true) {
        // Of two devices each fails by itself.
        let kinds = if subject.device_count() > 1 { &SAME[..] } else { &ALL[..] };
        for env in [Env::sim(1), perturbed(2), perturbed(3), perturbed(4), perturbed(5)] {
            let report = late_failure(&env, &*subject, kinds);
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            assert!(report.runs > 0, "{}: no sync failed", subject.name());
        }
    }
}

#[test]
fn stores_and_what_they_are_tested_on_have_names_of_their_own() {
    let stores: BTreeSet<&str> = STORES.iter().map(|store| store.name).collect();
    let subjects: Vec<String> =
        STORES.iter().flat_map(|store| (store.subjects)()).map(|tested| tested.subject.name()).collect();
    let names: BTreeSet<&String> = subjects.iter().collect();
    assert_eq!((stores.len(), names.len()), (STORES.len(), subjects.len()), "{subjects:#?}");
}

/// A store on a file of the machine, with O_DIRECT where the file system can.
#[derive(Clone, Copy)]
struct OnFile {
    name: &'static str,
    /// Bytes of bottom and top tracks.
    tracks: Option<(u64, u64)>,
    format: fn(&Env, &Device) -> Result<(), StoreError>,
    open: fn(&Env, Device) -> Result<Arc<dyn FileStore>, StoreError>,
}

struct FileMedium {
    env: Env,
    subject: OnFile,
    place: tempfile::TempDir,
}

impl Subject for OnFile {
    fn name(&self) -> String {
        format!("{} on a file", self.name)
    }

    fn device_count(&self) -> usize {
        1
    }

    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError> {
        let place = tempfile::tempdir().expect("a place for files");
        let medium = FileMedium { env: env.clone(), subject: *self, place };
        (self.format)(env, &medium.device())?;
        Ok(Box::new(medium))
    }
}

impl FileMedium {
    fn device(&self) -> Device {
        let capacity_bytes = if self.subject.tracks.is_some() { 2 * CAPACITY_BYTES } else { CAPACITY_BYTES };
        let options =
            FileDeviceOptions { capacity_bytes: Some(capacity_bytes), create: true, ..FileDeviceOptions::default() };
        let file: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::open(self.place.path().join("disk"), &options).expect("a device"));
        match self.subject.tracks.and_then(|(bottom, top)| TrackGeometry::fit(capacity_bytes, bottom, top)) {
            Some(tracks) => Interlaced::new(&tracks, 4096, true).over(&file),
            None => Device::of_blocks(file),
        }
    }
}

impl Medium for FileMedium {
    fn open(&self) -> Result<Arc<dyn FileStore>, StoreError> {
        (self.subject.open)(&self.env, self.device())
    }

    fn open_with_faults(&self, injector: &FaultInjector) -> Result<Arc<dyn FileStore>, StoreError> {
        (self.subject.open)(&self.env, FaultDevice::device(injector, &self.device()))
    }

    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, StoreError> {
        // The file is locked as long as the process lives, so this one has to go on.
        Ok(store)
    }

    fn variants(&self) -> &'static [CrashVariant] {
        &[]
    }

    fn capture(&self) -> Box<dyn Image> {
        unreachable!("nobody cuts the power of this machine")
    }

    fn observe(&self, _observer: Box<dyn FnMut(Box<dyn Image>) + Send>) {}

    fn flip(&self, _offset_bytes: u64, _bit: u8) {}

    fn stored_bytes(&self) -> Vec<u64> {
        Vec::new()
    }

    fn stored_sectors(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    fn fingerprint(&self) -> u32 {
        unreachable!("nobody compares files of this machine")
    }
}

#[test]
fn stores_keep_the_contract_on_a_real_file() {
    let first_fit = OnFile {
        name: "extent",
        tracks: None,
        format: |env, device| ExtentStore::format(env, device, &ExtentFormatOptions::default()),
        open: |env, device| Ok(Arc::new(ExtentStore::open(env, device)?)),
    };
    // Buffers in memory that the device can take, on tracks of two sizes.
    let interlaced = OnFile {
        name: "imr",
        tracks: Some((40 << 10, 32 << 10)),
        format: |env, device| {
            let options = ImrFormatOptions {
                table_bytes_max: Some(128 << 10),
                small_files_bytes: Some(6 << 20),
                ..ImrFormatOptions::default()
            };
            ImrStore::format(env, device, &options)
        },
        open: |env, device| Ok(Arc::new(ImrStore::open(env, device, &ImrOpenOptions::default())?)),
    };
    for subject in [first_fit, interlaced] {
        check_contract(&Env::real(), &subject);
    }
}

/// A subject whose stores are spoiled.
struct Spoiled<S> {
    inner: S,
    defect: Defect,
}

impl<S: Subject> Subject for Spoiled<S> {
    fn name(&self) -> String {
        format!("{:?}", self.defect)
    }

    fn device_count(&self) -> usize {
        self.inner.device_count()
    }

    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError> {
        Ok(Box::new(SpoiledMedium { inner: self.inner.medium(env)?, defect: self.defect }))
    }
}

struct SpoiledMedium {
    inner: Box<dyn Medium>,
    defect: Defect,
}

impl Medium for SpoiledMedium {
    fn open(&self) -> Result<Arc<dyn FileStore>, StoreError> {
        Ok(Arc::new(Canary::new(self.inner.open()?, self.defect)))
    }

    fn open_with_faults(&self, injector: &FaultInjector) -> Result<Arc<dyn FileStore>, StoreError> {
        Ok(Arc::new(Canary::new(self.inner.open_with_faults(injector)?, self.defect)))
    }

    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, StoreError> {
        std::mem::forget(store);
        self.open()
    }

    fn variants(&self) -> &'static [CrashVariant] {
        self.inner.variants()
    }

    fn capture(&self) -> Box<dyn Image> {
        self.inner.capture()
    }

    fn observe(&self, observer: Box<dyn FnMut(Box<dyn Image>) + Send>) {
        self.inner.observe(observer);
    }

    fn flip(&self, offset_bytes: u64, bit: u8) {
        self.inner.flip(offset_bytes, bit);
    }

    fn stored_bytes(&self) -> Vec<u64> {
        self.inner.stored_bytes()
    }

    fn stored_sectors(&self) -> BTreeSet<u64> {
        self.inner.stored_sectors()
    }

    fn fingerprint(&self) -> u32 {
        self.inner.fingerprint()
    }
}

#[test]
fn the_suites_catch_stores_that_break_the_contract() {
    for defect in Defect::OF_CONTRACT {
        let failures = conformance(&Env::sim(1), &Spoiled { inner: plain::conformance::subject(1), defect });
        assert!(!failures.is_empty(), "{defect:?} goes unnoticed");
    }
    for defect in Defect::OF_DURABILITY {
        let suite = CrashSuite { seed: 1, operations: 90, images_of_point: 10, recoveries: 0 };
        let report = suite.run(&Env::sim(1), &Spoiled { inner: plain::conformance::subject(1), defect });
        assert!(!report.failures.is_empty(), "{defect:?} goes unnoticed");
    }
}
