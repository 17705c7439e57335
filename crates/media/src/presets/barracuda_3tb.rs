//! Seagate Barracuda 3 TB at 7200 rpm (ST3000DM001), the disk of SMRDB (SMRDB, section 5).

use super::data_sheet::{DataSheet, Seek};
use super::{Preset, Promises};

/// Sources: Seagate Barracuda data sheet DS1737 (7200 rpm; average data rate 156 MB/s, maximum
/// sustained 210 MB/s at the outer edge; cache 64 MB; average seek 8.5 ms read, 9.5 ms write); three
/// platters of 1 TB, so six surfaces (en.wikipedia.org/wiki/ST3000DM001).
///
/// Assumed: shortest seek 1.0 ms and longest 17 ms, twice the average.
pub(super) fn preset() -> Preset {
    let sheet = DataSheet {
        capacity_bytes: 3_000_592_982_016,
        rotations_per_minute: 7_200,
        surfaces: 6,
        outer_bytes_per_second: 210_000_000,
        average_bytes_per_second: 156_000_000,
        seek: Seek::Averages { shortest_nanos: 1_000_000, average_nanos: 8_500_000, longest_nanos: 17_000_000 },
        write_settle_nanos: 1_000_000,
        cache_bytes: 64 << 20,
        physical_sector_bytes: 4096,
        queue_depth: 32,
    };
    let promises = Promises {
        sequential_request_bytes: 1 << 20,
        sequential_depth: 1,
        outer_read_bytes_per_second: Some(210_000_000),
        outer_write_bytes_per_second: Some(210_000_000),
        average_read_bytes_per_second: Some(156_000_000),
        average_write_bytes_per_second: Some(156_000_000),
        // 1 s / (8.5 ms seek + 4.17 ms half a revolution), command overhead excluded.
        random_reads_per_second: Some(79.0),
    };
    sheet.preset("barracuda-3tb", "Seagate Barracuda 3 TB, 7200 rpm (SMRDB's disk)", promises)
}
