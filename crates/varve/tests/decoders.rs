//! Every fuzz target without the fuzzer: on its first inputs, and on inputs made from those by damage that is drawn by seed.
//!
//! The fuzzer finds more, for it sees what an input reaches; but its programs take longer to build than all the suites, so
//! `cargo xtask soak` runs it. `VARVE_SOAK_SECONDS=n` goes on for n seconds, `VARVE_SEED=n` begins at that seed.

// The targets name the fuzzer's crate, which is this one here.
extern crate self as libfuzzer_sys;

#[path = "../../../fuzz/first_inputs.rs"]
mod first_inputs;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use varve::env::{Env, Random};
use varve::{Spec, Varve};

macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        pub(crate) fn run($bytes: &[u8]) {
            $body
        }
    };
}
pub(crate) use fuzz_target;

/// A target, its name and how many damaged inputs a regular run gives it.
type Target = (&'static str, u64, fn(&[u8]));

macro_rules! targets {
    ($($name:ident at $path:literal: $inputs:literal),* $(,)?) => {
        $(
            #[path = $path]
            #[allow(unused_attributes, unreachable_pub, dead_code, reason = "as a program it is more than this test takes of it")]
            mod $name;
        )*
        const TARGETS: &[Target] = &[$((stringify!($name), $inputs, $name::run)),*];
    };
}

targets! {
    array_member at "../../../fuzz/targets/array_member.rs": 50_000,
    band_table at "../../../fuzz/targets/band_table.rs": 50_000,
    batch at "../../../fuzz/targets/batch.rs": 50_000,
    configuration at "../../../fuzz/targets/configuration.rs": 50_000,
    identity at "../../../fuzz/targets/identity.rs": 50_000,
    intent at "../../../fuzz/targets/intent.rs": 50_000,
    log at "../../../fuzz/targets/log.rs": 50_000,
    log_frame at "../../../fuzz/targets/log_frame.rs": 50_000,
    manifest at "../../../fuzz/targets/manifest.rs": 50_000,
    media_cache_record at "../../../fuzz/targets/media_cache_record.rs": 50_000,
    memory_trailer at "../../../fuzz/targets/memory_trailer.rs": 50_000,
    relocation_journal at "../../../fuzz/targets/relocation_journal.rs": 50_000,
    s2tmap at "../../../fuzz/targets/s2tmap.rs": 50_000,
    scsi_responses at "../../../fuzz/targets/scsi_responses.rs": 50_000,
    spec at "../../../fuzz/targets/spec.rs": 50_000,
    store_metadata at "../../../fuzz/targets/store_metadata.rs": 50_000,
    superblock at "../../../fuzz/targets/superblock.rs": 2_000,
    table at "../../../fuzz/targets/table.rs": 2_000,
    trace at "../../../fuzz/targets/trace.rs": 10_000,
    write_buffer at "../../../fuzz/targets/write_buffer.rs": 50_000,
    zone_record at "../../../fuzz/targets/zone_record.rs": 50_000,
}

/// Longest input, as with the fuzzer.
const INPUT_BYTES_MAX: usize = 65_536;

/// Values that lengths and counts are set to.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, i64::MAX as u64, u64::MAX];

/// Files of a small database and the begin of a device that holds one.
struct Database {
    files: Vec<(String, Vec<u8>)>,
    image: Vec<u8>,
}

impl Database {
    fn make() -> Database {
        let directory = tempfile::tempdir().unwrap();
        let (place, image) = (directory.path().join("files"), directory.path().join("image"));
        let db = Varve::open(&place).unwrap();
        for number in 0..400u32 {
            db.put(format!("key {number:05}"), vec![number as u8; 100]).unwrap();
        }
        db.compact().unwrap();
        db.put("key", "value").unwrap();
        let device: Spec = format!("ram:16MiB?backing=file:{}", image.display()).parse().unwrap();
        db.checkpoint_spec(&device).unwrap();
        db.close().unwrap();
        let read = |path: &Path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes.truncate(INPUT_BYTES_MAX);
            bytes
        };
        let files = std::fs::read_dir(&place).unwrap().map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().to_string_lossy().into_owned(), read(&entry.path()))
        });
        Database { files: files.collect(), image: read(&image) }
    }

    /// What `target` begins with; zeros and random bytes if nothing is known that comes past its checks.
    fn first_inputs(&self, target: &str) -> Vec<Vec<u8>> {
        let mut inputs: Vec<Vec<u8>> = first_inputs::of(target).into_iter().map(<[u8]>::to_vec).collect();
        let part = match target {
            "log" => ".log",
            "table" => ".sst",
            "manifest" => "MANIFEST",
            "configuration" => "OPTIONS",
            _ => "none of them",
        };
        let before = inputs.len();
        inputs.extend(self.files.iter().filter(|(name, _)| name.contains(part)).map(|(_, bytes)| bytes.clone()));
        assert!(part == "none of them" || inputs.len() > before, "the database has no file {part}");
        match target {
            "identity" | "store_metadata" => inputs.push(self.image.clone()),
            // Its first byte is the number of a store, or of none.
            "superblock" => inputs.extend((0..8).map(|store| [&[store], &self.image[..]].concat())),
            _ => {}
        }
        if inputs.is_empty() {
            let mut bytes = vec![0; 4096];
            inputs.push(bytes.clone());
            Random::named(0, target).fill_bytes(&mut bytes);
            inputs.push(bytes);
        }
        inputs
    }
}

