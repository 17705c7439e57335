//! `peers/db_bench`: Varve beside RocksDB, LevelDB, fjall and LMDB.

use super::{Experiment, Run, Scale};
use crate::error::LabError;
use crate::host;
use crate::report::Report;
use std::path::PathBuf;

/// Keys and values at full scale, to each value size.
const DATA_BYTES: u64 = 1 << 30;

/// Environment variable that names the comparing program.
const VARIABLE: &str = "VARVE_PEERS";

/// Where `cargo peers` puts it, from the root of the repository.
const BUILT: &str = "peers/target/release/varve-peers";

/// Where it is found when everything is built into one place: beside this program.
const BESIDE: &str = "varve-peers";

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "peers/db_bench",
    title: "Varve beside RocksDB, LevelDB, fjall and LMDB on this machine's file system",
    description: "Runs the db_bench set on each store with the same budget of memory and threads, one process a run, \
                  five repetitions, disturbed runs discarded. Needs the program `varve-peers`, which is built \
                  separately because RocksDB takes a C++ toolchain and half an hour: `cargo peers --help`, in the \
                  repository, builds it. It is looked for where VARVE_PEERS points, in peers/target/release below \
                  the current directory, and beside this program. Scale divides the data.",
    default_scale: Scale::FULL,
    run,
};

fn run(run: &Run<'_>) -> Result<Report, LabError> {
    let places = match host::variable(VARIABLE) {
        Some(named) => vec![named],
        None => [Some(PathBuf::from(BUILT)), host::beside_this_program(BESIDE)].into_iter().flatten().collect(),
    };
    let Some(program) = places.iter().find(|place| host::is_file(place)) else {
        let mut report = run.report();
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        report.skipped = Some(format!(
            "the program varve-peers is not there (looked for {}); build it by `cargo peers --help` in the repository, \
             which takes a C++ compiler, libclang and half an hour, and run this there, or name it in {VARIABLE}",
            looked.join(" and ")
        ));
        return Ok(report);
    };
    let mut arguments = vec!["bench".to_owned(), "--json".to_owned()];
    arguments.extend(["--data".to_owned(), run.scale.of(DATA_BYTES).to_string()]);
    arguments.extend(["--seed".to_owned(), run.settings.seed.to_string()]);
    if run.settings.verify {
        arguments.push("--verify".to_owned());
    }
    run.settings.progress.begin("comparing stores", None);
    let printed = host::run_program(program, &arguments)?;
    run.settings.progress.end();
    let mut report = Report::from_json(&String::from_utf8_lossy(&printed)).map_err(|error| LabError::Program {
        program: program.display().to_string(),
        reason: format!("what it printed is no report ({error})"),
    })?;
    report.scale = run.scale.to_string();
    Ok(report)
}
