//! What a medium had before the writes that were not synced yet.

use crate::protection::ProtectionFormat;
use crate::sectors::{SectorSlice, Sectors};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use std::ops::Range;

/// Old content by page, since the last good sync.
#[derive(Default)]
pub(super) struct Unsynced {
    before: SparseBytes,
    pages: Vec<u64>,
    /// Length before the first change, for files.
    pub(super) size_bytes: Option<u64>,
}

impl Unsynced {
    /// Nothing yet, of a device with tuples of `format`, whose intervals divide a page.
    pub(super) fn with_tuples(format: Option<ProtectionFormat>) -> Self {
        Unsynced { before: SparseBytes::with_tuples(format), ..Unsynced::default() }
    }

    /// Remembers the pages of `range` that are not remembered yet; `read` reads the page at an offset, shorter at the end.
    pub(super) fn save<E>(
        &mut self,
        range: Range<u64>,
        mut read: impl FnMut(u64) -> Result<Sectors, E>,
    ) -> Result<(), E> {
        for page in range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES) {
            if !self.before.contains_page(page) {
                let found = read(page * PAGE_BYTES)?;
                if found.as_slice().is_unwritten() {
                    self.before.clear(page * PAGE_BYTES, PAGE_BYTES);
                } else {
                    self.before.write(page * PAGE_BYTES, found.as_slice());
                }
                self.pages.push(page);
            }
        }
        Ok(())
    }

    /// These sectors are durable: they stay when what is remembered comes back.
    pub(super) fn keep(&mut self, offset_bytes: u64, sectors: SectorSlice<'_>) {
        let (mut at, mut done) = (offset_bytes, 0);
        while done < sectors.data.len() {
            let length = (sectors.data.len() - done).min((PAGE_BYTES - at % PAGE_BYTES) as usize);
            if self.before.contains_page(at / PAGE_BYTES) {
                self.before.write(at, sectors.part(done..done + length));
            }
            at += length as u64;
            done += length;
        }
    }

    /// Gives back every remembered page (offset and content) and forgets them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, Sectors)> + use<> {
        let before = self.before.take();
        let page = move |page| (page * PAGE_BYTES, before.sectors(&(page * PAGE_BYTES..(page + 1) * PAGE_BYTES)));
        std::mem::take(&mut self.pages).into_iter().map(page)
    }

    /// Forgets everything: it was synced.
    pub(super) fn clear(&mut self) {
        self.before.take();
        self.pages.clear();
        self.size_bytes = None;
    }
}
