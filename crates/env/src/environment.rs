//! The handle everything takes.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::instant::{Instant, duration_nanos};
use crate::random::Random;
use crate::sim::{self, Simulation};
use crate::thread::JoinHandle;

/// How a simulation is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Decides every tie and every random stream.
    pub seed: u64,
    /// Schedule perturbation: at locks, unlocks, notifications and sends other actors that could
    /// run may come first, now and then a delay of up to 100 us is inserted, and waiters are woken
    /// in any order. For tests that look for orders nobody thought of; it distorts measured times.
    pub perturb: bool,
    /// How many processors the modelled machine has: what [`Env::parallelism`] says, and how
    /// many actors can turn charged processor time into virtual time at once. Further ones wait for
    /// the first that is free.
    pub processors: usize,
    /// A virtual time after which every waiting actor panics with a report; for tests of code that
    /// polls for ever instead of coming to a stop.
    pub time_limit: Option<Duration>,
}

impl Default for SimOptions {
    /// Seed 0, no perturbation, 8 processors, no time limit.
    fn default() -> SimOptions {
        SimOptions { seed: 0, perturb: false, processors: 8, time_limit: None }
    }
}

/// Time, threads and randomness of one world, real or simulated.
///
/// Cheap to clone; all clones are the same world. `Send` and `Sync`.
///
/// # In a simulation
/// Every method that reads or spends time, and every primitive made from the env, must be
/// called by an *actor*: the thread that called [`Env::sim`] (it is the actor "main"), a
/// thread started by [`Env::spawn`], or one adopted by [`Env::attach`] or [`Env::admit`]. Other
/// threads get a panic that says so. Actors must not wait for each other by other means than
/// this crate's (a `std` join of a foreign thread goes inside [`Env::outside`]).
///
/// # The end of a simulation
/// Other actors run only while the actor "main" waits in this crate. When main stops calling it,
/// for example because its thread ends, the simulation stands still: actors that have not ended
/// stay parked for ever and never run again, their threads do not keep the process from exiting,
/// and their stacks are not unwound; a thread that tries to attach after main's thread has ended
/// gets a panic. A simulation ends cleanly by joining what it spawned;
/// [`Env::live_actors`] is 1 then.
#[derive(Clone)]
pub struct Env {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Real(Arc<Real>),
    Sim(Arc<Simulation>),
}

struct Real {
    begin: std::time::Instant,
    seed: u64,
}

impl Env {
    /// The real world. Time zero is now; the seed is drawn from the operating system.
    pub fn real() -> Env {
        use std::hash::{BuildHasher, Hasher};
        let seed = std::hash::RandomState::new().build_hasher().finish();
        Env { kind: Kind::Real(Arc::new(Real { begin: std::time::Instant::now(), seed })) }
    }

    /// A simulated world in which everything follows from `seed`. The calling thread becomes the
    /// actor "main" and runs.
    pub fn sim(seed: u64) -> Env {
        Env::sim_with(SimOptions { seed, ..SimOptions::default() })
    }

    /// A simulated world set up by `options`. The calling thread becomes the actor "main" and runs.
    pub fn sim_with(options: SimOptions) -> Env {
        Env { kind: Kind::Sim(Simulation::begin(options)) }
    }

    pub(crate) fn simulation(&self) -> Option<&Arc<Simulation>> {
        match &self.kind {
            Kind::Real(_) => None,
            Kind::Sim(simulation) => Some(simulation),
        }
    }

    /// Time zero of a real env.
    pub(crate) fn begin(&self) -> std::time::Instant {
        match &self.kind {
            Kind::Real(real) => real.begin,
            Kind::Sim(_) => unreachable!("a simulation has no real time zero"),
        }
    }

    /// Whether time is virtual.
    #[inline]
    pub fn is_virtual(&self) -> bool {
        matches!(self.kind, Kind::Sim(_))
    }

