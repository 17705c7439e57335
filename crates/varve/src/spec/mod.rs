//! Specs: how a medium is named, everywhere, and which kinds of media there are.

mod error;
mod grammar;
mod size;

#[doc(hidden)]
pub use crate::registry::lab_words;
pub use crate::registry::{
    ArgumentDescription, KindDescription, OptionDescription, ValueForm, common_options, file_stores, media_kinds,
};
pub use error::{SpecError, SpecErrorKind};
pub(crate) use size::SIZE_EXAMPLE;
pub use size::{ByteSize, ByteSizeError};

use crate::registry::{self, Vocabulary};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// A medium by name: `file:/var/lib/varve`, `disk:100GB?model=ST500DM002`, `/a/plain/path`.
///
/// The same text is understood by the command line, configuration files, other languages and the
/// lab. A part is `kind:argument?option=value,option=value`; `+` puts parts side by side; a value
/// may be a spec itself, in parentheses when it has options; a text that does not begin with
/// `kind:` is a path, taken literally. Special bytes are written `%41`. [`media_kinds`]
/// lists the kinds and their options.
///
/// [`FromStr`] checks grammar, kinds, options and the form of values, and never touches a medium.
/// [`fmt::Display`] writes a spec that parses to an equal one. Equality is of meaning, not of
/// spelling.
#[derive(Clone)]
pub struct Spec {
    parts: Vec<Part>,
    /// What positions count in.
    source: Arc<str>,
}

/// One medium of a [`Spec`].
#[derive(Clone)]
pub(crate) struct Part {
    kind: String,
    argument: Option<Value>,
    options: Vec<SpecOption>,
    position: usize,
    argument_position: usize,
    argument_length: usize,
    source: Arc<str>,
}

/// What an argument or an option says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Bytes, escapes undone.
    Text(Vec<u8>),
    /// A medium.
    Spec(Spec),
}

/// One option of a [`Part`].
#[derive(Clone)]
pub(crate) struct SpecOption {
    name: String,
    value: Option<Value>,
    position: usize,
    value_position: usize,
    value_length: usize,
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Spec::parse(text, Vocabulary::Users)
    }
}

impl Spec {
    fn parse(text: &str, vocabulary: Vocabulary) -> Result<Self, SpecError> {
        registry::refuse_bare_kind(text)?;
        let spec = grammar::parse(text)?;
        registry::check(&spec, vocabulary)?;
        Ok(spec)
    }

    /// As [`FromStr`], with the words that only experiments use ([`lab_words`]).
    #[doc(hidden)]
    pub fn parse_for_lab(text: &str) -> Result<Self, SpecError> {
        Spec::parse(text, Vocabulary::Lab)
    }

    /// The directory at `path`, whatever bytes the path has.
    pub fn of_path(path: &Path) -> Self {
        Spec::of_path_bytes(path.as_os_str().as_bytes())
    }

    /// The directory at `path`, unless the path begins as the spec of a medium does: then that is what was meant.
    pub(crate) fn of_directory(path: &Path) -> Result<Self, SpecError> {
        let kind = path.to_str().filter(|text| grammar::begins_with_kind(text.as_bytes()));
        match kind.map(|text| (text, grammar::word_length(text.as_bytes()))) {
            Some((text, length)) if registry::medium(&text[..length]).is_some() => {
                let expected = format!("a path (a spec is for open_spec; a directory of that name is ./{text})");
                Err(SpecError::new(SpecErrorKind::Syntax, text, 0, text.len(), expected))
            }
            _ => Ok(Spec::of_path(path)),
        }
    }

    fn of_path_bytes(path: &[u8]) -> Self {
        let mut source = String::from("file:");
        append_escaped(&mut source, path);
        let source: Arc<str> = Arc::from(source);
        let part = Part {
            kind: "file".to_owned(),
            argument: Some(Value::Text(path.to_vec())).filter(|_| !path.is_empty()),
            options: Vec::new(),
            position: 0,
            argument_position: 5,
            argument_length: source.len() - 5,
            source: source.clone(),
        };
        Spec { parts: vec![part], source }
    }

