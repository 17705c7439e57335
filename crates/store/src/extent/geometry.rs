//! How a device is divided, and the parameters that say so in the superblock.
//!
//! Parameters of an `extent` store, little-endian (the journal's superblock keeps them):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | layout: 0 first fit, 1 next fit, 2 ext4 |
//! | 2 | 2 | bytes of a frame: the device's logical sector |
//! | 4 | 4 | bytes of a block |
//! | 8 | 8 | blocks of the device |
//! | 16 | 16 | log zone: first block, blocks |
//! | 32 | 8 | ext4: blocks of a group; else 0 |
//! | 40 | 8 | ext4: blocks of one group's inode table; else 0 |
//!
//! *First fit, next fit*: superblocks, metadata log, two checkpoint areas, log zone, everything else.
//!
//! *ext4*: block groups of 128 MiB; the bitmaps and inode tables of 16 groups (a flexible group)
//! together at the start of the first of them, inode tables sized for one inode of 256 bytes per
//! 16 KiB; the journal in the middle of the device, sized as mke2fs does (e2fsprogs,
//! `ext2fs_default_journal_size`), and the checkpoint areas, which ext4 does not have, behind it.

use super::Extent;
use crate::error::StoreError;
use crate::journal::{JournalRegions, Region, SUPERBLOCK_RESERVED_BYTES};
use crate::wire::{Reader, Writer};
use std::ops::Range;
use varve_media::Geometry;

const VERSION: u8 = 1;
/// Groups whose metadata lies together (`flex_bg`, mke2fs's default).
const FLEX_GROUPS: u64 = 16;
/// Blocks kept for the directory of an ext4 layout.
pub(super) const DIRECTORY_BLOCKS: u64 = 64;
const CHECKPOINT_BYTES_MIN: u64 = 64 << 10;

/// How files are laid out on an [`ExtentStore`](super::ExtentStore).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentLayout {
    /// Contiguous tables as far to the front as possible, logs in a zone beside the metadata. Log
    /// syncs need one write and one sync of the device.
    #[default]
    FirstFit,
    /// The same, but tables follow each other around the device.
    NextFit,
    /// As a journaling file system does it (ext4, ordered data): its placement, its journal
    /// transactions at every fsync, its scattered metadata writes; the baseline that experiments
    /// compare with.
    Ext4(Ext4Options),
}

/// Sizes of the `ext4` layout; scaled-down experiments divide them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ext4Options {
    /// Bytes of a block group: 128 MiB on ext4 with blocks of 4 KiB.
    pub group_bytes: u64,
    /// Bytes of the journal; `None` is what mke2fs gives a file system of this size.
    pub journal_bytes: Option<u64>,
}

impl Default for Ext4Options {
    fn default() -> Self {
        Ext4Options { group_bytes: 128 << 20, journal_bytes: None }
    }
}

/// What a layout needs to know, from the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayoutGeometry {
    FirstFit,
    NextFit,
    Ext4(Ext4Geometry),
}

impl LayoutGeometry {
    /// The name in lower case.
    pub(super) fn name(&self) -> &'static str {
        match self {
            LayoutGeometry::FirstFit => "first-fit",
            LayoutGeometry::NextFit => "next-fit",
            LayoutGeometry::Ext4(_) => "ext4",
        }
    }
}

/// Where ext4 keeps its metadata, in blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ext4Geometry {
    pub(super) group_blocks: u64,
    pub(super) groups: u64,
    pub(super) inode_table_blocks: u64,
    /// The group descriptors; the metadata of the first flexible group follows.
    pub(super) first_metadata_block: u64,
}

impl Ext4Geometry {
    /// First block of the bitmaps and inode tables of a flexible group, and how many there are.
    fn flexible_metadata(&self, flexible: u64) -> Extent {
        let groups = (self.groups - flexible * FLEX_GROUPS).min(FLEX_GROUPS);
        let start =
            if flexible == 0 { self.first_metadata_block + 1 } else { flexible * FLEX_GROUPS * self.group_blocks };
        let directory = if flexible == 0 { DIRECTORY_BLOCKS } else { 0 };
        Extent { start, blocks: groups * (2 + self.inode_table_blocks) + directory }
    }

