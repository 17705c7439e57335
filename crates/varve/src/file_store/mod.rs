//! File stores, one file each. A new one is its file, its module and its place in the table.

mod band;
mod extent;
mod hybrid;
mod imr;
mod plain;

use crate::registry::FileStoreKind;

/// All file stores. The default of a medium is the store that prefers it, otherwise the first that accepts it.
#[rustfmt::skip]
pub(crate) static FILE_STORES: &[FileStoreKind] = &[
    plain::PLAIN,
    band::BAND,
    extent::EXTENT,
    imr::IMR,
    hybrid::HYBRID,
];
