//! A zoned block device of the machine.

use super::file_device::{FileDevice, FileDeviceOptions};
use super::one_write::OneWriteAtATime;
use super::scsi;
use super::zone_commands::zone_of;
use super::zone_interface::ZoneInterface;
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Device, Geometry};
use crate::emulated::{RuledDevice, ZoneCommand, ZoneCommands, ZoneState, ZoneTable, Zoned, ZonedGround};
use crate::error::{MediaError, MediaErrorKind, Operation};
use crate::request::{Request, Transfer};
use crate::zones::{ZoneCondition, ZoneControl, ZoneDescription, ZoneGeometry, ZoneId, ZoneRefusal, ZoneType};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Locks that zones share: writes to zones of different locks go to the device side by side.
const LOCKS: usize = 64;

/// Opens the zoned block device at `path`, past the page cache, with its commands through the kernel
/// (BLKREPORTZONE and the others of `linux/blkzoned.h`). A host-aware disk that the kernel takes for an ordinary one, as Linux
/// does since 6.9, gets them as SCSI commands (REPORT ZONES and the others of ZBC by SG_IO), reads and writes as any disk.
///
/// The device judges each write again after the rules of [`Zoned`] have; what it says counts. The kernel has
/// no append for programs: an append is a write at the pointer while the zone's lock is held, under which
/// writes to the zone go too, one at a time, in the order of their batch. What lies at or above a write pointer
/// reads as zeros whatever the device would give. Of zones of preferred type pointer, condition and flag are the device's own at
/// each report and before each command: its translation layer changes them when it likes.
///
/// # Errors
/// Those of [`FileDevice::open`]; [`MediaError::Rule`] when the device at `path` has no zones, or zones that
/// Linux does not support; what the kernel says to a report.
pub fn open_zoned_device(path: impl AsRef<Path>, options: &FileDeviceOptions) -> Result<Device, MediaError> {
    let file = FileDevice::open(path, &FileDeviceOptions { direct: true, ..options.clone() })?;
    let interface = ZoneInterface::of_zoned(&file)?;
    zoned(file, interface)
}

impl FileDevice {
    /// This device with what is known of it beyond blocks: its zones, if it is a zoned block device or a host-aware disk
    /// ([`open_zoned_device`]).
    ///
    /// # Errors
    /// Those of [`open_zoned_device`], for such a device; what a disk says to the question whether it is host-aware.
    pub fn into_device(self) -> Result<Device, MediaError> {
        match ZoneInterface::of(&self)? {
            Some(interface) => zoned(self, interface),
            None => Ok(Device::of_blocks(Arc::new(self))),
        }
    }
}

fn zoned(file: FileDevice, interface: ZoneInterface) -> Result<Device, MediaError> {
    if !file.is_direct() {
        return Err(MediaError::Rule {
            device: file.name().to_owned(),
            operation: Operation::Open,
            offset_bytes: 0,
            rule: "zones are written past the page cache, which keeps no order; open the device for direct I/O"
                .to_owned(),
        });
    }
    let reported = report_all(&file, &interface)?;
    let geometry = geometry_of(&file, interface.sizes(&file, &reported), &reported)?;
    let mut table = ZoneTable::new(&geometry);
    for (zone, description) in (0..geometry.zone_count).map(ZoneId).zip(&reported) {
        table.restore_open(zone, ZoneState::of(description));
    }
    let file = Arc::new(file);
    let rules = Zoned::of(table);
    let table = rules.table();
    let divided_at_bytes = matches!(interface, ZoneInterface::Scsi(_))
        .then(|| u64::from(geometry.conventional_zones).saturating_mul(geometry.zone_bytes));
    let inner: Arc<dyn BlockDevice> =
        Arc::new(OneWriteAtATime { file: file.clone(), zones: geometry.clone(), divided_at_bytes });
    let sizes = rules.cut(inner.geometry());
    let device = Arc::new(ZonedFileDevice {
        ruled: RuledDevice::new(inner, sizes, Box::new(rules)),
        file,
        interface,
        zones: geometry,
        table: table.clone(),
        locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
    });
    let commands = ZoneCommands { table, record: None, ground: device.clone() };
    let control: Arc<dyn ZoneControl> = Arc::new(KernelZones { commands, device: device.clone() });
    Ok(Device { zones: Some(control), ..Device::of_blocks(device) })
}