    /// The time. In a simulation it includes what the calling actor has charged and not yet settled.
    #[inline]
    pub fn now(&self) -> Instant {
        match &self.kind {
            Kind::Real(real) => Instant::ZERO + real.begin.elapsed(),
            Kind::Sim(simulation) => Instant::from_nanos(simulation.now_nanos()),
        }
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z, for humans to read and for nothing to depend on. A
    /// simulation begins at 2020-01-01T00:00:00Z.
    pub fn wall_clock_unix_nanos(&self) -> u64 {
        match &self.kind {
            Kind::Real(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, duration_nanos),
            Kind::Sim(simulation) => sim::EPOCH_UNIX_NANOS.saturating_add(simulation.now_nanos()),
        }
    }

    /// Waits until `duration` has passed. Zero returns at once, without letting others run.
    pub fn sleep(&self, duration: Duration) {
        match &self.kind {
            Kind::Real(_) => std::thread::sleep(duration),
            Kind::Sim(_) => self.sleep_until(self.now() + duration),
        }
    }

    /// Waits until `deadline`. One that has passed returns at once, without letting others run.
    pub fn sleep_until(&self, deadline: Instant) {
        match &self.kind {
            Kind::Real(_) => std::thread::sleep(deadline - self.now()),
            Kind::Sim(simulation) => simulation.sleep_until(deadline.as_nanos()),
        }
    }

    /// Lets others run. In a simulation it costs 1 us of virtual time, so that a loop that polls
    /// makes time pass.
    pub fn yield_now(&self) {
        match &self.kind {
            Kind::Real(_) => std::thread::yield_now(),
            Kind::Sim(_) => self.sleep(Duration::from_nanos(sim::YIELD_NANOS)),
        }
    }

    /// Starts a thread called `name` that runs `f`. Dropping the handle lets it run on its own.
    ///
    /// # Panics
    /// If the operating system cannot start a thread.
    pub fn spawn<T, F>(&self, name: &str, f: F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        JoinHandle::spawn(self, name, f)
    }

    /// [`Env::spawn`] for as many threads as a user asks for, which may be more than there can be.
    ///
    /// # Errors
    /// What the operating system says when it cannot start one; `f` was not run.
    pub fn try_spawn<T, F>(&self, name: &str, f: F) -> std::io::Result<JoinHandle<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        JoinHandle::try_spawn(self, name, f)
    }

    /// Makes the calling thread, born elsewhere, an actor called `name` until the attachment is
    /// dropped; waits for the baton. A thread that already is one stays what it is. Nothing happens
    /// in a real env.
    ///
    /// When the thread arrives is not up to the seed. Where the run must repeat, or where the others
    /// may all be waiting for it meanwhile, announce the thread with [`Env::admit`].
    pub fn attach(&self, name: &str) -> Attachment {
        match &self.kind {
            Kind::Sim(simulation) if simulation.deepen() => Attachment::to(Some(simulation)),
            _ => self.admit(name).attach(),
        }
    }

    /// Announces an actor called `name` whose thread will come from elsewhere: the simulation takes
    /// it as there from now on, and waits for its thread when it gets the baton. This makes the run repeatable
    /// with foreign threads. Called by an actor.
    ///
    /// An admission that is dropped unused ends the actor.
    pub fn admit(&self, name: &str) -> Admission {
        let simulation = self.simulation();
        Admission { simulation: simulation.map(|simulation| (Arc::clone(simulation), simulation.register(name))) }
    }

    /// Runs `f` while the calling actor takes no part in the simulation: other actors run and time
    /// passes meanwhile. For waiting for what the simulation does not know, such as the end of
    /// a foreign thread. `f` must not use this env. How much of the others' work happens meanwhile
    /// is not up to the seed. In a real env it just runs.
    pub fn outside<T, F: FnOnce() -> T + Send>(&self, f: F) -> T {
        match &self.kind {
            Kind::Real(_) => f(),
            Kind::Sim(simulation) => simulation.outside(f),
        }
    }

    /// Accounts `cpu_nanos` of processor time to the calling actor. It becomes virtual time at the
    /// next [`settle`](Env::settle), which every wait, lock, notification, send, spawn and join
    /// does by itself. Costs a few nanoseconds; nothing in a real env.
    #[inline]
    pub fn charge(&self, cpu_nanos: u64) {
        if let Kind::Sim(simulation) = &self.kind {
            simulation.charge(cpu_nanos);
        }
    }

    /// Turns what the calling actor has charged into virtual time: waits for a free processor
    /// of the modelled machine and uses it for as long.
    #[inline]
    pub fn settle(&self) {
        if let Kind::Sim(simulation) = &self.kind {
            simulation.settle();
        }
    }

    /// Processor time charged by all actors since the env began, in nanoseconds; 0 in a real env.
    pub fn charged_total_nanos(&self) -> u64 {
        self.simulation().map_or(0, |simulation| simulation.charged_total())
    }

