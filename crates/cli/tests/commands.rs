//! The built command on temporary directories: what it prints, what it stores, how it ends.

#[path = "commands/arrays.rs"]
mod arrays;

#[path = "commands/refusals.rs"]
mod refusals;

#[path = "commands/repairing.rs"]
mod repairing;

#[path = "commands/missing.rs"]
mod missing;

#[path = "commands/places.rs"]
mod places;

#[path = "commands/options.rs"]
mod options;

#[path = "commands/awkward.rs"]
mod awkward;

#[path = "commands/reading.rs"]
mod reading;

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// A database in a directory of its own.
    fn db(&self) -> String {
        self.path("db")
    }
}

fn run_with(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // A command that refuses its arguments does not read.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// Runs and expects an exit code; standard output.
fn expect(code: i32, arguments: &[&str]) -> String {
    expect_with(code, arguments, b"")
}

fn expect_with(code: i32, arguments: &[&str], input: &[u8]) -> String {
    let output = run_with(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "varve {arguments:?}\n{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a failing command says.
fn failure(code: i32, arguments: &[&str]) -> String {
    let output = run_with(arguments, b"");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "varve {arguments:?}\n{errors}");
    assert!(output.stdout.is_empty(), "varve {arguments:?}: {:?}", output.stdout);
    errors
}

fn json(arguments: &[&str]) -> Value {
    let output = run_with(&[arguments, &["--json"]].concat(), b"");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("varve {arguments:?}: {error}: {text}"))
}

#[test]
fn put_get_delete_on_a_directory() {
    let place = Place::new();
    let db = &place.db();
    assert_eq!(expect(0, &["put", db, "colour", "blue"]), "");
    assert_eq!(expect(0, &["get", db, "colour"]), "blue");
    expect_with(0, &["put", db, "bytes", "-"], b"a\0\xff\n");
    assert_eq!(run_with(&["get", db, "bytes"], b"").stdout, b"a\0\xff\n");
    expect(0, &["put", db, "00ff", "0102", "--encoding", "hex"]);
    assert_eq!(expect(0, &["get", db, "00ff", "-e", "hex"]), "0102\n");
    std::fs::write(place.path("file"), "contents").unwrap();
    expect(0, &["put", db, "file", "--file", &place.path("file")]);
    assert_eq!(expect(0, &["get", db, "file", "colour"]), "file\tcontents\ncolour\tblue\n");
    assert_eq!(expect(1, &["get", db, "shape", "colour"]), "colour\tblue\n");
    expect(0, &["delete", db, "colour", "file"]);
    assert!(failure(1, &["get", db, "colour"]).contains("no key 'colour'"));
    let found = json(&["get", db, "bytes"]);
    assert_eq!(found["value_base64"], "YQD/Cg==");
    assert_eq!(json(&["get", db, "shape"])["found"], false);
    assert_eq!(json(&["put", db, "k", "v"])["synced"], true);
    assert_eq!(json(&["delete", db, "k"])["deleted"], 1);
}

#[test]
fn an_emulated_disk_on_a_file_keeps_its_contents() {
    let place = Place::new();
    let spec = &format!("disk:10GB?backing=file:{}", place.path("image"));
    assert!(failure(6, &["get", spec, "key"]).contains("there is nothing"));
    assert!(!std::path::Path::new(&place.path("image")).exists());
    expect(0, &["put", spec, "key", "value"]);
    assert_eq!(expect(0, &["get", spec, "key"]), "value");
    assert_eq!(expect(0, &["check", spec]), "clean\n");
    let stats = json(&["stats", spec]);
    assert_eq!(stats["stack"]["devices"][0]["model"], "st500dm002");
    assert!(stats["devices"][0]["time_nanos"]["transfer"].as_u64().unwrap() > 0);
    let files = json(&["media", "inspect", spec]);
    assert!(files["files"].as_array().unwrap().iter().any(|file| file["name"] == "CURRENT"), "{files}");
    // In memory nothing lasts, and it says so.
    let output = run_with(&["put", "ram:64MiB", "key", "value"], b"");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("backing=file:PATH keeps them"));
}

