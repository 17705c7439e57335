//! Two SCSI disks with published parameters and published traces of measured response times:
//! Seagate Cheetah 9LP (ST39102LW) and Quantum Atlas 10K ("Tornado").
//!
//! Source of every number here, unless it says otherwise: the validated drive parameters that come
//! with DiskSim 4.0 (J. Bucy, J. Schindler, S. Schlosser, G. Ganger, "The DiskSim simulation
//! environment version 4.0 reference manual", CMU-PDL-08-101, 2008, section 8 and appendix), which
//! J. Schindler and G. Ganger extracted from the drives ("Automated disk drive characterization",
//! CMU-CS-99-176, 1999). Their seek curves are thinned here to every few points.

use super::{Preset, Promises};
use crate::device::NominalPerformance;
use crate::emulated::{
    CommandOverhead, DiskCacheParameters, DiskParameters, LayoutZone, MechanismParameters, Scheduling, SeekCurve,
    SurfaceOrder,
};
use std::sync::Arc;

const SECTOR_BYTES: u64 = 512;

/// Time per sector on the SCSI bus of the host the traces were taken on, as DiskSim has it.
const CHEETAH_TRACED_LINK: u64 = link(105_000);
const ATLAS_TRACED_LINK: u64 = link(99_000);

/// Ultra2 Wide SCSI, which both drives speak.
const ULTRA2_BYTES_PER_SECOND: u64 = 80_000_000;

const fn link(nanos_per_sector: u64) -> u64 {
    SECTOR_BYTES * 1_000_000_000 / nanos_per_sector
}

/// A row of the zone tables below.
struct Zone {
    /// Cylinders, with the spare one behind the zone where there is one.
    cylinders: u64,
    sectors_per_track: u64,
    /// Skews in sectors.
    track_skew: u64,
    cylinder_skew: u64,
    /// Sectors of the zone that hold no addressable data.
    spares: u64,
}

const fn zone(cylinders: u64, sectors_per_track: u64, track_skew: u64, cylinder_skew: u64, spares: u64) -> Zone {
    Zone { cylinders, sectors_per_track, track_skew, cylinder_skew, spares }
}

/// Zones of the Cheetah 9LP. Spares include the spare cylinder and slipped sectors.
const CHEETAH_ZONES: [Zone; 11] = [
    zone(848, 254, 97, 133, 1_304 + 12 * 254),
    zone(797, 245, 97, 133, 1_183 + 12 * 245),
    zone(749, 238, 97, 117, 992 + 12 * 238),
    zone(704, 227, 97, 116, 921 + 12 * 227),
    zone(661, 217, 97, 108, 667 + 12 * 217),
    zone(622, 209, 97, 108, 642 + 12 * 209),
    zone(585, 201, 97, 108, 424 + 12 * 201),
    zone(550, 189, 88, 94, 2_296),
    zone(516, 181, 88, 93, 2_105),
    zone(486, 174, 88, 93, 1_972),
    zone(444, 167, 88, 80, 269),
];

/// Zones of the Atlas 10K. Spares include slipped sectors.
const ATLAS_ZONES: [Zone; 24] = [
    zone(433, 334, 63, 113, 94),
    zone(416, 334, 63, 113, 84),
    zone(416, 334, 63, 113, 90),
    zone(424, 324, 63, 101, 86),
    zone(416, 324, 63, 101, 84),
    zone(416, 324, 63, 101, 86),
    zone(416, 324, 62, 101, 84),
    zone(424, 324, 61, 98, 100),
    zone(416, 324, 61, 98, 90),
    zone(416, 324, 61, 98, 86),
    zone(416, 324, 61, 98, 86),
    zone(424, 306, 58, 98, 80),
    zone(416, 306, 58, 98, 100),
    zone(416, 302, 57, 92, 98),
    zone(416, 293, 56, 91, 74),
    zone(424, 288, 55, 91, 98),
    zone(416, 288, 55, 88, 72),
    zone(416, 280, 54, 88, 82),
    zone(416, 270, 51, 87, 66),
    zone(424, 262, 51, 83, 66),
    zone(416, 255, 48, 83, 66),
    zone(416, 246, 47, 75, 60),
    zone(416, 237, 45, 75, 60),
    zone(417, 229, 44, 75, 229),
];

