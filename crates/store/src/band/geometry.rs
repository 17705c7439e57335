//! How a zoned device is divided, and the parameters that say so in the superblock.
//!
//! Parameters of a `band` store, little-endian (the journal's superblock keeps them):
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version: 1 where a table has the size of a band, 2 where it has that of several, 3 of one of several devices |
//! | 1 | 1 | zero |
//! | 2 | 2 | outputs of compactions for which bands are kept, as many as a table has |
//! | 4 | 4 | number of the first band: that of its zone |
//! | 8 | 4 | bands |
//! | 12 | 4 | bytes of a unit: the device's physical sector |
//! | 16 | 8 | bytes from the start of a band to that of the next |
//! | 24 | 8 | writable bytes of a band |
//! | 32 | 4 | of versions 2 and 3: bands of a table of the size that trees are to make, in version 2 two or more |
//! | 36 | 4 | of version 3: bands kept for manifests, pointers and copies; of others as many as a table has |
//!
//! A device among several may keep nothing: what has no place on it goes to another.
//!
//! The random-access region is the conventional zones at the start of the device: superblocks, log of changes, two
//! checkpoint areas. On a device without such zones the band table lies in the [first ones](crate::journal), in groups of them, which
//! are written in order. A band is a zone behind them; it has the number of its zone.

use crate::error::StoreError;
use crate::journal::{self, JournalRegions, REGION_BYTES_MIN, Region, SUPERBLOCK_RESERVED_BYTES};
use crate::wire::{Reader, Writer};
use std::ops::Range;
use varve_media::{Geometry, ZoneGeometry, ZoneId};

/// A table has the size of a band.
const VERSION_ONE_BAND: u8 = 1;
/// A table has the size of several bands. Those who know version 1 only would make tables of another size.
const VERSION_SEVERAL_BANDS: u8 = 2;
/// One of several devices.
const VERSION_AMONG_SEVERAL: u8 = 3;
const LOG_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a checkpoint for each band: a file with a name of usual length, and what is said of the band itself.
const CHECKPOINT_BYTES_OF_BAND: u64 = 256;
/// Tables of a band for which there is space in a checkpoint, at most.
const TABLES_OF_BAND_MAX: u64 = 64;
/// Fewer bands beside the reserve cannot hold logs, what is kept for logs, a table, and what a compaction makes of it.
fn bands_min(table_bands: u32, reserve: Reserve) -> u64 {
    match reserve.log_bands {
        None => 1 + 3 * u64::from(table_bands),
        // The others take what does not fit.
        Some(log_bands) => 2 + u64::from(log_bands),
    }
}

/// Zones that must be allowed to be active beside those of the band table, alone: one for logs, one for a flush, one for a
/// compaction.
pub(super) const ACTIVE_ALONE: u32 = 3;
/// On a device among several: one for logs, one for tables, whose writers wait for each other.
pub(super) const ACTIVE_AMONG_SEVERAL: u32 = 2;

/// Zones that must be allowed to be active beside those of the band table.
pub(super) fn active_zones_min(reserve: Reserve) -> u32 {
    match reserve.log_bands {
        None => ACTIVE_ALONE,
        Some(_) => ACTIVE_AMONG_SEVERAL,
    }
}

/// What is kept of the last bands, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserve {
    /// Outputs of compactions for which bands are kept.
    pub(crate) compaction_tables: u16,
    /// Bands kept for manifests, pointers and copies, on a device among several; else as many as a table has.
    pub(crate) log_bands: Option<u32>,
}

/// How one device is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoreGeometry {
    /// Bytes from the start of a band to that of the next.
    pub(super) zone_bytes: u64,
    /// Writable bytes of a band, a multiple of the unit.
    pub(super) band_bytes: u64,
    /// Zone of the first band.
    pub(super) first_band: u32,
    pub(super) band_count: u32,
    /// Bytes that are written whole or not at all.
    pub(super) unit_bytes: u32,
    pub(super) reserve: Reserve,
    /// Bands of a table of the size that trees are to make.
    pub(super) table_bands: u32,
    pub(super) journal: JournalRegions,
}

