//! Requests that are made up: the generator of Zhang, section 4.3.2.

use super::request::BlockRequest;
use crate::error::LabError;
use std::ops::Range;
use varve::env::Random;

/// Where a device has its zones, and which of them a workload uses how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Zones on the device.
    pub zone_count: u64,
    /// Zones that are written out of order, spread over the device.
    pub non_sequential: u64,
}

/// A workload of requests of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Time from one request to the next, drawn evenly from this range.
    pub interval_nanos: Range<u64>,
    /// Hundredths of the requests that are writes out of order.
    pub non_sequential_percent: u64,
    /// Hundredths that are writes in order; the rest are reads, anywhere.
    pub sequential_percent: u64,
    /// Bytes written out of order, all together.
    pub non_sequential_bytes: u64,
    /// Where.
    pub zones: Zones,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Synthetic {
    /// Requests there are.
    pub fn requests(&self) -> u64 {
        let writes = self.non_sequential_bytes / u64::from(self.request_bytes.max(1));
        writes * 100 / self.non_sequential_percent.max(1)
    }

    /// Zones at the end of the device for what is written in order, in turns: each is written seldom enough for its writes to stay
    /// in order where threads overtake each other.
    fn sequential_zones(&self) -> u64 {
        let bytes = self.requests() * self.sequential_percent / 100 * u64::from(self.request_bytes);
        // A few more than needed: kinds are drawn, and zones are whole requests.
        bytes / self.zones.zone_bytes.max(1) * 5 / 4 + 4
    }

    /// The zones that are written out of order. They are to be full before, so that each write is one.
    ///
    /// # Errors
    /// More zones than the device has.
    pub fn non_sequential_zones(&self) -> Result<Vec<u64>, LabError> {
        let Zones { zone_count, non_sequential, .. } = self.zones;
        let usable = zone_count.saturating_sub(self.sequential_zones());
        if non_sequential == 0 || non_sequential > usable {
            let wanted = format!("{non_sequential} zones of {usable} of a device of {zone_count}");
            return Err(LabError::invalid("zones", wanted));
        }
        Ok((0..non_sequential).map(|number| number * usable / non_sequential).collect())
    }

    /// The requests, in order of arrival.
    ///
    /// # Errors
    /// As [`Synthetic::non_sequential_zones`].
    pub fn generate(&self) -> Result<Vec<BlockRequest>, LabError> {
        let zones = self.non_sequential_zones()?;
        let Zones { zone_bytes, zone_count, .. } = self.zones;
        let mut random = Random::named(self.seed, "synthetic trace");
        let size = u64::from(self.request_bytes.max(1));
        let places = (zone_bytes / size).max(1);
        let in_order = self.sequential_zones();
        let mut written_in_order = 0;
        let mut arrival_nanos = 0;
        let spread = (self.interval_nanos.end - self.interval_nanos.start).max(1);
        let mut requests = Vec::with_capacity(self.requests() as usize);
        for _ in 0..self.requests() {
            let kind = random.below(100);
            let (is_write, offset_bytes) = if kind < self.non_sequential_percent {
                let zone = zones[random.index(zones.len())];
                (true, zone * zone_bytes + random.below(places) * size)
            } else if kind < self.non_sequential_percent + self.sequential_percent {
                let (zone, place) = (written_in_order % in_order, written_in_order / in_order);
                written_in_order += 1;
                (true, (zone_count - in_order + zone) * zone_bytes + place.min(places - 1) * size)
            } else {
                (false, random.below(zone_count) * zone_bytes + random.below(places) * size)
            };
            let length_bytes = self.request_bytes;
            requests.push(BlockRequest { arrival_nanos, is_write, offset_bytes, length_bytes, latency_nanos: None });
            arrival_nanos += self.interval_nanos.start + random.below(spread);
        }
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_asked_for() {
        let synthetic = Synthetic {
            request_bytes: 1 << 20,
            interval_nanos: 10_000_000..100_000_000,
            non_sequential_percent: 10,
            sequential_percent: 10,
            non_sequential_bytes: 500 << 20,
            zones: Zones { zone_bytes: 256 << 20, zone_count: 200, non_sequential: 64 },
            seed: 1,
        };
        let (requests, zones) = (synthetic.generate().unwrap(), synthetic.non_sequential_zones().unwrap());
        assert_eq!((requests.len(), zones.len()), (5000, 64));
        let zone_of = |request: &BlockRequest| request.offset_bytes / (256 << 20);
        let out_of_order: Vec<&BlockRequest> =
            requests.iter().filter(|request| request.is_write && zones.contains(&zone_of(request))).collect();
        assert!((450..550).contains(&out_of_order.len()), "{}", out_of_order.len());
        let mut pointers = std::collections::BTreeMap::new();
        for request in requests.iter().filter(|request| request.is_write && !zones.contains(&zone_of(request))) {
            let pointer = pointers.entry(zone_of(request)).or_insert(zone_of(request) * (256 << 20));
            assert_eq!(request.offset_bytes, *pointer);
            *pointer += 1 << 20;
        }
        assert_eq!(pointers.len() as u64, synthetic.sequential_zones());
        let mean = requests[4999].arrival_nanos / 4999;
        assert!((53_000_000..57_000_000).contains(&mean), "{mean}");
        assert!(requests.iter().all(|request| request.offset_bytes + (1 << 20) <= 200 * (256 << 20)));
        let more = Synthetic { zones: Zones { non_sequential: 300, ..synthetic.zones.clone() }, ..synthetic };
        assert!(more.generate().is_err());
    }
}