#[test]
fn scan_prints_ranges_both_ways() {
    let place = Place::new();
    let db = &place.db();
    let pairs: String = (0..50).map(|number| format!("k{number:02}\tv{number}\n")).collect();
    expect_with(0, &["load", db], pairs.as_bytes());
    assert_eq!(expect(0, &["scan", db]), pairs);
    assert_eq!(expect(0, &["scan", db, "--from", "k10", "--to", "k12"]), "k10\tv10\nk11\tv11\n");
    assert_eq!(expect(0, &["scan", db, "--prefix", "k4", "--keys-only", "-n", "2"]), "k40\nk41\n");
    assert_eq!(expect(0, &["scan", db, "--reverse", "--limit", "2"]), "k49\tv49\nk48\tv48\n");
    assert_eq!(expect(0, &["scan", db, "--reverse", "--to", "k03", "-n", "1"]), "k02\tv2\n");
    assert_eq!(expect(0, &["scan", db, "--count", "--prefix", "k0"]), "10 pairs, 50 bytes of keys and values\n");
    let lines = expect(0, &["scan", db, "--json", "-n", "3"]);
    let keys: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["key"].clone()).collect();
    assert_eq!(keys, ["k00", "k01", "k02"]);
    assert!(failure(2, &["scan", db, "--prefix", "a", "--from", "b"]).contains("cannot be used with"));
}

#[test]
fn dump_and_load_are_inverses_for_any_bytes() {
    let place = Place::new();
    let db = &place.db();
    let mut random = varve::env::Random::seeded(5);
    let mut hex = String::new();
    for _ in 0..300 {
        let mut bytes = |length: u64| {
            let mut bytes = vec![0; random.below(length) as usize];
            random.fill_bytes(&mut bytes);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        hex.push_str(&format!("{}\t{}\n", bytes(12), bytes(40)));
    }
    expect_with(0, &["load", db, "--encoding", "hex"], hex.as_bytes());
    let reference = expect(0, &["dump", db, "--encoding", "hex"]);
    assert!(reference.lines().count() > 250);
    let forms: [&[&str]; 5] =
        [&[], &["--encoding", "base64"], &["--format", "jsonl"], &["--format", "jsonl", "-e", "hex"], &["-e", "hex"]];
    for (index, form) in forms.iter().enumerate() {
        let copy = &place.path(&format!("copy{index}"));
        let dumped = expect(0, &[&["dump", db], *form].concat());
        expect_with(0, &[&["load", copy], *form].concat(), dumped.as_bytes());
        assert_eq!(expect(0, &["dump", copy, "--encoding", "hex"]), reference, "{form:?}");
    }
    // By the name of the file.
    let file = &place.path("pairs.jsonl");
    expect(0, &["dump", db, file]);
    expect(0, &["load", &place.path("last"), file]);
    assert_eq!(expect(0, &["dump", &place.path("last"), "-e", "hex"]), reference);
    assert!(failure(2, &["dump", db, "--encoding", "raw"]).contains("could not be read back"));
}

#[test]
fn load_tells_bad_lines_by_number() {
    let place = Place::new();
    let db = &place.db();
    let input = b"a\t1\nb 2\nc\t3\n\\q\t4\n";
    let output = run_with(&["load", db], input);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("standard input:2: expected KEY, a tab and VALUE"), "{errors}");
    assert_eq!(expect(0, &["scan", db]), "a\t1\n");
    let output = run_with(&["load", db, "--skip-errors"], input);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(":2: ") && errors.contains(":4: key: '\\q"), "{errors}");
    assert_eq!(expect(0, &["scan", db]), "a\t1\nc\t3\n");
    let output = run_with(&["load", db, "--line-limit", "100B"], &[b'x'; 1000]);
    assert_eq!(output.status.code(), Some(2));
    assert!(failure(3, &["load", db, &place.path("nowhere")]).contains("nowhere"));
    assert!(String::from_utf8(run_with(&["load", db, "--json"], b"d\t4\n").stdout).unwrap().contains("\"pairs\":1"));
}

