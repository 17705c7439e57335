//! Who runs next: the pure heart of a simulation.
//!
//! No threads, no locks, no clock of its own: a state and the transitions of it. The threads
//! around it are in the parent module.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::instant::Instant;
use crate::random::{Random, hash_name, mix};

/// Maximum number of dispatches at one moment of virtual time. Past it the actors are taken to wake each other
/// in a loop that no timer can end (a livelock). A workload in which nothing takes time stays far below.
pub(crate) const DISPATCHES_AT_ONE_MOMENT_MAX: u64 = 1 << 23;

/// An actor's number, in order of registration; never used twice in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ActorId(pub(crate) u32);

/// Something that can be waited for, as the deadlock report sees it.
pub(crate) trait WaitPoint: Send + Sync {
    /// What the waiter does, for example `waits for mutex "manifest"`.
    fn describe(&self, f: &mut dyn fmt::Write) -> fmt::Result;
    /// Who would have to act first, if that is known.
    fn holders(&self) -> Vec<ActorId>;
}

/// Why an actor waits.
#[derive(Clone)]
pub(crate) enum Reason {
    Sleep,
    Join(ActorId),
    Point(Arc<dyn WaitPoint>),
}

/// Why an actor runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// Someone woke it.
    Called,
    /// Its deadline came.
    Timeout,
    /// Nothing else could ever run; the text says who waits for what.
    Failed(Arc<str>),
}

/// What `dispatch` decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// This actor holds the baton now.
    Run(ActorId),
    /// Nobody can run, but a thread outside may come back.
    Idle,
    /// Nobody can run and everyone left is already unwinding from a panic.
    Stuck(String),
}

enum State {
    Running,
    Runnable,
    Waiting { reason: Reason, deadline: Option<u64>, unwinding: bool },
    Outside,
}

struct Record {
    name: Arc<str>,
    state: State,
    wake: Wake,
    /// A wake that came before the wait it was for (only from threads outside).
    called_early: bool,
    joiners: Vec<ActorId>,
}

/// What kind of event the running hash takes in.
#[derive(Clone, Copy)]
enum Event {
    Register = 1,
    Run = 2,
    Advance = 3,
    End = 4,
    Leave = 5,
    Fail = 6,
    Record = 7,
}

/// The set of actors, the timers and the virtual clock of one simulation.
pub(crate) struct Scheduler {
    now: u64,
    seed: u64,
    records: Vec<Option<Record>>,
    runnable: Vec<ActorId>,
    timers: BTreeSet<(u64, ActorId)>,
    running: Option<ActorId>,
    outside: usize,
    random: Random,
    hash: u64,
    /// Dispatches since the clock last moved.
    dispatches_at_now: u64,
    time_limit: Option<u64>,
    /// When each modelled processor is free again.
    processors: Vec<u64>,
    settled_total: u64,
}

