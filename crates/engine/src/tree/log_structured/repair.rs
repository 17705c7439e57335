//! Salvage: makes a database that opens out of whatever can still be read.
//!
//! Everything readable (tables block by block, logs record by record) is merged by key and sequence
//! number into fresh tables of the last level under a fresh manifest, so nothing depends on what was
//! lost. Until that manifest holds, nothing of what was there changes: a repair that was cut short is
//! run again and finds the same. Nothing is removed unless that is asked for: what is damaged, or not used, is kept beside,
//! renamed, and so is what was replaced. A mark, made before the fresh manifest holds, has the next opening finish that. What was overwritten or deleted by lost data may
//! come back in its older state: repair cannot know it.

use super::checkpoint;
use super::compaction;
use super::output::table_meta;
use super::recovery::remove_strays;
use super::repair_medium::MediumFailures;
use super::shared::{Change, InDoubt, ManifestState, Shared, new_database_id};
use super::survey::{self, Survey};
use super::tables::Tables;
use crate::batch::BatchRecord;
use crate::cache::BlockCache;
use crate::error::Error;
use crate::file_name::{self, FileName};
use crate::iterator::InternalIterator;
use crate::key::Sequence;
use crate::log::{LogReader, Purpose};
use crate::media::Media;
use crate::memtable::MemTable;
use crate::options::Options;
use crate::repair::{Originals, RepairAction, RepairPlan, RepairReport, RepairStep};
use crate::shape::{CompactionPlan, CompactionPolicy, FileMeta, Garbage, Reason, Version};
use crate::table::{KeyOrder, Readahead, Table, TableBuilder, TableIteratorOptions};
use crate::throttle::JobPace;
use std::sync::Arc;
use varve_env::Env;
use varve_store::{CreateOptions, FileKind, FileStore, Finding, IoClass, IoContext, OpenOptions, Severity};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

struct Salvage {
    shared: Arc<Shared>,
    /// Id of the database, once something says it.
    database: Option<u64>,
    report: RepairReport,
    tables: Vec<Arc<FileMeta>>,
    last_sequence: Sequence,
    /// Damaged files and where they are.
    damaged: Vec<(Arc<dyn FileStore>, String)>,
    /// Those of which there is a copy.
    copied: Vec<(Arc<dyn FileStore>, String)>,
    /// What the medium failed to give.
    failures: Arc<MediumFailures>,
    originals: Originals,
    /// A sound `CURRENT` is there.
    replaces_current: bool,
}

/// See [`crate::plan_repair`]. `policy_of` makes the policy of these options.
pub(crate) fn plan_repair(
    env: &Env,
    media: &Media,
    options: &Options,
    policy_of: impl Fn(&Options) -> Box<dyn CompactionPolicy>,
) -> Result<RepairPlan, Error> {
    let (media, failures) = MediumFailures::watch(media);
    survey::plan(&look(env, &media, &failures, options, &*policy_of(options))?)
}

fn look(
    env: &Env,
    media: &Media,
    failures: &MediumFailures,
    options: &Options,
    policy: &dyn CompactionPolicy,
) -> Result<Survey, Error> {
    let tables = Tables::new(env, media, options, Arc::new(BlockCache::new(0, None, None)));
    let survey = survey::survey(media, &tables, policy.name())?;
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
    let RepairPlan { steps, findings } = survey::plan(&survey)?;
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
    let mut salvage = Salvage {
        shared,
        database,
        report,
        tables: Vec::new(),
        last_sequence,
        damaged: Vec::new(),
        copied: Vec::new(),
        failures,
        originals,
        replaces_current: false,
    };
    salvage.carry_out(&steps)?;
    salvage.finish()
}

impl Salvage {
    fn find(&mut self, code: &'static str, message: String) {
        self.report.findings.push(Finding { severity: Severity::Error, code, message });
    }

