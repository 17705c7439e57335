//! `load/virtual`: a gigabyte in random order onto an emulated disk, in virtual time.

use super::{Experiment, Run, Scale, emulated, simulate};
use crate::bench::{Bench, WorkloadName, phase_plots};
use crate::error::LabError;
use crate::report::{Report, Row};
use crate::runner::{Finish, PhaseResult};
use crate::workload::{DbBenchKind, DbBenchOptions};
use std::sync::Arc;
use varve::env::Env;

/// Pairs of 1 KiB at full scale: 1 GiB.
const PAIRS: u64 = 1 << 20;

/// Bytes of a key.
const KEY_BYTES: usize = 16;

/// Bytes of a value; with its key 1 KiB.
const VALUE_BYTES: usize = 1024 - KEY_BYTES;

/// How much smaller the run is that is repeated to see whether it repeats.
const REPETITION_DIVISOR: u64 = 16;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "load/virtual",
    title: "loading 1 GiB of 1 KiB pairs in random order onto an emulated ST500DM002",
    description: "Puts every key once, in random order, until the store is idle, and prints virtual throughput, where \
                  the virtual time went, and the wall-clock time it took to simulate. Then a load a sixteenth of the \
                  size is run twice and the event hashes are compared; with --verify the full one is run twice. Scale \
                  shrinks the number of pairs only.",
    default_scale: Scale::FULL,
    run,
};

/// What one run gives.
struct Loaded {
    phase: PhaseResult,
    event_hash: u64,
    wall_seconds: f64,
}

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let pairs = run.scale.of(PAIRS);
    let mut report = run.report();
    emulated::describe(&mut report, emulated::DISK, &varve::Options::default());
    report.condition("pairs", format!("{pairs} of {KEY_BYTES} + {VALUE_BYTES} B"));

    let loaded = load(run, pairs)?;
    let phase = &loaded.phase;
    report.condition("event hash", format!("{:016x}", loaded.event_hash));
    let seconds = phase.elapsed_nanos as f64 / 1e9;
    let total_seconds = (phase.elapsed_nanos + phase.idle_nanos) as f64 / 1e9;
    let rate = |bytes: u64, seconds: f64| bytes as f64 / 1e6 / seconds;
    let mut add = |metric: &str, unit: &str, value: f64| report.rows.push(Row::new("varve", metric, unit, value));
    add("virtual throughput", "MB/s", rate(phase.user_written_bytes, seconds));
    add("virtual throughput until idle", "MB/s", rate(phase.user_written_bytes, total_seconds));
    add("virtual time", "s", seconds);
    add("virtual time until idle", "s", total_seconds);
    add("wall-clock time", "s", loaded.wall_seconds);
    add("virtual by wall-clock time", "1", total_seconds / loaded.wall_seconds);
    if let Some(time) = phase.virtual_time {
        let share = |nanos: u64| nanos as f64 / time.total_nanos.max(1) as f64;
        add("share of seek", "1", share(time.seek_nanos));
        add("share of rotation", "1", share(time.rotation_nanos));
        add("share of transfer", "1", share(time.transfer_nanos));
        add("share of overhead", "1", share(time.overhead_nanos));
        add("share of cache flush", "1", share(time.flush_nanos));
        add("share of device idle", "1", share(time.idle_nanos));
        add("processor time by virtual time", "1", share(time.cpu_nanos));
    }

    // Wall-clock time differs from run to run; everything else must not.
    let (first, divisor) = if run.settings.verify {
        (loaded.event_hash, 1)
    } else {
        (load(run, pairs.div_ceil(REPETITION_DIVISOR))?.event_hash, REPETITION_DIVISOR)
    };
    let second = load(run, pairs.div_ceil(divisor))?.event_hash;
    let equal = if first == second { 1.0 } else { 0.0 };
    report.rows.push(
        Row::new("varve", "repeats to the event", "1", equal)
            .with_note(format!("two runs of {} pairs: {first:016x}, {second:016x}", pairs.div_ceil(divisor))),
    );
    report.plots = phase_plots(std::slice::from_ref(&loaded.phase), emulated::DISK);
    report.add_phase("varve", loaded.phase);
    Ok(report)
}

fn load(run: &Run<'_>, pairs: u64) -> Result<Loaded, LabError> {
    let seed = run.settings.seed;
    let progress = Arc::clone(&run.settings.progress);
    let bench = Bench {
        workloads: vec![WorkloadName::DbBench(DbBenchKind::FillUniqueRandom)],
        options: DbBenchOptions {
            num: pairs,
            key_size: KEY_BYTES,
            value_size: VALUE_BYTES,
            seed,
            ..DbBenchOptions::default()
        },
        finish: Finish::FlushAndIdle,
        ..Bench::default()
    };
    let wall = Env::real();
    let begin = wall.now();
    let (phase, event_hash) = simulate(seed, move |env| {
        let target = emulated::open(env, emulated::DISK, &varve::Options::default())?;
        let mut phases = bench.run(env, &target, &progress)?;
        drop(target);
        let phase = phases.pop().ok_or_else(|| LabError::invalid("load", "no phase"))?;
        Ok((phase, env.event_hash()))
    })?;
    Ok(Loaded { phase, event_hash, wall_seconds: (wall.now() - begin).as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Scale, Settings, run, select};

    #[test]
    fn a_small_load_is_bound_by_the_disk_and_repeats() {
        let experiment = select(&["load/virtual".to_owned()]).unwrap()[0];
        let settings = Settings { scale: Some(Scale::one_in(128)), verify: true, ..Settings::default() };
        let report = run(experiment, &settings).unwrap();
        let row = |metric: &str| report.rows.iter().find(|row| row.metric == metric).and_then(|row| row.ours).unwrap();
        assert_eq!(row("repeats to the event"), 1.0);
        // Outer tracks transfer at 168 MB/s; every byte is written to the log and to a table.
        assert!((1.0..168.0).contains(&row("virtual throughput until idle")), "{}", report.to_text());
        let phase = &report.phases[0];
        assert_eq!(phase.operations, 8192);
        assert!(phase.amplification.write_medium.unwrap() >= 1.0);
        let time = phase.virtual_time.unwrap();
        let parts = time.seek_nanos
            + time.rotation_nanos
            + time.transfer_nanos
            + time.overhead_nanos
            + time.flush_nanos
            + time.idle_nanos;
        let covered = parts as f64 / time.total_nanos as f64;
        assert!((0.95..1.05).contains(&covered), "the parts are {covered} of the virtual time");
    }
}
