//! Carries out compaction plans.

use super::super::catalog::Change;
use super::super::level_iterator::{sources_of, sources_once};
use super::output::{self, OutputPlan, Outputs, TableSize, hinted};
use super::pieces::Pieces;
use super::{JobContext, pieces, space_now};
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use crate::merge::merge;
use crate::shape::{CompactionPlan, FileMeta, Reason, Version, subcompaction_boundaries};
use crate::space::{Headroom, Reservation, SpaceBudget};
use crate::statistics::Totals;
use crate::table::{KeyOrder, Readahead, TableIteratorOptions};
use crate::throttle::JobPace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_store::{Hint, HintedFile, IoClass, IoContext, JobId};

/// What a compaction may take of the medium.
pub(crate) struct Grant {
    /// Bytes its outputs may take.
    pub(crate) space_bytes: u64,
    /// Keeps others from counting on what it needs of them.
    pub(crate) reservation: Arc<Reservation>,
    /// It may leave more tables than it reads where puts are refused.
    pub(crate) may_grow: bool,
    /// Nothing of it becomes part of the tree before all of it does, whatever options say.
    pub(crate) is_at_once: bool,
}

impl Grant {
    /// What a plan needs of `space_bytes`, from now on.
    pub(crate) fn new(
        space: &SpaceBudget,
        version: &Version,
        plan: &CompactionPlan,
        space_bytes: u64,
        may_grow: bool,
    ) -> Grant {
        let reserved_bytes = match plan.is_partial_within(version, space_bytes) {
            true => pieces::reserved_bytes(version, plan, space_bytes, space.is_in_tables()),
            false => plan.written_bytes_max().min(space_bytes),
        };
        Grant { space_bytes, reservation: space.reserve(reserved_bytes), may_grow, is_at_once: false }
    }
}

/// Does what `plan` says and makes the result part of the tree: at once if its outputs fit in what was granted, else table by
/// table if that frees inputs on the way.
pub(crate) fn compact(
    context: &JobContext,
    version: Arc<Version>,
    plan: CompactionPlan,
    grant: &Grant,
) -> Result<(), Error> {
    context.settle_doubts()?;
    if plan.is_trivial_move() {
        return move_tables(context, &plan);
    }
    let Grant { space_bytes, reservation, may_grow, is_at_once } = grant;
    if !is_at_once && plan.is_partial_within(&version, *space_bytes) {
        // Writers wait for its space.
        return compact_in_pieces(context, version, plan, &JobPace::unheld(), reservation).map(drop);
    }
    let threads_max = threads_max(context, &plan, *space_bytes);
    let pace = Arc::new(pace_of(context, &version, &plan));
    let numbers = |files: &[Arc<FileMeta>]| files.iter().map(|file| file.number).collect::<Vec<u64>>();
    let coalesced = (plan.reason == Reason::Coalescing).then(|| numbers(&plan.inputs));
    let headroom = || space_now(&context.catalog, &context.space, reservation.left_bytes()).0;
    let short = if *may_grow { None } else { headroom().filter(|headroom| !headroom.allows_growth()) };
    let in_pieces = context.files.options.compact_in_pieces.unwrap_or_default()
        && !is_at_once
        && short.is_none()
        && subcompaction_boundaries(&plan, threads_max).is_empty()
        && Pieces::are_short(&version, &plan);
    let result = match in_pieces {
        true => compact_in_pieces(context, version, plan, &pace, reservation),
        false => compact_at_once(context, &version, plan, (threads_max, short), pace, reservation),
    };
    if let Some(inputs) = coalesced {
        context.space.note_coalesced(&inputs, result.as_deref().map_err(|_| ()));
    }
    result.map(drop)
}

/// Maximum number of threads for a plan. Each thread may leave a partly filled table, so on bands a thread gets at least four tables.
fn threads_max(context: &JobContext, plan: &CompactionPlan, space_bytes: u64) -> usize {
    let is_tight = plan.reason == Reason::Coalescing || plan.written_bytes_max() > space_bytes / 2;
    let threads = context.files.options.max_subcompactions;
    let by_places = |table_bytes: u64| usize::try_from(plan.input_bytes() / table_bytes.saturating_mul(4).max(1));
    let most = context.files.media.files.properties().preferred_table_bytes.map_or(Ok(threads), by_places);
    if is_tight { 1 } else { threads.min(most.unwrap_or(threads)).max(1) }
}

/// Tables with their levels, as reported to the store.
pub(super) fn hinted_inputs<'a>(files: impl Iterator<Item = (usize, &'a Arc<FileMeta>)>) -> Vec<HintedFile> {
    files.map(|(level, file)| hinted(file, level)).collect()
}

