//! Seagate ST6000NM0034, the disk of the DIX-aware RAID (Zhang, table 5.1).

use super::data_sheet::{DataSheet, Seek};
use super::{Preset, Promises};

/// Source: Seagate, "Enterprise Capacity 3.5 HDD v4 SAS product manual" 100726011 (7200 rpm; 6 TB with 512-byte logical and 4 KiB
/// physical sectors, which can be formatted with protection information of types 1 and 2; cache 128 MB; SAS at 12 Gbit/s;
/// outer rate 226 MB/s).
///
/// Assumed: the average rate, by the ratio of ST500DM002's family (156 / 210); 12 surfaces (six platters of 1 TB); average seek 8.5 ms,
/// shortest 1.0 ms, longest twice the average; writes settle 1.0 ms longer. The link is that of the other disks here: it is
/// faster than the platters, as theirs is.
pub(super) fn preset() -> Preset {
    let outer_bytes_per_second = 226_000_000;
    let average_bytes_per_second = outer_bytes_per_second * 156 / 210;
    let sheet = DataSheet {
        capacity_bytes: 6_001_175_126_016,
        rotations_per_minute: 7_200,
        surfaces: 12,
        outer_bytes_per_second,
        average_bytes_per_second,
        seek: Seek::Averages { shortest_nanos: 1_000_000, average_nanos: 8_500_000, longest_nanos: 17_000_000 },
        write_settle_nanos: 1_000_000,
        cache_bytes: 128 << 20,
        physical_sector_bytes: 4096,
        queue_depth: 32,
    };
    let promises = Promises {
        sequential_request_bytes: 1 << 20,
        sequential_depth: 1,
        outer_read_bytes_per_second: Some(outer_bytes_per_second),
        outer_write_bytes_per_second: Some(outer_bytes_per_second),
        average_read_bytes_per_second: None,
        average_write_bytes_per_second: None,
        // 1 s / (8.5 ms seek + 4.17 ms half a revolution), command overhead excluded.
        random_reads_per_second: Some(79.0),
    };
    sheet.preset(
        "st6000nm0034",
        "Seagate Enterprise Capacity 6 TB SAS, 7200 rpm (the disk of DIX-aware RAID)",
        promises,
    )
}
