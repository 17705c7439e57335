//! The PI operator of an array (Zhang, section 5.3): generates, verifies and moves the tuples of protection information of its requests.
//!
//! A tuple is passed on with its data. Its reference tag names the place of an interval, so it changes between the array and a member.
//! Pure, but for the processor time that is charged in a simulation ([`super::cost`]).

use super::cost;
use super::geometry::RaidLevel;
use varve_env::Env;
use varve_media::{ProtectionFormat, ProtectionMismatch, ProtectionTag, ProtectionTuple, Request, Transfer};

/// How often a request whose data and tuples disagree is done, at most.
pub(super) const ATTEMPTS_MAX: usize = 3;
/// Application tag of tuples that the array generates.
const APPLICATION_TAG: u16 = 0;

/// Treatment of the members' protection information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dix {
    /// Requests carry data only, as in Linux MD. Each member generates the tuples of the data that arrive.
    Off,
    /// The paper's design. RAID 4, 5 and 6 verify all writes of members before they send one, and verify a read once, after
    /// they copied all of it. On a mismatch they repeat the request. RAID 0 and 1 pass tuples on unverified.
    Paper,
    /// Every level verifies each member's part separately: before a write is sent, and after a read was copied, while other
    /// members transfer theirs. The array computes a part of a read that does not match from redundancy, and rewrites it.
    #[default]
    On,
}

/// Tuples of the requests of one batch, by request; empty where there are none.
pub(super) type Tuples = Vec<Vec<u8>>;

/// The paper's PI operator: generates, verifies and moves tuples. See [`Dix`].
pub(super) struct PiOperator {
    env: Env,
    pub(super) format: ProtectionFormat,
    /// Verify each member's part of a request.
    pub(super) verifies_parts: bool,
    /// Verify all parts of a write before one is sent, and a read when it is complete.
    pub(super) verifies_requests: bool,
}

impl PiOperator {
    /// The operator of an array, unless it does nothing.
    pub(super) fn new(env: &Env, format: Option<ProtectionFormat>, dix: Dix, level: RaidLevel) -> Option<PiOperator> {
        let format = format.filter(|_| dix != Dix::Off)?;
        let has_parity = level.parity_columns() > 0;
        let (verifies_parts, verifies_requests) = (dix == Dix::On, dix == Dix::Paper && has_parity);
        Some(PiOperator { env: env.clone(), format, verifies_parts, verifies_requests })
    }

    /// Where the tuples of `length_bytes` of data lie that begin `at` bytes behind the first tuple's.
    pub(super) fn place(&self, at: u64, length_bytes: u64) -> std::ops::Range<usize> {
        let start = self.format.tuples_bytes(at) as usize;
        start..start + self.format.tuples_bytes(length_bytes) as usize
    }

    /// Space for the tuples of `length_bytes` of data: the paper's *prepare*.
    pub(super) fn prepare(&self, length_bytes: u64) -> Vec<u8> {
        vec![0; self.format.tuples_bytes(length_bytes) as usize]
    }

    /// The tuples of data that belong at `offset_bytes`.
    pub(super) fn generate<'a>(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        data: impl IntoIterator<Item = &'a [u8]>,
    ) -> Vec<u8> {
        let mut tuples = self.prepare(length_bytes);
        self.env.charge(cost::of_guards(self.format.guard, length_bytes));
        self.format.generate(offset_bytes, APPLICATION_TAG, data, &mut tuples);
        tuples
    }

    /// Verifies that tuples fit data that belong at `offset_bytes`.
    ///
    /// # Errors
    /// The first interval that differs.
    pub(super) fn verify<'a>(
        &self,
        offset_bytes: u64,
        data: impl IntoIterator<Item = &'a [u8]>,
        tuples: &[u8],
    ) -> Result<(), ProtectionMismatch> {
        let intervals = tuples.len() / ProtectionTuple::BYTES;
        let length_bytes = intervals as u64 * u64::from(self.format.interval_bytes);
        self.env.charge(cost::of_guards(self.format.guard, length_bytes));
        self.format.verify(offset_bytes, None, data, tuples)
    }

    /// The tuples of data that belong at `from_bytes` of one device, for `to_bytes` of another one.
    pub(super) fn moved(&self, from_bytes: u64, to_bytes: u64, tuples: &[u8]) -> Vec<u8> {
        let mut tuples = tuples.to_vec();
        self.format.move_reference_tags(from_bytes, to_bytes, &mut tuples);
        tuples
    }

    /// The tuples of a request: those that a write carries or that are generated for it, and space for those of a read.
    ///
    /// # Errors
    /// The tuples that a write carries do not fit its data.
    pub(super) fn of_request(&self, request: &Request<'_>) -> Result<Vec<u8>, ProtectionMismatch> {
        match &request.transfer {
            Transfer::Read { .. } => Ok(self.prepare(request.length_bytes())),
            Transfer::Discard { .. } => Ok(Vec::new()),
            Transfer::Write { data, protection, .. } => {
                let data = data.iter().map(|slice| &**slice);
                match protection {
                    None => Ok(self.generate(request.offset_bytes, request.length_bytes(), data)),
                    Some(tuples) if self.verifies_parts || self.verifies_requests => {
                        self.verify(request.offset_bytes, data, tuples).map(|()| tuples.to_vec())
                    }
                    Some(tuples) => Ok(tuples.to_vec()),
                }
            }
        }
    }

    /// Translates a mismatch from offset `from_bytes` of one device to offset `to_bytes` of another.
    pub(super) fn at_other_place(
        &self,
        mismatch: ProtectionMismatch,
        from_bytes: u64,
        to_bytes: u64,
    ) -> ProtectionMismatch {
        let offset_bytes = mismatch.offset_bytes.saturating_sub(from_bytes).saturating_add(to_bytes);
        let expected = match mismatch.tag {
            ProtectionTag::Reference => self.format.reference_tag(offset_bytes).unwrap_or(mismatch.expected),
            ProtectionTag::Guard | ProtectionTag::Application => mismatch.expected,
        };
        ProtectionMismatch { offset_bytes, expected, ..mismatch }
    }
}

