//! How ordered a table already is with respect to all pairs of the database (SMRDB, section 4.3).

use crate::shape::FileMeta;
use std::sync::Arc;

/// Buckets that are looked at in all. Where there are more tables than that allows for, neighbouring buckets of a table
/// count as one: what is known gets coarser, and the work does not grow.
const BUCKETS_MAX: usize = 1 << 16;

/// Buckets of a table that are looked at however many tables there are.
const TABLE_BUCKETS_MIN: usize = 4;

/// Bytes by key over a set of tables, from their histograms: each bucket counts where it ends. A table without a
/// histogram counts at its largest key. Sums stay at their largest value rather than overflow: what tables say of
/// themselves may be anything.
///
/// Cost: sorts the buckets of all tables once, then a binary search for each bucket asked for; of the buckets at most
/// 65,536, or four for each table if that is more.
pub(super) struct Density<'a> {
    /// Keys in order, with the bytes up to and with each.
    points: Vec<(&'a [u8], u64)>,
    table_buckets_max: usize,
}

impl<'a> Density<'a> {
    pub(super) fn new(files: &[&'a Arc<FileMeta>]) -> Self {
        let table_buckets_max = (BUCKETS_MAX / files.len().max(1)).max(TABLE_BUCKETS_MIN);
        let mut points: Vec<(&[u8], u64)> = files.iter().flat_map(|file| file.buckets(table_buckets_max)).collect();
        points.sort_unstable();
        let mut sum = 0u64;
        for (_, bytes) in &mut points {
            sum = sum.saturating_add(*bytes);
            *bytes = sum;
        }
        Density { points, table_buckets_max }
    }

    /// Bytes at keys up to `key`.
    pub(super) fn up_to(&self, key: &[u8]) -> u64 {
        let position = self.points.partition_point(|(point, _)| *point <= key);
        position.checked_sub(1).map_or(0, |before| self.points[before].1)
    }

    /// Bytes at keys before `key`.
    pub(super) fn before(&self, key: &[u8]) -> u64 {
        let position = self.points.partition_point(|(point, _)| *point < key);
        position.checked_sub(1).map_or(0, |before| self.points[before].1)
    }

    /// Share of a table's bytes, in millionths, that would stay in order if all pairs were reordered: of each
    /// bucket as much is taken for disturbed as other tables would put between its keys, its own bytes at
    /// most. `file` is one of the tables.
    pub(super) fn sequentiality(&self, file: &FileMeta) -> u64 {
        let mut before = self.before(file.smallest_user_key());
        let (mut own_bytes, mut disturbed_bytes) = (0u128, 0u128);
        for (last, bytes) in file.buckets(self.table_buckets_max) {
            let up_to = self.up_to(last).max(before);
            let others = (up_to - before).saturating_sub(bytes);
            own_bytes += u128::from(bytes);
            disturbed_bytes += u128::from(others.min(bytes));
            before = up_to;
        }
        let in_order = (own_bytes - disturbed_bytes) * 1_000_000;
        in_order.checked_div(own_bytes).map_or(1_000_000, |share| share as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::two_level::tests::table;

    #[test]
    fn a_table_alone_is_in_order_and_two_that_interleave_are_not() {
        let (a, b) = (table(1, "a:1 b:1 c:1 d:1"), table(2, "a:1 b:1 c:1 d:1"));
        assert_eq!(Density::new(&[&a]).sequentiality(&a), 1_000_000);
        let both = Density::new(&[&a, &b]);
        assert_eq!((both.sequentiality(&a), both.sequentiality(&b)), (0, 0));
    }

    /// The example of section 3: one key far from the others makes the range wide and not the disorder.
    #[test]
    fn a_wide_range_with_little_in_it_is_nearly_in_order() {
        let wide = table(1, "a:10 b:10 c:10 d:10 k:10");
        let inside = table(2, "e:10 f:10 g:10 h:10");
        let both = Density::new(&[&wide, &inside]);
        assert_eq!(both.sequentiality(&wide), 800_000);
        assert_eq!(both.sequentiality(&inside), 1_000_000);
    }

    #[test]
    fn a_table_without_a_histogram_counts_at_its_end() {
        let (known, unknown) = (table(1, "a:10 m:10"), table(2, ""));
        let both = Density::new(&[&known, &unknown]);
        assert_eq!(both.sequentiality(&unknown), 1_000_000 - 1_000_000 * 20 / 64);
        assert_eq!(both.sequentiality(&known), 1_000_000);
    }
    /// Once every bucket of every table was sorted at each pick.
    #[test]
    fn many_tables_are_looked_at_more_coarsely() {
        let buckets: String = (0..100).map(|number| format!("k{number:02}:10 ")).collect();
        let tables: Vec<_> = (0..3000).map(|number| table(number, &buckets)).collect();
        let all: Vec<_> = tables.iter().collect();
        let density = Density::new(&all);
        assert!(density.points.len() <= BUCKETS_MAX + TABLE_BUCKETS_MIN * all.len(), "{}", density.points.len());
        assert_eq!(density.points.last().unwrap().1, 3_000_000, "no byte is lost");
        assert_eq!(density.sequentiality(&tables[7]), 0);
        assert_eq!(Density::new(&all[..1]).sequentiality(&tables[0]), 1_000_000);
    }

    /// A histogram with a right checksum may still say anything.
    #[test]
    fn crafted_histograms_do_not_overflow() {
        let crafted = || format!("a:{most} b:{most} c:{most}", most = u64::MAX);
        let (a, b) = (table(1, &crafted()), table(2, &crafted()));
        let both = Density::new(&[&a, &b]);
        assert!(both.sequentiality(&a) <= 1_000_000);
        assert!(both.sequentiality(&b) <= 1_000_000);
    }
}
