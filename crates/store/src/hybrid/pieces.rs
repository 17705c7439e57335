//! Large requests in pieces, so that others come in between.

use varve_media::{BlockDevice, MediaError, Request, Transfer, check_request};

/// Executes the requests for `device` one after the other; requests longer than `piece_bytes` (whole sectors) in pieces.
/// `execute` gets each piece. A request stops at the first piece that fails. A request that the device would refuse is not divided.
/// Writes are durable when their turn ends: a device would write back its cache while other requests want it.
///
/// # Errors
/// The first error in the order of the requests; each request has its own outcome.
pub(super) fn execute_in_pieces(
    requests: &mut [Request<'_>],
    piece_bytes: u64,
    device: &dyn BlockDevice,
    mut execute: impl FnMut(&mut Request<'_>) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    let mut first = Ok(());
    for request in requests {
        let outcome = in_pieces(request, piece_bytes, device, &mut execute);
        request.outcome = outcome.clone();
        first = first.and(outcome);
    }
    first
}

fn in_pieces(
    request: &mut Request<'_>,
    piece_bytes: u64,
    device: &dyn BlockDevice,
    execute: &mut impl FnMut(&mut Request<'_>) -> Result<(), MediaError>,
) -> Result<(), MediaError> {
    let length_bytes = request.length_bytes();
    if let Transfer::Write { durable, .. } = &mut request.transfer {
        *durable = true;
    }
    let is_transfer = !matches!(request.transfer, Transfer::Discard { .. });
    if length_bytes <= piece_bytes || !is_transfer || check_request(device, request).is_err() {
        return execute(request);
    }
    let pieces = (0..length_bytes).step_by(piece_bytes as usize).map(|_| piece_bytes);
    request.divide(device, pieces)?.iter_mut().try_for_each(|piece| execute(&mut piece.request_in_place()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, IoSliceMut};
    use varve_env::{Env, Random};
    use varve_media::{BlockDeviceExt, Device, Emulated, IoContext};

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
            execute_in_pieces(&mut [Request::write(at, &parts)], piece_bytes, device, |piece| {
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
            execute_in_pieces(&mut [Request::read(at, &mut parts)], piece_bytes, device, |piece| {
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
        let outcome = execute_in_pieces(&mut requests, 1024, &**block, |piece| {
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
