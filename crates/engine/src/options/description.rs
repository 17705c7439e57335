//! What there is to know of every option, from the one place where it is declared.

use std::fmt;

/// An option of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseOption {
    /// Its name, that of the field.
    pub name: &'static str,
    /// Its default as people write it: `64MiB`, `leveled`, `unset`.
    pub default: &'static str,
    /// What it counts.
    pub unit: OptionUnit,
    /// What the medium makes of it; empty where it holds as it is.
    pub store: &'static str,
    pub(super) lines: &'static str,
}

impl DatabaseOption {
    /// What it does, in sentences.
    pub fn meaning(&self) -> &'static str {
        self.lines.trim()
    }
}

/// What an option counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum OptionUnit {
    Bytes,
    BytesPerSecond,
    Memtables,
    Tables,
    Levels,
    Jobs,
    Threads,
    Entries,
    Bits,
    Milliseconds,
    /// A ratio of two sizes.
    Factor,
    Percent,
    /// True or false.
    Truth,
    /// One of a few words.
    Word,
    /// A list of such words.
    Words,
}

impl OptionUnit {
    /// The name of the unit.
    pub fn name(self) -> &'static str {
        match self {
            OptionUnit::Bytes => "bytes",
            OptionUnit::BytesPerSecond => "bytes per second",
            OptionUnit::Memtables => "memtables",
            OptionUnit::Tables => "tables",
            OptionUnit::Levels => "levels",
            OptionUnit::Jobs => "jobs",
            OptionUnit::Threads => "threads",
            OptionUnit::Entries => "entries",
            OptionUnit::Bits => "bits",
            OptionUnit::Milliseconds => "milliseconds",
            OptionUnit::Factor => "factor",
            OptionUnit::Percent => "percent",
            OptionUnit::Truth => "true or false",
            OptionUnit::Word => "word",
            OptionUnit::Words => "list of words",
        }
    }

    /// A value of this unit as people write it: sizes in the largest unit in which they are whole.
    pub fn show(self, value: &toml::Value) -> String {
        match (self, value) {
            (OptionUnit::Bytes | OptionUnit::BytesPerSecond, toml::Value::Integer(bytes)) => {
                const UNITS: [(&str, i64); 4] =
                    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
                let whole = UNITS.iter().find(|(_, unit)| *bytes > 0 && bytes % unit == 0);
                whole.map_or(bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
            }
            (_, toml::Value::String(word)) => word.clone(),
            (_, value) => value.to_string(),
        }
    }
}

impl fmt::Display for OptionUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Declares the options: documentation, name, type and default, the default as text, the unit, and what the medium
/// makes of it if anything. From that come the fields with their documentation, their defaults, and the table of them. A last field
/// holds the parameters that only experiments set.
macro_rules! described_options {
    (
        $(#[$attribute:meta])*
        pub struct $options:ident {
            $(
                $(#[doc = $line:literal])+
                $name:ident: $type:ty = $default:expr, $shown:literal, $unit:ident $(, $store:literal)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        pub struct $options {
            $(
                $(#[doc = $line])+
                #[doc = ""]
                #[doc = concat!("Default: `", $shown, "`.", $(" On the medium: ", $store, ".")?)]
                pub $name: $type,
            )*
            /// Parameters that only experiments set.
            #[doc(hidden)]
            #[serde(skip)]
            pub experiment: crate::options::ExperimentOptions,
        }

        impl Default for $options {
            fn default() -> Self {
                $options { $($name: $default,)* experiment: crate::options::ExperimentOptions::default() }
            }
        }

        impl $options {
            /// Every option in the order of the fields.
            pub const ALL: &'static [DatabaseOption] = &[
                $(DatabaseOption {
                    name: stringify!($name),
                    default: $shown,
                    unit: OptionUnit::$unit,
                    store: concat!($($store)?),
                    lines: concat!($($line),+),
                },)*
            ];
        }
    };
}

pub(super) use described_options;
