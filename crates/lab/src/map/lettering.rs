//! Text of pictures: how wide it is, where it is broken, and its SVG.
//!
//! A picture names no font, so widths are those of DejaVu Sans, which is wider than most: text that fits with them fits.

use crate::report::escape;
use std::fmt::Write;

/// Widths of the printable ASCII characters from the blank on, in hundredths of the size of the letters (DejaVu Sans 2.37, rounded up).
const WIDTHS: [u8; 95] = [
    32, 41, 46, 84, 64, 96, 78, 28, 40, 40, 50, 84, 32, 37, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84,
    84, 84, 54, 100, 69, 69, 70, 77, 64, 58, 78, 76, 30, 30, 66, 56, 87, 75, 79, 61, 79, 70, 64, 62, 74, 69, 99, 69,
    62, 69, 40, 34, 40, 84, 50, 50, 62, 64, 55, 64, 62, 36, 64, 64, 28, 28, 58, 28, 98, 64, 62, 64, 64, 42, 53, 40, 64,
    60, 82, 60, 60, 53, 64, 34, 64, 84,
];

/// Width of every other character, in the same unit.
const OTHER_WIDTH: u8 = 100;

/// Width of bold letters relative to others, at most: that of the narrow ones.
const BOLD: f64 = 1.27;

/// Colour of text. Its contrast to white is 15.9 to 1.
const INK: &str = "#222222";

/// Colour of text that explains. Its contrast to white is 7.5 to 1.
const FAINT_INK: &str = "#555555";

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    /// Size of the letters, in units of the picture.
    pub(super) size: u32,
    pub(super) is_bold: bool,
    pub(super) is_faint: bool,
}

/// The title of a picture.
pub(super) const TITLE: Style = Style { size: 16, is_bold: true, is_faint: false };
/// The name of a part of it.
pub(super) const NAME: Style = Style { size: 14, is_bold: true, is_faint: false };
/// Text of the label.
pub(super) const WORDS: Style = Style { size: 12, is_bold: false, is_faint: true };
/// An entry of a legend.
pub(super) const ENTRY: Style = Style { size: 12, is_bold: false, is_faint: false };
/// Numbers along an axis.
pub(super) const TICK: Style = Style { size: 11, is_bold: false, is_faint: false };

/// Which point of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Style {
    /// Distance of the lines of a paragraph.
    pub(super) fn line_height(self) -> u32 {
        self.size + self.size / 3
    }

    /// Width of a text, at most.
    pub(super) fn width(self, text: &str) -> f64 {
        let of = |character: char| {
            let printable = (character as usize).checked_sub(' ' as usize);
            printable.and_then(|index| WIDTHS.get(index)).copied().unwrap_or(OTHER_WIDTH)
        };
        let hundredths: u64 = text.chars().map(|character| u64::from(of(character))).sum();
        hundredths as f64 / 100.0 * f64::from(self.size) * if self.is_bold { BOLD } else { 1.0 }
    }

    /// The words of `text` in lines of at most `most` units. A word that is wider is broken.
    pub(super) fn wrap(self, text: &str, most: u32) -> Vec<String> {
        let most = f64::from(most);
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            if let Some(line) = lines.last_mut()
                && self.width(&format!("{line} {word}")) <= most
            {
                line.push(' ');
                line.push_str(word);
                continue;
            }
            lines.push(String::new());
            for character in word.chars() {
                match lines.last_mut() {
                    Some(line) if line.is_empty() || self.width(&format!("{line}{character}")) <= most => {
                        line.push(character)
                    }
                    _ => lines.push(character.to_string()),
                }
            }
        }
        lines
    }

    /// Appends a line of text whose anchor is at `x` and whose letters stand on `y`.
    pub(super) fn write(self, svg: &mut String, x: f64, y: f64, anchor: Anchor, text: &str) {
        let weight = if self.is_bold { " font-weight=\"bold\"" } else { "" };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (size, ink) = (self.size, if self.is_faint { FAINT_INK } else { INK });
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\"{weight}{anchor} fill=\"{ink}\">{}</text>",
            escape(text)
        );
    }

    /// Appends a paragraph of at most `most` units of width below `top`; returns where it ends.
    pub(super) fn paragraph(self, svg: &mut String, x: u32, top: u32, most: u32, text: &str) -> u32 {
        let mut top = top;
        for line in self.wrap(text, most) {
            self.write(svg, x.into(), (top + self.size).into(), Anchor::Start, &line);
            top += self.line_height();
        }
        top
    }
}

