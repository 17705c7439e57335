//! Replay of requests on a device.

use super::open_loop::replay_open_loop;
use super::options::{Pace, ReplayOptions, Speed};
use super::request::BlockRequest;
use super::submitter::replay_submitter;
use crate::block::idler::{ControlStatistics, ControlledDevice, Controller, Unrestrained};
use crate::error::LabError;
use crate::media::{BlockDeviceExt, Device, IoClass, IoContext, MediaError, Request};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use varve::env::{Env, Instant};

/// Longest replay, 146 years: times of a trace and what is added to them stay numbers.
const REPLAY_NANOS_MAX: u64 = 1 << 62;

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// When it was made, from the begin of the replay.
    pub begun_nanos: u64,
    /// How long it took.
    pub nanos: u64,
}

/// What a replay gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Of each request, in the order of the trace.
    pub responses: Vec<Response>,
    /// From the begin to the end of the last.
    pub finish_nanos: u64,
}

impl Replayed {
    fn of(responses: Vec<Response>) -> Replayed {
        let finish_nanos = responses.iter().map(|response| response.begun_nanos + response.nanos).max().unwrap_or(0);
        Replayed { responses, finish_nanos }
    }

    /// Response times in ascending order.
    pub fn sorted_nanos(&self) -> Vec<u64> {
        let mut nanos: Vec<u64> = self.responses.iter().map(|response| response.nanos).collect();
        nanos.sort_unstable();
        nanos
    }

    /// The time that this share of requests did not exceed, in seconds; 0 without requests.
    pub fn seconds(&self, share: f64) -> f64 {
        let sorted = self.sorted_nanos();
        let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1));
        sorted.get(rank - 1).map_or(0.0, |&nanos| nanos as f64 / 1e9)
    }
}

/// Why a trace cannot be replayed. Requests are counted from 0.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ReplayError {
    #[error("the trace holds no request; there is nothing to replay")]
    Empty,
    #[error(
        "request {request}: {length_bytes} bytes at offset {offset_bytes} are outside the device of {device_bytes} bytes; fold the \
         trace onto it, or take a larger one"
    )]
    PastDevice { request: usize, offset_bytes: u64, length_bytes: u32, device_bytes: u64 },
    #[error(
        "request {request} comes at {arrival_nanos} ns, before the one before it, which comes at {before_nanos} ns; put the trace in \
         order of arrival"
    )]
    OutOfOrder { request: usize, arrival_nanos: u64, before_nanos: u64 },
    #[error("a trace cannot be replayed {factor} times as fast; name a finite number above 0")]
    Speed { factor: f64 },
    #[error("request {request} would come {nanos} ns after the first, {REPLAY_NANOS_MAX} is the most; replay faster")]
    TooLong { request: usize, nanos: u64 },
    #[error(
        "{in_flight_max} requests were outstanding when request {request} came at {arrival_nanos} ns; the device does not keep up: \
         replay slower, by threads, or allow more at once"
    )]
    TooManyInFlight { request: usize, arrival_nanos: u64, in_flight_max: usize },
    #[error("request {request} cannot be made, for want of a thread beside {in_flight}: {reason}")]
    NoThread { request: usize, in_flight: usize, reason: String },
    #[error("request {request}: {error}")]
    Refused { request: usize, error: MediaError },
}

/// Makes the requests of `trace`, which is in order of arrival, of a device, and returns when all are done. Writes write zeros.
///
/// # Errors
/// [`ReplayError`]: before anything is done, a trace that is empty, out of order, too long at this speed or reaches behind the device; then the first
/// request, in order of threads or in that of the trace in an open loop, that the device refused or failed to do, or that was one too
/// many. The others of its thread are not made then, and in an open loop none of those that come later.
pub fn replay(
    env: &Env,
    device: &Device,
    trace: &Arc<[BlockRequest]>,
    options: impl Into<ReplayOptions>,
) -> Result<Replayed, LabError> {
    let options = options.into();
    let requester = requester(env, device, trace, &options)?;
    let responses = match options.pace {
        Pace::OpenLoop { in_flight_max } => replay_open_loop(&requester, in_flight_max)?,
        Pace::Timestamps { threads } | Pace::Intervals { threads } | Pace::Pauses { threads } => {
            // More than requests would have none.
            replay_threads(&requester, threads.clamp(1, trace.len()), &options)?
        }
        Pace::Submitter { in_flight_max } => replay_submitter(&requester, in_flight_max, Box::new(Unrestrained))?.0,
    };
    Ok(Replayed::of(responses))
}

