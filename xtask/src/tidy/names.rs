//! What may be named where: the operating system, blocking primitives, platform arithmetic; and
//! what modules must not be called.

use super::lexer::{self, Kind, Token};
use super::{Finding, Source};
use std::collections::BTreeSet;

/// A path that is not for everyone.
struct Ban {
    path: &'static str,
    instead: &'static str,
}

/// Banned outside of tests, except where `ALLOWANCES` says otherwise. A path is banned with
/// everything below it.
const BANS: &[Ban] = &[
    Ban { path: "std::fs", instead: "a directory or device of varve_media" },
    Ban { path: "std::net", instead: "a fabric" },
    Ban { path: "std::os", instead: "a directory or device of varve_media" },
    Ban { path: "std::process::Command", instead: "nothing: a library starts no processes" },
    Ban { path: "std::thread", instead: "varve_env::Env::spawn and its other methods" },
    Ban { path: "std::time::Instant", instead: "varve_env::Instant and Env::now" },
    Ban { path: "std::time::SystemTime", instead: "varve_env::Env::wall_clock_unix_nanos" },
    // These block a thread without telling the simulation. (A parking_lot lock may be held for a
    // moment; nobody may wait for an event on one.)
    Ban { path: "parking_lot::Condvar", instead: "varve_env::Condvar" },
    Ban { path: "std::sync::Barrier", instead: "varve_env::Condvar" },
    Ban { path: "std::sync::Condvar", instead: "varve_env::Condvar" },
    Ban { path: "std::sync::Mutex", instead: "varve_env::Mutex, or parking_lot::Mutex for a moment" },
    Ban { path: "std::sync::RwLock", instead: "varve_env::RwLock, or parking_lot::RwLock for a moment" },
    Ban { path: "std::sync::mpsc", instead: "varve_env::channel" },
];

/// Methods of floating-point numbers whose last bits depend on the platform's mathematics library.
const PLATFORM_MATHEMATICS: &[&str] = &[
    "acos", "asin", "atan", "atan2", "cbrt", "cos", "cosh", "exp", "exp2", "exp_m1", "hypot", "ln", "ln_1p", "log",
    "log10", "log2", "powf", "sin", "sin_cos", "sinh", "tan", "tanh",
];

/// An exception: files below `place` may name `path`.
struct Allowance {
    place: &'static str,
    path: &'static str,
    reason: &'static str,
}

