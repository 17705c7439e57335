//! The policy on shapes written as text: one level a line, tables as `number:first-last` with an
//! optional size in MiB after `*`.

use super::*;
use crate::key;
use crate::manifest::AddedFile;
use crate::shape::{Garbage, subcompaction_boundaries};

const MIB: u64 = 1 << 20;

fn options() -> PolicyOptions {
    PolicyOptions {
        level0_file_num_compaction_trigger: 4,
        level0_score_by_bytes: false,
        level0_waiting_max: 12,
        max_bytes_for_level_base: 256 * MIB,
        max_bytes_for_level_multiplier: 10,
        dynamic_level_bytes: true,
        max_compaction_bytes: 1600 * MIB,
        max_size_amplification_percent: 0,
        priority: CompactionPriority::default(),
    }
}

fn shape(text: &str) -> Version {
    let garbage = Arc::new(Garbage::default());
    let internal = |user: &str, sequence: u64| {
        let mut out = Vec::new();
        key::append_internal_key(&mut out, user.as_bytes(), sequence, 1);
        out
    };
    let levels = text
        .split('\n')
        .map(|line| {
            line.split_whitespace()
                .map(|word| {
                    let (number, rest) = word.split_once(':').unwrap();
                    let (range, size) = rest.split_once('*').unwrap_or((rest, "64"));
                    let (first, last) = range.split_once('-').unwrap();
                    let number: u64 = number.parse().unwrap();
                    FileMeta::new(
                        &AddedFile {
                            level: 0,
                            number,
                            size_bytes: size.parse::<u64>().unwrap() * MIB,
                            smallest: internal(first, number),
                            largest: internal(last, number),
                            oldest_sequence: number,
                            newest_sequence: number,
                            entries: 1000,
                            deletions: 0,
                            table_id: number,
                            begin: None,
                        },
                        &garbage,
                    )
                })
                .collect()
        })
        .collect();
    Version::new(levels, 1)
}

fn numbers(files: &[Arc<FileMeta>]) -> Vec<u64> {
    files.iter().map(|file| file.number).collect()
}

fn pick(version: &Version, busy: &Busy, options: &PolicyOptions) -> Option<CompactionPlan> {
    pick_within(version, busy, options, u64::MAX)
}

fn picked(version: &Version, busy: &Busy) -> Option<(usize, usize, Vec<u64>, Vec<u64>)> {
    pick(version, busy, &options())
        .map(|plan| (plan.input_level, plan.output_level, numbers(&plan.inputs), numbers(&plan.overlapping)))
}

#[test]
fn an_empty_tree_compacts_level_0_straight_into_the_last_level() {
    let version = shape("4:a-z 3:a-z 2:a-z 1:a-z\n\n\n");
    assert_eq!(picked(&version, &Busy::default()), Some((0, 3, vec![4, 3, 2, 1], vec![])));
}

#[test]
fn three_tables_in_level_0_are_left_alone() {
    assert_eq!(picked(&shape("3:a-z 2:a-z 1:a-z\n\n\n"), &Busy::default()), None);
}

#[test]
fn bytes_of_level_0_count_where_options_say_so() {
    let by_bytes = PolicyOptions { level0_score_by_bytes: true, ..options() };
    let (below, enough) = (shape("2:a-z*127 1:a-z*128\n\n\n"), shape("2:a-z*128 1:a-z*128\n\n\n"));
    let taken = |version: &Version, options: &PolicyOptions| pick(version, &Busy::default(), options).is_some();
    assert_eq!((taken(&below, &by_bytes), taken(&enough, &by_bytes), taken(&enough, &options())), (false, true, false));
    let pending = |options: &PolicyOptions| pending_bytes(&enough, &level_targets(&enough, options), options);
    assert_eq!((pending(&by_bytes), pending(&options())), (256 * MIB, 0));
    // Tables still count, and the level that is further above its target goes first.
    assert!(taken(&shape("4:a-z*1 3:a-z*1 2:a-z*1 1:a-z*1\n\n\n"), &by_bytes));
    let both = shape("2:a-z*512 1:a-z*512\n3:a-b*768\n\n");
    for (options, expected) in [(by_bytes, 0), (options(), 1)] {
        let fixed = PolicyOptions { dynamic_level_bytes: false, ..options };
        assert_eq!(pick(&both, &Busy::default(), &fixed).map(|plan| plan.input_level), Some(expected));
    }
}

