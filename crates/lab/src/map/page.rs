//! One file of HTML that shows films side by side: no network, no library, no font.

use super::film::Film;
use super::palette;
use crate::error::LabError;
use crate::report::escape;

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
    /// Everything is this many times larger in full.
    pub scale_denominator: u64,
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
        "uses": uses,
        "films": films.iter().map(Film::to_json).collect::<Vec<_>>(),
    });
    // A name may hold anything; nothing in it may end the element.
    let data = data.to_string().replace('<', "\\u003c");
    let mut html = String::with_capacity(data.len() + TEMPLATE.len() + STYLE.len() + SCRIPT.len());
    let mut rest = TEMPLATE;
    // One pass, so that nothing that is put in is looked through.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        html.push_str(before);
        match name {
            "title" => html.push_str(&escape(&caption.title)),
            "description" => html.push_str(&escape(&caption.description)),
            "cell" => html.push_str(&escape(&caption.cell)),
            "style" => html.push_str(STYLE),
            "script" => html.push_str(SCRIPT),
            "data" => html.push_str(&data),
            _ => return Err(LabError::invalid("map", format!("the page's template asks for '{name}'"))),
        }
        rest = after;
    }
    html.push_str(rest);
    Ok(html)
}

#[cfg(test)]
mod tests {
    use super::super::film::tests::film_of;
    use super::super::well_formed;
    use super::*;

    fn caption() -> Caption {
        Caption {
            title: "a map & <more>".into(),
            description: "what \"was\" run".into(),
            cell: "track".into(),
            operations: "pairs".into(),
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
        assert_eq!(data["films"][1]["frames"].as_array().unwrap().len(), 6);
        assert_eq!(data["colors"].as_array().unwrap().len(), palette::LEVELS.len());
        assert!(body.contains("a map &amp; &lt;more&gt;"));
    }

    #[test]
    fn films_play_in_step_or_not_at_all() {
        assert!(page(&caption(), &[]).is_err());
        let films = [film_of(1, "one", 200, 5).0, film_of(2, "two", 300, 6).0];
        let error = page(&caption(), &films).unwrap_err().to_string();
        assert!(error.contains("not 6, 7"), "{error}");
    }

    #[test]
    fn every_use_has_a_legend() {
        let data = film_of(1, "one", 10, 1).0.to_json();
        let usages: Vec<&str> =
            data["usages"].as_array().unwrap().iter().map(|usage| usage.as_str().unwrap()).collect();
        assert_eq!(usages, palette::USES.map(|(usage, ..)| usage.name()));
    }
}
