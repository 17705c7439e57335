//! Runs a process until it is about to make its n-th system call that changes a medium, and kills it there.
//!
//! The process asks, by a seccomp filter, to be stopped at those calls only ([`stop_at_calls`]); its parent is the tracer
//! ([`run`]). Rust's own file calls and those of `rustix` (which makes system calls itself, without a C library that
//! could be put before it) are seen alike.

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;

/// Calls whose first argument is a file, and not one of the three that every process has.
const CALLS_ON_FILES: &[(i64, &str)] = &[
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwrite64, "pwrite"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_sync_file_range, "sync_file_range"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_fchmod, "fchmod"),
];

/// Calls on names.
const CALLS_ON_NAMES: &[(i64, &str)] = &[
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_truncate, "truncate"),
    (libc::SYS_msync, "msync"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, "rename"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, "unlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_link, "link"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_symlink, "symlink"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, "mkdir"),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rmdir, "rmdir"),
];

/// Lets this process, and every thread it starts from now on, be stopped at those calls. Without a tracer they fail.
pub(crate) fn stop_at_calls() -> Result<(), String> {
    let said = |error: seccompiler::Error| format!("seccomp: {error}");
    let of_backend = |error: seccompiler::BackendError| format!("seccomp: {error}");
    let condition = |argument: u8, operator: SeccompCmpOp, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map_err(of_backend)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, _) in CALLS_ON_FILES {
        rules.insert(*call, vec![condition(0, SeccompCmpOp::Gt, 2)?]);
    }
    for (call, _) in CALLS_ON_NAMES {
        rules.insert(*call, Vec::new());
    }
    // Opening makes a file only if it is asked to.
    let create = libc::O_CREAT as u64;
    rules.insert(libc::SYS_openat, vec![condition(2, SeccompCmpOp::MaskedEq(create), create)?]);
    let architecture = std::env::consts::ARCH.try_into().map_err(of_backend)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), architecture);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(of_backend)?;
    seccompiler::apply_filter(&program).map_err(said)
}

/// How far a call that can be torn is looked for.
const TORN_WITHIN_CALLS: u64 = 40;

/// What is done to a traced process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plan {
    /// Killed when it is about to make this call, counted from 1. 0: never.
    pub(crate) kill_at: u64,
    /// The next call from there on that writes more than this many 4 KiB blocks is done as far as these, and then the
    /// process is killed; at a call some way behind if there is none.
    pub(crate) torn_blocks: Option<u64>,
}

/// How a traced process ended.
#[derive(Debug)]
pub(crate) enum End {
    /// At this call.
    Killed(String),
    /// By itself.
    Exited(i32),
}

/// Tells how a traced process ended and how many calls it made.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) end: End,
    pub(crate) calls: u64,
}

/// Begins to trace a child of this thread, which waits to be told that it may begin.
///
/// # Errors
/// Whoever may not trace processes gets what the system says.
pub(crate) fn seize(child: u32) -> Result<(), Errno> {
    let options = Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACESECCOMP | Options::PTRACE_O_EXITKILL;
    ptrace::seize(Pid::from_raw(child as i32), options | Options::PTRACE_O_TRACESYSGOOD)
}

/// Follows a seized child to its end. Only the thread that seized it may call this.
pub(crate) fn run(child: u32, plan: Plan) -> Result<Traced, String> {
    let child = Pid::from_raw(child as i32);
    let mut calls = 0;
    let mut killed: Option<String> = None;
    loop {
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let status = match waitpid(None, Some(flags)) {
            Err(Errno::EINTR) => continue,
            status => status.map_err(|errno| format!("waitpid: {errno}"))?,
        };
        let resumed = match status {
            WaitStatus::PtraceEvent(thread, _, event) if event == ptrace::Event::PTRACE_EVENT_SECCOMP as i32 => {
                calls += 1;
                let may_wait = plan.torn_blocks.is_some() && calls < plan.kill_at + TORN_WITHIN_CALLS;
                let torn = plan.torn_blocks.filter(|_| calls >= plan.kill_at && killed.is_none());
                if plan.kill_at == 0 || calls < plan.kill_at || killed.is_some() {
                    ptrace::cont(thread, None)
                } else if let Some(bytes) = torn.and_then(|blocks| tear(thread, blocks)) {
                    killed = Some(format!("{}, torn after {bytes}", name_of_call(thread)));
                    ptrace::syscall(thread, None)
                } else if may_wait {
                    ptrace::cont(thread, None)
                } else {
                    killed = Some(name_of_call(thread));
                    kill(child, Signal::SIGKILL)
                }
            }
            // The torn write is done.
            WaitStatus::PtraceSyscall(_) => kill(child, Signal::SIGKILL),
            WaitStatus::PtraceEvent(thread, _, _) => ptrace::cont(thread, None),
            WaitStatus::Stopped(thread, signal) => ptrace::cont(thread, signal),
            WaitStatus::Exited(process, code) if process == child => {
                return Ok(Traced { end: End::Exited(code), calls });
            }
            WaitStatus::Signaled(process, signal, _) if process == child => {
                let end = match (signal, killed) {
                    (Signal::SIGKILL, Some(at)) => End::Killed(at),
                    (signal, _) => return Err(format!("the process died of {signal}")),
                };
                return Ok(Traced { end, calls });
            }
            _ => Ok(()),
        };
        match resumed {
            // It died meanwhile.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(format!("ptrace: {errno}")),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn name_of_call(thread: Pid) -> String {
    let number = ptrace::getregs(thread).map_or(-1, |registers| registers.orig_rax as i64);
    let mut names = CALLS_ON_FILES.iter().chain(CALLS_ON_NAMES);
    let name = names.find(|(call, _)| *call == number).map(|(_, name)| *name);
    name.unwrap_or(if number == libc::SYS_openat { "openat" } else { "?" }).to_owned()
}

#[cfg(not(target_arch = "x86_64"))]
fn name_of_call(_: Pid) -> String {
    "a call".to_owned()
}

/// Shortens the write that `thread` is about to make, as a kill in its middle would: to whole blocks of the file. How many
/// bytes are left; none if it cannot be shorter.
#[cfg(target_arch = "x86_64")]
fn tear(thread: Pid, blocks: u64) -> Option<u64> {
    let mut registers = ptrace::getregs(thread).ok()?;
    let (length, at) = (registers.rdx, registers.r10);
    let bytes = match registers.orig_rax as i64 {
        libc::SYS_pwrite64 => (blocks << 12).checked_sub(at & 0xFFF)?,
        libc::SYS_write => blocks << 12,
        // Of a vector, as many buffers.
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => blocks,
        _ => return None,
    };
    if bytes == 0 || bytes >= length {
        return None;
    }
    registers.rdx = bytes;
    ptrace::setregs(thread, registers).ok()?;
    Some(bytes)
}

#[cfg(not(target_arch = "x86_64"))]
fn tear(_: Pid, _: u64) -> Option<u64> {
    None
}
