//! What else disks hold: the marks by which programs know their own.
//!
//! Only for what a person is told, and for devices whose creation was interrupted: anything that is not zeros keeps a
//! store off a device by itself. Kept crates that know such marks are bindings of libblkid; this is the part of its
//! table that says what lies in the first two mebibytes or the last one. Sources: util-linux, `libblkid/src`
//! (`superblocks/*.c`, `partitions/*.c`), and, for what writes them, the headers named below.

use super::layers;
use varve_media::{ARRAY_MEMBER_MARK, WRITE_BUFFER_MARK};

/// Where a mark begins.
#[derive(Clone, Copy)]
enum Place {
    /// In bytes from the start.
    Start(u64),
    /// In bytes before the end.
    End(u64),
    /// At the start of the last whole 4 KiB.
    LastUnit,
    /// As md places superblocks of version 0.90: in the last whole 64 KiB but one (`md_p.h`, `MD_NEW_SIZE_SECTORS`).
    Md090,
    /// As md places superblocks of version 1.0: 8 KiB or more before the end, at 4 KiB (`super1.c` of mdadm).
    Md10,
}

struct Signature {
    name: &'static str,
    mark: &'static [u8],
    places: &'static [Place],
}

use Place::{End, LastUnit, Md10, Md090, Start};

/// The specific before the general: what names a partition table also begins many file systems.
const SIGNATURES: &[Signature] = &[
    // Before all: a page of the disk may begin with another.
    Signature { name: layers::BUFFER_NAME, mark: WRITE_BUFFER_MARK, places: &[Start(0), LastUnit] },
    Signature {
        name: layers::BUFFERED_DISK_NAME,
        mark: WRITE_BUFFER_MARK,
        places: &[End(varve_media::WRITE_BUFFER_RESERVED_BYTES)],
    },
    Signature { name: layers::ARRAY_MEMBER_NAME, mark: ARRAY_MEMBER_MARK, places: &[Start(0), Start(4096)] },
    Signature {
        name: "a GPT partition table",
        mark: b"EFI PART",
        places: &[Start(512), Start(4096), End(512), End(4096)],
    },
    Signature { name: "a LUKS encrypted volume", mark: b"LUKS\xba\xbe", places: &[Start(0)] },
    Signature {
        name: "a LUKS encrypted volume (second header)",
        mark: b"SKUL\xba\xbe",
        places: &[Start(0x4000), Start(0x8000), Start(0x1_0000), Start(0x2_0000), Start(0x4_0000), Start(0x8_0000)],
    },
    Signature {
        name: "an LVM2 physical volume",
        mark: b"LABELONE",
        places: &[Start(0), Start(512), Start(1024), Start(1536)],
    },
    Signature {
        name: "a swap area",
        mark: b"SWAPSPACE2",
        places: &[Start(0xff6), Start(0x1ff6), Start(0x3ff6), Start(0x7ff6), Start(0xfff6)],
    },
    Signature { name: "a swap area", mark: b"SWAP-SPACE", places: &[Start(0xff6), Start(0x1ff6), Start(0xfff6)] },
    Signature {
        name: "a Linux RAID member",
        mark: &[0xfc, 0x4e, 0x2b, 0xa9],
        places: &[Start(0), Start(4096), Md10, Md090],
    },
    Signature { name: "an XFS file system", mark: b"XFSB", places: &[Start(0)] },
    Signature { name: "a Btrfs file system", mark: b"_BHRfS_M", places: &[Start(0x1_0040)] },
    Signature { name: "an ext2, ext3 or ext4 file system", mark: &[0x53, 0xef], places: &[Start(0x438)] },
    Signature { name: "an F2FS file system", mark: &[0x10, 0x20, 0xf5, 0xf2], places: &[Start(0x400)] },
    Signature { name: "an EROFS file system", mark: &[0xe2, 0xe1, 0xf5, 0xe0], places: &[Start(0x400)] },
    Signature { name: "a NILFS2 file system", mark: &[0x34, 0x34], places: &[Start(0x406)] },
    Signature { name: "a ReiserFS file system", mark: b"ReIsEr", places: &[Start(0x1_0034), Start(0x2034)] },
    Signature { name: "a JFS file system", mark: b"JFS1", places: &[Start(0x8000)] },
    Signature { name: "a SquashFS image", mark: b"hsqs", places: &[Start(0)] },
    Signature { name: "an HFS+ file system", mark: b"H+\0\x04", places: &[Start(0x400)] },
    Signature { name: "an APFS container", mark: b"NXSB", places: &[Start(32)] },
    Signature {
        name: "a bcache or Bcachefs device",
        mark: &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
        places: &[Start(0x1018)],
    },
    Signature {
        name: "a Bcachefs file system",
        mark: &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
        places: &[Start(0x1018)],
    },
    Signature { name: "a Ceph BlueStore device", mark: b"bluestore block device", places: &[Start(0)] },
    Signature { name: "a VDO volume", mark: b"dmvdo001", places: &[Start(0)] },
    Signature { name: "an ISO 9660 image", mark: b"CD001", places: &[Start(0x8001)] },
    Signature { name: "a UDF image", mark: b"BEA01", places: &[Start(0x8001)] },
    Signature { name: "an NTFS file system", mark: b"NTFS    ", places: &[Start(3)] },
    Signature { name: "an exFAT file system", mark: b"EXFAT   ", places: &[Start(3)] },
    Signature { name: "a FAT file system", mark: b"FAT32   ", places: &[Start(82)] },
    Signature { name: "a FAT file system", mark: b"FAT1", places: &[Start(54)] },
    Signature { name: "an Intel RAID member", mark: b"Intel Raid ISM Cfg Sig. ", places: &[End(1024)] },
    Signature { name: "a DDF RAID member", mark: &[0xde, 0x11, 0xde, 0x11], places: &[End(512)] },
    Signature { name: "an MBR partition table or a boot sector", mark: &[0x55, 0xaa], places: &[Start(510)] },
];

