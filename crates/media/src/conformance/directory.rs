//! The contract of directories.

use super::{Clause, Violation};
use crate::buffer::AlignedBuffer;
use crate::context::{IoClass, IoContext};
use crate::directory::{Directory, DirectoryFile, OpenMode};
use crate::error::MediaErrorKind;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use varve_env::{Env, Random};

const READ: OpenMode = OpenMode { write: false, create: false, truncate: false, direct: false };
const WRITE: OpenMode = OpenMode { write: true, create: false, truncate: false, direct: false };
const CREATE: OpenMode = OpenMode { write: true, create: true, truncate: false, direct: false };
const TRUNCATE: OpenMode = OpenMode { write: true, create: true, truncate: true, direct: false };

/// Checks the contract of [`Directory`] and [`DirectoryFile`] on directories that `make` makes: empty, and
/// each made anew. `seed` is where random choices come from.
///
/// # Errors
/// The first clause that is broken.
pub fn check_directory(make: &dyn Fn(&Env) -> Arc<dyn Directory>, seed: u64) -> Result<(), Violation> {
    for simulated in [false, true] {
        let env = || if simulated { Env::sim(seed) } else { Env::real() };
        let checks: [Check; 14] = [
            odd_names,
            bad_names,
            open_modes,
            reads_and_writes,
            far_offsets,
            truncation,
            reservation,
            renames,
            removals,
            locks,
            listing,
            links,
            direct_files,
            random_walk,
        ];
        for check in checks {
            let env = env();
            check(&Subject { directory: make(&env), seed })?;
        }
        let env = env();
        several_threads(&env, &make(&env), seed)?;
    }
    let hash = || {
        let env = Env::sim(seed);
        several_threads(&env, &make(&env), seed).map(|()| env.event_hash())
    };
    let (first, second) = (hash()?, hash()?);
    Clause("repeats by seed").require(first == second, || {
        format!("the same simulation ended with the event hash {first:#x} and then with {second:#x}")
    })
}

struct Subject {
    directory: Arc<dyn Directory>,
    seed: u64,
}

type Check = fn(&Subject) -> Result<(), Violation>;

fn context() -> IoContext {
    IoContext::of(IoClass::Check)
}

impl Subject {
    fn open(&self, clause: Clause, name: &str, mode: OpenMode) -> Result<Arc<dyn DirectoryFile>, Violation> {
        clause.succeed(&format!("opening {name:?} as {mode:?}"), self.directory.open(name, mode))
    }

    fn create(&self, clause: Clause, name: &str, data: &[u8]) -> Result<Arc<dyn DirectoryFile>, Violation> {
        let file = self.open(clause, name, TRUNCATE)?;
        write(clause, &*file, 0, data)?;
        Ok(file)
    }

    fn expect(&self, clause: Clause, name: &str, expected: &[u8]) -> Result<(), Violation> {
        let file = self.open(clause, name, READ)?;
        expect(clause, name, &*file, expected)
    }

    /// Requires exactly these files.
    fn expect_names(&self, clause: Clause, expected: &[&str]) -> Result<(), Violation> {
        let listed = clause.succeed("listing", self.directory.list())?;
        let names: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
        clause.require(names == expected, || format!("expected the files {expected:?}, found {names:?}"))
    }
}

fn write(clause: Clause, file: &dyn DirectoryFile, offset_bytes: u64, data: &[u8]) -> Result<(), Violation> {
    let result = file.write_at(offset_bytes, &[IoSlice::new(data)], &context());
    clause.succeed(&format!("a write of {} bytes at {offset_bytes}", data.len()), result)
}

/// Requires a file to have exactly this content, read in one piece, and this length.
fn expect(clause: Clause, name: &str, file: &dyn DirectoryFile, expected: &[u8]) -> Result<(), Violation> {
    let size_bytes = clause.succeed("asking the length", file.size_bytes())?;
    clause.require(size_bytes == expected.len() as u64, || {
        format!("{name:?} should have {} bytes, has {size_bytes}", expected.len())
    })?;
    let mut data = vec![0xEE; expected.len() + 100];
    let count = clause.succeed("a read", file.read_at(0, &mut data, &context()))?;
    clause.same(&format!("the content of {name:?}"), expected, &data[..count.min(data.len())])
}

fn pattern(salt: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::seeded(salt).fill_bytes(&mut bytes);
    bytes
}

