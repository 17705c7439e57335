//! Hints are advice: every placement with every migration and every caching works without any of them.

use super::crash::verify_whole;
use super::load::{Hints, Load};
use super::*;
use crate::conformance::{Model, verify_store};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a tree may keep to itself: each alone, the end of jobs, all.
const KINDS: [Hints; 6] = [
    Hints::ALL,
    Hints { levels: false, ..Hints::ALL },
    Hints { jobs: false, ..Hints::ALL },
    Hints { ends: false, ..Hints::ALL },
    Hints { evictions: false, ..Hints::ALL },
    Hints { levels: false, jobs: false, ends: false, evictions: false },
];

#[test]
fn every_policy_works_without_any_hint() {
    let mut seed = 0;
    let mut placed = [0; 2];
    for placement in PlacementName::ALL {
        for migration in MigrationName::ALL {
            for caching in CachingName::ALL {
                for hints in KINDS {
                    seed += 1;
                    let what = format!("seed {seed}: {placement:?}, {migration:?}, {caching:?}, {hints:?}");
                    let env = Env::sim(seed);
                    let devices = formatted(&env, 60, 8, 5);
                    let options = HybridOpenOptions {
                        placement: *placement,
                        migration: *migration,
                        caching: *caching,
                        ..open_options()
                    };
                    let store = Arc::new(HybridStore::open(&env, devices.clone(), &options).unwrap());
                    let model = Arc::new(Mutex::new(Model::default()));
                    let mut load = Load::new(store.clone(), model.clone(), seed, hints);
                    load.run(200);
                    assert!(load.bad_errors().is_empty(), "{what}: {:?}", load.bad_errors());
                    drop(load);
                    verify_whole(&store).unwrap_or_else(|message| panic!("{what}: {message}"));
                    assert_sound(&store);
                    placed[0] += measure(&store, "tables placed on the fast tier");
                    placed[1] += measure(&store, "tables placed on the slow tier");
                    if *migration == MigrationName::None {
                        let moved = ["tables moved to the slow tier", "tables moved to the fast tier"];
                        assert_eq!(moved.map(|name| measure(&store, name)), [0, 0], "{what}");
                    }
                    // Records are offered by who reads them.
                    let needs_evictions = *caching != CachingName::Records;
                    if *caching == CachingName::None || (needs_evictions && !hints.evictions) {
                        assert_eq!(measure(&store, "blocks cached"), 0, "{what}");
                    }
                    drop(store);
                    let store = HybridStore::open(&env, devices, &options).unwrap();
                    verify_store(&store, &model.lock()).unwrap_or_else(|message| panic!("{what}: {message}"));
                }
            }
        }
    }
    assert!(placed.iter().all(|count| *count > 500), "{placed:?}");
}
