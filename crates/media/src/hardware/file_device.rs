//! A block device that is a file or a block device of the machine.

use super::describe::{Description, describe, queue_number};
use super::positional::{complete, repeat};
use super::scsi;
use super::submission::{Submission, Vector};
use super::uring::UringPool;
use crate::buffer::{AlignedBuffer, is_aligned};
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry, NominalPerformance};
use crate::error::{MediaError, Operation};
use crate::file_lock::LockedFile;
use crate::place::{self, FileMode, Wanted};
use crate::request::{Request, Transfer, check_request};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Buffers one system call takes (IOV_MAX of Linux).
const VECTOR_MAX: usize = 1024;
/// Zeros written at once where a range cannot be given back.
const ZERO_BYTES: u64 = 1 << 20;

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where the kernel has it, else [`IoEngine::Positional`].
    #[default]
    Auto,
    /// io_uring: all requests of a batch in flight at once. An error where there is none.
    Uring,
    /// preadv and pwritev, one request after the other.
    Positional,
}

/// How to open a [`FileDevice`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDeviceOptions {
    /// Bytes of the device. Needed to create a file; otherwise what is there. A file may be
    /// shorter (the rest reads as zeros) or longer (the rest is not used).
    pub capacity_bytes: Option<u64>,
    /// Create the file, sparse, when it is not there.
    pub create: bool,
    /// Refuse writes and discards. Several may have it open so at the same time, while nobody has it for writing.
    pub read_only: bool,
    /// Bypass the page cache (O_DIRECT), where the file system can.
    pub direct: bool,
    /// How requests reach the kernel.
    pub engine: IoEngine,
    /// Requests in flight at once, at most, under io_uring. 1 to 4096.
    pub queue_depth: u32,
    /// Random 4 KiB reads a second, one at a time, where the user knows them; the device then promises this rate, and
    /// [usual](NominalPerformance::typical) sequential ones. Hardware says none.
    pub random_reads_per_second: Option<u64>,
    /// Sector the device shows, at least what the medium needs: a power of two.
    pub sector_bytes: Option<u32>,
    /// Permissions of a file that is created.
    pub mode: FileMode,
}

impl Default for FileDeviceOptions {
    fn default() -> Self {
        FileDeviceOptions {
            capacity_bytes: None,
            create: false,
            read_only: false,
            direct: true,
            engine: IoEngine::Auto,
            queue_depth: 64,
            random_reads_per_second: None,
            sector_bytes: None,
            mode: FileMode::default(),
        }
    }
}

/// A file or block device of the machine as a device.
///
/// Opening takes an exclusive lock (flock; for a block device also O_EXCL, which a mounted one
/// refuses), so a second open is [`MediaError::Locked`] until this one is dropped or its process has ended, however it
/// ended. Buffers of any
/// alignment work; those not at a multiple of `buffer_alignment_bytes` cost a copy. Calls block their
/// thread, also in a simulation, where they take no virtual time.
///
/// The assumptions: `sync` (fdatasync) reaches the medium; a physical sector survives a power cut
/// whole. Data on a file in a copying file system may take more space than the capacity.
pub struct FileDevice {
    name: String,
    file: OwnedFd,
    geometry: Geometry,
    capabilities: Capabilities,
    is_block_device: bool,
    writable: bool,
    /// Alignment the kernel needs of memory; 1 when buffered.
    memory_alignment_bytes: usize,
    uring: Option<UringPool>,
    /// The page cache copies sectors in pieces: buffered, readers and writers keep out of each other's way.
    buffered: Option<RwLock<()>>,
    counters: Mutex<Counters>,
    was_made: bool,
    /// The same file, opened again for its lock and for nothing else. Requests in flight in a ring keep their file open
    /// after a process was killed, and with it a lock it had.
    _lock: LockedFile<OwnedFd>,
}