fn odd_names(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("takes every name of one component");
    let long = "n".repeat(255);
    let wide = "\u{e4}".repeat(127);
    let names = [
        " ",
        "-rf",
        "...",
        ".hidden",
        "a b",
        "back\\slash",
        "colon:",
        "line\nbreak",
        "quote'\"",
        "star*?",
        "tab\t",
        "\u{1}",
        "\u{1f980}",
        &wide,
        &long,
    ];
    for (salt, name) in names.iter().enumerate() {
        subject.create(clause, name, &pattern(salt as u64, 10))?;
    }
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    subject.expect_names(clause, &sorted)?;
    for (salt, name) in names.iter().enumerate() {
        subject.expect(clause, name, &pattern(salt as u64, 10))?;
        clause.succeed("a rename", subject.directory.rename(name, "plain"))?;
        clause.succeed("a rename", subject.directory.rename("plain", name))?;
        clause.succeed("a removal", subject.directory.remove(name))?;
    }
    subject.expect_names(clause, &[])
}

fn bad_names(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("refuses what is no name and changes nothing");
    subject.create(clause, "good", b"good")?;
    let directory = &subject.directory;
    let long = "n".repeat(256);
    for name in ["", ".", "..", "/", "a/b", "../good", "good/", "/good", "a\0b", "\0", &long] {
        let kind = MediaErrorKind::InvalidRequest;
        for mode in [READ, CREATE, TRUNCATE] {
            clause.fail(&format!("opening {name:?}"), kind, directory.open(name, mode))?;
        }
        clause.fail(&format!("renaming {name:?}"), kind, directory.rename(name, "other"))?;
        clause.fail(&format!("renaming to {name:?}"), kind, directory.rename("good", name))?;
        clause.fail(&format!("removing {name:?}"), kind, directory.remove(name))?;
        clause.fail(&format!("locking {name:?}"), kind, directory.lock(name))?;
    }
    subject.expect_names(clause, &["good"])?;
    subject.expect(clause, "good", b"good")
}

fn open_modes(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("opens as asked");
    let directory = &subject.directory;
    clause.fail("opening what is not there", MediaErrorKind::NotFound, directory.open("a", READ))?;
    clause.fail("opening what is not there for writing", MediaErrorKind::NotFound, directory.open("a", WRITE))?;
    let unwritable = OpenMode { create: true, ..READ };
    clause.fail("creating without writing", MediaErrorKind::NotFound, directory.open("a", unwritable))?;
    subject.expect_names(clause, &[])?;
    let file = subject.open(clause, "a", CREATE)?;
    expect(clause, "a", &*file, b"")?;
    write(clause, &*file, 0, b"abc")?;
    subject.open(clause, "a", CREATE)?;
    subject.open(clause, "a", OpenMode { truncate: true, ..READ })?;
    subject.expect(clause, "a", b"abc")?;
    let reader = subject.open(clause, "a", READ)?;
    let refused = reader.write_at(0, &[IoSlice::new(b"x")], &context());
    clause.fail("writing to a file open for reading", MediaErrorKind::ReadOnly, refused)?;
    clause.fail("truncating a file open for reading", MediaErrorKind::ReadOnly, reader.truncate(0))?;
    subject.expect(clause, "a", b"abc")?;
    subject.open(clause, "a", TRUNCATE)?;
    expect(clause, "a", &*file, b"")?;
    expect(clause, "a", &*reader, b"")
}

