//! Small media filled and emptied in rounds, with memtables and tables of any ratio: what docs/space.md promises of them.
//! In memory, on emulated devices, and on file systems of this machine where mounting is allowed.
//!
//! The seed decides about everything, the medium too. `VARVE_SEED=n` runs that one (or goes on from it), and
//! `VARVE_SOAK_SECONDS=n` goes on for so long.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/watched_store.rs"]
mod watched_store;

use medium::{Image, Kind, TRACK_BYTES};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use varve_engine::{
    Compression, Db, Error, ErrorKind, Media, Options, ReadOptions, TreeKind, WriteBatch, WriteOptions,
};
use varve_env::{Env, Random, SimOptions};
use varve_media::{Directory, MemoryDirectory, MemoryDirectoryOptions, OsDirectory};
use varve_store::{PlainOptions, PlainStore, StoreError};
use watched_store::WatchedStore;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Device(Kind),
    TmpFs,
    Ext4,
}

const SIMULATED: [Place; 8] = [
    Place::Memory,
    Place::Memory,
    Place::Memory,
    Place::Memory,
    Place::Device(Kind::EXTENT),
    Place::Device(Kind::EXTENT_EXT4),
    Place::Device(Kind::EXTENT_NEXT_FIT),
    Place::Device(Kind::KVIMR),
];

const MOUNTED: [Place; 2] = [Place::TmpFs, Place::Ext4];

/// A file system of its own, until it is dropped.
struct Mount {
    folder: PathBuf,
    image: Option<PathBuf>,
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

impl Mount {
    /// `None` where this user may not mount.
    fn new(place: Place, capacity_bytes: u64, seed: u64) -> Option<Mount> {
        let base = std::env::temp_dir().join(format!("varve-scene-{}-{seed}-{place:?}", std::process::id()));
        let folder = base.with_extension("mounted");
        std::fs::create_dir_all(&folder).expect("a folder to mount on");
        let mut mount = Command::new("mount");
        let image = (place == Place::Ext4).then(|| base.with_extension("image"));
        let is_ready = match &image {
            None => {
                mount.args(["-t", "tmpfs", "-o", &format!("size={capacity_bytes}"), "tmpfs"]).arg(&folder);
                true
            }
            Some(image) => {
                let file = std::fs::File::create(image).expect("image");
                file.set_len(capacity_bytes).expect("image");
                mount.args(["-o", "loop"]).arg(image).arg(&folder);
                runs(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))
            }
        };
        if is_ready && runs(&mut mount) {
            return Some(Mount { folder, image });
        }
        let _ = std::fs::remove_dir(&folder);
        image.map(std::fs::remove_file);
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let is_gone = runs(Command::new("umount").arg(&self.folder));
        if is_gone || runs(Command::new("umount").arg("-l").arg(&self.folder)) {
            let _ = std::fs::remove_dir(&self.folder);
        }
        if let Some(image) = &self.image {
            let _ = std::fs::remove_file(image);
        }
    }
}

/// What a database stands on.
enum Medium {
    /// In this order the directory is closed before its file system goes.
    Directory {
        directory: Arc<dyn Directory>,
        _mount: Option<Mount>,
    },
    Image(Image),
}

impl Medium {
    fn media(&self, env: &Env) -> Media {
        match self {
            Medium::Directory { directory, .. } => {
                let store = PlainStore::open(env, directory.clone(), PlainOptions::default());
                Media::of_files(Arc::new(store))
            }
            Medium::Image(image) => image.media(env).expect("store"),
        }
    }
}

/// What a seed says.
struct Draw {
    place: Place,
    capacity_bytes: u64,
    options: Options,
    in_order: bool,
    /// Values have so many bytes, ...
    value_bytes: std::ops::Range<u64>,
    /// and one in so many these.
    large_values: Option<(u64, std::ops::Range<u64>)>,
    compressible: bool,
}