impl FileDevice {
    /// Opens the file or block device at `path`, or the disk of a SCSI generic device (`/dev/sg0`). A file that this call made is
    /// removed again when it fails.
    ///
    /// # Errors
    /// [`MediaError::Locked`] when it is open elsewhere or mounted; [`MediaError::Rule`] when the options
    /// do not fit what is there; [`MediaError::Unsuitable`] for what is neither a file nor a block device;
    /// [`MediaError::NotFound`].
    pub fn open(path: impl AsRef<Path>, options: &FileDeviceOptions) -> Result<Self, MediaError> {
        let disk = scsi::disk_of_generic(path.as_ref());
        let path = disk.as_deref().unwrap_or(path.as_ref());
        place::check(path, Wanted::FileOrBlockDevice)?;
        let name = path.display().to_string();
        let failed = |errno| error_of(errno, &name, Operation::Open, 0, 0);
        let was_made = options.create && !options.read_only && !path.exists() && {
            if options.capacity_bytes.is_none() {
                let rule = "a new file needs a capacity".to_owned();
                return Err(MediaError::Rule { device: name, operation: Operation::Open, offset_bytes: 0, rule });
            }
            make_file(path, options).map_err(failed)?
        };
        let (file, direct) = open_file(path, options).map_err(failed)?;
        let lock = match lock(path, &file, options) {
            Err(Errno::AGAIN) => return Err(MediaError::Locked { device: name.clone(), name }),
            lock => lock.map_err(failed)?,
        };
        let opened = FileDevice::open_locked(path, options, (file, lock), direct, was_made);
        if was_made && opened.is_err() {
            // It is an error already, and nothing was written to the file.
            let _ = std::fs::remove_file(path);
        }
        opened
    }

    fn open_locked(
        path: &Path,
        options: &FileDeviceOptions,
        (file, lock): (OwnedFd, LockedFile<OwnedFd>),
        direct: bool,
        was_made: bool,
    ) -> Result<Self, MediaError> {
        let name = path.display().to_string();
        let failed = |errno| error_of(errno, &name, Operation::Open, 0, 0);
        let refused =
            |rule: String| MediaError::Rule { device: name.clone(), operation: Operation::Open, offset_bytes: 0, rule };
        let described = describe(&file, direct, !options.read_only).map_err(failed)?;
        let Some(description) = described else {
            return Err(refused("neither a regular file nor a block device".to_owned()));
        };
        let sector_bytes = options.sector_bytes.unwrap_or(description.sector_bytes);
        if !sector_bytes.is_power_of_two() || sector_bytes < description.sector_bytes {
            return Err(refused(format!(
                "a sector of {sector_bytes} bytes was asked for, the medium needs a power of two from {}",
                description.sector_bytes
            )));
        }
        let capacity_bytes = options.capacity_bytes.unwrap_or(description.size_bytes) / u64::from(sector_bytes)
            * u64::from(sector_bytes);
        if description.is_block_device && capacity_bytes > description.size_bytes {
            return Err(refused(format!(
                "a capacity of {capacity_bytes} bytes was asked for, the device has {}",
                description.size_bytes
            )));
        }
        if capacity_bytes == 0 || i64::try_from(capacity_bytes).is_err() {
            return Err(refused(format!(
                "the capacity must be from one sector to 2^63 - 1 bytes, not {capacity_bytes}"
            )));
        }
        if !(1..=4096).contains(&options.queue_depth) {
            return Err(refused(format!("the queue depth must be from 1 to 4096, not {}", options.queue_depth)));
        }
        if was_made {
            create_durably(path, &file, capacity_bytes)
                .map_err(|source| MediaError::io(&name, Operation::Open, 0, source))?;
        }
        let uring = match options.engine {
            IoEngine::Positional => None,
            IoEngine::Auto => UringPool::probe(options.queue_depth),
            IoEngine::Uring => Some(
                UringPool::probe(options.queue_depth)
                    .ok_or_else(|| refused("the kernel has no io_uring for this process".to_owned()))?,
            ),
        };
        let mut device = FileDevice::of(name, (file, lock), &description, capacity_bytes, sector_bytes, options, uring);
        device.buffered = (!direct).then(RwLock::default);
        device.was_made = was_made;
        Ok(device)
    }

