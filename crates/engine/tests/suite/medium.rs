//! Media that are crashed: a directory below `plain`, a device below `extent`, an interlaced disk below
//! `imr`, a zoned one below `band`, or two of them, the second for the logs.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_engine::Media;
use varve_env::{Env, Random};
use varve_media::emulated::Zoned;
use varve_media::{
    BlockDevice, Capabilities, Counters, CrashDevice, CrashVariant, Device, DeviceCrashState, Directory,
    DirectoryCrashState, Emulated, FaultDevice, FaultDirectory, FaultInjector, Geometry, Immediate, Interlaced,
    IoClass, IoContext, MediaError, MemoryDirectory, Operation, OverlayDevice, PersistencePoint, RamBacking, Request,
    TrackGeometry, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId,
};
use varve_store::{
    AllocationName, BandFormatOptions, BandStore, CreateOptions, Ext4Options, ExtentFormatOptions, ExtentLayout,
    ExtentStore, FileKind, FileStore, ImrDevices, ImrFormatOptions, ImrOpenOptions, ImrStore, OpenOptions,
    PlainOptions, PlainStore, RewriteName, StoreError,
};

/// Space of the emulated device.
pub(crate) const DEVICE_BYTES: u64 = 64 << 20;

/// Space of a device whose tables follow each other.
const SMALL_DEVICE_BYTES: u64 = 1 << 20;

/// What is free of it: so little that tables go around it.
pub(crate) const SMALL_DEVICE_FREE_BYTES: u64 = 224 << 10;

/// Bytes of a track of an interlaced disk.
pub(crate) const TRACK_BYTES: u64 = 4 << 10;

/// Tracks for tables of an interlaced disk that is to be full.
pub(crate) const FULL_DISK_TRACKS: u64 = 330;

/// What is free of them: a few more than the tables of a small database need at once.
pub(crate) const FULL_DISK_FREE_TRACKS: u64 = 39;

/// Tables beside the database there.
pub(crate) const FULL_DISK_BALLAST: u64 = FULL_DISK_TRACKS - FULL_DISK_FREE_TRACKS;

/// Bytes of a band of a zoned device.
pub(crate) const BAND_BYTES: u64 = 32 << 10;

/// Bands of it: more than small databases have tables, and few enough that they are used again.
const BANDS: u64 = 400;

/// Zones to a band where bands are of variable size.
const ZONES_OF_VARIABLE_BAND: u64 = 4;

/// Its conventional zones, in bands, at least: those of many zones take more space to tell of.
const CONVENTIONAL_BANDS_MIN: u64 = 32;

/// Zones that a conventional zone of a band can tell of.
const ZONES_PER_CONVENTIONAL_BAND: u64 = 40;

/// A store and what it stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tables in bands of a zoned device.
    Band,
    /// Tables in as many zones of one as they need, up to the size of a band.
    VariableBands,
    Plain,
    Extent,
    ExtentNextFit,
    ExtentExt4,
    /// Logs in a directory of their own.
    PlainLogsApart,
    /// Logs on a device of their own.
    ExtentLogsApart,
    /// Tables on a strict interlaced disk that is nearly full of others.
    Imr(AllocationName, RewriteName),
    /// The same store with everything that is no table on a conventional device beside the disk.
    ImrLogsApart(AllocationName, RewriteName),
}

/// The table of kinds, except those of interlaced disks, with their shares of what workloads draw. One that is here is in
/// every suite that draws kinds or goes through them.
pub(crate) const KINDS: &[(Kind, usize)] = &[
    (Kind::Plain, 2),
    (Kind::PlainLogsApart, 1),
    (Kind::Extent, 1),
    (Kind::ExtentNextFit, 1),
    (Kind::ExtentExt4, 2),
    (Kind::ExtentLogsApart, 1),
    (Kind::Band, 2),
    (Kind::VariableBands, 2),
];

/// The kinds of the table for which `wanted` is so.
pub(crate) fn kinds(wanted: fn(Kind) -> bool) -> Vec<Kind> {
    KINDS.iter().map(|(kind, _)| *kind).filter(|kind| wanted(*kind)).collect()
}

