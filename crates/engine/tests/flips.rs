//! Damage to files at rest. Every byte of every structure of a small store is flipped: the database
//! then gives an error that says where, or the right answer; never a wrong one, never a panic.
//! Missing, foreign, newer and truncated files give typed errors, and `repair` saves the rest.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
mod options;
#[path = "suite/seeds.rs"]
mod seeds;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{State, small_options};
use medium::{Image, Kind};
use options::short_option_set;
use seeds::{Reached, run_seeds};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use varve_engine::{Db, Error, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions, plan_repair, repair};
use varve_env::{Env, Random, SimOptions};
use varve_media::{
    BlockDevice, BlockDeviceExt, Capabilities, Counters, CrashDevice, CrashVariant, Device, Directory,
    DirectoryCrashState, Geometry, IoContext, MediaError, MemoryDirectory, OpenMode, Request, Transfer,
};
use varve_store::{AllocationName, RewriteName};

const THREADS: usize = 2;

/// Flips of one store whose options a seed draws.
const FLIPS_OF_SEED: usize = 60;

/// What is flipped in a byte, by its place: one bit, or all of them.
fn mask(offset: u64) -> u8 {
    [0x01, 0xff, 0x80, 0x10][(offset % 4) as usize]
}

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(3600)), ..SimOptions::default() })
}

fn options() -> Options {
    Options { disable_auto_compactions: true, write_buffer_size: 64 << 10, ..small_options() }
}

fn open(env: &Env, image: &Image) -> Result<Db, Error> {
    open_with(env, image, &options())
}

fn open_with(env: &Env, image: &Image, options: &Options) -> Result<Db, Error> {
    Db::open(env, image.media(env)?, options.clone())
}

/// A closed database with tables in two levels, deletions, and a log that holds writes.
fn small_store(env: &Env, image: &Image) -> State {
    small_store_with(env, image, &options(), 1)
}

/// Values are so many times as long as usual.
fn small_store_with(env: &Env, image: &Image, options: &Options, scale: usize) -> State {
    let mut model = State::new();
    let db = open_with(env, image, options).expect("open");
    let put = |model: &mut State, number: u32, length: usize| {
        let (key, value) = (format!("key{number:03}").into_bytes(), vec![b'a' + (number % 26) as u8; length * scale]);
        db.put(&key, &value).expect("put");
        model.insert(key, value);
    };
    for number in 0..24 {
        put(&mut model, number, 40);
    }
    db.compact_range(None, None).expect("compact_range");
    for number in 12..20 {
        put(&mut model, number, 50);
        db.delete(format!("key{:03}", number + 4).as_bytes()).expect("delete");
        model.remove(format!("key{:03}", number + 4).as_bytes());
    }
    db.flush().expect("flush");
    put(&mut model, 30, 20);
    db.put_with(b"key001", b"synced", &WriteOptions { sync: true }).expect("put");
    model.insert(b"key001".to_vec(), b"synced".to_vec());
    let mut batch = WriteBatch::new();
    batch.delete(b"key002").expect("delete");
    batch.put(b"key031", b"").expect("put");
    db.write(batch, &WriteOptions::default()).expect("write");
    model.remove(&b"key002"[..]);
    model.insert(b"key031".to_vec(), Vec::new());
    db.close().expect("close");
    model
}

/// How a damaged store was met.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Met {
    /// Opening refused it.
    RefusedAtOpen,
    /// A read or `check` named it.
    Found,
    /// Every answer was right and nothing was said.
    Unnoticed,
}

fn typed(error: &Error) -> Result<(), String> {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::Foreign => Ok(()),
        kind => Err(format!("an error of kind {kind:?}: {error}")),
    }
}

/// Opens, gets, scans both ways and checks: an error of the right kind, or the right answer.
fn examine(env: &Env, image: &Image, model: &State) -> Result<Met, String> {
    examine_with(env, image, &options(), model)
}

