//! What was once wrong.

use super::*;
use varve_media::{
    BlockDevice, Capabilities, Counters, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan,
    FaultTrigger, Geometry, IoClass, MediaError, Operation, Transfer,
};

fn get(device: &Device, at: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0xEE; length];
    device.block.read_at(at, &mut data, &IoContext::default()).unwrap();
    data
}
fn put(device: &Device, at: u64, byte: u8, length: usize) {
    device.block.write_at(at, &vec![byte; length], &IoContext::default()).unwrap();
}

#[test]
fn a_discard_that_fails_leaves_what_was_synced() {
    in_simulation(1, |env| {
        let (below, above) = (conventional(env), fast(env));
        let injector = FaultInjector::new(env, FaultPlan::default());
        let through = FaultDevice::device(&injector, &below);
        let (device, buffer) =
            WriteBuffer::open(env, &through, &above, parameters(0), BufferOpening::default(), None).unwrap();
        put(&device, 0, 1, 4096);
        buffer.drain(&IoContext::default()).unwrap();
        put(&device, 0, 2, 4096);
        device.block.sync(&IoContext::default()).unwrap();
        injector.set_plan(FaultPlan::of(Fault::new(
            Operation::Discard,
            FaultTrigger::Once(0),
            FaultEffect::Fail(FaultError::Io),
        )));
        assert!(device.block.discard_at(0, 4096, &IoContext::default()).is_err());
        assert_eq!(get(&device, 0, 4096)[0], 2);
        device.block.sync(&IoContext::default()).unwrap();
        drop((device, buffer));
        let (device, _) = open(env, &below, &above, 0);
        assert_eq!(get(&device, 0, 4096)[0], 2);
    });
}

#[test]
fn no_more_is_said_to_be_whole_than_is() {
    in_simulation(1, |env| {
        let (below, above) = (conventional(env), fast(env));
        let (device, buffer) = open(env, &below, &above, 0);
        put(&device, 0, 1, 4096);
        buffer.drain(&IoContext::default()).unwrap();
        put(&device, 0, 2, 2048);
        device.block.sync(&IoContext::default()).unwrap();
        put(&device, 0, 3, 4096);
        drop((device, buffer));
        let (device, _) = open(env, &below, &above, 0);
        let found = get(&device, 0, 4096);
        let physical = device.block.geometry().physical_sector_bytes as usize;
        for sector in found.chunks(physical) {
            assert!(sector.iter().all(|&byte| byte == sector[0]), "{sector:?}");
        }
    });
}

fn rewriting() -> BufferParameters {
    BufferParameters {
        page_count: 8,
        order: EvictionOrder::Zones,
        rewrite_pages: Some(3),
        evicted_pages_min: 1,
        requests_at_once: 4,
    }
}

#[test]
fn what_lies_behind_a_zone_that_is_written_anew_reads_as_zeros() {
    in_simulation(1, |env| {
        let (below, above) = (disk(env), fast(env));
        let (device, buffer) =
            WriteBuffer::open(env, &below, &above, rewriting(), BufferOpening::default(), None).unwrap();
        // Zone 0: full, rewritten once: the copy has 7s.
        put(&device, 0, 7, ZONE as usize);
        for page in 0..5 {
            put(&device, page * 4096, 8, 4096);
        }
        for page in 0..8 {
            put(&device, 5 * ZONE + 4096 + page * 8192, 9, 4096);
        }
        buffer.drain(&IoContext::default()).unwrap();
        assert_eq!(buffer.statistics().rewritten_zones, 1);
        // Zone 1: 41 sectors in order.
        put(&device, ZONE, 1, 41 * 512);
        for page in 0..5 {
            put(&device, ZONE + page * 4096, 2, 4096);
        }
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let reader = {
            let (device, env, done) = (device.clone(), env.clone(), done.clone());
            env.clone().spawn("reader", move || {
                let mut wrong = 0;
                let mut reads = 0;
                while !done.load(std::sync::atomic::Ordering::SeqCst) {
                    let found = get(&device, ZONE + 40 * 512, 4096);
                    assert!(found[..512].iter().all(|&byte| byte == 1));
                    reads += 1;
                    wrong += usize::from(found[512] != 0);
                    env.sleep(Duration::from_micros(1));
                }
                (reads, wrong)
            })
        };
        for page in 0..8 {
            put(&device, 5 * ZONE + 4096 + page * 8192, 9, 4096);
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        let (reads, wrong) = reader.join().unwrap();
        assert!(reads > 50 && wrong == 0 && buffer.statistics().rewritten_zones == 2, "{reads}, {wrong}");
    });
}

struct Slow {
    inner: Device,
    env: Env,
    from: u64,
    to: u64,
}
impl BlockDevice for Slow {
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
        let is_slow = context.class != IoClass::Maintenance
            && requests.iter().any(|request| {
                matches!(request.transfer, Transfer::Read { .. })
                    && (self.from..self.to).contains(&request.offset_bytes)
            });
        if is_slow {
            self.env.sleep(Duration::from_secs(20));
        }
        self.inner.block.execute(requests, context)
    }
    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.inner.block.sync(context)
    }
    fn counters(&self) -> Counters {
        self.inner.block.counters()
    }
}

#[test]
fn the_copy_of_a_zone_is_not_made_over_under_who_reads_it() {
    in_simulation(1, |env| {
        let (below, above) = (disk(env), fast(env));
        let layout = super::super::journal::Layout::new(8, ZONE, 4096);
        let slow = Device::of_blocks(Arc::new(Slow {
            inner: above,
            env: env.clone(),
            from: layout.staging(),
            to: layout.staging() + ZONE,
        }));
        let (device, buffer) =
            WriteBuffer::open(env, &below, &slow, rewriting(), BufferOpening::default(), None).unwrap();
        put(&device, 0, 7, ZONE as usize);
        put(&device, ZONE, 8, ZONE as usize);
        for page in 0..5 {
            put(&device, page * 4096, 17, 4096);
        }
        let readers: Vec<_> = (0..200u64)
            .map(|number| {
                let (device, env) = (device.clone(), env.clone());
                env.clone().spawn("reader", move || {
                    env.sleep(Duration::from_millis(number));
                    get(&device, 20 * 4096, 4096)[0]
                })
            })
            .collect();
        for page in 0..5 {
            put(&device, ZONE + page * 4096, 18, 4096);
        }
        for page in 0..8 {
            put(&device, 5 * ZONE + 4096 + page * 8192, 9, 4096);
        }
        let found: Vec<u8> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert!(found.iter().all(|&byte| byte == 7), "{found:?}");
        assert!(buffer.statistics().rewritten_zones >= 2);
    });
}

#[test]
fn a_zone_that_cannot_be_read_keeps_no_others_from_being_written() {
    in_simulation(1, |env| {
        let (below, above) = (disk(env), fast(env));
        let injector = FaultInjector::new(env, FaultPlan::default());
        let through = FaultDevice::device(&injector, &below);
        let (device, buffer) =
            WriteBuffer::open(env, &through, &above, rewriting(), BufferOpening::default(), None).unwrap();
        put(&device, 0, 7, ZONE as usize);
        for page in 0..5 {
            put(&device, page * 4096, 17, 4096);
        }
        injector.set_plan(FaultPlan::of(Fault::new(
            Operation::Read,
            FaultTrigger::From(0),
            FaultEffect::Fail(FaultError::Io),
        )));
        for page in 0..40u64 {
            put(&device, 3 * ZONE + 4096 + page * 4096, 9, 4096);
        }
        device.block.sync(&IoContext::default()).unwrap();
        assert!(buffer.held_pages() <= 8);
    });
}
