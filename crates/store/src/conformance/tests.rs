//! The suites over the stores of this crate. A later store joins by one line in [`subjects`].

use super::canary::{Canary, Defect};
use super::subject::Image;
use super::*;
use crate::band::{BandFormatOptions, BandStore};
use crate::extent::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore};
use crate::imr::{AllocationName, ImrDevices, ImrFormatOptions, ImrOpenOptions, ImrPlace, ImrStore, RewriteName};
use crate::plain::{PlainOptions, PlainStore};
use std::collections::BTreeSet;
use varve_media::{
    BlockDevice, CrashVariant, Device, Directory, FaultDevice, FaultInjector, FileDevice, FileDeviceOptions,
    Interlaced, MemoryDirectoryOptions, TrackGeometry, ZoneGeometry, ZoneType,
};

const CAPACITY_BYTES: u64 = 16 << 20;

fn plain(env: &Env, directory: Arc<dyn Directory>) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(PlainStore::open(env, directory, PlainOptions::default())))
}

fn extent(env: &Env, device: Device) -> Result<Arc<dyn FileStore>, StoreError> {
    Ok(Arc::new(ExtentStore::open(env, device)?))
}

fn format(env: &Env, device: &Device, layout: ExtentLayout) -> Result<(), StoreError> {
    ExtentStore::format(env, device, &ExtentFormatOptions { layout, overwrite: true })
}

fn format_ext4(env: &Env, device: &Device) -> Result<(), StoreError> {
    let options = Ext4Options { group_bytes: 1 << 20, journal_bytes: Some(256 << 10) };
    format(env, device, ExtentLayout::Ext4(options))
}

fn subjects() -> Vec<Box<dyn Subject>> {
    let directory = |name, direct_alignment_bytes| DirectorySubject {
        name,
        options: MemoryDirectoryOptions { capacity_bytes: Some(CAPACITY_BYTES), direct_alignment_bytes },
        open: plain,
    };
    let device = |name, physical_sector_bytes, discards, ending, format| DeviceSubject {
        name,
        capacity_bytes: CAPACITY_BYTES,
        physical_sector_bytes,
        track_bytes: None,
        zones: None,
        discards,
        ending,
        format,
        open: extent,
    };
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(directory("plain", 1)),
        Box::new(directory("plain", 512)),
        Box::new(device("extent", 512, true, Ending::Forget, |env, device| {
            format(env, device, ExtentLayout::FirstFit)
        })),
        Box::new(device("extent", 4096, false, Ending::Forget, |env, device| {
            format(env, device, ExtentLayout::FirstFit)
        })),
        Box::new(device("nextfit", 4096, true, Ending::Forget, |env, device| {
            format(env, device, ExtentLayout::NextFit)
        })),
        Box::new(device("ext4", 512, false, Ending::Keep, format_ext4)),
        Box::new(device("ext4", 4096, true, Ending::Keep, format_ext4)),
    ];
    // Those that differ most; all of them have tests of their own below.
    subjects.extend(
        imr_subjects()
            .into_iter()
            .filter(|subject| ["imr 3phase naive", "imr kvimr-m"].iter().any(|name| subject.name().starts_with(name))),
    );
    subjects
}

