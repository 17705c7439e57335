//! A simulation: the scheduler and the threads it lets run, one at a time.
//!
//! Locks are taken in one order: a primitive's state and the scheduler are never held together,
//! except that the deadlock report, written under the scheduler's lock, looks at the states.
//! Between two scheduler calls nothing can interfere, because only the holder of the baton runs.

#[allow(unsafe_code)]
mod host;
mod processor;
mod scheduler;
mod waiting;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};
use std::thread::Thread;

use parking_lot::{Mutex, MutexGuard};

pub(crate) use scheduler::{ActorId, Reason, WaitPoint, Wake};
pub(crate) use waiting::{SimLock, WaitQueue};

use host::{Hosts, Place, Stack};
use processor::{Pinned, Processor};
use scheduler::{Dispatch, Scheduler};

use crate::environment::SimOptions;

/// What an actor that yields is taken to spend, so that a polling loop cannot stop the clock.
pub(crate) const YIELD_NANOS: u64 = 1_000;

/// The longest delay schedule perturbation inserts.
const PERTURB_DELAY_NANOS: u64 = 100_000;

/// The virtual clock starts at 2020-01-01T00:00:00Z.
pub(crate) const EPOCH_UNIX_NANOS: u64 = 1_577_836_800_000_000_000;

/// Who takes part in a simulation.
pub(crate) struct Actor {
    pub(crate) id: ActorId,
    pub(crate) name: Arc<str>,
    /// Processor time charged and not settled; only the actor itself writes it.
    charge: AtomicU64,
    has_baton: AtomicBool,
    /// The one it waits on, where it has one to itself. Known once it came.
    thread: Mutex<Option<Thread>>,
    /// Whether it waits on a thread: all do that were not spawned, and those that were while they cannot leave theirs. Written
    /// by the actor, which has the baton.
    has_thread: AtomicBool,
    /// Whether its stack is gone with all that was on it.
    has_left: AtomicBool,
    place: Arc<Place>,
    /// While it does not run and has no thread.
    stack: Mutex<Option<Stack>>,
}

impl Actor {
    fn give_baton(&self) {
        self.has_baton.store(true, SeqCst);
        // A thread that comes now looks for the baton after it is known.
        if let Some(thread) = &*self.thread.lock() {
            thread.unpark();
        }
    }

    /// Whether it began on a stack of its own.
    fn is_spawned(&self) -> bool {
        self.place.is_known()
    }

    /// Called by its thread alone.
    fn await_baton(&self) {
        self.thread.lock().get_or_insert_with(std::thread::current);
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
    hosts: Arc<Hosts>,
}

impl Drop for Simulation {
    /// The thread of "main" may use all processors again, if it is the one that lets go last; else when it ends.
    fn drop(&mut self) {
        self.hosts.end();
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
                simulation.hosts.end();
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

/// Exchanges what the calling thread is a member of with what is kept for an actor that comes or goes.
#[inline(never)]
fn swap_memberships(kept: &mut Vec<Membership>) {
    MEMBERSHIPS.with_borrow_mut(|memberships| std::mem::swap(memberships, kept));
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
            hosts: Hosts::new(Processor::choose()),
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
            thread: Mutex::new(None),
            has_thread: AtomicBool::new(true),
            has_left: AtomicBool::new(false),
            place: Arc::default(),
            stack: Mutex::new(None),
        });
        core.actors.insert(actor.id, Arc::clone(&actor));
        self.kick(core);
        actor
    }

    /// Gives an actor that was registered by the calling one a stack that runs `body`, which begins with `join_as`.
    ///
    /// # Errors
    /// What the operating system says when it cannot; the actor is as it was.
    pub(crate) fn run_on_stack(&self, actor: &Arc<Actor>, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        self.hosts.start()?;
        *actor.stack.lock() = Some(Stack::new(actor, body)?);
        actor.has_thread.store(false, SeqCst);
        Ok(())
    }

    /// The calling thread, or stack, becomes `actor` and waits until it has the baton.
    pub(crate) fn join_as(self: &Arc<Self>, actor: &Arc<Actor>) {
        let has_thread = actor.has_thread.load(SeqCst);
        self.add_membership(actor, if has_thread { self.hosts.processor.pin() } else { None });
        // A stack is not run before.
        if has_thread {
            actor.await_baton();
        }
    }

