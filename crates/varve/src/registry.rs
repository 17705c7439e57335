//! What there is: every kind of medium, of file store and of layer, in one table each, which stands in its folder.

use crate::error::Error;
use crate::file_store::FILE_STORES;
use crate::layer::LAYERS;
use crate::medium::{self, MEDIA};
use crate::spec::{ByteSize, Part, SIZE_EXAMPLE, Spec, SpecError, SpecErrorKind, SpecOption, Value, path_of, size_of};
use crate::stack::{Base, BuiltDevice, Construction};
use std::sync::Arc;
use varve_media::FileMode;
use varve_store::{AllocationName, FileStore};

/// The word for logs on the medium itself.
pub(crate) const INSIDE: &str = "inside";

/// Whose words a spec may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vocabulary {
    /// Those that help and messages list.
    Users,
    /// Those of experiments too ([`LAB_WORDS`]).
    Lab,
}

/// Options every medium has beside its own, its store's and the layers'.
static COMMON_OPTIONS: &[OptionDescription] = &[
    OptionDescription {
        name: "store",
        value: ValueForm::FileStore,
        default: "the first that fits",
        meaning: "how files are laid out on the medium",
    },
    OptionDescription {
        name: "logs",
        value: ValueForm::ChoiceOrSpec(&[INSIDE]),
        default: "inside, the same medium; under the store 'imr' on an emulated disk a small emulated SSD",
        meaning: "medium of the write-ahead logs; under the store 'imr' of everything that is not a table",
    },
    OptionDescription {
        name: "file-mode",
        value: ValueForm::FileMode,
        default: "600",
        meaning: "permissions of the files that are made for it, less what the umask takes; directories can be searched \
                  by whoever may read files",
    },
];

/// A kind of medium: the word before the colon of a spec.
pub(crate) struct MediumKind {
    pub(crate) description: KindDescription,
    /// Its time can be virtual, unless its bytes are on real hardware or in real memory, or it has members whose time cannot.
    pub(crate) is_emulated: bool,
    /// Makes the medium. The part has passed [`check`].
    pub(crate) build: fn(&Construction<'_>, &Part) -> Result<Base, Error>,
}

/// How a file store is opened on a medium.
type OpenFileStore = fn(&Construction<'_>, &Base, &Part, Option<&BuiltDevice>) -> Result<Arc<dyn FileStore>, Error>;

/// The device a store takes for its logs, if it takes one.
type LogsOfStore = fn(&Construction<'_>, &Base, &Part) -> Result<Option<BuiltDevice>, Error>;

/// A file store: how files are laid out on media.
pub(crate) struct FileStoreKind {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// What it stands on, for messages: "a directory".
    pub(crate) needs: &'static str,
    pub(crate) options: &'static [OptionDescription],
    /// Whether it can stand on this, judged by properties alone.
    pub(crate) accepts: fn(&Base) -> bool,
    /// Returns true if the store is the default here although an earlier one accepts the medium too.
    pub(crate) is_preferred: fn(&Base) -> bool,
    /// A store that keeps logs apart from tables by itself builds the device for them, as the option `logs`
    /// says. Those of the others are another store's.
    pub(crate) logs: Option<LogsOfStore>,
    /// Opens it, making it first where that is allowed and needed.
    pub(crate) open: OpenFileStore,
}

/// A layer: wraps a medium when its option is there.
pub(crate) struct LayerKind {
    /// The option that asks for it comes first.
    pub(crate) options: &'static [OptionDescription],
    /// What stands on it is of another shape than the medium: what a store says of itself there is not said of the medium.
    pub(crate) changes_shape: bool,
    pub(crate) wrap: fn(&Construction<'_>, Base, &Part) -> Result<Base, Error>,
}

impl LayerKind {
    /// Whether a part has its option.
    pub(crate) fn is_asked_for(&self, part: &Part) -> bool {
        self.options.first().is_some_and(|option| part.option(option.name).is_some())
    }
}

/// What a kind of medium is and takes, for help and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindDescription {
    /// The word before the colon.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What comes after the colon.
    pub argument: ArgumentDescription,
    /// Its own options. [`common_options`] adds those of stores and layers.
    pub options: &'static [OptionDescription],
    /// Specs to copy.
    pub examples: &'static [&'static str],
}

/// What comes after the colon of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentDescription {
    /// Form of the text.
    pub value: ValueForm,
    /// What it is when absent; `None` when it must be there.
    pub default: Option<&'static str>,
    /// One line.
    pub meaning: &'static str,
}

/// An option of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDescription {
    /// The word before the equals sign.
    pub name: &'static str,
    /// Form of the value.
    pub value: ValueForm,
    /// What happens when it is absent.
    pub default: &'static str,
    /// One line.
    pub meaning: &'static str,
}