/// Every way to place and rewrite on interlaced disks, with logs on the disk and on another device.
pub(crate) fn imr_kinds() -> Vec<Kind> {
    let of_policy = |&allocation: &AllocationName| {
        RewriteName::ALL
            .iter()
            .flat_map(move |&rewrite| [Kind::Imr(allocation, rewrite), Kind::ImrLogsApart(allocation, rewrite)])
    };
    AllocationName::ALL.iter().flat_map(of_policy).collect()
}

impl Kind {
    /// Made of directories.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Kind::Plain | Kind::PlainLogsApart)
    }

    /// The variants that make a difference.
    pub(crate) fn variants(self) -> &'static [CrashVariant] {
        if self.is_plain() { &CrashVariant::OF_DIRECTORIES } else { &CrashVariant::OF_DEVICES }
    }

    /// Its number among those of interlaced disks; 0 for others.
    pub(crate) fn number(self) -> usize {
        imr_kinds().iter().position(|kind| *kind == self).unwrap_or(0)
    }

    /// What it is without its policies, as what was reached on it is told.
    pub(crate) fn name(self) -> String {
        let text = format!("{self:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    }

    /// Has its logs on a medium of their own.
    pub(crate) fn has_logs_apart(self) -> bool {
        matches!(self, Kind::PlainLogsApart | Kind::ExtentLogsApart | Kind::ImrLogsApart(..))
    }

    /// Space of its medium, where `usual_bytes` is enough for others.
    pub(crate) fn space_bytes(self, usual_bytes: u64) -> u64 {
        match self {
            Kind::Band | Kind::VariableBands => BANDS * BAND_BYTES,
            _ => usual_bytes,
        }
    }

    /// Has an interlaced disk.
    pub(crate) fn is_imr(self) -> bool {
        matches!(self, Kind::Imr(..) | Kind::ImrLogsApart(..))
    }

    pub(crate) fn layout(self) -> ExtentLayout {
        match self {
            Kind::ExtentExt4 => ExtentLayout::Ext4(Ext4Options { group_bytes: 8 << 20, journal_bytes: Some(1 << 20) }),
            Kind::ExtentNextFit => ExtentLayout::NextFit,
            _ => ExtentLayout::FirstFit,
        }
    }
}

/// What a power cut at one moment could leave.
#[derive(Clone)]
pub(crate) enum CrashState {
    Directory(DirectoryCrashState),
    Device(DeviceCrashState),
    /// Media that lose power together.
    Several(Vec<CrashState>),
}

impl CrashState {
    /// What one power cut left. Of several media an odd seed lets each meet a fate of its own.
    pub(crate) fn image(&self, variant: CrashVariant, seed: u64) -> Image {
        match self {
            CrashState::Directory(state) => Image::Directory(state.image(variant, seed)),
            CrashState::Device(state) => Image::Device(state.image(variant, seed)),
            CrashState::Several(states) => {
                let own = |index: u64| match index {
                    0 => variant,
                    _ if seed.is_multiple_of(2) => variant,
                    _ => CrashVariant::OF_DEVICES[((seed / 2 + index) % 7) as usize],
                };
                Image::Several((0..).zip(states).map(|(index, state)| state.image(own(index), seed + index)).collect())
            }
        }
    }
}

/// One moment before an operation that matters to a power cut.
pub(crate) struct Point {
    pub(crate) state: CrashState,
    /// What was about to happen.
    pub(crate) operation: Operation,
    /// The same, for people.
    pub(crate) note: String,
    /// Batches acknowledged as durable then.
    pub(crate) synced: usize,
    /// Batches begun then.
    pub(crate) begun: usize,
    /// What the sampler called it.
    pub(crate) tag: u64,
}

/// Says of the point that is passed now what it is called, or that it is not wanted.
pub(crate) type Sampler = Box<dyn FnMut() -> Option<u64> + Send>;

/// Collects the persistence points of a medium.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) points: Mutex<Vec<Point>>,
    pub(crate) synced: AtomicUsize,
    pub(crate) begun: AtomicUsize,
    /// Without one every point is wanted.
    pub(crate) sampler: Mutex<Option<Sampler>>,
}

