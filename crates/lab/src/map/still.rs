//! The last frame of films as a picture that stands still.

use super::film::{CellState, Film, Row, WHOLE};
use super::lettering;
use super::page::{Caption, verdict};
use super::palette::{self, LEVELS};
use crate::report::{escape, format_number};
use std::collections::BTreeMap;
use std::fmt::Write;
use varve::store::PieceUsage;

/// Side of a cell, where there are many and where there are few.
const CELL: u32 = 4;
const LARGE_CELL: u32 = 12;

/// Cells that are few.
const FEW: usize = 2_000;

/// Overlaps of the strongest colour.
pub(super) const OVERLAPS: u32 = 8;

/// Between two strips.
const GAP: u32 = 2;

const MARGIN: u32 = 24;

/// Smallest width of a picture: captions need some.
const WIDTH_MIN: u32 = 1_000;

/// Side of a sample in the legend.
const SAMPLE: u32 = 12;

/// Between a sample in the legend and its words, and twice that between entries below each other.
const SAMPLE_GAP: u32 = 8;

/// Colour of a free cell.
const FREE: &str = "#ececec";

/// Ages told apart.
const AGES: u32 = 8;

/// How a cell is filled, and whether it is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fill {
    Level { level: usize, age: u32 },
    Use(&'static str),
}

/// What the strength of a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shade {
    Age,
    Overlap,
}

fn side(film: &Film) -> u32 {
    if film.last.len() < FEW { LARGE_CELL } else { CELL }
}

/// Height of one strip of a device.
fn strip(film: &Film, rows: &[Row]) -> u32 {
    rows.len() as u32 * side(film) + GAP
}

/// Cells of the longest row of a device.
fn longest(rows: &[Row]) -> u32 {
    rows.iter().map(|row| row.pieces.len() as u32).max().unwrap_or(0)
}

/// Cells in a row of a strip, so that the picture is a little wider than high.
fn columns(film: &Film) -> u32 {
    // columns * side = 1.2 * (longest / columns) * strip
    let area: f64 =
        film.devices().iter().map(|(_, rows)| f64::from(longest(rows)) * 1.2 * f64::from(strip(film, rows))).sum();
    let columns = (area / f64::from(side(film))).sqrt().ceil() as u32;
    columns.clamp(1, 1_600 / side(film))
}

/// Where the strips of each device begin below the head of a film, and where the last end.
fn tops(film: &Film) -> (Vec<u32>, u32) {
    let (columns, mut end) = (columns(film), 0);
    let of_device = |(_, rows): (usize, &[Row])| {
        let top = if end == 0 { 0 } else { end + MARGIN / 2 };
        end = top + longest(rows).div_ceil(columns) * strip(film, rows);
        top
    };
    let tops = film.devices().into_iter().map(of_device).collect();
    (tops, end)
}

fn level_index(level: Option<u8>) -> usize {
    level.map_or(LEVELS.len() - 1, |level| usize::from(level).min(LEVELS.len() - 1))
}

fn fill(state: &CellState, frame: u32, shade: Shade) -> Option<Fill> {
    match state.usage {
        PieceUsage::Free => None,
        PieceUsage::Table | PieceUsage::File => {
            let age = match shade {
                Shade::Age => (frame.saturating_sub(state.born) * AGES).div_ceil(frame.max(1)).min(AGES),
                Shade::Overlap => AGES - (u32::from(state.overlap) * AGES).div_ceil(OVERLAPS).min(AGES),
            };
            Some(Fill::Level { level: level_index(state.level), age })
        }
        PieceUsage::Removed => Some(Fill::Use("removed")),
        PieceUsage::Metadata => Some(Fill::Use("metadata")),
        PieceUsage::SmallFiles => Some(Fill::Use("small-files")),
        PieceUsage::Backup => Some(Fill::Use("backup")),
        PieceUsage::CachedBlocks => Some(Fill::Use("cached-blocks")),
        PieceUsage::Retired => Some(Fill::Use("retired")),
        _ => Some(Fill::Use("reserved")),
    }
}

