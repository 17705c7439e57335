//! A disk like the Seagate Archive HDD v2 ST8000AS0022, the host-aware shingled disk of Idler
//! (Zhang, chapter 4); here its mechanics. Its translation layer is another part of a device.

use super::data_sheet::{DataSheet, Seek};
use super::{Preset, Promises};

/// Sources: Seagate Archive HDD data sheet DS1834 (5900 rpm; cache 128 MB; average data rate 150 MB/s,
/// maximum sustained 190 MB/s at the outer edge; six platters).
///
/// Assumed: seek times, which the data sheet leaves out: average 10.5 ms, shortest 1.2 ms, longest
/// twice the average, slower than the 7200 rpm desktop drives of the same maker; writes settle 1 ms
/// longer.
pub(super) fn preset() -> Preset {
    let sheet = DataSheet {
        capacity_bytes: 8_001_563_222_016,
        rotations_per_minute: 5_900,
        surfaces: 12,
        outer_bytes_per_second: 190_000_000,
        average_bytes_per_second: 150_000_000,
        seek: Seek::Averages { shortest_nanos: 1_200_000, average_nanos: 10_500_000, longest_nanos: 21_000_000 },
        write_settle_nanos: 1_000_000,
        cache_bytes: 128 << 20,
        physical_sector_bytes: 4096,
        queue_depth: 32,
    };
    let promises = Promises {
        sequential_request_bytes: 1 << 20,
        sequential_depth: 1,
        outer_read_bytes_per_second: Some(190_000_000),
        outer_write_bytes_per_second: Some(190_000_000),
        average_read_bytes_per_second: Some(150_000_000),
        average_write_bytes_per_second: Some(150_000_000),
        random_reads_per_second: None,
    };
    sheet.preset("st8000as0022", "Seagate Archive 8 TB, 5900 rpm, mechanics only (Idler's disk)", promises)
}
