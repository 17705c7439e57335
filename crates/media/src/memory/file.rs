//! Persistent memory in a file that is mapped into the process.

use super::model::LINE_BYTES;
use super::persistence::{LineInstruction, Persistence};
use super::sector_journal::{TRAILER_BYTES, check_header, header};
use crate::directory::MappedMemory;
use crate::error::{MediaError, Operation};
use crate::file_lock::LockedFile;
use crate::place::{self, FileMode};
use rustix::fs::{FallocateFlags, fallocate, fstat, fstatfs, fstatvfs};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers of file systems whose files are in memory and nowhere else (Linux, magic.h).
const OF_MEMORY: [u32; 3] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
];

/// How to open a file as persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFileOptions {
    /// Bytes of the memory. Needed to make a file; a file that is there must have as many.
    pub capacity_bytes: Option<u64>,
    /// Make the file when it is not there, or empty.
    pub create: bool,
    /// Refuse whatever changes it. Several may have it open so at the same time, while nobody has
    /// it for writing.
    pub read_only: bool,
    /// Permissions of a file that is made.
    pub mode: FileMode,
}

/// A mapped file with its trailer.
pub(super) struct MemoryFile {
    mapping: MappedMemory,
    file: LockedFile<File>,
    /// Bytes before the trailer.
    pub(super) capacity_bytes: u64,
    pub(super) persistence: Persistence,
    pub(super) is_writable: bool,
    pub(super) was_made: bool,
    /// A sync failed: what it was to make durable may never be.
    failed: AtomicBool,
}

