//! What a controller is asked, and what it says.

use varve_media::{IoCause, IoClass, Request, Transfer, ZoneDescription};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Gives bytes up: a discard, or a reset of a zone.
    Forget,
    /// Anything else: a sync, a report, a command to a zone.
    Command,
}

impl Work {
    /// What a request does.
    pub fn of(request: &Request<'_>) -> Work {
        match request.transfer {
            Transfer::Read { .. } => Work::Read,
            Transfer::Write { .. } => Work::Write,
            Transfer::Discard { .. } => Work::Forget,
        }
    }
}

/// A request as a controller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it came, in nanoseconds of the env.
    pub nanos: u64,
    /// What it does.
    pub work: Work,
    /// First byte.
    pub offset_bytes: u64,
    /// Bytes; 0 for a command.
    pub length_bytes: u64,
    /// What it belongs to.
    pub class: IoClass,
    /// What a layer above made of it: what leaves a buffer is [`IoCause::Cleaning`].
    pub cause: IoCause,
    /// When it is wanted done, in nanoseconds of the env.
    pub deadline_nanos: Option<u64>,
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes to the device, behind those that wait.
    Go,
    /// It goes to the device before those that wait, but for writes to the zones that it writes to: those go first, at once. They
    /// may all be over with waiting now, and are asked about again.
    Pass,
    /// It waits until then, in nanoseconds of the env, and the controller is asked again.
    Wait(u64),
}

/// A policy: pure, told of everything in order of time, under one lock. A request is asked about when it came and, while the answer is to
/// wait, when it has waited or another one passed; then it goes, and its end is told.
pub trait Controller: Send {
    /// Name, for reports.
    fn name(&self) -> String;

    /// A request came.
    fn arrived(&mut self, arrival: &Arrival) -> Verdict;

    /// A request has waited as long as it was told to, or until another one passed.
    fn waited(&mut self, now_nanos: u64, arrival: &Arrival) -> Verdict;

    /// A request that was told to wait goes all the same: one that passes must come behind it.
    fn let_go(&mut self, now_nanos: u64, arrival: &Arrival);

    /// A request ended, however it did: called exactly once for each that [`arrived`](Controller::arrived). `begun_nanos` is when it went to the device, later than it came if it waited.
    fn completed(&mut self, now_nanos: u64, begun_nanos: u64, arrival: &Arrival);

    /// A write came that a buffer above did not hold and took in, which is done now: the device gets it later, if at all.
    fn absorbed(&mut self, now_nanos: u64, arrival: &Arrival);

    /// Whether the zones of the device are to be looked at before the next request goes there.
    fn wants_report(&self, now_nanos: u64) -> bool;

    /// What the device says of all its zones; `None` where it failed to, or says what cannot be.
    fn reported(&mut self, now_nanos: u64, zones: Option<&[ZoneDescription]>);
}
