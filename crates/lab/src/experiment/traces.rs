//! Finding the files of measurements that users bring.

use crate::error::LabError;
use crate::host;
use std::path::Path;

/// Most a compressed file may grow to.
const DECOMPRESSED_BYTES_MAX: usize = 1 << 30;

/// The text of the first of `names` that is in `directory`, plain or compressed with zstd (`.zst`); with
/// the name it was found under. `None` when there is none.
///
/// # Errors
/// A file that cannot be read, decompressed or is not text.
pub(super) fn find_text(directory: &Path, names: &[&str]) -> Result<Option<(String, String)>, LabError> {
    for name in names {
        let plain = directory.join(name);
        if let Some(bytes) = host::read_file(&plain)? {
            return Ok(Some(((*name).to_owned(), text(&plain, bytes)?)));
        }
        let compressed = directory.join(format!("{name}.zst"));
        if let Some(bytes) = host::read_file(&compressed)? {
            return Ok(Some((format!("{name}.zst"), text(&compressed, decompress(&compressed, &bytes)?)?)));
        }
    }
    Ok(None)
}

fn decompress(path: &Path, bytes: &[u8]) -> Result<Vec<u8>, LabError> {
    use std::io::Read;
    let failed = |reason: String| LabError::file(path.display().to_string(), reason);
    let decoder = zstd::Decoder::new(bytes).map_err(|error| failed(error.to_string()))?;
    let mut decompressed = Vec::new();
    decoder
        .take(DECOMPRESSED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut decompressed)
        .map_err(|error| failed(error.to_string()))?;
    if decompressed.len() > DECOMPRESSED_BYTES_MAX {
        return Err(failed(format!("decompresses to more than {DECOMPRESSED_BYTES_MAX} bytes")));
    }
    Ok(decompressed)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, LabError> {
    String::from_utf8(bytes).map_err(|error| LabError::file(path.display().to_string(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_compressed_files_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| host::write_file(&directory.path().join(name), bytes).unwrap();
        assert_eq!(find_text(directory.path(), &["a", "b"]).unwrap(), None);
        write("b.zst", &zstd::encode_all(&b"packed"[..], 3).unwrap());
        let found = find_text(directory.path(), &["a", "b"]).unwrap();
        assert_eq!(found, Some(("b.zst".to_owned(), "packed".to_owned())));
        write("a", b"plain");
        assert_eq!(find_text(directory.path(), &["a", "b"]).unwrap().unwrap().1, "plain");
        write("c.zst", b"not zstd");
        assert!(find_text(directory.path(), &["c"]).is_err());
        write("d", &[0xff, 0xfe]);
        assert!(find_text(directory.path(), &["d"]).is_err());
    }
}
