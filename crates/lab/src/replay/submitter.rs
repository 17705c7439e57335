//! Replay by one submitter, as the program SMReplay of Zhang's thesis does it.
//!
//! The submitter takes requests in order of arrival. It waits until fewer than `in_flight_max` requests are outstanding, then for the
//! interval of the trace since the request before: intervals count from submission, and nothing catches up. A controller holds a request
//! inside its submission. The delay is part of that request's response time; the requests behind it are not submitted yet, so at most one
//! request of an idle period has the delay.

use super::engine::{ReplayError, Requester, Response};
use crate::block::idler::{Arrival, ControlStatistics, Controller, Verdict, Work};
use crate::error::LabError;
use crate::media::{IoClass, IoContext, ZoneId};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use varve::env::{Condvar, JoinHandle, Mutex};

/// The submitter and its workers, each of which makes one request at a time.
struct Submitter {
    requester: Arc<Requester>,
    state: Mutex<State>,
    /// A request was submitted, or no more will be.
    submitted: Condvar,
    /// A request ended.
    ended: Condvar,
}

struct State {
    controller: Box<dyn Controller>,
    statistics: ControlStatistics,
    due: VecDeque<Submission>,
    outstanding: usize,
    /// Workers without a request.
    idle: usize,
    is_closed: bool,
    responses: Vec<Response>,
    failed: Option<ReplayError>,
}

/// A request that left its submission.
#[derive(Clone, Copy)]
struct Submission {
    number: usize,
    arrival: Arrival,
    released_nanos: u64,
}

/// Makes the requests of a trace, each under the controller, and returns when all are done.
pub(super) fn replay_submitter(
    requester: &Arc<Requester>,
    in_flight_max: usize,
    controller: Box<dyn Controller>,
) -> Result<(Vec<Response>, ControlStatistics), LabError> {
    let env = &requester.env;
    let state = State {
        controller,
        statistics: ControlStatistics::default(),
        due: VecDeque::new(),
        outstanding: 0,
        idle: 0,
        is_closed: false,
        responses: vec![Response::default(); requester.trace.len()],
        failed: None,
    };
    let submitter = Arc::new(Submitter {
        requester: Arc::clone(requester),
        state: Mutex::new(env, "submitter", state),
        submitted: Condvar::new(env, "submitter: submitted"),
        ended: Condvar::new(env, "submitter: ended"),
    });
    let mut workers = Vec::new();
    let mut before_nanos = 0;
    for number in 0..requester.trace.len() {
        let arrival_nanos = requester.arrival_nanos(number);
        let interval = Duration::from_nanos(arrival_nanos - before_nanos);
        before_nanos = arrival_nanos;
        if !submitter.submit(number, interval, in_flight_max.max(1), &mut workers) {
            break;
        }
    }
    submitter.state.lock().is_closed = true;
    submitter.submitted.notify_all();
    let mut joined = Ok(());
    for worker in workers {
        joined = joined.and(worker.join());
    }
    joined?;
    let mut state = submitter.state.lock();
    match state.failed.take() {
        Some(error) => Err(error.into()),
        None => Ok((std::mem::take(&mut state.responses), state.statistics)),
    }
}

