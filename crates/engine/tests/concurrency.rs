//! Histories of several clients at once, of threads of the operating system and of simulated ones on perturbed schedules.
//!
//! Three things are looked at. Each key is a register: one order of all operations explains what every read saw. A
//! batch writes one value to all keys of a group, so whoever looks at a group at one moment (a snapshot, an iterator, a
//! `multi_get`) sees one value. And a power cut leaves what was synced, and of each writer a prefix, together with all
//! that this writer had been told of others.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/registers.rs"]
mod registers;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use medium::{Image, Kind, Recorder};
use options::short_option_set;
use parking_lot::Mutex;
use registers::{NOTHING, Registers};
use seeds::{Reached, run_seeds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use varve_engine::{Db, Options, ReadOptions, Snapshot, Value, WriteBatch, WriteOptions};
use varve_env::{Env, Random, SimOptions};

/// Clients of a history.
const CLIENTS: usize = 4;

/// Operations of each.
const OPERATIONS: u64 = 150;

/// Keys that everybody writes.
const KEYS: u64 = 5;

/// Groups of keys that are written together.
const GROUPS: u64 = 2;

/// Keys of a group.
const GROUP_KEYS: u64 = 4;

/// Space of devices.
const ROOM_BYTES: u64 = 16 << 20;

/// Virtual time no history needs: one that takes it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

const KINDS: &[Kind] = &[Kind::PLAIN, Kind::EXTENT, Kind::PLAIN_LOGS_APART, Kind::BAND];

fn simulation(seed: u64) -> Env {
    let perturb = !seed.is_multiple_of(4);
    Env::sim_with(SimOptions { seed, perturb, time_limit: Some(TIME_LIMIT), ..SimOptions::default() })
}

/// What a seed decides.
fn draw(seed: u64) -> (Kind, Options) {
    let mut random = Random::named(seed, "concurrency");
    let kind = KINDS[random.index(KINDS.len())];
    let tree = trees::draw(&mut random);
    (kind, short_option_set(tree, seed))
}

fn key(number: u64) -> Vec<u8> {
    format!("register{number}").into_bytes()
}

fn group_key(group: u64, place: u64) -> Vec<u8> {
    // Apart from each other, so that tables divide groups.
    format!("{place}/group{group}").into_bytes()
}

fn number_of(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.first_chunk::<8>()).map_or(NOTHING, |head| u64::from_le_bytes(*head))
}

/// A value that is written once, of some length.
fn value_of(number: u64, random: &mut Random) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    let length = if random.chance(1, 24) { 2_000 } else { random.below(200) };
    value.resize(8 + length as usize, number as u8);
    value
}

/// What clients share.
struct Shared {
    env: Env,
    db: Db,
    registers: Registers,
    values: AtomicU64,
    /// Looks at whole groups.
    groups_seen: AtomicU64,
}

impl Shared {
    fn see_group(&self, group: u64, values: &[u64], by: &str) -> Result<(), String> {
        self.groups_seen.fetch_add(1, Ordering::Relaxed);
        match values.iter().all(|value| *value == values[0]) {
            true => Ok(()),
            false => Err(format!("group {group} is torn, seen by {by}: {values:?}")),
        }
    }

    /// Reads a group at one moment.
    fn read_group(&self, group: u64, snapshot: Option<&Snapshot>, by_walk: bool) -> Result<u64, String> {
        let options = ReadOptions { snapshot, ..ReadOptions::default() };
        let said = |error: varve_engine::Error| error.to_string();
        let keys: Vec<Vec<u8>> = (0..GROUP_KEYS).map(|place| group_key(group, place)).collect();
        let mut values = Vec::new();
        if by_walk {
            let mut walk = self.db.iterator(&options).map_err(said)?;
            for key in &keys {
                walk.seek(key);
                let found = walk.valid() && walk.key() == key.as_slice();
                values.push(if found { number_of(Some(walk.value())) } else { NOTHING });
            }
            walk.status().map_err(said)?;
        } else {
            let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            for value in self.db.multi_get(&slices, &options) {
                values.push(number_of(value.map_err(said)?.as_deref()));
            }
        }
        self.see_group(group, &values, if by_walk { "an iterator" } else { "a multi_get" })?;
        Ok(values[0])
    }

