//! Faults as data: what goes wrong, when, and how.

mod bytes;
mod device;
mod directory;
#[cfg(test)]
mod tests;
mod unsynced;
mod zones;

pub(crate) use bytes::FaultBytes;
pub use device::FaultDevice;
pub use directory::FaultDirectory;
pub(crate) use zones::{FaultZones, WornZones};

use crate::context::{IoClass, IoContext};
use crate::error::{MediaError, Operation};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use varve_env::{Env, Random};

/// What the failing call says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultError {
    /// The device failed (EIO).
    Io,
    /// No space is left (ENOSPC).
    NoSpace,
    /// The sector cannot be read.
    Unreadable,
    /// The medium became read-only (EROFS).
    ReadOnly,
    /// A signal came in between (EINTR): trying again helps.
    Interrupted,
}

impl FaultError {
    /// Every error.
    pub const ALL: [FaultError; 5] =
        [FaultError::Io, FaultError::NoSpace, FaultError::Unreadable, FaultError::ReadOnly, FaultError::Interrupted];

    fn at(self, device: &str, operation: Operation, offset_bytes: u64, length_bytes: u64) -> MediaError {
        let failed =
            |kind| MediaError::io(device, operation, offset_bytes, std::io::Error::new(kind, "injected fault"));
        match self {
            FaultError::Io => failed(std::io::ErrorKind::Other),
            FaultError::ReadOnly => failed(std::io::ErrorKind::ReadOnlyFilesystem),
            FaultError::Interrupted => failed(std::io::ErrorKind::Interrupted),
            FaultError::Unreadable => MediaError::Unreadable { device: device.to_owned(), offset_bytes },
            FaultError::NoSpace => {
                MediaError::NoSpace { device: device.to_owned(), operation, offset_bytes, length_bytes }
            }
        }
    }
}

/// What goes wrong. An effect that means nothing to the operation it meets (flipped bits in a
/// rename) does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultEffect {
    /// An error, and nothing is done.
    Fail(FaultError),
    /// Everything is done, and still an error comes: the caller cannot know.
    FailAfter(FaultError),
    /// Some sectors of a write or discard are done and others not (torn), then an error.
    FailPartly(FaultError),
    /// A sync fails, and what was written since the last good one reads as before it: the kernel
    /// dropped the dirty pages, and the next sync succeeds without them. Writes are remembered from
    /// the moment the plan has this effect, at the cost of reading what they and discards replace; on
    /// other operations it is [`FaultEffect::Fail`].
    FailDroppingUnsynced(FaultError),
    /// A read of a file returns fewer bytes than asked for and there are, without an error.
    ShortRead,
    /// This many random bits are flipped in the data read, or in what is written; no error.
    FlipBits(u32),
    /// A read, write or discard goes to another place of the device or file; no error.
    Misdirect,
    /// A write, discard, sync or change of names is not done; no error.
    Lose,
    /// The call takes this much longer, by the env's clock.
    Stall(Duration),
    /// An error, and nothing is done; it comes after this time, in which other calls go on.
    FailLate(Duration, FaultError),
    /// A sync that drops unsynced writes at once, as [`FaultEffect::FailDroppingUnsynced`], and returns its error only
    /// after this time, in which other calls, syncs among them, go on and succeed. On other operations it is
    /// [`FaultEffect::FailLate`].
    FailLateDroppingUnsynced(Duration, FaultError),
    /// The zone of the call's first byte wears out before the call: it is read-only from now on.
    ZoneReadOnly,
    /// The zone of the call's first byte dies before the call: it is offline from now on, its data lost.
    ZoneOffline,
}

impl FaultEffect {
    /// True if a sync with this effect drops unsynced writes.
    pub fn drops_unsynced(&self) -> bool {
        matches!(self, FaultEffect::FailDroppingUnsynced(_) | FaultEffect::FailLateDroppingUnsynced(..))
    }
}

/// When a fault strikes, among the calls it [matches](Fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// At one call, counted from 0.
    Once(u64),
    /// At that call and every later one, until the plan is replaced.
    From(u64),
    /// At each call with this probability, by the plan's seed.
    Random {
        /// Calls that fail, of
        numerator: u64,
        /// this many.
        denominator: u64,
    },
}

