//! What the suites run on.

use crate::error::StoreError;
use crate::file_store::FileStore;
use std::collections::BTreeSet;
use std::sync::Arc;
use varve_env::Env;
use varve_media::conformance::devices::{GARBAGE, TestedDevice};
use varve_media::{
    BlockDeviceExt, CrashDevice, CrashVariant, Device, DeviceCrashState, Directory, DirectoryCrashState, FaultDevice,
    FaultDirectory, FaultInjector, Geometry, IoContext, MemoryDirectory, MemoryDirectoryOptions, OpenMode, ZoneId,
    ZoneType,
};

/// A kind of store, with a medium for it.
pub trait Subject: Send + Sync {
    /// Name for messages.
    fn name(&self) -> String;

    /// Block devices it has; 0 of a directory.
    fn device_count(&self) -> usize;

    /// A fresh medium with an empty store on it.
    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError>;
}

/// What a store lives on, and what can happen to it.
pub trait Medium: Send {
    /// Opens the store that is on it.
    fn open(&self) -> Result<Arc<dyn FileStore>, StoreError>;

    /// Opens it with faults between the store and the medium.
    fn open_with_faults(&self, injector: &FaultInjector) -> Result<Arc<dyn FileStore>, StoreError>;

    /// Ends the process that has it open and starts the next.
    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, StoreError>;

    /// What a power cut can leave of it.
    fn variants(&self) -> &'static [CrashVariant];

    /// What a power cut could leave of it now.
    fn capture(&self) -> Box<dyn Image>;

    /// Calls `observer` with what a power cut could leave, at every persistence point from now on.
    fn observe(&self, observer: Box<dyn FnMut(Box<dyn Image>) + Send>);

    /// Flips one bit, where the store alone decides what is on the medium.
    fn flip(&self, offset_bytes: u64, bit: u8);

    /// Offsets of the bytes that the store has written, are not zero, and in which bits can be flipped.
    fn stored_bytes(&self) -> Vec<u64>;

    /// Offsets of the sectors, each on its device, that hold something; none where there are no sectors.
    fn stored_sectors(&self) -> BTreeSet<u64>;

    /// Checksum of all that is on it.
    fn fingerprint(&self) -> u32;
}

/// What a power cut could leave, in all its variants.
pub trait Image: Send {
    /// One of them, as a medium of its own.
    fn medium(&self, env: &Env, variant: CrashVariant, seed: u64) -> Box<dyn Medium>;
}

/// What of a store ends with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything it holds in memory.
    Forget,
    /// Nothing: the store also stands for the kernel below it.
    Keep,
}

/// A store on one block device.
#[derive(Clone, Copy)]
pub struct DeviceSubject {
    /// Name for messages.
    pub name: &'static str,
    /// The device.
    pub device: TestedDevice,
    /// Its size, about.
    pub capacity_bytes: u64,
    /// Its physical sector; logical ones have 512 bytes.
    pub physical_sector_bytes: u32,
    /// What ends with the process.
    pub ending: Ending,
    /// Puts an empty store on it.
    pub format: fn(&Env, &Device) -> Result<(), StoreError>,
    /// Opens the store that is on it.
    pub open: fn(&Env, Device) -> Result<Arc<dyn FileStore>, StoreError>,
}

impl Subject for DeviceSubject {
    fn name(&self) -> String {
        format!("{} on {} with sectors of {}", self.name, self.device.name, self.physical_sector_bytes)
    }

    fn device_count(&self) -> usize {
        1
    }

    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError> {
        let device = self.device(env);
        (self.format)(env, &device)?;
        Ok(self.medium_of(env, &device))
    }
}

impl DeviceSubject {
    /// The device, not formatted.
    pub fn device(&self, env: &Env) -> Device {
        let DeviceSubject { capacity_bytes, physical_sector_bytes, .. } = *self;
        (self.device.make)(env, self.name, &Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes })
    }

    /// The medium that a device with a store on it is.
    pub fn medium_of(&self, env: &Env, device: &Device) -> Box<dyn Medium> {
        Box::new(DeviceMedium::new(env, *self, device))
    }
}

const SECTOR_BYTES: usize = 512;

/// A store on a disk and another device beside it, of logs or for whatever the store has it. A power cut hits both at one
/// moment.
#[derive(Clone, Copy)]
pub struct PairSubject {
    /// The disk, and what is said of both; its `format` and `open` are not used.
    pub disk: DeviceSubject,
    /// What the other device is, for messages.
    pub beside: &'static str,
    /// The other device.
    pub logs: TestedDevice,
    /// Its size.
    pub logs_capacity_bytes: u64,
    /// Puts an empty store on them.
    pub format: fn(&Env, &Device, &Device) -> Result<(), StoreError>,
    /// Opens the store that is on them.
    pub open: fn(&Env, Device, Device) -> Result<Arc<dyn FileStore>, StoreError>,
}