impl Recorder {
    fn tag(&self) -> Option<u64> {
        self.sampler.lock().as_mut().map_or(Some(0), |sampler| sampler())
    }

    fn record(&self, tag: u64, state: CrashState, operation: Operation, note: String) {
        let synced = self.synced.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        self.points.lock().push(Point { state, operation, note, synced, begun, tag });
    }
}

/// A medium that tells its persistence points.
#[derive(Clone)]
enum Watched {
    Directory(MemoryDirectory),
    Device(CrashDevice),
}

impl Watched {
    fn capture(&self) -> CrashState {
        match self {
            Watched::Directory(directory) => CrashState::Directory(directory.capture()),
            Watched::Device(device) => CrashState::Device(device.capture()),
        }
    }

    fn persistence_points(&self) -> u64 {
        match self {
            Watched::Directory(directory) => directory.persistence_points(),
            Watched::Device(device) => device.persistence_points(),
        }
    }

    /// Calls `seen` at the points of which `recorder` wants to know.
    fn watch(
        &self,
        recorder: Option<Arc<Recorder>>,
        mut seen: impl FnMut(u64, CrashState, Operation, String) + Send + 'static,
    ) {
        fn note<S>(point: &PersistencePoint<'_, S>) -> String {
            format!("{point:?}")
        }
        let tag = move || recorder.as_ref().and_then(|recorder| recorder.tag());
        match self {
            Watched::Directory(directory) => directory.on_persistence_point(move |point| {
                if let Some(tag) = tag() {
                    seen(tag, CrashState::Directory(point.capture()), point.operation, note(point));
                }
            }),
            Watched::Device(device) => device.on_persistence_point(move |point| {
                if let Some(tag) = tag() {
                    seen(tag, CrashState::Device(point.capture()), point.operation, note(point));
                }
            }),
        }
    }
}

/// Media whose persistence points are being recorded, until this is dropped.
pub(crate) struct Observation {
    /// The media to work on.
    pub(crate) image: Image,
    watched: Vec<Watched>,
    passed_before: u64,
}

impl Observation {
    /// The crash state of all media now.
    pub(crate) fn capture(&self) -> CrashState {
        let mut states: Vec<CrashState> = self.watched.iter().map(Watched::capture).collect();
        if states.len() == 1 { states.remove(0) } else { CrashState::Several(states) }
    }

    /// Persistence points passed since the observation began, as the media themselves counted them.
    pub(crate) fn points(&self) -> u64 {
        self.watched.iter().map(Watched::persistence_points).sum::<u64>() - self.passed_before
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        // Observers of several media hold each other.
        self.watched.iter().for_each(|watched| watched.watch(None, |_, _, _, _| {}));
    }
}

/// Lets one request or zone command at a time through to any of several devices, so that a joint crash state can be
/// had at each.
struct OneAtATime<T: ?Sized> {
    turn: Arc<varve_env::Mutex<()>>,
    inner: Arc<T>,
}

impl BlockDevice for OneAtATime<dyn BlockDevice> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.lock();
        self.inner.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.lock();
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

impl ZoneControl for OneAtATime<dyn ZoneControl> {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        self.inner.report(first, count, context)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.lock();
        self.inner.open(zone, context)
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.lock();
        self.inner.close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.lock();
        self.inner.finish(zone, context)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _turn = self.turn.lock();
        self.inner.reset(zone, context)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        let _turn = self.turn.lock();
        self.inner.append(zone, data, context)
    }
}

/// A medium after a power cut, or a fresh one.
#[derive(Clone)]
pub(crate) enum Image {
    Directory(MemoryDirectory),
    Device(Device),
    /// Files on the first, logs on the second.
    Several(Vec<Image>),
}

