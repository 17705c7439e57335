//! Configuration files.

use crate::error::Error;
use crate::spec::{ByteSize, Spec};
use crate::suggestion::nearest_name;
use serde::{Deserialize, Serialize};
use varve_engine::Options;

/// A configuration in TOML: which medium, and the options of the database.
///
/// ```
/// let configuration = varve::options::Configuration::from_toml(
///     r#"
///     [media]
///     spec = "file:/var/lib/varve"
///
///     [options]
///     write_buffer_size = "128MiB"
///     compression = "lz4"
///     "#,
/// )?;
/// assert_eq!(configuration.options.write_buffer_size, 128 << 20);
/// # Ok::<(), varve::Error>(())
/// ```
///
/// Sizes may be written as numbers or as texts such as `"64MiB"`. Unknown names are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// `[media]`.
    pub media: MediaConfiguration,
    /// `[options]`, under the names of [`Options`].
    pub options: Options,
}

/// The `[media]` section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaConfiguration {
    /// The medium, for programs that are not told one otherwise.
    pub spec: Option<Spec>,
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`Error::Configuration`] with line and column: no TOML, an unknown name, a value of another
    /// kind, a spec that cannot be used.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        // Sizes in words become numbers in the text itself, so that errors still have a place.
        let spelled = Spelled::of(text);
        toml::from_str(spelled.as_ref().map_or(text, |spelled| &spelled.text)).map_err(|error| {
            let at = match (error.span(), &spelled) {
                (Some(span), Some(spelled)) => spelled.original(span.start),
                (Some(span), None) => span.start,
                (None, _) => 0,
            };
            let place = Some(place_of(text, at));
            Error::Configuration { path: None, place, reason: in_words(error.message()) }
        })
    }

    /// Sets one option as text, under its name: `write_buffer_size` to `128MiB`, `compression` to
    /// `lz4`.
    ///
    /// # Errors
    /// [`Error::Configuration`]: no such option, or a value it does not take.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let refuse = |reason: String| Error::Configuration {
            path: None,
            place: None,
            reason: format!("option '{name}': {reason}"),
        };
        let mut table = toml::Table::try_from(&self.options).map_err(|error| refuse(error.to_string()))?;
        // As TOML when it is some (numbers, true, lists), as a text when not.
        let parsed = format!("value = {value}").parse::<toml::Table>().ok();
        // More than a value is none.
        let parsed = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        table.insert(name.to_owned(), parsed.unwrap_or_else(|| toml::Value::String(value.to_owned())));
        spell_out_sizes(&mut table);
        let moved = varve_engine::moved_option(name);
        let read =
            Options::deserialize(table).map_err(|error| refuse(moved.unwrap_or_else(|| in_words(error.message()))))?;
        self.options = Options { experiment: self.options.experiment, ..read };
        Ok(())
    }
}

/// Line and column of byte `at` of `text`, both from 1.
fn place_of(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..(0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)];
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
}

/// A text in TOML in which sizes in words (`"64MiB"`) are numbers.
struct Spelled {
    text: String,
    /// Ends of what was replaced: in this text and in the original.
    ends: Vec<(usize, usize)>,
}

impl Spelled {
    /// None when there is nothing to replace, or the text is no TOML.
    fn of(text: &str) -> Option<Spelled> {
        let table = toml::de::DeTable::parse(text).ok()?;
        let options = table.get_ref().get("options")?.get_ref().as_table()?;
        let mut sizes: Vec<(std::ops::Range<usize>, u64)> = options
            .values()
            .filter_map(|value| Some((value.span(), value.get_ref().as_str()?.parse::<ByteSize>().ok()?.0)))
            .collect();
        sizes.sort_unstable_by_key(|(span, _)| span.start);
        let mut spelled = Spelled { text: String::with_capacity(text.len()), ends: Vec::new() };
        let mut from = 0;
        for (span, bytes) in sizes {
            spelled.text.push_str(text.get(from..span.start)?);
            spelled.text.push_str(&bytes.to_string());
            from = span.end;
            spelled.ends.push((spelled.text.len(), from));
        }
        spelled.text.push_str(text.get(from..)?);
        (!spelled.ends.is_empty()).then_some(spelled)
    }