/// Largest size in a spec: more than any medium holds. Nothing is allocated for a capacity, but what is kept per zone,
/// track or extent follows it.
const SIZE_BYTES_MAX: u64 = 256 << 40;

/// Form of an argument or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueForm {
    /// No value: the option is there or not.
    Flag,
    /// Bytes, see [`crate::spec::ByteSize`]; at most 256 TiB.
    Size,
    /// A whole number, at least as large as this one.
    Number(u64),
    /// `1/N`.
    Scale,
    /// Any text.
    Text,
    /// A path of the machine.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `5/4`, or the same as a number: `1.25`.
    Ratio,
    /// One of these words, or a file: `file:PATH`.
    ChoiceOrFile(&'static [&'static str]),
    /// One of these words, a file, or real hardware: `dev:PATH` with its options.
    ChoiceOrFileOrDevice(&'static [&'static str]),
    /// One of these words, or a medium.
    ChoiceOrSpec(&'static [&'static str]),
    /// Permissions of files in octal digits, as in `640`; the owner may read and write.
    FileMode,
    /// Name of a file store.
    FileStore,
    /// A medium.
    Spec,
}

impl ValueForm {
    /// What a value looks like, for messages.
    fn expected(self) -> String {
        match self {
            ValueForm::Flag => "no value".to_owned(),
            ValueForm::Size => format!("{SIZE_EXAMPLE}, at most {}", ByteSize(SIZE_BYTES_MAX)),
            ValueForm::Number(least) => format!("a whole number, at least {least}"),
            ValueForm::Scale => "a scale such as 1/64".to_owned(),
            ValueForm::Text => "a text in UTF-8".to_owned(),
            ValueForm::Path => "a path".to_owned(),
            ValueForm::Choice(_) => "one of the known words".to_owned(),
            ValueForm::Ratio => "a ratio from 1/8 to 8, such as 5/4 or 1.25".to_owned(),
            ValueForm::ChoiceOrFile(_) => "one of the known words or file:PATH".to_owned(),
            ValueForm::ChoiceOrFileOrDevice(_) => "one of the known words, file:PATH or dev:PATH".to_owned(),
            ValueForm::ChoiceOrSpec(_) => "a medium or one of the known words".to_owned(),
            ValueForm::FileMode => "permissions such as 600, 640 or 664".to_owned(),
            ValueForm::FileStore => "a file store".to_owned(),
            ValueForm::Spec => "a medium".to_owned(),
        }
    }

