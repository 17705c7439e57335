//! `varve lab`

use crate::arguments::Global;
use crate::console::Console;
use crate::failure::{Failure, Status};
use std::path::PathBuf;
use varve_lab::experiment::{self, Experiment, Scale, Settings};

/// Run the experiments that show what this store does, beside what the papers say
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab list                                   all experiments
  varve lab list media/demerit                     what it does and what it needs
  varve lab run media/presets                      one of them
  varve lab run kvimr/fig5                         a figure with all its parts
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
  varve lab list ycsb/disk                         what it does, what it needs, what scale shrinks
  varve lab list --json | jq -r '.[].description'")]
struct List {
    /// Describe these: a name, a group with a star, or all
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

/// Run experiments: a table with the paper's value beside ours
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab run media/presets
  varve lab run 'media/*' --out results            also JSON, text and SVG plots in results/
  varve lab run media/demerit --traces traces      experiments that compare with measured traces
  varve lab run all --scale 1/64 --json

--scale 1/N divides sizes and counts by N; 'varve lab list ID' says what it shrinks in each. In virtual
time the same seed gives the same numbers on every machine.

An experiment that fails does not keep the others from running; the exit code is then that of the
first failure. One that misses something it needs (traces, a program) is skipped, which is told, and
ends with exit code 1 unless --allow-skipped is given.")]
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
    /// Exit code 0 even if experiments were skipped for want of something they need
    #[arg(long)]
    allow_skipped: bool,
}

impl Lab {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        // What an experiment measures is given by its name, scale and seed alone.
        global.without_options("lab")?;
        match &self.command {
            LabCommand::List(list) => list.run(console),
            LabCommand::Run(run) => run.run(console),
        }
    }
}

impl List {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        if self.ids.is_empty() {
            let all = if console.json { experiment::list_json() } else { experiment::list_text() };
            console.write(all.as_bytes())?;
            return Ok(Status::Done);
        }
        let chosen = experiment::select(&self.ids)?;
        if console.json {
            let of = |experiment: &&Experiment| {
                serde_json::json!({
                    "id": experiment.id,
                    "title": experiment.title,
                    "description": experiment.description,
                    "default_scale": experiment.default_scale.to_string(),
                })
            };
            console.json(&chosen.iter().map(of).collect())?;
            return Ok(Status::Done);
        }
        for (index, experiment) in chosen.iter().enumerate() {
            if index > 0 {
                console.line("")?;
            }
            console.line(format!("{}: {}", experiment.id, experiment.title))?;
            console.line(format!("scale {} unless told otherwise", experiment.default_scale))?;
            console.line(indented(experiment.description))?;
        }
        Ok(Status::Done)
    }
}

/// `text` in lines of at most 98 characters, two of them spaces at the beginning.
fn indented(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= 98 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
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
            ..Settings::default()
        };
        let (mut skipped, mut failed) = (Vec::new(), Vec::new());
        let mut first_kind = None;
        for (index, experiment) in chosen.iter().enumerate() {
            if !console.json && index > 0 {
                console.line("")?;
            }
            let report = match experiment::run(experiment, &settings) {
                Ok(report) => report,
                Err(error) if chosen.len() == 1 => return Err(error.into()),
                Err(error) => {
                    settings.progress.end();
                    let failure = Failure::from(error);
                    console.warn(format!("{} failed: {failure}", experiment.id));
                    first_kind.get_or_insert(failure.kind());
                    failed.push(experiment.id);
                    continue;
                }
            };
            if report.skipped.is_some() {
                skipped.push(experiment.id);
            }
            console.report(&report, self.out.as_deref())?;
        }
        if !skipped.is_empty() && !self.allow_skipped {
            let listed = skipped.join(", ");
            console.warn(format!("skipped: {listed} (see what each needs); --allow-skipped makes the exit code 0"));
        }
        match first_kind {
            Some(kind) => Err(Failure::Experiments { failed: failed.join(", "), kind }),
            None if skipped.is_empty() || self.allow_skipped => Ok(Status::Done),
            None => Ok(Status::Negative),
        }
    }
}
