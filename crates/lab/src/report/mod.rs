//! Reports: tables for people, JSON for programs, plots for both.

mod number;
mod plot;
mod summary;
mod table;

pub use number::{format_bytes, format_nanos, format_number};
pub(crate) use plot::escape;
pub use plot::{Axis, Bars, Figure, Lines, Plot};
pub use summary::{phase_rows, phase_table, virtual_time_table};
pub use table::{Align, Table};

use crate::error::LabError;
use crate::host;
use crate::runner::PhaseResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Version of the JSON. Grows when a field changes its meaning or goes; new fields do not count.
pub const SCHEMA: u32 = 1;

/// One number of an experiment, beside the paper's where there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was measured on: a store, a device, a configuration.
    pub scheme: String,
    /// What was measured.
    pub metric: String,
    /// Its unit, `1` for ratios and counts.
    pub unit: String,
    /// What the paper, the data sheet or the trace says; null when nothing in text does.
    pub paper: Option<f64>,
    /// What we measured; null when it could not be measured, and then `note` says why.
    pub ours: Option<f64>,
    /// Spread over repetitions, when there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Anything a reader of the number has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// How far repetitions lay apart. `ours` of the row is their median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Smallest.
    pub low: f64,
    /// Largest.
    pub high: f64,
    /// Median of the absolute deviations from the median.
    pub median_deviation: f64,
    /// How many.
    pub repetitions: u32,
}

impl Row {
    /// A measured number. One that is not finite becomes null with a note.
    pub fn new(scheme: impl Into<String>, metric: impl Into<String>, unit: impl Into<String>, ours: f64) -> Row {
        Row {
            scheme: scheme.into(),
            metric: metric.into(),
            unit: unit.into(),
            paper: None,
            ours: ours.is_finite().then_some(ours),
            spread: None,
            note: (!ours.is_finite()).then(|| "not a finite number".to_owned()),
        }
    }

    /// The median of repeated measurements and their spread; null when there are none.
    pub fn of_repetitions(
        scheme: impl Into<String>,
        metric: impl Into<String>,
        unit: impl Into<String>,
        measured: &[f64],
    ) -> Row {
        let Some(center) = median(measured) else {
            let row = Row::new(scheme, metric, unit, f64::NAN);
            return Row { note: Some("no repetition succeeded".to_owned()), ..row };
        };
        let deviations: Vec<f64> = measured.iter().map(|value| (value - center).abs()).collect();
        let spread = Spread {
            low: measured.iter().copied().fold(f64::INFINITY, f64::min),
            high: measured.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            median_deviation: median(&deviations).unwrap_or(0.0),
            repetitions: measured.len() as u32,
        };
        Row { spread: Some(spread), ..Row::new(scheme, metric, unit, center) }
    }

    /// The same row beside the paper's value.
    pub fn with_paper(self, paper: f64) -> Row {
        Row { paper: Some(paper), ..self }
    }

    /// The same row with a note.
    pub fn with_note(self, note: impl Into<String>) -> Row {
        Row { note: Some(note.into()), ..self }
    }
}

/// Middle of the numbers, the mean of the two middle ones when they are even in number.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| number.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// What an experiment or a benchmark found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this structure, [`SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub id: String,
    /// One line for people.
    pub title: String,
    /// Scale it ran at, `1` or `1/N`.
    pub scale: String,
    /// Seed everything random followed from.
    pub seed: u64,
    /// Sizes, options, media, machine: what has to be the same for the numbers to be.
    pub conditions: BTreeMap<String, String>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// Everything measured in each phase, when the experiment ran a store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseResult>,
    /// What a reader has to know besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Input that was not used, and why: files, lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Why it was not run; absent when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Names of the plots' files beside the JSON, when it was written to a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plot_files: Vec<String>,
    /// Plots, written as SVG files beside the JSON.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