    /// Words that are accepted, when it is a matter of words.
    pub fn words(self) -> Vec<&'static str> {
        match self {
            ValueForm::Choice(words)
            | ValueForm::ChoiceOrFile(words)
            | ValueForm::ChoiceOrFileOrDevice(words)
            | ValueForm::ChoiceOrSpec(words) => words.to_vec(),
            ValueForm::FileStore => FILE_STORES.iter().map(|store| store.name).collect(),
            _ => Vec::new(),
        }
    }

    /// Placeholder for help: `SIZE`, `ram|none|file:PATH`.
    pub fn placeholder(self) -> String {
        match self {
            ValueForm::Flag => String::new(),
            ValueForm::Size => "SIZE".to_owned(),
            ValueForm::Number(_) => "N".to_owned(),
            ValueForm::Scale => "1/N".to_owned(),
            ValueForm::Text => "TEXT".to_owned(),
            ValueForm::Path => "PATH".to_owned(),
            ValueForm::Choice(_) | ValueForm::FileStore => self.words().join("|"),
            ValueForm::Ratio => "N/M".to_owned(),
            ValueForm::FileMode => "OCTAL".to_owned(),
            ValueForm::ChoiceOrFile(words) => format!("{}|file:PATH", words.join("|")),
            ValueForm::ChoiceOrFileOrDevice(words) => format!("{}|file:PATH|dev:PATH", words.join("|")),
            ValueForm::ChoiceOrSpec(words) => format!("{}|SPEC", words.join("|")),
            ValueForm::Spec => "SPEC".to_owned(),
        }
    }

    fn accepts(self, value: &Value, vocabulary: Vocabulary) -> Result<bool, SpecError> {
        let text = match value {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            Value::Spec(_) => None,
        };
        Ok(match self {
            ValueForm::Flag => false,
            ValueForm::Size => size_of(value).is_some_and(|bytes| bytes <= SIZE_BYTES_MAX),
            ValueForm::Number(least) => text.and_then(whole_number).is_some_and(|number| number >= least),
            ValueForm::Scale => text.and_then(scale_divisor).is_some(),
            ValueForm::Ratio => text.and_then(ratio).is_some(),
            ValueForm::FileMode => text.and_then(FileMode::parse).is_some(),
            ValueForm::Text => text.is_some(),
            ValueForm::Path => path_of(value).is_some(),
            ValueForm::Choice(_) | ValueForm::FileStore => text.is_some_and(|text| self.words().contains(&text)),
            ValueForm::ChoiceOrFile(words) => match value {
                Value::Text(_) => text.is_some_and(|text| words.contains(&text)),
                Value::Spec(spec) => file_path_of(spec).is_some(),
            },
            ValueForm::ChoiceOrFileOrDevice(words) => match value {
                Value::Text(_) => text.is_some_and(|text| words.contains(&text)),
                Value::Spec(spec) => {
                    check(spec, vocabulary)?;
                    file_path_of(spec).is_some() || hardware_of(spec).is_some()
                }
            },
            ValueForm::Spec | ValueForm::ChoiceOrSpec(_) => match value {
                Value::Text(_) => text.is_none_or(|text| bare_kind(text).is_none()) && path_of(value).is_some(),
                Value::Spec(spec) => {
                    check(spec, vocabulary)?;
                    true
                }
            },
        })
    }
}

/// Digits only: no sign, no space.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// What the sizes of a part are divided by: as its option `scale` says.
pub(crate) fn scale_of(part: &Part) -> Result<u64, SpecError> {
    Ok(part.text("scale")?.and_then(scale_divisor).unwrap_or(1))
}

/// The value of an option as a number below 2^32.
pub(crate) fn small_number(part: &Part, name: &str) -> Result<Option<u32>, SpecError> {
    let number = part.text(name)?.and_then(whole_number).map(u32::try_from).transpose();
    number.map_err(|_| part.value_error(name, "a number below 2^32"))
}

/// The `N` of `1/N`; at least 1.
pub(crate) fn scale_divisor(text: &str) -> Option<u64> {
    match text.strip_prefix("1/") {
        Some(divisor) => whole_number(divisor).filter(|&divisor| divisor > 0),
        None => (text == "1").then_some(1),
    }
}

/// A ratio from 1/8 to 8 as a fraction, from `N/M` or from a number with at most six digits after the
/// point.
pub(crate) fn ratio(text: &str) -> Option<(u64, u64)> {
    let few = |digits: &str| whole_number(digits).filter(|_| (1..=6).contains(&digits.len()));
    let (numerator, denominator) = match (text.split_once('/'), text.split_once('.')) {
        (Some((numerator, denominator)), _) => (few(numerator)?, few(denominator)?),
        (None, Some((whole, fraction))) => {
            let denominator = 10_u64.pow(fraction.len().min(6) as u32);
            (few(whole)? * denominator + few(fraction)?, denominator)
        }
        (None, None) => (few(text)?, 1),
    };
    let sensible = denominator > 0 && numerator * 8 >= denominator && numerator <= denominator * 8;
    sensible.then_some((numerator, denominator))
}

