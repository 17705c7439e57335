//! Writes a sorted walk into new tables: what flushes and compactions have in common.

use super::JobContext;
use super::pieces::Pieces;
use crate::cost;
use crate::error::Error;
use crate::file_name;
use crate::iterator::{BlockPlace, InternalIterator};
use crate::key::{self, EntryKind, Sequence};
use crate::manifest::AddedFile;
use crate::shape::{FileMeta, Garbage, Run};
use crate::snapshot::VersionFilter;
use crate::space::Reservation;
use crate::statistics::Totals;
use crate::table::{Record, TableBuilder, TableSummary, key_hash};
use crate::throttle::{Burst, ChargedBytes, JobPace};
use std::sync::Arc;
use varve_store::{BlockOrigin, CreateOptions, FileKind, Hint, HintedFile, IoContext, JobId, RecordCache};

/// Bytes written between two looks at whether the job was cancelled.
const CANCEL_CHECK_BYTES: u64 = 1 << 20;

/// Bytes a table grows by between two times that the medium's cache is emptied, where jobs keep pace with writes: a log
/// waits that long, instead of for all of a table.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// Where the new tables go and when one is full.
pub(super) struct OutputPlan<'a> {
    pub(super) job: JobId,
    pub(super) level: usize,
    pub(super) context: IoContext,
    /// Size at which a table is cut; never between versions of one key.
    pub(super) size: TableSize,
    pub(super) expected_bytes: u64,
    /// Tables of the level below the output, in key order: cutting where they end keeps a later
    /// compaction of an output from reading more of them than it must.
    pub(super) below: &'a [Arc<FileMeta>],
    /// User keys, ascending, before which a table ends however small it is. Passed over where tables take as much whatever is in
    /// them.
    pub(super) cuts: &'a [Vec<u8>],
    /// Tables that may hold older versions and are not read; `None` keeps every deletion.
    pub(super) older: Option<&'a [Run]>,
    /// Sends `CompactionOutput` hints, and `BlockRewritten` where the store wants them.
    pub(super) hints_outputs: bool,
    pub(super) pace: &'a JobPace,
    /// Space that nobody else counts on; a flush has none.
    pub(super) reservation: Option<&'a Reservation>,
}

/// What came of it.
#[derive(Default)]
pub(crate) struct Outputs {
    pub(crate) tables: Vec<Arc<FileMeta>>,
    /// How many of them are part of the tree, or may be.
    pub(super) installed: usize,
    pub(super) written_bytes: u64,
    pub(super) read_entries: u64,
    /// Bytes of their keys, as users wrote them, and values.
    pub(super) read_user_bytes: u64,
    pub(super) dropped_entries: u64,
}

impl Outputs {
    pub(super) fn absorb(&mut self, other: Outputs) {
        self.tables.extend(other.tables);
        self.written_bytes += other.written_bytes;
        self.read_entries += other.read_entries;
        self.read_user_bytes += other.read_user_bytes;
        self.dropped_entries += other.dropped_entries;
    }

    /// What a flush did that came to this.
    pub(crate) fn flush_work(&self) -> Totals {
        Totals {
            flush_jobs: 1,
            flush_user_entries: self.read_entries,
            flush_user_bytes: self.read_user_bytes,
            flush_written_tables: self.tables.len() as u64,
            flush_written_bytes: self.written_bytes,
            ..Totals::default()
        }
    }

    /// What a compaction did that came to this.
    pub(super) fn compaction_work(&self, read_tables: u64, read_bytes: u64) -> Totals {
        Totals {
            compactions: 1,
            compaction_read_tables: read_tables,
            compaction_read_bytes: read_bytes,
            compaction_written_tables: self.tables.len() as u64,
            compaction_written_bytes: self.written_bytes,
            ..Totals::default()
        }
    }

    pub(super) fn hinted(&self, level: usize) -> Vec<HintedFile> {
        self.tables.iter().map(|file| hinted(file, level)).collect()
    }
}

pub(crate) fn hinted(file: &FileMeta, level: usize) -> HintedFile {
    HintedFile { name: file_name::table(file.number), level: Some(level as u8), size_bytes: file.size_bytes }
}

/// A table as the tree knows it, from its properties.
pub(crate) fn table_meta(number: u64, level: usize, summary: TableSummary, garbage: &Arc<Garbage>) -> Arc<FileMeta> {
    let TableSummary { size_bytes, table_id, properties } = summary;
    let added = AddedFile {
        level: level as u8,
        number,
        size_bytes,
        table_id,
        smallest: properties.smallest,
        largest: properties.largest,
        oldest_sequence: properties.oldest_sequence,
        newest_sequence: properties.newest_sequence,
        entries: properties.entries,
        deletions: properties.deletions,
        begin: None,
    };
    let file = FileMeta::new(&added, garbage);
    let _ = file.histogram.set(properties.histogram);
    file
}