fn draw(place: Place, seed: u64) -> Draw {
    // The name decides with the seed: with another one, seeds that are noted would draw something else.
    let mut random = Random::named(seed, "room of file systems");
    let is_mounted = MOUNTED.contains(&place);
    let capacity_bytes = match place {
        Place::Memory => (1 << 20) + random.below(4 << 20),
        Place::Device(kind) if kind.is_imr() => (200 + random.below(400)) * TRACK_BYTES,
        Place::Device(_) => ((2 << 20) + random.below(3 << 20)) / 4096 * 4096,
        // Where mkfs makes a journal.
        Place::TmpFs | Place::Ext4 => (16 + random.below(17)) << 20,
    };
    // Each flush of those mounted is synced.
    let write_buffer_size = if is_mounted { (32 << 10) << random.below(6) } else { (4 << 10) << random.below(6) };
    let ratio = random.below(13);
    // Tables of few blocks are mostly what is lost in them, and what names them.
    let target_file_size_base = ((write_buffer_size << ratio) >> 6).max(16 << 10);
    let compressions = [Compression::None, Compression::Lz4, Compression::Zstd];
    let compression = compressions[random.index(3)];
    let least = if is_mounted { 400 } else { 60 };
    let value_bytes = match random.below(3) {
        0 => least..least + 200,
        1 => least..4 * least,
        _ => 1000..4000,
    };
    let large_bytes = capacity_bytes / 100..capacity_bytes / 40;
    let options = Options {
        tree: Some(TreeKind::OF_TABLES[random.index(TreeKind::OF_TABLES.len())]),
        write_buffer_size: write_buffer_size as usize,
        target_file_size_base,
        max_bytes_for_level_base: target_file_size_base * (1 + random.below(8)),
        max_bytes_for_level_multiplier: 2 + random.below(9),
        compression,
        compression_per_level: Vec::new(),
        max_background_jobs: 1 + random.index(3),
        max_subcompactions: 1 + random.index(2),
        max_write_buffer_number: 2 + random.index(2),
        block_size: 256 << random.below(5),
        block_cache_capacity: 256 << 10,
        pace_background_work: Some(random.chance(1, 8)),
        max_write_stall_ms: Some(Random::named(seed, "stall").index(2) as u64 * 20),
        level_compaction_dynamic_level_bytes: random.chance(1, 2),
        ..Options::default()
    };
    // A draw of its own: what other seeds draw stays as it was.
    let has_ranges = options.tree_kind() == TreeKind::TwoLevel && Random::named(seed, "ranges and pieces").chance(2, 3);
    let options = match has_ranges {
        true => Options {
            flush_key_ranges: Some(true),
            compact_in_pieces: Some(true),
            pace_background_work: Some(true),
            max_write_stall_ms: Some(20),
            ..options
        },
        false => options,
    };
    Draw {
        place,
        capacity_bytes,
        options,
        in_order: random.chance(1, 2),
        value_bytes,
        large_values: random.chance(1, 3).then(|| (1 + random.below(40), large_bytes)),
        compressible: random.chance(1, 2),
    }
}

/// What was reached, over all seeds.
#[derive(Clone, Debug, Default)]
struct Reached {
    databases: u64,
    full: u64,
    puts: u64,
    deletes: u64,
    compactions: u64,
    openings: u64,
    range_flushes: u64,
    pieces: u64,
}

/// A database on a file system, and what it should hold.
struct Scene {
    env: Env,
    medium: Medium,
    draw: Draw,
    db: Db,
    model: State,
    /// What a put that failed otherwise than by being refused may have left.
    uncertain: State,
    random: Random,
    next: u64,
    note: String,
    reached: Reached,
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:09}").into_bytes()
}

