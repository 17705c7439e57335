//! Media that are crashed: those that every store says it can be tried on, and two at once, the second for logs.

#[path = "arrays.rs"]
mod arrays;

use arrays::ARRAYS;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_engine::Media;
use varve_env::{Env, Random};
use varve_media::{
    CrashGroup, CrashVariant, Device, Directory, DirectoryCrashState, FaultDevice, FaultDirectory, FaultInjector,
    GroupCrashState, IoClass, IoContext, MemoryDirectory, Operation, OverlayDevice, PersistencePoint,
};
use varve_store::conformance::{Fixture, FixturePolicies, Ground, STORES};
use varve_store::{AllocationName, CreateOptions, FileKind, FileStore, OpenOptions, RewriteName, StoreError};

/// Space of the emulated device.
pub(crate) const DEVICE_BYTES: u64 = 64 << 20;

/// Space of a device whose tables follow each other.
const SMALL_DEVICE_BYTES: u64 = 1 << 20;

/// What is free of it: so little that tables go around it.
pub(crate) const SMALL_DEVICE_FREE_BYTES: u64 = 224 << 10;

/// Bytes of a track of an interlaced disk.
pub(crate) const TRACK_BYTES: u64 = Kind::KVIMR.fixture.unit_bytes;

/// Tracks for tables of an interlaced disk that is to be full.
pub(crate) const FULL_DISK_TRACKS: u64 = 330;

/// What is free of them: a few more than the tables of a small database need at once.
pub(crate) const FULL_DISK_FREE_TRACKS: u64 = 39;

/// Tables beside the database there.
pub(crate) const FULL_DISK_BALLAST: u64 = FULL_DISK_TRACKS - FULL_DISK_FREE_TRACKS;

/// Bytes of a band of a zoned device.
pub(crate) const BAND_BYTES: u64 = Kind::BAND.fixture.unit_bytes;

/// A store and what it stands on: a fixture of the table of stores, and one of its policies.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    fixture: &'static Fixture,
    policy: usize,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        (self.name(), self.policy) == (other.name(), other.policy)
    }
}

impl Eq for Kind {}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fixture.name)?;
        self.fixture.policies.as_ref().map_or(Ok(()), |policies| f.write_str(&(policies.text)(self.policy)))
    }
}

/// Numbers of members that failed, and that were rebuilt, while databases used their arrays.
pub(crate) fn failed_and_rebuilt() -> (u64, u64) {
    arrays::failed_and_rebuilt()
}

/// Every fixture of every store, and arrays.
fn fixtures() -> impl Iterator<Item = &'static Fixture> {
    STORES.iter().flat_map(|store| store.fixtures).chain(ARRAYS)
}

/// The kinds without policies, with their shares of what workloads draw. A fixture that a store has is in every suite
/// that draws kinds or goes through them.
pub(crate) fn shares() -> impl Iterator<Item = (Kind, usize)> {
    let alone = fixtures().filter(|fixture| fixture.policies.is_none());
    alone.map(|fixture| (Kind { fixture, policy: 0 }, fixture.share))
}

/// The kinds without policies for which `wanted` is so.
pub(crate) fn kinds(wanted: fn(Kind) -> bool) -> Vec<Kind> {
    shares().map(|(kind, _)| kind).filter(|kind| wanted(*kind)).collect()
}

/// Every way to place and rewrite on interlaced disks, with logs on the disk and on another device; and those of whatever
/// other store has policies.
pub(crate) fn imr_kinds() -> Vec<Kind> {
    let of_store = |fixtures: &'static [Fixture]| {
        let count = |fixture: &Fixture| fixture.policies.map_or(0, |policies| policies.count);
        let count_max = fixtures.iter().map(count).max().unwrap_or(0);
        (0..count_max).flat_map(move |policy| {
            fixtures.iter().filter(move |fixture| policy < count(fixture)).map(move |fixture| Kind { fixture, policy })
        })
    };
    STORES.iter().flat_map(|store| of_store(store.fixtures)).collect()
}