impl MemoryFile {
    /// Opens the file, or makes it.
    pub(super) fn open(path: &Path, options: &MemoryFileOptions) -> Result<MemoryFile, MediaError> {
        let name = path.display().to_string();
        let failed = |error: Error| MediaError::io(&name, Operation::Open, 0, error);
        let create = options.create && !options.read_only;
        let mut how = File::options();
        how.read(true).write(!options.read_only);
        let (file, was_made) = place::open_file(path, &mut how, create.then_some(options.mode))?;
        let file = match LockedFile::new(file, options.read_only) {
            Err(Errno::AGAIN) => return Err(MediaError::Locked { device: name.clone(), name }),
            file => file.map_err(|errno| failed(errno.into()))?,
        };
        let is_empty = file.metadata().map_err(failed)?.len() == 0;
        let opened = match is_empty {
            true if create => {
                make(path, &name, &file, options).and_then(|()| MemoryFile::map(&name, file, options, was_made))
            }
            true => {
                return Err(MediaError::NotFound { device: name.clone(), operation: Operation::Open, name });
            }
            false => MemoryFile::map(&name, file, options, was_made),
        };
        if was_made && opened.is_err() {
            // It is an error already, and nothing of anybody is in the file.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn map(
        name: &str,
        file: LockedFile<File>,
        options: &MemoryFileOptions,
        was_made: bool,
    ) -> Result<MemoryFile, MediaError> {
        let failed = |error: Error| MediaError::io(name, Operation::Open, 0, error);
        let size_bytes = file.metadata().map_err(failed)?.len();
        let capacity_bytes = size_bytes.saturating_sub(TRAILER_BYTES);
        let mut found = [0; 32];
        // A file that is too short has no trailer either.
        if capacity_bytes > 0 {
            let _ = file.read_exact_at(&mut found, capacity_bytes);
        }
        check_header(name, &found, capacity_bytes)?;
        if let Some(asked) = options.capacity_bytes.filter(|asked| *asked != capacity_bytes) {
            let rule = format!("{asked} bytes were asked for, the file was made with {capacity_bytes}; name these");
            let device = name.to_owned();
            return Err(MediaError::Rule { device, operation: Operation::Open, offset_bytes: 0, rule });
        }
        let access = if options.read_only { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
        let synchronous = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        let direct = MappedMemory::with_flags(file.as_fd(), 0..size_bytes, access, synchronous);
        let is_direct = direct.is_some();
        let mapping =
            direct.or_else(|| MappedMemory::with_flags(file.as_fd(), 0..size_bytes, access, MapFlags::SHARED));
        let Some(mapping) = mapping else {
            let error = Error::new(ErrorKind::OutOfMemory, "the file cannot be mapped into this process");
            return Err(failed(error));
        };
        let found = Ground {
            is_direct,
            // The numbers have 32 bits in types of several widths.
            is_in_memory: fstatfs(file.as_fd()).is_ok_and(|found| OF_MEMORY.contains(&(found.f_type as u32))),
            has_persistent_caches: is_direct && persistence_domain(&file).as_deref() == Some("cpu_cache"),
            instruction: LineInstruction::detect(),
        };
        Ok(MemoryFile {
            mapping,
            file,
            capacity_bytes,
            persistence: found.persistence(),
            is_writable: !options.read_only,
            was_made,
            failed: AtomicBool::new(false),
        })
    }

    /// First byte.
    pub(super) fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    /// Bytes with the trailer.
    pub(super) fn size_bytes(&self) -> u64 {
        self.capacity_bytes + TRAILER_BYTES
    }

    /// Fails once a page of the mapping could not be had, from when on it holds zeros.
    pub(super) fn check(&self, name: &str, operation: Operation, offset_bytes: u64) -> Result<(), MediaError> {
        if !self.mapping.is_lost() {
            return Ok(());
        }
        let error = "a page of the file could not be had (it was cut short, the disk failed, or no space is left); open it again";
        Err(MediaError::io(name, operation, offset_bytes, Error::other(error)))
    }

    /// Starts write-back of lines that lie within the mapping.
    pub(super) fn flush(&self, range: &Range<u64>) {
        let Persistence::LineWriteBack(instruction) = self.persistence else { return };
        let line = u64::from(LINE_BYTES);
        for at in (range.start / line * line..range.end).step_by(LINE_BYTES as usize) {
            // SAFETY: the line lies in the mapping, which begins at a page; the instruction was
            // found by `detect`.
            unsafe { instruction.write_back(self.start().add(at as usize)) };
        }
    }

    /// Waits for write-backs; syncs the pages of `ranges` where lines cannot be written back.
    pub(super) fn fence(&self, name: &str, ranges: impl Iterator<Item = Range<u64>>) -> Result<(), MediaError> {
        match self.persistence {
            Persistence::LineWriteBack(_) | Persistence::PersistentCaches => super::line_write_back::wait(),
            Persistence::PageSync => {
                self.refuse_after_failure(name)?;
                let page = rustix::param::page_size() as u64;
                let mut pages: Vec<Range<u64>> =
                    ranges.map(|range| range.start / page * page..range.end.next_multiple_of(page)).collect();
                pages.sort_by_key(|range| range.start);
                let mut pages = pages.into_iter().peekable();
                while let Some(mut run) = pages.next() {
                    while let Some(next) = pages.next_if(|next| next.start <= run.end) {
                        run.end = run.end.max(next.end);
                    }
                    let length = (run.end - run.start) as usize;
                    // SAFETY: pages of the mapping, whose length is rounded up to pages by the
                    // kernel.
                    let synced = unsafe {
                        rustix::mm::msync(self.start().add(run.start as usize).cast(), length, MsyncFlags::SYNC)
                    };
                    self.settle(name, run.start, synced.map_err(Error::from))?;
                }
            }
            Persistence::Emulated | Persistence::ProcessOnly => {}
        }
        Ok(())
    }

    /// Writes through the kernel's copy of the file, which the mapping shows.
    pub(super) fn write(&self, name: &str, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let written = self.file.write_all_at(data, offset_bytes);
        written.map_err(|error| MediaError::io(name, Operation::Write, offset_bytes, error))
    }

    /// Makes a range zero and keeps its space, so that later stores to it find some.
    pub(super) fn zero(&self, name: &str, range: Range<u64>) -> Result<(), MediaError> {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if range.is_empty() || fallocate(self.file.as_fd(), flags, range.start, range.end - range.start).is_ok() {
            return Ok(());
        }
        let zeros = [0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(zeros.len() as u64);
            self.write(name, at, &zeros[..length as usize])?;
            at += length;
        }
        Ok(())
    }

    /// Makes all that was written or stored durable, as far as this can be had.
    pub(super) fn sync(&self, name: &str) -> Result<(), MediaError> {
        if self.persistence != Persistence::PageSync {
            return Ok(());
        }
        self.refuse_after_failure(name)?;
        self.settle(name, 0, self.file.sync_data())
    }

    fn refuse_after_failure(&self, name: &str) -> Result<(), MediaError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let error = Error::other("an earlier sync failed, after which nothing is known; open it again");
        Err(MediaError::io(name, Operation::Sync, 0, error))
    }

    fn settle(&self, name: &str, offset_bytes: u64, synced: Result<(), Error>) -> Result<(), MediaError> {
        synced.map_err(|error| {
            self.failed.store(true, Ordering::Release);
            MediaError::io(name, Operation::Sync, offset_bytes, error)
        })
    }
}

/// Gives an empty file its space and its trailer. Until the trailer is there the file is empty.
fn make(path: &Path, name: &str, file: &File, options: &MemoryFileOptions) -> Result<(), MediaError> {
    let refused = |rule: String| {
        let device = name.to_owned();
        Err(MediaError::Rule { device, operation: Operation::Open, offset_bytes: 0, rule })
    };
    let Some(capacity_bytes) = options.capacity_bytes else {
        return refused("a new file needs a capacity".to_owned());
    };
    let line = u64::from(LINE_BYTES);
    let page = rustix::param::page_size() as u64;
    let size_bytes = capacity_bytes.checked_add(TRAILER_BYTES).filter(|size| i64::try_from(*size).is_ok());
    let (Some(size_bytes), true, true) =
        (size_bytes, capacity_bytes > 0, capacity_bytes.is_multiple_of(page.max(line)))
    else {
        return refused(format!("the capacity must be whole pages of {page} bytes, not {capacity_bytes} bytes"));
    };
    let no_space = || {
        let (device, operation) = (name.to_owned(), Operation::Open);
        Err(MediaError::NoSpace { device, operation, offset_bytes: 0, length_bytes: size_bytes })
    };
    // Some file systems take what there is before they find that it is not enough.
    if fstatvfs(file).is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) < size_bytes) {
        return no_space();
    }
    // All of its space, so that no store finds none.
    let reserved = rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, 0, size_bytes));
    match reserved.map_err(Error::from) {
        Err(error) if error.kind() == ErrorKind::StorageFull => return no_space(),
        // Some file systems do not know it. A store that finds no space is noticed then, and fails.
        Err(error) if error.kind() != ErrorKind::Unsupported => {
            return Err(MediaError::io(name, Operation::Open, 0, error));
        }
        _ => {}
    }
    let write = || {
        let mut trailer = vec![0; TRAILER_BYTES as usize];
        let header = header(capacity_bytes);
        trailer[..header.len()].copy_from_slice(&header);
        file.write_all_at(&trailer, capacity_bytes)?;
        // It must be found under its name.
        file.sync_all()?;
        let absolute = std::path::absolute(path)?;
        absolute.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().map_err(|error| MediaError::io(name, Operation::Open, 0, error))
}