    fn of(
        name: String,
        (file, lock): (OwnedFd, LockedFile<OwnedFd>),
        description: &Description,
        capacity_bytes: u64,
        sector_bytes: u32,
        options: &FileDeviceOptions,
        uring: Option<UringPool>,
    ) -> Self {
        let physical_sector_bytes = description.physical_sector_bytes.max(sector_bytes);
        let promised = |random_reads_per_second: u64| NominalPerformance {
            random_reads_per_second,
            ..NominalPerformance::typical(description.rotational)
        };
        FileDevice {
            name,
            file,
            geometry: Geometry { capacity_bytes, sector_bytes, physical_sector_bytes },
            capabilities: Capabilities {
                rotational: description.rotational,
                volatile_cache: description.volatile_cache,
                discard: description.discard,
                queue_depth: if uring.is_some() { options.queue_depth } else { 1 },
                buffer_alignment_bytes: description.memory_alignment_bytes,
                nominal: options.random_reads_per_second.map(promised),
                ..Capabilities::of_blocks()
            },
            is_block_device: description.is_block_device,
            writable: !options.read_only,
            memory_alignment_bytes: description.memory_alignment_bytes as usize,
            uring,
            buffered: None,
            was_made: false,
            counters: Mutex::default(),
            _lock: lock,
        }
    }

    /// Whether the file was not there before it was opened.
    pub fn was_made(&self) -> bool {
        self.was_made
    }