impl Subject for PairSubject {
    fn name(&self) -> String {
        format!("{} with {} beside", self.disk.name(), self.beside)
    }

    fn device_count(&self) -> usize {
        2
    }

    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError> {
        let (disk, capacity_bytes) = (self.disk.device(env), self.logs_capacity_bytes);
        let logs = DeviceSubject { name: "logs", device: self.logs, capacity_bytes, ..self.disk }.device(env);
        (self.format)(env, &disk, &logs)?;
        Ok(Box::new(PairMedium::new(env, *self, &disk, &logs)))
    }
}

struct PairMedium {
    env: Env,
    subject: PairSubject,
    /// The disk, and the device of logs.
    crash: [CrashDevice; 2],
}

impl PairMedium {
    fn new(env: &Env, subject: PairSubject, disk: &Device, logs: &Device) -> Self {
        let crash = [disk, logs].map(|device| CrashDevice::new(env, device).expect("blocks and tracks"));
        PairMedium { env: env.clone(), subject, crash }
    }

    /// Where a byte of both, one after the other, is.
    fn locate(&self, offset_bytes: u64) -> (Device, u64) {
        let device = self.crash[0].device();
        match offset_bytes.checked_sub(device.block.geometry().capacity_bytes) {
            Some(offset_bytes) => (self.crash[1].device(), offset_bytes),
            None => (device, offset_bytes),
        }
    }
}

impl Medium for PairMedium {
    fn open(&self) -> Result<Arc<dyn FileStore>, StoreError> {
        (self.subject.open)(&self.env, self.crash[0].device(), self.crash[1].device())
    }

    fn open_with_faults(&self, injector: &FaultInjector) -> Result<Arc<dyn FileStore>, StoreError> {
        let [disk, logs] = [0, 1].map(|number: usize| FaultDevice::device(injector, &self.crash[number].device()));
        (self.subject.open)(&self.env, disk, logs)
    }

    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, StoreError> {
        std::mem::forget(store);
        self.open()
    }

    fn variants(&self) -> &'static [CrashVariant] {
        &CrashVariant::OF_DEVICES
    }

    fn capture(&self) -> Box<dyn Image> {
        let states = [self.crash[0].capture(), self.crash[1].capture()];
        Box::new(PairImage { subject: self.subject, states })
    }

    fn observe(&self, observer: Box<dyn FnMut(Box<dyn Image>) + Send>) {
        let subject = self.subject;
        let observer = Arc::new(parking_lot::Mutex::new(observer));
        let (at_disk, logs) = (observer.clone(), self.crash[1].clone());
        self.crash[0].on_persistence_point(move |point| {
            (at_disk.lock())(Box::new(PairImage { subject, states: [point.capture(), logs.capture()] }));
        });
        let disk = self.crash[0].clone();
        self.crash[1].on_persistence_point(move |point| {
            (observer.lock())(Box::new(PairImage { subject, states: [disk.capture(), point.capture()] }));
        });
    }

    fn flip(&self, offset_bytes: u64, bit: u8) {
        let (device, offset_bytes) = self.locate(offset_bytes);
        flip(&device, offset_bytes, bit);
    }

    fn stored_bytes(&self) -> Vec<u64> {
        let disk = self.crash[0].device();
        let capacity_bytes = disk.block.geometry().capacity_bytes;
        let mut stored = stored_bytes(&disk);
        stored.extend(stored_bytes(&self.crash[1].device()).into_iter().map(|offset| capacity_bytes + offset));
        stored
    }

    fn stored_sectors(&self) -> BTreeSet<u64> {
        self.crash.iter().flat_map(|crash| stored_sectors(&crash.device())).collect()
    }

    fn fingerprint(&self) -> u32 {
        self.crash.iter().fold(0, |sum, crash| fingerprint(&crash.device(), sum))
    }
}

struct PairImage {
    subject: PairSubject,
    states: [DeviceCrashState; 2],
}

impl Image for PairImage {
    fn medium(&self, env: &Env, variant: CrashVariant, seed: u64) -> Box<dyn Medium> {
        let [disk, logs] = &self.states;
        // Two devices lose different things.
        let (disk, logs) = (disk.image(variant, seed), logs.image(variant, seed ^ 0x9e37_79b9_7f4a_7c15));
        Box::new(PairMedium::new(env, self.subject, &disk, &logs))
    }
}

struct DeviceMedium {
    env: Env,
    subject: DeviceSubject,
    crash: CrashDevice,
}

impl DeviceMedium {
    fn new(env: &Env, subject: DeviceSubject, device: &Device) -> Self {
        let crash = CrashDevice::new(env, device).expect("blocks and tracks");
        DeviceMedium { env: env.clone(), subject, crash }
    }
}

