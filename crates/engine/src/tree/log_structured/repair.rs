//! Salvage: makes a database that opens out of whatever can still be read.
//!
//! Everything readable (tables block by block, which are found by their checksums, logs record by record) is merged by key and sequence
//! number into fresh tables of the last level under a fresh manifest, so nothing depends on what was
//! lost. Until that manifest holds, nothing of what was there changes: a repair that was cut short is
//! run again and finds the same. Nothing is removed unless that is asked for: what is damaged, or not used, is kept beside,
//! renamed, and so is what was replaced. A mark, made before the fresh manifest holds, has the next opening finish that. What was overwritten or deleted by lost data may
//! come back in its older state: a repair says of which keys.

use super::catalog::{Change, InDoubt, ManifestState};
use super::jobs::compaction::{self, Grant};
use super::jobs::flush as flush_job;
use super::jobs::output::table_meta;
use super::parts::{Found, TreeParts};
use super::recovery::apply_unflushed;
use super::salvage::{find_blocks, table_condition};
use super::tables::Tables;
use crate::batch::{BatchRecord, KeptRecord};
use crate::cache::BlockCache;
use crate::error::{Error, ErrorKind};
use crate::file_name::{self, FileName};
use crate::inventory::{self, new_database_id};
use crate::key::Sequence;
use crate::manifest::{FlushedRanges, current_number};
use crate::media::FileMedia;
use crate::memtable::{MemTable, Partition};
use crate::options::Options;
use crate::repair::{
    self, Method, Originals, Repair, RepairAction, RepairPlan, RepairReport, RepairStep, TableCondition,
};
use crate::shape::{CompactionPlan, CompactionPolicy, FileMeta, Reason, Version};
use crate::table::{SalvagedTable, Table, TableBuilder};
use crate::throttle::JobPace;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{CreateOptions, FileKind, IoClass, IoContext, OpenOptions, StoreError};

struct Salvage {
    repair: Repair,
    parts: Arc<TreeParts>,
    /// With the levels that they had, if the manifest says so.
    tables: Vec<(usize, Arc<FileMeta>)>,
    last_sequence: Sequence,
}

