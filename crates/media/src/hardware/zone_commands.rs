//! The kernel's commands for zoned block devices (`linux/blkzoned.h`).

use crate::emulated::ZoneCommand;
use crate::zones::{ZoneCondition, ZoneDescription, ZoneId, ZoneType};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, opcode};
use std::os::fd::BorrowedFd;

/// The kernel counts sectors of 512 bytes, whatever the device has.
const KERNEL_SECTOR_BYTES: u64 = 512;
/// Zones asked for at once: a report of 64 KiB.
const ZONES_AT_ONCE: usize = 1023;

const REPORT_HEADER_BYTES: usize = 16;
const ZONE_BYTES: usize = 64;
const REPORT_BYTES: usize = REPORT_HEADER_BYTES + ZONES_AT_ONCE * ZONE_BYTES;
/// `BLK_ZONE_REP_CAPACITY`: the report has capacities.
const HAS_CAPACITY: u32 = 1;

const BLKREPORTZONE: Opcode = opcode::read_write::<[u8; REPORT_HEADER_BYTES]>(0x12, 130);
const BLKRESETZONE: Opcode = opcode::write::<ZoneRange>(0x12, 131);
const BLKGETZONESZ: Opcode = opcode::read::<u32>(0x12, 132);
const BLKGETNRZONES: Opcode = opcode::read::<u32>(0x12, 133);
const BLKOPENZONE: Opcode = opcode::write::<ZoneRange>(0x12, 134);
const BLKCLOSEZONE: Opcode = opcode::write::<ZoneRange>(0x12, 135);
const BLKFINISHZONE: Opcode = opcode::write::<ZoneRange>(0x12, 136);

/// The type of a number of ZBC, which the kernel has taken over.
pub(super) fn zone_type(number: u8) -> Option<ZoneType> {
    match number {
        1 => Some(ZoneType::Conventional),
        2 => Some(ZoneType::SequentialWriteRequired),
        3 => Some(ZoneType::SequentialWritePreferred),
        _ => None,
    }
}

/// The condition of one.
pub(super) fn zone_condition(number: u8) -> Option<ZoneCondition> {
    match number {
        0x0 => Some(ZoneCondition::NotWritePointer),
        0x1 => Some(ZoneCondition::Empty),
        0x2 => Some(ZoneCondition::ImplicitlyOpened),
        0x3 => Some(ZoneCondition::ExplicitlyOpened),
        0x4 => Some(ZoneCondition::Closed),
        0xD => Some(ZoneCondition::ReadOnly),
        0xE => Some(ZoneCondition::Full),
        0xF => Some(ZoneCondition::Offline),
        _ => None,
    }
}

/// `struct blk_zone_range`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct ZoneRange {
    sector: u64,
    sectors: u64,
}

/// `struct blk_zone_report` with space for zones. As bytes: what the kernel puts there is parsed, not trusted.
#[repr(C, align(8))]
struct Report([u8; REPORT_BYTES]);

/// Distance between the starts of zones and their number; 0 and 0 for a device without.
pub(super) fn zone_sizes(file: BorrowedFd<'_>) -> rustix::io::Result<(u64, u32)> {
    // SAFETY: BLKGETZONESZ and BLKGETNRZONES store one u32 each, which the getter has space for.
    let (sectors, zones): (u32, u32) = unsafe {
        let sectors = rustix::ioctl::ioctl(file, Getter::<BLKGETZONESZ, u32>::new())?;
        (sectors, rustix::ioctl::ioctl(file, Getter::<BLKGETNRZONES, u32>::new())?)
    };
    Ok((u64::from(sectors) * KERNEL_SECTOR_BYTES, zones))
}

/// Reports at most `count` zones from byte `start_bytes` on. Fewer at the end of the device, or where they do not
/// fit one report.
pub(super) fn report(file: BorrowedFd<'_>, start_bytes: u64, count: u32) -> rustix::io::Result<Vec<ZoneDescription>> {
    let wanted = count.min(ZONES_AT_ONCE as u32);
    let mut report = Box::new(Report([0; REPORT_BYTES]));
    report.0[0..8].copy_from_slice(&native_u64(start_bytes / KERNEL_SECTOR_BYTES));
    report.0[8..12].copy_from_slice(&native_u32(wanted));
    // SAFETY: BLKREPORTZONE reads the header and stores at most as many zones of 64 bytes behind it as the header
    // says, for which the report, aligned as the structure is, has space.
    unsafe { rustix::ioctl::ioctl(file, Updater::<BLKREPORTZONE, Report>::new(&mut *report))? };
    parse_report(&report.0).ok_or(Errno::PROTO)
}

