//! What the operations of a table cost, on files in memory. Numbers for people; nothing asserts them.

use crate::cache::BlockCache;
use crate::error::Error;
use crate::iterator::InternalIterator;
use crate::key::{self, EntryKind};
use crate::memory_file::MemoryFile;
use crate::options::Options;
use crate::table::{
    KeyOrder, ReadContext, Readahead, Table, TableBuildOptions, TableBuilder, TableIterator, TableIteratorOptions,
    TableReadOptions, key_hash,
};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use varve_env::{Env, Random};
use varve_store::{IoContext, StoreError, WritableFile};

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Tables of disjoint ranges.
    pub tables: u64,
    /// Entries of each of them; keys of 16 digits.
    pub entries: u64,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Operations of each kind but scans.
    pub operations: u64,
    /// As in [`Options`].
    pub block_align: usize,
}

/// One line of results.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// What was done.
    pub operation: &'static str,
    /// How often.
    pub count: u64,
    /// Nanoseconds of processor time each took.
    pub nanos: f64,
}

struct Bench {
    env: Env,
    workload: Workload,
    files: Vec<MemoryFile>,
    results: Vec<Measurement>,
}

/// A file that keeps nothing: appends go to a buffer as they would before a write.
struct Discarding {
    buffer: Vec<u8>,
    size_bytes: u64,
}