/// The same store in its other places: logs beside the disk, with the map and without, and on a conventional disk.
fn imr_pair_subjects() -> Vec<Box<dyn Subject>> {
    fn options(allocation: AllocationName, rewrite: RewriteName) -> ImrFormatOptions {
        ImrFormatOptions {
            allocation,
            rewrite,
            table_bytes_max: Some(128 << 10),
            overwrite: true,
            ..ImrFormatOptions::default()
        }
    }
    fn open(env: &Env, disk: Device, logs: Device) -> Result<Arc<dyn FileStore>, StoreError> {
        Ok(Arc::new(ImrStore::open(env, ImrDevices { disk, logs: Some(logs) }, &ImrOpenOptions::default())?))
    }
    fn format(env: &Env, disk: &Device, logs: &Device, options: &ImrFormatOptions) -> Result<(), StoreError> {
        ImrStore::format(env, ImrDevices::with_logs(disk, logs), options)
    }
    let disk = |name, physical_sector_bytes, track_bytes, discards| DeviceSubject {
        name,
        capacity_bytes: 20 << 20,
        physical_sector_bytes,
        track_bytes,
        zones: None,
        discards,
        ending: Ending::Forget,
        format: |_, _| Ok(()),
        open: |env, device| Ok(Arc::new(ImrStore::open(env, device, &ImrOpenOptions::default())?)),
    };
    use AllocationName::{CompactionAware, ThreePhase};
    use RewriteName::{Merged, Naive};
    type Format = fn(&Env, &Device, &Device) -> Result<(), StoreError>;
    let pair = |disk, format: Format| {
        Box::new(PairSubject { disk, logs_capacity_bytes: 8 << 20, format, open }) as Box<dyn Subject>
    };
    vec![
        pair(disk("imr kvimr-m on tracks of two sizes", 4096, Some((20 << 10, 16 << 10)), true), |env, disk, logs| {
            format(env, disk, logs, &options(CompactionAware, Merged))
        }),
        pair(disk("imr kvimr-n, map inside,", 512, Some((8 << 10, 8 << 10)), true), |env, disk, logs| {
            let options = ImrFormatOptions { map: ImrPlace::Inside, ..options(CompactionAware, Naive) };
            format(env, disk, logs, &options)
        }),
        pair(disk("imr conventional", 4096, None, false), |env, disk, logs| {
            let options = ImrFormatOptions { conventional_track_bytes: Some(8 << 10), ..options(ThreePhase, Naive) };
            format(env, disk, logs, &options)
        }),
        Box::new(DeviceSubject {
            capacity_bytes: 28 << 20,
            format: |env, disk| {
                let options = ImrFormatOptions {
                    conventional_track_bytes: Some(8 << 10),
                    small_files_bytes: Some(6 << 20),
                    ..options(ThreePhase, Merged)
                };
                ImrStore::format(env, disk, &options)
            },
            ..disk("imr conventional", 512, None, true)
        }),
    ]
}

/// The store of zoned devices: of a shingled disk, of a namespace with limits, and of a host-aware disk.
fn band_subjects() -> Vec<Box<dyn Subject>> {
    fn zones() -> ZoneGeometry {
        let all = ZoneGeometry::fit(24 << 20, 64 << 10).expect("zones");
        ZoneGeometry { conventional_zones: 16, ..all }
    }
    fn limited() -> ZoneGeometry {
        ZoneGeometry { zone_capacity_bytes: 48 << 10, open_zones_max: 6, active_zones_max: 8, ..zones() }
    }
    fn preferred() -> ZoneGeometry {
        ZoneGeometry { sequential_type: ZoneType::SequentialWritePreferred, open_zones_max: 4, ..zones() }
    }
    // Smaller than what is written at once: log bands come and go all the time.
    fn tiny() -> ZoneGeometry {
        let all = ZoneGeometry::fit(24 << 20, 16 << 10).expect("zones");
        ZoneGeometry { conventional_zones: 128, ..all }
    }
    fn tiny_within_limits() -> ZoneGeometry {
        ZoneGeometry { zone_capacity_bytes: 12 << 10, open_zones_max: 6, active_zones_max: 8, ..tiny() }
    }
    fn format(env: &Env, device: &Device, table_bytes: Option<u64>) -> Result<(), StoreError> {
        let options = BandFormatOptions { overwrite: true, table_bytes, ..BandFormatOptions::default() };
        BandStore::format(env, device, &options)
    }
    type Format = fn(&Env, &Device) -> Result<(), StoreError>;
    let of_format = |name, physical_sector_bytes, zones, format: Format| {
        Box::new(DeviceSubject {
            name,
            capacity_bytes: 24 << 20,
            physical_sector_bytes,
            track_bytes: None,
            zones: Some(zones),
            discards: true,
            ending: Ending::Forget,
            format,
            open: |env, device| Ok(Arc::new(BandStore::open(env, device)?)),
        }) as Box<dyn Subject>
    };
    let subject = |name, physical_sector_bytes, zones| {
        of_format(name, physical_sector_bytes, zones, |env, device| format(env, device, None))
    };
    let variable = |name, physical_sector_bytes, zones| {
        of_format(name, physical_sector_bytes, zones, |env, device| format(env, device, Some(64 << 10)))
    };
    vec![
        subject("band", 4096, zones as fn() -> ZoneGeometry),
        subject("band within limits", 4096, limited),
        subject("band on preferred zones", 512, preferred),
        subject("band of small zones", 512, tiny),
        variable("bands of variable size", 512, tiny),
        variable("bands of variable size within limits", 4096, tiny_within_limits),
    ]
}

