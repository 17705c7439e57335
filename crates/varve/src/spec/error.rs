//! What is wrong with a spec, and where.

use crate::suggestion::nearest_name;
use std::fmt;

/// The class of a [`SpecError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpecErrorKind {
    /// The text does not follow the grammar.
    Syntax,
    /// No medium of this kind exists.
    UnknownKind,
    /// The kind has no such option.
    UnknownOption,
    /// A value is not what the option or argument takes.
    InvalidValue,
    /// Something the kind needs is not there.
    Missing,
    /// The parts are fine, but nothing puts them together.
    Combination,
}

/// A spec that cannot be used: where, what was expected, what was found, and what there is.
#[derive(Clone, PartialEq, Eq)]
pub struct SpecError {
    // Behind one pointer, so that results stay small.
    inner: Box<Inner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: SpecErrorKind,
    spec: String,
    position: usize,
    length: usize,
    expected: String,
    found: String,
    known: Vec<String>,
}

impl SpecError {
    /// An error about `length` bytes of `spec` at byte `position`.
    pub(crate) fn new(
        kind: SpecErrorKind,
        spec: &str,
        position: usize,
        length: usize,
        expected: impl Into<String>,
    ) -> Self {
        let position = floor(spec, position);
        let end = floor(spec, position.saturating_add(length));
        let found = match &spec[position..end] {
            "" if position == spec.len() => "the end".to_owned(),
            "" => spec[position..].chars().next().map_or_else(String::new, |found| format!("'{found}'")),
            found if found.chars().count() > 40 => format!("'{}...'", found.chars().take(40).collect::<String>()),
            found => format!("'{found}'"),
        };
        SpecError {
            inner: Box::new(Inner {
                kind,
                spec: spec.to_owned(),
                position,
                length: end - position,
                expected: expected.into(),
                found,
                known: Vec::new(),
            }),
        }
    }

    /// Lists what would have been accepted.
    pub(crate) fn with_known<S: Into<String>>(mut self, known: impl IntoIterator<Item = S>) -> Self {
        self.inner.known = known.into_iter().map(Into::into).collect();
        self
    }

    /// The class of this error.
    pub fn kind(&self) -> SpecErrorKind {
        self.inner.kind
    }

    /// The whole spec.
    pub fn spec(&self) -> &str {
        &self.inner.spec
    }

    /// Byte of the spec at which the trouble starts.
    pub fn position(&self) -> usize {
        self.inner.position
    }

    /// What was expected there.
    pub fn expected(&self) -> &str {
        &self.inner.expected
    }

    /// Names that would have been accepted there, when it is a matter of names.
    pub fn known(&self) -> &[String] {
        &self.inner.known
    }

    /// The name that was surely meant, when it is a matter of names and one is near.
    pub fn suggestion(&self) -> Option<&str> {
        let Inner { spec, position, length, known, .. } = &*self.inner;
        // What is not a name but says more, as "plain (a directory)" does, begins with one.
        let names = known.iter().map(|known| known.split([' ', '(']).next().unwrap_or_default());
        nearest_name(&spec[*position..*position + *length], names)
    }

    /// The spec with a line below it that points at the trouble, for terminals. Empty when the spec
    /// is too long for that to help, or has control characters.
    pub fn pointer(&self) -> String {
        let Inner { spec, position, length, .. } = &*self.inner;
        if spec.len() > 200 || spec.chars().any(char::is_control) {
            return String::new();
        }
        let before = spec[..*position].chars().count();
        let marked = spec[*position..*position + *length].chars().count().max(1);
        format!("  {spec}\n  {}{}", " ".repeat(before), "^".repeat(marked))
    }
}

/// The character boundary at or before `position`.
fn floor(text: &str, position: usize) -> usize {
    let mut position = position.min(text.len());
    while !text.is_char_boundary(position) {
        position -= 1;
    }
    position
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { spec, position, expected, found, known, .. } = &*self.inner;
        let shown: String = spec.chars().take(200).flat_map(char::escape_debug).collect();
        write!(f, "spec '{shown}' at position {position}: expected {expected}, found {found}")?;
        if let Some(meant) = self.suggestion() {
            write!(f, "; did you mean '{meant}'?")?;
        }
        if !known.is_empty() {
            write!(f, "; known: {}", known.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Debug for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl std::error::Error for SpecError {}
