//! The numbers that make one disk different from another.

use super::mechanism::{LayoutZone, MechanismParameters};
use crate::protection::ProtectionTuple;

/// Which of the waiting requests the arm serves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// The one that came first.
    Fifo,
    /// The next by address, then from the beginning again.
    Elevator,
    /// The one with the shortest seek and rotation, less the time it has waited divided by
    /// `ageing_divisor`, so that none starves (aged shortest access time first: Jacobson and
    /// Wilkes, HPL-CSP-91-7, 1991).
    ShortestPositioning {
        /// Larger favours throughput, smaller favours old requests. 0 counts as 1.
        ageing_divisor: u64,
    },
}

/// Time the controller needs before it works on a command, by what the command is, whether the cache
/// can serve it, and what came before. (The distinctions are those of the DiskSim 4.0 reference
/// manual, CMU-PDL-08-101, section 3.6.1.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandOverhead {
    /// Read served by the cache, after a read.
    pub read_hit_after_read_nanos: u64,
    /// Read served by the cache, after a write.
    pub read_hit_after_write_nanos: u64,
    /// Read from the medium, after a read.
    pub read_miss_after_read_nanos: u64,
    /// Read from the medium, after a write.
    pub read_miss_after_write_nanos: u64,
    /// Write that continues what the cache holds, after a read.
    pub write_hit_after_read_nanos: u64,
    /// Write that continues what the cache holds, after a write.
    pub write_hit_after_write_nanos: u64,
    /// Any other write, after a read.
    pub write_miss_after_read_nanos: u64,
    /// Any other write, after a write.
    pub write_miss_after_write_nanos: u64,
}

impl CommandOverhead {
    /// The same time for every command.
    pub fn uniform(nanos: u64) -> Self {
        CommandOverhead {
            read_hit_after_read_nanos: nanos,
            read_hit_after_write_nanos: nanos,
            read_miss_after_read_nanos: nanos,
            read_miss_after_write_nanos: nanos,
            write_hit_after_read_nanos: nanos,
            write_hit_after_write_nanos: nanos,
            write_miss_after_read_nanos: nanos,
            write_miss_after_write_nanos: nanos,
        }
    }

    pub(super) fn nanos(&self, write: bool, hit: bool, after_write: bool) -> u64 {
        match (write, hit, after_write) {
            (false, true, false) => self.read_hit_after_read_nanos,
            (false, true, true) => self.read_hit_after_write_nanos,
            (false, false, false) => self.read_miss_after_read_nanos,
            (false, false, true) => self.read_miss_after_write_nanos,
            (true, true, false) => self.write_hit_after_read_nanos,
            (true, true, true) => self.write_hit_after_write_nanos,
            (true, false, false) => self.write_miss_after_read_nanos,
            (true, false, true) => self.write_miss_after_write_nanos,
        }
    }

    fn scaled(&self, divisor: u64) -> Self {
        CommandOverhead {
            read_hit_after_read_nanos: self.read_hit_after_read_nanos / divisor,
            read_hit_after_write_nanos: self.read_hit_after_write_nanos / divisor,
            read_miss_after_read_nanos: self.read_miss_after_read_nanos / divisor,
            read_miss_after_write_nanos: self.read_miss_after_write_nanos / divisor,
            write_hit_after_read_nanos: self.write_hit_after_read_nanos / divisor,
            write_hit_after_write_nanos: self.write_hit_after_write_nanos / divisor,
            write_miss_after_read_nanos: self.write_miss_after_read_nanos / divisor,
            write_miss_after_write_nanos: self.write_miss_after_write_nanos / divisor,
        }
    }
}

/// The disk's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCacheParameters {
    /// Space for writes that are not on the medium yet; 0 writes through.
    pub write_bytes: u64,
    /// How long the host must be quiet before the cache is written back unasked.
    pub destage_delay_nanos: u64,
    /// Unwritten bytes at which writing back begins without that delay, when nothing else wants the
    /// arm; it then goes on until none are left.
    pub destage_begin_bytes: u64,
    /// Unwritten bytes at which writing back becomes urgent; it stays so until half as many are left.
    pub destage_urgent_bytes: u64,
    /// When reads and urgent write-back want the arm, they alternate, each for this long.
    pub contention_slice_nanos: u64,
    /// Runs of consecutive bytes the read cache keeps; 0 keeps none.
    pub read_segments: usize,
    /// Most bytes of one run.
    pub read_segment_bytes: u64,
    /// How far the disk reads on behind a read while nothing else wants the arm.
    pub read_ahead_bytes: u64,
    /// Resumes reading ahead when the host has consumed more than half of what was read ahead.
    pub read_ahead_on_hit: bool,
    /// Keeps written bytes in the read cache after they are on the medium.
    pub keeps_written: bool,
}

