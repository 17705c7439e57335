//! The last frame of films as a picture that stands still.

use super::film::{CellState, Film, Row, WHOLE};
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

/// Above the strips of a film: its name, what was counted, and what runs along its axes.
const HEAD: u32 = 70;

const LEGEND_LINE: u32 = 20;

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

fn height(film: &Film) -> u32 {
    HEAD + tops(film).1
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

/// Films in rows of at most two, with a legend; those that show overlap twice, by age and by overlap.
pub fn still(caption: &Caption, films: &[Film]) -> String {
    let has_overlaps = films.iter().any(|film| film.has_overlaps);
    let shades: &[Shade] = if has_overlaps { &[Shade::Age, Shade::Overlap] } else { &[Shade::Age] };
    let across = films.len().clamp(1, 2);
    let width_of = |film: &Film| columns(film) * side(film) + side(film) + MARGIN;
    let film_width = films.iter().map(width_of).max().unwrap_or(0);
    let width = (film_width * across as u32 + MARGIN).max(1000);
    let rows: Vec<(Shade, &[Film])> =
        shades.iter().flat_map(|&shade| films.chunks(across).map(move |row| (shade, row))).collect();
    let body: u32 = rows.iter().map(|(_, row)| row.iter().map(height).max().unwrap_or(0) + MARGIN).sum();
    let top = 84;
    let height_all = top + body + 9 * LEGEND_LINE + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height_all}\" width=\"{width}\" \
         height=\"{height_all}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n<title>{}</title>\n<defs>\
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
         .cached-blocks{{fill:url(#cached-blocks)}}.retired{{fill:url(#retired)}}.metadata{{fill:#333}}.reserved{{fill:#bbb}}.free{{fill:#ececec}}\
         .mark{{fill:#000}}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escape(&caption.title)
    );
    text(&mut svg, MARGIN, 28, "font-size=\"16\" font-weight=\"bold\"", &caption.title);
    text(&mut svg, MARGIN, 48, "fill=\"#555\"", &caption.description);
    text(&mut svg, MARGIN, 66, "fill=\"#555\"", &verdict(caption, films));
    let mut y = top;
    for (shade, row) in rows {
        for (column, film) in row.iter().enumerate() {
            let name = match (has_overlaps, shade) {
                (false, _) => film.name.clone(),
                (true, Shade::Age) => format!("{}, by age", film.name),
                (true, Shade::Overlap) => format!("{}, by overlap", film.name),
            };
            let (x, summary) = (MARGIN + column as u32 * film_width, summary(caption, film));
            text(&mut svg, x, y + 14, "font-size=\"14\" font-weight=\"bold\"", &name);
            text(&mut svg, x, y + 32, "fill=\"#555\"", &summary);
            text(&mut svg, x, y + 50, "fill=\"#555\"", &axes(caption, film));
            draw(&mut svg, film, shade, x, y + HEAD);
        }
        y += row.iter().map(height).max().unwrap_or(0) + MARGIN;
    }
    legend(&mut svg, caption, films, y);
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, x: u32, y: u32, attributes: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" {attributes}>{}</text>", escape(text));
}

/// What runs along the axes of a film's picture.
fn axes(caption: &Caption, film: &Film) -> String {
    let mut told = format!("Across, then down: {}s in the order they lie", caption.cell);
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
            let _ = write!(ground, "M{} {top}h{}v{side}h-{0}z", x + shift, part.len() as u32 * side);
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

fn legend(svg: &mut String, caption: &Caption, films: &[Film], y: u32) {
    let has_overlaps = films.iter().any(|film| film.has_overlaps);
    let mut line = 0;
    let mut entry = |attributes: &str, words: &str| {
        let (x, top) = (MARGIN + (line % 2) * 480, y + line / 2 * LEGEND_LINE);
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{top}\" width=\"12\" height=\"12\" stroke=\"#999\" {attributes}/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", x + 20, top + 10, escape(words));
        line += 1;
    };
    let (mut levels, mut usages) = (Vec::new(), Vec::new());
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
        entry(&format!("fill=\"{}\"", LEVELS[level]), &words);
    }
    for (usage, name, meaning) in palette::USES.iter().filter(|(usage, ..)| usages.contains(usage)) {
        let class = if *usage == PieceUsage::Free { "free".to_owned() } else { usage.name().replace(' ', "-") };
        entry(&format!("class=\"{class}\""), &format!("{name}: {meaning}"));
    }
    match has_overlaps {
        true => entry("class=\"free\"", &format!("a {} is filled as far as what it holds counts", caption.cell)),
        false => {
            let words = format!("a {} with a black square was rewritten in the last interval", caption.cell);
            entry("class=\"mark\"", &words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::film::tests::{film_of, film_of_two_devices};
    use super::super::well_formed;
    use super::*;

    #[test]
    fn a_picture_is_whole_and_small() {
        let films: Vec<Film> = (1..4).map(|seed| film_of(seed, "a <policy>", 5_000, 20).0).collect();
        let caption = Caption {
            title: "tracks & more".into(),
            description: "a load".into(),
            cell: "track".into(),
            operations: "pairs".into(),
            look_for: "Fewer marks.".into(),
            explanation: String::new(),
            scale_denominator: 1,
        };
        let svg = still(&caption, &films);
        assert_eq!(svg, still(&caption, &films));
        well_formed::check(&svg).unwrap();
        assert_eq!(svg.matches("http").count(), 1, "the name of the language, and nothing else");
        assert!(svg.len() < 500_000, "{}", svg.len());
        assert!(svg.contains("Fewer marks.") && svg.contains("Across, then down: tracks in the order they lie"));
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
