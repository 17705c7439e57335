//! Random histories against a BTreeMap, over many option sets, with reopening, snapshots and
//! walks. Virtual time: a failure's seed replays it.

#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/options.rs"]
#[allow(dead_code)]
mod options;
mod suite;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use medium::{Image, Kind, TRACK_BYTES, check_ballast, imr_kinds};
use suite::Model;
use varve_engine::{Db, Options, Snapshot, TreeKind};
use varve_env::{Env, Random, SimOptions};
use varve_store::FileStore;

const OPTION_SETS: u64 = 60;
const TWO_LEVEL_OPTION_SETS: u64 = 16;
const OPERATIONS_PER_SET: u64 = 3500;
const UNIVERSE: u64 = 400;

/// Space of the devices: so little that tables go around it.
const DEVICE_BYTES: u64 = 4 << 20;

/// The same for trees that may need as much again to put everything in order.
const TWO_LEVEL_DEVICE_BYTES: u64 = 16 << 20;

/// What is free of an interlaced disk with that space.
const FREE_TRACKS: u64 = 400;

/// What a run did, to know that it did something.
struct Ran {
    event_hash: u64,
    flushes: u64,
    compactions: u64,
    moves: u64,
    range_flushes: u64,
    pieces: u64,
    table_bytes_written: u64,
    /// Tops of interlaced disks that were saved and restored.
    rewrites: u64,
}

fn rewrites(files: &dyn FileStore) -> u64 {
    files.statistics().iter().find(|measure| measure.name == "rewrites").map_or(0, |measure| measure.value)
}

fn run(seed: u64, kind: Kind, options: Options, operations: u64) -> Ran {
    let env = Env::sim_with(SimOptions { seed, perturb: seed % 2 == 1, ..SimOptions::default() });
    let space_bytes = kind.space_bytes(match options.tree_kind() {
        TreeKind::TwoLevel => TWO_LEVEL_DEVICE_BYTES,
        _ => DEVICE_BYTES,
    });
    let image = Image::fresh_of(&env, kind, space_bytes);
    if kind.is_imr() {
        image.fill_tracks(FREE_TRACKS);
    }
    let open = || {
        let media = image.media(&env).expect("media");
        let files = media.files.clone().expect("files");
        (Db::open(&env, media, options.clone()).expect("open"), files)
    };
    let mut random = Random::named(seed, "history");
    let mut model = Model::new();
    let (mut db, mut files) = open();
    let mut rewritten = 0;
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    let (mut flushes, mut compactions, mut moves) = (0, 0, 0);
    let (mut range_flushes, mut pieces) = (0, 0);
    for operation in 0..operations {
        let note = format!("{kind:?} seed {seed} operation {operation}");
        match random.below(1000) {
            0..550 => suite::write(&db, &mut model, &mut random, UNIVERSE),
            550..940 => suite::compare_reads(&db, &model, None, &mut random, UNIVERSE, &note),
            940..960 => {
                if snapshots.len() < 4 {
                    snapshots.push((db.snapshot(), model.clone()));
                } else {
                    snapshots.remove(random.index(snapshots.len()));
                }
            }
            960..985 => {
                if let Some((snapshot, then)) = snapshots.get(random.index(snapshots.len().max(1))) {
                    suite::compare_reads(&db, then, Some(snapshot), &mut random, UNIVERSE, &note);
                }
            }
            985..990 => db.flush().expect("flush"),
            990..993 => {
                let (begin, end) = (suite::key(&mut random, UNIVERSE), suite::key(&mut random, UNIVERSE));
                let (begin, end) = if begin <= end { (begin, end) } else { (end, begin) };
                match random.below(3) {
                    0 => db.compact_range(None, None),
                    1 => db.compact_range(Some(&begin), None),
                    _ => db.compact_range(Some(&begin), Some(&end)),
                }
                .expect("compact_range");
            }
            993..996 => db.wait_idle().expect("wait_idle"),
            996..998 => suite::compare_all(&db, &model, &note),
            _ => {
                snapshots.clear();
                let counters = db.statistics().counters;
                flushes += counters.flushes;
                compactions += counters.compactions;
                moves += counters.trivial_moves;
                range_flushes += counters.range_flushes;
                pieces += counters.compaction_pieces;
                if random.chance(1, 2) {
                    db.close().expect("close");
                }
                rewritten += rewrites(&*files);
                drop((db, files));
                (db, files) = open();
                suite::compare_all(&db, &model, &note);
            }
        }
    }
    suite::compare_all(&db, &model, &format!("seed {seed} at the end"));
    drop(snapshots);
    let findings = db.check().expect("check");
    assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    let counters = db.statistics().counters;
    flushes += counters.flushes;
    compactions += counters.compactions;
    moves += counters.trivial_moves;
    range_flushes += counters.range_flushes;
    pieces += counters.compaction_pieces;
    db.close().expect("close");
    rewritten += rewrites(&*files);
    if kind.is_imr() {
        check_ballast(&*files, space_bytes / TRACK_BYTES - FREE_TRACKS)
            .unwrap_or_else(|what| panic!("{kind:?} seed {seed}: {what}"));
    }
    drop((db, files));
    assert_eq!(image.destroyed_bytes(), 0, "{kind:?} seed {seed}: live data was destroyed");
    assert_eq!(image.device_errors(), 0, "{kind:?} seed {seed}: a rule of the device was broken");
    let table_bytes_written = image.table_bytes_written();
    Ran {
        event_hash: env.event_hash(),
        flushes,
        compactions,
        moves,
        range_flushes,
        pieces,
        table_bytes_written,
        rewrites: rewritten,
    }
}

