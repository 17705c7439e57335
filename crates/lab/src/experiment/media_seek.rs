//! `media/seek`: the seek curve of a model beside the measured one.

use super::{Experiment, Run, Scale, traces};
use crate::error::LabError;
use crate::media::presets::Preset;
use crate::report::{Axis, Figure, Lines, Plot, Report, Row};

/// Model whose curve was fitted to the measurement.
const PRESET: &str = "measured-4tb";

/// Name the measurement has in DiskSim's distribution.
const FILES: [&str; 2] = ["disksim_G4_LBA_64bit_4T.seeks", "G4_LBA_64bit_4T.seeks"];

/// Mean of random seeks that the fit of the measurement gives.
const MEAN_OF_FIT_MS: f64 = 7.93;

/// Points of the plotted lines.
const PLOTTED: usize = 300;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "media/seek",
    title: "seek curve of the 4 TB disk model against the measured curve",
    description: "Compares the model's seek times with those measured on a 10-surface, 7200 rpm, 4 TB drive: mean over \
                  random pairs of cylinders, root mean square and largest distance at the measured points. Needs \
                  --traces DIR with disksim_G4_LBA_64bit_4T.seeks, plain or .zst. Scale changes nothing.",
    default_scale: Scale::FULL,
    run,
};

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    let preset = Preset::find(PRESET);
    let Some(curve) = preset.as_ref().and_then(|preset| preset.parameters().seek_curve()) else {
        return Err(LabError::invalid("preset", format!("there is no '{PRESET}' with a seek curve")));
    };
    let model = |distance: u64| curve.nanos(distance) as f64 / 1e6;
    let text = match &run.settings.traces {
        Some(directory) => traces::find_text(directory, &FILES)?,
        None => None,
    };
    let Some((name, text)) = text else {
        report.skipped = Some(match &run.settings.traces {
            Some(directory) => format!("{} (or .zst) is not in {}", FILES[0], directory.display()),
            None => {
                format!("give --traces DIR, a directory with {} of DiskSim's distribution, plain or .zst", FILES[0])
            }
        });
        return Ok(report);
    };
    let points = parse(&name, &text)?;
    let last = points.last().map_or(0, |point| point.0);
    report.condition("measurement", format!("{name}, {} points to {last} cylinders", points.len()));

    let squares: f64 = points.iter().map(|&(distance, ms)| (model(distance) - ms) * (model(distance) - ms)).sum();
    let largest = points.iter().map(|&(distance, ms)| (model(distance) - ms).abs()).fold(0.0, f64::max);
    let measured = |distance: u64| interpolate(&points, distance);
    report.rows.push(
        Row::new("model", "mean random seek", "ms", mean(last, model))
            .with_paper(MEAN_OF_FIT_MS)
            .with_note("paper: of the published fit"),
    );
    report.rows.push(
        Row::new("model", "mean random seek, measured points", "ms", mean(last, model))
            .with_paper(mean(last, measured))
            .with_note("paper: of the points, straight lines between them"),
    );
    let rms = (squares / points.len() as f64).sqrt();
    report.rows.push(Row::new("model", "RMS distance at the measured points", "ms", rms));
    report.rows.push(Row::new("model", "largest distance at the measured points", "ms", largest));
    let every = points.len().div_ceil(PLOTTED).max(1);
    let line = |f: &dyn Fn(&(u64, f64)) -> f64| {
        points.iter().step_by(every).map(|point| (point.0 as f64, f(point))).collect::<Vec<_>>()
    };
    report.plots.push(Plot {
        name: "curve".to_owned(),
        title: "seek time by distance".to_owned(),
        medium: "disk of 4 TB, measured and emulated".to_owned(),
        y: Axis::linear("seek time (ms)"),
        figure: Figure::Lines(Lines {
            x: Axis::linear("distance (cylinders)"),
            series: vec![("model".to_owned(), line(&|point| model(point.0)))],
            paper: vec![("measured".to_owned(), line(&|point| point.1))],
        }),
    });
    Ok(report)
}

/// Reads `distance, milliseconds` lines, ascending, after a line that says how many there are.
fn parse(name: &str, text: &str) -> Result<Vec<(u64, f64)>, LabError> {
    let mut points: Vec<(u64, f64)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with("Seek distances") {
            continue;
        }
        let point = line.split_once(',').and_then(|(distance, ms)| {
            let ms: f64 = ms.trim().parse().ok()?;
            Some((distance.trim().parse::<u64>().ok()?, ms)).filter(|_| ms.is_finite())
        });
        match point {
            Some(point) if points.last().is_none_or(|last| last.0 < point.0) => points.push(point),
            _ => {
                let reason = format!("line {}: expected 'distance, milliseconds' with a growing distance", index + 1);
                return Err(LabError::file(name, reason));
            }
        }
    }
    if points.is_empty() {
        return Err(LabError::file(name, "no points"));
    }
    Ok(points)
}

/// Straight lines between the points, level outside of them; 0 for no distance.
fn interpolate(points: &[(u64, f64)], distance: u64) -> f64 {
    let next = points.partition_point(|point| point.0 < distance);
    match (next.checked_sub(1).map(|before| points[before]), points.get(next)) {
        _ if distance == 0 => 0.0,
        (Some(low), Some(high)) => low.1 + (high.1 - low.1) * (distance - low.0) as f64 / (high.0 - low.0) as f64,
        (Some(last), None) => last.1,
        (None, Some(first)) => first.1,
        (None, None) => 0.0,
    }
}

/// Mean over all pairs of `cylinders + 1` cylinders: distance d comes with weight 2 (n - d) / n^2.
fn mean(cylinders: u64, time: impl Fn(u64) -> f64) -> f64 {
    let n = (cylinders + 1) as f64;
    (1..=cylinders).map(|distance| time(distance) * 2.0 * (n - distance as f64) / (n * n)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Settings, run, select};
    use crate::host;

    #[test]
    fn curve_is_compared_when_it_is_there() {
        let experiment = select(&["media/seek".to_owned()]).unwrap()[0];
        assert!(run(experiment, &Settings::default()).unwrap().skipped.is_some());
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { traces: Some(directory.path().to_owned()), ..Settings::default() };
        let text = "Seek distances measured: 3\n1, 1.5\n67103, 6.478\n353180, 15.6\n";
        host::write_file(&directory.path().join(FILES[0]), text.as_bytes()).unwrap();
        let report = run(experiment, &settings).unwrap();
        let mean = report.rows[0].ours.unwrap();
        assert!((mean - MEAN_OF_FIT_MS).abs() < 0.02, "{mean}");
        assert!(report.rows[2].ours.unwrap() < 0.1, "{:?}", report.rows[2]);
    }

    #[test]
    fn damaged_files_are_told_by_line() {
        assert!(parse("f", "1, 2\n1, 3\n").unwrap_err().to_string().contains("line 2"));
        assert!(parse("f", "1; 2\n").is_err());
        assert!(parse("f", "1, inf\n").is_err());
        assert!(parse("f", "").is_err());
        assert_eq!(interpolate(&[(10, 1.0), (20, 3.0)], 15), 2.0);
        assert_eq!(interpolate(&[(10, 1.0), (20, 3.0)], 99), 3.0);
    }
}
