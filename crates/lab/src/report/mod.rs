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
    /// Why it was not run; absent when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
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
            skipped: None,
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
        let mut text = format!("{}: {}\nscale {}, seed {}\n", self.id, self.title, self.scale, self.seed);
        for (name, value) in &self.conditions {
            let _ = writeln!(text, "  {name}: {value}");
        }
        if let Some(reason) = &self.skipped {
            let _ = writeln!(text, "skipped: {reason}");
        }
        if !self.phases.is_empty() {
            text.push('\n');
            text.push_str(&phase_table(&self.phases).to_text());
            if let Some(table) = virtual_time_table(&self.phases) {
                text.push('\n');
                text.push_str(&table.to_text());
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
            text.push_str(&table::of_rows(&rows).to_text());
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
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
    /// becoming hyphens. Returns what it wrote.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, directory: &Path) -> Result<Vec<PathBuf>, LabError> {
        let stem: String =
            self.id.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
        let mut written = Vec::new();
        let mut write = |name: String, contents: &str| {
            let path = directory.join(name);
            host::write_file(&path, contents.as_bytes())?;
            written.push(path);
            Ok::<(), LabError>(())
        };
        write(format!("{stem}.json"), &self.to_json())?;
        write(format!("{stem}.txt"), &self.to_text())?;
        for plot in &self.plots {
            write(format!("{stem}-{}.svg", plot.name), &plot.to_svg())?;
        }
        Ok(written)
    }
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
