//! Requests divided into parts.

use super::{Request, Transfer, check_tuples};
use crate::device::BlockDevice;
use crate::error::MediaError;
use crate::protection::ProtectionTuple;
use std::io::{IoSlice, IoSliceMut};

/// A part of a request: its share of the buffers and of the protection information. See [`Request::divide`].
#[derive(Debug)]
pub struct RequestPart<'a> {
    offset_bytes: u64,
    length_bytes: u64,
    buffers: Buffers<'a>,
}

#[derive(Debug)]
enum Buffers<'a> {
    Read { data: Vec<IoSliceMut<'a>>, protection: Option<&'a mut [u8]> },
    Write { data: Vec<IoSlice<'a>>, protection: Option<&'a [u8]>, durable: bool },
    Discard,
}

impl<'a> RequestPart<'a> {
    /// First byte of the part, on the device that the divided request addresses.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Length of the part.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// A request for this part where the divided request has it.
    pub fn request_in_place(&'a mut self) -> Request<'a> {
        self.request(self.offset_bytes)
    }

    /// A request for this part at `offset_bytes` of a device. Reads fill the buffers of the divided request.
    pub fn request(&'a mut self, offset_bytes: u64) -> Request<'a> {
        let transfer = match &mut self.buffers {
            Buffers::Read { data, protection } => Transfer::Read { data, protection: protection.as_deref_mut() },
            Buffers::Write { data, protection, durable } => {
                Transfer::Write { data, protection: *protection, durable: *durable }
            }
            Buffers::Discard => Transfer::Discard { length_bytes: self.length_bytes },
        };
        Request { offset_bytes, transfer, outcome: Ok(()) }
    }
}

impl Request<'_> {
    /// Divides the request into parts of `lengths` bytes that follow each other from its start: data, protection
    /// information and durability. `device` is the device that the request addresses.
    ///
    /// There are as many parts as lengths. A part ends where the request ends; bytes past the last part are in none.
    /// Nothing is copied: a part holds the slices of the buffers that it covers. Costs two small allocations per part.
    ///
    /// # Errors
    /// For a request with protection information only: [`MediaError::Rule`] if `device` keeps none or the tuples do not fit
    /// the data, [`MediaError::Misaligned`] if a part ends within an interval.
    pub fn divide<'a>(
        &'a mut self,
        device: &dyn BlockDevice,
        lengths: impl IntoIterator<Item = u64>,
    ) -> Result<Vec<RequestPart<'a>>, MediaError> {
        let interval_bytes = check_tuples(device.name(), device.capabilities().protection, self)?;
        let (start_bytes, whole_bytes, operation) = (self.offset_bytes, self.length_bytes(), self.operation());
        let mut done_bytes = 0;
        let extents = lengths.into_iter().map(|length_bytes| {
            let length_bytes = length_bytes.min(whole_bytes - done_bytes);
            let offset_bytes = start_bytes.saturating_add(done_bytes);
            done_bytes += length_bytes;
            match interval_bytes {
                Some(required_bytes) if !length_bytes.is_multiple_of(required_bytes) => Err(MediaError::Misaligned {
                    device: device.name().to_owned(),
                    operation,
                    offset_bytes,
                    length_bytes,
                    required_bytes,
                }),
                _ => Ok((offset_bytes, length_bytes)),
            }
        });
        let extents = extents.collect::<Result<Vec<(u64, u64)>, MediaError>>()?;
        let mut buffers = Rest::of(&mut self.transfer, interval_bytes);
        let part = |(offset_bytes, length_bytes)| {
            let buffers = buffers.take(length_bytes);
            RequestPart { offset_bytes, length_bytes, buffers }
        };
        Ok(extents.into_iter().map(part).collect())
    }
}

/// Buffers of a request that no part has taken yet, the next one last.
enum Rest<'a> {
    Read { data: Vec<&'a mut [u8]>, protection: Option<&'a mut [u8]>, interval_bytes: u64 },
    Write { data: Vec<&'a [u8]>, protection: Option<&'a [u8]>, interval_bytes: u64, durable: bool },
    Discard,
}

impl<'a> Rest<'a> {
    fn of(transfer: &'a mut Transfer<'_>, interval_bytes: Option<u64>) -> Self {
        let interval_bytes = interval_bytes.unwrap_or(1);
        match transfer {
            Transfer::Read { data, protection } => Rest::Read {
                data: data.iter_mut().rev().map(|slice| &mut **slice).collect(),
                protection: protection.as_deref_mut(),
                interval_bytes,
            },
            Transfer::Write { data, protection, durable } => Rest::Write {
                data: data.iter().rev().map(|slice| &**slice).collect(),
                protection: *protection,
                interval_bytes,
                durable: *durable,
            },
            Transfer::Discard { .. } => Rest::Discard,
        }
    }

