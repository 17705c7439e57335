//! What the lab asks of the machine it runs on: memory and I/O of this process, load by others,
//! and the files of reports and traces.
//!
//! The one place of this crate that touches the operating system. Nothing here influences what a
//! workload does; on a system without `/proc` the numbers are absent.

use crate::error::LabError;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident now.
    pub resident_bytes: u64,
    /// Largest resident size since the process began or [`reset_peak_memory`].
    pub peak_bytes: u64,
}

/// I/O of this process, as the kernel accounts it (`/proc/self/io`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIo {
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes sent to storage, or dirtied in the page cache to be sent.
    pub written_bytes: u64,
    /// Bytes of those that never went there because the file was truncated or removed first.
    pub cancelled_bytes: u64,
}

/// Processor time of the whole machine since it started, in ticks (`/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineTime {
    /// Spent by processes or the kernel.
    pub busy_ticks: u64,
    /// Taken by the hypervisor for others.
    pub stolen_ticks: u64,
    /// All, idle included.
    pub total_ticks: u64,
}

/// The memory of this process; `None` where the system does not say.
pub fn memory() -> Option<Memory> {
    parse_memory(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_memory(status: &str) -> Option<Memory> {
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some(Memory { resident_bytes: kilobytes("VmRSS")? * 1024, peak_bytes: kilobytes("VmHWM")? * 1024 })
}

/// The memory of the machine, in bytes; `None` where the system does not say.
pub fn machine_memory_bytes() -> Option<u64> {
    parse_machine_memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_machine_memory(text: &str) -> Option<u64> {
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
    kibibytes.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Lets the peak of [`memory`] begin anew. Does nothing where the system does not allow it.
pub fn reset_peak_memory() {
    // Refused in some containers; the peak then is that of the whole process.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The I/O of this process; `None` where the system does not say.
pub fn process_io() -> Option<ProcessIo> {
    parse_process_io(&fs::read_to_string("/proc/self/io").ok()?)
}

fn parse_process_io(text: &str) -> Option<ProcessIo> {
    let number = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
    };
    Some(ProcessIo {
        read_bytes: number("read_bytes")?,
        written_bytes: number("write_bytes")?,
        cancelled_bytes: number("cancelled_write_bytes")?,
    })
}

/// Bytes this process read by system calls, from caches too; `None` where the system does not say.
pub fn read_call_bytes() -> Option<u64> {
    parse_read_calls(&fs::read_to_string("/proc/self/io").ok()?)
}

fn parse_read_calls(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("rchar:")?.trim().parse().ok())
}

/// Processor time of the machine; `None` where the system does not say.
pub fn machine_time() -> Option<MachineTime> {
    parse_machine_time(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_machine_time(text: &str) -> Option<MachineTime> {
    // user nice system idle iowait irq softirq steal guest guest_nice; guests are in user already.
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
    if ticks.len() < 4 {
        return None;
    }
    Some(MachineTime {
        busy_ticks: at(0) + at(1) + at(2) + at(5) + at(6),
        stolen_ticks: at(7),
        total_ticks: ticks.iter().take(8).sum(),
    })
}

/// Processors and kernel of this machine, for the head of a report.
pub fn description() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let count = varve_env::Env::real().parallelism();
    format!("{count} x {}, Linux {}", model.unwrap_or("unknown processor"), kernel.trim())
}

/// Writes a file, making its directory first.
///
/// # Errors
/// The system's, with the path.
pub fn write_file(path: &Path, contents: &[u8]) -> Result<(), LabError> {
    let failed = |error: std::io::Error| LabError::file(path.display().to_string(), error);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    fs::write(path, contents).map_err(failed)
}

/// Reads a whole file, or `None` when there is none.
///
/// # Errors
/// The system's, with the path.
pub fn read_file(path: &Path) -> Result<Option<Vec<u8>>, LabError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LabError::file(path.display().to_string(), error)),
    }
}

/// Metadata of a path, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A file that can be read to its end.
    File,
    /// A directory.
    Directory,
    /// A pipe, a socket or a device.
    Special,
}

/// Metadata of `path`, links not followed.
///
/// # Errors
/// The system's, with the path; also that there is nothing.
pub fn path_kind(path: &Path) -> Result<PathKind, LabError> {
    let kind = fs::metadata(path).map_err(|error| LabError::file(path.display().to_string(), error))?.file_type();
    Ok(match (kind.is_file(), kind.is_dir()) {
        (true, _) => PathKind::File,
        (_, true) => PathKind::Directory,
        _ => PathKind::Special,
    })
}

/// Everything in a directory, in the order of the names.
///
/// # Errors
/// The system's, with the path.
pub fn list_directory(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let failed = |error: std::io::Error| LabError::file(directory.display().to_string(), error);
    let entries = fs::read_dir(directory).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let mut paths = paths.collect::<Result<Vec<PathBuf>, LabError>>()?;
    paths.sort_unstable();
    Ok(paths)
}

/// Opens a file to read it from its begin.
///
/// # Errors
/// The system's, with the path.
pub fn open_file(path: &Path) -> Result<fs::File, LabError> {
    fs::File::open(path).map_err(|error| LabError::file(path.display().to_string(), error))
}

/// Whether there is anything at `path`.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Whether there is a file at `path`.
pub fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// The place of a file called `name` in the directory of the running program, when the system says
/// where that is.
pub fn beside_this_program(name: &str) -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.with_file_name(name))
}

/// Removes a file a user named a directory for; one that is not there is no error.
pub fn remove_file(path: &Path) -> Result<(), LabError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::file(path.display().to_string(), format!("cannot remove it: {error}")))
        }
        _ => Ok(()),
    }
}

/// Removes a directory and everything in it; no error when it is not there.
///
/// # Errors
/// The system's, with the path.
pub fn remove_directory(path: &Path) -> Result<(), LabError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::file(path.display().to_string(), error))
        }
        _ => Ok(()),
    }
}

/// The value of an environment variable, when it is set and not empty.
pub fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Runs a program to its end; its messages go where this process's go. Returns what it printed.
///
/// # Errors
/// The program cannot be started, or ends with a failure.
pub fn run_program(program: &Path, arguments: &[String]) -> Result<Vec<u8>, LabError> {
    let failed = |reason: String| LabError::Program { program: program.display().to_string(), reason };
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_understood() {
        let status = "Name:\tx\nVmPeak:\t  999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_memory(status), Some(Memory { resident_bytes: 1 << 20, peak_bytes: 2 << 20 }));
        assert_eq!(parse_memory("Name: x"), None);
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(parse_process_io(io), Some(ProcessIo { read_bytes: 5, written_bytes: 6, cancelled_bytes: 7 }));
        assert_eq!((parse_read_calls(io), parse_read_calls("wchar: 2\n")), (Some(1), None));
        let stat = "cpu  10 1 5 100 7 2 3 9 4 0\ncpu0 1 2 3\n";
        assert_eq!(parse_machine_time(stat), Some(MachineTime { busy_ticks: 21, stolen_ticks: 9, total_ticks: 137 }));
        assert_eq!(parse_machine_time("intr 1"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn machines_have_memory() {
        assert_eq!(parse_machine_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(parse_machine_memory("MemFree: 1 kB\n"), None);
        assert!(machine_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn this_process_has_memory() {
        let memory = memory().unwrap();
        assert!(memory.resident_bytes > 0 && memory.peak_bytes >= memory.resident_bytes / 2);
        assert!(machine_time().unwrap().total_ticks > 0);
        assert!(description().contains("Linux"));
    }
}
