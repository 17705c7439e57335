//! What the file system itself takes: the floors under a durable put and under a cold get.

use rustix::fs::{Mode, OFlags, fdatasync, open};
use rustix::io::{pread, pwrite};
use std::path::Path;
use varve_env::{Env, Random};
use varve_lab::LabError;

/// Bytes of an append.
const APPEND_BYTES: usize = 1024;

/// Bytes of a direct read, and its alignment.
const READ_BYTES: usize = 4096;

/// Median times, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floors {
    /// Appending 1 KiB and waiting for `fdatasync`.
    pub(crate) durable_append_nanos: u64,
    /// Reading 4 KiB at random past the page cache; absent where the file system refuses that.
    pub(crate) direct_read_nanos: Option<u64>,
}

/// Measures the floors in `directory`, with a file of `file_bytes` for the reads.
pub(crate) fn measure(
    directory: &Path,
    file_bytes: u64,
    appends: u32,
    reads: u32,
    seed: u64,
) -> Result<Floors, LabError> {
    std::fs::create_dir_all(directory).map_err(|error| LabError::file(directory.display().to_string(), error))?;
    let path = directory.join("floor");
    let failed = |error: rustix::io::Errno| LabError::file(path.display().to_string(), error);
    let result = durable_appends(&path, appends).and_then(|durable_append_nanos| {
        Ok(Floors { durable_append_nanos, direct_read_nanos: direct_reads(&path, file_bytes, reads, seed)? })
    });
    let _ = std::fs::remove_file(&path);
    result.map_err(failed)
}

fn durable_appends(path: &Path, appends: u32) -> Result<u64, rustix::io::Errno> {
    let env = Env::real();
    let file = open(path, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, Mode::RUSR | Mode::WUSR)?;
    let data = [7u8; APPEND_BYTES];
    let mut times = Vec::new();
    for append in 0..appends.max(1) {
        let begin = env.now();
        pwrite(&file, &data, u64::from(append) * APPEND_BYTES as u64)?;
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
        let directory = std::env::temp_dir().join(format!("varve-floor-{}", std::process::id()));
        let floors = measure(&directory, 1 << 20, 5, 20, 1).unwrap();
        assert!(floors.durable_append_nanos > 0);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir(&directory).unwrap();
    }
}
