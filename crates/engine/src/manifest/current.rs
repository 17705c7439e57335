//! The file `CURRENT`: which manifest holds.
//!
//! Five lines of text, each ended by a line feed:
//!
//! | line | text |
//! |---|---|
//! | 1 | `varve-current 2`, the version last |
//! | 2 | name of the manifest, `MANIFEST-000004` |
//! | 3 | `salt ` and the salt in the manifest's header, sixteen hexadecimal digits |
//! | 4 | `synced ` and how many bytes of it were durable when this was written, decimal |
//! | 5 | `crc32c ` and the checksum of the lines before, eight hexadecimal digits |
//!
//! It is written under another name and renamed, so it is always whole.

use crate::checksum;
use crate::encoding::other_version_advice;
use crate::error::Error;
use crate::file_name::{self, CURRENT, FileName};
use varve_store::{
    CreateOptions, FileKind, FileStore, IoClass, IoContext, OpenOptions, StoreErrorKind, find_sound_answer,
};

/// Longer files are not read.
const FILE_BYTES_MAX: u64 = 4096;

/// Of a file in a message.
const SHOWN_BYTES: usize = 100;

const FIRST_WORD: &str = "varve-current ";
const VERSION: u64 = 2;

/// What `CURRENT` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) manifest_number: u64,
    /// What tells the manifest from any other of its name.
    pub(super) salt: u64,
    pub(super) synced_bytes: u64,
}

impl Current {
    fn encode(&self) -> String {
        let manifest = file_name::manifest(self.manifest_number);
        let text =
            format!("{FIRST_WORD}{VERSION}\n{manifest}\nsalt {:016x}\nsynced {}\n", self.salt, self.synced_bytes);
        let sum = checksum::crc32c(text.as_bytes());
        format!("{text}crc32c {sum:08x}\n")
    }

    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let foreign = |found: &str, advice: &str| {
            Err(Error::Foreign {
                file: CURRENT.to_string(),
                offset_bytes: 0,
                expected: format!("'{FIRST_WORD}{VERSION}'"),
                found: found.to_string(),
                advice: advice.to_string(),
            })
        };
        if bytes.starts_with(b"MANIFEST-") {
            let advice = "this is a database of LevelDB or RocksDB; open another directory";
            return foreign("the name of a manifest without more", advice);
        }
        // What is not ours is not shown: the name may stand for any file of the machine.
        let is_ours = bytes.starts_with(FIRST_WORD.as_bytes());
        let corruption = |expected: &str| {
            Err(Error::Corruption {
                file: CURRENT.to_string(),
                offset_bytes: 0,
                structure: "pointer to the manifest".to_string(),
                expected: expected.to_string(),
                found: match is_ours {
                    true => format!("'{}'", bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii()),
                    false => format!("{} other bytes", bytes.len()),
                },
            })
        };
        if !is_ours {
            return corruption(&format!("a line that begins with '{FIRST_WORD}'"));
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return corruption("text");
        };
        // The last line is the checksum in every version.
        let body_end = text.strip_suffix('\n').and_then(|text| text.rfind('\n')).map_or(0, |position| position + 1);
        let (body, sum) = text.split_at(body_end);
        if sum != format!("crc32c {:08x}\n", checksum::crc32c(body.as_bytes())) {
            return corruption("a checksum that fits the lines before it");
        }
        let lines: Vec<&str> = body.split('\n').collect();
        if lines.first() != Some(&&*format!("{FIRST_WORD}{VERSION}")) {
            let first: String = lines.first().unwrap_or(&"").chars().take(SHOWN_BYTES).collect();
            let version: Option<u64> = first.strip_prefix(FIRST_WORD).and_then(|version| version.parse().ok());
            let is_older = version.is_some_and(|version| version < VERSION);
            return foreign(&format!("'{}'", first.escape_default()), other_version_advice(!is_older));
        }
        let [_, manifest, salt, synced, ""] = lines[..] else {
            return corruption("five lines");
        };
        let salt = salt.strip_prefix("salt ").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let synced_bytes = synced.strip_prefix("synced ").and_then(|digits| digits.parse().ok());
        match (FileName::parse(manifest), salt, synced_bytes) {
            (Some(FileName::Manifest(manifest_number)), Some(salt), Some(synced_bytes)) => {
                Ok(Current { manifest_number, salt, synced_bytes })
            }
            _ => corruption("the name of a manifest, a salt and a number of bytes"),
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
        let context = IoContext::of(IoClass::Metadata);
        file.read_at(0, &mut bytes, &context)?;
        if Self::decode(&bytes).is_err() {
            let read = |bytes: &mut [u8], context: &IoContext| file.read_at(0, bytes, context);
            find_sound_answer(&mut bytes, &context, read, |bytes| Self::decode(bytes).is_ok());
        }
        Self::decode(&bytes).map(Some)
    }

    /// Writes what takes its place with [`Current::switch`], durably.
    pub(super) fn prepare(&self, store: &dyn FileStore) -> Result<(), Error> {
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
        Ok(())
    }

    /// Replaces it atomically and durably by what was prepared for `manifest_number`. After an error it says what it said
    /// before or that.
    pub(super) fn switch(manifest_number: u64, store: &dyn FileStore) -> Result<(), Error> {
        Ok(store.rename(&file_name::temporary(manifest_number), CURRENT)?)
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

    const SAMPLE: Current = Current { manifest_number: 4, salt: 0xabcd, synced_bytes: 1234 };

    /// The bytes of the format; a change here is a change of the format.
    #[test]
    fn golden_current() {
        let expected = "varve-current 2\nMANIFEST-000004\nsalt 000000000000abcd\nsynced 1234\ncrc32c 4c99dd75\n";
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
        for version in ["current 1", "current 3"] {
            let text = SAMPLE.encode().replace("current 2", version);
            let body = &text[..text.len() - "crc32c 00000000\n".len()];
            let other = format!("{body}crc32c {:08x}\n", checksum::crc32c(body.as_bytes()));
            assert_eq!(Current::decode(other.as_bytes()).unwrap_err().kind(), ErrorKind::Foreign);
        }
        // As version 1 wrote it.
        let older = b"varve-current 1\nMANIFEST-000004\nsynced 1234\ncrc32c 94131a07\n";
        assert_eq!(Current::decode(older).unwrap_err().kind(), ErrorKind::Foreign);
    }

    #[test]
    fn what_is_not_ours_is_not_shown() {
        for secret in ["root:x:0:0:secret\n", "MANIFEST-secret\nsecret\n", "varve-curren secret\n"] {
            let error = Current::decode(secret.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
