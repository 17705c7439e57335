//! How ordered a table already is with respect to all pairs of the database (SMRDB, section 4.3).

use crate::tree::log_structured::FileMeta;
use std::sync::Arc;

/// Bytes by key over a set of tables, from their histograms: each bucket counts where it ends. A table without a
/// histogram counts at its largest key.
///
/// Cost: sorts the buckets of all tables once, then a binary search for each bucket asked for.
pub(super) struct Density<'a> {
    /// Keys in order, with the bytes up to and with each.
    points: Vec<(&'a [u8], u64)>,
}

/// Ends of the buckets of a table and their bytes.
fn buckets(file: &FileMeta) -> impl Iterator<Item = (&[u8], u64)> {
    let known = file.histogram.get().map_or(&[][..], |histogram| histogram.buckets());
    let whole = known.is_empty().then(|| (file.largest_user_key(), file.size_bytes));
    known.iter().map(|bucket| (&*bucket.last, bucket.bytes)).chain(whole)
}

impl<'a> Density<'a> {
    pub(super) fn new(files: impl IntoIterator<Item = &'a Arc<FileMeta>>) -> Self {
        let mut points: Vec<(&[u8], u64)> = files.into_iter().flat_map(|file| buckets(file)).collect();
        points.sort_unstable();
        let mut sum = 0;
        for (_, bytes) in &mut points {
            sum += *bytes;
            *bytes = sum;
        }
        Density { points }
    }

    /// Bytes at keys up to `key`.
    fn up_to(&self, key: &[u8]) -> u64 {
        let position = self.points.partition_point(|(point, _)| *point <= key);
        position.checked_sub(1).map_or(0, |before| self.points[before].1)
    }

    /// Bytes at keys before `key`.
    fn before(&self, key: &[u8]) -> u64 {
        let position = self.points.partition_point(|(point, _)| *point < key);
        position.checked_sub(1).map_or(0, |before| self.points[before].1)
    }

    /// Share of a table's bytes, in millionths, that would stay in order if all pairs were reordered: of each
    /// bucket as much is taken for disturbed as other tables would put between its keys, its own bytes at
    /// most. `file` is one of the tables.
    pub(super) fn sequentiality(&self, file: &FileMeta) -> u64 {
        let mut before = self.before(file.smallest_user_key());
        let (mut own_bytes, mut disturbed_bytes) = (0u64, 0u64);
        for (last, bytes) in buckets(file) {
            let up_to = self.up_to(last).max(before);
            let others = (up_to - before).saturating_sub(bytes);
            own_bytes += bytes;
            disturbed_bytes += others.min(bytes);
            before = up_to;
        }
        let in_order = u128::from(own_bytes - disturbed_bytes) * 1_000_000;
        in_order.checked_div(u128::from(own_bytes)).map_or(1_000_000, |share| share as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::two_level::tests::table;

    #[test]
    fn a_table_alone_is_in_order_and_two_that_interleave_are_not() {
        let (a, b) = (table(1, "a:1 b:1 c:1 d:1"), table(2, "a:1 b:1 c:1 d:1"));
        assert_eq!(Density::new([&a]).sequentiality(&a), 1_000_000);
        let both = Density::new([&a, &b]);
        assert_eq!((both.sequentiality(&a), both.sequentiality(&b)), (0, 0));
    }

    /// The example of section 3: one key far from the others makes the range wide and not the disorder.
    #[test]
    fn a_wide_range_with_little_in_it_is_nearly_in_order() {
        let wide = table(1, "a:10 b:10 c:10 d:10 k:10");
        let inside = table(2, "e:10 f:10 g:10 h:10");
        let both = Density::new([&wide, &inside]);
        assert_eq!(both.sequentiality(&wide), 800_000);
        assert_eq!(both.sequentiality(&inside), 1_000_000);
    }

    #[test]
    fn a_table_without_a_histogram_counts_at_its_end() {
        let (known, unknown) = (table(1, "a:10 m:10"), table(2, ""));
        let both = Density::new([&known, &unknown]);
        assert_eq!(both.sequentiality(&unknown), 1_000_000 - 1_000_000 * 20 / 64);
        assert_eq!(both.sequentiality(&known), 1_000_000);
    }
}
