//! Sparse bytes that are cheap to copy: what crash states are made of.

use crate::protection::ProtectionFormat;
use crate::sectors::{SectorSlice, Sectors};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page: the unit that is copied on write.
pub(crate) const PAGE_BYTES: u64 = 4096;
const LEAF_PAGES: u64 = 64;

/// Content of a page.
#[derive(Clone)]
struct Page {
    data: [u8; PAGE_BYTES as usize],
    /// Complements of the tuples of the page's intervals, so that zeros are unwritten tuples; empty without protection
    /// information.
    complements: Box<[u8]>,
}

/// What is known about a page.
#[derive(Clone)]
enum Slot {
    /// Never written.
    Absent,
    /// Cleared: all zeros.
    Zero,
    Data(Arc<Page>),
}

#[derive(Clone)]
struct Leaf {
    slots: [Slot; LEAF_PAGES as usize],
}

impl Leaf {
    fn filled(slot: Slot) -> Arc<Leaf> {
        Arc::new(Leaf { slots: std::array::from_fn(|_| slot.clone()) })
    }
}

/// Bytes addressed from 0, zero where never written. A clone is O(1) and shares everything; the
/// first write afterwards copies one page, one leaf of 64 pages and the list of leaves.
///
/// With protection information a page has the tuples of its data, so whatever keeps, copies or drops a page keeps, copies
/// or drops both.
#[derive(Clone, Default)]
pub(crate) struct SparseBytes {
    leaves: Arc<BTreeMap<u64, Arc<Leaf>>>,
    /// Format of the tuples; its intervals divide a page.
    format: Option<ProtectionFormat>,
}

impl SparseBytes {
    /// Empty bytes that keep tuples of `format`, whose intervals divide a page.
    pub(crate) fn with_tuples(format: Option<ProtectionFormat>) -> Self {
        SparseBytes { format, ..SparseBytes::default() }
    }

    /// Takes all content, and leaves empty bytes of the same format.
    pub(crate) fn take(&mut self) -> SparseBytes {
        let empty = SparseBytes::with_tuples(self.format);
        std::mem::replace(self, empty)
    }

    /// Bytes of the tuples of `length` bytes of data.
    fn tuples_bytes(&self, length: usize) -> usize {
        self.format.map_or(0, |format| format.tuples_bytes(length as u64) as usize)
    }

    fn slot(&self, page: u64) -> &Slot {
        let leaf = self.leaves.get(&(page / LEAF_PAGES));
        leaf.map_or(&Slot::Absent, |leaf| &leaf.slots[(page % LEAF_PAGES) as usize])
    }

    fn slot_mut(&mut self, page: u64) -> &mut Slot {
        let leaf =
            Arc::make_mut(&mut self.leaves).entry(page / LEAF_PAGES).or_insert_with(|| Leaf::filled(Slot::Absent));
        &mut Arc::make_mut(leaf).slots[(page % LEAF_PAGES) as usize]
    }

    /// Whether page number `page` was ever written or cleared.
    pub(crate) fn contains_page(&self, page: u64) -> bool {
        !matches!(self.slot(page), Slot::Absent)
    }

    /// Fills `data` from `offset_bytes`.
    pub(crate) fn read(&self, offset_bytes: u64, data: &mut [u8]) {
        for (page, within, range) in pages_of(offset_bytes, data.len()) {
            let target = &mut data[range];
            match self.slot(page) {
                Slot::Data(page) => target.copy_from_slice(&page.data[within..within + target.len()]),
                Slot::Zero | Slot::Absent => target.fill(0),
            }
        }
    }

    /// The sectors of a range, whole intervals, with their tuples.
    pub(crate) fn sectors(&self, range: &Range<u64>) -> Sectors {
        let length = (range.end - range.start) as usize;
        let mut found = Sectors::unwritten(self.format, length);
        let (data, tuples) = found.as_mut();
        self.read(range.start, data);
        for (page, within, part) in pages_of(range.start, length) {
            let Slot::Data(page) = self.slot(page) else { continue };
            let complements = page.complements.iter().skip(self.tuples_bytes(within));
            let part = self.tuples_bytes(part.start)..self.tuples_bytes(part.end);
            tuples[part].iter_mut().zip(complements).for_each(|(byte, complement)| *byte = !complement);
        }
        found
    }

