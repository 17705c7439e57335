//! What the kernel tells about a file or block device.

use rustix::fs::{AtFlags, FallocateFlags, FileType, SeekFrom, StatxFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Sector assumed where nothing is said: the smallest in use.
const SECTOR_BYTES: u32 = 512;
/// Alignment assumed for direct I/O where the kernel does not tell (before Linux 6.1).
const DIRECT_ALIGNMENT_BYTES: u32 = 4096;

/// Facts about an open file or block device.
pub(super) struct Description {
    pub(super) is_block_device: bool,
    pub(super) size_bytes: u64,
    /// Smallest unit of addresses and lengths.
    pub(super) sector_bytes: u32,
    /// Unit the medium writes whole, a multiple of `sector_bytes` where known.
    pub(super) physical_sector_bytes: u32,
    /// Memory alignment direct I/O needs; on a block device at least `sector_bytes` then.
    pub(super) memory_alignment_bytes: u32,
    pub(super) rotational: bool,
    /// Completed direct writes may be lost by a power cut.
    pub(super) volatile_cache: bool,
    /// Ranges can be given back.
    pub(super) discard: bool,
}

/// Asks the kernel about `file`, opened `direct` or not, for writing or not. `None` when it is neither
/// a regular file nor a block device.
pub(super) fn describe(file: &OwnedFd, direct: bool, writable: bool) -> rustix::io::Result<Option<Description>> {
    let stat = rustix::fs::fstat(file)?;
    let is_block_device = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => false,
        FileType::BlockDevice => true,
        _ => return Ok(None),
    };
    let device = if is_block_device { stat.st_rdev } else { stat.st_dev };
    let queue = Queue::of(rustix::fs::major(device), rustix::fs::minor(device));
    let (mut sector_bytes, mut physical_sector_bytes) = if is_block_device {
        let logical = rustix::fs::ioctl_blksszget(file)?;
        (logical, rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical))
    } else {
        (SECTOR_BYTES, queue.number("physical_block_size").unwrap_or(0))
    };
    let mut memory_alignment_bytes = 1;
    if direct {
        let (memory, offset) = direct_alignment(file).unwrap_or(match is_block_device {
            true => (sector_bytes, sector_bytes),
            false => (DIRECT_ALIGNMENT_BYTES, DIRECT_ALIGNMENT_BYTES),
        });
        sector_bytes = sector_bytes.max(offset);
        // A sector in two pages may be allowed and yet more than a driver is made for: null_blk of Linux 6.1 with
        // sectors of 4096 bytes then writes behind a page of the kernel.
        memory_alignment_bytes = if is_block_device { memory.max(sector_bytes) } else { memory };
    }
    physical_sector_bytes = physical_sector_bytes.max(sector_bytes);
    let size_bytes = match is_block_device {
        true => rustix::fs::seek(file, SeekFrom::End(0))?,
        false => u64::try_from(stat.st_size).unwrap_or(0),
    };
    let discard = writable
        && match is_block_device {
            true => queue.number("discard_max_bytes").unwrap_or(0) > 0,
            false => {
                // Behind the end there is nothing to lose: the answer is all that matters.
                let behind = size_bytes.next_multiple_of(1 << 20);
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(file, mode, behind, 1 << 20).is_ok()
            }
        };
    Ok(Some(Description {
        is_block_device,
        size_bytes,
        sector_bytes,
        physical_sector_bytes,
        memory_alignment_bytes,
        rotational: queue.number("rotational").unwrap_or(0) != 0,
        // A file system keeps some of what it needs to find the data in memory, whatever the disk does.
        volatile_cache: !(is_block_device && direct && queue.text("write_cache").as_deref() == Some("write through")),
        discard,
    }))
}

/// A number the kernel tells about the queue of a block device; `None` of anything else.
pub(super) fn queue_number(file: &OwnedFd, attribute: &str) -> Option<u32> {
    let stat = rustix::fs::fstat(file).ok()?;
    let is_block_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    is_block_device.then(|| Queue::of(major, minor).number(attribute))?
}

/// Memory and offset alignment of direct I/O, where the kernel tells.
fn direct_alignment(file: impl AsFd) -> Option<(u32, u32)> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align != 0;
    told.then_some((stat.stx_dio_mem_align, stat.stx_dio_offset_align))
}

/// The request queue of a block device in sysfs.
struct Queue {
    directory: Option<PathBuf>,
}

impl Queue {
    fn of(major: u32, minor: u32) -> Self {
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        // A partition has the queue of its disk.
        let directory = [device.join("queue"), device.join("../queue")].into_iter().find(|path| path.is_dir());
        Queue { directory }
    }

    fn text(&self, attribute: &str) -> Option<String> {
        let path = self.directory.as_ref()?.join(attribute);
        Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
    }

    fn number(&self, attribute: &str) -> Option<u32> {
        // Attributes of bytes may exceed 32 bits; then the exact value is not what anybody asks for.
        Some(u32::try_from(self.text(attribute)?.parse::<u64>().ok()?).unwrap_or(u32::MAX))
    }
}
