//! Files of a closed database that are swapped, replaced by older ones or by those of another database, doubled, cut
//! short, or links.
//!
//! Opening or reading the database then gives an error or the right answer, never a wrong one; what was written while
//! some file was wrong does not make it worse: with the right files back, all is there. `check` finds what reads
//! report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use varve_engine::{Compression, Db, Error, ErrorKind, Media, Options, ReadOptions, WriteBatch, WriteOptions};
use varve_env::{Env, Random};
use varve_media::OsDirectory;
use varve_store::{PlainOptions, PlainStore};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Contents = BTreeMap<String, Vec<u8>>;

const KEYS: u64 = 240;

/// Where 40 keys begin that take as many bytes as the others'.
const ALIKE: [u64; 4] = [0, 40, 120, 160];

fn options() -> Options {
    Options {
        write_buffer_size: 64 << 10,
        target_file_size_base: 2 << 10,
        max_bytes_for_level_base: 8 << 10,
        block_size: 512,
        compression: Compression::None,
        disable_auto_compactions: true,
        ..Options::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

/// A directory of files, in memory while it is not open.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn of(contents: &Contents) -> Self {
        let place = Place { directory: tempfile::tempdir().expect("a place for files") };
        for (name, bytes) in contents {
            place.put(name, bytes);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        self.remove(name);
        std::fs::write(self.path(name), bytes).expect("write");
    }

    fn remove(&self, name: &str) {
        if self.path(name).symlink_metadata().is_ok() {
            std::fs::remove_file(self.path(name)).expect("remove");
        }
    }

    fn contents(&self) -> Contents {
        contents_of(self.directory.path())
    }

    fn open(&self, seed: u64) -> Result<(Env, Db), Error> {
        let env = Env::sim(seed);
        let directory = OsDirectory::open(self.directory.path()).expect("a directory");
        let store = PlainStore::open(&env, Arc::new(directory), PlainOptions::default());
        let db = Db::open(&env, Media::of_files(Arc::new(store)), options())?;
        Ok((env, db))
    }
}

fn contents_of(directory: &Path) -> Contents {
    let mut contents = Contents::new();
    for entry in std::fs::read_dir(directory).expect("list") {
        let entry = entry.expect("an entry");
        let bytes = std::fs::read(entry.path()).expect("read");
        contents.insert(entry.file_name().into_string().expect("a name"), bytes);
    }
    contents
}

/// What a database was each time it was closed.
struct Generation {
    contents: Contents,
    model: Model,
}

/// A life of several openings: tables of one size in two levels, overwritten and deleted keys, and what is only in
/// the log at the end of each.
fn life(seed: u64) -> Vec<Generation> {
    let place = Place::of(&Contents::new());
    let mut random = Random::seeded(seed);
    let mut model = Model::new();
    let mut generations = Vec::new();
    for opening in 0..4 {
        let (_env, db) = place.open(seed).expect("open");
        let mut write = |random: &mut Random, numbers: &mut dyn Iterator<Item = u64>, sync: bool, deletes: u64| {
            let mut batch = WriteBatch::new();
            for number in numbers {
                if random.chance(deletes, 4) {
                    batch.delete(&key(number)).expect("delete");
                    model.remove(&key(number));
                } else {
                    // As long as any other, so that tables of as many keys are as long too.
                    let value = format!("{:032x}", random.next_u64()).into_bytes();
                    batch.put(&key(number), &value).expect("put");
                    model.insert(key(number), value);
                }
            }
            db.write(batch, &WriteOptions { sync }).expect("write");
        };
        match opening {
            0 => {
                write(&mut random, &mut (0..KEYS), false, 0);
                db.compact_range(None, None).expect("compact");
            }
            _ => {
                for part in 0..2 {
                    let first = ALIKE[(opening + part) % ALIKE.len()];
                    write(&mut random, &mut (first..first + 40), part == 0, 0);
                    db.flush().expect("flush");
                }
            }
        }
        for step in 0..3 {
            let first = random.below(KEYS - 3);
            write(&mut random, &mut (first..first + 3), step == 1, 1);
        }
        db.close().expect("close");
        drop(db);
        generations.push(Generation { contents: place.contents(), model: model.clone() });
    }
    generations
}

/// How a directory answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Met {
    /// All answers were right.
    Right,
    /// Some reads gave errors, and `check` findings.
    ReadsFail,
    /// Opening gave an error.
    Refused,
}

