//! `cargo xtask fuzz [--seconds N] [TARGET...]`: coverage-guided fuzzing on a stable compiler.
//!
//! Each target is a libFuzzer program. The coverage instrumentation is asked for by compiler flags
//! that cargo-fuzz uses too; without a sanitizer they work on stable.

mod seed;

use crate::programs::MEMORY;
use crate::run;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Every target, the ones the release gate names first.
pub(crate) const TARGETS: &[&str] = &[
    "log",
    "table",
    "manifest",
    "superblock",
    "identity",
    "spec",
    "batch",
    "store_metadata",
    "configuration",
    "s2tmap",
    "intent",
    "zone_record",
    "media_cache_record",
    "relocation_journal",
    "write_buffer",
    "array_member",
    "band_table",
    "log_frame",
    "scsi_responses",
    "memory_trailer",
    "trace",
];

/// Fails by design once the fuzzer has found one word, which takes guidance.
const CANARY: &str = "canary";

/// What the canary says.
const CANARY_WORDS: &str = "the canary sings";

/// Targets that run at once.
pub(crate) const AT_ONCE: usize = 2;

/// Time a target may take beyond what it was given, to stop by itself.
const GRACE: Duration = Duration::from_secs(60);

const INSTRUMENTATION: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// See the module.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let mut seconds = 60;
    let mut targets: Vec<&str> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            let value = rest.next().ok_or("--seconds takes a number")?;
            seconds = value.parse().map_err(|error| format!("--seconds {value}: {error}"))?;
        } else if TARGETS.contains(&argument.as_str()) {
            targets.push(argument);
        } else {
            return Err(format!("no fuzz target '{argument}'; there are: {}", TARGETS.join(", ")));
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    build()?;
    fuzz(&targets, seconds)?.iter().for_each(|reached| println!("{reached}"));
    Ok(())
}

/// Whether the fuzzer can be built here: its engine is C++.
pub(crate) fn can_build() -> bool {
    run::works("c++", &["--version"]) || run::install(&["g++"])
}

/// Builds every target.
pub(crate) fn build() -> Result<(), String> {
    let directory = run::root().join("fuzz");
    let mut build = run::cargo();
    build
        .current_dir(&directory)
        // With a target named, the flags are for it and not for build scripts.
        .args(["build", "--release", "--bins", "--target", &run::host()?])
        .env("RUSTFLAGS", INSTRUMENTATION)
        .env("CARGO_TARGET_DIR", directory.join("target"));
    run::run("build the fuzz targets", &mut build)
}

/// Runs `targets`, which are [built](build), each for `seconds`; lines that say what they reached.
pub(crate) fn fuzz(targets: &[&str], seconds: u64) -> Result<Vec<String>, String> {
    let directory = run::root().join("fuzz");
    let programs = directory.join("target").join(run::host()?).join("release");
    let seeds = seed::Seeds::make(&directory.join("target").join("seeds"))?;
    check_canary(&directory, &programs)?;
    let mut reached = Vec::new();
    for pair in targets.chunks(AT_ONCE) {
        let mut running: Vec<(&str, Child)> = Vec::new();
        for target in pair {
            let corpus = directory.join("target/corpus").join(target);
            std::fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
            seeds.add_to(&corpus, target)?;
            eprintln!("== fuzz {target} for {seconds} s");
            let child = start(&directory, &programs, target, &corpus, seconds)?;
            running.push((target, child));
        }
        let deadline = Instant::now() + Duration::from_secs(seconds) + GRACE;
        for (target, mut child) in running {
            let ended = wait(target, &mut child, deadline);
            let log = std::fs::read(directory.join("target").join(format!("{target}.log"))).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            ended.inspect_err(|_| eprintln!("== fuzz {target}, the end of its log:\n{}", end_of(&log)))?;
            let (inputs, edges) = counts(&log);
            eprintln!("== fuzz {target}: {inputs} inputs, {edges} edges, no finding");
            reached.push(format!("reached: fuzz/{target}: {inputs} inputs, {edges} edges"));
        }
    }
    Ok(reached)
}

/// Inputs a target was run with, and edges of its code that they all reached, as its log says.
fn counts(log: &str) -> (u64, u64) {
    let executed = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let inputs = executed.and_then(|executed| executed.trim().parse().ok()).unwrap_or(0);
    let edges = log.lines().rev().find_map(|line| line.split_once(" cov: ")?.1.split(' ').next()?.parse().ok());
    (inputs, edges.unwrap_or(0))
}

/// Last lines of a log, where the fuzzer says what it found, and with which input as far as it can be printed.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Starts a target on what it found earlier; what it says goes to `fuzz/target/TARGET.log`.
fn start(directory: &Path, programs: &Path, target: &str, corpus: &Path, seconds: u64) -> Result<Child, String> {
    let log = directory.join("target").join(format!("{target}.log"));
    let log = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    Command::new(programs.join(target))
        .arg(corpus)
        .arg(format!("-max_total_time={seconds}"))
        .args(["-rss_limit_mb=2048", "-timeout=10", "-max_len=65536", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/target/{target}-", directory.display()))
        .envs(MEMORY)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("{target}: cannot start: {error}"))
}

/// Lets the canary run from nothing, and expects that it fails: then the fuzzer is guided by what the
/// inputs cover, and failures are seen.
fn check_canary(directory: &Path, programs: &Path) -> Result<(), String> {
    let corpus = directory.join("target/corpus").join(CANARY);
    let _ = std::fs::remove_dir_all(&corpus);
    std::fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let mut child = start(directory, programs, CANARY, &corpus, GRACE.as_secs())?;
    let status = child.wait().map_err(|error| format!("{CANARY}: {error}"))?;
    let log = std::fs::read(directory.join("target").join(format!("{CANARY}.log"))).unwrap_or_default();
    if status.success() || !String::from_utf8_lossy(&log).contains(CANARY_WORDS) {
        return Err(format!("fuzz {CANARY}: it did not fail as it should ({status}); the fuzzer finds nothing here"));
    }
    eprintln!("== fuzz {CANARY}: failed, as it should");
    Ok(())
}

fn wait(target: &str, child: &mut Child, deadline: Instant) -> Result<(), String> {
    loop {
        match child.try_wait().map_err(|error| format!("{target}: {error}"))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                return Err(format!("fuzz {target}: {status}; see fuzz/target/{target}.log and the input beside it"));
            }
            None if Instant::now() > deadline => {
                let _ = child.kill();
                return Err(format!("fuzz {target}: did not stop in time; see fuzz/target/{target}.log"));
            }
            None => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_edges_are_read_off_a_log() {
        let log = "#2\tINITED cov: 12 ft: 13 corp: 1/1b\n#8192\tpulse  cov: 270 ft: 502 corp: 77/1024b\n\
            #9000\tDONE   cov: 271 ft: 503 corp: 78/1030b lim: 4096\nDone 9000 runs in 2 second(s)\n\
            stat::number_of_executed_units: 9000\nstat::average_exec_per_sec:     4500\n";
        assert_eq!(counts(log), (9000, 271));
        assert_eq!(counts("nothing"), (0, 0));
        assert_eq!(end_of(log).lines().count(), 6);
        assert_eq!(end_of(&"line\n".repeat(100)).lines().count(), 60);
    }
}
