//! How an interlaced disk is divided, and the parameters that say so in the superblock.
//!
//! The first tracks are the *zone*: only its tops are written (but for what [says](super::presence) what the disk is, which
//! is written before they count), and it ends with a bottom, so writing it endangers nothing. The tops of the zone, one after the other: the journal of the S2TMap, the store
//! of the small files, and the *places* of the backup region, each an intent and a track for every copy.
//! All tracks behind the zone are for tables.
//!
//! Parameters, little-endian (the journal's superblock, at the start of track 1, keeps them):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version, 2 |
//! | 1 | 1 | allocation: 0 sequential, 1 three-phase, 2 zigzag, 3 region, 4 compaction-aware, 5 cost-aware, 23 to 26 cost-aware without a term |
//! | 2 | 1 | rewrite: 0 naive, 1 merged |
//! | 3 | 1 | places of the backup region |
//! | 4 | 4 | tracks of the device |
//! | 8 | 8 | bytes of a bottom track |
//! | 16 | 8 | bytes of a top track |
//! | 24 | 4 | tracks of the zone |
//! | 28 | 4 | first top of the backup region, counted among the tops |
//! | 32 | 4 | tops for the intent of a place |
//! | 36 | 4 | tops for the copies of a place |
//! | 40 | 8 | first byte of the store of small files, counted in the tops |
//! | 48 | 8 | its bytes |
//! | 56 | 8 | bytes of the largest table expected |
//! | 64 | 1 | flags: bit 0, the disk is conventional; bit 1, the small files are on the device of logs; bit 2, the S2TMap is |
//! | 65 | 8 | bytes of the device of logs; 0 when there is none |
//!
//! A conventional disk is divided in the same way, but the store's own lies at its start without gaps, and
//! its superblock at offset 0. Where small files or the S2TMap lie on a device of their own (see
//! [`beside`](super::beside)), the disk keeps no space for them: the journal on it then holds nothing but the
//! superblocks, which name the pair.
//!
//! Version 1 has no flags: an interlaced disk with everything on it.

use super::ImrFormatOptions;
use super::allocation::AllocationName;
use super::devices::{ImrPlace, ImrPlacement};
use super::intent::intent_bytes;
use super::rewrite::RewriteName;
use super::view::top_track;
use crate::error::StoreError;
use crate::journal::{JournalRegions, Region, SUPERBLOCK_RESERVED_BYTES};
use crate::wire::{Reader, Writer};
use std::ops::Range;
use varve_media::{Geometry, TrackGeometry, TrackId};

const VERSION: u8 = 2;
const FLAG_CONVENTIONAL: u8 = 1;
const FLAG_SMALL_FILES_BESIDE: u8 = 2;
const FLAG_MAP_BESIDE: u8 = 4;
/// What a table adds to a checkpoint at most, per track, with names of usual length.
const CHECKPOINT_BYTES_PER_TRACK: u64 = 68;
pub(super) const ALIGNMENT_BYTES: u64 = 64 << 10;
/// Tables have at least so many tracks.
const USABLE_TRACKS_MIN: u32 = 4;

/// A journal that holds nothing but its superblocks.
pub(super) fn anchor_regions(unit_bytes: u32) -> JournalRegions {
    let at = |number: u64| Region {
        offset_bytes: SUPERBLOCK_RESERVED_BYTES + number * u64::from(unit_bytes),
        length_bytes: u64::from(unit_bytes),
    };
    JournalRegions { log: at(0), checkpoints: [at(1), at(2)], unit_bytes, group_zones: 0, groups: 0 }
}

/// Bytes that log and checkpoint of the S2TMap of a disk need.
pub(super) fn map_bytes(tracks: &TrackGeometry) -> (u64, u64) {
    let log = (tracks.capacity_bytes() / 1024).clamp(128 << 10, 16 << 20).next_multiple_of(ALIGNMENT_BYTES);
    let checkpoint = u64::from(tracks.track_count) * CHECKPOINT_BYTES_PER_TRACK + ALIGNMENT_BYTES;
    (log, checkpoint.next_multiple_of(ALIGNMENT_BYTES))
}

