//! Benchmarks by name on one store: what `varve bench` runs.

mod workload_name;

pub use workload_name::WorkloadName;

use crate::error::LabError;
use crate::experiment::Progress;
use crate::report::{Axis, Bars, Figure, Lines, Plot, Report};
use crate::runner::{Finish, Group, Phase, PhaseResult, run_phase};
use crate::target::{Direction, Target};
use crate::workload::{DbBench, DbBenchKind, DbBenchOptions, Workload, Ycsb, YcsbMix, YcsbOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use varve_env::Env;

/// What to run, and how.
#[derive(Clone)]
pub struct Bench {
    /// Workloads, run in this order on the same store. One that needs records finds them: what is
    /// missing is loaded first, and reported as a phase of its own.
    pub workloads: Vec<WorkloadName>,
    /// Sizes of the db_bench workloads; `num`, `reads`, value size, ratio, durability and seed hold
    /// for YCSB too.
    pub options: DbBenchOptions,
    /// YCSB's own choices; its records, operations, value size, ratio, durability and seed come from
    /// `options`.
    pub ycsb: YcsbOptions,
    /// Threads of each workload.
    pub threads: usize,
    /// Ends each workload when it has passed.
    pub duration: Option<Duration>,
    /// Operations per second of each workload, all threads together; unset is as fast as they can.
    pub operations_per_second: Option<f64>,
    /// Writes per second of the writer beside the readers of readwhilewriting.
    pub background_writes_per_second: Option<f64>,
    /// Operations before measuring, of each workload.
    pub warmup_operations: u64,
    /// What happens after each workload, on its account.
    pub finish: Finish,
    /// Verify every value read, and the order of scans.
    pub verify: bool,
}

impl Default for Bench {
    /// Nothing to run; one thread, a million pairs of 16 and 100 bytes, until the store is idle.
    fn default() -> Bench {
        Bench {
            workloads: Vec::new(),
            options: DbBenchOptions::default(),
            ycsb: YcsbOptions::default(),
            threads: 1,
            duration: None,
            operations_per_second: None,
            background_writes_per_second: None,
            warmup_operations: 0,
            finish: Finish::Idle,
            verify: false,
        }
    }
}

impl Bench {
    /// Runs every workload on `target`. In a simulation the caller is an actor of `env`.
    ///
    /// # Errors
    /// Options that make no workload; the first failure of an operation or of verification.
    pub fn run(
        &self,
        env: &Env,
        target: &Arc<dyn Target>,
        progress: &Arc<dyn Progress>,
    ) -> Result<Vec<PhaseResult>, LabError> {
        if self.threads == 0 {
            return Err(LabError::invalid("threads", "0; at least 1"));
        }
        let mut phases = Vec::new();
        for &workload in &self.workloads {
            if let Some(load) = self.missing_load(target, workload)? {
                phases.push(self.run_one(env, target, load, progress)?);
            }
            phases.push(self.run_one(env, target, workload, progress)?);
        }
        name_apart(&mut phases);
        Ok(phases)
    }

    /// The workload that loads what `workload` needs and the store has not.
    fn missing_load(&self, target: &Arc<dyn Target>, workload: WorkloadName) -> Result<Option<WorkloadName>, LabError> {
        let failed = |operation| {
            let target = target.name().to_owned();
            move |error| LabError::Target { target, operation, error }
        };
        let mut key = Vec::new();
        let load = match workload {
            WorkloadName::DbBench(kind) if !kind.wants_empty_store() => {
                crate::generator::KeyFormat::Decimal { width_bytes: self.options.key_size }.write(0, &mut key);
                WorkloadName::DbBench(DbBenchKind::FillUniqueRandom)
            }
            WorkloadName::Ycsb(mix) if mix != YcsbMix::Load => {
                self.ycsb.keys.write(0, &mut key);
                WorkloadName::Ycsb(YcsbMix::Load)
            }
            _ => return Ok(None),
        };
        // A load writes its record 0 for certain, but fillrandom or a deletion may have left it out, so
        // any key of the same form counts.
        let mut session = target.session().map_err(failed("session"))?;
        let mut found = false;
        let mut visit = |other: &[u8], _: &[u8]| found = other.len() == key.len() && is_alike(other, &key);
        let start = if workload.is_ycsb() { b"user".as_slice() } else { key.as_slice() };
        session.scan(Some(start), Direction::Forward, 1, &mut visit).map_err(failed("scan"))?;
        let found = found || session.get(&key, &mut Vec::new()).map_err(failed("get"))?;
        Ok((!found).then_some(load))
    }

    fn run_one(
        &self,
        env: &Env,
        target: &Arc<dyn Target>,
        workload: WorkloadName,
        progress: &Arc<dyn Progress>,
    ) -> Result<PhaseResult, LabError> {
        let mut phase = self.phase(workload)?;
        let leading = &phase.groups[0];
        let counted = (leading.operations != u64::MAX && leading.duration.is_none()).then_some(leading.operations);
        progress.begin(&phase.name, counted);
        let advance = Arc::clone(progress);
        phase.on_progress = Some(Arc::new(move |done| advance.advance(done)));
        let result = run_phase(env, target, &phase);
        progress.end();
        result
    }

    /// The phase of a workload.
    fn phase(&self, workload: WorkloadName) -> Result<Phase, LabError> {
        let (made, values, operations): (Arc<dyn Workload>, _, u64) = match workload {
            WorkloadName::DbBench(kind) => {
                let made = DbBench::new(kind, self.options.clone())?;
                let values = made.values();
                let operations = if kind.is_full_scan() { u64::MAX } else { self.options.operations(kind) };
                (Arc::new(made), values, operations)
            }
            WorkloadName::Ycsb(mix) => {
                let made = Ycsb::new(mix, self.ycsb_options())?;
                let (values, operations) = (made.values(), made.operations());
                (Arc::new(made), values, operations)
            }
        };
        // With a duration, the count is no limit unless it was asked for.
        let counts = self.duration.is_none() || self.options.reads.is_some();
        let leading = Group {
            duration: self.duration,
            operations_per_second: self.operations_per_second,
            warmup_operations: self.warmup_operations,
            verify: self.verify.then_some(values),
            ..Group::new(made, self.threads, if counts { operations } else { u64::MAX })
        };
        let mut phase = Phase { finish: self.finish, ..Phase::new(workload.to_string(), leading) };
        if workload == WorkloadName::DbBench(DbBenchKind::ReadWhileWriting) {
            let writer = DbBench::new(DbBenchKind::ReadWhileWriting, self.options.clone())?.writer();
            phase.groups.push(Group {
                background: true,
                operations_per_second: self.background_writes_per_second,
                ..Group::new(Arc::new(writer), 1, u64::MAX)
            });
        }
        phase.live_bytes = self.live_bytes(workload);
        Ok(phase)
    }

    fn ycsb_options(&self) -> YcsbOptions {
        YcsbOptions {
            records: self.options.num,
            operations: self.options.reads.unwrap_or(self.options.num),
            value_bytes: self.options.value_size,
            compression_ratio: self.options.compression_ratio,
            durability: self.options.durability,
            seed: self.options.seed,
            ..self.ycsb.clone()
        }
    }

    /// Live keys and values after a workload, where that is known.
    fn live_bytes(&self, workload: WorkloadName) -> Option<u64> {
        match workload {
            WorkloadName::DbBench(DbBenchKind::FillSeq | DbBenchKind::FillUniqueRandom | DbBenchKind::Overwrite) => {
                Some(self.options.data_bytes())
            }
            WorkloadName::Ycsb(YcsbMix::Load | YcsbMix::A | YcsbMix::B | YcsbMix::C | YcsbMix::F) => {
                let pair = (self.ycsb.keys.mean_bytes() + self.options.value_size) as u64;
                Some(self.options.num.saturating_mul(pair))
            }
            _ => None,
        }
    }

    /// States sizes and choices as conditions of a report.
    pub fn describe(&self, report: &mut Report) {
        let options = &self.options;
        report.condition("records", options.num);
        report.condition("key", format!("{} B", options.key_size));
        report.condition("value", format!("{} B, compressible to {}", options.value_size, options.compression_ratio));
        report.condition("threads", self.threads);
        if options.batch_size != 1 {
            report.condition("batch", options.batch_size);
        }
        if let Some(rate) = self.operations_per_second {
            report.condition("rate", format!("{rate} op/s"));
        }
        if let Some(duration) = self.duration {
            report.condition("duration", format!("{} s", duration.as_secs_f64()));
        }
        if self.workloads.iter().any(|workload| workload.is_ycsb()) {
            report.condition("YCSB operations", options.reads.unwrap_or(options.num));
            if let Some(distribution) = self.ycsb.distribution {
                report.condition("YCSB distribution", distribution);
            }
        }
    }
}

/// Whether two keys of equal length have the same form: digits where the other has digits.
fn is_alike(a: &[u8], b: &[u8]) -> bool {
    a.iter().zip(b).all(|(a, b)| a == b || (a.is_ascii_digit() && b.is_ascii_digit()))
}

/// Numbers phases of one name from the second on (`readseq`, `readseq-2`), so that neither their rows
/// nor their plots are mistaken for each other's.
pub fn name_apart(phases: &mut [PhaseResult]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for phase in phases {
        let times = seen.entry(phase.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            phase.name.push_str(&format!("-{times}"));
        }
    }
}

/// The usual plots of phases on `medium`: throughput and latency by phase, throughput and p99 over time.
pub fn phase_plots(phases: &[PhaseResult], medium: &str) -> Vec<Plot> {
    let mut plots = Vec::new();
    if phases.is_empty() {
        return plots;
    }
    let groups: Vec<String> = phases.iter().map(|phase| phase.name.clone()).collect();
    let throughput = phases.iter().map(|phase| Some(phase.operations_per_second)).collect();
    plots.push(Plot {
        name: "throughput".to_owned(),
        title: "throughput of each phase".to_owned(),
        medium: medium.to_owned(),
        y: Axis::logarithmic("throughput (op/s)"),
        figure: Figure::Bars(Bars { groups: groups.clone(), series: vec![("throughput".to_owned(), throughput)] }),
    });
    type Percentile = fn(&crate::runner::LatencySummary) -> u64;
    let percentiles: [(&str, Percentile); 3] = [
        ("p50", |latency| latency.p50_nanos),
        ("p99", |latency| latency.p99_nanos),
        ("p99.99", |latency| latency.p9999_nanos),
    ];
    let series = percentiles.map(|(name, take)| {
        let bars = phases.iter().map(|phase| phase.main_latency().map(|latency| take(&latency) as f64 / 1e3));
        (name.to_owned(), bars.collect())
    });
    plots.push(Plot {
        name: "latency".to_owned(),
        title: "latency of each phase".to_owned(),
        medium: medium.to_owned(),
        y: Axis::logarithmic("latency (us)"),
        figure: Figure::Bars(Bars { groups, series: series.into() }),
    });
    for phase in phases {
        let Some(group) = phase.groups.iter().find(|group| group.timeline.len() > 1) else { continue };
        let stem: String =
            phase.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
        let over_time =
            |name: &str, title: String, y: Axis, take: &dyn Fn(&crate::runner::TimelinePoint) -> f64| Plot {
                name: format!("{stem}-{name}"),
                title,
                medium: medium.to_owned(),
                y,
                figure: Figure::Lines(Lines {
                    x: Axis::linear(if phase.is_virtual { "virtual time (s)" } else { "time (s)" }),
                    series: vec![(
                        name.to_owned(),
                        group.timeline.iter().map(|point| (point.start_seconds, take(point))).collect(),
                    )],
                    paper: Vec::new(),
                }),
            };
        plots.push(over_time(
            "timeline",
            format!("{}: throughput over time", phase.name),
            Axis::linear("throughput (op/s)"),
            &|point| point.operations_per_second,
        ));
        if group.timeline.iter().any(|point| point.p99_nanos.is_some()) {
            plots.push(over_time(
                "p99",
                format!("{}: 99th percentile over time", phase.name),
                Axis::logarithmic("latency (us)"),
                &|point| point.p99_nanos.map_or(f64::NAN, |nanos| nanos as f64 / 1e3),
            ));
        }
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Silent;
    use crate::target::MemoryTarget;

    fn bench(names: &[&str]) -> Bench {
        Bench {
            workloads: names.iter().map(|name| name.parse().unwrap()).collect(),
            options: DbBenchOptions { num: 300, reads: Some(200), seed: 4, ..DbBenchOptions::default() },
            threads: 2,
            verify: true,
            ..Bench::default()
        }
    }

    fn run(bench: &Bench) -> Vec<PhaseResult> {
        let env = Env::sim(1);
        let target: Arc<dyn Target> = Arc::new(MemoryTarget::new(&env));
        let silent: Arc<dyn Progress> = Arc::new(Silent);
        bench.run(&env, &target, &silent).unwrap()
    }

    #[test]
    fn what_is_missing_is_loaded_first_and_once() {
        let phases =
            run(&bench(&["readrandom", "seekrandom", "ycsb-b", "ycsb-e", "fillseq", "deleterandom", "readseq"]));
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "filluniquerandom",
                "readrandom",
                "seekrandom",
                "ycsb-load",
                "ycsb-b",
                "ycsb-e",
                "fillseq",
                "deleterandom",
                "readseq"
            ]
        );
        assert_eq!(phases[1].kind("read").unwrap().found, 200);
        assert_eq!(phases[0].operations, 300);
        assert_eq!(phases[4].operations, 200);
        assert!(!phase_plots(&phases, "a disk").is_empty());
    }

    #[test]
    fn every_workload_runs_and_verifies() {
        for name in WorkloadName::all() {
            let phases = run(&bench(&[&name.to_string()]));
            assert!(phases.last().unwrap().operations > 0, "{name}");
        }
    }

    #[test]
    fn every_phase_keeps_its_plots() {
        let mut bench = bench(&["readrandom", "overwrite", "readrandom"]);
        bench.options.reads = Some(20_000);
        let phases = run(&bench);
        assert_eq!(phases.last().unwrap().name, "readrandom-2");
        let plots = phase_plots(&phases, "a disk");
        let names: std::collections::BTreeSet<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
        assert_eq!(names.len(), plots.len(), "{names:?}");
        assert!(names.contains("readrandom-timeline") && names.contains("readrandom-2-timeline"), "{names:?}");
    }

    #[test]
    fn duration_ends_workloads() {
        let mut bench = bench(&["fillrandom"]);
        bench.duration = Some(Duration::from_millis(1));
        bench.options.reads = None;
        // 1 us an operation, two threads.
        let phases = run(&bench);
        assert!((1990..=2010).contains(&phases[0].operations), "{}", phases[0].operations);
    }
}