/// Errors that name what is wrong.
fn is_told(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Foreign)
}

/// Reads everything in every way; whether some of it gave errors.
fn read_all(db: &Db, model: &Model, note: &str) -> bool {
    let mut failed = false;
    let mut failure = |error: Error| {
        assert!(is_told(&error), "{note}: {error}");
        failed = true;
    };
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (key, many) in asked.iter().zip(db.multi_get(&asked, &ReadOptions::default())) {
        let expected = model.get(*key).map(Vec::as_slice);
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), expected, "{note}: get {}", key.escape_ascii()),
            Err(error) => failure(error),
        }
        match many {
            Ok(found) => assert_eq!(found.as_deref(), expected, "{note}: multi_get {}", key.escape_ascii()),
            Err(error) => failure(error),
        }
    }
    for backwards in [false, true] {
        let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
        let mut expected: Vec<_> = model.iter().collect();
        if backwards {
            expected.reverse();
            walk.seek_to_last();
        } else {
            walk.seek_to_first();
        }
        let mut expected = expected.into_iter();
        while walk.valid() {
            let pair = expected.next().map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(Some((walk.key(), walk.value())), pair, "{note}: walk, backwards: {backwards}");
            if backwards { walk.previous() } else { walk.next() }
        }
        match walk.status() {
            Ok(()) => assert_eq!(expected.count(), 0, "{note}: the walk ended early, backwards: {backwards}"),
            Err(error) => failure(error),
        }
    }
    failed
}

/// Opens what a directory holds, reads, writes, compacts and opens again: nothing may be wrong in between.
fn meet(place: &Place, seed: u64, model: &Model, note: &str) -> Met {
    let (_env, db) = match place.open(seed) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(is_told(&error), "{note}: {error}");
            return Met::Refused;
        }
    };
    let failed = read_all(&db, model, note);
    let findings = db.check().expect("check");
    let errors = findings.iter().any(|finding| finding.severity >= varve_store::Severity::Error);
    assert_eq!(failed, errors, "{note}: reads and check differ: {findings:?}");
    for _ in 0..2 {
        for outcome in [db.flush(), db.compact_range(None, None)] {
            assert!(outcome.as_ref().err().is_none_or(is_told), "{note}: {outcome:?}");
        }
        assert_eq!(read_all(&db, model, &format!("{note}, compacted")), failed, "{note}: compacted");
    }
    let _ = db.close();
    drop(db);
    let (_env, db) = place.open(seed + 1).unwrap_or_else(|error| panic!("{note}, opened again: {error}"));
    assert_eq!(read_all(&db, model, &format!("{note}, opened again")), failed, "{note}: opened again");
    db.close().expect("close");
    if failed { Met::ReadsFail } else { Met::Right }
}

/// One change to a closed database: the files that are others now.
struct Manipulation {
    note: String,
    apply: Box<dyn Fn(&Place)>,
    /// Names that were changed.
    names: Vec<String>,
}

/// Meets each manipulation of `generation`; how often each outcome was.
fn meet_all(seed: u64, generation: &Generation, manipulations: Vec<Manipulation>) -> BTreeMap<Met, usize> {
    let mut outcomes = BTreeMap::new();
    for (number, manipulation) in manipulations.iter().enumerate() {
        let note = format!("seed {seed}, {number}: {}", manipulation.note);
        let place = Place::of(&generation.contents);
        (manipulation.apply)(&place);
        let met = meet(&place, seed, &generation.model, &note);
        *outcomes.entry(met).or_default() += 1;
        if met == Met::Right {
            continue;
        }
        // With the right files back all is there: neither a refused opening nor what was written beside them took
        // anything away.
        for name in &manipulation.names {
            match generation.contents.get(name) {
                Some(bytes) if met == Met::Refused || name.ends_with(".sst") => place.put(name, bytes),
                _ => place.remove(name),
            }
        }
        let note = format!("{note}, put right");
        let (_env, db) = place.open(seed).unwrap_or_else(|error| panic!("{note}: {error}"));
        assert!(!read_all(&db, &generation.model, &note), "{note}: a read failed");
        assert_eq!(db.check().expect("check"), [], "{note}");
        db.close().expect("close");
    }
    outcomes
}

