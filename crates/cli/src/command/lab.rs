//! `varve lab`

use crate::arguments::Global;
use crate::console::Console;
use crate::failure::{Failure, Status};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::{Path, PathBuf};
use varve_lab::experiment::{self, Experiment, Scale, Settings};
use varve_lab::map::{DrawnMap, HybridMap, IdlerMap, ImrMap, SmrMap};
use varve_lab::replay::TraceFormat;
use varve_lab::replay::formats::FORMATS;
use varve_lab::report::{Align, Report, Table, format_number};

/// Run the experiments that show what this store does, beside what the papers say
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab list                                   all experiments
  varve lab list media/demerit                     what it does and what it needs
  varve lab run media/presets                      one of them
  varve lab run kvimr/fig5                         a figure with all its parts
  varve lab run 'media/*' --json --out results     a group; JSON, tables and plots into a directory
  varve lab run all --scale 1/64
  varve lab map imr --policy three-phase,compaction-aware    a film of what every track holds
  varve lab map smr                                          a film of what every band holds
  varve lab map hybrid                                       a film of what every zone of a drive and a disk holds
  varve lab map idler                                        a timeline of the cache of a host-aware disk")]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    List(List),
    Run(Run),
    Map(Map),
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
  varve lab run idler/traces --traces msr --format msr --skip-malformed
  varve lab run all --scale 1/64 --json

--scale 1/N divides sizes and counts by N; 'varve lab list ID' says what it shrinks in each. In virtual
time the same seed gives the same numbers on every machine.

An experiment that fails does not keep the others from running; the exit code is then that of the
first failure. One that misses something it needs (traces, a program) is reported as skipped, and
files and lines of traces that are not used are reported as left out: exit code 1 unless
--allow-skipped is given.")]
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
    /// Format of the traces that are replayed [default: detected by the lines of each file]
    #[arg(long, value_name = "FORMAT", requires = "traces", value_parser = format_parser())]
    format: Option<TraceFormat>,
    /// Leave malformed lines of traces out, and report how many there are
    #[arg(long, requires = "traces")]
    skip_malformed: bool,
    /// Verify every value read
    #[arg(long)]
    verify: bool,
    /// Exit code 0 even if experiments were skipped for want of something they need, or input was left out
    #[arg(long)]
    allow_skipped: bool,
}

/// Draw what is where on a medium, as a film over a load: a page of HTML and a picture
#[derive(Debug, clap::Args)]
struct Map {
    #[command(subcommand)]
    command: MapCommand,
}

#[derive(Debug, clap::Subcommand)]
enum MapCommand {
    Imr(MapImr),
    Smr(MapSmr),
    Hybrid(MapHybrid),
    Idler(MapIdler),
}

/// Tracks of an interlaced disk by tier, level and age, and where rewrites happen, during the load of KVIMR
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab map imr                                two policies side by side, at 1/256
  varve lab map imr --policy sequential --rewrite naive,merged --out sequential.html
  varve lab map imr --frames 200 --scale 1/64 --out large.html

The page needs no network and nothing installed: open it in a browser. It plays the films of all policies
in step, by pairs loaded; its last paragraph names the keys. Colour is the level of a table, faintness its
age, a square in a track a rewrite in the last interval. The picture beside it, of the same name with
.svg, shows the last frame. The same arguments give the same bytes.")]
struct MapImr {
    /// Allocation policies, each a picture of its own: sequential, three-phase, zigzag, region,
    /// compaction-aware, cost-aware
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "compaction-aware,cost-aware")]
    policy: Vec<String>,
    /// How tops are saved: naive, merged, or both; each policy is drawn with each
    #[arg(long, value_name = "REWRITE", value_delimiter = ',', default_value = "merged")]
    rewrite: Vec<String>,
    /// The page; the picture has the same name with .svg
    #[arg(long, value_name = "FILE.html", default_value = "map-imr.html")]
    out: PathBuf,
    /// Moments the load is seen at, after the first
    #[arg(long, value_name = "N", default_value_t = 100)]
    frames: u32,
    /// How much smaller than full size
    #[arg(long, value_name = "1/N", default_value = "1/256")]
    scale: Scale,
    /// Pairs at full scale [default: 75000000]
    #[arg(long, value_name = "N")]
    pairs: Option<u64>,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Bands of a shingled disk by level, age, overlap and what of them counts, during random puts of SMRDB
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab map smr                                the paper's tree and ours side by side, at 1/64
  varve lab map smr --scheme SMRDB-LOC,SMRDB-SOC --out paper.html
  varve lab map smr --frames 200 --scale 1/32 --out large.html

