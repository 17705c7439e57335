//! A solid-state drive: flash dies behind a controller.
//!
//! A command passes the controller, its pages are read from or programmed into dies that work side
//! by side, and its bytes cross pipes of limited rate. Everything about a command follows when it
//! is begun, so its completion time is known at once. Garbage collection is not modelled: the
//! medium writes what the host writes, rounded up to pages when a flush closes a page early.

use super::{MediaCounters, Task, Timing, Work};
use crate::device::Capabilities;
use std::collections::{BTreeSet, VecDeque};

/// Everything about one solid-state drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsdParameters {
    /// Addressable bytes.
    pub capacity_bytes: u64,
    /// Dies that work side by side.
    pub dies: usize,
    /// Unit of reading and programming a die.
    pub page_bytes: u64,
    /// Time a die needs to read a page.
    pub page_read_nanos: u64,
    /// Time a die needs to program a page.
    pub page_program_nanos: u64,
    /// What a read loses when it suspends a program in its die.
    pub suspend_nanos: u64,
    /// Rate of all reads together.
    pub read_bytes_per_second: u64,
    /// Rate of all writes together.
    pub write_bytes_per_second: u64,
    /// Rate of one read command.
    pub stream_read_bytes_per_second: u64,
    /// Rate of one write command.
    pub stream_write_bytes_per_second: u64,
    /// Latency the controller adds to a read.
    pub read_overhead_nanos: u64,
    /// Latency the controller adds to a write or any other command.
    pub write_overhead_nanos: u64,
    /// Shortest time between two commands.
    pub command_interval_nanos: u64,
    /// Bytes accepted before they are programmed. At least a page.
    pub write_cache_bytes: u64,
    /// Accepted bytes survive a power cut: flushing has nothing to wait for.
    pub power_loss_protection: bool,
    /// What a flush costs beside the programming it waits for.
    pub flush_nanos: u64,
    /// What resetting a zone costs.
    pub zone_reset_nanos: u64,
    /// What finishing a zone costs that has nothing left to fill.
    pub zone_finish_nanos: u64,
    /// Rate at which a finish fills what was not written.
    pub zone_finish_bytes_per_second: u64,
    /// Commands in progress at once.
    pub queue_depth: u32,
}

impl SsdParameters {
    /// The similar drive with every size and every time divided by `divisor`; rates, dies and the
    /// queue stay.
    pub fn scaled(&self, divisor: u64) -> Self {
        let divisor = divisor.max(1);
        SsdParameters {
            capacity_bytes: (self.capacity_bytes / divisor / 4096 * 4096).max(4096),
            page_bytes: (self.page_bytes / divisor).max(1),
            page_read_nanos: self.page_read_nanos / divisor,
            page_program_nanos: self.page_program_nanos / divisor,
            suspend_nanos: self.suspend_nanos / divisor,
            read_overhead_nanos: self.read_overhead_nanos / divisor,
            write_overhead_nanos: self.write_overhead_nanos / divisor,
            command_interval_nanos: self.command_interval_nanos / divisor,
            write_cache_bytes: self.write_cache_bytes / divisor,
            flush_nanos: self.flush_nanos / divisor,
            zone_reset_nanos: self.zone_reset_nanos / divisor,
            zone_finish_nanos: self.zone_finish_nanos / divisor,
            ..self.clone()
        }
    }

    /// The same drive with another capacity. Dies stay as many: parallelism is a property of the
    /// preset, not of how much of it is used.
    pub fn with_capacity(&self, capacity_bytes: u64) -> Self {
        SsdParameters { capacity_bytes, ..self.clone() }
    }
}

/// A solid-state drive as a state machine. See the module's comment.
#[derive(Debug)]
pub struct Ssd {
    parameters: SsdParameters,
    now_nanos: u64,
    /// When each die can begin the next read.
    die_read_free_nanos: Vec<u64>,
    /// When each die has programmed what it was given.
    die_program_free_nanos: Vec<u64>,
    /// The die that takes the next written page.
    next_die: usize,
    read_pipe_free_nanos: u64,
    write_pipe_free_nanos: u64,
    controller_free_nanos: u64,
    /// Bytes in the cache that do not fill a page yet.
    open_page_bytes: u64,
    /// Pages on their way into dies: (time when they are there, bytes), as they were given.
    programming: VecDeque<(u64, u64)>,
    /// When everything given to the dies is there.
    programmed_nanos: u64,
    waiting: VecDeque<Task>,
    /// Commands in progress: (time, order, id, whether a flush).
    completions: BTreeSet<(u64, u64, u64, bool)>,
    completion_order: u64,
    flushes_in_progress: usize,
    counters: MediaCounters,
}