fn is_file(name: &str) -> bool {
    name != "LOCK"
}

/// `LOCK` aside, in order.
fn names(contents: &Contents) -> Vec<String> {
    contents.keys().filter(|name| is_file(name)).cloned().collect()
}

fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, extension)| extension)
}

/// Some of `all`, by seed, at most `most`.
fn some_of<T>(mut all: Vec<T>, most: usize, random: &mut Random) -> Vec<T> {
    while all.len() > most {
        all.swap_remove(random.index(all.len()));
    }
    all
}

/// As many manipulations of one kind as a test meets.
const MANIPULATIONS: usize = 40;

fn last(generations: &[Generation]) -> &Generation {
    generations.last().expect("a generation")
}

/// The first defect of this kind: `get` said 'no key', a walk showed it, and a compaction made it permanent.
#[test]
fn two_tables_of_one_size_swapped_by_name_are_told() {
    let generations = life(1);
    let generation = last(&generations);
    let tables: Vec<&String> = generation.contents.keys().filter(|name| extension(name) == "sst").collect();
    let mut pairs = Vec::new();
    for (position, one) in tables.iter().enumerate() {
        for other in &tables[position + 1..] {
            if generation.contents[*one].len() == generation.contents[*other].len() {
                pairs.push(swap(one, other));
            }
        }
    }
    assert!(pairs.len() > 3, "tables of one size: {}", pairs.len());
    let outcomes = meet_all(1, generation, some_of(pairs, 8, &mut Random::seeded(1)));
    assert_eq!(outcomes.keys().copied().collect::<Vec<_>>(), [Met::ReadsFail], "{outcomes:?}");
}

fn swap(one: &str, other: &str) -> Manipulation {
    let (a, b) = (one.to_owned(), other.to_owned());
    Manipulation {
        note: format!("'{one}' and '{other}' swapped"),
        names: vec![a.clone(), b.clone()],
        apply: Box::new(move |place| {
            std::fs::rename(place.path(&a), place.path("aside")).expect("rename");
            std::fs::rename(place.path(&b), place.path(&a)).expect("rename");
            std::fs::rename(place.path("aside"), place.path(&b)).expect("rename");
        }),
    }
}

fn put(note: String, name: &str, bytes: &[u8]) -> Manipulation {
    let (name, bytes) = (name.to_owned(), bytes.to_vec());
    Manipulation { note, names: vec![name.clone()], apply: Box::new(move |place| place.put(&name, &bytes)) }
}

#[test]
fn swapped_files_are_told() {
    for seed in [1, 2] {
        let generations = life(seed);
        let generation = last(&generations);
        let names = names(&generation.contents);
        let mut swaps = Vec::new();
        for (position, one) in names.iter().enumerate() {
            swaps.extend(names[position + 1..].iter().map(|other| swap(one, other)));
        }
        let outcomes = meet_all(seed, generation, some_of(swaps, MANIPULATIONS, &mut Random::seeded(seed)));
        assert!(!outcomes.contains_key(&Met::Right), "{outcomes:?}");
    }
}

