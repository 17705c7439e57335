//! A simulation: the scheduler and the threads it lets run, one at a time.
//!
//! Locks are taken in one order: a primitive's state and the scheduler are never held together,
//! except that the deadlock report, written under the scheduler's lock, looks at the states.
//! Between two scheduler calls nothing can interfere, because only the holder of the baton runs.

mod processor;
mod scheduler;
mod waiting;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;

use parking_lot::{Mutex, MutexGuard};

pub(crate) use scheduler::{ActorId, Reason, WaitPoint, Wake};
pub(crate) use waiting::{SimLock, WaitQueue};

use processor::{Pinned, Processor};
use scheduler::{Dispatch, Scheduler};

use crate::environment::SimOptions;

/// What an actor that yields is taken to spend, so that a polling loop cannot stop the clock.
pub(crate) const YIELD_NANOS: u64 = 1_000;

/// The longest delay schedule perturbation inserts.
const PERTURB_DELAY_NANOS: u64 = 100_000;

/// The virtual clock starts at 2020-01-01T00:00:00Z.
pub(crate) const EPOCH_UNIX_NANOS: u64 = 1_577_836_800_000_000_000;

/// A thread that takes part in a simulation.
pub(crate) struct Actor {
    pub(crate) id: ActorId,
    pub(crate) name: Arc<str>,
    /// Processor time charged and not settled; only the actor itself writes it.
    charge: AtomicU64,
    has_baton: AtomicBool,
    /// Known once it came.
    thread: OnceLock<Thread>,
}

impl Actor {
    fn give_baton(&self) {
        self.has_baton.store(true, SeqCst);
        // A thread that comes now looks for the baton after it is known.
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Called by its thread alone.
    fn await_baton(&self) {
        self.thread.get_or_init(std::thread::current);
        while !self.has_baton.swap(false, SeqCst) {
            std::thread::park();
        }
    }
}

struct SimulationState {
    scheduler: Scheduler,
    actors: BTreeMap<ActorId, Arc<Actor>>,
    /// The thread of "main" has ended: nobody runs any more.
    stopped: bool,
}

/// The shared state of one simulated env.
pub(crate) struct Simulation {
    number: u64,
    pub(crate) options: SimOptions,
    /// A copy of the scheduler's clock, readable without its lock.
    clock: AtomicU64,
    core: Mutex<SimulationState>,
    processor: Processor,
}

impl Drop for Simulation {
    /// The thread of "main" may use all processors again, if it is the one that lets go last; else when it ends.
    fn drop(&mut self) {
        let number = self.number;
        let _ = MEMBERSHIPS.try_with(|memberships| {
            if let Ok(mut memberships) = memberships.try_borrow_mut() {
                memberships.retain(|membership| membership.simulation != number);
            }
        });
    }
}

/// A thread's part in one simulation.
struct Membership {
    simulation: u64,
    alive: Weak<Simulation>,
    actor: Arc<Actor>,
    depth: u32,
    outside: bool,
    _pinned: Option<Pinned>,
}

impl Drop for Membership {
    /// Whoever detaches leaves no depth. What is left is a thread that ended without: main's end
    /// stops the simulation, any other actor must not keep the baton.
    fn drop(&mut self) {
        if self.depth > 0
            && let Some(simulation) = self.alive.upgrade()
        {
            let mut core = simulation.core.lock();
            if self.actor.id == MAIN {
                core.stopped = true;
            } else {
                core.actors.remove(&self.actor.id);
                core.scheduler.end(self.actor.id);
                simulation.kick(core);
            }
        }
    }
}

/// The first actor that is registered.
const MAIN: ActorId = ActorId(0);

thread_local! {
    static MEMBERSHIPS: RefCell<Vec<Membership>> = const { RefCell::new(Vec::new()) };
}

static SIMULATIONS: AtomicU64 = AtomicU64::new(1);

impl Simulation {
    /// Begins a simulation in which the calling thread is the actor "main" and runs.
    pub(crate) fn begin(options: SimOptions) -> Arc<Simulation> {
        let limit = options.time_limit.map(crate::instant::duration_nanos);
        let simulation = Arc::new(Simulation {
            number: SIMULATIONS.fetch_add(1, Relaxed),
            clock: AtomicU64::new(0),
            core: Mutex::new(SimulationState {
                scheduler: Scheduler::new(options.seed, options.processors, limit),
                actors: BTreeMap::new(),
                stopped: false,
            }),
            options,
            processor: Processor::choose(),
        });
        let main = simulation.register("main");
        simulation.join_as(&main);
        simulation
    }

