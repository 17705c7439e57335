//! Media that are crashed: a directory below `plain`, a device below `extent`.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve_engine::Media;
use varve_env::Env;
use varve_media::{
    CrashDevice, CrashVariant, Device, DeviceCrashState, Directory, DirectoryCrashState, Emulated, FaultDevice,
    FaultDirectory, FaultInjector, MemoryDirectory,
};
use varve_store::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore, PlainOptions, PlainStore, StoreError};

/// Room of the emulated device.
pub(crate) const DEVICE_BYTES: u64 = 64 << 20;

/// A store and what it stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Extent,
    ExtentExt4,
}

impl Kind {
    /// The variants that make a difference.
    pub(crate) fn variants(self) -> &'static [CrashVariant] {
        match self {
            Kind::Plain => &CrashVariant::OF_DIRECTORIES,
            _ => &CrashVariant::OF_DEVICES,
        }
    }

    pub(crate) fn layout(self) -> ExtentLayout {
        match self {
            Kind::ExtentExt4 => ExtentLayout::Ext4(Ext4Options { group_bytes: 8 << 20, journal_bytes: Some(1 << 20) }),
            _ => ExtentLayout::FirstFit,
        }
    }
}

/// What a power cut at one moment could leave.
#[derive(Clone)]
pub(crate) enum CrashState {
    Directory(DirectoryCrashState),
    Device(DeviceCrashState),
}

impl CrashState {
    pub(crate) fn image(&self, variant: CrashVariant, seed: u64) -> Image {
        match self {
            CrashState::Directory(state) => Image::Directory(state.image(variant, seed)),
            CrashState::Device(state) => Image::Device(state.image(variant, seed)),
        }
    }
}

/// One moment before an operation that matters to a power cut.
pub(crate) struct Point {
    pub(crate) state: CrashState,
    /// What was about to happen.
    pub(crate) note: String,
    /// Batches acknowledged as durable then.
    pub(crate) synced: usize,
    /// Batches begun then.
    pub(crate) begun: usize,
}

/// Collects the persistence points of a medium.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) points: Mutex<Vec<Point>>,
    pub(crate) synced: AtomicUsize,
    pub(crate) begun: AtomicUsize,
}

impl Recorder {
    fn record(&self, state: CrashState, note: String) {
        let synced = self.synced.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        self.points.lock().push(Point { state, note, synced, begun });
    }
}

/// A medium after a power cut, or a fresh one.
#[derive(Clone)]
pub(crate) enum Image {
    Directory(MemoryDirectory),
    Device(Device),
}

impl Image {
    /// An empty medium; a device is formatted.
    pub(crate) fn fresh(env: &Env, kind: Kind) -> Image {
        if kind == Kind::Plain {
            return Image::Directory(MemoryDirectory::new("crashed"));
        }
        // Of the real world, where it takes no time: images read it from other simulations.
        let emulated = Emulated::immediate(&Env::real(), "crashed", DEVICE_BYTES);
        let device = Device::of_blocks(Arc::new(emulated));
        let options = ExtentFormatOptions { layout: kind.layout(), ..ExtentFormatOptions::default() };
        ExtentStore::format(env, &device, &options).expect("format");
        Image::Device(device)
    }

    /// The medium with every persistence point from now on going to `recorder`.
    pub(crate) fn observed(&self, env: &Env, recorder: &Arc<Recorder>) -> Image {
        let recorder = recorder.clone();
        match self {
            Image::Directory(directory) => {
                directory.on_persistence_point(move |point| {
                    recorder.record(CrashState::Directory(point.capture()), format!("{point:?}"));
                });
                self.clone()
            }
            Image::Device(device) => {
                let crash = CrashDevice::new(env, device).expect("crash layer");
                crash.on_persistence_point(move |point| {
                    recorder.record(CrashState::Device(point.capture()), format!("{point:?}"));
                });
                Image::Device(crash.device())
            }
        }
    }

    /// Opens the store on it.
    pub(crate) fn media(&self, env: &Env) -> Result<Media, StoreError> {
        self.media_under(env, None)
    }

    /// Opens the store on it, with the faults of an injector between.
    pub(crate) fn media_under(&self, env: &Env, injector: Option<&FaultInjector>) -> Result<Media, StoreError> {
        Ok(match self {
            Image::Directory(directory) => {
                let mut medium: Arc<dyn Directory> = Arc::new(directory.clone());
                if let Some(injector) = injector {
                    medium = Arc::new(FaultDirectory::new(injector, medium));
                }
                Media::of_files(Arc::new(PlainStore::open(env, medium, PlainOptions::default())))
            }
            Image::Device(device) => {
                let device = injector.map_or_else(|| device.clone(), |injector| FaultDevice::device(injector, device));
                Media::of_files(Arc::new(ExtentStore::open(env, device)?))
            }
        })
    }
}