    /// Takes the buffers of the next `length_bytes`, which the request still has.
    fn take(&mut self, length_bytes: u64) -> Buffers<'a> {
        match self {
            Rest::Read { data, protection, interval_bytes } => {
                let (mut taken, mut missing_bytes) = (Vec::new(), length_bytes as usize);
                while missing_bytes > 0
                    && let Some(slice) = data.pop()
                {
                    let (head, tail) = slice.split_at_mut(missing_bytes.min(slice.len()));
                    missing_bytes -= head.len();
                    taken.extend((!head.is_empty()).then(|| IoSliceMut::new(head)));
                    data.extend((!tail.is_empty()).then_some(tail));
                }
                let own = protection.take().map(|tuples| {
                    let (own, later) = tuples.split_at_mut(tuples_bytes(length_bytes, *interval_bytes));
                    *protection = Some(later);
                    own
                });
                Buffers::Read { data: taken, protection: own }
            }
            Rest::Write { data, protection, interval_bytes, durable } => {
                let (mut taken, mut missing_bytes) = (Vec::new(), length_bytes as usize);
                while missing_bytes > 0
                    && let Some(slice) = data.pop()
                {
                    let (head, tail) = slice.split_at(missing_bytes.min(slice.len()));
                    missing_bytes -= head.len();
                    taken.extend((!head.is_empty()).then(|| IoSlice::new(head)));
                    data.extend((!tail.is_empty()).then_some(tail));
                }
                let own = protection.map(|tuples| {
                    let (own, later) = tuples.split_at(tuples_bytes(length_bytes, *interval_bytes));
                    *protection = Some(later);
                    own
                });
                Buffers::Write { data: taken, protection: own, durable: *durable }
            }
            Rest::Discard => Buffers::Discard,
        }
    }
}

