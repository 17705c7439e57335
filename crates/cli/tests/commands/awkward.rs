//! Input as people have it: marks, line ends, limits, sizes; and how help fits terminals.

use super::{Place, expect, expect_with, failure, run_with};
use std::fs::File;
use std::process::{Command, Stdio};

/// Standard error of `varve load` with `input`, after its exit code was checked.
fn load(code: i32, arguments: &[&str], input: &[u8]) -> String {
    let output = run_with(&[&["load"], arguments].concat(), input);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?} {}: {errors}", input.escape_ascii());
    errors
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_key() {
    let place = Place::new();
    let pairs = [
        (&["--format", "tsv"][..], &b"\xef\xbb\xbfkey1\tvalue1\nkey2\tvalue2\n"[..]),
        (&["--encoding", "raw"], b"\xef\xbb\xbfkey1\tvalue1\nkey2\tvalue2"),
        (&["--encoding", "hex"], b"\xef\xbb\xbf6b657931\t76616c756531\r\n6b657932\t76616c756532\r\n"),
        (&["--encoding", "base64"], b"\xef\xbb\xbfa2V5MQ==\tdmFsdWUx\na2V5Mg==\tdmFsdWUy\n"),
        (
            &["--format", "jsonl"],
            b"\xef\xbb\xbf{\"key\":\"key1\",\"value\":\"value1\"}\r\n{\"key\":\"key2\",\"value\":\"value2\"}",
        ),
    ];
    for (number, (arguments, text)) in pairs.into_iter().enumerate() {
        let db = &place.path(&format!("db{number}"));
        load(0, &[&[db.as_str(), "-"], arguments].concat(), text);
        assert_eq!(expect(0, &["scan", db]), "key1\tvalue1\nkey2\tvalue2\n", "{arguments:?}");
    }
    // From a file, and nothing but a mark.
    let file = &place.path("pairs.jsonl");
    std::fs::write(file, "\u{feff}{\"key\":\"a\",\"value\":\"b\"}\n").unwrap();
    load(0, &[&place.db(), file], b"");
    load(0, &[&place.db(), "-"], b"\xef\xbb\xbf");
    assert_eq!(expect(0, &["scan", &place.db()]), "a\tb\n");
}

#[test]
fn other_encodings_are_refused_by_name() {
    let place = Place::new();
    let db = &place.db();
    for (text, name) in [
        (&b"\xff\xfea\0\t\0b\0\n\0"[..], "UTF-16LE"),
        (b"\xfe\xff\0a\0\t\0b\0\n", "UTF-16BE"),
        (b"\xff\xfe\0\0a\0\0\0", "UTF-32LE"),
        (b"\0\0\xfe\xff\0\0\0a", "UTF-32BE"),
    ] {
        for more in [&[][..], &["--skip-errors"], &["--format", "jsonl"], &["--encoding", "raw"]] {
            let errors = load(2, &[&[db.as_str(), "-"], more].concat(), text);
            assert!(errors.contains("standard input: expected UTF-8") && errors.contains(name), "{errors}");
        }
    }
    assert_eq!(expect(0, &["scan", db]), "");
    let (file, other) = (&place.path("file"), &place.path("other"));
    std::fs::write(file, b"\xff\xfea\0").unwrap();
    assert!(failure(2, &["load", other, file]).contains("UTF-16LE"));
    assert!(!std::path::Path::new(other).exists(), "nothing was made");
}

/// A key that begins with a mark is written so that it is read back, and a value keeps its bytes.
#[test]
fn marks_in_keys_and_values_are_kept() {
    let place = Place::new();
    let (db, copy) = (&place.db(), &place.path("copy"));
    for key in ["efbbbf", "efbbbf61", "fffe61", "0000feff"] {
        expect(0, &["put", db, key, "efbbbf", "--encoding", "hex"]);
    }
    for format in ["tsv", "jsonl"] {
        let dumped = expect(0, &["dump", db, "--format", format]);
        load(0, &[copy, "-", "--format", format], dumped.as_bytes());
        assert_eq!(expect(0, &["dump", copy, "-e", "hex"]), expect(0, &["dump", db, "-e", "hex"]), "{format}");
    }
    for (key, value) in [("mark", &b"\xef\xbb\xbfvalue\r\n"[..]), ("utf-16", b"\xff\xfea\0")] {
        expect_with(0, &["put", db, key, "-"], value);
        assert_eq!(run_with(&["get", db, key], b"").stdout, value);
    }
}

#[test]
fn line_ends_nul_bytes_and_empty_keys_are_read() {
    let place = Place::new();
    let db = &place.db();
    load(0, &[db, "-"], b"a\t1\r\n\r\n\nb\t\r\n\0\t\0\n\tempty key\nlast\tno end");
    let expected = "\tempty key\n\\0\t\\0\na\t1\nb\t\nlast\tno end\n";
    assert_eq!(expect(0, &["scan", db]), expected);
    let copy = &place.path("copy");
    load(0, &[copy, "-", "--encoding", "raw"], b"a\t1\r\nb\t2\r");
    assert_eq!(expect(0, &["scan", copy]), "a\t1\\r\nb\t2\\r\n", "raw lines keep their returns");
}

