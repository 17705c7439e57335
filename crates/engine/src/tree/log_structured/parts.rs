//! What one tree of tables is made of.
//!
//! Locks, in the order they are taken; none is taken while a later one is held:
//! `queue` (the write group) - `writer` (log and active memtable; held across log I/O) -
//! `manifest` (held across manifest I/O) - `jobs` (scheduling; never held across I/O).
//!
//! Whoever writes the log passes the log gate under `writer` at most; a job that has it to itself takes none of these locks.

use super::board::JobBoard;
use super::catalog::{Catalog, ManifestState, ReadState};
use super::files::{TableFiles, TableSettings};
use super::jobs::JobContext;
use super::pool::Pool;
use super::relief::Scans;
use super::tables::Tables;
use crate::log_chain::{LogChain, LogChainOptions};
use crate::media::FileMedia;
use crate::memtable::{MemTable, Partition};
use crate::numbers::Numbers;
use crate::options::Options;
use crate::shape::{CompactionPolicy, Version};
use crate::snapshot::SnapshotList;
use crate::space::SpaceBudget;
use crate::throttle::{LogMedium, Throttle};
use std::sync::Arc;
use varve_env::Env;

/// The parts of one tree of tables. Each is thread-safe.
pub(super) struct TreeParts {
    pub(super) files: Arc<TableFiles>,
    pub(super) catalog: Arc<Catalog>,
    /// What is free on the medium, and who may have it.
    pub(super) space: Arc<SpaceBudget>,
    /// How fast writers and jobs may go.
    pub(super) throttle: Arc<Throttle>,
    pub(super) snapshots: Arc<SnapshotList>,
    /// What runs and is due.
    pub(super) board: Arc<JobBoard>,
    /// Write-ahead logs.
    pub(super) logs: LogChain,
    /// How memtables of ranges of keys are sized, where these are flushed.
    pub(super) pool: Option<Pool>,
    /// Deletions that scans step over.
    pub(super) scans: Arc<Scans>,
}

/// A tree as it was found.
pub(super) struct Found {
    pub(super) database: u64,
    pub(super) tables: Arc<Tables>,
    pub(super) version: Version,
    pub(super) manifest: ManifestState,
    pub(super) next_file_number: u64,
    pub(super) last_sequence: u64,
}

impl TreeParts {
    pub(super) fn new(
        env: &Env,
        media: FileMedia,
        options: Options,
        policy: Box<dyn CompactionPolicy>,
        found: Found,
    ) -> TreeParts {
        let Found { database, tables, version, manifest, next_file_number, last_sequence } = found;
        let space = SpaceBudget::new(&media.files, &options, policy.histogram_bytes());
        let log_medium = LogMedium {
            is_apart: media.logs.is_some(),
            flush_is_device_request: media.log_store().properties().flush_is_device_request,
        };
        let throttle = Arc::new(Throttle::new(env, &options, space.sizes().memtable_bytes, log_medium));
        let log_options = LogChainOptions::new(database, &media, &options, space.sizes().memtable_bytes as u64 * 9 / 8);
        let logs = LogChain::new(env, media.log_store(), log_options, throttle.log_backlog(), manifest.log_number);
        let settings = TableSettings {
            histogram_bytes: policy.histogram_bytes(),
            compaction_readahead_bytes: options.compaction_readahead_bytes(media.files.properties()),
            iterator_readahead: options.iterator_readahead(media.files.properties()),
        };
        let pool = Pool::new(&options, space.sizes());
        let seed = env.random("memtable").next_u64();
        let memtable = match &pool {
            None => MemTable::new(0, space.sizes().memtable_bytes, seed),
            Some(pool) => MemTable::of_pool(pool.bytes, pool.part_bytes, seed),
        };
        let active = Arc::new(Partition::whole(Arc::new(memtable)));
        let scans: Arc<Scans> = Arc::default();
        let state = ReadState { active, immutables: Vec::new(), version: Arc::new(version), scans: scans.clone() };
        let manifest_bytes_max = space.sizes().manifest_bytes_max;
        let board = Arc::new(JobBoard::new(env));
        let catalog = Catalog::new(env, state, manifest, manifest_bytes_max, policy, throttle.clone());
        let numbers = Numbers::new(env, database, next_file_number);
        TreeParts {
            files: Arc::new(TableFiles { env: env.clone(), media, options, tables, numbers, settings }),
            catalog: Arc::new(catalog),
            space: Arc::new(space),
            throttle,
            snapshots: SnapshotList::new(last_sequence),
            board,
            logs,
            pool,
            scans,
        }
    }

    /// What jobs get of it.
    pub(super) fn jobs(&self) -> JobContext {
        JobContext {
            files: self.files.clone(),
            catalog: self.catalog.clone(),
            space: self.space.clone(),
            throttle: self.throttle.clone(),
            snapshots: self.snapshots.clone(),
            board: self.board.clone(),
        }
    }
}