/// Distance in cylinders, microseconds.
const CHEETAH_SEEKS: [(u64, u64); 32] = [
    (1, 831),
    (2, 1_003),
    (3, 1_089),
    (5, 1_265),
    (8, 1_438),
    (10, 1_448),
    (16, 1_453),
    (20, 1_534),
    (30, 1_624),
    (40, 1_715),
    (50, 1_804),
    (70, 1_945),
    (100, 2_145),
    (150, 2_259),
    (200, 2_517),
    (300, 2_699),
    (400, 3_051),
    (500, 3_230),
    (700, 3_638),
    (1_000, 4_118),
    (1_500, 4_757),
    (2_000, 5_282),
    (2_500, 5_815),
    (3_000, 6_345),
    (3_500, 6_887),
    (4_000, 7_419),
    (4_500, 7_959),
    (5_000, 8_492),
    (5_500, 8_962),
    (6_000, 9_698),
    (6_500, 10_147),
    (6_894, 10_627),
];

/// Distance in cylinders, microseconds. The measured curve has a few single points far above their
/// neighbours, which are left out.
const ATLAS_SEEKS: [(u64, u64); 44] = [
    (1, 1_245),
    (2, 1_157),
    (3, 1_163),
    (5, 1_355),
    (7, 1_494),
    (10, 1_531),
    (16, 1_547),
    (20, 1_620),
    (30, 1_698),
    (40, 1_929),
    (50, 1_863),
    (70, 1_927),
    (100, 2_011),
    (125, 2_083),
    (175, 2_380),
    (200, 2_651),
    (250, 2_858),
    (300, 2_930),
    (400, 3_146),
    (500, 3_208),
    (700, 3_263),
    (800, 3_321),
    (900, 3_516),
    (1_000, 3_820),
    (1_300, 3_920),
    (1_500, 4_198),
    (2_000, 4_842),
    (2_500, 5_224),
    (3_100, 5_468),
    (3_500, 5_703),
    (4_000, 6_226),
    (4_500, 6_405),
    (5_000, 6_814),
    (5_500, 7_257),
    (6_000, 7_525),
    (6_500, 7_892),
    (7_000, 8_205),
    (7_500, 8_551),
    (8_000, 8_951),
    (8_500, 9_337),
    (9_000, 10_114),
    (9_500, 10_499),
    (10_000, 10_464),
    (10_021, 10_828),
];

/// The layout, with the last zone cut to the published number of sectors.
fn layout(zones: &[Zone], surfaces: u64, rotation_nanos: u64, sectors: u64) -> Vec<LayoutZone> {
    let mut left = sectors * SECTOR_BYTES;
    zones
        .iter()
        .map(|zone| {
            let tracks = zone.cylinders * surfaces;
            let data_bytes = ((tracks * zone.sectors_per_track - zone.spares) * SECTOR_BYTES).min(left);
            left -= data_bytes;
            LayoutZone {
                cylinders: zone.cylinders,
                track_bytes: zone.sectors_per_track * SECTOR_BYTES,
                data_bytes,
                track_skew_nanos: zone.track_skew * rotation_nanos / zone.sectors_per_track,
                cylinder_skew_nanos: zone.cylinder_skew * rotation_nanos / zone.sectors_per_track,
            }
        })
        .collect()
}

fn curve(micros: &[(u64, u64)]) -> SeekCurve {
    SeekCurve::Table(micros.iter().map(|&(distance, micros)| (distance, micros * 1_000)).collect())
}

fn cheetah_parameters(link_bytes_per_second: u64) -> DiskParameters {
    let rotation_nanos = 60_000_000_000 / 10_045;
    DiskParameters {
        mechanism: MechanismParameters {
            rotation_nanos,
            surfaces: 12,
            surface_order: SurfaceOrder::Forward,
            zones: layout(&CHEETAH_ZONES, 12, rotation_nanos, 17_783_240),
            seek: curve(&CHEETAH_SEEKS),
            stroke_cylinders: 6_962,
            head_switch_nanos: 30_000,
            write_settle_nanos: 461_000,
        },
        sector_bytes: SECTOR_BYTES,
        physical_sector_bytes: SECTOR_BYTES,
        link_bytes_per_second,
        overhead: CommandOverhead {
            read_hit_after_read_nanos: 66_000,
            read_hit_after_write_nanos: 273_000,
            read_miss_after_read_nanos: 283_620,
            read_miss_after_write_nanos: 86_730,
            write_hit_after_read_nanos: 748_000,
            write_hit_after_write_nanos: 500_000,
            write_miss_after_read_nanos: 906_920,
            write_miss_after_write_nanos: 896_400,
        },
        cache: DiskCacheParameters {
            write_bytes: 3 * 561 * SECTOR_BYTES,
            destage_delay_nanos: 0,
            destage_begin_bytes: 0,
            destage_urgent_bytes: 561 * SECTOR_BYTES,
            contention_slice_nanos: 30_000_000,
            read_segments: 3,
            read_segment_bytes: 561 * SECTOR_BYTES,
            read_ahead_bytes: 561 * SECTOR_BYTES,
            read_ahead_on_hit: false,
            keeps_written: true,
        },
        queue_depth: 32,
        scheduling: Scheduling::ShortestPositioning { ageing_divisor: 16 },
    }
}