/// Knows, for user keys in ascending order, whether a table that is not read may hold an older version.
struct OlderVersions<'a> {
    runs: Vec<(&'a [Arc<FileMeta>], usize)>,
}

impl<'a> OlderVersions<'a> {
    fn new(runs: &'a [Run]) -> Self {
        OlderVersions { runs: runs.iter().map(|run| (&run[..], 0)).collect() }
    }

    fn may_exist(&mut self, user_key: &[u8], sequence: Sequence) -> bool {
        self.runs.iter_mut().any(|(files, position)| {
            while *position < files.len() && files[*position].largest_user_key() < user_key {
                *position += 1;
            }
            let holds = |file: &Arc<FileMeta>| file.smallest_user_key() <= user_key && file.oldest_sequence < sequence;
            files.get(*position).is_some_and(holds)
        })
    }
}

/// When a table is large enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSize {
    /// It is cut once it is this large, ...
    target_bytes: u64,
    /// and before it would become larger than this.
    most_bytes: u64,
}

impl TableSize {
    /// Tables of compactions. On a medium that likes tables of one size (a band), they have that size whatever
    /// the options say: what is left over of it would be wasted.
    pub(super) fn of_compaction(context: &JobContext) -> TableSize {
        let properties = context.files.media.files.properties();
        match properties.preferred_table_bytes {
            Some(most_bytes) => TableSize { target_bytes: u64::MAX, most_bytes },
            // The histogram is beside what was asked for: where tables are small it is most of them.
            None => TableSize {
                target_bytes: (context
                    .space
                    .sizes()
                    .table_bytes
                    .saturating_add(context.files.settings.histogram_bytes as u64))
                .min(properties.table_bytes_max / 2)
                .max(1),
                most_bytes: u64::MAX,
            },
        }
    }

    /// A memtable becomes one table if it can.
    pub(super) fn of_flush(context: &JobContext) -> TableSize {
        let properties = context.files.media.files.properties();
        TableSize {
            target_bytes: context.space.sizes().flushed_table_bytes.min(properties.table_bytes_max / 2),
            most_bytes: properties.preferred_table_bytes.unwrap_or(u64::MAX),
        }
    }

    /// Whether a table is to be cut before an entry. `crossed` says that a good place to cut was passed.
    fn is_reached(&self, builder: &TableBuilder, crossed: bool, key: &[u8], value: &[u8]) -> bool {
        let bytes = builder.estimated_bytes();
        bytes >= self.target_bytes
            || (crossed && bytes >= self.target_bytes / 2)
            || builder.bytes_bound_with(key.len(), value.len()) > self.most_bytes
    }

    fn bound_bytes(&self) -> u64 {
        self.most_bytes.min(self.target_bytes.saturating_add(self.target_bytes / 8))
    }
}

/// Where the tables below end, passed in ascending key order.
struct Borders<'a> {
    below: &'a [Arc<FileMeta>],
    position: usize,
}

impl Borders<'_> {
    /// True when a table below ended between the last key asked for and this one.
    fn crossed(&mut self, user_key: &[u8]) -> bool {
        let before = self.position;
        while self.position < self.below.len() && self.below[self.position].largest_user_key() < user_key {
            self.position += 1;
        }
        self.position > before
    }
}

/// Places where tables must end, passed likewise; those that are ahead.
struct Cuts<'a>(&'a [Vec<u8>]);

impl Cuts<'_> {
    /// True when one lies behind the last key asked for and not behind this one.
    fn reached(&mut self, user_key: &[u8]) -> bool {
        let mut is_reached = false;
        while let Some((_, ahead)) = self.0.split_first().filter(|(cut, _)| cut.as_slice() <= user_key) {
            self.0 = ahead;
            is_reached = true;
        }
        is_reached
    }
}

/// The blocks that entries of the block which is written came from.
#[derive(Default)]
struct Origins(Vec<BlockOrigin>);

impl Origins {
    /// One more entry came from a block.
    fn add(&mut self, place: BlockPlace<'_>) {
        let is_it = |origin: &&mut BlockOrigin| {
            origin.offset_bytes == place.offset_bytes && Arc::ptr_eq(&origin.file, place.table)
        };
        match self.0.iter_mut().rev().find(is_it) {
            Some(origin) => origin.entries += 1,
            None => {
                self.0.push(BlockOrigin { file: place.table.clone(), offset_bytes: place.offset_bytes, entries: 1 })
            }
        }
    }
}

