//! Progress with rate and time to go, for what takes longer than a second.

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use varve::env::{Env, Instant, JoinHandle};
use varve::stack::Stack;

/// A display that appears after a second, and only where somebody looks.
pub(crate) struct Progress {
    bar: ProgressBar,
    env: Env,
    begin: Instant,
    wanted: bool,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(wanted: bool) -> Self {
        let env = Env::real();
        let begin = env.now();
        Progress {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
            env,
            begin,
            wanted,
            shown: false,
        }
    }

    /// Whether anything will be shown, so that counting the work ahead pays.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Counts bytes towards `total`, when it is known.
    pub(crate) fn bytes(self, total: Option<u64>) -> Self {
        self.styled(total, "{bytes} of {total_bytes}", "{bytes}", "{binary_bytes_per_sec}")
    }

    /// Counts things called `unit` towards `total`, when it is known.
    pub(crate) fn count(self, total: Option<u64>, unit: &str) -> Self {
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let (with_total, without) = (format!("{{human_pos}} of {{human_len}}{unit}"), format!("{{human_pos}}{unit}"));
        self.styled(total, &with_total, &without, "{rate}/s")
    }

    /// Says what is going on before the numbers.
    pub(crate) fn named(self, what: &str) -> Self {
        self.bar.set_message(format!("{what}: "));
        self
    }

    fn styled(self, total: Option<u64>, with_total: &str, without: &str, rate: &str) -> Self {
        let template = match total {
            Some(_) => format!("{{msg}}{{wide_bar}} {with_total}, {rate}, {{eta}} to go"),
            None => format!("{{spinner}} {{msg}}{without}, {rate}, {{elapsed}}"),
        };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
        }));
        if let Some(total) = total {
            self.bar.set_length(total);
        }
        self
    }

    /// Says that `position` of the work is done.
    pub(crate) fn set(&mut self, position: u64) {
        self.bar.set_position(position);
        if self.wanted && !self.shown && self.env.now() - self.begin >= Duration::from_secs(1) {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// A line above the display.
    pub(crate) fn print(&self, line: &str) {
        if self.shown { self.bar.println(line) } else { eprintln!("{line}") }
    }

    /// Shows that something without steps goes on, until the guard is dropped.
    pub(crate) fn busy(self, what: &str) -> Busy {
        if self.wanted {
            let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            self.bar.set_message(what.to_owned());
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(2));
            self.bar.enable_steady_tick(Duration::from_millis(500));
        }
        Busy { bar: self.bar, watcher: None }
    }

    /// Shows how far work is that another part does, until the guard is dropped. `moved` says how much
    /// is done; it is asked from another thread, a few times a second, and only if somebody looks.
    pub(crate) fn watch(mut self, moved: impl Fn() -> u64 + Send + 'static) -> Busy {
        let bar = self.bar.clone();
        let watcher = self.wanted.then(|| {
            let over = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&over);
            let begin = moved();
            let thread = self.env.clone().spawn("progress", move || {
                while !seen.load(Ordering::Relaxed) {
                    self.set(moved().saturating_sub(begin).min(self.bar.length().unwrap_or(u64::MAX)));
                    self.env.sleep(Duration::from_millis(100));
                }
            });
            (over, thread)
        });
        Busy { bar, watcher }
    }

    /// Removes the display.
    pub(crate) fn finish(self) -> Duration {
        self.bar.finish_and_clear();
        self.env.now() - self.begin
    }
}

/// See [`Progress::busy`].
pub(crate) struct Busy {
    bar: ProgressBar,
    watcher: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.watcher.take() {
            over.store(true, Ordering::Relaxed);
            // It does nothing that could fail.
            let _ = thread.join();
        }
        self.bar.finish_and_clear();
    }
}

/// Tells how many bytes were read so far: from the devices of `stack`, or else, as the kernel counts
/// them, by this process. The clock of an emulated device in virtual time would notice being asked.
pub(crate) fn bytes_read(stack: &Stack, env: &Env) -> impl Fn() -> u64 + Send + 'static {
    let devices: Vec<_> = match env.is_virtual() {
        true => Vec::new(),
        false => stack.devices().iter().map(|device| device.device().clone()).collect(),
    };
    move || match devices.as_slice() {
        [] => process_bytes_read(),
        devices => devices.iter().map(|device| device.block.counters().read_bytes).sum(),
    }
}

/// Bytes this process read, from caches too; nothing where the system does not say.
pub(crate) fn process_bytes_read() -> u64 {
    varve_lab::host::read_call_bytes().unwrap_or(0)
}

/// One [`Progress`] after the other, from any thread.
pub(crate) struct LabProgress {
    wanted: bool,
    current: parking_lot::Mutex<Option<Progress>>,
}

impl LabProgress {
    pub(crate) fn new(wanted: bool) -> Self {
        LabProgress { wanted, current: parking_lot::Mutex::new(None) }
    }
}

impl varve_lab::experiment::Progress for LabProgress {
    fn begin(&self, what: &str, total: Option<u64>) {
        let progress = Progress::new(self.wanted).count(total, "").named(what);
        if let Some(previous) = self.current.lock().replace(progress) {
            previous.finish();
        }
    }

    fn advance(&self, done: u64) {
        // Whoever finds it taken leaves the drawing to the other.
        if let Some(mut current) = self.current.try_lock()
            && let Some(progress) = current.as_mut()
        {
            progress.set(done);
        }
    }

    fn end(&self) {
        if let Some(progress) = self.current.lock().take() {
            progress.finish();
        }
    }
}