/// The store of interlaced disks: every policy, both rewrites.
fn imr_subjects() -> Vec<Box<dyn Subject>> {
    fn format(env: &Env, device: &Device, allocation: AllocationName, rewrite: RewriteName) -> Result<(), StoreError> {
        let options = ImrFormatOptions {
            allocation,
            rewrite,
            table_bytes_max: Some(128 << 10),
            small_files_bytes: Some(6 << 20),
            overwrite: true,
            ..ImrFormatOptions::default()
        };
        ImrStore::format(env, device, &options)
    }
    fn open(env: &Env, device: Device) -> Result<Arc<dyn FileStore>, StoreError> {
        Ok(Arc::new(ImrStore::open(env, device, &ImrOpenOptions::default())?))
    }
    type Format = fn(&Env, &Device) -> Result<(), StoreError>;
    let subject = |name, physical_sector_bytes, format: Format| {
        Box::new(DeviceSubject {
            name,
            capacity_bytes: 28 << 20,
            physical_sector_bytes,
            track_bytes: Some((8 << 10, 8 << 10)),
            zones: None,
            discards: true,
            ending: Ending::Forget,
            format,
            open,
        }) as Box<dyn Subject>
    };
    use AllocationName::{CompactionAware, Region, Sequential, ThreePhase, Zigzag};
    use RewriteName::{Merged, Naive};
    vec![
        subject("imr seq naive", 512, |env, device| format(env, device, Sequential, Naive)),
        subject("imr seq merged", 4096, |env, device| format(env, device, Sequential, Merged)),
        subject("imr 3phase naive", 4096, |env, device| format(env, device, ThreePhase, Naive)),
        subject("imr 3phase merged", 512, |env, device| format(env, device, ThreePhase, Merged)),
        subject("imr zigzag naive", 512, |env, device| format(env, device, Zigzag, Naive)),
        subject("imr zigzag merged", 4096, |env, device| format(env, device, Zigzag, Merged)),
        subject("imr region naive", 4096, |env, device| format(env, device, Region, Naive)),
        subject("imr region merged", 512, |env, device| format(env, device, Region, Merged)),
        subject("imr kvimr-n", 4096, |env, device| format(env, device, CompactionAware, Naive)),
        subject("imr kvimr-m", 512, |env, device| format(env, device, CompactionAware, Merged)),
    ]
}

/// Says what was reached, as the checks below do.
fn keeps_contract(env: &Env, subject: &dyn Subject) {
    let failures = conformance(env, subject);
    println!("reached: store conformance/contract: 1 stores");
    assert!(failures.is_empty(), "{failures:#?}");
}

fn survives_cuts(suite: &CrashSuite, env: &Env, subject: &dyn Subject) -> CrashReport {
    let report = suite.run(env, subject);
    let CrashReport { points, images, cuts_in_recovery, cuts_in_second_recovery, failures } = &report;
    println!(
        "reached: store conformance/power cuts: {points} points, {images} images, {cuts_in_recovery} cuts of recoveries, \
         {cuts_in_second_recovery} of second ones"
    );
    assert!(failures.is_empty(), "{}: {failures:#?}", subject.name());
    report
}

fn survives_faults(env: &Env, subject: &dyn Subject, stride: u64) -> FaultReport {
    let report = faults(env, subject, stride);
    println!("reached: store conformance/faults: {} runs, {} faults", report.runs, report.injected);
    assert!(report.failures.is_empty(), "{}: {:#?}", subject.name(), report.failures);
    report
}

fn survives_damage(env: &Env, subject: &dyn Subject, stride: u64) {
    let DamageReport { flips, right, errors, contents, failures } = damage(env, subject, stride);
    println!(
        "reached: store conformance/damage: {flips} flips, {right} harmless, {errors} errors, {contents} in contents"
    );
    assert!(failures.is_empty(), "{}: {failures:#?}", subject.name());
}

