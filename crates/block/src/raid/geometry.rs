//! Where the bytes of an array lie on its members. Pure.

use std::ops::Range;

/// Largest number of members of an array.
pub const MEMBERS_MAX: usize = 64;

/// How an array spreads data and redundancy over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RaidLevel {
    /// Striping without redundancy.
    Raid0,
    /// A copy on each member.
    Raid1,
    /// Striping, with P on the last member.
    Raid4,
    /// Striping, with P on another member in each stripe.
    Raid5,
    /// Striping, with P and Q on other members in each stripe.
    Raid6,
}

impl RaidLevel {
    /// Every level, in order of number.
    pub const ALL: [RaidLevel; 5] =
        [RaidLevel::Raid0, RaidLevel::Raid1, RaidLevel::Raid4, RaidLevel::Raid5, RaidLevel::Raid6];

    /// The usual number of the level.
    pub fn number(self) -> u32 {
        match self {
            RaidLevel::Raid0 => 0,
            RaidLevel::Raid1 => 1,
            RaidLevel::Raid4 => 4,
            RaidLevel::Raid5 => 5,
            RaidLevel::Raid6 => 6,
        }
    }

    /// The level with a number.
    pub fn of_number(number: u32) -> Option<RaidLevel> {
        RaidLevel::ALL.into_iter().find(|level| level.number() == number)
    }

    /// Smallest number of members.
    pub fn members_min(self) -> usize {
        match self {
            RaidLevel::Raid0 | RaidLevel::Raid1 => 2,
            RaidLevel::Raid4 | RaidLevel::Raid5 => 3,
            RaidLevel::Raid6 => 4,
        }
    }

    /// Number of members of `members` that can be lost without loss of data.
    pub fn tolerated(self, members: usize) -> usize {
        match self {
            RaidLevel::Raid0 => 0,
            RaidLevel::Raid1 => members.saturating_sub(1),
            RaidLevel::Raid4 | RaidLevel::Raid5 => 1,
            RaidLevel::Raid6 => 2,
        }
    }

    /// Columns of parity in each stripe.
    pub(super) fn parity_columns(self) -> usize {
        match self {
            RaidLevel::Raid0 | RaidLevel::Raid1 => 0,
            RaidLevel::Raid4 | RaidLevel::Raid5 => 1,
            RaidLevel::Raid6 => 2,
        }
    }
}

impl std::fmt::Display for RaidLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RAID {}", self.number())
    }
}

/// A column of a stripe: the chunk that one member has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Column {
    /// Data, by its place in the stripe.
    Data(usize),
    /// A copy of the data of a mirror, by member.
    Copy(usize),
    /// The exclusive or of the data.
    P,
    /// The weighted sum of the data.
    Q,
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Column::Data(place) => write!(f, "D{place}"),
            Column::Copy(member) => write!(f, "C{member}"),
            Column::P => f.write_str("P"),
            Column::Q => f.write_str("Q"),
        }
    }
}

/// Sizes of an array. A stripe is one chunk of each member, at the same offset on all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArrayGeometry {
    pub(super) level: RaidLevel,
    pub(super) members: usize,
    pub(super) chunk_bytes: u64,
    pub(super) stripes: u64,
}

/// A part of a request that lies in one stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StripePart {
    pub(super) stripe: u64,
    /// Bytes of the data of the stripe.
    pub(super) range: Range<u64>,
}

impl ArrayGeometry {
    /// Data columns of a stripe.
    pub(super) fn data_columns(&self) -> usize {
        match self.level {
            RaidLevel::Raid1 => 1,
            level => self.members - level.parity_columns(),
        }
    }

    /// Bytes of data in a stripe.
    pub(super) fn stripe_bytes(&self) -> u64 {
        self.data_columns() as u64 * self.chunk_bytes
    }

