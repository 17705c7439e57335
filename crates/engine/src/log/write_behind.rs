//! A log whose bytes go to the medium behind the writers' backs.
//!
//! Where handing over is a request to a device, the writer that fills the log buffer pays for all who filled it: of 250
//! puts without a sync 249 take microseconds and one as long as writing a mebibyte. Here a thread of the log does that
//! writing, and writers wait only when more is on its way than they are allowed to leave behind. A sync waits until
//! nothing is, and goes to the medium from the thread that asked for it.
//!
//! What the medium holds is a prefix of what was appended, as without it. What is on its way is lost with the process.

use super::{LogGate, Throughput};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use varve_env::{Condvar, Env, JoinHandle, Mutex};
use varve_store::{IoContext, StoreError, WritableFile};

/// Of what may be on its way one part in so many goes to the medium in one request: the larger the more a busy medium does, but writers get its
/// place at its end only.
const REQUEST_PARTS: u64 = 4;

/// What is on its way to the medium, of all logs of one tree together.
pub(crate) struct LogBacklog {
    /// Bytes that may be on their way before writers wait.
    limit_bytes: u64,
    bytes: AtomicU64,
    rate: Throughput,
    /// What log writes wait at while somebody else has the medium.
    gate: LogGate,
}

impl LogBacklog {
    /// With a limit of nothing, writers write.
    pub(crate) fn new(limit_bytes: u64, gate: LogGate) -> LogBacklog {
        LogBacklog { limit_bytes, bytes: AtomicU64::new(0), rate: Throughput::default(), gate }
    }

    /// What whoever writes a log passes.
    pub(crate) fn gate(&self) -> &LogGate {
        &self.gate
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes handed over and not yet written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How fast they were written of late.
    pub(crate) fn rate(&self) -> &Throughput {
        &self.rate
    }
}

/// A log file and the thread that writes it.
pub(super) struct WriteBehind {
    shared: Arc<WriteBehindLog>,
    /// Appended and not handed over.
    buffer: Vec<u8>,
    thread: Option<JoinHandle<()>>,
}

struct WriteBehindLog {
    env: Env,
    state: Mutex<PendingBuffers>,
    changed: Condvar,
    /// Held across I/O.
    file: Mutex<Option<Box<dyn WritableFile>>>,
    context: IoContext,
    backlog: Arc<LogBacklog>,
}

#[derive(Default)]
struct PendingBuffers {
    queue: VecDeque<Vec<u8>>,
    /// Bytes queued or being written.
    bytes: u64,
    /// A buffer that was written, to be filled again.
    spare: Vec<u8>,
    is_writing: bool,
    failure: Option<StoreError>,
    /// What the thread panicked with: whoever finds it goes on with that.
    panic: Option<Box<dyn Any + Send>>,
    ended: bool,
}

impl WriteBehind {
    /// Starts the thread.
    pub(super) fn new(file: Box<dyn WritableFile>, context: IoContext, env: &Env, backlog: Arc<LogBacklog>) -> Self {
        let shared = Arc::new(WriteBehindLog {
            env: env.clone(),
            state: Mutex::new(env, "log on its way", PendingBuffers::default()),
            changed: Condvar::new(env, "log written"),
            file: Mutex::new(env, "log file", Some(file)),
            context,
            backlog,
        });
        let thread = {
            let shared = shared.clone();
            env.spawn("log", move || shared.write_queued())
        };
        WriteBehind { shared, buffer: Vec::new(), thread: Some(thread) }
    }

    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Gives what was appended to the thread. Waits while too much is on its way.
    pub(super) fn hand_over(&mut self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        let bytes = self.buffer.len() as u64;
        let mut state = shared.state.lock();
        loop {
            state.refuse_after_failure()?;
            if state.bytes == 0 || state.bytes + bytes <= shared.backlog.limit_bytes {
                break;
            }
            shared.changed.wait(&mut state);
        }
        if bytes > 0 {
            let next = std::mem::take(&mut state.spare);
            state.queue.push_back(std::mem::replace(&mut self.buffer, next));
            state.bytes += bytes;
            shared.backlog.bytes.fetch_add(bytes, Ordering::Relaxed);
            shared.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until nothing is on its way, and does `last` with the file once it has what was appended.
    pub(super) fn with_all_written(
        &mut self,
        last: impl FnOnce(&mut dyn WritableFile, &IoContext) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let shared = &*self.shared;
        {
            let mut state = shared.state.lock();
            while !state.is_at_rest() {
                shared.changed.wait(&mut state);
            }
            state.refuse_after_failure()?;
        }
        let result = match shared.file.lock().as_mut() {
            Some(file) => {
                append_all(&mut **file, &self.buffer, &shared.context).and_then(|()| last(&mut **file, &shared.context))
            }
            None => Ok(()),
        };
        self.buffer.clear();
        if let Err(error) = &result {
            shared.state.lock().failure = Some(error.clone());
        }
        result
    }

    /// Writes everything and closes the file.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        self.with_all_written(|_, _| Ok(()))?;
        self.end();
        let file = self.shared.file.lock().take();
        file.map_or(Ok(()), |file| file.finish(&self.shared.context))
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        {
            let mut state = self.shared.state.lock();
            state.ended = true;
            self.shared.changed.notify_all();
        }
        // It catches what panics within it.
        let _ = thread.join();
    }
}

/// What is on its way is given up: nobody needs a log that is not finished.
impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.end();
    }
}

