//! Zones of disks that the block layer takes for ordinary ones: host-aware disks, on Linux since 6.9.

mod pass_through;
mod responses;

pub(crate) use responses::fuzz;

use crate::emulated::ZoneCommand;
use crate::zones::ZoneDescription;
use pass_through::{Command, ScsiError, execute};
use responses::{Capacity, Malformed, Zoned};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const INQUIRY: u8 = 0x12;
const SERVICE_ACTION_IN: u8 = 0x9E;
const ZONE_MANAGEMENT_IN: u8 = 0x95;
const ZONE_MANAGEMENT_OUT: u8 = 0x94;

const READ_CAPACITY_16: u8 = 0x10;
const REPORT_ZONES: u8 = 0x00;
const CLOSE_ZONE: u8 = 0x01;
const FINISH_ZONE: u8 = 0x02;
const OPEN_ZONE: u8 = 0x03;
const RESET_WRITE_POINTER: u8 = 0x04;

/// PARTIAL of REPORT ZONES: the length in the answer is that of the zones in it.
const PARTIAL: u8 = 0x80;
const PAGE_BYTES: usize = 255;
const CAPACITY_BYTES: usize = 32;
const BLOCK_CHARACTERISTICS: u8 = 0xB1;

/// What the kernel says where a device takes no SCSI commands, or not from this process.
const NOT_FOR_US: [Errno; 6] = [Errno::NOTTY, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM, Errno::ACCESS];

/// A host-aware disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostAwareDisk {
    sizes: Capacity,
}

impl HostAwareDisk {
    /// Asks `file` what it is; `None` for a disk that is not host-aware, a part of a disk, and what is no SCSI disk at all.
    pub(super) fn of(file: BorrowedFd<'_>) -> Result<Option<Self>, std::io::Error> {
        if !is_whole_disk(file) {
            return Ok(None);
        }
        match zoned(file) {
            Ok(Zoned::HostAware) => HostAwareDisk::sized(file).map(Some).map_err(ScsiError::into_io),
            Ok(Zoned::NotReported | Zoned::DeviceManaged) => Ok(None),
            // No SCSI disk, or none that this process may ask.
            Err(ScsiError::Kernel { errno, .. }) if NOT_FOR_US.contains(&errno) => Ok(None),
            Err(error) => Err(error.into_io()),
        }
    }

    /// The disk `file` that somebody knows to have zones, whether or not it says so itself (`scsi_debug` of Linux
    /// 6.12 does not); `None` where it reports none.
    pub(super) fn that_reports(file: BorrowedFd<'_>) -> Option<Self> {
        let disk = is_whole_disk(file).then(|| HostAwareDisk::sized(file).ok())??;
        disk.report(file, 0, 1).is_ok_and(|zones| !zones.is_empty()).then_some(disk)
    }

    fn sized(file: BorrowedFd<'_>) -> Result<Self, ScsiError> {
        let command = command("READ CAPACITY (16)", SERVICE_ACTION_IN, READ_CAPACITY_16, 0, CAPACITY_BYTES);
        answer(file, &command, CAPACITY_BYTES, responses::capacity).map(|sizes| HostAwareDisk { sizes })
    }

    /// Reports about `count` zones from byte `start_bytes` on: fewer at the end of the disk, or where they do not fit one
    /// answer, and up to seven more.
    pub(super) fn report(
        &self,
        file: BorrowedFd<'_>,
        start_bytes: u64,
        count: u32,
    ) -> Result<Vec<ZoneDescription>, std::io::Error> {
        let start = start_bytes / u64::from(self.sizes.block_bytes);
        let bytes = responses::report_bytes(count);
        let mut command = command("REPORT ZONES", ZONE_MANAGEMENT_IN, REPORT_ZONES, start, bytes);
        command.block[14] = PARTIAL;
        let zones = answer(file, &command, bytes, |bytes| responses::zones(bytes, self.sizes));
        zones.map_err(ScsiError::into_io)
    }

    /// Sends a command to the zone that begins at byte `start_bytes`.
    pub(super) fn command(
        &self,
        file: BorrowedFd<'_>,
        zone_command: ZoneCommand,
        start_bytes: u64,
    ) -> Result<(), std::io::Error> {
        let (name, action) = match zone_command {
            ZoneCommand::Open => ("OPEN ZONE", OPEN_ZONE),
            ZoneCommand::Close => ("CLOSE ZONE", CLOSE_ZONE),
            ZoneCommand::Finish => ("FINISH ZONE", FINISH_ZONE),
            ZoneCommand::Reset => ("RESET WRITE POINTER", RESET_WRITE_POINTER),
        };
        let start = start_bytes / u64::from(self.sizes.block_bytes);
        let command = command(name, ZONE_MANAGEMENT_OUT, action, start, 0);
        execute(file, &command, &mut []).map(|_| ()).map_err(ScsiError::into_io)
    }
}

