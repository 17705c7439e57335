//! preadv2 and pwritev2: the engine that is always there, and the end of what others leave undone.

use super::submission::{Submission, Vector};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

/// Repeats a call that a signal interrupted.
pub(super) fn repeat<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => continue,
            result => return result,
        }
    }
}

/// Does a submission to its end, wherever an earlier attempt left it. What lies behind the end of
/// the file reads as zeros. `unit_bytes` is the alignment direct I/O needs, 1 for none.
pub(super) fn complete(
    file: BorrowedFd<'_>,
    submission: &mut Submission<'_, '_>,
    unit_bytes: usize,
) -> rustix::io::Result<()> {
    let length = submission.length();
    let moved = match submission.attempt.take() {
        Some(Ok(moved)) => moved,
        None | Some(Err(Errno::INTR | Errno::AGAIN)) => repeat(|| attempt(file, submission))?,
        Some(Err(errno)) => return Err(errno),
    };
    if moved >= length {
        return Ok(());
    }
    let offset_bytes = submission.offset_bytes;
    match &mut submission.vector {
        Vector::Read(slices) => {
            let mut start = 0;
            let mut ended = !moved.is_multiple_of(unit_bytes);
            for slice in slices.iter_mut() {
                let from = moved.saturating_sub(start).min(slice.len());
                read_rest(file, &mut slice[from..], offset_bytes + (start + from) as u64, unit_bytes, &mut ended)?;
                start += slice.len();
            }
        }
        Vector::ReadInto(bytes) => {
            let mut ended = !moved.is_multiple_of(unit_bytes);
            read_rest(file, &mut bytes[moved..], offset_bytes + moved as u64, unit_bytes, &mut ended)?;
        }
        Vector::Write(slices) => {
            let mut start = 0;
            for slice in slices.iter() {
                let from = moved.saturating_sub(start).min(slice.len());
                write_rest(file, &slice[from..], offset_bytes + (start + from) as u64)?;
                start += slice.len();
            }
        }
        Vector::WriteFrom(bytes) => write_rest(file, &bytes[moved..], offset_bytes + moved as u64)?,
    }
    if submission.durable {
        repeat(|| rustix::fs::fdatasync(file))?;
    }
    Ok(())
}

/// One system call for the whole submission, which may move less.
fn attempt(file: BorrowedFd<'_>, submission: &mut Submission<'_, '_>) -> rustix::io::Result<usize> {
    let offset_bytes = submission.offset_bytes;
    let flags = if submission.durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
    match &mut submission.vector {
        Vector::Read(slices) => rustix::io::preadv(file, slices, offset_bytes),
        Vector::ReadInto(bytes) => rustix::io::preadv(file, &mut [IoSliceMut::new(bytes)], offset_bytes),
        Vector::Write(slices) => rustix::io::pwritev2(file, slices, offset_bytes, flags),
        Vector::WriteFrom(bytes) => rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset_bytes, flags),
    }
}

/// Fills `data`; `ended` says that the end of the file was met.
fn read_rest(
    file: BorrowedFd<'_>,
    mut data: &mut [u8],
    mut offset_bytes: u64,
    unit_bytes: usize,
    ended: &mut bool,
) -> rustix::io::Result<()> {
    while !data.is_empty() && !*ended {
        let count = repeat(|| rustix::io::pread(file, &mut *data, offset_bytes))?;
        // A direct read off the alignment has met the end of the file as much as an empty one.
        *ended = count == 0 || !count.is_multiple_of(unit_bytes);
        data = &mut data[count..];
        offset_bytes += count as u64;
    }
    data.fill(0);
    Ok(())
}

fn write_rest(file: BorrowedFd<'_>, mut data: &[u8], mut offset_bytes: u64) -> rustix::io::Result<()> {
    while !data.is_empty() {
        let count = repeat(|| rustix::io::pwrite(file, data, offset_bytes))?;
        if count == 0 {
            return Err(Errno::IO);
        }
        data = &data[count..];
        offset_bytes += count as u64;
    }
    Ok(())
}
