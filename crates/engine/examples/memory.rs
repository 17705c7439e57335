//! Micro-benchmarks of the parts in memory: memtable and log.
//!
//! `cargo run --release -p varve-engine --example memory -- [entries] [value bytes] [part]`; prints
//! nanoseconds per entry, the least of five rounds. `part` picks one measurement, for a profiler.

use varve_engine::WriteBatch;
use varve_engine::benchmark::memory::{Table, lookup_key, read_log, write_log, write_log_nowhere};
use varve_env::{Env, Random};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let entries: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(400_000);
    let value_bytes: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100);
    let part = arguments.next();
    let wanted = |name: &str| part.as_deref().is_none_or(|part| name.starts_with(part));
    let env = Env::real();
    let measure = |name: &str, work: &mut dyn FnMut()| {
        let round = |_| {
            let start = env.now();
            work();
            env.now().as_nanos() - start.as_nanos()
        };
        let nanos = (0..5).map(round).min().unwrap_or(0);
        println!("{name:34} {:8.1} ns", nanos as f64 / entries as f64);
    };
    let value = vec![0x5a; value_bytes];
    let mut random = Random::seeded(1);
    let numbers: Vec<u64> = (0..entries).map(|_| random.below(entries * 4)).collect();
    let binary = |number: u64| {
        let mut key = number.to_le_bytes().into_iter().rev().collect::<Vec<u8>>();
        key.extend_from_slice(b"00000000");
        key
    };
    let decimal = |number: u64| format!("{number:016}").into_bytes();
    let kinds: [(&str, &dyn Fn(u64) -> Vec<u8>); 2] = [("binary", &binary), ("decimal", &decimal)];
    for (kind, make) in kinds {
        if !wanted(kind) {
            continue;
        }
        let keys: Vec<Vec<u8>> = numbers.iter().map(|&number| make(number)).collect();
        let lookups: Vec<Vec<u8>> = keys.iter().map(|key| lookup_key(key)).collect();
        let missing: Vec<Vec<u8>> = numbers.iter().map(|&number| lookup_key(&make(number + 4 * entries))).collect();
        let sequential: Vec<Vec<u8>> = (0..entries).map(make).collect();
        let mut first = Table::new(64 << 20, None);
        let fill = |table: &mut Table, keys: &[Vec<u8>]| {
            *table = Table::new(64 << 20, Some(table));
            for (sequence, key) in keys.iter().enumerate() {
                table.insert(sequence as u64 + 1, key, &value);
            }
        };
        measure(&format!("{kind} insert random, unprepared"), &mut || {
            first = Table::new(64 << 20, None);
            fill(&mut first, &keys)
        });
        let mut table = first;
        measure(&format!("{kind} insert random"), &mut || fill(&mut table, &keys));
        println!("{kind} {:.1} bytes per entry", table.memory_bytes() as f64 / table.entries() as f64);
        measure(&format!("{kind} get random"), &mut || {
            for lookup in &lookups {
                assert!(table.get(lookup).is_some());
            }
        });
        measure(&format!("{kind} get missing"), &mut || {
            for lookup in &missing {
                assert!(table.get(lookup).is_none());
            }
        });
        measure(&format!("{kind} copy out"), &mut || assert!(table.copy_out() > 0));
        measure(&format!("{kind} insert sequential"), &mut || fill(&mut table, &sequential));
    }
    if wanted("log") {
        let mut batch = WriteBatch::new();
        batch.put(&binary(7), &value).expect("short enough");
        let mut bytes = Vec::new();
        measure("log write", &mut || write_log_nowhere(entries, &batch).expect("nothing fails"));
        bytes.extend(write_log(entries, &batch).expect("memory takes it"));
        println!("log {:.1} bytes per entry", bytes.len() as f64 / entries as f64);
        let mut read = 0;
        measure("log read and decode", &mut || read = read_log(bytes.clone()).expect("it is sound"));
        assert_eq!(read, entries);
    }
}
