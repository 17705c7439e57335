//! Writes to zones, one at a time.

use super::file_device::FileDevice;
use crate::context::IoContext;
use crate::device::{BlockDevice, Capabilities, Counters, Geometry};
use crate::error::MediaError;
use crate::request::{Request, RequestPart, Transfer};
use crate::zones::{ZoneGeometry, ZoneId, ZoneType};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The file, to which no two writes to one zone go at once: the kernel might reorder them.
pub(super) struct OneWriteAtATime {
    pub(super) file: Arc<FileDevice>,
    pub(super) zones: ZoneGeometry,
    /// Where conventional zones end, and requests are divided: a disk refuses a write that goes over it (ZBC: write boundary
    /// violation), and may refuse a read. Of disks whose zones the block layer knows it divides them itself.
    pub(super) divided_at_bytes: Option<u64>,
}

impl OneWriteAtATime {
    /// The bytes in front of the place where this request has to be divided.
    fn division(&self, request: &Request<'_>) -> Option<u64> {
        let before = self.divided_at_bytes?.checked_sub(request.offset_bytes).filter(|&before| before > 0)?;
        let is_transfer = !matches!(request.transfer, Transfer::Discard { .. });
        Some(before).filter(|_| is_transfer && before < request.length_bytes())
    }

    /// Does a read or write in two parts, the first of `before` bytes.
    fn execute_divided(&self, request: &mut Request<'_>, before: u64, context: &IoContext) -> Result<(), MediaError> {
        let mut parts = request.divide(&*self.file, [before, u64::MAX])?;
        let mut parts: Vec<Request<'_>> = parts.iter_mut().map(RequestPart::request_in_place).collect();
        self.file.execute(&mut parts, context)
    }
}

impl BlockDevice for OneWriteAtATime {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn geometry(&self) -> &Geometry {
        self.file.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.file.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let mut result = Ok(());
        let mut rest = requests;
        while !rest.is_empty() {
            let count = together(&self.zones, rest);
            let divided = rest[..count].iter().position(|request| self.division(request).is_some());
            let (run, later) = rest.split_at_mut(divided.map_or(count, |first| first.max(1)));
            let done = match run {
                [request] => match self.division(request) {
                    Some(before) => {
                        request.outcome = self.execute_divided(request, before, context);
                        request.outcome.clone()
                    }
                    None => self.file.execute(run, context),
                },
                run => self.file.execute(run, context),
            };
            result = result.and(done);
            rest = later;
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.file.sync(context)
    }

    fn counters(&self) -> Counters {
        self.file.counters()
    }
}

/// How many requests from the first can be in flight at once: none writes a zone that another writes.
fn together(zones: &ZoneGeometry, requests: &[Request<'_>]) -> usize {
    let mut written = BTreeSet::new();
    let conflicts = |request: &Request<'_>| {
        let range = request.offset_bytes..request.offset_bytes.saturating_add(request.length_bytes());
        let ordered = |zone: &ZoneId| zones.zone_type(*zone) != ZoneType::Conventional;
        matches!(request.transfer, Transfer::Write { .. })
            && zones.zones_in(&range).filter(ordered).any(|zone| !written.insert(zone))
    };
    requests.iter().position(conflicts).unwrap_or(requests.len()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::FileDeviceOptions;
    use std::io::{IoSlice, IoSliceMut};

    #[test]
    fn writes_to_one_zone_are_not_in_flight_together() {
        let zones = ZoneGeometry { conventional_zones: 1, ..ZoneGeometry::fit(4 << 20, 1 << 20).unwrap() };
        let data = [0; 512];
        let slices = [IoSlice::new(&data)];
        let at = |offsets: &[u64]| offsets.iter().map(|&offset| Request::write(offset, &slices)).collect::<Vec<_>>();
        for (offsets, expected) in [
            (vec![1 << 20, 2 << 20, 3 << 20], 3),
            (vec![1 << 20, 2 << 20, (1 << 20) + 512], 2),
            (vec![1 << 20, (1 << 20) + 512], 1),
            (vec![0, 512, 1024, 1 << 20], 4),
        ] {
            assert_eq!(together(&zones, &at(&offsets)), expected, "{offsets:?}");
        }
        let mut reads = at(&[1 << 20]);
        reads.push(Request::discard(1 << 20, 512));
        assert_eq!(together(&zones, &reads), 2);
    }

    #[test]
    fn requests_are_divided_where_conventional_zones_end() {
        let place = tempfile::tempdir().unwrap();
        let options = FileDeviceOptions { capacity_bytes: Some(4 << 20), create: true, ..Default::default() };
        let file = Arc::new(FileDevice::open(place.path().join("file"), &options).unwrap());
        let zones = ZoneGeometry { conventional_zones: 1, ..ZoneGeometry::fit(4 << 20, 1 << 20).unwrap() };
        let device = OneWriteAtATime { file, zones, divided_at_bytes: Some(1 << 20) };
        let context = IoContext::default();
        let data: Vec<u8> = (0..=250).cycle().take(4 * 8192).collect();
        let slices: Vec<IoSlice<'_>> = [&data[..100], &data[100..9000], &data[9000..]].map(IoSlice::new).into();
        for (at, writes) in [((1 << 20) - 8192, 2), ((1 << 20) - 4 * 8192, 1), (1 << 20, 1), ((1 << 20) - 4096, 2)] {
            let (before, reads_before) = (device.counters().writes, device.counters().reads);
            let mut batch = [Request::write(0, &slices), Request::write(at, &slices), Request::write(3 << 20, &slices)];
            device.execute(&mut batch, &context).unwrap();
            assert_eq!(device.counters().writes - before, 2 + writes, "{at}");
            for at in [0, at, 3 << 20] {
                let mut found = vec![0; data.len()];
                let (left, right) = found.split_at_mut(9000);
                device.execute(&mut [Request::read(at, &mut [left, right].map(IoSliceMut::new))], &context).unwrap();
                assert!(found == data, "{at}");
            }
            assert_eq!(device.counters().reads - reads_before, 2 + writes, "{at}");
        }
        // What fails in part has failed, and the others have not.
        let behind = (4 << 20) - 8192;
        let device = OneWriteAtATime { divided_at_bytes: Some(behind + 4096), ..device };
        let mut batch = [Request::write(behind, &slices), Request::write(0, &slices)];
        assert!(device.execute(&mut batch, &context).is_err());
        assert!(batch[0].outcome.is_err() && batch[1].outcome.is_ok());
    }
}