    fn metadata_of_group(&self, group: u64) -> (u64, u64, u64) {
        let group = group.min(self.groups - 1);
        let flexible = group / FLEX_GROUPS;
        let (start, index) = (self.flexible_metadata(flexible).start, group % FLEX_GROUPS);
        let groups = (self.groups - flexible * FLEX_GROUPS).min(FLEX_GROUPS);
        (start, index, groups)
    }

    /// The block bitmap that covers a block.
    pub(super) fn block_bitmap(&self, block: u64) -> u64 {
        let (start, index, _) = self.metadata_of_group(block / self.group_blocks);
        start + index
    }

    /// The descriptor of the group of a block: 64 of them in a block of 4 KiB.
    pub(super) fn group_descriptor(&self, _block: u64) -> u64 {
        self.first_metadata_block
    }

    /// Inodes of a group: 16 in a block of 4 KiB.
    fn inodes_of_group(&self) -> u64 {
        self.inode_table_blocks * 16
    }

    /// Inode bitmap and inode table block of an inode.
    pub(super) fn inode_blocks(&self, inode: u64) -> (u64, u64) {
        let group = (inode / self.inodes_of_group()) % self.groups;
        let (start, index, groups) = self.metadata_of_group(group);
        let table = start + 2 * groups + index * self.inode_table_blocks;
        (start + groups + index, table + inode % self.inodes_of_group() / 16)
    }

    /// The directory block that holds an inode's entry: about 64 entries in one.
    pub(super) fn directory_block(&self, inode: u64) -> u64 {
        let metadata = self.flexible_metadata(0);
        metadata.start + metadata.blocks - DIRECTORY_BLOCKS + (inode / 64) % DIRECTORY_BLOCKS
    }

    fn reserved(&self) -> impl Iterator<Item = Extent> {
        (0..self.groups.div_ceil(FLEX_GROUPS)).map(|flexible| self.flexible_metadata(flexible))
    }
}

/// How one device is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreGeometry {
    pub(super) block_bytes: u64,
    pub(super) frame_bytes: u32,
    pub(super) blocks: u64,
    pub(super) log_zone: Range<u64>,
    pub(super) layout: LayoutGeometry,
    pub(super) journal: JournalRegions,
}

/// Journal that mke2fs gives a file system of so many blocks of 4 KiB (`ext2fs_default_journal_size`).
fn mke2fs_journal_blocks(blocks: u64) -> u64 {
    match blocks {
        0..32_768 => 1_024,
        32_768..262_144 => 4_096,
        262_144..524_288 => 8_192,
        524_288..4_194_304 => 16_384,
        4_194_304..8_388_608 => 32_768,
        8_388_608..16_777_216 => 65_536,
        16_777_216..33_554_432 => 131_072,
        _ => 262_144,
    }
}

