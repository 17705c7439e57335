//! One table, as the shape of a tree knows it.

use super::garbage::Garbage;
use crate::key;
use crate::manifest::AddedFile;
use crate::table::{Histogram, TableHandle, TableIdentity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// One table of the tree. Alive as long as any version or reader holds it; when the last one lets
/// go of a table that left the tree, its file becomes garbage.
pub(crate) struct FileMeta {
    pub(crate) number: u64,
    pub(crate) size_bytes: u64,
    pub(crate) table_id: u64,
    /// Smallest internal key.
    pub(crate) smallest: Box<[u8]>,
    /// Largest internal key.
    pub(crate) largest: Box<[u8]>,
    /// User key from which on its entries count; all of them without one. What lies before is in tables that a merge has written so far.
    pub(crate) begin: Option<Box<[u8]>>,
    /// The table of which this is the rest, if that was known here: the file is one, and goes with it.
    whole: Option<Arc<FileMeta>>,
    pub(crate) oldest_sequence: u64,
    pub(crate) newest_sequence: u64,
    pub(crate) entries: u64,
    pub(crate) deletions: u64,
    handle: TableHandle,
    /// How its bytes are spread over keys, once it is known; empty when the table does not say.
    pub(crate) histogram: OnceLock<Histogram>,
    obsolete: AtomicBool,
    garbage: Arc<Garbage>,
}

impl Drop for FileMeta {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.garbage.push_table(self.number);
        }
    }
}

impl FileMeta {
    pub(crate) fn new(added: &AddedFile, garbage: &Arc<Garbage>) -> Arc<Self> {
        Arc::new(FileMeta::of(added, garbage))
    }

    fn of(added: &AddedFile, garbage: &Arc<Garbage>) -> Self {
        FileMeta {
            number: added.number,
            size_bytes: added.size_bytes,
            table_id: added.table_id,
            smallest: added.smallest.clone().into_boxed_slice(),
            largest: added.largest.clone().into_boxed_slice(),
            begin: added.begin.clone().map(Vec::into_boxed_slice),
            whole: None,
            oldest_sequence: added.oldest_sequence,
            newest_sequence: added.newest_sequence,
            entries: added.entries,
            deletions: added.deletions,
            handle: TableHandle::new(added.number, added.size_bytes),
            histogram: OnceLock::new(),
            obsolete: AtomicBool::new(false),
            garbage: garbage.clone(),
        }
    }

    /// The same table, of which only entries from a user key on count: above its smallest that counts, and at most its largest.
    pub(crate) fn rest_from(self: &Arc<Self>, begin: &[u8]) -> Arc<Self> {
        let whole = self.whole.as_ref().unwrap_or(self);
        let added = AddedFile { begin: Some(begin.to_vec()), ..self.to_added(0) };
        let mut rest = FileMeta::of(&added, &self.garbage);
        rest.whole = Some(whole.clone());
        if let Some(histogram) = self.histogram.get() {
            let _ = rest.histogram.set(histogram.from(begin));
        }
        Arc::new(rest)
    }

    /// The open table, while it stays open.
    pub(crate) fn handle(&self) -> &TableHandle {
        &self.whole.as_deref().unwrap_or(self).handle
    }

    pub(crate) fn to_added(&self, level: usize) -> AddedFile {
        AddedFile {
            level: level as u8,
            number: self.number,
            size_bytes: self.size_bytes,
            table_id: self.table_id,
            smallest: self.smallest.to_vec(),
            largest: self.largest.to_vec(),
            begin: self.begin.as_deref().map(<[u8]>::to_vec),
            oldest_sequence: self.oldest_sequence,
            newest_sequence: self.newest_sequence,
            entries: self.entries,
            deletions: self.deletions,
        }
    }

    /// Which table it is: the file must say the same.
    pub(crate) fn identity(&self) -> TableIdentity<'_> {
        TableIdentity {
            table_id: self.table_id,
            entries: self.entries,
            deletions: self.deletions,
            oldest_sequence: self.oldest_sequence,
            newest_sequence: self.newest_sequence,
            smallest: &self.smallest,
            largest: &self.largest,
        }
    }

    /// Says that no version installed from now on holds it: its file goes when its readers do.
    pub(crate) fn mark_obsolete(&self) {
        self.whole.as_deref().unwrap_or(self).obsolete.store(true, Ordering::Release);
    }

    /// Of entries that count none has a smaller one.
    #[inline]
    pub(crate) fn smallest_user_key(&self) -> &[u8] {
        self.begin.as_deref().unwrap_or_else(|| key::user_key(&self.smallest))
    }

    pub(crate) fn largest_user_key(&self) -> &[u8] {
        key::user_key(&self.largest)
    }

    /// Ends of the buckets of its histogram, of at most so many, and their bytes; neighbours count as one where it has more. Without a
    /// histogram all of it ends at its largest key.
    pub(crate) fn buckets(&self, most: usize) -> impl Iterator<Item = (&[u8], u64)> {
        let known = self.histogram.get().map_or(&[][..], |histogram| histogram.buckets());
        let whole = known.is_empty().then(|| (self.largest_user_key(), self.size_bytes));
        let merged = known.chunks(known.len().div_ceil(most).max(1)).filter_map(|chunk| {
            let bytes = chunk.iter().fold(0u64, |sum, bucket| sum.saturating_add(bucket.bytes));
            chunk.last().map(|last| (&*last.last, bytes))
        });
        merged.chain(whole)
    }

    /// About how many bytes of a manifest name it.
    pub(super) fn listed_bytes(&self) -> u64 {
        const NUMBERS_BYTES: usize = 48;
        (NUMBERS_BYTES + self.smallest.len() + self.largest.len()) as u64
    }

    pub(super) fn overlaps(&self, smallest: Option<&[u8]>, largest: Option<&[u8]>) -> bool {
        largest.is_none_or(|largest| self.smallest_user_key() <= largest)
            && smallest.is_none_or(|smallest| self.largest_user_key() >= smallest)
    }
}

impl std::fmt::Debug for FileMeta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "#{} {}B [{}..{}]",
            self.number,
            self.size_bytes,
            self.smallest_user_key().escape_ascii(),
            self.largest_user_key().escape_ascii()
        )
    }
}
