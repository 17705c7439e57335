//! What a request to a medium takes.

use varve_media::{Capabilities, NominalPerformance};

/// Bytes of the random reads that data sheets count.
const COUNTED_READ_BYTES: u64 = 4096;

/// What a request to a medium takes, by value: from its data sheet, or typical of its kind where it states nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// Time to reach another place, without the transfer, in nanoseconds.
    pub positioning_nanos: u64,
    /// Sequential read rate, in bytes per second; at least 1.
    pub read_bytes_per_second: u64,
}

impl AccessTimes {
    /// Those of a device of these capabilities.
    pub fn of(capabilities: &Capabilities) -> AccessTimes {
        AccessTimes::promised(capabilities.nominal).unwrap_or_else(|| AccessTimes::typical(capabilities.rotational))
    }

    /// Those of a medium that states nothing but whether it rotates.
    pub fn typical(rotational: bool) -> AccessTimes {
        let none = AccessTimes { positioning_nanos: 0, read_bytes_per_second: 1 };
        AccessTimes::promised(Some(NominalPerformance::typical(rotational))).unwrap_or(none)
    }

    /// Those that rates come to; `None` where one is missing.
    fn promised(nominal: Option<NominalPerformance>) -> Option<AccessTimes> {
        let nominal = nominal?;
        let rate = nominal.sequential_read_bytes_per_second;
        let read_nanos = 1_000_000_000_u64.checked_div(nominal.random_reads_per_second)?;
        let transfer_nanos = COUNTED_READ_BYTES.saturating_mul(1_000_000_000).checked_div(rate)?;
        Some(AccessTimes { positioning_nanos: read_nanos.saturating_sub(transfer_nanos), read_bytes_per_second: rate })
    }

    /// Bytes that are transferred in the time of one positioning: a request of this size spends half of its time on each.
    pub fn bytes_per_positioning(&self) -> u64 {
        let bytes = u128::from(self.positioning_nanos) * u128::from(self.read_bytes_per_second) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(random_reads_per_second: u64, rate: u64) -> AccessTimes {
        let nominal = NominalPerformance {
            sequential_read_bytes_per_second: rate,
            sequential_write_bytes_per_second: rate,
            random_reads_per_second,
        };
        AccessTimes::of(&Capabilities { nominal: Some(nominal), ..Capabilities::of_blocks() })
    }

    #[test]
    fn positioning_is_a_random_read_without_its_transfer() {
        // 100 reads a second are 10 ms each; 4,096 bytes at 200 MB/s take 20.48 us of them.
        let disk = stated(100, 200_000_000);
        assert_eq!(disk, AccessTimes { positioning_nanos: 9_979_520, read_bytes_per_second: 200_000_000 });
        assert_eq!(disk.bytes_per_positioning(), 1_995_904);
        assert_eq!(stated(u64::MAX, 1).positioning_nanos, 0, "a drive that claims what cannot be");
        assert_eq!(stated(0, 1), AccessTimes::typical(false));
        assert_eq!(stated(1, 0), AccessTimes::typical(false));
        let unknown = Capabilities { rotational: true, ..Capabilities::of_blocks() };
        assert_eq!(AccessTimes::of(&unknown), AccessTimes::typical(true));
        assert!(AccessTimes { positioning_nanos: u64::MAX, ..disk }.bytes_per_positioning() > 1 << 40);
    }
}