fn bytes_of(state: &State) -> u64 {
    state.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

impl Scene {
    fn new(draw: Draw, seed: u64) -> Option<Scene> {
        let is_mounted = MOUNTED.contains(&draw.place);
        let time_limit = Some(Duration::from_secs(30 * 24 * 3600));
        let env = match is_mounted {
            true => Env::real(),
            false => Env::sim_with(SimOptions { seed, time_limit, ..SimOptions::default() }),
        };
        let medium = match draw.place {
            Place::Memory => {
                let options = MemoryDirectoryOptions {
                    capacity_bytes: Some(draw.capacity_bytes),
                    ..MemoryDirectoryOptions::default()
                };
                let directory = Arc::new(MemoryDirectory::with_options("ram", options));
                Medium::Directory { directory, _mount: None }
            }
            Place::Device(kind) => Medium::Image(Image::fresh_of(&env, kind, draw.capacity_bytes)),
            Place::TmpFs | Place::Ext4 => {
                let mount = Mount::new(draw.place, draw.capacity_bytes, seed)?;
                let directory = OsDirectory::create(mount.folder.join("db")).expect("directory");
                Medium::Directory { directory: Arc::new(directory), _mount: Some(mount) }
            }
        };
        let options = &draw.options;
        let note = format!(
            "VARVE_SEED={seed}: {:?} of {} KiB, {:?}, buffers of {}, tables of {} KiB, {:?}, values of {:?} and {:?}, \
             compressible {}, in order {}",
            draw.place,
            draw.capacity_bytes >> 10,
            options.tree_kind(),
            options.write_buffer_size >> 10,
            options.target_file_size_base as f64 / 1024.0,
            options.compression,
            draw.value_bytes,
            draw.large_values,
            draw.compressible,
            draw.in_order
        );
        let db = Db::open(&env, medium.media(&env), options.clone()).unwrap_or_else(|error| panic!("{note}: {error}"));
        let random = Random::named(seed, "rounds");
        let (model, uncertain, reached) = (State::new(), State::new(), Reached::default());
        Some(Scene { env, medium, draw, db, model, uncertain, random, next: 0, note, reached })
    }

    fn failed(&self, what: &str, error: &Error) -> ! {
        let tables: BTreeMap<_, _> =
            self.db.statistics().levels().iter().enumerate().map(|(level, of)| (level, format!("{of:?}"))).collect();
        let stats = self.db.property("varve.stats").expect("stats");
        panic!("{}: {what}: {error}\n{:?}\n{tables:#?}\n{stats}", self.note, self.db.statistics().space)
    }

    fn value(&mut self, bytes: u64) -> Vec<u8> {
        let mut value = vec![0; bytes as usize];
        let random_bytes = if self.draw.compressible { value.len() / 4 } else { value.len() };
        self.random.fill_bytes(&mut value[..random_bytes]);
        value
    }

    /// One put; false when it was refused.
    fn put(&mut self, is_small: bool) -> bool {
        self.next += 1;
        let number = if self.draw.in_order { self.next } else { self.random.below(1 << 20) };
        let large = self.draw.large_values.clone().filter(|(one_in, _)| !is_small && self.random.below(*one_in) == 0);
        let range = large.map_or(self.draw.value_bytes.clone(), |(_, range)| range);
        let bytes = if is_small { range.start } else { range.start + self.random.below(range.end - range.start) };
        let value = self.value(bytes);
        let options = WriteOptions { sync: self.random.chance(1, 64) };
        match self.db.put_with(&key(number), &value, &options) {
            Ok(()) => {
                self.model.insert(key(number), value);
                self.reached.puts += 1;
                true
            }
            Err(Error::OutOfSpace { .. }) => false,
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.uncertain.insert(key(number), value);
                false
            }
            Err(error) => self.failed("put", &error),
        }
    }

    /// Puts until not even a small one is taken.
    fn fill(&mut self) {
        let most = 40 * self.draw.capacity_bytes / self.draw.value_bytes.start;
        let mut tries = 0;
        while self.put(false) || self.put(true) {
            tries += 1;
            assert!(tries < most, "{}: it never becomes full", self.note);
        }
        self.reached.full += 1;
    }

    fn verify(&mut self, when: &str) {
        let mut walk = self.db.iterator(&ReadOptions::default()).expect("iterator");
        let mut found = State::new();
        walk.seek_to_first();
        while walk.valid() {
            found.insert(walk.key().to_vec(), walk.value().to_vec());
            walk.next();
        }
        walk.status().unwrap_or_else(|error| self.failed(when, &error));
        drop(walk);
        for (key, value) in std::mem::take(&mut self.uncertain) {
            if found.get(&key) == Some(&value) {
                self.model.insert(key, value);
            }
        }
        if found != self.model {
            let lost = self.model.iter().find(|(key, value)| found.get(*key) != Some(value)).map(|(key, _)| key);
            let more = found.keys().find(|key| !self.model.contains_key(*key));
            let text = |key: Option<&Vec<u8>>| key.map(|key| key.escape_ascii().to_string());
            panic!("{}, {when}: lost {:?}, {:?} should not be there", self.note, text(lost), text(more));
        }
        for number in 0..20 {
            let Some((key, value)) = self.model.iter().nth(number * self.model.len() / 20) else { break };
            let got = self.db.get(key).unwrap_or_else(|error| self.failed("get", &error));
            assert_eq!(got.as_deref(), Some(&value[..]), "{}, {when}", self.note);
        }
    }

    /// Deletes some of the pairs, each of which is taken; the bytes that were deleted.
    fn delete(&mut self) -> u64 {
        let keys: Vec<&Vec<u8>> = self.model.keys().collect();
        let count = keys.len();
        let doomed: Vec<Vec<u8>> = match self.random.below(5) {
            0 => keys.into_iter().cloned().collect(),
            1 => keys.into_iter().step_by(2).cloned().collect(),
            2 => keys.into_iter().enumerate().filter(|(place, _)| place % 10 > 0).map(|(_, key)| key.clone()).collect(),
            _ => keys.into_iter().skip(self.random.index(1 + count / 2)).take(count / 2).cloned().collect(),
        };
        let before = bytes_of(&self.model);
        let batched = if self.random.chance(1, 2) { 1 } else { 1 + self.random.index(60) };
        for keys in doomed.chunks(batched) {
            let mut batch = WriteBatch::new();
            keys.iter().for_each(|key| batch.delete(key).expect("delete"));
            let options = WriteOptions { sync: self.random.chance(1, 64) };
            self.db.write(batch, &options).unwrap_or_else(|error| self.failed("delete", &error));
            for key in keys {
                self.model.remove(key);
                self.uncertain.remove(key);
            }
            self.reached.deletes += keys.len() as u64;
        }
        before - bytes_of(&self.model)
    }

    fn compact(&mut self, when: &str) {
        self.db.compact_range(None, None).unwrap_or_else(|error| self.failed(&format!("compact {when}"), &error));
        self.reached.compactions += 1;
    }

    fn reopen(self) -> Scene {
        self.reopen_on(|media| media)
    }

    fn reopen_on(mut self, change: impl FnOnce(Media) -> Media) -> Scene {
        self.db.close().unwrap_or_else(|error| self.failed("close", &error));
        let counters = self.db.statistics().counters;
        self.reached.range_flushes += counters.range_flushes;
        self.reached.pieces += counters.compaction_pieces;
        let Scene { env, medium, draw, db, .. } = self;
        drop(db);
        let db = Db::open(&env, change(medium.media(&env)), draw.options.clone());
        let db = db.unwrap_or_else(|error| panic!("{}: open: {error}", self.note));
        self.reached.openings += 1;
        Scene { env, medium, draw, db, ..self }
    }

    /// Full, deleted, and full again.
    fn round(mut self) -> Scene {
        self.fill();
        self.verify("full");
        if self.random.chance(1, 3) {
            self = self.reopen();
            self.verify("opened when full");
        }
        if self.random.chance(1, 4) {
            self.compact("when full");
        }
        let full_bytes = bytes_of(&self.model);
        let deleted_bytes = self.delete();
        match self.random.below(4) {
            0 => self.compact("after deletes"),
            1 => {
                self = self.reopen();
                self.verify("opened after deletes");
                if self.random.chance(1, 2) {
                    self.compact("opened after deletes");
                }
            }
            2 => self.db.wait_idle().unwrap_or_else(|error| self.failed("wait_idle", &error)),
            _ => {}
        }
        self.verify("after deletes");
        let before = bytes_of(&self.model);
        self.fill();
        let taken_bytes = bytes_of(&self.model).saturating_sub(before);
        if taken_bytes * 3 < deleted_bytes {
            let error = Error::InvalidArgument { what: "scene".to_owned(), reason: "it did not come back".to_owned() };
            self.failed(&format!("of {full_bytes} {deleted_bytes} were deleted, {taken_bytes} taken"), &error);
        }
        self.verify("full again");
        self
    }

    fn end(mut self) -> Reached {
        self = self.reopen();
        self.verify("at the end");
        assert_eq!(self.db.check().expect("check"), [], "{}", self.note);
        self.db.close().expect("close");
        self.reached.databases += 1;
        self.reached
    }
}

