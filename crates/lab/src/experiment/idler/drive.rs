//! The paper's drive, and what its experiments run on it.

use crate::block::buffer::{BufferOpening, BufferParameters, BufferStatistics, EvictionOrder, WriteBuffer};
use crate::block::idler::{ControlStatistics, ControlledDevice, Controller, FixedIdle, GhostCache, Idler};
use crate::block::idler::{IdlerParameters, Unrestrained};
use crate::block::relocation::{Formatting, RelocatingDevice, RelocationParameters, RelocationStatistics};
use crate::error::LabError;
use crate::experiment::together::{Wanted, measure};
use crate::experiment::{Run, Scale, simulate};
use crate::media::emulated::TranslationParameters;
use crate::media::presets::Preset;
use crate::media::{
    CleaningCounters, Device, IoContext, MediaCache, NoBacking, Pacing, ZoneGeometry, ZoneId, ZoneType, Zoned,
};
use crate::replay::{
    BlockRequest, Calibrated, Pace, Partition, ReplayOptions, Replayed, Synthetic, replay, replay_controlled,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use varve::env::Env;

/// Zones that relocation's journal takes.
const RELOCATION_JOURNAL_ZONES: u32 = 2;

/// Zones of the ST8000AS0022 (Zhang, section 4.4).
pub(super) const ZONE_BYTES: u64 = 256 << 20;

/// Control of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Control {
    /// A conventional disk with the same mechanics.
    Conventional,
    /// The shingled drive by itself.
    None,
    /// \<execution:idle\>, in milliseconds.
    Fixed(u64, u64),
    Idler,
    /// Ours: zones are moved, and writes that would fill the cache are held.
    Relocating,
    /// A drive whose cache is never full and that never cleans.
    Endless,
}

impl Control {
    pub(super) fn name(self) -> String {
        let seconds = |millis: u64| millis as f64 / 1e3;
        match self {
            Control::Conventional => "CMR".to_owned(),
            Control::None => "no control".to_owned(),
            Control::Fixed(execution, idle) => format!("AT-IC <{}:{}>", seconds(execution), seconds(idle)),
            Control::Idler => "Idler".to_owned(),
            Control::Relocating => "ours, relocating".to_owned(),
            Control::Endless => "endless cache".to_owned(),
        }
    }
}

/// A drive at a scale: as many zones, as much cache and as many extents less; times stay as they are, but for the time between
/// reports, which goes with the cache.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Drive {
    pub(super) zone_count: u32,
    pub(super) translation: TranslationParameters,
    pub(super) idler: IdlerParameters,
    /// Zones at the start that are written as any disk.
    pub(super) conventional_zones: u32,
    /// A write buffer before it.
    pub(super) buffer: Option<BufferParameters>,
}

impl Drive {
    pub(super) fn new(scale: Scale) -> Drive {
        let full = TranslationParameters::st8000as0022();
        let MediaCache { bytes, extents_max } = full.media_cache;
        let media_cache = MediaCache { bytes: scale.of(bytes), extents_max: scale.of(u64::from(extents_max)) as u32 };
        let capacity_bytes = Preset::find("st8000as0022").map_or(0, |preset| preset.geometry().capacity_bytes);
        let zone_count = scale.of(capacity_bytes / ZONE_BYTES) as u32;
        // A report tells what of the cache became free: as often in the time in which the cache fills.
        let own = IdlerParameters::default();
        let idler = IdlerParameters { report_nanos: scale.of(own.report_nanos), ..own };
        Drive {
            zone_count,
            translation: TranslationParameters { media_cache, ..full },
            idler,
            conventional_zones: 0,
            buffer: None,
        }
    }

    /// The same with the paper's write buffer, at the scale.
    pub(super) fn with_buffer(self, scale: Scale) -> Drive {
        let usual = BufferParameters::default();
        let page_count = scale.of(usual.page_count.into()) as u32;
        Drive { buffer: Some(BufferParameters { page_count, ..usual }), ..self }
    }