/// One thing that goes wrong. Every condition that is said must hold for a call to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Calls of this operation. Creation counts as [`Operation::Open`]; reservation (`allocate`)
    /// as [`Operation::Truncate`]; a hard link as [`Operation::Rename`]; asking a file's size or a
    /// directory's space as [`Operation::List`]; on byte-addressable memory load, store and
    /// flush or fence as read, write and sync.
    pub operation: Operation,
    /// Calls that touch these bytes; of a zone command those of its zone. Never holds for an operation without a
    /// range.
    pub range: Option<Range<u64>>,
    /// Calls of this class. Never holds for a call without a context.
    pub class: Option<IoClass>,
    /// Which of those calls.
    pub trigger: FaultTrigger,
    /// What happens to them.
    pub effect: FaultEffect,
}

impl Fault {
    /// `effect` at the calls of `operation` that `trigger` says, wherever they go.
    pub fn new(operation: Operation, trigger: FaultTrigger, effect: FaultEffect) -> Self {
        Fault { operation, range: None, class: None, trigger, effect }
    }

    /// The same fault for calls that touch `range`.
    pub fn on_range(self, range: Range<u64>) -> Self {
        Fault { range: Some(range), ..self }
    }

    /// The same fault for calls of `class`.
    pub fn on_class(self, class: IoClass) -> Self {
        Fault { class: Some(class), ..self }
    }

    fn matches(&self, call: &Call<'_>) -> bool {
        self.operation == call.operation
            && self.class.is_none_or(|class| call.context.is_some_and(|context| context.class == class))
            && self.range.as_ref().is_none_or(|range| {
                call.range.as_ref().is_some_and(|touched| touched.start < range.end && range.start < touched.end)
            })
    }
}

/// Everything that goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Where random choices come from.
    pub seed: u64,
    /// The first that strikes at a call is the one that happens; all count the call.
    pub faults: Vec<Fault>,
}

impl FaultPlan {
    /// A plan of one fault.
    pub fn of(fault: Fault) -> Self {
        FaultPlan { seed: 0, faults: vec![fault] }
    }
}

/// A call as faults see it.
struct Call<'a> {
    operation: Operation,
    range: Option<Range<u64>>,
    context: Option<&'a IoContext>,
}

/// Carries out a plan over any number of devices and directories, which count together. A clone is
/// another handle of the same injector: keep one to replace the plan and to read the counts.
///
/// ```
/// use std::sync::Arc;
/// use varve_env::Env;
/// use varve_media::{
///     Directory, Fault, FaultDirectory, FaultEffect, FaultError, FaultInjector, FaultPlan, FaultTrigger, MemoryDirectory,
/// };
///
/// let env = Env::real();
/// // Once without faults, to count; then with a fault at each call.
/// let workload = |injector: &FaultInjector| {
///     let directory = FaultDirectory::new(injector, Arc::new(MemoryDirectory::new("ram")));
///     directory.sync().and_then(|()| directory.sync())
/// };
/// let counting = FaultInjector::new(&env, FaultPlan::default());
/// workload(&counting).unwrap();
/// for (operation, calls) in counting.calls() {
///     for call in 0..calls {
///         let fault = Fault::new(operation, FaultTrigger::Once(call), FaultEffect::Fail(FaultError::Io));
///         let injector = FaultInjector::new(&env, FaultPlan::of(fault));
///         assert!(workload(&injector).is_err());
///         assert_eq!(injector.injected(), 1);
///     }
/// }
/// ```
#[derive(Clone)]
pub struct FaultInjector {
    env: Env,
    state: Arc<Mutex<InjectorState>>,
}

#[derive(Default)]
struct InjectorState {
    faults: Vec<ActiveFault>,
    calls: BTreeMap<Operation, u64>,
    injected: u64,
}

struct ActiveFault {
    fault: Fault,
    calls: u64,
    random: Random,
}

impl FaultInjector {
    /// An injector that begins with `plan`. `env` is whose clock a stall waits for.
    pub fn new(env: &Env, plan: FaultPlan) -> Self {
        let injector = FaultInjector { env: env.clone(), state: Arc::default() };
        injector.set_plan(plan);
        injector
    }

    /// Replaces the plan; its faults count calls from here.
    pub fn set_plan(&self, plan: FaultPlan) {
        let active = |(index, fault)| ActiveFault {
            fault,
            calls: 0,
            random: Random::named(plan.seed, &format!("fault {index}")),
        };
        self.state.lock().faults = plan.faults.into_iter().enumerate().map(active).collect();
    }