/// `None` where this user may not mount.
fn rounds(draw: Draw, seed: u64, count: usize) -> Option<Reached> {
    let mut scene = Scene::new(draw, seed)?;
    let clock = Env::real();
    let begin = clock.now();
    for _ in 0..count {
        scene = scene.round();
    }
    let note = scene.note.clone();
    let reached = scene.end();
    println!("{note}: {reached:?} in {:?}", clock.now().duration_since(begin));
    Some(reached)
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

fn place_of(seed: u64) -> Place {
    let places: Vec<Place> = SIMULATED.into_iter().chain(MOUNTED).collect();
    places[(seed % places.len() as u64) as usize]
}

/// Incompressible pairs in tables and buffers of so many KiB.
fn draw_ratio(
    place: Place,
    capacity_bytes: u64,
    tree: TreeKind,
    (buffer, table): (usize, u64),
    in_order: bool,
) -> Draw {
    let options = Options {
        tree: Some(tree),
        write_buffer_size: buffer << 10,
        target_file_size_base: table << 10,
        compression: Compression::None,
        compression_per_level: Vec::new(),
        ..Options::default()
    };
    Draw { place, capacity_bytes, options, in_order, value_bytes: 400..800, large_values: None, compressible: false }
}

/// Ratios that were found not to come back, in a smaller directory: buffers and tables, in KiB.
#[test]
fn a_full_directory_comes_back_where_tables_are_larger_or_smaller_than_buffers() {
    for tree in TreeKind::OF_TABLES {
        for ratio in [(64, 1024), (16, 256), (512, 128), (4, 256), (256, 16)] {
            let seed = ratio.0 as u64 / 64 % 2;
            let draw = draw_ratio(Place::Memory, 2 << 20, tree, ratio, seed == 1);
            rounds(draw, seed, 1).expect("nothing is mounted");
        }
    }
}

/// The same in file systems of 24 MB, as they were found. Each flush waits for the disk of an ext4: only a soak goes there, and
/// on with other seeds until its time is over.
#[test]
fn a_full_file_system_comes_back_where_tables_are_larger_or_smaller_than_buffers() {
    let soak_seconds = from_environment("VARVE_SOAK_SECONDS");
    let env = Env::real();
    let end = env.now() + Duration::from_secs(soak_seconds.unwrap_or(u64::from(u32::MAX)));
    let places = if soak_seconds.is_some() { &MOUNTED[..] } else { &MOUNTED[..1] };
    let passes = if soak_seconds.is_some() { u64::MAX } else { 1 };
    let first = soak_seconds.and_then(|_| from_environment("VARVE_SEED")).unwrap_or(0);
    let ratios = [(64, 1024), (16, 256), (512, 128), (64, 1024), (512, 128)];
    let (mut scenes, mut pass) = (0, 0);
    'passes: while pass < passes {
        for (&place, in_order) in places.iter().flat_map(|place| [(place, true), (place, false)]) {
            let seeded = (first + 1 + pass * ratios.len() as u64..).zip(ratios);
            for (seed, ratio, tree) in
                seeded.flat_map(|(seed, ratio)| TreeKind::OF_TABLES.map(|tree| (seed, ratio, tree)))
            {
                if env.now() >= end {
                    break 'passes;
                }
                if rounds(draw_ratio(place, 24 << 20, tree, ratio, in_order), seed, 1).is_none() {
                    println!("skipped: this user may not mount");
                    return;
                }
                scenes += 1;
            }
        }
        pass += 1;
    }
    println!("reached: file systems of 24 MB: {scenes} scenes");
}