    fn client(&self, seed: u64, client: usize) -> Result<(), String> {
        let said = |error: varve_engine::Error| error.to_string();
        let mut random = Random::named(seed, &format!("client {client}"));
        let (db, registers) = (&self.db, &self.registers);
        // Snapshots, and what every key and group was at them as far as it was looked at.
        let mut held: Vec<(Snapshot, u64, u64)> = Vec::new();
        for _ in 0..OPERATIONS {
            let asked = key(random.below(KEYS));
            let group = random.below(GROUPS);
            let begin = registers.now();
            match random.below(24) {
                0..6 => {
                    let number = self.values.fetch_add(1, Ordering::SeqCst) + 1;
                    let sync = random.chance(1, 8);
                    db.put_with(&asked, &value_of(number, &mut random), &WriteOptions { sync }).map_err(said)?;
                    registers.wrote(&asked, number, begin, registers.now());
                }
                6..10 => {
                    let number = self.values.fetch_add(1, Ordering::SeqCst) + 1;
                    let mut batch = WriteBatch::new();
                    for place in 0..GROUP_KEYS {
                        // A key that went and came, in one batch.
                        if random.chance(1, 4) {
                            batch.delete(&group_key(group, place)).map_err(said)?;
                        }
                        batch.put(&group_key(group, place), &value_of(number, &mut random)).map_err(said)?;
                    }
                    db.write(batch, &WriteOptions { sync: random.chance(1, 8) }).map_err(said)?;
                    registers.wrote(&group_key(group, 0), number, begin, registers.now());
                }
                10..14 => {
                    let found: Option<Value> = db.get_with(&asked, &ReadOptions::default()).map_err(said)?;
                    registers.read(&asked, number_of(found.as_deref()), begin, registers.now());
                }
                14..18 => {
                    let number = self.read_group(group, None, random.chance(1, 2))?;
                    registers.read(&group_key(group, 0), number, begin, registers.now());
                }
                18 if held.len() < 3 => held.push((db.snapshot(), begin, registers.now())),
                18 => drop(held.remove(random.index(held.len()))),
                19 | 20 => {
                    let Some((snapshot, begin, end)) = held.last() else { continue };
                    // What a snapshot shows was read when it was taken.
                    let number = self.read_group(group, Some(snapshot), random.chance(1, 2))?;
                    registers.read(&group_key(group, 0), number, *begin, *end);
                    let found = db.get_with(&asked, &ReadOptions::at(snapshot)).map_err(said)?;
                    registers.read(&asked, number_of(found.as_deref()), *begin, *end);
                }
                21 if random.chance(1, 4) => db.flush().map_err(said)?,
                22 if random.chance(1, 6) => db.compact_range(None, None).map_err(said)?,
                _ => self.env.sleep(Duration::from_micros(random.below(80))),
            }
        }
        Ok(())
    }
}

/// One history on this env, from beginning to end.
fn history(env: &Env, seed: u64) -> Result<Reached, String> {
    let (kind, mut options) = draw(seed);
    if !env.is_virtual() {
        // Real time is not there to be slept away.
        options = Options {
            rate_limit_bytes_per_second: 0,
            delayed_write_rate: 1 << 30,
            pace_background_work: Some(false),
            ..options
        };
    }
    let note = format!("{kind:?}, {options:?}");
    let run = || -> Result<Reached, String> {
        let image = Image::fresh_of(env, kind, ROOM_BYTES);
        let media = image.media(env).map_err(|error| error.to_string())?;
        let db = Db::open(env, media, options.clone()).map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            env: env.clone(),
            db: db.clone(),
            registers: Registers::default(),
            values: AtomicU64::new(NOTHING),
            groups_seen: AtomicU64::new(0),
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let shared = shared.clone();
                env.spawn("client", move || shared.client(seed, client))
            })
            .collect();
        let ends: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        for end in ends {
            end.map_err(|panic| panic.message().to_owned())??;
        }
        let operations = shared.registers.check()?;
        let findings = db.check().map_err(|error| error.to_string())?;
        if !findings.is_empty() {
            return Err(format!("check found {findings:?}"));
        }
        let counters = db.statistics().counters;
        db.close().map_err(|error| error.to_string())?;
        let groups = shared.groups_seen.load(Ordering::Relaxed);
        Ok(Reached::from([
            ("operations", operations),
            ("groups seen", groups),
            ("compactions", counters.compactions),
            ("range flushes", counters.range_flushes),
            ("pieces", counters.compaction_pieces),
        ]))
    };
    run().map_err(|what| format!("{what} ({note})"))
}

#[test]
fn histories_of_threads_are_explained_by_one_order() {
    // Flushes of ranges and pieces are reached below: here they depend on when threads get their turns.
    let least = [("operations", 2_000), ("groups seen", 500)];
    run_seeds(("concurrency", "histories_of_threads_are_explained_by_one_order"), 1, 36, &least, |seed| {
        history(&Env::real(), seed)
    });
}

#[test]
fn histories_of_simulated_clients_are_explained_by_one_order() {
    let least =
        [("operations", 4_000), ("groups seen", 1_000), ("compactions", 40), ("range flushes", 10), ("pieces", 10)];
    run_seeds(("concurrency", "histories_of_simulated_clients_are_explained_by_one_order"), 1, 72, &least, |seed| {
        history(&simulation(seed), seed)
    });
}