impl StoreGeometry {
    /// Divides a device.
    pub(super) fn plan(
        label: &str,
        device: &Geometry,
        zones: &ZoneGeometry,
        reserve: Reserve,
        table_bytes: Option<u64>,
    ) -> Result<StoreGeometry, StoreError> {
        let refuse = |reason: String| StoreError::InvalidRequest { store: label.to_owned(), reason };
        let unit_bytes = device.physical_sector_bytes.max(device.sector_bytes).max(512);
        if !unit_bytes.is_power_of_two() || unit_bytes > 65536 {
            return Err(refuse(format!("physical sectors of {unit_bytes} bytes are not supported")));
        }
        let unit = u64::from(unit_bytes);
        let reserve_tables = reserve.compaction_tables;
        if reserve_tables == 0 && reserve.log_bands.is_none() {
            return Err(refuse(
                "without a band in reserve a full device cannot be compacted, and what is removed gives nothing back; \
                 choose a reserve of 1 or more"
                    .to_owned(),
            ));
        }
        let band_bytes = zones.zone_capacity_bytes.min(zones.zone_bytes) / unit * unit;
        let in_zones = journal::lies_in_zones(zones);
        if in_zones && zones.track_overlap.is_some() {
            // The last track of a zone reaches into the next one, which may be another group of the journal.
            let reason = "the tracks of the device overlap and it has no conventional zone for the band table; use one that \
                          has (an emulated one: conventional=SIZE)";
            return Err(refuse(reason.to_owned()));
        }
        // Where a band has space for several tables, on a device on which they may share it, each has a record.
        let shares = reserve.log_bands.is_some();
        let tables_of_band = table_bytes.filter(|_| shares).map_or(1, |bytes| band_bytes.div_ceil(bytes.max(1)));
        let tables_of_band = tables_of_band.clamp(1, TABLES_OF_BAND_MAX);
        let wanted = REGION_BYTES_MIN + u64::from(zones.sequential_zones()) * CHECKPOINT_BYTES_OF_BAND * tables_of_band;
        let checkpoint = wanted.next_multiple_of(REGION_BYTES_MIN);
        let group_zones = match in_zones {
            true => journal::group_zones(zones, unit_bytes, checkpoint).ok_or_else(|| {
                refuse(format!(
                    "zones of {band_bytes} bytes are too small for a table of {} bands; choose larger ones",
                    zones.sequential_zones()
                ))
            })?,
            false => 0,
        };
        let table_bands = table_bytes.unwrap_or(0).div_ceil(band_bytes.max(1)).max(1).min(u64::from(u32::MAX)) as u32;
        let reserve_bands = u64::from(reserve_tables) * u64::from(table_bands);
        let bands_needed = reserve_bands + bands_min(table_bands, reserve);
        let bands_behind = |groups: u8| {
            let first_band = zones.conventional_zones.saturating_add(u32::from(groups) * group_zones);
            (first_band, zones.zone_count.saturating_sub(first_band))
        };
        // Two copies where the device has space for them, and allows as many active zones.
        let groups = match in_zones {
            true if u64::from(bands_behind(journal::MIRRORED_GROUPS).1) < bands_needed => journal::SINGLE_GROUPS,
            true => journal::groups(zones, active_zones_min(reserve)),
            false => 0,
        };
        let (first_band, band_count) = bands_behind(groups);
        if band_bytes < u64::from(unit_bytes.max(4096)) {
            return Err(refuse(format!("bands of {band_bytes} bytes are too small; choose larger ones")));
        }
        if bands_needed > u64::from(band_count) {
            let of_table = if table_bands > 1 { format!(", and {table_bands} to a table,") } else { String::new() };
            let smaller = if table_bands > 1 { "smaller tables" } else { "smaller bands" };
            return Err(refuse(format!(
                "{band_count} bands with {reserve_bands} of them reserved{of_table} are too few; choose {smaller}, a larger \
                 device or a smaller reserve: {} bands beside the reserve are the least",
                bands_min(table_bands, reserve)
            )));
        }
        let planned = |journal: JournalRegions| StoreGeometry {
            zone_bytes: zones.zone_bytes,
            band_bytes,
            first_band,
            band_count,
            unit_bytes,
            reserve,
            table_bands,
            journal,
        };
        if in_zones {
            // Where the regions of a generation lie is decided when it is written.
            return Ok(planned(JournalRegions { unit_bytes, group_zones, groups, ..JournalRegions::default() }));
        }
        let random_access_bytes = zones.start_bytes(ZoneId(zones.conventional_zones));
        let align = |bytes: u64| bytes / REGION_BYTES_MIN * REGION_BYTES_MIN;
        let space = align(random_access_bytes.saturating_sub(SUPERBLOCK_RESERVED_BYTES));
        let log = align((checkpoint * 2).min(LOG_BYTES_MAX)).min(space.saturating_sub(2 * checkpoint));
        if log < REGION_BYTES_MIN {
            return Err(refuse(format!(
                "conventional zones of {random_access_bytes} bytes have no space for a table of {band_count} bands; {} \
                 bytes are the least",
                SUPERBLOCK_RESERVED_BYTES + 2 * checkpoint + REGION_BYTES_MIN
            )));
        }
        let at = SUPERBLOCK_RESERVED_BYTES;
        let region = |offset_bytes, length_bytes| Region { offset_bytes, length_bytes };
        Ok(planned(JournalRegions {
            log: region(at, log),
            checkpoints: [0, 1].map(|number| region(at + log + number * checkpoint, checkpoint)),
            unit_bytes,
            group_zones,
            groups,
        }))
    }