    /// Stores sectors at `offset_bytes`. Bytes that keep tuples take sectors that have some.
    pub(crate) fn write<'a>(&mut self, offset_bytes: u64, sectors: impl Into<SectorSlice<'a>>) {
        let sectors = sectors.into();
        let tuples_of_page = self.tuples_bytes(PAGE_BYTES as usize);
        for (page, within, range) in pages_of(offset_bytes, sectors.data.len()) {
            let source = sectors.part(range);
            let first_tuple = self.tuples_bytes(within);
            let slot = self.slot_mut(page);
            if !matches!(slot, Slot::Data(_)) {
                let complements = vec![0; tuples_of_page].into();
                *slot = Slot::Data(Arc::new(Page { data: [0; PAGE_BYTES as usize], complements }));
            }
            if let Slot::Data(page) = slot {
                let page = Arc::make_mut(page);
                page.data[within..within + source.data.len()].copy_from_slice(source.data);
                let complements = page.complements.iter_mut().skip(first_tuple);
                complements.zip(source.tuples).for_each(|(complement, byte)| *complement = !byte);
            }
        }
    }

    /// Makes those of `pages` that were never written or cleared the same as in `other`, sharing them.
    pub(crate) fn copy_absent(&mut self, other: &SparseBytes, pages: Range<u64>) {
        let mut page = pages.start;
        while page < pages.end {
            let leaf = page / LEAF_PAGES;
            let whole = page.is_multiple_of(LEAF_PAGES) && pages.end - page >= LEAF_PAGES;
            if whole && !self.leaves.contains_key(&leaf) {
                if let Some(shared) = other.leaves.get(&leaf) {
                    Arc::make_mut(&mut self.leaves).insert(leaf, shared.clone());
                }
                page += LEAF_PAGES;
                continue;
            }
            if !self.contains_page(page) {
                *self.slot_mut(page) = other.slot(page).clone();
            }
            page += 1;
        }
    }

    /// Makes a range zero, and its tuples unwritten. Its pages count as cleared, not as never written.
    pub(crate) fn clear(&mut self, offset_bytes: u64, length_bytes: u64) {
        let end = offset_bytes.saturating_add(length_bytes);
        let mut at = offset_bytes;
        while at < end {
            let page = at / PAGE_BYTES;
            let within = (at % PAGE_BYTES) as usize;
            let count = (PAGE_BYTES - at % PAGE_BYTES).min(end - at);
            if within == 0 && page.is_multiple_of(LEAF_PAGES) && end - at >= LEAF_PAGES * PAGE_BYTES {
                Arc::make_mut(&mut self.leaves).insert(page / LEAF_PAGES, Leaf::filled(Slot::Zero));
                at += LEAF_PAGES * PAGE_BYTES;
                continue;
            }
            let end_within = within + count as usize;
            let tuples = self.tuples_bytes(within)..self.tuples_bytes(end_within);
            let slot = self.slot_mut(page);
            match slot {
                Slot::Data(page) if count < PAGE_BYTES => {
                    let page = Arc::make_mut(page);
                    page.data[within..end_within].fill(0);
                    page.complements[tuples].fill(0);
                }
                _ => *slot = Slot::Zero,
            }
            at += count;
        }
    }

    /// Forgets everything from `offset_bytes` on: it is zero, and its whole pages as if never written.
    pub(crate) fn truncate(&mut self, offset_bytes: u64) {
        let first_whole = offset_bytes.div_ceil(PAGE_BYTES);
        if let Slot::Data(_) = self.slot(offset_bytes / PAGE_BYTES) {
            self.clear(offset_bytes, first_whole * PAGE_BYTES - offset_bytes);
        }
        let leaf = first_whole / LEAF_PAGES;
        if self.leaves.range(leaf..).next().is_none() {
            return;
        }
        let leaves = Arc::make_mut(&mut self.leaves);
        leaves.split_off(&(leaf + 1));
        if let Some(kept) = leaves.get_mut(&leaf) {
            Arc::make_mut(kept).slots[(first_whole % LEAF_PAGES) as usize..].fill(Slot::Absent);
        }
    }
}

