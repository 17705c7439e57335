//! When a process has come to rest, and a file system.

use rustix::fs::{Mode, OFlags, open, syncfs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use varve::env::Env;
use varve_lab::LabError;
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
        let seems = used < LOOK_MILLIS as f64 * 1e6 * RESTING_SHARE && grown < RESTING_BYTES;
        quiet = if seems && !waits_for_a_disk() { quiet + 1 } else { 0 };
        // Looking at threads is not the store's work.
        (cpu, written) = (env.process_cpu_nanos(), written_now);
    }
}

/// Whether any thread of this process sleeps until a disk is done, as a compaction that syncs its table: it uses no
/// processor and writes nothing meanwhile.
fn waits_for_a_disk() -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads
        .flatten()
        .any(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| state(&stat) == Some('D')))
}

/// The state in a line of `/proc/PID/stat`: behind the name, which stands in brackets and may hold some itself.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Writes back what the file system of `directory` keeps in memory, and waits for it.
pub(crate) fn write_back(directory: &Path) -> Result<(), LabError> {
    let synced = open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).and_then(syncfs);
    synced.map_err(|error| LabError::file(directory.display().to_string(), error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_behind_the_name() {
        assert_eq!(state("17 (a thread (of mine) 2) D 1 17 17"), Some('D'));
        assert_eq!(state("17 (idle) S 1"), Some('S'));
        assert_eq!(state("nonsense"), None);
    }

    #[test]
    fn a_file_system_is_written_back() {
        let place = tempfile::tempdir().unwrap();
        write_back(place.path()).unwrap();
        assert!(write_back(&place.path().join("nothing")).is_err());
    }
}