fn failed(name: &str, offset_bytes: u64, source: std::io::Error) -> MediaError {
    MediaError::io(name, Operation::Zone, offset_bytes, source)
}

/// Every zone of the file's capacity.
fn report_all(file: &FileDevice, interface: &ZoneInterface) -> Result<Vec<ZoneDescription>, MediaError> {
    let mut reported: Vec<ZoneDescription> = Vec::new();
    let mut at = 0;
    while at < file.geometry().capacity_bytes {
        let part = interface.report(file, at, u32::MAX).map_err(|error| failed(file.name(), at, error))?;
        let Some(last) = part.last() else { break };
        // A report that does not get on would never end, and one of more zones than there can be would fill the memory.
        let end = last.start_bytes.saturating_add(last.length_bytes);
        if end <= at || reported.len() + part.len() > ZoneGeometry::ZONES_MAX as usize {
            return Err(failed(file.name(), at, Errno::PROTO.into()));
        }
        at = end;
        reported.extend(part);
    }
    Ok(reported)
}

fn geometry_of(
    file: &FileDevice,
    (zone_bytes, zone_count): (u64, u32),
    reported: &[ZoneDescription],
) -> Result<ZoneGeometry, MediaError> {
    let name = file.name();
    let refused =
        |rule: String| MediaError::Rule { device: name.to_owned(), operation: Operation::Open, offset_bytes: 0, rule };
    let fit = ZoneGeometry::fit(u64::from(zone_count).saturating_mul(zone_bytes), zone_bytes);
    let Some(fit) = fit.filter(|_| reported.len() == zone_count as usize) else {
        return Err(refused(format!(
            "a block device with zones is needed; this one tells of {zone_count} zones of {zone_bytes} bytes and \
             reports {}",
            reported.len()
        )));
    };
    let in_place = |(zone, found): (u32, &ZoneDescription)| zone_of(found, zone_bytes) == Some(ZoneId(zone));
    if !(0..).zip(reported).all(in_place) {
        return Err(refused("the zones are not of one length".to_owned()));
    }
    let sequential = || reported.iter().filter(|zone| zone.zone_type != ZoneType::Conventional);
    let sequential_type = sequential().next().map_or(ZoneType::SequentialWriteRequired, |zone| zone.zone_type);
    let leading = reported.iter().take_while(|zone| zone.zone_type == ZoneType::Conventional).count();
    // Zones of one capacity behind the conventional ones, but for a shorter last one, which is left unused.
    let capacity_bytes = sequential().map(|zone| zone.capacity_bytes).max().unwrap_or(zone_bytes);
    let uniform = reported[leading..].iter().rev().skip(1).all(|zone| {
        zone.zone_type == sequential_type && zone.capacity_bytes == capacity_bytes && zone.length_bytes == zone_bytes
    });
    if !uniform {
        return Err(refused(
            "conventional zones behind sequential ones, or zones of several capacities, are not supported".to_owned(),
        ));
    }
    let last_fits = reported.last().is_some_and(|last| {
        last.length_bytes == zone_bytes && (leading == reported.len() || last.capacity_bytes == capacity_bytes)
    });
    let limit = |attribute| file.queue_number(attribute).unwrap_or(0);
    Ok(ZoneGeometry {
        zone_count: zone_count - u32::from(!last_fits),
        zone_capacity_bytes: capacity_bytes,
        conventional_zones: leading.min(u32::MAX as usize) as u32,
        sequential_type,
        open_zones_max: limit("max_open_zones"),
        active_zones_max: limit("max_active_zones"),
        append_bytes_max: 0,
        ..fit
    })
}

/// The device: the rules in front of the kernel's.
struct ZonedFileDevice {
    ruled: RuledDevice,
    file: Arc<FileDevice>,
    interface: ZoneInterface,
    zones: ZoneGeometry,
    table: Arc<Mutex<ZoneTable>>,
    locks: Vec<Mutex<()>>,
}

