//! What a program of tests says while it runs: how long it takes, each test of it, and what they reached.
//!
//! Lines come with the time at which each came. The harness tells no times of single tests, but it begins them in order of
//! their names, as many at once as there are threads, the next one when one has ended: so what each took follows from when
//! they ended.

use crate::run::Progress;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A test, and when it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ended {
    name: String,
    at: Duration,
}

/// A program of tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suite {
    pub(crate) name: String,
    /// Tests that ran.
    pub(crate) tests: u64,
    begin: Progress,
    end: Progress,
    ended: Vec<Ended>,
}

impl Suite {
    pub(crate) fn duration(&self) -> Duration {
        self.end.elapsed.saturating_sub(self.begin.elapsed)
    }

    /// Of all processors together: other work on the machine changes it little.
    fn processor(&self) -> Duration {
        self.end.processor.saturating_sub(self.begin.processor)
    }

    /// What its tests took, on so many threads.
    fn durations(&self, threads: usize) -> Vec<(String, Duration)> {
        let mut names: Vec<&str> = self.ended.iter().map(|ended| ended.name.as_str()).collect();
        names.sort_unstable();
        let mut waiting: VecDeque<&str> = names.into();
        let mut begun: BTreeMap<&str, Duration> = BTreeMap::new();
        for name in waiting.drain(..threads.max(1).min(waiting.len())) {
            begun.insert(name, self.begin.elapsed);
        }
        let mut durations = Vec::new();
        for Ended { name, at } in &self.ended {
            // Another order than that of names: then nothing is said.
            let Some(begin) = begun.remove(name.as_str()) else { return Vec::new() };
            durations.push((name.clone(), at.saturating_sub(begin)));
            if let Some(next) = waiting.pop_front() {
                begun.insert(next, *at);
            }
        }
        durations
    }
}

/// Which part of a suite's output a line is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    #[default]
    Running,
    /// What tests printed that passed.
    Successes,
    Failures,
}

/// Follows the lines of a program of tests that is run with `--show-output`, or of `cargo test --doc`, which runs several.
#[derive(Default)]
pub(crate) struct Follower {
    section: Section,
    pub(crate) suites: Vec<Suite>,
    /// Lines that say what was reached.
    pub(crate) reached: Vec<String>,
}

impl Follower {
    /// Follows the suite of this name.
    pub(crate) fn of(name: &str) -> Follower {
        let suite = Suite { name: name.to_owned(), ..Suite::default() };
        Follower { suites: vec![suite], ..Follower::default() }
    }

    /// Takes a line that came when the program was `at` this point; what is to be shown of it.
    pub(crate) fn line(&mut self, at: Progress, line: &str) -> Option<String> {
        if let Some(package) = line.trim_start().strip_prefix("Doc-tests ") {
            self.end(at);
            self.section = Section::Running;
            let name = format!("{package} (documentation)");
            self.suites.push(Suite { name, begin: at, end: at, ..Suite::default() });
            return None;
        }
        if let Some(reached) = crate::reached::find(line)
            && self.section != Section::Failures
        {
            self.reached.push(reached.to_owned());
            return None;
        }
        if line.starts_with("test result: ") {
            self.section = Section::Running;
            let ended = self.suites.last_mut()?;
            ended.end = at;
            let shown = format!("== {}: {line}", ended.name);
            return Some(shown);
        }
        match line {
            "successes:" if self.section == Section::Running => self.section = Section::Successes,
            "failures:" => self.section = Section::Failures,
            _ => {}
        }
        match self.section {
            Section::Successes => None,
            Section::Failures => Some(line.to_owned()),
            Section::Running => self.line_of_running(at.elapsed, line),
        }
    }

    fn line_of_running(&mut self, at: Duration, line: &str) -> Option<String> {
        let test = line.strip_prefix("test ").and_then(|test| test.rsplit_once(" ... "));
        if let (Some((name, how)), Some(suite)) = (test, self.suites.last_mut()) {
            let is_ignored = how.starts_with("ignored");
            let name = name.trim_end_matches(" - should panic").to_owned();
            suite.ended.push(Ended { name, at });
            suite.tests += u64::from(!is_ignored);
            return (how != "ok" && !is_ignored).then(|| line.to_owned());
        }
        let is_count = line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test"));
        (!is_count && !line.trim().is_empty()).then(|| line.to_owned())
    }

    /// Says that the last suite has ended.
    pub(crate) fn end(&mut self, at: Progress) {
        if let Some(last) = self.suites.last_mut() {
            last.end = at;
        }
    }
}

