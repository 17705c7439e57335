//! The intent map: regions of stripes whose redundancy may be wrong after a power cut.
//!
//! A region is marked on every member, durably, before a stripe of it is written. Marks are taken away later, with
//! the next mark that is set or when the array is closed, once the region is quiet and synced. So a workload with few
//! regions writes the map rarely, and after a power cut few regions are resynced.
//!
//! Each member has two pages, used in turn, so an update that is cut short leaves the one before. All members have the
//! same map, and what is read is the union of the newest page of each: damage to a page of one member never hides a mark.
//!
//! A page, little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `VARVEINT` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | regions |
//! | 16 | 16 | identity of the array |
//! | 32 | 8 | number of the update, from 1; odd ones are in the second page |
//! | 40 | 20 | zero |
//! | 60 | 4 | crc32c of the page without this field |
//! | 64 | 4032 | a bit for each region, the lowest first |

use super::superblock::UNIT_BYTES;
use crate::wire::{u32_at, u64_at};
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: &[u8; 8] = b"VARVEINT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = 60;
const PAGE_BYTES: usize = UNIT_BYTES as usize;

/// Largest number of regions.
pub(super) const REGIONS_MAX: u64 = ((PAGE_BYTES - HEADER_BYTES) * 8) as u64;
/// Smallest region, in bytes of a member: resyncing it takes less than a second.
const REGION_BYTES_MIN: u64 = 1 << 20;
/// Marked regions above which quiet ones are cleared, so that the resync after a power cut is short.
const MARKED_REGIONS_MAX: usize = 64;

/// Stripes to a region, for an array of these sizes.
pub(super) fn region_stripes(stripes: u64, chunk_bytes: u64) -> u64 {
    let least = REGION_BYTES_MIN.div_ceil(chunk_bytes.max(1));
    stripes.div_ceil(REGIONS_MAX).max(least).next_power_of_two()
}

/// One page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IntentPage {
    pub(super) update: u64,
    pub(super) marked: BTreeSet<u64>,
}

/// Contents of the place of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundPage {
    Blank,
    Page(IntentPage),
    OtherVersion(u32),
    /// Damaged, or cut short.
    Damaged,
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM_AT]), &bytes[HEADER_BYTES..])
}

impl IntentPage {
    pub(super) fn encode(&self, identity: &[u8; 16], regions: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(regions as u32).to_le_bytes());
        bytes[16..32].copy_from_slice(identity);
        bytes[32..40].copy_from_slice(&self.update.to_le_bytes());
        for &region in self.marked.iter().filter(|region| **region < regions.min(REGIONS_MAX)) {
            bytes[HEADER_BYTES + region as usize / 8] |= 1 << (region % 8);
        }
        let checksum = checksum(&bytes);
        bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8], identity: &[u8; 16], regions: u64) -> FoundPage {
        if bytes.len() != PAGE_BYTES {
            return FoundPage::Damaged;
        }
        if varve_media::is_zero(bytes) {
            return FoundPage::Blank;
        }
        if !bytes.starts_with(MAGIC) || checksum(bytes) != u32_at(bytes, CHECKSUM_AT) {
            return FoundPage::Damaged;
        }
        if u32_at(bytes, 8) != VERSION {
            return FoundPage::OtherVersion(u32_at(bytes, 8));
        }
        let marked: BTreeSet<u64> = (0..REGIONS_MAX)
            .filter(|region| bytes[HEADER_BYTES + *region as usize / 8] >> (region % 8) & 1 == 1)
            .collect();
        let is_ours = bytes[16..32] == identity[..] && u64::from(u32_at(bytes, 12)) == regions;
        if !is_ours
            || marked.last().is_some_and(|last| *last >= regions)
            || !varve_media::is_zero(&bytes[40..CHECKSUM_AT])
        {
            return FoundPage::Damaged;
        }
        FoundPage::Page(IntentPage { update: u64_at(bytes, 32), marked })
    }
}

/// The map of a member: that of its newest page. `None` where none of its pages can be read, and so any region may be
/// marked.
pub(super) fn newest(pages: [FoundPage; 2]) -> Option<IntentPage> {
    let is_blank = pages.iter().all(|page| *page == FoundPage::Blank);
    let pages = pages.into_iter().filter_map(|page| match page {
        FoundPage::Page(page) => Some(page),
        _ => None,
    });
    let none = is_blank.then(|| IntentPage { update: 0, marked: BTreeSet::new() });
    pages.max_by_key(|page| page.update).or(none)
}

/// Writes to a region.
#[derive(Clone, Copy, Debug, Default)]
struct RegionUse {
    in_flight: u32,
    /// Value of [`IntentMap::completed`] when the last write ended.
    completed: u64,
    /// A write failed, or a resync is due: the mark stays.
    is_stuck: bool,
    /// Writes that failed.
    failures: u64,
}