impl ZonedFileDevice {
    /// Locks the sequential zones that these ranges touch, in one order.
    fn lock(&self, ranges: impl Iterator<Item = Range<u64>>) -> Vec<MutexGuard<'_, ()>> {
        let ordered = |zone: &ZoneId| self.zones.zone_type(*zone) != ZoneType::Conventional;
        let numbers: BTreeSet<usize> = ranges
            .flat_map(|range| self.zones.zones_in(&range).filter(ordered).collect::<Vec<_>>())
            .map(|zone| zone.0 as usize % LOCKS)
            .collect();
        numbers.into_iter().filter_map(|number| self.locks.get(number)).map(Mutex::lock).collect()
    }

    /// Asks the device for zones, and takes over what it says.
    fn refresh(&self, first: ZoneId, count: u32) -> Result<Vec<ZoneDescription>, MediaError> {
        let end = first.0.saturating_add(count).min(self.zones.zone_count);
        let mut reported = Vec::new();
        while first.0 + (reported.len() as u32) < end {
            let next = ZoneId(first.0 + reported.len() as u32);
            let start_bytes = self.zones.start_bytes(next);
            let part = self.interface.report(&self.file, start_bytes, end - next.0);
            let part = part.map_err(|error| failed(self.file.name(), start_bytes, error))?;
            let is_next = |found: &ZoneDescription| zone_of(found, self.zones.zone_bytes) == Some(next);
            if !part.first().is_some_and(is_next) {
                return Err(failed(self.file.name(), start_bytes, Errno::PROTO.into()));
            }
            reported.extend(part);
        }
        reported.truncate((end - first.0) as usize);
        Ok(reported)
    }

    /// After a failure nothing is known about a zone but what the kernel says. The lock of a zone that was written or
    /// commanded is held; after a read there may be writes in flight, whose pointer is known better here.
    fn refresh_one(&self, zone: ZoneId, operation: Operation) -> Option<ZoneDescription> {
        let found = self.refresh(zone, 1).ok()?.pop()?;
        let is_worn = matches!(found.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline);
        if is_worn || operation != Operation::Read {
            self.table.lock().restore_open(zone, ZoneState::of(&found));
        }
        Some(found)
    }

    /// The same failure, told as a refusal where the kernel or the zone says that it was one.
    fn explain(&self, error: MediaError, operation: Operation, zone: ZoneId, offset_bytes: u64) -> MediaError {
        let found = self.refresh_one(zone, operation);
        let condition = found.as_ref().map(|found| found.condition);
        let MediaError::Io { error: source, .. } = &error else { return error };
        let code = source.raw_os_error();
        let refusal = match condition {
            Some(ZoneCondition::ReadOnly) if operation != Operation::Read => ZoneRefusal::ReadOnly,
            Some(ZoneCondition::Offline) => ZoneRefusal::Offline,
            // What the block layer makes of BLK_STS_ZONE_OPEN_RESOURCE and BLK_STS_ZONE_ACTIVE_RESOURCE.
            _ if code == Some(Errno::TOOMANYREFS.raw_os_error()) || scsi::is_open_limit(source) => {
                ZoneRefusal::OpenLimit { limit: self.zones.open_zones_max }
            }
            _ if code == Some(Errno::OVERFLOW.raw_os_error()) => {
                ZoneRefusal::ActiveLimit { limit: self.zones.active_zones_max }
            }
            _ => return error,
        };
        MediaError::Zone { device: self.file.name().to_owned(), operation, zone, offset_bytes, refusal }
    }
}

impl BlockDevice for ZonedFileDevice {
    fn name(&self) -> &str {
        self.ruled.name()
    }

