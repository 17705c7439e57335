//! `cargo xtask test [--fuzz-seconds N]`: everything that has to hold, in the order in which it fails fastest.

use crate::run::{self, cargo};
use crate::{fuzz, tidy};

/// Time each fuzz target gets unless another is asked for. What it found stays in `fuzz/target/corpus`, so that later
/// runs go on from there.
const FUZZ_SECONDS: u64 = 20;

/// Runs every check; what this machine cannot do is said at the end.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let fuzz_seconds = match arguments {
        [] => FUZZ_SECONDS,
        [option, value] if option == "--fuzz-seconds" => {
            value.parse().map_err(|error| format!("--fuzz-seconds {value}: {error}"))?
        }
        _ => {
            let found = arguments.join(" ");
            return Err(format!("cargo xtask test takes --fuzz-seconds N and nothing else, found '{found}'"));
        }
    };
    let mut skipped: Vec<String> = Vec::new();
    if !run::works("cc", &["--version"]) && !run::install(&["gcc", "libc6-dev"]) {
        return Err("a C compiler is needed (zstd is C): install gcc and libc6-dev".to_owned());
    }
    if run::has_component("fmt", "rustfmt") {
        run::run("formatting", cargo().args(["fmt", "--all", "--check"]))?;
    } else {
        skipped.push("formatting: this toolchain has no rustfmt".to_owned());
    }
    eprintln!("\n== tidy");
    tidy::run(&[])?;
    if run::has_component("clippy", "clippy") {
        let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
        run::run("clippy", cargo().args(arguments))?;
    } else {
        skipped.push("clippy: this toolchain has none".to_owned());
    }
    run::run("tests", cargo().args(["test", "--workspace", "--quiet"]))?;
    let mut docs = cargo();
    docs.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    run::run("documentation", &mut docs)?;
    if fuzz::can_build() {
        fuzz::fuzz(fuzz::TARGETS, fuzz_seconds)?;
    } else {
        skipped.push("fuzzing: there is no C++ compiler, and this user may not install g++".to_owned());
    }
    if std::env::var_os("VARVE_TEST_BLOCK_DEVICE").is_none() {
        skipped.push("a real block device: VARVE_TEST_BLOCK_DEVICE names none".to_owned());
    }
    skipped.push("the peers (RocksDB, LevelDB, fjall): a bench of its own, see docs/performance.md".to_owned());
    eprintln!("\n== all passed");
    for what in &skipped {
        eprintln!("== skipped: {what}");
    }
    Ok(())
}
