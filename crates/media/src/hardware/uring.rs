//! io_uring: every request of a batch in flight at once.
//!
//! Each batch takes a ring from a pool and gives it back empty, so threads never share a ring and
//! no lock is held while requests are in flight.

use super::submission::{Submission, Vector};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::io::{Errno, ReadWriteFlags};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Rings kept for the next batch; more are made when more threads come, and dropped again.
const IDLE_RINGS_MAX: usize = 16;

pub(super) struct UringPool {
    entries: u32,
    idle: Mutex<Vec<IoUring>>,
}

impl UringPool {
    /// A pool of rings of `entries` submissions, if the kernel has io_uring, lets us use it, and knows
    /// the four operations needed.
    pub(super) fn probe(entries: u32) -> Option<Self> {
        let ring = IoUring::new(entries).ok()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let needed = [opcode::Readv::CODE, opcode::Writev::CODE, opcode::Read::CODE, opcode::Write::CODE];
        let usable = needed.into_iter().all(|code| probe.is_supported(code));
        usable.then(|| UringPool { entries, idle: Mutex::new(vec![ring]) })
    }

    /// Makes one attempt at each submission. Those it could not submit keep `attempt` as it is.
    pub(super) fn attempt(&self, file: BorrowedFd<'_>, submissions: &mut [Submission<'_, '_>]) {
        let idle = self.idle.lock().pop();
        let Some(mut ring) = idle.or_else(|| IoUring::new(self.entries).ok()) else { return };
        for chunk in submissions.chunks_mut(self.entries as usize) {
            attempt_chunk(&mut ring, file, chunk);
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_RINGS_MAX {
            idle.push(ring);
        }
    }

    #[cfg(test)]
    pub(super) fn idle_rings(&self) -> usize {
        self.idle.lock().len()
    }
}

/// Submits a chunk that fits the ring and waits for all of it. The ring is empty before and after.
fn attempt_chunk(ring: &mut IoUring, file: BorrowedFd<'_>, submissions: &mut [Submission<'_, '_>]) {
    let mut pushed = 0;
    for (index, submission) in submissions.iter_mut().enumerate() {
        let entry = entry_of(file, submission).user_data(index as u64);
        // SAFETY: the entry points at the slices and bytes `submission` borrows and at the open file.
        // Both stay borrowed, unmoved and untouched until the loop below has seen the completion of
        // every entry pushed; nothing between here and there returns or panics.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            break;
        }
        pushed += 1;
    }
    let mut completed = 0;
    while completed < pushed {
        if ring.submit_and_wait(pushed - completed).is_err() {
            // Interrupted, or the kernel is short of memory: what it took goes on by itself, the rest is
            // submitted the next time round. Leaving is no choice: the kernel would write to freed memory.
            std::thread::yield_now();
        }
        for completion in ring.completion() {
            completed += 1;
            if let Some(submission) = submissions.get_mut(completion.user_data() as usize) {
                let result = completion.result();
                submission.attempt = Some(match usize::try_from(result) {
                    Ok(moved) => Ok(moved),
                    Err(_) => Err(Errno::from_raw_os_error(result.saturating_neg())),
                });
            }
        }
    }
}

fn entry_of(file: BorrowedFd<'_>, submission: &mut Submission<'_, '_>) -> squeue::Entry {
    let fd = types::Fd(file.as_raw_fd());
    let at = submission.offset_bytes;
    let flags = if submission.durable { ReadWriteFlags::DSYNC.bits() as i32 } else { 0 };
    // An IoSlice and an IoSliceMut have the layout of an iovec, as their documentation promises; the
    // caller keeps slices within IOV_MAX and buffers within u32.
    match &mut submission.vector {
        Vector::Read(slices) => {
            opcode::Readv::new(fd, slices.as_mut_ptr().cast(), slices.len() as u32).offset(at).build()
        }
        Vector::ReadInto(bytes) => opcode::Read::new(fd, bytes.as_mut_ptr(), length_of(bytes)).offset(at).build(),
        Vector::Write(slices) => {
            opcode::Writev::new(fd, slices.as_ptr().cast(), slices.len() as u32).offset(at).rw_flags(flags).build()
        }
        Vector::WriteFrom(bytes) => {
            opcode::Write::new(fd, bytes.as_ptr(), length_of(bytes)).offset(at).rw_flags(flags).build()
        }
    }
}

/// The length of one attempt: a longer buffer is finished by later calls.
fn length_of(bytes: &[u8]) -> u32 {
    bytes.len().min(1 << 30) as u32
}