impl Image {
    /// An empty medium; a device is formatted.
    pub(crate) fn fresh(env: &Env, kind: Kind) -> Image {
        match kind {
            Kind::ExtentNextFit => {}
            Kind::Imr(..) | Kind::ImrLogsApart(..) => {
                let image = Image::fresh_of(env, kind, FULL_DISK_TRACKS * TRACK_BYTES);
                image.fill_tracks(FULL_DISK_FREE_TRACKS);
                return image;
            }
            _ => return Image::fresh_of(env, kind, kind.space_bytes(DEVICE_BYTES)),
        }
        let image = Image::fresh_of(env, kind, SMALL_DEVICE_BYTES);
        let store = image.store(env, None).expect("store");
        let ballast_bytes = store.space().expect("space").available_bytes - SMALL_DEVICE_FREE_BYTES;
        let mut ballast = store.create("ballast", &CreateOptions::default()).expect("ballast");
        let context = IoContext::default();
        ballast.append(&vec![1; ballast_bytes as usize], &context).expect("ballast");
        ballast.sync(&context).expect("ballast");
        ballast.finish(&context).expect("ballast");
        image
    }

    /// The same, of devices with this much space.
    pub(crate) fn fresh_of(env: &Env, kind: Kind, space_bytes: u64) -> Image {
        let device = |label: &str| Image::device(env, label, kind.layout(), space_bytes);
        match kind {
            Kind::PlainLogsApart => Image::Several(vec![Image::directory("crashed"), Image::directory("crashed logs")]),
            Kind::ExtentLogsApart => Image::Several(vec![device("crashed"), device("crashed logs")]),
            Kind::Plain => Image::directory("crashed"),
            Kind::Band => Image::Device(Image::zoned(env, space_bytes / BAND_BYTES, 1)),
            Kind::VariableBands => Image::Device(Image::zoned(env, space_bytes / BAND_BYTES, ZONES_OF_VARIABLE_BAND)),
            Kind::Imr(allocation, rewrite) => Image::Device(Image::interlaced(allocation, rewrite, space_bytes, None)),
            Kind::ImrLogsApart(allocation, rewrite) => {
                let emulated = Emulated::immediate(&Env::real(), "crashed logs", space_bytes.max(4 << 20));
                let logs = Device::of_blocks(Arc::new(emulated));
                let disk = Image::interlaced(allocation, rewrite, space_bytes, Some(&logs));
                Image::Several(vec![Image::Device(disk), Image::Device(logs)])
            }
            _ => device("crashed"),
        }
    }

    /// Bytes of tables written so far; 0 where nobody counts.
    pub(crate) fn table_bytes_written(&self) -> u64 {
        match self {
            Image::Directory(_) => 0,
            Image::Device(device) => {
                let written = device.block.counters().written_bytes_by_class;
                written[IoClass::Flush.index()] + written[IoClass::Compaction.index()]
            }
            Image::Several(parts) => parts.iter().map(Image::table_bytes_written).sum(),
        }
    }

    /// An empty directory.
    pub(crate) fn directory(label: &str) -> Image {
        Image::Directory(MemoryDirectory::new(label))
    }

    fn device(env: &Env, label: &str, layout: ExtentLayout, space_bytes: u64) -> Image {
        // Of the real world, where it takes no time: images read it from other simulations.
        let emulated = Emulated::immediate(&Env::real(), label, space_bytes);
        let device = Device::of_blocks(Arc::new(emulated));
        let options = ExtentFormatOptions { layout, ..ExtentFormatOptions::default() };
        ExtentStore::format(env, &device, &options).expect("format");
        Image::Device(device)
    }

    /// A zoned device with so many bands, each of so many zones. Of the real world, as [`Image::device`].
    fn zoned(env: &Env, bands: u64, zones_of_band: u64) -> Device {
        let conventional_bands = CONVENTIONAL_BANDS_MIN.max(bands * zones_of_band / ZONES_PER_CONVENTIONAL_BAND);
        let bytes = (bands + conventional_bands) * BAND_BYTES;
        let all = ZoneGeometry::fit(bytes, BAND_BYTES / zones_of_band).expect("zones of a device");
        let conventional_zones = (conventional_bands * zones_of_band) as u32;
        let rules = Zoned::new(&ZoneGeometry { conventional_zones, ..all });
        let asked = Geometry { capacity_bytes: bytes, sector_bytes: 512, physical_sector_bytes: 512 };
        let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
        let backing = Box::new(RamBacking::new());
        let device = rules.device(|rules| Emulated::new(&Env::real(), "crashed", geometry, rules, timing, backing));
        let options = BandFormatOptions { table_bytes: Some(BAND_BYTES), ..BandFormatOptions::default() };
        BandStore::format(env, &device, &options).expect("format");
        device
    }