    fn geometry(&self) -> &Geometry {
        self.ruled.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.ruled.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let range =
            |request: &Request<'_>| request.offset_bytes..request.offset_bytes.saturating_add(request.length_bytes());
        let writes = requests.iter().filter(|request| matches!(request.transfer, Transfer::Write { .. }));
        let _locked = self.lock(writes.map(range));
        let mut result = self.ruled.execute(requests, context);
        if result.is_ok() {
            return result;
        }
        result = Ok(());
        for request in requests.iter_mut() {
            if let (Err(error), Some(zone)) = (&request.outcome, self.zones.zone_at(request.offset_bytes))
                && error.kind() == MediaErrorKind::Io
            {
                let (operation, offset_bytes) = (request.operation(), request.offset_bytes);
                request.outcome = Err(self.explain(error.clone(), operation, zone, offset_bytes));
            }
            result = result.and(request.outcome.clone());
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.ruled.sync(context)
    }

    fn counters(&self) -> Counters {
        self.ruled.counters()
    }
}

impl ZonedGround for ZonedFileDevice {
    fn wait_for_report(&self) {}

    fn write_admitted(&self, offset_bytes: u64, data: &[u8], context: &IoContext) -> Result<(), MediaError> {
        let written = self.ruled.write_admitted(offset_bytes, data, context);
        written.map_err(|error| match self.zones.zone_at(offset_bytes) {
            Some(zone) => self.explain(error, Operation::Zone, zone, offset_bytes),
            None => error,
        })
    }

    fn command(&self, command: ZoneCommand, zone: &ZoneDescription) -> Result<(), MediaError> {
        let sent = self.interface.command(&self.file, command, zone);
        sent.map_err(|error| {
            let error = failed(self.file.name(), zone.start_bytes, error);
            match self.zones.zone_at(zone.start_bytes) {
                Some(number) => self.explain(error, Operation::Zone, number, zone.start_bytes),
                None => error,
            }
        })
    }

    /// The kernel's reset did.
    fn forget(&self, _range: Range<u64>, _show_through: bool) -> Result<(), MediaError> {
        Ok(())
    }

    fn count(&self, done: Option<ZoneCommand>) {
        self.ruled.count(done);
    }
}

/// The commands, each while nothing is written to its zone.
struct KernelZones {
    commands: ZoneCommands<ZonedFileDevice>,
    device: Arc<ZonedFileDevice>,
}

impl KernelZones {
    fn lock(&self, zone: ZoneId) -> Vec<MutexGuard<'_, ()>> {
        self.device.lock(std::iter::once(self.device.zones.range(zone)))
    }

    /// The same, with what the device itself did to the zone, for a command that depends on it. Where that cannot be had, the
    /// command tells why.
    fn lock_known(&self, zone: ZoneId) -> Vec<MutexGuard<'_, ()>> {
        let locked = self.lock(zone);
        if self.device.zones.contains(zone) && self.device.zones.zone_type(zone) == ZoneType::SequentialWritePreferred {
            self.device.refresh_one(zone, Operation::Zone);
        }
        locked
    }
}

