//! Where spawned actors run: each on a stack of its own, all of them on one thread, the *host*.
//!
//! Actors take turns by the million. From one stack to another that is a few dozen instructions; from one thread to another it
//! is the operating system's work, and took more than half of what a simulation costs.
//!
//! An actor leaves its stack lying while it waits, except one that unwinds from a panic (the thread counts panics) or does
//! something outside of the simulation: it keeps the thread it is on until it waits again without, and the others get a new host.

use super::{Actor, Membership, swap_memberships};
use crate::sim::processor::Processor;
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Relaxed, SeqCst},
};

/// What a thread of the standard library has.
const STACK_BYTES: usize = 2 << 20;

/// The hosts of one simulation.
pub(super) struct Hosts {
    pub(super) processor: Processor,
    state: Mutex<HostState>,
    changed: Condvar,
}

struct HostState {
    /// That of the host that runs actors; those before it keep their threads for one actor each.
    generation: u64,
    /// Whether that one has a thread.
    is_there: bool,
    /// The actor that has the baton and is to be gone on with.
    next: Option<Arc<Actor>>,
    ended: bool,
}

impl Hosts {
    pub(super) fn new(processor: Processor) -> Arc<Hosts> {
        let state = HostState { generation: 0, is_there: false, next: None, ended: false };
        Arc::new(Hosts { processor, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Starts a host if there is none.
    ///
    /// # Errors
    /// What the operating system says when it cannot start a thread.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.is_there {
            return Ok(());
        }
        let (hosts, generation) = (Arc::clone(self), state.generation);
        std::thread::Builder::new().name("actors".to_owned()).spawn(move || hosts.run(generation))?;
        state.is_there = true;
        Ok(())
    }

    /// Lets an actor that waits for it and has no thread go on.
    pub(super) fn give(&self, actor: Arc<Actor>) {
        self.state.lock().next = Some(actor);
        // Where an actor of this host hands over, the host sees to it next and nobody waits.
        self.changed.notify_all();
    }

    /// The thread of the calling actor runs no other one any more.
    pub(super) fn keep_thread(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.generation += 1;
        state.is_there = false;
        drop(state);
        if let Err(error) = self.start() {
            // Nobody else would ever run, and a panic needs others to run.
            eprintln!("cannot start a thread for the actors of a simulation: {error}; giving up");
            std::process::abort();
        }
    }

    /// Waits, in real time, until an actor that has ended has let go of all it had.
    pub(super) fn await_leaving(&self, actor: &Actor) {
        if actor.is_spawned() && !actor.has_left.load(SeqCst) {
            let mut state = self.state.lock();
            while !actor.has_left.load(SeqCst) && !state.ended {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Nobody runs any more: the threads end.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    fn run(self: Arc<Self>, generation: u64) {
        let _pinned = self.processor.pin();
        while let Some((actor, mut stack)) = self.await_actor(generation) {
            stack.go_on();
            if stack.has_ended() {
                drop(stack);
                let _state = self.state.lock();
                actor.has_left.store(true, SeqCst);
                self.changed.notify_all();
                continue;
            }
            let state = self.state.lock();
            *actor.stack.lock() = Some(stack);
            if state.generation != generation {
                self.changed.notify_all();
            }
        }
        // What is thread-local here may still be looked at by an actor that was here before: see `Stack`.
        let mut state = self.state.lock();
        while !state.ended {
            self.changed.wait(&mut state);
        }
    }

    /// None when it is not for this host to run actors any more.
    fn await_actor(&self, generation: u64) -> Option<(Arc<Actor>, Stack)> {
        let mut state = self.state.lock();
        loop {
            if state.generation != generation || state.ended {
                return None;
            }
            if let Some(actor) = state.next.take() {
                let stack = actor.stack.lock().take();
                match stack {
                    Some(stack) => return Some((actor, stack)),
                    // The host before has not put it down yet.
                    None => state.next = Some(actor),
                }
            }
            self.changed.wait(&mut state);
        }
    }
}

/// The stack of an actor that has not ended.
///
/// One that is never gone on with keeps its memory, as a thread would that is parked for ever.
pub(super) struct Stack {
    coroutine: ManuallyDrop<Coroutine<(), (), ()>>,
    /// Of which simulations the actor is a member, while it does not run.
    memberships: Vec<Membership>,
}

// SAFETY: a stack may hold what must stay on its thread, and goes on on another one only when an actor keeps the thread it ran
// on. Then guards of locks, which are not to be sent, are released by another thread: parking_lot's do not mind without its
// feature `deadlock_detection`, nor do the guards of this crate, which know their actor. References to thread-local
// values: a thread that actors ran on does not end before the simulation does (`Hosts::run`), and of all threads of a simulation
// one runs at a time, with the scheduler's lock between one and the next, so nobody else uses the value meanwhile.
// `a_stack_goes_on_on_another_thread` is the test.
unsafe impl Send for Stack {}

impl Stack {
    /// A stack that will run `body` for `actor`.
    ///
    /// # Errors
    /// What the operating system says when it has no memory for one.
    pub(super) fn new(actor: &Arc<Actor>, body: Box<dyn FnOnce() + Send>) -> io::Result<Stack> {
        let place = Arc::clone(&actor.place);
        let run = move |yielder: &Yielder<(), ()>, ()| {
            place.0.store(ptr::from_ref(yielder).cast_mut(), Relaxed);
            body();
        };
        let coroutine = ManuallyDrop::new(Coroutine::with_stack(DefaultStack::new(STACK_BYTES)?, run));
        Ok(Stack { coroutine, memberships: Vec::new() })
    }

    /// Runs the actor until it waits or has ended.
    fn go_on(&mut self) {
        swap_memberships(&mut self.memberships);
        self.coroutine.resume(());
        swap_memberships(&mut self.memberships);
    }

    fn has_ended(&self) -> bool {
        self.coroutine.done()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.has_ended() {
            // SAFETY: dropped once, here, and not used again. One that has not ended would be unwound instead, by actors that
            // may not run any more.
            unsafe { ManuallyDrop::drop(&mut self.coroutine) }
        }
    }
}

/// Where an actor can leave its stack.
#[derive(Default)]
pub(super) struct Place(AtomicPtr<Yielder<(), ()>>);

impl Place {
    pub(super) fn is_known(&self) -> bool {
        !self.0.load(Relaxed).is_null()
    }

    /// The calling actor, whose place this is, gives the thread back to its host until it is gone on with.
    pub(super) fn leave(&self) {
        // SAFETY: set when the stack began to run, to what lives as long as it does; the caller runs on it.
        let yielder = unsafe { &*self.0.load(Relaxed) };
        yielder.suspend(());
    }
}
