//! Plain tables, aligned for a terminal.

use super::number::format_number;
use super::{Row, Spread};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

/// Schemes a table of rows puts side by side; more go below each other.
const SCHEMES_ABREAST: usize = 6;

/// Blanks between two columns.
const GAP: usize = 2;

/// A rule below the heads, and nothing else.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-'));

/// Which side of its column a cell leans on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub fn new<T: Into<String>>(columns: impl IntoIterator<Item = (T, Align)>) -> Table {
        Table { columns: columns.into_iter().map(|(name, align)| (name.into(), align)).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty, surplus ones are dropped.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The same table without the columns that are empty (or `-`) in every row.
    pub fn without_empty_columns(self) -> Table {
        let keep: Vec<bool> = (0..self.columns.len())
            .map(|column| self.rows.iter().any(|row| !matches!(row[column].as_str(), "" | "-")))
            .collect();
        let kept = |cells: Vec<String>| {
            cells.into_iter().zip(&keep).filter(|&(_, &keep)| keep).map(|(cell, _)| cell).collect::<Vec<_>>()
        };
        Table {
            columns: self.columns.into_iter().zip(&keep).filter(|&(_, &keep)| keep).map(|(column, _)| column).collect(),
            rows: self.rows.into_iter().map(kept).collect(),
        }
    }

    /// [`Table::to_text`] in lines of `width` columns of a terminal where that is possible: what is wider continues below, with
    /// the columns of text it begins with once more before the others.
    pub fn to_text_within(&self, width: usize) -> String {
        let widths: Vec<usize> = self.laid_out().column_max_content_widths().into_iter().map(usize::from).collect();
        let together = |columns: &[usize]| columns.iter().map(|column| widths[*column] + GAP).sum::<usize>();
        let all: Vec<usize> = (0..self.columns.len()).collect();
        if together(&all) <= width + GAP {
            return self.to_text();
        }
        let texts = self.columns.iter().take_while(|(_, align)| *align == Align::Left).count();
        let mut heads: Vec<usize> = (0..texts.max(1).min(all.len())).collect();
        while heads.len() > 1 && together(&heads) > width / 2 {
            heads.pop();
        }
        let mut parts: Vec<Vec<usize>> = Vec::new();
        for (column, own) in widths.iter().enumerate().skip(heads.len()) {
            match parts.last_mut() {
                Some(part) if together(part) + own <= width => part.push(column),
                _ => parts.push(heads.iter().copied().chain([column]).collect()),
            }
        }
        let of = |part: &Vec<usize>| {
            let pick = |row: &Vec<String>| part.iter().map(|column| row[*column].clone()).collect();
            Table {
                columns: part.iter().map(|column| self.columns[*column].clone()).collect(),
                rows: self.rows.iter().map(pick).collect(),
            }
            .to_text()
        };
        if parts.is_empty() { self.to_text() } else { parts.iter().map(of).collect::<Vec<_>>().join("\n") }
    }

    /// The table, columns aligned, a rule below the heads, no trailing blanks.
    pub fn to_text(&self) -> String {
        format!("{}\n", self.laid_out().trim_fmt())
    }

    fn laid_out(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.columns.iter().map(|(name, _)| name));
        table.add_rows(&self.rows);
        let last = self.columns.len().saturating_sub(1);
        for (index, (column, (_, align))) in table.column_iter_mut().zip(&self.columns).enumerate() {
            column.set_padding((0, if index < last { GAP as u16 } else { 0 }));
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        table
    }
}

/// Rows of an experiment: schemes side by side when there are few and no paper to compare with, one
/// line to a row otherwise.
pub(super) fn of_rows(rows: &[&Row]) -> Table {
    let mut schemes: Vec<&str> = Vec::new();
    for row in rows {
        if !schemes.contains(&row.scheme.as_str()) {
            schemes.push(&row.scheme);
        }
    }
    let compares = rows.iter().any(|row| row.paper.is_some() || row.note.is_some());
    if schemes.len() > 1 && schemes.len() <= SCHEMES_ABREAST && !compares {
        side_by_side(rows, &schemes)
    } else {
        one_by_one(rows)
    }
}

