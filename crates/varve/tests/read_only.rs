//! Opening for reading only, of every kind of store: nothing changes, permission to read is enough, and a writer in
//! another process goes on.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use varve::env::Env;
use varve::repair::Severity;
use varve::stack::StackBuilder;
use varve::{ErrorKind, Options, ReadOptions, Spec, Value, Varve, WriteBatch, WriteOptions};

/// Everything below a path but the times of reading.
fn picture(path: &Path) -> BTreeMap<String, (Vec<i64>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let numbers = [metadata.ino() as i64, metadata.mode().into(), metadata.nlink() as i64, metadata.len() as i64];
        let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
        let mut bytes = Vec::new();
        if metadata.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            // Images are long and mostly holes.
            const CHUNK_BYTES: usize = 64 << 10;
            let mut file = std::fs::File::open(&path).unwrap();
            let (mut chunk, zeros) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
            let mut offset = 0u64;
            loop {
                let length = file.read(&mut chunk).unwrap();
                if length == 0 {
                    break;
                }
                if chunk[..length] != zeros[..length] {
                    bytes.extend_from_slice(&offset.to_le_bytes());
                    bytes.extend_from_slice(&chunk[..length]);
                }
                offset += length as u64;
            }
        }
        found.insert(path.display().to_string(), ([numbers, times].concat(), bytes));
    }
    found
}

