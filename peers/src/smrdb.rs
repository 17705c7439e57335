//! The loads of SMRDB's figures on real stores in a real directory.

use crate::engine::{Budget, Engine};
use std::path::PathBuf;
use std::sync::Arc;
use varve::env::Env;
use varve_lab::LabError;
use varve_lab::experiment::{Scale, measure_beside};
use varve_lab::host;
use varve_lab::report::Report;
use varve_lab::target::Target;

/// LevelDB as the paper has it (SMRDB, section 5.2): a memtable of 80 MB, the default cache of 8 MB, and no filter unless
/// one is asked for.
const BUDGET: Budget =
    Budget { write_buffer_bytes: 80 << 20, filter_bits: 0, cache_bytes: 8 << 20, direct_reads: false };

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) directory: PathBuf,
    pub(crate) engines: Vec<Engine>,
    pub(crate) scale: Scale,
    pub(crate) seed: u64,
}

/// Runs the loads on one store after the other, those that are not installed being skipped and noted. Calls `say` with a
/// line now and then.
pub(crate) fn run(settings: &Settings, say: &mut dyn FnMut(&str)) -> Result<Report, LabError> {
    let title = "the loads of smrdb/fig8, fig9, fig12 and fig14 on this machine's file system";
    let mut report = Report::new("peers/smrdb", title, settings.scale, settings.seed);
    report.condition("machine", host::description());
    report.condition("directory", settings.directory.display());
    report.condition("write buffer, block cache, filter", "80 MiB, 8 MiB, none");
    let env = Env::real();
    let mut is_any = false;
    for &engine in &settings.engines {
        if let Some(reason) = engine.missing() {
            say(&format!("{engine} skipped: {reason}"));
            report.notes.push(format!("{engine} skipped: {reason}"));
            continue;
        }
        is_any = true;
        let directory = settings.directory.join(format!("smrdb-{engine}"));
        let mut loads = 0;
        let mut open = || -> Result<Arc<dyn Target>, LabError> {
            loads += 1;
            say(&format!("{engine}, load {loads}"));
            host::remove_directory(&directory)?;
            std::fs::create_dir_all(&directory)
                .map_err(|error| LabError::file(directory.display().to_string(), error))?;
            engine.open(&directory, BUDGET).map_err(|error| LabError::Target {
                target: engine.to_string(),
                operation: "open",
                error,
            })
        };
        let measured = measure_beside(&env, &mut report, settings.scale, settings.seed, &mut open);
        host::remove_directory(&directory)?;
        measured?;
    }
    if !is_any {
        report.skipped = Some("no store could be run".to_owned());
    }
    // Fails when it is not empty, which is as it should be.
    let _ = std::fs::remove_dir(&settings.directory);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_that_is_there_does_the_loads_and_the_others_are_named() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("stores");
        for engine in [Engine::LevelDbUnverified, Engine::RocksDb, Engine::Varve] {
            let settings =
                Settings { directory: directory.clone(), engines: vec![engine], scale: Scale::one_in(20_000), seed: 1 };
            let mut said = Vec::new();
            let report = run(&settings, &mut |line| said.push(line.to_owned())).unwrap();
            if engine.missing().is_some() {
                let named = |line: &String| line.starts_with(&format!("{engine} skipped: "));
                assert!(report.notes.iter().all(named) && said.iter().all(named) && said.len() == 1, "{said:?}");
                assert!(report.rows.is_empty() && report.skipped.is_some());
            } else {
                assert!(report.skipped.is_none() && report.rows.len() == 23, "{}", report.to_text());
                assert!(
                    report.rows.iter().all(|row| row.ours.is_some_and(|value| value > 0.0)),
                    "{}",
                    report.to_text()
                );
            }
            assert!(!directory.exists(), "it leaves nothing");
        }
    }
}
