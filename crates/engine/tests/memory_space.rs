//! The tree in memory on small media that are filled and emptied in rounds: deletes are accepted on a full medium, the write
//! state says which writes are, and a later fill takes about as much as the first.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;

use medium::{Image, Kind};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Media, Options, ReadOptions, TreeKind, WriteBatch, WriteOptions, WriteState};
use varve_env::{Env, Random, SimOptions};
use varve_media::{
    Device, Emulated, Geometry, Immediate, MemoryDirectory, MemoryDirectoryOptions, RamBacking, ZoneGeometry, Zoned,
};
use varve_store::{
    BandFormatOptions, BandStore, CreateOptions, FileStore, IoClass, IoContext, PlainOptions, PlainStore,
};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy, Debug)]
enum Place {
    /// A directory of this size in bytes.
    Directory(u64),
    /// A store of the table of stores, of this size in bytes.
    Store(Kind, u64),
    /// Bands: size of a zone in bytes, and number of zones besides the conventional ones.
    Bands { zone_bytes: u64, zones: u64 },
}

const PLACES: [Place; 7] = [
    Place::Directory(1 << 20),
    Place::Directory(5 << 20),
    Place::Store(Kind::EXTENT, 4 << 20),
    Place::Store(Kind::EXTENT_NEXT_FIT, 3 << 20),
    Place::Store(Kind::BAND, 3 << 20),
    Place::Bands { zone_bytes: 256 << 10, zones: 48 },
    Place::Bands { zone_bytes: 1 << 20, zones: 24 },
];

/// The medium of a database, kept across openings.
enum Medium {
    Directory(Arc<MemoryDirectory>),
    Image(Image),
    Bands(Device),
}

fn banded(zone_bytes: u64, zones: u64) -> Device {
    const CONVENTIONAL_ZONES: u32 = 8;
    let bytes = (zones + u64::from(CONVENTIONAL_ZONES)) * zone_bytes;
    let all = ZoneGeometry::fit(bytes, zone_bytes).expect("zones of a device");
    let rules = Zoned::new(&ZoneGeometry { conventional_zones: CONVENTIONAL_ZONES, ..all });
    let asked = Geometry { capacity_bytes: bytes, sector_bytes: 512, physical_sector_bytes: 512 };
    let (geometry, timing, backing) = (rules.cut(&asked), Box::<Immediate>::default(), Box::new(RamBacking::new()));
    rules.device(|rules| Emulated::new(&Env::real(), "bands", geometry, rules, timing, backing))
}

impl Medium {
    fn new(env: &Env, place: Place) -> Medium {
        match place {
            Place::Directory(bytes) => {
                let options =
                    MemoryDirectoryOptions { capacity_bytes: Some(bytes), ..MemoryDirectoryOptions::default() };
                Medium::Directory(Arc::new(MemoryDirectory::with_options("ram", options)))
            }
            Place::Store(kind, bytes) => Medium::Image(Image::fresh_of(env, kind, bytes)),
            Place::Bands { zone_bytes, zones } => {
                let device = banded(zone_bytes, zones);
                BandStore::format(env, &device, &BandFormatOptions::default()).expect("format");
                Medium::Bands(device)
            }
        }
    }

    fn media(&self, env: &Env) -> Media {
        match self {
            Medium::Directory(directory) => {
                Media::of_files(Arc::new(PlainStore::open(env, directory.clone(), PlainOptions::default())))
            }
            Medium::Image(image) => image.media(env).expect("store"),
            Medium::Bands(device) => Media::of_files(Arc::new(BandStore::open(env, device.clone()).expect("store"))),
        }
    }
}

struct Scene {
    env: Env,
    medium: Medium,
    options: Options,
    db: Db,
    model: State,
    random: Random,
    value_bytes: u64,
    next: u64,
    note: String,
}

fn bytes_of(state: &State) -> u64 {
    state.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:09}").into_bytes()
}

impl Scene {
    fn new(place: Place, seed: u64, value_bytes: u64, log_buffer_size: Option<usize>) -> Scene {
        let time_limit = Some(Duration::from_secs(30 * 24 * 3600));
        let env = Env::sim_with(SimOptions { seed, time_limit, ..SimOptions::default() });
        let medium = Medium::new(&env, place);
        let options = Options {
            tree: Some(TreeKind::Memory),
            write_buffer_size: 64 << 10,
            log_buffer_size,
            ..Options::default()
        };
        let note = format!("seed {seed}, {place:?}, values of {value_bytes}, log buffer {log_buffer_size:?}");
        let db = Db::open(&env, medium.media(&env), options.clone()).unwrap_or_else(|error| panic!("{note}: {error}"));
        let random = Random::named(seed, "memory space");
        Scene { env, medium, options, db, model: State::new(), random, value_bytes, next: 0, note }
    }