/// The map of an open array. The executor writes the pages.
#[derive(Debug)]
pub(super) struct IntentMap {
    update: u64,
    /// As on the medium.
    marked: BTreeSet<u64>,
    regions: BTreeMap<u64, RegionUse>,
    completed: u64,
    synced: u64,
}

impl IntentMap {
    /// The map after the newest page was read. Every region of `marked` needs a resync.
    pub(super) fn new(newest: IntentPage) -> IntentMap {
        let stuck = RegionUse { is_stuck: true, ..RegionUse::default() };
        let regions = newest.marked.iter().map(|region| (*region, stuck)).collect();
        IntentMap { update: newest.update, marked: newest.marked, regions, completed: 0, synced: 0 }
    }

    /// Regions that need a resync, in order.
    pub(super) fn due(&self) -> impl Iterator<Item = u64> {
        self.regions.iter().filter(|(_, region)| region.is_stuck).map(|(number, _)| *number)
    }

    /// Returns true if a region needs a resync.
    pub(super) fn is_due(&self, region: u64) -> bool {
        self.regions.get(&region).is_some_and(|region| region.is_stuck)
    }

    /// Begins writes to regions. Returns the page that must be durable on all members before them, if one must.
    pub(super) fn begin(&mut self, regions: &BTreeSet<u64>) -> Option<IntentPage> {
        for &region in regions {
            self.regions.entry(region).or_default().in_flight += 1;
        }
        let is_marked = regions.is_subset(&self.marked);
        (!is_marked).then(|| self.next(MARKED_REGIONS_MAX, regions))
    }

    /// Ends writes to regions.
    pub(super) fn end(&mut self, regions: &BTreeSet<u64>, has_failed: bool) {
        self.completed += 1;
        for region in regions {
            if let Some(region) = self.regions.get_mut(region) {
                region.in_flight = region.in_flight.saturating_sub(1);
                region.completed = self.completed;
                region.is_stuck |= has_failed;
                region.failures += u64::from(has_failed);
            }
        }
    }

    /// Writes that have ended. A sync that begins now covers them.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// A sync that covers the first `completed` writes was successful.
    pub(super) fn synced(&mut self, completed: u64) {
        self.synced = self.synced.max(completed);
    }

    /// Writes to a region that failed so far. A resync that begins now covers them.
    pub(super) fn failures(&self, region: u64) -> u64 {
        self.regions.get(&region).map_or(0, |region| region.failures)
    }

    /// The redundancy of a region was made consistent, durably, except where a write failed after the first `failures`.
    pub(super) fn resynced(&mut self, region: u64, failures: u64) {
        if let Some(region) = self.regions.get_mut(&region) {
            region.is_stuck = region.failures != failures;
        }
    }

    /// The page without marks that are not needed, if that is another one.
    pub(super) fn close(&self) -> Option<IntentPage> {
        let page = self.next(0, &BTreeSet::new());
        (page.marked != self.marked).then_some(page)
    }

    fn is_quiet(&self, region: u64) -> bool {
        self.regions
            .get(&region)
            .is_none_or(|region| region.in_flight == 0 && region.completed <= self.synced && !region.is_stuck)
    }

    /// The next page, which has at most `marked_max` marks as far as quiet regions allow. Clears the quietest first.
    fn next(&self, marked_max: usize, added: &BTreeSet<u64>) -> IntentPage {
        let mut marked: BTreeSet<u64> = self.marked.union(added).copied().collect();
        let mut quiet: Vec<u64> = marked.iter().copied().filter(|region| self.is_quiet(*region)).collect();
        quiet.sort_by_key(|region| self.regions.get(region).map_or(0, |region| region.completed));
        for region in quiet {
            if marked.len() > marked_max {
                marked.remove(&region);
            }
        }
        IntentPage { update: self.update + 1, marked }
    }

    /// A page is durable on all members.
    pub(super) fn written(&mut self, page: IntentPage) {
        self.update = page.update;
        self.marked = page.marked;
        let marked = &self.marked;
        self.regions.retain(|region, _| marked.contains(region));
    }

    /// The page on the medium, for a member that joins.
    pub(super) fn page(&self) -> IntentPage {
        IntentPage { update: self.update, marked: self.marked.clone() }
    }
}