/// A film in the picture: its captions at the left upper corner, its cells below.
#[derive(Clone, Copy, Debug)]
struct Panel<'a> {
    film: &'a Film,
    shade: Shade,
    x: u32,
    top: u32,
    /// Upper edge of its cells.
    cells_top: u32,
    /// Width of its captions.
    width: u32,
}

/// Where everything is.
struct Layout<'a> {
    width: u32,
    panels: Vec<Panel<'a>>,
    legend_top: u32,
}

/// Films in rows of at most two; those that show overlap twice, by age and by overlap. What is over them ends at `top`.
fn layout<'a>(caption: &Caption, films: &'a [Film], mut top: u32) -> Layout<'a> {
    let has_overlaps = films.iter().any(|film| film.has_overlaps);
    let shades: &[Shade] = if has_overlaps { &[Shade::Age, Shade::Overlap] } else { &[Shade::Age] };
    let (width, across) = (width(films), across(films));
    let pitch = (width - MARGIN) / across as u32;
    let mut panels = Vec::new();
    for (shade, row) in shades.iter().flat_map(|&shade| films.chunks(across).map(move |row| (shade, row))) {
        let of_row: Vec<Panel<'a>> = row
            .iter()
            .zip(0u32..)
            .map(|(film, column)| {
                let x = MARGIN + column * pitch;
                Panel { film, shade, x, top, cells_top: 0, width: pitch - MARGIN }
            })
            .collect();
        // Cells of one row begin at the same height.
        let heads = of_row.iter().map(|panel| panel.head(caption, &mut String::new()));
        let cells_top = heads.max().unwrap_or(top) + MARGIN / 2;
        top = cells_top + row.iter().map(|film| tops(film).1).max().unwrap_or(0) + MARGIN;
        panels.extend(of_row.into_iter().map(|panel| Panel { cells_top, ..panel }));
    }
    Layout { width, panels, legend_top: top }
}

/// Films next to each other.
fn across(films: &[Film]) -> usize {
    films.len().clamp(1, 2)
}

/// Width of the picture.
fn width(films: &[Film]) -> u32 {
    let width_of = |film: &Film| columns(film) * side(film) + side(film) + MARGIN;
    let widest = films.iter().map(width_of).max().unwrap_or(0);
    (widest * across(films) as u32 + MARGIN).max(WIDTH_MIN)
}

impl Panel<'_> {
    /// Appends the captions; returns where they end.
    fn head(&self, caption: &Caption, svg: &mut String) -> u32 {
        let Panel { film, x, top, width, .. } = *self;
        let name = match (film.has_overlaps, self.shade) {
            (false, _) => film.name.clone(),
            (true, Shade::Age) => format!("{}, by age", film.name),
            (true, Shade::Overlap) => format!("{}, by overlap", film.name),
        };
        let top = lettering::NAME.paragraph(svg, x, top, width, &name);
        let top = lettering::WORDS.paragraph(svg, x, top, width, &summary(caption, film));
        lettering::WORDS.paragraph(svg, x, top, width, &axes(caption, film))
    }
}

/// Appends what is said of all films; returns where it ends.
fn heading(svg: &mut String, caption: &Caption, films: &[Film]) -> u32 {
    let width = width(films) - 2 * MARGIN;
    let mut top = lettering::TITLE.paragraph(svg, MARGIN, MARGIN / 2, width, &caption.title);
    for words in [&caption.description, &verdict(caption, films)] {
        top = lettering::WORDS.paragraph(svg, MARGIN, top, width, words);
    }
    top + MARGIN / 2
}

