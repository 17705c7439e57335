//! Salvage: makes a database that opens out of whatever can still be read.
//!
//! Everything readable (tables block by block, logs record by record) is merged by key and sequence
//! number into fresh tables of the last level under a fresh manifest, so nothing depends on what was
//! lost. Until that manifest holds, nothing of what was there changes: a repair that was cut short is
//! run again and finds the same. Nothing is removed unless that is asked for: what is damaged, or not used, is kept beside,
//! renamed, and so is what was replaced. A mark, made before the fresh manifest holds, has the next opening finish that. What was overwritten or deleted by lost data may
//! come back in its older state: repair cannot know it.

use super::compaction;
use super::output::table_meta;
use super::shared::{Change, InDoubt, ManifestState, Shared};
use super::tables::Tables;
use crate::cache::BlockCache;
use crate::error::Error;
use crate::file_name::{self, FileName};
use crate::inventory::new_database_id;
use crate::iterator::InternalIterator;
use crate::key::Sequence;
use crate::log_chain::{Salvaged, salvage_log};
use crate::manifest::Recovered;
use crate::media::Media;
use crate::memtable::MemTable;
use crate::options::Options;
use crate::repair::{
    Condition, MediumFailures, Originals, RepairAction, RepairPlan, RepairReport, RepairStep, Replaced, Survey, plan,
    survey,
};
use crate::shape::{CompactionPlan, CompactionPolicy, FileMeta, Garbage, Reason, Version};
use crate::table::{KeyOrder, Readahead, Table, TableBuilder, TableIteratorOptions};
use crate::throttle::JobPace;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{CreateOptions, FileKind, IoClass, IoContext, OpenOptions};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

struct Salvage {
    shared: Arc<Shared>,
    /// Id of the database, once something says it.
    database: Option<u64>,
    report: RepairReport,
    tables: Vec<Arc<FileMeta>>,
    last_sequence: Sequence,
    replaced: Replaced,
    /// What the medium failed to give.
    failures: Arc<MediumFailures>,
}