    /// Bytes of it.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.zone_count) * ZONE_BYTES
    }

    /// Its zones, and some more.
    fn zones(&self, more: u32) -> Result<ZoneGeometry, LabError> {
        // A buffer keeps the last to itself.
        let count = self.zone_count + u32::from(self.buffer.is_some()) + more;
        let fit = ZoneGeometry::fit(u64::from(count) * ZONE_BYTES, ZONE_BYTES);
        let fit = fit.ok_or_else(|| LabError::invalid("zones", count.to_string()))?;
        let sequential_type = ZoneType::SequentialWritePreferred;
        let (conventional_zones, media_cache) = (self.conventional_zones, Some(self.translation.media_cache));
        Ok(ZoneGeometry { conventional_zones, sequential_type, media_cache, ..fit })
    }

    /// A controller of the drive.
    pub(super) fn controller(&self, control: Control) -> Result<Box<dyn Controller>, LabError> {
        let ghost = || Ok::<_, LabError>(GhostCache::new(&self.zones(0)?, self.translation.media_cache));
        Ok(match control {
            Control::Fixed(execution, idle) => Box::new(FixedIdle::new(execution * 1_000_000, idle * 1_000_000)),
            Control::Idler => Box::new(Idler::new(self.idler.clone(), ghost()?)),
            Control::Conventional | Control::None | Control::Endless | Control::Relocating => Box::new(Unrestrained),
        })
    }

    /// Memory of what control knows of the zones and of the map, at most.
    pub(super) fn ghost_bytes(&self, control: Control) -> Result<usize, LabError> {
        let ghost = || Ok::<_, LabError>(GhostCache::new(&self.zones(0)?, self.translation.media_cache));
        Ok(match control {
            Control::Idler => ghost()?.memory_bytes_max(),
            _ => 0,
        })
    }

    /// Memory of relocation on the drive in bytes, at most: what it knows, and the buffer it copies through; and the zones that it keeps to
    /// itself, spares and journal.
    pub(super) fn relocation_memory_bytes(&self, seed: u64) -> Result<(usize, usize, u32), LabError> {
        let drive = self.clone();
        simulate(seed, move |env| {
            let (_, handles) = drive.build_uncontrolled(env, Control::Relocating)?;
            let (known, copied) = handles.relocation.map_or((0, 0), |relocation| relocation.memory_bytes_max());
            Ok((known, copied, RelocationParameters::default().spares + RELOCATION_JOURNAL_ZONES))
        })
    }

    /// A write buffer before a disk, on an emulated SATA SSD without bytes: by zones before one that has them, by pages before one that has none, as
    /// in the paper.
    pub(super) fn buffered(
        &self,
        env: &Env,
        disk: &Device,
        control: Option<ControlledDevice>,
        parameters: &BufferParameters,
    ) -> Result<(Device, WriteBuffer), LabError> {
        let preset =
            Preset::find("sata-ssd").ok_or_else(|| LabError::invalid("preset", "there is no 'sata-ssd'".to_owned()))?;
        let fast = preset.build(env, "write buffer", Box::new(NoBacking), Pacing::Sleep);
        let fast = Device::of_blocks(Arc::new(fast));
        let parameters = match disk.zones {
            Some(_) => parameters.clone(),
            None => BufferParameters { order: EvictionOrder::Pages, rewrite_pages: None, ..parameters.clone() },
        };
        let opened = WriteBuffer::open(env, disk, &fast, parameters, BufferOpening::default(), control);
        opened.map_err(|error| LabError::invalid("write buffer", error.to_string()))
    }

    /// The shingled drive without bytes and control, with `more` zones than usual.
    pub(super) fn build_bare(&self, env: &Env, more: u32) -> Result<Device, LabError> {
        let zones = self.zones(more)?;
        let rules = Zoned::new(&zones);
        let translation = self.translation.clone();
        Ok(preset(&zones)?.build_translated(env, "HA-SMR", rules, translation, Box::new(NoBacking), Pacing::Sleep))
    }

    /// The device that a control stands on, without a controller that holds requests: a conventional disk, a drive whose cache never fills,
    /// the drive by itself, or the drive under relocation.
    pub(super) fn build_uncontrolled(&self, env: &Env, control: Control) -> Result<(Device, Handles), LabError> {
        match control {
            Control::Conventional => {
                let device = preset(&self.zones(0)?)?.build(env, "CMR", Box::new(NoBacking), Pacing::Sleep);
                Ok((Device::of_blocks(Arc::new(device)), Handles::default()))
            }
            // Its place on the disk is as far from everything as that of the other.
            Control::Endless => {
                let never = u64::MAX / 4;
                let translation = TranslationParameters { idle_trigger_nanos: never, ..self.translation.endless() };
                let endless = Drive { translation, ..self.clone() };
                Ok((endless.build_bare(env, 0)?, Handles::default()))
            }
            Control::Relocating => {
                let relocation =
                    RelocationParameters { report_nanos: self.idler.report_nanos, ..RelocationParameters::default() };
                // As many as of the others can be used.
                let drive = self.build_bare(env, relocation.spares + RELOCATION_JOURNAL_ZONES)?;
                let limits = self.translation.media_cache;
                let opened = RelocatingDevice::open(env, &drive, limits, relocation, Formatting::IfBlank);
                let (device, handle) = opened.map_err(|error| LabError::invalid("drive", error.to_string()))?;
                Ok((device, Handles { control: None, relocation: Some(handle) }))
            }
            Control::None | Control::Fixed(..) | Control::Idler => Ok((self.build_bare(env, 0)?, Handles::default())),
        }
    }

    /// The device, without bytes, under control that holds requests when they arrive at it.
    pub(super) fn build(&self, env: &Env, control: Control) -> Result<(Device, Handles), LabError> {
        let (device, handles) = self.build_uncontrolled(env, control)?;
        match control {
            Control::Conventional | Control::Relocating => Ok((device, handles)),
            Control::None | Control::Fixed(..) | Control::Idler | Control::Endless => {
                let (device, handle) = ControlledDevice::new(env, &device, self.controller(control)?);
                Ok((device, Handles { control: Some(handle), relocation: None }))
            }
        }
    }
}