fn examine_with(env: &Env, image: &Image, options: &Options, model: &State) -> Result<Met, String> {
    let db = match open_with(env, image, options) {
        Ok(db) => db,
        Err(error) => return typed(&error).map(|()| Met::RefusedAtOpen),
    };
    let mut met = Met::Unnoticed;
    for number in 0..34 {
        let key = format!("key{number:03}").into_bytes();
        match db.get(&key) {
            Ok(found) if found.as_deref() == model.get(&key).map(Vec::as_slice) => {}
            Ok(found) => return Err(format!("get of key{number:03} gave {found:?}")),
            Err(error) => {
                typed(&error)?;
                met = Met::Found;
            }
        }
    }
    let mut walk = db
        .iterator(&ReadOptions::default())
        .map_err(|error| typed(&error).err())
        .map_or_else(|wrong| wrong.map_or(Ok(None), Err), |walk| Ok(Some(walk)))?;
    if let Some(walk) = &mut walk {
        let expected: Vec<_> = model.iter().collect();
        for forward in [true, false] {
            if forward {
                walk.seek_to_first()
            } else {
                walk.seek_to_last()
            };
            let mut steps = 0;
            while walk.valid() {
                let place = if forward { Some(steps) } else { expected.len().checked_sub(steps + 1) };
                match place.and_then(|place| expected.get(place)) {
                    Some((key, value)) if walk.key() == key.as_slice() && walk.value() == value.as_slice() => {}
                    _ => return Err(format!("step {steps} forward {forward}: {}", walk.key().escape_ascii())),
                }
                steps += 1;
                if forward {
                    walk.next()
                } else {
                    walk.previous()
                };
            }
            match walk.status() {
                Ok(()) if steps == expected.len() => {}
                Ok(()) => return Err(format!("a walk ended after {steps} of {} without an error", expected.len())),
                Err(error) => {
                    typed(&error)?;
                    met = Met::Found;
                }
            }
        }
    } else {
        met = Met::Found;
    }
    match db.check() {
        Ok(findings) if findings.is_empty() => {}
        Ok(_) => met = Met::Found,
        Err(error) => {
            typed(&error)?;
            met = Met::Found;
        }
    }
    Ok(met)
}

/// `met`, if the plan of a repair finds damage exactly where an opening, a read or a check did.
fn agrees(env: &Env, image: &Image, met: Met) -> Result<Met, String> {
    let planned = image.media(env).map_err(Error::from).and_then(|media| plan_repair(env, &media, &options()));
    let finds = match &planned {
        Ok(plan) => !plan.findings.is_empty(),
        Err(error) => typed(error).map(|()| true)?,
    };
    let expected = met != Met::Unnoticed;
    if finds == expected { Ok(met) } else { Err(format!("{met:?}, but a repair would say {planned:?}")) }
}

/// Calls `work` for every number below `count`, on several threads, and gathers what it says.
fn in_parallel<T: Send + 'static>(count: usize, work: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let env = Env::real();
    let (work, next) = (Arc::new(work), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (work, next) = (work.clone(), next.clone());
            env.spawn("flips", move || {
                let mut said = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= count {
                        return said;
                    }
                    said.push((number, work(number)));
                }
            })
        })
        .collect();
    let mut said: Vec<(usize, T)> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| panic.resume())).collect();
    said.sort_by_key(|(number, _)| *number);
    said.into_iter().map(|(_, said)| said).collect()
}

/// The files of a directory.
fn files(directory: &MemoryDirectory) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in directory.list().expect("list") {
        let file = directory.open(&entry.name, OpenMode::default()).expect("open");
        let mut bytes = vec![0; entry.size_bytes as usize];
        assert_eq!(file.read_at(0, &mut bytes, &IoContext::default()).expect("read"), bytes.len());
        files.insert(entry.name, bytes);
    }
    files
}

/// A log without a record: it only says how long the one before it is.
fn is_empty_log(files: &BTreeMap<String, Vec<u8>>, name: &str) -> bool {
    name.ends_with(".log") && files[name].len() == 64
}

fn overwrite(directory: &MemoryDirectory, name: &str, offset: u64, bytes: &[u8]) {
    let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
    let file = directory.open(name, mode).expect("open");
    file.write_at(offset, &[IoSlice::new(bytes)], &IoContext::default()).expect("write");
}

fn truncate(directory: &MemoryDirectory, name: &str, size: u64) {
    let mode = OpenMode { write: true, ..OpenMode::default() };
    directory.open(name, mode).expect("open").truncate(size).expect("truncate");
}

/// A small closed store in a directory: its state, its model, its files.
fn sample() -> (DirectoryCrashState, State, BTreeMap<String, Vec<u8>>) {
    let env = simulation(1);
    let directory = MemoryDirectory::new("flipped");
    let model = small_store(&env, &Image::plain(directory.clone()));
    let files = files(&directory);
    (directory.capture(), model, files)
}

