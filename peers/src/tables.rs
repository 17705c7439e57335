//! Compact tables of a comparison: benchmarks by stores, with what is too small to tell.

use crate::summary::{CPU, CPU_OF_BOTH, INSTRUCTIONS, P50, PUTS_BESIDE, THROUGHPUT, WRITE_AMPLIFICATION};
use std::fmt::Write;
use varve_lab::report::{Align, Report, Row, Table, format_number};

/// What others are compared with.
const OURS: &str = "varve";

/// Whom the last column compares it with.
const RIVAL: &str = "rocksdb";

/// Behind a number that cannot be told from ours.
const TOO_SMALL: &str = "?";

/// What a table shows: its title, and metrics with what their rows say beside the benchmark's name.
struct Subject {
    title: &'static str,
    metrics: &'static [(&'static str, &'static str)],
    divisor: f64,
}

const SUBJECTS: [Subject; 5] = [
    Subject { title: "CPU us an operation", metrics: &[(CPU, ""), (CPU_OF_BOTH, ", reads and puts")], divisor: 1.0 },
    Subject { title: "p50, us", metrics: &[(P50, "")], divisor: 1.0 },
    Subject {
        title: "thousand operations a second",
        metrics: &[(THROUGHPUT, ""), (PUTS_BESIDE, ", puts")],
        divisor: 1000.0,
    },
    Subject { title: "bytes written by bytes put", metrics: &[(WRITE_AMPLIFICATION, "")], divisor: 1.0 },
    Subject { title: "instructions an operation", metrics: &[(INSTRUCTIONS, "")], divisor: 1.0 },
];

/// A row's metric, taken apart.
struct Cell<'a> {
    benchmark: &'a str,
    value_size: &'a str,
    metric: &'a str,
    row: &'a Row,
}

/// One table.
struct Grid {
    title: String,
    heads: Vec<String>,
    lines: Vec<Vec<String>>,
}

/// The name of a metric in reports.
pub(crate) fn metric(benchmark: &str, value_size: usize, metric: &str) -> String {
    format!("{benchmark} {value_size} B: {metric}")
}

/// The tables as Markdown, below a line that says how to read them.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = format!("{}\n", legend(report));
    for grid in grids(report) {
        let _ = write!(
            text,
            "\n| {} | {} |\n|{}\n",
            grid.title,
            grid.heads.join(" | "),
            "---|".repeat(grid.heads.len() + 1)
        );
        for line in grid.lines {
            let _ = writeln!(text, "| {} |", line.join(" | "));
        }
    }
    text
}

/// The tables for a terminal.
pub(crate) fn text(report: &Report) -> String {
    let mut text = format!("\n{}\n", legend(report));
    for grid in grids(report) {
        let heads = std::iter::once((grid.title, Align::Left));
        let mut table = Table::new(heads.chain(grid.heads.into_iter().map(|head| (head, Align::Right))));
        grid.lines.into_iter().for_each(|line| table.row(line));
        text.push('\n');
        text.push_str(&table.to_text());
    }
    text
}

/// What the numbers were measured on, and how to read them.
fn legend(report: &Report) -> String {
    let mut text = String::new();
    for condition in ["data at each value size", "foreground threads", "repetitions"] {
        if let Some(value) = report.conditions.get(condition) {
            let _ = write!(text, "{condition}: {value}; ");
        }
    }
    let repeated = report.rows.iter().any(|row| repetitions(row) > 1);
    let spread = if repeated {
        format!(
            "medians (lowest-highest); {TOO_SMALL} where {OURS} and the other differ by no more than either moves between \
             repetitions, or their ranges meet"
        )
    } else {
        "single runs: how far they move is not known".to_owned()
    };
    text + &spread
}

