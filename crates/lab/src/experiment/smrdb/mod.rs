//! `smrdb/*`: the figures of SMRDB (Pitchumani, Hughes and Miller, "SMRDB: Key-Value Data Store for Shingled Magnetic
//! Recording Disks", SYSTOR 2015).
//!
//! Figures that need the same puts share them: what an earlier experiment of the same run measured is not
//! measured again.

mod another_disk;
mod beside;
mod driver;
mod film;
mod floor;
mod random_gets;
mod random_puts;
mod raw_disk;
mod recovery;
mod robust;
mod scheme;
mod seeds;
mod sequential_puts;
mod settings;
mod variable_bands;
mod varied_puts;
mod ycsb;

pub use beside::measure_beside;
pub(crate) use film::{LoadOnBands, band_schemes, film_bands};

use super::Experiment;

/// In the order they are listed.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    raw_disk::FIG_7,
    sequential_puts::FIG_8,
    random_puts::FIG_9,
    random_puts::FIG_10,
    varied_puts::FIG_11,
    random_gets::FIG_12,
    varied_puts::FIG_13,
    ycsb::FIG_14,
    ycsb::FIG_15,
    variable_bands::VARIABLE_BANDS,
    robust::ROBUST,
    another_disk::ANOTHER_DISK,
    recovery::RECOVERY,
    seeds::SEEDS_OF_PUTS,
];

#[cfg(test)]
mod tests {
    use super::scheme::Scheme;
    use crate::experiment::{Scale, Settings, run, select};
    use crate::report::Report;

    fn report(id: &str, scale: u64) -> Report {
        let experiment = select(&[id.to_owned()]).unwrap()[0];
        let settings = Settings { scale: Some(Scale::one_in(scale)), ..Settings::default() };
        run(experiment, &settings).unwrap()
    }

    #[test]
    fn random_puts_repeat_to_the_byte_and_reach_compactions() {
        let first = report("smrdb/fig10", 512);
        assert_eq!(first.to_json(), report("smrdb/fig10", 512).to_json());
        for scheme in ["LevelDB-like", "SMRDB-LOC", "SMRDB-SOC"] {
            let row = first.rows.iter().find(|row| row.scheme == scheme && row.metric == "written to a user byte");
            let written = row.and_then(|row| row.ours).unwrap();
            assert!(written > 1.5, "{scheme}: {}", first.to_text());
        }
    }

    #[test]
    fn every_put_of_ycsb_waits_for_a_turn_of_the_disk() {
        let found = report("smrdb/fig15", 2000);
        let rows = found.rows.iter().filter(|row| row.metric == "load: mean latency of a put");
        let latencies: Vec<f64> = rows.filter_map(|row| row.ours).collect();
        assert!(
            latencies.len() == Scheme::compared_with_bursts().len() && latencies.iter().all(|millis| *millis > 4.0),
            "{}",
            found.to_text()
        );
    }

    #[test]
    fn opening_replays_the_log_that_was_left() {
        let found = report("smrdb/recovery", 512);
        let of = |scheme: &str, metric: &str| {
            let row = found.rows.iter().find(|row| row.scheme == scheme && row.metric == metric);
            row.and_then(|row| row.ours).unwrap()
        };
        for scheme in ["SMRDB-SOC, same I/O", "ours"] {
            let (log, longest) = (of(scheme, "log that opening replays"), of(scheme, "log, longest"));
            assert!(log > 0.0 && log <= 1.1 * longest, "{scheme}: {}", found.to_text());
            let flushed = of(scheme, "opening when everything was flushed");
            assert!(of(scheme, "read by opening") > log, "{scheme}: {}", found.to_text());
            assert!(of(scheme, "opening") > flushed, "{scheme}: {}", found.to_text());
        }
    }

    #[test]
    fn the_other_disk_has_the_goals_of_every_figure() {
        let found = report("smrdb/another-disk", 20_000);
        assert!(found.to_text().contains("model=measured-4tb"), "{}", found.to_text());
        let judged = |of: &str| {
            let rows = found.rows.iter().filter(|row| row.scheme == "ours" && row.metric.contains(of));
            rows.filter(|row| row.note.as_deref().is_some_and(|note| note.starts_with("goal"))).count()
        };
        // Random puts; puts in order by sync interval, size and without log; YCSB; its load over time.
        let figures =
            ["/ SMRDB-SOC, same I/O", "/ LevelDB-like, same I/O", "throughput / SMRDB-SOC", "/ append and flush"];
        assert_eq!(figures.map(judged), [7 + 8 + 3, 18, 8, 1], "{}", found.to_text());
    }

    #[test]
    fn gets_after_both_orders_are_counted() {
        let found = report("smrdb/fig12", 2000);
        let rows = found.rows.iter().filter(|row| row.metric.ends_with("media reads of a get"));
        assert_eq!(rows.filter(|row| row.ours.is_some()).count(), 2 * Scheme::compared().len(), "{}", found.to_text());
        assert!(!report("smrdb/fig8", 100_000).rows.is_empty());
    }
}
