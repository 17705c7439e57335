//! Bytes in a sparse file, for emulated devices larger than memory.

use super::Backing;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// A file that holds only the blocks that were written. What the file system cannot punch out on
/// discard is overwritten with zeros instead.
#[derive(Debug)]
pub struct FileBacking {
    file: File,
}

impl FileBacking {
    /// Opens or creates the file at `path` and makes it at least `capacity_bytes` long. An existing
    /// file keeps its bytes: a device on it continues where it was left.
    ///
    /// # Errors
    /// What the operating system says when it opens or lengthens the file.
    pub fn open(path: &Path, capacity_bytes: u64) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.len() < capacity_bytes {
            file.set_len(capacity_bytes)?;
        }
        Ok(FileBacking { file })
    }
}

impl Backing for FileBacking {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(data, offset_bytes)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.file.write_all_at(data, offset_bytes)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        if length_bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset_bytes, length_bytes).map_err(Error::from) {
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported) => {
                let zeros = [0; 64 << 10];
                let mut at = 0;
                while at < length_bytes {
                    let length = (length_bytes - at).min(zeros.len() as u64);
                    self.file.write_all_at(&zeros[..length as usize], offset_bytes + at)?;
                    at += length;
                }
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn stored_bytes(&self) -> u64 {
        // st_blocks counts units of 512 bytes whatever the file system's block is (POSIX).
        self.file.metadata().map_or(0, |metadata| metadata.blocks() * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_bytes_across_opens_and_stays_sparse() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let file = FileBacking::open(&path, 1 << 30).unwrap();
        file.write_at(512 << 20, &[7; 8192]).unwrap();
        file.discard(512 << 20, 4096).unwrap();
        drop(file);
        let file = FileBacking::open(&path, 1 << 30).unwrap();
        let mut data = [1; 8192];
        file.read_at(512 << 20, &mut data).unwrap();
        assert!(data[..4096] == [0; 4096] && data[4096..] == [7; 4096]);
        assert!(file.stored_bytes() < 1 << 20);
    }
}