/// Tables of all suites, the longest first, and of the slowest `slowest` tests.
pub(crate) fn tables(suites: &[Suite], threads: usize, slowest: usize) -> String {
    let mut text = "\n== suites, those with most to do first:\n seconds  of processors  tests  suite\n".to_owned();
    let mut ordered: Vec<&Suite> = suites.iter().collect();
    ordered.sort_by_key(|suite| std::cmp::Reverse(suite.processor()));
    for suite in ordered {
        let (took, used) = (suite.duration().as_secs_f64(), suite.processor().as_secs_f64());
        text.push_str(&format!("{took:8.1} {used:14.1} {:6}  {}\n", suite.tests, suite.name));
    }
    let mut tests: Vec<(String, Duration)> = suites
        .iter()
        .flat_map(|suite| {
            let named = |(test, took)| (format!("{}: {test}", suite.name), took);
            suite.durations(threads).into_iter().map(named)
        })
        .collect();
    tests.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
    text.push_str(&format!("\n== slowest tests ({threads} at once):\n seconds  test\n"));
    for (name, took) in tests.iter().take(slowest) {
        text.push_str(&format!("{:8.1}  {name}\n", took.as_secs_f64()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &[(u64, &str)] = &[
        (0, ""),
        (1, "running 4 tests"),
        (3, "test b ... ok"),
        (4, "test c ... ignored, the soak runs it"),
        (9, "test a ... ok"),
        (12, "test d ... ok"),
        (12, ""),
        (12, "successes:"),
        (12, ""),
        (12, "---- a stdout ----"),
        (12, "words of a"),
        (12, "reached: crash/a: 3 points"),
        (12, ""),
        (12, "successes:"),
        (12, "    a"),
        (12, ""),
        (12, "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 11.00s"),
        (12, ""),
    ];

    const DOCUMENTATION: &[(u64, &str)] = &[
        (1, "    Finished `test` profile [optimized + debuginfo] target(s) in 0.10s"),
        (1, "   Doc-tests varve"),
        (2, "running 1 test"),
        (3, "test crates/varve/src/lib.rs - (line 7) ... ok"),
        (3, "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s"),
        (3, "   Doc-tests varve_env"),
        (4, "running 0 tests"),
    ];

    /// On one processor and a half.
    fn progress(seconds: u64) -> Progress {
        Progress { elapsed: Duration::from_secs(seconds), processor: Duration::from_millis(seconds * 1500) }
    }

    fn follow(output: &[(u64, &str)], mut follower: Follower) -> (Follower, Vec<String>) {
        let shown = output.iter().filter_map(|(at, line)| follower.line(progress(*at), line)).collect::<Vec<_>>();
        (follower, shown)
    }

    #[test]
    fn suites_and_what_they_reached_are_read_off_what_they_say() {
        let of = |suite: &Suite| (suite.name.clone(), suite.tests, suite.duration().as_secs());
        let (mut follower, shown) = follow(OUTPUT, Follower::of("engine crash"));
        follower.end(progress(14));
        assert_eq!(of(&follower.suites[0]), ("engine crash".to_owned(), 3, 14));
        assert_eq!(follower.reached, ["reached: crash/a: 3 points"]);
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0].starts_with("== engine crash: test result: ok. 3 passed"), "{shown:?}");
        let words = [(1, "a word of no harness"), (40, "reached: kills: 7 kills")];
        let (follower, shown) = follow(&words, Follower::of("varve kills"));
        assert_eq!((follower.reached, shown), (vec![words[1].1.to_owned()], vec![words[0].1.to_owned()]));
    }

    #[test]
    fn documentation_is_a_suite_for_each_package() {
        let (mut follower, shown) = follow(DOCUMENTATION, Follower::default());
        follower.end(progress(5));
        let of = |suite: &Suite| (suite.name.clone(), suite.tests, suite.duration().as_secs());
        let found: Vec<_> = follower.suites.iter().map(of).collect();
        let expected = [("varve (documentation)", 1, 2), ("varve_env (documentation)", 0, 2)];
        assert_eq!(found, expected.map(|(name, tests, seconds)| (name.to_owned(), tests, seconds)));
        assert_eq!(shown.len(), 2, "{shown:?}");
    }

    #[test]
    fn what_tests_took_follows_from_when_they_ended() {
        let (follower, _) = follow(OUTPUT, Follower::of("engine crash"));
        let of = |threads| {
            let durations = follower.suites[0].durations(threads);
            durations.into_iter().map(|(name, took)| format!("{name}{}", took.as_secs())).collect::<Vec<_>>().join(" ")
        };
        // a and b at once; c when b ended, d when c did.
        assert_eq!(of(2), "b3 c1 a9 d8");
        assert_eq!(of(8), "b3 c4 a9 d12");
        // They cannot have ended so one by one.
        assert_eq!(of(1), "");
        let table = tables(&follower.suites, 2, 2);
        assert!(table.contains("    12.0           18.0      3  engine crash\n"), "{table}");
        assert!(table.ends_with("     9.0  engine crash: a\n     8.0  engine crash: d\n"), "{table}");
    }

    #[test]
    fn failures_are_shown_whole() {
        let failing = [
            (1, "running 2 tests"),
            (2, "test a ... ok"),
            (3, "test b ... FAILED"),
            (3, "successes:"),
            (3, "---- a stdout ----"),
            (3, "quiet"),
            (3, "failures:"),
            (3, ""),
            (3, "---- b stdout ----"),
            (3, "thread 'b' panicked at tests/crash.rs:7:5:"),
            (3, "reached: crash/b: 1 points"),
            (3, "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.00s"),
        ];
        let (follower, shown) = follow(&failing, Follower::of("engine crash"));
        assert!(follower.reached.is_empty());
        assert_eq!(shown.len(), 7, "{shown:?}");
        assert_eq!(shown[0], "test b ... FAILED");
        assert!(
            !shown.contains(&"quiet".to_owned()) && shown[6].starts_with("== engine crash: test result"),
            "{shown:?}"
        );
    }
}