fn assert_conforms(env: &Env) {
    for subject in subjects() {
        keeps_contract(env, &*subject);
    }
}

#[test]
fn every_store_keeps_the_contract_in_a_simulation() {
    assert_conforms(&Env::sim(1));
}

#[test]
fn every_store_keeps_the_contract_in_odd_schedules() {
    for seed in 2..5 {
        assert_conforms(&Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..Default::default() }));
    }
}

#[test]
fn every_store_keeps_the_contract_in_the_real_world() {
    assert_conforms(&Env::real());
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
        format: |env, device| format(env, device, ExtentLayout::FirstFit),
        open: extent,
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
        keeps_contract(&Env::real(), &subject);
    }
}

#[test]
fn zoned_devices_keep_the_contract() {
    for subject in band_subjects() {
        let perturbed = |seed| Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..Default::default() });
        for env in [Env::sim(1), perturbed(2), perturbed(3), Env::real()] {
            keeps_contract(&env, &*subject);
        }
        survives_damage(&Env::sim(1), &*subject, 3);
    }
}

#[test]
fn zoned_devices_survive_power_cuts() {
    for (seed, subject) in (1..).zip(band_subjects()) {
        let suite = CrashSuite { seed, operations: 90, images_of_point: 10, recoveries: 15 };
        let report = survives_cuts(&suite, &Env::sim(seed), &*subject);
        assert!(report.points > 50 && report.images >= report.points * 10);
    }
}

#[test]
fn zoned_devices_survive_failing_io() {
    for (seed, subject) in (1..).zip(band_subjects()) {
        let report = survives_faults(&Env::sim(seed), &*subject, 3);
        assert!(report.injected > 100);
    }
}

#[test]
fn every_policy_on_interlaced_tracks_keeps_the_contract() {
    for subject in imr_subjects() {
        keeps_contract(&Env::sim(1), &*subject);
    }
}

#[test]
fn logs_beside_the_disk_and_conventional_disks_keep_the_contract() {
    for (seed, subject) in (1..).zip(imr_pair_subjects()) {
        let env = Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..Default::default() });
        keeps_contract(&env, &*subject);
        survives_damage(&Env::sim(1), &*subject, 3);
    }
}

#[test]
fn logs_beside_the_disk_and_conventional_disks_survive_power_cuts_and_failing_io() {
    for (seed, subject) in (1..).zip(imr_pair_subjects()) {
        let suite = CrashSuite { seed, operations: 90, images_of_point: 7, recoveries: 5 };
        let report = survives_cuts(&suite, &Env::sim(seed), &*subject);
        assert!(report.points > 50 && report.images >= report.points * 7);
        let report = survives_faults(&Env::sim(seed), &*subject, 11);
        assert!(report.injected > 50);
    }
}

#[test]
fn every_policy_on_interlaced_tracks_survives_power_cuts() {
    for (seed, subject) in (1..).zip(imr_subjects()) {
        let suite = CrashSuite { seed, operations: 60, images_of_point: 7, recoveries: 5 };
        let report = survives_cuts(&suite, &Env::sim(seed), &*subject);
        assert!(report.points > 50 && report.images >= report.points * 7);
    }
}

