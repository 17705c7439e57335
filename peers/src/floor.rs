//! What the file system itself takes: the floors under a durable put and under a cold get.

use rustix::fs::{Mode, OFlags, fdatasync, open};
use rustix::io::{pread, pwrite};
use std::path::Path;
use varve::env::{Env, Random};
use varve_lab::LabError;

/// Bytes of a direct read, and its alignment.
const READ_BYTES: usize = 4096;

/// Median time of appending `bytes` to a new file at `path` and waiting for `fdatasync`, in nanoseconds.
pub(crate) fn durable_append_nanos(path: &Path, appends: u32, bytes: usize) -> Result<u64, LabError> {
    at(path, durable_appends(path, appends, bytes))
}

/// Median time of reading 4 KiB at random from a new file of `file_bytes` at `path`, past the page
/// cache, in nanoseconds. `None` where the file system refuses that.
pub(crate) fn direct_read_nanos(path: &Path, file_bytes: u64, reads: u32, seed: u64) -> Result<Option<u64>, LabError> {
    at(path, direct_reads(path, file_bytes, reads, seed))
}

/// Removes the file and names it in the error.
fn at<T>(path: &Path, result: Result<T, rustix::io::Errno>) -> Result<T, LabError> {
    let _ = std::fs::remove_file(path);
    result.map_err(|error| LabError::file(path.display().to_string(), error))
}

fn durable_appends(path: &Path, appends: u32, bytes: usize) -> Result<u64, rustix::io::Errno> {
    let env = Env::real();
    let file = open(path, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, Mode::RUSR | Mode::WUSR)?;
    let data = vec![7u8; bytes];
    let mut times = Vec::new();
    for append in 0..appends.max(1) {
        let begin = env.now();
        pwrite(&file, &data, u64::from(append) * bytes as u64)?;
        fdatasync(&file)?;
        times.push((env.now() - begin).as_nanos() as u64);
    }
    Ok(middle(times))
}

fn direct_reads(path: &Path, file_bytes: u64, reads: u32, seed: u64) -> Result<Option<u64>, rustix::io::Errno> {
    let blocks = (file_bytes / READ_BYTES as u64).max(1);
    {
        let file = open(path, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, Mode::RUSR | Mode::WUSR)?;
        let mut random = Random::seeded(seed);
        let mut chunk = vec![0; 1 << 20];
        random.fill_bytes(&mut chunk);
        let mut offset = 0;
        while offset < blocks * READ_BYTES as u64 {
            let wanted = chunk.len().min((blocks * READ_BYTES as u64 - offset) as usize);
            offset += pwrite(&file, &chunk[..wanted], offset)? as u64;
        }
        fdatasync(&file)?;
    }
    let Ok(file) = open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()) else { return Ok(None) };
    let env = Env::real();
    let mut random = Random::seeded(seed);
    // Direct reads want an aligned buffer; one twice as large always holds an aligned piece.
    let mut buffer = vec![0u8; 2 * READ_BYTES];
    let skip = buffer.as_ptr().align_offset(READ_BYTES);
    let piece = &mut buffer[skip..skip + READ_BYTES];
    let mut times = Vec::new();
    for _ in 0..reads.max(1) {
        let offset = random.below(blocks) * READ_BYTES as u64;
        let begin = env.now();
        match pread(&file, &mut *piece, offset) {
            Ok(_) => times.push((env.now() - begin).as_nanos() as u64),
            Err(rustix::io::Errno::INVAL) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(middle(times)))
}

fn middle(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_measured_and_leave_nothing_behind() {
        let path = std::env::temp_dir().join(format!("varve-floor-{}", std::process::id()));
        assert!(durable_append_nanos(&path, 5, 1024).unwrap() > 0);
        let read = direct_read_nanos(&path, 1 << 20, 20, 1).unwrap();
        assert!(read.is_none_or(|nanos| nanos > 0));
        assert!(!path.exists());
        assert!(durable_append_nanos(Path::new("/no such directory/floor"), 1, 1024).is_err());
    }
}