fn nanos_of(bytes: u64, bytes_per_second: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1))) as u64
}

impl Ssd {
    /// An idle drive.
    pub fn new(parameters: SsdParameters) -> Self {
        let dies = parameters.dies.max(1);
        Ssd {
            now_nanos: 0,
            die_read_free_nanos: vec![0; dies],
            die_program_free_nanos: vec![0; dies],
            next_die: 0,
            read_pipe_free_nanos: 0,
            write_pipe_free_nanos: 0,
            controller_free_nanos: 0,
            open_page_bytes: 0,
            programming: VecDeque::new(),
            programmed_nanos: 0,
            waiting: VecDeque::new(),
            completions: BTreeSet::new(),
            completion_order: 0,
            flushes_in_progress: 0,
            counters: MediaCounters::default(),
            parameters: SsdParameters { dies, page_bytes: parameters.page_bytes.max(1), ..parameters },
        }
    }

    /// Begins a command now; its completion time is then known.
    fn begin(&mut self, task: Task) {
        let begin = self.controller_free_nanos.max(self.now_nanos);
        self.controller_free_nanos = begin + self.parameters.command_interval_nanos;
        let done = match task.work {
            Work::Read => self.read(begin, task.offset_bytes, task.length_bytes),
            Work::Write { durable } => {
                let accepted = self.write(begin, task.length_bytes);
                if durable { self.flushed(accepted) } else { accepted }
            }
            Work::Discard | Work::ManageZone => begin + self.parameters.write_overhead_nanos,
            Work::ResetZone => begin + self.parameters.write_overhead_nanos + self.parameters.zone_reset_nanos,
            Work::FinishZone => {
                let fill = nanos_of(task.length_bytes, self.parameters.zone_finish_bytes_per_second);
                begin + self.parameters.write_overhead_nanos + self.parameters.zone_finish_nanos + fill
            }
            Work::Flush => self.flushed(begin + self.parameters.write_overhead_nanos),
        };
        let flush = task.work == Work::Flush;
        self.flushes_in_progress += usize::from(flush);
        self.completion_order += 1;
        self.completions.insert((done, self.completion_order, task.id, flush));
    }

    fn read(&mut self, begin: u64, offset: u64, length: u64) -> u64 {
        let SsdParameters { page_bytes, page_read_nanos, suspend_nanos, read_overhead_nanos, .. } = self.parameters;
        let SsdParameters { read_bytes_per_second, stream_read_bytes_per_second, .. } = self.parameters;
        let begin = begin + read_overhead_nanos;
        let end = offset + length;
        let mut streamed = begin;
        let mut at = offset;
        while at < end {
            let page = at / page_bytes;
            let bytes = ((page + 1) * page_bytes).min(end) - at;
            at += bytes;
            let die = (page % self.parameters.dies as u64) as usize;
            let mut read = begin.max(self.die_read_free_nanos[die]);
            if self.die_program_free_nanos[die] > read {
                read += suspend_nanos;
                self.die_program_free_nanos[die] += suspend_nanos + page_read_nanos;
            }
            read += page_read_nanos;
            self.die_read_free_nanos[die] = read;
            streamed = streamed.max(read) + nanos_of(bytes, stream_read_bytes_per_second);
            self.read_pipe_free_nanos = self.read_pipe_free_nanos.max(read) + nanos_of(bytes, read_bytes_per_second);
            self.counters.read_bytes += page_bytes;
        }
        streamed.max(self.read_pipe_free_nanos)
    }

    fn write(&mut self, begin: u64, length: u64) -> u64 {
        let SsdParameters { page_bytes, write_bytes_per_second, stream_write_bytes_per_second, .. } = self.parameters;
        let cache = self.parameters.write_cache_bytes.max(page_bytes);
        let mut streamed = begin + self.parameters.write_overhead_nanos;
        let mut rest = length;
        while rest > 0 {
            let bytes = rest.min(page_bytes - self.open_page_bytes);
            rest -= bytes;
            // Space appears when the oldest pages have been programmed.
            while let Some(&(there, page)) = self.programming.front() {
                let occupied: u64 = self.cached_bytes();
                if there <= streamed || occupied + bytes > cache {
                    streamed = streamed.max(there);
                    self.programming.pop_front();
                    self.counters.written_bytes += page;
                } else {
                    break;
                }
            }
            self.write_pipe_free_nanos =
                self.write_pipe_free_nanos.max(streamed) + nanos_of(bytes, write_bytes_per_second);
            streamed = (streamed + nanos_of(bytes, stream_write_bytes_per_second)).max(self.write_pipe_free_nanos);
            self.open_page_bytes += bytes;
            if self.open_page_bytes == page_bytes {
                self.close_page(streamed);
            }
        }
        streamed
    }

