//! Varve itself.

use super::{Change, Direction, Durability, Session, Target, TargetError, TargetStatistics};
use varve::env::Env;
use varve::{Options, ReadOptions, Spec, Varve, WriteBatch, WriteOptions};

/// A Varve database on the medium a spec names.
pub struct VarveTarget {
    varve: Varve,
}

impl VarveTarget {
    /// Opens the database on `spec`, making it when it is not there and the options say so.
    ///
    /// # Errors
    /// What opening says.
    pub fn open(env: &Env, spec: &Spec, options: Options) -> Result<VarveTarget, varve::Error> {
        Ok(VarveTarget::of(Varve::builder().env(env).options(options).open_spec(spec)?))
    }

    /// An open database as a target.
    pub fn of(varve: Varve) -> VarveTarget {
        VarveTarget { varve }
    }

    /// The database, and no target any more.
    pub fn into_varve(self) -> Varve {
        self.varve
    }

    /// The database.
    pub fn varve(&self) -> &Varve {
        &self.varve
    }
}

impl Target for VarveTarget {
    fn name(&self) -> &str {
        concat!("varve ", env!("CARGO_PKG_VERSION"))
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        Ok(Box::new(VarveSession { db: self.varve.clone() }))
    }

    fn flush(&self) -> Result<(), TargetError> {
        Ok(self.varve.flush()?)
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        Ok(self.varve.wait_idle()?)
    }

    fn compact(&self) -> Result<(), TargetError> {
        Ok(self.varve.compact()?)
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        let statistics = self.varve.statistics();
        let counters = &statistics.counters;
        let tables = statistics.tables.clone().unwrap_or_default();
        let devices = self.varve.stack().devices().iter();
        let mut properties = std::collections::BTreeMap::new();
        for (name, value) in [
            ("block cache bytes", tables.block_cache_bytes),
            ("block cache insertions", tables.block_cache_insertions),
            ("block cache evictions", tables.block_cache_evictions),
            ("memtable bytes", statistics.memtable_bytes),
            ("table memory bytes", tables.table_memory_bytes),
            ("open tables", tables.open_tables as u64),
            ("pending compaction bytes", tables.pending_compaction_bytes),
            ("write groups", counters.write_groups),
            ("write batches", counters.write_batches),
            ("log syncs", counters.log_syncs),
            ("stalls", counters.stalls),
            ("bursts", counters.bursts),
            ("log waits for bursts", counters.log_waits_for_bursts),
            ("background errors", counters.background_errors),
        ] {
            properties.insert(name.to_owned(), value as f64);
        }
        for level in tables.levels.iter().filter(|level| level.tables > 0) {
            properties.insert(format!("level {} tables", level.level), level.tables as f64);
            properties.insert(format!("level {} bytes", level.level), level.bytes as f64);
        }
        let stack = self.varve.stack();
        for (of, store) in [("store", Some(stack.files())), ("log store", stack.logs())] {
            for measure in store.into_iter().flat_map(|store| store.statistics()) {
                properties.insert(format!("{of} {}", measure.name), measure.value as f64);
            }
        }
        Ok(TargetStatistics {
            log_bytes: Some(counters.log_bytes),
            flush_bytes: Some(counters.flush_written_bytes),
            compaction_read_bytes: Some(counters.compaction_read_bytes),
            compaction_written_bytes: Some(counters.compaction_written_bytes),
            flushes: Some(counters.flushes),
            compactions: Some(counters.compactions),
            trivial_moves: Some(counters.trivial_moves),
            compaction_nanos: Some(counters.compaction_nanos),
            stall_nanos: Some(counters.stall_nanos),
            cache_hits: None,
            cache_misses: None,
            space_bytes: Some(statistics.table_space_bytes()),
            table_bytes: Some(statistics.table_bytes()),
            devices: devices
                .map(|device| (device.description().name.clone(), device.device().block.counters()))
                .collect(),
            properties,
        })
    }
}

struct VarveSession {
    db: Varve,
}

fn write_options(durability: Durability) -> WriteOptions {
    WriteOptions { sync: durability == Durability::Synced }
}

impl Session for VarveSession {
    fn put(&mut self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), TargetError> {
        Ok(self.db.put_with(key, value, &write_options(durability))?)
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let found = self.db.get_with(key, &ReadOptions::default())?;
        if let Some(bytes) = &found {
            value.extend_from_slice(bytes);
        }
        Ok(found.is_some())
    }

    fn delete(&mut self, key: &[u8], durability: Durability) -> Result<(), TargetError> {
        Ok(self.db.delete_with(key, &write_options(durability))?)
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> Result<(), TargetError> {
        let mut batch = WriteBatch::new();
        for change in changes {
            match change {
                Change::Put { key, value } => batch.put(key, value)?,
                Change::Delete { key } => batch.delete(key)?,
            }
        }
        Ok(self.db.write_with(batch, &write_options(durability))?)
    }

    fn scan(
        &mut self,
        start: Option<&[u8]>,
        direction: Direction,
        limit: u64,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, TargetError> {
        let mut walk = self.db.cursor(&ReadOptions::default())?;
        match (direction, start) {
            (Direction::Forward, Some(key)) => walk.seek(key),
            (Direction::Forward, None) => walk.seek_to_first(),
            (Direction::Reverse, Some(key)) => walk.seek_for_previous(key),
            (Direction::Reverse, None) => walk.seek_to_last(),
        }
        let mut visited = 0;
        while visited < limit && walk.valid() {
            visit(walk.key(), walk.value());
            visited += 1;
            if visited < limit {
                match direction {
                    Direction::Forward => walk.next(),
                    Direction::Reverse => walk.previous(),
                }
            }
        }
        walk.status()?;
        Ok(visited)
    }
}
