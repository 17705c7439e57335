//! Scenes from a text file: a state in, the choice out.
//!
//! A scene begins with the words of its state, one line to a level follows, and behind `----` stands what is chosen:
//!
//! ```text
//! leveled space=100 total=1000 available=120
//! 0: 4:a-z*10 3:a-z*10!5
//! 6: 1:a-m*50
//! ----
//! level0 0[4 3]+6[1] of 100
//! ```
//!
//! A table is `number:first-last*bytes`, and `!deletions`. Who asks may compact unless `role=` says otherwise; with `range=first-last`
//! it is what a caller asked to have compacted. `steps=number:count,...` are steps of scans over deletions. `VARVE_REWRITE=1` prints the file as it would be.

use super::*;
use crate::error::Error;
use crate::options::Options;
use crate::policy::{Leveled, TwoLevel};
use crate::shape::FileMeta;
use crate::shape::tests::table;
use crate::space::Attempt;
use std::sync::Arc;

const SCENES: &str = include_str!("scenes.txt");

struct Scene<'a> {
    words: Vec<&'a str>,
    version: Version,
    policy: Box<dyn CompactionPolicy>,
}

impl Scene<'_> {
    fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }

    /// The value of `name=value`.
    fn text(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    }

    /// Numbers between commas.
    fn numbers(&self, name: &str) -> Vec<u64> {
        let text = self.text(name).unwrap_or_default();
        text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().unwrap()).collect()
    }
}

fn tables(line: &str) -> Vec<Arc<FileMeta>> {
    line.split_whitespace()
        .map(|word| {
            let (number, rest) = word.split_once(':').unwrap();
            let (rest, deletions) = rest.split_once('!').unwrap_or((rest, "0"));
            let (range, bytes) = rest.split_once('*').unwrap_or((rest, "10"));
            table(number.parse().unwrap(), range, bytes.parse().unwrap(), deletions.parse().unwrap())
        })
        .collect()
}

fn scene(text: &str) -> Scene<'_> {
    let mut lines = text.lines();
    let words: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let options = Options {
        max_bytes_for_level_base: 100,
        max_bytes_for_level_multiplier: 10,
        target_file_size_base: 10,
        level0_file_num_compaction_trigger: 4,
        max_size_amplification_percent: if words[0] == "lazy" { 12 } else { 0 },
        ..Options::default()
    };
    let policy: Box<dyn CompactionPolicy> = match words[0] {
        "leveled" | "lazy" => Box::new(Leveled::new(&options)),
        "two_level" => Box::new(TwoLevel::new(&options)),
        other => panic!("no policy is called {other}"),
    };
    let mut levels = vec![Vec::new(); policy.level_count()];
    for line in lines {
        let (level, line) = line.split_once(": ").unwrap();
        levels[level.parse::<usize>().unwrap()] = tables(line);
    }
    let version = Version::new(levels, policy.disjoint_from());
    Scene { words, version, policy }
}

fn headroom(scene: &Scene<'_>) -> Option<Headroom> {
    let available_bytes = scene.number("available")?;
    Some(Headroom {
        total_bytes: scene.number("total").unwrap_or(1000),
        available_bytes,
        reserve_bytes: scene.number("reserve").unwrap_or(0),
        reserved_bytes: 0,
        table_bytes: scene.number("table").unwrap_or(10),
        is_in_tables: scene.number("table").is_some(),
        cut_bytes: 10,
        beside_bytes: 0,
        owed_bytes: 0,
        block_bytes: 1,
        growth_bytes: 0,
        asked_bytes: scene.number("left"),
        zones: None,
    })
}