#[test]
fn a_level_appears_above_the_last_only_when_it_would_be_worth_its_rewriting() {
    let targets = |text: &str| level_targets(&shape(text), &options()).base_level;
    assert_eq!(targets("\n\n\n"), 3);
    assert_eq!(targets("\n\n\n1:a-b*1024"), 3, "a tenth would be far below the base size");
    assert_eq!(targets("\n\n\n1:a-b*4096"), 2);
    assert_eq!(targets("\n\n\n1:a-b*400000"), 1);
}

#[test]
fn without_dynamic_sizes_level_1_has_the_base_size_and_each_below_ten_times_more() {
    let fixed = PolicyOptions { dynamic_level_bytes: false, ..options() };
    let targets = level_targets(&shape("\n\n\n"), &fixed);
    assert_eq!((targets.base_level, targets.target_bytes[1], targets.target_bytes[2]), (1, 256 * MIB, 2560 * MIB));
}

#[test]
fn the_priority_says_which_table_goes_first() {
    let version = shape("\n1:a-c*100 2:d-f*120 3:g-i*100\n4:a-b 5:c-d 6:e-e 7:h-h*10");
    let mut busy = Busy::default();
    let first = |priority, busy: &Busy| {
        let fixed = PolicyOptions { dynamic_level_bytes: false, priority, ..options() };
        pick(&version, busy, &fixed).unwrap()
    };
    assert_eq!(numbers(&first(CompactionPriority::ByCompensatedSize, &busy).inputs), [2]);
    assert_eq!(numbers(&first(CompactionPriority::MinOverlappingRatio, &busy).inputs), [3]);
    for expected in [[1], [2], [3], [1]] {
        let plan = first(CompactionPriority::RoundRobin, &busy);
        assert_eq!(numbers(&plan.inputs), expected);
        busy.enter(&plan);
        busy.leave(&plan.claim());
    }
}

#[test]
fn what_fits_is_done_while_the_most_urgent_does_not() {
    let fixed = PolicyOptions { dynamic_level_bytes: false, ..options() };
    let version = shape(
        "1:a-z*100 2:a-z*100 3:a-z*100 4:a-z*100 10:a-z*100 11:a-z*100\n5:a-c*100 6:d-f*100 7:g-i*100\n8:a-b*400 9:d-e*50",
    );
    let within = |space: u64| {
        pick_within(&version, &Busy::default(), &fixed, space * MIB)
            .map(|plan| (plan.input_level, numbers(&plan.inputs)))
    };
    assert_eq!(within(u64::MAX / MIB), Some((0, vec![11, 10, 4, 3, 2, 1])));
    assert_eq!(within(899), Some((1, vec![7])), "a move writes nothing");
    assert_eq!(within(0), Some((1, vec![7])));
    let version = shape(
        "1:a-z*100 2:a-z*100 3:a-z*100 4:a-z*100 10:a-z*100 11:a-z*100 12:a-z*100\n5:a-c*100 6:d-f*300\n8:a-b*400 9:d-e*50",
    );
    let within = |space: u64| {
        pick_within(&version, &Busy::default(), &fixed, space * MIB)
            .map(|plan| (plan.input_level, numbers(&plan.inputs)))
    };
    assert_eq!((within(350), within(349)), (Some((1, vec![6])), None));
}

#[test]
fn the_table_that_drags_along_least_is_moved_down() {
    let fixed = PolicyOptions { dynamic_level_bytes: false, ..options() };
    let version = shape("\n1:a-c*100 2:d-f*100 3:g-i*100\n4:a-b 5:c-d 6:e-e 7:h-h*10");
    let plan = pick(&version, &Busy::default(), &fixed).unwrap();
    assert_eq!((numbers(&plan.inputs), numbers(&plan.overlapping)), (vec![3], vec![7]));
}

