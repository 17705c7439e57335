//! Histories of keys that several clients write and read at once, and whether one order of all operations explains them.
//!
//! Each value is written once, so that a read tells which write it saw. Then a history of one key is linearizable if and
//! only if no two zones of its values conflict (Gibbons and Korach, "Testing Shared Memories", SIAM Journal on Computing,
//! 1997). A *zone* is of one value, its write and its reads: from the earliest end to the latest begin among them. Where the
//! end comes first, the key has this value throughout (a forward zone); otherwise at some moment between (a backward one).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What was in a key before anything was written.
pub(crate) const NOTHING: u64 = 0;

/// A moment; those of all threads of a history are in order.
pub(crate) type Moment = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    begin: Moment,
    end: Moment,
    is_write: bool,
}

/// Everything that was written and read, by key and value. Thread-safe.
#[derive(Default)]
pub(crate) struct Registers {
    clock: AtomicU64,
    operations: Mutex<BTreeMap<(Vec<u8>, u64), Vec<Operation>>>,
}

impl Registers {
    /// The present moment, later than all that were asked for before.
    pub(crate) fn now(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// This value was written in this time. One that may or may not have been has no end.
    pub(crate) fn wrote(&self, key: &[u8], value: u64, begin: Moment, end: Moment) {
        self.add(key, value, Operation { begin, end, is_write: true });
    }

    /// This value was read in this time.
    pub(crate) fn read(&self, key: &[u8], value: u64, begin: Moment, end: Moment) {
        self.add(key, value, Operation { begin, end, is_write: false });
    }

    fn add(&self, key: &[u8], value: u64, operation: Operation) {
        self.operations.lock().entry((key.to_vec(), value)).or_default().push(operation);
    }

    /// How many operations there were, once one order of them is known to explain every key.
    pub(crate) fn check(&self) -> Result<u64, String> {
        let operations = self.operations.lock();
        let mut zones: BTreeMap<&[u8], Vec<Zone>> = BTreeMap::new();
        for ((key, value), all) in operations.iter() {
            let said = |what: &str| format!("{}: value {value} {what}: {all:?}", key.escape_ascii());
            let writes: Vec<&Operation> = all.iter().filter(|operation| operation.is_write).collect();
            let written = match writes[..] {
                [] if *value == NOTHING => 0,
                [write] => write.begin,
                _ => return Err(said("was read and not written once")),
            };
            if all.iter().any(|operation| operation.end < written) {
                return Err(said("was read before it was written"));
            }
            let ends = all.iter().map(|operation| operation.end);
            // The key held nothing from the beginning on.
            let first_end = if *value == NOTHING { 0 } else { ends.min().unwrap_or(0) };
            let last_begin = all.iter().map(|operation| operation.begin).max().unwrap_or(0);
            zones.entry(key).or_default().push(Zone { value: *value, first_end, last_begin });
        }
        for (key, zones) in &mut zones {
            zones.sort_by_key(Zone::low);
            let forward: Vec<&Zone> = zones.iter().filter(|zone| zone.is_forward()).collect();
            let said = |one: &Zone, other: &Zone| {
                format!("{}: no order of operations explains {one:?} beside {other:?}", key.escape_ascii())
            };
            for pair in forward.windows(2) {
                if pair[1].low() < pair[0].high() {
                    return Err(said(pair[0], pair[1]));
                }
            }
            for backward in zones.iter().filter(|zone| !zone.is_forward()) {
                // Forward zones are apart: only the last that begins before can hold it.
                let before = forward.partition_point(|zone| zone.low() < backward.low());
                if before > 0 && backward.high() < forward[before - 1].high() {
                    return Err(said(forward[before - 1], backward));
                }
            }
        }
        Ok(operations.values().map(|all| all.len() as u64).sum())
    }
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    #[allow(dead_code, reason = "for whoever reads a failure")]
    value: u64,
    first_end: Moment,
    last_begin: Moment,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }

    fn low(&self) -> Moment {
        self.first_end.min(self.last_begin)
    }

    fn high(&self) -> Moment {
        self.first_end.max(self.last_begin)
    }
}
