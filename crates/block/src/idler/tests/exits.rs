//! Every way in which a held request ends leaves no trace: control goes on as if the request had never come.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use varve_media::{
    BlockDevice, Capabilities, Counters, Fault, FaultDevice, FaultEffect, FaultError, FaultInjector, FaultPlan,
    FaultTrigger, Geometry, MediaError, Operation,
};

/// Zone in which writes fail or panic.
const BAD_ZONE: u64 = 39;

/// A device that panics when bytes of the bad zone are written.
struct Panicking(Device);

impl BlockDevice for Panicking {
    fn name(&self) -> &str {
        self.0.block.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.block.geometry()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.block.capabilities()
    }

    fn execute(&self, requests: &mut [Request<'_>], context: &IoContext) -> Result<(), MediaError> {
        assert!(requests.iter().all(|request| request.offset_bytes < BAD_ZONE * ZONE), "the device panics");
        self.0.block.execute(requests, context)
    }

    fn sync(&self, context: &IoContext) -> Result<(), MediaError> {
        self.0.block.sync(context)
    }

    fn counters(&self) -> Counters {
        self.0.block.counters()
    }
}

/// Idler, which panics once when it is asked about a flush that has waited.
struct PanicsOnce(Box<Idler>, AtomicBool);

impl Controller for PanicsOnce {
    fn name(&self) -> String {
        self.0.name()
    }

    fn arrived(&mut self, arrival: &Arrival) -> Verdict {
        self.0.arrived(arrival)
    }

    fn waited(&mut self, now_nanos: u64, arrival: &Arrival) -> Verdict {
        assert!(arrival.class != IoClass::Flush || self.1.swap(true, Ordering::Relaxed), "the controller panics");
        self.0.waited(now_nanos, arrival)
    }

    fn let_go(&mut self, now_nanos: u64, arrival: &Arrival) {
        self.0.let_go(now_nanos, arrival);
    }

    fn completed(&mut self, now_nanos: u64, begun_nanos: u64, arrival: &Arrival) {
        self.0.completed(now_nanos, begun_nanos, arrival);
    }

    fn absorbed(&mut self, now_nanos: u64, arrival: &Arrival) {
        self.0.absorbed(now_nanos, arrival);
    }

    fn wants_report(&self, now_nanos: u64) -> bool {
        self.0.wants_report(now_nanos)
    }

    fn reported(&mut self, now_nanos: u64, zones: Option<&[varve_media::ZoneDescription]>) {
        self.0.reported(now_nanos, zones);
    }
}

/// Requests submitted during a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Write,
    /// A batch of three.
    Batch,
    Read,
    Sync,
    Report,
    Reset,
}

/// Deadline of a request, from the moment at which it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    Whenever,
    /// A second ago.
    Before,
    AtOnce,
    /// Before the pause ends.
    Soon,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Succeeds,
    Fails,
    DevicePanics,
    ControllerPanics,
}

type Scene = (Asked, Wanted, Outcome);

/// Asks for something, and waits for its end.
fn ask(env: &Env, device: &Device, (asked, wanted, outcome): Scene) {
    let now = env.now().as_nanos();
    let deadline = match wanted {
        Wanted::Whenever => None,
        Wanted::Before => Some(now.saturating_sub(1_000_000_000)),
        Wanted::AtOnce => Some(now),
        Wanted::Soon => Some(now + 20_000_000),
    };
    let class = if outcome == Outcome::ControllerPanics { IoClass::Flush } else { IoClass::Other };
    let context = IoContext { deadline: deadline.map(varve_env::Instant::from_nanos), ..IoContext::of(class) };
    let at = match outcome {
        Outcome::Succeeds | Outcome::ControllerPanics => 8 << 20,
        Outcome::Fails | Outcome::DevicePanics => BAD_ZONE * ZONE + 8192,
    };
    let zones = device.zones.as_ref().unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| match asked {
        Asked::Write => device.block.write_at(at, &[0; 4096], &context),
        Asked::Batch => {
            let written = [IoSlice::new(&[0; 4096])];
            let mut batch = [0, 1, 2].map(|block| Request::write(at + block * 8192, &written));
            device.block.execute(&mut batch, &context)
        }
        Asked::Read => device.block.read_at(at, &mut [0; 4096], &context),
        Asked::Sync => device.block.sync(&context),
        Asked::Report => zones.report(ZoneId(0), 40, &context).map(|_| ()),
        Asked::Reset => zones.reset(ZoneId(38), &context),
    }));
    match outcome {
        Outcome::Succeeds => assert!(matches!(result, Ok(Ok(()))), "{asked:?} {wanted:?}: {result:?}"),
        Outcome::Fails => assert!(matches!(result, Ok(Err(_))), "{asked:?} {wanted:?}: {result:?}"),
        Outcome::DevicePanics | Outcome::ControllerPanics => assert!(result.is_err(), "{asked:?} {wanted:?}"),
    }
}