/// The one part of a spec that is `dev:PATH` with options of its own kind and no more.
pub(crate) fn hardware_of(spec: &Spec) -> Option<&Part> {
    let own = &medium::DEV.description;
    match spec.parts() {
        [part] if part.kind() == own.name => {
            let known = |name: &str| own.options.iter().any(|option| option.name == name);
            part.options().iter().all(|option| known(option.name())).then_some(part)
        }
        _ => None,
    }
}

/// The real hardware a part has its bytes on although its kind is emulated.
pub(crate) fn hardware_backing(part: &Part) -> Option<&Part> {
    match part.option("backing").and_then(SpecOption::value) {
        Some(Value::Spec(spec)) => hardware_of(spec),
        _ => None,
    }
}

/// The media that a part is made of, if it is an array.
pub(crate) fn members_of(part: &Part) -> Option<&Spec> {
    let kind = medium(part.kind())?;
    match part.argument() {
        Some(Value::Spec(spec)) if kind.description.argument.value == ValueForm::Spec => Some(spec),
        _ => None,
    }
}

/// The medium of an array's journal, if it has one of its own.
pub(crate) fn array_journal_of(part: &Part) -> Option<&Spec> {
    match part.option("journal").and_then(SpecOption::value) {
        Some(Value::Spec(spec)) if members_of(part).is_some() => Some(spec),
        _ => None,
    }
}

/// Whether the time of a part can be virtual: it is emulated, in memory or files, and so are its members and its journal.
/// Persistent memory in a file is real.
pub(crate) fn is_emulated(part: &Part) -> bool {
    medium(part.kind()).is_some_and(|kind| kind.is_emulated)
        && hardware_backing(part).is_none()
        && !medium::is_real_memory(part)
        && members_of(part).is_none_or(Spec::is_emulated)
        && array_journal_of(part).is_none_or(Spec::is_emulated)
}

/// Permissions of the files that are made for a part.
pub(crate) fn file_mode(part: &Part) -> Result<FileMode, Error> {
    Ok(part.text("file-mode")?.and_then(FileMode::parse).unwrap_or_default())
}

/// The path of a spec that is `file:PATH` and no more.
pub(crate) fn file_path_of(spec: &Spec) -> Option<std::path::PathBuf> {
    match spec.parts() {
        [part] if part.kind() == "file" && part.options().is_empty() => part.argument_path(),
        _ => None,
    }
}

/// Adds every path of the machine that `spec` names to `paths`.
pub(crate) fn add_paths(spec: &Spec, paths: &mut Vec<std::path::PathBuf>) {
    let mut add = |form: ValueForm, value: Option<&Value>| match (form, value) {
        (ValueForm::Path, Some(value)) => paths.extend(path_of(value)),
        (ValueForm::ChoiceOrFile(_), Some(Value::Spec(spec))) => paths.extend(file_path_of(spec)),
        (
            ValueForm::Spec | ValueForm::ChoiceOrSpec(_) | ValueForm::ChoiceOrFileOrDevice(_),
            Some(Value::Spec(spec)),
        ) => {
            add_paths(spec, paths);
        }
        (ValueForm::ChoiceOrSpec(words), Some(Value::Text(text)))
            if words.iter().any(|word| word.as_bytes() == text) => {}
        (ValueForm::Spec | ValueForm::ChoiceOrSpec(_), Some(value)) => paths.extend(path_of(value)),
        _ => (),
    };
    for part in spec.parts() {
        let Some(kind) = medium(part.kind()) else { continue };
        add(kind.description.argument.value, part.argument());
        for option in part.options() {
            let mut known = kind.description.options.iter().chain(common_options().map(|(_, option)| option));
            if let Some(description) = known.find(|known| known.name == option.name()) {
                add(description.value, option.value());
            }
        }
    }
}

/// The kind called `name`.
pub(crate) fn medium(name: &str) -> Option<&'static MediumKind> {
    MEDIA.iter().find(|kind| kind.description.name == name)
}

/// Every kind of medium a [`Spec`] can name.
pub fn media_kinds() -> impl Iterator<Item = &'static KindDescription> {
    MEDIA.iter().map(|kind| &kind.description)
}