impl Report {
    /// An empty report.
    pub fn new(id: impl Into<String>, title: impl Into<String>, scale: impl ToString, seed: u64) -> Report {
        Report {
            schema: SCHEMA,
            id: id.into(),
            title: title.into(),
            scale: scale.to_string(),
            seed,
            conditions: BTreeMap::new(),
            rows: Vec::new(),
            phases: Vec::new(),
            notes: Vec::new(),
            left_out: Vec::new(),
            skipped: None,
            plot_files: Vec::new(),
            plots: Vec::new(),
        }
    }

    /// States a condition.
    pub fn condition(&mut self, name: &str, value: impl ToString) {
        self.conditions.insert(name.to_owned(), value.to_string());
    }

    /// Adds a phase, its usual rows under `scheme`, and nothing else.
    pub fn add_phase(&mut self, scheme: &str, phase: PhaseResult) {
        self.rows.extend(phase_rows(scheme, &phase));
        self.phases.push(phase);
    }

    /// The report as people read it: conditions, tables, notes. Ends with a line break.
    pub fn to_text(&self) -> String {
        self.text(Table::to_text)
    }

    /// [`Report::to_text`] with tables that fit in lines of `width` characters, where that is possible.
    pub fn to_text_within(&self, width: usize) -> String {
        self.text(|table| table.to_text_within(width))
    }

    fn text(&self, shown: impl Fn(&Table) -> String) -> String {
        let mut text = format!("{}: {}\nscale {}, seed {}\n", self.id, self.title, self.scale, self.seed);
        for (name, value) in &self.conditions {
            let _ = writeln!(text, "  {name}: {value}");
        }
        if let Some(reason) = &self.skipped {
            let _ = writeln!(text, "skipped: {reason}");
        }
        if !self.phases.is_empty() {
            text.push('\n');
            text.push_str(&shown(&phase_table(&self.phases)));
            if let Some(table) = virtual_time_table(&self.phases) {
                text.push('\n');
                text.push_str(&shown(&table));
            }
        }
        // Rows that only repeat what the phases' table says are left to the JSON.
        let rows: Vec<&Row> = if self.phases.is_empty() {
            self.rows.iter().collect()
        } else {
            let repeated: Vec<Row> = self.phases.iter().flat_map(|phase| phase_rows("", phase)).collect();
            let is_repeated =
                |row: &&Row| repeated.iter().any(|other| other.metric == row.metric && other.ours == row.ours);
            self.rows.iter().filter(|row| row.paper.is_some() || !is_repeated(row)).collect()
        };
        if !rows.is_empty() {
            text.push('\n');
            text.push_str(&shown(&table::of_rows(&rows)));
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        for reason in &self.left_out {
            let _ = writeln!(text, "left out: {reason}");
        }
        text
    }

    /// The report as JSON, one object, indented, ending with a line break. Field names and order are
    /// stable.
    pub fn to_json(&self) -> String {
        // Maps have string keys and numbers are finite or null, so this cannot fail.
        let mut json = serde_json::to_string_pretty(self).unwrap_or_default();
        json.push('\n');
        json
    }

    /// Reads what [`Report::to_json`] wrote.
    ///
    /// # Errors
    /// Not JSON, not a report, or of a newer schema.
    pub fn from_json(json: &str) -> Result<Report, LabError> {
        let report: Report =
            serde_json::from_str(json).map_err(|error| LabError::invalid("report", error.to_string()))?;
        if report.schema > SCHEMA {
            return Err(LabError::invalid(
                "report",
                format!("schema {} is newer than {SCHEMA}; update this program", report.schema),
            ));
        }
        Ok(report)
    }

    /// Writes `ID.json`, `ID.txt` and the plots `ID-NAME.svg` into `directory`, slashes of the id
    /// becoming hyphens. What an earlier run of the same id wrote there is removed first. Returns what it wrote.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, LabError> {
        Report::remove_written(&self.id, directory)?;
        let stem = stem(&self.id);
        let mut written = Vec::new();
        let mut write = |name: String, contents: &str| {
            let path = directory.join(name);
            host::write_file(&path, contents.as_bytes())?;
            written.push(path);
            Ok::<(), LabError>(())
        };
        let plots: Vec<Plot> = self.plots.iter().cloned().chain(self.paper_plots()).collect();
        let names = plots.iter().map(|plot| format!("{stem}-{}.svg", plot.name)).collect();
        // First what names the others, so that whoever is interrupted leaves nothing a later run would not find.
        write(format!("{stem}.json"), &Report { plot_files: names, ..self.clone() }.to_json())?;
        write(format!("{stem}.txt"), &self.to_text())?;
        for plot in &plots {
            write(format!("{stem}-{}.svg", plot.name), &plot.to_svg())?;
        }
        Ok(written)
    }