/// The disk below, as large as these zones.
fn preset(zones: &ZoneGeometry) -> Result<Preset, LabError> {
    let preset = Preset::find("st8000as0022");
    let preset = preset.ok_or_else(|| LabError::invalid("preset", "there is no 'st8000as0022'".to_owned()))?;
    Ok(preset.with_capacity(zones.address_bytes()))
}

/// What tells what was done to requests.
#[derive(Default)]
pub(super) struct Handles {
    pub(super) control: Option<ControlledDevice>,
    relocation: Option<RelocatingDevice>,
}

/// Makes zones full, so that every write to them is out of order.
pub(super) fn fill(device: &Device, zones: &[u64]) -> Result<(), LabError> {
    let Some(control) = &device.zones else { return Ok(()) };
    for &zone in zones {
        let finished = control.finish(ZoneId(zone as u32), &IoContext::default());
        finished.map_err(|error| LabError::invalid("zone", error.to_string()))?;
    }
    Ok(())
}

/// How requests are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// As by the program of the thesis' author ([`Pace::Submitter`]): one submitter, intervals that count from submission, control inside
    /// the submission of one request, and durable writes.
    Submission,
    /// By one thread for each that the paper names, whose intervals count from the arrival of its last request; control holds requests when
    /// they arrive at the drive.
    Arrival,
}

impl Reading {
    /// Readings that a report has rows of, the default first.
    pub(super) const ALL: [Reading; 2] = [Reading::Submission, Reading::Arrival];

    /// Name of a control in rows: by the default reading that of the control.
    pub(super) fn scheme(self, control: Control) -> String {
        match self {
            Reading::Submission => control.name(),
            Reading::Arrival => format!("{}, held on arrival", control.name()),
        }
    }

    /// The pace of `threads` threads.
    pub(super) fn pace(self, threads: usize) -> Pace {
        match self {
            Reading::Submission => Pace::Submitter { in_flight_max: threads },
            Reading::Arrival => Pace::Intervals { threads },
        }
    }
}

/// What is replayed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Workload {
    Synthetic(Synthetic),
    Calibrated(Calibrated),
    /// One that was recorded, of this name.
    Recorded(Recorded),
}