    /// Numbers of the bands.
    pub(super) fn bands(&self) -> Range<u32> {
        self.first_band..self.first_band + self.band_count
    }

    /// Bands kept for the outputs of compactions.
    pub(super) fn reserve_bands(&self) -> u32 {
        // No more than there are: see `decode`.
        u32::from(self.reserve.compaction_tables) * self.table_bands
    }

    /// Bands kept for manifests, pointers and copies.
    pub(super) fn log_reserve_bands(&self) -> u32 {
        self.reserve.log_bands.unwrap_or(self.table_bands)
    }

    fn version(&self) -> u8 {
        match self.reserve.log_bands {
            Some(_) => VERSION_AMONG_SEVERAL,
            None if self.table_bands == 1 => VERSION_ONE_BAND,
            None => VERSION_SEVERAL_BANDS,
        }
    }

    /// Bytes of a table of the size that trees are to make.
    pub(super) fn table_bytes(&self) -> u64 {
        u64::from(self.table_bands) * self.band_bytes
    }

    /// First byte of a band on the device.
    pub(super) fn start_bytes(&self, band: u32) -> u64 {
        u64::from(band) * self.zone_bytes
    }

    /// Whether `length_bytes` at `offset_bytes` of a band are bytes of one.
    pub(super) fn holds(&self, band: u32, offset_bytes: u64, length_bytes: u64) -> bool {
        let end = offset_bytes.checked_add(length_bytes);
        self.bands().contains(&band) && end.is_some_and(|end| end <= self.band_bytes)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.u8(self.version());
        writer.u8(0);
        writer.u16(self.reserve.compaction_tables);
        writer.u32(self.first_band);
        writer.u32(self.band_count);
        writer.u32(self.unit_bytes);
        writer.u64(self.zone_bytes);
        writer.u64(self.band_bytes);
        if self.version() != VERSION_ONE_BAND {
            writer.u32(self.table_bands);
        }
        self.reserve.log_bands.iter().for_each(|bands| writer.u32(*bands));
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
            let (version, reserved, compaction_tables) = (reader.u8()?, reader.u8()?, reader.u16()?);
            let mut geometry = StoreGeometry {
                reserve: Reserve { compaction_tables, log_bands: None },
                table_bands: 1,
                first_band: reader.u32()?,
                band_count: reader.u32()?,
                unit_bytes: reader.u32()?,
                zone_bytes: reader.u64()?,
                band_bytes: reader.u64()?,
                journal: *journal,
            };
            if version != VERSION_ONE_BAND {
                geometry.table_bands = reader.u32()?;
            }
            if version == VERSION_AMONG_SEVERAL {
                geometry.reserve.log_bands = Some(reader.u32()?);
            }
            Some((version, reserved, geometry))
        };
        let (version, reserved, geometry) =
            fields().ok_or_else(|| format!("{} bytes of parameters", parameters.len()))?;
        let is_known = matches!(version, VERSION_ONE_BAND | VERSION_SEVERAL_BANDS | VERSION_AMONG_SEVERAL);
        if !is_known || reserved != 0 || reader.remaining() != 0 {
            return Err(format!("parameters of version {version}, {} bytes", parameters.len()));
        }
        let StoreGeometry { zone_bytes, band_bytes, first_band, band_count, unit_bytes, table_bands, .. } = geometry;
        if table_bands < if version == VERSION_SEVERAL_BANDS { 2 } else { 1 } {
            return Err(format!("{table_bands} bands to a table in parameters of version {version}"));
        }
        if unit_bytes != journal.unit_bytes || !unit_bytes.is_power_of_two() {
            return Err(format!("units of {unit_bytes} bytes"));
        }
        let unit = u64::from(unit_bytes);
        let end = first_band.checked_add(band_count).and_then(|end| u64::from(end).checked_mul(zone_bytes));
        let fits = end.is_some_and(|end| end <= capacity_bytes);
        let sound = band_bytes <= zone_bytes && band_bytes >= unit && band_bytes.is_multiple_of(unit);
        if !fits || !sound || first_band == 0 {
            return Err(format!(
                "{band_count} bands of {band_bytes} bytes, {zone_bytes} bytes apart, from {first_band}"
            ));
        }
        let reserve_bands = u64::from(geometry.reserve.compaction_tables) * u64::from(table_bands);
        if reserve_bands + bands_min(table_bands, geometry.reserve) > u64::from(band_count) {
            return Err(format!("{reserve_bands} of {band_count} bands reserved, {table_bands} to a table"));
        }
        if journal.group_zones > 0 {
            let metadata_zones = journal.metadata_zones();
            return match metadata_zones <= u64::from(first_band) {
                true => Ok(geometry),
                false => Err(format!("{metadata_zones} zones of metadata and bands from zone {first_band}")),
            };
        }
        let regions = [journal.log, journal.checkpoints[0], journal.checkpoints[1]];
        match regions.iter().find(|region| region.end_bytes() > geometry.start_bytes(first_band)) {
            Some(region) => Err(format!("a region of metadata up to byte {} of the bands", region.end_bytes())),
            None => Ok(geometry),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A small device: bands of 64 KiB behind eight conventional zones.
    pub(in super::super) fn small() -> StoreGeometry {
        plan(8 << 20, 64 << 10, 8, 2, None).expect("a device that is large enough")
    }

    /// The same with tables of four bands.
    fn several_bands() -> StoreGeometry {
        plan(8 << 20, 64 << 10, 8, 2, Some(200_000)).expect("a device that is large enough")
    }

    fn plan(
        capacity_bytes: u64,
        zone_bytes: u64,
        conventional_zones: u32,
        reserve_tables: u16,
        table_bytes: Option<u64>,
    ) -> Result<StoreGeometry, StoreError> {
        let zones = ZoneGeometry { conventional_zones, ..ZoneGeometry::fit(capacity_bytes, zone_bytes).unwrap() };
        plan_on(&zones, reserve_tables, table_bytes)
    }

    fn plan_on(
        zones: &ZoneGeometry,
        reserve_tables: u16,
        table_bytes: Option<u64>,
    ) -> Result<StoreGeometry, StoreError> {
        let capacity_bytes = zones.address_bytes();
        let device = Geometry { capacity_bytes, sector_bytes: 512, physical_sector_bytes: 4096 };
        let reserve = Reserve { compaction_tables: reserve_tables, log_bands: None };
        StoreGeometry::plan("test", &device, zones, reserve, table_bytes)
    }

    #[test]
    fn a_device_without_conventional_zones_has_its_table_in_the_first_ones() {
        // A drive: its zones are large, and one is enough.
        let drive = ZoneGeometry { zone_capacity_bytes: 1077 << 20, ..ZoneGeometry::fit(41 << 30, 2 << 30).unwrap() };
        // Small ones.
        let small = ZoneGeometry { zone_capacity_bytes: 49_000, ..ZoneGeometry::fit(16 << 20, 64 << 10).unwrap() };
        // One that allows too few active zones for two copies, and one with space for one only.
        let few_active = ZoneGeometry { active_zones_max: 4, ..drive.clone() };
        let few_zones = ZoneGeometry { zone_count: 7, ..drive.clone() };
        for (zones, group_zones, groups) in [(drive, 1, 3), (small, 9, 3), (few_active, 1, 2), (few_zones, 1, 2)] {
            let planned = plan_on(&zones, 1, None).unwrap();
            assert_eq!((planned.journal.group_zones, planned.journal.groups), (group_zones, groups));
            assert_eq!(planned.first_band, group_zones * u32::from(groups));
            assert_eq!(planned.bands().end, zones.zone_count);
            let capacity_bytes = zones.address_bytes();
            assert_eq!(StoreGeometry::decode(&planned.encode(), &planned.journal, capacity_bytes), Ok(planned));
            let more = JournalRegions { group_zones: group_zones + 1, ..planned.journal };
            StoreGeometry::decode(&planned.encode(), &more, capacity_bytes).expect_err("bands where metadata are");
        }
        // Where writes may go anywhere too: in order they need no media cache.
        let preferred = ZoneGeometry {
            sequential_type: varve_media::ZoneType::SequentialWritePreferred,
            ..ZoneGeometry::fit(8 << 20, 64 << 10).unwrap()
        };
        assert_eq!(plan_on(&preferred, 2, None).unwrap().journal.groups, 3);
    }

    #[test]
    fn one_of_several_devices_may_keep_nothing() {
        for (log_bands, band_count) in [(0, 20), (0, 2), (1, 3), (3, 5)] {
            let zones = ZoneGeometry::fit((band_count + 8) * (64 << 10), 64 << 10).unwrap();
            let zones = ZoneGeometry { conventional_zones: 8, ..zones };
            let device =
                Geometry { capacity_bytes: zones.address_bytes(), sector_bytes: 512, physical_sector_bytes: 4096 };
            let reserve = Reserve { compaction_tables: 0, log_bands: Some(log_bands) };
            let planned = StoreGeometry::plan("test", &device, &zones, reserve, None).unwrap();
            assert_eq!((planned.reserve_bands(), planned.log_reserve_bands()), (0, log_bands));
            let bytes = planned.encode();
            assert_eq!(bytes.len(), 40);
            assert_eq!(StoreGeometry::decode(&bytes, &planned.journal, device.capacity_bytes), Ok(planned));
            let fewer = ZoneGeometry { zone_count: zones.zone_count - band_count as u32 + 1, ..zones };
            let (device, reserve) = (
                Geometry { capacity_bytes: fewer.address_bytes(), ..device },
                Reserve { log_bands: Some(3), ..reserve },
            );
            StoreGeometry::plan("test", &device, &fewer, reserve, None).expect_err("one band");
        }
    }

    #[test]
    fn every_size_plans_and_comes_back() {
        for (capacity, zone, conventional, table_bytes, table_bands) in [
            (8 << 20, 64 << 10, 8, None, 1),
            (8 << 20, 64 << 10, 8, Some(0), 1),
            (8 << 20, 64 << 10, 8, Some(64 << 10), 1),
            (8 << 20, 64 << 10, 8, Some((64 << 10) + 1), 2),
            (64 << 20, 1 << 20, 1, None, 1),
            (8 << 40, 80 << 20, 13, None, 1),
            (8 << 40, 5 << 20, 400, Some(80 << 20), 16),
            (3 << 40, 256 << 20, 4, Some(1 << 30), 4),
        ] {
            let planned = plan(capacity, zone, conventional, 2, table_bytes).unwrap();
            assert_eq!(planned.table_bands, table_bands);
            assert_eq!((planned.reserve_bands(), planned.table_bytes() / zone), (2 * table_bands, table_bands.into()));
            assert_eq!(StoreGeometry::decode(&planned.encode(), &planned.journal, capacity), Ok(planned));
            assert!(planned.journal.checkpoints[1].end_bytes() <= planned.start_bytes(planned.first_band));
            let checkpoint = planned.journal.checkpoints[0].length_bytes;
            assert!(checkpoint >= u64::from(planned.band_count) * CHECKPOINT_BYTES_OF_BAND);
        }
        assert_eq!(crc32c::crc32c(&small().encode()), 0xc122_7365, "golden: version 1 of the parameters");
        let several = several_bands();
        assert_eq!((several.table_bands, several.encode().len()), (4, 36));
        assert_eq!(crc32c::crc32c(&several.encode()), 0x6871_d6c8, "golden: version 2 of the parameters");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_to_do() {
        for (capacity, zone, conventional, reserve, table_bytes, advice) in [
            (8 << 20, 4 << 10, 0, 2, None, "are too small for a table of 2048 bands; choose larger ones"),
            (8 << 20, 64 << 10, 2, 2, None, "are the least"),
            (1 << 20, 128 << 10, 6, 1, None, "smaller bands"),
            (8 << 20, 64 << 10, 8, 0, None, "1 or more"),
            (8 << 20, 64 << 10, 8, 200, None, "smaller reserve"),
            (64 << 20, 2 << 10, 1000, 2, None, "choose larger ones"),
            (8 << 20, 64 << 10, 8, 2, Some(2 << 20), "smaller tables"),
            (8 << 20, 64 << 10, 8, u16::MAX, Some(u64::MAX), "smaller tables"),
        ] {
            let error = plan(capacity, zone, conventional, reserve, table_bytes).unwrap_err();
            assert!(error.to_string().contains(advice), "{error}");
        }
    }

    #[test]
    fn damaged_parameters_are_refused_not_believed() {
        for good in [small().encode(), several_bands().encode()] {
            for length in 0..good.len() {
                assert!(StoreGeometry::decode(&good[..length], &small().journal, 8 << 20).is_err());
            }
            for index in 0..good.len() {
                for bit in 0..8 {
                    let mut bad = good.clone();
                    bad[index] ^= 1 << bit;
                    // Refused, or a division that lies inside the device.
                    if let Ok(found) = StoreGeometry::decode(&bad, &small().journal, 8 << 20) {
                        assert!(found.start_bytes(found.bands().end) <= 8 << 20);
                        assert!(found.reserve_bands() + 3 * found.table_bands < found.band_count);
                    }
                }
            }
        }
        // As many bands to a table as there are, in both versions.
        for (version, table_bands) in [(1, 2), (2, 0), (2, 1), (2, 60), (2, u32::MAX), (3, 1), (4, 4)] {
            let mut bad = [several_bands().encode(), Vec::new()].concat();
            bad[0] = version;
            bad[32..].copy_from_slice(&u32::to_le_bytes(table_bands));
            StoreGeometry::decode(&bad, &small().journal, 8 << 20).expect_err("no division of bands");
        }
    }
}