    /// Every path of the machine the spec names: directories, devices, image files, traces.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        registry::add_paths(self, &mut paths);
        paths
    }

    /// The directory the spec names, if its files lie in one.
    pub fn directory(&self) -> Option<PathBuf> {
        match self.parts.as_slice() {
            [part] if part.kind == "file" => part.argument_path(),
            _ => None,
        }
    }

    /// What the grammar alone says, kinds and options unchecked.
    pub(crate) fn parse_unchecked(text: &str) -> Result<Self, SpecError> {
        grammar::parse(text)
    }

    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// An error about the spec as a whole.
    pub(crate) fn error(&self, kind: SpecErrorKind, expected: impl Into<String>) -> SpecError {
        let first = self.parts.first().map_or(0, |part| part.position);
        SpecError::new(kind, &self.source, first, self.source.len() - first, expected)
    }
}

impl Part {
    /// Name of the kind.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn argument(&self) -> Option<&Value> {
        self.argument.as_ref()
    }

    pub(crate) fn options(&self) -> &[SpecOption] {
        &self.options
    }

    /// An option by name.
    pub(crate) fn option(&self, name: &str) -> Option<&SpecOption> {
        self.options.iter().find(|option| option.name == name)
    }

    /// The option is there, without a value.
    pub(crate) fn has_flag(&self, name: &str) -> bool {
        self.option(name).is_some()
    }

    /// The value of an option as text, when it is there.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, SpecError> {
        self.read(name, "a text in UTF-8", |value| match value {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            Value::Spec(_) => None,
        })
    }

    /// The value of an option as a path.
    pub(crate) fn path(&self, name: &str) -> Result<Option<PathBuf>, SpecError> {
        self.read(name, "a path", path_of)
    }

    /// The value of an option as a number of bytes.
    pub(crate) fn size_bytes(&self, name: &str) -> Result<Option<u64>, SpecError> {
        self.read(name, SIZE_EXAMPLE, size_of)
    }

    /// The value of an option as a spec; a text is a path.
    pub(crate) fn spec(&self, name: &str) -> Result<Option<Spec>, SpecError> {
        self.read(name, "a medium", |value| match value {
            Value::Spec(spec) => Some(spec.clone()),
            Value::Text(_) => path_of(value).map(|path| Spec::of_path(&path)),
        })
    }

    /// The medium the option `logs` names; none when logs are inside.
    pub(crate) fn logs(&self) -> Result<Option<Spec>, SpecError> {
        if self.has_logs_inside() { Ok(None) } else { self.spec("logs") }
    }

    /// The option `logs` says that they lie on the medium itself.
    pub(crate) fn has_logs_inside(&self) -> bool {
        let inside = Value::Text(registry::INSIDE.as_bytes().to_vec());
        self.option("logs").and_then(SpecOption::value) == Some(&inside)
    }

    fn read<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, SpecError> {
        let Some(option) = self.option(name) else { return Ok(None) };
        match option.value.as_ref().and_then(read) {
            Some(value) => Ok(Some(value)),
            None => Err(self.option_error(option, format!("{expected} for '{name}'"))),
        }
    }

    /// The argument as a path.
    pub(crate) fn argument_path(&self) -> Option<PathBuf> {
        self.argument().and_then(path_of)
    }

    /// The argument as a number of bytes.
    pub(crate) fn argument_size_bytes(&self) -> Option<u64> {
        self.argument().and_then(size_of)
    }

    /// An error about the kind.
    pub(crate) fn kind_error(&self, kind: SpecErrorKind, expected: impl Into<String>) -> SpecError {
        SpecError::new(kind, &self.source, self.position, self.kind.len(), expected)
    }

    /// An error about the argument.
    pub(crate) fn argument_error(&self, kind: SpecErrorKind, expected: impl Into<String>) -> SpecError {
        SpecError::new(kind, &self.source, self.argument_position, self.argument_length, expected)
    }

    /// An error about the name of an option.
    pub(crate) fn option_name_error(&self, option: &SpecOption, expected: impl Into<String>) -> SpecError {
        let kind = SpecErrorKind::UnknownOption;
        SpecError::new(kind, &self.source, option.position, option.name.len(), expected)
    }

    /// An error about the value of an option.
    pub(crate) fn option_error(&self, option: &SpecOption, expected: impl Into<String>) -> SpecError {
        let (position, length) = match option.value {
            Some(_) => (option.value_position, option.value_length),
            None => (option.position, option.name.len()),
        };
        SpecError::new(SpecErrorKind::InvalidValue, &self.source, position, length, expected)
    }

    /// An error about the value of the option called `name`, which is there.
    pub(crate) fn value_error(&self, name: &str, expected: impl Into<String>) -> SpecError {
        match self.option(name) {
            Some(option) => self.option_error(option, expected),
            None => self.kind_error(SpecErrorKind::Missing, format!("the option '{name}': {}", expected.into())),
        }
    }
}