const ALLOWANCES: &[Allowance] = &[
    Allowance { place: "crates/env/src/", path: "std::thread", reason: "env is where threads come from" },
    Allowance { place: "crates/env/src/", path: "std::time", reason: "env is where time comes from" },
    Allowance { place: "crates/env/src/", path: "parking_lot::Condvar", reason: "what env's waiting is made of" },
    Allowance {
        place: "crates/interleavings/src/exploration.rs",
        path: "std::thread",
        reason: "whether a run that failed is being unwound",
    },
    Allowance { place: "crates/media/src/directory/os.rs", path: "std::fs", reason: "the machine's directories" },
    Allowance { place: "crates/media/src/directory/os.rs", path: "std::os", reason: "the machine's directories" },
    Allowance { place: "crates/media/src/directory/mapping/mod.rs", path: "std::os", reason: "files that are mapped" },
    Allowance {
        place: "crates/media/src/directory/mapping/writable.rs",
        path: "std::os",
        reason: "files that are mapped",
    },
    Allowance { place: "crates/media/src/emulated/backing/file.rs", path: "std::fs", reason: "the sparse file" },
    Allowance { place: "crates/media/src/emulated/backing/file.rs", path: "std::os", reason: "the sparse file" },
    Allowance { place: "crates/media/src/memory/file.rs", path: "std::fs", reason: "files that are memory" },
    Allowance { place: "crates/media/src/memory/file.rs", path: "std::os", reason: "files that are memory" },
    Allowance {
        place: "crates/media/src/emulated/rules/zoned/record.rs",
        path: "std::fs",
        reason: "the file beside a device",
    },
    Allowance {
        place: "crates/media/src/emulated/rules/zoned/record.rs",
        path: "std::os",
        reason: "the file beside a device",
    },
    Allowance {
        place: "crates/media/src/emulated/timing/translation/record.rs",
        path: "std::fs",
        reason: "the file beside a device",
    },
    Allowance {
        place: "crates/media/src/emulated/timing/translation/record.rs",
        path: "std::os",
        reason: "the file beside a device",
    },
    Allowance { place: "crates/media/src/layer/trace/mod.rs", path: "std::fs", reason: "a trace in a file" },
    Allowance { place: "crates/media/src/place.rs", path: "std::fs", reason: "what is there before it is opened" },
    Allowance { place: "crates/media/src/place.rs", path: "std::os", reason: "what is there before it is opened" },
    Allowance { place: "crates/media/src/hardware/", path: "std::fs", reason: "the machine's devices" },
    Allowance { place: "crates/media/src/hardware/", path: "std::os", reason: "the machine's devices" },
    Allowance {
        place: "crates/media/src/hardware/",
        path: "std::thread",
        reason: "gives way where waiting for the kernel's ring was interrupted",
    },
    Allowance { place: "crates/varve/src/spec/mod.rs", path: "std::os", reason: "paths of any bytes" },
    Allowance {
        place: "crates/varve/src/medium/emulated.rs",
        path: "std::fs",
        reason: "marks of layers, read apart from the device",
    },
    Allowance {
        place: "crates/varve/src/medium/emulated.rs",
        path: "std::os",
        reason: "marks of layers, read apart from the device",
    },
    Allowance { place: "crates/cli/src/", path: "std::fs", reason: "files the user names on the command line" },
    Allowance { place: "crates/cli/src/arguments.rs", path: "std::os", reason: "arguments and paths of any bytes" },
    Allowance {
        place: "crates/cli/src/command/import_tree.rs",
        path: "std::os",
        reason: "whether two files are the same",
    },
    Allowance {
        place: "crates/lab/src/host.rs",
        path: "std::fs",
        reason: "what the machine says of its load, and the files of reports and traces, which users name",
    },
    Allowance {
        place: "crates/lab/src/host.rs",
        path: "std::process::Command",
        reason: "asks the tool chain and the file system who they are",
    },
    Allowance { place: "peers/src/", path: "std::fs", reason: "the raw floors of the file system" },
    Allowance { place: "peers/src/", path: "std::os", reason: "LevelDB's C interface takes a path as bytes" },
    Allowance { place: "peers/src/", path: "std::process::Command", reason: "every run is a process of its own" },
    Allowance { place: "xtask/", path: "std::fs", reason: "the verbs read and write the workspace" },
    Allowance { place: "xtask/src/fuzz.rs", path: "std::thread", reason: "waits for fuzzers to end" },
    Allowance { place: "xtask/src/fuzz.rs", path: "std::time::Instant", reason: "waits for fuzzers to end" },
    Allowance {
        place: "xtask/src/install.rs",
        path: "std::thread",
        reason: "waits until a program that was just written may begin",
    },
    Allowance { place: "xtask/src/soak.rs", path: "std::time::Instant", reason: "goes on for so many minutes" },
    Allowance { place: "xtask/src/test.rs", path: "std::time::Instant", reason: "says how long stages took" },
    Allowance { place: "xtask/src/test.rs", path: "std::thread", reason: "how many tests the harness runs at once" },
    Allowance { place: "xtask/src/programs.rs", path: "std::thread", reason: "follows programs that run side by side" },
    Allowance { place: "xtask/src/programs.rs", path: "std::sync::Mutex", reason: "xtask has no other" },
    Allowance { place: "xtask/src/run.rs", path: "std::time::Instant", reason: "says how long a step took" },
    Allowance { place: "xtask/src/silence.rs", path: "std::thread", reason: "watches a command beside who reads it" },
    Allowance {
        place: "xtask/src/silence.rs",
        path: "std::sync::mpsc",
        reason: "watches a command beside who reads it",
    },
    Allowance { place: "xtask/", path: "std::process::Command", reason: "the verbs run cargo" },
];

/// Names of modules that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["common", "helper", "helpers", "manager", "managers", "misc", "shared_utils", "util", "utilities", "utils"];

const RULES: &str = "xtask/src/tidy/names.rs";

