//! The loads of the figures on other stores, in real time on a real directory.

use super::driver::Driver;
use super::random_gets::READS;
use super::random_puts::VALUE_BYTES;
use super::sequential_puts::{INTERVALS, VALUES, records_of};
use super::settings::{KEY_BYTES, RANDOM_BYTES};
use super::ycsb::{MIXES, mix_phase, options};
use crate::error::LabError;
use crate::experiment::Scale;
use crate::experiment::comparison::ours;
use crate::report::Report;
use crate::runner::run_phase;
use crate::target::{Durability, Target};
use std::sync::Arc;
use varve::env::Env;

/// Adds to `report` what a store does on the loads of `smrdb/fig8`, `fig9`, `fig12` and `fig14`, whose rows have these
/// names too. `open` gives a new, empty store each time, those before being closed. In the time of `env`. Scale divides
/// counts; 1/64 moves some 3 GB and syncs 50,000 times.
///
/// # Errors
/// Whatever the store says.
pub fn measure_beside(
    env: &Env,
    report: &mut Report,
    scale: Scale,
    seed: u64,
    open: &mut dyn FnMut() -> Result<Arc<dyn Target>, LabError>,
) -> Result<(), LabError> {
    for value_bytes in VALUES {
        for interval in INTERVALS {
            let target = open()?;
            let name = target.name().to_owned();
            let mut driver = Driver::over(env, target, seed, value_bytes)?;
            let puts = driver.put_in_order(records_of(scale, value_bytes, interval), interval)?;
            let what = interval.map_or("no sync".to_owned(), |interval| format!("1 sync in {interval}"));
            ours(report, &name, &format!("{value_bytes} B, {what}"), "MB/s", puts.megabytes_per_second());
        }
    }
    let records = scale.of(RANDOM_BYTES / (KEY_BYTES + VALUE_BYTES) as u64).max(1);
    for (order, is_random) in [("sequential", false), ("random", true)] {
        let target = open()?;
        let name = target.name().to_owned();
        let mut driver = Driver::over(env, target, seed, VALUE_BYTES)?;
        let puts = if is_random { driver.put_at_random(records) } else { driver.put_in_order(records, None) }?;
        if is_random {
            ours(report, &name, "random puts", "MB/s", puts.megabytes_per_second());
            ours(report, &name, "sequential gets", "MB/s", driver.read_in_order()?.megabytes_per_second());
        }
        driver.idle()?;
        let gets = driver.read_at_random(scale.of(READS).max(1), records)?;
        let metric = format!("after {order} puts: mean latency of a get");
        ours(report, &name, &metric, "ms", gets.seconds * 1e3 / gets.operations as f64);
    }
    let target = open()?;
    for (place, (_, name)) in MIXES.iter().enumerate() {
        let measured = run_phase(env, &target, &mix_phase(place, &options(scale, seed, Durability::Synced))?)?;
        ours(report, target.name(), &format!("{name}: throughput"), "op/s", measured.operations_per_second);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::MemoryTarget;

    #[test]
    fn any_store_does_the_loads() {
        let env = Env::real();
        let mut report = Report::new("smrdb/beside", "", "1/20000", 1);
        let mut opened = 0;
        let mut open = || -> Result<Arc<dyn Target>, LabError> {
            opened += 1;
            Ok(Arc::new(MemoryTarget::new(&env)))
        };
        measure_beside(&env, &mut report, Scale::one_in(20_000), 1, &mut open).unwrap();
        assert_eq!((opened, report.rows.len()), (18, 15 + 4 + 4), "{}", report.to_text());
        assert!(report.rows.iter().all(|row| row.ours.is_some()));
    }
}
