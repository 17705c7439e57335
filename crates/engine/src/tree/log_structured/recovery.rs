//! Opening: from the manifest and the logs back to the state before the last close or crash.

use super::board::{Immutable, LogBegin};
use super::catalog::{Change, InDoubt, ManifestState};
use super::jobs::flush;
use super::parts::{Found, TreeParts};
use super::tables::Tables;
use super::write::Writer;
use crate::batch::BatchRecord;
use crate::cache::BlockCache;
use crate::commit::CommitHead;
use crate::error::{Error, ErrorKind};
use crate::file_name::{self, FileName};
use crate::inventory::{NO_LOG, log_numbers, names, new_database_id, refuse_orphans, remove_strays};
use crate::key::Sequence;
use crate::log::LogWriter;
use crate::log_chain::{LogHead, LogsOfManifest, Replay, replay};
use crate::manifest::{self, FlushedRanges, Manifest};
use crate::media::{FileMedia, check_absent};
use crate::memtable::{MemTable, Partition};
use crate::options::Options;
use crate::shape::{CompactionPolicy, FileMeta, Garbage, Version};
use crate::statistics::Totals;
use crate::throttle::JobPace;
use crate::unreadable::LostTables;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use varve_env::Env;
use varve_store::{FileEntry, FileStore};

/// What the manifest said.
pub(super) struct Recovered {
    /// Its number; 0 of a new database.
    pub(super) manifest_number: u64,
    /// Id of the database.
    pub(super) database: u64,
    pub(super) version: Version,
    pub(super) log_number: u64,
    pub(super) logs: LogsOfManifest,
    pub(super) next_file_number: u64,
    pub(super) last_sequence: Sequence,
    pub(super) totals: Option<Totals>,
    pub(super) flushed: FlushedRanges,
}

/// Brings a database up. The caller holds its lock.
pub(super) fn open(
    env: &Env,
    media: FileMedia,
    options: Options,
    policy: Box<dyn CompactionPolicy>,
    blocks: Arc<BlockCache>,
) -> Result<(Arc<TreeParts>, Writer), Error> {
    let garbage = Arc::new(Garbage::default());
    let listing = media.files.list()?;
    let file_names = names(&listing);
    let log_listing = match &media.logs {
        Some(logs) => logs.list()?,
        None => listing.clone(),
    };
    let log_names = names(&log_listing);
    let mut logs = log_numbers(&log_names);

    let exists = file_names.contains(&FileName::Current);
    let recovered = if exists {
        if options.error_if_exists {
            return Err(Error::Exists { store: media.files.name().to_owned() });
        }
        let manifest = Manifest::recover(&*media.files, policy.name())?;
        compare_with_files(&manifest, &*policy, &*media.files, &listing, &LostTables::new(), &garbage)?
    } else {
        refuse_orphans(&media, &file_names, &logs)?;
        if !options.create_if_missing {
            return Err(Error::Missing { store: media.files.name().to_owned() });
        }
        let highest = file_names.iter().chain(&log_names).filter_map(FileName::number).max().unwrap_or(0);
        logs.clear();
        let database = new_database_id(env, &*media.files);
        Recovered {
            manifest_number: 0,
            database,
            logs: LogsOfManifest { database, oldest: NO_LOG, ..LogsOfManifest::default() },
            version: Version::empty(policy.level_count(), policy.disjoint_from()),
            log_number: NO_LOG,
            next_file_number: highest + 1,
            last_sequence: 0,
            totals: Some(Totals::default()),
            flushed: FlushedRanges::default(),
        }
    };
    logs.retain(|number| *number >= recovered.log_number);
    let highest_log = logs.last().copied().unwrap_or(0);
    let mut next_file_number = recovered.next_file_number.max(highest_log + 1);
    // Files of a crashed run may carry numbers the manifest never learned of.
    for number in file_names.iter().chain(&log_names).filter_map(FileName::number) {
        next_file_number = next_file_number.max(number + 1);
    }
    let tables = Tables::new(env, &media, &options, blocks, garbage);
    let state = ManifestState {
        manifest: None,
        named: exists.then_some(recovered.manifest_number),
        log_number: recovered.log_number,
        last_sequence: recovered.last_sequence,
        totals: recovered.totals,
        flushed: recovered.flushed,
        in_doubt: InDoubt::default(),
    };
    let found = Found {
        database: recovered.database,
        tables,
        version: recovered.version.clone(),
        manifest: state,
        next_file_number,
        last_sequence: recovered.last_sequence,
    };
    let parts = Arc::new(TreeParts::new(env, media, options, policy, found));
    let recovered_version = recovered.version;
    let replayed = parts.logs.replay_of(&logs, recovered.logs);
    let begun = if exists && !has_space(&parts, &log_listing, recovered.log_number) {
        None
    } else {
        match begin(&parts, &replayed) {
            Ok(begun) => Some(begun),
            Err(error) if error.kind() == ErrorKind::NoSpace && exists => None,
            Err(error) => return Err(error),
        }
    };
    let (log, last_sequence, first_log) = match begun {
        Some(Begun { log_number, log, last_sequence, work }) => {
            // Until here nothing the old state needs was touched. This writes a new manifest that says
            // the old logs are in tables, and switches to it.
            parts.jobs().install(Change { log_start: Some((log_number, last_sequence)), work, ..Change::default() })?;
            parts.logs.retire(log_number);
            remove_strays(&parts.files.media, &parts.catalog.needed_files(), u64::MAX);
            (Some((log_number, log)), last_sequence, (log_number, last_sequence))
        }
        None => {
            let last_sequence = hold(&parts, &replayed, Arc::new(recovered_version))?;
            (None, last_sequence, (recovered.logs.oldest, recovered.logs.last_sequence))
        }
    };
    let (number, after) = first_log;
    parts.board.lock().begin_log(LogBegin { number, after, written_bytes: 0 });
    let writer = Writer {
        // Without a log the next write makes one first, as after one that broke.
        head: CommitHead { log: LogHead::new(log), last_sequence },
        active: parts.catalog.read_state.load().active.clone(),
        pool_bytes: (0, 0),
        borders: Vec::new(),
        ranges_are_narrow: false,
        logged_bytes: 0,
        switched: None,
        flush_owed: false,
        due_nanos: 0,
        unlooked_bytes: u64::MAX,
        closed: false,
    };
    Ok((parts, writer))
}