#[test]
fn small_media_are_filled_and_emptied_in_rounds() {
    let (soak_seconds, seed) = (from_environment("VARVE_SOAK_SECONDS"), from_environment("VARVE_SEED"));
    let seeds = match (soak_seconds, seed) {
        (Some(_), first) => first.unwrap_or(0)..u64::MAX,
        (None, Some(seed)) => seed..seed + 1,
        // Some on each simulated medium and one on each mounted.
        (None, None) => 0..20,
    };
    let env = Env::real();
    let end = env.now() + Duration::from_secs(soak_seconds.unwrap_or(u64::from(u32::MAX)));
    let (mut all, mut skipped) = (Reached::default(), 0);
    for seed in seeds {
        if env.now() >= end {
            break;
        }
        let place = place_of(seed);
        // Outside of a soak they are dear.
        if soak_seconds.is_none() && seed >= 10 && MOUNTED.contains(&place) && from_environment("VARVE_SEED").is_none()
        {
            continue;
        }
        match rounds(draw(place, seed), seed, 2) {
            None => skipped += 1,
            Some(reached) => {
                all.databases += reached.databases;
                all.full += reached.full;
                all.puts += reached.puts;
                all.deletes += reached.deletes;
                all.compactions += reached.compactions;
                all.openings += reached.openings;
                all.range_flushes += reached.range_flushes;
                all.pieces += reached.pieces;
            }
        }
    }
    let Reached { databases, full, puts, deletes, compactions, openings, range_flushes, pieces } = all;
    println!(
        "reached: small media: {databases} databases, {full} times full, {puts} puts, {deletes} deletes, \
         {compactions} compactions by hand, {openings} openings, {range_flushes} range flushes, {pieces} pieces, \
         {skipped} skipped for want of the right to mount"
    );
    assert!(all.databases > 0 || skipped > 0, "nothing was tried");
    let is_regular = soak_seconds.is_none() && seed.is_none();
    assert!(!is_regular || (range_flushes >= 10 && pieces >= 10), "{range_flushes} range flushes, {pieces} pieces");
}

