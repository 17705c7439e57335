//! Ends a command that says nothing any more, and says first where it stands: a suite that hangs fails, and is told from one
//! that is slow.

use crate::run;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Several times what the slowest test takes on the slowest machine this ran on.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(15 * 60);

/// Watches one command until it is [ended](Watch::end).
pub(crate) struct Watch {
    heard: Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watch {
    /// Of the process and all it started, which may say nothing for so long.
    pub(crate) fn start(process: u32, silent_max: Duration) -> Watch {
        let (heard, hearing) = channel();
        let thread = std::thread::spawn(move || watch(process, silent_max, &hearing));
        Watch { heard, thread }
    }

    /// It said something.
    pub(crate) fn note(&self) {
        // Nobody hears it once the command was ended.
        let _ = self.heard.send(());
    }

    /// Whether it was ended for its silence.
    pub(crate) fn end(self) -> bool {
        drop(self.heard);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn watch(process: u32, silent_max: Duration, hearing: &Receiver<()>) -> bool {
    loop {
        match hearing.recv_timeout(silent_max) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    eprintln!("== nothing was said for {} s; where it stands:", silent_max.as_secs());
    let mut processes = with_descendants(process);
    processes.iter().for_each(|process| print_stacks(*process));
    // What was started last first: who waits for it would start another.
    processes.reverse();
    let numbers = processes.iter().map(u32::to_string);
    let _ = Command::new("kill").arg("-KILL").args(numbers).status();
    true
}

/// A process and all that it and those started, parents before children.
fn with_descendants(process: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let told = |number: u32| std::fs::read_to_string(format!("/proc/{number}/stat")).ok();
    let parents: Vec<(u32, u32)> = numbers.filter_map(|number| Some((number, parent_of(&told(number)?)?))).collect();
    let mut found = vec![process];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(number, _)| *number));
        at += 1;
    }
    found
}

/// Field 4 of what Linux tells of a process, of which the second, a name, may have spaces and parentheses in it.
fn parent_of(told: &str) -> Option<u32> {
    told.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Where each thread of a process is; nothing where no debugger can be had.
fn print_stacks(process: u32) {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    eprintln!("== process {process}: {}", name.trim());
    if !run::works("gdb", &["--version"]) && !run::install(&["gdb"]) {
        return;
    }
    let stacks = Command::new("gdb")
        .args(["-p", &process.to_string(), "-batch", "-ex", "thread apply all backtrace 40"])
        .stdin(Stdio::null())
        .output();
    if let Ok(stacks) = stacks {
        eprintln!("{}", String::from_utf8_lossy(&stacks.stdout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Child;

    fn start(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().expect("sh")
    }

    #[test]
    fn parents_are_read_behind_names_with_spaces() {
        assert_eq!(parent_of("7 (a) b (c) S 31 7 7 0"), Some(31));
        assert_eq!(parent_of("7 (a"), None);
    }

    #[test]
    fn who_is_silent_is_ended_with_what_it_started_and_who_ends_before_is_not() {
        // Not a success either when what it waits for is ended before it.
        let mut silent = start("sleep 1000 & sleep 1000; false");
        let watch = Watch::start(silent.id(), Duration::from_millis(300));
        watch.note();
        let status = silent.wait().expect("sh");
        assert!(watch.end() && !status.success(), "{status}");
        let mut short = start("true");
        let watch = Watch::start(short.id(), Duration::from_secs(1000));
        assert!(short.wait().expect("sh").success());
        assert!(!watch.end());
    }
}