    /// Removes what [`Report::write`] wrote of `id` into `directory` earlier, so that nothing of an older run is taken for
    /// one of this. Files it did not write are left alone, whatever their names.
    ///
    /// # Errors
    /// A file that cannot be read or removed.
    pub fn remove_written(id: &str, directory: &Path) -> Result<(), LabError> {
        let stem = stem(id);
        let json = directory.join(format!("{stem}.json"));
        let Some(contents) = host::read_file(&json)? else { return Ok(()) };
        // What is no report was not written by one.
        let Ok(earlier) = serde_json::from_slice::<Report>(&contents) else { return Ok(()) };
        let is_ours = |name: &&String| name.starts_with(&format!("{stem}-")) && !name.contains('/');
        for name in earlier.plot_files.iter().filter(is_ours) {
            host::remove_file(&directory.join(name))?;
        }
        host::remove_file(&directory.join(format!("{stem}.txt")))?;
        host::remove_file(&json)
    }

    /// What was measured beside what the paper says, as bars: a plot for each unit, and for each so many rows of it.
    fn paper_plots(&self) -> Vec<Plot> {
        let mut by_unit: Vec<(&str, Vec<(&Row, f64, f64)>)> = Vec::new();
        for row in &self.rows {
            let (Some(paper), Some(ours)) = (row.paper, row.ours) else { continue };
            match by_unit.iter_mut().find(|(unit, _)| *unit == row.unit) {
                Some((_, rows)) => rows.push((row, paper, ours)),
                None => by_unit.push((&row.unit, vec![(row, paper, ours)])),
            }
        }
        let medium = self.plots.first().map(|plot| plot.medium.clone()).or_else(|| {
            self.conditions.iter().find(|(name, _)| name.starts_with("medium")).map(|(_, medium)| medium.clone())
        });
        let pieces = by_unit.iter().flat_map(|(unit, rows)| rows.chunks(PAPER_ROWS).map(move |piece| (*unit, piece)));
        pieces
            .enumerate()
            .map(|(number, (unit, rows))| Plot {
                name: if number == 0 { "paper".to_owned() } else { format!("paper-{}", number + 1) },
                title: format!("{}: the paper, and ours", self.id),
                medium: medium.clone().unwrap_or_else(|| "the media the report names".to_owned()),
                y: Axis::linear(if unit == "1" { "ratio or number".to_owned() } else { unit.to_owned() }),
                figure: Figure::Bars(Bars {
                    groups: rows.iter().map(|(row, ..)| format!("{}: {}", row.scheme, row.metric)).collect(),
                    series: vec![
                        ("paper".to_owned(), rows.iter().map(|&(_, paper, _)| Some(paper)).collect()),
                        ("ours".to_owned(), rows.iter().map(|&(.., ours)| Some(ours)).collect()),
                    ],
                }),
            })
            .collect()
    }
}

/// Rows that one plot shows beside the paper's: as many as have names that can be read.
const PAPER_ROWS: usize = 8;

