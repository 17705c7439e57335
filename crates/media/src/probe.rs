//! How fast a device is: small synthetic jobs, as fio runs them, on any device under its env.

use crate::context::IoContext;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::error::MediaError;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Env, Random};

/// Order and direction of a probe's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Reads, one behind the other.
    SequentialRead,
    /// Writes, one behind the other, and a sync at the end that counts into the time.
    SequentialWrite,
    /// Reads at uniformly random multiples of the request size.
    RandomRead,
    /// Writes at uniformly random multiples of the request size, and a sync at the end that counts.
    RandomWrite,
    /// Writes, one behind the other, each followed by a sync: the life of a log.
    SyncedWrite,
}

/// A job of equal requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What it does.
    pub pattern: Pattern,
    /// Bytes of a request; a multiple of the device's sector.
    pub request_bytes: u64,
    /// Requests in flight, each issued by an actor of its own; at least 1.
    pub depth: u32,
    /// Requests in all.
    pub requests: u64,
    /// The part of the device it uses; sequential patterns start over at its end.
    pub region: Range<u64>,
    /// Seed of the random patterns.
    pub seed: u64,
}

/// What a probe saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Requests done.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// From the first request to the end of the last, or of the sync behind it.
    pub elapsed_nanos: u64,
    /// Time of each request (with its sync, for [`Pattern::SyncedWrite`]), ascending.
    latencies_nanos: Vec<u64>,
}

impl ProbeResult {
    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 * 1e9 / self.elapsed_nanos.max(1) as f64
    }

    /// Requests per second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_nanos.max(1) as f64
    }

    /// The latency that `percent` of the requests did not exceed; 0 if there were none.
    pub fn latency_nanos(&self, percent: u8) -> u64 {
        let rank = (self.latencies_nanos.len() * usize::from(percent.min(100))).div_ceil(100).max(1);
        self.latencies_nanos.get(rank - 1).copied().unwrap_or(0)
    }

    /// Mean latency; 0 if there were no requests.
    pub fn mean_latency_nanos(&self) -> u64 {
        let total: u128 = self.latencies_nanos.iter().map(|&nanos| u128::from(nanos)).sum();
        (total / self.latencies_nanos.len().max(1) as u128) as u64
    }
}

impl Probe {
    /// Runs the job. `env` is the device's; writing patterns overwrite the region.
    ///
    /// # Errors
    /// The first error of the device; the job then ends early.
    ///
    /// # Panics
    /// If an actor of the job panics.
    pub fn run(&self, env: &Env, device: &Arc<dyn BlockDevice>) -> Result<ProbeResult, MediaError> {
        let begin = env.now();
        let next = Arc::new(AtomicU64::new(0));
        let depth = u64::from(self.depth.max(1)).min(self.requests);
        let mut latencies_nanos = if depth <= 1 {
            self.work(env, &**device, &next, self.seed)?
        } else {
            let workers: Vec<_> = (0..depth)
                .map(|worker| {
                    let (probe, next) = (self.clone(), Arc::clone(&next));
                    let (inner, device) = (env.clone(), Arc::clone(device));
                    let seed = self.seed ^ worker << 32;
                    env.spawn("probe", move || probe.work(&inner, &*device, &next, seed))
                })
                .collect();
            let mut all = Vec::new();
            let mut failure = None;
            for worker in workers {
                match worker.join() {
                    Ok(Ok(latencies)) => all.extend(latencies),
                    Ok(Err(error)) => failure = failure.or(Some(error)),
                    Err(panicked) => panicked.resume(),
                }
            }
            match failure {
                Some(error) => return Err(error),
                None => all,
            }
        };
        if matches!(self.pattern, Pattern::SequentialWrite | Pattern::RandomWrite) {
            device.sync(&IoContext::default())?;
        }
        let elapsed_nanos = (env.now() - begin).as_nanos() as u64;
        latencies_nanos.sort_unstable();
        let requests = latencies_nanos.len() as u64;
        Ok(ProbeResult { requests, bytes: requests * self.request_bytes, elapsed_nanos, latencies_nanos })
    }

    /// Issues requests one at a time until none are left; gives their latencies. On interlaced tracks
    /// writes leave unreadable what they destroyed; the device spends its time on those reads all the same.
    fn work(&self, env: &Env, device: &dyn BlockDevice, next: &AtomicU64, seed: u64) -> Result<Vec<u64>, MediaError> {
        let context = IoContext::default();
        let mut random = Random::seeded(seed);
        let mut buffer = vec![0; self.request_bytes as usize];
        let places = ((self.region.end - self.region.start) / self.request_bytes.max(1)).max(1);
        let mut latencies = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= self.requests {
                return Ok(latencies);
            }
            let place = match self.pattern {
                Pattern::RandomRead | Pattern::RandomWrite => random.below(places),
                _ => number % places,
            };
            let offset = self.region.start + place * self.request_bytes;
            let begin = env.now();
            let outcome = match self.pattern {
                Pattern::SequentialRead | Pattern::RandomRead => device.read_at(offset, &mut buffer, &context),
                Pattern::SequentialWrite | Pattern::RandomWrite => device.write_at(offset, &buffer, &context),
                Pattern::SyncedWrite => device.write_at(offset, &buffer, &context).and_then(|()| device.sync(&context)),
            };
            let destroyed =
                matches!(outcome, Err(MediaError::Unreadable { .. })) && device.capabilities().tracks.is_some();
            if let Err(error) = outcome
                && !destroyed
            {
                next.store(self.requests, Ordering::Relaxed);
                return Err(error);
            }
            latencies.push((env.now() - begin).as_nanos() as u64);
        }
    }
}