/// As [`replay`], under a controller: one submitter asks it in each submission ([`Pace::Submitter`]); at every other pace it is asked when a
/// request arrives at the device ([`ControlledDevice`]).
///
/// # Errors
/// As [`replay`].
pub fn replay_controlled(
    env: &Env,
    device: &Device,
    trace: &Arc<[BlockRequest]>,
    options: impl Into<ReplayOptions>,
    controller: Box<dyn Controller>,
) -> Result<(Replayed, ControlStatistics), LabError> {
    let options = options.into();
    let Pace::Submitter { in_flight_max } = options.pace else {
        let (device, control) = ControlledDevice::new(env, device, controller);
        let replayed = replay(env, &device, trace, options)?;
        return Ok((replayed, control.statistics()));
    };
    let requester = requester(env, device, trace, &options)?;
    let (responses, statistics) = replay_submitter(&requester, in_flight_max, controller)?;
    Ok((Replayed::of(responses), statistics))
}

fn requester(
    env: &Env,
    device: &Device,
    trace: &Arc<[BlockRequest]>,
    options: &ReplayOptions,
) -> Result<Arc<Requester>, LabError> {
    check(device, trace, options.speed)?;
    let written = trace.iter().filter(|request| request.is_write).map(|request| request.length_bytes);
    Ok(Arc::new(Requester {
        env: env.clone(),
        device: device.clone(),
        begin: env.now(),
        zeros: vec![0; written.max().unwrap_or(0) as usize].into(),
        trace: Arc::clone(trace),
        speed: options.speed,
        writes_durably: options.writes_durably,
    }))
}

fn check(device: &Device, trace: &[BlockRequest], speed: Speed) -> Result<(), ReplayError> {
    let device_bytes = device.block.geometry().capacity_bytes;
    let mut before_nanos = 0;
    for (number, &BlockRequest { arrival_nanos, offset_bytes, length_bytes, .. }) in trace.iter().enumerate() {
        if offset_bytes.checked_add(length_bytes.into()).is_none_or(|end_bytes| end_bytes > device_bytes) {
            return Err(ReplayError::PastDevice { request: number, offset_bytes, length_bytes, device_bytes });
        }
        if arrival_nanos < before_nanos {
            return Err(ReplayError::OutOfOrder { request: number, arrival_nanos, before_nanos });
        }
        before_nanos = arrival_nanos;
    }
    let Some(last) = trace.len().checked_sub(1) else { return Err(ReplayError::Empty) };
    match speed.of_nanos(before_nanos) {
        nanos if nanos > REPLAY_NANOS_MAX => Err(ReplayError::TooLong { request: last, nanos }),
        _ => Ok(()),
    }
}

/// Makes requests of a trace, which are known by their numbers.
pub(super) struct Requester {
    pub(super) env: Env,
    pub(super) trace: Arc<[BlockRequest]>,
    pub(super) device: Device,
    pub(super) begin: Instant,
    /// As many as the longest write has.
    zeros: Arc<[u8]>,
    speed: Speed,
    writes_durably: bool,
}

impl Requester {
    /// When a request comes, from the begin.
    pub(super) fn arrival_nanos(&self, number: usize) -> u64 {
        self.speed.of_nanos(self.trace[number].arrival_nanos)
    }

    /// Waits until so long after the begin.
    pub(super) fn wait_until(&self, nanos: u64) {
        self.env.sleep_until(self.begin + Duration::from_nanos(nanos));
    }

    /// Makes a request, and waits for it. `buffer` grows to what is read.
    pub(super) fn make(&self, number: usize, buffer: &mut Vec<u8>) -> Result<Response, ReplayError> {
        let BlockRequest { is_write, offset_bytes, length_bytes, .. } = self.trace[number];
        let length = length_bytes as usize;
        if !is_write && buffer.len() < length {
            buffer.resize(length, 0);
        }
        let since_begin = || self.env.now().as_nanos() - self.begin.as_nanos();
        let begun_nanos = since_begin();
        let block = &self.device.block;
        let made = match is_write {
            true if self.writes_durably => {
                let data = [IoSlice::new(&self.zeros[..length])];
                block.execute(&mut [Request::write_durable(offset_bytes, &data)], &IoContext::of(IoClass::Other))
            }
            true => block.write_at(offset_bytes, &self.zeros[..length], &IoContext::of(IoClass::Other)),
            false => block.read_at(offset_bytes, &mut buffer[..length], &IoContext::of(IoClass::UserRead)),
        };
        made.map_err(|error| ReplayError::Refused { request: number, error })?;
        Ok(Response { begun_nanos, nanos: since_begin() - begun_nanos })
    }
}