impl WritableFile for Discarding {
    fn append(&mut self, data: &[u8], _: &IoContext) -> Result<(), StoreError> {
        self.size_bytes += data.len() as u64;
        if self.buffer.len() + data.len() > self.buffer.capacity() {
            self.buffer.clear();
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    fn flush(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn write_back(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn sync(&mut self, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }

    fn set_level(&mut self, _: u8) {}

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn finish(self: Box<Self>, _: &IoContext) -> Result<(), StoreError> {
        Ok(())
    }
}

fn user_key(number: u64) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

/// Keys in the tables are even numbers, so odd ones are missing.
fn number_of(position: u64) -> u64 {
    position * 2
}

impl Bench {
    fn measure(
        &mut self,
        operation: &'static str,
        count: u64,
        run: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Processor time, so that other load disturbs less; the clock where there is none.
        let now = |env: &Env| env.process_cpu_nanos().unwrap_or_else(|| env.now().as_nanos());
        let begin = now(&self.env);
        run()?;
        let nanos = (now(&self.env) - begin) as f64 / count.max(1) as f64;
        self.results.push(Measurement { operation, count, nanos });
        Ok(())
    }

    fn build(&mut self) -> Result<(), Error> {
        let workload = self.workload;
        let mut random = Random::seeded(1);
        let mut values = vec![0; workload.value_bytes + 4096];
        random.fill_bytes(&mut values);
        let database = Options { block_align: workload.block_align, ..Options::default() };
        let mut files = Vec::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for position in 0..workload.tables * workload.entries {
            let mut internal = Vec::new();
            let sequence = 1 + random.below(workload.tables * workload.entries);
            key::append_internal_key(&mut internal, &user_key(number_of(position)), sequence, EntryKind::Put as u8);
            keys.push(internal);
        }
        let env = self.env.clone();
        let build = |keys: &[Vec<u8>], table: usize, file: Box<dyn WritableFile>| {
            let options = TableBuildOptions::new(&database, 1, table as u64);
            let mut builder = TableBuilder::new(file, "bench", &options, IoContext::default(), env.clone());
            for (position, internal) in keys.iter().enumerate() {
                builder.add(internal, &values[position % 4096..][..workload.value_bytes])?;
            }
            builder.finish()
        };
        for (table, keys) in keys.chunks(workload.entries as usize).enumerate() {
            let file = MemoryFile::default();
            build(keys, table, file.writer())?;
            files.push(file);
        }
        self.measure("add", workload.tables * workload.entries, || {
            for (table, keys) in keys.chunks(workload.entries as usize).enumerate() {
                build(keys, table, Box::new(Discarding { buffer: Vec::with_capacity(256 << 10), size_bytes: 0 }))?;
            }
            Ok(())
        })?;
        self.files = files;
        Ok(())
    }

    fn open(&mut self, capacity: usize) -> Result<Vec<Arc<Table>>, Error> {
        let cache = Arc::new(BlockCache::new(capacity, None, None));
        let options = TableReadOptions {
            map: true,
            env: self.env.clone(),
            read_alignment_bytes: 1,
            io: IoContext::default(),
            memory: Arc::new(AtomicUsize::new(0)),
        };
        let files = std::mem::take(&mut self.files);
        let mut tables = Vec::new();
        self.measure("open", files.len() as u64, || {
            for (number, file) in files.iter().enumerate() {
                let reader = file.reader();
                let size = reader.size_bytes();
                tables.push(Table::open(reader, "bench", number as u64, size, &options, cache.clone())?);
            }
            Ok(())
        })?;
        self.files = files;
        Ok(tables)
    }

    fn get(&mut self, name: &'static str, tables: &[Arc<Table>], odd: u64, fill_cache: bool) -> Result<(), Error> {
        let workload = self.workload;
        let mut random = Random::seeded(2);
        let targets: Vec<(usize, Vec<u8>)> = (0..workload.operations)
            .map(|_| {
                let position = random.below(workload.tables * workload.entries);
                let user = user_key(number_of(position) + odd);
                ((position / workload.entries) as usize, key::lookup_key(&user, key::SEQUENCE_MAX))
            })
            .collect();
        let context =
            ReadContext { fill_cache, verify_checksums: true, order: KeyOrder::Checked, io: IoContext::default() };
        self.measure(name, workload.operations, || {
            let mut sum = 0u64;
            for (table, target) in &targets {
                let hash = key_hash(key::user_key(target));
                if let Some(found) = tables[*table].get(target, hash, &context)? {
                    sum += u64::from(found.value[found.value.len() / 2]);
                }
            }
            black_box(sum);
            Ok(())
        })
    }

    fn seek(&mut self, name: &'static str, tables: &[Arc<Table>], nexts: usize) -> Result<(), Error> {
        let workload = self.workload;
        let mut random = Random::seeded(3);
        let mut walks: Vec<TableIterator> = tables.iter().map(|table| table.iterator(user_walk(true))).collect();
        let operations = workload.operations / 4;
        let targets: Vec<(usize, Vec<u8>)> = (0..operations)
            .map(|_| {
                let position = random.below(workload.tables * workload.entries);
                let target = key::lookup_key(&user_key(number_of(position)), key::SEQUENCE_MAX);
                ((position / workload.entries) as usize, target)
            })
            .collect();
        self.measure(name, operations, || {
            let mut sum = 0;
            for (table, target) in &targets {
                let walk = &mut walks[*table];
                walk.seek(target);
                for _ in 0..nexts {
                    if walk.valid() {
                        sum += walk.value().len() + walk.key().len();
                        walk.next();
                    }
                }
                walk.status()?;
            }
            black_box(sum);
            Ok(())
        })
    }

    fn scan(
        &mut self,
        name: &'static str,
        tables: &[Arc<Table>],
        options: TableIteratorOptions,
        backwards: bool,
    ) -> Result<(), Error> {
        let workload = self.workload;
        self.measure(name, workload.tables * workload.entries, || {
            let mut sum = 0u64;
            let Some(first) = tables.first() else { return Ok(()) };
            let mut walk = first.iterator(options);
            for table in tables {
                walk.continue_in(table.clone());
                if backwards {
                    walk.seek_to_last()
                } else {
                    walk.seek_to_first()
                }
                while walk.valid() {
                    sum += walk.key().len() as u64 + u64::from(walk.value()[walk.value().len() / 2]);
                    if backwards { walk.previous() } else { walk.next() }
                }
                walk.status()?;
            }
            black_box(sum);
            Ok(())
        })
    }
}

fn user_walk(fill_cache: bool) -> TableIteratorOptions {
    let readahead = Readahead::growing(256 << 10);
    TableIteratorOptions {
        fill_cache,
        verify_checksums: true,
        readahead,
        order: KeyOrder::Checked,
        io: IoContext::default(),
    }
}

/// Builds tables in memory and measures every operation on them, once each.
///
/// # Errors
/// None but for a lack of memory or a bug.
pub fn run(workload: Workload) -> Result<Vec<Measurement>, Error> {
    let mut bench = Bench { env: Env::real(), workload, files: Vec::new(), results: Vec::new() };
    let data_bytes = (workload.tables * workload.entries) as usize * (workload.value_bytes + 100);
    bench.build()?;
    let tables = bench.open(8 << 20)?;
    bench.get("get, 8 MiB cache", &tables, 0, true)?;
    bench.get("get missing", &tables, 1, true)?;
    bench.scan("scan, 8 MiB cache", &tables, user_walk(true), false)?;
    bench.scan("scan backwards, 8 MiB cache", &tables, user_walk(true), true)?;
    let fixed = TableIteratorOptions { readahead: Readahead::Fixed { bytes: 256 << 10 }, ..user_walk(false) };
    bench.scan("compaction read", &tables, fixed, false)?;
    drop(tables);
    let tables = bench.open(data_bytes * 2)?;
    bench.scan("scan, filling the cache", &tables, user_walk(true), false)?;
    let plain = TableIteratorOptions { readahead: Readahead::growing(0), ..user_walk(true) };
    bench.scan("scan to fill the rest", &tables, plain, false)?;
    bench.scan("scan, cached", &tables, user_walk(true), false)?;
    bench.scan("scan backwards, cached", &tables, user_walk(true), true)?;
    bench.get("get, cached", &tables, 0, true)?;
    bench.get("get, cached", &tables, 0, true)?;
    bench.seek("seek, cached", &tables, 1)?;
    bench.seek("seek and 10 nexts, cached", &tables, 10)?;
    Ok(bench.results)
}
