//! When a process has come to rest.

use std::time::Duration;
use varve_env::Env;
use varve_lab::host;

/// Between two looks.
const LOOK_MILLIS: u64 = 50;

/// Looks that must find nothing, one after the other.
const LOOKS: u32 = 6;

/// Share of one processor the process may use and still count as at rest: timers of idle threads.
const RESTING_SHARE: f64 = 0.02;

/// Bytes it may write between two looks and still count as at rest.
const RESTING_BYTES: u64 = 64 << 10;

/// Waits until this process has used next to no processor time and written next to nothing for
/// 0.3 s: what is left of compactions is over then, for stores that do not say so themselves.
pub(crate) fn wait() {
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