/// Options of a medium beside its kind's own: those of the file stores, the layers and all media.
/// With each its origin: the store's name, or empty.
pub fn common_options() -> impl Iterator<Item = (&'static str, &'static OptionDescription)> {
    let stores = FILE_STORES.iter().flat_map(|store| store.options.iter().map(|option| (store.name, option)));
    let layers = LAYERS.iter().flat_map(|layer| layer.options.iter().map(|option| ("", option)));
    COMMON_OPTIONS.iter().map(|option| ("", option)).chain(stores).chain(layers)
}

/// Every file store by name, with one line about it.
pub fn file_stores() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILE_STORES.iter().map(|store| (store.name, store.summary))
}

/// Checks kinds, arguments and options of a spec that follows the grammar.
pub(crate) fn check(spec: &Spec, vocabulary: Vocabulary) -> Result<(), SpecError> {
    spec.parts().iter().try_for_each(|part| check_part(part, vocabulary))
}

/// The kind of which `text` is the bare name, or one in other letters than it has: `imr`, `disk?scale=1/64`, `SSD:10GB`.
/// That it is meant for a path is less likely than that the rest was forgotten.
fn bare_kind(text: &str) -> Option<&'static MediumKind> {
    let word = &text[..text.find([':', '?']).unwrap_or(text.len())];
    let is_spec = text[word.len()..].starts_with(':');
    MEDIA.iter().find(|kind| {
        let name = kind.description.name;
        if is_spec { word != name && word.eq_ignore_ascii_case(name) } else { word.eq_ignore_ascii_case(name) }
    })
}

/// Refuses a text that is the bare name of a kind.
pub(crate) fn refuse_bare_kind(text: &str) -> Result<(), SpecError> {
    let Some(kind) = bare_kind(text) else { return Ok(()) };
    let description = &kind.description;
    let example = description.examples.first().copied().unwrap_or_default();
    let expected = format!("a spec of a medium, as in {example} (a directory of that name is ./{text})");
    let length = text.find([':', '?']).unwrap_or(text.len());
    Err(SpecError::new(SpecErrorKind::Syntax, text, 0, length, expected))
}

fn check_part(part: &Part, vocabulary: Vocabulary) -> Result<(), SpecError> {
    let Some(kind) = medium(part.kind()) else {
        let expected = "a kind of medium (a path that looks like one is written ./a:b)";
        let known = MEDIA.iter().map(|kind| format!("{}:", kind.description.name));
        return Err(part.kind_error(SpecErrorKind::UnknownKind, expected).with_known(known));
    };
    let description = &kind.description;
    let argument = &description.argument;
    match part.argument() {
        Some(value) if argument.value.accepts(value, vocabulary)? => (),
        None if argument.default.is_some() => (),
        found => {
            let error = if found.is_some() { SpecErrorKind::InvalidValue } else { SpecErrorKind::Missing };
            let example = description.examples.first().copied().unwrap_or_default();
            let expected = format!("{} ({}), as in {example}", argument.value.expected(), argument.meaning);
            return Err(part.argument_error(error, expected).with_known(argument.value.words()));
        }
    }
    part.options().iter().try_for_each(|option| check_option(part, description, option, vocabulary))
}

/// Words that options had once: the option, the word, and what to do instead.
const WITHDRAWN: &[(&str, &str, &str)] = &[(
    "control",
    "paced",
    "use relocate=on, which cleans from the host and holds back writes that would fill the cache",
)];

/// Options that a kind of medium had once, and where they went.
const MOVED_OPTIONS: &[(&str, &str, &str)] = &[
    ("hasmr", "idle-step", "idle_step_bytes"),
    ("hasmr", "blocking-step", "blocking_step_bytes"),
    ("hasmr", "between-steps", "requests_between_steps"),
    ("hasmr", "blocking-stop", "blocking_stop_percent"),
    ("hasmr", "interrupted", "interrupted"),
];

/// Words that a spec of the lab may use and a spec of a user may not: an option, its words, and what they are for.
const LAB_WORDS: &[(&str, &[&str], &str)] = &[
    (
        "allocation",
        AllocationName::COMPARED_TEXTS,
        "the lab compares it with the others (kvimr/alternatives, kvimr/ablation, 'varve lab map imr --policy')",
    ),
    ("layout", &["next-fit"], "the lab compares it with the others"),
];

