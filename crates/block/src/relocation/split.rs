//! Requests divided at the ends of zones.

use super::core::Part;
use crate::idler::Work;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use varve_media::{Request, Transfer, ZoneGeometry, ZoneId};

/// The zones that bytes of the device lie in, and which bytes of each.
pub(super) fn parts(zones: &ZoneGeometry, range: &Range<u64>, work: Work) -> impl Iterator<Item = Part> + use<> {
    let (zone_bytes, range) = (zones.zone_bytes, range.clone());
    zones.zones_in(&range).map(move |zone| {
        let start = zone_bytes.saturating_mul(zone.0.into());
        let own = range.start.max(start) - start..range.end.min(start.saturating_add(zone_bytes)) - start;
        Part { zone: ZoneId(zone.0), range: own, work }
    })
}

/// A part of a request with its part of the buffers.
pub(super) enum Piece<'a> {
    Read { data: Vec<IoSliceMut<'a>>, protection: Option<&'a mut [u8]> },
    Write { data: Vec<IoSlice<'a>>, protection: Option<&'a [u8]>, durable: bool },
    Discard { length_bytes: u64 },
}

impl<'a> Piece<'a> {
    /// The request for this piece, elsewhere.
    pub(super) fn request(&'a mut self, offset_bytes: u64) -> Request<'a> {
        let transfer = match self {
            Piece::Read { data, protection } => Transfer::Read { data, protection: protection.as_deref_mut() },
            Piece::Write { data, protection, durable } => {
                Transfer::Write { data, protection: *protection, durable: *durable }
            }
            Piece::Discard { length_bytes } => Transfer::Discard { length_bytes: *length_bytes },
        };
        Request { offset_bytes, transfer, outcome: Ok(()) }
    }
}

/// Takes `length` bytes from the front of buffers, of which the first may have been begun.
fn take<S, T>(
    rest: &mut Vec<S>,
    mut length: usize,
    split: impl Fn(S, usize) -> (T, Option<S>),
    len: impl Fn(&S) -> usize,
) -> Vec<T> {
    let mut taken = Vec::new();
    while length > 0 {
        let Some(slice) = rest.pop() else { break };
        let count = len(&slice).min(length);
        let (head, tail) = split(slice, count);
        rest.extend(tail);
        length -= count;
        taken.push(head);
    }
    taken
}

/// The pieces of a request, as long as `lengths` say. `interval_bytes` is what eight bytes of protection are of.
pub(super) fn pieces<'a>(request: &'a mut Request<'_>, lengths: &[u64], interval_bytes: u64) -> Vec<Piece<'a>> {
    let of_protection = |length: u64| (length / interval_bytes.max(1) * 8) as usize;
    match &mut request.transfer {
        Transfer::Read { data, protection } => {
            let mut rest: Vec<&'a mut [u8]> = data.iter_mut().rev().map(|slice| &mut **slice).collect();
            let mut protection = protection.as_deref_mut();
            let mut pieces = Vec::with_capacity(lengths.len());
            for &length in lengths {
                let split = |slice: &'a mut [u8], count: usize| {
                    let (head, tail) = slice.split_at_mut(count);
                    (IoSliceMut::new(head), Some(tail).filter(|tail| !tail.is_empty()))
                };
                let data = take(&mut rest, length as usize, split, |slice| slice.len());
                let own = protection.take().map(|whole| {
                    let at = of_protection(length).min(whole.len());
                    let (own, others) = whole.split_at_mut(at);
                    protection = Some(others);
                    own
                });
                pieces.push(Piece::Read { data, protection: own });
            }
            pieces
        }
        Transfer::Write { data, protection, durable } => {
            let mut rest: Vec<&'a [u8]> = data.iter().rev().map(|slice| &**slice).collect();
            let mut protection = *protection;
            let durable = *durable;
            let pieces = lengths.iter().map(|&length| {
                let split = |slice: &'a [u8], count: usize| {
                    let (head, tail) = slice.split_at(count);
                    (IoSlice::new(head), Some(tail).filter(|tail| !tail.is_empty()))
                };
                let data = take(&mut rest, length as usize, split, |slice| slice.len());
                let own = protection.map(|whole| whole.split_at(of_protection(length).min(whole.len())));
                protection = own.map(|(_, others)| others);
                Piece::Write { data, protection: own.map(|(own, _)| own), durable }
            });
            pieces.collect()
        }
        Transfer::Discard { .. } => lengths.iter().map(|&length_bytes| Piece::Discard { length_bytes }).collect(),
    }
}
