//! Parts of requests, as requests of one batch.

use super::record::PAGE_BYTES;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use varve_media::{AlignedBuffer, Device, IoContext, MediaError, Request, Transfer};

/// Reads into buffers from where each is to come from, all at once.
///
/// # Errors
/// Of each its own.
pub(super) fn read_parts(
    device: &Device,
    parts: &mut [(u64, &mut AlignedBuffer)],
    context: &IoContext,
) -> Vec<Result<(), MediaError>> {
    if parts.is_empty() {
        return Vec::new();
    }
    let mut slices: Vec<(u64, [IoSliceMut<'_>; 1])> =
        parts.iter_mut().map(|(offset_bytes, buffer)| (*offset_bytes, [IoSliceMut::new(buffer)])).collect();
    let mut requests: Vec<Request<'_>> =
        slices.iter_mut().map(|(offset_bytes, slice)| Request::read(*offset_bytes, slice)).collect();
    let result = device.block.execute(&mut requests, context);
    outcomes(requests, result)
}

/// Writes buffers to where each is to go, all at once.
///
/// # Errors
/// Of each its own.
pub(super) fn write_parts(
    device: &Device,
    parts: &[(u64, &AlignedBuffer)],
    context: &IoContext,
) -> Vec<Result<(), MediaError>> {
    if parts.is_empty() {
        return Vec::new();
    }
    let slices: Vec<(u64, [IoSlice<'_>; 1])> =
        parts.iter().map(|(offset_bytes, buffer)| (*offset_bytes, [IoSlice::new(buffer)])).collect();
    let mut requests: Vec<Request<'_>> =
        slices.iter().map(|(offset_bytes, slice)| Request::write(*offset_bytes, slice)).collect();
    let result = device.block.execute(&mut requests, context);
    outcomes(requests, result)
}

/// How each request of a batch ended. A batch that failed as a whole failed in each of its requests.
fn outcomes(requests: Vec<Request<'_>>, result: Result<(), MediaError>) -> Vec<Result<(), MediaError>> {
    let mut outcomes: Vec<Result<(), MediaError>> = requests.into_iter().map(|request| request.outcome).collect();
    if let Err(error) = result
        && outcomes.iter().all(Result::is_ok)
    {
        outcomes.fill(Err(error));
    }
    outcomes
}

/// Copies `data` into the buffers of a read, from `at` on.
pub(crate) fn scatter(request: &mut Request<'_>, at: u64, data: &[u8]) {
    let Transfer::Read { data: slices, .. } = &mut request.transfer else { return };
    let (mut skip, mut rest) = (at as usize, data);
    for slice in slices.iter_mut() {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        let count = rest.len().min(slice.len() - skip);
        let (head, tail) = rest.split_at(count);
        slice[skip..skip + count].copy_from_slice(head);
        (skip, rest) = (0, tail);
        if rest.is_empty() {
            return;
        }
    }
}

/// Copies out of the buffers of a write, from `at` on.
pub(crate) fn gather(request: &Request<'_>, at: u64, into: &mut [u8]) {
    let Transfer::Write { data: slices, .. } = &request.transfer else { return };
    let (mut skip, mut done) = (at as usize, 0);
    for slice in slices.iter() {
        if skip >= slice.len() {
            skip -= slice.len();
            continue;
        }
        let count = (into.len() - done).min(slice.len() - skip);
        into[done..done + count].copy_from_slice(&slice[skip..skip + count]);
        (skip, done) = (0, done + count);
        if done == into.len() {
            return;
        }
    }
}

/// The pages that bytes of the disk touch.
pub(super) fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

/// Which bytes of a page that these of the disk touch are among them.
pub(super) fn part_of(range: &Range<u64>, page: u64) -> Range<u64> {
    let start = page * PAGE_BYTES;
    range.start.max(start) - start..range.end.min(start + PAGE_BYTES) - start
}

/// Each page that bytes of the disk touch, with which of its own bytes.
pub(super) fn parts_of(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
    let range = range.clone();
    pages_of(&range).map(move |page| (page, part_of(&range, page)))
}

/// The sectors of a page that these of its bytes cover.
pub(super) fn sectors_of(own: &Range<u64>, sector_bytes: u64) -> u8 {
    let (first, end) = (own.start / sector_bytes.max(1), own.end.div_ceil(sector_bytes.max(1)));
    (first..end.min(8)).fold(0, |sectors, sector| sectors | 1 << sector)
}

/// The runs of sectors that are in a mask (`true`) and that are not, as bytes of the page between `from` and `to`.
pub(super) fn runs(sectors: u8, from: u64, to: u64, sector_bytes: u64) -> Vec<(bool, u64, u64)> {
    let sector_bytes = sector_bytes.max(1);
    let mut runs: Vec<(bool, u64, u64)> = Vec::new();
    let mut at = from;
    while at < to {
        let sector = at / sector_bytes;
        let is_held = sector < 8 && sectors >> sector & 1 == 1;
        let end = ((sector + 1) * sector_bytes).min(to);
        match runs.last_mut() {
            Some(last) if last.0 == is_held => last.2 = end,
            _ => runs.push((is_held, at, end)),
        }
        at = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_where_they_belong() {
        let (first, second) = ([1u8, 2, 3], [4u8, 5, 6, 7]);
        let slices = [IoSlice::new(&first), IoSlice::new(&[]), IoSlice::new(&second)];
        let write = Request::write(0, &slices);
        let mut found = [0; 4];
        gather(&write, 2, &mut found);
        assert_eq!(found, [3, 4, 5, 6]);
        let (mut a, mut b) = ([0u8; 3], [0u8; 4]);
        let mut slices = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        scatter(&mut Request::read(0, &mut slices), 2, &[9, 8, 7]);
        assert_eq!((a, b), ([0, 0, 9], [8, 7, 0, 0]));
    }

    #[test]
    fn sectors_and_runs() {
        assert_eq!(sectors_of(&(512..1536), 512), 0b110);
        assert_eq!(sectors_of(&(0..4096), 512), 0xff);
        assert_eq!(sectors_of(&(0..4096), 4096), 1);
        let parts: Vec<_> = parts_of(&(1024..8704)).collect();
        assert_eq!(parts, [(0, 1024..4096), (1, 0..4096), (2, 0..512)]);
        assert_eq!(pages_of(&(4096..8192)), 1..2);
        assert_eq!(runs(0b110, 0, 4096, 512), [(false, 0, 512), (true, 512, 1536), (false, 1536, 4096)]);
        assert_eq!(runs(0b1, 0, 4096, 4096), [(true, 0, 4096)]);
        assert_eq!(runs(0, 1024, 2048, 512), [(false, 1024, 2048)]);
    }
}
