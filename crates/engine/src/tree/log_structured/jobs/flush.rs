//! Memtables to level 0.

use super::super::catalog::Change;
use super::JobContext;
use super::output::{self, OutputPlan, Outputs, TableSize};
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::memtable::MemTable;
use crate::merge::merge;
use crate::throttle::JobPace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_store::{Hint, IoClass, IoContext};

/// Writes `memtables` (oldest first) as one table of level 0 and makes it part of the tree.
/// `log_number` is the oldest log needed afterwards: those before it may go.
pub(crate) fn flush(context: &JobContext, memtables: &[Arc<MemTable>], log_number: u64) -> Result<(), Error> {
    context.settle_doubts()?;
    let start = context.files.env.now();
    let state = context.catalog.read_state.load_full();
    let active_bytes = state.memtable.memory_bytes() as u64;
    let pace = context.throttle.flush_pace(bytes_of(memtables), state.immutables.len(), active_bytes);
    drop(state);
    let outputs = write(context, memtables, &pace)?;
    let last_sequence = memtables.iter().filter_map(|memtable| memtable.last_sequence()).max();
    let before = context.catalog.manifest().last_sequence;
    let change = Change {
        added: outputs.tables.iter().map(|file| (0, file.clone())).collect(),
        log_start: Some((log_number, last_sequence.unwrap_or(before))),
        flushed_memtables: memtables.len(),
        work: outputs.flush_work(),
        ..Change::default()
    };
    context.install(change)?;
    let counters = &context.catalog.counters;
    counters.flushes.fetch_add(outputs.tables.len() as u64, Ordering::Relaxed);
    counters.flush_written_bytes.fetch_add(outputs.written_bytes, Ordering::Relaxed);
    counters.flush_nanos.fetch_add(context.files.env.now().as_nanos() - start.as_nanos(), Ordering::Relaxed);
    Ok(())
}

pub(crate) fn bytes_of(memtables: &[Arc<MemTable>]) -> u64 {
    memtables.iter().map(|memtable| memtable.memory_bytes() as u64).sum()
}

/// Writes `memtables` (oldest first) as one table of level 0; none when nothing in them is visible.
pub(crate) fn write(context: &JobContext, memtables: &[Arc<MemTable>], pace: &JobPace) -> Result<Outputs, Error> {
    let job = context.files.numbers.job();
    let expected_bytes = bytes_of(memtables);
    context.files.media.files.hint(&Hint::FlushBegin { job, expected_bytes });
    let sources: Vec<Box<dyn InternalIterator>> =
        memtables.iter().rev().map(|memtable| Box::new(memtable.iterator()) as Box<dyn InternalIterator>).collect();
    let mut source = merge(sources);
    source.seek_to_first();
    let plan = OutputPlan {
        job,
        level: 0,
        context: IoContext::of(IoClass::Flush).at_level(0).for_job(job),
        size: TableSize::of_flush(context),
        expected_bytes,
        below: &[],
        cuts: &[],
        older: None,
        hints_outputs: false,
        pace,
        reservation: None,
    };
    let result = output::write_tables(context, &mut *source, None, context.snapshots.boundaries(), &plan);
    let hinted = result.as_ref().map(|outputs| outputs.hinted(0)).unwrap_or_default();
    context.files.media.files.hint(&Hint::FlushEnd { job, outputs: &hinted, succeeded: result.is_ok() });
    result
}