#[test]
fn histories_agree_with_a_map_over_many_option_sets() {
    let (mut flushes, mut compactions, mut moves) = (0, 0, 0);
    for seed in 0..OPTION_SETS {
        let ran = run(seed, Kind::PLAIN, options::option_set(TreeKind::Leveled, seed), OPERATIONS_PER_SET);
        flushes += ran.flushes;
        compactions += ran.compactions;
        moves += ran.moves;
    }
    println!(
        "reached: model/Plain: {OPTION_SETS} histories, {flushes} flushes, {compactions} compactions, {moves} moves"
    );
    // A history that never leaves the memtable shows nothing.
    assert!(
        flushes > 50 * OPTION_SETS && compactions > 20 * OPTION_SETS && moves > OPTION_SETS,
        "{flushes} {compactions} {moves}"
    );
}

#[test]
fn histories_agree_with_a_map_in_two_levels() {
    let (mut flushes, mut compactions, mut moves) = (0, 0, 0);
    let (mut range_flushes, mut pieces) = (0, 0);
    for seed in 300..300 + TWO_LEVEL_OPTION_SETS {
        let kind = if seed % 4 == 0 { Kind::EXTENT } else { Kind::PLAIN };
        let ran = run(seed, kind, options::option_set(TreeKind::TwoLevel, seed), OPERATIONS_PER_SET);
        flushes += ran.flushes;
        compactions += ran.compactions;
        moves += ran.moves;
        range_flushes += ran.range_flushes;
        pieces += ran.pieces;
    }
    println!(
        "reached: model/two levels: {TWO_LEVEL_OPTION_SETS} histories, {flushes} flushes, {compactions} compactions, \
         {moves} moves, {range_flushes} range flushes, {pieces} pieces"
    );
    assert!(
        flushes > 50 * TWO_LEVEL_OPTION_SETS && compactions > 50 * TWO_LEVEL_OPTION_SETS,
        "{flushes} {compactions} {moves}"
    );
    // Half of them flush ranges, half merge in pieces.
    assert!(
        range_flushes > 5 * TWO_LEVEL_OPTION_SETS && pieces > 5 * TWO_LEVEL_OPTION_SETS,
        "{range_flushes} range flushes, {pieces} pieces"
    );
}

#[test]
fn histories_agree_with_a_map_on_every_store() {
    let kinds =
        [Kind::EXTENT, Kind::EXTENT_NEXT_FIT, Kind::EXTENT_EXT4, Kind::PLAIN_LOGS_APART, Kind::EXTENT_LOGS_APART];
    for (place, kind) in (0u64..).zip(kinds) {
        let (mut flushes, mut compactions, mut around) = (0, 0, 0);
        for seed in 100 + 4 * place..104 + 4 * place {
            let ran = run(seed, kind, options::option_set(TreeKind::Leveled, seed), 2500);
            flushes += ran.flushes;
            compactions += ran.compactions;
            around += usize::from(ran.table_bytes_written > DEVICE_BYTES);
        }
        assert!(kind.is_plain() || around >= 2, "{kind:?}: tables went around {around} devices of 4");
        println!("reached: model/{}: 4 histories, {flushes} flushes, {compactions} compactions", kind.name());
        assert!(flushes > 100 && compactions > 40, "{kind:?}: {flushes} {compactions}");
    }
}