fn copy(state: &DirectoryCrashState) -> MemoryDirectory {
    state.image(CrashVariant::KeepAll, 0)
}

/// Says of a part of the suite what became of its flips.
fn tell(part: &str, met: &[Met]) {
    let count = |wanted: Met| met.iter().filter(|met| **met == wanted).count();
    println!(
        "reached: flips/{part}: {} flips, {} refused at open, {} found by reading or check, {} harmless",
        met.len(),
        count(Met::RefusedAtOpen),
        count(Met::Found),
        count(Met::Unnoticed)
    )
}

#[test]
fn every_byte_of_every_file_flipped_gives_an_error_or_the_right_answer() {
    let (state, model, files) = sample();
    let mut places: Vec<(String, u64)> = Vec::new();
    for (name, bytes) in &files {
        places.extend((0..bytes.len() as u64).map(|offset| (name.clone(), offset)));
    }
    let (count, all) = (places.len(), Arc::new(places.clone()));
    let (model, bytes) = (Arc::new(model), Arc::new(files.clone()));
    let said = in_parallel(count, move |number| {
        let (name, offset) = &all[number];
        let directory = copy(&state);
        let flipped = bytes[name][*offset as usize] ^ mask(*offset);
        overwrite(&directory, name, *offset, &[flipped]);
        let env = simulation(2);
        let met = examine(&env, &Image::plain(directory), &model)?;
        let directory = copy(&state);
        overwrite(&directory, name, *offset, &[flipped]);
        agrees(&simulation(2), &Image::plain(directory), met)
    });
    let mut by_file: BTreeMap<&str, Vec<Met>> = BTreeMap::new();
    for ((name, offset), said) in places.iter().zip(said) {
        let met = said.unwrap_or_else(|what| panic!("'{name}' byte {offset}: {what}"));
        by_file.entry(name).or_default().push(met);
    }
    for (name, met) in &by_file {
        println!("{name}");
        tell("files", met);
        // Only the frame that ends a log says nothing that anything else depends on.
        let harmless: Vec<usize> = (0..met.len()).filter(|&offset| met[offset] == Met::Unnoticed).collect();
        if is_empty_log(&files, name) {
            continue;
        }
        let ends_with_mark = name.ends_with(".log") || name.starts_with("MANIFEST");
        let allowed_from = if ends_with_mark { met.len().saturating_sub(18) } else { met.len() };
        assert!(harmless.iter().all(|&offset| offset >= allowed_from), "'{name}': unnoticed at {harmless:?}");
    }
    assert!(by_file.len() >= 5, "{:?}", by_file.keys());
}

#[test]
fn every_byte_of_a_device_flipped_gives_an_error_or_the_right_answer() {
    const BLOCK: usize = 512;
    let env = simulation(3);
    let image = Image::fresh(&Env::real(), Kind::EXTENT);
    let Image::Device(_, inner) = &image else { panic!("a device") };
    let model = Arc::new(small_store(&env, &image));
    let state = CrashDevice::new(&Env::real(), inner).expect("crash layer").capture();
    let mut places: Vec<u64> = Vec::new();
    let mut block = vec![0; BLOCK];
    for start in (0..medium::DEVICE_BYTES).step_by(BLOCK) {
        inner.block.read_at(start, &mut block, &IoContext::default()).expect("read");
        if let Some(last) = block.iter().rposition(|&byte| byte != 0) {
            // Up to the last byte that says something, and some of the zeros behind it.
            places.extend((0..=last as u64).map(|at| start + at));
            places.extend((last as u64 + 1..BLOCK as u64).step_by(61).map(|at| start + at));
        }
    }
    let (count, all) = (places.len(), Arc::new(places.clone()));
    let said = in_parallel(count, move |number| {
        let offset = all[number];
        let device = state.image(CrashVariant::KeepAll, 0);
        flip(&device, offset);
        let env = simulation(4);
        examine(&env, &Image::Device(Kind::EXTENT, device), &model)
    });
    let mut met = Vec::new();
    for (offset, said) in places.iter().zip(said) {
        met.push(said.unwrap_or_else(|what| panic!("byte {offset}: {what}")));
    }
    tell(Kind::EXTENT.name(), &met);
    assert!(met.iter().filter(|met| **met == Met::Unnoticed).count() < met.len() / 2);
}

