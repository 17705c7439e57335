//! Which group of pages was asked for longest ago.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Pages in groups of neighbours, and the order in which groups were last asked for: groups of zones are ZLRU, groups of a page LRU.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    pages_per_group: u64,
    groups: BTreeMap<u64, Group>,
    /// When each was asked for, by ticks.
    order: BTreeSet<(u64, u64)>,
    tick: u64,
    /// Groups that pages are leaving from.
    leaving: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    tick: u64,
    pages: BTreeSet<u64>,
}

impl Recency {
    pub(super) fn new(pages_per_group: u64) -> Self {
        let (groups, order, leaving) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Recency { pages_per_group: pages_per_group.max(1), groups, order, tick: 0, leaving }
    }

    /// A page, which is there from now on if it was not, is asked for.
    pub(super) fn touch(&mut self, page: u64) {
        self.tick += 1;
        let key = page / self.pages_per_group;
        let group = self.groups.entry(key).or_default();
        if !group.pages.is_empty() {
            self.order.remove(&(group.tick, key));
        }
        group.tick = self.tick;
        group.pages.insert(page);
        self.order.insert((group.tick, key));
    }

    pub(super) fn remove(&mut self, page: u64) {
        let key = page / self.pages_per_group;
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.pages.remove(&page);
        if group.pages.is_empty() {
            self.order.remove(&(group.tick, key));
            self.groups.remove(&key);
        }
    }

    /// The pages of each group that none are leaving from, those that were asked for longest ago first; in each by number.
    pub(super) fn groups(&self) -> impl Iterator<Item = &BTreeSet<u64>> {
        let stays = self.order.iter().filter(|(_, key)| !self.leaving.contains(key));
        stays.filter_map(|(_, key)| self.groups.get(key)).map(|group| &group.pages)
    }

    /// The groups of these pages are those of one eviction, until `end_leave`.
    pub(super) fn begin_leave(&mut self, pages: &[u64]) {
        self.leaving.extend(pages.iter().map(|page| page / self.pages_per_group));
    }

    pub(super) fn end_leave(&mut self, pages: &[u64]) {
        for page in pages {
            self.leaving.remove(&(page / self.pages_per_group));
        }
    }

    /// Whether pages are leaving from any group of these pages.
    pub(super) fn is_leaving(&self, pages: &Range<u64>) -> bool {
        let keys = pages.start / self.pages_per_group..pages.end.div_ceil(self.pages_per_group);
        !pages.is_empty() && self.leaving.range(keys).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oldest(recency: &Recency) -> Vec<Vec<u64>> {
        recency.groups().map(|pages| pages.iter().copied().collect()).collect()
    }

    #[test]
    fn groups_leave_whole_and_the_oldest_first() {
        let mut zones = Recency::new(100);
        for page in [250, 10, 110, 20, 260] {
            zones.touch(page);
        }
        assert_eq!(oldest(&zones), [vec![110], vec![10, 20], vec![250, 260]]);
        zones.touch(110);
        assert_eq!(oldest(&zones), [vec![10, 20], vec![250, 260], vec![110]]);
        zones.remove(10);
        zones.remove(20);
        zones.remove(20);
        assert_eq!(oldest(&zones), [vec![250, 260], vec![110]]);
        let mut pages = Recency::new(1);
        for page in [3, 1, 2, 3] {
            pages.touch(page);
        }
        assert_eq!(oldest(&pages), [[1], [2], [3]]);
        assert!(oldest(&Recency::new(0)).is_empty());
    }

    #[test]
    fn a_group_leaves_once_at_a_time() {
        let mut zones = Recency::new(100);
        [10, 110, 20].into_iter().for_each(|page| zones.touch(page));
        zones.begin_leave(&[10, 20]);
        zones.remove(10);
        zones.touch(30);
        assert_eq!(oldest(&zones), [[110]]);
        assert!(zones.is_leaving(&(99..100)) && zones.is_leaving(&(50..150)));
        assert!(!zones.is_leaving(&(100..200)) && !zones.is_leaving(&(50..50)));
        zones.end_leave(&[10, 20]);
        assert_eq!(oldest(&zones), [vec![110], vec![20, 30]]);
    }
}