The page needs no network and nothing installed: open it in a browser. It plays the films of all schemes
in step, by pairs put; its last paragraph names the keys. Colour is the level of a table; how strong it is
says the table's age or, chosen beside the speed, how many other tables hold keys of its range; a band is
filled as far as what it holds counts. The picture beside it, of the same name with .svg, shows the last
frame both ways. The same arguments give the same bytes.")]
struct MapSmr {
    /// Schemes, each a picture of its own: SMRDB-LOC, SMRDB-SOC, ours
    #[arg(long, value_name = "SCHEME", value_delimiter = ',', default_value = "SMRDB-SOC,ours")]
    scheme: Vec<String>,
    /// The page; the picture has the same name with .svg
    #[arg(long, value_name = "FILE.html", default_value = "map-smr.html")]
    out: PathBuf,
    /// Moments the puts are seen at, after the first
    #[arg(long, value_name = "N", default_value_t = 100)]
    frames: u32,
    /// How much smaller than full size
    #[arg(long, value_name = "1/N", default_value = "1/64")]
    scale: Scale,
    /// Pairs at full scale [default: as many as are 11 GB]
    #[arg(long, value_name = "N")]
    pairs: Option<u64>,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Zones of a zoned drive and a shingled disk by level and age, logs, cached blocks, during the load of HHZS and reads
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab map hybrid                             HHZS and ours side by side, at 1/1024
  varve lab map hybrid --scheme B3,AUTO,HHZS --out paper.html
  varve lab map hybrid --frames 200 --scale 1/256 --out large.html

The page needs no network and nothing installed: open it in a browser. It plays the films of all schemes
in step, by operations: first the load, then gets, a quarter as many; its last paragraph names the keys.
Every cell is a zone; those of the drive are above, those of the disk below. Colour is the level of a table,
faintness its age; logs, cached blocks, zones that are given up and empty ones are in the legend. The
picture beside it, of the same name with .svg, shows the last frame. The same arguments give the same
bytes.")]
struct MapHybrid {
    /// Schemes, each a picture of its own: B1, B2, B3, B4, B3+M, AUTO, P, P+M, HHZS, Adaptive
    #[arg(long, value_name = "SCHEME", value_delimiter = ',', default_value = "HHZS,Adaptive")]
    scheme: Vec<String>,
    /// The page; the picture has the same name with .svg
    #[arg(long, value_name = "FILE.html", default_value = "map-hybrid.html")]
    out: PathBuf,
    /// Moments the load and the gets are seen at, after the first
    #[arg(long, value_name = "N", default_value_t = 100)]
    frames: u32,
    /// How much smaller than full size
    #[arg(long, value_name = "1/N", default_value = "1/1024")]
    scale: Scale,
    /// Pairs at full scale [default: as many as are 200 GiB]
    #[arg(long, value_name = "N")]
    pairs: Option<u64>,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Media cache, cleaning, requests held back and response times of a host-aware shingled disk over time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  varve lab map idler                              no control, Idler and ours below each other, at 1/16
  varve lab map idler --control at-ic,idler --threads 128 --out fixed.html
  varve lab map idler --buffer --scale 1/64 --out buffered.html

The page needs no network and nothing installed: open it in a browser and point at a moment for its numbers.
Requests are like those of proj_1 (synthetic, calibrated). The picture beside it, of the same name with .svg,
shows the same without numbers. The same arguments give the same bytes.")]
struct MapIdler {
    /// Controls, each a picture of its own: none, at-ic, idler, relocate
    #[arg(long, value_name = "CONTROL", value_delimiter = ',', default_value = "none,idler,relocate")]
    control: Vec<String>,
    /// The page; the picture has the same name with .svg
    #[arg(long, value_name = "FILE.html", default_value = "map-idler.html")]
    out: PathBuf,
    /// Threads that make the requests, each one at a time
    #[arg(long, value_name = "N", default_value_t = 16)]
    threads: usize,
    /// With a write buffer of 64 MB in full
    #[arg(long)]
    buffer: bool,
    /// Spans of time of the week that is replayed
    #[arg(long, value_name = "N", default_value_t = 400)]
    spans: u32,
    /// How much smaller than full size
    #[arg(long, value_name = "1/N", default_value = "1/16")]
    scale: Scale,
    /// Everything random follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Lab {
    pub(crate) fn run(&self, global: &Global, console: &mut Console) -> Result<Status, Failure> {
        // What an experiment measures is given by its name, scale and seed alone.
        global.without_options("lab")?;
        match &self.command {
            LabCommand::List(list) => list.run(console),
            LabCommand::Run(run) => run.run(console),
            LabCommand::Map(map) => map.run(console),
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
            console.line(format!("default scale {}", experiment.default_scale))?;
            let words: Vec<&str> = experiment.description.split_ascii_whitespace().collect();
            console.wrapped(&format!("  {}", words.join(" ")), 2)?;
        }
        Ok(Status::Done)
    }
}

/// Parses names of formats of traces, and lists them.
fn format_parser() -> impl TypedValueParser<Value = TraceFormat> {
    let names = PossibleValuesParser::new(FORMATS.map(|format| format.name()));
    names.try_map(|name| TraceFormat::find(&name).ok_or("there is no such format"))
}

impl Run {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let chosen = experiment::select(&self.ids)?;
        let asked = [("--format", self.format.is_some()), ("--skip-malformed", self.skip_malformed)];
        if let Some((option, _)) = asked.into_iter().find(|(_, is_given)| *is_given)
            && !chosen.iter().any(|experiment| experiment.replays_traces())
        {
            return Err(Failure::usage(format!("{option}: no chosen experiment replays traces; idler/traces does")));
        }
        let settings = Settings {
            scale: self.scale,
            seed: self.seed,
            traces: self.traces.clone(),
            trace_format: self.format,
            skips_malformed: self.skip_malformed,
            verify: self.verify,
            progress: console.lab_progress(),
            ..Settings::default()
        };
        // One that fails, or is interrupted, leaves nothing that could be taken for its results.
        if let Some(directory) = &self.out {
            chosen.iter().try_for_each(|experiment| Report::remove_written(experiment.id, directory))?;
        }
        let (mut skipped, mut failed, mut has_left_out) = (Vec::new(), Vec::new(), false);
        let (mut first_kind, mut only, mut written) = (None, None, Ok(()));
        let mut is_first = true;
        experiment::run_all(&chosen, &settings, |experiment, report| {
            if written.is_err() {
                return;
            }
            let report = match report {
                Ok(report) => report,
                Err(error) if chosen.len() == 1 => {
                    only = Some(error);
                    return;
                }
                Err(error) => {
                    settings.progress.end();
                    let failure = Failure::from(error);
                    console.warn(format!("{} failed: {failure}", experiment.id));
                    first_kind.get_or_insert(failure.kind());
                    failed.push(experiment.id);
                    return;
                }
            };
            has_left_out |= !report.left_out.is_empty();
            if report.skipped.is_some() {
                skipped.push(experiment.id);
            }
            let space = if console.json || std::mem::take(&mut is_first) { Ok(()) } else { console.line("") };
            written = space.and_then(|()| console.report(&report, self.out.as_deref()));
        });
        written?;
        if let Some(error) = only {
            return Err(error.into());
        }
        if !skipped.is_empty() && !self.allow_skipped {
            let listed = skipped.join(", ");
            console.warn(format!("skipped: {listed} (see what each needs); --allow-skipped makes the exit code 0"));
        }
        match first_kind {
            Some(kind) => Err(Failure::Experiments { failed: failed.join(", "), kind }),
            None if skipped.is_empty() && !has_left_out || self.allow_skipped => Ok(Status::Done),
            None => Ok(Status::Negative),
        }
    }
}

impl Map {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        match &self.command {
            MapCommand::Imr(imr) => imr.run(console),
            MapCommand::Smr(smr) => smr.run(console),
            MapCommand::Hybrid(hybrid) => hybrid.run(console),
            MapCommand::Idler(idler) => idler.run(console),
        }
    }
}