/// Requests that were read, known by their name and number.
#[derive(Clone, PartialEq)]
pub(super) struct Recorded {
    pub(super) name: String,
    pub(super) requests: Arc<[BlockRequest]>,
}

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} requests", self.name, self.requests.len())
    }
}

impl Workload {
    fn requests(&self) -> u64 {
        match self {
            Workload::Synthetic(synthetic) => synthetic.requests(),
            Workload::Calibrated(calibrated) => calibrated.requests(),
            Workload::Recorded(recorded) => recorded.requests.len() as u64,
        }
    }

    pub(super) fn non_sequential_zones(&self) -> Result<Vec<u64>, LabError> {
        match self {
            Workload::Synthetic(synthetic) => synthetic.non_sequential_zones(),
            Workload::Calibrated(calibrated) => calibrated.non_sequential_zones(),
            Workload::Recorded(recorded) => {
                let written = recorded.requests.iter().filter(|request| request.is_write);
                let zones: BTreeSet<u64> = written.map(|request| request.offset_bytes / ZONE_BYTES).collect();
                Ok(zones.into_iter().collect())
            }
        }
    }

    pub(super) fn generate(&self) -> Result<Vec<BlockRequest>, LabError> {
        match self {
            Workload::Synthetic(synthetic) => synthetic.generate(),
            Workload::Calibrated(calibrated) => calibrated.generate(),
            Workload::Recorded(recorded) => Ok(recorded.requests.to_vec()),
        }
    }
}

/// What a replay is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) drive: Drive,
    pub(super) control: Control,
    pub(super) workload: Workload,
    pub(super) pace: Pace,
}

/// What it gave.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) task: Task,
    pub(super) replayed: Replayed,
    pub(super) cleaning: CleaningCounters,
    pub(super) statistics: ControlStatistics,
    pub(super) buffer: Option<BufferStatistics>,
    pub(super) relocation: RelocationStatistics,
}

/// Replays, two at a time, each once for all experiments.
///
/// # Errors
/// The first one that failed.
pub(super) fn run_tasks(run: &Run<'_>, tasks: Vec<Task>) -> Result<Vec<Arc<Ran>>, LabError> {
    let seed = run.settings.seed;
    let wanted = tasks.into_iter().map(|task| Wanted {
        key: format!("idler {seed} {task:?}"),
        operations: task.workload.requests(),
        run: Box::new(move |advance| {
            let operations = task.workload.requests();
            let ran = simulate(seed, move |env| {
                // Control below a buffer holds every request that leaves the buffer.
                let is_inside = matches!(task.pace, Pace::Submitter { .. }) && task.drive.buffer.is_none();
                let (device, handles) = match is_inside {
                    true => task.drive.build_uncontrolled(env, task.control)?,
                    false => task.drive.build(env, task.control)?,
                };
                fill(&device, &task.workload.non_sequential_zones()?)?;
                let (device, buffer) = match &task.drive.buffer {
                    Some(parameters) => {
                        let opened = task.drive.buffered(env, &device, handles.control.clone(), parameters)?;
                        (opened.0, Some(opened.1))
                    }
                    None => (device, None),
                };
                let trace: Arc<[BlockRequest]> = task.workload.generate()?.into();
                let partition = match task.workload {
                    Workload::Recorded(_) => Partition::ByLatency,
                    Workload::Synthetic(_) | Workload::Calibrated(_) => Partition::InTurn,
                };
                let writes_durably = matches!(task.pace, Pace::Submitter { .. });
                let options = ReplayOptions { partition, writes_durably, ..task.pace.into() };
                let (replayed, statistics) = match is_inside {
                    true => replay_controlled(env, &device, &trace, options, task.drive.controller(task.control)?)?,
                    false => (replay(env, &device, &trace, options)?, ControlStatistics::default()),
                };
                let cleaning = device.block.counters().cleaning;
                let statistics = handles.control.map_or(statistics, |control| control.statistics());
                let relocation = handles.relocation.map(|relocation| relocation.statistics()).unwrap_or_default();
                let buffer = buffer.map(|buffer| buffer.statistics());
                Ok(Ran { task, replayed, cleaning, statistics, buffer, relocation })
            });
            advance(operations);
            ran
        }),
    });
    measure(run, "replaying", wanted.collect())
}
