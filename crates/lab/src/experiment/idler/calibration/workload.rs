//! The requests of the measured runs, as their logs and configurations show them.

use super::super::drive::ZONE_BYTES;
use crate::experiment::Scale;
use crate::replay::BlockRequest;
use std::ops::Range;
use varve::env::Random;

/// Conventional zones at the start of the ST8000AS0022.
pub(super) const CONVENTIONAL_ZONES: u32 = 64;

/// Requests of a run: 35 GiB of non-sequential writes of 1 MiB are one tenth of them.
const REQUESTS: u64 = 358_400;

/// Zones that non-sequential writes go to.
pub(super) const ZONES: u64 = 1024;

/// Place of the writes that are meant to be sequential, and the first zone of the non-sequential ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Non-sequential writes go to zones 64 to 1,087. The others go to zone 2,000, each 2 KiB behind the one before and so off the write
    /// pointer: they fill the media cache as well (`log-dependent-*`).
    Strided,
    /// Non-sequential writes go to zones 0 to 1,023, of which 64 are conventional. The others go to conventional zones (`log-1n1s8r-no`).
    Conventional,
}

/// Requests of one of the measured runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MeasuredWorkload {
    /// Time between two requests, drawn evenly, in nanoseconds.
    pub(super) interval_nanos: Range<u64>,
    pub(super) layout: Layout,
    /// Requests at full scale.
    pub(super) requests: u64,
    pub(super) scale: Scale,
    pub(super) seed: u64,
}

const REQUEST_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 4096;

/// Distance of two writes that are meant to be sequential.
const STRIDE_BYTES: u64 = 2048;

/// Share of reads that repeat one of the last reads or writes, in percent: about as many took less than 4 ms in `log-dependent-no`.
const REPEATED_READ_PERCENT: u64 = 34;
const REPEATED_AMONG: usize = 16;

impl MeasuredWorkload {
    /// A run of the full number of requests.
    pub(super) fn new(interval_nanos: Range<u64>, layout: Layout, scale: Scale, seed: u64) -> MeasuredWorkload {
        MeasuredWorkload { interval_nanos, layout, requests: REQUESTS, scale, seed }
    }

    pub(super) fn request_count(&self) -> u64 {
        self.scale.of(self.requests)
    }

    /// First zone of the non-sequential writes, and their number. At a scale a part of the conventional zones is among them, too.
    fn zones(&self) -> (u64, u64) {
        let conventional = u64::from(CONVENTIONAL_ZONES);
        let first = match self.layout {
            Layout::Strided => conventional,
            Layout::Conventional => conventional - self.scale.of(conventional),
        };
        (first, self.scale.of(ZONES))
    }

    /// Zones that are to be full before.
    pub(super) fn full_zones(&self) -> Vec<u64> {
        let (first, count) = self.zones();
        (first..first + count).filter(|&zone| zone >= u64::from(CONVENTIONAL_ZONES)).collect()
    }

    /// Zone of the writes that are meant to be sequential.
    fn strided_zone(&self) -> u64 {
        u64::from(CONVENTIONAL_ZONES) + self.scale.of(2000 - u64::from(CONVENTIONAL_ZONES))
    }

    /// The requests, in order of arrival.
    pub(super) fn generate(&self) -> Vec<BlockRequest> {
        let mut random = Random::named(self.seed, "measured runs");
        let (first, count) = self.zones();
        let spread = (self.interval_nanos.end - self.interval_nanos.start).max(1);
        let places = (ZONE_BYTES - REQUEST_BYTES) / SECTOR_BYTES + 1;
        let (mut arrival_nanos, mut strided_bytes) = (0, 0);
        let mut recent: Vec<u64> = Vec::with_capacity(REPEATED_AMONG);
        let mut requests = Vec::with_capacity(self.request_count() as usize);
        for number in 0..self.request_count() as usize {
            arrival_nanos += self.interval_nanos.start + random.below(spread);
            let kind = random.below(10);
            let anywhere = (first + random.below(count)) * ZONE_BYTES + random.below(places) * SECTOR_BYTES;
            let offset_bytes = match (kind, self.layout) {
                (1, Layout::Strided) => {
                    let at = strided_bytes / SECTOR_BYTES * SECTOR_BYTES;
                    strided_bytes = (strided_bytes + STRIDE_BYTES) % (ZONE_BYTES - REQUEST_BYTES);
                    self.strided_zone() * ZONE_BYTES + at
                }
                (1, Layout::Conventional) => {
                    random.below(CONVENTIONAL_ZONES.into()) * ZONE_BYTES + random.below(places) * SECTOR_BYTES
                }
                (2.., _) if !recent.is_empty() && random.below(100) < REPEATED_READ_PERCENT => {
                    recent[random.index(recent.len())]
                }
                _ => anywhere,
            };
            if recent.len() < REPEATED_AMONG {
                recent.push(offset_bytes);
            } else {
                recent[number % REPEATED_AMONG] = offset_bytes;
            }
            requests.push(BlockRequest {
                arrival_nanos,
                is_write: kind < 2,
                offset_bytes,
                length_bytes: REQUEST_BYTES as u32,
                latency_nanos: None,
            });
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts that `log-dependent-no` has in its first 12,497 requests: 1,250 writes of each kind, 727 zones, 1,000 s.
    #[test]
    fn requests_are_like_those_of_the_log() {
        let interval = 10_000_000..150_000_000;
        let workload = MeasuredWorkload::new(interval, Layout::Strided, Scale::FULL, 1);
        let requests = &workload.generate()[..12_497];
        let zone = |request: &BlockRequest| request.offset_bytes / ZONE_BYTES;
        let writes = requests.iter().filter(|request| request.is_write);
        let (strided, scattered): (Vec<_>, Vec<_>) = writes.partition(|request| zone(request) == 2000);
        assert!((1150..1350).contains(&strided.len()) && (1150..1350).contains(&scattered.len()));
        let zones: std::collections::BTreeSet<u64> = scattered.iter().map(zone).collect();
        assert!(zones.iter().all(|zone| (64..1088).contains(zone)) && (690..760).contains(&zones.len()));
        assert!((960..1040).contains(&(requests[12_496].arrival_nanos / 1_000_000_000)));
        assert!(strided.windows(2).all(|pair| pair[1].offset_bytes - pair[0].offset_bytes <= SECTOR_BYTES));
        assert_eq!(workload.full_zones().len(), 1024);
    }

    #[test]
    fn the_other_layout_has_conventional_zones() {
        let workload = MeasuredWorkload::new(30_000_000..30_000_000, Layout::Conventional, Scale::FULL, 1);
        assert_eq!(workload.full_zones(), (64..1024).collect::<Vec<u64>>());
        let requests = workload.generate();
        let writes: Vec<_> = requests.iter().filter(|request| request.is_write).collect();
        let cached = writes.iter().filter(|request| request.offset_bytes >= 64 * ZONE_BYTES).count();
        // 15 of 16 of those out of order, and none of the others.
        assert!((0.46..0.48).contains(&(cached as f64 / writes.len() as f64)), "{cached} of {}", writes.len());
        let scaled = MeasuredWorkload { scale: Scale::one_in(16), ..workload };
        assert_eq!((scaled.full_zones().len(), scaled.request_count()), (60, 22_400));
    }
}