    /// A strict interlaced disk with space for so many bytes of tables. Of the real world, as [`Image::device`].
    fn interlaced(allocation: AllocationName, rewrite: RewriteName, space_bytes: u64, logs: Option<&Device>) -> Device {
        let (env, label) = (Env::real(), "crashed");
        let build = |track_count: u64| {
            let tracks =
                TrackGeometry::fit(track_count * TRACK_BYTES, TRACK_BYTES, TRACK_BYTES).expect("tracks of a disk");
            let geometry =
                Geometry { capacity_bytes: tracks.capacity_bytes(), sector_bytes: 512, physical_sector_bytes: 512 };
            let rules = Interlaced::new(&tracks, geometry.physical_sector_bytes, true);
            let control = rules.control(label);
            let (timing, backing) = (Box::<Immediate>::default(), Box::new(RamBacking::new()));
            let block = Emulated::new(&env, label, geometry, Box::new(rules), timing, backing);
            let disk = Device { tracks: Some(control), ..Device::of_blocks(Arc::new(block)) };
            let options = ImrFormatOptions {
                allocation,
                rewrite,
                table_bytes_max: Some(4 * TRACK_BYTES),
                // Of a roomy disk the memtables are larger too.
                small_files_bytes: Some(if space_bytes > 2 << 20 { 4 << 20 } else { 1 << 20 }),
                overwrite: true,
                ..ImrFormatOptions::default()
            };
            let devices = ImrDevices { disk, logs: logs.cloned() };
            ImrStore::format(&env, devices.clone(), &options).expect("format");
            devices
        };
        // How many tracks the store takes for itself depends little on how many there are.
        let wanted = space_bytes / TRACK_BYTES;
        let mut track_count = 4096 + wanted;
        loop {
            let devices = build(track_count);
            let store = ImrStore::open(&env, devices.clone(), &ImrOpenOptions::default()).expect("open");
            let space = store.space().expect("space").total_bytes / TRACK_BYTES;
            if space <= wanted {
                return devices.disk;
            }
            track_count -= space - wanted;
        }
    }

    /// Fills the interlaced disk with tables of one track each, and then frees tracks here and there: bottoms
    /// above all, so that every policy has to rewrite.
    pub(crate) fn fill_tracks(&self, free_tracks: u64) {
        let env = Env::real();
        let store = self.media(&env).expect("media").files.expect("files");
        let mut random = Random::named(1, "ballast");
        let mut numbers: Vec<u64> = Vec::new();
        while store.space().expect("space").available_bytes > 0 {
            let number = numbers.len() as u64;
            let options =
                CreateOptions { kind: FileKind::Table, level: Some(random.below(3) as u8), ..CreateOptions::default() };
            let mut ballast = store.create(&ballast_name(number), &options).expect("ballast");
            let context = IoContext::default();
            ballast.append(&ballast_content(number), &context).expect("ballast");
            ballast.sync(&context).expect("ballast");
            ballast.finish(&context).expect("ballast");
            numbers.push(number);
        }
        random.shuffle(&mut numbers);
        let occupancy = store.occupancy();
        let mut on_bottoms: BTreeSet<&str> = BTreeSet::new();
        for piece in occupancy.pieces.iter().filter(|piece| piece.part == "bottom") {
            on_bottoms.extend(piece.file.map(|file| occupancy.files[file as usize].name.as_str()));
        }
        let is_on_bottom = |number: &u64| on_bottoms.contains(ballast_name(*number).as_str());
        let (bottoms, tops): (Vec<u64>, Vec<u64>) = numbers.into_iter().partition(is_on_bottom);
        let free_tops = free_tracks as usize / 5;
        for number in bottoms.iter().take(free_tracks as usize - free_tops).chain(tops.iter().take(free_tops)) {
            store.remove(&ballast_name(*number)).expect("remove");
        }
        store.sync_names().expect("sync_names");
    }