/// One of `inputs` with one to six damages.
fn damaged(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = inputs[random.index(inputs.len())].clone();
    for _ in 0..=random.below(6) {
        let place = random.index(bytes.len() + 1);
        // Lengths and kinds stand at the begin more often than not.
        let place = if random.chance(1, 2) { place.min(random.index(64)) } else { place };
        let span = place..bytes.len().min(place + 1 + random.index(32));
        match random.below(9) {
            0 => bytes.truncate(place),
            1 => bytes[span].fill(0),
            2 => bytes[span].fill(0xff),
            3 => random.fill_bytes(&mut bytes[span]),
            4 => {
                let mut new = vec![0; 1 + random.index(64)];
                random.fill_bytes(&mut new);
                bytes.splice(place..place, new);
            }
            5 => {
                let again = bytes[span].to_vec();
                bytes.splice(place..place, again);
            }
            6 => {
                let other = &inputs[random.index(inputs.len())];
                let from = random.index(other.len() + 1);
                bytes.truncate(place);
                bytes.extend_from_slice(&other[from..]);
            }
            7 => {
                let (edge, width) = (EDGES[random.index(EDGES.len())].to_le_bytes(), 1 << random.below(4));
                let end = bytes.len().min(place + width);
                bytes[place..end].copy_from_slice(&edge[..end - place]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
        bytes.truncate(INPUT_BYTES_MAX);
    }
    bytes
}

/// Runs a target; an input on which it panics is kept in a file.
///
/// # Panics
/// When the target does, naming that file.
fn run((name, _, run): Target, bytes: &[u8], seed: u64) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(bytes))) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{seed}"));
        std::fs::write(&file, bytes).unwrap();
        eprintln!("{name}: the input is in {}; again: VARVE_SEED={seed}", file.display());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn no_decoder_panics_on_damaged_inputs() {
    let said = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let (first_seed, soak) = (said("VARVE_SEED").unwrap_or(1), said("VARVE_SOAK_SECONDS").map(Duration::from_secs));
    let (env, database) = (Env::real(), Database::make());
    for target in TARGETS {
        let inputs = database.first_inputs(target.0);
        inputs.iter().for_each(|bytes| run(*target, bytes, 0));
        let until = soak.map(|soak| env.now() + soak / TARGETS.len() as u32);
        let mut count = 0;
        for seed in first_seed.. {
            if until.map_or(count == target.1, |until| env.now() >= until) {
                break;
            }
            let mut random = Random::named(seed, target.0);
            run(*target, &damaged(&inputs, &mut random), seed);
            count += 1;
        }
        println!("reached: decoders/{}: {count} inputs", target.0);
    }
}

#[test]
fn each_target_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/targets");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let names: BTreeSet<String> = names.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let listed = TARGETS.iter().map(|(name, ..)| (*name).to_owned());
    // The canary fails by design: it shows that the fuzzer is guided.
    assert_eq!(names, listed.chain(["canary".to_owned()]).collect::<BTreeSet<_>>());
}
