//! Which page of the disk is in which page of the buffer.

use super::recency::Recency;
use super::record::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A page of the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// What it holds.
    page: Option<u64>,
    /// Sectors of that page that it has, the lowest first.
    sectors: u8,
    /// What the map on the medium says of it, or may say.
    recorded: Option<(u64, u8)>,
    /// Who reads or writes it now.
    users: u32,
    /// Of these, who writes it.
    writers: u32,
    /// Changes with each write to it.
    version: u64,
}

/// A page as it was when its eviction began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) page: u64,
    pub(super) slot: u32,
    pub(super) sectors: u8,
    version: u64,
}

/// The map in memory. A page of the buffer that the map on the medium names is not used for anything else until that map says
/// otherwise: what was synced stays what it was.
#[derive(Clone, Debug)]
pub(super) struct PageMap {
    slots: Vec<Slot>,
    by_page: BTreeMap<u64, u32>,
    free: BTreeSet<u32>,
    /// Those of which the map on the medium says something else.
    changed: BTreeSet<u32>,
    recency: Recency,
}

impl PageMap {
    /// A map of `entries`, which are all that the map on the medium has. `None` where two of them are of one page.
    pub(super) fn new(page_count: u32, pages_per_group: u64, entries: &[Entry]) -> Option<Self> {
        let mut map = PageMap {
            slots: vec![Slot::default(); page_count as usize],
            by_page: BTreeMap::new(),
            free: (0..page_count).collect(),
            changed: BTreeSet::new(),
            recency: Recency::new(pages_per_group),
        };
        for entry in entries.iter().filter(|entry| entry.sectors != 0) {
            let slot = map.slots.get_mut(entry.slot as usize)?;
            let is_first = slot.page.is_none() && map.by_page.insert(entry.page, entry.slot).is_none();
            is_first.then_some(())?;
            (slot.page, slot.sectors) = (Some(entry.page), entry.sectors);
            slot.recorded = Some((entry.page, entry.sectors));
            map.free.remove(&entry.slot);
        }
        let pages: Vec<u64> = map.by_page.keys().copied().collect();
        pages.into_iter().for_each(|page| map.recency.touch(page));
        Some(map)
    }

    /// Pages of the buffer that can be used.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Pages of the buffer that can be used once the map on the medium says that they are free.
    pub(super) fn free_once_recorded(&self) -> usize {
        let is_one = |slot: &&u32| self.slots[**slot as usize].page.is_none();
        self.changed.iter().filter(is_one).count()
    }

    /// Pages of the disk that are held, in order.
    pub(super) fn held(&self) -> impl Iterator<Item = u64> {
        self.by_page.iter().filter(|(_, slot)| self.slots[**slot as usize].sectors != 0).map(|(&page, _)| page)
    }

    /// Where a page is, and which of its sectors are.
    pub(super) fn find(&self, page: u64) -> Option<(u32, u8)> {
        let slot = *self.by_page.get(&page)?;
        Some((slot, self.slots[slot as usize].sectors))
    }

    /// Whether any of these pages is held, or being taken in.
    pub(super) fn holds_any(&self, pages: std::ops::Range<u64>) -> bool {
        !pages.is_empty() && self.by_page.range(pages).next().is_some()
    }

    /// How many of these pages are not held.
    pub(super) fn missing(&self, pages: std::ops::Range<u64>) -> usize {
        (pages.end - pages.start) as usize - self.by_page.range(pages).count()
    }

    /// Keeps a page of the buffer from being used for anything else, until `end_use`.
    pub(super) fn begin_use(&mut self, slot: u32) {
        let slot = &mut self.slots[slot as usize];
        slot.users += 1;
        if let Some(page) = slot.page {
            self.recency.touch(page);
        }
    }

    pub(super) fn end_use(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.users = slot.users.saturating_sub(1);
        self.release(number);
    }

    /// Where to write sectors of a page; `None` where there is no room.
    pub(super) fn begin_write(&mut self, page: u64) -> Option<u32> {
        let found = self.by_page.get(&page).copied();
        let (number, is_new) = match found {
            Some(number) => (number, false),
            None => (self.free.pop_first()?, true),
        };
        let slot = &mut self.slots[number as usize];
        if is_new {
            (slot.page, slot.sectors) = (Some(page), 0);
            self.by_page.insert(page, number);
        }
        slot.users += 1;
        slot.writers += 1;
        slot.version += 1;
        self.recency.touch(page);
        Some(number)
    }

    /// The write of these sectors is done; with 0 it failed.
    pub(super) fn end_write(&mut self, number: u32, sectors: u8) {
        let slot = &mut self.slots[number as usize];
        slot.sectors |= sectors;
        slot.writers = slot.writers.saturating_sub(1);
        slot.users = slot.users.saturating_sub(1);
        slot.version += 1;
        self.note(number);
        self.leave_if_empty(number);
        self.release(number);
    }

    /// The sectors of a page are given up.
    pub(super) fn discard(&mut self, page: u64, sectors: u8) {
        let Some(&number) = self.by_page.get(&page) else { return };
        let slot = &mut self.slots[number as usize];
        slot.sectors &= !sectors;
        slot.version += 1;
        self.note(number);
        self.leave_if_empty(number);
        self.release(number);
    }

