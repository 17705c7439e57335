//! Replay in an open loop: requests come when they come, whatever is outstanding.

use super::engine::{ReplayError, Requester, Response};
use crate::error::LabError;
use std::collections::VecDeque;
use std::sync::Arc;
use varve::env::{Condvar, JoinHandle, Mutex};

/// Workers, each of which makes one request at a time: as many as were ever needed at once.
struct Pool {
    requester: Arc<Requester>,
    state: Mutex<State>,
    /// A request came, or no more will.
    changed: Condvar,
}

struct State {
    /// Requests that came and no worker has taken: one of those that are idle will, at once.
    due: VecDeque<usize>,
    /// Workers that wait, without those that `due` is meant for.
    idle: usize,
    closed: bool,
    responses: Vec<Response>,
    /// Of the requests that failed the first of the trace.
    failed: Option<(usize, ReplayError)>,
}

/// Makes each request of a trace when it comes, and returns when all are done.
pub(super) fn replay_open_loop(requester: &Arc<Requester>, in_flight_max: usize) -> Result<Vec<Response>, LabError> {
    let requests = requester.trace.len();
    let state = State {
        due: VecDeque::new(),
        idle: 0,
        closed: false,
        responses: vec![Response::default(); requests],
        failed: None,
    };
    let env = &requester.env;
    let pool = Arc::new(Pool {
        requester: Arc::clone(requester),
        state: Mutex::new(env, "requests of an open loop", state),
        changed: Condvar::new(env, "requests of an open loop"),
    });
    let mut workers = Vec::new();
    for number in 0..requests {
        requester.wait_until(requester.arrival_nanos(number));
        if !pool.hand_over(number, in_flight_max, &mut workers) {
            break;
        }
    }
    pool.state.lock().closed = true;
    pool.changed.notify_all();
    let mut joined = Ok(());
    for worker in workers {
        joined = joined.and(worker.join());
    }
    joined?;
    let mut state = pool.state.lock();
    match state.failed.take() {
        Some((_, error)) => Err(error.into()),
        None => Ok(std::mem::take(&mut state.responses)),
    }
}

impl Pool {
    /// Gives a request that came to an idle worker, or to a new one if there is none. False when no more are to come.
    fn hand_over(self: &Arc<Self>, number: usize, in_flight_max: usize, workers: &mut Vec<JoinHandle<()>>) -> bool {
        let mut state = self.state.lock();
        if state.failed.is_some() {
            return false;
        }
        if state.idle > 0 {
            state.idle -= 1;
            state.due.push_back(number);
            drop(state);
            self.changed.notify_one();
            return true;
        }
        let in_flight = workers.len();
        if in_flight >= in_flight_max {
            let arrival_nanos = self.requester.arrival_nanos(number);
            state.fail(number, ReplayError::TooManyInFlight { request: number, arrival_nanos, in_flight_max });
            return false;
        }
        drop(state);
        let pool = Arc::clone(self);
        let spawned = self.requester.env.try_spawn(&format!("replay {in_flight}"), move || pool.work(number));
        match spawned {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                let reason = error.to_string();
                self.state.lock().fail(number, ReplayError::NoThread { request: number, in_flight, reason });
                return false;
            }
        }
        true
    }

    /// Makes one request after the other, until no more come.
    fn work(&self, first: usize) {
        let mut number = first;
        loop {
            // Of its own: what an idle worker kept would add up.
            let made = self.requester.make(number, &mut Vec::new());
            let mut state = self.state.lock();
            match made {
                Ok(response) => state.responses[number] = response,
                Err(error) => state.fail(number, error),
            }
            state.idle += 1;
            number = loop {
                if let Some(due) = state.due.pop_front() {
                    break due;
                }
                if state.closed {
                    return;
                }
                self.changed.wait(&mut state);
            };
        }
    }
}