    /// Adds an actor; its thread takes part from `join_as` on.
    pub(crate) fn register(&self, name: &str) -> Arc<Actor> {
        let mut core = self.core.lock();
        assert!(!core.stopped, "the simulation (seed {}) ended with the thread of its main actor", self.options.seed);
        let name: Arc<str> = name.into();
        let actor = Arc::new(Actor {
            id: core.scheduler.register(Arc::clone(&name)),
            name,
            charge: AtomicU64::new(0),
            has_baton: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        core.actors.insert(actor.id, Arc::clone(&actor));
        self.kick(core);
        actor
    }

    /// The calling thread becomes `actor` and waits until it has the baton.
    pub(crate) fn join_as(self: &Arc<Self>, actor: &Arc<Actor>) {
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            memberships.retain(|membership| membership.alive.strong_count() > 0);
            memberships.push(Membership {
                simulation: self.number,
                alive: Arc::downgrade(self),
                actor: Arc::clone(actor),
                depth: 1,
                outside: false,
                _pinned: self.processor.pin(),
            });
        });
        actor.await_baton();
    }

    /// Ends an announced actor whose thread will not come.
    pub(crate) fn cancel(&self, id: ActorId) {
        let mut core = self.core.lock();
        core.actors.remove(&id);
        core.scheduler.cancel(id);
        self.kick(core);
    }

    /// Whether the calling thread takes part, even if it is outside at the moment.
    pub(crate) fn is_member(&self) -> bool {
        MEMBERSHIPS.with_borrow(|memberships| memberships.iter().any(|membership| membership.simulation == self.number))
    }