impl MapImr {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let map = ImrMap {
            policies: self.policy.clone(),
            rewrites: self.rewrite.clone(),
            scale: self.scale,
            seed: self.seed,
            pairs: self.pairs,
            frames: self.frames,
            progress: console.lab_progress(),
        };
        write_map(console, &self.out, ["policy", "pairs"], || Ok(map.draw()?))
    }
}

impl MapIdler {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let map = IdlerMap {
            controls: self.control.clone(),
            threads: self.threads,
            is_buffered: self.buffer,
            scale: self.scale,
            seed: self.seed,
            spans: self.spans,
            progress: console.lab_progress(),
        };
        write_map(console, &self.out, ["control", "requests"], || Ok(map.draw()?))
    }
}

impl MapSmr {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let map = SmrMap {
            schemes: self.scheme.clone(),
            scale: self.scale,
            seed: self.seed,
            pairs: self.pairs,
            frames: self.frames,
            progress: console.lab_progress(),
        };
        write_map(console, &self.out, ["scheme", "pairs"], || Ok(map.draw()?))
    }
}

impl MapHybrid {
    fn run(&self, console: &mut Console) -> Result<Status, Failure> {
        let map = HybridMap {
            schemes: self.scheme.clone(),
            scale: self.scale,
            seed: self.seed,
            pairs: self.pairs,
            frames: self.frames,
            progress: console.lab_progress(),
        };
        write_map(console, &self.out, ["scheme", "operations"], || Ok(map.draw()?))
    }
}