/// Checks all Rust sources.
pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    let parsed: Vec<(&Source, lexer::Divided)> = sources
        .iter()
        .filter(|source| source.path.ends_with(".rs"))
        .map(|source| (source, lexer::without_tests(lexer::tokens(&source.text).unwrap_or_default())))
        .collect();
    let test_places: Vec<String> =
        parsed.iter().flat_map(|(source, divided)| test_places(&source.path, &divided.test_modules)).collect();
    for (source, divided) in &parsed {
        check_module_names(source, &divided.tokens, &mut findings);
        if !is_for_tests(&source.path, &test_places) {
            check_paths(source, &divided.tokens, &mut findings, &mut used);
            check_mathematics(source, &divided.tokens, &mut findings);
        }
    }
    for (index, allowance) in ALLOWANCES.iter().enumerate() {
        let here = sources.iter().any(|source| source.path.starts_with("xtask/src/tidy/"));
        if here && !used.contains(&index) {
            let message = format!(
                "no file below {} names {} any more ({}): remove the allowance",
                allowance.place, allowance.path, allowance.reason
            );
            findings.push(Finding { file: RULES.to_owned(), line: 0, message });
        }
    }
    findings
}

/// Where the modules that `path` declares for tests only may lie: prefixes of paths.
fn test_places(path: &str, modules: &[String]) -> Vec<String> {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let directory = match file {
        "mod.rs" | "lib.rs" | "main.rs" => directory.to_owned(),
        _ => format!("{directory}/{}", file.trim_end_matches(".rs")),
    };
    modules.iter().flat_map(|module| [format!("{directory}/{module}.rs"), format!("{directory}/{module}/")]).collect()
}

fn is_for_tests(path: &str, test_places: &[String]) -> bool {
    let directories: Vec<&str> = path.split('/').collect();
    directories.iter().any(|part| matches!(*part, "tests" | "benches" | "examples"))
        || test_places.iter().any(|place| path.starts_with(place.as_str()))
}

/// Whether `path` is `prefix` or below it.
fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn check_paths(source: &Source, tokens: &[Token], findings: &mut Vec<Finding>, used: &mut BTreeSet<usize>) {
    let mut seen = BTreeSet::new();
    for named in lexer::paths(tokens) {
        let path = match named.path.strip_prefix("core::") {
            Some(rest) => format!("std::{rest}"),
            None => named.path.clone(),
        };
        // A glob may bring in any of the names below its path.
        let glob = path.strip_suffix("::*");
        for ban in BANS {
            let banned = match glob {
                Some(parent) => is_below(parent, ban.path) || is_below(ban.path, parent) && parent != "std",
                None => is_below(&path, ban.path),
            };
            if !banned {
                continue;
            }
            let allowance = ALLOWANCES
                .iter()
                .position(|allowance| source.path.starts_with(allowance.place) && is_below(ban.path, allowance.path));
            if let Some(index) = allowance {
                used.insert(index);
            } else if seen.insert((named.line, named.path.clone())) {
                let message =
                    format!("{} is not for this place: use {} (allowances: {RULES})", named.path, ban.instead);
                findings.push(Finding { file: source.path.clone(), line: named.line, message });
            }
        }
    }
}

fn check_mathematics(source: &Source, tokens: &[Token], findings: &mut Vec<Finding>) {
    for window in tokens.windows(3) {
        let method = match (&window[0].kind, window[1].name(), &window[2].kind) {
            (Kind::Other('.'), Some(name), Kind::Other('(')) => name,
            (Kind::Name(kind), _, _) if kind == "f64" || kind == "f32" => match window[2].name() {
                Some(name) if window[1].kind == Kind::Mark("::") => name,
                _ => continue,
            },
            _ => continue,
        };
        if PLATFORM_MATHEMATICS.contains(&method) {
            let message =
                format!("{method} differs between platforms in its last bits: runs would not repeat ({RULES})");
            findings.push(Finding { file: source.path.clone(), line: window[1].line, message });
        }
    }
}

