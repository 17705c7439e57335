//! Interlaced devices, and tracks that are wrong on purpose.

use super::*;
use crate::emulated::{Interlaced, Rules};
use crate::tracks::{DestroyedData, TrackControl, TrackDescription, TrackGeometry, TrackId};
use std::ops::Range;

/// Tracks of 128 KiB over memory: with bottoms that are `numerator` quarters of the tops.
fn interlaced(env: &Env, numerator: u64, strict: bool) -> Device {
    let tracks = TrackGeometry::fit(4 << 20, (128 << 10) * numerator / 4, 128 << 10).unwrap();
    interlaced_by(
        env,
        Interlaced::new(&tracks, 4096, strict),
        |rules| Box::new(rules),
        Box::new(crate::RamBacking::new()),
    )
}

/// A device of memory without delays, under rules that `wrap` makes of interlaced ones.
fn interlaced_by(
    env: &Env,
    rules: Interlaced,
    wrap: impl FnOnce(Interlaced) -> Box<dyn Rules>,
    backing: Box<dyn crate::Backing>,
) -> Device {
    let control = rules.control("interlaced");
    let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
    let (geometry, timing) = (rules.cut(&asked), Box::<crate::Immediate>::default());
    let block = Emulated::new(env, "interlaced", geometry, wrap(rules), timing, backing);
    Device { tracks: Some(control), ..Device::of_blocks(Arc::new(block)) }
}

/// Checks a device with tracks: bottoms as large as tops and larger, counting and strict.
fn check_interlaced(layer: impl Fn(&Env, &Device) -> Device) {
    for (numerator, strict, seed) in [(4, false, 1), (5, false, 2), (4, true, 3), (3, true, 4)] {
        let make = |env: &Env| layer(env, &interlaced(env, numerator, strict));
        let options = BlockDeviceCheck { seed, steps: 100, ..BlockDeviceCheck::default() };
        check_block_device(&make, &options)
            .unwrap_or_else(|broken| panic!("{numerator} quarters, strict {strict}, seed {seed}: {broken}"));
    }
}

#[test]
fn interlaced_memory() {
    check_interlaced(|_, device| device.clone());
}

#[test]
fn interlaced_disk_with_timing() {
    let preset = crate::presets::Preset::find("st500dm002").unwrap().with_capacity(32 << 20);
    let tracks = TrackGeometry::fit(32 << 20, 2 << 20, 2 << 20).unwrap();
    let make = |env: &Env| {
        let rules = Interlaced::new(&tracks, 4096, false);
        preset.build_interlaced(env, "imr", rules, Box::new(crate::RamBacking::new()), crate::Pacing::Account)
    };
    check_block_device(&make, &BlockDeviceCheck { steps: 40, ..Default::default() }).unwrap();
}

#[test]
fn interlaced_compressed_memory() {
    let tracks = TrackGeometry::fit(3 << 20, 256 << 10, 256 << 10).unwrap();
    let make = |env: &Env| {
        let backing = Box::new(crate::CompressedBacking::new());
        interlaced_by(env, Interlaced::new(&tracks, 4096, true), |rules| Box::new(rules), backing)
    };
    check_block_device(&make, &BlockDeviceCheck { steps: 100, ..Default::default() }).unwrap();
}

#[test]
fn interlaced_file() {
    let place = tempfile::tempdir().unwrap();
    let made = RefCell::new(0);
    let tracks = TrackGeometry::fit(3 << 20, 256 << 10, 256 << 10).unwrap();
    let make = |env: &Env| {
        let path = place.path().join(made.replace_with(|made| *made + 1).to_string());
        let file = crate::FileBacking::open(&path, tracks.capacity_bytes()).unwrap();
        interlaced_by(env, Interlaced::new(&tracks, 4096, false), |rules| Box::new(rules), Box::new(file))
    };
    check_block_device(&make, &BlockDeviceCheck { steps: 40, ..Default::default() }).unwrap();
}

