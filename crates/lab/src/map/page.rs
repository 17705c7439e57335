//! One file of HTML that shows films side by side: no network, no library, no font.

use super::film::Film;
use super::palette;
use super::still::OVERLAPS;
use crate::error::LabError;
use crate::report::{escape, format_number};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");

/// What is said about all films of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caption {
    /// Above the pictures.
    pub title: String,
    /// Below the title: what was run.
    pub description: String,
    /// What a cell is called: `track`.
    pub cell: String,
    /// What is counted: `pairs`.
    pub operations: String,
    /// What to look for: what tells a good scheme from a bad one.
    pub look_for: String,
    /// What a reader has to know besides levels and ages: what marks mean.
    pub explanation: String,
    /// Everything is this many times larger in full.
    pub scale_denominator: u64,
}

/// In one line: what is to be seen, and which of the films did better.
pub(super) fn verdict(caption: &Caption, films: &[Film]) -> String {
    let mut rates: Vec<(&str, f64)> = films
        .iter()
        .filter_map(|film| {
            let last = film.frames.last().filter(|last| last.nanos > 0)?;
            Some((film.name.as_str(), last.operations as f64 * 1e9 / last.nanos as f64))
        })
        .collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told = match rates.as_slice() {
        [] => String::new(),
        [(name, only)] => format!(" {name} did {} {} a second.", format_number(*only), caption.operations),
        [(best, most), (next, less), ..] => {
            let times = most / less;
            let (most, less) = (format_number(*most), format_number(*less));
            if times < 1.005 {
                format!(" {best} and {next} were equally fast: {most} and {less} {} a second.", caption.operations)
            } else {
                format!(
                    " {best} did better: {most} {} a second, {} times the {less} of {next}.",
                    caption.operations,
                    format_number(times)
                )
            }
        }
    };
    format!("{}{told}", caption.look_for)
}

/// The page. The films have the same number of frames and play in step.
///
/// # Errors
/// There is no film, or they differ in their number of frames.
pub fn page(caption: &Caption, films: &[Film]) -> Result<String, LabError> {
    let frames = films.first().map_or(0, |film| film.frames.len());
    if frames == 0 || films.iter().any(|film| film.frames.len() != frames) {
        let found: Vec<String> = films.iter().map(|film| film.frames.len().to_string()).collect();
        let reason = format!("films of one page have the same number of frames, not {}", found.join(", "));
        return Err(LabError::invalid("map", reason));
    }
    let uses: Vec<serde_json::Value> = palette::USES
        .iter()
        .map(|(usage, name, meaning)| serde_json::json!({ "key": usage.name(), "name": name, "meaning": meaning }))
        .collect();
    let data = serde_json::json!({
        "schema": 1,
        "title": caption.title,
        "cell": caption.cell,
        "operations": caption.operations,
        "scale": caption.scale_denominator,
        "colors": palette::LEVELS,
        "oldest": palette::OLDEST_STRENGTH,
        "overlaps": films.iter().any(|film| film.has_overlaps),
        "strongest": OVERLAPS,
        "uses": uses,
        "films": films.iter().map(Film::to_json).collect::<Vec<_>>(),
    });
    fill(TEMPLATE, &data, |name| {
        Some(match name {
            "title" => escape(&caption.title),
            "verdict" => escape(&verdict(caption, films)),
            "description" => escape(&caption.description),
            "cell" => escape(&caption.cell),
            "explanation" => escape(&caption.explanation),
            "style" => STYLE.to_owned(),
            "script" => SCRIPT.to_owned(),
            _ => return None,
        })
    })
}

/// A template with what it asks for in its places; what `data` is goes where it asks for that.
///
/// # Errors
/// It asks for something that there is not.
pub(super) fn fill(
    template: &str,
    data: &serde_json::Value,
    find: impl Fn(&str) -> Option<String>,
) -> Result<String, LabError> {
    let mut html = String::with_capacity(template.len());
    let mut rest = template;
    // One pass, so that nothing that is put in is looked through.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        html.push_str(before);
        let found = match name {
            // A name may hold anything; nothing in it may end the element.
            "data" => Some(data.to_string().replace('<', "\\u003c")),
            name => find(name),
        };
        match found {
            Some(found) => html.push_str(&found),
            None => return Err(LabError::invalid("map", format!("the page's template asks for '{name}'"))),
        }
        rest = after;
    }
    html.push_str(rest);
    Ok(html)
}