impl ZoneControl for KernelZones {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        // That there is such a zone.
        self.commands.report(first, 1, context)?;
        let mut reported = self.device.refresh(first, count)?;
        let mut table = self.device.table.lock();
        for (zone, found) in (first.0..).map(ZoneId).zip(&mut reported) {
            // What the medium did by itself. Pointers of writes in flight are known better here.
            if matches!(found.condition, ZoneCondition::ReadOnly | ZoneCondition::Offline) {
                table.restore_open(zone, ZoneState::of(found));
            } else if found.zone_type == ZoneType::SequentialWriteRequired {
                found.write_pointer_bytes = table.describe(zone).write_pointer_bytes;
            }
        }
        Ok(reported)
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _locked = self.lock_known(zone);
        self.commands.open(zone, context)
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _locked = self.lock_known(zone);
        self.commands.close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _locked = self.lock_known(zone);
        self.commands.finish(zone, context)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        let _locked = self.lock_known(zone);
        self.commands.reset(zone, context)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        let _locked = self.lock(zone);
        self.commands.append(zone, data, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;

    /// Name a host-aware disk in `VARVE_HOST_AWARE_DEVICE` to test it; what is in its last whole zone is destroyed.
    #[test]
    fn host_aware_disk_of_the_machine() {
        let Some(path) = std::env::var_os("VARVE_HOST_AWARE_DEVICE") else {
            eprintln!("no host-aware disk tested: VARVE_HOST_AWARE_DEVICE names none");
            return;
        };
        let context = IoContext::default();
        let open = || open_zoned_device(&path, &FileDeviceOptions::default()).unwrap();
        let device = open();
        let zones = device.block.capabilities().zones.clone().unwrap();
        assert_eq!(zones.sequential_type, ZoneType::SequentialWritePreferred);
        assert!(zones.can_be_written_anywhere());
        let (zone, control) = (ZoneId(zones.zone_count - 1), device.zones.clone().unwrap());
        let start = zones.start_bytes(zone);
        let report = |control: &Arc<dyn ZoneControl>| control.report(zone, 1, &context).unwrap().remove(0);
        let read = |device: &Device, at| {
            let mut found = vec![7; 65_536];
            device.block.read_at(at, &mut found, &context).unwrap();
            found
        };
        control.reset(zone, &context).unwrap();
        let empty = report(&control);
        assert_eq!((empty.condition, empty.non_sequential), (ZoneCondition::Empty, false));

        // At the pointer, then beside it; then at both again. A drive that puts the zone in order at once moves the pointer.
        let (first, second, third) = (vec![1; 65_536], vec![2; 65_536], vec![3; 65_536]);
        device.block.write_at(start, &first, &context).unwrap();
        let written = report(&control);
        assert_eq!((written.write_pointer_bytes, written.non_sequential), (start + 65_536, false));
        assert!(written.condition.is_active(), "{written:?}");
        let beside = start + (1 << 20);
        device.block.write_at(beside, &second, &context).unwrap();
        device.block.write_at(start, &third, &context).unwrap();
        let out_of_order = report(&control);
        eprintln!("after a write off the pointer: {out_of_order:?}");
        assert!(out_of_order.non_sequential || out_of_order.write_pointer_bytes == beside + 65_536, "{out_of_order:?}");
        let check = |device: &Device| {
            assert!(read(device, start) == third && read(device, beside) == second);
        };
        check(&device);
        assert!(read(&device, start + zones.zone_bytes - 65_536) == [0; 65_536]);

        control.open(zone, &context).unwrap();
        assert_eq!(report(&control).condition, ZoneCondition::ExplicitlyOpened);
        control.close(zone, &context).unwrap();
        let closed = report(&control);
        assert_eq!(closed.condition, ZoneCondition::Closed);

        // All of this is known to the disk, not to this process.
        device.block.sync(&context).unwrap();
        drop((device, control));
        let device = open();
        let control = device.zones.clone().unwrap();
        assert_eq!(report(&control), closed);
        check(&device);
        control.finish(zone, &context).unwrap();
        assert_eq!(report(&control).condition, ZoneCondition::Full);
        check(&device);
        control.reset(zone, &context).unwrap();
        assert_eq!((report(&control), device.block.counters().zone_resets), (empty, 1));
        assert!(read(&device, start) == [0; 65_536] && read(&device, beside) == [0; 65_536]);
    }

    /// Name a host-aware disk as above; what is around the end of its conventional zones is destroyed.
    #[test]
    fn writes_over_that_end_on_a_host_aware_disk_of_the_machine() {
        let Some(path) = std::env::var_os("VARVE_HOST_AWARE_DEVICE") else {
            eprintln!("no host-aware disk tested: VARVE_HOST_AWARE_DEVICE names none");
            return;
        };
        let device = open_zoned_device(&path, &FileDeviceOptions::default()).unwrap();
        let zones = device.block.capabilities().zones.clone().unwrap();
        let end = u64::from(zones.conventional_zones) * zones.zone_bytes;
        let Some(start) = end.checked_sub(32_768) else { return };
        let (data, context) = (vec![9; 65_536], IoContext::default());
        device.block.write_at(start, &data, &context).unwrap();
        let mut found = vec![0; 65_536];
        device.block.read_at(start, &mut found, &context).unwrap();
        assert!(found == data);
    }

    #[test]
    fn a_file_is_no_zoned_device() {
        let place = tempfile::tempdir().unwrap();
        let options = FileDeviceOptions { capacity_bytes: Some(1 << 20), create: true, ..Default::default() };
        let error = open_zoned_device(place.path().join("file"), &options).err().unwrap();
        assert_eq!(error.kind(), MediaErrorKind::Io, "{error}");
    }
}