#[test]
fn import_tree_stores_files_by_path() {
    let place = Place::new();
    let db = &place.db();
    let tree = place.path("tree");
    std::fs::create_dir_all(format!("{tree}/a/b")).unwrap();
    std::fs::create_dir_all(format!("{tree}/empty")).unwrap();
    std::fs::write(format!("{tree}/a/b/deep"), "deep contents").unwrap();
    std::fs::write(format!("{tree}/a.txt"), "").unwrap();
    std::os::unix::fs::symlink("a.txt", format!("{tree}/link")).unwrap();
    let odd =
        std::path::Path::new(&tree).join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"odd\xff"));
    std::fs::write(odd, [0xff]).unwrap();
    let summary = json(&["import-tree", db, &tree]);
    assert_eq!(summary["files"], 3, "{summary}");
    assert_eq!(summary["directories"], 4, "{summary}");
    assert_eq!(summary["links_skipped"], 1, "{summary}");
    assert_eq!(summary["bytes"], 14, "{summary}");
    assert_eq!(expect(0, &["scan", db, "--keys-only"]), "a.txt\na/b/deep\nodd\\xff\n");
    assert_eq!(expect(0, &["get", db, "a/b/deep"]), "deep contents");
    expect(0, &["import-tree", db, &tree, "--prefix", "again/"]);
    assert_eq!(expect(0, &["get", db, "again/a/b/deep"]), "deep contents");
    assert!(failure(3, &["import-tree", db, &place.path("nowhere")]).contains("nowhere"));
    // A database within the tree is not stored in itself, however the two are named.
    let inside = &format!("{tree}/db");
    assert_eq!(json(&["import-tree", inside, &tree])["files"], 3);
    assert_eq!(json(&["import-tree", inside, &tree])["files"], 3);
    let link = &place.path("link to the tree");
    std::os::unix::fs::symlink(&tree, link).unwrap();
    assert_eq!(json(&["import-tree", inside, link])["files"], 3);
    assert_eq!(json(&["import-tree", &format!("{link}/a/../db"), &tree])["files"], 3);
    assert!(failure(2, &["import-tree", inside, &format!("{link}/db")]).contains("the database itself"));
    std::fs::remove_dir_all(inside).unwrap();
    let image = &format!("disk:1GB?backing=file:{link}/image");
    for _ in 0..2 {
        assert_eq!(json(&["import-tree", image, &tree])["files"], 3);
    }
}

#[test]
fn maintenance_commands() {
    let place = Place::new();
    let db = &place.db();
    let pairs: String = (0..2000).map(|number| format!("k{number:05}\tvalue {number}\n")).collect();
    expect_with(0, &["load", db], pairs.as_bytes());
    let compacted = json(&["compact", db]);
    assert!(compacted["table_bytes_after"].as_u64().unwrap() > 0, "{compacted}");
    assert_eq!(expect(0, &["check", db]), "clean\n");
    assert_eq!(json(&["check", db])["clean"], true);
    let copy = &place.path("copy");
    expect(0, &["checkpoint", db, copy]);
    assert_eq!(expect(0, &["scan", copy]), pairs);
    let device = &format!("ssd:1GB?backing=file:{}", place.path("image"));
    expect(0, &["checkpoint", db, device]);
    assert_eq!(expect(0, &["scan", device]), pairs);
    let stats = json(&["stats", db]);
    let tables: u64 =
        stats["statistics"]["levels"].as_array().unwrap().iter().map(|l| l["tables"].as_u64().unwrap()).sum();
    assert!(tables > 0, "{stats}");
    assert!(expect(0, &["stats", db]).contains("level  tables"));
    assert_eq!(expect(0, &["stats", db, "--property", "varve.estimate-num-keys"]), "2000\n");
    assert!(failure(2, &["stats", db, "--property", "nonsense"]).contains("no property 'nonsense'"));
}