impl Medium for DeviceMedium {
    fn open(&self) -> Result<Arc<dyn FileStore>, StoreError> {
        (self.subject.open)(&self.env, self.crash.device())
    }

    fn open_with_faults(&self, injector: &FaultInjector) -> Result<Arc<dyn FileStore>, StoreError> {
        (self.subject.open)(&self.env, FaultDevice::device(injector, &self.crash.device()))
    }

    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, StoreError> {
        match self.subject.ending {
            Ending::Forget => {
                std::mem::forget(store);
                self.open()
            }
            Ending::Keep => Ok(store),
        }
    }

    fn variants(&self) -> &'static [CrashVariant] {
        &CrashVariant::OF_DEVICES
    }

    fn capture(&self) -> Box<dyn Image> {
        Box::new(DeviceImage { subject: self.subject, state: self.crash.capture() })
    }

    fn observe(&self, mut observer: Box<dyn FnMut(Box<dyn Image>) + Send>) {
        let subject = self.subject;
        self.crash
            .on_persistence_point(move |point| observer(Box::new(DeviceImage { subject, state: point.capture() })));
    }

    fn flip(&self, offset_bytes: u64, bit: u8) {
        flip(&self.crash.device(), offset_bytes, bit);
    }

    fn stored_bytes(&self) -> Vec<u64> {
        stored_bytes(&self.crash.device())
    }

    fn stored_sectors(&self) -> BTreeSet<u64> {
        stored_sectors(&self.crash.device())
    }

    fn fingerprint(&self) -> u32 {
        fingerprint(&self.crash.device(), 0)
    }
}

fn flip(device: &Device, offset_bytes: u64, bit: u8) {
    let context = IoContext::default();
    if let Some(zones) = &device.zones
        && let Some(zone) = device.block.capabilities().zones.as_ref().and_then(|zones| zones.zone_at(offset_bytes))
        && let Some(found) = zones.report(zone, 1, &context).expect("a device of memory").first()
        && found.zone_type != ZoneType::Conventional
    {
        // Only the whole zone can be written again.
        let end = found.write_pointer_bytes.min(found.end_bytes());
        let mut data = vec![0; (end - found.start_bytes) as usize];
        device.block.read_at(found.start_bytes, &mut data, &context).expect("a device of memory");
        data[(offset_bytes - found.start_bytes) as usize] ^= 1 << bit;
        zones.reset(zone, &context).expect("a device of memory");
        device.block.write_at(found.start_bytes, &data, &context).expect("a device of memory");
        return;
    }
    let start = offset_bytes / 512 * 512;
    let mut sector = [0; 512];
    device.block.read_at(start, &mut sector, &context).expect("a device of memory");
    sector[(offset_bytes - start) as usize] ^= 1 << bit;
    // A bit that turns over destroys nothing beside it.
    let mut beside = Vec::new();
    if let (Some(control), Some(tracks)) = (&device.tracks, &device.block.capabilities().tracks) {
        let physical_sector_bytes = u64::from(device.block.geometry().physical_sector_bytes);
        for (track, span) in tracks.destroyed_by_write(start..start + 512, physical_sector_bytes) {
            let mut data = vec![0; (span.end - span.start) as usize];
            if device.block.read_at(span.start, &mut data, &context).is_ok() {
                beside.push((span.start, data));
            }
            control.mark_free(track).expect("a track");
        }
    }
    device.block.write_at(start, &sector, &context).expect("a device of memory");
    for (at, data) in beside {
        device.block.write_at(at, &data, &context).expect("a device of memory");
    }
}

/// Calls `with` with every piece of a device and its offset. Sectors that cannot be read are left out.
fn each_piece(device: &Device, mut with: impl FnMut(u64, &[u8])) {
    let capacity_bytes = device.block.geometry().capacity_bytes;
    let mut data = vec![0; 1 << 20];
    for offset in (0..capacity_bytes).step_by(data.len()) {
        let length = (capacity_bytes - offset).min(data.len() as u64) as usize;
        if device.block.read_at(offset, &mut data[..length], &IoContext::default()).is_ok() {
            with(offset, &data[..length]);
            continue;
        }
        for (at, sector) in (offset..).step_by(SECTOR_BYTES).zip(data[..length].chunks_mut(SECTOR_BYTES)) {
            if device.block.read_at(at, sector, &IoContext::default()).is_ok() {
                with(at, sector);
            }
        }
    }
}

fn stored_bytes(device: &Device) -> Vec<u64> {
    let mut stored = Vec::new();
    each_piece(device, |at, data| {
        let found = (at..).zip(data).filter(|(_, byte)| ![0, GARBAGE].contains(*byte));
        stored.extend(found.map(|(offset, _)| offset));
    });
    stored
}

