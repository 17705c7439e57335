//! `cargo xtask soak [--minutes N] [--seed S] [--only TEXT]`: everything that is drawn by seed, without the bounds of the
//! regular run; or what of it has TEXT in its name (`engine crash`, `kills`, `fuzz`, `miri`, `tsan`).
//!
//! A suite takes part by reading `VARVE_SOAK_SECONDS` (how long to go on) and `VARVE_SEED` (where to begin), or, in a
//! crate's own tests, by being ignored because "the soak runs it". It says what it reached on lines that begin with
//! `reached:`, which are gathered: `reached: NAME: 12 kills, 3 points`. Rounds of all suites, each with seeds of its own, and
//! of the fuzzers, until the time is over. Failures are told at once, kept in `target/soak`, and told again at the end.

use crate::reached::{self, Reached, add_up};
use crate::run::{self, cargo};
use crate::{fuzz, sanitize};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Unless minutes are asked for.
const MINUTES: u64 = 60;

/// A round gives each suite so long, at most.
const SLICE: Duration = Duration::from_secs(120);

/// What a round's seeds are apart.
const ROUND_SEEDS: u64 = 1 << 20;

/// Words by which a file of tests says that it takes part.
const MARKS: [&str; 2] = ["VARVE_SOAK_SECONDS", "run_seeds("];

/// Why a test of a crate's own that only the soak runs is ignored.
const IGNORED: &str = "the soak runs it";

type Tool = (&'static str, fn(&[String]) -> Result<(), String>);

/// What is not drawn by seed, and run once.
const TOOLS: [Tool; 2] = [("miri", sanitize::miri), ("tsan", sanitize::tsan)];

/// Something to be run for a while.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Suite {
    package: String,
    /// A file of tests; the crate's own if there is none.
    file: Option<String>,
    /// Tests in it that go on for as long as they are told.
    tests: u64,
}

impl Suite {
    fn name(&self) -> String {
        format!("{} {}", self.package, self.file.as_deref().unwrap_or("(own tests)"))
    }

    fn run(&self, seconds: u64, seed: u64, log: &Path) -> Result<Vec<String>, String> {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", &self.package]);
        match &self.file {
            Some(file) => command.args(["--test", file, "--", "--nocapture"]),
            None => command.args(["--lib", "--", "--nocapture", "--ignored"]),
        };
        command
            .arg("--test-threads=1")
            .env("VARVE_SOAK_SECONDS", (seconds / self.tests.max(1)).max(1).to_string())
            .env("VARVE_SEED", seed.to_string());
        let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{}: {error}", self.name()))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let reached = text.lines().filter_map(reached::find).map(str::to_owned).collect();
        if output.status.success() {
            return Ok(reached);
        }
        std::fs::write(log, &text).map_err(|error| format!("{}: {error}", log.display()))?;
        let lines: Vec<&str> = text.lines().collect();
        let end = lines[lines.len().saturating_sub(12)..].join("\n");
        Err(format!(
            "{}: VARVE_SEED={seed} VARVE_SOAK_SECONDS={seconds}: {}; all of it is in {}\n{end}",
            self.name(),
            output.status,
            log.display()
        ))
    }
}

/// Every suite of the workspace that takes part.
fn suites() -> Result<Vec<Suite>, String> {
    let said = |place: &Path, error: std::io::Error| format!("{}: {error}", place.display());
    let crates = run::root().join("crates");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&crates).map_err(|error| said(&crates, error))? {
        let place = entry.map_err(|error| said(&crates, error))?.path();
        let manifest = std::fs::read_to_string(place.join("Cargo.toml")).unwrap_or_default();
        let Some(package) = manifest.lines().find_map(|line| line.strip_prefix("name = ")) else { continue };
        let package = package.trim_matches('"').to_owned();
        for file in std::fs::read_dir(place.join("tests")).into_iter().flatten().flatten() {
            let path = file.path();
            let (Some("rs"), Some(stem)) = (path.extension().and_then(|end| end.to_str()), path.file_stem()) else {
                continue;
            };
            let text = std::fs::read_to_string(&path).map_err(|error| said(&path, error))?;
            if MARKS.iter().any(|mark| text.contains(mark)) {
                let file = Some(stem.to_string_lossy().into_owned());
                let tests = (text.matches(MARKS[1]).count() as u64).max(1);
                all.push(Suite { package: package.clone(), file, tests });
            }
        }
        let tests = ignored_below(&place.join("src"))?;
        if tests > 0 {
            all.push(Suite { package, file: None, tests });
        }
    }
    all.sort();
    Ok(all)
}