/// Files of another database made alike: of the same names, tables of the same sizes.
#[test]
fn files_of_another_database_are_told() {
    let (generations, others) = (life(3), life(4));
    let (generation, other) = (last(&generations), last(&others));
    let theirs: Vec<&String> =
        other.contents.keys().filter(|name| is_file(name) && generation.contents.contains_key(*name)).collect();
    let mut of_others: Vec<Manipulation> =
        theirs.iter().map(|name| put(format!("'{name}' of another database"), name, &other.contents[*name])).collect();
    // All logs, or the whole manifest: what fits each other.
    for (note, chosen) in [
        ("all logs", theirs.iter().filter(|name| extension(name) == "log").collect::<Vec<_>>()),
        ("all tables", theirs.iter().filter(|name| extension(name) == "sst").collect()),
        ("CURRENT and the manifest", theirs.iter().filter(|name| !name.contains('.')).collect()),
    ] {
        assert!(!chosen.is_empty(), "{note}");
        let files: Vec<(String, Vec<u8>)> =
            chosen.into_iter().map(|name| ((*name).clone(), other.contents[*name].clone())).collect();
        of_others.push(Manipulation {
            note: format!("{note} of another database"),
            names: files.iter().map(|(name, _)| name.clone()).collect(),
            apply: Box::new(move |place| files.iter().for_each(|(name, bytes)| place.put(name, bytes))),
        });
    }
    let outcomes = meet_all(3, generation, of_others);
    assert!(!outcomes.contains_key(&Met::Right), "{outcomes:?}");
    assert!(outcomes.len() == 2, "{outcomes:?}");
}

/// Any of the files an older generation had, put in place of what is there now or beside it.
#[test]
fn older_files_are_told() {
    for seed in [5, 6] {
        let generations = life(seed);
        let generation = last(&generations);
        let mut random = Random::seeded(seed);
        let mut manipulations = Vec::new();
        for (age, older) in generations[..generations.len() - 1].iter().enumerate() {
            let all = names(&older.contents);
            let by_kind = |wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
                all.iter().filter(|name| wanted(name)).cloned().collect()
            };
            let mut choices: Vec<Vec<String>> = all.iter().map(|name| vec![name.clone()]).collect();
            choices.push(by_kind(&|name| !name.contains('.')));
            choices.push(by_kind(&|name| extension(name) != "sst"));
            choices.push(by_kind(&|name| extension(name) != "log"));
            choices.push(by_kind(&|name| extension(name) == "log"));
            for _ in 0..10 {
                choices.push(all.iter().filter(|_| random.chance(1, 2)).cloned().collect());
            }
            for chosen in choices {
                let files: Vec<(String, Vec<u8>)> =
                    chosen.iter().map(|name| (name.clone(), older.contents[name].clone())).collect();
                manipulations.push(Manipulation {
                    note: format!("of generation {age}: {chosen:?}"),
                    names: chosen,
                    apply: Box::new(move |place| files.iter().for_each(|(name, bytes)| place.put(name, bytes))),
                });
            }
        }
        let outcomes = meet_all(seed, generation, some_of(manipulations, MANIPULATIONS, &mut random));
        assert!(outcomes.contains_key(&Met::Refused), "{outcomes:?}");
    }
}

#[test]
fn truncated_files_are_told() {
    let generations = life(7);
    let generation = last(&generations);
    let mut random = Random::seeded(7);
    let mut cuts = Vec::new();
    for name in names(&generation.contents) {
        let bytes = &generation.contents[&name];
        let mut lengths = vec![0, 1, bytes.len() / 2, bytes.len() - 1];
        lengths.extend((0..4).map(|_| random.index(bytes.len())));
        for length in lengths {
            cuts.push(put(format!("'{name}' cut to {length} bytes"), &name, &bytes[..length.min(bytes.len())]));
        }
    }
    let outcomes = meet_all(7, generation, some_of(cuts, 2 * MANIPULATIONS, &mut random));
    assert!(outcomes.contains_key(&Met::Refused), "{outcomes:?}");
}

