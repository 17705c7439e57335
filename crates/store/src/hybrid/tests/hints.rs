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

/// Zones of the fast tier for the tiering level, and how many of its tables are there.
#[derive(Debug)]
struct TieringLevel {
    /// R_t (HHZS, section 3.3).
    zones: u64,
    fast_tables: u64,
}

/// Opens outputs of two parallel compactions in the tiering level. Returns the level before its outputs, and while they are open.
fn open_parallel_outputs(counts_open_tables: bool) -> (TieringLevel, TieringLevel) {
    let env = Env::sim(1);
    let devices = formatted(&env, 60, 12, 0);
    let options = HybridOpenOptions {
        counts_open_tables,
        migration: MigrationName::None,
        caching: CachingName::None,
        division: DivisionName::Fixed,
        ..open_options()
    };
    let store = HybridStore::open(&env, devices, &options).unwrap();
    let is_fast = |name: &str| devices_of(&store, name) == [1];
    // Level 1 has more tables than the fast tier has zones: it is the tiering level.
    let old: Vec<String> = (0..16).map(|number| format!("old-{number}")).collect();
    for (number, name) in old.iter().enumerate() {
        write(&store, name, FileKind::Table, Some(1), &content(number as u64, 0, 30_000)).unwrap();
    }
    // The fast tier is full, so these tables go to the slow one. R_t leaves them zones of the fast tier.
    for number in 0..3 {
        write(&store, &format!("l0-{number}"), FileKind::Table, Some(0), &content(number, 0, 30_000)).unwrap();
    }
    // Empty zones of the fast tier, more than R_t leaves to the tiering level.
    old.iter().filter(|name| is_fast(name)).skip(2).for_each(|name| store.remove(name).unwrap());
    store.sync_names().unwrap();
    let tiering_zones = |fast_tables: usize| {
        let tiering = store.core.placement.tiering(&store.core.view());
        assert_eq!(tiering.level, 1);
        TieringLevel { zones: tiering.zones, fast_tables: fast_tables as u64 }
    };
    let before = tiering_zones(2);
    let jobs = [JobId(71), JobId(72)];
    for job in jobs {
        let inputs: Vec<HintedFile> = (0..4).map(|number| hinted(&format!("gone-{number}"), 0)).collect();
        store.hint(&Hint::CompactionBegin { job, inputs: &inputs, output_level: Some(1) });
    }
    let mut open = Vec::new();
    for number in 0..8 {
        let name = format!("new-{number}");
        let options = CreateOptions {
            kind: FileKind::Table,
            level: Some(1),
            job: Some(jobs[number % 2]),
            ..CreateOptions::default()
        };
        let mut writer = store.create(&name, &options).unwrap();
        writer.append(&content(number as u64, 0, 20_000), &CONTEXT).unwrap();
        open.push((name, writer));
    }
    (before, tiering_zones(2 + open.iter().filter(|(name, _)| is_fast(name)).count()))
}

#[test]
fn counted_open_outputs_stay_within_the_zones_of_the_tiering_level() {
    let (before, open) = open_parallel_outputs(true);
    assert!(before.fast_tables < before.zones, "no zone is left for an output: {before:?}");
    assert_eq!(open.fast_tables, open.zones, "{open:?}");
    // As demand alone, outputs of parallel jobs do not see each other.
    let (_, open) = open_parallel_outputs(false);
    assert!(open.fast_tables > open.zones, "{open:?}");
}
