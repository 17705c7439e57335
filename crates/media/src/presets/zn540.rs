//! Western Digital Ultrastar DC ZN540, the zoned solid-state drive of HHZS; here its flash. The
//! rules of zones are another part of a device; its own zones are here too.

use super::{Preset, Promises};
use crate::device::NominalPerformance;
use crate::emulated::SsdParameters;
use crate::zones::{ZoneGeometry, ZoneType};
use std::sync::Arc;

/// Source: HHZS, table 1: 1,039.6 MiB/s sequential reads and 1,002.8 MiB/s sequential writes with
/// requests of 1 MiB, 16,928.3 random reads of 4 KiB per second, all at queue depth 1.
///
/// Derived: a lone random read takes 59.07 us and a lone read of 1 MiB 961.9 us, so bytes of one
/// command come at (1 MiB - 4 KiB) / (961.9 us - 59.07 us) = 1,156.9 MB/s; the 55.5 us that are left
/// are flash and controller, in a split that is assumed. A lone write of 1 MiB takes 997.2 us.
///
/// Assumed: all commands together reach 3.2 GB/s reading and 2 GB/s writing, which is what a PCIe 3 x4
/// drive of that generation sells; 128 dies of 16 KiB pages programmed in 600 us; capacitors protect
/// its buffer, as on other drives of that class, so a flush is a command and no more.
///
/// Assumed, after Doekemeijer et al., "Performance characterization of NVMe flash devices with zoned
/// namespaces" (CLUSTER 2023), who measured this drive: resetting a full zone takes 16.19 ms; finishing one
/// takes 3.07 ms when it is nearly full and 907.51 ms when it is nearly empty, between them in proportion to
/// what is left, which is 1,248.6 MB/s.
pub(super) fn preset() -> Preset {
    let parameters = SsdParameters {
        capacity_bytes: 4 << 40,
        dies: 128,
        page_bytes: 16 << 10,
        page_read_nanos: 50_000,
        page_program_nanos: 600_000,
        suspend_nanos: 20_000,
        read_bytes_per_second: 3_200_000_000,
        write_bytes_per_second: 2_000_000_000,
        stream_read_bytes_per_second: 1_156_900_000,
        stream_write_bytes_per_second: 1_067_200_000,
        read_overhead_nanos: 5_500,
        write_overhead_nanos: 14_600,
        command_interval_nanos: 2_000,
        write_cache_bytes: 64 << 20,
        power_loss_protection: true,
        flush_nanos: 10_000,
        zone_reset_nanos: 16_190_000,
        zone_finish_nanos: 3_070_000,
        zone_finish_bytes_per_second: 1_248_600_000,
        queue_depth: 256,
    };
    // 1,039.6 and 1,002.8 MiB/s.
    let (read, write) = (1_090_099_610, 1_051_511_193);
    Preset {
        name: "zn540".to_owned(),
        description: "WD Ultrastar DC ZN540 4 TiB, NVMe, flash only (HHZS's drive)",
        sector_bytes: 4096,
        physical_sector_bytes: 4096,
        nominal: NominalPerformance {
            sequential_read_bytes_per_second: read,
            sequential_write_bytes_per_second: write,
            random_reads_per_second: 16_928,
        },
        promises: Promises {
            sequential_request_bytes: 1 << 20,
            sequential_depth: 1,
            outer_read_bytes_per_second: Some(read),
            outer_write_bytes_per_second: Some(write),
            average_read_bytes_per_second: Some(read),
            average_write_bytes_per_second: Some(write),
            random_reads_per_second: Some(16_928.3),
        },
        parameters: Arc::new(parameters),
        zones: Some(zones()),
    }
}

/// One of the drive's zones: 1,077 MiB of each 2 GiB are writable, and at most
/// 14 are open or active (HHZS, section 2.2, gives the capacity; the maker's data sheet the limits).
fn zones() -> ZoneGeometry {
    ZoneGeometry {
        zone_bytes: 2 << 30,
        zone_capacity_bytes: 1077 << 20,
        zone_count: 1,
        conventional_zones: 0,
        sequential_type: ZoneType::SequentialWriteRequired,
        open_zones_max: 14,
        active_zones_max: 14,
        track_overlap: None,
        media_cache: None,
        append_bytes_max: 0,
    }
}