/// A medium of every kind that lasts, below `place`.
fn specs(place: &Path) -> Vec<Spec> {
    let path = |name: &str| place.join(name).display().to_string();
    [
        path("directory"),
        format!("{}?logs={}", format_args!("file:{}", path("files")), path("logs")),
        format!("disk:64MiB?backing=file:{}", path("disk")),
        format!("ssd:64MiB?layout=ext4,group-size=8MiB,backing=file:{}", path("ext4")),
        format!("smr:512MiB?band=4MiB,backing=file:{}", path("smr")),
        format!("imr:512MiB?table-size=4MiB,backing=file:{}", path("imr")),
        format!("imr:512MiB?table-size=4MiB,small-files=16MiB,logs=inside,backing=file:{}", path("inside")),
        format!("dev:{}?size=64MiB", path("device")),
    ]
    .iter()
    .map(|text| text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
    .collect()
}

fn options() -> Options {
    Options { write_buffer_size: 64 << 10, target_file_size_base: 64 << 10, ..Options::default() }
}

#[test]
fn reading_changes_no_byte_and_no_time_of_any_medium() {
    let place = tempfile::tempdir().unwrap();
    for spec in specs(place.path()) {
        let env = spec.suitable_env(0);
        let before = picture(place.path());
        let builder = || Varve::builder().env(&env).options(options());
        let error =
            builder().read_only(true).open_spec(&spec).err().unwrap_or_else(|| panic!("{spec}: something is there"));
        assert_eq!(error.kind(), ErrorKind::NotFound, "{spec}: {error}");
        assert!(picture(place.path()) == before, "{spec}: something was made");

        // Once left in the middle, with logs to be replayed, and once closed.
        for round in 0..2u32 {
            let db = builder().open_spec(&spec).unwrap();
            for number in 0..300u32 {
                db.put(number.to_le_bytes(), [round as u8; 500]).unwrap();
            }
            db.put_with(b"last", round.to_le_bytes(), &WriteOptions { sync: true }).unwrap();
            db.wait_idle().unwrap();
            if round == 1 {
                db.close().unwrap();
            } else {
                drop(db);
            }
            let before = picture(place.path());
            let db = builder().read_only(true).open_spec(&spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
            let other =
                builder().read_only(true).open_spec(&spec).unwrap_or_else(|error| panic!("{spec}, twice: {error}"));
            assert_eq!(other.get(b"last").unwrap().as_deref(), Some(&round.to_le_bytes()[..]), "{spec}");
            let mut walk = db.cursor(&ReadOptions::default()).unwrap();
            walk.seek_to_first();
            let mut count = 0;
            while walk.valid() {
                count += 1;
                walk.next();
            }
            walk.status().unwrap();
            drop(walk);
            assert_eq!(count, 301, "{spec}");
            let findings = db.check().unwrap();
            assert!(findings.iter().all(|finding| finding.severity < Severity::Error), "{spec}: {findings:?}");
            let _ = (db.statistics(), db.property("varve.stats"), db.stack().files().occupancy());
            assert_eq!(db.put(b"last", b"").map_err(|error| error.kind()), Err(ErrorKind::ReadOnly), "{spec}");
            let store = db.stack().files();
            assert!(store.remove("CURRENT").is_err() && store.lock("LOCK").is_err(), "{spec}");
            other.close().unwrap();
            db.close().unwrap();
            drop(StackBuilder::new(&env).format(true).read_only(true).build(&spec).unwrap());
            assert!(picture(place.path()) == before, "{spec}: reading changed something");
        }
        // So that the next pictures are not of this one too.
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        }
    }
}

#[test]
fn a_medium_of_devices_that_is_open_for_writing_is_refused_and_readers_share_it() {
    let place = tempfile::tempdir().unwrap();
    for spec in specs(place.path()) {
        let env = spec.suitable_env(0);
        let builder = || Varve::builder().env(&env).options(options());
        let writer = builder().open_spec(&spec).unwrap();
        writer.put_with(b"key", b"value", &WriteOptions { sync: true }).unwrap();
        let is_directory = writer.stack().devices().is_empty();
        match builder().read_only(true).open_spec(&spec) {
            Ok(reader) => {
                assert!(is_directory, "{spec}: read while it is written");
                assert_eq!(reader.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
            }
            Err(error) => assert!(!is_directory && error.kind() == ErrorKind::Locked, "{spec}: {error}"),
        }
        writer.close().unwrap();
        let readers = [(); 2].map(|()| builder().read_only(true).open_spec(&spec).unwrap());
        match builder().open_spec(&spec) {
            Ok(_) => assert!(is_directory, "{spec}: written while it is read"),
            Err(error) => assert!(!is_directory && error.kind() == ErrorKind::Locked, "{spec}: {error}"),
        }
        drop(readers);
        builder().open_spec(&spec).unwrap().close().unwrap();
    }
}

/// Where the other process of a test writes.
const WRITER_PLACE: &str = "VARVE_TEST_WRITER_PLACE";

/// Keys beside the count.
const KEYS: u64 = 100;

/// Puts increasing numbers as fast as it can and says how many are acknowledged, until its output is closed.
fn write_numbers(place: &str, mut acknowledged: impl FnMut(u64) -> bool) {
    let mut number = 0;
    loop {
        let options = Options { write_buffer_size: 32 << 10, max_manifest_file_size: 4 << 10, ..options() };
        let db = Varve::builder().options(options).open_spec(&place.parse().unwrap()).unwrap();
        for _ in 0..3000 {
            number += 1;
            let mut batch = WriteBatch::new();
            batch.put(b"count", number.to_string().as_bytes()).unwrap();
            batch.put(format!("key{}", number % KEYS).as_bytes(), format!("{number:0200}").as_bytes()).unwrap();
            db.write_with(batch, &WriteOptions { sync: number.is_multiple_of(50) }).unwrap();
            if !acknowledged(number) {
                db.close().unwrap();
                return;
            }
        }
        db.close().unwrap();
    }
}

/// The other process.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn writer_process() {
    use std::io::Write;
    let Ok(place) = std::env::var(WRITER_PLACE) else { return };
    write_numbers(&place, |number| writeln!(std::io::stdout(), "\nwritten {number}").is_ok());
}

/// One opening holds the state after some number of batches, at least those acknowledged before.
fn read_numbers(place: &str, acknowledged: u64, note: &str) -> u64 {
    let db = Varve::builder().read_only(true).open(place).unwrap_or_else(|error| panic!("{note}: {error}"));
    let value = |key: &str| db.get(key.as_bytes()).unwrap_or_else(|error| panic!("{note}: {error}"));
    let number = |bytes: Value| String::from_utf8(bytes.into_vec()).unwrap().parse::<u64>().unwrap();
    let count = value("count").map_or(0, number);
    assert!(count >= acknowledged, "{note}: {count} of at least {acknowledged}");
    for key in 0..KEYS {
        let newest = (count >= key).then(|| (count - key) / KEYS * KEYS + key).filter(|&newest| newest > 0);
        assert_eq!(value(&format!("key{key}")).map(number), newest, "{note}: key {key} of {count}");
    }
    if count.is_multiple_of(5) {
        let findings = db.check().unwrap();
        assert!(findings.iter().all(|finding| finding.severity < Severity::Error), "{note}: {findings:?}");
    }
    count
}

#[test]
fn beside_a_writer_at_full_speed_in_another_process_and_in_another_thread() {
    const OPENINGS: u64 = 60;
    const OPENINGS_MAX: u64 = 10_000;
    const STATES_MIN: u64 = 20;
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let (by_process, by_thread) = (path("process"), path("thread"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_process", "--ignored", "--nocapture"])
        .env(WRITER_PLACE, &by_process)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let env = Env::real();
    let written = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let ended = Arc::new(AtomicBool::new(false));
    let silent = Arc::new(AtomicBool::new(false));
    let output = BufReader::new(child.stdout.take().unwrap());
    let listener = {
        let (written, ended, silent) = (written[0].clone(), ended.clone(), silent.clone());
        env.spawn("listener", move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(number) = line.strip_prefix("written ").and_then(|number| number.parse().ok()) {
                    written.store(number, Ordering::SeqCst);
                }
                if ended.load(Ordering::SeqCst) {
                    break;
                }
            }
            silent.store(true, Ordering::SeqCst);
        })
    };
    let writer = {
        let (written, ended, by_thread) = (written[1].clone(), ended.clone(), by_thread.clone());
        env.spawn("writer", move || {
            write_numbers(&by_thread, |number| {
                written.store(number, Ordering::SeqCst);
                !ended.load(Ordering::SeqCst)
            });
        })
    };
    for (place, written) in [&by_process, &by_thread].into_iter().zip(&written) {
        while written.load(Ordering::SeqCst) == 0 {
            assert!(!silent.load(Ordering::SeqCst), "the other process ended");
            env.sleep(std::time::Duration::from_millis(5));
        }
        let (mut last, mut states, mut openings) = (0, 0, 0);
        // A machine that is busy may leave the writer no time between two openings.
        while openings < OPENINGS || (states < STATES_MIN && openings < OPENINGS_MAX) {
            let count = read_numbers(place, written.load(Ordering::SeqCst), &format!("{place} opening {openings}"));
            states += u64::from(count > last);
            last = last.max(count);
            openings += 1;
        }
        println!("{openings} openings of {place} found {states} states, the last after {last} batches");
        assert!(states >= STATES_MIN, "{states} states: nobody wrote");
    }
    ended.store(true, Ordering::SeqCst);
    listener.join().unwrap();
    writer.join().unwrap();
    // Its output is closed.
    child.wait().unwrap();
}

/// What another user, or anybody on a medium mounted for reading, may do. Said aloud where it cannot be tried.
#[test]
fn permission_to_read_is_enough() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("directory");
    let spec: Spec = directory.display().to_string().parse().unwrap();
    let db = Varve::builder().options(options()).open_spec(&spec).unwrap();
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
    for entry in std::fs::read_dir(&directory).unwrap() {
        std::fs::set_permissions(entry.unwrap().path(), std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o555)).unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let before = picture(&directory);
    let read = |command: &mut Command, what: &str| {
        let command = command.env(WRITER_PLACE, &directory).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.output() {
            Ok(output) if output.status.success() => println!("{what}: read"),
            Ok(output) if output.status.code() == Some(77) || output.status.code() == Some(126) => {
                println!("{what}: NOT TRIED: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            Ok(output) => panic!("{what}: {}", String::from_utf8_lossy(&output.stdout)),
            Err(error) => println!("{what}: NOT TRIED: {error}"),
        }
    };
    let this = std::env::current_exe().unwrap().display().to_string();
    let reader = ["--exact", "reader_process", "--ignored", "--nocapture"];
    // The directory's owner may always write where root asks; nobody may not.
    let is_root = std::fs::metadata(place.path()).unwrap().uid() == 0;
    if is_root {
        use std::os::unix::process::CommandExt;
        read(Command::new(&this).args(reader).uid(65534).gid(65534), "another user");
    } else {
        read(Command::new(&this).args(reader), "the owner of a directory that cannot be written");
    }
    let mounted = format!(
        "mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}' || exit 77; ! touch '{0}/x' 2>/dev/null || exit 77; \
         exec '{this}' {1}",
        directory.display(),
        reader.join(" ")
    );
    read(Command::new("unshare").args(["--mount", "sh", "-c", &mounted]), "a directory mounted for reading");
    assert!(picture(&directory) == before, "reading changed something");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The other process of the test above.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn reader_process() {
    let Ok(place) = std::env::var(WRITER_PLACE) else { return };
    let db = Varve::builder().read_only(true).open(&place).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(db.check().unwrap(), []);
    db.close().unwrap();
}
