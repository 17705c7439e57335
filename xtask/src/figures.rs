//! `cargo xtask figures`: whether the tables of the documentation say what the experiments print.
//!
//! A table that quotes experiments has a comment in front of it that says which ([`table`]). The experiments are run at the
//! scales that are quoted, and every cell is compared with its rows at the digits it has.

mod table;

use crate::run::{self, cargo};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use table::{Binding, Cell, Number, Table};

/// What was asked for.
#[derive(Default)]
struct Asked {
    /// Cells are made what their rows say; otherwise a wrong one is refused.
    rewrites: bool,
    /// Where reports are already, instead of running the experiments.
    results: Option<PathBuf>,
    /// Beginnings of ids; those of all tables when there is none.
    of: Vec<String>,
}

/// What a report says of one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Row {
    ours: Option<f64>,
    paper: Option<f64>,
}

/// Rows of a report, by scheme and metric.
type Rows = BTreeMap<(String, String), Row>;

/// The reports that were asked for.
type Reports = BTreeMap<table::Experiment, Rows>;

/// Runs what the documentation quotes, and compares.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let asked = asked(arguments)?;
    let documents = documents(&run::root().join("docs"))?;
    let (mut quoted, mut unbound) = (BTreeSet::new(), Vec::new());
    for (path, text) in &documents {
        let tables = table::all(text).map_err(|reason| format!("{}: {reason}", path.display()))?;
        let free = tables.iter().filter(|table| table.binding.is_none()).count();
        if free > 0 {
            unbound.push(format!("{}: {free} of {} tables quote no experiment", path.display(), tables.len()));
        }
        for binding in tables.into_iter().filter_map(|table| table.binding) {
            quoted.extend(binding.experiments().map_err(|reason| format!("{}: {reason}", path.display()))?);
        }
    }
    let is_asked = |id: &str| asked.of.is_empty() || asked.of.iter().any(|start| id.starts_with(start.as_str()));
    let (wanted, left): (Vec<_>, Vec<_>) = quoted.into_iter().partition(|experiment| is_asked(&experiment.id));
    let directory = match &asked.results {
        Some(directory) => directory.clone(),
        None => measure(&wanted)?,
    };
    let mut reports = Reports::new();
    for experiment in &wanted {
        let path = directory.join(experiment.directory()).join(format!("{}.json", experiment.id.replace('/', "-")));
        reports.insert(experiment.clone(), rows(&path)?);
    }
    let (mut cells, mut wrong) = (0, Vec::new());
    for (path, text) in &documents {
        let compared = compare(text, &reports).map_err(|reason| format!("{}: {reason}", path.display()))?;
        cells += compared.cells;
        let said = compared.wrong.iter().map(|what| format!("{}: {what}", path.display()));
        wrong.extend(said);
        if asked.rewrites && compared.text != *text {
            std::fs::write(path, compared.text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    for line in unbound {
        println!("left out: {line}");
    }
    println!("left out: numbers in running text, and what docs/design quotes");
    if !left.is_empty() {
        let ids: Vec<String> = left.into_iter().map(|experiment| experiment.to_string()).collect();
        println!("left out: {}", ids.join(", "));
    }
    for line in &wrong {
        println!("{line}");
    }
    println!("figures: {cells} cells of {} experiments, {} not as printed", wanted.len(), wrong.len());
    match (wrong.is_empty(), asked.rewrites) {
        (true, _) => Ok(()),
        (false, true) => {
            println!("they are written anew; what the text around them says is yours to read again");
            Ok(())
        }
        (false, false) => {
            Err("cells that no run prints: cargo xtask figures --write, and read the text around them".to_owned())
        }
    }
}

fn asked(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--write" => asked.rewrites = true,
            "--results" => {
                let directory =
                    rest.next().ok_or("--results takes the directory of reports, as 'varve lab run --out' wrote it")?;
                asked.results = Some(PathBuf::from(directory));
            }
            option if option.starts_with('-') => {
                return Err(format!(
                    "cargo xtask figures takes --write, --results DIR and beginnings of ids, found '{option}'"
                ));
            }
            id => asked.of.push(id.to_owned()),
        }
    }
    Ok(asked)
}