    /// Whether it goes past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.buffered.is_none()
    }

    /// The file itself, for commands of the kernel beyond reading and writing.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A number the kernel tells about the device's queue, if it does.
    pub(super) fn queue_number(&self, attribute: &str) -> Option<u32> {
        queue_number(&self.file, attribute)
    }

    /// The engine in use: never [`IoEngine::Auto`].
    pub fn engine(&self) -> IoEngine {
        if self.uring.is_some() { IoEngine::Uring } else { IoEngine::Positional }
    }

    fn check(&self, request: &Request<'_>) -> Result<(), MediaError> {
        check_request(self, request)?;
        let operation = match request.transfer {
            Transfer::Read { .. } => return Ok(()),
            Transfer::Write { .. } => Operation::Write,
            Transfer::Discard { .. } => Operation::Discard,
        };
        if self.writable {
            return Ok(());
        }
        let source = std::io::Error::new(std::io::ErrorKind::ReadOnlyFilesystem, "opened for reading only");
        Err(MediaError::io(&self.name, operation, request.offset_bytes, source))
    }

    /// Whether the kernel can use these buffers as they are.
    fn takes<'s>(&self, slices: impl ExactSizeIterator<Item = &'s [u8]>) -> bool {
        let alignment = self.memory_alignment_bytes;
        slices.len() <= VECTOR_MAX && {
            let mut slices = slices;
            slices.all(|slice| is_aligned(slice, alignment) && slice.len().is_multiple_of(alignment))
        }
    }

    /// A buffer for a request whose own the kernel cannot use, filled with what is to be written.
    fn bounce(&self, request: &Request<'_>) -> Option<AlignedBuffer> {
        let buffer = || AlignedBuffer::new(request.length_bytes() as usize, self.memory_alignment_bytes);
        match &request.transfer {
            Transfer::Read { data, .. } => (!self.takes(data.iter().map(|slice| &**slice))).then(buffer),
            Transfer::Write { data, .. } => (!self.takes(data.iter().map(|slice| &**slice))).then(|| {
                let mut buffer = buffer();
                let mut rest = &mut buffer[..];
                for slice in data.iter() {
                    let (head, tail) = rest.split_at_mut(slice.len());
                    head.copy_from_slice(slice);
                    rest = tail;
                }
                buffer
            }),
            Transfer::Discard { .. } => None,
        }
    }

    /// Reads and writes `moving` (indexes of requests that passed the check), all in flight at once.
    fn transfer(&self, requests: &mut [Request<'_>], moving: &[usize]) {
        let mut bounces: Vec<Option<AlignedBuffer>> =
            moving.iter().map(|&index| self.bounce(&requests[index])).collect();
        let mut outcomes = Vec::with_capacity(moving.len());
        {
            let mut chosen = moving.iter().copied().peekable();
            let mut submissions: Vec<Submission<'_, '_>> = requests
                .iter_mut()
                .enumerate()
                .filter(|(index, _)| chosen.next_if_eq(index).is_some())
                .zip(bounces.iter_mut())
                .filter_map(|((_, request), bounce)| {
                    let (vector, durable) = match (&mut request.transfer, bounce) {
                        (Transfer::Read { data, .. }, None) => (Vector::Read(data), false),
                        (Transfer::Read { .. }, Some(bounce)) => (Vector::ReadInto(bounce), false),
                        (Transfer::Write { data, durable, .. }, None) => (Vector::Write(data), *durable),
                        (Transfer::Write { durable, .. }, Some(bounce)) => (Vector::WriteFrom(bounce), *durable),
                        (Transfer::Discard { .. }, _) => return None,
                    };
                    Some(Submission { offset_bytes: request.offset_bytes, vector, durable, attempt: None })
                })
                .collect();
            // One request alone is in flight alone, whichever way it goes; a ring would only cost more.
            if let Some(uring) = &self.uring
                && submissions.len() > 1
            {
                uring.attempt(self.file.as_fd(), &mut submissions);
            }
            for submission in &mut submissions {
                outcomes.push(complete(self.file.as_fd(), submission, self.memory_alignment_bytes));
            }
        }
        for ((&index, bounce), outcome) in moving.iter().zip(bounces).zip(outcomes) {
            let request = &mut requests[index];
            let length_bytes = request.length_bytes();
            let operation = match &mut request.transfer {
                Transfer::Read { data, .. } => {
                    if let Some(bounce) = bounce {
                        let mut rest = &bounce[..];
                        for slice in data.iter_mut() {
                            let (head, tail) = rest.split_at(slice.len());
                            slice.copy_from_slice(head);
                            rest = tail;
                        }
                    }
                    Operation::Read
                }
                _ => Operation::Write,
            };
            request.outcome =
                outcome.map_err(|errno| error_of(errno, &self.name, operation, request.offset_bytes, length_bytes));
        }
    }

    /// Gives a range back, or writes zeros where that cannot be.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), MediaError> {
        // On a block device this is a discard that promises zeros, which BLKDISCARD does not.
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match repeat(|| rustix::fs::fallocate(&self.file, mode, offset_bytes, length_bytes)) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(errno) => return Err(error_of(errno, &self.name, Operation::Discard, offset_bytes, length_bytes)),
        }
        let mut end = offset_bytes + length_bytes;
        if !self.is_block_device {
            // Behind the end of a file there are zeros already.
            let stat = rustix::fs::fstat(&self.file)
                .map_err(|errno| error_of(errno, &self.name, Operation::Discard, offset_bytes, length_bytes))?;
            let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
            end = end.min(size_bytes.next_multiple_of(u64::from(self.geometry.sector_bytes)));
        }
        let zeros = AlignedBuffer::new(length_bytes.min(ZERO_BYTES) as usize, self.memory_alignment_bytes);
        let mut at = offset_bytes;
        while at < end {
            let count = (end - at).min(ZERO_BYTES);
            let vector = Vector::WriteFrom(&zeros[..count as usize]);
            let mut submission = Submission { offset_bytes: at, vector, durable: false, attempt: None };
            complete(self.file.as_fd(), &mut submission, self.memory_alignment_bytes)
                .map_err(|errno| error_of(errno, &self.name, Operation::Discard, at, end - at))?;
            at += count;
        }
        Ok(())
    }
}