    /// Is an interlaced disk.
    pub(crate) fn has_tracks(&self) -> bool {
        matches!(self, Image::Device(device) if device.tracks.is_some())
    }

    /// Live data of interlaced disks that writes destroyed. Their rules are strict: none.
    pub(crate) fn destroyed_bytes(&self) -> u64 {
        match self {
            Image::Directory(_) => 0,
            Image::Device(device) => device.tracks.as_ref().map_or(0, |tracks| tracks.destroyed().bytes),
            Image::Several(parts) => parts.iter().map(Image::destroyed_bytes).sum(),
        }
    }

    /// Requests that the device had to refuse or failed: none, where nobody injects faults.
    pub(crate) fn device_errors(&self) -> u64 {
        match self {
            Image::Directory(_) => 0,
            Image::Device(device) => device.block.counters().errors,
            Image::Several(parts) => parts.iter().map(Image::device_errors).sum(),
        }
    }

    /// The medium with every persistence point from now on going to `recorder`. Several media are
    /// captured together at each point of any of them.
    pub(crate) fn observed(&self, env: &Env, recorder: &Arc<Recorder>) -> Observation {
        let parts: &[Image] = if let Image::Several(parts) = self { parts } else { std::slice::from_ref(self) };
        let together = parts.len() > 1;
        let turn = together.then(|| Arc::new(varve_env::Mutex::new(env, "devices that crash together", ())));
        let (mut images, mut watched) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Image::Directory(directory) => {
                    watched.push(Watched::Directory(directory.clone()));
                    images.push(part.clone());
                }
                Image::Device(device) => {
                    let crash = CrashDevice::new(env, device).expect("crash layer");
                    let mut device = crash.device();
                    if let Some(turn) = &turn {
                        device.block = Arc::new(OneAtATime { turn: turn.clone(), inner: device.block });
                        device.zones = device.zones.map(|inner| -> Arc<dyn ZoneControl> {
                            Arc::new(OneAtATime { turn: turn.clone(), inner })
                        });
                    }
                    watched.push(Watched::Device(crash));
                    images.push(Image::Device(device));
                }
                Image::Several(_) => panic!("media of media"),
            }
        }
        for (place, one) in watched.iter().enumerate() {
            let (all, recorder) = (watched.clone(), recorder.clone());
            // Alone, it must not hold itself.
            let others = if together { all } else { Vec::new() };
            one.watch(Some(recorder.clone()), move |tag, state, operation, note| {
                let joint = |(other, watched): (usize, &Watched)| match other == place {
                    true => state.clone(),
                    false => watched.capture(),
                };
                let (state, note) = match others.is_empty() {
                    true => (state.clone(), note),
                    false => (
                        CrashState::Several(others.iter().enumerate().map(joint).collect()),
                        format!("medium {place} {note}"),
                    ),
                };
                recorder.record(tag, state, operation, note);
            });
        }
        let passed_before = watched.iter().map(Watched::persistence_points).sum();
        let image = if images.len() == 1 { images.remove(0) } else { Image::Several(images) };
        Observation { image, watched, passed_before }
    }

    /// One of several media.
    pub(crate) fn part(&self, place: usize) -> &Image {
        match self {
            Image::Several(parts) => &parts[place],
            one => one,
        }
    }

    /// Changes of it so far, of whatever kind.
    pub(crate) fn changes(&self) -> u64 {
        match self {
            Image::Directory(directory) => directory.persistence_points(),
            Image::Device(device) => {
                let counters = device.block.counters();
                let commands = counters.discards + counters.zone_resets + counters.zone_finishes;
                counters.writes + counters.syncs + commands
            }
            Image::Several(parts) => parts.iter().map(Image::changes).sum(),
        }
    }

    /// The same medium, to which nothing more is written.
    pub(crate) fn only_read(&self) -> Image {
        match self {
            Image::Directory(_) => self.clone(),
            Image::Device(device) => Image::Device(OverlayDevice::device(device).expect("overlay")),
            Image::Several(parts) => Image::Several(parts.iter().map(Image::only_read).collect()),
        }
    }

    /// Opens the store on it.
    pub(crate) fn media(&self, env: &Env) -> Result<Media, StoreError> {
        self.media_under(env, None)
    }

    /// Opens the store on it, with the faults of an injector between.
    pub(crate) fn media_under(&self, env: &Env, injector: Option<&FaultInjector>) -> Result<Media, StoreError> {
        Ok(match self {
            Image::Several(parts) if parts[0].has_tracks() => {
                let device = |part: &Image| match (part, injector) {
                    (Image::Device(device), Some(injector)) => FaultDevice::device(injector, device),
                    (Image::Device(device), None) => device.clone(),
                    _ => panic!("an interlaced disk and the device beside it"),
                };
                let devices = ImrDevices::with_logs(&device(&parts[0]), &device(&parts[1]));
                Media::of_files(Arc::new(ImrStore::open(env, devices, &ImrOpenOptions::default())?))
            }
            Image::Several(parts) => {
                Media { files: Some(parts[0].store(env, injector)?), logs: Some(parts[1].store(env, injector)?) }
            }
            one => Media::of_files(one.store(env, injector)?),
        })
    }

    /// The store on one medium.
    pub(crate) fn store(&self, env: &Env, injector: Option<&FaultInjector>) -> Result<Arc<dyn FileStore>, StoreError> {
        Ok(match self {
            Image::Directory(directory) => {
                let mut medium: Arc<dyn Directory> = Arc::new(directory.clone());
                if let Some(injector) = injector {
                    medium = Arc::new(FaultDirectory::new(injector, medium));
                }
                Arc::new(PlainStore::open(env, medium, PlainOptions::default()))
            }
            Image::Device(device) => {
                let device = injector.map_or_else(|| device.clone(), |injector| FaultDevice::device(injector, device));
                if device.tracks.is_some() {
                    return Ok(Arc::new(ImrStore::open(env, device, &ImrOpenOptions::default())?));
                }
                if device.zones.is_some() {
                    return Ok(Arc::new(BandStore::open(env, device)?));
                }
                Arc::new(ExtentStore::open(env, device)?)
            }
            Image::Several(_) => panic!("one store of several media"),
        })
    }
}

