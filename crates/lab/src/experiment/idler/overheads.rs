//! What control costs the host: memory and processor time.

use super::drive::{Control, Drive, Reading, ZONE_BYTES, run_tasks};
use super::told::described;
use super::traces::{PROJ_1, THREADS, calibrated, guesses, tasks};
use crate::block::idler::{Arrival, Verdict, Work};
use crate::error::LabError;
use crate::experiment::comparison::{goal, ours};
use crate::experiment::{Experiment, Run};
use crate::media::IoClass;
use crate::replay::BlockRequest;
use crate::report::Report;
use varve::env::Env;

pub(in crate::experiment) const OVERHEADS: Experiment = Experiment {
    id: "idler/overheads",
    title: "what control costs the host: memory and processor time, on proj_1 (synthetic, calibrated)",
    description: "Memory beyond no control: what is known of the zones, at most; and requests that wait, as many as ever did at once \
                  (in the paper 0.3 MB for AT-IC and 1.2 MB for Idler). Relocation has its map of extents and the buffer that a step copies \
                  through, and keeps spare zones and journal zones to itself. Processor time is that of the controllers alone, for each \
                  request and its end, the best of five rounds in turns, as a share of the time in which the requests come; those rows are \
                  measured and differ from run to run. That of relocation's policy cannot be separated from its device and is not measured.",
    default_scale: super::DEFAULT_SCALE,
    run: overheads,
};

const CONTROLS: [Control; 3] = [Control::None, Control::Fixed(5000, 2000), Control::Idler];

/// A request that waits: its thread's call, what a controller is told of it and its place in the queue.
const WAITING_BYTES: usize = size_of::<Arrival>() + 2 * size_of::<u64>();

const ROUNDS: usize = 5;

fn overheads(run: &Run<'_>) -> Result<Report, LabError> {
    let drive = Drive::new(run.scale);
    let mut report = described(run, &drive);
    let calibrated = calibrated(run, &drive, PROJ_1);
    guesses(&mut report, &calibrated);
    let full = Drive::new(crate::experiment::Scale::FULL);
    for threads in THREADS {
        // Requests wait beside each other where they are held on arrival.
        let all = tasks(&drive, &calibrated, threads, Reading::Arrival).into_iter();
        let wanted = all.filter(|task| CONTROLS.contains(&task.control));
        for ran in run_tasks(run, wanted.collect())? {
            let scheme = ran.task.control.name();
            let waiting = ran.statistics.waiting_max;
            ours(&mut report, &scheme, &format!("{threads} threads: most that waited"), "1", waiting as f64);
            let known = full.ghost_bytes(ran.task.control)?;
            let megabytes = (known + waiting as usize * WAITING_BYTES) as f64 / 1e6;
            let metric = format!("{threads} threads: memory, of the drive in full (MB)");
            match ran.task.control {
                Control::Idler => {
                    goal(
                        &mut report,
                        &scheme,
                        &metric,
                        megabytes,
                        "the paper's: 1.2 beyond no control",
                        megabytes <= 1.2,
                    );
                }
                _ => ours(&mut report, &scheme, &metric, "MB", megabytes),
            }
        }
    }
    let scheme = Control::Relocating.name();
    let (known, copied, zones) = full.relocation_memory_bytes(run.settings.seed)?;
    ours(&mut report, &scheme, "memory of zones and extents, of the drive in full (MB)", "MB", known as f64 / 1e6);
    ours(&mut report, &scheme, "copy buffer (MB)", "MB", copied as f64 / 1e6);
    ours(&mut report, &scheme, "zones kept: spares and journal", "1", f64::from(zones));
    ours(&mut report, &scheme, "capacity of zones kept (MB)", "MB", f64::from(zones) * ZONE_BYTES as f64 / 1e6);
    let requests = calibrated.generate()?;
    let clock = Env::real();
    let mut best = [u64::MAX; CONTROLS.len()];
    for _ in 0..ROUNDS {
        for (control, best) in CONTROLS.iter().zip(&mut best) {
            let begun = clock.process_cpu_nanos();
            follow(&drive, *control, &requests)?;
            if let (Some(begun), Some(ended)) = (begun, clock.process_cpu_nanos()) {
                *best = (*best).min(ended.saturating_sub(begun));
            }
        }
    }
    let seconds = calibrated.duration_seconds as f64;
    for (control, &nanos) in CONTROLS.iter().zip(&best).filter(|(_, nanos)| **nanos < u64::MAX) {
        let scheme = control.name();
        ours(
            &mut report,
            &scheme,
            "processor time of control, measured",
            "ns/request",
            nanos as f64 / requests.len() as f64,
        );
        let percent = nanos as f64 / 1e9 / seconds * 100.0;
        let metric = "processor time of control, measured (% of the time)";
        goal(&mut report, &scheme, metric, percent, "the paper's: below 10", percent < 10.0);
    }
    Ok(report)
}

/// Passes requests to a controller; each takes as long as a read of the disk in the mean.
fn follow(drive: &Drive, control: Control, requests: &[BlockRequest]) -> Result<(), LabError> {
    const TAKEN_NANOS: u64 = 10_000_000;
    let mut controller = drive.controller(control)?;
    for request in requests {
        let arrival = Arrival {
            nanos: request.arrival_nanos,
            work: if request.is_write { Work::Write } else { Work::Read },
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes.into(),
            class: IoClass::Other,
            cause: Default::default(),
            deadline_nanos: None,
        };
        let mut now = arrival.nanos;
        let mut verdict = controller.arrived(&arrival);
        while let Verdict::Wait(until) = verdict {
            now = until.max(now + 1);
            verdict = controller.waited(now, &arrival);
        }
        controller.completed(now + TAKEN_NANOS, now, &arrival);
    }
    Ok(())
}
