use super::*;
use crate::layer::CrashVariant;
use std::collections::BTreeMap;

const WRITE: OpenMode = OpenMode { write: true, create: true, truncate: false, direct: false };
const CONTEXT: IoContext = IoContext::of(crate::IoClass::Other);

fn write(directory: &MemoryDirectory, name: &str, offset_bytes: u64, data: &[u8]) -> Arc<dyn DirectoryFile> {
    let file = directory.open(name, WRITE).unwrap();
    file.write_at(offset_bytes, &[IoSlice::new(data)], &CONTEXT).unwrap();
    file
}

fn contents(directory: &MemoryDirectory) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: DirectoryEntry| {
        let mut data = vec![0xEE; entry.size_bytes as usize + 10];
        let file = directory.open(&entry.name, OpenMode::default()).unwrap();
        let count = file.read_at(0, &mut data, &CONTEXT).unwrap();
        assert_eq!(count as u64, entry.size_bytes);
        data.truncate(count);
        (entry.name, data)
    };
    directory.list().unwrap().into_iter().map(read).collect()
}

/// Every variant, the random ones with many seeds.
fn images(state: &DirectoryCrashState) -> Vec<(CrashVariant, u64, BTreeMap<String, Vec<u8>>)> {
    let mut found = Vec::new();
    for variant in CrashVariant::OF_DIRECTORIES {
        for seed in 0..if variant.is_random() { 40 } else { 1 } {
            let image = contents(&state.image(variant, seed));
            assert_eq!(image, contents(&state.image(variant, seed)), "{variant:?} {seed} repeats");
            found.push((variant, seed, image));
        }
    }
    found
}

#[test]
fn synced_contents_and_names_survive_every_variant() {
    let directory = MemoryDirectory::new("ram");
    write(&directory, "a", 0, &[1; 3000]).sync(&CONTEXT).unwrap();
    directory.sync().unwrap();
    write(&directory, "b", 0, &[2; 3000]).sync(&CONTEXT).unwrap();
    write(&directory, "a", 3000, &[3; 3000]);
    for (variant, seed, image) in images(&directory.capture()) {
        assert_eq!(image["a"][..3000], [1; 3000], "{variant:?} {seed}");
        // Synced, but its name was not: there whole or not at all.
        assert!(image.get("b").is_none_or(|data| *data == [2; 3000]), "{variant:?} {seed}");
        for sector in image["a"].chunks(512).skip(6) {
            assert!(sector.iter().all(|&byte| byte == sector[0] && (byte == 3 || byte == 0)), "{variant:?} {seed}");
        }
    }
}

