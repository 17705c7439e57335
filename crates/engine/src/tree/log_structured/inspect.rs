//! What the tree tells about itself: statistics, properties, and whether all is well.

use super::jobs::output::hinted;
use super::jobs::space_now;
use super::parts::TreeParts;
use crate::error::Error;
use crate::key;
use crate::space::{Admission, Headroom};
use crate::statistics::{LevelStatistics, SpaceStatistics, Statistics, TableStatistics, WriteState, ZoneStatistics};
use crate::throttle::Stall;
use std::fmt::Write;
use varve_store::{Finding, Hint, IoClass, IoContext, Severity};

/// Tells the store the level of every table that was there when the tree was opened.
pub(super) fn announce_levels(parts: &TreeParts) {
    let version = parts.catalog.version();
    for (level, file) in version.files() {
        parts.files.media.files.hint(&Hint::LevelChanged { file: &hinted(file, level) });
    }
}

pub(super) fn statistics(parts: &TreeParts) -> Statistics {
    let (immutable_memtables, immutable_bytes, running_jobs) = {
        let jobs = parts.board.lock();
        let bytes: usize = jobs.immutables.iter().map(|immutable| immutable.memtables.reserved_bytes()).sum();
        (jobs.immutables.len(), bytes, jobs.running_jobs())
    };
    let state = parts.catalog.read_state.load_full();
    let levels = state
        .version
        .levels
        .iter()
        .enumerate()
        .map(|(level, files)| LevelStatistics {
            level,
            tables: files.len(),
            bytes: state.version.level_bytes(level),
            entries: files.iter().map(|file| file.entries).fold(0, u64::saturating_add),
            deletions: files.iter().map(|file| file.deletions).fold(0, u64::saturating_add),
        })
        .collect();
    let blocks = parts.files.tables.cache.block_cache().statistics();
    let (headroom, _) = space_now(&parts.catalog, &parts.space, 0);
    Statistics {
        write_state: write_state(parts, headroom.as_ref()),
        memtable_bytes: (state.active.reserved_bytes() + immutable_bytes) as u64,
        space: headroom.map(|headroom| SpaceStatistics {
            total_bytes: headroom.total_bytes,
            available_bytes: headroom.available_bytes,
            reserve_bytes: headroom.reserve_bytes,
            compactions_reserved_bytes: headroom.reserved_on_medium_bytes(),
            left_by_puts_bytes: headroom.left_by_puts_bytes(),
            left_by_deletes_bytes: headroom.left_by_deletes_bytes(),
            zones: headroom.zones.map(ZoneStatistics::from),
        }),
        tables: Some(TableStatistics {
            levels,
            immutable_memtables,
            block_cache_bytes: blocks.usage_bytes as u64,
            block_cache_insertions: blocks.insertions,
            block_cache_evictions: blocks.evictions,
            table_memory_bytes: parts.files.tables.cache.memory_bytes() as u64,
            open_tables: parts.files.tables.cache.open_tables(),
            pending_compaction_bytes: parts.catalog.policy.pending_bytes(&state.version),
            running_jobs,
        }),
        ..Statistics::of_any_tree(&parts.catalog.counters, (parts.logs.counters(), parts.logs.gate()), &parts.snapshots)
    }
}

fn write_state(parts: &TreeParts, headroom: Option<&Headroom>) -> WriteState {
    if parts.board.is_poisoned() {
        return WriteState::Poisoned;
    }
    match (headroom.map_or(Admission::Open, Headroom::admission), parts.throttle.stall()) {
        (Admission::Full, _) => WriteState::Full,
        (Admission::DeletesOnly, _) => WriteState::DeletesOnly,
        (Admission::Open, Stall::Stop) => WriteState::Stopped,
        (Admission::Open, Stall::Slow) => WriteState::Slowed,
        (Admission::Open, Stall::None) => WriteState::Open,
    }
}

