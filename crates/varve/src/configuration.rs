//! Configuration files.

use crate::error::Error;
use crate::spec::{ByteSize, Spec};
use serde::{Deserialize, Serialize};
use varve_engine::Options;

/// A configuration in TOML: which medium, and the options of the database.
///
/// ```
/// let configuration = varve::Configuration::from_toml(
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
        let refuse = |error: toml::de::Error| Error::Configuration { path: None, reason: error.to_string() };
        // First as it stands, for errors with a place. Only if that fails for a size in words,
        // once more with the words replaced.
        match toml::from_str(text) {
            Ok(configuration) => Ok(configuration),
            Err(error) => {
                let mut table: toml::Table = toml::from_str(text).map_err(refuse)?;
                let replaced = table.get_mut("options").and_then(toml::Value::as_table_mut).map_or(0, spell_out_sizes);
                if replaced == 0 {
                    return Err(refuse(error));
                }
                Configuration::deserialize(table).map_err(refuse)
            }
        }
    }

    /// Sets one option as text, under its name: `write_buffer_size` to `128MiB`, `compression` to
    /// `lz4`.
    ///
    /// # Errors
    /// [`Error::Configuration`]: no such option, or a value it does not take.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let refuse = |reason: String| Error::Configuration { path: None, reason: format!("option '{name}': {reason}") };
        let mut table = toml::Table::try_from(&self.options).map_err(|error| refuse(error.to_string()))?;
        // As TOML when it is some (numbers, true, lists), as a text when not.
        let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("value"));
        table.insert(name.to_owned(), parsed.unwrap_or_else(|| toml::Value::String(value.to_owned())));
        spell_out_sizes(&mut table);
        self.options = Options::deserialize(table).map_err(|error| refuse(in_words(error.message())))?;
        Ok(())
    }
}

/// A message of the deserializer without names of types of the language.
fn in_words(message: &str) -> String {
    if let Some((_, known)) =
        message.split_once("unknown field ").and_then(|(_, rest)| rest.split_once(", expected one of "))
    {
        return format!("there is no such option; known: {}", known.replace('`', ""));
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
            ("[options]\nwrite_bufer_size = 1", "write_bufer_size"),
            ("[options]\nnum_levels = \"many\"", "line 2"),
            ("[media]\nspec = \"dsk:1GB\"", "known: file:"),
            ("[medium]\n", "medium"),
            ("nonsense", "line 1"),
        ] {
            let error = Configuration::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let mut configuration = Configuration::default();
        let error = configuration.set("compression", "fast").unwrap_err().to_string();
        assert!(error.contains("'compression'") && error.contains("lz4"), "{error}");
        assert!(configuration.set("colour", "red").is_err());
        assert_eq!(configuration, Configuration::default());
    }
}