#[test]
fn damage_is_found_and_repaired() {
    let place = Place::new();
    let db = &place.db();
    let pairs: String = (0..20_000).map(|number| format!("k{number:05}\tvalue {number}\n")).collect();
    expect_with(0, &["load", db], pairs.as_bytes());
    expect(0, &["compact", db]);
    let table = std::fs::read_dir(db)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| std::fs::metadata(path).unwrap().len() > 100_000)
        .max_by_key(|path| std::fs::metadata(path).unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[50_000] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let findings = json(&["check", db]);
    assert_eq!(findings["clean"], false, "{findings}");
    let printed = expect(1, &["check", db]);
    assert!(printed.contains("error: "), "{printed}");
    assert!(failure_code(&["scan", db]) == 4);
    let planned = expect(1, &["repair", db, "--dry-run"]);
    assert!(planned.contains("what can be read goes into fresh tables"), "{planned}");
    assert!(failure_code(&["scan", db]) == 4, "a plan changes nothing");
    let repaired = json(&["repair", db]);
    assert_eq!(repaired["tables_salvaged"], 1, "{repaired}");
    assert_eq!(expect(0, &["check", db]), "clean\n");
    let left = expect(0, &["scan", db]);
    assert!(left.lines().count() > 19_000, "{} of 20000 pairs are left", left.lines().count());
    assert!(left.lines().all(|line| pairs.contains(&format!("{line}\n"))));
    // What cannot even be opened is told apart from what can be checked.
    std::fs::write(std::path::Path::new(db).join("CURRENT"), [0; 20]).unwrap();
    assert!(failure(4, &["check", db]).contains("too damaged to be opened"));
    expect(1, &["repair", db]);
    assert_eq!(expect(0, &["scan", db]), left);
}

fn failure_code(arguments: &[&str]) -> i32 {
    run_with(arguments, b"").status.code().unwrap()
}

#[test]
fn every_kind_of_failure_has_its_code() {
    let place = Place::new();
    let db = &place.db();
    assert!(failure(6, &["get", db, "key"]).contains("there is nothing"));
    std::fs::create_dir(db).unwrap();
    assert!(failure(6, &["get", db, "key"]).contains("no database"));
    expect(0, &["put", db, "key", "value"]);
    // Wrong use.
    assert!(failure(2, &["put", db]).contains("KEY"));
    assert!(failure(2, &["put", db, "key"]).contains("VALUE"));
    assert!(failure(2, &["get", "dsk:10GB", "key"]).contains("known: file:, disk:"));
    assert!(failure(2, &["get", db, "zz", "--encoding", "hex"]).contains("two hexadecimal digits"));
    assert!(failure(2, &["put", db, "key", "value", "-o", "write_bufer_size=1"]).contains("write_bufer_size"));
    assert!(
        failure(2, &["get", db, "key", "-o", "x=1"])
            .contains("no such option: 'x'; known: favour, profile, tree, create_if_missing, ")
    );
    assert!(failure(2, &["put", db, &"k".repeat(70_000), "value"]).contains("65536"));
    assert!(failure(2, &["media", "describe", "disk:1GB?model=nonsense"]).contains("^^^"));
    let wrong: Value = serde_json::from_str(&failure(2, &["put", db, "--json"])).unwrap();
    assert!(wrong["error"].as_str().unwrap().contains("<KEY>"), "{wrong}");
    let error: Value = serde_json::from_str(&failure(2, &["get", db, "zz", "-e", "hex", "--json"])).unwrap();
    assert_eq!((error["code"].as_u64(), error["kind"].as_str()), (Some(2), Some("invalid_argument")));
    assert!(failure(2, &["get", db, "key", "-o", "block_size=large"]).contains("a size such as 64MiB"));
    assert!(failure(2, &["get", db, "key", "-o", "use_direct_reads=2"]).contains("true or false"));
    // Input and output.
    assert!(!failure(3, &["put", db, "key", "--file", &place.path("nowhere")]).is_empty());
    std::fs::write(place.path("file"), "contents").unwrap();
    assert!(failure(6, &["get", &place.path("file"), "key"]).contains("not a directory; name a directory; dev:"));
    assert!(failure(6, &["put", &place.path("file/db"), "key", "value"]).contains("not a directory"));
    // A file of another program is not changed by looking at it, nor by a write that is refused.
    let other = &format!("disk:1GB?backing=file:{}", place.path("file"));
    assert!(failure(6, &["get", other, "key"]).contains("something else"));
    assert_eq!(failure_code(&["put", other, "key", "value"]), 6);
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"contents");
    // No space: writes fail cleanly.
    let full = &format!("file:{}?faults=write/no-space@0..", place.path("full"));
    assert!(failure(7, &["put", full, "key", "value"]).contains("no space"));
    assert!(failure(7, &["bench", "disk:10MB", "fillseq", "-n", "20000"]).contains("no space"));
    // Foreign, until it may be lost.
    std::fs::write(place.path("image"), [7; 1 << 20]).unwrap();
    let foreign = &format!("dev:{}?size=64MiB", place.path("image"));
    assert_eq!(failure_code(&["put", foreign, "key", "value"]), 6);
    assert_eq!(failure_code(&["media", "format", foreign]), 6);
    expect(0, &["media", "format", foreign, "--overwrite"]);
    expect(0, &["put", foreign, "key", "value"]);
    assert_eq!(expect(0, &["get", foreign, "key"]), "value");
    assert!(failure(2, &["media", "format", foreign]).contains("--overwrite lays it out anew"));
    assert!(failure(2, &["media", "format", db, "--overwrite"]).contains("not a directory"));
    // A store that is empty is a store too: its layout does not change unasked.
    let blank = &format!("dev:{}?size=64MiB", place.path("blank"));
    assert!(failure(6, &["media", "format", &format!("dev:{}", place.path("blank"))]).contains("?size=SIZE"));
    expect(0, &["media", "format", blank]);
    assert!(failure(2, &["media", "format", &format!("{blank},layout=ext4")]).contains("with 0 files"));
    // Locked: a load that waits for its input holds the database.
    let hold = || {
        let holder = Command::new(env!("CARGO_BIN_EXE_varve"))
            .args(["load", db])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        holder.unwrap()
    };
    let mut holder = hold();
    let held = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        // It gives up when it comes while the question below is asked.
        if holder.try_wait().unwrap().is_some() {
            holder = hold();
        }
        failure_code(&["delete", db, "none"]) == 5
    });
    let mut stdin = holder.stdin.take().unwrap();
    assert!(held, "the lock was never held");
    // Reading takes no lock.
    expect(0, &["check", db]);
    stdin.write_all(b"other\tpair\n").unwrap();
    drop(stdin);
    assert!(holder.wait().unwrap().success());
    assert_eq!(expect(0, &["get", db, "other"]), "pair");
}

