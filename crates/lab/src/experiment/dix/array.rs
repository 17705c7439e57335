//! One cell of the figures: a job like fio's on the array of the paper.

use super::Scale;
use super::emulated::bare;
use crate::error::LabError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve::env::{Env, SimOptions};
use varve::media::{BlockDeviceExt, IoContext, MediaError};

/// Processors of the paper's machine.
const PROCESSORS: usize = 24;
/// Bytes of a cell in the paper.
const CELL_BYTES: u64 = 8 << 30;
/// Requests of a cell, at least and at most, whatever the scale.
const REQUESTS: [u64; 2] = [48, 512];

/// Treatment of protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dix {
    Off,
    Paper,
    On,
}

impl Dix {
    pub(super) fn word(self) -> &'static str {
        match self {
            Dix::Off => "off",
            Dix::Paper => "paper",
            Dix::On => "on",
        }
    }
}

/// Order and direction of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    SequentialRead,
    SequentialWrite,
    RandomRead,
    RandomWrite,
}

impl Pattern {
    pub(super) const ALL: [Pattern; 4] =
        [Pattern::SequentialRead, Pattern::SequentialWrite, Pattern::RandomRead, Pattern::RandomWrite];

    pub(super) fn name(self) -> &'static str {
        match self {
            Pattern::SequentialRead => "sequential read",
            Pattern::SequentialWrite => "sequential write",
            Pattern::RandomRead => "random read",
            Pattern::RandomWrite => "random write",
        }
    }

    pub(super) fn file_name(self) -> &'static str {
        match self {
            Pattern::SequentialRead => "sequential-read",
            Pattern::SequentialWrite => "sequential-write",
            Pattern::RandomRead => "random-read",
            Pattern::RandomWrite => "random-write",
        }
    }

    fn is_read(self) -> bool {
        matches!(self, Pattern::SequentialRead | Pattern::RandomRead)
    }

    fn is_random(self) -> bool {
        matches!(self, Pattern::RandomRead | Pattern::RandomWrite)
    }

    /// The larger end of the ranges that the paper prints: latency growth in percent, added latency in ms, bandwidth drop in percent.
    pub(super) fn largest_in_paper(self) -> [f64; 3] {
        match self {
            Pattern::SequentialRead => [14.0, 0.7, 20.0],
            Pattern::SequentialWrite => [7.0, 5.0, 13.0],
            Pattern::RandomRead => [14.0, 0.7, 5.0],
            Pattern::RandomWrite => [7.0, 5.0, 5.0],
        }
    }
}

/// A job like fio's: requests of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) dix: Dix,
    pub(super) pattern: Pattern,
    pub(super) bytes: u64,
    /// Requests in flight.
    pub(super) depth: u64,
    pub(super) requests: u64,
    /// Guard of the tuples, and the disks' caches, as in a spec.
    pub(super) guard: &'static str,
    pub(super) caches: &'static str,
    /// Place of the journal of stripes, as in a spec.
    pub(super) journal: &'static str,
}

impl Job {
    /// Requests of a cell at a scale.
    pub(super) fn requests_of(scale: Scale, bytes: u64) -> u64 {
        scale.of(CELL_BYTES / bytes).clamp(REQUESTS[0], REQUESTS[1])
    }
}

/// Cost of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Mean time of a request.
    pub(super) latency_nanos: f64,
    pub(super) bytes_per_second: f64,
    /// Mean processor time of a request.
    pub(super) cpu_nanos: f64,
}

/// Runs a job in a simulation of its own.
pub(super) fn measure(seed: u64, job: &Job) -> Result<Cell, LabError> {
    let job = *job;
    let options = SimOptions { seed, processors: PROCESSORS, ..SimOptions::default() };
    let simulation = move || {
        let env = Env::sim_with(options);
        let of_client = env.clone();
        env.spawn("client", move || run(&of_client, &job, seed)).join()
    };
    Env::real().spawn("simulation", simulation).join()??
}

fn run(env: &Env, job: &Job, seed: u64) -> Result<Cell, LabError> {
    let (guard, caches, journal, dix) = (job.guard, job.caches, job.journal, job.dix.word());
    let disk = format!("disk:6TB?model=st6000nm0034,pi=1,guard={guard},caches={caches},backing=none");
    let device = bare(env, &format!("raid6:({disk})?members=10,chunk=512KiB,dix={dix},journal={journal}"))?;
    let places = device.block.geometry().capacity_bytes / job.bytes;
    let next = Arc::new(AtomicU64::new(0));
    let (start_nanos, start_cpu_nanos) = (env.now(), env.charged_total_nanos());
    let client = |number: u64| {
        let (env, device, next, job) = (env.clone(), device.clone(), Arc::clone(&next), *job);
        env.clone().spawn("job", move || -> Result<u64, MediaError> {
            let mut random = varve::env::Random::named(seed, &format!("places of client {number}"));
            let mut data = vec![0x5A; job.bytes as usize];
            let mut waited_nanos = 0;
            loop {
                let request = next.fetch_add(1, Ordering::Relaxed);
                if request >= job.requests {
                    return Ok(waited_nanos);
                }
                let place = if job.pattern.is_random() { random.below(places) } else { request % places };
                let before = env.now();
                match job.pattern.is_read() {
                    true => device.block.read_at(place * job.bytes, &mut data, &IoContext::default())?,
                    false => device.block.write_at(place * job.bytes, &data, &IoContext::default())?,
                }
                env.settle();
                waited_nanos += (env.now() - before).as_nanos() as u64;
            }
        })
    };
    let clients: Vec<_> = (0..job.depth).map(client).collect();
    let mut waited_nanos = 0;
    for client in clients {
        waited_nanos += client.join()??;
    }
    let elapsed = (env.now() - start_nanos).as_secs_f64();
    let requests = job.requests as f64;
    Ok(Cell {
        latency_nanos: waited_nanos as f64 / requests,
        bytes_per_second: requests * job.bytes as f64 / elapsed,
        cpu_nanos: (env.charged_total_nanos() - start_cpu_nanos) as f64 / requests,
    })
}