    fn failed(&self, what: &str, error: &Error) -> ! {
        let statistics = self.db.statistics();
        panic!("{}: {what}: {error}\n{:?}, {:?}", self.note, statistics.write_state, statistics.space)
    }

    fn state(&self) -> WriteState {
        self.db.statistics().write_state
    }

    /// Puts until one is refused; bytes that were taken.
    fn fill(&mut self, overwrites: bool) -> u64 {
        let before = bytes_of(&self.model);
        for _ in 0..200_000 {
            self.next += 1;
            let number = if overwrites && self.random.chance(1, 4) { self.random.below(self.next) } else { self.next };
            let mut value = vec![0; (self.value_bytes / 2 + self.random.below(self.value_bytes)) as usize];
            self.random.fill_bytes(&mut value);
            // A write may find that the log has to be rewritten anyway, which may take another block.
            let before_put = self.db.statistics();
            let is_open = before_put.write_state == WriteState::Open;
            match self.db.put_with(&key(number), &value, &WriteOptions { sync: self.random.chance(1, 32) }) {
                Ok(()) => drop(self.model.insert(key(number), value)),
                Err(Error::OutOfSpace { .. }) => {
                    let space = self.db.statistics().space.expect("space");
                    let (state, note) = (self.state(), &self.note);
                    let rewritings = self.db.statistics().counters.compactions - before_put.counters.compactions;
                    assert!(!is_open || rewritings > 0, "{note}: refused, {before_put:?}, and now {space:?}");
                    assert!(space.available_bytes < space.left_by_puts_bytes, "{note}: {space:?}");
                    let leaves = space.available_bytes >= space.left_by_deletes_bytes;
                    assert_eq!(state == WriteState::DeletesOnly, leaves, "{note}: {state:?}, {space:?}");
                    assert!(leaves, "{note}: {state:?}, {space:?}");
                    return bytes_of(&self.model) - before;
                }
                Err(error) => self.failed("put", &error),
            }
        }
        panic!("{}: it never becomes full", self.note)
    }

    /// Deletes these, each of which is accepted.
    fn delete(&mut self, doomed: Vec<Vec<u8>>, batched: usize) {
        for keys in doomed.chunks(batched) {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.delete(key).expect("delete"));
            let options = WriteOptions { sync: self.random.chance(1, 32) };
            self.db.write(batch, &options).unwrap_or_else(|error| self.failed("delete", &error));
            keys.iter().for_each(|key| drop(self.model.remove(key)));
        }
    }

    fn verify(&self, when: &str) {
        let mut walk = self.db.iterator(&ReadOptions::default()).expect("iterator");
        let mut found = State::new();
        walk.seek_to_first();
        while walk.valid() {
            found.insert(walk.key().to_vec(), walk.value().to_vec());
            walk.next();
        }
        walk.status().unwrap_or_else(|error| self.failed(when, &error));
        assert!(found == self.model, "{}: {when}: another state", self.note);
        let keys = self.db.property("varve.estimate-num-keys");
        assert_eq!(keys, Some(self.model.len().to_string()), "{}: {when}", self.note);
    }

    fn reopen(mut self, when: &str) -> Scene {
        self.db.close().unwrap_or_else(|error| self.failed("close", &error));
        let Scene { env, medium, options, db, .. } = self;
        drop(db);
        let db = Db::open(&env, medium.media(&env), options.clone());
        let db = db.unwrap_or_else(|error| panic!("{}: open {when}: {error}", self.note));
        self = Scene { env, medium, options, db, ..self };
        self.verify(when);
        self
    }

    fn wait_idle(&self) {
        self.db.wait_idle().unwrap_or_else(|error| self.failed("wait_idle", &error));
    }

    fn end(self) {
        let scene = self.reopen("at the end");
        assert_eq!(scene.db.check().expect("check"), [], "{}", scene.note);
        scene.db.close().expect("close");
    }
}