#[test]
fn variants_mean_what_they_say() {
    let directory = MemoryDirectory::new("ram");
    write(&directory, "old", 0, b"old").sync(&CONTEXT).unwrap();
    directory.sync().unwrap();
    write(&directory, "old", 0, b"NEW and longer");
    write(&directory, "new", 0, &[7; 1024]);
    let state = directory.capture();
    let image = |variant| contents(&state.image(variant, 1));
    assert_eq!(image(CrashVariant::KeepAll), contents(&directory));
    assert_eq!(image(CrashVariant::DropAll), BTreeMap::from([("old".into(), b"old".to_vec())]));
    let lengths = image(CrashVariant::LengthsWithoutData);
    assert_eq!(lengths["old"], b"old\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(lengths["new"], [0; 1024]);
    let names = image(CrashVariant::NamesWithoutContents);
    assert_eq!(names, BTreeMap::from([("old".into(), b"old".to_vec()), ("new".into(), vec![])]));
    let kept = image(CrashVariant::ContentsWithoutNames);
    assert_eq!(kept, BTreeMap::from([("old".into(), b"NEW and longer".to_vec())]));
}

#[test]
fn random_variants_reach_every_outcome_that_matters() {
    let directory = MemoryDirectory::new("ram");
    write(&directory, "log", 0, &[0; 2048]).sync(&CONTEXT).unwrap();
    directory.sync().unwrap();
    write(&directory, "log", 0, &[1; 1024]);
    write(&directory, "log", 1024, &[2; 1024]);
    let state = directory.capture();
    let outcomes = |variant| -> std::collections::BTreeSet<[u8; 4]> {
        let sectors = |data: &[u8]| [data[0], data[512], data[1024], data[1536]];
        (0..200).map(|seed| sectors(&contents(&state.image(variant, seed))["log"])).collect()
    };
    // Order kept, and the write at the cut torn.
    let prefix = outcomes(CrashVariant::KeepPrefix);
    assert!(prefix.contains(&[0, 0, 0, 0]) && prefix.contains(&[1, 1, 2, 2]) && prefix.contains(&[1, 1, 0, 2]));
    assert!(prefix.iter().all(|found| found[2..] == [0, 0] || found[..2] == [1, 1]), "{prefix:?}");
    // Order reversed.
    assert!(outcomes(CrashVariant::KeepSuffix).contains(&[0, 0, 2, 2]));
    assert_eq!(outcomes(CrashVariant::DropRandom).len(), 4);
    assert_eq!(outcomes(CrashVariant::TearRandom).len(), 16);
    let last = outcomes(CrashVariant::TearLast);
    assert_eq!(last.len(), 4);
    assert!(last.iter().all(|found| found[..2] == [1, 1]));
}

#[test]
fn a_sector_is_always_a_version_the_file_had() {
    let directory = MemoryDirectory::new("ram");
    write(&directory, "log", 0, &[]);
    directory.sync().unwrap();
    for step in 0..20u8 {
        write(&directory, "log", u64::from(step) * 20, &[step + 1; 20]);
    }
    for (variant, seed, image) in images(&directory.capture()) {
        let written: Vec<u8> = (0..400).map(|at| (at / 20 + 1) as u8).collect();
        let kept = image["log"].iter().take_while(|&&byte| byte != 0).count();
        assert_eq!(image["log"][..kept], written[..kept], "{variant:?} {seed}");
        assert!(image["log"][kept..].iter().all(|&byte| byte == 0), "{variant:?} {seed}");
        assert_eq!(kept % 20, 0, "{variant:?} {seed}");
    }
}

#[test]
fn renames_are_atomic_and_independent_by_name() {
    let directory = MemoryDirectory::new("ram");
    for name in ["CURRENT", "A"] {
        write(&directory, name, 0, name.as_bytes()).sync(&CONTEXT).unwrap();
    }
    directory.sync().unwrap();
    write(&directory, "tmp", 0, b"next").sync(&CONTEXT).unwrap();
    directory.rename("tmp", "CURRENT").unwrap();
    directory.rename("A", "B").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for (variant, seed, image) in images(&directory.capture()) {
        let current = &image["CURRENT"];
        assert!(current == b"CURRENT" || current == b"next", "{variant:?} {seed}");
        assert!(!(current == b"next" && image.contains_key("tmp")), "{variant:?} {seed}");
        assert_ne!(image.contains_key("A"), image.contains_key("B"), "{variant:?} {seed}");
        seen.insert((current == b"next", image.contains_key("B")));
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    directory.sync().unwrap();
    for (variant, seed, image) in images(&directory.capture()) {
        assert_eq!(image.keys().collect::<Vec<_>>(), ["B", "CURRENT"], "{variant:?} {seed}");
        assert_eq!(image["CURRENT"], b"next");
    }
}

#[test]
fn an_unsynced_removal_may_come_back_with_its_content() {
    let directory = MemoryDirectory::new("ram");
    write(&directory, "a", 0, b"alive").sync(&CONTEXT).unwrap();
    directory.sync().unwrap();
    directory.remove("a").unwrap();
    assert_eq!(directory.space().unwrap().available_bytes, directory.space().unwrap().total_bytes);
    let state = directory.capture();
    assert_eq!(contents(&state.image(CrashVariant::DropAll, 0))["a"], b"alive");
    assert!(contents(&state.image(CrashVariant::KeepAll, 0)).is_empty());
    directory.sync().unwrap();
    assert!(contents(&directory.capture().image(CrashVariant::DropAll, 0)).is_empty());
}

#[test]
fn points_come_before_each_operation_and_hold_it_in_flight() {
    let directory = MemoryDirectory::new("ram");
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = log.clone();
    directory.on_persistence_point(move |point| {
        sink.lock().push((point.index, format!("{} {}", point.operation, point.name), point.capture()));
    });
    let file = write(&directory, "a", 0, &[5; 2048]);
    file.sync(&CONTEXT).unwrap();
    file.truncate(100).unwrap();
    directory.rename("a", "b").unwrap();
    directory.sync().unwrap();
    directory.remove("b").unwrap();
    let log = log.lock();
    let labels: Vec<&str> = log.iter().map(|(_, label, _)| label.as_str()).collect();
    assert_eq!(labels, ["open a", "write a", "sync a", "truncate a", "rename a", "directory sync ", "remove b"]);
    assert!(log.iter().zip(0..).all(|((index, ..), expected)| *index == expected));
    assert_eq!(directory.persistence_points(), 7);
    let image = |point: usize, variant| contents(&log[point].2.image(variant, 3));
    assert_eq!(image(0, CrashVariant::KeepAll), BTreeMap::from([("a".into(), vec![])]));
    assert!(image(0, CrashVariant::DropAll).is_empty());
    assert_eq!(image(1, CrashVariant::KeepAll)["a"], [5; 2048]);
    let torn: std::collections::BTreeSet<Vec<u8>> =
        (0..60).map(|seed| contents(&log[1].2.image(CrashVariant::TearLast, seed))["a"].clone()).collect();
    assert!(torn.len() > 8, "{}", torn.len());
    assert_eq!(image(3, CrashVariant::KeepAll)["a"], [5; 100]);
    assert_eq!(image(4, CrashVariant::KeepAll).keys().collect::<Vec<_>>(), ["b"]);
    assert!(image(5, CrashVariant::DropAll).is_empty());
    assert!(image(6, CrashVariant::KeepAll).is_empty());
    assert_eq!(image(6, CrashVariant::DropAll)["b"], [5; 2048]);
}

#[test]
fn a_full_directory_refuses_and_recovers() {
    let options = MemoryDirectoryOptions { capacity_bytes: Some(16384), ..Default::default() };
    let directory = MemoryDirectory::with_options("ram", options);
    let file = write(&directory, "a", 0, &[1; 10_000]);
    let left = Space { total_bytes: 16384, available_bytes: 4096, reserve_bytes: 0, block_bytes: 4096, zones: None };
    assert_eq!(directory.space().unwrap(), left);
    let error = file.write_at(10_000, &[IoSlice::new(&[2; 10_000])], &CONTEXT).unwrap_err();
    assert_eq!(error.kind(), crate::MediaErrorKind::NoSpace, "{error}");
    assert_eq!(file.size_bytes().unwrap(), 16384);
    let other = write(&directory, "b", 0, b"");
    assert_eq!(other.allocate(1).unwrap_err().kind(), crate::MediaErrorKind::NoSpace);
    directory.remove("a").unwrap();
    // Still open, so still there.
    assert_eq!(other.allocate(1).unwrap_err().kind(), crate::MediaErrorKind::NoSpace);
    drop(file);
    other.allocate(16384).unwrap();
    assert_eq!(directory.space().unwrap().available_bytes, 0);
    other.write_at(0, &[IoSlice::new(&[3; 16384])], &CONTEXT).unwrap();
    other.truncate(0).unwrap();
    assert_eq!(directory.space().unwrap().available_bytes, 16384);
}

#[test]
fn captures_are_cheap_enough_for_thousands() {
    let directory = MemoryDirectory::new("ram");
    let states = Arc::new(Mutex::new(Vec::new()));
    let sink = states.clone();
    directory.on_persistence_point(move |point| sink.lock().push(point.capture()));
    for name in 0..20 {
        write(&directory, &format!("table{name}"), 0, &vec![name; 256 << 10]).sync(&CONTEXT).unwrap();
    }
    for step in 0..4000u64 {
        write(&directory, "log", step * 100, &[step as u8; 100]);
    }
    let states = states.lock();
    assert!(states.len() > 4000);
    for (index, state) in states.iter().enumerate().step_by(100) {
        let image = state.image(CrashVariant::KeepAll, index as u64);
        assert!(image.list().unwrap().len() <= 21);
    }
}