/// Has a record that the store keeps of an input, or that is read much, kept of the output.
fn follow_record(
    context: &JobContext,
    file: &str,
    table_id: u64,
    (trailer, user_key, value): (u64, &[u8], &[u8]),
    (records, label): (&dyn RecordCache, u64),
) {
    let record = Record { table_id, trailer, user_key, value };
    if trailer as u8 != EntryKind::Put as u8 || !records.follows_record(label, record.length_bytes()) {
        return;
    }
    if let Some(record) = record.encode() {
        context.files.media.files.hint(&Hint::RecordRewritten { file, label, record: &record });
    }
}

struct Open {
    builder: TableBuilder,
    number: u64,
    name: String,
    /// What the medium was told to write down.
    written_back_bytes: u64,
    /// What was spent of the reservation.
    spent_bytes: u64,
}

impl Open {
    /// Has the medium write down what it was given since the last time.
    fn write_back(&mut self) -> Result<(), Error> {
        let bytes = self.builder.written_bytes();
        if bytes > self.written_back_bytes {
            self.written_back_bytes = bytes;
            self.builder.write_back()?;
        }
        Ok(())
    }
}

/// Writes the walk from where it stands up to `end` (a user key, exclusive). All tables but the last become part of the tree as soon as
/// they are written where `pieces` say what they take the place of. Those of a failed call that did not are removed.
pub(super) fn write_tables(
    context: &JobContext,
    source: &mut dyn InternalIterator,
    end: Option<&[u8]>,
    boundaries: Vec<Sequence>,
    plan: &OutputPlan<'_>,
    pieces: Option<&mut Pieces<'_>>,
) -> Result<Outputs, Error> {
    let mut outputs = Outputs::default();
    let result = write_all(context, source, (end, boundaries), plan, &mut outputs, pieces);
    if let Err(error) = result {
        discard(&outputs.tables[outputs.installed..]);
        return Err(error);
    }
    Ok(outputs)
}

/// Gives up tables that never became part of the tree: their files go when the last handle does.
pub(super) fn discard(tables: &[Arc<FileMeta>]) {
    tables.iter().for_each(|table| table.mark_obsolete());
}

fn write_all(
    context: &JobContext,
    source: &mut dyn InternalIterator,
    (end, boundaries): (Option<&[u8]>, Vec<Sequence>),
    plan: &OutputPlan<'_>,
    outputs: &mut Outputs,
    mut pieces: Option<&mut Pieces<'_>>,
) -> Result<(), Error> {
    let mut filter = VersionFilter::new(boundaries);
    let mut older = plan.older.map(OlderVersions::new);
    let mut borders = Borders { below: plan.below, position: 0 };
    let takes_all = context.files.media.files.properties().preferred_table_bytes.is_some();
    let mut cuts = Cuts(if takes_all { &[] } else { plan.cuts });
    let mut current_key: Vec<u8> = Vec::new();
    let (mut has_key, mut is_newest) = (false, false);
    let mut open: Option<Open> = None;
    let follows = plan.hints_outputs && context.files.media.files.properties().wants_rewrites;
    let mut origins = Origins::default();
    let (mut passed_bytes, mut checked_bytes) = (0, 0);
    let mut charged = ChargedBytes::default();
    context.throttle.begin_writing();
    context.board.refuse_if_cancelled()?;
    let (mut burst, step_bytes) = (Burst::default(), context.throttle.step_bytes());
    context.throttle.begin(plan.pace, &mut burst);
    let result = (|| {
        while source.valid() {
            let internal = source.key();
            let user = key::user_key(internal);
            outputs.read_entries += 1;
            if !has_key || current_key != user {
                if end.is_some_and(|end| user >= end) {
                    outputs.read_entries -= 1;
                    break;
                }
                has_key = true;
                current_key.clear();
                current_key.extend_from_slice(user);
                filter.begin_key();
                is_newest = true;
                let (crossed, is_cut) = (borders.crossed(user), cuts.reached(user));
                if let Some(current) = &open
                    && (is_cut || plan.size.is_reached(&current.builder, crossed, internal, source.value()))
                {
                    finish(context, open.take(), plan, outputs)?;
                    if let Some(pieces) = pieces.as_deref_mut() {
                        // Others may have the medium meanwhile.
                        context.throttle.pause(plan.pace, &mut burst);
                        pieces.install(context, outputs, plan.level, Some(user))?;
                        context.throttle.begin(plan.pace, &mut burst);
                    }
                }
            }
            outputs.read_user_bytes += (user.len() + source.value().len()) as u64;
            let sequence = key::sequence(internal);
            let hidden = filter.is_hidden(sequence);
            let is_newest = std::mem::take(&mut is_newest);
            let gone = !hidden
                && key::kind_number(internal) == EntryKind::Delete as u8
                && filter.is_oldest_view(sequence)
                && older.as_mut().is_some_and(|older| !older.may_exist(user, sequence));
            if hidden || gone {
                outputs.dropped_entries += 1;
            } else {
                let current = match &mut open {
                    Some(current) => current,
                    None => {
                        origins.0.clear();
                        open.insert(begin(context, plan, follows)?)
                    }
                };
                let value = source.value();
                current.builder.add(internal, value)?;
                if follows {
                    if is_newest && let Some(records) = source.block().and_then(|place| place.records) {
                        let hash = key_hash(user);
                        let entry = (key::trailer(internal), user, value);
                        follow_record(context, &current.name, current.builder.table_id(), entry, (records, hash));
                    }
                    // A block that is full has none of this entry.
                    if let Some((offset_bytes, bytes)) = current.builder.take_block() {
                        let file = &current.name;
                        let hint = Hint::BlockRewritten { file, offset_bytes, bytes, origins: &origins.0 };
                        context.files.media.files.hint(&hint);
                        origins.0.clear();
                    }
                    source.block().into_iter().for_each(|place| origins.add(place));
                }
                context.files.env.charge(cost::MERGE_ENTRY);
                // Of what is in blocks that were written, which only grows: what a table will be is an estimate, and
                // shrinks when a block is compressed.
                let bytes = current.builder.written_bytes();
                let job_bytes = outputs.written_bytes + bytes;
                let may_have_waited = context.throttle.admit(&mut burst, &mut charged, job_bytes);
                if may_have_waited || job_bytes - checked_bytes >= CANCEL_CHECK_BYTES {
                    checked_bytes = job_bytes;
                    context.board.refuse_if_cancelled()?;
                }
                if bytes - current.written_back_bytes >= WRITE_BACK_BYTES && !burst.is_held() {
                    match context.throttle.writes_back(plan.pace) {
                        true => current.write_back()?,
                        // Nobody waits for it. Who comes to wait later has what follows written back.
                        false => current.written_back_bytes = bytes,
                    }
                }
            }
            passed_bytes += (internal.len() + source.value().len()) as u64;
            source.next();
            if passed_bytes >= step_bytes {
                let write_back = || open.as_mut().map_or(Ok(()), Open::write_back);
                context.throttle.step(plan.pace, &mut burst, std::mem::take(&mut passed_bytes), write_back)?;
                context.board.refuse_if_cancelled()?;
            }
        }
        source.status()?;
        finish(context, open.take(), plan, outputs)
    })();
    let unfinished_bytes = open.as_ref().map_or(0, |unfinished| unfinished.builder.written_bytes());
    context.throttle.settle(charged, outputs.written_bytes + unfinished_bytes);
    if result.is_err()
        && let Some(unfinished) = open
    {
        let number = unfinished.number;
        drop(unfinished);
        context.files.tables.garbage.push_table(number);
    }
    result
}