/// The same on an interlaced disk and the device beside it, as far as tops: nobody could change a bottom without
/// harm to what lies over it.
#[test]
fn bytes_of_interlaced_disks_flipped_give_an_error_or_the_right_answer() {
    const STRIDE: usize = 43;
    let (mut flips, mut noticed) = (0, 0);
    for (number, &allocation) in (0..).zip(AllocationName::ALL) {
        let rewrite = RewriteName::ALL[number % 2];
        for kind in [Kind::imr(allocation, rewrite), Kind::imr_logs_apart(allocation, rewrite)] {
            let env = simulation(20);
            let image = Image::fresh_of(&Env::real(), kind, 64 * medium::TRACK_BYTES);
            let model = Arc::new(small_store(&env, &image));
            let observation = image.observed(&env, &Arc::default());
            let state = observation.capture();
            let parts = if kind == Kind::imr(allocation, rewrite) { 1 } else { 2 };
            let mut places: Vec<(usize, u64)> = Vec::new();
            for part in 0..parts {
                let Image::Device(_, device) = image.part(part) else { panic!("a device") };
                let is_top = |at: u64| (at / medium::TRACK_BYTES) % 2 == 1;
                let mut block = [0; 512];
                for start in (0..device.block.geometry().capacity_bytes).step_by(block.len()) {
                    if part == 0 && !is_top(start) {
                        continue;
                    }
                    // What a bottom written later destroyed holds nothing.
                    if device.block.read_at(start, &mut block, &IoContext::default()).is_err() {
                        continue;
                    }
                    if let Some(last) = block.iter().rposition(|&byte| byte != 0) {
                        places.extend((0..=last as u64).map(|at| (part, start + at)));
                    }
                }
            }
            let places: Vec<(usize, u64)> = places.into_iter().skip(number).step_by(STRIDE).collect();
            let (count, all) = (places.len(), Arc::new(places.clone()));
            let said = in_parallel(count, move |index| {
                let (part, offset) = all[index];
                let image = state.image(CrashVariant::KeepAll, 0);
                let Image::Device(_, device) = image.part(part) else { return Err("no device".to_owned()) };
                flip(device, offset);
                let env = simulation(21);
                examine(&env, &image, &model)
            });
            let mut met = Vec::new();
            for (place, said) in places.iter().zip(said) {
                met.push(said.unwrap_or_else(|what| panic!("{kind:?}, device and byte {place:?}: {what}")));
            }
            tell(kind.name(), &met);
            flips += count;
            noticed += met.iter().filter(|met| **met != Met::Unnoticed).count();
        }
    }
    // Superblocks and checkpoints are there twice, logs of changes that are in a checkpoint are of no use, and
    // some policies put all tables on bottoms.
    let kinds = 2 * AllocationName::ALL.len();
    assert!(flips >= 100 * kinds && noticed >= 20 * kinds, "{noticed} of {flips} flips were noticed");
}

/// A device on which one byte reads flipped until it is written: for media that cannot be written in place.
struct Flipped {
    inner: Arc<dyn BlockDevice>,
    offset: u64,
    is_whole: AtomicBool,
}