/// What a device does on the usual jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Characterization {
    /// Sequential read at the beginning of the device.
    pub outer_read_bytes_per_second: f64,
    /// Sequential write at the beginning of the device.
    pub outer_write_bytes_per_second: f64,
    /// Sequential read in spots over the whole device: all bytes over all time.
    pub average_read_bytes_per_second: f64,
    /// Sequential write likewise.
    pub average_write_bytes_per_second: f64,
    /// Random reads of 4 KiB per second, one at a time.
    pub random_reads_per_second: f64,
    /// Random reads of 4 KiB per second, 32 at a time.
    pub deep_random_reads_per_second: f64,
    /// Random writes of 4 KiB per second, one at a time, the final sync included.
    pub random_writes_per_second: f64,
    /// Mean time of a 4 KiB append with its sync.
    pub synced_append_nanos: u64,
}

/// How large the jobs of a [`Characterization`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CharacterizationOptions {
    /// Request size of the sequential jobs.
    pub sequential_request_bytes: u64,
    /// Requests in flight in the sequential jobs.
    pub sequential_depth: u32,
    /// Bytes of each sequential job at the beginning. Well above the device's cache.
    pub sequential_bytes: u64,
    /// Spots of the jobs over the whole device; each moves `sequential_bytes` / 4.
    pub spots: u64,
    /// Requests of each random job.
    pub random_requests: u64,
    /// Seed of the random jobs.
    pub seed: u64,
}

impl Default for CharacterizationOptions {
    /// 1 MiB at a time, 1 GiB a job, 16 spots, 2,000 random requests.
    fn default() -> Self {
        CharacterizationOptions {
            sequential_request_bytes: 1 << 20,
            sequential_depth: 1,
            sequential_bytes: 1 << 30,
            spots: 16,
            random_requests: 2_000,
            seed: 1,
        }
    }
}

impl Characterization {
    /// Measures `device`, whose env is `env`. Overwrites it. Jobs are cut to the device's size.
    ///
    /// # Errors
    /// The first error of the device.
    pub fn measure(
        env: &Env,
        device: &Arc<dyn BlockDevice>,
        options: &CharacterizationOptions,
    ) -> Result<Self, MediaError> {
        let capacity = device.geometry().capacity_bytes;
        let random_bytes = u64::from(device.geometry().sector_bytes).max(4096);
        let sequential = |pattern, start: u64, bytes: u64| {
            let request_bytes = options.sequential_request_bytes.min(capacity);
            let start = start.min(capacity - request_bytes) / random_bytes * random_bytes;
            let bytes = bytes.min(capacity - start).max(request_bytes);
            Probe {
                pattern,
                request_bytes,
                depth: options.sequential_depth,
                requests: bytes / request_bytes,
                region: start..start + bytes,
                seed: options.seed,
            }
        };
        let average = |pattern| -> Result<f64, MediaError> {
            let (mut bytes, mut nanos) = (0, 0);
            let each = options.sequential_bytes / 4;
            for spot in 0..options.spots.max(1) {
                let middle = capacity / options.spots.max(1) / 2 * (2 * spot + 1);
                let result = sequential(pattern, middle.saturating_sub(each / 2), each).run(env, device)?;
                bytes += result.bytes;
                nanos += result.elapsed_nanos;
            }
            Ok(bytes as f64 * 1e9 / nanos.max(1) as f64)
        };
        let random = |pattern, depth, requests| {
            let probe = Probe {
                pattern,
                request_bytes: random_bytes,
                depth,
                requests,
                region: 0..capacity,
                seed: options.seed,
            };
            probe.run(env, device)
        };
        let outer = |pattern| Ok(sequential(pattern, 0, options.sequential_bytes).run(env, device)?.bytes_per_second());
        let requests = options.random_requests;
        Ok(Characterization {
            outer_read_bytes_per_second: outer(Pattern::SequentialRead)?,
            outer_write_bytes_per_second: outer(Pattern::SequentialWrite)?,
            average_read_bytes_per_second: average(Pattern::SequentialRead)?,
            average_write_bytes_per_second: average(Pattern::SequentialWrite)?,
            random_reads_per_second: random(Pattern::RandomRead, 1, requests)?.requests_per_second(),
            deep_random_reads_per_second: random(Pattern::RandomRead, 32, requests)?.requests_per_second(),
            random_writes_per_second: random(Pattern::RandomWrite, 1, requests)?.requests_per_second(),
            synced_append_nanos: random(Pattern::SyncedWrite, 1, requests / 4)?.mean_latency_nanos(),
        })
    }
}
