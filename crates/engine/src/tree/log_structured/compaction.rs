//! Carries out compaction plans.

use super::level_iterator::LevelIterator;
use super::output::{self, OutputPlan, Outputs, TableSize, hinted};
use super::partial_compaction;
use super::shared::{Change, Shared};
use super::write_space;
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use crate::merge::merge;
use crate::shape::{CompactionPlan, FileMeta, Reason, Run, Version, runs, subcompaction_boundaries};
use crate::space::{Headroom, Reservation};
use crate::statistics::Totals;
use crate::table::{KeyOrder, Readahead, TableIteratorOptions};
use crate::throttle::JobPace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_store::{Hint, HintedFile, IoClass, IoContext, JobId};

/// Does what `plan` says and makes the result part of the tree: at once if its outputs fit in `space_bytes`, else part
/// by part if that frees inputs on the way.
pub(super) fn compact(
    shared: &Arc<Shared>,
    version: Arc<Version>,
    plan: CompactionPlan,
    space_bytes: u64,
) -> Result<(), Error> {
    let reservation = reserve(shared, &version, &plan, space_bytes);
    compact_reserved(shared, version, plan, space_bytes, reservation, true)
}

/// Keeps others from counting on what a compaction needs of the space it is given.
pub(super) fn reserve(shared: &Shared, version: &Version, plan: &CompactionPlan, space_bytes: u64) -> Arc<Reservation> {
    let is_in_tables = shared.space.is_in_tables();
    let reserved_bytes = match plan.is_partial_within(version, space_bytes) {
        true => partial_compaction::reserved_bytes(version, plan, space_bytes, is_in_tables),
        false => plan.written_bytes_max().min(space_bytes),
    };
    shared.space.reserve(reserved_bytes)
}

/// [`compact`] in space that was reserved for it.
pub(super) fn compact_reserved(
    shared: &Arc<Shared>,
    version: Arc<Version>,
    plan: CompactionPlan,
    space_bytes: u64,
    reservation: Arc<Reservation>,
    may_grow: bool,
) -> Result<(), Error> {
    shared.settle_doubts()?;
    if plan.is_trivial_move() {
        return move_tables(shared, &plan);
    }
    if plan.is_partial_within(&version, space_bytes) {
        drop(version);
        return partial_compaction::compact(shared, plan, &reservation);
    }
    // Each part may leave a table that is partly empty.
    let is_tight = plan.written_bytes_max() > space_bytes / 2;
    let parts_max = if is_tight { 1 } else { shared.options.max_subcompactions };
    let pace = Arc::new(pace_of(shared, &version, &plan));
    let numbers = |files: &[Arc<FileMeta>]| files.iter().map(|file| file.number).collect::<Vec<u64>>();
    let coalesced = (plan.reason == Reason::Coalescing).then(|| numbers(&plan.inputs));
    let headroom = write_space::look_now(shared, reservation.left_bytes()).0.filter(|_| !may_grow);
    let part = Part { short: headroom.filter(|headroom| !headroom.allows_growth()), ..Part::whole(parts_max) };
    let result = compact_part(shared, &version, plan, &part, pace, &reservation);
    if let Some(inputs) = coalesced {
        shared.space.note_coalesced(&inputs, result.as_deref().map_err(|_| ()));
    }
    result.map(drop)
}