fn side_by_side(rows: &[&Row], schemes: &[&str]) -> Table {
    let columns = [("metric", Align::Left), ("unit", Align::Left)];
    let mut table = Table::new(columns.into_iter().chain(schemes.iter().map(|&scheme| (scheme, Align::Right))));
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !metrics.contains(&(&row.metric, &row.unit)) {
            metrics.push((&row.metric, &row.unit));
        }
    }
    for (metric, unit) in metrics {
        let cell = |scheme: &&str| {
            rows.iter()
                .find(|row| row.scheme == **scheme && row.metric == metric && row.unit == unit)
                .map_or(String::new(), |row| with_spread(row))
        };
        table.row([metric.to_owned(), unit.to_owned()].into_iter().chain(schemes.iter().map(cell)));
    }
    table
}

fn one_by_one(rows: &[&Row]) -> Table {
    let mut table = Table::new([
        ("scheme", Align::Left),
        ("metric", Align::Left),
        ("paper", Align::Right),
        ("ours", Align::Right),
        ("unit", Align::Left),
        ("ours/paper", Align::Right),
        ("spread", Align::Right),
        ("note", Align::Left),
    ]);
    for row in rows {
        let ratio = match (row.ours, row.paper) {
            (Some(ours), Some(paper)) if paper != 0.0 => format!("{:.3}", ours / paper),
            _ => String::new(),
        };
        table.row([
            row.scheme.clone(),
            row.metric.clone(),
            row.paper.map_or(String::new(), format_number),
            row.ours.map_or("-".to_owned(), format_number),
            row.unit.clone(),
            ratio,
            row.spread.map_or(String::new(), |spread| format_spread(&spread)),
            row.note.clone().unwrap_or_default(),
        ]);
    }
    table.without_empty_columns()
}

fn with_spread(row: &Row) -> String {
    let ours = row.ours.map_or("-".to_owned(), format_number);
    match &row.spread {
        Some(spread) if spread.repetitions > 1 => format!("{ours} ({})", format_spread(spread)),
        _ => ours,
    }
}

fn format_spread(spread: &Spread) -> String {
    format!("{} .. {}", format_number(spread.low), format_number(spread.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right), ("empty", Align::Left)]);
        table.row(["a", "1"]);
        table.row(["long name", "1,000"]);
        let text = table.without_empty_columns().to_text();
        assert_eq!(text, "name           n\n----------------\na              1\nlong name  1,000\n");
    }

    #[test]
    fn columns_align_whatever_is_in_a_cell() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right)]);
        // Two columns of the terminal to a character, none to an accent of its own, and no characters.
        table.row(["\u{6c34}\u{6708}\u{6e56}", "1"]);
        table.row(["e\u{301}", "20"]);
        table.row(["", "300"]);
        assert_eq!(
            table.to_text(),
            "name      n\n-----------\n\u{6c34}\u{6708}\u{6e56}    1\ne\u{301}        20\n        300\n"
        );
        assert_eq!(table.to_text_within(11), table.to_text());
        table.row(["two\nlines", "4"]);
        assert!(table.to_text().ends_with("two       4\nlines\n"));
    }

    #[test]
    fn what_is_wider_than_the_terminal_continues_below() {
        let columns =
            [("name", Align::Left), ("first", Align::Right), ("second", Align::Right), ("third", Align::Right)];
        let mut table = Table::new(columns);
        table.row(["a", "1", "2", "3"]);
        table.row(["bb", "10", "20", "30"]);
        assert_eq!(table.to_text_within(80), table.to_text());
        let text = table.to_text_within(20);
        assert_eq!(
            text,
            "name  first  second\n-------------------\na         1       2\nbb       10      20\n\n\
             name  third\n-----------\na         3\nbb       30\n"
        );
        for width in 0..100 {
            let text = table.to_text_within(width);
            assert!(text.lines().all(|line| line.len() <= width.max(12)), "{width}: {text}");
            assert!(["first", "second", "third", "20", "30"].iter().all(|cell| text.contains(cell)), "{width}: {text}");
        }
        assert_eq!(Table::new([("alone", Align::Left)]).to_text_within(2), "alone\n-----\n");
    }

    #[test]
    fn few_schemes_stand_side_by_side() {
        let rows = [Row::new("varve", "get", "us", 1.5), Row::new("rocksdb", "get", "us", 2.0)];
        let text = of_rows(&rows.iter().collect::<Vec<_>>()).to_text();
        assert!(text.starts_with("metric  unit  varve  rocksdb\n"), "{text}");
        assert!(text.contains("1.500"));
        let paper = [rows[0].clone().with_paper(1.0), rows[1].clone()];
        let text = of_rows(&paper.iter().collect::<Vec<_>>()).to_text();
        assert!(text.contains("ours/paper"), "{text}");
    }
}