fn grids(report: &Report) -> Vec<Grid> {
    let cells: Vec<Cell<'_>> = report.rows.iter().filter_map(Cell::of).collect();
    let distinct = |of: fn(&Cell<'_>) -> String| {
        cells.iter().map(of).fold(Vec::new(), |mut all: Vec<String>, one| {
            if !all.contains(&one) {
                all.push(one);
            }
            all
        })
    };
    let sizes = distinct(|cell| cell.value_size.to_owned());
    let benchmarks = distinct(|cell| cell.benchmark.to_owned());
    let mut schemes = distinct(|cell| cell.row.scheme.clone());
    // Rows come in the order of what was measured first; ours stands first, whoever that was.
    schemes.sort_by_key(|scheme| !scheme.starts_with(OURS));
    let rival = schemes.iter().position(|scheme| scheme.starts_with(RIVAL));
    let compares = schemes.first().is_some_and(|scheme| scheme.starts_with(OURS));
    let mut grids = Vec::new();
    for size in &sizes {
        for subject in &SUBJECTS {
            let mut lines = Vec::new();
            for benchmark in &benchmarks {
                for &(metric, addition) in subject.metrics {
                    let row = |scheme: &String| {
                        let is_it = |cell: &&Cell<'_>| {
                            (cell.value_size, cell.benchmark, cell.metric)
                                == (size.as_str(), benchmark.as_str(), metric)
                                && cell.row.scheme == *scheme
                        };
                        cells.iter().find(is_it).map(|cell| cell.row)
                    };
                    let rows: Vec<Option<&Row>> = schemes.iter().map(row).collect();
                    if rows.iter().all(Option::is_none) {
                        continue;
                    }
                    let ours = rows[0].filter(|_| compares);
                    let mut line = vec![format!("{benchmark}{addition}")];
                    line.extend(rows.iter().enumerate().map(|(place, row)| {
                        let ours = ours.filter(|_| place > 0);
                        row.map_or("-".to_owned(), |row| shown(row, ours, subject.divisor))
                    }));
                    if compares && let Some(rival) = rival {
                        line.push(quotient(ours, rows[rival]));
                    }
                    lines.push(line);
                }
            }
            if !lines.is_empty() {
                let last = rival.filter(|_| compares).map(|_| format!("{OURS} by {RIVAL}"));
                let heads = schemes.iter().map(|scheme| scheme.replace(" (as packaged)", "")).chain(last).collect();
                grids.push(Grid { title: format!("{size} B values, {}", subject.title), heads, lines });
            }
        }
    }
    grids
}