/// Space that a manifest and the header of a log may take.
const SMALL_FILES_BYTES: u64 = 256 << 10;

/// Whether what the logs from `oldest` on hold, a new log and a new manifest surely fit. What cannot be
/// told counts as space: then it is tried.
fn has_space(parts: &TreeParts, log_listing: &[FileEntry], oldest: u64) -> bool {
    let is_needed =
        |entry: &&FileEntry| matches!(FileName::parse(&entry.name), Some(FileName::Log(number)) if number >= oldest);
    let log_bytes: u64 = log_listing.iter().filter(is_needed).map(|entry| entry.size_bytes).sum();
    let table_bytes = parts.files.media.files.properties().preferred_table_bytes.unwrap_or(u64::MAX);
    let needed_bytes = log_bytes.saturating_add(SMALL_FILES_BYTES.min(table_bytes));
    parts.files.media.files.space().map_or(true, |space| space.available_bytes >= needed_bytes)
}

/// What an opening begins with when there is space.
struct Begun {
    log_number: u64,
    log: LogWriter,
    last_sequence: Sequence,
    /// The flushes of what the logs held.
    work: Totals,
}

/// The logs into tables, and a new log.
fn begin(parts: &Arc<TreeParts>, replayed: &Replay<'_>) -> Result<Begun, Error> {
    let mut work = Totals::default();
    let last_sequence = replay_into_memtables(parts, replayed, &mut |memtable, last_sequence| {
        work = work.plus(&add_to_level0(parts, &memtable, last_sequence)?);
        Ok(())
    })?;
    parts.snapshots.publish(last_sequence);
    let log_number = parts.files.numbers.file();
    let log = parts.logs.create(log_number, parts.files.numbers.random(), None)?;
    Ok(Begun { log_number, log, last_sequence, work })
}

/// On a medium without space for tables: what the logs hold stays in memory and in the logs, and is
/// flushed when a log could be made, which the first write tries. Until then everything can be read.
fn hold(parts: &Arc<TreeParts>, replayed: &Replay<'_>, version: Arc<Version>) -> Result<Sequence, Error> {
    // Tables of an attempt that found no space go; the manifest never knew them.
    {
        let jobs = parts.board.lock();
        parts.catalog.publish(&jobs, None, Some(version));
    }
    remove_strays(&parts.files.media, &parts.catalog.needed_files(), u64::MAX);
    parts.logs.adopt(replayed.logs);
    replay_into_memory(parts, replayed)
}

/// What the logs hold becomes memtables, however many.
pub(super) fn replay_into_memory(parts: &Arc<TreeParts>, replayed: &Replay<'_>) -> Result<Sequence, Error> {
    let next_log_number = replayed.manifest.map_or(NO_LOG, |manifest| manifest.oldest);
    let last_sequence = replay_into_memtables(parts, replayed, &mut |memtable, sequence| {
        if !memtable.is_empty() {
            let mut jobs = parts.board.lock();
            jobs.flush_held = true;
            let memtables = Arc::new(Partition::whole(memtable));
            jobs.immutables.push_back(Immutable { memtables, sequence, next_log_number });
            parts.catalog.publish(&jobs, None, None);
        }
        Ok(())
    })?;
    parts.snapshots.publish(last_sequence);
    Ok(last_sequence)
}

