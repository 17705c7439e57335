//! How long accesses to persistent memory take.

use crate::device::NominalPerformance;

/// Bytes of a cache line, the unit of latency and of write-back.
pub(super) const LINE_BYTES: u32 = 64;

/// Latencies and rates of one kind of persistent memory.
///
/// The first line of an access costs its latency, each further line of the same access what it
/// takes at the rate: hardware prefetches sequences and overlaps their transfers. Reads cost when
/// they are made. Stores go to the processor's caches and cost nothing; their lines cost when they
/// are flushed. Lines found in the caches are not modelled: every access pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryModel {
    /// Name in specs.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Latency of a read of one line, in nanoseconds.
    pub read_nanos: u64,
    /// Latency of the write-back of one line, in nanoseconds.
    pub write_nanos: u64,
    /// Rate of further lines of a read.
    pub read_bytes_per_second: u64,
    /// Rate of further lines of a write-back.
    pub write_bytes_per_second: u64,
}

impl MemoryModel {
    /// DRAM with a battery or flash behind it, and the default. Latency: Zhang's thesis, section
    /// 3.5.3 (50 ns). Rate: derived, ten lines in flight (the line fill buffers of one core) in
    /// each latency.
    pub const NVDIMM: MemoryModel = MemoryModel {
        name: "nvdimm",
        summary: "DRAM that survives power cuts (NVDIMM-N)",
        read_nanos: 50,
        write_nanos: 50,
        read_bytes_per_second: 12_800_000_000,
        write_bytes_per_second: 12_800_000_000,
    };

    /// Phase-change memory. Latency: Zhang's thesis, section 3.5.3 (100 and 400 ns). Rate: derived
    /// like that of [`MemoryModel::NVDIMM`].
    pub const PCM: MemoryModel = MemoryModel {
        name: "pcm",
        summary: "phase-change memory",
        read_nanos: 100,
        write_nanos: 400,
        read_bytes_per_second: 6_400_000_000,
        write_bytes_per_second: 1_600_000_000,
    };

    /// An Intel Optane DC module. Source: Yang et al., "An Empirical Guide to the Behavior and Use
    /// of Scalable Persistent Memory", FAST '20: 305 ns for a random read, 90 ns for a store that
    /// is written back; 6.6 and 2.3 GB/s of one module.
    pub const OPTANE: MemoryModel = MemoryModel {
        name: "optane",
        summary: "one Intel Optane DC persistent memory module",
        read_nanos: 305,
        write_nanos: 90,
        read_bytes_per_second: 6_600_000_000,
        write_bytes_per_second: 2_300_000_000,
    };

    /// Memory with a battery behind a CXL link: about 200 ns. Rate: derived like that of
    /// [`MemoryModel::NVDIMM`].
    pub const CXL: MemoryModel = MemoryModel {
        name: "cxl",
        summary: "memory that survives power cuts behind a CXL link",
        read_nanos: 200,
        write_nanos: 200,
        read_bytes_per_second: 3_200_000_000,
        write_bytes_per_second: 3_200_000_000,
    };

    /// Every model.
    pub const ALL: [MemoryModel; 4] = [MemoryModel::NVDIMM, MemoryModel::PCM, MemoryModel::OPTANE, MemoryModel::CXL];

    /// The model of this name.
    pub fn find(name: &str) -> Option<MemoryModel> {
        MemoryModel::ALL.into_iter().find(|model| model.name == name)
    }

    /// Time of a read of this number of neighbouring lines, in nanoseconds.
    pub fn read_nanos_of(&self, lines: u64) -> u64 {
        access_nanos(lines, self.read_nanos, self.read_bytes_per_second)
    }

    /// Time of the write-back of this number of neighbouring lines, in nanoseconds.
    pub fn write_nanos_of(&self, lines: u64) -> u64 {
        access_nanos(lines, self.write_nanos, self.write_bytes_per_second)
    }

    /// Rates for policies that compare devices.
    pub fn nominal(&self) -> NominalPerformance {
        NominalPerformance {
            sequential_read_bytes_per_second: self.read_bytes_per_second,
            sequential_write_bytes_per_second: self.write_bytes_per_second,
            random_reads_per_second: 1_000_000_000 / self.read_nanos_of(4096 / u64::from(LINE_BYTES)).max(1),
        }
    }
}

fn access_nanos(lines: u64, latency_nanos: u64, bytes_per_second: u64) -> u64 {
    let Some(further) = lines.checked_sub(1) else { return 0 };
    let bytes = u128::from(further) * u128::from(LINE_BYTES);
    let transfer = bytes * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    latency_nanos.saturating_add(u64::try_from(transfer).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_latency_once_and_then_the_rate() {
        let optane = MemoryModel::OPTANE;
        assert_eq!((optane.read_nanos_of(0), optane.read_nanos_of(1), optane.write_nanos_of(1)), (0, 305, 90));
        // 64 KiB less one line at 6.6 GB/s.
        assert_eq!(optane.read_nanos_of(1024), 305 + 1023 * 64 * 10 / 66);
        assert_eq!(MemoryModel::PCM.write_nanos_of(11), 400 + 400);
        assert!(optane.read_nanos_of(u64::MAX) > 1 << 60);
    }

    #[test]
    fn finds_models_by_name() {
        for model in MemoryModel::ALL {
            assert_eq!(MemoryModel::find(model.name), Some(model));
            assert!(model.nominal().random_reads_per_second > 100_000);
        }
        assert_eq!(MemoryModel::find("dram"), None);
    }
}
