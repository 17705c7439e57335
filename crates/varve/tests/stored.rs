//! Whole databases as earlier versions stored them, on every kind of medium: this version opens, reads, checks and goes on
//! with each.
//!
//! They are in `testdata/stores/`, a folder for each time at which the formats, or what is written in them, became another,
//! numbered from 1, and never changed afterwards. After such a change this adds what the present version stores; with `new`
//! in place of `all`, after a medium or a tree was added, what nobody has stored yet:
//!
//! ```text
//! VARVE_STORE_TESTDATA=all cargo test -p varve --test stored -- --ignored
//! ```

#[path = "stored/archive.rs"]
mod archive;
#[path = "stored/history.rs"]
mod history;
#[path = "stored/media.rs"]
mod media;
#[path = "stored/newer.rs"]
mod newer;

use history::Model;
use media::{MANIFEST, MEDIA, Manifest, OnTiers, Stored, WITHOUT};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use varve::env::Env;
use varve::repair::Severity;
use varve::store::{FileStore, OccupancyPiece};
use varve::{ErrorKind, TreeKind, Varve};
use varve_store::{CreateOptions, FileKind, IoContext, OpenOptions};

/// Says that a new time is to be added to what is stored.
const STORE: &str = "VARVE_STORE_TESTDATA";

/// What all that is stored may have in the repository.
const TESTDATA_BYTES_MAX: u64 = 2 << 20;

fn archive_of(folder: &Path, stored: &Stored) -> std::path::PathBuf {
    folder.join(format!("{}.store", stored.name))
}

/// The databases of every time, with the time.
fn all() -> Vec<(String, Stored, Vec<u8>)> {
    let mut all = Vec::new();
    for (folder, manifest) in media::times() {
        for stored in manifest.stores {
            let path = archive_of(&folder, &stored);
            let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let time = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            all.push((format!("stores/{time}/{}", stored.name), stored, bytes));
        }
    }
    all
}

fn check(db: &Varve, name: &str) {
    let findings = db.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(findings.iter().all(|finding| finding.severity < Severity::Error), "{name}: {findings:?}");
}

fn compare(db: &Varve, model: &Model, name: &str) {
    history::compare(db, model).unwrap_or_else(|what| panic!("{name}: {what}"));
}

/// What of it can be told without reading pairs.
fn shape(db: &Varve) -> (u64, Vec<usize>) {
    let statistics = db.statistics();
    (statistics.last_sequence, statistics.levels().iter().map(|level| level.tables).collect())
}