#[test]
fn interlaced_tracks_on_a_file_device() {
    for (engine, strict) in [(IoEngine::Uring, false), (IoEngine::Positional, true)] {
        let place = tempfile::tempdir().unwrap();
        let made = RefCell::new(0);
        let options =
            FileDeviceOptions { engine, capacity_bytes: Some(2 << 20), create: true, ..FileDeviceOptions::default() };
        if let Err(error) = FileDevice::open(place.path().join("probe"), &options) {
            assert_eq!(engine, IoEngine::Uring, "{error}");
            eprintln!("io_uring not tested: {error}");
            continue;
        }
        let make = |_: &Env| {
            let number = made.replace_with(|made| *made + 1);
            let device = FileDevice::open(place.path().join(number.to_string()), &options).unwrap();
            let tracks = TrackGeometry::fit((2 << 20) - 4096, 128 << 10, 96 << 10).unwrap();
            let physical = device.geometry().physical_sector_bytes;
            let inner: Arc<dyn BlockDevice> = Arc::new(device);
            Interlaced::new(&tracks, physical, strict).over(&inner)
        };
        check_block_device(&make, &BlockDeviceCheck { steps: 20, ..Default::default() }).unwrap();
    }
}

#[test]
fn interlaced_fault_layer() {
    check_interlaced(|env, device| {
        let effect = FaultEffect::FailDroppingUnsynced(FaultError::Io);
        let fault = Fault::new(crate::Operation::Sync, FaultTrigger::From(u64::MAX), effect);
        FaultDevice::device(&FaultInjector::new(env, FaultPlan::of(fault)), device)
    });
}

#[test]
fn interlaced_trace_layer() {
    check_interlaced(|env, device| TraceDevice::device(env, Arc::new(MemoryTrace::new()), device));
}

#[test]
fn interlaced_crash_layer() {
    check_interlaced(|env, device| CrashDevice::new(env, device).unwrap().device());
}

#[test]
fn interlaced_crash_images() {
    check_interlaced(|env, device| CrashDevice::new(env, device).unwrap().capture().image(CrashVariant::KeepAll, 0));
}

#[test]
fn interlaced_layers_over_layers() {
    check_interlaced(|env, device| {
        let crash = CrashDevice::new(env, device).unwrap().device();
        let faulty = FaultDevice::device(&FaultInjector::new(env, FaultPlan::default()), &crash);
        TraceDevice::device(env, Arc::new(MemoryTrace::new()), &faulty)
    });
}

/// What wrong tracks do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrongTracks {
    Nothing,
    KeepsAll,
    OneNeighbour,
    ShortSpan,
    LongSpan,
    TopsDestroy,
    KeepsItsBeginning,
    CountsTwice,
    ForgetsMarks,
    LaxStrictness,
    HiddenStrictness,
    Tier,
    ShortReport,
}

/// Interlaced rules that break one clause.
struct WrongRules {
    wrong: WrongTracks,
    inner: Interlaced,
    tracks: TrackGeometry,
}

impl Rules for WrongRules {
    fn describe(&self, capabilities: &mut Capabilities) {
        self.inner.describe(capabilities);
    }

    fn admit(&mut self, device: &str, request: &Request<'_>) -> Result<(), MediaError> {
        if self.wrong == WrongTracks::LaxStrictness { Ok(()) } else { self.inner.admit(device, request) }
    }

    fn refused(&mut self, request: &Request<'_>) {
        self.inner.refused(request);
    }

    fn may_destroy(&self, written: Range<u64>) -> bool {
        self.inner.may_destroy(written)
    }

    fn written(&mut self, written: Range<u64>, destroyed: &mut Vec<Range<u64>>) {
        self.inner.written(written.clone(), destroyed);
        match self.wrong {
            WrongTracks::KeepsAll => destroyed.clear(),
            WrongTracks::OneNeighbour => destroyed.retain(|span| span.start < written.start),
            WrongTracks::ShortSpan => destroyed.iter_mut().for_each(|span| span.end -= 512),
            WrongTracks::LongSpan => {
                for span in destroyed {
                    let track = self.tracks.track_at(span.start).unwrap();
                    span.end = (span.end + 512).min(self.tracks.range(track).end);
                }
            }
            WrongTracks::TopsDestroy => {
                let track = self.tracks.track_at(written.start).unwrap();
                if self.tracks.tier(track) == crate::TrackTier::Top {
                    let start = self.tracks.start_bytes(track);
                    destroyed.push(start - 512..start);
                }
            }
            WrongTracks::KeepsItsBeginning => {
                destroyed.retain(|span| span.end <= written.start || span.start >= written.end)
            }
            _ => {}
        }
    }

