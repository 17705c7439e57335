//! Tables of a page, and the comments that say which experiment they quote:
//!
//! ```text
//! <!-- figures: kvimr/usage at 1/256
//! columns schemes: CMR | KVIMR-M | -
//! rows metrics: throughput | - | low & high | share * 100
//! -->
//! ```
//!
//! Columns and rows follow each other as in the table, without the column of labels and the two lines of the head; one of them
//! are schemes and the other metrics. `-` is a row or column that quotes nothing, and so does an empty cell; of `low & high` a
//! cell has two numbers; `* 100` is what a value is multiplied by, as for percent. Without `at` the scale is the experiment's own.
//!
//! Where a cell is not a scheme and a metric, `cell` says what it is made of, with the names of its row and column for `{row}`
//! and `{column}`; a name may have the other one in it:
//!
//! ```text
//! <!-- figures: lab/one
//! columns: paper :: {row} | {row} | at 1/4 :: {row}
//! rows: A :: speed
//! | lab/two :: B :: least & lab/two :: B :: most
//! cell: {column}
//! -->
//! ```
//!
//! A number is `scheme :: metric`. What differs stands in front of it: another experiment, `at` another scale of the same, `paper`
//! for what the paper says of the row. A line that begins with `|` goes on with the names of the one before.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// An experiment and its scale, unless it is its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Experiment {
    pub(super) id: String,
    pub(super) scale: Option<String>,
}

impl Experiment {
    /// `id` or `id at scale`.
    fn named(text: &str) -> Experiment {
        let (id, scale) = text.split_once(" at ").map_or((text, None), |(id, scale)| (id, Some(scale)));
        Experiment { id: id.trim().to_owned(), scale: scale.map(|scale| scale.trim().to_owned()) }
    }

    /// Where reports of its scale are, below all of them.
    pub(super) fn directory(&self) -> String {
        self.scale.as_ref().map_or(String::new(), |scale| scale.replace('/', "-"))
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.scale {
            Some(scale) => write!(formatter, "{} at {scale}", self.id),
            None => formatter.write_str(&self.id),
        }
    }
}

/// What a number of a cell is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Number {
    pub(super) experiment: Experiment,
    pub(super) scheme: String,
    pub(super) metric: String,
    /// Not what was measured, but what the paper says.
    pub(super) is_of_paper: bool,
    pub(super) factor: f64,
}

impl Number {
    fn parsed(text: &str, usual: &Experiment) -> Result<Number, String> {
        let (names, factor) = text.rsplit_once(" * ").map_or((text, Ok(1.0)), |(names, by)| (names, by.trim().parse()));
        let factor = factor.map_err(|_| format!("'{text}' is multiplied by no number"))?;
        let parts: Vec<&str> = names.split("::").map(str::trim).collect();
        let [before @ .., scheme, metric] = &parts[..] else {
            return Err(format!("'{text}' is no 'scheme :: metric'"));
        };
        let (mut experiment, mut is_of_paper) = (usual.clone(), false);
        for part in before {
            match part.strip_prefix("at ") {
                Some(scale) => experiment.scale = Some(scale.trim().to_owned()),
                None if *part == "paper" => is_of_paper = true,
                None => experiment = Experiment::named(part),
            }
        }
        Ok(Number { experiment, scheme: (*scheme).to_owned(), metric: (*metric).to_owned(), is_of_paper, factor })
    }
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paper = if self.is_of_paper { "the paper's of " } else { "" };
        write!(formatter, "{}: {paper}{}, {}", self.experiment, self.scheme, self.metric)
    }
}

/// What a table quotes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binding {
    /// Of numbers that name no other.
    experiment: Experiment,
    columns: Vec<String>,
    rows: Vec<String>,
    /// Numbers of a cell, with holes for the names of its row and its column.
    cell: String,
}

/// A table of a page: what it quotes, if anything, and the lines of its body, from 0.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) binding: Option<Binding>,
    pub(super) body: Range<usize>,
}

