//! An NVMe solid-state drive: Samsung 970 EVO Plus 1 TB.

use super::{Preset, Promises};
use crate::device::NominalPerformance;
use crate::emulated::SsdParameters;
use std::sync::Arc;

/// Source: Samsung 970 EVO Plus data sheet, 1 TB: sequential 3,500 MB/s read, 3,300 MB/s write; random
/// 4 KiB at queue depth 1 19,000 reads/s and 60,000 writes/s; at 32 and four threads 600,000 and 550,000.
///
/// Derived: a lone read takes 52.6 us, of which 4 KiB take 1.2 us on the link; the split of the rest
/// between flash and controller is assumed. A lone write takes 16.7 us.
///
/// Assumed: 64 dies of 16 KiB pages, programmed in 300 us (writes go to cells used with one bit
/// first; the 1,700 MB/s the data sheet gives once those are full are not modelled); 64 MiB of the
/// DRAM buffer hold writes; a flush costs 0.5 ms beside the programming;
/// with zones, which it has not, their commands cost what they cost the ZN540.
pub(super) fn preset() -> Preset {
    let parameters = SsdParameters {
        capacity_bytes: 1_000_204_886_016,
        dies: 64,
        page_bytes: 16 << 10,
        page_read_nanos: 43_000,
        page_program_nanos: 300_000,
        suspend_nanos: 20_000,
        read_bytes_per_second: 3_500_000_000,
        write_bytes_per_second: 3_300_000_000,
        stream_read_bytes_per_second: 3_500_000_000,
        stream_write_bytes_per_second: 3_500_000_000,
        read_overhead_nanos: 8_300,
        write_overhead_nanos: 15_400,
        command_interval_nanos: 1_600,
        write_cache_bytes: 64 << 20,
        power_loss_protection: false,
        flush_nanos: 500_000,
        zone_reset_nanos: 16_190_000,
        zone_finish_nanos: 3_070_000,
        zone_finish_bytes_per_second: 1_248_600_000,
        queue_depth: 256,
    };
    Preset {
        name: "nvme-ssd".to_owned(),
        description: "Samsung 970 EVO Plus 1 TB, NVMe",
        sector_bytes: 512,
        physical_sector_bytes: 4096,
        nominal: NominalPerformance {
            sequential_read_bytes_per_second: 3_500_000_000,
            sequential_write_bytes_per_second: 3_300_000_000,
            random_reads_per_second: 19_000,
        },
        promises: Promises {
            sequential_request_bytes: 128 << 10,
            sequential_depth: 32,
            outer_read_bytes_per_second: Some(3_500_000_000),
            outer_write_bytes_per_second: Some(3_300_000_000),
            average_read_bytes_per_second: Some(3_500_000_000),
            average_write_bytes_per_second: Some(3_300_000_000),
            random_reads_per_second: Some(19_000.0),
        },
        parameters: Arc::new(parameters),
        zones: None,
    }
}