#[cfg(test)]
mod tests {
    use super::super::film::tests::{film_of, film_of_two_devices};
    use super::super::well_formed;
    use super::*;
    use crate::host;
    use std::collections::BTreeMap;
    use std::path::Path;
    use varve::store::{Occupancy, PieceUsage};

    fn caption() -> Caption {
        Caption {
            title: "a map & <more>".into(),
            description: "what \"was\" run".into(),
            cell: "track".into(),
            operations: "pairs".into(),
            look_for: "The fewer marks, the better.".into(),
            explanation: "what a mark <means>".into(),
            scale_denominator: 256,
        }
    }

    #[test]
    fn a_page_is_whole_and_needs_nothing_else() {
        let films = [film_of(1, "one </script>", 200, 5).0, film_of(2, "two", 300, 5).0];
        let html = page(&caption(), &films).unwrap();
        assert_eq!(html, page(&caption(), &films).unwrap());
        for foreign in ["http:", "https:", "//cdn", "src=", "href=", "@import", "url(", "{{title", "{{data"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        // Scripts and styles hold what is not markup.
        let (head, rest) = html.split_once("<style>").unwrap();
        let (style, rest) = rest.split_once("</style>").unwrap();
        let (body, rest) = rest.split_once("<script type=\"application/json\" id=\"films-data\">").unwrap();
        let (data, rest) = rest.split_once("</script>").unwrap();
        let (between, rest) = rest.split_once("<script>").unwrap();
        let (script, end) = rest.split_once("</script>").unwrap();
        assert!(!style.contains('<') && !script.contains("</script") && !script.contains("<!--"));
        well_formed::check(&format!("{head}{body}{between}{end}").replace("<!DOCTYPE html>", "")).unwrap();
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["films"][0]["name"], "one </script>");
        assert_eq!(data["films"][1]["frames"].as_array().unwrap().len(), 5);
        assert!(!data["films"][0]["frames"][0]["changes"].as_str().unwrap().is_empty(), "the first frame is not empty");
        assert_eq!(data["colors"].as_array().unwrap().len(), palette::LEVELS.len());
        assert!(body.contains("a map &amp; &lt;more&gt;"));
    }

    /// Runs the page's script on the part of a browser it needs, where Node is installed.
    #[test]
    fn the_script_shows_what_every_frame_holds() {
        let taken =
            [(1, "one </script>", 200), (2, "two", 301)].map(|(seed, name, size)| film_of(seed, name, size, 19));
        let films: Vec<Film> = taken.iter().map(|(film, _)| film.clone()).collect();
        let Some(lines) = shown(&films) else { return };
        let (summary, shown) = lines.split_last().unwrap();
        // Each is reached from both sides.
        assert_eq!(shown.len(), 2 * films[0].frames.len());
        // It opens where the load ends, as where it begins there is next to nothing, and names what runs along its axes.
        assert_eq!(summary["opened"], films[0].frames.len() - 1);
        for axes in summary["axes"].as_array().unwrap() {
            assert!(axes.as_str().unwrap().starts_with("Across and then down: tracks "), "{axes}");
        }
        assert!(summary["axis"].as_str().unwrap().contains("pairs done"), "{summary}");
        // Throughput, and the one counter of these films.
        assert_eq!((&summary["charts"], &summary["shading"]), (&2.into(), &false.into()));
        let legend = summary["legend"].as_str().unwrap();
        assert!(legend.contains("level 4") && legend.contains("removed, not yet free"), "{legend}");
        let mut pictures = std::collections::BTreeSet::new();
        for frame in shown {
            let number = frame["frame"].as_u64().unwrap() as usize;
            for ((film, seen), shown) in taken.iter().zip(frame["films"].as_array().unwrap()) {
                let text = |value: &serde_json::Value| value.as_str().unwrap().replace(',', "");
                assert_eq!(text(&shown["counts"][0][2]), film.frames[number].operations.to_string());
                let columns = shown["columns"].as_array().unwrap();
                for (row, line) in film.rows.iter().zip(shown["tally"].as_array().unwrap()) {
                    let mut found = BTreeMap::new();
                    for (column, count) in columns.iter().zip(line.as_array().unwrap()).skip(1) {
                        found.insert(column.as_str().unwrap().to_owned(), text(count).parse::<usize>().unwrap());
                    }
                    found.retain(|_, count| *count > 0);
                    assert_eq!(found, tally(&seen[number + 1], &row.name), "frame {number} of {}", film.name);
                }
                assert!(shown["said"].as_str().unwrap().starts_with("track "));
                pictures.insert(shown["age"].as_u64().unwrap());
            }
        }
        assert!(pictures.len() > films[0].frames.len(), "{} pictures", pictures.len());
    }

