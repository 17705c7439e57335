//! Seagate ST14000NM0007, the host-managed shingled disk of HHZS; here its mechanics. The rules of
//! shingling are another part of a device.

use super::data_sheet::{DataSheet, Seek};
use super::{Preset, Promises};

/// Source: HHZS, table 1: 210.0 MiB/s sequential reads and writes with requests of 1 MiB, 115.0
/// random reads of 4 KiB per second, both at queue depth 1.
///
/// Derived: a random read takes 1 s / 115 = 8.70 ms; less half a revolution at 7200 rpm (4.17 ms) and the
/// command (0.11 ms) leaves an average seek of 4.42 ms. The paper gives one sequential rate, so it is
/// taken for the whole surface.
///
/// Assumed: 16 surfaces (eight platters, as 14 TB drives of that generation have); cache 256 MB;
/// shortest seek 0.5 ms, longest twice the average; writes settle 0.5 ms longer.
pub(super) fn preset() -> Preset {
    let rate = 210 << 20;
    let sheet = DataSheet {
        capacity_bytes: 14_000_519_643_136,
        rotations_per_minute: 7_200,
        surfaces: 16,
        outer_bytes_per_second: rate,
        average_bytes_per_second: rate,
        seek: Seek::Averages { shortest_nanos: 500_000, average_nanos: 4_420_000, longest_nanos: 8_840_000 },
        write_settle_nanos: 500_000,
        cache_bytes: 256 << 20,
        physical_sector_bytes: 4096,
        queue_depth: 32,
    };
    let promises = Promises {
        sequential_request_bytes: 1 << 20,
        sequential_depth: 1,
        outer_read_bytes_per_second: Some(rate),
        outer_write_bytes_per_second: Some(rate),
        average_read_bytes_per_second: Some(rate),
        average_write_bytes_per_second: Some(rate),
        random_reads_per_second: Some(115.0),
    };
    sheet.preset("st14000nm0007", "Seagate 14 TB HM-SMR, 7200 rpm, mechanics only (HHZS's disk)", promises)
}