#[test]
fn options_come_from_files_and_arguments() {
    let place = Place::new();
    let db = &place.db();
    let config = &place.path("varve.toml");
    std::fs::write(config, "[options]\ncreate_if_missing = false\n").unwrap();
    assert_eq!(failure_code(&["put", db, "key", "value", "--config", config]), 6);
    expect(
        0,
        &["put", db, "key", "value", "--config", config, "-o", "create_if_missing=true", "-o", "compression=lz4"],
    );
    std::fs::write(config, "[options]\nnonsense = 1\n").unwrap();
    assert!(failure(2, &["get", db, "key", "--config", config]).contains("nonsense"));
}

#[test]
fn warns_of_options_without_effect() {
    let place = Place::new();
    let db = &place.db();
    let warnings = |options: &[&str]| {
        let mut arguments = vec!["put", db, "key", "value"];
        options.iter().for_each(|option| arguments.extend(["-o", option]));
        String::from_utf8(run_with(&arguments, b"").stderr).unwrap()
    };
    assert_eq!(warnings(&["max_write_stall_ms=50", "pace_background_work=true"]), "");
    assert_eq!(
        warnings(&["max_write_stall_ms=50", "overlap_depth_max=5"]),
        "varve: warning: option overlap_depth_max has no effect here: only tree=two_level reads it\n\
         varve: warning: option max_write_stall_ms has no effect here: it needs pace_background_work\n"
    );
    assert_eq!(
        expect(0, &["stats", db, "--property", "varve.options-without-effect", "-o", "compact_in_pieces=true"]),
        "\n"
    );
}