    /// If the calling thread already takes part, counts one more attachment.
    pub(crate) fn deepen(&self) -> bool {
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            match memberships.iter_mut().find(|membership| membership.simulation == self.number) {
                Some(membership) if !membership.outside => {
                    membership.depth += 1;
                    true
                }
                _ => false,
            }
        })
    }

    /// Takes back one attachment of the calling thread; the last one ends its actor.
    pub(crate) fn detach(&self) {
        let ended = MEMBERSHIPS.with_borrow_mut(|memberships| {
            let index = memberships.iter().position(|membership| membership.simulation == self.number)?;
            memberships[index].depth -= 1;
            (memberships[index].depth == 0).then(|| Arc::clone(&memberships[index].actor))
        });
        let Some(actor) = ended else { return };
        if !std::thread::panicking() {
            // A report has no one to go to any more: whoever is left gets its own.
            let _ = self.settle_actor(&actor);
        }
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            memberships.retain(|membership| membership.simulation != self.number);
        });
        let mut core = self.core.lock();
        core.actors.remove(&actor.id);
        core.scheduler.end(actor.id);
        self.kick(core);
    }

    /// The calling thread's actor, or `None` if it has none or is outside.
    fn find_current(&self) -> Option<Arc<Actor>> {
        MEMBERSHIPS
            .try_with(|memberships| {
                let memberships = memberships.borrow();
                let membership = memberships.iter().find(|membership| membership.simulation == self.number)?;
                (!membership.outside).then(|| Arc::clone(&membership.actor))
            })
            .ok()
            .flatten()
    }

    /// The calling thread's actor.
    pub(crate) fn current(&self) -> Arc<Actor> {
        match self.find_current() {
            Some(actor) => actor,
            None => self.refuse(),
        }
    }

    #[cold]
    fn refuse(&self) -> ! {
        let thread = std::thread::current();
        panic!(
            "thread {:?} is not an actor of this simulation (seed {}): start it with Env::spawn, or call Env::attach \
             (or Admission::attach) on it first, and not from inside Env::outside",
            thread.name().unwrap_or("unnamed"),
            self.options.seed
        );
    }

    pub(crate) fn now_nanos(&self) -> u64 {
        let actor = self.current();
        self.clock.load(Relaxed).saturating_add(actor.charge.load(Relaxed))
    }

    pub(crate) fn charge(&self, nanos: u64) {
        let found = MEMBERSHIPS.with_borrow(|memberships| {
            let membership = memberships.iter().find(|membership| membership.simulation == self.number);
            membership.filter(|membership| !membership.outside).map(|membership| {
                let charge = &membership.actor.charge;
                charge.store(charge.load(Relaxed).saturating_add(nanos), Relaxed);
            })
        });
        if found.is_none() {
            self.refuse();
        }
    }

    pub(crate) fn charged_total(&self) -> u64 {
        let core = self.core.lock();
        let pending = core.actors.values().map(|actor| actor.charge.load(Relaxed));
        pending.fold(core.scheduler.settled_total(), u64::saturating_add)
    }

    pub(crate) fn settle(&self) {
        let wake = self.settle_actor(&self.current());
        self.fail_on(wake);
    }

    #[must_use]
    fn settle_actor(&self, actor: &Actor) -> Wake {
        let pending = actor.charge.load(Relaxed);
        if pending == 0 {
            return Wake::Called;
        }
        actor.charge.store(0, Relaxed);
        let until = self.core.lock().scheduler.reserve_processor(pending);
        self.sleep_actor(actor, until)
    }

    /// A point whose order among actors matters: the calling actor's charges become time and,
    /// if perturbation is on, others may come first.
    pub(crate) fn sync_point(&self) -> Arc<Actor> {
        let actor = self.current();
        let wake = self.settle_and_perturb(&actor);
        self.fail_on(wake);
        actor
    }

    /// Like `sync_point`, for destructors: no actor on a foreign thread, nothing settled while
    /// unwinding, and it is left to the caller to fail on the wake, after cleaning up.
    pub(crate) fn sync_point_on_drop(&self) -> (Option<Arc<Actor>>, Wake) {
        let actor = self.find_current();
        let wake = match &actor {
            Some(actor) if !std::thread::panicking() => self.settle_and_perturb(actor),
            _ => Wake::Called,
        };
        (actor, wake)
    }

    #[must_use]
    fn settle_and_perturb(&self, actor: &Actor) -> Wake {
        let wake = self.settle_actor(actor);
        if self.options.perturb && !std::thread::panicking() && !matches!(wake, Wake::Failed(_)) {
            return self.perturb(actor);
        }
        wake
    }

    fn perturb(&self, actor: &Actor) -> Wake {
        let mut core = self.core.lock();
        match core.scheduler.random().below(32) {
            0 => {
                let delay = core.scheduler.random().below(PERTURB_DELAY_NANOS);
                let until = core.scheduler.now().saturating_add(delay);
                drop(core);
                self.sleep_actor(actor, until)
            }
            1..=8 if core.scheduler.others_runnable() => {
                core.scheduler.yield_running(actor.id);
                self.pass(core, actor)
            }
            _ => Wake::Called,
        }
    }

    /// A number below `bound` when perturbation is on, else 0: which of `bound` waiters is next.
    pub(crate) fn choose(&self, bound: usize) -> usize {
        if self.options.perturb && bound > 1 { self.core.lock().scheduler.random().index(bound) } else { 0 }
    }

    pub(crate) fn sleep_until(&self, deadline: u64) {
        let actor = self.current();
        let wake = self.settle_actor(&actor);
        self.fail_on(wake);
        let wake = self.sleep_actor(&actor, deadline);
        self.fail_on(wake);
    }

    /// Sleeps until `deadline`; returns early only when the simulation failed.
    #[must_use]
    fn sleep_actor(&self, actor: &Actor, deadline: u64) -> Wake {
        loop {
            let mut core = self.core.lock();
            if core.scheduler.now() >= deadline {
                return Wake::Called;
            }
            if core.scheduler.try_advance(actor.id, deadline) {
                self.clock.store(core.scheduler.now(), Relaxed);
                return Wake::Called;
            }
            core.scheduler.wait(actor.id, Reason::Sleep, Some(deadline), std::thread::panicking());
            let wake = self.pass(core, actor);
            if matches!(wake, Wake::Failed(_)) {
                return wake;
            }
        }
    }

    /// The calling actor waits until it is woken or `deadline` comes.
    pub(crate) fn block(&self, actor: &Actor, reason: Reason, deadline: Option<u64>) -> Wake {
        let mut core = self.core.lock();
        core.scheduler.wait(actor.id, reason, deadline, std::thread::panicking());
        self.pass(core, actor)
    }

    /// Makes a waiting actor runnable. May be called by any thread.
    pub(crate) fn wake(&self, id: ActorId) {
        let mut core = self.core.lock();
        core.scheduler.wake(id);
        self.kick(core);
    }

    /// Waits until `target` has ended.
    pub(crate) fn join(&self, target: ActorId) {
        let actor = self.sync_point();
        loop {
            let mut core = self.core.lock();
            if core.scheduler.has_ended(target) {
                return;
            }
            core.scheduler.add_joiner(target, actor.id);
            core.scheduler.wait(actor.id, Reason::Join(target), None, std::thread::panicking());
            let wake = self.pass(core, &actor);
            self.core.lock().scheduler.remove_joiner(target, actor.id);
            self.fail_on(wake);
        }
    }

    pub(crate) fn has_ended(&self, target: ActorId) -> bool {
        self.core.lock().scheduler.has_ended(target)
    }

    /// Runs `f` while the calling actor takes no part in the simulation.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        struct Return<'a>(&'a Simulation, Arc<Actor>);
        impl Drop for Return<'_> {
            fn drop(&mut self) {
                let mut core = self.0.core.lock();
                core.scheduler.enter(self.1.id);
                self.0.kick(core);
                self.1.await_baton();
                self.0.set_outside(false);
            }
        }
        let actor = self.sync_point();
        self.set_outside(true);
        let mut core = self.core.lock();
        core.scheduler.leave(actor.id);
        self.kick(core);
        let _return = Return(self, actor);
        f()
    }

    fn set_outside(&self, outside: bool) {
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            if let Some(membership) = memberships.iter_mut().find(|membership| membership.simulation == self.number) {
                membership.outside = outside;
            }
        });
    }

    pub(crate) fn event_hash(&self) -> u64 {
        self.core.lock().scheduler.hash()
    }

    pub(crate) fn record(&self, label: &str, value: u64) {
        self.core.lock().scheduler.record(label, value);
    }

    pub(crate) fn live_actors(&self) -> usize {
        self.core.lock().scheduler.live()
    }

    /// If nobody holds the baton, gives it to whoever is next.
    fn kick(&self, mut core: MutexGuard<'_, SimulationState>) {
        if core.scheduler.running().is_some() {
            return;
        }
        if let Some(next) = self.dispatch(&mut core) {
            drop(core);
            next.give_baton();
        }
    }

    /// The calling actor, which no longer runs, passes the baton on and waits for it.
    fn pass<'a>(&'a self, mut core: MutexGuard<'a, SimulationState>, actor: &Actor) -> Wake {
        let next = self.dispatch(&mut core);
        if next.as_ref().is_none_or(|next| next.id != actor.id) {
            drop(core);
            if let Some(next) = next {
                next.give_baton();
            }
            actor.await_baton();
            core = self.core.lock();
        }
        core.scheduler.take_wake(actor.id)
    }

    fn dispatch(&self, core: &mut SimulationState) -> Option<Arc<Actor>> {
        let decision = core.scheduler.dispatch();
        self.clock.store(core.scheduler.now(), Relaxed);
        match decision {
            Dispatch::Run(id) => core.actors.get(&id).cloned(),
            Dispatch::Idle => None,
            Dispatch::Stuck(report) => {
                // Everyone left is unwinding already: no panic can end this, only the process can.
                eprintln!("{report}\nall of them are unwinding from panics; giving up");
                std::process::abort();
            }
        }
    }

    /// Panics if the actor was woken because nothing else could run.
    pub(crate) fn fail_on(&self, wake: Wake) {
        if let Wake::Failed(report) = wake {
            panic!("{report}");
        }
    }
}
