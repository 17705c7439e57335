//! Images that hold something, opened as something else; images whose creation was interrupted; parts that are lost.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use varve::env::Env;
use varve::stack::StackBuilder;
use varve::{ErrorKind, Options, Spec, Varve};

const CAPACITY_BYTES: u64 = 32 << 20;

/// Specs of every kind of store on an image `@/image`, with what refusals call them.
const MADE: [(&str, &str); 6] = [
    ("disk:32MiB?backing=file:@/image", "'extent' on a conventional device"),
    (
        "disk:32MiB?layout=ext4,group-size=8MiB,journal-size=1MiB,backing=file:@/image",
        "'extent' on a conventional device",
    ),
    ("smr:32MiB?band=512KiB,conventional=4MiB,backing=file:@/image", "'band' on a zoned device"),
    ("imr:32MiB?track=64KiB,table-size=64KiB,backing=file:@/image", "'imr' on an interlaced disk"),
    (
        "imr:32MiB?track=128KiB,table-size=128KiB,small-files=4MiB,logs=inside,backing=file:@/image",
        "'imr' on an interlaced disk",
    ),
    ("disk:32MiB?store=imr,track-size=64KiB,table-size=64KiB,backing=file:@/image", "'imr' on a conventional device"),
];

/// Specs that no store was made by.
const OTHERS: [(&str, &str); 3] = [
    ("dev:@/image", "a conventional device"),
    ("smr:32MiB?band=1MiB,conventional=4MiB,backing=file:@/image", "a zoned device"),
    ("smr:32MiB?band=1MiB,conventional=4MiB,backing=(dev:@/image?buffered)", "a zoned device"),
];

fn spec(text: &str, place: &Path) -> Spec {
    text.replace('@', &place.display().to_string()).parse().unwrap()
}

fn options() -> Options {
    Options { write_buffer_size: 64 << 10, target_file_size_base: 64 << 10, ..Options::default() }
}

fn open(spec: &Spec) -> Result<Varve, varve::Error> {
    Varve::builder().env(&Env::sim(1)).options(options()).open_spec(spec)
}

fn make(spec: &Spec) {
    let db = open(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    db.put(b"key", b"value").unwrap();
    db.close().unwrap();
}

fn holds_the_key(spec: &Spec) {
    let db = open(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]), "{spec}");
    db.close().unwrap();
}

/// A file: its length, and those of its pieces that are not all zeros, by their number.
#[derive(PartialEq, Eq)]
struct Content {
    length_bytes: usize,
    pieces: BTreeMap<usize, Vec<u8>>,
}

/// The content of a file. Images are nearly all zeros, and compared hundreds of times.
fn content(file: &Path) -> Content {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut file = std::fs::File::open(file).unwrap();
    let (mut length_bytes, mut pieces, mut buffer) = (0, BTreeMap::new(), ZEROS.to_vec());
    for number in 0.. {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read(&mut buffer[filled..]).unwrap() {
                0 => break,
                count => filled += count,
            }
        }
        length_bytes += filled;
        if buffer[..filled] != ZEROS[..filled] {
            pieces.insert(number, buffer[..filled].to_vec());
        }
        if filled < buffer.len() {
            break;
        }
    }
    Content { length_bytes, pieces }
}

/// Every file of a folder with its bytes.
fn contents(place: &Path) -> BTreeMap<String, Content> {
    let entries = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), content(&entry.path()))).collect()
}

/// Opened, made, asked for: an error of something foreign, and not a byte or a name changes.
fn refusals(spec: &Spec, place: &Path) -> Vec<String> {
    let before = contents(place);
    let env = Env::sim(1);
    let refused = [
        open(spec).map(drop),
        StackBuilder::new(&env).build(spec).map(drop),
        StackBuilder::new(&env).create(false).build(spec).map(drop),
    ];
    let messages = refused.map(|refused| {
        let error = refused.expect_err(&spec.to_string());
        assert_eq!(error.kind(), ErrorKind::Foreign, "{spec}: {error}");
        error.to_string()
    });
    assert!(contents(place) == before, "{spec} changed what it refused");
    messages.into()
}