    /// Where byte `at` of this text is in the original.
    fn original(&self, at: usize) -> usize {
        match self.ends.iter().rev().find(|(end, _)| *end <= at) {
            Some((end, original)) => original + (at - end),
            None => at,
        }
    }
}

/// A message of the deserializer without names of types of the language, with what was meant.
fn in_words(message: &str) -> String {
    for what in ["field", "variant"] {
        let Some((_, rest)) = message.split_once(&format!("unknown {what} `")) else { continue };
        let Some((found, known)) = rest.split_once("`, expected ") else { continue };
        let known = known.strip_prefix("one of ").unwrap_or(known).replace('`', "");
        let names = || known.split([',', ' ']).filter(|name| !name.is_empty() && *name != "or");
        let is_option = names().any(|name| name == "write_buffer_size");
        if let Some(where_to) = varve_engine::moved_option(found).filter(|_| is_option) {
            return format!("option '{found}': {where_to}");
        }
        let kind = match what {
            "variant" => "no such word",
            _ if is_option => "there is no such option",
            _ => "there is no such name",
        };
        return match nearest_name(found, names()) {
            // All options are a long list, and the one that was meant is known.
            Some(meant) if is_option => format!("{kind}: '{found}'; did you mean '{meant}'?"),
            Some(meant) => format!("{kind}: '{found}'; did you mean '{meant}'? known: {known}"),
            None => format!("{kind}: '{found}'; known: {known}"),
        };
    }
    let number = ["usize", "u64", "u32", "i32", "u8"].iter().find_map(|name| {
        let found = message.strip_suffix(name)?.strip_suffix(", expected ")?;
        Some(format!("{found}, expected a whole number or a size such as 64MiB"))
    });
    number.unwrap_or_else(|| message.replace(", expected a boolean", ", expected true or false"))
}

