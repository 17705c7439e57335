//! When a process has come to rest.

use std::sync::Arc;
use std::time::Duration;
use varve::env::Env;
use varve_lab::host;
use varve_lab::target::{Session, Target, TargetError, TargetStatistics};

/// Between two looks.
const LOOK_MILLIS: u64 = 50;

/// Looks that must find nothing, one after the other.
const LOOKS: u32 = 6;

/// Share of one processor the process may use and still count as at rest: timers of idle threads.
const RESTING_SHARE: f64 = 0.02;

/// Bytes it may write between two looks and still count as at rest.
const RESTING_BYTES: u64 = 64 << 10;

/// Waits until this process has used next to no processor time and written next to nothing for
/// 0.3 s.
fn wait() {
    let env = Env::real();
    let mut quiet = 0;
    let mut cpu = env.process_cpu_nanos();
    let mut written = host::process_io().map(|io| io.written_bytes);
    while quiet < LOOKS {
        env.sleep(Duration::from_millis(LOOK_MILLIS));
        let cpu_now = env.process_cpu_nanos();
        let written_now = host::process_io().map(|io| io.written_bytes);
        let used = cpu_now.unwrap_or(0).saturating_sub(cpu.unwrap_or(0)) as f64;
        let grown = written_now.unwrap_or(0).saturating_sub(written.unwrap_or(0));
        let rests = used < LOOK_MILLIS as f64 * 1e6 * RESTING_SHARE && grown < RESTING_BYTES;
        quiet = if rests { quiet + 1 } else { 0 };
        (cpu, written) = (cpu_now, written_now);
    }
}

/// A store that is idle only when the whole process rests, whatever it says itself: not every store
/// can say it, and all are to be measured alike.
pub(crate) struct Rested<T>(pub(crate) T);

impl<T: Target> Rested<T> {
    pub(crate) fn shared(target: T) -> Arc<dyn Target>
    where
        T: 'static,
    {
        Arc::new(Rested(target))
    }
}

impl<T: Target> Target for Rested<T> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        self.0.session()
    }

    fn flush(&self) -> Result<(), TargetError> {
        self.0.flush()
    }

    fn wait_idle(&self) -> Result<(), TargetError> {
        self.0.wait_idle()?;
        wait();
        Ok(())
    }

    fn compact(&self) -> Result<(), TargetError> {
        self.0.compact()
    }

    fn statistics(&self) -> Result<TargetStatistics, TargetError> {
        self.0.statistics()
    }
}