/// The last frames of films, with captions and a legend.
pub fn still(caption: &Caption, films: &[Film]) -> String {
    let mut body = String::new();
    let top = heading(&mut body, caption, films);
    let Layout { width, panels, legend_top } = layout(caption, films, top);
    for panel in &panels {
        panel.head(caption, &mut body);
        draw(&mut body, panel.film, panel.shade, panel.x, panel.cells_top);
    }
    let height = legend(&mut body, caption, films, legend_top, width - 2 * MARGIN) + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" role=\"img\">\n<title>{}</title>\n<defs>\
         <pattern id=\"removed\" width=\"2\" height=\"2\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 0h1v1h-1zM1 \
         1h1v1h-1z\" fill=\"#333\"/></pattern>\
         <pattern id=\"small-files\" width=\"2\" height=\"2\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 0h2v1h-2z\" \
         fill=\"#333\"/></pattern>\
         <pattern id=\"backup\" width=\"2\" height=\"2\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 0h1v2h-1z\" \
         fill=\"#333\"/></pattern>\
         <pattern id=\"cached-blocks\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 0h4v4h-4z\" \
         fill=\"#fff\"/><path d=\"M0 4l4 -4\" stroke=\"#333\"/></pattern>\
         <pattern id=\"retired\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 0h4v4h-4z\" \
         fill=\"#bbb\"/><path d=\"M0 0l4 4M0 4l4 -4\" stroke=\"#000\"/></pattern></defs>\n\
         <style>.removed{{fill:url(#removed)}}.small-files{{fill:url(#small-files)}}.backup{{fill:url(#backup)}}\
         .cached-blocks{{fill:url(#cached-blocks)}}.retired{{fill:url(#retired)}}.metadata{{fill:#333}}.reserved{{fill:#bbb}}\
         .free{{fill:{FREE}}}.mark{{fill:#000}}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n",
        escape(&caption.title)
    )
}

/// What runs along the axes of a film's picture.
fn axes(caption: &Caption, film: &Film) -> String {
    let mut told = format!("Across, then down: {}s in the order of their addresses", caption.cell);
    let named = |rows: &[Row]| rows.iter().map(|row| row.name.as_str()).collect::<Vec<&str>>().join(", then ");
    let devices = film.devices();
    if let Some((_, rows)) = devices.iter().find(|(_, rows)| rows.len() > 1) {
        let _ = write!(told, "; in a strip, from above: {}", named(rows));
    }
    if devices.len() > 1 {
        let _ = write!(told, "; devices, from above: {}", named(&film.rows));
    }
    told
}

/// What a film had counted at its end, in words.
fn summary(caption: &Caption, film: &Film) -> String {
    let Some(last) = film.frames.last() else { return String::new() };
    let mut words = vec![format!("{} {}", format_number(last.operations as f64), caption.operations)];
    if last.nanos > 0 {
        let rate = last.operations as f64 / (last.nanos as f64 / 1e9);
        words.push(format!("{} {}/s", format_number(rate), caption.operations));
    }
    let counted = film.counters.iter().zip(&last.counters).filter(|(counter, _)| counter.unit == "1");
    words.extend(counted.map(|(counter, value)| format!("{} {}", format_number(*value as f64), counter.name)));
    words.join(", ")
}