/// What files of an experiment are called.
fn stem(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("media/presets", "Presets", "1", 7);
        report.condition("medium", "disk");
        report.rows.push(Row::new("ST500DM002", "sequential read", "MB/s", 124.9).with_paper(125.0));
        report.rows.push(Row::of_repetitions("x", "time", "us", &[3.0, 1.0, 2.0]).with_note("three"));
        report.rows.push(Row::new("x", "nothing", "1", f64::NAN));
        report
    }

    #[test]
    fn json_has_the_promised_fields_and_reads_back() {
        let json = report().to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["id"], "media/presets");
        assert_eq!(value["scale"], "1");
        assert_eq!(value["seed"], 7);
        let row = &value["rows"][0];
        assert_eq!(row["scheme"], "ST500DM002");
        assert_eq!(row["metric"], "sequential read");
        assert_eq!(row["unit"], "MB/s");
        assert_eq!(row["paper"], 125.0);
        assert_eq!(row["ours"], 124.9);
        assert!(value["rows"][1]["paper"].is_null() && value["rows"][2]["ours"].is_null());
        assert_eq!(Report::from_json(&json).unwrap(), report());
        assert!(Report::from_json(&json.replace("\"schema\": 1", "\"schema\": 99")).is_err());
        assert!(Report::from_json("{}").is_err());
    }

    #[test]
    fn text_shows_paper_beside_ours_and_spread() {
        let text = report().to_text();
        for wanted in ["media/presets: Presets", "scale 1, seed 7", "medium: disk", "125", "124.9", "1 .. 3", "three"] {
            assert!(text.contains(wanted), "'{wanted}' is not in\n{text}");
        }
    }

    #[test]
    fn a_directory_used_twice_holds_nothing_stale() {
        let directory = tempfile::tempdir().unwrap();
        let files = || -> Vec<String> {
            let mut names: Vec<String> = std::fs::read_dir(directory.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let plot = |name: &str| Plot {
            name: name.to_owned(),
            title: "t".to_owned(),
            medium: "m".to_owned(),
            y: Axis::linear("n"),
            figure: Figure::Bars(Bars::default()),
        };
        host::write_file(&directory.path().join("media-presets-mine.svg"), b"a person's").unwrap();
        let mut first = report();
        first.plots = vec![plot("a"), plot("b")];
        first.write(directory.path()).unwrap();
        let all = ["media-presets-a.svg", "media-presets-b.svg", "media-presets-mine.svg", "media-presets-paper.svg"];
        assert_eq!(files()[..4], all);
        let mut second = report();
        second.plots = vec![plot("b")];
        second.rows.clear();
        second.write(directory.path()).unwrap();
        let left = ["media-presets-b.svg", "media-presets-mine.svg", "media-presets.json", "media-presets.txt"];
        assert_eq!(files(), left);
        Report::remove_written("media/presets", directory.path()).unwrap();
        assert_eq!(files(), ["media-presets-mine.svg"]);
    }

    #[test]
    fn the_papers_values_are_drawn_beside_ours() {
        let plots = report().paper_plots();
        let [plot] = plots.as_slice() else { panic!("{plots:?}") };
        assert_eq!((plot.medium.as_str(), plot.y.label.as_str()), ("disk", "MB/s"));
        let Figure::Bars(bars) = &plot.figure else { panic!("bars") };
        assert_eq!(bars.groups, ["ST500DM002: sequential read"]);
        assert_eq!(bars.series[0], ("paper".to_owned(), vec![Some(125.0)]));
        assert_eq!(bars.series[1], ("ours".to_owned(), vec![Some(124.9)]));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[4.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        let row = Row::of_repetitions("s", "m", "1", &[1.0, 2.0, 9.0]);
        let spread = row.spread.unwrap();
        assert_eq!((spread.low, spread.high, spread.median_deviation, spread.repetitions), (1.0, 9.0, 1.0, 3));
        assert!(Row::of_repetitions("s", "m", "1", &[]).ours.is_none());
    }
}