    /// Pages that could leave, by groups that none are leaving from, those that were asked for longest ago first. Pages that are being taken in
    /// are not among them.
    pub(super) fn groups(&self) -> impl Iterator<Item = Vec<u64>> {
        let is_held = |page: &u64| self.find(*page).is_some_and(|(_, sectors)| sectors != 0);
        let groups = self.recency.groups().map(move |pages| pages.iter().copied().filter(is_held).collect());
        groups.filter(|pages: &Vec<u64>| !pages.is_empty())
    }

    /// The groups of these pages are one eviction's, until `end_eviction`: nobody else writes any of their pages to the disk.
    pub(super) fn begin_eviction(&mut self, pages: &[u64]) {
        self.recency.begin_leave(pages);
    }

    pub(super) fn end_eviction(&mut self, pages: &[u64]) {
        self.recency.end_leave(pages);
    }

    /// Whether pages are leaving from any group of these pages.
    pub(super) fn is_leaving(&self, pages: &std::ops::Range<u64>) -> bool {
        self.recency.is_leaving(pages)
    }

    /// A page that could not leave is as if it had been asked for: others leave first.
    pub(super) fn defer(&mut self, page: u64) {
        if self.by_page.contains_key(&page) {
            self.recency.touch(page);
        }
    }

    /// Pages of the buffer that are held of these pages of the disk.
    pub(super) fn held_in(&self, pages: std::ops::Range<u64>) -> Vec<u64> {
        let is_held = |(_, slot): &(&u64, &u32)| self.slots[**slot as usize].sectors != 0;
        self.by_page.range(pages).filter(is_held).map(|(&page, _)| page).collect()
    }

    /// A page begins to leave; `end_leave` is due. `None` where it is not held.
    pub(super) fn begin_leave(&mut self, page: u64) -> Option<Leaving> {
        let &number = self.by_page.get(&page)?;
        let slot = &mut self.slots[number as usize];
        slot.users += 1;
        Some(Leaving { page, slot: number, sectors: slot.sectors, version: slot.version })
    }

    /// It is on the disk, or not. Gives whether it left: it stays when it was written meanwhile.
    pub(super) fn end_leave(&mut self, leaving: &Leaving, is_on_disk: bool) -> bool {
        let slot = &mut self.slots[leaving.slot as usize];
        slot.users = slot.users.saturating_sub(1);
        let leaves = is_on_disk && slot.version == leaving.version && slot.writers == 0;
        if leaves {
            slot.sectors = 0;
            self.leave_if_empty(leaving.slot);
        }
        self.release(leaving.slot);
        leaves
    }

    /// What the map on the medium must be told, which counts as told from now on: a write of it that fails may have arrived.
    pub(super) fn take_changes(&mut self) -> Vec<Entry> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|number| self.take_entry(number)).collect()
    }

    /// All that is held, and those that are to be told as free.
    pub(super) fn take_everything(&mut self) -> Vec<Entry> {
        let all = (0..self.slots.len() as u32).filter(|&number| {
            let slot = &self.slots[number as usize];
            slot.sectors != 0 || slot.recorded.is_some()
        });
        let all: Vec<u32> = all.collect();
        self.changed.clear();
        all.into_iter().map(|number| self.take_entry(number)).collect()
    }

    fn take_entry(&mut self, number: u32) -> Entry {
        let slot = &mut self.slots[number as usize];
        match slot.page.filter(|_| slot.sectors != 0) {
            Some(page) => {
                slot.recorded = Some((page, slot.sectors));
                Entry { slot: number, page, sectors: slot.sectors }
            }
            None => Entry { slot: number, page: 0, sectors: 0 },
        }
    }

    /// The map on the medium says these now.
    pub(super) fn recorded(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.sectors == 0) {
            let slot = &mut self.slots[entry.slot as usize];
            slot.recorded = None;
            // Of the same page, since: it was free on the medium, and is held by now.
            self.note(entry.slot);
            self.release(entry.slot);
        }
    }

    fn note(&mut self, number: u32) {
        let slot = &self.slots[number as usize];
        let now = slot.page.filter(|_| slot.sectors != 0).map(|page| (page, slot.sectors));
        match now == slot.recorded {
            true => self.changed.remove(&number),
            false => self.changed.insert(number),
        };
    }

    /// A page without sectors, which nobody writes, is held no more.
    fn leave_if_empty(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        let Some(page) = slot.page.filter(|_| slot.sectors == 0 && slot.writers == 0) else { return };
        slot.page = None;
        self.by_page.remove(&page);
        self.recency.remove(page);
        self.note(number);
    }

    /// A page that holds nothing, that nobody uses and that the map on the medium does not name is free.
    fn release(&mut self, number: u32) {
        let slot = &self.slots[number as usize];
        if slot.page.is_none() && slot.users == 0 && slot.recorded.is_none() {
            self.changed.remove(&number);
            self.free.insert(number);
        }
    }
}
