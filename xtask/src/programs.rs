//! The programs of tests, run side by side: while one waits for its last test, or for threads that hand over to each other,
//! another has the processor.

use crate::reached::{Reached, add_up};
use crate::run::{self, cargo};
use crate::suites::{Follower, Suite};
use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Those that take long, the longest first: begun last, one of them would run alone. What is wrong here costs time only.
const LONG: &[&str] = &[
    "store (own tests)",
    "engine crash",
    "varve kills",
    "lab (own tests)",
    "engine faults",
    "engine filesystem",
    "interleavings interleavings",
    "engine workloads",
    "engine maintenance",
    "engine openings",
];

/// Says to glibc that what was freed is kept for what comes next: suites make and drop media of megabytes by the hundred
/// thousand, and the system would clear the pages of each.
pub(crate) const MEMORY: [(&str, &str); 3] =
    [("MALLOC_MMAP_THRESHOLD_", "33000000"), ("MALLOC_TOP_PAD_", "33000000"), ("MALLOC_TRIM_THRESHOLD_", "1000000000")];

/// The name of the one that runs the tests in documentation.
const DOCUMENTATION: &str = "documentation";

/// A program of tests that is built.
pub(crate) struct Program {
    pub(crate) name: String,
    command: Command,
}

/// What all programs did.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) suites: Vec<Suite>,
    pub(crate) reached: Reached,
    failed: Vec<String>,
}

/// The programs that a build of tests made, in the order in which they begin. `messages` are those of
/// `cargo test --no-run --message-format=json` with the arguments `chosen`.
pub(crate) fn of_build(messages: &str, chosen: &[&str]) -> Vec<Program> {
    let mut programs = Vec::new();
    let mut has_library = false;
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let target = &message["target"];
        // A program that tests start is built as well.
        let (Some(file), Some(true)) = (message["executable"].as_str(), message["profile"]["test"].as_bool()) else {
            continue;
        };
        let folder =
            Path::new(message["manifest_path"].as_str().unwrap_or_default()).parent().unwrap_or(Path::new("/"));
        let package = folder.file_name().unwrap_or_default().to_string_lossy();
        let name = match target["kind"][0].as_str() {
            Some("test") => target["name"].as_str().unwrap_or_default(),
            Some("bin") => "(own tests of the program)",
            _ => {
                has_library = true;
                "(own tests)"
            }
        };
        let mut command = run::plain(file);
        command.current_dir(folder).arg("--show-output").envs(MEMORY);
        programs.push(Program { name: format!("{package} {name}"), command });
    }
    programs.sort_by_key(|program| LONG.iter().position(|long| *long == program.name).unwrap_or(LONG.len()));
    if has_library && !chosen.contains(&"--test") {
        let mut command = cargo();
        command.args(["test", "--doc"]).args(chosen).args(["--", "--show-output"]).env("CARGO_TERM_COLOR", "never");
        programs.push(Program { name: DOCUMENTATION.to_owned(), command });
    }
    programs
}

/// Runs programs, `at_once` of them at a time, and says what came of each as it ends.
///
/// # Errors
/// Which failed; then those that had not begun do not.
pub(crate) fn run_all(programs: Vec<Program>, at_once: usize) -> Result<Outcome, String> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let outcome = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                // Not in the condition, which would keep the lock.
                let next = || lock(&waiting).pop_front();
                while let Some(program) = next() {
                    if let Err(why) = run_one(program, &outcome) {
                        eprintln!("== {why}");
                        lock(&outcome).failed.push(why);
                        lock(&waiting).clear();
                    }
                }
            });
        }
    });
    let outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    if outcome.failed.is_empty() { Ok(outcome) } else { Err(outcome.failed.join("\n")) }
}

fn run_one(program: Program, outcome: &Mutex<Outcome>) -> Result<(), String> {
    let Program { name, command } = program;
    let mut follower = if name == DOCUMENTATION { Follower::default() } else { Follower::of(&name) };
    let end = run::follow(&name, command, |at, line| {
        if let Some(shown) = follower.line(at, line) {
            // Lines of others may come between.
            eprintln!("{}", if shown.starts_with("== ") { shown } else { format!("{name}: {shown}") });
        }
    })?;
    follower.end(end);
    let mut outcome = lock(outcome);
    outcome.suites.append(&mut follower.suites);
    add_up(&follower.reached, &mut outcome.reached);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/engine/Cargo.toml","target":{"kind":["test"],"name":"crash"},"profile":{"test":true},"executable":"/w/target/debug/deps/crash-0123"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/engine/Cargo.toml","target":{"kind":["lib"],"name":"varve_engine"},"profile":{"test":true},"executable":"/w/target/debug/deps/varve_engine-89"}
{"reason":"compiler-artifact","manifest_path":"/w/crates/engine/Cargo.toml","target":{"kind":["lib"],"name":"varve_engine"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"varve"},"profile":{"test":false},"executable":"/w/target/debug/varve"}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn programs_are_named_by_folder_and_target() {
        let names = |chosen: &[&str]| {
            of_build(MESSAGES, chosen).into_iter().map(|program| program.name).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(names(&["--workspace"]), "engine crash, engine (own tests), documentation");
        assert_eq!(names(&["--test", "crash"]), "engine crash, engine (own tests)");
        let first = of_build(MESSAGES, &[]).remove(0).command;
        assert_eq!(first.get_program(), "/w/target/debug/deps/crash-0123");
        assert_eq!(first.get_current_dir(), Some(Path::new("/w/crates/engine")));
    }

    fn script(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: name.to_owned(), command }
    }

    #[test]
    fn programs_run_side_by_side_and_what_they_reach_is_added_up() {
        let (one, other) = std::io::pipe().map(|(output, input)| (input, output)).unwrap();
        // The first ends when the second, which is begun beside it, has written.
        let mut first = script("first", "read line && echo reached: a: 1 points");
        first.command.stdin(other);
        let mut second = script("second", "echo test b ... ok; echo reached: a: 2 points; echo >&0");
        second.command.stdin(one);
        let outcome = run_all(vec![first, second], 2).unwrap();
        assert_eq!(outcome.reached["a"]["points"], 3);
        let mut suites: Vec<_> = outcome.suites.iter().map(|suite| (suite.name.as_str(), suite.tests)).collect();
        suites.sort_unstable();
        assert_eq!(suites, [("first", 0), ("second", 1)]);
    }

    #[test]
    fn none_begins_after_one_that_failed() {
        let place = std::env::temp_dir().join(format!("varve-programs-{}", std::process::id()));
        let touch = script("third", &format!("touch {}", place.display()));
        let failed = run_all(vec![script("first", "true"), script("second", "exit 3"), touch], 1).err().unwrap();
        assert!(failed.starts_with("second: failed ("), "{failed}");
        assert!(!place.exists());
    }
}