#[test]
fn every_store_is_refused_as_every_other_by_both_names() {
    for (number, (one, one_name)) in MADE.into_iter().enumerate() {
        let place = tempfile::tempdir().unwrap();
        let made = spec(one, place.path());
        make(&made);
        for (other, other_name) in MADE.into_iter().chain(OTHERS).filter(|(other, _)| *other != one) {
            // A disk whose rules are none is one however it is reached.
            if number < 2 && (other.starts_with("dev:") || other_name == one_name) {
                continue;
            }
            if one_name.starts_with("'imr' on a conv") && other.starts_with("dev:") {
                let refused = refusals(&spec(other, place.path()), place.path());
                assert!(refused.iter().all(|message| message.contains(one_name) && message.contains("'extent'")));
                continue;
            }
            for message in refusals(&spec(other, place.path()), place.path()) {
                assert!(message.contains(one_name), "{one} as {other}: {message}");
                let shape = other_name.rsplit(" on ").next().unwrap();
                assert!(message.contains(shape), "{one} as {other}: {message}");
            }
        }
        holds_the_key(&made);
    }
}

/// The device of logs is not a device for anything else.
#[test]
fn a_medium_of_logs_is_refused_as_a_disk() {
    let place = tempfile::tempdir().unwrap();
    let made = spec(MADE[3].0, place.path());
    make(&made);
    let as_disk = spec("dev:@/image.logs", place.path());
    for message in refusals(&as_disk, place.path()) {
        assert!(message.contains("'imr-logs'") && message.contains("'extent'"), "{message}");
    }
    holds_the_key(&made);
}

fn image(place: &Path, marks: &[(u64, &[u8])]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(place.join("image")).unwrap();
    file.set_len(CAPACITY_BYTES).unwrap();
    for (at, mark) in marks {
        file.write_all_at(mark, *at).unwrap();
    }
}

fn all_refuse(place: &Path, name: &str) {
    for (other, _) in MADE.into_iter().chain(OTHERS) {
        for message in refusals(&spec(other, place), place) {
            assert!(message.contains(name), "{other}: {message}");
        }
    }
}

#[test]
fn what_others_keep_on_a_disk_is_not_taken_for_blank() {
    let marks: [(&str, u64, &[u8]); 9] = [
        ("a swap area", 0xff6, b"SWAPSPACE2"),
        ("an LVM2 physical volume", 512, b"LABELONE"),
        ("ext4", 0x438, &[0x53, 0xef]),
        ("ext4", (1 << 20) + 0x438, &[0x53, 0xef]),
        ("Btrfs", 0x1_0040, b"_BHRfS_M"),
        ("XFS", 0, b"XFSB"),
        ("LUKS", 0, b"LUKS\xba\xbe"),
        ("GPT", CAPACITY_BYTES - 512, b"EFI PART"),
        ("Linux RAID", CAPACITY_BYTES - (8 << 10), &[0xfc, 0x4e, 0x2b, 0xa9]),
    ];
    for (name, at, mark) in marks {
        let place = tempfile::tempdir().unwrap();
        image(place.path(), &[(at, mark)]);
        all_refuse(place.path(), name);
    }
}

/// The same of what the programs themselves write, where there are any.
#[test]
fn real_file_systems_are_not_taken_for_blank() {
    for (name, program, arguments) in [
        ("ext4", "mkfs.ext4", &["-q", "-F"][..]),
        ("a swap area", "mkswap", &["-q"]),
        ("XFS", "mkfs.xfs", &["-q", "-f"]),
        ("FAT", "mkfs.vfat", &[]),
    ] {
        let place = tempfile::tempdir().unwrap();
        image(place.path(), &[]);
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = Command::new("env");
        let made =
            command.arg(format!("PATH={path}")).arg(program).args(arguments).arg(place.path().join("image")).output();
        if !made.is_ok_and(|output| output.status.success()) {
            eprintln!("{program} is not here, or makes nothing so small");
            continue;
        }
        all_refuse(place.path(), name);
    }
}