fn reads_and_writes(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("reads what was written");
    let file = subject.open(clause, "a", CREATE)?;
    let reader = subject.open(clause, "a", READ)?;
    let data = pattern(1, 10_000);
    write(clause, &*file, 5000, &data)?;
    let mut model = [vec![0; 5000], data].concat();
    expect(clause, "a", &*reader, &model)?;
    write(clause, &*file, 4999, b"over")?;
    model[4999..5003].copy_from_slice(b"over");
    expect(clause, "a", &*reader, &model)?;
    // More pieces than a system call takes, some of them empty.
    let many = pattern(2, 6000);
    let pieces: Vec<IoSlice<'_>> = many.chunks(3).flat_map(|piece| [IoSlice::new(piece), IoSlice::new(&[])]).collect();
    clause.succeed("a write in pieces", file.write_at(14_000, &pieces, &context()))?;
    model.truncate(14_000);
    model.extend_from_slice(&many);
    expect(clause, "a", &*reader, &model)?;
    // Nothing written changes nothing, wherever.
    clause.succeed("a write of nothing", file.write_at(1 << 40, &[], &context()))?;
    clause.succeed("a write of nothing", file.write_at(1 << 40, &[IoSlice::new(&[])], &context()))?;
    expect(clause, "a", &*reader, &model)?;
    for (at, length) in [(0, 1), (19_999, 10), (20_000, 10), (20_001, 10), (1 << 40, 10), (12_345, 0), (17_000, 4000)] {
        let mut found = vec![0xEE; length];
        let count = clause.succeed("a read", reader.read_at(at, &mut found, &context()))?;
        let start = model.len().min(at as usize);
        let expected = &model[start..model.len().min(start + length)];
        clause.same(&format!("{length} bytes at {at}"), expected, &found[..count.min(length)])?;
    }
    clause.succeed("a sync", file.sync(&context()))?;
    clause.succeed("a directory sync", subject.directory.sync())?;
    reader.prefetch(0, 20_000);
    reader.prefetch(u64::MAX, u64::MAX);
    if let Some(mapping) = reader.map() {
        let found = mapping.read(0..model.len() as u64, <[u8]>::to_vec).unwrap_or_default();
        clause.same("the mapping", &model, &found)?;
        write(clause, &*file, 3, b"seen")?;
        model[3..7].copy_from_slice(b"seen");
        let found = mapping.read(0..10, <[u8]>::to_vec).unwrap_or_default();
        clause.same("the mapping after a write", &model[..10], &found)?;
    }
    expect(clause, "a", &*reader, &model)
}

fn far_offsets(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("answers offsets no file has");
    let file = subject.create(clause, "a", b"abc")?;
    for at in [i64::MAX as u64 - 1, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX] {
        let mut data = [0; 4];
        let count = clause.succeed(&format!("a read at {at}"), file.read_at(at, &mut data, &context()))?;
        clause.require(count == 0, || format!("a read at {at} gave {count} bytes"))?;
        let outcome = file.write_at(at, &[IoSlice::new(&data)], &context());
        clause.require(outcome.is_err(), || format!("a write at {at} succeeded"))?;
        if at > i64::MAX as u64 {
            clause.require(file.truncate(at).is_err(), || format!("a truncation to {at} succeeded"))?;
        }
    }
    expect(clause, "a", &*file, b"abc")
}

fn truncation(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("truncates and extends with zeros");
    let data = pattern(1, 9000);
    let file = subject.create(clause, "a", &data)?;
    for (size, kept) in [(6000, 6000), (6000, 6000), (8500, 6000), (100, 100), (9000, 100), (0, 0), (5000, 0)] {
        clause.succeed(&format!("a truncation to {size}"), file.truncate(size))?;
        let mut expected = data[..kept].to_vec();
        expected.resize(size as usize, 0);
        expect(clause, "a", &*file, &expected)?;
    }
    write(clause, &*file, 7000, b"x")?;
    let mut expected = vec![0; 7001];
    expected[7000] = b'x';
    expect(clause, "a", &*file, &expected)
}

fn reservation(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("reserves space without changing the file");
    let file = subject.create(clause, "a", b"abc")?;
    for size in [0, 1, 100_000] {
        clause.succeed(&format!("a reservation of {size} bytes"), file.allocate(size))?;
        expect(clause, "a", &*file, b"abc")?;
    }
    write(clause, &*file, 3, b"def")?;
    expect(clause, "a", &*file, b"abcdef")?;
    let space = clause.succeed("asking the space", subject.directory.space())?;
    clause.require(space.block_bytes > 0, || format!("blocks of nothing: {space:?}"))?;
    clause.require(space.available_bytes <= space.total_bytes, || format!("more is free than there is: {space:?}"))
}

fn renames(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("renames, replacing the target");
    let directory = &subject.directory;
    clause.fail("renaming what is not there", MediaErrorKind::NotFound, directory.rename("none", "a"))?;
    let moved = subject.create(clause, "a", b"new")?;
    clause.succeed("a rename", directory.rename("a", "c"))?;
    subject.expect_names(clause, &["c"])?;
    let replaced = subject.create(clause, "b", b"old")?;
    clause.succeed("a rename over a file", directory.rename("c", "b"))?;
    subject.expect_names(clause, &["b"])?;
    subject.expect(clause, "b", b"new")?;
    // Open files follow the file, not the name.
    expect(clause, "the replaced file", &*replaced, b"old")?;
    write(clause, &*moved, 3, b"er")?;
    subject.expect(clause, "b", b"newer")?;
    clause.succeed("a rename to itself", directory.rename("b", "b"))?;
    subject.expect(clause, "b", b"newer")?;
    clause.fail("renaming what was renamed", MediaErrorKind::NotFound, directory.rename("a", "b"))?;
    subject.expect_names(clause, &["b"])
}

