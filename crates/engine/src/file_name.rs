//! Names of a database's files.
//!
//! | name | file |
//! |---|---|
//! | `000012.log` | write-ahead log |
//! | `000013.sst` | table |
//! | `MANIFEST-000004` | manifest |
//! | `CURRENT` | which manifest holds |
//! | `OPTIONS` | options the database was last opened with, kept by those who open it |
//! | `LOCK` | held while open |
//! | `REPAIRED` | nothing; what no manifest names was a database before its repair, and is set aside |
//! | `000006.tmp` | being written, to be renamed |
//!
//! Numbers have at least six digits, come from one counter and are never used twice.

/// Names the manifest that holds.
pub(crate) const CURRENT: &str = "CURRENT";

/// Options the database was last opened with.
pub(crate) const OPTIONS: &str = "OPTIONS";

/// Locked while the database is open.
pub(crate) const LOCK: &str = "LOCK";

/// There from before a repair switches to what it made until what it replaced is set aside.
pub(crate) const REPAIRED: &str = "REPAIRED";

/// Before the names of files that a repair set aside: damaged ones, and those it did not use.
pub(crate) const SET_ASIDE_PREFIX: &str = "damaged-";

/// Before the names of sound files whose contents a repair put into fresh ones.
pub(crate) const REPLACED_PREFIX: &str = "replaced-";

/// Whether a repair gave a file its name, to keep it.
pub(crate) fn is_set_aside(name: &str) -> bool {
    name.starts_with(SET_ASIDE_PREFIX) || name.starts_with(REPLACED_PREFIX)
}

/// Largest number a file has. No database gets there; so a name that somebody made up leaves numbers to go on with.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// What the name of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileName {
    Log(u64),
    Table(u64),
    Manifest(u64),
    Current,
    Options,
    Lock,
    Repaired,
    Temporary(u64),
}

/// Name of write-ahead log `number`.
pub(crate) fn log(number: u64) -> String {
    FileName::Log(number).format()
}

/// Name of table `number`.
pub(crate) fn table(number: u64) -> String {
    FileName::Table(number).format()
}

/// Name of manifest `number`.
pub(crate) fn manifest(number: u64) -> String {
    FileName::Manifest(number).format()
}

/// Name of temporary file `number`.
pub(crate) fn temporary(number: u64) -> String {
    FileName::Temporary(number).format()
}

impl FileName {
    /// The name as text.
    pub(crate) fn format(&self) -> String {
        match self {
            FileName::Log(number) => format!("{number:06}.log"),
            FileName::Table(number) => format!("{number:06}.sst"),
            FileName::Manifest(number) => format!("MANIFEST-{number:06}"),
            FileName::Current => CURRENT.to_string(),
            FileName::Options => OPTIONS.to_string(),
            FileName::Lock => LOCK.to_string(),
            FileName::Repaired => REPAIRED.to_string(),
            FileName::Temporary(number) => format!("{number:06}.tmp"),
        }
    }

    /// What `name` says; none when no file of a database is called so.
    pub(crate) fn parse(name: &str) -> Option<FileName> {
        let number = |digits: &str| digits.parse::<u64>().ok().filter(|&number| number <= NUMBER_MAX);
        let found = if let Some(digits) = name.strip_prefix("MANIFEST-") {
            FileName::Manifest(number(digits)?)
        } else if let Some((digits, extension)) = name.split_once('.') {
            let number = number(digits)?;
            match extension {
                "log" => FileName::Log(number),
                "sst" => FileName::Table(number),
                "tmp" => FileName::Temporary(number),
                _ => return None,
            }
        } else {
            match name {
                CURRENT => FileName::Current,
                LOCK => FileName::Lock,
                OPTIONS => FileName::Options,
                REPAIRED => FileName::Repaired,
                _ => return None,
            }
        };
        // Only the one spelling this module writes.
        (found.format() == name).then_some(found)
    }

    /// The number in the name, if it has one.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            FileName::Log(number)
            | FileName::Table(number)
            | FileName::Manifest(number)
            | FileName::Temporary(number) => Some(*number),
            FileName::Current | FileName::Options | FileName::Lock | FileName::Repaired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return_and_others_are_not_ours() {
        for number in [0, 7, 999_999, 1_000_000, NUMBER_MAX] {
            let all = [
                FileName::Log(number),
                FileName::Table(number),
                FileName::Manifest(number),
                FileName::Temporary(number),
            ];
            for name in all {
                assert_eq!(FileName::parse(&name.format()), Some(name));
                assert_eq!(name.number(), Some(number));
            }
        }
        assert_eq!(FileName::parse("CURRENT"), Some(FileName::Current));
        assert_eq!(FileName::parse("LOCK"), Some(FileName::Lock));
        assert_eq!(table(12), "000012.sst");
        let others = [
            "",
            "12.sst",
            "0000012.sst",
            "+00012.sst",
            "000012.SST",
            "000012",
            "000012.sst.sst",
            "MANIFEST-",
            "MANIFEST-4",
            "MANIFEST-000004x",
            "current",
            // Such a name once let the counter of files overflow.
            "18446744073709551615.sst",
            "4611686018427387905.log",
            "18446744073709551616.log",
            "-00001.log",
            "LOG",
            ".log",
        ];
        for name in others {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
