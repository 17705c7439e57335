//! Reading a file: from the device that has the part, or from the cache of blocks.

use super::core::Core;
use super::file::{HybridFile, Part};
use super::levels::Tier;
use super::statistics::add;
use crate::error::StoreError;
use crate::file_store::{ReadRange, ReadableFile};
use crate::journal::corruption;
use crate::record_cache::{RECORD_BYTES_MAX, RecordCache};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_media::{FileMapping, IoCause, IoClass, IoContext};

/// Reads of a tier after which somebody looks whether a table should move.
const READS_OF_LOOK: u64 = 32;

/// Reads any file of the store.
pub(super) struct HybridReader {
    core: Arc<Core>,
    file: Arc<HybridFile>,
}

/// The part that has a byte.
fn part_of(parts: &[Part], offset_bytes: u64) -> usize {
    parts.partition_point(|part| part.start_bytes <= offset_bytes).saturating_sub(1)
}

impl HybridReader {
    pub(super) fn new(core: Arc<Core>, file: Arc<HybridFile>) -> HybridReader {
        HybridReader { core, file }
    }

    fn past_end(&self, offset_bytes: u64, length: usize) -> StoreError {
        StoreError::PastEnd {
            store: self.core.label.clone(),
            name: self.file.name.lock().clone(),
            offset_bytes,
            length_bytes: length as u64,
            size_bytes: self.file.size_bytes(),
        }
    }

    /// Counts a read of a user, and does it from the cache where that has the block. True when it was done.
    fn read_as_user(
        &self,
        device: usize,
        offset_bytes: u64,
        data: &mut [u8],
        context: &IoContext,
        for_record: bool,
    ) -> bool {
        if context.class != IoClass::UserRead || context.cause == IoCause::Synthetic {
            return false;
        }
        let is_slow = self.core.tier(device) == Tier::Slow;
        let is_cached = is_slow && self.core.read_cached(&self.file, offset_bytes, data, context, for_record);
        self.count_read(device, is_cached);
        is_cached
    }

    fn count_read(&self, device: usize, is_cached: bool) {
        let (counts, tier) = (&self.core.counts, self.core.tier(device));
        add(&self.core.reads_of_tier[self.core.members[device].tier], 1);
        // Where both share the zones a table is not worth what cached blocks do for it.
        let counts_for_table = !is_cached || self.core.division.is_none();
        self.file.state.reads.fetch_add(u64::from(counts_for_table), Ordering::Relaxed);
        if let Some(division) = self.core.division.as_ref().filter(|_| self.file.is_table) {
            division.lock().read(self.file.row(), tier, is_cached);
        }
        let reads = match tier {
            Tier::Fast => counts.reads_fast.fetch_add(1, Ordering::Relaxed),
            Tier::Slow => counts.reads_slow.fetch_add(1, Ordering::Relaxed),
        };
        add(&counts.cache_hits, u64::from(is_cached));
        if reads % READS_OF_LOOK == READS_OF_LOOK - 1 {
            self.core.changed();
        }
    }

    fn read_range(
        &self,
        parts: &[Part],
        range: &mut ReadRange<'_>,
        context: &IoContext,
        for_record: bool,
    ) -> Result<(), StoreError> {
        let (mut offset_bytes, mut rest) = (range.offset_bytes, &mut *range.data);
        let mut index = part_of(parts, offset_bytes);
        let Some(device) = parts.get(index).map(|part| part.device) else {
            return if rest.is_empty() { Ok(()) } else { Err(self.past_end(offset_bytes, rest.len())) };
        };
        if !self.file.rivals.is_empty() {
            let (name, stamp) = (self.file.name.lock().clone(), self.file.stamp.load(Ordering::Acquire));
            let expected = format!("one file of stamp {stamp}");
            return Err(corruption(
                &self.core.label,
                &format!("file '{name}'"),
                0,
                expected,
                "two, on different devices",
            ));
        }
        if self.read_as_user(device, offset_bytes, rest, context, for_record) {
            return Ok(());
        }
        loop {
            let Some(part) = parts.get(index) else { return Err(self.past_end(offset_bytes, rest.len())) };
            let is_end_elsewhere = index + 1 < parts.len() || self.file.is_cut;
            let next_bytes = parts.get(index + 1).map_or(u64::MAX, |next| next.start_bytes);
            let length = rest.len().min(next_bytes.saturating_sub(offset_bytes).min(usize::MAX as u64) as usize);
            let (head, tail) = rest.split_at_mut(length);
            let end_bytes = part.start_bytes + part.reader.size_bytes();
            if offset_bytes < part.start_bytes {
                return Err(self.core.not_here(&self.file, offset_bytes));
            }
            if is_end_elsewhere && offset_bytes + length as u64 > end_bytes {
                return Err(self.core.not_here(&self.file, end_bytes));
            }
            part.reader.read_at(offset_bytes - part.start_bytes, head, context)?;
            if tail.is_empty() {
                return Ok(());
            }
            (offset_bytes, rest, index) = (offset_bytes + length as u64, tail, index + 1);
        }
    }
}