fn removals(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("removes names, not open files");
    let directory = &subject.directory;
    clause.fail("removing what is not there", MediaErrorKind::NotFound, directory.remove("a"))?;
    let data = pattern(3, 5000);
    let old = subject.create(clause, "a", &data)?;
    clause.succeed("a removal", directory.remove("a"))?;
    subject.expect_names(clause, &[])?;
    clause.fail("opening what was removed", MediaErrorKind::NotFound, directory.open("a", READ))?;
    clause.fail("removing it again", MediaErrorKind::NotFound, directory.remove("a"))?;
    expect(clause, "a removed file", &*old, &data)?;
    let new = subject.create(clause, "a", b"new")?;
    write(clause, &*old, 0, b"still")?;
    clause.succeed("a sync of a removed file", old.sync(&context()))?;
    clause.succeed("a directory sync", directory.sync())?;
    expect(clause, "a", &*new, b"new")?;
    expect(clause, "a removed file", &*old, &[b"still", &data[5..]].concat())?;
    drop(old);
    subject.expect(clause, "a", b"new")
}

fn locks(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("locks exclude");
    let directory = &subject.directory;
    let guard = clause.succeed("a lock", directory.lock("LOCK"))?;
    for _ in 0..2 {
        clause.fail("a second lock", MediaErrorKind::Locked, directory.lock("LOCK"))?;
    }
    let other = clause.succeed("a lock of another name", directory.lock("OTHER"))?;
    drop(guard);
    let again = clause.succeed("a lock after its release", directory.lock("LOCK"))?;
    clause.fail("a lock that is held", MediaErrorKind::Locked, directory.lock("OTHER"))?;
    drop((again, other));
    clause.succeed("a lock after its release", directory.lock("OTHER")).map(drop)
}

fn listing(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("lists files by name with their lengths");
    let mut expected = BTreeMap::new();
    for number in 0..40u64 {
        let name = format!("{}", number * 7919 % 100);
        subject.create(clause, &name, &vec![1; number as usize * 100])?;
        expected.insert(name, number * 100);
    }
    let listed = clause.succeed("listing", subject.directory.list())?;
    let found: Vec<(String, u64)> = listed.into_iter().map(|entry| (entry.name, entry.size_bytes)).collect();
    let expected: Vec<(String, u64)> = expected.into_iter().collect();
    clause.require(found == expected, || format!("expected {expected:?}, found {found:?}"))
}

fn links(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("shares files where it has a place");
    subject.create(clause, "a", b"shared")?;
    let nowhere = std::path::Path::new("/");
    let Some(path) = subject.directory.path() else {
        let shared = clause.succeed("a link from nowhere", subject.directory.link("a", nowhere, "b"))?;
        return clause.require(!shared, || "a directory that is nowhere shared a file".to_owned());
    };
    let outcome = subject.directory.link("none", path, "b");
    clause.require(outcome.is_err(), || format!("a link of what is not there gave {outcome:?}"))?;
    if clause.succeed("a link", subject.directory.link("a", path, "b"))? {
        subject.expect_names(clause, &["a", "b"])?;
        subject.expect(clause, "b", b"shared")?;
        clause.succeed("a removal", subject.directory.remove("a"))?;
        subject.expect(clause, "b", b"shared")?;
    }
    Ok(())
}

fn direct_files(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("does aligned I/O on direct files");
    let file = subject.open(clause, "a", OpenMode { direct: true, ..CREATE })?;
    let alignment = file.alignment_bytes() as usize;
    clause.require(alignment.is_power_of_two(), || format!("the alignment of {alignment} is no power of two"))?;
    let unit = alignment.max(512);
    let data = AlignedBuffer::copy_of(&pattern(1, 8 * unit), alignment);
    let written = file.write_at(unit as u64, &[IoSlice::new(&data[..unit]), IoSlice::new(&data[unit..])], &context());
    clause.succeed("an aligned write", written)?;
    let mut found = AlignedBuffer::new(12 * unit, alignment);
    let count = clause.succeed("an aligned read", file.read_at(0, &mut found, &context()))?;
    clause.same("a direct file", &[&vec![0; unit], &data[..]].concat(), &found[..count.min(found.len())])?;
    clause.succeed("a truncation", file.truncate(unit as u64 + 5))?;
    let count = clause.succeed("an aligned read", file.read_at(0, &mut found, &context()))?;
    clause.same("a direct file off its alignment", &[&vec![0; unit], &data[..5]].concat(), &found[..count])?;
    if alignment > 1 {
        let kind = MediaErrorKind::InvalidRequest;
        let misaligned = file.write_at(1, &[IoSlice::new(&data)], &context());
        clause.fail("a misaligned direct write", kind, misaligned)?;
        clause.fail("a misaligned direct read", kind, file.read_at(1, &mut found, &context()))?;
    }
    subject.expect(clause, "a", &[&vec![0; unit], &data[..5]].concat())
}

