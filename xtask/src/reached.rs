//! What suites say that they reached, on lines `reached: NAME: 12 kills, 3 points`, and the least that it must be.

use std::collections::BTreeMap;

/// How often what, by the name of who says it.
pub(crate) type Reached = BTreeMap<String, BTreeMap<String, u64>>;

/// What such a line begins with.
const MARK: &str = "reached:";

/// Where the least numbers are kept, from the workspace's folder.
const LEAST: &str = "xtask/coverage.txt";

/// Before the name of what cannot be tried on every machine.
const WHERE_POSSIBLE: &str = "where possible: ";

/// The part of a line that says what was reached; a name may be printed before it.
pub(crate) fn find(line: &str) -> Option<&str> {
    line.find(MARK).map(|at| &line[at..])
}

/// Adds up what lines say.
pub(crate) fn add_up(lines: &[String], all: &mut Reached) {
    for line in lines {
        if let Some((name, counts)) = parse(line.trim_start_matches(MARK)) {
            let sums = all.entry(name).or_default();
            counts.into_iter().for_each(|(what, number)| *sums.entry(what).or_default() += number);
        }
    }
}

/// `NAME: 12 kills, 3 points`; what is no number and a word is passed over.
fn parse(line: &str) -> Option<(String, Vec<(String, u64)>)> {
    let (name, counts) = line.trim().split_once(": ")?;
    let count = |count: &str| {
        let (number, what) = count.split_once(' ')?;
        Some((what.to_owned(), number.parse().ok()?))
    };
    Some((name.to_owned(), counts.split(", ").filter_map(count).collect()))
}

/// `NAME: 12 kills, 3 points`.
pub(crate) fn tell(name: &str, counts: &BTreeMap<String, u64>) -> String {
    let told: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    format!("{name}: {}", told.join(", "))
}

/// Holds what was reached against the least numbers in the repository; of suites that say nothing only where `all_ran`.
///
/// # Errors
/// What was not reached, and what to do about it.
pub(crate) fn check(all: &Reached, all_ran: bool) -> Result<(), String> {
    let path = crate::run::root().join(LEAST);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let wrong = below(&text, all, all_ran);
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!(
        "what the suites reach is not what {LEAST} says:\n  {}\nA suite that tests less than it did hides a fault in it, or \
         in the change. If less is meant, change the number in {LEAST} in the same commit and say why in its message; \
         what is new is added there.",
        wrong.join("\n  ")
    ))
}

/// What is below the least numbers that `text` has, or not in it.
fn below(text: &str, all: &Reached, all_ran: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (line, is_owed) = match line.strip_prefix(WHERE_POSSIBLE) {
            Some(line) => (line, false),
            None => (line, all_ran),
        };
        let Some((name, least)) = parse(line).filter(|(_, least)| !least.is_empty()) else {
            wrong.push(format!("'{line}' is no line such as 'NAME: 12 kills, 3 points'"));
            continue;
        };
        match all.get(&name) {
            None if is_owed => wrong.push(format!("{name}: it says nothing; at least '{line}'")),
            None => {}
            Some(counts) => {
                for (what, least) in least {
                    let count = counts.get(&what).copied().unwrap_or(0);
                    if count < least {
                        wrong.push(format!("{name}: {count} {what}, at least {least}"));
                    }
                }
            }
        }
        known.push(name);
    }
    for (name, counts) in all.iter().filter(|(name, _)| !known.contains(name)) {
        wrong.push(format!("{name}: it is not there; add a line such as '{}'", tell(name, counts)));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(lines: &[&str]) -> Reached {
        let mut all = Reached::new();
        add_up(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>(), &mut all);
        all
    }

    #[test]
    fn what_was_reached_is_added_up() {
        let all = reached(&["reached: kills: 3 kills, 10 processes", "reached: kills: 4 kills, on 3 media", "nothing"]);
        assert_eq!(all["kills"], BTreeMap::from([("kills".to_owned(), 7), ("processes".to_owned(), 10)]));
        assert_eq!(tell("kills", &all["kills"]), "kills: 7 kills, 10 processes");
        assert_eq!(find("test a ... reached: a: 1 b"), Some("reached: a: 1 b"));
        assert_eq!(find("nothing was"), None);
    }

    #[test]
    fn what_is_below_the_least_is_told() {
        let least = "# words\n\ncrash/points: 10 points, 20 images that differ\nwhere possible: mounts: 3 scenes\n";
        let enough = "reached: crash/points: 10 points, 21 images that differ, 3 seeds";
        assert!(below(least, &reached(&[enough]), true).is_empty());
        assert!(below(least, &reached(&[enough, "reached: mounts: 3 scenes"]), true).is_empty());
        assert!(below(least, &reached(&[]), false).is_empty());
        for (lines, word) in [
            (&["reached: crash/points: 9 points, 21 images that differ"][..], "9 points, at least 10"),
            (&["reached: crash/points: 10 points"], "0 images that differ, at least 20"),
            (&[], "crash/points: it says nothing"),
            (&[enough, "reached: mounts: 2 scenes"], "mounts: 2 scenes, at least 3"),
            (&[enough, "reached: new: 2 scenes"], "add a line such as 'new: 2 scenes'"),
        ] {
            let wrong = below(least, &reached(lines), true);
            assert!(wrong.len() == 1 && wrong[0].contains(word), "{wrong:?}");
        }
        assert!(below("something", &Reached::new(), false)[0].contains("is no line"));
    }

    #[test]
    fn every_line_in_the_repository_is_understood() {
        let text = std::fs::read_to_string(crate::run::root().join(LEAST)).unwrap();
        let wrong = below(&text, &Reached::new(), true);
        assert!(wrong.iter().all(|wrong| wrong.contains("it says nothing")), "{wrong:?}");
        assert!(wrong.len() > 10);
    }
}