impl Binding {
    /// The numbers of a cell; `None` where nothing is quoted.
    pub(super) fn of(&self, row: usize, column: usize) -> Result<Option<Vec<Number>>, String> {
        let named = |of: &[String], place: usize, what: &str| {
            of.get(place).cloned().ok_or_else(|| format!("the table has more {what} than its comment names"))
        };
        let (row, column) = (named(&self.rows, row, "rows")?, named(&self.columns, column, "columns")?);
        if row == "-" || column == "-" {
            return Ok(None);
        }
        let mut numbers: Vec<String> = self.cell.split(" & ").map(str::to_owned).collect();
        // Twice, as a name may have the other one in it.
        for (hole, name) in [("{row}", &row), ("{column}", &column)].into_iter().cycle().take(4) {
            let filled = |number: String| -> Vec<String> {
                match number.contains(hole) {
                    true => name.split(" & ").map(|name| number.replace(hole, name.trim())).collect(),
                    false => vec![number],
                }
            };
            numbers = numbers.into_iter().flat_map(filled).collect();
        }
        if let Some(open) = numbers.iter().find(|number| number.contains('{')) {
            return Err(format!("'{open}' names what is no {{row}} and no {{column}}, or itself"));
        }
        numbers.iter().map(|number| Number::parsed(number, &self.experiment)).collect::<Result<_, _>>().map(Some)
    }

    /// The experiments of all cells.
    pub(super) fn experiments(&self) -> Result<BTreeSet<Experiment>, String> {
        let mut experiments = BTreeSet::new();
        for (row, column) in
            (0..self.rows.len()).flat_map(|row| (0..self.columns.len()).map(move |column| (row, column)))
        {
            experiments.extend(self.of(row, column)?.into_iter().flatten().map(|number| number.experiment));
        }
        Ok(experiments)
    }
}

/// The tables of a page, in order.
pub(super) fn all(text: &str) -> Result<Vec<Table>, String> {
    let lines: Vec<&str> = text.split('\n').collect();
    let (mut tables, mut binding, mut number) = (Vec::new(), None, 0);
    let mut is_code = false;
    while number < lines.len() {
        let line = lines[number];
        if is_code || line.starts_with("```") {
            is_code ^= line.starts_with("```");
            number += 1;
        } else if let Some(rest) = line.strip_prefix("<!-- figures:") {
            let behind = lines[number..].iter().position(|line| line.trim_end().ends_with("-->"));
            let end = number + behind.ok_or_else(|| format!("line {}: a comment without an end", number + 1))?;
            let body = lines[number + 1..=end].iter().map(|line| line.trim_end_matches("-->"));
            binding = Some(parsed(rest, body).map_err(|reason| format!("line {}: {reason}", number + 1))?);
            number = end + 1;
        } else if line.starts_with('|') {
            let length = lines[number..].iter().take_while(|line| line.starts_with('|')).count();
            // The head and the line below it.
            let body = (number + 2).min(number + length)..number + length;
            if let Some(Binding { rows, columns, .. }) = &binding {
                let (named, found) = ((rows.len(), columns.len()), (body.len(), cells(line).len() - 1));
                if named != found {
                    let at = number + 1;
                    return Err(format!(
                        "line {at}: rows and columns of the table are {found:?}, its comment names {named:?}"
                    ));
                }
            }
            tables.push(Table { binding: binding.take(), body });
            number += length;
        } else {
            if !line.is_empty() && binding.is_some() {
                return Err(format!("line {}: a comment of figures is followed by a table", number + 1));
            }
            number += 1;
        }
    }
    Ok(tables)
}