    /// Bytes of data in the array.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.stripes.saturating_mul(self.stripe_bytes())
    }

    /// The member that has a column of a stripe. Left-symmetric: P moves from the last member down by one in each
    /// stripe, Q follows P, and data begins behind them.
    pub(super) fn member_of(&self, stripe: u64, column: Column) -> usize {
        let members = self.members;
        let p = match self.level {
            RaidLevel::Raid5 | RaidLevel::Raid6 => members - 1 - (stripe % members as u64) as usize,
            _ => members - 1,
        };
        match (self.level, column) {
            (_, Column::Copy(member)) => member,
            (_, Column::P) => p,
            (_, Column::Q) => (p + 1) % members,
            (RaidLevel::Raid5, Column::Data(place)) => (p + 1 + place) % members,
            (RaidLevel::Raid6, Column::Data(place)) => (p + 2 + place) % members,
            (_, Column::Data(place)) => place,
        }
    }

    /// Every column of a stripe, data first.
    pub(super) fn columns(&self) -> impl Iterator<Item = Column> + use<> {
        let (data, copies) = match self.level {
            RaidLevel::Raid1 => (0, self.members),
            _ => (self.data_columns(), 0),
        };
        let parity = [Column::P, Column::Q].into_iter().take(self.level.parity_columns());
        (0..data).map(Column::Data).chain((0..copies).map(Column::Copy)).chain(parity)
    }

    /// Divides bytes of the array at the boundaries of stripes.
    pub(super) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = StripePart> + use<> {
        let stripe_bytes = self.stripe_bytes();
        let stripes =
            if range.is_empty() { 0..0 } else { range.start / stripe_bytes..range.end.div_ceil(stripe_bytes) };
        stripes.map(move |stripe| {
            let start = stripe * stripe_bytes;
            StripePart { stripe, range: range.start.max(start) - start..range.end.min(start + stripe_bytes) - start }
        })
    }

    /// The data columns that bytes of a stripe touch, each with the bytes of its chunk.
    pub(super) fn columns_of(&self, range: &Range<u64>) -> Vec<(usize, Range<u64>)> {
        let chunk = self.chunk_bytes;
        let places = range.start / chunk..range.end.div_ceil(chunk);
        let within = |place: u64| {
            range.start.max(place * chunk) - place * chunk..range.end.min((place + 1) * chunk) - place * chunk
        };
        places.map(|place| (place as usize, within(place))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn geometry(level: RaidLevel, members: usize) -> ArrayGeometry {
        ArrayGeometry { level, members, chunk_bytes: 16, stripes: 40 }
    }

    #[test]
    fn each_stripe_uses_each_member_once() {
        for level in RaidLevel::ALL {
            for members in level.members_min()..12 {
                let geometry = geometry(level, members);
                for stripe in 0..40 {
                    let used: BTreeSet<usize> =
                        geometry.columns().map(|column| geometry.member_of(stripe, column)).collect();
                    assert_eq!(used.len(), members, "{level} of {members}");
                    assert_eq!(geometry.columns().count(), members);
                }
            }
        }
    }

    /// The table of the md(4) algorithm `left-symmetric`, of five members.
    #[test]
    fn data_is_left_symmetric() {
        let of_five = geometry(RaidLevel::Raid5, 5);
        let data =
            |stripe| (0..4).map(Column::Data).map(|column| of_five.member_of(stripe, column)).collect::<Vec<_>>();
        let of_five = geometry(RaidLevel::Raid5, 5);
        assert_eq!((0..6).map(|stripe| of_five.member_of(stripe, Column::P)).collect::<Vec<_>>(), [4, 3, 2, 1, 0, 4]);
        assert_eq!(data(1), [4, 0, 1, 2]);
        let of_six = geometry(RaidLevel::Raid6, 6);
        assert_eq!(
            [Column::P, Column::Q, Column::Data(0), Column::Data(3)].map(|column| of_six.member_of(1, column)),
            [4, 5, 0, 3]
        );
        let of_four = geometry(RaidLevel::Raid4, 4);
        assert_eq!([Column::P, Column::Data(0), Column::Data(2)].map(|column| of_four.member_of(7, column)), [3, 0, 2]);
    }

    #[test]
    fn parts_and_columns_cover_a_request_in_order() {
        for level in RaidLevel::ALL {
            let geometry = geometry(level, 5);
            for (start, end) in [(0, 1), (3, 200), (64, 128), (17, 18), (5, 5), (0, geometry.capacity_bytes())] {
                let mut at = start;
                for part in geometry.parts(start..end) {
                    assert_eq!(part.stripe * geometry.stripe_bytes() + part.range.start, at);
                    for (place, range) in geometry.columns_of(&part.range) {
                        let stripe_at = part.stripe * geometry.stripe_bytes() + place as u64 * 16 + range.start;
                        assert!(stripe_at == at && range.end <= 16 && place < geometry.data_columns());
                        at += range.end - range.start;
                    }
                }
                assert_eq!(at, end, "{level} {start}..{end}");
            }
        }
    }

    #[test]
    fn levels_have_numbers_and_limits() {
        for level in RaidLevel::ALL {
            assert_eq!(RaidLevel::of_number(level.number()), Some(level));
            assert!(level.tolerated(level.members_min()) < level.members_min());
        }
        assert_eq!(RaidLevel::of_number(10), None);
    }
}
