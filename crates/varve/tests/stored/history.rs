//! What stored databases went through, and what they must hold: made from a seed alone. It must stay as it is, as what is
//! stored does; another history is another function.

use std::collections::BTreeMap;
use varve::{ReadOptions, Varve, WriteBatch, WriteOptions};

/// Pairs by key.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys there may be.
const UNIVERSE: u64 = 300;

/// Flushes, with as many batches before each.
const FLUSHES: usize = 6;
const BATCHES: usize = 40;

/// Batches after the last flush: they are in a log.
const BATCHES_IN_LOG: usize = 30;

/// Values are made of them, so that they compress.
const WORDS: [&str; 16] = [
    "clay", "silt", "sand", "gravel", "light", "dark", "summer", "winter", "lake", "shore", "layer", "depth", "core",
    "year", "pollen", "ash",
];

/// SplitMix64, here so that nothing else decides what is stored.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Puts and deletes that are one batch.
pub(crate) type Batch = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// One step of a history.
pub(crate) enum Step {
    Write(Batch),
    Flush,
}

/// A key by its number: of several shapes, with prefixes in common; one is empty.
fn key(number: u64) -> Vec<u8> {
    match number % 5 {
        0 if number == 0 => Vec::new(),
        0 => number.to_le_bytes().to_vec(),
        1 | 2 => format!("lake/{}/core/{number:06}", number % 7).into_bytes(),
        3 => vec![0xff; 1 + (number / 5 % 60) as usize],
        _ => format!("{number:032}").into_bytes(),
    }
}

fn value(numbers: &mut Numbers) -> Vec<u8> {
    match numbers.below(60) {
        0 => Vec::new(),
        // Larger than a block.
        1 => (0..5000 + numbers.below(3000)).map(|at| WORDS[(at / 700) as usize % WORDS.len()].as_bytes()[0]).collect(),
        2..6 => (0..numbers.below(90)).map(|_| numbers.below(256) as u8).collect(),
        _ => {
            let words: Vec<&str> =
                (0..1 + numbers.below(20)).map(|_| WORDS[numbers.below(WORDS.len() as u64) as usize]).collect();
            words.join(" ").into_bytes()
        }
    }
}

fn batch(numbers: &mut Numbers) -> Batch {
    let changes = if numbers.below(6) == 0 { 2 + numbers.below(9) } else { 1 };
    (0..changes)
        .map(|_| {
            let key = key(numbers.below(UNIVERSE));
            let value = (numbers.below(5) > 0).then(|| value(numbers));
            (key, value)
        })
        .collect()
}

/// What was done before a database of this seed was stored.
pub(crate) fn steps(seed: u64) -> Vec<Step> {
    let mut numbers = Numbers(seed);
    let mut steps = Vec::new();
    for _ in 0..FLUSHES {
        steps.extend((0..BATCHES).map(|_| Step::Write(batch(&mut numbers))));
        steps.push(Step::Flush);
    }
    steps.extend((0..BATCHES_IN_LOG).map(|_| Step::Write(batch(&mut numbers))));
    steps
}

/// What is done to it later: each version may do that as it likes.
pub(crate) fn later_steps(seed: u64) -> Vec<Step> {
    steps(!seed)
}

/// What is there when `steps` are done to what was there.
pub(crate) fn apply(steps: &[Step], model: &mut Model) {
    for step in steps {
        let Step::Write(batch) = step else { continue };
        for (key, value) in batch {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
    }
}

/// Does `steps` to a database; the last write is durable when this returns.
pub(crate) fn run(db: &Varve, steps: &[Step]) -> Result<(), varve::Error> {
    let last = steps.len().saturating_sub(1);
    for (number, step) in steps.iter().enumerate() {
        let Step::Write(changes) = step else {
            db.flush()?;
            db.wait_idle()?;
            continue;
        };
        let mut batch = WriteBatch::new();
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key, value)?,
                None => batch.delete(key)?,
            };
        }
        db.write_with(batch, &WriteOptions { sync: number == last })?;
    }
    Ok(())
}

/// A checksum of all pairs in order.
pub(crate) fn checksum(model: &Model) -> u32 {
    model.iter().fold(0, |sum, (key, value)| {
        let lengths = [(key.len() as u64).to_le_bytes(), (value.len() as u64).to_le_bytes()].concat();
        let sum = crc32c::crc32c_append(sum, &lengths);
        crc32c::crc32c_append(crc32c::crc32c_append(sum, key), value)
    })
}

/// Reads everything in every way there is; says what is not as it must be.
pub(crate) fn compare(db: &Varve, model: &Model) -> Result<(), String> {
    let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut walk = db.cursor(&ReadOptions::default()).map_err(|error| error.to_string())?;
    for is_forward in [true, false] {
        if is_forward {
            walk.seek_to_first()
        } else {
            walk.seek_to_last()
        };
        let mut pairs: Vec<(&Vec<u8>, &Vec<u8>)> = model.iter().collect();
        if !is_forward {
            pairs.reverse();
        }
        for (key, value) in pairs {
            if !walk.valid() {
                return Err(format!("it ends before '{}': {:?}", shown(key), walk.status()));
            }
            if walk.key() != key.as_slice() {
                return Err(format!("'{}' is there in place of '{}'", shown(walk.key()), shown(key)));
            }
            if walk.value() != value.as_slice() {
                return Err(format!("'{}' is '{}', it must be '{}'", shown(key), shown(walk.value()), shown(value)));
            }
            if is_forward {
                walk.next()
            } else {
                walk.previous()
            };
        }
        if walk.valid() {
            return Err(format!("'{}' is there, which must not be", shown(walk.key())));
        }
        walk.status().map_err(|error| error.to_string())?;
    }
    for key in (0..UNIVERSE).map(key) {
        let found = db.get(&key).map_err(|error| error.to_string())?;
        if found.as_deref() != model.get(&key).map(Vec::as_slice) {
            return Err(format!("'{}' is not what it must be when it is asked for", shown(&key)));
        }
    }
    Ok(())
}