/// The part of `bytes` that is data where eight bytes follow every `interval_bytes`.
pub(crate) fn data_share(bytes: u64, interval_bytes: u32) -> u64 {
    let (interval, tuple) = (u128::from(interval_bytes.max(1)), ProtectionTuple::BYTES as u128);
    // A part of a u64.
    (u128::from(bytes) * interval / (interval + tuple)) as u64
}

/// Everything about one disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParameters {
    /// Platters and arm.
    pub mechanism: MechanismParameters,
    /// Smallest addressable unit.
    pub sector_bytes: u64,
    /// Unit of the medium; writing less costs a further rotation.
    pub physical_sector_bytes: u64,
    /// Rate between host and disk.
    pub link_bytes_per_second: u64,
    /// Time before working on a command.
    pub overhead: CommandOverhead,
    /// The disk's memory.
    pub cache: DiskCacheParameters,
    /// Requests the scheduler chooses from.
    pub queue_depth: u32,
    /// How it chooses.
    pub scheduling: Scheduling,
}

impl DiskParameters {
    /// Addressable bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.mechanism.zones.iter().map(|zone| zone.data_bytes).sum()
    }

    /// The similar disk with every size and every time divided by `divisor`; rates stay. Cylinders,
    /// segments and the queue stay as many as they are; sectors stay as large.
    pub fn scaled(&self, divisor: u64) -> Self {
        let divisor = divisor.max(1);
        let physical = self.physical_sector_bytes.max(1);
        let mut scaled = self.clone();
        let mechanism = &mut scaled.mechanism;
        mechanism.rotation_nanos /= divisor;
        mechanism.seek = mechanism.seek.scaled(divisor);
        mechanism.head_switch_nanos /= divisor;
        mechanism.write_settle_nanos /= divisor;
        for zone in &mut mechanism.zones {
            zone.track_bytes = (zone.track_bytes / divisor).max(1);
            zone.data_bytes = (zone.data_bytes / divisor / physical * physical).max(physical);
            // What was rounded off the switches shall not make them longer than the skews.
            zone.track_skew_nanos = zone.track_skew_nanos / divisor + 2;
            zone.cylinder_skew_nanos = zone.cylinder_skew_nanos / divisor + 2;
        }
        scaled.overhead = self.overhead.scaled(divisor);
        let cache = &mut scaled.cache;
        cache.write_bytes = cache.write_bytes / divisor / physical * physical;
        cache.destage_delay_nanos /= divisor;
        cache.destage_begin_bytes /= divisor;
        cache.destage_urgent_bytes /= divisor;
        cache.contention_slice_nanos /= divisor;
        cache.read_segment_bytes /= divisor;
        cache.read_ahead_bytes /= divisor;
        scaled
    }

    /// The same disk with its read and write caches off: every read waits for the platter, and every write goes there at once.
    pub fn without_caches(&self) -> Self {
        let cache = DiskCacheParameters {
            write_bytes: 0,
            read_segments: 0,
            read_segment_bytes: 0,
            read_ahead_bytes: 0,
            read_ahead_on_hit: false,
            keeps_written: false,
            ..self.cache
        };
        DiskParameters { cache, ..self.clone() }
    }

    /// The same disk with eight bytes of protection information behind every `interval_bytes` of its data. Tracks hold less data, so a
    /// sector takes longer under the head by this ratio; there are as many cylinders more as the same capacity needs.
    pub fn with_protection(&self, interval_bytes: u32) -> Self {
        let surfaces = self.mechanism.surfaces.max(1);
        let mut changed = self.clone();
        for zone in &mut changed.mechanism.zones {
            zone.track_bytes = data_share(zone.track_bytes, interval_bytes).max(1);
            zone.cylinders = zone.cylinders.max(zone.data_bytes.div_ceil(zone.track_bytes).div_ceil(surfaces));
        }
        changed
    }

    /// The same disk with another capacity: every zone gets its share, tracks stay as long and as
    /// fast, and the seek curve is stretched over the cylinders there are (see
    /// [`MechanismParameters::stroke_cylinders`]). So a 100 GB cut of a 500 GB disk streams and
    /// positions like the whole one; it is not the fast outer fifth.
    pub fn with_capacity(&self, capacity_bytes: u64) -> Self {
        let physical = u128::from(self.physical_sector_bytes.max(1));
        let own = u128::from(self.capacity_bytes().max(1));
        let surfaces = self.mechanism.surfaces.max(1);
        let mut changed = self.clone();
        let (mut own_before, mut given) = (0u128, 0u64);
        for zone in &mut changed.mechanism.zones {
            own_before += u128::from(zone.data_bytes);
            let until = own_before * u128::from(capacity_bytes) / own;
            let until = if own_before == own { u128::from(capacity_bytes) } else { until / physical * physical };
            let until = until as u64;
            let data_bytes = until - given;
            given = until;
            *zone = LayoutZone {
                cylinders: data_bytes.div_ceil(zone.track_bytes.max(1)).div_ceil(surfaces),
                data_bytes,
                ..zone.clone()
            };
        }
        changed
    }
}