fn move_tables(shared: &Shared, plan: &CompactionPlan) -> Result<(), Error> {
    let change = Change {
        removed: plan.inputs.iter().map(|file| (plan.input_level, file.clone())).collect(),
        added: plan.inputs.iter().map(|file| (plan.output_level, file.clone())).collect(),
        work: Totals { trivial_moves: plan.inputs.len() as u64, ..Totals::default() },
        ..Change::default()
    };
    shared.install(change)?;
    for file in &plan.inputs {
        shared.media.files.hint(&Hint::LevelChanged { file: &hinted(file, plan.output_level) });
    }
    shared.counters.trivial_moves.fetch_add(plan.inputs.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// What of a plan is done at once.
pub(super) struct Part {
    /// First user key; from the beginning when `None`.
    pub(super) begin: Option<Vec<u8>>,
    /// End, exclusive.
    pub(super) end: Option<Vec<u8>>,
    /// Inputs that stay part of the tree because they reach beyond it.
    pub(super) staying: Vec<u64>,
    /// Threads that share the work, at most.
    pub(super) parts_max: usize,
    /// Space when it began, if that is so little that it must not leave more tables than it takes away.
    pub(super) short: Option<Headroom>,
}

impl Part {
    /// All of it.
    fn whole(parts_max: usize) -> Part {
        Part { begin: None, end: None, staying: Vec::new(), parts_max, short: None }
    }
}

/// Merges what a plan's tables hold of a part and makes the outputs part of the tree, in place of the inputs that do
/// not stay. Lets go of these when it returns.
pub(super) fn compact_part(
    shared: &Arc<Shared>,
    version: &Arc<Version>,
    plan: CompactionPlan,
    part: &Part,
    pace: Arc<JobPace>,
    reservation: &Arc<Reservation>,
) -> Result<Vec<Arc<FileMeta>>, Error> {
    let start = shared.env.now();
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
    let goes = |file: &&Arc<FileMeta>| !part.staying.contains(&file.number);
    let read_tables = plan.all_inputs().filter(goes).count() as u64;
    let read_bytes: u64 = plan.all_inputs().filter(goes).map(|file| file.size_bytes).sum();
    let result = rewrite(shared, version, &plan, job, part, (&pace, reservation)).and_then(|outputs| {
        if let Some(headroom) = part.short.as_ref().filter(|_| outputs.tables.len() as u64 > read_tables) {
            output::discard(&outputs.tables);
            return Err(write_space::refusal(shared, headroom, true));
        }
        let change = Change {
            removed: plan
                .inputs
                .iter()
                .filter(goes)
                .map(|file| (plan.input_level, file.clone()))
                .chain(plan.overlapping.iter().filter(goes).map(|file| (plan.output_level, file.clone())))
                .collect(),
            added: outputs.tables.iter().map(|file| (plan.output_level, file.clone())).collect(),
            work: outputs.compaction_work(read_tables, read_bytes),
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
    counters.compaction_read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
    counters.compaction_written_bytes.fetch_add(outputs.written_bytes, Ordering::Relaxed);
    counters.compaction_read_entries.fetch_add(outputs.read_entries, Ordering::Relaxed);
    counters.compaction_dropped_entries.fetch_add(outputs.dropped_entries, Ordering::Relaxed);
    counters.compaction_nanos.fetch_add(shared.env.now().as_nanos() - start.as_nanos(), Ordering::Relaxed);
    Ok(outputs.tables)
}

fn rewrite(
    shared: &Arc<Shared>,
    version: &Arc<Version>,
    plan: &CompactionPlan,
    job: JobId,
    part: &Part,
    (pace, reservation): (&Arc<JobPace>, &Arc<Reservation>),
) -> Result<Outputs, Error> {
    let boundaries = subcompaction_boundaries(plan, part.parts_max);
    let part_count = boundaries.len() + 1;
    let part = |position: usize| {
        let begin = position.checked_sub(1).map(|before| boundaries[before].clone());
        (begin.or_else(|| part.begin.clone()), boundaries.get(position).cloned().or_else(|| part.end.clone()))
    };
    let workers: Vec<_> = (1..part_count)
        .map(|position| {
            let (begin, end) = part(position);
            let (shared, version, plan) = (shared.clone(), version.clone(), plan.clone());
            let (pace, reservation) = (pace.clone(), reservation.clone());
            let name = format!("subcompaction {}.{position}", job.0);
            shared.clone().env.spawn(&name, move || {
                rewrite_part(&shared, &version, &plan, job, (begin, end), part_count, (&pace, &reservation))
            })
        })
        .collect();
    let (begin, end) = part(0);
    let mut result = rewrite_part(shared, version, plan, job, (begin, end), part_count, (pace, reservation));
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
    shared.throttle.compaction_pace(plan.input_bytes(), plan.input_level == 0, version.levels[0].len())
}

/// Rewrites the pairs of `[begin, end)`.
fn rewrite_part(
    shared: &Arc<Shared>,
    version: &Version,
    plan: &CompactionPlan,
    job: JobId,
    (begin, end): (Option<Vec<u8>>, Option<Vec<u8>>),
    part_count: usize,
    (pace, reservation): (&JobPace, &Reservation),
) -> Result<Outputs, Error> {
    let read = |level: usize| TableIteratorOptions {
        fill_cache: false,
        verify_checksums: true,
        readahead: Readahead::Fixed { bytes: shared.compaction_readahead_bytes },
        order: KeyOrder::Checked,
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
    let older = plan.older_runs(version);
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
        reservation: Some(reservation),
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
