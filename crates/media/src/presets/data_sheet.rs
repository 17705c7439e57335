//! A modern disk's parameters from the few numbers its data sheet gives.

use super::{Preset, Promises};
use crate::device::NominalPerformance;
use crate::emulated::{
    CommandOverhead, DiskCacheParameters, DiskParameters, LayoutZone, MechanismParameters, Scheduling, SeekCurve,
    SurfaceOrder,
};
use std::sync::Arc;

/// Zones of a disk whose maker does not publish them. Real ones have 15 to 30; more only smooth
/// the steps.
const ZONES: u64 = 16;

/// What data sheets give, and the few things they do not.
pub(super) struct DataSheet {
    pub(super) capacity_bytes: u64,
    pub(super) rotations_per_minute: u64,
    pub(super) surfaces: u64,
    /// Sustained rate of the outermost zone.
    pub(super) outer_bytes_per_second: u64,
    /// Capacity over the time to read it all. Rates fall linearly from zone to zone.
    pub(super) average_bytes_per_second: u64,
    pub(super) seek: Seek,
    /// Average write seek less average read seek.
    pub(super) write_settle_nanos: u64,
    pub(super) cache_bytes: u64,
    pub(super) physical_sector_bytes: u64,
    pub(super) queue_depth: u32,
}

/// How the arm's speed is known.
pub(super) enum Seek {
    /// Shortest, average and longest read seek.
    Averages { shortest_nanos: u64, average_nanos: u64, longest_nanos: u64 },
    /// A curve, and the cylinders it is for.
    Curve { curve: SeekCurve, cylinders: u64 },
}

/// Rate of the link of SATA at 6 Gbit/s after its 8b/10b coding; frames and primitives cost about
/// 8%: 600 MB/s give 550 MB/s of data, which is what the fastest SATA devices sell.
pub(super) const SATA_6G_BYTES_PER_SECOND: u64 = 550_000_000;

/// Time to change heads within a cylinder. Not in data sheets; the servo must find the new surface's
/// track, which on drives of these densities takes about as long as the shortest seek.
const HEAD_SWITCH_NANOS: u64 = 800_000;

/// What the skews have above the switches they cover.
const SKEW_MARGIN_NANOS: u64 = 20_000;

/// Time from a command to its first effect, controller and link. Not in data sheets; a cached 4 KiB
/// read on SATA drives takes 0.1 to 0.2 ms.
const OVERHEAD_NANOS: u64 = 100_000;

