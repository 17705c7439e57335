//! What holds for the text of every source: finished, not too long, plain characters.

use super::lexer;
use super::{Finding, Source};

/// A file of more lines hides a second thing.
const LINES_MAX: usize = 1_000;

/// Words of unfinished work. Written in two parts, so that this file has none.
const UNFINISHED: &[&str] = &[concat!("FIX", "ME"), concat!("TO", "DO"), concat!("X", "XX"), concat!("HA", "CK")];

/// Macros of unfinished work.
const UNFINISHED_MACROS: &[&str] = &["dbg", "todo", "unimplemented"];

/// How lines begin that a merge left between two versions.
const CONFLICT_MARKS: &[&str] = &[concat!("<<<<", "<<< "), concat!(">>>>", ">>> ")];

/// Checks all sources; prose may be long and may have any characters.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        let mut find = |line, message: String| findings.push(Finding { file: source.path.clone(), line, message });
        let prose = source.path.ends_with(".md");
        let lines = source.text.lines().count();
        if !prose && lines > LINES_MAX {
            find(0, format!("{lines} lines, more than {LINES_MAX}: find the second thing in it and move it out"));
        }
        for (index, line) in source.text.lines().enumerate() {
            if CONFLICT_MARKS.iter().any(|mark| line.starts_with(mark)) {
                find(index + 1, "a merge left both versions: choose".to_owned());
            }
            for word in UNFINISHED {
                if has_word(line, word) {
                    find(index + 1, format!("{word}: finish it or write it down as a known limit"));
                }
            }
            if !prose && let Some(character) = line.chars().find(|character| !character.is_ascii()) {
                find(index + 1, format!("{character:?} is not ASCII: write an escape or another word"));
            }
        }
        if source.path.ends_with(".rs") {
            // The other checks take such a file for an empty one.
            let tokens = lexer::tokens(&source.text).unwrap_or_else(|lexer::NotRust { line }| {
                find(line, "is not Rust: a token or a bracket is not finished".to_owned());
                Vec::new()
            });
            for window in tokens.windows(2) {
                if let Some(name) = window[0].name()
                    && UNFINISHED_MACROS.contains(&name)
                    && window[1].is('!')
                {
                    find(window[0].line, format!("{name}! is unfinished work"));
                }
            }
        }
    }
    findings
}

/// Whether `word` stands in `line` by itself.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        !line[..start].ends_with(part_of_word) && !line[start + word.len()..].starts_with(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[Source { path: path.to_owned(), text: text.to_owned() }]).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in UNFINISHED {
            assert_eq!(found("a.rs", &format!("fn f() {{}}\n// {word}: later")).len(), 1, "{word}");
            assert_eq!(found("a.md", word).len(), 1, "{word}");
            assert!(found("a.rs", &format!("// {word}S and MY{word}")).is_empty(), "{word}");
        }
        assert_eq!(found("a.rs", concat!("fn f() {\n    to", "do!()\n}")), ["a.rs:2: todo! is unfinished work"]);
        assert_eq!(found("a.rs", concat!("fn f() { unimple", "mented!(\"x\") }")).len(), 1);
        assert!(found("a.rs", "fn todo() { let unimplemented = !dbg; }").is_empty());
        assert_eq!(found("a.rs", "\nfn f() {")[0], "a.rs:2: is not Rust: a token or a bracket is not finished");
    }

    #[test]
    fn marks_of_conflicts_are_found() {
        for mark in CONFLICT_MARKS {
            assert_eq!(found("a.md", &format!("a\n{mark}HEAD")), ["a.md:2: a merge left both versions: choose"]);
            assert!(found("a.md", &format!("a {mark}HEAD")).is_empty());
        }
    }

    #[test]
    fn long_files_are_found() {
        assert!(found("a.rs", &"x\n".repeat(LINES_MAX)).is_empty());
        assert_eq!(found("a.rs", &"x\n".repeat(LINES_MAX + 1)).len(), 1);
        assert!(found("a.md", &"x\n".repeat(LINES_MAX + 1)).is_empty());
    }

    #[test]
    fn other_characters_are_found() {
        assert_eq!(
            found("a.toml", "a\nb \u{2192} c"),
            ["a.toml:2: '\u{2192}' is not ASCII: write an escape or another word"]
        );
        assert!(found("a.md", "\u{2192}").is_empty());
    }
}
