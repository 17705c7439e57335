//! What the tree tells about itself: statistics, properties, and whether all is well.

use super::jobs::output::hinted;
use super::jobs::space_now;
use super::parts::TreeParts;
use crate::error::Error;
use crate::key;
use crate::space::{Admission, Headroom};
use crate::statistics::{LevelStatistics, SpaceStatistics, Statistics, TableStatistics, WriteState};
use crate::throttle::Stall;
use std::fmt::Write;
use std::sync::atomic::Ordering;
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
        let bytes: usize = jobs.immutables.iter().map(|immutable| immutable.memtable.reserved_bytes()).sum();
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
    let mut counters = parts.catalog.counters.values();
    counters.log_bytes = parts.logs.counters().file_bytes.load(Ordering::Relaxed);
    counters.log_syncs = parts.logs.counters().syncs.load(Ordering::Relaxed);
    let (headroom, _) = space_now(&parts.catalog, &parts.space, 0);
    Statistics {
        counters,
        write_state: write_state(parts, headroom.as_ref()),
        memtable_bytes: (state.memtable.reserved_bytes() + immutable_bytes) as u64,
        last_sequence: parts.snapshots.visible(),
        snapshots: parts.snapshots.len(),
        space: headroom.map(|headroom| SpaceStatistics {
            total_bytes: headroom.total_bytes,
            available_bytes: headroom.available_bytes,
            reserve_bytes: headroom.reserve_bytes,
            compactions_reserved_bytes: headroom.reserved_on_medium_bytes(),
            left_by_puts_bytes: headroom.left_by_puts_bytes(),
            left_by_deletes_bytes: headroom.left_by_deletes_bytes(),
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

/// Which writes are taken, and why: for people.
fn write_state_text(statistics: &Statistics) -> String {
    let mut text = statistics.write_state.advice().to_owned();
    if let (WriteState::DeletesOnly | WriteState::Full, Some(space)) = (statistics.write_state, &statistics.space) {
        let (puts, deletes) = (space.left_by_puts_bytes, space.left_by_deletes_bytes);
        let _ = write!(
            text,
            " ({} bytes are available; puts leave {puts}, deletes {deletes}, and compactions have {} more; \
             those that run take up to {})",
            space.available_bytes, space.reserve_bytes, space.compactions_reserved_bytes
        );
    }
    text
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
    let name = name.strip_prefix("varve.")?;
    // Those who wait ask often; the others sum over all tables.
    if name == "num-running-jobs" {
        return Some(parts.board.lock().running_jobs().to_string());
    }
    let statistics = statistics(parts);
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let level: usize = level.parse().ok()?;
        return statistics.levels().get(level).map(|level| level.tables.to_string());
    }
    match name {
        "estimate-num-keys" => {
            let state = parts.catalog.read_state.load();
            // What a manifest says of tables that nobody opened yet may be anything.
            let live = |level: &LevelStatistics| level.entries.saturating_sub(level.deletions.saturating_mul(2));
            let tables = statistics.levels().iter().map(live).fold(0, u64::saturating_add);
            let memory = state.memtable.entries() + state.immutables.iter().map(|table| table.entries()).sum::<u64>();
            Some(tables.saturating_add(memory).to_string())
        }
        "total-table-bytes" => Some(statistics.table_bytes().to_string()),
        "cur-size-all-mem-tables" => Some(statistics.memtable_bytes.to_string()),
        "num-immutable-mem-table" => statistics.tables.map(|tables| tables.immutable_memtables.to_string()),
        "num-snapshots" => Some(statistics.snapshots.to_string()),
        "block-cache-usage" => statistics.tables.map(|tables| tables.block_cache_bytes.to_string()),
        "estimate-pending-compaction-bytes" => {
            statistics.tables.map(|tables| tables.pending_compaction_bytes.to_string())
        }
        "overlap-depth" => Some(format!("{:.3}", parts.catalog.read_state.load().version.mean_depth())),
        "levels" => Some(levels_text(&statistics)),
        "tables" => Some(tables_text(parts)),
        "write-state" => Some(write_state_text(&statistics)),
        "stats" => Some(statistics_text(&statistics)),
        _ => None,
    }
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

fn levels_text(statistics: &Statistics) -> String {
    let mut text = String::from("level  tables          bytes        entries      deletions\n");
    for level in statistics.levels() {
        let _ = writeln!(
            text,
            "{:>5}  {:>6}  {:>13}  {:>13}  {:>13}",
            level.level, level.tables, level.bytes, level.entries, level.deletions
        );
    }
    text
}

fn statistics_text(statistics: &Statistics) -> String {
    let counters = &statistics.counters;
    let mut text = levels_text(statistics);
    let _ = writeln!(text, "user bytes written      {}", counters.user_written_bytes);
    let _ = writeln!(text, "log bytes               {}", counters.log_bytes);
    let _ = writeln!(text, "flushes                 {} ({} bytes)", counters.flushes, counters.flush_written_bytes);
    let _ = writeln!(
        text,
        "compactions             {} ({} bytes read, {} bytes written), {} moves",
        counters.compactions, counters.compaction_read_bytes, counters.compaction_written_bytes, counters.trivial_moves
    );
    let _ = writeln!(text, "write amplification     {:.2}", statistics.write_amplification());
    let _ = writeln!(text, "stalls                  {} ({} ms)", counters.stalls, counters.stall_nanos / 1_000_000);
    let _ = writeln!(text, "writes out of space     {}", counters.writes_out_of_space);
    let _ = writeln!(text, "writes now              {}", write_state_text(statistics));
    if let Some(tables) = &statistics.tables {
        let (bytes, blocks_in, out) =
            (tables.block_cache_bytes, tables.block_cache_insertions, tables.block_cache_evictions);
        let _ = writeln!(text, "block cache             {bytes} bytes, {blocks_in} blocks in, {out} out");
    }
    text
}

/// Verifies every table against the manifest, as opening one does, and against itself; and the store below.
pub(super) fn check(parts: &TreeParts) -> Result<Vec<Finding>, Error> {
    let mut findings = parts.files.media.files.check()?;
    if let Some(logs) = &parts.files.media.logs {
        findings.extend(logs.check()?);
    }
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