fn choice(text: &str) -> String {
    let scene = scene(text);
    let mut remembered = Remembered::default();
    let shortfall = scene.numbers("shortfall");
    if !shortfall.is_empty() {
        // Into the next level that holds something, which is where steps go.
        let levels = 1..scene.version.levels.len();
        let next = levels.clone().find(|level| !scene.version.levels[*level].is_empty());
        let output_level = next.unwrap_or(levels.end - 1);
        let attempt = Attempt { output_level, inputs: shortfall, written_bytes_max: 0 };
        remembered.shortfalls.note(attempt, u64::MAX, Error::Closed);
    }
    remembered.unhelpful.extend(scene.numbers("unhelpful"));
    let space = SpaceState {
        headroom: headroom(&scene),
        bytes: scene.number("space").unwrap_or(u64::MAX),
        was_short: scene.has("short"),
        table_bytes: scene.number("table"),
        remembered: &remembered,
    };
    let mut busy = Busy::default();
    for number in scene.numbers("busy") {
        let (level, file) = scene.version.files().find(|(_, file)| file.number == number).unwrap();
        busy.enter(&crate::shape::in_place(level, vec![file.clone()]));
    }
    let steps_of = |word: &str| {
        let (number, steps) = word.split_once(':').unwrap();
        (number.parse().unwrap(), steps.parse().unwrap())
    };
    let steps: TableSteps = scene.text("steps").into_iter().flat_map(|text| text.split(',')).map(steps_of).collect();
    let state = CompactionState {
        version: &scene.version,
        others_run: !scene.numbers("busy").is_empty(),
        busy: &busy,
        space,
        oldest_view: scene.number("view").unwrap_or(u64::MAX),
        is_waited_for: scene.has("waited-for"),
        steps: &steps,
    };
    if let Some(range) = scene.text("range") {
        return told_of_range(&scene, &state.space, range);
    }
    let jobs = JobsState {
        role: match scene.text("role") {
            None | Some("compactions") => Role::Compactions,
            Some("flushes") => Role::Flushes,
            Some("everything") => Role::Everything,
            Some(other) => panic!("no role is called {other}"),
        },
        flush_is_due: scene.has("flush-due"),
        compactions_are_held: scene.has("held"),
        sampling: scene.has("sampling"),
        has_garbage: scene.has("garbage"),
    };
    if !scene.has("unsampled") {
        scene.version.files().for_each(|(_, file)| drop(file.histogram.set(Default::default())));
    }
    match schedule(&jobs, (!scene.has("unlooked")).then_some(&state), &*scene.policy) {
        Choice::Nothing => "nothing".to_owned(),
        Choice::Flush => "flush".to_owned(),
        Choice::Look => "look".to_owned(),
        Choice::Collect => "collect".to_owned(),
        Choice::Sample(tables) => format!("sample {}", numbers(&tables)),
        Choice::Compact(chosen) => {
            let mut told = told_of_plan(&chosen.plan, chosen.space_bytes);
            for (is_so, word) in [(chosen.is_alone, " alone"), (chosen.is_short, " short")] {
                told.push_str(if is_so { word } else { "" });
            }
            told
        }
    }
}

fn numbers(files: &[Arc<FileMeta>]) -> String {
    files.iter().map(|file| file.number.to_string()).collect::<Vec<_>>().join(" ")
}

fn told_of_plan(plan: &CompactionPlan, space_bytes: u64) -> String {
    let overlapping = match (plan.output_level == plan.input_level, plan.overlapping.is_empty()) {
        (true, _) => String::new(),
        (false, true) => format!("+{}[]", plan.output_level),
        (false, false) => format!("+{}[{}]", plan.output_level, numbers(&plan.overlapping)),
    };
    let of = if space_bytes == u64::MAX { "all".to_owned() } else { space_bytes.to_string() };
    let between: String = plan.between.iter().map(|(level, file)| format!("+{level}[{}]", file.number)).collect();
    format!("{:?} {}[{}]{between}{overlapping} of {of}", plan.reason, plan.input_level, numbers(&plan.inputs))
}

/// `range=` and its ends, empty where there is none, parted by a hyphen.
fn told_of_range(scene: &Scene<'_>, space: &SpaceState<'_>, range: &str) -> String {
    let end_of = |text: &'_ str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
    let (begin, end) = range.split_once('-').unwrap();
    let (begin, end) = (end_of(begin), end_of(end));
    let (done, left_out, part_bytes_max) = (None, &BTreeSet::new(), u64::MAX);
    let wanted = WantedRange { begin: begin.as_deref(), end: end.as_deref(), done, left_out, part_bytes_max };
    let Some(step) = next_of_range(&scene.version, space, &wanted, &*scene.policy) else { return "nothing".to_owned() };
    let part = if step.whole.is_some() { ", a part" } else { "" };
    told_of_plan(&step.plan, space.bytes) + part
}

#[test]
fn what_is_chosen_is_as_the_scenes_say() {
    let mut found = Vec::new();
    for scene in SCENES.split("\n\n") {
        let (comments, rest): (Vec<&str>, Vec<&str>) = scene.lines().partition(|line| line.starts_with('#'));
        let text = rest.join("\n");
        let (state, _) = text.split_once("\n----").expect("a line of dashes");
        found.push([comments, vec![state, "----", &choice(state)]].concat().join("\n"));
    }
    let found = found.join("\n\n") + "\n";
    if std::env::var_os("VARVE_REWRITE").is_some() {
        println!("{found}");
    }
    assert_eq!(found, SCENES, "run with VARVE_REWRITE=1 and --nocapture to see the file as it would be");
}