/// Replaces texts that are sizes by their numbers; how many there were.
fn spell_out_sizes(options: &mut toml::Table) -> usize {
    let mut replaced = 0;
    for (_, value) in options.iter_mut() {
        if let Some(size) = value.as_str().and_then(|text| text.parse::<ByteSize>().ok())
            && let Ok(bytes) = i64::try_from(size.0)
        {
            *value = toml::Value::Integer(bytes);
            replaced += 1;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_engine::Compression;

    #[test]
    fn sizes_in_words_and_defaults() {
        let text = "[media]\nspec = \"file:/x\"\n[options]\nwrite_buffer_size = \"1MiB\"\nnum_levels = 5\n";
        let configuration = Configuration::from_toml(text).unwrap();
        assert_eq!(configuration.media.spec, Some("file:/x".parse().unwrap()));
        let options = Options { write_buffer_size: 1 << 20, num_levels: 5, ..Options::default() };
        assert_eq!(configuration.options, options);
        assert_eq!(Configuration::from_toml("").unwrap(), Configuration::default());
    }

    /// Texts nobody means: errors that are short and say where, or options within their limits.
    #[test]
    fn hostile_configurations_are_refused() {
        for text in [
            "[options]\nwrite_buffer_size = -1".to_owned(),
            "[options]\nwrite_buffer_size = 1e300".to_owned(),
            "[options]\nwrite_buffer_size = nan".to_owned(),
            "[options]\nwrite_buffer_size = \"\"".to_owned(),
            "[options]\nwrite_buffer_size = \"99999999999999999999999GiB\"".to_owned(),
            "[options]\nwrite_buffer_size = [1]".to_owned(),
            "[options]\nwrite_buffer_size = 2024-01-01".to_owned(),
            "[options]\ncompression_per_level = \"lz4\"".to_owned(),
            "[options]\ncompression_per_level = [1]".to_owned(),
            "[options]\nbloom_bits_per_key = 4294967296".to_owned(),
            "[options]\n[options]\n".to_owned(),
            "options = 5".to_owned(),
            "[options.write_buffer_size]\na = 1".to_owned(),
            "[media]\nspec = \"\"".to_owned(),
            "[media]\nspec = \"imr\"".to_owned(),
            "[media]\nspec = \"a\\u0000b\"".to_owned(),
            "[media]\nspec = 5".to_owned(),
            format!("x = {}", "[".repeat(100_000)),
            format!("{} = 1", "a.".repeat(50_000)),
            "\u{0}".to_owned(),
            "\u{feff}[options]\n\u{202e} = 1".to_owned(),
        ] {
            let error = match Configuration::from_toml(&text) {
                Ok(configuration) => panic!("{:.80}: {configuration:?}", text),
                Err(error) => error.to_string(),
            };
            assert!(error.contains("line ") && error.len() < 4000, "{:.80}: {error:.200}", text);
        }
        for (name, value) in [
            ("", "1"),
            ("write_buffer_size", ""),
            ("write_buffer_size", "1\ntree = 2"),
            ("a.b", "1"),
            ("\u{0}", "\u{0}"),
        ] {
            let mut configuration = Configuration::default();
            assert!(configuration.set(name, value).is_err(), "{name:?} = {value:?}");
            assert_eq!(configuration, Configuration::default());
        }
    }

    #[test]
    fn every_option_can_be_set_to_its_default_by_name() {
        for option in Options::ALL.iter().filter(|option| option.default != "unset") {
            let mut configuration = Configuration::default();
            configuration.set(option.name, option.default).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(configuration, Configuration::default(), "{}", option.name);
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut configuration = Configuration::default();
        configuration.set("write_buffer_size", "3MiB").unwrap();
        configuration.set("compression_per_level", "[\"none\", \"zstd\"]").unwrap();
        configuration.set("compression", "lz4").unwrap();
        configuration.set("use_direct_reads", "true").unwrap();
        assert_eq!(configuration.options.compression_per_level, [Compression::None, Compression::Zstd]);
        let text = toml::to_string(&configuration).unwrap();
        assert_eq!(Configuration::from_toml(&text).unwrap(), configuration);
    }

    #[test]
    fn errors_say_where_and_what() {
        for (text, expected) in [
            (
                "[options]\nwrite_bufer_size = 1",
                "line 2, column 1: there is no such option: 'write_bufer_size'; did you mean",
            ),
            ("[options]\n write_bufer_size = 1", "did you mean 'write_buffer_size'?"),
            (
                "[options]\nblock_size = \"64MiB\"\nblock_cache_capacity = \"1GiB\"\nnum_levels = -1",
                "line 4, column 14",
            ),
            ("[options]\nblock_size = \"64MiB\"\nwrite_bufer_size = \"64MiB\"", "line 3, column 1"),
            ("options = { block_size = \"64MiB\", num_level = 1 }", "line 1, column 35"),
            ("[options]\ncompression = \"lzf\"", "line 2, column 15: no such word: 'lzf'; did you mean 'lz4'?"),
            ("[option]\n", "line 1, column 2: there is no such name: 'option'; did you mean 'options'?"),
            ("[options]\nnum_levels = 5\nnum_levels = 6", "line 3"),
            ("[options]\nwrite_buffer_size = 99999999999999999999", "line 2"),
            ("[options]\nnum_levels = \"many\"", "line 2"),
            ("[media]\nspec = \"dsk:1GB\"", "known: file:"),
            ("[medium]\n", "medium"),
            ("nonsense", "line 1"),
        ] {
            let error = Configuration::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for name in ["min_write_buffer_number_to_merge", "level0_score_by_bytes", "initial_auto_readahead_size"] {
            let in_file = Configuration::from_toml(&format!("[options]\n{name} = 1")).unwrap_err().to_string();
            let by_name = Configuration::default().set(name, "1").unwrap_err().to_string();
            for error in [in_file, by_name] {
                assert!(error.contains(name) && error.contains("moved to the lab"), "{error}");
            }
        }
        let mut configuration = Configuration::default();
        let error = configuration.set("compression", "fast").unwrap_err().to_string();
        assert!(error.contains("'compression'") && error.contains("lz4"), "{error}");
        assert!(configuration.set("colour", "red").is_err());
        assert_eq!(configuration, Configuration::default());
    }
}