/// Sends a command to the zone of these bytes.
pub(super) fn command(
    file: BorrowedFd<'_>,
    command: ZoneCommand,
    start_bytes: u64,
    length_bytes: u64,
) -> rustix::io::Result<()> {
    let range = ZoneRange { sector: start_bytes / KERNEL_SECTOR_BYTES, sectors: length_bytes / KERNEL_SECTOR_BYTES };
    // SAFETY: each of these commands reads one `struct blk_zone_range`, which `ZoneRange` is, and stores nothing.
    unsafe {
        match command {
            ZoneCommand::Open => rustix::ioctl::ioctl(file, Setter::<BLKOPENZONE, ZoneRange>::new(range)),
            ZoneCommand::Close => rustix::ioctl::ioctl(file, Setter::<BLKCLOSEZONE, ZoneRange>::new(range)),
            ZoneCommand::Finish => rustix::ioctl::ioctl(file, Setter::<BLKFINISHZONE, ZoneRange>::new(range)),
            ZoneCommand::Reset => rustix::ioctl::ioctl(file, Setter::<BLKRESETZONE, ZoneRange>::new(range)),
        }
    }
}

// The kernel's structures are in the machine's own byte order.
#[allow(clippy::host_endian_bytes)]
fn native_u64(value: u64) -> [u8; 8] {
    value.to_ne_bytes()
}

#[allow(clippy::host_endian_bytes)]
fn native_u32(value: u32) -> [u8; 4] {
    value.to_ne_bytes()
}

#[allow(clippy::host_endian_bytes)]
fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[allow(clippy::host_endian_bytes)]
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads `struct blk_zone_report`: `sector` u64, `nr_zones` u32, `flags` u32, zones. `None` when it makes no sense.
fn parse_report(bytes: &[u8]) -> Option<Vec<ZoneDescription>> {
    let count = u32_at(bytes, 8)? as usize;
    let has_capacity = u32_at(bytes, 12)? & HAS_CAPACITY != 0;
    let zones = bytes.get(REPORT_HEADER_BYTES..)?;
    if count > zones.len() / ZONE_BYTES {
        return None;
    }
    zones.chunks_exact(ZONE_BYTES).take(count).map(|zone| parse_zone(zone, has_capacity)).collect()
}

/// Reads `struct blk_zone`: `start`, `len`, `wp` u64, `type`, `cond`, `non_seq`, `reset` u8, 4 reserved,
/// `capacity` u64, 24 reserved.
fn parse_zone(bytes: &[u8], has_capacity: bool) -> Option<ZoneDescription> {
    let bytes_at = |at| u64_at(bytes, at)?.checked_mul(KERNEL_SECTOR_BYTES);
    let (start_bytes, length_bytes) = (bytes_at(0)?, bytes_at(8)?);
    let zone_type = zone_type(*bytes.get(24)?)?;
    let condition = zone_condition(*bytes.get(25)?)?;
    // Before Linux 5.9 there were no capacities.
    let capacity_bytes = if has_capacity { bytes_at(32)? } else { length_bytes };
    let end_bytes = start_bytes.checked_add(length_bytes)?;
    if length_bytes == 0 || capacity_bytes > length_bytes {
        return None;
    }
    // Of zones whose pointer means nothing the kernel says anything.
    let write_pointer_bytes = match condition {
        ZoneCondition::Full => start_bytes + capacity_bytes,
        condition if condition.is_active() => bytes_at(16)?,
        _ => start_bytes,
    };
    let fits = (start_bytes..=end_bytes).contains(&write_pointer_bytes);
    fits.then_some(ZoneDescription {
        start_bytes,
        length_bytes,
        capacity_bytes,
        write_pointer_bytes,
        zone_type,
        condition,
        non_sequential: zone_type == ZoneType::SequentialWritePreferred && *bytes.get(26)? != 0,
    })
}