/// How many tests in and below a folder are ignored for the soak.
fn ignored_below(folder: &Path) -> Result<u64, String> {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            count += ignored_below(&path)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let is_ignored = |line: &&str| line.trim_start().starts_with("#[ignore") && line.contains(IGNORED);
            count += text.lines().filter(is_ignored).count() as u64;
        }
    }
    Ok(count)
}

/// See the module.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut minutes, mut seed) = (MINUTES, RandomState::new().hash_one(0) >> 24);
    let mut only = String::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} takes a value"));
        let mut number = || -> Result<u64, String> {
            let value = value()?;
            value.parse().map_err(|error| format!("{argument} {value}: {error}"))
        };
        match argument.as_str() {
            "--minutes" => minutes = number()?,
            "--seed" => seed = number()?,
            "--only" => only = value()?.clone(),
            _ => {
                return Err(format!(
                    "cargo xtask soak takes --minutes N, --seed S and --only TEXT, found '{argument}'"
                ));
            }
        }
    }
    let all_suites = suites()?;
    let suites: Vec<&Suite> = all_suites.iter().filter(|suite| suite.name().contains(&only)).collect();
    let fuzzes = "fuzz".contains(&only);
    let tools: Vec<Tool> = TOOLS.into_iter().filter(|(name, _)| name.contains(&only)).collect();
    if suites.is_empty() && !fuzzes && tools.is_empty() {
        let names: Vec<String> = all_suites.iter().map(Suite::name).collect();
        return Err(format!("nothing has '{only}' in its name; there are: {}, fuzz, miri, tsan", names.join(", ")));
    }
    let folder = run::root().join("target/soak");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // Each by itself, as they are run: together they would have other features.
    for package in suites.iter().map(|suite| &suite.package).collect::<BTreeSet<_>>() {
        let what = format!("build the tests of {package}");
        run::run(&what, cargo().args(["test", "--package", package, "--no-run", "--quiet"]))?;
    }
    let deadline = Instant::now() + Duration::from_secs(minutes * 60);
    let (mut all, mut failures) = (Reached::new(), Vec::new());
    for round in (0..).take_while(|_| !suites.is_empty() || fuzzes) {
        // Fuzzing takes the share of two suites.
        let parts = suites.len() as u32 + if fuzzes { 2 } else { 0 };
        let slice = (deadline.saturating_duration_since(Instant::now()) / parts).min(SLICE);
        let seconds = slice.as_secs().max(1);
        for suite in &suites {
            let seed = seed + round * ROUND_SEEDS;
            eprintln!("== round {round}: {} from seed {seed}", suite.name());
            let log = folder.join(format!("{}-{seed}.log", suite.name().replace([' ', '(', ')'], "_")));
            match suite.run(seconds, seed, &log) {
                Ok(lines) => add_up(&lines, &mut all),
                Err(what) => {
                    eprintln!("{what}");
                    failures.push(what);
                }
            }
        }
        if fuzzes && fuzz::can_build() {
            let each = (2 * seconds / fuzz::TARGETS.len() as u64 * fuzz::AT_ONCE as u64).max(2);
            match fuzz::build().and_then(|()| fuzz::fuzz(fuzz::TARGETS, each)) {
                Ok(_) => add_up(&[format!("reached: fuzz: {} seconds", each * fuzz::TARGETS.len() as u64)], &mut all),
                Err(what) => failures.push(what),
            }
        }
        add_up(&["reached: soak: 1 rounds".to_owned()], &mut all);
        if Instant::now() >= deadline {
            break;
        }
    }
    for (_, tool) in tools {
        if let Err(what) = tool(&[]) {
            failures.push(what);
        }
    }
    println!("reached, from seed {seed}, in {minutes} minutes:");
    for (name, sums) in &all {
        println!("  {}", reached::tell(name, sums));
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("{} failures:\n{}", failures.len(), failures.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_of_kills_takes_part() {
        let kills = |suite: &Suite| suite.package == "varve" && suite.file.as_deref() == Some("kills");
        assert!(suites().unwrap().iter().any(kills));
    }
}
