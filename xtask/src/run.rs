//! Starts other programs, and says what they are.

use crate::silence::{SILENT_MAX, Watch};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from)
}

/// The cargo that runs this.
pub(crate) fn cargo() -> Command {
    let mut command = plain(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Another program.
pub(crate) fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    // What cargo said about this package is not true for others.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end, with its output where ours goes.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<(), String> {
    eprintln!("\n== {what}");
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("{what}: cannot start: {error}"))?;
    if !status.success() {
        return Err(format!("{what}: failed ({status})"));
    }
    eprintln!("== {what}: done in {} s", start.elapsed().as_secs());
    Ok(())
}

/// How far a command is: what passed since its start, and the processor time of it and of those that it ran to their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) elapsed: Duration,
    pub(crate) processor: Duration,
}

/// Runs a command to its end and gives each line it writes, and how far it was, to `follow`, as they come: what goes to its
/// two outputs is in order. Returns how far it came. One that says nothing any more is [ended](Watch).
pub(crate) fn follow(
    what: &str,
    mut command: Command,
    mut follow: impl FnMut(Progress, &str),
) -> Result<Progress, String> {
    let said = |error: std::io::Error| format!("{what}: {error}");
    let start = Instant::now();
    let (output, input) = std::io::pipe().map_err(said)?;
    command.stdout(input.try_clone().map_err(said)?).stderr(input);
    let mut child = command.spawn().map_err(|error| format!("{what}: cannot start: {error}"))?;
    // It holds ends of the pipe that are written to, and there would be no end.
    drop(command);
    let progress = || Progress { elapsed: start.elapsed(), processor: processor_of(&child.id().to_string()) };
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    let watch = Watch::start(child.id(), SILENT_MAX);
    let mut at = Progress::default();
    loop {
        // Lines that came together came at one time: what there is to ask costs more than most of them.
        let is_waiting = output.buffer().is_empty();
        if output.read_until(b'\n', &mut line).map_err(said)? == 0 {
            break;
        }
        if is_waiting {
            at = progress();
            watch.note();
        }
        follow(at, String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    // What a process used is known until somebody waits for it.
    let end = progress();
    let status = child.wait().map_err(said)?;
    if watch.end() {
        return Err(format!("{what}: it said nothing for {} s and was ended; stacks are above", SILENT_MAX.as_secs()));
    }
    if status.success() { Ok(end) } else { Err(format!("{what}: failed ({status})")) }
}

/// Processor time of a process (`self` is this one) and of those that it, and they, waited for; none where the system does
/// not tell.
pub(crate) fn processor_of(process: &str) -> Duration {
    let told = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    Duration::from_millis(10 * ticks(&told).unwrap_or(0))
}

/// The same in hundredths of a second, in which Linux counts it there: fields 14 to 17 of what it tells, of which the
/// second, a name, may have spaces and parentheses in it.
fn ticks(told: &str) -> Option<u64> {
    let mut fields = told.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    (0..4).map(|_| fields.next()?.parse::<u64>().ok()).sum()
}

/// Whether a command can be run at all.
pub(crate) fn works(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs Debian packages if this user may; says whether that went well.
pub(crate) fn install(packages: &[&str]) -> bool {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.starts_with(b"0\n"));
    if !is_root || !works("apt-get", &["--version"]) {
        return false;
    }
    eprintln!("== installing {}", packages.join(" "));
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(packages);
    apt(&install) || (apt(&["update", "-qq"]) && apt(&install))
}

/// Whether a subcommand of cargo is there, or rustup can add the component that has it.
pub(crate) fn has_component(subcommand: &str, component: &str) -> bool {
    let has = || works("cargo", &[subcommand, "--version"]);
    has() || works("rustup", &["component", "add", component]) && has()
}

/// The triple of this machine.
pub(crate) fn host() -> Result<String, String> {
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("-vV")
        .output()
        .map_err(|error| format!("rustc: {error}"))?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_spaces() {
        let told = "7 (a) b (c) S 1 7 7 0 -1 4194560 900 80 0 0 11 12 250 31 20 0 1 0 99 1 2";
        assert_eq!(ticks(told), Some(304));
        assert_eq!(ticks("7 (a) S 1"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn lines_come_with_what_was_used_before_them() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2"]);
        let end = follow("sh", command, |progress, line| lines.push((progress.elapsed, line.to_owned()))).expect("sh");
        assert_eq!(lines.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert!(lines.iter().all(|(at, _)| *at <= end.elapsed));
    }
}