/// What a process leaves that is killed while the files of a medium are made.
#[test]
fn images_that_were_made_halfway_are_made_again() {
    // Files and their lengths: a file is made, and then it is given its length.
    let halves: [&[(&str, u64)]; 9] = [
        &[("image", 0)],
        &[("image", CAPACITY_BYTES)],
        &[("image.zones", 0)],
        &[("image", CAPACITY_BYTES), ("image.zones", 0)],
        &[("image", CAPACITY_BYTES), ("image.zones.unfinished", 100)],
        &[("image", 0), ("image.logs", 0)],
        &[("image", CAPACITY_BYTES), ("image.logs", 0)],
        &[("image", CAPACITY_BYTES), ("image.logs", 1 << 20)],
        &[("image.logs", 0)],
    ];
    for (made, _) in MADE {
        for half in halves {
            let place = tempfile::tempdir().unwrap();
            for (name, length_bytes) in half {
                std::fs::File::create(place.path().join(name)).unwrap().set_len(*length_bytes).unwrap();
            }
            let made = spec(made, place.path());
            make(&made);
            holds_the_key(&made);
        }
    }
    // A record without its image.
    let place = tempfile::tempdir().unwrap();
    let made = spec(MADE[2].0, place.path());
    drop(StackBuilder::new(&Env::sim(1)).devices(&made).unwrap());
    std::fs::remove_file(place.path().join("image")).unwrap();
    make(&made);
    holds_the_key(&made);
}

#[test]
fn a_part_that_is_lost_is_told_and_not_made_anew() {
    for (made, part) in [(MADE[3].0, "image.logs"), (MADE[2].0, "image.zones")] {
        let place = tempfile::tempdir().unwrap();
        let made = spec(made, place.path());
        make(&made);
        for found in [None, Some(&b""[..])] {
            let kept = std::fs::read(place.path().join(part)).unwrap();
            std::fs::remove_file(place.path().join(part)).unwrap();
            found.iter().for_each(|bytes| std::fs::write(place.path().join(part), bytes).unwrap());
            let before = contents(place.path());
            for create in [false, true] {
                let error = StackBuilder::new(&Env::sim(1)).create(create).build(&made).expect_err(part).to_string();
                assert!(error.contains("image") && error.contains("restore"), "{error}");
            }
            assert!(contents(place.path()) == before, "{part} was made anew");
            std::fs::write(place.path().join(part), &kept).unwrap();
            holds_the_key(&made);
        }
    }
}

/// Another store's part is not this one's.
#[test]
fn the_logs_of_another_store_are_refused() {
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&place, &other] {
        make(&spec(MADE[3].0, folder.path()));
    }
    std::fs::copy(other.path().join("image.logs"), place.path().join("image.logs")).unwrap();
    for message in refusals(&spec(MADE[3].0, place.path()), place.path()) {
        assert!(message.contains("with those of store"), "{message}");
    }
}

#[test]
fn a_spec_that_is_refused_leaves_nothing_behind() {
    let place = tempfile::tempdir().unwrap();
    for text in [
        "zns:32MiB?zone=1MiB,zone-capacity=1MiB,store=imr,backing=file:@/image",
        "smr:32MiB?band=1MiB,conventional=4MiB,store=extent,backing=file:@/image",
        "imr:32MiB?track=64KiB,layout=ext4,backing=file:@/image",
    ] {
        let error = open(&spec(text, place.path())).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}: {error}");
        assert!(contents(place.path()).is_empty(), "{text}");
    }
}
