//! `media/presets`: what the device models do on the usual jobs, beside what their makers say.

use super::{Experiment, Run, Scale, simulate};
use crate::error::LabError;
use crate::media::presets::Preset;
use crate::media::probe::{Characterization, CharacterizationOptions};
use crate::media::{BlockDevice, NoBacking, Pacing};
use crate::report::{Axis, Bars, Figure, Plot, Report, Row};
use std::sync::Arc;

/// Bytes of each sequential job at full scale.
const SEQUENTIAL_BYTES: u64 = 1 << 30;

/// Least bytes of a sequential job: a spot of it must stay well above every preset's cache.
const SEQUENTIAL_BYTES_MIN: u64 = 512 << 20;

/// Requests of each random job at full scale.
const RANDOM_REQUESTS: u64 = 2_000;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "media/presets",
    title: "device models on fio-like jobs, beside their data sheets",
    description: "Runs sequential reads and writes at the outer edge and over the whole device, random reads and writes \
                  of 4 KiB and synced appends on each preset in virtual time. The column 'paper' is what the preset's \
                  source promises; a preset is right when ours is within 5 % of it. Scale shrinks the jobs, not the \
                  devices.",
    default_scale: Scale::FULL,
    run,
};

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let presets = Preset::all();
    let seed = run.settings.seed;
    let mut report = run.report();
    let sequential_bytes = run.scale.of(SEQUENTIAL_BYTES).max(SEQUENTIAL_BYTES_MIN);
    report.condition("bytes of a sequential job", sequential_bytes);
    report.condition("requests of a random job", run.scale.of(RANDOM_REQUESTS));
    run.settings.progress.begin("probing presets", Some(presets.len() as u64));
    let mut measured = Vec::new();
    for (done, preset) in presets.iter().enumerate() {
        let promises = *preset.promises();
        let options = CharacterizationOptions {
            sequential_request_bytes: promises.sequential_request_bytes,
            sequential_depth: promises.sequential_depth,
            sequential_bytes,
            random_requests: run.scale.of(RANDOM_REQUESTS),
            seed,
            ..CharacterizationOptions::default()
        };
        let model = preset.clone();
        let reached = simulate(seed, move |env| {
            let name = model.name().to_owned();
            let device: Arc<dyn BlockDevice> = Arc::new(model.build(env, &name, Box::new(NoBacking), Pacing::Sleep));
            Ok(Characterization::measure(env, &device, &options)?)
        })?;
        let rate = |promised: Option<u64>| promised.map(|bytes| bytes as f64 / 1e6);
        for (metric, unit, promised, ours) in [
            (
                "sequential read, outer",
                "MB/s",
                rate(promises.outer_read_bytes_per_second),
                reached.outer_read_bytes_per_second / 1e6,
            ),
            (
                "sequential write, outer",
                "MB/s",
                rate(promises.outer_write_bytes_per_second),
                reached.outer_write_bytes_per_second / 1e6,
            ),
            (
                "sequential read, average",
                "MB/s",
                rate(promises.average_read_bytes_per_second),
                reached.average_read_bytes_per_second / 1e6,
            ),
            (
                "sequential write, average",
                "MB/s",
                rate(promises.average_write_bytes_per_second),
                reached.average_write_bytes_per_second / 1e6,
            ),
            ("random 4 KiB read, depth 1", "op/s", promises.random_reads_per_second, reached.random_reads_per_second),
            ("random 4 KiB read, depth 32", "op/s", None, reached.deep_random_reads_per_second),
            ("random 4 KiB write, depth 1", "op/s", None, reached.random_writes_per_second),
            ("4 KiB append and sync, mean", "us", None, reached.synced_append_nanos as f64 / 1e3),
        ] {
            report.rows.push(Row { paper: promised, ..Row::new(preset.name(), metric, unit, ours) });
        }
        measured.push((preset.name().to_owned(), reached));
        run.settings.progress.advance(done as u64 + 1);
    }
    run.settings.progress.end();
    let worst = report.rows.iter().filter_map(|row| Some((row.ours? / row.paper? - 1.0).abs())).fold(0.0, f64::max);
    report.notes.push(format!("largest deviation from a source: {:.1} %", worst * 100.0));
    let bars = |take: fn(&Characterization) -> f64| measured.iter().map(|(_, reached)| Some(take(reached))).collect();
    report.plots.push(Plot {
        name: "sequential".to_owned(),
        title: "sequential rate over the whole device".to_owned(),
        medium: "emulated devices".to_owned(),
        y: Axis::logarithmic("rate (MB/s)"),
        figure: Figure::Bars(Bars {
            groups: measured.iter().map(|(name, _)| name.clone()).collect(),
            series: vec![
                ("read".to_owned(), bars(|reached| reached.average_read_bytes_per_second / 1e6)),
                ("write".to_owned(), bars(|reached| reached.average_write_bytes_per_second / 1e6)),
            ],
        }),
    });
    report.plots.push(Plot {
        name: "random".to_owned(),
        title: "random 4 KiB reads".to_owned(),
        medium: "emulated devices".to_owned(),
        y: Axis::logarithmic("rate (op/s)"),
        figure: Figure::Bars(Bars {
            groups: measured.iter().map(|(name, _)| name.clone()).collect(),
            series: vec![
                ("one at a time".to_owned(), bars(|reached| reached.random_reads_per_second)),
                ("32 at a time".to_owned(), bars(|reached| reached.deep_random_reads_per_second)),
            ],
        }),
    });
    Ok(report)
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Scale, Settings, run, select};

    #[test]
    fn every_preset_is_within_five_percent_of_its_source() {
        let experiment = select(&["media/presets".to_owned()]).unwrap()[0];
        let settings = Settings { scale: Some(Scale::one_in(4)), ..Settings::default() };
        let report = run(experiment, &settings).unwrap();
        let compared = report.rows.iter().filter(|row| row.paper.is_some()).count();
        assert!(compared > 20, "only {compared} promises");
        for row in &report.rows {
            if let (Some(ours), Some(paper)) = (row.ours, row.paper) {
                assert!((ours / paper - 1.0).abs() < 0.05, "{} {}: {ours} against {paper}", row.scheme, row.metric);
            }
        }
        assert_eq!(report.plots.len(), 2);
    }
}
