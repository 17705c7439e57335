//! A SATA solid-state drive: Samsung 850 EVO 1 TB.

use super::data_sheet::SATA_6G_BYTES_PER_SECOND;
use super::{Preset, Promises};
use crate::device::NominalPerformance;
use crate::emulated::SsdParameters;
use std::sync::Arc;

/// Source: Samsung 850 EVO data sheet, 1 TB: sequential 540 MB/s read, 520 MB/s write; random 4 KiB
/// at queue depth 1 10,000 reads/s and 40,000 writes/s; at 32 98,000 and 90,000.
///
/// Derived: a lone read takes 100 us, of which 4 KiB take 8 us on the link; the split of the rest
/// between flash (TLC, 60 to 90 us) and controller is assumed. A lone write takes 25 us.
///
/// Assumed: 64 dies of 16 KiB pages programmed in 1.5 ms (TLC); 32 MiB of the DRAM buffer hold
/// writes; a flush costs 0.5 ms beside the programming;
/// with zones, which it has not, their commands cost what they cost the ZN540.
pub(super) fn preset() -> Preset {
    let parameters = SsdParameters {
        capacity_bytes: 1_000_204_886_016,
        dies: 64,
        page_bytes: 16 << 10,
        page_read_nanos: 75_000,
        page_program_nanos: 1_500_000,
        suspend_nanos: 30_000,
        read_bytes_per_second: 540_000_000,
        write_bytes_per_second: 520_000_000,
        stream_read_bytes_per_second: SATA_6G_BYTES_PER_SECOND,
        stream_write_bytes_per_second: SATA_6G_BYTES_PER_SECOND,
        read_overhead_nanos: 17_000,
        write_overhead_nanos: 17_000,
        command_interval_nanos: 10_000,
        write_cache_bytes: 32 << 20,
        power_loss_protection: false,
        flush_nanos: 500_000,
        zone_reset_nanos: 16_190_000,
        zone_finish_nanos: 3_070_000,
        zone_finish_bytes_per_second: 1_248_600_000,
        queue_depth: 32,
    };
    Preset {
        name: "sata-ssd".to_owned(),
        description: "Samsung 850 EVO 1 TB, SATA",
        sector_bytes: 512,
        physical_sector_bytes: 4096,
        nominal: NominalPerformance {
            sequential_read_bytes_per_second: 540_000_000,
            sequential_write_bytes_per_second: 520_000_000,
            random_reads_per_second: 10_000,
        },
        promises: Promises {
            sequential_request_bytes: 128 << 10,
            sequential_depth: 32,
            outer_read_bytes_per_second: Some(540_000_000),
            outer_write_bytes_per_second: Some(520_000_000),
            average_read_bytes_per_second: Some(540_000_000),
            average_write_bytes_per_second: Some(520_000_000),
            random_reads_per_second: Some(10_000.0),
        },
        parameters: Arc::new(parameters),
        zones: None,
    }
}