fn begin(context: &JobContext, plan: &OutputPlan<'_>, follows: bool) -> Result<Open, Error> {
    let number = context.files.numbers.file();
    let name = file_name::table(number);
    let options = CreateOptions {
        kind: FileKind::Table,
        level: Some(plan.level as u8),
        job: Some(plan.job),
        expected_size_bytes: Some(plan.expected_bytes.min(plan.size.bound_bytes())),
        direct: context.files.options.use_direct_io_for_flush_and_compaction,
        map: false,
    };
    let file = match context.files.media.files.create(&name, &options) {
        Ok(file) => file,
        Err(error) => {
            context.files.tables.garbage.push_table(number);
            return Err(error.into());
        }
    };
    let build = context.files.build_options(plan.level);
    // Where it takes a place of its own it takes that now.
    let spent_bytes = context.space.counted_bytes(0);
    if let Some(reservation) = plan.reservation {
        reservation.spend(spent_bytes);
    }
    let mut builder = TableBuilder::new(file, &name, &build, plan.context, context.files.env.clone());
    if follows {
        builder.follow();
    }
    Ok(Open { builder, number, name, written_back_bytes: 0, spent_bytes })
}

fn finish(context: &JobContext, open: Option<Open>, plan: &OutputPlan<'_>, outputs: &mut Outputs) -> Result<(), Error> {
    let Some(open) = open else { return Ok(()) };
    let (number, spent_bytes) = (open.number, open.spent_bytes);
    let summary = match open.builder.finish() {
        Ok(summary) => summary,
        Err(error) => {
            context.files.tables.garbage.push_table(number);
            return Err(error);
        }
    };
    let file = table_meta(number, plan.level, summary, &context.files.tables.garbage);
    outputs.written_bytes += file.size_bytes;
    if let Some(reservation) = plan.reservation {
        reservation.spend(file.size_bytes.saturating_sub(spent_bytes));
    }
    if plan.hints_outputs {
        context.files.media.files.hint(&Hint::CompactionOutput { job: plan.job, output: &hinted(&file, plan.level) });
    }
    outputs.tables.push(file);
    Ok(())
}