fn atlas_parameters(link_bytes_per_second: u64) -> DiskParameters {
    let rotation_nanos = 60_000_000_000 / 10_025;
    DiskParameters {
        mechanism: MechanismParameters {
            rotation_nanos,
            surfaces: 6,
            surface_order: SurfaceOrder::Alternating,
            zones: layout(&ATLAS_ZONES, 6, rotation_nanos, 17_938_986),
            seek: curve(&ATLAS_SEEKS),
            stroke_cylinders: 10_042,
            head_switch_nanos: 176_000,
            write_settle_nanos: 487_000,
        },
        sector_bytes: SECTOR_BYTES,
        physical_sector_bytes: SECTOR_BYTES,
        link_bytes_per_second,
        overhead: CommandOverhead {
            read_hit_after_read_nanos: 184_000,
            read_hit_after_write_nanos: 184_000,
            read_miss_after_read_nanos: 0,
            read_miss_after_write_nanos: 0,
            write_hit_after_read_nanos: 186_000,
            write_hit_after_write_nanos: 189_000,
            write_miss_after_read_nanos: 344_920,
            write_miss_after_write_nanos: 496_730,
        },
        cache: DiskCacheParameters {
            write_bytes: 374 * SECTOR_BYTES,
            destage_delay_nanos: 0,
            destage_begin_bytes: 0,
            destage_urgent_bytes: 374 * SECTOR_BYTES / 2,
            contention_slice_nanos: 30_000_000,
            read_segments: 10,
            read_segment_bytes: 374 * SECTOR_BYTES,
            read_ahead_bytes: 354 * SECTOR_BYTES,
            read_ahead_on_hit: false,
            keeps_written: true,
        },
        queue_depth: 32,
        scheduling: Scheduling::ShortestPositioning { ageing_divisor: 16 },
    }
}

fn preset(name: &str, description: &'static str, nominal: NominalPerformance, parameters: DiskParameters) -> Preset {
    Preset {
        name: name.to_owned(),
        description,
        sector_bytes: SECTOR_BYTES as u32,
        physical_sector_bytes: SECTOR_BYTES as u32,
        nominal,
        promises: Promises {
            sequential_request_bytes: 1 << 20,
            sequential_depth: 1,
            outer_read_bytes_per_second: None,
            outer_write_bytes_per_second: None,
            average_read_bytes_per_second: None,
            average_write_bytes_per_second: None,
            random_reads_per_second: None,
        },
        parameters: Arc::new(parameters),
        zones: None,
    }
}

/// Rates follow from the zone table: sectors per track over the time of a track with its skew.
const CHEETAH_NOMINAL: NominalPerformance = NominalPerformance {
    sequential_read_bytes_per_second: 13_000_000,
    sequential_write_bytes_per_second: 13_000_000,
    random_reads_per_second: 117,
};

/// As above.
const ATLAS_NOMINAL: NominalPerformance = NominalPerformance {
    sequential_read_bytes_per_second: 20_000_000,
    sequential_write_bytes_per_second: 20_000_000,
    random_reads_per_second: 118,
};

pub(super) fn cheetah_9lp() -> Preset {
    let description = "Seagate Cheetah 9LP 9.1 GB, 10,000 rpm (ST39102LW)";
    preset("cheetah-9lp", description, CHEETAH_NOMINAL, cheetah_parameters(ULTRA2_BYTES_PER_SECOND))
}

pub(super) fn atlas_10k() -> Preset {
    let description = "Quantum Atlas 10K 9.1 GB, 10,000 rpm";
    preset("atlas-10k", description, ATLAS_NOMINAL, atlas_parameters(ULTRA2_BYTES_PER_SECOND))
}

/// The Cheetah 9LP behind the slow SCSI host its validation trace was taken on.
pub fn cheetah_9lp_as_traced() -> Preset {
    let description = "Seagate Cheetah 9LP on the host of its validation trace";
    preset("cheetah-9lp-as-traced", description, CHEETAH_NOMINAL, cheetah_parameters(CHEETAH_TRACED_LINK))
}

/// The Atlas 10K behind the slow SCSI host its validation trace was taken on.
pub fn atlas_10k_as_traced() -> Preset {
    let description = "Quantum Atlas 10K on the host of its validation trace";
    preset("atlas-10k-as-traced", description, ATLAS_NOMINAL, atlas_parameters(ATLAS_TRACED_LINK))
}