/// Draws a map into the file `page` and one of the same name with .svg, and says what was filmed: what the films differ in, and
/// what was done in them.
fn write_map(
    console: &mut Console,
    page: &Path,
    [what, operations]: [&str; 2],
    draw: impl FnOnce() -> Result<DrawnMap, Failure>,
) -> Result<Status, Failure> {
    let picture = page.with_extension("svg");
    if picture == page {
        return Err(Failure::usage("--out: the page is HTML; the picture beside it gets the name with .svg"));
    }
    let drawn = draw()?;
    for (path, contents) in [(page, &drawn.html), (&picture, &drawn.svg)] {
        std::fs::write(path, contents).map_err(|error| Failure::io(path.display().to_string(), error))?;
    }
    if console.json {
        let film = |film: &varve_lab::map::FilmSummary| {
            let counters: serde_json::Value =
                film.counters.iter().map(|(name, value)| (name.clone(), serde_json::Value::from(*value))).collect();
            serde_json::json!({
                "name": film.name, operations: film.operations, "nanos": film.nanos, "counters": counters,
            })
        };
        console.json(&serde_json::json!({
            "page": page, "picture": picture, "films": drawn.summaries.iter().map(film).collect::<Vec<_>>(),
        }))?;
        return Ok(Status::Done);
    }
    let counted = drawn.summaries.first().map(|film| film.counters.as_slice()).unwrap_or_default();
    let mut columns = vec![(what.to_owned(), Align::Left), (format!("{operations}/s"), Align::Right)];
    columns.extend(counted.iter().map(|(name, _)| (name.clone(), Align::Right)));
    let mut table = Table::new(columns);
    for film in &drawn.summaries {
        let rate = film.operations as f64 / (film.nanos.max(1) as f64 / 1e9);
        let mut row = vec![film.name.clone(), format_number(rate)];
        row.extend(film.counters.iter().map(|(_, value)| format_number(*value as f64)));
        table.row(row);
    }
    console.write(table.to_text().as_bytes())?;
    for path in [page, &picture] {
        console.note(format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}
