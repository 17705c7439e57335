//! A phase as rows and as a line of a table.

use super::Row;
use super::number::{format_nanos, format_number};
use super::table::{Align, Table};
use crate::runner::PhaseResult;

/// The usual numbers of a phase, their metrics prefixed with its name. Numbers that were not
/// measured are left out.
pub fn phase_rows(scheme: &str, phase: &PhaseResult) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |metric: &str, unit: &str, value: Option<f64>| {
        if let Some(value) = value {
            rows.push(Row::new(scheme, format!("{} {metric}", phase.name), unit, value));
        }
    };
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let seconds = phase.elapsed_nanos as f64 / 1e9;
    let bytes = phase.user_read_bytes + phase.user_written_bytes;
    add("throughput", "op/s", Some(phase.operations_per_second));
    add("data rate", "MB/s", (seconds > 0.0).then(|| bytes as f64 / 1e6 / seconds));
    let latency = phase.main_latency();
    add("mean", "us", latency.map(|latency| micros(latency.mean_nanos)));
    add("p50", "us", latency.map(|latency| micros(latency.p50_nanos)));
    add("p90", "us", latency.map(|latency| micros(latency.p90_nanos)));
    add("p99", "us", latency.map(|latency| micros(latency.p99_nanos)));
    add("p99.9", "us", latency.map(|latency| micros(latency.p999_nanos)));
    add("p99.99", "us", latency.map(|latency| micros(latency.p9999_nanos)));
    add("max", "us", latency.map(|latency| micros(latency.max_nanos)));
    add("CPU per operation", "us", phase.cpu_nanos_per_operation.map(|nanos| nanos / 1e3));
    add("time to idle", "s", Some(phase.idle_nanos as f64 / 1e9));
    let amplification = &phase.amplification;
    add("write amplification (store)", "1", amplification.write_engine);
    add("write amplification (medium)", "1", amplification.write_medium);
    add("write amplification (process)", "1", amplification.write_process);
    add("read amplification (device)", "1", amplification.read_device);
    add("space amplification", "1", amplification.space);
    add("compactions", "1", phase.engine.compactions.map(|count| count as f64));
    add("compaction time", "s", phase.engine.compaction_nanos.map(|nanos| nanos as f64 / 1e9));
    add("stall time", "s", phase.engine.stall_nanos.map(|nanos| nanos as f64 / 1e9));
    add("peak memory", "MiB", phase.memory.map(|memory| memory.peak_bytes as f64 / f64::from(1 << 20)));
    rows
}

/// One line to each phase: throughput, latencies, processor time, amplification.
pub fn phase_table(phases: &[PhaseResult]) -> Table {
    let mut table = Table::new([
        ("phase", Align::Left),
        ("store", Align::Left),
        ("threads", Align::Right),
        ("operations", Align::Right),
        ("op/s", Align::Right),
        ("MB/s", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.99", Align::Right),
        ("max", Align::Right),
        ("CPU us/op", Align::Right),
        ("to idle", Align::Right),
        ("WA store", Align::Right),
        ("WA medium", Align::Right),
        ("WA process", Align::Right),
        ("RA", Align::Right),
        ("SA", Align::Right),
        ("compactions", Align::Right),
    ]);
    let number = |value: Option<f64>| value.map_or("-".to_owned(), format_number);
    let nanos = |value: Option<u64>| value.map_or("-".to_owned(), format_nanos);
    for phase in phases {
        let latency = phase.main_latency();
        let bytes = phase.user_read_bytes + phase.user_written_bytes;
        let seconds = phase.elapsed_nanos as f64 / 1e9;
        let threads: usize = phase.groups.iter().map(|group| group.threads).sum();
        let amplification = &phase.amplification;
        table.row([
            phase.name.clone(),
            phase.target.clone(),
            threads.to_string(),
            format_number(phase.operations as f64),
            format_number(phase.operations_per_second),
            number((seconds > 0.0).then(|| bytes as f64 / 1e6 / seconds)),
            nanos(latency.map(|latency| latency.p50_nanos)),
            nanos(latency.map(|latency| latency.p99_nanos)),
            nanos(latency.map(|latency| latency.p9999_nanos)),
            nanos(latency.map(|latency| latency.max_nanos)),
            number(phase.cpu_nanos_per_operation.map(|nanos| nanos / 1e3)),
            format_nanos(phase.idle_nanos),
            number(amplification.write_engine),
            number(amplification.write_medium),
            number(amplification.write_process),
            number(amplification.read_device),
            number(amplification.space),
            number(phase.engine.compactions.map(|count| count as f64)),
        ]);
    }
    table.without_empty_columns()
}

/// Where virtual time went, one line to each phase that ran in virtual time on devices that count;
/// `None` when there is none.
pub fn virtual_time_table(phases: &[PhaseResult]) -> Option<Table> {
    let mut table = Table::new([
        ("virtual time of", Align::Left),
        ("total", Align::Right),
        ("seek", Align::Right),
        ("rotation", Align::Right),
        ("transfer", Align::Right),
        ("overhead", Align::Right),
        ("cache flush", Align::Right),
        ("device idle", Align::Right),
        ("CPU (overlaps)", Align::Right),
    ]);
    let mut any = false;
    for phase in phases {
        let Some(time) = phase.virtual_time.filter(|_| !phase.devices.is_empty()) else { continue };
        any = true;
        let total = time.total_nanos.max(1) as f64;
        let part = |nanos: u64| format!("{} ({:.1} %)", format_nanos(nanos), nanos as f64 * 100.0 / total);
        table.row([
            phase.name.clone(),
            format_nanos(time.total_nanos),
            part(time.seek_nanos),
            part(time.rotation_nanos),
            part(time.transfer_nanos),
            part(time.overhead_nanos),
            part(time.flush_nanos),
            part(time.idle_nanos),
            part(time.cpu_nanos),
        ]);
    }
    any.then_some(table)
}