/// Where the S2TMap lies, behind superblocks.
pub(super) fn map_regions(tracks: &TrackGeometry, unit_bytes: u32) -> JournalRegions {
    let (at, (log, checkpoint)) = (SUPERBLOCK_RESERVED_BYTES, map_bytes(tracks));
    JournalRegions {
        log: Region { offset_bytes: at, length_bytes: log },
        checkpoints: [0, 1]
            .map(|number| Region { offset_bytes: at + log + number * checkpoint, length_bytes: checkpoint }),
        unit_bytes,
        group_zones: 0,
        groups: 0,
    }
}

/// Bytes for small files when nobody says how many.
pub(super) fn small_files_bytes(tracks: &TrackGeometry) -> u64 {
    (tracks.capacity_bytes() / 32).clamp(4 << 20, 2 << 30)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreGeometry {
    pub(super) placement: ImrPlacement,
    /// Of the device of logs; 0 when there is none.
    pub(super) logs_bytes: u64,
    pub(super) tracks: TrackGeometry,
    pub(super) zone_tracks: u32,
    pub(super) allocation: AllocationName,
    pub(super) rewrite: RewriteName,
    pub(super) places: u8,
    first_backup_top: u32,
    intent_tops: u32,
    copy_tops: u32,
    /// In the tops as one device.
    pub(super) small_files: Region,
    pub(super) table_bytes_max: u64,
    pub(super) journal: JournalRegions,
}

impl StoreGeometry {
    pub(super) fn plan(
        label: &str,
        device: &Geometry,
        tracks: &TrackGeometry,
        options: &ImrFormatOptions,
        placement: ImrPlacement,
    ) -> Result<StoreGeometry, StoreError> {
        let refuse = |reason: String| StoreError::InvalidRequest { store: label.to_owned(), reason };
        let unit_bytes = device.physical_sector_bytes.max(device.sector_bytes).max(512);
        let unit = u64::from(unit_bytes);
        let (bottom, top) = (tracks.bottom_track_bytes, tracks.top_track_bytes);
        if !unit_bytes.is_power_of_two() || unit_bytes > 65536 {
            return Err(refuse(format!("physical sectors of {unit_bytes} bytes are not supported")));
        }
        if [bottom, top].iter().any(|&bytes| bytes < unit || !bytes.is_multiple_of(unit)) {
            let reason = format!("tracks of {bottom} and {top} bytes are not whole sectors of {unit}");
            return Err(refuse(reason));
        }
        if options.persists_max == 0 {
            return Err(refuse("at least one rewrite must be possible at once".to_owned()));
        }
        let (capacity, count) = (tracks.capacity_bytes(), u64::from(tracks.track_count));
        let table_bytes_max = match options.table_bytes_max {
            Some(bytes) => bytes.max(1),
            None => (capacity / 256).clamp(bottom, (96 << 20).max(bottom)),
        };
        let journal = match placement.map {
            ImrPlace::Inside => map_regions(tracks, unit_bytes),
            ImrPlace::Beside => anchor_regions(unit_bytes),
        };
        let small = match placement.logs {
            ImrPlace::Inside => options.small_files_bytes.unwrap_or_else(|| small_files_bytes(tracks)),
            ImrPlace::Beside => 0,
        };
        let too_large = || refuse(format!("{small} bytes for small files are more than the {capacity} of the disk"));
        let small_files = Region {
            offset_bytes: journal.checkpoints[1].end_bytes().next_multiple_of(top),
            length_bytes: small.min(capacity).checked_next_multiple_of(top).ok_or_else(too_large)?,
        };
        // All the bottoms of a table with two tops beside each.
        let copy_tops = table_bytes_max.div_ceil(bottom).saturating_mul(2).min(u64::from(tracks.track_count));
        let intent_tops = (intent_bytes(copy_tops as usize) as u64).div_ceil(top);
        let first_backup_top = small_files.end_bytes() / top;
        let zone_tops = first_backup_top + u64::from(options.persists_max) * (intent_tops + copy_tops);
        let zone_tracks = 2 * zone_tops + 1;
        if zone_tracks + u64::from(USABLE_TRACKS_MIN) > count {
            return Err(refuse(format!(
                "a disk of {count} tracks is too small: {zone_tracks} would be the store's own; give smaller sizes for \
                 small files and tables"
            )));
        }
        Ok(StoreGeometry {
            placement,
            logs_bytes: 0,
            tracks: tracks.clone(),
            zone_tracks: zone_tracks as u32,
            allocation: options.allocation,
            rewrite: options.rewrite,
            places: options.persists_max,
            first_backup_top: first_backup_top as u32,
            intent_tops: intent_tops as u32,
            copy_tops: copy_tops as u32,
            small_files,
            table_bytes_max,
            journal,
        })
    }

    /// Tracks for tables, by number.
    pub(super) fn usable(&self) -> Range<u32> {
        self.zone_tracks..self.tracks.track_count
    }

    /// Bytes of all of them.
    pub(super) fn usable_bytes(&self) -> u64 {
        let Range { start, end } = self.usable();
        self.tracks.start_bytes(TrackId(end)).saturating_sub(self.tracks.start_bytes(TrackId(start)))
    }

    /// Tops that can be saved at once.
    pub(super) fn copies_max(&self) -> usize {
        self.copy_tops as usize
    }

    fn place_top(&self, place: usize) -> u64 {
        u64::from(self.first_backup_top) + place as u64 * u64::from(self.intent_tops + self.copy_tops)
    }

    /// Where the intent of a place lies, in the tops as one device.
    pub(super) fn intent_region(&self, place: usize) -> Region {
        let top = self.tracks.top_track_bytes;
        Region { offset_bytes: self.place_top(place) * top, length_bytes: u64::from(self.intent_tops) * top }
    }

    /// Where a top of the store's own begins, in bytes of the disk.
    pub(super) fn own_offset(&self, number: u64) -> u64 {
        match self.tracks.interlaced {
            true => self.tracks.start_bytes(top_track(number)),
            false => number.saturating_mul(self.tracks.top_track_bytes),
        }
    }

    /// The backup region among the store's own.
    pub(super) fn backup_bytes(&self) -> Range<u64> {
        let top = self.tracks.top_track_bytes;
        u64::from(self.first_backup_top) * top..u64::from(self.zone_tracks / 2) * top
    }

    /// Where a copy lies, in bytes of the disk.
    pub(super) fn copy_offset(&self, place: usize, index: usize) -> u64 {
        self.own_offset(self.place_top(place) + u64::from(self.intent_tops) + index as u64)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let rewrite = match self.rewrite {
            RewriteName::Naive => 0,
            RewriteName::Merged => 1,
        };
        let mut writer = Writer::default();
        writer.u8(VERSION);
        writer.u8(self.allocation.number());
        writer.u8(rewrite);
        writer.u8(self.places);
        writer.u32(self.tracks.track_count);
        writer.u64(self.tracks.bottom_track_bytes);
        writer.u64(self.tracks.top_track_bytes);
        writer.u32(self.zone_tracks);
        writer.u32(self.first_backup_top);
        writer.u32(self.intent_tops);
        writer.u32(self.copy_tops);
        writer.u64(self.small_files.offset_bytes);
        writer.u64(self.small_files.length_bytes);
        writer.u64(self.table_bytes_max);
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        writer.u8(flag(FLAG_CONVENTIONAL, !self.tracks.interlaced)
            | flag(FLAG_SMALL_FILES_BESIDE, self.placement.logs == ImrPlace::Beside)
            | flag(FLAG_MAP_BESIDE, self.placement.map == ImrPlace::Beside));
        writer.u64(self.logs_bytes);
        writer.into_vec()
    }

    /// The parameters of a superblock whose journal lies in `journal`; anything may come. The error says
    /// what was found.
    pub(super) fn decode(bytes: &[u8], journal: &JournalRegions) -> Result<StoreGeometry, String> {
        let mut reader = Reader::new(bytes);
        let mut parse = || {
            let (version, allocation, rewrite, places) = (reader.u8()?, reader.u8()?, reader.u8()?, reader.u8()?);
            let allocation = AllocationName::of_number(allocation)?;
            let rewrite = match rewrite {
                0 => RewriteName::Naive,
                1 => RewriteName::Merged,
                _ => return None,
            };
            let track_count = reader.u32()?;
            let (bottom_track_bytes, top_track_bytes) = (reader.u64()?, reader.u64()?);
            let mut geometry = StoreGeometry {
                placement: ImrPlacement { logs: ImrPlace::Inside, map: ImrPlace::Inside },
                logs_bytes: 0,
                tracks: TrackGeometry { track_count, top_track_bytes, bottom_track_bytes, interlaced: true },
                allocation,
                rewrite,
                places,
                zone_tracks: reader.u32()?,
                first_backup_top: reader.u32()?,
                intent_tops: reader.u32()?,
                copy_tops: reader.u32()?,
                small_files: Region { offset_bytes: reader.u64()?, length_bytes: reader.u64()? },
                table_bytes_max: reader.u64()?,
                journal: *journal,
            };
            let flags = if version == 1 { 0 } else { reader.u8()? };
            let place = |flag: u8| if flags & flag == 0 { ImrPlace::Inside } else { ImrPlace::Beside };
            geometry.placement = ImrPlacement { logs: place(FLAG_SMALL_FILES_BESIDE), map: place(FLAG_MAP_BESIDE) };
            geometry.logs_bytes = if version == 1 { 0 } else { reader.u64()? };
            geometry.tracks.interlaced = flags & FLAG_CONVENTIONAL == 0;
            let known = flags & !(FLAG_CONVENTIONAL | FLAG_SMALL_FILES_BESIDE | FLAG_MAP_BESIDE) == 0;
            ((1..=VERSION).contains(&version) && known && reader.remaining() == 0).then_some(geometry)
        };
        let geometry = parse().ok_or_else(|| format!("{} bytes of something else", bytes.len()))?;
        match geometry.is_sound() {
            true => Ok(geometry),
            false => Err(format!("regions that cannot be: {geometry:?}")),
        }
    }

    fn is_sound(&self) -> bool {
        let unit = u64::from(self.journal.unit_bytes).max(1);
        let (bottom, top) = (self.tracks.bottom_track_bytes, self.tracks.top_track_bytes);
        let sizes = [bottom, top].iter().all(|&bytes| bytes >= unit && bytes.is_multiple_of(unit) && bytes < 1 << 40);
        let journal_end = self.journal.log.end_bytes().max(self.journal.checkpoints[0].end_bytes());
        let journal_end = journal_end.max(self.journal.checkpoints[1].end_bytes());
        let zone_tops = u128::from(self.first_backup_top)
            + u128::from(self.places) * (u128::from(self.intent_tops) + u128::from(self.copy_tops));
        let is_beside = self.placement.logs == ImrPlace::Beside;
        sizes
            && self.places > 0
            && is_beside == (self.small_files.length_bytes == 0)
            && (is_beside || self.placement.map == ImrPlace::Inside)
            && self.copy_tops >= 2
            && self.zone_tracks % 2 == 1
            && u64::from(self.zone_tracks) + u64::from(USABLE_TRACKS_MIN) <= u64::from(self.tracks.track_count)
            && zone_tops * 2 + 1 == u128::from(self.zone_tracks)
            && self.small_files.offset_bytes >= journal_end
            && self.small_files.offset_bytes.is_multiple_of(top)
            && self.small_files.length_bytes.is_multiple_of(top)
            && self.small_files.end_bytes() / top == u64::from(self.first_backup_top)
            && intent_bytes(self.copies_max()) as u64 <= u64::from(self.intent_tops).saturating_mul(top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: ImrPlacement = ImrPlacement { logs: ImrPlace::Inside, map: ImrPlace::Inside };

    fn options() -> ImrFormatOptions {
        ImrFormatOptions {
            allocation: AllocationName::CompactionAware,
            table_bytes_max: Some(256 << 10),
            small_files_bytes: Some(4 << 20),
            ..ImrFormatOptions::default()
        }
    }

    fn plan(capacity_bytes: u64, track_bytes: u64, options: &ImrFormatOptions) -> Result<StoreGeometry, StoreError> {
        let device = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 };
        let tracks = TrackGeometry::fit(capacity_bytes, track_bytes, track_bytes).unwrap();
        StoreGeometry::plan("disk", &device, &tracks, options, INSIDE)
    }

    #[test]
    fn parameters_come_back_and_their_bytes_do_not_change() {
        let geometry = plan(32 << 20, 8 << 10, &options()).unwrap();
        let bytes = geometry.encode();
        assert_eq!(StoreGeometry::decode(&bytes, &geometry.journal), Ok(geometry.clone()));
        assert_eq!((bytes.len(), crc32c::crc32c(&bytes)), (73, GOLDEN));
        // Version 1 ends before the flags.
        let mut first = bytes[..64].to_vec();
        first[0] = 1;
        assert_eq!(StoreGeometry::decode(&first, &geometry.journal), Ok(geometry.clone()));
        for length in 0..bytes.len() {
            assert!(StoreGeometry::decode(&bytes[..length], &geometry.journal).is_err());
        }
        for at in [0, 1, 2, 3, 14, 22, 24, 27, 28, 32, 36, 40, 47, 48, 64] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0xf8;
            assert!(StoreGeometry::decode(&wrong, &geometry.journal).is_err(), "byte {at}");
        }
    }

    const GOLDEN: u32 = 0x2dfd_198b;

    #[test]
    fn the_zone_ends_with_a_bottom_and_its_parts_do_not_overlap() {
        for (capacity, track) in [(32 << 20, 8 << 10), (100_000_000_000, 2 << 20), (512 << 20, 64 << 10)] {
            let geometry = plan(capacity, track, &ImrFormatOptions { ..options() }).unwrap();
            assert_eq!(geometry.zone_tracks % 2, 1);
            let end = geometry.tracks.start_bytes(TrackId(geometry.zone_tracks));
            let mut last = geometry.tracks.start_bytes(top_track(geometry.small_files.end_bytes() / track - 1));
            for place in 0..2 {
                let intent = geometry.intent_region(place);
                let at = geometry.tracks.start_bytes(top_track(intent.offset_bytes / track));
                assert!(at > last);
                assert!(geometry.copy_offset(place, 0) >= at + intent.length_bytes);
                last = geometry.copy_offset(place, geometry.copies_max() - 1);
            }
            assert!(last + track + track == end, "the last copy is followed by the last bottom");
        }
    }

    #[test]
    fn what_lies_beside_takes_no_room_on_the_disk() {
        let device = Geometry { capacity_bytes: 32 << 20, sector_bytes: 512, physical_sector_bytes: 4096 };
        let tracks = TrackGeometry::fit(32 << 20, 8 << 10, 8 << 10).unwrap();
        let zone = |logs, map| {
            let placement = ImrPlacement { logs, map };
            let planned = StoreGeometry::plan("disk", &device, &tracks, &options(), placement).unwrap();
            assert_eq!(StoreGeometry::decode(&planned.encode(), &planned.journal), Ok(planned.clone()));
            planned.zone_tracks
        };
        let inside = zone(ImrPlace::Inside, ImrPlace::Inside);
        let map_inside = zone(ImrPlace::Beside, ImrPlace::Inside);
        let beside = zone(ImrPlace::Beside, ImrPlace::Beside);
        assert!(u64::from(inside - map_inside) * (8 << 10) == 2 * (4 << 20) && beside < map_inside);
        let conventional = tracks.clone().conventional();
        let planned = StoreGeometry::plan("disk", &device, &conventional, &options(), INSIDE).unwrap();
        assert_eq!(StoreGeometry::decode(&planned.encode(), &planned.journal), Ok(planned.clone()));
        assert_eq!((planned.zone_tracks, planned.own_offset(3)), (inside, 24 << 10));
    }

    #[test]
    fn disks_that_are_too_small_are_refused_with_numbers() {
        let error = plan(8 << 20, 8 << 10, &options()).unwrap_err();
        assert!(error.to_string().contains("1024 tracks is too small"), "{error}");
        let none = ImrFormatOptions { persists_max: 0, ..options() };
        assert!(plan(32 << 20, 8 << 10, &none).is_err());
        let much = ImrFormatOptions { small_files_bytes: Some(u64::MAX), ..options() };
        assert!(plan(32 << 20, 8 << 10, &much).is_err());
        assert!(plan(32 << 20, 8192 + 512, &options()).is_err());
    }
}
