//! A directory of the machine's file system.

use super::{
    Directory, DirectoryEntry, DirectoryFile, DirectoryLock, FileMapping, OpenMode, Space, WritableMapping, check_name,
};
use crate::buffer::is_aligned;
use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use crate::file_lock::LockedFile;
use crate::place::{self, FileMode, Wanted};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Alignment assumed for O_DIRECT where the kernel does not tell (before Linux 6.1): the largest in use.
const DIRECT_ALIGNMENT_BYTES: u32 = 4096;
/// Buffers one pwritev takes (IOV_MAX of Linux).
const VECTOR_MAX: usize = 1024;

/// A directory of the operating system: pread and pwritev, fdatasync, fsync of the directory, flock.
///
/// Names that are not UTF-8 cannot be made through this interface and are left out of listings.
/// Files are made for their owner only (0600, directories 0700) unless another [`FileMode`] is given. Symbolic links within it are listed, as empty files, and
/// not followed. Every call goes to the kernel; nothing is cached. Interrupted calls are repeated.
pub struct OsDirectory {
    path: PathBuf,
    label: String,
    handle: OwnedFd,
    mode: FileMode,
    made: Vec<PathBuf>,
}

impl OsDirectory {
    /// Opens the directory at `path`, which must exist.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, MediaError> {
        let path = path.as_ref();
        let label = path.display().to_string();
        // A relative path would change its meaning with the working directory.
        let absolute =
            std::path::absolute(path).map_err(|source| MediaError::io(&label, Operation::Open, 0, source))?;
        place::check(&absolute, Wanted::Directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = repeat(|| rustix::fs::open(&absolute, flags, Mode::empty()))
            .map_err(|errno| error_of(errno, &label, Operation::Open, 0, 0))?;
        // Two ways to one directory are the same place.
        let path =
            std::fs::canonicalize(&absolute).map_err(|source| MediaError::io(&label, Operation::Open, 0, source))?;
        Ok(OsDirectory { path, label, handle, mode: FileMode::default(), made: Vec::new() })
    }

    /// Opens the directory at `path`, making it (and its parents) durably when it is not there.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, MediaError> {
        OsDirectory::create_with_mode(path, FileMode::default())
    }

    /// [`OsDirectory::create`] that gives these permissions to what is made, now and later.
    pub fn create_with_mode(path: impl AsRef<Path>, mode: FileMode) -> Result<Self, MediaError> {
        let path = path.as_ref();
        let label = path.display().to_string();
        let failed = |source| MediaError::io(&label, Operation::Open, 0, source);
        let absolute = std::path::absolute(path).map_err(failed)?;
        place::check(&absolute, Wanted::Directory)?;
        let made = place::make_directories(&absolute, mode.of_directories()).map_err(failed)?;
        Ok(OsDirectory { made, ..OsDirectory::open(path)?.with_mode(mode) })
    }

    /// Gives these permissions to files that are made from now on.
    pub fn with_mode(self, mode: FileMode) -> Self {
        OsDirectory { mode, ..self }
    }

    /// The directories that [`OsDirectory::create`] made, the deepest last; none when it was there.
    pub fn made(&self) -> &[PathBuf] {
        &self.made
    }

    fn file_label(&self, name: &str) -> String {
        format!("{}/{name}", self.label)
    }

    fn error(&self, errno: Errno, operation: Operation, name: &str) -> MediaError {
        match errno {
            Errno::NOENT => MediaError::NotFound { device: self.label.clone(), operation, name: name.to_owned() },
            Errno::LOOP => MediaError::Rule {
                device: self.file_label(name),
                operation,
                offset_bytes: 0,
                rule: "it is a symbolic link, and links are not followed; put the file itself there".to_owned(),
            },
            _ => error_of(errno, &self.file_label(name), operation, 0, 0),
        }
    }
}

/// Repeats a call that a signal interrupted.
fn repeat<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => continue,
            result => return result,
        }
    }
}

/// The typed error of an errno.
pub(crate) fn error_of(
    errno: Errno,
    device: &str,
    operation: Operation,
    offset_bytes: u64,
    length_bytes: u64,
) -> MediaError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            MediaError::NoSpace { device: device.to_owned(), operation, offset_bytes, length_bytes }
        }
        _ => MediaError::io(device, operation, offset_bytes, errno.into()),
    }
}