/// Checks on pictures, for tests.
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use resvg::{tiny_skia, usvg};

    /// A text of a picture: left, top, right, bottom, and the words.
    type TextBox = ([f64; 4], String);

    /// Every text of a picture.
    pub(crate) fn texts(svg: &str) -> Vec<TextBox> {
        let elements = svg.split("<text ").skip(1).map(|rest| rest.split_once("</text>").unwrap().0);
        elements
            .map(|element| {
                let (attributes, words) = element.split_once('>').unwrap();
                let words =
                    words.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
                let attribute = |name: &str| {
                    let found =
                        format!(" {attributes}").split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.to_owned());
                    found.map(|rest| rest.split_once('"').unwrap().0.to_owned())
                };
                let number = |name: &str| attribute(name).unwrap().parse::<f64>().unwrap();
                let (x, y, size) = (number("x"), number("y"), number("font-size"));
                let style = Style { size: size as u32, is_bold: attribute("font-weight").is_some(), is_faint: false };
                let width = style.width(&words);
                let left = match attribute("text-anchor").as_deref() {
                    None => x,
                    Some("middle") => x - width / 2.0,
                    Some(_) => x - width,
                };
                ([left, y - 0.8 * size, left + width, y + 0.24 * size], words)
            })
            .collect()
    }

    /// Checks that texts are inside the picture and do not touch each other.
    pub(crate) fn check_texts(svg: &str) {
        let picture = render(svg);
        let all = texts(svg);
        assert!(!all.is_empty());
        for (number, ([left, top, right, bottom], words)) in all.iter().enumerate() {
            let inside =
                *left >= 0.0 && *top >= 0.0 && *right <= picture.width().into() && *bottom <= picture.height().into();
            assert!(
                inside,
                "'{words}' leaves the picture of {} by {}: {:?}",
                picture.width(),
                picture.height(),
                all[number].0
            );
            for (other, name) in &all[..number] {
                let apart = *left >= other[2] || *right <= other[0] || *top >= other[3] || *bottom <= other[1];
                assert!(apart, "'{words}' is printed over '{name}'");
            }
        }
    }

    /// Draws a picture as a browser does, without its texts.
    pub(crate) fn render(svg: &str) -> tiny_skia::Pixmap {
        let tree = usvg::Tree::from_str(svg, &usvg::Options::default()).unwrap();
        let size = tree.size().to_int_size();
        let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height()).unwrap();
        resvg::render(&tree, tiny_skia::Transform::default(), &mut pixels.as_mut());
        pixels
    }

    /// Red, green and blue of a pixel that nothing shines through.
    pub(crate) fn pixel(picture: &tiny_skia::Pixmap, x: u32, y: u32) -> [u8; 3] {
        let found = picture.pixel(x, y).unwrap();
        assert_eq!(found.alpha(), 255, "{x}, {y}");
        [found.red(), found.green(), found.blue()]
    }

    /// The parts of a colour `#rrggbb`.
    pub(crate) fn parts(color: &str) -> [u8; 3] {
        [1, 3, 5].map(|at| u8::from_str_radix(&color[at..at + 2], 16).unwrap())
    }

    /// Contrast of two colours, from 1 to 21 (Web Content Accessibility Guidelines 2.1, "contrast ratio").
    pub(crate) fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |color: &str| {
            let linear = parts(color).map(|part| {
                let share = f64::from(part) / 255.0;
                if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        let [one, other] = [one, other].map(luminance);
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_is_broken_where_it_is_too_wide() {
        assert_eq!(ENTRY.width("ii"), 12.0 * 0.56);
        assert_eq!(ENTRY.wrap("", 100), Vec::<String>::new());
        let text = "every word of a text of words, and a-word-that-is-too-wide-for-any-line of it";
        for most in [40, 60, 100, 1000] {
            let lines = ENTRY.wrap(text, most);
            assert!(lines.iter().all(|line| ENTRY.width(line) <= most.into()), "{lines:?}");
            assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
        }
        assert_eq!(ENTRY.wrap(text, 1000).len(), 1);
    }

    #[test]
    fn text_can_be_read() {
        assert!(contrast("#000000", "#ffffff") > 20.9);
        assert!(contrast(INK, "#ffffff") > 7.0 && contrast(FAINT_INK, "#ffffff") > 7.0);
    }

    #[test]
    #[should_panic(expected = "'two' is printed over 'one'")]
    fn texts_over_each_other_are_found() {
        let mut svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"50\">".to_owned();
        ENTRY.write(&mut svg, 10.0, 20.0, Anchor::Start, "one");
        ENTRY.write(&mut svg, 40.0, 24.0, Anchor::End, "two");
        check_texts(&format!("{svg}</svg>"));
    }

    #[test]
    #[should_panic(expected = "leaves the picture")]
    fn texts_outside_are_found() {
        let mut svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"30\" height=\"50\">".to_owned();
        ENTRY.write(&mut svg, 10.0, 20.0, Anchor::Start, "too wide");
        check_texts(&format!("{svg}</svg>"));
    }
}
