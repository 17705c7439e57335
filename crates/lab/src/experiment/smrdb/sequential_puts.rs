//! Figure 8: 10 GB put in order, by how often a put is synced and by the size of values.

use super::driver::measure;
use super::scheme::Scheme;
use super::settings::{KEY_BYTES, SEQUENTIAL_BYTES, Setup};
use crate::experiment::comparison::{drawn, ours};
use crate::experiment::{Experiment, Scale};

/// Sizes of values; at the last one a sync interval of 1,000 is a tenth of a gigabyte.
const VALUES: [usize; 3] = [100, 4096, 100 << 10];

/// One put in so many is synced; none.
const INTERVALS: [Option<u64>; 5] = [Some(1), Some(10), Some(100), Some(1000), None];

/// Synced puts of the most expensive row at full scale; loads of many are shortened to as many.
const SYNCS_MAX: u64 = 200_000;

pub(in crate::experiment) const FIG_8: Experiment = Experiment {
    id: "smrdb/fig8",
    title: "SMRDB, figure 8: sequential puts by sync interval and size of values",
    description: "Puts 10 GB in order of the keys, every 1st, 10th, 100th, 1000th or no put synced, with values of 100 B, 4 KiB \
                  and 100 KiB. A sync costs a turn of the disk whatever the scale, so scale divides the number of puts only; \
                  loads with more than 200,000 syncs are cut to as many.",
    default_scale: Scale::one_in(16),
    run: |run| {
        let mut report = run.report();
        let setup = |scheme: Scheme| Setup::new(scheme, Scale::FULL, run.settings.seed);
        setup(Scheme::Soc).describe(&mut report);
        for value_bytes in VALUES {
            let pairs = run.scale.of(SEQUENTIAL_BYTES / (KEY_BYTES + value_bytes) as u64);
            for interval in INTERVALS {
                let records = interval.map_or(pairs, |interval| pairs.min(run.scale.of(SYNCS_MAX) * interval)).max(1);
                let rate = |scheme: Scheme| {
                    let name = format!("sequential puts {interval:?} {records}");
                    measure(run, &setup(scheme), value_bytes, &name, move |driver| {
                        Ok(vec![driver.put_in_order(records, interval)?])
                    })
                    .map(|stretches| stretches[0].megabytes_per_second())
                };
                let what = interval.map_or("no sync".to_owned(), |interval| format!("1 sync in {interval}"));
                let metric = format!("{value_bytes} B, {what}");
                let rates = [rate(Scheme::LevelDb)?, rate(Scheme::Soc)?];
                for (scheme, rate) in Scheme::PAIR.into_iter().zip(rates) {
                    drawn(&mut report, scheme.name(), &metric, "MB/s", rate);
                }
                let metric = format!("{metric} / LevelDB-like");
                ours(&mut report, Scheme::Soc.name(), &metric, "1", rates[1] / rates[0]);
            }
        }
        Ok(report)
    },
};