#[test]
fn a_line_beyond_the_limit_is_skipped_as_others_are() {
    let place = Place::new();
    let (db, long) = (&place.db(), format!("big\t{}", "7".repeat(200_000)));
    for (number, end) in ["\n", "\r\n"].into_iter().enumerate() {
        let text = format!("first\t1{end}{long}{end}small\t1{end}{long}");
        let db = &place.path(&format!("{number}"));
        let errors = load(1, &["--skip-errors", "--line-limit", "100KB", db, "-"], text.as_bytes());
        assert!(errors.contains("input:2: longer than --line-limit, which is 100kB"), "{errors}");
        assert!(errors.contains("input:4: longer") && errors.contains("2 lines skipped"), "{errors}");
        assert_eq!(expect(0, &["scan", db, "-k"]), "first\nsmall\n");
    }
    let errors = load(2, &["--line-limit", "100KB", db, "-"], format!("first\t1\n{long}\n").as_bytes());
    assert!(errors.contains("input:2: longer") && errors.contains("1 pairs before it are stored"), "{errors}");
    // The limit itself is allowed, with any line end.
    for (text, code) in [("k\t345", 0), ("k\t345\n", 0), ("k\t345\r\n", 0), ("k\t3456", 2), ("k\t3456\r\n", 2)] {
        load(code, &["--line-limit", "5B", db, "-"], text.as_bytes());
    }
}

#[test]
fn refused_lines_are_not_counted_as_stored() {
    let place = Place::new();
    let text = format!("{}\tv\nok\t1\n", "k".repeat(70_000));
    let errors = load(1, &["--skip-errors", &place.db(), "-"], text.as_bytes());
    assert!(errors.contains("1 pairs, 3 B of keys and values") && errors.contains("1 lines skipped"), "{errors}");
    let said = expect_with(1, &["load", "--skip-errors", "--json", &place.path("other"), "-"], text.as_bytes());
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["bytes"], &said["pairs"], &said["skipped"]), (&3.into(), &1.into(), &1.into()));
}