fn check_module_names(source: &Source, tokens: &[Token], findings: &mut Vec<Finding>) {
    let mut find = |line, name: &str| {
        let message = format!("a module called {name:?} says nothing: name what is inside");
        findings.push(Finding { file: source.path.clone(), line, message });
    };
    let stem = source.path.trim_end_matches(".rs");
    for part in stem.split('/') {
        if EMPTY_NAMES.contains(&part) {
            find(0, part);
        }
    }
    for window in tokens.windows(3) {
        if window[0].name() == Some("mod")
            && window[2].is('{')
            && let Some(name) = window[1].name().filter(|name| EMPTY_NAMES.contains(name))
        {
            find(window[1].line, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&[source(path, text)]).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_operating_system_is_found() {
        assert_eq!(
            found("crates/store/src/plain.rs", "fn f() {\n    std::fs::remove_file(p)\n}"),
            ["crates/store/src/plain.rs:2: std::fs::remove_file is not for this place: use a directory or device of \
              varve_media (allowances: xtask/src/tidy/names.rs)"]
        );
        for text in [
            "use std::fs;",
            "use std::{io, fs::File};",
            "use std::fs::*;",
            "use std::thread;",
            "use std::time::{Duration, Instant};",
            "use std::time::*;",
            "use std::time::SystemTime as Clock;",
            "use ::std::net::TcpStream;",
            "use std::sync::{Arc, mpsc};",
            "use parking_lot::{Condvar, Mutex};",
            "fn f() { let x = std::sync::Mutex::new(0); }",
            "fn f(file: &std::os::fd::OwnedFd) {}",
            "#[cfg(any(test, unix))] use std::fs;",
        ] {
            assert_eq!(found("crates/engine/src/db.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn what_is_harmless_passes() {
        for text in [
            "use std::time::Duration; use std::sync::{Arc, OnceLock}; use parking_lot::Mutex; use std::io::Write;",
            "// std::fs\nconst A: &str = \"std::fs\";",
            "#[cfg(test)] mod tests { use std::fs; fn f() { std::thread::scope(|_| ()); } }",
            "use varve_env::{Instant, Mutex, Condvar}; use crate::fs; use crate::thread::Instant;",
            "use std::*; fn f() { x.exponent(); x.sqrt(); log(1); }",
        ] {
            assert_eq!(found("crates/engine/src/db.rs", text), Vec::<String>::new(), "{text}");
        }
        assert!(found("crates/engine/tests/crash.rs", "use std::fs;").is_empty());
        assert!(found("crates/engine/benches/get.rs", "use std::time::Instant;").is_empty());
    }

    #[test]
    fn allowances_hold_where_they_are_given() {
        assert!(found("crates/env/src/thread.rs", "use std::thread; use std::time::Instant;").is_empty());
        assert!(found("crates/media/src/directory/os.rs", "use std::fs;").is_empty());
        assert_eq!(found("crates/media/src/directory/memory.rs", "use std::fs;").len(), 1);
        assert_eq!(found("crates/env/src/thread.rs", "use std::fs;").len(), 1);
        assert!(ALLOWANCES.iter().all(|allowance| !allowance.reason.is_empty()));
    }

    #[test]
    fn an_allowance_nobody_needs_is_found() {
        let stale = check(&[source("xtask/src/tidy/names.rs", "")]);
        assert_eq!(stale.len(), ALLOWANCES.len());
        assert!(stale[0].message.contains("remove the allowance"));
        let used =
            check(&[source("xtask/src/tidy/names.rs", ""), source("crates/env/src/thread.rs", "use std::thread;")]);
        assert_eq!(used.len(), ALLOWANCES.len() - 1);
    }

    #[test]
    fn modules_declared_for_tests_are_tests() {
        let files = |declaration: &str| {
            check(&[
                source("crates/engine/src/lib.rs", declaration),
                source("crates/engine/src/test_files.rs", "use std::fs;"),
                source("crates/engine/src/log/mod.rs", declaration),
                source("crates/engine/src/log/test_files/deep.rs", "use std::thread;"),
                source("crates/engine/src/log/reader.rs", declaration),
                source("crates/engine/src/log/reader/test_files.rs", "use std::thread;"),
            ])
            .len()
        };
        assert_eq!(files("#[cfg(test)] mod test_files;"), 0);
        assert_eq!(files("mod test_files;"), 3);
    }

    #[test]
    fn platform_mathematics_is_found() {
        assert_eq!(
            found("crates/media/src/disk.rs", "fn f(x: f64) -> f64 {\n x.ln() + f64::powf(x, 0.5) + x.sqrt()\n}"),
            [
                "crates/media/src/disk.rs:2: ln differs between platforms in its last bits: runs would not repeat \
                 (xtask/src/tidy/names.rs)",
                "crates/media/src/disk.rs:2: powf differs between platforms in its last bits: runs would not repeat \
                 (xtask/src/tidy/names.rs)",
            ]
        );
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(found("crates/store/src/utils.rs", "").len(), 1);
        assert_eq!(found("crates/store/src/helpers/mod.rs", "").len(), 1);
        assert_eq!(found("crates/store/tests/common/mod.rs", "").len(), 1);
        assert_eq!(
            found("crates/store/src/lib.rs", "mod a;\nmod manager { fn f() {} }"),
            ["crates/store/src/lib.rs:2: a module called \"manager\" says nothing: name what is inside"]
        );
        assert!(found("crates/store/src/common_prefix.rs", "mod managers_of_zones { }").is_empty());
    }
}
