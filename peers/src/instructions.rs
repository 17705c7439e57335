//! Instructions per operation, counted by valgrind's callgrind: a measure that other load on the
//! machine does not disturb.

use crate::benchmark::Start;
use crate::child::Order;
use crate::comparison::{self, Settings};
use crate::summary::INSTRUCTIONS;
use crate::tables;
use std::process::{Command, Stdio};
use varve_lab::LabError;
use varve_lab::host;
use varve_lab::report::{Report, Row};

/// Counts every benchmark on every store. Each is run with `operations` and with twice as many; the
/// difference is what the operations cost, without opening, loading and warming. Work in the
/// background counts.
pub(crate) fn run(settings: &Settings, operations: u64, say: &mut dyn FnMut(&str)) -> Result<Report, LabError> {
    let title = "instructions per operation, by callgrind";
    let mut report = Report::new("peers/instructions", title, "1", settings.seed);
    comparison::describe(settings, &mut report);
    for condition in ["repetitions", "discarded", "work left over"] {
        report.conditions.remove(condition);
    }
    report.condition("operations", format!("{} less {operations}", 2 * operations));
    comparison::make_directory(settings)?;
    let engines = comparison::available(settings, &mut report);
    for &value_size in &settings.value_sizes {
        for &benchmark in &settings.benchmarks {
            for &engine in &engines {
                if !comparison::takes_part(settings, engine, benchmark) {
                    continue;
                }
                let mut counted = [0; 2];
                for (times, count) in (1..).zip(&mut counted) {
                    let mut order = comparison::order(settings, engine, benchmark, value_size, settings.seed);
                    order.operations = operations * times;
                    order.write_operations = Some(order.operations);
                    // A full scan has as many operations as there are pairs.
                    if benchmark.kind.is_full_scan() {
                        order.num = order.operations;
                    }
                    if benchmark.start == Start::Empty {
                        host::remove_directory(&order.directory)?;
                    } else {
                        comparison::load(settings, engine, order.num, value_size, settings.seed, say)?;
                    }
                    *count = count_instructions(&order)?;
                }
                let each = counted[1].saturating_sub(counted[0]) as f64 / operations as f64;
                say(&format!("{value_size} B {benchmark} {engine}: {each:.0} instructions/op"));
                let metric = tables::metric(benchmark.name, value_size, INSTRUCTIONS);
                report.rows.push(Row::new(engine.to_string(), metric, "1/op", each));
            }
        }
    }
    comparison::remove_directories(settings)?;
    Ok(report)
}

/// Runs a child under callgrind and reads how many instructions it collected.
fn count_instructions(order: &Order) -> Result<u64, LabError> {
    let failed = |reason: String| LabError::Program { program: "valgrind".to_owned(), reason };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let text = serde_json::to_string(order).map_err(|error| failed(error.to_string()))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=yes"])
        .arg(program)
        .args(["child", &text])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("{error}; `apt-get install valgrind`")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(failed(format!("{} on {} ended with {}: {said}", order.name, order.engine, output.status)));
    }
    collected(&said).ok_or_else(|| failed(format!("said no count: {said}")))
}

/// The number behind `Collected :` in callgrind's messages.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_is_understood() {
        assert_eq!(collected("==1== \n==1== Events    : Ir\n==1== Collected : 1234567\n"), Some(1_234_567));
        assert_eq!(collected("nothing"), None);
    }
}