#[test]
fn a_value_that_is_too_large_is_refused_before_it_is_read() {
    let place = Place::new();
    let (db, large) = (&place.db(), &place.path("large"));
    File::create(large).unwrap().set_len(1 << 32).unwrap();
    let said = failure(2, &["put", db, "key", "--file", large]);
    assert!(said.contains("large: expected a value of at most 4294967295 bytes (3.9 GiB), found 4294967296"), "{said}");
    let output = Command::new(env!("CARGO_BIN_EXE_varve"))
        .args(["put", db, "key", "-"])
        .stdin(Stdio::from(File::open(large).unwrap()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard input: expected a value of at most 4294967295 bytes"), "{said}");
    assert!(!std::path::Path::new(db).exists(), "nothing was made");
}

/// Two copies are needed: the batch that is written, and the memtable.
#[test]
fn a_large_value_is_in_memory_twice_at_most() {
    let place = Place::new();
    let large = &place.path("large");
    // Opening a database reads the values in its logs, so each has its own.
    let [usual, file, input] = ["usual", "file", "input"].map(|name| place.path(name));
    let bytes: Vec<u8> = (0..40u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(large, &bytes).unwrap();
    let peak_of = |arguments: &str, input: &str| {
        // The shell's child replaces it, so its peak is that of the command.
        let script = format!("exec {} {arguments} {input}", env!("CARGO_BIN_EXE_varve"));
        let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let pid = child.id();
        let mut peak_kib = 0;
        while child.try_wait().unwrap().is_none() {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
            peak_kib = peak_kib.max(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        peak_kib << 10
    };
    let usual = peak_of(&format!("put {usual} small"), "value");
    for (arguments, input) in
        [(format!("put {file} key --file"), large.clone()), (format!("put {input} key -"), format!("< {large}"))]
    {
        let peak = peak_of(&arguments, &input) - usual;
        assert!(peak < 5 * bytes.len() as u64 / 2, "{arguments}: {peak} bytes for a value of {}", bytes.len());
    }
    assert!(run_with(&["get", &input, "key"], b"").stdout == bytes);
}

#[test]
fn files_of_options_are_bounded_text() {
    let place = Place::new();
    let (db, config) = (&place.db(), &place.path("config"));
    let put = ["put", db, "key", "value", "--config", config];
    std::fs::write(config, "\u{feff}[options]\r\nwrite_buffer_size = \"2MiB\"\r\n").unwrap();
    expect(0, &put);
    for (text, expected) in [
        (&b"\xff\xfe[\0"[..], "config: expected UTF-8, found the byte order mark of UTF-16LE"),
        (b"[options]\n# \xff", "config: expected UTF-8, found other bytes at offset 12"),
    ] {
        std::fs::write(config, text).unwrap();
        assert!(failure(2, &put).contains(expected), "{}", failure(2, &put));
    }
    let said = failure(2, &["put", db, "key", "value", "--config", "/dev/zero"]);
    assert!(said.contains("a file of options has at most 1MiB, found more"), "{said}");
}

/// clap wraps descriptions, and the texts after the options are laid out for the same width.
#[test]
fn help_is_wrapped_once_at_the_width_of_the_terminal() {
    let help = |arguments: &[&str], columns: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_varve"));
        command.args(arguments).env_remove("COLUMNS").stdin(Stdio::null());
        columns.map(|columns| command.env("COLUMNS", columns));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["load", "--help"],
        &["put", "-h"],
        &["repair", "--help"],
        &["lab", "--help"],
        &["lab", "run", "--help"],
        &["lab", "map", "imr", "--help"],
        &["media", "probe", "--help"],
        &["help", "bench"],
    ] {
        for columns in [Some("60"), Some("80"), Some("120"), Some("200"), None] {
            let (text, width) = (help(arguments, columns), columns.map_or(100, |columns| columns.parse().unwrap()));
            let mut lines = text.lines().peekable();
            while let Some(line) = lines.next() {
                let is_word = line.split_whitespace().count() == 1;
                assert!(
                    line.chars().count() <= width || is_word || line.starts_with("Usage:"),
                    "{width} {arguments:?}: '{line}'"
                );
                let indent = |line: &str| line.len() - line.trim_start().len();
                let is_prose = |line: &str| indent(line) == 0 && line.contains(' ') && !line.ends_with(':');
                let Some(next) = lines.peek().filter(|next| is_prose(line) && is_prose(next)) else { continue };
                let word = next.split(' ').next().unwrap();
                let more = line.chars().count() + 1 + word.chars().count();
                assert!(more > width, "{width} {arguments:?}: '{line}' before '{next}'");
            }
        }
    }
}

#[test]
fn reading_holes_of_a_sparse_file_is_warned_of() {
    let place = Place::new();
    let image = &place.path("image");
    let spec = &format!("dev:{image}?size=8MiB");
    File::create(image).unwrap().set_len(8 << 20).unwrap();
    let errors = |arguments: &[&str]| {
        let output = run_with(&[&["media", "probe", spec, "-n", "8"], arguments].concat(), b"");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    for pattern in ["sequential-read", "random-read"] {
        let said = errors(&["-p", pattern]);
        assert!(said.contains(&format!("image: {pattern} reads holes: 8MiB of 8MiB were never written")), "{said}");
    }
    assert_eq!(errors(&["-p", "sequential-read", "-p", "random-read"]).matches("reads holes").count(), 1);
    assert!(errors(&["-p", "random-read", "--json"]).contains("reads holes"));
    // What was written is no hole.
    assert!(!errors(&["-p", "sequential-write", "--overwrite"]).contains("holes"));
    assert!(!errors(&["-p", "random-read"]).contains("holes"));
    // Nor are those of an image in virtual time.
    let emulated = format!("disk:1GB?backing=file:{}", place.path("emulated"));
    let output = run_with(&["media", "probe", &emulated, "-p", "random-read"], b"");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("holes"));
}

/// Every file of a directory of traces is replayed or named, and the exit code says whether all were.
#[test]
fn no_trace_is_ignored_in_silence() {
    let place = Place::new();
    let traces = &place.path("traces");
    std::fs::create_dir(traces).unwrap();
    let run = |code: i32, more: &[&str]| {
        let arguments = ["lab", "run", "idler/traces", "--traces", traces, "--scale", "1/1024"];
        let output = run_with(&[&arguments, more].concat(), b"");
        let [said, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(code), "{said}{errors}");
        said + &errors
    };
    let write = |name: &str, text: &str| std::fs::write(format!("{traces}/{name}"), text).unwrap();
    assert!(run(2, &[]).contains("no trace was replayed: it holds no file"));
    write("notes.txt", "nothing of use\n");
    assert!(run(2, &[]).contains("notes.txt: no known format fits its lines"));
    std::fs::remove_file(format!("{traces}/notes.txt")).unwrap();
    let lines = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
                 128166372003061629,usr,0,Read,7014609920,24576,41286\n";
    write("usr_0.csv", lines);
    assert!(run(0, &[]).contains("usr_0.csv: format msr, 1 requests, 0.0 % writes, 1 header lines"));
    write("bad", &format!("{lines}12,usr\n34,usr\n"));
    let said = run(1, &[]);
    assert!(said.contains("left out: bad: as msr: line 3: expected") && said.contains("malformed lines: 2"), "{said}");
    run(0, &["--allow-skipped"]);
    assert!(run(1, &["--skip-malformed"]).contains("left out: bad: 2 malformed lines, the first of them line 3"));
    assert!(run(2, &["--format", "fiu"]).contains("usr_0.csv: as fiu: line 2: expected"));
    assert!(failure(2, &["lab", "run", "idler/traces", "--traces", traces, "--format", "x"]).contains("msr, fiu, spc"));
    let said = failure(2, &["lab", "run", "media/presets", "--traces", traces, "--format", "msr"]);
    assert!(said.contains("--format: no chosen experiment replays traces"), "{said}");
    let help = expect(0, &["lab", "run", "--help"]);
    assert!(help.contains("--format <FORMAT>") && help.contains("--skip-malformed"), "{help}");
}