/// Bytes of the tuples of so much data; both were checked, so they fit the buffer.
fn tuples_bytes(length_bytes: u64, interval_bytes: u64) -> usize {
    (length_bytes / interval_bytes) as usize * ProtectionTuple::BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::IoContext;
    use crate::device::{Capabilities, Counters, Geometry};
    use crate::protection::{GuardKind, ProtectionFormat, ProtectionType};
    use varve_env::Random;

    /// A device that only describes itself.
    struct Described(Capabilities, Geometry);

    impl Described {
        fn with_intervals_of(interval_bytes: Option<u32>) -> Self {
            let protection = interval_bytes.map(|interval_bytes| ProtectionFormat {
                protection_type: ProtectionType::Type1,
                guard: GuardKind::Crc,
                interval_bytes,
            });
            let geometry = Geometry { capacity_bytes: 1 << 30, sector_bytes: 512, physical_sector_bytes: 4096 };
            Described(Capabilities { protection, ..Capabilities::of_blocks() }, geometry)
        }
    }

    impl BlockDevice for Described {
        fn name(&self) -> &str {
            "described"
        }
        fn geometry(&self) -> &Geometry {
            &self.1
        }
        fn capabilities(&self) -> &Capabilities {
            &self.0
        }
        fn execute(&self, _: &mut [Request<'_>], _: &IoContext) -> Result<(), MediaError> {
            Ok(())
        }
        fn sync(&self, _: &IoContext) -> Result<(), MediaError> {
            Ok(())
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    /// Cuts `bytes` into slices of random lengths, some of them empty.
    fn cut(bytes: &mut [u8], random: &mut Random) -> Vec<usize> {
        let mut lengths = Vec::new();
        let mut rest = bytes.len();
        while rest > 0 {
            let length = random.index(rest.min(3000) + 1);
            lengths.push(length);
            rest -= length;
        }
        lengths
    }

    /// The parts' data and tuples, one after the other, are those of the whole request.
    #[test]
    fn parts_join_to_the_whole_request() {
        for seed in 0..300 {
            let mut random = Random::seeded(seed);
            let interval = [512, 4096][random.index(2)];
            let device = Described::with_intervals_of(Some(interval));
            let interval = interval as usize;
            let intervals = 1 + random.index(12);
            let (mut data, mut tuples) = (vec![0; intervals * interval], vec![0; intervals * 8]);
            random.fill_bytes(&mut data);
            random.fill_bytes(&mut tuples);
            let with_tuples = random.chance(1, 2);
            let (mut lengths, mut rest) = (Vec::new(), intervals);
            while rest > 0 {
                let count = random.index(rest + 1);
                lengths.push((count * interval) as u64);
                rest -= count;
            }
            let slices = cut(&mut data, &mut random);
            let mut pieces: Vec<IoSlice<'_>> = Vec::new();
            let mut rest = &data[..];
            for length in &slices {
                let (head, tail) = rest.split_at(*length);
                pieces.push(IoSlice::new(head));
                rest = tail;
            }
            let durable = random.chance(1, 2);
            let protection = with_tuples.then_some(&tuples[..]);
            let transfer = Transfer::Write { data: &pieces, protection, durable };
            let mut request = Request { offset_bytes: 4096, transfer, outcome: Ok(()) };
            let (mut joined, mut joined_tuples, mut at) = (Vec::new(), Vec::new(), 4096);
            let mut parts = request.divide(&device, lengths.iter().copied()).unwrap();
            assert_eq!(parts.len(), lengths.len());
            for (part, length) in parts.iter_mut().zip(&lengths) {
                assert_eq!((part.offset_bytes(), part.length_bytes()), (at, *length), "seed {seed}");
                at += length;
                let request = part.request(7 * 4096);
                assert_eq!((request.offset_bytes, request.length_bytes()), (7 * 4096, *length));
                let Transfer::Write { data, protection, durable: of_part } = request.transfer else { panic!() };
                assert_eq!(of_part, durable);
                assert_eq!(protection.map(<[u8]>::len), with_tuples.then_some(*length as usize / interval * 8));
                joined.extend(data.iter().flat_map(|slice| slice.iter().copied()));
                joined_tuples.extend_from_slice(protection.unwrap_or_default());
            }
            assert!(joined == data && joined_tuples == protection.unwrap_or_default(), "seed {seed}");

            let (mut read, mut read_tuples) = (vec![0; data.len()], vec![0; tuples.len()]);
            let mut rest = &mut read[..];
            let mut pieces: Vec<IoSliceMut<'_>> = Vec::new();
            for length in &slices {
                let (head, tail) = rest.split_at_mut(*length);
                pieces.push(IoSliceMut::new(head));
                rest = tail;
            }
            let protection = with_tuples.then_some(&mut read_tuples[..]);
            let transfer = Transfer::Read { data: &mut pieces, protection };
            let mut request = Request { offset_bytes: 0, transfer, outcome: Ok(()) };
            let mut parts = request.divide(&device, lengths.iter().copied()).unwrap();
            let (mut from, mut from_tuples) = (&data[..], &tuples[..]);
            for part in &mut parts {
                let Transfer::Read { data, protection } = part.request(0).transfer else { panic!() };
                for slice in data.iter_mut() {
                    let (head, tail) = from.split_at(slice.len());
                    slice.copy_from_slice(head);
                    from = tail;
                }
                if let Some(own) = protection {
                    let (head, tail) = from_tuples.split_at(own.len());
                    own.copy_from_slice(head);
                    from_tuples = tail;
                }
            }
            assert!(read == data && read_tuples == if with_tuples { tuples } else { vec![0; tuples.len()] });
        }
    }

    #[test]
    fn parts_end_where_the_request_ends() {
        let device = Described::with_intervals_of(None);
        let data = [1; 1500];
        let slices = [IoSlice::new(&data)];
        let mut request = Request::write(100, &slices);
        let extents = |parts: &[RequestPart<'_>]| -> Vec<(u64, u64)> {
            parts.iter().map(|part| (part.offset_bytes(), part.length_bytes())).collect()
        };
        let parts = request.divide(&device, [1000, u64::MAX, 1]).unwrap();
        assert_eq!(extents(&parts), [(100, 1000), (1100, 500), (1600, 0)]);
        assert_eq!(extents(&request.divide(&device, [7, 0]).unwrap()), [(100, 7), (107, 0)]);
        let mut discard = Request::discard(u64::MAX - 10, 8192);
        let mut parts = discard.divide(&device, [4096, 8192]).unwrap();
        assert_eq!(parts[1].length_bytes(), 4096);
        assert!(matches!(parts[1].request(5).transfer, Transfer::Discard { length_bytes: 4096 }));
    }

    #[test]
    fn parts_with_tuples_hold_whole_intervals() {
        let data = [0; 8192];
        let slices = [IoSlice::new(&data)];
        let divided = |device: &Described, tuples: &[u8], lengths: &[u64]| {
            let transfer = Transfer::Write { data: &slices, protection: Some(tuples), durable: false };
            let mut request = Request { offset_bytes: 4096, transfer, outcome: Ok(()) };
            request.divide(device, lengths.iter().copied()).map(|parts| parts.len())
        };
        let device = Described::with_intervals_of(Some(4096));
        assert_eq!(divided(&device, &[0; 16], &[4096, 4096]).unwrap(), 2);
        let error = divided(&device, &[0; 16], &[4096, 512, 3584]).unwrap_err();
        assert!(
            matches!(error, MediaError::Misaligned { offset_bytes: 8192, length_bytes: 512, required_bytes: 4096, .. }),
            "{error}"
        );
        for wrong in [8, 15, 24] {
            let error = divided(&device, &vec![0; wrong], &[8192]).unwrap_err();
            assert!(matches!(error, MediaError::Rule { offset_bytes: 4096, .. }), "{error}");
        }
        let error = divided(&Described::with_intervals_of(None), &[0; 16], &[8192]).unwrap_err();
        assert!(matches!(error, MediaError::Rule { .. }), "{error}");
    }
}
