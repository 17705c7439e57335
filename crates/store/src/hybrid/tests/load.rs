//! What a tree does to its store, with every hint it sends, and what no tree would do; checked by the model of power cuts.

use super::*;
use crate::conformance::{FileHandle, Model};
use parking_lot::Mutex;
use std::sync::Arc;
use varve_env::Random;

/// Which hints a tree sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hints {
    /// Levels of tables, when they are made and when they change.
    pub(super) levels: bool,
    /// Begins and ends of flushes and compactions.
    pub(super) jobs: bool,
    /// Ends of those, where their begins are sent.
    pub(super) ends: bool,
    /// Blocks that the cache gave up.
    pub(super) evictions: bool,
}

impl Hints {
    pub(super) const ALL: Hints = Hints { levels: true, jobs: true, ends: true, evictions: true };
}

/// A file that is written.
struct Open {
    name: String,
    number: u64,
    handle: FileHandle,
    writer: Box<dyn WritableFile>,
    appended: u64,
}

#[derive(Clone, Debug)]
struct Table {
    name: String,
    level: u8,
    bytes: u64,
}

/// A tree, about: what it does is drawn.
pub(super) struct Load {
    store: Arc<HybridStore>,
    model: Arc<Mutex<Model>>,
    random: Random,
    hints: Hints,
    next: u64,
    log: Option<Open>,
    old_logs: Vec<String>,
    manifest: Option<Open>,
    tables: Vec<Table>,
    /// Bytes of a table, about.
    table_bytes: u64,
    /// Errors that operations ended with.
    pub(super) errors: Vec<StoreError>,
}

const LEVELS: u8 = 4;

impl Load {
    pub(super) fn new(store: Arc<HybridStore>, model: Arc<Mutex<Model>>, seed: u64, hints: Hints) -> Load {
        Load {
            store,
            model,
            random: Random::named(seed, "load"),
            hints,
            next: 0,
            log: None,
            old_logs: Vec::new(),
            manifest: None,
            tables: Vec::new(),
            table_bytes: 30_000,
            errors: Vec::new(),
        }
    }

    /// With tables of another size.
    pub(super) fn with_tables_of(self, table_bytes: u64) -> Load {
        Load { table_bytes, ..self }
    }

    /// Goes on after every error, as far as it can.
    pub(super) fn run(&mut self, operations: u64) {
        for _ in 0..operations {
            if let Err(error) = self.step() {
                self.errors.push(error);
            }
        }
    }

    /// Errors that are no lack of space.
    pub(super) fn bad_errors(&self) -> Vec<String> {
        let bad = self.errors.iter().filter(|error| error.kind() != StoreErrorKind::NoSpace);
        bad.map(ToString::to_string).collect()
    }

