//! Large requests in pieces, so that others come in between.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use varve_media::{Geometry, MediaError, Request, Transfer};

/// Does the requests one after the other, those that are longer than `piece_bytes` (whole sectors) in pieces: `execute` gets each. A
/// request of which a piece fails goes on no further. What the device would refuse as a whole it gets as a whole. Writes are
/// on the medium when their turn ends: what a device has only taken it would write while others want it.
///
/// # Errors
/// The first in the order of the requests; each request says its own.
pub(super) fn execute_in_pieces(
    requests: &mut [Request<'_>],
    piece_bytes: u64,
    geometry: &Geometry,
    mut execute: impl FnMut(&mut Request<'_>) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    let mut first = Ok(());
    for request in requests {
        let outcome = in_pieces(request, piece_bytes, geometry, &mut execute);
        request.outcome = outcome.clone();
        first = first.and(outcome);
    }
    first
}

fn in_pieces(
    request: &mut Request<'_>,
    piece_bytes: u64,
    geometry: &Geometry,
    execute: &mut impl FnMut(&mut Request<'_>) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes());
    let sector_bytes = u64::from(geometry.sector_bytes);
    let is_possible = offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= geometry.capacity_bytes)
        && offset_bytes.is_multiple_of(sector_bytes)
        && length_bytes.is_multiple_of(sector_bytes);
    if let Transfer::Write { durable, .. } = &mut request.transfer {
        *durable = true;
    }
    if length_bytes <= piece_bytes || !is_possible {
        return execute(request);
    }
    let pieces = || (0..length_bytes).step_by(piece_bytes as usize).map(|at| at..(at + piece_bytes).min(length_bytes));
    match &mut request.transfer {
        Transfer::Read { data, protection: None } => pieces().try_for_each(|piece| {
            let mut parts: Vec<IoSliceMut<'_>> = Vec::with_capacity(data.len());
            let mut begin = 0;
            for slice in data.iter_mut() {
                let overlap = overlap(begin, slice.len(), &piece);
                begin += slice.len() as u64;
                if !overlap.is_empty() {
                    parts.push(IoSliceMut::new(&mut slice[overlap]));
                }
            }
            execute(&mut Request::read(offset_bytes + piece.start, &mut parts))
        }),
        Transfer::Write { data, protection: None, durable: _ } => pieces().try_for_each(|piece| {
            let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(data.len());
            let mut begin = 0;
            for slice in data.iter() {
                let overlap = overlap(begin, slice.len(), &piece);
                begin += slice.len() as u64;
                if !overlap.is_empty() {
                    parts.push(IoSlice::new(&slice[overlap]));
                }
            }
            let transfer = Transfer::Write { data: &parts, protection: None, durable: true };
            execute(&mut Request { offset_bytes: offset_bytes + piece.start, transfer, outcome: Ok(()) })
        }),
        Transfer::Read { .. } | Transfer::Write { .. } | Transfer::Discard { .. } => execute(request),
    }
}

/// What of a buffer, which begins so many bytes into a request, a piece of that covers.
fn overlap(begin: u64, length: usize, piece: &Range<u64>) -> Range<usize> {
    let from = piece.start.saturating_sub(begin).min(length as u64) as usize;
    let to = piece.end.saturating_sub(begin).min(length as u64) as usize;
    from..to
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::{Env, Random};
    use varve_media::{BlockDevice, BlockDeviceExt, Device, Emulated, IoContext};

    /// In pieces of any size and buffers of any, the bytes are those of the request as a whole, and no piece is too long.
    #[test]
    fn pieces_make_the_whole() {
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let env = Env::sim(seed);
            let device = Emulated::immediate(&env, "memory", 1 << 20);
            let device: &dyn BlockDevice = &device;
            let context = IoContext::default();
            let piece_bytes = 512 * (1 + random.below(5));
            let (at, length) = (512 * random.below(100), 512 * (1 + random.below(40)) as usize);
            let mut whole = vec![0; length];
            random.fill_bytes(&mut whole);
            let cut = |random: &mut Random| 512 * random.below(length as u64 / 512 + 1) as usize;
            let mut sizes = Vec::new();
            let (head, tail) = whole.split_at(cut(&mut random));
            let parts = [IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)];
            execute_in_pieces(&mut [Request::write(at, &parts)], piece_bytes, device.geometry(), |piece| {
                sizes.push(piece.length_bytes());
                device.execute(std::slice::from_mut(piece), &context)
            })
            .unwrap();
            assert!(sizes.iter().all(|size| *size <= piece_bytes) && sizes.iter().sum::<u64>() == length as u64);
            let mut found = vec![0; length];
            device.read_at(at, &mut found, &context).unwrap();
            assert!(found == whole, "seed {seed}");
            found.fill(0);
            let cut = cut(&mut random);
            let (head, tail) = found.split_at_mut(cut);
            let mut parts = [IoSliceMut::new(head), IoSliceMut::new(tail)];
            execute_in_pieces(&mut [Request::read(at, &mut parts)], piece_bytes, device.geometry(), |piece| {
                device.execute(std::slice::from_mut(piece), &context)
            })
            .unwrap();
            assert!(found == whole, "seed {seed}");
        }
    }

    /// What fails ends its own request, and what is refused has changed nothing.
    #[test]
    fn a_piece_that_fails_ends_its_request() {
        let env = Env::sim(1);
        let device = Device::of_blocks(std::sync::Arc::new(Emulated::immediate(&env, "memory", 1 << 20)));
        let (block, context) = (&device.block, IoContext::default());
        let data = [7; 4096];
        let (one, other, beyond) = ([IoSlice::new(&data)], [IoSlice::new(&data)], [IoSlice::new(&data)]);
        let mut requests =
            [Request::write(0, &one), Request::write((1 << 20) - 1024, &beyond), Request::write(8192, &other)];
        let mut count = 0;
        let outcome = execute_in_pieces(&mut requests, 1024, block.geometry(), |piece| {
            count += 1;
            if count == 2 {
                let refused = MediaError::Rule {
                    device: "memory".to_owned(),
                    operation: varve_media::Operation::Write,
                    offset_bytes: piece.offset_bytes,
                    rule: "none".to_owned(),
                };
                return Err(refused);
            }
            block.execute(std::slice::from_mut(piece), &context)
        });
        assert!(matches!(outcome, Err(MediaError::Rule { offset_bytes: 1024, .. })), "{outcome:?}");
        assert!(matches!(requests[1].outcome, Err(MediaError::OutOfRange { .. })), "{:?}", requests[1].outcome);
        assert!(requests[0].outcome.is_err() && requests[2].outcome.is_ok());
        assert_eq!(count, 2 + 1 + 4);
        let mut found = [0; 4096];
        block.read_at((1 << 20) - 4096, &mut found, &context).unwrap();
        assert_eq!(found, [0; 4096]);
    }
}
