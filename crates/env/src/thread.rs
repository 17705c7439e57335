//! Threads: starting them, joining them, and what is left of one that panicked.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::environment::{Admission, Env};
use crate::sim::{Actor, Simulation};

/// The right to wait for a thread's end and to have its result. Dropping it lets the thread run
/// on its own.
pub struct JoinHandle<T> {
    name: Arc<str>,
    /// None for an actor of a simulation, which runs on a stack alone.
    thread: Option<std::thread::JoinHandle<()>>,
    outcome: Arc<Mutex<Option<Outcome<T>>>>,
    simulated: Option<(Arc<Simulation>, Arc<Actor>)>,
}

type Outcome<T> = Result<T, Box<dyn Any + Send>>;

impl<T: Send + 'static> JoinHandle<T> {
    pub(crate) fn spawn<F>(env: &Env, name: &str, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        match JoinHandle::try_spawn(env, name, f) {
            Ok(handle) => handle,
            Err(error) => panic!("cannot start thread {name:?}: {error}"),
        }
    }

    pub(crate) fn try_spawn<F>(env: &Env, name: &str, f: F) -> std::io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
    {
        if let Some(simulation) = env.simulation() {
            simulation.sync_point();
        }
        let admission = env.admit(name);
        let simulated = admission.actor();
        let outcome = Arc::new(Mutex::new(None));
        let wanted = Arc::downgrade(&outcome);
        let body = move |admission: Admission| {
            let _attachment = admission.attach();
            let outcome = catch_unwind(AssertUnwindSafe(f));
            // An outcome nobody wants is dropped here, where its destructor is still an actor's.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                if let Some(slot) = wanted.upgrade() {
                    *slot.lock() = Some(outcome);
                }
            }));
        };
        let thread = if simulated.is_some() && !cfg!(actors_are_threads) {
            admission.run_on_stack(body)?;
            None
        } else {
            // The system takes no name with a zero in it.
            let thread_name: String = name.chars().filter(|&c| c != '\0').collect();
            Some(std::thread::Builder::new().name(thread_name).spawn(move || body(admission))?)
        };
        Ok(JoinHandle { name: name.into(), thread, outcome, simulated })
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended and returns its result.
    ///
    /// # Errors
    /// [`Panicked`] if the thread ended by a panic.
    pub fn join(self) -> Result<T, Panicked> {
        if let Some((simulation, actor)) = &self.simulated {
            simulation.join(actor);
        }
        let ended = self.thread.map_or(Ok(()), std::thread::JoinHandle::join);
        match (ended, self.outcome.lock().take()) {
            (Ok(()), Some(Ok(value))) => Ok(value),
            (_, Some(Err(payload))) | (Err(payload), _) => Err(Panicked::new(&self.name, payload)),
            (Ok(()), None) => Err(Panicked::new(&self.name, Box::new("the thread left no result"))),
        }
    }

    /// Whether the thread has ended: joining it would not wait.
    pub fn is_finished(&self) -> bool {
        match (&self.simulated, &self.thread) {
            (Some((simulation, actor)), _) => simulation.has_ended(actor.id),
            (None, thread) => thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished),
        }
    }

    /// The thread's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A thread ended by a panic.
pub struct Panicked {
    thread: Arc<str>,
    message: String,
    // Behind a lock only so that the error can be shared between threads.
    payload: Mutex<Box<dyn Any + Send>>,
}

impl Panicked {
    fn new(thread: &Arc<str>, payload: Box<dyn Any + Send>) -> Panicked {
        let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => (*text).to_owned(),
            (_, Some(text)) => text.clone(),
            _ => "a panic without a message".to_owned(),
        };
        Panicked { thread: Arc::clone(thread), message, payload: Mutex::new(payload) }
    }

    /// The name of the thread that panicked.
    pub fn thread(&self) -> &str {
        &self.thread
    }

    /// What it said.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Goes on panicking in the calling thread.
    pub fn resume(self) -> ! {
        resume_unwind(self.payload.into_inner())
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {:?} panicked: {}", self.thread, self.message)
    }
}

impl fmt::Debug for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Panicked {}
