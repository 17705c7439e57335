//! Histories on banded devices that are nearly full and run out of bands: what was acknowledged stays.

#[path = "suite/history.rs"]
#[allow(dead_code)]
mod history;
#[path = "suite/medium.rs"]
#[allow(dead_code)]
mod medium;
#[path = "suite/outcome.rs"]
#[allow(dead_code)]
mod outcome;

use history::History;
use medium::{BAND_BYTES, Image, Kind};
use outcome::{MayLose, UNIVERSE, run, walk_all};
use std::time::Duration;
use varve_engine::{Db, TreeKind};
use varve_env::{Env, SimOptions};
use varve_media::{FaultInjector, FaultPlan};

fn simulation(seed: u64) -> Env {
    Env::sim_with(SimOptions { seed, time_limit: Some(Duration::from_secs(24 * 3600)), ..SimOptions::default() })
}

/// Histories on devices from too small to large enough, whatever becomes of the writes.
#[test]
fn histories_on_nearly_full_bands_lose_nothing_that_was_acknowledged() {
    for tree in [TreeKind::Leveled, TreeKind::TwoLevel] {
        let (mut refused, mut untroubled) = (0, 0);
        for (bands, seed) in (8..12).flat_map(|bands| (0..4).map(move |seed| (bands, 700 + 10 * bands + seed))) {
            let env = simulation(seed);
            let image = Image::fresh_of(&env, Kind::Band, bands * BAND_BYTES);
            let history = History::new(seed, 150, UNIVERSE).in_tree(tree);
            let injector = FaultInjector::new(&env, FaultPlan::default());
            let note = format!("{tree:?}, {bands} bands, seed {seed}");
            let outcome = run(&env, &image, &injector, &history, MayLose::Nothing)
                .unwrap_or_else(|what| panic!("{note}: {what}"));
            let media = image.media(&env).unwrap_or_else(|error| panic!("{note}: {error}"));
            let db = Db::open(&env, media, history.options.clone()).unwrap_or_else(|error| panic!("{note}: {error}"));
            let (found, error) = walk_all(&db);
            assert!(error.is_none() && outcome.allows(&found, false), "{note}: {error:?}");
            assert_eq!(db.check().expect("check"), [], "{note}");
            db.close().expect("close");
            assert_eq!(image.device_errors(), 0, "{note}: a rule of the device was broken");
            println!("{note}: {} acknowledged, {:?}", outcome.acknowledged.len(), outcome.errors);
            assert!(outcome.errors.keys().all(|kind| kind == "NoSpace"), "{note}: {:?}", outcome.errors);
            refused += usize::from(!outcome.errors.is_empty());
            untroubled += usize::from(outcome.errors.is_empty());
        }
        assert!(refused >= 3 && untroubled >= 3, "{tree:?}: {refused} devices were too small, {untroubled} were not");
    }
}
