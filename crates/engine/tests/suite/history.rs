//! A history of batches whose every state is known, so that what a recovery finds can be told to be
//! the state after some number of whole batches, or not.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use varve_engine::{Db, Error, Options, ReadOptions, TreeKind, WriteBatch, WriteOptions};
use varve_env::Random;

/// Every batch puts its number here: the value tells how many batches a state has seen.
pub(crate) const COUNT_KEY: &[u8] = b"#count";

/// The state after some batches.
pub(crate) type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts and deletes of one batch, in order.
pub(crate) type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// What is done between two batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write the next batch, synced or not.
    Write {
        sync: bool,
    },
    Flush,
    CompactAll,
    WaitIdle,
    Sleep,
    Reopen {
        close: bool,
    },
}

/// Batches, the states between them, the steps of the workload, and the options it runs with.
pub(crate) struct History {
    pub(crate) options: Options,
    pub(crate) batches: Vec<Batch>,
    /// One more than batches.
    pub(crate) states: Vec<State>,
    pub(crate) steps: Vec<Step>,
}

impl History {
    pub(crate) fn new(seed: u64, batch_count: usize, universe: u64) -> History {
        let mut random = Random::named(seed, "history");
        let (mut batches, mut states, mut steps) = (Vec::new(), vec![State::new()], Vec::new());
        for number in 1..=batch_count {
            let mut batch: Batch = Vec::new();
            for _ in 0..=random.below(4) {
                let key = format!("key{:03}", random.below(universe)).into_bytes();
                if random.chance(1, 4) {
                    batch.push((key, None));
                } else {
                    let length = if random.chance(1, 16) { 2000 } else { random.below(240) };
                    let mut value = vec![0; length as usize];
                    random.fill_bytes(&mut value);
                    batch.push((key, Some(value)));
                }
            }
            batch.push((COUNT_KEY.to_vec(), Some(number.to_string().into_bytes())));
            let mut state = states.last().cloned().unwrap_or_default();
            for (key, value) in &batch {
                match value {
                    Some(value) => state.insert(key.clone(), value.clone()),
                    None => state.remove(key),
                };
            }
            batches.push(batch);
            states.push(state);
            steps.push(Step::Write { sync: random.chance(1, 4) });
            match random.below(100) {
                0..4 => steps.push(Step::Flush),
                4..6 => steps.push(Step::CompactAll),
                6..10 => steps.push(Step::WaitIdle),
                10..24 => steps.push(Step::Sleep),
                24..27 => steps.push(Step::Reopen { close: random.chance(2, 3) }),
                _ => {}
            }
        }
        History { options: small_options(), batches, states, steps }
    }

    /// The same in another tree.
    pub(crate) fn in_tree(self, tree: TreeKind) -> History {
        History { options: Options { tree: Some(tree), ..self.options }, ..self }
    }

    /// Writes batch `number`, counted from 1.
    pub(crate) fn write(&self, db: &Db, number: usize, sync: bool) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        for (key, value) in &self.batches[number - 1] {
            match value {
                Some(value) => batch.put(key, value)?,
                None => batch.delete(key)?,
            }
        }
        db.write(batch, &WriteOptions { sync })
    }

    /// Entries of the first `count` batches, and the bytes of their keys and values.
    pub(crate) fn written(&self, count: usize) -> (u64, u64) {
        let entries = self.batches[..count].iter().flatten();
        entries.fold((0, 0), |(entries, bytes), (key, value)| {
            (entries + 1, bytes + (key.len() + value.as_ref().map_or(0, Vec::len)) as u64)
        })
    }

    /// The number of batches the database has seen, once it is sure that its state is exactly the
    /// one after them.
    pub(crate) fn verify(&self, db: &Db, allowed: RangeInclusive<usize>) -> Result<usize, String> {
        let said = |error: Error| format!("read failed: {error}");
        let count = match db.get(COUNT_KEY).map_err(said)? {
            None => 0,
            Some(value) => String::from_utf8_lossy(&value).parse().map_err(|_| "the count is no number".to_owned())?,
        };
        if !allowed.contains(&count) {
            return Err(format!("the state has seen {count} batches, allowed are {allowed:?}"));
        }
        self.compare(db, count)?;
        Ok(count)
    }

    /// The database is exactly in the state after `count` batches.
    pub(crate) fn compare(&self, db: &Db, count: usize) -> Result<(), String> {
        let said = |error: Error| format!("read failed: {error}");
        let state = self.states.get(count).ok_or_else(|| format!("{count} batches were never written"))?;
        let mut walk = db.iterator(&ReadOptions::default()).map_err(said)?;
        walk.seek_to_first();
        for (key, value) in state {
            if !walk.valid() || walk.key() != key.as_slice() || walk.value() != value.as_slice() {
                let found = if walk.valid() { walk.key().escape_ascii().to_string() } else { "the end".to_owned() };
                let status = walk.status();
                let key = key.escape_ascii();
                return Err(format!("after {count} batches: expected '{key}', found '{found}' ({status:?})"));
            }
            walk.next();
        }
        if walk.valid() {
            return Err(format!("after {count} batches: '{}' should not be there", walk.key().escape_ascii()));
        }
        walk.status().map_err(said)?;
        for number in 0..8 {
            let key = format!("key{:03}", (count * 8 + number) % 64).into_bytes();
            if db.get(&key).map_err(said)?.as_deref() != state.get(&key).map(Vec::as_slice) {
                return Err(format!("after {count} batches: get of '{}' is wrong", key.escape_ascii()));
            }
        }
        Ok(())
    }
}

/// Options that flush and compact every few batches and switch manifests often.
pub(crate) fn small_options() -> Options {
    Options {
        write_buffer_size: 4 << 10,
        // So that what was acknowledged outlives the process on every store.
        log_buffer_size: Some(0),
        max_write_buffer_number: 3,
        level0_file_num_compaction_trigger: 2,
        max_level0_compaction_tables: 3,
        level1_overlap_compaction_trigger: 2,
        num_levels: 4,
        max_bytes_for_level_base: 8 << 10,
        max_bytes_for_level_multiplier: 2,
        level_compaction_dynamic_level_bytes: false,
        target_file_size_base: 2 << 10,
        block_size: 512,
        block_cache_capacity: 16 << 10,
        max_manifest_file_size: 2 << 10,
        max_background_jobs: 2,
        ..Options::default()
    }
}