    fn discarded(&mut self, discarded: Range<u64>) {
        self.inner.discarded(discarded);
    }

    fn complete(&mut self, device: &str, request: &mut Request<'_>) -> Result<(), MediaError> {
        self.inner.complete(device, request)
    }
}

struct WrongControl {
    wrong: WrongTracks,
    inner: Arc<dyn TrackControl>,
}

impl TrackControl for WrongControl {
    fn describe(&self, track: TrackId) -> Result<TrackDescription, MediaError> {
        let mut description = self.inner.describe(track)?;
        if self.wrong == WrongTracks::Tier {
            description.tier = crate::TrackTier::Top;
        }
        Ok(description)
    }

    fn report(&self, first: TrackId, count: u32) -> Result<Vec<TrackDescription>, MediaError> {
        let mut reported = self.inner.report(first, count)?;
        if self.wrong == WrongTracks::ShortReport {
            reported.pop();
        }
        Ok(reported)
    }

    fn mark_free(&self, track: TrackId) -> Result<(), MediaError> {
        if self.wrong == WrongTracks::ForgetsMarks {
            return self.inner.describe(track).map(drop);
        }
        self.inner.mark_free(track)
    }

    fn destroyed(&self) -> DestroyedData {
        let destroyed = self.inner.destroyed();
        let factor = if self.wrong == WrongTracks::CountsTwice { 2 } else { 1 };
        DestroyedData { writes: destroyed.writes * factor, ..destroyed }
    }

    fn is_strict(&self) -> bool {
        self.inner.is_strict() && self.wrong != WrongTracks::HiddenStrictness
    }
}

#[test]
fn the_suite_catches_wrong_tracks() {
    let check = |wrong, strict| {
        let make = |env: &Env| {
            let tracks = TrackGeometry::fit(4 << 20, 128 << 10, 128 << 10).unwrap();
            let rules = Interlaced::new(&tracks, 4096, strict);
            let wrap = |inner| -> Box<dyn Rules> { Box::new(WrongRules { wrong, inner, tracks }) };
            let device = interlaced_by(env, rules, wrap, Box::new(crate::RamBacking::new()));
            let control =
                device.tracks.clone().map(|inner| -> Arc<dyn TrackControl> { Arc::new(WrongControl { wrong, inner }) });
            Device { tracks: control, ..device }
        };
        check_block_device(&make, &BlockDeviceCheck { steps: 50, ..Default::default() })
    };
    assert_eq!(check(WrongTracks::Nothing, false), Ok(()));
    assert_eq!(check(WrongTracks::Nothing, true), Ok(()));
    for (what, strict, clause) in [
        (WrongTracks::KeepsAll, true, "a write to a bottom track destroys the same span of its neighbours"),
        (WrongTracks::OneNeighbour, true, "a write to a bottom track destroys the same span of its neighbours"),
        (WrongTracks::ShortSpan, true, "a write to a bottom track destroys the same span of its neighbours"),
        (WrongTracks::LongSpan, true, "a write to a bottom track destroys the same span of its neighbours"),
        (WrongTracks::TopsDestroy, true, "a write to a top track destroys nothing"),
        (WrongTracks::KeepsItsBeginning, false, "a write reaches its sectors in ascending order"),
        (WrongTracks::CountsTwice, false, "counts the live data it destroys"),
        (WrongTracks::ForgetsMarks, false, "counts the live data it destroys"),
        (WrongTracks::LaxStrictness, true, "a write reaches its sectors in ascending order"),
        (WrongTracks::HiddenStrictness, true, "a write reaches its sectors in ascending order"),
        (WrongTracks::Tier, false, "describes its tracks"),
        (WrongTracks::ShortReport, false, "describes its tracks"),
    ] {
        let found = check(what, strict).expect_err(&format!("{what:?} went unnoticed"));
        assert_eq!(found.clause, clause, "{what:?}: {found}");
    }
}
