//! Bytes in a sparse file, for emulated devices larger than memory.

use super::Backing;
use super::pieces::pieces;
use crate::error::{MediaError, Operation};
use crate::file_lock::LockedFile;
use crate::place::{self, FileMode};
use parking_lot::RwLock;
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes that are moved under one lock: a multiple of every sector.
const CHUNK_BYTES: u64 = 64 << 10;

/// Locks of chunks. More than threads that are in the file at the same time, so that two rarely meet.
const STRIPES: usize = 64;

/// A file that holds only the blocks that were written. What the file system cannot punch out on
/// discard is overwritten with zeros instead. It is locked (flock) while it is open, so that two
/// devices on one file do not destroy each other's bytes.
#[derive(Debug)]
pub struct FileBacking {
    file: LockedFile<File>,
    /// The page cache copies a sector in pieces: those that read and write a chunk keep out of each other's way.
    stripes: [RwLock<()>; STRIPES],
    is_new: bool,
    was_made: bool,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Writing, making it when it is not there.
    Create,
    /// Writing.
    Write,
    /// Reading.
    Read,
}

impl FileBacking {
    /// Opens or creates the file at `path`; a new or empty one becomes `capacity_bytes` long. Any other
    /// keeps its bytes and its length until something is written beyond it: a device on it continues
    /// where it was left, and a file of another program is not changed by looking at it.
    ///
    /// # Errors
    /// [`MediaError::Locked`] when it is open elsewhere; what the operating system says when it opens or
    /// lengthens the file.
    pub fn open(path: &Path, capacity_bytes: u64) -> std::result::Result<Self, MediaError> {
        FileBacking::open_with_mode(path, capacity_bytes, FileMode::default())
    }

    /// [`FileBacking::open`] that gives a file it makes these permissions.
    pub fn open_with_mode(path: &Path, capacity_bytes: u64, mode: FileMode) -> std::result::Result<Self, MediaError> {
        FileBacking::open_as(path, capacity_bytes, Purpose::Create, mode)
    }

    /// [`FileBacking::open`] that does not create: a missing file is [`MediaError::NotFound`].
    pub fn open_existing(path: &Path, capacity_bytes: u64) -> std::result::Result<Self, MediaError> {
        FileBacking::open_as(path, capacity_bytes, Purpose::Write, FileMode::default())
    }

    /// Opens an existing file for reading: nothing of it changes, permission to read is enough, and every write fails.
    /// Several may read a file at the same time, while nobody has it open for writing.
    pub fn open_read_only(path: &Path) -> std::result::Result<Self, MediaError> {
        FileBacking::open_as(path, 0, Purpose::Read, FileMode::default())
    }

    fn open_as(
        path: &Path,
        capacity_bytes: u64,
        purpose: Purpose,
        mode: FileMode,
    ) -> std::result::Result<Self, MediaError> {
        let name = || path.display().to_string();
        let failed = |error: Error| MediaError::io(&name(), Operation::Open, 0, error);
        let (write, create) = (purpose != Purpose::Read, purpose == Purpose::Create);
        let (file, was_made) = place::open_file(path, File::options().read(true).write(write), create.then_some(mode))?;
        let file = match LockedFile::new(file, purpose == Purpose::Read) {
            Err(rustix::io::Errno::AGAIN) => return Err(MediaError::Locked { device: name(), name: name() }),
            result => result.map_err(|errno| failed(errno.into()))?,
        };
        let is_new = file.metadata().map_err(failed)?.len() == 0;
        if create && is_new {
            let lengthened = file.set_len(capacity_bytes).and_then(|()| {
                // What a device made durable must be found under its name.
                file.sync_all()?;
                let absolute = std::path::absolute(path)?;
                absolute.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
            });
            if let Err(error) = lengthened {
                if was_made {
                    let _ = std::fs::remove_file(path);
                }
                return Err(failed(error));
            }
        }
        Ok(FileBacking { file, stripes: std::array::from_fn(|_| RwLock::default()), is_new, was_made })
    }

    /// Whether the file was not there before it was opened, nor a link to it.
    pub fn was_made(&self) -> bool {
        self.was_made
    }