impl<'a> Cell<'a> {
    /// The inverse of [`metric`].
    fn of(row: &'a Row) -> Option<Cell<'a>> {
        let (of, metric) = row.metric.split_once(": ")?;
        let (benchmark, value_size) = of.strip_suffix(" B")?.rsplit_once(' ')?;
        Some(Cell { benchmark, value_size, metric, row })
    }
}

/// The number, how far it moves, and whether it can be told from ours.
fn shown(row: &Row, ours: Option<&Row>, divisor: f64) -> String {
    let Some(value) = row.ours else { return "-".to_owned() };
    let mut text = short(value / divisor);
    if let Some(spread) = row.spread.filter(|spread| spread.repetitions > 1) {
        let _ = write!(text, " ({}-{})", short(spread.low / divisor), short(spread.high / divisor));
    }
    if ours.is_some_and(|ours| is_too_small(ours, row)) {
        let _ = write!(text, " {TOO_SMALL}");
    }
    text
}

fn quotient(ours: Option<&Row>, rival: Option<&Row>) -> String {
    let (Some(ours), Some(rival)) = (ours, rival) else { return "-".to_owned() };
    let mark = if is_too_small(ours, rival) { format!(" {TOO_SMALL}") } else { String::new() };
    match (ours.ours, rival.ours) {
        (Some(number), Some(other)) if other != 0.0 => format!("{}{mark}", short(number / other)),
        _ => "-".to_owned(),
    }
}

fn repetitions(row: &Row) -> u32 {
    row.spread.map_or(0, |spread| spread.repetitions)
}

/// Whether two medians are no farther apart than either moves, or their ranges meet. Of single runs nothing is known.
fn is_too_small(one: &Row, other: &Row) -> bool {
    let (Some(a), Some(b)) = (one.spread, other.spread) else { return false };
    let (Some(first), Some(second)) = (one.ours, other.ours) else { return false };
    if a.repetitions < 2 || b.repetitions < 2 {
        return false;
    }
    let meet = a.low <= b.high && b.low <= a.high;
    meet || (first - second).abs() <= (a.high - a.low).max(b.high - b.low)
}

/// Three digits where there is a point, thousands apart: `0.0392`, `1.36`, `45.1`, `783`, `25,449`.
fn short(number: f64) -> String {
    let magnitude = number.abs();
    let decimals = match magnitude {
        m if m >= 99.95 => return format_number(number.round()),
        m if m >= 9.995 || m == 0.0 => 1,
        m if m >= 0.9995 => 2,
        m if m >= 0.0995 => 3,
        _ => 4,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("peers/db_bench", "t", "1", 1);
        report.condition("repetitions", 3);
        let mut add = |scheme: &str, benchmark: &str, metric: &str, measured: &[f64]| {
            let metric = super::metric(benchmark, 100, metric);
            report.rows.push(Row::of_repetitions(scheme, metric, "us", measured));
        };
        add("rocksdb 11", "fillseq", CPU, &[2.0, 2.1, 2.2]);
        add("varve 0.1", "fillseq", CPU, &[1.0, 1.05, 1.1]);
        add("leveldb 1.23 (as packaged)", "fillseq", CPU, &[1.1, 1.2, 1.3]);
        add("varve 0.1", "readseq", CPU, &[0.04, 0.041, 0.042]);
        add("varve 0.1", "readseq", THROUGHPUT, &[25_449_123.0, 25_400_000.0, 25_500_000.0]);
        add("varve 0.1", "readseq", "p99", &[1.0]);
        report
    }

    #[test]
    fn stores_stand_side_by_side_ours_first() {
        let text = markdown(&report());
        let expected = "\n| 100 B values, CPU us an operation | varve 0.1 | rocksdb 11 | leveldb 1.23 | varve by rocksdb |\n\
                        |---|---|---|---|---|\n\
                        | fillseq | 1.05 (1.00-1.10) | 2.10 (2.00-2.20) | 1.20 (1.10-1.30) ? | 0.500 |\n\
                        | readseq | 0.0410 (0.0400-0.0420) | - | - | - |\n\n\
                        | 100 B values, thousand operations a second | varve 0.1 | rocksdb 11 | leveldb 1.23 | \
                        varve by rocksdb |\n\
                        |---|---|---|---|---|\n\
                        | readseq | 25,449 (25,400-25,500) | - | - | - |\n";
        assert!(text.starts_with("repetitions: 3; medians") && text.ends_with(expected), "{text}");
        let text = super::text(&report());
        assert!(text.contains("100 B values, CPU us an operation  ") && !text.contains('|'), "{text}");
    }

    #[test]
    fn what_moves_more_than_it_differs_is_too_small_to_tell() {
        let row = |measured: &[f64]| Row::of_repetitions("s", "m", "us", measured);
        let ours = row(&[1.0, 1.1, 1.2]);
        assert!(is_too_small(&ours, &row(&[1.2, 1.3, 1.4])), "ranges meet");
        assert!(is_too_small(&ours, &row(&[1.25, 1.3, 2.0])), "the other moves more than they differ");
        assert!(!is_too_small(&ours, &row(&[1.4, 1.5, 1.6])));
        assert!(!is_too_small(&ours, &row(&[1.1])), "of a single run nothing is known");
        assert!(!is_too_small(&ours, &Row::new("s", "m", "us", 1.1)));
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0.0"),
            (0.03921, "0.0392"),
            (0.5, "0.500"),
            (1.361, "1.36"),
            (45.12, "45.1"),
            (783.4, "783"),
            (25_449.0, "25,449"),
        ] {
            assert_eq!(short(number), text);
        }
        assert!(legend(&Report::new("i", "t", "1", 1)).starts_with("single runs"));
    }
}
