//! Where a table lies: fragments of bands, in file order.

use super::change::Fragment;

/// The fragments of one table, and which of them the band table knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FragmentMap {
    /// Byte of the file at which each fragment starts, and the fragment.
    fragments: Vec<(u64, Fragment)>,
    /// What the band table says, committed or waiting for a commit.
    recorded: Vec<Fragment>,
}

impl FragmentMap {
    /// The fragments of a table as the band table says them.
    pub(super) fn recorded(fragments: &[Fragment]) -> FragmentMap {
        let mut map = FragmentMap { fragments: Vec::with_capacity(fragments.len()), recorded: fragments.to_vec() };
        fragments.iter().for_each(|fragment| map.fragments.push((map.size_bytes(), *fragment)));
        map
    }

    /// Bytes of the file.
    pub(super) fn size_bytes(&self) -> u64 {
        self.fragments.last().map_or(0, |(at, fragment)| at + fragment.length_bytes)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Fragment> {
        self.fragments.iter().map(|(_, fragment)| *fragment)
    }

    /// Bands with a part of the file, each once.
    pub(super) fn bands(&self) -> Vec<u32> {
        let mut bands: Vec<u32> = self.fragments.iter().map(|(_, fragment)| fragment.band).collect();
        bands.sort_unstable();
        bands.dedup();
        bands
    }

    /// Adds what was written behind the end.
    pub(super) fn push(&mut self, fragment: Fragment) {
        if fragment.length_bytes == 0 {
            return;
        }
        let size_bytes = self.size_bytes();
        match self.fragments.last_mut() {
            Some((_, last))
                if last.band == fragment.band && last.offset_bytes + last.length_bytes == fragment.offset_bytes =>
            {
                last.length_bytes += fragment.length_bytes;
            }
            _ => self.fragments.push((size_bytes, fragment)),
        }
    }

    /// Forgets what lies behind the first `size_bytes`.
    pub(super) fn truncate(&mut self, size_bytes: u64) {
        while let Some((at, fragment)) = self.fragments.last_mut() {
            if *at >= size_bytes {
                self.fragments.pop();
                continue;
            }
            fragment.length_bytes = fragment.length_bytes.min(size_bytes - *at);
            break;
        }
    }

    /// Where a byte of the file is: the band, the offset in it, and how many bytes from there on follow each other.
    #[inline]
    pub(super) fn locate(&self, offset_bytes: u64) -> Option<(u32, u64, u64)> {
        let index = match &self.fragments[..] {
            [_] => 0,
            fragments => fragments.partition_point(|(at, _)| *at <= offset_bytes).checked_sub(1)?,
        };
        let (at, fragment) = self.fragments[index];
        let within = offset_bytes - at;
        (within < fragment.length_bytes)
            .then(|| (fragment.band, fragment.offset_bytes + within, fragment.length_bytes - within))
    }

    /// What the band table must hear for it to know the first `size_bytes`: how many of its fragments stay, and those that
    /// follow them; `None` when it knows that.
    pub(super) fn unrecorded(&self, size_bytes: u64) -> Option<(u32, Vec<Fragment>)> {
        let wanted: Vec<Fragment> = self
            .fragments
            .iter()
            .filter(|(at, _)| *at < size_bytes)
            .map(|(at, fragment)| Fragment { length_bytes: fragment.length_bytes.min(size_bytes - at), ..*fragment })
            .collect();
        let keep = wanted.iter().zip(&self.recorded).take_while(|(fragment, recorded)| fragment == recorded).count();
        let is_known = keep == wanted.len() && keep == self.recorded.len();
        (!is_known).then(|| (keep as u32, wanted[keep..].to_vec()))
    }

    /// The band table has heard it.
    pub(super) fn record(&mut self, keep: u32, fragments: &[Fragment]) {
        self.recorded.truncate(keep as usize);
        self.recorded.extend(fragments);
    }

    /// Fragments the band table knows.
    pub(super) fn recorded_fragments(&self) -> &[Fragment] {
        &self.recorded
    }

    /// Bytes of them.
    pub(super) fn recorded_bytes(&self) -> u64 {
        self.recorded.iter().map(|fragment| fragment.length_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(band: u32, offset_bytes: u64, length_bytes: u64) -> Fragment {
        Fragment { band, offset_bytes, length_bytes }
    }

    #[test]
    fn merges_locates_and_truncates() {
        let mut map = FragmentMap::default();
        assert_eq!((map.locate(0), map.unrecorded(u64::MAX)), (None, None));
        [
            fragment(3, 0, 8192),
            fragment(3, 8192, 100),
            fragment(3, 12_288, 50),
            fragment(9, 0, 4096),
            fragment(9, 0, 0),
        ]
        .into_iter()
        .for_each(|fragment| map.push(fragment));
        assert_eq!((map.iter().count(), map.size_bytes(), map.bands()), (3, 12_438, vec![3, 9]));
        assert_eq!(map.locate(0), Some((3, 0, 8292)));
        assert_eq!(map.locate(8292), Some((3, 12_288, 50)));
        assert_eq!(map.locate(12_437), Some((9, 4095, 1)));
        assert_eq!(map.locate(12_438), None);
        assert_eq!(
            map.unrecorded(u64::MAX),
            Some((0, vec![fragment(3, 0, 8292), fragment(3, 12_288, 50), fragment(9, 0, 4096)]))
        );
        assert_eq!(map.unrecorded(8293), Some((0, vec![fragment(3, 0, 8292), fragment(3, 12_288, 1)])));
        let (keep, fragments) = map.unrecorded(u64::MAX).unwrap();
        map.record(keep, &fragments);
        assert_eq!((map.unrecorded(u64::MAX), map.recorded_bytes()), (None, 12_438));
        map.push(fragment(9, 4096, 1));
        assert_eq!(map.unrecorded(u64::MAX), Some((2, vec![fragment(9, 0, 4097)])));
        map.truncate(8300);
        assert_eq!(map.iter().collect::<Vec<_>>(), [fragment(3, 0, 8292), fragment(3, 12_288, 8)]);
        assert_eq!(map.unrecorded(u64::MAX), Some((1, vec![fragment(3, 12_288, 8)])));
        map.truncate(8292);
        assert_eq!((map.iter().count(), map.unrecorded(u64::MAX)), (1, Some((1, vec![]))));
        map.truncate(0);
        assert_eq!(map.size_bytes(), 0);
        let found = FragmentMap::recorded(&[fragment(1, 0, 5), fragment(2, 0, 7)]);
        assert_eq!((found.size_bytes(), found.unrecorded(u64::MAX)), (12, None));
    }
}