fn move_tables(context: &JobContext, plan: &CompactionPlan) -> Result<(), Error> {
    let change = Change {
        removed: plan.inputs.iter().map(|file| (plan.input_level, file.clone())).collect(),
        added: plan.inputs.iter().map(|file| (plan.output_level, file.clone())).collect(),
        work: Totals { trivial_moves: plan.inputs.len() as u64, ..Totals::default() },
        ..Change::default()
    };
    context.install(change)?;
    for file in &plan.inputs {
        context.files.media.files.hint(&Hint::LevelChanged { file: &hinted(file, plan.output_level) });
    }
    context.catalog.counters.trivial_moves.fetch_add(plan.inputs.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Merges what a plan's tables hold; each table that is written becomes part of the tree when it is, in place of what was read for
/// it. Lets go of inputs as they leave the tree.
fn compact_in_pieces(
    context: &JobContext,
    version: Arc<Version>,
    plan: CompactionPlan,
    pace: &JobPace,
    reservation: &Reservation,
) -> Result<Vec<Arc<FileMeta>>, Error> {
    let start = context.files.env.now();
    let job = context.files.numbers.job();
    let output_level = plan.output_level;
    let inputs = hinted_inputs(plan.inputs_by_level());
    let files = &context.files.media.files;
    files.hint(&Hint::CompactionBegin { job, inputs: &inputs, output_level: Some(output_level as u8) });
    let mut pieces = Pieces::new(job, &plan, reservation);
    let part = (None, None);
    let result =
        rewrite_part(context, Inputs { version, plan, pieces: Some(&mut pieces) }, job, part, 1, (pace, reservation))
            .and_then(|mut outputs| pieces.install(context, &mut outputs, output_level, None).map(|()| outputs));
    let last = result.as_ref().ok().and_then(|outputs| outputs.tables.last());
    let hinted: Vec<HintedFile> = last.iter().map(|file| hinted(file, output_level)).collect();
    files.hint(&Hint::CompactionEnd { job, outputs: &hinted, succeeded: result.is_ok() });
    pieces.count(context, start);
    result.map(|outputs| outputs.tables)
}

/// Merges the tables of a plan in up to `threads_max` threads and installs all outputs at once. `short` is the space there was
/// when it began, if that is so little that a compaction must not leave more tables than it takes away.
fn compact_at_once(
    context: &JobContext,
    version: &Arc<Version>,
    plan: CompactionPlan,
    (threads_max, short): (usize, Option<Headroom>),
    pace: Arc<JobPace>,
    reservation: &Arc<Reservation>,
) -> Result<Vec<Arc<FileMeta>>, Error> {
    let start = context.files.env.now();
    let job = context.files.numbers.job();
    let inputs = hinted_inputs(plan.inputs_by_level());
    context.files.media.files.hint(&Hint::CompactionBegin {
        job,
        inputs: &inputs,
        output_level: Some(plan.output_level as u8),
    });
    let (read_tables, read_bytes) = (plan.all_inputs().count() as u64, plan.input_bytes());
    let result = rewrite(context, version, &plan, job, threads_max, (&pace, reservation)).and_then(|outputs| {
        if let Some(headroom) = short.as_ref().filter(|_| outputs.tables.len() as u64 > read_tables) {
            output::discard(&outputs.tables);
            return Err(context.space.refusal(headroom, true));
        }
        let change = Change {
            removed: plan.inputs_by_level().map(|(level, file)| (level, file.clone())).collect(),
            added: outputs.tables.iter().map(|file| (plan.output_level, file.clone())).collect(),
            work: outputs.compaction_work(read_tables, read_bytes),
            ..Change::default()
        };
        // On failure the outputs stay as files: the manifest may or may not name them.
        context.install(change).map(|()| outputs)
    });
    let hinted = result.as_ref().map(|outputs| outputs.hinted(plan.output_level)).unwrap_or_default();
    context.files.media.files.hint(&Hint::CompactionEnd { job, outputs: &hinted, succeeded: result.is_ok() });
    let outputs = result?;
    let counters = &context.catalog.counters;
    counters.compactions.fetch_add(1, Ordering::Relaxed);
    counters.compaction_read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
    counters.compaction_written_bytes.fetch_add(outputs.written_bytes, Ordering::Relaxed);
    counters.compaction_read_entries.fetch_add(outputs.read_entries, Ordering::Relaxed);
    counters.compaction_dropped_entries.fetch_add(outputs.dropped_entries, Ordering::Relaxed);
    counters.compaction_nanos.fetch_add(context.files.env.now().as_nanos() - start.as_nanos(), Ordering::Relaxed);
    Ok(outputs.tables)
}

fn rewrite(
    context: &JobContext,
    version: &Arc<Version>,
    plan: &CompactionPlan,
    job: JobId,
    threads_max: usize,
    (pace, reservation): (&Arc<JobPace>, &Arc<Reservation>),
) -> Result<Outputs, Error> {
    let boundaries = subcompaction_boundaries(plan, threads_max);
    let part_count = boundaries.len() + 1;
    let part = |position: usize| {
        let begin = position.checked_sub(1).map(|before| boundaries[before].clone());
        (begin, boundaries.get(position).cloned())
    };
    let workers: Vec<_> = (1..part_count)
        .map(|position| {
            let (begin, end) = part(position);
            let (context, version, plan) = (context.clone(), version.clone(), plan.clone());
            let (pace, reservation) = (pace.clone(), reservation.clone());
            let name = format!("subcompaction {}.{position}", job.0);
            context.files.env.clone().spawn(&name, move || {
                let inputs = Inputs { version, plan, pieces: None };
                rewrite_part(&context, inputs, job, (begin, end), part_count, (&pace, &reservation))
            })
        })
        .collect();
    let (begin, end) = part(0);
    let inputs = Inputs { version: version.clone(), plan: plan.clone(), pieces: None };
    let mut result = rewrite_part(context, inputs, job, (begin, end), part_count, (pace, reservation));
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
fn pace_of(context: &JobContext, version: &Version, plan: &CompactionPlan) -> JobPace {
    if plan.reason == Reason::Manual {
        return JobPace::unheld();
    }
    context.throttle.compaction_pace(
        plan.input_bytes(),
        plan.input_level == 0,
        context.catalog.policy.level0_tables(version),
    )
}

/// What is rewritten.
struct Inputs<'a, 'b> {
    version: Arc<Version>,
    plan: CompactionPlan,
    /// Where each table goes when it is written, if not all go at once.
    pieces: Option<&'a mut Pieces<'b>>,
}

/// Rewrites the pairs of `[begin, end)`.
fn rewrite_part(
    context: &JobContext,
    Inputs { version, plan, pieces }: Inputs<'_, '_>,
    job: JobId,
    (begin, end): (Option<Vec<u8>>, Option<Vec<u8>>),
    part_count: usize,
    (pace, reservation): (&JobPace, &Reservation),
) -> Result<Outputs, Error> {
    let read = |level: usize| TableIteratorOptions {
        fill_cache: false,
        verify_checksums: true,
        readahead: Readahead::Fixed { bytes: context.files.settings.compaction_readahead_bytes },
        order: KeyOrder::Checked,
        io: IoContext::of(IoClass::Compaction).at_level(level as u8).for_job(job),
    };
    let below: Vec<_> = version.levels.get(plan.output_level + 1).map(|level| level.to_vec()).unwrap_or_default();
    let older = plan.older_runs(&version);
    let expected_bytes = plan.input_bytes() / part_count as u64 + 1;
    let CompactionPlan { input_level, output_level, inputs, overlapping, between, cuts, .. } = plan;
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    let (tables, lets_go) = (&context.files.tables, pieces.is_some());
    let mut add = |level: usize, files: Vec<Arc<FileMeta>>| {
        match lets_go {
            true => sources.extend(sources_once(tables, &files, &read(level))),
            false => sources.extend(sources_of(tables, &version, level, &files, &read(level))?),
        }
        Ok::<(), Error>(())
    };
    add(input_level, inputs)?;
    for of_level in between.chunk_by(|(before, _), (after, _)| before == after) {
        add(of_level[0].0, of_level.iter().map(|(_, file)| file.clone()).collect())?;
    }
    add(output_level, overlapping)?;
    // Who holds a table keeps its space.
    drop((version, between));
    let mut source = merge(sources);
    match &begin {
        Some(user_key) => {
            let mut target = Vec::with_capacity(user_key.len() + 8);
            key::append_internal_key(&mut target, user_key, key::SEQUENCE_MAX, EntryKind::LARGEST);
            source.seek(&target);
        }
        None => source.seek_to_first(),
    }
    let output = OutputPlan {
        job,
        level: output_level,
        context: IoContext::of(IoClass::Compaction).at_level(output_level as u8).for_job(job),
        size: TableSize::of_compaction(context),
        expected_bytes,
        below: &below,
        cuts: &cuts,
        older: Some(&older),
        hints_outputs: true,
        pace,
        reservation: Some(reservation),
    };
    let boundaries = context.snapshots.boundaries();
    output::write_tables(context, &mut *source, end.as_deref(), boundaries, &output, pieces)
}