/// Decodes any bytes as a page, as they are and with the magic and checksum that random bytes do not have.
pub(super) fn fuzz(data: &[u8]) {
    let identity = [7; 16];
    let mut sealed = data.to_vec();
    sealed.resize(PAGE_BYTES, 0);
    sealed[..8].copy_from_slice(MAGIC);
    sealed[8..12].copy_from_slice(&VERSION.to_le_bytes());
    sealed[12..16].copy_from_slice(&1000_u32.to_le_bytes());
    sealed[16..32].copy_from_slice(&identity);
    sealed[40..CHECKSUM_AT].fill(0);
    let checksum = checksum(&sealed);
    sealed[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    for bytes in [data, &sealed] {
        if let FoundPage::Page(page) = IntentPage::decode(bytes, &identity, 1000) {
            assert!(page.marked.iter().all(|region| *region < 1000));
            assert_eq!(page.encode(&identity, 1000), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: [u8; 16] = *b"0123456789abcdef";

    fn page(update: u64, marked: &[u64]) -> IntentPage {
        IntentPage { update, marked: marked.iter().copied().collect() }
    }

    #[test]
    fn decodes_what_it_encodes() {
        let bytes = page(3, &[0, 9, 999]).encode(&IDENTITY, 1000);
        assert_eq!(IntentPage::decode(&bytes, &IDENTITY, 1000), FoundPage::Page(page(3, &[0, 9, 999])));
        assert_eq!(IntentPage::decode(&bytes, &[0; 16], 1000), FoundPage::Damaged);
        assert_eq!(IntentPage::decode(&bytes, &IDENTITY, 999), FoundPage::Damaged);
        let golden = include_bytes!("golden/intent.bin");
        assert_eq!(bytes[..golden.len()], golden[..]);
        assert!(varve_media::is_zero(&bytes[golden.len()..]));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IntentPage::decode(&bytes, &IDENTITY, 1000), FoundPage::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn takes_any_bytes() {
        let mut random = varve_env::Random::named(1, "intent page");
        for _ in 0..500 {
            let mut bytes = page(3, &[1, 2]).encode(&IDENTITY, 1000);
            for _ in 0..random.below(20) {
                let at = random.index(200);
                bytes[at] = random.below(256) as u8;
            }
            bytes.truncate(random.index(bytes.len() + 1));
            fuzz(&bytes);
        }
    }

    #[test]
    fn the_newest_whole_page_counts() {
        let whole = |update| FoundPage::Page(page(update, &[update]));
        assert_eq!(newest([whole(4), whole(5)]), Some(page(5, &[5])));
        assert_eq!(newest([whole(4), FoundPage::Damaged]), Some(page(4, &[4])));
        assert_eq!(newest([FoundPage::Blank, FoundPage::Blank]), Some(page(0, &[])));
        assert_eq!(newest([FoundPage::Damaged, FoundPage::Blank]), None);
    }

    #[test]
    fn regions_are_few_and_no_smaller_than_needed() {
        assert_eq!(region_stripes(100, 64 << 10), 16);
        assert_eq!(region_stripes(100, 4 << 20), 1);
        for stripes in [1, 1000, REGIONS_MAX, 12_000_000, 1 << 40] {
            assert!(stripes.div_ceil(region_stripes(stripes, 512 << 10)) <= REGIONS_MAX);
        }
    }

    #[test]
    fn marks_stay_while_they_are_needed() {
        let mut map = IntentMap::new(page(0, &[]));
        let set = |regions: &[u64]| regions.iter().copied().collect::<BTreeSet<u64>>();
        let first = map.begin(&set(&[1])).unwrap();
        assert_eq!(first, page(1, &[1]));
        map.written(first);
        assert_eq!(map.begin(&set(&[1])), None);
        map.end(&set(&[1]), false);
        assert_eq!(map.close(), None, "a write is in flight");
        map.end(&set(&[1]), false);
        assert_eq!(map.close(), None, "it is not synced");
        let covered = map.completed();
        let second = map.begin(&set(&[2])).unwrap();
        map.written(second);
        map.synced(covered);
        assert_eq!(map.close(), Some(page(3, &[2])));
        map.end(&set(&[2]), true);
        map.synced(map.completed());
        assert_eq!(map.close(), Some(page(3, &[2])), "a write failed");
        assert_eq!(map.due().collect::<Vec<_>>(), [2]);
        // A resync that began before the write failed does not cover it.
        map.resynced(2, 0);
        assert!(map.is_due(2));
        let failures = map.failures(2);
        map.resynced(2, failures);
        assert_eq!(map.close(), Some(page(3, &[])));
        // Many regions: quiet ones make room.
        for region in 10..200 {
            if let Some(page) = map.begin(&set(&[region])) {
                map.written(page);
            }
            map.end(&set(&[region]), false);
            map.synced(map.completed());
        }
        assert_eq!(map.page().marked.len(), MARKED_REGIONS_MAX);
        assert!(map.page().marked.contains(&199));
    }
}
