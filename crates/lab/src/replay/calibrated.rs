//! Requests like those of a trace of which only sums are published: synthetic, and called so wherever shown.

use super::request::BlockRequest;
use super::synthetic::Zones;
use crate::error::LabError;
use crate::generator::{exp, ln};
use varve::env::Random;

/// What is known of a trace (Zhang, table 4.3 and section 4.5), and what is not, which is a named guess.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibrated {
    /// Name of the trace.
    pub name: &'static str,
    /// Writes, nearly all out of order. Published.
    pub writes: u64,
    /// Bytes of these. Published.
    pub written_bytes: u64,
    /// Writes to ten thousand requests. Published.
    pub write_basis_points: u64,
    /// Zones of the device, and how many of them are written. Published.
    pub zones: Zones,
    /// From the first to the last request: the traces of Microsoft Research Cambridge are of a week.
    pub duration_seconds: u64,
    /// Requests come in bursts of so many in the mean. A guess.
    pub burst_requests: u64,
    /// Time between the requests of a burst. A guess.
    pub burst_interval_nanos: u64,
    /// How much the number of bursts differs from one window to the next: the deviation of its logarithm. A guess.
    pub window_deviation: f64,
    /// Length of such a window: the figure of proj_1 counts requests for each 100 s.
    pub window_seconds: u64,
    /// Bytes of a read. A guess.
    pub read_bytes: u32,
    /// Hundredths of the reads that go on where the one before ended. A guess.
    pub sequential_read_percent: u64,
    /// Hundredths of the writes that go over one of the last `rewritten_among`. A guess.
    pub rewritten_percent: u64,
    /// Writes that are written over again.
    pub rewritten_among: u64,
    /// Requests go to the zones by Zipf's law with exponent 1, instead of to each as often. A guess.
    pub zipfian_zones: bool,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Sizes of writes, in sectors of 4 KiB: small ones, and as many large ones as give the mean.
const SMALL_BYTES: u64 = 4096;
const LARGE_BYTES: u64 = 32 << 10;

impl Calibrated {
    /// Requests there are.
    pub fn requests(&self) -> u64 {
        self.writes * 10_000 / self.write_basis_points.max(1)
    }

    /// The zones that are written. They are to be full before.
    ///
    /// # Errors
    /// More zones than the device has.
    pub fn non_sequential_zones(&self) -> Result<Vec<u64>, LabError> {
        let Zones { zone_count, non_sequential, .. } = self.zones;
        if non_sequential == 0 || non_sequential > zone_count {
            return Err(LabError::invalid("zones", format!("{non_sequential} of a device of {zone_count}")));
        }
        Ok((0..non_sequential).map(|number| number * zone_count / non_sequential).collect())
    }

    /// Requests in each window, in order: as many in all as there are.
    fn windows(&self, random: &mut Random) -> Vec<u64> {
        let count = (self.duration_seconds / self.window_seconds.max(1)).max(1);
        let weights: Vec<f64> = (0..count)
            .map(|_| {
                // The sum of twelve even draws is nearly normal.
                let normal: f64 = (0..12).map(|_| random.unit_f64()).sum::<f64>() - 6.0;
                exp(normal * self.window_deviation)
            })
            .collect();
        let total: f64 = weights.iter().sum();
        let mut until = 0.0;
        let mut given = 0;
        weights
            .into_iter()
            .map(|weight| {
                until += weight;
                let upto = ((until / total) * self.requests() as f64) as u64;
                let own = upto.saturating_sub(given);
                given = upto.max(given);
                own
            })
            .collect()
    }

