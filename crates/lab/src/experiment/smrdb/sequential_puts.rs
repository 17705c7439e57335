//! Figure 8: 10 GB put in order, by how often a put is synced and by the size of values, with and without log.

use super::driver::{Driver, Measurement, measure_all};
use super::scheme::{Scheme, Term};
use super::settings::{KEY_BYTES, MODEL, SEQUENTIAL_BYTES, Setup};
use crate::error::LabError;
use crate::experiment::comparison::{compare, drawn, goal, ours, words};
use crate::experiment::{Experiment, Run, Scale};
use crate::report::Report;

/// Sizes of values; at the last one a sync interval of 1,000 is a tenth of a gigabyte.
pub(super) const VALUES: [usize; 3] = [100, 4096, 100 << 10];

/// One put in so many is synced; none.
pub(super) const INTERVALS: [Option<u64>; 5] = [Some(1), Some(10), Some(100), Some(1000), None];

/// "if logging is disabled in both SMRDB and LevelDB, SMRDB's performance doubles its default case".
const WITHOUT_LOG: f64 = 2.0;

/// The size of values of which ours is shown without each of its terms where there is no log.
const TERMS_WITHOUT_LOG_VALUE_BYTES: usize = VALUES[1];

const DEFAULT_SCALE: Scale = Scale::one_in(16);

/// Cells at scales 1/N with N below this leave more than should be held as it is: 2 GB at 1/16, two databases at a time.
const COMPRESSED_BELOW: u64 = 16;

/// Synced puts of the most expensive row at full scale; loads of many are shortened to as many.
const SYNCS_MAX: u64 = 200_000;

pub(in crate::experiment) const FIG_8: Experiment = Experiment {
    id: "smrdb/fig8",
    title: "SMRDB, figure 8: sequential puts by sync interval and size of values, and without log",
    description: "Puts 10 GB in order of the keys, every 1st, 10th, 100th, 1000th or no put synced, with values of 100 B, 4 KiB \
                  and 100 KiB. A sync costs a revolution of the disk whatever the scale, so scale divides the number of puts only; \
                  loads with more than 200,000 syncs are cut to as many. Then no put synced and the log in memory. Ours is shown without \
                  each of its terms where every put is synced, or none, and with values of 4 KiB without a log.",
    default_scale: DEFAULT_SCALE,
    run: |run| {
        let mut report = run.report();
        let setup = |scheme: Scheme| Setup::new(scheme, Scale::FULL, run.settings.seed);
        setup(Scheme::Soc).describe(&mut report);
        let cells = cells();
        let all = rates(run, (run.scale, MODEL), &cells, Cell::schemes)?;
        let mut unsynced: Vec<(Scheme, f64)> = Vec::new();
        larger_values(&mut report, &cells, &all);
        for (cell, rates) in cells.iter().zip(all) {
            let schemes = cell.schemes();
            cell.rows(&mut report, &schemes, &rates);
            if cell.has_log {
                unsynced = schemes.into_iter().zip(rates).collect();
                continue;
            }
            for (scheme, rate) in schemes.iter().zip(&rates) {
                let Some((_, logged)) = unsynced.iter().find(|(other, _)| other == scheme) else { continue };
                let metric = format!("{} B, no log / with log, no sync", cell.value_bytes);
                match scheme {
                    Scheme::Soc => compare(&mut report, scheme.name(), &metric, "1", WITHOUT_LOG, rate / logged),
                    _ => ours(&mut report, scheme.name(), &metric, "1", rate / logged),
                }
            }
        }
        Ok(report)
    },
};

/// In how many pairs of cells that differ in the size of values alone the larger one is faster.
fn larger_values(report: &mut Report, cells: &[Cell], all: &[Vec<f64>]) {
    let paper = "As expected, inserting pairs with larger value sizes resulted in greater throughput";
    for scheme in [Scheme::LevelDb, Scheme::Soc] {
        let rates: Vec<Option<f64>> =
            cells.iter().zip(all).map(|(cell, rates)| rate_of(&cell.schemes(), rates, scheme)).collect();
        let of_a_size = cells.len() / VALUES.len();
        let pairs: Vec<bool> = rates.iter().zip(rates.iter().skip(of_a_size)).map(|(less, more)| more > less).collect();
        let count = pairs.iter().filter(|is_faster| **is_faster).count();
        let metric = format!("faster with the next larger values, of {} cells", pairs.len());
        words(report, scheme.name(), &metric, (count as f64, "1"), paper, count == pairs.len());
    }
}

/// Every way of putting them.
pub(super) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for value_bytes in VALUES {
        let of = |has_log: bool, interval: Option<u64>| Cell { value_bytes, interval, has_log };
        cells.extend(INTERVALS.map(|interval| of(true, interval)));
        // "if logging is disabled in both SMRDB and LevelDB".
        cells.push(of(false, None));
    }
    cells
}

