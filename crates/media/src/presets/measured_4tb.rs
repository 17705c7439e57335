//! A 4 TB disk of 7200 rpm and 10 surfaces whose seek curve was measured.

use super::data_sheet::{DataSheet, Seek};
use super::{Preset, Promises};
use crate::emulated::SeekCurve;

/// Cylinders the measured curve spans.
pub(super) const CYLINDERS: u64 = 353_181;

/// The fit of the measured curve (published with DiskSim's 64-bit extension by Western Digital, file
/// G4_LBA_64bit_4T): below 67,104 cylinders 1.439 ms + 0.019453 ms sqrt(d), above 4.507 ms +
/// 3.1412e-5 ms d. Mean over random pairs 7.93 ms.
pub(super) fn seek_curve() -> SeekCurve {
    SeekCurve::TwoPiece {
        short_base_nanos: 1_439_000.0,
        short_per_root_nanos: 19_453.0,
        long_from_cylinders: 67_104,
        long_base_nanos: 4_507_000.0,
        long_per_cylinder_nanos: 31.412,
    }
}

/// Sources: the seek curve above. The rates belong to the drive of the same size, speed and
/// surfaces whose manual is public: Seagate, "Constellation ES.3 SAS product manual" 100671510, section 4.1
/// (10 heads; sustained 83 to 175 MB/s, so 129 MB/s on average).
///
/// Assumed: cache 64 MB; writes settle 0.5 ms longer.
pub(super) fn preset() -> Preset {
    let sheet = DataSheet {
        capacity_bytes: 4_000_787_030_016,
        rotations_per_minute: 7_200,
        surfaces: 10,
        outer_bytes_per_second: 175_000_000,
        average_bytes_per_second: 129_000_000,
        seek: Seek::Curve { curve: seek_curve(), cylinders: CYLINDERS },
        write_settle_nanos: 500_000,
        cache_bytes: 64 << 20,
        physical_sector_bytes: 4096,
        queue_depth: 32,
    };
    let promises = Promises {
        sequential_request_bytes: 1 << 20,
        sequential_depth: 1,
        outer_read_bytes_per_second: Some(175_000_000),
        outer_write_bytes_per_second: Some(175_000_000),
        average_read_bytes_per_second: Some(129_000_000),
        average_write_bytes_per_second: Some(129_000_000),
        // 1 s / (7.93 ms mean seek + 4.17 ms half a revolution), command overhead excluded.
        random_reads_per_second: Some(82.6),
    };
    sheet.preset("measured-4tb", "4 TB, 7200 rpm, measured seek curve", promises)
}