#[test]
fn every_store_survives_power_cuts() {
    for subject in subjects() {
        for seed in [1, 2] {
            let env = Env::sim(seed);
            let suite = CrashSuite { seed, operations: 90, images_of_point: 10, recoveries: 30 };
            let report = survives_cuts(&suite, &env, &*subject);
            assert!(report.points > 50 && report.images >= report.points * 10);
        }
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

fn plain_subject() -> DirectorySubject {
    let options = MemoryDirectoryOptions { capacity_bytes: Some(CAPACITY_BYTES), direct_alignment_bytes: 1 };
    DirectorySubject { name: "plain", options, open: plain }
}

#[test]
fn the_suites_catch_stores_that_break_the_contract() {
    for defect in Defect::OF_CONTRACT {
        let failures = conformance(&Env::sim(1), &Spoiled { inner: plain_subject(), defect });
        assert!(!failures.is_empty(), "{defect:?} goes unnoticed");
    }
    for defect in Defect::OF_DURABILITY {
        let suite = CrashSuite { seed: 1, operations: 90, images_of_point: 10, recoveries: 0 };
        let report = suite.run(&Env::sim(1), &Spoiled { inner: plain_subject(), defect });
        assert!(!report.failures.is_empty(), "{defect:?} goes unnoticed");
    }
}

#[test]
fn every_store_survives_failing_io() {
    for subject in subjects() {
        // Every call of the two that differ most; of the others some.
        let thorough =
            ["plain with alignment 1", "extent on sectors of 4096 without discard"].contains(&subject.name().as_str());
        let stride = match (thorough, subject.name().starts_with("imr")) {
            (true, _) => 1,
            (_, true) => 7,
            _ => 3,
        };
        let report = survives_faults(&Env::sim(1), &*subject, stride);
        assert!(report.injected > 100);
    }
}

#[test]
fn a_flipped_bit_is_an_error_or_makes_no_difference() {
    for subject in subjects() {
        survives_damage(&Env::sim(1), &*subject, 1);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for subject in subjects() {
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

/// Opens stores while their I/O fails. Prints what it reached, and fails with what was wrong.
fn assert_openings(subjects: Vec<Box<dyn Subject>>, suite: OpeningSuite) {
    for (seed, subject) in (suite.seed..).zip(subjects) {
        let report = OpeningSuite { seed, ..suite }.run(&Env::sim(seed), &*subject);
        let OpeningReport { states, runs, injected, refused, unreadable, .. } = report;
        println!(
            "reached: store conformance/openings: {states} states, {runs} openings, {injected} faults, {refused} refused, \
             {unreadable} files unreadable"
        );
        assert!(report.failures.is_empty(), "{:#?}", report.failures);
        assert!(states > 2 && runs > 50);
    }
}

const OPENINGS: OpeningSuite = OpeningSuite { seed: 1, cuts: 2, calls: 12, sectors: 24, pairs: 8 };

#[test]
fn openings_whose_io_fails_lose_nothing() {
    assert_openings(subjects(), OPENINGS);
}

#[test]
fn openings_of_zoned_devices_whose_io_fails_lose_nothing() {
    assert_openings(band_subjects(), OPENINGS);
}

#[test]
fn openings_of_disks_with_logs_beside_whose_io_fails_lose_nothing() {
    assert_openings(imr_pair_subjects(), OPENINGS);
}

/// The same without bounds: `VARVE_SEED` says where it begins.
#[test]
#[ignore = "runs long; the soak runs it"]
fn openings_whose_io_fails_lose_nothing_at_length() {
    let seed = std::env::var("VARVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let everything = OpeningSuite { seed, cuts: 12, calls: u64::MAX, sectors: 400, pairs: 100 };
    let all = [subjects(), band_subjects(), imr_subjects(), imr_pair_subjects()];
    assert_openings(all.into_iter().flatten().collect(), everything);
}

#[test]
fn nothing_is_acknowledged_beside_a_sync_that_fails() {
    const SAME: [[FileKind; 2]; 2] = [[FileKind::Log, FileKind::Log], [FileKind::Table, FileKind::Table]];
    const ALL: [[FileKind; 2]; 4] =
        [SAME[0], SAME[1], [FileKind::Log, FileKind::Table], [FileKind::Table, FileKind::Log]];
    let one_device = subjects().into_iter().chain(band_subjects()).chain(imr_subjects());
    // Of two devices each fails by itself.
    let cases = one_device
        .map(|subject| (subject, &ALL[..]))
        .chain(imr_pair_subjects().into_iter().map(|subject| (subject, &SAME[..])));
    for (subject, kinds) in cases {
        let perturbed = |seed| Env::sim_with(varve_env::SimOptions { seed, perturb: true, ..Default::default() });
        for env in [Env::sim(1), perturbed(2), perturbed(3), perturbed(4), perturbed(5)] {
            let report = late_failure(&env, &*subject, kinds);
            assert!(report.failures.is_empty(), "{:#?}", report.failures);
            assert!(report.runs > 0, "{}: no sync failed", subject.name());
        }
    }
}