    fn cached_bytes(&self) -> u64 {
        self.programming.len() as u64 * self.parameters.page_bytes + self.open_page_bytes
    }

    /// Gives the open page to a die.
    fn close_page(&mut self, nanos: u64) {
        let die = self.next_die;
        self.next_die = (die + 1) % self.parameters.dies;
        let begin = nanos.max(self.die_program_free_nanos[die]).max(self.die_read_free_nanos[die]);
        let there = begin + self.parameters.page_program_nanos;
        self.die_program_free_nanos[die] = there;
        self.programmed_nanos = self.programmed_nanos.max(there);
        self.programming.push_back((there, self.parameters.page_bytes));
        self.open_page_bytes = 0;
    }

    /// When everything accepted so far is in the dies, or as good as.
    fn flushed(&mut self, nanos: u64) -> u64 {
        if self.parameters.power_loss_protection {
            return nanos + self.parameters.flush_nanos;
        }
        if self.open_page_bytes > 0 {
            self.close_page(nanos);
        }
        nanos.max(self.programmed_nanos) + self.parameters.flush_nanos
    }

    fn pass(&mut self, nanos: u64) {
        let passed = nanos.saturating_sub(self.now_nanos);
        let time = &mut self.counters.time;
        let in_progress = self.completions.len();
        if in_progress == 0 {
            time.idle_nanos += passed;
        } else if in_progress == self.flushes_in_progress {
            time.flush_nanos += passed;
        } else {
            time.transfer_nanos += passed;
        }
        self.now_nanos = self.now_nanos.max(nanos);
        while let Some(&(there, page)) = self.programming.front()
            && there <= self.now_nanos
        {
            self.programming.pop_front();
            self.counters.written_bytes += page;
        }
    }

    fn begin_waiting(&mut self) {
        while self.completions.len() < self.parameters.queue_depth.max(1) as usize
            && let Some(task) = self.waiting.pop_front()
        {
            self.begin(task);
        }
    }
}

impl Timing for Ssd {
    fn describe(&self, capabilities: &mut Capabilities) {
        capabilities.rotational = false;
        capabilities.volatile_cache = !self.parameters.power_loss_protection;
        capabilities.queue_depth = self.parameters.queue_depth.max(1);
    }

    fn submit(&mut self, now_nanos: u64, task: Task) {
        self.pass(now_nanos);
        self.waiting.push_back(task);
        self.begin_waiting();
    }

    fn advance(&mut self, now_nanos: u64, completed: &mut Vec<u64>) {
        while let Some(&command) = self.completions.first()
            && command.0 <= now_nanos
        {
            self.pass(command.0);
            self.completions.remove(&command);
            self.flushes_in_progress -= usize::from(command.3);
            completed.push(command.2);
            self.begin_waiting();
        }
        self.pass(now_nanos);
    }

    fn next_event_nanos(&self) -> Option<u64> {
        self.completions.first().map(|&(nanos, ..)| nanos)
    }

