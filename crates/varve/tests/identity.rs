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
    let marks: [(&str, u64, &[u8]); 10] = [
        ("a member of an array (Varve)", 0, b"VARVERAI"),
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

/// A record next to an image says that its bytes lie in zones, even when nothing is on it yet or the store cannot be seen.
#[test]
fn an_image_with_a_record_next_to_it_is_no_disk_without_zones() {
    let made = [
        ("smr:32MiB?band=512KiB,conventional=4MiB,backing=file:@/image", "image.zones"),
        ("zns:32MiB?zone=512KiB,backing=file:@/image", "image.zones"),
        ("hasmr:32MiB?zone=512KiB,cache=1MiB,extents=100,backing=file:@/image", "image.zones"),
        ("smr:32MiB?band=512KiB,conventional=4MiB,backing=(dev:@/image?size=32MiB)", "image.zones"),
    ];
    let others = [
        "dev:@/image",
        "dev:@/image?size=32MiB",
        "disk:32MiB?backing=file:@/image",
        "ssd:32MiB?backing=file:@/image",
        "ram:32MiB?backing=file:@/image",
        "imr:32MiB?track=64KiB,table-size=64KiB,backing=file:@/image",
        "imr:32MiB?track=64KiB,table-size=64KiB,backing=(dev:@/image)",
        "hasmr:32MiB?zone=512KiB,cache=1MiB,extents=100,device-managed,backing=file:@/image",
    ];
    for ((made, record), is_used) in made.into_iter().flat_map(|made| [(made, false), (made, true)]) {
        let place = tempfile::tempdir().unwrap();
        let made = spec(made, place.path());
        drop(StackBuilder::new(&Env::sim(1)).devices(&made).unwrap());
        if is_used {
            make(&made);
        }
        // Without what a store says at the beginning.
        let file = std::fs::File::options().write(true).open(place.path().join("image")).unwrap();
        let mut whole = std::fs::read(place.path().join("image")).unwrap();
        let length = whole.len().min(2 << 20);
        let beginning: Vec<u8> = whole.drain(..length).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; length], 0).unwrap();
        for other in others {
            for message in refusals(&spec(other, place.path()), place.path()) {
                assert!(message.contains(record) && message.contains("smr:"), "{made} as {other}: {message}");
            }
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &beginning, 0).unwrap();
        drop(file);
        if is_used {
            others.iter().for_each(|other| drop(refusals(&spec(other, place.path()), place.path())));
            holds_the_key(&made);
        }
    }
    // What lies in a media cache, alone.
    let place = tempfile::tempdir().unwrap();
    image(place.path(), &[]);
    std::fs::write(place.path().join("image.media-cache"), b"VARVECAC").unwrap();
    for other in others {
        for message in refusals(&spec(other, place.path()), place.path()) {
            assert!(message.contains("image.media-cache"), "{other}: {message}");
        }
    }
}

const HOST_AWARE: &str = "hasmr:32MiB?zone=2MiB,cache=1MiB,extents=100,backing=file:@/image";
const WITH_CONVENTIONAL: &str = "hasmr:32MiB?zone=1MiB,conventional=4MiB,cache=1MiB,extents=100,backing=file:@/image";
/// Bands are the default there.
const MANY_ZONES: &str = "hasmr:32MiB?zone=128KiB,cache=1MiB,extents=100,backing=file:@/image";
const BUFFER: &str = "buffer=(ssd:8MB?backing=file:@/fast),buffer-size=400KiB,buffer-rewrite=0";

/// Openings of the image of a disk of 32 MiB that ask for no layer.
const WITHOUT_LAYERS: [&str; 8] = [
    "dev:@/image",
    "dev:@/image?store=extent",
    "dev:@/image?store=imr,track-size=64KiB,table-size=64KiB",
    "disk:32MiB?backing=file:@/image",
    "imr:32MiB?track=64KiB,table-size=64KiB,backing=(dev:@/image)",
    "hasmr:32MiB?zone=2MiB,cache=1MiB,extents=100,backing=file:@/image",
    "hasmr:32MiB?zone=1MiB,conventional=4MiB,cache=1MiB,extents=100,store=band,backing=file:@/image",
    MANY_ZONES,
];