fn parsed<'a>(first: &str, lines: impl Iterator<Item = &'a str>) -> Result<Binding, String> {
    let experiment = Experiment::named(first.trim());
    let mut binding = Binding { experiment, columns: Vec::new(), rows: Vec::new(), cell: String::new() };
    let mut whole: Vec<String> = Vec::new();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        match whole.last_mut().filter(|_| line.starts_with('|')) {
            Some(before) => before.push_str(line),
            None => whole.push(line.to_owned()),
        }
    }
    for line in &whole {
        let (key, value) = line.split_once(':').ok_or_else(|| format!("'{line}' is no 'what: names'"))?;
        let cell = match key.trim() {
            "columns schemes" | "rows metrics" => "{column} :: {row}",
            "columns metrics" | "rows schemes" => "{row} :: {column}",
            "columns" | "rows" => "",
            "cell" => value.trim(),
            other => {
                return Err(format!(
                    "'{other}' is none of columns, rows, cell, columns schemes, columns metrics, rows metrics, rows schemes"
                ));
            }
        };
        if !cell.is_empty() && !binding.cell.is_empty() && cell != binding.cell {
            return Err(format!("a cell is both '{}' and '{cell}'", binding.cell));
        }
        if !cell.is_empty() {
            cell.clone_into(&mut binding.cell);
        }
        let names = || value.split('|').map(|name| name.trim().to_owned()).collect();
        match key.trim() {
            columns if columns.starts_with("columns") => binding.columns = names(),
            rows if rows.starts_with("rows") => binding.rows = names(),
            _ => {}
        }
    }
    let Binding { experiment, columns, rows, cell } = &binding;
    match columns.is_empty() || rows.is_empty() || cell.is_empty() || experiment.id.is_empty() {
        true => {
            Err("a comment of figures names an experiment, columns, rows and what a cell is made of them".to_owned())
        }
        false => Ok(binding),
    }
}

/// The cells of a line, with the spaces around them.
pub(super) fn cells(line: &str) -> Vec<&str> {
    let inner = line.trim_end().strip_prefix('|').unwrap_or(line);
    inner.strip_suffix('|').unwrap_or(inner).split('|').collect()
}

/// A cell and what its numbers are.
pub(super) struct Cell<'a> {
    pub(super) text: &'a str,
    pub(super) values: &'a [f64],
}

impl Cell<'_> {
    /// The cell with its numbers as they are, each with as many decimals as it has; everything else of it stays.
    pub(super) fn written(&self) -> Result<String, String> {
        let mut written = String::new();
        let mut rest = self.text;
        for value in self.values {
            let found = number_of(rest);
            let range =
                found.ok_or_else(|| format!("'{}' has fewer numbers than its comment says", self.text.trim()))?;
            let decimals = rest[range.clone()].split_once('.').map_or(0, |(_, decimals)| decimals.len());
            written.push_str(&rest[..range.start]);
            written.push_str(&grouped(*value, decimals));
            rest = &rest[range.end..];
        }
        Ok(written + rest)
    }
}

/// Where the first number of a text is: digits, commas between thousands, a point, a sign in front.
fn number_of(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let first = bytes.iter().position(u8::is_ascii_digit)?;
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let is_thousand = |at: usize| (1..4).all(|step| is_digit(at + step)) && !is_digit(at + 4);
    let mut end = first;
    while is_digit(end) || (bytes.get(end) == Some(&b',') && is_thousand(end)) {
        end += 1;
    }
    if bytes.get(end) == Some(&b'.') && is_digit(end + 1) {
        end += 1;
        while is_digit(end) {
            end += 1;
        }
    }
    let start = if first > 0 && bytes[first - 1] == b'-' { first - 1 } else { first };
    Some(start..end)
}