/// See [`crate::plan_repair`]. `policy_of` makes the policy of these options.
pub(crate) fn plan_repair(
    env: &Env,
    media: &Media,
    options: &Options,
    policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairPlan, Error> {
    let (media, failures) = MediumFailures::watch(media);
    plan(&look(env, &media, &failures, options, &*policy_of(options))?)
}

fn look(
    env: &Env,
    media: &Media,
    failures: &MediumFailures,
    options: &Options,
    policy: &dyn CompactionPolicy,
) -> Result<Survey, Error> {
    let tables = Tables::new(env, media, options, Arc::new(BlockCache::new(0, None, None)));
    let survey = survey(media, policy.name(), &|number, manifest| table_condition(media, &tables, number, manifest))?;
    // What could not be read now is neither damaged nor foreign.
    failures.check()?;
    Ok(survey)
}

/// See [`crate::repair`]. `policy_of` makes the policy of these options.
pub(crate) fn repair(
    env: &Env,
    media: Media,
    options: Options,
    originals: Originals,
    policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairReport, Error> {
    // What is not ours is refused before so much as a lock is made beside it.
    plan_repair(env, &media, &options, &policy_of)?;
    let _lock = media.files.lock(file_name::LOCK)?;
    let _log_lock = media.logs.as_ref().map(|logs| logs.lock(file_name::LOCK)).transpose()?;
    let (media, failures) = MediumFailures::watch(&media);
    let survey = look(env, &media, &failures, &options, &*policy_of(&options))?;
    let RepairPlan { steps, findings } = plan(&survey)?;
    let highest = survey.files.iter().filter_map(|file| file.name.number()).max().unwrap_or(0);
    let report = RepairReport { findings, ..RepairReport::default() };
    let manifest = survey.manifest.ok();
    let database = manifest.as_ref().map(|manifest| manifest.database);
    let contents = manifest.map(|manifest| manifest.contents);

    let mut options = options;
    options.num_levels =
        options.num_levels.max(contents.as_ref().map_or(0, |contents| usize::from(contents.num_levels)));
    let garbage = Arc::new(Garbage::default());
    let blocks = Arc::new(BlockCache::new(0, None, None));
    let tables = Tables::new(env, &media, &options, blocks);
    let memtable = Arc::new(MemTable::new(0, options.write_buffer_size, 0));
    let policy = policy_of(&options);
    let version = Version::empty(policy.level_count(), policy.disjoint_from());
    // No older log is needed once the fresh manifest holds.
    let log_number = highest + 1;
    let new_database = new_database_id(env, &*media.files);
    let totals = contents.as_ref().and_then(|contents| contents.totals);
    let in_doubt = InDoubt::default();
    let state = ManifestState { manifest: None, named: None, log_number, last_sequence: 0, totals, in_doubt };
    let shared = Arc::new(Shared::new(
        env,
        database.unwrap_or(new_database),
        media,
        options,
        policy,
        tables,
        garbage,
        memtable,
        version,
        state,
        highest + 2,
        0,
    ));
    let last_sequence = contents.as_ref().map_or(0, |contents| contents.last_sequence);
    let replaced = Replaced::new(&shared.media, originals);
    let mut salvage = Salvage { shared, database, report, tables: Vec::new(), last_sequence, replaced, failures };
    salvage.carry_out(&steps)?;
    salvage.finish()
}

impl Salvage {
    /// Reads what the plan says is read, tables first, then logs in their order, and notes what is set aside.
    fn carry_out(&mut self, steps: &[RepairStep]) -> Result<(), Error> {
        let mut logs = Vec::new();
        for RepairStep { file, action } in steps {
            match (FileName::parse(file), action) {
                (Some(FileName::Table(number)), RepairAction::Keep) => {
                    let table = self.open(number, file)?;
                    self.report.tables_kept += 1;
                    self.take(&table, number);
                }
                (Some(FileName::Table(number)), RepairAction::Salvage) => self.salvage_table(number)?,
                (Some(FileName::Log(number)), RepairAction::Replay | RepairAction::Salvage) => logs.push(number),
                (Some(FileName::Current), RepairAction::Replace) => self.replaced.add_current(),
                (_, RepairAction::Replace) => {}
                (name, _) => {
                    let is_needed = self.report.findings.iter().any(|finding| finding.message.contains(file.as_str()));
                    let is_table = matches!(name, Some(FileName::Table(_)));
                    self.report.tables_lost += u64::from(is_table && is_needed);
                    self.replaced.add(file);
                }
            }
        }
        logs.sort_unstable();
        logs.into_iter().try_for_each(|number| self.read_log(number))
    }

    /// Rewrites what can be read of a damaged table, and sets the original aside.
    fn salvage_table(&mut self, number: u64) -> Result<(), Error> {
        let name = file_name::table(number);
        let table = self.open(number, &name)?;
        self.report.tables_salvaged += 1;
        let fresh = self.shared.new_file_number();
        if self.rewrite(&table, &name, fresh)? {
            let table = self.open(fresh, &file_name::table(fresh))?;
            self.take(&table, fresh);
        }
        self.replaced.add(&name);
        Ok(())
    }

    fn open(&self, number: u64, name: &str) -> Result<Arc<Table>, Error> {
        let size_bytes = self.shared.media.files.open(name, &OpenOptions::default())?.size_bytes();
        self.shared.tables.open_unlisted(number, size_bytes)
    }

    fn take(&mut self, table: &Table, number: u64) {
        self.last_sequence = self.last_sequence.max(table.properties().newest_sequence);
        self.tables.push(table_meta(number, 0, table.summary(), &self.shared.garbage));
    }

    /// Copies the entries of every block that can be read of the table in `original` into table `fresh`; false when
    /// there are none.
    fn rewrite(&mut self, table: &Arc<Table>, original: &str, fresh: u64) -> Result<bool, Error> {
        let name = file_name::table(fresh);
        let create = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
        let file = self.shared.media.files.create(&name, &create)?;
        let build = self.shared.table_build_options(0);
        let context = IoContext::of(IoClass::Maintenance);
        let mut builder = TableBuilder::new(file, &name, &build, context, self.shared.env.clone());
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
                // Entries out of order are part of the damage.
                if last.is_empty() || crate::key::compare(&last, walk.key()).is_lt() {
                    builder.add(walk.key(), walk.value())?;
                    last.clear();
                    last.extend_from_slice(walk.key());
                }
                walk.next();
            }
            if let Err(error @ Error::Store(_)) = walk.status() {
                self.report.find_lost("block-lost", original, &error);
            }
        }
        if builder.entries() == 0 {
            builder.abandon();
            self.shared.media.files.remove(&name)?;
            return Ok(false);
        }
        builder.finish()?;
        Ok(true)
    }

    /// Puts what a log holds, up to its end or the first damage, into tables.
    fn read_log(&mut self, number: u64) -> Result<(), Error> {
        let name = file_name::log(number);
        let store = self.shared.media.log_store().clone();
        let capacity = self.shared.space.sizes().memtable_bytes;
        let mut memtable = Arc::new(MemTable::new(0, capacity, 0));
        let mut database = self.database;
        let salvaged = salvage_log(&*store, number, &mut database, &mut |batch| {
            // A sequence number that is already in a table names the same entry.
            memtable.apply(batch.iter(), batch.first_sequence);
            self.last_sequence = self.last_sequence.max(batch.last_sequence());
            if memtable.memory_bytes() >= capacity {
                let full = std::mem::replace(&mut memtable, Arc::new(MemTable::new(0, capacity, 0)));
                self.flush(&full)?;
            }
            Ok(())
        })?;
        self.database = database;
        self.report.logs_read += u64::from(!matches!(salvaged, Salvaged::Nothing(_)));
        let lost = match salvaged {
            Salvaged::Whole => None,
            Salvaged::UpTo(error) => Some(("log-damaged", error)),
            Salvaged::Nothing(error) => Some(("log-lost", error)),
        };
        if let Some((code, error)) = lost {
            self.report.find_lost(code, &name, &error);
            self.replaced.add(&name);
        }
        self.flush(&memtable)
    }

    fn flush(&mut self, memtable: &Arc<MemTable>) -> Result<(), Error> {
        if memtable.is_empty() {
            return Ok(());
        }
        self.shared.snapshots.publish(self.last_sequence);
        let outputs = super::flush::write(&self.shared, std::slice::from_ref(memtable), &JobPace::unheld())?;
        // Durable with the fresh manifest, which is written once.
        let mut manifest = self.shared.manifest.lock();
        manifest.totals = manifest.totals.map(|totals| totals.plus(&outputs.flush_work()));
        self.tables.extend(outputs.tables);
        Ok(())
    }

    /// Merges everything into the last level under a fresh manifest.
    fn finish(mut self) -> Result<RepairReport, Error> {
        self.replaced.copy_damaged();
        self.failures.check()?;
        let shared = self.shared.clone();
        let shared = &shared;
        shared.snapshots.publish(self.last_sequence);
        let last = shared.policy.level_count() - 1;
        let log_number = shared.manifest.lock().log_number;
        let log_start = Some((log_number, self.last_sequence));
        self.replaced.mark()?;
        // The manifest will name it, so it is there first.
        shared.logs.create(log_number, shared.random_number(), None)?;
        if self.tables.is_empty() {
            shared.install(Change { log_start, ..Change::default() })?;
        } else {
            let mut levels = vec![Vec::new(); last + 1];
            levels[0] = std::mem::take(&mut self.tables);
            let version = Arc::new(Version::new(levels, shared.policy.disjoint_from()));
            {
                let core = shared.core.lock();
                shared.publish(&core, None, Some(version.clone()));
            }
            shared.manifest.lock().last_sequence = self.last_sequence;
            let inputs = version.levels[0].clone();
            let plan = CompactionPlan {
                reason: Reason::Manual,
                input_level: 0,
                output_level: last,
                inputs,
                overlapping: Vec::new(),
            };
            compaction::compact(shared, version, plan, u64::MAX)?;
        }
        self.report.set_aside = self.replaced.finish(&shared.needed_files(), log_number)?;
        let version = shared.read_state.load().version.clone();
        self.report.tables = version.levels[last].len() as u64;
        self.report.entries = version.levels[last].iter().map(|file| file.entries).fold(0, u64::saturating_add);
        Ok(self.report)
    }
}

fn table_condition(media: &Media, tables: &Tables, number: u64, manifest: Option<&Recovered>) -> Condition {
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
