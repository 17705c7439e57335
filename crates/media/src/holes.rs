//! Holes of an open file, and the number of bytes left to read.

use rustix::fd::AsFd;
use rustix::fs::{FileType, SeekFrom, fstat, seek, tell};
use rustix::io::Errno;

/// Bytes of holes in the first `region_bytes` of a file; 0 if it is not a regular file. Moves the file's position.
///
/// # Errors
/// The system's.
pub fn hole_bytes(file: impl AsFd, region_bytes: u64) -> std::io::Result<u64> {
    let Some(size_bytes) = size_bytes(&file)? else { return Ok(0) };
    let end = size_bytes.min(region_bytes);
    let (mut at, mut bytes) = (0, 0);
    while at < end {
        let data = match seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            // No data follows.
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error.into()),
        };
        bytes += data - at;
        if data == end {
            break;
        }
        at = seek(&file, SeekFrom::Hole(data))?;
    }
    Ok(bytes)
}

/// Bytes between the position of a regular file and its end; none for pipes, devices and the like.
pub fn remaining_bytes(file: impl AsFd) -> Option<u64> {
    let size_bytes = size_bytes(&file).ok()??;
    Some(size_bytes.saturating_sub(tell(&file).ok()?))
}

/// Size of a regular file.
fn size_bytes(file: impl AsFd) -> Result<Option<u64>, Errno> {
    let metadata = fstat(file)?;
    let is_file = FileType::from_raw_mode(metadata.st_mode).is_file();
    Ok(u64::try_from(metadata.st_size).ok().filter(|_| is_file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    #[test]
    fn counts_holes_of_the_region() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let file = File::create_new(&path).unwrap();
        assert_eq!(hole_bytes(&file, 100).unwrap(), 0, "empty");
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[1; 1 << 20], 1 << 20).unwrap();
        let holes = |region_bytes| hole_bytes(File::open(&path).unwrap(), region_bytes).unwrap();
        assert_eq!([holes(1 << 30), holes(2 << 20), holes(3 << 20)], [3 << 20, 1 << 20, 2 << 20]);
        file.write_all_at(&vec![1; 4 << 20], 0).unwrap();
        assert_eq!(holes(1 << 30), 0);
        assert_eq!(hole_bytes(File::open("/dev/null").unwrap(), 100).unwrap(), 0);
    }

    #[test]
    fn counts_bytes_behind_the_position() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 10]).unwrap();
        let mut file = File::open(&path).unwrap();
        assert_eq!(remaining_bytes(&file), Some(10));
        file.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(remaining_bytes(&file), Some(6));
        assert_eq!(remaining_bytes(File::open("/dev/null").unwrap()), None);
    }
}