/// The pages of the documentation, by path.
fn documents(directory: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            documents.push((path, text));
        }
    }
    documents.sort();
    Ok(documents)
}

/// Runs the experiments, those of one scale in one command, so that they share what they load.
fn measure(wanted: &[table::Experiment]) -> Result<PathBuf, String> {
    run::run("build", cargo().args(["build", "--release", "--package", "varve-cli"]))?;
    let directory = run::target().join("figures");
    let mut scales: BTreeMap<Option<&str>, Vec<&table::Experiment>> = BTreeMap::new();
    for experiment in wanted {
        scales.entry(experiment.scale.as_deref()).or_default().push(experiment);
    }
    for (scale, experiments) in scales {
        let mut command = Command::new(run::target().join("release/varve"));
        command.args(["lab", "run", "--quiet", "--out"]).arg(directory.join(experiments[0].directory()));
        command.args(experiments.iter().map(|experiment| &experiment.id));
        command.args(scale.iter().flat_map(|scale| ["--scale", scale]));
        command.stdout(std::process::Stdio::null());
        run::run(&format!("experiments at scale {}", scale.unwrap_or("of their own")), &mut command)?;
    }
    Ok(directory)
}

/// The rows of a report.
fn rows(path: &Path) -> Result<Rows, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{}: {error}; run the experiment with 'varve lab run --out'", path.display()))?;
    let report: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let rows = report["rows"].as_array().ok_or_else(|| format!("{}: no rows", path.display()))?;
    let row = |row: &serde_json::Value| {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        let found = Row { ours: row["ours"].as_f64(), paper: row["paper"].as_f64() };
        Some(((text("scheme")?, text("metric")?), found))
    };
    Ok(rows.iter().filter_map(row).collect())
}

/// What a page says beside what it should.
#[derive(Debug, Default, PartialEq)]
struct Compared {
    cells: usize,
    wrong: Vec<String>,
    /// The page with every cell as it should be.
    text: String,
}

fn compare(text: &str, reports: &Reports) -> Result<Compared, String> {
    let mut compared = Compared::default();
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for Table { binding, body } in table::all(text)? {
        let Some(binding) = binding else { continue };
        for (place, line) in body.enumerate() {
            let written = row_of(&binding, reports, place, line + 1, &lines[line], &mut compared);
            lines[line] = written.map_err(|reason| format!("line {}: {reason}", line + 1))?;
        }
    }
    compared.text = lines.join("\n");
    Ok(compared)
}

/// A row of a table with its cells as they should be; those of reports that were not asked for as they are.
fn row_of(
    binding: &Binding,
    reports: &Reports,
    place: usize,
    number: usize,
    line: &str,
    compared: &mut Compared,
) -> Result<String, String> {
    let cells = table::cells(line);
    let mut written = vec![cells[0].to_owned()];
    for (column, text) in cells[1..].iter().enumerate() {
        let bound = binding.of(place, column)?.filter(|_| !text.trim().is_empty()).unwrap_or_default();
        if bound.iter().any(|number| !reports.contains_key(&number.experiment)) {
            written.push((*text).to_owned());
            continue;
        }
        let values: Vec<f64> = bound.iter().map(|number| value_of(number, reports)).collect::<Result<_, _>>()?;
        let right = Cell { text, values: &values }.written()?;
        compared.cells += values.len();
        if right != *text {
            let what: Vec<String> = bound.iter().map(Number::to_string).collect();
            let (text, right) = (text.trim(), right.trim());
            compared.wrong.push(format!("line {number}: '{text}' is '{right}' ({})", what.join("; ")));
        }
        written.push(right);
    }
    Ok(format!("|{}|", written.join("|")))
}