/// Those that tests are about by name.
impl Kind {
    pub(crate) const PLAIN: Kind = Kind::named("Plain");
    pub(crate) const PLAIN_LOGS_APART: Kind = Kind::named("PlainLogsApart");
    pub(crate) const EXTENT: Kind = Kind::named("Extent");
    /// Tables go around it.
    pub(crate) const EXTENT_NEXT_FIT: Kind = Kind::named("ExtentNextFit");
    pub(crate) const EXTENT_EXT4: Kind = Kind::named("ExtentExt4");
    pub(crate) const EXTENT_LOGS_APART: Kind = Kind::named("ExtentLogsApart");
    /// On persistent memory.
    pub(crate) const EXTENT_MEMORY: Kind = Kind::named("ExtentMemory");
    /// Tables in bands of a zoned device.
    pub(crate) const BAND: Kind = Kind::named("Band");
    /// Tables in as many zones of one as they need, up to the size of a band.
    pub(crate) const VARIABLE_BANDS: Kind = Kind::named("VariableBands");
    /// An interlaced disk with the policies of the paper of that name.
    pub(crate) const KVIMR: Kind = Kind::named("Imr").with_policies_of_kvimr();
    pub(crate) const KVIMR_LOGS_APART: Kind = Kind::named("ImrLogsApart").with_policies_of_kvimr();

    /// The fixture of this name, with the first of its policies.
    const fn named(name: &str) -> Kind {
        let mut store = 0;
        while store < STORES.len() {
            let mut place = 0;
            while place < STORES[store].fixtures.len() {
                let fixture = &STORES[store].fixtures[place];
                if is_same(fixture.name, name) {
                    return Kind { fixture, policy: 0 };
                }
                place += 1;
            }
            store += 1;
        }
        panic!("no store has a fixture of this name")
    }

    const fn with_policies_of_kvimr(self) -> Kind {
        let (mut allocation, mut rewrite) = (0, 0);
        while !matches!(AllocationName::ALL[allocation], AllocationName::CompactionAware) {
            allocation += 1;
        }
        while !matches!(RewriteName::ALL[rewrite], RewriteName::Merged) {
            rewrite += 1;
        }
        Kind { policy: RewriteName::ALL.len() * allocation + rewrite, ..self }
    }

    /// Tables on an interlaced disk.
    pub(crate) fn imr(allocation: AllocationName, rewrite: RewriteName) -> Kind {
        Kind { policy: imr_policy(allocation, rewrite), ..Kind::named("Imr") }
    }

    /// The same with everything that is no table on a device beside it.
    pub(crate) fn imr_logs_apart(allocation: AllocationName, rewrite: RewriteName) -> Kind {
        Kind { policy: imr_policy(allocation, rewrite), ..Kind::named("ImrLogsApart") }
    }
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut place = 0;
    while place < one.len() && place < other.len() && one[place] == other[place] {
        place += 1;
    }
    place == one.len() && place == other.len()
}

fn imr_policy(allocation: AllocationName, rewrite: RewriteName) -> usize {
    let text = format!("{:?}", (allocation, rewrite));
    let FixturePolicies { count, text: text_of } = Kind::named("Imr").fixture.policies.expect("policies");
    (0..count).find(|&number| text_of(number) == text).expect("a pair of policies")
}

