//! Carries out compaction plans.

use super::level_iterator::LevelIterator;
use super::output::{self, OutputPlan, Outputs, TableSize, hinted};
use super::pacing::{JobPace, compaction_headroom_bytes};
use super::plan::{CompactionPlan, Reason, subcompaction_boundaries};
use super::shared::{Change, Shared};
use super::version::{FileMeta, Run, Version, runs};
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use crate::merge::merge;
use crate::table::{Readahead, TableIteratorOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_store::{Hint, HintedFile, IoClass, IoContext, JobId};

/// Does what `plan` says and makes the result part of the tree.
pub(super) fn compact(shared: &Arc<Shared>, version: &Arc<Version>, plan: &CompactionPlan) -> Result<(), Error> {
    let start = shared.env.now();
    if plan.is_trivial_move() {
        let change = Change {
            removed: plan.inputs.iter().map(|file| (plan.input_level, file.clone())).collect(),
            added: plan.inputs.iter().map(|file| (plan.output_level, file.clone())).collect(),
            ..Change::default()
        };
        shared.install(change)?;
        for file in &plan.inputs {
            shared.media.files.hint(&Hint::LevelChanged { file: &hinted(file, plan.output_level) });
        }
        shared.counters.trivial_moves.fetch_add(plan.inputs.len() as u64, Ordering::Relaxed);
        return Ok(());
    }
    let job = shared.new_job();
    let inputs: Vec<HintedFile> = plan
        .inputs
        .iter()
        .map(|file| hinted(file, plan.input_level))
        .chain(plan.overlapping.iter().map(|file| hinted(file, plan.output_level)))
        .collect();
    shared.media.files.hint(&Hint::CompactionBegin {
        job,
        inputs: &inputs,
        output_level: Some(plan.output_level as u8),
    });
    let result = rewrite(shared, version, plan, job).and_then(|outputs| {
        let change = Change {
            removed: plan
                .inputs
                .iter()
                .map(|file| (plan.input_level, file.clone()))
                .chain(plan.overlapping.iter().map(|file| (plan.output_level, file.clone())))
                .collect(),
            added: outputs.tables.iter().map(|file| (plan.output_level, file.clone())).collect(),
            ..Change::default()
        };
        // On failure the outputs stay as files: the manifest may or may not name them.
        shared.install(change).map(|()| outputs)
    });
    let hinted = result.as_ref().map(|outputs| outputs.hinted(plan.output_level)).unwrap_or_default();
    shared.media.files.hint(&Hint::CompactionEnd { job, outputs: &hinted, succeeded: result.is_ok() });
    let outputs = result?;
    let counters = &shared.counters;
    counters.compactions.fetch_add(1, Ordering::Relaxed);
    counters.compaction_read_bytes.fetch_add(plan.input_bytes(), Ordering::Relaxed);
    counters.compaction_written_bytes.fetch_add(outputs.written_bytes, Ordering::Relaxed);
    counters.compaction_read_entries.fetch_add(outputs.read_entries, Ordering::Relaxed);
    counters.compaction_dropped_entries.fetch_add(outputs.dropped_entries, Ordering::Relaxed);
    counters.compaction_nanos.fetch_add(shared.env.now().as_nanos() - start.as_nanos(), Ordering::Relaxed);
    Ok(())
}

fn rewrite(shared: &Arc<Shared>, version: &Arc<Version>, plan: &CompactionPlan, job: JobId) -> Result<Outputs, Error> {
    let boundaries = subcompaction_boundaries(plan, shared.options.max_subcompactions);
    let part_count = boundaries.len() + 1;
    let part = |position: usize| {
        let begin = position.checked_sub(1).map(|before| boundaries[before].clone());
        (begin, boundaries.get(position).cloned())
    };
    let pace = Arc::new(pace_of(shared, version, plan));
    let workers: Vec<_> = (1..part_count)
        .map(|position| {
            let (begin, end) = part(position);
            let (shared, version, plan, pace) = (shared.clone(), version.clone(), plan.clone(), pace.clone());
            let name = format!("subcompaction {}.{position}", job.0);
            shared
                .clone()
                .env
                .spawn(&name, move || rewrite_part(&shared, &version, &plan, job, (begin, end), part_count, &pace))
        })
        .collect();
    let (begin, end) = part(0);
    let mut result = rewrite_part(shared, version, plan, job, (begin, end), part_count, &pace);
    for worker in workers {
        let other = worker.join().unwrap_or_else(|panic| panic.resume());
        result = match (result, other) {
            (Ok(mut outputs), Ok(more)) => {
                outputs.absorb(more);
                Ok(outputs)
            }
            (Ok(outputs), Err(error)) | (Err(error), Ok(outputs)) => {
                output::discard(&outputs.tables);
                Err(error)
            }
            (Err(error), Err(_)) => Err(error),
        };
    }
    result
}

/// Who asks for a compaction waits for it.
fn pace_of(shared: &Shared, version: &Version, plan: &CompactionPlan) -> JobPace {
    if plan.reason == Reason::Manual {
        return JobPace::unheld();
    }
    let slowdown = shared.options.level0_slowdown_writes_trigger;
    let headroom_bytes = compaction_headroom_bytes(version.levels[0].len(), slowdown, shared.write_buffer_bytes as u64);
    let progress = if plan.input_level == 0 { &shared.level0_progress } else { &shared.deeper_progress };
    JobPace::new(shared, plan.input_bytes(), headroom_bytes, progress)
}

/// Rewrites the pairs of `[begin, end)`.
fn rewrite_part(
    shared: &Arc<Shared>,
    version: &Version,
    plan: &CompactionPlan,
    job: JobId,
    (begin, end): (Option<Vec<u8>>, Option<Vec<u8>>),
    part_count: usize,
    pace: &JobPace,
) -> Result<Outputs, Error> {
    let read = |level: usize| TableIteratorOptions {
        fill_cache: false,
        verify_checksums: true,
        readahead: Readahead::Fixed { bytes: shared.compaction_readahead_bytes },
        io: IoContext::of(IoClass::Compaction).at_level(level as u8).for_job(job),
    };
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    for (level, files) in [(plan.input_level, &plan.inputs), (plan.output_level, &plan.overlapping)] {
        sources.extend(sources_of(shared, version, level, files, &read(level))?);
    }
    let mut source = merge(sources);
    match &begin {
        Some(user_key) => {
            let mut target = Vec::with_capacity(user_key.len() + 8);
            key::append_internal_key(&mut target, user_key, key::SEQUENCE_MAX, EntryKind::LARGEST);
            source.seek(&target);
        }
        None => source.seek_to_first(),
    }
    let below: Vec<_> = version.levels.get(plan.output_level + 1).cloned().unwrap_or_default();
    let older = version.older_than(plan);
    let output = OutputPlan {
        job,
        level: plan.output_level,
        context: IoContext::of(IoClass::Compaction).at_level(plan.output_level as u8).for_job(job),
        size: TableSize::of_compaction(shared),
        expected_bytes: plan.input_bytes() / part_count as u64 + 1,
        below: &below,
        older: Some(&older),
        hints_outputs: true,
        pace,
    };
    output::write_tables(shared, &mut *source, end.as_deref(), shared.snapshots.boundaries(), &output)
}

/// Walks over tables of one level: one where they are disjoint, else as few as can be.
pub(super) fn sources_of(
    shared: &Shared,
    version: &Version,
    level: usize,
    files: &[Arc<FileMeta>],
    options: &TableIteratorOptions,
) -> Result<Vec<Box<dyn InternalIterator>>, Error> {
    let walk =
        |run: Run| -> Box<dyn InternalIterator> { Box::new(LevelIterator::new(run, shared.tables.clone(), *options)) };
    match files {
        [] => Ok(Vec::new()),
        _ if level >= version.disjoint_from() => Ok(vec![walk(files.to_vec())]),
        _ => runs(files)
            .into_iter()
            .map(|run| match &run[..] {
                [file] => Ok(Box::new(shared.tables.get(file)?.iterator(*options)) as Box<dyn InternalIterator>),
                _ => Ok(walk(run)),
            })
            .collect(),
    }
}