    /// Tells what of file `name` is lost, unless the survey found it.
    fn find_lost(&mut self, code: &'static str, name: &str, error: &Error) {
        if !self.report.findings.iter().any(|finding| finding.message.contains(name)) {
            self.find(code, format!("'{name}': {error}"));
        }
    }

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
                (name, RepairAction::Replace) => self.replaces_current |= name == Some(FileName::Current),
                (name, _) => {
                    let is_needed = self.report.findings.iter().any(|finding| finding.message.contains(file.as_str()));
                    let is_table = matches!(name, Some(FileName::Table(_)));
                    self.report.tables_lost += u64::from(is_table && is_needed);
                    let store = match name {
                        Some(FileName::Log(_)) => self.shared.media.log_store(),
                        _ => &self.shared.media.files,
                    };
                    self.damaged.push((store.clone(), file.clone()));
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
        self.damaged.push((self.shared.media.files.clone(), name));
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
                self.find_lost("block-lost", original, &error);
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
        let opened = store.open(&name, &OpenOptions::default()).map_err(Error::from).and_then(|file| {
            let reader = LogReader::open(file, &name, Purpose::WriteAhead, number)?;
            // Where nothing says which database it is, that of the first log is taken for it.
            let database = self.database.or(reader.header().map(|header| header.database));
            database.map_or(Ok(()), |database| reader.expect_database(database))?;
            self.database = database;
            Ok(reader)
        });
        let mut reader = match opened {
            Ok(reader) => reader,
            Err(error) => {
                self.find_lost("log-lost", &name, &error);
                self.damaged.push((store, name));
                return Ok(());
            }
        };
        self.report.logs_read += 1;
        let capacity = self.shared.space.sizes().memtable_bytes;
        let mut memtable = Arc::new(MemTable::new(0, capacity, 0));
        loop {
            let failure = match reader.next() {
                Ok(None) => break,
                Ok(Some(record)) => match BatchRecord::decode(record.data) {
                    Ok(batch) => {
                        // A sequence number that is already in a table names the same entry.
                        memtable.apply(batch.iter(), batch.first_sequence);
                        self.last_sequence = self.last_sequence.max(batch.last_sequence());
                        None
                    }
                    Err(damage) => Some(damage.in_file(&name, record.offset_bytes, "batch")),
                },
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                self.find_lost("log-damaged", &name, &error);
                self.damaged.push((store, name));
                break;
            }
            if memtable.memory_bytes() >= capacity {
                self.flush(&memtable)?;
                memtable = Arc::new(MemTable::new(0, capacity, 0));
            }
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

    /// Copies what is set aside to where it is kept; files that cannot be copied stay in the list.
    /// The originals go once the fresh manifest holds.
    fn copy_damaged(&mut self) {
        let options = CreateOptions { kind: FileKind::Other, ..CreateOptions::default() };
        let context = IoContext::of(IoClass::Maintenance);
        let (kept, with_copy) = (&mut self.report.set_aside, &mut self.copied);
        self.damaged.retain(|(store, name)| {
            let Ok(copy_name) = free_name(&**store, file_name::SET_ASIDE_PREFIX, name) else { return true };
            // Under its name the copy is whole, or not there.
            let partial_name = format!("{}{name}.partial", file_name::SET_ASIDE_PREFIX);
            let copied = is_copy(&**store, name, &copy_name)
                || checkpoint::copy(&**store, name, &**store, &partial_name, options, &context)
                    .and_then(|()| Ok(store.rename(&partial_name, &copy_name)?))
                    .is_ok();
            if !copied {
                let _ = store.remove(&partial_name);
            }
            kept.extend(copied.then_some(copy_name));
            with_copy.extend(copied.then(|| (store.clone(), name.clone())));
            !copied
        });
    }

    /// Renames the files that could not be copied. Those that cannot be renamed either stay under their names, and the
    /// error of the first is given.
    fn rename_damaged(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        for (store, name) in std::mem::take(&mut self.damaged) {
            // It has become the fresh one.
            if name == file_name::CURRENT {
                continue;
            }
            let renamed = free_name(&*store, file_name::SET_ASIDE_PREFIX, &name).and_then(|kept| {
                store.rename(&name, &kept)?;
                Ok(kept)
            });
            match renamed {
                Ok(kept) => self.report.set_aside.push(kept),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Merges everything into the last level under a fresh manifest.
    fn finish(mut self) -> Result<RepairReport, Error> {
        self.copy_damaged();
        self.failures.check()?;
        let shared = self.shared.clone();
        let shared = &shared;
        shared.snapshots.publish(self.last_sequence);
        let last = shared.policy.level_count() - 1;
        let log_number = shared.manifest.lock().log_number;
        let log_start = Some((log_number, self.last_sequence));
        if self.originals == Originals::SetAside {
            self.mark_originals()?;
        }
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
        // What could not be kept beside is no stray: the next repair sets it aside.
        self.rename_damaged()?;
        for (store, name) in std::mem::take(&mut self.copied) {
            // Others have become fresh ones, or are as good as ever.
            if FileName::parse(&name).is_some_and(|name| name.number().is_some()) {
                store.remove(&name)?;
            }
        }
        self.report.set_aside.extend(remove_strays(shared, shared.manifest_number(), log_number));
        if self.originals == Originals::Discard {
            self.discard_replaced()?;
        }
        let version = shared.read_state.load().version.clone();
        self.report.tables = version.levels[last].len() as u64;
        self.report.entries = version.levels[last].iter().map(|file| file.entries).fold(0, u64::saturating_add);
        Ok(self.report)
    }
}

impl Salvage {
    /// From the moment the fresh manifest holds, what it does not name is to be kept; and `CURRENT`, in whose place a fresh
    /// one comes, is kept as a copy.
    fn mark_originals(&mut self) -> Result<(), Error> {
        let files = self.shared.media.files.clone();
        let context = IoContext::of(IoClass::Maintenance);
        let options = CreateOptions { kind: FileKind::Other, ..CreateOptions::default() };
        if self.replaces_current {
            let partial_name = format!("{}{}.partial", file_name::REPLACED_PREFIX, file_name::CURRENT);
            let name = free_name(&*files, file_name::REPLACED_PREFIX, file_name::CURRENT)?;
            if !is_copy(&*files, file_name::CURRENT, &name) {
                checkpoint::copy(&*files, file_name::CURRENT, &*files, &partial_name, options, &context)?;
                files.rename(&partial_name, &name)?;
            }
            self.report.set_aside.push(name);
        }
        if !files.list()?.iter().any(|entry| entry.name == file_name::REPAIRED) {
            let mut mark = files.create(file_name::REPAIRED, &options)?;
            mark.sync(&context)?;
            mark.finish(&context)?;
        }
        Ok(())
    }

    /// Removes what this and earlier repairs replaced and kept; not what was damaged.
    fn discard_replaced(&self) -> Result<(), Error> {
        for store in std::iter::once(&self.shared.media.files).chain(self.shared.media.logs.as_ref()) {
            for entry in store.list()?.iter().filter(|entry| entry.name.starts_with(file_name::REPLACED_PREFIX)) {
                store.remove(&entry.name)?;
            }
        }
        Ok(())
    }
}

/// The name under which `name` is set aside: one that nothing has yet, or that a repair which was cut short gave to a
/// copy of it.
fn free_name(store: &dyn FileStore, prefix: &str, name: &str) -> Result<String, Error> {
    let listing = store.list()?;
    let first = format!("{prefix}{name}");
    let later = (1..=listing.len()).map(|number| format!("{first}.{number}"));
    let is_free = |kept: &String| !listing.iter().any(|entry| entry.name == *kept) || is_copy(store, name, kept);
    Ok(std::iter::once(first.clone()).chain(later).find(is_free).unwrap_or(first))
}

/// Whether two files are there and equal, as far as both can be read.
fn is_copy(store: &dyn FileStore, name: &str, other: &str) -> bool {
    let compare = || -> Result<bool, Error> {
        let (one, other) = (store.open(name, &OpenOptions::default())?, store.open(other, &OpenOptions::default())?);
        let size = one.size_bytes();
        if other.size_bytes() != size {
            return Ok(false);
        }
        let context = IoContext::of(IoClass::Maintenance);
        let (mut left, mut right) = (vec![0; READ_BYTES.min(size as usize)], vec![0; READ_BYTES.min(size as usize)]);
        let mut offset = 0;
        while offset < size {
            let length = left.len().min((size - offset) as usize);
            one.read_at(offset, &mut left[..length], &context)?;
            other.read_at(offset, &mut right[..length], &context)?;
            if left[..length] != right[..length] {
                return Ok(false);
            }
            offset += length as u64;
        }
        Ok(true)
    };
    compare().unwrap_or(false)
}