    fn counters(&self, _now_nanos: u64) -> MediaCounters {
        self.counters.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use varve_env::Random;

    fn parameters() -> SsdParameters {
        SsdParameters {
            capacity_bytes: 1 << 30,
            dies: 8,
            page_bytes: 16 << 10,
            page_read_nanos: 50_000,
            page_program_nanos: 500_000,
            suspend_nanos: 20_000,
            read_bytes_per_second: 2_000_000_000,
            write_bytes_per_second: 1_000_000_000,
            stream_read_bytes_per_second: 1_000_000_000,
            stream_write_bytes_per_second: 1_000_000_000,
            read_overhead_nanos: 10_000,
            write_overhead_nanos: 10_000,
            command_interval_nanos: 1_000,
            write_cache_bytes: 1 << 20,
            power_loss_protection: false,
            flush_nanos: 100_000,
            zone_reset_nanos: 2_000_000,
            zone_finish_nanos: 1_000_000,
            zone_finish_bytes_per_second: 1_000_000_000,
            queue_depth: 32,
        }
    }

    /// Submits tasks at 0 and gives when each completes.
    fn serve(ssd: &mut Ssd, tasks: &[(Work, u64, u64)]) -> Vec<u64> {
        let begin = ssd.now_nanos;
        for (id, &(work, offset_bytes, length_bytes)) in tasks.iter().enumerate() {
            ssd.submit(begin, Task { id: id as u64, work, offset_bytes, length_bytes });
        }
        let mut times = vec![0; tasks.len()];
        let mut done = Vec::new();
        while let Some(nanos) = ssd.next_event_nanos() {
            ssd.advance(nanos, &mut done);
            for id in done.drain(..) {
                times[id as usize] = nanos;
            }
        }
        times
    }

    #[test]
    fn lone_read_is_overhead_flash_and_transfer() {
        let mut ssd = Ssd::new(parameters());
        assert_eq!(serve(&mut ssd, &[(Work::Read, 0, 4096)]), [10_000 + 50_000 + 4_096]);
    }

    #[test]
    fn dies_work_side_by_side() {
        let reads = |stride: u64| -> Vec<_> { (0..8).map(|number| (Work::Read, number * stride, 4096)).collect() };
        let apart = serve(&mut Ssd::new(parameters()), &reads(16 << 10));
        let same = serve(&mut Ssd::new(parameters()), &reads(8 * (16 << 10)));
        assert!(apart.iter().max().unwrap() < &80_000, "{apart:?}");
        assert!(same.iter().max().unwrap() > &400_000, "{same:?}");
    }

    #[test]
    fn writes_run_at_cache_speed_until_the_cache_is_full() {
        let write = (Work::Write { durable: false }, 0, 64 << 10);
        let mut ssd = Ssd::new(parameters());
        assert_eq!(serve(&mut ssd, &[write]), [10_000 + 65_536]);
        // 8 dies program 16 KiB each in 500 us: 262 MB/s.
        let begin = ssd.now_nanos;
        for _ in 0..1_024 {
            serve(&mut ssd, &[write]);
        }
        let rate = (64 << 20) as f64 * 1e9 / (ssd.now_nanos - begin) as f64;
        assert!((255e6..275e6).contains(&rate), "{rate}");
    }

    #[test]
    fn flush_waits_for_the_dies_unless_capacitors_do() {
        let tasks = [(Work::Write { durable: false }, 0, 4096), (Work::Flush, 0, 0)];
        let plain = serve(&mut Ssd::new(parameters()), &tasks);
        assert!(plain[0] < 20_000 && plain[1] > 600_000, "{plain:?}");
        let protected = serve(&mut Ssd::new(SsdParameters { power_loss_protection: true, ..parameters() }), &tasks);
        assert!(protected[1] < 120_000, "{protected:?}");
        let durable = serve(&mut Ssd::new(parameters()), &[(Work::Write { durable: true }, 0, 4096)]);
        assert!(durable[0] > 600_000, "{durable:?}");
    }

    #[test]
    fn zone_commands_cost_what_the_parameters_say() {
        let mut ssd = Ssd::new(parameters());
        let tasks = [(Work::ResetZone, 0, 1 << 20), (Work::FinishZone, 0, 1_000_000), (Work::ManageZone, 0, 0)];
        let times = tasks.map(|task| {
            let begin = ssd.now_nanos;
            serve(&mut ssd, &[task])[0] - begin
        });
        assert_eq!(times, [2_010_000, 1_010_000 + 1_000_000, 10_000]);
        let scaled = parameters().scaled(10);
        assert_eq!((scaled.zone_reset_nanos, scaled.zone_finish_nanos), (200_000, 100_000));
    }

    #[test]
    fn parts_of_time_add_up_and_every_task_completes() {
        for seed in 0..20 {
            let mut random = Random::seeded(seed);
            let mut ssd = Ssd::new(parameters());
            let (mut now, mut done) = (0, Vec::new());
            for id in 0..500 {
                now += random.below(4) * random.below(200_000);
                ssd.advance(now, &mut done);
                let work = match random.below(10) {
                    0 => Work::Flush,
                    1 => Work::Discard,
                    2..6 => Work::Write { durable: random.chance(1, 8) },
                    _ => Work::Read,
                };
                let (offset_bytes, length_bytes) = (random.below(1 << 20) * 512, 512 << random.below(9));
                ssd.submit(now, Task { id, work, offset_bytes, length_bytes });
            }
            while let Some(nanos) = ssd.next_event_nanos() {
                now = nanos;
                ssd.advance(now, &mut done);
            }
            assert_eq!(done.len(), 500, "seed {seed}");
            let time = ssd.counters(now).time;
            assert_eq!(time.transfer_nanos + time.flush_nanos + time.idle_nanos, now, "seed {seed}");
        }
    }
}