/// See [`crate::Db::approximate_bytes`].
pub(super) fn approximate_bytes(parts: &TreeParts, begin: &[u8], end: &[u8]) -> Result<u64, Error> {
    let version = parts.catalog.version();
    let at = |user_key: &[u8]| key::lookup_key(user_key, key::SEQUENCE_MAX);
    let (begin_key, end_key) = (at(begin), at(end));
    let mut bytes = 0;
    for (_, file) in version.files() {
        if file.largest_user_key() < begin || file.smallest_user_key() >= end {
            continue;
        }
        if file.smallest_user_key() >= begin && file.largest_user_key() < end {
            bytes += file.size_bytes;
            continue;
        }
        let table = parts.files.tables.get(file)?;
        bytes += table.approximate_offset_of(&end_key).saturating_sub(table.approximate_offset_of(&begin_key));
    }
    Ok(bytes)
}

/// See [`crate::Db::property`].
pub(super) fn property(parts: &TreeParts, name: &str) -> Option<String> {
    // Those who wait ask often; the others sum over all tables.
    if name == "varve.num-running-jobs" {
        return Some(parts.board.lock().running_jobs().to_string());
    }
    // Takes no lock that jobs hold: whoever watches a medium asks in the middle of them.
    if name == "varve.memtables" {
        return Some(memtables_text(parts));
    }
    let statistics = statistics(parts);
    match name {
        "varve.estimate-num-keys" => Some(estimated_keys(parts, statistics.levels()).to_string()),
        "varve.overlap-depth" => Some(format!("{:.3}", parts.catalog.read_state.load().version.mean_depth())),
        "varve.tables" => Some(tables_text(parts)),
        _ => statistics.property(name),
    }
}

/// About how many keys have values: each deletion takes back one value, wherever in the tree that is.
fn estimated_keys(parts: &TreeParts, levels: &[LevelStatistics]) -> u64 {
    let state = parts.catalog.read_state.load();
    let memtables = std::iter::once(&state.active).chain(&state.immutables);
    let in_memory = memtables.map(|memtables| (memtables.entries(), memtables.deletions()));
    // A manifest may say anything of tables that were not opened yet.
    let in_tables = levels.iter().map(|level| (level.entries, level.deletions));
    let add = |(all, deleted): (u128, u128), (entries, deletions): (u64, u64)| {
        (all + u128::from(entries), deleted + u128::from(deletions))
    };
    let (entries, deletions) = in_memory.chain(in_tables).fold((0, 0), add);
    u64::try_from(entries.saturating_sub(2 * deletions)).unwrap_or(u64::MAX)
}

/// A line for each group of memtables, in the order in which they are flushed: who waits for a flush or is written, whether it has all keys or
/// some, bytes and entries, and memtables that have entries.
fn memtables_text(parts: &TreeParts) -> String {
    let state = parts.catalog.read_state.load();
    let waiting = state.immutables.iter().rev().map(|memtables| ("waiting", memtables));
    let mut text = String::new();
    for (place, memtables) in waiting.chain([("active", &state.active)]) {
        let keys = if memtables.is_whole() { "all" } else { "some" };
        let filled = memtables.memtables().iter().filter(|memtable| memtable.entries() > 0).count();
        let _ = writeln!(text, "{place} {keys} {} {} {filled}", memtables.memory_bytes(), memtables.entries());
    }
    text
}

/// A line for each table: level, number, bytes, entries, smallest and largest user key. Nothing in a key is a space.
fn tables_text(parts: &TreeParts) -> String {
    let escaped = |user_key: &[u8]| user_key.escape_ascii().to_string().replace(' ', "\\x20");
    let mut text = String::new();
    for (level, file) in parts.catalog.read_state.load().version.files() {
        let (smallest, largest) = (escaped(file.smallest_user_key()), escaped(file.largest_user_key()));
        let _ = writeln!(text, "{level} {} {} {} {smallest} {largest}", file.number, file.size_bytes, file.entries);
    }
    text
}

/// Verifies every table against the manifest, as opening one does, and against itself; and the store below.
pub(super) fn check(parts: &TreeParts) -> Result<Vec<Finding>, Error> {
    let mut findings = parts.files.media.check_stores()?;
    let version = parts.catalog.version();
    for (_, file) in version.files() {
        match parts.files.tables.get(file) {
            Ok(table) => findings.extend(table.verify(IoContext::of(IoClass::Check))),
            Err(error) => {
                let code = match &error {
                    Error::Misplaced { .. } => "table-misplaced",
                    _ => "table-unreadable",
                };
                findings.push(Finding { severity: Severity::Error, code, message: error.to_string() });
            }
        }
    }
    Ok(findings)
}
