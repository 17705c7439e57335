//! fjall, the log-structured store written in Rust.

use super::{BACKGROUND_THREADS, BLOCK_BYTES, Budget};
use fjall::config::{BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;
use varve_lab::target::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};

/// Version of the crate.
const VERSION: &str = "fjall 3.1.13";

pub(crate) struct FjallTarget {
    database: Database,
    pairs: Keyspace,
}

impl FjallTarget {
    pub(crate) fn open(directory: &Path, budget: Budget) -> Result<FjallTarget, TargetError> {
        let database = Database::builder(directory)
            .cache_size(budget.cache_bytes as u64)
            .worker_threads(BACKGROUND_THREADS)
            .journal_compression(CompressionType::None)
            .open()?;
        let filter = match budget.filter_bits {
            0 => FilterPolicyEntry::None,
            bits => FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(bits as f32)),
        };
        let pairs = database.keyspace("pairs", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(budget.write_buffer_bytes as u64)
                .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES as u32))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
                .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
                .filter_policy(FilterPolicy::all(filter))
        })?;
        Ok(FjallTarget { database, pairs })
    }
}

impl Target for FjallTarget {
    fn name(&self) -> &str {
        VERSION
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(FjallSession { database: self.database.clone(), pairs: self.pairs.clone() }))
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(self.pairs.rotate_memtable_and_wait()?)
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        // It has counts of outstanding work, but not of work that is due; the process coming to rest
        // says more.
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        Ok(self.pairs.major_compact()?)
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        Ok(TargetStatistics {
            compactions: Some(self.database.compactions_completed() as u64),
            compaction_nanos: Some(self.database.time_compacting().as_nanos() as u64),
            space_bytes: Some(self.pairs.disk_space()),
            ..TargetStatistics::default()
        })
    }
}

struct FjallSession {
    database: Database,
    pairs: Keyspace,
}

impl FjallSession {
    fn persist(&self, durability: Durability) -> Result<(), TargetError> {
        match durability {
            Durability::Buffered => Ok(()),
            Durability::Synced => Ok(self.database.persist(PersistMode::SyncData)?),
        }
    }
}

impl Session for FjallSession {
    fn put(&mut self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), TargetError> {
        self.pairs.insert(key, value)?;
        self.persist(durability)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let found = self.pairs.get(key)?;
        if let Some(bytes) = &found {
            value.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8], durability: Durability) -> Result<(), TargetError> {
        self.pairs.remove(key)?;
        self.persist(durability)
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> Result<(), TargetError> {
        let mode = (durability == Durability::Synced).then_some(PersistMode::SyncData);
        let mut batch = self.database.batch().durability(mode);
        for change in changes {
            match change {
                Change::Put { key, value } => batch.insert(&self.pairs, key.as_slice(), value.as_slice()),
                Change::Delete { key } => batch.remove(&self.pairs, key.as_slice()),
            }
        }
        Ok(batch.commit()?)
    }

    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        let iterator = match (direction, start) {
            (_, None) => self.pairs.iter(),
            (Direction::Forward, Some(key)) => self.pairs.range(key..),
            (Direction::Reverse, Some(key)) => self.pairs.range(..=key),
        };
        let mut visited = 0;
        let mut take = |guard: Guard| -> Result<(), TargetError> {
            let (key, value) = guard.into_inner()?;
            visit(&key, &value);
            visited += 1;
            Ok(())
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        match direction {
            Direction::Forward => iterator.take(limit).try_for_each(&mut take)?,
            Direction::Reverse => iterator.rev().take(limit).try_for_each(&mut take)?,
        }
        Ok(visited)
    }
}