/// Merging two full tables may leave three. Compactions by hand of a full tree of two levels did so until no band was left.
#[test]
fn full_bands_of_two_levels_are_compacted() {
    let (bands, variable) = ([8, 11, 17, 27], [3, 11]);
    let of = |kind: Kind, seeds: &[u64]| seeds.iter().map(|seed| (kind, *seed)).collect::<Vec<_>>();
    let mut compactions = 0;
    for (kind, seed) in [of(Kind::BAND, &bands), of(Kind::VARIABLE_BANDS, &variable)].concat() {
        let place = Place::Device(kind);
        let draw = draw(place, seed);
        assert_eq!(draw.options.tree_kind(), TreeKind::TwoLevel, "seed {seed}");
        compactions += rounds(draw, seed, 2).expect("nothing is mounted").compactions;
    }
    assert!(compactions >= 6, "{compactions} compactions by hand");
}

/// A compaction by hand ended with "no space left" beside writers, on a tree of two levels in 24 bands of 32 KiB. Seed 813 found it.
#[test]
fn seed_813_compactions_beside_writers_of_24_bands_find_space() {
    const BANDS: u64 = 24;
    const KEYS: u64 = 300;
    let (mut compactions, mut puts) = (0, 0);
    for seed in 813..819 {
        let time_limit = Some(Duration::from_secs(3600));
        let env = Env::sim_with(SimOptions { seed, perturb: true, time_limit, ..SimOptions::default() });
        let image = Image::fresh_of(&env, Kind::BAND, BANDS * medium::BAND_BYTES);
        let options = Options {
            write_buffer_size: 8 << 10,
            ..draw_ratio(Place::Device(Kind::BAND), 0, TreeKind::TwoLevel, (8, 32), false).options
        };
        let db = Arc::new(Db::open(&env, image.media(&env).expect("media"), options).expect("open"));
        let is_done = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let (db, is_done) = (db.clone(), is_done.clone());
                env.spawn("writer", move || {
                    let mut random = Random::named(seed * 2 + writer, "writer");
                    let (mut model, mut taken) = (State::new(), 0);
                    while !is_done.load(Ordering::SeqCst) {
                        let key = format!("{writer}{:08}", random.below(KEYS / 2)).into_bytes();
                        let value = vec![random.below(256) as u8; 400 + random.index(400)];
                        match random.chance(1, 5) {
                            true => db.delete(&key).map(|()| model.remove(&key)).map(drop).expect("delete"),
                            false => match db.put(&key, &value) {
                                Ok(()) => drop(model.insert(key, value)),
                                Err(error) => panic!("seed {seed}: put {taken}: {error}"),
                            },
                        }
                        taken += 1;
                    }
                    (model, taken)
                })
            })
            .collect();
        for number in 0..40 {
            db.compact_range(None, None).unwrap_or_else(|error| panic!("seed {seed}: compaction {number}: {error}"));
            compactions += 1;
        }
        is_done.store(true, Ordering::SeqCst);
        for writer in writers {
            let (model, taken): (State, u64) = writer.join().expect("writer");
            puts += taken;
            for (key, value) in model {
                assert_eq!(db.get(&key).expect("get").as_deref(), Some(&value[..]), "seed {seed}");
            }
        }
        assert_eq!(db.check().expect("check"), [], "seed {seed}");
        db.close().expect("close");
    }
    println!("reached: seed 813: {compactions} compactions beside {puts} writes");
    assert!(puts > 1000, "{puts} writes");
}