impl Submitter {
    /// Submits a request; false after one failed.
    fn submit(
        self: &Arc<Self>,
        number: usize,
        interval: Duration,
        in_flight_max: usize,
        workers: &mut Vec<JoinHandle<()>>,
    ) -> bool {
        let env = &self.requester.env;
        let mut state = self.state.lock();
        while state.outstanding >= in_flight_max && state.failed.is_none() {
            self.ended.wait(&mut state);
        }
        drop(state);
        env.sleep_until(env.now() + interval);
        let arrival = self.arrival(number);
        self.hold(&arrival);
        let mut state = self.state.lock();
        if state.failed.is_some() {
            return false;
        }
        state.outstanding += 1;
        state.due.push_back(Submission { number, arrival, released_nanos: env.now().as_nanos() });
        let has_idle = state.idle >= state.due.len();
        drop(state);
        if has_idle {
            self.submitted.notify_one();
            return true;
        }
        let own = Arc::clone(self);
        match env.try_spawn(&format!("replay {}", workers.len()), move || own.work()) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                let (in_flight, reason) = (workers.len(), error.to_string());
                let mut state = self.state.lock();
                state.failed = Some(ReplayError::NoThread { request: number, in_flight, reason });
                return false;
            }
        }
        true
    }

    fn arrival(&self, number: usize) -> Arrival {
        let request = &self.requester.trace[number];
        Arrival {
            nanos: self.requester.env.now().as_nanos(),
            work: if request.is_write { Work::Write } else { Work::Read },
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes.into(),
            class: if request.is_write { IoClass::Other } else { IoClass::UserRead },
            cause: Default::default(),
            deadline_nanos: None,
        }
    }

    /// Waits as long as the controller holds the request, and gets the report of zones that it asks for.
    fn hold(&self, arrival: &Arrival) {
        let env = &self.requester.env;
        let (mut is_held, mut held_until_nanos) = (false, 0);
        let mut state = self.state.lock();
        let mut verdict = state.controller.arrived(arrival);
        while let Verdict::Wait(until_nanos) = verdict {
            is_held = true;
            if until_nanos > held_until_nanos {
                held_until_nanos = until_nanos;
                state.statistics.idle_periods += 1;
            }
            drop(state);
            env.sleep_until(varve::env::Instant::from_nanos(until_nanos));
            state = self.state.lock();
            verdict = state.controller.waited(env.now().as_nanos(), arrival);
        }
        let now_nanos = env.now().as_nanos();
        if is_held {
            let waited_nanos = now_nanos - arrival.nanos;
            let statistics = &mut state.statistics;
            statistics.delayed += 1;
            statistics.delayed_nanos += waited_nanos;
            statistics.longest_delay_nanos = statistics.longest_delay_nanos.max(waited_nanos);
            statistics.waiting_max = 1;
        }
        if !state.controller.wants_report(now_nanos) {
            return;
        }
        state.statistics.reports += 1;
        drop(state);
        let device = &self.requester.device;
        let context = IoContext::of(IoClass::Maintenance);
        let zones = match (&device.zones, &device.block.capabilities().zones) {
            (Some(zones), Some(geometry)) => zones.report(ZoneId(0), geometry.zone_count, &context).ok(),
            _ => None,
        };
        self.state.lock().controller.reported(now_nanos, zones.as_deref());
    }

    /// Makes one request after the other, until no more come.
    fn work(&self) {
        let env = &self.requester.env;
        let begin_nanos = self.requester.begin.as_nanos();
        loop {
            let mut state = self.state.lock();
            let submission = loop {
                if let Some(submission) = state.due.pop_front() {
                    break submission;
                }
                if state.is_closed {
                    return;
                }
                state.idle += 1;
                self.submitted.wait(&mut state);
                state.idle -= 1;
            };
            drop(state);
            let Submission { number, arrival, released_nanos } = submission;
            let made = self.requester.make(number, &mut Vec::new());
            let now_nanos = env.now().as_nanos();
            let mut state = self.state.lock();
            state.outstanding -= 1;
            state.controller.completed(now_nanos, released_nanos, &arrival);
            match made {
                Ok(_) => {
                    let nanos = now_nanos - arrival.nanos;
                    state.responses[number] = Response { begun_nanos: arrival.nanos - begin_nanos, nanos };
                }
                Err(error) => state.failed = state.failed.take().or(Some(error)),
            }
            drop(state);
            self.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::{replay, replay_controlled};
    use super::super::options::{Pace, ReplayOptions};
    use super::super::request::BlockRequest;
    use crate::block::idler::FixedIdle;
    use crate::media::presets::Preset;
    use crate::media::{Device, NoBacking, Pacing};
    use std::sync::Arc;
    use varve::env::Env;

    const MILLI: u64 = 1_000_000;

    /// A read each 100 ms for 20 s.
    fn trace() -> Arc<[BlockRequest]> {
        let request = |number: u64| BlockRequest {
            arrival_nanos: number * 100 * MILLI,
            is_write: false,
            offset_bytes: number * 7 % 10 * (1 << 30),
            length_bytes: 1 << 20,
            latency_nanos: None,
        };
        (0..200).map(request).collect::<Vec<_>>().into()
    }

    fn disk(env: &Env) -> Device {
        let preset = Preset::find("st8000as0022").unwrap();
        Device::of_blocks(Arc::new(preset.build(env, "disk", Box::new(NoBacking), Pacing::Sleep)))
    }

    /// Each idle period is in the response time of one request, and all that follow are later by it.
    #[test]
    fn one_request_of_an_idle_period_has_its_delay() {
        for in_flight_max in [1, 16] {
            let env = Env::sim(1);
            let control = Box::new(FixedIdle::new(5000 * MILLI, 2000 * MILLI));
            let options = ReplayOptions::from(Pace::Submitter { in_flight_max });
            let (replayed, statistics) = replay_controlled(&env, &disk(&env), &trace(), options, control).unwrap();
            let delayed: Vec<usize> =
                (0..200).filter(|&number| replayed.responses[number].nanos >= 2000 * MILLI).collect();
            assert_eq!(delayed.len() as u64, statistics.idle_periods, "{in_flight_max} in flight: {delayed:?}");
            assert!((3..=4).contains(&delayed.len()), "{in_flight_max} in flight: {delayed:?}");
            assert!(replayed.responses.iter().all(|response| response.nanos < 2100 * MILLI));
            let begun: Vec<u64> = replayed.responses.iter().map(|response| response.begun_nanos / MILLI).collect();
            for (number, pair) in begun.windows(2).enumerate() {
                let least = if delayed.contains(&number) { 2100 } else { 100 };
                assert!((least..least + 60).contains(&(pair[1] - pair[0])), "request {number}: {pair:?}");
            }
            assert_eq!(env.live_actors(), 1);
        }
    }

    /// With one request outstanding the interval follows the end of the request before; with many it follows its submission.
    #[test]
    fn intervals_count_from_submission() {
        let begun = |in_flight_max: usize| -> Vec<u64> {
            let env = Env::sim(1);
            let replayed = replay(&env, &disk(&env), &trace(), Pace::Submitter { in_flight_max }).unwrap();
            replayed.responses.iter().map(|response| response.begun_nanos).collect()
        };
        assert!(begun(16).windows(2).all(|pair| pair[1] - pair[0] == 100 * MILLI));
        assert!(begun(1).windows(2).all(|pair| pair[1] - pair[0] > 100 * MILLI));
        assert_eq!(begun(usize::MAX), begun(16));
    }

    #[test]
    fn a_refused_request_ends_the_replay() {
        let env = Env::sim(1);
        let mut trace = trace().to_vec();
        trace[4].length_bytes = 100;
        let error = replay(&env, &disk(&env), &trace.into(), Pace::Submitter { in_flight_max: 4 }).unwrap_err();
        assert!(error.to_string().contains("request 4"), "{error}");
        assert_eq!(env.live_actors(), 1);
    }
}