impl Scheduler {
    pub(crate) fn new(seed: u64, processors: usize, time_limit: Option<u64>) -> Scheduler {
        Scheduler {
            now: 0,
            seed,
            records: Vec::new(),
            runnable: Vec::new(),
            timers: BTreeSet::new(),
            running: None,
            outside: 0,
            random: Random::named(seed, "varve_env::scheduler"),
            hash: mix(seed),
            dispatches_at_now: 0,
            time_limit,
            processors: vec![0; processors.max(1)],
            settled_total: 0,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn running(&self) -> Option<ActorId> {
        self.running
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn settled_total(&self) -> u64 {
        self.settled_total
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    pub(crate) fn others_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// Actors that have not ended.
    pub(crate) fn live(&self) -> usize {
        self.records.iter().flatten().count()
    }

    pub(crate) fn name(&self, id: ActorId) -> &str {
        self.records.get(id.0 as usize).and_then(Option::as_ref).map_or("ended actor", |r| &r.name)
    }

    fn event(&mut self, event: Event, first: u64, second: u64) {
        let mut hash = mix(self.hash ^ (event as u64) ^ self.now.rotate_left(32));
        hash = mix(hash ^ first);
        self.hash = mix(hash ^ second.rotate_left(32));
    }

    /// Mixes an event of the layers above into the hash.
    pub(crate) fn record(&mut self, label: &str, value: u64) {
        self.event(Event::Record, hash_name(label), value);
    }

    fn get(&mut self, id: ActorId) -> &mut Record {
        match self.records.get_mut(id.0 as usize).and_then(Option::as_mut) {
            Some(record) => record,
            None => panic!("actor {} of this simulation has already ended", id.0),
        }
    }

    /// Adds an actor that may run from now on.
    pub(crate) fn register(&mut self, name: Arc<str>) -> ActorId {
        let id = ActorId(u32::try_from(self.records.len()).expect("fewer than 2^32 actors"));
        self.event(Event::Register, u64::from(id.0), hash_name(&name));
        self.records.push(Some(Record {
            name,
            state: State::Runnable,
            wake: Wake::Called,
            called_early: false,
            joiners: Vec::new(),
        }));
        self.runnable.push(id);
        id
    }

    /// The running actor stops running until it is woken or `deadline` comes.
    pub(crate) fn wait(&mut self, id: ActorId, reason: Reason, deadline: Option<u64>, unwinding: bool) {
        debug_assert_eq!(self.running, Some(id));
        self.running = None;
        let record = self.get(id);
        if std::mem::take(&mut record.called_early) {
            record.state = State::Runnable;
            record.wake = Wake::Called;
            self.runnable.push(id);
            return;
        }
        record.state = State::Waiting { reason, deadline, unwinding };
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, id));
        }
    }

    /// The running actor stops running but could go on at once.
    pub(crate) fn yield_running(&mut self, id: ActorId) {
        debug_assert_eq!(self.running, Some(id));
        self.running = None;
        let record = self.get(id);
        record.state = State::Runnable;
        record.wake = Wake::Called;
        self.runnable.push(id);
    }

    /// The running actor leaves; it will `enter` again.
    pub(crate) fn leave(&mut self, id: ActorId) {
        debug_assert_eq!(self.running, Some(id));
        self.running = None;
        self.outside += 1;
        self.event(Event::Leave, u64::from(id.0), 0);
        self.get(id).state = State::Outside;
    }

    /// An actor that left may run again.
    pub(crate) fn enter(&mut self, id: ActorId) {
        self.outside -= 1;
        let record = self.get(id);
        record.state = State::Runnable;
        record.wake = Wake::Called;
        self.runnable.push(id);
    }

    /// The running actor is gone; who joins it may run.
    pub(crate) fn end(&mut self, id: ActorId) {
        debug_assert_eq!(self.running, Some(id));
        self.running = None;
        self.event(Event::End, u64::from(id.0), 0);
        let joiners = std::mem::take(&mut self.get(id).joiners);
        self.records[id.0 as usize] = None;
        for joiner in joiners {
            self.wake(joiner);
        }
    }

    /// Ends an actor that never ran, whether or not it holds the baton.
    pub(crate) fn cancel(&mut self, id: ActorId) {
        self.runnable.retain(|&runnable| runnable != id);
        let runs = self.running.replace(id);
        self.end(id);
        self.running = runs.filter(|&running| running != id);
    }

    pub(crate) fn has_ended(&self, id: ActorId) -> bool {
        self.records.get(id.0 as usize).is_none_or(Option::is_none)
    }

    /// `joiner` is to be woken when `target` ends.
    pub(crate) fn add_joiner(&mut self, target: ActorId, joiner: ActorId) {
        self.get(target).joiners.push(joiner);
    }

    pub(crate) fn remove_joiner(&mut self, target: ActorId, joiner: ActorId) {
        if let Some(Some(record)) = self.records.get_mut(target.0 as usize) {
            record.joiners.retain(|&id| id != joiner);
        }
    }

    /// Makes a waiting actor runnable. One that already is stays as it is.
    pub(crate) fn wake(&mut self, id: ActorId) {
        let Some(Some(record)) = self.records.get_mut(id.0 as usize) else {
            return;
        };
        match record.state {
            State::Waiting { deadline, .. } => {
                record.state = State::Runnable;
                record.wake = Wake::Called;
                if let Some(deadline) = deadline {
                    self.timers.remove(&(deadline, id));
                }
                self.runnable.push(id);
            }
            State::Running => record.called_early = true,
            State::Runnable | State::Outside => {}
        }
    }

    /// Why the actor that now runs was woken.
    pub(crate) fn take_wake(&mut self, id: ActorId) -> Wake {
        std::mem::replace(&mut self.get(id).wake, Wake::Called)
    }

    /// The fast path of sleeping: if nobody else could run before `deadline`, the clock moves
    /// there and the running actor goes on. False if the slow path must be taken.
    pub(crate) fn try_advance(&mut self, id: ActorId, deadline: u64) -> bool {
        if !self.runnable.is_empty()
            || self.timers.first().is_some_and(|&(earliest, _)| earliest <= deadline)
            || self.time_limit.is_some_and(|limit| deadline > limit)
        {
            return false;
        }
        self.advance(deadline);
        self.event(Event::Advance, u64::from(id.0), 0);
        true
    }

    fn advance(&mut self, moment: u64) {
        if moment > self.now {
            (self.now, self.dispatches_at_now) = (moment, 0);
        }
    }

    /// Gives `nanos` of processor time to the caller, starting when the first of the modelled
    /// processors is free, and returns when it will be used up.
    pub(crate) fn reserve_processor(&mut self, nanos: u64) -> u64 {
        self.settled_total = self.settled_total.saturating_add(nanos);
        let now = self.now;
        let Some(free) = self.processors.iter_mut().min() else {
            return now.saturating_add(nanos);
        };
        *free = now.max(*free).saturating_add(nanos);
        *free
    }

    /// Chooses who runs next; call when nobody runs.
    pub(crate) fn dispatch(&mut self) -> Dispatch {
        debug_assert_eq!(self.running, None);
        self.dispatches_at_now += 1;
        if self.dispatches_at_now > DISPATCHES_AT_ONE_MOMENT_MAX {
            // Actors that unwind wait too: each later dispatch fails those that begin to wait.
            self.fail("livelock: actors wake each other and the clock stands still");
        }
        loop {
            if !self.runnable.is_empty() {
                let index = match self.runnable.len() {
                    1 => 0,
                    len => self.random.index(len),
                };
                let id = self.runnable.swap_remove(index);
                self.running = Some(id);
                self.get(id).state = State::Running;
                self.event(Event::Run, u64::from(id.0), 0);
                return Dispatch::Run(id);
            }
            if let Some(&(deadline, _)) = self.timers.first() {
                if let Some(limit) = self.time_limit.filter(|&limit| deadline > limit) {
                    // Unwinding may itself need time.
                    self.time_limit = None;
                    let headline = format!("the time limit of {} passed", Instant::from_nanos(limit));
                    self.fail(&headline);
                    continue;
                }
                self.advance(deadline);
                while let Some(&(next, id)) = self.timers.first() {
                    if next > deadline {
                        break;
                    }
                    self.timers.pop_first();
                    let record = self.get(id);
                    record.state = State::Runnable;
                    record.wake = Wake::Timeout;
                    self.runnable.push(id);
                }
                continue;
            }
            if self.outside > 0 || self.live() == 0 {
                return Dispatch::Idle;
            }
            let headline = "deadlock: every actor waits and no timer is set";
            if !self.fail(headline) {
                return Dispatch::Stuck(self.report(headline));
            }
        }
    }

    /// Wakes every waiting actor that can still panic, with a report. False if there was none.
    fn fail(&mut self, headline: &str) -> bool {
        let report: Arc<str> = self.report(headline).into();
        let mut woken = Vec::new();
        for (index, record) in self.records.iter_mut().enumerate() {
            let Some(record) = record else { continue };
            if let State::Waiting { deadline, unwinding: false, .. } = record.state {
                let id = ActorId(index as u32);
                record.state = State::Runnable;
                record.wake = Wake::Failed(Arc::clone(&report));
                woken.push((id, deadline));
            }
        }
        for &(id, deadline) in &woken {
            if let Some(deadline) = deadline {
                self.timers.remove(&(deadline, id));
            }
            self.runnable.push(id);
        }
        self.event(Event::Fail, woken.len() as u64, 0);
        !woken.is_empty()
    }

    /// Who waits for what, one line each.
    pub(crate) fn report(&self, headline: &str) -> String {
        let mut text = format!("{headline} (seed {}, virtual time {})", self.seed, Instant::from_nanos(self.now));
        for (index, record) in self.records.iter().enumerate() {
            let Some(record) = record else { continue };
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {} (actor {index}): ", record.name);
            let _ = match &record.state {
                State::Running => write!(text, "runs"),
                State::Runnable => write!(text, "could run"),
                State::Outside => write!(text, "is outside the simulation"),
                State::Waiting { reason, deadline, unwinding } => {
                    let _ = match reason {
                        Reason::Sleep => write!(text, "sleeps"),
                        Reason::Join(target) => write!(text, "joins {}", self.name(*target)),
                        Reason::Point(point) => point.describe(&mut text).and_then(|()| {
                            let holders = point.holders();
                            let names: Vec<&str> = holders.iter().map(|&id| self.name(id)).collect();
                            if names.is_empty() { Ok(()) } else { write!(text, ", held by {}", names.join(", ")) }
                        }),
                    };
                    if let Some(deadline) = deadline {
                        let _ = write!(text, " until {}", Instant::from_nanos(*deadline));
                    }
                    if *unwinding { write!(text, " while unwinding from a panic") } else { Ok(()) }
                }
            };
        }
        text
    }
}

#[cfg(test)]
mod tests;