impl Kind {
    /// Made of directories.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self.fixture.ground, Ground::Directory { .. })
    }

    /// The variants that make a difference.
    pub(crate) fn variants(self) -> &'static [CrashVariant] {
        if self.is_plain() { &CrashVariant::OF_DIRECTORIES } else { &CrashVariant::OF_DEVICES }
    }

    /// Its number among those with policies; 0 for others.
    pub(crate) fn number(self) -> usize {
        imr_kinds().iter().position(|kind| *kind == self).unwrap_or(0)
    }

    /// What it is without its policies, as what was reached on it is told.
    pub(crate) fn name(self) -> &'static str {
        self.fixture.name
    }

    /// Has its logs on a medium of their own.
    pub(crate) fn has_logs_apart(self) -> bool {
        self.fixture.logs_apart || matches!(self.fixture.ground, Ground::Pair { .. })
    }

    /// Space of its medium, where `usual_bytes` is enough for others.
    pub(crate) fn space_bytes(self, usual_bytes: u64) -> u64 {
        self.fixture.space_bytes.unwrap_or(usual_bytes)
    }

    /// Is on an array, which writes to its members when it is opened.
    pub(crate) fn is_array(self) -> bool {
        matches!(self.fixture.ground, Ground::Members { .. })
    }

    /// Bits that read wrong without an error, everywhere and again and again, may be written so elsewhere: tops of interlaced
    /// disks are restored, parity of arrays is computed, and records of their journal end it.
    pub(crate) fn spreads_flipped_bits(self) -> bool {
        self.is_imr() || self.is_array()
    }

    /// Has an interlaced disk.
    pub(crate) fn is_imr(self) -> bool {
        self.name().starts_with("Imr")
    }
}

/// The media of a database at one moment: what a power cut could leave of them. Several media lose power together.
#[derive(Clone)]
pub(crate) enum CrashState {
    Directories(Kind, Vec<DirectoryCrashState>),
    Devices(Kind, GroupCrashState),
}