fn ballast_name(number: u64) -> String {
    format!("ballast{number}")
}

/// Made once: every image of every disk is compared with it.
fn ballast_content(number: u64) -> Arc<[u8]> {
    static CONTENTS: Mutex<BTreeMap<u64, Arc<[u8]>>> = Mutex::new(BTreeMap::new());
    let make = || {
        let mut bytes = vec![0; TRACK_BYTES as usize];
        Random::named(number, "ballast").fill_bytes(&mut bytes);
        bytes.into()
    };
    CONTENTS.lock().entry(number).or_insert_with(make).clone()
}

/// What was on an interlaced disk beside the database is all there: so many tables.
pub(crate) fn check_ballast(files: &dyn FileStore, expected: u64) -> Result<(), String> {
    let said = |error: StoreError| error.to_string();
    let entries = files.list().map_err(said)?;
    let numbers = entries.iter().filter_map(|entry| entry.name.strip_prefix("ballast")?.parse::<u64>().ok());
    let mut count = 0;
    for number in numbers {
        let name = ballast_name(number);
        let reader = files.open(&name, &OpenOptions::default()).map_err(said)?;
        let mut data = vec![0; TRACK_BYTES as usize];
        reader.read_at(0, &mut data, &IoContext::default()).map_err(said)?;
        if *data != *ballast_content(number) {
            return Err(format!("'{name}' is another"));
        }
        count += 1;
    }
    if count == expected { Ok(()) } else { Err(format!("{count} of {expected} other tables are there")) }
}
