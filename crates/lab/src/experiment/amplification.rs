//! `amplification/curve`: what is written against what is kept, by the size of the data.

use super::{Experiment, Run, Scale, emulated, simulate};
use crate::error::LabError;
use crate::generator::{Permutation, ValueGenerator};
use crate::report::{Report, Row, format_bytes};
use crate::target::{Durability, Session, Target, TargetError};
use std::sync::Arc;
use varve::env::Random;
use varve::{Compression, Options};

/// Keys and values at full scale.
const SIZES: [u64; 7] = [256 << 20, 512 << 20, 1 << 30, 2 << 30, 4 << 30, 8 << 30, 16 << 30];

/// Bytes of a key and of a value: 1 KiB together.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 1008;

/// Sizes of a store at full scale; everything else is as the store has it.
const WRITE_BUFFER_BYTES: u64 = 64 << 20;
const LEVEL_BASE_BYTES: u64 = 256 << 20;
const TABLE_BYTES: u64 = 64 << 20;
const COMPACTION_BYTES: u64 = 25 * TABLE_BYTES;

/// What may gather above the last level, in percent of it; the first is levels of a fixed ratio.
const PERCENTS: [u64; 5] = [0, 8, 12, 16, 25];

/// Bytes that are put, at full scale, in what is measured last: enough that it does not matter where between two merges it ends.
const AGAIN_BYTES: u64 = 4 << 30;

/// A store rests so many times for each write buffer that is filled.
const RESTS: u64 = 4;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "amplification/curve",
    title: "write amplification against space amplification, of 256 MiB to 16 GiB",
    description: "Puts every key once in random order, then overwrites as many keys as there are, at random, and then as many again, 4 GiB at least. Each size of data, for each \
                  max_size_amplification_percent. Printed are bytes written to logs and tables by those put, while it is filled, in the \
                  first half of the first overwriting, and in the second; and bytes of tables by those of the data \
                  at the end of the first two, and mean and largest during the last. The store rests four times in each write buffer, so that \
                  nothing depends on how fast anything is. Scale divides the data and every size of the store (write buffer, tables, level \
                  base), which leaves all ratios as they are: a table is 1 MiB at 1/64. `cargo peers amplification` does the \
                  same with other stores.",
    default_scale: Scale::one_in(64),
    run,
};

/// The sizes of a store under `amplification/curve`, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct AmplificationSizes {
    /// A memtable.
    pub write_buffer: u64,
    /// The target of the first level below level 0.
    pub level_base: u64,
    /// A table.
    pub table: u64,
    /// What one compaction may read.
    pub compaction: u64,
}

impl AmplificationSizes {
    /// Those of a scale.
    pub fn of(scale: Scale) -> AmplificationSizes {
        AmplificationSizes {
            write_buffer: scale.of(WRITE_BUFFER_BYTES),
            level_base: scale.of(LEVEL_BASE_BYTES),
            table: scale.of(TABLE_BYTES),
            compaction: scale.of(COMPACTION_BYTES),
        }
    }

    /// Varve with these sizes, without compression.
    pub fn options(&self, max_size_amplification_percent: u64) -> Options {
        Options {
            write_buffer_size: self.write_buffer as usize,
            max_write_buffer_number: 2,
            max_bytes_for_level_base: self.level_base,
            target_file_size_base: self.table,
            max_compaction_bytes: self.compaction,
            max_size_amplification_percent,
            compression: Compression::None,
            ..Options::default()
        }
    }
}

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    let sizes = AmplificationSizes::of(run.scale);
    emulated::describe(&mut report, emulated::SSD, &sizes.options(0));
    let (scale, seed) = (run.scale, run.settings.seed);
    for percent in PERCENTS {
        let scheme = if percent == 0 { "fixed ratio".to_owned() } else { format!("{percent} %") };
        run.settings.progress.begin(&scheme, None);
        let rows = simulate(seed, move |env| {
            let mut open = || emulated::open(env, emulated::SSD, &sizes.options(percent));
            measure_amplification(&scheme, scale, seed, &mut open)
        });
        run.settings.progress.end();
        report.rows.extend(rows?);
    }
    Ok(report)
}

/// The rows of one store: `open` gives a new, empty one for each size, those before being closed.
///
/// # Errors
/// Whatever the store says; a store that does not tell what it wrote.
pub fn measure_amplification(
    scheme: &str,
    scale: Scale,
    seed: u64,
    open: &mut dyn FnMut() -> Result<Arc<dyn Target>, LabError>,
) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for full_bytes in SIZES {
        let target = open()?;
        let failed = |error| LabError::Target { target: scheme.to_owned(), operation: "amplification", error };
        let mut load = Load::new(target, scale, full_bytes, seed)?;
        for (metric, value) in load.measure().map_err(failed)? {
            rows.push(Row::new(scheme, format!("{}: {metric}", format_bytes(full_bytes)), "1", value));
        }
    }
    Ok(rows)
}

/// One size of data on one store.
struct Load {
    target: Arc<dyn Target>,
    pairs: u64,
    /// Puts of what is measured last.
    again: u64,
    /// Puts between two rests.
    interval: u64,
    values: ValueGenerator,
    seed: u64,
}