    /// Calls so far by operation, whether a fault struck or not: run once without faults, then again
    /// with a fault at each call counted.
    pub fn calls(&self) -> BTreeMap<Operation, u64> {
        self.state.lock().calls.clone()
    }

    /// Faults that struck so far.
    pub fn injected(&self) -> u64 {
        self.state.lock().injected
    }

    /// True if writes must be remembered for an effect that drops them.
    fn drops_unsynced(&self) -> bool {
        self.state.lock().faults.iter().any(|active| active.fault.effect.drops_unsynced())
    }

    /// Counts a call and gives the fault that strikes it. The fault's time has passed when this returns, except for a
    /// sync that first drops unsynced writes.
    fn strike(&self, call: Call<'_>) -> Option<Strike> {
        let is_sync = call.operation == Operation::Sync;
        let mut strike = None;
        {
            let state = &mut *self.state.lock();
            *state.calls.entry(call.operation).or_default() += 1;
            for active in &mut state.faults {
                if !active.fault.matches(&call) {
                    continue;
                }
                let index = active.calls;
                active.calls += 1;
                let strikes = match active.fault.trigger {
                    FaultTrigger::Once(at) => index == at,
                    FaultTrigger::From(first) => index >= first,
                    FaultTrigger::Random { numerator, denominator } => active.random.chance(numerator, denominator),
                };
                if strikes && strike.is_none() {
                    let random = Random::seeded(active.random.next_u64());
                    strike = Some(Strike { effect: active.fault.effect.clone(), random });
                }
            }
            state.injected += u64::from(strike.is_some());
        }
        let Strike { effect, random } = strike?;
        match effect {
            FaultEffect::Stall(duration) => {
                self.env.sleep(duration);
                None
            }
            FaultEffect::FailLate(duration, error) | FaultEffect::FailLateDroppingUnsynced(duration, error)
                if !(is_sync && effect.drops_unsynced()) =>
            {
                self.env.sleep(duration);
                Some(Strike { effect: FaultEffect::Fail(error), random })
            }
            effect => Some(Strike { effect, random }),
        }
    }

    /// Does a call that moves no data: of names, sizes, locks, zones.
    fn around<T>(
        &self,
        label: &str,
        call: Call<'_>,
        perform: impl FnOnce() -> Result<T, MediaError>,
        lost: Option<T>,
    ) -> Result<T, MediaError> {
        let place = (call.operation, call.range.clone());
        let strike = self.strike(call).map(|strike| strike.effect);
        self.resolve(label, place, strike, perform, lost)
    }

    /// Does such a call as the effect that struck it says.
    fn resolve<T>(
        &self,
        label: &str,
        (operation, range): (Operation, Option<Range<u64>>),
        effect: Option<FaultEffect>,
        perform: impl FnOnce() -> Result<T, MediaError>,
        lost: Option<T>,
    ) -> Result<T, MediaError> {
        let at = range.map_or((0, 0), |range| (range.start, range.end - range.start));
        match effect {
            Some(
                FaultEffect::Fail(error) | FaultEffect::FailPartly(error) | FaultEffect::FailDroppingUnsynced(error),
            ) => Err(error.at(label, operation, at.0, at.1)),
            Some(FaultEffect::FailAfter(error)) => {
                perform()?;
                Err(error.at(label, operation, at.0, at.1))
            }
            Some(FaultEffect::Lose) => lost.map_or_else(perform, Ok),
            _ => perform(),
        }
    }
}

/// A fault that strikes now.
struct Strike {
    effect: FaultEffect,
    random: Random,
}

/// Flips `count` random bits of `length` bytes, which `at` gives one by one.
fn flip_bits(random: &mut Random, count: u32, length: usize, mut at: impl FnMut(usize, u8)) {
    if length == 0 {
        return;
    }
    for _ in 0..count {
        at(random.index(length), 1 << random.below(8));
    }
}

/// Another place for `length_bytes` at `offset_bytes`, in units, below `end_bytes`; the same where
/// there is no other.
fn elsewhere(random: &mut Random, offset_bytes: u64, length_bytes: u64, end_bytes: u64, unit_bytes: u64) -> u64 {
    let places = end_bytes.saturating_sub(length_bytes) / unit_bytes + 1;
    let other = random.below(places) * unit_bytes;
    match other == offset_bytes {
        true if places > 1 => (other / unit_bytes + 1) % places * unit_bytes,
        _ => other,
    }
}
