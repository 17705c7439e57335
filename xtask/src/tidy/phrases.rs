//! Limits phrases of the old style under `crates/`: their number may only fall.
//!
//! The style guide bans them in new text. Text that stands is rewritten when its file is touched.

use super::{Finding, Source};

/// Banned phrases, in lower case.
const PHRASES: [&str; 3] = ["so many", "whoever", "told"];

/// Number of lines under `crates/` that contain a banned phrase. Lower it whenever lines were rewritten; never raise it.
const LINES_MAX: usize = 679;

/// Counts the lines of Rust sources that contain a banned phrase.
fn count(sources: &[Source]) -> usize {
    let is_counted = |source: &&Source| source.path.starts_with("crates/") && source.path.ends_with(".rs");
    let lines = sources.iter().filter(is_counted).flat_map(|source| source.text.lines());
    lines.filter(|line| has_phrase(&line.to_lowercase())).count()
}

/// Returns true if a lower-case line contains a banned phrase as whole words.
fn has_phrase(line: &str) -> bool {
    let is_in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    PHRASES.iter().any(|phrase| {
        line.match_indices(phrase).any(|(start, _)| {
            let (before, after) = (&line[..start], &line[start + phrase.len()..]);
            !before.ends_with(is_in_word) && !after.starts_with(is_in_word)
        })
    })
}

/// Reports a count that differs from the recorded one.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    compare(count(sources), LINES_MAX).into_iter().collect()
}

fn compare(found: usize, recorded: usize) -> Option<Finding> {
    let message = match found.cmp(&recorded) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => format!(
            "found {found} lines with a banned phrase ({}), expected at most {recorded}: rewrite the new ones",
            PHRASES.join(", ")
        ),
        std::cmp::Ordering::Less => {
            format!("found {found} lines with a banned phrase, recorded are {recorded}: lower LINES_MAX to {found}")
        }
    };
    Some(Finding { file: "xtask/src/tidy/phrases.rs".to_owned(), line: 0, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn counts_lines_with_whole_phrases() {
        let text = "/// Bytes of so many tables.\nfn retold() {}\nlet told_at = 1;\n// Whoever is told.\n";
        let sources =
            [source("crates/a/src/lib.rs", text), source("xtask/src/a.rs", text), source("crates/a.md", text)];
        assert_eq!(count(&sources), 2);
    }

    #[test]
    fn reports_more_and_fewer_lines_than_recorded() {
        assert_eq!(compare(7, 7), None);
        let message = |found, recorded| compare(found, recorded).map(|finding| finding.message).unwrap_or_default();
        assert!(message(8, 7).contains("rewrite the new ones"));
        assert!(message(6, 7).contains("lower LINES_MAX to 6"));
    }
}
