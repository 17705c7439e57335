//! The grammar of specs, without the meaning of their words.
//!
//! ```text
//! spec    = path | part { "+" part }
//! part    = kind ":" [ argument ] [ "?" option { ("," | "&") option } ]
//! option  = name [ "=" value ]
//! argument= "(" spec ")" | text
//! value   = "(" spec ")" | kind ":" text | text
//! kind, name = a-z { a-z | 0-9 | "_" | "-" }
//! ```
//!
//! A `path` is a whole spec that does not begin with `kind ":"`; it is taken literally. In a text,
//! `? , & ( ) %` and a `+` followed by `kind ":"` are written as `%` and two hexadecimal digits;
//! any byte may be.

use super::{Part, Spec, SpecError, SpecErrorKind, SpecOption, Value};
use std::sync::Arc;

/// Longest spec, in bytes.
pub(super) const SPEC_BYTES_MAX: usize = 64 << 10;

/// Specs within specs.
const DEPTH_MAX: usize = 8;

/// Length of a `kind` or `name` at the start of `text`; 0 when there is none.
pub(super) fn word_length(text: &[u8]) -> usize {
    if !text.first().is_some_and(u8::is_ascii_lowercase) {
        return 0;
    }
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    text.iter().position(|byte| !is_word(byte)).unwrap_or(text.len())
}

/// Whether `text` begins with `kind ":"`.
pub(super) fn begins_with_kind(text: &[u8]) -> bool {
    let length = word_length(text);
    length > 0 && text.get(length) == Some(&b':')
}

/// Parses a whole spec.
pub(super) fn parse(text: &str) -> Result<Spec, SpecError> {
    if text.len() > SPEC_BYTES_MAX {
        let expected = format!("at most {SPEC_BYTES_MAX} bytes");
        return Err(SpecError::new(SpecErrorKind::Syntax, text, SPEC_BYTES_MAX, text.len(), expected));
    }
    if text.is_empty() {
        let expected = "a path, or a kind of medium and ':' (such as file:, disk: or ram:)";
        return Err(SpecError::new(SpecErrorKind::Syntax, text, 0, 0, expected));
    }
    if !begins_with_kind(text.as_bytes()) {
        if let Some(position) = text.bytes().position(|byte| byte == 0) {
            return Err(SpecError::new(SpecErrorKind::Syntax, text, position, 1, "a path without NUL"));
        }
        return Ok(Spec::of_path_bytes(text.as_bytes()));
    }
    let source: Arc<str> = Arc::from(text);
    let mut parser = Parser { source: &source, at: 0, depth: 0 };
    let spec = parser.spec()?;
    if parser.at < text.len() {
        return Err(parser.unexpected("the end, '?' or '+' and another medium"));
    }
    Ok(spec)
}

struct Parser<'a> {
    source: &'a Arc<str>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &[u8] {
        &self.source.as_bytes()[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn error(&self, position: usize, length: usize, expected: impl Into<String>) -> SpecError {
        SpecError::new(SpecErrorKind::Syntax, self.source, position, length, expected)
    }

    /// An error about the character here.
    fn unexpected(&self, expected: impl Into<String>) -> SpecError {
        let length = self.source.get(self.at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        self.error(self.at, length, expected)
    }

    fn spec(&mut self) -> Result<Spec, SpecError> {
        let mut parts = vec![self.part(true)?];
        while self.peek() == Some(b'+') {
            self.at += 1;
            parts.push(self.part(true)?);
        }
        Ok(Spec { parts, source: self.source.clone() })
    }

    fn part(&mut self, with_options: bool) -> Result<Part, SpecError> {
        let position = self.at;
        let length = word_length(self.rest());
        if length == 0 || self.rest().get(length) != Some(&b':') {
            self.at += length;
            return Err(self.unexpected("a kind of medium and ':' (such as file:, disk: or ram:)"));
        }
        let kind = self.source[position..position + length].to_owned();
        self.at += length + 1;
        let argument_position = self.at;
        let argument = match self.peek() {
            Some(b'(') => Some(Value::Spec(self.nested()?)),
            _ => Some(self.text()?).filter(|text| !text.is_empty()).map(Value::Text),
        };
        let argument_length = self.at - argument_position;
        let mut options = Vec::new();
        if self.peek() == Some(b'?') {
            if !with_options {
                return Err(self.unexpected("parentheses around a spec with options"));
            }
            loop {
                self.at += 1;
                let option = self.option()?;
                if options.iter().any(|other: &SpecOption| other.name == option.name) {
                    return Err(self.error(option.position, option.name.len(), "each option once"));
                }
                options.push(option);
                if !matches!(self.peek(), Some(b',' | b'&')) {
                    break;
                }
            }
        }
        Ok(Part { kind, argument, options, position, argument_position, argument_length, source: self.source.clone() })
    }

    fn option(&mut self) -> Result<SpecOption, SpecError> {
        let position = self.at;
        let length = word_length(self.rest());
        if length == 0 {
            return Err(self.unexpected("the name of an option"));
        }
        let name = self.source[position..position + length].to_owned();
        self.at += length;
        let mut value = None;
        let mut value_position = self.at;
        if self.peek() == Some(b'=') {
            self.at += 1;
            value_position = self.at;
            value = Some(if self.peek() == Some(b'(') {
                Value::Spec(self.nested()?)
            } else if begins_with_kind(self.rest()) {
                // As deep as in parentheses, in which it may be written.
                self.enter()?;
                let part = self.part(false)?;
                self.depth -= 1;
                Value::Spec(Spec { parts: vec![part], source: self.source.clone() })
            } else {
                Value::Text(self.text()?)
            });
        }
        let value_length = self.at - value_position;
        match self.peek() {
            None | Some(b',' | b'&' | b'+' | b')') => {
                Ok(SpecOption { name, value, position, value_position, value_length })
            }
            _ => Err(self.unexpected("'=' and a value, ',' and another option, '+' or the end")),
        }
    }

    /// Counts a spec within this one.
    fn enter(&mut self) -> Result<(), SpecError> {
        if self.depth == DEPTH_MAX {
            return Err(self.unexpected(format!("at most {DEPTH_MAX} specs within each other")));
        }
        self.depth += 1;
        Ok(())
    }

    /// A spec in parentheses.
    fn nested(&mut self) -> Result<Spec, SpecError> {
        self.enter()?;
        self.at += 1;
        let spec = self.spec()?;
        if self.peek() != Some(b')') {
            return Err(self.unexpected("')'"));
        }
        self.at += 1;
        self.depth -= 1;
        Ok(spec)
    }

    /// Text up to a delimiter, with its escapes undone.
    fn text(&mut self) -> Result<Vec<u8>, SpecError> {
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'?' | b',' | b'&' | b')' => break,
                b'+' if begins_with_kind(&self.rest()[1..]) => break,
                b'(' => return Err(self.unexpected("a text; write %28 for a '(' in it")),
                b'%' => {
                    let digit = |index: usize| {
                        self.rest()
                            .get(index)
                            .and_then(|&digit| char::from(digit).to_digit(16))
                            .map(|digit| digit as u8)
                    };
                    let (Some(high), Some(low)) = (digit(1), digit(2)) else {
                        let length = self.rest().len().min(3);
                        return Err(self.error(self.at, length, "'%' and two hexadecimal digits (%25 is '%')"));
                    };
                    text.push(high << 4 | low);
                    self.at += 3;
                }
                _ => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        Ok(text)
    }
}