/// Pauses under a load that needs them, while each scene is played in a pause of its own, by as many actors at once as there are scenes
/// in it; and those of the second half.
fn pauses_with(scenes: Vec<Vec<Scene>>) -> (u64, u64) {
    let env = Env::sim(1);
    let of_client = env.clone();
    let client = env.spawn("client", move || {
        let env = of_client;
        let outcomes = || scenes.iter().flatten().map(|scene| scene.2);
        let own = drive(&env, 100);
        let zones = own.zones.clone().unwrap();
        (0..20).for_each(|zone| zones.finish(ZoneId(zone), &IoContext::default()).unwrap());
        let injector = FaultInjector::new(&env, FaultPlan::default());
        let controller = idler(&own);
        let controller: Box<dyn Controller> = match outcomes().any(|outcome| outcome == Outcome::ControllerPanics) {
            true => Box::new(PanicsOnce(controller, AtomicBool::new(false))),
            false => controller,
        };
        let inner = match outcomes().any(|outcome| outcome == Outcome::DevicePanics) {
            true => Device { zones: own.zones.clone(), ..Device::of_blocks(Arc::new(Panicking(own.clone()))) },
            false => {
                let fault = Fault::new(Operation::Write, FaultTrigger::From(0), FaultEffect::Fail(FaultError::Io));
                injector.set_plan(FaultPlan::of(fault.on_range(BAD_ZONE * ZONE..40 * ZONE)));
                FaultDevice::device(&injector, &own)
            }
        };
        let (device, control) = ControlledDevice::new(&env, &inner, controller);
        let load = {
            let (env, device, control) = (env.clone(), device.clone(), control.clone());
            env.clone().spawn("load", move || {
                let mut random = env.random("writes");
                let mut of_first_half = 0;
                for step in 0..2000 {
                    if step == 1000 {
                        of_first_half = control.statistics().idle_periods;
                    }
                    let at = random.below(20) * ZONE + random.below(1000) * 4096;
                    match random.chance(1, 20) {
                        true => device.block.write_at(at, &[0; 4096], &IoContext::default()).unwrap(),
                        false => device.block.read_at(at, &mut [0; 4096], &IoContext::default()).unwrap(),
                    }
                    env.sleep(Duration::from_millis(100));
                }
                of_first_half
            })
        };
        for scene in scenes {
            // A pause of its own for each.
            env.sleep(Duration::from_secs(5));
            while !control.is_holding() {
                env.sleep(Duration::from_millis(10));
                assert!(env.now().as_nanos() < 100_000_000_000, "no pause to play it in");
            }
            let actors = scene.into_iter().map(|played| {
                let (env, device) = (env.clone(), device.clone());
                env.clone().spawn("asks", move || ask(&env, &device, played))
            });
            let actors: Vec<_> = actors.collect();
            actors.into_iter().for_each(|actor| actor.join().unwrap_or_else(|panicked| panicked.resume()));
        }
        let of_first_half = load.join().unwrap_or_else(|panicked| panicked.resume());
        let all = control.statistics().idle_periods;
        (all, all - of_first_half)
    });
    client.join().unwrap_or_else(|panicked| panicked.resume())
}

fn check(scenes: Vec<Vec<Scene>>) {
    let what = format!("{scenes:?}");
    let (undisturbed, of_half) = pauses_with(Vec::new());
    assert!(of_half > 10, "{undisturbed}");
    let (all, second_half) = pauses_with(scenes);
    assert!(second_half * 4 >= of_half * 3, "{what}: {second_half} of {all} pauses, undisturbed {of_half}");
}

/// A request whose deadline had passed was counted as held for ever, and Idler never held anything back again.
#[test]
fn expired_deadline_does_not_end_sampling() {
    for asked in [Asked::Write, Asked::Batch, Asked::Read, Asked::Sync, Asked::Report, Asked::Reset] {
        for wanted in [Wanted::Before, Wanted::AtOnce, Wanted::Soon] {
            check(vec![vec![(asked, wanted, Outcome::Succeeds)]]);
        }
    }
}

#[test]
fn failing_and_panicking_requests_do_not_end_sampling() {
    for outcome in [Outcome::Fails, Outcome::DevicePanics, Outcome::ControllerPanics] {
        for asked in [Asked::Write, Asked::Batch] {
            for wanted in [Wanted::Whenever, Wanted::Before, Wanted::Soon] {
                // What does not wait is not asked about again.
                if outcome == Outcome::ControllerPanics && wanted != Wanted::Whenever {
                    continue;
                }
                check(vec![vec![(asked, wanted, outcome)]]);
            }
        }
    }
}

/// Equal requests at one moment, with and without deadlines, of which some fail.
#[test]
fn concurrent_exits_do_not_end_sampling() {
    for other in [Outcome::Fails, Outcome::DevicePanics] {
        let together = [
            (Asked::Write, Wanted::Before, Outcome::Succeeds),
            (Asked::Write, Wanted::Whenever, Outcome::Succeeds),
            (Asked::Write, Wanted::AtOnce, Outcome::Succeeds),
            (Asked::Write, Wanted::Soon, other),
            (Asked::Batch, Wanted::Before, other),
            (Asked::Batch, Wanted::Whenever, other),
            (Asked::Sync, Wanted::Before, Outcome::Succeeds),
            (Asked::Read, Wanted::Whenever, Outcome::Succeeds),
        ];
        check(vec![together.to_vec(), together.iter().rev().copied().collect(), together.to_vec()]);
    }
}
