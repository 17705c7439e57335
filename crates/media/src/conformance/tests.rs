//! The suite on everything here, and on things that are wrong on purpose.

use super::*;
use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt, Capabilities, Counters, Device, Geometry};
use crate::directory::*;
use crate::emulated::Emulated;
use crate::hardware::{FileDevice, FileDeviceOptions, IoEngine};
use crate::layer::*;
use crate::request::{Request, Transfer};
use std::cell::RefCell;
use std::io::IoSlice;
use std::sync::Arc;
use varve_env::Env;

mod attempts;
mod bytes;
mod protected;
mod tracks;
mod zones;

fn ram(env: &Env) -> Device {
    Device::of_blocks(Arc::new(Emulated::immediate(env, "ram", 8 << 20)))
}

fn check_device(make: &dyn Fn(&Env) -> Device) {
    for seed in [1, 2] {
        let options = BlockDeviceCheck { seed, ..Default::default() };
        check_block_device(make, &options).unwrap();
        println!("reached: media conformance/block devices: 1 histories, {} steps", options.steps);
    }
}

#[test]
fn emulated_memory() {
    check_device(&ram);
}

#[test]
fn emulated_presets() {
    for preset in crate::presets::Preset::all() {
        let make = |env: &Env| {
            let backing = Box::new(crate::RamBacking::new());
            Device::of_blocks(Arc::new(preset.build(env, preset.name(), backing, crate::Pacing::Account)))
        };
        let options = BlockDeviceCheck { steps: 40, ..Default::default() };
        check_block_device(&make, &options).unwrap_or_else(|broken| panic!("{}: {broken}", preset.name()));
    }
}

#[test]
fn emulated_compressed_memory() {
    check_device(&|env| {
        let geometry = Geometry { capacity_bytes: 8 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
        let (timing, backing) = (Box::<crate::Immediate>::default(), Box::new(crate::CompressedBacking::new()));
        let rules = Box::new(crate::emulated::Conventional);
        Device::of_blocks(Arc::new(Emulated::new(env, "compressed", geometry, rules, timing, backing)))
    });
}

#[test]
fn layers_over_a_disk_with_timing() {
    let preset = crate::presets::Preset::find("st500dm002").unwrap();
    let make = |env: &Env| {
        let backing = Box::new(crate::RamBacking::new());
        let disk = Device::of_blocks(Arc::new(preset.build(env, "disk", backing, crate::Pacing::Account)));
        let crash = CrashDevice::new(env, &disk).unwrap().device();
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        let fault = Fault::new(crate::Operation::Sync, FaultTrigger::From(u64::MAX), effect);
        let faulty = FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), &crash);
        TraceDevice::device(env, Arc::new(MemoryTrace::new()), &faulty)
    };
    check_block_device(&make, &BlockDeviceCheck { steps: 40, ..Default::default() }).unwrap();
}

#[test]
fn crash_layer() {
    check_device(&|env| CrashDevice::new(env, &ram(env)).unwrap().device());
}

#[test]
fn crash_images() {
    check_device(&|env| CrashDevice::new(env, &ram(env)).unwrap().capture().image(CrashVariant::KeepAll, 0));
}

#[test]
fn fault_layer_without_faults() {
    check_device(&|env| FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), &ram(env)));
}

#[test]
fn trace_layer() {
    check_device(&|env| TraceDevice::device(env, Arc::new(MemoryTrace::new()), &ram(env)));
}

#[test]
fn layers_over_layers() {
    check_device(&|env| {
        let crash = CrashDevice::new(env, &ram(env)).unwrap().device();
        let faulty = FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), &crash);
        TraceDevice::device(env, Arc::new(MemoryTrace::new()), &faulty)
    });
}

/// A file device in a place of its own, for every engine there is.
fn check_file_devices(options: &FileDeviceOptions) {
    for engine in [IoEngine::Uring, IoEngine::Positional] {
        let place = tempfile::tempdir().unwrap();
        let options = FileDeviceOptions { engine, capacity_bytes: Some(8 << 20), create: true, ..options.clone() };
        if let Err(error) = FileDevice::open(place.path().join("probe"), &options) {
            assert_eq!(engine, IoEngine::Uring, "{error}");
            eprintln!("io_uring not tested: {error}");
            continue;
        }
        let made = RefCell::new(0);
        let make = |_: &Env| {
            let number = made.replace_with(|made| *made + 1);
            let device = FileDevice::open(place.path().join(number.to_string()), &options).unwrap();
            Device::of_blocks(Arc::new(device))
        };
        check_block_device(&make, &BlockDeviceCheck { steps: 40, ..Default::default() }).unwrap();
    }
}