    /// The requests, in order of arrival.
    ///
    /// # Errors
    /// As [`Calibrated::non_sequential_zones`].
    pub fn generate(&self) -> Result<Vec<BlockRequest>, LabError> {
        let zones = self.non_sequential_zones()?;
        let mut random = Random::named(self.seed, self.name);
        let zone_bytes = self.zones.zone_bytes;
        let mean_bytes = (self.written_bytes / self.writes.max(1)).clamp(SMALL_BYTES, LARGE_BYTES);
        // As many large ones as give the mean.
        let large_share = (mean_bytes - SMALL_BYTES) * 10_000 / (LARGE_BYTES - SMALL_BYTES);
        let mut requests = Vec::with_capacity(self.requests() as usize);
        let mut next_read = 0;
        let mut recent: Vec<(u64, u64)> = Vec::new();
        let mut oldest = 0;
        let window_nanos = self.window_seconds * 1_000_000_000;
        // Sums of the weights of the zones so far.
        let weights = (1..=zones.len()).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        let sums: Vec<f64> = if self.zipfian_zones { weights.collect() } else { Vec::new() };
        for (number, count) in self.windows(&mut random).into_iter().enumerate() {
            let begin = number as u64 * window_nanos;
            let mut arrivals = Vec::with_capacity(count as usize);
            while (arrivals.len() as u64) < count {
                let mut at = begin + random.below(window_nanos);
                // Geometric with this mean.
                let draw = 1.0 - random.unit_f64();
                let mean = self.burst_requests.max(1) as f64;
                let length = if mean <= 1.0 { 1.0 } else { 1.0 + (ln(draw) / ln(1.0 - 1.0 / mean)).min(10.0 * mean) };
                for _ in 0..(length as u64).min(count - arrivals.len() as u64) {
                    arrivals.push(at);
                    at += self.burst_interval_nanos;
                }
            }
            arrivals.sort_unstable();
            for arrival_nanos in arrivals {
                let is_write = random.below(10_000) < self.write_basis_points;
                let zone = match sums.last() {
                    Some(total) => {
                        let drawn = random.unit_f64() * total;
                        zones[sums.partition_point(|sum| *sum <= drawn).min(zones.len() - 1)]
                    }
                    None => zones[random.index(zones.len())],
                };
                let length = match is_write {
                    true if random.below(10_000) < large_share => LARGE_BYTES,
                    true => SMALL_BYTES,
                    false => u64::from(self.read_bytes),
                };
                let places = (zone_bytes - length.min(zone_bytes)) / SMALL_BYTES + 1;
                let goes_on = !is_write && random.below(100) < self.sequential_read_percent;
                let end_bytes = self.zones.zone_count * zone_bytes;
                let offset_bytes = match goes_on && next_read + length <= end_bytes {
                    true => next_read,
                    false => zone * zone_bytes + random.below(places) * SMALL_BYTES,
                };
                let (offset_bytes, length) = match is_write && self.rewritten_percent > 0 {
                    true if !recent.is_empty() && random.below(100) < self.rewritten_percent => {
                        recent[random.index(recent.len())]
                    }
                    true => {
                        match (recent.len() as u64) < self.rewritten_among.max(1) {
                            true => recent.push((offset_bytes, length)),
                            false => {
                                recent[oldest] = (offset_bytes, length);
                                oldest = (oldest + 1) % recent.len();
                            }
                        }
                        (offset_bytes, length)
                    }
                    false => (offset_bytes, length),
                };
                if !is_write {
                    next_read = offset_bytes + length;
                }
                let length_bytes = length as u32;
                requests.push(BlockRequest {
                    arrival_nanos,
                    is_write,
                    offset_bytes,
                    length_bytes,
                    latency_nanos: None,
                });
            }
        }
        // A burst may go on in the next window.
        requests.sort_by_key(|request| request.arrival_nanos);
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibrated() -> Calibrated {
        Calibrated {
            name: "test",
            writes: 20_000,
            written_bytes: 20_000 * 10_243,
            write_basis_points: 1056,
            zones: Zones { zone_bytes: 256 << 20, zone_count: 300, non_sequential: 15 },
            duration_seconds: 10_000,
            burst_requests: 8,
            burst_interval_nanos: 500_000,
            window_deviation: 1.0,
            window_seconds: 100,
            read_bytes: 32 << 10,
            sequential_read_percent: 60,
            rewritten_percent: 0,
            rewritten_among: 0,
            zipfian_zones: false,
            seed: 1,
        }
    }

    #[test]
    fn sums_are_those_published() {
        let requests = calibrated().generate().unwrap();
        assert!(requests.len().abs_diff(189_393) < 10, "{}", requests.len());
        assert!(requests.windows(2).all(|pair| pair[0].arrival_nanos <= pair[1].arrival_nanos));
        let writes: Vec<&BlockRequest> = requests.iter().filter(|request| request.is_write).collect();
        assert!((19_400..20_600).contains(&writes.len()), "{}", writes.len());
        let mean = writes.iter().map(|write| u64::from(write.length_bytes)).sum::<u64>() / writes.len() as u64;
        assert!((9_900..10_600).contains(&mean), "{mean}");
        let zones: std::collections::BTreeSet<u64> = writes.iter().map(|write| write.offset_bytes >> 28).collect();
        assert_eq!(zones.len(), 15);
        // Some windows have many times the requests of others.
        let mut counts = vec![0; 100];
        requests.iter().for_each(|request| counts[((request.arrival_nanos / 100_000_000_000) as usize).min(99)] += 1);
        counts.sort_unstable();
        assert!(counts[95] > 5 * counts[20], "{counts:?}");
    }

    #[test]
    fn recent_writes_are_written_over() {
        let calibrated = Calibrated { rewritten_percent: 80, rewritten_among: 100, ..calibrated() };
        let requests = calibrated.generate().unwrap();
        let mut recent: Vec<u64> = Vec::new();
        let (mut again, mut writes) = (0, 0);
        for write in requests.iter().filter(|request| request.is_write) {
            again += usize::from(recent.contains(&write.offset_bytes));
            writes += 1;
            recent.push(write.offset_bytes);
            if recent.len() > 600 {
                recent.remove(0);
            }
        }
        assert!((0.75..0.82).contains(&(again as f64 / writes as f64)), "{again} of {writes}");
    }

    #[test]
    fn requests_are_in_order_though_bursts_go_on_in_the_next_window() {
        let calibrated = Calibrated { window_seconds: 1, burst_interval_nanos: 50_000_000, ..calibrated() };
        let requests = calibrated.generate().unwrap();
        assert!(requests.windows(2).all(|pair| pair[0].arrival_nanos <= pair[1].arrival_nanos));
    }
}