impl PendingBuffers {
    fn is_at_rest(&self) -> bool {
        self.failure.is_some() || (self.queue.is_empty() && !self.is_writing)
    }

    fn refuse_after_failure(&mut self) -> Result<(), StoreError> {
        if let Some(payload) = self.panic.take() {
            resume_unwind(payload);
        }
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl WriteBehindLog {
    /// The thread: writes what is queued until it is told to end.
    fn write_queued(&self) {
        let mut state = self.state.lock();
        loop {
            if state.ended || state.failure.is_some() {
                state.queue.clear();
                let given_up = std::mem::take(&mut state.bytes);
                self.backlog.bytes.fetch_sub(given_up, Ordering::Relaxed);
                self.changed.notify_all();
            }
            if state.ended {
                return;
            }
            if state.queue.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            let mut buffers = std::mem::take(&mut state.queue);
            state.is_writing = true;
            drop(state);
            let pass = self.backlog.gate.pass();
            let mut begin = 0;
            let written = loop {
                let end = begin + request_buffers(&buffers, begin, self.backlog.limit_bytes / REQUEST_PARTS);
                let start = self.env.now();
                let written = catch_unwind(AssertUnwindSafe(|| match self.file.lock().as_mut() {
                    Some(file) => {
                        let mut appended = buffers.range(begin..end);
                        let appended = appended.try_for_each(|bytes| append_all(&mut **file, bytes, &self.context));
                        appended.and_then(|()| file.flush(&self.context))
                    }
                    None => Ok(()),
                }));
                let nanos = self.env.now().as_nanos() - start.as_nanos();
                let is_last = end == buffers.len() || !matches!(written, Ok(Ok(())));
                // What is given up after a failure is not on its way either.
                let through = if is_last { buffers.len() } else { end };
                let bytes: u64 = buffers.range(begin..through).map(|bytes| bytes.len() as u64).sum();
                self.backlog.rate.note(bytes, nanos);
                self.backlog.bytes.fetch_sub(bytes, Ordering::Relaxed);
                if is_last {
                    drop(pass);
                    state = self.state.lock();
                    state.bytes -= bytes;
                    break written;
                }
                self.state.lock().bytes -= bytes;
                self.changed.notify_all();
                begin = end;
            };
            state.is_writing = false;
            match written {
                Ok(Err(error)) => state.failure = Some(error),
                Ok(Ok(())) => {}
                Err(payload) => {
                    state.failure = Some(StoreError::Poisoned {
                        store: "log".to_owned(),
                        cause: "writing to it panicked".to_owned(),
                    });
                    state.panic = Some(payload);
                }
            }
            if let Some(mut spare) = buffers.pop_front() {
                spare.clear();
                state.spare = spare;
            }
            self.changed.notify_all();
        }
    }
}

/// How many buffers from one on go to the medium in one request: those that are `bytes` together at most, and one at least.
fn request_buffers(buffers: &VecDeque<Vec<u8>>, begin: usize, bytes: u64) -> usize {
    let sums = buffers.range(begin..).scan(0u64, |sum, buffer| {
        *sum += buffer.len() as u64;
        Some(*sum)
    });
    sums.take_while(|&sum| sum <= bytes).count().max(1)
}

fn append_all(file: &mut dyn WritableFile, bytes: &[u8], context: &IoContext) -> Result<(), StoreError> {
    if bytes.is_empty() { Ok(()) } else { file.append(bytes, context) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What happens at a certain append.
    #[derive(Clone, Copy)]
    enum Trouble {
        None,
        Fails(usize),
        Panics(usize),
    }

    /// A file that takes a second for each append.
    struct SlowFile {
        env: Env,
        written: Arc<parking_lot::Mutex<Written>>,
        trouble: Trouble,
    }

    #[derive(Default)]
    struct Written {
        bytes: Vec<u8>,
        appends: usize,
        synced_bytes: usize,
        is_finished: bool,
    }

    impl WritableFile for SlowFile {
        fn append(&mut self, data: &[u8], _: &IoContext) -> Result<(), StoreError> {
            self.env.sleep(Duration::from_secs(1));
            let mut written = self.written.lock();
            written.appends += 1;
            match self.trouble {
                Trouble::Fails(at) if at == written.appends => {
                    return Err(StoreError::InvalidRequest { store: "slow".to_owned(), reason: "told to".to_owned() });
                }
                Trouble::Panics(at) if at == written.appends => panic!("the medium broke down"),
                _ => written.bytes.extend_from_slice(data),
            }
            Ok(())
        }

        fn flush(&mut self, _: &IoContext) -> Result<(), StoreError> {
            Ok(())
        }

        fn write_back(&mut self, _: &IoContext) -> Result<(), StoreError> {
            Ok(())
        }

        fn sync(&mut self, _: &IoContext) -> Result<(), StoreError> {
            let mut written = self.written.lock();
            written.synced_bytes = written.bytes.len();
            Ok(())
        }

        fn set_level(&mut self, _: u8) {}

        fn size_bytes(&self) -> u64 {
            self.written.lock().bytes.len() as u64
        }

        fn finish(self: Box<Self>, _: &IoContext) -> Result<(), StoreError> {
            self.written.lock().is_finished = true;
            Ok(())
        }
    }

    /// A log file that may leave 20 bytes behind.
    fn slow(trouble: Trouble) -> (Env, Arc<LogBacklog>, Arc<parking_lot::Mutex<Written>>, WriteBehind) {
        let env = Env::sim(1);
        let (backlog, written) = (Arc::new(LogBacklog::new(20, LogGate::default())), Arc::default());
        let file = SlowFile { env: env.clone(), written: Arc::clone(&written), trouble };
        let context = IoContext::of(varve_store::IoClass::Log);
        let behind = WriteBehind::new(Box::new(file), context, &env, backlog.clone());
        (env, backlog, written, behind)
    }

    fn hand_over(behind: &mut WriteBehind, bytes: &[u8]) -> Result<(), StoreError> {
        behind.append(bytes);
        behind.hand_over()
    }

    fn seconds(env: &Env) -> u64 {
        env.now().as_nanos() / 1_000_000_000
    }

    #[test]
    fn writers_wait_for_what_is_too_much_and_everything_arrives_in_order() {
        let (env, backlog, written, mut behind) = slow(Trouble::None);
        for piece in [b"0123456789", b"abcdefghij"] {
            hand_over(&mut behind, piece).unwrap();
        }
        assert_eq!((seconds(&env), backlog.bytes()), (0, 20));
        hand_over(&mut behind, b"ABCDEFGHIJ").unwrap();
        assert_eq!((seconds(&env), backlog.bytes()), (1, 20), "there is place when the first is written");
        behind.append(b"the end");
        behind.with_all_written(|file, context| file.sync(context)).unwrap();
        assert_eq!((seconds(&env), backlog.bytes()), (4, 0));
        assert_eq!(written.lock().bytes, b"0123456789abcdefghijABCDEFGHIJthe end");
        assert_eq!(written.lock().synced_bytes, 37);
        assert_eq!(backlog.rate().bytes_per_second(), Some(10));
        behind.append(b".");
        behind.finish().unwrap();
        let written = written.lock();
        assert!(written.is_finished && written.bytes.ends_with(b"end."));
    }

    #[test]
    fn more_than_may_be_left_behind_goes_alone() {
        let (env, backlog, written, mut behind) = slow(Trouble::None);
        hand_over(&mut behind, &[7; 50]).unwrap();
        assert_eq!((seconds(&env), backlog.bytes()), (0, 50));
        hand_over(&mut behind, &[8; 1]).unwrap();
        assert_eq!((seconds(&env), backlog.bytes()), (1, 1));
        drop(behind);
        assert!(written.lock().bytes.len() >= 50);
        assert_eq!(backlog.bytes(), 0, "what is given up is not on its way");
    }

    #[test]
    fn a_failure_is_told_by_every_later_call_and_nothing_follows_it() {
        for at in 1..=3 {
            let (_, backlog, written, mut behind) = slow(Trouble::Fails(at));
            let mut failed = false;
            for _ in 0..6 {
                let told = hand_over(&mut behind, b"0123456789").is_err();
                assert!(told || !failed, "told once, and then not");
                failed |= told;
            }
            assert!(failed);
            behind.with_all_written(|file, context| file.sync(context)).unwrap_err();
            assert_eq!(written.lock().bytes.len(), (at - 1) * 10);
            assert_eq!(written.lock().synced_bytes, 0);
            assert_eq!(backlog.bytes(), 0);
            behind.finish().unwrap_err();
        }
        let (_, _, written, mut behind) = slow(Trouble::Fails(1));
        behind.append(b"0123456789");
        behind.with_all_written(|_, _| Ok(())).unwrap_err();
        hand_over(&mut behind, b"0123456789").unwrap_err();
        assert!(written.lock().bytes.is_empty());
    }

    #[test]
    fn a_panic_goes_on_where_it_is_noticed() {
        let (_, _, _, mut behind) = slow(Trouble::Panics(1));
        hand_over(&mut behind, b"0123456789").unwrap();
        let noticed = catch_unwind(AssertUnwindSafe(|| behind.with_all_written(|_, _| Ok(()))));
        assert_eq!(noticed.unwrap_err().downcast_ref::<&str>(), Some(&"the medium broke down"));
        assert!(matches!(hand_over(&mut behind, b"more"), Err(StoreError::Poisoned { .. })));
    }
}
