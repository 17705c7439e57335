//! The file `OPTIONS`: the options a database was last opened with, as they held on its medium.
//!
//! Lines of text, each ended by a line feed:
//!
//! | line | text |
//! |---|---|
//! | 1 | `varve-options 1`, the version last |
//! | 2 to the last but one | TOML: `name = value`, one option to a line; those that are unset are not there. Of an option that was unset and that the medium decided a comment follows, ` # ` and the reason |
//! | last | `crc32c ` and the checksum of the lines before, eight hexadecimal digits |
//!
//! It is written under another name and renamed, so it is always whole, and only when it would say something else than
//! before. It tells people what held; nothing is read from it when a database is opened, and a repair takes the kind of tree from it where no manifest says it. So what keeps it from being
//! written (no space, a failure) keeps nobody from opening the database, and one that is damaged is written anew. One of a
//! newer version stays as it is.

use crate::error::Error;
use std::collections::BTreeMap;
use varve_engine::{Choice, Options};
use varve_store::{CreateOptions, FileKind, FileStore, IoClass, IoContext, OpenOptions, StoreErrorKind};

/// Its name.
pub(crate) const NAME: &str = "OPTIONS";

/// What it is called while it is written.
const TEMPORARY_NAME: &str = "OPTIONS.tmp";

/// Longer files are not read.
const FILE_BYTES_MAX: u64 = 64 << 10;

const FIRST_WORD: &str = "varve-options ";
const VERSION: &str = "1";

/// Before a reason.
const REASON: &str = " # ";

/// Space that is left to the database: it is not taken for this file.
const ROOM_BYTES: u64 = 1 << 20;

/// Options a database was opened with, by name, as TOML writes their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedOptions {
    table: toml::Table,
    /// Why the medium decided an option, by its name.
    reasons: BTreeMap<String, String>,
}

impl SavedOptions {
    /// Name and value of each that was set, in the order of names; sizes in bytes.
    pub fn values(&self) -> impl Iterator<Item = (&str, &toml::Value)> {
        self.table.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The value of one that was set.
    pub fn get(&self, name: &str) -> Option<&toml::Value> {
        self.table.get(name)
    }

    /// Why an option that was unset has its value; `None` where it was set, or the medium decides nothing.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.get(name).map(String::as_str)
    }
}

/// The options saved with the database on `files`; none when there is no such file.
///
/// # Errors
/// What the store says; [`Error::SavedOptions`] when the file is damaged or of a newer version.
pub fn saved_options(files: &dyn FileStore) -> Result<Option<SavedOptions>, Error> {
    let file = match files.open(NAME, &OpenOptions::default()) {
        Ok(file) => file,
        Err(error) if error.kind() == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size_bytes = file.size_bytes();
    if size_bytes > FILE_BYTES_MAX {
        return Err(damaged(&format!("at most {FILE_BYTES_MAX} bytes"), &format!("{size_bytes} bytes")));
    }
    let mut bytes = vec![0; size_bytes as usize];
    file.read_at(0, &mut bytes, &IoContext::of(IoClass::Metadata))?;
    decode(&bytes).map(Some)
}

/// Saves `options` as they hold on `files` and `logs`, if that is something else than what is saved.
pub(crate) fn save(
    files: &dyn FileStore,
    logs: &dyn FileStore,
    options: &Options,
    choices: &[Choice],
) -> Result<(), Error> {
    let text = encode(&options.on_stores(files.properties(), logs.properties()), choices)?;
    match saved_options(files) {
        Ok(Some(saved)) if decode(text.as_bytes())? == saved => return Ok(()),
        Err(Error::SavedOptions { is_newer: true, .. }) => return Ok(()),
        // What is damaged is replaced: it holds nothing that is not known now.
        Ok(_) | Err(Error::SavedOptions { .. }) => (),
        Err(error) => return Err(error),
    }
    let wanted_bytes = files.properties().preferred_table_bytes.unwrap_or(0).saturating_mul(2).max(ROOM_BYTES);
    let available_bytes = files.space()?.available_bytes;
    if available_bytes < wanted_bytes {
        return Err(Error::OptionsNotSaved { wanted_bytes, available_bytes });
    }
    let context = IoContext::of(IoClass::Metadata);
    let create = CreateOptions {
        kind: FileKind::Pointer,
        expected_size_bytes: Some(text.len() as u64),
        ..CreateOptions::default()
    };
    let mut file = files.create(TEMPORARY_NAME, &create)?;
    file.append(text.as_bytes(), &context)?;
    file.sync(&context)?;
    file.finish(&context)?;
    Ok(files.rename(TEMPORARY_NAME, NAME)?)
}

fn damaged(expected: &str, found: &str) -> Error {
    Error::SavedOptions { is_newer: false, expected: expected.to_owned(), found: found.to_owned() }
}

fn encode(options: &Options, choices: &[Choice]) -> Result<String, Error> {
    let mut text = format!("{FIRST_WORD}{VERSION}\n");
    for line in options.to_toml()?.lines() {
        let reason =
            choices.iter().find(|choice| line.split(' ').next() == Some(choice.name)).map(|choice| choice.reason);
        let comment = reason.map_or(String::new(), |reason| format!("{REASON}{reason}"));
        text.push_str(&format!("{line}{comment}\n"));
    }
    let sum = crc32c::crc32c(text.as_bytes());
    Ok(format!("{text}crc32c {sum:08x}\n"))
}

fn decode(bytes: &[u8]) -> Result<SavedOptions, Error> {
    let shown = || format!("'{}'", bytes[..bytes.len().min(60)].escape_ascii());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("text", &shown()))?;
    let lines = || text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n'));
    let (body, sum) = lines().ok_or_else(|| damaged("lines of text", &shown()))?;
    let computed = format!("crc32c {:08x}", crc32c::crc32c(&bytes[..body.len() + 1]));
    if sum != computed {
        return Err(damaged(&format!("'{computed}' in the last line"), &format!("'{}'", sum.escape_debug())));
    }
    let (first, table) = body.split_once('\n').unwrap_or((body, ""));
    match first.strip_prefix(FIRST_WORD) {
        Some(VERSION) => (),
        Some(_) => {
            let expected = format!("{FIRST_WORD}{VERSION}");
            return Err(Error::SavedOptions { is_newer: true, expected, found: first.to_owned() });
        }
        None => return Err(damaged(&format!("'{FIRST_WORD}{VERSION}' in the first line"), &shown())),
    }
    let parsed = table.parse::<toml::Table>().map_err(|error| damaged("options in TOML", error.message()))?;
    let reason = |line: &str| {
        let (before, reason) = line.split_once(REASON)?;
        let (name, _) = before.split_once(" = ")?;
        Some((name.to_owned(), reason.to_owned()))
    };
    // No value is a text with this sign in it: values are numbers, words and lists of them.
    let reasons = table.lines().filter_map(reason).collect();
    Ok(SavedOptions { table: parsed, reasons })
}

