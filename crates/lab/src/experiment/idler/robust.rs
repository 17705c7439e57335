//! What becomes of the conclusions when what makers do not publish is otherwise.

use super::drive::{Control, Drive, Task, run_tasks};
use super::table4_2::workload;
use super::told::described;
use super::traces::tail;
use crate::error::LabError;
use crate::experiment::comparison::{goal, ours};
use crate::experiment::{Experiment, Run};
use crate::media::emulated::{CleaningOrder, Interrupted, TranslationParameters};
use crate::replay::Pace;
use crate::report::Report;

pub(in crate::experiment) const ROBUST: Experiment = Experiment {
    id: "idler/robust",
    title: "which conclusions survive other guesses about the drive (not in the paper)",
    description: "Requests of 1 MB, 10 to 100 ms apart, by 16 threads, 35 GB of them out of order to 1,024 zones, on drives that differ \
                  from the one of the other experiments in one thing. Scale divides zones, cache, extents and requests.",
    default_scale: super::DEFAULT_SCALE,
    run: robust,
};

const MIB: u64 = 1 << 20;

type Guess = (&'static str, fn(&mut TranslationParameters));

const GUESSES: [Guess; 14] = [
    ("as elsewhere", |_| {}),
    ("trigger 100 ms", |drive| drive.idle_trigger_nanos = 100_000_000),
    ("trigger 500 ms", |drive| drive.idle_trigger_nanos = 500_000_000),
    ("cheapest first", |drive| drive.order = CleaningOrder::Cheapest),
    ("fullest first", |drive| drive.order = CleaningOrder::Fullest),
    ("idle steps of 2 MiB", |drive| drive.idle_step_bytes = 2 * MIB),
    ("idle steps of 64 MiB", |drive| drive.idle_step_bytes = 64 * MIB),
    ("blocking steps of 32 MiB", |drive| drive.blocking_step_bytes = 32 * MIB),
    ("blocking steps of 256 MiB", |drive| drive.blocking_step_bytes = 256 * MIB),
    ("2 requests between steps", |drive| drive.requests_between_steps = 2),
    ("32 requests between steps", |drive| drive.requests_between_steps = 32),
    ("blocks until half is free", |drive| drive.blocking_stop_percent = 50),
    ("goes on where it was", |drive| drive.interrupted = Interrupted::GoesOn),
    ("begins zones again", |drive| drive.interrupted = Interrupted::RepeatsZone),
];

const CONTROLS: [Control; 5] =
    [Control::None, Control::Fixed(5000, 2000), Control::Idler, Control::Paced, Control::Relocating];

fn robust(run: &Run<'_>) -> Result<Report, LabError> {
    let usual = Drive::new(run.scale);
    let mut report = described(run, &usual);
    let mut tasks = Vec::new();
    for (_, change) in GUESSES {
        let mut drive = usual.clone();
        change(&mut drive.translation);
        let workload = workload(run, &drive, (10, 100), 10, 1024);
        let pace = Pace::Intervals { threads: 16 };
        let task = |control| Task { drive: drive.clone(), control, workload: workload.clone(), pace };
        tasks.extend(CONTROLS.map(task));
    }
    let all = run_tasks(run, tasks)?;
    for ((guess, _), of_guess) in GUESSES.iter().zip(all.chunks(CONTROLS.len())) {
        for ran in of_guess {
            let scheme = ran.task.control.name();
            ours(&mut report, &scheme, &format!("{guess}: P99.9"), "s", tail(ran));
            ours(&mut report, &scheme, &format!("{guess}: finish"), "s", ran.replayed.finish_nanos as f64 / 1e9);
            ours(&mut report, &scheme, &format!("{guess}: times blocked"), "1", ran.cleaning.blocking_cleanings as f64);
        }
        let [none, fixed, idler, paced, relocating] = of_guess else { continue };
        for (ran, wanted) in [fixed, idler, paced, relocating].map(|ran| (ran, "below 0.5")) {
            let ratio = tail(ran) / tail(none);
            let metric = format!("{guess}: P99.9 to no control");
            goal(&mut report, &ran.task.control.name(), &metric, ratio, wanted, ratio < 0.5);
        }
        for ran in [paced, relocating] {
            let ratio = tail(ran) / tail(idler);
            let metric = format!("{guess}: P99.9 to Idler");
            goal(&mut report, &ran.task.control.name(), &metric, ratio, "below 1", ratio < 1.0);
        }
    }
    Ok(report)
}