impl HybridReader {
    fn read_one_by_one(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let parts = self.file.parts();
        for range in ranges.iter_mut() {
            range.outcome = self.read_range(&parts, range, context, false);
        }
        ranges.iter().find_map(|range| range.outcome.clone().err()).map_or(Ok(()), Err)
    }
}

impl ReadableFile for HybridReader {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn read_at(&self, offset_bytes: u64, data: &mut [u8], context: &IoContext) -> Result<(), StoreError> {
        let mut range = ReadRange { offset_bytes, data, outcome: Ok(()) };
        self.read_range(&self.file.parts(), &mut range, context, false)
    }

    fn read_many(&self, ranges: &mut [ReadRange<'_>], context: &IoContext) -> Result<(), StoreError> {
        let parts = self.file.parts();
        // Most files are one part, of which all is read at once but what the cache has.
        let [part] = parts.as_slice() else {
            return self.read_one_by_one(ranges, context);
        };
        if part.start_bytes > 0 || self.file.is_cut || !self.file.rivals.is_empty() {
            return self.read_one_by_one(ranges, context);
        }
        let mut missing: Vec<&mut ReadRange<'_>> = Vec::with_capacity(ranges.len());
        for range in ranges.iter_mut() {
            if !self.read_as_user(part.device, range.offset_bytes, range.data, context, false) {
                missing.push(range);
            }
        }
        let asked = missing.iter_mut().map(|range| ReadRange {
            offset_bytes: range.offset_bytes,
            data: &mut *range.data,
            outcome: Ok(()),
        });
        let mut asked: Vec<ReadRange<'_>> = asked.collect();
        let outcome = part.reader.read_many(&mut asked, context);
        let outcomes: Vec<Result<(), StoreError>> = asked.into_iter().map(|range| range.outcome).collect();
        missing.into_iter().zip(outcomes).for_each(|(range, outcome)| range.outcome = outcome);
        outcome
    }

    fn prefetch(&self, offset_bytes: u64, length_bytes: u64, context: &IoContext) {
        let parts = self.file.parts();
        if let Some(part) = parts.get(part_of(&parts, offset_bytes)) {
            part.reader.prefetch(offset_bytes.saturating_sub(part.start_bytes), length_bytes, context);
        }
    }

    fn map(&self) -> Option<FileMapping> {
        None
    }

    fn records(&self) -> Option<&dyn RecordCache> {
        (self.file.is_table && self.core.keeps_records()).then_some(self)
    }
}

impl RecordCache for HybridReader {
    fn read_record(
        &self,
        label: u64,
        offset_bytes: u64,
        block: &mut [u8],
        record: &mut Vec<u8>,
        context: &IoContext,
    ) -> Result<bool, StoreError> {
        let parts = self.file.parts();
        let device = parts.get(part_of(&parts, offset_bytes)).map(|part| part.device);
        let is_slow = device.is_some_and(|device| self.core.tier(device) == Tier::Slow);
        let for_record = is_slow && context.class == IoClass::UserRead && self.file.rivals.is_empty();
        if for_record
            && let Some(device) = device
            && self.core.read_cached_record(&self.file, label, record, context)
        {
            self.count_read(device, true);
            add(&self.core.counts.record_hits, 1);
            return Ok(true);
        }
        let mut range = ReadRange { offset_bytes, data: block, outcome: Ok(()) };
        self.read_range(&parts, &mut range, context, for_record).map(|()| false)
    }

    fn follows_record(&self, label: u64, length_bytes: usize) -> bool {
        self.core.follows_record(&self.file, label, length_bytes)
    }

    fn keep_record(&self, label: u64, record: &[u8]) {
        if record.len() <= RECORD_BYTES_MAX {
            self.core.admit_record(&self.file, label, record);
        }
    }
}