impl BlockDevice for Flipped {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        let result = self.inner.execute(requests, context);
        for request in requests {
            let Some(mut place) = self.offset.checked_sub(request.offset_bytes) else { continue };
            if place >= request.length_bytes() || request.outcome.is_err() {
                continue;
            }
            match &mut request.transfer {
                Transfer::Read { data, .. } if !self.is_whole.load(Ordering::Relaxed) => {
                    for slice in data.iter_mut() {
                        if let Some(byte) = slice.get_mut(place as usize) {
                            *byte ^= mask(self.offset);
                            break;
                        }
                        place -= slice.len() as u64;
                    }
                }
                Transfer::Read { .. } => {}
                _ => self.is_whole.store(true, Ordering::Relaxed),
            }
        }
        result
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// The device, of which one byte reads flipped.
fn flipped(kind: Kind, device: Device, offset: u64) -> Image {
    let inner = device.block.clone();
    let block = Arc::new(Flipped { inner, offset, is_whole: AtomicBool::new(false) });
    Image::Device(kind, Device { block, ..device })
}

/// The same on bands, with both trees: the random-access region, tables and log bands.
#[test]
fn bytes_of_bands_flipped_give_an_error_or_the_right_answer() {
    let mut all = trees::on(&[Kind::BAND, Kind::VARIABLE_BANDS], trees::with_tables());
    all.extend(trees::on(&[Kind::BAND, Kind::EXTENT], trees::without_tables()));
    for (seed, (kind, tree)) in (30..).zip(all) {
        let stride = if kind == Kind::VARIABLE_BANDS { 5 } else { 2 };
        let env = simulation(seed);
        let image = Image::fresh(&Env::real(), kind);
        let with_tree = Options { tree: Some(tree), ..options() };
        let model = Arc::new(small_store_with(&env, &image, &with_tree, 1));
        let observation = image.observed(&env, &Arc::default());
        let state = observation.capture();
        let places: Vec<u64> = written_bytes(image.part(0)).into_iter().step_by(stride).collect();
        let (count, all) = (places.len(), Arc::new(places.clone()));
        let said = in_parallel(count, move |index| {
            let Image::Device(_, device) = state.image(CrashVariant::KeepAll, 0) else {
                return Err("no device".to_owned());
            };
            let image = flipped(kind, device, all[index]);
            examine_with(&simulation(32), &image, &with_tree, &model)
        });
        let mut met = Vec::new();
        for (place, said) in places.iter().zip(said) {
            met.push(said.unwrap_or_else(|what| panic!("{kind:?}, {tree:?}, byte {place}: {what}")));
        }
        tell(kind.name(), &met);
        let unnoticed = met.iter().filter(|met| **met == Met::Unnoticed).count();
        assert!(count > 800 && unnoticed < count / 2, "{unnoticed} of {count} flips were not noticed");
    }
}

/// Bytes of a store made with the options of a seed, in a directory or on a device of any kind: what is read of them is
/// flipped, so that places which cannot be written are reached too.
fn some_bytes_flipped(seed: u64) -> Result<Reached, String> {
    let mut random = Random::named(seed, "flips");
    let tree = trees::draw(&mut random);
    // What is not verified is taken as it is.
    let options = Options { verify_checksums: true, ..short_option_set(tree, seed) };
    let scale = [1, 4, 100][random.index(3)];
    let env = simulation(seed);
    let allocation = AllocationName::ALL[random.index(AllocationName::ALL.len())];
    let interlaced = Kind::imr(allocation, RewriteName::ALL[random.index(RewriteName::ALL.len())]);
    // Most of a device that is nearly full is not the database's.
    let mut kinds = medium::kinds(|kind| !kind.has_logs_apart() && kind != Kind::EXTENT_NEXT_FIT);
    kinds.insert(0, Kind::PLAIN);
    kinds.push(interlaced);
    let kind = kinds[random.index(kinds.len())];
    let image = match kind.is_imr() {
        true => Image::fresh_of(&Env::real(), kind, 256 * medium::TRACK_BYTES),
        false => Image::fresh(&Env::real(), kind),
    };
    let model = small_store_with(&env, &image, &options, scale);
    let state = image.observed(&Env::real(), &Arc::default()).capture();
    // Files by name, members of an array by number, or the device as one.
    let mut places: Vec<(String, u64)> = Vec::new();
    match &image {
        Image::Directory(_, directory) => {
            for (name, bytes) in files(directory) {
                places.extend((0..bytes.len() as u64).map(|offset| (name.clone(), offset)));
            }
        }
        Image::Several(members) => {
            for (number, member) in members.iter().enumerate() {
                places.extend(written_bytes(member).into_iter().map(|offset| (number.to_string(), offset)));
            }
        }
        Image::Device(..) => places.extend(written_bytes(&image).into_iter().map(|offset| (String::new(), offset))),
    }
    let mut reached = Reached::from([("stores", 1)]);
    for _ in 0..FLIPS_OF_SEED {
        let (name, offset) = &places[random.index(places.len())];
        let image = match state.image(CrashVariant::KeepAll, 0) {
            Image::Directory(_, directory) => {
                let bytes = files(&directory);
                overwrite(&directory, name, *offset, &[bytes[name][*offset as usize] ^ mask(*offset)]);
                Image::Directory(kind, directory)
            }
            Image::Device(_, device) => flipped(kind, device, *offset),
            Image::Several(mut members) => {
                let number: usize = name.parse().expect("the number of a member");
                let Image::Device(_, device) = members[number].clone() else { return Err("no device".to_owned()) };
                members[number] = flipped(kind, device, *offset);
                Image::Several(members)
            }
        };
        let met = examine_with(&simulation(seed), &image, &options, &model)
            .map_err(|what| format!("{kind:?} '{name}' byte {offset}: {what}\n  {options:?}"))?;
        *reached.entry("flips").or_default() += 1;
        *reached.entry(if met == Met::Unnoticed { "harmless" } else { "noticed" }).or_default() += 1;
    }
    Ok(reached)
}

/// Places of a device up to the last byte of each sector that can be read and is not zero.
fn written_bytes(image: &Image) -> Vec<u64> {
    let Image::Device(_, device) = image else { return Vec::new() };
    let mut places = Vec::new();
    let mut block = [0; 512];
    for start in (0..device.block.geometry().capacity_bytes).step_by(block.len()) {
        // What a bottom written later destroyed holds nothing.
        if device.block.read_at(start, &mut block, &IoContext::default()).is_err() {
            continue;
        }
        if let Some(last) = block.iter().rposition(|&byte| byte != 0) {
            places.extend((0..=last as u64).map(|at| start + at));
        }
    }
    places
}

#[test]
fn bytes_flipped_under_any_options_give_an_error_or_the_right_answer() {
    let test = ("flips", "bytes_flipped_under_any_options_give_an_error_or_the_right_answer");
    run_seeds(test, 400_000, 40, &[("flips", 2000), ("noticed", 500)], some_bytes_flipped);
}

fn flip(device: &Device, offset: u64) {
    let start = offset / 512 * 512;
    let mut sector = [0; 512];
    device.block.read_at(start, &mut sector, &IoContext::default()).expect("read");
    sector[(offset - start) as usize] ^= mask(offset);
    device.block.write_at(start, &sector, &IoContext::default()).expect("write");
}

fn error_of(directory: &MemoryDirectory) -> Error {
    let env = simulation(5);
    match open(&env, &Image::plain(directory.clone())) {
        Err(error) => error,
        Ok(db) => {
            let findings = db.check().expect("check");
            panic!("it opens; check says {findings:?}");
        }
    }
}

#[test]
fn a_missing_file_is_named() {
    let (state, _, files) = sample();
    for name in files.keys().filter(|name| *name != "LOCK" && !is_empty_log(&files, name)) {
        let directory = copy(&state);
        directory.remove(name).expect("remove");
        let error = error_of(&directory);
        assert_eq!(error.kind(), ErrorKind::Corruption, "without '{name}': {error}");
        assert!(error.to_string().contains(name.as_str()), "without '{name}': {error}");
    }
}

#[test]
fn a_missing_pointer_beside_a_log_that_holds_writes_is_no_empty_database() {
    let env = simulation(6);
    let directory = MemoryDirectory::new("pointerless");
    let db = open(&env, &Image::plain(directory.clone())).expect("open");
    db.put_with(b"a", b"1", &WriteOptions { sync: true }).expect("put");
    db.close().expect("close");
    drop(db);
    directory.remove("CURRENT").expect("remove");
    let error = error_of(&directory);
    assert!(error.kind() == ErrorKind::Corruption && error.to_string().contains("CURRENT"), "{error}");
    let media = Image::plain(directory.clone()).media(&env).expect("media");
    repair(&env, media, options()).expect("repair");
    let db = open(&env, &Image::plain(directory)).expect("open");
    assert_eq!(db.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    db.close().expect("close");
}

#[test]
fn a_truncated_file_is_named() {
    let (state, model, files) = sample();
    for (name, bytes) in files.iter().filter(|(name, _)| *name != "LOCK" && !is_empty_log(&files, name)) {
        for size in [0, 1, 3, bytes.len() / 2, bytes.len() - 20, bytes.len() - 1] {
            let directory = copy(&state);
            truncate(&directory, name, size as u64);
            let env = simulation(7);
            let note = format!("'{name}' of {} bytes cut to {size}", bytes.len());
            match open(&env, &Image::plain(directory.clone())) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{note}: {error}");
                    assert!(error.to_string().contains(name.as_str()), "{note}: {error}");
                }
                // The end of a log without its seal cannot be told from one that was being written.
                Ok(db) => {
                    drop(db);
                    assert!(size + 18 >= bytes.len(), "{note}: opens");
                    let met = examine(&env, &Image::plain(directory), &model);
                    assert!(met.is_ok(), "{note}: {met:?}");
                }
            }
        }
    }
}