/// A film's cells, their left upper corner at `x` and `y`.
fn draw(svg: &mut String, film: &Film, shade: Shade, x: u32, y: u32) {
    let (columns, side, frame) = (columns(film), side(film), film.frames.len().saturating_sub(1) as u32);
    let mut paths: BTreeMap<Fill, String> = BTreeMap::new();
    let (mut marks, mut ground) = (String::new(), String::new());
    let (mark, inset) = (side / 2, side / 4);
    let placed = film.devices().into_iter().zip(tops(film).0).flat_map(|((first, rows), top)| {
        let strip = strip(film, rows);
        let numbered = rows.iter().zip(0u32..);
        numbered.scan(first, move |cell, (row, number)| {
            *cell += row.pieces.len();
            Some((row, *cell - row.pieces.len(), y + top + number * side, strip))
        })
    });
    for (row, first_cell, row_top, strip) in placed {
        let shift = u32::from(row.shift_half_cells) * side / 2;
        let cells = &film.last[first_cell..first_cell + row.pieces.len()];
        let marked = &film.last_rewritten[first_cell..first_cell + row.pieces.len()];
        for (line, part) in cells.chunks(columns as usize).enumerate() {
            let top = row_top + line as u32 * strip;
            let first = line * columns as usize;
            let width = part.len() as u32 * side;
            let _ = write!(ground, "M{} {top}h{width}v{side}h-{width}z", x + shift);
            let fills: Vec<Option<(Fill, u32)>> = part
                .iter()
                .map(|&state| &film.states[state as usize])
                .map(|state| {
                    let filled = (side * u32::from(state.live_eighths)).div_ceil(u32::from(WHOLE));
                    fill(state, frame, shade).map(|fill| (fill, filled))
                })
                .collect();
            let mut at = 0;
            for run in fills.chunk_by(PartialEq::eq) {
                if let Some((fill, filled)) = run[0] {
                    let (left, width) = (x + shift + at * side, run.len() as u32 * side);
                    let from = top + side - filled;
                    let _ = write!(paths.entry(fill).or_default(), "M{left} {from}h{width}v{filled}h-{width}z");
                }
                at += run.len() as u32;
            }
            for at in (0..part.len()).filter(|at| marked[first + at]) {
                let (left, top) = (x + shift + at as u32 * side + inset, top + inset);
                let _ = write!(marks, "M{left} {top}h{mark}v{mark}h-{mark}z");
            }
        }
    }
    let _ = writeln!(svg, "<path class=\"free\" d=\"{ground}\"/>");
    for (fill, path) in paths {
        let attributes = match fill {
            Fill::Level { level, age } => {
                format!("fill=\"{}\" fill-opacity=\"{:.3}\"", LEVELS[level], palette::strength(age, AGES))
            }
            Fill::Use(class) => format!("class=\"{class}\""),
        };
        let _ = writeln!(svg, "<path {attributes} d=\"{path}\"/>");
    }
    if !marks.is_empty() {
        let _ = writeln!(svg, "<path class=\"mark\" d=\"{marks}\"/>");
    }
}

/// Appends the legend, in two columns; returns where it ends.
fn legend(svg: &mut String, caption: &Caption, films: &[Film], top: u32, width: u32) -> u32 {
    let (column, indent) = (width / 2, SAMPLE + SAMPLE_GAP);
    let (mut top, entries) = (top, entries(caption, films));
    for line in entries.chunks(2) {
        let mut end = top + SAMPLE;
        for (x, (attributes, words)) in [MARGIN, MARGIN + column].into_iter().zip(line) {
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{top}\" width=\"{SAMPLE}\" height=\"{SAMPLE}\" stroke=\"#999\" {attributes}/>"
            );
            end = end.max(lettering::ENTRY.paragraph(svg, x + indent, top - 1, column - indent - MARGIN, words));
        }
        top = end + SAMPLE_GAP / 2;
    }
    top
}