/// What a stretch of puts came to.
struct Stretch {
    /// Bytes written by bytes put.
    written: f64,
    /// Bytes of tables by bytes of data, at each rest.
    space: Vec<f64>,
}

impl Stretch {
    fn end(&self) -> f64 {
        self.space.last().copied().unwrap_or(f64::NAN)
    }

    fn mean(&self) -> f64 {
        self.space.iter().sum::<f64>() / self.space.len() as f64
    }

    fn largest(&self) -> f64 {
        self.space.iter().copied().fold(f64::NAN, f64::max)
    }
}

impl Load {
    fn new(target: Arc<dyn Target>, scale: Scale, full_bytes: u64, seed: u64) -> Result<Load, LabError> {
        let pair_bytes = (KEY_BYTES + VALUE_BYTES) as u64;
        Ok(Load {
            target,
            pairs: (scale.of(full_bytes) / pair_bytes).max(2),
            again: (scale.of(full_bytes.max(AGAIN_BYTES)) / pair_bytes).max(2),
            interval: (scale.of(WRITE_BUFFER_BYTES) / pair_bytes / RESTS).max(1),
            values: ValueGenerator::new(seed, 1.0)?,
            seed,
        })
    }

    fn measure(&mut self) -> Result<Vec<(&'static str, f64)>, TargetError> {
        let mut session = self.target.session()?;
        let order = Permutation::new(self.pairs, self.seed);
        let mut random = Random::named(self.seed, "overwrite");
        let pairs = self.pairs;
        let fill = self.put(&mut *session, pairs, &mut |position| order.of(position))?;
        let half = self.put(&mut *session, pairs / 2, &mut |_| random.below(pairs))?;
        self.put(&mut *session, pairs - pairs / 2, &mut |_| random.below(pairs))?;
        let steady = self.put(&mut *session, self.again, &mut |_| random.below(pairs))?;
        Ok(vec![
            ("fill, written", fill.written),
            ("fill, space", fill.end()),
            ("first half overwritten, written", half.written),
            ("first half overwritten, space", half.end()),
            ("overwritten again, written", steady.written),
            ("overwritten again, mean space", steady.mean()),
            ("overwritten again, largest space", steady.largest()),
        ])
    }

    /// Bytes written to logs and tables so far.
    fn written_bytes(&self) -> Result<u64, TargetError> {
        let statistics = self.target.statistics()?;
        let parts = [statistics.log_bytes, statistics.flush_bytes, statistics.compaction_written_bytes];
        let known: Option<u64> = parts.into_iter().sum();
        known.ok_or_else(|| "it does not tell what it wrote".into())
    }

    fn put(
        &mut self,
        session: &mut dyn Session,
        count: u64,
        key_of: &mut dyn FnMut(u64) -> u64,
    ) -> Result<Stretch, TargetError> {
        let before = self.written_bytes()?;
        let data_bytes = self.pairs * (KEY_BYTES + VALUE_BYTES) as u64;
        let (mut space, mut value) = (Vec::new(), Vec::new());
        for position in 0..count {
            let key = format!("{:016x}", key_of(position));
            self.values.write(key.as_bytes(), position, VALUE_BYTES, &mut value);
            session.put(key.as_bytes(), &value, Durability::Buffered)?;
            if (position + 1) % self.interval == 0 || position + 1 == count {
                self.target.wait_idle()?;
                let bytes = self.target.statistics()?.space_bytes.ok_or("it does not tell its space")?;
                space.push(bytes as f64 / data_bytes as f64);
            }
        }
        let put_bytes = count * (KEY_BYTES + VALUE_BYTES) as u64;
        Ok(Stretch { written: (self.written_bytes()? - before) as f64 / put_bytes as f64, space })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Settings, run, select};

    /// Counts of a run in virtual time: the same each time.
    #[test]
    fn space_buys_writes_and_scale_leaves_ratios() {
        let experiment = select(&["amplification/curve".to_owned()]).unwrap()[0];
        let of = |divisor: u64| {
            let settings = Settings { scale: Some(Scale::one_in(divisor)), ..Settings::default() };
            run(experiment, &settings).unwrap()
        };
        let report = of(4096);
        assert_eq!(report.rows.len(), PERCENTS.len() * SIZES.len() * 7);
        let row = |scheme: &str, metric: &str| {
            report
                .rows
                .iter()
                .find(|row| row.scheme == scheme && row.metric == metric)
                .and_then(|row| row.ours)
                .unwrap()
        };
        for size in ["2 GiB", "16 GiB"] {
            let written = |scheme: &str| row(scheme, &format!("{size}: overwritten again, written"));
            let space = |scheme: &str| row(scheme, &format!("{size}: overwritten again, mean space"));
            assert!(
                written("25 %") <= written("8 %") && written("12 %") < written("fixed ratio"),
                "{}",
                report.to_text()
            );
            assert!(space("25 %") >= space("8 %"), "{}", report.to_text());
        }
    }
}