/// Each thread of a compaction left a partly filled table, steps down of deletions took more bands than they freed, and a writer waited for
/// a compaction that was no longer due when workers looked.
#[test]
fn full_bands_of_leveled_trees_come_back() {
    let (bands, variable) = ([0, 10, 19, 37, 39, 46], [0, 6, 26, 31, 37]);
    let of = |kind: Kind, seeds: &[u64]| seeds.iter().map(|seed| (kind, *seed)).collect::<Vec<_>>();
    for (kind, seed) in [of(Kind::BAND, &bands), of(Kind::VARIABLE_BANDS, &variable)].concat() {
        let draw = draw(Place::Device(kind), seed);
        assert_eq!(draw.options.tree_kind(), TreeKind::Leveled, "seed {seed}");
        rounds(draw, seed, 2).expect("nothing is mounted");
    }
}

/// What a reader holds while compactions of a full medium run comes back when it is dropped, and what they left with it.
#[test]
fn deletes_are_taken_once_a_reader_is_gone_that_held_what_was_compacted() {
    let mut held = 0;
    for (seed, tree) in (0..12).flat_map(|seed| TreeKind::OF_TABLES.map(|tree| (seed, tree))) {
        let ratio = [(64, 1024), (16, 256), (512, 128), (4, 256)][seed as usize % 4];
        let draw = draw_ratio(Place::Memory, 2 << 20, tree, ratio, false);
        let mut scene = Scene::new(draw, seed).expect("nothing is mounted");
        scene.fill();
        scene = scene.reopen();
        let before = scene.db.statistics().space.expect("space").available_bytes;
        let walk = scene.db.iterator(&ReadOptions::default()).expect("iterator");
        // How it ends is for the walk to say: it may lack space.
        let _ = scene.db.compact_range(None, None);
        held += u32::from(scene.db.statistics().space.expect("space").available_bytes < before / 2);
        drop(walk);
        scene.delete();
        scene.verify("after deletes");
        scene.end();
    }
    assert!(held > 4, "{held} readers held something");
}

/// Beside a reader that holds what compactions replaced, they fill the medium, and there is no space left to say in the manifest
/// what they wrote: as often as they try, what they leave is known to nobody. It comes back once the manifest finds space.
#[test]
fn deletes_are_taken_after_manifests_found_no_space() {
    let mut full = 0;
    for (seed, tree) in (0..12).flat_map(|seed| TreeKind::OF_TABLES.map(|tree| (seed, tree))) {
        let ratio = [(64, 1024), (16, 256), (512, 128), (4, 256)][seed as usize % 4];
        let draw = draw_ratio(Place::Memory, 2 << 20, tree, ratio, false);
        let mut scene = Scene::new(draw, seed).expect("nothing is mounted");
        scene.fill();
        let (is_full, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        scene = scene.reopen_on({
            let (is_full, refused) = (is_full.clone(), refused.clone());
            move |media| {
                let files = WatchedStore::new(media.files.expect("files"), move |append| {
                    if !append.name.starts_with("MANIFEST") || !is_full.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    refused.fetch_add(1, Ordering::Relaxed);
                    let (store, name) = ("full".to_owned(), append.name.to_owned());
                    let requested_bytes = append.length_bytes;
                    Err(StoreError::NoSpace { store, name, requested_bytes, available_bytes: 0, zones: None })
                });
                Media { files: Some(Arc::new(files)), logs: media.logs }
            }
        });
        let walk = scene.db.iterator(&ReadOptions::default()).expect("iterator");
        // What is in memory goes first.
        let _ = scene.db.flush();
        is_full.store(true, Ordering::Relaxed);
        for _ in 0..4 {
            // They fail for want of space.
            let _ = scene.db.compact_range(None, None);
        }
        is_full.store(false, Ordering::Relaxed);
        full += u32::from(refused.load(Ordering::Relaxed) > 0);
        drop(walk);
        scene.delete();
        scene.verify("after deletes");
        scene.end();
    }
    assert!(full > 12, "{full} manifests found no space");
}