/// A history that no database may have is told from those that it may.
#[test]
fn histories_that_no_order_explains_are_noticed() {
    let history = |reads: &[(u64, u64, u64)]| {
        let registers = Registers::default();
        registers.wrote(b"k", 1, 10, 20);
        registers.wrote(b"k", 2, 15, 30);
        registers.wrote(b"k", 3, 40, 50);
        reads.iter().for_each(|&(value, begin, end)| registers.read(b"k", value, begin, end));
        registers.check()
    };
    for possible in [
        &[(NOTHING, 1, 12), (1, 11, 14), (2, 32, 35), (3, 60, 70)][..],
        // The two that overlap, either way round.
        &[(2, 16, 17), (1, 32, 45)],
        &[(1, 16, 17), (2, 32, 45)],
        // While the third is written, new and old.
        &[(2, 41, 42), (3, 43, 44)],
    ] {
        assert!(history(possible).is_ok(), "{possible:?}: {:?}", history(possible));
    }
    for impossible in [
        // Before it was begun.
        &[(3, 31, 39)][..],
        // Overwritten before the read began.
        &[(2, 51, 52)],
        &[(NOTHING, 31, 32)],
        // New, then old.
        &[(3, 41, 42), (2, 43, 44)],
        &[(1, 31, 32), (2, 33, 34)],
        &[(1, 21, 22), (2, 23, 24), (1, 31, 32)],
        // Of nobody.
        &[(7, 31, 32)],
    ] {
        assert!(history(impossible).is_err(), "{impossible:?}");
    }
}

/// What a reader sees that asks for the keys of a group one after the other, at no moment: torn groups. Were there none, the
/// test of groups would show nothing.
#[test]
fn groups_that_are_not_read_at_one_moment_are_torn() {
    let torn = (0..20).any(|seed| {
        let env = simulation(1 + 4 * seed);
        let image = Image::fresh_of(&env, Kind::PLAIN, ROOM_BYTES);
        let db = Db::open(&env, image.media(&env).expect("media"), Options::default()).expect("open");
        let (writer_db, writer_env) = (db.clone(), env.clone());
        let writer = env.spawn("writer", move || {
            for number in 1..60_u64 {
                let mut batch = WriteBatch::new();
                (0..GROUP_KEYS).for_each(|place| batch.put(&group_key(0, place), &number.to_le_bytes()).expect("put"));
                writer_db.write(batch, &WriteOptions::default()).expect("write");
                writer_env.sleep(Duration::from_micros(1));
            }
        });
        let mut torn = false;
        for _ in 0..60 {
            let mut values = Vec::new();
            for place in 0..GROUP_KEYS {
                values.push(number_of(db.get(&group_key(0, place)).expect("get").as_deref()));
                env.sleep(Duration::from_micros(1));
            }
            torn |= values.iter().any(|value| *value != values[0]);
        }
        writer.join().unwrap_or_else(|panic| panic.resume());
        torn
    });
    assert!(torn, "no schedule tore a group");
}

/// Writers of a history that is cut.
const WRITERS: usize = 3;

/// Batches of each.
const BATCHES: u64 = 24;

/// Keys of each, in turn.
const OWN_KEYS: u64 = 7;

/// Points of a history at which the power is cut.
const CUTS: usize = 24;

type Counts = [u64; WRITERS];

/// What writers did, in the order of simulated time.
#[derive(Clone, Copy)]
enum Step {
    Begun(usize, u64),
    /// Acknowledged, as synced.
    Synced(usize, u64),
}

fn own_key(writer: usize, number: u64) -> Vec<u8> {
    format!("{writer}/{}", number % OWN_KEYS).into_bytes()
}

/// What a database holds after a cut is what these writers can have left: at least `least`, at most `most`.
fn compare_cut(db: &Db, least: &Counts, most: &Counts) -> Result<(), String> {
    let get = |key: &[u8]| db.get(key).map_err(|error| format!("get: {error}"));
    let (mut counts, mut known) = (Counts::default(), [Counts::default(); WRITERS]);
    for writer in 0..WRITERS {
        let Some(value) = get(format!("{writer}#").as_bytes())? else { continue };
        let numbers: Vec<u64> = value.chunks_exact(8).map(|chunk| number_of(Some(chunk))).collect();
        let [count, others @ ..] = &numbers[..] else { return Err("a count of nothing".to_owned()) };
        counts[writer] = *count;
        known[writer] = others.try_into().map_err(|_| format!("a count of {} numbers", numbers.len()))?;
    }
    for writer in 0..WRITERS {
        let count = counts[writer];
        if !(least[writer]..=most[writer]).contains(&count) {
            return Err(format!("{count} of {writer} are there, it must be {} to {}", least[writer], most[writer]));
        }
        if let Some(other) = (0..WRITERS).find(|&other| known[writer][other] > counts[other]) {
            let (told, found) = (known[writer][other], counts[other]);
            return Err(format!("{count} of {writer} knew of {told} of {other}, of which {found} are there"));
        }
        for number in count.saturating_sub(OWN_KEYS - 1).max(1)..=count {
            if number_of(get(&own_key(writer, number))?.as_deref()) != number {
                return Err(format!("of {writer}'s {count} batches number {number} is not whole"));
            }
        }
        // None of the next one.
        let next = number_of(get(&own_key(writer, count + 1))?.as_deref());
        if next > count {
            return Err(format!("batch {next} of {writer} is there in part"));
        }
    }
    Ok(())
}

