//! What the threads of a killed process write: every batch a function of seed, thread and number, so that whoever looks
//! afterwards knows each state without having been told.

use std::collections::BTreeMap;
use varve::Varve;
use varve::env::Random;
use varve::{Compression, Error, Options, ReadOptions, TreeKind, WriteBatch};

/// Threads that write.
pub(crate) const WRITERS: usize = 3;

/// Keys of a thread.
const KEYS: u64 = 40;

/// Bytes of the keys and values of a batch, at most: five of the largest.
pub(crate) const BATCH_BYTES_MAX: u64 = 5 * (80_000 + 16);

/// Puts and deletes of one batch, in order.
type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Pairs of one thread's keys.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// How many batches of each thread there are.
pub(crate) type Counts = [u64; WRITERS];

fn count_key(writer: usize) -> Vec<u8> {
    format!("{writer}#").into_bytes()
}

/// Puts and deletes of a thread's batch `number`, counted from 1, and whether it is synced.
pub(crate) fn batch(seed: u64, writer: usize, number: u64) -> (Batch, bool) {
    let mut random = Random::named(seed ^ number << 8, &format!("batch of {writer}"));
    let mut batch = Batch::new();
    for _ in 0..=random.below(4) {
        let key = format!("{writer}/{:03}", random.below(KEYS)).into_bytes();
        if random.chance(1, 4) {
            batch.push((key, None));
            continue;
        }
        let length = match random.below(32) {
            0 => 20_000 + random.below(60_000),
            1..4 => 2_000 + random.below(4_000),
            _ => random.below(240),
        };
        let mut value = vec![0; length as usize];
        if random.chance(1, 2) {
            random.fill_bytes(&mut value);
        } else {
            value.fill(number as u8);
        }
        batch.push((key, Some(value)));
    }
    (batch, random.chance(1, 4))
}

/// The batch as the database takes it: with its number, and what its writer knew of the others.
pub(crate) fn write_batch(seed: u64, writer: usize, number: u64, known: &Counts) -> Result<(WriteBatch, bool), Error> {
    let (pairs, sync) = batch(seed, writer, number);
    let mut batch = WriteBatch::new();
    for (key, value) in &pairs {
        match value {
            Some(value) => batch.put(key, value)?,
            None => batch.delete(key)?,
        }
    }
    let known: Vec<String> = known.iter().map(u64::to_string).collect();
    batch.put(count_key(writer), format!("{number} {}", known.join(" ")).as_bytes())?;
    Ok((batch, sync))
}

/// Bytes of the keys and values of a batch.
pub(crate) fn batch_bytes(seed: u64, writer: usize, number: u64) -> u64 {
    let (pairs, _) = batch(seed, writer, number);
    pairs.iter().map(|(key, value)| (key.len() + value.as_ref().map_or(0, Vec::len)) as u64).sum()
}

/// How many batches of each thread the database has seen, and what the last one of each knew.
pub(crate) fn counts(db: &Varve) -> Result<(Counts, [Counts; WRITERS]), String> {
    let (mut counts, mut known) = (Counts::default(), [Counts::default(); WRITERS]);
    for writer in 0..WRITERS {
        let Some(value) = db.get(count_key(writer)).map_err(|error| format!("get: {error}"))? else { continue };
        let text = String::from_utf8_lossy(&value).into_owned();
        let numbers: Option<Vec<u64>> = text.split(' ').map(|word| word.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| numbers.len() == WRITERS + 1);
        let numbers = numbers.ok_or_else(|| format!("the count of {writer} is '{text}'"))?;
        counts[writer] = numbers[0];
        known[writer].copy_from_slice(&numbers[1..]);
    }
    Ok((counts, known))
}

fn state(seed: u64, writer: usize, count: u64) -> State {
    let mut state = State::new();
    for number in 1..=count {
        for (key, value) in batch(seed, writer, number).0 {
            match value {
                Some(value) => state.insert(key, value),
                None => state.remove(&key),
            };
        }
    }
    state
}