/// Splits a range into (page number, offset within the page, range of the data).
fn pages_of(offset_bytes: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset_bytes + done as u64;
        let within = (at % PAGE_BYTES) as usize;
        let count = (PAGE_BYTES as usize - within).min(length - done);
        done += count;
        Some((at / PAGE_BYTES, within, done - count..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    #[test]
    fn behaves_like_a_vector_of_bytes_and_copies_share_nothing() {
        let mut random = Random::seeded(11);
        let span = 3 * LEAF_PAGES * PAGE_BYTES;
        let mut model = vec![0u8; span as usize];
        let mut bytes = SparseBytes::default();
        let mut copies = Vec::new();
        for step in 0..300 {
            let offset = random.below(span);
            match random.below(20) {
                0 => {
                    bytes.truncate(offset);
                    model[offset as usize..].fill(0);
                }
                1..4 => {
                    let length = random.below(span - offset);
                    bytes.clear(offset, length);
                    model[offset as usize..(offset + length) as usize].fill(0);
                    if length > 0 {
                        assert!(bytes.contains_page(offset / PAGE_BYTES));
                    }
                }
                _ => {
                    let mut data = vec![0; random.below((span - offset).min(20_000)) as usize];
                    random.fill_bytes(&mut data);
                    bytes.write(offset, &data[..]);
                    model[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                }
            }
            if step % 60 == 0 {
                copies.push((bytes.clone(), model.clone()));
            }
        }
        copies.push((bytes, model));
        for (bytes, model) in copies {
            let mut found = vec![1u8; span as usize];
            bytes.read(0, &mut found);
            assert!(found == model);
        }
    }

    /// Tuples follow their data through writes, clears, copies and pages taken over.
    #[test]
    fn pages_keep_the_tuples_of_their_data() {
        use crate::protection::{GuardKind, ProtectionTuple, ProtectionType};
        for interval_bytes in [512, 4096u64] {
            let format = ProtectionFormat {
                protection_type: ProtectionType::Type1,
                guard: GuardKind::Crc,
                interval_bytes: interval_bytes as u32,
            };
            let mut random = Random::seeded(interval_bytes);
            let intervals = 2 * LEAF_PAGES * PAGE_BYTES / interval_bytes;
            let mut bytes = SparseBytes::with_tuples(Some(format));
            let mut other = bytes.clone();
            // The number of the write that each interval has, of both.
            let mut models = [vec![0; intervals as usize], vec![0; intervals as usize]];
            for step in 1..400u16 {
                let is_other = random.chance(1, 2);
                let target = if is_other { &mut other } else { &mut bytes };
                let first = random.below(intervals);
                let count = random.below((intervals - first).min(40)) as usize;
                let at = first * interval_bytes;
                let number = if random.chance(1, 4) { 0 } else { step };
                if number == 0 {
                    target.clear(at, count as u64 * interval_bytes);
                } else {
                    let data = number.to_le_bytes().repeat(count * interval_bytes as usize / 2);
                    let mut tuples = vec![0; count * ProtectionTuple::BYTES];
                    format.generate(at, number, [&data[..]], &mut tuples);
                    target.write(at, SectorSlice { data: &data, tuples: &tuples });
                }
                models[usize::from(is_other)][first as usize..first as usize + count].fill(number);
            }
            let check = |bytes: &SparseBytes, model: &[u16]| {
                for (index, &number) in (0..).zip(model) {
                    let at = index * interval_bytes;
                    let found = bytes.sectors(&(at..at + interval_bytes));
                    let mut tuple = ProtectionTuple::UNWRITTEN.encode();
                    let data = number.to_le_bytes().repeat(interval_bytes as usize / 2);
                    if number != 0 {
                        format.generate(at, number, [&data[..]], &mut tuple);
                    }
                    let found = found.as_slice();
                    assert!(found.data == data && found.tuples == tuple, "interval {index} of {interval_bytes} bytes");
                }
            };
            check(&bytes, &models[0]);
            check(&other, &models[1]);
            let per_page = (PAGE_BYTES / interval_bytes) as usize;
            let [model, other_model] = &mut models;
            for (page, own) in model.chunks_mut(per_page).enumerate() {
                if !bytes.contains_page(page as u64) {
                    own.copy_from_slice(&other_model[page * per_page..(page + 1) * per_page]);
                }
            }
            bytes.copy_absent(&other, 0..2 * LEAF_PAGES);
            check(&bytes, &models[0]);
            check(&bytes.take(), &models[0]);
            check(&bytes, &vec![0; intervals as usize]);
        }
    }

    #[test]
    fn absent_pages_are_taken_over_and_present_ones_kept() {
        let seed = 12;
        let mut random = Random::seeded(seed);
        let pages = 4 * LEAF_PAGES;
        for round in 0..20 {
            let mut fill = |bytes: &mut SparseBytes, value| {
                for _ in 0..random.below(150) {
                    let at = random.below(pages) * PAGE_BYTES;
                    match random.below(3) {
                        0 => bytes.clear(at, PAGE_BYTES * random.below(100)),
                        _ => bytes.write(at, &[value; PAGE_BYTES as usize][..]),
                    }
                }
            };
            let (mut one, mut other) = (SparseBytes::default(), SparseBytes::default());
            fill(&mut one, 1);
            fill(&mut other, 2);
            let before = one.clone();
            let first = random.below(pages);
            let range = first..first + random.below(pages - first + 1);
            one.copy_absent(&other, range.clone());
            for page in 0..pages {
                let source = if range.contains(&page) && !before.contains_page(page) { &other } else { &before };
                let (mut found, mut expected) = ([9; 1], [9; 1]);
                one.read(page * PAGE_BYTES, &mut found);
                source.read(page * PAGE_BYTES, &mut expected);
                assert_eq!(found, expected, "seed {seed} round {round} page {page}");
                assert_eq!(
                    one.contains_page(page),
                    source.contains_page(page),
                    "seed {seed} round {round} page {page}"
                );
            }
        }
    }
}
