//! Media of bands and zones filled until nothing is taken and then emptied, in rounds, with default options: what docs/space.md promises,
//! for every store on them, every tree of tables and several sizes of zone, with and without reopening.
//!
//! `VARVE_SOAK_SECONDS=n` goes on with larger media and other seeds for n seconds; `VARVE_SEED=n` begins at that seed;
//! `VARVE_MEDIUM=TEXT` runs only media whose spec contains the text, larger ones too.

use std::collections::BTreeSet;
use std::time::Duration;
use varve::env::{Env, Random};
use varve::media::{IoClass, IoContext};
use varve::options::Favour;
use varve::statistics::WriteState;
use varve::store::{CreateOptions, FileKind, StoreError};
use varve::{ErrorKind, Options, Spec, TreeKind, Varve, WriteBatch};

/// Media of a regular run, with their stores.
const MEDIA: [&str; 15] = [
    "zns:16MiB?zone=256KiB",
    "zns:32MiB?zone=1MiB",
    "zns:32MiB?zone=1MiB,store=hybrid",
    "zns:16MiB?zone=512KiB,store=hybrid",
    "smr:4MiB?band=64KiB",
    "smr:16MiB?band=256KiB",
    "smr:32MiB?band=1MiB",
    "smr:32MiB?band=1MiB,conventional=4MiB",
    "hasmr:16MiB?zone=512KiB,cache=2MiB,extents=100,store=extent",
    "hasmr:16MiB?zone=512KiB,cache=2MiB,extents=100,store=band",
    "hasmr:32MiB?zone=256KiB,cache=2MiB,extents=100",
    "zns:8MiB?zone=512KiB,store=hybrid+smr:16MiB?band=512KiB,conventional=2MiB",
    "zns:16MiB?zone=1MiB+smr:32MiB?band=1MiB",
    "zns:8MiB?zone=64KiB+smr:16MiB?band=64KiB,conventional=1MiB",
    "imr:16MiB?track=64KiB,table-size=64KiB",
];

/// Media that a soak adds; each takes minutes.
const LARGE_MEDIA: [&str; 7] = [
    "zns:64MiB?zone=1MiB",
    "smr:64MiB?band=1MiB",
    "zns:64MiB?zone=1MiB,store=hybrid",
    "zns:256MiB?zone=4MiB",
    "hasmr:256MiB?zone=1MiB,cache=8MiB,extents=400",
    "smr:512MiB?band=8MiB",
    "zns:64MiB?zone=1MiB+smr:128MiB?band=1MiB,conventional=8MiB",
];

/// When it is closed and opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reopening {
    Never,
    WhenFull,
    WhenEmpty,
}

/// One database, and the keys it should hold.
struct Scene {
    env: Env,
    spec: Spec,
    options: Options,
    note: String,
    db: Option<Varve>,
    live: BTreeSet<u64>,
    random: Random,
    batch_size: usize,
}

/// Images are kept of devices without tracks that overlap.
fn can_reopen(medium: &str) -> bool {
    !medium.starts_with("imr:")
}

fn key(number: u64) -> String {
    format!("{number:016}")
}

impl Scene {
    fn new(medium: &str, (tree, favours_writes): (TreeKind, bool), seed: u64) -> Scene {
        let env = Env::sim(seed);
        let note = format!("VARVE_SEED={seed}: {medium}, {tree:?}, favours writes: {favours_writes}");
        let devices: Vec<String> = medium.split('+').map(|device| format!("{device},backing=compressed")).collect();
        let text = if can_reopen(medium) { devices.join("+") } else { medium.to_owned() };
        let spec: Spec = text.parse().unwrap_or_else(|error| panic!("{note}: {error}"));
        let favour = if favours_writes { Favour::Writes } else { Favour::Balanced };
        let options = Options { tree: Some(tree), favour, ..Options::default() };
        let opened = Varve::builder().env(&env).options(options.clone()).open_spec(&spec);
        let db = opened.unwrap_or_else(|error| panic!("{note}: {error}"));
        let mut random = Random::named(seed, "full media");
        let batch_size = [1, 1, 20][random.index(3)];
        Scene { env, spec, options, note, db: Some(db), live: BTreeSet::new(), random, batch_size }
    }

    fn db(&self) -> &Varve {
        self.db.as_ref().expect("it is open")
    }

    fn fail(&self, what: &str) -> ! {
        let statistics = self.db().statistics();
        let stats = self.db().property("varve.stats").unwrap_or_default();
        panic!("{}: {what}; {:?} {:?}\n{stats}", self.note, statistics.write_state, statistics.space)
    }

    /// Puts until one is refused. Bytes that were taken.
    fn fill(&mut self) -> u64 {
        let mut taken_bytes = 0;
        let mut value = [0; 900];
        loop {
            let number = self.random.below(1 << 30);
            self.random.fill_bytes(&mut value);
            match self.db().put(key(number), value) {
                Ok(()) => taken_bytes += 916,
                Err(error) if error.kind() == ErrorKind::NoSpace => return taken_bytes,
                Err(error) => self.fail(&format!("put: {error}")),
            }
            self.live.insert(number);
        }
    }

