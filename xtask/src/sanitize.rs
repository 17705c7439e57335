//! `cargo xtask miri` and `cargo xtask tsan`: the tests of what several threads share without locks, under tools of the
//! nightly compiler that see each access. Where that or its components are not there, that is said, and nothing fails.

use crate::run;
use std::process::Command;

/// What Miri can run: no C (zstd), no system calls it does not know, and little of everything, as it is slow.
const MIRI_TESTS: &[(&str, &[&str])] =
    &[("varve-engine", &["memtable::", "cache::slot::", "table::slab::", "table::block_memory::"])];

/// Schedules Miri tries of each test.
const MIRI_SCHEDULES: u64 = 2;

/// Tests with threads of the operating system: package, what of it, and which tests.
const TSAN_TESTS: &[(&str, &[&str], &[&str])] = &[
    ("varve-env", &["--lib", "--tests"], &[]),
    ("varve-engine", &["--lib"], &["memtable::", "cache::", "table::slab::", "table::block_memory::", "log::"]),
    ("varve-engine", &["--test", "concurrency"], &[]),
    ("varve", &["--test", "kills"], &["directory"]),
];

/// Neither tool follows a program from one stack to another.
const ACTORS_ARE_THREADS: &str = "actors_are_threads";

/// The toolchain that has the tools.
const TOOLCHAIN: &str = "+nightly";

/// Why this machine cannot run a tool of the nightly compiler that needs `component`.
fn missing(component: &str) -> Option<String> {
    if !run::works("rustc", &[TOOLCHAIN, "--version"]) {
        return Some("there is no nightly toolchain (rustup toolchain install nightly)".to_owned());
    }
    let added = || run::works("rustup", &["component", "add", "--toolchain", "nightly", component, "rust-src"]);
    let installed = |name: &str| {
        let list = Command::new("rustup").args(["component", "list", "--toolchain", "nightly", "--installed"]).output();
        list.is_ok_and(|list| String::from_utf8_lossy(&list.stdout).lines().any(|line| line.starts_with(name)))
    };
    let is_there = || installed(component) && installed("rust-src");
    let is_usable = is_there() || added() && is_there();
    (!is_usable).then(|| format!("the nightly toolchain has no {component} or rust-src (rustup component add)"))
}

fn nightly() -> Command {
    // By rustup's name: the cargo that runs this is one of another toolchain.
    let mut command = Command::new("cargo");
    command.current_dir(run::root()).arg(TOOLCHAIN);
    for name in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}

fn takes_nothing(verb: &str, arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => Ok(()),
        _ => Err(format!("cargo xtask {verb} takes nothing, found '{}'", arguments.join(" "))),
    }
}

/// Miri: undefined behaviour, data races, and loads that a weaker memory may give.
pub(crate) fn miri(arguments: &[String]) -> Result<(), String> {
    takes_nothing("miri", arguments)?;
    if let Some(why) = missing("miri") {
        eprintln!("== skipped: Miri: {why}");
        return Ok(());
    }
    for (package, tests) in MIRI_TESTS {
        let mut command = nightly();
        command
            .args(["miri", "test", "--package", package, "--lib", "--"])
            .args(*tests)
            .env("RUSTFLAGS", format!("--cfg {ACTORS_ARE_THREADS}"))
            .env("MIRIFLAGS", format!("-Zmiri-disable-isolation -Zmiri-many-seeds=0..{MIRI_SCHEDULES}"))
            .env("CARGO_TARGET_DIR", run::root().join("target/miri"));
        run::run(&format!("Miri: {package}"), &mut command)?;
        println!("reached: miri: {MIRI_SCHEDULES} schedules of {package}'s {}", tests.join(", "));
    }
    Ok(())
}

/// ThreadSanitizer: data races between threads of the operating system. The standard library is built with it too.
pub(crate) fn tsan(arguments: &[String]) -> Result<(), String> {
    takes_nothing("tsan", arguments)?;
    if let Some(why) = missing("rust-src") {
        eprintln!("== skipped: ThreadSanitizer: {why}");
        return Ok(());
    }
    let host = run::host()?;
    for (package, targets, tests) in TSAN_TESTS {
        let mut command = nightly();
        command
            .args(["test", "-Zbuild-std", "--target", &host, "--package", package])
            .args(*targets)
            .arg("--")
            .args(*tests)
            .env(
                "RUSTFLAGS",
                format!("-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg {ACTORS_ARE_THREADS}"),
            )
            .env("TSAN_OPTIONS", "halt_on_error=1 second_deadlock_stack=1")
            .env("CARGO_TARGET_DIR", run::root().join("target/tsan"));
        run::run(&format!("ThreadSanitizer: {package} {}", targets.join(" ")), &mut command)?;
        println!("reached: tsan: {package} {} {}", targets.join(" "), tests.join(", "));
    }
    Ok(())
}