#[test]
fn file_device_direct() {
    check_file_devices(&FileDeviceOptions { queue_depth: 3, ..FileDeviceOptions::default() });
}

#[test]
fn file_device_buffered() {
    check_file_devices(&FileDeviceOptions { direct: false, ..FileDeviceOptions::default() });
}

/// Name a block device in `VARVE_TEST_BLOCK_DEVICE` to test it; what is on it is destroyed.
#[test]
fn block_device_of_the_machine() {
    let Some(path) = std::env::var_os("VARVE_TEST_BLOCK_DEVICE") else {
        eprintln!("no block device tested: VARVE_TEST_BLOCK_DEVICE names none");
        return;
    };
    for engine in [IoEngine::Uring, IoEngine::Positional] {
        for direct in [true, false] {
            let make = |_: &Env| {
                let options = FileDeviceOptions { engine, direct, ..FileDeviceOptions::default() };
                let device = FileDevice::open(&path, &options).unwrap();
                let capacity_bytes = device.geometry().capacity_bytes;
                device.discard_at(0, capacity_bytes, &IoContext::default()).unwrap();
                assert!(matches!(FileDevice::open(&path, &options), Err(MediaError::Locked { .. })));
                Device::of_blocks(Arc::new(device))
            };
            let options = BlockDeviceCheck { steps: 40, ..Default::default() };
            check_block_device(&make, &options)
                .unwrap_or_else(|broken| panic!("{engine:?}, direct {direct}: {broken}"));
        }
    }
}

#[test]
fn memory_directory() {
    for seed in [1, 2] {
        check_directory(&|_| Arc::new(MemoryDirectory::new("ram")), seed).unwrap();
    }
    let options = MemoryDirectoryOptions { capacity_bytes: Some(64 << 20), direct_alignment_bytes: 512 };
    check_directory(&|_| Arc::new(MemoryDirectory::with_options("ram", options)), 3).unwrap();
    check_directory(&|_| Arc::new(MemoryDirectory::new("ram").capture().image(CrashVariant::DropAll, 0)), 4).unwrap();
}

#[test]
fn memory_directory_under_observation() {
    let make = |_: &Env| -> Arc<dyn Directory> {
        let directory = MemoryDirectory::new("ram");
        let mut states = Vec::new();
        directory.on_persistence_point(move |point| states.push(point.capture()));
        Arc::new(directory)
    };
    check_directory(&make, 1).unwrap();
}

#[test]
fn os_directory() {
    let place = tempfile::tempdir().unwrap();
    let made = RefCell::new(0);
    let make = |_: &Env| -> Arc<dyn Directory> {
        let number = made.replace_with(|made| *made + 1);
        Arc::new(OsDirectory::create(place.path().join(number.to_string())).unwrap())
    };
    check_directory(&make, 1).unwrap();
}

#[test]
fn directory_layers() {
    let faulty = |env: &Env| -> Arc<dyn Directory> {
        let injector = FaultInjector::new(env, FaultPlan::default());
        Arc::new(FaultDirectory::new(&injector, Arc::new(MemoryDirectory::new("ram"))))
    };
    check_directory(&faulty, 1).unwrap();
    // A fault that remembers old contents but never strikes.
    let remembering = |env: &Env| -> Arc<dyn Directory> {
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        let fault = Fault::new(crate::Operation::Sync, FaultTrigger::From(u64::MAX), effect);
        let injector = FaultInjector::new(env, FaultPlan::of(fault));
        let options = MemoryDirectoryOptions { direct_alignment_bytes: 512, ..Default::default() };
        Arc::new(FaultDirectory::new(&injector, Arc::new(MemoryDirectory::with_options("ram", options))))
    };
    check_directory(&remembering, 1).unwrap();
    let traced = |env: &Env| -> Arc<dyn Directory> {
        Arc::new(TraceDirectory::new(env, Arc::new(MemoryTrace::new()), Arc::new(MemoryDirectory::new("ram"))))
    };
    check_directory(&traced, 1).unwrap();
}

/// What a wrong device does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    SectorSize,
    FirstContent,
    LongWrite,
    SecondPiece,
    RangeCheck,
    BatchStops,
    LastError,
    StaleOutcome,
    Discard,
    Counters,
    TornBetweenThreads,
    Nondeterminism,
}

/// A device over memory that breaks one clause.
struct WrongDevice {
    wrong: Wrong,
    env: Env,
    inner: Device,
    geometry: Geometry,
    /// Different in every device, as an address or a clock would be.
    instance: u64,
}

static INSTANCES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