/// The bytes of a request's buffers from `at` on, `length` of them, slice by slice.
pub(super) fn slices_of<'a>(request: &'a Request<'_>, at: u64, length_bytes: u64) -> impl Iterator<Item = &'a [u8]> {
    let (reads, writes) = match &request.transfer {
        Transfer::Read { data, .. } => (Some(data.iter().map(|slice| &**slice)), None),
        Transfer::Write { data, .. } => (None, Some(data.iter().map(|slice| &**slice))),
        Transfer::Discard { .. } => (None, None),
    };
    let slices = reads.into_iter().flatten().chain(writes.into_iter().flatten());
    let (mut skip, mut rest) = (at as usize, length_bytes as usize);
    slices.filter_map(move |slice: &'a [u8]| {
        let skipped = skip.min(slice.len());
        let taken = rest.min(slice.len() - skipped);
        (skip, rest) = (skip - skipped, rest - taken);
        (taken > 0).then(|| &slice[skipped..skipped + taken])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, IoSliceMut};
    use varve_media::{GuardKind, ProtectionType};

    fn operator(dix: Dix, level: RaidLevel) -> Option<PiOperator> {
        let (protection_type, guard) = (ProtectionType::Type1, GuardKind::Crc);
        let format = ProtectionFormat { protection_type, guard, interval_bytes: 512 };
        PiOperator::new(&Env::sim(1), Some(format), dix, level)
    }

    #[test]
    fn levels_verify_what_they_should() {
        for level in RaidLevel::ALL {
            assert!(operator(Dix::Off, level).is_none());
            let paper = operator(Dix::Paper, level).unwrap();
            assert_eq!((paper.verifies_parts, paper.verifies_requests), (false, level.parity_columns() > 0), "{level}");
            let on = operator(Dix::On, level).unwrap();
            assert_eq!((on.verifies_parts, on.verifies_requests), (true, false), "{level}");
        }
        assert!(PiOperator::new(&Env::sim(1), None, Dix::On, RaidLevel::Raid5).is_none());
    }

    #[test]
    fn tuples_follow_their_data_to_another_place() {
        let operator = operator(Dix::On, RaidLevel::Raid5).unwrap();
        let data: Vec<u8> = (0..2048_u32).map(|byte| ((byte * byte) >> 5) as u8).collect();
        let slices = [IoSlice::new(&data[..700]), IoSlice::new(&data[700..])];
        let request = Request::write(8192, &slices);
        let tuples = operator.of_request(&request).unwrap();
        let part = operator.moved(8192 + 512, 1 << 20, &tuples[operator.place(512, 1024)]);
        let request = Request::write(8192, &slices);
        assert_eq!(operator.verify(1 << 20, slices_of(&request, 512, 1024), &part), Ok(()));
        let mismatch = operator.verify(2 << 20, slices_of(&request, 512, 1024), &part).unwrap_err();
        assert_eq!((mismatch.tag, mismatch.found), (ProtectionTag::Reference, 2048));
        let mismatch = operator.verify(1 << 20, slices_of(&request, 1024, 1024), &part).unwrap_err();
        assert_eq!(mismatch.tag, ProtectionTag::Guard);
    }

    #[test]
    fn wrong_tuples_of_a_write_are_refused() {
        let data = [IoSlice::new(&[7; 1024])];
        for (dix, level, is_refused) in [
            (Dix::On, RaidLevel::Raid1, true),
            (Dix::Paper, RaidLevel::Raid1, false),
            (Dix::Paper, RaidLevel::Raid6, true),
        ] {
            let operator = operator(dix, level).unwrap();
            let mut tuples = operator.generate(512, 1024, [&[7; 1024][..]]);
            tuples[8] ^= 1;
            let mut request = Request::write(512, &data);
            request.transfer = Transfer::Write { data: &data, protection: Some(&tuples), durable: false };
            let found = operator.of_request(&request);
            assert_eq!(found.is_err(), is_refused, "{dix:?} {level}");
            assert!(found.is_ok_and(|passed| passed == tuples) || is_refused);
        }
    }

    #[test]
    fn slices_are_those_of_the_part() {
        let mut bytes: Vec<Vec<u8>> = vec![vec![0, 1, 2], vec![], vec![3], vec![4, 5, 6, 7]];
        let mut slices: Vec<IoSliceMut<'_>> = bytes.iter_mut().map(|bytes| IoSliceMut::new(bytes)).collect();
        let request = Request::read(0, &mut slices);
        for at in 0..8_u8 {
            for end in at..=8 {
                let found: Vec<u8> = slices_of(&request, at.into(), (end - at).into()).flatten().copied().collect();
                assert_eq!(found, (at..end).collect::<Vec<u8>>());
            }
        }
    }
}
