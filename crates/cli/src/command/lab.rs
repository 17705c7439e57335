//! `varve lab`

use crate::arguments::Global;
use crate::console::Console;
use crate::failure::{Failure, Status};
use std::path::PathBuf;
use varve_lab::experiment::{self, Scale, Settings};

/// Run the experiments that show what this store does, beside what the papers say
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab list                                   all experiments
  varve lab run media/presets                      one of them
  varve lab run 'media/*' --json --out results     a group; JSON, tables and plots into a directory
  varve lab run all --scale 1/64")]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    List(List),
    Run(Run),
}

/// All experiments, with one line each
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab list
  varve lab list --json | jq -r '.[].description'")]
struct List {}

/// Run experiments: a table with the paper's value beside ours
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab run media/presets
  varve lab run 'media/*' --out results            also JSON, text and SVG plots in results/
  varve lab run media/demerit --traces traces      experiments that compare with measured traces
  varve lab run all --scale 1/64 --json

--scale 1/N divides every size and every positioning time by N; rates stay. In virtual time the same
seed gives the same numbers on every machine.")]
struct Run {
    /// Experiments: a name, a group with a star, or all
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// How much smaller than full size [default: the experiment's own]
    #[arg(long, value_name = "1/N")]
    scale: Option<Scale>,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write JSON, text and plots into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory with measured traces and curves
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Verify every value read
    #[arg(long)]
    verify: bool,
}

impl Lab {
    pub(crate) fn run(&self, _global: &Global, console: &mut Console) -> Result<Status, Failure> {
        match &self.command {
            LabCommand::List(_) => {
                let list = if console.json { experiment::list_json() } else { experiment::list_text() };
                console.write(list.as_bytes())?;
                Ok(Status::Done)
            }
            LabCommand::Run(run) => run.run(console),
        }
    }
}

impl Run {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let chosen = experiment::select(&self.ids)?;
        let settings = Settings {
            scale: self.scale,
            seed: self.seed,
            traces: self.traces.clone(),
            verify: self.verify,
            progress: console.lab_progress(),
        };
        for (index, experiment) in chosen.iter().enumerate() {
            let report = experiment::run(experiment, &settings)?;
            if console.json {
                console.write(report.to_json().as_bytes())?;
            } else {
                if index > 0 {
                    console.line("")?;
                }
                console.write(report.to_text().as_bytes())?;
            }
            // What is done is shown, however long the next one takes.
            console.flush()?;
            if let Some(directory) = &self.out {
                for path in report.write(directory)? {
                    console.note(format!("wrote {}", path.display()));
                }
            }
        }
        Ok(Status::Done)
    }
}
