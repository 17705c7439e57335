//! The two ways to the zones of a device.

use super::file_device::FileDevice;
use super::scsi::HostAwareDisk;
use super::zone_commands;
use crate::device::BlockDevice;
use crate::emulated::ZoneCommand;
use crate::error::{MediaError, Operation};
use crate::zones::ZoneDescription;

/// How a device is asked for its zones, and how they are commanded.
pub(super) enum ZoneInterface {
    /// By the block layer of the kernel.
    BlockLayer,
    /// By SCSI commands past it.
    Scsi(HostAwareDisk),
}

impl ZoneInterface {
    /// The one of `file`; `None` where it has no zones that can be asked for.
    pub(super) fn of(file: &FileDevice) -> Result<Option<Self>, MediaError> {
        if matches!(zone_commands::zone_sizes(file.as_fd()), Ok((_, zone_count)) if zone_count > 0) {
            return Ok(Some(ZoneInterface::BlockLayer));
        }
        let disk = HostAwareDisk::of(file.as_fd());
        let disk = disk.map_err(|source| MediaError::io(file.name(), Operation::Open, 0, source))?;
        Ok(disk.map(ZoneInterface::Scsi))
    }

    /// The one of `file` that is said to have zones.
    pub(super) fn of_zoned(file: &FileDevice) -> Result<Self, MediaError> {
        let known = ZoneInterface::of(file)?;
        let asked = known.or_else(|| HostAwareDisk::that_reports(file.as_fd()).map(ZoneInterface::Scsi));
        Ok(asked.unwrap_or(ZoneInterface::BlockLayer))
    }

    /// Distance between the starts of zones and their number, of a device that reports these; 0 and 0 for one without.
    pub(super) fn sizes(&self, file: &FileDevice, reported: &[ZoneDescription]) -> (u64, u32) {
        match self {
            ZoneInterface::BlockLayer => zone_commands::zone_sizes(file.as_fd()).unwrap_or_default(),
            ZoneInterface::Scsi(_) => {
                (reported.first().map_or(0, |zone| zone.length_bytes), u32::try_from(reported.len()).unwrap_or(0))
            }
        }
    }

    /// Reports zones from the one that begins at byte `start_bytes` on, about `count`: fewer at the end of the device and where
    /// they do not fit one report, or a few more.
    pub(super) fn report(
        &self,
        file: &FileDevice,
        start_bytes: u64,
        count: u32,
    ) -> Result<Vec<ZoneDescription>, std::io::Error> {
        match self {
            ZoneInterface::BlockLayer => Ok(zone_commands::report(file.as_fd(), start_bytes, count)?),
            ZoneInterface::Scsi(disk) => {
                let mut zones = disk.report(file.as_fd(), start_bytes, count)?;
                // The file may be opened with less than the disk has.
                let capacity_bytes = file.geometry().capacity_bytes;
                zones.retain(|zone| zone.start_bytes.saturating_add(zone.length_bytes) <= capacity_bytes);
                Ok(zones)
            }
        }
    }

    /// Sends a command to a zone.
    pub(super) fn command(
        &self,
        file: &FileDevice,
        command: ZoneCommand,
        zone: &ZoneDescription,
    ) -> Result<(), std::io::Error> {
        match self {
            ZoneInterface::BlockLayer => {
                Ok(zone_commands::command(file.as_fd(), command, zone.start_bytes, zone.length_bytes)?)
            }
            ZoneInterface::Scsi(disk) => disk.command(file.as_fd(), command, zone.start_bytes),
        }
    }
}
