//! Salvage: makes a database that opens out of whatever can still be read.
//!
//! Everything readable (tables block by block, logs record by record) is merged by key and sequence
//! number into fresh tables of the last level under a fresh manifest, so nothing depends on what was
//! lost. Until that manifest holds, nothing of what was there changes: a repair that was cut short is
//! run again and finds the same. Nothing is removed unless that is asked for: what is damaged, or not used, is kept beside,
//! renamed, and so is what was replaced. A mark, made before the fresh manifest holds, has the next opening finish that. What was overwritten or deleted by lost data may
//! come back in its older state: repair cannot know it.

use super::catalog::{Change, InDoubt, ManifestState};
use super::jobs::compaction::{self, Grant};
use super::jobs::flush as flush_job;
use super::jobs::output::table_meta;
use super::parts::{Found, TreeParts};
use super::recovery::apply_unflushed;
use super::tables::Tables;
use crate::batch::{BatchRecord, KeptRecord};
use crate::cache::BlockCache;
use crate::error::Error;
use crate::file_name::{self, FileName};
use crate::inventory::new_database_id;
use crate::iterator::InternalIterator;
use crate::key::Sequence;
use crate::manifest::{FlushedRanges, Recovered};
use crate::media::FileMedia;
use crate::memtable::{MemTable, Partition};
use crate::options::Options;
use crate::repair::{
    self, Condition, Originals, Repair, RepairAction, RepairPlan, RepairReport, RepairStep, TableCondition,
};
use crate::shape::{CompactionPlan, CompactionPolicy, FileMeta, Reason, Version};
use crate::table::{KeyOrder, Readahead, Table, TableBuilder, TableIteratorOptions};
use crate::throttle::JobPace;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{CreateOptions, FileKind, IoClass, IoContext, OpenOptions};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

struct Salvage {
    repair: Repair,
    parts: Arc<TreeParts>,
    tables: Vec<Arc<FileMeta>>,
    last_sequence: Sequence,
}