/// Megabytes per second of each cell under each scheme, on a disk of this model, with so many puts.
pub(super) fn rates(
    run: &Run<'_>,
    (scale, model): (Scale, &'static str),
    cells: &[Cell],
    schemes: impl Fn(&Cell) -> Vec<Scheme>,
) -> Result<Vec<Vec<f64>>, LabError> {
    let measurements = cells.iter().flat_map(|cell| {
        let records = records_of(scale, cell.value_bytes, cell.interval);
        let (name, interval) = (format!("sequential puts {:?} {records}", cell.interval), cell.interval);
        let of_scheme = move |scheme: Scheme| {
            let is_compressed = scale.denominator() < COMPRESSED_BELOW;
            let setup = Setup::new(scheme, Scale::FULL, run.settings.seed);
            let setup = Setup { logs: cell.has_log, model, is_compressed, ..setup };
            let work = move |driver: &mut Driver| Ok(vec![driver.put_in_order(records, interval)?]);
            Measurement::new(&setup, cell.value_bytes, &name, work)
        };
        schemes(cell).into_iter().map(of_scheme).collect::<Vec<_>>()
    });
    let phases = measure_all(run, "sequential puts", measurements.collect())?;
    let mut rates = phases.iter().map(|phases| phases[0].megabytes_per_second());
    Ok(cells.iter().map(|cell| rates.by_ref().take(schemes(cell).len()).collect()).collect())
}

/// Megabytes per second of the figure's cell with values of this size, a log and no put synced.
pub(super) fn unsynced_rates(run: &Run<'_>, value_bytes: usize, schemes: Vec<Scheme>) -> Result<Vec<f64>, LabError> {
    let cell = Cell { value_bytes, interval: None, has_log: true };
    let rates = rates(run, (DEFAULT_SCALE, MODEL), &[cell], |_| schemes.clone())?;
    Ok(rates.concat())
}

/// How the pairs are put.
pub(super) struct Cell {
    value_bytes: usize,
    interval: Option<u64>,
    /// Logs are on the disk. If not they are in memory.
    has_log: bool,
}

impl Cell {
    /// Who is compared in it. What a term of ours is worth shows where every put is synced, or none; between these are the others. Without
    /// a log it is told of one size.
    fn schemes(&self) -> Vec<Scheme> {
        let mut schemes = Scheme::compared();
        let has_terms = match self.has_log {
            true => self.interval.is_none_or(|interval| interval == 1),
            false => self.value_bytes == TERMS_WITHOUT_LOG_VALUE_BYTES,
        };
        if !has_terms {
            schemes.retain(|scheme| !matches!(scheme, Scheme::OursWithout(_)));
        }
        schemes
    }

    /// What the paper says of it, and whether SMRDB is ahead by that.
    fn paper(&self) -> Option<(&'static str, bool)> {
        match (self.has_log, self.interval) {
            (false, _) => Some(("SMRDB's performance doubles its default case, and outperforms LevelDB", true)),
            (true, Some(1 | 10)) => Some(("SMRDB outperforms LevelDB when there are many synced writes", true)),
            (true, None) => Some(("in all no sync write cases LevelDB outperforms SMRDB", false)),
            (true, Some(1000)) if self.value_bytes >= 4096 => {
                Some(("1 sync per 1000 insert for 4 KB and 100 KB values: LevelDB outperforms SMRDB", false))
            }
            _ => None,
        }
    }

    /// The rate of each scheme, and to that of LevelDB-like.
    fn rows(&self, report: &mut Report, schemes: &[Scheme], rates: &[f64]) {
        let metric = self.metric();
        for (scheme, rate) in schemes.iter().zip(rates) {
            drawn(report, scheme.name(), &metric, "MB/s", *rate);
        }
        for (scheme, rate) in schemes.iter().zip(rates).skip(1) {
            let (metric, ratio) = (format!("{metric} / LevelDB-like"), rate / rates[0]);
            match self.paper().filter(|_| *scheme == Scheme::Soc) {
                Some((paper, is_ahead)) => {
                    words(report, scheme.name(), &metric, (ratio, "1"), paper, (ratio > 1.0) == is_ahead);
                }
                None => ours(report, scheme.name(), &metric, "1", ratio),
            }
        }
        self.beside_soc(report, schemes, rates);
        self.judge(report, schemes, rates);
    }

    /// Ours to SMRDB-SOC, as the paper has it and with the same input and output.
    fn beside_soc(&self, report: &mut Report, schemes: &[Scheme], rates: &[f64]) {
        for base in [Scheme::Soc, Scheme::SocSameIo] {
            if let (Some(own), Some(rate)) = (rate_of(schemes, rates, Scheme::Ours), rate_of(schemes, rates, base)) {
                let metric = format!("{} / {}", self.metric(), base.name());
                ours(report, Scheme::Ours.name(), &metric, "1", own / rate);
            }
        }
    }

    fn metric(&self) -> String {
        let what = match (self.has_log, self.interval) {
            (false, _) => "no log".to_owned(),
            (true, Some(interval)) => format!("1 sync in {interval}"),
            (true, None) => "no sync".to_owned(),
        };
        format!("{} B, {what}", self.value_bytes)
    }

    /// Ours to LevelDB-like with the same input and output.
    pub(super) fn judge(&self, report: &mut Report, schemes: &[Scheme], rates: &[f64]) {
        let of = |wanted: Scheme| rate_of(schemes, rates, wanted);
        for scheme in [Scheme::Ours, Scheme::OursWithout(Term::Bursts)] {
            if let (Some(own), Some(base)) = (of(scheme), of(Scheme::LevelDbSameIo)) {
                let metric = format!("{} / {}", self.metric(), Scheme::LevelDbSameIo.name());
                goal(report, scheme.name(), &metric, own / base, "at least 1", own >= base);
            }
        }
    }
}

fn rate_of(schemes: &[Scheme], rates: &[f64], wanted: Scheme) -> Option<f64> {
    schemes.iter().zip(rates).find(|(scheme, _)| **scheme == wanted).map(|(_, rate)| *rate)
}

/// Puts of a load in which every `interval`-th is synced.
pub(super) fn records_of(scale: Scale, value_bytes: usize, interval: Option<u64>) -> u64 {
    let pairs = scale.of(SEQUENTIAL_BYTES / (KEY_BYTES + value_bytes) as u64);
    interval.map_or(pairs, |interval| pairs.min(scale.of(SYNCS_MAX) * interval)).max(1)
}