impl Directory for OsDirectory {
    fn name(&self) -> &str {
        &self.label
    }

    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, MediaError> {
        check_name(&self.label, Operation::Open, name)?;
        // NONBLOCK: a pipe of that name must not hang the open; regular files ignore it.
        // NOFOLLOW: a link would lead out of the directory, to be read, or to be written to.
        let mut flags = OFlags::CLOEXEC
            | OFlags::NONBLOCK
            | OFlags::NOFOLLOW
            | if mode.write { OFlags::RDWR } else { OFlags::RDONLY };
        if mode.write && mode.create {
            flags |= OFlags::CREATE;
        }
        if mode.write && mode.truncate {
            flags |= OFlags::TRUNC;
        }
        let permissions = Mode::from_raw_mode(self.mode.of_files());
        let open = |flags| repeat(|| rustix::fs::openat(&self.handle, name, flags, permissions));
        let (file, direct) = if mode.direct {
            match open(flags | OFlags::DIRECT) {
                // The file system has no direct I/O.
                Err(Errno::INVAL) => (open(flags), false),
                result => (result, true),
            }
        } else {
            (open(flags), false)
        };
        let file = file.map_err(|errno| self.error(errno, Operation::Open, name))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.error(errno, Operation::Open, name))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MediaError::Rule {
                device: self.file_label(name),
                operation: Operation::Open,
                offset_bytes: 0,
                rule: "only regular files can be opened".to_owned(),
            });
        }
        let alignment = if direct { direct_alignment_bytes(&file) } else { 1 };
        Ok(Arc::new(OsFile { label: self.file_label(name), file, writable: mode.write, alignment_bytes: alignment }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediaError> {
        check_name(&self.label, Operation::Rename, from)?;
        check_name(&self.label, Operation::Rename, to)?;
        repeat(|| rustix::fs::renameat(&self.handle, from, &self.handle, to))
            .map_err(|errno| self.error(errno, Operation::Rename, from))
    }

    fn remove(&self, name: &str) -> Result<(), MediaError> {
        check_name(&self.label, Operation::Remove, name)?;
        repeat(|| rustix::fs::unlinkat(&self.handle, name, AtFlags::empty()))
            .map_err(|errno| self.error(errno, Operation::Remove, name))
    }

    fn list(&self) -> Result<Vec<DirectoryEntry>, MediaError> {
        let failed = |errno| error_of(errno, &self.label, Operation::List, 0, 0);
        let mut entries = Vec::new();
        for found in rustix::fs::Dir::read_from(&self.handle).map_err(failed)? {
            let found = found.map_err(failed)?;
            let Ok(name) = found.file_name().to_str() else { continue };
            if matches!(name, "." | "..") || found.file_type() == FileType::Directory {
                continue;
            }
            match repeat(|| rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    entries.push(DirectoryEntry {
                        name: name.to_owned(),
                        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                    })
                }
                // The name is taken, so it is not taken for free; opening it says why it cannot be used.
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                    entries.push(DirectoryEntry { name: name.to_owned(), size_bytes: 0 })
                }
                Ok(_) => {}
                // Removed between the two calls.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn sync(&self) -> Result<(), MediaError> {
        repeat(|| rustix::fs::fsync(&self.handle))
            .map_err(|errno| error_of(errno, &self.label, Operation::SyncDirectory, 0, 0))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>, MediaError> {
        check_name(&self.label, Operation::Lock, name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = repeat(|| rustix::fs::openat(&self.handle, name, flags, Mode::from_raw_mode(self.mode.of_files())))
            .map_err(|errno| self.error(errno, Operation::Lock, name))?;
        match LockedFile::new(file, false) {
            Ok(file) => Ok(Box::new(OsLock { _file: file })),
            Err(Errno::AGAIN) => Err(MediaError::Locked { device: self.label.clone(), name: name.to_owned() }),
            Err(errno) => Err(self.error(errno, Operation::Lock, name)),
        }
    }

    fn space(&self) -> Result<Space, MediaError> {
        let stat = repeat(|| rustix::fs::fstatvfs(&self.handle))
            .map_err(|errno| error_of(errno, &self.label, Operation::List, 0, 0))?;
        Ok(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            reserve_bytes: 0,
            block_bytes: stat.f_frsize.max(1),
            zones: None,
        })
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn link(&self, name: &str, target: &Path, target_name: &str) -> Result<bool, MediaError> {
        check_name(&self.label, Operation::Rename, name)?;
        check_name(&self.label, Operation::Rename, target_name)?;
        let target_path = target.join(target_name);
        match repeat(|| rustix::fs::linkat(&self.handle, name, rustix::fs::CWD, &target_path, AtFlags::empty())) {
            Ok(()) => Ok(true),
            // Another file system, one without links, or one link too many.
            Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => Ok(false),
            Err(errno) => Err(self.error(errno, Operation::Rename, name)),
        }
    }
}

/// The alignment direct I/O on `file` needs, from the kernel where it tells.
fn direct_alignment_bytes(file: &OwnedFd) -> u32 {
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(stat) if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align != 0 => {
            stat.stx_dio_offset_align.max(stat.stx_dio_mem_align)
        }
        _ => DIRECT_ALIGNMENT_BYTES,
    }
}

struct OsLock {
    _file: LockedFile<OwnedFd>,
}

impl DirectoryLock for OsLock {}

struct OsFile {
    label: String,
    file: OwnedFd,
    writable: bool,
    alignment_bytes: u32,
}

impl OsFile {
    fn check_alignment(&self, operation: Operation, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let alignment = u64::from(self.alignment_bytes);
        let length_bytes = data.len() as u64;
        if alignment > 1
            && (!offset_bytes.is_multiple_of(alignment)
                || !length_bytes.is_multiple_of(alignment)
                || !is_aligned(data, self.alignment_bytes as usize))
        {
            return Err(MediaError::Misaligned {
                device: self.label.clone(),
                operation,
                offset_bytes,
                length_bytes,
                required_bytes: alignment,
            });
        }
        Ok(())
    }

    fn check_writable(&self, operation: Operation, offset_bytes: u64) -> Result<(), MediaError> {
        if self.writable {
            return Ok(());
        }
        let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "the file was opened for reading only");
        Err(MediaError::io(&self.label, operation, offset_bytes, source))
    }

    fn error(&self, errno: Errno, operation: Operation, offset_bytes: u64, length_bytes: u64) -> MediaError {
        error_of(errno, &self.label, operation, offset_bytes, length_bytes)
    }
}

impl DirectoryFile for OsFile {
    fn read_at(&self, offset_bytes: u64, data: &mut [u8], _context: &IoContext) -> Result<usize, MediaError> {
        self.check_alignment(Operation::Read, offset_bytes, data)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes.saturating_add(done as u64);
            // No file reaches farther, and the kernel refuses to look.
            let Some(reach) = (i64::MAX as u64).checked_sub(at).filter(|&reach| reach > 0) else { break };
            let end = data.len().min(done.saturating_add(usize::try_from(reach).unwrap_or(usize::MAX)));
            let read = repeat(|| rustix::io::pread(&self.file, &mut data[done..end], at))
                .map_err(|errno| self.error(errno, Operation::Read, at, (data.len() - done) as u64))?;
            done += read;
            // A direct read that ends off the alignment has met the end of the file.
            if read == 0 || done % self.alignment_bytes as usize != 0 {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset_bytes: u64, data: &[IoSlice<'_>], _context: &IoContext) -> Result<(), MediaError> {
        self.check_writable(Operation::Write, offset_bytes)?;
        let mut at = offset_bytes;
        for slice in data {
            self.check_alignment(Operation::Write, at, slice)?;
            at = at.saturating_add(slice.len() as u64);
        }
        let mut slices: Vec<IoSlice<'_>> = data.iter().filter(|slice| !slice.is_empty()).copied().collect();
        let mut rest = &mut slices[..];
        let mut at = offset_bytes;
        while !rest.is_empty() {
            let length = rest.iter().map(|slice| slice.len() as u64).sum();
            let written = repeat(|| rustix::io::pwritev(&self.file, &rest[..rest.len().min(VECTOR_MAX)], at))
                .map_err(|errno| self.error(errno, Operation::Write, at, length))?;
            if written == 0 {
                let source = std::io::Error::from(std::io::ErrorKind::WriteZero);
                return Err(MediaError::io(&self.label, Operation::Write, at, source));
            }
            at += written as u64;
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        repeat(|| rustix::fs::fdatasync(&self.file)).map_err(|errno| self.error(errno, Operation::Sync, 0, 0))
    }

    fn size_bytes(&self) -> Result<u64, MediaError> {
        let stat =
            repeat(|| rustix::fs::fstat(&self.file)).map_err(|errno| self.error(errno, Operation::List, 0, 0))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn truncate(&self, size_bytes: u64) -> Result<(), MediaError> {
        self.check_writable(Operation::Truncate, size_bytes)?;
        repeat(|| rustix::fs::ftruncate(&self.file, size_bytes))
            .map_err(|errno| self.error(errno, Operation::Truncate, size_bytes, 0))
    }

    fn allocate(&self, size_bytes: u64) -> Result<(), MediaError> {
        self.check_writable(Operation::Truncate, size_bytes)?;
        if size_bytes == 0 {
            return Ok(());
        }
        match repeat(|| rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, size_bytes)) {
            // A file system without reservations takes the hint by ignoring it.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.error(errno, Operation::Truncate, 0, size_bytes)),
        }
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64) {
        // To the kernel a length of zero means "to the end".
        let Some(length) = std::num::NonZeroU64::new(length_bytes) else { return };
        // A hint: a kernel that does not take it changes nothing.
        let _ = rustix::fs::fadvise(&self.file, offset_bytes, Some(length), rustix::fs::Advice::WillNeed);
    }

    fn map(&self) -> Option<FileMapping> {
        let buffered = self.alignment_bytes == 1;
        self.size_bytes()
            .ok()
            .filter(|_| buffered)
            .and_then(|size_bytes| FileMapping::new(self.file.as_fd(), size_bytes))
    }

    fn map_for_writing(&self, range: Range<u64>) -> Option<WritableMapping> {
        if !self.writable || self.alignment_bytes != 1 || !writes_in_place(&self.file) {
            return None;
        }
        WritableMapping::new(self.file.as_fd(), range)
    }

    fn alignment_bytes(&self) -> u32 {
        self.alignment_bytes
    }
}

/// Whether a file system is known to write what has a place where it is: others may find no space for it although the
/// file was allocated, and can tell who writes through memory by a signal only. Numbers: statfs(2).
fn writes_in_place(file: &OwnedFd) -> bool {
    const EXT4: u32 = 0xef53;
    const TMPFS: u32 = 0x0102_1994;
    const XFS: u32 = 0x5846_5342;
    // The type's width and sign are the architecture's.
    rustix::fs::fstatfs(file).is_ok_and(|found| [EXT4, TMPFS, XFS].contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    const WRITE: OpenMode = OpenMode { write: true, create: true, truncate: false, direct: false };

    #[test]
    fn files_live_in_the_real_directory() {
        let place = tempfile::tempdir().unwrap();
        let directory = OsDirectory::create(place.path().join("deep/er")).unwrap();
        let context = IoContext::default();
        let file = directory.open("a", WRITE).unwrap();
        let parts: Vec<Vec<u8>> = (0..3000).map(|index| vec![index as u8; index % 5]).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        file.write_at(3, &slices, &context).unwrap();
        file.sync(&context).unwrap();
        directory.sync().unwrap();
        let whole = [&[0; 3][..], &parts.concat()].concat();
        assert_eq!(std::fs::read(place.path().join("deep/er/a")).unwrap(), whole);
        let mut data = vec![0; whole.len() + 100];
        assert_eq!(file.read_at(0, &mut data, &context).unwrap(), whole.len());
        assert!(data[..whole.len()] == whole);
        assert_eq!(file.read_at(u64::MAX, &mut data, &context).unwrap(), 0);
        std::fs::create_dir(place.path().join("deep/er/sub")).unwrap();
        assert_eq!(
            directory.list().unwrap(),
            [DirectoryEntry { name: "a".to_owned(), size_bytes: whole.len() as u64 }]
        );
    }

    #[test]
    fn locks_exclude_other_guards_and_other_opens() {
        let place = tempfile::tempdir().unwrap();
        let one = OsDirectory::open(place.path()).unwrap();
        let two = OsDirectory::open(place.path()).unwrap();
        let guard = one.lock("LOCK").unwrap();
        for directory in [&one, &two] {
            assert!(matches!(directory.lock("LOCK"), Err(MediaError::Locked { .. })));
        }
        drop(guard);
        two.lock("LOCK").unwrap();
    }

    #[test]
    fn hard_links_share_where_they_can() {
        let place = tempfile::tempdir().unwrap();
        let from = OsDirectory::create(place.path().join("from")).unwrap();
        let to = OsDirectory::create(place.path().join("to")).unwrap();
        from.open("a", WRITE).unwrap().write_at(0, &[IoSlice::new(b"x")], &IoContext::default()).unwrap();
        assert!(from.link("a", to.path().unwrap(), "b").unwrap());
        assert_eq!(to.list().unwrap(), [DirectoryEntry { name: "b".to_owned(), size_bytes: 1 }]);
        assert!(from.link("a", to.path().unwrap(), "b").is_err());
        assert!(from.link("none", to.path().unwrap(), "c").is_err());
        if std::path::Path::new("/dev/shm").is_dir() {
            let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
            assert!(!from.link("a", elsewhere.path(), "b").unwrap());
        }
    }

    #[test]
    fn direct_opens_say_their_alignment_and_insist_on_it() {
        let place = tempfile::tempdir().unwrap();
        let directory = OsDirectory::open(place.path()).unwrap();
        let file = directory.open("a", OpenMode { direct: true, ..WRITE }).unwrap();
        let alignment = file.alignment_bytes() as usize;
        let context = IoContext::default();
        let mut buffer = AlignedBuffer::new(4 * alignment, alignment.max(2));
        buffer.fill(9);
        file.write_at(0, &[IoSlice::new(&buffer)], &context).unwrap();
        file.truncate(3 * alignment as u64 + 1).unwrap();
        assert_eq!(file.read_at(0, &mut buffer, &context).unwrap(), 3 * alignment + 1);
        if alignment > 1 {
            let error = file.read_at(0, &mut buffer[1..1 + alignment], &context).unwrap_err();
            assert!(matches!(error, MediaError::Misaligned { .. }), "{error}");
            let error = file.write_at(1, &[IoSlice::new(&buffer)], &context).unwrap_err();
            assert!(matches!(error, MediaError::Misaligned { .. }), "{error}");
        }
    }
}
