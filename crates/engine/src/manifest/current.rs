//! The file `CURRENT`: which manifest holds.
//!
//! Four lines of text, each ended by a line feed:
//!
//! | line | text |
//! |---|---|
//! | 1 | `varve-current 1`, the version last |
//! | 2 | name of the manifest, `MANIFEST-000004` |
//! | 3 | `synced ` and how many bytes of it were durable when this was written, decimal |
//! | 4 | `crc32c ` and the checksum of the lines before, eight hexadecimal digits |
//!
//! It is written under another name and renamed, so it is always whole.

use crate::checksum;
use crate::error::Error;
use crate::file_name::{self, CURRENT, FileName};
use varve_store::{CreateOptions, FileKind, FileStore, IoClass, IoContext, OpenOptions, StoreErrorKind};

/// Longer files are not read.
const FILE_BYTES_MAX: u64 = 4096;

const FIRST_WORD: &str = "varve-current ";
const VERSION: &str = "1";

/// What `CURRENT` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) manifest_number: u64,
    pub(super) synced_bytes: u64,
}

impl Current {
    fn encode(&self) -> String {
        let manifest = file_name::manifest(self.manifest_number);
        let text = format!("{FIRST_WORD}{VERSION}\n{manifest}\nsynced {}\n", self.synced_bytes);
        let sum = checksum::crc32c(text.as_bytes());
        format!("{text}crc32c {sum:08x}\n")
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let corruption = |expected: &str| {
            Err(Error::Corruption {
                file: CURRENT.to_string(),
                offset_bytes: 0,
                structure: "pointer to the manifest".to_string(),
                expected: expected.to_string(),
                found: format!("'{}'", bytes[..bytes.len().min(100)].escape_ascii()),
            })
        };
        let foreign = |found: &str, advice: &str| {
            Err(Error::Foreign {
                file: CURRENT.to_string(),
                offset_bytes: 0,
                expected: format!("'{FIRST_WORD}{VERSION}'"),
                found: found.to_string(),
                advice: advice.to_string(),
            })
        };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return corruption("text");
        };
        if text.starts_with("MANIFEST-") {
            let advice = "this is a database of LevelDB or RocksDB; open another directory";
            return foreign("the name of a manifest without more", advice);
        }
        let lines: Vec<&str> = text.split('\n').collect();
        let [first, manifest, synced, sum, ""] = lines[..] else {
            return corruption("four lines");
        };
        let body = &text[..text.len() - sum.len() - 1];
        if sum != format!("crc32c {:08x}", checksum::crc32c(body.as_bytes())) {
            return corruption("a checksum that fits the lines before it");
        }
        if first != format!("{FIRST_WORD}{VERSION}") {
            return foreign(first, "it was written by a newer version; open it with that version");
        }
        let synced_bytes = synced.strip_prefix("synced ").and_then(|digits| digits.parse().ok());
        match (FileName::parse(manifest), synced_bytes) {
            (Some(FileName::Manifest(manifest_number)), Some(synced_bytes)) => {
                Ok(Current { manifest_number, synced_bytes })
            }
            _ => corruption("the name of a manifest and a number of bytes"),
        }
    }

    /// Reads it; none when there is no such file.
    pub(super) fn read(store: &dyn FileStore) -> Result<Option<Self>, Error> {
        let file = match store.open(CURRENT, &OpenOptions::default()) {
            Ok(file) => file,
            Err(error) if error.kind() == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::Store(error)),
        };
        let size = file.size_bytes();
        if size > FILE_BYTES_MAX {
            return Err(Error::Corruption {
                file: CURRENT.to_string(),
                offset_bytes: 0,
                structure: "pointer to the manifest".to_string(),
                expected: format!("at most {FILE_BYTES_MAX} bytes"),
                found: format!("{size} bytes"),
            });
        }
        let mut bytes = vec![0; size as usize];
        file.read_at(0, &mut bytes, &IoContext::of(IoClass::Metadata))?;
        Self::decode(&bytes).map(Some)
    }

    /// Replaces it atomically and durably. After an error it says what it said before or this.
    pub(super) fn write(&self, store: &dyn FileStore) -> Result<(), Error> {
        let context = IoContext::of(IoClass::Metadata);
        let temporary = file_name::temporary(self.manifest_number);
        let text = self.encode();
        let options = CreateOptions {
            kind: FileKind::Pointer,
            expected_size_bytes: Some(text.len() as u64),
            ..CreateOptions::default()
        };
        let mut file = store.create(&temporary, &options)?;
        file.append(text.as_bytes(), &context)?;
        file.sync(&context)?;
        file.finish(&context)?;
        store.rename(&temporary, CURRENT)?;
        Ok(())
    }
}

/// What a decoder of `CURRENT` does with any bytes; for fuzzing.
pub(super) fn fuzz(bytes: &[u8]) {
    if let Ok(current) = Current::decode(bytes) {
        assert_eq!(Current::decode(current.encode().as_bytes()).ok(), Some(current));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const SAMPLE: Current = Current { manifest_number: 4, synced_bytes: 1234 };

    /// The bytes of the format; a change here is a change of the format.
    #[test]
    fn golden_current() {
        let expected = "varve-current 1\nMANIFEST-000004\nsynced 1234\ncrc32c 94131a07\n";
        assert_eq!(SAMPLE.encode(), expected);
        assert_eq!(Current::decode(expected.as_bytes()).unwrap(), SAMPLE);
    }

    #[test]
    fn every_flip_and_every_cut_is_an_error() {
        let good = SAMPLE.encode().into_bytes();
        for position in 0..good.len() {
            assert!(Current::decode(&good[..position]).is_err());
            for bit in 0..8 {
                let mut changed = good.clone();
                changed[position] ^= 1 << bit;
                assert_eq!(Current::decode(&changed).unwrap_err().kind(), ErrorKind::Corruption, "position {position}");
            }
        }
    }

    #[test]
    fn other_databases_and_newer_versions_are_foreign() {
        assert_eq!(Current::decode(b"MANIFEST-000004\n").unwrap_err().kind(), ErrorKind::Foreign);
        let text = SAMPLE.encode().replace("current 1", "current 2");
        let body = &text[..text.len() - "crc32c 00000000\n".len()];
        let newer = format!("{body}crc32c {:08x}\n", checksum::crc32c(body.as_bytes()));
        assert_eq!(Current::decode(newer.as_bytes()).unwrap_err().kind(), ErrorKind::Foreign);
    }
}
