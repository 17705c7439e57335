//! Replay of requests on a device.

use super::request::BlockRequest;
use crate::error::LabError;
use crate::media::{BlockDeviceExt, Device, IoClass, IoContext, MediaError};
use std::sync::Arc;
use std::time::Duration;
use varve::env::{Env, Instant};

/// When requests are made. None is made before the one before it of the same thread is done: only requests of one thread depend on each
/// other (Zhang, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// When it came in the trace, or as soon as its thread is free: who was late catches up.
    Timestamps {
        /// How many.
        threads: usize,
    },
    /// As long after the one before it of its thread as in the trace, or as soon as its thread is free: who was late stays late.
    Intervals {
        /// How many.
        threads: usize,
    },
    /// So long after the one before it of its thread was done: as hosts that think between requests.
    Pauses {
        /// How many.
        threads: usize,
    },
}

impl Pace {
    /// How many threads there are.
    pub fn threads(self) -> usize {
        let (Pace::Timestamps { threads } | Pace::Intervals { threads } | Pace::Pauses { threads }) = self;
        threads.max(1)
    }
}

/// Whose a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partition {
    /// Request `i` is of thread `i mod threads`: the paper's, by timestamps.
    #[default]
    InTurn,
    /// By what the trace says of how long requests took (as HFPlayer does): a request may depend on those that were done when it came, so it is
    /// of the thread whose last request was done most recently; of a new one, while there are, when none was done; or else of the
    /// one that is done first. Where a trace says nothing, requests took no time.
    ByLatency,
}

impl Partition {
    /// The thread of each request.
    pub fn threads_of(self, trace: &[BlockRequest], threads: usize) -> Vec<usize> {
        let threads = threads.max(1);
        if self == Partition::InTurn {
            return (0..trace.len()).map(|number| number % threads).collect();
        }
        // When each thread's last request was done.
        let mut done: Vec<u64> = Vec::new();
        let of = |request: &BlockRequest| {
            let free = done.iter().enumerate().filter(|(_, until)| **until <= request.arrival_nanos);
            let chosen = free.max_by_key(|(thread, until)| (**until, usize::MAX - thread)).map(|(thread, _)| thread);
            let thread = match chosen {
                Some(thread) => thread,
                None if done.len() < threads => {
                    done.push(0);
                    done.len() - 1
                }
                None => done
                    .iter()
                    .enumerate()
                    .min_by_key(|(thread, until)| (**until, *thread))
                    .map_or(0, |(thread, _)| thread),
            };
            done[thread] = request.arrival_nanos.max(done[thread]) + request.latency_nanos.unwrap_or(0);
            thread
        };
        trace.iter().map(of).collect()
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Makes the requests of `trace` of a device, and returns when all are done. Writes write zeros.
///
/// # Errors
/// The first request, in order of threads, that the device refused or failed to do; the others of its thread are not made then.
pub fn replay(
    env: &Env,
    device: &Device,
    trace: &Arc<[BlockRequest]>,
    pace: Pace,
    partition: Partition,
) -> Result<Replayed, LabError> {
    let begin = env.now();
    let threads = pace.threads();
    let longest = trace.iter().map(|request| request.length_bytes).max().unwrap_or(0) as usize;
    let zeros: Arc<[u8]> = vec![0; longest].into();
    let mut of_threads: Vec<Vec<usize>> = vec![Vec::new(); threads];
    for (number, thread) in partition.threads_of(trace, threads).into_iter().enumerate() {
        of_threads[thread].push(number);
    }
    let workers: Vec<_> = of_threads
        .iter()
        .filter(|own| !own.is_empty())
        .enumerate()
        .map(|(thread, own)| {
            let own = own.clone();
            let (env, device, trace, zeros) = (env.clone(), device.clone(), Arc::clone(trace), Arc::clone(&zeros));
            let name = format!("replay {thread}");
            env.clone().spawn(&name, move || {
                let own = own.iter().map(|&number| &trace[number]);
                replay_thread(&env, &device, begin, own, &zeros, pace)
            })
        })
        .collect();
    let mut responses = vec![Response { begun_nanos: 0, nanos: 0 }; trace.len()];
    let mut result = Ok(());
    let of_workers = of_threads.iter().filter(|own| !own.is_empty());
    for (numbers, worker) in of_workers.zip(workers) {
        match worker.join()? {
            Ok(own) => {
                for (&number, response) in numbers.iter().zip(own) {
                    responses[number] = response;
                }
            }
            Err(source) => result = result.and(Err(source)),
        }
    }
    result.map_err(|source| LabError::invalid("trace", format!("the device refused a request: {source}")))?;
    let finish_nanos = responses.iter().map(|response| response.begun_nanos + response.nanos).max().unwrap_or(0);
    Ok(Replayed { responses, finish_nanos })
}

fn replay_thread<'a>(
    env: &Env,
    device: &Device,
    begin: Instant,
    requests: impl Iterator<Item = &'a BlockRequest>,
    zeros: &[u8],
    pace: Pace,
) -> Result<Vec<Response>, MediaError> {
    let mut responses = Vec::new();
    let mut buffer = vec![0; zeros.len()];
    let mut before: Option<(u64, u64, u64)> = None;
    let since_begin = |instant: Instant| instant.as_nanos() - begin.as_nanos();
    for request in requests {
        let due = match (pace, before) {
            (Pace::Intervals { .. }, Some((arrival_nanos, begun_nanos, _))) => {
                begun_nanos + request.arrival_nanos.saturating_sub(arrival_nanos)
            }
            (Pace::Pauses { .. }, Some((arrival_nanos, _, ended_nanos))) => {
                ended_nanos + request.arrival_nanos.saturating_sub(arrival_nanos)
            }
            _ => request.arrival_nanos,
        };
        env.sleep_until(begin + Duration::from_nanos(due));
        let begun = env.now();
        let length = request.length_bytes as usize;
        match request.is_write {
            true => device.block.write_at(request.offset_bytes, &zeros[..length], &IoContext::of(IoClass::Other))?,
            false => {
                device.block.read_at(request.offset_bytes, &mut buffer[..length], &IoContext::of(IoClass::UserRead))?;
            }
        }
        let (begun_nanos, ended_nanos) = (since_begin(begun), since_begin(env.now()));
        before = Some((request.arrival_nanos, begun_nanos, ended_nanos));
        responses.push(Response { begun_nanos, nanos: ended_nanos - begun_nanos });
    }
    Ok(responses)
}

#[cfg(test)]
mod tests {
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