fn wrong(env: &Env, wrong: Wrong) -> Device {
    let inner = ram(env);
    let mut geometry = inner.block.geometry().clone();
    if wrong == Wrong::SectorSize {
        geometry.physical_sector_bytes = 700;
    }
    let instance = INSTANCES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Device::of_blocks(Arc::new(WrongDevice { wrong, env: env.clone(), inner, geometry, instance }))
}

impl WrongDevice {
    fn write(&self, offset_bytes: u64, data: &[u8], context: &IoContext) -> Result<(), MediaError> {
        let slices = [IoSlice::new(data)];
        self.inner.block.execute(&mut [Request::write(offset_bytes, &slices)], context)
    }

    fn perform(&self, request: &mut Request<'_>, context: &IoContext) -> Result<(), MediaError> {
        let offset_bytes = request.offset_bytes;
        match (&mut request.transfer, self.wrong) {
            (Transfer::Write { data, .. }, Wrong::LongWrite) if data.len() == 1 && data[0].len() > 300_000 => {
                self.write(offset_bytes, &data[0][..data[0].len() - 512], context)
            }
            (Transfer::Write { data, .. }, Wrong::SecondPiece)
                if data.len() > 1 && data[0].len() >= 512 && data[0].len().is_multiple_of(512) =>
            {
                self.write(offset_bytes, &data[0], context)
            }
            (Transfer::Write { data, .. }, Wrong::TornBetweenThreads)
                if offset_bytes == 0 && data.len() == 1 && data[0].len() == 4096 =>
            {
                for (index, piece) in data[0].chunks(256).enumerate() {
                    let at = offset_bytes + index as u64 * 256;
                    let sector = at / 512 * 512;
                    let mut whole = [0; 512];
                    let mut target = [std::io::IoSliceMut::new(&mut whole)];
                    self.inner.block.execute(&mut [Request::read(sector, &mut target)], context)?;
                    whole[(at - sector) as usize..][..256].copy_from_slice(piece);
                    self.write(sector, &whole, context)?;
                    self.env.sleep(std::time::Duration::from_nanos(10));
                }
                Ok(())
            }
            (Transfer::Read { data, .. }, Wrong::RangeCheck) if offset_bytes == 8 << 20 => {
                data.iter_mut().for_each(|slice| slice.fill(0));
                Ok(())
            }
            (Transfer::Read { .. }, Wrong::FirstContent) if offset_bytes > (8 << 20) - 10_000 => {
                self.inner.block.execute(std::slice::from_mut(request), context)?;
                if let Transfer::Read { data, .. } = &mut request.transfer
                    && data.len() == 1
                    && data[0].iter().all(|&byte| byte == 0)
                {
                    data[0].fill(0xFF);
                }
                Ok(())
            }
            (Transfer::Discard { length_bytes }, Wrong::Discard) if (4097..1 << 40).contains(length_bytes) => Ok(()),
            _ => self.inner.block.execute(std::slice::from_mut(request), context),
        }
    }
}

impl BlockDevice for WrongDevice {
    fn name(&self) -> &str {
        "wrong"
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        if self.wrong == Wrong::Nondeterminism {
            self.env.sleep(std::time::Duration::from_nanos(self.instance));
        }
        for request in requests {
            let stale = request.outcome.clone();
            let outcome = self.perform(request, context);
            request.outcome = outcome.clone();
            if self.wrong == Wrong::StaleOutcome && stale.is_err() {
                request.outcome = stale;
            }
            if outcome.is_err() && self.wrong == Wrong::BatchStops {
                return outcome;
            }
            result = match self.wrong {
                Wrong::LastError if outcome.is_err() => outcome,
                _ => result.and(outcome),
            };
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.sync(context)
    }

    fn counters(&self) -> Counters {
        let mut counters = self.inner.block.counters();
        if self.wrong == Wrong::Counters {
            counters.written_bytes_by_class = Default::default();
        }
        counters
    }
}

#[test]
fn the_suite_catches_wrong_devices() {
    let check = |what| check_block_device(&|env| wrong(env, what), &BlockDeviceCheck::default());
    assert_eq!(check(Wrong::Nothing), Ok(()));
    for (what, clause) in [
        (Wrong::SectorSize, "describes itself"),
        (Wrong::FirstContent, "reads zeros at first"),
        (Wrong::LongWrite, "reads what was written"),
        (Wrong::SecondPiece, "takes buffers in pieces"),
        (Wrong::RangeCheck, "refuses bad requests and changes nothing"),
        (Wrong::BatchStops, "does every request of a batch"),
        (Wrong::LastError, "does every request of a batch"),
        (Wrong::StaleOutcome, "does every request of a batch"),
        (Wrong::Discard, "discarded sectors read as zeros"),
        (Wrong::Counters, "counts what it did"),
        (Wrong::TornBetweenThreads, "serves several threads"),
        (Wrong::Nondeterminism, "repeats by seed"),
    ] {
        let found = check(what).expect_err(&format!("{what:?} went unnoticed"));
        assert_eq!(found.clause, clause, "{what:?}: {found}");
    }
}

#[test]
fn the_suite_says_what_it_cannot_check() {
    let small = |env: &Env| Device::of_blocks(Arc::new(Emulated::immediate(env, "small", 4096)));
    let found = check_block_device(&small, &BlockDeviceCheck::default()).unwrap_err();
    assert_eq!(found.clause, "scope of the suite");
}

/// What a wrong directory does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrongName {
    Nothing,
    BadNames,
    RenameRefuses,
    RenameCopies,
    Unsorted,
    SharedLock,
    ForgetsRemoval,
    ShortLength,
    ReadOnlyWrites,
}