    #[inline(never)]
    fn add_membership(self: &Arc<Self>, actor: &Arc<Actor>, pinned: Option<Pinned>) {
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            memberships.retain(|membership| membership.alive.strong_count() > 0);
            memberships.push(Membership {
                simulation: self.number,
                alive: Arc::downgrade(self),
                actor: Arc::clone(actor),
                depth: 1,
                outside: false,
                _pinned: pinned,
            });
        });
    }

    /// Ends an announced actor whose thread will not come.
    pub(crate) fn cancel(&self, id: ActorId) {
        let mut core = self.core.lock();
        core.actors.remove(&id);
        core.scheduler.cancel(id);
        self.kick(core);
    }

    /// Whether the calling thread takes part, even if it is outside at the moment.
    #[inline(never)]
    pub(crate) fn is_member(&self) -> bool {
        MEMBERSHIPS.with_borrow(|memberships| memberships.iter().any(|membership| membership.simulation == self.number))
    }

    /// If the calling thread already takes part, counts one more attachment.
    #[inline(never)]
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
        let Some(actor) = self.take_depth() else { return };
        if !std::thread::panicking() {
            // A report has no one to go to any more: whoever is left gets its own.
            let _ = self.settle_actor(&actor);
        }
        self.remove_membership();
        let mut core = self.core.lock();
        core.actors.remove(&actor.id);
        core.scheduler.end(actor.id);
        self.kick(core);
    }

    /// The actor if that was its last attachment.
    #[inline(never)]
    fn take_depth(&self) -> Option<Arc<Actor>> {
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            let membership = memberships.iter_mut().find(|membership| membership.simulation == self.number)?;
            membership.depth -= 1;
            (membership.depth == 0).then(|| Arc::clone(&membership.actor))
        })
    }

    #[inline(never)]
    fn remove_membership(&self) {
        MEMBERSHIPS.with_borrow_mut(|memberships| {
            memberships.retain(|membership| membership.simulation != self.number);
        });
    }

    /// The calling thread's actor, or `None` if it has none or is outside.
    #[inline(never)]
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

    #[inline(never)]
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
    pub(crate) fn join(&self, target: &Actor) {
        let actor = self.sync_point();
        loop {
            let mut core = self.core.lock();
            if core.scheduler.has_ended(target.id) {
                drop(core);
                return self.hosts.await_leaving(target);
            }
            core.scheduler.add_joiner(target.id, actor.id);
            core.scheduler.wait(actor.id, Reason::Join(target.id), None, std::thread::panicking());
            let wake = self.pass(core, &actor);
            self.core.lock().scheduler.remove_joiner(target.id, actor.id);
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
        self.keep_thread(&actor);
        self.set_outside(true);
        let mut core = self.core.lock();
        core.scheduler.leave(actor.id);
        self.kick(core);
        let _return = Return(self, actor);
        f()
    }

    #[inline(never)]
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
            self.give(next);
        }
    }

    fn give(&self, next: Arc<Actor>) {
        if next.has_thread.load(SeqCst) {
            next.give_baton();
        } else {
            self.hosts.give(next);
        }
    }

    /// The calling actor, which no longer runs, passes the baton on and waits for it.
    fn pass<'a>(&'a self, mut core: MutexGuard<'a, SimulationState>, actor: &Actor) -> Wake {
        let next = self.dispatch(&mut core);
        if next.as_ref().is_none_or(|next| next.id != actor.id) {
            // Nobody can wake the actor before the lock is free.
            let leaves = self.leaves_thread(actor);
            drop(core);
            if let Some(next) = next {
                self.give(next);
            }
            if leaves {
                actor.place.leave();
            } else {
                actor.await_baton();
            }
            core = self.core.lock();
        }
        core.scheduler.take_wake(actor.id)
    }

    /// Whether the calling actor waits on its stack alone, which it can if it was spawned and does not unwind.
    fn leaves_thread(&self, actor: &Actor) -> bool {
        if !actor.is_spawned() {
            return false;
        }
        if std::thread::panicking() {
            self.keep_thread(actor);
            return false;
        }
        actor.has_thread.store(false, SeqCst);
        true
    }

    /// The calling actor waits on the thread it runs on, which is no host of others any more.
    fn keep_thread(&self, actor: &Actor) {
        if !actor.has_thread.load(SeqCst) {
            self.hosts.keep_thread();
            *actor.thread.lock() = Some(std::thread::current());
            actor.has_thread.store(true, SeqCst);
        }
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