fn stored_sectors(device: &Device) -> BTreeSet<u64> {
    let mut stored = BTreeSet::new();
    each_piece(device, |at, data| {
        let is_empty = |sector: &[u8]| sector == [0; SECTOR_BYTES] || sector == [GARBAGE; SECTOR_BYTES];
        let sectors = (at..).step_by(SECTOR_BYTES).zip(data.chunks(SECTOR_BYTES));
        stored.extend(sectors.filter(|(_, sector)| !is_empty(sector)).map(|(offset, _)| offset));
    });
    stored
}

/// Of what can be read, and of where the pointers of zones are.
fn fingerprint(device: &Device, mut sum: u32) -> u32 {
    each_piece(device, |at, data| {
        sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &at.to_le_bytes()), data);
    });
    if let (Some(zones), Some(geometry)) = (&device.zones, &device.block.capabilities().zones) {
        let all = zones.report(ZoneId(0), geometry.zone_count, &IoContext::default()).expect("a device of memory");
        sum = all.iter().fold(sum, |sum, zone| crc32c::crc32c_append(sum, &zone.write_pointer_bytes.to_le_bytes()));
    }
    sum
}

struct DeviceImage {
    subject: DeviceSubject,
    state: DeviceCrashState,
}

impl Image for DeviceImage {
    fn medium(&self, env: &Env, variant: CrashVariant, seed: u64) -> Box<dyn Medium> {
        Box::new(DeviceMedium::new(env, self.subject, &self.state.image(variant, seed)))
    }
}

/// A store on one directory.
#[derive(Clone, Copy)]
pub struct DirectorySubject {
    /// Name for messages.
    pub name: &'static str,
    /// How the directory behaves.
    pub options: MemoryDirectoryOptions,
    /// Opens the store that is in it; an empty directory is an empty store.
    pub open: fn(&Env, Arc<dyn Directory>) -> Result<Arc<dyn FileStore>, StoreError>,
}

impl Subject for DirectorySubject {
    fn name(&self) -> String {
        format!("{} with alignment {}", self.name, self.options.direct_alignment_bytes)
    }

    fn device_count(&self) -> usize {
        0
    }

    fn medium(&self, env: &Env) -> Result<Box<dyn Medium>, StoreError> {
        let directory = MemoryDirectory::with_options(self.name, self.options);
        Ok(Box::new(DirectoryMedium { env: env.clone(), subject: *self, directory }))
    }
}

struct DirectoryMedium {
    env: Env,
    subject: DirectorySubject,
    directory: MemoryDirectory,
}

impl Medium for DirectoryMedium {
    fn open(&self) -> Result<Arc<dyn FileStore>, StoreError> {
        (self.subject.open)(&self.env, Arc::new(self.directory.clone()))
    }

    fn open_with_faults(&self, injector: &FaultInjector) -> Result<Arc<dyn FileStore>, StoreError> {
        let directory = FaultDirectory::new(injector, Arc::new(self.directory.clone()));
        (self.subject.open)(&self.env, Arc::new(directory))
    }

    fn end_process(&self, store: Arc<dyn FileStore>) -> Result<Arc<dyn FileStore>, StoreError> {
        std::mem::forget(store);
        self.open()
    }

    fn variants(&self) -> &'static [CrashVariant] {
        &CrashVariant::OF_DIRECTORIES
    }

    fn capture(&self) -> Box<dyn Image> {
        Box::new(DirectoryImage { subject: self.subject, state: self.directory.capture() })
    }

    fn observe(&self, mut observer: Box<dyn FnMut(Box<dyn Image>) + Send>) {
        let subject = self.subject;
        self.directory
            .on_persistence_point(move |point| observer(Box::new(DirectoryImage { subject, state: point.capture() })));
    }

    fn flip(&self, _offset_bytes: u64, _bit: u8) {}

    fn stored_bytes(&self) -> Vec<u64> {
        Vec::new()
    }

    fn stored_sectors(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    fn fingerprint(&self) -> u32 {
        let entries = self.directory.list().expect("a directory of memory");
        entries.iter().fold(0, |sum, entry| {
            let file = self.directory.open(&entry.name, OpenMode::default()).expect("it was listed");
            let mut data = vec![0; entry.size_bytes as usize];
            file.read_at(0, &mut data, &IoContext::default()).expect("a file of memory");
            crc32c::crc32c_append(crc32c::crc32c_append(sum, entry.name.as_bytes()), &data)
        })
    }
}

struct DirectoryImage {
    subject: DirectorySubject,
    state: DirectoryCrashState,
}

impl Image for DirectoryImage {
    fn medium(&self, env: &Env, variant: CrashVariant, seed: u64) -> Box<dyn Medium> {
        let directory = self.state.image(variant, seed);
        Box::new(DirectoryMedium { env: env.clone(), subject: self.subject, directory })
    }
}
