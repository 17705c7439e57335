//! What stands where data shall be, what is left of what was refused, and who may read what is made.

use super::{Place, expect, failure, run_with};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// What is below a directory, with sizes.
fn below(path: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.path().symlink_metadata().unwrap();
        found.push((entry.path().display().to_string(), metadata.len()));
        if metadata.is_dir() {
            found.extend(below(&entry.path()));
        }
    }
    found.sort();
    found
}

/// Every command on `spec` is refused, names what is there, and ends: a pipe without a reader once hung them.
fn refused(spec: &str, what: &str, codes: &[i32]) {
    let commands: [&[&str]; 9] = [
        &["get", spec, "key"],
        &["put", spec, "key", "value"],
        &["scan", spec],
        &["check", spec],
        &["stats", spec],
        &["repair", spec],
        &["repair", spec, "--dry-run"],
        &["media", "format", spec],
        &["media", "describe", spec],
    ];
    for command in commands {
        // That a medium of files is no device is said first.
        if command[0] == "media" && spec.starts_with("file:") {
            continue;
        }
        // That the place is full of other things, too.
        let output = match command[0] {
            "put" => run_with(&[command, &["--allow-non-empty"]].concat(), b""),
            _ => run_with(command, b""),
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(codes.contains(&output.status.code().unwrap_or(-1)), "varve {command:?}: {:?} {errors}", output.status);
        assert!(errors.contains(what), "varve {command:?}: expected '{what}' in {errors}");
        assert!(!errors.contains("orrupt"), "varve {command:?}: {errors}");
    }
}

#[test]
fn places_that_cannot_hold_data_are_named_and_left_alone() {
    let place = Place::new();
    let (pipe, socket, directory) = (place.path("pipe"), place.path("socket"), place.path("directory"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::create_dir(&directory).unwrap();
    let before = below(place.directory.path());
    let others = [
        (pipe.as_str(), "a named pipe"),
        (socket.as_str(), "a socket"),
        (directory.as_str(), "a directory"),
        ("/dev/null", "a character device"),
        ("/proc", "a directory"),
        ("/proc/version", "part of proc"),
        ("/sys/kernel/profiling", "part of sysfs"),
    ];
    for (path, what) in others.into_iter().filter(|(path, _)| Path::new(path).exists()) {
        for spec in [format!("ssd:64MiB?backing=file:{path}"), format!("zns:64MiB?backing=file:{path}")] {
            refused(&spec, what, &[2]);
        }
        refused(&format!("dev:{path}"), what, &[2]);
        refused(&format!("dev:{path}?size=64MiB"), what, &[2]);
        if !Path::new(path).is_dir() {
            refused(&format!("file:{path}"), "not a directory; name a directory", &[6]);
        }
    }
    for path in ["/proc", "/sys"].into_iter().filter(|path| Path::new(path).is_dir()) {
        refused(&format!("file:{path}"), "where the kernel shows its state", &[2]);
    }
    assert_eq!(below(place.directory.path()), before);
    assert!(Path::new(&pipe).metadata().unwrap().file_type().is_fifo());
}

/// What was made for something that then was refused is taken away; what was there stays as it is.
#[test]
fn refused_things_leave_nothing_behind() {
    let place = Place::new();
    let db = &place.db();
    expect(0, &["put", db, "key", "value"]);
    let before = below(place.directory.path());
    let at = |name: &str| place.path(name);
    let full = at("db");
    let specs = [
        format!("ssd:64KiB?backing=file:{}", at("small")),
        format!("imr:256KiB?backing=file:{}", at("small")),
        format!("smr:256MiB?band=1MiB,table=3MiB,backing=file:{}", at("table")),
        format!("zns:64MiB?zone=1MiB,backing=file:{},store=extent", at("zones")),
        format!("zns:64MiB?zone=1MiB,backing=(dev:{}?size=1MiB)", at("zones")),
        format!("zns:64MiB?zone=1MiB,backing=(dev:{}?size=64MiB),store=imr", at("zones")),
        format!("dev:{}?size=100", at("device")),
        format!("dev:{}?size=64KiB", at("device")),
        format!("dev:{}?size=64MiB,engine=uring,depth=9999", at("device")),
        format!("ssd:96MiB?backing=file:{},logs=(dev:{full})", at("image")),
        format!("ssd:96MiB?backing=file:{},logs=(ssd:64KiB?backing=file:{})", at("image"), at("logs")),
        format!("file:{}?logs=(ssd:64KiB?backing=file:{})", at("new/db"), at("logs")),
        format!("file:{}?logs=(dev:{full})", at("new/db")),
    ];
    for spec in &specs {
        let output = run_with(&["put", spec, "key", "value"], b"");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{spec} was taken; the test needs another");
        assert!(!errors.contains("panicked"), "{spec}: {errors}");
        assert_eq!(below(place.directory.path()), before, "{spec}: {errors}");
    }
    // Options that are refused, and checkpoints.
    failure(2, &["put", &at("new/db"), "key", "value", "--option", "max_write_buffer_number=0"]);
    failure(2, &["checkpoint", db, &at("db/inside")]);
    failure(2, &["checkpoint", db, db]);
    failure(2, &["checkpoint", db, &format!("ssd:64KiB?backing=file:{}", at("small"))]);
    let names = |found: &[(String, u64)]| found.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let after = below(place.directory.path());
    let left: Vec<_> = names(&after).into_iter().filter(|name| !name.starts_with(&full)).collect();
    assert_eq!(left, [] as [&str; 0], "{left:?}");
    assert!(!Path::new(&at("db/inside")).exists());
    assert_eq!(expect(0, &["get", db, "key"]), "value");
    // An image that was there before it was refused stays.
    std::fs::write(at("image"), b"").unwrap();
    run_with(&["put", &format!("ssd:64KiB?backing=file:{}", at("image")), "key", "value"], b"");
    assert!(Path::new(&at("image")).exists());
}

/// Who may read what is made: its owner, unless the spec says otherwise, less what the umask takes.
#[test]
fn files_have_the_permissions_the_spec_asks_for() {
    let place = Place::new();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    // As the umask of this process leaves them.
    let probe = place.path("probe");
    std::fs::write(&probe, b"").unwrap();
    let umask = 0o666 & !mode(Path::new(&probe));
    for (option, files, directories) in
        [("", 0o600, 0o700), ("file-mode=640", 0o640, 0o750), ("file-mode=0664", 0o664, 0o775)]
    {
        let name = |kind: &str| place.path(&format!("{kind}{files:o}"));
        let with =
            |spec: &str, sign: &str| if option.is_empty() { spec.to_owned() } else { format!("{spec}{sign}{option}") };
        expect(0, &["put", &with(&format!("file:{}", name("db")), "?"), "key", "value"]);
        expect(0, &["put", &with(&format!("ssd:64MiB?backing=file:{}", name("image")), ","), "key", "value"]);
        expect(
            0,
            &[
                "put",
                &with(&format!("smr:96MiB?band=256KiB,conventional=16MiB,backing=file:{}", name("zones")), ","),
                "key",
                "value",
            ],
        );
        expect(0, &["put", &with(&format!("dev:{}?size=64MiB", name("device")), ","), "key", "value"]);
        assert_eq!(mode(Path::new(&name("db"))), directories & !umask);
        for entry in std::fs::read_dir(name("db")).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), files & !umask, "{}", path.display());
        }
        for file in [name("image"), name("zones"), format!("{}.zones", name("zones")), name("device")] {
            assert_eq!(mode(Path::new(&file)), files & !umask, "{file}");
        }
    }
    // What is there keeps what it has.
    let db = place.path("db600");
    let inode = Path::new(&db).metadata().unwrap().ino();
    expect(0, &["put", &format!("file:{db}?file-mode=644"), "key", "other"]);
    assert_eq!((mode(Path::new(&db)), Path::new(&db).metadata().unwrap().ino()), (0o700 & !umask, inode));
    for wrong in ["400", "755", "0", "rw", "6400", "1600"] {
        let said = failure(2, &["put", &format!("file:{}?file-mode={wrong}", place.path("new")), "key", "value"]);
        assert!(said.contains("permissions such as"), "{said}");
    }
    assert!(!Path::new(&place.path("new")).exists());
}