/// The magic of ZFS's uberblocks, one for each KiB of the second half of a label, in both byte orders (`uberblock_impl.h`).
const ZFS_MARKS: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.swap_bytes().to_le_bytes()];
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 128 << 10..256 << 10;
/// Labels of ZFS lie at the start and at the end (`vdev_impl.h`).
const ZFS_LABEL_BYTES: u64 = 256 << 10;

/// Where file systems begin on a disk with partitions: at its start, at 63 sectors as before 2010, at 1 MiB since.
const BEGINNINGS: [u64; 3] = [0, 63 * 512, 1 << 20];

/// A part of a device.
pub(super) struct Part<'a> {
    pub(super) offset_bytes: u64,
    pub(super) bytes: &'a [u8],
}

fn has(parts: &[Part<'_>], at: u64, mark: &[u8]) -> bool {
    parts.iter().any(|part| {
        let within = at.checked_sub(part.offset_bytes).and_then(|within| usize::try_from(within).ok());
        within.and_then(|within| part.bytes.get(within..)).is_some_and(|bytes| bytes.starts_with(mark))
    })
}

/// What is known to write such bytes, and where on a device of this capacity its mark is.
pub(super) fn find(parts: &[Part<'_>], capacity_bytes: u64) -> Option<(&'static str, u64)> {
    let at = |beginning: u64, place: Place| match place {
        Start(offset) => Some(beginning + offset),
        // A partition's end is not known.
        _ if beginning > 0 => None,
        End(before) => capacity_bytes.checked_sub(before),
        LastUnit => (capacity_bytes & !0xfff).checked_sub(4096),
        Md090 => (capacity_bytes & !0xffff).checked_sub(64 << 10),
        Md10 => ((capacity_bytes / 512).checked_sub(16)? & !7).checked_mul(512),
    };
    for beginning in BEGINNINGS {
        for signature in SIGNATURES {
            let mut places = signature.places.iter().filter_map(|place| at(beginning, *place));
            if let Some(place) = places.find(|place| has(parts, *place, signature.mark)) {
                return Some((signature.name, place));
            }
        }
    }
    let whole = capacity_bytes / ZFS_LABEL_BYTES * ZFS_LABEL_BYTES;
    let labels = BEGINNINGS.into_iter().chain([1, 2].map(|number| whole.saturating_sub(number * ZFS_LABEL_BYTES)));
    for label in labels {
        for at in ZFS_UBERBLOCKS.step_by(1024).map(|at| label + at) {
            if ZFS_MARKS.iter().any(|mark| has(parts, at, mark)) {
                return Some(("a ZFS device", at));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_is_found_where_its_program_writes_it_and_zeros_are_nothing() {
        const CAPACITY_BYTES: u64 = 8 << 20;
        let zeros = vec![0; CAPACITY_BYTES as usize];
        let found = |bytes: &[u8]| find(&[Part { offset_bytes: 0, bytes }], CAPACITY_BYTES);
        assert_eq!(found(&zeros), None);
        for signature in SIGNATURES {
            for place in signature.places {
                let at = match place {
                    Start(at) => *at,
                    End(before) => CAPACITY_BYTES - before,
                    LastUnit => CAPACITY_BYTES - 4096,
                    Md090 => CAPACITY_BYTES - (64 << 10),
                    Md10 => CAPACITY_BYTES - (8 << 10),
                };
                let mut image = zeros.clone();
                image[at as usize..][..signature.mark.len()].copy_from_slice(signature.mark);
                assert_eq!(found(&image), Some((signature.name, at)));
            }
        }
        let mut image = zeros;
        image[(128 << 10) + 5 * 1024..][..8].copy_from_slice(&ZFS_MARKS[0]);
        assert_eq!(found(&image), Some(("a ZFS device", (128 << 10) + 5 * 1024)));
    }
}
