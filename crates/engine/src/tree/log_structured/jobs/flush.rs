//! Memtables to level 0.

use super::super::catalog::Change;
use super::JobContext;
use super::output::{self, OutputPlan, Outputs, TableSize};
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::Sequence;
use crate::manifest::FlushedRange;
use crate::memtable::Partition;
use crate::merge::merge;
use crate::throttle::JobPace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_store::{Hint, IoClass, IoContext};

/// What a flush takes.
#[derive(Clone)]
pub(crate) struct FlushPlan {
    /// The oldest first.
    pub(crate) memtables: Vec<Arc<Partition>>,
    /// The oldest log needed afterwards, and the newest sequence number before it: logs before it may go.
    pub(crate) log_start: (u64, Sequence),
    /// Ranges of keys that logs still needed hold too.
    pub(crate) ranges: Vec<FlushedRange>,
    /// What is in logs before this one has to be durable before the table is part of the tree: with it alone a crash would find later writes
    /// without earlier ones.
    pub(crate) logs_synced_before: Option<u64>,
}

/// Writes memtables as one table of level 0 and makes it part of the tree.
pub(crate) fn flush(context: &JobContext, plan: &FlushPlan) -> Result<(), Error> {
    let FlushPlan { memtables, log_start, ranges, .. } = plan;
    context.settle_doubts()?;
    let start = context.files.env.now();
    let state = context.catalog.read_state.load_full();
    let active_bytes = state.active.memory_bytes() as u64;
    let pace = context.throttle.flush_pace(bytes_of(memtables), bytes_of(&state.immutables), active_bytes);
    drop(state);
    let outputs = write(context, memtables, &pace)?;
    let change = Change {
        added: outputs.tables.iter().map(|file| (0, file.clone())).collect(),
        log_start: Some(*log_start),
        flushed: ranges.clone(),
        flushed_memtables: memtables.len(),
        work: outputs.flush_work(),
        ..Change::default()
    };
    context.install(change)?;
    let counters = &context.catalog.counters;
    counters.range_flushes.fetch_add(u64::from(plan.logs_synced_before.is_some()), Ordering::Relaxed);
    counters.flushes.fetch_add(outputs.tables.len() as u64, Ordering::Relaxed);
    counters.flush_written_bytes.fetch_add(outputs.written_bytes, Ordering::Relaxed);
    counters.flush_nanos.fetch_add(context.files.env.now().as_nanos() - start.as_nanos(), Ordering::Relaxed);
    Ok(())
}

pub(crate) fn bytes_of(memtables: &[Arc<Partition>]) -> u64 {
    memtables.iter().map(|memtable| memtable.memory_bytes() as u64).sum()
}

/// Writes `memtables` (oldest first) as one table of level 0; none when nothing in them is visible.
pub(crate) fn write(context: &JobContext, memtables: &[Arc<Partition>], pace: &JobPace) -> Result<Outputs, Error> {
    let job = context.files.numbers.job();
    let expected_bytes = bytes_of(memtables);
    context.files.media.files.hint(&Hint::FlushBegin { job, expected_bytes });
    let sources: Vec<Box<dyn InternalIterator>> =
        memtables.iter().rev().map(|memtables| memtables.iterator()).collect();
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
    let result = output::write_tables(context, &mut *source, None, context.snapshots.boundaries(), &plan, None);
    let hinted = result.as_ref().map(|outputs| outputs.hinted(0)).unwrap_or_default();
    context.files.media.files.hint(&Hint::FlushEnd { job, outputs: &hinted, succeeded: result.is_ok() });
    result
}