/// Entries of the legend: attributes of the sample, and words.
fn entries(caption: &Caption, films: &[Film]) -> Vec<(String, String)> {
    let has_overlaps = films.iter().any(|film| film.has_overlaps);
    let (mut entries, mut levels, mut usages) = (Vec::new(), Vec::new(), Vec::new());
    for state in films.iter().flat_map(|film| &film.states) {
        match state.usage {
            PieceUsage::Table | PieceUsage::File => levels.push(level_index(state.level)),
            other => usages.push(other),
        }
    }
    levels.sort_unstable();
    levels.dedup();
    for level in levels {
        let words = match level {
            level if level + 1 < LEVELS.len() && has_overlaps => {
                format!("level {level}, fainter the older, or the fewer tables overlap it (full: {OVERLAPS})")
            }
            level if level + 1 < LEVELS.len() => format!("level {level}, the older the fainter"),
            _ => "no level known".to_owned(),
        };
        entries.push((format!("fill=\"{}\"", LEVELS[level]), words));
    }
    for (usage, name, meaning) in palette::USES.iter().filter(|(usage, ..)| usages.contains(usage)) {
        let class = if *usage == PieceUsage::Free { "free".to_owned() } else { usage.name().replace(' ', "-") };
        entries.push((format!("class=\"{class}\""), format!("{name}: {meaning}")));
    }
    if has_overlaps {
        let words = format!("each {} is filled in proportion to its live data", caption.cell);
        entries.push(("fill=\"none\"".to_owned(), words));
    } else if films.iter().flat_map(|film| &film.frames).any(|frame| !frame.rewrites.is_empty()) {
        let words = format!("a {} with a black square was rewritten in the last interval", caption.cell);
        entries.push(("class=\"mark\"".to_owned(), words));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::super::film::tests::{film_of, film_of_two_devices};
    use super::super::lettering::tests::{check_texts, parts, pixel, render, texts};
    use super::super::{FilmCounter, well_formed};
    use super::*;

    fn caption() -> Caption {
        Caption {
            title: "tracks & more".into(),
            description: "a load".into(),
            cell: "track".into(),
            operations: "pairs".into(),
            look_for: "Fewer marks.".into(),
            explanation: String::new(),
            scale_denominator: 1,
        }
    }

    /// Colour of a cell outside of its mark; none where it is a pattern.
    fn expected(film: &Film, state: &CellState, shade: Shade) -> Option<[u8; 3]> {
        let free = parts(FREE);
        match fill(state, film.frames.len() as u32 - 1, shade) {
            None => Some(free),
            Some(Fill::Level { level, age }) => {
                let (color, strength) = (parts(LEVELS[level]), palette::strength(age, AGES));
                let blend = |part: usize| f64::from(color[part]) * strength + f64::from(free[part]) * (1.0 - strength);
                Some([0, 1, 2].map(|part| blend(part).round() as u8))
            }
            Some(Fill::Use(_)) => None,
        }
    }

    /// Checks that every cell is a square of its colour where its row, line and column say, and that nothing is around the cells.
    fn check_cells(films: &[Film]) {
        let (caption, picture) = (caption(), render(&still(&caption(), films)));
        let mut checked = 0;
        for panel in layout(&caption, films, heading(&mut String::new(), &caption, films)).panels {
            let (film, side, columns) = (panel.film, side(panel.film), columns(panel.film));
            for ((first, rows), device_top) in film.devices().into_iter().zip(tops(film).0) {
                let mut cell = first;
                for (row, number) in rows.iter().zip(0..) {
                    let shift = u32::from(row.shift_half_cells) * side / 2;
                    let count = row.pieces.len() as u32;
                    for index in 0..count {
                        let (line, column) = (index / columns, index % columns);
                        let left = panel.x + shift + column * side;
                        let top = panel.cells_top + device_top + line * strip(film, rows) + number * side;
                        let (state, is_marked) = (&film.states[film.last[cell] as usize], film.last_rewritten[cell]);
                        cell += 1;
                        let what = format!("{}, cell {cell} at {left}, {top}", film.name);
                        if is_marked {
                            assert_eq!(pixel(&picture, left + side / 2, top + side / 2), [0; 3], "{what}: a mark");
                        }
                        let around = [
                            (column == 0, left - 1, top + side / 2),
                            (column + 1 == columns || index + 1 == count, left + side, top + side / 2),
                            (number + 1 == rows.len() as u32, left, top + side),
                        ];
                        for (_, x, y) in around.into_iter().filter(|(is_edge, ..)| *is_edge) {
                            assert_eq!(pixel(&picture, x, y), [255; 3], "{what}: nothing is at {x}, {y}");
                        }
                        let Some(color) = expected(film, state, panel.shade) else { continue };
                        for (x, y) in [(0, 0), (side - 1, 0), (0, side - 1), (side - 1, side - 1)] {
                            let found = pixel(&picture, left + x, top + y);
                            let is_close = found.iter().zip(color).all(|(found, wanted)| found.abs_diff(wanted) <= 2);
                            assert!(is_close, "{what}: {found:?} instead of {color:?}");
                        }
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked * 2 > films.iter().map(|film| film.last.len()).sum::<usize>(), "{checked} cells were checked");
    }

    #[test]
    fn cells_are_drawn_where_they_lie() {
        let of = |tracks: u32| film_of(3, "a policy", tracks, 8).0;
        for films in [vec![of(301)], vec![of(300), of(1_200)], vec![of(5_000), of(2_500), of(900)]] {
            check_cells(&films);
        }
        check_cells(&[film_of_two_devices(30, 300), film_of_two_devices(3, 2_100)]);
        let mut overlapping = film_of(4, "by overlap", 200, 5).0;
        overlapping.has_overlaps = true;
        check_cells(&[overlapping.clone(), overlapping]);
    }

    #[test]
    fn captions_are_apart_and_inside_the_picture() {
        let long = "words of a description that is longer than any picture is wide ".repeat(6);
        let mut small = film_of(1, &"a scheme with a long name ".repeat(4), 100, 5).0;
        let counter =
            |number: usize| FilmCounter { name: format!("things of kind {number} counted"), unit: "1".into() };
        small.counters = (0..12).map(counter).collect();
        small.frames.iter_mut().for_each(|frame| frame.counters = vec![1_234_567; 12]);
        let large = film_of(2, "another", 20_000, 5).0;
        let of_words = Caption { title: long.clone(), description: long.clone(), look_for: long, ..caption() };
        for films in [vec![small.clone()], vec![small.clone(), small.clone()], vec![small.clone(), large, small]] {
            let svg = still(&of_words, &films);
            check_texts(&svg);
            let words: String = texts(&svg).into_iter().map(|(_, words)| words + " ").collect();
            assert!(words.contains("things of kind 11 counted"), "nothing is left out");
        }
    }

    #[test]
    fn a_picture_is_whole_and_small() {
        let films: Vec<Film> = (1..4).map(|seed| film_of(seed, "a <policy>", 5_000, 20).0).collect();
        let caption = caption();
        let svg = still(&caption, &films);
        assert_eq!(svg, still(&caption, &films));
        well_formed::check(&svg).unwrap();
        assert_eq!(svg.matches("http").count(), 1, "the name of the language, and nothing else");
        assert!(svg.len() < 500_000, "{}", svg.len());
        assert!(
            svg.contains("Fewer marks.") && svg.contains("Across, then down: tracks in the order of their addresses")
        );
        assert!(svg.contains("level 3, the older the fainter") && svg.contains("2,000 pairs"));
    }

    /// The strips of the second device begin below the last of the first, and no two share a place.
    #[test]
    fn devices_are_drawn_below_each_other() {
        let film = film_of_two_devices(30, 300);
        let (tops, end) = tops(&film);
        let strip = side(&film) + GAP;
        let lines = |cells: u32| cells.div_ceil(columns(&film));
        assert_eq!(tops, [0, lines(30) * strip + MARGIN / 2]);
        assert_eq!(end, tops[1] + lines(300) * strip);
        let mut svg = String::new();
        draw(&mut svg, &film, Shade::Age, 0, 0);
        let ground = svg.split_once("class=\"free\" d=\"").unwrap().1.split_once('"').unwrap().0;
        let begun: Vec<&str> = ground.split('z').filter_map(|part| part.split_once('h')).map(|part| part.0).collect();
        let expected = [(0, lines(30)), (tops[1], lines(300))];
        let expected: Vec<String> = expected
            .iter()
            .flat_map(|(top, lines)| (0..*lines).map(move |line| format!("M0 {}", top + line * strip)))
            .collect();
        assert_eq!(begun, expected);
        assert!(svg.contains("class=\"cached-blocks\"") && svg.contains("class=\"retired\""));
    }
}