/// Several writers, and the power cut at points of what they made the medium do.
fn cut(seed: u64) -> Result<Reached, String> {
    let (kind, options) = draw(seed);
    let env = simulation(seed);
    let recorder = Arc::new(Recorder::default());
    let observation = Image::fresh_of(&env, kind, ROOM_BYTES).observed(&env, &recorder);
    let media = observation.image.media(&env).map_err(|error| error.to_string())?;
    let db = Db::open(&env, media, options.clone()).map_err(|error| error.to_string())?;
    let steps: Arc<Mutex<Vec<Step>>> = Arc::default();
    let acknowledged: Arc<[AtomicU64; WRITERS]> = Arc::default();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, env, recorder) = (db.clone(), env.clone(), recorder.clone());
            let (steps, acknowledged) = (steps.clone(), acknowledged.clone());
            env.clone().spawn("writer", move || -> Result<(), String> {
                let said = |error: varve_engine::Error| error.to_string();
                let mut random = Random::named(seed, &format!("writer {writer}"));
                let step = |step: Step| {
                    let mut steps = steps.lock();
                    steps.push(step);
                    recorder.begun.store(steps.len(), Ordering::SeqCst);
                };
                for number in 1..=BATCHES {
                    let mut count = number.to_le_bytes().to_vec();
                    for other in acknowledged.iter() {
                        count.extend(other.load(Ordering::SeqCst).to_le_bytes());
                    }
                    let mut batch = WriteBatch::new();
                    batch.put(&own_key(writer, number), &value_of(number, &mut random)).map_err(said)?;
                    batch.put(format!("{writer}#").as_bytes(), &count).map_err(said)?;
                    let sync = random.chance(1, 4);
                    step(Step::Begun(writer, number));
                    db.write(batch, &WriteOptions { sync }).map_err(said)?;
                    acknowledged[writer].store(number, Ordering::SeqCst);
                    if sync {
                        step(Step::Synced(writer, number));
                    }
                    match random.below(24) {
                        0 => db.flush().map_err(said)?,
                        1..6 => env.sleep(Duration::from_micros(random.below(200))),
                        _ => {}
                    }
                }
                Ok(())
            })
        })
        .collect();
    let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
    for end in ends {
        end.map_err(|panic| panic.message().to_owned())??;
    }
    let counters = db.statistics().counters;
    db.close().map_err(|error| error.to_string())?;
    drop((db, env));
    let (points, steps) = (std::mem::take(&mut *recorder.points.lock()), steps.lock().clone());
    let mut random = Random::named(seed, "cuts");
    let variants = kind.variants();
    for _ in 0..CUTS {
        let point = &points[random.index(points.len())];
        let (mut least, mut most) = (Counts::default(), Counts::default());
        for step in &steps[..point.begun] {
            match *step {
                Step::Begun(writer, number) => most[writer] = number,
                Step::Synced(writer, number) => least[writer] = number,
            }
        }
        let (variant, image_seed) = (variants[random.index(variants.len())], random.next_u64());
        let env = simulation(image_seed);
        let image = point.state.image(variant, image_seed);
        let look = || -> Result<(), String> {
            let media = image.media(&env).map_err(|error| format!("the store does not open: {error}"))?;
            let db = Db::open(&env, media, options.clone()).map_err(|error| format!("does not open: {error}"))?;
            compare_cut(&db, &least, &most)?;
            db.close().map_err(|error| format!("close: {error}"))
        };
        look().map_err(|what| format!("{} ({variant:?}, {image_seed}): {what} ({kind:?}, {options:?})", point.note))?;
    }
    Ok(Reached::from([
        ("points", points.len() as u64),
        ("cuts", CUTS as u64),
        ("range flushes", counters.range_flushes),
        ("pieces", counters.compaction_pieces),
    ]))
}

#[test]
fn power_cuts_leave_what_writers_knew() {
    let least = [("points", 1_000), ("cuts", 400), ("range flushes", 1), ("pieces", 1)];
    run_seeds(("concurrency", "power_cuts_leave_what_writers_knew"), 1, 72, &least, cut);
}
