//! Totals of a database: those of all its openings together.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/totals.rs"]
mod totals;
#[path = "suite/trees.rs"]
#[allow(dead_code)]
mod trees;

use history::{History, Step, small_options};
use medium::{Image, Kind};
use totals::verify_totals;
use varve_engine::{Db, Error, Options, Totals, TreeKind};
use varve_env::{Env, SimOptions};

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, perturb: true, ..SimOptions::default() })
}

fn open(env: &Env, image: &Image, options: &Options) -> Result<Db, Error> {
    Db::open(env, image.media(env)?, options.clone())
}

/// What compactions did between two moments.
fn compacted(before: &Totals, after: &Totals) -> [u64; 4] {
    [
        after.compactions - before.compactions,
        after.trivial_moves - before.trivial_moves,
        after.compaction_read_bytes - before.compaction_read_bytes,
        after.compaction_written_bytes - before.compaction_written_bytes,
    ]
}

/// Writes a history in many openings; returns the totals, and how many tables opening made.
fn run(kind: Kind, seed: u64, history: &History) -> (Totals, u64) {
    let note = format!("{kind:?} seed {seed}");
    let env = simulation(seed);
    let image = Image::fresh(&env, kind);
    let mut db = open(&env, &image, &history.options).expect("open");
    let (mut last, mut opened) = (db.totals().expect("known"), db.totals().expect("known"));
    assert_eq!(last, Totals::default(), "{note}: a new database");
    let (mut written, mut recovered_tables) = (0, 0);
    for step in history.steps.iter().copied().chain([Step::Reopen { close: true }]) {
        match step {
            Step::Write { sync } => {
                history.write(&db, written + 1, sync).expect("write");
                written += 1;
            }
            Step::Flush => db.flush().expect("flush"),
            Step::CompactAll => db.compact_range(None, None).expect("compact_range"),
            Step::WaitIdle | Step::Sleep => db.wait_idle().expect("wait_idle"),
            Step::Reopen { .. } => {
                db.wait_idle().expect("wait_idle");
                let (counters, now) = (db.statistics().counters, db.totals().expect("known"));
                let of_counters = [
                    counters.compactions,
                    counters.trivial_moves,
                    counters.compaction_read_bytes,
                    counters.compaction_written_bytes,
                ];
                assert_eq!(compacted(&last, &now), of_counters, "{note}: compactions since this opening");
                let flushed = |totals: &Totals| (totals.flush_written_tables, totals.flush_written_bytes);
                let (tables, bytes) = flushed(&opened);
                let of_counters = (tables + counters.flushes, bytes + counters.flush_written_bytes);
                assert_eq!(flushed(&now), of_counters, "{note}: flushes since this opening");
                db.close().expect("close");
                drop(db);
                let media = image.media(&env).expect("media");
                let reader = Db::open_read_only(&env, media, history.options.clone()).expect("open_read_only");
                assert_eq!(verify_totals(&reader), Ok(now), "{note}: what an opening for reading shows");
                drop(reader);
                db = open(&env, &image, &history.options).expect("open");
                opened = db.totals().expect("known");
                recovered_tables += opened.flush_written_tables - now.flush_written_tables;
                let flushed = (opened.flush_user_entries, opened.flush_user_bytes);
                assert_eq!(flushed, history.written(written), "{note}: everything is flushed once");
                verify_totals(&db).unwrap_or_else(|what| panic!("{note}: {what}"));
                last = now;
            }
        }
    }
    db.close().expect("close");
    (last, recovered_tables)
}

#[test]
fn totals_are_those_of_all_openings_together() {
    let mut kinds = trees::on(&[Kind::EXTENT], trees::others_with_tables());
    kinds.extend([(Kind::PLAIN, TreeKind::Leveled), (Kind::BAND, TreeKind::Leveled)]);
    for (seed, (kind, tree)) in (1..).zip(kinds) {
        let history = History::new(seed, 200, 64).in_tree(tree);
        let (totals, recovered_tables) = run(kind, seed, &history);
        println!("{kind:?} {tree:?}: {totals:?}, {recovered_tables} tables of openings");
        assert!(totals.compactions > 3 && totals.flush_jobs > 5 && recovered_tables > 0, "{totals:?} is too little");
        assert!(totals.table_write_amplification() > 1.0, "{totals:?}");
    }
}

#[test]
fn a_checkpoint_begins_at_zero() {
    let env = simulation(1);
    let (image, copy) = (Image::fresh(&env, Kind::PLAIN), Image::fresh(&env, Kind::PLAIN));
    let options = Options { disable_auto_compactions: true, ..small_options() };
    let db = open(&env, &image, &options).expect("open");
    db.put(b"key", b"value").expect("put");
    let target = copy.store(&env, None).expect("store");
    db.checkpoint(&*target).expect("checkpoint");
    drop(target);
    let before = db.totals().expect("known");
    assert_eq!((before.flush_jobs, before.flush_user_entries, before.flush_user_bytes), (1, 1, 8));
    let copied = open(&env, &copy, &options).expect("open");
    assert_eq!(copied.totals(), Some(Totals::default()));
    copied.put(b"other", b"value").expect("put");
    copied.flush().expect("flush");
    assert_eq!(copied.totals().map(|totals| (totals.flush_jobs, totals.flush_user_bytes)), Some((1, 10)));
    assert_eq!(db.totals(), Some(before));
    copied.close().expect("close");
    db.close().expect("close");
}