impl CrashState {
    /// One image of the media. With an odd seed each of several media meets a fate of its own.
    pub(crate) fn image(&self, variant: CrashVariant, seed: u64) -> Image {
        let mut parts: Vec<Image> = match self {
            CrashState::Directories(kind, states) => {
                let fates = CrashVariant::fates(variant, states.len(), seed);
                let parts = states.iter().zip(fates).zip(seed..);
                parts.map(|((state, fate), seed)| Image::Directory(*kind, state.image(fate, seed))).collect()
            }
            CrashState::Devices(kind, state) => {
                let fates = CrashVariant::fates(variant, state.members(), seed);
                state.images(&fates, seed).into_iter().map(|device| Image::Device(*kind, device)).collect()
            }
        };
        if parts.len() == 1 { parts.remove(0) } else { Image::Several(parts) }
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

/// The media of a database under crash layers.
enum Watched {
    Directories(Kind, Vec<MemoryDirectory>),
    Devices(Kind, CrashGroup),
}

impl Watched {
    fn capture(&self) -> CrashState {
        match self {
            Watched::Directories(kind, directories) => {
                CrashState::Directories(*kind, directories.iter().map(MemoryDirectory::capture).collect())
            }
            Watched::Devices(kind, group) => CrashState::Devices(*kind, group.capture()),
        }
    }

    fn persistence_points(&self) -> u64 {
        match self {
            Watched::Directories(_, directories) => directories.iter().map(MemoryDirectory::persistence_points).sum(),
            Watched::Devices(_, group) => group.persistence_points(),
        }
    }

    /// Sends the points that `recorder` asks for to it.
    fn watch(&self, recorder: &Arc<Recorder>) {
        fn note<S>(members: usize, member: usize, point: &PersistencePoint<'_, S>) -> String {
            if members == 1 { format!("{point:?}") } else { format!("medium {member} {point:?}") }
        }
        match self {
            Watched::Directories(kind, directories) => {
                for (member, directory) in directories.iter().enumerate() {
                    let (kind, recorder, all) = (*kind, recorder.clone(), directories.clone());
                    directory.on_persistence_point(move |point| {
                        let Some(tag) = recorder.tag() else { return };
                        let of = |(other, directory): (usize, &MemoryDirectory)| match other == member {
                            true => point.capture(),
                            false => directory.capture(),
                        };
                        let states = all.iter().enumerate().map(of).collect();
                        let state = CrashState::Directories(kind, states);
                        recorder.record(tag, state, point.operation, note(all.len(), member, point));
                    });
                }
            }
            Watched::Devices(kind, group) => {
                let (kind, recorder, members) = (*kind, recorder.clone(), group.devices().len());
                group.on_persistence_point(move |member, point, capture| {
                    let Some(tag) = recorder.tag() else { return };
                    let state = CrashState::Devices(kind, capture());
                    recorder.record(tag, state, point.operation, note(members, member, point));
                });
            }
        }
    }

    fn stop_watching(&self) {
        match self {
            // Observers of several directories hold each other.
            Watched::Directories(_, directories) => {
                directories.iter().for_each(|directory| directory.on_persistence_point(|_| {}));
            }
            Watched::Devices(_, group) => group.stop_observing(),
        }
    }
}

/// Media whose persistence points are being recorded, until this is dropped.
pub(crate) struct Observation {
    /// The media to work on.
    pub(crate) image: Image,
    watched: Watched,
    passed_before: u64,
}

impl Observation {
    /// The crash state of all media now.
    pub(crate) fn capture(&self) -> CrashState {
        self.watched.capture()
    }

    /// Persistence points passed since the observation began, as counted by the media.
    pub(crate) fn points(&self) -> u64 {
        self.watched.persistence_points() - self.passed_before
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.watched.stop_watching();
    }
}

/// A medium after a power cut, or a fresh one.
#[derive(Clone)]
pub(crate) enum Image {
    Directory(Kind, MemoryDirectory),
    Device(Kind, Device),
    /// Files on the first, logs on the second.
    Several(Vec<Image>),
}

impl Image {
    /// An empty medium; a device is formatted.
    pub(crate) fn fresh(env: &Env, kind: Kind) -> Image {
        if kind.is_imr() {
            let image = Image::fresh_of(env, kind, FULL_DISK_TRACKS * TRACK_BYTES);
            image.fill_tracks(FULL_DISK_FREE_TRACKS);
            return image;
        }
        if kind != Kind::EXTENT_NEXT_FIT {
            return Image::fresh_of(env, kind, kind.space_bytes(DEVICE_BYTES));
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
        let several = |devices: Vec<Device>| {
            Image::Several(devices.into_iter().map(|device| Image::Device(kind, device)).collect())
        };
        let made = |label: &str| match kind.fixture.ground {
            Ground::Directory { .. } => Image::Directory(kind, MemoryDirectory::new(label)),
            Ground::Device { make, .. } => Image::Device(kind, make(env, label, kind.policy, space_bytes)),
            Ground::Pair { make, .. } => several(make(env, label, kind.policy, space_bytes).into()),
            Ground::Members { make, .. } => several(make(env, label, kind.policy, space_bytes)),
        };
        match kind.fixture.logs_apart {
            true => Image::Several(vec![made("crashed"), made("crashed logs")]),
            false => made("crashed"),
        }
    }

    /// A directory that is empty, or has files in it.
    pub(crate) fn plain(directory: MemoryDirectory) -> Image {
        Image::Directory(Kind::PLAIN, directory)
    }

    /// Bytes of tables written so far; 0 where nobody counts.
    pub(crate) fn table_bytes_written(&self) -> u64 {
        match self {
            Image::Directory(..) => 0,
            Image::Device(_, device) => {
                let written = device.block.counters().written_bytes_by_class;
                written[IoClass::Flush.index()] + written[IoClass::Compaction.index()]
            }
            Image::Several(parts) => parts.iter().map(Image::table_bytes_written).sum(),
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
        matches!(self, Image::Device(_, device) if device.tracks.is_some())
    }

    /// Live data of interlaced disks that writes destroyed. Their rules are strict: none.
    pub(crate) fn destroyed_bytes(&self) -> u64 {
        match self {
            Image::Directory(..) => 0,
            Image::Device(_, device) => device.tracks.as_ref().map_or(0, |tracks| tracks.destroyed().bytes),
            Image::Several(parts) => parts.iter().map(Image::destroyed_bytes).sum(),
        }
    }

    /// Requests that the device had to refuse or failed: none, where nobody injects faults.
    pub(crate) fn device_errors(&self) -> u64 {
        match self {
            Image::Directory(..) => 0,
            Image::Device(_, device) => device.block.counters().errors,
            Image::Several(parts) => parts.iter().map(Image::device_errors).sum(),
        }
    }

    /// The medium with every persistence point from now on going to `recorder`. Several media are
    /// captured together at each point of any of them.
    pub(crate) fn observed(&self, env: &Env, recorder: &Arc<Recorder>) -> Observation {
        let parts: &[Image] = if let Image::Several(parts) = self { parts } else { std::slice::from_ref(self) };
        let (mut directories, mut devices, mut kind) = (Vec::new(), Vec::new(), None);
        for part in parts {
            match part {
                Image::Directory(of, directory) => {
                    directories.push(directory.clone());
                    kind = Some(*of);
                }
                Image::Device(of, device) => {
                    devices.push(device.clone());
                    kind = Some(*of);
                }
                Image::Several(_) => panic!("media of media"),
            }
        }
        assert!(directories.is_empty() || devices.is_empty(), "directories and devices do not lose power together yet");
        let kind = kind.expect("a medium");
        let (mut images, watched): (Vec<Image>, Watched) = if devices.is_empty() {
            let images = directories.iter().map(|directory| Image::Directory(kind, directory.clone())).collect();
            (images, Watched::Directories(kind, directories))
        } else {
            let group = CrashGroup::new(env, &devices).expect("crash layer");
            let images = group.devices().into_iter().map(|device| Image::Device(kind, device)).collect();
            (images, Watched::Devices(kind, group))
        };
        watched.watch(recorder);
        let passed_before = watched.persistence_points();
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
            Image::Directory(_, directory) => directory.persistence_points(),
            Image::Device(_, device) => {
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
            Image::Directory(..) => self.clone(),
            Image::Device(kind, device) => Image::Device(*kind, OverlayDevice::device(device).expect("overlay")),
            Image::Several(parts) => Image::Several(parts.iter().map(Image::only_read).collect()),
        }
    }

    /// Opens the store on it.
    pub(crate) fn media(&self, env: &Env) -> Result<Media, StoreError> {
        self.media_under(env, None)
    }

    /// Opens the store on it, with the faults of an injector between.
    pub(crate) fn media_under(&self, env: &Env, injector: Option<&FaultInjector>) -> Result<Media, StoreError> {
        let Image::Several(parts) = self else { return Ok(Media::of_files(self.store(env, injector)?)) };
        if let Image::Device(kind, _) = &parts[0] {
            let under = |part: &Image| part.device_under(injector);
            match kind.fixture.ground {
                Ground::Pair { open, .. } => {
                    return Ok(Media::of_files(open(env, [under(&parts[0]), under(&parts[1])])?));
                }
                Ground::Members { open, .. } => {
                    return Ok(Media::of_files(open(env, parts.iter().map(under).collect())?));
                }
                Ground::Device { .. } | Ground::Directory { .. } => {}
            }
        }
        Ok(Media { files: Some(parts[0].store(env, injector)?), logs: Some(parts[1].store(env, injector)?) })
    }

    /// The device it is, with the faults of an injector over it.
    fn device_under(&self, injector: Option<&FaultInjector>) -> Device {
        let Image::Device(_, device) = self else { panic!("a device") };
        injector.map_or_else(|| device.clone(), |injector| FaultDevice::device(injector, device))
    }

    /// The store on one medium.
    pub(crate) fn store(&self, env: &Env, injector: Option<&FaultInjector>) -> Result<Arc<dyn FileStore>, StoreError> {
        match self {
            Image::Directory(kind, directory) => {
                let Ground::Directory { open } = kind.fixture.ground else { panic!("{kind:?} in a directory") };
                let mut medium: Arc<dyn Directory> = Arc::new(directory.clone());
                if let Some(injector) = injector {
                    medium = Arc::new(FaultDirectory::new(injector, medium));
                }
                open(env, medium)
            }
            Image::Device(kind, _) => {
                let Ground::Device { open, .. } = kind.fixture.ground else { panic!("{kind:?} on one device") };
                open(env, self.device_under(injector))
            }
            Image::Several(_) => panic!("one store of several media"),
        }
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