#[test]
fn foreign_and_newer_files_are_told_from_damage() {
    let (state, _, files) = sample();
    let named = |prefix: &str| files.keys().find(|name| name.contains(prefix)).expect("a file").clone();
    // A pointer as LevelDB writes it.
    let directory = copy(&state);
    truncate(&directory, "CURRENT", 0);
    overwrite(&directory, "CURRENT", 0, b"MANIFEST-000004\n");
    let error = error_of(&directory);
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert!(error.to_string().contains("CURRENT"), "{error}");
    // A header of a version to come, with a checksum that fits.
    for prefix in [".log", "MANIFEST"] {
        let name = named(prefix);
        let directory = copy(&state);
        let mut header = files[&name][..64].to_vec();
        header[8] = 9;
        let checksum = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&checksum.to_le_bytes());
        overwrite(&directory, &name, 0, &header);
        let error = error_of(&directory);
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        let text = error.to_string();
        assert!(text.contains(&name) && text.contains("offset 8") && text.contains("newer version"), "{text}");
    }
    // Another program's file under a table's name, as long as the table was.
    let name = named(".sst");
    let directory = copy(&state);
    overwrite(&directory, &name, 0, &vec![b'x'; files[&name].len()]);
    let env = simulation(8);
    let db = open(&env, &Image::plain(directory)).expect("tables are opened when they are read");
    let errors: Vec<Error> = (0..24).filter_map(|number| db.get(format!("key{number:03}").as_bytes()).err()).collect();
    assert!(!errors.is_empty());
    for error in &errors {
        assert!(typed(error).is_ok() && error.to_string().contains(&name), "{error}");
    }
    assert!(!db.check().expect("check").is_empty());
}