impl SpecOption {
    /// Name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it says; nothing for a flag.
    pub(crate) fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }
}

/// A text as a path; `None` for a spec, an empty text or one with NUL.
pub(crate) fn path_of(value: &Value) -> Option<PathBuf> {
    match value {
        Value::Text(bytes) if !bytes.is_empty() && !bytes.contains(&0) => Some(PathBuf::from(OsStr::from_bytes(bytes))),
        _ => None,
    }
}

/// A text as a number of bytes.
pub(crate) fn size_of(value: &Value) -> Option<u64> {
    match value {
        Value::Text(bytes) => std::str::from_utf8(bytes).ok()?.parse::<ByteSize>().ok().map(|size| size.0),
        Value::Spec(_) => None,
    }
}

/// Appends `text` so that the grammar reads it back as one text.
fn append_escaped(out: &mut String, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if matches!(character, '%' | '?' | ',' | '&' | '(' | ')') || character.is_control() {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| append_byte(out, byte));
            } else {
                out.push(character);
            }
        }
        chunk.invalid().iter().for_each(|&byte| append_byte(out, byte));
    }
}

fn append_byte(out: &mut String, byte: u8) {
    out.push_str(&format!("%{byte:02X}"));
}

/// A text in the grammar's notation. `in_value` texts must not look like a spec.
fn escaped(text: &[u8], in_value: bool) -> String {
    let mut out = String::new();
    append_escaped(&mut out, text);
    // A '+' that would begin another part, and a first letter that would begin a spec.
    let mut from = 0;
    while let Some(found) = out[from..].find('+') {
        let at = from + found;
        if grammar::begins_with_kind(&out.as_bytes()[at + 1..]) {
            out.replace_range(at..at + 1, "%2B");
        }
        from = at + 1;
    }
    if in_value && grammar::begins_with_kind(out.as_bytes()) {
        let colon = grammar::word_length(out.as_bytes());
        out.replace_range(colon..colon + 1, "%3A");
    }
    out
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str("+")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind)?;
        match &self.argument {
            Some(Value::Text(text)) => f.write_str(&escaped(text, false))?,
            Some(Value::Spec(spec)) => write!(f, "({spec})")?,
            None => (),
        }
        for (index, option) in self.options.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { '?' } else { ',' }, option.name)?;
            match &option.value {
                Some(Value::Text(text)) => write!(f, "={}", escaped(text, true))?,
                Some(Value::Spec(spec)) => match spec.parts.as_slice() {
                    [part] if part.options.is_empty() && !matches!(part.argument, Some(Value::Spec(_))) => {
                        write!(f, "={part}")?;
                    }
                    _ => write!(f, "=({spec})")?,
                },
                None => (),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for Spec {}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        (&self.kind, &self.argument, &self.options) == (&other.kind, &other.argument, &other.options)
    }
}

impl Eq for Part {}

impl PartialEq for SpecOption {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.value) == (&other.name, &other.value)
    }
}

impl Eq for SpecOption {}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Spec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