fn replay_threads(
    requester: &Arc<Requester>,
    threads: usize,
    options: &ReplayOptions,
) -> Result<Vec<Response>, LabError> {
    let trace = &requester.trace;
    let mut of_threads: Vec<Vec<usize>> = vec![Vec::new(); threads];
    for (number, thread) in options.partition.threads_of(trace, threads).into_iter().enumerate() {
        of_threads[thread].push(number);
    }
    of_threads.retain(|own| !own.is_empty());
    let pace = options.pace;
    let workers: Vec<_> = of_threads
        .iter()
        .enumerate()
        .map(|(thread, own)| {
            let (own, requester) = (own.clone(), Arc::clone(requester));
            let name = format!("replay {thread}");
            requester.env.clone().spawn(&name, move || replay_thread(&requester, &own, pace))
        })
        .collect();
    let mut responses = vec![Response::default(); trace.len()];
    let mut result = Ok(());
    for (numbers, worker) in of_threads.iter().zip(workers) {
        match worker.join()? {
            Ok(own) => {
                for (&number, response) in numbers.iter().zip(own) {
                    responses[number] = response;
                }
            }
            Err(source) => result = result.and(Err(source)),
        }
    }
    result?;
    Ok(responses)
}

fn replay_thread(requester: &Requester, numbers: &[usize], pace: Pace) -> Result<Vec<Response>, ReplayError> {
    let mut responses: Vec<Response> = Vec::with_capacity(numbers.len());
    let mut buffer = Vec::new();
    let mut before_nanos = 0;
    for &number in numbers {
        let arrival_nanos = requester.arrival_nanos(number);
        let interval_nanos = arrival_nanos - before_nanos;
        let due_nanos = match (pace, responses.last()) {
            (Pace::Intervals { .. }, Some(before)) => before.begun_nanos + interval_nanos,
            (Pace::Pauses { .. }, Some(before)) => before.begun_nanos + before.nanos + interval_nanos,
            _ => arrival_nanos,
        };
        before_nanos = arrival_nanos;
        requester.wait_until(due_nanos);
        responses.push(requester.make(number, &mut buffer)?);
    }
    Ok(responses)
}

#[cfg(test)]
mod tests {
    use super::super::partition::Partition;
    use super::*;
    use crate::media::presets::Preset;
    use crate::media::{NoBacking, Pacing};

    fn trace() -> Arc<[BlockRequest]> {
        // A burst of ten, and one a second later.
        let request = |number: u64| BlockRequest {
            arrival_nanos: if number < 10 { 1000 * number } else { 1_000_000_000 * (number - 9) },
            is_write: number % 2 == 1,
            offset_bytes: number * 7 % 10 * (1 << 30),
            length_bytes: 1 << 20,
            latency_nanos: None,
        };
        (0..12).map(request).collect::<Vec<_>>().into()
    }

    fn disk(env: &Env) -> Device {
        let preset = Preset::find("st8000as0022").unwrap();
        Device::of_blocks(Arc::new(preset.build(env, "disk", Box::new(NoBacking), Pacing::Sleep)))
    }

    fn run(options: impl Into<ReplayOptions>) -> Replayed {
        let env = Env::sim(1);
        replay(&env, &disk(&env), &trace(), options).unwrap()
    }

