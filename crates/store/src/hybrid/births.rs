//! When the tables that an open finds were made, as far as records tell: nothing of lifetimes is on a medium.
//!
//! Pure. The clock of lifetimes is bytes written to the store, so each table is taken for as old as what was made after it is large.

use super::options::HybridOpenOptions;
use super::records::{Record, Resolved};
use crate::band::{Lifetimes, MountedFiles, Sharing};
use parking_lot::Mutex as ShortMutex;
use std::collections::BTreeMap;
use std::sync::Arc;

fn size_bytes(parts: &[Record]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.file.size_bytes))
}

/// The tables, each with its parts.
fn tables(files: &BTreeMap<String, Resolved>) -> impl Iterator<Item = (&String, &Record, u64)> {
    let tables = files.iter().filter_map(|(name, Resolved { parts, .. })| {
        let first = parts.first()?;
        Some((name, first, size_bytes(parts)))
    });
    tables.filter(|(_, first, _)| first.file.is_table)
}

/// Nothing is known of lifetimes but how large zones are; what is there was written before.
pub(super) fn lifetimes_of(files: &BTreeMap<String, Resolved>, mounted: &[MountedFiles]) -> Lifetimes {
    let zone_bytes = mounted.iter().map(MountedFiles::writable_zone_bytes).max().unwrap_or(1);
    Lifetimes::new(zone_bytes, tables(files).fold(0, |sum, (.., bytes)| sum.saturating_add(bytes)))
}

/// When each table was made, by name: before it at least as much was written as older ones have.
pub(super) fn births(files: &BTreeMap<String, Resolved>) -> BTreeMap<String, u64> {
    let mut tables: Vec<(u64, &String, u64)> =
        tables(files).map(|(name, first, bytes)| (first.stamp.number, name, bytes)).collect();
    tables.sort_unstable();
    let mut written_bytes = 0_u64;
    let born = |(_, name, bytes): (u64, &String, u64)| {
        let born_bytes = written_bytes;
        written_bytes = written_bytes.saturating_add(bytes);
        (name.clone(), born_bytes)
    };
    tables.into_iter().map(born).collect()
}

/// How tables share zones of a device; `None` where each has zones of its own.
pub(super) fn sharing_of(
    mounted: &MountedFiles,
    options: &HybridOpenOptions,
    lifetimes: &Arc<ShortMutex<Lifetimes>>,
) -> Option<Sharing> {
    let zone_bytes = mounted.writable_zone_bytes();
    let is_small = options.table_bytes.is_some_and(|bytes| bytes <= zone_bytes / 2);
    let table_bytes = options.table_bytes.unwrap_or(zone_bytes);
    options.shared_zones.unwrap_or(is_small).then(|| Sharing { lifetimes: lifetimes.clone(), table_bytes })
}