/// A directory over memory that breaks one clause.
struct WrongDirectory {
    wrong: WrongName,
    inner: MemoryDirectory,
}

impl Directory for WrongDirectory {
    fn name(&self) -> &str {
        "wrong"
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, MediaError> {
        match self.wrong {
            WrongName::BadNames if name == "a/b" => {
                self.inner.open("a_b", OpenMode { create: true, write: true, ..mode })
            }
            WrongName::ReadOnlyWrites => self.inner.open(name, OpenMode { write: mode.write || !mode.create, ..mode }),
            _ => self.inner.open(name, mode),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediaError> {
        match self.wrong {
            WrongName::RenameRefuses if self.inner.list()?.iter().any(|entry| entry.name == to) => {
                Err(MediaError::Locked { device: "wrong".to_owned(), name: to.to_owned() })
            }
            WrongName::RenameCopies if from != to => {
                let source = self.inner.open(from, OpenMode::default())?;
                let mode = OpenMode { write: true, create: true, truncate: true, direct: false };
                let target = self.inner.open(to, mode)?;
                let mut data = vec![0; source.size_bytes()? as usize];
                source.read_at(0, &mut data, &IoContext::default())?;
                target.write_at(0, &[IoSlice::new(&data)], &IoContext::default())?;
                self.inner.remove(from)
            }
            _ => self.inner.rename(from, to),
        }
    }

    fn remove(&self, name: &str) -> Result<(), MediaError> {
        match self.inner.remove(name) {
            Err(error) if self.wrong != WrongName::ForgetsRemoval => Err(error),
            Err(error) if error.kind() != MediaErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>, MediaError> {
        let mut entries = self.inner.list()?;
        match self.wrong {
            WrongName::Unsorted if entries.len() > 30 => entries.reverse(),
            WrongName::ShortLength if entries.len() > 30 => entries[9].size_bytes = 1,
            _ => {}
        }
        Ok(entries)
    }

    fn sync(&self) -> Result<(), MediaError> {
        self.inner.sync()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>, MediaError> {
        struct Free;
        impl DirectoryLock for Free {}
        match (self.inner.lock(name), self.wrong) {
            (Err(MediaError::Locked { .. }), WrongName::SharedLock) => Ok(Box::new(Free)),
            (result, _) => result,
        }
    }

    fn space(&self) -> Result<Space, MediaError> {
        self.inner.space()
    }

    fn path(&self) -> Option<&std::path::Path> {
        None
    }

    fn link(&self, name: &str, target: &std::path::Path, target_name: &str) -> Result<bool, MediaError> {
        self.inner.link(name, target, target_name)
    }
}

#[test]
fn the_suite_catches_wrong_directories() {
    let check = |wrong| check_directory(&|_| Arc::new(WrongDirectory { wrong, inner: MemoryDirectory::new("ram") }), 1);
    assert_eq!(check(WrongName::Nothing), Ok(()));
    for (what, clause) in [
        (WrongName::BadNames, "refuses what is no name and changes nothing"),
        (WrongName::RenameRefuses, "renames, replacing the target"),
        (WrongName::RenameCopies, "renames, replacing the target"),
        (WrongName::Unsorted, "lists files by name with their lengths"),
        (WrongName::ShortLength, "lists files by name with their lengths"),
        (WrongName::SharedLock, "locks exclude"),
        (WrongName::ForgetsRemoval, "removes names, not open files"),
        (WrongName::ReadOnlyWrites, "opens as asked"),
    ] {
        let found = check(what).expect_err(&format!("{what:?} went unnoticed"));
        assert_eq!(found.clause, clause, "{what:?}: {found}");
    }
}