    /// Runs the page's script; the lines it prints, or none where Node is not installed (there is no engine of JavaScript among
    /// the dependencies, which would be larger than the rest of them).
    fn shown(films: &[Film]) -> Option<Vec<serde_json::Value>> {
        let node = Path::new("node");
        if let Err(error) = host::run_program(node, &["--version".to_owned()]) {
            eprintln!("skipped: the page's script is only run where node is installed ({error})");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let [page_path, harness_path] = ["page.html", "harness.js"].map(|name| directory.path().join(name));
        host::write_file(&page_path, page(&caption(), films).unwrap().as_bytes()).unwrap();
        host::write_file(&harness_path, include_bytes!("page/harness.js")).unwrap();
        let arguments = [harness_path, page_path].map(|path| path.display().to_string());
        let printed = String::from_utf8(host::run_program(node, &arguments).unwrap()).unwrap();
        Some(printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn the_script_shows_devices_below_each_other() {
        let films = [film_of_two_devices(20, 300)];
        let Some(lines) = shown(&films) else { return };
        let (summary, frames) = lines.split_last().unwrap();
        let axes = summary["axes"][0].as_str().unwrap();
        assert!(axes.contains("; devices, from above: zone of drive, then zone of disk."), "{axes}");
        assert!(summary["legend"].as_str().unwrap().contains("cached blocks: copies of blocks of a slower device"));
        for frame in frames {
            let film = &frame["films"][0];
            let columns: Vec<&str> =
                film["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            assert_eq!(columns, ["", "level 2", "cached blocks", "free", "retired"]);
            assert_eq!(film["tally"][0], serde_json::json!(["zone of drive", "0", "1", "18", "1"]));
            assert_eq!(film["tally"][1], serde_json::json!(["zone of disk", "1", "0", "299", "0"]));
        }
        // The pointer finds the last cell of the disk, and the keys get from one device to the other and back.
        assert!(summary["last"][0].as_str().unwrap().starts_with("track 299, zone of disk; 000007.sst"), "{summary}");
        let walked: Vec<&str> =
            summary["walked"][0].as_array().unwrap().iter().map(|said| said.as_str().unwrap()).collect();
        assert!(walked[0].contains("zone of disk") && walked[1].contains("zone of drive"), "{walked:?}");
    }

    /// Pieces of a part by what is said of them.
    fn tally(occupancy: &Occupancy, part: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for piece in occupancy.pieces.iter().filter(|piece| piece.part == part) {
            let level = piece.file.and_then(|file| occupancy.files[file as usize].level);
            let said = match piece.usage {
                PieceUsage::Table => level.map_or("no level".to_owned(), |level| format!("level {level}")),
                usage => palette::USES.iter().find(|(of, ..)| *of == usage).unwrap().1.to_owned(),
            };
            *counts.entry(said).or_default() += 1;
        }
        counts
    }

    #[test]
    fn films_play_in_step_or_not_at_all() {
        assert!(page(&caption(), &[]).is_err());
        let films = [film_of(1, "one", 200, 5).0, film_of(2, "two", 300, 6).0];
        let error = page(&caption(), &films).unwrap_err().to_string();
        assert!(error.contains("not 5, 6"), "{error}");
    }

    #[test]
    fn the_verdict_names_the_faster_film() {
        let mut films = [film_of(1, "one", 200, 5).0, film_of(2, "two", 200, 5).0];
        for (film, nanos) in films.iter_mut().zip([2_000_000_000, 1_000_000_000]) {
            let last = film.frames.last_mut().unwrap();
            (last.operations, last.nanos) = (500, nanos);
        }
        let told = verdict(&caption(), &films);
        assert_eq!(told, "The fewer marks, the better. two did better: 500 pairs a second, 2 times the 250 of one.");
        films[0].frames.last_mut().unwrap().nanos = 1_000_000_000;
        assert!(verdict(&caption(), &films).contains("equally fast"));
        assert!(verdict(&caption(), &films[1..]).ends_with("two did 500 pairs a second."));
    }

    #[test]
    fn every_use_has_a_legend() {
        let data = film_of(1, "one", 10, 1).0.to_json();
        let usages: Vec<&str> =
            data["usages"].as_array().unwrap().iter().map(|usage| usage.as_str().unwrap()).collect();
        assert_eq!(usages, palette::USES.map(|(usage, ..)| usage.name()));
    }
}
