//! Seagate Desktop HDD ST500DM002, the disk KVIMR was evaluated on (KVIMR, section 5.1).

use super::data_sheet::{DataSheet, Seek};
use super::{Preset, Promises};

/// Sources: Seagate, "Desktop HDD product manual" 100768625 (7200 rpm; average seek 8.5 ms read,
/// 9.5 ms write; cache 16 MB; 512-byte logical and 4 KiB physical sectors; NCQ depth 32; average
/// data rate 125 MB/s).
///
/// Assumed: the outer rate, by the ratio of the 3 TB drive of the same family (210 / 156); one
/// platter, two surfaces; shortest seek 1.0 ms and longest 17 ms, twice the average, as on drives
/// whose makers publish all three.
pub(super) fn preset() -> Preset {
    let sheet = DataSheet {
        capacity_bytes: 500_107_862_016,
        rotations_per_minute: 7_200,
        surfaces: 2,
        outer_bytes_per_second: 168_000_000,
        average_bytes_per_second: 125_000_000,
        seek: Seek::Averages { shortest_nanos: 1_000_000, average_nanos: 8_500_000, longest_nanos: 17_000_000 },
        write_settle_nanos: 1_000_000,
        cache_bytes: 16 << 20,
        physical_sector_bytes: 4096,
        queue_depth: 32,
    };
    let promises = Promises {
        sequential_request_bytes: 1 << 20,
        sequential_depth: 1,
        outer_read_bytes_per_second: None,
        outer_write_bytes_per_second: None,
        average_read_bytes_per_second: Some(125_000_000),
        average_write_bytes_per_second: Some(125_000_000),
        // 1 s / (8.5 ms seek + 4.17 ms half a revolution), command overhead excluded.
        random_reads_per_second: Some(79.0),
    };
    sheet.preset("st500dm002", "Seagate Desktop HDD 500 GB, 7200 rpm (KVIMR's disk)", promises)
}