fn rounds(place: Place, seed: u64, value_bytes: u64, log_buffer_size: Option<usize>, reopens: bool) {
    let mut scene = Scene::new(place, seed, value_bytes, log_buffer_size);
    let first = scene.fill(false);
    scene.verify("full");
    for round in 0..3 {
        if reopens {
            scene = scene.reopen("full");
            // Opening has rewritten the log.
            scene.fill(true);
        }
        let doomed: Vec<Vec<u8>> = scene.model.keys().cloned().collect();
        let batched = [1, 40, usize::MAX][(round + seed as usize) % 3];
        scene.delete(doomed, batched);
        if reopens && round == 1 {
            scene = scene.reopen("emptied");
        }
        scene.wait_idle();
        let (state, space) = (scene.state(), scene.db.statistics().space);
        assert_eq!(state, WriteState::Open, "{}: all was deleted: {space:?}", scene.note);
        let again = scene.fill(round == 2);
        println!("{}: {first} bytes at first, {again} in round {round}", scene.note);
        assert!(again * 10 >= first * 8, "{}: {first} bytes at first, {again} in round {round}", scene.note);
        scene.verify("full again");
    }
    scene.end();
}

#[test]
fn a_full_medium_is_emptied_and_filled_again() {
    for reopens in [false, true] {
        for (seed, place) in (0..).zip(PLACES) {
            let value_bytes = [400, 1500][(seed as usize + usize::from(reopens)) % 2];
            rounds(place, seed, value_bytes, (seed % 3 == 0).then_some(0), reopens);
        }
    }
}

/// A delete takes about as much of the log as the put it removes.
#[test]
fn pairs_of_almost_nothing_but_keys_are_deleted() {
    for (seed, place) in (20..).zip(PLACES).take(5) {
        let mut scene = Scene::new(place, seed, 4, Some(4096));
        let first = scene.fill(false);
        for batched in [1, usize::MAX] {
            let doomed = scene.model.keys().cloned().collect();
            scene.delete(doomed, batched);
            scene.wait_idle();
            assert_eq!(scene.state(), WriteState::Open, "{}", scene.note);
            let again = scene.fill(false);
            assert!(again * 10 >= first * 8, "{}: {first} bytes at first, {again} again", scene.note);
        }
        scene.end();
    }
}

/// Whatever is deleted comes back as space for about as much.
#[test]
fn a_deleted_part_is_filled_again() {
    for (seed, place) in (40..).zip(PLACES) {
        let mut scene = Scene::new(place, seed, 500, None);
        let first = scene.fill(false);
        for part in [2, 3, 4] {
            let before = bytes_of(&scene.model);
            let doomed: Vec<Vec<u8>> = scene.model.keys().step_by(part).cloned().collect();
            scene.delete(doomed, 1);
            let deleted = before - bytes_of(&scene.model);
            let taken = scene.fill(true);
            println!("{}: {deleted} of {first} deleted, {taken} taken, {:?}", scene.note, scene.db.statistics().space);
            assert!(taken + first / 10 >= deleted, "{}: {deleted} of {first} deleted, {taken} taken", scene.note);
        }
        scene.verify("at the end");
        scene.end();
    }
}

/// Other files take all the space there is: the state says so, and deletes are still accepted while they help.
#[test]
fn deletes_are_accepted_when_others_took_the_space() {
    for seed in 60..66 {
        let env = Env::sim_with(SimOptions { seed, ..SimOptions::default() });
        let options = MemoryDirectoryOptions { capacity_bytes: Some(2 << 20), ..MemoryDirectoryOptions::default() };
        let directory = Arc::new(MemoryDirectory::with_options("ram", options));
        let store = || Arc::new(PlainStore::open(&env, directory.clone(), PlainOptions::default()));
        let options = Options { tree: Some(TreeKind::Memory), write_buffer_size: 64 << 10, ..Options::default() };
        let db = Db::open(&env, Media::of_files(store()), options).expect("open");
        let mut number = 0;
        while db.put(&key(number), &[3; 700]).is_ok() {
            number += 1;
        }
        // A rewriting has no space now.
        let others = store();
        let taken = db.statistics().space.expect("space").available_bytes - 80_000;
        let mut file = others.create("other", &CreateOptions::default()).expect("file");
        let context = IoContext::of(IoClass::Other);
        file.append(&vec![1; taken as usize], &context).and_then(|()| file.sync(&context)).expect("space");
        assert_eq!(db.statistics().write_state, WriteState::Full, "seed {seed}");
        for doomed in 0..number {
            db.delete(&key(doomed)).unwrap_or_else(|error| panic!("seed {seed}, {doomed} of {number}: {error}"));
        }
        db.wait_idle().expect("idle");
        assert_eq!(db.statistics().write_state, WriteState::Open, "seed {seed}");
        let refused = db.put(&key(0), &vec![1; 4 << 20]).expect_err("a value larger than the medium");
        assert_eq!(refused.kind(), ErrorKind::NoSpace);
        drop(file);
        others.remove("other").expect("removed");
        db.put(&key(0), b"value").expect("put");
        db.close().expect("close");
    }
}