    fn refused(change: impl FnOnce(&mut Vec<BlockRequest>), speed: Speed) -> ReplayError {
        let env = Env::sim(1);
        let mut trace = trace().to_vec();
        change(&mut trace);
        let options = ReplayOptions { speed, ..Pace::Timestamps { threads: 2 }.into() };
        match replay(&env, &disk(&env), &trace.into(), options) {
            Err(LabError::Replay(error)) => {
                assert_eq!(env.now(), Instant::ZERO, "something was done");
                error
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn threads_wait_for_their_own_requests() {
        let one = run(Pace::Timestamps { threads: 1 });
        for pair in one.responses.windows(2) {
            assert!(pair[1].begun_nanos >= pair[0].begun_nanos + pair[0].nanos);
        }
        let many = run(Pace::Timestamps { threads: 16 });
        assert!(many.responses[9].begun_nanos == 9000 && many.seconds(1.0) > one.seconds(1.0), "{many:?}");
        assert_eq!(one, run(Pace::Timestamps { threads: 1 }));
        assert_eq!(many, run(Pace::Timestamps { threads: usize::MAX }));
        assert_eq!(one, run(Pace::Timestamps { threads: 0 }));
    }

    #[test]
    fn who_is_late_catches_up_or_does_not() {
        let (stamps, intervals) = (run(Pace::Timestamps { threads: 1 }), run(Pace::Intervals { threads: 1 }));
        assert_eq!(stamps.responses[11].begun_nanos, 2_000_000_000);
        let late = intervals.responses[10].begun_nanos - intervals.responses[9].begun_nanos;
        assert_eq!(late, 1_000_000_000 - 9000);
        assert!(intervals.responses[11].begun_nanos > 2_000_000_000);
    }

    #[test]
    fn speed_divides_timestamps_intervals_and_pauses() {
        let at = |pace: Pace, factor: f64| {
            run(ReplayOptions { speed: Speed::new(factor).unwrap(), ..pace.into() }).responses
        };
        let stamps = at(Pace::Timestamps { threads: 16 }, 4.0);
        let begun: Vec<u64> = stamps.iter().map(|response| response.begun_nanos).collect();
        assert_eq!(begun, [0, 250, 500, 750, 1000, 1250, 1500, 1750, 2000, 2250, 250_000_000, 500_000_000]);
        for (factor, second) in [(0.5, 2_000_000_000), (1.0, 1_000_000_000), (4.0, 250_000_000)] {
            let intervals = at(Pace::Intervals { threads: 1 }, factor);
            assert_eq!(intervals[11].begun_nanos - intervals[10].begun_nanos, second);
            let pauses = at(Pace::Pauses { threads: 1 }, factor);
            assert_eq!(pauses[11].begun_nanos - (pauses[10].begun_nanos + pauses[10].nanos), second);
        }
        assert_eq!(at(Pace::Pauses { threads: 1 }, 1.0), run(Pace::Pauses { threads: 1 }).responses);
    }

    #[test]
    fn what_cannot_be_replayed_is_refused_before_anything_is_done() {
        let error = refused(|trace| trace[3].offset_bytes = 8_001_563_222_016 - 4096, Speed::RECORDED);
        let text = error.to_string();
        let says = ["request 3", "1048576 bytes", "8001563217920", "8001563222016 bytes", "fold"];
        assert!(says.iter().all(|part| text.contains(part)), "{text}");
        let error = refused(|trace| trace[3].offset_bytes = u64::MAX - 5, Speed::RECORDED);
        assert!(matches!(error, ReplayError::PastDevice { request: 3, .. }), "{error}");
        let error = refused(|trace| trace[4].arrival_nanos = 2999, Speed::RECORDED);
        let expected = ReplayError::OutOfOrder { request: 4, arrival_nanos: 2999, before_nanos: 3000 };
        assert_eq!(error.to_string(), expected.to_string());
        let error = refused(|trace| trace[11].arrival_nanos = u64::MAX, Speed::RECORDED);
        assert!(matches!(error, ReplayError::TooLong { request: 11, nanos: u64::MAX }), "{error}");
        let error = refused(|_| (), Speed::new(1e-12).unwrap());
        assert!(matches!(error, ReplayError::TooLong { request: 11, .. }), "{error}");
        assert!(matches!(refused(Vec::clear, Speed::RECORDED), ReplayError::Empty));
    }

    #[test]
    fn what_the_device_refuses_is_named() {
        for pace in [Pace::Intervals { threads: 3 }, Pace::OpenLoop { in_flight_max: 100 }] {
            let env = Env::sim(1);
            let mut trace = trace().to_vec();
            trace[4].length_bytes = 100;
            let options = ReplayOptions { partition: Partition::ByLatency, ..pace.into() };
            let error = replay(&env, &disk(&env), &trace.into(), options).unwrap_err();
            assert!(matches!(error, LabError::Replay(ReplayError::Refused { request: 4, .. })), "{error}");
            assert_eq!(env.live_actors(), 1);
        }
    }
}