    /// Whether the file was not there, or empty, before it was opened.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    fn stripe(&self, chunk: u64) -> &RwLock<()> {
        &self.stripes[(chunk % STRIPES as u64) as usize]
    }

    /// Writes `data` chunk by chunk, each under its lock.
    fn write_pieces(&self, offset_bytes: u64, data: &[u8], write: impl Fn(&[u8], u64) -> Result<()>) -> Result<()> {
        let (mut rest, mut at) = (data, offset_bytes);
        for piece in pieces(offset_bytes, data.len() as u64, CHUNK_BYTES) {
            let (head, tail) = rest.split_at(piece.length);
            let _exclusive = self.stripe(piece.chunk).write();
            write(head, at)?;
            (rest, at) = (tail, at + piece.length as u64);
        }
        Ok(())
    }

    /// Fills `data` from what the file has, and from where it ends with zeros: there nothing was ever written.
    fn read_chunk(&self, offset_bytes: u64, data: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.file.read_at(&mut data[done..], offset_bytes + done as u64) {
                Ok(0) => {
                    data[done..].fill(0);
                    break;
                }
                Ok(length) => done += length,
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes all of `data` with RWF_DSYNC, or, where the file system does not know that, with a sync of the file.
fn write_durably(file: &File, mut data: &[u8], mut offset_bytes: u64) -> Result<()> {
    use rustix::io::{Errno, ReadWriteFlags, pwritev2};
    while !data.is_empty() {
        match pwritev2(file, &[IoSlice::new(data)], offset_bytes, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => (data, offset_bytes) = (&data[length..], offset_bytes + length as u64),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                file.write_all_at(data, offset_bytes)?;
                return file.sync_data();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Backing for FileBacking {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8]) -> Result<()> {
        let (mut rest, mut at) = (data, offset_bytes);
        for piece in pieces(offset_bytes, rest.len() as u64, CHUNK_BYTES) {
            let (head, tail) = rest.split_at_mut(piece.length);
            let _shared = self.stripe(piece.chunk).read();
            self.read_chunk(at, head)?;
            (rest, at) = (tail, at + piece.length as u64);
        }
        Ok(())
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.write_pieces(offset_bytes, data, |piece, at| self.file.write_all_at(piece, at))
    }

    fn write_durably_at(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.write_pieces(offset_bytes, data, |piece, at| write_durably(&self.file, piece, at))
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        if length_bytes == 0 {
            return Ok(());
        }
        // Of what is long, all at once; who moves bytes has one of them at a time, so that none waits for another's.
        let _exclusive: [_; STRIPES] = std::array::from_fn(|stripe| self.stripes[stripe].write());
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&*self.file, flags, offset_bytes, length_bytes).map_err(Error::from) {
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
        assert!(file.is_new());
        file.write_at(512 << 20, &[7; 8192]).unwrap();
        file.discard(512 << 20, 4096).unwrap();
        assert!(matches!(FileBacking::open(&path, 1 << 30), Err(MediaError::Locked { .. })));
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o177, 0, "for its owner only: {mode:o}");
        drop(file);
        let other = directory.path().join("other");
        assert!(matches!(FileBacking::open_existing(&other, 1 << 30), Err(MediaError::NotFound { .. })));
        let file = FileBacking::open_existing(&path, 1 << 30).unwrap();
        assert!(!file.is_new());
        let mut data = [1; 8192];
        file.read_at(512 << 20, &mut data).unwrap();
        assert!(data[..4096] == [0; 4096] && data[4096..] == [7; 4096]);
        assert!(file.stored_bytes() < 1 << 20);
    }

    #[test]
    fn a_sector_that_is_read_while_it_is_written_or_discarded_is_old_or_new() {
        const SECTOR: usize = 4096;
        // Across the border of two chunks.
        let start = CHUNK_BYTES - 2 * SECTOR as u64;
        let directory = tempfile::tempdir().unwrap();
        let file = FileBacking::open(&directory.path().join("disk"), 1 << 20).unwrap();
        std::thread::scope(|scope| {
            for byte in 1..=3 {
                let file = &file;
                scope.spawn(move || {
                    let mut data = [0; 4 * SECTOR];
                    for round in 0..2_000 {
                        match byte == 3 && round % 8 == 0 {
                            true => file.discard(start, data.len() as u64).unwrap(),
                            false => file.write_at(start, &[byte; 4 * SECTOR]).unwrap(),
                        }
                        file.read_at(start, &mut data).unwrap();
                        for sector in data.chunks(SECTOR) {
                            let first = sector[0];
                            assert!(first <= 3 && sector.iter().all(|&byte| byte == first), "torn in round {round}");
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_durable_write_is_whole_across_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let file = FileBacking::open(&directory.path().join("disk"), 1 << 20).unwrap();
        let data: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        file.write_durably_at(CHUNK_BYTES - 4096, &data).unwrap();
        let mut found = vec![0; data.len()];
        file.read_at(CHUNK_BYTES - 4096, &mut found).unwrap();
        assert_eq!(found, data);
    }

    #[test]
    fn readers_share_a_file_and_write_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        assert!(matches!(FileBacking::open_read_only(&path), Err(MediaError::NotFound { .. })));
        let writer = FileBacking::open(&path, 1 << 20).unwrap();
        writer.write_at(4096, &[7; 512]).unwrap();
        assert!(matches!(FileBacking::open_read_only(&path), Err(MediaError::Locked { .. })));
        drop(writer);
        let before = std::fs::metadata(&path).unwrap();
        let readers = [(); 2].map(|()| FileBacking::open_read_only(&path).unwrap());
        assert!(matches!(FileBacking::open(&path, 1 << 20), Err(MediaError::Locked { .. })));
        let mut data = [0; 512];
        readers[1].read_at(4096, &mut data).unwrap();
        assert_eq!(data, [7; 512]);
        assert!(readers[0].write_at(0, &[1]).is_err() && readers[0].discard(0, 4096).is_err());
        let after = std::fs::metadata(&path).unwrap();
        let times = |found: &std::fs::Metadata| (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
        assert_eq!(times(&before), times(&after));
    }

    #[test]
    fn a_shorter_file_reads_as_zeros_beyond_its_end_and_keeps_its_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, [7; 6000]).unwrap();
        for purpose in [Purpose::Read, Purpose::Write, Purpose::Create] {
            let file = FileBacking::open_as(&path, 1 << 20, purpose, FileMode::default()).unwrap();
            let mut data = [1; 8192];
            file.read_at(4096, &mut data).unwrap();
            assert!(data[..1904] == [7; 1904] && data[1904..] == [0; 6288]);
            file.read_at(1 << 19, &mut data).unwrap();
            assert!(data == [0; 8192]);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 6000);
        }
        let file = FileBacking::open(&path, 1 << 20).unwrap();
        file.write_at(1 << 19, &[9; 512]).unwrap();
        let mut data = [1; 1024];
        file.read_at((1 << 19) - 512, &mut data).unwrap();
        assert!(data[..512] == [0; 512] && data[512..] == [9; 512]);
    }
}
