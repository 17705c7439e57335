//! Figure 8: 10 GB put in order, by how often a put is synced and by the size of values, with and without log.

use super::driver::{Driver, measure};
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, SEQUENTIAL_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, ours};
use crate::experiment::{Experiment, Scale};
use crate::report::Report;

/// Sizes of values; at the last one a sync interval of 1,000 is a tenth of a gigabyte.
pub(super) const VALUES: [usize; 3] = [100, 4096, 100 << 10];

/// One put in so many is synced; none.
pub(super) const INTERVALS: [Option<u64>; 5] = [Some(1), Some(10), Some(100), Some(1000), None];

/// "if logging is disabled in both SMRDB and LevelDB, SMRDB's performance doubles its default case".
const WITHOUT_LOG: f64 = 2.0;

/// Synced puts of the most expensive row at full scale; loads of many are shortened to as many.
const SYNCS_MAX: u64 = 200_000;

pub(in crate::experiment) const FIG_8: Experiment = Experiment {
    id: "smrdb/fig8",
    title: "SMRDB, figure 8: sequential puts by sync interval and size of values, and without log",
    description: "Puts 10 GB in order of the keys, every 1st, 10th, 100th, 1000th or no put synced, with values of 100 B, 4 KiB \
                  and 100 KiB. A sync costs a revolution of the disk whatever the scale, so scale divides the number of puts only; \
                  loads with more than 200,000 syncs are cut to as many. Then no put synced and the log in memory.",
    default_scale: Scale::one_in(16),
    run: |run| {
        let mut report = run.report();
        let setup = |scheme: Scheme| Setup::new(scheme, Scale::FULL, run.settings.seed);
        setup(Scheme::Soc).describe(&mut report);
        let rate = |setup: &Setup, value_bytes: usize, interval: Option<u64>, records: u64| {
            let name = format!("sequential puts {interval:?} {records}");
            let work = move |driver: &mut Driver| Ok(vec![driver.put_in_order(records, interval)?]);
            measure(run, setup, value_bytes, &name, work).map(|phases| phases[0].megabytes_per_second())
        };
        for value_bytes in VALUES {
            let rows = |report: &mut Report, what: &str, rates: &[f64]| {
                let metric = format!("{value_bytes} B, {what}");
                for (scheme, rate) in Scheme::COMPARED.into_iter().zip(rates) {
                    drawn(report, scheme.name(), &metric, "MB/s", *rate);
                }
                let metric = format!("{metric} / LevelDB-like");
                for (scheme, rate) in Scheme::COMPARED.into_iter().zip(rates).skip(1) {
                    ours(report, scheme.name(), &metric, "1", rate / rates[0]);
                }
            };
            let mut unsynced = Vec::new();
            for interval in INTERVALS {
                let records = records_of(run.scale, value_bytes, interval);
                let rates = Scheme::COMPARED
                    .map(|scheme| rate(&setup(scheme), value_bytes, interval, records))
                    .into_iter()
                    .collect::<Result<Vec<f64>, LabError>>()?;
                let what = interval.map_or("no sync".to_owned(), |interval| format!("1 sync in {interval}"));
                rows(&mut report, &what, &rates);
                unsynced = rates;
            }
            // "if logging is disabled in both SMRDB and LevelDB".
            let rates = Scheme::COMPARED
                .map(|scheme| {
                    rate(
                        &Setup { logs: false, ..setup(scheme) },
                        value_bytes,
                        None,
                        records_of(run.scale, value_bytes, None),
                    )
                })
                .into_iter()
                .collect::<Result<Vec<f64>, LabError>>()?;
            rows(&mut report, "no log", &rates);
            for ((scheme, rate), logged) in Scheme::COMPARED.into_iter().zip(&rates).zip(&unsynced) {
                let metric = format!("{value_bytes} B, no log / with log, no sync");
                match scheme {
                    Scheme::Soc => compare(&mut report, scheme.name(), &metric, "1", WITHOUT_LOG, rate / logged),
                    _ => ours(&mut report, scheme.name(), &metric, "1", rate / logged),
                }
            }
        }
        Ok(report)
    },
};

/// Puts of a load in which every `interval`-th is synced.
pub(super) fn records_of(scale: Scale, value_bytes: usize, interval: Option<u64>) -> u64 {
    let pairs = scale.of(SEQUENTIAL_BYTES / (KEY_BYTES + value_bytes) as u64);
    interval.map_or(pairs, |interval| pairs.min(scale.of(SYNCS_MAX) * interval)).max(1)
}