/// See [`crate::plan_repair`]. `policy_of` makes the policy of these options.
pub(crate) fn plan_repair(
    env: &Env,
    media: &FileMedia,
    options: &Options,
    policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairPlan, Error> {
    repair::plan_repair(media, policy_of(options).name(), &|media| conditions(env, media, options))
}

/// What judges the tables on `media`.
fn conditions<'a>(env: &Env, media: &FileMedia, options: &Options) -> Box<TableCondition<'a>> {
    let tables = Tables::new(env, media, options, Arc::new(BlockCache::new(0, None, None)), Arc::default());
    let media = media.clone();
    Box::new(move |number, manifest| table_condition(&media, &tables, number, manifest))
}

/// See [`crate::repair`]. `policy_of` makes the policy of these options.
pub(crate) fn repair(
    env: &Env,
    media: FileMedia,
    options: Options,
    originals: Originals,
    policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairReport, Error> {
    let new_database = new_database_id(env, &*media.files);
    let name = policy_of(&options).name();
    let repair = Repair::begin(&media, originals, name, &|media| conditions(env, media, &options))?;
    let mut options = options;
    let levels = repair.contents.as_ref().map_or(0, |contents| usize::from(contents.num_levels));
    options.num_levels = options.num_levels.max(levels);
    let blocks = Arc::new(BlockCache::new(0, None, None));
    let tables = Tables::new(env, &repair.media, &options, blocks, Arc::default());
    let policy = policy_of(&options);
    let version = Version::empty(policy.level_count(), policy.disjoint_from());
    // No older log is needed once the fresh manifest holds.
    let log_number = repair.highest_number + 1;
    let totals = repair.contents.as_ref().and_then(|contents| contents.totals);
    let in_doubt = InDoubt::default();
    let flushed = FlushedRanges::default();
    let state = ManifestState { manifest: None, named: None, log_number, last_sequence: 0, totals, flushed, in_doubt };
    let found = Found {
        database: repair.database.unwrap_or(new_database),
        tables,
        version,
        manifest: state,
        next_file_number: log_number + 1,
        last_sequence: 0,
    };
    let parts = Arc::new(TreeParts::new(env, repair.media.clone(), options, policy, found));
    let last_sequence = repair.last_sequence();
    let mut salvage = Salvage { repair, parts, tables: Vec::new(), last_sequence };
    salvage.read_tables()?;
    salvage.read_logs()?;
    salvage.finish()
}

impl Salvage {
    /// Reads the tables that the plan says are read.
    fn read_tables(&mut self) -> Result<(), Error> {
        for RepairStep { file, action } in self.repair.steps.clone() {
            let Some(FileName::Table(number)) = FileName::parse(&file) else { continue };
            match action {
                RepairAction::Keep => {
                    let table = self.open(number, &file)?;
                    self.repair.report.tables_kept += 1;
                    self.take(&table, number);
                }
                RepairAction::Salvage => self.salvage_table(number)?,
                _ => {
                    let findings = &self.repair.report.findings;
                    let is_needed = findings.iter().any(|finding| finding.message.contains(file.as_str()));
                    self.repair.report.tables_lost += u64::from(is_needed);
                    self.repair.set_aside(&file);
                }
            }
        }
        Ok(())
    }

    /// Rewrites what can be read of a damaged table, and sets the original aside.
    fn salvage_table(&mut self, number: u64) -> Result<(), Error> {
        let name = file_name::table(number);
        let table = self.open(number, &name)?;
        self.repair.report.tables_salvaged += 1;
        let fresh = self.parts.files.numbers.file();
        let begin = self.begin_of(number).map(<[u8]>::to_vec);
        if self.rewrite(&table, (&name, begin.as_deref()), fresh)? {
            let table = self.open(fresh, &file_name::table(fresh))?;
            self.take(&table, fresh);
        }
        self.repair.set_aside(&name);
        Ok(())
    }

    fn open(&self, number: u64, name: &str) -> Result<Arc<Table>, Error> {
        let size_bytes = self.parts.files.media.files.open(name, &OpenOptions::default())?.size_bytes();
        self.parts.files.tables.open_unlisted(number, size_bytes)
    }

    fn take(&mut self, table: &Table, number: u64) {
        self.last_sequence = self.last_sequence.max(table.properties().newest_sequence);
        let file = table_meta(number, 0, table.summary(), &self.parts.files.tables.garbage);
        self.tables.push(self.begin_of(number).map_or(file.clone(), |begin| file.rest_from(begin)));
    }

    /// User key from which on entries of a table count, if the manifest says one.
    fn begin_of(&self, number: u64) -> Option<&[u8]> {
        self.repair.contents.as_ref()?.files.get(&number)?.begin.as_deref()
    }

    /// Copies the entries from `begin` on of every block that can be read of the table in `original` into table `fresh`; false when
    /// there are none.
    fn rewrite(
        &mut self,
        table: &Arc<Table>,
        (original, begin): (&str, Option<&[u8]>),
        fresh: u64,
    ) -> Result<bool, Error> {
        let name = file_name::table(fresh);
        let create = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
        let file = self.parts.files.media.files.create(&name, &create)?;
        let build = self.parts.files.build_options(0);
        let context = IoContext::of(IoClass::Maintenance);
        let mut builder = TableBuilder::new(file, &name, &build, context, self.parts.files.env.clone());
        let mut walk = table.iterator(TableIteratorOptions {
            fill_cache: false,
            verify_checksums: true,
            readahead: Readahead::Fixed { bytes: READ_BYTES },
            order: KeyOrder::Any,
            io: context,
        });
        let mut last: Vec<u8> = Vec::new();
        for block in 0..table.block_count() {
            walk.seek_to_block(block);
            while walk.valid() && walk.block_number() == block {
                let counts = begin.is_none_or(|begin| crate::key::user_key(walk.key()) >= begin);
                // Entries out of order are part of the damage.
                if counts && (last.is_empty() || crate::key::compare(&last, walk.key()).is_lt()) {
                    builder.add(walk.key(), walk.value())?;
                    last.clear();
                    last.extend_from_slice(walk.key());
                }
                walk.next();
            }
            if let Err(error @ Error::Store(_)) = walk.status() {
                self.repair.report.find_lost("block-lost", original, &error);
            }
        }
        if builder.entries() == 0 {
            builder.abandon();
            self.parts.files.media.files.remove(&name)?;
            return Ok(false);
        }
        builder.finish()?;
        Ok(true)
    }

    /// Puts what the logs hold, up to the end or the first damage of each, into tables.
    fn read_logs(&mut self) -> Result<(), Error> {
        let capacity = self.parts.space.sizes().memtable_bytes;
        let mut memtable = Arc::new(MemTable::new(0, capacity, 0));
        let Salvage { repair, parts, tables, last_sequence } = self;
        // What is in tables that are whole is not taken from logs once more: of those that are damaged the one that deletes it may be
        // lost, and what was deleted would come back.
        let is_kept = |number: &u64| {
            let name = file_name::table(*number);
            repair.steps.iter().any(|step| step.file == name && matches!(step.action, RepairAction::Keep))
        };
        let contents = repair.contents.as_ref().filter(|contents| contents.files.keys().all(is_kept));
        let flushed = contents.map(|contents| contents.flushed.clone()).unwrap_or_default();
        let mut flush = |memtable: &Arc<MemTable>, last_sequence| flush(parts, tables, memtable, last_sequence);
        let mut apply = |batch: &BatchRecord<'_>| {
            // Of damaged logs any may come again: a memtable has each number once.
            let is_repeated = memtable.last_sequence().is_some_and(|last| batch.first_sequence <= last);
            if is_repeated || memtable.memory_bytes() >= capacity {
                let full = std::mem::replace(&mut memtable, Arc::new(MemTable::new(0, capacity, 0)));
                flush(&full, *last_sequence)?;
            }
            // A sequence number that is already in a table names the same entry.
            apply_unflushed(&memtable, batch, &flushed);
            *last_sequence = (*last_sequence).max(batch.last_sequence());
            Ok::<(), Error>(())
        };
        // The last record of a log may be whole although its append failed: then the next log begins with its number, and what
        // that one has was acknowledged.
        let mut last: Option<KeptRecord> = None;
        repair.read_logs(&mut |batch| {
            let before = last.replace(batch.keep());
            match before.as_ref().map(KeptRecord::record) {
                Some(before) if before.first_sequence != batch.first_sequence => apply(&before),
                _ => Ok(()),
            }
        })?;
        last.as_ref().map_or(Ok(()), |last| apply(&last.record()))?;
        flush(&memtable, *last_sequence)
    }

    /// Merges everything into the last level under a fresh manifest.
    fn finish(mut self) -> Result<RepairReport, Error> {
        let parts = self.parts.clone();
        let parts = &parts;
        self.repair.mark()?;
        parts.snapshots.publish(self.last_sequence);
        let last = parts.catalog.policy.level_count() - 1;
        let log_number = parts.catalog.manifest().log_number;
        let log_start = Some((log_number, self.last_sequence));
        // The manifest will name it, so it is there first.
        parts.logs.create(log_number, parts.files.numbers.random(), None)?;
        if self.tables.is_empty() {
            parts.jobs().install(Change { log_start, ..Change::default() })?;
        } else {
            let mut levels = vec![Vec::new(); last + 1];
            levels[0] = std::mem::take(&mut self.tables);
            let version = Arc::new(Version::new(levels, parts.catalog.policy.disjoint_from()));
            {
                let jobs = parts.board.lock();
                parts.catalog.publish(&jobs, None, Some(version.clone()));
            }
            parts.catalog.manifest().last_sequence = self.last_sequence;
            let inputs = version.levels[0].to_vec();
            let plan = CompactionPlan::new(Reason::Manual, (0, inputs), (last, Vec::new()));
            // The fresh manifest is to say all or nothing.
            let grant = Grant { is_at_once: true, ..Grant::new(&parts.space, &version, &plan, u64::MAX, true) };
            compaction::compact(&parts.jobs(), version, plan, &grant)?;
        }
        let report = self.repair.finish(&parts.catalog.needed_files(), log_number)?;
        let version = parts.catalog.version();
        let tables = version.levels[last].len() as u64;
        let entries = version.levels[last].iter().map(|file| file.entries).fold(0, u64::saturating_add);
        Ok(RepairReport { tables, entries, ..report })
    }
}

/// Puts a memtable into a table.
fn flush(
    parts: &TreeParts,
    tables: &mut Vec<Arc<FileMeta>>,
    memtable: &Arc<MemTable>,
    last_sequence: Sequence,
) -> Result<(), Error> {
    if memtable.is_empty() {
        return Ok(());
    }
    parts.snapshots.publish(last_sequence);
    let outputs = flush_job::write(&parts.jobs(), &[Arc::new(Partition::whole(memtable.clone()))], &JobPace::unheld())?;
    // Durable with the fresh manifest, which is written once.
    let mut manifest = parts.catalog.manifest();
    manifest.totals = manifest.totals.map(|totals| totals.plus(&outputs.flush_work()));
    tables.extend(outputs.tables);
    Ok(())
}

fn table_condition(media: &FileMedia, tables: &Tables, number: u64, manifest: Option<&Recovered>) -> Condition {
    let name = file_name::table(number);
    let opened = media
        .files
        .open(&name, &OpenOptions::default())
        .map_err(Error::from)
        .and_then(|file| tables.open_unlisted(number, file.size_bytes()));
    // Tables of this database that changed names are as good as ever; others are not its own.
    let table = opened.and_then(|table| {
        let table_id = table.identity().table_id;
        let mut ids = manifest.iter().flat_map(|manifest| manifest.contents.files.values().map(|file| file.table_id));
        match manifest.is_none_or(|manifest| !manifest.contents.files.contains_key(&number))
            || ids.any(|id| id == table_id)
        {
            true => Ok(table),
            false => Err(Error::Misplaced {
                file: name,
                structure: "table".to_owned(),
                expected: "an id that the manifest has".to_owned(),
                found: format!("id {table_id:016x}"),
            }),
        }
    });
    match table.map(|table| table.verify(IoContext::of(IoClass::Check))) {
        Ok(findings) if findings.is_empty() => Condition::Sound,
        Ok(findings) => Condition::Damaged(findings),
        Err(error) => Condition::Unreadable(error),
    }
}