/// Any bytes; what is read is written and read as the same.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Ok(saved) = decode(bytes) else { return };
    assert_eq!(decode(bytes).ok(), Some(saved));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a disk, where the medium decides some.
    fn resolved() -> (Options, Vec<Choice>) {
        let choice = |name, value: &str| Choice { name, value: value.to_owned(), reason: "for a test" };
        let options = Options {
            tree: Some(varve_engine::TreeKind::Leveled),
            pace_background_work: Some(true),
            ..Options::default()
        };
        (options, vec![choice("pace_background_work", "true"), choice("tree", "leveled")])
    }

    #[test]
    fn golden() {
        let text = encode(&resolved().0, &resolved().1).unwrap();
        assert_eq!(text, include_str!("saved_options/golden.txt"), "{text}");
        let saved = decode(text.as_bytes()).unwrap();
        assert_eq!(saved.get("write_buffer_size").and_then(toml::Value::as_integer), Some(64 << 20));
        assert_eq!(saved.get("log_buffer_size"), None);
        // Written when databases had options that are parameters of experiments now.
        let moved = decode(include_bytes!("saved_options/golden_with_moved_options.txt")).unwrap();
        assert_eq!(moved.get("level0_score_by_bytes"), Some(&toml::Value::Boolean(false)));
        // Written before there were reasons.
        let before = decode(include_bytes!("saved_options/golden_without_reasons.txt")).unwrap();
        assert_eq!(before.get("tree").and_then(toml::Value::as_str), Some("leveled"));
        assert_eq!(before.reason("tree"), None);
        assert_eq!((saved.reason("tree"), saved.reason("write_buffer_size")), (Some("for a test"), None));
    }

    #[test]
    fn every_flip_and_cut_is_found() {
        let text = encode(&resolved().0, &resolved().1).unwrap().into_bytes();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut flipped = text.clone();
                flipped[at] ^= 1 << bit;
                assert!(decode(&flipped).is_err(), "bit {bit} of byte {at}");
            }
            assert!(decode(&text[..at]).is_err(), "cut at {at}");
        }
        let newer = String::from_utf8(text).unwrap().replace("varve-options 1", "varve-options 2");
        let body = &newer[..newer.rfind("crc32c").unwrap()];
        let newer = format!("{body}crc32c {:08x}\n", crc32c::crc32c(body.as_bytes()));
        assert!(matches!(decode(newer.as_bytes()), Err(Error::SavedOptions { is_newer: true, .. })));
    }
}
