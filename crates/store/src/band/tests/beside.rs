//! A check beside those who write.

use super::*;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve_media::{BlockDevice, Capabilities, IoClass, MediaError, Request, ZoneControl, ZoneDescription};

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

/// Does something once, before the first read of a check.
struct SlowRead {
    block: Arc<dyn BlockDevice>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for SlowRead {
    fn name(&self) -> &str {
        self.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        if context.class == IoClass::Check {
            let then = self.then.lock().take();
            if let Some(then) = then {
                then();
            }
        }
        self.block.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.block.counters()
    }
}

/// Log bands are given back, emptied and used for tables while a check reads them: that is no damage of logs.
#[test]
fn a_log_band_given_back_while_a_check_reads_it_is_no_finding() {
    let env = Env::real();
    for mut device in formatted_both(&env, 12) {
        let below = device.clone();
        let slow = Arc::new(SlowRead { block: device.block.clone(), then: Mutex::default() });
        device.block = slow.clone();
        let store = Arc::new(BandStore::open(&env, device).unwrap());
        drop(with_synced_frames(&store, "old.log", 70));
        drop(with_synced_frames(&store, "kept.log", 70));
        let gone = places_of_frames(&store, "old.log")[0];
        let zone_bytes = store.core.geometry.zone_bytes;
        *slow.then.lock() = Some(Box::new({
            let store = store.clone();
            move || {
                store.remove("old.log").unwrap();
                store.sync_names().unwrap();
                store.sync_names().unwrap();
                let data = content(9, 0, BAND_BYTES);
                (0..3)
                    .for_each(|number| write(&store, &format!("{number}.sst"), FileKind::Table, None, &data).unwrap());
            }
        }));
        let findings = store.check().unwrap();
        assert!(slow.then.lock().is_none(), "no log band was read");
        let zone = below.zones.as_ref().unwrap().report(ZoneId((gone / zone_bytes) as u32), 1, &IoContext::default());
        let zone = &zone.unwrap()[0];
        let mut now = vec![0; 4096];
        below.block.read_at(gone, &mut now, &IoContext::default()).unwrap();
        assert!(store.core.frame.open(&now).is_none(), "the band still has its frames: {zone:?}");
        assert_eq!(codes(&findings, Severity::Warning), [""; 0], "{findings:?}");
    }
}