/// What decides what a fence buys.
#[derive(Clone, Copy)]
struct Ground {
    /// MAP_SYNC was granted.
    is_direct: bool,
    is_in_memory: bool,
    has_persistent_caches: bool,
    instruction: Option<LineInstruction>,
}

impl Ground {
    fn persistence(self) -> Persistence {
        match (self.is_direct, self.instruction) {
            (true, _) if self.has_persistent_caches => Persistence::PersistentCaches,
            (true, Some(instruction)) => Persistence::LineWriteBack(instruction),
            _ if self.is_in_memory => Persistence::ProcessOnly,
            // Without such an instruction the kernel writes the lines of pages back.
            _ => Persistence::PageSync,
        }
    }
}

/// The attribute `persistence_domain` of the region below a file's file system.
fn persistence_domain(file: &File) -> Option<String> {
    let device = fstat(file).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    domain_above(&std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?)
}

/// The attribute of the nearest directory that has it, from this one on towards the root.
fn domain_above(device: &Path) -> Option<String> {
    // A region is at most a few directories above its block devices.
    let attributes = device.ancestors().take(12).map(|place: &Path| -> PathBuf { place.join("persistence_domain") });
    let text = attributes.filter_map(|attribute| std::fs::read_to_string(attribute).ok()).next()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests;