#[test]
fn a_table_without_overlap_moves_without_being_rewritten() {
    let fixed = PolicyOptions { dynamic_level_bytes: false, ..options() };
    let version = shape("\n1:a-c*200 2:x-z*200\n4:a-d");
    let plan = pick(&version, &Busy::default(), &fixed).unwrap();
    assert_eq!(numbers(&plan.inputs), [2]);
    assert!(plan.is_trivial_move());
}

#[test]
fn running_compactions_keep_their_tables_and_their_output_range() {
    let fixed = PolicyOptions { dynamic_level_bytes: false, ..options() };
    let version = shape("\n1:a-c*200 2:m-n*200 3:x-z*200\n4:a-d 5:w-z");
    let mut busy = Busy::default();
    let first = pick(&version, &busy, &fixed).unwrap();
    assert_eq!(numbers(&first.inputs), [2]);
    busy.enter(&first);
    let second = pick(&version, &busy, &fixed);
    assert!(second.is_none_or(|plan| numbers(&plan.inputs) != [2]));
    // A compaction from level 0 to level 1 over everything may put a table anywhere in level 1.
    let wide = finish(
        &shape("9:a-z\n\n"),
        Reason::Level0Tables,
        0,
        1,
        shape("9:a-z\n\n").levels[0].to_vec(),
        &Busy::default(),
    );
    busy.enter(&wide.unwrap());
    assert!(busy.writes_into(1, b"m", b"n"));
    busy.leave(&first.claim());
    assert!(!busy.contains(2));
}

#[test]
fn level_0_waits_while_one_of_its_tables_is_being_compacted() {
    let version = shape("4:a-z 3:a-z 2:a-z 1:a-z\n\n\n");
    let mut busy = Busy::default();
    busy.enter(&pick(&version, &busy, &options()).unwrap());
    let more = shape("9:a-z 8:a-z 7:a-z 6:a-z 5:a-z 4:a-z 3:a-z 2:a-z 1:a-z\n\n\n");
    assert_eq!(picked(&more, &busy), None);
}

#[test]
fn a_manual_range_takes_whole_ages_of_level_0_and_only_the_range_below() {
    let version = shape("3:m-p 2:k-n 1:a-b\n\n\n4:a-l 5:n-z");
    let plan = plan_range(&version, 0, Some(b"o"), Some(b"o"), &options()).unwrap();
    assert_eq!((numbers(&plan.inputs), numbers(&plan.overlapping)), (vec![3, 2], vec![4, 5]));
    assert!(plan_range(&version, 0, Some(b"q"), Some(b"z"), &options()).is_none());
}

#[test]
fn parts_of_a_compaction_begin_at_table_borders_and_share_the_bytes() {
    let version = shape("9:a-z*10\n\n\n1:a-c 2:d-f 3:g-i 4:j-l");
    let plan = plan_range(&version, 0, None, None, &options()).unwrap();
    assert_eq!(subcompaction_boundaries(&plan, 1), Vec::<Vec<u8>>::new());
    assert_eq!(subcompaction_boundaries(&plan, 2), [b"g".to_vec()]);
    let four = subcompaction_boundaries(&plan, 4);
    assert!(four.len() == 3 && four.windows(2).all(|pair| pair[0] < pair[1]), "{four:?}");
}

