//! The table of stores: each says in its folder what it is tested with, and joins every suite by its name below.

use super::{Fixture, Subject};

/// A store as the suites and the fuzz targets know it.
pub struct TestedStore {
    /// Name of its folder.
    pub name: &'static str,
    /// What the suites run on, and how much of them.
    pub subjects: fn() -> Vec<TestedSubject>,
    /// What those who stand on stores are tested on.
    pub fixtures: &'static [Fixture],
    /// Runs every decoder of the store on bytes that may be anything.
    pub decode_anything: fn(&[u8]),
    /// Opens the store on a medium of its own that begins with these bytes, which may be anything, and inspects it.
    pub open_anything: fn(&[u8]),
}

/// Something that the suites run on, and how much of them.
pub struct TestedSubject {
    /// The store and its medium.
    pub subject: Box<dyn Subject>,
    /// How long to look.
    pub effort: Effort,
}

impl TestedSubject {
    /// A subject, and how long to look.
    pub fn new(subject: impl Subject + 'static, effort: Effort) -> TestedSubject {
        TestedSubject { subject: Box::new(subject), effort }
    }
}

/// How long the suites look at a subject. Every subject keeps the contract in a simulation, and survives some power cuts
/// and syncs that fail late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Odd schedules in which the contract is checked, and then in the real world; none at 0.
    pub schedules: u64,
    /// Histories whose power is cut.
    pub histories: u64,
    /// Operations of each.
    pub operations: u64,
    /// Images of each moment.
    pub images_of_point: u64,
    /// Openings of each history that are cut in turn.
    pub recoveries: u64,
    /// Of so many calls one fails, in every way; none at 0.
    pub fault_stride: u64,
    /// Of so many bytes that are stored one has a bit flipped; none at 0.
    pub damage_stride: u64,
    /// It is opened while I/O fails.
    pub is_opened_under_faults: bool,
    /// Everything is done twice, and must be the same.
    pub is_repeated: bool,
}

impl Effort {
    /// For what differs most from other stores.
    pub const FULL: Effort = Effort {
        schedules: 3,
        histories: 2,
        operations: 90,
        images_of_point: 8,
        recoveries: 10,
        fault_stride: 3,
        damage_stride: 1,
        is_opened_under_faults: true,
        is_repeated: true,
    };
    /// For the same store on other media.
    pub const MUCH: Effort = Effort {
        schedules: 2,
        histories: 1,
        images_of_point: 6,
        recoveries: 5,
        fault_stride: 7,
        damage_stride: 5,
        is_repeated: false,
        ..Effort::FULL
    };
    /// For policies of a store.
    pub const SOME: Effort = Effort {
        schedules: 0,
        operations: 60,
        images_of_point: 7,
        recoveries: 5,
        fault_stride: 0,
        damage_stride: 0,
        is_opened_under_faults: false,
        ..Effort::MUCH
    };
}

/// Makes the table, and for each store its own tests of every suite.
macro_rules! stores {
    ($($folder:ident,)*) => {
        /// Every store.
        pub const STORES: &[TestedStore] = &[$(crate::$folder::conformance::TESTED),*];

        #[cfg(test)]
        mod suites {
            $(mod $folder {
                crate::conformance::tests::suites!(crate::$folder::conformance::TESTED);
            })*
        }
    };
}

stores! {
    plain,
    extent,
    imr,
    band,
    hybrid,
}
