//! A sync that fails while others sync: what it dropped of theirs is not acknowledged.

use super::content;
use crate::band::{BandFormatOptions, BandStore};
use crate::extent::{Ext4Options, ExtentFormatOptions, ExtentLayout, ExtentStore};
use crate::file_store::{CreateOptions, FileKind, FileStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve_env::Env;
use varve_media::emulated::Zoned;
use varve_media::{
    BlockDevice, Capabilities, Counters, Device, Emulated, Geometry, Immediate, IoContext, MediaError, Operation,
    RamBacking, Request, ZoneGeometry,
};

/// A device whose next sync drops what was not synced, and says so late: the syncs of others meanwhile succeed.
struct LateFailure {
    inner: Device,
    env: Env,
    fails: AtomicBool,
}

impl BlockDevice for LateFailure {
    fn name(&self) -> &str {
        self.inner.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        if self.fails.swap(false, Ordering::AcqRel) {
            self.env.sleep(Duration::from_millis(10));
            let source = std::io::Error::other("what was not synced was dropped");
            return Err(MediaError::io(self.name(), Operation::Sync, 0, source));
        }
        self.inner.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

#[test]
fn nothing_is_acknowledged_beside_a_sync_that_fails() {
    let ext4 = ExtentLayout::Ext4(Ext4Options::default());
    for layout in [None, Some(ExtentLayout::FirstFit), Some(ext4)] {
        let env = Env::sim(1);
        let inner = match layout {
            None => {
                let all = ZoneGeometry::fit(24 << 20, 64 << 10).expect("zones");
                let rules = Zoned::new(&ZoneGeometry { conventional_zones: 16, ..all });
                let asked = Geometry { capacity_bytes: u64::MAX, sector_bytes: 512, physical_sector_bytes: 4096 };
                let (geometry, timing) = (rules.cut(&asked), Box::<Immediate>::default());
                rules.device(|rules| Emulated::new(&env, "zoned", geometry, rules, timing, Box::new(RamBacking::new())))
            }
            Some(_) => Device::of_blocks(Arc::new(Emulated::immediate(&env, "disk", 64 << 20))),
        };
        let late = Arc::new(LateFailure { inner, env: env.clone(), fails: AtomicBool::new(false) });
        let device = Device { zones: late.inner.zones.clone(), ..Device::of_blocks(late.clone()) };
        let store: Arc<dyn FileStore> = match &layout {
            None => {
                BandStore::format(&env, &device, &BandFormatOptions::default()).expect("format");
                Arc::new(BandStore::open(&env, device).expect("open"))
            }
            Some(layout) => {
                let options = ExtentFormatOptions { layout: *layout, overwrite: false };
                ExtentStore::format(&env, &device, &options).expect("format");
                Arc::new(ExtentStore::open(&env, device).expect("open"))
            }
        };
        let context = IoContext::default();
        let mut writers = Vec::new();
        for number in 0..2_u64 {
            let options = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
            let mut writer = store.create(&format!("{number}.log"), &options).expect("create");
            writer.append(&content(number, 0, 5000), &context).expect("append");
            writer.sync(&context).expect("sync");
            writer.append(&content(number, 5000, 5000), &context).expect("append");
            writer.flush(&context).expect("flush");
            writers.push(writer);
        }
        late.fails.store(true, Ordering::Release);
        let actors: Vec<_> = writers
            .into_iter()
            .enumerate()
            .map(|(number, mut writer)| {
                let clock = env.clone();
                env.spawn(&format!("writer {number}"), move || {
                    clock.sleep(Duration::from_millis(number as u64));
                    writer.sync(&IoContext::default())
                })
            })
            .collect();
        for (number, actor) in actors.into_iter().enumerate() {
            let outcome = actor.join().expect("no panic");
            assert!(outcome.is_err(), "{layout:?}: what writer {number} wrote was dropped, and its sync succeeds");
        }
    }
}