#[test]
fn a_reader_who_leaves_is_no_error() {
    let place = Place::new();
    let db = &place.db();
    let pairs: String = (0..20_000).map(|number| format!("k{number:05}\tvalue {number}\n")).collect();
    expect_with(0, &["load", db], pairs.as_bytes());
    let mut child = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["scan", db])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn media_are_listed_described_and_probed() {
    let listed = json(&["media", "list"]);
    let models: Vec<&str> = listed["models"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert!(models.contains(&"st500dm002") && models.contains(&"zn540"), "{models:?}");
    let text = expect(0, &["media", "list"]);
    assert!(text.contains("disk:[SIZE") && text.contains("backing=ram|compressed|none|file:PATH"), "{text}");
    let described = json(&["media", "describe", "disk:1TB?model=st8000as0022,scale=1/64"]);
    assert_eq!(described["devices"][0]["scale_divisor"], 64);
    let timing = expect(0, &["media", "describe", "nvme:", "--timing"]);
    assert!(timing.contains("    page read: ") && timing.contains(" us\n"), "{timing}");
    let store = |spec: &str| json(&["media", "describe", spec])["store"].as_str().map(str::to_owned);
    assert_eq!(store("hasmr:8TB").as_deref(), Some("band"));
    assert_eq!(store("hasmr:8TB?store=extent").as_deref(), Some("extent"));
    let text = expect(0, &["media", "describe", "hasmr:8TB"]);
    assert!(text.contains("store of a new database: band, the default of this medium"), "{text}");
    assert!(text.contains("  tree = leveled: the plain tree, where nothing is favoured"), "{text}");
    let described = json(&["media", "describe", "hasmr:8TB"]);
    assert_eq!(described["options"][0]["name"], "tree", "{described}");
    let described = json(&["media", "describe", "nvme:"]);
    assert!(described["devices"][0]["timing"]["page_read_nanos"].is_u64(), "{described}");
    // A device is described before it is there, and describing makes nothing.
    let later = Place::new();
    let traced = format!("disk:10GB?backing=file:{},trace={}", later.path("image"), later.path("trace"));
    assert!(expect(0, &["media", "describe", &traced]).contains("capacity 10.00 GB"));
    assert_eq!(std::fs::read_dir(later.directory.path()).unwrap().count(), 0);
    assert!(failure(2, &["media", "describe", &later.db()]).contains("media inspect"));
    let described = json(&["media", "describe", "disk:1GB?logs=nvme:2GB"]);
    let models: Vec<&Value> = described["devices"].as_array().unwrap().iter().map(|device| &device["model"]).collect();
    assert_eq!(models, ["st500dm002", "nvme-ssd"]);
    assert_eq!(json(&["media", "describe", "disk:1GB?logs=/nowhere"])["devices"].as_array().unwrap().len(), 1);
    assert!(failure(6, &["media", "describe", &format!("dev:{}", later.path("device"))]).contains("?size=SIZE"));
    assert!(failure(2, &["media", "list", "-o", "compression=lz4"]).contains("takes no options"));
    let probed = json(&["media", "probe", "nvme:10GB", "-p", "random-read", "-n", "200"]);
    let rate = probed["requests_per_second"].as_f64().unwrap();
    assert!((15_000.0..25_000.0).contains(&rate), "{probed}");
    assert_eq!(probed["virtual_time"], true);
    let place = Place::new();
    let lasting = &format!("ssd:1GB?backing=file:{}", place.path("image"));
    assert!(failure(2, &["media", "probe", lasting, "-p", "random-write"]).contains("--overwrite"));
}

#[test]
fn help_teaches_by_example() {
    let help = expect(0, &["--help"]);
    assert_eq!(expect(0, &["help"]), help);
    assert!(help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    for command in [
        "put",
        "get",
        "delete",
        "scan",
        "load",
        "dump",
        "import-tree",
        "bench",
        "lab",
        "stats",
        "check",
        "repair",
        "compact",
        "checkpoint",
        "media",
        "options",
    ] {
        let help = expect(0, &[command, "--help"]);
        assert!(help.contains("Examples:\n  varve "), "{command}: {help}");
        assert!(help.contains(&format!("varve {command} ")), "{command}: {help}");
    }
}

#[test]
fn benchmarks_repeat_in_virtual_time() {
    let place = Place::new();
    let bench =
        ["bench", "disk:1GB", "fillrandom", "readrandom", "-n", "2000", "--verify", "--out", &place.path("out")];
    let first = json(&bench);
    let rate = |report: &Value, phase: usize| report["phases"][phase]["operations_per_second"].as_f64().unwrap();
    assert!(rate(&first, 0) > 0.0 && rate(&first, 1) > 0.0, "{first}");
    assert_eq!(first["conditions"]["time"], "virtual");
    let second = json(&bench);
    assert_eq!(rate(&first, 0), rate(&second, 0));
    assert_eq!(rate(&first, 1), rate(&second, 1));
    assert!(std::fs::read_to_string(place.path("out/bench-throughput.svg")).unwrap().contains("<svg"));
    let text = expect(0, &["bench", &place.db(), "fillseq", "-n", "500", "--value-size", "100"]);
    assert!(text.contains("fillseq"), "{text}");
    assert!(failure(2, &["bench", "disk:1GB", "fillfast"]).contains("fillfast"));
    assert!(failure(2, &["bench", "disk:1GB", "--threads", "0"]).contains("at least 1"));
    // Reads that find nothing are not passed off as fast ones.
    let text = expect(0, &["bench", "disk:1GB", "fillsync", "readrandom", "-n", "2000"]);
    assert!(text.contains("note: readrandom: ") && text.contains(" of 2000 reads found a value"), "{text}");
    assert!(failure(2, &["bench", &place.db(), "fillseq", "-n", "500"]).contains("--use-existing"));
    expect(0, &["bench", &place.db(), "readrandom", "-n", "500", "--value-size", "100", "--use-existing"]);
}

#[test]
fn experiments_are_listed_and_run() {
    let listed = json(&["lab", "list"]);
    let ids: Vec<&str> = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"media/seek"), "{ids:?}");
    assert_eq!(json(&["lab", "list", "media/*"]).as_array().unwrap().len(), 3);
    assert!(expect(0, &["lab", "list", "media/demerit"]).contains("Needs --traces DIR"));
    // What is skipped is told, is no success, and keeps nothing else from running.
    let output = run_with(&["lab", "run", "media/seek", "load/virtual", "--scale", "1/4096"], b"");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("skipped: media/seek (") && errors.contains("--allow-skipped"), "{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("skipped: give --traces DIR") && text.contains("virtual throughput"), "{text}");
    let report = json(&["lab", "run", "media/seek"]);
    assert_eq!(report["id"], "media/seek");
    assert!(report["skipped"].as_str().unwrap().contains("--traces"), "{report}");
    expect(0, &["lab", "run", "media/seek", "--allow-skipped"]);
    // Likewise what fails, with the code of the failure.
    let place = Place::new();
    std::fs::write(place.path("disksim_G4_LBA_64bit_4T.seeks"), "nonsense\n").unwrap();
    let traces = &place.path("");
    let output = run_with(&["lab", "run", "media/seek", "--traces", traces], b"");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 1"));
    let output = run_with(&["lab", "run", "media/seek", "load/virtual", "--traces", traces, "--scale", "1/4096"], b"");
    assert_eq!(output.status.code(), Some(3));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("media/seek failed: ") && errors.ends_with("varve: failed: media/seek\n"), "{errors}");
    assert!(failure(2, &["lab", "run", "media/none"]).contains("there is media/"));
    assert!(failure(2, &["lab", "run", "media/seek", "-o", "compression=lz4"]).contains("takes no options"));
}