impl StoreGeometry {
    /// Divides a device.
    pub(super) fn plan(label: &str, device: &Geometry, layout: ExtentLayout) -> Result<StoreGeometry, StoreError> {
        let unit_bytes = device.physical_sector_bytes.max(device.sector_bytes).max(512);
        let block_bytes = u64::from(unit_bytes).max(4096);
        let frame_bytes = device.sector_bytes.max(512);
        let refuse = |reason: String| StoreError::InvalidRequest { store: label.to_owned(), reason };
        let powers = unit_bytes.is_power_of_two() && frame_bytes.is_power_of_two();
        if !powers || unit_bytes > 65536 || frame_bytes > 32768 {
            let reason = format!("sectors of {frame_bytes} bytes, physical ones of {unit_bytes}, are not supported");
            return Err(refuse(reason));
        }
        let blocks = device.capacity_bytes / block_bytes;
        let capacity = blocks * block_bytes;
        if capacity < 1 << 20 {
            return Err(refuse(format!("a device of {capacity} bytes is too small; the least is 1 MiB")));
        }
        let align = |bytes: u64| bytes / (64 << 10) * (64 << 10);
        let checkpoint = align((capacity / 1024).clamp(CHECKPOINT_BYTES_MIN, 64 << 20));
        let regions = |at: u64, log: u64, checkpoint: u64| JournalRegions {
            log: Region { offset_bytes: at, length_bytes: log },
            checkpoints: [0, 1]
                .map(|number| Region { offset_bytes: at + log + number * checkpoint, length_bytes: checkpoint }),
            unit_bytes,
            group_zones: 0,
            groups: 0,
        };
        let simple = |layout| {
            let log = align((capacity / 512).clamp(128 << 10, 32 << 20));
            let journal = regions(SUPERBLOCK_RESERVED_BYTES, log, checkpoint);
            let zone_start = journal.checkpoints[1].end_bytes().div_ceil(block_bytes);
            let zone_blocks = (capacity / 32).min(1 << 30) / block_bytes;
            StoreGeometry {
                block_bytes,
                frame_bytes,
                blocks,
                log_zone: zone_start..zone_start + zone_blocks,
                layout,
                journal,
            }
        };
        match layout {
            ExtentLayout::FirstFit => Ok(simple(LayoutGeometry::FirstFit)),
            ExtentLayout::NextFit => Ok(simple(LayoutGeometry::NextFit)),
            ExtentLayout::Ext4(options) => {
                let group_blocks = (options.group_bytes / block_bytes).max(64);
                let groups = (blocks / group_blocks).max(1);
                let inode_table_blocks = (group_blocks * block_bytes / 16_384 * 256).div_ceil(block_bytes).max(1);
                let first_metadata_block = SUPERBLOCK_RESERVED_BYTES / block_bytes;
                let geometry = Ext4Geometry { group_blocks, groups, inode_table_blocks, first_metadata_block };
                // Journal and checkpoint areas lie together within one flexible group, in the middle of
                // the device or as near to it as they fit.
                let flexible = groups / 2 / FLEX_GROUPS;
                let metadata = geometry.flexible_metadata(flexible);
                let first = metadata.start + metadata.blocks;
                let end = ((flexible + 1) * FLEX_GROUPS * group_blocks).min(blocks);
                let space = end.saturating_sub(first) * block_bytes;
                let journal_bytes =
                    options.journal_bytes.unwrap_or_else(|| mke2fs_journal_blocks(capacity / 4096) * 4096);
                let log = align(journal_bytes.min(capacity / 8).min(space / 2).max(128 << 10));
                let checkpoint = checkpoint.min(align(space / 8).max(CHECKPOINT_BYTES_MIN));
                let last = end.saturating_sub((log + 2 * checkpoint).div_ceil(block_bytes)).max(first);
                let journal = regions((blocks / 2).clamp(first, last) * block_bytes, log, checkpoint);
                let layout = LayoutGeometry::Ext4(geometry);
                let planned = StoreGeometry { block_bytes, frame_bytes, blocks, log_zone: 0..0, layout, journal };
                planned.free_extents().map(|_| planned).ok_or_else(|| {
                    refuse(format!(
                        "a device of {capacity} bytes has no space for groups of {} bytes",
                        options.group_bytes
                    ))
                })
            }
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (code, group_blocks, inode_table_blocks) = match &self.layout {
            LayoutGeometry::FirstFit => (0, 0, 0),
            LayoutGeometry::NextFit => (1, 0, 0),
            LayoutGeometry::Ext4(geometry) => (2, geometry.group_blocks, geometry.inode_table_blocks),
        };
        let mut writer = Writer::default();
        writer.u8(VERSION);
        writer.u8(code);
        writer.u16(self.frame_bytes as u16);
        writer.u32(self.block_bytes as u32);
        writer.u64(self.blocks);
        writer.u64(self.log_zone.start);
        writer.u64(self.log_zone.end - self.log_zone.start);
        writer.u64(group_blocks);
        writer.u64(inode_table_blocks);
        writer.into_vec()
    }

    /// Judges parameters; anything may come. The error says what is wrong.
    pub(super) fn decode(
        parameters: &[u8],
        journal: &JournalRegions,
        capacity_bytes: u64,
    ) -> Result<StoreGeometry, String> {
        let mut reader = Reader::new(parameters);
        let mut fields = || {
            let (version, code, frame_bytes) = (reader.u8()?, reader.u8()?, u32::from(reader.u16()?));
            let (block_bytes, blocks) = (u64::from(reader.u32()?), reader.u64()?);
            let (zone_start, zone_blocks) = (reader.u64()?, reader.u64()?);
            let (group_blocks, inode_table_blocks) = (reader.u64()?, reader.u64()?);
            Some((
                version,
                code,
                frame_bytes,
                block_bytes,
                blocks,
                zone_start,
                zone_blocks,
                group_blocks,
                inode_table_blocks,
            ))
        };
        let (
            version,
            code,
            frame_bytes,
            block_bytes,
            blocks,
            zone_start,
            zone_blocks,
            group_blocks,
            inode_table_blocks,
        ) = fields().ok_or_else(|| format!("{} bytes of parameters", parameters.len()))?;
        if version != VERSION || reader.remaining() != 0 {
            return Err(format!("parameters of version {version}, {} bytes", parameters.len()));
        }
        if !frame_bytes.is_power_of_two() || frame_bytes < 512 || frame_bytes > journal.unit_bytes {
            return Err(format!("frames of {frame_bytes} bytes"));
        }
        let unit = u64::from(journal.unit_bytes);
        let fits = blocks.checked_mul(block_bytes).is_some_and(|bytes| bytes <= capacity_bytes);
        if !block_bytes.is_power_of_two() || block_bytes > 65536 || block_bytes < unit || !fits {
            return Err(format!("{blocks} blocks of {block_bytes} bytes"));
        }
        let zone_end = zone_start.checked_add(zone_blocks).filter(|&end| end <= blocks);
        let log_zone =
            zone_start..zone_end.ok_or_else(|| format!("a log zone of {zone_blocks} blocks at {zone_start}"))?;
        let layout = match code {
            0 => LayoutGeometry::FirstFit,
            1 => LayoutGeometry::NextFit,
            2 if group_blocks >= 64 && inode_table_blocks >= 1 && inode_table_blocks < group_blocks => {
                let first_metadata_block = SUPERBLOCK_RESERVED_BYTES / block_bytes;
                let groups = (blocks / group_blocks).max(1);
                LayoutGeometry::Ext4(Ext4Geometry { group_blocks, groups, inode_table_blocks, first_metadata_block })
            }
            _ => return Err(format!("layout {code} with groups of {group_blocks} blocks")),
        };
        let geometry = StoreGeometry { block_bytes, frame_bytes, blocks, log_zone, layout, journal: *journal };
        geometry.free_extents().map(|_| geometry).ok_or_else(|| "regions that overlap".to_owned())
    }

    /// Blocks that files may have, in order, when there are no files; `None` when the reserved regions
    /// overlap or leave the device.
    pub(super) fn free_extents(&self) -> Option<Vec<Extent>> {
        let mut reserved = vec![Extent { start: 0, blocks: SUPERBLOCK_RESERVED_BYTES / self.block_bytes }];
        for region in [self.journal.log, self.journal.checkpoints[0], self.journal.checkpoints[1]] {
            let start = region.offset_bytes / self.block_bytes;
            reserved.push(Extent { start, blocks: region.end_bytes().div_ceil(self.block_bytes) - start });
        }
        if let LayoutGeometry::Ext4(geometry) = &self.layout {
            reserved.push(Extent { start: geometry.first_metadata_block, blocks: 1 });
            reserved.extend(geometry.reserved());
        }
        reserved.sort_by_key(|extent| extent.start);
        let mut free = Vec::new();
        let mut at = 0;
        for extent in reserved {
            if extent.start < at {
                return None;
            }
            if extent.start > at {
                free.push(Extent { start: at, blocks: extent.start - at });
            }
            at = extent.start.checked_add(extent.blocks)?;
        }
        if at > self.blocks {
            return None;
        }
        if at < self.blocks {
            free.push(Extent { start: at, blocks: self.blocks - at });
        }
        Some(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(capacity_bytes: u64, physical_sector_bytes: u32) -> Geometry {
        Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes }
    }

    #[test]
    fn every_size_and_layout_plans_and_comes_back() {
        let small = Ext4Options { group_bytes: 2 << 20, journal_bytes: Some(256 << 10) };
        let layouts = [
            ExtentLayout::FirstFit,
            ExtentLayout::NextFit,
            ExtentLayout::Ext4(small),
            ExtentLayout::Ext4(Ext4Options::default()),
        ];
        for capacity in [4 << 20, 64 << 20, (1 << 30) + 12345, 500 << 30, 8 << 40] {
            for physical in [512, 4096] {
                for layout in layouts {
                    let device = device(capacity, physical);
                    let planned = match StoreGeometry::plan("test", &device, layout) {
                        Ok(planned) => planned,
                        Err(error) => {
                            assert!(capacity < 64 << 20, "{layout:?} on {capacity}: {error}");
                            continue;
                        }
                    };
                    let free: u64 = planned.free_extents().unwrap().iter().map(|extent| extent.blocks).sum();
                    assert!(
                        capacity < 64 << 20 || free * planned.block_bytes >= capacity / 2,
                        "{layout:?} on {capacity}: {free} blocks free"
                    );
                    let decoded = StoreGeometry::decode(&planned.encode(), &planned.journal, capacity);
                    assert_eq!(decoded.as_ref(), Ok(&planned));
                }
            }
        }
        assert!(StoreGeometry::plan("test", &device(1 << 19, 512), ExtentLayout::FirstFit).is_err());
    }

    #[test]
    fn ext4_metadata_blocks_are_reserved() {
        let planned =
            StoreGeometry::plan("test", &device(8 << 30, 4096), ExtentLayout::Ext4(Ext4Options::default())).unwrap();
        let LayoutGeometry::Ext4(geometry) = &planned.layout else { panic!() };
        assert_eq!((geometry.groups, geometry.inode_table_blocks), (64, 512));
        let free = planned.free_extents().unwrap();
        let is_free =
            |block: u64| free.iter().any(|extent| (extent.start..extent.start + extent.blocks).contains(&block));
        for block in (0..planned.blocks).step_by(9_999) {
            assert!(!is_free(geometry.block_bitmap(block)) && !is_free(geometry.group_descriptor(block)));
        }
        for inode in (0..600_000).step_by(777) {
            let (bitmap, table) = geometry.inode_blocks(inode);
            assert!(!is_free(bitmap) && !is_free(table) && !is_free(geometry.directory_block(inode)), "inode {inode}");
        }
        // The journal lies in the middle.
        let middle = planned.journal.log.offset_bytes;
        assert!((3 << 30..5 << 30).contains(&middle), "{middle}");
    }

    #[test]
    fn damaged_parameters_are_refused_not_believed() {
        let planned = StoreGeometry::plan("test", &device(64 << 20, 4096), ExtentLayout::FirstFit).unwrap();
        let good = planned.encode();
        for length in 0..good.len() {
            assert!(StoreGeometry::decode(&good[..length], &planned.journal, 64 << 20).is_err());
        }
        for index in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[index] ^= 1 << bit;
                // Refused, or a division that is consistent by itself.
                let _ = StoreGeometry::decode(&bad, &planned.journal, 64 << 20);
            }
        }
    }
}
