//! Figure 12: random gets after sequential and after random puts.

use super::driver::{Measurement, Phase, measure_all};
use super::random_puts::VALUE_BYTES;
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, RANDOM_BYTES, Setup};
use crate::experiment::comparison::{MUCH, drawn, goal, ours, words};
use crate::experiment::{Experiment, Scale};

/// Reads at full scale.
pub(super) const READS: u64 = 160_000;

pub(in crate::experiment) const FIG_12: Experiment = Experiment {
    id: "smrdb/fig12",
    title: "SMRDB, figure 12: latency of random gets after sequential and after random puts",
    description: "Puts 11 GB in order or at random, and reads at random. A read moves the arm whatever the scale, so scale divides \
                  the number of puts and of gets only.",
    default_scale: Scale::one_in(8),
    run: |run| {
        let mut report = run.report();
        let setup = |scheme: Scheme| Setup::new(scheme, Scale::FULL, run.settings.seed);
        setup(Scheme::Soc).describe(&mut report);
        let records = run.scale.of(RANDOM_BYTES / (KEY_BYTES + VALUE_BYTES) as u64);
        let reads = run.scale.of(READS);
        report.condition("puts", format!("{records} of {KEY_BYTES} + {VALUE_BYTES} B"));
        report.condition("gets", reads);
        let schemes = Scheme::compared();
        for (order, is_random) in [("sequential", false), ("random", true)] {
            let gets = |&scheme: &Scheme| {
                Measurement::new(&setup(scheme), VALUE_BYTES, &format!("gets after {order} puts"), move |driver| {
                    let puts =
                        if is_random { driver.put_at_random(records) } else { driver.put_in_order(records, None) }?;
                    driver.idle()?;
                    Ok(vec![puts, driver.read_at_random(reads, records)?])
                })
            };
            let all = measure_all(run, &format!("gets after {order} puts"), schemes.iter().map(gets).collect())?;
            let mean = |phases: &[Phase]| {
                phases[1].latency.as_ref().map_or(f64::NAN, |latency| latency.mean_nanos as f64 / 1e6)
            };
            let means: Vec<f64> = all.iter().map(|phases| mean(phases)).collect();
            for ((scheme, phases), mean_millis) in schemes.iter().zip(&all).zip(&means) {
                let (name, gets) = (scheme.name(), &phases[1]);
                let metric = format!("after {order} puts: mean latency of a get");
                drawn(&mut report, name, &metric, "ms", *mean_millis);
                let media_reads = gets.media_reads() as f64 / gets.operations as f64;
                let found = (gets.user_bytes / (KEY_BYTES + VALUE_BYTES) as u64).max(1);
                let metric = format!("after {order} puts: media reads, all by gets that find");
                ours(&mut report, name, &metric, "1", gets.media_reads() as f64 / found as f64);
                let metric = format!("after {order} puts: media reads of a get");
                match scheme.is_past_paper() {
                    true => goal(&mut report, name, &metric, media_reads, "at most 1.1", media_reads <= 1.1),
                    false => ours(&mut report, name, &metric, "1", media_reads),
                }
            }
            for (scheme, mean) in schemes.iter().zip(&means).skip(1) {
                let ratio = mean / means[0];
                let metric = format!("after {order} puts: latency / LevelDB-like");
                if *scheme == Scheme::Soc {
                    let paper = "SMRDB performs much better than LevelDB, especially after random inserts";
                    words(&mut report, scheme.name(), &metric, (ratio, "1"), paper, ratio * MUCH <= 1.0);
                    continue;
                }
                match is_random && scheme.is_past_paper() {
                    true => goal(&mut report, scheme.name(), &metric, ratio, "at most 0.5", ratio <= 0.5),
                    false => ours(&mut report, scheme.name(), &metric, "1", ratio),
                }
            }
        }
        Ok(report)
    },
};