    /// Processor time used so far, in nanoseconds: in a real env, user and system time of all threads
    /// of this process (`None` where the system does not count it); in a simulation, what was charged.
    /// For measurements; nothing may depend on it.
    pub fn process_cpu_nanos(&self) -> Option<u64> {
        if self.is_virtual() {
            return Some(self.charged_total_nanos());
        }
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(seconds.checked_mul(1_000_000_000)? + u64::try_from(time.tv_nsec).ok()?)
    }

    /// The stream of random numbers called `stream`, from its beginning. The same seed and name give
    /// the same numbers; other names are independent.
    pub fn random(&self, stream: &str) -> Random {
        Random::named(self.seed(), stream)
    }

    /// The seed everything random in this env follows from.
    pub fn seed(&self) -> u64 {
        match &self.kind {
            Kind::Real(real) => real.seed,
            Kind::Sim(simulation) => simulation.options.seed,
        }
    }

    /// How many processors there are: a hint for how many threads to start.
    pub fn parallelism(&self) -> usize {
        match &self.kind {
            Kind::Real(_) => std::thread::available_parallelism().map_or(1, usize::from),
            Kind::Sim(simulation) => simulation.options.processors.max(1),
        }
    }

    /// A running hash of everything that was scheduled (when, whom, what kind of event) and
    /// [recorded](Env::record). Two runs of one seed agree on it; 0 in a real env.
    pub fn event_hash(&self) -> u64 {
        self.simulation().map_or(0, |simulation| simulation.event_hash())
    }

    /// Mixes an event of the caller's into [`event_hash`](Env::event_hash).
    pub fn record(&self, label: &str, value: u64) {
        if let Some(simulation) = self.simulation() {
            simulation.record(label, value);
        }
    }

    /// Whether schedule perturbation is on.
    pub fn perturb(&self) -> bool {
        self.simulation().is_some_and(|simulation| simulation.options.perturb)
    }

    /// Actors that have not ended, the caller among them: 1 after everything was joined; 0 in a
    /// real env.
    pub fn live_actors(&self) -> usize {
        self.simulation().map_or(0, |simulation| simulation.live_actors())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Real(_) => f.write_str("Env::real"),
            Kind::Sim(simulation) => write!(f, "Env::sim({})", simulation.options.seed),
        }
    }
}

/// An announced actor whose thread has not come yet; see [`Env::admit`].
pub struct Admission {
    simulation: Option<(Arc<Simulation>, Arc<sim::Actor>)>,
}

impl Admission {
    /// The simulation and the actor in it.
    pub(crate) fn actor(&self) -> Option<(Arc<Simulation>, Arc<sim::Actor>)> {
        self.simulation.clone()
    }

    /// The announced actor runs `body`, which attaches, on a stack of its own and not on a thread.
    ///
    /// # Errors
    /// What the operating system says when it has no memory for the stack or no thread for all of them; `body` was not run.
    pub(crate) fn run_on_stack(self, body: impl FnOnce(Admission) + Send + 'static) -> std::io::Result<()> {
        let Some((simulation, actor)) = self.simulation.clone() else { return Ok(()) };
        simulation.run_on_stack(&actor, Box::new(move || body(self)))
    }

    /// The calling thread becomes the announced actor and waits for the baton.
    ///
    /// # Panics
    /// If the thread already is an actor of this simulation.
    pub fn attach(mut self) -> Attachment {
        if let Some((simulation, actor)) = &self.simulation {
            assert!(
                !simulation.is_member(),
                "the thread of {:?} is another actor of the simulation already",
                actor.name
            );
        }
        match self.simulation.take() {
            Some((simulation, actor)) => {
                simulation.join_as(&actor);
                Attachment::to(Some(&simulation))
            }
            None => Attachment::to(None),
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some((simulation, actor)) = self.simulation.take() {
            simulation.cancel(actor.id);
        }
    }
}

/// A thread's part in a simulation; see [`Env::attach`]. Dropping it ends the actor, which lets
/// another run. It stays on its thread.
#[must_use = "the thread is an actor only as long as this lives"]
pub struct Attachment {
    simulation: Option<Arc<Simulation>>,
    stays_on_thread: PhantomData<*const ()>,
}

impl Attachment {
    fn to(simulation: Option<&Arc<Simulation>>) -> Attachment {
        Attachment { simulation: simulation.cloned(), stays_on_thread: PhantomData }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Some(simulation) = &self.simulation {
            simulation.detach();
        }
    }
}