/// Random shapes and compactions carried out on paper: levels stay disjoint whatever runs at once.
#[test]
fn plans_that_run_at_once_never_make_tables_of_a_level_overlap() {
    use varve_env::Random;
    let mut compared = 0;
    for seed in 0..200 {
        let mut random = Random::seeded(seed);
        let garbage = Arc::new(Garbage::default());
        let table = |number: u64, first: u64, last: u64| {
            let internal = |user: u64| {
                let mut out = Vec::new();
                key::append_internal_key(&mut out, format!("{user:03}").as_bytes(), number, 1);
                out
            };
            FileMeta::new(
                &AddedFile {
                    level: 0,
                    number,
                    size_bytes: (10 + number * 7 % 50) * MIB,
                    smallest: internal(first),
                    largest: internal(last),
                    oldest_sequence: number,
                    newest_sequence: number,
                    entries: 10,
                    deletions: number % 4,
                    table_id: number,
                    begin: None,
                },
                &garbage,
            )
        };
        let priorities = [
            CompactionPriority::MinOverlappingRatio,
            CompactionPriority::ByCompensatedSize,
            CompactionPriority::RoundRobin,
        ];
        let fixed = PolicyOptions {
            priority: priorities[random.index(3)],
            dynamic_level_bytes: random.chance(1, 2),
            max_bytes_for_level_base: [16 * MIB, 64 * MIB][random.index(2)],
            max_bytes_for_level_multiplier: 2,
            max_size_amplification_percent: [0, 5, 50][random.index(3)],
            max_compaction_bytes: [200 * MIB, 1600 * MIB][random.index(2)],
            ..options()
        };
        let mut version = Version::empty(5, 1);
        let mut busy = Busy::default();
        let mut running: Vec<CompactionPlan> = Vec::new();
        let mut next = 1;
        for _ in 0..120 {
            match random.below(3) {
                0 => {
                    let first = random.below(900);
                    let fresh = table(next, first, first + random.below(100));
                    next += 1;
                    version = version.with(&[], &[(0, fresh)]);
                }
                1 => {
                    if let Some(plan) = pick(&version, &busy, &fixed) {
                        simulation::assert_takes_what_is_below(&version, &plan);
                        compared += usize::from(is_as_by_looking_at_each(&version, &busy, &fixed, &plan));
                        busy.enter(&plan);
                        running.push(plan);
                    }
                }
                _ if !running.is_empty() => {
                    let plan = running.swap_remove(random.index(running.len()));
                    busy.leave(&plan.claim());
                    let removed: Vec<(usize, u64)> =
                        plan.inputs_by_level().map(|(level, file)| (level, file.number)).collect();
                    // Outputs span everything, often one does: the worst a compaction may do.
                    let (low, high) = plan.key_range().unwrap();
                    let number_of = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().parse().unwrap();
                    let (mut first, last): (u64, u64) = (number_of(low), number_of(high));
                    let mut outputs = Vec::new();
                    while first <= last {
                        let end = if random.chance(1, 2) { last } else { last.min(first + random.below(100)) };
                        outputs.push((plan.output_level, table(next, first, end)));
                        (first, next) = (end + 1, next + 1);
                    }
                    version = version.with(&removed, &outputs);
                }
                _ => {}
            }
            assert!(version.is_disjoint(), "seed {seed}");
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// A plan of a level below level 0 is the one of all its tables that costs least, the first of several; `false` is of another one.
fn is_as_by_looking_at_each(version: &Version, busy: &Busy, options: &PolicyOptions, plan: &CompactionPlan) -> bool {
    if plan.reason != Reason::LevelSize || lazy::is_lazy(version, options) {
        return false;
    }
    let level = plan.input_level;
    let mut least: Option<(u128, CompactionPlan)> = None;
    for (position, file) in version.levels[level].iter().enumerate() {
        let of_one = finish(version, Reason::LevelSize, level, plan.output_level, vec![file.clone()], busy);
        let Some(of_one) = of_one else { continue };
        let weight = u128::from(file.size_bytes + file.size_bytes * file.deletions / file.entries);
        let is_behind = busy.last_key(level).is_none_or(|last| file.smallest_user_key() > last);
        let cost = match options.priority {
            CompactionPriority::MinOverlappingRatio => {
                u128::from(of_one.overlapping.iter().map(|file| file.size_bytes).sum::<u64>()) * 1024 / weight
            }
            CompactionPriority::ByCompensatedSize => u128::MAX - weight,
            CompactionPriority::RoundRobin => position as u128 + if is_behind { 0 } else { u128::from(u32::MAX) },
        };
        if least.as_ref().is_none_or(|(of_least, _)| cost < *of_least) {
            least = Some((cost, of_one));
        }
    }
    let expected = grow(version, least.unwrap().1, busy, options.max_compaction_bytes);
    assert_eq!(numbers(&plan.inputs), numbers(&expected.inputs));
    assert_eq!(numbers(&plan.overlapping), numbers(&expected.overlapping));
    true
}

/// Once what lies beside the tables of the output level did not count: a plan with one of these was begun whole, and one whose
/// inputs lie behind the last was done in a part that did not fit.
#[test]
fn of_a_compaction_that_does_not_fit_in_stretches_one_input_is_taken() {
    let part = |text: &str, space_bytes: u64| {
        let version = shape(text);
        let plan = plan_range(&version, 1, None, None, &options()).unwrap();
        reclaim::split(&version, &plan, space_bytes * MIB)
            .map(|part| numbers(&part.all_inputs().cloned().collect::<Vec<_>>()))
    };
    let one_below = "\n1:a-b*10 2:c-d*10 3:e-f*10 4:g-h*10\n9:d-d*10";
    assert_eq!(part(one_below, 49), Some(vec![1]), "it overlaps nothing");
    let behind = "\n1:a-b*10 2:c-d*10 3:e-f*10 4:g-h*10\n8:a-a*10 9:b-b*10";
    assert_eq!(part(behind, 44), Some(vec![2]), "the part of the last table has three of them and half of one");
    assert_eq!(part(behind, 45), None);
    assert_eq!(part("\n1:a-b*10 2:c-d*10\n", 10), None, "without a table below, parts are inputs");
}

/// While they are merged table by table, what they hold is there twice.
#[test]
fn of_level_0_as_many_of_the_oldest_are_taken_as_may_be_there_twice() {
    let version = shape("4:a-z*10 3:a-z*20 2:b-y*10 1:c-x*30\n\n7:a-c*40 8:d-z*50");
    let plan = plan_range(&version, 0, None, None, &options()).unwrap();
    let part = |space_bytes: u64| reclaim::split(&version, &plan, space_bytes * MIB).map(|part| numbers(&part.inputs));
    assert_eq!(part(10), Some(vec![1]), "one in any case");
    assert_eq!(part(89), Some(vec![1]));
    assert_eq!(part(90), Some(vec![2, 1]));
    assert_eq!(part(119), Some(vec![3, 2, 1]));
    assert_eq!(part(120), None, "all of them fit");
}

/// Level 0 and all that goes along, the output level, and cuts of the plan that is picked.
fn lazily(text: &str, options: &PolicyOptions) -> Option<(Vec<u64>, usize, Vec<Vec<u8>>)> {
    let plan = pick(&shape(text), &Busy::default(), options)?;
    Some((plan.all_inputs().map(|file| file.number).collect(), plan.output_level, plan.cuts))
}

fn lazy() -> PolicyOptions {
    PolicyOptions { max_size_amplification_percent: 12, ..options() }
}

#[test]
fn a_run_waits_above_the_last_level_until_merging_pays() {
    let level0 = "4:a-z 3:a-z 2:a-z 1:a-z";
    let last = "91:a-m*500 92:n-z*500";
    let waits = |runs: &str| lazily(&format!("{level0}\n{runs}\n{last}"), &lazy());
    assert_eq!(
        waits("\n\n"),
        Some((vec![4, 3, 2, 1], 3, vec![])),
        "256 MiB beside 1000: into the level above the last"
    );
    let all = vec![4, 3, 2, 1, 11, 12, 91, 92];
    assert_eq!(waits("\n\n11:a-m*128 12:n-z*128"), Some((all, 4, vec![])), "512 MiB: twice the base size");
    let half = vec![4, 3, 2, 1, 11];
    assert_eq!(waits("\n\n11:a-z*100"), Some((half, 3, vec![])), "a run of less than half goes along");
    assert_eq!(waits("\n\n11:a-z*200"), Some((vec![4, 3, 2, 1], 2, vec![])), "a larger one does not");
}

#[test]
fn what_meets_nothing_is_moved_into_the_last_level() {
    let version = shape("4:s-t 3:q-r 2:o-p 1:m-n\n\n5:a-b\n6:a-l*900");
    let plan = pick(&version, &Busy::default(), &lazy()).unwrap();
    assert!(plan.is_trivial_move() && plan.output_level == 3, "{plan:?}");
}

/// Of a tree that is too large to be merged whole.
#[test]
fn a_column_of_all_runs_goes_down_where_it_costs_least() {
    let small = PolicyOptions { max_compaction_bytes: 400 * MIB, ..lazy() };
    let text = "\n1:a-f*60 2:g-m*60\n3:a-e*20 4:h-m*90\n91:a-f*200 92:g-m*200 93:n-z*500";
    assert_eq!(lazily(text, &small), Some((vec![2, 4, 92], 3, vec![])));
    assert_eq!(lazily("\n1:a-f*60\n3:a-e*20\n91:a-f*200 92:g-m*200 93:n-z*500", &small), None, "8 % are above");
    // Above are 2.13 times the 12 % that may be: more than four tables of level 0 beside their trigger, less than nine.
    let level0 = |tables: &str| lazily(&format!("{tables}{text}"), &small).map(|(_, output_level, _)| output_level);
    assert_eq!(level0("24:a-z 23:a-z 22:a-z 21:a-z"), Some(3));
    assert_eq!(level0("29:a-z 28:a-z 27:a-z 26:a-z 25:a-z 24:a-z 23:a-z 22:a-z 21:a-z"), Some(2));
    let mut busy = Busy::default();
    busy.enter(&pick(&shape(text), &busy, &small).unwrap());
    assert!(pick(&shape(text), &busy, &small).is_none(), "what is left idle above is within the 12 %");
}

#[test]
fn new_runs_are_cut_where_no_table_below_lies_across() {
    let small = PolicyOptions { max_compaction_bytes: 300 * MIB, ..lazy() };
    let runs = "4:a-z 3:a-z 2:a-z 1:a-z\n\n\n11:a-f*200 12:h-z*200";
    let last = "91:a-c*200 92:d-g*200 93:h-k*200 94:l-p*3000 95:q-z*200";
    let plan = lazily(&format!("{runs}\n{last}"), &small).unwrap();
    assert_eq!((plan.1, plan.2), (2, vec![b"h".to_vec()]), "not at d, l and q, which 11 and 12 lie across");
}

/// Once there is not enough space for it.
#[test]
fn of_several_levels_two_go_first() {
    let version = shape("4:a-z 3:a-z 2:a-z 1:a-z\n\n11:a-m*128 12:n-z*128\n91:a-m*500 92:n-z*500");
    let plan = pick(&version, &Busy::default(), &lazy()).unwrap();
    assert_eq!((plan.between.len(), plan.output_level, plan.is_divisible(&version)), (2, 3, true));
    let step = reclaim::split(&version, &plan, 10_000 * MIB).unwrap();
    assert_eq!(
        (step.output_level, numbers(&step.inputs), numbers(&step.overlapping)),
        (2, vec![4, 3, 2, 1], vec![11, 12])
    );
    let part = reclaim::split(&version, &plan, 300 * MIB).unwrap();
    assert_eq!((part.output_level, numbers(&part.inputs)), (2, vec![2, 1]));
}

/// Where little is free less gathers, and while writers are refused nothing is kept.
#[test]
fn where_space_is_short_less_gathers() {
    let version = shape("4:a-z 3:a-z 2:a-z 1:a-z\n\n\n91:a-m*300 92:n-z*300 93:zz-zzz*400");
    let output =
        |space: u64| pick_within(&version, &Busy::default(), &lazy(), space * MIB).map(|plan| plan.output_level);
    assert_eq!((output(u64::MAX / MIB), output(900), output(300)), (Some(2), Some(3), Some(2)));
    let shortage =
        Shortage { space_bytes: 400 * MIB, table_bytes: None, brings_deletions: false, oldest_view: u64::MAX };
    let gathered = shape("\n\n1:a-m*100 2:n-z*50\n91:a-m*200 92:n-z*200");
    let plan = reclaim::reclaim(&gathered, &shortage, &lazy()).unwrap();
    assert_eq!((plan.output_level, numbers(&plan.inputs), numbers(&plan.overlapping)), (3, vec![2], vec![92]));
    assert!(reclaim::reclaim(&gathered, &shortage, &options()).is_none());
}
