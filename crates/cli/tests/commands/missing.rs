//! Dumps and scans of a database of which one device is missing.

use super::{Place, expect, expect_with, run_with};
use std::collections::BTreeSet;

/// Small memtables, and tables of level 0 that no compaction takes by itself.
const OPTIONS: [&str; 5] = [
    "write_buffer_size=256KiB",
    "max_bytes_for_level_base=1MiB",
    "level0_file_num_compaction_trigger=100",
    "level0_slowdown_writes_trigger=200",
    "level0_stop_writes_trigger=300",
];

fn lines(numbers: std::ops::Range<u32>, version: u32) -> Vec<u8> {
    let value = format!("version {version} ").repeat(40);
    numbers.map(|number| format!("key{number:06}\t{value}{number}\n")).collect::<String>().into_bytes()
}

/// Makes a hybrid set whose old versions are on the slow device and new ones on the fast one, and takes the slow one away. The spec
/// of the other.
fn database_without_its_slow_device(place: &Place) -> String {
    let choices = "store=hybrid,placement=basic-1,migration=none,caching=none";
    let fast = format!("zns:64MiB?zone=1MiB,active=0,open=0,backing=file:{},{choices}", place.path("fast"));
    let slow = format!("smr:128MiB?band=1MiB,conventional=8MiB,backing=file:{}", place.path("slow"));
    let whole = format!("{fast},tiers=01+{slow}");
    let with_options = |command: &'static str| {
        let options = OPTIONS.into_iter().flat_map(|option| ["-o", option]);
        [command].into_iter().chain(options).chain([whole.as_str()]).collect::<Vec<&str>>()
    };
    let load = |numbers, version| expect_with(0, &[with_options("load"), vec!["-"]].concat(), &lines(numbers, version));
    // Tables that overlap are not moved to another level as they are.
    load(0..4000, 1);
    load(0..4000, 2);
    expect(0, &with_options("compact"));
    load(3000..5000, 3);
    std::fs::rename(place.path("slow"), place.path("lost")).unwrap();
    format!("{fast},missing-devices=read-only")
}

fn keys(text: &str) -> BTreeSet<u32> {
    let number = |line: &str| line.strip_prefix("key")?.split('\t').next()?.parse().ok();
    text.lines().map(|line| number(line).unwrap_or_else(|| panic!("a key begins '{line}'"))).collect()
}

#[test]
fn skip_unreadable_leaves_out_the_ranges_of_a_missing_device() {
    let place = Place::new();
    let left = &database_without_its_slow_device(&place);
    let readable: BTreeSet<u32> = (4000..5000).collect();

    // Without the option a walk ends at the first range, and says which.
    for command in [&["dump", left][..], &["scan", left], &["scan", left, "--reverse"], &["scan", left, "--count"]] {
        let output = run_with(command, b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{command:?}: {said}");
        assert!(said.contains("cannot be read") && said.contains("keys from 'key"), "{command:?}: {said}");
    }

    for command in [&["dump", left, "--skip-unreadable"][..], &["scan", left, "--skip-unreadable"]] {
        let output = run_with(command, b"");
        let (found, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert_eq!(keys(&found), readable, "{command:?}");
        assert!(found.lines().all(|line| line.contains("\tversion 3 ")), "{command:?}");
        let left_out = said.lines().filter(|line| line.contains("left out: keys from 'key")).count();
        let total = format!("{left_out} ranges of keys were left out");
        assert!(left_out > 1 && said.contains(&total), "{command:?}: {said}");
    }
    let backwards = expect(1, &["scan", left, "--reverse", "--keys-only", "--skip-unreadable"]);
    assert!(backwards.lines().is_sorted_by(|before, after| before > after), "from the last key to the first");
    assert_eq!(keys(&backwards), readable);
    let counted = expect(1, &["scan", left, "--count", "--skip-unreadable"]);
    assert!(counted.starts_with("1000 pairs,"), "{counted}");

    // What a file does not have is in the result.
    let file = &place.path("pairs.tsv");
    let told: serde_json::Value =
        serde_json::from_str(&expect(1, &["--json", "dump", left, file, "--format", "tsv", "--skip-unreadable"]))
            .unwrap();
    assert_eq!(told["pairs"], 1000);
    let ranges = told["unreadable"].as_array().expect("a list");
    assert!(ranges.len() > 1 && ranges[0]["first"].as_str().is_some_and(|key| key.starts_with("key")), "{told}");
    assert_eq!(keys(&std::fs::read_to_string(file).unwrap()), readable);

    // A range of keys that can all be read ends as usual.
    assert_eq!(keys(&expect(0, &["scan", left, "--from", "key004500", "--skip-unreadable"])), (4500..5000).collect());
}
