//! Which group of pages was asked for longest ago.

use std::collections::{BTreeMap, BTreeSet};

/// Pages in groups of neighbours, and the order in which groups were last asked for: groups of zones are ZLRU, groups of a page LRU.
#[derive(Clone, Debug)]
pub(super) struct Recency {
    pages_per_group: u64,
    groups: BTreeMap<u64, Group>,
    /// When each was asked for, by ticks.
    order: BTreeSet<(u64, u64)>,
    tick: u64,
}

#[derive(Clone, Debug, Default)]
struct Group {
    tick: u64,
    pages: BTreeSet<u64>,
}

impl Recency {
    pub(super) fn new(pages_per_group: u64) -> Self {
        Recency { pages_per_group: pages_per_group.max(1), groups: BTreeMap::new(), order: BTreeSet::new(), tick: 0 }
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

    /// The pages of groups, those that were asked for longest ago first, until they are at least so many; in each group by number.
    pub(super) fn oldest(&self, pages_min: usize) -> Vec<u64> {
        let mut pages = Vec::new();
        for (_, key) in &self.order {
            if pages.len() >= pages_min.max(1) {
                break;
            }
            pages.extend(self.groups.get(key).into_iter().flat_map(|group| &group.pages));
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_leave_whole_and_the_oldest_first() {
        let mut zones = Recency::new(100);
        for page in [250, 10, 110, 20, 260] {
            zones.touch(page);
        }
        assert_eq!(zones.oldest(1), [110]);
        zones.touch(110);
        assert_eq!(zones.oldest(1), [10, 20]);
        assert_eq!(zones.oldest(3), [10, 20, 250, 260]);
        zones.remove(10);
        zones.remove(20);
        zones.remove(20);
        assert_eq!(zones.oldest(1), [250, 260]);
        let mut pages = Recency::new(1);
        for page in [3, 1, 2, 3] {
            pages.touch(page);
        }
        assert_eq!(pages.oldest(2), [1, 2]);
        assert!(Recency::new(0).oldest(5).is_empty());
    }
}