/// Number of the zone that a report has at `index`, of zones of this length.
pub(super) fn zone_of(description: &ZoneDescription, zone_bytes: u64) -> Option<ZoneId> {
    Some(ZoneId(u32::try_from(description.start_bytes.checked_div(zone_bytes)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use varve_env::Random;

    /// As the C compiler has them: `_IOWR(0x12, 130, struct blk_zone_report)` and the others.
    #[test]
    fn commands_and_structures_are_those_of_the_kernel() {
        assert_eq!((size_of::<ZoneRange>(), align_of::<ZoneRange>()), (16, 8));
        assert_eq!((size_of::<Report>(), align_of::<Report>()), (65_488, 8));
        let numbers =
            [BLKREPORTZONE, BLKRESETZONE, BLKGETZONESZ, BLKGETNRZONES, BLKOPENZONE, BLKCLOSEZONE, BLKFINISHZONE];
        let expected = [0xC010_1282, 0x4010_1283, 0x8004_1284, 0x8004_1285, 0x4010_1286, 0x4010_1287, 0x4010_1288];
        assert_eq!(numbers, expected);
    }

    /// A zone as the kernel would report it, in sectors.
    fn zone(start: u64, length: u64, pointer: u64, zone_type: u8, condition: u8, capacity: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in [start, length, pointer] {
            bytes.extend(native_u64(value));
        }
        bytes.extend([zone_type, condition, 0, 0, 0, 0, 0, 0]);
        bytes.extend(native_u64(capacity));
        bytes.extend([0; 24]);
        bytes
    }

    fn report_of(flags: u32, zones: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = native_u64(0).to_vec();
        bytes.extend(native_u32(zones.len() as u32));
        bytes.extend(native_u32(flags));
        zones.iter().for_each(|zone| bytes.extend(zone));
        bytes
    }

    #[test]
    fn a_reported_buffer_is_read() {
        let bytes = report_of(
            1,
            &[
                zone(0, 4096, u64::MAX, 1, 0, 4096),
                zone(4096, 4096, 4096 + 8, 2, 2, 2154),
                zone(8192, 4096, 12_288, 2, 0xE, 2154),
                zone(12_288, 4096, u64::MAX, 2, 0xD, 2154),
            ],
        );
        let found = parse_report(&bytes).unwrap();
        let conditions: Vec<ZoneCondition> = found.iter().map(|zone| zone.condition).collect();
        use ZoneCondition::{Full, ImplicitlyOpened, NotWritePointer, ReadOnly};
        assert_eq!(conditions, [NotWritePointer, ImplicitlyOpened, Full, ReadOnly]);
        assert_eq!(
            (found[1].start_bytes, found[1].length_bytes, found[1].capacity_bytes),
            (2 << 20, 2 << 20, 2154 * 512)
        );
        assert_eq!(found[1].write_pointer_bytes, (4096 + 8) * 512);
        assert_eq!(
            (found[2].write_pointer_bytes, zone_of(&found[2], 2 << 20)),
            (found[2].end_bytes(), Some(ZoneId(2)))
        );
        // A kernel without capacities.
        let old = parse_report(&report_of(0, &[zone(0, 4096, 8, 2, 2, 0)])).unwrap();
        assert_eq!(old[0].capacity_bytes, 4096 * 512);
    }

    #[test]
    fn nonsense_is_no_report() {
        let good = zone(0, 4096, 8, 2, 2, 4096);
        for (at, value) in [(24, 0), (24, 4), (25, 9), (8, 0)] {
            let mut bad = good.clone();
            bad[at] = value;
            if at == 8 {
                bad[8..16].fill(0);
            }
            assert_eq!(parse_report(&report_of(1, &[bad])), None, "byte {at}");
        }
        for bad in [zone(u64::MAX, 4096, 8, 2, 2, 4096), zone(0, 4096, 8, 2, 2, 4097), zone(0, 4096, 4097, 2, 2, 4096)]
        {
            assert_eq!(parse_report(&report_of(1, &[bad])), None);
        }
        let mut long = report_of(1, std::slice::from_ref(&good));
        long[8] = 2;
        assert_eq!(parse_report(&long), None);
        let mut random = Random::seeded(1);
        for _ in 0..2_000 {
            let mut bytes = vec![0; random.below(400) as usize];
            random.fill_bytes(&mut bytes);
            let _ = parse_report(&bytes);
        }
    }

    #[test]
    fn a_file_takes_no_zone_commands() {
        let file = tempfile::tempfile().unwrap();
        assert!(zone_sizes(file.as_fd()).is_err());
        assert!(report(file.as_fd(), 0, 10).is_err());
        assert!(command(file.as_fd(), ZoneCommand::Reset, 0, 4096).is_err());
    }
}