#[test]
fn maps_are_drawn_and_repeat_to_the_byte() {
    let place = Place::new();
    let draw = |name: &str| {
        let page = place.path(&format!("{name}.html"));
        let quick = ["--policy", "region,compaction-aware", "--frames", "4", "--pairs", "1024000", "--out"];
        let drawn = json(&[&["lab", "map", "imr"], &quick[..], &[&page]].concat());
        let films = drawn["films"].as_array().unwrap();
        assert_eq!(films.len(), 2);
        assert_eq!(
            (films[1]["name"].as_str().unwrap(), films[1]["pairs"].as_u64().unwrap()),
            ("compaction-aware, merged rewrites", 4000)
        );
        assert_eq!(drawn["page"], page.as_str());
        let picture = place.path(&format!("{name}.svg"));
        assert_eq!(drawn["picture"], picture.as_str());
        (std::fs::read_to_string(page).unwrap(), std::fs::read_to_string(picture).unwrap())
    };
    let (page, picture) = draw("first");
    assert!((&page, &picture) == (&draw("second").0, &draw("third").1));
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n") && !page.contains("http"));
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
    // What is refused leaves nothing behind.
    let none = &place.path("none.html");
    assert!(failure(2, &["lab", "map", "imr", "--policy", "fastest", "--out", none]).contains("is none of"));
    assert!(failure(2, &["lab", "map", "imr", "--frames", "0", "--out", none]).contains("1 to 1000"));
    assert!(failure(2, &["lab", "map", "imr", "--out", &place.path("none.svg")]).contains("--out"));
    assert!(!std::path::Path::new(none).exists());
}
