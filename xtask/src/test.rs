//! `cargo xtask test`: everything that has to hold, in the order in which it fails fastest. The fuzzers are not part of it: to build
//! them takes longer than to run all suites, so the suite `decoders` runs their targets, and `cargo xtask soak` the fuzzers.
//!
//! At its end it says what its stages, suites and slowest tests took, what the suites reached, and where that is less than
//! `xtask/coverage.txt` has. `cargo xtask suites [--package NAME]... [--test NAME]...` does that for the suites alone, or some.

use crate::reached::{self, Reached};
use crate::run::{self, cargo};
use crate::{programs, suites, tidy};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Tests that are named with what they took.
const SLOWEST: usize = 10;

/// What parts of a run took, in their order: time and, where nothing runs beside it, that of processors.
#[derive(Default)]
struct Stages(Vec<(&'static str, Duration, Option<Duration>)>);

impl Stages {
    fn time<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let (start, used) = (Instant::now(), run::processor_of("self"));
        let done = work()?;
        self.0.push((name, start.elapsed(), Some(run::processor_of("self").saturating_sub(used))));
        Ok(done)
    }

    fn time_beside<T>(&mut self, name: &'static str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let done = self.time(name, work)?;
        if let Some((_, _, used)) = self.0.last_mut() {
            *used = None;
        }
        Ok(done)
    }

    fn print(&self) {
        eprintln!("\n== stages:\n seconds  of processors  stage");
        for (name, took, used) in &self.0 {
            let used = used.map(|used| format!("{:.1}", used.as_secs_f64())).unwrap_or_default();
            eprintln!("{:8.1} {used:>14}  {name}", took.as_secs_f64());
        }
    }
}

/// What is built while suites run: some of them leave a processor idle.
fn build_beside() -> Result<Stages, String> {
    let mut stages = Stages::default();
    let mut docs = cargo();
    docs.args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings");
    stages.time_beside("documentation, beside the tests", || run::run("documentation", &mut docs))?;
    Ok(stages)
}

/// Builds and runs the suites that `chosen` names to cargo, and `beside` them something else; prints what they took, and
/// returns what they reached.
fn run_suites(
    chosen: &[&str],
    stages: &mut Stages,
    beside: impl FnOnce() -> Result<Stages, String> + Send,
) -> Result<Reached, String> {
    let programs = stages.time("build of the tests", || {
        eprintln!("\n== build of the tests");
        let mut build = cargo();
        build.arg("test").args(chosen).args(["--no-run", "--message-format=json-render-diagnostics"]);
        let output =
            build.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: cannot start: {error}"))?;
        match output.status.success() {
            true => Ok(programs::of_build(&String::from_utf8_lossy(&output.stdout), chosen)),
            false => Err(format!("build of the tests: failed ({})", output.status)),
        }
    })?;
    eprintln!("\n== tests");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (outcome, beside) = stages.time("tests", || {
        // Also when a suite failed: what is beside them would outlive this process.
        let (outcome, beside) = std::thread::scope(|scope| {
            let beside = scope.spawn(beside);
            let outcome = programs::run_all(programs, processors);
            (outcome, beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok((outcome?, beside?))
    })?;
    stages.0.extend(beside.0);
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    eprint!("{}", suites::tables(&outcome.suites, threads.unwrap_or(processors), SLOWEST));
    Ok(outcome.reached)
}

fn print_reached(reached: &Reached) {
    eprintln!("\n== reached:");
    reached.iter().for_each(|(name, counts)| eprintln!("  {}", reached::tell(name, counts)));
}

/// The suites alone: of the workspace, or some, which then need not reach what others do.
pub(crate) fn run_only_suites(arguments: &[String]) -> Result<(), String> {
    let mut chosen = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match (argument.as_str(), rest.next()) {
            ("--package" | "--test", Some(name)) => chosen.extend([argument.as_str(), name.as_str()]),
            _ => return Err(format!("cargo xtask suites takes --package NAME and --test NAME, found '{argument}'")),
        }
    }
    let all_run = chosen.is_empty();
    if all_run {
        chosen.push("--workspace");
    }
    let mut stages = Stages::default();
    let reached = run_suites(&chosen, &mut stages, || Ok(Stages::default()))?;
    stages.print();
    print_reached(&reached);
    reached::check(&reached, all_run)
}

/// Runs every check; what this machine cannot do is said at the end.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if !arguments.is_empty() {
        return Err(format!("cargo xtask test takes nothing, found '{}'", arguments.join(" ")));
    }
    let mut skipped: Vec<String> = Vec::new();
    if !run::works("cc", &["--version"]) && !run::install(&["gcc", "libc6-dev"]) {
        return Err("a C compiler is needed (zstd is C): install gcc and libc6-dev".to_owned());
    }
    let mut stages = Stages::default();
    if run::has_component("fmt", "rustfmt") {
        stages.time("formatting", || run::run("formatting", cargo().args(["fmt", "--all", "--check"])))?;
    } else {
        skipped.push("formatting: this toolchain has no rustfmt".to_owned());
    }
    eprintln!("\n== tidy");
    stages.time("tidy", || tidy::run(&[]))?;
    if run::has_component("clippy", "clippy") {
        let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
        stages.time("clippy", || run::run("clippy", cargo().args(arguments)))?;
    } else {
        skipped.push("clippy: this toolchain has none".to_owned());
    }
    let reached = run_suites(&["--workspace"], &mut stages, build_beside)?;
    skipped.push("fuzzing: cargo xtask fuzz, or the soak; the suite 'decoders' ran its targets".to_owned());
    if std::env::var_os("VARVE_TEST_BLOCK_DEVICE").is_none() {
        skipped.push("a real block device: VARVE_TEST_BLOCK_DEVICE names none".to_owned());
    }
    skipped.push("the peers (RocksDB, LevelDB, fjall): a bench of its own, see docs/performance.md".to_owned());
    stages.print();
    print_reached(&reached);
    // Some least numbers are no run's yet: until they are, less is told and fails nothing.
    if let Err(less) = reached::check(&reached, true) {
        eprintln!("\n== {less}");
    }
    eprintln!("\n== all passed");
    for what in &skipped {
        eprintln!("== skipped: {what}");
    }
    Ok(())
}
