//! Reading pieces of a device whatever their place and alignment.

use std::io::IoSliceMut;
use varve_media::{AlignedBuffer, BlockDevice, IoContext, MediaError, Request};

/// A part of a device to be read, in one piece there.
pub(crate) struct Segment<'a> {
    /// First byte on the device.
    pub(crate) at: u64,
    /// Filled whole, or there is an error.
    pub(crate) data: &'a mut [u8],
}

impl Segment<'_> {
    /// Bytes of the first sector before the segment, and of the last one behind it.
    fn around(&self, sector_bytes: u64) -> (usize, usize) {
        let end = self.at + self.data.len() as u64;
        ((self.at % sector_bytes) as usize, (end.next_multiple_of(sector_bytes) - end) as usize)
    }
}

/// Reads segments, all in flight at once. The outcomes are in their order.
///
/// Whole sectors go right into the memory of those who asked where the device can; only what lies around them, and
/// what the device cannot put there, takes a detour.
pub(crate) fn read_segments(
    block: &dyn BlockDevice,
    segments: &mut [Segment<'_>],
    context: &IoContext,
) -> Vec<Result<(), MediaError>> {
    let sector_bytes = u64::from(block.geometry().sector_bytes);
    let alignment = block.capabilities().buffer_alignment_bytes.max(1) as usize;
    let is_direct = |segment: &Segment<'_>| {
        let is_aligned = segment.data.as_ptr().addr().is_multiple_of(alignment);
        alignment == 1 || (segment.around(sector_bytes) == (0, 0) && is_aligned)
    };
    let mut detours: Vec<AlignedBuffer> = segments
        .iter()
        .map(|segment| {
            let (before, behind) = segment.around(sector_bytes);
            let asked = if is_direct(segment) { 0 } else { segment.data.len() };
            AlignedBuffer::new(before + asked + behind, alignment)
        })
        .collect();
    let outcomes: Vec<Result<(), MediaError>> = {
        let mut slices: Vec<(u64, [IoSliceMut<'_>; 3])> = Vec::with_capacity(segments.len());
        for (segment, detour) in segments.iter_mut().zip(&mut detours) {
            let (before, _) = segment.around(sector_bytes);
            let at = segment.at - before as u64;
            let parts = if is_direct(segment) {
                let (head, tail) = detour.split_at_mut(before);
                [head, &mut *segment.data, tail]
            } else {
                [&mut detour[..], &mut [], &mut []]
            };
            slices.push((at, parts.map(IoSliceMut::new)));
        }
        let mut requests: Vec<Request<'_>> = slices.iter_mut().map(|(at, parts)| Request::read(*at, parts)).collect();
        let _ = block.execute(&mut requests, context);
        requests.into_iter().map(|request| request.outcome).collect()
    };
    for (segment, detour) in segments.iter_mut().zip(&detours) {
        if !is_direct(segment) {
            let (before, _) = segment.around(sector_bytes);
            segment.data.copy_from_slice(&detour[before..before + segment.data.len()]);
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use varve_env::{Env, Random};
    use varve_media::{BlockDeviceExt, Device, Emulated};

    #[test]
    fn any_place_and_length_is_read() {
        let env = Env::sim(1);
        let device = Device::of_blocks(Arc::new(Emulated::immediate(&env, "disk", 64 << 10)));
        let content: Vec<u8> = (0..64 << 10_u32).map(|at| (at / 7) as u8).collect();
        let context = IoContext::default();
        device.block.write_at(0, &content, &context).unwrap();
        let mut random = Random::seeded(4);
        for _ in 0..50 {
            let places: Vec<(usize, usize)> = (0..4).map(|_| (random.index(60 << 10), random.index(3000))).collect();
            let mut buffers: Vec<Vec<u8>> = places.iter().map(|(_, length)| vec![0; *length]).collect();
            let mut segments: Vec<Segment<'_>> =
                places.iter().zip(&mut buffers).map(|((at, _), data)| Segment { at: *at as u64, data }).collect();
            assert!(read_segments(&*device.block, &mut segments, &context).iter().all(Result::is_ok));
            for ((at, length), buffer) in places.iter().zip(&buffers) {
                assert_eq!(*buffer, content[*at..at + length]);
            }
        }
        let mut data = [0; 10];
        let outcomes = read_segments(&*device.block, &mut [Segment { at: 64 << 10, data: &mut data }], &context);
        assert!(outcomes[0].is_err());
    }
}
