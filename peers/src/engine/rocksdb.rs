//! RocksDB through the crate that bundles it.

use super::{BACKGROUND_THREADS, BLOCK_BYTES, Budget, WRITE_BUFFERS};
use rocksdb::statistics::Ticker;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompactionStyle, DBCompressionType, Options, ReadOptions, UniversalCompactOptions,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use varve_lab::experiment::AmplificationSizes;
use varve_lab::target::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};

/// Version of the bundled library.
const VERSION: &str = "rocksdb 11.8.1";

pub(crate) struct RocksDbTarget {
    db: Arc<DB>,
    /// With what it counts, if it does.
    counting: Option<Options>,
}

/// How it compacts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Leveled,
    /// With this `max_size_amplification_percent`; 200 unless it is told otherwise.
    Universal(i32),
}

impl RocksDbTarget {
    pub(crate) fn open(directory: &Path, budget: Budget) -> Result<RocksDbTarget, TargetError> {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_size(BLOCK_BYTES);
        tables.set_block_cache(&Cache::new_lru_cache(budget.cache_bytes));
        if budget.filter_bits > 0 {
            tables.set_bloom_filter(f64::from(budget.filter_bits), false);
        }
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(budget.write_buffer_bytes);
        options.set_max_write_buffer_number(WRITE_BUFFERS as i32);
        options.set_max_background_jobs(BACKGROUND_THREADS as i32);
        options.set_block_based_table_factory(&tables);
        options.set_use_direct_reads(budget.direct_reads);
        Ok(RocksDbTarget { db: Arc::new(DB::open(&options, directory)?), counting: None })
    }

    /// With sizes of `amplification/curve` and its own counters.
    pub(crate) fn open_counting(
        directory: &Path,
        sizes: &AmplificationSizes,
        style: Style,
    ) -> Result<RocksDbTarget, TargetError> {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_size(BLOCK_BYTES);
        tables.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.enable_statistics();
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(sizes.write_buffer as usize);
        options.set_max_write_buffer_number(WRITE_BUFFERS as i32);
        options.set_max_background_jobs(BACKGROUND_THREADS as i32);
        options.set_block_based_table_factory(&tables);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_bytes_for_level_base(sizes.level_base);
        options.set_target_file_size_base(sizes.table);
        options.set_max_compaction_bytes(sizes.compaction);
        if let Style::Universal(percent) = style {
            let mut universal = UniversalCompactOptions::default();
            universal.set_max_size_amplification_percent(percent);
            options.set_compaction_style(DBCompactionStyle::Universal);
            options.set_universal_compaction_options(&universal);
        }
        Ok(RocksDbTarget { db: Arc::new(DB::open(&options, directory)?), counting: Some(options) })
    }
}

impl Target for RocksDbTarget {
    fn name(&self) -> &str {
        VERSION
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(Box::new(RocksDbSession { db: Arc::clone(&self.db), buffered: WriteOptions::default(), synced }))
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(self.db.flush()?)
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        self.db.wait_for_compact(&WaitForCompactOptions::default())?;
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        let property = |name: &str| self.db.property_int_value(name);
        let mut statistics =
            TargetStatistics { space_bytes: property("rocksdb.total-sst-files-size")?, ..TargetStatistics::default() };
        if let Some(options) = &self.counting {
            statistics.log_bytes = Some(options.get_ticker_count(Ticker::WalFileBytes));
            statistics.flush_bytes = Some(options.get_ticker_count(Ticker::FlushWriteBytes));
            statistics.compaction_written_bytes = Some(options.get_ticker_count(Ticker::CompactWriteBytes));
        }
        for name in [
            "rocksdb.estimate-pending-compaction-bytes",
            "rocksdb.estimate-table-readers-mem",
            "rocksdb.block-cache-usage",
        ] {
            if let Some(value) = property(name)? {
                statistics.properties.insert(name.to_owned(), value as f64);
            }
        }
        Ok(statistics)
    }
}

struct RocksDbSession {
    db: Arc<DB>,
    buffered: WriteOptions,
    synced: WriteOptions,
}

impl RocksDbSession {
    fn options(&self, durability: Durability) -> &WriteOptions {
        match durability {
            Durability::Buffered => &self.buffered,
            Durability::Synced => &self.synced,
        }
    }
}

impl Session for RocksDbSession {
    fn put(&mut self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), TargetError> {
        Ok(self.db.put_opt(key, value, self.options(durability))?)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let found = self.db.get_pinned(key)?;
        if let Some(bytes) = &found {
            value.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8], durability: Durability) -> Result<(), TargetError> {
        Ok(self.db.delete_opt(key, self.options(durability))?)
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> Result<(), TargetError> {
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                Change::Put { key, value } => batch.put(key, value),
                Change::Delete { key } => batch.delete(key),
            }
        }
        Ok(self.db.write_opt(batch, self.options(durability))?)
    }

    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        let mut iterator = self.db.raw_iterator_opt(ReadOptions::default());
        match (direction, start) {
            (Direction::Forward, Some(key)) => iterator.seek(key),
            (Direction::Forward, None) => iterator.seek_to_first(),
            (Direction::Reverse, Some(key)) => iterator.seek_for_prev(key),
            (Direction::Reverse, None) => iterator.seek_to_last(),
        }
        let mut visited = 0;
        while visited < limit {
            let Some((key, value)) = iterator.item() else { break };
            visit(key, value);
            visited += 1;
            if visited < limit {
                match direction {
                    Direction::Forward => iterator.next(),
                    Direction::Reverse => iterator.prev(),
                }
            }
        }
        iterator.status()?;
        Ok(visited)
    }
}