    /// Deletes all that is there. Each delete has to be taken, or to be taken once what runs has ended.
    fn empty(&mut self) {
        let numbers: Vec<u64> = self.live.iter().copied().collect();
        for numbers in numbers.chunks(self.batch_size) {
            let mut batch = WriteBatch::new();
            numbers.iter().for_each(|number| batch.delete(key(*number).as_bytes()).expect("a short key"));
            if let Err(error) = self.db().write(batch) {
                self.fail(&format!("delete, {} are left: {error}", self.live.len()));
            }
            self.live = self.live.split_off(&(numbers[numbers.len() - 1] + 1));
        }
        if let Err(error) = self.db().wait_idle() {
            self.fail(&format!("wait_idle: {error}"));
        }
        if self.db().statistics().write_state != WriteState::Open {
            // Deletions in memory, which are flushed only once a put needs their space, count as nothing until then.
            if let Err(error) = self.db().put("a key that is not drawn", "") {
                self.fail(&format!("nothing is left, and puts are not taken: {error}"));
            }
            if let Err(error) = self.db().delete("a key that is not drawn") {
                self.fail(&format!("delete: {error}"));
            }
        }
    }

    fn reopen(&mut self) {
        let db = self.db.take().expect("it is open");
        let image = db.close_into_image().unwrap_or_else(|error| panic!("{}: close: {error}", self.note));
        let builder = Varve::builder().env(&self.env).options(self.options.clone());
        let opened = builder.begin_with(&image).open_spec(&self.spec);
        self.db = Some(opened.unwrap_or_else(|error| panic!("{}: open: {error}", self.note)));
        self.count("opened");
    }

    fn count(&self, when: &str) {
        let mut found = 0;
        for pair in self.db().iter() {
            pair.unwrap_or_else(|error| panic!("{}: {error}", self.note));
            found += 1;
        }
        if found != self.live.len() {
            self.fail(&format!("{when}: {found} pairs of {}", self.live.len()));
        }
    }
}

/// Bytes of the first round, and of the last.
fn rounds(medium: &str, tree: (TreeKind, bool), seed: u64, reopening: Reopening, count: u64) -> (u64, u64) {
    let mut scene = Scene::new(medium, tree, seed);
    scene.note = format!("{}, opened again {reopening:?}", scene.note);
    let (mut first_bytes, mut last_bytes) = (0, 0);
    for round in 0..count {
        last_bytes = scene.fill();
        if round == 0 {
            first_bytes = last_bytes;
            assert!(first_bytes > 0, "{}: empty, and it takes nothing", scene.note);
        }
        // Of deletions that were not compacted some are still there in a tree of two levels.
        if last_bytes * 3 < first_bytes * 2 {
            scene.fail(&format!("{first_bytes} bytes were taken at first, {last_bytes} in round {round}"));
        }
        scene.count("full");
        if reopening == Reopening::WhenFull {
            scene.reopen();
        }
        scene.empty();
        scene.count("empty");
        if reopening == Reopening::WhenEmpty {
            scene.reopen();
        }
    }
    let findings = scene.db().check().unwrap_or_else(|error| panic!("{}: check: {error}", scene.note));
    assert!(findings.is_empty(), "{}: {findings:?}", scene.note);
    println!("{}: {first_bytes} bytes at first, {last_bytes} at last", scene.note);
    (first_bytes, last_bytes)
}

/// Trees, and whether writes are favoured: then a tree of two levels flushes ranges of keys and compacts in pieces.
fn trees() -> impl Iterator<Item = (TreeKind, bool)> {
    TreeKind::OF_TABLES.into_iter().map(|tree| (tree, false)).chain([(TreeKind::TwoLevel, true)])
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}

#[test]
fn full_media_take_as_much_again_once_they_are_empty() {
    let (soak_seconds, seed) = (from_environment("VARVE_SOAK_SECONDS"), from_environment("VARVE_SEED"));
    let clock = Env::real();
    let end = soak_seconds.map(|seconds| clock.now() + Duration::from_secs(seconds));
    let only = std::env::var("VARVE_MEDIUM").ok();
    let has_large = soak_seconds.is_some() || only.is_some();
    let is_chosen = |medium: &&str| only.as_ref().is_none_or(|text| medium.contains(text));
    let media = || MEDIA.into_iter().chain(LARGE_MEDIA.into_iter().filter(|_| has_large)).filter(is_chosen);
    let reopenings = [Reopening::Never, Reopening::WhenFull, Reopening::WhenEmpty];
    let mut scenes = 0;
    for seed in seed.unwrap_or(1).. {
        for (number, medium) in media().enumerate() {
            for (of_tree, tree) in trees().enumerate() {
                // In a regular run each medium and tree is reopened in one way, and each way has its turn.
                let turn = (number + of_tree) as u64 + seed;
                let reopening = match can_reopen(medium) {
                    true => reopenings[(turn % reopenings.len() as u64) as usize],
                    false => Reopening::Never,
                };
                if end.is_some_and(|end| clock.now() >= end) {
                    return;
                }
                rounds(medium, tree, seed, reopening, 3);
                scenes += 1;
            }
        }
        if end.is_none() {
            break;
        }
    }
    assert!(only.is_some() || scenes == MEDIA.len() * trees().count());
}

