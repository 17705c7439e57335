//! `media/demerit`: how well the disk model agrees with measured disks.

use super::{Experiment, Run, Scale, simulate, traces};
use crate::error::LabError;
use crate::media::presets::{Preset, atlas_10k_as_traced, cheetah_9lp_as_traced};
use crate::media::validation::{Demerit, parse_validation_trace, replay_validation_trace};
use crate::media::{NoBacking, Pacing};
use crate::report::{Report, Row};

/// Largest demerit figure, as a share of the mean, that counts as agreement.
const GOAL: f64 = 0.10;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "media/demerit",
    title: "disk models against measured response times",
    description: "Replays DiskSim's validation traces of two real disks (Seagate Cheetah 9LP, Quantum Atlas 10K) against \
                  their models and prints the demerit figure: the root mean square horizontal distance between the \
                  distributions of response times (Ruemmler and Wilkes, IEEE Computer 27(3), 1994). The goal is 10 % of \
                  the mean. Needs --traces DIR with disksim_valid_cheetah9LP.trace and disksim_valid_atlas10k.trace, \
                  plain or .zst. Scale shrinks the number of requests.",
    default_scale: Scale::FULL,
    run,
};

/// A preset, and the names its trace may have.
struct Subject {
    scheme: &'static str,
    preset: fn() -> Preset,
    files: [&'static str; 2],
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        scheme: "Cheetah 9LP",
        preset: cheetah_9lp_as_traced,
        files: ["disksim_valid_cheetah9LP.trace", "cheetah9LP.trace"],
    },
    Subject {
        scheme: "Atlas 10K",
        preset: atlas_10k_as_traced,
        files: ["disksim_valid_atlas10k.trace", "atlas10k.trace"],
    },
];

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let mut report = run.report();
    let Some(directory) = &run.settings.traces else {
        let [cheetah, atlas] = [SUBJECTS[0].files[0], SUBJECTS[1].files[0]];
        report.skipped = Some(format!(
            "give --traces DIR, a directory with {cheetah} and {atlas} of DiskSim's distribution, plain or .zst"
        ));
        return Ok(report);
    };
    for subject in &SUBJECTS {
        let Some((name, text)) = traces::find_text(directory, &subject.files)? else {
            report.notes.push(format!(
                "{} skipped: {} (or .zst) is not in {}",
                subject.scheme,
                subject.files[0],
                directory.display()
            ));
            continue;
        };
        let in_file =
            |error: &dyn std::fmt::Display| LabError::file(directory.join(&name).display().to_string(), error);
        let mut trace = parse_validation_trace(&text).map_err(|error| in_file(&error))?;
        trace.truncate(run.scale.of(trace.len() as u64) as usize);
        run.settings.progress.begin(subject.scheme, None);
        let preset = (subject.preset)();
        let replayed = simulate(run.settings.seed, move |env| {
            let name = preset.name().to_owned();
            let device = preset.build(env, &name, Box::new(NoBacking), Pacing::Sleep);
            Ok(replay_validation_trace(env, &device, &trace))
        })?;
        run.settings.progress.end();
        let demerit = replayed.map_err(|error| in_file(&error))?;
        report.rows.extend(rows(subject.scheme, &demerit));
        let verdict = if demerit.relative() <= GOAL { "reached" } else { "missed" };
        report.notes.push(format!("{}: the goal of {:.0} % of the mean is {verdict}", subject.scheme, GOAL * 100.0));
        report.condition(&format!("requests of {}", subject.scheme), demerit.requests);
    }
    if report.rows.is_empty() {
        report.skipped = Some(format!(
            "neither {} nor {} (or .zst) is in {}",
            SUBJECTS[0].files[0],
            SUBJECTS[1].files[0],
            directory.display()
        ));
    }
    Ok(report)
}

fn rows(scheme: &str, demerit: &Demerit) -> [Row; 3] {
    [
        Row::new(scheme, "mean response time", "ms", demerit.modelled_mean_nanos / 1e6)
            .with_paper(demerit.measured_mean_nanos / 1e6),
        Row::new(scheme, "demerit figure", "ms", demerit.demerit_nanos / 1e6),
        Row::new(scheme, "demerit figure by mean", "1", demerit.relative()),
    ]
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Settings, run, select};
    use crate::host;

    #[test]
    fn says_plainly_what_is_missing_and_replays_what_is_there() {
        let experiment = select(&["media/demerit".to_owned()]).unwrap()[0];
        let without = run(experiment, &Settings::default()).unwrap();
        assert!(without.skipped.unwrap().contains("--traces"));

        let directory = tempfile::tempdir().unwrap();
        let settings = Settings { traces: Some(directory.path().to_owned()), ..Settings::default() };
        assert!(run(experiment, &settings).unwrap().skipped.is_some());

        let trace = "R Miss 1000 8 9000.0 20000.0\nR Miss 9000000 8 12000.0 20000.0\n";
        host::write_file(&directory.path().join("atlas10k.trace"), trace.as_bytes()).unwrap();
        let report = run(experiment, &settings).unwrap();
        assert_eq!(report.skipped, None);
        assert_eq!(report.rows[0].paper, Some(10.5));
        assert!(report.rows[0].ours.unwrap() > 1.0);
        assert!(report.notes.iter().any(|note| note.contains("Cheetah 9LP skipped")));

        host::write_file(&directory.path().join("atlas10k.trace"), b"R Miss x\n").unwrap();
        assert!(run(experiment, &settings).unwrap_err().to_string().contains("atlas10k.trace"));
    }
}
