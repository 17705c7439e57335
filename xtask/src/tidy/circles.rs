//! Folders of one crate that use each other in a circle: whoever changes one of them changes all.

use super::lexer;
use super::{Finding, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Crates that have none.
const CRATES: &[&str] = &["crates/engine/src/"];

/// An arrow between two folders, and the first place where it is drawn.
type Arrows = BTreeMap<(String, String), (String, usize, String)>;

/// Checks the crates of the table.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    CRATES.iter().flat_map(|root| circles(&arrows(root, sources))).collect()
}

/// The arrows between folders of a crate, of code that is not for tests only. A file that lies beside `lib.rs` is a folder of
/// its own. A folder and what is below it are one thing: a module may know its parts, and they it.
fn arrows(root: &str, sources: &[Source]) -> Arrows {
    let parsed: Vec<(Vec<&str>, &Source, lexer::Divided)> = sources
        .iter()
        .filter_map(|source| Some((source.path.strip_prefix(root)?.strip_suffix(".rs")?, source)))
        .filter(|(place, _)| *place != "lib")
        .map(|(place, source)| {
            (module_of(place), source, lexer::without_tests(lexer::tokens(&source.text).unwrap_or_default()))
        })
        .collect();
    let for_tests: Vec<Vec<&str>> = parsed
        .iter()
        .flat_map(|(module, _, divided)| {
            divided.test_modules.iter().map(|name| [&module[..], &[name.as_str()]].concat())
        })
        .collect();
    let folders: BTreeSet<String> = parsed
        .iter()
        .flat_map(|(module, source, _)| {
            let own =
                if source.path.ends_with("/mod.rs") || module.len() == 1 { module.len() } else { module.len() - 1 };
            (1..=own).map(|count| module[..count].join("/"))
        })
        .collect();
    let folder_of = |path: &[&str]| -> Option<String> {
        (1..=path.len()).rev().map(|count| path[..count].join("/")).find(|place| folders.contains(place))
    };
    let is_inside = |outer: &str, inner: &str| inner == outer || inner.starts_with(&format!("{outer}/"));
    let mut arrows = Arrows::new();
    for (module, source, divided) in &parsed {
        let Some(from) = folder_of(module).filter(|_| !for_tests.iter().any(|test| module.starts_with(test))) else {
            continue;
        };
        for named in lexer::paths(&divided.tokens) {
            let path: Vec<&str> = named.path.split("::").collect();
            let supers = path.iter().take_while(|part| **part == "super").count();
            let base = match path[0] {
                "crate" => 0,
                "super" if supers <= module.len() => module.len() - supers,
                _ => continue,
            };
            let target = [&module[..base], &path[supers.max(1)..]].concat();
            let Some(to) = folder_of(&target) else { continue };
            if !is_inside(&from, &to) && !is_inside(&to, &from) {
                let drawn = (source.path.clone(), named.line, named.path.clone());
                arrows.entry((from.clone(), to)).or_insert(drawn);
            }
        }
    }
    arrows
}

/// The path of a module in its crate, from that of its file.
fn module_of(place: &str) -> Vec<&str> {
    let parts: Vec<&str> = place.split('/').collect();
    match parts.split_last() {
        Some((&"mod", above)) => above.to_vec(),
        _ => parts,
    }
}

/// Every arrow from whose end its beginning can be reached.
fn circles(arrows: &Arrows) -> Vec<Finding> {
    let closes =
        |((from, to), _): &(&(String, String), &(String, usize, String))| reached(arrows, to).contains(&**from);
    let finding = |((from, to), (file, line, path)): (&(String, String), &(String, usize, String))| Finding {
        file: file.clone(),
        line: *line,
        message: format!("{path}: {from} uses {to}, which uses {from} too; move what both need below them"),
    };
    arrows.iter().filter(closes).map(finding).collect()
}

fn reached<'a>(arrows: &'a Arrows, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
    while let Some(place) = open.pop() {
        for (_, end) in arrows.keys().filter(|(begin, _)| begin == place) {
            if seen.insert(end) {
                open.push(end);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let source = |(place, text): &(&str, &str)| Source { path: format!("c/src/{place}"), text: (*text).to_owned() };
        let sources: Vec<Source> = files.iter().map(source).collect();
        let findings = circles(&arrows("c/src/", &sources));
        findings.into_iter().map(|finding| (finding.file["c/src/".len()..].to_owned(), finding.line)).collect()
    }

    #[test]
    fn a_circle_is_found_at_each_of_its_arrows() {
        let three = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod deep;"),
            ("a/deep.rs", "\nuse crate::b::B;"),
            ("b.rs", "use crate::c::{d::D, E};"),
            ("c/d.rs", "use super::super::a::A;"),
        ];
        assert_eq!(found(&three), [("a/deep.rs".to_owned(), 2), ("b.rs".to_owned(), 1), ("c/d.rs".to_owned(), 1)]);
        assert_eq!(found(&three[..4]), []);
    }

    #[test]
    fn parts_may_know_their_module_and_tests_everything() {
        let nested = [("a/mod.rs", "use crate::a::b::B;"), ("a/b/mod.rs", "use crate::a::A; use super::A;")];
        assert_eq!(found(&nested), []);
        let siblings = [("a/b/x.rs", "use crate::a::c::C;"), ("a/c/y.rs", "use crate::a::b::B;")];
        assert_eq!(found(&siblings).len(), 2);
        let tests = [("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a::A; }")];
        assert_eq!(found(&tests), []);
    }
}