/// A number with so many decimals, thousands apart.
fn grouped(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut text = sign.to_owned();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if fraction.is_empty() { text } else { format!("{text}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, values: &[f64]) -> Result<String, String> {
        Cell { text, values }.written()
    }

    fn bound(comment: &str) -> Result<Binding, String> {
        parsed("a/b", comment.lines())
    }

    fn numbers(binding: &Binding, row: usize, column: usize) -> Vec<String> {
        let numbers = binding.of(row, column).unwrap().unwrap();
        numbers.iter().map(|number| format!("{number} * {}", number.factor)).collect()
    }

    #[test]
    fn a_cell_keeps_its_decimals_and_everything_around_its_numbers() {
        assert_eq!(written(" **1,234** ", &[1_240.4]).unwrap(), " **1,240** ");
        assert_eq!(written(" 0.95 | ", &[1_000.0]).unwrap(), " 1,000.00 | ");
        assert_eq!(written(" -3 %, 4.5 s ", &[-2.6, 4.49]).unwrap(), " -3 %, 4.5 s ");
        assert_eq!(written(" 12,5 ", &[1.0, 2.0]).unwrap(), " 1,2 ", "a comma that parts no thousands");
        assert!(written(" none ", &[1.0]).is_err() && written(" 1 ", &[1.0, 2.0]).is_err());
    }

    #[test]
    fn comments_that_say_nothing_useful_are_refused() {
        for (text, said) in [
            ("<!-- figures: a/b\ncolumns schemes: A\n", "without an end"),
            ("<!-- figures: a/b\ncolumns schemes: A\n-->", "names an experiment"),
            ("<!-- figures: a/b\ncolumns: A\nrows: m\n-->", "names an experiment"),
            ("<!-- figures: a/b\nrow: A\n-->", "is none of"),
            ("<!-- figures: a/b\ncolumns schemes: A\nrows schemes: B\n-->", "is both"),
            ("<!-- figures: a/b\ncolumns schemes: A\nrows metrics: m\n-->\ntext", "followed by a table"),
            (
                "<!-- figures: a/b\ncolumns schemes: A\nrows metrics: m | n\n-->\n| | A |\n|---|---|\n| m | 1 |",
                "names (2, 1)",
            ),
        ] {
            let error = all(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        for (comment, said) in [
            ("columns: A\nrows: m\ncell: {row}", "no 'scheme :: metric'"),
            ("columns: A\nrows: m * x\ncell: A :: {row}", "multiplied by no number"),
            ("columns: A\nrows: m {row}\ncell: A :: {row}", "or itself"),
            ("columns: A\nrows: m\ncell: A :: {line}", "names what is no"),
        ] {
            let error = bound(comment).unwrap().experiments().unwrap_err();
            assert!(error.contains(said), "{comment}: {error}");
        }
    }

    #[test]
    fn what_stands_in_code_is_an_example() {
        let tables = all("```text\n<!-- figures: a/b\n-->\n| A | 1 |\n```\n\n| |\n|---|\n| A | 1 |").unwrap();
        assert_eq!((tables.len(), tables[0].body.clone()), (1, 8..9));
    }

    #[test]
    fn schemes_and_metrics_stand_either_way() {
        let metrics = bound("columns metrics: m | -\nrows schemes: A").unwrap();
        assert_eq!(numbers(&metrics, 0, 0), ["a/b: A, m * 1"]);
        assert_eq!(metrics.of(0, 1).unwrap(), None);
        assert!(metrics.of(1, 0).is_err() && metrics.of(0, 2).is_err());
        let schemes = bound("columns schemes: A\nrows metrics: low & high * 100").unwrap();
        assert_eq!(numbers(&schemes, 0, 0), ["a/b: A, low * 1", "a/b: A, high * 100"]);
    }

    #[test]
    fn a_cell_is_made_of_the_names_of_its_row_and_its_column() {
        let words =
            bound("columns: C | D\nrows: A | B\ncell: {row} :: {column}: reads & {row} :: {column}: rate").unwrap();
        assert_eq!(numbers(&words, 1, 0), ["a/b: B, C: reads * 1", "a/b: B, C: rate * 1"]);
        let text = "columns: paper :: {row} | {row} | at 1/4 :: {row} after rest\nrows: A :: m | c/d :: B :: low & B :: high\ncell: {column}";
        let columns = bound(text).unwrap();
        assert_eq!(numbers(&columns, 0, 0), ["a/b: the paper's of A, m * 1"]);
        assert_eq!(numbers(&columns, 1, 1), ["c/d: B, low * 1", "a/b: B, high * 1"]);
        assert_eq!(numbers(&columns, 0, 2), ["a/b at 1/4: A, m after rest * 1"]);
        let rows = bound("columns: 20\n| 40\nrows: c/d at 1 :: A :: {column} zones\ncell: {row}").unwrap();
        assert_eq!(numbers(&rows, 0, 1), ["c/d at 1: A, 40 zones * 1"]);
        let experiments =
            bound("columns: x\nrows: A :: m | c/d at 1/4 :: B :: m | -\ncell: {row}").unwrap().experiments();
        let names: Vec<String> = experiments.unwrap().iter().map(Experiment::to_string).collect();
        assert_eq!(names, ["a/b", "c/d at 1/4"]);
    }
}