/// Whether an error that came of a command says that too many zones would be open.
pub(super) fn is_open_limit(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ScsiError>());
    inner.is_some_and(ScsiError::is_open_limit)
}

/// The disk behind a device of the SCSI generic driver (`/dev/sg0`), which takes commands but no reads and writes as a disk
/// does; `None` for any other path.
pub(super) fn disk_of_generic(path: &Path) -> Option<PathBuf> {
    const SCSI_GENERIC_MAJOR: u32 = 21;
    let metadata = path.metadata().ok().filter(|metadata| metadata.file_type().is_char_device())?;
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let disks = std::fs::read_dir(format!("/sys/dev/char/{major}:{minor}/device/block")).ok()?;
    let disk = disks.flatten().next().filter(|_| major == SCSI_GENERIC_MAJOR)?;
    Some(Path::new("/dev").join(disk.file_name()))
}

/// Commands to a part of a disk would go to the whole of it.
fn is_whole_disk(file: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let directory = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
        && directory.is_dir()
        && !directory.join("partition").exists()
}

/// What the disk says of its zones. Pages are asked for only of disks that name them: some break at others.
fn zoned(file: BorrowedFd<'_>) -> Result<Zoned, ScsiError> {
    if !answer(file, &inquiry(None, 36), 36, responses::is_disk_with_pages)? {
        return Ok(Zoned::NotReported);
    }
    let has_page = |bytes: &[u8]| responses::has_page(bytes, BLOCK_CHARACTERISTICS);
    if !answer(file, &inquiry(Some(0x00), PAGE_BYTES as u8), PAGE_BYTES, has_page)? {
        return Ok(Zoned::NotReported);
    }
    let page = inquiry(Some(BLOCK_CHARACTERISTICS), PAGE_BYTES as u8);
    answer(file, &page, PAGE_BYTES, responses::zoned_field)
}

fn inquiry(page: Option<u8>, bytes: u8) -> Command {
    let mut block = [0; 16];
    block[..5].copy_from_slice(&[INQUIRY, u8::from(page.is_some()), page.unwrap_or(0), 0, bytes]);
    Command { name: "INQUIRY", block, length: 6 }
}

/// A command of 16 bytes: a service action, an address, and the space for an answer.
// SCSI is big-endian.
#[allow(clippy::big_endian_bytes)]
fn command(name: &'static str, operation: u8, action: u8, address: u64, answer_bytes: usize) -> Command {
    let mut block = [0; 16];
    (block[0], block[1]) = (operation, action);
    block[2..10].copy_from_slice(&address.to_be_bytes());
    block[10..14].copy_from_slice(&(answer_bytes as u32).to_be_bytes());
    Command { name, block, length: 16 }
}

/// Sends a command and reads what it is answered with.
fn answer<T>(
    file: BorrowedFd<'_>,
    command: &Command,
    bytes: usize,
    read: impl FnOnce(&[u8]) -> Result<T, Malformed>,
) -> Result<T, ScsiError> {
    let mut data = vec![0; bytes];
    let count = execute(file, command, &mut data)?;
    read(&data[..count.min(bytes)]).map_err(|malformed| ScsiError::Malformed { command: command.name, malformed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn commands_are_those_of_the_standard() {
        let mut report = command("REPORT ZONES", ZONE_MANAGEMENT_IN, REPORT_ZONES, 0x0102_0304_0506, 65_536);
        report.block[14] = PARTIAL;
        assert_eq!(report.block, [0x95, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 1, 0, 0, 0x80, 0]);
        let reset = command("RESET WRITE POINTER", ZONE_MANAGEMENT_OUT, RESET_WRITE_POINTER, 1 << 40, 0);
        assert_eq!(reset.block, [0x94, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let page = inquiry(Some(BLOCK_CHARACTERISTICS), PAGE_BYTES as u8);
        assert_eq!((&page.block[..6], page.length), (&[0x12, 1, 0xB1, 0, 255, 0][..], 6));
        assert_eq!(inquiry(None, 36).block[..6], [0x12, 0, 0, 0, 36, 0]);
    }

    #[test]
    fn a_file_is_no_host_aware_disk() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(HostAwareDisk::of(file.as_fd()).unwrap().is_none());
        assert!(HostAwareDisk::that_reports(file.as_fd()).is_none());
        let disk = HostAwareDisk { sizes: Capacity { block_bytes: 512, capacity_bytes: 1 << 30 } };
        let error = disk.report(file.as_fd(), 0, 1).unwrap_err();
        assert!(error.to_string().contains("REPORT ZONES") && !is_open_limit(&error), "{error}");
        assert!(disk.command(file.as_fd(), ZoneCommand::Reset, 0).is_err());
        assert_eq!(disk_of_generic(file.path()), None);
        assert_eq!(disk_of_generic(Path::new("/dev/null")), None);
    }
}
