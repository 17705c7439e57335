//! Whose requests are: which thread makes which.

use super::request::BlockRequest;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