/// The database holds whole batches only: exactly the state after so many of each thread, and nobody's batch without
/// what its writer had been told of others before it.
pub(crate) fn compare(db: &Varve, seed: u64) -> Result<Counts, String> {
    let (counts, known) = counts(db)?;
    for (writer, known) in known.iter().enumerate() {
        if let Some(other) = (0..WRITERS).find(|&other| known[other] > counts[other]) {
            return Err(format!(
                "batch {} of {writer} is there, which knew of {} of {other}; there are {}",
                counts[writer], known[other], counts[other]
            ));
        }
    }
    let mut expected = State::new();
    for (writer, &count) in counts.iter().enumerate() {
        expected.append(&mut state(seed, writer, count));
    }
    let mut walk = db.cursor(&ReadOptions::default()).map_err(|error| format!("cursor: {error}"))?;
    walk.seek_to_first();
    for (key, value) in &expected {
        while walk.valid() && walk.key().ends_with(b"#") {
            walk.next();
        }
        if !walk.valid() || walk.key() != key.as_slice() || walk.value() != value.as_slice() {
            let found = if walk.valid() { walk.key().escape_ascii().to_string() } else { "the end".to_owned() };
            let key = key.escape_ascii();
            return Err(format!("after {counts:?}: expected '{key}', found '{found}' ({:?})", walk.status()));
        }
        if db.get(key).map_err(|error| format!("get: {error}"))?.as_deref() != Some(value.as_slice()) {
            return Err(format!("after {counts:?}: get of '{}' is another", key.escape_ascii()));
        }
        walk.next();
    }
    while walk.valid() && walk.key().ends_with(b"#") {
        walk.next();
    }
    if walk.valid() {
        return Err(format!("after {counts:?}: '{}' should not be there", walk.key().escape_ascii()));
    }
    walk.status().map_err(|error| format!("walk: {error}"))?;
    Ok(counts)
}

/// Options that flush and compact every few batches; those of another round may be others.
pub(crate) fn options(seed: u64, round: u64) -> Options {
    let mut random = Random::named(seed ^ round << 32, "options");
    let mut pick = |choices: &[usize]| choices[random.index(choices.len())];
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let trees = [TreeKind::Leveled, TreeKind::TwoLevel];
    // What a store was made for.
    let tree = trees[Random::named(seed, "tree").index(trees.len())];
    // In every other round: it may come and go.
    let has_ranges = tree == TreeKind::TwoLevel && (seed ^ round).is_multiple_of(2);
    Options {
        write_buffer_size: pick(&[8 << 10, 32 << 10, 128 << 10]),
        max_write_buffer_number: pick(&[2, 4]),
        level0_file_num_compaction_trigger: 2,
        max_bytes_for_level_base: 32 << 10,
        max_bytes_for_level_multiplier: 2,
        level_compaction_dynamic_level_bytes: pick(&[0, 1]) == 1,
        target_file_size_base: pick(&[8 << 10, 32 << 10, 128 << 10]) as u64,
        block_size: pick(&[512, 4096]),
        compression: compressions[pick(&[0, 1, 2])],
        max_background_jobs: pick(&[1, 2]),
        max_subcompactions: pick(&[1, 3]),
        max_manifest_file_size: pick(&[2 << 10, 1 << 20]) as u64,
        log_buffer_size: [None, Some(0), Some(0), Some(2 << 10)][pick(&[0, 1, 2, 3])],
        log_write_behind_size: Some(pick(&[0, 0, 8 << 10])),
        use_direct_reads: pick(&[0, 1]) == 1,
        use_direct_io_for_flush_and_compaction: pick(&[0, 1]) == 1,
        pace_background_work: Some(pick(&[0, 0, 1]) == 1 || has_ranges),
        max_write_stall_ms: Some([0, 1, 20][Random::named(seed ^ round << 32, "stall").index(3)]),
        max_open_files: pick(&[4, 100]),
        flush_key_ranges: Some(has_ranges),
        compact_in_pieces: Some(has_ranges),
        tree: Some(tree),
        ..Options::default()
    }
}