/// A copy of a file in the place of another, or under a number nothing has.
#[test]
fn doubled_files_are_told() {
    let generations = life(8);
    let generation = last(&generations);
    let names = names(&generation.contents);
    let mut copies = Vec::new();
    for one in &names {
        let bytes = &generation.contents[one];
        for other in names.iter().filter(|other| *other != one) {
            copies.push(put(format!("a copy of '{one}' as '{other}'"), other, bytes));
        }
        for number in [1, 999] {
            let name = match extension(one) {
                "log" => format!("{number:06}.log"),
                "sst" => format!("{number:06}.sst"),
                _ => format!("MANIFEST-{number:06}"),
            };
            if !generation.contents.contains_key(&name) {
                copies.push(put(format!("a copy of '{one}' as '{name}', which was not there"), &name, bytes));
            }
        }
    }
    let outcomes = meet_all(8, generation, some_of(copies, 2 * MANIPULATIONS, &mut Random::seeded(8)));
    assert!(outcomes.contains_key(&Met::ReadsFail) && outcomes.contains_key(&Met::Refused), "{outcomes:?}");
}

/// A link in the place of a file: another name of the same file, a symbolic link to it, to a file elsewhere, or in a
/// circle. What a symbolic link points to is neither followed nor told.
#[cfg(unix)]
#[test]
fn linked_files_are_told_and_what_they_point_to_is_not() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let generations = life(9);
    let generation = last(&generations);
    let secret = tempfile::NamedTempFile::new().expect("a file elsewhere");
    std::fs::write(secret.path(), "root:x:0:0:secret\n").expect("write");
    for name in names(&generation.contents).iter().chain([&"LOCK".to_owned(), &"holiday.jpg".to_owned()]) {
        for target in ["elsewhere", "itself", "nowhere"] {
            let note = format!("'{name}' links to {target}");
            let place = Place::of(&generation.contents);
            place.remove(name);
            match target {
                "elsewhere" => symlink(secret.path(), place.path(name)).expect("link"),
                "itself" => symlink(place.path(name), place.path(name)).expect("link"),
                _ => symlink(place.path("nothing"), place.path(name)).expect("link"),
            }
            match place.open(9) {
                Ok((_env, db)) => {
                    assert_eq!(name, "holiday.jpg", "{note}");
                    assert!(!read_all(&db, &generation.model, &note), "{note}");
                    db.close().expect("close");
                }
                Err(error) => {
                    assert_ne!(name, "holiday.jpg", "{note}: {error}");
                    assert!(!error.to_string().contains("secret"), "{note}: {error}");
                }
            }
            assert_eq!(std::fs::read(secret.path()).expect("read"), b"root:x:0:0:secret\n", "{note}");
            assert!(!place.path("nothing").exists(), "{note}");
        }
        if let Some(bytes) = generation.contents.get(name) {
            // Another name of the same file elsewhere changes nothing.
            let place = Place::of(&generation.contents);
            place.remove(name);
            std::fs::write(secret.path().with_extension("other"), bytes).expect("write");
            std::fs::hard_link(secret.path().with_extension("other"), place.path(name)).expect("link");
            assert_eq!(meet(&place, 9, &generation.model, name), Met::Right);
            std::fs::remove_file(secret.path().with_extension("other")).expect("remove");
        }
    }
    let place = Place::of(&Contents::new());
    place.open(9).expect("open").1.close().expect("close");
    for name in place.contents().keys() {
        let mode = place.path(name).metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o177, 0, "'{name}' is for its owner only: {mode:o}");
    }
}

/// A checkpoint goes where the database does not: not into its directory, nor below, by whatever way that is named.
#[cfg(unix)]
#[test]
fn checkpoints_into_the_database_are_refused() {
    let generations = life(10);
    let place = Place::of(&last(&generations).contents);
    let (env, db) = place.open(10).expect("open");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let beside = elsewhere.path().join("database");
    std::os::unix::fs::symlink(place.path(""), &beside).expect("link");
    for target in [place.path(""), place.path("copy"), place.path("a/b"), beside.clone(), beside.join("c")] {
        let directory = OsDirectory::create(&target).expect("directory");
        let store = PlainStore::open(&env, Arc::new(directory), PlainOptions::default());
        let error = db.checkpoint(&store).expect_err("it is within");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("is within"), "{error}");
    }
    let directory = OsDirectory::create(elsewhere.path().join("copy")).expect("directory");
    let store = PlainStore::open(&env, Arc::new(directory), PlainOptions::default());
    db.checkpoint(&store).expect("a checkpoint elsewhere");
    db.close().expect("close");
}