/// Opens one for reading, reads and checks it, and goes on with it.
fn go_on(name: &str, stored: &Stored, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(bytes, folder.path()).unwrap_or_else(|what| panic!("{name}: {what}"));
    let spec = stored.spec_in(folder.path());
    let builder = || Varve::builder().env(&spec.suitable_env(stored.seed)).options(stored.options());
    let mut model = stored.model();
    assert_eq!((model.len(), history::checksum(&model)), (stored.pairs, stored.checksum), "{name}: another history");

    let before = archive::files(folder.path());
    let db = builder().read_only(true).open_spec(&spec).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(shape(&db), (stored.last_sequence, stored.tables.clone()), "{name}");
    if stored.tiers.is_some() {
        assert_eq!(Some(OnTiers::of(&db.stack().files().occupancy())), stored.tiers, "{name}");
        let file = db.stack().files().open(IN_PARTS, &OpenOptions::default()).unwrap();
        let mut found = vec![0; file.size_bytes() as usize];
        file.read_at(0, &mut found, &IoContext::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!found.is_empty() && found == in_parts(file.size_bytes()), "{name}: another '{IN_PARTS}'");
    }
    compare(&db, &model, name);
    check(&db, name);
    db.close().unwrap();
    assert!(archive::files(folder.path()) == before, "{name}: reading changed something");

    let later = history::later_steps(stored.seed);
    let db = builder().open_spec(&spec).unwrap_or_else(|error| panic!("{name}: {error}"));
    compare(&db, &model, name);
    history::run(&db, &later).unwrap_or_else(|error| panic!("{name}: {error}"));
    history::apply(&later, &mut model);
    db.close().unwrap_or_else(|error| panic!("{name}: {error}"));
    let db = builder().open_spec(&spec).unwrap_or_else(|error| panic!("{name}: {error}"));
    compare(&db, &model, name);
    db.compact().unwrap_or_else(|error| panic!("{name}: {error}"));
    compare(&db, &model, name);
    check(&db, name);
    db.close().unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Media wait for syncs most of the time.
const THREADS: usize = 4;

#[test]
fn every_version_opens_reads_checks_and_goes_on_with_what_was_stored() {
    let env = Env::real();
    let all = Arc::new(all());
    let next = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (all, next) = (all.clone(), next.clone());
            env.spawn("stored", move || {
                while let Some((name, stored, bytes)) = all.get(next.fetch_add(1, Ordering::SeqCst)) {
                    go_on(name, stored, bytes);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
    let pairs: usize = all.iter().map(|(_, stored, _)| stored.pairs).sum();
    println!("reached: stored: {} stores, {pairs} pairs", all.len());
}

#[test]
fn a_newer_version_is_refused_by_name_and_nothing_is_changed() {
    let mut refusals = 0;
    let stored = media::times()
        .into_iter()
        .flat_map(|(folder, manifest)| manifest.stores.into_iter().map(move |stored| (folder.clone(), stored)));
    for (folder, stored) in stored {
        let bytes = std::fs::read(archive_of(&folder, &stored)).unwrap();
        for structure in newer::STRUCTURES {
            let folder = tempfile::tempdir().unwrap();
            archive::unpack(&bytes, folder.path()).unwrap();
            if !newer::raise(folder.path(), structure) {
                continue;
            }
            let note = format!("{}, {}", stored.name, structure.name);
            let spec = stored.spec_in(folder.path());
            let before = archive::files(folder.path());
            let builder = || Varve::builder().env(&spec.suitable_env(1)).options(stored.options());
            let refuse = |what: String| {
                assert!(what.contains("version") && what.contains(", found "), "{note}: {what}");
            };
            if structure.is_read_late {
                let db = builder().read_only(true).open_spec(&spec).unwrap_or_else(|error| panic!("{note}: {error}"));
                refuse(history::compare(&db, &stored.model()).expect_err(&note));
                assert!(db.check().is_ok_and(|findings| !findings.is_empty()), "{note}: nothing is found");
            } else {
                for refused in [builder().read_only(true).open_spec(&spec), builder().open_spec(&spec)] {
                    let error = refused.err().unwrap_or_else(|| panic!("{note}: it was opened"));
                    assert_eq!(error.kind(), structure.kind, "{note}: {error}");
                    refuse(error.to_string());
                }
            }
            assert!(archive::files(folder.path()) == before, "{note}: it was changed");
            refusals += 1;
        }
    }
    println!("reached: stored/newer: {refusals} refusals");
}

/// Those who add a kind of medium or a store are told to store one.
#[test]
fn every_kind_of_medium_is_stored() {
    let specs = || MEDIA.iter().chain(WITHOUT).map(|(_, spec)| *spec);
    for kind in varve::spec::media_kinds() {
        let begin = format!("{}:", kind.name);
        assert!(specs().any(|spec| spec.starts_with(&begin)), "no store on {begin} is kept in testdata/stores");
    }
    for (kind, spec) in WITHOUT {
        let folder = tempfile::tempdir().unwrap();
        let spec = media::spec_in(spec, folder.path());
        let error = Varve::builder().env(&spec.suitable_env(1)).open_spec(&spec).err();
        let error = error.unwrap_or_else(|| panic!("{kind} carries a database: one has to be kept in testdata/stores"));
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let missing: Vec<String> = Stored::missing().into_iter().map(|stored| stored.name).collect();
    assert!(missing.is_empty(), "not stored, see the module: {missing:?}");
}

#[test]
fn what_is_stored_stays_small() {
    let mut size_bytes = 0;
    for (folder, _) in media::times() {
        for entry in std::fs::read_dir(folder).unwrap() {
            size_bytes += entry.unwrap().metadata().unwrap().len();
        }
    }
    println!("{size_bytes} bytes are stored");
    assert!(size_bytes <= TESTDATA_BYTES_MAX, "{size_bytes} bytes");
}

/// The comparison notices another byte, a pair too many, and one too few; an archive, a byte that changed.
#[test]
fn another_byte_is_noticed() {
    let (name, stored, mut bytes) = all().swap_remove(0);
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(&bytes, folder.path()).unwrap();
    let db = Varve::builder().options(stored.options()).open_spec(&stored.spec_in(folder.path())).unwrap();
    let model = stored.model();
    compare(&db, &model, &name);
    let (key, value) = model.iter().find(|(_, value)| value.len() > 1).unwrap();
    let mut changed = model.clone();
    changed.insert(key.clone(), [&value[..value.len() - 1], &[value[value.len() - 1] ^ 1]].concat());
    let mut fewer = model.clone();
    fewer.remove(key);
    let mut more = model.clone();
    more.insert(b"nobody wrote it".to_vec(), Vec::new());
    for other in [changed, fewer, more] {
        history::compare(&db, &other).unwrap_err();
        assert_ne!(history::checksum(&other), stored.checksum);
    }
    db.close().unwrap();
    for at in [0, 9, 13, bytes.len() / 2, bytes.len() - 1] {
        bytes[at] ^= 1;
        archive::unpack(&bytes, tempfile::tempdir().unwrap().path()).unwrap_err();
        bytes[at] ^= 1;
    }
    archive::unpack(&bytes[..bytes.len() - 1], tempfile::tempdir().unwrap().path()).unwrap_err();
}

/// Times that what is to be stored is read until blocks of it are cached.
const READS_MAX: usize = 100;

/// A file of which a part lies on another device, in a store of several: none of the database's.
const IN_PARTS: &str = "in-parts";

/// Its bytes.
fn in_parts(size_bytes: u64) -> Vec<u8> {
    (0..size_bytes).map(|at| (at % 251) as u8).collect()
}

/// Fills the fast device but for a zone, and writes the file until it goes on on the other one.
fn store_in_parts(files: &dyn FileStore) {
    let options = CreateOptions { kind: FileKind::Table, level: Some(0), ..CreateOptions::default() };
    let context = IoContext::default();
    let devices_of = |name: &str| {
        let occupancy = files.occupancy();
        let is_it =
            |piece: &&OccupancyPiece| piece.file.is_some_and(|file| occupancy.files[file as usize].name == name);
        occupancy.pieces.iter().filter(is_it).map(|piece| piece.device).collect::<BTreeSet<u16>>()
    };
    let write_until = |name: &str, is_enough: &dyn Fn() -> bool| {
        let mut writer = files.create(name, &options).unwrap();
        for piece in in_parts(100 * PIECE_BYTES).chunks(PIECE_BYTES as usize) {
            writer.append(piece, &context).unwrap();
            writer.flush(&context).unwrap();
            if is_enough() {
                break;
            }
        }
        writer.sync(&context).unwrap();
        writer.finish(&context).unwrap();
    };
    let filling = |number: usize| format!("filling-{number}");
    let is_full = |number: &usize| {
        write_until(&filling(*number), &|| true);
        devices_of(&filling(*number)) == BTreeSet::from([1])
    };
    let last = (0..100).find(is_full).unwrap();
    files.remove(&filling(last - 1)).unwrap();
    files.sync_names().unwrap();
    write_until(IN_PARTS, &|| devices_of(IN_PARTS).len() > 1);
    assert_eq!(devices_of(IN_PARTS).len(), 2, "all of it lies on one device");
    (0..=last).filter(|number| number + 1 != last).for_each(|number| files.remove(&filling(number)).unwrap());
    files.sync_names().unwrap();
}

/// Bytes written at once.
const PIECE_BYTES: u64 = 4000;

/// Makes one of `wanted` and says what it holds.
fn store(wanted: Stored) -> (Stored, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let spec = wanted.spec_in(folder.path());
    let env = spec.suitable_env(wanted.seed);
    let name = wanted.name.clone();
    let db =
        Varve::builder().env(&env).options(wanted.options()).open_spec(&spec).unwrap_or_else(|e| panic!("{name}: {e}"));
    let steps = history::steps(wanted.seed);
    let (before, after) = steps.split_at(steps.len() / 2);
    let run = |steps: &[history::Step]| {
        history::run(&db, steps).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    run(before);
    let tiers = || wanted.is_tiered().then(|| OnTiers::of(&db.stack().files().occupancy()));
    // Reading caches, which somebody beside does.
    let read = |steps: &[history::Step]| {
        let mut model = history::Model::new();
        history::apply(steps, &mut model);
        for _ in 0..READS_MAX {
            compare(&db, &model, &name);
            if tiers().is_none_or(|tiers| tiers.cached_zones > 0) {
                break;
            }
        }
    };
    read(before);
    run(after);
    read(&steps);
    if wanted.is_tiered() {
        store_in_parts(&**db.stack().files());
    }
    let model = wanted.model();
    let statistics = db.statistics();
    let tiers = tiers();
    if let Some(OnTiers { files, files_of_parts, cached_zones }) = &tiers {
        println!("{name}: {tiers:?}");
        assert!(files.iter().all(|count| *count > 0) && *files_of_parts == 1, "{name}: {tiers:?}");
        // Others have few blocks to read.
        assert!(*cached_zones > 0 || wanted.tree != TreeKind::Leveled, "{name}: {tiers:?}");
    }
    let deletions: u64 = statistics.levels().iter().map(|level| level.deletions).sum();
    let (last_sequence, tables) = shape(&db);
    if statistics.tables.is_some() {
        assert!(statistics.memtable_bytes > 0 && deletions > 0, "{name}: {statistics:?}");
        assert!(tables.iter().filter(|&&tables| tables > 0).count() > 1, "{name}: tables {tables:?}");
    }
    let archive = match wanted.is_closed {
        true => {
            db.close().unwrap();
            archive::pack(folder.path())
        }
        false => archive::pack(folder.path()),
    };
    let checksum = history::checksum(&model);
    (Stored { pairs: model.len(), checksum, last_sequence, tables, tiers, ..wanted }, archive)
}

#[test]
#[ignore = "adds to what is stored, see the module"]
fn the_present_version_stores_its_own() {
    let wanted = match std::env::var(STORE).as_deref() {
        Ok("all") => Stored::all(),
        Ok("new") => Stored::missing(),
        _ => return println!("nothing is stored unless {STORE} is all or new"),
    };
    let (stores, archives): (Vec<_>, Vec<_>) = wanted.into_iter().map(store).unzip();
    let folder = media::place().join((media::times().len() + 1).to_string());
    std::fs::create_dir_all(media::place()).unwrap();
    // Never over what is there.
    std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for (stored, archive) in stores.iter().zip(&archives) {
        std::fs::write(archive_of(&folder, stored), archive).unwrap();
        println!("{:6} bytes, tables {:?}: {}", archive.len(), stored.tables, stored.name);
    }
    let manifest = Manifest { written_by: env!("CARGO_PKG_VERSION").to_owned(), stores };
    std::fs::write(folder.join(MANIFEST), toml::to_string(&manifest).unwrap()).unwrap();
    println!("stored in {}", folder.display());
}