    fn step(&mut self) -> Result<(), StoreError> {
        match self.random.below(24) {
            0..6 => self.append_log(),
            6..8 => self.append_manifest(),
            8..11 => self.flush(),
            11..14 => self.compact(),
            14..19 => self.read(),
            19 => self.move_level(),
            20 => self.replace_pointer(),
            21 => self.rename_table(),
            22 => self.recreate(),
            _ => {
                self.store.sync_names()?;
                self.model.lock().names_synced();
                Ok(())
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn create(&mut self, name: &str, options: &CreateOptions) -> Result<Open, StoreError> {
        let number = self.number();
        let handle = self.model.lock().create(name, number);
        match self.store.create(name, options) {
            Ok(writer) => Ok(Open { name: name.to_owned(), number, handle, writer, appended: 0 }),
            Err(error) => {
                self.model.lock().failed(&[name]);
                Err(error)
            }
        }
    }

    fn append(&self, open: &mut Open, length: u64) -> Result<(), StoreError> {
        self.model.lock().append(open.handle, length);
        open.writer.append(&content(open.number, open.appended, length), &CONTEXT)?;
        open.appended += length;
        self.model.lock().appended(open.handle, length);
        Ok(())
    }

    fn sync(&self, open: &mut Open) -> Result<(), StoreError> {
        open.writer.sync(&CONTEXT)?;
        self.model.lock().synced(open.handle);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.model.lock().remove(name);
        let removed = self.store.remove(name);
        if removed.is_err() {
            self.model.lock().failed(&[name]);
        }
        removed
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), StoreError> {
        self.model.lock().rename(from, to);
        match self.store.rename(from, to) {
            Ok(()) => {
                self.model.lock().renamed();
                Ok(())
            }
            Err(error) => {
                self.model.lock().failed(&[from, to]);
                Err(error)
            }
        }
    }

    fn append_log(&mut self) -> Result<(), StoreError> {
        let mut log = match self.log.take() {
            Some(log) => log,
            None => {
                let name = format!("log-{}", self.next + 1);
                self.create(&name, &CreateOptions { kind: FileKind::Log, ..CreateOptions::default() })?
            }
        };
        let length = if self.random.chance(1, 4) { self.random.below(20_000) } else { self.random.below(3000) };
        let outcome = self.append(&mut log, length).and_then(|()| match self.random.below(3) {
            0 => Ok(()),
            1 => log.writer.flush(&CONTEXT),
            _ => self.sync(&mut log),
        });
        match outcome.is_ok() && log.appended < 60_000 {
            true => self.log = Some(log),
            false => self.old_logs.push(log.name),
        }
        outcome
    }

    fn append_manifest(&mut self) -> Result<(), StoreError> {
        let mut manifest = match self.manifest.take() {
            Some(manifest) => manifest,
            None => {
                let name = format!("manifest-{}", self.next + 1);
                self.create(&name, &CreateOptions { kind: FileKind::Manifest, ..CreateOptions::default() })?
            }
        };
        let length = self.random.below(300);
        let outcome = self.append(&mut manifest, length).and_then(|()| self.sync(&mut manifest));
        match outcome.is_ok() && manifest.appended < 4000 {
            true => self.manifest = Some(manifest),
            false => self.old_logs.push(manifest.name),
        }
        outcome
    }

    /// Writes a table durably.
    fn write_table(&mut self, name: &str, level: u8, job: JobId, bytes: u64) -> Result<(), StoreError> {
        let options = CreateOptions {
            kind: FileKind::Table,
            level: self.hints.levels.then_some(level),
            job: self.hints.jobs.then_some(job),
            expected_size_bytes: self.random.chance(1, 2).then_some(bytes),
            ..CreateOptions::default()
        };
        let mut table = self.create(name, &options)?;
        while table.appended < bytes {
            let length = (1 + self.random.below(12_000)).min(bytes - table.appended);
            self.append(&mut table, length)?;
        }
        self.sync(&mut table)?;
        table.writer.finish(&CONTEXT)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let job = JobId(self.number());
        if self.hints.jobs {
            self.store.hint(&Hint::FlushBegin { job, expected_bytes: 30_000 });
        }
        let name = format!("t-{}", job.0);
        let bytes = match self.random.chance(1, 6) {
            true => self.table_bytes * 4 / 3,
            false => 1 + self.random.below(self.table_bytes),
        };
        let outcome = self.write_table(&name, 0, job, bytes);
        if self.hints.jobs && self.hints.ends {
            let outputs: Vec<HintedFile> = outcome.is_ok().then(|| hinted(&name, 0)).into_iter().collect();
            self.store.hint(&Hint::FlushEnd { job, outputs: &outputs, succeeded: outcome.is_ok() });
        }
        outcome?;
        self.tables.push(Table { name, level: 0, bytes });
        // What is in the table is in no log.
        for log in std::mem::take(&mut self.old_logs) {
            self.remove(&log)?;
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        if self.tables.len() < 3 {
            return self.flush();
        }
        let job = JobId(self.number());
        let mut inputs = Vec::new();
        for _ in 0..1 + self.random.index(3) {
            if !self.tables.is_empty() {
                let input = self.random.index(self.tables.len());
                inputs.push(self.tables.swap_remove(input));
            }
        }
        let level = (inputs.iter().map(|input| input.level).max().unwrap_or(0) + 1).min(LEVELS);
        let named: Vec<HintedFile> = inputs.iter().map(|input| hinted(&input.name, input.level)).collect();
        if self.hints.jobs {
            self.store.hint(&Hint::CompactionBegin { job, inputs: &named, output_level: Some(level) });
        }
        // Half of the bytes live on: few tables stay.
        let bytes = inputs.iter().map(|input| input.bytes).sum::<u64>() / 2 + 1;
        let mut outputs = Vec::new();
        let mut outcome = Ok(());
        for _ in 0..bytes.div_ceil(self.table_bytes) {
            let name = format!("t-{}", self.next + 1);
            outcome = self.write_table(&name, level, job, bytes.min(self.table_bytes));
            if outcome.is_err() {
                break;
            }
            let output = hinted(&name, level);
            if self.hints.jobs {
                self.store.hint(&Hint::CompactionOutput { job, output: &output });
            }
            outputs.push(Table { name, level, bytes: bytes.min(self.table_bytes) });
        }
        let succeeded = outcome.is_ok() && self.random.chance(7, 8);
        if self.hints.jobs && self.hints.ends {
            let outputs: Vec<HintedFile> = outputs.iter().map(|output| hinted(&output.name, level)).collect();
            self.store.hint(&Hint::CompactionEnd { job, outputs: &outputs, succeeded });
        }
        let (kept, gone) = if succeeded { (outputs, inputs) } else { (inputs, outputs) };
        self.tables.extend(kept);
        for table in gone {
            self.remove(&table.name)?;
        }
        outcome
    }

    /// A user reads blocks, and the cache gives them up.
    fn read(&mut self) -> Result<(), StoreError> {
        for _ in 0..8 {
            if self.tables.is_empty() {
                return Ok(());
            }
            let table = self.tables[self.random.index(self.tables.len())].clone();
            let reader = self.store.open(&table.name, &OpenOptions::default())?;
            let block = self.random.below(table.bytes.div_ceil(4096));
            let mut data = vec![0; (table.bytes - block * 4096).min(4096) as usize];
            let context = IoContext::of(IoClass::UserRead);
            match reader.records().filter(|_| block % 2 == 1) {
                Some(records) => {
                    let mut record = Vec::new();
                    let is_alone = records.read_record(block, block * 4096, &mut data, &mut record, &context)?;
                    if is_alone {
                        reader.read_at(block * 4096, &mut data, &IoContext::of(IoClass::Check))?;
                        assert!(record == data[..data.len().min(300)], "record {block} of {}", table.name);
                    } else {
                        records.keep_record(block, &data[..data.len().min(300)]);
                    }
                }
                None => reader.read_at(block * 4096, &mut data, &context)?,
            }
            if self.hints.evictions {
                let hint = Hint::CacheEvicted { file: &table.name, offset_bytes: block * 4096, bytes: &data };
                self.store.hint(&hint);
            }
        }
        Ok(())
    }

    fn move_level(&mut self) -> Result<(), StoreError> {
        if self.tables.is_empty() {
            return Ok(());
        }
        let table = self.random.index(self.tables.len());
        self.tables[table].level = self.random.below(u64::from(LEVELS)) as u8;
        let Table { name, level, .. } = &self.tables[table];
        if self.hints.levels {
            self.store.hint(&Hint::LevelChanged { file: &hinted(name, *level) });
        }
        Ok(())
    }

    /// Write, sync, rename over the old one.
    fn replace_pointer(&mut self) -> Result<(), StoreError> {
        let options = CreateOptions { kind: FileKind::Pointer, ..CreateOptions::default() };
        let mut pointer = self.create("CURRENT.new", &options)?;
        self.append(&mut pointer, 20)?;
        self.sync(&mut pointer)?;
        pointer.writer.finish(&CONTEXT)?;
        self.rename("CURRENT.new", "CURRENT")
    }

    /// Over another one, or to a new name.
    fn rename_table(&mut self) -> Result<(), StoreError> {
        if self.tables.len() < 2 {
            return Ok(());
        }
        let from = self.random.index(self.tables.len());
        let mut table = self.tables.swap_remove(from);
        let to = match self.random.chance(1, 2) {
            true => self.tables.swap_remove(self.random.index(self.tables.len())).name,
            false => format!("t-{}", self.number()),
        };
        self.rename(&table.name, &to)?;
        table.name = to;
        self.tables.push(table);
        Ok(())
    }

    /// A name has another file, which may be removed before it was ever synced.
    fn recreate(&mut self) -> Result<(), StoreError> {
        if self.tables.is_empty() {
            return Ok(());
        }
        let table = self.tables.swap_remove(self.random.index(self.tables.len()));
        let kinds = [FileKind::Table, FileKind::Log, FileKind::Other];
        let kind = kinds[self.random.index(kinds.len())];
        let level = self.hints.levels.then(|| self.random.below(u64::from(LEVELS)) as u8);
        let mut again = self.create(&table.name, &CreateOptions { kind, level, ..CreateOptions::default() })?;
        let bytes = self.random.below(50_000);
        self.append(&mut again, bytes)?;
        if self.random.chance(1, 2) {
            self.sync(&mut again)?;
        }
        again.writer.finish(&CONTEXT)?;
        if self.random.chance(1, 2) {
            return self.remove(&table.name);
        }
        self.old_logs.push(table.name);
        Ok(())
    }
}
