//! Layout of help texts: each is wrapped once, at the width of the terminal.
//!
//! The texts after the options are written with line breaks of their own. clap would wrap these lines again, so they are
//! laid out here, at the width at which clap wraps the rest.

use crate::Arguments;
use crate::text::{self, gap};
use clap::CommandFactory;

/// Width without a terminal and without `COLUMNS`, in columns.
const USUAL_WIDTH: usize = 100;

/// Indentation of a comment that does not fit next to its example, in columns.
const COMMENT_INDENT: usize = 6;

/// The command line, with help for the terminal.
pub(crate) fn command() -> clap::Command {
    let width = width();
    laid_out(Arguments::command().term_width(width), width)
}

/// Columns of the terminal; `COLUMNS` where there is none.
fn width() -> usize {
    let terminal = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let variable = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal.filter(|&width| width > 0).or_else(variable).filter(|&width| width > 0).unwrap_or(USUAL_WIDTH)
}

/// `command` and its subcommands, with the texts after their options at most `width` columns wide.
fn laid_out(mut command: clap::Command, width: usize) -> clap::Command {
    if let Some(after) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(lay_out(&after, width));
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| command.mut_subcommand(name, |sub| laid_out(sub, width)))
}

/// Lays out a text of paragraphs, whose lines begin without blanks, and of indented lines, which stand by themselves.
fn lay_out(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut paragraph = String::new();
    let end = |paragraph: &mut String, lines: &mut Vec<String>| {
        if !paragraph.is_empty() {
            lines.push(text::wrap(paragraph, width, 0));
            paragraph.clear();
        }
    };
    for line in text.lines() {
        if !line.is_empty() && !line.starts_with(' ') {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
            continue;
        }
        end(&mut paragraph, &mut lines);
        lines.push(indented(line, width));
    }
    end(&mut paragraph, &mut lines);
    lines.join("\n")
}

/// An indented line: an example, perhaps with a comment after two blanks or more, or a term and its meaning.
fn indented(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let indent = line.len() - line.trim_start().len();
    match gap(line) {
        // The second column is wrapped in place if that leaves most of the line to it.
        Some((_, second)) if second <= width / 3 => text::wrap(line, width, second),
        Some((first, second)) => {
            let example = text::wrap(&line[..first], width, indent + 4);
            let comment = format!("{}{}", " ".repeat(COMMENT_INDENT), &line[second..]);
            format!("{example}\n{}", text::wrap(&comment, width, COMMENT_INDENT))
        }
        None => text::wrap(line, width, indent + 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts after the options of `command` and all below it.
    fn texts(command: &clap::Command, found: &mut Vec<String>) {
        found.extend(command.get_after_help().map(ToString::to_string));
        command.get_subcommands().for_each(|sub| texts(sub, found));
    }

    #[test]
    fn wraps_paragraphs_once() {
        let text = "Examples:\n  a b   does a thing\n\nThe first line\nand the second.\nA third: it is\n  [x]\n  y";
        let expected = "Examples:\n  a b   does a thing\n\nThe first line and the second. A third: it is\n  [x]\n  y";
        assert_eq!(lay_out(text, 100), expected);
        let narrow = "Examples:\n  a b   does a thing\n\nThe first line and the\nsecond. A third: it is\n  [x]\n  y";
        assert_eq!(lay_out(text, 24), narrow);
    }

    #[test]
    fn wraps_comments_in_their_column_or_below() {
        let codes = "Codes:\n  1  one two three four five six seven";
        assert_eq!(lay_out(codes, 26), "Codes:\n  1  one two three four\n     five six seven");
        let example = "  varve put /tmp/db colour blue   store a pair of this and that";
        assert_eq!(lay_out(example, 40), "  varve put /tmp/db colour blue\n      store a pair of this and that");
        assert_eq!(lay_out(example, 63), example);
    }

    /// No word is lost, no line is wider than the terminal unless a word is, and no paragraph is broken before it has to be.
    #[test]
    fn every_text_fits_any_terminal() {
        let mut all = Vec::new();
        texts(&Arguments::command(), &mut all);
        assert!(all.len() > 20, "{}", all.len());
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for text in &all {
            for width in [40, 60, 80, 100, 120, 200] {
                let laid = lay_out(text, width);
                assert_eq!(words(&laid), words(text));
                for line in laid.lines().filter(|line| line.chars().count() > width) {
                    assert_eq!(line.split_whitespace().count(), 1, "{width}: {line}");
                }
                for (line, next) in laid.lines().zip(laid.lines().skip(1)) {
                    let is_prose = [line, next].iter().all(|line| !line.is_empty() && !line.starts_with(' '));
                    let word = next.split_whitespace().next().unwrap_or_default();
                    assert!(!is_prose || line.len() + 1 + word.len() > width, "{width}: '{line}' before '{next}'");
                }
            }
        }
    }
}
