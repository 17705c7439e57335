//! How many zones tables take that share them, and how much is copied for that: a device that is 90 % full of tables of a sixteenth
//! of a zone, of levels of which each has ten times the bytes of the one below it and tables that live ten times as long, more or
//! less.
//!
//! As many bytes are written to each level, in compactions of eleven tables. What a table's life differs from that of its level
//! is drawn for each table by itself, which is what nothing can be known of.

use super::shared::{TABLE_BYTES, alone, open_with, sharing};
use super::*;
use std::collections::BTreeSet;
use varve_env::Random;

const LEVELS: u64 = 4;
/// Tables that a compaction writes.
const OUTPUTS: u64 = 11;

/// What is tried.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Zones that the tables fill to 90 %.
    zones: u64,
    /// Standard deviation of lifetimes, in thousandths.
    deviation: u64,
    /// Zones of the device, in tenths of those that the tables fill.
    zones_tenths: u64,
    /// The store knows levels.
    has_levels: bool,
    empties: bool,
}

/// What came of it, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    /// Zones in use, of those that would be full of what lives: on average and at most.
    zones: u64,
    zones_most: u64,
    /// Bytes copied, of those written.
    copied: u64,
}

/// About normally distributed, in 1/65536.
fn deviation(random: &mut Random) -> i64 {
    (0..12).map(|_| random.below(1 << 16) as i64).sum::<i64>() - 6 * (1 << 16)
}

fn run(trial: Trial) -> Figures {
    let env = Env::sim(1);
    let live_tables = trial.zones * 16 * 9 / 10;
    let device = alone(&env, trial.zones * trial.zones_tenths / 10);
    let cleaning_bytes_per_second = if trial.empties { u64::MAX } else { 0 };
    let store = open_with(&env, &device, &HybridOpenOptions { cleaning_bytes_per_second, ..sharing() });
    let mut random = Random::named(1, "tables");
    // Lives of tables of level 0, of which the others follow, so that as many live as should.
    let sum: u64 = (0..LEVELS as u32).map(|level| 10_u64.pow(level)).sum();
    let usual = live_tables * LEVELS / sum;
    let longest = usual * 10_u64.pow(LEVELS as u32 - 1);
    let mut deaths: BTreeSet<(u64, u64)> = BTreeSet::new();
    let data = content(1, 0, TABLE_BYTES);
    let (mut written, mut number) = (0, 0);
    let (mut zones_sum, mut zones_most, mut looks, mut before) = (0, 0, 0, None);
    while written < longest * 2 {
        let level = random.below(LEVELS);
        for _ in 0..if level == 0 { 1 } else { OUTPUTS } {
            let due: Vec<(u64, u64)> = deaths.range(..(written, 0)).copied().collect();
            for death in due {
                deaths.remove(&death);
                store.remove(&format!("t-{}", death.1)).unwrap();
            }
            if deaths.len() as u64 >= live_tables
                && let Some((_, first)) = deaths.pop_first()
            {
                store.remove(&format!("t-{first}")).unwrap();
            }
            let life = (usual * 10_u64.pow(level as u32)) as i64;
            let differs = life * trial.deviation as i64 / 1000 * deviation(&mut random) / (1 << 16);
            number += 1;
            deaths.insert((written + (life + differs).max(1) as u64, number));
            let options = CreateOptions {
                kind: FileKind::Table,
                level: trial.has_levels.then_some(level as u8),
                expected_size_bytes: Some(TABLE_BYTES),
                ..CreateOptions::default()
            };
            let mut table = store.create(&format!("t-{number}"), &options).unwrap();
            table.append(&data, &CONTEXT).unwrap();
            table.sync(&CONTEXT).unwrap();
            table.finish(&CONTEXT).unwrap();
            written += 1;
        }
        if written > longest * 5 / 4 {
            let copied = measure(&store, "bytes copied to empty zones");
            before.get_or_insert((written, copied));
            let (zones, live_bytes) = store.core.members[0].files.shared_zones();
            let used = zones * ZONE_BYTES * 1000 / live_bytes;
            (zones_sum, looks, zones_most) = (zones_sum + used, looks + 1, zones_most.max(used));
        }
    }
    assert_sound(&store);
    let copied = measure(&store, "bytes copied to empty zones");
    let (from, copied_before) = before.unwrap();
    let copied = (copied - copied_before) * 1000 / ((written - from) * TABLE_BYTES);
    Figures { zones: zones_sum / looks, zones_most, copied }
}

#[test]
fn zones_in_use_are_hardly_more_than_what_lives() {
    let usual = Trial { zones: 640, deviation: 30, zones_tenths: 10, has_levels: true, empties: true };
    let of = |what: &str, trial: Trial| {
        let figures = run(trial);
        println!(
            "{what}: lifetimes differ by {} of 1000: zones in use {} of 1000, at most {}, copied {} of 1000",
            trial.deviation, figures.zones, figures.zones_most, figures.copied
        );
        figures
    };
    let shared = of("shared by lifetime, emptied", usual);
    assert!(shared.zones <= 1050 && shared.copied <= 50, "{shared:?}");
    let wasted =
        of("shared by lifetime, never emptied", Trial { zones: 160, zones_tenths: 13, empties: false, ..usual });
    assert!(wasted.zones > shared.zones + 10 && wasted.copied == 0, "{wasted:?}");
    let mixed = of(
        "shared in any order, never emptied",
        Trial { zones: 160, zones_tenths: 30, has_levels: false, empties: false, ..usual },
    );
    assert!(mixed.zones > 1500 && mixed.copied == 0, "{mixed:?}");
    let scattered = of("shared by lifetime, emptied", Trial { zones: 640, deviation: 50, ..usual });
    assert!(scattered.zones <= 1075 && scattered.copied <= 60, "{scattered:?}");
}
