//! A check beside those who write.

use super::*;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve_media::{MediaError, ZoneControl, ZoneDescription};

/// Does something once after it looked at the zones, and before it tells what it saw.
struct SlowReport {
    zones: Arc<dyn ZoneControl>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ZoneControl for SlowReport {
    fn report(&self, first: ZoneId, count: u32, context: &IoContext) -> Result<Vec<ZoneDescription>, MediaError> {
        let seen = self.zones.report(first, count, context);
        let then = self.then.lock().take();
        if let Some(then) = then {
            then();
        }
        seen
    }

    fn open(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones.open(zone, context)
    }

    fn close(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones.close(zone, context)
    }

    fn finish(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones.finish(zone, context)
    }

    fn reset(&self, zone: ZoneId, context: &IoContext) -> Result<(), MediaError> {
        self.zones.reset(zone, context)
    }

    fn append(&self, zone: ZoneId, data: &[u8], context: &IoContext) -> Result<u64, MediaError> {
        self.zones.append(zone, data, context)
    }
}

/// The zones a check compares with are those of a moment ago: a table that was written since is no damage.
#[test]
fn a_table_written_while_a_check_looks_is_no_finding() {
    let env = Env::real();
    for mut device in formatted_both(&env, 8) {
        let slow = Arc::new(SlowReport { zones: device.zones.clone().unwrap(), then: Mutex::default() });
        device.zones = Some(slow.clone());
        let store = Arc::new(BandStore::open(&env, device).unwrap());
        let go = Arc::new(AtomicBool::new(false));
        let writer = {
            let (env, store, go) = (env.clone(), store.clone(), go.clone());
            env.clone().spawn("writer", move || {
                while !go.load(Ordering::SeqCst) {
                    env.sleep(Duration::from_millis(1));
                }
                write(&store, "t", FileKind::Table, None, &content(1, 0, 20_000)).unwrap();
            })
        };
        let (own, later) = (store.clone(), env.clone());
        *slow.then.lock() = Some(Box::new(move || {
            go.store(true, Ordering::SeqCst);
            // The band table waits for the check; memory does not.
            let is_recorded = || {
                let state = own.core.state.lock();
                state
                    .names
                    .iter()
                    .any(|(name, node)| name == "t" && !node.fragments.read().recorded_fragments().is_empty())
            };
            while !is_recorded() {
                later.sleep(Duration::from_millis(1));
            }
        }));
        let findings = store.check().unwrap();
        writer.join().unwrap_or_else(|panic| panic.resume());
        assert!(findings.is_empty(), "{findings:?}");
        assert!(slow.then.lock().is_none(), "no zones were looked at");
        assert_sound(&store);
    }
}