impl DataSheet {
    pub(super) fn parameters(&self) -> DiskParameters {
        let rotation_nanos = 60_000_000_000 / self.rotations_per_minute;
        let seek_of = |cylinders: u64| match &self.seek {
            Seek::Averages { shortest_nanos, average_nanos, longest_nanos } => {
                SeekCurve::from_data_sheet(cylinders, *shortest_nanos, *average_nanos, *longest_nanos)
            }
            Seek::Curve { curve, .. } => curve.clone(),
        };
        // The skews cover the switches of reads and writes, so that streaming loses no revolution.
        let neighbour_nanos = seek_of(1 << 18).nanos(1).max(HEAD_SWITCH_NANOS);
        let track_skew_nanos = HEAD_SWITCH_NANOS + self.write_settle_nanos + SKEW_MARGIN_NANOS;
        let cylinder_skew_nanos = neighbour_nanos + self.write_settle_nanos + SKEW_MARGIN_NANOS;
        let cylinder_nanos =
            self.surfaces * rotation_nanos + (self.surfaces - 1) * track_skew_nanos + cylinder_skew_nanos;
        let inner = 2 * self.average_bytes_per_second - self.outer_bytes_per_second;
        let track_bytes_of = |zone: u64| {
            let fall = (self.outer_bytes_per_second - inner) * zone / (ZONES - 1);
            let rate = u128::from(self.outer_bytes_per_second - fall);
            let bytes = rate * u128::from(cylinder_nanos) / 1_000_000_000 / u128::from(self.surfaces);
            bytes as u64 / 512 * 512
        };
        let bytes_per_round: u64 = (0..ZONES).map(|zone| track_bytes_of(zone) * self.surfaces).sum();
        let cylinders_per_zone = self.capacity_bytes.div_ceil(bytes_per_round);
        let mut left = self.capacity_bytes;
        let zones: Vec<LayoutZone> = (0..ZONES)
            .map(|zone| {
                let track_bytes = track_bytes_of(zone);
                let whole = cylinders_per_zone * self.surfaces * track_bytes;
                let whole = whole / self.physical_sector_bytes * self.physical_sector_bytes;
                let data_bytes = if zone + 1 == ZONES { left } else { whole.min(left) };
                left -= data_bytes;
                LayoutZone {
                    cylinders: cylinders_per_zone,
                    track_bytes,
                    data_bytes,
                    track_skew_nanos,
                    cylinder_skew_nanos,
                }
            })
            .collect();
        let cylinders = cylinders_per_zone * ZONES;
        let stroke_cylinders = match &self.seek {
            Seek::Averages { .. } => cylinders,
            Seek::Curve { cylinders, .. } => *cylinders,
        };
        DiskParameters {
            mechanism: MechanismParameters {
                rotation_nanos,
                surfaces: self.surfaces,
                surface_order: SurfaceOrder::Forward,
                zones,
                seek: seek_of(cylinders),
                stroke_cylinders,
                head_switch_nanos: HEAD_SWITCH_NANOS,
                write_settle_nanos: self.write_settle_nanos,
            },
            sector_bytes: 512,
            physical_sector_bytes: self.physical_sector_bytes,
            link_bytes_per_second: SATA_6G_BYTES_PER_SECOND,
            overhead: CommandOverhead::uniform(OVERHEAD_NANOS),
            cache: self.cache(),
            queue_depth: self.queue_depth,
            scheduling: Scheduling::ShortestPositioning { ageing_divisor: 16 },
        }
    }

    /// How makers divide the cache is not published. Assumed: half of it takes writes, a quarter of
    /// it makes read segments of 1 MiB at most; the rest is firmware and tables.
    fn cache(&self) -> DiskCacheParameters {
        let write_bytes = self.cache_bytes / 2;
        let read_segment_bytes = (self.cache_bytes / 4 / 8).min(1 << 20);
        DiskCacheParameters {
            write_bytes,
            destage_delay_nanos: 20_000_000,
            destage_begin_bytes: (write_bytes / 4).min(8 << 20),
            destage_urgent_bytes: write_bytes / 2,
            contention_slice_nanos: 30_000_000,
            read_segments: (self.cache_bytes / 4 / read_segment_bytes) as usize,
            read_segment_bytes,
            read_ahead_bytes: read_segment_bytes / 2,
            read_ahead_on_hit: true,
            keeps_written: false,
        }
    }

    pub(super) fn preset(&self, name: &str, description: &'static str, promises: Promises) -> Preset {
        let average_seek_nanos = match &self.seek {
            Seek::Averages { average_nanos, .. } => *average_nanos,
            Seek::Curve { curve, cylinders } => mean_seek_nanos(curve, *cylinders),
        };
        let half_turn_nanos = 30_000_000_000 / self.rotations_per_minute;
        let random_reads = 1_000_000_000 / (average_seek_nanos + half_turn_nanos + OVERHEAD_NANOS);
        Preset {
            name: name.to_owned(),
            description,
            sector_bytes: 512,
            physical_sector_bytes: self.physical_sector_bytes as u32,
            nominal: NominalPerformance {
                sequential_read_bytes_per_second: self.average_bytes_per_second,
                sequential_write_bytes_per_second: self.average_bytes_per_second,
                random_reads_per_second: random_reads,
            },
            promises,
            parameters: Arc::new(self.parameters()),
            zones: None,
        }
    }
}

/// Mean over all pairs of cylinders.
pub(super) fn mean_seek_nanos(curve: &SeekCurve, cylinders: u64) -> u64 {
    let samples = 1_000u128;
    let weighted = (0..samples).map(|sample| {
        let distance = u128::from(cylinders) * (2 * sample + 1) / (2 * samples);
        u128::from(curve.nanos(distance as u64)) * (2 * (samples - sample) - 1)
    });
    (weighted.sum::<u128>() / (samples * samples)) as u64
}