/// Compares what the manifest says with the files there, but for those that are known to be `lost`.
pub(super) fn compare_with_files(
    manifest: &manifest::Recovered,
    policy: &dyn CompactionPolicy,
    files: &dyn FileStore,
    listing: &[FileEntry],
    lost: &LostTables,
    garbage: &Arc<Garbage>,
) -> Result<Recovered, Error> {
    let (number, state) = (manifest.number, &manifest.contents);
    let level_count = policy.level_count();
    let name = file_name::manifest(number);
    if usize::from(state.num_levels) > level_count {
        let deepest = state.files.values().map(|file| usize::from(file.level)).max().unwrap_or(0);
        if deepest >= level_count {
            return Err(Error::Foreign {
                file: name,
                offset_bytes: 0,
                expected: format!("tables in levels below num_levels = {level_count}"),
                found: format!("a table in level {deepest}"),
                advice: format!("open it with num_levels of at least {}", deepest + 1),
            });
        }
    }
    let mut levels = vec![Vec::new(); level_count];
    for added in state.files.values() {
        let table = file_name::table(added.number);
        let size = listing
            .binary_search_by(|entry| entry.name.as_str().cmp(&table))
            .ok()
            .map(|position| listing[position].size_bytes);
        if size != Some(added.size_bytes) && !lost.contains_key(&added.number) {
            if size.is_none() {
                check_absent(files, &table)?;
            }
            return Err(Error::Corruption {
                file: table,
                offset_bytes: size.unwrap_or(0),
                structure: format!("table named in {name}"),
                expected: format!("{} bytes", added.size_bytes),
                found: size.map_or("no such file".to_owned(), |size| format!("{size} bytes")),
            });
        }
        levels[usize::from(added.level)].push(FileMeta::new(added, garbage));
    }
    let version = Version::checked(levels, policy.disjoint_from()).map_err(|(first, second)| Error::Corruption {
        file: name,
        offset_bytes: 0,
        structure: "list of tables".to_owned(),
        expected: "tables of one level that do not overlap".to_owned(),
        found: format!("tables {first} and {second}"),
    })?;
    Ok(Recovered {
        manifest_number: number,
        database: manifest.database,
        version,
        log_number: state.log_number,
        logs: LogsOfManifest::of(manifest),
        next_file_number: state.next_file_number,
        last_sequence: state.last_sequence,
        totals: state.totals,
        flushed: state.flushed.clone(),
    })
}

/// Reads the logs back; returns the newest sequence number.
///
/// Replays logs. Every full memtable, and the last one, goes to `sink`.
fn replay_into_memtables(
    parts: &Arc<TreeParts>,
    replayed: &Replay<'_>,
    sink: &mut dyn FnMut(Arc<MemTable>, Sequence) -> Result<(), Error>,
) -> Result<Sequence, Error> {
    // A memtable of a pool's size becomes several tables, of ranges of keys.
    let capacity = parts.pool.as_ref().map_or(parts.space.sizes().memtable_bytes, |pool| pool.bytes);
    let new_memtable = || Arc::new(MemTable::new(0, capacity, 0));
    let mut memtable = new_memtable();
    let flushed = parts.catalog.manifest().flushed.clone();
    let result = replay(replayed, &mut |batch| {
        apply_unflushed(&memtable, batch, &flushed);
        if memtable.memory_bytes() >= capacity {
            sink(std::mem::replace(&mut memtable, new_memtable()), batch.last_sequence())?;
        }
        Ok(())
    })?;
    parts.catalog.counters.recovery_dropped_bytes.fetch_add(result.dropped_bytes, Ordering::Relaxed);
    sink(memtable, result.last_sequence)?;
    Ok(result.last_sequence)
}

/// Adds those entries of a batch that are in no table.
pub(super) fn apply_unflushed(memtable: &MemTable, batch: &BatchRecord<'_>, flushed: &FlushedRanges) {
    if flushed.is_empty() {
        memtable.apply(batch.iter(), batch.first_sequence);
        return;
    }
    for (entry, sequence) in batch.iter().zip(batch.first_sequence..) {
        let (kind, key, value) = entry.parts();
        if sequence > flushed.sequence_of(key) {
            memtable.insert(sequence, kind, key, value);
        }
    }
}

/// A recovered memtable becomes a table of the state in memory; the new manifest makes it durable. What that took.
fn add_to_level0(parts: &Arc<TreeParts>, memtable: &Arc<MemTable>, last_sequence: Sequence) -> Result<Totals, Error> {
    parts.snapshots.publish(last_sequence);
    if memtable.is_empty() {
        return Ok(Totals::default());
    }
    let outputs = flush::write(&parts.jobs(), &[Arc::new(Partition::whole(memtable.clone()))], &JobPace::unheld())?;
    let added: Vec<_> = outputs.tables.iter().map(|file| (0, file.clone())).collect();
    let next = parts.catalog.read_state.load().version.with(&[], &added);
    let jobs = parts.board.lock();
    parts.catalog.publish(&jobs, None, Some(Arc::new(next)));
    Ok(outputs.flush_work())
}