    fn run(pace: Pace) -> Replayed {
        let env = Env::sim(1);
        let preset = Preset::find("st8000as0022").unwrap();
        let device = preset.build(&env, "disk", Box::new(NoBacking), Pacing::Sleep);
        let device = Device::of_blocks(Arc::new(device));
        replay(&env, &device, &trace(), pace, Partition::InTurn).unwrap()
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
    }

    #[test]
    fn dependencies_follow_from_latencies() {
        let request = |arrival_nanos: u64, latency: u64| BlockRequest {
            arrival_nanos,
            is_write: false,
            offset_bytes: 0,
            length_bytes: 512,
            latency_nanos: Some(latency),
        };
        // Two at once; the third came when the first was done, the fourth when none was, the fifth when all were.
        let trace = [request(0, 10), request(5, 100), request(12, 50), request(20, 5), request(200, 1)];
        assert_eq!(Partition::ByLatency.threads_of(&trace, 8), [0, 1, 0, 2, 1]);
        // With two threads the fourth waits for whoever is done first.
        assert_eq!(Partition::ByLatency.threads_of(&trace, 2), [0, 1, 0, 0, 1]);
        assert_eq!(Partition::InTurn.threads_of(&trace, 2), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn who_is_late_catches_up_or_does_not() {
        let (stamps, intervals) = (run(Pace::Timestamps { threads: 1 }), run(Pace::Intervals { threads: 1 }));
        assert_eq!(stamps.responses[11].begun_nanos, 2_000_000_000);
        let late = intervals.responses[10].begun_nanos - intervals.responses[9].begun_nanos;
        assert_eq!(late, 1_000_000_000 - 9000);
        assert!(intervals.responses[11].begun_nanos > 2_000_000_000);
    }
}
