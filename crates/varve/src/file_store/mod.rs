//! File stores, one file each. A new one is its file, its module and its place in the table.

mod band;
mod extent;
mod hybrid;
mod imr;
mod plain;

use crate::registry::FileStoreKind;

/// Every file store. The first that accepts a medium is its default.
#[rustfmt::skip]
pub(crate) static FILE_STORES: &[FileStoreKind] = &[
    plain::PLAIN,
    band::BAND,
    extent::EXTENT,
    imr::IMR,
    hybrid::HYBRID,
];