/// See [`crate::plan_repair`]. `policy_of` makes the policy of these options.
pub(crate) fn plan_repair(
    env: &Env,
    media: &FileMedia,
    options: &Options,
    policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairPlan, Error> {
    repair::plan_repair(media, policy_of(options).name(), Method::ByNeed, &|media| conditions(env, media, options))
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
    let repair = |method| repair_by(env, media.clone(), options.clone(), originals, method, &policy_of);
    match repair(Method::ByNeed) {
        // The space that was counted was not there.
        Err(error) if error.kind() == ErrorKind::NoSpace => repair(Method::Stay).map_err(|_| error),
        outcome => outcome,
    }
}

fn repair_by(
    env: &Env,
    media: FileMedia,
    options: Options,
    originals: Originals,
    method: Method,
    policy_of: &impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairReport, Error> {
    let new_database = new_database_id(env, &*media.files);
    let name = policy_of(&options).name();
    let repair = Repair::begin(&media, originals, name, method, &|media| conditions(env, media, &options))?;
    let stays = repair.steps.iter().any(|step| step.action == RepairAction::Stay);
    if method == Method::Stay && !stays {
        return Err(no_space(&repair.media));
    }
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
    let highest_number = repair.highest_number;
    let media = repair.media.clone();
    let mut salvage = Salvage { repair, parts, tables: Vec::new(), last_sequence };
    let salvaged = salvage.read_tables().and_then(|()| match stays {
        true => salvage.finish_in_place(),
        false => salvage.read_logs().and_then(|()| salvage.finish()),
    });
    // What was written so far is in the way of another attempt.
    salvaged.inspect_err(|error| {
        if error.kind() == ErrorKind::NoSpace {
            remove_fresh(&media, highest_number);
        }
    })
}

/// Removes files that a repair has made, of a database whose files have numbers up to `highest_number`. Leaves them if the manifest
/// among them may hold.
fn remove_fresh(media: &FileMedia, highest_number: u64) {
    match current_number(&*media.files) {
        Ok(number) if number.is_none_or(|number| number <= highest_number) => {}
        // The one that was there: a fresh one is sound.
        Err(Error::Corruption { .. }) => {}
        _ => return,
    }
    for store in media.stores() {
        for name in inventory::names(&store.list().unwrap_or_default()) {
            if name.number().is_some_and(|number| number > highest_number) {
                let _ = store.remove(&name.format());
            }
        }
    }
}

/// The error of a repair for which there is no space.
fn no_space(media: &FileMedia) -> Error {
    let space = media.files.space().ok();
    Error::Store(StoreError::NoSpace {
        store: media.files.name().to_owned(),
        name: "fresh tables of the repair".to_owned(),
        requested_bytes: 0,
        available_bytes: space.map_or(0, |space| space.available_bytes.saturating_add(space.reserve_bytes)),
        zones: space.and_then(|space| space.zones),
    })
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
                    self.take(&table, number, number);
                }
                RepairAction::Salvage => self.salvage_table(number)?,
                RepairAction::Stay => {
                    self.repair.report.tables_kept += 1;
                    let contents = self.repair.contents.as_ref();
                    let file = contents.and_then(|contents| contents.files.get(&number));
                    let garbage = &self.parts.files.tables.garbage;
                    self.tables.extend(file.map(|file| (usize::from(file.level), FileMeta::new(file, garbage))));
                }
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
        let fresh = self.parts.files.numbers.file();
        let begin = self.begin_of(number).map(<[u8]>::to_vec);
        let context = IoContext::of(IoClass::Maintenance);
        match find_blocks(&self.repair.media, number, self.repair.contents.as_ref(), &context)? {
            Some(salvaged) => {
                self.repair.report.tables_salvaged += 1;
                if self.rewrite(&salvaged, begin.as_deref(), fresh)? {
                    let table = self.open(fresh, &file_name::table(fresh))?;
                    self.take(&table, fresh, number);
                }
            }
            None => self.repair.report.tables_lost += 1,
        }
        self.repair.set_aside(&name);
        Ok(())
    }

    fn open(&self, number: u64, name: &str) -> Result<Arc<Table>, Error> {
        let size_bytes = self.parts.files.media.files.open(name, &OpenOptions::default())?.size_bytes();
        self.parts.files.tables.open_unlisted(number, size_bytes)
    }

    /// Table `number` has what is left of `original`.
    fn take(&mut self, table: &Table, number: u64, original: u64) {
        self.last_sequence = self.last_sequence.max(table.properties().newest_sequence);
        let file = table_meta(number, 0, table.summary(), &self.parts.files.tables.garbage);
        let contents = self.repair.contents.as_ref();
        let level = contents.and_then(|contents| contents.files.get(&original)).map_or(0, |file| file.level);
        let file = self.begin_of(number).map_or(file.clone(), |begin| file.rest_from(begin));
        self.tables.push((usize::from(level), file));
    }

    /// User key from which on entries of a table count, if the manifest says one.
    fn begin_of(&self, number: u64) -> Option<&[u8]> {
        self.repair.contents.as_ref()?.files.get(&number)?.begin.as_deref()
    }

    /// Copies the entries from `begin` on of every sound block into table `fresh`; false when there are none.
    fn rewrite(&mut self, salvaged: &SalvagedTable, begin: Option<&[u8]>, fresh: u64) -> Result<bool, Error> {
        let name = file_name::table(fresh);
        let create = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
        let file = self.parts.files.media.files.create(&name, &create)?;
        let build = self.parts.files.build_options(0);
        let context = IoContext::of(IoClass::Maintenance);
        let mut builder = TableBuilder::new(file, &name, &build, context, self.parts.files.env.clone());
        salvaged.for_each(|internal_key, value| {
            let counts = begin.is_none_or(|begin| crate::key::user_key(internal_key) >= begin);
            if counts { builder.add(internal_key, value) } else { Ok(()) }
        })?;
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
        let flushed = flushed_ranges(repair);
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

    /// Writes a fresh manifest that names what is left, where it is. Logs are those that the manifest needed.
    fn finish_in_place(mut self) -> Result<RepairReport, Error> {
        let Some(contents) = self.repair.contents.clone() else { return Err(no_space(&self.repair.media)) };
        let flushed = flushed_ranges(&self.repair);
        self.repair.read_logs(&mut |_| Ok(()))?;
        self.repair.mark()?;
        let parts = self.parts.clone();
        let mut levels = vec![Vec::new(); parts.catalog.policy.level_count()];
        for (level, file) in std::mem::take(&mut self.tables) {
            // A manifest with more levels than the tree has is refused by every opening.
            let last = levels.len() - 1;
            levels[level.min(last)].push(file);
        }
        let version = Arc::new(Version::new(levels, parts.catalog.policy.disjoint_from()));
        {
            let jobs = parts.board.lock();
            parts.catalog.publish(&jobs, None, Some(version));
        }
        {
            let mut manifest = parts.catalog.manifest();
            (manifest.log_number, manifest.last_sequence) = (contents.log_number, contents.last_sequence);
            manifest.flushed = flushed;
        }
        parts.jobs().install(Change::default())?;
        let fresh_from = self.repair.highest_number + 1;
        let report = self.repair.finish(&parts.catalog.needed_files(), fresh_from)?;
        let version = parts.catalog.version();
        let (tables, entries) = version
            .files()
            .fold((0, 0u64), |(tables, entries), (_, file)| (tables + 1, entries.saturating_add(file.entries)));
        Ok(RepairReport { tables, entries, ..report })
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
            levels[0] = std::mem::take(&mut self.tables).into_iter().map(|(_, file)| file).collect();
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

/// Ranges of the logs' entries that need not be read, as tables have them. None of them where a table of the manifest was not whole:
/// the logs may have what it lost.
fn flushed_ranges(repair: &Repair) -> FlushedRanges {
    let is_whole = |number: &u64| {
        let name = file_name::table(*number);
        let is_kept = |action| matches!(action, RepairAction::Keep | RepairAction::Stay);
        repair.steps.iter().any(|step| step.file == name && is_kept(step.action))
    };
    let contents = repair.contents.as_ref().filter(|contents| contents.files.keys().all(is_whole));
    contents.map(|contents| contents.flushed.clone()).unwrap_or_default()
}

/// Puts a memtable into a table.
fn flush(
    parts: &TreeParts,
    tables: &mut Vec<(usize, Arc<FileMeta>)>,
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
    tables.extend(outputs.tables.into_iter().map(|file| (0, file)));
    Ok(())
}