impl State {
    fn fail(&mut self, request: usize, error: ReplayError) {
        if self.failed.as_ref().is_none_or(|&(first, _)| request < first) {
            self.failed = Some((request, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::{Replayed, replay};
    use super::super::options::{Pace, ReplayOptions, Speed};
    use super::super::request::BlockRequest;
    use super::*;
    use crate::media::presets::Preset;
    use crate::media::{Device, NoBacking, Pacing};
    use varve::env::Env;

    /// A hundred requests a millisecond apart, which a disk needs some ten for, and ten a minute later.
    fn trace() -> Arc<[BlockRequest]> {
        let request = |number: u64| BlockRequest {
            arrival_nanos: 1_000_000 * number + if number < 100 { 0 } else { 60_000_000_000 },
            is_write: number % 3 == 1,
            offset_bytes: number * 7919 % 7000 * (1 << 30),
            length_bytes: 64 << 10,
            latency_nanos: None,
        };
        (0..110).map(request).collect()
    }

    fn run(env: &Env, in_flight_max: usize, speed: Speed) -> Result<Replayed, LabError> {
        let preset = Preset::find("st8000as0022").unwrap();
        let disk = Device::of_blocks(Arc::new(preset.build(env, "disk", Box::new(NoBacking), Pacing::Sleep)));
        replay(env, &disk, &trace(), ReplayOptions { speed, ..Pace::OpenLoop { in_flight_max }.into() })
    }

    /// Most requests that were outstanding when one came, with that one.
    fn most_in_flight(replayed: &Replayed) -> usize {
        let ends = |response: &Response| response.begun_nanos + response.nanos;
        let outstanding = |&begun: &u64| {
            replayed.responses.iter().filter(|other| other.begun_nanos <= begun && begun < ends(other)).count()
        };
        replayed.responses.iter().map(|response| outstanding(&response.begun_nanos)).max().unwrap()
    }

    #[test]
    fn requests_are_made_when_they_come_though_the_device_is_saturated() {
        for factor in [1.0, 2.0, 0.5] {
            let (env, speed) = (Env::sim(1), Speed::new(factor).unwrap());
            let replayed = run(&env, 1000, speed).unwrap();
            let begun: Vec<u64> = replayed.responses.iter().map(|response| response.begun_nanos).collect();
            let arrivals: Vec<u64> =
                trace().iter().map(|request| (request.arrival_nanos as f64 / factor) as u64).collect();
            assert_eq!(begun, arrivals);
            let most = most_in_flight(&replayed);
            assert!(most > 30, "the device was not saturated: {most}");
            assert!(replayed.responses[99].nanos > 0 && env.live_actors() == 1);
            assert_eq!(replayed, run(&Env::sim(1), 1000, speed).unwrap());
        }
    }

    #[test]
    fn workers_are_as_many_as_requests_outstanding_at_once() {
        let most = most_in_flight(&run(&Env::sim(1), 1000, Speed::RECORDED).unwrap());
        // So many do, though the trace has more requests: those who are done make others.
        assert!(most < 100, "{most}");
        assert!(run(&Env::sim(1), most, Speed::RECORDED).is_ok());
        let env = Env::sim(1);
        let error = run(&env, most - 1, Speed::RECORDED).unwrap_err();
        let LabError::Replay(ReplayError::TooManyInFlight { request, arrival_nanos, in_flight_max }) = error else {
            panic!("{error}");
        };
        assert_eq!((in_flight_max, arrival_nanos), (most - 1, trace()[request].arrival_nanos));
        assert_eq!(env.live_actors(), 1, "those that were outstanding are waited for");
        assert!(run(&Env::sim(1), 0, Speed::RECORDED).is_err());
    }

    #[test]
    fn thousands_are_outstanding_at_once() {
        let env = Env::sim(1);
        let preset = Preset::find("st8000as0022").unwrap();
        let disk = Device::of_blocks(Arc::new(preset.build(&env, "disk", Box::new(NoBacking), Pacing::Sleep)));
        let request = |number: u64| BlockRequest {
            arrival_nanos: number,
            is_write: false,
            offset_bytes: number << 20,
            length_bytes: 4096,
            latency_nanos: None,
        };
        let trace: Arc<[BlockRequest]> = (0..4000).map(request).collect();
        let replayed = replay(&env, &disk, &trace, Pace::OpenLoop { in_flight_max: 4000 }).unwrap();
        assert!(replayed.responses.iter().zip(0..).all(|(response, number)| response.begun_nanos == number));
    }

    #[test]
    fn in_real_time_none_is_made_before_it_comes() {
        let env = Env::real();
        let preset = Preset::find("st8000as0022").unwrap();
        let disk = Device::of_blocks(Arc::new(preset.build(&env, "disk", Box::new(NoBacking), Pacing::Account)));
        let trace: Arc<[BlockRequest]> = trace()[..100].into();
        let replayed = replay(&env, &disk, &trace, Pace::OpenLoop { in_flight_max: 100 }).unwrap();
        assert_eq!(replayed.responses.len(), 100);
        let early = |(response, request): (&Response, &BlockRequest)| response.begun_nanos < request.arrival_nanos;
        assert!(!replayed.responses.iter().zip(trace.iter()).any(early));
    }
}