/// Random calls against a map of byte vectors.
fn random_walk(subject: &Subject) -> Result<(), Violation> {
    let clause = Clause("behaves like a map of files");
    let mut random = Random::named(subject.seed, "random walk");
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let directory = &subject.directory;
    for step in 0..400 {
        let name = format!("file{}", random.below(8));
        let there = model.contains_key(&name);
        let what = format!("seed {} step {step}", subject.seed);
        match random.below(10) {
            0 => match there {
                true => {
                    clause.succeed(&what, directory.remove(&name))?;
                    model.remove(&name);
                }
                false => clause.fail(&what, MediaErrorKind::NotFound, directory.remove(&name))?,
            },
            1 => {
                let to = format!("file{}", random.below(8));
                match model.remove(&name) {
                    Some(content) => {
                        clause.succeed(&what, directory.rename(&name, &to))?;
                        model.insert(to, content);
                    }
                    None => clause.fail(&what, MediaErrorKind::NotFound, directory.rename(&name, &to))?,
                }
            }
            2 if there => {
                let size = random.below(20_000);
                clause.succeed(&what, subject.open(clause, &name, WRITE)?.truncate(size))?;
                model.entry(name).or_default().resize(size as usize, 0);
            }
            3 => {
                subject.open(clause, &name, TRUNCATE)?;
                model.insert(name, Vec::new());
            }
            4 => clause.succeed(&what, directory.sync())?,
            5..9 => {
                let file = subject.open(clause, &name, CREATE)?;
                let content = model.entry(name).or_default();
                let at = random.below(15_000) as usize;
                let data = pattern(step, random.below(6000) as usize);
                write(clause, &*file, at as u64, &data)?;
                if !data.is_empty() {
                    content.resize(content.len().max(at + data.len()), 0);
                    content[at..at + data.len()].copy_from_slice(&data);
                }
                if random.chance(1, 3) {
                    clause.succeed(&what, file.sync(&context()))?;
                }
            }
            _ => {
                if let Some(content) = model.get(&name) {
                    subject.expect(clause, &name, content)?;
                }
            }
        }
    }
    let names: Vec<&str> = model.keys().map(String::as_str).collect();
    subject.expect_names(clause, &names)?;
    model.iter().try_for_each(|(name, content)| subject.expect(clause, name, content))
}

/// Threads with files of their own, read while appended, renamed and removed.
fn several_threads(env: &Env, directory: &Arc<dyn Directory>, seed: u64) -> Result<(), Violation> {
    let clause = Clause("serves several threads");
    let handles: Vec<_> = (0..4u64)
        .map(|number| {
            let subject = Subject { directory: directory.clone(), seed };
            env.spawn("conformance", move || {
                let name = format!("log{number}");
                let writer = subject.open(clause, &name, CREATE)?;
                let reader = subject.open(clause, &name, READ)?;
                let mut model = Vec::new();
                for round in 0..20 {
                    let data = pattern(number * 100 + round, 700);
                    write(clause, &*writer, model.len() as u64, &data)?;
                    model.extend_from_slice(&data);
                    expect(clause, &name, &*reader, &model)?;
                    let temporary = format!("tmp{number}");
                    subject.create(clause, &temporary, &round.to_le_bytes())?;
                    clause.succeed("a rename", subject.directory.rename(&temporary, &format!("current{number}")))?;
                    clause.succeed("a directory sync", subject.directory.sync())?;
                    subject.expect(clause, &format!("current{number}"), &round.to_le_bytes())?;
                    clause.succeed("a listing", subject.directory.list())?;
                }
                clause.succeed("a sync", writer.sync(&context()))?;
                clause.succeed("a removal", subject.directory.remove(&format!("current{number}")))
            })
        })
        .collect();
    let mut result = Ok(());
    for handle in handles {
        let outcome = handle.join().unwrap_or_else(|_| clause.broken("a thread panicked"));
        result = result.and(outcome);
    }
    result?;
    Subject { directory: directory.clone(), seed }.expect_names(clause, &["log0", "log1", "log2", "log3"])
}
