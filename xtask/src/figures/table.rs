//! Tables of a page, and the comments that say which experiment they quote:
//!
//! ```text
//! <!-- figures: kvimr/usage at 1/256
//! columns schemes: CMR | KVIMR-M | -
//! rows metrics: throughput | - | low & high
//! factor: 100
//! -->
//! ```
//!
//! Columns and rows follow each other as in the table, without the column of labels and the two lines of the head; one of them
//! are schemes and the other metrics. `-` is a row or column that quotes nothing; of `low & high` a cell has two numbers. Without `at` the scale
//! is the experiment's own; `factor` is what values are multiplied by, as for percent.

use std::fmt;
use std::ops::Range;

/// An experiment and its scale, unless it is its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Experiment {
    pub(super) id: String,
    pub(super) scale: Option<String>,
}

impl Experiment {
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

/// What a table quotes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binding {
    pub(super) experiment: Experiment,
    columns: Vec<String>,
    rows: Vec<String>,
    columns_are_schemes: bool,
    pub(super) factor: f64,
}

/// A table of a page: what it quotes, if anything, and the lines of its body, from 0.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) binding: Option<Binding>,
    pub(super) body: Range<usize>,
}

impl Binding {
    /// Scheme and metric of each number of a cell; `None` where nothing is quoted.
    pub(super) fn of(&self, row: usize, column: usize) -> Result<Option<Vec<(String, String)>>, String> {
        let named = |of: &[String], place: usize, what: &str| {
            of.get(place).cloned().ok_or_else(|| format!("the table has more {what} than its comment names"))
        };
        let (row, column) = (named(&self.rows, row, "rows")?, named(&self.columns, column, "columns")?);
        if row == "-" || column == "-" {
            return Ok(None);
        }
        let (scheme, metrics) = if self.columns_are_schemes { (column, row) } else { (row, column) };
        Ok(Some(metrics.split(" & ").map(|metric| (scheme.clone(), metric.trim().to_owned())).collect()))
    }
}

/// The tables of a page, in order.
pub(super) fn all(text: &str) -> Result<Vec<Table>, String> {
    let lines: Vec<&str> = text.split('\n').collect();
    let (mut tables, mut binding, mut number) = (Vec::new(), None, 0);
    while number < lines.len() {
        let line = lines[number];
        if let Some(rest) = line.strip_prefix("<!-- figures:") {
            let behind = lines[number..].iter().position(|line| line.trim_end().ends_with("-->"));
            let end = number + behind.ok_or_else(|| format!("line {}: a comment without an end", number + 1))?;
            let body = lines[number + 1..=end].iter().map(|line| line.trim_end_matches("-->"));
            binding = Some(parsed(rest, body).map_err(|reason| format!("line {}: {reason}", number + 1))?);
            number = end + 1;
        } else if line.starts_with('|') {
            let length = lines[number..].iter().take_while(|line| line.starts_with('|')).count();
            // The head and the line below it.
            tables.push(Table { binding: binding.take(), body: (number + 2).min(number + length)..number + length });
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
    let mut words = first.trim().split(" at ");
    let id = words.next().unwrap_or_default().trim().to_owned();
    let experiment = Experiment { id, scale: words.next().map(|scale| scale.trim().to_owned()) };
    let mut binding =
        Binding { experiment, columns: Vec::new(), rows: Vec::new(), columns_are_schemes: true, factor: 1.0 };
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let (key, value) = line.split_once(':').ok_or_else(|| format!("'{line}' is no 'what: names'"))?;
        let names = || value.split('|').map(|name| name.trim().to_owned()).collect();
        match key.trim() {
            "columns schemes" => binding.columns = names(),
            "columns metrics" => (binding.columns, binding.columns_are_schemes) = (names(), false),
            "rows metrics" | "rows schemes" => binding.rows = names(),
            "factor" => {
                binding.factor = value.trim().parse().map_err(|_| format!("'{}' is no factor", value.trim()))?;
            }
            other => {
                return Err(format!(
                    "'{other}' is none of columns schemes, columns metrics, rows metrics, rows schemes, factor"
                ));
            }
        }
    }
    match binding.columns.is_empty() || binding.rows.is_empty() || binding.experiment.id.is_empty() {
        true => Err("a comment of figures names an experiment, columns and rows".to_owned()),
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
    pub(super) factor: f64,
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
            written.push_str(&grouped(value * self.factor, decimals));
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

    fn written(text: &str, values: &[f64], factor: f64) -> Result<String, String> {
        Cell { text, values, factor }.written()
    }

    #[test]
    fn a_cell_keeps_its_decimals_and_everything_around_its_numbers() {
        assert_eq!(written(" **1,234** ", &[1_240.4], 1.0).unwrap(), " **1,240** ");
        assert_eq!(written(" 0.95 | ", &[1_000.0], 1.0).unwrap(), " 1,000.00 | ");
        assert_eq!(written(" -3 %, 4.5 s ", &[-0.026, 0.0449], 100.0).unwrap(), " -3 %, 4.5 s ");
        assert_eq!(written(" 12,5 ", &[1.0, 2.0], 1.0).unwrap(), " 1,2 ", "a comma that parts no thousands");
        assert!(written(" none ", &[1.0], 1.0).is_err() && written(" 1 ", &[1.0, 2.0], 1.0).is_err());
    }

    #[test]
    fn comments_that_say_nothing_useful_are_refused() {
        for (text, said) in [
            ("<!-- figures: a/b\ncolumns schemes: A\n", "without an end"),
            ("<!-- figures: a/b\ncolumns schemes: A\n-->", "names an experiment"),
            ("<!-- figures: a/b\nrow: A\n-->", "is none of"),
            ("<!-- figures: a/b\ncolumns schemes: A\nrows metrics: m\nfactor: x\n-->", "no factor"),
            ("<!-- figures: a/b\ncolumns schemes: A\nrows metrics: m\n-->\ntext", "followed by a table"),
        ] {
            let error = all(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let tables =
            all("<!-- figures: a/b\ncolumns metrics: m\nrows schemes: A\n-->\n\n| |\n|---|\n| A | 1 |").unwrap();
        let binding = tables[0].binding.as_ref().unwrap();
        assert_eq!(binding.of(0, 0).unwrap().unwrap(), [("A".to_owned(), "m".to_owned())]);
        assert!(binding.of(1, 0).is_err() && binding.of(0, 1).is_err());
        assert_eq!((tables[0].body.clone(), binding.experiment.to_string().as_str()), (7..8, "a/b"));
    }
}
