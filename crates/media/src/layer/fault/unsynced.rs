//! What a medium had before the writes that were not synced yet.

use crate::protection::{ProtectionFormat, ProtectionTuple};
use crate::sparse::{PAGE_BYTES, SparseBytes};
use std::collections::BTreeMap;
use std::ops::Range;

/// Old content by page, since the last good sync.
#[derive(Default)]
pub(super) struct Unsynced {
    before: SparseBytes,
    pages: Vec<u64>,
    /// Tuples of remembered pages, by page; empty without protection information.
    tuples: BTreeMap<u64, Vec<u8>>,
    /// Length before the first change, for files.
    pub(super) size_bytes: Option<u64>,
}

impl Unsynced {
    /// Remembers the pages of `range` that are not remembered yet; `read` fills a page from its number.
    pub(super) fn save<E>(
        &mut self,
        range: Range<u64>,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut bytes = [0; PAGE_BYTES as usize];
        for page in range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES) {
            if !self.before.contains_page(page) {
                bytes.fill(0);
                read(page, &mut bytes)?;
                if crate::is_zero(&bytes) {
                    self.before.clear(page * PAGE_BYTES, PAGE_BYTES);
                } else {
                    self.before.write(page * PAGE_BYTES, &bytes);
                }
                self.pages.push(page);
            }
        }
        Ok(())
    }

    /// These bytes are durable: they stay when what is remembered comes back.
    pub(super) fn keep(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut at = offset_bytes;
        let mut rest = data;
        while !rest.is_empty() {
            let length = rest.len().min((PAGE_BYTES - at % PAGE_BYTES) as usize);
            let (head, tail) = rest.split_at(length);
            if self.before.contains_page(at / PAGE_BYTES) {
                self.before.write(at, head);
            }
            at += length as u64;
            rest = tail;
        }
    }

    /// Remembers the tuples of a page.
    pub(super) fn save_tuples(&mut self, page: u64, tuples: Vec<u8>) {
        self.tuples.insert(page, tuples);
    }

    /// Takes over the tuples of a durable write at `offset_bytes`.
    pub(super) fn keep_tuples(&mut self, format: &ProtectionFormat, offset_bytes: u64, tuples: &[u8]) {
        let interval_bytes = u64::from(format.interval_bytes.max(1));
        for (index, tuple) in (0..).zip(tuples.chunks_exact(ProtectionTuple::BYTES)) {
            let at = offset_bytes + index * interval_bytes;
            let start = format.tuples_bytes(at % PAGE_BYTES) as usize;
            let page = self.tuples.get_mut(&(at / PAGE_BYTES));
            if let Some(kept) = page.and_then(|page| page.get_mut(start..start + ProtectionTuple::BYTES)) {
                kept.copy_from_slice(tuple);
            }
        }
    }

    /// Gives back the remembered tuples, by page, and forgets them.
    pub(super) fn take_tuples(&mut self) -> BTreeMap<u64, Vec<u8>> {
        std::mem::take(&mut self.tuples)
    }

    /// Gives back every remembered page (offset and bytes) and forgets them.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        let before = std::mem::take(&mut self.before);
        let page = move |page| {
            let mut bytes = vec![0; PAGE_BYTES as usize];
            before.read(page * PAGE_BYTES, &mut bytes);
            (page * PAGE_BYTES, bytes)
        };
        std::mem::take(&mut self.pages).into_iter().map(page)
    }

    /// Forgets everything: it was synced.
    pub(super) fn clear(&mut self) {
        *self = Unsynced::default();
    }
}