#[test]
fn histories_agree_with_a_map_on_persistent_memory() {
    let (mut flushes, mut compactions) = (0, 0);
    for seed in 120..124 {
        let ran = run(seed, Kind::EXTENT_MEMORY, options::option_set(TreeKind::Leveled, seed), 2500);
        flushes += ran.flushes;
        compactions += ran.compactions;
    }
    println!(
        "reached: model/{}: 4 histories, {flushes} flushes, {compactions} compactions",
        Kind::EXTENT_MEMORY.name()
    );
    assert!(flushes > 100 && compactions > 40, "{flushes} {compactions}");
}

#[test]
fn histories_agree_with_a_map_on_interlaced_tracks() {
    let (mut flushes, mut compactions, mut rewrites) = (0, 0, 0);
    for (seed, kind) in (200..).zip(imr_kinds()) {
        let ran = run(seed, kind, options::option_set(TreeKind::Leveled, seed), 1500);
        println!(
            "reached: model/{}: 1 histories, {} flushes, {} compactions, {} rewrites",
            kind.name(),
            ran.flushes,
            ran.compactions,
            ran.rewrites
        );
        flushes += ran.flushes;
        compactions += ran.compactions;
        rewrites += ran.rewrites;
    }
    let kinds = imr_kinds().len() as u64;
    assert!(
        flushes > 20 * kinds && compactions > 8 * kinds && rewrites > 50 * kinds,
        "{flushes} {compactions} {rewrites}"
    );
}

#[test]
fn histories_agree_with_a_map_on_bands() {
    let (mut flushes, mut compactions) = (0, 0);
    for (seed, tree) in (300..308).zip(trees::with_tables().collect::<Vec<_>>().into_iter().cycle()) {
        for kind in [Kind::BAND, Kind::VARIABLE_BANDS] {
            let ran = run(seed, kind, options::option_set(tree, seed), 1500);
            flushes += ran.flushes;
            compactions += ran.compactions;
        }
    }
    println!("reached: model/bands: 16 histories, {flushes} flushes, {compactions} compactions");
    assert!(flushes > 240 && compactions > 96, "{flushes} {compactions}");
}

#[test]
fn histories_agree_with_a_map_while_members_of_arrays_fail_and_are_rebuilt() {
    let (mut flushes, mut compactions) = (0, 0);
    let kinds = medium::kinds(Kind::is_array);
    for (seed, tree) in (500..504).zip(trees::with_tables().collect::<Vec<_>>().into_iter().cycle()) {
        for &kind in &kinds {
            let ran = run(seed, kind, options::option_set(tree, seed), 1000);
            flushes += ran.flushes;
            compactions += ran.compactions;
        }
    }
    let (failed, rebuilt) = medium::failed_and_rebuilt();
    println!(
        "reached: model/arrays: 8 histories, {flushes} flushes, {compactions} compactions, {failed} members failed, \
         {rebuilt} were rebuilt"
    );
    assert!(flushes > 80 && compactions > 32, "{flushes} {compactions}");
    assert!(failed > 30 && rebuilt > 20, "{failed} members failed, {rebuilt} were rebuilt");
}

#[test]
fn histories_agree_with_a_map_in_trees_without_tables() {
    let kinds = [Kind::PLAIN, Kind::PLAIN_LOGS_APART, Kind::EXTENT, Kind::BAND, Kind::VARIABLE_BANDS];
    for tree in trees::without_tables() {
        for (seed, kind) in (400..410).zip(kinds.into_iter().cycle()) {
            run(seed, kind, options::option_set(tree, seed), 1500);
        }
    }
}

#[test]
fn the_same_seed_repeats_to_the_event() {
    for seed in [3, 8] {
        for kind in [Kind::PLAIN, Kind::EXTENT_LOGS_APART, Kind::KVIMR_LOGS_APART] {
            let first = run(seed, kind, options::option_set(TreeKind::Leveled, seed), 800).event_hash;
            assert_eq!(
                first,
                run(seed, kind, options::option_set(TreeKind::Leveled, seed), 800).event_hash,
                "{kind:?} seed {seed}"
            );
        }
    }
}
