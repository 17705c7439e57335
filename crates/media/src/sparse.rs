//! Sparse bytes that are cheap to copy: what crash states are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a page: the unit that is copied on write.
pub(crate) const PAGE_BYTES: u64 = 4096;
const LEAF_PAGES: u64 = 64;

type Page = [u8; PAGE_BYTES as usize];

#[derive(Clone)]
struct Leaf {
    pages: [Option<Arc<Page>>; LEAF_PAGES as usize],
}

/// Bytes addressed from 0, zero where never written. A clone is O(1) and shares everything; the
/// first write afterwards copies one page, one leaf of 64 pages and the list of leaves.
#[derive(Clone, Default)]
pub(crate) struct SparseBytes {
    leaves: Arc<BTreeMap<u64, Arc<Leaf>>>,
}

impl SparseBytes {
    fn page(&self, page: u64) -> Option<&Page> {
        self.leaves.get(&(page / LEAF_PAGES))?.pages[(page % LEAF_PAGES) as usize].as_deref()
    }

    fn page_slot(&mut self, page: u64) -> &mut Option<Arc<Page>> {
        let leaf = Arc::make_mut(&mut self.leaves)
            .entry(page / LEAF_PAGES)
            .or_insert_with(|| Arc::new(Leaf { pages: [const { None }; LEAF_PAGES as usize] }));
        &mut Arc::make_mut(leaf).pages[(page % LEAF_PAGES) as usize]
    }

    /// Whether page number `page` was ever written (and not cleared since).
    pub(crate) fn contains_page(&self, page: u64) -> bool {
        self.page(page).is_some()
    }

    /// Fills `data` from `offset_bytes`.
    pub(crate) fn read(&self, offset_bytes: u64, data: &mut [u8]) {
        for (page, within, range) in pages_of(offset_bytes, data.len()) {
            let target = &mut data[range];
            match self.page(page) {
                Some(bytes) => target.copy_from_slice(&bytes[within..within + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// Stores `data` at `offset_bytes`.
    pub(crate) fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        for (page, within, range) in pages_of(offset_bytes, data.len()) {
            let source = &data[range];
            let slot = self.page_slot(page);
            let bytes = Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; PAGE_BYTES as usize])));
            bytes[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Makes everything from `offset_bytes` on zero.
    pub(crate) fn clear_from(&mut self, offset_bytes: u64) {
        let first_whole = offset_bytes.div_ceil(PAGE_BYTES);
        let within = (offset_bytes % PAGE_BYTES) as usize;
        if within != 0 && self.contains_page(offset_bytes / PAGE_BYTES) {
            self.write(offset_bytes, &vec![0; PAGE_BYTES as usize - within]);
        }
        let leaf = first_whole / LEAF_PAGES;
        if self.leaves.range(leaf..).next().is_none() {
            return;
        }
        let leaves = Arc::make_mut(&mut self.leaves);
        leaves.split_off(&(leaf + 1));
        if let Some(kept) = leaves.get_mut(&leaf) {
            for slot in &mut Arc::make_mut(kept).pages[(first_whole % LEAF_PAGES) as usize..] {
                *slot = None;
            }
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
            if random.chance(1, 20) {
                bytes.clear_from(offset);
                model[offset as usize..].fill(0);
            } else {
                let mut data = vec![0; random.below((span - offset).min(20_000)) as usize];
                random.fill_bytes(&mut data);
                bytes.write(offset, &data);
                model[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
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
}
