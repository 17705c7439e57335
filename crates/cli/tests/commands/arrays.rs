//! Arrays of image files, and the commands of their page.

use super::{Place, expect, failure, json};
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../../../docs/arrays.md");

/// Runs a line as a shell would, in the directory of a place.
fn run_line(place: &Place, line: &str) -> Output {
    let shell = format!("varve() {{ \"$VARVE\" \"$@\"; }}\n{line}");
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).env("VARVE", env!("CARGO_BIN_EXE_varve")).current_dir(place.directory.path());
    command.output().expect("a shell")
}

/// Lines of the first block of the page that begins with a command.
fn lines_of_the_page() -> Vec<&'static str> {
    let (_, rest) = PAGE.split_once("```\nvarve ").expect("a block of commands");
    let (block, _) = rest.split_once("\n```").expect("the end of the block");
    let first_length = block.lines().next().map_or(0, str::len);
    let start = PAGE.len() - rest.len() - "varve ".len();
    let end = start + "varve ".len() + block.len();
    assert!(first_length > 0);
    PAGE[start..end].lines().collect()
}

#[test]
fn the_commands_of_the_page_work() {
    let place = Place::new();
    let lines = lines_of_the_page();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let mut printed = String::new();
    for line in lines {
        let output = run_line(&place, line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}\n{errors}");
        printed.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    assert!(printed.contains("value"), "{printed}");
    assert!(printed.contains("slot 1   lost"), "{printed}");
    assert!(printed.contains(" 0 do not fit, 0 repaired, 0 cannot be read"), "{printed}");
    assert!(place.directory.path().join("d").exists());
}

/// An array of the images that are named, in the directory of a place.
fn array_of(place: &Place, names: &[&str], options: &str) -> String {
    let members: Vec<String> =
        names.iter().map(|name| format!("ram:16MiB?backing=file:{}", place.path(name))).collect();
    format!("raid5:({}){options}", members.join("+"))
}

#[test]
fn status_and_scrub_say_what_is_there() {
    let place = Place::new();
    let spec = array_of(&place, &["a", "b", "c"], "");
    let missing = failure(6, &["array", "status", &spec]);
    assert!(missing.contains("a"), "{missing}");
    expect(0, &["put", &spec, "key", "value"]);
    let status = json(&["array", "status", &spec]);
    let array = &status["arrays"][0];
    assert_eq!((array["level"].as_u64(), array["whole"].as_bool()), (Some(5), Some(true)), "{status}");
    assert_eq!(array["members"].as_array().map(Vec::len), Some(3), "{status}");
    // A part of the parity, or of data, in the middle of a member.
    let path = place.path("b");
    let mut bytes = std::fs::read(&path).unwrap();
    let at = 160 << 10;
    bytes[at] ^= 0x40;
    std::fs::write(&path, bytes).unwrap();
    let report = json(&["array", "scrub", &spec]);
    assert_eq!((&report["arrays"][0]["mismatched_stripes"], &report["sound"]), (&1.into(), &false.into()), "{report}");
    expect(0, &["array", "scrub", &spec, "--repair"]);
    expect(0, &["array", "scrub", &spec]);
    expect(0, &["array", "fail", &spec, "--slot", "2"]);
    let degraded = array_of(&place, &["a", "b"], "?missing=1");
    let status = json(&["array", "status", &degraded]);
    assert_eq!(status["arrays"][0]["members"][2]["state"], "lost", "{status}");
    assert_eq!(expect(0, &["get", &degraded, "key"]), "value");
    // A second member is too much.
    let refused = failure(3, &["array", "fail", &degraded, "--slot", "0"]);
    assert!(refused.contains("slot") || refused.contains("member 0"), "{refused}");
    assert_eq!(expect(0, &["get", &degraded, "key"]), "value");
    let refused = failure(2, &["array", "status", "ram:16MiB"]);
    assert!(!refused.is_empty());
}

#[test]
fn statistics_show_what_an_array_did_and_where_its_tuples_and_journal_lie() {
    let place = Place::new();
    let journal = format!(",journal=(ram:8MiB?backing=file:{})", place.path("j"));
    for (options, beside, journal) in [("", false, "none"), (&format!("?pi=beside{journal}")[..], true, "device")] {
        let names: Vec<String> = ["a", "b", "c"].iter().map(|name| format!("{name}-{journal}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let spec = array_of(&place, &names, options);
        expect(0, &["put", &spec, "key", "value"]);
        let status = &json(&["array", "status", &spec])["arrays"][0];
        assert_eq!(status["journal"], journal, "{status}");
        assert_eq!(status["protection"]["beside"].as_bool().unwrap_or(false), beside, "{status}");
        let stats = json(&["stats", &spec]);
        let devices = stats["devices"].as_array().unwrap();
        assert_eq!(devices.len(), if beside { 5 } else { 4 }, "{stats}");
        assert_eq!(devices[0]["array"]["degraded_members"], 0, "{stats}");
        assert!(devices[0]["array"]["mismatches"].is_u64() && devices[1]["role"] == "member", "{stats}");
        let shown = expect(0, &["stats", &spec]);
        assert!(shown.contains("members that are lost or being rebuilt: 0"), "{shown}");
    }
}
