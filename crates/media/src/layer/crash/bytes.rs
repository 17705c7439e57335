//! Loads and stores through a crash layer.

use super::content::{ContentChange, Pending};
use super::device::{CrashContent, CrashDevice, CrashLayer, pages_of};
use super::history::History;
use crate::bytes::{ByteAddressable, FlushQueue};
use crate::context::IoContext;
use crate::error::{MediaError, Operation};
use crate::memory::{MemoryCounters, Persistence, PersistentMemory};
use std::ops::Range;
use std::sync::Arc;

/// The byte facet of a crash layer.
///
/// A store is pending until a fence of a queue in which its line was flushed after it. Flushes and fences are persistence
/// points; stores are not: any state a power cut could have left between two stores is among the images of
/// the next point, because a line keeps a beginning of its pending stores.
pub(crate) struct CrashBytes {
    shared: Arc<CrashLayer>,
    inner: Arc<dyn ByteAddressable>,
}

impl CrashBytes {
    pub(crate) fn facet(layer: &CrashDevice, inner: &Arc<dyn ByteAddressable>) -> Arc<dyn ByteAddressable> {
        Arc::new(CrashBytes { shared: layer.shared.clone(), inner: inner.clone() })
    }

    /// Number of this layer in flush queues.
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }

    fn lines_of(&self, range: &Range<u64>) -> Range<u64> {
        let line = u64::from(self.inner.line_bytes());
        range.start / line * line..range.end.next_multiple_of(line)
    }

    /// The stores of `data`, one for each line.
    fn stores(&self, offset_bytes: u64, data: &[u8]) -> Vec<ContentChange> {
        let line = u64::from(self.inner.line_bytes());
        let (mut at, mut rest, mut stores) = (offset_bytes, data, Vec::new());
        while !rest.is_empty() {
            let length = rest.len().min((line - at % line) as usize);
            let data = Arc::new(rest[..length].to_vec().into());
            stores.push(ContentChange::Store { offset_bytes: at, data });
            rest = &rest[length..];
            at += length as u64;
        }
        stores
    }
}

impl ByteAddressable for CrashBytes {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn line_bytes(&self) -> u32 {
        self.inner.line_bytes()
    }

    fn persistence(&self) -> Persistence {
        self.inner.persistence()
    }

    fn borrowed(self: Arc<Self>) -> Option<Arc<PersistentMemory>> {
        self.inner.clone().borrowed()
    }

    fn load(&self, offset_bytes: u64, data: &mut [u8]) -> Result<(), MediaError> {
        self.inner.load(offset_bytes, data)
    }

    fn store(&self, offset_bytes: u64, data: &[u8]) -> Result<(), MediaError> {
        let end = offset_bytes.checked_add(data.len() as u64).filter(|&end| end <= self.capacity_bytes());
        let (Some(end), false) = (end, data.is_empty()) else { return self.inner.store(offset_bytes, data) };
        let shared = &self.shared;
        let pages = pages_of(offset_bytes..end);
        let reserved = shared.reserve(&[vec![pages.clone()]]);
        shared.save_original(&pages, &IoContext::default());
        let noted: Vec<u64> = {
            let state = &mut *shared.state();
            let crash = Arc::make_mut(&mut state.crash);
            shared.keep_original(&mut crash.durable, pages);
            let note = |change| {
                let sequence = state.next_sequence;
                state.next_sequence += 1;
                if let ContentChange::Store { offset_bytes, .. } = &change {
                    state.lines.stored(*offset_bytes, sequence);
                }
                crash.pending.push(Pending { sequence, certain: false, change });
                sequence
            };
            self.stores(offset_bytes, data).into_iter().map(note).collect()
        };
        let outcome = self.inner.store(offset_bytes, data);
        // What a failed store left is known only by looking.
        let found = outcome.is_err().then(|| {
            let mut found = vec![0; data.len()];
            self.inner.load(offset_bytes, &mut found).map(|()| self.stores(offset_bytes, &found)).unwrap_or_default()
        });
        let state = &mut *shared.state();
        if let Some(found) = found {
            let crash = Arc::make_mut(&mut state.crash);
            crash.retain(|pending| !noted.contains(&pending.sequence));
            for change in found {
                crash.pending.push(Pending { sequence: state.next_sequence, certain: false, change });
                state.next_sequence += 1;
            }
        }
        state.in_flight.retain(|sequence, _| !reserved.contains(sequence));
        shared.landed.notify_all();
        outcome
    }

    fn flush(&self, range: Range<u64>, queue: &mut FlushQueue) -> Result<(), MediaError> {
        let mark = {
            let mut state = self.shared.state();
            state.pass_point(Operation::Sync, range.start, range.end.saturating_sub(range.start));
            state.next_sequence
        };
        let lines = self.lines_of(&range);
        self.inner.flush(range.clone(), queue)?;
        self.shared.state().lines.flushed(&range, mark);
        queue.note(self.identity(), lines, mark);
        Ok(())
    }

    fn fence(&self, queue: &mut FlushQueue) -> Result<(), MediaError> {
        self.shared.state().pass_point(Operation::Sync, 0, 0);
        let flushed = queue.of_layer(self.identity());
        self.inner.fence(queue)?;
        queue.forget(self.identity());
        let is_durable = |pending: &Pending| match &pending.change {
            ContentChange::Store { offset_bytes, .. } => {
                flushed.iter().any(|(lines, mark)| lines.contains(offset_bytes) && pending.sequence < *mark)
            }
            _ => false,
        };
        let state = &mut *self.shared.state();
        Arc::make_mut(&mut state.crash).make_durable(is_durable);
        state.lines.fenced(&flushed);
        Ok(())
    }

    fn counters(&self) -> MemoryCounters {
        self.inner.counters()
    }
}

impl CrashContent {
    /// Moves the pending changes that `is_durable` picks to the durable content, in order. A write of blocks that became
    /// durable supersedes the earlier stores to its lines.
    pub(super) fn make_durable(&mut self, is_durable: impl Fn(&Pending) -> bool) {
        let pending = std::mem::take(&mut self.pending);
        let pending = pending.values();
        let (mut kept, mut written): (Vec<&Pending>, Vec<(u64, Range<u64>)>) = (Vec::new(), Vec::new());
        for pending in pending {
            if !is_durable(pending) {
                kept.push(pending);
                continue;
            }
            self.durable.apply(&pending.change);
            match &pending.change {
                ContentChange::Write { offset_bytes, data } => {
                    written.push((pending.sequence, *offset_bytes..offset_bytes + data.len() as u64));
                }
                ContentChange::Clear { offset_bytes, length_bytes } => {
                    written.push((pending.sequence, *offset_bytes..offset_bytes + length_bytes));
                }
                _ => {}
            }
        }
        let is_superseded = |pending: &Pending| match &pending.change {
            ContentChange::Store { offset_bytes, .. } => {
                written.iter().any(|(sequence, range)| pending.sequence < *sequence && range.contains(offset_bytes))
            }
            _ => false,
        };
        let mut still_pending = History::default();
        kept.into_iter()
            .filter(|pending| !is_superseded(pending))
            .for_each(|pending| still_pending.push(pending.clone()));
        self.pending = still_pending;
    }
}

#[cfg(test)]
mod tests;