/// What the report says of a number.
fn value_of(number: &Number, reports: &Reports) -> Result<f64, String> {
    let Number { experiment, scheme, metric, is_of_paper, factor } = number;
    let row = reports.get(experiment).and_then(|rows| rows.get(&(scheme.clone(), metric.clone())));
    let row = row.ok_or_else(|| format!("{experiment} has no row '{metric}' of '{scheme}'"))?;
    let (value, whose) = if *is_of_paper { (row.paper, "of the paper's") } else { (row.ours, "measured") };
    Ok(value.ok_or_else(|| format!("{experiment} says nothing {whose} in its row '{metric}' of '{scheme}'"))? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Title

<!-- figures: lab/one at 1/64
columns schemes: A | B
rows metrics: speed | - | low & high
-->

| | A | B |
|---|---|---|
| speed (op/s) | 1,234 | **17.5** |
| said | so | so |
| both | 1.0, 2 | 3.0, 4 % |

| free | table |
|---|---|
| 1 | 2 |
";

    /// A table of two experiments and what the paper says of one.
    const WORDS: &str = "\
<!-- figures: lab/one at 1/64
columns: paper :: {row} | {row}
rows: A :: speed | lab/two :: C :: share * 100
cell: {column}
-->

| | paper | ours |
|---|---|---|
| speed | 1,300 | 1,234 |
| share | | 51.5 % |
";

    fn reports(speed: f64) -> Reports {
        let experiment = table::Experiment { id: "lab/one".to_owned(), scale: Some("1/64".to_owned()) };
        let rows = [
            ("A", "speed", speed),
            ("B", "speed", 17.46),
            ("A", "low", 1.04),
            ("A", "high", 2.2),
            ("B", "low", 2.96),
            ("B", "high", 4.0),
        ];
        let row = |(scheme, metric, value): (&str, &str, f64)| {
            let paper = (metric == "speed").then_some(1_300.0);
            ((scheme.to_owned(), metric.to_owned()), Row { ours: Some(value), paper })
        };
        Reports::from([(experiment, rows.map(row).into())])
    }

    #[test]
    fn what_is_printed_passes_as_it_is_rounded() {
        let compared = compare(PAGE, &reports(1_233.6)).unwrap();
        assert_eq!((compared.cells, compared.wrong.len()), (6, 0), "{:?}", compared.wrong);
        assert_eq!(compared.text, PAGE);
    }

    #[test]
    fn a_stale_cell_is_told_and_written_anew() {
        let compared = compare(PAGE, &reports(1_240.0)).unwrap();
        assert_eq!(compared.wrong, ["line 10: '1,234' is '1,240' (lab/one at 1/64: A, speed)"]);
        assert_eq!(compared.text, PAGE.replace("1,234", "1,240"));
    }

    #[test]
    fn a_cell_is_left_until_all_of_its_reports_are_asked_for() {
        let mut reports = reports(1_234.0);
        assert_eq!(compare(WORDS, &reports).unwrap().cells, 2);
        let share = Row { ours: Some(0.5149), paper: None };
        let other = table::Experiment { id: "lab/two".to_owned(), scale: None };
        reports.insert(other, [(("C".to_owned(), "share".to_owned()), share)].into());
        let compared = compare(WORDS, &reports).unwrap();
        assert_eq!((compared.cells, compared.text.as_str()), (3, WORDS), "{:?}", compared.wrong);
        let invented = compare(&WORDS.replace("| share | |", "| share | 3 |"), &reports).unwrap_err();
        assert!(invented.contains("line 10: lab/two says nothing of the paper's"), "{invented}");
    }

    #[test]
    fn what_no_run_prints_is_refused() {
        let gone = compare(&PAGE.replace("speed | -", "speeds | -"), &reports(1.0)).unwrap_err();
        assert!(gone.contains("no row 'speeds' of 'A'"), "{gone}");
        let short = compare(&PAGE.replace("A | B\nrows", "A\nrows"), &reports(1.0)).unwrap_err();
        assert!(short.contains("line 8") && short.contains("names (3, 1)"), "{short}");
        assert!(asked(&["--what".to_owned()]).is_err() && asked(&["--results".to_owned()]).is_err());
    }
}