fn error_of(errno: Errno, device: &str, operation: Operation, offset_bytes: u64, length_bytes: u64) -> MediaError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => {
            MediaError::NoSpace { device: device.to_owned(), operation, offset_bytes, length_bytes }
        }
        Errno::NOENT => MediaError::NotFound { device: device.to_owned(), operation, name: device.to_owned() },
        // O_EXCL on a block device that is mounted or claimed.
        Errno::BUSY if operation == Operation::Open => {
            MediaError::Locked { device: device.to_owned(), name: device.to_owned() }
        }
        // A medium error of a disk (sense key 3) arrives as EIO or ENODATA or EILSEQ; only the last two are certain.
        Errno::NODATA | Errno::ILSEQ if operation == Operation::Read => {
            MediaError::Unreadable { device: device.to_owned(), offset_bytes }
        }
        _ => MediaError::io(device, operation, offset_bytes, errno.into()),
    }
}

/// Makes an empty file; false when somebody else just did.
fn make_file(path: &Path, options: &FileDeviceOptions) -> rustix::io::Result<bool> {
    let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    match repeat(|| rustix::fs::open(path, flags, Mode::from_raw_mode(options.mode.of_files()))) {
        Err(Errno::EXIST) => Ok(false),
        made => made.map(|_| true),
    }
}

/// Opens, with O_DIRECT where it is wanted and can be had: the second value says so.
fn open_file(path: &Path, options: &FileDeviceOptions) -> rustix::io::Result<(OwnedFd, bool)> {
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | access;
    let open = |flags| repeat(|| rustix::fs::open(path, flags, Mode::empty()));
    if options.direct {
        match open(flags | OFlags::DIRECT) {
            // The file system has no direct I/O.
            Err(Errno::INVAL) => {}
            result => return Ok((result?, true)),
        }
    }
    Ok((open(flags)?, false))
}

/// Opens once more what `file` is, and locks it.
fn lock(path: &Path, file: &OwnedFd, options: &FileDeviceOptions) -> rustix::io::Result<LockedFile<OwnedFd>> {
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::RDONLY;
    let opened = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(opened.st_mode) == FileType::BlockDevice && !options.read_only {
        flags |= OFlags::EXCL;
    }
    let lock = repeat(|| rustix::fs::open(path, flags, Mode::empty()))?;
    let found = rustix::fs::fstat(&lock)?;
    // Somebody put another file in its place.
    if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino) {
        return Err(Errno::AGAIN);
    }
    LockedFile::new(lock, options.read_only)
}

/// Gives a new file its length, and makes file and name durable.
fn create_durably(path: &Path, file: &OwnedFd, capacity_bytes: u64) -> std::io::Result<()> {
    rustix::fs::ftruncate(file, capacity_bytes)?;
    rustix::fs::fsync(file)?;
    let absolute = std::path::absolute(path)?;
    match absolute.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

impl BlockDevice for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let writes = requests.iter().any(|request| !matches!(request.transfer, Transfer::Read { .. }));
        let buffered = self.buffered.as_ref();
        let _shared = buffered.filter(|_| !writes).map(RwLock::read);
        let _exclusive = buffered.filter(|_| writes).map(RwLock::write);
        let mut moving = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter_mut().enumerate() {
            request.outcome = self.check(request);
            if request.outcome.is_err() || request.length_bytes() == 0 {
                continue;
            }
            match request.transfer {
                Transfer::Discard { length_bytes } => {
                    request.outcome = self.discard(request.offset_bytes, length_bytes);
                }
                _ => moving.push(index),
            }
        }
        self.transfer(requests, &moving);
        let mut counters = self.counters.lock();
        let mut result = Ok(());
        for request in requests {
            counters.count_request(request, context);
            if result.is_ok() {
                result = request.outcome.clone();
            }
        }
        result
    }

    fn sync(&self, _context: &IoContext) -> Result<(), MediaError> {
        let outcome = repeat(|| rustix::fs::fdatasync(&self.file))
            .map_err(|errno| error_of(errno, &self.name, Operation::Sync, 0, 0));
        self.counters.lock().count_sync(&outcome);
        outcome
    }

    fn counters(&self) -> Counters {
        self.counters.lock().clone()
    }
}

#[cfg(test)]
impl FileDevice {
    pub(super) fn idle_rings(&self) -> Option<usize> {
        self.uring.as_ref().map(UringPool::idle_rings)
    }
}
