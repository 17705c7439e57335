//! Links of documents, and mentions of documents in sources, lead somewhere.

use super::{Finding, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Checks every link in a Markdown file and every `docs/NAME.md` a source mentions against `paths`,
/// the files and directories of the workspace.
pub(crate) fn check(sources: &[Source], paths: &BTreeSet<PathBuf>) -> Vec<Finding> {
    let documents: BTreeMap<&str, &Source> =
        sources.iter().filter(|source| source.path.ends_with(".md")).map(|s| (s.path.as_str(), s)).collect();
    let mut findings = Vec::new();
    // This checker's own sources are full of planted breaches.
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask/src/tidy/")) {
        let links = if source.path.ends_with(".md") { markdown_links(&source.text) } else { mentions(&source.text) };
        for (line, target) in links {
            let problem = if source.path.ends_with(".md") {
                broken(&source.path, &target, paths, &documents)
            } else {
                broken("", &target, paths, &documents)
            };
            if let Some(problem) = problem {
                let message = format!("link to {target:?}: {problem}");
                findings.push(Finding { file: source.path.clone(), line, message });
            }
        }
    }
    findings
}

/// Why a link from `file` leads nowhere, if it does.
fn broken(file: &str, target: &str, paths: &BTreeSet<PathBuf>, documents: &BTreeMap<&str, &Source>) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = if path.is_empty() { file.to_owned() } else { resolve(file, path)? };
    if !paths.contains(Path::new(&to)) {
        return Some(format!("there is no {to}"));
    }
    let document = documents.get(to.as_str())?;
    if anchor.is_empty() || anchors(&document.text).contains(anchor) {
        return None;
    }
    Some(format!("{to} has no heading #{anchor}"))
}

/// The path `link` means in `file`, from the root; none if that is outside the workspace.
fn resolve(file: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = if link.starts_with('/') { vec![] } else { file.split('/').collect() };
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines of `text` outside fenced code, numbered from 1.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((index + 1, line))
    })
}

/// The targets of inline and reference links that lead into the workspace.
fn markdown_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose_lines(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let end = rest.find([')', ' ']).unwrap_or(rest.len());
            links.push((number, rest[..end].to_owned()));
            rest = &rest[end..];
        }
        if line.starts_with('[')
            && let Some((label, target)) = line.split_once("]:")
            && !label.contains(' ')
        {
            links.push((number, target.split_whitespace().next().unwrap_or_default().to_owned()));
        }
    }
    links.retain(|(_, target)| !target.contains("://") && !target.starts_with("mailto:"));
    links
}

/// A line without its `code` spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Documents a source names, as `docs/formats.md` or `docs/formats.md#log`.
fn mentions(text: &str) -> Vec<(usize, String)> {
    let in_target = |character: char| character.is_ascii_alphanumeric() || "-_./#".contains(character);
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (start, _) in line.match_indices("docs/") {
            if line[..start].ends_with(|character: char| in_target(character) && character != '/')
                || line[..start].ends_with("../")
                || line[..start].contains("http")
            {
                continue;
            }
            let length = line[start..].find(|character| !in_target(character)).unwrap_or(line.len() - start);
            let target = line[start..start + length].trim_end_matches(['.', '#']);
            if target.split('#').next().is_some_and(|path| path.ends_with(".md")) {
                found.push((index + 1, target.to_owned()));
            }
        }
    }
    found
}

/// What headings can be linked to as: lower case, spaces as hyphens, no punctuation; a number is
/// appended to repetitions.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose_lines(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor: String = title
            .trim()
            .chars()
            .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
            .map(|character| if character == ' ' { '-' } else { character.to_ascii_lowercase() })
            .collect();
        let mut unique = anchor.clone();
        let mut repetition = 0;
        while !anchors.insert(unique.clone()) {
            repetition += 1;
            unique = format!("{anchor}-{repetition}");
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: &str = "# Formats\n\n## The log: frames & `blocks`\n\n```\n# not a heading [x](nowhere)\n```\n\n\
        ## Again\n## Again\n\n";

    fn found(more: &str) -> Vec<String> {
        let sources = [
            Source { path: "docs/formats.md".into(), text: format!("{FORMATS}{more}") },
            Source { path: "README.md".into(), text: "[formats](docs/formats.md#again-1)".into() },
            Source { path: "crates/a/src/log.rs".into(), text: "// docs/formats.md#the-log-frames--blocks.".into() },
        ];
        let paths = ["docs", "docs/formats.md", "README.md", "crates/a/src/log.rs", "crates/a"];
        let paths = paths.into_iter().map(PathBuf::from).collect();
        check(&sources, &paths).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](../crates/a/src/log.rs) [b](#again) [c](../crates/a/) [d](https://example.org/x#y) `[e](f)`\n\
            [g]: ../README.md \"title\"\n[h](/README.md) [i](formats.md#formats \"title\")";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(
            found("[a](../crates/a/src/table.rs) and [b](#never)\n[c]: gone.md\n[d](../README.md#x)"),
            [
                "docs/formats.md:12: link to \"../crates/a/src/table.rs\": there is no crates/a/src/table.rs",
                "docs/formats.md:12: link to \"#never\": docs/formats.md has no heading #never",
                "docs/formats.md:13: link to \"gone.md\": there is no docs/gone.md",
                "docs/formats.md:14: link to \"../README.md#x\": README.md has no heading #x",
            ]
        );
    }

    #[test]
    fn sources_mention_documents_that_exist() {
        let source = |text: &str| Source { path: "crates/a/src/log.rs".into(), text: text.into() };
        let broken = |text: &str| check(&[source(text)], &BTreeSet::new()).len();
        assert_eq!(broken("//! See docs/formats.md, and `docs/performance.md#gets`."), 2);
        assert_eq!(broken("//! See https://example.org/docs/formats.md and docs/design/."), 0);
        assert_eq!(broken("let x = \"docs/\";"), 0);
    }
}