fn with_database(spec: &Spec, use_it: impl FnOnce(&Varve)) {
    let db = Varve::builder().options(options()).open_spec(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    use_it(&db);
    db.close().unwrap();
}

/// Every ordinary opening of a disk that lies under a layer names the layer and writes nothing, with the records of its
/// zones next to it and without them, and the layer opens it afterwards.
#[test]
fn disks_under_layers_are_refused_without_them() {
    let layers = [
        (format!("{HOST_AWARE},relocate=on"), "relocate=on"),
        (format!("{WITH_CONVENTIONAL},relocate=on"), "relocate=on"),
        (format!("{MANY_ZONES},relocate=on"), "relocate=on"),
        (format!("{HOST_AWARE},{BUFFER}"), "buffer="),
        (format!("disk:32MiB?backing=file:@/image,{BUFFER}"), "buffer="),
    ];
    let mut refused = 0;
    for ((layered, option), is_used) in layers.iter().flat_map(|layer| [(layer, false), (layer, true)]) {
        let (place, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let made = spec(layered, place.path());
        match is_used {
            true => with_database(&made, |db| db.put(b"key", b"value").unwrap()),
            false => drop(StackBuilder::new(&Env::real()).devices(&made).unwrap()),
        }
        let records =
            ["image.zones", "image.media-cache"].map(|name| (place.path().join(name), aside.path().join(name)));
        for has_records in [true, false] {
            if !has_records {
                let there = records.iter().filter(|(record, _)| record.exists());
                there.for_each(|(record, aside)| std::fs::rename(record, aside).unwrap());
            }
            for other in WITHOUT_LAYERS {
                // Other zones than those that the record says are another matter.
                let zones = |text: &str| text.split("cache=").next().map(str::to_owned);
                if has_records
                    && layered.starts_with("hasmr:")
                    && other.starts_with("hasmr:")
                    && zones(other) != zones(layered)
                {
                    continue;
                }
                for message in refusals(&spec(other, place.path()), place.path()) {
                    assert!(message.contains(option), "{layered} as {other}, used: {is_used}: {message}");
                    refused += 1;
                }
            }
        }
        let kept = records.iter().filter(|(_, aside)| aside.exists());
        kept.for_each(|(record, aside)| std::fs::rename(aside, record).unwrap());
        match is_used {
            true => with_database(&made, |db| assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&b"value"[..]))),
            false => drop(StackBuilder::new(&Env::real()).create(false).devices(&made).unwrap()),
        }
    }
    println!("reached: openings without layers: {refused} refused");
    assert!(refused >= 300, "{refused}");
}

/// The device of a write buffer is known by its first sector, and by its last one when the first is gone.
#[test]
fn the_device_of_a_write_buffer_is_refused_by_either_end() {
    use std::os::unix::fs::FileExt;
    let place = tempfile::tempdir().unwrap();
    let made = spec(&format!("{HOST_AWARE},{BUFFER}"), place.path());
    drop(StackBuilder::new(&Env::real()).devices(&made).unwrap());
    let file = std::fs::File::options().read(true).write(true).open(place.path().join("fast")).unwrap();
    let (mut first, mut last, length) = ([0; 4096], [0; 4096], file.metadata().unwrap().len());
    let last_at = length / 4096 * 4096 - 4096;
    file.read_exact_at(&mut first, 0).unwrap();
    file.read_exact_at(&mut last, last_at).unwrap();
    assert_eq!((&first[..8], &last[..8]), (&b"VARVEBUF"[..], &b"VARVEBUF"[..]));
    for (gone, at, bytes) in [("none", 0, first), ("first", 0, [0; 4096]), ("last", last_at, [0; 4096])] {
        file.write_all_at(&bytes, at).unwrap();
        for other in [
            "dev:@/fast",
            "dev:@/fast?store=extent",
            "dev:@/fast?store=imr,track-size=64KiB,table-size=64KiB",
            "ssd:8MB?backing=file:@/fast",
        ] {
            for message in refusals(&spec(other, place.path()), place.path()) {
                assert!(message.contains("the write buffer of a disk"), "{gone} gone, {other}: {message}");
                assert!(message.contains("buffer="), "{message}");
            }
        }
        file.write_all_at(&first, 0).unwrap();
    }
    drop(StackBuilder::new(&Env::real()).create(false).devices(&made).unwrap());
}