/// Media of zones with few of them, their stores, and whether several tables lie in one zone.
const FEW_ZONES: [(&str, bool); 7] = [
    ("zns:16MiB?zone=512KiB", false),
    ("smr:16MiB?band=512KiB,conventional=2MiB", false),
    ("smr:8MiB?band=64KiB,zoned-table-size=256KiB", false),
    ("hasmr:16MiB?zone=512KiB,cache=2MiB,extents=100,store=band", false),
    ("zns:16MiB?zone=512KiB,store=hybrid,shared-zones=no", false),
    ("zns:16MiB?zone=1MiB,store=hybrid,tiered-table-size=256KiB", true),
    ("zns:16MiB?zone=1MiB,store=hybrid,tiered-table-size=256KiB+smr:16MiB?band=1MiB", true),
];

/// Appends to a file of the store until it has no space. Returns its error.
fn fill_store(db: &Varve) -> StoreError {
    let files = db.stack().files();
    let options = CreateOptions { kind: FileKind::Table, ..CreateOptions::default() };
    let context = IoContext::of(IoClass::Flush);
    for number in 0.. {
        let written = files.create(&format!("{number:06}.filler"), &options).and_then(|mut file| {
            (0..16).try_for_each(|_| file.append(&[7; 16 << 10], &context))?;
            file.sync(&context)?;
            file.finish(&context)
        });
        if let Err(error) = written {
            return error;
        }
    }
    unreachable!("a device has an end")
}

/// "No space" says how many zones are free and kept, how large they are, and what helps; statistics count whole zones where tables do not
/// share them.
#[test]
fn refusals_and_statistics_name_zones() {
    for (number, (medium, is_shared)) in FEW_ZONES.into_iter().enumerate() {
        for tree in [TreeKind::Leveled, TreeKind::TwoLevel, TreeKind::Memory] {
            let note = format!("{medium}, {tree:?}");
            let env = Env::sim(number as u64);
            let options = Options { tree: Some(tree), ..Options::default() };
            let spec: Spec = medium.parse().unwrap_or_else(|error| panic!("{note}: {error}"));
            let db = Varve::builder().env(&env).options(options).open_spec(&spec);
            let db = db.unwrap_or_else(|error| panic!("{note}: {error}"));
            let mut random = Random::named(number as u64, "zones");
            let mut value = [0; 900];
            let error = loop {
                random.fill_bytes(&mut value);
                if let Err(error) = db.put(key(random.below(1 << 30)), value) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{note}: {error}");
            // It may find no space either.
            let rest = db.wait_idle();
            assert!(rest.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::NoSpace), "{note}: {rest:?}");
            let statistics = db.statistics();
            let space = statistics.space.unwrap_or_else(|| panic!("{note}: no space"));
            let zones = space.zones.unwrap_or_else(|| panic!("{note}: no zones"));
            assert_eq!(zones.is_shared, is_shared, "{note}");
            assert!(
                zones.total > zones.free && u64::from(zones.total) * zones.zone_bytes <= 40 << 20,
                "{note}: {zones:?}"
            );
            let remedy = if is_shared { "lets more tables share a zone" } else { "on a device of smaller zones" };
            let size = format!("of {} zones of {} bytes are free", zones.total, zones.zone_bytes);
            for said in
                [size.as_str(), "are kept for logs and compactions", "delete data and compact it", "reserve", remedy]
            {
                assert!(error.to_string().contains(said), "{note}: '{said}' in {error}");
            }
            let property = |name: &str| db.property(name).unwrap_or_else(|| panic!("{note}: {name}"));
            assert!(property("varve.zones").contains(&format!("{} kept", zones.kept)), "{note}");
            if tree != TreeKind::Memory {
                let taken_bytes: u64 = property("varve.table-space-bytes").parse().expect("a number");
                let table_bytes: u64 = property("varve.total-table-bytes").parse().expect("a number");
                assert!(table_bytes > 0 && taken_bytes >= table_bytes, "{note}: {taken_bytes} for {table_bytes}");
                let is_whole = taken_bytes.is_multiple_of(zones.zone_bytes) && taken_bytes > table_bytes;
                assert!(is_shared || is_whole, "{note}: {taken_bytes} for {table_bytes} in {zones:?}");
            }
            let of_store = fill_store(&db);
            let StoreError::NoSpace { zones: Some(found), .. } = &of_store else { panic!("{note}: {of_store}") };
            assert_eq!(found.is_shared, is_shared, "{note}");
            assert!(of_store.to_string().contains(remedy), "{note}: {of_store}");
            // The files that fill the store may have taken the space of writes that the log holds back.
            let closed = db.close();
            assert!(closed.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::NoSpace), "{note}: {closed:?}");
        }
    }
}