#[test]
fn repair_brings_back_what_is_not_damaged() {
    let (state, model, files) = sample();
    let damages: Vec<(String, Option<u64>)> = files
        .iter()
        .filter(|(name, _)| *name != "LOCK" && !is_empty_log(&files, name))
        .flat_map(|(name, bytes)| {
            let middle = bytes.len() as u64 / 2;
            [(name.clone(), None), (name.clone(), Some(20)), (name.clone(), Some(middle))]
        })
        .collect();
    for (name, damage) in damages {
        let note = format!("'{name}' damaged at {damage:?}");
        let directory = copy(&state);
        match damage {
            Some(offset) => overwrite(&directory, &name, offset, &[files[&name][offset as usize] ^ 0xff]),
            None => directory.remove(&name).expect("remove"),
        }
        let env = simulation(9);
        let image = Image::plain(directory);
        let media = image.media(&env).expect("media");
        let report = repair(&env, media, options()).unwrap_or_else(|error| panic!("{note}: repair: {error}"));
        let db = open(&env, &image).unwrap_or_else(|error| panic!("{note}: does not open after repair: {error}"));
        assert_eq!(db.check().expect("check"), [], "{note}");
        let mut found = State::new();
        let mut walk = db.iterator(&ReadOptions::default()).expect("iterator");
        walk.seek_to_first();
        while walk.valid() {
            found.insert(walk.key().to_vec(), walk.value().to_vec());
            walk.next();
        }
        walk.status().expect("status");
        drop(walk);
        let lost = model.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
        if name == "CURRENT" || name.starts_with("MANIFEST") {
            // Tables and logs hold everything.
            assert_eq!(found, model, "{note}");
        } else {
            // Keys that only the damaged file knew may be lost or older; the others are there.
            assert!(lost < model.len() && !found.is_empty(), "{note}: {lost} of {} keys lost", model.len());
            assert!(!report.findings.is_empty() || damage.is_none() || lost == 0, "{note}: {report:?}");
        }
        for (key, value) in &found {
            let known = |number: u32, length: usize| value == &vec![b'a' + (number % 26) as u8; length];
            let number: u32 = String::from_utf8_lossy(&key[3..]).parse().expect("a key of the store");
            let ever = known(number, 40) || known(number, 50) || known(number, 20);
            assert!(
                ever || value == b"synced" || value.is_empty(),
                "{note}: {} has a value it never had",
                key.escape_ascii()
            );
        }
        db.put_with(b"key900", b"after", &WriteOptions { sync: true }).expect("put");
        db.close().expect("close");
        drop(db);
        let db = open(&env, &image).expect("reopen");
        assert_eq!(db.get(b"key900").expect("get").as_deref(), Some(&b"after"[..]), "{note}");
        db.close().expect("close");
    }
}