/// Words of an option that only specs of the lab may use.
#[doc(hidden)]
pub fn lab_words(option: &str) -> &'static [&'static str] {
    LAB_WORDS.iter().find(|(name, ..)| *name == option).map_or(&[], |(_, words, _)| words)
}

fn check_option(
    part: &Part,
    kind: &KindDescription,
    option: &SpecOption,
    vocabulary: Vocabulary,
) -> Result<(), SpecError> {
    let known = || kind.options.iter().chain(common_options().map(|(_, option)| option));
    let Some(description) = known().find(|known| known.name == option.name()) else {
        let moved = |&&(of, name, _): &&(&str, &str, &str)| of == kind.name && name == option.name();
        if let Some((_, name, field)) = MOVED_OPTIONS.iter().find(moved) {
            let expected = format!(
                "an option of {}: ('{name}' moved to the lab's experiments, which set the field {field} of \
                 media::emulated::TranslationParameters; remove it here)",
                kind.name
            );
            return Err(part.option_name_error(option, expected));
        }
        let mut names: Vec<&str> = known().map(|option| option.name).collect();
        names.sort_unstable();
        names.dedup();
        return Err(part.option_name_error(option, format!("an option of {}:", kind.name)).with_known(names));
    };
    let form = description.value;
    let fits = match option.value() {
        None => form == ValueForm::Flag,
        Some(value) => form.accepts(value, vocabulary)?,
    };
    if fits {
        return Ok(());
    }
    if let Some(Value::Text(text)) = option.value()
        && let Some((name, words, purpose)) = LAB_WORDS.iter().find(|(name, ..)| *name == option.name())
        && let Some(word) = words.iter().find(|word| word.as_bytes() == text.as_slice())
    {
        if vocabulary == Vocabulary::Lab {
            return Ok(());
        }
        let expected = format!(
            "{}; '{word}' is for experiments only: {purpose}; a store that was laid out with it opens without the option '{name}'",
            form.expected()
        );
        return Err(part.option_error(option, expected).with_known(form.words()));
    }
    let withdrawn = |&&(name, word, _): &&(&str, &str, &str)| {
        name == option.name() && matches!(option.value(), Some(Value::Text(text)) if text.as_slice() == word.as_bytes())
    };
    if let Some((_, word, instead)) = WITHDRAWN.iter().find(withdrawn) {
        let expected = format!("{}; '{word}' was withdrawn: {instead}", form.expected());
        return Err(part.option_error(option, expected).with_known(form.words()));
    }
    let expected = format!("{} for '{}' ({})", form.expected(), option.name(), description.meaning);
    Err(part.option_error(option, expected).with_known(form.words()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ratios() {
        for (text, expected) in [
            ("1", Some((1, 1))),
            ("5/4", Some((5, 4))),
            ("1.25", Some((125, 100))),
            ("0.125", Some((125, 1000))),
            ("8/1", Some((8, 1))),
            ("8.1", None),
            ("1/9", None),
            ("0", None),
            ("1/0", None),
            ("", None),
            (".5", None),
            ("1.", None),
            ("-1", None),
            ("1.0000001", None),
            ("1/1.5", None),
            ("10000000/10000000", None),
        ] {
            assert_eq!(ratio(text), expected, "{text}");
        }
    }

    #[test]
    fn names_are_unique_and_examples_parse() {
        let mut names = BTreeSet::new();
        for kind in media_kinds() {
            assert!(names.insert(kind.name), "two kinds are called {}", kind.name);
            assert!(!kind.examples.is_empty(), "{} has no example", kind.name);
            for example in kind.examples {
                let spec: Spec = example.parse().unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(spec.parts()[0].kind(), kind.name);
            }
            let mut options = BTreeSet::new();
            for option in kind.options.iter().chain(common_options().map(|(_, option)| option)) {
                assert!(options.insert(option.name), "{} has two options called {}", kind.name, option.name);
            }
        }
    }
}
